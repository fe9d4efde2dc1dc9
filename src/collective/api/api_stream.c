/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements collectives on a stream of a device: checks the call, lets the ranks meet, and hands the op to the comm
 * that carries it out (turn.h).
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
#include "collective/op/pending.h"
#include "collective/op/queue_group.h"
#include "collective/op/turn.h"
#include "collective/op/uses.h"
#include "collective/stream/streams.h"
#include "device/open.h"
#include "device/stream.h"
#include <assert.h>
#include <string.h>

tutti_comm *tutti_on(tutti_comm *comm, tutti_stream *stream)
{
    if (comm == NULL) return NULL;
    comm->caller.stream = stream;
    comm->caller.repeats = false; /* the op before was on another stream */
    return comm;
}

/* ---- The comm that carries ops out ----------------------------------------------------------------------------------- */

/* Makes the comm that carries out ops on streams. Collective, at a comm's first call on a stream; the call that is
 * under way goes on after it. */
static tutti_status make_data(tutti_comm *comm, struct tti_stream *stream)
{
    struct tti_caller caller = comm->caller;
    struct tti_op op = comm->op;
    tutti_comm *data = NULL;
    comm->caller.stream = NULL;
    comm->caller.group = NULL;
    comm->caller.preparing = false;
    tutti_status status = tti_comm_make(comm, &(struct tti_split_call){.kind = TTI_COMM_DUPLICATE}, &data);
    uint64_t editions = comm->caller.editions;
    comm->caller = caller;
    comm->caller.editions = editions;
    comm->caller.repeats = false;
    comm->op = op;
    if (status != TUTTI_OK) return status;
    status = tti_streams_open(comm, data, stream->device);
    if (status != TUTTI_OK) tutti_comm_free(data);
    return status;
}

/* ---- One op ---------------------------------------------------------------------------------------------------------- */

/* Allocates tables for the counts of a v-form in the comm that carries it out. */
static bool make_tables(struct tti_started *started)
{
    struct tti_engine *engine = started->op.comm->engine;
    if (started->row == NULL) return true;
    if (engine->tables == NULL)
        engine->tables = tti_calloc(TTI_GIVEN * (size_t)started->op.comm->size, sizeof *engine->tables);
    started->op.shape.tables = engine->tables;
    return engine->tables != NULL;
}

static bool make_pack(const struct tti_started *started)
{
    tutti_comm *data = started->op.comm;
    struct tti_engine *engine = data->engine;
    tutti_error ignored = {0};
    if (started->op.many == NULL || engine->pack != NULL || !tti_many_packs(&started->op)) return true;
    engine->pack = tti_arena_alloc(data->world->arena, TTI_PACK_BYTES, &ignored);
    return engine->pack != NULL;
}

/* Hands the op to the comm that carries it out. */
static bool hand_over(struct tti_started *started)
{
    tutti_comm *data = started->turn->comm->queue.streams->data;
    started->op.comm = data;
    started->op.shape.tuning = &data->tuning;
    started->op.edition = 0;
    return make_tables(started) && make_pack(started);
}

static tutti_status refuse(tutti_comm *comm, enum tti_kind kind, const tutti_error *error)
{
    return tti_comm_refuse(comm, kind, error->status, "%s: %s", tti_kind_name(kind), error->text);
}

static tutti_status check_stream(const tutti_comm *comm, struct tti_stream *stream, tutti_error *error)
{
    const struct tti_streams *streams = comm->queue.streams;
    bool was_shut = streams != NULL && atomic_load_explicit(&streams->device->shut, memory_order_acquire) != 0;
    TTI_TRY(tti_stream_ready(stream, error));
    TTI_TRY(tti_stream_make_room(stream, error));
    if (streams != NULL && streams->device != stream->device)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "this comm's calls are on streams of %s%s, but this one is on a stream of %s; duplicate "
                             "the comm for another device",
                             streams->device->name, was_shut ? ", which was closed since" : "", stream->device->name);
    return TUTTI_OK;
}

