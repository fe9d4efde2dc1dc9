/* SPDX-License-Identifier: Apache-2.0 */
#include "conformance_world.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/experimental.h>
#include <unistd.h>

enum { DEADLINE_MS = 60000, LIMIT_S = 400, SIZE_MOST = 64, ARENA_BYTES = 1 << 28 };

struct conf_totals *conf_totals;

void conf_begin(void)
{
    conf_totals = mmap(NULL, sizeof *conf_totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (conf_totals == MAP_FAILED) {
        perror("no shared memory to count in");
        exit(1);
    }
}

const char *conf_ranks_name(enum conf_ranks ranks)
{
    static const char *const names[] = {"threads", "processes", "joined threads", "threads of processes",
                                        "simulated ranks"};
    return names[ranks];
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

struct joined {
    pthread_t thread;
    char job[64];
    int rank;
};

static void *joined_rank(void *argument)
{
    struct joined *joined = argument;
    join_and_work(joined->job, joined->rank);
    return NULL;
}

/* ---- Processes ------------------------------------------------------------------------------------------------- */

static void set_number(const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    setenv(name, text, 1);
}

/* `each` ranks, as threads of this process, which is number `process` of the job; NULL: of no job. */
static void run_threads(const char *job, int process, int each)
{
    static const char *const foreign[] = {"TUTTI_JOB", "TUTTI_RANK", "TUTTI_SIZE", "TUTTI_TUNING"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) unsetenv(foreign[i]);
    if (job != NULL) {
        setenv("TUTTI_JOB", job, 1);
        set_number("TUTTI_RANK", process);
        set_number("TUTTI_SIZE", current->size / each);
    }
    set_number("TUTTI_RANKS", each);
    set_number("TUTTI_DIRECT", current->direct);
    set_number("TUTTI_ATTACH", current->attach);
    if (current->provider != NULL) setenv("TUTTI_DEVICE_PROVIDER", current->provider, 1);
    set_number("TUTTI_DEADLINE_MS", deadline_ms());
    set_number("TUTTI_ARENA_BYTES", arena_bytes());
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

static void run_joined(const char *job)
{
    struct joined ranks[SIZE_MOST];
    for (int rank = 0; rank < current->size; rank++) {
        ranks[rank].rank = rank;
        snprintf(ranks[rank].job, sizeof ranks[rank].job, "%s", job);
        if (pthread_create(&ranks[rank].thread, NULL, joined_rank, &ranks[rank]) != 0) abort();
    }
    for (int rank = 0; rank < current->size; rank++) pthread_join(ranks[rank].thread, NULL);
}

static int processes_of(const struct conf_world *world)
{
    if (world->ranks == CONF_PAIRS && world->size % 2 == 0) return world->size / 2;
    return world->ranks == CONF_PROCESSES || world->ranks == CONF_PAIRS ? world->size : 1;
}

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder != NULL && readdir(folder) != NULL) count++;
    if (folder != NULL) closedir(folder);
    return count;
}

static pid_t start(const struct conf_world *world, const char *job, int rank)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0) return pid;
    alarm(world->limit_s != 0 ? world->limit_s : LIMIT_S);
    setenv("TUTTI_FENCE_MS", "5s", 0); /* nobody is to be killed who waits long for its turn on a loaded machine */
    if (world->own_hosts) set_number("NCCL_HOSTID", rank + 1);
    current = world;
    int before = open_descriptors();
    if (world->ranks == CONF_THREADS)
        run_threads(NULL, 0, world->size);
    else if (world->ranks == CONF_PAIRS)
        run_threads(job, rank, world->size / processes_of(world));
    else if (world->ranks == CONF_SIMULATED)
        run_simulated();
    else if (world->ranks == CONF_JOINED)
        run_joined(job);
    else
        join_and_work(job, rank);
    int left = open_descriptors() - before;
    CHECK_THAT(left == 0 || world->leaks, "process %d of %d %s has %d descriptors more than before it joined", rank,
               world->size, conf_ranks_name(world->ranks), left);
    exit(0); /* not _exit: a leak checker wants its say */
}

static void finish(const struct conf_world *world, pid_t pid, int rank)
{
    int status = 0;
    bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
    if (ended && (world->ends >> rank & 1) != 0) return;
    if (ended && !world->killed && WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    if (ended && world->killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return;
    CHECK_THAT(false, "%d %s, direct=%d, attach=%d: process of rank %d: %s %d", world->size,
               conf_ranks_name(world->ranks), world->direct, world->attach, rank,
               pid < 0               ? "not started"
               : WIFSIGNALED(status) ? "signal"
                                     : "exit status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

void conf_world_run(const struct conf_world *world)
{
    static int worlds;
    pid_t pids[SIZE_MOST];
    char job[64];
    int processes = processes_of(world);
    if (SANITIZED_THREADS && world->ranks == CONF_JOINED) return;
    snprintf(job, sizeof job, "conformance-%d-%d", (int)getpid(), worlds++);
    atomic_store(&conf_totals->arrivals, 0);
    for (int rank = 0; rank < processes; rank++) pids[rank] = start(world, job, rank);
    if (world->meanwhile != NULL) world->meanwhile(world, pids);
    for (int rank = 0; rank < processes; rank++) finish(world, pids[rank], rank);
}
