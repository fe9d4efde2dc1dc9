/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/turn.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/op/pending.h"
#include "collective/op/staging.h"
#include "collective/op/uses.h"
#include "collective/peers/net.h"
#include "device/stream.h"
#include <assert.h>

#define MS INT64_C(1000000)

/* ---- Who carries it out -------------------------------------------------------------------------------------------- */

static void count_carrier(const struct tti_started *started, enum tti_carrier carrier)
{
    struct tti_streams *streams = started->turn->comm->queue.streams;
    started->turn->carrier = carrier;
    if (tti_traced(started->op.comm)) started->turn->traced = tti_trace_ticks(started->op.comm->trace);
    atomic_fetch_add_explicit(&streams->carried[carrier], 1, memory_order_relaxed);
    if (tti_carrier_reorders(carrier, started->op.call.reduction))
        atomic_fetch_add_explicit(&streams->unordered, 1, memory_order_relaxed);
}

void tti_turn_trace(struct tti_started *started, tutti_status status)
{
    const struct tti_turn *turn = started->turn;
    if (!tti_traced(started->op.comm) || turn == NULL || turn->traced == 0) return;
    tti_trace_note_on_stream(&started->op, turn->carrier, turn->traced, status);
}

/* ---- One op -------------------------------------------------------------------------------------------------------- */

tutti_status tti_turn_come(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    tutti_comm *comm = started->op.comm;
    tutti_error error = {0};
    bool reached = turn->flies ? turn->provider->reached(started) : tti_gate_reached(&turn->gate->gate, turn->number);
    /* an op on a stream that was given up is reached, too */
    if (reached && tti_comm_is_broken(comm)) return TUTTI_IN_PROGRESS;
    if (reached) { /* deadlines count from here */
        atomic_store_explicit(&turn->reached, true, memory_order_relaxed);
        started->wait_state = (struct tti_wait_state){.since_ns = started->op.deadline_ms != 0 ? tti_now_ns() : 0};
        return TUTTI_OK;
    }
    started->op.waiting_for = -1;
    if (comm->lanes != NULL) tti_net_pump(comm->lanes->net); /* others may report meanwhile that they have failed */
    tutti_status status = tti_stream_state(turn->gate->stream, &error);
    if (status == TUTTI_OK) return TUTTI_IN_PROGRESS;
    char call[160];
    tti_call_describe(&started->op.call, call, sizeof call);
    return tti_comm_break(comm, (enum tti_kind)started->op.call.kind, status, comm->rank,
                          "rank %d called %s, and the stream never comes to it: %s", comm->rank, call, error.text);
}

tutti_status tti_turn_inherit(struct tti_started *started)
{
    tutti_comm *comm = started->op.comm;
    enum tti_kind kind = (enum tti_kind)started->op.call.kind;
    tutti_error error;
    if (tti_comm_is_broken(comm)) return tti_comm_health(comm, kind, false);
    if (!tti_comm_failure(started->turn->comm, &error)) return TUTTI_IN_PROGRESS;
    return tti_comm_break(comm, kind, error.status, error.peer, "%s", error.text);
}

tutti_status tti_turn_released(struct tti_started *started)
{
    tutti_comm *comm = started->op.comm;
    return tti_comm_break(comm, (enum tti_kind)started->op.call.kind, TUTTI_ERR_CANCELLED, comm->rank,
                          "rank %d: a stream was freed while it waited for the end of an op, which was given up",
                          comm->rank);
}

void tti_turn_detail(const struct tti_started *started, char *text, size_t bytes)
{
    bool waits = started->turn != NULL && !started->turn->reached;
    snprintf(text, bytes, "%s", waits ? " (its stream has not come to it yet)" : "");
}

void tti_turn_advise(void *op, char *text, size_t bytes)
{
    const struct tti_started *started = tti_started_of(op);
    text[0] = '\0';
    if (started->turn->provider->advise != NULL) started->turn->provider->advise(started, text, bytes);
}

void tti_turn_fail(struct tti_started *started, tutti_status status, const tutti_error *error)
{
    started->op.state = TTI_OP_ENDED;
    started->error = tti_calloc(1, sizeof *started->error);
    if (started->error != NULL) *started->error = *error;
    tti_turn_end(started, TUTTI_OK); /* that comm is broken already */
    tti_started_end(started, status);
}

void tti_turn_watch(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    struct tti_device *device = turn->gate->stream->device;
    if (turn->watched || device->ops->watch == NULL) return;
    turn->watched = true;
    device->ops->watch(device, turn->gate->stream, true);
}

