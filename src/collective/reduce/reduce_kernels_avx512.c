/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels for x86-64 with AVX-512 (F, BW, DQ, VL). The file is empty on other machines.
 */
#include "collective/reduce/reduce_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* The target is set here and not in the build, so that no function outside this file can be built with it. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c"))),                  \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c,prefer-vector-width=512")
#endif

/* The types that reduce_kernels_vector.inc uses. */
#define LANES 16
typedef __m512 floats;
typedef uint32_t words __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32)));

static inline __mmask16 first_lanes(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

static inline floats get_f32(const void *from)
{
    return _mm512_loadu_ps(from);
}

static inline floats get_f32_some(const void *from, size_t n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), from);
}

static inline void put_f32(void *to, floats value)
{
    _mm512_storeu_ps(to, value);
}

static inline void put_f32_some(void *to, floats value, size_t n)
{
    _mm512_mask_storeu_ps(to, first_lanes(n), value);
}

static inline halves get_u16(const void *from)
{
    return (halves)_mm256_loadu_si256(from);
}

static inline halves get_u16_some(const void *from, size_t n)
{
    return (halves)_mm256_maskz_loadu_epi16(first_lanes(n), from);
}

static inline void put_u16(void *to, halves value)
{
    _mm256_storeu_si256(to, (__m256i)value);
}

static inline void put_u16_some(void *to, halves value, size_t n)
{
    _mm256_mask_storeu_epi16(to, first_lanes(n), (__m256i)value);
}

static inline halves get_u8(const void *from)
{
    return (halves)_mm256_cvtepu8_epi16(_mm_loadu_si128(from));
}

static inline halves get_u8_some(const void *from, size_t n)
{
    return (halves)_mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8(first_lanes(n), from));
}

static inline void put_u8(void *to, halves value)
{
    _mm_storeu_si128(to, _mm256_cvtepi16_epi8((__m256i)value));
}

static inline void put_u8_some(void *to, halves value, size_t n)
{
    _mm_mask_storeu_epi8(to, first_lanes(n), _mm256_cvtepi16_epi8((__m256i)value));
}

static inline floats halves_to_floats(halves value)
{
    return _mm512_cvtph_ps((__m256i)value);
}

static inline halves floats_to_halves(floats value)
{
    /* The mask selects all lanes: the form without a mask, if it is a macro, warns of its own conversion. */
    return (halves)_mm512_maskz_cvtps_ph((__mmask16)0xffff, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline words words_of_halves(halves value)
{
    return (words)_mm512_cvtepu16_epi32((__m256i)value);
}

static inline halves halves_of_words(words value)
{
    return (halves)_mm512_cvtepi32_epi16((__m512i)value);
}

static inline words select_less(words x, words y, words a, words b)
{
    return (words)_mm512_mask_mov_epi32((__m512i)b, _mm512_cmplt_epu32_mask((__m512i)x, (__m512i)y), (__m512i)a);
}

static inline void stream_f32(void *to, floats value)
{
    _mm512_stream_ps(to, value);
}

#define KERNEL_ROWS avx512_rows
#include "collective/reduce/reduce_kernels.inc"

/* Streams four lines at a time, as many as there are; returns the bytes. */
static size_t stream_fours(char *to, const char *from, size_t bytes)
{
    size_t i = 0;
    for (; i + 256 <= bytes; i += 256) {
        __m512i a = _mm512_loadu_si512(from + i), b = _mm512_loadu_si512(from + i + 64);
        __m512i c = _mm512_loadu_si512(from + i + 128), d = _mm512_loadu_si512(from + i + 192);
        _mm512_stream_si512((void *)(to + i), a);
        _mm512_stream_si512((void *)(to + i + 64), b);
        _mm512_stream_si512((void *)(to + i + 128), c);
        _mm512_stream_si512((void *)(to + i + 192), d);
    }
    return i;
}

static void stream(void *const *outs, int out_count, const void *in, size_t bytes, bool ahead)
{
    const char *from = in;
    char *first = outs[0], *second = outs[out_count > 1];
    size_t i = out_count == 1 && !ahead ? stream_fours(first, from, bytes) : 0;
    for (; i < bytes; i += 64) {
        if (ahead) _mm_prefetch(from + i + TTI_KERNEL_AHEAD, _MM_HINT_T0);
        __m512i held = _mm512_loadu_si512(from + i);
        _mm512_stream_si512((void *)(first + i), held);
        if (out_count > 1) _mm512_stream_si512((void *)(second + i), held);
        for (int k = 2; k < out_count; k++) _mm512_stream_si512((void *)((char *)outs[k] + i), held);
    }
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
    .copy = copy,
    .stream = stream,
    .swap = swap,
    .fence = fence,
    .rows = avx512_rows,
};

#else
typedef int nothing_here; /* C17 requires a declaration in every file */
#endif
