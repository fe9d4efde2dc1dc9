/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan
 *
 * Simulated worlds: the seed and the run, a planted mistake that some seeds find and find again, deadlines, stalls and
 * deaths in simulated time, sizes without data, and memory that runs out.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "collective/engine/engine.h"
#include "collective/peers/net.h"
#include "ranks.h"
#include "sim_setup.h"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 3000, RANKS = 5 };

static tutti_sim_report run_world(const tutti_sim_setup *setup, tutti_sim_work *work, void *context)
{
    tutti_sim_report report = {.struct_size = sizeof report, .result = -1};
    tutti_error error;
    tutti_status status = tutti_sim_run(setup, work, context, &report, &error);
    CHECK(status == TUTTI_OK);
    if (status != TUTTI_OK) printf("%s\n", error.text);
    return report;
}

/* ---- Comms that a rank never frees ------------------------------------------------------------------------------- */

static int keeping_work(tutti_comm *world, void *context)
{
    int32_t one = 1, all = 0;
    tutti_comm *made = NULL;
    (void)context;
    if (tutti_comm_split(world, tutti_rank(world) % 2, 0, &made) != TUTTI_OK) return 1;
    if (tutti_all_reduce(made, &one, &all, 1, TUTTI_I32, TUTTI_SUM) != TUTTI_OK) return 1;
    return all != tutti_size(made);
}

