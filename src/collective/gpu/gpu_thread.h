/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels' sources (*.cu) use. NVRTC compiles them for GPUs, the C compiler for device `host`, on which a
 * kernel is one block of one thread. They use only what both languages have in common, and include nothing:
 * cmake/embed.cmake joins these files without their includes.
 *
 *     KERNEL(name)            the entry; a block calls body(&arguments, part) for the parts that are its own
 *     thread_index()          within a part: a thread does every thread_count()-th piece of work, from this one on
 *     list_at(arguments, i)   word i of the arguments' lists; copied_list_at: the same, fast when read again and again
 */
#ifndef TTI_COLLECTIVE_GPU_THREAD_H
#define TTI_COLLECTIVE_GPU_THREAD_H

#include "collective/gpu/gpu_arguments.h"
#include "device/word.h"
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PASTE_2(a, b) a##_##b
#define PASTE_3(a, b, c) a##_##b##_##c
#define PASTE_4(a, b, c, d) a##_##b##_##c##_##d
#define NAME_2(a, b) PASTE_2(a, b)
#define NAME_3(a, b, c) PASTE_3(a, b, c)
#define NAME_4(a, b, c, d) PASTE_4(a, b, c, d)

/* A source that reduces is compiled for one TYPE, REDUCTION (of arithmetic.h) and SIZE, `few` or `many`; its own names
 * are made by MINE. Device `host` has one function for all reductions on a type, which gets the reduction as an
 * argument: `any`. */
#define ELEMENT NAME_2(element, TYPE)
#define ACCUMULATOR NAME_3(accumulator, TYPE, REDUCTION)
#define ARGUMENTS NAME_2(tti_gpu, SIZE)
#define MINE(name) NAME_4(name, TYPE, REDUCTION, SIZE)
#define IS_FEW NAME_2(IS, SIZE)
#define IS_few 1
#define IS_many 0

/* ---- GPUs ---------------------------------------------------------------------------------------------------------- */
#if defined(__CUDACC_RTC__)

#define LOAD(of, x, factor) NAME_3(load, TYPE, REDUCTION)(x, factor)
#define FOLD(of, x, y) NAME_3(fold, TYPE, REDUCTION)(x, y)
#define STORE(of, x, count) NAME_3(store, TYPE, REDUCTION)(x, count)
#define IS_SCALED(of) NAME_2(IS, REDUCTION)
#define IS_sum 0
#define IS_prod 0
#define IS_min 0
#define IS_max 0
#define IS_avg 0
#define IS_bit_and 0
#define IS_bit_or 0
#define IS_bit_xor 0
#define IS_scaled_sum 1

#define INLINE static __forceinline__
#define UNROLL _Pragma("unroll")

/* 16 bytes, the most that a thread reads or writes at once. */
struct wide {
    uint32_t word[4];
};

