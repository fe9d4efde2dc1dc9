#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [DEVICE [SEEDS]]: the tests of a GPU, from the folder that scripts/test_gpu.sh makes. Each part has PART_SECONDS (240); all
# run, and the last lines say which have failed.
set -u
cd "$(dirname "$0")" || exit 1
device=${1:-cuda:0} seeds=${2:-1:150}
failed=()

part() # name, command…
{
    local name=$1 start=$SECONDS rc=0
    shift
    printf '== %s\n' "$name"
    timeout -k 5 "${PART_SECONDS:-240}" "$@" || rc=$?
    [ $rc = 0 ] || failed+=("$name ($rc)")
    printf '== %s: %s (%d s)\n' "$name" "$([ $rc = 0 ] && echo passed || echo "FAILED, status $rc")" $((SECONDS - start))
}

./tutti doctor | grep -E ' (version|gpu|library) ' | grep -E 'version|gpu|CUDA|NVRTC|NCCL'
part 'devices' ./test_device "$device"
part 'streams' ./test_device_streams "$device"
part 'random programs' ./test_device_programs "$device" "$seeds"
part 'what only GPUs have' ./test_device_cuda "$device"
for header in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/local/cuda/include; do
    if [ -e "$header/cuda.h" ] && command -v gcc > /dev/null; then
        part "our declarations and $header/cuda.h" gcc -std=gnu17 -fsyntax-only -I include -I src -I "$header" tests/cuda_header.c
        break
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "all passed on $device in $SECONDS s"
