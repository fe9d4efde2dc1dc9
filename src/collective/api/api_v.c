/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the collectives whose counts differ by rank. A rank's counts and offsets are shown in its own row of the
 * comm's tables when its op begins; after the meeting all rows can be read.
 */
#define TUTTI_NO_CALL_SITES
#include "collective/api/api.h"
#include "collective/engine/engine.h"

#include "base/alloc.h"
#include "base/status.h"
#include <stdlib.h>

struct v_call {
    tutti_comm *comm;
    enum tti_kind kind;
    tutti_type type;
    int root;
    const void *in;
    void *out;
    uint64_t in_bytes, out_bytes; /* how many bytes this rank's buffers span */
    bool in_place;
    tutti_op *handle; /* NULL: the call waits */
};

static uint64_t *row_of(const tutti_comm *comm, enum tti_given what)
{
    return comm->engine->row + (size_t)what * (size_t)comm->size;
}

/* Checks counts and offsets of `buffer` and sets how many bytes it spans. Writes nothing to the comm: a rank that gives
 * bad arguments must leave no trace. */
static tutti_status measure(const struct v_call *call, const char *buffer, const size_t *counts, const size_t *offsets,
                            uint64_t *bytes)
{
    tutti_comm *comm = call->comm;
    if (counts == NULL)
        return tti_comm_refuse(comm, call->kind, TUTTI_ERR_ARGUMENT, "%s: the counts of `%s` are NULL",
                               tti_kind_name(call->kind), buffer);
    uint64_t end = 0, packed = 0;
    for (int i = 0; i < comm->size; i++) {
        uint64_t offset = offsets != NULL ? offsets[i] : packed, last;
        if (__builtin_add_overflow(offset, (uint64_t)counts[i], &last) ||
            __builtin_add_overflow(packed, (uint64_t)counts[i], &packed))
            last = UINT64_MAX;
        if (last > end && counts[i] > 0) end = last;
    }
    TTI_TRY(tti_api_bytes(comm, call->kind, end, tutti_type_bytes(call->type), 1, bytes));
    return tti_api_check_amount(comm, call->kind, buffer, packed * tutti_type_bytes(call->type));
}

struct block {
    uint64_t begin, end;
    int rank;
};

static int by_begin(const void *one, const void *other)
{
    uint64_t a = ((const struct block *)one)->begin, b = ((const struct block *)other)->begin;
    return (a > b) - (a < b);
}

/* Returns the first of sorted blocks that begins before the one in front of it has ended, or NULL. */
static const struct block *overlapping(const struct block *blocks, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (blocks[i].begin < blocks[i - 1].end) return &blocks[i];
    return NULL;
}

static bool in_order(const size_t *counts, const size_t *offsets, int size)
{
    uint64_t end = 0;
    for (int i = 0; i < size; i++) {
        if (counts[i] == 0) continue;
        if (offsets[i] < end) return false;
        end = offsets[i] + counts[i];
    }
    return true;
}

/* Refuses blocks of `out` that overlap, since ranks would race for them. Mostly the blocks come in rank order, which is
 * quickly checked; without memory to sort them the caller is trusted. */
static tutti_status check_apart(const struct v_call *call, const size_t *counts, const size_t *offsets)
{
    tutti_comm *comm = call->comm;
    if (offsets == NULL || in_order(counts, offsets, comm->size)) return TUTTI_OK;
    struct block *blocks = tti_malloc((size_t)comm->size, sizeof *blocks);
    size_t used = 0;
    for (int i = 0; i < comm->size && blocks != NULL; i++)
        if (counts[i] > 0) blocks[used++] = (struct block){offsets[i], offsets[i] + counts[i], i};
    if (used > 0) qsort(blocks, used, sizeof *blocks, by_begin);
    const struct block *second = overlapping(blocks, used);
    tutti_status status = TUTTI_OK;
    if (second != NULL)
        status = tti_comm_refuse(comm, call->kind, TUTTI_ERR_OVERLAP,
                                 "%s: the blocks of ranks %d and %d overlap in `out`; give offsets that lie apart",
                                 tti_kind_name(call->kind), second[-1].rank, second->rank);
    tti_free(blocks);
    return status;
}

