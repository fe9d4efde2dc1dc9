/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Passes: closed forms in exact arithmetic, the two parts of backward apart, one layer in memory at a time, adding up, readiness, dropout, values that
 * are not finite, wrong input, memory that runs out, and two ranks that multiply matrices at the same time.
 */
#include "base/alloc.h"
#include "check_nn.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const tutti_gpt small = {.layers = 2, .heads = 2, .width = 32, .context = 16, .vocabulary = 50};

static bool same(const float *a, const float *b, size_t count)
{
    return memcmp(a, b, count * sizeof *a) == 0;
}

static float *copy_gradients(tutti_model *model)
{
    size_t bytes = tutti_model_elements(model) * sizeof(float);
    return memcpy(malloc(bytes), tutti_model_gradients(model), bytes);
}

/* ---- Closed forms ---------------------------------------------------------------------------------------------- */

enum { ROWS = 12, IN = 5, OUT = 3 };

/* Small whole numbers: every sum is exact, so every order of summing must give the same bits. */
static void whole_numbers(float *values, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) values[i] = (float)((int)(nn_random(&seed) % 9) - 4);
}

static float *writable(const float *values)
{
    return (float *)(uintptr_t)values;
}

/* The gradient of the squared differences: 2 / outputs * X'(X W + b - Y). Outputs 4, so that this is exact. */
static void least_squares(void)
{
    enum { OUT4 = 4 };
    tutti_model *model = nn_mlp(&(tutti_mlp){.inputs = IN, .outputs = OUT4}, 1);
    tutti_batch batch = nn_values(ROWS, IN, OUT4, 2);
    whole_numbers(tutti_model_values(model), tutti_model_elements(model), 3);
    whole_numbers(writable(batch.inputs), ROWS * IN, 4);
    whole_numbers(writable(batch.target_values), ROWS * OUT4, 5);
    const float *w = tutti_model_values(model) + tutti_model_find(model, "layers.0.weight")->offset;
    const float *b = tutti_model_values(model) + tutti_model_find(model, "layers.0.bias")->offset;
    float expected[IN][OUT4] = {{0}};
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < OUT4; j++) {
            float error = b[j] - batch.target_values[r * OUT4 + j];
            for (int i = 0; i < IN; i++) error += batch.inputs[r * IN + i] * w[i * OUT4 + j];
            for (int i = 0; i < IN; i++) expected[i][j] += 0.5f * error * batch.inputs[r * IN + i];
        }
    static const int64_t bounds[] = {0, 5, 6, 12};
    for (int variant = 0; variant < 6; variant++) {
        tutti_pass *pass = nn_pass(model,
                                   &(tutti_pass_options){.samples = ROWS, .grains = 3, .threads = 1 + variant / 2});
        batch.grain_bounds = variant % 2 ? bounds : NULL;
        batch.grains = 3;
        nn_step(pass, &batch, &(tutti_backward){0});
        CHECK(same(tutti_model_gradients(model) + tutti_model_find(model, "layers.0.weight")->offset, expected[0],
                   IN * OUT4));
        tutti_pass_free(pass);
    }
    nn_batch_free(&batch);
    tutti_model_free(model);
}

/* With weights of 0 every class is as likely: the gradient is X'(1 / classes - [is the target]). */
static void cross_entropy_form(void)
{
    enum { CLASSES = 4 };
    tutti_model *model = nn_mlp(&(tutti_mlp){.inputs = IN, .outputs = CLASSES, .classify = true}, 1);
    tutti_batch batch = nn_values(ROWS, IN, CLASSES, 6);
    whole_numbers(writable(batch.inputs), ROWS * IN, 7);
    memset(tutti_model_values(model), 0, tutti_model_elements(model) * sizeof(float));
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = ROWS});
    tutti_loss loss = nn_step(pass, &batch, &(tutti_backward){0});
    CHECK(fabs(loss.sum / loss.count - log(CLASSES)) < 1e-7);
    const float *gradient = tutti_model_gradients(model);
    for (int i = 0; i < IN; i++)
        for (int c = 0; c < CLASSES; c++) {
            float expected = 0;
            for (int r = 0; r < ROWS; r++)
                expected += batch.inputs[r * IN + i] * (0.25f - (batch.targets[r] == c ? 1.0f : 0.0f));
            CHECK(fabsf(gradient[i * CLASSES + c] - expected) < 1e-5f);
        }
    tutti_pass_free(pass);
    nn_batch_free(&batch);
    tutti_model_free(model);
}

