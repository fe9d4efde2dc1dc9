/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of parameters, as callers give them.
 */
#ifndef TTI_TRAIN_LIST_H
#define TTI_TRAIN_LIST_H

#include <tutti/train.h>

/* What is missing or too large in the list; else how many elements all of it has. */
tutti_status tti_list_check(const tutti_parameter *parameters, size_t count, size_t *elements, tutti_error *error);

#endif
