#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=180 labels=asan,tsan waits
# tutti run --nnodes with --max-restarts, --keep-going and --spare: launchers that were started one by one are connected, and the one of
# node 0 decides. All nodes are this host.
source "$(dirname "$0")/run.bash"
heal=$BUILD/examples/heal bench=$BUILD/bench_rebuild
export TUTTI_HOST_PROCESSES=2
port=$((20000 + $$ % 5000 * 2))
tool key key
# node NUMBER FLAGS...: one launcher of two nodes with two ranks each, in the background
node() {
    local number=$1
    shift
    "$TUTTI" run --nnodes 2 --node-rank "$number" --nproc-per-node 2 --master-addr 127.0.0.1 --master-port $port --key-file key \
        --no-prefix "$@" >"out.$number" 2>"err.$number" </dev/null &
    NODES[number]=$!
}
# nodes COUNT FLAGS...: the first so many
nodes() {
    local count=$1 number
    shift
    port=$((port + 2)) NODES=()
    for ((number = 0; number < count; number++)); do node $number "$@"; done
}
# statuses WHAT STATUS...: of the nodes
statuses() {
    local what=$1 number=0
    shift
    for wanted; do
        ended "${NODES[$number]}"
        [ "$wanted" = '*' ] || check "$what: status of node $number" "$wanted" "$STATUS"
        [ "$wanted" = '*' ] || [ "$STATUS" = "$wanted" ] || tail -5 "err.$number"
        number=$((number + 1))
    done
}
said() { matches "$1: said" "$2" "$(cat err.0)"; }

# ---- Ranks
for victim in 0 3; do
    nodes 2 --max-restarts 1 "$heal" $victim 3
    statuses "rank $victim" 0 0
    matches "rank $victim: after" '^step 5: 4 ranks, epoch 1$' "$(cat out.0)"
    check "rank $victim: steps" 6 "$(grep -c ^step out.0)"
    said "rank $victim" "^tutti run: rank $victim on node [01] \\(pid [0-9]+\\) was killed by signal 9 .*started again \\(restart 1 of 1\\)"
done
rounds=4
[ -z "$SANITIZE" ] || rounds=2
nodes 2 --max-restarts 1000 "$bench" $rounds kill rebuild 1 3
statuses 'while it is rebuilt' 0 0
matches 'while it is rebuilt: healed' "^4 ranks, $rounds rounds of 1 x kill in rebuild, epoch [0-9]+" "$(cat out.0)"
[ -n "$SANITIZE" ] || {
    TUTTI_DEADLINE_MS=5000 nodes 2 --max-restarts 1000 "$bench" 2 stop all_reduce 1 3 # its own node's launcher ends it
    statuses 'stopped ranks' 0 0
}

# ---- Nodes
cat >steps.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
#include <unistd.h>
static void note(const char *file, int number, const char *word)
{
    FILE *to = fopen(file, "a");
    fprintf(to, "%d %s\n", number, word);
    fclose(to);
}
/* Takes steps until there is a file "stop", and goes on after any loss: with "shrink" without those that are lost. */
static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_comm *now = world, *next;
    (void)argv;
    note("ranks", (int)getpid(), getenv("TUTTI_RANK"));
    for (int epoch = -1;;) {
        int stop = access("stop", F_OK) == 0;
        if (tutti_all_reduce(now, &stop, &stop, 1, TUTTI_I32, TUTTI_MAX) == TUTTI_OK) {
            if (tutti_rank(now) == 0 && epoch != (int)tutti_epoch(now)) note("sizes", tutti_size(now), "ranks");
            epoch = (int)tutti_epoch(now);
            if (stop) break;
            usleep(2000);
            continue;
        }
        tutti_comm_revoke(now);
        tutti_status status = argc > 1 ? tutti_comm_shrink(now, &next) : tutti_comm_rebuild(now, &next);
        if (status != TUTTI_OK) return note("told", (int)getpid(), tutti_status_name(status)), tutti_explain(now, stderr);
        if (argc > 1 && now != world) tutti_comm_free(now);
        now = next;
    }
    return now != world && tutti_comm_free(now) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