/* In a process that ends with what is lost. */
static void test_kept(int hosts)
{
    tutti_sim_setup setup = sim_setup(RANKS, 1);
    setup.hosts = hosts;
    pid_t child = fork();
    if (child == 0) _exit(run_world(&setup, keeping_work, NULL).result);
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* ---- Errors of another comm ------------------------------------------------------------------------------------- */

/* All ranks are one thread: each has to find its own error. */
static int failing_work(tutti_comm *world, void *context)
{
    int32_t x = 0;
    char text[1024] = "", words[64];
    tutti_comm *made = NULL;
    (void)context;
    if (tutti_comm_split(world, 0, 0, &made) != TUTTI_OK) return 1;
    if (tutti_broadcast(made, &x, &x, 1, TUTTI_I32, 100 + tutti_rank(world)) != TUTTI_ERR_RANK) return 2;
    if (tutti_barrier(world) != TUTTI_OK || tutti_comm_error(world) != NULL) return 3;
    FILE *memory = fmemopen(text, sizeof text, "w");
    int found = tutti_explain(world, memory);
    fclose(memory);
    snprintf(words, sizeof words, "root %d is not", 100 + tutti_rank(world));
    tutti_leave(made);
    return found == 1 && strstr(text, words) != NULL ? 0 : 4;
}

static void test_failing(int hosts)
{
    tutti_sim_setup setup = sim_setup(RANKS, 1);
    setup.hosts = hosts;
    CHECK(run_world(&setup, failing_work, NULL).result == 0);
}

/* ---- One has left ------------------------------------------------------------------------------------------------ */

/* Rank 1 waits in a barrier for rank 0, which waits for any message; and the others never come. */
static int left_work(tutti_comm *world, void *context)
{
    int32_t x;
    int rank = tutti_rank(world);
    tutti_status status = TUTTI_ERR_MISMATCH;
    if (rank == 0) status = tutti_recv(world, &x, 1, TUTTI_I32, TUTTI_ANY_SOURCE, 0, NULL);
    if (rank == 1) status = tutti_barrier(world);
    if (rank < 2 && strstr(tutti_comm_error(world)->text, "rank 1 called barrier") == NULL) status = TUTTI_OK;
    (void)context;
    return status != TUTTI_ERR_MISMATCH;
}

static void test_left(int hosts)
{
    tutti_sim_setup setup = sim_setup(hosts == 1 ? 3 : 1, 1);
    setup.hosts = hosts;
    tutti_sim_report report = run_world(&setup, left_work, NULL);
    CHECK(report.result == 0);
    CHECK(report.time_ns < INT64_C(1000000000));
}

/* Rank 1 has freed the comm by the time that rank 0's data are on their way to it: they are read until they have left. */
enum { SLOW_BYTES = 50000, SLOW_BYTES_PER_S = 1000000 };

static int sending_work(tutti_comm *world, void *context)
{
    tutti_comm *made = NULL;
    char *in = calloc(1, SLOW_BYTES), *out = calloc(2, SLOW_BYTES);
    (void)context;
    bool fine = tutti_comm_duplicate(world, &made) == TUTTI_OK;
    int64_t began_ns = tti_now_ns();
    if (tutti_rank(world) == 0) {
        fine = tutti_all_gather(made, in, out, SLOW_BYTES, TUTTI_U8) == TUTTI_ERR_MISMATCH && fine;
        fine = tti_now_ns() - began_ns >= SLOW_BYTES * INT64_C(1000000000) / SLOW_BYTES_PER_S && fine;
    }
    free(in);
    free(out);
    fine = tutti_comm_free(made) == TUTTI_OK && fine;
    return tutti_barrier(world) != TUTTI_OK || !fine;
}

static void test_left_while_sending(void)
{
    tutti_sim_setup setup = sim_setup(1, 1);
    setup.hosts = 2;
    setup.link_bytes_per_s = SLOW_BYTES_PER_S;
    CHECK(run_world(&setup, sending_work, NULL).result == 0);
}

/* ---- One seed, one run ------------------------------------------------------------------------------------------- */

/* Collectives of several kinds, and messages around the ring. Returns whether all came out right. */
static int mixed_work(tutti_comm *world, void *context)
{
    int rank = tutti_rank(world), size = tutti_size(world), wrong = 0;
    int32_t *x = malloc(COUNT * sizeof *x), *y = tutti_alloc(world, COUNT * sizeof *y);
    (void)context;
    for (int round = 0; round < 4 && x != NULL && y != NULL && wrong == 0; round++) {
        size_t count = round % 2 == 0 ? 3 : COUNT;
        for (size_t i = 0; i < count; i++) x[i] = rank + (int)i;
        wrong |= tutti_all_reduce(world, x, y, count, TUTTI_I32, TUTTI_SUM) != TUTTI_OK;
        for (size_t i = 0; i < count; i++) wrong |= y[i] != size * (size - 1) / 2 + size * (int)i;
        wrong |= tutti_sendrecv(world, x, count, (rank + 1) % size, round, y, count, (rank + size - 1) % size, round,
                                TUTTI_I32, NULL) != TUTTI_OK;
        for (size_t i = 0; i < count; i++) wrong |= y[i] != (rank + size - 1) % size + (int)i;
        wrong |= tutti_broadcast(world, x, x, count, TUTTI_I32, round % size) != TUTTI_OK;
        for (size_t i = 0; i < count; i++) wrong |= x[i] != round % size + (int)i;
        wrong |= tutti_barrier(world) != TUTTI_OK;
    }
    wrong |= x == NULL || y == NULL;
    free(x);
    tutti_free(world, y);
    return wrong;
}

static void test_seeds(void)
{
    uint64_t traces[8];
    for (uint64_t seed = 0; seed < 8; seed++) {
        tutti_sim_setup setup = sim_setup(RANKS, seed);
        setup.noise_ns = seed % 2 == 0 ? 0 : 500;
        tutti_sim_report one = run_world(&setup, mixed_work, NULL), again = run_world(&setup, mixed_work, NULL);
        CHECK(one.result == 0 && again.result == 0);
        CHECK(one.trace == again.trace && one.time_ns == again.time_ns && one.events == again.events);
        traces[seed] = one.trace;
        for (uint64_t before = 0; before < seed; before++) CHECK(traces[before] != traces[seed]);
    }
}

/* ---- Ops --------------------------------------------------------------------------------------------------------- */

enum { OPS = 12, OP_COUNT = 20000 };

/* Several in flight, some of which nobody waits for while time passes: the service task takes them forward. */
static int ops_work(tutti_comm *world, void *context)
{
    int rank = tutti_rank(world), size = tutti_size(world), wrong = 0;
    int32_t *x = calloc(OPS * OP_COUNT, sizeof *x);
    tutti_op ops[OPS];
    (void)context;
    for (int k = 0; k < OPS; k++) {
        size_t count = k % 3 == 0 ? 2 : OP_COUNT;
        for (size_t i = 0; i < count; i++) x[k * OP_COUNT + (int)i] = rank + k;
        wrong |= tutti_all_reduce_start(world, x + k * OP_COUNT, x + k * OP_COUNT, count, TUTTI_I32, TUTTI_SUM,
                                        &ops[k]) != TUTTI_OK;
    }
    tutti_spend_ns(100 * MS);
    for (int k = OPS / 2; k < OPS; k++) wrong |= tutti_test(ops[k]) != TUTTI_OK;
    for (int k = 0; k < OPS / 2; k++) wrong |= tutti_wait(ops[k]) != TUTTI_OK;
    for (int k = 0; k < OPS; k++)
        wrong |= x[k * OP_COUNT + 1] != size * (size - 1) / 2 + size * k; /* both kinds have this one */
    wrong |= tutti_barrier(world) != TUTTI_OK;
    free(x);
    return wrong;
}

static void test_ops(void)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        tutti_sim_setup setup = sim_setup(RANKS, seed);
        setup.noise_ns = seed % 2 == 0 ? 0 : 3000;
        tutti_sim_report one = run_world(&setup, ops_work, NULL), again = run_world(&setup, ops_work, NULL);
        CHECK(one.result == 0 && one.trace == again.trace);
    }
}

