/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses. Each adds (sum, count) of its rows in double, in row order, and computes gradients of the sum. A row's weight
 * is the batch's weight of the row times the weight of its class; rows with a target below 0 have none.
 */
#include "nn/loss.h"

#include "nn/nn_kernels.h"
#include "nn/width.h"
#include <math.h>
#include <string.h>

/* ---- Mean squared error ---------------------------------------------------------------------------------------- */

static tutti_status mse_setup(tutti_model *model, tutti_layer *layer)
{
    if (layer->inputs < 1) return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "there is nothing before it");
    layer->outputs = 0;
    layer->saved = layer->inputs; /* the differences */
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
                                        .reads = TUTTI_READS_TARGET_VALUES,
                                        .cuts = TUTTI_CUT_WHOLE};

tutti_status tutti_add_mse(tutti_model *model)
{
    return tutti_model_add(model, "loss", &mse_ops, NULL, 0);
}

/* ---- Cross-entropy --------------------------------------------------------------------------------------------- */

void tti_row_loss(tutti_call *call, int64_t row, double logit, double shift, const float *class_weights, float *kept)
{
    const int32_t target = call->targets[row];
    double weight = target < 0 ? 0.0 : row_weight(call, row);
    if (target >= 0 && class_weights != NULL) weight *= (double)class_weights[target];
    kept[TTI_KEPT_SHIFT] = (float)shift;
    kept[TTI_KEPT_WEIGHT] = (float)weight;
    if (target < 0) return;
    call->loss_sum += weight * (shift - logit);
    call->loss_count += weight;
}

static tutti_status cross_entropy_setup(tutti_model *model, tutti_layer *layer)
{
    if (layer->inputs < 1) return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "there is nothing before it");
    layer->outputs = 0;
    layer->classes = layer->inputs;
    layer->saved = TTI_KEPT;
    return TUTTI_OK;
}

/* Cut, it takes the columns of this rank's grains. */
static tutti_status cross_entropy_place(tutti_model *model, tutti_layer *layer)
{
    layer->gathers = TTI_LOSS_GATHERED * model->width.here;
    return TUTTI_OK;
}

/* The classes of a width grain, or all of them; `column`: where their logits begin in a row. */
struct grain_classes {
    int64_t first, count, column;
};

static struct grain_classes grain_classes(const tutti_call *call, int grain)
{
    struct grain_classes classes = {0};
    int64_t end;
    tutti_call_inputs(call, grain, &classes.column, &end);
    classes.count = end - classes.column;
    if (call->layer->cut == TUTTI_CUT_WHOLE) return classes;
    classes.first = (int64_t)tti_grain_share(call->model, call->layer->classes, call->model->width.first + grain).lo;
    return classes;
}

/* Returns a row's target, counted from the first of these classes; -1: it is none of them. */
static int64_t target_in(const tutti_call *call, struct grain_classes classes, int64_t row)
{
    const int64_t target = call->targets[row] - classes.first;
    return call->targets[row] < 0 || target < 0 || target >= classes.count ? -1 : target;
}

static void cross_entropy_finish(tutti_call *call)
{
    tti_loss_merge(call, call->layer->config, call->saved, TTI_KEPT);
}

static void forward_grain(tutti_call *call, int grain)
{
    const struct grain_classes classes = grain_classes(call, grain);
    tti_loss_begin(call, grain);
    for (int64_t r = 0; classes.count > 0 && r < call->rows; r++) {
        const float *logits = call->in + r * call->layer->inputs + classes.column;
        float *part = tti_loss_part(call, r, grain);
        const int64_t target = target_in(call, classes, r);
        tti_nn_kernels()->exp_sum(logits, (size_t)classes.count, &part[TTI_LOSS_HIGHEST], &part[TTI_LOSS_SUM]);
        if (target >= 0) part[TTI_LOSS_LOGIT] = logits[target];
    }
}

static void forward_whole(tutti_call *call)
{
    const int64_t classes = call->layer->inputs;
    for (int64_t r = 0; r < call->rows; r++) {
        const float *logits = call->in + r * classes;
        float highest = -INFINITY, sum = 0;
        tti_nn_kernels()->exp_sum(logits, (size_t)classes, &highest, &sum);
        const double logit = call->targets[r] < 0 ? 0 : (double)logits[call->targets[r]];
        tti_row_loss(call, r, logit, (double)highest + log((double)sum), call->layer->config,
                     call->saved + r * TTI_KEPT);
    }
}

static void cross_entropy_forward(tutti_call *call)
{
    if (call->layer->cut == TUTTI_CUT_WHOLE) {
        forward_whole(call);
        return;
    }
    for (int g = 0; g < tutti_call_grains(call); g++) forward_grain(call, g);
    if (!call->layer->meets) cross_entropy_finish(call);
}

static void backward_grain(tutti_call *call, struct grain_classes classes)
{
    const int64_t width = call->layer->inputs;
    for (int64_t r = 0; classes.count > 0 && r < call->rows; r++) {
        float *gradient = call->in_gradient + r * width + classes.column;
        const float *kept = call->saved + r * TTI_KEPT;
        const int64_t target = target_in(call, classes, r);
        memcpy(gradient, call->in + r * width + classes.column, (size_t)classes.count * sizeof *gradient);
        tti_nn_kernels()->exp_shifted(gradient, (size_t)classes.count, kept[TTI_KEPT_SHIFT], kept[TTI_KEPT_WEIGHT]);
        if (target >= 0) gradient[target] -= kept[TTI_KEPT_WEIGHT];
    }
}

static void cross_entropy_backward(tutti_call *call)
{
    for (int g = 0; call->in_gradient != NULL && g < tutti_call_grains(call); g++)
        backward_grain(call, grain_classes(call, g));
}

static const tutti_layer_ops cross_entropy_ops = {.kind = "cross_entropy",
                                                  .setup = cross_entropy_setup,
                                                  .forward = cross_entropy_forward,
                                                  .backward_input = cross_entropy_backward,
                                                  .reads = TUTTI_READS_TARGETS,
                                                  .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_INPUTS,
                                                  .place = cross_entropy_place,
                                                  .finish = cross_entropy_finish};

/* The config is the class weights, or nothing. */
tutti_status tutti_add_cross_entropy(tutti_model *model, const float *class_weights)
{
    size_t classes = model == NULL || model->layer_count == 0 ? 0
                                                              : (size_t)model->layers[model->layer_count - 1]->outputs;
    return tutti_model_add(model, "loss", &cross_entropy_ops, class_weights,
                           class_weights == NULL ? 0 : classes * sizeof *class_weights);
}
