#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 labels=asan
# tutti sim --faults: whatever goes wrong in simulated programs, those that are left agree; what is planted is found, by its seed.
source "$(dirname "$0")/run.bash"
seeds=${SEEDS:-200}
[ -z "$SANITIZE" ] || seeds=${SEEDS:-40}
tool sim --faults --seeds "$seeds" --seed "${SEED:-1}" --json all.json
check 'status' 0 "$STATUS"
[ "$STATUS" = 0 ] || echo "$OUT$ERR"
matches 'no violation' "^$seeds seeds from [0-9]+, 3 to 32 ranks: 0 violations$" "$OUT"
check 'json, and faults of each kind' "$seeds 0 [] True True" "$(python3 -c 'import json
x = json.load(open("all.json"))
print(x["seeds"], x["violations"], x["found"], all(x["deaths"][k] > 0 for k in ("collectives", "agreement", "shrink", "renew")),
      all(x["faults"][k] > 0 for k in ("cuts", "breaks", "stops", "jumps")))')"

for plant in 'hang hang' 'disagreement disagreement' 'result wrong result'; do
    tool sim --faults --seeds 8 --ranks 5..9 --plant "${plant%% *}" --json
    check "$plant: status" 1 "$STATUS"
    check "$plant: found, and nothing else" "${plant#* }" "$(python3 -c 'import json, sys
print(*{f["kind"] for f in json.load(sys.stdin)["found"]})' <<<"$OUT")"
    alone=$(sed -n 's/^    alone: tutti //p' <<<"$ERR" | head -1)
    first=$(sed -n '1,2p' <<<"$ERR")
    matches "$plant: how to run it alone" "^sim --faults --seeds 1 --seed [0-9]+ --ranks 5-9 --plant ${plant%% *}$" "$alone"
    # shellcheck disable=SC2086 # words
    tool $alone
    check "$plant: alone it is the same" "1 $first" "$STATUS $(sed -n '1,2p' <<<"$OUT")"
done

refused '3 to 32' sim --faults --ranks 2
refused '3 to 32' sim --faults --ranks 9-5
refused '3 to 32' sim --faults --ranks 4-40
refused '3 to 32' sim --faults --ranks 4-
refused 'seeds' sim --faults --seeds 0
refused 'plant' sim --faults --plant death
refused 'no operation' sim --faults all_reduce
refused '^tutti sim: --hosts does nothing with --faults' sim --faults --hosts 2
refused '^tutti sim: --seeds is for --faults' sim all_reduce --seeds 5
refused 'cannot write|No such file' sim --faults --json /nowhere/x
finish
