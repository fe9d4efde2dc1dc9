/* SPDX-License-Identifier: Apache-2.0
 *
 * One element's arithmetic, for every pair of type and reduction that is defined: for the C compiler and for NVRTC, so
 * that tests on the CPU check what GPUs compute. For type T and reduction R:
 *
 *     element_T                   the type in memory
 *     accumulator_T_R             the type in which elements are folded
 *     load_T_R(x, factor)         element -> accumulator; the factor belongs to a scaled sum
 *     fold_T_R(x, y)              x is of lower ranks than y
 *     store_T_R(x, count)         accumulator -> element; `count` is how many were folded
 *
 * They are the rows of reduce_kernels.inc, with the same bits (docs/reductions.md), provided that the compiler makes no
 * fused multiply-add of a product and a sum, and keeps subnormal numbers.
 */
#ifndef TTI_COLLECTIVE_ARITHMETIC_H
#define TTI_COLLECTIVE_ARITHMETIC_H

#include "collective/reduce/reduce_kernels_convert.h"
#include "collective/reduce/reduce_kernels_order.h"

/* `load`, `fold` and `store` are expressions in x, y, factor and count. */
#define PAIR(T, R, accumulator, load, fold, store)                                                                     \
    typedef accumulator accumulator_##T##_##R;                                                                         \
    static inline accumulator load_##T##_##R(element_##T x, double factor)                                             \
    {                                                                                                                  \
        (void)factor;                                                                                                  \
        return load;                                                                                                   \
    }                                                                                                                  \
    static inline accumulator fold_##T##_##R(accumulator x, accumulator y)                                             \
    {                                                                                                                  \
        return fold;                                                                                                   \
    }                                                                                                                  \
    static inline element_##T store_##T##_##R(accumulator x, int count)                                                \
    {                                                                                                                  \
        (void)count;                                                                                                   \
        return store;                                                                                                  \
    }

/* ---- Floats: A is float or double, F its name in reduce_kernels_order.h ------------------------------------------------- */

