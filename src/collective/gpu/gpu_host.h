/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that device `host` runs as kernels. They take the structs of gpu_arguments.h, for short and for long
 * lists, whose `reduction` is set.
 */
#ifndef TTI_COLLECTIVE_GPU_HOST_H
#define TTI_COLLECTIVE_GPU_HOST_H

#include "collective/reduce/reduce_kernels.h"

struct tti_gpu_functions {
    void (*few)(const void *arguments), (*many)(const void *arguments);
};

extern const struct tti_gpu_functions tti_gpu_fold_functions[TUTTI_TYPE_COUNT];
extern const struct tti_gpu_functions tti_gpu_scan_functions[TUTTI_TYPE_COUNT];
extern const struct tti_gpu_functions tti_gpu_move_functions;

#endif
