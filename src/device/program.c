/* SPDX-License-Identifier: Apache-2.0 */
#include "device/program.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wait.h"
#include "device/code_cache.h"
#include "device/nvrtc.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>

enum { BUCKETS = 64 };

struct ready {
    struct tti_kernel kernel;
    struct ready *next;
};

/* The programs of one device. Entries stay until it is shut down, so a reader that has found one needs no lock. */
struct tti_programs {
    _Atomic(struct ready *) bucket[BUCKETS];
    int multiprocessors;
};

/* One thread compiles and loads at a time; others that want the same program find it afterwards. */
static pthread_mutex_t preparing = PTHREAD_MUTEX_INITIALIZER;

/* ---- Those that are ready ----------------------------------------------------------------------------------------- */

static _Atomic(struct ready *) *bucket_of(struct tti_programs *programs, const char *name)
{
    return &programs->bucket[(uintptr_t)name / 16 % BUCKETS]; /* names are constants, each at an address of its own */
}

static const struct tti_kernel *find(struct tti_device *device, const char *name)
{
    struct tti_programs *programs = atomic_load_explicit(&device->programs, memory_order_acquire);
    if (programs == NULL) return NULL;
    struct ready *ready = atomic_load_explicit(bucket_of(programs, name), memory_order_acquire);
    while (ready != NULL && ready->kernel.name != name) ready = ready->next;
    return ready == NULL ? NULL : &ready->kernel;
}

/* Adds a kernel to those of the device. With the lock held. */
static tutti_status keep(struct tti_device *device, const struct tti_kernel *kernel, int multiprocessors,
                         tutti_error *error)
{
    struct tti_programs *programs = atomic_load_explicit(&device->programs, memory_order_relaxed);
    struct ready *ready = tti_calloc(1, sizeof *ready);
    if (programs == NULL && ready != NULL) {
        programs = tti_calloc(1, sizeof *programs);
        if (programs != NULL) programs->multiprocessors = multiprocessors > 0 ? multiprocessors : 1;
        atomic_store_explicit(&device->programs, programs, memory_order_release);
    }
    if (programs == NULL || ready == NULL) {
        tti_free(ready);
        return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory to keep %s", kernel->name);
    }
    _Atomic(struct ready *) *bucket = bucket_of(programs, kernel->name);
    ready->kernel = *kernel;
    ready->next = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(bucket, ready, memory_order_release);
    return TUTTI_OK;
}

void tti_programs_clear(struct tti_device *device)
{
    struct tti_programs *programs = atomic_load_explicit(&device->programs, memory_order_relaxed);
    for (int i = 0; i < BUCKETS && programs != NULL; i++) {
        struct ready *ready = atomic_load_explicit(&programs->bucket[i], memory_order_relaxed);
        while (ready != NULL) {
            struct ready *next = ready->next;
            tti_free(ready);
            ready = next;
        }
    }
    tti_free(programs);
    atomic_store_explicit(&device->programs, NULL, memory_order_relaxed);
}

/* ---- Making one ready --------------------------------------------------------------------------------------------- */

static tutti_status compile(const struct tti_nvrtc *nvrtc, const struct tti_program *program, const char *target,
                            const char *key, struct tti_code *code, tutti_error *error)
{
    TTI_TRY(tti_nvrtc_compile(nvrtc, program->source, program->name, program->options, target, code, error));
    tti_code_write(key, code);
    return TUTTI_OK;
}

/* Loads the code. If the driver refuses code from disk, it is compiled again, once: another driver may have left the
 * file. */
static tutti_status load_compiled(struct tti_device *device, const struct tti_program *program, int capability,
                                  struct tti_kernel *kernel, tutti_error *error)
{
    struct tti_code code = {0};
    char target[TTI_NVRTC_TARGET], key[TTI_CODE_KEY];
    const struct tti_nvrtc *nvrtc = tti_nvrtc_load(error);
    if (nvrtc == NULL) return error->status;
    TTI_TRY(tti_nvrtc_target(nvrtc, capability, target, error));
    tti_code_key(nvrtc, program->source, program->options, target, key);
    bool kept = tti_code_read(key, &code);
    if (!kept) TTI_TRY(compile(nvrtc, program, target, key, &code, error));
    tutti_status status = device->ops->load(device, code.bytes, kernel, error);
    if (kept && status != TUTTI_OK && status != TUTTI_ERR_DEVICE && status != TUTTI_ERR_MEMORY) {
        tti_free(code.bytes);
        code = (struct tti_code){0};
        status = compile(nvrtc, program, target, key, &code, error);
        if (status == TUTTI_OK) status = device->ops->load(device, code.bytes, kernel, error);
    }
    tti_free(code.bytes);
    return status;
}

static tutti_status make_ready(struct tti_device *device, const struct tti_program *program, tutti_error *error)
{
    struct tti_kernel kernel = {.name = program->name, .function = program->function};
    tutti_device_about about = {.struct_size = sizeof about};
    TTI_TRY(device->ops->describe(device, &about, error));
    if (about.capability == 0) /* there is no GPU, so no code */
        TTI_TRY(device->ops->load(device, NULL, &kernel, error));
    else
        TTI_TRY(load_compiled(device, program, about.capability, &kernel, error));
    return keep(device, &kernel, about.multiprocessors, error);
}

tutti_status tti_program_prepare(struct tti_device *device, const struct tti_program *program,
                                 const struct tti_kernel **kernel, tutti_error *error)
{
    tutti_status status = TUTTI_OK;
    *kernel = find(device, program->name);
    if (*kernel != NULL) return TUTTI_OK;
    pthread_mutex_lock(&preparing);
    *kernel = find(device, program->name);
    if (*kernel == NULL) {
        status = make_ready(device, program, error);
        *kernel = find(device, program->name);
    }
    pthread_mutex_unlock(&preparing);
    return status;
}

int tti_program_multiprocessors(struct tti_device *device)
{
    struct tti_programs *programs = atomic_load_explicit(&device->programs, memory_order_acquire);
    return programs == NULL ? 1 : programs->multiprocessors;
}