/* Fills a row of counts, and the row of offsets behind it. */
static void fill_row(const tutti_comm *comm, enum tti_given what, const size_t *counts, const size_t *offsets)
{
    uint64_t *count = row_of(comm, what), *offset = row_of(comm, what + 1), packed = 0;
    for (int i = 0; i < comm->size; i++) {
        count[i] = counts[i];
        offset[i] = offsets != NULL ? offsets[i] : packed;
        packed += counts[i];
    }
}

static uint64_t own_offset(const tutti_comm *comm, const size_t *counts, const size_t *offsets)
{
    if (offsets != NULL) return offsets[comm->rank];
    uint64_t packed = 0;
    for (int i = 0; i < comm->rank; i++) packed += counts[i];
    return packed;
}

/* Allocates rows for counts, which many comms never need. Ranks that share memory have their tables there. Without a
 * row this rank cannot take part, and the others would wait for it: so the comm breaks. */
static tutti_status make_rows(tutti_comm *comm, enum tti_kind kind)
{
    size_t words = TTI_GIVEN * (size_t)comm->size;
    if (comm->engine->row == NULL) comm->engine->row = tti_calloc(words, sizeof *comm->engine->row);
    if (comm->engine->tables == NULL) comm->engine->tables = tti_calloc(words, sizeof *comm->engine->tables);
    if (comm->engine->row != NULL && comm->engine->tables != NULL) return TUTTI_OK;
    tutti_status status = tti_comm_break(comm, kind, TUTTI_ERR_MEMORY, comm->rank,
                                         "rank %d has no memory for the counts of %s", comm->rank, tti_kind_name(kind));
    tti_group_miss(comm, kind);
    tti_call_end(comm);
    return status;
}

static tutti_status begin(const struct v_call *call)
{
    TTI_TRY(tti_api_begin(call->comm, call->kind));
    TTI_TRY(make_rows(call->comm, call->kind));
    TTI_TRY(tti_api_check_type(call->comm, call->kind, call->type));
    return call->root < 0 && call->kind != TTI_GATHER_V && call->kind != TTI_SCATTER_V
               ? TUTTI_OK
               : tti_api_check_rank(call->comm, call->kind, "root", call->root);
}

static tutti_status check_buffers(struct v_call *call, bool in_used, bool out_used, bool in_place)
{
    call->in_place = in_place && in_used && out_used && call->in_bytes > 0;
    struct tti_buffer in = {"in", call->in, call->in_bytes, in_used};
    struct tti_buffer out = {"out", call->out, call->out_bytes, out_used};
    TTI_TRY(tti_api_check_buffer(call->comm, call->kind, &in));
    TTI_TRY(tti_api_check_buffer(call->comm, call->kind, &out));
    return tti_api_check_overlap(call->comm, call->kind, &in, &out, in_place);
}

static struct tti_op *op_of(const struct v_call *call)
{
    struct tti_op *op = tti_op_fill(call->comm, call->kind, call->in, call->in_bytes, call->out, call->out_bytes, 0,
                                    call->type, call->root);
    op->shape.tables = call->comm->engine->tables;
    op->in_place = call->in_place;
    return op;
}

static const void *advance(const void *pointer, uint64_t elements, tutti_type type)
{
    /* NULL stays NULL if nothing is used */
    return (const void *)((uintptr_t)pointer + elements * tutti_type_bytes(type));
}

