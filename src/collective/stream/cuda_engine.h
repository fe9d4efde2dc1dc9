/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider `cuda`: ranks that share a device, as threads or as processes. One of them, the launcher, runs one kernel for
 * all, which reads all inputs and writes all outputs:
 *
 *   every rank    raises its word `ready` on its stream
 *   the launcher  lets its stream hold for all of these, and launches the kernel, which raises the word `done` at its end
 *   every rank    lets its stream hold for `done`
 *
 * so that processes which only wait never make the GPU switch between them. Between ranks of the launcher's process marks stand
 * for both, which a GPU passes on sooner: one of a few, that of the op's number, so that nobody waits for an op after it. A rank
 * that is so many ops ahead of the launches shows that its word is to be waited for. Words are raised in any case: whoever
 * looks at them is on the host.
 *
 * Ranks meet on the host before the launch (turn.h):
 * a kernel never sees counts that differ.
 *
 * When a rank is lost, what it would raise is never raised. Those who are left then set `abort`, which kernels read first, and
 * raise all words far: every stream goes on, and nothing is touched.
 */
#ifndef TTI_COLLECTIVE_CUDA_ENGINE_H
#define TTI_COLLECTIVE_CUDA_ENGINE_H

#include "collective/peers/offers.h"
#include "collective/stream/streams.h"

/* In memory of the host that all ranks' processes map and have told their device of. */
struct tti_cuda_words {
    struct tti_word *abort, *done;
    struct tti_word *ready; /* [size] */
};

enum { TTI_CUDA_SLOTS = 16 };

/* Marks for ops of this number and so many more. */
struct tti_cuda_marks {
    struct tti_mark *slots[TTI_CUDA_SLOTS]; /* a reference each, or NULL */
};

struct tti_cuda_engine {
    tutti_comm *comm;
    struct tti_streams *streams;
    struct tti_device *device; /* the one of `streams` */
    struct tti_cuda_words words;
    char *shared;                  /* where `words` lie, told to the device by this rank; or NULL */
    bool near;                     /* this rank is of the launcher's process */
    uint64_t launched;             /* ops so far, by the launcher's count: `done` is raised to it */
    const void *launched_on;       /* the stream that the last of them was put on */
    uint64_t readies;              /* raised by this rank */
    _Atomic uint64_t followed;     /* the last of these whose op was launched */
    struct tti_cuda_marks ready;   /* of this rank, if it is near and not the launcher */
    struct tti_cuda_marks ended;   /* behind launches; of the launcher's process */
    struct tti_cuda_marks *others; /* (size) the launcher's: `ready` of the near ones */
    struct tti_mark *raised;       /* behind the last of them, */
    const void *raised_on;         /* which was put on this stream */
    struct tti_memory counters;    /* of kernels */
    uint32_t tickets;
    struct tti_offers offers; /* of all ranks, to the launcher */
    const void **in;          /* (size each) the arguments of a launch */
    void **out;
    double *factors;
    size_t *counts;
    struct tti_gpu_flow *flows; /* (size * size) */
    uint64_t *tables;           /* of a v-form; NULL: there was none yet */
};

/* What a rank shows of an op: this, the places of each piece, `in` before `out`, and its row of a v-form. */
struct tti_cuda_shown {
    uint64_t ready;    /* what its word is raised to */
    uint64_t by_marks; /* not 0: its mark of that number stands for it */
    double factor;
    struct tti_offer places[];
};

/* cuda_launch.c. What the kernel will need, before the ranks meet; and the launch. */
tutti_status tti_cuda_prepare(const struct tti_started *started, struct tti_gpu_kernel *kernel, tutti_error *error);
/* Once all have shown theirs: whether every buffer can be reached, and if so that nothing else stands against the op. */
tutti_status tti_cuda_check_shown(struct tti_cuda_engine *engine, struct tti_started *started, bool *reaches,
                                  tutti_error *error);
/* The word `done` is raised to that number behind it. */
tutti_status tti_cuda_launch_all(struct tti_cuda_engine *engine, struct tti_started *started, uint64_t done,
                                 tutti_error *error);
size_t tti_cuda_shown_bytes(const struct tti_op *op);
const struct tti_cuda_shown *tti_cuda_shown_of(const struct tti_started *started, int rank);

#endif
