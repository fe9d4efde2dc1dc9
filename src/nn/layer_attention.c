/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention. A row holds query, key and value of all heads, (3, heads, size) floats; heads are read in place.
 * Queries are taken in blocks, each against the keys up to its end; probabilities live in scratch memory only and are
 * made again in the backward pass from the saved logarithms, so memory grows with the context and not its square. The
 * mask of dropout is made again, too: it follows from (seed, name, sample, head, query, key, step).
 *
 * Rows that are cut have the heads of some width grains: (grain, 3, heads of a grain, size) floats.
 */
#include "nn/blas.h"
#include "nn/nn_kernels.h"
#include "nn/random_key.h"
#include "nn/width.h"
#include <math.h>

enum { BLOCK = 64 };

/* One head of one sample. Matrices are (context, size), in rows of `stride`. */
struct head {
    const struct tti_nn_kernels *kernels;
    int64_t context, size, stride, out_stride;
    const float *query, *key, *value;
    float *out; /* set for forward */
    const float *out_gradient;
    float *query_gradient, *key_gradient, *value_gradient;
    float *shifts; /* one per row, `shift_stride` apart */
    int64_t shift_stride;
    float *p, *dp; /* (BLOCK, context) each */
    float scale;
    float keep; /* 1: no dropout */
    uint32_t drop_key[2], step;
    uint64_t number; /* the number of this head among all heads of all samples */
};

static const tutti_attention *attention_of(const tutti_layer *layer)
{
    return layer->config;
}

static tutti_status setup(tutti_model *model, tutti_layer *layer)
{
    const int heads = attention_of(layer)->heads;
    const double dropout = attention_of(layer)->dropout;
    if (!(dropout >= 0 && dropout < 1))
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "a dropout of %g; it must be in [0, 1)", dropout);
    if (heads < 1 || layer->inputs % (3 * (int64_t)heads) != 0 || layer->inputs < 1)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT,
                                "%lld inputs cannot be queries, keys and values of %d heads", (long long)layer->inputs,
                                heads);
    layer->outputs = layer->inputs / 3;
    layer->saved = heads;
    layer->units = heads;
    layer->sections = 3;
    layer->scratch = 2 * BLOCK * model->shape.rows;
    return TUTTI_OK;
}

/* Returns how many heads this rank has. */
static int64_t heads_here(const tutti_layer *layer)
{
    return attention_of(layer)->heads * layer->outputs / layer->whole_outputs;
}

static tutti_status place(tutti_model *model, tutti_layer *layer)
{
    (void)model;
    layer->saved = heads_here(layer);
    return TUTTI_OK;
}

static struct tti_matrix plain(const float *data, int64_t stride)
{
    return (struct tti_matrix){data, stride, false};
}

static struct tti_matrix transposed(const float *data, int64_t stride)
{
    return (struct tti_matrix){data, stride, true};
}

/* Computes the scores of the queries from `from` to `to` against the keys before `to`. */
static void scores(const struct head *head, int64_t from, int64_t to)
{
    tti_gemm(to - from, to, head->size, plain(head->query + from * head->stride, head->stride),
             transposed(head->key, head->stride), false, head->p, to);
}

/* Applies dropout. `rows` are those of the queries from `from` to `to`, in the layout of scores(). */
static void drop(const struct head *head, float *rows, int64_t from, int64_t to)
{
    if (head->keep == 1) return;
    for (int64_t q = from; q < to; q++) {
        float *row = rows + (q - from) * to;
        const uint64_t first = (head->number * (uint64_t)head->context + (uint64_t)q) * (uint64_t)head->context;
        head->kernels->dropout(row, row, NULL, (size_t)(q + 1), head->drop_key, first, head->step, head->keep);
    }
}

static void block_forward(const struct head *head, int64_t from, int64_t to)
{
    scores(head, from, to);
    for (int64_t q = from; q < to; q++)
        head->shifts[q * head->shift_stride] = head->kernels->softmax(head->p + (q - from) * to, (size_t)(q + 1),
                                                                      (size_t)to, head->scale);
    drop(head, head->p, from, to);
    tti_gemm(to - from, head->size, to, plain(head->p, to), plain(head->value, head->stride), false,
             head->out + from * head->out_stride, head->out_stride);
}

