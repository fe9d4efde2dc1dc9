#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 labels=asan
# tutti plan: layouts ranked, what does not fit, the command that is proposed, JSON, the picture, and what is refused.
. "$(dirname "$0")/run.bash"

small="gpt --vocabulary 64 --layers 2 --heads 2 --width 16 --context 8 --batch 8"

# shellcheck disable=SC2086 # words
tool plan $small --ranks 2 --json plan.json --picture best.svg
check "two ranks: status" 0 "$STATUS"
matches "two ranks: the head" '^gpt of [0-9]+ parameters on 2 ranks \([0-9]+ cores here, ranks have one each\): 7[0-9] layouts' "$OUT"
matches "two ranks: the first" '^  1  ' "$OUT"
matches "two ranks: the command" '^tutti train gpt --ranks 2 --data DATA .*--layers 2 --heads 2 --width 16 --context 8 --vocabulary 64 ' "$OUT"
python3 - plan.json best.svg <<'PY' || FAILED=$((FAILED + 1))
import json, sys, xml.dom.minidom
plan = json.load(open(sys.argv[1]))
fits = [l for l in plan["layouts"] if l.get("fits")]
assert plan["ranks"] == 2 and plan["model"] == "gpt" and len(fits) > 10, len(fits)
times = [l["seconds"] for l in fits]
assert times == sorted(times) and times[0] > 0
for l in fits:
    assert l["data"] * l["shard"] * l["pipe"] * l["tensor"] == 2
    parts = ["parameter", "gradient", "optimizer", "activation", "communication"]
    assert l["bytes"] == sum(l[p + "_bytes"] for p in parts), l
    assert l["command"].startswith("tutti train gpt --ranks 2 ") and 0 <= l["idle"] < 1 and l["operations"] > 0
    assert (l["pipeline"] is None) == (l["pipe"] == 1) and ("--stages" in l["command"]) == (l["pipe"] > 1)
picture = xml.dom.minidom.parse(sys.argv[2])
texts = [t.firstChild.data for t in picture.getElementsByTagName("text")]
assert "rank 1" in texts and "idle" in texts and "forward" in texts, texts
PY