/* ---- Backward in other ways, same bits -------------------------------------------------------------------------- */

struct coverage {
    size_t next; /* everything from here on has been ready */
    bool ordered;
};

static void note_ready(void *context, size_t offset, size_t count)
{
    struct coverage *coverage = context;
    coverage->ordered = coverage->ordered && offset + count == coverage->next;
    coverage->next = offset;
}

static void other_ways(const int64_t *bounds, int grains)
{
    tutti_model *model = nn_gpt(&small, 11);
    tutti_batch batch = nn_tokens(4, small.context, (int32_t)small.vocabulary, 12);
    batch.grain_bounds = bounds;
    batch.grains = grains;
    const size_t count = tutti_model_elements(model);
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 4, .grains = grains, .threads = 2});
    struct coverage coverage = {.next = count, .ordered = true};
    nn_step(pass, &batch, &(tutti_backward){.ready = note_ready, .context = &coverage});
    CHECK(coverage.ordered && coverage.next == 0);
    float *expected = copy_gradients(model);
    tutti_pass_free(pass);

    tutti_pass_options apart = {
        .struct_size = sizeof apart, .samples = 4, .grains = grains, .threads = 2, .split = true};
    pass = nn_pass(model, &apart);
    memset(tutti_model_gradients(model), 0, count * sizeof(float));
    nn_step(pass, &batch, &(tutti_backward){.parts = TUTTI_BACKWARD_INPUT});
    CHECK(tutti_model_gradients(model)[0] == 0);
    CHECK(tutti_pass_backward(pass, &(tutti_backward){.struct_size = sizeof(tutti_backward),
                                                      .parts = TUTTI_BACKWARD_WEIGHTS}) == TUTTI_OK);
    CHECK(same(tutti_model_gradients(model), expected, count));
    tutti_pass_free(pass);
    free(expected);
    nn_batch_free(&batch);
    tutti_model_free(model);
}

/* Parameters and gradients of one layer at a time, in memory that is spoilt as soon as it is given back. */
struct one_layer {
    const tutti_model *model;
    float *values, *gradients, *all; /* all: the gradients that became ready */
    int needed, fails_after;
};

static tutti_status layer_need(void *context, size_t offset, size_t count, const float **values)
{
    struct one_layer *one = context;
    if (one->fails_after-- == 0) return TUTTI_ERR_PEER_LOST;
    memcpy(one->values, tutti_model_values(one->model) + offset, count * sizeof(float));
    *values = one->values;
    one->needed++;
    return TUTTI_OK;
}

static void layer_done(void *context, size_t offset, size_t count)
{
    struct one_layer *one = context;
    (void)offset;
    memset(one->values, 0xff, count * sizeof(float)); /* NaN */
    one->needed--;
}

static tutti_status layer_place(void *context, int subtree, size_t offset, size_t count, float **gradients)
{
    struct one_layer *one = context;
    (void)offset, (void)count;
    *gradients = one->gradients;
    return subtree == 0 ? TUTTI_OK : TUTTI_ERR_ARGUMENT;
}

static void layer_ready(void *context, size_t offset, size_t count)
{
    struct one_layer *one = context;
    memcpy(one->all + offset, one->gradients, count * sizeof(float));
    memset(one->gradients, 0xff, count * sizeof(float));
}

static void by_layer(const int64_t *bounds, int grains)
{
    tutti_model *model = nn_gpt(&small, 15);
    tutti_batch batch = nn_tokens(4, small.context, (int32_t)small.vocabulary, 16);
    const size_t count = tutti_model_elements(model);
    tutti_pass_options options = {.struct_size = sizeof options, .samples = 4, .grains = grains, .threads = 2};
    batch.grain_bounds = bounds;
    batch.grains = grains;
    tutti_pass *pass = nn_pass(model, &options);
    tutti_loss plain = nn_step(pass, &batch, &(tutti_backward){0}), losses[8];
    tutti_pass_free(pass);

    struct one_layer one = {
        model, malloc(count * sizeof(float)), malloc(count * sizeof(float)), malloc(count * sizeof(float)), 0, -1};
    const tutti_value_source source = {layer_need, layer_done, &one};
    const int all[2] = {0, grains};
    tutti_backward how = {.struct_size = sizeof how,
                          .subtrees = 1,
                          .subtree_bounds = all,
                          .place = layer_place,
                          .ready = layer_ready,
                          .context = &one};
    options.source = &source;
    pass = nn_pass(model, &options);
    CHECK(nn_step(pass, &batch, &how).sum == plain.sum && one.needed == 0);
    CHECK(same(one.all, tutti_model_gradients(model), count));
    one.fails_after = 3;
    CHECK(tutti_pass_forward(pass, &batch, losses) == TUTTI_ERR_PEER_LOST && one.needed == 0);
    one.fails_after = -1;
    CHECK(tutti_pass_forward(pass, &batch, losses) == TUTTI_OK);
    one.fails_after = 3;
    CHECK(tutti_pass_backward(pass, &how) == TUTTI_ERR_PEER_LOST && one.needed == 0);
    tutti_pass_free(pass);
    free(one.values);
    free(one.gradients);
    free(one.all);
    nn_batch_free(&batch);
    tutti_model_free(model);
}