/* Returns a record of the call's stream and of the memory that it uses. NULL: *error says why not. */
static struct tti_turn *make_turn(const struct tti_op *op, tutti_error *error)
{
    struct tti_stream *stream = tti_stream_take(op->comm->caller.stream, error);
    if (stream == NULL) return NULL;
    struct tti_turn *turn = NULL;
    struct tti_uses *uses = NULL;
    if (check_stream(op->comm, stream, error) == TUTTI_OK) uses = tti_uses_take(op, stream, error);
    if (uses != NULL) turn = tti_calloc(1, sizeof *turn);
    if (turn != NULL) {
        *turn = (struct tti_turn){.comm = op->comm, .called_on = stream, .uses = uses};
        return turn;
    }
    if (uses != NULL) tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for one more op on a stream");
    tti_uses_free(uses);
    tti_object_give(&stream->object);
    return NULL;
}

/* Gives up an op that was not started. If it was prepared, or belongs to a group, it keeps its place. */
static void give_up(struct tti_started *started)
{
    if (!started->persistent && started->group == NULL) {
        tti_started_free(started);
        return;
    }
    tti_uses_let_go(started->turn->uses);
    tti_turn_reset(started);
}

/* Fills in the op of the ranks' first meeting, which has the same name and site as the op itself. */
static struct tti_op *fill_meeting(const struct tti_started *started)
{
    const struct tti_turn *turn = started->turn;
    tutti_comm *comm = turn->comm;
    uint64_t bytes = turn->provider == NULL ? 0 : turn->provider->shown_bytes(&started->op), n = (uint64_t)comm->size;
    struct tti_op *op = bytes == 0 ? tti_op_fill(comm, TTI_BARRIER, NULL, 0, NULL, 0, 0, TUTTI_TYPE_COUNT, -1)
                                   : tti_op_fill(comm, TTI_ALL_GATHER, turn->mine, bytes, turn->all, bytes * n, bytes,
                                                 TUTTI_U8, -1);
    op->call = started->op.call;
    return op;
}

/* Fills in the op of the second meeting, if a provider carries out the op: the launcher tells its verdict. */
static struct tti_op *fill_verdict(const struct tti_started *started)
{
    struct tti_verdict *verdict = &started->turn->verdict;
    tutti_comm *comm = started->turn->comm;
    uint64_t bytes = sizeof *verdict;
    bool tells = comm->rank == TTI_LAUNCHER;
    struct tti_op *op = tti_op_fill(comm, TTI_BROADCAST, verdict, tells ? bytes : 0, verdict, bytes, bytes, TUTTI_U8,
                                    TTI_LAUNCHER);
    op->in_place = tells;
    op->call = started->op.call;
    return op;
}

/* Counts the op as in flight: it may end from now on, with or without its handle. */
static void count(struct tti_started *started)
{
    struct tti_queue *queue = &started->op.comm->queue;
    started->op.state = TTI_OP_QUEUED;
    started->failed = TUTTI_OK;
    started->queued = true;
    started->wait_state = (struct tti_wait_state){0};
    atomic_store_explicit(&started->out, true, memory_order_relaxed);
    atomic_store_explicit(&started->cancelled, 0, memory_order_relaxed);
    atomic_store_explicit(&started->asked, false, memory_order_relaxed);
    atomic_store_explicit(&started->status, TUTTI_IN_PROGRESS, memory_order_relaxed);
    atomic_fetch_add_explicit(&queue->count, 1, memory_order_release);
}

/* Drops the op, as nobody waits for it: it is freed when it ends, or now. */
static void let_go(struct tti_started *started)
{
    struct tti_queue *queue = &started->comm->queue;
    tti_lock(&queue->lock);
    bool queued = started->queued;
    started->dropped = true;
    tti_unlock(&queue->lock);
    if (!queued) tti_started_free(started);
}

/* Waits for an op that is staged: if its stream stood still meanwhile, it might hold up the copies in a queue that they
 * share. */
