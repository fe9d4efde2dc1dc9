#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan timeout=240
# Compiling kernels without a GPU: an NVRTC that compiles nothing (tests/fake/fake_nvrtc.c) succeeds, fails with a log, is too old
# or lacks a function; and what becomes of compiled code on disk.
source "$(dirname "$0")/run.bash"
for name in $(compgen -e | grep -E '^(TUTTI_|FAKE_)'); do unset "$name"; done
unset CUDA_HOME CUDA_PATH VIRTUAL_ENV CONDA_PREFIX XDG_CACHE_HOME

case $SANITIZE in
asan) flags=("-fsanitize=address,undefined" -fno-sanitize-recover=all) ;;
*) flags=() ;;
esac
build() { # file, source…
    "$CC" -std=gnu17 -D_GNU_SOURCE -O1 -g -Wall -Wextra -shared -fPIC "${flags[@]}" -I "$SRC/include" -I "$SRC/src" -o "$1" "${@:2}" -pthread
}
mkdir good short home
build good/libcuda.so.1 "$SRC/tests/fake/cuda.c" "$SRC/tests/fake/cuda_kernels.c"
build good/libnvrtc.so.13 "$SRC/tests/fake/fake_nvrtc.c"
build short/libnvrtc.so.13 "$SRC/tests/fake/fake_nvrtc.c" -DFAKE_WITHOUT_PTX
cp good/libcuda.so.1 short/
export HOME=$PWD/home TUTTI_CUDA_PATH=$PWD/good FAKE_NVRTC_COUNT=$PWD/count

# prepare VARIABLE=VALUE...: OUT what it says, LOG what is logged, COUNT how often NVRTC compiled
prepare() {
    : >count
    OUT=$(env "$@" timeout 100 "$BUILD/tests/test_nvrtc" prepare "${TIMES:-1}" 2>log)
    check "status with $*" 0 $?
    LOG=$(cat log)
    COUNT=$(wc -l <count)
}

# ---- NVRTC itself ----
target() { # capability [VARIABLE=VALUE...]
    OUT=$(env "${@:2}" timeout 100 "$BUILD/tests/test_nvrtc" target "$1" 2>&1)
}
target 90
check 'a GPU that it knows' -arch=sm_90 "$OUT"
target 100
check 'one that it does not know: PTX of the one before' -arch=compute_90 "$OUT"
target 121
check 'one that is newer than all' -arch=compute_120 "$OUT"
target 70
matches 'one that is too old' '^NVRTC 13.7 does not compile for a GPU of capability 7.0 any more; get an older one$' "$OUT"
target 90 FAKE_NVRTC_VERSION=11
matches 'NVRTC is too old' 'libnvrtc.so.13 is too old: it is NVRTC 11.7, and 12.0 is needed; it comes with the CUDA toolkit' "$OUT"
target 90 TUTTI_CUDA_PATH="$PWD/short"
matches 'a function is missing' 'libnvrtc.so.13 has no function nvrtcGetPTX; it comes with' "$OUT"
OUT=$(timeout 240 "$TUTTI" doctor 2>&1)
matches 'doctor' "ok +library +NVRTC: 13.7, $PWD/good/libnvrtc.so.13; for collectives of ranks that share a GPU" "$OUT"

# ---- Compiling, once ----
TIMES=3 prepare
check 'ready' $'ready\nready\nready' "$OUT"
check 'compiled once, for three openings' 1 "$COUNT"
matches 'its options' '^-arch=sm_90 -option$' "$(cat count)"
check 'in the folder of HOME' 1 "$(find home/.cache/tutti -type f | wc -l)"
prepare
check 'not again by another process' 0 "$COUNT"
prepare XDG_CACHE_HOME="$PWD/xdg"
check 'in another folder' "1 1" "$COUNT $(find xdg/tutti -type f | wc -l)"
prepare TUTTI_CACHE="$PWD/mine/of/several"
check 'in one that is told' "1 1" "$COUNT $(find mine/of/several -type f | wc -l)"
prepare FAKE_NVRTC_VERSION=14
check 'for another compiler' "1 2" "$COUNT $(find home/.cache/tutti -type f | wc -l)"
rm -r home/.cache

