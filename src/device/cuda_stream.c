/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of a GPU and work on them.
 *
 * A hold waits for a value in memory, and only that value ends it. So each stream remembers the words and values of its
 * holds: when it is given up, it raises by far those that have not been reached.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "device/cuda_device.h"
#include "device/open.h"
#include "device/stream.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct hold {
    struct tti_word *word;
    uint64_t value;
};

struct tti_cuda_holds {
    _Atomic uint32_t lock;
    size_t count, room;
    struct hold *holds;
};

/* ---- Entering for one call ----------------------------------------------------------------------------------------- */

static struct tti_cuda_device *device_of(const struct tti_stream *stream)
{
    return tti_cuda_of(stream->device);
}

static tutti_status enter(struct tti_stream *stream, tutti_error *error)
{
    return tti_cuda_check(device_of(stream), tti_cuda_enter(device_of(stream)), "cuCtxPushCurrent", stream, error);
}

/* Leaves the context, and translates the result of the call. */
static tutti_status leave(struct tti_stream *stream, int code, const char *what, tutti_error *error)
{
    tti_cuda_leave(device_of(stream));
    return tti_cuda_check(device_of(stream), code, what, stream, error);
}

/* ---- Holds --------------------------------------------------------------------------------------------------------- */

/* Forgets holds that were reached. With the lock held. */
static void prune(struct tti_cuda_holds *holds)
{
    size_t kept = 0;
    for (size_t i = 0; i < holds->count; i++)
        if (!tti_word_reached(holds->holds[i].word, holds->holds[i].value)) holds->holds[kept++] = holds->holds[i];
    holds->count = kept;
}

static bool make_room(struct tti_cuda_holds *holds)
{
    if (holds->count == holds->room) prune(holds);
    if (holds->count < holds->room) return true;
    size_t room = holds->room == 0 ? 32 : holds->room * 2;
    struct hold *made = tti_calloc(room, sizeof *made);
    if (made == NULL) return false;
    if (holds->count > 0) memcpy(made, holds->holds, holds->count * sizeof *made);
    tti_free(holds->holds);
    holds->holds = made;
    holds->room = room;
    return true;
}

static bool remember(struct tti_cuda_holds *holds, struct tti_word *word, uint64_t value)
{
    tti_lock(&holds->lock);
    bool room = make_room(holds);
    if (room) holds->holds[holds->count++] = (struct hold){word, value};
    tti_unlock(&holds->lock);
    return room;
}

void tti_cuda_stream_abort(struct tti_stream *stream)
{
    struct tti_cuda_holds *holds = stream->extra;
    tti_lock(&holds->lock);
    for (size_t i = 0; i < holds->count; i++)
        if (!tti_word_reached(holds->holds[i].word, holds->holds[i].value))
            tti_word_store(holds->holds[i].word, holds->holds[i].value + TTI_WORD_FAR);
    holds->count = 0;
    tti_unlock(&holds->lock);
}

static int address_of(struct tti_cuda_device *device, struct tti_word *word, uint64_t *address)
{
    *address = (uint64_t)(uintptr_t)word;
    return device->same_pointers ? TTI_CUDA_OK : device->cuda->host_pointer(address, word, 0);
}

static int wait_value(struct tti_stream *stream, struct tti_word *word, uint64_t value)
{
    uint64_t address;
    int code = address_of(device_of(stream), word, &address);
    if (code != TTI_CUDA_OK) return code;
    return device_of(stream)->cuda->stream_wait_value(stream->native, address, value, TTI_CUDA_WAIT_GEQ);
}

static int write_value(struct tti_stream *stream, struct tti_word *word, uint64_t value)
{
    uint64_t address;
    int code = address_of(device_of(stream), word, &address);
    if (code != TTI_CUDA_OK) return code;
    return device_of(stream)->cuda->stream_write_value(stream->native, address, value, TTI_CUDA_WRITE_DEFAULT);
}

tutti_status tti_cuda_hold(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error)
{
    if (!remember(stream->extra, word, value))
        return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory to note a hold");
    TTI_TRY(enter(stream, error));
    return leave(stream, wait_value(stream, word, value), "cuStreamWaitValue64", error);
}

tutti_status tti_cuda_raise(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error)
{
    TTI_TRY(enter(stream, error));
    return leave(stream, write_value(stream, word, value), "cuStreamWriteValue64", error);
}

/* ---- Streams ------------------------------------------------------------------------------------------------------- */

