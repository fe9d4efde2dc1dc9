/* SPDX-License-Identifier: Apache-2.0
 *
 * out = activation(in W + bias), W in the (inputs, outputs) shape of GPT-2's checkpoints. Terms that are added to a
 * product (bias, residual) are written to its place first: OpenBLAS adds to it at no cost.
 *
 * Cut by outputs, a width grain is some columns of W and of the bias, and input gradients are summed over grains. Cut
 * by inputs, it is some rows of W; the outputs are summed over grains, and other terms are added after that.
 */
#include "base/status.h"
#include "nn/blas.h"
#include "nn/nn_kernels.h"
#include "nn/width.h"
#include <math.h>
#include <string.h>

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

static tutti_status place(tutti_model *model, tutti_layer *layer)
{
    const tutti_linear *linear = linear_of(layer);
    const bool by_outputs = layer->cut == TUTTI_CUT_OUTPUTS;
    layer->saved = linear->activation == TUTTI_LINEAR ? 0 : layer->outputs;
    layer->scratch = tti_width_scratch(model, by_outputs ? layer->inputs : layer->outputs);
    TTI_TRY(tutti_layer_cut(model, layer, WEIGHT, by_outputs ? 1 : 0, by_outputs ? layer->sections : 1));
    return by_outputs && !linear->no_bias ? tutti_layer_cut(model, layer, BIAS, 0, layer->sections) : TUTTI_OK;
}

static void activate(tutti_call *call, const float *sum)
{
    const struct tti_nn_kernels *kernels = tti_nn_kernels();
    size_t count = (size_t)(call->rows * call->layer->outputs);
    float *to = call->out;
    (linear_of(call->layer)->activation == TUTTI_GELU ? kernels->gelu : kernels->relu)(to, sum, count);
    if (call->add != NULL) kernels->add(to, to, call->add, count);
}

static bool is_active(const tutti_layer *layer)
{
    return linear_of(layer)->activation != TUTTI_LINEAR;
}

static void forward_whole(tutti_call *call)
{
    const tutti_layer *layer = call->layer;
    const bool active = is_active(layer);
    float *sum = active ? call->saved : call->out;
    const float *bias = linear_of(layer)->no_bias ? NULL : call->values[BIAS], *add = active ? NULL : call->add;
    bool filled = bias != NULL || add != NULL;
    if (filled) tti_nn_kernels()->fill(sum, bias, add, (size_t)call->rows, (size_t)layer->outputs);
    tti_gemm(call->rows, layer->outputs, layer->inputs, (struct tti_matrix){call->in, layer->inputs, false},
             (struct tti_matrix){call->values[WEIGHT], layer->outputs, false}, filled, sum, layer->outputs);
    if (active) activate(call, sum);
}

/* Forward of a layer that is cut by outputs: each grain makes its own columns. */
static void forward_outputs(tutti_call *call)
{
    const tutti_layer *layer = call->layer;
    const bool biased = !linear_of(layer)->no_bias;
    float *sum = is_active(layer) ? call->saved : call->out;
    for (int g = 0; g < tutti_call_grains(call); g++) {
        int64_t from, to;
        tutti_call_outputs(call, g, &from, &to);
        if (from == to) continue;
        const float *bias = biased ? tutti_grain_values(call, BIAS, g) : NULL;
        for (int64_t r = 0; biased && r < call->rows; r++)
            memcpy(sum + r * layer->outputs + from, bias, (size_t)(to - from) * sizeof *sum);
        tti_gemm(call->rows, to - from, layer->inputs, (struct tti_matrix){call->in, layer->inputs, false},
                 (struct tti_matrix){tutti_grain_values(call, WEIGHT, g), to - from, false}, biased, sum + from,
                 layer->outputs);
    }
    if (is_active(layer)) activate(call, sum);
}

/* Computes the contribution of one grain of the inputs to some rows of the output. */
static void output_leaf(tutti_call *call, int grain, int64_t first, int64_t rows, float *out)
{
    const tutti_layer *layer = call->layer;
    int64_t from, to;
    tutti_call_inputs(call, grain, &from, &to);
    if (from == to) tti_fill_nothing(out, (size_t)(rows * layer->outputs));
    if (from == to) return;
    tti_gemm(rows, layer->outputs, to - from,
             (struct tti_matrix){call->in + first * layer->inputs + from, layer->inputs, false},
             (struct tti_matrix){tutti_grain_values(call, WEIGHT, grain), layer->outputs, false}, false, out,
             layer->outputs);
}

static void finish(tutti_call *call)
{
    const struct tti_nn_kernels *kernels = tti_nn_kernels();
    const size_t width = (size_t)call->layer->outputs, count = (size_t)call->rows * width;
    for (int64_t r = 0; !linear_of(call->layer)->no_bias && r < call->rows; r++)
        kernels->add(call->out + (size_t)r * width, call->out + (size_t)r * width, call->values[BIAS], width);
    if (is_active(call->layer)) {
        memcpy(call->saved, call->out, count * sizeof *call->saved);
        activate(call, call->saved);
    } else if (call->add != NULL) {
        kernels->add(call->out, call->out, call->add, count);
    }
}

