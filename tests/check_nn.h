/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of models share.
 */
#ifndef TTI_TESTS_NN_H
#define TTI_TESTS_NN_H

#include "check.h"
#include <stdbool.h>
#include <tutti/train.h>

/* Ends the test as skipped where there is no OpenBLAS. */
void nn_need_blas(void);

/* A batch of tokens and their successors, or of inputs and targets, from a seed. Freed by nn_batch_free. */
tutti_batch nn_tokens(int64_t samples, int64_t context, int32_t vocabulary, uint64_t seed);
tutti_batch nn_values(int64_t samples, int64_t inputs, int64_t outputs, uint64_t seed);
void nn_batch_free(tutti_batch *batch);

uint64_t nn_random(uint64_t *state);
double nn_uniform(uint64_t *state); /* in [-1, 1) */

/* A bound model with first values; the program ends with the reason where it cannot be had. */
tutti_model *nn_gpt(const tutti_gpt *gpt, uint64_t seed);
tutti_model *nn_mlp(const tutti_mlp *mlp, uint64_t seed);
tutti_pass *nn_pass(tutti_model *model, const tutti_pass_options *options);

/* One forward and one backward pass; returns the loss of the whole batch. */
tutti_loss nn_step(tutti_pass *pass, const tutti_batch *batch, const tutti_backward *how);

#endif
