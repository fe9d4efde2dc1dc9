#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=180 waits
# Networks that are cut between hosts, which are network namespaces: two hosts that do not hear each other while the launcher hears both,
# a cut that is over before anybody is taken for lost, and a cut under another launcher, where the larger part goes on.
source "$(dirname "$0")/namespaces.bash"
cat >walk.c <<'C'
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
/* Takes steps until there is a file "stop", and goes on without those that are lost. */
static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_comm *now = world, *next;
    int self = tutti_rank(world), steps = 0;
    (void)argc, (void)argv;
    note("ranks", (int)getpid(), "");
    for (int epoch = -1;; steps++) {
        int stop = access("stop", F_OK) == 0;
        if (tutti_all_reduce(now, &stop, &stop, 1, TUTTI_I32, TUTTI_MAX) == TUTTI_OK) {
            if (tutti_rank(now) == 0 && epoch != (int)tutti_epoch(now)) note("sizes", tutti_size(now), "");
            if (tutti_rank(now) == 0 && steps % 100 == 0) note("steps", steps, "");
            epoch = (int)tutti_epoch(now);
            if (stop) break;
            usleep(2000);
            continue;
        }
        note("lost", self, tutti_status_name(tutti_comm_error(now)->status));
        tutti_comm_revoke(now);
        tutti_status status = tutti_comm_shrink(now, &next);
        if (status != TUTTI_OK) return note("told", self, tutti_status_name(status)), tutti_explain(now, stderr);
        if (now != world) tutti_comm_free(now);
        now = next;
    }
    note("finished", self, "");
    return now != world && tutti_comm_free(now) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
compile walk
is_size() { grep -q "^$1 " <(tail -1 sizes); }
clear_notes() { rm -f stop ranks sizes steps lost told finished; }
# begin: six ranks on three hosts
begin() {
    clear_notes
    "$TUTTI" run --hosts 10.77.0.1,10.77.0.2,10.77.0.3 -n 2 --keep-going --ssh "ssh -F $DIR/config -o BatchMode=yes" --no-prefix ./walk \
        >out.txt 2>err.txt &
    JOB=$!
    within 60 lines_in ranks 6
    within 60 lines_in sizes 1
}
# finish_job WHAT
finish_job() {
    touch stop
    ended $JOB
    check "$1: status" 0 "$STATUS"
    [ "$STATUS" = 0 ] || tail -5 err.txt
    cut -d' ' -f1 ranks >pids
    within 30 gone pids
    check "$1: nothing is left" 0 $?
}

# ---- Two hosts that do not hear each other: one of them is ended, and never both
begin
in_host 2 ip route add blackhole 10.77.0.1/32 # one way is enough: nothing is acknowledged
within 60 is_size 4
in_host 2 ip route del blackhole 10.77.0.1/32
finish_job 'two hosts'
check 'two hosts: one side goes on' 4 "$(wc -l <finished)"
sides=$(sort -n finished | tr -d '\n')
matches 'two hosts: all of it' '^(0 1 4 5 |2 3 4 5 )$' "$sides"
check 'two hosts: epochs' '6 4 ' "$(tr -d '\n' <sizes)"

# ---- A cut that is over soon
TUTTI_HEARTBEAT_MS=20000 begin
ip link set cable2 down
within 60 lines_in steps "$(($(wc -l <steps) + 2))" & # nothing can be done meanwhile
held=$!
sleep 2 # the length of the cut, which is what is tested
check 'a short cut: nobody goes on' 1 "$(kill -0 $held 2>/dev/null && echo 1)"
ip link set cable2 up
wait $held
check 'a short cut: steps go on' 0 $?
finish_job 'a short cut'
check 'a short cut: all go on' 6 "$(wc -l <finished)"
check 'a short cut: no loss' '' "$(cat lost 2>/dev/null)"

# ---- Under another launcher
tool key job.key
# foreign RANK: what torchrun's agents set, who have no store of their own
foreign() {
    in_host $(($1 + 1)) env RANK="$1" WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29511 \
        TORCHELASTIC_RUN_ID=cut TUTTI_KEY_FILE=job.key ./walk >"out.$1" 2>"err.$1" &
    FOREIGN[$1]=$!
}
for host in 3 1; do # the last one; the one of rank 0
    clear_notes
    FOREIGN=()
    for rank in 0 1 2; do foreign $rank; done
    within 60 lines_in sizes 1
    ip link set cable$host down
    within 60 is_size 2
    within 60 lines_in told 1
    ip link set cable$host up
    touch stop
    for rank in 0 1 2; do
        ended "${FOREIGN[$rank]}"
        check "torchrun, host $host is cut off: rank $rank" "$((rank + 1 == host))" "$((STATUS != 0))"
    done
    check "torchrun, host $host is cut off: told" "$((host - 1)) TUTTI_ERR_EXCLUDED" "$(cat told)"
    check "torchrun, host $host is cut off: the others end" 2 "$(wc -l <finished)"
done
finish
