/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of weights, part by part: within a part, the grains' gradients are made one after the other and summed in
 * the canonical tree, with one scratch layer per level of the tree. For a layer that works on rows a grain's gradient
 * is a sum over blocks of its rows (sequence.h).
 *
 * A tensor that several layers use gets its gradient at the turn of its owner, the first of them: the owner's grain
 * gradient is then the sum of all, before any summing over grains. With how->tied each layer's gradients are summed
 * over grains separately, since the layers may be on different ranks.
 */
#include "nn/nn_kernels.h"
#include "nn/pass_backward.h"
#include <string.h>

/* One part of a width grain of one layer's gradients; its tensors lie at `base` in the same order as in the
 * gradients. */
struct piece {
    const struct tti_backward *backward;
    int grain, part, thread;
    float *base;
};

/* Calls `act` on every run of elements that belongs to the part. */
static void each_run(const struct piece *piece, void (*act)(float *to, const float *from, size_t count),
                     const float *from_base)
{
    const tutti_model *model = piece->backward->pass->model;
    const tutti_layer *layer = piece->backward->layer;
    for (int t = 0; t < layer->tensor_count; t++) {
        const tutti_tensor *tensor = &model->tensors[layer->tensors[t]];
        const bool by_row = layer->ops->parts_by_row;
        const int64_t places = tti_piece_extent(model, tensor, piece->grain, by_row ? 0 : tensor->dimensions - 1);
        int64_t from, to;
        tutti_part_range(places, piece->part, piece->backward->parts, &from, &to);
        if (from == to || (piece->grain > 0 && !tti_tensor_is_cut(tensor))) continue;
        const size_t start = tensor->offset - tti_layer_offset(model, layer) +
                             tti_piece_offset(model, tensor, piece->grain);
        const size_t elements = tti_piece_elements(model, tensor, piece->grain);
        const size_t row = by_row ? elements / (size_t)places : (size_t)places;
        if (by_row)
            act(piece->base + start + (size_t)from * row, from_base + start + (size_t)from * row,
                (size_t)(to - from) * row);
        for (size_t at = start; !by_row && at < start + elements; at += row)
            act(piece->base + at + from, from_base + at + from, (size_t)(to - from));
    }
}

static void clear_run(float *to, const float *from, size_t count)
{
    (void)from;
    memset(to, 0, count * sizeof *to);
}

static void add_run(float *to, const float *from, size_t count)
{
    tti_nn_kernels()->add(to, to, from, count);
}

static void copy_run(float *to, const float *from, size_t count)
{
    memcpy(to, from, count * sizeof *to);
}

/* Adds one layer's contribution for some of an item's rows; all rows if `rows` is NULL. `added`: a bit for each tensor
 * that has data to which the contribution is added. */
static void contribute(const struct piece *piece, const tutti_layer *layer, const struct tti_item *item,
                       const struct tti_span *rows, unsigned added)
{
    const struct tutti_pass *pass = piece->backward->pass;
    const tutti_model *model = pass->model;
    const struct tti_layer_place *place = &pass->places[layer->index];
    tutti_call call = tti_pass_call(pass, layer, item, piece->thread);
    tti_pass_set_gradients(pass, item, &call);
    call.in_gradient = NULL;
    if (place->stays != NULL) call.out_gradient = place->stays + item->first * model->shape.rows * layer->outputs;
    const size_t offset = tti_layer_offset(model, piece->backward->layer);
    for (int t = 0; t < layer->tensor_count; t++) {
        const tutti_tensor *tensor = &model->tensors[layer->tensors[t]];
        call.gradients[t] = piece->base + (tensor->offset - offset) + tti_piece_offset(model, tensor, piece->grain);
        call.accumulate[t] = (added >> t & 1) != 0;
    }
    call.grain = piece->grain;
    call.part = piece->part;
    call.parts = piece->backward->parts;
    if (rows != NULL) tti_call_narrow(&call, *rows);
    layer->ops->backward_weights(&call);
}

/* Adds one block of an item's rows. */
static void block_leaf(const struct piece *piece, const struct tti_item *item, int block, unsigned added)
{
    const struct tutti_pass *pass = piece->backward->pass;
    const tutti_layer *layer = piece->backward->layer;
    struct tti_span rows = tti_grain_share(pass->model, item->samples * pass->model->shape.rows, block);
    if (layer->sliced) rows.lo -= item->slice.lo;
    if (layer->sliced) rows.hi -= item->slice.lo;
    if (rows.hi > rows.lo)
        contribute(piece, layer, item, &rows, added);
    else if (added == 0)
        each_run(piece, clear_run, piece->base);
}

