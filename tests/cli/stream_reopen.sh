#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=350 waits
# Devices that are opened again between calls on streams, by each provider: on device host, on one GPU for all ranks, and on a
# GPU for each (a libcuda and a libnccl made of threads).
source "$(dirname "$0")/fake_nccl.bash"
fake_kernels
export FAKE_CUDA_REACH=1
for provider in cuda staged; do # test_stream_reopen alone runs the other one
    beside "host, $provider" TUTTI_DEVICE_PROVIDER=$provider timeout 300 "$BUILD/tests/test_stream_reopen"
done
for where in cuda:0=auto cuda:0=staged cuda=auto cuda=cuda cuda=staged; do
    beside "$where" TUTTI_DEVICE_PROVIDER="${where#*=}" TUTTI_CUDA_PATH="$PWD/fake" timeout 300 "$BUILD/tests/test_stream_reopen" "${where%=*}"
done
together
finish
