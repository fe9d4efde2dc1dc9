/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC, the compiler of kernels at run time: the part of it that is used here, declared by ourselves and loaded where there
 * is one (library.h). `make test-gpu` compares the declarations with nvrtc.h where that is.
 */
#ifndef TTI_DEVICE_NVRTC_H
#define TTI_DEVICE_NVRTC_H

#include <stddef.h>
#include <tutti/tutti.h>

enum { TTI_NVRTC_LEAST = 12 }; /* the oldest major version that will do */

enum { TTI_NVRTC_OK = 0 }; /* the one result that is told apart */

/* field, symbol, parameters: all are needed. */
/* clang-format off */
#define TTI_NVRTC_FUNCTIONS(X)                                                                                         \
    X(tell_version, nvrtcVersion, (int *major, int *minor))                                                            \
    X(count_architectures, nvrtcGetNumSupportedArchs, (int *count))                                                    \
    X(architectures, nvrtcGetSupportedArchs, (int *list))                                                              \
    X(create, nvrtcCreateProgram,                                                                                      \
      (void **program, const char *source, const char *name, int headers, const char *const *texts,                    \
       const char *const *includes))                                                                                   \
    X(destroy, nvrtcDestroyProgram, (void **program))                                                                  \
    X(compile, nvrtcCompileProgram, (void *program, int count, const char *const *options))                            \
    X(log_size, nvrtcGetProgramLogSize, (void *program, size_t *bytes))                                                \
    X(log, nvrtcGetProgramLog, (void *program, char *log))                                                             \
    X(cubin_size, nvrtcGetCUBINSize, (void *program, size_t *bytes))                                                   \
    X(cubin, nvrtcGetCUBIN, (void *program, char *code))                                                               \
    X(ptx_size, nvrtcGetPTXSize, (void *program, size_t *bytes))                                                       \
    X(ptx, nvrtcGetPTX, (void *program, char *code))
/* clang-format on */

struct tti_nvrtc {
#define TTI_NVRTC_FIELD(field, symbol, parameters) int(*field) parameters;
    TTI_NVRTC_FUNCTIONS(TTI_NVRTC_FIELD)
#undef TTI_NVRTC_FIELD
    int major, minor;
};

/* Loads it, once; NULL: *error says what is missing or too old (ERR_UNSUPPORTED). A try that failed may be made again. By any
 * thread. */
const struct tti_nvrtc *tti_nvrtc_load(tutti_error *error);

/* OK if a library that was found can be used; else ERR_UNSUPPORTED says what is needed. */
tutti_status tti_nvrtc_check(void *handle, const char *path, tutti_error *error);

/* What a source is compiled for: -arch=sm_90 where NVRTC knows this GPU, which gives its own code; -arch=compute_N of the
 * newest that it knows where the GPU is newer, which gives PTX, for the driver to translate. */
enum { TTI_NVRTC_TARGET = 32 };
tutti_status tti_nvrtc_target(const struct tti_nvrtc *nvrtc, int capability, char target[TTI_NVRTC_TARGET],
                              tutti_error *error);

/* Compiled code, which ends with a 0 that is not counted. */
struct tti_code {
    char *bytes; /* tti_free; NULL: none */
    size_t count;
};

/* `name` is for messages. `options` ends with NULL. On failure ERR_UNSUPPORTED has the first lines of NVRTC's log, all of
 * which goes to our log. */
tutti_status tti_nvrtc_compile(const struct tti_nvrtc *nvrtc, const char *source, const char *name,
                               const char *const *options, const char *target, struct tti_code *code,
                               tutti_error *error);

#endif