#define KEEP(x) (x)
#define FLOAT_PAIRS(T, A, F, DECODE, ENCODE)                                                                           \
    PAIR(T, sum, A, DECODE(x), x + y, ENCODE(x))                                                                       \
    PAIR(T, prod, A, DECODE(x), x *y, ENCODE(x))                                                                       \
    PAIR(T, min, A, DECODE(x), min_##F(x, y), ENCODE(x))                                                               \
    PAIR(T, max, A, DECODE(x), max_##F(x, y), ENCODE(x))                                                               \
    PAIR(T, avg, A, DECODE(x), x + y, ENCODE(x / (A)count))                                                            \
    PAIR(T, scaled_sum, A, DECODE(x) * (A)factor, x + y, ENCODE(x))

typedef double element_f64;
typedef float element_f32;
typedef uint16_t element_f16, element_bf16;
typedef uint8_t element_f8e4m3, element_f8e5m2;
FLOAT_PAIRS(f64, double, f64, KEEP, KEEP)
FLOAT_PAIRS(f32, float, f32, KEEP, KEEP)
FLOAT_PAIRS(f16, float, f32, decode_f16, encode_f16)
FLOAT_PAIRS(bf16, float, f32, decode_bf16, encode_bf16)
FLOAT_PAIRS(f8e4m3, float, f32, decode_f8e4m3, encode_f8e4m3)
FLOAT_PAIRS(f8e5m2, float, f32, decode_f8e5m2, encode_f8e5m2)

/* ---- Integers: E the element, U the same without a sign, since that wraps; W 64 bits with the sign it has ---------- */

#define INTEGER_PAIRS(T, E, U, W)                                                                                      \
    PAIR(T, sum, E, x, (E)(U)((U)x + (U)y), x)                                                                         \
    PAIR(T, prod, E, x, (E)(U)(1u * (U)x * (U)y), x) /* 1u: u16 * u16 would overflow int */                            \
    PAIR(T, min, E, x, x < y ? x : y, x)                                                                               \
    PAIR(T, max, E, x, x > y ? x : y, x)                                                                               \
    PAIR(T, avg, W, (W)x, (W)((uint64_t)x + (uint64_t)y), (E)(x / (W)count))                                           \
    PAIR(T, bit_and, E, x, (E)(x & y), x)                                                                              \
    PAIR(T, bit_or, E, x, (E)(x | y), x)                                                                               \
    PAIR(T, bit_xor, E, x, (E)(x ^ y), x)                                                                              \
    PAIR(T, scaled_sum, E, (E)(U)(1u * (U)x * (U)integer_factor(factor)), (E)(U)((U)x + (U)y), x)

typedef int8_t element_i8;
typedef uint8_t element_u8, element_boolean;
typedef int16_t element_i16;
typedef uint16_t element_u16;
typedef int32_t element_i32;
typedef uint32_t element_u32;
typedef int64_t element_i64;
typedef uint64_t element_u64;
INTEGER_PAIRS(i8, int8_t, uint8_t, int64_t)
INTEGER_PAIRS(u8, uint8_t, uint8_t, uint64_t)
INTEGER_PAIRS(i16, int16_t, uint16_t, int64_t)
INTEGER_PAIRS(u16, uint16_t, uint16_t, uint64_t)
INTEGER_PAIRS(i32, int32_t, uint32_t, int64_t)
INTEGER_PAIRS(u32, uint32_t, uint32_t, uint64_t)
INTEGER_PAIRS(i64, int64_t, uint64_t, int64_t)
INTEGER_PAIRS(u64, uint64_t, uint64_t, uint64_t)

/* ---- Bool: any byte but 0 is true ---------------------------------------------------------------------------------- */

#define BOOL_PAIR(R, fold) PAIR(boolean, R, uint8_t, x != 0, fold, x)
BOOL_PAIR(sum, x | y)
BOOL_PAIR(prod, x &y)
BOOL_PAIR(min, x &y)
BOOL_PAIR(max, x | y)
BOOL_PAIR(bit_and, x &y)
BOOL_PAIR(bit_or, x | y)
BOOL_PAIR(bit_xor, x ^ y)

#undef BOOL_PAIR
#undef INTEGER_PAIRS
#undef FLOAT_PAIRS
#undef KEEP
#undef PAIR

/* ---- Lists of what is defined: X(type, TUTTI_ type, reduction, column of reduce_kernels.h) -------------------------------- */

#define TTI_FLOAT_PAIRS(X, T, TYPE)                                                                                    \
    X(T, TYPE, sum, TUTTI_SUM)                                                                                         \
    X(T, TYPE, prod, TUTTI_PROD)                                                                                       \
    X(T, TYPE, min, TUTTI_MIN)                                                                                         \
    X(T, TYPE, max, TUTTI_MAX)                                                                                         \
    X(T, TYPE, avg, TUTTI_AVG)                                                                                         \
    X(T, TYPE, scaled_sum, TTI_KERNEL_SCALED_SUM)
#define TTI_BITS_PAIRS(X, T, TYPE)                                                                                     \
    X(T, TYPE, bit_and, TUTTI_AND)                                                                                     \
    X(T, TYPE, bit_or, TUTTI_OR)                                                                                       \
    X(T, TYPE, bit_xor, TUTTI_XOR)
#define TTI_INTEGER_PAIRS(X, T, TYPE) TTI_FLOAT_PAIRS(X, T, TYPE) TTI_BITS_PAIRS(X, T, TYPE)
#define TTI_BOOL_PAIRS(X, T, TYPE)                                                                                     \
    X(T, TYPE, sum, TUTTI_SUM)                                                                                         \
    X(T, TYPE, prod, TUTTI_PROD)                                                                                       \
    X(T, TYPE, min, TUTTI_MIN)                                                                                         \
    X(T, TYPE, max, TUTTI_MAX)                                                                                         \
    TTI_BITS_PAIRS(X, T, TYPE)
#define TTI_ARITHMETIC_PAIRS(X)                                                                                        \
    TTI_FLOAT_PAIRS(X, f64, TUTTI_F64)                                                                                 \
    TTI_FLOAT_PAIRS(X, f32, TUTTI_F32)                                                                                 \
    TTI_FLOAT_PAIRS(X, f16, TUTTI_F16)                                                                                 \
    TTI_FLOAT_PAIRS(X, bf16, TUTTI_BF16)                                                                               \
    TTI_FLOAT_PAIRS(X, f8e4m3, TUTTI_F8E4M3)                                                                           \
    TTI_FLOAT_PAIRS(X, f8e5m2, TUTTI_F8E5M2)                                                                           \
    TTI_INTEGER_PAIRS(X, i8, TUTTI_I8)                                                                                 \
    TTI_INTEGER_PAIRS(X, u8, TUTTI_U8)                                                                                 \
    TTI_INTEGER_PAIRS(X, i16, TUTTI_I16)                                                                               \
    TTI_INTEGER_PAIRS(X, u16, TUTTI_U16)                                                                               \
    TTI_INTEGER_PAIRS(X, i32, TUTTI_I32)                                                                               \
    TTI_INTEGER_PAIRS(X, u32, TUTTI_U32)                                                                               \
    TTI_INTEGER_PAIRS(X, i64, TUTTI_I64)                                                                               \
    TTI_INTEGER_PAIRS(X, u64, TUTTI_U64)                                                                               \
    TTI_BOOL_PAIRS(X, boolean, TUTTI_BOOL)

#endif
