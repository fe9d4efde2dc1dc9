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
export TUTTI_CUDA_PATH=$PWD/fake TUTTI_CACHE=$PWD/cache
beside 'on the first GPU' timeout 200 "$BUILD/tests/test_stream_memory" cuda:0
# Memory of a GPU that has failed cannot be given back: leaks are not looked for.
beside 'calls of the driver that fail' ASAN_OPTIONS=detect_leaks=0 timeout 200 "$BUILD/tests/test_stream_faults" cuda:0
beside 'out of memory in the first call, staged' TUTTI_DEVICE_PROVIDER=staged timeout 200 "$BUILD/tests/test_stream_faults" cuda:0 openings
for provider in cuda staged; do
    beside "deadlines, $provider" TUTTI_DEVICE_PROVIDER=$provider timeout 200 "$BUILD/tests/test_stream_deadlines" cuda:0
done
for provider in auto staged; do
    beside "ops, $provider" TUTTI_DEVICE_PROVIDER=$provider timeout 200 "$BUILD/tests/test_stream_ops" cuda:0
done
beside 'streams given up, slow copies' FAKE_CUDA_COPY_MS=20 TUTTI_DEVICE_PROVIDER=staged timeout 200 "$BUILD/tests/test_stream_ops" cuda:0 given_up
together
finish
