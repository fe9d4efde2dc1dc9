/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens, closes and re-opens devices, and has the beginnings that all their functions share.
 *
 * Opening a device that is open gives the same one: a GPU that fails or is opened again is so for all ranks of the
 * process that use it. Inside a simulated run each open makes a device of its own, as if its task were a process.
 */
#include "device/open.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sim.h"
#include "base/status.h"
#include "device/buffer.h"
#include "device/find.h"
#include "device/nvrtc.h"
#include "device/pinned.h"
#include "device/program.h"
#include "device/stream.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/experimental.h>

static const struct tti_device_ops *const kinds[] = {&tti_host_ops, &tti_cuda_ops};
enum { KINDS = sizeof kinds / sizeof *kinds, KIND_BYTES = 8 };

static struct {
    pthread_mutex_t lock;
    struct tti_device *first;
    atomic_int count;
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tti_devices_forked(void)
{
    pthread_mutex_init(&devices.lock, NULL);
    devices.first = NULL; /* they are the parent's: nothing of them works here */
    atomic_store_explicit(&devices.count, 0, memory_order_relaxed);
    tti_find_forked();
}

bool tti_devices_any(void)
{
    return atomic_load_explicit(&devices.count, memory_order_relaxed) != 0;
}

void tti_devices_each(bool (*each)(struct tti_device *device, void *context), void *context)
{
    pthread_mutex_lock(&devices.lock);
    struct tti_device *device = devices.first;
    while (device != NULL && each(device, context)) device = device->next;
    pthread_mutex_unlock(&devices.lock);
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

tutti_error *tti_error_begin(tutti_error *error, tutti_error *none, const char *operation)
{
    if (error == NULL) error = none;
    *error = (tutti_error){.status = TUTTI_OK, .rank = -1, .peer = -1};
    (void)snprintf(error->operation, sizeof error->operation, "%s", operation);
    return error;
}

static struct {
    _Atomic uint32_t lock, noted;
    char text[TTI_POISON_TEXT];
} failure; /* of the first device; outlives it */

static void note_failure(const char *text)
{
    tti_lock(&failure.lock);
    if (atomic_load_explicit(&failure.noted, memory_order_relaxed) == 0)
        (void)snprintf(failure.text, sizeof failure.text, "%s", text);
    atomic_store_explicit(&failure.noted, 1, memory_order_release);
    tti_unlock(&failure.lock);
}

const char *tti_devices_failure(void)
{
    return atomic_load_explicit(&failure.noted, memory_order_acquire) == 0 ? NULL : failure.text;
}

void tti_device_poison(struct tti_device *device, const char *library, int code, const char *code_name,
                       const char *what)
{
    tti_lock(&device->lock);
    bool first = !tti_device_is_poisoned(device);
    if (first) {
        (void)snprintf(device->poison_text, sizeof device->poison_text,
                       "%s has failed: %s (%d) from %s, seen in %s. Nothing on it works any more in this process: end "
                       "the process and start it again",
                       device->name, code_name, code, library, what);
        atomic_store_explicit(&device->poisoned, 1, memory_order_release);
    }
    tti_unlock(&device->lock);
    if (first && !device->simulated) note_failure(device->poison_text);
    if (first) tti_log(TUTTI_ERROR, "%s", device->poison_text);
}

tutti_status tti_device_poison_error(struct tti_device *device, tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_DEVICE, 0, "%s", device->poison_text);
}

tutti_status tti_device_usable(struct tti_device *device, uint64_t generation, const char *noun, tutti_error *error)
{
    uint64_t now = tti_device_generation(device);
    if (generation != now)
        return tti_error_set(error, TUTTI_ERR_STALE, 0,
                             "the %s is of generation %llu of %s, which was re-opened since and is of generation %llu; "
                             "make a new one",
                             noun, (unsigned long long)generation, device->name, (unsigned long long)now);
    if (atomic_load_explicit(&device->shut, memory_order_acquire) != 0)
        return tti_error_set(error, TUTTI_ERR_STALE, 0,
                             "the %s belongs to %s, which was shut down; open it and make a new one", noun,
                             device->name);
    return tti_device_is_poisoned(device) ? tti_device_poison_error(device, error) : TUTTI_OK;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static const struct tti_device_ops *kind_of(const char *name, size_t length)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strlen(kinds[i]->kind) == length && strncmp(kinds[i]->kind, name, length) == 0) return kinds[i];
    return NULL;
}

static tutti_status unknown(const char *name, tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "\"%.32s\" is no device; give \"host\", or \"cuda:N\" with the number of a GPU", name);
}

