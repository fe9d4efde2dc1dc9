/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers from counters: a number depends on the key and the place alone, so that any rank, or a resumed run,
 * draws the same.
 */
#ifndef TTI_TRAIN_SHUFFLE_H
#define TTI_TRAIN_SHUFFLE_H

#include "base/hash.h"

/* A bijection of 64 bits in which every input bit flips half of the output bits. */
static inline uint64_t tti_scramble(uint64_t x)
{
    return tti_stir(x + UINT64_C(0x9e3779b97f4a7c15));
}

static inline uint64_t tti_draw(uint64_t key, uint64_t place)
{
    return tti_scramble(tti_scramble(key) ^ tti_scramble(place + UINT64_C(0x632be59bd9b4e019)));
}

/* Returns a number from 0 on, below 1. */
static inline double tti_draw_unit(uint64_t key, uint64_t place)
{
    return (double)(tti_draw(key, place) >> 11) * 0x1p-53;
}

/* Returns the place of `index` in a permutation of 0..count-1 that depends on the key. */
uint64_t tti_permute(uint64_t index, uint64_t count, uint64_t key);

#endif
