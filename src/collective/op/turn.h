/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that are put on a stream of a device.
 *
 * The ranks first meet on the host: a rank that differs is told before anything is touched. Then one of two things
 * carries the op out:
 *   - the host, at a gate (gate.h): on a comm of its own beside the caller's (`data`), once the stream has come to the
 *     op, while the stream waits. This is done on device `host`, and for data that are staged;
 *   - the device itself: a *device provider* puts the op on the streams, and the host only watches until it has ended.
 *     The op *flies* then: it lies in the queue of `data` without running there, and later ones are issued while it
 *     does.
 *
 * Invariant, since streams may share a queue of the hardware: a stream is told to wait for the end of an op only when
 * all ranks have put on their streams what that op waits for. So all ops can be done in the order in which they were
 * submitted.
 *   1  the caller puts "reached" on its stream, or what a provider needs of it
 *   2  the ranks meet: by a barrier, or where a provider wants to see the others' buffers by an all_gather of these
 *   3  the host: the op goes to the queue of `data`, waits there until its stream has reached it, runs, and lets it go
 *      on. A provider: rank 0, the launcher, issues the op, and a broadcast tells all what became of it (struct
 *      tti_verdict); or every rank issues its part
 *   4  blocking form: the caller's stream waits until the op has ended. The other form leaves that to
 *      tutti_stream_wait: it does all of this on a stream of the comm's own, which begins where the caller's was
 */
#ifndef TTI_COLLECTIVE_TURN_H
#define TTI_COLLECTIVE_TURN_H

#include "base/list.h"
#include "collective/comm/carrier.h"
#include "collective/gpu/gpu_kernels.h"
#include "collective/op/queue.h"
#include "device/gate.h"
#include <pthread.h>

enum { TTI_LAUNCHER = 0, TTI_FLYING_MOST = 64 };

struct tti_device_provider;
struct tti_stager;
struct tti_staging;
struct tti_uses;

/* State that a comm keeps for ops on streams. */
struct tti_streams {
    tutti_comm *data;          /* carries them out, or watches them */
    struct tti_device *device; /* a reference; all calls of this rank are on its streams */
    uint64_t generation;       /* generation of the device to which all of this belongs */
    struct tti_stream_gate *gates;
    const struct tti_device_provider *provider; /* NULL: the host carries out all ops */
    void *engine;                               /* the provider's own state */
    struct tti_stager *stager;                  /* stages ops for the host; NULL: it uses the data in place */
    struct tti_stream *side;                    /* a reference: the stream of ops that were started; NULL: none yet */
    pthread_mutex_t side_lock; /* for work on `side`, by threads that start ops and threads that take them forward */
    _Atomic uint32_t flying;   /* ops that fly */
    _Atomic uint64_t carried[TTI_CARRIERS]; /* ops that were handed to each carrier */
    _Atomic uint64_t unordered;             /* sums and products that NCCL carried out */
    bool stages;                            /* staging was asked for, where it is not needed */
    bool forced;                            /* the provider was: ops that it does not have are refused, not staged */
    char why[200];                          /* why that provider was chosen, for people */
    /* The rest is for the standby (standby.c). */
    bool listed;                    /* it is in the list; only its own rank asks */
    struct tti_link link;           /* neighbours in the list; under the standby's lock */
    const struct tti_started *seen; /* the op that was the oldest in flight when it looked; NULL: there was none */
    int64_t seen_ns;                /* when it saw that op first */
};

/* What the launcher says of an op when all ranks have met: the same for all of them. */
struct tti_verdict {
    int32_t status;  /* OK; otherwise nobody carries the op out, and the comm stays usable: `text` says why */
    int32_t by_host; /* the provider cannot carry it out after all */
    uint64_t done;   /* value that the provider's counter has at its end */
    char text[240];
};

struct tti_lent {
    struct tti_pinned *pinned;
    struct tti_lent *next;
};

/* An op's place on a stream. The fields from `gate` on are for one start of the op. */
struct tti_turn {
    tutti_comm *comm;             /* the comm that it was called on */
    struct tti_stream *called_on; /* a reference */
    struct tti_uses *uses;        /* the memory that it uses */
    struct tti_stream_gate *gate; /* NULL: it was not put anywhere yet; used, like the next field, until `left_gates` */
    struct tti_stream_gate *origin; /* gate of the caller's stream, if the op is on another stream that begins there */
    bool left_gates;
    uint64_t number; /* number at the gate; 0: it is not put there */
    _Atomic bool reached;
    _Atomic bool met; /* the ranks have met, and it was issued */
    bool watched;     /* its device is asked from time to time whether it has failed */

    bool refused; /* it ends with the verdict's error on all ranks, and no comm breaks */

    struct tti_staging *staging; /* the host carries it out on copies; or NULL */

    /* Fields of an op that a provider carries out. */
    const struct tti_device_provider *provider; /* NULL: the host carries it out */
    struct tti_stream *stream;                  /* the stream that it is on; the gate has the reference */
    bool blocking;                              /* this rank's caller waits for the meeting itself */
    bool connects;                              /* issuing it may take long: the thread that starts it waits for that */
    bool shown;                                 /* the first meeting is over: the verdict comes next */
    bool flies;                                 /* it was issued */
    enum tti_carrier carrier;                   /* set once it was issued */
    uint64_t traced;                            /* when it was issued, in ticks of a trace; 0: there is no trace */
    char *mine, *all;                           /* what this rank shows, and what all ranks have shown */
    struct tti_gpu_kernel kernel;               /* the launcher's, if it needs one */
    struct tti_lent *lent;                      /* memory lent to kernels until the op has ended */
    struct tti_verdict verdict;
};

