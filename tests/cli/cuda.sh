#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=180 waits
# GPUs without one: a libcuda made of threads (tests/fake/cuda.c) is found by TUTTI_CUDA_PATH, or is too old, lacks a
# function, or is no library at all; and all tests of devices run on it.
source "$(dirname "$0")/run.bash"
for name in $(compgen -e | grep -E '^(TUTTI_|FAKE_)'); do unset "$name"; done
TOOLKIT=${CUDA_PATH:-}
unset CUDA_HOME CUDA_PATH VIRTUAL_ENV CONDA_PREFIX

case $SANITIZE in
asan) flags=("-fsanitize=address,undefined" -fno-sanitize-recover=all) ;;
*) flags=() ;;
esac
build() { # folder [flag...]
    mkdir -p "$1"
    "$CC" -std=gnu17 -O1 -g -Wall -Wextra -shared -fPIC "${flags[@]}" "${@:2}" -o "$1/libcuda.so.1" "$SRC/tests/fake/cuda.c" -pthread
}
build good
build short -DFAKE_WITHOUT_TRIM
mkdir garbage empty
echo 'no library' >garbage/libcuda.so.1

# doctor VARIABLE=VALUE...: its lines about GPUs
doctor() {
    OUT=$(env "$@" timeout 240 "$TUTTI" doctor 2>&1)
    check "status with $*" 0 $?
    OUT=$(grep -E ' (gpu|library) +' <<<"$OUT")
}
doctor TUTTI_CUDA_PATH="$PWD/good"
matches 'the driver' "^ok +library +CUDA: driver for CUDA 13.0, $PWD/good/libcuda.so.1; for devices cuda:N\$" "$OUT"
matches 'a GPU' '^ok +gpu +cuda:1: Fake GPU 1, capability 9.0, 1.0 GiB, 0.5 of them free; memory can be shared' "$OUT"
matches 'which GPUs reach which' '^ok +gpu +cuda:1: reaches the memory of cuda:0$' "$OUT"
doctor TUTTI_CUDA_PATH="$PWD/good" FAKE_CUDA_REACH=0
matches 'none reaches another' '^note +gpu +cuda:0: reaches the memory of no other GPU: copies to them go through the host$' "$OUT"
doctor TUTTI_CUDA_PATH="$PWD/empty:$PWD/good/libcuda.so.1" FAKE_CUDA_GPUS=0
matches 'a list, and a file' "^ok +library +CUDA: driver for CUDA 13.0, $PWD/good/libcuda.so.1" "$OUT"
matches 'no GPU' '^note +gpu +the driver shows none$' "$OUT"
doctor TUTTI_CUDA_PATH="$PWD/good" FAKE_CUDA_VERSION=11040
matches 'too old' '^note +gpu +none can be used: .*libcuda.so.1 is too old: it is for CUDA 11.4, and 12.0 is needed; install' \
    "$OUT"
doctor TUTTI_CUDA_PATH="$PWD/short"
matches 'a function is missing' '^note +gpu +none can be used: .*libcuda.so.1 has no function cuMemPoolTrimTo; install' "$OUT"
doctor TUTTI_CUDA_PATH="$PWD/good" FAKE_CUDA_INIT=100
matches 'cuInit fails' '^note +gpu .* sees no GPU: CUDA_ERROR_NO_DEVICE \(100\) from cuInit; look at nvidia-smi' "$OUT"
mkdir -p home/lib64
cp good/libcuda.so.1 home/lib64/
if ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1 '; then
    echo 'a real libcuda is here: where it is missing was not tried'
