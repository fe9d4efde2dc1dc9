/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm: each column over all rows of the global batch. For the rows of a grain it collects their number, and for
 * each column the mean and the sum of squared differences from it; two such records merge into one for both (Chan). So
 * the variance is never the difference of two large numbers, and the order is that of the canonical tree over grains.
 */
#include "nn/nn_kernels.h"
#include "nn/width.h"
#include <math.h>
#include <string.h>

enum { WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VARIANCE, PARTS };

/* The layout of collected data: the number of rows, then means, then squares, one per column; in backward, sums of
 * gradients, then sums of gradients times normalised inputs. */
static double *means(double *collected)
{
    return collected + 1;
}

static double *squares(double *collected, int64_t columns)
{
    return collected + 1 + columns;
}

static void set_sizes(tutti_layer *layer)
{
    layer->collects = 1 + 2 * layer->inputs;
    layer->collects_back = 2 * layer->inputs;
    layer->scratch = 6 * layer->inputs;
}

static tutti_status batch_norm_setup(tutti_model *model, tutti_layer *layer)
{
    const tutti_batch_norm *config = layer->config;
    if (!(config->epsilon > 0 && isfinite(config->epsilon) && config->momentum > 0 && config->momentum <= 1))
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT,
                                "an epsilon of %g and a momentum of %g; epsilon is above 0, momentum at most 1",
                                config->epsilon, config->momentum);
    const int64_t *shape = &layer->inputs;
    set_sizes(layer);
    tutti_status status = tutti_layer_tensor(model, layer, "weight", 1, shape, TUTTI_INIT_ONE, 0);
    if (status == TUTTI_OK) status = tutti_layer_tensor(model, layer, "bias", 1, shape, TUTTI_INIT_ZERO, 0);
    if (status == TUTTI_OK) status = tutti_layer_state(model, layer, "running_mean", 1, shape, TUTTI_INIT_ZERO);
    if (status == TUTTI_OK) status = tutti_layer_state(model, layer, "running_var", 1, shape, TUTTI_INIT_ONE);
    return status;
}

