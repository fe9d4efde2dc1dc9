#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/test_gpu.sh: what `make test-gpu` does. Builds programs that need nothing but glibc and the GPU's driver into
# build-gpu/carry, and runs them where a GPU is. On a machine where nothing can be installed or built: copy that folder
# there and run its run.sh. A program built here starts where glibc is as new as here, or newer.
set -eu
cd "$(dirname "$0")/.."
programs=(test_device test_device_streams test_device_programs test_device_cuda test_gpu_kernels test_conformance_streams test_gpu_faults test_streams_many
    test_stream_ops test_stream_messages test_stream_memory test_stream_deadlines test_staged_rounds test_stream_reopen test_stream_heal test_device_actor test_nccl)
static=() archives=()
for library in sodium jansson; do
    archive=$("${CC:-cc}" -print-file-name="lib$library.a")
    [ -e "$archive" ] || { echo "lib$library.a was not found (Debian: lib$library-dev)"; exit 1; }
    static+=("-DTUTTI_${library^^}_LIBRARY=$archive")
    archives+=("$archive")
done
# without hwloc, which brings more libraries than it is worth
cmake --preset release -B build-gpu --log-level=ERROR -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON "${static[@]}" > /dev/null
cmake --build build-gpu --target tutti bench_gpu bench_gpu_kernels bench_nccl "${programs[@]}" -- --quiet

carry=build-gpu/carry
rm -rf $carry
mkdir -p $carry/src/device $carry/tests
for program in "${programs[@]}"; do
    cp build-gpu/tests/"$program" $carry/
done
cp build-gpu/tutti build-gpu/bench_gpu build-gpu/bench_gpu_kernels build-gpu/bench_nccl scripts/gpu/*.sh $carry/
"${CC:-cc}" -std=c17 -O2 -I include -o $carry/gpu examples/gpu.c build-gpu/libtutti.a "${archives[@]}" -lm -pthread
cp -r include $carry/include
cp src/device/cuda_api.h src/device/nvrtc.h src/device/nccl_api.h $carry/src/device/
cp tests/fake/cuda_header.c tests/fake/nvrtc_header.c tests/fake/nccl_header.c $carry/tests/
strip -g $carry/tutti $carry/gpu $carry/bench_* $carry/test_*

if build-gpu/carry/test_device_cuda --here > /dev/null; then
    rc=3
    while [ $rc = 3 ]; do
        rc=0
        $carry/run.sh || rc=$?
    done
    exit $rc
fi
echo "there is no GPU here ($($carry/test_device_cuda --here || true))"
echo "the programs are in $carry: copy that folder to a machine with one, and run run.sh there"
exit 1
