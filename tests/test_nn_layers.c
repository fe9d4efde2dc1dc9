/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Every layer and every loss against a reference in double: outputs and loss directly, gradients against central
 * differences of the reference. Each layer stands behind a linear one, whose gradients come through its input.
 */
#include "check_nn.h"
#include "nn_reference.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 5, INPUTS = 6 };

static double *as_doubles(const float *from, size_t count)
{
    double *to = malloc(count * sizeof *to);
    for (size_t i = 0; i < count; i++) to[i] = (double)from[i];
    return to;
}

/* Norms and biases get values that are not 1 and 0; otherwise half of their arithmetic is invisible. */
static void disturb(tutti_model *model)
{
    uint64_t state = 99;
    for (int t = 0; t < tutti_model_tensors(model); t++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, t);
        float *values = tutti_model_values(model) + tensor->offset;
        for (size_t i = 0; i < tensor->count; i++) values[i] += (float)(0.3 * nn_uniform(&state));
    }
}

static bool near(double seen, double expected, double scale)
{
    return fabs(seen - expected) <= 2e-4 * (fabs(expected) + scale);
}

/* Without fmax: gcc 12 for aarch64 cannot compile such a loop. */
static double largest(const float *values, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double value = fabs((double)values[i]);
        if (value > most) most = value;
    }
    return most;
}

static void compare_outputs(const tutti_pass *pass, const double *expected, size_t count, const char *name)
{
    const float *seen = tutti_pass_outputs(pass);
    size_t wrong = 0;
    for (size_t i = 0; seen != NULL && i < count; i++) wrong += !near((double)seen[i], expected[i], 0.1);
    if (!CHECK(wrong == 0)) printf("%s: %zu of %zu outputs are wrong\n", name, wrong, count);
}

/* Every `stride`-th element of every tensor. */
static void compare_gradients(tutti_model *model, double *parameters, const tutti_batch *batch, size_t stride,
                              const char *name)
{
    for (int t = 0; t < tutti_model_tensors(model); t++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, t);
        const float *gradient = tutti_model_gradients(model) + tensor->offset;
        double scale = largest(gradient, tensor->count);
        size_t wrong = 0, at = 0;
        for (size_t i = (size_t)t % stride; i < tensor->count; i += stride) {
            double expected = nn_reference_slope(model, parameters, batch, tensor->offset + i);
            if (near((double)gradient[i], expected, scale)) continue;
            wrong++;
            at = i;
        }
        if (!CHECK(wrong == 0))
            printf("%s: %s: %zu wrong gradients, the last is %zu: %g\n", name, tensor->name, wrong, at,
                   (double)gradient[at]);
    }
}

static void compare(const char *name, tutti_model *model, const tutti_batch *batch, size_t stride)
{
    if (tutti_model_error(model) != NULL || tutti_model_bind(model, NULL, NULL) != TUTTI_OK) {
        printf("%s: ", name);
        tutti_model_explain(model, stdout);
        CHECK(false);
        tutti_model_free(model);
        return;
    }
    tutti_model_init(model, 1);
    disturb(model);
    double *parameters = as_doubles(tutti_model_values(model), tutti_model_elements(model));
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = batch->samples, .threads = 2});
    const tutti_layer *last = tutti_model_layer(model, tutti_model_layers(model) - 1);
    size_t count = (size_t)(batch->samples * tutti_model_rows(model) * last->inputs);
    double *outputs = malloc((count + 1) * sizeof *outputs);
    double expected = nn_reference_loss(model, parameters, batch, outputs);
    tutti_loss loss = nn_step(pass, batch, &(tutti_backward){0});
    if (!CHECK(near(loss.sum, expected, 0))) printf("%s: loss %g, expected %g\n", name, loss.sum, expected);
    compare_outputs(pass, outputs, count, name);
    compare_gradients(model, parameters, batch, stride, name);
    free(outputs);
    free(parameters);
    tutti_pass_free(pass);
    tutti_model_free(model);
}

/* ---- A user's own layer: out = in * exp(-scale * in^2), one learnt scale per float -------------------------------- */

