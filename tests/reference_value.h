/* SPDX-License-Identifier: Apache-2.0
 *
 * One element of any type in a serial reference, and the arithmetic that references share: integers that wrap around, and averages.
 */
#ifndef TESTS_REFERENCE_VALUE_H
#define TESTS_REFERENCE_VALUE_H

#include <stdbool.h>
#include <stdint.h>
#include <tutti/tutti.h>

union value {
    double f64;
    float f32;
    uint64_t bits; /* integers, sign-extended; bool as 0 or 1 */
};

static inline bool is_signed(tutti_type type)
{
    return type == TUTTI_I8 || type == TUTTI_I16 || type == TUTTI_I32 || type == TUTTI_I64;
}

static inline bool is_integer(tutti_type type)
{
    return type >= TUTTI_I8 && type <= TUTTI_U64;
}

static inline uint64_t wrap(tutti_type type, uint64_t bits)
{
    unsigned width = 8 * (unsigned)tutti_type_bytes(type);
    if (width == 64) return bits;
    bits &= (UINT64_C(1) << width) - 1;
    return is_signed(type) && bits >> (width - 1) != 0 ? bits - (UINT64_C(1) << width) : bits;
}

static inline union value divide(union value x, tutti_type type, int count)
{
    if (is_signed(type))
        x.bits = (uint64_t)((int64_t)x.bits / count);
    else if (is_integer(type))
        x.bits /= (uint64_t)count;
    else if (type == TUTTI_F64)
        x.f64 /= count;
    else
        x.f32 /= (float)count;
    return x;
}

#endif
