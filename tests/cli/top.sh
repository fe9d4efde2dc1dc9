#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: waits
# What tutti top shows of a job, and the launcher when it fails or is asked. Other jobs may run: each is named by its launcher.
source "$(dirname "$0")/run.bash"

# Rank 2 does not come to the third barrier before there is a file `go`; then the ranks call, and end when there is `end`.
cat >late.c <<'C'
#include <signal.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>
static int work(tutti_comm *world, int argc, char **argv)
{
    float x[256] = {0};
    int64_t end = 0;
    for (int i = 0; i < 2; i++) tutti_all_reduce(world, x, x, 256, TUTTI_F32, TUTTI_SUM);
    if (tutti_rank(world) == 2)
        while (access("go", F_OK) != 0) usleep(1000);
    if (tutti_rank(world) == 2 && strcmp(argv[argc - 1], "die") == 0) raise(SIGKILL);
    while (end == 0) {
        int64_t sees = access("end", F_OK) == 0;
        if (tutti_all_reduce(tutti_named(world, "more"), &sees, &end, 1, TUTTI_I64, TUTTI_MAX) != TUTTI_OK) return 1;
    }
    return 0;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
compile late

# start ARGUMENT...: three ranks, until rank 0 waits for rank 2
start() {
    rm -f go end
    "$TUTTI" run -n 3 --no-prefix ./late "$@" >out-run.txt 2>err-run.txt &
    launcher=$!
    within 60 shows '^ +0 .* waits +2 '
}
shows() { "$TUTTI" top --once $launcher 2>&1 | tee shown.txt | grep -Eq -- "$1"; }

for transport in shm tcp; do
    export TUTTI_TRANSPORT=$transport
    start; first=$launcher
    tool top --once $launcher
    check "$transport: status" 0 $STATUS
    check "$transport: lines" 5 "$(wc -l <<<"$OUT")"
    matches "$transport: job" "^job $launcher-[0-9a-f]+ on .*, 3 ranks" "$OUT"
    matches "$transport: waits" '^ +1 .* host +waits +2 .* 0  #3 all_reduce\(1 i64, max\) "more" at .*late.c:[0-9]+$' "$OUT"
    within 60 shows '^ +2 .* runs +- +- .* #2 all_reduce\(256 f32, sum\) at '
    check "$transport: the one that is late" 0 $?
    touch go
    within 60 shows '^ +2 .*  #[0-9]{2,} all_reduce\(1 i64, max\) "more"'
    check "$transport: calls while somebody watches" 0 $?
    touch end
    ended $first
    check "$transport: job" 0 $STATUS
done
unset TUTTI_TRANSPORT

# JSON, a stopped rank, SIGUSR1, several jobs, a job that ends while it is watched.
start
tool top --json - $launcher
check 'json: status' 0 $STATUS
check 'json: rows' '0:2 1:2 2:None ' "$(python3 -c 'import json, sys
for row in json.load(sys.stdin): print("%d:%s" % (row["rank"], row.get("awaited")), end=" ")' <<<"$OUT")"
tool top --json /nowhere/x $launcher
check 'json: a file that cannot be written' 2 $STATUS
pid=$(awk '$1 == 2 { print $3 }' shown.txt)
kill -STOP "$pid"
within 60 shows '^ +2 .* stopped '
check 'stopped' 0 $?
kill -CONT "$pid"
kill -USR1 $launcher
within 60 grep -Eq '^tutti run: +0 .* waits +2 ' err-run.txt
check 'SIGUSR1' 0 $?
check 'a failure prints what SIGUSR1 does, but nothing has failed' 0 "$(grep -c killed err-run.txt)"
first=$launcher
"$TUTTI" run -n 1 --no-prefix ./late >/dev/null 2>&1 &
second=$!
listed() { tool top --once; [ $STATUS = 2 ] && grep -q "launcher $first, 3 ranks" <<<"$ERR" && grep -q "launcher $second, 1 rank" <<<"$ERR"; }
within 60 listed
check 'several jobs are listed' 0 $?
matches 'several jobs: said' 'jobs are running; say which one' "$ERR"
"$TUTTI" top --interval-ms 50 $second >watched.txt 2>&1 &
watcher=$!
within 60 grep -q '^job ' watched.txt
touch end go
ended $watcher
check 'a job that ends while it is watched: status' 0 $STATUS
matches 'a job that ends while it is watched: said' "^job $second-.* has ended$" "$(cat watched.txt)"
ended $first
ended $second
refused "there is no job|no job of this user" top --once $first

# The failure of a job prints the table, if ranks had joined.
start die
touch go
ended $launcher
check 'failure: status' 137 $STATUS
matches 'failure: table' '^tutti run: +2 .* (killed 9|ended) .*(#2 all_reduce|heard)' "$(cat err-run.txt)"
tool run -n 2 bash -c 'exit 3'
check 'no rank had joined: no table' 0 "$(grep -c 'restarts' <<<"$ERR")"

refused 'one job at a time' top a b
refused 'interval' top --interval-ms 1
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    start
    setpriv --reuid 65533 --clear-groups "$TUTTI" top $launcher >out.txt 2>err.txt
    check 'of another user: status' 2 $?
    matches 'of another user: said' 'no job of this user .*of other users cannot be looked at' "$(cat err.txt)"
    touch go end
    ended $launcher
fi
finish
