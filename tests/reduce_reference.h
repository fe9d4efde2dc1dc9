/* SPDX-License-Identifier: Apache-2.0
 *
 * What reductions should give, computed one element at a time: small floats are decoded by arithmetic and encoded by
 * search, and the tree is followed by recursion. Shares no code with the library.
 */
#ifndef TTI_TESTS_REDUCE_REFERENCE_H
#define TTI_TESTS_REDUCE_REFERENCE_H

#include "reference_value.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <tutti/tutti.h>

/* ---- The reference: small floats ------------------------------------------------------------------------------- */

struct format {
    tutti_type type;
    int exponent_bits, mantissa_bits, bias;
    unsigned infinity; /* the code past the largest finite one */
    unsigned nan;      /* the one that is written */
    bool has_infinity;
};

static const struct format formats[] = {
    {TUTTI_F16, 5, 10, 15, 0x7c00, 0x7e00, true},
    {TUTTI_BF16, 8, 7, 127, 0x7f80, 0x7fc0, true},
    {TUTTI_F8E4M3, 4, 3, 7, 0x7f, 0x7f, false},
    {TUTTI_F8E5M2, 5, 2, 15, 0x7c, 0x7f, true},
};
enum { FORMATS = sizeof formats / sizeof *formats };

static const struct format *format_of(tutti_type type)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i].type == type) return &formats[i];
    return NULL;
}

static unsigned sign_bit(const struct format *format)
{
    return 1u << (format->exponent_bits + format->mantissa_bits);
}

/* The value of a code below `infinity`; that code itself stands for the value overflow begins to round to. */
static double magnitude(const struct format *format, unsigned code)
{
    int exponent = (int)(code >> format->mantissa_bits);
    double mantissa = ldexp((double)(code & ((1u << format->mantissa_bits) - 1)), -format->mantissa_bits);
    return exponent ? ldexp(1 + mantissa, exponent - format->bias) : ldexp(mantissa, 1 - format->bias);
}

static float reference_decode(const struct format *format, unsigned code)
{
    unsigned size = code & (sign_bit(format) - 1);
    double value = magnitude(format, size);
    if (size >= format->infinity)
        value = format->has_infinity && size == format->infinity ? (double)INFINITY : (double)NAN;
    return (float)(code & sign_bit(format) ? -value : value);
}

static unsigned reference_encode(const struct format *format, float value)
{
    if (isnan(value)) return format->nan;
    unsigned sign = signbit(value) ? sign_bit(format) : 0;
    double size = fabs((double)value);
    unsigned low = 0, high = format->infinity; /* magnitude(low) <= size; the nearest code is low or low + 1 */
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (magnitude(format, middle) <= size)
            low = middle;
        else
            high = middle;
    }
    double below = size - magnitude(format, low), above = magnitude(format, low + 1) - size;
    unsigned code = below < above || (below == above && low % 2 == 0) ? low : low + 1;
    if (code >= format->infinity) return format->has_infinity ? format->infinity | sign : format->nan;
    return code | sign;
}

/* ---- The reference: one element -------------------------------------------------------------------------------- */

static union value get(const unsigned char *at, tutti_type type)
{
    union value value = {.bits = 0};
    memcpy(&value.bits, at, tutti_type_bytes(type)); /* little-endian or a whole word */
    if (format_of(type))
        value.f32 = reference_decode(format_of(type), (unsigned)value.bits);
    else if (is_integer(type))
        value.bits = wrap(type, value.bits);
    else if (type == TUTTI_BOOL)
        value.bits = value.bits != 0;
    return value;
}

static void put(unsigned char *at, tutti_type type, union value value)
{
    if (format_of(type)) value.bits = reference_encode(format_of(type), value.f32);
    memcpy(at, &value.bits, tutti_type_bytes(type));
}

static double extreme(double x, double y, bool largest)
{
    if (isnan(x) || isnan(y)) return (double)NAN;
    if (x == y) return (signbit(x) != 0) == largest ? y : x;
    return (x > y) == largest ? x : y;
}

static union value fold_float(union value x, union value y, tutti_type type, int kind)
{
    bool wide = type == TUTTI_F64;
    volatile double result = 0; /* one rounding each, whatever the compiler likes to fuse */
    volatile float narrow = 0;
    double a = wide ? x.f64 : (double)x.f32, b = wide ? y.f64 : (double)y.f32;
    if (kind == TUTTI_MIN || kind == TUTTI_MAX) {
        result = extreme(a, b, kind == TUTTI_MAX);
        narrow = (float)result;
    } else if (kind == TUTTI_PROD) {
        result = a * b;
        narrow = x.f32 * y.f32;
    } else {
        result = a + b;
        narrow = x.f32 + y.f32;
    }
    union value value = {.bits = 0};
    if (wide)
        value.f64 = result;
    else
        value.f32 = narrow;
    return value;
}

static union value fold_integer(union value x, union value y, tutti_type type, int kind)
{
    bool less = is_signed(type) ? (int64_t)x.bits < (int64_t)y.bits : x.bits < y.bits;
    switch (kind) {
    case TUTTI_PROD: return (union value){.bits = wrap(type, x.bits * y.bits)};
    case TUTTI_MIN: return less ? x : y;
    case TUTTI_MAX: return less ? y : x;
    case TUTTI_AND: return (union value){.bits = x.bits & y.bits};
    case TUTTI_OR: return (union value){.bits = x.bits | y.bits};
    case TUTTI_XOR: return (union value){.bits = x.bits ^ y.bits};
    case TUTTI_AVG: return (union value){.bits = x.bits + y.bits};
    default: return (union value){.bits = wrap(type, x.bits + y.bits)};
    }
}

static union value fold_bool(union value x, union value y, int kind)
{
    bool all = kind == TUTTI_PROD || kind == TUTTI_MIN || kind == TUTTI_AND;
    bool a = x.bits != 0, b = y.bits != 0;
    return (union value){.bits = kind == TUTTI_XOR ? a != b : (all ? a && b : a || b)};
}

static union value fold(union value x, union value y, tutti_type type, int kind)
{
    if (type == TUTTI_BOOL) return fold_bool(x, y, kind);
    return is_integer(type) ? fold_integer(x, y, type, kind) : fold_float(x, y, type, kind);
}

static union value scale(union value x, tutti_type type, double factor)
{
    volatile float narrow = x.f32 * (float)factor;
    if (is_integer(type))
        x.bits = wrap(type, x.bits * (factor < 0 ? (uint64_t)(int64_t)factor : (uint64_t)factor));
    else if (type == TUTTI_F64)
        x.f64 *= factor;
    else
        x.f32 = narrow;
    return x;
}

static union value tree(const union value *leaves, int count, tutti_type type, int kind)
{
    if (count == 1) return leaves[0];
    int half = 1;
    while (half * 2 < count) half *= 2;
    return fold(tree(leaves, half, type, kind), tree(leaves + half, count - half, type, kind), type, kind);
}

#endif
