/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts a row of elements into parts whose sizes differ by one at most.
 */
#ifndef TTI_BASE_SHARE_H
#define TTI_BASE_SHARE_H

#include <stddef.h>

/* The elements from lo to hi - 1. */
struct tti_span {
    size_t lo, hi;
};

/* Returns part number `part` of `parts`, as consecutive elements: the first count % parts parts have one more. */
static inline struct tti_span tti_share(size_t count, size_t part, size_t parts)
{
    size_t each = count / parts, more = count % parts;
    size_t lo = part * each + (part < more ? part : more);
    return (struct tti_span){lo, lo + each + (part < more ? 1 : 0)};
}

#endif
