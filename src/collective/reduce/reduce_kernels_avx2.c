/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for x86-64 with AVX2 and F16C. The file is empty on other machines.
 */
#include "collective/reduce/reduce_kernels.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* The target is set here and not in the build, so that no function outside this file can be built with it. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

/* The types that reduce_kernels_vector.inc uses. */
#define LANES 8
typedef __m256 floats;
typedef uint32_t words __attribute__((vector_size(32)));
typedef uint16_t halves __attribute__((vector_size(16)));

/* Copies `n` elements of `size` bytes, fewer than LANES; memcpy would be a call. */
static inline void copy_some(void *to, const void *from, size_t n, size_t size)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    for (size_t i = 0; i < n; i++) memcpy(t + i * size, f + i * size, size);
}

static inline floats get_f32(const void *from)
{
    return _mm256_loadu_ps(from);
}

static inline floats get_f32_some(const void *from, size_t n)
{
    float some[LANES] = {0};
    copy_some(some, from, n, sizeof *some);
    return get_f32(some);
}

static inline void put_f32(void *to, floats value)
{
    _mm256_storeu_ps(to, value);
}

static inline void put_f32_some(void *to, floats value, size_t n)
{
    float some[LANES];
    put_f32(some, value);
    copy_some(to, some, n, sizeof *some);
}

static inline halves get_u16(const void *from)
{
    return (halves)_mm_loadu_si128(from);
}

static inline halves get_u16_some(const void *from, size_t n)
{
    uint16_t some[LANES] = {0};
    copy_some(some, from, n, sizeof *some);
    return get_u16(some);
}

static inline void put_u16(void *to, halves value)
{
    _mm_storeu_si128(to, (__m128i)value);
}

static inline void put_u16_some(void *to, halves value, size_t n)
{
    uint16_t some[LANES];
    put_u16(some, value);
    copy_some(to, some, n, sizeof *some);
}

static inline halves get_u8(const void *from)
{
    return (halves)_mm_cvtepu8_epi16(_mm_loadl_epi64(from));
}

static inline halves get_u8_some(const void *from, size_t n)
{
    uint8_t some[LANES] = {0};
    copy_some(some, from, n, sizeof *some);
    return get_u8(some);
}

static inline void put_u8(void *to, halves value)
{
    _mm_storel_epi64(to, _mm_packus_epi16((__m128i)value, (__m128i)value));
}

static inline void put_u8_some(void *to, halves value, size_t n)
{
    uint8_t some[LANES];
    put_u8(some, value);
    copy_some(to, some, n, sizeof *some);
}

static inline floats halves_to_floats(halves value)
{
    return _mm256_cvtph_ps((__m128i)value);
}

static inline halves floats_to_halves(floats value)
{
    return (halves)_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline words words_of_halves(halves value)
{
    return (words)_mm256_cvtepu16_epi32((__m128i)value);
}

static inline halves halves_of_words(words value)
{
    __m256i all = (__m256i)value;
    return (halves)_mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

static inline words select_less(words x, words y, words a, words b)
{
    return (words)_mm256_blendv_epi8((__m256i)b, (__m256i)a, _mm256_cmpgt_epi32((__m256i)y, (__m256i)x));
}

static inline void stream_f32(void *to, floats value)
{
    _mm256_stream_ps(to, value);
}

#define KERNEL_ROWS avx2_rows
#include "collective/reduce/reduce_kernels.inc"

static void stream(void *const *outs, int out_count, const void *in, size_t bytes, bool ahead)
{
    const char *from = in;
    for (size_t i = 0; i < bytes; i += 64) {
        if (ahead) _mm_prefetch(from + i + TTI_KERNEL_AHEAD, _MM_HINT_T0);
        __m256i low = _mm256_loadu_si256((const void *)(from + i));
        __m256i high = _mm256_loadu_si256((const void *)(from + i + 32));
        for (int k = 0; k < out_count; k++) {
            _mm256_stream_si256((void *)((char *)outs[k] + i), low);
            _mm256_stream_si256((void *)((char *)outs[k] + i + 32), high);
        }
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
    .copy = copy,
    .stream = stream,
    .swap = swap,
    .fence = fence,
    .rows = avx2_rows,
};

#else
typedef int nothing_here; /* C17 requires a declaration in every file */
#endif
