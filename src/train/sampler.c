/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens from a trained model, one after the other. The model is made from what the checkpoint notes; each token is one
 * forward pass over the context.
 */
#include "base/alloc.h"
#include "base/status.h"
#include "nn/pass.h"
#include "train/options.h"
#include "train/random.h"
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
    int32_t *tokens, *targets;    /* [context] */
    struct candidate *candidates; /* [vocabulary] */
};

/* ---- From a checkpoint ----------------------------------------------------------------------------------------- */

/* Numbers of the notes; texts stay the defaults, but for the model's kind, which must be gpt. */
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
        char *field = (char *)&sampler->options + row->offset;
        char reason[256] = "";
        bool real = row->row.kind == TUTTI_OPTION_REAL;
        if (text == NULL || row->row.kind == TUTTI_OPTION_TEXT) continue;
        tutti_status status = real ? tutti_option_parse_real(&row->row, text, (double *)(void *)field, reason, 256)
                                   : tutti_option_parse(&row->row, text, (int64_t *)(void *)field, reason, 256);
        if (status != TUTTI_OK)
            return tti_error_set(error, TUTTI_ERR_DAMAGED, 0, "%.200s: %s", tutti_checkpoint_path(checkpoint), reason);
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
    char reason[256];
    if (tutti_blas_load(reason, sizeof reason) != TUTTI_OK)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "%s", reason);
    TTI_TRY(tti_model_make(&sampler->options, sampler->vocabulary, 0, &sampler->model, error));
    tutti_pass_options options = {.samples = 1, .evaluate = true};
    tutti_status status = tutti_model_bind(sampler->model, NULL, NULL);
    if (status == TUTTI_OK) status = tutti_pass_create(sampler->model, &options, &sampler->pass);
    if (status != TUTTI_OK) *error = *tutti_model_error(sampler->model);
    sampler->tokens = tti_calloc(sampler->context, sizeof *sampler->tokens);
    sampler->targets = tti_calloc(sampler->context, sizeof *sampler->targets);
    sampler->candidates = tti_calloc(sampler->vocabulary, sizeof *sampler->candidates);
    if (sampler->tokens == NULL || sampler->targets == NULL || sampler->candidates == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to sample");
    return status;
}

tutti_status tutti_sampler_create(const char *path, tutti_sampler **sampler, tutti_error *error)
{
    tutti_checkpoint *checkpoint = NULL;
    TTI_TRY(tutti_checkpoint_open(path, true, &checkpoint, error));
    tutti_sampler *made = tti_calloc(1, sizeof *made);
    tutti_status status = TUTTI_OK;
    if (made == NULL) status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to sample");
    if (status == TUTTI_OK) status = read_options(made, checkpoint, error);
    if (status == TUTTI_OK) status = make_model(made, error);
    if (status == TUTTI_OK) status = load_model(made, checkpoint, error);
    tutti_checkpoint_close(checkpoint);
    if (status != TUTTI_OK)
        tutti_sampler_free(made);
    else
        *sampler = made;
    return status;
}

void tutti_sampler_free(tutti_sampler *sampler)
{
    if (sampler == NULL) return;
    tutti_pass_destroy(sampler->pass);
    tutti_model_destroy(sampler->model);
    tti_free(sampler->tokens);
    tti_free(sampler->targets);
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

/* What the model thinks of each token after the row `row`: the last layer's output times the embedding. */
static void find_logits(tutti_sampler *sampler, size_t row)
{
    const tutti_model *model = sampler->model;
    const tutti_tensor *embedding = tutti_model_find(model, "wte.weight"); /* (vocabulary, width) */
    const float *weights = tutti_model_values(model) + embedding->offset;
    size_t width = (size_t)embedding->shape[1];
    const float *output = sampler->pass->places[model->layer_count - 2].out + row * width;
    for (size_t v = 0; v < sampler->vocabulary; v++) {
        float sum = 0;
        for (size_t i = 0; i < width; i++) sum += weights[v * width + i] * output[i];
        sampler->candidates[v] = (struct candidate){.logit = sum, .token = (int32_t)v};
    }
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

tutti_status tutti_sampler_next(tutti_sampler *sampler, const int32_t *tokens, size_t count, double temperature,
                                int top, uint64_t seed, uint64_t place, int32_t *next, tutti_error *error)
{
    size_t used = count < sampler->context ? count : sampler->context;
    if (used == 0) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "there is no token to begin with");
    for (size_t i = 0; i < used; i++) {
        sampler->tokens[i] = tokens[count - used + i];
        if (sampler->tokens[i] < 0 || (size_t)sampler->tokens[i] >= sampler->vocabulary)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "token %d is not one of the model's %zu",
                                 sampler->tokens[i], sampler->vocabulary);
    }
    tutti_batch batch = {.samples = 1, .tokens = sampler->tokens, .targets = sampler->targets, .evaluate = true};
    tutti_loss loss;
    tutti_status status = tutti_pass_forward(sampler->pass, &batch, &loss);
    if (status != TUTTI_OK) {
        *error = *tutti_model_error(sampler->model);
        return status;
    }
    find_logits(sampler, used - 1);
    qsort(sampler->candidates, sampler->vocabulary, sizeof *sampler->candidates, likelier_first);
    size_t among = top > 0 && (size_t)top < sampler->vocabulary ? (size_t)top : sampler->vocabulary;
    *next = temperature > 0 ? draw(sampler->candidates, among, temperature, tti_draw_unit(seed, place))
                            : sampler->candidates[0].token;
    return TUTTI_OK;
}