/* Sums blocks `from` to `to` - 1 of an item's rows into piece->base, in the canonical tree. */
static void block_tree(const struct piece *piece, const struct tti_item *item, int from, int to, int depth,
                       unsigned added)
{
    const struct tutti_pass *pass = piece->backward->pass;
    if (to - from == 1) {
        block_leaf(piece, item, from, added);
        return;
    }
    int half = 1;
    while (2 * half < to - from) half *= 2;
    struct piece right = *piece;
    right.base = pass->block_tree + (size_t)piece->thread * pass->block_tree_each +
                 (size_t)depth * tti_layer_elements(pass->model, piece->backward->layer);
    block_tree(piece, item, from, from + half, depth + 1, added);
    block_tree(&right, item, from + half, to, depth + 1, 0);
    each_run(piece, add_run, right.base);
}

/* Takes the sums that were made for slices; in fast mode those of all items. */
static void sums_leaf(const struct piece *piece, const struct tti_item *item, unsigned added)
{
    const struct tutti_pass *pass = piece->backward->pass;
    const tutti_layer *layer = piece->backward->layer;
    const bool all = pass->batch.grain_bounds == NULL;
    for (int i = 0; i < pass->item_count; i++) {
        if (!all && item != &pass->items[i]) continue;
        const float *sums = pass->places[layer->index].sums + (size_t)i * tti_layer_elements(pass->model, layer);
        each_run(piece, added ? add_run : copy_run, sums);
        added = ~0u;
    }
}

/* Computes the part's gradient for some rows: for the layers that share its first tensor, then for the layer itself. */
static void leaf(const struct piece *piece, const struct tti_item *item)
{
    const tutti_layer *owner = piece->backward->layer;
    const tutti_model *model = piece->backward->pass->model;
    unsigned added = piece->backward->how->accumulate ? ~0u : 0;
    if (item->samples == 0) {
        if (added == 0) each_run(piece, clear_run, piece->base);
        return;
    }
    if (owner->sliced && owner->by_blocks) {
        sums_leaf(piece, item, added);
        return;
    }
    if (owner->by_blocks) {
        block_tree(piece, item, 0, model->width.grains, 0, added);
        return;
    }
    bool together = piece->backward->how->tied == NULL;
    for (int i = piece->backward->pass->layers.hi - 1; together && i > owner->index; i--) {
        if (model->layers[i]->shared_with != owner->index) continue;
        contribute(piece, model->layers[i], item, NULL, added);
        added |= 1;
    }
    contribute(piece, owner, item, NULL, added);
}

/* Sums the grains from `from` to `to` into piece->base. */
static void tree(const struct piece *piece, int from, int to, int depth)
{
    const struct tutti_pass *pass = piece->backward->pass;
    if (to - from == 1) {
        leaf(piece, &pass->items[from]);
        return;
    }
    int half = 1;
    while (2 * half < to - from) half *= 2;
    struct piece right = *piece;
    right.base = pass->tree[depth];
    tree(piece, from, from + half, depth + 1);
    tree(&right, from + half, to, depth + 1);
    each_run(piece, add_run, right.base);
}

static void weights_body(void *context, int thread, int threads)
{
    (void)threads;
    const struct tti_backward *backward = context;
    const struct tutti_pass *pass = backward->pass;
    struct tti_item all = {.first = 0, .samples = pass->batch.samples};
    for (int64_t i; (i = tti_pool_take(pass->pool)) < (int64_t)backward->grains * backward->parts;) {
        struct piece piece = {.backward = backward, .thread = thread};
        piece.grain = (int)i / backward->parts;
        piece.part = (int)i % backward->parts;
        for (int k = 0; k < backward->subtrees; k++) {
            piece.base = backward->bases[k];
            if (pass->batch.grain_bounds == NULL)
                leaf(&piece, &all);
            else
                tree(&piece, backward->bounds[k], backward->bounds[k + 1], 0);
        }
    }
}

void tti_weights_make(struct tti_backward *backward)
{
    tti_pool_run(backward->pass->pool, weights_body, backward);
}

/* ---- Of slices ------------------------------------------------------------------------------------------------- */

static void slices_body(void *context, int thread, int threads)
{
    (void)threads;
    const struct tti_backward *backward = context;
    const struct tutti_pass *pass = backward->pass;
    const tutti_layer *layer = backward->layer;
    const int first = pass->model->width.first;
    for (int64_t i; (i = tti_pool_take(pass->pool)) < pass->item_count;) {
        struct piece piece = {.backward = backward, .thread = thread};
        piece.base = pass->places[layer->index].sums + (size_t)i * tti_layer_elements(pass->model, layer);
        block_tree(&piece, &pass->items[i], first, first + pass->model->width.here, 0, 0);
    }
}

void tti_weights_of_slices(struct tti_backward *backward, const tutti_layer *layer)
{
    if (!backward->pass->places[layer->index].has_sums) return;
    backward->layer = layer;
    backward->grains = backward->parts = 1;
    tti_pool_run(backward->pass->pool, slices_body, backward);
}
