#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=600 labels=asan,tsan waits
# tutti run --max-ranks and --join: processes that wait are taken in, whoever dies meanwhile; what cannot be meant is said.
source "$(dirname "$0")/run.bash"
grow=$BUILD/examples/grow

# begin RANKS MOST ARGUMENT...: a job in the background; its launcher is $JOB
begin() {
    local ranks=$1 most=$2
    shift 2
    "$TUTTI" run -n "$ranks" --max-ranks "$most" --no-prefix "$@" >job_out.txt 2>job_err.txt 9>&- &
    JOB=$!
    within 30 has_board
}
has_board() { "$TUTTI" top --once "$JOB" >top.txt 2>/dev/null && grep -q 'epoch' top.txt; }
waiting() { "$TUTTI" top --once "$JOB" 2>/dev/null | grep -q ", $1 wait"; }

# The example, in memory and over tcp, from one rank up to seven, which become eight at most.
for transport in shm tcp; do
    for n in 1 2 3 7; do
        more=$((n < 7 ? 2 : 1)) which="$n ranks, $transport"
        begin $n 8 --transport $transport "$grow" $((n + more))
        tool run --join "$JOB" -n $more --no-prefix "$grow" $((n + more))
        check "joined, $which: status" 0 "$STATUS"
        ended "$JOB"
        check "job, $which: status" 0 "$STATUS"
        matches "grown, $which" "^step [0-9]+: $((n + more)) ranks, epoch [12]\$" "$(tail -1 job_out.txt)"
        check "said to all, $which" $((2 * more)) "$(cat err.txt job_err.txt | grep -c 'has joined')"
        check "steps once each, $which" '' "$(grep -o '^step [0-9]*' job_out.txt | sort | uniq -d)"
    done
done

# Deaths while processes are taken in: of one that waits, of one that was there before, of rank 0. Each kills itself at some moment
# from a thread beside the call; the world is rebuilt where it has to be, and others join until there are as many as can be.
cat >deaths.c <<'C'
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <threads.h>
#include <tutti/tutti.h>
static volatile int finished; /* nobody dies from here on: the others would have done their work */
static void *kill_self(void *most_us)
{
    unsigned random = 0;
    if (getrandom(&random, sizeof random, 0) < 0) abort();
    struct timespec delay = {.tv_nsec = (long)(random % *(unsigned *)most_us) * 1000};
    thrd_sleep(&delay, NULL);
    if (!finished) raise(SIGKILL);
    return NULL;
}
static void die_soon(unsigned most_us)
{
    static unsigned kept;
    static pthread_t thread;
    if (kept != 0) return;
    kept = most_us;
    pthread_create(&thread, NULL, kill_self, &kept);
}
static tutti_status check(tutti_comm *comm)
{
    int one = 1, sum = 0;
    tutti_status status = tutti_all_reduce(comm, &one, &sum, 1, TUTTI_I32, TUTTI_SUM);
    if (status == TUTTI_OK && sum != tutti_size(comm)) fprintf(stderr, "WRONG: %d ranks, sum %d\n", tutti_size(comm), sum);
    return status;
}
static tutti_status grow(tutti_comm *comm, tutti_comm **next)
{
    int before = tutti_size(comm), rank = tutti_rank(comm);
    tutti_status status = tutti_comm_grow(tutti_within(comm, 20000), next);
    if (status == TUTTI_OK) {
        if (tutti_size(*next) <= before || tutti_rank(*next) != rank || tutti_epoch(*next) <= tutti_epoch(comm))
            fprintf(stderr, "WRONG: rank %d of %d was %d of %d\n", tutti_rank(*next), tutti_size(*next), rank, before);
    } else if (status == TUTTI_ERR_ARGUMENT || status == TUTTI_ERR_JOIN) {
        *next = comm;
        status = check(comm); /* nothing has changed */
    }
    return status;
}
static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_comm *comm = world, *next;
    int wanted = atoi(argv[1]), victim = argc > 2 ? atoi(argv[2]) : -1, waiting;
    for (;;) {
        waiting = tutti_comm_waiting(comm);
        tutti_status status = check(comm);
        if (status == TUTTI_OK) status = tutti_all_reduce(comm, &waiting, &waiting, 1, TUTTI_I32, TUTTI_MIN);
        finished = status == TUTTI_OK && tutti_size(comm) == wanted;
        if (finished) status = tutti_barrier(comm);
        if (finished && status == TUTTI_OK) break;
        if (status == TUTTI_OK && waiting == 0) continue;
        if (status == TUTTI_OK && !finished) {
            if (tutti_rank(comm) == victim && tutti_epoch(world) == 0) die_soon(8000);
            status = grow(comm, &next);
        }
        while (status != TUTTI_OK) {
            status = tutti_comm_revoke(comm);
            if (status == TUTTI_OK) status = tutti_comm_rebuild(tutti_within(comm, 20000), &next);
            if (status != TUTTI_OK) return tutti_explain(comm, stderr);
            if (tutti_size(next) != tutti_size(comm)) fprintf(stderr, "WRONG: %d ranks rebuilt, not %d\n", tutti_size(next), tutti_size(comm));
        }
        if (comm != world && comm != next) tutti_comm_free(comm);
        comm = next;
    }
    if (tutti_rank(comm) == 0) printf("done: %d ranks\n", tutti_size(comm));
    return 0;
}
int main(int argc, char **argv)
{
    unsigned char coin = 0;
    if (getrandom(&coin, 1, 0) == 1 && getenv("TUTTI_TICKET") && argc > 3 && coin % 2 == 0) die_soon(40000);
    return tutti_main(work, argc, argv);
}
C

