#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=180 labels=asan,tsan waits
# tutti run --hosts --max-restarts --spare: ranks of several hosts are started again, and a host that is lost gives its ranks to one
# that waits. The hosts are addresses of this one; the remote shell is a script that runs its command here.
source "$(dirname "$0")/run.bash"
heal=$BUILD/examples/heal bench=$BUILD/bench_rebuild
export TUTTI_HOST_PROCESSES=2
rounds=4
[ -z "$SANITIZE" ] || rounds=2
cat >shell <<'END'
#!/usr/bin/env bash
echo "$$ $1" >>launchers
exec bash -c "$2"
END
chmod +x shell
two=(run --hosts '127.0.0.1,127.0.0.2' --ssh ./shell -n 2 --no-prefix)
three=(run --hosts '127.0.0.1,127.0.0.2,127.0.0.3' --spare 1 --ssh ./shell -n 2 --no-prefix)

# ---- Ranks
for victim in 0 3; do
    tool "${two[@]}" --max-restarts 1 "$heal" $victim 3
    check "rank $victim: status" 0 "$STATUS"
    matches "rank $victim: after" '^step 5: 4 ranks, epoch 1$' "$OUT"
    check "rank $victim: steps" 6 "$(grep -c ^step <<<"$OUT")"
    matches "rank $victim: said" "^tutti run: rank $victim on 127.0.0.[12] \\(pid [0-9]+\\) was killed by signal 9 .*started again \\(restart 1 of 1\\)" "$ERR"
done
# heals HOW WHERE AT_ONCE
heals() {
    tool "${two[@]}" --max-restarts 1000 "$bench" $rounds "$1" "$2" "$3" 3
    check "status: $*" 0 "$STATUS"
    matches "healed: $*" "^4 ranks, $rounds rounds of $3 x $1 in $2, epoch [0-9]+" "$OUT"
    [ "$STATUS" = 0 ] || tail -3 <<<"$ERR"
}
for where in all_reduce agree rebuild; do heals kill $where 1; done
heals kill barrier 2
TUTTI_DEADLINE_MS=20000 heals mixed mixed 1
[ -n "$SANITIZE" ] || TUTTI_DEADLINE_MS=5000 heals stop all_reduce 1 # rank 0's host asks the other one to end it
TUTTI_RANKS=2 tool "${two[@]}" --max-restarts 1 "$heal" 5 3
check 'threads: status' 0 "$STATUS"
matches 'threads: after' '^step 5: 8 ranks, epoch 1$' "$OUT"

