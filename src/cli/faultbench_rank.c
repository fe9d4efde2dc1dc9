/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank of tutti faultbench. In each round one rank dies: after a step of a collective's plan, whose steps the same
 * collective has shown before, or at some time. The others record what they saw, agree on who is left, and rebuild the
 * world.
 */
#include "cli/cli.h"
#include "cli/faultbench.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { COUNT_MOST = 40000, DELAYS_US = 2000, REBUILD_MS = 20000, WARM_UP = 2, MAPPINGS = 16, BY_CLOCK = 4 };
enum { OP_BARRIER, OP_SENDRECV = 16, OPS };

static const size_t counts[] = {1, 100, 3000, COUNT_MOST};
enum { COUNTS = sizeof counts / sizeof *counts };

static struct fault_shared *shared;

struct state {
    tutti_comm *comm;
    const tutti_comm *world;
    int round;
    bool fresh; /* this process was started again, and does not know the round yet */
    int open, mapped;
    float *in, *out; /* memory that the other ranks can access */
};

/* What happens in a round; the same on all ranks. */
struct fate {
    int victim, op;
    size_t count;
    bool reached, by_clock; /* the buffers are memory that all ranks can access; the victim dies at some time */
};

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t random_of(uint64_t seed, uint64_t number)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + number * UINT64_C(0xbf58476d1ce4e5b9) + 1;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Goes through every op, size and kind of memory in turn. In every third round the victim is rank 0, which is the root
 * and coordinates. */
static struct fate fate_of(int round, int size)
{
    struct fate fate = {.victim = (int)(random_of(shared->seed, (uint64_t)round) % (uint64_t)size),
                        .op = round % OPS,
                        .count = counts[round % COUNTS],
                        .reached = random_of(shared->seed + 4, (uint64_t)round) % 2 == 0,
                        .by_clock = random_of(shared->seed + 1, (uint64_t)round) % BY_CLOCK == 0};
    if (round % 3 == 0) fate.victim = 0;
    return fate;
}

/* ---- Dying ------------------------------------------------------------------------------------------------------------ */

static struct fault_round *own_round; /* the round of this rank, which is its victim */
static _Atomic int64_t steps, dies_behind;

static void die(void)
{
    atomic_store(&own_round->died_ns, now_ns());
    (void)raise(SIGKILL);
}

static void count_step(void)
{
    if (atomic_fetch_add(&steps, 1) + 1 == atomic_load(&dies_behind)) die();
}

static void *die_later(void *delay_us)
{
    int64_t us = (int64_t)(intptr_t)delay_us;
    (void)nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
    die();
    return NULL;
}

/* Lets this rank die after one of the steps that the call took before, chosen so that rounds go through all of them. */
static void arrange_death(const struct fate *fate, int round, int64_t known)
{
    uint64_t chosen = known == 0 ? 0 : 1 + random_of(shared->seed + 2, (uint64_t)round) % (uint64_t)known;
    pthread_t thread;
    atomic_store(&own_round->victim, fate->victim);
    atomic_store(&own_round->op, fate->op);
    atomic_store(&own_round->steps, (int32_t)known);
    atomic_store(&own_round->step, fate->by_clock ? -1 : (int32_t)chosen);
    if (fate->by_clock) {
        intptr_t us = (intptr_t)(random_of(shared->seed + 3, (uint64_t)round) % DELAYS_US);
        if (pthread_create(&thread, NULL, die_later, (void *)us) != 0) die();
        return;
    }
    if (chosen == 0) die();
    atomic_store(&steps, 0);
    atomic_store(&dies_behind, (int64_t)chosen);
}

/* ---- What ranks do ---------------------------------------------------------------------------------------------------- */

