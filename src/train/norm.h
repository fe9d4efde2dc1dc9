/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_TRAIN_NORM_H
#define TTI_TRAIN_NORM_H

#include "train/tree.h"

#include <tutti/train.h>

/* tutti_gradient_norm on the threads of a pool; NULL: on this one. */
struct tti_pool;
tutti_status tti_gradient_norm(tutti_comm *comm, struct tti_pool *pool, const tutti_parameter *parameters, size_t count,
                               double *norm);
/* The sum of squares of every block of the parameters' gradients, in order. */
void tti_block_sums(struct tti_pool *pool, const tutti_parameter *parameters, size_t count, double *sums);

#endif
