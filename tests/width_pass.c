/* SPDX-License-Identifier: Apache-2.0 */
#include "width_pass.h"

#include "base/hash.h"
#include "check.h"
#include "nn/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t width_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 31);
}

size_t width_count(const tutti_tensor *tensor)
{
    size_t count = 1;
    for (int d = 0; d < tensor->dimensions; d++) count *= (size_t)tensor->shape[d];
    return count;
}

void width_free(struct width_result *result)
{
    for (int i = 0; result->values != NULL && i < tutti_model_tensors(result->model); i++) {
        free(result->values[i]);
        free(result->gradients[i]);
    }
    free(result->values);
    free(result->gradients);
    tutti_model_free(result->model);
}

bool width_good(const tutti_model *model, tutti_status status)
{
    const tutti_error *error = tutti_model_error(model);
    return CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
}

static tutti_batch make_batch(const struct width_shape *shape)
{
    static const int64_t bounds[WIDTH_GRAINS + 1] = {0, 2, 2, WIDTH_SAMPLES};
    const bool tokens = shape->gpt.heads > 0;
    const int64_t rows = tokens ? WIDTH_SAMPLES * shape->gpt.context : WIDTH_SAMPLES;
    const int64_t classes = tokens ? shape->gpt.vocabulary : shape->mlp.outputs;
    uint64_t state = 3;
    int32_t *ids = tokens ? calloc((size_t)rows, sizeof *ids) : NULL, *targets = calloc((size_t)rows, sizeof *targets);
    float *inputs = tokens ? NULL : calloc((size_t)(WIDTH_SAMPLES * (shape->mlp.inputs + 1)), sizeof *inputs);
    float *values = calloc((size_t)(WIDTH_SAMPLES * (shape->mlp.outputs + 1)), sizeof *values);
    for (int64_t i = 0; i < rows; i++) {
        int32_t id = (int32_t)(width_next(&state) % (uint64_t)classes);
        if (tokens) ids[i] = id;
        targets[i] = i % 9 == 4 ? -1 : (int32_t)(width_next(&state) % (uint64_t)classes);
    }
    for (int64_t i = 0; !tokens && i < WIDTH_SAMPLES * shape->mlp.inputs; i++)
        inputs[i] = (float)(width_next(&state) % 5) - 2;
    for (int64_t i = 0; i < WIDTH_SAMPLES * shape->mlp.outputs; i++) values[i] = (float)(width_next(&state) % 5) - 2;
    return (tutti_batch){.struct_size = sizeof(tutti_batch),
                         .samples = WIDTH_SAMPLES,
                         .tokens = ids,
                         .targets = targets,
                         .inputs = inputs,
                         .target_values = values,
                         .grain_bounds = bounds,
                         .grains = WIDTH_GRAINS,
                         .first_sample = 11,
                         .step = 5,
                         .seed = 9};
}

static uint64_t operations(tutti_comm *comm)
{
    tutti_stats stats = {.struct_size = sizeof stats};
    if (comm != NULL) (void)tutti_comm_stats(comm, &stats);
    return stats.operations;
}

bool width_run_pass(const struct width_shape *shape, int threads, struct width_result *result)
{
    tutti_model *model = result->model;
    tutti_pass *pass = NULL;
    tutti_batch batch = make_batch(shape);
    if (shape->fast) batch.grain_bounds = NULL;
    tutti_pass_options options = {.struct_size = sizeof options,
                                  .samples = WIDTH_SAMPLES,
                                  .grains = WIDTH_GRAINS,
                                  .threads = threads,
                                  .split = shape->split,
                                  .recompute = shape->recompute};
    bool ok = width_good(model, tutti_pass_create(model, &options, &pass));
    const uint64_t before = operations(model->width.comm);
    ok = ok && width_good(model, tutti_pass_forward(pass, &batch, result->losses));
    for (int part = shape->split ? TUTTI_BACKWARD_INPUT : 0; ok && part <= (shape->split ? TUTTI_BACKWARD_WEIGHTS : 0);
         part++)
        ok = width_good(
            model, tutti_pass_backward(pass, &(tutti_backward){.struct_size = sizeof(tutti_backward), .parts = part}));
    result->operations = operations(model->width.comm) - before;
    for (int i = 0; ok && i < model->layer_count; i++)
        if (model->layers[i]->cut != TUTTI_CUT_OUTPUTS && model->layers[i]->cut != TUTTI_CUT_ALIKE &&
            !tti_pass_has_slices_only(pass, i))
            result->rows = tti_hash_bytes(result->rows, pass->places[i].out,
                                          tti_pass_rows(pass) * (size_t)model->layers[i]->outputs * sizeof(float));
    tutti_pass_free(pass);
    const void *own[] = {batch.tokens, batch.targets, batch.inputs, batch.target_values};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free((void *)(uintptr_t)own[i]);
    return ok;
}

