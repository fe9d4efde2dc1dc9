/* SPDX-License-Identifier: Apache-2.0
 *
 * States of layers: numbers that a model keeps and saves, and does not train. All ranks that have the layer have all of
 * its states, whatever else is shared out, and change them in the same way.
 */
#include "nn/model.h"

#include "base/alloc.h"
#include "nn/width.h"

tutti_tensor *tti_layer_part(const tutti_model *model, const tutti_layer *layer, int n)
{
    if (n < 0 || n >= layer->tensor_count + layer->state_count) return NULL;
    if (n < layer->tensor_count) return &model->tensors[layer->tensors[n]];
    return &model->states[layer->states[n - layer->tensor_count]];
}

bool tti_model_collects(const tutti_model *model)
{
    for (int i = 0; i < model->layer_count; i++)
        if (model->layers[i]->ops->collect != NULL) return true;
    return false;
}

void tti_model_init_state(tutti_model *model)
{
    for (int i = 0; i < model->state_count; i++) {
        const tutti_tensor *state = &model->states[i];
        if (state->offset == TTI_ELSEWHERE) continue;
        const int last = tti_piece_count(model, state) - 1;
        const size_t count = tti_piece_offset(model, state, last) + tti_piece_elements(model, state, last);
        tti_tensor_init(model, state, 0, 0, count, model->state + state->offset);
    }
}

tutti_status tti_model_make_state(tutti_model *model)
{
    if (model->state != NULL || model->state_elements == 0) return TUTTI_OK;
    model->state = tti_calloc_aligned(model->state_elements * sizeof *model->state);
    if (model->state == NULL)
        return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for %zu numbers of states",
                                model->state_elements);
    tti_model_init_state(model);
    return TUTTI_OK;
}

int tutti_model_states(const tutti_model *model)
{
    return model->state_count;
}

const tutti_tensor *tutti_model_state(tutti_model *model, int index, float **values)
{
    if (index < 0 || index >= model->state_count) return NULL;
    const tutti_tensor *state = &model->states[index];
    if (values == NULL) return state;
    const bool here = model->sealed && state->offset != TTI_ELSEWHERE && tti_model_make_state(model) == TUTTI_OK;
    *values = here ? model->state + state->offset : NULL;
    return state;
}
