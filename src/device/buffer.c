/* SPDX-License-Identifier: Apache-2.0 */
#include "device/buffer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "device/buffer_uses.h"
#include "device/find.h"
#include "device/open.h"
#include "device/stream.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- State ------------------------------------------------------------------------------------------------------- */

struct tti_device_buffer *tti_buffer_take(tutti_buffer *handle, tutti_error *error)
{
    struct tti_object *object = tti_object_take(handle, TTI_OBJECT_BUFFER, error);
    return object == NULL ? NULL : TTI_LIST_OF(object, struct tti_device_buffer, object);
}

tutti_status tti_buffer_usable(struct tti_device_buffer *buffer, tutti_error *error)
{
    if (atomic_load_explicit(&buffer->dropped, memory_order_acquire) != 0)
        return tti_error_set(error, TUTTI_ERR_STALE, 0, "the buffer on %s was freed (dropped) before this call",
                             buffer->device->name);
    return tti_device_usable(buffer->device, buffer->generation, "buffer", error);
}

tutti_status tti_buffer_range(struct tti_device_buffer *buffer, size_t offset, size_t count, char **at,
                              tutti_error *error)
{
    TTI_TRY(tti_buffer_usable(buffer, error));
    if (offset > buffer->count || count > buffer->count - offset)
        return tti_error_set(error, TUTTI_ERR_COUNT, 0,
                             "%zu elements from %zu on end past the buffer on %s, which has %zu", count, offset,
                             buffer->device->name, buffer->count);
    *at = buffer->memory.base + offset * tutti_type_bytes(buffer->type);
    return TUTTI_OK;
}

/* ---- Making and dropping ----------------------------------------------------------------------------------------- */

/* Withdraws the offer, so that no other process maps the buffer any more. One that has mapped it keeps that. */
static void withdraw_offer(struct tti_device_buffer *buffer)
{
    if (buffer->offered != 0) close(buffer->offered_fd);
    buffer->offered = 0;
}

static void destroy(struct tti_object *object)
{
    struct tti_device_buffer *buffer = TTI_LIST_OF(object, struct tti_device_buffer, object);
    struct tti_device *device = buffer->device;
    withdraw_offer(buffer);
    tti_free(buffer);
    tti_object_give(&device->object);
}

static void link_to(struct tti_device *device, struct tti_link *list, struct tti_device_buffer *buffer)
{
    tti_lock(&device->lock);
    tti_list_remove(&buffer->link);
    tti_list_append(list, &buffer->link);
    tti_unlock(&device->lock);
}

/* Returns false if its device has reclaimed it. */
static bool unlink_buffer(struct tti_device_buffer *buffer)
{
    struct tti_device *device = buffer->device;
    tti_lock(&device->lock);
    bool there = !buffer->reclaimed;
    if (there) tti_list_remove(&buffer->link);
    tti_unlock(&device->lock);
    return there;
}

