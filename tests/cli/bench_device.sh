#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=240 labels=asan
# tutti bench --device on device `host`, as threads and as processes, by each provider that it can have; and on the GPUs of a
# libcuda made of threads, which local ranks take in turn. The table, the JSON and a trace say who carried an op out.
source "$(dirname "$0")/run.bash"
for name in $(compgen -e | grep -E '^(TUTTI_|FAKE_)' | grep -vx TUTTI); do unset "$name"; done
unset CUDA_HOME VIRTUAL_ENV CONDA_PREFIX
quick=(-n 2 --rounds 1 -w 1 -m 2)

run() { # provider as
    export TUTTI_DEVICE_PROVIDER=$1
    local provider=${1/auto/host}
    tool bench all_reduce -b 8 -e 4K -f 512 --ranks 2 --as "$2" --device host "${quick[@]}" --json out.json --trace trace.json
    check "$1, $2: status" 0 $STATUS
    check "$1, $2: stderr" '' "$ERR"
    matches "$1, $2: header" "^# device: host .*; provider $provider: " "$OUT"
    matches "$1, $2: verdict" '^# wrong elements: 0' "$OUT"
    check "$1, $2: JSON names it" 4 "$(grep -c "\"device\":\"host\",\"provider\":\"$provider\"" out.json)"
    check "$1, $2: a floor" 4 "$(grep -cE '"floor_us":[0-9.]+' out.json)"
    [ "$1" = auto ] || matches "$1, $2: the trace names it" "\"name\":\"all_reduce\".*\"provider\":\"$provider\"" "$(cat trace.json)"
}
for provider in auto cuda staged; do
    for as in threads processes; do run $provider $as; done
done

# All operations, with results that are checked; what is in buffers that others cannot reach is refused where a provider is asked for.
export TUTTI_DEVICE_PROVIDER=cuda
tool bench -b 1000 -e 1000 --ranks 3 --device host "${quick[@]}" --json out.json
check 'all operations: status' 0 $STATUS
check 'all operations: lines' 21 "$(grep -c '"provider":"cuda".*"wrong":0}' out.json)"
matches 'barrier' '^# barrier: ' "$OUT"
tool bench all_to_all_v -b 1000 -e 1000 --ranks 2 --as processes --buffers private --device host "${quick[@]}"
check 'private: status' 1 $STATUS
matches 'private: why' 'TUTTI_DEVICE_PROVIDER=cuda, and rank 0 cannot reach the memory of all ranks; use TUTTI_MEMORY_SHARED, or leave it at auto' \
    "$ERR$OUT"
unset TUTTI_DEVICE_PROVIDER

refused 'ping_pong is not measured on a device' bench ping_pong --device host
refused '"cudo" is no device; give auto, host, cuda or cuda:N' bench all_reduce --device cudo
refused -- '--tune measures what goes by the host' bench --tune x --device host
export TUTTI_CUDA_PATH=$DIR/none
tool bench all_reduce --device cuda --ranks 2
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1 '; then
    check 'no GPU: status' 1 $STATUS
    matches 'no GPU' "libcuda.so.1 was not found" "$ERR"
fi

# Which GPU is whose: by local rank, in turn; as TUTTI_DEVICE says; on tcp, where every rank counts as a host, as well.
case $SANITIZE in
asan) flags=("-fsanitize=address,undefined" -fno-sanitize-recover=all) ;;
*) flags=() ;;
esac
mkdir fake
"$CC" -std=gnu17 -O1 -g -Wall -Wextra -shared -fPIC "${flags[@]}" -o fake/libcuda.so.1 "$SRC/tests/fake/cuda.c" -pthread
export TUTTI_CUDA_PATH=$DIR/fake FAKE_CUDA_GPUS=2 TUTTI_DEVICE_PROVIDER=staged # kernels are not compiled for it
places() { sed 's/^\[[0-9]*\] //' | sort | sed -E 's/^rank ([0-9]) of [0-9] on ([a-z0-9:]+): .*/\1 \2/' | paste -sd ' '; }
check 'threads' '0 cuda:0 1 cuda:1 2 cuda:0' "$(TUTTI_RANKS=3 "$BUILD"/examples/gpu 2>&1 | places)"
check 'processes' '0 cuda:0 1 cuda:1 2 cuda:0' "$("$TUTTI" run -n 3 "$BUILD"/examples/gpu 2>&1 | places)"
check 'tcp' '0 cuda:0 1 cuda:1 2 cuda:0' "$(TUTTI_TRANSPORT=tcp "$TUTTI" run -n 3 "$BUILD"/examples/gpu 2>&1 | places)"
check 'told' '0 cuda:1 1 cuda:1' "$(TUTTI_RANKS=2 TUTTI_DEVICE=cuda:1 "$BUILD"/examples/gpu 2>&1 | places)"
check 'told host' '0 host 1 host' "$(TUTTI_RANKS=2 TUTTI_DEVICE=host "$BUILD"/examples/gpu cuda:1 2>&1 | places)"
check 'named' '0 cuda:1 1 cuda:1' "$(TUTTI_RANKS=2 "$BUILD"/examples/gpu cuda:1 2>&1 | places)"
check 'no GPU' '0 host 1 host' "$(FAKE_CUDA_GPUS=0 TUTTI_RANKS=2 "$BUILD"/examples/gpu 2>&1 | places)"
OUT=$(TUTTI_RANKS=2 TUTTI_DEVICE=cuda FAKE_CUDA_GPUS=0 "$BUILD"/examples/gpu 2>&1)
check 'none is shown: status' 1 $?
matches 'none is shown' 'the driver shows no GPU; see CUDA_VISIBLE_DEVICES, or take the device host' "$OUT"
OUT=$(TUTTI_DEVICE=gpu "$BUILD"/examples/gpu 2>&1)
check 'no such device: status' 2 $?
tool bench all_reduce -b 1000 -e 1000 --ranks 2 --device cuda "${quick[@]}"
check 'two GPUs: status' 0 $STATUS
matches 'two GPUs' '^# device: cuda:0 \(Fake GPU 0\) on rank 0, 2 devices in all; provider staged: TUTTI_DEVICE_PROVIDER asks' "$OUT"
finish
