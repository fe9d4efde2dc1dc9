#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan waits
# The exit status, and what is said about the first rank that failed.
source "$(dirname "$0")/run.bash"

tool run -n 4 true
check 'all ranks 0' 0 $STATUS
check 'and silent' '' "$OUT$ERR"

tool run -n 4 sh -c '[ $RANK != 2 ] || exit 3'
check 'status of the rank that failed' 3 $STATUS
matches 'said so' '^tutti run: rank 2 \(pid [0-9]+\) exited with status 3$' "$ERR"

tool run -n 4 sh -c '[ $RANK != 2 ] || kill -9 $$'
check 'status of a signal' 137 $STATUS
matches 'said so' '^tutti run: rank 2 \(pid [0-9]+\) was killed by signal 9 \(Killed\)$' "$ERR"

# rank 1 fails; rank 0 notices and ends with its own status; rank 2 does not notice
tool run -n 3 --grace-ms 3s sh -c '
    case $RANK in
    1) until [ -f one ]; do sleep 0.02; done; exit 5 ;;
    0) touch one; trap "exit 9" TERM; sleep 0.1; echo noticed; exit 6 ;;
    2) exec sleep 600 ;;
    esac'
matches 'the others may report' '^\[0\] noticed$' "$OUT"
matches 'only what is left is ended' '^tutti run: ending rank 2$' "$ERR"

tool run -n 2 --grace-ms 100 bash -c '
    [ $RANK = 0 ] && { until [ -f deaf ]; do sleep 0.02; done; exit 4; }
    trap "" TERM; touch deaf; while :; do sleep 0.02; done'
check 'a rank that ignores SIGTERM is killed' 4 $STATUS
matches 'said so' '^tutti run: killing rank 1$' "$ERR"

# rank 2 is killed, and rank 1, which could have noticed, is reaped before it: the launcher hears of both at once, in that order
# shellcheck disable=SC2016
"$TUTTI" run -n 3 --grace-ms 200 sh -c '
    [ $RANK != 0 ] || exec sleep 600
    echo $$ >pid.$RANK.new; mv pid.$RANK.new pid.$RANK
    until [ -f end.$RANK ]; do sleep 0.02; done
    [ $RANK = 2 ] || exit 9
    kill -9 $$' 2>err.txt &
launcher=$!
within 60 test -f pid.1 -a -f pid.2
kill -STOP $launcher
for rank in 1 2; do
    touch end.$rank
    within 60 test ! -d "/proc/$(cat pid.$rank)"
done
kill -CONT $launcher
ended $launcher
check 'status of the one that was killed' 137 $STATUS
matches 'which is named' '^tutti run: rank 2 \(pid [0-9]+\) was killed by signal 9 \(Killed\)$' "$(cat err.txt)"

tool run -n 1 sh -c 'exit 77'
check 'a single rank' 77 $STATUS

(trap '' CHLD; exec "$TUTTI" run -n 2 sh -c 'exit 6') 2>/dev/null
check 'started with SIGCHLD ignored' 6 $?
finish
