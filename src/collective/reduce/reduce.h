/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions over ranks: the meaning of each pair of type and reduction, and the kernels that compute them.
 *
 * Invariant: the result of every function here depends only on the inputs' values and their order, never on the
 * instruction set, alignment, block size or on how a range is cut into calls. The order is one binary tree over
 * sources: T(lo..hi) = T(lo..lo+p) (op) T(lo+p..hi), p the largest power of two below hi - lo. Partial results of 16-
 * and 8-bit floats stay f32 until the root of the tree; integer averages are summed in 64 bits.
 */
#ifndef TTI_COLLECTIVE_REDUCE_H
#define TTI_COLLECTIVE_REDUCE_H

#include <stdbool.h>
#include <tutti/tutti.h>

/* A reduction that was checked against a type: the values that kernels need, found once per operation. */
struct tti_reducer {
    tutti_type type;
    int code;                        /* a tutti_reduction below TUTTI_REDUCTION_COUNT, or a TTI_REDUCE_ code below */
    double factor;                   /* this rank's factor, for TTI_REDUCE_SCALED_SUM */
    tutti_reduce_function *function; /* for TTI_REDUCE_FUNCTION */
    void *context;
    uint32_t signature; /* equal on two ranks exactly when they asked for the same reduction (factors may differ) */
};
enum { TTI_REDUCE_SCALED_SUM = 32, TTI_REDUCE_FUNCTION = 33 };

/* Returns TUTTI_OK, or ERR_TYPE / ERR_ARGUMENT with a sentence in `why` (what is wrong and what is accepted). */
tutti_status tti_reducer_init(struct tti_reducer *reducer, tutti_type type, tutti_reduction reduction, char *why,
                              size_t why_bytes);

/* Does one pass: dsts[k][i] = tree over sources[0..source_count) at i, for all k and i < count. A destination may be
 * one of the sources exactly; other overlaps are not allowed. factors (one per source) are for SCALED_SUM, else NULL.
 * AVG divides by source_count. `stream`: write destinations past the caches. dst_count and source_count >= 1. */
void tti_reduce(const struct tti_reducer *reducer, const void *const *sources, const double *factors, int source_count,
                void *const *dsts, int dst_count, size_t count, bool stream);

/* Sets dsts[r][i] = tree over sources[0..r] (inclusive) or sources[0..r) (exclusive; dsts[0] is not touched); a NULL
 * dst is skipped. dsts[r] may be sources[r] exactly. AVG divides by the number of sources of that prefix. */
void tti_scan(const struct tti_reducer *reducer, const void *const *sources, const double *factors, int source_count,
              void *const *dsts, bool exclusive, size_t count, bool stream);

/* A contribution to tti_fold, of ranks first .. first + ranks, which must be a node of the canonical tree. */
struct tti_fold_source {
    const void *data;
    int first, ranks;
    bool partial;  /* true: in accumulators; false: a leaf of one rank, in elements */
    double factor; /* for a leaf of a scaled sum: that rank's factor */
};

/* Returns the bytes of one element of a partial result. */
size_t tti_accumulator_bytes(const struct tti_reducer *reducer);

/* Sets dst[i] = the tree over sources at i, for i < count; sources are in rank order without gaps. divisor 0: the
 * result is a partial, in accumulators; else elements, and AVG divides by it. dst may be exactly a source that has as
 * many bytes. Partials are aligned for the type, leaves lie anywhere. The bits are those that tti_reduce gives over all
 * leaves, however they are cut into sources. */
void tti_fold(const struct tti_reducer *reducer, const struct tti_fold_source *sources, int source_count, int divisor,
              void *dst, size_t count);

/* tti_kernels_name returns the kernels that run: "avx512", "avx2" or "portable". tti_kernels_force(NULL) goes back to
 * the best; it returns false if this CPU lacks them. For tests. */
const char *tti_kernels_name(void);
bool tti_kernels_force(const char *name);

#endif
