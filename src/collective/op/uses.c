/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/uses.h"

#include "base/alloc.h"
#include "base/status.h"
#include "collective/op/many.h"
#include "device/buffer.h"
#include "device/find.h"
#include "device/stream.h"

static tutti_status add(struct tti_uses *uses, const void *pointer, uint64_t bytes, tutti_access access,
                        const struct tti_stream *stream, tutti_error *error)
{
    struct tti_use *use = &uses->uses[uses->count];
    if (bytes == 0) return TUTTI_OK;
    use->access = access;
    TTI_TRY(tti_memory_take(pointer, bytes, access == TUTTI_WRITES ? "out" : "in", stream, &use->buffer, error));
    uses->count++;
    return TUTTI_OK;
}

/* Adds every buffer that this rank uses. */
static tutti_status add_all(struct tti_uses *uses, const struct tti_op *op, const struct tti_stream *stream,
                            tutti_error *error)
{
    size_t element = op->shape.element, n = (size_t)op->comm->size;
    bool gathers = op->shape.kind == TTI_ALL_GATHER, scatters = op->shape.kind == TTI_REDUCE_SCATTER;
    bool takes = op->shape.kind != TTI_BROADCAST || op->shape.root == op->shape.rank;
    for (size_t i = 0; op->many != NULL && i < op->many->count; i++) {
        const tutti_piece *piece = &op->many->pieces[i];
        uint64_t bytes = piece->count * element;
        if (takes) TTI_TRY(add(uses, piece->in, scatters ? n * bytes : bytes, TUTTI_READS, stream, error));
        TTI_TRY(add(uses, piece->out, gathers ? n * bytes : bytes, TUTTI_WRITES, stream, error));
    }
    if (op->many != NULL) return TUTTI_OK;
    TTI_TRY(add(uses, op->in, op->in_bytes, TUTTI_READS, stream, error));
    return add(uses, op->out, op->out_bytes, TUTTI_WRITES, stream, error);
}

struct tti_uses *tti_uses_take(const struct tti_op *op, struct tti_stream *stream, tutti_error *error)
{
    size_t most = 2 * (op->many == NULL ? 1 : op->many->count);
    struct tti_uses *uses = tti_calloc(1, sizeof *uses + most * sizeof *uses->uses);
    if (uses == NULL) {
        tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for one more op on a stream");
        return NULL;
    }
    if (add_all(uses, op, stream, error) == TUTTI_OK) return uses;
    tti_uses_free(uses);
    return NULL;
}

tutti_status tti_uses_begin(struct tti_uses *uses, struct tti_stream *stream, tutti_error *error)
{
    for (int i = 0; i < uses->count; i++)
        if (uses->uses[i].buffer != NULL)
            TTI_TRY(tti_buffer_begin(uses->uses[i].buffer, uses->uses[i].access, stream, error));
    for (int i = 0; i < uses->count; i++)
        if (uses->uses[i].buffer != NULL) tti_buffer_hold(uses->uses[i].buffer);
    uses->held = true;
    return TUTTI_OK;
}

tutti_status tti_uses_end(const struct tti_uses *uses, struct tti_stream *stream, tutti_error *error)
{
    for (int i = 0; i < uses->count; i++)
        if (uses->uses[i].buffer != NULL)
            TTI_TRY(tti_buffer_note(uses->uses[i].buffer, uses->uses[i].access, stream, error));
    return tti_stream_settle_shown(stream, error);
}

void tti_uses_let_go(struct tti_uses *uses)
{
    for (int i = 0; i < uses->count && uses->held; i++)
        if (uses->uses[i].buffer != NULL) tti_buffer_let_go(uses->uses[i].buffer);
    uses->held = false;
}

void tti_uses_lose(struct tti_uses *uses)
{
    uses->held = false;
}

void tti_uses_free(struct tti_uses *uses)
{
    if (uses == NULL) return;
    tti_uses_let_go(uses);
    for (int i = 0; i < uses->count; i++)
        if (uses->uses[i].buffer != NULL) tti_object_give(&uses->uses[i].buffer->object);
    tti_free(uses);
}
