#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=60 labels=asan,tsan
# examples/heal.c goes on without a rank that is killed, under tutti run --keep-going, whichever it is; without the flag the job ends.
source "$(dirname "$0")/run.bash"
program=$BUILD/examples/heal
matches 'threads' '^step 5: 3 ranks, epoch 0$' "$(TUTTI_RANKS=3 "$program" 2>&1)"
for transport in shm tcp; do
    for victim in 0 2; do
        tool run -n 4 --keep-going --no-prefix --transport $transport "$program" $victim 3
        check "status, rank $victim, $transport" 0 "$STATUS"
        matches "before, rank $victim, $transport" '^step 2: 4 ranks, epoch 0$' "$OUT"
        matches "after, rank $victim, $transport" '^step 5: 3 ranks, epoch 1$' "$OUT"
        matches "said, rank $victim, $transport" "^tutti run: rank $victim \\(pid [0-9]+\\) was killed by signal 9 .*; the others go on" "$ERR"
    done
done
tool run -n 4 --no-prefix "$program" 2 3
check 'without the flag' 137 "$STATUS"
tool run -n 2 --keep-going bash -c 'kill -9 $$'
check 'all are killed' 137 "$STATUS"
tool run -n 2 --keep-going bash -c 'exit 3'
check 'a status is a failure' 3 "$STATUS"
tool run --hosts a,b --keep-going true
check 'several hosts' 2 "$STATUS"
matches 'several hosts are refused' 'jobs of one host' "$ERR"
finish
