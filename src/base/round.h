/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_BASE_ROUND_H
#define TTI_BASE_ROUND_H

#include <stdint.h>

/* Rounds up to a multiple of `unit`, a power of two. */
static inline uint64_t tti_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

/* Rounds up to whole cache lines. */
static inline uint64_t tti_whole_lines(uint64_t bytes)
{
    return tti_round_up(bytes, 64);
}

#endif
