/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Sampling: what the sampler finds with all that it remembers, for texts that grow, end, differ and grow past the context,
 * is what one whole forward pass over the window finds; and the same tokens come of it.
 */
#include "check_nn.h"
#include "nn/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 2, WIDTH = 16, CONTEXT = 70, VOCABULARY = 23, LENGTH = 3 * CONTEXT };

static char folder[] = "/tmp/tutti-sampler-XXXXXX";
static const tutti_gpt shape = {
    .layers = LAYERS, .heads = HEADS, .width = WIDTH, .context = CONTEXT, .vocabulary = VOCABULARY, .dropout = 0.5};

static void save(const tutti_model *model)
{
    static const tutti_note notes[] = {{"model", "gpt"},  {"layers", "2"},    {"heads", "2"},           {"width", "16"},
                                       {"context", "70"}, {"dropout", "0.5"}, {"data.vocabulary", "23"}};
    const int count = tutti_model_tensors(model);
    tutti_checkpoint_tensor *tensors = calloc((size_t)count, sizeof *tensors);
    tutti_error error;
    for (int i = 0; i < count; i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        tensors[i] = (tutti_checkpoint_tensor){.group = "model",
                                               .name = tensor->name,
                                               .dimensions = tensor->dimensions,
                                               .values = tutti_model_values(model) + tensor->offset};
        memcpy(tensors[i].shape, tensor->shape, sizeof tensors[i].shape);
    }
    CHECK(tutti_checkpoint_save(folder, 1, 0, notes, sizeof notes / sizeof *notes, tensors, (size_t)count, &error) ==
          TUTTI_OK);
    free(tensors);
}

/* First values are small: with larger ones tokens and places matter. */
static tutti_model *make_model(void)
{
    tutti_model *model = nn_gpt(&shape, 4);
    uint64_t state = 8;
    for (size_t i = 0; i < tutti_model_elements(model); i++)
        tutti_model_values(model)[i] += (float)(0.4 * nn_uniform(&state));
    return model;
}

/* At least seven eighths of the context, all from the same first token while the text grows by an eighth. */
static size_t window_of(size_t count)
{
    size_t start = 0;
    while (count - start > CONTEXT) start += CONTEXT / 8;
    return start;
}

/* A whole pass over the window, and the output of its last row times the embedding, in double. */
static void reference(tutti_pass *pass, const int32_t *tokens, size_t count, double logits[VOCABULARY])
{
    const tutti_model *model = pass->model;
    const float *embedding = tutti_model_values(model) + tutti_model_find(model, "wte.weight")->offset;
    int32_t window[CONTEXT] = {0}, targets[CONTEXT] = {0};
    const size_t start = window_of(count);
    memcpy(window, tokens + start, (count - start) * sizeof *window);
    tutti_batch batch = {
        .struct_size = sizeof batch, .samples = 1, .tokens = window, .targets = targets, .evaluate = true};
    tutti_loss loss;
    CHECK(tutti_pass_forward(pass, &batch, &loss) == TUTTI_OK);
    const float *output = pass->places[model->layer_count - 2].out + (count - start - 1) * WIDTH;
    for (int v = 0; v < VOCABULARY; v++) {
        logits[v] = 0;
        for (int i = 0; i < WIDTH; i++) logits[v] += (double)output[i] * (double)embedding[v * WIDTH + i];
    }
}

static bool agree(tutti_sampler *sampler, tutti_pass *pass, const int32_t *tokens, size_t count)
{
    float seen[VOCABULARY];
    double wanted[VOCABULARY];
    tutti_error error;
    if (!CHECK(tutti_sampler_logits(sampler, tokens, count, seen, &error) == TUTTI_OK)) return false;
    reference(pass, tokens, count, wanted);
    for (int v = 0; v < VOCABULARY; v++)
        if (!(fabs((double)seen[v] - wanted[v]) < 1e-4 * (1 + fabs(wanted[v])))) return false;
    return true;
}

