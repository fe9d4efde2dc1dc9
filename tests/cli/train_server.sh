#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120 waits
# tutti train --server: without staleness the weights and files of data parallel, with it all workers have the same in the end;
# Ctrl-C, resuming, workers and servers that are killed, and what it does not go with.
source "$(dirname "$0")/run.bash"

SMALL=(--data text --layers 1 --heads 2 --width 16 --context 8 --batch 8 --val-every 5 --check-every 4)
for _ in $(seq 40); do echo 'the quick brown fox jumps over the lazy dog 0123456789'; done >text

hash_of() { sed -n "s/^weights \([0-9a-f]*\) after step 12\$/\1/p" <<<"$OUT"; }
same_files() {                                                                       # WHAT A B
    for file in model optimizer; do
        check "$1: $file" 0 "$(cmp "$2/$file.safetensors" "$3/$file.safetensors"; echo $?)"
    done
}

tool train gpt "${SMALL[@]}" --steps 12 --ranks 3 --save plain --save-every 5 --metrics plain.jsonl
if [ $STATUS != 0 ] && grep -q 'OpenBLAS' <<<"$ERR"; then
    echo "skipped: $ERR"
    exit 77
fi
wanted=$(hash_of)

# Staleness 0
tool train gpt "${SMALL[@]}" --steps 12 --ranks 5 --server 2 --save served --save-every 5 --metrics served.jsonl
check 'served: status' 0 $STATUS
check 'served: stderr' '' "$ERR"
check 'served: the weights of data parallel' "$wanted" "$(hash_of)"
for step in 05 10 12; do same_files "served: step $step" "plain/step-000000$step" "served/step-000000$step"; done
steps() { sed 's/, "tokens_per_s.*//' "$1"; }
check 'served: losses, rates and norms' "$(steps plain.jsonl)" "$(steps served.jsonl)"
matches 'served: nothing is stale' '"stale": 0, "ahead": 0, "weights_hash": "[0-9a-f]*"}' "$(sed -n 8p served.jsonl)"
matches 'data parallel has no such figures' '"stale": null, "ahead": null, ' "$(sed -n 8p plain.jsonl)"
TUTTI_TRANSPORT=tcp tool run -n 4 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --steps 12 --server 1 --accumulate 2 --grains 7 --threads 2
over_tcp=$(hash_of)
tool train gpt "${SMALL[@]}" --steps 12 --ranks 3 --grains 7
check 'over tcp, 7 grains, two passes: the weights of data parallel' "$(hash_of)" "$over_tcp"
tool train gpt "${SMALL[@]}" --steps 12 --ranks 3 --server 1 --fast --optimizer lion
check 'fast: status' 0 $STATUS

# Resuming: from data parallel to servers and back
rm -rf plain/step-00000012 served/step-00000012
tool train gpt "${SMALL[@]}" --steps 12 --ranks 4 --server 2 --save plain --resume
check 'servers go on from data parallel' "$wanted" "$(hash_of)"
tool train gpt "${SMALL[@]}" --steps 12 --ranks 2 --save served --resume
check 'data parallel goes on from servers' "$wanted" "$(hash_of)"

# Staleness
tool run -n 5 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --steps 12 --server 2 --staleness 4 --save stale --metrics stale.jsonl
check 'stale: status' 0 $STATUS
check 'stale: stderr' '' "$ERR"
check 'stale: all steps' 12 "$(wc -l <stale.jsonl)"
matches 'stale: three workers make three updates a step' '"layout.updates": "36"' "$(cat stale/step-00000012/index.json)"
matches 'stale: the summary says how stale' '^between a pull and the push after it [0-9.]* updates of others, [0-9.]* steps ahead$' "$OUT"
tool ckpt verify stale/step-00000012
check 'stale: the checkpoint is whole' 0 $STATUS
tool train gpt "${SMALL[@]}" --steps 14 --ranks 4 --server 1 --staleness 1 --save stale --resume
matches 'stale: goes on' '^weights [0-9a-f]* after step 14$' "$OUT"
matches 'stale: updates are counted on' '"layout.updates": "42"' "$(cat stale/step-00000014/index.json)"

# Each rank notes its pid, so that one can be killed; ended by Ctrl-C
start() { # FOLDER OPTIONS...
    local folder=$1
    shift
    rm -f pid.*
    how=--keep-going
    [ "${*: -1}" != HEALS ] || { how=--max-restarts=2 && set -- "${@:1:$#-1}"; }
    "$TUTTI" run -n 5 --no-prefix $how bash -c 'echo $$ >"pid.$TUTTI_RANK"; exec "$@"' bash "$TUTTI" train gpt \
        "${SMALL[@]}" --val-every 50 --schedule constant --steps 1000000 --save "$folder" --metrics "$folder.jsonl" "$@" >out.txt 2>err.txt &
    run=$!
}
stop() {
    kill -INT $run
    ended $run
}

for staleness in 0 3; do
    start "stop$staleness" --server 2 --staleness $staleness
    within 60 lines_in "stop$staleness.jsonl" 20
    stop
    check "Ctrl-C, staleness $staleness: status" 130 $STATUS
    at=$(wc -l <"stop$staleness.jsonl")
    check "Ctrl-C, staleness $staleness: the last step is saved" "step-$(printf %08d "$at")" "$(ls "stop$staleness")"

    start "lost$staleness" --server 2 --staleness $staleness --save-every 40 --keep 1
    within 60 lines_in "lost$staleness.jsonl" 20
    kill -KILL "$(cat pid.1)"
    at=$(wc -l <"lost$staleness.jsonl")
    within 60 lines_in "lost$staleness.jsonl" $((at + 100))
    stop
    matches "a lost worker, staleness $staleness: is named" 'rank 1 .*was killed by signal 9' "$(cat err.txt)"
    at=$(wc -l <"lost$staleness.jsonl")
    check "a lost worker, staleness $staleness: the others save" "step-$(printf %08d "$at")" "$(ls "lost$staleness")"
    matches "a lost worker, staleness $staleness: the others end" "^weights [0-9a-f]{16} after step $at" "$(cat out.txt)"
