#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# examples/ddp.c learns, on one rank, on threads and on processes; saves, and goes on from what was saved.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/ddp

learned() { # WHAT OUTPUT RANKS
    matches "$1: it learns" '^step 600: loss 0\.0' "$2"
    matches "$1: the same weights" "^all $3 ranks have the same weights\$" "$2"
}
learned 'one rank' "$("$program" 2>&1)" 1
learned 'threads' "$(TUTTI_RANKS=3 "$program" 2>&1)" 3
learned 'processes' "$("$TUTTI" run -n 2 --no-prefix "$program" 2>&1)" 2
learned 'saves' "$("$TUTTI" run -n 3 --no-prefix "$program" saved 2>&1)" 3
went_on=$(TUTTI_RANKS=2 "$program" saved 2>&1)
matches 'it goes on, on other ranks' '^step 1200: loss 0\.00' "$went_on"
check 'saved twice' 'step-00000600 step-00001200 ' "$(cd saved && printf "%s " step-*)"
tool ckpt verify saved/step-00001200
check 'what was saved is whole' 0 "$STATUS"
finish