static tutti_status call(struct state *state, const struct fate *fate)
{
    static float own_in[COUNT_MOST], own_out[COUNT_MOST];
    tutti_comm *comm = tutti_within(state->comm, FAULT_LIMIT_MS);
    int rank = tutti_rank(comm), size = tutti_size(comm), next = (rank + 1) % size, before = (rank + size - 1) % size;
    const float *in = fate->reached ? state->in : own_in;
    float *out = fate->reached ? state->out : own_out;
    size_t all = fate->count < (size_t)size ? (size_t)size : fate->count, each = all / (size_t)size;
    size_t blocks[FAULT_RANKS_MOST];
    for (int i = 0; i < size; i++) blocks[i] = each;
    switch (fate->op) {
    case OP_BARRIER: return tutti_barrier(comm);
    case 1: return tutti_all_reduce(comm, in, out, all, TUTTI_F32, TUTTI_SUM);
    case 2: return tutti_reduce(comm, in, out, all, TUTTI_F32, TUTTI_SUM, 0);
    case 3: return tutti_broadcast(comm, in, out, all, TUTTI_F32, 0);
    case 4: return tutti_all_gather(comm, in, out, each, TUTTI_F32);
    case 5: return tutti_gather(comm, in, out, each, TUTTI_F32, 0);
    case 6: return tutti_scatter(comm, in, out, each, TUTTI_F32, 0);
    case 7: return tutti_reduce_scatter(comm, in, out, each, TUTTI_F32, TUTTI_SUM);
    case 8: return tutti_all_to_all(comm, in, out, each, TUTTI_F32);
    case 9: return tutti_all_gather_v(comm, in, out, blocks, NULL, TUTTI_F32);
    case 10: return tutti_gather_v(comm, in, each, out, blocks, NULL, TUTTI_F32, 0);
    case 11: return tutti_scatter_v(comm, in, blocks, NULL, out, each, TUTTI_F32, 0);
    case 12: return tutti_reduce_scatter_v(comm, in, out, blocks, TUTTI_F32, TUTTI_SUM);
    case 13: return tutti_all_to_all_v(comm, in, blocks, NULL, out, blocks, NULL, TUTTI_F32);
    case 14: return tutti_scan(comm, in, out, all, TUTTI_F32, TUTTI_SUM);
    case 15: return tutti_exscan(comm, in, out, all, TUTTI_F32, TUTTI_SUM);
    default: return tutti_sendrecv(comm, in, all, next, 1, out, all, before, 1, TUTTI_F32, NULL);
    }
}

const char *fault_op_name(int op)
{
    static const char *const names[OPS] = {"barrier",  "all_reduce", "reduce",           "broadcast",    "all_gather",
                                           "gather",   "scatter",    "reduce_scatter",   "all_to_all",   "all_gather_v",
                                           "gather_v", "scatter_v",  "reduce_scatter_v", "all_to_all_v", "scan",
                                           "exscan",   "sendrecv"};
    return op >= 0 && op < OPS ? names[op] : "";
}

static tutti_status check_sum(tutti_comm *comm)
{
    int64_t x = INT64_C(1) << tutti_rank(comm), sum = 0;
    tutti_status status = tutti_all_reduce(tutti_within(comm, FAULT_LIMIT_MS), &x, &sum, 1, TUTTI_I64, TUTTI_SUM);
    if (status == TUTTI_OK && sum != (INT64_C(1) << tutti_size(comm)) - 1) atomic_fetch_add(&shared->wrong, 1);
    return status;
}

/* Shares the round's number with all ranks: those that know it tell the others. Fails if a rank has died meanwhile. */
static tutti_status meet(struct state *state)
{
    int known = state->fresh ? -1 : state->round;
    tutti_status status = tutti_all_reduce(tutti_within(state->comm, FAULT_LIMIT_MS), &known, &known, 1, TUTTI_I32,
                                           TUTTI_MAX);
    if (status != TUTTI_OK) return status;
    state->round = known;
    state->fresh = false;
    return TUTTI_OK;
}

static void note_loss(struct state *state, tutti_status status)
{
    int rank = tutti_rank(state->comm), lost[FAULT_RANKS_MOST], count = 0;
    struct fault_seen *seen = &shared->list[state->round].seen[rank];
    uint64_t all = 0, bits = 0;
    atomic_store(&seen->detected_ns, now_ns());
    atomic_store(&seen->status, status);
    tutti_status agreed = tutti_comm_agree(tutti_within(state->comm, FAULT_LIMIT_MS), ~(UINT64_C(1) << rank), &all);
    if (agreed == TUTTI_OK && tutti_comm_lost(state->comm, lost, FAULT_RANKS_MOST, &count) != TUTTI_OK) count = 0;
    for (int i = 0; i < count; i++) bits |= UINT64_C(1) << lost[i];
    atomic_store(&seen->agreed, agreed);
    atomic_store(&seen->all, all);
    atomic_store(&seen->lost, bits);
}

