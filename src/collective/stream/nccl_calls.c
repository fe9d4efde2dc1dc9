/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates an op into calls of NCCL. Data that are only moved are sent as bytes. Ops for which NCCL has no collective
 * are done by sends and receives, or by one reduce for each rank.
 */
#include "base/alloc.h"
#include "base/hash.h"
#include "collective/op/many.h"
#include "collective/plan/plan_build.h"
#include "collective/stream/nccl_engine.h"
#include <string.h>

enum { NONE = -1 };

/* ---- What NCCL has ------------------------------------------------------------------------------------------------- */

static bool is_float(tutti_type type)
{
    return type == TUTTI_F64 || type == TUTTI_F32 || type == TUTTI_F16 || type == TUTTI_BF16;
}

static bool is_float8(tutti_type type)
{
    return type == TUTTI_F8E4M3 || type == TUTTI_F8E5M2;
}

/* Returns NCCL's number of a reduction. NCCL rounds averages of integers in another way, and does not multiply 8-bit
 * floats by factors: these have none. */
static int reduction_of(const struct tti_reducer *reducer)
{
    switch (reducer->code) {
    case TUTTI_SUM: return TTI_NCCL_SUM;
    case TUTTI_PROD: return TTI_NCCL_PROD;
    case TUTTI_MIN: return TTI_NCCL_MIN;
    case TUTTI_MAX: return TTI_NCCL_MAX;
    case TUTTI_AVG: return is_float(reducer->type) || is_float8(reducer->type) ? TTI_NCCL_AVG : NONE;
    case TTI_REDUCE_SCALED_SUM: return is_float(reducer->type) ? TTI_NCCL_SUM : NONE;
    default: return NONE;
    }
}

static bool reduces(enum tti_kind kind)
{
    return kind == TTI_ALL_REDUCE || kind == TTI_REDUCE || kind == TTI_REDUCE_SCATTER || kind == TTI_REDUCE_SCATTER_V;
}

bool tti_nccl_supports(const struct tti_nccl_traits *traits, const struct tti_op *op)
{
    const struct tti_reducer *reducer = &op->reducer;
    enum tti_kind kind = op->shape.kind;
    if (kind == TTI_SCAN || kind == TTI_EXSCAN) return false;
    if (kind == TTI_ALL_TO_ALL) return !op->call.in_place;
    if (!reduces(kind)) return true;
    bool has_float8 = traits->version >= TTI_NCCL_FLOAT8 && traits->capability >= TTI_NCCL_FLOAT8_CAPABILITY;
    if (is_float8(reducer->type) && !has_float8) return false;
    return tti_nccl_type_of(reducer->type) >= 0 && reduction_of(reducer) != NONE;
}

/* ---- The calls ----------------------------------------------------------------------------------------------------- */

static void add(struct tti_nccl_calls *calls, struct tti_nccl_call call)
{
    if (call.count == 0) return;
    if (calls->count == calls->room) {
        size_t room = calls->room == 0 ? 16 : 2 * calls->room;
        struct tti_nccl_call *made = tti_calloc(room, sizeof *made);
        calls->failed = calls->failed || made == NULL;
        if (made == NULL) return;
        if (calls->count > 0) memcpy(made, calls->calls, calls->count * sizeof *made);
        tti_free(calls->calls);
        calls->calls = made;
        calls->room = room;
    }
    calls->calls[calls->count++] = call;
}

/* Sends every rank's block to that rank: one reduce each. */
static void add_reduce_scatter_v(struct tti_nccl_calls *calls, const struct tti_shape *shape, const char *in, char *out)
{
    for (int to = 0; to < shape->size; to++) {
        struct tti_flow block = tti_reduce_block(shape, to);
        add(calls, (struct tti_nccl_call){.what = TTI_NCCL_REDUCE,
                                          .in = in + block.source,
                                          .out = to == shape->rank ? out : NULL,
                                          .count = block.bytes / shape->element,
                                          .peer = to});
    }
}

/* The receiver knows its target, so flows are computed for the receiver's rank. */
static struct tti_flow flow_between(const struct tti_shape *given, int from, int to)
{
    struct tti_shape shape = *given;
    shape.rank = to;
    return tti_flow_of(&shape, from, to);
}

