/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks: at most 4,096 elements of one stretch of parameters (a tensor, or one width grain of it). They are what is owned
 * by one rank when weights' states are shared out, and what norms are summed over: so neither depends on the layout.
 *
 * Elements are counted over all parameters; `starts` says where each of `count` stretches begins, and at [count] where the
 * last one ends. Bounds of blocks are starts of stretches and every 4,096 elements from there on.
 */
#ifndef TTI_TRAIN_BLOCKS_H
#define TTI_TRAIN_BLOCKS_H

#include "base/share.h"

enum { TTI_BLOCK = 4096 };

struct tti_blocks {
    const size_t *starts; /* [count + 1] */
    size_t count;
};

/* Blocks of one stretch. */
static inline size_t tti_blocks_of(size_t elements)
{
    return (elements + TTI_BLOCK - 1) / TTI_BLOCK;
}

/* Blocks that lie before an element which begins one; before the last element's end: all. */
size_t tti_blocks_before(const struct tti_blocks *blocks, size_t element);

/* The bound of blocks that is nearest to an element; of two the lower. */
size_t tti_blocks_nearest(const struct tti_blocks *blocks, size_t element);

/* What rank `rank` of `size` owns of the elements lo to hi - 1, which are whole blocks: successive blocks, so that every
 * rank has as many elements as the next, give or take one block. */
struct tti_span tti_blocks_owned(const struct tti_blocks *blocks, struct tti_span all, int rank, int size);

#endif
