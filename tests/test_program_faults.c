/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Random programs in which something goes wrong: each seed makes one of at least two ranks, and in every kind of world one
 * of them is killed, ends, stops for a while, makes another call, cancels, runs out of time, frees a comm or leaves.
 *     test_program_faults [FROM:COUNT] [WORLD]       TUTTI_TEST_SEEDS=FROM:COUNT does the same
 */
#include "check_program.h"

#include "base/clock.h"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SEEDS = SANITIZED ? 3 : 12, LEAVE_MS = 1000, SLACK_MS = 15000 };

static char folder[] = "/tmp/tutti-faults-XXXXXX", trace[64];

static bool is_possible(enum program_fault_kind kind, const struct program_place *place)
{
    bool processes = place->ranks == WORLD_PROCESSES || place->ranks == WORLD_PAIRS;
    if (kind == FAULT_KILL || kind == FAULT_STOP) return processes;
    return kind != FAULT_NONE && (kind != FAULT_END || place->ranks != WORLD_SIMULATED);
}

/* The thread sanitizer does not see that memory which was used again was given back first by another process. */
static bool is_followed(const struct program_place *place)
{
    return !SANITIZED_THREADS || place->tcp || place->ranks == WORLD_THREADS || place->ranks == WORLD_SIMULATED;
}

/* All ranks of a process. */
static unsigned ranks_with(int rank, int threads)
{
    return ((1u << threads) - 1) << rank / threads * threads;
}

static struct program_fault choose(const struct program *program, const struct program_place *place, uint64_t seed)
{
    int threads = program_threads(program, place);
    struct program_fault fault = {.kind = FAULT_NONE};
    for (uint64_t i = 0; !is_possible(fault.kind, place); i++)
        fault.kind = (enum program_fault_kind)program_pick(seed, 80 + i, FAULT_KINDS);
    fault.victim = program_pick(seed, 51, program->size);
    fault.at = program_pick(seed, 52, program->action_count);
    fault.thread = place->ranks == WORLD_THREADS || (threads > 1 && program_pick(seed, 53, 2) == 0);
    if (fault.kind == FAULT_LEAVE || (fault.kind == FAULT_END && fault.thread)) fault.gone = 1u << fault.victim;
    if (fault.kind == FAULT_KILL || (fault.kind == FAULT_END && !fault.thread))
        fault.gone = ranks_with(fault.victim, threads);
    if (fault.kind == FAULT_KILL && program_pick(seed, 54, 4) == 0)
        fault.gone |= ranks_with(program_pick(seed, 55, program->size), threads);
    return fault;
}

static void run_place(struct program *program, const struct program_place *place, int number)
{
    program->fault = choose(program, place, conf_hash(program->seed, 900 + (uint64_t)number));
    bool leaves = program->fault.kind == FAULT_FREE || program->fault.kind == FAULT_LEAVE;
    for (int i = 0; i < program->item_count && leaves; i++) program->items[i].any_source = false;
    program_run_at(program, place, trace);
    int64_t ended_ns = atomic_load(&program_faulted->ended_ns), left_ns = tti_now_ns() - ended_ns;
    bool simulated = place->ranks == WORLD_SIMULATED || ended_ns == 0;
    char text[100];
    CHECK_THAT(simulated || left_ns < (LEAVE_MS + SLACK_MS) * INT64_C(1000000),
               "seed %llu on %s, %sit took %.1f s to leave", (unsigned long long)program->seed, place->name,
               program_fault_text(program, text, sizeof text), (double)left_ns / 1e9);
}

/* One of two threads of a process that are a host of their own: the other one is told in the comm of their host too. */
static tutti_comm *kept;

static void lose_thread(tutti_comm *world, void *context)
{
    (void)context;
    tutti_comm *host;
    CHECK_THAT(tutti_comm_by_host(world, &host) == TUTTI_OK, "comm_by_host failed");
    atomic_fetch_add(&conf_totals->arrivals, 1);
    while (atomic_load(&conf_totals->arrivals) < 4) usleep(100); /* all have made theirs */
    if (tutti_rank(world) == 3) {
        kept = host;
        pthread_exit(NULL);
    }
    if (tutti_rank(world) == 2) {
        tutti_status status = tutti_barrier(tutti_within(host, 45000));
        const tutti_error *error = tutti_comm_error(host);
        CHECK_THAT(status == TUTTI_ERR_PEER_LOST && error != NULL && error->peer == 1, "a lost thread: %s: %s",
                   tutti_status_name(status), error == NULL ? "" : error->text);
    }
    tutti_comm_free(host);
}

static void test_lost_thread(void)
{
    struct conf_world world = {.ranks = WORLD_PAIRS, .size = 4, .body = lose_thread, .direct = 1, .attach = 1};
    world.faulty = world.leaks = true;
    setenv("TUTTI_HOST_PROCESSES", "1", 1);
    conf_world_run(&world);
}

/* A comm over two hosts that the only rank of one frees, who then calls nothing more until the others have been told. */
static void free_early(tutti_comm *world, void *context)
{
    (void)context;
    tutti_comm *comm;
    CHECK_THAT(tutti_comm_duplicate(world, &comm) == TUTTI_OK, "comm_duplicate failed");
    if (tutti_rank(world) == 2) {
        CHECK_THAT(tutti_comm_free(comm) == TUTTI_OK, "comm_free failed");
        while (atomic_load(&conf_totals->arrivals) < 2) usleep(100);
        return;
    }
    tutti_status status = tutti_barrier(tutti_within(comm, 45000));
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH && error != NULL && error->peer == 2, "a comm that was freed: %s: %s",
               tutti_status_name(status), error == NULL ? "" : error->text);
    atomic_fetch_add(&conf_totals->arrivals, 1);
    tutti_comm_free(comm);
}

