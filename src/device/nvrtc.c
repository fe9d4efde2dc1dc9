/* SPDX-License-Identifier: Apache-2.0 */
#include "device/nvrtc.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "device/library.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <tutti/experimental.h>

enum { OPTIONS_MOST = 16, SHOWN_BYTES = 280 };

/* ---- Loading ------------------------------------------------------------------------------------------------------ */

static const struct symbol {
    const char *name;
    size_t offset;
} symbols[] = {
#define SYMBOL(field, symbol, parameters) {#symbol, offsetof(struct tti_nvrtc, field)},
    TTI_NVRTC_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

static struct {
    pthread_mutex_t lock;
    atomic_bool loaded;
    struct tti_nvrtc nvrtc;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Checks the version first: the error names an old library as such, not by the functions that it lacks. */
static tutti_status check_version(void *handle, const char *path, struct tti_nvrtc *nvrtc, tutti_error *error)
{
    int (*tell)(int *, int *) = (int (*)(int *, int *))dlsym(handle, "nvrtcVersion");
    if (tell == NULL || tell(&nvrtc->major, &nvrtc->minor) != TTI_NVRTC_OK)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "%.200s does not tell its version: it is no NVRTC", path);
    if (nvrtc->major >= TTI_NVRTC_LEAST) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                         "%.200s is too old: it is NVRTC %d.%d, and %d.0 is needed; %s", path, nvrtc->major,
                         nvrtc->minor, TTI_NVRTC_LEAST, tti_library_nvrtc.comes_with);
}

static tutti_status fill_in(void *handle, const char *path, struct tti_nvrtc *nvrtc, tutti_error *error)
{
    TTI_TRY(check_version(handle, path, nvrtc, error));
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (found == NULL)
            return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "%.200s has no function %s; %s", path,
                                 symbols[i].name, tti_library_nvrtc.comes_with);
        memcpy((char *)nvrtc + symbols[i].offset, &found, sizeof found);
    }
    return TUTTI_OK;
}

tutti_status tti_nvrtc_check(void *handle, const char *path, tutti_error *error)
{
    struct tti_nvrtc nvrtc = {0};
    return fill_in(handle, path, &nvrtc, error);
}

static tutti_status load(struct tti_nvrtc *nvrtc, tutti_error *error)
{
    void *handle = NULL;
    char path[TTI_LIBRARY_PATH];
    TTI_TRY(tti_library_open(&tti_library_nvrtc, &handle, path, error));
    return fill_in(handle, path, nvrtc, error);
}

const struct tti_nvrtc *tti_nvrtc_load(tutti_error *error)
{
    struct tti_nvrtc fresh = {0};
    if (atomic_load_explicit(&state.loaded, memory_order_acquire)) return &state.nvrtc;
    pthread_mutex_lock(&state.lock);
    bool here = atomic_load_explicit(&state.loaded, memory_order_relaxed);
    tutti_status status = here ? TUTTI_OK : load(&fresh, error);
    if (status == TUTTI_OK && !here) {
        state.nvrtc = fresh;
        atomic_store_explicit(&state.loaded, true, memory_order_release);
    }
    pthread_mutex_unlock(&state.lock);
    return status == TUTTI_OK ? &state.nvrtc : NULL;
}

/* ---- What it compiles for ----------------------------------------------------------------------------------------- */

tutti_status tti_nvrtc_target(const struct tti_nvrtc *nvrtc, int capability, char target[TTI_NVRTC_TARGET],
                              tutti_error *error)
{
    enum { MOST = 64 };
    int list[MOST], count = 0, newest = 0;
    bool known = false;
    if (nvrtc->count_architectures(&count) != TTI_NVRTC_OK || count > MOST ||
        nvrtc->architectures(list) != TTI_NVRTC_OK)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "NVRTC %d.%d does not tell which GPUs it compiles for",
                             nvrtc->major, nvrtc->minor);
    for (int i = 0; i < count; i++) {
        known = known || list[i] == capability;
        if (list[i] <= capability && list[i] > newest) newest = list[i];
    }
    if (newest == 0)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                             "NVRTC %d.%d does not compile for a GPU of capability %d.%d any more; get an older one",
                             nvrtc->major, nvrtc->minor, capability / 10, capability % 10);
    (void)snprintf(target, TTI_NVRTC_TARGET, known ? "-arch=sm_%d" : "-arch=compute_%d", newest);
    return TUTTI_OK;
}