static tutti_status await_staged(struct tti_started *started)
{
    tutti_comm *comm = started->turn->comm;
    tutti_status status = tti_queue_await(started, INT64_MAX);
    if (status != TUTTI_OK && started->error != NULL) comm->errors.call = *started->error;
    tti_started_free(started);
    return status;
}

/* Makes the stream wait for the op. */
static tutti_status put_stop(struct tti_started *started, struct tti_stream *stream)
{
    tutti_comm *comm = started->turn->comm;
    enum tti_kind kind = started->op.shape.kind;
    tutti_error error = {0};
    assert(atomic_load_explicit(&started->turn->met, memory_order_relaxed)); /* the invariant of turn.h */
    tutti_status status = tti_gate_put_stop(&started->turn->gate->gate, stream, started->turn->number, &error);
    if (status == TUTTI_OK) status = tti_uses_end(started->turn->uses, stream, &error);
    let_go(started);
    return status == TUTTI_OK ? TUTTI_OK : refuse(comm, kind, &error);
}

/* The blocking form if the host carries the op out: returns when the ranks have met and the stream will wait for the
 * op. */
static tutti_status meet_and_put(struct tti_started *started, struct tti_stream *stream)
{
    struct tti_turn *turn = started->turn;
    bool stages = turn->comm->queue.streams->stager != NULL;
    tutti_status status = turn->provider == NULL ? tti_op_run_part(fill_meeting(started)) : TUTTI_OK;
    if (status != TUTTI_OK) {
        give_up(started);
        return status;
    }
    turn->provider = NULL;
    count(started);
    /* called before anything that may block: another rank's stream may stand in front of this one's, in a queue that
     * they share */
    tti_turn_met(started, TUTTI_OK, NULL);
    return stages ? await_staged(started) : put_stop(started, stream);
}

/* Holds both meetings, with the launch between them. */
static tutti_status meet_twice(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    tutti_comm *comm = turn->comm;
    const struct tti_device_provider *provider = turn->provider;
    TTI_TRY(tti_op_run_part(fill_meeting(started)));
    tti_turn_launch(started);
    if (provider->everyone)
        return turn->verdict.status == TUTTI_OK ? TUTTI_OK : tti_comm_health(comm, started->op.shape.kind, false);
    tutti_status status = tti_op_run_part(fill_verdict(started));
    if (status != TUTTI_OK) provider->abandon(comm->queue.streams);
    return status;
}

/* The blocking form if a device carries the op out: returns when it was issued and the stream will wait for it. If not
 * `blocking`, does the same for an op that is started and must not keep others waiting when it is issued. */
static tutti_status meet_and_launch(struct tti_started *started, struct tti_stream *stream, bool blocking)
{
    struct tti_turn *turn = started->turn;
    tutti_comm *comm = turn->comm;
    const struct tti_verdict *verdict = &turn->verdict;
    enum tti_kind kind = started->op.shape.kind;
    tutti_error error = {0};
    tutti_status status = meet_twice(started);
    if (status == TUTTI_OK && verdict->status != TUTTI_OK)
        status = tti_comm_refuse(comm, kind, (tutti_status)verdict->status, "%s: %s", tti_kind_name(kind),
                                 verdict->text);
    if (status != TUTTI_OK) {
        give_up(started);
        return status;
    }
    if (verdict->by_host) return meet_and_put(started, stream);
    status = turn->provider->follow(started, turn->stream, &error);
    if (status == TUTTI_OK) status = tti_uses_end(turn->uses, turn->stream, &error);
    count(started);
    tti_turn_fly(started);
    if (blocking) let_go(started);
    return status == TUTTI_OK ? TUTTI_OK : refuse(comm, kind, &error);
}

static void start_meeting(struct tti_started *meeting, const struct tti_op *op, struct tti_started *then)
{
    meeting->op = *op;
    meeting->row = NULL;
    meeting->dropped = true;
    meeting->then = then;
    tti_queue_start(meeting);
}

