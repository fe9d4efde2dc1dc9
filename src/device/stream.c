/* SPDX-License-Identifier: Apache-2.0 */
#include "device/stream.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "device/open.h"
#include <errno.h>
#include <pthread.h>

#define MS INT64_C(1000000)
#define ABORT_NS (1000 * MS) /* how long work may take to end after its holds were let go */
#define NAP_FIRST_NS INT64_C(5000)
#define NAP_MOST_NS (1 * MS)

void tti_poll_nap(int64_t *nap_ns)
{
    tti_bell nobody = 0;
    *nap_ns = *nap_ns == 0 ? NAP_FIRST_NS : *nap_ns * 2 < NAP_MOST_NS ? *nap_ns * 2 : NAP_MOST_NS;
    tti_bell_sleep(&nobody, 0, *nap_ns, false);
}

/* ---- State ------------------------------------------------------------------------------------------------------- */

struct tti_stream *tti_stream_take(tutti_stream *handle, tutti_error *error)
{
    struct tti_object *object = tti_object_take(handle, TTI_OBJECT_STREAM, error);
    return object == NULL ? NULL : TTI_LIST_OF(object, struct tti_stream, object);
}

tutti_status tti_stream_state(const struct tti_stream *stream, tutti_error *error)
{
    TTI_TRY(tti_device_usable(stream->device, stream->generation, "stream", error));
    if (atomic_load_explicit(&stream->ended, memory_order_acquire) != 0)
        return tti_error_set(error, TUTTI_ERR_STALE, 0, "the stream of %s was freed (dropped) before this call",
                             stream->device->name);
    if (atomic_load_explicit(&stream->given_up, memory_order_acquire) != 0)
        return tti_error_set(error, TUTTI_ERR_CANCELLED, 0,
                             "the stream of %s was given up: its work waited for too long; free it",
                             stream->device->name);
    return TUTTI_OK;
}

tutti_status tti_stream_ready(struct tti_stream *stream, tutti_error *error)
{
    TTI_TRY(tti_stream_state(stream, error));
    return stream->device->ops->stream_check(stream, error);
}

/* ---- Giving up ---------------------------------------------------------------------------------------------------- */

static pthread_mutex_t guards_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists of all streams */

void tti_stream_guard(struct tti_stream *stream, struct tti_stream_guard *guard)
{
    pthread_mutex_lock(&guards_lock);
    guard->stream = stream;
    tti_list_append(&stream->guards, &guard->link);
    pthread_mutex_unlock(&guards_lock);
}

void tti_stream_unguard(struct tti_stream_guard *guard)
{
    if (guard->stream == NULL) return;
    pthread_mutex_lock(&guards_lock);
    tti_list_remove(&guard->link);
    pthread_mutex_unlock(&guards_lock);
    guard->stream = NULL;
}

/* Gives the stream up. A guard that is added after this cannot put anything on it. */
void tti_stream_give_up(struct tti_stream *stream)
{
    atomic_store_explicit(&stream->given_up, 1, memory_order_seq_cst);
    pthread_mutex_lock(&guards_lock);
    TTI_LIST_EACH(link, &stream->guards)
    {
        struct tti_stream_guard *guard = TTI_LIST_OF(link, struct tti_stream_guard, link);
        guard->give_up(guard);
    }
    pthread_mutex_unlock(&guards_lock);
    stream->device->ops->stream_abort(stream);
}

/* ---- Making and ending ------------------------------------------------------------------------------------------- */

static void destroy(struct tti_object *object)
{
    struct tti_stream *stream = TTI_LIST_OF(object, struct tti_stream, object);
    struct tti_device *device = stream->device;
    tti_free(stream);
    tti_object_give(&device->object);
}

