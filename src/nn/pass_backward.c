/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward: layer by layer from the last to the first. First come the gradients of the layer's input, item by item;
 * when all are done, the gradients of its weights (pass_weights.c).
 */
#include "nn/pass_backward.h"

#include "base/sized.h"
#include "nn/nn_kernels.h"
#include <string.h>

/* ---- For inputs ------------------------------------------------------------------------------------------------ */

/* Returns a gradient in a slot: slices of one item lie behind those of the item before. */
static float *slot_rows(const struct tutti_pass *pass, int slot, bool sliced, const struct tti_item *item,
                        int64_t width)
{
    const size_t row = sliced ? item->sliced_before : (size_t)(item->first * pass->model->shape.rows);
    return pass->slots[slot] + row * (size_t)width;
}

/* Returns the gradient of the output of a layer that has all rows. */
static float *out_gradient_of(const struct tutti_pass *pass, const tutti_layer *layer)
{
    const struct tti_layer_place *place = &pass->places[layer->index];
    return tti_layer_scatters_out(layer) ? place->gradient : pass->slots[place->slot];
}

void tti_pass_set_gradients(const struct tutti_pass *pass, const struct tti_item *item, tutti_call *call)
{
    const tutti_layer *layer = call->layer;
    const struct tti_layer_place *place = &pass->places[layer->index];
    const int64_t row = item->first * pass->model->shape.rows;
    if (place->slot >= 0)
        call->out_gradient = layer->sliced ? slot_rows(pass, place->slot, true, item, layer->outputs)
                                           : out_gradient_of(pass, layer) + row * layer->outputs;
    if (layer->index == 0) return;
    const int before = tti_layer_place_slot(&place[-1]);
    if (tti_layer_gathers_in(pass->model, layer))
        call->in_gradient = tti_pass_unscattered(pass, layer) + row * layer->inputs;
    else
        call->in_gradient = slot_rows(pass, before, layer->sliced, item, layer->inputs);
}

/* Returns true if a residual's gradient is added only after the input's gradient was summed over ranks, or cut. */
static bool adds_late(const struct tutti_pass *pass, const tutti_layer *layer)
{
    return layer->meets_back || tti_layer_gathers_in(pass->model, layer);
}

static void input_item(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item, int thread)
{
    const struct tti_layer_place *place = &pass->places[layer->index];
    tutti_call call = tti_pass_call(pass, layer, item, thread);
    tti_pass_set_gradients(pass, item, &call);
    if (call.rows == 0) return;
    const size_t bytes = (size_t)(call.rows * layer->outputs) * sizeof(float);
    if (place->held_slot >= 0)
        memcpy(call.out_gradient, slot_rows(pass, place->held_slot, layer->sliced, item, layer->outputs), bytes);
    const float *residual = place->add_slot < 0 || adds_late(pass, layer)
                                ? NULL
                                : slot_rows(pass, place->add_slot, layer->sliced, item, layer->inputs);
    const bool adds = tti_layer_adds_back(pass->model, layer);
    if (adds) call.add = residual;
    layer->ops->backward_input(&call);
    if (residual != NULL && !adds)
        tti_nn_kernels()->add(call.in_gradient, call.in_gradient, residual, (size_t)(call.rows * layer->inputs));
    if (place->stays != NULL)
        memcpy(place->stays + item->first * pass->model->shape.rows * layer->outputs, call.out_gradient, bytes);
}

/* Keeps each rank's slice of a gradient that every rank has whole. */
static void keep_slices(const struct tutti_pass *pass, const tutti_layer *layer, int slot)
{
    const size_t width = (size_t)layer->inputs;
    const float *whole = tti_pass_unscattered(pass, layer);
    for (int i = 0; i < pass->item_count; i++) {
        const struct tti_item *item = &pass->items[i];
        const size_t row = (size_t)(item->first * pass->model->shape.rows) + item->slice.lo;
        memcpy(slot_rows(pass, slot, true, item, layer->inputs), whole + row * width,
               (item->slice.hi - item->slice.lo) * width * sizeof(float));
    }
}

/* Ranks that share the width add up their gradients of the layer's input; a residual's gradient is added after that. */
static tutti_status meet(struct tutti_pass *pass, const tutti_layer *layer)
{
    const struct tti_layer_place *place = &pass->places[layer->index];
    const bool scatters = tti_layer_gathers_in(pass->model, layer);
    if (!adds_late(pass, layer) || layer->index == 0) return TUTTI_OK;
    const int slot = tti_layer_place_slot(&place[-1]);
    tutti_status status = TUTTI_OK;
    if (!layer->meets_back)
        keep_slices(pass, layer, slot);
    else if (scatters)
        status = tti_pass_scatter_back(pass, layer);
    else
        status = tti_pass_sum(pass, layer, pass->slots[slot], layer->inputs);
    const size_t rows = scatters ? tti_pass_sliced_rows(pass, pass->model->width.rank) : tti_pass_rows(pass);
    if (status == TUTTI_OK && place->add_slot >= 0)
        tti_nn_kernels()->add(pass->slots[slot], pass->slots[slot], pass->slots[place->add_slot],
                              rows * (size_t)layer->inputs);
    return status;
}

static void input_body(void *context, int thread, int threads)
{
    (void)threads;
    const struct tti_backward *backward = context;
    const struct tutti_pass *pass = backward->pass;
    for (int64_t i; (i = tti_pool_take(pass->pool)) < pass->item_count;)
        if (pass->items[i].samples > 0) input_item(pass, backward->layer, &pass->items[i], thread);
}

/* ---- All layers ------------------------------------------------------------------------------------------------ */

static tutti_status find_bases(struct tti_backward *backward, const tutti_layer *layer)
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