static tutti_status bump_setup(tutti_model *model, tutti_layer *layer)
{
    return tutti_layer_tensor(model, layer, "scale", 1, &layer->inputs, TUTTI_INIT_UNIFORM, 0.5);
}

static atomic_int misplaced; /* calls for which tutti_layer_values answered wrongly; CHECK is not for several threads */

static const float *bump_scale(const tutti_call *call)
{
    const float *values = tutti_layer_values(call, 0);
    const tutti_tensor *tensor = tutti_model_tensor(call->model, call->layer->tensors[0]);
    if (values != tutti_model_values(call->model) + tensor->offset || tutti_layer_values(call, -1) != NULL ||
        tutti_layer_values(call, 1) != NULL)
        atomic_fetch_add(&misplaced, 1);
    return values;
}

static void bump_forward(tutti_call *call)
{
    const float *scale = bump_scale(call);
    for (int64_t i = 0; i < call->rows * call->layer->inputs; i++) {
        float x = call->in[i];
        call->out[i] = x * expf(-scale[i % call->layer->inputs] * x * x);
    }
}

static void bump_backward_input(tutti_call *call)
{
    const float *scale = bump_scale(call);
    for (int64_t i = 0; i < call->rows * call->layer->inputs; i++) {
        float x = call->in[i], s = scale[i % call->layer->inputs];
        call->in_gradient[i] = call->out_gradient[i] * expf(-s * x * x) * (1 - 2 * s * x * x);
    }
}

static void bump_backward_weights(tutti_call *call)
{
    const float *scale = bump_scale(call);
    for (int64_t j = 0; j < call->layer->inputs; j++) {
        float sum = call->accumulate[0] ? call->gradients[0][j] : 0;
        for (int64_t r = 0; r < call->rows; r++) {
            float x = call->in[r * call->layer->inputs + j];
            sum -= call->out_gradient[r * call->layer->inputs + j] * x * x * x * expf(-scale[j] * x * x);
        }
        call->gradients[0][j] = sum;
    }
}

static const tutti_layer_ops bump_ops = {.kind = "user",
                                         .setup = bump_setup,
                                         .forward = bump_forward,
                                         .backward_input = bump_backward_input,
                                         .backward_weights = bump_backward_weights};

static void bump_reference(const double *in, const double *tensor, double *out, int64_t width)
{
    for (int64_t i = 0; i < width; i++) out[i] = in[i] * exp(-tensor[i] * in[i] * in[i]);
}

/* ---- Models, each made for one thing --------------------------------------------------------------------------- */

enum { WIDTH = 20 };

static void front(tutti_model *model, int64_t width)
{
    tutti_add_linear(model, "front", &(tutti_linear){.outputs = width});
}

static void make_plain(tutti_model *model)
{
    front(model, WIDTH);
}

static void make_gelu_linear(tutti_model *model)
{
    front(model, WIDTH);
    tutti_add_linear(model, "middle", &(tutti_linear){.outputs = 33, .activation = TUTTI_GELU});
    tutti_add_linear(model, "back", &(tutti_linear){.outputs = WIDTH, .no_bias = true});
}

static void make_relu_linear(tutti_model *model)
{
    front(model, WIDTH);
    tutti_add_linear(model, "middle", &(tutti_linear){.outputs = 7, .activation = TUTTI_RELU});
    tutti_add_linear(model, "back", &(tutti_linear){.outputs = WIDTH});
}

static void make_layer_norm(tutti_model *model)
{
    front(model, WIDTH);
    tutti_add_layer_norm(model, "norm");
}

static void make_rms_norm(tutti_model *model)
{
    front(model, WIDTH);
    tutti_add_rms_norm(model, "norm");
}

/* A bias before it has no gradient at all. */
static void make_batch_norm(tutti_model *model)
{
    tutti_add_linear(model, "front", &(tutti_linear){.outputs = WIDTH, .no_bias = true});
    tutti_add_batch_norm(model, "norm", NULL);
}

