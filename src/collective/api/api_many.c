/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements collectives on many pieces: every piece is checked like a call of its own, and against the others;
 * op/many.c runs them.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/engine/engine.h"
#include "collective/op/many.h"
#include <stdlib.h>
#include <string.h>

struct many_call {
    tutti_comm *comm;
    enum tti_kind kind;         /* TTI_ALL_REDUCE_MANY */
    struct tti_arguments given; /* what all pieces have in common, and the rest from the piece that is checked */
    const tutti_piece *pieces;
    size_t count;
    tutti_op *handle; /* NULL: the call waits */
};

/* ---- Overlaps -------------------------------------------------------------------------------------------------- */

struct range {
    uintptr_t begin, end;
    size_t piece;
    bool written;
};

static int compare(const void *a, const void *b)
{
    const struct range *one = a, *other = b;
    return (one->begin > other->begin) - (one->begin < other->begin);
}

static tutti_status overlap(const struct many_call *call, const struct range *one, const struct range *other)
{
    size_t a = one->piece, b = other->piece;
    return tti_comm_refuse(call->comm, call->kind, TUTTI_ERR_OVERLAP,
                           "%s: pieces %zu and %zu overlap, and one of them is written; use separate buffers",
                           tti_kind_name(call->kind), a < b ? a : b, a < b ? b : a);
}

/* Compares each range with the one that reaches furthest before it: ranges that are only read may overlap each
 * other. */
static tutti_status check_ranges(const struct many_call *call, struct range *ranges, size_t count)
{
    const struct range *written = NULL, *read = NULL;
    qsort(ranges, count, sizeof *ranges, compare);
    for (size_t i = 0; i < count; i++) {
        const struct range *range = &ranges[i];
        if (written != NULL && written->end > range->begin) return overlap(call, written, range);
        if (range->written && read != NULL && read->end > range->begin) return overlap(call, read, range);
        const struct range **furthest = range->written ? &written : &read;
        if (*furthest == NULL || range->end > (*furthest)->end) *furthest = range;
    }
    return TUTTI_OK;
}

static size_t add_ranges(const struct tti_buffers *buffers, const tutti_piece *piece, size_t number,
                         struct range *ranges)
{
    uintptr_t in = (uintptr_t)piece->in, out = (uintptr_t)piece->out;
    struct range read = {in, in + buffers->in_bytes, number, false};
    struct range written = {out, out + buffers->out_bytes, number, true};
    if (buffers->in_place && buffers->in_bytes > 0) { /* one of them lies inside the other */
        ranges[0] = buffers->in_bytes > buffers->out_bytes ? read : written;
        ranges[0].written = true;
        return 1;
    }
    size_t count = 0;
    if (buffers->in_bytes > 0) ranges[count++] = read;
    if (buffers->out_bytes > 0) ranges[count++] = written;
    return count;
}

/* Returns true if a quick check shows that they do not overlap: those that are written lie in order, as tensors of a
 * model mostly do, and all that are only read lie elsewhere. */
static bool are_apart(const struct range *ranges, size_t count)
{
    uintptr_t read_begin = UINTPTR_MAX, read_end = 0, first = UINTPTR_MAX, last = 0;
    for (size_t i = 0; i < count; i++) {
        const struct range *range = &ranges[i];
        if (range->written) {
            if (range->begin < last) return false;
            if (last == 0) first = range->begin;
            last = range->end;
        } else {
            if (range->begin < read_begin) read_begin = range->begin;
            if (range->end > read_end) read_end = range->end;
        }
    }
    return read_end <= first || last <= read_begin;
}

/* ---- Checks ---------------------------------------------------------------------------------------------------- */

/* Adds to the error which piece it is about. */
static tutti_status name_piece(const struct many_call *call, size_t number, tutti_status status)
{
    tutti_error *error = &call->comm->errors.call;
    char text[sizeof error->text];
    memcpy(text, error->text, sizeof text);
    snprintf(error->text, sizeof error->text, "piece %zu of %zu: %.440s", number, call->count, text);
    return status;
}