/* ---- Statistics -------------------------------------------------------------------------------------------------- */

/* Rank 0 comes late: the next one has waited, and for that one. */
static int late_work(tutti_comm *world, void *context)
{
    int64_t *waits = calloc((size_t)tutti_size(world), sizeof *waits);
    int wrong = tutti_barrier(world) != TUTTI_OK;
    (void)context;
    if (tutti_rank(world) == 0) tutti_spend_ns(10 * MS);
    wrong |= tutti_barrier(world) != TUTTI_OK;
    wrong |= tutti_comm_waits(world, waits) != TUTTI_OK;
    wrong |= tutti_rank(world) == 1 && waits[0] < 9 * MS;
    free(waits);
    return wrong;
}

/* Of few ranks, and of so many that times are kept only for those that were waited for. */
static void test_waits(int ranks)
{
    tutti_sim_setup setup = sim_setup(ranks, 1);
    CHECK(run_world(&setup, late_work, NULL).result == 0);
}

/* ---- A planted mistake ------------------------------------------------------------------------------------------- */

/* Takes the first wait out of the one plan that the comm keeps. */
static bool forget_a_wait(tutti_comm *comm)
{
    for (int i = 0; i < TTI_KEPT_PLANS; i++) {
        struct tti_kept_plan *kept = comm->engine->plans.kept[i];
        struct tti_plan *plan = kept == NULL ? NULL : &kept->plan;
        for (size_t step = 0; plan != NULL && step < plan->count; step++) {
            if (plan->steps[step].kind != TTI_STEP_WAIT) continue;
            memmove(&plan->steps[step], &plan->steps[step + 1], (plan->count - step - 1) * sizeof *plan->steps);
            plan->count--;
            return true;
        }
    }
    return false;
}

