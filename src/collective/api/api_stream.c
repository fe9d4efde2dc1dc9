/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on a stream of a device: checking, meeting, and handing the op to the comm that carries it out (turn.h).
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/comm/stats.h"
#include "collective/engine/engine.h"
#include "collective/op/callback.h"
#include "collective/op/handle.h"
#include "collective/op/many.h"
#include "collective/op/turn.h"
#include "device/buffer.h"
#include "device/find.h"
#include "device/open.h"
#include "device/stream.h"
#include <string.h>

tutti_comm *tutti_on(tutti_comm *comm, tutti_stream *stream)
{
    if (comm == NULL) return NULL;
    comm->caller.stream = stream;
    comm->caller.repeats = false; /* the op before was another */
    return comm;
}

/* ---- The buffers --------------------------------------------------------------------------------------------------- */

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
    return with_buffer(use, stream, error, tti_buffer_end);
}

/* ---- The comm that carries ops out ----------------------------------------------------------------------------------- */

/* Collective, at a comm's first call on a stream. The call that is under way goes on after it. */
static tutti_status make_data(tutti_comm *comm)
{
    struct tti_caller caller = comm->caller;
    struct tti_op op = comm->op;
    tutti_comm *data = NULL;
    struct tti_streams *streams = tti_calloc(1, sizeof *streams);
    if (streams == NULL)
        return tti_comm_refuse(comm, op.shape.kind, TUTTI_ERR_MEMORY, "no memory for calls on streams");
    comm->caller.stream = NULL;
    comm->caller.starting = NULL;
    tutti_status status = tti_comm_make(comm, &(struct tti_split_call){.kind = TTI_COMM_DUPLICATE}, &data);
    uint64_t editions = comm->caller.editions;
    comm->caller = caller;
    comm->caller.editions = editions;
    comm->caller.repeats = false;
    comm->op = op;
    if (status == TUTTI_OK) status = tti_queue_ready(data, op.shape.kind);
    if (status == TUTTI_OK) {
        streams->data = data;
        comm->queue.streams = streams;
        return TUTTI_OK;
    }
    if (data != NULL) tutti_comm_free(data);
    tti_free(streams);
    return status;
}

/* ---- One op ---------------------------------------------------------------------------------------------------------- */

/* The counts of a v-form lie in tables of the comm that carries it out. */
static bool copy_row(struct tti_started *started, const tutti_comm *comm)
{
    struct tti_engine *engine = started->comm->engine;
    size_t words = TTI_GIVEN * (size_t)comm->size;
    if (started->op.shape.tables == NULL) return true;
    if (engine->tables == NULL) engine->tables = tti_calloc(words, sizeof *engine->tables);
    started->row = tti_calloc(words, sizeof *started->row);
    started->op.shape.tables = engine->tables;
    if (engine->tables == NULL || started->row == NULL) return false;
    memcpy(started->row, comm->engine->row, words * sizeof *started->row);
    return true;
}

static bool make_pack(const struct tti_started *started)
{
    struct tti_engine *engine = started->comm->engine;
    tutti_error ignored = {0};
    if (started->op.many == NULL || engine->pack != NULL || !tti_many_packs(&started->op)) return true;
    engine->pack = tti_arena_alloc(&started->comm->world->arena, TTI_PACK_BYTES, &ignored);
    return engine->pack != NULL;
}

/* A copy of the op for the comm that carries it out. It takes the pieces over. */
static struct tti_started *make_started(struct tti_op *op, struct tti_turn *turn)
{
    tutti_comm *comm = op->comm, *data = comm->queue.streams->data;
    struct tti_started *started = tti_started_new(data);
    if (started == NULL) return NULL;
    started->op = *op;
    started->op.comm = data;
    started->op.shape.tuning = &data->tuning;
    started->op.edition = 0;
    started->row = NULL;
    if (!copy_row(started, comm) || !make_pack(started)) {
        started->op.many = NULL;
        tti_started_free(started);
        return NULL;
    }
    started->turn = turn;
    op->many = NULL;
    return started;
}

static tutti_status refuse(tutti_comm *comm, enum tti_kind kind, const tutti_error *error)
{
    return tti_comm_refuse(comm, kind, error->status, "%s: %s", tti_kind_name(kind), error->text);
}

