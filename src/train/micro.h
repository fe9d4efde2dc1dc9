/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's part of the batch in micro-batches, and the order in which their gradients are summed.
 *
 * The sum over all grains is that of the canonical tree. A rank has a run of grains, which consists of a few subtrees,
 * the partials (ddp_grains.c); a micro-batch is a subtree of one of these, or several whole ones. Gradients of
 * micro-batches are made in order: the gradient of the left half of a larger subtree stays in that subtree's buffer,
 * that of the right half is made in a buffer of its depth and added to the left one. So one buffer per level is enough.
 */
#ifndef TTI_TRAIN_MICRO_H
#define TTI_TRAIN_MICRO_H

#include "train/tree.h"

#include <tutti/train.h>

/* Makes the gradient of grains in buffer `to` or, if `from` is not -1, adds buffer `from` to it. Buffers are numbered:
 * the partials, then one per depth. */
struct tti_micro_work {
    struct tti_span grains;
    int to, from;
};

struct tti_micros {
    int count, partials, depths;
    size_t most_grains;          /* the most grains of a micro-batch */
    struct tti_span *grains;     /* [count]: the grains of each micro-batch; it may have none */
    int *first;                  /* [count + 1]: where the work of each micro-batch begins */
    struct tti_micro_work *work; /* entries that make gradients come before those that add them up */
};

/* Cuts grains `mine` of `total` into `count` micro-batches, as evenly as the tree allows; if there are fewer grains,
 * the last ones are empty. Returns false if there is no memory. */
bool tti_micros_make(size_t total, struct tti_span mine, int count, struct tti_micros *micros);
void tti_micros_free(struct tti_micros *micros);

#endif