/* Repeats the round's collective until its victim is dead. The first two calls count its steps, and warm up. */
static void suffer(struct state *state)
{
    struct fate fate = fate_of(state->round, tutti_size(state->comm));
    bool victim = tutti_rank(state->comm) == fate.victim;
    own_round = &shared->list[state->round];
    atomic_store(&shared->next, state->round + 1);
    tutti_status status = call(state, &fate);
    atomic_store(&steps, 0);
    if (status == TUTTI_OK) status = call(state, &fate);
    int64_t known = atomic_load(&steps);
    if (status == TUTTI_OK) status = tutti_barrier(tutti_within(state->comm, FAULT_LIMIT_MS));
    if (status == TUTTI_OK && victim) arrange_death(&fate, state->round, known);
    while (status == TUTTI_OK) { /* ranks that need nothing of the victim succeed, and see its death in the barrier */
        status = call(state, &fate);
        if (status == TUTTI_OK) status = tutti_barrier(tutti_within(state->comm, FAULT_LIMIT_MS));
    }
    note_loss(state, status);
}

static bool rebuild(struct state *state)
{
    tutti_comm *next;
    (void)tutti_comm_revoke(state->comm);
    if (tutti_comm_rebuild(tutti_within(state->comm, REBUILD_MS), &next) != TUTTI_OK) return false;
    if (state->comm != state->world) (void)tutti_comm_free(state->comm);
    state->comm = next;
    return true;
}

static bool heal(struct state *state)
{
    do {
        if (!rebuild(state)) return false;
        if (check_sum(state->comm) != TUTTI_OK) continue;
        atomic_store(&shared->list[state->round].seen[tutti_rank(state->comm)].whole_ns, now_ns());
        if (meet(state) == TUTTI_OK) return true;
    } while (true);
}

/* ---- What is left open -------------------------------------------------------------------------------------------------- */

static int count_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    int lines = 0;
    for (int c; file != NULL && (c = fgetc(file)) != EOF;) lines += c == '\n';
    if (file != NULL) (void)fclose(file);
    return lines;
}

static int count_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder != NULL && readdir(folder) != NULL) count++;
    if (folder != NULL) (void)closedir(folder);
    return count;
}

/* Counts descriptors and mappings once all is warm, and again at the end. */
static void look_for_leaks(struct state *state)
{
    bool warm = state->round >= WARM_UP && state->comm != state->world; /* from then on it has two worlds */
    if (warm && state->open == 0) {
        state->open = count_open();
        state->mapped = count_lines("/proc/self/maps");
    }
    if (state->round != shared->rounds || state->open == 0) return;
    int open = count_open(), mapped = count_lines("/proc/self/maps");
    if (open <= state->open && mapped <= state->mapped + MAPPINGS) return;
    atomic_fetch_add(&shared->left_open, 1);
    (void)fprintf(stderr, "rank %d: %d descriptors and %d mappings at first, %d and %d at the end\n",
                  tutti_rank(state->comm), state->open, state->mapped, open, mapped);
}

/* ---- The rank's life ---------------------------------------------------------------------------------------------------- */

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct state state = {.comm = world, .world = world, .round = shared->first, .fresh = tutti_epoch(world) > 0};
    state.in = tutti_alloc(world, COUNT_MOST * sizeof *state.in);
    state.out = tutti_alloc(world, COUNT_MOST * sizeof *state.out);
    if (state.in == NULL || state.out == NULL || tutti_size(world) != shared->size) return tutti_explain(world, stderr);
    memset(state.in, 0, COUNT_MOST * sizeof *state.in);
    bool whole = state.fresh && check_sum(world) == TUTTI_OK && meet(&state) == TUTTI_OK;
    if (whole) state.round++;
    for (bool begins = whole || !state.fresh; state.round < shared->rounds; begins = true) {
        atomic_fetch_add(&shared->progress, 1);
        if (begins) {
            look_for_leaks(&state);
            suffer(&state);
        }
        if (!heal(&state)) return tutti_explain(state.comm, stderr);
        state.round++;
    }
    look_for_leaks(&state);
    tutti_status status = tutti_barrier(tutti_within(state.comm, FAULT_LIMIT_MS));
    if (state.comm != world) (void)tutti_comm_free(state.comm);
    return status == TUTTI_OK ? 0 : 1;
}

int fault_rank_main(const char *path)
{
    struct stat about;
    char name[] = "tutti";
    char *argv[] = {name, NULL};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0) return cli_blame_path("faultbench", "cannot open", path);
    void *memory = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (memory == MAP_FAILED || (size_t)about.st_size < sizeof *shared)
        return cli_refuse("faultbench", "--rank is for the ranks that this command starts");
    shared = memory;
    tutti_on_step(count_step);
    return tutti_main(work, 1, argv);
}
