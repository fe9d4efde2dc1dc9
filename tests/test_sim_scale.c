/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120
 *
 * Simulated worlds of thousands of ranks: that they end, what they agree on, and that memory grows no faster than their
 * number. Each runs in a process of its own, whose memory is known at its end.
 */
#include "check.h"
#include "sanitized.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tutti/experimental.h>
#include <tutti/tutti.h>
#include <unistd.h>

#define MIB (INT64_C(1) << 20)
#define CALL_NS INT64_C(10000000000)  /* when all ranks make their call, */
#define LEAVE_NS INT64_C(60000000000) /* and when they leave */

struct world {
    int hosts, each;
    size_t bytes; /* of an all_reduce */
    bool looks;   /* ends when the plans are known */
};

/* What a run came to. */
struct outcome {
    tutti_status status;
    int result;
    int64_t took_ns, peak_bytes;
    uint64_t plans, events;
};

struct run {
    const struct world *world;
    struct outcome outcome;
    char *buffer; /* of all ranks: data stay where they are */
};

static int rank_work(tutti_comm *comm, void *context)
{
    struct run *run = context;
    tutti_spend_ns(CALL_NS - tutti_clock_ns());
    size_t count = run->world->bytes / 4;
    int wrong = tutti_all_reduce(comm, run->buffer, run->buffer + run->world->bytes, count, TUTTI_F32, TUTTI_SUM) !=
                TUTTI_OK;
    int64_t took = tutti_clock_ns() - CALL_NS;
    if (took > run->outcome.took_ns) run->outcome.took_ns = took;
    tutti_spend_ns(LEAVE_NS - tutti_clock_ns());
    return wrong;
}

static bool inspect(void *context, uint64_t plans)
{
    struct run *run = context;
    run->outcome.plans = plans;
    return !run->world->looks;
}

static struct outcome simulate(const struct world *world)
{
    struct run run = {.world = world};
    struct rusage usage;
    tutti_sim_report report = {.struct_size = sizeof report, .result = -1};
    tutti_sim_setup setup;
    tutti_sim_setup_init(&setup);
    setup.hosts = world->hosts;
    setup.ranks_per_host = world->each;
    setup.sizes_only = true;
    setup.inspect = inspect;
    setup.inspect_ns = CALL_NS;
    run.buffer = mmap(NULL, 2 * world->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                      0);
    run.outcome.status = tutti_sim_run(&setup, rank_work, &run, &report, NULL);
    run.outcome.result = report.result;
    run.outcome.events = report.events;
    getrusage(RUSAGE_SELF, &usage);
    run.outcome.peak_bytes = usage.ru_maxrss * 1024;
    return run.outcome;
}

static struct outcome simulate_apart(struct world world)
{
    struct outcome *outcome = mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    outcome->status = TUTTI_ERR_SYSTEM;
    pid_t pid = fork();
    if (pid == 0) {
        *outcome = simulate(&world);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    struct outcome told = *outcome;
    munmap(outcome, sizeof *outcome);
    return told;
}

static void check_scale(size_t bytes, int64_t most_bytes)
{
    struct outcome many = simulate_apart((struct world){.hosts = 512, .each = 8, .bytes = bytes});
    struct outcome few = simulate_apart((struct world){.hosts = 128, .each = 8, .bytes = bytes});
    CHECK(many.status == TUTTI_OK && many.result == 0 && few.status == TUTTI_OK && few.result == 0);
    CHECK_THAT(SANITIZED || many.peak_bytes < most_bytes, "%lld MiB for 4,096 ranks",
               (long long)(many.peak_bytes / MIB));
    CHECK_THAT(many.peak_bytes < few.peak_bytes * 6, "%lld MiB for 4,096 ranks, %lld MiB for 1,024",
               (long long)(many.peak_bytes / MIB), (long long)(few.peak_bytes / MIB));
    CHECK_THAT(many.took_ns > few.took_ns && many.took_ns < 4 * few.took_ns, "%lld ns, %lld ns",
               (long long)many.took_ns, (long long)few.took_ns);
    printf("4,096 ranks, %zu bytes: %.3f ms, %llu events, %lld MiB\n", bytes, (double)many.took_ns / 1e6,
           (unsigned long long)many.events, (long long)(many.peak_bytes / MIB));
}

/* Equal for equal runs, and known before anything is sent. */
static void check_plans(void)
{
    struct world world = {.hosts = 16, .each = 4, .bytes = 1 << 20}, other = world;
    struct outcome whole = simulate_apart(world);
    world.looks = true;
    other.bytes += 4096;
    struct outcome again = simulate_apart(world), differs = simulate_apart(other);
    CHECK(whole.status == TUTTI_OK && whole.result == 0 && again.status == TUTTI_ERR_CANCELLED);
    CHECK(again.plans == whole.plans && whole.plans != 0 && differs.plans != whole.plans);
    CHECK(again.took_ns == 0 && whole.took_ns > 0);
}

int main(void)
{
    check_plans();
    check_scale(8, 200 * MIB);
    check_scale(1 << 20, 400 * MIB);
    return check_end();
}