tutti_status tti_turn_put_reached(struct tti_started *started, tutti_error *error)
{
    struct tti_turn *turn = started->turn;
    return turn->number != 0 ? TUTTI_OK : tti_gate_put_reached(&turn->gate->gate, turn->stream, &turn->number, error);
}

/* Hands the op to the host, which carries it out when its stream has come. Without memory the op ends at that point and
 * breaks the comm, since the others wait. */
static void hand_to_host(struct tti_started *started)
{
    tutti_comm *comm = started->op.comm;
    assert(!started->turn->flies && !atomic_load_explicit(&started->turn->met, memory_order_relaxed));
    tutti_error error = {0};
    bool stages = started->turn->comm->queue.streams->stager != NULL;
    tutti_status status = tti_turn_put_reached(started, &error);
    count_carrier(started, stages ? TTI_ON_STAGING : TTI_ON_HOST);
    if (status == TUTTI_OK && stages) {
        started->turn->staging = tti_staging_make(started, &error);
        status = error.status;
    }
    if (status != TUTTI_OK)
        tti_comm_break_apart(comm, (enum tti_kind)started->op.call.kind, status, comm->rank, "rank %d: %s", comm->rank,
                             error.text);
    atomic_store_explicit(&started->turn->met, true,
                          memory_order_release); /* it may end, and be gone, once it is queued */
    tti_queue_append(started);
    comm->peers->wake(comm); /* the busy thread may sleep, and does not know of it */
    tti_service_wake(comm, TTI_AT_ONCE);
}

void tti_turn_fly(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    tutti_comm *comm = started->op.comm;
    enum tti_haste haste = turn->blocking ? TTI_SOMETIME : TTI_SOON;
    assert(!turn->flies && !atomic_load_explicit(&turn->met, memory_order_relaxed)); /* issued once for each start */
    count_carrier(started, turn->provider->carrier);
    turn->flies = true;
    started->op.state = TTI_OP_RUNNING;
    started->op.waiting_for = -1;
    atomic_fetch_add_explicit(&turn->comm->queue.streams->flying, 1, memory_order_relaxed);
    atomic_store_explicit(&turn->met, true, memory_order_release);
    tti_queue_append(started);
    tti_service_wake(comm, haste);
}

/* Makes the stream wait for the op, which flies from now on. If the device has failed meanwhile, the thread that
 * watches it finds out. */
static void follow(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    struct tti_streams *streams = turn->comm->queue.streams;
    tutti_error ignored = {0};
    assert(turn->shown &&
           turn->verdict.status == TUTTI_OK); /* all ranks have put there what the stream is to wait for */
    pthread_mutex_lock(&streams->side_lock);
    if (turn->provider->follow(started, turn->stream, &ignored) == TUTTI_OK)
        (void)tti_uses_end(turn->uses, turn->stream, &ignored);
    pthread_mutex_unlock(&streams->side_lock);
    tti_turn_fly(started);
}

static void obey(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    const struct tti_verdict *verdict = &turn->verdict;
    tutti_error error = {0};
    if (verdict->status == TUTTI_OK && !verdict->by_host) {
        follow(started);
    } else if (verdict->status == TUTTI_OK) {
        pthread_mutex_lock(&turn->comm->queue.streams->side_lock);
        hand_to_host(started);
        pthread_mutex_unlock(&turn->comm->queue.streams->side_lock);
    } else {
        tti_comm_describe(turn->comm, &error, (enum tti_kind)started->op.call.kind, (tutti_status)verdict->status, "%s",
                          verdict->text);
        tti_turn_fail(started, (tutti_status)verdict->status, &error);
    }
}

void tti_turn_launch(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    struct tti_streams *streams = turn->comm->queue.streams;
    turn->shown = true;
    if (!turn->provider->everyone && turn->comm->rank != TTI_LAUNCHER) return;
    pthread_mutex_lock(&streams->side_lock);
    turn->provider->launch(started);
    pthread_mutex_unlock(&streams->side_lock);
    if (turn->provider->everyone && turn->verdict.status != TUTTI_OK)
        tti_comm_break_apart(turn->comm, (enum tti_kind)started->op.call.kind, (tutti_status)turn->verdict.status,
                             turn->comm->rank, "rank %d: %s", turn->comm->rank, turn->verdict.text);
}

/* Handles the ends of both meetings. After a failure of the first one the second fails, too, and ends the op. */
static void met_by_provider(struct tti_started *started, tutti_status status, const tutti_error *error)
{
    struct tti_turn *turn = started->turn;
    bool first = !turn->shown, last = !first || turn->provider->everyone;
    turn->shown = true;
    if (first && status == TUTTI_OK) tti_turn_launch(started);
    if (last && status == TUTTI_OK) {
        obey(started);
    } else if (last) {
        turn->provider->abandon(turn->comm->queue.streams);
        tti_turn_fail(started, status, error);
    }
}