# ---- Hosts
cat >steps.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>
/* Takes steps until there is a file "stop", and goes on after any loss. */
static int work(tutti_comm *world, int argc, char **argv)
{
    int step = 0, words[2];
    tutti_comm *now = world, *next;
    FILE *pids = fopen("pids", "a");
    (void)argc, (void)argv;
    fprintf(pids, "%d\n", (int)getpid());
    fclose(pids);
    for (;;) {
        int mine[2] = {step, access("stop", F_OK) == 0};
        if (tutti_all_reduce(now, mine, words, 2, TUTTI_I32, TUTTI_MAX) == TUTTI_OK) {
            step = words[0] + 1;
            if (tutti_rank(now) == 0) printf("%d ranks, epoch %d\n", tutti_size(now), tutti_epoch(now)), fflush(stdout);
            if (words[1]) break;
            usleep(5000);
        } else {
            tutti_status status = tutti_comm_rebuild(now, &next);
            if (status != TUTTI_OK) return tutti_explain(now, stderr);
            now = next;
        }
    }
    return now != world && tutti_comm_free(now) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
[ -n "$SANITIZE" ] || compile steps
launcher_of() { awk -v host="$1" '$2 == host {print $1}' launchers; }
# begin RESTARTS: the job of four ranks, once all have joined
begin() {
    rm -f stop pids launchers
    "$TUTTI" "${three[@]}" --max-restarts "$1" ./steps >out.txt 2>err.txt &
    JOB=$!
    within 60 lines_in pids 4
    within 60 grep -q 'epoch 0' out.txt
    within 60 lines_in launchers 3
}
finish_job() {
    touch stop
    ended $JOB
    OUT=$(cat out.txt) ERR=$(cat err.txt)
    within 30 gone pids
    check "$1: nothing is left" 0 $?
}
if [ -z "$SANITIZE" ]; then
    for host in 127.0.0.1 127.0.0.2; do # with rank 0's host the place to meet is another one
        for signal in KILL STOP; do
            begin 1
            kill -$signal "$(launcher_of $host)"
            within 60 grep -q '^4 ranks, epoch 1' out.txt
            finish_job "$signal $host"
            check "$signal $host: status" 0 "$STATUS"
            matches "$signal $host: goes on" '^4 ranks, epoch 1$' "$OUT"
            matches "$signal $host: said" "^tutti run: .*$host (has been silent for [0-9]+ ms and is lost|was killed by signal 9 .*; the host is lost)" "$ERR"
            matches "$signal $host: where" "^tutti run: the ranks of $host are started again on 127.0.0.3 \\(restart 1 of 1\\)" "$ERR"
        done
    done
    begin 9 # a rank, then the host of another, then a rank where that went
    kill -KILL "$(head -1 pids)"
    within 60 grep -q '^4 ranks, epoch 1' out.txt
    kill -KILL "$(launcher_of 127.0.0.2)"
    within 60 grep -q '^4 ranks, epoch 2' out.txt
    kill -KILL "$(tail -1 pids)"
    within 60 grep -q '^4 ranks, epoch 3' out.txt
    finish_job 'three losses'
    check 'three losses: status' 0 "$STATUS"

    begin 9 # none waits
    kill -KILL "$(launcher_of 127.0.0.3)"
    within 60 grep -q 'it does not wait any more' err.txt
    kill -KILL "$(launcher_of 127.0.0.2)"
    ended $JOB
    finish_job 'no spare'
    check 'no spare: fails' 1 "$((STATUS != 0))"
    matches 'no spare: said' '^tutti run: the ranks of 127.0.0.2 are not started again: no other host waits \(--spare\)' "$ERR"

    begin 9 # not needed
    finish_job 'not needed'
    check 'not needed: status' 0 "$STATUS"
    check 'not needed: nothing is said' '' "$ERR"
    awk '{print $1}' launchers >shells
    within 30 gone shells
    check 'not needed: it is ended' 0 $?

    begin 9 # the one that decides
    kill -KILL $JOB
    ended $JOB
    within 30 gone pids
    check 'the launcher is killed: nothing is left' 0 $?
    awk '{print $1}' launchers >shells
    within 30 gone shells
    check 'the launcher is killed: no launcher is left' 0 $?
fi

# ---- A host that hears its launcher once, and never again
mkfifo input && exec 9<>input
printf '%s\n' 'tutti 4' 'host a' "folder $DIR" 'job once' 'node 0' 'nodes 2' 'first 0' 'world 2' 'port 29500' 'master 127.0.0.1' \
    'arg run' 'arg --nproc-per-node' 'arg 1' 'arg --keep-going' 'arg --' 'arg sleep' 'arg 60' 'go' >&9
timeout -k 1 40 "$TUTTI" run --from-stdin <&9 >out.txt 2>err.txt
check 'heard once: its ranks are ended' 1 "$?"
exec 9>&-
matches 'heard once: said' "this host has not heard the job's launcher for [0-9]+ ms" "$(cat err.txt)"

# ---- The budget, ranks that end by themselves, and what cannot be meant
tool "${two[@]}" --max-restarts 1 bash -c "[ \$RANK = 3 ] && exit 5; exec '$heal' 9 1"
check 'before joining: status' 5 "$STATUS"
matches 'before joining: said' '^tutti run: rank 3 on 127.0.0.2 .*not started again: not all ranks had joined' "$ERR"
tool "${two[@]}" --max-restarts 1 "$bench" 2 kill barrier 1 3
check 'used up: status' 137 "$STATUS"
matches 'used up: said' 'is not started again: all restarts are used up' "$ERR"
refused 'needs --hosts' run --spare 1 --max-restarts 1 true
refused '--spare needs --max-restarts' run --hosts a,b --spare 1 true
refused '--spare 2 of 2 hosts leaves none' run --hosts a,b --spare 2 --max-restarts 1 true
finish
