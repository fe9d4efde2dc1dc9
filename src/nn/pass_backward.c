/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward: layer by layer from the last to the first. First the gradients of the layer's input, item by item; when all
 * are done, the gradients of its weights, part by part: within a part, the grains' gradients are made one after the
 * other and summed in the canonical tree, with one scratch layer per level of the tree.
 *
 * A tensor that several layers use gets its gradient at the turn of its owner, the first of them: that one's grain
 * gradient is then the sum of all, before any summing over grains. With how->tied each layer's gradients are summed over
 * grains by themselves, since the layers may be on different ranks.
 */
#include "nn/nn_kernels.h"
#include "nn/pass.h"
#include "nn/width.h"
#include <string.h>

struct backward {
    struct tutti_pass *pass;
    const tutti_backward *how;
    const tutti_layer *layer;
    int grains, parts; /* width grains of the layer, and the parts of each */
    int subtrees;
    const int *bounds;
    float *const *gradients;
    float *bases[TUTTI_SUBTREES_MAX]; /* where the layer's gradients go, by subtree */
};

/* ---- For inputs ------------------------------------------------------------------------------------------------ */

static void input_item(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item, int thread)
{
    const struct tti_layer_place *place = &pass->places[layer->index];
    const int64_t row = item->first * pass->model->shape.rows;
    tutti_call call = tti_pass_call(pass, layer, item, thread);
    if (place->slot >= 0 && layer->outputs > 0) call.out_gradient = pass->slots[place->slot] + row * layer->outputs;
    if (place->held_slot >= 0)
        memcpy(call.out_gradient, pass->slots[place->held_slot] + row * layer->outputs,
               (size_t)(call.rows * layer->outputs) * sizeof(float));
    if (layer->index > 0) call.in_gradient = pass->slots[tti_layer_place_slot(&place[-1])] + row * layer->inputs;
    const float *residual = place->add_slot >= 0 ? pass->slots[place->add_slot] + row * layer->inputs : NULL;
    const bool adds = tti_layer_adds_back(layer);
    if (adds) call.add = residual;
    layer->ops->backward_input(&call);
    if (residual != NULL && !adds && !layer->meets_back)
        tti_nn_kernels()->add(call.in_gradient, call.in_gradient, residual, (size_t)(call.rows * layer->inputs));
    if (place->stays != NULL)
        memcpy(place->stays + row * layer->outputs, call.out_gradient,
               (size_t)(call.rows * layer->outputs) * sizeof(float));
}

/* Ranks that share the width add up their gradients of the layer's input; what a residual brings is added after that. */
static tutti_status meet(struct tutti_pass *pass, const tutti_layer *layer)
{
    const struct tti_layer_place *place = &pass->places[layer->index];
    if (!layer->meets_back || layer->index == 0) return TUTTI_OK;
    float *gradient = pass->slots[tti_layer_place_slot(&place[-1])];
    tutti_status status = tti_pass_sum(pass, layer, gradient, layer->inputs);
    if (status == TUTTI_OK && place->add_slot >= 0)
        tti_nn_kernels()->add(gradient, gradient, pass->slots[place->add_slot],
                              tti_pass_rows(pass) * (size_t)layer->inputs);
    return status;
}

static void input_body(void *context, int thread, int threads)
{
    (void)threads;
    const struct backward *backward = context;
    const struct tutti_pass *pass = backward->pass;
    for (int64_t i; (i = tti_pool_take(pass->pool)) < pass->item_count;)
        if (pass->items[i].samples > 0) input_item(pass, backward->layer, &pass->items[i], thread);
}

/* ---- For weights ----------------------------------------------------------------------------------------------- */