static tutti_status open_stream(struct tti_device *device, void *foreign, struct tti_stream **made, tutti_error *error)
{
    struct tti_stream *stream = tti_calloc(1, sizeof *stream);
    if (stream == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a stream");
    stream->device = device;
    stream->generation = tti_device_generation(device);
    stream->adopted = foreign != NULL;
    tti_list_init(&stream->link);
    tti_list_init(&stream->guards);
    tutti_status status = tti_word_take(device, &stream->done, error);
    if (status != TUTTI_OK) goto free_stream;
    stream->syncs = atomic_load_explicit(&stream->done->value, memory_order_relaxed);
    status = device->ops->stream_open(stream, foreign, error);
    if (status != TUTTI_OK) goto give_word;
    tti_object_keep(&device->object);
    tti_object_init(&stream->object, TTI_OBJECT_STREAM, destroy);
    *made = stream;
    return TUTTI_OK;

give_word:
    tti_word_give(device, stream->done);
free_stream:
    tti_free(stream);
    return status;
}

static bool wait_idle(struct tti_stream *stream, int64_t deadline_ns)
{
    int64_t nap_ns = 0;
    while (!stream->device->ops->stream_idle(stream)) {
        if (tti_now_ns() >= deadline_ns) return stream->device->ops->stream_idle(stream);
        tti_poll_nap(&nap_ns);
    }
    return true;
}

/* Closes the native stream. After this, either no work of it runs any more or the memory that it uses is lost. Nobody
 * records the open mark from here on. */
static void close_native(struct tti_stream *stream)
{
    struct tti_device *device = stream->device;
    tti_lock(&stream->lock);
    struct tti_mark *mark = stream->open_mark;
    stream->open_mark = NULL;
    tti_unlock(&stream->lock);
    bool idle = device->ops->stream_close(stream);
    atomic_store_explicit(&stream->lost, !idle, memory_order_release);
    atomic_store_explicit(&stream->ended, 1, memory_order_release);
    if (tti_word_reached(stream->done, stream->syncs)) tti_word_give(device, stream->done);
    if (mark != NULL) tti_object_give(&mark->object);
}

/* Raises the owed word, also on a stream that takes no other work any more because its device is opened again or shut: whoever
 * waits for the word would wait for ever. Done under the lock, so that a word is never raised to less than before. */
static tutti_status pay(struct tti_stream *stream, tutti_error *error)
{
    const struct tti_device_ops *ops = stream->device->ops;
    tutti_status status = TUTTI_OK;
    tti_lock(&stream->lock);
    uint64_t value = atomic_load_explicit(&stream->owed, memory_order_relaxed);
    if (value != 0 && stream->owed_for != NULL) status = ops->after(stream, stream->owed_for, error);
    if (value != 0 && status == TUTTI_OK) status = ops->raise(stream, stream->owed_word, value, error);
    if (status == TUTTI_OK) atomic_store_explicit(&stream->owed, 0, memory_order_relaxed);
    tti_unlock(&stream->lock);
    return status;
}

/* Ends the stream. Work that the caller put on its own stream goes on. */
static tutti_status end_stream(struct tti_stream *stream, int64_t deadline_ns, tutti_error *error)
{
    const char *last = atomic_load_explicit(&stream->last, memory_order_relaxed);
    (void)pay(stream, &(tutti_error){0}); /* a device that has failed does nothing any more */
    bool idle = stream->adopted || wait_idle(stream, deadline_ns);
    if (!idle) {
        tti_stream_give_up(stream);
        wait_idle(stream, tti_now_ns() + ABORT_NS);
    }
    close_native(stream);
    if (idle) return TUTTI_OK;
    return tti_error_set(
        error, TUTTI_ERR_TIMEOUT, 0,
        "work on a stream of %s did not end in time and was given up%s; the last that was put there is "
        "%s",
        stream->device->name,
        atomic_load_explicit(&stream->lost, memory_order_relaxed) != 0
            ? ", but goes on: the memory it uses is not given back"
            : "",
        last == NULL ? "nothing" : last);
}

/* Returns true if it was on the list, so that the caller ends it and no other thread does. */
static bool unlink_stream(struct tti_stream *stream)
{
    struct tti_device *device = stream->device;
    tti_lock(&device->lock);
    bool there = !tti_list_is_empty(&stream->link);
    tti_list_remove(&stream->link);
    tti_unlock(&device->lock);
    return there;
}

static struct tti_stream *first_stream(struct tti_device *device)
{
    struct tti_stream *stream = NULL;
    tti_lock(&device->lock);
    if (!tti_list_is_empty(&device->streams)) {
        stream = TTI_LIST_OF(device->streams.next, struct tti_stream, link);
        tti_object_keep(&stream->object);
        tti_list_remove(&stream->link);
    }
    tti_unlock(&device->lock);
    return stream;
}

tutti_status tti_streams_end(struct tti_device *device, int64_t deadline_ns, tutti_error *error)
{
    tutti_status first = TUTTI_OK;
    struct tti_stream *stream;
    while ((stream = first_stream(device)) != NULL) {
        tutti_status status = end_stream(stream, deadline_ns, first == TUTTI_OK ? error : NULL);
        if (first == TUTTI_OK) first = status;
        tti_object_give(&stream->object);
    }
    return first;
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

static tutti_status begin(struct tti_stream *stream, const char *what, tutti_error *error)
{
    TTI_TRY(tti_stream_ready(stream, error));
    atomic_store_explicit(&stream->last, what, memory_order_relaxed);
    atomic_fetch_add_explicit(&stream->works, 1, memory_order_relaxed);
    return TUTTI_OK;
}

tutti_status tti_stream_copy(struct tti_stream *stream, void *to, const void *from, size_t bytes, tutti_error *error)
{
    TTI_TRY(begin(stream, "a copy", error));
    return bytes == 0 ? TUTTI_OK : stream->device->ops->copy(stream, to, from, bytes, error);
}

tutti_status tti_stream_fill(struct tti_stream *stream, void *to, size_t count, const void *element,
                             size_t element_bytes, tutti_error *error)
{
    TTI_TRY(begin(stream, "a fill", error));
    return count == 0 ? TUTTI_OK : stream->device->ops->fill(stream, to, count, element, element_bytes, error);
}

tutti_status tti_stream_raise(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error)
{
    TTI_TRY(begin(stream, "a raise of a word", error));
    return stream->device->ops->raise(stream, word, value, error);
}

void tti_stream_owe(struct tti_stream *stream, struct tti_word *word, uint64_t value, struct tti_mark *mark)
{
    tti_lock(&stream->lock);
    stream->owed_word = word;
    stream->owed_for = mark;
    atomic_store_explicit(&stream->owed, value, memory_order_relaxed);
    tti_unlock(&stream->lock);
}

tutti_status tti_stream_pay(struct tti_stream *stream, tutti_error *error)
{
    if (!tti_stream_owes(stream)) return TUTTI_OK;
    TTI_TRY(begin(stream, "a raise of a word", error));
    return pay(stream, error);
}

tutti_status tti_stream_launch(struct tti_stream *stream, const struct tti_kernel *kernel,
                               const struct tti_launch_shape *shape, const void *arguments, size_t bytes,
                               tutti_error *error)
{
    TTI_TRY(begin(stream, kernel->name, error));
    return stream->device->ops->launch(stream, kernel, shape, arguments, bytes, error);
}

tutti_status tti_stream_sync(struct tti_stream *stream, int64_t deadline_ns, tutti_error *error)
{
    TTI_TRY(tti_stream_ready(stream, error));
    atomic_store_explicit(&stream->until_ns, deadline_ns, memory_order_relaxed);
    tutti_status status = stream->device->ops->raise(stream, stream->done, stream->syncs + 1, error);
    atomic_store_explicit(&stream->until_ns, 0, memory_order_relaxed);
    if (status != TUTTI_OK) return status;
    stream->syncs++;
    TTI_TRY(tti_word_await(stream, stream->done, stream->syncs, deadline_ns, error));
    atomic_store_explicit(&stream->works, 0, memory_order_relaxed);
    return tti_stream_state(stream, error); /* a stream that was given up ends its work without having done it */
}

/* ---- Waits, and the marks before them ---------------------------------------------------------------------------- */

/* Records an open mark once, for the first caller that needs it. */
tutti_status tti_mark_settle(struct tti_mark *mark, tutti_error *error)
{
    struct tti_stream *stream = mark->stream;
    if (stream == NULL || atomic_load_explicit(&mark->recorded, memory_order_acquire) != 0) return TUTTI_OK;
    tutti_status status = TUTTI_OK;
    struct tti_mark *closed = NULL;
    tti_lock(&stream->lock);
    if (stream->open_mark == mark) {
        status = stream->device->ops->record(stream, mark, error);
        atomic_fetch_add_explicit(&stream->works, 1, memory_order_relaxed);
        if (status == TUTTI_OK) {
            atomic_store_explicit(&mark->recorded, 1, memory_order_release);
            stream->open_mark = NULL;
            closed = mark;
        }
    }
    tti_unlock(&stream->lock);
    if (closed != NULL) tti_object_give(&closed->object);
    return status;
}

static tutti_status settle_stream(struct tti_stream *stream, tutti_error *error)
{
    tti_lock(&stream->lock);
    struct tti_mark *mark = stream->open_mark;
    if (mark != NULL) tti_object_keep(&mark->object);
    tti_unlock(&stream->lock);
    if (mark == NULL) return TUTTI_OK;
    tutti_status status = tti_mark_settle(mark, error);
    tti_object_give(&mark->object);
    return status;
}

tutti_status tti_stream_hold(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error)
{
    TTI_TRY(begin(stream, "a hold until a word is raised", error));
    TTI_TRY(tti_stream_pay(stream, error));
    TTI_TRY(settle_stream(stream, error));
    return stream->device->ops->hold(stream, word, value, error);
}

/* For an unrecorded mark: if it is a stream's and not open any more, the stream has ended since, and with it all its
 * work. */
static tutti_status unrecorded(const struct tti_mark *mark, tutti_error *error)
{
    if (mark->stream == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "the mark was never recorded: there is nothing to wait for; record it first");
    if (atomic_load_explicit(&mark->stream->lost, memory_order_acquire) == 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_CANCELLED, 0,
                         "the buffer is used by work on a stream of %s that was given up", mark->device->name);
}

tutti_status tti_stream_after(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error)
{
    struct tti_device *other = mark->device;
    TTI_TRY(begin(stream, "a wait for a mark", error));
    if (other->ops != stream->device->ops)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a stream of %s cannot wait for a mark of %s",
                             stream->device->name, other->name);
    TTI_TRY(tti_mark_settle(mark, error));
    if (atomic_load_explicit(&mark->recorded, memory_order_acquire) == 0) return unrecorded(mark, error);
    TTI_TRY(tti_stream_pay(stream, error));
    TTI_TRY(settle_stream(stream, error));
    return stream->device->ops->after(stream, mark, error);
}

tutti_status tti_stream_record(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error)
{
    TTI_TRY(begin(stream, "a mark", error));
    if (mark->device != stream->device)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a mark of %s cannot be recorded on a stream of %s",
                             mark->device->name, stream->device->name);
    TTI_TRY(stream->device->ops->record(stream, mark, error));
    atomic_store_explicit(&mark->recorded, 1, memory_order_release);
    return TUTTI_OK;
}

