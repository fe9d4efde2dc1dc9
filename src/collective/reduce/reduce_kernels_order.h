/* SPDX-License-Identifier: Apache-2.0
 *
 * Returns the smaller or the larger of two floats, and converts factors for integers. For the C compiler and for NVRTC
 * (arithmetic.h).
 */
#ifndef TTI_COLLECTIVE_REDUCE_KERNELS_ORDER_H
#define TTI_COLLECTIVE_REDUCE_KERNELS_ORDER_H

#include "collective/reduce/reduce_kernels_convert.h"

static inline double f64_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t bits_of_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* NaN wins; between two zeros the sign decides: equal values differ in the sign of zero at most, so AND and OR of their
 * bits are their maximum and minimum. */
static inline float max_f32(float x, float y)
{
    float larger = x > y ? x : y; /* y if one of them is NaN */
    float equal = f32_of_bits(bits_of_f32(x) & bits_of_f32(y));
    larger = x == y ? equal : larger;
    return x != x ? x : larger;
}

static inline float min_f32(float x, float y)
{
    float smaller = x < y ? x : y;
    float equal = f32_of_bits(bits_of_f32(x) | bits_of_f32(y));
    smaller = x == y ? equal : smaller;
    return x != x ? x : smaller;
}

static inline double max_f64(double x, double y)
{
    double larger = x > y ? x : y;
    double equal = f64_of_bits(bits_of_f64(x) & bits_of_f64(y));
    larger = x == y ? equal : larger;
    return x != x ? x : larger;
}

static inline double min_f64(double x, double y)
{
    double smaller = x < y ? x : y;
    double equal = f64_of_bits(bits_of_f64(x) | bits_of_f64(y));
    smaller = x == y ? equal : smaller;
    return x != x ? x : smaller;
}

/* Returns a scaled sum's factor as bits of an integer; it was checked that it is one. */
static inline uint64_t integer_factor(double factor)
{
    return factor < 0 ? (uint64_t)(int64_t)factor : (uint64_t)factor;
}

#endif