static void growing(tutti_sampler *sampler, tutti_pass *pass)
{
    int32_t tokens[LENGTH] = {3, 1, 4, 1, 5};
    tutti_error error;
    size_t wrong = 0;
    for (size_t count = 5; count < LENGTH; count++) {
        wrong += !agree(sampler, pass, tokens, count);
        CHECK(tutti_sampler_next(sampler, tokens, count, 1.0, 0, 7, count, &tokens[count], &error) == TUTTI_OK);
    }
    if (!CHECK(wrong == 0)) printf("%zu texts of %d have other logits than a whole pass\n", wrong, LENGTH - 5);
    /* Another sampler, which remembers nothing, draws the same. */
    for (size_t count = LENGTH - 1; count > 5; count -= 13) {
        tutti_sampler *fresh = NULL;
        int32_t next = -1;
        CHECK(tutti_sampler_create(folder, &fresh, &error) == TUTTI_OK);
        CHECK(tutti_sampler_next(fresh, tokens, count, 1.0, 0, 7, count, &next, &error) == TUTTI_OK);
        CHECK(next == tokens[count]);
        tutti_sampler_free(fresh);
    }
}

/* Texts that share a beginning with the last one, are shorter, the same, or have nothing in common. */
static void jumping(tutti_sampler *sampler, tutti_pass *pass)
{
    int32_t tokens[LENGTH];
    uint64_t state = 5;
    size_t wrong = 0;
    for (size_t i = 0; i < LENGTH; i++) tokens[i] = (int32_t)(nn_random(&state) % VOCABULARY);
    for (int i = 0; i < 60; i++) {
        size_t count = 1 + nn_random(&state) % (LENGTH - 1), at = nn_random(&state) % count;
        if (i % 3 == 0) tokens[at] = (int32_t)(nn_random(&state) % VOCABULARY);
        wrong += !agree(sampler, pass, tokens, count);
        if (i % 5 == 0) wrong += !agree(sampler, pass, tokens, count);
    }
    if (!CHECK(wrong == 0)) printf("%zu texts have other logits than a whole pass\n", wrong);
}

/* Among the likeliest one there is no choice; among more than there are, that of all. */
static void choices(tutti_sampler *sampler)
{
    const int32_t token = 3;
    tutti_error error;
    for (uint64_t place = 0; place < 20; place++) {
        int32_t best = -1, among_one = -2, all = -1, more = -2;
        CHECK(tutti_sampler_next(sampler, &token, 1, 0, 0, 7, place, &best, &error) == TUTTI_OK);
        CHECK(tutti_sampler_next(sampler, &token, 1, 1, 1, 7, place, &among_one, &error) == TUTTI_OK);
        CHECK(tutti_sampler_next(sampler, &token, 1, 1, 0, 7, place, &all, &error) == TUTTI_OK);
        CHECK(tutti_sampler_next(sampler, &token, 1, 1, 100 * VOCABULARY, 7, place, &more, &error) == TUTTI_OK);
        CHECK(best == among_one && all == more);
    }
}

static void refusals(tutti_sampler *sampler)
{
    float logits[VOCABULARY];
    tutti_error error;
    CHECK(tutti_sampler_logits(sampler, (int32_t[]){1}, 0, logits, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_sampler_logits(sampler, (int32_t[]){1, VOCABULARY}, 2, logits, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(error.text, "token 23 is not one of the model's 23") != NULL);
}

int main(void)
{
    char command[64];
    nn_need_blas();
    if (mkdtemp(folder) == NULL) return 1;
    tutti_model *model = make_model();
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 1, .evaluate = true});
    tutti_sampler *sampler = NULL;
    tutti_error error;
    save(model);
    if (CHECK(tutti_sampler_create(folder, &sampler, &error) == TUTTI_OK)) {
        growing(sampler, pass);
        jumping(sampler, pass);
        choices(sampler);
        refusals(sampler);
    }
    tutti_sampler_free(sampler);
    tutti_pass_free(pass);
    tutti_model_free(model);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_end();
}
