/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that work on each element by itself: GELU, ReLU, dropout.
 */
#include "nn/nn_kernels.h"
#include "nn/random_key.h"
#include "nn/width.h"
#include <string.h>

static size_t count_of(const tutti_call *call)
{
    return (size_t)(call->rows * call->layer->outputs);
}

static tutti_status plain_setup(tutti_model *model, tutti_layer *layer)
{
    (void)model;
    (void)layer; /* there are as many outputs as inputs */
    return TUTTI_OK;
}

static void gelu_forward(tutti_call *call)
{
    tti_nn_kernels()->gelu(call->out, call->in, count_of(call));
}

static void gelu_backward(tutti_call *call)
{
    if (call->in_gradient == NULL) return;
    memcpy(call->in_gradient, call->out_gradient, count_of(call) * sizeof(float));
    tti_nn_kernels()->gelu_backward(call->in_gradient, call->in, count_of(call));
}

static const tutti_layer_ops gelu_ops = {
    .kind = "gelu",
    .setup = plain_setup,
    .forward = gelu_forward,
    .backward_input = gelu_backward,
    .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_ALIKE | TUTTI_CUT_ROWS,
};

tutti_status tutti_add_gelu(tutti_model *model, const char *name)
{
    return tutti_model_add(model, name, &gelu_ops, NULL, 0);
}

static void relu_forward(tutti_call *call)
{
    tti_nn_kernels()->relu(call->out, call->in, count_of(call));
}

static void relu_backward(tutti_call *call)
{
    if (call->in_gradient == NULL) return;
    memcpy(call->in_gradient, call->out_gradient, count_of(call) * sizeof(float));
    tti_nn_kernels()->relu_backward(call->in_gradient, call->in, count_of(call));
}

static const tutti_layer_ops relu_ops = {
    .kind = "relu",
    .setup = plain_setup,
    .forward = relu_forward,
    .backward_input = relu_backward,
    .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_ALIKE | TUTTI_CUT_ROWS,
};

tutti_status tutti_add_relu(tutti_model *model, const char *name)
{
    return tutti_model_add(model, name, &relu_ops, NULL, 0);
}

/* ---- Dropout: the mask is never stored, it follows from (seed, name, index in the global batch, step) ------------ */

static tutti_status dropout_setup(tutti_model *model, tutti_layer *layer)
{
    double probability = *(const double *)layer->config;
    if (probability >= 0 && probability < 1) return TUTTI_OK;
    return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "a probability of %g; it must be in [0, 1)", probability);
}

struct mask {
    uint32_t key[2], step;
    float keep;
};

/* Dropout for rows that are cut: a section of a grain is contiguous here and in the whole row. */
static void drop_cut(const tutti_call *call, const struct mask *mask, float *to, const float *from)
{
    const tutti_layer *layer = call->layer;
    const struct tti_width *width = &call->model->width;
    const int64_t section = layer->whole_outputs / layer->sections;
    const int64_t first_row = call->first_sample * call->model->shape.rows + call->first_row;
    for (int64_t r = 0; r < call->rows; r++)
        for (int i = 0; i < width->here * layer->sections; i++) {
            const struct tti_span span = tti_grain_share(call->model, section, width->first + i / layer->sections);
            const int64_t column = i % layer->sections * section + (int64_t)span.lo;
            tti_nn_kernels()->dropout(to, from, NULL, span.hi - span.lo, mask->key,
                                      (uint64_t)((first_row + r) * layer->whole_outputs + column), mask->step,
                                      mask->keep);
            to += span.hi - span.lo;
            from += span.hi - span.lo;
        }
}

static void drop(const tutti_call *call, float *to, const float *from)
{
    const double probability = *(const double *)call->layer->config;
    struct mask mask = {.step = (uint32_t)call->step, .keep = call->training ? (float)(1 - probability) : 1.0f};
    tti_random_key(call->seed, call->layer->name, mask.key);
    if (call->layer->cut != TUTTI_CUT_WHOLE) {
        drop_cut(call, &mask, to, from);
        return;
    }
    const int64_t first_row = call->first_sample * call->model->shape.rows + call->first_row;
    const uint64_t first = (uint64_t)(first_row * call->layer->outputs);
    tti_nn_kernels()->dropout(to, from, call->add, count_of(call), mask.key, first, mask.step, mask.keep);
}

static void dropout_forward(tutti_call *call)
{
    drop(call, call->out, call->in);
}

static void dropout_backward(tutti_call *call)
{
    if (call->in_gradient != NULL) drop(call, call->in_gradient, call->out_gradient);
}

static const tutti_layer_ops dropout_ops = {.kind = "dropout",
                                            .setup = dropout_setup,
                                            .forward = dropout_forward,
                                            .backward_input = dropout_backward,
                                            .adds = true,
                                            .unread = TUTTI_UNREAD_IN | TUTTI_UNREAD_OUT,
                                            .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_ALIKE | TUTTI_CUT_ROWS};

tutti_status tutti_add_dropout(tutti_model *model, const char *name, double probability)
{
    return tutti_model_add(model, name, &dropout_ops, &probability, sizeof probability);
}
