/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts the 16- and 8-bit floats to f32 (exact) and back (to nearest even, once). There are no branches, so that
 * loops become vector code. Each instruction set has its own copy, from reduce_kernels.inc. GPUs have one from
 * arithmetic.h; their compiler has no headers, and gpu_thread.h declares what is used from these.
 */
#ifndef TTI_COLLECTIVE_REDUCE_KERNELS_CONVERT_H
#define TTI_COLLECTIVE_REDUCE_KERNELS_CONVERT_H

#include <stdint.h>
#include <string.h>

#define F32_INFINITY 0x7f800000u
#define F32_NAN 0x7fc00000u
#define F32_EXPONENT(power) ((uint32_t)(power) << 23) /* the bits of an f32 with this biased exponent */

static inline uint32_t bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Widens a code to the bits of an f32. `size` is the code without its sign. Subnormals get the smallest normal
 * exponent, which is taken off again by an exact subtraction. `special`: the first code that is not finite. */
static inline uint32_t widen(uint32_t size, uint32_t mantissa, uint32_t bias, uint32_t special)
{
    uint32_t shifted = size << (23 - mantissa);
    uint32_t unit = F32_EXPONENT(128 - bias);
    uint32_t tiny = bits_of_f32(f32_of_bits(shifted + unit) - f32_of_bits(unit));
    uint32_t normal = shifted + F32_EXPONENT(127 - bias);
    uint32_t bits = size < (1u << mantissa) ? tiny : normal;
    return size >= special ? (shifted | F32_INFINITY) : bits;
}

/* Returns the code, without sign, nearest to `size` (an f32's bits without sign); codes past `largest` mean overflow.
 * Subnormal results are rounded by an addition whose last place is the format's smallest step. */
static inline uint32_t narrow(uint32_t size, uint32_t mantissa, uint32_t bias)
{
    uint32_t drop = 23 - mantissa;
    uint32_t step = F32_EXPONENT(151 - bias - mantissa);
    uint32_t tiny = bits_of_f32(f32_of_bits(size) + f32_of_bits(step)) - step;
    uint32_t rounded = (size + ((1u << (drop - 1)) - 1) + ((size >> drop) & 1)) >> drop;
    uint32_t normal = rounded - ((127 - bias) << mantissa);
    return size < F32_EXPONENT(128 - bias) ? tiny : normal;
}

static inline float decode_f16(uint16_t code)
{
    uint32_t sign = (uint32_t)(code & 0x8000u) << 16;
    return f32_of_bits(sign | widen(code & 0x7fffu, 10, 15, 0x7c00));
}

static inline uint16_t encode_f16(float value)
{
    uint32_t bits = bits_of_f32(value), size = bits & 0x7fffffffu;
    uint32_t code = narrow(size, 10, 15);
    code = code > 0x7c00u ? 0x7c00u : code;
    code |= (bits >> 16) & 0x8000u;
    return (uint16_t)(size > F32_INFINITY ? 0x7e00u : code);
}

static inline float decode_bf16(uint16_t code)
{
    return f32_of_bits((uint32_t)code << 16);
}

static inline uint16_t encode_bf16(float value)
{
    uint32_t bits = bits_of_f32(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > F32_INFINITY ? 0x7fc0u : rounded);
}

/* This format has no infinity: 0x7f and 0xff are the NaNs, and values that overflow become one. */
static inline float decode_f8e4m3(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    return f32_of_bits(sign | widen(code & 0x7fu, 3, 7, 0x7f));
}

static inline uint8_t encode_f8e4m3(float value)
{
    uint32_t bits = bits_of_f32(value);
    uint32_t code = narrow(bits & 0x7fffffffu, 3, 7);
    uint32_t sign = (bits >> 24) & 0x80u;
    return (uint8_t)(code >= 0x7fu ? 0x7fu : (code | sign));
}

static inline float decode_f8e5m2(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    return f32_of_bits(sign | widen(code & 0x7fu, 2, 15, 0x7c));
}

static inline uint8_t encode_f8e5m2(float value)
{
    uint32_t bits = bits_of_f32(value), size = bits & 0x7fffffffu;
    uint32_t code = narrow(size, 2, 15);
    code = code > 0x7cu ? 0x7cu : code;
    code |= (bits >> 24) & 0x80u;
    return (uint8_t)(size > F32_INFINITY ? 0x7fu : code);
}

#endif
