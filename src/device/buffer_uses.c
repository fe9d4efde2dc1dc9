/* SPDX-License-Identifier: Apache-2.0 */
#include "device/buffer_uses.h"

#include "base/clock.h"
#include "base/status.h"
#include "device/open.h"
#include "device/stream.h"

enum { MARKS = TTI_BUFFER_READERS + 1 };

struct uses {
    int count;
    struct tti_mark *marks[MARKS];
};

static void give_all(struct uses *uses)
{
    for (int i = 0; i < uses->count; i++) tti_object_give(&uses->marks[i]->object);
}

/* Returns the marks, with references; the writer's first. `reads`: with the readers' marks. */
static struct uses uses_of(struct tti_device_buffer *buffer, bool reads)
{
    struct uses uses = {0};
    tti_lock(&buffer->lock);
    if (buffer->writer != NULL) uses.marks[uses.count++] = buffer->writer;
    for (int i = 0; i < TTI_BUFFER_READERS && reads; i++)
        if (buffer->readers[i] != NULL) uses.marks[uses.count++] = buffer->readers[i];
    for (int i = 0; i < uses.count; i++) tti_object_keep(&uses.marks[i]->object);
    tti_unlock(&buffer->lock);
    return uses;
}

bool tti_uses_passed(struct tti_device_buffer *buffer)
{
    if (atomic_load_explicit(&buffer->held, memory_order_acquire) != 0) return false;
    struct uses uses = uses_of(buffer, true);
    bool passed = true;
    for (int i = 0; i < uses.count && passed; i++) passed = tti_mark_passed(uses.marks[i]);
    give_all(&uses);
    return passed;
}

struct tti_stream *tti_uses_only(struct tti_device_buffer *buffer)
{
    if (atomic_load_explicit(&buffer->held, memory_order_acquire) != 0) return NULL;
    struct uses uses = uses_of(buffer, true);
    struct tti_stream *only = uses.count == 0 ? NULL : uses.marks[0]->stream;
    for (int i = 1; i < uses.count && only != NULL; i++)
        if (uses.marks[i]->stream != only) only = NULL;
    tutti_error none;
    if (only != NULL && (only->device != buffer->device || tti_stream_state(only, &none) != TUTTI_OK)) only = NULL;
    if (only != NULL) tti_object_keep(&only->object);
    give_all(&uses);
    return only;
}

void tti_uses_settle(struct tti_device_buffer *buffer)
{
    struct uses uses = uses_of(buffer, true);
    tutti_error none;
    /* if it fails, the mark passes when its stream ends */
    for (int i = 0; i < uses.count; i++) (void)tti_mark_settle(uses.marks[i], &none);
    give_all(&uses);
}

/* Takes all marks out of the buffer; the caller owns their references. With the lock held. */
static struct uses take_all(struct tti_device_buffer *buffer)
{
    struct uses uses = {0};
    if (buffer->writer != NULL) uses.marks[uses.count++] = buffer->writer;
    buffer->writer = NULL;
    for (int i = 0; i < TTI_BUFFER_READERS; i++) {
        if (buffer->readers[i] != NULL) uses.marks[uses.count++] = buffer->readers[i];
        buffer->readers[i] = NULL;
    }
    return uses;
}

void tti_uses_clear(struct tti_device_buffer *buffer)
{
    tti_lock(&buffer->lock);
    struct uses uses = take_all(buffer);
    tti_unlock(&buffer->lock);
    give_all(&uses);
}

tutti_status tti_buffer_begin(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                              tutti_error *error)
{
    TTI_TRY(tti_buffer_usable(buffer, error));
    TTI_TRY(tti_stream_ready(stream, error));
    if (buffer->device->ops != stream->device->ops)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the buffer is on %s, the stream on %s",
                             buffer->device->name, stream->device->name);
    struct uses uses = uses_of(buffer, access == TUTTI_WRITES);
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < uses.count && status == TUTTI_OK; i++)
        if (uses.marks[i]->stream != stream) status = tti_stream_after(stream, uses.marks[i], error);
    give_all(&uses);
    return status;
}

/* Returns the place of a stream among the readers: its own, or a free one, or -1. With the lock held. */
static int place_for(const struct tti_device_buffer *buffer, const struct tti_stream *stream)
{
    int place = -1;
    for (int i = 0; i < TTI_BUFFER_READERS; i++) {
        if (buffer->readers[i] == NULL) place = i;
        if (buffer->readers[i] != NULL && buffer->readers[i]->stream == stream) return i;
    }
    return place;
}

static bool is_crowded(struct tti_device_buffer *buffer, const struct tti_stream *stream)
{
    tti_lock(&buffer->lock);
    bool crowded = place_for(buffer, stream) < 0;
    tti_unlock(&buffer->lock);
    return crowded;
}

/* Notes a read; the buffer takes over the mark's reference. */
static void note_read(struct tti_device_buffer *buffer, struct tti_mark *mark)
{
    tti_lock(&buffer->lock);
    int place = place_for(buffer, mark->stream);
    struct tti_mark **reader = &buffer->readers[place < 0 ? 0 : place], *before = *reader;
    *reader = mark;
    tti_unlock(&buffer->lock);
    if (before != NULL) tti_object_give(&before->object);
}

static void note_write(struct tti_device_buffer *buffer, struct tti_mark *mark)
{
    tti_lock(&buffer->lock);
    struct uses before = take_all(buffer);
    buffer->writer = mark;
    tti_unlock(&buffer->lock);
    give_all(&before);
}

/* All places belong to other streams: this stream waits for the first of them, and takes its place. */
static tutti_status join_first(struct tti_device_buffer *buffer, struct tti_stream *stream, tutti_error *error)
{
    tti_lock(&buffer->lock);
    struct tti_mark *first = buffer->readers[0];
    tti_object_keep(&first->object);
    tti_unlock(&buffer->lock);
    tutti_status status = tti_stream_after(stream, first, error);
    tti_object_give(&first->object);
    return status;
}

static tutti_status note(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                         tutti_error *error)
{
    struct tti_mark *mark;
    if (access == TUTTI_READS && is_crowded(buffer, stream)) TTI_TRY(join_first(buffer, stream, error));
    TTI_TRY(tti_stream_note(stream, &mark, error));
    if (access == TUTTI_WRITES)
        note_write(buffer, mark);
    else
        note_read(buffer, mark);
    return TUTTI_OK;
}

tutti_status tti_buffer_note(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                             tutti_error *error)
{
    tutti_status status = note(buffer, access, stream, error);
    if (status != TUTTI_ERR_MEMORY) return status;
    return tti_stream_sync(stream, tti_now_ns() + TTI_DEVICE_PATIENCE_NS, error);
}

tutti_status tti_buffer_end(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                            tutti_error *error)
{
    TTI_TRY(tti_buffer_note(buffer, access, stream, error));
    return tti_stream_settle_shown(stream, error);
}
