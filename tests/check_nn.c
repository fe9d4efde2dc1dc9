/* SPDX-License-Identifier: Apache-2.0 */
#include "check_nn.h"

#include <stdlib.h>

void nn_need_blas(void)
{
    tutti_error error;
    if (tutti_blas_load(&error) == TUTTI_OK) return;
    printf("skipped: %s\n", error.text);
    exit(77);
}

uint64_t nn_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

double nn_uniform(uint64_t *state)
{
    return (double)(nn_random(state) >> 11) / 4503599627370496.0 - 1.0;
}

static void *array(int64_t count, size_t bytes)
{
    void *memory = calloc((size_t)count + 1, bytes);
    if (memory == NULL) abort();
    return memory;
}

tutti_batch nn_tokens(int64_t samples, int64_t context, int32_t vocabulary, uint64_t seed)
{
    int32_t *tokens = array(samples * context, sizeof *tokens), *targets = array(samples * context, sizeof *targets);
    for (int64_t i = 0; i < samples * context; i++) tokens[i] = (int32_t)(nn_random(&seed) % (uint64_t)vocabulary);
    for (int64_t i = 0; i < samples * context; i++) targets[i] = (int32_t)(nn_random(&seed) % (uint64_t)vocabulary);
    return (tutti_batch){
        .struct_size = sizeof(tutti_batch), .samples = samples, .tokens = tokens, .targets = targets, .seed = seed};
}

tutti_batch nn_values(int64_t samples, int64_t inputs, int64_t outputs, uint64_t seed)
{
    float *in = array(samples * inputs, sizeof *in), *out = array(samples * outputs, sizeof *out);
    int32_t *targets = array(samples, sizeof *targets);
    for (int64_t i = 0; i < samples * inputs; i++) in[i] = (float)nn_uniform(&seed);
    for (int64_t i = 0; i < samples * outputs; i++) out[i] = (float)nn_uniform(&seed);
    for (int64_t i = 0; i < samples; i++) targets[i] = (int32_t)(nn_random(&seed) % (uint64_t)outputs);
    return (tutti_batch){.struct_size = sizeof(tutti_batch),
                         .samples = samples,
                         .inputs = in,
                         .target_values = out,
                         .targets = targets,
                         .seed = seed};
}

void nn_batch_free(tutti_batch *batch)
{
    free((void *)(uintptr_t)batch->tokens);
    free((void *)(uintptr_t)batch->targets);
    free((void *)(uintptr_t)batch->inputs);
    free((void *)(uintptr_t)batch->target_values);
}

static tutti_model *bound(tutti_model *model, tutti_status status, uint64_t seed)
{
    if (status == TUTTI_OK) status = tutti_model_bind(model, NULL, NULL);
    if (status == TUTTI_OK) status = tutti_model_init(model, seed);
    if (status == TUTTI_OK) return model;
    tutti_model_explain(model, stdout);
    exit(1);
}

tutti_model *nn_gpt(const tutti_gpt *gpt, uint64_t seed)
{
    tutti_model *model;
    tutti_status status = tutti_gpt_create(gpt, &model);
    return bound(model, status, seed);
}

tutti_model *nn_mlp(const tutti_mlp *mlp, uint64_t seed)
{
    tutti_model *model;
    tutti_status status = tutti_mlp_create(mlp, &model);
    return bound(model, status, seed);
}

tutti_pass *nn_pass(tutti_model *model, const tutti_pass_options *options)
{
    tutti_pass *pass;
    tutti_pass_options sized = *options;
    sized.struct_size = sizeof sized;
    if (tutti_pass_create(model, &sized, &pass) == TUTTI_OK) return pass;
    tutti_model_explain(model, stdout);
    exit(1);
}

tutti_loss nn_step(tutti_pass *pass, const tutti_batch *batch, const tutti_backward *how)
{
    tutti_loss losses[256] = {{0}}, total = {0};
    CHECK(tutti_pass_forward(pass, batch, losses) == TUTTI_OK);
    tutti_backward sized = how == NULL ? (tutti_backward){0} : *how;
    sized.struct_size = sizeof sized;
    CHECK(how == NULL || tutti_pass_backward(pass, &sized) == TUTTI_OK);
    int count = batch->grain_bounds == NULL ? 1 : batch->grains;
    for (int i = 0; i < count; i++) {
        total.sum += losses[i].sum;
        total.count += losses[i].count;
    }
    return total;
}
