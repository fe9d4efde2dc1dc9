/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that share a model's width find out together about all of it.
 *
 * Invariant: the order is that of tensors, then of width grains, whoever has them. Blocks (blocks.h) lie within one width
 * grain, so their sums are the same on every rank, and so is the tree over them. Tensors that are not cut count once.
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

/* Blocks of a tensor's grain, counted over all grains. */
static size_t blocks_of(const tutti_model *model, const tutti_tensor *tensor, int grain)
{
    return tti_blocks_of(tti_piece_room(model, tensor, grain - model->width.first));
}

static int grains_of(const tutti_model *model, const tutti_tensor *tensor)
{
    return tti_tensor_is_cut(tensor) ? model->width.grains : 1;
}

/* How many blocks each rank has, and where its sums begin when they are gathered; returns how many sums that are. */
static size_t count_blocks(const tutti_model *model, size_t *counts, size_t *starts)
{
    const struct tti_width *width = &model->width;
    size_t all = 0;
    for (int r = 0; r < width->ranks; r++) {
        counts[r] = 0;
        for (int i = 0; i < model->tensor_count; i++) {
            const tutti_tensor *tensor = &model->tensors[i];
            const bool cut = tti_tensor_is_cut(tensor);
            const int from = cut ? r * width->here : 0, to = cut ? from + width->here : 1;
            for (int g = from; g < to; g++) counts[r] += blocks_of(model, tensor, g);
        }
        starts[r] = all;
        all += counts[r];
    }
    return all;
}

/* From the order of ranks into that of tensors and grains. Returns how many there are. `next` is changed. */
static size_t put_in_order(const tutti_model *model, const double *gathered, size_t *next, double *ordered)
{
    const struct tti_width *width = &model->width;
    size_t made = 0;
    for (int i = 0; i < model->tensor_count; i++)
        for (int g = 0; g < grains_of(model, &model->tensors[i]); g++) {
            const bool cut = tti_tensor_is_cut(&model->tensors[i]);
            const size_t count = blocks_of(model, &model->tensors[i], g);
            const int rank = cut ? g / width->here : 0;
            memcpy(ordered + made, gathered + next[rank], count * sizeof *ordered);
            made += count;
            for (int r = 0; r < width->ranks; r++)
                if (!cut || r == rank) next[r] += count;
        }
    return made;
}

/* `counts` and `starts` have a place for each rank. */
static tutti_status norm_of(tutti_model *model, const double *mine, size_t *counts, size_t *starts, double *norm)
{
    const struct tti_width *width = &model->width;
    const size_t all = count_blocks(model, counts, starts);
    double *sums = tti_calloc(2 * all + 1, sizeof *sums);
    if (sums == NULL) return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for a norm");
    memcpy(sums + starts[width->rank], mine, counts[width->rank] * sizeof *sums);
    tutti_status status = TUTTI_OK;
    if (width->comm != NULL)
        status = met(model, tutti_all_gather_v(tti_inside(width->comm, "model", "norm"), sums + starts[width->rank],
                                               sums, counts, NULL, TUTTI_F64));
    if (status == TUTTI_OK) *norm = sqrt(tti_tree_sum(sums + all, put_in_order(model, sums, starts, sums + all)));
    tti_free(sums);
    return status;
}

tutti_status tti_model_norm_of(tutti_model *model, const double *sums, double *norm)
{
    const size_t ranks = (size_t)model->width.ranks;
    size_t *counts = tti_calloc(2 * ranks, sizeof *counts);
    if (counts == NULL) return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for a norm");
    tutti_status status = norm_of(model, sums, counts, counts + ranks, norm);
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
        status = tti_model_norm_of(model, sums, norm);
    }
    tti_free(sums);
    tti_free(list);
    return status;
}

/* XOR of the hashes of all grains of all tensors, each with a key of its own. */
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
