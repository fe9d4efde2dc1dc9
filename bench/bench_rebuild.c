/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a world takes to be whole again: from the death of ranks to the end of the first collective of the next epoch, on the
 * slowest rank. Each round some ranks die, the others rebuild; sums are checked in each epoch.
 *
 *     tutti run -n 8 --max-restarts 1000 build/bench_rebuild [ROUNDS [HOW [WHERE [AT_ONCE [SEED [VICTIM]]]]]]
 *
 * HOW: kill, abort, segv, exit, stop (which is late, and killed by the others), mixed; cont, which stops for a moment and goes on, so
 * that nobody is lost: in a rebuild.
 * WHERE: barrier (right behind one: what is measured), any collective, send, agree, rebuild (while the world is rebuilt for another
 * rank's sake), mixed. AT_ONCE: how many die, of more. VICTIM: the first of them in
 * every round, as 0, which coordinates; else another one each time, and rank 0 is among them in every third round.
 *
 * Prints a line, and ends with status 0 if every round healed, all sums were right, and no descriptor or mapping was left open.
 */
#include "median.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { LARGE = 20000, DELAYS_US = 3000, WITHIN_MS = 1500, STOPPED_MS = 300, STOP_MS = 30, MOST = 10000, WARM_UP = 2 };
enum { SETTLED_MS = 3000 }; /* a rank that was to stop while the world is rebuilt may do so when it is whole */
enum { BARRIER, AGREE, REBUILD, MIXED };

static const char *const places[] = {
    "barrier",        "agree",        "rebuild",  "mixed",     "all_reduce",       "broadcast",   "all_gather",
    "reduce_scatter", "all_to_all",   "send",     "reduce",    "gather",           "scatter",     "scan",
    "exscan",         "all_gather_v", "gather_v", "scatter_v", "reduce_scatter_v", "all_to_all_v"};
static const char *const ways[] = {"kill", "abort", "segv", "exit", "stop", "mixed", "cont"};
enum { PLACES = sizeof places / sizeof *places, WAYS = sizeof ways / sizeof *ways, MIXED_WAYS = 5, CONT = 6 };
enum { FIRST_ONE_SIDED = 10 }; /* from there on some ranks need nothing of others */

struct plan {
    int rounds, how, where, at_once;
    int victim; /* -1: another one each time */
    uint64_t seed;
};

struct state {
    tutti_comm *comm;
    const tutti_comm *world;
    int round;
    bool fresh; /* this process was started again, and knows nothing yet */
    double died_ms, *times;
    int open, mapped; /* descriptors and mappings, once all is warm */
};

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static uint64_t random_of(uint64_t seed, uint64_t number)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + number * UINT64_C(0xbf58476d1ce4e5b9) + 1;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static int find(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    fprintf(stderr, "bench_rebuild: there is no \"%s\"\n", name);
    exit(2);
}

/* ---- Dying ------------------------------------------------------------------------------------------------------------ */

static bool dies(const struct plan *plan, int round, int rank, int size)
{
    uint64_t first = random_of(plan->seed, (uint64_t)round) % (uint64_t)size;
    if (round % 3 == 0) first = 0;
    if (plan->victim >= 0) first = (uint64_t)plan->victim;
    return (rank + size - (int)first) % size < plan->at_once;
}

static int how_of(const struct plan *plan, int round)
{
    return plan->how != MIXED_WAYS ? plan->how : (int)(random_of(plan->seed + 1, (uint64_t)round) % MIXED_WAYS);
}

static int where_of(const struct plan *plan, int round)
{
    if (plan->where != MIXED) return plan->where;
    int place = (int)(random_of(plan->seed + 2, (uint64_t)round) % (PLACES - 1));
    return place < MIXED ? place : place + 1;
}

static volatile bool dying; /* this rank, soon */

/* The process stops, and is made to go on by one that it has forked. */
static void stop_for_a_moment(void)
{
    const pid_t self = getpid(), other = fork();
    if (other == 0) {
        nanosleep(&(struct timespec){0, STOP_MS * 1000000L}, NULL);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    while (waitpid(other, NULL, 0) < 0 && errno == EINTR) {}
    dying = false;
}

static void die(int how)
{
    volatile int *nowhere = NULL;
    switch (how) {
    case 0: raise(SIGKILL); break;
    case 1: abort();
    case 2: *nowhere = 1; break;
    case 3: _exit(3);
    case CONT: stop_for_a_moment(); break;
    default: raise(SIGSTOP); break;
    }
}

struct death {
    int how;
    long delay_us;
};

static void *die_later(void *argument)
{
    struct death *death = argument;
    nanosleep(&(struct timespec){0, death->delay_us * 1000}, NULL);
    die(death->how);
    return NULL;
}

static void arrange_death(const struct plan *plan, int round)
{
    dying = true;
    static struct death death;
    pthread_t thread;
    death = (struct death){how_of(plan, round), (long)(random_of(plan->seed + 3, (uint64_t)round) % DELAYS_US)};
    if (pthread_create(&thread, NULL, die_later, &death) != 0) exit(1);
}

/* ---- What ranks do ------------------------------------------------------------------------------------------------------ */

static float in[LARGE], out[LARGE];

/* Calls in which a rank may need nothing of others. */
static tutti_status call_one_sided(tutti_comm *comm, const char *name, size_t count)
{
    const size_t size = (size_t)tutti_size(comm);
    size_t counts[size];
    for (size_t i = 0; i < size; i++) counts[i] = count;
    if (strcmp(name, "reduce") == 0) return tutti_reduce(comm, in, out, LARGE, TUTTI_F32, TUTTI_SUM, 0);
    if (strcmp(name, "gather") == 0) return tutti_gather(comm, in, out, count, TUTTI_F32, 0);
    if (strcmp(name, "scatter") == 0) return tutti_scatter(comm, in, out, count, TUTTI_F32, 0);
    if (strcmp(name, "scan") == 0) return tutti_scan(comm, in, out, LARGE, TUTTI_F32, TUTTI_SUM);
    if (strcmp(name, "exscan") == 0) return tutti_exscan(comm, in, out, LARGE, TUTTI_F32, TUTTI_SUM);
    if (strcmp(name, "gather_v") == 0) return tutti_gather_v(comm, in, count, out, counts, NULL, TUTTI_F32, 0);
    if (strcmp(name, "scatter_v") == 0) return tutti_scatter_v(comm, in, counts, NULL, out, count, TUTTI_F32, 0);
    if (strcmp(name, "all_gather_v") == 0) return tutti_all_gather_v(comm, in, out, counts, NULL, TUTTI_F32);
    if (strcmp(name, "all_to_all_v") == 0)
        return tutti_all_to_all_v(comm, in, counts, NULL, out, counts, NULL, TUTTI_F32);
    return tutti_reduce_scatter_v(comm, in, out, counts, TUTTI_F32, TUTTI_SUM);
}

static tutti_status call(tutti_comm *comm, int where)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    size_t count = LARGE / (size_t)size;
    uint64_t all;
    if (where == 1 && tutti_comm_agree(comm, 1, &all) != TUTTI_OK) return TUTTI_ERR_TIMEOUT; /* it survives a loss */
    if (where == 4) return tutti_all_reduce(comm, in, out, LARGE, TUTTI_F32, TUTTI_SUM);
    if (where == 5) return tutti_broadcast(comm, in, out, LARGE, TUTTI_F32, 0);
    if (where == 6) return tutti_all_gather(comm, in, out, count, TUTTI_F32);
    if (where == 7) return tutti_reduce_scatter(comm, in, out, count, TUTTI_F32, TUTTI_SUM);
    if (where == 8) return tutti_all_to_all(comm, in, out, count, TUTTI_F32);
    if (where == 9)
        return tutti_sendrecv(comm, in, LARGE, (rank + 1) % size, 1, out, LARGE, (rank + size - 1) % size, 1, TUTTI_F32,
                              NULL);
    if (where >= FIRST_ONE_SIDED) {
        tutti_status status = call_one_sided(comm, places[where], count);
        if (status != TUTTI_OK) return status;
    }
    return tutti_barrier(tutti_within(comm, STOPPED_MS)); /* as each of these, if something else came before it */
}

static tutti_status check_sum(tutti_comm *comm)
{
    int64_t x = INT64_C(1) << tutti_rank(comm), sum = 0;
    tutti_status status = tutti_all_reduce(tutti_within(comm, SETTLED_MS), &x, &sum, 1, TUTTI_I64, TUTTI_SUM);
    if (status != TUTTI_OK || sum == (INT64_C(1) << tutti_size(comm)) - 1) return status;
    fprintf(stderr, "bench_rebuild: rank %d: a sum is wrong\n", tutti_rank(comm));
    exit(1);
}

static void rebuild(struct state *state)
{
    tutti_comm *next;
    tutti_comm_revoke(state->comm);
    if (tutti_comm_rebuild(tutti_within(state->comm, WITHIN_MS), &next) != TUTTI_OK)
        exit(tutti_explain(state->comm, stderr));
    while (dying)
        nanosleep(&(struct timespec){0, 200000}, NULL); /* that took less time: the others rebuild once more */
    if (state->comm != state->world) tutti_comm_free(state->comm);
    state->comm = next;
}

static int count_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    int lines = 0;
    for (int c; file != NULL && (c = fgetc(file)) != EOF;) lines += c == '\n';
    if (file != NULL) fclose(file);
    return lines;
}