done

# The one that saves is killed: the next one does
start heir --server 1 --staleness 2 --save-every 20 --keep 2
within 60 lines_in heir.jsonl 30
kill -KILL "$(cat pid.0)"
newest() { find heir -maxdepth 1 -name 'step*' -printf '%f\n' | sort | tail -1; }
before=$(newest)
newer() { [ "$(newest)" != "$before" ]; }
within 60 newer
before=$(newest)
within 60 newer
stop
tool ckpt verify heir
check 'worker 0 is lost: the next one saves' 0 $STATUS

# A server is killed: everybody ends, and says why
start gone --server 2 --staleness 2
within 60 lines_in gone.jsonl 20
kill -KILL "$(cat pid.4)"
ended $run
check 'a lost server: an error' 1 "$((STATUS != 0))"
matches 'a lost server: it is named' 'rank 4' "$(grep 'tutti train' err.txt)"

# Under --max-restarts a lost worker is started again, pulls, and goes on; without staleness with the same bits
from='after step [0-9]*, from servers'
comes_back() { # STEPS KILLS OPTIONS...
    local steps=$1 kills=$2
    shift 2
    rm -f back.jsonl
    tool run -n 5 --max-restarts 3 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --steps 12 --metrics back.jsonl --drill "$kills" "$@"
    check "$kills $*: status" 0 $STATUS
    matches "$kills $*: goes on" "all go on $from \\(epoch [12]\\)\$" "$OUT"
    matches "$kills $*: says so" '^drill passed: ' "$OUT"
    [ "$steps" = some ] || check "$kills $*: each step once" "$(seq -s ' ' 12)" "$(grep -o '^{"step": [0-9]*' back.jsonl | grep -o '[0-9]*$' | tr '\n' ' ' | sed 's/ $//')"
    [ $STATUS = 0 ] || tail -3 <<<"$ERR"
}
for transport in shm tcp; do
    export TUTTI_TRANSPORT=$transport
    comes_back all kill=1@step=6 --server 1
    comes_back all kill=0@update=5,kill=2@gradients=10 --server 2
    comes_back some kill=2@step=3,kill=0@gradients=9 --server 2 --staleness 2
    unset TUTTI_TRANSPORT
done
comes_back all kill=0@save=5 --server 2 --save kept --save-every 5
tool ckpt verify kept
check 'a worker is killed while it saves: the checkpoint is whole' 0 $STATUS

# A lost server is started again, too, but nobody else has its part: all go back to the newest checkpoint, or to the start
from='from the start'
comes_back all kill=3@update=7 --server 2
comes_back all kill=4@update=5,kill=1@step=9 --server 2
from='after step 8, from parts/step-00000008'
comes_back all kill=3@update=11 --server 2 --save parts --save-every 4
rm -rf parts
TUTTI_TRANSPORT=tcp comes_back all kill=4@update=11 --server 1 --save parts --save-every 4
from='(from the start|after step 4, from stale-parts/step-00000004)'
comes_back some kill=3@update=12 --server 2 --staleness 1 --save stale-parts --save-every 4
tool run -n 5 --max-restarts 1 --no-prefix "$TUTTI" train gpt "${SMALL[@]}" --steps 12 --server 2 --drill kill=3@step=2
check 'a drill with a server: status' 2 $STATUS
matches 'a drill with a server' 'rank 3 is a parameter server, which takes no steps' "$ERR"

# What it does not go with
refuses() { # WORDS OPTIONS...
    local words=$1
    shift
    tool train gpt "${SMALL[@]}" --steps 2 --ranks 4 "$@"
    check "refused: $*" 2 $STATUS
    matches "refused: $*" "$words" "$ERR"
}
refuses 'staleness 4 .* say how many ranks serve' --staleness 4
refuses 'server 4: the last 4 of 4 ranks would serve, and none is left to work' --server 4
refuses 'server 1 does not go with mesh data=4' --server 1 --mesh data=4
refuses 'server 1 does not go with mesh pipe=2' --server 1 --mesh pipe=2
refuses 'server 1 does not go with zero 1' --server 1 --zero 1
refuses 'server 1 does not go with type bf16' --server 1 --type bf16
refuses 'server 1 does not go with save_async' --server 1 --save x --save-async
for i in $(seq 40); do echo "$i,$((i % 3))"; done >table.csv
tool train mlp --data table.csv --layers 1 --width 4 --batch 4 --steps 2 --ranks 3 --server 1 --batch-norm
check 'refused: batch norm' 2 $STATUS
matches 'refused: batch norm' 'server 1 does not go with batch_norm' "$ERR"
tool train mlp --data table.csv --layers 1 --width 4 --batch 4 --steps 20 --ranks 3 --server 1 --staleness 2 --optimizer sgd --clip 0.5
check 'a table of numbers, stale and clipped' 0 $STATUS
refuses 'timeline does not go with --server' --server 1 --timeline x.svg
tool plan gpt --data text --ranks 4 --server 1
check 'no plan: status' 2 $STATUS
finish
