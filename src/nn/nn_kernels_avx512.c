/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for x86-64 with AVX-512 (F, BW, DQ, VL). The file is empty on other machines.
 */
#include "nn/nn_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <string.h>

/* The target is set here and not in the build, so that no function outside this file can be built with it. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,prefer-vector-width=512")
#endif

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#define KERNEL_MASKS
#define KERNEL_SET tti_nn_kernels_avx512
#define KERNEL_NAME "avx512"
#include "nn/nn_kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else
typedef int nothing_here; /* C17 requires a declaration in every file */
#endif
