#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# examples/shards.c learns its weights, on one rank, on threads and on processes, more of them than features.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/shards

learned() { # WHAT OUTPUT RANK: of the last feature
    matches "$1: it learns" '^step 300: loss 0\.0000, norm 0\.0' "$2"
    matches "$1: the first weight" '^rank 0: feature 0 has weight 1\.00$' "$2"
    matches "$1: the last weight" "^rank $3: feature 6 has weight 7\.00\$" "$2"
    check "$1: all weights" 7 "$(grep -c '^rank' <<<"$2")"
}
learned 'one rank' "$("$program" 2>&1)" 0
learned 'threads' "$(TUTTI_RANKS=3 "$program" 2>&1)" 2
learned 'processes' "$("$TUTTI" run -n 2 --no-prefix "$program" 2>&1)" 1
learned 'more than features' "$("$TUTTI" run -n 9 --no-prefix "$program" 2>&1)" 6
finish
