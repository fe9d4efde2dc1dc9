/* SPDX-License-Identifier: Apache-2.0
 *
 * The canonical tree over n leaves: T(lo..hi) = T(lo..lo+p) + T(lo+p..hi), p the largest power of two below hi - lo. It
 * is the tree in which collectives reduce over ranks; here the leaves are grains of a batch or blocks of an index.
 */
#ifndef TTI_TRAIN_TREE_H
#define TTI_TRAIN_TREE_H

#include "base/share.h"

size_t tti_tree_half(size_t leaves); /* returns p, for 2 leaves or more */

/* Returns the sum of `values` in the order of the tree; 0 if there are none. */
double tti_tree_sum(const double *values, size_t count);

/* Returns the contiguous leaves of one part of `parts`, like tti_share. */
struct tti_span tti_tree_share(size_t leaves, int part, int parts);

#endif