static tutti_status parse(const char *name, const struct tti_device_ops **ops, int *number, tutti_error *error)
{
    if (name == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the device's name is NULL");
    size_t length = strcspn(name, ":");
    const char *digits = name[length] == ':' ? name + length + 1 : "0";
    size_t count = strspn(digits, "0123456789");
    *ops = kind_of(name, length);
    if (*ops == NULL || count == 0 || count > 4 || digits[count] != '\0') return unknown(name, error);
    *number = atoi(digits);
    return TUTTI_OK;
}

tutti_status tti_device_check_name(const char *name, tutti_error *error)
{
    const struct tti_device_ops *ops;
    int number;
    return parse(name, &ops, &number, error);
}

tutti_status tutti_device_count(const char *kind, int *count, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "device_count");
    if (kind == NULL || count == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "kind or count is NULL");
    const struct tti_device_ops *ops = kind_of(kind, strlen(kind));
    *count = 0;
    if (ops == NULL) return unknown(kind, error);
    return ops->count(count, error);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static void destroy(struct tti_object *object)
{
    struct tti_device *device = TTI_LIST_OF(object, struct tti_device, object);
    tti_words_free(device);
    device->ops->destroy(device);
}

static void name_device(struct tti_device *device, const struct tti_device_ops *ops, int number)
{
    if (ops == &tti_host_ops && number == 0)
        (void)snprintf(device->name, sizeof device->name, "%s", ops->kind);
    else
        (void)snprintf(device->name, sizeof device->name, "%.*s:%d", KIND_BYTES - 1, ops->kind, number);
}

/* The device that should be opened. */
struct wanted {
    const struct tti_device_ops *ops;
    int number;
    void *context;
};

static tutti_status make(const struct wanted *wanted, struct tti_device **made, tutti_error *error)
{
    const struct tti_device_ops *ops = wanted->ops;
    struct tti_device *device = NULL;
    TTI_TRY(ops->make(wanted->number, wanted->context, &device, error));
    device->ops = ops;
    device->number = wanted->number;
    device->foreign = wanted->context;
    name_device(device, ops, wanted->number);
    device->opens = 1;
    device->simulated = tti_sim != NULL;
    atomic_store_explicit(&device->generation, 1, memory_order_relaxed);
    tti_list_init(&device->streams);
    tti_list_init(&device->buffers);
    tti_list_init(&device->limbo);
    tti_list_init(&device->pinned);
    tti_object_init(&device->object, TTI_OBJECT_DEVICE, destroy);
    tutti_status status = ops->start(device, error);
    if (status == TUTTI_OK && !tti_object_publish(&device->object)) {
        ops->shut(device);
        status = tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a device's handle");
    }
    if (status != TUTTI_OK) {
        tti_object_give(&device->object);
        return status;
    }
    *made = device;
    return TUTTI_OK;
}

static bool is_wanted(const struct tti_device *device, const struct wanted *wanted)
{
    return device->ops == wanted->ops && device->number == wanted->number && device->foreign == wanted->context;
}

/* Opens a device. With the lock held, unless it is a simulated one. */
static tutti_status open_locked(const struct wanted *wanted, tutti_device **handle, tutti_error *error)
{
    struct tti_device *device = tti_sim != NULL ? NULL : devices.first;
    while (device != NULL && !is_wanted(device, wanted)) device = device->next;
    if (device != NULL) {
        device->opens++;
        *handle = device->object.handle;
        return TUTTI_OK;
    }
    TTI_TRY(make(wanted, &device, error));
    *handle = device->object.handle;
    if (device->simulated) return TUTTI_OK;
    device->next = devices.first;
    devices.first = device;
    atomic_fetch_add_explicit(&devices.count, 1, memory_order_relaxed);
    return TUTTI_OK;
}

static tutti_status open_device(const struct wanted *wanted, tutti_device **device, tutti_error *error)
{
    (void)tti_object_process(); /* notices forks from now on */
    if (tti_sim != NULL) return open_locked(wanted, device, error);
    pthread_mutex_lock(&devices.lock);
    tutti_status status = open_locked(wanted, device, error);
    pthread_mutex_unlock(&devices.lock);
    return status;
}

tutti_status tutti_device_open(const char *name, tutti_device **device, tutti_error *error)
{
    struct wanted wanted = {0};
    tutti_error none;
    error = tti_error_begin(error, &none, "device_open");
    if (device == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "where the device shall go is NULL");
    *device = NULL;
    TTI_TRY(parse(name, &wanted.ops, &wanted.number, error));
    return open_device(&wanted, device, error);
}

tutti_status tutti_device_adopt(const char *kind, void *context, tutti_device **device, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "device_adopt");
    if (kind == NULL || context == NULL || device == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "kind, context, or where the device shall go is NULL");
    *device = NULL;
    struct wanted wanted = {.ops = kind_of(kind, strlen(kind)), .context = context};
    if (wanted.ops == NULL) return unknown(kind, error);
    if (wanted.ops->adopt == NULL)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "a device of kind %s has no context to adopt", kind);
    TTI_TRY(wanted.ops->adopt(context, &wanted.number, error));
    return open_device(&wanted, device, error);
}

