/* SPDX-License-Identifier: Apache-2.0
 *
 * The job of one seed, and the harm that is done to it.
 */
#include "sim_job/sim_job.h"

#include "sim_job/sim_job_state.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEP_US = 500, QUIET_MS = 8000, LONGEST_MS = 120000, FAULTS_MOST = 5, KILL = 9 };

struct sim_job sim;

enum harm { HARM_RANK, HARM_RANKS, HARM_HOST, HARM_SILENCE, HARM_STOP };

struct fault {
    enum harm harm;
    int64_t at_ns;
    int victim;
    bool soon; /* as soon as somebody was started again since the one before, and a moment later */
    int64_t for_ns;
};

void blame(const char *format, ...)
{
    va_list arguments;
    if (sim.failed) return;
    sim.failed = true;
    int used = snprintf(sim.text, sizeof sim.text, "after %.3f s: ", (double)tti_sim_now_ns() / 1e9);
    va_start(arguments, format);
    vsnprintf(sim.text + used, sizeof sim.text - (size_t)used, format, arguments);
    va_end(arguments);
}

static int64_t up_to_ms(int64_t most_ms)
{
    return (int64_t)(tti_sim_random() % (uint64_t)(most_ms * MS));
}

/* A host that ends or is silent for long must have one that takes its ranks. */
static bool may_lose_host(void)
{
    return sim.lost_hosts < sim.spares;
}

static void harm_host(const struct fault *fault)
{
    struct sim_host *host = &sim.hosts[fault->victim % sim.host_count];
    if (host->gone || host->closed || sim.main.heal.hosts[host->number].lost || !may_lose_host()) return;
    sim.lost_hosts++;
    if (fault->harm == HARM_HOST) kill_host(host);
    if (fault->harm != HARM_SILENCE) return;
    sim.silences++;
    host->silent_until_ns = tti_sim_now_ns() + fault->for_ns;
}

static void do_harm(const struct fault *fault)
{
    struct process *process = process_of(fault->victim % sim.world);
    switch (fault->harm) {
    case HARM_RANKS:
        for (int rank = 0; rank < sim.world; rank++) {
            struct process *other = process_of(rank);
            if (other == NULL || tti_sim_random() % 2 == 0) continue;
            kill_process(other, KILL);
            sim.killed++;
        }
        break;
    case HARM_RANK:
        if (process == NULL) break;
        kill_process(process, KILL);
        sim.killed++;
        break;
    case HARM_STOP:
        if (process == NULL || process->ended) break;
        tti_sim_task_stop(process->task.simulated, tti_sim_now_ns() + fault->for_ns);
        sim.stops++;
        break;
    case HARM_HOST:
    case HARM_SILENCE: harm_host(fault); break;
    }
}

static void step_for(int64_t ns)
{
    for (int64_t until_ns = tti_sim_now_ns() + ns; tti_sim_now_ns() < until_ns && !sim.failed;) {
        launchers_step();
        tti_sim_sleep(STEP_US * 1000);
    }
}

/* Waits until the launcher has started somebody again. */
static void await_restart(int before)
{
    for (int64_t until_ns = tti_sim_now_ns() + 4000 * MS; sim.main.restarts == before && tti_sim_now_ns() < until_ns;)
        step_for(STEP_US * 1000);
}

static void *run_job(void *argument)
{
    struct fault fault;
    (void)argument;
    launchers_begin();
    step_for(300 * MS);
    for (int i = 0, count = 1 + (int)(tti_sim_random() % FAULTS_MOST); i < count && !sim.failed; i++) {
        int before = sim.main.restarts;
        fault = (struct fault){.harm = (enum harm)(tti_sim_random() % 5), .victim = (int)(tti_sim_random() % 64)};
        fault.soon = tti_sim_random() % 2 == 0;
        fault.for_ns = up_to_ms(fault.harm == HARM_STOP ? 3000 : 6000);
        do_harm(&fault);
        if (fault.soon) await_restart(before);
        step_for(up_to_ms(fault.soon ? 40 : 3000));
    }
    step_for(QUIET_MS * MS);
    sim.stop = true;
    int64_t until_ns = tti_sim_now_ns() + LONGEST_MS * MS;
    while (!all_have_ended() && tti_sim_now_ns() < until_ns && !sim.failed) step_for(10 * MS);
    if (!all_have_ended()) blame("the ranks have not ended; said last: %s", sim.last_said);
    return NULL;
}

static void choose(uint64_t seed)
{
    sim = (struct sim_job){.seed = seed};
    uint64_t random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    int nodes = 1 + (int)(random >> 33) % 3;
    sim.slots = 1 + (int)(random >> 40) % 3;
    sim.spares = (int)(random >> 50) % 3;
    if (nodes == 1 && sim.slots == 1) sim.slots = 2;
    sim.host_count = nodes + sim.spares;
    sim.world = nodes * sim.slots;
    for (int i = 0; i < sim.host_count; i++) snprintf(sim.address[i], sizeof sim.address[i], "127.0.0.%d", i + 1);
}

static bool run_here(uint64_t seed)
{
    const struct tti_sim_setup setup = {.seed = seed, .stack_bytes = 1 << 18, .limit_ms = 100000};
    tutti_error error = {0};
    choose(seed);
    (void)signal(SIGUSR1, SIG_IGN); /* by which ranks call a guard; this one looks by itself */
    tutti_log_set_level(TUTTI_QUIET);
    setenv("TUTTI_LOG", "quiet", 1);
    setenv("TUTTI_DEADLINE_MS", "5000", 1);
    setenv("TUTTI_JOIN_TIMEOUT_MS", "20000", 1);
    tutti_status status = tti_sim_run(&setup, run_job, NULL, NULL, &error);
    if (!sim.failed && status != TUTTI_OK) {
        sim.failed = true;
        snprintf(sim.text, sizeof sim.text, "%s", error.text);
    }
    if (!sim.failed)
        snprintf(
            sim.text, sizeof sim.text,
            "seed %llu: %d ranks on %d hosts and %d spare ones: %d killed, %d stopped, %d silences, %d hosts lost, %d "
            "restarts, %d rebuilds",
            (unsigned long long)seed, sim.world, sim.host_count - sim.spares, sim.spares, sim.killed, sim.stops,
            sim.silences, sim.lost_hosts, sim.main.restarts, sim.rebuilt);
    if (sim.failed) printf("seed %llu: %s\n", (unsigned long long)seed, sim.text);
    if (!sim.failed && getenv("VERBOSE") != NULL) printf("%s\n", sim.text);
    return !sim.failed;
}

bool sim_job_run_seed(uint64_t seed)
{
    enum { LIMIT_S = 120 };
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(LIMIT_S);
        bool good = run_here(seed);
        fflush(stdout);
        _exit(good ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}
