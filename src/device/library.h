/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries for GPUs, loaded at run time from the places where they are usually installed: TUTTI_CUDA_PATH, the
 * loader's path, CUDA_HOME, the packages of a Python environment. A library that was loaded stays loaded until the
 * process ends.
 */
#ifndef TTI_DEVICE_LIBRARY_H
#define TTI_DEVICE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <tutti/experimental.h>

enum { TTI_LIBRARY_PATH = 512, TTI_LIBRARY_FILES = 4 };

struct tti_library {
    const char *name;                     /* "cuda" */
    const char *files[TTI_LIBRARY_FILES]; /* newest first, as many as there are */
    const char *comes_with;               /* says how to get it: "it comes with NVIDIA's driver" */
    /* Writes its version in the usual form; returns false if it has none. */
    bool (*version)(void *handle, char *text, size_t bytes);
    /* Returns OK if this file can be used, or ERR_UNSUPPORTED; NULL: any file can. */
    tutti_status (*check)(void *handle, const char *path, tutti_error *error);
    /* Writes what a file that can be used supports, for people; NULL: there is nothing to say. */
    void (*describe)(void *handle, char *text, size_t bytes);
};

extern const struct tti_library tti_library_cuda, tti_library_nvrtc, tti_library_nccl;

/* Returns the handle for dlsym, and where the file was found. ERR_UNSUPPORTED names the places that were searched and
 * how to get the library; for a file that exists but cannot be loaded it gives the loader's reason. By any thread. */
tutti_status tti_library_open(const struct tti_library *library, void **handle, char path[TTI_LIBRARY_PATH],
                              tutti_error *error);

#endif
