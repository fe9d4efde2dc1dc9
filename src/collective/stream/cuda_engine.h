/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider `cuda`: ranks that share a device, as threads or as processes. One of them, the launcher, runs one
 * kernel for all, which reads all inputs and writes all outputs:
 *
 *   every rank    raises its word `ready` on its stream
 *   the launcher  lets its stream hold for all of these, and launches the kernel, which raises the word `done` at its
 *                 end
 *   every rank    lets its stream hold for `done`
 *
 * So processes that only wait never make the GPU switch between them. Between ranks of the launcher's process marks
 * stand for both words, since a GPU passes marks on sooner. Each rank has a few of them, and an op uses the one of its
 * number, so that no stream waits for a later op. A rank that is so many ops ahead of the launches says that its word
 * must be waited for. Words are raised in any case, for threads on the host that read them.
 *
 * Ranks meet on the host before the launch (turn.h): a kernel never sees counts that differ.
 *
 * When a rank is lost, its word is never raised. The ranks that are left then set `abort`, which kernels read first,
 * and raise all words far: every stream goes on, and nothing is touched.
 */
#ifndef TTI_COLLECTIVE_CUDA_ENGINE_H
#define TTI_COLLECTIVE_CUDA_ENGINE_H

#include "collective/peers/offers.h"
#include "collective/stream/streams.h"

/* Words in memory of the host that all ranks' processes map and have registered with their device. */
struct tti_cuda_words {
    struct tti_word *abort, *done;
    struct tti_word *ready; /* [size] */
};

enum { TTI_CUDA_SLOTS = 16 };

/* Marks for as many consecutive ops. */
struct tti_cuda_marks {
    struct tti_mark *slots[TTI_CUDA_SLOTS]; /* references, or NULL */
    uint64_t reached;                       /* the generation of their device that ours reaches; 0: none yet */
};

/* cuda_marks.c. make: makes marks, with handles, since another rank's thread may be late and find them void. revoke: voids the
 * handles once all ranks have taken the marks, which they keep. */
tutti_status tti_cuda_marks_make(struct tti_device *device, struct tti_cuda_marks *marks, uint64_t *handles,
                                 tutti_error *error);
void tti_cuda_marks_revoke(const uint64_t *handles);
tutti_status tti_cuda_marks_take(struct tti_cuda_marks *marks, const uint64_t *handles, tutti_error *error);
void tti_cuda_marks_give(struct tti_cuda_marks *marks);
/* Called by the rank that made them after its device was opened again. Others hold them too, and use them only when they have
 * met this rank. */
tutti_status tti_cuda_marks_renew(struct tti_cuda_marks *marks, tutti_error *error);
static inline struct tti_mark *tti_cuda_mark_of(const struct tti_cuda_marks *marks, uint64_t number)
{
    return marks->slots[number % TTI_CUDA_SLOTS];
}

struct tti_cuda_engine {
    tutti_comm *comm;
    struct tti_streams *streams;
    struct tti_device *device; /* the device of `streams` */
    struct tti_cuda_words words;
    char *shared;                  /* where `words` lie, registered with the device by this rank; or NULL */
    bool near;                     /* this rank is in the launcher's process */
    uint64_t launched;             /* the launcher's count of ops: `done` is raised to it */
    const void *launched_on;       /* the stream of the last of them */
    uint64_t readies;              /* how often this rank has raised its word */
    _Atomic uint64_t followed;     /* the last of these whose op was launched */
    struct tti_cuda_marks ready;   /* this rank's marks, if it is near and not the launcher */
    struct tti_cuda_marks ended;   /* marks behind launches; those of the launcher's process */
    struct tti_cuda_marks *others; /* (size) the launcher's copies of the near ranks' `ready` */
    struct tti_mark *raised;       /* recorded behind the last raise of this rank's word */
    const void *raised_on;         /* the stream of that raise */
    tutti_buffer *counting;        /* the memory of `counters` */
    uint32_t *counters;            /* two counters for kernels */
    bool cleared;                  /* true once the counters were set to 0 */
    uint32_t tickets;
    struct tti_offers offers; /* offers of all ranks, for the launcher */
    const void **in;          /* (size each) the arguments of a launch */
    void **out;
    double *factors;
    size_t *counts;
    struct tti_gpu_flow *flows; /* (size * size) */
    uint64_t *tables;           /* tables of a v-form; NULL: there was none yet */
};

/* The data of an op that a rank shows: this, the places of each piece, `in` before `out`, and its row of a v-form. */
struct tti_cuda_shown {
    uint64_t ready;    /* the value to which its word is raised */
    uint64_t by_marks; /* not 0: the rank's mark of that number stands for the word */
    double factor;
    struct tti_offer places[];
};

/* cuda_launch.c. Finds what the kernel needs, before the ranks meet. */
tutti_status tti_cuda_prepare(const struct tti_started *started, struct tti_gpu_kernel *kernel, tutti_error *error);
/* Called when all have shown theirs: finds whether every buffer can be reached, and if so checks the rest of the op. */
tutti_status tti_cuda_check_shown(struct tti_cuda_engine *engine, struct tti_started *started, bool *reaches,
                                  tutti_error *error);
/* Launches the kernels; behind them the word `done` is raised to that number. */
tutti_status tti_cuda_launch_all(struct tti_cuda_engine *engine, struct tti_started *started, uint64_t done,
                                 tutti_error *error);
size_t tti_cuda_shown_bytes(const struct tti_op *op);
const struct tti_cuda_shown *tti_cuda_shown_of(const struct tti_started *started, int rank);

#endif
