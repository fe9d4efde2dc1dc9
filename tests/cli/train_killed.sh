#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=240
# tutti train on a mesh data=2,pipe=2,tensor=2, killed after each of its first steps and resumed on another mesh: the weights
# of one rank that was never stopped.
source "$(dirname "$0")/run.bash"

SMALL=(--data text --layers 2 --heads 2 --width 16 --context 8 --batch 8 --grains 8 --width-grains 2 --schedule constant
    --val-every 0 --check-every 0)
for _ in $(seq 40); do echo 'the quick brown fox jumps over the lazy dog 0123456789'; done >text

tool train gpt "${SMALL[@]}" --steps 1
if [ $STATUS != 0 ] && grep -q 'OpenBLAS' <<<"$ERR"; then
    echo "skipped: $ERR"
    exit 77
fi

# Killed when checkpoint STEP has its name; resumed with the other arguments. Saves are waited for or not in turns.
killed_at() { # STEP ARGUMENTS
    local step=$1 save=killed-$1 background=
    shift
    [ $((step % 2)) = 0 ] || background=--save-async
    "$TUTTI" train gpt "${SMALL[@]}" --ranks 8 --mesh data=2,pipe=2,tensor=2 --zero 1 --micro 2 --steps 1000000 \
        --save "$save" --save-every 1 --keep 0 ${background:+"$background"} >out.txt 2>err.txt &
    local run=$!
    within 60 test -d "$save/step-0000000$step"
    kill -KILL $run
    ended $run
    for later in "$save"/step-*; do # as if it had been killed just then
        [ "$later" = "$save/step-0000000$step" ] || rm -rf "$later"
    done
    check "step $step: what has its name is whole" 0 "$("$TUTTI" ckpt verify "$save/step-0000000$step" >/dev/null 2>&1; echo $?)"
    tool train gpt "${SMALL[@]}" --steps $((step + 2)) --save "$save" --resume "$@"
    local resumed
    resumed=$(grep ^weights <<<"$OUT")
    tool train gpt "${SMALL[@]}" --steps $((step + 2))
    check "step $step, $*: the same weights" "$(grep ^weights <<<"$OUT")" "$resumed"
}

killed_at 1 --ranks 1
killed_at 2 --ranks 4 --mesh pipe=2,tensor=2
killed_at 3 --ranks 3 --zero 3
killed_at 4 --ranks 4 --mesh data=2,shard=2 --zero 2
finish
