/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that were started: a comm's ops end in the order in which they were started, one at a time; ops of different comms
 * are independent. Whoever is `busy` with a comm takes its ops forward: a thread that waits for one of them, else the
 * service thread (service.c). Nobody else touches what the provider uses; starting an op only appends it.
 *
 * A blocking call on a comm that nobody is busy with and that has no op in flight goes without any of this (op.c).
 */
#ifndef TTI_COLLECTIVE_QUEUE_H
#define TTI_COLLECTIVE_QUEUE_H

#include "collective/comm/comm.h"

/* At once; or where a message can be taken back, so that nobody is harmed. */
enum { TTI_CANCEL = 1, TTI_CANCEL_GENTLY = 2 };

/* What a handle stands for. What most uses touch comes first. */
/* What messages need of it comes first: with many in flight, the cache lines that each touches are what they cost. */
struct tti_started {
    /* that has its handle; op.comm carries it out, another one for ops on streams */
    _Alignas(64) tutti_comm *comm;
    _Atomic uint64_t id;              /* its handle's; another one once that is void */
    struct tti_started *next;         /* behind it in the queue, or among the free ones */
    _Atomic int32_t status;           /* IN_PROGRESS until it has ended */
    _Atomic uint32_t cancelled;       /* TTI_CANCEL…: somebody wants it to end */
    _Atomic bool asked;               /* a call that is about it is being made */
    _Atomic bool thread_local_op;     /* not in the queue, and only what its handle needs holds: thread_local_op.c */
    _Atomic bool used;                /* has a handle */
    _Atomic bool out;                 /* persistent: started and not yet waited for with success or failure */
    bool queued;                      /* started and not ended */
    bool persistent;                  /* can be started again */
    bool dropped;                     /* freed when it ends */
    bool bare;                        /* a message that went at once: nothing of it is known but that it has ended */
    tutti_error *error;               /* of one that failed; NULL when memory ran out */
    struct tti_pending *pending;      /* a message, and not a collective: pending.c */
    struct tti_pending *used_pending; /* of one message, with which the next one can be made; or NULL */
    struct tti_group_op *group;       /* it is a part of, or stands for: queue_group.c; NULL: of none */
    struct tti_external *external;    /* a layer above carries it out: queue_external.h; NULL: none does */
    struct tti_callback *callbacks;   /* for when it ends */
    struct tti_turn *turn;            /* it is put on a stream; NULL: it is not */
    struct tti_started *then;         /* the ranks' meeting before this one, which is put on a stream; or NULL */
    uint64_t *row;                    /* v-forms: this rank's counts */
    struct tti_started *sibling;      /* of the same comm, */
    uint64_t first_id;                /* which had the place with this id first; under the table's lock */
    int group_part;                   /* which one, from 0; not started yet: which call of the group, from 1 */
    tutti_status failed;              /* OK, or why it has been stopped; ends when it is fenced */
    int64_t fence_until_ns;
    struct tti_wait_state wait_state;
    struct tti_op op;
};

static inline bool tti_queue_is_idle(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->queue.count, memory_order_acquire) == 0 &&
           atomic_load_explicit(&comm->queue.busy, memory_order_acquire) <= TTI_BUSY_KEPT;
}

/* The caller is the only one to start ops. */
static inline void tti_queue_count_start(struct tti_queue *queue)
{
    uint32_t starts = atomic_load_explicit(&queue->starts, memory_order_relaxed);
    atomic_store_explicit(&queue->starts, starts + 1, memory_order_relaxed);
}

/* Whether who waits for an op should let somebody else be busy. */
static inline bool tti_queue_is_wanted(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->queue.wanted, memory_order_seq_cst) != 0;
}

/* Starts a filled op, or only prepares it, and gives its handle; or starts it behind those in flight and waits for it. */
tutti_status tti_queue_give(struct tti_op *op, tutti_op *handle);
tutti_status tti_queue_run(struct tti_op *op);

/* The filled op with a place of its own, of which nobody has the handle; it takes the pieces over. NULL: no memory. */
struct tti_started *tti_queue_copy(struct tti_op *op);

/* Starts an op. The queue must be ready. */
tutti_status tti_queue_ready(tutti_comm *comm, enum tti_kind kind);
void tti_queue_start(struct tti_started *started);
/* Waits until it has ended or the time is over: its status, or IN_PROGRESS. */
tutti_status tti_queue_await(struct tti_started *started, int64_t until_ns);
/* What the ops in flight wait for: a stream rings no bell, and a collective that has just begun rings often. */
enum tti_awaits { TTI_AWAITS_MESSAGES, TTI_AWAITS_RANKS, TTI_AWAITS_STREAM };
enum tti_awaits tti_queue_awaits(tutti_comm *comm);
/* Takes a comm's ops forward unless somebody else does; true when one of them moved. `polls`: also at the time. */
bool tti_queue_help(tutti_comm *comm, bool polls);
/* That a call is about it, now. */
void tti_queue_set_asked(struct tti_started *started, bool asked);
/* The same for who asks for this one. */
void tti_queue_ask(struct tti_started *started, bool polls);