static tutti_status check(const struct tti_op *op, struct tti_stream *stream, tutti_error *error)
{
    TTI_TRY(tti_stream_ready(stream, error));
    if (op->comm->caller.preparing)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                             "an op on a stream cannot be prepared; start it each time with tutti_on");
    if (stream->device->ops != &tti_host_ops)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                             "no provider of this version carries out collectives on %s; copy the data to the host",
                             stream->device->name);
    return each_use(op, stream, check_use, error);
}

/* The ranks' meeting: a barrier that is called what the op is called. */
static struct tti_op *fill_meeting(tutti_comm *comm, const struct tti_call *call)
{
    struct tti_op *op = tti_op_fill(comm, TTI_BARRIER, NULL, 0, NULL, 0, 0, TUTTI_TYPE_COUNT, -1);
    op->call = *call;
    return op;
}

/* It may end from now on, with or without its handle. */
static void count(struct tti_started *started)
{
    struct tti_queue *queue = &started->comm->queue;
    started->op.state = TTI_OP_QUEUED;
    started->failed = TUTTI_OK;
    started->queued = true;
    started->vigil = (struct tti_vigil){0};
    atomic_store_explicit(&started->out, true, memory_order_relaxed);
    atomic_store_explicit(&started->cancelled, 0, memory_order_relaxed);
    atomic_store_explicit(&started->asked, false, memory_order_relaxed);
    atomic_store_explicit(&started->status, TUTTI_IN_PROGRESS, memory_order_relaxed);
    atomic_fetch_add_explicit(&queue->count, 1, memory_order_release);
    atomic_fetch_add_explicit(&started->turn->gate->used, 1, memory_order_relaxed);
}

/* Nobody waits for it: it is freed when it ends, or now. */
static void let_go(struct tti_started *started)
{
    struct tti_queue *queue = &started->comm->queue;
    tti_lock(&queue->lock);
    bool queued = started->queued;
    started->dropped = true;
    tti_unlock(&queue->lock);
    if (!queued) tti_started_free(started);
}

/* Blocking form: returns when the ranks have met and the stream will wait for the op. */
static tutti_status meet_and_put(struct tti_started *started, struct tti_stream *stream)
{
    struct tti_turn *turn = started->turn;
    tutti_comm *comm = turn->comm;
    enum tti_kind kind = started->op.shape.kind;
    tutti_error error = {0};
    struct tti_call call = started->op.call;
    uint64_t number = turn->number;
    tutti_status status = tti_op_run(fill_meeting(comm, &call));
    if (status != TUTTI_OK) {
        tti_started_free(started);
        return status;
    }
    comm->counts.bytes += started->op.in_bytes + started->op.out_bytes;
    count(started);
    /* before anything that may block: another rank's stream may stand in front of this one's, in a queue that they share */
    tti_turn_met(started, TUTTI_OK, NULL);
    status = tti_gate_put_stop(&turn->gate->gate, stream, number, &error);
    if (status == TUTTI_OK) status = each_use(&started->op, stream, end_use, &error);
    let_go(started);
    return status == TUTTI_OK ? TUTTI_OK : refuse(comm, kind, &error);
}

/* The other one: the meeting is an op of the comm, and this one follows it. */
static tutti_status meet_and_follow(struct tti_started *started, tutti_op *handle)
{
    tutti_comm *comm = started->turn->comm;
    struct tti_call call = started->op.call;
    struct tti_op *meeting = fill_meeting(comm, &call);
    tutti_status status = tti_queue_ready(comm, started->op.shape.kind);
    struct tti_started *first = status == TUTTI_OK ? tti_started_new(comm) : NULL;
    if (first == NULL) {
        tti_started_free(started);
        return status != TUTTI_OK ? status
                                  : tti_comm_refuse(comm, (enum tti_kind)call.kind, TUTTI_ERR_MEMORY,
                                                    "%s: no memory for one more op in flight",
                                                    tti_kind_name((enum tti_kind)call.kind));
    }
    tti_stats_count(comm, &started->op, true);
    handle->id = atomic_load_explicit(&started->id, memory_order_relaxed);
    count(started);
    first->op = *meeting;
    first->row = NULL;
    first->dropped = true;
    first->then = started;
    tti_queue_start(first);
    return TUTTI_OK;
}

