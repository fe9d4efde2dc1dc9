/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that work on each element alone: GELU, ReLU, dropout.
 */
#include "nn/kernels.h"
#include "nn/model.h"
#include "nn/random.h"
#include <string.h>

static size_t count_of(const tutti_call *call)
{
    return (size_t)(call->rows * call->layer->outputs);
}

static tutti_status plain_setup(tutti_model *model, tutti_layer *layer)
{
    (void)model;
    (void)layer; /* as many outputs as inputs */
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
    .kind = "gelu", .setup = plain_setup, .forward = gelu_forward, .backward_input = gelu_backward};

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
    .kind = "relu", .setup = plain_setup, .forward = relu_forward, .backward_input = relu_backward};

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

static void drop(const tutti_call *call, float *to, const float *from)
{
    const double probability = *(const double *)call->layer->config;
    const float keep = call->training ? (float)(1 - probability) : 1.0f;
    uint32_t key[2];
    tti_random_key(call->seed, call->layer->name, key);
    uint64_t first = (uint64_t)(call->first_sample * call->model->shape.rows * call->layer->outputs);
    tti_nn_kernels()->dropout(to, from, call->add, count_of(call), key, first, (uint32_t)call->step, keep);
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
                                            .adds = true};

tutti_status tutti_add_dropout(tutti_model *model, const char *name, double probability)
{
    return tutti_model_add(model, name, &dropout_ops, &probability, sizeof probability);
}
