#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: labels=asan
# Ctrl-C and its relatives.
source "$(dirname "$0")/run.bash"

# launch FLAGS SCRIPT: starts two ranks in the background and waits until both have written their pid to `pids`
launch() {
    rm -f pids
    # shellcheck disable=SC2086
    "$TUTTI" run -n 2 $1 bash -c "$2" >out.txt 2>err.txt &
    launcher=$!
    within 60 lines_in pids 2
}

for row in INT:130 TERM:143 HUP:129; do
    launch '' 'echo $$ >>pids; exec sleep 600'
    kill -${row%:*} $launcher
    ended $launcher
    check "SIG${row%:*}" ${row#*:} $STATUS
    matches "SIG${row%:*} is named" '^tutti run: ending the job on signal' "$(cat err.txt)"
    gone pids
    check "SIG${row%:*} ends the ranks" 0 $?
done

launch '--grace-ms 60s' 'trap "echo caught; exit 0" INT; echo $$ >>pids; while :; do sleep 0.02; done'
kill -INT $launcher
ended $launcher
check 'ranks may catch Ctrl-C' 130 $STATUS
check 'and say something' 2 "$(grep -c '] caught' out.txt)"


stubborn='trap "" INT TERM HUP; echo $$ >>pids; while :; do sleep 0.02; done'
launch '--grace-ms 10min' "$stubborn"
kill -INT $launcher
within 60 grep -q 'ending the job' err.txt
kill -INT $launcher
ended $launcher
check 'a second Ctrl-C kills at once' 130 $STATUS
gone pids
check 'and leaves nothing' 0 $?

launch '--grace-ms 100' "$stubborn"
kill -TERM $launcher
ended $launcher
check 'the grace passes' 143 $STATUS
gone pids
check 'and leaves nothing' 0 $?

# nohup: a signal that was ignored stays ignored
rm -f pids
(trap '' HUP; exec "$TUTTI" run -n 2 bash -c 'echo $$ >>pids; until [ -f go ]; do sleep 0.02; done') &
launcher=$!
within 60 lines_in pids 2
kill -HUP $launcher
touch go
ended $launcher
check 'nohup' 0 $STATUS
finish
