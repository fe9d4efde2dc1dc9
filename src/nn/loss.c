/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses. Each adds (sum, count) of its rows in double, in row order, and gives gradients of the sum. A row's weight is
 * the batch's weight of the row times the weight of its class; rows with a target below 0 have none.
 */
#include "nn/blas.h"
#include "nn/kernels.h"
#include "nn/model.h"
#include <math.h>
#include <string.h>

/* ---- Mean squared error ---------------------------------------------------------------------------------------- */

static tutti_status mse_setup(tutti_model *model, tutti_layer *layer)
{
    if (layer->inputs < 1) return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "there is nothing before it");
    layer->outputs = 0;
    layer->saved = layer->inputs; /* differences */
    return TUTTI_OK;
}

static double row_weight(const tutti_call *call, int64_t row)
{
    return call->row_weights == NULL ? 1.0 : (double)call->row_weights[row];
}

static void mse_forward(tutti_call *call)
{
    const int64_t width = call->layer->inputs;
    for (int64_t r = 0; r < call->rows; r++) {
        double squares = tti_nn_kernels()->squared_difference(call->saved + r * width, call->in + r * width,
                                                              call->target_values + r * width, (size_t)width);
        call->loss_sum += row_weight(call, r) * squares / (double)width;
        call->loss_count += row_weight(call, r);
    }
}

static void mse_backward(tutti_call *call)
{
    if (call->in_gradient == NULL) return;
    const int64_t width = call->layer->inputs;
    for (int64_t r = 0; r < call->rows; r++) {
        const float factor = (float)(2 * row_weight(call, r) / (double)width);
        for (int64_t i = r * width; i < (r + 1) * width; i++) call->in_gradient[i] = factor * call->saved[i];
    }
}

static const tutti_layer_ops mse_ops = {.kind = "mse",
                                        .setup = mse_setup,
                                        .forward = mse_forward,
                                        .backward_input = mse_backward,
                                        .reads = TUTTI_READS_TARGET_VALUES};

tutti_status tutti_add_mse(tutti_model *model)
{
    return tutti_model_add(model, "loss", &mse_ops, NULL, 0);
}

/* ---- Cross-entropy --------------------------------------------------------------------------------------------- */

/* What a row keeps beside its logits: the logarithm of the sum of their exponentials, and its weight. */
enum { SHIFT, WEIGHT, KEPT };

static void row_loss(tutti_call *call, int64_t row, const float *logits, double shift, const float *class_weights,
                     float *kept)
{
    const int32_t target = call->targets[row];
    double weight = target < 0 ? 0.0 : row_weight(call, row);
    if (target >= 0 && class_weights != NULL) weight *= (double)class_weights[target];
    kept[SHIFT] = (float)shift;
    kept[WEIGHT] = (float)weight;
    if (target < 0) return;
    call->loss_sum += weight * (shift - (double)logits[target]);
    call->loss_count += weight;
}

static tutti_status cross_entropy_setup(tutti_model *model, tutti_layer *layer)
{
    if (layer->inputs < 1) return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "there is nothing before it");
    layer->outputs = 0;
    layer->classes = layer->inputs;
    layer->saved = KEPT;
    return TUTTI_OK;
}

static void cross_entropy_forward(tutti_call *call)
{
    const int64_t classes = call->layer->inputs;
    for (int64_t r = 0; r < call->rows; r++) {
        const float *logits = call->in + r * classes;
        float highest = -INFINITY, sum = 0;
        tti_nn_kernels()->exp_sum(logits, (size_t)classes, &highest, &sum);
        row_loss(call, r, logits, (double)highest + log((double)sum), call->layer->config, call->saved + r * KEPT);
    }
}

static void cross_entropy_backward(tutti_call *call)
{
    if (call->in_gradient == NULL) return;
    const int64_t classes = call->layer->inputs;
    for (int64_t r = 0; r < call->rows; r++) {
        float *gradient = call->in_gradient + r * classes;
        const float *kept = call->saved + r * KEPT;
        memcpy(gradient, call->in + r * classes, (size_t)classes * sizeof *gradient);
        tti_nn_kernels()->exp_shifted(gradient, (size_t)classes, kept[SHIFT], kept[WEIGHT]);
        if (call->targets[r] >= 0) gradient[call->targets[r]] -= kept[WEIGHT];
    }
}

static const tutti_layer_ops cross_entropy_ops = {.kind = "cross_entropy",
                                                  .setup = cross_entropy_setup,
                                                  .forward = cross_entropy_forward,
                                                  .backward_input = cross_entropy_backward,
                                                  .reads = TUTTI_READS_TARGETS};

/* The config is the class weights, or nothing. */
tutti_status tutti_add_cross_entropy(tutti_model *model, const float *class_weights)
{
    size_t classes = model == NULL || model->layer_count == 0 ? 0
                                                              : (size_t)model->layers[model->layer_count - 1]->outputs;
    return tutti_model_add(model, "loss", &cross_entropy_ops, class_weights,
                           class_weights == NULL ? 0 : classes * sizeof *class_weights);
}

