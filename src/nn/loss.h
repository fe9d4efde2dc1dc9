/* SPDX-License-Identifier: Apache-2.0
 *
 * What losses over classes share.
 */
#ifndef TTI_NN_LOSS_H
#define TTI_NN_LOSS_H

#include "nn/model.h"

/* The values that a row keeps beside its logits: the logarithm of the sum of their exponentials, and its weight. */
enum { TTI_KEPT_SHIFT, TTI_KEPT_WEIGHT, TTI_KEPT };

/* Adds a row's loss to the call's. `logit`: the target's logit; it does not count if there is no target. */
void tti_row_loss(tutti_call *call, int64_t row, double logit, double shift, const float *class_weights, float *kept);

#endif
