/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to rows: a row of the first tensor by token, plus a row of the second by place in the sequence. Parts of the
 * gradients are ranges of their rows.
 */
#include "nn/kernels.h"
#include "nn/model.h"
#include <string.h>

enum { TOKENS, POSITIONS };

struct embedding {
    int64_t vocabulary, width;
    double init_scale;
    char positions[TUTTI_NAME_BYTES]; /* name of the layer the second tensor seems to belong to; empty: none */
};

/* The tensor of positions has a name of its own, as if it belonged to another layer: that is how GPT-2 names it. */
static tutti_status add_positions(tutti_model *model, tutti_layer *layer, const struct embedding *embedding)
{
    char name[TUTTI_NAME_BYTES];
    memcpy(name, layer->name, sizeof name);
    memcpy(layer->name, embedding->positions, sizeof name);
    int64_t shape[] = {model->shape.rows, embedding->width};
    tutti_status status = tutti_layer_tensor(model, layer, "weight", 2, shape, TUTTI_INIT_NORMAL,
                                             embedding->init_scale);
    memcpy(layer->name, name, sizeof name);
    return status;
}

static tutti_status setup(tutti_model *model, tutti_layer *layer)
{
    const struct embedding *embedding = layer->config;
    if (layer->index > 0 || layer->inputs > 0 || embedding->width < 1 || embedding->vocabulary < 1 ||
        embedding->vocabulary > INT32_MAX)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT,
                                "an embedding is the first layer of a model of tokens, with a width and a vocabulary");
    layer->outputs = embedding->width;
    layer->classes = embedding->vocabulary;
    int64_t shape[] = {embedding->vocabulary, embedding->width};
    tutti_status status = tutti_layer_tensor(model, layer, "weight", 2, shape, TUTTI_INIT_NORMAL,
                                             embedding->init_scale);
    if (status != TUTTI_OK || embedding->positions[0] == '\0') return status;
    return add_positions(model, layer, embedding);
}

static void forward(tutti_call *call)
{
    const struct tti_nn_kernels *kernels = tti_nn_kernels();
    const int64_t width = call->layer->outputs;
    const float *words = call->values[TOKENS];
    const float *places = call->layer->tensor_count > 1 ? call->values[POSITIONS] : NULL;
    for (int64_t r = 0; r < call->rows; r++) {
        const float *word = words + call->tokens[r] * width;
        float *out = call->out + r * width;
        if (places == NULL)
            memcpy(out, word, (size_t)width * sizeof *out);
        else
            kernels->add(out, word, places + (call->first_row + r) % call->model->shape.rows * width, (size_t)width);
    }
}

static void backward_input(tutti_call *call)
{
    (void)call; /* tokens have no gradient */
}

static void token_gradients(tutti_call *call, int64_t from, int64_t to)
{
    const struct tti_nn_kernels *kernels = tti_nn_kernels();
    const int64_t width = call->layer->outputs;
    float *gradients = call->gradients[TOKENS];
    if (!call->accumulate[TOKENS])
        memset(gradients + from * width, 0, (size_t)((to - from) * width) * sizeof *gradients);
    for (int64_t r = 0; r < call->rows; r++) {
        int32_t token = call->tokens[r];
        if (token < from || token >= to) continue;
        float *row = gradients + token * width;
        kernels->add(row, row, call->out_gradient + r * width, (size_t)width);
    }
}

static void position_gradients(tutti_call *call, int64_t from, int64_t to)
{
    const int64_t width = call->layer->outputs, context = call->model->shape.rows;
    if (from == to) return;
    /* All rows at one place of their samples: the same as a column sum over samples. */
    tti_nn_kernels()->column_sums(call->gradients[POSITIONS] + from * width, call->out_gradient + from * width,
                                  (size_t)call->samples, (size_t)((to - from) * width), (size_t)(context * width),
                                  call->accumulate[POSITIONS]);
}

static void backward_weights(tutti_call *call)
{
    const struct embedding *embedding = call->layer->config;
    int64_t from, to;
    tutti_part_range(embedding->vocabulary, call->part, call->parts, &from, &to);
    token_gradients(call, from, to);
    if (call->layer->tensor_count == 1) return;
    tutti_part_range(call->model->shape.rows, call->part, call->parts, &from, &to);
    position_gradients(call, from, to);
}

static int parts(const tutti_model *model, const tutti_layer *layer)
{
    (void)model;
    const struct embedding *embedding = layer->config;
    int64_t count = embedding->vocabulary / 1024;
    return count < 1 ? 1 : (int)count;
}

static const tutti_layer_ops ops = {
    .kind = "embedding",
    .setup = setup,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weights = backward_weights,
    .parts = parts,
    .parts_by_row = true,
    .reads = TUTTI_READS_TOKENS,
};

tutti_status tutti_add_embedding(tutti_model *model, const char *name, const char *positions, int64_t vocabulary,
                                 int64_t width, double init_scale)
{
    struct embedding embedding = {.vocabulary = vocabulary, .width = width, .init_scale = init_scale};
    if (positions != NULL) strncpy(embedding.positions, positions, sizeof embedding.positions - 1);
    return tutti_model_add(model, name, &ops, &embedding, sizeof embedding);
}
