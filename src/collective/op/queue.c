/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/queue.h"
#include "collective/engine/engine.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/op/callback.h"
#include "collective/op/pending.h"
#include "collective/op/queue_group.h"
#include "collective/op/staging.h"
#include "collective/op/thread_local_op.h"
#include "collective/op/turn.h"
#include "collective/op/uses.h"
#include "collective/peers/net.h"
#include <assert.h>
#include <string.h>

#define MS INT64_C(1000000)
enum { LARGE_MAIL_BYTES = 4 << 20 };

/* ---- One op ---------------------------------------------------------------------------------------------------- */

struct tti_started *tti_queue_first(tutti_comm *comm)
{
    tti_lock(&comm->queue.lock);
    struct tti_started *first = comm->queue.first;
    tti_unlock(&comm->queue.lock);
    return first;
}

/* Notes that an op has ended. From then on the thread that has its handle may wait for it and give its place back.
 * Returns true if nobody has its handle. */
static bool note_end(struct tti_started *started, tutti_status status)
{
    struct tti_queue *queue = &started->comm->queue;
    tti_lock(&queue->lock);
    assert(status != TUTTI_IN_PROGRESS && started->queued); /* an op ends once, in the end that it was started for */
    assert(atomic_load_explicit(&started->status, memory_order_relaxed) == TUTTI_IN_PROGRESS);
    started->queued = false;
    bool dropped = started->dropped;
    if (started->callbacks != NULL) tti_callback_due(started, status);
    atomic_store_explicit(&started->status, status, memory_order_release);
    tti_unlock(&queue->lock);
    return dropped;
}

void tti_started_end(struct tti_started *started, tutti_status status)
{
    struct tti_queue *queue = &started->op.comm->queue;
    tutti_comm *comm = started->comm;
    bool grouped = started->group != NULL;
    bool dropped = note_end(started, status);
    if (grouped) tti_group_told(started, status);
    if (dropped) tti_started_free(started); /* else it may be gone already */
    if (queue != &comm->queue && tti_callbacks_are_due(comm)) tti_service_wake(comm, TTI_AT_ONCE);
    tti_queue_uncount(queue);
    if (atomic_load_explicit(&queue->waiters, memory_order_relaxed) != 0) tti_bell_ring(&queue->handover, false);
}

void tti_started_begin_apart(struct tti_started *started)
{
    started->queued = true;
    atomic_store_explicit(&started->out, true, memory_order_relaxed);
    atomic_store_explicit(&started->cancelled, 0, memory_order_relaxed);
    atomic_store_explicit(&started->asked, false, memory_order_relaxed);
    atomic_store_explicit(&started->status, TUTTI_IN_PROGRESS, memory_order_relaxed);
    atomic_fetch_add_explicit(&started->comm->queue.count, 1, memory_order_release);
}

bool tti_started_end_apart(struct tti_started *started, tutti_status status)
{
    bool dropped = note_end(started, status);
    if (dropped) tti_started_free(started); /* else it may be gone already */
    return dropped;
}

void tti_started_fail(struct tti_started *started)
{
    started->error = tti_calloc(1, sizeof *started->error);
    if (started->error == NULL) return;
    const struct tti_turn *turn = started->turn;
    if (turn != NULL && turn->refused)
        tti_comm_describe(turn->comm, started->error, (enum tti_kind)started->op.call.kind,
                          (tutti_status)turn->verdict.status, "%s", turn->verdict.text);
    else
        *started->error = started->op.comm->queue.error;
    tti_error_name(started->error, tti_started_kind(started));
}

static void finish(struct tti_started *started, tutti_status status)
{
    tutti_comm *comm = started->op.comm;
    struct tti_queue *queue = &comm->queue;
    struct tti_started *then = started->then;
    if (started->op.state != TTI_OP_QUEUED && !tti_turn_flies(started)) tti_trace_end(&started->op, status, true);
    tti_turn_trace(started, status);
    started->op.state = TTI_OP_ENDED;
    if (status != TUTTI_OK) tti_started_fail(started);
    if (started->wait_state.polled_ns != 0) comm->peers->show_wait(comm, NULL, 0); /* shown by a service thread */
    tti_lock(&queue->lock);
    assert(queue->first == started); /* collectives of a comm end in the order of their starts */
    queue->first = started->next;
    if (queue->first == NULL) queue->last = &queue->first;
    tti_unlock(&queue->lock);
    tti_turn_end(started, status);
    tti_started_end(started, status);
    if (then != NULL) tti_turn_met(then, status, &queue->error);
}