static int planted_work(tutti_comm *world, void *context)
{
    const bool *plant = context;
    int rank = tutti_rank(world), size = tutti_size(world), wrong = 0;
    int32_t *x = calloc(COUNT, sizeof *x), *y = calloc(COUNT, sizeof *y);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) x[i] = (round + 1) * (rank + i + 1);
        if (round == 1 && rank == 2 && *plant) CHECK(forget_a_wait(world));
        CHECK(tutti_all_reduce(world, x, y, COUNT, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
        for (int i = 0; i < COUNT; i++) wrong |= y[i] != (round + 1) * (size * (size + 1) / 2 + size * i);
    }
    free(x);
    free(y);
    return wrong;
}

static void test_planted(void)
{
    tutti_options options;
    tutti_options_init(&options, NULL);
    options.direct = 0; /* through bounce buffers: numbers are waited for */
    int found = 0, missed = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        tutti_sim_setup setup = sim_setup(RANKS, seed);
        setup.options = &options;
        setup.noise_ns = 10000;
        bool plant = false;
        CHECK(run_world(&setup, planted_work, &plant).result == 0);
        plant = true;
        tutti_sim_report one = run_world(&setup, planted_work, &plant), again = run_world(&setup, planted_work, &plant);
        CHECK(one.result == again.result && one.trace == again.trace); /* found once, it is found again */
        found += one.result != 0;
        missed += one.result == 0;
    }
    printf("a missing wait is found by %d of 40 seeds\n", found);
    CHECK(found > 0 && missed > 0);
}

/* ---- Time that passes without anybody waiting for it --------------------------------------------------------------- */

struct outcome {
    tutti_status status[RANKS];
    int peer[RANKS];
    int64_t ended_ns[RANKS];
    int absent;
};

static int absent_work(tutti_comm *world, void *context)
{
    struct outcome *outcome = context;
    int rank = tutti_rank(world);
    int64_t start = tutti_clock_ns();
    if (rank == outcome->absent) tutti_spend_ns(INT64_C(7200000000000)); /* two hours */
    outcome->status[rank] = tutti_barrier(world);
    outcome->peer[rank] = tutti_comm_error(world) == NULL ? -1 : tutti_comm_error(world)->peer;
    outcome->ended_ns[rank] = tutti_clock_ns() - start;
    return 0;
}

static int reports;
static void count_reports(void *context, tutti_log_level level, const char *line)
{
    (void)context;
    if (level == TUTTI_WARN && strstr(line, "has waited 30.0 s in #1 barrier at ") != NULL &&
        strstr(line, " for rank 3; "))
        reports++;
}

static void test_deadline(int hosts)
{
    struct outcome outcome = {.absent = 3};
    tutti_sim_setup setup = sim_setup(RANKS / hosts, 1);
    setup.hosts = hosts;
    reports = 0;
    int64_t start = tti_now_ns();
    tutti_log_to(count_reports, NULL);
    tutti_sim_report report = run_world(&setup, absent_work, &outcome);
    tutti_log_to(NULL, NULL);
    CHECK(tti_now_ns() - start < 600000 * MS); /* of real time, for two hours */
    CHECK(report.time_ns >= INT64_C(7200000000000) && report.time_ns < INT64_C(7201000000000));
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank == outcome.absent) continue;
        CHECK(outcome.status[rank] == TUTTI_ERR_TIMEOUT && (hosts > 1 || outcome.peer[rank] == 3));
        CHECK(outcome.ended_ns[rank] >= 1800000 * MS && outcome.ended_ns[rank] <= 1800000 * MS + 60 * MS);
    }
    CHECK(outcome.status[3] == TUTTI_ERR_TIMEOUT || outcome.status[3] == TUTTI_ERR_BROKEN);
    CHECK(hosts > 1 ? reports >= 1 : reports == RANKS - 1); /* between hosts some wait for those who wait */
}

