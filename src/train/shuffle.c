/* SPDX-License-Identifier: Apache-2.0 */
#include "train/shuffle.h"

/* A Feistel network over the smallest even number of bits that holds `count`; results outside the range go through it
 * again, which ends since the network is a permutation. */
uint64_t tti_permute(uint64_t index, uint64_t count, uint64_t key)
{
    unsigned half = 1;
    while (half < 32 && (UINT64_C(1) << (2 * half)) < count) half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t mixed = left ^ (tti_draw(key ^ round << 56, right) & mask);
            left = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}