static const struct tti_provider_ops *provider_of(const struct tti_started *started)
{
    return tti_turn_flies(started) ? &started->turn->provider->ops : &started->op.comm->provider->ops;
}

/* Returns true if the copies of a staged op have ended. They go on after its failure: until they have ended nobody may
 * free their memory, or use it otherwise. */
static bool copies_have_ended(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    if (turn == NULL || turn->staging == NULL || !tti_staging_is_copying(turn->staging)) return true;
    if (tti_now_ns() < started->fence_until_ns) return false;
    tti_log(TUTTI_ERROR, "copies of an op that has failed do not end: the memory they use is not given back");
    tti_uses_lose(turn->uses);
    return true;
}

tutti_status tti_queue_fail(struct tti_started *started, tutti_status status)
{
    const struct tti_provider_ops *provider = provider_of(started);
    assert(status < 0);
    if (started->failed == TUTTI_OK) {
        started->failed = status;
        started->fence_until_ns = tti_now_ns() + started->op.comm->world->options.fence_ms * MS;
        if (started->op.state != TTI_OP_QUEUED) provider->stop(&started->op);
    }
    bool fenced = started->op.state == TTI_OP_QUEUED || provider->fence(&started->op, started->fence_until_ns);
    return fenced && copies_have_ended(started) ? status : TUTTI_IN_PROGRESS;
}

static tutti_status cancel(struct tti_started *started)
{
    const struct tti_op *op = &started->op;
    char call[160];
    tti_call_describe(&op->call, call, sizeof call);
    return tti_comm_break(op->comm, (enum tti_kind)op->call.kind, TUTTI_ERR_CANCELLED, op->comm->rank,
                          "rank %d cancelled %s", op->comm->rank, call);
}

/* Returns OK once the op may begin. */
static tutti_status come(struct tti_started *started)
{
    if (started->then != NULL && !tti_turn_may_meet(started->then)) return TUTTI_IN_PROGRESS;
    return started->turn == NULL ? TUTTI_OK : tti_turn_come(started);
}

/* Watches an op that a device carries out. Its deadline counts from when the stream has come to it. */
static tutti_status watch_flight(struct tti_started *started)
{
    tutti_status status = started->turn->provider->ops.progress(&started->op);
    if (status != TUTTI_IN_PROGRESS || started->turn->reached) return status;
    status = tti_turn_come(started);
    return status == TUTTI_OK ? TUTTI_IN_PROGRESS : status;
}

/* Advances an op that the host carries out on copies, in rounds: between them it is as if it had not begun. */
static tutti_status advance_staged(struct tti_started *started)
{
    if (!started->turn->reached) TTI_TRY(tti_turn_come(started));
    return started->turn->reached ? tti_staging_progress(started) : TUTTI_IN_PROGRESS;
}

static tutti_status advance(struct tti_started *started)
{
    struct tti_op *op = &started->op;
    if (started->failed != TUTTI_OK) return tti_queue_fail(started, started->failed);
    tutti_status status = TUTTI_IN_PROGRESS;
    bool staged = started->turn != NULL && started->turn->staging != NULL;
    if (op->state == TTI_OP_QUEUED && !tti_comm_is_broken(op->comm) && !staged) {
        tutti_status begins = come(started);
        if (begins < 0) return tti_queue_fail(started, begins);
        if (begins == TUTTI_OK) tti_op_begin(op, started->row);
    }
    if (tti_turn_flies(started))
        status = watch_flight(started);
    else if (staged)
        status = tti_comm_is_broken(op->comm) && op->state == TTI_OP_QUEUED ? status : advance_staged(started);
    else if (op->state != TTI_OP_QUEUED)
        status = tti_op_progress(op);
    if (status == TUTTI_IN_PROGRESS && tti_comm_is_broken(op->comm))
        status = tti_comm_health(op->comm, (enum tti_kind)op->call.kind, false);
    if (status == TUTTI_IN_PROGRESS && atomic_load_explicit(&started->cancelled, memory_order_relaxed) != 0)
        status = cancel(started);
    return status < 0 ? tti_queue_fail(started, status) : status;
}

