/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC, the compiler of kernels at run time: the part of it that is used here, with declarations of its own, loaded if
 * there is one (library.h). `make test-gpu` compares the declarations with nvrtc.h if that is installed.
 */
#ifndef TTI_DEVICE_NVRTC_H
#define TTI_DEVICE_NVRTC_H

#include <stddef.h>
#include <tutti/tutti.h>

enum { TTI_NVRTC_LEAST = 12 }; /* the oldest major version that can be used */

enum { TTI_NVRTC_OK = 0 }; /* the only result that is handled */

/* Columns: field, symbol, parameters. All functions are required. */
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

/* Loads it, once; NULL: *error says what is missing or too old (ERR_UNSUPPORTED). After a failure it may be tried
 * again. By any thread. */
const struct tti_nvrtc *tti_nvrtc_load(tutti_error *error);

/* Returns OK if a library that was found can be used; otherwise ERR_UNSUPPORTED says what is needed. */
tutti_status tti_nvrtc_check(void *handle, const char *path, tutti_error *error);

/* Sets the target for which a source is compiled: -arch=sm_90 if NVRTC knows this GPU, which gives its own code;
 * -arch=compute_N of the newest that NVRTC knows if the GPU is newer, which gives PTX for the driver to translate. */
enum { TTI_NVRTC_TARGET = 32 };
tutti_status tti_nvrtc_target(const struct tti_nvrtc *nvrtc, int capability, char target[TTI_NVRTC_TARGET],
                              tutti_error *error);

/* Compiled code, followed by a 0 that is not counted. */
struct tti_code {
    char *bytes; /* freed with tti_free; NULL: there is none */
    size_t count;
};

/* Compiles a source. `name` is for messages. `options` ends with NULL. ERR_UNSUPPORTED has the first lines of NVRTC's
 * log, which is logged completely. */
tutti_status tti_nvrtc_compile(const struct tti_nvrtc *nvrtc, const char *source, const char *name,
                               const char *const *options, const char *target, struct tti_code *code,
                               tutti_error *error);

#endif
