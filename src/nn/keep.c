/* SPDX-License-Identifier: Apache-2.0
 *
 * Models whose layers are on several ranks: the places where they may be cut, and the tensors that are on this rank.
 */
#include "nn/model.h"

#include "base/alloc.h"

bool tutti_model_cut(const tutti_model *model, int layer)
{
    if (layer <= 0 || layer >= model->layer_count) return false;
    for (int i = layer; i < model->layer_count; i++) /* a residual that ends at i began before it */
        if (model->layers[i]->add_from >= 0 && model->layers[i]->add_from < layer) return false;
    return true;
}

static bool is_kept(const struct tti_layers *ranges, int count, int layer)
{
    for (int i = 0; i < count; i++)
        if (layer >= ranges[i].lo && layer < ranges[i].hi) return true;
    return false;
}

/* Returns true if a layer on this rank shares the tensor. */
static bool is_shared(const tutti_model *model, const struct tti_layers *ranges, int count, int tensor)
{
    for (int i = 0; i < model->layer_count; i++)
        if (model->layers[i]->shared_with >= 0 && model->layers[i]->tensors[0] == tensor && is_kept(ranges, count, i))
            return true;
    return false;
}

/* Gives the tensors of this rank's layers, or the copies, their places from `used` on; returns the end of them. */
static size_t lay_out(tutti_model *model, const struct tti_layers *ranges, int count, bool copies, size_t used)
{
    for (int i = 0; i < model->tensor_count; i++) {
        bool own = is_kept(ranges, count, model->tensors[i].layer);
        if (copies ? own || !is_shared(model, ranges, count, i) : !own) continue;
        model->tensors[i].offset = used;
        used += model->rooms[i];
    }
    return used;
}

static void keep_states(tutti_model *model, const struct tti_layers *ranges, int count)
{
    size_t used = 0;
    for (int i = 0; i < model->state_count; i++) {
        tutti_tensor *state = &model->states[i];
        const size_t next = i + 1 < model->state_count ? state[1].offset : model->state_elements;
        const size_t room = next - state->offset;
        const bool kept = is_kept(ranges, count, state->layer);
        state->offset = kept ? used : TTI_ELSEWHERE;
        used += kept ? room : 0;
    }
    model->state_elements = used;
}

tutti_status tti_model_keep(tutti_model *model, const struct tti_layers *ranges, int count)
{
    if (model->error.status != TUTTI_OK) return model->error.status;
    size_t *rooms = tti_calloc((size_t)model->tensor_count + 1, sizeof *rooms);
    if (rooms == NULL) return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for a list of tensors");
    for (int i = 0; i < model->tensor_count; i++) rooms[i] = tti_tensor_room(model, i);
    for (int i = 0; i < model->tensor_count; i++) model->tensors[i].offset = TTI_ELSEWHERE;
    model->rooms = rooms;
    model->elements = lay_out(model, ranges, count, false, 0);
    model->value_elements = lay_out(model, ranges, count, true, model->elements);
    keep_states(model, ranges, count);
    return TUTTI_OK;
}

bool tti_tensor_is_own(const tutti_model *model, int tensor)
{
    return model->tensors[tensor].offset < model->elements || model->rooms == NULL;
}

size_t tti_tensor_room(const tutti_model *model, int tensor)
{
    if (model->rooms != NULL) return model->rooms[tensor];
    bool last = tensor + 1 == model->tensor_count;
    return (last ? model->elements : model->tensors[tensor + 1].offset) - model->tensors[tensor].offset;
}

size_t tti_layer_tied_offset(const tutti_model *model, const tutti_layer *layer)
{
    size_t offset = 0;
    for (int i = 0; i < layer->index; i++)
        if (model->layers[i]->shared_with >= 0) offset += tti_tensor_room(model, model->layers[i]->tensors[0]);
    return offset;
}

size_t tutti_model_tied(const tutti_model *model)
{
    const tutti_layer *last = model->layers[model->layer_count - 1];
    size_t own = last->shared_with >= 0 ? tti_tensor_room(model, last->tensors[0]) : 0;
    return tti_layer_tied_offset(model, last) + own;
}