tutti_status tti_stream_note(struct tti_stream *stream, struct tti_mark **noted, tutti_error *error)
{
    struct tti_mark *mark = NULL, *fresh = NULL;
    tti_lock(&stream->lock);
    if (stream->open_mark != NULL) {
        mark = stream->open_mark;
        tti_object_keep(&mark->object);
    }
    tti_unlock(&stream->lock);
    if (mark == NULL) {
        TTI_TRY(tti_mark_make(stream->device, &fresh, error));
        fresh->stream = stream;
        tti_object_keep(&stream->object);
        tti_object_keep(&fresh->object); /* one reference for the stream; the first one is the caller's */
        tti_lock(&stream->lock);
        stream->open_mark = mark = fresh; /* one thread at a time puts work on a stream, so there is still none */
        tti_unlock(&stream->lock);
    }
    *noted = mark;
    return TUTTI_OK;
}

tutti_status tti_stream_settle_shown(struct tti_stream *stream, tutti_error *error)
{
    return tti_stream_is_shown(stream) ? settle_stream(stream, error) : TUTTI_OK;
}

bool tti_mark_passed(struct tti_mark *mark)
{
    if (atomic_load_explicit(&mark->recorded, memory_order_acquire) != 0) return mark->device->ops->passed(mark);
    const struct tti_stream *stream = mark->stream;
    return stream != NULL && atomic_load_explicit(&stream->ended, memory_order_acquire) != 0 &&
           atomic_load_explicit(&stream->lost, memory_order_acquire) == 0;
}

