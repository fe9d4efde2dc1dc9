/* SPDX-License-Identifier: Apache-2.0 */
#include "train/tree.h"

size_t tti_tree_half(size_t leaves)
{
    size_t half = 1;
    while (half * 2 < leaves) half *= 2;
    return half;
}

double tti_tree_sum(const double *values, size_t count)
{
    if (count == 0) return 0;
    if (count == 1) return values[0];
    size_t half = tti_tree_half(count);
    return tti_tree_sum(values, half) + tti_tree_sum(values + half, count - half);
}

struct tti_span tti_tree_share(size_t leaves, int part, int parts)
{
    return tti_share(leaves, (size_t)part, (size_t)parts);
}
