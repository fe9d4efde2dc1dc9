/* SPDX-License-Identifier: Apache-2.0
 *
 * What a GPU runs for a collective: one kernel that reads all ranks' inputs and writes all outputs. There are three of them:
 *   fold   inputs -> their reduction, whole to every output, or a slice to each
 *   scan   inputs -> all prefixes of the reduction
 *   move   a list of copies
 * Results have the same bits as tti_reduce and tti_scan give on the host (reduce.h). Device `host` runs the same source,
 * compiled by the C compiler, in one thread.
 *
 * Pointers lead to memory that the device can reach. They need no alignment; kernels are fast where all lie alike modulo 16.
 * An output may be exactly the input, or the slice of the input, that the same rank has there; all else must lie apart.
 */
#ifndef TTI_COLLECTIVE_GPU_KERNELS_H
#define TTI_COLLECTIVE_GPU_KERNELS_H

#include "collective/reduce/reduce.h"
#include "device/ops.h"
#include "device/pinned.h"

enum { TTI_GPU_RANKS = 1024 }; /* most inputs of a fold or a scan */

enum tti_gpu_work { TTI_GPU_FOLD, TTI_GPU_SCAN, TTI_GPU_MOVE };

/* A kernel that is ready on a device, until that is shut down or opened again. May be copied. */
struct tti_gpu_kernel {
    const struct tti_kernel *few, *many; /* for short and for long lists; NULL: not needed for so many ranks */
    enum tti_gpu_work work;
    struct tti_reducer reducer; /* of fold and scan */
    int multiprocessors;
};

/* Compiles the kernel or finds it (in memory, on disk), and loads it. `reducer` is NULL for move; `ranks` is the number of
 * inputs that will be given, or for move of ranks. Loading waits for all work on a GPU, and compiling takes seconds:
 * to be called before a stream holds for what only the caller can do. From the second call on it is a short search.
 * ERR_UNSUPPORTED: a user's function, too many ranks, or NVRTC is missing or fails (the sentence has its log). */
tutti_status tti_gpu_prepare(struct tti_device *device, enum tti_gpu_work work, const struct tti_reducer *reducer,
                             int ranks, struct tti_gpu_kernel *kernel, tutti_error *error);

/* What goes with every launch. All zero will do. Words are of word.h, or enlisted on the device. */
struct tti_gpu_launch {
    const struct tti_word *abort; /* if it is not 0 when a block of threads begins, that block does nothing */
    struct tti_word *done;        /* is raised to `value` when no block will touch anything any more, also if aborted */
    uint64_t value;
    /* Two words of the device's memory, 0 at first; of one launch at a time. With `done` they are needed. With `abort` they
     * are better there: the host's memory is read once then, and not by each block. */
    uint32_t *counters;
    uint32_t ticket; /* with both: another one than the launch before had with these words, from 1 on, below 2^31 */
    /* Set by the launch: memory with a long list, to be given back (tti_pinned_give) when the work is done. Often NULL. */
    struct tti_pinned *lists;
};

/* out[k][i] = the reduction of all in[r][i]. AVG divides by `inputs`. */
struct tti_gpu_fold {
    int inputs, outputs;   /* at least 1; at most TTI_GPU_RANKS each */
    const void *const *in; /* [inputs] */
    const double *factors; /* [inputs], for a scaled sum; else not looked at */
    void *const *out;      /* [outputs] */
    size_t count;          /* elements of every input; and of every output, unless `counts` is set */
    const size_t *counts; /* [outputs], or NULL. Slices: out[0] gets the first counts[0] elements, out[1] those after */
};
tutti_status tti_gpu_fold(struct tti_stream *stream, const struct tti_gpu_kernel *kernel,
                          const struct tti_gpu_fold *fold, struct tti_gpu_launch *launch, tutti_error *error);

/* out[r][i] = the reduction of in[0 .. r][i], or exclusive, of in[0 .. r-1][i]; out[0] is left as it is then. */
struct tti_gpu_scan {
    int ranks;
    const void *const *in; /* [ranks] */
    const double *factors; /* [ranks], for a scaled sum */
    void *const *out;      /* [ranks]; NULL: not wanted */
    bool exclusive;
    size_t count;
};
tutti_status tti_gpu_scan(struct tti_stream *stream, const struct tti_gpu_kernel *kernel,
                          const struct tti_gpu_scan *scan, struct tti_gpu_launch *launch, tutti_error *error);

/* One copy. Flows of one list may be done in any order. Those that follow each other with the same `from` and `bytes` are
 * read once. One from where it goes to is left out. */
struct tti_gpu_flow {
    const void *from;
    void *to;
    size_t bytes;
    bool swap; /* what is at `to` goes to `from` as well (all_to_all in place: one flow for each pair of ranks) */
};
tutti_status tti_gpu_move(struct tti_stream *stream, const struct tti_gpu_kernel *kernel,
                          const struct tti_gpu_flow *flows, size_t flow_count, struct tti_gpu_launch *launch,
                          tutti_error *error);

#endif