static tutti_status put(struct tti_op *op, struct tti_stream *stream, tutti_op *handle)
{
    tutti_comm *comm = op->comm;
    enum tti_kind kind = op->shape.kind;
    tutti_error error = {0};
    struct tti_turn *turn = tti_calloc(1, sizeof *turn);
    struct tti_started *started = turn == NULL ? NULL : make_started(op, turn);
    if (started == NULL) {
        tti_free(turn);
        return tti_comm_refuse(comm, kind, TUTTI_ERR_MEMORY, "%s: no memory for one more op on a stream",
                               tti_kind_name(kind));
    }
    turn->comm = comm;
    turn->gate = tti_streams_gate(comm->queue.streams, stream, &error);
    tutti_status status = turn->gate == NULL ? error.status : each_use(&started->op, stream, begin_use, &error);
    if (status == TUTTI_OK) status = tti_gate_put_reached(&turn->gate->gate, stream, &turn->number, &error);
    if (status != TUTTI_OK) {
        tti_started_free(started);
        return refuse(comm, kind, &error);
    }
    return handle == NULL ? meet_and_put(started, stream) : meet_and_follow(started, handle);
}

tutti_status tti_stream_op_run(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    tutti_op *handle = comm->caller.starting;
    tutti_error error = {0};
    if (handle == NULL && tti_is_in_callback()) return tti_callback_refuse(comm, op->shape.kind);
    struct tti_stream *stream = tti_stream_take(comm->caller.stream, &error);
    if (stream == NULL) return refuse(comm, op->shape.kind, &error);
    tutti_status status = check(op, stream, &error);
    if (status != TUTTI_OK) refuse(comm, op->shape.kind, &error);
    comm->caller.stream = NULL;
    comm->caller.starting = NULL;
    if (status == TUTTI_OK && comm->queue.streams == NULL) status = make_data(comm);
    if (status == TUTTI_OK) status = put(op, stream, handle);
    comm->caller.repeats = false;
    tti_object_give(&stream->object);
    return status;
}

void tti_streams_close(tutti_comm *comm)
{
    struct tti_streams *streams = comm->queue.streams;
    if (streams == NULL) return;
    comm->queue.streams = NULL;
    tutti_comm_free(streams->data);
    tti_streams_free_gates(streams);
    tti_free(streams);
}

/* ---- A stream that waits for an op ------------------------------------------------------------------------------------- */

/* A gate of one turn, for an op that belongs to no stream of the device. */
static void open_and_free(void *context, tutti_status status, const tutti_error *error)
{
    struct tti_gate *gate = context;
    (void)status, (void)error;
    tti_gate_free(gate);
    tti_free(gate);
}

static tutti_status stop_for(struct tti_stream *stream, struct tti_started *started, tutti_error *error)
{
    uint64_t turn;
    struct tti_gate *gate = tti_calloc(1, sizeof *gate);
    if (gate == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for one more wait of a stream");
    tutti_status status = tti_gate_make(stream->device, gate, error);
    if (status == TUTTI_OK) status = tti_gate_put(gate, stream, &turn, error);
    if (status == TUTTI_OK) {
        status = tti_callback_add(started, open_and_free, gate);
        if (status == TUTTI_OK) return TUTTI_OK;
        tti_error_set(error, status, 0, "no memory for one more wait of a stream");
    }
    tti_gate_free(gate); /* lets the stream go on */
    tti_free(gate);
    return status;
}

tutti_status tutti_stream_wait(tutti_stream *handle, tutti_op op, tutti_error *error)
{
    tutti_error none;
    error = tti_error_begin(error, &none, "stream_wait");
    struct tti_started *started;
    tutti_status status = tti_handle_find_queued(op, &started);
    if (status != TUTTI_OK) return tti_error_set(error, status, 0, "stream_wait: %s", tutti_status_text(status));
    struct tti_stream *stream = tti_stream_take(handle, error);
    if (stream == NULL) return error->status;
    status = tti_stream_ready(stream, error);
    if (status == TUTTI_OK && started->turn != NULL && tti_is_in_callback())
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "stream_wait: a callback must not wait for other ranks");
    if (status == TUTTI_OK) {
        tti_turn_await_meeting(started, INT64_MAX);
        const struct tti_turn *turn = started->turn;
        bool ended = atomic_load_explicit(&started->status, memory_order_acquire) != TUTTI_IN_PROGRESS;
        if (!ended && turn != NULL && turn->gate->stream->device == stream->device)
            status = tti_gate_put_stop(&turn->gate->gate, stream, turn->number, error);
        else if (!ended)
            status = stop_for(stream, started, error);
    }
    tti_object_give(&stream->object);
    return status;
}
