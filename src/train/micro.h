/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's part of the batch in micro-batches, and how their gradients are summed.
 *
 * The sum over all grains is that of the canonical tree. A rank has a run of grains, which is a few subtrees, the partials
 * (ddp_grains.c); a micro-batch is a subtree of one of these, or several whole ones. Gradients of micro-batches are made in
 * order: one that is the left half of a larger subtree stays in that one's buffer, one that is the right half is made in a
 * buffer of its depth and added to the left one. So a buffer per level is all that is pending.
 */
#ifndef TTI_TRAIN_MICRO_H
#define TTI_TRAIN_MICRO_H

#include "train/tree.h"

#include <tutti/train.h>

/* Makes the gradient of grains into buffer `to`, or, where `from` is not -1, adds buffer `from` to it. Buffers are numbered:
 * the partials, then one per depth. */
struct tti_micro_work {
    struct tti_span grains;
    int to, from;
};

struct tti_micros {
    int count, partials, depths;
    size_t most_grains;          /* of one micro-batch */
    struct tti_span *grains;     /* [count]: of each micro-batch; it may have none */
    int *first;                  /* [count + 1]: where the work of each begins */
    struct tti_micro_work *work; /* what makes gradients comes before what adds them up */
};

/* Grains `mine` of `total` in `count` micro-batches, as even as the tree allows; where there are fewer grains, the last ones
 * are empty. False: no memory. */
bool tti_micros_make(size_t total, struct tti_span mine, int count, struct tti_micros *micros);
void tti_micros_free(struct tti_micros *micros);

#endif
