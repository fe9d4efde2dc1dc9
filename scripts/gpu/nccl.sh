#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# nccl.sh [KILLS]: the tests of the provider nccl on one GPU, and what it costs beside NCCL itself; from the folder that
# scripts/test_gpu.sh makes. NCCL takes each process for a host of its own (test_nccl sets NCCL_HOSTID), so that it lets them
# share a GPU: slow, but what is computed is the same. KILLS (50) times a rank is killed in an all_reduce.
set -u
cd "$(dirname "$0")" || exit 1
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
rc=0
run() # name, seconds, command…
{
    local start=$SECONDS status=0
    printf '== %s\n' "$1"
    timeout -k 5 "$2" "${@:3}" || status=$?
    printf '== %s: status %d (%d s)\n' "$1" $status $((SECONDS - start))
    [ $status = 0 ] || rc=1
}

./tutti doctor | grep -E ' library +NCCL'
run 'nccl: results, 1 rank as a thread, 1, 2 and 4 as processes' 120 ./test_nccl one results
timeout -k 5 60 ./bench_nccl cuda:0 9 # says what it costs, whatever that is
run 'nccl: a rank is killed' 200 ./test_nccl one kills "${1:-50}"
for header in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include $(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/include")' 2>/dev/null); do
    if [ -e "$header/nccl.h" ] && command -v gcc > /dev/null; then
        run "nccl: our declarations and $header/nccl.h" 60 gcc -std=gnu17 -fsyntax-only -I include -I src -I "$header" \
            -I "${CUDA_HOME:-/usr/local/cuda}/include" tests/nccl_header.c
        break
    fi
done
exit $rc