/* The form that does not block: the meetings are ops of the comm, and this op follows them. */
static tutti_status meet_and_follow(struct tti_started *started)
{
    tutti_comm *comm = started->turn->comm;
    enum tti_kind kind = (enum tti_kind)started->op.call.kind;
    tutti_status status = tti_queue_ready(comm, started->op.shape.kind);
    struct tti_started *first = status == TUTTI_OK ? tti_started_new(comm) : NULL;
    const struct tti_device_provider *provider = started->turn->provider;
    bool twice = provider != NULL && !provider->everyone;
    struct tti_started *second = first != NULL && twice ? tti_started_new(comm) : NULL;
    if (first == NULL || (second == NULL && twice)) {
        if (first != NULL) tti_started_free(first);
        give_up(started);
        return status != TUTTI_OK ? status
                                  : tti_comm_refuse(comm, kind, TUTTI_ERR_MEMORY,
                                                    "%s: no memory for one more op in flight", tti_kind_name(kind));
    }
    count(started);
    struct tti_op verdict = {0};
    if (second != NULL) verdict = *fill_verdict(started); /* filled before the op may end and be gone */
    start_meeting(first, fill_meeting(started), started);
    if (second != NULL) start_meeting(second, &verdict, started);
    return TUTTI_OK;
}

/* Makes the side stream, on which a provider carries out started ops, continue from where the caller's stream is
 * now. */
static tutti_status branch_off(struct tti_streams *streams, struct tti_stream *stream, tutti_error *error)
{
    struct tti_mark *mark = NULL;
    TTI_TRY(tti_stream_note(stream, &mark, error));
    tutti_status status = tti_mark_settle(mark, error);
    if (status == TUTTI_OK) status = tti_stream_after(streams->side, mark, error);
    tti_object_give(&mark->object);
    return status;
}

/* Called when the stream of an op was given up: breaks the comm, so that no rank takes the work on it for done. The
 * stream is not freed before this returns. */
static void give_up_stream(void *context)
{
    struct tti_streams *streams = context;
    tutti_comm *data = streams->data;
    tti_comm_break_apart(data, TTI_LEAVE, TUTTI_ERR_CANCELLED, data->rank,
                         "rank %d: a stream of %s waited for too long, and was given up with the calls on it",
                         data->rank, streams->device->name);
    if (streams->provider != NULL) streams->provider->give_up(streams);
}

static tutti_status find_gate(struct tti_streams *streams, struct tti_stream *stream, struct tti_stream_gate **gate,
                              tutti_error *error)
{
    *gate = tti_gates_find(&streams->gates, stream, error);
    if (*gate == NULL) return error->status;
    atomic_fetch_add_explicit(&(*gate)->used, 1, memory_order_seq_cst);
    tti_gate_guard(*gate, give_up_stream, streams);
    return TUTTI_OK;
}

/* Puts the op on its stream. Called with the lock of the side stream. */
static tutti_status enqueue(struct tti_started *started, struct tti_stream *stream, tutti_error *error)
{
    struct tti_turn *turn = started->turn;
    struct tti_streams *streams = turn->comm->queue.streams;
    if (turn->provider != NULL && !turn->blocking) {
        TTI_TRY(find_gate(streams, stream, &turn->origin, error));
        TTI_TRY(branch_off(streams, stream, error));
        stream = streams->side;
    }
    turn->stream = stream;
    TTI_TRY(find_gate(streams, stream, &turn->gate, error));
    TTI_TRY(tti_uses_begin(turn->uses, stream, error));
    return turn->provider != NULL ? turn->provider->show(started, error) : tti_turn_put_reached(started, error);
}

static bool make_shown(struct tti_turn *turn, const struct tti_op *op)
{
    if (turn->provider == NULL) return true;
    size_t bytes = turn->provider->shown_bytes(op);
    if (bytes == 0) return true;
    turn->mine = tti_calloc(1, bytes);
    turn->all = tti_calloc((size_t)op->shape.size, bytes);
    return turn->mine != NULL && turn->all != NULL;
}

