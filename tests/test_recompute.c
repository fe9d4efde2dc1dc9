/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Recomputation: the losses and gradients of a pass that keeps everything, bit for bit, with grains and without, dropout,
 * threads, the parts of backward apart, several batches at once, branches within branches and values that are gone after
 * each layer; the memory that it needs; and models that it is refused for.
 */
#include "check_nn.h"
#include "sanitized.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES = 4 };

static const tutti_gpt small = {.layers = 3, .heads = 2, .width = 32, .context = 16, .vocabulary = 50};
static const int64_t bounds[] = {0, 1, 1, 4}; /* one grain is empty */

/* ---- The same bits --------------------------------------------------------------------------------------------- */

/* Values of one layer at a time, spoilt as soon as they are given back. */
struct source {
    const tutti_model *model;
    float *values;
    int needed;
};

static tutti_status need(void *context, size_t offset, size_t count, const float **values)
{
    struct source *source = context;
    memcpy(source->values, tutti_model_values(source->model) + offset, count * sizeof(float));
    *values = source->values;
    source->needed++;
    return TUTTI_OK;
}

static void done(void *context, size_t offset, size_t count)
{
    struct source *source = context;
    (void)offset;
    memset(source->values, 0xff, count * sizeof(float)); /* NaN */
    source->needed--;
}

struct trial {
    bool grains, split, by_layer;
    double dropout;
    int threads;
};

static tutti_batch batch_of(const struct trial *trial, uint64_t seed, int slot)
{
    tutti_batch batch = nn_tokens(SAMPLES, small.context, (int32_t)small.vocabulary, seed);
    batch.step = 3;
    batch.seed = 5;
    batch.slot = slot;
    if (trial->grains) batch.grain_bounds = bounds;
    if (trial->grains) batch.grains = 3;
    return batch;
}

static tutti_loss forward(tutti_pass *pass, const tutti_batch *batch)
{
    tutti_loss losses[3] = {{0}};
    CHECK(tutti_pass_forward(pass, batch, losses) == TUTTI_OK);
    return (tutti_loss){losses[0].sum + losses[1].sum + losses[2].sum, losses[0].count};
}

static void backward(tutti_pass *pass, bool split, int slot)
{
    if (split)
        CHECK(tutti_pass_backward(pass, &(tutti_backward){.struct_size = sizeof(tutti_backward),
                                                          .parts = TUTTI_BACKWARD_INPUT,
                                                          .slot = slot}) == TUTTI_OK);
    const int parts = split ? TUTTI_BACKWARD_WEIGHTS : 0;
    CHECK(tutti_pass_backward(pass,
                              &(tutti_backward){.struct_size = sizeof(tutti_backward), .parts = parts, .slot = slot}) ==
          TUTTI_OK);
}

/* Two batches go forward before the first goes back; the second one's gradients are compared, then the first one's. */
static void compare(tutti_model *model, const struct trial *trial, tutti_pass_options *options)
{
    const size_t count = tutti_model_elements(model), bytes = count * sizeof(float);
    float *expected[2] = {malloc(bytes), malloc(bytes)};
    tutti_batch batches[2] = {batch_of(trial, 12, 0), batch_of(trial, 13, 1)};
    tutti_loss losses[2];
    for (int recompute = 0; recompute < 2; recompute++) {
        options->recompute = recompute == 1;
        tutti_pass *pass = nn_pass(model, options);
        for (int b = 0; b < 2; b++) {
            tutti_loss loss = forward(pass, &batches[b]);
            CHECK(recompute == 0 || (loss.sum == losses[b].sum && loss.count == losses[b].count));
            losses[b] = loss;
        }
        for (int b = 1; b >= 0; b--) {
            memset(tutti_model_gradients(model), 0, bytes);
            backward(pass, trial->split, b);
            if (recompute == 0) memcpy(expected[b], tutti_model_gradients(model), bytes);
            CHECK_THAT(memcmp(expected[b], tutti_model_gradients(model), bytes) == 0,
                       "grains %d, split %d, by layer %d, dropout %g: other gradients", trial->grains, trial->split,
                       trial->by_layer, trial->dropout);
        }
        tutti_pass_free(pass);
    }
    for (int b = 0; b < 2; b++) nn_batch_free(&batches[b]);
    free(expected[0]);
    free(expected[1]);
}

static void same_bits(tutti_model *model, const struct trial *trial)
{
    struct source held = {model, malloc(tutti_model_elements(model) * sizeof(float)), 0};
    const tutti_value_source source = {need, done, &held};
    tutti_pass_options options = {.struct_size = sizeof options,
                                  .samples = SAMPLES,
                                  .grains = trial->grains ? 3 : 0,
                                  .threads = trial->threads,
                                  .split = trial->split,
                                  .slots = 2,
                                  .source = trial->by_layer ? &source : NULL};
    compare(model, trial, &options);
    CHECK(held.needed == 0);
    free(held.values);
}

static void test_gpt(void)
{
    for (int i = 0; i < 16; i++) {
        const struct trial trial = {.grains = (i & 1) != 0,
                                    .split = (i & 2) != 0,
                                    .by_layer = (i & 4) != 0,
                                    .dropout = i & 8 ? 0.2 : 0,
                                    .threads = 1 + i % 3};
        tutti_gpt gpt = small;
        gpt.dropout = trial.dropout;
        tutti_model *model = nn_gpt(&gpt, 11);
        same_bits(model, &trial);
        tutti_model_free(model);
    }
}

