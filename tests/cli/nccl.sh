#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=400 waits
# The provider nccl without a GPU: on a libnccl and a libcuda made of threads (tests/fake), which are found by
# TUTTI_CUDA_PATH; one that is too old or lacks a function is told as such.
source "$(dirname "$0")/fake_nccl.bash"
build old nccl.c libnccl.so.2 -DFAKE_WITHOUT_REVOKE
cp fake/libcuda.so.1 old/
build short nccl.c libnccl.so.2 -DFAKE_WITHOUT_SEND

# doctor VARIABLE=VALUE...: its line about NCCL
doctor() {
    OUT=$(env "$@" timeout 240 "$TUTTI" doctor 2>&1)
    check "status with $*" 0 $?
    OUT=$(grep -E ' library +NCCL' <<<"$OUT")
}
doctor TUTTI_CUDA_PATH="$PWD/fake"
matches 'NCCL' "^ok +library +NCCL: 2.28.9, $PWD/fake/libnccl.so.2; for collectives of ranks with a GPU each" "$OUT"
matches 'what it can do' 'NCCL 2.28.9: reduces f64 f32 f16 bf16 i8 u8 i32 u32 i64 u64, 8-bit floats on GPUs of capability 9.0 and newer; a lost rank is left by revoke and abort; scans, .* are staged' "$OUT"
doctor TUTTI_CUDA_PATH="$PWD/old" FAKE_NCCL_VERSION=22304
matches 'what an old one can do' 'NCCL 2.23.4: .*, 8-bit floats from 2.24 on; a lost rank is left by abort alone' "$OUT"
providers() { # VARIABLE=VALUE...: its lines about who carries out calls on streams
    OUT=$(env TUTTI_CUDA_PATH="$PWD/fake" "$@" timeout 240 "$TUTTI" doctor 2>&1 | grep -E ' streams +')
}
providers TUTTI_LOG=warn
matches 'a GPU each' 'ranks with a GPU each go by nccl; its sums are not in canonical order' "$OUT"
matches 'shared GPU' 'ranks that share a GPU go by (cuda|staged)' "$OUT"
providers TUTTI_EXACT=1
matches 'exact' 'ranks with a GPU each go by (cuda where .*, else )?staged, through the host: TUTTI_EXACT=1' "$OUT"
providers TUTTI_DEVICE_PROVIDER=staged
matches 'told' 'calls on streams go by staged, as TUTTI_DEVICE_PROVIDER says' "$OUT"
doctor TUTTI_CUDA_PATH="$PWD/fake" FAKE_NCCL_VERSION=21304
matches 'too old' 'libnccl.so.2 is too old: it is NCCL 2.13.4, and 2.14 is needed; ' "$OUT"
doctor TUTTI_CUDA_PATH="$PWD/short"
matches 'a function is missing' 'libnccl.so.2 has no function ncclSend; install NCCL 2.14 or newer' "$OUT"

# From a program: with it, without it where the machine has none, and where it cannot be used.
cat >has.c <<'C'
#include <stdio.h>
#include <tutti/device.h>
#include <tutti/experimental.h>
int main(void)
{
    tutti_library about = {.struct_size = sizeof about};
    tutti_error error;
    printf("%d %s\n", tutti_has("nccl"), tutti_library_find("nccl", &about, &error) == TUTTI_OK ? about.version : error.text);
}
C
if [ -z "$SANITIZE" ]; then
    compile has
    check 'tutti_has' '1 2.28.9' "$(TUTTI_CUDA_PATH=$PWD/fake ./has)"
    matches 'tutti_has, too old' '^0 .*libnccl.so.2 is too old' "$(TUTTI_CUDA_PATH=$PWD/fake FAKE_NCCL_VERSION=21304 ./has)"
    mkdir -p empty conda/lib env/lib/python3.12/site-packages/nvidia/nccl/lib
    cp fake/libnccl.so.2 conda/lib/
    cp fake/libnccl.so.2 env/lib/python3.12/site-packages/nvidia/nccl/lib/
    folders=$(ldconfig -p | sed -n 's|.*=> \(/.*\)/libnccl\.so\.2$|\1|p')
    hidden() { # command...: where the loader finds no libnccl
        if [ -z "$folders" ]; then
            "$@"
        else
            unshare -rm sh -c 'for folder in $1; do mount -t tmpfs none "$folder" || exit 1; done; shift; exec "$@"' sh "$folders" "$@"
        fi
    }
    export CUDA_HOME=$PWD/empty HOME=$PWD/empty
    if ! hidden true 2>/dev/null || [[ $(hidden ./has) = 1* ]]; then
        echo 'a real libnccl is here: where it is missing was not tried'
    else
        matches 'tutti_has, none' "^0 libnccl.so.2 was not found in the loader's path, CUDA_HOME \\($PWD/empty\\)" "$(hidden ./has)"
        check 'tutti_has, conda' '1 2.28.9' "$(CONDA_PREFIX=$PWD/conda hidden ./has)"
        check 'tutti_has, a virtual environment' '1 2.28.9' "$(VIRTUAL_ENV=$PWD/env hidden ./has)"
    fi
    unset CUDA_HOME
fi

export TUTTI_CUDA_PATH=$PWD/fake
# The leak checker itself may die of a thread that ends while it looks.
beside 'results' ASAN_OPTIONS=detect_leaks=0 timeout 600 "$BUILD/tests/test_nccl" each results
beside 'conformance' timeout 300 "$BUILD/tests/test_conformance_streams" cuda 1 4 nccl
beside 'deadlines' TUTTI_DEVICE_PROVIDER=nccl timeout 200 "$BUILD/tests/test_stream_deadlines" cuda
beside 'streams that are given up' TUTTI_FENCE_MS=300 TUTTI_LOG=error TUTTI_DEVICE_PROVIDER=nccl timeout 300 "$BUILD/tests/test_stream_ops" cuda given_up
beside 'processes on one GPU' ASAN_OPTIONS=detect_leaks=0 timeout 300 "$BUILD/tests/test_nccl" one results
together
finish
