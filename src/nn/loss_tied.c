/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-entropy behind a linear layer whose weight W, (classes, width), is an embedding's: logits = in W'. Classes come
 * in blocks that fit the cache: a block's logits are added to the softmax's sums when they have just been made, and
 * become gradients just before the product that needs them. Saved rows are (logits, padded to 16; the row's kept
 * values, padded to 16).
 *
 * A width grain is some of the classes (loss_grains.c).
 */
#include "base/status.h"
#include "nn/blas.h"
#include "nn/loss.h"
#include "nn/nn_kernels.h"
#include "nn/width.h"
#include <string.h>

enum { CLASS_BLOCK = 1024, ALIGNMENT = 16 };

static int64_t padded(int64_t classes)
{
    return (classes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static tutti_status setup(tutti_model *model, tutti_layer *layer)
{
    const char *tied = layer->config;
    TTI_TRY(tutti_layer_share(model, layer, tied));
    const tutti_tensor *tensor = tutti_model_find(model, tied);
    if (tensor->dimensions != 2 || tensor->shape[1] != layer->inputs)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "'%s' is not (classes, %lld)", tied,
                                (long long)layer->inputs);
    layer->outputs = 0;
    layer->classes = tensor->shape[0];
    layer->saved = padded(layer->classes) + ALIGNMENT;
    layer->gathers = TTI_LOSS_GATHERED;
    return TUTTI_OK;
}

static tutti_status place(tutti_model *model, tutti_layer *layer)
{
    const struct tti_width *width = &model->width;
    layer->saved = padded(tti_grains_length(model, layer->classes, 1, width->first, width->first + width->here)) +
                   ALIGNMENT;
    layer->gathers = TTI_LOSS_GATHERED * width->here;
    layer->scratch = tti_width_scratch(model, layer->inputs);
    return TUTTI_OK;
}

/* ---- Where things are ------------------------------------------------------------------------------------------ */

static float *kept_of(const tutti_call *call, int64_t row)
{
    return call->saved + (row + 1) * call->layer->saved - ALIGNMENT;
}

/* The classes of one of this rank's grains. `column`: where their logits begin in a saved row. */
struct classes {
    int64_t first, count, column;
    const float *weight;
};

static struct classes classes_of(const tutti_call *call, int grain)
{
    const struct tti_width *width = &call->model->width;
    if (call->layer->cut == TUTTI_CUT_WHOLE) return (struct classes){0, call->layer->classes, 0, call->values[0]};
    const struct tti_span span = tti_grain_share(call->model, call->layer->classes, width->first + grain);
    return (struct classes){
        .first = (int64_t)span.lo,
        .count = (int64_t)(span.hi - span.lo),
        .column = tti_grains_length(call->model, call->layer->classes, 1, width->first, width->first + grain),
        .weight = tutti_grain_values(call, 0, grain)};
}

/* Returns a row's target, counted from the first of these classes; -1: it is none of them. */
static int64_t target_in(const tutti_call *call, const struct classes *classes, int64_t row)
{
    const int64_t target = call->targets[row] - classes->first;
    return call->targets[row] < 0 || target < 0 || target >= classes->count ? -1 : target;
}

static int64_t block_end(int64_t from, int64_t count)
{
    return from + CLASS_BLOCK < count ? from + CLASS_BLOCK : count;
}

/* ---- Forward --------------------------------------------------------------------------------------------------- */

static void forward_grain(tutti_call *call, int grain)
{
    const struct classes classes = classes_of(call, grain);
    const int64_t width = call->layer->inputs, stride = call->layer->saved;
    float *logits = call->saved + classes.column;
    tti_loss_begin(call, grain);
    for (int64_t from = 0, to; from < classes.count; from = to) {
        to = block_end(from, classes.count);
        tti_gemm(call->rows, to - from, width, (struct tti_matrix){call->in, width, false},
                 (struct tti_matrix){classes.weight + from * width, width, true}, false, logits + from, stride);
        for (int64_t r = 0; r < call->rows; r++) {
            float *row = tti_loss_part(call, r, grain);
            const int64_t target = target_in(call, &classes, r);
            tti_nn_kernels()->exp_sum(logits + r * stride + from, (size_t)(to - from), &row[TTI_LOSS_HIGHEST],
                                      &row[TTI_LOSS_SUM]);
            if (target >= from && target < to) row[TTI_LOSS_LOGIT] = logits[r * stride + target];
        }
    }
}

static void finish(tutti_call *call)
{
    tti_loss_merge(call, NULL, kept_of(call, 0), call->layer->saved);
}

static void forward(tutti_call *call)
{
    for (int g = 0; g < tutti_call_grains(call); g++) forward_grain(call, g);
    if (!call->layer->meets) finish(call);
}

/* ---- Backward -------------------------------------------------------------------------------------------------- */

/* Turns logits of some rows and classes into their gradients. */
static void logit_gradients(tutti_call *call, const struct classes *classes, int64_t row, int64_t from, int64_t to)
{
    float *logits = call->saved + row * call->layer->saved + classes->column;
    const float *kept = kept_of(call, row);
    const int64_t target = target_in(call, classes, row);
    tti_nn_kernels()->exp_shifted(logits + from, (size_t)(to - from), kept[TTI_KEPT_SHIFT], kept[TTI_KEPT_WEIGHT]);
    if (target >= from && target < to) logits[target] -= kept[TTI_KEPT_WEIGHT];
}

/* Computes one grain's part of the input's gradient. `out` NULL: that gradient is not needed. */
static void input_leaf(tutti_call *call, int grain, int64_t first, int64_t rows, float *out)
{
    const struct classes classes = classes_of(call, grain);
    const int64_t width = call->layer->inputs, stride = call->layer->saved;
    if (out != NULL && classes.count == 0) tti_fill_nothing(out, (size_t)(rows * width));
    for (int64_t from = 0, to; from < classes.count; from = to) {
        to = block_end(from, classes.count);
        for (int64_t r = first; r < first + rows; r++) logit_gradients(call, &classes, r, from, to);
        if (out == NULL) continue;
        tti_gemm(rows, width, to - from,
                 (struct tti_matrix){call->saved + first * stride + classes.column + from, stride, false},
                 (struct tti_matrix){classes.weight + from * width, width, false}, from > 0, out, width);
    }
}

static void backward_input(tutti_call *call)
{
    if (call->in_gradient != NULL) {
        tti_width_sum(call, call->layer->inputs, input_leaf, call->in_gradient);
        return;
    }
    for (int g = 0; g < tutti_call_grains(call); g++) input_leaf(call, g, 0, call->rows, NULL);
}

static void backward_weights(tutti_call *call)
{
    const struct classes classes = classes_of(call, call->grain);
    const int64_t width = call->layer->inputs;
    int64_t from, to;
    tutti_part_range(classes.count, call->part, call->parts, &from, &to);
    tti_gemm(to - from, width, call->rows,
             (struct tti_matrix){call->saved + classes.column + from, call->layer->saved, true},
             (struct tti_matrix){call->in, width, false}, call->accumulate[0], call->gradients[0] + from * width,
             width);
}

static int parts(const tutti_model *model, const tutti_layer *layer)
{
    (void)model;
    return layer->classes < 2 * CLASS_BLOCK ? 1 : (int)(layer->classes / CLASS_BLOCK);
}

static const tutti_layer_ops ops = {
    .kind = "tied_cross_entropy",
    .setup = setup,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weights = backward_weights,
    .parts = parts,
    .parts_by_row = true,
    .reads = TUTTI_READS_TARGETS,
    .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_CLASSES,
    .place = place,
    .finish = finish,
};

tutti_status tutti_add_tied_cross_entropy(tutti_model *model, const char *name, const char *tied)
{
    return tutti_model_add(model, name, &ops, tied, tied == NULL ? 1 : strlen(tied) + 1);
}