# What is proposed trains, and needs what was said.
command=$(tail -n 1 <<<"$OUT")
words=${command#tutti }
# shellcheck disable=SC2086 # words
tool ${words/--data DATA/--data markov:order=1,states=8,length=4000} --steps 2 --metrics metrics.json
check "the command: status" 0 "$STATUS"
python3 - plan.json metrics.json <<'PY' || FAILED=$((FAILED + 1))
import json, sys
best = json.load(open(sys.argv[1]))["layouts"][0]
took = json.loads(open(sys.argv[2]).readline())["bytes"]
if best["rank"] == 0: # metrics are rank 0's
    assert took["parameters"] == best["parameter_bytes"] and took["gradients"] == best["gradient_bytes"], (took, best)
    assert took["optimizer"] == best["optimizer_bytes"] and took["activations"] == best["activation_bytes"], (took, best)
    assert took["communication"] == best["communication_bytes"], (took, best)
PY

# shellcheck disable=SC2086 # words
tool plan $small -n 1 --measure 1 --show 1
check "measured: status" 0 "$STATUS"
matches "measured: beside the prediction" '^  1  one rank .* ms .* ms  [+-][0-9.]+%$' "$OUT"

# Three of them: the score is that of the figures in the same file.
# shellcheck disable=SC2086 # words
tool plan $small --ranks 2 --measure 1 --spread 2 --show 1 --json spread.json
check "spread: status" 0 "$STATUS"
python3 - spread.json <<'PY' || FAILED=$((FAILED + 1))
import json, sys
fitting = [l for l in json.load(open(sys.argv[1]))["layouts"] if l.get("fits")]
measured = [i for i, l in enumerate(fitting) if "measured_seconds" in l]
assert measured == [0, (len(fitting) - 1) // 2, len(fitting) - 1], measured
PY
# shellcheck disable=SC2086 # words
tool plan $small --ranks 2 --measure 3 --show 3 --json measured.json
check "three measured: status" 0 "$STATUS"
matches "three measured: errors" '^predicted over measured: median error [0-9.]+%, largest [+-][0-9.]+% \(number [1-3], ' "$OUT"
matches "three measured: the fastest" '^measured fastest: number [1-3], ' "$OUT"
python3 - measured.json "$OUT" <<'PY' || FAILED=$((FAILED + 1))
import json, re, statistics, sys
plan = json.load(open(sys.argv[1]))
rows, score = [l for l in plan["layouts"] if "measured_seconds" in l], plan["measured"]
errors = [l["seconds"] / l["measured_seconds"] - 1 for l in rows]
near = lambda a, b: abs(a - b) < 1e-4
assert len(rows) == 3 and score["layouts"] == 3 and score["failed"] == 0, score
assert near(score["median_error"], statistics.median(map(abs, errors))), (score, errors)
assert near(score["largest_error"], max(errors, key=abs)) and near(errors[score["worst"]], score["largest_error"])
assert rows[score["fastest"]]["measured_seconds"] == min(l["measured_seconds"] for l in rows)
assert near(score["first_behind"], rows[0]["measured_seconds"] / rows[score["fastest"]]["measured_seconds"] - 1)
assert "measured fastest: number %d," % (score["fastest"] + 1) in sys.argv[2]
PY

# A run that fails is told with its last words, and the others are run all the same.
# shellcheck disable=SC2086 # words
tool plan $small --ranks 2 --optimizer sgd --lr 1000000 --clip 0 --measure 2 --show 2 --json failed.json
check "failed runs: status" 1 "$STATUS"
matches "failed runs: the first" '^  1  .* failed  .*the loss is ' "$OUT"
matches "failed runs: the second" '^  2  .* failed  .*the loss is ' "$OUT"
matches "failed runs: how many" '^tutti plan: the runs of 2 of 2 layouts have failed$' "$ERR"
python3 - failed.json <<'PY' || FAILED=$((FAILED + 1))
import json, sys
plan = json.load(open(sys.argv[1]))
assert plan["measured"] == {"layouts": 0, "failed": 2}, plan["measured"]
assert ["the loss is" in l.get("failed", "") for l in plan["layouts"][:3]] == [True, True, False]
PY

# Some layouts fit, the others are listed with what is missing.
limit=$(python3 -c 'import json; b = sorted(l["bytes"] for l in json.load(open("plan.json"))["layouts"] if l.get("fits")); print(b[len(b) // 2])')
# shellcheck disable=SC2086 # words
tool plan $small --ranks 2 --memory "$limit" --json
check "half of them: status" 0 "$STATUS"
matches "half of them: what is missing" '^     .* needs [0-9.]+ [KM]iB on rank [01]: [0-9.]+ [KM]?i?B are missing$' "$ERR"
python3 - "$limit" "$OUT" <<'PY' || FAILED=$((FAILED + 1))
import json, sys
limit, plan = int(sys.argv[1]), json.loads(sys.argv[2])
taken = [l for l in plan["layouts"] if "fits" in l]
assert all(l["fits"] == (l["bytes"] <= limit) for l in taken) and len({l["fits"] for l in taken}) == 2
PY

# Copies for going on after a loss are what a run has whose lost ranks are started again, and the check of memory counts them.
# shellcheck disable=SC2086 # words
tool plan $small --layers 4 --ranks 4 --json four.json
python3 - >layouts <<'PY' || FAILED=$((FAILED + 1))
import json
seen = {}
for l in json.load(open("four.json"))["layouts"]:
    if l.get("fits") and l["rank"] == 0: seen.setdefault((l["pipe"], l["tensor"], l["zero"]), l) # metrics are rank 0's
assert len(seen) >= 4 and {bool(l["copy_bytes"]) for l in seen.values()} == {False, True}, seen.keys()
for l in list(seen.values())[:6]:
    print(l["copy_bytes"], l["command"].removeprefix("tutti train gpt --ranks 4 --data DATA "))
PY
check "copies: some layouts" 1 "$(($(wc -l <layouts) >= 4))"
while read -r copies words; do
    # shellcheck disable=SC2086 # words
    tool run -n 4 --max-restarts 1 --no-prefix "$TUTTI" train gpt --data markov:order=1,states=8,length=4000 $words --steps 1 --metrics metrics.json
    check "copies of $words: planned and taken" "$copies" "$(sed -n 's/.*"copies": \([0-9]*\).*/\1/p' metrics.json)"
done <layouts
# With two fifths of the elements that would fit, copies are three times as much as the model.
large=(--data "markov:order=1,states=8,length=4000" --vocabulary 64 --heads 1 --context 8 --batch 2 --grains 2 --steps 1 --zero 3 --layers 16)
tool run -n 2 --no-prefix "$TUTTI" train gpt "${large[@]}" --width 1000000
width=$(sed -n 's/.*with layers 16, width up to \([0-9]*\) fits.*/\1/p' <<<"$ERR")
tool run -n 2 --max-restarts 1 --no-prefix "$TUTTI" train gpt "${large[@]}" --width $((width * 63 / 100))
check "copies do not fit: status" 1 "$STATUS"
matches "copies do not fit: said" '^tutti train: rank [01] needs [0-9.]+ .iB, [0-9.]+ .iB are free: copies [0-9.]+ .iB; --copy-every 0 saves [0-9.]+ .iB' "$ERR"

# Ranks on two hosts: what goes between them takes as long as the file's link says
printf '# link 10M:1ms\n# local 10G:200ns\n# copy 0:1us\n' >slow
printf '# link 10G:1us\n# local 10G:200ns\n# copy 0:1us\n' >fast
for row in slow:2 fast:2 slow:1; do
    # shellcheck disable=SC2086 # words
    tool plan $small --ranks 4 --hosts "${row#*:}" --links "${row%:*}" --json "$row.json"
    check "links $row: status" 0 "$STATUS"
done
python3 - <<'PY' || FAILED=$((FAILED + 1))
import json
def comm(name, **wanted):
    for l in json.load(open(name))["layouts"]:
        if all(l[k] == v for k, v in wanted.items()): return l["comm_seconds"]
data = dict(data=4, shard=1, pipe=1, tensor=1, zero=0, accumulate=1, recompute=False)
slow, fast, one = (comm(n + ".json", **data) for n in ("slow:2", "fast:2", "slow:1"))
bytes = 4 * 7744 # gradients: each host sends half of them, and gets half
assert slow > bytes / (10e6 / 8) and fast < slow / 5 and one < slow / 5, (slow, fast, one)
PY
matches 'two hosts: the command' '^tutti run --hosts HOSTS -n 2 tutti train gpt --data DATA ' "$(
    # shellcheck disable=SC2086 # words
    "$TUTTI" plan $small --ranks 4 --hosts 2 --links fast --show 1 | tail -n 1)"

refused '^tutti plan: --spread needs --measure' plan gpt --vocabulary 64 --ranks 2 --spread 3
# shellcheck disable=SC2086 # words
refused '^tutti plan: no layout fits into 1.00 KiB per rank: the nearest, [a-z=0-9, -]+, needs [0-9.]+ KiB$' plan $small --ranks 2 --memory 1K
refused "^tutti plan: unknown model 'gtp'; it can be gpt or mlp$" plan gtp --ranks 2 --vocabulary 64
refused '^tutti plan: how many ranks\? Give --ranks$' plan gpt --vocabulary 64
refused '^tutti plan: --ranks: "0" is out of range' plan gpt --vocabulary 64 --ranks 0
refused '^tutti plan: --data is missing: ' plan gpt --ranks 2
refused '^tutti plan: --mesh, --zero, --pipeline, .* are what is planned; leave them out$' plan gpt --vocabulary 64 --ranks 2 --zero 1
refused '^tutti plan: --fast has no grains' plan gpt --vocabulary 64 --ranks 2 --fast
refused '^tutti plan: .*4 heads|^tutti plan: .*3 heads' plan gpt --vocabulary 64 --ranks 1 --heads 3 --width 16
refused '^tutti plan: ' plan gpt --data /nonexistent/file --ranks 2
refused '^tutti plan: --links: cannot read /nonexistent/file' plan gpt --vocabulary 64 --ranks 2 --links /nonexistent/file
echo 'width 3' >figureless
refused '^tutti plan: --links: figureless has no figures of links' plan gpt --vocabulary 64 --ranks 4 --hosts 2 --links figureless
refused '^tutti plan: --hosts 3: 4 ranks are no multiple of it$' plan gpt --vocabulary 64 --ranks 4 --hosts 3 --links fast
refused '^tutti plan: --hosts 2: links between hosts are not measured here; give --links' plan gpt --vocabulary 64 --ranks 4 --hosts 2
refused '^tutti plan: --measure runs layouts on this host' plan gpt --vocabulary 64 --ranks 4 --hosts 2 --links fast --measure 1
refused '^tutti plan: --picture needs a file$' plan gpt --vocabulary 64 --ranks 2 --picture -
refused '^tutti plan: .*/nonexistent/x.svg' plan gpt --vocabulary 64 --ranks 2 --picture /nonexistent/x.svg
finish
