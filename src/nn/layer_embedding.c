/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns tokens into rows: a row of the first tensor by token, plus a row of the second by place in the sequence. Parts
 * of the gradients are ranges of their rows.
 *
 * Cut by classes, a width grain is some rows of the first tensor. Tokens that this rank lacks give rows of −0.0, and
 * the sum over ranks is the row itself; places are added after that.
 */
#include "nn/nn_kernels.h"
#include "nn/width.h"
#include <string.h>

enum { TOKENS, POSITIONS };

struct embedding {
    int64_t vocabulary, width;
    double init_scale;
    /* the name of the layer to which the second tensor seems to belong; empty: there is none */
    char positions[TUTTI_NAME_BYTES];
};

/* Adds the tensor of positions, whose name is that of another layer: GPT-2 names it so. */
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

static tutti_status place(tutti_model *model, tutti_layer *layer)
{
    return tutti_layer_cut(model, layer, TOKENS, 0, 1);
}

/* Returns the tokens of one of this rank's width grains; all tokens if the layer is not cut. */
static struct tti_span tokens_of(const tutti_call *call, int grain)
{
    const struct embedding *embedding = call->layer->config;
    if (call->layer->cut == TUTTI_CUT_WHOLE) return (struct tti_span){0, (size_t)embedding->vocabulary};
    return tti_grain_share(call->model, embedding->vocabulary, call->model->width.first + grain);
}

/* Returns the token's row; NULL: another rank has it. */
static const float *word_of(const tutti_call *call, size_t token)
{
    for (int g = 0; g < tutti_call_grains(call); g++) {
        const struct tti_span tokens = tokens_of(call, g);
        if (token >= tokens.lo && token < tokens.hi)
            return tutti_grain_values(call, TOKENS, g) + (token - tokens.lo) * (size_t)call->layer->outputs;
    }
    return NULL;
}

static void finish(tutti_call *call)
{
    const int64_t width = call->layer->outputs;
    for (int64_t r = 0; call->layer->tensor_count > 1 && r < call->rows; r++) {
        const int64_t place_of_row = (call->first_row + r) % call->model->shape.rows;
        float *out = call->out + r * width;
        tti_nn_kernels()->add(out, out, call->values[POSITIONS] + place_of_row * width, (size_t)width);
    }
}

static void forward(tutti_call *call)
{
    const int64_t width = call->layer->outputs;
    for (int64_t r = 0; r < call->rows; r++) {
        const float *word = word_of(call, (size_t)call->tokens[r]);
        if (word == NULL)
            tti_fill_nothing(call->out + r * width, (size_t)width);
        else
            memcpy(call->out + r * width, word, (size_t)width * sizeof *word);
    }
    if (!call->layer->meets) finish(call);
}

static void backward_input(tutti_call *call)
{
    (void)call; /* tokens have no gradient */
}

/* Computes the gradients of tokens `from` to `to` - 1 of the grain, which begins at token `first`. */
static void token_gradients(tutti_call *call, int64_t first, int64_t from, int64_t to)
{
    const struct tti_nn_kernels *kernels = tti_nn_kernels();
    const int64_t width = call->layer->outputs;
    float *gradients = call->gradients[TOKENS];
    if (!call->accumulate[TOKENS])
        memset(gradients + from * width, 0, (size_t)((to - from) * width) * sizeof *gradients);
    for (int64_t r = 0; r < call->rows; r++) {
        const int64_t token = call->tokens[r] - first;
        if (token < from || token >= to) continue;
        float *row = gradients + token * width;
        kernels->add(row, row, call->out_gradient + r * width, (size_t)width);
    }
}

static void position_gradients(tutti_call *call, int64_t from, int64_t to)
{
    const int64_t width = call->layer->outputs, context = call->model->shape.rows;
    if (from == to) return;
    /* sums all rows at one place of their samples: a column sum over samples */
    tti_nn_kernels()->column_sums(call->gradients[POSITIONS] + from * width, call->out_gradient + from * width,
                                  (size_t)call->samples, (size_t)((to - from) * width), (size_t)(context * width),
                                  call->accumulate[POSITIONS]);
}

static void backward_weights(tutti_call *call)
{
    const struct tti_span tokens = tokens_of(call, call->grain);
    int64_t from, to;
    tutti_part_range((int64_t)(tokens.hi - tokens.lo), call->part, call->parts, &from, &to);
    token_gradients(call, (int64_t)tokens.lo, from, to);
    if (call->layer->tensor_count == 1 || call->grain > 0) return;
    tutti_part_range(call->model->shape.rows, call->part, call->parts, &from, &to);
    position_gradients(call, from, to);
}

static int parts(const tutti_model *model, const tutti_layer *layer)
{
    const struct embedding *embedding = layer->config;
    const int64_t tokens = layer->cut == TUTTI_CUT_WHOLE ? embedding->vocabulary
                                                         : tti_grains_length(model, embedding->vocabulary, 1, 0, 1);
    return tokens < 2048 ? 1 : (int)(tokens / 1024);
}

static const tutti_layer_ops ops = {
    .kind = "embedding",
    .setup = setup,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weights = backward_weights,
    .parts = parts,
    .weights_read_in = true,
    .parts_by_row = true,
    .reads = TUTTI_READS_TOKENS,
    .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_CLASSES,
    .place = place,
    .finish = finish,
};

tutti_status tutti_add_embedding(tutti_model *model, const char *name, const char *positions, int64_t vocabulary,
                                 int64_t width, double init_scale)
{
    struct embedding embedding = {.vocabulary = vocabulary, .width = width, .init_scale = init_scale};
    if (positions != NULL) strncpy(embedding.positions, positions, sizeof embedding.positions - 1);
    return tutti_model_add(model, name, &ops, &embedding, sizeof embedding);
}
