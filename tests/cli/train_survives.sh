#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=240
# tutti train under tutti run --max-restarts: ranks are killed at several moments and on several layouts; the run goes on from where it
# says, reports each step once, and ends with the weights of an undisturbed run.
source "$(dirname "$0")/run.bash"
[ -z "${SANITIZE:-}" ] || exit 77

SMALL=(--data "markov:order=2,states=16" --layers 2 --heads 2 --width 32 --context 16 --batch 8 --steps 12 --val-every 4)

tool train gpt "${SMALL[@]}" --steps 1
if [ $STATUS != 0 ] && grep -q 'OpenBLAS' <<<"$ERR"; then
    echo "skipped: $ERR"
    exit 77
fi

MODEL=gpt
# drill KILLS WHERE ARGUMENT...: passes, and goes on WHERE, a regular expression; a line for each loss
drill() {
    local kills=$1 where=$2
    shift 2
    rm -f steps.jsonl
    tool run -n 4 --max-restarts 4 --no-prefix "$TUTTI" train "$MODEL" "${SMALL[@]}" --metrics steps.jsonl --drill "$kills" "$@"
    check "$kills $*: status" 0 "$STATUS"
    matches "$kills $*: goes on" "all go on $where" "$OUT"
    matches "$kills $*: says so" '^drill passed: .* equals that of an undisturbed run$' "$OUT"
    check "$kills $*: each step once" "$(seq -s ' ' 12)" "$(grep -o '^{"step": [0-9]*' steps.jsonl | grep -o '[0-9]*$' | tr '\n' ' ' | sed 's/ $//')"
    [ "$STATUS" = 0 ] || tail -3 <<<"$ERR"
}

drill kill=2@step=5,kill=0@update=9 'after step 4, from memory \(epoch 1\)$'
check 'validated as ever' 3 "$(grep -c '"val_loss": [0-9]' steps.jsonl)"
check 'in three epochs' 3 "$(grep -o '"epoch": [0-9]*' steps.jsonl | sort -u | wc -l)"
drill kill=1@update=5 'after step [345], from memory' --zero 1
drill kill=3@gradients=5 'after step [34], from memory' --mesh data=2,shard=2 --zero 3
drill kill=0@update=5 'after step [45], from memory' --mesh pipe=4
drill kill=2@save=8 'after step 8, from memory' --mesh pipe=2,tensor=2 --width-grains 2 --save saved --save-every 4
check 'all are saved' 'step-00000004 step-00000008 step-00000012' "$(ls saved | tr '\n' ' ' | sed 's/ $//')"
drill kill=1@step=7,kill=2@step=7 'after step 4, from neighbours/step-00000004 ' --zero 1 --save neighbours --save-every 4
drill kill=1@step=7,kill=2@step=7 'from the start ' --zero 2

# Pipelines by other tables, rows shared out, several passes a step, batch norm, and ranks that are threads of two processes.
four=(--layers 4 --width-grains 2)
drill kill=1@gradients=6 'after step 5, from memory' "${four[@]}" --mesh data=2,pipe=2 --pipeline interleaved --micro 4
drill kill=2@update=6 'after step [56], from memory' "${four[@]}" --mesh shard=2,pipe=2 --zero 1 --pipeline zb-h1 --micro 4
drill kill=3@update=6 'after step [56], from memory' "${four[@]}" --mesh data=2,pipe=2 --pipeline zb-v --micro 4
drill kill=0@gradients=6 'after step 5, from memory' --width-grains 2 --mesh data=2,tensor=2 --sequence
drill kill=2@update=6 'after step [456], from memory' --zero 2 --accumulate 2
TUTTI_RANKS=2 drill kill=5@update=6 'after step [456], from memory' --zero 1
for _ in 1 2 3; do # some ranks may not have made their trainers when the first one dies
    TUTTI_RANKS=2 TUTTI_TRANSPORT=tcp drill kill=0@gradients=1 'from the start' --mesh data=4,shard=2 --zero 2
done
for i in $(seq 80); do echo "$((i * 7 % 13)),$((i % 3)),$((i * i % 7))"; done >table.csv
gpt=("${SMALL[@]}")
SMALL=(--data table.csv --layers 2 --width 8 --batch 8 --steps 12 --val-every 4) MODEL=mlp
drill kill=1@gradients=6 'after step 5, from memory' --batch-norm
drill kill=3@update=6 'after step [456], from memory' --batch-norm --zero 1
SMALL=("${gpt[@]}") MODEL=gpt

# A rank dies when all is done and saved, and before it has left: it is told so, and the job ends as it should.
for victim in 2 0; do
    rm -rf ended
    tool run -n 4 --max-restarts 1 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --save ended --drill kill=$victim@end
    check "rank $victim at the end: status" 0 "$STATUS"
    matches "rank $victim at the end: it was killed" "rank $victim .* is started again \(restart 1 of 1\)" "$ERR"
    matches "rank $victim at the end: the drill" '^drill passed: ' "$OUT"
    matches "rank $victim at the end: the weights" '^weights [0-9a-f]{16} after step 12' "$OUT"
    check "rank $victim at the end: saved" step-00000012 "$(ls ended)"
done

# The same by the library's calls.
for victim in '' '1 30'; do
    # shellcheck disable=SC2086
    tool run -n 3 --max-restarts 1 --no-prefix "$BUILD/examples/survive" $victim
    check "example $victim: status" 0 "$STATUS"
    matches "example $victim: done" '^step 40: weights [0-9a-f]{16}$' "$OUT"
    [ -n "$victim" ] || wanted=$(grep ^step <<<"$OUT")
done
check 'example: the same weights' "$wanted" "$(grep ^step <<<"$OUT")"
matches 'example: goes on' '^on after step 29, from memory$' "$OUT"

refused 'kill=RANK@step=STEP' train gpt "${SMALL[@]}" --drill kill=1@stop=3
refused 'kill=RANK@step=STEP' train gpt "${SMALL[@]}" --drill kill=1@step=
refused 'with --server each worker ends by itself' train gpt "${SMALL[@]}" --server 1 --drill kill=1@end
refused 'step 13 is not taken' train gpt "${SMALL[@]}" --drill kill=1@step=13
refused 'nothing is saved at step 3' train gpt "${SMALL[@]}" --drill kill=1@save=3
refused 'leave out --resume' train gpt "${SMALL[@]}" --drill kill=1@step=3 --resume --save saved
refused 'max-restarts' train gpt "${SMALL[@]}" --drill kill=0@step=3
finish