static void test_freed_early(void)
{
    struct conf_world world = {.ranks = WORLD_PROCESSES, .size = 3, .body = free_early, .direct = 1, .attach = 1};
    world.faulty = true;
    setenv("TUTTI_HOST_PROCESSES", "2", 1);
    conf_world_run(&world);
}

/* Of tutti_main, whose process has ended: it is not lost, although it has not freed a comm. */
static void keep_comm(tutti_comm *world, void *context)
{
    (void)context;
    tutti_comm *comm;
    CHECK_THAT(tutti_comm_duplicate(world, &comm) == TUTTI_OK, "comm_duplicate failed");
    if (tutti_rank(world) == 2) {
        atomic_store(&conf_totals->arrivals, (unsigned long)getpid());
        kept = comm;
        return;
    }
    while (atomic_load(&conf_totals->arrivals) == 0) usleep(100);
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, (pid_t)atomic_load(&conf_totals->arrivals), 0)};
    ended.events = POLLIN;
    CHECK_THAT(poll(&ended, 1, 45000) == 1, "who left has not ended");
    close(ended.fd);
    tutti_status in_comm = tutti_barrier(comm), in_world = tutti_barrier(world);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(in_comm == TUTTI_ERR_MISMATCH && in_world == TUTTI_ERR_MISMATCH, "a comm that was not freed: %s, %s: %s",
               tutti_status_name(in_comm), tutti_status_name(in_world), error == NULL ? "" : error->text);
    tutti_comm_free(comm);
}

static void test_not_freed(void)
{
    struct conf_world world = {.ranks = WORLD_PAIRS, .size = 3, .body = keep_comm, .direct = 1, .attach = 1};
    world.faulty = world.leaks = true;
    setenv("TUTTI_TRANSPORT", "tcp", 1);
    conf_world_run(&world);
}

/* Who waits no time at all, again and again, for what a rank that has left never sent. */
static void poll_for_nothing(tutti_comm *world, void *context)
{
    (void)context;
    float x;
    tutti_op op;
    tutti_status status = TUTTI_IN_PROGRESS;
    if (tutti_rank(world) == 0) return;
    CHECK_THAT(tutti_recv_start(world, &x, 1, TUTTI_F32, 0, 1, NULL, &op) == TUTTI_OK, "recv_start failed");
    while (status == TUTTI_IN_PROGRESS) status = tutti_wait_for(op, 0);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH, "polled for what never comes: %s", tutti_status_name(status));
}

static void test_polled(void)
{
    struct conf_world world = {.ranks = WORLD_SIMULATED, .size = 2, .body = poll_for_nothing, .direct = 1, .attach = 1};
    world.faulty = true;
    conf_world_run(&world);
}

static void run_seed(struct program *program, uint64_t seed, const char *only, bool some)
{
    program_make(program, seed);
    program->test = "test_program_faults";
    if (program->size == 1) return;
    program_data_prepare(program);
    for (int i = 0; i < PROGRAM_PLACES; i++) {
        if (only != NULL && strcmp(only, program_places[i].name) != 0) continue;
        if (some && (uint64_t)i % 3 != seed % 3) continue;
        if (is_followed(&program_places[i])) run_place(program, &program_places[i], i);
    }
}

int main(int argc, char **argv)
{
    const char *seeds = argc > 1 ? argv[1] : getenv("TUTTI_TEST_SEEDS"), *only = argc > 2 ? argv[2] : NULL;
    unsigned long long from = 0, count = SEEDS;
    if (seeds != NULL && sscanf(seeds, "%llu:%llu", &from, &count) < 1) {
        printf("seeds are FROM:COUNT, not %s\n", seeds);
        return 2;
    }
    struct program *program = calloc(1, sizeof *program);
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(trace, sizeof trace, "%s/trace", folder);
    setenv("TUTTI_LOG", "quiet", 0); /* of comms that are freed as they are */
    conf_begin();
    conf_reference_prepare();
    program_begin();
    test_lost_thread();
    test_freed_early();
    test_not_freed();
    test_polled();
    for (uint64_t seed = from; seed < from + count; seed++) run_seed(program, seed, only, seeds == NULL);
    /* a barrier that breaks when others have passed it: nobody is waited for */
    if (seeds == NULL) run_seed(program, 2121, "simulated hosts", false);
    /* who leaves with messages that nobody has received: the others need not wait for them */
    if (seeds == NULL) run_seed(program, 273, "hosts of threads", false);
    if (seeds == NULL) run_seed(program, 279, "simulated", false);
    /* ranks that wait for any rank, while another one has made another call: the error names that one too */
    if (seeds == NULL) run_seed(program, 3030237, "threads", false);
    for (int i = 0; i < FAULT_KINDS; i++)
        printf("%s%.0f", i == 0 ? "longest, in ms: " : " ", (double)(*program_fault_worst)[i] / 1e6);
    printf("\n");
    free(program);
    unlink(trace);
    rmdir(folder);
    return check_end();
}
