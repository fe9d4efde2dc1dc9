/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sim.h"

#include "base/alloc.h"
#include "base/coroutine.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/sim_stack.h"
#include "base/status.h"
#include <errno.h>
#include <string.h>
#include <time.h>

enum {
    BELL_BUCKETS = 4096,  /* the size at first: a power of two */
    LOOK_EVENTS = 256,    /* events between checks of the processor time */
    POLL_MS = 50,         /* between checks of the memory */
    MESSAGES_PER_MS = 300 /* simulating is not faster than this */
};
#define START_NS INT64_C(1000000000) /* not 0, which means "not yet" in some places */
#define NOWHERE_LEAST ((size_t)64 << 20)
#define LEFT_BYTES ((size_t)1 << 30) /* memory that must be left to the system */
#define TASK_ORDER (UINT64_C(1) << 63)

_Thread_local struct tti_sim *tti_sim;

struct tti_sim_task {
    struct tti_event wake;
    struct tti_coroutine coroutine;
    char *stack;
    void *(*body)(void *argument);
    void *argument;
    bool ended;
    int64_t owed_ns; /* time for data that were moved before their time was over */
    struct tti_sim_task *joiner, *leader;
    tti_bell *bell; /* the bell on which it sleeps, or NULL */
    struct tti_sim_task *bell_next;
    struct tti_sim_task *older, *newer;  /* neighbours in the list of all tasks */
    int64_t stopped_until_ns, jumped_ns; /* the same for all tasks of a group */
    int depth;                           /* the number that tti_sim_depth returns */
    void *slot;                          /* the pointer that tti_sim_slot returns */
};

struct due {
    int64_t time_ns;
    uint64_t order;
    struct tti_event *event;
};

struct tti_sim {
    struct tti_sim_setup setup;
    int64_t now_ns;
    uint64_t random, order, trace, events, tasks_made;
    struct tti_coroutine scheduler;
    struct tti_sim_task *current;
    struct tti_sim_task *tasks;
    size_t task_count;
    struct due *heap; /* from place 1 on */
    size_t heap_count, heap_capacity;
    struct tti_sim_task **bells; /* sleeping tasks, hashed by their bell's address */
    size_t buckets, sleepers;
    struct tti_stacks stacks;
    bool out_of_memory;
    uint64_t messages;           /* messages that are expected; 0: not too many */
    int64_t began_ms, polled_ms; /* processor time */
    uint64_t noted;
    bool was_seen; /* the setup's `inspect` was called */
    char *nowhere;
    size_t nowhere_bytes;
};

/* ---- The generator --------------------------------------------------------------------------------------------- */

uint64_t tti_sim_random(void)
{
    return tti_stir(tti_sim->random += UINT64_C(0x9e3779b97f4a7c15));
}

static int64_t noise(struct tti_sim *sim)
{
    if (sim->setup.noise_ns <= 0) return 0;
    return (int64_t)(tti_sim_random() % (uint64_t)(sim->setup.noise_ns + 1));
}

/* ---- Events that are due, earliest first: a heap of four branches ------------------------------------------------ */

enum { BRANCHES = 4 };