/* Branches that end with a layer that saves, lie within another, or have one layer only; others stand between them. */
static void test_branches(void)
{
    tutti_model *model = NULL;
    const tutti_linear wide = {.outputs = 32, .activation = TUTTI_GELU};
    tutti_model_create(&(tutti_model_shape){.rows = small.context}, &model);
    tutti_add_embedding(model, "wte", "wpe", small.vocabulary, 32, 0.1);
    tutti_residual_begin(model);
    tutti_add_layer_norm(model, "a");
    tutti_add_linear(model, "b", &wide);
    tutti_residual_begin(model);
    tutti_add_linear(model, "c", &wide);
    tutti_add_relu(model, "d");
    tutti_residual_end(model);
    tutti_add_linear(model, "e", &wide);
    tutti_residual_end(model);
    tutti_residual_begin(model);
    tutti_add_relu(model, "f");
    tutti_residual_end(model);
    tutti_add_gelu(model, "g");
    tutti_residual_begin(model);
    tutti_add_rms_norm(model, "h");
    tutti_add_linear(model, "i", &(tutti_linear){.outputs = 32});
    tutti_add_dropout(model, "j", 0.3);
    tutti_residual_end(model);
    tutti_add_tied_cross_entropy(model, "k", "wte.weight");
    CHECK(tutti_model_seal(model) == TUTTI_OK && tutti_model_bind(model, NULL, NULL) == TUTTI_OK &&
          tutti_model_init(model, 1) == TUTTI_OK);
    for (int i = 0; i < 8; i++) {
        const struct trial trial = {
            .grains = (i & 1) != 0, .split = (i & 2) != 0, .by_layer = (i & 4) != 0, .threads = 2};
        same_bits(model, &trial);
    }
    tutti_model_free(model);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static size_t resident(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%*u %llu", &pages) == 1);
    if (file != NULL) fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* What a training pass takes by its own account, and what one step of it adds to this process. */
static void measure(tutti_model *model, bool recompute, size_t *bytes, size_t *grown)
{
    const tutti_gpt gpt = {.layers = 6, .heads = 4, .width = 128, .context = 64, .vocabulary = 50};
    tutti_batch batch = nn_tokens(16, gpt.context, (int32_t)gpt.vocabulary, 1);
    const size_t before = resident();
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 16, .recompute = recompute});
    nn_step(pass, &batch, &(tutti_backward){0});
    *bytes = tutti_pass_bytes(pass);
    *grown = resident() - before;
    tutti_pass_free(pass);
    nn_batch_free(&batch);
}

static bool within(size_t value, size_t expected, double share)
{
    const double difference = (double)value - (double)expected;
    return difference <= share * (double)expected && -difference <= share * (double)expected;
}

/* Written apart from the code: floats of a row of one GPT block are the outputs of its seven layers, 12 widths, and what two
 * norms, attention and the activation save: 2 + 2 + heads + 4 widths. Two of these, the branches' ends, stay with
 * recomputation; the insides of the larger branch, which is the second one, are there once. */
static void test_memory(void)
{
    const tutti_gpt gpt = {.layers = 6, .heads = 4, .width = 128, .context = 64, .vocabulary = 50};
    tutti_model *model = nn_gpt(&gpt, 1);
    size_t bytes[2], grown[2];
    (void)tutti_model_gradients(model);
    measure(model, false, &bytes[0], &grown[0]); /* what the first pass of a process needs otherwise */
    for (int i = 0; i < 2; i++) measure(model, i == 1, &bytes[i], &grown[i]);
    const size_t rows = 16 * (size_t)gpt.context, width = (size_t)gpt.width;
    const size_t block = 16 * width + 4 + (size_t)gpt.heads, inside = 9 * width + 2;
    const size_t saved = rows * sizeof(float) * ((size_t)gpt.layers * (block - 2 * width) - inside);
    CHECK_THAT(within(bytes[0] - bytes[1], saved, 0.01), "%zu and %zu bytes; %zu less were expected", bytes[0],
               bytes[1], saved);
    for (int i = 0; i < 2 && !SANITIZED; i++)
        CHECK_THAT(within(grown[i], bytes[i], 0.03), "recompute %d: %zu bytes, and %zu came", i, bytes[i], grown[i]);
    tutti_model_free(model);
}

/* ---- Refused --------------------------------------------------------------------------------------------------- */

static void test_refused(void)
{
    tutti_model *model = nn_mlp(&(tutti_mlp){.inputs = 4, .outputs = 3, .hidden_layers = 1, .hidden = 8}, 1);
    tutti_pass *pass = NULL;
    CHECK(tutti_pass_create(
              model, &(tutti_pass_options){.struct_size = sizeof(tutti_pass_options), .samples = 2, .recompute = true},
              &pass) == TUTTI_ERR_ARGUMENT);
    CHECK(pass == NULL && strstr(tutti_model_error(model)->text, "this model has none") != NULL);
    tutti_model_free(model);
}

int main(void)
{
    nn_need_blas();
    test_memory(); /* first, while little of the heap is free */
    test_gpt();
    test_branches();
    test_refused();
    return check_end();
}
