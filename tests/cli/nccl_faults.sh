#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=500 waits
# Calls of NCCL that fail or hang, and ranks that are killed in them, on a libnccl made of threads.
source "$(dirname "$0")/fake_nccl.bash"
for part in faults kills; do
    OUT=$(TUTTI_CUDA_PATH=$PWD/fake timeout 600 "$BUILD/tests/test_nccl" each $part 2>&1)
    STATUS=$?
    check "$part ($(grep -aE '\.c:[0-9]+: ' <<<"$OUT" | head -n 5; tail -n 1 <<<"$OUT"))" 0 $STATUS
done
OUT=$(TUTTI_DEVICE_PROVIDER=nccl TUTTI_CUDA_PATH=$PWD/fake timeout 100 "$BUILD/tests/test_stream_faults" cuda openings 2>&1)
STATUS=$?
check "out of memory in the first call ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
finish
