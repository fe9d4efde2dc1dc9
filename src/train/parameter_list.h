/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of parameters, as callers give them.
 */
#ifndef TTI_TRAIN_PARAMETER_LIST_H
#define TTI_TRAIN_PARAMETER_LIST_H

#include <tutti/train.h>

/* Checks the list, and says what is missing or too large in it; counts the elements of all parameters. */
tutti_status tti_list_check(const tutti_parameter *parameters, size_t count, size_t *elements, tutti_error *error);
/* The same for lists whose values, or gradients, need not be there. */
struct tti_list_needs {
    bool values, gradients;
};
tutti_status tti_list_check_needs(const tutti_parameter *parameters, size_t count, struct tti_list_needs needs,
                                  size_t *elements, tutti_error *error);
/* Does what tutti_model_list does, with values and gradients in other memory; NULL: in none. */
void tti_model_list(const tutti_model *model, float *values, float *gradients, tutti_parameter *parameters);

#endif
