/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's tensors as the list that optimizers, ddp and hashes work on.
 */
#include <tutti/train.h>

tutti_status tutti_model_list(tutti_model *model, tutti_parameter *parameters)
{
    float *values = tutti_model_values(model), *gradients = tutti_model_gradients(model);
    int count = tutti_model_tensors(model);
    if (values == NULL || gradients == NULL) return TUTTI_ERR_ARGUMENT;
    for (int i = 0; i < count; i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        size_t next = i + 1 < count ? tutti_model_tensor(model, i + 1)->offset : tutti_model_elements(model);
        parameters[i] = (tutti_parameter){.name = tensor->name,
                                          .value = values + tensor->offset,
                                          .gradient = gradients + tensor->offset,
                                          .count = next - tensor->offset,
                                          .decays = tensor->dimensions > 1};
    }
    return TUTTI_OK;
}