static tutti_status check_piece(struct many_call *call, size_t number, struct tti_buffers *buffers)
{
    const tutti_piece *piece = &call->pieces[number];
    call->given.in = piece->in;
    call->given.out = piece->out;
    call->given.count = piece->count;
    tutti_status status = tti_api_check_buffers(call->comm, call->kind, &call->given, buffers);
    return status == TUTTI_OK ? TUTTI_OK : name_piece(call, number, status);
}

/* Checks all pieces. `ranges` has room for two of each piece. */
static tutti_status check_pieces(struct many_call *call, struct range *ranges, struct tti_many *many)
{
    uint64_t elements = 0, blocks = (uint64_t)call->comm->size, ignored;
    size_t count = 0;
    for (size_t i = 0; i < call->count; i++) {
        struct tti_buffers buffers;
        TTI_TRY(check_piece(call, i, &buffers));
        if (__builtin_add_overflow(elements, (uint64_t)call->pieces[i].count, &elements)) elements = UINT64_MAX;
        many->in_bytes += buffers.in_bytes;
        many->out_bytes += buffers.out_bytes;
        count += add_ranges(&buffers, &call->pieces[i], i, &ranges[count]);
    }
    TTI_TRY(tti_api_bytes(call->comm, call->kind, elements, tutti_type_bytes(call->given.type), blocks, &ignored));
    return are_apart(ranges, count) ? TUTTI_OK : check_ranges(call, ranges, count);
}

static tutti_status check_list(struct many_call *call)
{
    tutti_comm *comm = call->comm;
    const char *name = tti_kind_name(call->kind);
    TTI_TRY(tti_api_check_type(comm, call->kind, call->given.type));
    if (call->kind == TTI_BROADCAST_MANY) TTI_TRY(tti_api_check_rank(comm, call->kind, "root", call->given.root));
    if (call->pieces == NULL && call->count > 0)
        return tti_comm_refuse(comm, call->kind, TUTTI_ERR_ARGUMENT, "%s: `pieces` is NULL, but there are %zu", name,
                               call->count);
    if (call->count <= UINT32_MAX) return TUTTI_OK;
    return tti_comm_refuse(comm, call->kind, TUTTI_ERR_COUNT, "%s: %zu pieces are too many; is the number right?", name,
                           call->count);
}

static tutti_status no_memory(const struct many_call *call)
{
    return tti_comm_refuse(call->comm, call->kind, TUTTI_ERR_MEMORY, "%s: no memory for %zu pieces",
                           tti_kind_name(call->kind), call->count);
}

/* ---- Running --------------------------------------------------------------------------------------------------- */

static tutti_status make_many(struct many_call *call, struct tti_many **made)
{
    struct range few[64], *ranges = few;
    struct tti_many *many = tti_calloc(1, sizeof *many + call->count * sizeof *many->pieces);
    if (many != NULL && call->count > 32) ranges = tti_calloc(2 * call->count, sizeof *ranges);
    tutti_status status = many == NULL || ranges == NULL ? no_memory(call) : check_pieces(call, ranges, many);
    if (ranges != few) tti_free(ranges);
    if (status != TUTTI_OK) {
        tti_free(many);
        return status;
    }
    many->count = call->count;
    if (call->count > 0) memcpy(many->pieces, call->pieces, call->count * sizeof *many->pieces);
    *made = many;
    return TUTTI_OK;
}

/* Allocates a buffer that every rank can reach, so that small pieces of private memory go as fast as others. */
static tutti_status make_pack(const struct many_call *call, const struct tti_op *op)
{
    tutti_comm *comm = call->comm;
    tutti_error error = {0};
    if (comm->engine->pack != NULL || !tti_many_packs(op)) return TUTTI_OK;
    comm->engine->pack = tti_arena_alloc(comm->world->arena, TTI_PACK_BYTES, &error);
    if (comm->engine->pack != NULL) return TUTTI_OK;
    return tti_comm_refuse(comm, call->kind, error.status, "%s: %s", tti_kind_name(call->kind), error.text);
}

static tutti_status fill(const struct many_call *call, struct tti_op *op)
{
    const struct tti_arguments *given = &call->given;
    op->call.kind = (uint8_t)call->kind;
    tti_call_set_pieces(&op->call, call->pieces, call->count);
    if (call->kind == TTI_ALL_REDUCE_MANY || call->kind == TTI_REDUCE_SCATTER_MANY)
        TTI_TRY(tti_api_set_reduction(op, call->kind, given->type, (tutti_reduction)given->reduction));
    return make_pack(call, op);
}