static tutti_status batch_norm_place(tutti_model *model, tutti_layer *layer)
{
    set_sizes(layer);
    for (int n = 0; n < PARTS; n++) {
        tutti_status status = tutti_layer_cut(model, layer, n, 0, layer->sections > 1 ? layer->sections : 1);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

/* ---- Statistics ------------------------------------------------------------------------------------------------ */

static void batch_norm_collect(tutti_call *call)
{
    const int64_t columns = call->layer->inputs;
    double *mean = means(call->collected), *square = squares(call->collected, columns);
    memset(mean, 0, 2 * (size_t)columns * sizeof *mean);
    call->collected[0] = (double)call->rows;
    for (int64_t r = 0; r < call->rows; r++)
        for (int64_t c = 0; c < columns; c++) mean[c] += (double)call->in[r * columns + c];
    for (int64_t c = 0; c < columns; c++) mean[c] /= (double)call->rows;
    for (int64_t r = 0; r < call->rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const double difference = (double)call->in[r * columns + c] - mean[c];
            square[c] += difference * difference;
        }
}

static void batch_norm_merge(const tutti_layer *layer, double *into, const double *from)
{
    const int64_t columns = layer->inputs;
    const double rows = into[0] + from[0];
    if (from[0] == 0) return; /* there are no rows; without this check 0 / 0 if neither has any */
    const double share = from[0] / rows;
    for (int64_t c = 1; c <= columns; c++) {
        const double difference = from[c] - into[c];
        into[columns + c] += from[columns + c] + difference * difference * into[0] * share;
        into[c] += difference * share;
    }
    into[0] = rows;
}

static void follow(float *running, double value, double momentum)
{
    *running = (float)((1 - momentum) * (double)*running + momentum * value);
}

static tutti_status batch_norm_merged(tutti_model *model, const tutti_layer *layer, const double *collected)
{
    const tutti_batch_norm *config = layer->config;
    const double rows = collected[0];
    if (rows == 1)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT,
                                "the whole batch has one row; a variance needs two or more");
    tutti_tensor *mean = tti_layer_part(model, layer, RUNNING_MEAN);
    tutti_tensor *variance = tti_layer_part(model, layer, RUNNING_VARIANCE);
    int64_t c = 1;
    for (int g = 0; rows > 0 && g < tti_piece_count(model, mean); g++) {
        const size_t at = tti_piece_offset(model, mean, g), count = tti_piece_elements(model, mean, g);
        for (size_t i = at; i < at + count; i++, c++) {
            follow(&model->state[mean->offset + i], collected[c], config->momentum);
            follow(&model->state[variance->offset + i], collected[layer->inputs + c] / (rows - 1), config->momentum);
        }
    }
    return TUTTI_OK;
}

/* ---- Columns --------------------------------------------------------------------------------------------------- */

/* The mean, and one over the deviation, of each column on this rank. */
struct scale {
    float *mean, *inverse;
};

static float inverse_of(const tutti_call *call, double variance)
{
    const tutti_batch_norm *config = call->layer->config;
    return (float)(1 / sqrt(variance + config->epsilon));
}

static void find_running(const tutti_call *call, struct scale scale)
{
    for (int g = 0; g < tutti_call_grains(call); g++) {
        const float *mean = tutti_grain_values(call, RUNNING_MEAN, g);
        const float *variance = tutti_grain_values(call, RUNNING_VARIANCE, g);
        int64_t from, to;
        tutti_call_inputs(call, g, &from, &to);
        for (int64_t c = from; c < to; c++) {
            scale.mean[c] = mean[c - from];
            scale.inverse[c] = inverse_of(call, (double)variance[c - from]);
        }
    }
}

/* Computes the scales in the call's scratch, behind the room for as many doubles. */
static struct scale find_scale(const tutti_call *call)
{
    const int64_t columns = call->layer->inputs;
    const struct scale scale = {call->scratch + 4 * columns, call->scratch + 5 * columns};
    if (!call->training) {
        find_running(call, scale);
        return scale;
    }
    const double *mean = means(call->collected), *square = squares(call->collected, columns);
    for (int64_t c = 0; c < columns; c++) {
        scale.mean[c] = (float)mean[c];
        scale.inverse[c] = inverse_of(call, square[c] / call->collected[0]);
    }
    return scale;
}

static void batch_norm_forward(tutti_call *call)
{
    const int64_t columns = call->layer->inputs;
    const struct scale scale = find_scale(call);
    for (int g = 0; g < tutti_call_grains(call); g++) {
        int64_t from, to;
        tutti_call_inputs(call, g, &from, &to);
        const float *weight = tutti_grain_values(call, WEIGHT, g), *bias = tutti_grain_values(call, BIAS, g);
        for (int64_t r = 0; r < call->rows; r++) {
            const float *in = call->in + r * columns;
            float *out = call->out + r * columns;
            for (int64_t c = from; c < to; c++)
                out[c] = (in[c] - scale.mean[c]) * scale.inverse[c] * weight[c - from] + bias[c - from];
        }
    }
}

static void batch_norm_collect_back(tutti_call *call)
{
    const int64_t columns = call->layer->inputs;
    const struct scale scale = find_scale(call);
    double *sum = call->collected_back, *product = sum + columns;
    memset(sum, 0, 2 * (size_t)columns * sizeof *sum);
    for (int64_t r = 0; r < call->rows; r++) {
        const float *in = call->in + r * columns, *gradient = call->out_gradient + r * columns;
        for (int64_t c = 0; c < columns; c++) {
            sum[c] += (double)gradient[c];
            product[c] += (double)gradient[c] * (double)((in[c] - scale.mean[c]) * scale.inverse[c]);
        }
    }
}

static void batch_norm_backward_input(tutti_call *call)
{
    if (call->in_gradient == NULL) return;
    const int64_t columns = call->layer->inputs;
    const struct scale scale = find_scale(call);
    const double rows = call->collected[0], *sum = call->collected_back;
    float *mean_gradient = call->scratch, *mean_product = call->scratch + columns;
    for (int64_t c = 0; c < columns; c++) {
        mean_gradient[c] = (float)(sum[c] / rows);
        mean_product[c] = (float)(sum[columns + c] / rows);
    }
    for (int g = 0; g < tutti_call_grains(call); g++) {
        int64_t from, to;
        tutti_call_inputs(call, g, &from, &to);
        const float *weight = tutti_grain_values(call, WEIGHT, g);
        for (int64_t r = 0; r < call->rows; r++) {
            const float *in = call->in + r * columns, *gradient = call->out_gradient + r * columns;
            float *in_gradient = call->in_gradient + r * columns;
            for (int64_t c = from; c < to; c++) {
                const float normal = (in[c] - scale.mean[c]) * scale.inverse[c];
                in_gradient[c] = weight[c - from] * scale.inverse[c] *
                                 (gradient[c] - mean_gradient[c] - normal * mean_product[c]);
            }
        }
    }
}

/* Computes the gradients of one grain's columns. The sums of collect_back are over all rows; here they are over the
 * call's rows. */
static void batch_norm_backward_weights(tutti_call *call)
{
    if (call->part > 0) return;
    const int64_t columns = call->layer->inputs;
    const struct scale scale = find_scale(call);
    double *sum = (double *)(void *)call->scratch, *product = sum + columns;
    int64_t from, to;
    tutti_call_inputs(call, call->grain, &from, &to);
    memset(sum, 0, 2 * (size_t)columns * sizeof *sum);
    for (int64_t r = 0; r < call->rows; r++) {
        const float *in = call->in + r * columns, *gradient = call->out_gradient + r * columns;
        for (int64_t c = from; c < to; c++) {
            sum[c] += (double)gradient[c];
            product[c] += (double)gradient[c] * (double)((in[c] - scale.mean[c]) * scale.inverse[c]);
        }
    }
    for (int64_t c = from; c < to; c++) {
        float *weight = call->gradients[WEIGHT] + (c - from), *bias = call->gradients[BIAS] + (c - from);
        *weight = (float)product[c] + (call->accumulate[WEIGHT] ? *weight : 0);
        *bias = (float)sum[c] + (call->accumulate[BIAS] ? *bias : 0);
    }
}

static const tutti_layer_ops batch_norm_ops = {
    .kind = "batch_norm",
    .setup = batch_norm_setup,
    .forward = batch_norm_forward,
    .backward_input = batch_norm_backward_input,
    .backward_weights = batch_norm_backward_weights,
    .weights_read_in = true,
    .unread = TUTTI_UNREAD_OUT,
    .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_ALIKE,
    .place = batch_norm_place,
    .collect = batch_norm_collect,
    .merge = batch_norm_merge,
    .collect_back = batch_norm_collect_back,
    .merged = batch_norm_merged,
};

tutti_status tutti_add_batch_norm(tutti_model *model, const char *name, const tutti_batch_norm *given)
{
    tutti_batch_norm batch_norm = {0};
    if (given != NULL) batch_norm = *given;
    if (batch_norm.epsilon == 0) batch_norm.epsilon = 1e-5;
    if (batch_norm.momentum == 0) batch_norm.momentum = 0.1;
    return tutti_model_add(model, name, &batch_norm_ops, &batch_norm, sizeof batch_norm);
}