/* Two passes over the halves of a model, two batches in flight, the parts of backward together or apart, the gradients of the
 * tied weight apart from the embedding's: as one pass over all of it, bit for bit. */
static int middle_of(const tutti_model *model)
{
    int middle = tutti_model_layers(model) / 2;
    while (!tutti_model_cut(model, middle)) middle++;
    return middle;
}

struct stages {
    tutti_model *model;
    tutti_pass *passes[2];
    tutti_batch batches[2];
    float *memory; /* of each batch: what passes between the halves, and its gradient */
    size_t each;
    float *gradients, *tied;
};

static void stages_backward(struct stages *stages, int batch, int parts)
{
    tutti_backward how = {.struct_size = sizeof how,
                          .subtrees = 1,
                          .subtree_bounds = (const int[]){0, stages->batches[batch].grains},
                          .gradients = &stages->gradients,
                          .tied = &stages->tied,
                          .parts = parts,
                          .slot = batch};
    for (int half = 1; half >= 0; half--) CHECK(tutti_pass_backward(stages->passes[half], &how) == TUTTI_OK);
}

static void stages_compare(struct stages *stages, int batch, tutti_loss loss)
{
    tutti_model *model = stages->model;
    const size_t count = tutti_model_elements(model), tied = tutti_model_find(model, "wte.weight")->count;
    tutti_batch alone = stages->batches[batch];
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 4, .grains = 3});
    float *gradients = calloc(count, sizeof *gradients), *own = calloc(tutti_model_tied(model), sizeof *own);
    alone.slot = 0;
    CHECK(nn_step(pass, &alone,
                  &(tutti_backward){.subtrees = 1,
                                    .subtree_bounds = (const int[]){0, alone.grains},
                                    .gradients = &gradients,
                                    .tied = &own})
              .sum == loss.sum);
    CHECK(same(stages->gradients, gradients, count) && same(stages->tied, own, tied));
    CHECK(!same(own, gradients, tied));
    tutti_pass_free(pass);
    free(gradients);
    free(own);
}

static void in_stages(bool split, double dropout)
{
    static const int64_t bounds[] = {0, 1, 2, 4};
    tutti_gpt gpt = small;
    gpt.dropout = dropout;
    struct stages stages = {.model = nn_gpt(&gpt, 15)};
    tutti_model *model = stages.model;
    const int middle = middle_of(model);
    tutti_loss losses[2] = {{0}}, some[4];
    stages.each = (size_t)(4 * gpt.context * gpt.width);
    stages.memory = calloc(4 * stages.each, sizeof *stages.memory);
    stages.gradients = calloc(tutti_model_elements(model), sizeof *stages.gradients);
    stages.tied = calloc(tutti_model_tied(model), sizeof *stages.tied);
    for (int half = 0; half < 2; half++)
        stages.passes[half] = nn_pass(model,
                                      &(tutti_pass_options){.samples = 4,
                                                            .grains = 3,
                                                            .threads = 2,
                                                            .split = split,
                                                            .first_layer = half == 0 ? 0 : middle,
                                                            .end_layer = half == 0 ? middle : tutti_model_layers(model),
                                                            .slots = 2});
    for (int b = 0; b < 2; b++) {
        tutti_batch *batch = &stages.batches[b];
        float *between = stages.memory + (size_t)b * 2 * stages.each;
        *batch = nn_tokens(4, gpt.context, (int32_t)gpt.vocabulary, (uint64_t)(16 + b));
        batch->grain_bounds = bounds;
        batch->grains = 3;
        batch->slot = b;
        for (int half = 0; half < 2; half++) {
            batch->boundary = half == 0 ? (tutti_boundary){.out = between, .out_gradient = between + stages.each}
                                        : (tutti_boundary){.in = between, .in_gradient = between + stages.each};
            CHECK(tutti_pass_forward(stages.passes[half], batch, some) == TUTTI_OK);
        }
        for (int g = 0; g < 3; g++) losses[b].sum += some[g].sum;
    }
    for (int b = 0; b < 2 && split; b++) stages_backward(&stages, b, TUTTI_BACKWARD_INPUT);
    for (int b = 0; b < 2; b++) {
        stages_backward(&stages, b, split ? TUTTI_BACKWARD_WEIGHTS : 0);
        stages_compare(&stages, b, losses[b]);
    }
    CHECK(tutti_pass_backward(stages.passes[1], NULL) == TUTTI_ERR_ARGUMENT); /* no place for the tie */
    CHECK(tutti_pass_backward(stages.passes[1], &(tutti_backward){.struct_size = sizeof(tutti_backward),
                                                                  .tied = &stages.tied,
                                                                  .slot = 2}) == TUTTI_ERR_ARGUMENT);
    for (int i = 0; i < 2; i++) {
        tutti_pass_free(stages.passes[i]);
        nn_batch_free(&stages.batches[i]);
    }
    free(stages.memory);
    free(stages.gradients);
    free(stages.tied);
    tutti_model_free(model);
}