static tutti_status make(struct tti_device *device, tutti_memory memory, tutti_type type, size_t count,
                         struct tti_device_buffer **made, tutti_error *error)
{
    struct tti_device_buffer *buffer = tti_calloc(1, sizeof *buffer);
    if (buffer == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a buffer");
    size_t bytes = count * tutti_type_bytes(type);
    buffer->device = device;
    buffer->generation = tti_device_generation(device);
    buffer->type = type;
    buffer->count = count;
    tti_list_init(&buffer->link);
    tutti_status status = tti_device_alloc(device, memory, bytes == 0 ? 1 : bytes, &buffer->memory, error);
    if (status != TUTTI_OK) goto free_buffer;
    tti_object_keep(&device->object);
    tti_object_init(&buffer->object, TTI_OBJECT_BUFFER, destroy);
    status = tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a buffer's handle");
    if (!tti_find_add(buffer)) goto free_memory;
    link_to(device, &device->buffers, buffer);
    if (!tti_object_publish(&buffer->object)) goto remove;
    *made = buffer;
    error->status = TUTTI_OK;
    return TUTTI_OK;

remove:
    unlink_buffer(buffer);
    tti_find_remove(buffer, false);
free_memory:
    device->ops->free(device, &buffer->memory, NULL);
    tti_object_give(&buffer->object);
    return status;
free_buffer:
    tti_free(buffer);
    return status;
}

/* Gives back the memory, which nothing uses any more. Until then a pointer into it finds the buffer, and is refused if
 * that was dropped: a GPU's driver would know the memory, and it would pass for the program's own. */
static void release(struct tti_device_buffer *buffer)
{
    tti_find_remove(buffer, true);
    tti_uses_clear(buffer);
    withdraw_offer(buffer);
    buffer->device->ops->free(buffer->device, &buffer->memory, NULL);
    buffer->memory.base = NULL;
}

/* Gives back the memory in limbo whose uses have passed. Returns true if none is left. */
static bool sweep(struct tti_device *device)
{
    for (;;) {
        struct tti_device_buffer *buffer = NULL;
        bool empty;
        tti_lock(&device->lock);
        TTI_LIST_EACH(link, &device->limbo)
        {
            struct tti_device_buffer *one = TTI_LIST_OF(link, struct tti_device_buffer, link);
            if (!tti_uses_passed(one)) continue;
            tti_list_remove(link);
            buffer = one;
            break;
        }
        empty = tti_list_is_empty(&device->limbo);
        tti_unlock(&device->lock);
        if (buffer == NULL) return empty;
        release(buffer);
        tti_object_give(&buffer->object);
    }
}

/* Gives its memory back now, when the one stream that uses it gets there, or when all uses have passed. */
static void give_memory(struct tti_device_buffer *buffer)
{
    struct tti_device *device = buffer->device;
    struct tti_stream *only = NULL;
    if (tti_uses_passed(buffer)) {
        release(buffer);
    } else if (buffer->memory.kind == TUTTI_MEMORY_LOCAL && (only = tti_uses_only(buffer)) != NULL) {
        tti_find_remove(buffer, true);
        device->ops->free(device, &buffer->memory, only);
        buffer->memory.base = NULL;
        tti_uses_clear(buffer);
    } else {
        tti_uses_settle(buffer);
        tti_object_keep(&buffer->object);
        link_to(device, &device->limbo, buffer);
    }
    if (only != NULL) tti_object_give(&only->object);
}

/* Allocates. A device that has no memory left may get some back soon, so this waits for a moment. */
tutti_status tti_device_alloc(struct tti_device *device, tutti_memory kind, size_t bytes, struct tti_memory *memory,
                              tutti_error *error)
{
    enum { MOMENT_MS = 1000 };
    int64_t nap_ns = 0, deadline_ns = tti_now_ns() + MOMENT_MS * INT64_C(1000000);
    bool all = sweep(device);
    tutti_status status = device->ops->alloc(device, kind, bytes, memory, error);
    while (status == TUTTI_ERR_MEMORY && !all && tti_now_ns() < deadline_ns) {
        tti_poll_nap(&nap_ns);
        all = sweep(device);
        status = device->ops->alloc(device, kind, bytes, memory, error);
    }
    return status;
}

void tti_buffer_hold(struct tti_device_buffer *buffer)
{
    atomic_fetch_add_explicit(&buffer->held, 1, memory_order_relaxed);
}

void tti_buffer_let_go(struct tti_device_buffer *buffer)
{
    bool last = atomic_fetch_sub_explicit(&buffer->held, 1, memory_order_acq_rel) == 1;
    if (last && atomic_load_explicit(&buffer->dropped, memory_order_acquire) != 0) sweep(buffer->device);
}

static struct tti_device_buffer *first_of(struct tti_device *device, struct tti_link *list)
{
    struct tti_device_buffer *buffer = NULL;
    tti_lock(&device->lock);
    if (!tti_list_is_empty(list)) {
        buffer = TTI_LIST_OF(list->next, struct tti_device_buffer, link);
        tti_object_keep(&buffer->object);
        tti_list_remove(&buffer->link);
        buffer->reclaimed = true;
    }
    tti_unlock(&device->lock);
    return buffer;
}

/* Memory that an adopted stream, or one that did not end, still uses is never given back: it may be written at any
 * time. */
static void quarantine(struct tti_device_buffer *buffer)
{
    static struct tti_link lost = {&lost, &lost};
    static _Atomic uint32_t lock;
    tti_uses_clear(buffer);
    tti_object_keep(&buffer->object);
    tti_lock(&lock);
    tti_list_append(&lost, &buffer->link);
    tti_unlock(&lock);
}

static void reclaim(struct tti_device_buffer *buffer, int64_t deadline_ns)
{
    int64_t nap_ns = 0;
    bool passed;
    while (!(passed = tti_uses_passed(buffer)) && tti_now_ns() < deadline_ns) tti_poll_nap(&nap_ns);
    if (passed)
        release(buffer);
    else
        quarantine(buffer);
}

void tti_buffers_reclaim(struct tti_device *device)
{
    int64_t deadline_ns = tti_now_ns() + TTI_DEVICE_CLOSE_NS;
    struct tti_device_buffer *buffer;
    while ((buffer = first_of(device, &device->buffers)) != NULL) {
        reclaim(buffer, deadline_ns);
        tti_object_give(&buffer->object);
    }
    while ((buffer = first_of(device, &device->limbo)) != NULL) {
        reclaim(buffer, deadline_ns);
        tti_object_give(&buffer->object); /* the reference of reclaim's caller */
        tti_object_give(&buffer->object); /* the list's reference */
    }
}

tutti_status tti_buffer_share(struct tti_device_buffer *buffer, int *fd, tutti_error *error)
{
    TTI_TRY(tti_buffer_usable(buffer, error));
    if (buffer->memory.kind != TUTTI_MEMORY_SHARED)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "the buffer on %s cannot be shared; make it of TUTTI_MEMORY_SHARED", buffer->device->name);
    return buffer->device->ops->share(buffer->device, &buffer->memory, fd, error);
}

