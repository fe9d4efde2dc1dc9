/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial values of tensors: random numbers keyed by seed and tensor name, counted by index.
 */
#include "nn/random_key.h"

#include "base/hash.h"
#include "nn/nn_kernels.h"
#include "nn/width.h"
#include <string.h>

void tti_random_key(uint64_t seed, const char *name, uint32_t key[2])
{
    uint64_t hash = tti_stir(tti_hash_bytes(TTI_HASH_START, name, strlen(name)) ^ seed * UINT64_C(0x9e3779b97f4a7c15));
    key[0] = (uint32_t)hash;
    key[1] = (uint32_t)(hash >> 32);
}

struct first_values {
    const tutti_tensor *tensor;
    uint32_t key[2];
    size_t from, to; /* the elements to make */
    float *values;   /* the values of these */
};

/* Initialises one run. Random numbers are counted by their index in the whole tensor. */
static void init_run(void *context, size_t local, size_t global, size_t count)
{
    const struct first_values *first = context;
    const struct tti_nn_kernels *kernels = tti_nn_kernels();
    const float scale = (float)first->tensor->init_scale;
    const size_t end = local + count < first->to ? local + count : first->to;
    const size_t begin = local > first->from ? local : first->from;
    if (begin >= end) return;
    float *values = first->values + (begin - first->from);
    global += begin - local;
    count = end - begin;
    switch (first->tensor->init) {
    case TUTTI_INIT_ZERO: memset(values, 0, count * sizeof *values); break;
    case TUTTI_INIT_ONE:
        for (size_t i = 0; i < count; i++) values[i] = 1;
        break;
    case TUTTI_INIT_NORMAL: kernels->normal(values, count, first->key, global, scale); break;
    case TUTTI_INIT_UNIFORM: kernels->uniform(values, count, first->key, global, scale); break;
    }
}

void tti_tensor_init(const tutti_model *model, const tutti_tensor *tensor, uint64_t seed, size_t from, size_t count,
                     float *values)
{
    struct first_values first = {.tensor = tensor, .from = from, .to = from + count, .values = values};
    tti_random_key(seed, tensor->name, first.key);
    for (int g = 0; g < tti_piece_count(model, tensor); g++) tti_piece_runs(model, tensor, g, init_run, &first);
}

tutti_status tutti_model_init(tutti_model *model, uint64_t seed)
{
    if (model->error.status != TUTTI_OK) return model->error.status;
    if (model->values == NULL)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "parameters have no memory yet: call tutti_model_bind");
    for (int i = 0; i < model->tensor_count; i++) {
        const tutti_tensor *tensor = &model->tensors[i];
        if (tensor->offset == TTI_ELSEWHERE) continue;
        const int last = tti_piece_count(model, tensor) - 1; /* there is padding between width grains */
        const size_t count = tti_piece_offset(model, tensor, last) + tti_piece_elements(model, tensor, last);
        tti_tensor_init(model, tensor, seed, 0, count, model->values + tensor->offset);
    }
    if (model->state != NULL) tti_model_init_state(model);
    return TUTTI_OK;
}