tutti_status tti_stream_make(struct tti_device *device, struct tti_stream **stream, tutti_error *error)
{
    TTI_TRY(open_stream(device, NULL, stream, error));
    tti_lock(&device->lock);
    tti_list_append(&device->streams, &(*stream)->link);
    tti_unlock(&device->lock);
    return TUTTI_OK;
}

tutti_status tti_stream_drop(struct tti_stream *stream, tutti_error *error)
{
    tutti_status status = TUTTI_OK;
    if (unlink_stream(stream)) status = end_stream(stream, tti_now_ns() + TTI_DEVICE_CLOSE_NS, error);
    tti_object_give(&stream->object);
    return status;
}

/* ---- Public ------------------------------------------------------------------------------------------------------ */

static tutti_status publish(struct tti_device *device, struct tti_stream *stream, tutti_stream **handle,
                            tutti_error *error)
{
    tti_lock(&device->lock);
    tti_list_append(&device->streams, &stream->link);
    tti_unlock(&device->lock);
    if (tti_object_publish(&stream->object)) {
        *handle = stream->object.handle;
        return TUTTI_OK;
    }
    if (unlink_stream(stream)) end_stream(stream, tti_now_ns() + ABORT_NS, NULL);
    tti_object_give(&stream->object);
    return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a stream's handle");
}

