/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_TRAIN_NORM_H
#define TTI_TRAIN_NORM_H

#include "train/tree.h"

#include <tutti/train.h>

/* Computes the sum of squares of every block of the parameters' gradients, in order. Ranks of the comm, which have the
 * same gradients, share the work, on the threads of a pool; NULL: on this thread. The norm is the root of their sum in
 * the tree. */
struct tti_pool;
tutti_status tti_gradient_block_sums(tutti_comm *comm, struct tti_pool *pool, const tutti_parameter *parameters,
                                     size_t count, double *sums);
/* Computes the same on this rank alone. */
void tti_block_sums(struct tti_pool *pool, const tutti_parameter *parameters, size_t count, double *sums);

/* Computes the norm of a model that the ranks of `comm` share, from the sums of squares of the blocks of this rank's
 * list. `owners`: for each tensor the rank along the pipe; NULL: there is no pipe. The ranks of one stage, which share
 * its width, have consecutive numbers. Collective over the comm; NULL: this rank has all of the model. */
tutti_status tti_shared_norm(const tutti_model *model, tutti_comm *comm, const int *owners, const double *sums,
                             size_t blocks, double *norm);

#endif
