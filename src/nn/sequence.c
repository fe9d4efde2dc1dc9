/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/sequence.h"

#include "base/alloc.h"

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

struct tti_span tti_rank_rows(const tutti_model *model, int rank, int64_t rows)
{
    const int here = model->width.here;
    return (struct tti_span){tti_grain_share(model, rows, rank * here).lo,
                             tti_grain_share(model, rows, rank * here + here - 1).hi};
}

size_t tti_rank_rows_most(const tutti_model *model, int64_t samples, int items)
{
    const int64_t rows = samples * model->shape.rows, here = model->width.here, grains = model->width.grains;
    if (model->shape.rows % grains == 0) return (size_t)(rows / grains * here);
    const int64_t most = (rows / grains + 1 + items) *
                         here; /* one more row in each of an item's blocks, and a part of a block */
    return (size_t)(most < rows ? most : rows);
}

size_t tti_boundary_floats(const tutti_model *model, int layer, int64_t samples, int items)
{
    const tutti_layer *last = model->layers[layer];
    const size_t rows = last->sliced_out ? tti_rank_rows_most(model, samples, items)
                                         : (size_t)(samples * model->shape.rows);
    return rows * (size_t)last->outputs;
}

/* ---- Which layers ---------------------------------------------------------------------------------------------- */

/* Returns true if another layer uses the layer's tensors, or it uses another's. */
static bool is_sharing(const tutti_model *model, const tutti_layer *layer)
{
    bool sharing = layer->shared_with >= 0;
    for (int i = 0; i < model->layer_count; i++) sharing |= model->layers[i]->shared_with == layer->index;
    return sharing;
}

static bool works_on_rows(const tutti_model *model, const tutti_layer *layer)
{
    return layer->cut == TUTTI_CUT_WHOLE && (layer->ops->cuts & TUTTI_CUT_ROWS) && layer->outputs > 0 &&
           layer->gathers == 0 && !is_sharing(model, layer);
}

/* Returns true if a layer that has all rows may leave each rank its slice of them. An output that is summed over ranks
 * and then changed by an activation must stay whole: backward reads it again. */
static bool can_scatter(const tutti_layer *layer)
{
    if (layer->outputs == 0 || layer->gathers > 0) return false;
    if (layer->meets && (layer->saved > 0 || layer->changes_gradient)) return false;
    return layer->cut == TUTTI_CUT_WHOLE || layer->cut == TUTTI_CUT_INPUTS || layer->cut == TUTTI_CUT_CLASSES;
}

/* Returns true if slices are of use behind the layer. */
static bool should_scatter(const tutti_model *model, const tutti_layer *layer)
{
    const tutti_layer *next = model->layers[layer->index + 1];
    return layer->add_from >= 0 || next->add_to >= 0 || works_on_rows(model, next);
}

/* Goes through the layers in order: a layer can work on slices if the one before it gives them. `whole`: outputs that
 * must be whole. */
static void slice_layers(tutti_model *model, const bool *whole)
{
    for (int i = 0; i + 1 < model->layer_count; i++) {
        tutti_layer *layer = model->layers[i];
        const bool sliced_in = i > 0 && model->layers[i - 1]->sliced_out;
        layer->sliced = !whole[i] && sliced_in && works_on_rows(model, layer);
        layer->sliced_out = !whole[i] && (layer->sliced || (can_scatter(layer) && should_scatter(model, layer)));
    }
}

/* A residual's rows must be laid out like those to which they are added. Returns true if another output must be whole
 * for that. */
static bool find_odd(const tutti_model *model, bool *whole)
{
    bool odd = false;
    for (int i = 0; i < model->layer_count; i++) {
        const int from = model->layers[i]->add_from - 1;
        if (from < 0 || model->layers[i]->sliced_out == model->layers[from]->sliced_out) continue;
        whole[i] = whole[from] = odd = true;
    }
    return odd;
}

bool tti_model_has_blocks(const tutti_model *model)
{
    bool any = false;
    for (int i = 0; i < model->layer_count; i++) any |= model->layers[i]->by_blocks;
    return any;
}

static bool has_slices(const tutti_model *model)
{
    bool any = false;
    for (int i = 0; i < model->layer_count; i++) any |= model->layers[i]->sliced_out;
    return any;
}

static tutti_status share_rows(tutti_model *model)
{
    bool *whole = tti_calloc((size_t)model->layer_count, sizeof *whole);
    if (whole == NULL) return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for a list of layers");
    do slice_layers(model, whole);
    while (find_odd(model, whole));
    tti_free(whole);
    if (has_slices(model)) return TUTTI_OK;
    return tti_model_refuse(
        model, NULL, TUTTI_ERR_ARGUMENT,
        "sequence: no layers of this model work on each row alone, as norms and dropout do: there is "
        "nothing to share out; leave it out");
}

tutti_status tti_model_slice(tutti_model *model)
{
    for (int i = 0; i < model->layer_count; i++) {
        tutti_layer *layer = model->layers[i];
        layer->by_blocks = layer->tensor_count > 0 && works_on_rows(model, layer);
    }
    return model->width.sequence && model->width.ranks > 1 ? share_rows(model) : TUTTI_OK;
}
