/* SPDX-License-Identifier: Apache-2.0 */
#include "train/blocks.h"

/* Returns the stretch that has an element; if several begin there, the last one. For the place behind the last element:
 * the last stretch. */
static size_t stretch_at(const struct tti_blocks *blocks, size_t element)
{
    size_t lo = 0, hi = blocks->count;
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (blocks->starts[middle] <= element)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

size_t tti_blocks_before(const struct tti_blocks *blocks, size_t element)
{
    size_t before = 0;
    for (size_t i = 0; i < blocks->count && blocks->starts[i] < element; i++) {
        size_t end = blocks->starts[i + 1] < element ? blocks->starts[i + 1] : element;
        before += tti_blocks_of(end - blocks->starts[i]);
    }
    return before;
}

size_t tti_blocks_nearest(const struct tti_blocks *blocks, size_t element)
{
    if (blocks->count == 0) return element;
    size_t at = stretch_at(blocks, element), start = blocks->starts[at], end = blocks->starts[at + 1];
    size_t below = start + (element - start) / TTI_BLOCK * TTI_BLOCK;
    size_t above = end - below > TTI_BLOCK ? below + TTI_BLOCK : end;
    return element - below <= above - element ? below : above;
}

struct tti_span tti_blocks_owned(const struct tti_blocks *blocks, struct tti_span all, int rank, int size)
{
    size_t bounds[2];
    for (int i = 0; i < 2; i++) { /* where the rank's part begins, and where the next rank's does */
        size_t even = all.lo + tti_share(all.hi - all.lo, (size_t)(rank + i), (size_t)size).lo;
        size_t bound = rank + i == size ? all.hi : tti_blocks_nearest(blocks, even);
        bounds[i] = bound < all.lo ? all.lo : bound > all.hi ? all.hi : bound;
    }
    return (struct tti_span){bounds[0], bounds[1]};
}