/* What a wait looks for from time to time (tti_comm_check_wait), for the collective whose turn it is. For who has the right. */
tutti_status tti_queue_poll(tutti_comm *comm, int64_t now_ns);
bool tti_queue_has_collectives(tutti_comm *comm);

/* Whether its own deadline has passed. */
bool tti_started_is_overdue(const struct tti_started *started, int64_t now_ns);
/* An op in flight, whether it is its turn or not, whose own deadline has passed; or NULL. For who has the right. */
struct tti_started *tti_queue_overdue(tutti_comm *comm, int64_t now_ns);

/* For the files queue*.c. The collective whose turn it is, or NULL; and what a wait for it is about. */
struct tti_started *tti_queue_first(tutti_comm *comm);
struct tti_waitable tti_queue_waitable(struct tti_started *started);

/* The right to take ops forward (thread_local_op.c): unless somebody else has it; the same, and only if ops are in flight, since
 * a blocking call goes without the right while there are none; or waiting for it. Then doing so. */
bool tti_queue_try(tutti_comm *comm);
bool tti_queue_try_for_ops(tutti_comm *comm);
void tti_queue_take(tutti_comm *comm);
void tti_queue_give_back(tutti_comm *comm);
bool tti_queue_drive(tutti_comm *comm);
/* For thread_local_op.c. An op that was counted goes to the end of the queue; it ends with this status once nobody can touch its
 * buffers any more: its status, or IN_PROGRESS. */
bool tti_queue_append(struct tti_started *started);
tutti_status tti_queue_fail(struct tti_started *started, tutti_status status);
/* The op has failed, and is told why the comm is broken. */
void tti_started_fail(struct tti_started *started);
/* The op has ended and is on no list any more. */
void tti_started_end(struct tti_started *started, tutti_status status);
/* Of an op that is in no queue: it counts as one in flight from its begin on. Its end returns whether nobody had its handle any
 * more; whoever ends it takes it off the count, as the last thing that touches the comm. */
void tti_started_begin_apart(struct tti_started *started);
bool tti_started_end_apart(struct tti_started *started, tutti_status status);

/* Before a comm is freed: waits for its ops in flight, a bounded time, breaking the comm at its end; */
void tti_queue_finish(tutti_comm *comm);
/* and then all its handles are void. */
void tti_queue_close(tutti_comm *comm);
/* Of a rank none of whose threads runs any more: its ops in flight are forgotten. */
void tti_queue_abandon(tutti_comm *comm);

/* Handles (handle.c). */
struct tti_started *tti_started_new(tutti_comm *comm);
struct tti_started *tti_started_new_beside(tutti_comm *comm); /* the same by any thread, whoever makes calls */
bool tti_started_reserve(tutti_comm *comm);         /* false: no memory; else the next one is there for certain */
uint64_t tti_started_bare(tutti_comm *comm);        /* then: the handle of a message that went at once */
void tti_started_free(struct tti_started *started); /* its handle is void from now on */
void tti_started_void(struct tti_started *started); /* the same for one that keeps its place; by who has the right */
void tti_started_free_all(tutti_comm *comm);

/* The service threads (service.c). How many a process has at most: 0, as many as there are cores to spare. */
extern int tti_service_threads;
tutti_status tti_service_add(tutti_comm *comm, tutti_error *error);
void tti_service_remove(tutti_comm *comm);
/* There is an op to look after: within a millisecond, a tenth of one, or at once, which costs a wake-up each. */
enum tti_haste { TTI_SOMETIME, TTI_SOON, TTI_AT_ONCE };
void tti_service_wake(const tutti_comm *comm, enum tti_haste haste);
/* Whether it sleeps, having looked at the comm's ops, until somebody brings something for one of them. */
static inline bool tti_service_dozes(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->queue.served.dozes, memory_order_seq_cst);
}
/* Whether it is true of some comm that has had ops: of this process, in a simulated run of none. */
bool tti_service_find(bool (*is)(tutti_comm *comm, void *context), void *context);
void tti_service_forked(void); /* in the child: the thread is not there */
void tti_handles_forked(void);

#endif