/* One part of a width grain of one layer's gradients, whose tensors lie at `base` as they lie in the gradients. */
struct piece {
    const struct backward *backward;
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

/* One layer's contribution for some rows. `added`: tensors that hold something to be added to, as bits. */
static void contribute(const struct piece *piece, const tutti_layer *layer, const struct tti_item *item, unsigned added)
{
    const struct tutti_pass *pass = piece->backward->pass;
    const tutti_model *model = pass->model;
    const struct tti_layer_place *place = &pass->places[layer->index];
    tutti_call call = tti_pass_call(pass, layer, item, piece->thread);
    if (place->slot >= 0 && layer->outputs > 0)
        call.out_gradient = (place->stays != NULL ? place->stays : pass->slots[place->slot]) +
                            item->first * model->shape.rows * layer->outputs;
    const size_t offset = tti_layer_offset(model, piece->backward->layer);
    for (int t = 0; t < layer->tensor_count; t++) {
        const tutti_tensor *tensor = &model->tensors[layer->tensors[t]];
        call.gradients[t] = piece->base + (tensor->offset - offset) + tti_piece_offset(model, tensor, piece->grain);
        call.accumulate[t] = (added >> t & 1) != 0;
    }
    call.grain = piece->grain;
    call.part = piece->part;
    call.parts = piece->backward->parts;
    layer->ops->backward_weights(&call);
}

/* The part's gradient of some rows: of the layers that share its first tensor, then of the layer itself. */
static void leaf(const struct piece *piece, const struct tti_item *item)
{
    const tutti_layer *owner = piece->backward->layer;
    const tutti_model *model = piece->backward->pass->model;
    unsigned added = piece->backward->how->accumulate ? ~0u : 0;
    if (item->samples == 0) {
        if (added == 0) each_run(piece, clear_run, piece->base);
        return;
    }
    bool together = piece->backward->how->tied == NULL;
    for (int i = piece->backward->pass->layers.hi - 1; together && i > owner->index; i--) {
        if (model->layers[i]->shared_with != owner->index) continue;
        contribute(piece, model->layers[i], item, added);
        added |= 1;
    }
    contribute(piece, owner, item, added);
}

/* The grains from `from` to `to` into piece->base. */
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
    const struct backward *backward = context;
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

/* ---- All layers ------------------------------------------------------------------------------------------------ */

static tutti_status find_bases(struct backward *backward, const tutti_layer *layer)
{
    const tutti_backward *how = backward->how;
    const tutti_model *model = backward->pass->model;
    const size_t offset = tti_layer_offset(model, layer), count = tti_layer_elements(model, layer);
    for (int k = 0; k < backward->subtrees; k++) {
        if (layer->shared_with >= 0 || how->place == NULL) {
            backward->bases[k] = layer->shared_with >= 0 ? how->tied[k] + tti_layer_tied_offset(model, layer)
                                                         : backward->gradients[k] + offset;
            continue;
        }
        tutti_status status = how->place(how->context, k, offset, count, &backward->bases[k]);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

static tutti_status weights_layer(struct backward *backward, const tutti_layer *layer)
{
    struct tutti_pass *pass = backward->pass;
    const tutti_model *model = pass->model;
    if (layer->tensor_count == 0 || (layer->shared_with >= 0 && backward->how->tied == NULL)) return TUTTI_OK;
    tutti_status status = find_bases(backward, layer);
    if (status != TUTTI_OK) return status;
    bool fast = pass->batch.grain_bounds == NULL;
    backward->layer = layer;
    backward->grains = layer->cut == TUTTI_CUT_WHOLE ? 1 : model->width.here;
    backward->parts = layer->ops->parts == NULL ? 1 : layer->ops->parts(model, layer);
    if (fast && backward->parts > pass->options.threads) backward->parts = pass->options.threads;
    tti_pool_run(pass->pool, weights_body, backward);
    if (layer->shared_with >= 0) {
        if (backward->how->tied_ready != NULL) backward->how->tied_ready(backward->how->context);
    } else if (backward->how->ready != NULL)
        backward->how->ready(backward->how->context, tti_layer_offset(model, layer), tti_layer_elements(model, layer));
    return TUTTI_OK;
}

static tutti_status check(const struct tutti_pass *pass, const tutti_backward *how)
{
    const bool fast = pass->batch.grain_bounds == NULL;
    const char *wrong = NULL;
    for (int i = pass->layers.lo; i < pass->layers.hi && how->tied == NULL; i++)
        if (pass->model->layers[i]->shared_with >= 0 && pass->model->layers[i]->shared_with < pass->layers.lo)
            wrong = "a layer shares the tensor of one before those of the pass: its gradients need a place, tied";
    if (!pass->ready || pass->batch.evaluate || pass->options.evaluate) wrong = "backward needs a forward for training";
    if (how->accumulate && !fast) wrong = "only fast mode adds to gradients: grains have one order of summing";
    if (how->subtrees < 0 || how->subtrees > TUTTI_SUBTREES_MAX || (fast && how->subtrees > 1))
        wrong = "there is a bad number of subtrees; fast mode has one";
    if (how->subtrees > 0 && ((how->gradients == NULL && how->place == NULL) || (!fast && how->subtree_bounds == NULL)))
        wrong = "subtrees need their bounds, and gradients to go to";
    if (how->parts != 0 && how->parts != 3 && !pass->options.split)
        wrong = "the parts of backward can only be apart in a pass made with options.split";
    for (int k = 0; wrong == NULL && !fast && k < how->subtrees; k++)
        if (how->subtree_bounds[k] < 0 || how->subtree_bounds[k] >= how->subtree_bounds[k + 1] ||
            how->subtree_bounds[k + 1] > pass->item_count)
            wrong = "subtree bounds must rise, within the batch's grains";
    if (wrong == NULL) return TUTTI_OK;
    return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT, "%s", wrong);
}

static tutti_status run_layer(struct backward *backward, const tutti_layer *layer, int parts)
{
    struct tutti_pass *pass = backward->pass;
    tutti_status status = tti_pass_need(pass, layer);
    if (status != TUTTI_OK) return status;
    backward->layer = layer;
    if (parts & TUTTI_BACKWARD_INPUT) {
        tti_pool_run(pass->pool, input_body, backward);
        status = meet(pass, layer);
    }
    if (status == TUTTI_OK && (parts & TUTTI_BACKWARD_WEIGHTS)) status = weights_layer(backward, layer);
    tti_pass_done(pass, layer);
    return status;
}

static tutti_status run(struct backward *backward)
{
    const tutti_model *model = backward->pass->model;
    const struct tti_layers layers = backward->pass->layers;
    const int parts = backward->how->parts == 0 ? TUTTI_BACKWARD_INPUT | TUTTI_BACKWARD_WEIGHTS : backward->how->parts;
    for (int i = layers.hi - 1; i >= layers.lo; i--) {
        tutti_status status = tti_pass_remake(backward->pass, i);
        if (status == TUTTI_OK) status = run_layer(backward, model->layers[i], parts);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

tutti_status tutti_pass_backward(tutti_pass *pass, const tutti_backward *how)
{
    if (pass == NULL) return TUTTI_ERR_ARGUMENT;
    if (how == NULL) return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT, "backward is not told how");
    tutti_status status = tti_pass_load(pass, how->slot);
    if (status == TUTTI_OK) status = check(pass, how);
    if (status != TUTTI_OK) return status;
    int all[2] = {0, pass->item_count};
    float *own = NULL;
    struct backward backward = {.pass = pass,
                                .how = how,
                                .subtrees = how->subtrees,
                                .bounds = how->subtree_bounds,
                                .gradients = how->gradients};
    if (how->subtrees == 0 && how->place == NULL) {
        own = tutti_model_gradients(pass->model);
        if (own == NULL) return TUTTI_ERR_MEMORY;
        backward.subtrees = 1;
        backward.bounds = all;
        backward.gradients = &own;
    }
    if (pass->item_count == 0 && pass->batch.grain_bounds != NULL) backward.subtrees = 0;
    return run(&backward);
}

/* ---- The canonical tree ---------------------------------------------------------------------------------------- */

struct cut {
    int first, last; /* of the range */
    int *bounds;
    int count;
};

static void cut_tree(struct cut *cut, int from, int to)
{
    if (to <= cut->first || from >= cut->last) return;
    if (from >= cut->first && to <= cut->last) {
        cut->bounds[cut->count++] = from - cut->first;
        cut->bounds[cut->count] = to - cut->first;
        return;
    }
    int half = 1;
    while (half < to - from - half) half *= 2;
    cut_tree(cut, from, from + half);
    cut_tree(cut, from + half, to);
}

int tutti_grain_subtrees(int total, int first, int count, int *bounds)
{
    bool within = count > 0 && first >= 0 && count <= total && first <= total - count;
    struct cut cut = {.first = first, .last = within ? first + count : first, .bounds = bounds};
    if (within) cut_tree(&cut, 0, total);
    return cut.count;
}

/* ---- Values that are not finite -------------------------------------------------------------------------------- */

static bool fault_set(tutti_fault *fault, const char *what, const char *layer, const char *tensor, const float *values,
                      size_t count)
{
    ptrdiff_t index = tti_nn_kernels()->find_nonfinite(values, count);
    if (index < 0) return false;
    *fault = (tutti_fault){.index = (size_t)index, .value = values[index]};
    snprintf(fault->what, sizeof fault->what, "%s", what);
    snprintf(fault->layer, sizeof fault->layer, "%s", layer);
    snprintf(fault->tensor, sizeof fault->tensor, "%s", tensor);
    return true;
}

static bool tensor_fault(const tutti_model *model, int index, const char *what, const float *base, tutti_fault *fault)
{
    const tutti_tensor *tensor = &model->tensors[index];
    for (int g = 0; g < tti_piece_count(model, tensor); g++) {
        const float *values = base + tensor->offset + tti_piece_offset(model, tensor, g);
        if (!fault_set(fault, what, model->layers[tensor->layer]->name, tensor->name, values,
                       tti_piece_elements(model, tensor, g)))
            continue;
        fault->index = tti_piece_global(model, tensor, g, fault->index);
        return true;
    }
    return false;
}

bool tutti_pass_fault(const tutti_pass *pass, tutti_fault *fault)
{
    const tutti_model *model = pass->model;
    for (int t = 0; model->values != NULL && t < model->tensor_count; t++)
        if (model->tensors[t].offset != TTI_ELSEWHERE && tensor_fault(model, t, "parameter", model->values, fault))
            return true;
    const size_t rows = pass->ready ? (size_t)(pass->batch.samples * model->shape.rows) : 0;
    for (int i = pass->layers.lo; i < pass->layers.hi; i++) {
        const tutti_layer *layer = model->layers[i];
        if (tti_pass_out_is_remade(pass, i)) continue; /* others have written over it */
        if (fault_set(fault, "output", layer->name, "", pass->places[i].out, rows * (size_t)layer->outputs))
            return true;
    }
    if (model->gradients == NULL) return false;
    for (int t = model->tensor_count - 1; t >= 0; t--)
        if (tti_tensor_is_own(model, t) && tensor_fault(model, t, "gradient", model->gradients, fault)) return true;
    return false;
}