/* Rank 1 has said that it waits for rank 2, and is not heard of again, as one that was stopped. */
static int silent_work(tutti_comm *world, void *context)
{
    const struct tti_wait_record record = {.number = 1, .rank = 1, .awaited = 2, .doing = TTI_WAITS, .what = "recv"};
    const struct tti_frame_head waits = {.kind = TTI_FRAME_WAITS, .value = 1, .bytes = sizeof record};
    int32_t x = 0;
    int rank = tutti_rank(world);
    (void)context;
    if (rank == 1) {
        tti_net_lock(world->lanes->net);
        bool said = tti_lane_say(world->lanes, 0, waits, &record);
        tti_net_unlock(world->lanes->net);
        if (!said) return 1;
    }
    if (rank == 0)
        return tutti_broadcast(tutti_within(world, 5000), &x, &x, 1, TUTTI_I32, 1) != TUTTI_ERR_TIMEOUT ||
               tutti_comm_error(world)->peer != 1;
    tutti_spend_ns(INT64_C(10000000000));
    return 0;
}

static void test_silent(void)
{
    tutti_sim_setup setup = sim_setup(1, 1);
    setup.hosts = 3;
    CHECK(run_world(&setup, silent_work, NULL).result == 0);
}

/* ---- Deaths ------------------------------------------------------------------------------------------------------ */

/* Some of its ops are in flight when a rank dies: none of them ends in order, and nothing waits for it. */
static int ops_until_lost_work(tutti_comm *world, void *context)
{
    struct outcome *outcome = context;
    int rank = tutti_rank(world);
    int32_t *x = tutti_alloc(world, OPS * COUNT * sizeof *x);
    tutti_status status = TUTTI_OK;
    while (status == TUTTI_OK) {
        tutti_op ops[OPS];
        for (int k = 0; k < OPS; k++)
            if (tutti_all_reduce_start(world, x + k * COUNT, x + k * COUNT, COUNT, TUTTI_I32, TUTTI_MAX, &ops[k]) !=
                TUTTI_OK)
                ops[k].id = 0;
        tutti_spend_ns(10000);
        for (int k = 0; k < OPS; k++) {
            tutti_status one = ops[k].id == 0 ? TUTTI_ERR_BROKEN : tutti_wait(ops[k]);
            if (status == TUTTI_OK) status = one;
        }
    }
    outcome->status[rank] = status;
    outcome->peer[rank] = rank;
    outcome->ended_ns[rank] = tutti_clock_ns();
    return 0;
}

static int until_lost_work(tutti_comm *world, void *context)
{
    struct outcome *outcome = context;
    int rank = tutti_rank(world);
    int32_t x[COUNT], *y = tutti_alloc(world, sizeof x);
    tutti_status status = TUTTI_OK;
    while (status == TUTTI_OK) {
        for (int i = 0; i < COUNT; i++) x[i] = rank;
        status = tutti_all_reduce(world, x, y, COUNT, TUTTI_I32, TUTTI_MAX);
        CHECK(status != TUTTI_OK || y[COUNT - 1] == RANKS - 1);
    }
    outcome->status[rank] = status;
    outcome->peer[rank] = tutti_comm_error(world)->peer;
    outcome->ended_ns[rank] = tutti_clock_ns();
    return 0;
}

static void test_deaths(int hosts)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct outcome outcome = {0};
        tutti_sim_death death = {.rank = (int)(seed % RANKS), .at_ns = 40000 + (int64_t)(seed * 3777)};
        tutti_sim_setup setup = sim_setup(RANKS / hosts, seed);
        setup.hosts = hosts;
        setup.noise_ns = 300;
        setup.deaths = &death;
        setup.death_count = 1;
        bool ops = seed >= 20;
        run_world(&setup, ops ? ops_until_lost_work : until_lost_work, &outcome);
        for (int rank = 0; rank < RANKS; rank++) {
            if (rank == death.rank) continue;
            CHECK(outcome.status[rank] == TUTTI_ERR_PEER_LOST && outcome.peer[rank] == (ops ? rank : death.rank));
            CHECK(outcome.ended_ns[rank] < INT64_C(1000000000) + death.at_ns + 100 * MS); /* time begins at 1 s */
        }
    }
}

