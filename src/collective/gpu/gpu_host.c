/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for device `host`: the same sources as for GPUs, compiled by the C compiler, where a kernel is one
 * thread. One function does all reductions on a type. Its accumulators are wide enough for any of them, and after every
 * step they are reduced to the width that a GPU has.
 */
#include "collective/gpu/gpu_host.h"

#include "collective/gpu/gpu_thread.h"
#include "collective/reduce/arithmetic.h"

/* ---- The arithmetic, by number of the reduction ------------------------------------------------------------------- */

/* clang-format off */
#define LOAD_CASE(T, TYPE, R, column) case column: return load_##T##_##R(x, factor);
#define FOLD_CASE(T, TYPE, R, column)                                                                                  \
    case column: return fold_##T##_##R((accumulator_##T##_##R)x, (accumulator_##T##_##R)y);
#define STORE_CASE(T, TYPE, R, column) case column: return store_##T##_##R((accumulator_##T##_##R)x, count);
/* clang-format on */
#define ANY(T, accumulator, LIST)                                                                                      \
    typedef accumulator accumulator_##T##_any;                                                                         \
    static accumulator load_any_##T(uint32_t reduction, element_##T x, double factor)                                  \
    {                                                                                                                  \
        switch (reduction) {                                                                                           \
            LIST(LOAD_CASE, T, 0)                                                                                      \
        default: return 0; /* tti_gpu_prepare refuses it */                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    static accumulator fold_any_##T(uint32_t reduction, accumulator x, accumulator y)                                  \
    {                                                                                                                  \
        switch (reduction) {                                                                                           \
            LIST(FOLD_CASE, T, 0)                                                                                      \
        default: return 0;                                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static element_##T store_any_##T(uint32_t reduction, accumulator x, int count)                                     \
    {                                                                                                                  \
        switch (reduction) {                                                                                           \
            LIST(STORE_CASE, T, 0)                                                                                     \
        default: return 0;                                                                                             \
        }                                                                                                              \
    }

ANY(f64, double, TTI_FLOAT_PAIRS)
ANY(f32, float, TTI_FLOAT_PAIRS)
ANY(f16, float, TTI_FLOAT_PAIRS)
ANY(bf16, float, TTI_FLOAT_PAIRS)
ANY(f8e4m3, float, TTI_FLOAT_PAIRS)
ANY(f8e5m2, float, TTI_FLOAT_PAIRS)
ANY(i8, int64_t, TTI_INTEGER_PAIRS)
ANY(u8, uint64_t, TTI_INTEGER_PAIRS)
ANY(i16, int64_t, TTI_INTEGER_PAIRS)
ANY(u16, uint64_t, TTI_INTEGER_PAIRS)
ANY(i32, int64_t, TTI_INTEGER_PAIRS)
ANY(u32, uint64_t, TTI_INTEGER_PAIRS)
ANY(i64, int64_t, TTI_INTEGER_PAIRS)
ANY(u64, uint64_t, TTI_INTEGER_PAIRS)
ANY(boolean, uint8_t, TTI_BOOL_PAIRS)

/* ---- The kernels ---------------------------------------------------------------------------------------------------- */

#define TYPE f64
#include "collective/gpu/gpu_host.inc"
#define TYPE f32
#include "collective/gpu/gpu_host.inc"
#define TYPE f16
#include "collective/gpu/gpu_host.inc"
#define TYPE bf16
#include "collective/gpu/gpu_host.inc"
#define TYPE f8e4m3
#include "collective/gpu/gpu_host.inc"
#define TYPE f8e5m2
#include "collective/gpu/gpu_host.inc"
#define TYPE i8
#include "collective/gpu/gpu_host.inc"
#define TYPE u8
#include "collective/gpu/gpu_host.inc"
#define TYPE i16
#include "collective/gpu/gpu_host.inc"
#define TYPE u16
#include "collective/gpu/gpu_host.inc"
#define TYPE i32
#include "collective/gpu/gpu_host.inc"
#define TYPE u32
#include "collective/gpu/gpu_host.inc"
#define TYPE i64
#include "collective/gpu/gpu_host.inc"
#define TYPE u64
#include "collective/gpu/gpu_host.inc"
#define TYPE boolean
#include "collective/gpu/gpu_host.inc"

#define SIZE few
#include "collective/gpu/move.cu"
#undef SIZE
#define SIZE many
#include "collective/gpu/move.cu"
#undef SIZE

const struct tti_gpu_functions tti_gpu_fold_functions[TUTTI_TYPE_COUNT] = {
    [TUTTI_F64] = {fold_f64_any_few, fold_f64_any_many},
    [TUTTI_F32] = {fold_f32_any_few, fold_f32_any_many},
    [TUTTI_F16] = {fold_f16_any_few, fold_f16_any_many},
    [TUTTI_BF16] = {fold_bf16_any_few, fold_bf16_any_many},
    [TUTTI_F8E4M3] = {fold_f8e4m3_any_few, fold_f8e4m3_any_many},
    [TUTTI_F8E5M2] = {fold_f8e5m2_any_few, fold_f8e5m2_any_many},
    [TUTTI_I8] = {fold_i8_any_few, fold_i8_any_many},
    [TUTTI_U8] = {fold_u8_any_few, fold_u8_any_many},
    [TUTTI_I16] = {fold_i16_any_few, fold_i16_any_many},
    [TUTTI_U16] = {fold_u16_any_few, fold_u16_any_many},
    [TUTTI_I32] = {fold_i32_any_few, fold_i32_any_many},
    [TUTTI_U32] = {fold_u32_any_few, fold_u32_any_many},
    [TUTTI_I64] = {fold_i64_any_few, fold_i64_any_many},
    [TUTTI_U64] = {fold_u64_any_few, fold_u64_any_many},
    [TUTTI_BOOL] = {fold_boolean_any_few, fold_boolean_any_many},
};

const struct tti_gpu_functions tti_gpu_scan_functions[TUTTI_TYPE_COUNT] = {
    [TUTTI_F64] = {scan_f64_any_few, scan_f64_any_many},
    [TUTTI_F32] = {scan_f32_any_few, scan_f32_any_many},
    [TUTTI_F16] = {scan_f16_any_few, scan_f16_any_many},
    [TUTTI_BF16] = {scan_bf16_any_few, scan_bf16_any_many},
    [TUTTI_F8E4M3] = {scan_f8e4m3_any_few, scan_f8e4m3_any_many},
    [TUTTI_F8E5M2] = {scan_f8e5m2_any_few, scan_f8e5m2_any_many},
    [TUTTI_I8] = {scan_i8_any_few, scan_i8_any_many},
    [TUTTI_U8] = {scan_u8_any_few, scan_u8_any_many},
    [TUTTI_I16] = {scan_i16_any_few, scan_i16_any_many},
    [TUTTI_U16] = {scan_u16_any_few, scan_u16_any_many},
    [TUTTI_I32] = {scan_i32_any_few, scan_i32_any_many},
    [TUTTI_U32] = {scan_u32_any_few, scan_u32_any_many},
    [TUTTI_I64] = {scan_i64_any_few, scan_i64_any_many},
    [TUTTI_U64] = {scan_u64_any_few, scan_u64_any_many},
    [TUTTI_BOOL] = {scan_boolean_any_few, scan_boolean_any_many},
};

const struct tti_gpu_functions tti_gpu_move_functions = {move_few, move_many};