/* Returns a number for the op's progress: it changes when the op moves. */
static uint64_t stand(const struct tti_started *started)
{
    const struct tti_op *op = &started->op;
    return ((uint64_t)op->state << 48) + ((uint64_t)op->walk.step << 32) + (uint64_t)(unsigned)op->cursor +
           (op->walk.done << 8) + (op->comm->sequence << 54); /* with pieces: the round */
}

/* Takes collectives as far as they go. Returns true if anything moved. */
static bool drive_collectives(tutti_comm *comm)
{
    bool moved = false;
    struct tti_started *started;
    while ((started = tti_queue_first(comm)) != NULL) {
        uint64_t before = stand(started);
        tutti_status status = advance(started);
        moved = moved || status != TUTTI_IN_PROGRESS || stand(started) != before;
        if (status == TUTTI_IN_PROGRESS) return moved;
        finish(started, status);
    }
    return moved;
}

bool tti_queue_drive(tutti_comm *comm)
{
    bool moved = drive_collectives(comm);
    return tti_queue_drive_pending(comm) || moved;
}

struct tti_waitable tti_queue_waitable(struct tti_started *started)
{
    struct tti_op *op = &started->op;
    return (struct tti_waitable){.waiting_for = &op->waiting_for,
                                 .awaited = &op->awaited,
                                 .site = &op->call.site,
                                 .kind = (enum tti_kind)op->call.kind,
                                 .op = op,
                                 .deadline_ms = op->deadline_ms,
                                 .reached = started->turn == NULL ? NULL : &started->turn->reached,
                                 .started = true,
                                 .wait_state = &started->wait_state};
}

bool tti_queue_has_collectives(tutti_comm *comm)
{
    return tti_queue_first(comm) != NULL;
}

static tutti_status progress_polled(void *op)
{
    struct tti_started *started = tti_started_of(op);
    return tti_turn_flies(started) ? watch_flight(started) : advance_staged(started);
}

/* Polls an op whose turn has come. A staged one also waits here for its stream, and must learn meanwhile that a rank
 * was lost or has broken the comm. */
static tutti_status poll_queued(struct tti_started *first)
{
    tutti_comm *comm = first->op.comm;
    if (!tti_turn_is_polled(first)) return TUTTI_OK;
    tutti_status status = tti_comm_health(comm, (enum tti_kind)first->op.call.kind, true);
    if (status < 0) tti_queue_fail(first, status);
    return status;
}

tutti_status tti_queue_poll(tutti_comm *comm, int64_t now_ns)
{
    struct tti_started *first = tti_queue_first(comm);
    if (first != NULL && first->turn != NULL) tti_turn_watch(first);
    if (first == NULL || first->failed != TUTTI_OK) return TUTTI_OK;
    if (comm->lanes != NULL && tti_turn_is_polled(first))
        tti_net_pump(comm->lanes->net); /* else nobody may do so meanwhile */
    if (first->op.state == TTI_OP_QUEUED) return poll_queued(first);
    struct tti_waitable waitable = tti_queue_waitable(first);
    waitable.progress = tti_turn_is_polled(first) ? progress_polled : tti_op_progress;
    waitable.object = &first->op;
    if (tti_turn_flies(first)) waitable.advise = tti_turn_advise;
    tutti_status status = tti_comm_check_wait(comm, &waitable, now_ns);
    if (status < 0) tti_queue_fail(first, status);
    return status;
}

bool tti_queue_help(tutti_comm *comm, bool polls)
{
    if (!tti_queue_try_for_ops(comm)) return false;
    if (polls) tti_messages_poll_closely(comm);
    bool moved = tti_queue_drive(comm);
    if (polls) tti_queue_poll(comm, tti_now_ns());
    if (polls) tti_queue_poll_pending(comm);
    tti_queue_give_back(comm);
    return moved;
}

