/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider `nccl`: ranks with a GPU each. When the ranks have met, every rank issues its part, by calls of NCCL
 * between the opening and the closing of one group. Behind it the stream raises a word, `done`.
 *
 * Raising a word takes the stream about two microseconds. So only an op for which a thread may wait raises the word
 * itself: one that was started, or has a deadline. The end of others is seen later: after so many of them, when the
 * stream is told to wait, or when it has been quiet for a moment, the word is raised for all (tti_stream_owe). Nothing
 * is put later on a stream that its caller knows, since the caller may destroy it, and its waits are not seen: a mark
 * is recorded behind each op there, and a stream of the engine's own, the teller, waits for the last mark and raises
 * the word.
 *
 * NCCL's calls may never return: while ranks connect, which the first calls of each kind and size do, and whenever a
 * rank is gone. So there are three threads:
 *   the calling thread       issues calls of a kind and size that NCCL has done before, which only puts them on the
 *                            stream;
 *   the engine's own thread  makes the communicator, issues calls that may connect, and closes it. A caller that needs
 *                            one of these waits, watches the other ranks meanwhile, and gives the thread up when they
 *                            are lost or time is over. When the thread has nothing to do it asks NCCL for errors, and
 *                            watches a call that takes long;
 *   the reaper               started when the comm is broken: revokes the communicator (where NCCL can), so that
 *                            kernels and calls end; waits until no thread is inside NCCL with it; then aborts it.
 *
 * Invariants: the communicator is not aborted while a thread is inside NCCL with it, and no thread enters once it is
 * doomed. The two threads touch the engine only, which is freed with its last reference: a thread that was given up
 * keeps its own.
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
    TTI_NCCL_COPY /* copies this rank's own part; not a call of NCCL */
};

struct tti_nccl_call {
    enum tti_nccl_what what;
    const char *in;
    char *out;
    size_t count; /* elements of the type of the op's calls; COPY: bytes */
    int peer;     /* the peer, or the root */
};

/* The calls that one op makes on this rank. */
struct tti_nccl_calls {
    struct tti_nccl_call *calls;
    size_t count, room;
    int type, reduction; /* for all calls; the type is bytes if data are only moved */
    bool scaled;         /* the reduction must be made from `factor` */
    double factor;
    bool failed; /* there was no memory */
};

/* Facts that are the same for all ranks. */
struct tti_nccl_traits {
    int version;
    int capability; /* the lowest compute capability of all GPUs */
};

/* nccl_calls.c: arithmetic. Returns true if NCCL can do the op; all ranks find the same. */
bool tti_nccl_supports(const struct tti_nccl_traits *traits, const struct tti_op *op);
/* Replaces the list. `rows`: the rows of all ranks, for a v-form; `scratch`: memory of the device for a barrier. */
void tti_nccl_plan(struct tti_nccl_calls *calls, const struct tti_op *op, const uint64_t *rows, void *scratch);
/* Returns a number that is the same for ops which connect in the same way; not 0. */
uint64_t tti_nccl_key(const struct tti_op *op, const uint64_t *row);

enum tti_nccl_task { TTI_NCCL_IDLE, TTI_NCCL_GET_ID, TTI_NCCL_INIT, TTI_NCCL_ISSUE, TTI_NCCL_CLOSE, TTI_NCCL_END };

/* The orders for the engine's thread, and their results. */
struct tti_nccl_orders {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum tti_nccl_task task;   /* IDLE once it is done */
    _Atomic uint32_t finished; /* how many tasks have finished */
    uint32_t given;            /* how many tasks were given */
    struct tti_stream *pays;   /* a stream that should pay what it owes, besides the task; a reference; NULL: none */
    tutti_status status;       /* the status of the last task */
    char text[240];            /* the reason of a failure */
};

enum { TTI_NCCL_KNOWN = 256 };
enum tti_nccl_life { TTI_NCCL_ALIVE, TTI_NCCL_DOOMED, TTI_NCCL_GONE };

