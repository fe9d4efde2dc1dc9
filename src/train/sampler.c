/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens from a trained model, one after the other. The model is made from the notes of the checkpoint.
 *
 * Keys and values of all tokens of the window stay in the pass's memory. So a token costs one row, as long as the
 * window only grows; when it is full its first eighth is dropped, and the rest goes through the model again, since the
 * place of every token has changed.
 */
#include "base/alloc.h"
#include "base/status.h"
#include "nn/blas.h"
#include "nn/pass.h"
#include "train/shuffle.h"
#include "train/train_options.h"
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float logit;
    int32_t token;
};

struct tutti_sampler {
    tutti_train_options options;
    char data[512];
    tutti_model *model;
    tutti_pass *pass;
    size_t context, vocabulary;
    int32_t *tokens; /* [context]: the window */
    size_t known;    /* tokens of the window that have gone through the model */
    float *logits;   /* [vocabulary] */
    struct candidate *candidates;
};

/* ---- From a checkpoint ----------------------------------------------------------------------------------------- */

/* Reads the numbers of the notes; texts keep their defaults, except the model's kind, which must be gpt. */
static tutti_status read_options(tutti_sampler *sampler, const tutti_checkpoint *checkpoint, tutti_error *error)
{
    const char *kind = tutti_checkpoint_note(checkpoint, "model");
    tutti_train_options_init(&sampler->options);
    if (kind == NULL || strcmp(kind, "gpt") != 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s holds no model of tokens, but \"%.32s\"",
                             tutti_checkpoint_path(checkpoint), kind == NULL ? "" : kind);
    for (size_t i = 0; i < tti_train_row_count; i++) {
        const struct tti_train_row *row = &tti_train_rows[i];
        const char *text = tutti_checkpoint_note(checkpoint, row->row.name);
        tutti_error why;
        if (text == NULL || row->row.kind == TUTTI_OPTION_TEXT) continue;
        if (tti_train_read(&sampler->options, row, text, &why) != TUTTI_OK)
            return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.200s: %s", tutti_checkpoint_path(checkpoint),
                                 why.text);
    }
    const char *vocabulary = tutti_checkpoint_note(checkpoint, "data.vocabulary");
    const char *data = tutti_checkpoint_note(checkpoint, "data");
    sampler->vocabulary = vocabulary == NULL ? 0 : strtoull(vocabulary, NULL, 10);
    sampler->context = (size_t)sampler->options.context;
    (void)snprintf(sampler->data, sizeof sampler->data, "%s", data == NULL ? "" : data);
    return TUTTI_OK;
}

