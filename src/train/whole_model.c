/* SPDX-License-Identifier: Apache-2.0
 *
 * Results that ranks which share a model, by its layers or its width, find together for all of it.
 *
 * Invariant: the order is that of tensors, then of width grains, whichever ranks have them. Blocks (blocks.h) lie
 * within one width grain, so their sums are the same on every rank, and so is the tree over them. Tensors that are not
 * cut count once.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/api/inside.h"
#include "nn/width.h"
#include "train/blocks.h"
#include "train/file.h"
#include "train/norm.h"
#include <math.h>
#include <string.h>

static tutti_status met(tutti_model *model, tutti_status status)
{
    const tutti_error *why = status == TUTTI_OK ? NULL : tutti_comm_error(model->width.comm);
    if (why != NULL) model->error = *why;
    return status;
}

/* Returns the blocks of a tensor's grain, counted over all grains. */
static size_t blocks_of(const tutti_model *model, const tutti_tensor *tensor, int grain)
{
    return tti_blocks_of(tti_piece_room(model, tensor, grain - model->width.first));
}

static int grains_of(const tutti_model *model, const tutti_tensor *tensor)
{
    return tti_tensor_is_cut(tensor) ? model->width.grains : 1;
}

/* The ranks that share a model: by its layers, with `owners` of its tensors, and within these by its width. */
struct sharers {
    tutti_comm *comm;
    const int *owners; /* NULL: all layers are on every rank */
};

/* Returns the first rank that has a grain of a tensor, and how many have it. */
static int first_of(const tutti_model *model, const struct sharers *sharers, int tensor, int grain, int *copies)
{
    const bool cut = tti_tensor_is_cut(&model->tensors[tensor]);
    const int stage = sharers->owners == NULL ? 0 : sharers->owners[tensor];
    *copies = cut ? 1 : model->width.ranks;
    return stage * model->width.ranks + (cut ? grain / model->width.here : 0);
}

/* Counts each rank's sums, and adds them to `counts`. */
static void count_sums(const tutti_model *model, const struct sharers *sharers, size_t *counts)
{
    for (int i = 0; i < model->tensor_count; i++)
        for (int g = 0; g < grains_of(model, &model->tensors[i]); g++) {
            int copies;
            const int first = first_of(model, sharers, i, g, &copies);
            for (int r = first; r < first + copies; r++) counts[r] += blocks_of(model, &model->tensors[i], g);
        }
}

/* Moves sums from the order of ranks into that of tensors and grains; returns how many there are. `next` is where each
 * rank's begin. */
static size_t put_in_order(const tutti_model *model, const struct sharers *sharers, const double *gathered,
                           size_t *next, double *ordered)
{
    size_t made = 0;
    for (int i = 0; i < model->tensor_count; i++)
        for (int g = 0; g < grains_of(model, &model->tensors[i]); g++) {
            int copies;
            const int first = first_of(model, sharers, i, g, &copies);
            const size_t blocks = blocks_of(model, &model->tensors[i], g);
            memcpy(ordered + made, gathered + next[first], blocks * sizeof *ordered);
            for (int r = first; r < first + copies; r++) next[r] += blocks;
            made += blocks;
        }
    return made;
}

/* Gathers the sums and computes the norm. `counts` and `next` have a place, which is 0, for each rank. */
static tutti_status gather_norm(const tutti_model *model, const struct sharers *sharers, const double *mine,
                                size_t *counts, size_t *next, double *norm)
{
    const int ranks = tutti_size(sharers->comm);
    count_sums(model, sharers, counts);
    for (int r = 1; r < ranks; r++) next[r] = next[r - 1] + counts[r - 1];
    const size_t all = next[ranks - 1] + counts[ranks - 1];
    double *sums = tti_calloc(2 * all + 1, sizeof *sums);
    if (sums == NULL) return TUTTI_ERR_MEMORY;
    tutti_status status = tutti_all_gather_v(tti_inside(sharers->comm, "model", "norm"), mine, sums, counts, NULL,
                                             TUTTI_F64);
    if (status == TUTTI_OK)
        *norm = sqrt(tti_tree_sum(sums + all, put_in_order(model, sharers, sums, next, sums + all)));
    tti_free(sums);
    return status;
}

tutti_status tti_shared_norm(const tutti_model *model, tutti_comm *comm, const int *owners, const double *sums,
                             size_t blocks, double *norm)
{
    const struct sharers sharers = {comm, owners};
    const size_t ranks = comm == NULL ? 1 : (size_t)tutti_size(comm);
    if (ranks == 1) { /* its list has the right order */
        *norm = sqrt(tti_tree_sum(sums, blocks));
        return TUTTI_OK;
    }
    size_t *counts = tti_calloc(2 * ranks, sizeof *counts);
    if (counts == NULL) return TUTTI_ERR_MEMORY;
    tutti_status status = gather_norm(model, &sharers, sums, counts, counts + ranks, norm);
    tti_free(counts);
    return status;
}

tutti_status tutti_model_norm(tutti_model *model, double *norm)
{
    if (model == NULL || norm == NULL) return TUTTI_ERR_ARGUMENT;
    const size_t count = tutti_model_list_count(model);
    tutti_parameter *list = tti_calloc(count + 1, sizeof *list);
    tutti_status status = list == NULL ? TUTTI_ERR_MEMORY : tutti_model_list(model, list);
    size_t blocks = 0;
    for (size_t i = 0; status == TUTTI_OK && i < count; i++) blocks += tti_blocks_of(list[i].count);
    double *sums = tti_calloc(blocks + 1, sizeof *sums);
    if (status == TUTTI_ERR_ARGUMENT)
        (void)tti_model_refuse(model, NULL, status, "a norm needs a model with memory");
    else if (list == NULL || sums == NULL)
        status = tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for a norm");
    if (status == TUTTI_OK) {
        tti_block_sums(NULL, list, count, sums);
        status = tti_shared_norm(model, model->width.comm, NULL, sums, blocks, norm);
        if (status == TUTTI_ERR_MEMORY) (void)tti_model_refuse(model, NULL, status, "no memory for a norm");
        if (model->width.comm != NULL) status = met(model, status);
    }
    tti_free(sums);
    tti_free(list);
    return status;
}

/* Returns the XOR of the hashes of all grains of all tensors, each with a key of its own. */
static uint64_t hash_here(const tutti_model *model)
{
    uint64_t hash = 0;
    for (int i = 0; i < model->tensor_count; i++) {
        const tutti_tensor *tensor = &model->tensors[i];
        if (!tti_tensor_is_cut(tensor) && model->width.rank > 0) continue;
        for (int g = 0; g < tti_piece_count(model, tensor); g++) {
            const uint64_t key = (uint64_t)i << 32 | (uint64_t)(model->width.first * tti_tensor_is_cut(tensor) + g);
            hash ^= tti_hash(model->values + tensor->offset + tti_piece_offset(model, tensor, g),
                             tti_piece_elements(model, tensor, g) * sizeof(float), key + 1);
        }
    }
    return hash;
}

tutti_status tutti_model_hash(tutti_model *model, uint64_t *hash)
{
    if (model == NULL || hash == NULL || model->values == NULL) return TUTTI_ERR_ARGUMENT;
    *hash = hash_here(model);
    if (model->width.comm == NULL) return TUTTI_OK;
    return met(model,
               tutti_all_reduce(tti_inside(model->width.comm, "model", "hash"), hash, hash, 1, TUTTI_U64, TUTTI_XOR));
}
