# SPDX-License-Identifier: Apache-2.0
# A libnccl and a libcuda made of threads (tests/fake), in fake/; what tests of the provider nccl begin with.
source "$(dirname "$0")/run.bash"
for name in $(compgen -e | grep -E '^(TUTTI_|FAKE_|NCCL_)'); do unset "$name"; done
unset CUDA_HOME CUDA_PATH VIRTUAL_ENV CONDA_PREFIX

case $SANITIZE in
asan) flags=("-fsanitize=address,undefined" -fno-sanitize-recover=all) ;;
tsan) flags=(-fsanitize=thread) ;;
*) flags=() ;;
esac
build() { # folder source name [flag...]
    mkdir -p "$1"
    "$CC" -std=gnu17 -O1 -g -Wall -Wextra -shared -fPIC "${flags[@]}" "${@:4}" -I "$SRC/src" -I "$SRC/include" \
        -Wl,-soname,"$3" -o "$1/$3" "$SRC/tests/fake/$2" -pthread -ldl
}
build fake cuda.c libcuda.so.1
build fake nccl.c libnccl.so.2
export FAKE_NCCL_FOLDER=$DIR
export FAKE_CUDA_GPUS=8 FAKE_CUDA_REACH=0 # where NCCL cannot be had, calls are staged

# The libcuda with the kernels of collectives, and an NVRTC that compiles nothing, so that the provider cuda can be had too.
fake_kernels() {
    "$CC" -std=gnu17 -O1 -g -w -shared -fPIC -D_GNU_SOURCE "${flags[@]}" -I "$SRC/src" -I "$SRC/include" \
        -Wl,-soname,libcuda.so.1 -o fake/libcuda.so.1 "$SRC/tests/fake/cuda.c" "$SRC/tests/fake/cuda_kernels.c" -pthread -ldl
    build fake fake_nvrtc.c libnvrtc.so.13 -w
    mkdir -p cache
    export TUTTI_CACHE=$PWD/cache
}
