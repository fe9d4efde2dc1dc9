/* SPDX-License-Identifier: Apache-2.0
 *
 * The arguments of the kernels, for the C compiler and for NVRTC. Addresses are numbers, so that both have one layout.
 *
 * Lists lie one after the other:
 *     fold   in [inputs], out [outputs], first [outputs + 1] (of slices), factor [inputs]
 *     scan   in [inputs], out [inputs], factor [inputs]
 *     move   a head of TTI_GPU_HEAD words for each part, then all targets
 */
#ifndef TTI_COLLECTIVE_GPU_ARGUMENTS_H
#define TTI_COLLECTIVE_GPU_ARGUMENTS_H

#if defined(__CUDACC_RTC__) /* NVRTC has no headers */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t, uintptr_t;
#else
#include <stdint.h>
#endif

enum {
    TTI_GPU_FEW = 8,          /* most inputs if lists are short */
    TTI_GPU_FEW_WORDS = 64,   /* words of lists among the arguments then */
    TTI_GPU_MANY_WORDS = 501, /* words of long lists: with them the arguments have the 4 KiB that every GPU takes */
    /* words of a head: from; bytes; the first target, the number of targets (from bit 32 on) and flags */
    TTI_GPU_HEAD = 3,
};

enum { /* flags of the arguments */
       TTI_GPU_SLICES = 1,
       TTI_GPU_EXCLUSIVE = 2,
       TTI_GPU_ALIGNED = 4, /* every pointer is aligned for the type */
       TTI_GPU_ALIKE = 8,   /* all inputs, and unless there are slices all outputs, are equal modulo 16 */
       TTI_GPU_COPIED = 16, /* lists lie elsewhere, and blocks copy them when they begin */
};

#define TTI_GPU_SWAP (1ull << 63) /* in a head: the data at the target go back to `from` */

#define TTI_GPU_ARGUMENTS(name, room)                                                                                  \
    struct name {                                                                                                      \
        uint64_t abort, done, value, counters;                                                                         \
        uint64_t elsewhere;  /* address of the lists; 0: they are in `lists` */                                        \
        uint64_t count;      /* elements of an input */                                                                \
        uint32_t list_words; /* words of the lists */                                                                  \
        uint32_t inputs;                                                                                               \
        uint32_t outputs;                                                                                              \
        uint32_t parts; /* slices, or heads; 1 for other kernels */                                                    \
        uint32_t flags;                                                                                                \
        uint32_t reduction; /* a column of kernels.h, for device `host` */                                             \
        uint32_t ticket, unused;                                                                                       \
        uint64_t lists[room];                                                                                          \
    }
TTI_GPU_ARGUMENTS(tti_gpu_few, TTI_GPU_FEW_WORDS);
TTI_GPU_ARGUMENTS(tti_gpu_many, TTI_GPU_MANY_WORDS);

#endif
