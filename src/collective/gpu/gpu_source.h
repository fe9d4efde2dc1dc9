/* SPDX-License-Identifier: Apache-2.0
 *
 * The sources of the kernels as text, for NVRTC, which cmake/embed.cmake makes when the library is built; and the
 * programs that are compiled from them.
 */
#ifndef TTI_COLLECTIVE_GPU_SOURCE_H
#define TTI_COLLECTIVE_GPU_SOURCE_H

#include "collective/gpu/gpu_kernels.h"
#include "device/program.h"

extern const char tti_gpu_fold_source[], tti_gpu_scan_source[], tti_gpu_move_source[];

enum { TTI_GPU_OPTIONS = 12 };

struct tti_gpu_program {
    struct tti_program program; /* its options are those below */
    const char *options[TTI_GPU_OPTIONS];
};

/* Fills in a program. `reducer` was accepted by tti_gpu_prepare, or is NULL for move. */
void tti_gpu_program_of(enum tti_gpu_work work, const struct tti_reducer *reducer, bool many,
                        struct tti_gpu_program *made);

#endif
