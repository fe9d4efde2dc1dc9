/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills of buffers, put on a stream: handles and bounds are checked, then the stream waits for other uses,
 * then the work is put there, then the use is noted. A call that is refused has put nothing there, except such waits.
 */
#include "base/status.h"
#include "device/buffer.h"
#include "device/open.h"
#include "device/stream.h"

/* The buffer and the stream of one call, with references. */
struct call {
    struct tti_device_buffer *buffer;
    struct tti_stream *stream;
    char *at;
};

static void give(struct call *call)
{
    if (call->buffer != NULL) tti_object_give(&call->buffer->object);
    if (call->stream != NULL) tti_object_give(&call->stream->object);
    *call = (struct call){0};
}

static tutti_status take(struct call *call, tutti_buffer *buffer, size_t offset, size_t count, tutti_stream *stream,
                         tutti_error *error)
{
    *call = (struct call){.buffer = tti_buffer_take(buffer, error)};
    if (call->buffer == NULL) return error->status;
    tutti_status status = tti_buffer_range(call->buffer, offset, count, &call->at, error);
    if (status == TUTTI_OK) {
        call->stream = tti_stream_take(stream, error);
        status = call->stream == NULL ? error->status : tti_stream_make_room(call->stream, error);
    }
    if (status != TUTTI_OK) give(call);
    return status;
}

static tutti_status check_host(const void *pointer, size_t count, tutti_error *error)
{
    if (pointer != NULL || count == 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the host memory is NULL");
}

static tutti_status put(const struct call *call, const void *from, size_t count, tutti_error *error)
{
    TTI_TRY(check_host(from, count, error));
    TTI_TRY(tti_buffer_begin(call->buffer, TUTTI_WRITES, call->stream, error));
    TTI_TRY(tti_stream_copy(call->stream, call->at, from, count * tutti_type_bytes(call->buffer->type), error));
    return tti_buffer_end(call->buffer, TUTTI_WRITES, call->stream, error);
}

tutti_status tutti_buffer_put(tutti_buffer *buffer, size_t offset, const void *from, size_t count, tutti_stream *stream,
                              tutti_error *error)
{
    struct call call;
    tutti_error none;
    error = tti_error_begin(error, &none, "buffer_put");
    TTI_TRY(take(&call, buffer, offset, count, stream, error));
    tutti_status status = put(&call, from, count, error);
    give(&call);
    return status;
}

static tutti_status get(const struct call *call, void *to, size_t count, tutti_error *error)
{
    TTI_TRY(check_host(to, count, error));
    TTI_TRY(tti_buffer_begin(call->buffer, TUTTI_READS, call->stream, error));
    TTI_TRY(tti_stream_copy(call->stream, to, call->at, count * tutti_type_bytes(call->buffer->type), error));
    return tti_buffer_end(call->buffer, TUTTI_READS, call->stream, error);
}

tutti_status tutti_buffer_get(tutti_buffer *buffer, size_t offset, void *to, size_t count, tutti_stream *stream,
                              tutti_error *error)
{
    struct call call;
    tutti_error none;
    error = tti_error_begin(error, &none, "buffer_get");
    TTI_TRY(take(&call, buffer, offset, count, stream, error));
    tutti_status status = get(&call, to, count, error);
    give(&call);
    return status;
}

static tutti_status check_pair(const struct call *to, const struct call *from, size_t count, tutti_error *error)
{
    if (to->buffer->type != from->buffer->type)
        return tti_error_set(error, TUTTI_ERR_TYPE, 0, "a buffer of %s cannot be copied to one of %s",
                             tutti_type_name(from->buffer->type), tutti_type_name(to->buffer->type));
    size_t bytes = count * tutti_type_bytes(to->buffer->type);
    if (bytes > 0 && to->at < from->at + bytes && from->at < to->at + bytes)
        return tti_error_set(error, TUTTI_ERR_OVERLAP, 0, "the two ranges of a copy overlap");
    return TUTTI_OK;
}

static tutti_status copy(const struct call *to, const struct call *from, size_t count, tutti_error *error)
{
    TTI_TRY(check_pair(to, from, count, error));
    TTI_TRY(tti_buffer_begin(from->buffer, TUTTI_READS, to->stream, error));
    TTI_TRY(tti_buffer_begin(to->buffer, TUTTI_WRITES, to->stream, error));
    TTI_TRY(tti_stream_copy(to->stream, to->at, from->at, count * tutti_type_bytes(to->buffer->type), error));
    TTI_TRY(tti_buffer_note(from->buffer, TUTTI_READS, to->stream, error));
    return tti_buffer_end(to->buffer, TUTTI_WRITES, to->stream, error);
}

tutti_status tutti_buffer_copy(tutti_buffer *to, size_t to_offset, tutti_buffer *from, size_t from_offset, size_t count,
                               tutti_stream *stream, tutti_error *error)
{
    struct call to_call, from_call;
    tutti_error none;
    error = tti_error_begin(error, &none, "buffer_copy");
    TTI_TRY(take(&to_call, to, to_offset, count, stream, error));
    tutti_status status = take(&from_call, from, from_offset, count, stream, error);
    if (status == TUTTI_OK) {
        status = copy(&to_call, &from_call, count, error);
        give(&from_call);
    }
    give(&to_call);
    return status;
}

static tutti_status fill(const struct call *call, size_t count, const void *element, tutti_error *error)
{
    if (element == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the element is NULL");
    TTI_TRY(tti_buffer_begin(call->buffer, TUTTI_WRITES, call->stream, error));
    TTI_TRY(tti_stream_fill(call->stream, call->at, count, element, tutti_type_bytes(call->buffer->type), error));
    return tti_buffer_end(call->buffer, TUTTI_WRITES, call->stream, error);
}

tutti_status tutti_buffer_fill(tutti_buffer *buffer, size_t offset, size_t count, const void *element,
                               tutti_stream *stream, tutti_error *error)
{
    struct call call;
    tutti_error none;
    error = tti_error_begin(error, &none, "buffer_fill");
    TTI_TRY(take(&call, buffer, offset, count, stream, error));
    tutti_status status = fill(&call, count, element, error);
    give(&call);
    return status;
}

typedef tutti_status announce(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                              tutti_error *error);

static tutti_status use(announce *tell, tutti_buffer *buffer, tutti_access access, tutti_stream *stream,
                        tutti_error *error)
{
    struct call call;
    if (access != TUTTI_READS && access != TUTTI_WRITES)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%d is neither TUTTI_READS nor TUTTI_WRITES", (int)access);
    TTI_TRY(take(&call, buffer, 0, 0, stream, error));
    tutti_status status = tell(call.buffer, access, call.stream, error);
    give(&call);
    return status;
}

tutti_status tutti_buffer_begin(tutti_buffer *buffer, tutti_access access, tutti_stream *stream, tutti_error *error)
{
    tutti_error none;
    return use(tti_buffer_begin, buffer, access, stream, tti_error_begin(error, &none, "buffer_begin"));
}

tutti_status tutti_buffer_end(tutti_buffer *buffer, tutti_access access, tutti_stream *stream, tutti_error *error)
{
    tutti_error none;
    return use(tti_buffer_end, buffer, access, stream, tti_error_begin(error, &none, "buffer_end"));
}
