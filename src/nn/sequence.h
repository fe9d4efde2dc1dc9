/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are shared out among ranks that share a model's width. An item's flat rows are cut into blocks, one for
 * each width grain; a rank's slice is the blocks of its grains, which lie one after the other.
 *
 * Then a layer's output is either whole on every rank, or each rank has its slice. Layers that work on each row by
 * itself (TUTTI_CUT_ROWS) work on their slice; for all others rows are gathered first, and their output is summed and
 * scattered or, if every rank has all of it, each keeps its slice. In backward it is the other way round.
 *
 * Invariant: gradients of tensors of layers that work on rows are sums over blocks, in the canonical tree, whether rows
 * are shared out or not. A rank's blocks are a subtree, so the tree over ranks is the rest of it. Matrix products
 * always use whole items, since their bits depend on the number of rows.
 */
#ifndef TTI_NN_SEQUENCE_H
#define TTI_NN_SEQUENCE_H

#include "nn/width.h"

/* Decides which layers sum over blocks, and which are sliced, in a model that is placed in several grains. */
tutti_status tti_model_slice(tutti_model *model);

/* Returns true if some layer's gradients are sums over blocks. */
bool tti_model_has_blocks(const tutti_model *model);

/* Returns the rows of an item of `rows` that rank `rank` has. */
struct tti_span tti_rank_rows(const tutti_model *model, int rank, int64_t rows);
/* Returns the most rows that this rank may have, for so many samples in up to so many items. */
size_t tti_rank_rows_most(const tutti_model *model, int64_t samples, int items);

/* Returns the floats that pass between a layer and the next one, if these are in different passes, for such a batch. */
size_t tti_boundary_floats(const tutti_model *model, int layer, int64_t samples, int items);

/* Returns true if rows must be gathered before the layer's forward. */
static inline bool tti_layer_gathers_in(const tutti_model *model, const tutti_layer *layer)
{
    return layer->index > 0 && model->layers[layer->index - 1]->sliced_out && !layer->sliced;
}

/* Returns true if the gradients of its output must be gathered before its backward, and its output is scattered, or
 * cut, after its forward. */
static inline bool tti_layer_scatters_out(const tutti_layer *layer)
{
    return layer->sliced_out && !layer->sliced;
}

/* Returns true if the layer itself adds a residual's rows; otherwise the pass adds them, after sums over ranks or
 * grains. The pass does so for layers of whole rows, too, since it may be that only some of their rows are used
 * here. */
static inline bool tti_layer_adds(const tutti_model *model, const tutti_layer *layer)
{
    const bool whole = layer->cut == TUTTI_CUT_WHOLE && !(layer->ops->cuts & TUTTI_CUT_ROWS);
    return layer->ops->adds && (model->width.grains == 1 || !whole);
}

#endif