static void add_moves(struct tti_nccl_calls *calls, const struct tti_shape *shape, const char *in, char *out)
{
    int rank = shape->rank;
    struct tti_flow own = flow_between(shape, rank, rank);
    if (own.bytes > 0 && in + own.source != out + own.target)
        add(calls, (struct tti_nccl_call){TTI_NCCL_COPY, in + own.source, out + own.target, own.bytes, rank});
    for (int distance = 1; distance < shape->size; distance++) {
        int to = (rank + distance) % shape->size, from = (rank - distance + shape->size) % shape->size;
        struct tti_flow gives = flow_between(shape, rank, to), takes = flow_between(shape, from, rank);
        if (gives.bytes > 0)
            add(calls, (struct tti_nccl_call){TTI_NCCL_SEND, in + gives.source, NULL, gives.bytes, to});
        if (takes.bytes > 0)
            add(calls, (struct tti_nccl_call){TTI_NCCL_RECV, NULL, out + takes.target, takes.bytes, from});
    }
}

static void add_piece(struct tti_nccl_calls *calls, const struct tti_shape *shape, const void *in, void *out)
{
    size_t bytes = shape->count * shape->element;
    struct tti_nccl_call call = {.in = in, .out = out, .count = shape->count, .peer = shape->root};
    switch (shape->kind) {
    case TTI_ALL_REDUCE: call.what = TTI_NCCL_ALL_REDUCE; break;
    case TTI_REDUCE: call.what = TTI_NCCL_REDUCE; break;
    case TTI_REDUCE_SCATTER: call.what = TTI_NCCL_REDUCE_SCATTER; break;
    case TTI_BROADCAST:
        call.what = TTI_NCCL_BROADCAST;
        call.count = bytes;
        if (shape->rank != shape->root) call.in = call.out;
        break;
    case TTI_ALL_GATHER:
        call.what = TTI_NCCL_ALL_GATHER;
        call.count = bytes;
        break;
    case TTI_REDUCE_SCATTER_V: add_reduce_scatter_v(calls, shape, in, out); return;
    default: add_moves(calls, shape, in, out); return;
    }
    add(calls, call);
}

void tti_nccl_plan(struct tti_nccl_calls *calls, const struct tti_op *op, const uint64_t *rows, void *scratch)
{
    struct tti_shape shape = op->shape;
    bool folds = reduces(shape.kind);
    calls->count = 0;
    calls->failed = false;
    calls->type = folds ? tti_nccl_type_of(op->reducer.type) : TTI_NCCL_I8;
    calls->reduction = folds ? reduction_of(&op->reducer) : TTI_NCCL_SUM;
    calls->scaled = folds && op->reducer.code == TTI_REDUCE_SCALED_SUM;
    calls->factor = op->reducer.factor;
    if (shape.tables != NULL) shape.tables = rows;
    if (shape.kind == TTI_BARRIER) {
        add(calls, (struct tti_nccl_call){TTI_NCCL_ALL_REDUCE, scratch, scratch, 1, 0});
        return;
    }
    for (size_t i = 0; op->many != NULL && i < op->many->count; i++) {
        const tutti_piece *piece = &op->many->pieces[i];
        shape.count = piece->count;
        add_piece(calls, &shape, piece->in, piece->out);
    }
    if (op->many == NULL) add_piece(calls, &shape, op->in, op->out);
}

/* ---- What has connected -------------------------------------------------------------------------------------------- */

static unsigned power_above(uint64_t bytes)
{
    unsigned power = 0;
    for (; bytes != 0; bytes >>= 1) power++;
    return power;
}

/* NCCL connects for each kind, for each range of sizes, since it has an algorithm for each, and with each peer when
 * data first go there. */
uint64_t tti_nccl_key(const struct tti_op *op, const uint64_t *row)
{
    size_t given = row == NULL ? 0 : TTI_GIVEN * (size_t)op->shape.size,
           pieces = op->many == NULL ? 1 : op->many->count;
    uint64_t bytes = op->many == NULL ? op->in_bytes + op->out_bytes : op->many->in_bytes + op->many->out_bytes;
    uint64_t key = tti_mix((uint64_t)op->shape.kind << 32 | (uint64_t)(uint32_t)op->reducer.code,
                           (uint64_t)op->reducer.type << 32 | power_above(bytes));
    key = tti_mix(key, (uint64_t)(uint32_t)op->shape.root << 32 | power_above(pieces));
    for (size_t i = 0; i < given; i++) key = tti_mix(key, row[i] != 0);
    return key | 1;
}