static void make_batch_norm_residual(tutti_model *model)
{
    front(model, WIDTH);
    tutti_residual_begin(model);
    tutti_add_batch_norm(model, "before", &(tutti_batch_norm){.epsilon = 0.01, .momentum = 1});
    tutti_add_linear(model, "inside", &(tutti_linear){.outputs = WIDTH, .activation = TUTTI_GELU});
    tutti_add_batch_norm(model, "behind", &(tutti_batch_norm){.epsilon = 0.1});
    tutti_residual_end(model);
}

static void make_batch_norm_first(tutti_model *model)
{
    tutti_add_batch_norm(model, "norm", NULL);
    front(model, WIDTH);
}

static void make_elements(tutti_model *model)
{
    front(model, WIDTH);
    tutti_add_gelu(model, "gelu");
    tutti_add_linear(model, "middle", &(tutti_linear){.outputs = WIDTH});
    tutti_add_relu(model, "relu");
}

static void make_user(tutti_model *model)
{
    front(model, WIDTH);
    tutti_model_add(model, "bump", &bump_ops, NULL, 0);
}

static void make_residual(tutti_model *model)
{
    front(model, WIDTH);
    tutti_residual_begin(model);
    tutti_add_layer_norm(model, "norm");
    tutti_add_linear(model, "inside", &(tutti_linear){.outputs = 8, .activation = TUTTI_GELU});
    tutti_add_linear(model, "out", &(tutti_linear){.outputs = WIDTH});
    tutti_residual_end(model);
}

/* Layers that do not add themselves, at both ends and alone. */
static void make_residual_plain(tutti_model *model)
{
    front(model, WIDTH);
    tutti_residual_begin(model);
    tutti_add_gelu(model, "first");
    tutti_add_linear(model, "inside", &(tutti_linear){.outputs = WIDTH});
    tutti_add_gelu(model, "last");
    tutti_residual_end(model);
    tutti_residual_begin(model);
    tutti_model_add(model, "alone", &bump_ops, NULL, 0);
    tutti_residual_end(model);
}

/* One layer that adds itself, alone; and one inside another. */
static void make_residual_nested(tutti_model *model)
{
    front(model, WIDTH);
    tutti_residual_begin(model);
    tutti_add_linear(model, "alone", &(tutti_linear){.outputs = WIDTH});
    tutti_residual_end(model);
    tutti_residual_begin(model);
    tutti_add_rms_norm(model, "outer");
    tutti_residual_begin(model);
    tutti_add_layer_norm(model, "inner");
    tutti_add_linear(model, "inside", &(tutti_linear){.outputs = WIDTH, .activation = TUTTI_RELU});
    tutti_residual_end(model);
    tutti_add_linear(model, "out", &(tutti_linear){.outputs = WIDTH});
    tutti_residual_end(model);
}

static void make_attention(tutti_model *model)
{
    front(model, 3 * WIDTH);
    tutti_add_attention(model, "attention", &(tutti_attention){.heads = 4});
}

static void make_attention_dropout(tutti_model *model)
{
    front(model, 3 * WIDTH);
    tutti_add_attention(model, "attention", &(tutti_attention){.heads = 2, .dropout = 0.3});
}

static const struct {
    const char *name;
    int64_t context;
    size_t stride; /* of the gradients looked at */
    void (*make)(tutti_model *model);
} cases[] = {
    {"plain", 1, 1, make_plain},
    {"linear and gelu", 1, 1, make_gelu_linear},
    {"linear and relu", 1, 1, make_relu_linear},
    {"layer norm", 1, 1, make_layer_norm},
    {"rms norm", 1, 1, make_rms_norm},
    {"batch norm", 1, 1, make_batch_norm},
    {"batch norm of sequences, in a residual", 3, 1, make_batch_norm_residual},
    {"batch norm of the inputs", 4, 1, make_batch_norm_first},
    {"gelu, relu", 1, 1, make_elements},
    {"a user's own", 1, 1, make_user},
    {"residual", 2, 1, make_residual},
    {"residual of plain layers", 2, 1, make_residual_plain},
    {"residual in residual", 2, 1, make_residual_nested},
    {"attention", 7, 1, make_attention},
    {"attention in blocks", 131, 61, make_attention},
    {"attention with dropout", 9, 1, make_attention_dropout},
    {"attention with dropout in blocks", 131, 61, make_attention_dropout},
};

