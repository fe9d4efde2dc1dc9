/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's tensors as the list that optimizers, ddp and hashes work on.
 */
#include "train/parameter_list.h"

#include "base/status.h"
#include "nn/width.h"

tutti_status tti_list_check_needs(const tutti_parameter *parameters, size_t count, struct tti_list_needs needs,
                                  size_t *elements, tutti_error *error)
{
    enum { MOST_SHIFT = 8 }; /* room for later multiplications */
    *elements = 0;
    if (parameters == NULL && count > 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the list of %zu parameters is NULL", count);
    for (size_t i = 0; i < count; i++) {
        const tutti_parameter *p = &parameters[i];
        const char *name = p->name == NULL ? "?" : p->name;
        const bool no_value = needs.values && p->value == NULL;
        if (p->count > 0 && (no_value || (needs.gradients && p->gradient == NULL)))
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "parameter %zu, \"%.64s\": its %s is NULL", i, name,
                                 no_value ? "value" : "gradient");
        if (p->count > (SIZE_MAX >> MOST_SHIFT) - *elements)
            return tti_error_set(error, TUTTI_ERR_COUNT, 0, "parameter %zu, \"%.64s\": %zu elements are too many", i,
                                 name, p->count);
        *elements += p->count;
    }
    return TUTTI_OK;
}

tutti_status tti_list_check(const tutti_parameter *parameters, size_t count, size_t *elements, tutti_error *error)
{
    return tti_list_check_needs(parameters, count, (struct tti_list_needs){true, true}, elements, error);
}

size_t tutti_model_list_count(const tutti_model *model)
{
    size_t count = 0;
    for (int i = 0; i < tutti_model_tensors(model); i++)
        if (tti_tensor_is_own(model, i)) count += (size_t)tti_piece_count(model, &model->tensors[i]);
    return count;
}

void tti_model_list(const tutti_model *model, float *values, float *gradients, tutti_parameter *parameters)
{
    for (int i = 0; i < tutti_model_tensors(model); i++) {
        const tutti_tensor *tensor = &model->tensors[i];
        for (int g = 0; tti_tensor_is_own(model, i) && g < tti_piece_count(model, tensor); g++) {
            const size_t offset = tensor->offset + tti_piece_offset(model, tensor, g);
            *parameters++ = (tutti_parameter){.name = tensor->name,
                                              .value = values == NULL ? NULL : values + offset,
                                              .gradient = gradients == NULL ? NULL : gradients + offset,
                                              .count = tti_piece_room(model, tensor, g),
                                              .decays = tensor->dimensions > 1};
        }
    }
}

tutti_status tutti_model_list(tutti_model *model, tutti_parameter *parameters)
{
    float *values = tutti_model_values(model), *gradients = tutti_model_gradients(model);
    if (values == NULL || gradients == NULL) return TUTTI_ERR_ARGUMENT;
    tti_model_list(model, values, gradients, parameters);
    return TUTTI_OK;
}
