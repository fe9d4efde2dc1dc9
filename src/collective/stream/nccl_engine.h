/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider `nccl`: ranks with a GPU each. When the ranks have met, every rank issues its part, by calls of NCCL between
 * the opening and the closing of one group. Behind it on the stream comes "done": a word that is raised.
 *
 * Raising a word takes the stream about two microseconds. So only an op that somebody may wait for has one of its own: one that
 * was started, or has a deadline. The end of others is seen later: after so many of them, when the stream is told to wait, or
 * when it has been quiet for a moment, a word is raised for all (tti_stream_owe). Nothing is put later on a stream that its
 * caller knows, since he may destroy it, and his waits are not seen: a mark comes behind each op there, and a stream of the
 * engine's own, the teller, waits for the last one and raises the word.
 *
 * NCCL's calls may never return: while ranks connect, which the first calls of each kind and size do, and whenever a rank is
 * gone. So there are three threads:
 *   whoever makes the call   issues what NCCL has done before in this kind and size, which only puts it on the stream;
 *   the engine's own thread  makes the communicator, issues what may connect, and closes it. Whoever needs that waits, watches
 *                            the other ranks meanwhile, and gives the thread up when they are lost or time is over. When it has
 *                            nothing to do it asks NCCL for errors, and looks after a call that takes long;
 *   the reaper               started when the comm is broken: revokes the communicator (where NCCL can), so that kernels and
 *                            calls end; waits until nobody is inside NCCL with it; then aborts it.
 *
 * Invariants: the communicator is not aborted while a thread is inside NCCL with it, and nobody enters once it is doomed. The
 * two threads touch the engine only, which is freed with its last reference: a thread that was given up keeps its own.
 */
#ifndef TTI_COLLECTIVE_NCCL_ENGINE_H
#define TTI_COLLECTIVE_NCCL_ENGINE_H

#include "collective/stream/streams.h"
#include "device/nccl_api.h"

enum tti_nccl_what {
    TTI_NCCL_ALL_REDUCE,
    TTI_NCCL_REDUCE,
    TTI_NCCL_BROADCAST,
    TTI_NCCL_ALL_GATHER,
    TTI_NCCL_REDUCE_SCATTER,
    TTI_NCCL_SEND,
    TTI_NCCL_RECV,
    TTI_NCCL_COPY /* this rank's own part; not a call of NCCL */
};

struct tti_nccl_call {
    enum tti_nccl_what what;
    const char *in;
    char *out;
    size_t count; /* elements of the type of the op's calls; COPY: bytes */
    int peer;     /* or root */
};

/* What one op is on this rank. */
struct tti_nccl_calls {
    struct tti_nccl_call *calls;
    size_t count, room;
    int type, reduction; /* of all of them; bytes where data only move */
    bool scaled;         /* the reduction is to be made from: */
    double factor;
    bool failed; /* no memory */
};

/* What all ranks have alike. */
struct tti_nccl_traits {
    int version;
    int capability; /* the lowest of all GPUs */
};

/* nccl_calls.c: arithmetic. True if NCCL has what the op needs; from what all ranks know alike. */
bool tti_nccl_supports(const struct tti_nccl_traits *traits, const struct tti_op *op);
/* Replaces the list. `rows`: what all ranks give, of a v-form; `scratch`: memory of the device for a barrier. */
void tti_nccl_plan(struct tti_nccl_calls *calls, const struct tti_op *op, const uint64_t *rows, void *scratch);
/* A number that ops have in common which connect the same; not 0. */
uint64_t tti_nccl_key(const struct tti_op *op, const uint64_t *row);

enum tti_nccl_task { TTI_NCCL_IDLE, TTI_NCCL_GET_ID, TTI_NCCL_INIT, TTI_NCCL_ISSUE, TTI_NCCL_CLOSE, TTI_NCCL_END };