static tutti_status all_gather_v(struct v_call call, const size_t *counts, const size_t *offsets)
{
    tutti_comm *comm = call.comm;
    TTI_TRY(begin(&call));
    TTI_TRY(measure(&call, "out", counts, offsets, &call.out_bytes));
    TTI_TRY(check_apart(&call, counts, offsets));
    call.in_bytes = counts[comm->rank] * tutti_type_bytes(call.type);
    bool in_place = call.in == advance(call.out, own_offset(comm, counts, offsets), call.type);
    TTI_TRY(check_buffers(&call, true, true, in_place));
    struct tti_op *op = op_of(&call);
    tti_call_set_blocks(&op->call, counts, comm->size);
    fill_row(comm, TTI_OUT_COUNTS, counts, offsets);
    return tti_api_run(op, call.handle);
}

static tutti_status reduce_scatter_v(struct v_call call, const size_t *counts, tutti_reduction reduction)
{
    tutti_comm *comm = call.comm;
    TTI_TRY(begin(&call));
    TTI_TRY(measure(&call, "in", counts, NULL, &call.in_bytes));
    call.out_bytes = counts[comm->rank] * tutti_type_bytes(call.type);
    bool in_place = call.out == advance(call.in, own_offset(comm, counts, NULL), call.type);
    TTI_TRY(check_buffers(&call, true, true, in_place));
    struct tti_op *op = op_of(&call);
    TTI_TRY(tti_api_set_reduction(op, call.kind, call.type, reduction));
    tti_call_set_blocks(&op->call, counts, comm->size);
    fill_row(comm, TTI_IN_COUNTS, counts, NULL);
    return tti_api_run(op, call.handle);
}

static tutti_status gather_v(struct v_call call, size_t count, const size_t *counts, const size_t *offsets)
{
    tutti_comm *comm = call.comm;
    TTI_TRY(begin(&call));
    bool at_root = comm->rank == call.root, in_place = false;
    if (at_root) {
        TTI_TRY(measure(&call, "out", counts, offsets, &call.out_bytes));
        TTI_TRY(check_apart(&call, counts, offsets));
        in_place = call.in == advance(call.out, own_offset(comm, counts, offsets), call.type);
    }
    TTI_TRY(tti_api_bytes(comm, call.kind, count, tutti_type_bytes(call.type), 1, &call.in_bytes));
    TTI_TRY(check_buffers(&call, true, at_root, in_place));
    struct tti_op *op = op_of(&call);
    if (at_root) fill_row(comm, TTI_OUT_COUNTS, counts, offsets);
    row_of(comm, TTI_IN_COUNTS)[0] = count;
    return tti_api_run(op, call.handle);
}

static tutti_status scatter_v(struct v_call call, const size_t *counts, const size_t *offsets, size_t count)
{
    tutti_comm *comm = call.comm;
    TTI_TRY(begin(&call));
    bool at_root = comm->rank == call.root, in_place = false;
    if (at_root) {
        TTI_TRY(measure(&call, "in", counts, offsets, &call.in_bytes));
        in_place = call.out == advance(call.in, own_offset(comm, counts, offsets), call.type);
    }
    TTI_TRY(tti_api_bytes(comm, call.kind, count, tutti_type_bytes(call.type), 1, &call.out_bytes));
    TTI_TRY(check_buffers(&call, at_root, true, in_place));
    struct tti_op *op = op_of(&call);
    if (at_root) fill_row(comm, TTI_IN_COUNTS, counts, offsets);
    row_of(comm, TTI_OUT_COUNTS)[0] = count;
    return tti_api_run(op, call.handle);
}