# grows_through VICTIM [waiters]: from 3 ranks to 6, over $transport
grows_through() {
    local which="deaths: $*, $transport" joiners=() i
    begin 3 6 --max-restarts 1000 --transport $transport ./deaths 6 "$1"
    for ((i = 0; i < 60; i++)); do
        is_gone "$JOB" && break
        "$TUTTI" run --join "$JOB" --no-prefix ./deaths 6 "$@" >/dev/null 2>"join_$i.txt" &
        joiners+=($!)
        within 60 has_come "$i" $! || break
    done
    ended "$JOB"
    check "status, $which" 0 "$STATUS"
    check "done, $which" 'done: 6 ranks' "$(cat job_out.txt)"
    check "right, $which" '' "$(cat job_err.txt join_*.txt | grep WRONG)"
    [ "$STATUS" = 0 ] || tail -5 job_err.txt
    for i in "${joiners[@]}"; do
        ended "$i"
        [[ $STATUS = [012] || $STATUS = 137 ]] || check "joined, $which" '0, 1, 2 or 137' "$STATUS"
    done
    rm -f join_*.txt
}
has_come() { is_gone "$2" || is_gone "$JOB" || grep -qs 'has joined' "join_$1.txt"; }

if [ -z "$SANITIZE" ]; then
    CFLAGS=-pthread compile deaths
    for transport in shm tcp; do
        for _ in $(seq "${ROUNDS:-1}"); do
            for victim in 0 1 2; do
                grows_through $victim
                matches "a death, rank $victim, $transport" "rank $victim .*started again" "$(cat job_err.txt)"
            done
            grows_through -1 waiters
        done
    done
fi

