/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward: every item goes through all layers on one thread.
 */
#include "base/sized.h"
#include "nn/nn_kernels.h"
#include "nn/pass.h"
#include <string.h>

/* ---- Checks ---------------------------------------------------------------------------------------------------- */

static tutti_status check_classes(tutti_model *model, const tutti_layer *layer, const char *what, const int32_t *values,
                                  int64_t count, int32_t least)
{
    for (int64_t i = 0; i < count; i++)
        if (values[i] < least || values[i] >= layer->classes)
            return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "%s %lld of the batch is %d, not below %lld",
                                    what, (long long)i, values[i], (long long)layer->classes);
    return TUTTI_OK;
}

static tutti_status check_layer(tutti_model *model, const tutti_layer *layer, const tutti_batch *batch)
{
    const unsigned reads = layer->ops->reads;
    const int64_t rows = batch->samples * model->shape.rows;
    if (((reads & TUTTI_READS_TOKENS) && batch->tokens == NULL) ||
        ((reads & TUTTI_READS_TARGETS) && batch->targets == NULL) ||
        ((reads & TUTTI_READS_TARGET_VALUES) && batch->target_values == NULL))
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT,
                                "the batch lacks the tokens or targets that it reads");
    tutti_status status = TUTTI_OK;
    if (reads & TUTTI_READS_TOKENS) status = check_classes(model, layer, "token", batch->tokens, rows, 0);
    if (status == TUTTI_OK && (reads & TUTTI_READS_TARGETS))
        status = check_classes(model, layer, "target", batch->targets, rows, INT32_MIN);
    return status;
}

static tutti_status check_batch(const struct tutti_pass *pass, const tutti_batch *batch)
{
    tutti_model *model = pass->model;
    if (batch->samples < 0 || batch->samples > pass->options.samples)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT, "a batch of %lld samples in a pass made for %lld",
                                (long long)batch->samples, (long long)pass->options.samples);
    if (batch->samples == 0) return TUTTI_OK;
    const bool first = pass->layers.lo == 0, last = pass->layers.hi == model->layer_count;
    if (first && model->shape.inputs > 0 && batch->inputs == NULL)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT, "the batch has no inputs");
    if ((!first && batch->boundary.in == NULL) || (!last && batch->boundary.out == NULL))
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "the batch has no boundary to layers before or behind those of the pass");
    for (int i = pass->layers.lo; i < pass->layers.hi; i++) {
        tutti_status status = model->layers[i]->ops->reads == 0 ? TUTTI_OK
                                                                : check_layer(model, model->layers[i], batch);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

/* ---- Items ----------------------------------------------------------------------------------------------------- */

static tutti_status cut_grains(struct tutti_pass *pass, const tutti_batch *batch)
{
    if (batch->grains < 0 || batch->grains > pass->options.grains)
        return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT, "%d grains in a pass made for %d", batch->grains,
                                pass->options.grains);
    const int64_t *bounds = batch->grain_bounds;
    bool whole = bounds[0] == 0 && bounds[batch->grains] == batch->samples;
    for (int g = 0; g < batch->grains; g++) {
        whole = whole && bounds[g] <= bounds[g + 1];
        pass->items[g] = (struct tti_item){.first = bounds[g], .samples = bounds[g + 1] - bounds[g]};
    }
    pass->item_count = batch->grains;
    if (whole) return TUTTI_OK;
    return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT,
                            "grain bounds must rise from 0 to the batch's %lld samples", (long long)batch->samples);
}

/* Fast mode: cuts the batch into an equal share for each thread. */
static void cut_shares(struct tutti_pass *pass, const tutti_batch *batch)
{
    int64_t shares = pass->options.threads < batch->samples ? pass->options.threads : batch->samples;
    pass->item_count = (int)shares;
    for (int64_t i = 0; i < shares; i++) {
        int64_t first = batch->samples * i / shares, next = batch->samples * (i + 1) / shares;
        pass->items[i] = (struct tti_item){.first = first, .samples = next - first};
    }
}

/* ---- Values ---------------------------------------------------------------------------------------------------- */

