/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that are put on a stream of a device.
 *
 * The ranks first meet on the host: whoever differs is told before anything is touched. Then one of two things carries
 * the op out:
 *   - the host, at a gate (gate.h): on a comm of its own beside the caller's (`data`), when the stream has come, while
 *     the stream stands still. So it is on device `host`, and where data are staged;
 *   - the device itself: a *device provider* puts the op on the streams, and the host only watches until it has ended.
 *     The op *flies* then: it lies in the queue of `data` without running there, and later ones are issued while it
 *     does.
 *
 * Invariant, since streams may share a queue of the hardware: a stream is told to wait for the end of an op only when
 * all ranks have put on their streams what that op waits for. So the order of submission is an order in which all can
 * be done.
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

/* What a comm keeps for ops on streams. */
struct tti_streams {
    tutti_comm *data;          /* carries them out, or watches them */
    struct tti_device *device; /* a reference; all calls of this rank are on its streams */
    uint64_t generation;       /* the device's generation that all of this belongs to */
    struct tti_stream_gate *gates;
    const struct tti_device_provider *provider; /* NULL: the host carries out all */
    void *engine;                               /* the provider's own */
    struct tti_stager *stager;                  /* what the host carries out is staged; NULL: it can use it in place */
    struct tti_stream *side;                    /* a reference: where ops that were started are put; NULL: none yet */
    pthread_mutex_t side_lock;                  /* of work on it, by who starts ops and who takes them forward */
    _Atomic uint32_t flying;                    /* ops */
    _Atomic uint64_t carried[TTI_CARRIERS];     /* ops that were handed to each, */
    _Atomic uint64_t unordered;                 /* and sums and products of NCCL */
    bool stages;                                /* asked for, where that is not needed */
    bool forced;                                /* the provider is: what it has not is refused, not staged */
    char why[200];                              /* why that provider, for people */
};

/* What the launcher says of an op when all have met: the same for all ranks. */
struct tti_verdict {
    int32_t status;  /* OK; else nobody carries it out, and the comm stays usable: `text` says why */
    int32_t by_host; /* the provider cannot do it after all */
    uint64_t done;   /* what the provider counts to at its end */
    char text[240];
};

struct tti_lent {
    struct tti_pinned *pinned;
    struct tti_lent *next;
};

/* An op's place on a stream. From `gate` on it is about one start of the op. */
struct tti_turn {
    tutti_comm *comm;               /* that it was called on */
    struct tti_stream *called_on;   /* a reference */
    struct tti_uses *uses;          /* the memory that it uses */
    struct tti_stream_gate *gate;   /* NULL: it was not put anywhere yet; used, as the next, until `left_gates` */
    struct tti_stream_gate *origin; /* of the caller's stream, where it is put on another one that begins there */
    bool left_gates;
    uint64_t number; /* at the gate; 0: it is not put there */
    _Atomic bool reached;
    _Atomic bool met; /* the ranks have, and it was issued */
    bool watched;     /* its device is asked from time to time whether it has failed */

    bool refused; /* it ends with the verdict's error on all ranks, and no comm breaks */

    struct tti_staging *staging; /* the host carries it out on copies; or NULL */

    /* Of an op that a provider carries out. */
    const struct tti_device_provider *provider; /* NULL: the host does */
    struct tti_stream *stream;                  /* what it is put on; the gate has the reference */
    bool blocking;                              /* this rank's caller waits for the meeting itself */
    bool connects;                              /* issuing it may take long: whoever starts it waits for that */
    bool shown;                                 /* the first meeting is over: the verdict comes next */
    bool flies;                                 /* it was issued */
    enum tti_carrier carrier;                   /* once it was, */
    uint64_t traced;                            /* and when that was, in ticks of a trace; 0: there is none */
    char *mine, *all;                           /* what this rank shows, and what all have shown */
    struct tti_gpu_kernel kernel;               /* the launcher's, if it needs one */
    struct tti_lent *lent;                      /* to kernels, until it has ended */
    struct tti_verdict verdict;
};