static bool is_before(const struct due *a, const struct due *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

static void put(struct tti_sim *sim, size_t place, struct due due)
{
    sim->heap[place] = due;
    due.event->place = place;
}

static size_t parent_of(size_t place)
{
    return (place - 2) / BRANCHES + 1;
}

static void rise(struct tti_sim *sim, size_t place, struct due due)
{
    while (place > 1 && is_before(&due, &sim->heap[parent_of(place)])) {
        put(sim, place, sim->heap[parent_of(place)]);
        place = parent_of(place);
    }
    put(sim, place, due);
}

static void sink(struct tti_sim *sim, size_t place, struct due due)
{
    for (;;) {
        size_t first = (place - 1) * BRANCHES + 2, least = 0;
        for (size_t child = first; child < first + BRANCHES && child <= sim->heap_count; child++)
            if (least == 0 || is_before(&sim->heap[child], &sim->heap[least])) least = child;
        if (least == 0 || !is_before(&sim->heap[least], &due)) break;
        put(sim, place, sim->heap[least]);
        place = least;
    }
    put(sim, place, due);
}

static void settle(struct tti_sim *sim, size_t place, struct due due)
{
    if (place > 1 && is_before(&due, &sim->heap[parent_of(place)]))
        rise(sim, place, due);
    else
        sink(sim, place, due);
}

static bool grow_heap(struct tti_sim *sim)
{
    size_t capacity = sim->heap_capacity == 0 ? 1024 : sim->heap_capacity * 2;
    struct due *heap = tti_calloc(capacity + 1, sizeof *heap);
    if (heap == NULL) return false;
    if (sim->heap_count > 0) memcpy(heap, sim->heap, (sim->heap_count + 1) * sizeof *heap);
    tti_free(sim->heap);
    sim->heap = heap;
    sim->heap_capacity = capacity;
    return true;
}

/* Sets an event. Without memory for it the run cannot go on: it ends with an error, and the event does not happen. */
static void set(struct tti_event *event, int64_t time_ns, uint64_t order)
{
    struct tti_sim *sim = tti_sim;
    struct due due = {time_ns < sim->now_ns ? sim->now_ns : time_ns, order, event};
    event->time_ns = due.time_ns;
    event->order = order;
    if (event->place != 0) {
        settle(sim, event->place, due);
    } else if (sim->heap_count < sim->heap_capacity || grow_heap(sim)) {
        rise(sim, ++sim->heap_count, due);
    } else {
        sim->out_of_memory = true;
    }
}

void tti_sim_at(struct tti_event *event, int64_t time_ns)
{
    set(event, time_ns, ++tti_sim->order);
}

void tti_sim_cancel(struct tti_event *event)
{
    struct tti_sim *sim = tti_sim;
    size_t place = event->place;
    if (place == 0) return;
    event->place = 0;
    struct due last = sim->heap[sim->heap_count--];
    if (place <= sim->heap_count) settle(sim, place, last);
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* Switches from a task to the scheduler, until the task's wake fires. */
static void block(struct tti_sim *sim)
{
    struct tti_sim_task *task = sim->current;
    tti_stack_check(&sim->stacks, task->stack);
    tti_coroutine_switch(&task->coroutine, &sim->scheduler);
}

static void wake_at(struct tti_sim_task *task, int64_t time_ns)
{
    set(&task->wake, time_ns, TASK_ORDER | tti_sim_random() >> 1);
}

static void end_task(struct tti_sim_task *task)
{
    task->ended = true;
    if (task->joiner != NULL) wake_at(task->joiner, tti_sim->now_ns);
}

static void task_body(void *argument)
{
    struct tti_sim_task *task = argument;
    task->body(task->argument);
    end_task(task);
    tti_stack_check(&tti_sim->stacks, task->stack);
    tti_coroutine_finish(&task->coroutine, &tti_sim->scheduler);
}

static void free_task(struct tti_sim *sim, struct tti_sim_task *task)
{
    if (task->older != NULL) task->older->newer = task->newer;
    if (task->newer != NULL)
        task->newer->older = task->older;
    else
        sim->tasks = task->older;
    sim->task_count--;
    tti_coroutine_free(&task->coroutine);
    tti_stack_give(&sim->stacks, task->stack);
    tti_free(task);
}

static void resume(struct tti_event *event)
{
    struct tti_sim *sim = tti_sim;
    struct tti_sim_task *task = (struct tti_sim_task *)event; /* it is the first member */
    if (task->stopped_until_ns > sim->now_ns) {
        wake_at(task, task->stopped_until_ns);
        return;
    }
    sim->current = task;
    tti_coroutine_switch(&sim->scheduler, &task->coroutine);
    sim->current = NULL;
}

struct tti_sim_task *tti_sim_task_start(void *(*body)(void *argument), void *argument)
{
    struct tti_sim *sim = tti_sim;
    struct tti_sim_task *task = tti_calloc(1, sizeof *task);
    char *stack = task == NULL ? NULL : tti_stack_take(&sim->stacks);
    if (stack == NULL) {
        tti_free(task);
        return NULL;
    }
    task->stack = stack;
    task->body = body;
    task->argument = argument;
    task->leader = sim->current == NULL ? task : sim->current->leader;
    task->jumped_ns = sim->current == NULL ? 0 : sim->current->jumped_ns;
    task->wake.fire = resume;
    task->wake.id = ++sim->tasks_made;
    task->older = sim->tasks;
    if (sim->tasks != NULL) sim->tasks->newer = task;
    sim->tasks = task;
    sim->task_count++;
    tti_coroutine_make(&task->coroutine, stack, sim->stacks.bytes, task_body, task);
    wake_at(task, sim->now_ns);
    return task;
}

void tti_sim_task_join(struct tti_sim_task *task)
{
    struct tti_sim *sim = tti_sim;
    task->joiner = sim->current;
    while (!task->ended) block(sim);
    free_task(sim, task);
}

/* ---- Bells ------------------------------------------------------------------------------------------------------- */

static struct tti_sim_task **bucket_of(const struct tti_sim *sim, const tti_bell *bell)
{
    return &sim->bells[tti_stir((uint64_t)(uintptr_t)bell) & (sim->buckets - 1)];
}

/* Enlarges the table; without memory the chains grow instead. */
static void grow_bells(struct tti_sim *sim)
{
    size_t before = sim->buckets;
    struct tti_sim_task **old = sim->bells, **made = tti_calloc(before * 4, sizeof(struct tti_sim_task *));
    if (made == NULL) return;
    sim->bells = made;
    sim->buckets = before * 4;
    for (size_t i = 0; i < before; i++) {
        struct tti_sim_task *turned = NULL; /* turned around twice, a chain keeps its order */
        for (struct tti_sim_task *task = old[i], *next; task != NULL; task = next) {
            next = task->bell_next;
            task->bell_next = turned;
            turned = task;
        }
        for (struct tti_sim_task *task = turned, *next; task != NULL; task = next) {
            next = task->bell_next;
            struct tti_sim_task **bucket = bucket_of(sim, task->bell);
            task->bell_next = *bucket;
            *bucket = task;
        }
    }
    tti_free(old);
}

static void unhook(struct tti_sim *sim, struct tti_sim_task *task)
{
    if (task->bell == NULL) return;
    struct tti_sim_task **link = bucket_of(sim, task->bell);
    while (*link != task) link = &(*link)->bell_next;
    *link = task->bell_next;
    task->bell = NULL;
    sim->sleepers--;
}

void tti_sim_bell_sleep(tti_bell *bell, uint32_t seen, int64_t timeout_ns)
{
    struct tti_sim *sim = tti_sim;
    struct tti_sim_task *task = sim->current;
    if (atomic_load_explicit(bell, memory_order_relaxed) != seen) return;
    if (sim->sleepers++ > sim->buckets) grow_bells(sim);
    struct tti_sim_task **bucket = bucket_of(sim, bell);
    task->bell = bell;
    task->bell_next = *bucket;
    *bucket = task;
    wake_at(task, sim->now_ns + timeout_ns);
    block(sim);
    unhook(sim, task);
}

void tti_sim_bell_ring(tti_bell *bell, int64_t delay_ns)
{
    struct tti_sim *sim = tti_sim;
    atomic_fetch_add_explicit(bell, 1, memory_order_relaxed);
    for (struct tti_sim_task *task = *bucket_of(sim, bell), *next; task != NULL; task = next) {
        next = task->bell_next;
        if (task->bell != bell) continue;
        unhook(sim, task);
        int64_t due = sim->now_ns + delay_ns + noise(sim);
        if (due < task->wake.time_ns) wake_at(task, due);
    }
}

void tti_sim_task_lead(struct tti_sim_task *task)
{
    task->leader = task;
}

struct tti_sim_task *tti_sim_leader(void)
{
    return tti_sim->current == NULL ? NULL : tti_sim->current->leader;
}

void tti_sim_task_kill(struct tti_sim_task *leader)
{
    for (struct tti_sim_task *task = tti_sim->tasks; task != NULL; task = task->older) {
        if (task->leader != leader || task->ended) continue;
        unhook(tti_sim, task);
        tti_sim_cancel(&task->wake);
        task->ended = true;
    }
    for (struct tti_sim_task *task = tti_sim->tasks; task != NULL; task = task->older)
        if (task->leader == leader && task->joiner != NULL && !task->joiner->ended)
            wake_at(task->joiner, tti_sim->now_ns);
}

void tti_sim_task_stop(struct tti_sim_task *leader, int64_t until_ns)
{
    for (struct tti_sim_task *task = tti_sim->tasks; task != NULL; task = task->older)
        if (task->leader == leader && task->stopped_until_ns < until_ns) task->stopped_until_ns = until_ns;
}

void tti_sim_task_jump(struct tti_sim_task *leader, int64_t ns)
{
    for (struct tti_sim_task *task = tti_sim->tasks; task != NULL; task = task->older)
        if (task->leader == leader) task->jumped_ns += ns;
}

/* ---- Time -------------------------------------------------------------------------------------------------------- */

const struct tti_sim_setup *tti_sim_setup_of(void)
{
    return &tti_sim->setup;
}

const void *tti_sim_self(void)
{
    return tti_sim->current;
}

int *tti_sim_depth(void)
{
    return &tti_sim->current->depth;
}

void **tti_sim_slot(void)
{
    return &tti_sim->current->slot;
}

int64_t tti_sim_duration(double ns)
{
    if (!(ns > 0)) return 0;
    return ns < (double)TTI_SIM_LONGEST_NS ? (int64_t)ns : TTI_SIM_LONGEST_NS;
}

int64_t tti_sim_now_ns(void)
{
    return tti_sim->now_ns;
}

int64_t tti_sim_clock_ns(void)
{
    return tti_sim->now_ns + (tti_sim->current == NULL ? 0 : tti_sim->current->jumped_ns);
}

void tti_sim_sleep(int64_t ns)
{
    wake_at(tti_sim->current, tti_sim->now_ns + (ns < TTI_SIM_LATEST_NS ? ns : TTI_SIM_LATEST_NS));
    block(tti_sim);
}

void tti_sim_expect(uint64_t messages)
{
    struct tti_sim *sim = tti_sim;
    uint64_t most = (uint64_t)sim->setup.limit_ms * MESSAGES_PER_MS / sim->task_count;
    if (sim->setup.limit_ms > 0 && messages > most) sim->messages = messages * sim->task_count;
}

void *tti_sim_nowhere(size_t bytes)
{
    struct tti_sim *sim = tti_sim;
    if (!sim->setup.sizes_only) return NULL;
    if (bytes > sim->nowhere_bytes) {
        size_t more = bytes > NOWHERE_LEAST ? bytes * 2 : NOWHERE_LEAST;
        char *mapped = tti_stacks_map(&sim->stacks, more); /* smaller ones stay mapped, since tasks may use them */
        if (mapped == NULL) return NULL;
        sim->nowhere = mapped;
        sim->nowhere_bytes = more;
    }
    return sim->nowhere;
}

void tti_sim_note(uint64_t number)
{
    tti_sim->noted += tti_stir(number);
}

bool tti_sim_move(uint64_t bytes)
{
    struct tti_sim *sim = tti_sim;
    int64_t cost = tti_sim_duration((double)bytes * sim->setup.local_ns_per_byte + 0.5) + sim->setup.overhead_ns;
    struct tti_sim_task *task = sim->current;
    if (sim->setup.noise_ns > 0) {
        cost += noise(sim);
        task->owed_ns = (int64_t)(tti_sim_random() % (uint64_t)(cost + 1));
    }
    tti_sim_sleep(cost - task->owed_ns);
    return !sim->setup.sizes_only;
}

void tti_sim_moved(void)
{
    struct tti_sim_task *task = tti_sim->current;
    int64_t owed = task->owed_ns;
    if (owed == 0) return;
    task->owed_ns = 0;
    tti_sim_sleep(owed);
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

static void happen(struct tti_sim *sim)
{
    struct tti_event *event = sim->heap[1].event;
    sim->now_ns = event->time_ns;
    tti_sim_cancel(event);
    sim->events++;
    sim->trace = tti_stir(sim->trace + (uint64_t)sim->now_ns) ^ event->id;
    event->fire(event);
}

/* Returns processor time, not real time: how far a run comes must not depend on other work of the machine. */
static int64_t spent_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Ends a run that is too large before the machine runs out of time or memory. */
static tutti_status look_at_limits(struct tti_sim *sim, tutti_error *error)
{
    if (sim->messages > 0)
        return tti_error_set(error, TUTTI_ERR_LIMIT, 0,
                             "there would be %llu messages, which take %.0f s or more to simulate, not %g",
                             (unsigned long long)sim->messages, (double)sim->messages / MESSAGES_PER_MS / 1000 + 1,
                             (double)sim->setup.limit_ms / 1000);
    if (sim->heap[1].time_ns > TTI_SIM_LATEST_NS)
        return tti_error_set(error, TUTTI_ERR_LIMIT, 0,
                             "the next thing would happen after more than %.0f years of simulated time; are the rates "
                             "in bytes per second, and times in nanoseconds?",
                             (double)TTI_SIM_LATEST_NS / 1e9 / 86400 / 365);
    if (sim->events % LOOK_EVENTS != 0) return TUTTI_OK;
    int64_t now = spent_ms();
    if (sim->setup.limit_ms > 0 && now - sim->began_ms > sim->setup.limit_ms)
        return tti_error_set(
            error, TUTTI_ERR_LIMIT, 0,
            "the simulation took more than %lld ms of processor time; it had come to %.6f s of simulated time",
            (long long)sim->setup.limit_ms, (double)(sim->now_ns - START_NS) / 1e9);
    if (now - sim->polled_ms < POLL_MS) return TUTTI_OK;
    sim->polled_ms = now;
    return tti_memory_check(LEFT_BYTES, NULL, error);
}

/* Calls `inspect` before the first event after its time. */
static tutti_status show(struct tti_sim *sim, tutti_error *error)
{
    const struct tti_sim_setup *setup = &sim->setup;
    if (setup->inspect == NULL || sim->was_seen || sim->heap[1].time_ns <= setup->inspect_ns) return TUTTI_OK;
    sim->was_seen = true;
    if (setup->inspect(setup->inspect_context, sim->noted)) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_CANCELLED, 0, "the simulation was ended after %.6f s of simulated time",
                         (double)(sim->now_ns - START_NS) / 1e9);
}

/* Frees ended tasks: the first one, and those whose joiners were killed before they had joined them. */
static void free_ended(struct tti_sim *sim)
{
    for (struct tti_sim_task *task = sim->tasks, *older; task != NULL; task = older) {
        older = task->older;
        if (task->ended) free_task(sim, task);
    }
}

static tutti_status loop(struct tti_sim *sim, tutti_error *error)
{
    while (sim->task_count > 0 && !sim->out_of_memory && sim->heap_count > 0) {
        TTI_TRY(look_at_limits(sim, error));
        TTI_TRY(show(sim, error));
        happen(sim);
        /* the first task, which nobody joins */
        if (sim->task_count == 1 && sim->tasks->ended) free_task(sim, sim->tasks);
    }
    if (sim->heap_count == 0) free_ended(sim);
    if (sim->out_of_memory) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a simulation ran out");
    if (sim->task_count > 0)
        return tti_error_set(error, TUTTI_ERR_TIMEOUT, 0,
                             "the simulation stands still after %.6f s: %zu tasks wait, and nothing is on its way",
                             (double)(sim->now_ns - START_NS) / 1e9, sim->task_count);
    return TUTTI_OK;
}

static void clean_up(struct tti_sim *sim)
{
    while (sim->tasks != NULL) free_task(sim, sim->tasks);
    tti_stacks_free(&sim->stacks);
    tti_free(sim->bells);
    tti_free(sim->heap);
    tti_free(sim);
}

static struct tti_sim *make(const struct tti_sim_setup *setup)
{
    struct tti_sim *sim = tti_calloc(1, sizeof *sim);
    if (sim == NULL) return NULL;
    sim->setup = *setup;
    sim->now_ns = START_NS;
    sim->random = tti_stir(setup->seed);
    sim->began_ms = spent_ms();
    tti_stacks_init(&sim->stacks, setup->stack_bytes != 0 ? setup->stack_bytes : TTI_SIM_STACK_BYTES);
    sim->buckets = BELL_BUCKETS;
    sim->bells = tti_calloc(sim->buckets, sizeof(struct tti_sim_task *));
    if (sim->bells != NULL && grow_heap(sim)) return sim;
    clean_up(sim);
    return NULL;
}

tutti_status tti_sim_run(const struct tti_sim_setup *setup, void *(*body)(void *argument), void *argument,
                         struct tti_sim_totals *totals, tutti_error *error)
{
    if (tti_sim != NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a simulation cannot be started inside of one");
    struct tti_sim *sim = make(setup);
    if (sim == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a simulation ran out");
    tti_sim = sim;
    tutti_status status = tti_sim_task_start(body, argument) == NULL
                              ? tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a simulation ran out")
                              : loop(sim, error);
    if (totals != NULL)
        *totals = (struct tti_sim_totals){
            .time_ns = sim->now_ns - START_NS, .events = sim->events, .trace = sim->trace};
    clean_up(sim);
    tti_sim = NULL;
    return status;
}