static tutti_status all_to_all_v(struct v_call call, const size_t *in_counts, const size_t *in_offsets,
                                 const size_t *out_counts, const size_t *out_offsets)
{
    tutti_comm *comm = call.comm;
    TTI_TRY(begin(&call));
    TTI_TRY(measure(&call, "in", in_counts, in_offsets, &call.in_bytes));
    TTI_TRY(measure(&call, "out", out_counts, out_offsets, &call.out_bytes));
    TTI_TRY(check_apart(&call, out_counts, out_offsets));
    TTI_TRY(check_buffers(&call, true, true, false));
    struct tti_op *op = op_of(&call);
    fill_row(comm, TTI_IN_COUNTS, in_counts, in_offsets);
    fill_row(comm, TTI_OUT_COUNTS, out_counts, out_offsets);
    return tti_api_run(op, call.handle);
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

tutti_status tutti_all_gather_v(tutti_comm *comm, const void *in, void *out, const size_t *counts,
                                const size_t *offsets, tutti_type type)
{
    return all_gather_v((struct v_call){comm, TTI_ALL_GATHER_V, type, -1, in, out, 0, 0, false, NULL}, counts, offsets);
}

tutti_status tutti_all_gather_v_start(tutti_comm *comm, const void *in, void *out, const size_t *counts,
                                      const size_t *offsets, tutti_type type, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_ALL_GATHER_V);
    return all_gather_v((struct v_call){comm, TTI_ALL_GATHER_V, type, -1, in, out, 0, 0, false, op}, counts, offsets);
}

tutti_status tutti_reduce_scatter_v(tutti_comm *comm, const void *in, void *out, const size_t *counts, tutti_type type,
                                    tutti_reduction reduction)
{
    return reduce_scatter_v((struct v_call){comm, TTI_REDUCE_SCATTER_V, type, -1, in, out, 0, 0, false, NULL}, counts,
                            reduction);
}

tutti_status tutti_reduce_scatter_v_start(tutti_comm *comm, const void *in, void *out, const size_t *counts,
                                          tutti_type type, tutti_reduction reduction, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_REDUCE_SCATTER_V);
    return reduce_scatter_v((struct v_call){comm, TTI_REDUCE_SCATTER_V, type, -1, in, out, 0, 0, false, op}, counts,
                            reduction);
}

tutti_status tutti_gather_v(tutti_comm *comm, const void *in, size_t count, void *out, const size_t *counts,
                            const size_t *offsets, tutti_type type, int root)
{
    return gather_v((struct v_call){comm, TTI_GATHER_V, type, root, in, out, 0, 0, false, NULL}, count, counts,
                    offsets);
}

tutti_status tutti_gather_v_start(tutti_comm *comm, const void *in, size_t count, void *out, const size_t *counts,
                                  const size_t *offsets, tutti_type type, int root, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_GATHER_V);
    return gather_v((struct v_call){comm, TTI_GATHER_V, type, root, in, out, 0, 0, false, op}, count, counts, offsets);
}

tutti_status tutti_scatter_v(tutti_comm *comm, const void *in, const size_t *counts, const size_t *offsets, void *out,
                             size_t count, tutti_type type, int root)
{
    return scatter_v((struct v_call){comm, TTI_SCATTER_V, type, root, in, out, 0, 0, false, NULL}, counts, offsets,
                     count);
}

tutti_status tutti_scatter_v_start(tutti_comm *comm, const void *in, const size_t *counts, const size_t *offsets,
                                   void *out, size_t count, tutti_type type, int root, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_SCATTER_V);
    return scatter_v((struct v_call){comm, TTI_SCATTER_V, type, root, in, out, 0, 0, false, op}, counts, offsets,
                     count);
}

tutti_status tutti_all_to_all_v(tutti_comm *comm, const void *in, const size_t *in_counts, const size_t *in_offsets,
                                void *out, const size_t *out_counts, const size_t *out_offsets, tutti_type type)
{
    return all_to_all_v((struct v_call){comm, TTI_ALL_TO_ALL_V, type, -1, in, out, 0, 0, false, NULL}, in_counts,
                        in_offsets, out_counts, out_offsets);
}

tutti_status tutti_all_to_all_v_start(tutti_comm *comm, const void *in, const size_t *in_counts,
                                      const size_t *in_offsets, void *out, const size_t *out_counts,
                                      const size_t *out_offsets, tutti_type type, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_ALL_TO_ALL_V);
    return all_to_all_v((struct v_call){comm, TTI_ALL_TO_ALL_V, type, -1, in, out, 0, 0, false, op}, in_counts,
                        in_offsets, out_counts, out_offsets);
}