static void forward(tutti_call *call)
{
    switch (call->layer->cut) {
    case TUTTI_CUT_OUTPUTS: forward_outputs(call); break;
    case TUTTI_CUT_INPUTS:
        tti_width_sum(call, call->layer->outputs, output_leaf, call->out);
        if (!call->layer->meets) finish(call);
        break;
    default: forward_whole(call);
    }
}

/* Computes the contribution of one grain of the outputs to the gradients of some rows of the input. */
static void input_leaf(tutti_call *call, int grain, int64_t first, int64_t rows, float *out)
{
    const tutti_layer *layer = call->layer;
    int64_t from, to;
    tutti_call_outputs(call, grain, &from, &to);
    if (from == to) tti_fill_nothing(out, (size_t)(rows * layer->inputs));
    if (from == to) return;
    tti_gemm(rows, layer->inputs, to - from,
             (struct tti_matrix){call->out_gradient + first * layer->outputs + from, layer->outputs, false},
             (struct tti_matrix){tutti_grain_values(call, WEIGHT, grain), to - from, true}, false, out, layer->inputs);
}

/* Computes the input's gradients; each grain of the inputs, or all of them, has its own columns. */
static void input_columns(tutti_call *call)
{
    const tutti_layer *layer = call->layer;
    if (call->add != NULL)
        tti_nn_kernels()->fill(call->in_gradient, NULL, call->add, (size_t)call->rows, (size_t)layer->inputs);
    for (int g = 0; g < tutti_call_grains(call); g++) {
        int64_t from, to;
        tutti_call_inputs(call, g, &from, &to);
        tti_gemm(call->rows, to - from, layer->outputs, (struct tti_matrix){call->out_gradient, layer->outputs, false},
                 (struct tti_matrix){tutti_grain_values(call, WEIGHT, g), layer->outputs, true}, call->add != NULL,
                 call->in_gradient + from, layer->inputs);
    }
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
    if (layer->cut == TUTTI_CUT_OUTPUTS)
        tti_width_sum(call, layer->inputs, input_leaf, call->in_gradient);
    else
        input_columns(call);
}

static void backward_weights(tutti_call *call)
{
    const tutti_layer *layer = call->layer;
    int64_t in, in_end, out, out_end, from, to;
    tutti_call_inputs(call, call->grain, &in, &in_end);
    tutti_call_outputs(call, call->grain, &out, &out_end);
    tutti_part_range(out_end - out, call->part, call->parts, &from, &to);
    if (from == to) return; /* this rank may have no columns, and no memory for them */
    const float *out_gradient = call->out_gradient + out + from, *rows = in_end > in ? call->in + in : NULL;
    tti_gemm(in_end - in, to - from, call->rows, (struct tti_matrix){rows, layer->inputs, true},
             (struct tti_matrix){out_gradient, layer->outputs, false}, call->accumulate[WEIGHT],
             call->gradients[WEIGHT] + from, out_end - out);
    if (linear_of(layer)->no_bias || (layer->cut == TUTTI_CUT_INPUTS && call->grain > 0)) return;
    tti_nn_kernels()->column_sums(call->gradients[BIAS] + from, out_gradient, (size_t)call->rows, (size_t)(to - from),
                                  (size_t)layer->outputs, call->accumulate[BIAS]);
}

/* Returns the parts of one width grain: a product of its own needs some 150,000 numbers to pay off. */
static int parts_of_grain(const tutti_model *model, const tutti_layer *layer)
{
    enum { WORTH = 384 * 384, LEAST = 64 };
    const bool by_outputs = layer->cut == TUTTI_CUT_OUTPUTS;
    const int64_t inputs = by_outputs ? layer->inputs : tti_grains_length(model, layer->whole_inputs, 1, 0, 1);
    const int64_t outputs = by_outputs ? tti_grains_length(model, layer->whole_outputs, layer->sections, 0, 1)
                                       : layer->outputs;
    int64_t count = inputs * outputs / WORTH, most = outputs / LEAST;
    if (count > most) count = most;
    return count < 1 ? 1 : (int)count;
}

/* Returns the parts of the layer: wide enough for good matrix products, narrow enough for some threads. */
static int parts(const tutti_model *model, const tutti_layer *layer)
{
    if (layer->cut != TUTTI_CUT_WHOLE) return parts_of_grain(model, layer);
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
    .weights_read_in = true,
    .unread = TUTTI_UNREAD_OUT,
    .adds = true,
    .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_OUTPUTS | TUTTI_CUT_INPUTS,
    .place = place,
    .finish = finish,
};

tutti_status tutti_add_linear(tutti_model *model, const char *name, const tutti_linear *linear)
{
    return tutti_model_add(model, name, &ops, linear, sizeof *linear);
}
