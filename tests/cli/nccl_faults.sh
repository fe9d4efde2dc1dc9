#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=300 waits
# Calls of NCCL that fail or hang, and ranks that are killed in them, on a libnccl made of threads. Each fault takes as long as a
# deadline, so the program is run several times, each time for a share of them.
source "$(dirname "$0")/fake_nccl.bash"
export BESIDE=8
for share in {0..5}; do
    beside "faults, $share" TUTTI_CUDA_PATH="$PWD/fake" timeout 400 "$BUILD/tests/test_nccl" each faults "$share/6"
done
beside 'kills' TUTTI_CUDA_PATH="$PWD/fake" timeout 400 "$BUILD/tests/test_nccl" each kills
beside 'out of memory in the first call' TUTTI_DEVICE_PROVIDER=nccl TUTTI_CUDA_PATH="$PWD/fake" timeout 100 "$BUILD/tests/test_stream_faults" cuda openings
together
finish