/* ---- Behind a tied weight -------------------------------------------------------------------------------------- */
/* logits = in W', W being (classes, width), in blocks of classes that fit the cache: a block's logits meet the softmax's
 * sums when they have just been made, and become gradients just before the product that needs them. Saved rows are
 * (logits, padded to 16; what a row keeps, padded to 16). */

enum { CLASS_BLOCK = 1024, ALIGNMENT = 16 };

static int64_t classes_of(const tutti_call *call)
{
    return call->model->tensors[call->layer->tensors[0]].shape[0];
}

static float *kept_of(const tutti_call *call, int64_t row)
{
    return call->saved + (row + 1) * call->layer->saved - ALIGNMENT;
}

static tutti_status tied_setup(tutti_model *model, tutti_layer *layer)
{
    const char *tied = layer->config;
    tutti_status status = tutti_layer_share(model, layer, tied);
    if (status != TUTTI_OK) return status;
    const tutti_tensor *tensor = tutti_model_find(model, tied);
    if (tensor->dimensions != 2 || tensor->shape[1] != layer->inputs)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "'%s' is not (classes, %lld)", tied,
                                (long long)layer->inputs);
    layer->outputs = 0;
    layer->classes = tensor->shape[0];
    layer->saved = (tensor->shape[0] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    return TUTTI_OK;
}

static int64_t block_end(int64_t from, int64_t classes)
{
    return from + CLASS_BLOCK < classes ? from + CLASS_BLOCK : classes;
}

static void tied_block(tutti_call *call, int64_t from, int64_t to)
{
    const int64_t width = call->layer->inputs, stride = call->layer->saved;
    const float *weight = call->values[0] + from * width;
    tti_gemm(call->rows, to - from, width, (struct tti_matrix){call->in, width, false},
             (struct tti_matrix){weight, width, true}, false, call->saved + from, stride);
    for (int64_t r = 0; r < call->rows; r++) {
        float *kept = kept_of(call, r);
        tti_nn_kernels()->exp_sum(call->saved + r * stride + from, (size_t)(to - from), &kept[0], &kept[1]);
    }
}

static void tied_forward(tutti_call *call)
{
    const int64_t classes = classes_of(call);
    for (int64_t r = 0; r < call->rows; r++) {
        kept_of(call, r)[0] = -INFINITY;
        kept_of(call, r)[1] = 0;
    }
    for (int64_t from = 0; from < classes; from += CLASS_BLOCK) tied_block(call, from, block_end(from, classes));
    for (int64_t r = 0; r < call->rows; r++) {
        float *kept = kept_of(call, r);
        double shift = (double)kept[0] + log((double)kept[1]);
        row_loss(call, r, call->saved + r * call->layer->saved, shift, NULL, kept);
    }
}

static void tied_backward_input(tutti_call *call)
{
    const int64_t width = call->layer->inputs, stride = call->layer->saved, classes = classes_of(call);
    for (int64_t from = 0; from < classes; from += CLASS_BLOCK) {
        int64_t to = block_end(from, classes);
        for (int64_t r = 0; r < call->rows; r++) {
            float *logits = call->saved + r * stride, *kept = kept_of(call, r);
            tti_nn_kernels()->exp_shifted(logits + from, (size_t)(to - from), kept[SHIFT], kept[WEIGHT]);
            int32_t target = call->targets[r];
            if (target >= from && target < to) logits[target] -= kept[WEIGHT];
        }
        if (call->in_gradient != NULL)
            tti_gemm(call->rows, width, to - from, (struct tti_matrix){call->saved + from, stride, false},
                     (struct tti_matrix){call->values[0] + from * width, width, false}, from > 0, call->in_gradient,
                     width);
    }
}

static void tied_backward_weights(tutti_call *call)
{
    const int64_t width = call->layer->inputs;
    int64_t from, to;
    tutti_part_range(classes_of(call), call->part, call->parts, &from, &to);
    tti_gemm(to - from, width, call->rows, (struct tti_matrix){call->saved + from, call->layer->saved, true},
             (struct tti_matrix){call->in, width, false}, call->accumulate[0], call->gradients[0] + from * width,
             width);
}

static const tutti_layer_ops tied_ops = {.kind = "tied_cross_entropy",
                                         .setup = tied_setup,
                                         .forward = tied_forward,
                                         .backward_input = tied_backward_input,
                                         .backward_weights = tied_backward_weights,
                                         .parts_by_row = true,
                                         .reads = TUTTI_READS_TARGETS};

tutti_status tutti_add_tied_cross_entropy(tutti_model *model, const char *name, const char *tied)
{
    return tutti_model_add(model, name, &tied_ops, tied, tied == NULL ? 1 : strlen(tied) + 1);
}