# What cannot be meant, and what comes to an end. `cases WHAT` says which status each call has.
cat >cases.c <<'C'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <tutti/actor.h>
#include <tutti/tutti.h>
static void say(tutti_comm *comm, tutti_status status) { fprintf(stderr, "%s: %s\n", tutti_status_name(status), status == TUTTI_OK ? "" : tutti_comm_error(comm)->text); }
static int until_somebody_waits(tutti_comm *comm)
{
    int waiting = 0;
    while (waiting == 0) {
        waiting = tutti_comm_waiting(comm);
        if (tutti_all_reduce(comm, &waiting, &waiting, 1, TUTTI_I32, TUTTI_MIN) != TUTTI_OK) return 1;
    }
    return 0;
}
static tutti_status answer(tutti_actor *self, void *state, tutti_request *request)
{
    (void)self;
    return tutti_request_answer(request, state, sizeof(int));
}
/* What was made from the old world is made again, and what is new reaches those that joined. */
static int renew(tutti_comm *world, tutti_comm *comm, tutti_comm *half, tutti_mesh *mesh, tutti_actors *actors)
{
    tutti_comm *made = NULL;
    tutti_mesh *again = NULL;
    int old = half != NULL, size = tutti_size(comm);
    if (old && tutti_barrier(half) != TUTTI_ERR_EPOCH) return fprintf(stderr, "the old comm is not refused\n");
    if (tutti_comm_renew(half, comm, &made) != TUTTI_OK) return tutti_explain(comm, stderr);
    if ((made != NULL) != old || (old && tutti_barrier(made) != TUTTI_OK)) return fprintf(stderr, "renewed wrongly\n");
    tutti_status status = old ? tutti_mesh_renew(mesh, made, &again) : TUTTI_OK; /* over the same ranks: the sizes fit */
    if (status != TUTTI_OK) return tutti_explain(made, stderr);
    status = actors != NULL ? tutti_actors_renew(actors, comm) : tutti_actors_create(comm, NULL, &actors);
    int rank = tutti_rank(comm), got = -1;
    if (status == TUTTI_OK && !old)
        status = tutti_actor_create(actors, &(tutti_actor_options){.struct_size = sizeof(tutti_actor_options), .name = "rank", .handle = answer, .context = &rank});
    if (status != TUTTI_OK || tutti_barrier(comm) != TUTTI_OK) return tutti_explain(comm, stderr);
    for (int i = 0; i < size; i++)
        if (tutti_actor_ask(actors, i, "rank", "x", 1, &got, sizeof got, NULL, 20000) != TUTTI_OK || got != i)
            return fprintf(stderr, "rank %d does not answer: %s\n", i, tutti_actors_error(actors)->text);
    tutti_barrier(comm);
    tutti_actors_free(actors);
    tutti_mesh_free(again);
    tutti_comm_free(made);
    printf("renewed %d of %d\n", rank, size);
    return 0 * (world != NULL);
}
static int renew_all(tutti_comm *world)
{
    tutti_comm *half = NULL, *next = world;
    tutti_mesh *mesh = NULL;
    tutti_actors *actors = NULL;
    int rank = tutti_rank(world), sizes[1] = {tutti_size(world)};
    const char *names[1] = {"data"};
    if (tutti_epoch(world) > 0) return renew(world, world, NULL, NULL, NULL);
    if (tutti_comm_duplicate(world, &half) != TUTTI_OK || tutti_mesh_create(half, names, sizes, 1, &mesh) != TUTTI_OK ||
        tutti_actors_create(world, NULL, &actors) != TUTTI_OK ||
        tutti_actor_create(actors, &(tutti_actor_options){.struct_size = sizeof(tutti_actor_options), .name = "rank", .handle = answer, .context = &rank}) != TUTTI_OK)
        return tutti_explain(world, stderr);
    if (until_somebody_waits(world) != 0 || tutti_comm_grow(world, &next) != TUTTI_OK) return tutti_explain(world, stderr);
    int status = renew(world, next, half, mesh, actors);
    tutti_mesh_free(mesh);
    tutti_comm_free(half);
    return status;
}
static int work(tutti_comm *world, int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    tutti_comm *next = world, *other = NULL;
    if (strcmp(what, "renew") == 0) return renew_all(world);
    if (tutti_epoch(world) > 0) return 0;
    if (strcmp(what, "nobody") == 0) say(world, tutti_comm_grow(world, &next));
    if (strcmp(what, "part") == 0 && tutti_comm_duplicate(world, &other) == TUTTI_OK) say(other, tutti_comm_grow(other, &next));
    if (strcmp(what, "null") == 0) say(world, tutti_comm_grow(world, NULL)), next = NULL;
    if (strcmp(what, "broken") == 0 && tutti_comm_revoke(world) == TUTTI_OK) return say(world, tutti_comm_grow(world, &next)), next != NULL;
    if (strcmp(what, "late") == 0 && until_somebody_waits(world) == 0) {
        tutti_barrier(world);
        if (tutti_rank(world) == 0) puts("somebody waits"), fflush(stdout), getchar();
        tutti_barrier(world);
        say(world, tutti_comm_grow(tutti_within(world, 500), &next));
        for (time_t until = time(NULL) + 60; tutti_comm_waiting(world) > 0 && time(NULL) < until;) thrd_yield(); /* until it is ended */
    }
    if (strcmp(what, "wait") == 0) {
        if (tutti_rank(world) == 0) getchar();
        next = NULL;
    }
    return tutti_barrier(world) == TUTTI_OK && next == NULL ? 0 : 1; /* nothing has changed */
}
int main(int argc, char **argv) { return tutti_main(work, argc, argv); }
C

# job_case STATUS PATTERN COUNT RUN-ARGUMENT...: a job of its own whose ranks say this
job_case() {
    local status=$1 pattern=$2 count=$3
    shift 3
    tool run --no-prefix "$@"
    check "status: $*" "$status" "$STATUS"
    check "said: $*" "$count" "$(grep -Ec "$pattern" <<<"$ERR")"
}

# A job whose rank 0 reads from its stdin, which is open as long as descriptor 9.
begin_open() {
    rm -f stdin.fifo
    mkfifo stdin.fifo
    exec 9<>stdin.fifo
    begin "$@" <stdin.fifo
}
# join_open COUNT ARGUMENT...: that many wait; their launcher is $JOINER
join_open() {
    "$TUTTI" run --join "$JOB" -n "$@" >join_out.txt 2>join_err.txt 9>&- &
    JOINER=$!
    within 30 waiting "$1"
}
# The processes of the job that wait
waiters() {
    local pid
    for pid in $(children_of "$(children_of "$JOB")"); do
        if grep -zq '^TUTTI_TICKET=' "/proc/$pid/environ" 2>/dev/null; then echo "$pid"; fi
    done
}

