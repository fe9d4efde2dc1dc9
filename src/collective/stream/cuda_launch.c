/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the kernel that does an op for all ranks, and fills in its arguments.
 */
#include "base/alloc.h"
#include "base/status.h"
#include "collective/engine/engine.h"
#include "collective/op/many.h"
#include "collective/plan/plan_build.h"
#include "collective/stream/cuda_engine.h"
#include "device/stream.h"
#include <string.h>

/* ---- What is shown ------------------------------------------------------------------------------------------------- */

static size_t pieces_of(const struct tti_op *op)
{
    return op->many == NULL ? 1 : op->many->count;
}

static size_t row_offset(const struct tti_op *op)
{
    return sizeof(struct tti_cuda_shown) + 2 * pieces_of(op) * sizeof(struct tti_offer);
}

static size_t row_bytes(const struct tti_op *op)
{
    return op->shape.tables == NULL ? 0 : TTI_GIVEN * (size_t)op->shape.size * sizeof(uint64_t);
}

size_t tti_cuda_shown_bytes(const struct tti_op *op)
{
    return row_offset(op) + row_bytes(op);
}

const struct tti_cuda_shown *tti_cuda_shown_of(const struct tti_started *started, int rank)
{
    return (const void *)(started->turn->all + (size_t)rank * tti_cuda_shown_bytes(&started->op));
}

/* ---- The kernel ---------------------------------------------------------------------------------------------------- */

static enum tti_gpu_work work_of(enum tti_kind kind)
{
    switch (kind) {
    case TTI_ALL_REDUCE:
    case TTI_REDUCE:
    case TTI_REDUCE_SCATTER:
    case TTI_REDUCE_SCATTER_V: return TTI_GPU_FOLD;
    case TTI_SCAN:
    case TTI_EXSCAN: return TTI_GPU_SCAN;
    default: return TTI_GPU_MOVE;
    }
}

tutti_status tti_cuda_prepare(const struct tti_started *started, struct tti_gpu_kernel *kernel, tutti_error *error)
{
    const struct tti_op *op = &started->op;
    enum tti_gpu_work work = work_of(op->shape.kind);
    if (op->shape.kind == TTI_BARRIER) return TUTTI_OK;
    return tti_gpu_prepare(started->turn->comm->queue.streams->device, work, work == TTI_GPU_MOVE ? NULL : &op->reducer,
                           op->shape.size, kernel, error);
}

/* ---- Arguments ----------------------------------------------------------------------------------------------------- */

static tutti_status resolve(struct tti_cuda_engine *engine, const struct tti_started *started, size_t piece,
                            tutti_error *error)
{
    for (int rank = 0; rank < started->op.shape.size; rank++) {
        const struct tti_cuda_shown *shown = tti_cuda_shown_of(started, rank);
        char *in, *out;
        TTI_TRY(tti_offer_resolve(&engine->offers, rank, &shown->places[2 * piece], &in, error));
        TTI_TRY(tti_offer_resolve(&engine->offers, rank, &shown->places[2 * piece + 1], &out, error));
        engine->in[rank] = in;
        engine->out[rank] = out;
        engine->factors[rank] = shown->factor;
    }
    return TUTTI_OK;
}

