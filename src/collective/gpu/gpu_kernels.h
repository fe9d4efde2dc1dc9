/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU runs one kernel for a collective, which reads all ranks' inputs and writes all outputs. There are three of
 * them:
 *   fold   inputs -> their reduction, whole to every output, or a slice to each
 *   scan   inputs -> all prefixes of the reduction
 *   move   a list of copies
 * Results have the same bits as tti_reduce and tti_scan give on the host (reduce.h). Device `host` runs the same
 * source, compiled by the C compiler, in one thread.
 *
 * Pointers lead to memory that the device can reach. They need no alignment; kernels are fast if all are equal modulo
 * 16. An output may be exactly the input, or the slice of the input, that the same rank has there; other overlaps are
 * not allowed.
 */
#ifndef TTI_COLLECTIVE_GPU_KERNELS_H
#define TTI_COLLECTIVE_GPU_KERNELS_H

#include "collective/reduce/reduce.h"
#include "device/ops.h"
#include "device/pinned.h"

enum { TTI_GPU_RANKS = 1024 }; /* most inputs of a fold or a scan */

enum tti_gpu_work { TTI_GPU_FOLD, TTI_GPU_SCAN, TTI_GPU_MOVE };

/* A kernel that is ready on a device, until the device is shut down or opened again. May be copied. */
struct tti_gpu_kernel {
    const struct tti_kernel *few, *many; /* for short and for long lists; NULL: not needed for so many ranks */
    enum tti_gpu_work work;
    struct tti_reducer reducer; /* for fold and scan */
    int multiprocessors;
};

/* Compiles the kernel or finds it (in memory, on disk), and loads it. `reducer` is NULL for move; `ranks` is the number
 * of inputs that will be given, or for move of ranks. Loading waits for all work on a GPU, and compiling takes seconds:
 * call this before a stream holds for something that only the caller can do. From the second call on it is a short
 * search. ERR_UNSUPPORTED: a user's function, too many ranks, or NVRTC is missing or fails (the sentence has its
 * log). */
tutti_status tti_gpu_prepare(struct tti_device *device, enum tti_gpu_work work, const struct tti_reducer *reducer,
                             int ranks, struct tti_gpu_kernel *kernel, tutti_error *error);

/* Further arguments of a launch. They may all be zero. Words are of word.h, or registered with the device. */
struct tti_gpu_launch {
    const struct tti_word *abort; /* if it is not 0 when a block of threads begins, that block does nothing */
    struct tti_word *done;        /* raised to `value` when no block will touch anything any more, also if aborted */
    uint64_t value;
    /* Two words of the device's memory, 0 at first, used by one launch at a time. `done` needs them. With `abort` they
     * make launches faster: the host's memory is read once then, and not by each block. */
    uint32_t *counters;
    /* needed with both: from 1 on, below 2^31, and different from that of the launch before with these words */
    uint32_t ticket;
    /* Set by the launch: memory with a long list, to be given back (tti_pinned_give) when the work is done. Often
     * NULL. */
    struct tti_pinned *lists;
};

/* Sets out[k][i] = the reduction of all in[r][i]. AVG divides by `inputs`. */
struct tti_gpu_fold {
    int inputs, outputs;   /* from 1 to TTI_GPU_RANKS each */
    const void *const *in; /* [inputs] */
    const double *factors; /* [inputs], for a scaled sum; else not read */
    void *const *out;      /* [outputs] */
    size_t count;          /* elements of every input; and of every output, unless `counts` is set */
    /* [outputs], or NULL. Slices: out[0] gets the first counts[0] elements, out[1] those after them */
    const size_t *counts;
};
tutti_status tti_gpu_fold(struct tti_stream *stream, const struct tti_gpu_kernel *kernel,
                          const struct tti_gpu_fold *fold, struct tti_gpu_launch *launch, tutti_error *error);

/* Sets out[r][i] = the reduction of in[0 .. r][i]; or if exclusive, of in[0 .. r-1][i], and out[0] is left as it is. */
struct tti_gpu_scan {
    int ranks;
    const void *const *in; /* [ranks] */
    const double *factors; /* [ranks], for a scaled sum */
    void *const *out;      /* [ranks]; NULL: not written */
    bool exclusive;
    size_t count;
};
tutti_status tti_gpu_scan(struct tti_stream *stream, const struct tti_gpu_kernel *kernel,
                          const struct tti_gpu_scan *scan, struct tti_gpu_launch *launch, tutti_error *error);

/* One copy. Flows of one list may be done in any order. Consecutive ones with the same `from` and `bytes` are read
 * once. A flow from a place to itself is left out. */
struct tti_gpu_flow {
    const void *from;
    void *to;
    size_t bytes;
    bool swap; /* the data at `to` go to `from` as well (all_to_all in place: one flow for each pair of ranks) */
};
tutti_status tti_gpu_move(struct tti_stream *stream, const struct tti_gpu_kernel *kernel,
                          const struct tti_gpu_flow *flows, size_t flow_count, struct tti_gpu_launch *launch,
                          tutti_error *error);

#endif
