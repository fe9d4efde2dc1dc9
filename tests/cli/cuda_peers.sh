#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=300 waits
# Ranks on different GPUs whose memory the first one's reaches go by the provider cuda: on a libcuda made of threads with two
# GPUs (tests/fake/cuda.c), whose kernels fail where they use memory that was not made known to their GPU. Where it does not
# reach, that is said, and calls are staged.
source "$(dirname "$0")/run.bash"
for name in $(compgen -e | grep -E '^(TUTTI_|FAKE_)'); do unset "$name"; done
unset CUDA_HOME CUDA_PATH VIRTUAL_ENV CONDA_PREFIX

case $SANITIZE in
asan) flags=("-fsanitize=address,undefined" -fno-sanitize-recover=all) ;;
*) flags=() ;;
esac
build() { # file, source…
    "$CC" -std=gnu17 -O1 -g -shared -fPIC -w "${flags[@]}" -I "$SRC/include" -I "$SRC/src" -o "$1" "${@:2}" -pthread
}
mkdir fake cache
build fake/libcuda.so.1 -D_GNU_SOURCE "$SRC/tests/fake/cuda.c" "$SRC/tests/fake/cuda_kernels.c"
build fake/libnvrtc.so.13 "$SRC/tests/fake/fake_nvrtc.c"
export TUTTI_CUDA_PATH=$PWD/fake TUTTI_CACHE=$PWD/cache TUTTI_EXACT=1 # without NCCL, which may be here

beside 'collectives and messages, memory of the program' timeout 200 "$BUILD/tests/test_stream_memory" cuda
beside 'all collectives, all providers' timeout 200 "$BUILD/tests/test_conformance_streams" cuda 1 3
together

export FAKE_CUDA_REACH=0
OUT=$(timeout 60 "$TUTTI" bench --ranks 2 --device cuda all_reduce -b 1K -e 1K 2>&1)
matches 'out of reach: staged' 'provider staged: TUTTI_EXACT=1' "$OUT"
OUT=$(TUTTI_DEVICE_PROVIDER=cuda timeout 60 "$TUTTI" bench --ranks 2 --device cuda all_reduce -b 1K -e 1K 2>&1)
matches 'out of reach: refused where it is asked for' \
    "TUTTI_DEVICE_PROVIDER=cuda, but .*: the ranks are on different GPUs, and the first one's does not reach the memory of all others" "$OUT"
finish
