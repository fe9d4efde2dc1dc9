#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# examples/layout.c gives the same product on one rank, on threads, more of them than rows, and on processes.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/layout
product='^112 308 504 700 896$'

multiplied() { # WHAT OUTPUT SUMS MOVES
    matches "$1: the product" "$product" "$2"
    matches "$1: a reduce_scatter" "tensor=[0-9]*:partial to 5 tensor=[0-9]*:sharded\(0\): $3 and none" "$2"
    matches "$1: an all_gather" "sharded\(0\) to 5 tensor=[0-9]*:replicated: none and $4" "$2"
}
multiplied 'one rank' "$("$program" 2>&1)" none none
multiplied 'threads' "$(TUTTI_RANKS=3 "$program" 2>&1)" reduce_scatter all_gather
multiplied 'more than rows' "$(TUTTI_RANKS=6 "$program" 2>&1)" reduce_scatter all_gather
multiplied 'processes' "$("$TUTTI" run -n 2 --no-prefix "$program" 2>&1)" reduce_scatter all_gather
finish
