/* SPDX-License-Identifier: Apache-2.0
 *
 * Device `host`: ordinary memory, and a thread for each stream (host_queue.c). It does what a GPU does, in the same
 * order and with the same refusals, so that everything above the table runs and is tested without a GPU, in simulated
 * time, too.
 */
#include "base/alloc.h"
#include "base/memory.h"
#include "base/status.h"
#include "device/host_fault.h"
#include "device/host_queue.h"
#include "device/open.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HOSTS = 64 };
#define CHECKED_BYTES ((size_t)1 << 20) /* from this size on the system is asked whether it has so much memory */

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

static tutti_status host_count(int *count, tutti_error *error)
{
    (void)error;
    *count = 1;
    return TUTTI_OK;
}

static tutti_status host_make(int number, void *context, struct tti_device **device, tutti_error *error)
{
    (void)context;
    if (number >= HOSTS)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "host:%d is no device; the last one is host:%d", number,
                             HOSTS - 1);
    struct tti_host_device *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a device");
    pthread_mutex_init(&made->lock, NULL);
    atomic_store_explicit(&made->room, TTI_HOST_ROOM, memory_order_relaxed);
    atomic_store_explicit(&made->hold_ns, TTI_DEVICE_PATIENCE_NS, memory_order_relaxed);
    atomic_store_explicit(&made->bytes_most, SIZE_MAX, memory_order_relaxed);
    *device = &made->device;
    return TUTTI_OK;
}

static void host_destroy(struct tti_device *device)
{
    struct tti_host_device *host = tti_host_of(device);
    pthread_mutex_destroy(&host->lock);
    tti_free(host);
}

static tutti_status host_start(struct tti_device *device, tutti_error *error)
{
    (void)device;
    (void)error;
    return TUTTI_OK;
}

static void host_shut(struct tti_device *device)
{
    (void)device;
}

static tutti_status host_describe(struct tti_device *device, tutti_device_about *about, tutti_error *error)
{
    struct tti_host_device *host = tti_host_of(device);
    size_t most = atomic_load_explicit(&host->bytes_most, memory_order_relaxed), left = tti_memory_left();
    size_t taken = atomic_load_explicit(&host->bytes, memory_order_relaxed);
    size_t total = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    (void)error;
    about->memory_total = most < total ? most : total;
    about->memory_free = most == SIZE_MAX ? left : most > taken ? most - taken : 0;
    if (about->memory_free > about->memory_total) about->memory_free = about->memory_total;
    (void)snprintf(about->model, sizeof about->model, "host memory, streams are threads");
    about->shares = true;
    return TUTTI_OK;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Fills new memory with a pattern, since undefined contents must not look like zeros. */
static tutti_status take_local(size_t bytes, struct tti_memory *memory, tutti_error *error)
{
    if (bytes >= CHECKED_BYTES) TTI_TRY(tti_memory_check(bytes, NULL, error));
    memory->base = tti_calloc_aligned(bytes);
    if (memory->base == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a buffer of %zu bytes", bytes);
    memset(memory->base, 0xa5, bytes < CHECKED_BYTES ? bytes : CHECKED_BYTES);
    return TUTTI_OK;
}

static void from_mapping(struct tti_memory *memory, const struct tti_mapping *mapping)
{
    memory->base = mapping->base;
    memory->room = mapping->bytes;
    memory->native = (uint64_t)mapping->fd;
}

static tutti_status take_shared(size_t bytes, struct tti_memory *memory, tutti_error *error)
{
    struct tti_mapping mapping;
    if (bytes >= CHECKED_BYTES) TTI_TRY(tti_memory_check(bytes, NULL, error));
    TTI_TRY(tti_mapping_create(&mapping, bytes, true, true, error));
    from_mapping(memory, &mapping);
    return TUTTI_OK;
}

static bool charge(struct tti_host_device *host, size_t bytes)
{
    size_t most = atomic_load_explicit(&host->bytes_most, memory_order_relaxed);
    size_t before = atomic_fetch_add_explicit(&host->bytes, bytes, memory_order_relaxed);
    if (before <= most && bytes <= most - before) return true;
    atomic_fetch_sub_explicit(&host->bytes, bytes, memory_order_relaxed);
    return false;
}

static tutti_status host_alloc(struct tti_device *device, tutti_memory kind, size_t bytes, struct tti_memory *memory,
                               tutti_error *error)
{
    struct tti_host_device *host = tti_host_of(device);
    struct tti_memory taken = {.bytes = bytes, .kind = kind};
    if (!charge(host, bytes))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%s has no memory left for %zu bytes", device->name, bytes);
    tutti_status status = kind == TUTTI_MEMORY_SHARED ? take_shared(bytes, &taken, error)
                                                      : take_local(bytes, &taken, error);
    if (status != TUTTI_OK) {
        atomic_fetch_sub_explicit(&host->bytes, bytes, memory_order_relaxed);
        return status;
    }
    *memory = taken;
    return TUTTI_OK;
}

void tti_host_release(struct tti_host_device *device, struct tti_memory *memory)
{
    atomic_fetch_sub_explicit(&device->bytes, memory->bytes, memory_order_relaxed);
    if (memory->kind == TUTTI_MEMORY_SHARED) {
        struct tti_mapping mapping = {.base = memory->base, .bytes = memory->room, .fd = (int)memory->native};
        tti_mapping_destroy(&mapping);
    } else {
        tti_free(memory->base);
    }
    memory->base = NULL;
}

static void host_free(struct tti_device *device, struct tti_memory *memory, struct tti_stream *stream)
{
    struct tti_host_work work = {.kind = TTI_HOST_FREE, .memory = *memory};
    tutti_error none;
    if (stream == NULL)
        tti_host_release(tti_host_of(device), memory);
    else
        (void)tti_host_put(stream, &work, &none); /* it fails only if the memory must be lost */
}

static tutti_status host_share(struct tti_device *device, const struct tti_memory *memory, int *fd, tutti_error *error)
{
    (void)device;
    int copy = fcntl((int)memory->native, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "a buffer's descriptor cannot be duplicated");
    *fd = copy;
    return TUTTI_OK;
}

static tutti_status host_map(struct tti_device *device, int fd, size_t bytes, struct tti_memory *memory,
                             tutti_error *error)
{
    struct tti_host_device *host = tti_host_of(device);
    struct tti_mapping mapping;
    struct stat about;
    if (fstat(fd, &about) != 0 || bytes == 0 || about.st_size < 0 || (size_t)about.st_size < bytes)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "descriptor %d does not stand for %zu bytes of memory", fd,
                             bytes);
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "a buffer's descriptor cannot be duplicated");
    TTI_TRY(tti_mapping_open(&mapping, copy, bytes, error));
    *memory = (struct tti_memory){.bytes = bytes, .kind = TUTTI_MEMORY_SHARED};
    from_mapping(memory, &mapping);
    atomic_fetch_add_explicit(&host->bytes, bytes, memory_order_relaxed);
    return TUTTI_OK;
}

