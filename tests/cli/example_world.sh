#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60
# examples/world.c: every round has its sum, the one in which a rank gives up too.
source "$(dirname "$0")/run.bash"
check 'the sums' $'round 1: 10\nround 2: 20\nround 3: 30\nround 4: 40' "$(timeout 60 "$BUILD"/examples/world 2>/dev/null)"
matches 'under tutti run' '^round 4: 40$' "$(timeout 60 "$TUTTI" run -n 2 --no-prefix "$BUILD"/examples/world 2>&1)"
finish