/* Waits so that the launcher does not put more on its streams than a device takes without blocking. */
static void await_flights(struct tti_streams *streams)
{
    struct tti_wait wait;
    tti_bell nobody = 0;
    tti_wait_begin(&wait, false, 1000000);
    while (atomic_load_explicit(&streams->flying, memory_order_relaxed) >= TTI_FLYING_MOST &&
           !tti_comm_is_broken(streams->data)) {
        tti_queue_help(streams->data, tti_wait_slow(&wait));
        if (!tti_wait_pause(&wait, false)) tti_bell_sleep(&nobody, 0, 50000, false);
    }
}

static tutti_status no_memory(tutti_comm *comm, enum tti_kind kind)
{
    return tti_comm_refuse(comm, kind, TUTTI_ERR_MEMORY, "%s: no memory for one more op on a stream",
                           tti_kind_name(kind));
}

/* Puts the op on its stream, and starts it; `blocking`: the caller waits, and has no handle. If it fails, the op was
 * given up. */
static tutti_status issue(struct tti_started *started, bool blocking)
{
    struct tti_turn *turn = started->turn;
    tutti_comm *comm = turn->comm;
    struct tti_streams *streams = comm->queue.streams;
    enum tti_kind kind = started->op.shape.kind;
    tutti_error error = {0};
    turn->blocking = blocking;
    if (tti_streams_renew(comm, &error) != TUTTI_OK) {
        give_up(started);
        return refuse(comm, kind, &error);
    }
    if (tti_streams_choose(streams, &started->op, &turn->provider, &error) != TUTTI_OK) {
        give_up(started);
        return refuse(comm, kind, &error);
    }
    if (!hand_over(started) || !make_shown(turn, &started->op)) {
        give_up(started);
        return no_memory(comm, kind);
    }
    if (turn->provider != NULL && blocking && comm->rank == TTI_LAUNCHER) await_flights(streams);
    pthread_mutex_lock(&streams->side_lock);
    tutti_status status = enqueue(started, turn->called_on, &error);
    pthread_mutex_unlock(&streams->side_lock);
    if (status != TUTTI_OK) {
        give_up(started);
        return refuse(comm, kind, &error);
    }
    tti_stats_count(comm, &started->op, !blocking);
    if (!blocking && !turn->connects) return meet_and_follow(started);
    return turn->provider == NULL ? meet_and_put(started, turn->called_on)
                                  : meet_and_launch(started, turn->called_on, blocking);
}

tutti_status tti_stream_op_start(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    tutti_comm *comm = turn->comm;
    tutti_error error = {0};
    tti_turn_reset(started);
    tutti_status status = check_stream(comm, turn->called_on, &error);
    if (status != TUTTI_OK) return refuse(comm, started->op.shape.kind, &error);
    if (comm->queue.streams == NULL) TTI_TRY(make_data(comm, turn->called_on));
    return issue(started, false);
}

/* Starts an op with a handle; one that is only prepared is left ready to be started. */
static tutti_status start(struct tti_started *started, tutti_op *handle, bool prepares)
{
    uint64_t id = atomic_load_explicit(&started->id, memory_order_relaxed);
    started->persistent = prepares;
    tutti_status status = prepares ? TUTTI_OK : issue(started, false);
    if (status == TUTTI_OK) handle->id = id;
    return status;
}

/* Makes an op of its own out of the call, with its turn. */
static tutti_status run(struct tti_op *op, struct tti_turn *turn, tutti_op *handle)
{
    tutti_comm *comm = op->comm;
    enum tti_kind kind = op->shape.kind;
    bool prepares = comm->caller.preparing;
    tutti_status status = TUTTI_OK;
    comm->caller.stream = NULL;
    if (comm->queue.streams == NULL && !prepares) status = make_data(comm, turn->called_on);
    if (status == TUTTI_OK) status = tti_queue_ready(comm, kind);
    struct tti_started *started = status == TUTTI_OK ? tti_queue_copy(op) : NULL;
    comm->caller.repeats = false;
    if (started == NULL) {
        tti_turn_drop(turn);
        return status != TUTTI_OK ? status : no_memory(comm, kind);
    }
    started->turn = turn;
    return handle != NULL ? start(started, handle, prepares) : issue(started, true);
}