/* Finds nothing: memory in no buffer is the program's own. */
static bool host_find(struct tti_device *device, const void *pointer, struct tti_found *found)
{
    (void)device;
    (void)pointer;
    (void)found;
    return false;
}

static tutti_status host_enlist(struct tti_device *device, void *base, size_t bytes, tutti_error *error)
{
    (void)device;
    (void)base;
    (void)bytes;
    (void)error;
    return TUTTI_OK;
}

static void host_withdraw(struct tti_device *device, void *base)
{
    (void)device;
    (void)base;
}

static void *host_address(struct tti_device *device, void *enlisted)
{
    (void)device;
    return enlisted;
}

static bool host_reaches(struct tti_device *device, struct tti_device *other)
{
    (void)device;
    (void)other;
    return true;
}

/* ---- Streams and work -------------------------------------------------------------------------------------------- */

static bool host_idle(struct tti_stream *stream)
{
    return atomic_load_explicit(&stream->put, memory_order_relaxed) ==
           atomic_load_explicit(&stream->passed, memory_order_acquire);
}

static void host_abort(struct tti_stream *stream)
{
    atomic_store_explicit(&stream->lets_go, 1, memory_order_release); /* holds read it between naps */
}

static tutti_status host_check(struct tti_stream *stream, tutti_error *error)
{
    (void)stream;
    (void)error;
    return TUTTI_OK;
}

static tutti_status host_copy(struct tti_stream *stream, void *to, const void *from, size_t bytes, tutti_error *error)
{
    struct tti_host_work work = {.kind = TTI_HOST_COPY, .copy = {to, from, bytes}};
    return tti_host_put(stream, &work, error);
}

static tutti_status host_fill(struct tti_stream *stream, void *to, size_t count, const void *element,
                              size_t element_bytes, tutti_error *error)
{
    struct tti_host_work work = {.kind = TTI_HOST_FILL, .fill = {to, count, element_bytes, {0}}};
    memcpy(work.fill.element, element, element_bytes);
    return tti_host_put(stream, &work, error);
}

