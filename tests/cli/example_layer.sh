#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# examples/layer.c, a layer and a loss of its own, learns, with the same weights on any number of ranks.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/layer

OUT=$("$program" 2>&1)
if grep -q 'OpenBLAS' <<<"$OUT"; then
    echo "skipped: $OUT"
    exit 77
fi
matches 'it begins' '^step 1: loss 0\.[2-9]' "$OUT"
matches 'it learns' '^step 300: loss 0\.00' "$OUT"
matches 'the layer learns its slopes' '^slopes, once all 1, are 0\.[0-9]+ to [2-9]\.[0-9]+$' "$OUT"
matches 'it has weights' '^weights [0-9a-f]{16}$' "$OUT"
check 'threads' "$OUT" "$(TUTTI_RANKS=3 "$program" 2>&1)"
check 'processes' "$OUT" "$("$TUTTI" run -n 2 --no-prefix "$program" 2>&1)"
check 'processes over tcp' "$OUT" "$(TUTTI_TRANSPORT=tcp "$TUTTI" run -n 5 --no-prefix "$program" 2>&1)"
finish
