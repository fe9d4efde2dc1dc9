/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of parameters, as callers give them.
 */
#ifndef TTI_TRAIN_PARAMETER_LIST_H
#define TTI_TRAIN_PARAMETER_LIST_H

#include <tutti/train.h>

/* What is missing or too large in the list; else how many elements all of it has. */
tutti_status tti_list_check(const tutti_parameter *parameters, size_t count, size_t *elements, tutti_error *error);
/* The same where the values, or the gradients, need not be there. */
struct tti_list_needs {
    bool values, gradients;
};
tutti_status tti_list_check_needs(const tutti_parameter *parameters, size_t count, struct tti_list_needs needs,
                                  size_t *elements, tutti_error *error);
/* tutti_model_list with values and gradients elsewhere; NULL: nowhere. */
void tti_model_list(const tutti_model *model, float *values, float *gradients, tutti_parameter *parameters);

#endif