tutti_status tti_pass_need(struct tutti_pass *pass, const tutti_layer *layer)
{
    if (layer->tensor_count == 0 || pass->source.need == NULL) return TUTTI_OK;
    pass->values_offset = tti_layer_offset(pass->model, layer);
    const size_t elements = tti_layer_elements(pass->model, layer);
    if (elements == 0) return TUTTI_OK; /* its width grains that are here have none */
    return pass->source.need(pass->source.context, pass->values_offset, elements, &pass->values);
}

void tti_pass_done(struct tutti_pass *pass, const tutti_layer *layer)
{
    if (layer->tensor_count == 0 || pass->source.done == NULL) return;
    const size_t elements = tti_layer_elements(pass->model, layer);
    if (elements > 0) pass->source.done(pass->source.context, tti_layer_offset(pass->model, layer), elements);
}

/* Returns a tensor's values. If the model has them they can be found for any layer; otherwise only those of the layer
 * that runs are there. NULL: this rank has no values. */
static const float *values_of(const struct tutti_pass *pass, int tensor)
{
    const size_t offset = pass->model->tensors[tensor].offset;
    const bool all = pass->source.need == NULL;
    const float *values = all ? pass->model->values : pass->values;
    return values == NULL ? NULL : values + (all ? offset : offset - pass->values_offset);
}

/* ---- Calls ----------------------------------------------------------------------------------------------------- */

static float *rows_of(float *base, int64_t row, int64_t width)
{
    return base == NULL ? NULL : base + row * width;
}

/* Returns the call for all rows of an item, as the layer reads and writes them. */
static tutti_call whole_call(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item,
                             int thread)
{
    const tutti_model *model = pass->model;
    const tutti_batch *batch = &pass->batch;
    const struct tti_layer_place *place = &pass->places[layer->index];
    const int64_t row = item->first * model->shape.rows;
    tutti_call call = {.layer = layer,
                       .model = model,
                       .samples = item->samples,
                       .rows = item->samples * model->shape.rows,
                       .first_sample = batch->first_sample + item->first,
                       .step = batch->step,
                       .seed = batch->seed,
                       .training = !batch->evaluate,
                       .out = rows_of(tti_layer_scatters_out(layer) ? pass->aside : place->out, row, layer->outputs),
                       .saved = rows_of(place->saved, row, layer->saved),
                       .collected = place->collected,
                       .collected_back = pass->collects.back,
                       .gathered = rows_of(pass->gathered, row, layer->gathers),
                       .gathered_stride = (int64_t)tti_pass_rows(pass) * layer->gathers,
                       .parts = 1,
                       .scratch = pass->scratch + (size_t)thread * pass->scratch_each};
    for (int t = 0; t < layer->tensor_count; t++) call.values[t] = values_of(pass, layer->tensors[t]);
    if (layer->index > pass->layers.lo || (layer->index > 0 && !tti_layer_gathers_in(model, layer)))
        call.in = pass->places[layer->index - 1].out + row * layer->inputs;
    else if (layer->index > 0)
        call.in = pass->entered + row * layer->inputs;
    else if (batch->inputs != NULL)
        call.in = batch->inputs + row * layer->inputs;
    if (batch->tokens != NULL) call.tokens = batch->tokens + row;
    if (batch->targets != NULL) call.targets = batch->targets + row;
    if (batch->target_values != NULL) call.target_values = batch->target_values + row * layer->inputs;
    if (batch->row_weights != NULL) call.row_weights = batch->row_weights + row;
    return call;
}

void tti_call_narrow(tutti_call *call, struct tti_span rows)
{
    const tutti_layer *layer = call->layer;
    const int64_t by = (int64_t)rows.lo;
    call->rows = (int64_t)(rows.hi - rows.lo);
    call->first_row += by;
    if (call->in != NULL) call->in += by * layer->inputs;
    call->out = rows_of(call->out, by, layer->outputs);
    call->saved = rows_of(call->saved, by, layer->saved);
    call->out_gradient = rows_of(call->out_gradient, by, layer->outputs);
    call->in_gradient = rows_of(call->in_gradient, by, layer->inputs);
    if (call->tokens != NULL) call->tokens += by;
}

tutti_call tti_pass_call(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item,
                         int thread)
{
    tutti_call call = whole_call(pass, layer, item, thread);
    if (!layer->sliced) return call;
    tti_call_narrow(&call, item->slice);
    call.in = tti_pass_slice(pass, layer->index - 1, item);
    call.out = tti_pass_slice(pass, layer->index, item);
    call.saved = rows_of(pass->places[layer->index].saved, (int64_t)item->sliced_before, layer->saved);
    return call;
}

