/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices that a GPU has failed. A caller that waits polls a word, which a GPU that has failed never raises; and no
 * caller with a deadline enters the driver, since it may block there behind others. So a thread of the device asks the
 * driver about the streams for which callers wait, and notes the failure where they see it.
 */
#include "device/cuda_device.h"

#include "base/log.h"
#include "device/open.h"
#include "device/stream.h"

#define LOOK_NS INT64_C(2000000)     /* between questions while a caller waits */
#define SLEEP_NS INT64_C(1000000000) /* between questions otherwise */

void tti_cuda_probe(struct tti_device *of, struct tti_stream *stream)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    void *native = stream != NULL ? stream->native : device->home;
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->stream_query(native);
        tti_cuda_leave(device);
    }
    if (code != TTI_CUDA_NOT_READY) (void)tti_cuda_check(device, code, "cuStreamQuery", stream, NULL);
}

/* Returns the i-th stream that is watched, with a reference; NULL: there are not so many. It stays open until it was asked about:
 * tti_cuda_unwatch waits for that. */
static struct tti_stream *next_asked(struct tti_cuda_device *device, int i)
{
    struct tti_stream *stream = NULL;
    pthread_mutex_lock(&device->watch_lock);
    if (i < device->watched_count) stream = device->watched[i];
    if (stream != NULL) tti_object_keep(&stream->object);
    device->asked = stream;
    pthread_mutex_unlock(&device->watch_lock);
    return stream;
}

/* The lock is not held meanwhile: the driver may hold this thread up, and others, which keep deadlines, take the lock. */
static bool poll_device(struct tti_cuda_device *device)
{
    struct tti_stream *stream;
    int count = 0;
    while (!tti_device_is_poisoned(&device->device) && (stream = next_asked(device, count)) != NULL) {
        tti_cuda_probe(&device->device, stream);
        pthread_mutex_lock(&device->watch_lock);
        device->asked = NULL;
        pthread_mutex_unlock(&device->watch_lock);
        tti_object_give(&stream->object);
        count++;
    }
    return count > 0;
}

static void *watch(void *argument)
{
    struct tti_cuda_device *device = argument;
    while (atomic_load_explicit(&device->watcher_stops, memory_order_acquire) == 0) {
        uint32_t seen = atomic_load_explicit(&device->watch_bell, memory_order_acquire);
        tti_bell_sleep(&device->watch_bell, seen, poll_device(device) ? LOOK_NS : SLEEP_NS, false);
    }
    return NULL;
}

/* Starts the thread. Without it a failure is noticed when something is put on the device again, or at the deadline.
 * With the lock held. */
static void ensure_watcher(struct tti_cuda_device *device)
{
    tutti_error error = {0};
    if (device->watcher_runs) return;
    atomic_store_explicit(&device->watcher_stops, 0, memory_order_relaxed);
    device->watcher_runs = tti_task_start(&device->watcher, watch, device, &error) == TUTTI_OK;
    if (!device->watcher_runs) tti_log(TUTTI_WARN, "%s is not watched: %s", device->device.name, error.text);
}

static void add(struct tti_cuda_device *device, struct tti_stream *stream)
{
    ensure_watcher(device);
    if (device->watched_count == TTI_CUDA_WATCHED) return; /* enough, since a failure shows on every stream */
    tti_object_keep(&stream->object);
    device->watched[device->watched_count++] = stream;
}

/* Takes it off the list once; the caller owns its reference. */
static struct tti_stream *take_out(struct tti_cuda_device *device, const struct tti_stream *stream)
{
    for (int i = 0; i < device->watched_count; i++) {
        if (device->watched[i] != stream) continue;
        struct tti_stream *found = device->watched[i];
        device->watched[i] = device->watched[--device->watched_count];
        return found;
    }
    return NULL;
}

void tti_cuda_watch(struct tti_device *of, struct tti_stream *stream, bool waiting)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    struct tti_stream *out = NULL;
    pthread_mutex_lock(&device->watch_lock);
    if (waiting && atomic_load_explicit(&stream->ended, memory_order_acquire) == 0)
        add(device, stream);
    else if (!waiting)
        out = take_out(device, stream);
    bool wake = waiting && device->watched_count == 1;
    pthread_mutex_unlock(&device->watch_lock);
    if (wake) tti_bell_ring(&device->watch_bell, false);
    if (out != NULL) tti_object_give(&out->object);
}

static bool is_asked(struct tti_cuda_device *device, const struct tti_stream *stream)
{
    pthread_mutex_lock(&device->watch_lock);
    bool asked = device->asked == stream;
    pthread_mutex_unlock(&device->watch_lock);
    return asked;
}

void tti_cuda_unwatch(struct tti_cuda_device *device, const struct tti_stream *stream)
{
    struct tti_stream *out;
    int64_t nap_ns = 0;
    do {
        pthread_mutex_lock(&device->watch_lock);
        out = take_out(device, stream);
        pthread_mutex_unlock(&device->watch_lock);
        if (out != NULL) tti_object_give(&out->object);
    } while (out != NULL);
    while (is_asked(device, stream)) tti_poll_nap(&nap_ns);
}

void tti_cuda_watch_stop(struct tti_cuda_device *device)
{
    if (!device->watcher_runs) return;
    atomic_store_explicit(&device->watcher_stops, 1, memory_order_release);
    tti_bell_ring(&device->watch_bell, false);
    tti_task_join(&device->watcher);
    device->watcher_runs = false;
}
