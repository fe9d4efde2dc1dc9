#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=180 waits
# Ranks and hosts that are lost: all that are left learn of the same ones, and with --keep-going they go on without them. The hosts are
# addresses of this one; the remote shell is a script that runs its command here.
source "$(dirname "$0")/run.bash"
[ -z "${SANITIZE:-}" ] || { echo 'skip: cli.heal_hosts runs the same launchers with sanitizers'; exit 77; }
export TUTTI_HOST_PROCESSES=2 TUTTI_HEARTBEAT_MS=5000 # a loaded machine may be silent for a while
cat >shell <<'END'
#!/usr/bin/env bash
echo "$$ $1" >>launchers
exec bash -c "$2"
END
chmod +x shell
cat >steps.c <<'C'
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
#include <unistd.h>
__attribute__((format(printf, 2, 3))) static void note(const char *file, const char *format, ...)
{
    va_list list;
    FILE *to = fopen(file, "a");
    va_start(list, format);
    vfprintf(to, format, list);
    va_end(list);
    fclose(to);
}
/* "lost 0 1: 3 5": in epoch 0, the next one being 1, at least, ranks 3 and 5 were lost. */
static void note_lost(tutti_comm *comm)
{
    int lost[16], count = 0;
    char text[128];
    tutti_status status = tutti_comm_lost(comm, lost, 16, &count);
    int used = snprintf(text, sizeof text, "%u %llu:", tutti_epoch(comm), (unsigned long long)tutti_comm_error(comm)->next_epoch);
    for (int i = 0; i < count; i++) used += snprintf(text + used, sizeof text - (size_t)used, " %d", lost[i]);
    note("lost", "%s%s\n", text, status == TUTTI_OK ? "" : tutti_status_name(status));
}
/* Takes steps until there is a file "stop", and goes on after any loss. */
static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_comm *now = world, *next;
    (void)argv;
    note("ranks", "%d %s\n", (int)getpid(), getenv("TUTTI_RANK"));
    for (int epoch = -1;;) {
        int stop = access("stop", F_OK) == 0;
        if (tutti_all_reduce(now, &stop, &stop, 1, TUTTI_I32, TUTTI_MAX) == TUTTI_OK) {
            if (tutti_rank(now) == 0 && epoch != (int)tutti_epoch(now)) note("sizes", "%d\n", tutti_size(now));
            epoch = (int)tutti_epoch(now);
            if (stop) break;
            usleep(2000);
            continue;
        }
        note_lost(now);
        tutti_comm_revoke(now);
        tutti_status status = argc > 1 ? tutti_comm_rebuild(now, &next) : tutti_comm_shrink(now, &next);
        if (status != TUTTI_OK) return note("told", "%s\n", tutti_status_name(status)), tutti_explain(now, stderr);
        if (now != world) tutti_comm_free(now);
        now = next;
    }
    return now != world && tutti_comm_free(now) != TUTTI_OK;
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C
compile steps
three=(run --hosts '127.0.0.1,127.0.0.2,127.0.0.3' --ssh ./shell -n 2 --no-prefix)
launcher_of() { awk -v host="$1" '$2 == host {print $1}' launchers; }
# pids_of RANK...: of these ranks, as they were started last
pids_of() { local rank; for rank; do awk -v rank="$rank" '$2 == rank {pid = $1} END {print pid}' ranks; done; }
slay() {
    local pids
    mapfile -t pids < <(pids_of "$@")
    kill -KILL "${pids[@]}"
}
is_size() { [ "$(tail -1 sizes)" = "$1" ]; }
# begin RANKS COMMAND...: once all ranks take steps
begin() {
    local ranks=$1
    shift
    rm -f stop ranks sizes lost told launchers
    "$TUTTI" "$@" >out.txt 2>err.txt &
    JOB=$!
    within 60 lines_in ranks "$ranks"
    within 60 lines_in sizes 1
}
# finish_job WHAT [STATUS]
finish_job() {
    touch stop
    ended $JOB
    ERR=$(cat err.txt)
    check "$1: status" "${2:-0}" "$STATUS"
    [ "$STATUS" = "${2:-0}" ] || tail -5 err.txt
    cut -d' ' -f1 ranks >pids
    within 30 gone pids
    check "$1: nothing is left" 0 $?
}
# same WHAT SURVIVORS SET: all that were left after the first loss have told the same of it
same() {
    check "$1: told" "$2" "$(grep -c '^0 ' lost)"
    matches "$1: the same" "^0 1: $3\$" "$(grep '^0 ' lost | sort -u)"
    check "$1: only that" 1 "$(grep '^0 ' lost | sort -u | wc -l)"
}

# ---- Ranks
for victim in 0 3; do
    begin 6 "${three[@]}" --keep-going ./steps
    slay "$victim"
    within 60 is_size 5
    finish_job "rank $victim"
    same "rank $victim" 5 $victim
    matches "rank $victim: said" "^tutti run: rank $victim on 127.0.0.[12] \\(pid [0-9]+\\) was killed by signal 9 .*; the others go on" "$ERR"