bool tutti_has(const char *what)
{
    tutti_library library = {.struct_size = sizeof library};
    tutti_error none;
    int count = 0;
    if (what == NULL) return false;
    if (strcmp(what, "cuda") == 0) return tutti_device_count("cuda", &count, NULL) == TUTTI_OK && count > 0;
    if (strcmp(what, "nvrtc") == 0) return tti_nvrtc_load(tti_error_begin(NULL, &none, "has")) != NULL;
    return tutti_library_find(what, &library, NULL) == TUTTI_OK;
}

struct tti_device *tti_device_take(tutti_device *handle, tutti_error *error)
{
    struct tti_object *object = tti_object_take(handle, TTI_OBJECT_DEVICE, error);
    return object == NULL ? NULL : TTI_LIST_OF(object, struct tti_device, object);
}

/* ---- Closing ----------------------------------------------------------------------------------------------------- */

/* Shuts the device down. Everything on it is stale already, so that nothing new comes. A failure is reported, and does
 * not stop the rest. */
static tutti_status shut_down(struct tti_device *device, tutti_error *error)
{
    tutti_status status = tti_streams_end(device, tti_now_ns() + TTI_DEVICE_CLOSE_NS, error);
    tti_buffers_reclaim(device);
    tti_pinned_clear(device);
    tti_words_withdraw(device);
    device->ops->shut(device);
    tti_programs_clear(device);
    return status;
}

/* Returns true if it was the last close. */
static bool unlink_last(struct tti_device *device)
{
    if (device->simulated) return --device->opens == 0;
    pthread_mutex_lock(&devices.lock);
    bool last = --device->opens == 0;
    struct tti_device **link = &devices.first;
    while (last && *link != device) link = &(*link)->next;
    if (last) *link = device->next;
    pthread_mutex_unlock(&devices.lock);
    if (last) atomic_fetch_sub_explicit(&devices.count, 1, memory_order_relaxed);
    return last;
}

tutti_status tutti_device_free(tutti_device *handle, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "device_close");
    if (handle == NULL) return TUTTI_OK;
    struct tti_device *device = tti_device_take(handle, error);
    if (device == NULL) return error->status;
    tutti_status status = TUTTI_OK;
    if (unlink_last(device)) {
        atomic_store_explicit(&device->shut, 1, memory_order_release);
        struct tti_object *object = tti_object_revoke(handle, TTI_OBJECT_DEVICE, NULL);
        status = shut_down(device, error);
        tti_object_give(object);
    }
    tti_object_give(&device->object);
    return status;
}

static tutti_status reopen(struct tti_device *device, tutti_error *error)
{
    if (tti_device_is_poisoned(device)) return tti_device_poison_error(device, error);
    atomic_fetch_add_explicit(&device->generation, 1, memory_order_acq_rel);
    tutti_status ended = shut_down(device, error);
    tutti_error again = *error;
    tutti_status status = device->ops->start(device, &again);
    if (status == TUTTI_OK) {
        status = tti_words_enlist(device, &again);
        if (status != TUTTI_OK) device->ops->shut(device);
    }
    if (status == TUTTI_OK) return ended;
    atomic_store_explicit(&device->shut, 1, memory_order_release); /* from now on it can only be closed */
    *error = again;
    return status;
}

tutti_status tutti_device_reopen(tutti_device *handle, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "device_reopen");
    struct tti_device *device = tti_device_take(handle, error);
    if (device == NULL) return error->status;
    tutti_status status = reopen(device, error);
    tti_object_give(&device->object);
    return status;
}

/* ---- About a device ---------------------------------------------------------------------------------------------- */

tutti_status tutti_device_describe(tutti_device *handle, tutti_device_about *about, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "device_describe");
    if (about == NULL || about->struct_size < sizeof *about)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "struct_size of tutti_device_about is not set to sizeof(tutti_device_about)");
    struct tti_device *device = tti_device_take(handle, error);
    if (device == NULL) return error->status;
    tutti_device_about found = {
        .struct_size = about->struct_size, .generation = tti_device_generation(device), .number = device->number};
    tutti_status status = tti_device_usable(device, found.generation, "handle", error);
    if (status == TUTTI_OK) status = device->ops->describe(device, &found, error);
    if (status == TUTTI_OK) memcpy(about, &found, sizeof found);
    tti_object_give(&device->object);
    return status;
}

bool tutti_device_reaches(tutti_device *handle, tutti_device *other_handle)
{
    tutti_error none;
    struct tti_device *device = tti_device_take(handle, &none), *other = tti_device_take(other_handle, &none);
    bool reaches = device != NULL && other != NULL && device->ops == other->ops && device->ops->reaches(device, other);
    if (device != NULL) tti_object_give(&device->object);
    if (other != NULL) tti_object_give(&other->object);
    return reaches;
}

const char *tutti_device_name(tutti_device *handle)
{
    struct tti_device *device = tti_device_take(handle, NULL);
    if (device == NULL) return NULL;
    const char *name = device->name;
    tti_object_give(&device->object); /* the handle still refers to it */
    return name;
}