if [ -z "$SANITIZE" ]; then
    compile cases
    for transport in shm tcp; do
        job_case 0 '^TUTTI_ERR_ARGUMENT: .*no process waits' 3 -n 3 --max-ranks 4 --transport $transport ./cases nobody
    done
    job_case 0 '^TUTTI_ERR_ARGUMENT: .*grow the world' 2 -n 2 --max-ranks 4 ./cases part
    job_case 0 '^TUTTI_ERR_ARGUMENT: .*NULL' 2 -n 2 --max-ranks 4 ./cases null
    job_case 0 '^TUTTI_ERR_BROKEN: .*tutti_comm_rebuild' 2 -n 2 --max-ranks 4 ./cases broken
    job_case 0 '^TUTTI_ERR_UNSUPPORTED: .*--max-ranks' 2 -n 2 ./cases nobody
    TUTTI_RANKS=2 job_case 0 '^TUTTI_ERR_UNSUPPORTED: .*threads' 4 -n 2 --max-ranks 4 ./cases nobody
    ./cases nobody 2>err.txt
    matches 'no launcher: said' '^TUTTI_ERR_UNSUPPORTED: .*tutti run --max-ranks M' "$(cat err.txt)"

    for transport in shm tcp; do
        begin 3 4 --transport $transport ./cases renew
        tool run --join "$JOB" --no-prefix ./cases renew
        check "renewed, joined, $transport" 'renewed 3 of 4' "$OUT"
        check "renewed, joined, $transport: status" 0 "$STATUS"
        [ "$STATUS" = 0 ] || cat err.txt job_err.txt
        ended "$JOB"
        check "renewed, $transport" 3 "$(grep -c '^renewed [0-2] of 4' job_out.txt)"
        check "renewed, $transport: status" 0 "$STATUS"
    done
fi

if [ -z "$SANITIZE" ]; then
    # Nobody takes them in: they end with the job. While they wait there is no room for more.
    begin_open 2 4 ./cases wait
    tool run --join "$JOB" --deadline-ms 300 ./cases wait
    check 'waits too long: status' 1 "$STATUS"
    matches 'waits too long: said' 'waited 300 ms .*tutti_comm_grow' "$ERR"
    refused 'another TUTTI_TRANSPORT' run --join "$JOB" --transport tcp ./cases wait
    printf '#!/no/such/program\n' >bad && chmod +x bad
    refused 'cannot execute' run --join "$JOB" ./bad
    TUTTI_RANKS=2 refused 'one rank, not 2' run --join "$JOB" true
    join_open 2 ./cases wait
    refused 'no room for 1 process: 4 of 4 ranks' run --join "$JOB" true
    exec 9>&-
    ended "$JOB"
    check 'not taken in: the job' 0 "$STATUS"
    ended "$JOINER"
    check 'not taken in: status' 1 "$STATUS"
    check 'not taken in: said' 2 "$(grep -c 'has ended, and has not taken this process in' join_err.txt)"
    refused 'no job' run --join "$JOB" true

    # Whoever has started them is killed: they end, and the job goes on. The job's launcher is killed: all end.
    begin_open 2 4 ./cases wait
    join_open 2 ./cases wait
    waiters >pids.txt
    check 'two wait' 2 "$(wc -l <pids.txt)"
    kill -KILL "$JOINER"
    within 30 gone pids.txt
    check 'their launcher killed: they end' 0 $?
    join_open 2 ./cases wait
    waiters >pids.txt
    kill -KILL "$JOB"
    within 30 gone pids.txt
    check 'the launcher killed: they end' 0 $?
    ended "$JOINER"
    check 'the launcher killed: told' 1 "$((STATUS != 0))"
    exec 9>&-

    # One that does not come when it is called is ended, and the others go on.
    for transport in shm tcp; do
        begin_open 2 4 --transport $transport ./cases late
        join_open 1 ./cases late
        within 30 lines_in job_out.txt 1
        kill -STOP "$(waiters)"
        exec 9>&-
        ended "$JOB"
        check "late, $transport: status" 0 "$STATUS"
        check "late, $transport: said" 2 "$(grep -c '^TUTTI_ERR_JOIN: .*nothing changes' job_err.txt)"
        matches "late, $transport: named" '^TUTTI_ERR_JOIN: .*rank 2' "$(cat job_err.txt)"
        ended "$JOINER"
        check "late, $transport: ended" 137 "$STATUS"
    done
fi

refused 'no job .*of this user|there is no job' run --join no-such-job true
refused '--max-ranks 1 is less than the 2 ranks' run -n 2 --max-ranks 1 true
refused '--max-ranks is for jobs of one host' run -n 2 --max-ranks 4 --hosts a,b true
refused 'max-ranks' run --max-ranks x true
for flag in '--max-restarts 1' '--max-ranks 3' '--keep-going' '--log-dir x' '--bind core' '--hosts a,b' '--nnodes 1'; do
    # shellcheck disable=SC2086
    refused "${flag%% *} has no meaning with --join" run --join 1 $flag true
done
finish