/* Two batches added up are the batch of both; a rank without samples has gradients of 0. */
static void adding(void)
{
    tutti_model *model = nn_mlp(
        &(tutti_mlp){.inputs = IN, .outputs = OUT + 1, .hidden_layers = 1, .hidden = 8, .activation = TUTTI_RELU}, 1);
    tutti_batch batch = nn_values(ROWS, IN, OUT + 1, 2);
    whole_numbers(tutti_model_values(model), tutti_model_elements(model), 3);
    whole_numbers(writable(batch.inputs), ROWS * IN, 4);
    whole_numbers(writable(batch.target_values), ROWS * (OUT + 1), 5);
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = ROWS});
    nn_step(pass, &batch, &(tutti_backward){0});
    float *expected = copy_gradients(model);
    tutti_batch half = batch, empty = batch;
    half.samples = 7;
    nn_step(pass, &half, &(tutti_backward){0});
    half.samples = ROWS - 7;
    half.inputs += 7 * IN;
    half.target_values += 7 * (OUT + 1);
    nn_step(pass, &half, &(tutti_backward){.accumulate = true});
    CHECK(same(tutti_model_gradients(model), expected, tutti_model_elements(model)));
    empty.samples = 0;
    CHECK(nn_step(pass, &empty, &(tutti_backward){.accumulate = true}).count == 0);
    CHECK(same(tutti_model_gradients(model), expected, tutti_model_elements(model)));
    nn_step(pass, &empty, &(tutti_backward){0});
    for (size_t i = 0; i < tutti_model_elements(model); i++) CHECK(tutti_model_gradients(model)[i] == 0);
    free(expected);
    tutti_pass_free(pass);
    nn_batch_free(&batch);
    tutti_model_free(model);
}

/* ---- Dropout --------------------------------------------------------------------------------------------------- */

static void dropout(void)
{
    enum { WIDTH = 500 };
    tutti_model *model;
    tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = WIDTH}, &model);
    tutti_add_dropout(model, "drop", 0.25);
    tutti_add_mse(model);
    tutti_model_seal(model);
    tutti_model_bind(model, NULL, NULL);
    tutti_batch batch = nn_values(20, WIDTH, WIDTH, 1);
    for (int i = 0; i < 20 * WIDTH; i++) writable(batch.inputs)[i] = 3;
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 20, .threads = 3});
    nn_step(pass, &batch, NULL);
    float *first = memcpy(malloc(20 * WIDTH * sizeof *first), tutti_pass_outputs(pass), 20 * WIDTH * sizeof *first);
    int kept = 0;
    for (int i = 0; i < 20 * WIDTH; i++) {
        CHECK(first[i] == 0 || first[i] == 4);
        kept += first[i] == 4;
    }
    CHECK(kept > 7300 && kept < 7700); /* 7500 expected, deviation 43 */
    tutti_batch part = batch;          /* the same numbers for the same samples of the global batch */
    part.samples = 13;
    part.first_sample = 7;
    nn_step(pass, &part, NULL);
    CHECK(same(tutti_pass_outputs(pass), first + 7 * WIDTH, 13 * WIDTH));
    batch.step = 1;
    nn_step(pass, &batch, NULL);
    CHECK(!same(tutti_pass_outputs(pass), first, 20 * WIDTH));
    batch.evaluate = true;
    nn_step(pass, &batch, NULL);
    CHECK(same(tutti_pass_outputs(pass), batch.inputs, 20 * WIDTH));
    free(first);
    tutti_pass_free(pass);
    nn_batch_free(&batch);
    tutti_model_free(model);
}