static tutti_status host_mark_open(struct tti_mark *mark, tutti_error *error)
{
    (void)mark;
    (void)error;
    return TUTTI_OK;
}

static void host_mark_close(struct tti_mark *mark)
{
    tti_host_event_give(mark->native);
}

/* Each record has an event of its own: a stream that waits for an earlier one goes on waiting for that. */
static tutti_status host_record(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error)
{
    struct tti_host_event *event = tti_host_event_make();
    if (event == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a mark");
    struct tti_host_work work = {.kind = TTI_HOST_RAISE, .event = event, .word = {&event->word, 1}};
    atomic_fetch_add_explicit(&event->references, 1, memory_order_relaxed);
    tutti_status status = tti_host_put(stream, &work, error);
    if (status != TUTTI_OK) {
        tti_free(event);
        return status;
    }
    tti_host_event_give(mark->native);
    mark->native = event;
    return TUTTI_OK;
}

static tutti_status host_after(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error)
{
    struct tti_host_event *event = mark->native;
    struct tti_host_work work = {.kind = TTI_HOST_HOLD, .event = event, .word = {&event->word, 1}};
    atomic_fetch_add_explicit(&event->references, 1, memory_order_relaxed);
    tutti_status status = tti_host_put(stream, &work, error);
    if (status != TUTTI_OK) tti_host_event_give(event);
    return status;
}

static bool host_passed(struct tti_mark *mark)
{
    struct tti_host_event *event = mark->native;
    return tti_word_reached(&event->word, 1);
}

static tutti_status host_hold(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error)
{
    struct tti_host_work work = {.kind = TTI_HOST_HOLD, .word = {word, value}};
    return tti_host_put(stream, &work, error);
}

static tutti_status host_raise(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error)
{
    struct tti_host_work work = {.kind = TTI_HOST_RAISE, .word = {word, value}};
    return tti_host_put(stream, &work, error);
}

static tutti_status host_load(struct tti_device *device, const char *code, struct tti_kernel *kernel,
                              tutti_error *error)
{
    (void)code;
    if (kernel->function != NULL) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "%s runs C functions, and %s has none", device->name,
                         kernel->name);
}

static tutti_status host_launch(struct tti_stream *stream, const struct tti_kernel *kernel,
                                const struct tti_launch_shape *shape, const void *arguments, size_t bytes,
                                tutti_error *error)
{
    struct tti_host_work work = {.kind = TTI_HOST_LAUNCH, .launch = {.function = kernel->function}};
    void *to = work.launch.arguments;
    (void)shape;
    if (kernel->function == NULL)
        return host_load(stream->device, NULL, &(struct tti_kernel){.name = kernel->name}, error);
    if (bytes > TTI_HOST_ARGUMENTS) to = work.launch.large = tti_calloc_aligned(bytes);
    if (to == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for %zu bytes of arguments", bytes);
    if (bytes > 0) memcpy(to, arguments, bytes);
    tutti_status status = tti_host_put(stream, &work, error);
    if (status != TUTTI_OK) tti_free(work.launch.large);
    return status;
}

static void host_probe(struct tti_device *device, struct tti_stream *stream)
{
    (void)device; /* the device is told when it is poisoned */
    (void)stream;
}

const struct tti_device_ops tti_host_ops = {
    .kind = "host",
    .count = host_count,
    .make = host_make,
    .destroy = host_destroy,
    .start = host_start,
    .shut = host_shut,
    .describe = host_describe,
    .alloc = host_alloc,
    .free = host_free,
    .share = host_share,
    .map = host_map,
    .find = host_find,
    .enlist = host_enlist,
    .withdraw = host_withdraw,
    .enlist_words = host_enlist,
    .withdraw_words = host_withdraw,
    .address = host_address,
    .reaches = host_reaches,
    .stream_open = tti_host_stream_open,
    .stream_idle = host_idle,
    .stream_abort = host_abort,
    .stream_close = tti_host_stream_close,
    .stream_check = host_check,
    .copy = host_copy,
    .fill = host_fill,
    .mark_open = host_mark_open,
    .mark_close = host_mark_close,
    .record = host_record,
    .after = host_after,
    .passed = host_passed,
    .hold = host_hold,
    .raise = host_raise,
    .load = host_load,
    .launch = host_launch,
    .probe = host_probe,
};