static tutti_status weights_layer(struct tti_backward *backward, const tutti_layer *layer)
{
    struct tutti_pass *pass = backward->pass;
    const tutti_model *model = pass->model;
    if (layer->tensor_count == 0 || (layer->shared_with >= 0 && backward->how->tied == NULL)) return TUTTI_OK;
    /* its width grains that are here may have no columns, and no place for their gradients */
    if (layer->shared_with < 0 && tti_layer_elements(model, layer) == 0) return TUTTI_OK;
    tutti_status status = find_bases(backward, layer);
    if (status != TUTTI_OK) return status;
    bool fast = pass->batch.grain_bounds == NULL;
    backward->layer = layer;
    backward->grains = layer->cut == TUTTI_CUT_WHOLE ? 1 : model->width.here;
    backward->parts = layer->ops->parts == NULL ? 1 : layer->ops->parts(model, layer);
    if (fast && backward->parts > pass->options.threads) backward->parts = pass->options.threads;
    tti_weights_make(backward);
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

/* Makes the gradients of layers from..to - 1 whose sums of slices were gathered from all ranks. */
static tutti_status weights_of_slices(struct tti_backward *backward, int from, int to, int parts)
{
    struct tutti_pass *pass = backward->pass;
    tutti_status status = TUTTI_OK;
    for (int i = to - 1; status == TUTTI_OK && (parts & TUTTI_BACKWARD_WEIGHTS) && i >= from; i--)
        if (pass->places[i].has_sums) status = weights_layer(backward, pass->model->layers[i]);
    return status;
}

static tutti_status gather_back(struct tti_backward *backward, const tutti_layer *layer, int parts)
{
    struct tutti_pass *pass = backward->pass;
    const int end = pass->unsummed_end;
    if (!tti_layer_scatters_out(layer)) return TUTTI_OK;
    tutti_status status = tti_pass_gather_back(pass, layer);
    return status == TUTTI_OK ? weights_of_slices(backward, layer->index + 1, end, parts) : status;
}

static tutti_status gather_rest(struct tti_backward *backward, int parts)
{
    struct tutti_pass *pass = backward->pass;
    const int end = pass->unsummed_end;
    if (!(parts & TUTTI_BACKWARD_INPUT)) return TUTTI_OK;
    tutti_status status = tti_pass_gather_sums(pass);
    return status == TUTTI_OK ? weights_of_slices(backward, pass->layers.lo, end, parts) : status;
}

/* Returns true if the weights come when their sums of slices are gathered; in a separate weights part the sums are
 * gathered already. */
static bool weights_come_later(const struct tti_backward *backward, const tutti_layer *layer, int parts)
{
    return (parts & TUTTI_BACKWARD_INPUT) && backward->pass->places[layer->index].has_sums;
}

static tutti_status run_layer(struct tti_backward *backward, const tutti_layer *layer, int parts)
{
    struct tutti_pass *pass = backward->pass;
    tutti_status status = tti_pass_need(pass, layer);
    if (status != TUTTI_OK) return status;
    if (parts & TUTTI_BACKWARD_INPUT) {
        status = gather_back(backward, layer, parts);
        backward->layer = layer;
        if (status == TUTTI_OK) status = tti_pass_collect_back(pass, layer);
        if (status == TUTTI_OK) tti_pool_run(pass->pool, input_body, backward);
        if (status == TUTTI_OK) status = meet(pass, layer);
        if (status == TUTTI_OK) tti_weights_of_slices(backward, layer);
    }
    if (status == TUTTI_OK && (parts & TUTTI_BACKWARD_WEIGHTS) && !weights_come_later(backward, layer, parts))
        status = weights_layer(backward, layer);
    tti_pass_done(pass, layer);
    return status;
}

static tutti_status run(struct tti_backward *backward)
{
    const tutti_model *model = backward->pass->model;
    const struct tti_layers layers = backward->pass->layers;
    const int parts = backward->how->parts == 0 ? TUTTI_BACKWARD_INPUT | TUTTI_BACKWARD_WEIGHTS : backward->how->parts;
    backward->pass->unsummed_end = layers.hi;
    for (int i = layers.hi - 1; i >= layers.lo; i--) {
        tutti_status status = tti_pass_remake(backward->pass, i);
        if (status == TUTTI_OK) status = run_layer(backward, model->layers[i], parts);
        if (status != TUTTI_OK) return status;
    }
    return gather_rest(backward, parts);
}

tutti_status tutti_pass_backward(tutti_pass *pass, const tutti_backward *given)
{
    tutti_backward known = {0};
    const tutti_backward *how = &known;
    if (pass == NULL) return TUTTI_ERR_ARGUMENT;
    if (given != NULL && !tti_sized_take(&known, sizeof known, given))
        return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT,
                                "backward needs struct_size, sizeof(tutti_backward), in how it is to be done");
    tutti_status status = tti_pass_load(pass, how->slot);
    if (status == TUTTI_OK) status = check(pass, how);
    if (status != TUTTI_OK) return status;
    int all[2] = {0, pass->item_count};
    float *own = NULL;
    struct tti_backward backward = {.pass = pass,
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
    int first, last; /* the range */
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
        if (tti_pass_out_is_remade(pass, i)) continue; /* other layers have overwritten it */
        const size_t here = tti_pass_has_slices_only(pass, i) && rows > 0
                                ? tti_pass_sliced_rows(pass, model->width.rank)
                                : rows;
        if (fault_set(fault, "output", layer->name, "", pass->places[i].out, here * (size_t)layer->outputs))
            return true;
    }
    if (model->gradients == NULL) return false;
    for (int t = model->tensor_count - 1; t >= 0; t--)
        if (tti_tensor_is_own(model, t) && tensor_fault(model, t, "gradient", model->gradients, fault)) return true;
    return false;
}