enum tti_awaits tti_queue_awaits(tutti_comm *comm)
{
    tti_lock(&comm->queue.lock);
    const struct tti_started *first = comm->queue.first;
    enum tti_awaits awaits = first == NULL ? TTI_AWAITS_MESSAGES : TTI_AWAITS_RANKS;
    if (first != NULL && ((first->turn != NULL && !first->turn->reached) || tti_turn_is_polled(first) ||
                          (first->then != NULL && tti_turn_is_crowded(first->then))))
        awaits = TTI_AWAITS_STREAM;
    if (atomic_load_explicit(&comm->messages->on_devices, memory_order_relaxed) > 0) awaits = TTI_AWAITS_STREAM;
    tti_unlock(&comm->queue.lock);
    return awaits;
}

bool tti_started_is_overdue(const struct tti_started *started, int64_t now_ns)
{
    int64_t limit = started->op.deadline_ms * MS, since = started->wait_state.since_ns;
    if (started->turn != NULL && !started->turn->reached) return false;
    if (limit != 0 && started->pending != NULL && tti_pending_awaits_stream(started->pending)) return false;
    return limit != 0 && since != 0 && now_ns - since >= limit;
}

struct tti_started *tti_queue_overdue(tutti_comm *comm, int64_t now_ns)
{
    tti_lock(&comm->queue.lock);
    struct tti_started *overdue = comm->queue.first;
    while (overdue != NULL && !tti_started_is_overdue(overdue, now_ns)) overdue = overdue->next;
    tti_unlock(&comm->queue.lock);
    if (overdue != NULL) return overdue;
    TTI_LIST_EACH(link, &comm->queue.pending)
    if (tti_started_is_overdue(tti_pending_on(link)->started, now_ns)) return tti_pending_on(link)->started;
    return NULL;
}

/* ---- Starting -------------------------------------------------------------------------------------------------- */

struct tti_started *tti_queue_copy(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_started *started = tti_started_new(comm);
    if (started == NULL) return NULL;
    started->row = NULL;
    if (op->shape.tables != NULL) {
        size_t bytes = TTI_GIVEN * (size_t)comm->size * sizeof *started->row;
        started->row = tti_calloc(1, bytes);
        if (started->row == NULL) {
            tti_started_free(started);
            return NULL;
        }
        memcpy(started->row, comm->engine->row, bytes);
    }
    started->op = *op;
    op->many = NULL;
    return started;
}

/* Does what can be done without moving much, so that peers see this rank enter. */
static void open_first(struct tti_started *started)
{
    tutti_comm *comm = started->op.comm;
    if (!tti_queue_try(comm)) {
        comm->peers->wake(comm); /* the busy thread may sleep, and does not know of it */
        return;
    }
    bool begins = started->turn == NULL && started->op.state == TTI_OP_QUEUED && !tti_comm_is_broken(comm) &&
                  (started->then == NULL || tti_turn_may_meet(started->then));
    if (tti_queue_first(comm) == started && begins) {
        tti_op_begin(&started->op, started->row);
        tutti_status status = tti_op_open(&started->op);
        if (status < 0) tti_queue_fail(started, status);
        if (status == TUTTI_OK) finish(started, TUTTI_OK);
    }
    tti_queue_give_back(comm);
    if (tti_callbacks_are_due(comm)) tti_service_wake(comm, TTI_AT_ONCE);
}

/* Appends an op to the queue. Returns true if it is the only one now. */
bool tti_queue_append(struct tti_started *started)
{
    struct tti_queue *queue = &started->op.comm->queue;
    assert(started->op.state != TTI_OP_ENDED && started->pending == NULL);
    started->next = NULL;
    atomic_store_explicit(&started->status, TUTTI_IN_PROGRESS, memory_order_relaxed);
    tti_lock(&queue->lock);
    if (!started->queued) started->queued = true;
    bool alone = queue->first == NULL;
    *queue->last = started;
    queue->last = &started->next;
    tti_unlock(&queue->lock);
    return alone;
}