# ---- Failing ----
prepare FAKE_NVRTC_LOG=$'x.cu(7): error: this\nis wrong'
matches 'the log in the error' '^NVRTC 13.7 cannot compile mix \(result 6\): x.cu\(7\): error: this is wrong$' "$OUT"
matches 'the log in ours' 'cannot compile mix \(result 6\): x.cu\(7\): error: this' "$LOG"
check 'nothing is kept' 0 "$(find home -type f | wc -l)"
prepare TUTTI_CUDA_PATH="$PWD/short"
matches 'no NVRTC that can be used' 'has no function nvrtcGetPTX' "$OUT"

bench() { # VARIABLE=VALUE...
    OUT=$(env TUTTI_CUDA_PATH="$PWD/short" "$@" timeout 60 "$TUTTI" bench --ranks 2 --device cuda:0 all_reduce -b 1K -e 1K 2>&1)
}
bench TUTTI_LOG=error
matches 'collectives are staged' 'provider staged: rank 0: .*libnvrtc.so.13 has no function nvrtcGetPTX' "$OUT"
bench TUTTI_CUDA_PATH="$PWD/good" TUTTI_CACHE="$PWD/none" FAKE_NVRTC_LOG=$'x.cu(7): error: this\nis wrong'
matches 'a collective shows the log' 'all_reduce: .*NVRTC 13.7 cannot compile .*: x.cu\(7\): error: this is wrong' "$OUT"
bench TUTTI_DEVICE_PROVIDER=cuda
matches 'or refused' 'TUTTI_DEVICE_PROVIDER=cuda, but it cannot .*: rank 0: .*has no function nvrtcGetPTX' "$OUT"

# ---- Damaged files ----
prepare
file=$(find home/.cache/tutti -type f)
cp "$file" whole
damage() { # what
    prepare
    check "$1: compiled again" "ready 1" "$OUT $COUNT"
    check "$1: replaced" 0 "$(cmp -s "$file" whole; echo $?)"
    prepare
    check "$1: and used" "ready 0" "$OUT $COUNT"
}
echo 'this is no code' >"$file"
damage garbage
: >"$file"
damage 'an empty file'
head -c -1 whole >"$file"
damage 'a truncated file'
{ cat whole; echo more; } >"$file"
damage 'a longer file'
printf '%s' X | dd of="$file" bs=1 seek=$(($(stat -c %s whole) - 3)) conv=notrunc status=none
damage 'one other byte'
rm "$file"
FAKE_NVRTC_CODE='not for this GPU' prepare
matches 'the driver refuses' 'the code of mix cannot be loaded on cuda:0' "$OUT"
damage 'code that the driver refuses'
rm "$file"
mkdir "$file"
prepare
check 'a folder where the file should be' "ready 1" "$OUT $COUNT"
matches 'is told' 'compiled kernels cannot be kept in .*/home/.cache/tutti: writing a file: ' "$LOG"
rmdir "$file"

# ---- Folders that cannot be used ----
for folder in /proc/none /dev/null/tutti "$PWD/whole"; do
    TIMES=3 prepare TUTTI_CACHE="$folder"
    check "$folder: ready" $'ready\nready\nready' "$OUT"
    check "$folder: compiled each time" 3 "$COUNT"
    check "$folder: told once" 1 "$(grep -c "compiled kernels cannot be kept in $folder" <<<"$LOG")"
done
prepare HOME=
check 'no HOME' "ready 1" "$OUT $COUNT"
matches 'is told' "cannot be kept in the user's cache folder" "$LOG"

# ---- The kernels of collectives, loaded and launched as on a GPU ----
for part in move f32; do
    OUT=$(timeout 240 "$BUILD/tests/test_gpu_kernels" cuda:0 "$part" 2>&1)
    check "kernels, $part ($(tail -n 3 <<<"$OUT"))" 0 $?
done

# ---- Many processes ----
rm -r home/.cache
for i in {1..12}; do "$BUILD/tests/test_nvrtc" prepare 2 >"out.$i" 2>&1 & done
wait
check 'all are ready' 24 "$(cat out.* | grep -c '^ready$')"
check 'one file, nothing half done' 1 "$(find home/.cache/tutti -type f | wc -l)"
check 'which is whole' 0 "$(cmp -s "$(find home/.cache/tutti -type f)" whole; echo $?)"

if [ -e /usr/local/cuda/include/nvrtc.h ]; then
    "$CC" -std=gnu17 -fsyntax-only -I "$SRC/include" -I "$SRC/src" -I /usr/local/cuda/include "$SRC/tests/fake/nvrtc_header.c"
    check 'our declarations and nvrtc.h' 0 $?
fi
finish