tutti_call tti_pass_finishing(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item,
                              int thread)
{
    tutti_call call = whole_call(pass, layer, item, thread);
    if (!layer->sliced_out) return call;
    tti_call_narrow(&call, item->slice);
    call.out = tti_pass_slice(pass, layer->index, item);
    return call;
}

/* Returns the rows that a residual adds: the input of its first layer. */
static const float *residual_of(const struct tutti_pass *pass, const tutti_layer *layer, const struct tti_item *item,
                                int64_t first_row)
{
    if (layer->add_from < 0) return NULL;
    if (layer->sliced_out) return tti_pass_slice(pass, layer->add_from - 1, item);
    return pass->places[layer->add_from - 1].out + (item->first * pass->model->shape.rows + first_row) * layer->outputs;
}

static void add_residual(tutti_call *call, const float *residual)
{
    if (residual != NULL)
        tti_nn_kernels()->add(call->out, call->out, residual, (size_t)(call->rows * call->layer->outputs));
}

/* Does forward of a layer. Terms that are added to a sum over ranks come after the ranks have met. */
static void forward_layer(tutti_call *call, const float *residual)
{
    const tutti_layer *layer = call->layer;
    const bool adds = tti_layer_adds(call->model, layer), finished = layer->meets || tti_layer_scatters_out(layer);
    if (adds && !finished) call->add = residual;
    layer->ops->forward(call);
    if (!adds && !finished) add_residual(call, residual);
}

/* Finishes outputs that ranks have summed, or of which each keeps its slice. */
static void finish_layer(tutti_call *call, const float *residual)
{
    const tutti_layer *layer = call->layer;
    const bool finishes = layer->meets && layer->ops->finish != NULL, adds = layer->ops->adds && finishes;
    if (adds) call->add = residual;
    if (finishes) layer->ops->finish(call);
    if (!adds) add_residual(call, residual);
}

/* Some of the layers, for which threads share the items; or the rest of one layer after a meeting. */
struct range {
    struct tutti_pass *pass;
    int from, to;
    bool finish;
};

static void forward_item(const struct range *range, struct tti_item *item, int thread)
{
    const struct tutti_pass *pass = range->pass;
    for (int i = range->from; i < range->to; i++) {
        const tutti_layer *layer = pass->model->layers[i];
        tutti_call call = (range->finish ? tti_pass_finishing : tti_pass_call)(pass, layer, item, thread);
        if (call.rows > 0) (range->finish ? finish_layer : forward_layer)(&call, residual_of(pass, layer, item, 0));
        item->loss.sum += call.loss_sum;
        item->loss.count += call.loss_count;
    }
}

static void forward_body(void *context, int thread, int threads)
{
    (void)threads;
    const struct range *range = context;
    const struct tutti_pass *pass = range->pass;
    for (int64_t i; (i = tti_pool_take(pass->pool)) < pass->item_count;)
        if (pass->items[i].samples > 0) forward_item(range, &pass->items[i], thread);
}

/* Returns true if ranks must meet between the layer and the one before it. */
static bool is_apart(const struct tutti_pass *pass, int layer)
{
    const tutti_layer *before = pass->model->layers[layer - 1];
    return before->meets || tti_layer_scatters_out(before) || pass->model->layers[layer]->ops->collect != NULL ||
           tti_layer_gathers_in(pass->model, pass->model->layers[layer]);
}

/* Returns the end of the layers up to `end` that run at once: all of them if all values are there; otherwise each layer
 * with tensors, and those after it that have none. They end at a meeting, after the last layer or before one that
 * depends on the whole batch, and at a block, since the next block overwrites its data. */
static int range_end(const struct tutti_pass *pass, int from, int end)
{
    int to = from + 1;
    while (to < end && !is_apart(pass, to) && pass->places[to - 1].block != to - 1 &&
           (pass->source.need == NULL || pass->model->layers[to]->tensor_count == 0))
        to++;
    return to;
}

/* Keeps each rank's slice of an output that every rank has whole. */
static void keep_slices(const struct tutti_pass *pass, const tutti_layer *layer)
{
    const size_t width = (size_t)layer->outputs;
    for (int i = 0; i < pass->item_count; i++) {
        const struct tti_item *item = &pass->items[i];
        const size_t row = (size_t)(item->first * pass->model->shape.rows) + item->slice.lo;
        memcpy(tti_pass_slice(pass, layer->index, item), pass->aside + row * width,
               (item->slice.hi - item->slice.lo) * width * sizeof(float));
    }
}

