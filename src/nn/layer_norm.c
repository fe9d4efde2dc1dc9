/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm and RMS norm over the floats of a row, with a weight (and a bias) per float.
 */
#include "nn/model.h"
#include "nn/nn_kernels.h"

enum { WEIGHT, BIAS };

static tutti_status layer_norm_setup(tutti_model *model, tutti_layer *layer)
{
    layer->saved = 2; /* mean, and 1 / deviation */
    tutti_status status = tutti_layer_tensor(model, layer, "weight", 1, &layer->inputs, TUTTI_INIT_ONE, 0);
    if (status != TUTTI_OK) return status;
    return tutti_layer_tensor(model, layer, "bias", 1, &layer->inputs, TUTTI_INIT_ZERO, 0);
}

static void layer_norm_forward(tutti_call *call)
{
    tti_nn_kernels()->layer_norm(call->out, call->saved, call->in, call->values[WEIGHT], call->values[BIAS],
                                 (size_t)call->rows, (size_t)call->layer->inputs);
    size_t count = (size_t)(call->rows * call->layer->outputs);
    if (call->add != NULL) tti_nn_kernels()->add(call->out, call->out, call->add, count);
}

static void layer_norm_backward_input(tutti_call *call)
{
    if (call->in_gradient == NULL) return;
    tti_nn_kernels()->layer_norm_input(call->in_gradient, call->add, call->out_gradient, call->in, call->saved,
                                       call->values[WEIGHT], (size_t)call->rows, (size_t)call->layer->inputs);
}

static void layer_norm_backward_weights(tutti_call *call)
{
    if (call->part > 0) return;
    tti_nn_kernels()->layer_norm_weights(call->gradients[WEIGHT], call->gradients[BIAS], call->out_gradient, call->in,
                                         call->saved, (size_t)call->rows, (size_t)call->layer->inputs,
                                         call->accumulate[WEIGHT]);
}

static const tutti_layer_ops layer_norm_ops = {
    .kind = "layer_norm",
    .setup = layer_norm_setup,
    .forward = layer_norm_forward,
    .backward_input = layer_norm_backward_input,
    .backward_weights = layer_norm_backward_weights,
    .adds = true,
    .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_ROWS,
};

tutti_status tutti_add_layer_norm(tutti_model *model, const char *name)
{
    return tutti_model_add(model, name, &layer_norm_ops, NULL, 0);
}

static tutti_status rms_norm_setup(tutti_model *model, tutti_layer *layer)
{
    layer->saved = 1; /* 1 / root of the mean square */
    return tutti_layer_tensor(model, layer, "weight", 1, &layer->inputs, TUTTI_INIT_ONE, 0);
}

static void rms_norm_forward(tutti_call *call)
{
    tti_nn_kernels()->rms_norm(call->out, call->saved, call->in, call->values[WEIGHT], (size_t)call->rows,
                               (size_t)call->layer->inputs);
    size_t count = (size_t)(call->rows * call->layer->outputs);
    if (call->add != NULL) tti_nn_kernels()->add(call->out, call->out, call->add, count);
}

static void rms_norm_backward_input(tutti_call *call)
{
    if (call->in_gradient == NULL) return;
    tti_nn_kernels()->rms_norm_input(call->in_gradient, call->add, call->out_gradient, call->in, call->saved,
                                     call->values[WEIGHT], (size_t)call->rows, (size_t)call->layer->inputs);
}

static void rms_norm_backward_weights(tutti_call *call)
{
    if (call->part > 0) return;
    tti_nn_kernels()->rms_norm_weights(call->gradients[WEIGHT], call->out_gradient, call->in, call->saved,
                                       (size_t)call->rows, (size_t)call->layer->inputs, call->accumulate[WEIGHT]);
}

static const tutti_layer_ops rms_norm_ops = {
    .kind = "rms_norm",
    .setup = rms_norm_setup,
    .forward = rms_norm_forward,
    .backward_input = rms_norm_backward_input,
    .backward_weights = rms_norm_backward_weights,
    .adds = true,
    .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_ROWS,
};

tutti_status tutti_add_rms_norm(tutti_model *model, const char *name)
{
    return tutti_model_add(model, name, &rms_norm_ops, NULL, 0);
}