static void layers(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t rows = SAMPLES * cases[i].context;
        tutti_batch batch = nn_values(rows, INPUTS, WIDTH, i);
        batch.samples = cases[i].context > 64 ? 2 : SAMPLES;
        batch.first_sample = 3;
        batch.step = 7;
        batch.seed = 11;
        tutti_model *model;
        tutti_model_create(&(tutti_model_shape){.rows = cases[i].context, .inputs = INPUTS}, &model);
        cases[i].make(model);
        tutti_add_mse(model);
        tutti_model_seal(model);
        compare(cases[i].name, model, &batch, cases[i].stride);
        nn_batch_free(&batch);
    }
}

/* ---- Losses ---------------------------------------------------------------------------------------------------- */

static void losses(void)
{
    static const float row_weights[SAMPLES] = {0.5f, 2, 0, 1.25f, 3};
    static const float class_weights[WIDTH] = {1, 0.25f, 3, 0, 2, 1, 1, 0.5f, 4, 1, 1, 1, 2, 2, 2, 0.1f, 1, 1, 1, 7};
    tutti_batch batch = nn_values(SAMPLES, INPUTS, WIDTH, 77);
    ((int32_t *)(uintptr_t)batch.targets)[2] = -1; /* does not count */
    for (int variant = 0; variant < 8; variant++) {
        tutti_model *model;
        tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = INPUTS}, &model);
        front(model, WIDTH);
        if (variant & 1)
            tutti_add_cross_entropy(model, variant & 2 ? class_weights : NULL);
        else
            tutti_add_mse(model);
        tutti_model_seal(model);
        batch.row_weights = variant & 4 ? row_weights : NULL;
        compare("loss", model, &batch, 1);
    }
    batch.row_weights = NULL;
    nn_batch_free(&batch);
}

/* The count is the sum of weights, of the rows that count. */
static void counts(void)
{
    static const float row_weights[SAMPLES] = {0.5f, 2, 8, 1.25f, 3};
    static const float class_weights[3] = {2, 4, 8};
    tutti_batch batch = nn_values(SAMPLES, INPUTS, 3, 5);
    int32_t *targets = (int32_t *)(uintptr_t)batch.targets;
    memcpy(targets, (int32_t[]){0, 1, -1, 2, 0}, sizeof(int32_t[SAMPLES]));
    tutti_mlp mlp = {.inputs = INPUTS, .outputs = 3, .classify = true, .class_weights = class_weights};
    tutti_model *model = nn_mlp(&mlp, 1);
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = SAMPLES});
    batch.row_weights = row_weights;
    CHECK(nn_step(pass, &batch, NULL).count == 0.5 * 2 + 2.0 * 4 + 1.25 * 8 + 3.0 * 2);
    batch.row_weights = NULL;
    CHECK(nn_step(pass, &batch, NULL).count == 2 + 4 + 8 + 2);
    tutti_pass_free(pass);
    tutti_model_free(model);
    nn_batch_free(&batch);
}

/* ---- Models ---------------------------------------------------------------------------------------------------- */

static void gpt(const char *name, const tutti_gpt *shape, size_t stride)
{
    static const float row_weights[64] = {1, 0.5f, 2, 1, 1, 3, 1, 0.25f, 1, 1, 1, 1};
    tutti_model *model;
    tutti_gpt_create(shape, &model);
    tutti_batch batch = nn_tokens(2, shape->context, (int32_t)shape->vocabulary, 3);
    batch.row_weights = row_weights;
    compare(name, model, &batch, stride);
    nn_batch_free(&batch);
}

int main(void)
{
    nn_need_blas();
    nn_reference_user_forward = bump_reference;
    layers();
    losses();
    counts();
    gpt("gpt", &(tutti_gpt){.layers = 2, .heads = 2, .width = 8, .context = 5, .vocabulary = 11}, 3);
    gpt("gpt of many words", &(tutti_gpt){.layers = 1, .heads = 1, .width = 4, .context = 6, .vocabulary = 2100}, 53);
    CHECK(misplaced == 0);
    return check_end();
}
