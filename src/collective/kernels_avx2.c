/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for x86-64 with AVX2 and F16C. Nothing on other machines.
 */
#include "collective/kernels.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* Told to the compiler here and not in the build, so that no function outside this file can be built with it. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

#define KERNEL_ROWS avx2_rows
#include "collective/kernels.inc"

static void stream(void *dst, const void *src, size_t bytes)
{
    __m256i *to = dst;
    const __m256i *from = src;
    for (size_t i = 0; i < bytes / sizeof *to; i += 2) {
        __m256i low = _mm256_loadu_si256(from + i), high = _mm256_loadu_si256(from + i + 1);
        _mm256_stream_si256(to + i, low);
        _mm256_stream_si256(to + i + 1, high);
    }
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static bool usable(void)
{
    unsigned eax, ebx, ecx, edx;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

static void fence(void)
{
    _mm_sfence();
}

const struct tti_kernels tti_kernels_avx2 = {
    .name = "avx2",
    .usable = usable,
    .stream = stream,
    .fence = fence,
    .rows = avx2_rows,
};

#else
typedef int nothing_here; /* C17 wants a declaration in every file */
#endif
