/* SPDX-License-Identifier: Apache-2.0
 *
 * One loop, compiled once per instruction set and chosen at run time. TTI_VARIANTS(name, (parameters), (arguments))
 * takes the always-inlined function name_body and defines the table name_variants. Elements do not depend on each other
 * and nothing is contracted, so every set computes the same bits.
 */
#ifndef TTI_TRAIN_VARIANTS_H
#define TTI_TRAIN_VARIANTS_H

#include "collective/reduce/reduce.h"

#include <string.h>

#define TTI_BODY static inline __attribute__((always_inline)) void

enum tti_set { TTI_SET_PORTABLE, TTI_SET_AVX2, TTI_SET_AVX512, TTI_SETS };

#if defined(__x86_64__)
#define TTI_TARGET_AVX2 __attribute__((target("avx2")))
#define TTI_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define TTI_TARGET_AVX2
#define TTI_TARGET_AVX512
#endif

#define TTI_VARIANTS(name, parameters, arguments)                                                                      \
    static void name##_portable parameters                                                                             \
    {                                                                                                                  \
        name##_body arguments;                                                                                         \
    }                                                                                                                  \
    TTI_TARGET_AVX2 static void name##_avx2 parameters                                                                 \
    {                                                                                                                  \
        name##_body arguments;                                                                                         \
    }                                                                                                                  \
    TTI_TARGET_AVX512 static void name##_avx512 parameters                                                             \
    {                                                                                                                  \
        name##_body arguments;                                                                                         \
    }                                                                                                                  \
    static void(*const name##_variants[TTI_SETS]) parameters = {                                                       \
        [TTI_SET_PORTABLE] = name##_portable, [TTI_SET_AVX2] = name##_avx2, [TTI_SET_AVX512] = name##_avx512}

/* Returns the set that the reductions use. */
static inline enum tti_set tti_set_now(void)
{
    const char *name = tti_kernels_name();
    if (strcmp(name, "avx512") == 0) return TTI_SET_AVX512;
    return strcmp(name, "avx2") == 0 ? TTI_SET_AVX2 : TTI_SET_PORTABLE;
}

#endif