/* ---- Not finite ------------------------------------------------------------------------------------------------ */

static void faults(void)
{
    tutti_model *model = nn_gpt(&small, 13);
    tutti_batch batch = nn_tokens(2, small.context, (int32_t)small.vocabulary, 14);
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 2});
    tutti_fault fault;
    nn_step(pass, &batch, &(tutti_backward){0});
    CHECK(!tutti_pass_fault(pass, &fault));

    const tutti_tensor *tensor = tutti_model_find(model, "h.1.mlp.c_fc.weight");
    tutti_model_gradients(model)[tensor->offset + 7] = INFINITY;
    CHECK(tutti_pass_fault(pass, &fault) && strcmp(fault.what, "gradient") == 0 && fault.index == 7);
    CHECK(strcmp(fault.tensor, "h.1.mlp.c_fc.weight") == 0 && strcmp(fault.layer, "h.1.mlp.c_fc") == 0);

    float *norm = tutti_model_values(model) + tutti_model_find(model, "h.1.ln_1.weight")->offset;
    for (int i = 0; i < small.width; i++) norm[i] = 3e38f; /* finite, but what comes out of the norm is not */
    CHECK(!isfinite(nn_step(pass, &batch, NULL).sum));
    CHECK(tutti_pass_fault(pass, &fault) && strcmp(fault.what, "output") == 0);
    CHECK(strcmp(fault.layer, "h.1.ln_1") == 0 || strcmp(fault.layer, "h.1.attn.c_attn") == 0);

    norm[3] = NAN;
    CHECK(tutti_pass_fault(pass, &fault) && strcmp(fault.what, "parameter") == 0 && fault.index == 3);
    CHECK(strcmp(fault.tensor, "h.1.ln_1.weight") == 0 && isnan(fault.value));
    CHECK(isnan(nn_step(pass, &batch, NULL).sum));
    tutti_pass_free(pass);
    nn_batch_free(&batch);
    tutti_model_free(model);
}

/* ---- Wrong input ----------------------------------------------------------------------------------------------- */

static bool refused(tutti_model *model, tutti_status status, const char *word)
{
    bool right = status == TUTTI_ERR_ARGUMENT && tutti_model_error(model) != NULL &&
                 strstr(tutti_model_error(model)->text, word) != NULL;
    if (!right && tutti_model_error(model) != NULL) printf("said: %s\n", tutti_model_error(model)->text);
    return right;
}

static void wrong_batches(void)
{
    tutti_model *model = nn_gpt(&small, 1);
    tutti_batch batch = nn_tokens(2, small.context, (int32_t)small.vocabulary, 2), bad = batch;
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 2, .grains = 2});
    tutti_loss losses[2];
    CHECK(refused(model, tutti_pass_backward(pass, NULL), "needs a forward"));
    bad.samples = 3;
    CHECK(refused(model, tutti_pass_forward(pass, &bad, losses), "3 samples"));
    bad = batch;
    bad.targets = NULL;
    CHECK(refused(model, tutti_pass_forward(pass, &bad, losses), "lacks"));
    bad = batch;
    bad.grain_bounds = (const int64_t[]){0, 2, 1};
    bad.grains = 2;
    CHECK(refused(model, tutti_pass_forward(pass, &bad, losses), "grain bounds"));
    bad.grain_bounds = (const int64_t[]){0, 1, 2};
    CHECK(tutti_pass_forward(pass, &bad, losses) == TUTTI_OK);
    CHECK(refused(
        model, tutti_pass_backward(pass, &(tutti_backward){.struct_size = sizeof(tutti_backward), .accumulate = true}),
        "only fast mode"));
    CHECK(refused(model,
                  tutti_pass_backward(
                      pass, &(tutti_backward){.struct_size = sizeof(tutti_backward), .parts = TUTTI_BACKWARD_INPUT}),
                  "split"));
    ((int32_t *)(uintptr_t)batch.tokens)[5] = 50;
    CHECK(refused(model, tutti_pass_forward(pass, &batch, losses), "token 5 of the batch is 50"));
    tutti_pass_free(pass);
    nn_batch_free(&batch);
    tutti_model_free(model);
}

