#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=350 waits
# Memory of the program's own, and streams that are captured, in calls on streams: on a libcuda made of threads, with the
# kernels of device `host`, and an NVRTC that compiles nothing (tests/fake).
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
OUT=$(TUTTI_CUDA_PATH=$PWD/fake TUTTI_CACHE=$PWD/cache timeout 200 "$BUILD/tests/test_stream_memory" cuda:0 2>&1)
STATUS=$?
check "on the first GPU ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
# Memory of a GPU that has failed cannot be given back: leaks are not looked for.
OUT=$(ASAN_OPTIONS=detect_leaks=0 TUTTI_CUDA_PATH=$PWD/fake TUTTI_CACHE=$PWD/cache timeout 100 "$BUILD/tests/test_stream_faults" cuda:0 2>&1)
STATUS=$?
check "calls of the driver that fail ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
OUT=$(TUTTI_DEVICE_PROVIDER=staged TUTTI_CUDA_PATH=$PWD/fake TUTTI_CACHE=$PWD/cache timeout 100 "$BUILD/tests/test_stream_faults" cuda:0 openings 2>&1)
STATUS=$?
check "out of memory in the first call, staged ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
for provider in cuda staged; do
    OUT=$(TUTTI_DEVICE_PROVIDER=$provider TUTTI_CUDA_PATH=$PWD/fake TUTTI_CACHE=$PWD/cache timeout 200 "$BUILD/tests/test_stream_deadlines" cuda:0 2>&1)
    STATUS=$?
    check "deadlines, $provider ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
done
for provider in auto staged; do
    OUT=$(TUTTI_DEVICE_PROVIDER=$provider TUTTI_CUDA_PATH=$PWD/fake TUTTI_CACHE=$PWD/cache timeout 200 "$BUILD/tests/test_stream_ops" cuda:0 2>&1)
    STATUS=$?
    check "ops, $provider ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
done
OUT=$(FAKE_CUDA_COPY_MS=20 TUTTI_DEVICE_PROVIDER=staged TUTTI_CUDA_PATH=$PWD/fake TUTTI_CACHE=$PWD/cache timeout 100 "$BUILD/tests/test_stream_ops" cuda:0 given_up 2>&1)
STATUS=$?
check "streams given up, slow copies ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
finish
