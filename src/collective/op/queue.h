/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that were started: a comm's ops end in the order in which they were started, one at a time; ops of different
 * comms are independent. The thread that is `busy` with a comm takes its ops forward: one that waits for an op, else
 * the service thread (service.c). No other thread touches what the provider uses; starting an op only appends it.
 *
 * A blocking call on a comm that nobody is busy with and that has no op in flight goes without any of this (op.c).
 */
#ifndef TTI_COLLECTIVE_QUEUE_H
#define TTI_COLLECTIVE_QUEUE_H

#include "collective/comm/comm.h"
#include <assert.h>

/* Cancels at once, or only a message that can be taken back, so that nobody is harmed. */
enum { TTI_CANCEL = 1, TTI_CANCEL_GENTLY = 2 };

/* An op that was started: what a handle stands for. The fields that most uses touch, and those that messages need, come
 * first: with many in flight, the cache lines that each touches are what they cost. */
struct tti_started {
    /* the comm that has its handle; op.comm carries it out, another comm for ops on streams */
    _Alignas(64) tutti_comm *comm;
    _Atomic uint64_t id;              /* the id of its handle; another one once that is void */
    struct tti_started *next;         /* the next op in the queue, or among the free places */
    _Atomic int32_t status;           /* IN_PROGRESS until it has ended */
    _Atomic uint32_t cancelled;       /* TTI_CANCEL…: a thread wants it to end */
    _Atomic bool asked;               /* a thread is in a call for this op */
    _Atomic bool thread_local_op;     /* not in the queue; only what its handle needs is valid: thread_local_op.c */
    _Atomic bool used;                /* its place is in use */
    _Atomic bool out;                 /* persistent: started and not yet waited for with success or failure */
    bool queued;                      /* started and not ended */
    bool persistent;                  /* it can be started again */
    bool dropped;                     /* it is freed when it ends */
    bool bare;                        /* a message that was sent at once: only its end is known */
    tutti_error *error;               /* its error, if it failed; NULL: memory ran out */
    struct tti_pending *pending;      /* its messages; NULL: it is a collective: pending.c */
    struct tti_pending *used_pending; /* memory of one message, kept for the next one; or NULL */
    struct tti_group_op *group;       /* the group that it is a part of, or stands for: queue_group.c; NULL: none */
    struct tti_external *external;    /* set if a layer above carries it out: queue_external.h; or NULL */
    struct tti_callback *callbacks;   /* called when it ends */
    struct tti_turn *turn;            /* its place on a stream; NULL: it is on none */
    struct tti_started *then;         /* the op on a stream that follows this meeting of ranks; or NULL */
    uint64_t *row;                    /* v-forms: this rank's counts */
    struct tti_started *sibling;      /* the next place of the same comm */
    uint64_t first_id;                /* id of its place when the comm first used it; under the table's lock */
    int group_part;                   /* its number in the group, from 0; before its start that of its call, from 1 */
    tutti_status failed;              /* OK, or why it was stopped; it ends when it is fenced */
    int64_t fence_until_ns;
    struct tti_wait_state wait_state;
    struct tti_op op;
};

static inline bool tti_queue_is_idle(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->queue.count, memory_order_acquire) == 0 &&
           atomic_load_explicit(&comm->queue.busy, memory_order_acquire) <= TTI_BUSY_KEPT;
}

/* Counts a start. Only the caller of the comm starts ops. */
static inline void tti_queue_count_start(struct tti_queue *queue)
{
    uint32_t starts = atomic_load_explicit(&queue->starts, memory_order_relaxed);
    atomic_store_explicit(&queue->starts, starts + 1, memory_order_relaxed);
}

/* Counts the end of an op. The comm may be freed once its count is 0. */
static inline void tti_queue_uncount(struct tti_queue *queue)
{
    uint32_t before = atomic_fetch_sub_explicit(&queue->count, 1, memory_order_release);
    assert(before > 0);
    (void)before;
}

/* Returns true if a thread that waits for an op should let another one be busy. */
static inline bool tti_queue_is_wanted(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->queue.wanted, memory_order_seq_cst) != 0;
}

/* give: starts a filled op, or only prepares it, and gives its handle. run: starts it behind those in flight and waits
 * for it. */
tutti_status tti_queue_give(struct tti_op *op, tutti_op *handle);
tutti_status tti_queue_run(struct tti_op *op);

/* Returns a copy of the filled op with a place of its own and no handle given out; it takes the pieces over. NULL: no
 * memory. */
struct tti_started *tti_queue_copy(struct tti_op *op);