static tutti_status meet(struct tutti_pass *pass, const tutti_layer *layer)
{
    tutti_status status = TUTTI_OK;
    if (!layer->meets && !tti_layer_scatters_out(layer)) return TUTTI_OK;
    if (layer->gathers > 0)
        status = tti_pass_gather(pass, layer);
    else if (!layer->meets)
        keep_slices(pass, layer);
    else if (layer->sliced_out)
        status = tti_pass_scatter_out(pass, layer);
    else
        status = tti_pass_sum(pass, layer, pass->places[layer->index].out, layer->outputs);
    struct range range = {pass, layer->index, layer->index + 1, true};
    if (status == TUTTI_OK) tti_pool_run(pass->pool, forward_body, &range);
    return status;
}

tutti_status tti_pass_forward_layers(struct tutti_pass *pass, int first, int end)
{
    const tutti_model *model = pass->model;
    for (int from = first, to; from < end; from = to) {
        to = range_end(pass, from, end);
        tutti_status status = tti_pass_need(pass, model->layers[from]);
        if (status != TUTTI_OK) return status;
        status = tti_pass_gather_in(pass, model->layers[from]);
        if (status == TUTTI_OK) status = tti_pass_collect(pass, model->layers[from]);
        if (status == TUTTI_OK) tti_pool_run(pass->pool, forward_body, &(struct range){pass, from, to, false});
        if (status == TUTTI_OK) status = meet(pass, model->layers[to - 1]);
        tti_pass_done(pass, model->layers[from]);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

tutti_status tutti_pass_forward(tutti_pass *pass, const tutti_batch *given, tutti_loss *losses)
{
    tutti_batch known = {0};
    const tutti_batch *batch = &known;
    if (pass == NULL) return TUTTI_ERR_ARGUMENT;
    if (given == NULL || losses == NULL)
        return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT, "forward needs a batch, and where losses go");
    if (!tti_sized_take(&known, sizeof known, given))
        return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT,
                                "a batch needs struct_size, sizeof(tutti_batch)");
    tutti_status status = tti_pass_load(pass, batch->slot);
    if (status != TUTTI_OK) return status;
    pass->ready = false;
    status = check_batch(pass, batch);
    if (status == TUTTI_OK && batch->grain_bounds != NULL) status = cut_grains(pass, batch);
    if (status != TUTTI_OK) return status;
    if (batch->grain_bounds == NULL) cut_shares(pass, batch);
    tti_pass_cut_items(pass);
    pass->batch = *batch;
    (void)tti_pass_load(pass, batch->slot); /* sets its boundaries */
    status = tti_pass_forward_layers(pass, pass->layers.lo, pass->layers.hi);
    if (status != TUTTI_OK) return status;
    pass->ready = true;
    if (batch->grain_bounds == NULL) losses[0] = (tutti_loss){0};
    for (int i = 0; i < pass->item_count; i++) {
        tutti_loss *loss = &losses[batch->grain_bounds == NULL ? 0 : i];
        if (batch->grain_bounds != NULL) *loss = (tutti_loss){0};
        loss->sum += pass->items[i].loss.sum;
        loss->count += pass->items[i].loss.count;
    }
    return TUTTI_OK;
}

void tti_pass_extend(struct tutti_pass *pass, const int32_t *tokens, int64_t from, int64_t to)
{
    const tutti_model *model = pass->model;
    const struct tti_item item = {.samples = 1};
    pass->batch = (tutti_batch){.struct_size = sizeof(tutti_batch), .samples = 1, .tokens = tokens, .evaluate = true};
    for (int i = 0; i < model->layer_count - 1; i++) {
        const tutti_layer *layer = model->layers[i];
        tutti_call call = tti_pass_call(pass, layer, &item, 0);
        call.first_row = from;
        call.rows = to - from;
        call.tokens += from;
        if (i > 0) call.in += from * layer->inputs;
        call.out += from * layer->outputs;
        call.saved = rows_of(call.saved, from, layer->saved);
        forward_layer(&call, residual_of(pass, layer, &item, from));
    }
}