/* The caller puts nothing on the stream during the call, nor captures it: what was checked at its beginning holds to its end. The
 * driver is asked once. */
static tutti_status run_checked(struct tti_op *op, struct tti_turn *turn, tutti_op *handle)
{
    struct tti_stream *stream = turn->called_on;
    if (!tti_stream_is_shown(stream)) return run(op, turn, handle);
    tti_object_keep(&stream->object); /* the op may end meanwhile */
    atomic_store_explicit(&stream->checked, 1, memory_order_relaxed);
    tutti_status status = run(op, turn, handle);
    atomic_store_explicit(&stream->checked, 0, memory_order_relaxed);
    tti_object_give(&stream->object);
    return status;
}

tutti_status tti_stream_op_run(struct tti_op *op, tutti_op *handle)
{
    tutti_comm *comm = op->comm;
    tutti_error error = {0};
    bool grouped = comm->caller.group != NULL;
    bool waits = comm->queue.streams == NULL ? !comm->caller.preparing : handle == NULL && !grouped;
    if (waits && tti_is_in_callback()) return tti_callback_refuse(comm, op->shape.kind);
    struct tti_turn *turn = make_turn(op, &error);
    if (turn == NULL) return refuse(comm, op->shape.kind, &error);
    if (!grouped) return run_checked(op, turn, handle);
    tutti_status status = comm->queue.streams == NULL ? make_data(comm, turn->called_on) : TUTTI_OK;
    if (status == TUTTI_OK) status = tti_group_note(op, turn, handle);
    if (status != TUTTI_OK) tti_turn_drop(turn);
    return status;
}

void tti_streams_close(tutti_comm *comm)
{
    struct tti_streams *streams = comm->queue.streams;
    if (streams == NULL) return;
    tti_queue_finish(streams->data); /* ops that end still use `streams` */
    comm->queue.streams = NULL;
    tutti_comm_free(streams->data);
    tti_streams_free(streams);
}

/* ---- A stream that waits for an op ------------------------------------------------------------------------------------- */

/* Frees a gate of one turn, made for an op that belongs to no stream of the device. */
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

/* Returns true if the op, or a part of it, is put on a stream of some device. */
static bool is_on_stream(const struct tti_started *started)
{
    return tti_started_is_on_stream(started) || (tti_is_group(started) && tti_group_is_on_streams(started->group));
}

/* Waits until the ranks have met: a stream that stood still before that might hold up another rank's, in a queue that
 * they share. Ops that are staged, messages and groups are waited for to the end (see await_staged). */
static bool await_issue(struct tti_started *started)
{
    tti_turn_await_meeting(started, INT64_MAX);
    const struct tti_turn *turn = started->turn;
    if (is_on_stream(started) && (turn == NULL || turn->staging != NULL)) tti_queue_await(started, INT64_MAX);
    return atomic_load_explicit(&started->status, memory_order_acquire) == TUTTI_IN_PROGRESS;
}

static tutti_status let_wait(struct tti_stream *stream, struct tti_started *started, tutti_error *error)
{
    if (!await_issue(started)) return TUTTI_OK;
    const struct tti_turn *turn = started->turn;
    if (turn == NULL || turn->gate->stream->device != stream->device) return stop_for(stream, started, error);
    if (tti_turn_flies(started)) return turn->provider->follow(started, stream, error);
    TTI_TRY(tti_gate_put_stop(&turn->gate->gate, stream, turn->number, error));
    return tti_uses_end(turn->uses, stream, error); /* other ops that use this memory wait for this one */
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
    if (status == TUTTI_OK && is_on_stream(started) && tti_is_in_callback())
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "stream_wait: a callback must not wait for other ranks");
    if (status == TUTTI_OK) status = let_wait(stream, started, error);
    tti_object_give(&stream->object);
    return status;
}
