/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for x86-64 with AVX2. The file is empty on other machines.
 */
#include "nn/nn_kernels.h"

#if defined(__x86_64__)

#include <math.h>
#include <string.h>

/* The target is set here and not in the build, so that no function outside this file can be built with it. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

static bool usable(void)
{
    return __builtin_cpu_supports("avx2");
}

#define KERNEL_SET tti_nn_kernels_avx2
#define KERNEL_NAME "avx2"
#include "nn/nn_kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else
typedef int nothing_here; /* C17 requires a declaration in every file */
#endif
