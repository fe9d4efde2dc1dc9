/* SPDX-License-Identifier: Apache-2.0
 *
 * All buffers of the process that have memory, in the order of their addresses; they never overlap.
 */
#include "device/find.h"

#include "base/alloc.h"
#include "base/status.h"
#include "device/buffer.h"
#include "device/open.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    struct tti_device_buffer **buffers;
    size_t room;
    _Atomic size_t count;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tti_find_forked(void)
{
    pthread_mutex_init(&all.lock, NULL);
    atomic_store_explicit(&all.count, 0, memory_order_relaxed); /* these are the parent's */
}

/* Records where former buffers lay; the oldest is forgotten first. Under the same lock. */
enum { GONE_MOST = 256 };
struct gone {
    uintptr_t base;
    size_t bytes; /* 0: the record is empty */
    uint64_t generation;
    uint64_t id;  /* the number of its memory, if that is kept and the driver knows it; otherwise 0 */
    bool dropped; /* true: its owner has dropped it; false: its device was shut down */
    char device[TTI_DEVICE_NAME];
};
static struct gone gone[GONE_MOST];
static size_t gone_next;

/* Returns how many begin at or before the address. With the lock held. */
static size_t place_of(const char *address)
{
    size_t low = 0, high = atomic_load_explicit(&all.count, memory_order_relaxed);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)all.buffers[middle]->memory.base <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(void)
{
    size_t count = atomic_load_explicit(&all.count, memory_order_relaxed);
    if (count < all.room) return true;
    size_t room = all.room == 0 ? 64 : all.room * 2;
    struct tti_device_buffer **buffers = tti_calloc(room, sizeof *buffers);
    if (buffers == NULL) return false;
    if (count > 0) memcpy(buffers, all.buffers, count * sizeof *buffers);
    tti_free(all.buffers);
    all.buffers = buffers;
    all.room = room;
    return true;
}

/* Forgets former buffers whose memory belongs to a new buffer. */
static void forget_gone(const struct tti_memory *memory)
{
    uintptr_t base = (uintptr_t)memory->base;
    for (size_t i = 0; i < GONE_MOST; i++)
        if (gone[i].base < base + memory->bytes && base < gone[i].base + gone[i].bytes) gone[i].bytes = 0;
}

/* Returns the number of memory that is kept. Pinned memory stays registered when its buffer is freed: by this number it
 * is told apart from memory that the program has registered. */
static uint64_t id_of_kept(const struct tti_device_buffer *buffer)
{
    struct tti_found found = {0};
    if (buffer->memory.kind != TUTTI_MEMORY_PINNED) return 0;
    return buffer->device->ops->find(buffer->device, buffer->memory.base, &found) ? found.id : 0;
}

static void note_gone(const struct tti_device_buffer *buffer, uint64_t id)
{
    struct gone *one = &gone[gone_next++ % GONE_MOST];
    *one = (struct gone){.base = (uintptr_t)buffer->memory.base,
                         .bytes = buffer->memory.bytes,
                         .generation = buffer->generation,
                         .id = id,
                         .dropped = atomic_load_explicit(&buffer->dropped, memory_order_acquire) != 0};
    memcpy(one->device, buffer->device->name, sizeof one->device);
}