[ -n "$SANITIZE" ] || compile steps
# begin COUNT FLAGS...: once all four ranks take steps
begin() {
    rm -f stop ranks sizes told
    nodes "$@"
    within 60 lines_in ranks 4
    within 60 lines_in sizes 1
}
is_size() { [ "$(tail -1 sizes)" = "$1 ranks" ] && [ "$(wc -l <sizes)" -ge "$2" ]; }
pid_of() { awk -v rank="$1" '$2 == rank {pid = $1} END {print pid}' ranks; }
# finish_job WHAT STATUS...
finish_job() {
    touch stop
    statuses "$@"
    cut -d' ' -f1 ranks >pids
    within 30 gone pids
    check "$1: nothing is left" 0 $?
}
if [ -z "$SANITIZE" ]; then
    begin 3 --max-restarts 1 --spare 1 ./steps
    shows_all() { "$TUTTI" top --once "${NODES[0]}" >top.txt 2>&1; [ "$(grep -Ec '^ +[0-3] .* (runs|waits) ' top.txt)" = 4 ]; }
    within 60 shows_all
    check 'a node: tutti top on node 0 shows the ranks of all' 0 $?
    kill -KILL "${NODES[1]}"
    within 60 is_size 4 2
    finish_job 'a node' 0 137 0
    said 'a node' '^tutti run: the launcher on node 1 has ended, or its connection was lost; the host is lost'
    said 'a node: where' '^tutti run: the ranks of node 1 are started again on node 2 \(restart 1 of 1\)'

    begin 3 --max-restarts 1 --spare 1 ./steps
    awk '$2 > 1 {print $1}' ranks >cut_off
    kill -STOP "${NODES[1]}"
    within 60 is_size 4 2
    gone cut_off
    check 'a silent node: its ranks were ended before' 0 $?
    kill -KILL "${NODES[1]}"
    finish_job 'a silent node' 0 '*' 0
    said 'a silent node' '^tutti run: node 1 has been silent for [0-9]+ ms and is lost'
    check 'a silent node: no rank is told what others are not' '' "$(grep -v EXCLUDED told 2>/dev/null)"

    begin 3 --max-restarts 2 --spare 1 ./steps # the ranks of node 0, whose launcher is a process of the one that decides
    guard=$(children_of "${NODES[0]}")
    local_launcher=$(for pid in $(children_of "$guard"); do grep -qz -- --from-stdin "/proc/$pid/cmdline" && echo "$pid"; done)
    kill -KILL "$local_launcher"
    within 60 is_size 4 2
    kill -KILL "$(pid_of 1)" # a rank of these, where it is now
    within 60 is_size 4 3
    finish_job "node 0's ranks" 0 0 0
    said "node 0's ranks" '^tutti run: the ranks of node 0 are started again on node 2'

    begin 2 --keep-going ./steps shrink
    kill -KILL "$(pid_of 1)"
    within 60 is_size 3 2
    kill -KILL "${NODES[1]}"
    within 60 is_size 1 3 # fewer than half: the launcher of node 0 decides
    finish_job 'without them' 0 137
    matches 'without them: said' '^tutti run: the ranks of node 1 are lost; the others go on' "$(cat err.0)"

    begin 3 --max-restarts 9 --spare 1 ./steps # the one that decides
    kill -KILL "${NODES[0]}"
    statuses 'node 0' 137 129 1
    matches 'node 0: the spare is told' 'the connection to the launcher of node 0' "$(cat err.2)"
    cut -d' ' -f1 ranks >pids
    within 30 gone pids
    check 'node 0: nothing is left' 0 $?

    begin 3 --max-restarts 9 --spare 1 ./steps # the one that decides is silent
    kill -STOP "${NODES[0]}"
    ended "${NODES[1]}"
    check 'node 0 is silent: status of node 1' 1 "$STATUS"
    matches 'node 0 is silent: said' "this host has not heard the job's launcher for [0-9]+ ms" "$(cat err.1)"
    ended "${NODES[2]}"
    check 'node 0 is silent: status of the spare' 1 "$STATUS"
    kill -KILL "${NODES[0]}"
    ended "${NODES[0]}"
    cut -d' ' -f1 ranks >pids
    within 30 gone pids
    check 'node 0 is silent: nothing is left' 0 $?

    begin 3 --max-restarts 9 --spare 1 ./steps # the one that waits, and then one too many
    kill -KILL "${NODES[2]}"
    within 60 grep -q 'it does not wait any more' err.0
    kill -KILL "${NODES[1]}"
    within 60 is_gone "${NODES[0]}"
    finish_job 'no spare' 1 137 137
    said 'no spare' '^tutti run: the ranks of node 1 are not started again: no other host waits \(--spare\)'
fi
nodes 3 --max-restarts 1 --spare 1 true
statuses 'not needed' 0 0 0
check 'not needed: nothing is said' '' "$(cat err.0 err.1)"
matches 'not needed: the spare is told' '^tutti run: the job has ended, and this node was not needed' "$(cat err.2)"

# ---- What cannot be
nodes 2 --max-restarts 1 bash -c "[ \$RANK = 3 ] && exit 5; exec '$heal' 9 1"
statuses 'before joining' 5 5
said 'before joining' '^tutti run: rank 3 on node 1 .*not started again: not all ranks had joined'
matches 'before joining: said there, too' '^tutti run: rank 3 on node 1 \(pid [0-9]+\) exited with status 5' "$(cat err.1)"
port=$((port + 2)) NODES=()
TUTTI_JOIN_TIMEOUT_MS=700 node 0 --max-restarts 1 true
statuses 'one that does not come' 1
said 'one that does not come' '^tutti run: node 1 of job .* has not come to the rendezvous'
node 1 --max-restarts 1 --join-timeout-ms 700 true
ended "${NODES[1]}"
check 'nobody there: status' 1 "$STATUS"
matches 'nobody there: said' 'node 1 on .* cannot meet node 0 .*; is .tutti run --node-rank 0. running there, with --max-restarts' "$(cat err.1)"
tool key other
port=$((port + 2))
node 0 --max-restarts 1 true
TUTTI_KEY_FILE=other node 1 --max-restarts 1 --key-file other true
ended "${NODES[1]}"
check 'another key: status' 1 "$STATUS"
matches 'another key: said' 'wrong key, compare TUTTI_KEY_FILE: node 1' "$(cat err.1)"
kill -KILL "${NODES[0]}"
ended "${NODES[0]}"
port=$((port + 2))
node 0 --max-restarts 1 true
node 1 --max-restarts 1 --nproc-per-node 3 true
statuses 'other ranks' 2 2
said 'other ranks' 'node 1 was to start 3 ranks, and node 0 2'
refused '--spare needs --hosts, or --nnodes 2' run --spare 1 --max-restarts 1 true
refused '--spare needs --max-restarts' run --nnodes 2 --node-rank 0 --spare 1 --master-addr localhost --key-file key true
refused 'the launchers need the next port' run --nnodes 2 --node-rank 0 --max-restarts 1 --master-addr localhost --master-port 65535 --key-file key true
refused 'go from 0 to 2, with --spare' run --nnodes 2 --node-rank 3 --spare 1 --max-restarts 1 --master-addr localhost --key-file key true
refused 'heal: not found' run --nnodes 2 --node-rank 1 --max-restarts 1 --master-addr localhost --key-file key ./heal
finish