/* How the ends of ops are told: the stream of an op, or another one for it, raises the engine's word behind several of them. */
struct tti_nccl_ends {
    struct tti_stream *last_on; /* the stream of the last op, a reference; NULL: there was none */
    struct tti_stream *teller;  /* raises the word for streams that their callers know */
    struct tti_mark *mark;      /* recorded behind the last op on such a stream */
    bool later;                 /* the end of the op at hand is told later */
    uint32_t owed;              /* ops since the word was raised last */
    _Atomic int64_t issued_ns;  /* when the last of them was issued */
};

struct tti_nccl_engine {
    _Atomic uint32_t references;
    struct tti_link link; /* in the list of the process's engines (nccl_provider.c) */
    tutti_comm *data;     /* the comm whose queue has the ops that fly */
    const struct tti_nccl *nccl;
    struct tti_device *device; /* a reference */
    int rank, size;
    struct tti_nccl_id id;
    _Atomic(void *) native; /* NULL: none */

    struct tti_nccl_orders orders;
    _Atomic uint32_t inside;     /* threads in NCCL with the communicator */
    _Atomic uint32_t life;       /* enum tti_nccl_life */
    _Atomic int32_t async_error; /* an error that NCCL has reported */
    int64_t error_since_ns;      /* when it was first seen; 0: never */
    /* not 0: the comm is broken; NULL: the comm is gone. Under the lock of the orders */
    const _Atomic uint32_t *broken;
    _Atomic int64_t until_ns; /* a call that is still inside at this time must end */
    int64_t fence_ns;         /* how long an end that may never come is waited for */

    /* The remaining fields belong to the thread that issues, one at a time. */
    struct tti_nccl_calls calls;
    struct tti_stream *stream; /* the stream on which calls are put */
    struct tti_nccl_traits traits;
    tutti_buffer *memory; /* the device's memory of `scratch` */
    void *scratch;        /* for barriers */
    struct tti_word *done;
    uint64_t first_done, issued; /* `done` is raised to first_done + issued */
    struct tti_nccl_ends ends;
    uint64_t known[TTI_NCCL_KNOWN]; /* keys of ops that have connected, by the keys' lowest bits */
};

/* nccl_thread.c. Makes an engine with a reference for the caller, and starts its thread. */
tutti_status tti_nccl_engine_make(struct tti_device *device, struct tti_nccl_engine **engine, tutti_error *error);
void tti_nccl_engine_give(struct tti_nccl_engine *engine);
/* Makes anew what the engine had on its device, after that was opened again and all ops have ended. The communicator stays,
 * since NCCL keeps its own hold on the GPU's context. */
tutti_status tti_nccl_engine_renew(struct tti_nccl_engine *engine, tutti_error *error);

/* Gives the thread a task. Its task before must have ended; orders.finished tells when this one has. */
void tti_nccl_order(struct tti_nccl_engine *engine, enum tti_nccl_task task);
static inline bool tti_nccl_finished(const struct tti_nccl_engine *engine)
{
    return atomic_load_explicit(&engine->orders.finished, memory_order_acquire) == engine->orders.given;
}

/* Asks the thread to have the stream raise its word for the ops on it. Never blocks for long. */
void tti_nccl_ask(struct tti_nccl_engine *engine, struct tti_stream *stream);

/* Puts engine->calls on engine->stream, and `done` behind them. May block in NCCL. */
tutti_status tti_nccl_issue(struct tti_nccl_engine *engine, tutti_error *error);

/* Lets no thread enter NCCL any more, and has the communicator aborted when those inside have left; does not wait for
 * that. */
void tti_nccl_reap(struct tti_nccl_engine *engine);
static inline bool tti_nccl_is_gone(const struct tti_nccl_engine *engine)
{
    return atomic_load_explicit(&engine->life, memory_order_acquire) == TTI_NCCL_GONE;
}

/* Writes "ncclAllReduce: unhandled system error (2): …". */
tutti_status tti_nccl_error(const struct tti_nccl_engine *engine, const char *call, int result, tutti_error *error);

#endif