static tutti_status load_model(tutti_sampler *sampler, const tutti_checkpoint *checkpoint, tutti_error *error)
{
    size_t count = (size_t)tutti_model_tensors(sampler->model);
    tutti_checkpoint_tensor *tensors = tti_calloc(count, sizeof *tensors);
    if (tensors == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a list of tensors");
    for (size_t i = 0; i < count; i++) {
        const tutti_tensor *tensor = tutti_model_tensor(sampler->model, (int)i);
        tensors[i] = (tutti_checkpoint_tensor){.group = "model",
                                               .name = tensor->name,
                                               .dimensions = tensor->dimensions,
                                               .values = tutti_model_values(sampler->model) + tensor->offset};
        memcpy(tensors[i].shape, tensor->shape, sizeof tensors[i].shape);
    }
    tutti_status status = tutti_checkpoint_load(checkpoint, tensors, count, error);
    tti_free(tensors);
    return status;
}

static tutti_status make_model(tutti_sampler *sampler, tutti_error *error)
{
    TTI_TRY(tutti_blas_load(error));
    TTI_TRY(tti_model_make(&sampler->options, sampler->vocabulary, 0, &sampler->model, error));
    tutti_pass_options options = {.struct_size = sizeof options, .samples = 1, .evaluate = true};
    tutti_status status = tutti_model_bind(sampler->model, NULL, NULL);
    if (status == TUTTI_OK) status = tutti_pass_create(sampler->model, &options, &sampler->pass);
    if (status != TUTTI_OK) *error = *tutti_model_error(sampler->model);
    sampler->tokens = tti_calloc(sampler->context, sizeof *sampler->tokens);
    sampler->logits = tti_calloc(sampler->vocabulary, sizeof *sampler->logits);
    sampler->candidates = tti_calloc(sampler->vocabulary, sizeof *sampler->candidates);
    if (sampler->tokens == NULL || sampler->logits == NULL || sampler->candidates == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to sample");
    return status;
}

tutti_status tutti_sampler_create(const char *path, tutti_sampler **sampler, tutti_error *error)
{
    tutti_checkpoint *checkpoint = NULL;
    tutti_error unused;
    if (error == NULL) error = &unused;
    if (sampler == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a sampler needs a place to go");
    TTI_TRY(tutti_checkpoint_open(path, true, &checkpoint, error));
    tutti_sampler *made = tti_calloc(1, sizeof *made);
    tutti_status status = TUTTI_OK;
    if (made == NULL) status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to sample");
    if (status == TUTTI_OK) status = read_options(made, checkpoint, error);
    if (status == TUTTI_OK) status = make_model(made, error);
    if (status == TUTTI_OK) status = load_model(made, checkpoint, error);
    tutti_checkpoint_free(checkpoint);
    if (status != TUTTI_OK)
        tutti_sampler_free(made);
    else
        *sampler = made;
    return status;
}

void tutti_sampler_free(tutti_sampler *sampler)
{
    if (sampler == NULL) return;
    tutti_pass_free(sampler->pass);
    tutti_model_free(sampler->model);
    tti_free(sampler->tokens);
    tti_free(sampler->logits);
    tti_free(sampler->candidates);
    tti_free(sampler);
}

size_t tutti_sampler_vocabulary(const tutti_sampler *sampler)
{
    return sampler->vocabulary;
}

const char *tutti_sampler_data(const tutti_sampler *sampler)
{
    return sampler->data;
}

/* ---- One token ------------------------------------------------------------------------------------------------- */

/* Returns the first token of the window for the token after `count` others. It depends on nothing else, so the result
 * does not depend on what is known already. */
static size_t window_start(size_t count, size_t context)
{
    const size_t step = context < 8 ? 1 : context / 8;
    return count <= context ? 0 : (count - context + step - 1) / step * step;
}

/* Brings the tokens of the window that are not known yet through the model. */
static tutti_status follow(tutti_sampler *sampler, const int32_t *tokens, size_t count, tutti_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= sampler->vocabulary)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "token %d is not one of the model's %zu", tokens[i],
                                 sampler->vocabulary);
    size_t same = 0;
    while (same < sampler->known && same < count && sampler->tokens[same] == tokens[same]) same++;
    memcpy(sampler->tokens + same, tokens + same, (count - same) * sizeof *tokens);
    if (same < count) tti_pass_extend(sampler->pass, sampler->tokens, (int64_t)same, (int64_t)count);
    sampler->known = count;
    return TUTTI_OK;
}

/* Computes the logits: the last layer's output times the embedding. */
static void find_logits(const tutti_sampler *sampler, size_t row, float *logits)
{
    const tutti_model *model = sampler->model;
    const tutti_tensor *embedding = tutti_model_find(model, "wte.weight"); /* (vocabulary, width) */
    const int64_t width = embedding->shape[1];
    const float *output = sampler->pass->places[model->layer_count - 2].out + (int64_t)row * width;
    tti_gemm(1, (int64_t)sampler->vocabulary, width, (struct tti_matrix){output, width, false},
             (struct tti_matrix){tutti_model_values(model) + embedding->offset, width, true}, false, logits,
             (int64_t)sampler->vocabulary);
}

tutti_status tutti_sampler_logits(tutti_sampler *sampler, const int32_t *tokens, size_t count, float *logits,
                                  tutti_error *error)
{
    if (count == 0) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "there is no token to begin with");
    const size_t start = window_start(count, sampler->context);
    TTI_TRY(follow(sampler, tokens + start, count - start, error));
    find_logits(sampler, count - start - 1, logits);
    return TUTTI_OK;
}

static int likelier_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static int32_t draw(const struct candidate *candidates, size_t count, double temperature, double chance)
{
    double sum = 0, best = (double)candidates[0].logit;
    for (size_t i = 0; i < count; i++) sum += exp(((double)candidates[i].logit - best) / temperature);
    double left = chance * sum;
    for (size_t i = 0; i < count; i++) {
        left -= exp(((double)candidates[i].logit - best) / temperature);
        if (left < 0) return candidates[i].token;
    }
    return candidates[0].token;
}

static int32_t likeliest(const float *logits, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

tutti_status tutti_sampler_next(tutti_sampler *sampler, const int32_t *tokens, size_t count, double temperature,
                                int top, uint64_t seed, uint64_t place, int32_t *next, tutti_error *error)
{
    const size_t all = sampler->vocabulary, among = top > 0 && (size_t)top < all ? (size_t)top : all;
    TTI_TRY(tutti_sampler_logits(sampler, tokens, count, sampler->logits, error));
    if (!(temperature > 0)) {
        *next = likeliest(sampler->logits, all);
        return TUTTI_OK;
    }
    for (size_t i = 0; i < all; i++)
        sampler->candidates[i] = (struct candidate){.logit = sampler->logits[i], .token = (int32_t)i};
    qsort(sampler->candidates, all, sizeof *sampler->candidates, likelier_first);
    *next = draw(sampler->candidates, among, temperature, tti_draw_unit(seed, place));
    return TUTTI_OK;
}