bool tti_find_add(struct tti_device_buffer *buffer)
{
    pthread_mutex_lock(&all.lock);
    bool room = make_room();
    forget_gone(&buffer->memory);
    if (room) {
        size_t count = atomic_load_explicit(&all.count, memory_order_relaxed), place = place_of(buffer->memory.base);
        memmove(all.buffers + place + 1, all.buffers + place, (count - place) * sizeof *all.buffers);
        all.buffers[place] = buffer;
        atomic_store_explicit(&all.count, count + 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&all.lock);
    return room;
}

void tti_find_remove(struct tti_device_buffer *buffer, bool was_used)
{
    uint64_t id = was_used ? id_of_kept(buffer) : 0;
    pthread_mutex_lock(&all.lock);
    size_t count = atomic_load_explicit(&all.count, memory_order_relaxed), place = place_of(buffer->memory.base);
    if (place > 0 && all.buffers[place - 1] == buffer) {
        memmove(all.buffers + place - 1, all.buffers + place, (count - place) * sizeof *all.buffers);
        atomic_store_explicit(&all.count, count - 1, memory_order_relaxed);
        if (was_used) note_gone(buffer, id);
    }
    pthread_mutex_unlock(&all.lock);
}

static bool find_buffer(const void *pointer, struct tti_found *found)
{
    pthread_mutex_lock(&all.lock);
    size_t place = place_of(pointer);
    struct tti_device_buffer *buffer = place == 0 ? NULL : all.buffers[place - 1];
    if (buffer != NULL && (uintptr_t)pointer - (uintptr_t)buffer->memory.base < buffer->memory.bytes) {
        tti_object_keep(&buffer->object);
        tti_object_keep(&buffer->device->object);
        *found = (struct tti_found){.where = buffer->memory.kind == TUTTI_MEMORY_PINNED ? TTI_FOUND_PINNED
                                                                                        : TTI_FOUND_DEVICE,
                                    .device = buffer->device,
                                    .buffer = buffer,
                                    .base = buffer->memory.base,
                                    .bytes = buffer->memory.bytes,
                                    .generation = buffer->generation};
    }
    pthread_mutex_unlock(&all.lock);
    return found->buffer != NULL;
}

struct question {
    const void *pointer;
    struct tti_found *found;
};

static bool ask(struct tti_device *device, void *context)
{
    struct question *question = context;
    if (!device->ops->find(device, question->pointer, question->found)) return true;
    tti_object_keep(&device->object);
    question->found->device = device;
    question->found->generation = tti_device_generation(device);
    return false;
}

void tti_memory_find(const void *pointer, struct tti_found *found)
{
    *found = (struct tti_found){.where = TTI_FOUND_PRIVATE};
    if (pointer == NULL) return;
    if (atomic_load_explicit(&all.count, memory_order_relaxed) != 0 && find_buffer(pointer, found)) return;
    if (tti_devices_any()) tti_devices_each(ask, &(struct question){pointer, found});
}

void tti_found_give(struct tti_found *found)
{
    if (found->buffer != NULL) tti_object_give(&found->buffer->object);
    if (found->device != NULL) tti_object_give(&found->device->object);
    *found = (struct tti_found){.where = TTI_FOUND_PRIVATE};
}

/* ---- Whether it may be used ---------------------------------------------------------------------------------------- */

static bool find_gone(const void *pointer, struct gone *found)
{
    uintptr_t at = (uintptr_t)pointer;
    found->bytes = 0;
    pthread_mutex_lock(&all.lock);
    for (size_t i = 0; i < GONE_MOST && found->bytes == 0; i++)
        if (at >= gone[i].base && at - gone[i].base < gone[i].bytes) *found = gone[i];
    pthread_mutex_unlock(&all.lock);
    return found->bytes != 0;
}

/* Returns true for memory in no buffer that the driver knows, and that was a buffer's: it is not the program's own. */
static bool was_a_buffer(const void *pointer, const struct tti_found *found)
{
    struct gone one;
    return found->buffer == NULL && found->id != 0 && find_gone(pointer, &one) && one.id == found->id;
}

static bool is_reopened(struct tti_device *device, void *context)
{
    struct gone *one = context;
    bool same = strcmp(device->name, one->device) == 0 && tti_device_generation(device) != one->generation;
    if (same) one->generation = 0;
    return !same;
}

static tutti_status refuse_gone(struct gone *one, const char *name, tutti_error *error)
{
    if (!one->dropped) tti_devices_each(is_reopened, one);
    return tti_error_set(error, TUTTI_ERR_STALE, 0, "where `%s` points, a buffer of %s lay %s", name, one->device,
                         one->dropped           ? "that was freed (dropped) before this call"
                         : one->generation == 0 ? "until the device was opened again; make a new one"
                                                : "until the device was shut down");
}

/* Returns true if the memory is the device's. Managed memory belongs to all GPUs, whichever of them is asked first. */
static bool serves(const struct tti_found *found, const struct tti_device *device)
{
    if (found->device == NULL || found->device == device) return found->device != NULL;
    return found->where == TTI_FOUND_MANAGED && found->device->ops == device->ops;
}

static tutti_status refuse(const void *pointer, uint64_t bytes, const char *name, const struct tti_stream *stream,
                           const struct tti_found *found, tutti_error *error)
{
    const char *device = stream->device->name;
    struct gone one;
    if ((found->device == NULL || was_a_buffer(pointer, found)) && find_gone(pointer, &one))
        return refuse_gone(&one, name, error);
    if (found->device == NULL)
        return tti_error_set(
            error, TUTTI_ERR_ARGUMENT, 0,
            "`%s` is host memory, but the call is on a stream of %s; use a buffer of that device, or leave "
            "tutti_on out",
            name, device);
    if (!serves(found, stream->device))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "`%s` is memory of %s, but the call is on a stream of %s",
                             name, found->device->name, device);
    return tti_error_set(error, TUTTI_ERR_COUNT, 0,
                         "`%s` reaches past the end of its memory of %zu bytes by %llu bytes", name, found->bytes,
                         (unsigned long long)((const char *)pointer + bytes - (found->base + found->bytes)));
}

tutti_status tti_memory_take(const void *pointer, uint64_t bytes, const char *name, const struct tti_stream *stream,
                             struct tti_device_buffer **buffer, tutti_error *error)
{
    struct tti_found found;
    const char *at = pointer;
    *buffer = NULL;
    tti_memory_find(pointer, &found);
    /* noticed by the question whose memory it is, whose answer would be the host's */
    if (tti_device_is_poisoned(stream->device)) {
        tti_found_give(&found);
        return tti_device_poison_error(stream->device, error);
    }
    bool fits = serves(&found, stream->device) && bytes <= (uint64_t)(found.base + found.bytes - at) &&
                !was_a_buffer(pointer, &found);
    tutti_status status = fits ? TUTTI_OK : refuse(pointer, bytes, name, stream, &found, error);
    if (fits && found.buffer != NULL) status = tti_buffer_usable(found.buffer, error);
    if (status == TUTTI_OK) {
        *buffer = found.buffer;
        found.buffer = NULL;
    }
    tti_found_give(&found);
    return status;
}

tutti_status tti_memory_for_host(const void *pointer, const char *name, tutti_error *error)
{
    struct tti_found found;
    tti_memory_find(pointer, &found);
    bool usable = found.where != TTI_FOUND_DEVICE || !found.device->ops->unreadable;
    tutti_status status = TUTTI_OK;
    if (!usable)
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                               "`%s` is memory of %s: put the call on a stream with tutti_on, or give host memory",
                               name, found.device->name);
    tti_found_give(&found);
    return status;
}
