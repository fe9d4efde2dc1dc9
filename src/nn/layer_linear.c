/* SPDX-License-Identifier: Apache-2.0
 *
 * out = activation(in W + bias), W in the (inputs, outputs) shape of GPT-2's checkpoints. What is added to a product
 * (bias, residual) is written to its place first: OpenBLAS adds to it at no cost.
 */
#include "nn/blas.h"
#include "nn/kernels.h"
#include "nn/model.h"
#include <math.h>

enum { WEIGHT, BIAS };

static const tutti_linear *linear_of(const tutti_layer *layer)
{
    return layer->config;
}

static tutti_status setup(tutti_model *model, tutti_layer *layer)
{
    const tutti_linear *linear = linear_of(layer);
    if (linear->outputs < 1 || layer->inputs < 1)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "%lld inputs and %lld outputs; both must be positive",
                                (long long)layer->inputs, (long long)linear->outputs);
    if ((int)linear->activation < TUTTI_LINEAR || linear->activation > TUTTI_RELU)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "there is no activation %d", (int)linear->activation);
    layer->outputs = linear->outputs;
    layer->saved = linear->activation == TUTTI_LINEAR ? 0 : linear->outputs;
    layer->changes_gradient = linear->activation != TUTTI_LINEAR;
    double scale = linear->init_scale > 0 ? linear->init_scale : 1 / sqrt((double)layer->inputs);
    int64_t shape[] = {layer->inputs, linear->outputs};
    tutti_status status = tutti_layer_tensor(model, layer, "weight", 2, shape, TUTTI_INIT_NORMAL, scale);
    if (status != TUTTI_OK || linear->no_bias) return status;
    return tutti_layer_tensor(model, layer, "bias", 1, &linear->outputs, TUTTI_INIT_ZERO, 0);
}

static void activate(tutti_call *call, const float *sum)
{
    const struct tti_nn_kernels *kernels = tti_nn_kernels();
    size_t count = (size_t)(call->rows * call->layer->outputs);
    float *to = call->out;
    (linear_of(call->layer)->activation == TUTTI_GELU ? kernels->gelu : kernels->relu)(to, sum, count);
    if (call->add != NULL) kernels->add(to, to, call->add, count);
}

static void forward(tutti_call *call)
{
    const tutti_layer *layer = call->layer;
    const tutti_linear *linear = linear_of(layer);
    bool active = linear->activation != TUTTI_LINEAR;
    float *sum = active ? call->saved : call->out;
    const float *bias = linear->no_bias ? NULL : call->values[BIAS], *add = active ? NULL : call->add;
    bool filled = bias != NULL || add != NULL;
    if (filled) tti_nn_kernels()->fill(sum, bias, add, (size_t)call->rows, (size_t)layer->outputs);
    tti_gemm(call->rows, layer->outputs, layer->inputs, (struct tti_matrix){call->in, layer->inputs, false},
             (struct tti_matrix){call->values[WEIGHT], layer->outputs, false}, filled, sum, layer->outputs);
    if (active) activate(call, sum);
}

static void backward_input(tutti_call *call)
{
    const tutti_layer *layer = call->layer;
    const struct tti_nn_kernels *kernels = tti_nn_kernels();
    size_t count = (size_t)(call->rows * layer->outputs);
    tutti_activation activation = linear_of(layer)->activation;
    if (activation == TUTTI_GELU) kernels->gelu_backward(call->out_gradient, call->saved, count);
    if (activation == TUTTI_RELU) kernels->relu_backward(call->out_gradient, call->saved, count);
    if (call->in_gradient == NULL) return;
    if (call->add != NULL) kernels->fill(call->in_gradient, NULL, call->add, (size_t)call->rows, (size_t)layer->inputs);
    tti_gemm(call->rows, layer->inputs, layer->outputs, (struct tti_matrix){call->out_gradient, layer->outputs, false},
             (struct tti_matrix){call->values[WEIGHT], layer->outputs, true}, call->add != NULL, call->in_gradient,
             layer->inputs);
}

static void backward_weights(tutti_call *call)
{
    const tutti_layer *layer = call->layer;
    int64_t from, to;
    tutti_part_range(layer->outputs, call->part, call->parts, &from, &to);
    tti_gemm(layer->inputs, to - from, call->rows, (struct tti_matrix){call->in, layer->inputs, true},
             (struct tti_matrix){call->out_gradient + from, layer->outputs, false}, call->accumulate[WEIGHT],
             call->gradients[WEIGHT] + from, layer->outputs);
    if (linear_of(layer)->no_bias) return;
    tti_nn_kernels()->column_sums(call->gradients[BIAS] + from, call->out_gradient + from, (size_t)call->rows,
                                  (size_t)(to - from), (size_t)layer->outputs, call->accumulate[BIAS]);
}

/* Wide enough for good matrix products, narrow enough for some threads. */
static int parts(const tutti_model *model, const tutti_layer *layer)
{
    (void)model;
    int64_t count = layer->outputs / (layer->outputs >= 1024 ? 256 : 128);
    return count < 1 ? 1 : (int)count;
}

static const tutti_layer_ops ops = {
    .kind = "linear",
    .setup = setup,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weights = backward_weights,
    .parts = parts,
    .adds = true,
};

tutti_status tutti_add_linear(tutti_model *model, const char *name, const tutti_linear *linear)
{
    return tutti_model_add(model, name, &ops, linear, sizeof *linear);
}
