/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Simulated time: tasks, bells, events and the seed that orders them, without any comm.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/task.h"
#include "ranks.h"
#include <string.h>

enum { TASKS = 20, ROUNDS = 10 };

struct shared {
    int order[TASKS * ROUNDS];
    int count, task_count;
    tti_bell bell;
    int64_t woken_ns[TASKS];
    struct tti_task tasks[TASKS];
    struct shared_task {
        struct shared *shared;
        int number;
    } arguments[TASKS];
};

static void *start_all(struct shared *shared, void *(*body)(void *))
{
    tutti_error error;
    for (int i = 0; i < shared->task_count; i++) {
        shared->arguments[i] = (struct shared_task){shared, i};
        if (tti_task_start(&shared->tasks[i], body, &shared->arguments[i], &error) == TUTTI_OK) continue;
        shared->task_count = i; /* out of memory */
    }
    return shared;
}

static void join_all(struct shared *shared)
{
    for (int i = 0; i < shared->task_count; i++) tti_task_join(&shared->tasks[i]);
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

static void *take_turns(void *argument)
{
    struct shared_task *task = argument;
    for (int i = 0; i < ROUNDS; i++) {
        task->shared->order[task->shared->count++] = task->number;
        tti_sim_sleep(0);
    }
    return NULL;
}

static void *turns_body(void *argument)
{
    join_all(start_all(argument, take_turns));
    return NULL;
}

static struct tti_sim_totals run_turns(struct shared *shared, uint64_t seed)
{
    struct tti_sim_setup setup = {.seed = seed};
    struct tti_sim_totals totals = {0};
    tutti_error error = {0};
    *shared = (struct shared){.task_count = TASKS};
    CHECK(tti_sim_run(&setup, turns_body, shared, &totals, &error) == TUTTI_OK);
    CHECK(shared->count == TASKS * ROUNDS && totals.time_ns == 0);
    return totals;
}

static void test_seed_orders(void)
{
    static struct shared one, again, other;
    struct tti_sim_totals first = run_turns(&one, 7), same = run_turns(&again, 7);
    CHECK(first.trace == same.trace && first.events == same.events);
    CHECK(memcmp(one.order, again.order, sizeof one.order) == 0);
    int different = 0;
    for (uint64_t seed = 100; seed < 110; seed++) {
        struct tti_sim_totals totals = run_turns(&other, seed);
        if (totals.trace != first.trace && memcmp(one.order, other.order, sizeof one.order) != 0) different++;
    }
    CHECK(different == 10);
}

/* ---- Time and bells ---------------------------------------------------------------------------------------------- */

static void *sleep_on_bell(void *argument)
{
    struct shared_task *task = argument;
    struct shared *shared = task->shared;
    tti_bell_sleep(&shared->bell, 0, task->number == 0 ? 50 : INT64_C(3600000000000), true);
    shared->woken_ns[task->number] = tti_now_ns();
    return NULL;
}

static void *bells_body(void *argument)
{
    struct shared *shared = start_all(argument, sleep_on_bell);
    int64_t start = tti_now_ns();
    tti_sim_sleep(INT64_C(1800000000000)); /* half an hour */
    tti_bell_ring(&shared->bell, true);
    tti_bell_sleep(&shared->bell, 0, INT64_C(1000000000), true); /* it reads 1 by now: returns at once */
    CHECK(tti_now_ns() - start == INT64_C(1800000000000));
    join_all(shared);
    CHECK(shared->woken_ns[0] == start + 50);
    for (int i = 1; i < TASKS; i++) CHECK(shared->woken_ns[i] == start + INT64_C(1800000000000) + 700);
    return NULL;
}

static void test_bells(void)
{
    static struct shared shared = {.task_count = TASKS};
    struct tti_sim_setup setup = {.seed = 1, .local_latency_ns = 700};
    struct tti_sim_totals totals = {0};
    tutti_error error = {0};
    int64_t start = tti_now_ns();
    CHECK(tti_sim_run(&setup, bells_body, &shared, &totals, &error) == TUTTI_OK);
    CHECK(totals.time_ns == INT64_C(1800000000700));
    CHECK(tti_now_ns() - start < INT64_C(600000000000)); /* this is the real clock again */
}

static void *charges_body(void *argument)
{
    bool *moved = argument;
    *moved = tti_sim_move(1000);
    tti_sim_moved();
    return NULL;
}

static void test_charges(void)
{
    struct tti_sim_setup setup = {.local_ns_per_byte = 0.25, .overhead_ns = 30};
    struct tti_sim_totals totals = {0};
    tutti_error error = {0};
    bool moved = false;
    CHECK(tti_sim_run(&setup, charges_body, &moved, &totals, &error) == TUTTI_OK);
    CHECK(moved && totals.time_ns == 280);
    setup.sizes_only = true;
    CHECK(tti_sim_run(&setup, charges_body, &moved, &totals, &error) == TUTTI_OK);
    CHECK(!moved && totals.time_ns == 280);
    int64_t least = INT64_MAX, most = 0;
    setup.noise_ns = 100;
    for (setup.seed = 0; setup.seed < 50; setup.seed++) {
        CHECK(tti_sim_run(&setup, charges_body, &moved, &totals, &error) == TUTTI_OK);
        if (totals.time_ns < least) least = totals.time_ns;
        if (totals.time_ns > most) most = totals.time_ns;
    }
    CHECK(least >= 280 && most <= 380 && least < most);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

enum { EVENTS = 500 };
struct numbered {
    struct tti_event event;
    int number;
};
static struct numbered numbered[EVENTS];
static int fired[EVENTS], fired_count;

static void note(struct tti_event *event)
{
    CHECK(tti_sim_now_ns() == event->time_ns);
    fired[fired_count++] = ((struct numbered *)event)->number;
}

static void *events_body(void *argument)
{
    (void)argument;
    int64_t start = tti_now_ns();
    for (int i = 0; i < EVENTS; i++) {
        numbered[i] = (struct numbered){.event = {.fire = note}, .number = i};
        tti_sim_at(&numbered[i].event, start + 1 + (i * 37) % 100);
    }
    for (int i = 0; i < EVENTS; i += 3) tti_sim_at(&numbered[i].event, start + 1 + (i * 11) % 100); /* moved */
    for (int i = 1; i < EVENTS; i += 3) tti_sim_cancel(&numbered[i].event);
    tti_sim_cancel(&numbered[1].event);
    tti_sim_sleep(200);
    return NULL;
}

static void test_events(void)
{
    struct tti_sim_setup setup = {.seed = 5};
    tutti_error error = {0};
    CHECK(tti_sim_run(&setup, events_body, NULL, NULL, &error) == TUTTI_OK);
    CHECK(fired_count == EVENTS - (EVENTS + 1) / 3);
    for (int i = 1; i < fired_count; i++) {
        const struct tti_event *before = &numbered[fired[i - 1]].event, *after = &numbered[fired[i]].event;
        CHECK(before->time_ns < after->time_ns || (before->time_ns == after->time_ns && before->order < after->order));
        CHECK(fired[i] % 3 != 1);
    }
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void *sleep_long(void *argument)
{
    struct shared_task *task = argument;
    tti_bell_sleep(&task->shared->bell, 0, INT64_MAX / 4, true);
    task->shared->count++;
    return NULL;
}

static void *kill_body(void *argument)
{
    struct shared *shared = start_all(argument, sleep_long);
    tti_sim_sleep(10);
    for (int i = 0; i < TASKS; i++) tti_sim_task_lead(shared->tasks[i].simulated);
    for (int i = 0; i < TASKS; i += 2) tti_sim_task_kill(shared->tasks[i].simulated);
    tti_bell_ring(&shared->bell, true);
    tti_sim_sleep(10);
    tti_sim_task_kill(shared->tasks[1].simulated); /* has ended already */
    join_all(shared);
    return NULL;
}

static void test_kill(void)
{
    static struct shared shared = {.task_count = TASKS};
    struct tti_sim_setup setup = {.seed = 3};
    struct tti_sim_totals totals = {0};
    tutti_error error = {0};
    CHECK(tti_sim_run(&setup, kill_body, &shared, &totals, &error) == TUTTI_OK);
    CHECK(shared.count == TASKS / 2 && totals.time_ns == 20);
}

static void *join_next(void *argument)
{
    struct shared_task *task = argument;
    tti_sim_sleep(1000);
    tti_task_join(&task->shared->tasks[1 - task->number]);
    return NULL;
}

static void *standstill_body(void *argument)
{
    struct tti_sim_setup setup = {0};
    tutti_error error = {0};
    CHECK(tti_sim_run(&setup, standstill_body, NULL, NULL, &error) == TUTTI_ERR_ARGUMENT); /* inside of one */
    join_all(start_all(argument, join_next));
    return NULL;
}

static void test_standstill(void)
{
    static struct shared shared = {.task_count = 2};
    struct tti_sim_setup setup = {.seed = 3};
    tutti_error error = {0};
    CHECK(tti_sim_run(&setup, standstill_body, &shared, NULL, &error) == TUTTI_ERR_TIMEOUT);
    CHECK(strstr(error.text, "0.000001 s: 3 tasks wait") != NULL);
}

static void *use_stack(void *argument)
{
    struct shared_task *task = argument;
    volatile char deep[90000];
    for (size_t i = 0; i < sizeof deep; i += 1000) deep[i] = (char)task->number;
    tti_sim_sleep(0);
    for (size_t i = 0; i < sizeof deep; i += 1000) CHECK(deep[i] == (char)task->number);
    double value = 1.5;
    tti_sim_sleep(0);
    CHECK(value * task->number == 1.5 * task->number);
    return NULL;
}

static void *stacks_body(void *argument)
{
    join_all(start_all(argument, use_stack));
    return NULL;
}

static void test_stacks(void)
{
    static struct shared shared = {.task_count = TASKS};
    struct tti_sim_setup setup = {.seed = 3, .stack_bytes = 1 << 18};
    tutti_error error = {0};
    CHECK(tti_sim_run(&setup, stacks_body, &shared, NULL, &error) == TUTTI_OK);
}

static void test_memory(void)
{
    static struct shared shared;
    struct tti_sim_setup setup = {.seed = 3};
    tutti_error error = {0};
    int failures = 0;
    for (long allowed = 0; allowed < 100; allowed++) {
        shared = (struct shared){.task_count = TASKS};
        tti_alloc_fail_after(allowed);
        tutti_status status = tti_sim_run(&setup, turns_body, &shared, NULL, &error);
        tti_alloc_fail_after(-1);
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_MEMORY);
        CHECK(status != TUTTI_OK || shared.count == shared.task_count * ROUNDS);
        if (status != TUTTI_OK || shared.task_count < TASKS) failures++;
    }
    CHECK(failures > TASKS && failures < 100);
}

int main(void)
{
    test_seed_orders();
    test_bells();
    test_charges();
    test_events();
    test_kill();
    test_standstill();
    test_stacks();
    test_memory();
    return check_end();
}