static int count_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder != NULL && readdir(folder) != NULL) count++;
    if (folder != NULL) closedir(folder);
    return count;
}

/* Everybody takes the round from those that know it. Fails when another rank has died meanwhile. */
static tutti_status meet(struct state *state)
{
    int known[2] = {state->fresh ? -1 : state->round, state->fresh};
    tutti_status status = tutti_all_reduce(tutti_within(state->comm, SETTLED_MS), known, known, 2, TUTTI_I32,
                                           TUTTI_MAX);
    if (status != TUTTI_OK) return status;
    state->round = known[0];
    state->fresh = false;
    return TUTTI_OK;
}

/* Until some have died, as was planned, or the world was found broken. */
static void suffer(struct state *state, const struct plan *plan)
{
    int rank = tutti_rank(state->comm), size = tutti_size(state->comm), where = where_of(plan, state->round);
    bool victim = dies(plan, state->round, rank, size),
         first = rank == (dies(plan, state->round, 0, size) ? size - 1 : 0);
    bool settles = where == REBUILD || where == BARRIER;
    tutti_comm *comm = tutti_within(state->comm, settles ? SETTLED_MS : STOPPED_MS);
    if (tutti_barrier(comm) != TUTTI_OK) return;
    state->died_ms = now_ms();
    if (victim && where == BARRIER) die(how_of(plan, state->round));
    if (victim && where != BARRIER) arrange_death(plan, state->round);
    if (where == REBUILD) {
        if (first && plan->at_once < size) tutti_comm_revoke(state->comm);
        return; /* to rebuild, in which others die */
    }
    while (call(tutti_within(state->comm, STOPPED_MS), where) == TUTTI_OK) {}
}

