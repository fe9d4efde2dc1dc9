#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# examples/pipeline.c learns by every table, the same by all that cut the network alike, on threads and on processes.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/pipeline

losses() { grep '^step' <<<"$1"; }

first=$("$TUTTI" run -n 4 --no-prefix "$program" gpipe 2>&1)
matches 'processes: it learns' '^step 150: loss 0\.0' "$first"
matches 'processes: how idle ranks are' '^last step: .* ms, .*% idle; by its table .* ms, .*%$' "$first"
for table in 1f1b zb-h1; do
    check "$table: the same losses" "$(losses "$first")" "$(losses "$(TUTTI_RANKS=4 "$program" $table 2>&1)")"
done
"$TUTTI" pipeline 1f1b --ranks 4 --micro 8 >table
check 'a table in a file' "$(losses "$first")" "$(losses "$("$TUTTI" run -n 4 --no-prefix "$program" table 2>&1)")"
first=$(TUTTI_RANKS=2 "$program" interleaved 2>&1)
matches 'chunks: it learns' '^step 150: loss 0\.0' "$first"
check 'chunks: there and back' "$(losses "$first")" "$(losses "$(TUTTI_RANKS=2 "$program" zb-v 2>&1)")"
finish