/* Returns how soon the service thread must come. Messages tend to follow each other, and to be waited for by the dozen:
 * a wake-up for each would cost more than most of them. */
static enum tti_haste haste_of(const struct tti_started *started)
{
    bool pending = started->pending != NULL;
    uint64_t bytes = pending ? tti_pending_bytes(started->pending) : started->op.in_bytes + started->op.out_bytes;
    if (bytes <= TTI_STAGE_BYTES) return TTI_SOMETIME;
    return pending && bytes < LARGE_MAIL_BYTES ? TTI_SOON : TTI_AT_ONCE;
}

void tti_queue_start(struct tti_started *started)
{
    tutti_comm *comm = started->op.comm;
    struct tti_queue *queue = &comm->queue;
    enum tti_haste haste = haste_of(started);
    bool packs = started->op.many != NULL && haste == TTI_AT_ONCE;
    assert(!started->queued); /* a prepared op is started again when it has ended */
    started->op.state = TTI_OP_QUEUED;
    started->failed = TUTTI_OK;
    atomic_store_explicit(&started->out, true, memory_order_relaxed);
    started->wait_state = (struct tti_wait_state){.since_ns = started->op.deadline_ms != 0 ? tti_now_ns() : 0};
    atomic_store_explicit(&started->cancelled, 0, memory_order_relaxed);
    atomic_store_explicit(&started->asked, false, memory_order_relaxed);
    if (haste != TTI_AT_ONCE) tti_queue_count_start(queue);
    if (started->pending != NULL) {
        started->queued = true;
        atomic_store_explicit(&started->status, TUTTI_IN_PROGRESS, memory_order_relaxed);
        atomic_fetch_add_explicit(&queue->count, 1, memory_order_release);
        /* all that can be done now is done; whoever brings something for the rest rings */
        if (tti_queue_post_pending(started) && !tti_service_dozes(comm)) tti_service_wake(comm, haste);
        return;
    }
    atomic_fetch_add_explicit(&queue->count, 1, memory_order_release);
    bool alone = tti_queue_append(started);
    if (alone && !packs) open_first(started);
    tti_service_wake(comm, haste);
}

static tutti_status no_memory(const struct tti_op *op)
{
    return tti_comm_refuse(op->comm, op->shape.kind, TUTTI_ERR_MEMORY, "%s: no memory for one more op in flight",
                           tti_kind_name(op->shape.kind));
}

static tutti_status add_service(tutti_comm *comm, enum tti_kind kind)
{
    tutti_error error = {0};
    if (tti_service_add(comm, &error) == TUTTI_OK) return TUTTI_OK;
    return tti_comm_refuse(comm, kind, error.status, "%s: %s", tti_kind_name(kind), error.text);
}

tutti_status tti_queue_ready(tutti_comm *comm, enum tti_kind kind)
{
    return comm->queue.served.by != NULL ? TUTTI_OK : add_service(comm, kind);
}

tutti_status tti_queue_give(struct tti_op *op, tutti_op *handle)
{
    tutti_comm *comm = op->comm;
    bool prepares = comm->caller.preparing;
    TTI_TRY(tti_queue_ready(comm, op->shape.kind));
    if (!prepares && tti_thread_local_op_start(op, handle)) return TUTTI_OK;
    struct tti_started *started = tti_queue_copy(op);
    if (started == NULL) return no_memory(op);
    handle->id = atomic_load_explicit(&started->id, memory_order_relaxed);
    started->persistent = prepares;
    if (!prepares) tti_queue_start(started);
    return TUTTI_OK;
}

tutti_status tti_queue_run(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    TTI_TRY(tti_queue_ready(comm, op->shape.kind));
    struct tti_started *started = tti_queue_copy(op);
    if (started == NULL) return no_memory(op);
    tti_queue_start(started);
    tutti_status status = tti_queue_await(started, INT64_MAX);
    if (status != TUTTI_OK && started->error != NULL) comm->errors.call = *started->error;
    tti_started_free(started);
    return status;
}
