#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# examples/model.c learns, with the same weights on any number of ranks, saves, and goes on from what was saved.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/model

OUT=$("$program" 2>&1)
if grep -q 'OpenBLAS' <<<"$OUT"; then
    echo "skipped: $OUT"
    exit 77
fi
matches 'it learns' '^step 300: loss 0\.00' "$OUT"
check 'threads' "$OUT" "$(TUTTI_RANKS=3 "$program" 2>&1)"
check 'processes, which save' "$OUT"$'\nsaved after step 300' "$("$TUTTI" run -n 2 --no-prefix "$program" first 2>&1)"
cp -r first second
went_on=$("$program" first 2>&1)
matches 'it goes on' '^step 600: loss 0\.00' "$went_on"
check 'on other ranks' "$went_on" "$(TUTTI_TRANSPORT=tcp "$TUTTI" run -n 4 --no-prefix "$program" second 2>&1)"
printf 'X' | dd of=second/step-00000600/model.safetensors bs=1 seek=2000 conv=notrunc 2>/dev/null
tool ckpt verify second/step-00000600
matches 'what was damaged is found' 'its bytes are not those that were saved' "$ERR"
matches 'more ranks than grains' '^TUTTI_ERR_ARGUMENT: 7 ranks are more than 6 grains' "$(TUTTI_RANKS=7 "$program" 2>&1)"
finish
