/* SPDX-License-Identifier: Apache-2.0 */
#include "device/nccl_api.h"

#include "base/status.h"
#include "device/library.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct symbol {
    const char *name;
    size_t offset;
    bool needed;
} symbols[] = {
#define SYMBOL(type, field, symbol, parameters) {#symbol, offsetof(struct tti_nccl, field), true},
    TTI_NCCL_FUNCTIONS(SYMBOL)
#undef SYMBOL
#define SYMBOL(type, field, symbol, parameters) {#symbol, offsetof(struct tti_nccl, field), false},
        TTI_NCCL_MORE_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

static struct {
    pthread_mutex_t lock;
    atomic_bool loaded;
    struct tti_nccl nccl;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Checks the version first: the error names an old library as such, not by the functions that it lacks. */
static tutti_status check_version(void *handle, const char *path, int *number, tutti_error *error)
{
    int (*tell)(int *) = (int (*)(int *))dlsym(handle, "ncclGetVersion");
    if (tell == NULL || tell(number) != TTI_NCCL_OK)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "%.200s does not tell its version: it is no NCCL", path);
    if (*number >= TTI_NCCL_LEAST) return TUTTI_OK;
    int unit = *number < 10000 ? 1000 : 10000; /* 2708 is 2.7.8, 21805 is 2.18.5 */
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                         "%.200s is too old: it is NCCL %d.%d.%d, and %d.%d is needed; %s", path, *number / unit,
                         *number % unit / 100, *number % 100, TTI_NCCL_LEAST / 10000, TTI_NCCL_LEAST / 100 % 100,
                         tti_library_nccl.comes_with);
}

static tutti_status fill_in(void *handle, const char *path, struct tti_nccl *nccl, tutti_error *error)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (found == NULL && symbols[i].needed)
            return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                                 "%.200s has no function %s; install NCCL %d.%d or newer", path, symbols[i].name,
                                 TTI_NCCL_LEAST / 10000, TTI_NCCL_LEAST / 100 % 100);
        memcpy((char *)nccl + symbols[i].offset, &found, sizeof found);
    }
    return TUTTI_OK;
}

tutti_status tti_nccl_check(void *handle, const char *path, tutti_error *error)
{
    struct tti_nccl nccl = {0};
    TTI_TRY(check_version(handle, path, &nccl.number, error));
    return fill_in(handle, path, &nccl, error);
}

int tti_nccl_type_of(tutti_type type)
{
    switch (type) {
    case TUTTI_F64: return TTI_NCCL_F64;
    case TUTTI_F32: return TTI_NCCL_F32;
    case TUTTI_F16: return TTI_NCCL_F16;
    case TUTTI_BF16: return TTI_NCCL_BF16;
    case TUTTI_F8E4M3: return TTI_NCCL_F8E4M3;
    case TUTTI_F8E5M2: return TTI_NCCL_F8E5M2;
    case TUTTI_I8: return TTI_NCCL_I8;
    case TUTTI_U8: return TTI_NCCL_U8;
    case TUTTI_I32: return TTI_NCCL_I32;
    case TUTTI_U32: return TTI_NCCL_U32;
    case TUTTI_I64: return TTI_NCCL_I64;
    case TUTTI_U64: return TTI_NCCL_U64;
    default: return -1;
    }
}

/* Writes "f64, f32" and so on: the names of NCCL's types, without those of 8 bits, which not every version has. */
static void list_types(char *text, size_t bytes)
{
    size_t used = 0;
    for (int i = 0; i < TUTTI_TYPE_COUNT && used < bytes; i++) {
        bool float8 = i == TUTTI_F8E4M3 || i == TUTTI_F8E5M2;
        if (float8 || tti_nccl_type_of((tutti_type)i) < 0) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used == 0 ? "" : " ",
                                 tutti_type_name((tutti_type)i));
    }
}

void tti_nccl_describe(void *handle, char *text, size_t bytes)
{
    struct tti_nccl nccl = {0};
    char types[80] = "";
    tutti_error ignored = {0};
    if (check_version(handle, "", &nccl.number, &ignored) != TUTTI_OK ||
        fill_in(handle, "", &nccl, &ignored) != TUTTI_OK)
        return;
    list_types(types, sizeof types);
    (void)snprintf(
        text, bytes,
        "reduces %s, 8-bit floats %s; a lost rank is left by %s; scans, other types and bit reductions, averages "
        "of integers, reductions of one's own and all_to_all in place are staged",
        types, nccl.number >= TTI_NCCL_FLOAT8 ? "on GPUs of capability 9.0 and newer" : "from 2.24 on",
        nccl.revoke != NULL ? "revoke and abort" : "abort alone (revoke comes with 2.28.7)");
}

static tutti_status load(struct tti_nccl *nccl, tutti_error *error)
{
    void *handle = NULL;
    char path[TTI_LIBRARY_PATH];
    TTI_TRY(tti_library_open(&tti_library_nccl, &handle, path, error));
    TTI_TRY(check_version(handle, path, &nccl->number, error));
    return fill_in(handle, path, nccl, error);
}

const struct tti_nccl *tti_nccl_load(tutti_error *error)
{
    struct tti_nccl fresh = {0};
    if (atomic_load_explicit(&state.loaded, memory_order_acquire)) return &state.nccl;
    pthread_mutex_lock(&state.lock);
    bool here = atomic_load_explicit(&state.loaded, memory_order_relaxed);
    tutti_status status = here ? TUTTI_OK : load(&fresh, error);
    if (status == TUTTI_OK && !here) {
        state.nccl = fresh;
        atomic_store_explicit(&state.loaded, true, memory_order_release);
    }
    pthread_mutex_unlock(&state.lock);
    return status == TUTTI_OK ? &state.nccl : NULL;
}
