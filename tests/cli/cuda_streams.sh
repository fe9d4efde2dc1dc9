#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# Messages, many ranks with many ops, ranks that are killed and GPUs that fail: on a libcuda made of threads, by the provider cuda.
source "$(dirname "$0")/fake_nccl.bash"
fake_kernels
export TUTTI_CUDA_PATH=$PWD/fake
for part in "test_stream_messages cuda:0" "test_streams_many cuda:0 16 100" "test_gpu_faults cuda:0 5 3"; do
    OUT=$(timeout 300 "$BUILD"/tests/$part 2>&1)
    STATUS=$?
    check "$part ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
done
finish
