/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs: the source of a kernel for GPUs, which is compiled when it is first needed (nvrtc.h, code_cache.h), and the
 * same as a function for device `host`. A program that was prepared on a device stays ready until the device is shut
 * down or opened again.
 */
#ifndef TTI_DEVICE_PROGRAM_H
#define TTI_DEVICE_PROGRAM_H

#include "device/ops.h"

struct tti_program {
    const char *name;                        /* the kernel's name; a constant that no other program has */
    const char *source;                      /* it includes nothing */
    const char *const *options;              /* options for NVRTC, besides the architecture; ends with NULL */
    void (*function)(const void *arguments); /* for device `host` */
};

/* Finds the kernel among those of the device, or compiles and loads it, which waits for all work on a GPU. By any
 * thread; several that want the same kernel wait for the first. ERR_UNSUPPORTED: NVRTC is missing, or fails as the
 * sentence says. */
tutti_status tti_program_prepare(struct tti_device *device, const struct tti_program *program,
                                 const struct tti_kernel **kernel, tutti_error *error);

/* For a device on which a program was prepared; 1 if it is no GPU. */
int tti_program_multiprocessors(struct tti_device *device);

/* Called when the device is shut down. */
void tti_programs_clear(struct tti_device *device);

#endif
