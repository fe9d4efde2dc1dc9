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

/* What a row of a grain has of a softmax over all classes: the highest logit, the sum of exponentials below it, and the
 * target's logit (loss_grains.c). A loss that is cut gathers so many floats per row and grain. */
enum { TTI_LOSS_HIGHEST, TTI_LOSS_SUM, TTI_LOSS_LOGIT, TTI_LOSS_GATHERED };
/* Returns where a row's part of one of this rank's grains is. */
float *tti_loss_part(const tutti_call *call, int64_t row, int grain);
/* Sets a grain's parts to those of no classes at all. */
void tti_loss_begin(tutti_call *call, int grain);
/* Merges all grains, and adds every row's loss. `kept`: the values that row 0 keeps, `stride` before those of row 1. */
void tti_loss_merge(tutti_call *call, const float *class_weights, float *kept, int64_t stride);

#endif