/* A blocking stream is taken, since it does no harm to a program that leaves the legacy default stream alone. */
static void warn_of_blocking(const struct tti_stream *stream, unsigned flags)
{
    static atomic_bool warned;
    if ((flags & TTI_CUDA_STREAM_NON_BLOCKING) != 0 || atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return;
    tti_log(TUTTI_WARN,
            "a stream of %s that was adopted is a blocking one (cudaStreamCreate): it and the legacy default stream "
            "wait for "
            "each other, so work on the latter waits for other ranks, too; make it with cudaStreamNonBlocking",
            stream->device->name);
}

static tutti_status adopt(struct tti_stream *stream, void *foreign, tutti_error *error)
{
    struct tti_cuda_device *device = device_of(stream);
    const char *what = "cuStreamGetCtx";
    void *context = NULL;
    unsigned flags = 0;
    if (foreign == TTI_CUDA_STREAM_LEGACY || foreign == TTI_CUDA_STREAM_PER_THREAD)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a default stream cannot be adopted: work on it waits for that of other streams, or it is "
                             "another one in each thread; make one (cudaStreamCreateWithFlags, cudaStreamNonBlocking)");
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->stream_context(foreign, &context);
        if (code == TTI_CUDA_OK) {
            what = "cuStreamGetFlags";
            code = device->cuda->stream_flags(foreign, &flags);
        }
        tti_cuda_leave(device);
    }
    TTI_TRY(tti_cuda_check(device, code, what, NULL, error));
    if (context != device->context)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the stream is of another GPU or context than %s",
                             stream->device->name);
    warn_of_blocking(stream, flags);
    stream->native = foreign;
    return TUTTI_OK;
}

static tutti_status create(struct tti_stream *stream, tutti_error *error)
{
    TTI_TRY(enter(stream, error));
    int code = device_of(stream)->cuda->stream_create(&stream->native, TTI_CUDA_STREAM_NON_BLOCKING);
    return leave(stream, code, "cuStreamCreate", error);
}

tutti_status tti_cuda_stream_open(struct tti_stream *stream, void *foreign, tutti_error *error)
{
    struct tti_cuda_holds *holds = tti_calloc(1, sizeof *holds);
    if (holds == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a stream");
    stream->extra = holds;
    tutti_status status = foreign != NULL ? adopt(stream, foreign, error) : create(stream, error);
    if (status != TUTTI_OK) tti_free(holds);
    return status;
}

bool tti_cuda_stream_idle(struct tti_stream *stream)
{
    struct tti_cuda_device *device = device_of(stream);
    if (tti_device_is_poisoned(stream->device)) return true;
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->stream_query(stream->native);
        tti_cuda_leave(device);
    }
    if (code == TTI_CUDA_NOT_READY) return false;
    (void)tti_cuda_check(device, code, "cuStreamQuery", stream, NULL);
    return true;
}

bool tti_cuda_stream_close(struct tti_stream *stream)
{
    struct tti_cuda_device *device = device_of(stream);
    struct tti_cuda_holds *holds = stream->extra;
    bool idle = stream->adopted || tti_cuda_stream_idle(stream);
    tti_cuda_unwatch(device, stream);
    if (!stream->adopted && tti_cuda_enter(device) == TTI_CUDA_OK) {
        (void)device->cuda->stream_destroy(stream->native); /* work that is still on it ends by itself */
        tti_cuda_leave(device);
    }
    stream->native = NULL;
    tti_free(holds->holds);
    tti_free(holds);
    return idle;
}

/* Refuses a stream that is being captured. Only a stream that others know can be. */
tutti_status tti_cuda_stream_check(struct tti_stream *stream, tutti_error *error)
{
    struct tti_cuda_device *device = device_of(stream);
    int capturing = 0;
    if (!tti_stream_is_shown(stream) || atomic_load_explicit(&stream->checked, memory_order_relaxed) != 0)
        return TUTTI_OK;
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->stream_capturing(stream->native, &capturing);
        tti_cuda_leave(device);
    }
    TTI_TRY(tti_cuda_check(device, code, "cuStreamIsCapturing", stream, error));
    if (capturing == 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "a stream of %s is being captured into a graph; end the capture first: ranks cannot wait for "
                         "each other inside independent captures",
                         stream->device->name);
}

/* ---- Copies and fills ---------------------------------------------------------------------------------------------- */

/* The driver copies memory that it does not know through its own, and blocks until the stream gets there: so this waits
 * for the stream first, with a deadline. */
