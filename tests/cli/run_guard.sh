#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan waits
# Nothing is left: whoever dies, and wherever ranks hid their children.
source "$(dirname "$0")/run.bash"

# Each rank: itself, a child in a session of its own, an orphan in a session of its own, and a grandchild.
cat >family.sh <<'END'
log() { echo $BASHPID >>pids; }
(log; exec sleep 600) &
setsid bash -c 'echo $$ >>pids; exec sleep 600' &
(setsid bash -c 'echo $$ >>pids; sleep 600 & echo $! >>pids; wait' >/dev/null 2>&1 &)
log
[ "${1:-}" = leave ] && { until [ "$(wc -l <pids)" -ge 10 ]; do sleep 0.02; done; exit 0; }
wait
END

"$TUTTI" run -n 2 bash family.sh >out.txt 2>err.txt &
launcher=$!
within 60 lines_in pids 10
kill -KILL $launcher
ended $launcher
check 'the launcher was killed' 137 $STATUS
within 60 gone pids
check 'SIGKILL to the launcher leaves nothing' 0 $?

rm -f pids
"$TUTTI" run -n 2 bash family.sh >out.txt 2>err.txt &
launcher=$!
within 60 lines_in pids 10
guard=$(children_of $launcher)
kill -KILL "$guard"
ended $launcher
check 'the guard was killed' 1 $STATUS
said="^tutti run: the guard \(pid $guard\) was killed by signal 9 \(Killed\); ending the job\$"
matches 'and it is said' "$said" "$(cat err.txt)"
gone pids
check 'SIGKILL to the guard leaves nothing' 0 $?

rm -f pids
tool run -n 2 --grace-ms 200 bash family.sh leave
check 'ranks end and leave processes behind' 0 $STATUS
matches 'they are ended' '^tutti run: ending processes that ranks left running$' "$ERR"
gone pids
check 'the ordinary end leaves nothing' 0 $?

rm -f pids
tool run -n 2 --grace-ms 60s bash -c '(sleep 0.2; echo late) & echo $! >>pids'
check 'what ends by itself in time is left alone' '' "$ERR"
check 'and heard' 2 "$(grep -c '] late' <<<"$OUT")"

# processes that the launcher's own process had before are not the job's
echo 'echo $$ >mine; exec sleep 600' >rank.sh
bash -c 'sleep 600 & echo $! >before; exec "$0" run -n 1 bash rank.sh' "$TUTTI" 2>err.txt &
launcher=$!
within 60 lines_in mine 1
within 60 lines_in before 1
kill -KILL "$(children_of $launcher | grep -vx "$(cat before)")"
ended $launcher
check 'the guard was killed' 1 $STATUS
gone mine
check 'the rank is gone' 0 $?
kill "$(cat before)"
check 'a process from before is not' 0 $?

# a rank that leaves its process group, and the job of a job
rm -f pids
"$TUTTI" run -n 2 "$TUTTI" run -n 2 bash -c 'echo $$ >>pids; exec sleep 600' >out.txt 2>err.txt &
launcher=$!
within 60 lines_in pids 4
kill -KILL $launcher
wait $launcher 2>/dev/null
within 60 gone pids
check 'nested jobs end too' 0 $?
finish