/* ---- Compiling ---------------------------------------------------------------------------------------------------- */

/* Returns NVRTC's log, or NULL. */
static char *take_log(const struct tti_nvrtc *nvrtc, void *program)
{
    size_t bytes = 0;
    if (nvrtc->log_size(program, &bytes) != TTI_NVRTC_OK || bytes < 2) return NULL;
    char *log = tti_calloc(1, bytes + 1);
    if (log != NULL && nvrtc->log(program, log) == TTI_NVRTC_OK) return log;
    tti_free(log);
    return NULL;
}

static tutti_status tell_failure(const struct tti_nvrtc *nvrtc, void *program, const char *name, int code,
                                 tutti_error *error)
{
    char shown[SHOWN_BYTES];
    char *log = take_log(nvrtc, program);
    (void)snprintf(shown, sizeof shown, "%s", log == NULL ? "it says nothing more" : log);
    tti_log(TUTTI_ERROR, "NVRTC %d.%d cannot compile %s (result %d): %s", nvrtc->major, nvrtc->minor, name, code,
            log == NULL ? "it says nothing more" : log);
    tti_free(log);
    for (char *c = shown; *c != '\0'; c++)
        if (*c == '\n') *c = ' ';
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "NVRTC %d.%d cannot compile %s (result %d): %s", nvrtc->major,
                         nvrtc->minor, name, code, tutti_text_printable(shown));
}

/* Takes the GPU's own code, or PTX if there is none. */
static tutti_status take_code(const struct tti_nvrtc *nvrtc, void *program, const char *name, struct tti_code *code,
                              tutti_error *error)
{
    size_t bytes = 0;
    bool own = nvrtc->cubin_size(program, &bytes) == TTI_NVRTC_OK && bytes > 0;
    int result = own ? TTI_NVRTC_OK : nvrtc->ptx_size(program, &bytes);
    if (result != TTI_NVRTC_OK || bytes == 0) return tell_failure(nvrtc, program, name, result, error);
    char *made = tti_calloc(1, bytes + 1);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for the code of %s", name);
    result = own ? nvrtc->cubin(program, made) : nvrtc->ptx(program, made);
    if (result != TTI_NVRTC_OK) {
        tti_free(made);
        return tell_failure(nvrtc, program, name, result, error);
    }
    *code = (struct tti_code){made, bytes};
    return TUTTI_OK;
}

tutti_status tti_nvrtc_compile(const struct tti_nvrtc *nvrtc, const char *source, const char *name,
                               const char *const *options, const char *target, struct tti_code *code,
                               tutti_error *error)
{
    const char *all[OPTIONS_MOST] = {target};
    int count = 1;
    void *program = NULL;
    for (; options[count - 1] != NULL; count++) {
        if (count == OPTIONS_MOST)
            return tti_error_set(error, TUTTI_ERR_LIMIT, 0, "%s has too many options of NVRTC", name);
        all[count] = options[count - 1];
    }
    int result = nvrtc->create(&program, source, name, 0, NULL, NULL);
    if (result != TTI_NVRTC_OK)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "NVRTC %d.%d cannot begin with %s (result %d)",
                             nvrtc->major, nvrtc->minor, name, result);
    result = nvrtc->compile(program, count, all);
    tutti_status status = result != TTI_NVRTC_OK ? tell_failure(nvrtc, program, name, result, error)
                                                 : take_code(nvrtc, program, name, code, error);
    (void)nvrtc->destroy(&program);
    return status;
}