tutti_status tti_cuda_copy(struct tti_stream *stream, void *to, const void *from, size_t bytes, tutti_error *error)
{
    if (!tti_cuda_knows(device_of(stream), to) || !tti_cuda_knows(device_of(stream), from))
        TTI_TRY(tti_stream_sync(stream, tti_now_ns() + TTI_DEVICE_PATIENCE_NS, error));
    TTI_TRY(enter(stream, error));
    const struct tti_cuda *cuda = device_of(stream)->cuda;
    int code = cuda->copy((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes, stream->native);
    return leave(stream, code, "cuMemcpyAsync", error);
}

static int fill_8_bytes(const struct tti_cuda *cuda, uint64_t to, size_t count, const void *element, void *stream)
{
    uint32_t half[2];
    memcpy(half, element, sizeof half);
    if (half[0] == half[1]) return cuda->fill_32(to, half[0], 2 * count, stream);
    int code = cuda->fill_rows_32(to, 8, half[0], 1, count, stream);
    return code == TTI_CUDA_OK ? cuda->fill_rows_32(to + 4, 8, half[1], 1, count, stream) : code;
}

static int fill(const struct tti_cuda *cuda, uint64_t to, size_t count, const void *element, size_t bytes, void *stream)
{
    uint8_t value_8;
    uint16_t value_16;
    uint32_t value_32;
    switch (bytes) {
    case 1: memcpy(&value_8, element, 1); return cuda->fill_8(to, value_8, count, stream);
    case 2: memcpy(&value_16, element, 2); return cuda->fill_16(to, value_16, count, stream);
    case 4: memcpy(&value_32, element, 4); return cuda->fill_32(to, value_32, count, stream);
    default: return fill_8_bytes(cuda, to, count, element, stream);
    }
}

tutti_status tti_cuda_fill(struct tti_stream *stream, void *to, size_t count, const void *element, size_t element_bytes,
                           tutti_error *error)
{
    TTI_TRY(enter(stream, error));
    const struct tti_cuda *cuda = device_of(stream)->cuda;
    int code = fill(cuda, (uint64_t)(uintptr_t)to, count, element, element_bytes, stream->native);
    return leave(stream, code, "cuMemsetAsync", error);
}

/* ---- Marks --------------------------------------------------------------------------------------------------------- */

/* Takes a spare event: ops on streams use marks all the time, so events are kept for the next ones. A stream that was
 * told to wait for an event waits for what it stood for then, even if it is recorded anew. */
static bool take_spare(struct tti_cuda_device *device, struct tti_mark *mark)
{
    pthread_mutex_lock(&device->lock);
    bool spare = device->spare_count > 0;
    if (spare) {
        mark->native = device->spare_events[--device->spare_count];
        tti_list_append(&device->marks, &mark->link);
    }
    pthread_mutex_unlock(&device->lock);
    return spare;
}

tutti_status tti_cuda_mark_open(struct tti_mark *mark, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(mark->device);
    if (take_spare(device, mark)) return TUTTI_OK;
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->event_create(&mark->native, TTI_CUDA_EVENT_NO_TIMING);
        tti_cuda_leave(device);
    }
    TTI_TRY(tti_cuda_check(device, code, "cuEventCreate", NULL, error));
    pthread_mutex_lock(&device->lock);
    tti_list_append(&device->marks, &mark->link);
    pthread_mutex_unlock(&device->lock);
    return TUTTI_OK;
}

static void destroy_event(struct tti_cuda_device *device, void *event)
{
    if (tti_cuda_enter(device) != TTI_CUDA_OK) return;
    (void)device->cuda->event_destroy(event);
    tti_cuda_leave(device);
}

/* Drops a mark's event, or keeps it as a spare. If the context is gone, so is the event. With the lock held. */
static void drop_event(struct tti_cuda_device *device, struct tti_mark *mark, bool keep)
{
    if (mark->native != NULL && keep && device->spare_count < TTI_CUDA_SPARE_EVENTS)
        device->spare_events[device->spare_count++] = mark->native;
    else if (mark->native != NULL)
        destroy_event(device, mark->native);
    mark->native = NULL;
    tti_list_remove(&mark->link);
}

void tti_cuda_mark_close(struct tti_mark *mark)
{
    struct tti_cuda_device *device = tti_cuda_of(mark->device);
    pthread_mutex_lock(&device->lock);
    drop_event(device, mark, true);
    pthread_mutex_unlock(&device->lock);
}

void tti_cuda_marks_clear(struct tti_cuda_device *device)
{
    pthread_mutex_lock(&device->lock);
    TTI_LIST_EACH(link, &device->marks) drop_event(device, TTI_LIST_OF(link, struct tti_mark, link), false);
    while (device->spare_count > 0) destroy_event(device, device->spare_events[--device->spare_count]);
    pthread_mutex_unlock(&device->lock);
}

tutti_status tti_cuda_record(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error)
{
    TTI_TRY(enter(stream, error));
    return leave(stream, device_of(stream)->cuda->event_record(mark->native, stream->native), "cuEventRecord", error);
}

/* Waits for a mark of another GPU, which its ranks may shut meanwhile. Its work has ended then, and its marks have no
 * events any more. */