done
begin 6 "${three[@]}" --keep-going ./steps # of two hosts; then those that coordinate, one after the other
slay 2 5
within 60 is_size 4
slay 0
within 60 is_size 3
slay 1 # the last one there
within 60 is_size 2
slay 3
within 60 is_size 1
finish_job 'one after the other'
same 'one after the other' 4 '(2|5|2 5)'
matches 'one after the other: a host without ranks' '^tutti run: rank 1 on 127.0.0.1 .* the last one there; the others go on' "$ERR"
check 'one after the other: nobody is told more' '' "$(cat told 2>/dev/null)"
begin 6 "${three[@]}" --keep-going ./steps
slay 0 1 2 3 4 5
finish_job all 137

# ---- Hosts
for host in 1 2; do
    for signal in KILL STOP; do
        begin 6 "${three[@]}" --keep-going ./steps
        kill -$signal "$(launcher_of 127.0.0.$host)"
        within 60 is_size 4
        finish_job "$signal $host"
        [ $host = 1 ] && set='0 1' || set='2 3'
        grep -E "^0 1:( [$(tr -d ' ' <<<"$set")])+\$" lost >of_others # those of a silent host tell what they see
        [ $signal = KILL ] || mv of_others lost
        same "$signal $host" 4 "$set"
        matches "$signal $host: said" "^tutti run: the ranks of 127.0.0.$host are lost; the others go on" "$ERR"
    done
done
begin 6 "${three[@]}" --keep-going ./steps # fewer than half are left
kill -KILL "$(launcher_of 127.0.0.1)"
within 60 is_size 4
kill -KILL "$(launcher_of 127.0.0.3)"
within 60 is_size 2
finish_job 'two hosts'

# ---- With ranks that are started again, and without either
begin 6 "${three[@]}" --max-restarts 9 ./steps again
slay 1 4
within 60 lines_in ranks 8
within 60 grep -q '^[1-9]' <(tail -n +2 sizes)
kill -USR1 $JOB # each host shows its own ranks
restarted() { [ "$(grep -Ec '^tutti run: +[14] .* 1  (was last heard of in )?(#|joined)' err.txt)" = 2 ]; }
within 60 restarted
check 'again: SIGUSR1 shows who was started again' 0 $?
check 'again: SIGUSR1 shows every rank' 6 "$(grep -Ec '^tutti run: +[0-5] .* [01]  (was last heard of in )?(#|joined)' err.txt)"
for host in 1 2 3; do
    "$TUTTI" top --once "$(launcher_of 127.0.0.$host)" >top.txt 2>&1
    check "again: tutti top on host $host" 0 $?
    matches "again: tutti top on host $host: its ranks" "^job .*, ranks $((2 * host - 2)) to $((2 * host - 1)) of 6 .*, 2 restarts of 9" "$(cat top.txt)"
done
shows_all() { "$TUTTI" top --once $JOB >top.txt 2>&1; [ "$(grep -Ec "$1" top.txt)" = "$2" ]; }
within 60 shows_all '^ +[0-5] .* (runs|waits) .* (#|last call was #)' 6
check 'again: tutti top shows the ranks of all hosts' 0 $?
matches 'again: tutti top names the job' '^job hosts-.* on all its hosts, from .*, 6 ranks' "$(cat top.txt)"
within 60 shows_all '^ +[14] .* 1  (#|joined|last call was #)' 2
check 'again: tutti top shows who was started again' 0 $?
"$TUTTI" top --json=- "$(awk '/^job/ {print $2}' top.txt)" >top.json
check 'again: tutti top --json by the name that all hosts have' 6 "$(grep -c '"rank": ' top.json)"
finish_job again
same again 4 '(1|4|1 4)'
begin 6 "${three[@]}" --grace-ms 3000 ./steps
within 60 shows_all '^ +[0-5] .* (runs|waits) ' 6
check 'neither: tutti top shows the ranks of all hosts' 0 $?
slay 3
within 60 lines_in lost 5
finish_job neither 137
same neither 5 3

# ---- Without a launcher that decides: the larger part goes on
tool key key
# ranks COUNT PORT: as another launcher starts them, which restarts nobody and tells nothing
ranks() {
    rm -f stop ranks sizes lost told
    RANKS=()
    for ((rank = 0; rank < $1; rank++)); do
        TUTTI_JOB=alone-$2 TUTTI_RANK=$rank TUTTI_SIZE=$1 TUTTI_MASTER_ADDR=127.0.0.1 TUTTI_MASTER_PORT=$2 TUTTI_KEY_FILE=key \
            TUTTI_TRANSPORT=tcp ./steps >out.$rank 2>err.$rank &
        RANKS+=($!)
    done
    within 60 lines_in sizes 1
}
port=$((20000 + $$ % 10000))
ranks 7 $port
kill -KILL "${RANKS[1]}" "${RANKS[4]}"
within 60 is_size 5
same alone 5 '(1|4|1 4)' # they have decided it before they shrink
kill -KILL "${RANKS[0]}"
within 60 is_size 4
touch stop
for rank in 2 3 5 6; do
    ended "${RANKS[$rank]}"
    check "alone: status of $rank" 0 "$STATUS"
done
ranks 2 $((port + 1))
kill -KILL "${RANKS[0]}"
ended "${RANKS[1]}"
check 'half without rank 0: fails' 1 "$((STATUS != 0))"
check 'half without rank 0: told' TUTTI_ERR_EXCLUDED "$(sort -u told)"
finish
