#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# nccl.sh [KILLS [PARTS]]: the tests of the provider nccl on one GPU, and what it costs beside NCCL itself; from the folder that
# scripts/test_gpu.sh makes. NCCL takes each process for a host of its own (test_nccl sets NCCL_HOSTID), so that it lets them
# share a GPU: slow, but what is computed is the same. KILLS (50) times a rank is killed in an all_reduce. PARTS is a pattern:
# results, conformance (the list of cases, with values whose sums are exact), cost, shared (bench_gpu by NCCL), kills, header;
# all of them take longer than a part of run.sh may.
set -u
cd "$(dirname "$0")" || exit 1
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
rc=0 parts=${2:-.}
run() # name, seconds, command…
{
    local start=$SECONDS status=0
    printf '== %s\n' "$1"
    timeout -k 5 "$2" "${@:3}" || status=$?
    printf '== %s: status %d (%d s)\n' "$1" $status $((SECONDS - start))
    [ $status = 0 ] || rc=1
}

# Each process of the job is a host of its own for NCCL.
shared() # ranks
{
    ./tutti run -n "$1" bash -c 'NCCL_HOSTID=host-$TUTTI_RANK TUTTI_DEVICE_PROVIDER=nccl exec ./bench_gpu cuda:0 slow'
}
export -f shared

./tutti doctor | grep -E ' library +NCCL'
if [[ results =~ $parts ]]; then
    run 'nccl: results, 1 rank as a thread, 1, 2 and 4 as processes' 120 ./test_nccl one results
fi
if [[ conformance =~ $parts ]]; then
    run 'nccl: conformance, 1 rank as a thread, 1, 2 and 4 as processes' 150 ./test_conformance_streams cuda:0 1 4 nccl-one
fi
[[ cost =~ $parts ]] && timeout -k 5 60 ./bench_nccl cuda:0 9 # says what it costs, whatever that is
if [[ shared =~ $parts ]]; then
    for ranks in 2 4; do run "nccl: all_reduce of $ranks processes on one GPU" 60 bash -c "shared $ranks"; done
fi
[[ kills =~ $parts ]] && run 'nccl: a rank is killed' 200 ./test_nccl one kills "${1:-50}"
[[ header =~ $parts ]] || exit $rc
for header in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include $(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/include")' 2>/dev/null); do
    if [ -e "$header/nccl.h" ] && command -v gcc > /dev/null; then
        run "nccl: our declarations and $header/nccl.h" 60 gcc -std=gnu17 -fsyntax-only -I include -I src -I "$header" \
            -I "${CUDA_HOME:-/usr/local/cuda}/include" tests/nccl_header.c
        break
    fi
done
exit $rc