static void wrong_models(void)
{
    tutti_model *model;
    tutti_status status = tutti_gpt_create(
        &(tutti_gpt){.layers = 1, .heads = 3, .width = 32, .context = 4, .vocabulary = 9}, &model);
    CHECK(refused(model, status, "3 heads"));
    tutti_model_free(model);
    tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = 4}, &model);
    tutti_add_linear(model, "a", &(tutti_linear){.outputs = 4});
    CHECK(refused(model, tutti_model_seal(model), "ends with a loss"));
    tutti_model_free(model);
    tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = 4}, &model);
    tutti_add_linear(model, "a", &(tutti_linear){.outputs = 4});
    tutti_residual_begin(model);
    tutti_add_linear(model, "b", &(tutti_linear){.outputs = 5});
    tutti_residual_end(model);
    CHECK(refused(model, tutti_model_seal(model), "cannot be added"));
    tutti_model_free(model);
    tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = 4}, &model);
    tutti_add_linear(model, "a", &(tutti_linear){.outputs = 4});
    tutti_add_linear(model, "a", &(tutti_linear){.outputs = 4});
    CHECK(refused(model, tutti_model_seal(model), "there already"));
    tutti_model_free(model);
}

/* Every allocation fails once: each failure is an error, and nothing is lost. */
static void no_memory(void)
{
    for (long allowed = 0; allowed < 400; allowed++) {
        tutti_model *model = NULL;
        tutti_pass *pass = NULL;
        tti_alloc_fail_after(allowed);
        tutti_status status = tutti_gpt_create(&small, &model);
        if (status == TUTTI_OK) status = tutti_model_bind(model, NULL, NULL);
        if (status == TUTTI_OK)
            status = tutti_pass_create(
                model, &(tutti_pass_options){.struct_size = sizeof(tutti_pass_options), .samples = 2, .threads = 2},
                &pass);
        if (status == TUTTI_OK && tutti_model_gradients(model) == NULL) status = TUTTI_ERR_MEMORY;
        tti_alloc_fail_after(-1);
        tutti_pass_free(pass);
        tutti_model_free(model);
        if (status == TUTTI_OK) return;
        CHECK(status == TUTTI_ERR_MEMORY || status == TUTTI_ERR_LIMIT);
    }
    bool enough_allowed = false;
    CHECK(enough_allowed);
}

/* ---- Two ranks at once ------------------------------------------------------------------------------------------ */

static void *train_some(void *argument)
{
    tutti_model *model = nn_gpt(&small, 21);
    tutti_batch batch = nn_tokens(4, small.context, (int32_t)small.vocabulary, 22);
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 4});
    tutti_loss loss;
    bool good = true;
    for (int step = 0; step < 20; step++) {
        good = good && tutti_pass_forward(pass, &batch, &loss) == TUTTI_OK &&
               tutti_pass_backward(pass, NULL) == TUTTI_OK;
        float *values = tutti_model_values(model);
        for (size_t i = 0; i < tutti_model_elements(model); i++) values[i] -= 1e-3f * tutti_model_gradients(model)[i];
    }
    *(double *)argument = good ? loss.sum : 0;
    tutti_pass_free(pass);
    nn_batch_free(&batch);
    tutti_model_free(model);
    return NULL;
}

static void two_ranks(void)
{
    double alone = 0, together[3] = {0};
    pthread_t threads[3];
    train_some(&alone);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, train_some, &together[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) CHECK(alone > 0 && together[i] == alone);
}

int main(void)
{
    nn_need_blas();
    least_squares();
    cross_entropy_form();
    other_ways(NULL, 0);
    other_ways((const int64_t[]){0, 1, 2, 4}, 3);
    by_layer(NULL, 0);
    by_layer((const int64_t[]){0, 1, 2, 4}, 3);
    in_stages(false, 0);
    in_stages(true, 0);
    in_stages(false, 0.2);
    in_stages(true, 0.2);
    adding();
    dropout();
    faults();
    wrong_batches();
    wrong_models();
    no_memory();
    two_ranks();
    return check_end();
}
