/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries of GPUs, loaded at run time from where people have them: TUTTI_CUDA_PATH, the loader's path, CUDA_HOME, the
 * packages of a Python environment. A library that was loaded stays so until the process ends.
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
    const char *comes_with;               /* how to get it: "it comes with NVIDIA's driver" */
    /* Writes its version as people know it; false: it does not tell. */
    bool (*version)(void *handle, char *text, size_t bytes);
    /* OK if this one can be used, or ERR_UNSUPPORTED; NULL: any can. */
    tutti_status (*check)(void *handle, const char *path, tutti_error *error);
    /* Writes what one that can be used has, for people; NULL: there is nothing to say. */
    void (*describe)(void *handle, char *text, size_t bytes);
};

extern const struct tti_library tti_library_cuda, tti_library_nvrtc, tti_library_nccl;

/* The handle for dlsym, and where it was found. ERR_UNSUPPORTED says where it was looked for and how to get it; what is
 * there but cannot be loaded is told with the loader's reason. By any thread. */
tutti_status tti_library_open(const struct tti_library *library, void **handle, char path[TTI_LIBRARY_PATH],
                              tutti_error *error);

#endif
