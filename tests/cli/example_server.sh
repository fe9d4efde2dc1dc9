#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# examples/server.c learns, on threads and on processes, with staleness and without; what it cannot do it says.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/server

learned() { # WHAT OUTPUT
    matches "$1: it learns" '^step 400: loss 0\.00' "$2"
    for rank in 0 1 2; do matches "$1: rank $rank has the line" "^rank $rank: 3.0 x -1.0\$" "$2"; done
}
learned 'threads' "$(TUTTI_RANKS=4 "$program" 2>&1)"
learned 'processes' "$("$TUTTI" run -n 4 --no-prefix "$program" 2>&1)"
learned 'staleness 0' "$("$TUTTI" run -n 4 --no-prefix "$program" 0 2>&1)"
matches 'one rank alone' '1 parameter servers of 1 ranks' "$("$program" 2>&1)"
matches 'a negative staleness' 'a staleness of -1' "$(TUTTI_RANKS=2 "$program" -1 2>&1)"
finish
