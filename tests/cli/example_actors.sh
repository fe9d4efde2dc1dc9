#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan,tsan
# examples/actors.c hands out every piece once, on one rank, on threads and on processes, and its actor is restarted twice.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/actors
all='^100 of 100 pieces were taken; the clerk was started 3 times$'
matches 'one rank' "$all" "$("$program" 2>&1)"
matches 'threads' "$all" "$(TUTTI_RANKS=3 "$program" 2>&1)"
matches 'processes' "$all" "$("$TUTTI" run -n 3 --no-prefix "$program" 2>&1)"
matches 'tcp' "$all" "$("$TUTTI" run -n 2 --transport tcp --no-prefix "$program" 2>&1)"
finish