/* Copies all ranks' rows, one after the other. */
static tutti_status gather_rows(struct tti_cuda_engine *engine, const struct tti_started *started,
                                struct tti_shape *shape, tutti_error *error)
{
    size_t bytes = row_bytes(&started->op), n = (size_t)shape->size;
    if (bytes == 0) return TUTTI_OK;
    if (engine->tables == NULL) engine->tables = tti_calloc(n, bytes);
    if (engine->tables == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the ranks' counts");
    for (size_t rank = 0; rank < n; rank++)
        memcpy((char *)engine->tables + rank * bytes,
               (const char *)tti_cuda_shown_of(started, (int)rank) + row_offset(&started->op), bytes);
    shape->tables = engine->tables;
    return TUTTI_OK;
}

/* For a kernel with nothing to do: the stream raises the word that it would have raised. */
static tutti_status skip(const struct tti_started *started, const struct tti_gpu_launch *launch, tutti_error *error)
{
    if (launch->done == NULL) return TUTTI_OK;
    return tti_stream_raise(started->turn->stream, launch->done, launch->value, error);
}

static tutti_status fold(struct tti_cuda_engine *engine, struct tti_started *started, const struct tti_shape *shape,
                         struct tti_gpu_launch *launch, tutti_error *error)
{
    bool scatters = shape->kind == TTI_REDUCE_SCATTER || shape->kind == TTI_REDUCE_SCATTER_V;
    bool to_root = shape->kind == TTI_REDUCE;
    struct tti_gpu_fold fold = {.inputs = shape->size,
                                .outputs = to_root ? 1 : shape->size,
                                .in = engine->in,
                                .factors = engine->factors,
                                .out = to_root ? engine->out + shape->root : engine->out,
                                .count = shape->count,
                                .counts = scatters ? engine->counts : NULL};
    if (scatters) fold.count = 0;
    for (int rank = 0; scatters && rank < shape->size; rank++) {
        engine->counts[rank] = tti_reduce_block(shape, rank).bytes / shape->element;
        fold.count += engine->counts[rank];
    }
    if (fold.count == 0) return skip(started, launch, error);
    return tti_gpu_fold(started->turn->stream, &started->turn->kernel, &fold, launch, error);
}

static tutti_status scan(struct tti_cuda_engine *engine, struct tti_started *started, const struct tti_shape *shape,
                         struct tti_gpu_launch *launch, tutti_error *error)
{
    struct tti_gpu_scan scan = {.ranks = shape->size,
                                .in = engine->in,
                                .factors = engine->factors,
                                .out = engine->out,
                                .exclusive = shape->kind == TTI_EXSCAN,
                                .count = shape->count};
    if (scan.count == 0) return skip(started, launch, error);
    return tti_gpu_scan(started->turn->stream, &started->turn->kernel, &scan, launch, error);
}

static tutti_status move(struct tti_cuda_engine *engine, struct tti_started *started, const struct tti_shape *given,
                         struct tti_gpu_launch *launch, tutti_error *error)
{
    struct tti_shape shape = *given;
    bool swaps = shape.kind == TTI_ALL_TO_ALL && engine->in[0] == engine->out[0];
    size_t flows = 0;
    for (int from = 0; from < shape.size; from++)
        for (int to = swaps ? from + 1 : 0; to < shape.size; to++) {
            shape.rank = to; /* the receiver knows its target */
            struct tti_flow flow = tti_flow_of(&shape, from, to);
            if (flow.bytes == 0) continue;
            engine->flows[flows++] = (struct tti_gpu_flow){.from = (const char *)engine->in[from] + flow.source,
                                                           .to = (char *)engine->out[to] + flow.target,
                                                           .bytes = flow.bytes,
                                                           .swap = swaps};
        }
    if (flows == 0) return skip(started, launch, error);
    return tti_gpu_move(started->turn->stream, &started->turn->kernel, engine->flows, flows, launch, error);
}

/* Launches one piece. `done`: the value to which the word `done` is raised at its end; 0: more pieces follow. */
static tutti_status launch_piece(struct tti_cuda_engine *engine, struct tti_started *started,
                                 const struct tti_shape *shape, uint64_t done, tutti_error *error)
{
    struct tti_gpu_launch launch = {.abort = engine->words.abort,
                                    .done = done == 0 ? NULL : engine->words.done,
                                    .value = done,
                                    .counters = engine->counters,
                                    .ticket = engine->tickets = engine->tickets % 0x7ffffffe + 1};
    tutti_status status = TUTTI_OK;
    switch (work_of(shape->kind)) {
    case TTI_GPU_FOLD: status = fold(engine, started, shape, &launch, error); break;
    case TTI_GPU_SCAN: status = scan(engine, started, shape, &launch, error); break;
    default: status = move(engine, started, shape, &launch, error); break;
    }
    if (launch.lists != NULL) tti_turn_lend(started->turn, launch.lists);
    return status;
}

/* Launches all pieces; the last kernel raises `done`. */
tutti_status tti_cuda_launch_all(struct tti_cuda_engine *engine, struct tti_started *started, uint64_t done,
                                 tutti_error *error)
{
    const struct tti_op *op = &started->op;
    struct tti_shape shape = op->shape;
    size_t pieces = shape.kind == TTI_BARRIER ? 0 : pieces_of(op);
    if (pieces == 0) return tti_stream_raise(started->turn->stream, engine->words.done, done, error);
    for (size_t piece = 0; piece < pieces; piece++) {
        if (op->many != NULL) shape.count = op->many->pieces[piece].count;
        TTI_TRY(resolve(engine, started, piece, error));
        TTI_TRY(launch_piece(engine, started, &shape, piece + 1 == pieces ? done : 0, error));
    }
    return TUTTI_OK;
}

tutti_status tti_cuda_check_shown(struct tti_cuda_engine *engine, struct tti_started *started, bool *reaches,
                                  tutti_error *error)
{
    struct tti_shape *shape = &started->op.shape;
    *reaches = true;
    for (int rank = 0; rank < shape->size; rank++)
        for (size_t i = 0; i < 2 * pieces_of(&started->op); i++)
            *reaches = *reaches && tti_cuda_shown_of(started, rank)->places[i].reach != TTI_OFFER_NONE;
    if (!*reaches) return TUTTI_OK;
    TTI_TRY(gather_rows(engine, started, shape, error));
    TTI_TRY(tti_streams_check_counts(shape, shape->tables, error));
    engine->offers.next = engine->launched + 1;
    for (size_t piece = 0; piece < pieces_of(&started->op); piece++) {
        tutti_status status = resolve(engine, started, piece, error);
        if (status == TUTTI_ERR_UNSUPPORTED) *reaches = false; /* the host carries it out, which can */
        if (status != TUTTI_OK) return *reaches ? status : TUTTI_OK;
    }
    return TUTTI_OK;
}