static void note_time(struct state *state)
{
    double time = now_ms() - state->died_ms, slowest = time;
    if (state->died_ms == 0) slowest = 0;
    tutti_comm *comm = tutti_within(state->comm, SETTLED_MS);
    if (tutti_all_reduce(comm, &slowest, &slowest, 1, TUTTI_F64, TUTTI_MAX) == TUTTI_OK && state->round < MOST)
        state->times[state->round] = slowest;
}

static void heal(struct state *state)
{
    for (;;) {
        rebuild(state);
        if (check_sum(state->comm) == TUTTI_OK && meet(state) == TUTTI_OK) return;
    }
}

static void look_for_leaks(struct state *state, const struct plan *plan)
{
    bool warm = state->round >= WARM_UP && state->comm != state->world; /* it has two worlds from now on */
    if (warm && state->open == 0) state->open = count_open(), state->mapped = count_lines("/proc/self/maps");
    if (state->round != plan->rounds || state->open == 0) return;
    int open = count_open(), mapped = count_lines("/proc/self/maps");
    if (open <= state->open && mapped <= state->mapped + 16) return;
    fprintf(stderr, "bench_rebuild: rank %d: %d descriptors and %d mappings at first, %d and %d at the end\n",
            tutti_rank(state->comm), state->open, state->mapped, open, mapped);
    exit(1);
}

