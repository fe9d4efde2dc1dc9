/* SPDX-License-Identifier: Apache-2.0
 *
 * All buffers of the process with memory, in the order of their addresses, which never overlap.
 */
#include "device/find.h"

#include "base/alloc.h"
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
    atomic_store_explicit(&all.count, 0, memory_order_relaxed); /* the parent's */
}

/* How many begin at or before the address. With the lock. */
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

bool tti_find_add(struct tti_device_buffer *buffer)
{
    pthread_mutex_lock(&all.lock);
    bool room = make_room();
    if (room) {
        size_t count = atomic_load_explicit(&all.count, memory_order_relaxed), place = place_of(buffer->memory.base);
        memmove(all.buffers + place + 1, all.buffers + place, (count - place) * sizeof *all.buffers);
        all.buffers[place] = buffer;
        atomic_store_explicit(&all.count, count + 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&all.lock);
    return room;
}

void tti_find_remove(struct tti_device_buffer *buffer)
{
    pthread_mutex_lock(&all.lock);
    size_t count = atomic_load_explicit(&all.count, memory_order_relaxed), place = place_of(buffer->memory.base);
    if (place > 0 && all.buffers[place - 1] == buffer) {
        memmove(all.buffers + place - 1, all.buffers + place, (count - place) * sizeof *all.buffers);
        atomic_store_explicit(&all.count, count - 1, memory_order_relaxed);
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
