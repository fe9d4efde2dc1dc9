/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated time: every task of a run has a stack of its own in one thread, and the clock moves only when all of them
 * wait. The one clock, the one way to wait and the one way to start a task (clock.h, wait.h, task.h) ask here first
 * whether their thread is inside a simulated run; all code above them is the same in both.
 *
 * Invariant: the next event is always the earliest one (a task's wake, a frame's arrival); among tasks that are due at
 * the same moment a generator chooses, which starts from the seed. Nothing else decides, so that a seed stands for one
 * run: neither addresses nor the real time matter.
 *
 * Time passes for:
 *   moving data     bytes through memory at `local_ns_per_byte`, and `overhead_ns` for each piece
 *   publishing      is seen at once by tasks that poll; a task that already sleeps for it wakes `local_latency_ns`
 *                   later
 *   looking         for the end of an op or for a message, by the caller's own polls: a turn for each poll that finds
 *                   nothing
 *   computing       nothing: only what is charged counts
 * With `noise_ns` the generator adds up to so much to every charge and every wake; and data are then moved at any
 * moment of their time, instead of at its end.
 */
#ifndef TTI_BASE_SIM_H
#define TTI_BASE_SIM_H

#include "base/wait.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/experimental.h>

/* A run in which nothing happens any more until the latest time ends there; sums of a few durations cannot overflow. */
#define TTI_SIM_LONGEST_NS INT64_C(100000000000000000)
#define TTI_SIM_LATEST_NS INT64_C(1000000000000000000)

struct tti_sim_setup {
    uint64_t seed;
    double local_ns_per_byte;
    int64_t local_latency_ns, overhead_ns, noise_ns;
    const tutti_sim_point *copy;  /* time to copy a message between hosts, for the sender and for the receiver */
    size_t copy_count;            /* 0: no time */
    const tutti_sim_point *delay; /* delay of a message between hosts */
    size_t delay_count;
    bool sizes_only;    /* data are not moved: their time passes, their contents stay */
    size_t stack_bytes; /* of each task; 0: TTI_SIM_STACK_BYTES */
    int64_t limit_ms;   /* processor time that the run may take; 0: any */
    int64_t inspect_ns; /* `inspect` is called when all that is due until then has happened */
    bool (*inspect)(void *context,
                    uint64_t noted); /* gets everything that was noted; false ends the run. NULL: it is not called */
    void *inspect_context;
};
#define TTI_SIM_STACK_BYTES ((size_t)128 << 10)
enum {
    TTI_SIM_SMALL_BYTES = 4096
}; /* data up to this size are moved even with sizes_only: they may be counts that others use */

struct tti_sim_totals {
    int64_t time_ns; /* the simulated time that passed */
    uint64_t events;
    uint64_t trace; /* a hash of all events in their order: equal for equal runs */
};

/* An event at a time. Zeroed at first; the memory is its owner's. */
struct tti_event {
    void (*fire)(struct tti_event *event); /* called outside of any task: must not wait */
    uint64_t id;                           /* for the trace; not an address */
    int64_t time_ns;
    uint64_t order;
    size_t place; /* the place among the events that are due, from 1; 0: it is not due */
};

struct tti_sim;
struct tti_sim_task;

/* The run in which this thread is, or NULL. */
extern _Thread_local struct tti_sim *tti_sim __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Runs `body` as the first task; returns when it and all tasks that it started have ended. ERR_TIMEOUT: all wait for
 * something that will never happen; ERR_LIMIT: the processor time is over; ERR_CANCELLED: by `inspect`; ERR_MEMORY:
 * little of the system's memory is left. After an error, memory that tasks held is lost. `totals` may be NULL. */
tutti_status tti_sim_run(const struct tti_sim_setup *setup, void *(*body)(void *argument), void *argument,
                         struct tti_sim_totals *totals, tutti_error *error);

/* ---- For code inside a run: all below ---------------------------------------------------------------------------- */

const struct tti_sim_setup *tti_sim_setup_of(void);
int64_t tti_sim_now_ns(void);
int64_t tti_sim_clock_ns(void);      /* returns what the clock of the task's group shows, which may have jumped */
int64_t tti_sim_duration(double ns); /* rounds to a whole number from 0 to TTI_SIM_LONGEST_NS */
const void *tti_sim_self(void);      /* returns the task that runs */
int *tti_sim_depth(void);            /* returns a number of the task's own, 0 at first */
void **tti_sim_slot(void); /* returns a pointer of the task's own, NULL at first, in place of thread-local memory */
/* Returns a number of the seeded generator. */
uint64_t tti_sim_random(void);

/* Lets time pass for the calling task; 0: lets others that are due now run first, or not. */
void tti_sim_sleep(int64_t ns);
/* Charges for moving `bytes` through memory, which must be done before tti_sim_moved(). Returns false with sizes_only:
 * do not move them. */
bool tti_sim_move(uint64_t bytes);
void tti_sim_moved(void);

/* Tells that the calling task, like all others, is about to send so many messages. Ends the run (ERR_LIMIT) if
 * simulating them would take far longer than allowed. */
void tti_sim_expect(uint64_t messages);

/* Returns memory whose contents nobody needs, because data are not moved: one block for all tasks, until the run ends.
 * NULL: there is no memory, or data are moved. */
void *tti_sim_nowhere(size_t bytes);

/* Notes what a task is going to do, as a number. All notes add up to one number, in whatever order they come. */
void tti_sim_note(uint64_t number);

/* The two calls around every move of data, which cost nothing outside of simulated runs. */
static inline bool tti_move(uint64_t bytes)
{
    return tti_sim == NULL || tti_sim_move(bytes);
}

static inline void tti_moved(void)
{
    if (tti_sim != NULL) tti_sim_moved();
}

/* Sets an event. Events of one time happen in the order in which they were set, before tasks that are due then. */
void tti_sim_at(struct tti_event *event, int64_t time_ns);
void tti_sim_cancel(struct tti_event *event); /* ignores an event that is not due */

/* Tasks; see task.h. */
struct tti_sim_task *tti_sim_task_start(void *(*body)(void *argument), void *argument);
void tti_sim_task_join(struct tti_sim_task *task);
/* Returns the leader of the calling task's group. */
struct tti_sim_task *tti_sim_leader(void);
/* Makes a task the leader of a group. Without this a task belongs to the group of the task that started it. */
void tti_sim_task_lead(struct tti_sim_task *task);
/* Ends all tasks of a leader's group at once: nothing of them runs any more. They still have to be joined. Must not be
 * called by one of them. */
void tti_sim_task_kill(struct tti_sim_task *leader);

/* Stops a leader's group until that time: everything that it would do sooner it does then. */
void tti_sim_task_stop(struct tti_sim_task *leader, int64_t until_ns);
/* Moves the clock (clock.h) of a leader's group on by so much at once, or back. */
void tti_sim_task_jump(struct tti_sim_task *leader, int64_t ns);

/* Bells; see wait.h. `delay_ns`: the time until tasks that sleep on it wake. */
void tti_sim_bell_sleep(tti_bell *bell, uint32_t seen, int64_t timeout_ns);
void tti_sim_bell_ring(tti_bell *bell, int64_t delay_ns);

#endif
