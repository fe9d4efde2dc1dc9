/* SPDX-License-Identifier: Apache-2.0
 *
 * Width grains inside the library: the place of a grain's part of a tensor, and sums over grains.
 *
 * Invariant: a grain's results depend on the grain's shape alone, and sums over grains are those of the canonical tree
 * over all grains. A rank has consecutive grains, as many as every other rank, and a power of two if there are several
 * ranks: its own sum is a subtree, and an all_reduce over the ranks is the rest of the tree.
 *
 * Grains are counted from this rank's first, unless said otherwise.
 */
#ifndef TTI_NN_WIDTH_H
#define TTI_NN_WIDTH_H

#include "base/share.h"
#include "nn/model.h"

enum {
    TTI_WIDTH_GRAINS_MOST = 1024,
    TTI_WIDTH_ROWS = 128 /* rows that are summed at a time, so that the summands stay in the cache */
};

static inline bool tti_tensor_is_cut(const tutti_tensor *tensor)
{
    return tensor->placement == TUTTI_SHARDED;
}

/* Returns the part of `length` places that grain number `grain` of the model has. */
static inline struct tti_span tti_grain_share(const tutti_model *model, int64_t length, int grain)
{
    return tti_share((size_t)length, (size_t)grain, (size_t)model->width.grains);
}

/* Returns how many places of a cut dimension grains first..to of the model have, in all sections. */
int64_t tti_grains_length(const tutti_model *model, int64_t length, int sections, int from, int to);

/* A grain's piece of a tensor: returns where it begins, behind the tensor's offset; its elements; its extent in one
 * dimension. If a tensor is not cut, grain 0 is all of it. */
size_t tti_piece_offset(const tutti_model *model, const tutti_tensor *tensor, int grain);
size_t tti_piece_elements(const tutti_model *model, const tutti_tensor *tensor, int grain);
size_t tti_piece_room(const tutti_model *model, const tutti_tensor *tensor, int grain); /* its elements with padding */
int64_t tti_piece_extent(const tutti_model *model, const tutti_tensor *tensor, int grain, int dimension);
/* Returns how many pieces of it are on this rank. */
int tti_piece_count(const tutti_model *model, const tutti_tensor *tensor);

/* Calls `run` for every run of a piece's elements that is a run in the whole tensor, too; `local` counts from the
 * tensor's offset. */
typedef void tti_piece_run(void *context, size_t local, size_t global, size_t count);
void tti_piece_runs(const tutti_model *model, const tutti_tensor *tensor, int grain, tti_piece_run *run, void *context);
/* Does the same for elements `within` of the whole tensor. */
void tti_piece_runs_within(const tutti_model *model, const tutti_tensor *tensor, int grain, struct tti_span within,
                           tti_piece_run *run, void *context);
/* Returns the place of element `index` of a piece in the whole tensor. */
size_t tti_piece_global(const tutti_model *model, const tutti_tensor *tensor, int grain, size_t index);

/* Sets out (rows, width) = the sum over this rank's grains of the rows that `leaf` writes: `rows` rows of the call's
 * from `first` on, in rows of `width`. Needs tti_width_scratch floats of the call's scratch. */
typedef void tti_width_leaf(tutti_call *call, int grain, int64_t first, int64_t rows, float *out);
void tti_width_sum(tutti_call *call, int64_t width, tti_width_leaf *leaf, float *out);
int64_t tti_width_scratch(const tutti_model *model, int64_t width);

/* Fills with −0.0, which changes no sum. */
void tti_fill_nothing(float *out, size_t count);

#endif
