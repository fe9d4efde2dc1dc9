/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of floor.c for the instruction sets there are, and the choice between them at run time.
 */
#ifndef BENCH_FLOOR_KERNELS_H
#define BENCH_FLOOR_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { FEW = 4, AHEAD = 8192 };

struct kernels {
    const char *name;
    void (*sum)(const char *const *in, int ins, char *const *out, int outs, size_t bytes, bool stream);
    void (*prefix)(const char *const *in, char *const *out, int ranks, size_t bytes, bool exclusive, bool stream);
    void (*swap)(char *one, char *two, size_t bytes, bool stream);
    void (*stream)(const char *in, char *const *out, int outs, size_t bytes); /* a copy past the caches, from memory */
};

/* Sums are of floats: whole numbers that are doubled often enough end as zeros, and some machines store lines of zeros
 * at twice the speed of others.
 * STREAM is assembly, because clang merges the intrinsic with the ordinary store of the other branch into one. */
#ifdef __x86_64__
#define SUM_LOOP sum_loop_avx512
#define SUM sum_avx512
#define PREFIX prefix_avx512
#define SWAP swap_avx512
#define STREAM_COPY stream_avx512
#define TARGET __attribute__((target("avx512f")))
#define VEC __m512i
#define LOAD(p) _mm512_load_si512((const void *)(p))
#define ADD(a, b) _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)))
#define STORE(p, v) _mm512_store_si512((void *)(p), v)
#define STREAM(p, v) __asm__ volatile("vmovntdq %1, %0" : "=m"(*(__m512i *)(void *)(p)) : "v"(v))
#include "bench/floor_loops.h"

#define SUM_LOOP sum_loop_avx2
#define SUM sum_avx2
#define PREFIX prefix_avx2
#define SWAP swap_avx2
#define STREAM_COPY stream_avx2
#define TARGET __attribute__((target("avx2")))
#define VEC __m256i
#define LOAD(p) _mm256_load_si256((const void *)(p))
#define ADD(a, b) _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)))
#define STORE(p, v) _mm256_store_si256((void *)(p), v)
#define STREAM(p, v) __asm__ volatile("vmovntdq %1, %0" : "=m"(*(__m256i *)(void *)(p)) : "x"(v))
#include "bench/floor_loops.h"
#endif

struct words {
    float word[8];
};

static inline struct words words_load(const char *from)
{
    struct words w;
    memcpy(&w, from, sizeof w);
    return w;
}

static inline struct words words_add(struct words a, struct words b)
{
    for (int i = 0; i < 8; i++) a.word[i] += b.word[i];
    return a;
}

static inline void words_store(char *to, struct words w)
{
    memcpy(to, &w, sizeof w);
}

#define SUM_LOOP sum_loop_portable
#define SUM sum_portable
#define PREFIX prefix_portable
#define SWAP swap_portable
#define STREAM_COPY stream_portable
#define TARGET
#define VEC struct words
#define LOAD(p) words_load(p)
#define ADD(a, b) words_add(a, b)
#define STORE(p, v) words_store(p, v)
#define STREAM(p, v) words_store(p, v)
#include "bench/floor_loops.h"

static const struct kernels kernels_portable = {.name = "portable",
                                                .sum = sum_portable,
                                                .prefix = prefix_portable,
                                                .swap = swap_portable,
                                                .stream = stream_portable};

static const struct kernels *kernels_best(void)
{
#ifdef __x86_64__
    static const struct kernels avx512 = {
        .name = "avx512", .sum = sum_avx512, .prefix = prefix_avx512, .swap = swap_avx512, .stream = stream_avx512};
    static const struct kernels avx2 = {
        .name = "avx2", .sum = sum_avx2, .prefix = prefix_avx2, .swap = swap_avx2, .stream = stream_avx2};
    if (__builtin_cpu_supports("avx512f")) return &avx512;
    if (__builtin_cpu_supports("avx2")) return &avx2;
#endif
    return &kernels_portable;
}

/* Streamed stores are ordered by no release store: they need a fence of their own before the next flag. */
static void stream_end(void)
{
#ifdef __x86_64__
    _mm_sfence();
#endif
}

static inline void relax(void)
{
#ifdef __x86_64__
    _mm_pause();
#endif
}

#endif
