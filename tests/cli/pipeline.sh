#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan
# tutti pipeline: tables by name and from files, what is said of them, the picture, and what is refused.
. "$(dirname "$0")/run.bash"

tool pipeline 1f1b --ranks 4 --micro 8
check "1f1b: status" 0 "$STATUS"
matches "1f1b: steps of the last rank" '^rank 3: F0 B0 F1 B1 F2 B2 ' "$OUT"
matches "1f1b: makespan and bubble" '^# makespan 33 with F=1 I=1 W=1 per stage; bubble 27\.3%$' "$OUT"
matches "1f1b: what rank 0 keeps" '^# +0 +24 +27\.3% +4$' "$OUT"
first=$OUT
for words in '--ranks 4 --micro 8 1f1b' '-n 4 1f1b -m 8' '1f1b -n4 -m8 --chunks 1'; do
    # shellcheck disable=SC2086 # words
    tool pipeline $words
    check "$words: the same" "$first" "$OUT"
done

# What is printed is a table in a file.
for table in gpipe 1f1b interleaved zb-h1 zb-v; do
    tool pipeline $table --ranks 4 --micro 8
    check "$table: status" 0 "$STATUS"
    cp out.txt table
    wanted=$(grep -v "^# $table$" <<<"$OUT")
    tool pipeline table
    check "$table: read again" "$wanted" "$OUT"
done
matches "zb-v: stages there and back" '^stages 0 1 2 3 3 2 1 0$' "$OUT"

tool pipeline zb-h1 --ranks 2 --micro 4 --times 1,2,0.5
matches "times" '^# makespan 16\.5 with F=1 I=2 W=0\.5 per stage' "$OUT"

tool pipeline zb-v -n 4 -m 8 --json --picture picture.svg
check "json: status" 0 "$STATUS"
matches "json: the verdict" '^{"table": "zb-v", "ranks": 4, "chunks": 2, "micro": 8, "steps": 192, .*"makespan": 51, "idle": 0\.0588' "$OUT"
matches "json: the table goes to stderr" '^stages 0 1 2 3 3 2 1 0$' "$ERR"
python3 - "$OUT" <<'PY' || FAILED=$((FAILED + 1))
import json, sys, xml.dom.minidom
verdict = json.loads(sys.argv[1])
assert len(verdict["loads"]) == 4 and verdict["loads"][3]["busy"] == 48 and verdict["ordered"] is True
boxes = xml.dom.minidom.parse("picture.svg").getElementsByTagName("rect")
steps = [box for box in boxes if box.getElementsByTagName("title") and "idle" not in box.toxml()]
rows = {box.getAttribute("y") for box in steps}
assert len(steps) == 192 and len(rows) == 4, (len(steps), rows)
for row in rows: # no two boxes of a rank overlap
    ends = 0
    for box in sorted((b for b in steps if b.getAttribute("y") == row), key=lambda b: float(b.getAttribute("x"))):
        assert float(box.getAttribute("x")) >= ends - 0.05
        ends = float(box.getAttribute("x")) + float(box.getAttribute("width"))
PY
tool pipeline gpipe -n 2 -m 2 --picture -
matches "picture on stdout" '^<svg ' "$OUT"
matches "picture on stdout: the names of parts" '>backward</text>' "$OUT"

refused '^tutti pipeline: interleaved: 6 micro-batches are no multiple of pipe=4; 4 or 8 would do$' \
    pipeline interleaved --ranks 4 --micro 6
refused '^tutti pipeline: 1f1b has 1 chunk per rank, not 2; ' pipeline 1f1b --ranks 4 --micro 8 --chunks 2
refused '^tutti pipeline: 1f1b: how many ranks\? Give --ranks$' pipeline 1f1b --micro 8
refused '^tutti pipeline: 1f1b: how many micro-batches\? Give --micro$' pipeline 1f1b --ranks 8
refused "^tutti pipeline: '1f1c' is no table's name, and there is no such file; did you mean '1f1b'\?$" \
    pipeline 1f1c --ranks 4 --micro 8
refused '^tutti pipeline: which table\? ' pipeline
refused "^tutti pipeline: one table at a time: '1f1b' or 'gpipe'$" pipeline 1f1b gpipe --ranks 4 --micro 8
refused '^tutti pipeline: --times 1,2: give three numbers' pipeline 1f1b --ranks 4 --micro 8 --times 1,2
refused '^tutti pipeline: --times 1,2,-1: give three numbers' pipeline 1f1b --ranks 4 --micro 8 --times 1,2,-1
refused '^tutti pipeline: --picture - and --json both write to stdout' \
    pipeline 1f1b --ranks 4 --micro 8 --json --picture -
refused '^tutti pipeline: cannot write nowhere/x: ' pipeline 1f1b --ranks 4 --micro 8 --picture nowhere/x
refused '^tutti pipeline: gpipe: 1000 micro-batches through 65536 stages; at most 64 can be$' \
    pipeline gpipe --ranks 65536 --micro 1000

sed 's/^rank 0: F0 F1 F2 F3 B0/rank 0: F0 B0 F1 F2 F3/' <<<"$first" >swapped
refused "^tutti pipeline: swapped: deadlock: rank 0's step 2, B0, waits for B0 of rank 1, its step 4; rank 1's step 2, F1, waits for F1 of rank 0, its step 3$" \
    pipeline swapped
sed 's/^rank 2: F0 F1/rank 2: F0/' <<<"$first" >dropped
refused '^tutti pipeline: dropped: rank 2 has no step F1$' pipeline dropped
sed 's/^rank 2: F0 F1/rank 2: F0 F1 F1/' <<<"$first" >doubled
refused '^tutti pipeline: doubled: rank 2 does F1 twice, as its steps 2 and 3$' pipeline doubled
printf 'ranks 2\nmicro 2\n\nrank 0: F0 F7\n' >wrong
refused '^tutti pipeline: wrong:4: F7: there is no micro-batch 7; they are 0 to 1$' pipeline wrong
refused '^tutti pipeline: dropped says itself how many ranks' pipeline dropped --ranks 4
refused '^tutti pipeline: \. is not a file$' pipeline .
finish
