/* SPDX-License-Identifier: Apache-2.0 */
#include "nn_reference.h"

#include "nn/nn_kernels.h"
#include "nn/random_key.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

nn_reference_user *nn_reference_user_forward;

/* One layer's forward on all rows. */
struct state {
    const tutti_model *model;
    const tutti_layer *layer;
    const tutti_batch *batch;
    const double *tensors[TUTTI_LAYER_TENSORS];
    int64_t rows, context;
    const double *in;
    double *out;
    double loss;
};

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static double activate(double x, tutti_activation activation)
{
    if (activation == TUTTI_GELU) return gelu(x);
    return activation == TUTTI_RELU && x < 0 ? 0 : x;
}

static void linear(struct state *s)
{
    const tutti_linear *config = s->layer->config;
    const int64_t n = s->layer->outputs, k = s->layer->inputs;
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t j = 0; j < n; j++) {
            double sum = config->no_bias ? 0 : s->tensors[1][j];
            for (int64_t i = 0; i < k; i++) sum += s->in[r * k + i] * s->tensors[0][i * n + j];
            s->out[r * n + j] = activate(sum, config->activation);
        }
}

static void elementwise(struct state *s)
{
    tutti_activation activation = strcmp(s->layer->ops->kind, "gelu") == 0 ? TUTTI_GELU : TUTTI_RELU;
    for (int64_t i = 0; i < s->rows * s->layer->outputs; i++) s->out[i] = activate(s->in[i], activation);
}

static void norm(struct state *s)
{
    const int64_t n = s->layer->outputs;
    const bool centred = strcmp(s->layer->ops->kind, "layer_norm") == 0;
    for (int64_t r = 0; r < s->rows; r++) {
        const double *x = s->in + r * n;
        double mean = 0, squares = 0;
        for (int64_t i = 0; centred && i < n; i++) mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (int64_t i = 0; i < n; i++)
            s->out[r * n + i] = (x[i] - mean) / sqrt(squares + 1e-5) * s->tensors[0][i] +
                                (centred ? s->tensors[1][i] : 0);
    }
}

/* Over all rows; in evaluation with the running mean and variance. */
static void batch_norm(struct state *s)
{
    const tutti_batch_norm *config = s->layer->config;
    const int64_t n = s->layer->outputs;
    float *running_mean = NULL, *running_variance = NULL;
    (void)tutti_model_state((tutti_model *)(uintptr_t)s->model, s->layer->states[0], &running_mean);
    (void)tutti_model_state((tutti_model *)(uintptr_t)s->model, s->layer->states[1], &running_variance);
    for (int64_t i = 0; i < n; i++) {
        double mean = 0, variance = 0;
        for (int64_t r = 0; r < s->rows; r++) mean += s->in[r * n + i] / (double)s->rows;
        for (int64_t r = 0; r < s->rows; r++)
            variance += (s->in[r * n + i] - mean) * (s->in[r * n + i] - mean) / (double)s->rows;
        if (s->batch->evaluate) mean = (double)running_mean[i];
        if (s->batch->evaluate) variance = (double)running_variance[i];
        for (int64_t r = 0; r < s->rows; r++)
            s->out[r * n + i] = (s->in[r * n + i] - mean) / sqrt(variance + config->epsilon) * s->tensors[0][i] +
                                s->tensors[1][i];
    }
}

static void embedding(struct state *s)
{
    const int64_t n = s->layer->outputs;
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t i = 0; i < n; i++)
            s->out[r * n + i] = s->tensors[0][s->batch->tokens[r] * n + i] +
                                (s->layer->tensor_count > 1 ? s->tensors[1][r % s->context * n + i] : 0);
}

/* What dropout multiplies the probabilities of one query with. The random numbers are the library's own. */
static void attention_mask(const struct state *s, int64_t head, int64_t row, float *mask)
{
    const tutti_attention *config = s->layer->config;
    const int64_t sample = s->batch->first_sample + row / s->context;
    uint32_t key[2];
    for (int64_t k = 0; k < s->context; k++) mask[k] = 1;
    if (config->dropout == 0 || s->batch->evaluate) return;
    tti_random_key(s->batch->seed, s->layer->name, key);
    uint64_t place = (uint64_t)(((sample * config->heads + head) * s->context + row % s->context) * s->context);
    tti_nn_kernels_portable.dropout(mask, mask, NULL, (size_t)s->context, key, place, (uint32_t)s->batch->step,
                                    (float)(1 - config->dropout));
}

static void attend(struct state *s, int64_t first, int64_t head, int64_t size)
{
    const int64_t n = s->layer->outputs;
    double *p = malloc((size_t)s->context * sizeof *p);
    float *mask = malloc((size_t)s->context * sizeof *mask);
    for (int64_t q = 0; q < s->context; q++) {
        const double *query = s->in + (first + q) * 3 * n + head * size;
        double total = 0;
        for (int64_t k = 0; k <= q; k++) {
            const double *key = s->in + (first + k) * 3 * n + n + head * size;
            double score = 0;
            for (int64_t i = 0; i < size; i++) score += query[i] * key[i];
            total += p[k] = exp(score / sqrt((double)size));
        }
        attention_mask(s, head, first + q, mask);
        for (int64_t k = 0; k <= q; k++) p[k] *= (double)mask[k] / total;
        for (int64_t i = 0; i < size; i++) {
            double sum = 0;
            for (int64_t k = 0; k <= q; k++) sum += p[k] * s->in[(first + k) * 3 * n + 2 * n + head * size + i];
            s->out[(first + q) * n + head * size + i] = sum;
        }
    }
    free(mask);
    free(p);
}