/* Each rank knows of the rounds since it was last started again; together they know of all. */
static void report(const struct state *state, const struct plan *plan)
{
    static double times[MOST];
    int count = 0;
    size_t rounds = (size_t)plan->rounds;
    if (tutti_all_reduce(state->comm, state->times, state->times, rounds, TUTTI_F64, TUTTI_MAX) != TUTTI_OK)
        exit(tutti_explain(state->comm, stderr));
    for (int round = 0; round < plan->rounds; round++)
        if (state->times[round] > 0) times[count++] = state->times[round];
    if (tutti_rank(state->comm) != 0 || count == 0) return;
    double middle = median(times, count); /* sorts */
    char victim[32] = "";
    if (plan->victim >= 0) snprintf(victim, sizeof victim, " from rank %d", plan->victim);
    printf("%d ranks, %d rounds of %d x %s in %s%s, epoch %d: whole again after %.1f ms (median), %.1f (99%%), %.1f "
           "(most)\n",
           tutti_size(state->comm), plan->rounds, plan->at_once, ways[plan->how], places[plan->where], victim,
           (int)tutti_epoch(state->comm), middle, times[count * 99 / 100], times[count - 1]);
}

/* A whole number below the size; anything else is a mistake. */
static int read_victim(const char *text, int size)
{
    char *end;
    long victim = strtol(text, &end, 10);
    if (end != text && *end == '\0' && victim >= 0 && victim < size) return (int)victim;
    fprintf(stderr, "bench_rebuild: VICTIM is a rank below %d, not \"%s\"\n", size, text);
    exit(2);
}

static int work(tutti_comm *world, int argc, char **argv)
{
    static double times[MOST];
    struct plan plan = {.rounds = argc > 1 ? atoi(argv[1]) : 20,
                        .how = find(ways, WAYS, argc > 2 ? argv[2] : "kill"),
                        .where = find(places, PLACES, argc > 3 ? argv[3] : "barrier"),
                        .at_once = argc > 4 ? atoi(argv[4]) : 1,
                        .seed = argc > 5 ? strtoull(argv[5], NULL, 10) : 1,
                        .victim = argc > 6 ? read_victim(argv[6], tutti_size(world)) : -1};
    struct state state = {.comm = world, .world = world, .fresh = tutti_epoch(world) > 0, .times = times};
    if (plan.rounds < 1 || plan.rounds > MOST || plan.at_once < 1 || plan.at_once >= tutti_size(world)) return 2;
    bool whole = state.fresh && check_sum(world) == TUTTI_OK && meet(&state) == TUTTI_OK;
    for (bool begins = !state.fresh && tutti_epoch(world) == 0; state.round < plan.rounds; begins = true) {
        if (begins) look_for_leaks(&state, &plan), suffer(&state, &plan);
        if (begins || !whole) heal(&state);
        note_time(&state);
        state.round++;
    }
    look_for_leaks(&state, &plan);
    if (tutti_barrier(tutti_within(state.comm, SETTLED_MS)) != TUTTI_OK) return tutti_explain(state.comm, stderr);
    report(&state, &plan);
    if (state.comm != world) tutti_comm_free(state.comm);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