tutti_status tti_buffer_offer(struct tti_device_buffer *buffer, int *fd, uint64_t *id, tutti_error *error)
{
    static _Atomic uint64_t offers;
    int made = -1;
    tti_lock(&buffer->lock);
    *id = buffer->offered;
    *fd = buffer->offered_fd;
    tti_unlock(&buffer->lock);
    if (*id != 0) return TUTTI_OK;
    TTI_TRY(tti_buffer_share(buffer, &made, error));
    tti_lock(&buffer->lock);
    bool first = buffer->offered == 0;
    if (first) {
        buffer->offered = 1 + atomic_fetch_add_explicit(&offers, 1, memory_order_relaxed);
        buffer->offered_fd = made;
    }
    *id = buffer->offered;
    *fd = buffer->offered_fd;
    tti_unlock(&buffer->lock);
    if (!first) close(made);
    return TUTTI_OK;
}

/* ---- Public ------------------------------------------------------------------------------------------------------ */

static tutti_status check_create(tutti_memory memory, tutti_type type, size_t count, tutti_buffer **buffer,
                                 tutti_error *error)
{
    size_t bytes = tutti_type_bytes(type);
    if (buffer == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "where the buffer shall go is NULL");
    *buffer = NULL;
    if ((int)memory < TUTTI_MEMORY_LOCAL || memory > TUTTI_MEMORY_PINNED)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%d is no kind of memory", (int)memory);
    if (bytes == 0) return tti_error_set(error, TUTTI_ERR_TYPE, 0, "%d is no element type", (int)type);
    if (count > PTRDIFF_MAX / bytes)
        return tti_error_set(error, TUTTI_ERR_COUNT, 0, "%zu elements are more than can be addressed", count);
    return TUTTI_OK;
}

tutti_status tutti_buffer_create(tutti_device *handle, tutti_memory memory, tutti_type type, size_t count,
                                 tutti_buffer **buffer, tutti_error *error)
{
    tutti_error none;
    struct tti_device_buffer *made = NULL;
    error = tti_error_begin(error, &none, "buffer_create");
    TTI_TRY(check_create(memory, type, count, buffer, error));
    struct tti_device *device = tti_device_take(handle, error);
    if (device == NULL) return error->status;
    tutti_status status = tti_device_usable(device, tti_device_generation(device), "handle", error);
    if (status == TUTTI_OK) status = make(device, memory, type, count, &made, error);
    if (status == TUTTI_OK) *buffer = made->object.handle;
    tti_object_give(&device->object);
    return status;
}

tutti_status tutti_buffer_free(tutti_buffer *handle, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "buffer_free");
    if (handle == NULL) return TUTTI_OK;
    struct tti_object *object = tti_object_revoke(handle, TTI_OBJECT_BUFFER, error);
    if (object == NULL) return error->status;
    struct tti_device_buffer *buffer = TTI_LIST_OF(object, struct tti_device_buffer, object);
    atomic_store_explicit(&buffer->dropped, 1, memory_order_release);
    if (unlink_buffer(buffer)) give_memory(buffer); /* otherwise its memory was freed with its device */
    sweep(buffer->device);
    tti_object_give(object);
    return TUTTI_OK;
}

tutti_status tutti_buffer_check(tutti_buffer *handle, size_t offset, size_t count, tutti_error *error)
{
    tutti_error none;
    char *at;
    error = tti_error_begin(error, &none, "buffer_check");
    struct tti_device_buffer *buffer = tti_buffer_take(handle, error);
    if (buffer == NULL) return error->status;
    tutti_status status = tti_buffer_range(buffer, offset, count, &at, error);
    tti_object_give(&buffer->object);
    return status;
}

void *tutti_buffer_at(tutti_buffer *handle, size_t offset, size_t count)
{
    tutti_error none;
    char *at = NULL;
    struct tti_device_buffer *buffer = tti_buffer_take(handle, &none);
    if (buffer == NULL) return NULL;
    if (tti_buffer_range(buffer, offset, count, &at, &none) != TUTTI_OK) at = NULL;
    tti_object_give(&buffer->object);
    return at;
}

tutti_status tutti_buffer_describe(tutti_buffer *handle, tutti_buffer_about *about, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "buffer_describe");
    if (about == NULL || about->struct_size < sizeof *about)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "struct_size of tutti_buffer_about is not set to sizeof(tutti_buffer_about)");
    struct tti_device_buffer *buffer = tti_buffer_take(handle, error);
    if (buffer == NULL) return error->status;
    about->device = buffer->device->object.handle;
    about->memory = buffer->memory.kind;
    about->type = buffer->type;
    about->count = buffer->count;
    about->generation = buffer->generation;
    tti_object_give(&buffer->object);
    return TUTTI_OK;
}