/* Makes the queue ready, which must come before an op is started. */
tutti_status tti_queue_ready(tutti_comm *comm, enum tti_kind kind);
void tti_queue_start(struct tti_started *started);
/* Waits until the op has ended or the time is over. Returns its status, or IN_PROGRESS. */
tutti_status tti_queue_await(struct tti_started *started, int64_t until_ns);
/* What ops in flight wait for: a stream rings no bell, and a collective that has just begun rings often. */
enum tti_awaits { TTI_AWAITS_MESSAGES, TTI_AWAITS_RANKS, TTI_AWAITS_STREAM };
enum tti_awaits tti_queue_awaits(tutti_comm *comm);
/* Takes a comm's ops forward unless another thread does. Returns true if one of them moved. `polls`: also checks
 * deadlines and peers. */
bool tti_queue_help(tutti_comm *comm, bool polls);
/* Notes that a thread is in a call for this op, or no more. */
void tti_queue_set_asked(struct tti_started *started, bool asked);
/* The same for a thread that asks for this op. */
void tti_queue_ask(struct tti_started *started, bool polls);

/* Does what a wait does from time to time (tti_comm_check_wait) for the collective whose turn it is. To be called by
 * the busy thread. */
tutti_status tti_queue_poll(tutti_comm *comm, int64_t now_ns);
bool tti_queue_has_collectives(tutti_comm *comm);

/* Returns true if the op's own deadline has passed. */
bool tti_started_is_overdue(const struct tti_started *started, int64_t now_ns);
/* Returns an op in flight, at its turn or not, whose own deadline has passed; or NULL. To be called by the busy
 * thread. */
struct tti_started *tti_queue_overdue(tutti_comm *comm, int64_t now_ns);

/* For the files queue*.c. Returns the collective whose turn it is, or NULL; then fills in a wait for it. */
struct tti_started *tti_queue_first(tutti_comm *comm);
struct tti_waitable tti_queue_waitable(struct tti_started *started);

/* The right to take ops forward (thread_local_op.c). try: takes it unless another thread has it; try_for_ops: only if
 * ops are in flight, since a blocking call goes without the right while there are none; take: waits for it. */
bool tti_queue_try(tutti_comm *comm);
bool tti_queue_try_for_ops(tutti_comm *comm);
void tti_queue_take(tutti_comm *comm);
void tti_queue_give_back(tutti_comm *comm);
bool tti_queue_drive(tutti_comm *comm);
/* For thread_local_op.c. Appends an op that was counted to the queue. Then: ends an op with this status once nobody can
 * touch its buffers any more; returns its status, or IN_PROGRESS. */
bool tti_queue_append(struct tti_started *started);
tutti_status tti_queue_fail(struct tti_started *started, tutti_status status);
/* Called when the op has failed: copies the reason why the comm is broken. */
void tti_started_fail(struct tti_started *started);
/* Called when the op has ended and is on no list any more. */
void tti_started_end(struct tti_started *started, tutti_status status);
/* For an op that is in no queue: it counts as in flight from its begin on. Its end returns true if nobody had its
 * handle any more; the thread that ends it takes it off the count, as the last thing that touches the comm. */
void tti_started_begin_apart(struct tti_started *started);
bool tti_started_end_apart(struct tti_started *started, tutti_status status);

/* Called before a comm is freed: waits for its ops in flight for a bounded time, and then breaks the comm. */
void tti_queue_finish(tutti_comm *comm);
/* Called after that: makes all its handles void. */
void tti_queue_close(tutti_comm *comm);
/* For a rank of which no thread runs any more: forgets its ops in flight. */
void tti_queue_abandon(tutti_comm *comm);

/* Handles (handle.c). */
struct tti_started *tti_started_new(tutti_comm *comm);
struct tti_started *tti_started_new_beside(tutti_comm *comm); /* the same for any thread, whoever makes calls */
bool tti_started_reserve(tutti_comm *comm);                   /* false: no memory; else the next place is certain */
uint64_t tti_started_bare(tutti_comm *comm);                  /* after that: the handle of a message sent at once */
void tti_started_free(struct tti_started *started);           /* its handle is void from now on */
void tti_started_void(struct tti_started *started); /* the same for one that keeps its place; by the busy thread */
void tti_started_free_all(tutti_comm *comm);

/* The service threads (service.c). The most that a process has; 0: as many as there are cores to spare. */
extern int tti_service_threads;
tutti_status tti_service_add(tutti_comm *comm, tutti_error *error);
void tti_service_remove(tutti_comm *comm);
/* Wakes the service thread for an op: within a millisecond, a tenth of one, or at once, which costs a wake-up each. */
enum tti_haste { TTI_SOMETIME, TTI_SOON, TTI_AT_ONCE };
void tti_service_wake(const tutti_comm *comm, enum tti_haste haste);
/* Returns true if it sleeps, having polled the comm's ops, until somebody brings something for one of them. */
static inline bool tti_service_dozes(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->queue.served.dozes, memory_order_seq_cst);
}
/* Returns true if `is` is true for some comm of this process that has had ops; in a simulated run for none. */
bool tti_service_find(bool (*is)(tutti_comm *comm, void *context), void *context);
void tti_service_forked(void); /* in the child: the thread is not there */
void tti_handles_forked(void);

#endif
