/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda_api.h"

#include "base/status.h"
#include "device/library.h"
#include "device/object.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static const struct symbol {
    const char *name;
    size_t offset;
    bool needed;
} symbols[] = {
#define SYMBOL(field, symbol, parameters) {#symbol, offsetof(struct tti_cuda, field), true},
    TTI_CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
#define SYMBOL(field, symbol, parameters) {#symbol, offsetof(struct tti_cuda, field), false},
        TTI_CUDA_MORE_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

static struct {
    pthread_mutex_t lock;
    atomic_bool loaded;
    uint64_t process; /* the process in which it was started */
    struct tti_cuda cuda;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *tti_cuda_name(const struct tti_cuda *cuda, int code)
{
    const char *name = NULL;
    return cuda->error_name(code, &name) == TTI_CUDA_OK && name != NULL ? name : "an unknown result";
}

/* Checks the version first: the error names an old driver as such, not by the functions that it lacks. */
static tutti_status check_version(void *handle, const char *path, int *version, tutti_error *error)
{
    int (*tell)(int *) = (int (*)(int *))dlsym(handle, "cuDriverGetVersion");
    if (tell == NULL || tell(version) != TTI_CUDA_OK)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "%.200s does not tell its version: it is no CUDA driver",
                             path);
    if (*version >= TTI_CUDA_LEAST) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                         "%.200s is too old: it is for CUDA %d.%d, and %d.%d is needed; install NVIDIA's driver 525 or "
                         "newer",
                         path, *version / 1000, *version % 1000 / 10, TTI_CUDA_LEAST / 1000,
                         TTI_CUDA_LEAST % 1000 / 10);
}

static tutti_status fill_in(void *handle, const char *path, struct tti_cuda *cuda, tutti_error *error)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (found == NULL && symbols[i].needed)
            return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                                 "%.200s has no function %s; install NVIDIA's driver 525 or newer", path,
                                 symbols[i].name);
        memcpy((char *)cuda + symbols[i].offset, &found, sizeof found);
    }
    return TUTTI_OK;
}

static tutti_status load(struct tti_cuda *cuda, tutti_error *error)
{
    void *handle = NULL;
    char path[TTI_LIBRARY_PATH];
    TTI_TRY(tti_library_open(&tti_library_cuda, &handle, path, error));
    TTI_TRY(check_version(handle, path, &cuda->version, error));
    TTI_TRY(fill_in(handle, path, cuda, error));
    int code = cuda->init(0);
    if (code == TTI_CUDA_OK) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                         code == TTI_CUDA_NO_DEVICE
                             ? "%.200s sees no GPU: %s (%d) from cuInit; look at nvidia-smi and CUDA_VISIBLE_DEVICES"
                             : "%.200s cannot be used: %s (%d) from cuInit; look at nvidia-smi",
                         path, tti_cuda_name(cuda, code), code);
}

static const struct tti_cuda *loaded(tutti_error *error)
{
    if (state.process == tti_object_process()) return &state.cuda;
    tti_error_set(error, TUTTI_ERR_FORKED, 0,
                  "CUDA was started before this process was forked, and cannot be used here; fork first, or use exec");
    return NULL;
}

const struct tti_cuda *tti_cuda_load(tutti_error *error)
{
    struct tti_cuda fresh = {0};
    if (atomic_load_explicit(&state.loaded, memory_order_acquire)) return loaded(error);
    pthread_mutex_lock(&state.lock);
    bool here = atomic_load_explicit(&state.loaded, memory_order_relaxed);
    tutti_status status = here ? TUTTI_OK : load(&fresh, error);
    if (status == TUTTI_OK && !here) {
        state.cuda = fresh;
        state.process = tti_object_process();
        atomic_store_explicit(&state.loaded, true, memory_order_release);
    }
    pthread_mutex_unlock(&state.lock);
    return status == TUTTI_OK ? loaded(error) : NULL;
}