/* Carries out ops on streams of a device. Only one thread at a time calls it for an op. */
struct tti_device_provider {
    struct tti_provider_ops ops; /* for an op that flies; progress never enters a driver */
    enum tti_carrier carrier;
    /* Returns true if it can carry out such an op. The answer depends only on what all ranks know alike. */
    bool (*supports)(const struct tti_streams *streams, const struct tti_op *op);
    /* Returns the bytes that each rank shows of an op. */
    size_t (*shown_bytes)(const struct tti_op *op);
    /* Puts on the stream that this rank is ready, and fills in what it shows, and `connects`. On the launcher, puts
     * into the verdict what already prevents the op. After a failure nothing is on the stream. */
    tutti_status (*show)(struct tti_started *started, tutti_error *error);
    /* Called on the launcher when all ranks have shown theirs: issues the op, and fills in the verdict. */
    void (*launch)(struct tti_started *started);
    /* Every rank is a launcher: each issues its own part when all have met, and there is no second meeting. A verdict
     * that is not OK breaks the comm. */
    bool everyone;
    /* Returns true once this rank's stream has come to the op. Never enters a driver. */
    bool (*reached)(const struct tti_started *started);
    /* Writes which other work of this process may keep the op from ending, and what to do, or "". NULL: none can. */
    void (*advise)(const struct tti_started *started, char *text, size_t bytes);
    /* Makes the stream wait for the op's end. */
    tutti_status (*follow)(struct tti_started *started, struct tti_stream *stream, tutti_error *error);
    /* Called if the comm has failed between the launch and its verdict: makes whatever was issued stop touching memory
     * soon. */
    void (*abandon)(struct tti_streams *streams);
    /* Called when one of its streams is given up. Once this returns, ops on that stream, which may run on data that are
     * not there, touch nothing on any rank, and no op that has not ended counts as done. May be called by any thread;
     * may block for a bounded time. */
    void (*give_up)(struct tti_streams *streams);
    /* Makes this rank's state on its device anew, after the device was opened again. No op of the comm is on it, and
     * the other ranks do not take part. May be called again after a failure. */
    tutti_status (*renew)(struct tti_streams *streams, tutti_error *error);
    void (*close)(struct tti_streams *streams);
};

static inline struct tti_started *tti_started_of(struct tti_op *op)
{
    return TTI_LIST_OF(op, struct tti_started, op);
}

/* Returns true if no bell is rung at the op's end, or at the end of its copies. */
static inline bool tti_turn_is_polled(const struct tti_started *started)
{
    return started->turn != NULL && (started->turn->flies || started->turn->staging != NULL);
}

static inline bool tti_turn_flies(const struct tti_started *started)
{
    return started->turn != NULL && started->turn->flies;
}

/* Called by the thread that is busy with the op's comm. Returns OK once its stream has come to it, IN_PROGRESS, or the
 * error that broke the comm since the stream never will. */
tutti_status tti_turn_come(struct tti_started *started);
/* Returns true while so many of its comm's ops fly that no more are launched. */
static inline bool tti_turn_is_crowded(const struct tti_started *started)
{
    const struct tti_streams *streams = started->turn->comm->queue.streams;
    return atomic_load_explicit(&streams->flying, memory_order_relaxed) >= TTI_FLYING_MOST;
}

/* Returns true if the meeting before this op may begin. */
bool tti_turn_may_meet(const struct tti_started *started);
/* Returns the error of an op that the device has ended without doing it, since its comm, or the one that it was called
 * on, is broken. */
tutti_status tti_turn_inherit(struct tti_started *started);
/* Gives the op up: a stream that waited for its end was given up, and the word for the end was set to let that stream
 * go. */
tutti_status tti_turn_released(struct tti_started *started);
/* Writes " (its stream has not come to it yet)", or "". */
void tti_turn_detail(const struct tti_started *started, char *text, size_t bytes);
/* For a waitable: writes what may be in the way of an op that flies, or "". */
void tti_turn_advise(void *op, char *text, size_t bytes);
/* Called when a meeting is over, or has failed: the op is issued, goes to its queue, or ends. */
void tti_turn_met(struct tti_started *started, tutti_status status, const tutti_error *error);
/* Called when the first meeting is over: each launcher launches. */
void tti_turn_launch(struct tti_started *started);
/* Called after the last meeting, if the verdict was that the provider carries the op out: it flies from now on. */
void tti_turn_fly(struct tti_started *started);
/* Called when the op takes long: has the device asked from time to time whether it has failed, by a thread without
 * deadlines. */
void tti_turn_watch(struct tti_started *started);
/* Called if the host carries the op out after all: puts on the stream that it has come to the op. */
tutti_status tti_turn_put_reached(struct tti_started *started, tutti_error *error);
/* Lends memory to the op's kernels: it is given back when the op has ended. */
void tti_turn_lend(struct tti_turn *turn, struct tti_pinned *pinned);
/* Notes the op's end in a trace. */
void tti_turn_trace(struct tti_started *started, tutti_status status);
/* Called when the op has ended: lets its stream go on; a failure breaks the comm that it was called on. */
void tti_turn_end(struct tti_started *started, tutti_status status);
/* Ends an op that could not be put on its stream, or whose ranks have not met; its comm is as before. */
void tti_turn_fail(struct tti_started *started, tutti_status status, const tutti_error *error);
/* Clears what is left of a prepared op's last start. */
void tti_turn_reset(struct tti_started *started);
void tti_turn_drop(struct tti_turn *turn);       /* for an op that was never put anywhere */
void tti_turn_free(struct tti_started *started); /* gives its place back */

/* Waits until the ranks have met, the op has ended or the time is over; takes the meeting forward. */
void tti_turn_await_meeting(struct tti_started *started, int64_t until_ns);
/* Does the same once, without waiting. */
void tti_turn_help(struct tti_started *started, bool polls);

#endif