static tutti_status run(struct many_call call)
{
    tutti_comm *comm = call.comm;
    struct tti_many *many = NULL;
    TTI_TRY(tti_api_begin(comm, call.kind));
    TTI_TRY(check_list(&call));
    TTI_TRY(make_many(&call, &many));
    struct tti_op *op = tti_op_fill(comm, call.given.kind, NULL, many->in_bytes, NULL, many->out_bytes, 0,
                                    call.given.type, call.given.root);
    op->many = many;
    op->watched = true;
    tutti_status status = fill(&call, op);
    if (status == TUTTI_OK) status = tti_api_run(op, call.handle);
    tti_free(op->many); /* NULL if it was started: the started op owns it then */
    op->many = NULL;
    return status;
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

tutti_status tutti_all_reduce_many(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count, tutti_type type,
                                   tutti_reduction reduction)
{
    return run(
        (struct many_call){.comm = comm,
                           .kind = TTI_ALL_REDUCE_MANY,
                           .given = {.kind = TTI_ALL_REDUCE, .type = type, .reduction = (int)reduction, .root = -1},
                           .pieces = pieces,
                           .count = piece_count});
}

tutti_status tutti_broadcast_many(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count, tutti_type type,
                                  int root)
{
    return run((struct many_call){.comm = comm,
                                  .kind = TTI_BROADCAST_MANY,
                                  .given = {.kind = TTI_BROADCAST, .type = type, .reduction = -1, .root = root},
                                  .pieces = pieces,
                                  .count = piece_count});
}

tutti_status tutti_all_gather_many(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count, tutti_type type)
{
    return run((struct many_call){.comm = comm,
                                  .kind = TTI_ALL_GATHER_MANY,
                                  .given = {.kind = TTI_ALL_GATHER, .type = type, .reduction = -1, .root = -1},
                                  .pieces = pieces,
                                  .count = piece_count});
}

tutti_status tutti_reduce_scatter_many(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count, tutti_type type,
                                       tutti_reduction reduction)
{
    return run(
        (struct many_call){.comm = comm,
                           .kind = TTI_REDUCE_SCATTER_MANY,
                           .given = {.kind = TTI_REDUCE_SCATTER, .type = type, .reduction = (int)reduction, .root = -1},
                           .pieces = pieces,
                           .count = piece_count});
}

tutti_status tutti_all_reduce_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                         tutti_type type, tutti_reduction reduction, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_ALL_REDUCE_MANY);
    return run(
        (struct many_call){.comm = comm,
                           .kind = TTI_ALL_REDUCE_MANY,
                           .given = {.kind = TTI_ALL_REDUCE, .type = type, .reduction = (int)reduction, .root = -1},
                           .pieces = pieces,
                           .count = piece_count,
                           .handle = op});
}

tutti_status tutti_broadcast_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                        tutti_type type, int root, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_BROADCAST_MANY);
    return run((struct many_call){.comm = comm,
                                  .kind = TTI_BROADCAST_MANY,
                                  .given = {.kind = TTI_BROADCAST, .type = type, .reduction = -1, .root = root},
                                  .pieces = pieces,
                                  .count = piece_count,
                                  .handle = op});
}

tutti_status tutti_all_gather_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                         tutti_type type, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_ALL_GATHER_MANY);
    return run((struct many_call){.comm = comm,
                                  .kind = TTI_ALL_GATHER_MANY,
                                  .given = {.kind = TTI_ALL_GATHER, .type = type, .reduction = -1, .root = -1},
                                  .pieces = pieces,
                                  .count = piece_count,
                                  .handle = op});
}

tutti_status tutti_reduce_scatter_many_start(tutti_comm *comm, const tutti_piece *pieces, size_t piece_count,
                                             tutti_type type, tutti_reduction reduction, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_REDUCE_SCATTER_MANY);
    return run(
        (struct many_call){.comm = comm,
                           .kind = TTI_REDUCE_SCATTER_MANY,
                           .given = {.kind = TTI_REDUCE_SCATTER, .type = type, .reduction = (int)reduction, .root = -1},
                           .pieces = pieces,
                           .count = piece_count,
                           .handle = op});
}
