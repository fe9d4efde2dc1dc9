/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_world.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/experimental.h>
#include <unistd.h>

enum { DEADLINE_MS = 60000, LIMIT_S = 400, ARENA_BYTES = 1 << 28 };

struct conf_totals *conf_totals;

void conf_begin(void)
{
    conf_totals = mmap(NULL, sizeof *conf_totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (conf_totals == MAP_FAILED) {
        perror("no shared memory to count in");
        exit(1);
    }
}

/* ---- One rank -------------------------------------------------------------------------------------------------- */

static const struct conf_world *current; /* of this process and its threads */

static int deadline_ms(void)
{
    return current->deadline_ms != 0 ? current->deadline_ms : DEADLINE_MS;
}

static int64_t arena_bytes(void)
{
    return current->arena_bytes != 0 ? (int64_t)current->arena_bytes : ARENA_BYTES;
}

static int work(tutti_comm *comm, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    current->body(comm, current->context);
    return 0;
}

static void join_and_work(const char *job, int rank)
{
    tutti_options options;
    tutti_comm *comm = NULL;
    tutti_error refused;
    CHECK_THAT(tutti_options_init(&options, &refused) == TUTTI_OK, "options: %s", refused.text);
    options.direct = current->direct;
    options.attach = current->attach;
    if (current->provider != NULL) options.device_provider = current->provider;
    options.deadline_ms = deadline_ms();
    options.arena_bytes = arena_bytes();
    tutti_status status = tutti_join_as(job, rank, current->size, &options, &comm);
    const tutti_error *error = tutti_comm_error(comm);
    if (CHECK_THAT(status == TUTTI_OK, "rank %d of %d cannot join: %s", rank, current->size,
                   error == NULL ? tutti_status_name(status) : error->text))
        work(comm, 0, NULL);
    tutti_leave(comm);
}

/* ---- Processes ------------------------------------------------------------------------------------------------- */

/* `each` ranks, as threads of this process, which is number `process` of the job; NULL: of no job. */
static void run_threads(const char *job, int process, int each)
{
    unsetenv("TUTTI_TUNING");
    world_be(job, process, current->size, each);
    world_set("TUTTI_DIRECT", current->direct);
    world_set("TUTTI_ATTACH", current->attach);
    if (current->provider != NULL) setenv("TUTTI_DEVICE_PROVIDER", current->provider, 1);
    world_set("TUTTI_DEADLINE_MS", deadline_ms());
    world_set("TUTTI_ARENA_BYTES", arena_bytes());
    int result = tutti_main(work, 0, NULL);
    CHECK_THAT(result == 0 || current->faulty, "tutti_main of %d threads gave %d", current->size, result);
}

static int simulated_rank(tutti_comm *comm, void *context)
{
    (void)context;
    return work(comm, 0, NULL);
}

static void run_simulated(void)
{
    tutti_options options;
    tutti_sim_setup setup;
    tutti_sim_report report = {.struct_size = sizeof report};
    tutti_error error;
    tutti_options_init(&options, NULL);
    options.direct = current->direct;
    options.deadline_ms = deadline_ms();
    options.arena_bytes = arena_bytes();
    tutti_sim_setup_init(&setup);
    setup.options = &options;
    setup.hosts = current->hosts == 0 ? 1 : current->hosts;
    setup.ranks_per_host = current->size / setup.hosts;
    setup.seed = current->seed;
    setup.noise_ns = 2000; /* larger than what a step takes: ranks do not go in step */
    setup.stack_bytes = 1 << 20;
    tutti_status status = tutti_sim_run(&setup, simulated_rank, NULL, &report, &error);
    CHECK_THAT(status == TUTTI_OK && (report.result == 0 || current->faulty),
               "tutti_sim_run of %d ranks gave %s, %d: %s", current->size, tutti_status_name(status), report.result,
               error.text);
}

static unsigned limit_s(const struct conf_world *world)
{
    return world->limit_s != 0 ? world->limit_s : LIMIT_S;
}

static pid_t start(const struct conf_world *world, const char *job, int rank)
{
    pid_t pid = world_fork(limit_s(world));
    if (pid != 0) return pid;
    setenv("TUTTI_FENCE_MS", "5s", 0); /* nobody is to be killed who waits long for its turn on a loaded machine */
    if (world->own_hosts) world_set("NCCL_HOSTID", rank + 1);
    current = world;
    int before = world_holds().descriptors;
    if (world->ranks == WORLD_THREADS)
        run_threads(NULL, 0, world->size);
    else if (world->ranks == WORLD_PAIRS)
        run_threads(job, rank, world->size / world_process_count(world->ranks, world->size));
    else if (world->ranks == WORLD_SIMULATED)
        run_simulated();
    else if (world->ranks == WORLD_JOINED)
        world_run_joined(job, world->size, join_and_work);
    else
        join_and_work(job, rank);
    int left = world_holds().descriptors - before;
    CHECK_THAT(left == 0 || world->leaks, "process %d of %d %s has %d descriptors more than before it joined", rank,
               world->size, world_ranks_name(world->ranks), left);
    exit(0); /* not _exit: a leak checker wants its say */
}

/* What the test sees while it waits. */
static void finish(void *context, int process, int status)
{
    const struct conf_world *world = context;
    char end[32];
    if ((world->ends >> process & 1) != 0) return;
    bool right = world->killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                               : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    CHECK_THAT(right, "%d %s, direct=%d, attach=%d: process of rank %d: %s", world->size,
               world_ranks_name(world->ranks), world->direct, world->attach, process, world_end_text(status, end));
}

static void hangs(void *context, int process)
{
    const struct conf_world *world = context;
    CHECK_THAT(false, "%d %s: the process of rank %d does not end", world->size, world_ranks_name(world->ranks),
               process);
}

void conf_world_run(const struct conf_world *world)
{
    enum { SPARE_S = 20 }; /* the alarms are to come first */
    static int worlds;
    struct world_process processes[WORLD_MOST];
    struct world_watch watch = {.limit_ms = (limit_s(world) + SPARE_S) * INT64_C(1000),
                                .context = (void *)(uintptr_t)world,
                                .ended = finish,
                                .hangs = hangs};
    pid_t pids[WORLD_MOST];
    char job[64];
    int count = world_process_count(world->ranks, world->size);
    if (SANITIZED_THREADS && world->ranks == WORLD_JOINED) return;
    snprintf(job, sizeof job, "conformance-%d-%d", (int)getpid(), worlds++);
    atomic_store(&conf_totals->arrivals, 0);
    for (int i = 0; i < count; i++) {
        processes[i].pid = pids[i] = start(world, job, i);
        CHECK_THAT(pids[i] > 0, "%d %s: a process was not started", world->size, world_ranks_name(world->ranks));
    }
    if (world->meanwhile != NULL) world->meanwhile(world, pids);
    world_await(processes, count, &watch);
}