/* What the engine's thread is to do, and how it went. */
struct tti_nccl_orders {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum tti_nccl_task task;   /* IDLE once it is done */
    _Atomic uint32_t finished; /* tasks */
    uint32_t given;            /* by whoever gives them */
    struct tti_stream *pays;   /* a stream that is to pay what it owes, a reference; NULL: none. Beside the task */
    tutti_status status;       /* of the last one, */
    char text[240];            /* and why */
};

enum { TTI_NCCL_KNOWN = 256 };
enum tti_nccl_life { TTI_NCCL_ALIVE, TTI_NCCL_DOOMED, TTI_NCCL_GONE };

struct tti_nccl_engine {
    _Atomic uint32_t references;
    const struct tti_nccl *nccl;
    struct tti_device *device; /* a reference */
    uint64_t generation;       /* of it */
    int rank, size;
    struct tti_nccl_id id;
    _Atomic(void *) native; /* NULL: none */

    struct tti_nccl_orders orders;
    _Atomic uint32_t inside;        /* threads in NCCL with the communicator */
    _Atomic uint32_t life;          /* enum tti_nccl_life */
    _Atomic int32_t async_error;    /* that NCCL has told of */
    int64_t error_since_ns;         /* that was first seen then; 0: never */
    const _Atomic uint32_t *broken; /* not 0: the comm is; NULL: it is gone. Under the lock of the orders */
    _Atomic int64_t until_ns;       /* a call that is inside by then is to end */
    int64_t fence_ns;               /* how long an end that nobody promises is waited for */

    /* The rest is for whoever issues, one at a time. */
    struct tti_nccl_calls calls;
    struct tti_stream *stream; /* what they are put on */
    struct tti_nccl_traits traits;
    struct tti_memory scratch; /* for barriers */
    struct tti_word *done;
    uint64_t first_done, issued; /* `done` is raised to first_done + issued */
    struct tti_stream *last_on;  /* of the last op, a reference; NULL: there was none */
    _Atomic(struct tti_stream *)
        teller;                     /* raises `done` for streams that their callers know; NULL: there was none yet */
    struct tti_mark *ended;         /* behind the last op on such a stream; likewise */
    bool tells_later;               /* the end of the thread-local op is */
    uint32_t owed;                  /* ops since the word was raised last */
    _Atomic int64_t issued_ns;      /* the last of them */
    uint64_t known[TTI_NCCL_KNOWN]; /* keys of what has connected, by their lowest bits */
};

/* nccl_thread.c. A reference for the caller, and the thread runs. */
tutti_status tti_nccl_engine_make(struct tti_device *device, struct tti_nccl_engine **engine, tutti_error *error);
void tti_nccl_engine_give(struct tti_nccl_engine *engine);

/* Lets the thread do it. Its task before has ended; see orders.finished for when this one has. */
void tti_nccl_order(struct tti_nccl_engine *engine, enum tti_nccl_task task);
static inline bool tti_nccl_finished(const struct tti_nccl_engine *engine)
{
    return atomic_load_explicit(&engine->orders.finished, memory_order_acquire) == engine->orders.given;
}

/* Lets the thread see to it that the end of what is on the stream is told. Never blocks for long. */
void tti_nccl_ask(struct tti_nccl_engine *engine, struct tti_stream *stream);

/* Puts engine->calls on engine->stream and "done" behind them. May block in NCCL. */
tutti_status tti_nccl_issue(struct tti_nccl_engine *engine, tutti_error *error);

/* Nobody enters any more, and the communicator is aborted when those who are inside have left; without waiting for that. */
void tti_nccl_reap(struct tti_nccl_engine *engine);
static inline bool tti_nccl_is_gone(const struct tti_nccl_engine *engine)
{
    return atomic_load_explicit(&engine->life, memory_order_acquire) == TTI_NCCL_GONE;
}

/* "ncclAllReduce: unhandled system error (2): …" */
tutti_status tti_nccl_error(const struct tti_nccl_engine *engine, const char *call, int result, tutti_error *error);

#endif