static void attention(struct state *s)
{
    const int64_t heads = ((const tutti_attention *)s->layer->config)->heads;
    for (int64_t first = 0; first < s->rows; first += s->context)
        for (int64_t head = 0; head < heads; head++) attend(s, first, head, s->layer->outputs / heads);
}

static double row_weight(const struct state *s, int64_t row)
{
    return s->batch->row_weights == NULL ? 1 : (double)s->batch->row_weights[row];
}

static void mse(struct state *s)
{
    const int64_t n = s->layer->inputs;
    for (int64_t i = 0; i < s->rows * n; i++) {
        double difference = s->in[i] - (double)s->batch->target_values[i];
        s->loss += row_weight(s, i / n) * difference * difference / (double)n;
    }
}

static double row_cross_entropy(const double *logits, int64_t classes, int32_t target)
{
    double highest = logits[0], sum = 0;
    for (int64_t c = 1; c < classes; c++) highest = fmax(highest, logits[c]);
    for (int64_t c = 0; c < classes; c++) sum += exp(logits[c] - highest);
    return highest + log(sum) - logits[target];
}

static void cross_entropy(struct state *s)
{
    const int64_t n = s->layer->inputs;
    const float *class_weights = s->layer->config;
    for (int64_t r = 0; r < s->rows; r++) {
        int32_t target = s->batch->targets[r];
        if (target < 0) continue;
        double weight = row_weight(s, r) * (class_weights == NULL ? 1 : (double)class_weights[target]);
        s->loss += weight * row_cross_entropy(s->in + r * n, n, target);
    }
}

static void tied_cross_entropy(struct state *s)
{
    const int64_t n = s->layer->inputs, classes = s->layer->classes;
    double *logits = malloc((size_t)classes * sizeof *logits);
    for (int64_t r = 0; r < s->rows; r++) {
        int32_t target = s->batch->targets[r];
        for (int64_t c = 0; c < classes; c++) {
            logits[c] = 0;
            for (int64_t i = 0; i < n; i++) logits[c] += s->in[r * n + i] * s->tensors[0][c * n + i];
        }
        if (target >= 0) s->loss += row_weight(s, r) * row_cross_entropy(logits, classes, target);
    }
    free(logits);
}

static void user(struct state *s)
{
    const int64_t n = s->layer->outputs;
    for (int64_t r = 0; r < s->rows; r++) nn_reference_user_forward(s->in + r * n, s->tensors[0], s->out + r * n, n);
}

static const struct {
    const char *kind;
    void (*forward)(struct state *state);
} kinds[] = {
    {"linear", linear},
    {"gelu", elementwise},
    {"relu", elementwise},
    {"layer_norm", norm},
    {"rms_norm", norm},
    {"batch_norm", batch_norm},
    {"embedding", embedding},
    {"attention", attention},
    {"mse", mse},
    {"cross_entropy", cross_entropy},
    {"tied_cross_entropy", tied_cross_entropy},
    {"user", user},
};

static void run_layer(struct state *s, const double *parameters)
{
    for (int t = 0; t < s->layer->tensor_count; t++)
        s->tensors[t] = parameters + tutti_model_tensor(s->model, s->layer->tensors[t])->offset;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (strcmp(kinds[k].kind, s->layer->ops->kind) != 0) continue;
        kinds[k].forward(s);
        return;
    }
    printf("the reference knows no layer of kind %s\n", s->layer->ops->kind);
    exit(1);
}

double nn_reference_loss(const tutti_model *model, const double *parameters, const tutti_batch *batch, double *outputs)
{
    enum { LAYERS_MOST = 64 };
    double *values[LAYERS_MOST + 1] = {NULL};
    const int layers = tutti_model_layers(model);
    if (layers > LAYERS_MOST) abort();
    struct state s = {.model = model, .batch = batch, .context = tutti_model_rows(model)};
    s.rows = batch->samples * s.context;
    const int64_t inputs = tutti_model_layer(model, 0)->inputs;
    values[0] = malloc((size_t)(s.rows * inputs + 1) * sizeof(double));
    for (int64_t i = 0; i < s.rows * inputs; i++) values[0][i] = (double)batch->inputs[i];
    for (int i = 0; i < layers; i++) {
        s.layer = tutti_model_layer(model, i);
        s.in = values[i];
        s.out = values[i + 1] = malloc((size_t)(s.rows * s.layer->outputs + 1) * sizeof(double));
        run_layer(&s, parameters);
        const double *residual = s.layer->add_from >= 0 ? values[s.layer->add_from] : NULL;
        for (int64_t k = 0; residual != NULL && k < s.rows * s.layer->outputs; k++) s.out[k] += residual[k];
    }
    if (outputs != NULL) memcpy(outputs, s.in, (size_t)(s.rows * s.layer->inputs) * sizeof *outputs);
    for (int i = 0; i <= layers; i++) free(values[i]);
    return s.loss;
}

double nn_reference_slope(const tutti_model *model, double *parameters, const tutti_batch *batch, size_t i)
{
    const double step = 1e-5, before = parameters[i];
    parameters[i] = before + step;
    double above = nn_reference_loss(model, parameters, batch, NULL);
    parameters[i] = before - step;
    double below = nn_reference_loss(model, parameters, batch, NULL);
    parameters[i] = before;
    return (above - below) / (2 * step);
}