/* Values and gradients in their global shapes; of what is not here, those of `base` (NULL: 0). */
void width_collect(struct width_result *result, const struct width_result *base)
{
    tutti_model *model = result->model;
    const size_t tensors = (size_t)tutti_model_tensors(model);
    result->values = calloc(tensors, sizeof *result->values);
    result->gradients = calloc(tensors, sizeof *result->gradients);
    for (int i = 0; i < (int)tensors; i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        const size_t bytes = width_count(tensor) * sizeof(float);
        result->values[i] = calloc(1, bytes);
        result->gradients[i] = calloc(1, bytes);
        if (base != NULL) memcpy(result->values[i], base->values[i], bytes);
        if (base != NULL) memcpy(result->gradients[i], base->gradients[i], bytes);
        tutti_tensor_put(model, i, tutti_model_values(model) + tensor->offset, result->values[i]);
        tutti_tensor_put(model, i, tutti_model_gradients(model) + tensor->offset, result->gradients[i]);
    }
}

/* ---- Comparing ------------------------------------------------------------------------------------------------- */

void width_compare_bits(const struct width_shape *shape, const struct width_result *a, const struct width_result *b,
                        const char *with)
{
    CHECK_THAT(memcmp(a->losses, b->losses, sizeof a->losses) == 0, "%s, %s: other losses: %.17g, %.17g", shape->name,
               with, a->losses[0].sum, b->losses[0].sum);
    for (int i = 0; i < tutti_model_tensors(a->model); i++) {
        const tutti_tensor *tensor = tutti_model_tensor(a->model, i);
        const size_t bytes = width_count(tensor) * sizeof(float);
        CHECK_THAT(memcmp(a->values[i], b->values[i], bytes) == 0, "%s, %s: other values of %s", shape->name, with,
                   tensor->name);
        CHECK_THAT(memcmp(a->gradients[i], b->gradients[i], bytes) == 0, "%s, %s: another gradient of %s", shape->name,
                   with, tensor->name);
    }
}

void width_compare_nearly(const struct width_shape *shape, const struct width_result *a, const struct width_result *b)
{
    for (int g = 0; g < WIDTH_GRAINS; g++)
        CHECK_THAT(fabs(a->losses[g].sum - b->losses[g].sum) <= 1e-5 * fabs(b->losses[g].sum) &&
                       a->losses[g].count == b->losses[g].count,
                   "%s: a loss of %g, in one grain %g", shape->name, a->losses[g].sum, b->losses[g].sum);
    for (int i = 0; i < tutti_model_tensors(a->model); i++) {
        const tutti_tensor *tensor = tutti_model_tensor(a->model, i);
        double worst = 0, largest = 1e-6;
        for (size_t k = 0; k < width_count(tensor); k++) {
            worst = fmax(worst, fabs((double)(a->gradients[i][k] - b->gradients[i][k])));
            largest = fmax(largest, fabs((double)b->gradients[i][k]));
        }
        CHECK_THAT(worst <= 1e-5 * largest, "%s: the gradient of %s is off by %g of %g", shape->name, tensor->name,
                   worst, largest);
        CHECK_THAT(memcmp(a->values[i], b->values[i], width_count(tensor) * sizeof(float)) == 0,
                   "%s: other first values of %s", shape->name, tensor->name);
    }
}