static tutti_status create(tutti_device *handle, void *foreign, tutti_stream **stream, tutti_error *error)
{
    struct tti_stream *made = NULL;
    if (stream == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "where the stream shall go is NULL");
    *stream = NULL;
    struct tti_device *device = tti_device_take(handle, error);
    if (device == NULL) return error->status;
    tutti_status status = tti_device_usable(device, tti_device_generation(device), "handle", error);
    if (status == TUTTI_OK) status = open_stream(device, foreign, &made, error);
    if (status == TUTTI_OK) status = publish(device, made, stream, error);
    tti_object_give(&device->object);
    return status;
}

tutti_status tutti_stream_create(tutti_device *device, tutti_stream **stream, tutti_error *error)
{
    tutti_error none;
    return create(device, NULL, stream, tti_error_begin(error, &none, "stream_create"));
}

tutti_status tutti_stream_adopt(tutti_device *device, void *foreign, tutti_stream **stream, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "stream_adopt");
    if (foreign == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "the default stream cannot be adopted: work on it waits for that of other streams; make "
                             "one (cudaStreamCreateWithFlags, cudaStreamNonBlocking)");
    return create(device, foreign, stream, error);
}

void *tutti_stream_native(tutti_stream *handle)
{
    tutti_error none;
    struct tti_stream *stream = tti_stream_take(handle, &none);
    if (stream == NULL) return NULL;
    void *native = NULL;
    if (tti_stream_state(stream, &none) == TUTTI_OK) {
        atomic_store_explicit(&stream->shown, 1, memory_order_relaxed);
        native = stream->native;
    }
    tti_object_give(&stream->object);
    return native;
}

tutti_status tutti_stream_sync(tutti_stream *handle, int64_t timeout_ms, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "stream_sync");
    struct tti_stream *stream = tti_stream_take(handle, error);
    if (stream == NULL) return error->status;
    bool limited = timeout_ms >= 0 && timeout_ms < TTI_DEVICE_PATIENCE_NS / MS;
    tutti_status status = tti_stream_sync(stream, tti_now_ns() + (limited ? timeout_ms * MS : TTI_DEVICE_PATIENCE_NS),
                                          error);
    tti_object_give(&stream->object);
    return status;
}

tutti_status tutti_stream_free(tutti_stream *handle, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "stream_free");
    if (handle == NULL) return TUTTI_OK;
    struct tti_object *object = tti_object_revoke(handle, TTI_OBJECT_STREAM, error);
    if (object == NULL) return error->status;
    return tti_stream_drop(TTI_LIST_OF(object, struct tti_stream, object), error);
}

tutti_status tutti_stream_after(tutti_stream *handle, tutti_mark *mark_handle, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "stream_after");
    struct tti_stream *stream = tti_stream_take(handle, error);
    struct tti_object *mark = stream == NULL ? NULL : tti_object_take(mark_handle, TTI_OBJECT_MARK, error);
    tutti_status status = error->status;
    if (mark != NULL) {
        struct tti_mark *of = TTI_LIST_OF(mark, struct tti_mark, object);
        status = tti_device_usable(of->device, of->generation, "mark", error);
        if (status == TUTTI_OK) status = tti_stream_after(stream, of, error);
    }
    tti_object_give(mark);
    if (stream != NULL) tti_object_give(&stream->object);
    return status;
}
