/* SPDX-License-Identifier: Apache-2.0
 *
 * The sources of the kernels as text, for NVRTC; made by cmake/embed.cmake when the library is built.
 */
#ifndef TTI_COLLECTIVE_GPU_SOURCE_H
#define TTI_COLLECTIVE_GPU_SOURCE_H

extern const char tti_gpu_fold_source[], tti_gpu_scan_source[], tti_gpu_move_source[];

#endif
