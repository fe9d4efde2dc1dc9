#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120
# bench/recompute.sh prints what it is to; bench/pipeline.sh refuses to run where ranks would take turns.
. "$(dirname "$0")/run.bash"

bench=${SRC:?}/bench

tell=$(TUTTI=$TUTTI "$bench/recompute.sh" 1 3 small 2>&1)
check "recompute: status" 0 $?
matches "recompute: bytes" '^--recompute +[0-9.]+ tokens/s, activations [0-9.]+ MB$' "$tell"
matches "recompute: the ratio" '^a step with --recompute takes [0-9.]+ \([0-9.]+ to [0-9.]+\) times as long$' "$tell"
sizes=$(sed -nE 's/.*activations ([0-9]+).*/\1/p' <<<"$tell" | xargs)
check "recompute: fewer bytes" yes "$([ "${sizes% *}" -gt "${sizes#* }" ] && echo yes || echo "$sizes")"

tell=$(TUTTI=$TUTTI "$bench/pipeline.sh" 1 1 1000000 2>&1)
check "pipeline: too few cores: status" 77 $?
matches "pipeline: too few cores" '^pipeline.sh: 1000000 ranks need 1000000 cores, here are [0-9]+: ' "$tell"
finish
