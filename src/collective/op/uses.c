/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/uses.h"

#include "base/status.h"
#include "collective/op/many.h"
#include "device/buffer.h"
#include "device/find.h"
#include "device/stream.h"

struct use {
    const void *pointer;
    uint64_t bytes;
    const char *name;
    tutti_access access;
};

/* Calls `each` for every buffer that this rank uses, until one fails. */
static tutti_status each_use(const struct tti_op *op, struct tti_stream *stream,
                             tutti_status (*each)(const struct use *use, struct tti_stream *stream, tutti_error *error),
                             tutti_error *error)
{
    size_t element = op->shape.element, n = (size_t)op->comm->size;
    bool gathers = op->shape.kind == TTI_ALL_GATHER, scatters = op->shape.kind == TTI_REDUCE_SCATTER;
    bool takes = op->shape.kind != TTI_BROADCAST || op->shape.root == op->shape.rank;
    for (size_t i = 0; op->many != NULL && i < op->many->count; i++) {
        const tutti_piece *piece = &op->many->pieces[i];
        uint64_t bytes = piece->count * element;
        if (takes)
            TTI_TRY(each(&(struct use){piece->in, scatters ? n * bytes : bytes, "in", TUTTI_READS}, stream, error));
        TTI_TRY(each(&(struct use){piece->out, gathers ? n * bytes : bytes, "out", TUTTI_WRITES}, stream, error));
    }
    if (op->many != NULL) return TUTTI_OK;
    TTI_TRY(each(&(struct use){op->in, op->in_bytes, "in", TUTTI_READS}, stream, error));
    return each(&(struct use){op->out, op->out_bytes, "out", TUTTI_WRITES}, stream, error);
}

static tutti_status refuse_use(const struct use *use, const struct tti_stream *stream, const struct tti_found *found,
                               tutti_error *error)
{
    const char *device = stream->device->name;
    if (found->device == NULL)
        return tti_error_set(
            error, TUTTI_ERR_ARGUMENT, 0,
            "`%s` is host memory, but the call is on a stream of %s; use a buffer of that device, or leave "
            "tutti_on out",
            use->name, device);
    if (found->device != stream->device)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "`%s` is memory of %s, but the call is on a stream of %s",
                             use->name, found->device->name, device);
    return tti_error_set(error, TUTTI_ERR_COUNT, 0,
                         "`%s` reaches past the end of its memory of %zu bytes by %llu bytes", use->name, found->bytes,
                         (unsigned long long)((const char *)use->pointer + use->bytes - (found->base + found->bytes)));
}

static tutti_status check_use(const struct use *use, struct tti_stream *stream, tutti_error *error)
{
    struct tti_found found;
    if (use->bytes == 0) return TUTTI_OK;
    tti_memory_find(use->pointer, &found);
    const char *at = use->pointer;
    bool fits = found.device == stream->device && use->bytes <= (uint64_t)(found.base + found.bytes - at);
    tutti_status status = fits ? TUTTI_OK : refuse_use(use, stream, &found, error);
    if (fits && found.buffer != NULL) status = tti_buffer_usable(found.buffer, error);
    tti_found_give(&found);
    return status;
}

static tutti_status with_buffer(const struct use *use, struct tti_stream *stream, tutti_error *error,
                                tutti_status (*each)(struct tti_device_buffer *buffer, tutti_access access,
                                                     struct tti_stream *stream, tutti_error *error))
{
    struct tti_found found;
    if (use->bytes == 0) return TUTTI_OK;
    tti_memory_find(use->pointer, &found);
    tutti_status status = found.buffer == NULL ? TUTTI_OK : each(found.buffer, use->access, stream, error);
    tti_found_give(&found);
    return status;
}

static tutti_status begin_use(const struct use *use, struct tti_stream *stream, tutti_error *error)
{
    return with_buffer(use, stream, error, tti_buffer_begin);
}

static tutti_status end_use(const struct use *use, struct tti_stream *stream, tutti_error *error)
{
    return with_buffer(use, stream, error, tti_buffer_note);
}

tutti_status tti_uses_check(const struct tti_op *op, struct tti_stream *stream, tutti_error *error)
{
    return each_use(op, stream, check_use, error);
}

tutti_status tti_uses_begin(const struct tti_op *op, struct tti_stream *stream, tutti_error *error)
{
    return each_use(op, stream, begin_use, error);
}

tutti_status tti_uses_end(const struct tti_op *op, struct tti_stream *stream, tutti_error *error)
{
    TTI_TRY(each_use(op, stream, end_use, error));
    return tti_stream_settle_shown(stream, error);
}
