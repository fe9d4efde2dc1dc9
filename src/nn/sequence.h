/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharing out rows among ranks that share a model's width. An item's flat rows are cut into blocks, one for each width
 * grain; a rank's slice is the blocks of its grains, which lie one after the other.
 *
 * Where they are shared out, a layer's output is either whole on every rank, or each rank has its slice. Layers that work on
 * each row alone (TUTTI_CUT_ROWS) do their slice; to all others rows are gathered before, and what such a layer puts out is
 * summed and scattered, or, where every rank has all of it, each keeps its slice. Backward it is the other way round.
 *
 * Invariant: gradients of tensors of layers that work on rows are sums over blocks, in the canonical tree, whether rows are
 * shared out or not. A rank's blocks are a subtree, so the tree over ranks is the rest of it. Products always have whole
 * items: their bits depend on how many rows they have.
 */
#ifndef TTI_NN_SEQUENCE_H
#define TTI_NN_SEQUENCE_H

#include "nn/width.h"

/* Decides which layers sum over blocks, and which are sliced; of a model that is placed in several grains. */
tutti_status tti_model_slice(tutti_model *model);

/* True if some layer's gradients are sums over blocks. */
bool tti_model_has_blocks(const tutti_model *model);

/* Rows that rank `rank` has of an item of `rows`. */
struct tti_span tti_rank_rows(const tutti_model *model, int rank, int64_t rows);
/* The most that this rank may have, of so many samples in up to so many items. */
size_t tti_rank_rows_most(const tutti_model *model, int64_t samples, int items);

/* What passes between a layer and the next one, where these are in different passes, of such a batch. */
size_t tti_boundary_floats(const tutti_model *model, int layer, int64_t samples, int items);

/* True if rows must be gathered before the layer's forward. */
static inline bool tti_layer_gathers_in(const tutti_model *model, const tutti_layer *layer)
{
    return layer->index > 0 && model->layers[layer->index - 1]->sliced_out && !layer->sliced;
}

/* True if the gradients of its output must be gathered before its backward, and its output is scattered, or cut, after its
 * forward. */
static inline bool tti_layer_scatters_out(const tutti_layer *layer)
{
    return layer->sliced_out && !layer->sliced;
}

/* True if the layer itself adds what a residual brings; else the pass does, after what is summed over ranks or grains. So it
 * is with layers of whole rows, too: it may be that only some of their rows are wanted here. */
static inline bool tti_layer_adds(const tutti_model *model, const tutti_layer *layer)
{
    const bool whole = layer->cut == TUTTI_CUT_WHOLE && !(layer->ops->cuts & TUTTI_CUT_ROWS);
    return layer->ops->adds && (model->width.grains == 1 || !whole);
}

#endif