void tti_turn_met(struct tti_started *started, tutti_status status, const tutti_error *error)
{
    if (started->turn->provider != NULL)
        met_by_provider(started, status, error);
    else if (status != TUTTI_OK)
        tti_turn_fail(started, status, error);
    else
        hand_to_host(started);
}

bool tti_turn_may_meet(const struct tti_started *started)
{
    const struct tti_turn *turn = started->turn;
    if (turn->provider == NULL || turn->shown || turn->comm->rank != TTI_LAUNCHER) return true;
    return !tti_turn_is_crowded(started);
}

/* If there is no memory to note it, the lent memory is never given back. */
void tti_turn_lend(struct tti_turn *turn, struct tti_pinned *pinned)
{
    struct tti_lent *lent = tti_calloc(1, sizeof *lent);
    if (lent == NULL) return;
    *lent = (struct tti_lent){.pinned = pinned, .next = turn->lent};
    turn->lent = lent;
}

static void leave_gates(struct tti_turn *turn)
{
    if (turn->left_gates) return;
    turn->left_gates = true;
    assert(turn->gate == NULL || atomic_load_explicit(&turn->gate->used, memory_order_relaxed) > 0);
    if (turn->gate != NULL) atomic_fetch_sub_explicit(&turn->gate->used, 1, memory_order_release);
    if (turn->origin != NULL) atomic_fetch_sub_explicit(&turn->origin->used, 1, memory_order_release);
}

void tti_turn_end(struct tti_started *started, tutti_status status)
{
    struct tti_turn *turn = started->turn;
    const tutti_error *error = started->error;
    if (turn == NULL) return;
    struct tti_stream *stream = turn->called_on;
    if (turn->watched) stream->device->ops->watch(stream->device, turn->gate->stream, false);
    if (turn->number != 0) tti_gate_open(&turn->gate->gate, turn->number);
    leave_gates(turn);
    assert(!turn->flies || atomic_load_explicit(&turn->comm->queue.streams->flying, memory_order_relaxed) > 0);
    if (turn->flies) atomic_fetch_sub_explicit(&turn->comm->queue.streams->flying, 1, memory_order_relaxed);
    tti_uses_let_go(turn->uses);
    if (status < 0 && !turn->refused)
        tti_comm_break_apart(turn->comm, (enum tti_kind)started->op.call.kind, status, error == NULL ? -1 : error->peer,
                             "%s", error == NULL ? tutti_status_text(status) : error->text);
}

static void give_lent(struct tti_turn *turn)
{
    while (turn->lent != NULL) {
        struct tti_lent *lent = turn->lent;
        turn->lent = lent->next;
        tti_pinned_give(lent->pinned);
        tti_free(lent);
    }
}

void tti_turn_reset(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    leave_gates(turn);
    give_lent(turn);
    tti_staging_free(turn->staging);
    tti_free(turn->mine);
    tti_free(turn->all);
    *turn = (struct tti_turn){.comm = turn->comm, .called_on = turn->called_on, .uses = turn->uses};
}

void tti_turn_drop(struct tti_turn *turn)
{
    tti_uses_free(turn->uses);
    tti_object_give(&turn->called_on->object);
    tti_free(turn);
}

void tti_turn_free(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    if (turn == NULL) return;
    tti_turn_reset(started);
    tti_turn_drop(turn);
    started->turn = NULL;
}

static bool meets(const struct tti_started *started)
{
    return started->turn != NULL && !atomic_load_explicit(&started->turn->met, memory_order_acquire) &&
           atomic_load_explicit(&started->status, memory_order_acquire) == TUTTI_IN_PROGRESS;
}

void tti_turn_help(struct tti_started *started, bool polls)
{
    if (meets(started)) tti_queue_help(started->turn->comm, polls);
}

void tti_turn_await_meeting(struct tti_started *started, int64_t until_ns)
{
    struct tti_wait wait;
    tti_bell nobody = 0;
    tti_wait_begin(&wait, false, MS);
    while (meets(started)) {
        tti_queue_help(started->turn->comm, tti_wait_slow(&wait));
        tti_queue_help(started->op.comm, false); /* a meeting may wait until fewer ops fly */
        if (!tti_wait_pause(&wait, false)) tti_bell_sleep(&nobody, 0, MS / 10, false);
        if (until_ns != INT64_MAX && tti_now_ns() >= until_ns) return;
    }
}
