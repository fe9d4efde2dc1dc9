/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks: at most 4,096 elements of one stretch of parameters (a tensor, or one width grain of it). When the state of
 * weights is shared out, each block belongs to one rank, and norms are summed over blocks: so neither depends on the
 * layout.
 *
 * Elements are counted over all parameters; `starts` says where each of `count` stretches begins, and at [count] where
 * the last one ends. Bounds of blocks are the starts of stretches and every 4,096 elements from there on.
 */
#ifndef TTI_TRAIN_BLOCKS_H
#define TTI_TRAIN_BLOCKS_H

#include "base/share.h"

enum { TTI_BLOCK = 4096 };

struct tti_blocks {
    const size_t *starts; /* [count + 1] */
    size_t count;
};

/* Returns the number of blocks of one stretch. */
static inline size_t tti_blocks_of(size_t elements)
{
    return (elements + TTI_BLOCK - 1) / TTI_BLOCK;
}

/* Returns the number of blocks before an element that begins one; for the end of the last element: all. */
size_t tti_blocks_before(const struct tti_blocks *blocks, size_t element);

/* Returns the bound of blocks that is nearest to an element; of two the lower. */
size_t tti_blocks_nearest(const struct tti_blocks *blocks, size_t element);

/* Returns the part of the elements lo to hi - 1, which are whole blocks, that rank `rank` of `size` owns: consecutive
 * blocks, so that all ranks have equally many elements, up to one block. */
struct tti_span tti_blocks_owned(const struct tti_blocks *blocks, struct tti_span all, int rank, int size);

#endif