else
    doctor TUTTI_CUDA_PATH="$PWD/empty" CUDA_HOME="$PWD/empty"
    matches 'where it was looked for' \
        "CUDA: not here; for devices cuda:N. libcuda.so.1 was not found in TUTTI_CUDA_PATH \($PWD/empty\), the loader's path, CUDA_HOME \($PWD/empty\)" \
        "$OUT"
    matches 'how to get it' "^note +gpu .*: it comes with NVIDIA's driver; install that on a machine with a GPU\$" "$OUT"
    doctor TUTTI_CUDA_PATH="$PWD/garbage"
    matches 'no library' '^note +gpu +none can be used: libcuda.so.1 cannot be loaded: .*garbage/libcuda.so.1: ' "$OUT"
    doctor CUDA_HOME="$PWD/home"
    matches 'CUDA_HOME' "^ok +library +CUDA: driver for CUDA 13.0, $PWD/home/lib64/libcuda.so.1" "$OUT"
    doctor CUDA_PATH="$PWD/home" CUDA_HOME="$PWD/empty"
    matches 'CUDA_PATH' "^ok +library +CUDA: driver for CUDA 13.0, $PWD/home/lib64/libcuda.so.1" "$OUT"
    mkdir -p conda/lib
    cp good/libcuda.so.1 conda/lib/
    doctor CONDA_PREFIX="$PWD/conda" CUDA_HOME="$PWD/empty"
    matches 'CONDA_PREFIX' "^ok +library +CUDA: driver for CUDA 13.0, $PWD/conda/lib/libcuda.so.1" "$OUT"
    doctor CUDA_HOME="$PWD/empty" CUDA_PATH="$PWD/garbage" CONDA_PREFIX="$PWD/home/lib64" VIRTUAL_ENV="$PWD/empty"
    matches 'all places' "not found in the loader's path, CUDA_HOME \($PWD/empty\), CUDA_PATH \($PWD/garbage\), CONDA_PREFIX \($PWD/home/lib64\), Python's packages below $PWD/empty" \
        "$OUT"
    mkdir -p env/bin env/lib/python3.12/site-packages/nvidia/driver/lib
    cp good/libcuda.so.1 env/lib/python3.12/site-packages/nvidia/driver/lib/
    doctor VIRTUAL_ENV="$PWD/env" CUDA_HOME="$PWD/empty"
    matches "Python's packages" "^ok +library +CUDA: .*/env/lib/python3.12/site-packages/nvidia/driver/lib/libcuda.so.1" "$OUT"
    for folder in lib/python3.12/dist-packages lib/python3/dist-packages local/lib/python3.11/dist-packages; do
        rm -r env
        mkdir -p env/$folder/nvidia/driver/lib
        cp good/libcuda.so.1 env/$folder/nvidia/driver/lib/
        doctor VIRTUAL_ENV="$PWD/env" CUDA_HOME="$PWD/empty"
        matches "$folder" "^ok +library +CUDA: .*/env/$folder/nvidia/driver/lib/libcuda.so.1" "$OUT"
    done
    mkdir -p person/.local/lib/python3.12/site-packages/nvidia/driver/lib
    cp good/libcuda.so.1 person/.local/lib/python3.12/site-packages/nvidia/driver/lib/
    doctor HOME="$PWD/person" CUDA_HOME="$PWD/empty"
    matches "the user's own packages" "^ok +library +CUDA: .*/person/.local/lib/python3.12/site-packages/nvidia/driver" "$OUT"
fi

for part in test_device test_device_streams test_device_programs test_device_cuda test_device_actor; do
    OUT=$(TUTTI_CUDA_PATH=$PWD/good timeout 300 "$BUILD/tests/$part" cuda:0 2>&1)
    STATUS=$?
    check "$part on it ($(tail -n 3 <<<"$OUT"))" 0 $STATUS
done

header=
for folder in "${TOOLKIT:-/usr/local/cuda}" /usr/local/cuda; do
    [ ! -e "$folder/include/cuda.h" ] || header=$folder/include
done
if [ -n "$header" ]; then
    "$CC" -std=gnu17 -fsyntax-only -I "$SRC/include" -I "$SRC/src" -I "$header" "$SRC/tests/fake/cuda_header.c"
    check "our declarations and $header/cuda.h" 0 $?
fi
finish