static int wait_for_other(struct tti_stream *stream, struct tti_mark *mark)
{
    struct tti_cuda_device *other = tti_cuda_of(mark->device);
    pthread_mutex_lock(&other->lock);
    int code = mark->native == NULL ? TTI_CUDA_OK : other->cuda->stream_wait_event(stream->native, mark->native, 0);
    pthread_mutex_unlock(&other->lock);
    return code;
}

tutti_status tti_cuda_after(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error)
{
    TTI_TRY(enter(stream, error));
    int code = mark->device != stream->device
                   ? wait_for_other(stream, mark)
                   : device_of(stream)->cuda->stream_wait_event(stream->native, mark->native, 0);
    return leave(stream, code, "cuStreamWaitEvent", error);
}

bool tti_cuda_passed(struct tti_mark *mark)
{
    struct tti_cuda_device *device = tti_cuda_of(mark->device);
    if (tti_device_is_poisoned(mark->device) || mark->native == NULL) return true;
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->event_query(mark->native);
        tti_cuda_leave(device);
    }
    if (code == TTI_CUDA_NOT_READY) return false;
    (void)tti_cuda_check(device, code, "cuEventQuery", mark->stream, NULL);
    return true;
}

/* ---- Kernels ------------------------------------------------------------------------------------------------------- */

static tutti_status bad_code(struct tti_cuda_device *device, int code, const struct tti_kernel *kernel, const char *log,
                             tutti_error *error)
{
    tutti_error why = {0};
    tutti_status status = tti_cuda_check(device, code, "cuModuleLoadData", NULL, &why);
    if (status == TUTTI_ERR_DEVICE || status == TUTTI_ERR_MEMORY)
        return tti_error_set(error, status, 0, "%s", why.text);
    return tti_error_set(error, status, 0, "the code of %s cannot be loaded on %s: %s (%d) %.200s", kernel->name,
                         device->device.name, tti_cuda_name(device->cuda, code), code, log);
}

/* Finds the kernel and loads it: at its first launch loading would wait for all streams of the GPU. */
static int find_function(const struct tti_cuda *cuda, void *module, struct tti_kernel *kernel)
{
    int code = cuda->module_function(&kernel->native, module, kernel->name);
    return code == TTI_CUDA_OK && cuda->function_load != NULL ? cuda->function_load(kernel->native) : code;
}

tutti_status tti_cuda_kernel_load(struct tti_device *of, const char *text, struct tti_kernel *kernel,
                                  tutti_error *error)
{
    enum { LOG_BYTES = 512 };
    struct tti_cuda_device *device = tti_cuda_of(of);
    char log[LOG_BYTES] = "";
    int names[] = {TTI_CUDA_JIT_ERROR_LOG, TTI_CUDA_JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)LOG_BYTES};
    if (text == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "there is no code of %s for GPUs", kernel->name);
    struct tti_cuda_module *module = tti_calloc(1, sizeof *module);
    if (module == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a kernel");
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->module_load(&module->native, text, 2, names, values);
        if (code == TTI_CUDA_OK) {
            code = find_function(device->cuda, module->native, kernel);
            if (code != TTI_CUDA_OK) (void)device->cuda->module_unload(module->native);
        }
        tti_cuda_leave(device);
    }
    if (code != TTI_CUDA_OK) {
        tti_free(module);
        return bad_code(device, code, kernel, log, error);
    }
    pthread_mutex_lock(&device->lock);
    module->next = device->modules;
    device->modules = module;
    pthread_mutex_unlock(&device->lock);
    return TUTTI_OK;
}

tutti_status tti_cuda_launch(struct tti_stream *stream, const struct tti_kernel *kernel,
                             const struct tti_launch_shape *shape, const void *arguments, size_t bytes,
                             tutti_error *error)
{
    size_t size = bytes;
    union {
        const void *given;
        void *taken;
    } buffer = {.given = arguments}; /* the driver only reads it */
    void *extra[] = {TTI_CUDA_LAUNCH_BUFFER, buffer.taken, TTI_CUDA_LAUNCH_BUFFER_SIZE, &size, TTI_CUDA_LAUNCH_END};
    const unsigned *grid = shape->grid, *block = shape->block;
    if (kernel->native == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%s was not loaded on %s", kernel->name,
                             stream->device->name);
    atomic_store_explicit(&device_of(stream)->last_kernel, kernel->name, memory_order_relaxed);
    TTI_TRY(enter(stream, error));
    int code = device_of(stream)->cuda->launch(kernel->native, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                               shape->shared_bytes, stream->native, NULL, bytes == 0 ? NULL : extra);
    return leave(stream, code, "cuLaunchKernel", error);
}