/* With a comm of its own making, and the task that serves it, which nobody ends. */
static int made_until_lost_work(tutti_comm *world, void *context)
{
    tutti_comm *made = NULL;
    int32_t one = 1, all = 0;
    tutti_op op;
    (void)context;
    if (tutti_comm_duplicate(world, &made) != TUTTI_OK) return 1;
    if (tutti_all_reduce_start(made, &one, &all, 1, TUTTI_I32, TUTTI_SUM, &op) != TUTTI_OK) return 1;
    if (tutti_wait(op) != TUTTI_OK) return 1;
    tutti_spend_ns(10 * MS);
    int wrong = tutti_barrier(made) != TUTTI_ERR_PEER_LOST;
    tutti_comm_free(made);
    return wrong;
}

/* In a process that ends with what is lost. */
static void test_death_with_comms(int hosts)
{
    tutti_sim_death death = {.rank = 1, .at_ns = 5 * MS};
    tutti_sim_setup setup = sim_setup(RANKS, 1);
    setup.hosts = hosts;
    setup.deaths = &death;
    setup.death_count = 1;
    pid_t child = fork();
    if (child == 0) {
        long failed_before = check_failed();
        int result = run_world(&setup, made_until_lost_work, NULL).result;
        fflush(stdout);
        _exit(result != 0 || check_failed() > failed_before);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* Who has ended does not die any more. */
static int outlast_work(tutti_comm *world, void *context)
{
    int wrong = tutti_barrier(world) != TUTTI_OK;
    (void)context;
    if (tutti_rank(world) == 1) tutti_spend_ns(100 * MS);
    return wrong;
}

static void test_death_after_end(int hosts)
{
    tutti_sim_death death = {.rank = 0, .at_ns = 50 * MS};
    tutti_sim_setup setup = sim_setup(2 / hosts, 1);
    setup.hosts = hosts;
    setup.deaths = &death;
    setup.death_count = 1;
    CHECK(run_world(&setup, outlast_work, NULL).result == 0);
}

/* ---- Sizes only -------------------------------------------------------------------------------------------------- */

struct sized {
    size_t count;
    int32_t *buffer; /* of all ranks, */
    size_t stride;   /* of which each begins so much later: ranks whose data are moved have memory of their own */
    int64_t took_ns;
};

static int sized_work(tutti_comm *world, void *context)
{
    struct sized *sized = context;
    int64_t start = tutti_clock_ns();
    int32_t *own = sized->buffer + (size_t)tutti_rank(world) * sized->stride;
    int wrong = tutti_all_reduce(world, own, own, sized->count, TUTTI_I32, TUTTI_SUM) != TUTTI_OK;
    sized->took_ns = tutti_clock_ns() - start;
    return wrong;
}

/* The same time with and without the data, which stay as they were. */
static void test_sizes_only(void)
{
    for (size_t count = 1; count <= 1000000; count *= 100) {
        struct sized sized = {.count = count, .buffer = calloc(RANKS * count, sizeof(int32_t)), .stride = count};
        tutti_sim_setup setup = sim_setup(RANKS, 4);
        tutti_sim_report with = run_world(&setup, sized_work, &sized);
        sized.buffer[count - 1] = 5;
        setup.sizes_only = true;
        tutti_sim_report without = run_world(&setup, sized_work, &sized);
        CHECK(with.result == 0 && without.result == 0 && with.time_ns == without.time_ns);
        CHECK(with.trace == without.trace && sized.buffer[count - 1] == 5);
        free(sized.buffer);
    }
}

/* Many ranks, on one host and on many. */
static void test_many(int hosts)
{
    size_t count = hosts == 1 ? 1 << 20 : 1 << 10;
    struct sized sized = {.count = count, .buffer = calloc(count, sizeof(int32_t))};
    tutti_sim_setup setup = sim_setup((SANITIZED ? 64 : 1024) / hosts, 4);
    setup.hosts = hosts;
    setup.sizes_only = true;
    setup.stack_bytes = 0;
    tutti_sim_report report = run_world(&setup, sized_work, &sized);
    CHECK(report.result == 0);
    free(sized.buffer);
}

/* ---- Windows ----------------------------------------------------------------------------------------------------- */

enum { WINDOWS_COUNT = 7000003 }; /* of whose averages hosts take some 2 MiB at a time, in a reduce_scatter much less */

static bool is_average(const int8_t *y, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (y[i] != (int8_t)((first + i) % 61) + 6) return false;
    return true;
}

static int windows_work(tutti_comm *world, void *context)
{
    int rank = tutti_rank(world), size = tutti_size(world), wrong = 0;
    size_t count = WINDOWS_COUNT, block = count / (size_t)size;
    int8_t *x = malloc(count), *y = calloc(count, 1);
    (void)context;
    for (size_t i = 0; i < count; i++) x[i] = (int8_t)(i % 61 + (size_t)rank * 4);
    wrong |= tutti_all_reduce(world, x, y, count, TUTTI_I8, TUTTI_AVG) != TUTTI_OK || !is_average(y, 0, count);
    memset(y, 0, count);
    wrong |= tutti_reduce(world, x, y, count, TUTTI_I8, TUTTI_AVG, 2) != TUTTI_OK;
    wrong |= rank == 2 && !is_average(y, 0, count);
    wrong |= tutti_reduce_scatter(world, x, y, block, TUTTI_I8, TUTTI_AVG) != TUTTI_OK;
    wrong |= !is_average(y, (size_t)rank * block, block);
    wrong |= tutti_all_reduce(world, x, x, count, TUTTI_I8, TUTTI_AVG) != TUTTI_OK || !is_average(x, 0, count);
    free(x);
    free(y);
    return wrong;
}

/* Hosts that do the same window after window, with data. */
static void test_windows(void)
{
    tutti_sim_setup setup = sim_setup(2, 1);
    setup.hosts = 2;
    CHECK(run_world(&setup, windows_work, NULL).result == 0);
    setup.noise_ns = 300;
    CHECK(run_world(&setup, windows_work, NULL).result == 0);
}

/* ---- Memory that runs out ----------------------------------------------------------------------------------------- */

static void test_memory(void)
{
    int failures = 0;
    long allowed = 0;
    tutti_log_set_level(TUTTI_ERROR); /* ranks without memory leave others waiting */
    for (; allowed < 500; allowed++) {
        tutti_error error;
        tutti_sim_report report = {.struct_size = sizeof report};
        tutti_sim_setup setup = sim_setup(RANKS, 1);
        tti_alloc_fail_after(allowed);
        tutti_status status = tutti_sim_run(&setup, mixed_work, NULL, &report, &error);
        tti_alloc_fail_after(-1);
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_MEMORY || status == TUTTI_ERR_LIMIT);
        if (status == TUTTI_OK && report.result == 0) break;
        failures++;
    }
    CHECK(failures > RANKS && allowed < 500);
}

int main(void)
{
    test_seeds();
    test_failing(1);
    test_failing(2);
    test_left(1);
    test_left(3);
    test_left_while_sending();
    test_kept(1);
    test_kept(2);
    test_ops();
    test_waits(RANKS);
    test_waits(TTI_TABLE_DIRECT + 1);
    test_planted();
    test_deadline(1);
    test_deadline(RANKS);
    test_silent();
    test_deaths(1);
    test_deaths(RANKS);
    test_death_with_comms(1);
    test_death_with_comms(2);
    test_death_after_end(1);
    test_death_after_end(2);
    test_sizes_only();
    test_many(1);
    test_many(32);
    test_windows();
    test_memory();
    return check_end();
}
