#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# Ranks that die behind steps of their plans, over memory and tcp: nobody hangs, all agree, nothing is left.
source "$(dirname "$0")/run.bash"
kills=${KILLS:-18}
export TUTTI_RANKS=2 # of the caller: its ranks are processes for all that
for transport in shm tcp; do
    tool faultbench --kills "$kills" --ranks 2-4 --transport $transport --seed "${SEED:-1}" --json $transport.json
    check "$transport: status" 0 "$STATUS"
    matches "$transport: figures" "^$kills kills, 2-4 ranks, $transport, .*: 0 hangs, 0 disagreements, 0 wrong, 0 failed, 0 left over$" "$OUT"
    [ "$STATUS" = 0 ] || echo "$OUT$ERR"
    check "$transport: json" "$kills 0 $kills $kills" "$(python3 -c 'import json, sys
x = json.load(open(sys.argv[1]))
print(x["kills"], x["hangs"], x["detect_ms"]["count"], x["died"]["before"] + x["died"]["by_clock"] + sum(x["died"]["tenths"]))' $transport.json)"
done

# A job that cannot begin fails, and is counted.
export TUTTI_ARENA_BYTES=64K
tool faultbench --kills 2 --ranks 2
check 'a job that fails: status' 1 "$STATUS"
matches 'a job that fails: counted' ' 1 failed' "$OUT"
unset TUTTI_ARENA_BYTES
refused 'from 2 to 16' faultbench --ranks 1
refused 'from 2 to 16' faultbench --ranks 4-2
refused 'one at least for each of the 7 sizes' faultbench --ranks 2-8 --kills 3
refused 'transport' faultbench --transport ucx
refused 'cannot write|No such file' faultbench --json /nowhere/x
finish