/* Carries out ops on streams of a device. `ops.issue` is not used. One thread at a time calls it for an op. */
struct tti_device_provider {
    struct tti_provider_ops ops; /* of an op that flies: progress (never enters a driver), stop, fence */
    enum tti_carrier carrier;
    /* True if it can carry out such an op; pure, from what all ranks know alike. */
    bool (*supports)(const struct tti_streams *streams, const struct tti_op *op);
    /* Bytes that each rank shows of an op. */
    size_t (*shown_bytes)(const struct tti_op *op);
    /* Puts on the stream that this rank is ready, and fills in what it shows, and `connects`. On the launcher, notes in
     * the verdict what stands against the op already. A failure has put nothing there. */
    tutti_status (*show)(struct tti_started *started, tutti_error *error);
    /* On the launcher, when all have shown theirs: issues it, and fills in the verdict. */
    void (*launch)(struct tti_started *started);
    /* Every rank is a launcher: each issues its own part when all have met, and there is no second meeting. A verdict
     * that is not OK breaks the comm. */
    bool everyone;
    /* True once this rank's stream has come to it. Never enters a driver. */
    bool (*reached)(const struct tti_started *started);
    /* The stream waits for its end. */
    tutti_status (*follow)(struct tti_started *started, struct tti_stream *stream, tutti_error *error);
    /* The comm has failed between the launch and its verdict: whatever was issued touches nothing any more, soon. */
    void (*abandon)(struct tti_streams *streams);
    /* One of its streams is given up: what is on it, and may run on data that are not there, touches nothing once this
     * returns, on any rank, and no op that has not ended is taken for done. By any thread; may block for a bounded
     * time. */
    void (*give_up)(struct tti_streams *streams);
    /* Makes anew what this rank had on its device, which was opened again. No op of the comm is on it, and the other ranks do
     * not take part. May be called again after a failure. */
    tutti_status (*renew)(struct tti_streams *streams, tutti_error *error);
    void (*close)(struct tti_streams *streams);
};

static inline struct tti_started *tti_started_of(struct tti_op *op)
{
    return TTI_LIST_OF(op, struct tti_started, op);
}

/* Its end, or the end of copies for it, rings no bell. */
static inline bool tti_turn_is_polled(const struct tti_started *started)
{
    return started->turn != NULL && (started->turn->flies || started->turn->staging != NULL);
}

static inline bool tti_turn_flies(const struct tti_started *started)
{
    return started->turn != NULL && started->turn->flies;
}

/* For whoever is busy with the op's comm. Whether its stream has come to it: OK, IN_PROGRESS, or the error that broke
 * the comm since it never will. */
tutti_status tti_turn_come(struct tti_started *started);
/* True while so many of its comm's ops fly that no more are launched. */
static inline bool tti_turn_is_crowded(const struct tti_started *started)
{
    const struct tti_streams *streams = started->turn->comm->queue.streams;
    return atomic_load_explicit(&streams->flying, memory_order_relaxed) >= TTI_FLYING_MOST;
}

/* True if the meeting before this op may begin. */
bool tti_turn_may_meet(const struct tti_started *started);
/* The device has let it end without doing it, since its comm or the one that it was called on is broken: the error. */
tutti_status tti_turn_inherit(struct tti_started *started);
/* A stream that waited for its end was given up, and let go by the word that says so: the op is given up with it. */
tutti_status tti_turn_released(struct tti_started *started);
/* " (its stream has not come to it yet)" */
void tti_turn_detail(const struct tti_started *started, char *text, size_t bytes);
/* A meeting is over, or has failed: the op is issued, goes to its queue, or ends. */
void tti_turn_met(struct tti_started *started, tutti_status status, const tutti_error *error);
/* The first one is over: whoever launches does. */
void tti_turn_launch(struct tti_started *started);
/* What comes after the last one. The verdict was that a provider does it: it flies from now on. */
void tti_turn_fly(struct tti_started *started);
/* It takes long: somebody asks the device whether it has failed, which nobody who keeps a deadline does. */
void tti_turn_watch(struct tti_started *started);
/* The host carries it out after all: the stream will say when it has come to it. */
tutti_status tti_turn_put_reached(struct tti_started *started, tutti_error *error);
/* Memory that the op's kernels read: given back when it has ended. */
void tti_turn_lend(struct tti_turn *turn, struct tti_pinned *pinned);
/* It ends: for a trace. */
void tti_turn_trace(struct tti_started *started, tutti_status status);
/* The op has ended: its stream goes on, and a failure breaks the comm that it was called on. */
void tti_turn_end(struct tti_started *started, tutti_status status);
/* It could not be put on its stream, or the ranks have not met: it ends, and its comm is as it was. */
void tti_turn_fail(struct tti_started *started, tutti_status status, const tutti_error *error);
/* Of a prepared op: nothing is left of its last start. */
void tti_turn_reset(struct tti_started *started);
void tti_turn_drop(struct tti_turn *turn);       /* of an op that was never put anywhere */
void tti_turn_free(struct tti_started *started); /* its place is given back */

/* Waits until the ranks have met, the op has ended or the time is over; takes the meeting forward. */
void tti_turn_await_meeting(struct tti_started *started, int64_t until_ns);
/* The same, once. */
void tti_turn_help(struct tti_started *started, bool polls);

#endif