INLINE uint64_t thread_index(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

INLINE uint64_t thread_count(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

/* Reads past the caches, for data that are read and written once. `bytes` is 1, 2, 4, 8 or 16, and the address a
 * multiple of it. */
INLINE struct wide get_wide(const char *from, int bytes)
{
    struct wide made = {};
    if (bytes == 16) {
        uint4 got = __ldcs((const uint4 *)from);
        made.word[0] = got.x, made.word[1] = got.y, made.word[2] = got.z, made.word[3] = got.w;
    } else if (bytes == 8) {
        uint2 got = __ldcs((const uint2 *)from);
        made.word[0] = got.x, made.word[1] = got.y;
    } else {
        made.word[0] = bytes == 4   ? __ldcs((const uint32_t *)from)
                       : bytes == 2 ? __ldcs((const uint16_t *)from)
                                    : __ldcs((const uint8_t *)from);
    }
    return made;
}

INLINE void put_wide(char *to, struct wide value, int bytes)
{
    if (bytes == 16)
        __stcs((uint4 *)to, make_uint4(value.word[0], value.word[1], value.word[2], value.word[3]));
    else if (bytes == 8)
        __stcs((uint2 *)to, make_uint2(value.word[0], value.word[1]));
    else if (bytes == 4)
        __stcs((uint32_t *)to, value.word[0]);
    else if (bytes == 2)
        __stcs((uint16_t *)to, (uint16_t)value.word[0]);
    else
        __stcs((uint8_t *)to, (uint8_t)value.word[0]);
}

extern __shared__ uint64_t copied_lists[];

template <typename arguments> INLINE uint64_t list_at(const arguments *of, uint32_t i)
{
    return of->elsewhere != 0 ? ((const uint64_t *)of->elsewhere)[i] : of->lists[i];
}

template <typename arguments> INLINE uint64_t copied_list_at(const arguments *of, uint32_t i)
{
    return of->elsewhere != 0 ? copied_lists[i] : of->lists[i];
}

/* Only the first block reads the host's word, and tells the others: reads of the host's memory come one by one, a
 * microsecond each. Nothing runs before that block, so no block waits for ever. */
template <typename arguments> INLINE bool is_aborted(const arguments *of)
{
    volatile uint32_t *relay = (volatile uint32_t *)of->counters + 1;
    bool relays = of->counters != 0 && of->ticket != 0, first = blockIdx.x == 0 && blockIdx.y == 0;
    if (relays && !first) {
        uint32_t told;
        do told = *relay;
        while (told >> 1 != of->ticket);
        return (told & 1) != 0;
    }
    bool aborted = *(const volatile uint64_t *)of->abort != 0;
    if (relays) *relay = of->ticket << 1 | (uint32_t)aborted;
    return aborted;
}

/* Returns true if the block has work to do. */
template <typename arguments> INLINE bool begin(const arguments *of)
{
    bool aborted = false;
    if ((of->flags & TTI_GPU_COPIED) != 0)
        for (uint32_t i = threadIdx.x; i < of->list_words; i += blockDim.x) copied_lists[i] = list_at(of, i);
    if (of->abort != 0 && threadIdx.x == 0) aborted = is_aborted(of);
    return __syncthreads_or(aborted) == 0;
}

/* A thread that sees the word sees all that was written: each block's writes are made visible before the block is
 * counted. */
template <typename arguments> INLINE void end(const arguments *of)
{
    uint32_t blocks = gridDim.x * gridDim.y;
    if (of->done == 0) return;
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    if (blocks > 1 && atomicInc((unsigned *)of->counters, blocks - 1) != blocks - 1) return;
    __threadfence_system();
    *(volatile uint64_t *)of->done = of->value;
}

#define KERNEL(name, arguments, body)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) name(const __grid_constant__ struct arguments given)             \
    {                                                                                                                  \
        if (begin(&given))                                                                                             \
            for (uint32_t part = blockIdx.y; part < given.parts; part += gridDim.y) body(&given, part);                \
        end(&given);                                                                                                   \
    }

/* ---- The host ------------------------------------------------------------------------------------------------------ */
#else

#define LOAD(of, x, factor) NAME_2(load_any, TYPE)((of)->reduction, x, factor)
#define FOLD(of, x, y) NAME_2(fold_any, TYPE)((of)->reduction, x, y)
#define STORE(of, x, count) NAME_2(store_any, TYPE)((of)->reduction, x, count)
#define IS_SCALED(of) ((of)->reduction == TTI_KERNEL_SCALED_SUM)

#define INLINE static inline
#define UNROLL

struct wide {
    uint32_t word[4];
};

INLINE uint64_t thread_index(void)
{
    return 0;
}

INLINE uint64_t thread_count(void)
{
    return 1;
}

/* A caller that says an address is a multiple of `bytes` must be right, since a GPU would stop otherwise. */
INLINE struct wide get_wide(const char *from, int bytes)
{
    struct wide made = {{0}};
    assert((uintptr_t)from % (unsigned)bytes == 0);
    memcpy(&made, from, (unsigned)bytes);
    return made;
}

INLINE void put_wide(char *to, struct wide value, int bytes)
{
    assert((uintptr_t)to % (unsigned)bytes == 0);
    memcpy(to, &value, (unsigned)bytes);
}

#define list_at(of, i) ((of)->elsewhere != 0 ? ((const uint64_t *)(uintptr_t)(of)->elsewhere)[i] : (of)->lists[i])
#define copied_list_at(of, i) list_at(of, i)

/* Device `host` has only words of word.h. */
#define KERNEL(name, arguments, body)                                                                                  \
    static void name(const void *pointer)                                                                              \
    {                                                                                                                  \
        const struct arguments *given = pointer;                                                                       \
        const struct tti_word *abort = (const struct tti_word *)(uintptr_t)given->abort;                               \
        bool aborted = abort != NULL && atomic_load_explicit(&abort->value, memory_order_acquire) != 0;                \
        for (uint32_t part = 0; part < given->parts && !aborted; part++) body(given, part);                            \
        if (given->done != 0) tti_word_store((struct tti_word *)(uintptr_t)given->done, given->value);                 \
    }

#endif

#endif