/* Backward of one block. `add`: a later block has already written the gradients of these keys and values. */
static void block_backward(const struct head *head, int64_t from, int64_t to, bool add)
{
    const float *out_gradient = head->out_gradient + from * head->out_stride;
    scores(head, from, to);
    tti_gemm(to - from, to, head->size, plain(out_gradient, head->out_stride), transposed(head->value, head->stride),
             false, head->dp, to);
    drop(head, head->dp, from, to);
    for (int64_t q = from; q < to; q++) {
        float *p = head->p + (q - from) * to, *dp = head->dp + (q - from) * to;
        head->kernels->softmax_again(p, (size_t)(q + 1), (size_t)to, head->scale, head->shifts[q * head->shift_stride]);
        head->kernels->softmax_backward(dp, p, (size_t)(q + 1), (size_t)to, head->scale);
    }
    drop(head, head->p, from, to);
    tti_gemm(to, head->size, to - from, transposed(head->p, to), plain(out_gradient, head->out_stride), add,
             head->value_gradient, head->stride);
    tti_gemm(to - from, head->size, to, plain(head->dp, to), plain(head->key, head->stride), false,
             head->query_gradient + from * head->stride, head->stride);
    tti_gemm(to, head->size, to - from, transposed(head->dp, to),
             plain(head->query + from * head->stride, head->stride), add, head->key_gradient, head->stride);
}

/* Fills in head number `here` of this rank's heads, for one sample. */
static struct head head_of(tutti_call *call, int64_t sample, int64_t here)
{
    const tutti_layer *layer = call->layer;
    const int64_t heads = attention_of(layer)->heads, mine = heads_here(layer), context = call->model->shape.rows;
    const int64_t width = layer->outputs, size = width / mine, row = sample * context - call->first_row;
    const int64_t each = mine / tutti_call_grains(call), third = each * size; /* for one grain */
    const int64_t column = here / each * 3 * third + here % each * size;      /* the first column of its query */
    const int64_t first = layer->cut == TUTTI_CUT_WHOLE ? 0 : call->model->width.first * each;
    const float *in = call->in + row * layer->inputs + column;
    struct head head = {.kernels = tti_nn_kernels(),
                        .context = context,
                        .size = size,
                        .stride = layer->inputs,
                        .out_stride = width,
                        .query = in,
                        .key = in + third,
                        .value = in + 2 * third,
                        .shifts = call->saved + row * mine + here,
                        .shift_stride = mine,
                        .p = call->scratch,
                        .dp = call->scratch + BLOCK * context,
                        .scale = (float)(1 / sqrt((double)size)),
                        .keep = call->training ? (float)(1 - attention_of(layer)->dropout) : 1.0f,
                        .step = (uint32_t)call->step,
                        .number = (uint64_t)((call->first_sample + sample) * heads + first + here)};
    if (head.keep != 1) tti_random_key(call->seed, layer->name, head.drop_key);
    if (call->out != NULL) head.out = call->out + row * width + here * size;
    if (call->in_gradient == NULL) return head;
    head.out_gradient = call->out_gradient + row * width + here * size;
    head.query_gradient = call->in_gradient + row * layer->inputs + column;
    head.key_gradient = head.query_gradient + third;
    head.value_gradient = head.query_gradient + 2 * third;
    return head;
}

/* Returns the end of a block; blocks begin at multiples of BLOCK. */
static int64_t block_end(int64_t from, int64_t last)
{
    const int64_t end = (from / BLOCK + 1) * BLOCK;
    return end < last ? end : last;
}

static void forward(tutti_call *call)
{
    const int64_t heads = heads_here(call->layer), last = call->first_row + call->rows / call->samples;
    for (int64_t i = 0; i < call->samples * heads; i++) {
        struct head head = head_of(call, i / heads, i % heads);
        for (int64_t q = call->first_row, to; q < last; q = to) {
            to = block_end(q, last);
            block_forward(&head, q, to);
        }
    }
}

/* Does the last block first: it uses all keys, and so writes all gradients to which the others add. */
static void backward_input(tutti_call *call)
{
    if (call->in_gradient == NULL) return;
    const int64_t heads = heads_here(call->layer);
    for (int64_t i = 0; i < call->samples * heads; i++) {
        struct head head = head_of(call, i / heads, i % heads);
        const int64_t last = (head.context - 1) / BLOCK * BLOCK;
        for (int64_t q = last; q >= 0; q -= BLOCK) block_backward(&head, q, block_end(q, head.context), q != last);
    }
}

static const tutti_layer_ops ops = {
    .kind = "attention",
    .setup = setup,
    .forward = forward,
    .backward_input = backward_input,
    .cuts = TUTTI_CUT_WHOLE | TUTTI_CUT_ALIKE,
    .place = place,
};

tutti_status tutti_add_attention(tutti_model *model, const char *name, const tutti_attention *attention)
{
    return tutti_model_add(model, name, &ops, attention, sizeof *attention);
}
