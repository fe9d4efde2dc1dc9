/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer_width.h"

#include "base/status.h"
#include "nn/width.h"
#include "train/ddp.h"
#include "train/trainer.h"
#include "train/weights.h"

bool tti_trainer_is_cut(const struct tutti_trainer *t)
{
    return tutti_model_width_grains(t->model) > 1;
}

bool tti_trainer_shares_width(const struct tutti_trainer *t)
{
    return t->mesh.sizes[TTI_MESH_TENSOR] > 1;
}

bool tti_trainer_width_lost(const struct tutti_trainer *t)
{
    return tti_trainer_shares_width(t) && tutti_comm_error(t->mesh.along[TTI_MESH_TENSOR]) != NULL;
}

/* With fast there are as few grains as possible: bits depend on the ranks anyway. */
static int wanted_grains(const struct tutti_trainer *t)
{
    return t->options.fast && t->options.width_grains == 0 ? t->mesh.sizes[TTI_MESH_TENSOR]
                                                           : (int)t->options.width_grains;
}

tutti_status tti_trainer_cut(const struct tutti_trainer *t, tutti_model *model, tutti_error *error)
{
    const int grains = wanted_grains(t);
    if (grains == 1 && !tti_trainer_shares_width(t)) return TUTTI_OK;
    const struct tti_width who = {.ranks = t->mesh.sizes[TTI_MESH_TENSOR],
                                  .rank = t->mesh.at[TTI_MESH_TENSOR],
                                  .sequence = t->options.sequence,
                                  .comm = t->mesh.sizes[TTI_MESH_TENSOR] > 1 ? t->mesh.along[TTI_MESH_TENSOR] : NULL};
    tutti_status status = tti_model_place(model, grains, &who);
    if (status != TUTTI_OK) *error = *tutti_model_error(model);
    return status;
}

void tti_trainer_list_layers(const tutti_model *model, int *layers)
{
    for (int i = 0; i < tutti_model_tensors(model); i++)
        for (int g = 0; tti_tensor_is_own(model, i) && g < tti_piece_count(model, &model->tensors[i]); g++)
            *layers++ = model->tensors[i].layer;
}

/* ---- Hashes ---------------------------------------------------------------------------------------------------- */
/* Hashes are of blocks, keyed by the tensor, the number of the width grain in the model, and the place in the grain: so
 * a hash does not depend on the ranks' parts. */

enum counted { ALL_ONCE, UNCUT };

/* Returns the hash of a part of one parameter of the list, which begins at element `at` of the allocation. */
static uint64_t part_hash(const struct tutti_trainer *t, const tutti_parameter *part, size_t at, enum counted counted)
{
    const tutti_model *model = t->model;
    int index = tutti_model_tensors(model) - 1, grain = 0;
    while (model->tensors[index].offset > at) index--;
    const tutti_tensor *tensor = &model->tensors[index];
    const bool cut = tti_tensor_is_cut(tensor);
    if (counted == UNCUT ? cut : !cut && model->width.rank > 0) return 0;
    size_t first = at - tensor->offset;
    while (cut && grain + 1 < tti_piece_count(model, tensor) && tti_piece_offset(model, tensor, grain + 1) <= first)
        grain++;
    first -= tti_piece_offset(model, tensor, grain);
    const size_t number = cut ? (size_t)(model->width.first + grain) : 0;
    return tti_part_hash(part, (size_t)index, number * TTI_GRAIN_PLACES + first);
}

/* Computes the hash on this rank. With zero 3 and bf16 each rank has its own part; with bf16 that is the masters. */
static tutti_status hash_here(const struct tutti_trainer *t, enum counted counted, uint64_t *hash)
{
    const bool owned = tti_trainer_passing_values(t);
    const tutti_parameter *parts = t->list;
    const size_t count = owned ? tutti_ddp_owned(t->ddp, &parts) : t->list_count;
    *hash = 0;
    for (size_t p = 0; p < count; p++) {
        const size_t at = owned ? tutti_ddp_owned_first(t->ddp, p) : t->ddp->starts[p];
        if (parts[p].count > 0) *hash ^= part_hash(t, &parts[p], at, counted);
    }
    tutti_status status = TUTTI_OK;
    if (owned && t->options.zero > 0)
        status = tutti_all_reduce(tti_ddp_inside_group(t->ddp, "hash"), hash, hash, 1, TUTTI_U64, TUTTI_XOR);
    *hash ^= tti_trainer_state_hash(t, counted == UNCUT);
    return status;
}

static tutti_comm *width_comm(const struct tutti_trainer *t, const char *who, const char *what)
{
    return tti_inside(tutti_at(t->mesh.along[TTI_MESH_TENSOR], t->here.file, t->here.line), who, what);
}

uint64_t tutti_trainer_hash(const tutti_trainer *t)
{
    if (t->server != NULL && (tutti_trainer_serves(t) || tti_trainer_server_sync(t) != TUTTI_OK)) return 0;
    return tti_trainer_hash(t);
}

uint64_t tti_trainer_hash(const struct tutti_trainer *t)
{
    uint64_t hash = 0;
    tutti_comm *model = t->mesh.model;
    if (t->unmade) return 0;
    tutti_status status = hash_here(t, ALL_ONCE, &hash);
    if (status == TUTTI_OK && model != NULL && tutti_size(model) > 1)
        status = tutti_all_reduce(tti_inside(tutti_at(model, t->here.file, t->here.line), "trainer", "hash"), &hash,
                                  &hash, 1, TUTTI_U64, TUTTI_XOR);
    return status == TUTTI_OK ? hash : 0;
}

tutti_status tti_trainer_compare_uncut(const struct tutti_trainer *t, int *odd)
{
    if (!tti_trainer_shares_width(t)) return TUTTI_OK;
    uint64_t mine = 0, first = 0;
    TTI_TRY(hash_here(t, UNCUT, &mine));
    TTI_TRY(tutti_broadcast(width_comm(t, "trainer", "hash"), &mine, &first, 1, TUTTI_U64, 0));
    const int size = tutti_size(t->comm);
    int64_t other = mine == first ? size : tutti_rank(t->comm), lowest = size;
    TTI_TRY(
        tutti_all_reduce(tti_inside(tti_trainer_comm(t), "trainer", "hash"), &other, &lowest, 1, TUTTI_I64, TUTTI_MIN));
    if (lowest == size) return TUTTI_OK;
    *odd = (int)lowest;
    return TUTTI_ERR_MISMATCH;
}
