/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for x86-64 with AVX-512 (F, BW, DQ, VL). Nothing on other machines.
 */
#include "collective/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* Told to the compiler here and not in the build, so that no function outside this file can be built with it. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c"))),                 \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,prefer-vector-width=512")
#endif

#define KERNEL_ROWS avx512_rows
#include "collective/kernels.inc"

static void stream(void *dst, const void *src, size_t bytes)
{
    char *to = dst;
    const char *from = src;
    for (size_t i = 0; i < bytes; i += 64)
        _mm512_stream_si512((void *)(to + i), _mm512_loadu_si512(from + i));
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static void fence(void)
{
    _mm_sfence();
}

const struct tti_kernels tti_kernels_avx512 = {
    .name = "avx512",
    .usable = usable,
    .stream = stream,
    .fence = fence,
    .rows = avx512_rows,
};

#else
typedef int nothing_here; /* C17 wants a declaration in every file */
#endif
