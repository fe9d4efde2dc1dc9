/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that depend on the whole batch, in a trainer: ranks meet in each of its passes, so each rank makes one pass,
 * with all of its part of the batch. Their states change in forward: a step that is not made restores them.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "nn/width.h"
#include "train/trainer.h"
#include "train/weights.h"
#include <assert.h>
#include <string.h>

bool tti_trainer_collects(const struct tutti_trainer *t)
{
    return tti_model_collects(t->model);
}

bool tti_trainer_batch_lost(const struct tutti_trainer *t)
{
    return tti_trainer_collects(t) && tutti_comm_error(t->mesh.batch) != NULL;
}

/* ---- What does not go with them -------------------------------------------------------------------------------- */

tutti_status tti_trainer_check_batch_norm(const tutti_train_options *o, tutti_error *error)
{
    if (!o->batch_norm) return TUTTI_OK;
    if (strcmp(o->model, "mlp") != 0)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "batch_norm: it is for the mlp; a %s has layer norms",
                             o->model);
    if (o->layers == 0)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "batch_norm: it stands behind hidden layers, and this mlp has 0 of them");
    if (o->batch < 2)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "batch_norm: a batch of 1 sample has no variance; give 2 or more");
    if (o->accumulate > 1)
        return tti_error_set(
            error, TUTTI_ERR_OPTION, 0,
            "batch_norm: it is over the whole batch, so a rank makes one pass over its part, not %lld: "
            "leave accumulate out",
            (long long)o->accumulate);
    return TUTTI_OK;
}

tutti_status tti_trainer_check_passes(const struct tutti_trainer *t, tutti_error *error)
{
    const int micros = t->pipeline == NULL ? 1 : t->pipeline->about.micros;
    if (!tti_trainer_collects(t)) return TUTTI_OK;
    assert(t->pipeline != NULL || t->passes == 1); /* all of a rank's grains are one pass */
    if (micros == 1) return TUTTI_OK;
    return tti_error_set(
        error, TUTTI_ERR_OPTION, 0,
        "batch_norm: it is over the whole batch, and pipe=%d works on %d micro-batches: give micro 1, or "
        "share the work by data or tensor",
        t->mesh.sizes[TTI_MESH_PIPE], micros);
}

void tti_trainer_share_batch(const struct tutti_trainer *t, tutti_pass_options *options)
{
    if (!tti_trainer_collects(t)) return;
    options->batch = t->mesh.batch; /* NULL if it is only planned */
    if (!t->options.fast || tti_trainer_is_planned(t)) options->batch_grains = (int)t->cells;
}

/* ---- States ---------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct tutti_trainer *t)
{
    return t->model->state_elements * sizeof *t->state_before;
}

tutti_status tti_trainer_make_state(struct tutti_trainer *t, tutti_error *error)
{
    if (bytes_of(t) == 0 || tti_trainer_is_planned(t)) return TUTTI_OK;
    t->state_before = tti_calloc(1, bytes_of(t));
    if (t->state_before == NULL || tti_model_make_state(t->model) != TUTTI_OK)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the states of layers");
    return TUTTI_OK;
}

void tti_trainer_keep_state(const struct tutti_trainer *t)
{
    if (t->state_before != NULL) memcpy(t->state_before, t->model->state, bytes_of(t));
}

void tti_trainer_restore_state(const struct tutti_trainer *t)
{
    if (t->state_before != NULL) memcpy(t->model->state, t->state_before, bytes_of(t));
}

/* Returns the hash of a state; if it is cut, each grain has a hash of its own, keyed by its number in the model. */
static uint64_t hash_of(const struct tutti_trainer *t, const tutti_tensor *state)
{
    const tutti_model *model = t->model;
    uint64_t hash = 0;
    for (int g = 0; g < tti_piece_count(model, state); g++) {
        const tutti_parameter piece = {.name = state->name,
                                       .value = model->state + state->offset + tti_piece_offset(model, state, g),
                                       .count = tti_piece_elements(model, state, g)};
        const size_t number = tti_tensor_is_cut(state) ? (size_t)(model->width.first + g) : 0;
        if (piece.count > 0) hash ^= tti_part_hash(&piece, 0, number * TTI_GRAIN_PLACES);
    }
    return hash;
}

uint64_t tti_trainer_state_hash(const struct tutti_trainer *t, bool uncut)
{
    const tutti_model *model = t->model;
    uint64_t hash = 0;
    for (int i = 0; i < model->state_count; i++) {
        const tutti_tensor *state = &model->states[i];
        const bool cut = tti_tensor_is_cut(state);
        if (state->offset == TTI_ELSEWHERE || (uncut ? cut : !cut && model->width.rank > 0)) continue;
        hash ^= hash_of(t, state);
    }
    return hash;
}
