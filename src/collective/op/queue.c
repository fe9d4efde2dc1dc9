/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/queue.h"
#include "collective/engine/engine.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/op/callback.h"
#include "collective/op/queue_group.h"
#include "collective/op/queue_hand.h"
#include "collective/op/queue_message.h"
#include "collective/op/staging.h"
#include "collective/op/turn.h"
#include <string.h>

#define MS INT64_C(1000000)
enum { HANDOVER_MS = 10, LOOK_MS = 10, CLOSE_MS = 30000, LARGE_MAIL_BYTES = 4 << 20 };

/* ---- One op ---------------------------------------------------------------------------------------------------- */

static struct tti_started *first_of(tutti_comm *comm)
{
    tti_lock(&comm->queue.lock);
    struct tti_started *first = comm->queue.first;
    tti_unlock(&comm->queue.lock);
    return first;
}

void tti_started_end(struct tti_started *started, tutti_status status)
{
    struct tti_queue *queue = &started->op.comm->queue;
    bool grouped = started->group != NULL;
    tti_lock(&queue->lock);
    started->queued = false;
    bool dropped = started->dropped;
    tti_callback_due(started, status);
    atomic_store_explicit(&started->status, status, memory_order_release);
    tti_unlock(&queue->lock);
    if (grouped) tti_group_told(started, status);
    if (dropped) tti_started_free(started); /* else it may be gone already */
    atomic_fetch_sub_explicit(&queue->count, 1, memory_order_release);
    if (atomic_load_explicit(&queue->waiters, memory_order_relaxed) != 0) tti_bell_ring(&queue->handover, false);
}

void tti_started_fail(struct tti_started *started)
{
    started->error = tti_calloc(1, sizeof *started->error);
    if (started->error == NULL) return;
    *started->error = started->op.comm->queue.error;
    tti_error_name(started->error, tti_started_kind(started));
}

static void finish(struct tti_started *started, tutti_status status)
{
    tutti_comm *comm = started->op.comm;
    struct tti_queue *queue = &comm->queue;
    struct tti_started *then = started->then;
    if (started->op.state != TTI_OP_QUEUED) tti_trace_end(&started->op, status, true);
    started->op.state = TTI_OP_ENDED;
    if (status != TUTTI_OK) tti_started_fail(started);
    if (started->vigil.looked_ns != 0) comm->peers->show_wait(comm, NULL, 0); /* a service thread has shown it */
    tti_lock(&queue->lock);
    queue->first = started->next;
    if (queue->first == NULL) queue->last = &queue->first;
    tti_unlock(&queue->lock);
    tti_turn_end(started, status);
    tti_started_end(started, status);
    if (then != NULL) tti_turn_met(then, status, &queue->error);
}

static const struct tti_provider_ops *provider_of(const struct tti_started *started)
{
    return tti_turn_flies(started) ? &started->turn->provider->ops : started->op.comm->provider;
}

tutti_status tti_queue_fail(struct tti_started *started, tutti_status status)
{
    const struct tti_provider_ops *provider = provider_of(started);
    if (started->failed == TUTTI_OK) {
        started->failed = status;
        started->fence_until_ns = tti_now_ns() + started->op.comm->world->options.fence_ms * MS;
        if (started->op.state != TTI_OP_QUEUED) provider->stop(&started->op);
    }
    if (started->op.state == TTI_OP_QUEUED) return status;
    return provider->fence(&started->op, started->fence_until_ns) ? status : TUTTI_IN_PROGRESS;
}

static tutti_status cancel(struct tti_started *started)
{
    const struct tti_op *op = &started->op;
    char call[160];
    tti_call_describe(&op->call, call, sizeof call);
    return tti_comm_break(op->comm, (enum tti_kind)op->call.kind, TUTTI_ERR_CANCELLED, op->comm->rank,
                          "rank %d cancelled %s", op->comm->rank, call);
}

/* OK once it may begin. */
static tutti_status come(struct tti_started *started)
{
    if (started->then != NULL && !tti_turn_may_meet(started->then)) return TUTTI_IN_PROGRESS;
    return started->turn == NULL ? TUTTI_OK : tti_turn_come(started);
}

/* An op that a device carries out. Its deadline counts from when the stream has come to it. */
static tutti_status watch_flight(struct tti_started *started)
{
    tutti_status status = started->turn->provider->ops.progress(&started->op);
    if (status != TUTTI_IN_PROGRESS || started->turn->reached) return status;
    status = tti_turn_come(started);
    return status == TUTTI_OK ? TUTTI_IN_PROGRESS : status;
}

/* An op that the host carries out on copies, in rounds: between them it is as one that was not begun. */
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

/* Where an op stands: two of these differ when it has moved. */
static uint64_t stand(const struct tti_started *started)
{
    const struct tti_op *op = &started->op;
    return ((uint64_t)op->state << 48) + ((uint64_t)op->walk.step << 32) + (uint64_t)(unsigned)op->cursor +
           (op->walk.done << 8) + (op->comm->sequence << 54); /* pieces: the round */
}

/* As far as they go. Returns whether anything moved. */
static bool drive_collectives(tutti_comm *comm)
{
    bool moved = false;
    struct tti_started *started;
    while ((started = first_of(comm)) != NULL) {
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
    return tti_queue_drive_mail(comm) || moved;
}

struct waiting {
    struct tti_started *awaited, *first; /* the op that is waited for, and the one that must end before it, or itself */
};

static void detail(void *object, char *text, size_t bytes)
{
    const struct waiting *waiting = object;
    tti_turn_detail(waiting->first, text, bytes);
}

static struct tti_waitable waitable_of(struct tti_started *started)
{
    struct tti_op *op = &started->op;
    return (struct tti_waitable){.waiting_for = &op->waiting_for,
                                 .awaited = &op->awaited,
                                 .site = &op->call.site,
                                 .kind = (enum tti_kind)op->call.kind,
                                 .op = op,
                                 .deadline_ms = op->deadline_ms,
                                 .started = true,
                                 .vigil = &started->vigil};
}

bool tti_queue_has_collectives(tutti_comm *comm)
{
    return first_of(comm) != NULL;
}

static tutti_status progress_polled(void *op)
{
    struct tti_started *started = tti_started_of(op);
    return tti_turn_flies(started) ? watch_flight(started) : advance_staged(started);
}

tutti_status tti_queue_look(tutti_comm *comm, int64_t now_ns)
{
    struct tti_started *first = first_of(comm);
    if (first != NULL && first->turn != NULL) tti_turn_watch(first);
    if (first == NULL || first->failed != TUTTI_OK || first->op.state == TTI_OP_QUEUED) return TUTTI_OK;
    struct tti_waitable waitable = waitable_of(first);
    waitable.progress = tti_turn_is_polled(first) ? progress_polled : tti_op_progress;
    waitable.object = &first->op;
    tutti_status status = tti_comm_look(comm, &waitable, now_ns);
    if (status < 0) tti_queue_fail(first, status);
    return status;
}

bool tti_queue_help(tutti_comm *comm, bool look)
{
    if (!tti_queue_try(comm)) return false;
    if (look) tti_messages_look_closely(comm);
    bool moved = tti_queue_drive(comm);
    if (look) tti_queue_look(comm, tti_now_ns());
    if (look) tti_queue_look_at_mail(comm);
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
    tti_unlock(&comm->queue.lock);
    return awaits;
}

bool tti_started_is_overdue(const struct tti_started *started, int64_t now_ns)
{
    int64_t limit = started->op.deadline_ms * MS, since = started->vigil.since_ns;
    return limit != 0 && since != 0 && now_ns - since >= limit;
}

struct tti_started *tti_queue_overdue(tutti_comm *comm, int64_t now_ns)
{
    tti_lock(&comm->queue.lock);
    struct tti_started *overdue = comm->queue.first;
    while (overdue != NULL && !tti_started_is_overdue(overdue, now_ns)) overdue = overdue->next;
    tti_unlock(&comm->queue.lock);
    if (overdue != NULL) return overdue;
    TTI_LIST_EACH(link, &comm->queue.mail)
    if (tti_started_is_overdue(tti_mail_on(link)->started, now_ns)) return tti_mail_on(link)->started;
    return NULL;
}

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

/* OK: look again who is first, and who is busy. */
static tutti_status progress(void *object)
{
    struct waiting *waiting = object;
    tti_queue_drive(waiting->awaited->op.comm);
    if (atomic_load_explicit(&waiting->awaited->status, memory_order_acquire) != TUTTI_IN_PROGRESS) return TUTTI_OK;
    if (tti_queue_is_wanted(waiting->awaited->op.comm)) return TUTTI_OK;
    return first_of(waiting->awaited->op.comm) == waiting->first ? TUTTI_IN_PROGRESS : TUTTI_OK;
}

/* What a device ends rings no bell: the waits in between are short. */
static void wait_for_flight(struct waiting *waiting, int64_t until_ns)
{
    tutti_comm *comm = waiting->awaited->op.comm;
    struct tti_wait wait;
    tti_bell nobody = 0;
    int64_t looked_ns = tti_now_ns();
    tti_wait_begin(&wait, false, MS);
    while (progress(waiting) == TUTTI_IN_PROGRESS) {
        if (tti_wait_pause(&wait, false)) continue;
        tti_bell_sleep(&nobody, 0, MS / 20, false);
        int64_t now = tti_now_ns();
        if (now >= until_ns) return;
        if (now - looked_ns < LOOK_MS * MS) continue;
        looked_ns = now;
        if (tti_queue_look(comm, now) < 0) return;
    }
}

static void wait_as_driver(struct tti_started *started, int64_t until_ns)
{
    tutti_comm *comm = started->op.comm;
    if (started->mail != NULL) {
        tti_queue_await_mail(started, until_ns);
        return;
    }
    struct waiting waiting = {.awaited = started, .first = first_of(comm)};
    if (waiting.first == NULL) return;
    if (waiting.first->failed != TUTTI_OK) {
        tti_queue_drive(comm);
        tti_wait_turn();
        return;
    }
    if (tti_turn_is_polled(waiting.first)) {
        wait_for_flight(&waiting, until_ns);
        return;
    }
    struct tti_waitable waitable = waitable_of(waiting.first);
    waitable.progress = progress;
    waitable.object = &waiting;
    if (waiting.first->turn != NULL) waitable.detail = detail;
    tutti_status status = tti_comm_wait_until(comm, &waitable, until_ns);
    /* the wait found something that ends the op it was about */
    if (status < 0 && first_of(comm) == waiting.first) tti_queue_fail(waiting.first, status);
}

static void wait_for_turn(tutti_comm *comm, const struct tti_started *started, int64_t until_ns)
{
    struct tti_queue *queue = &comm->queue;
    uint32_t seen = atomic_load_explicit(&queue->handover, memory_order_relaxed);
    atomic_fetch_add_explicit(&queue->waiters, 1, memory_order_seq_cst);
    int64_t left = until_ns - tti_now_ns();
    if (left > HANDOVER_MS * MS) left = HANDOVER_MS * MS;
    if (atomic_load_explicit(&queue->busy, memory_order_seq_cst) != TTI_BUSY_NOBODY &&
        atomic_load_explicit(&started->status, memory_order_acquire) == TUTTI_IN_PROGRESS)
        tti_bell_sleep(&queue->handover, seen, left, false);
    atomic_fetch_sub_explicit(&queue->waiters, 1, memory_order_relaxed);
}

void tti_queue_set_asked(struct tti_started *started, bool asked)
{
    atomic_store_explicit(&started->asked, asked, memory_order_relaxed);
    if (started->mail != NULL) atomic_fetch_add_explicit(&started->op.comm->queue.asks, 1, memory_order_release);
}

void tti_queue_ask(struct tti_started *started, bool look)
{
    tutti_comm *comm = started->op.comm;
    if (tti_is_group(started)) {
        tti_group_ask(started, look);
        return;
    }
    tti_queue_set_asked(started, true);
    tti_turn_help(started, look);
    tti_queue_help(comm, look);
    tti_queue_set_asked(started, false);
    tti_callbacks_call(comm);
}

static tutti_status await(struct tti_started *started, int64_t until_ns)
{
    tutti_comm *comm = started->op.comm;
    int turns = 0;
    for (;;) {
        tutti_status status = (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
        if (status != TUTTI_IN_PROGRESS) return status;
        if (until_ns != INT64_MAX && tti_now_ns() >= until_ns) return TUTTI_IN_PROGRESS;
        if (!tti_queue_is_wanted(comm) && tti_queue_try(comm)) {
            wait_as_driver(started, until_ns);
            tti_queue_give_back(comm);
            tti_callbacks_call(comm);
        } else if (turns++ < 1000) {
            tti_wait_turn(); /* whoever is busy is so for a moment only, or waits itself */
        } else {
            wait_for_turn(comm, started, until_ns);
        }
    }
}

tutti_status tti_queue_await(struct tti_started *started, int64_t until_ns)
{
    tutti_status status = (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
    if (status != TUTTI_IN_PROGRESS) return status;
    if (tti_is_group(started)) return tti_group_await(started, until_ns);
    tti_turn_await_meeting(started, until_ns);
    tti_queue_set_asked(started, true);
    status = await(started, until_ns);
    tti_queue_set_asked(started, false);
    return status;
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

/* What can be done without moving much: peers see this rank enter. */
static void open_first(struct tti_started *started)
{
    tutti_comm *comm = started->op.comm;
    if (!tti_queue_try(comm)) {
        comm->peers->wake(comm); /* who is busy may sleep, and does not know of it */
        return;
    }
    bool begins = started->turn == NULL && started->op.state == TTI_OP_QUEUED && !tti_comm_is_broken(comm) &&
                  (started->then == NULL || tti_turn_may_meet(started->then));
    if (first_of(comm) == started && begins) {
        tti_op_begin(&started->op, started->row);
        tutti_status status = tti_op_open(&started->op);
        if (status < 0) tti_queue_fail(started, status);
        if (status == TUTTI_OK) finish(started, TUTTI_OK);
    }
    tti_queue_give_back(comm);
    if (tti_callbacks_are_due(comm)) tti_service_wake(comm, TTI_AT_ONCE);
}

/* Whether it is the only one now. */
bool tti_queue_append(struct tti_started *started)
{
    struct tti_queue *queue = &started->op.comm->queue;
    started->next = NULL;
    atomic_store_explicit(&started->status, TUTTI_IN_PROGRESS, memory_order_relaxed);
    tti_lock(&queue->lock);
    started->queued = true;
    bool alone = queue->first == NULL;
    *queue->last = started;
    queue->last = &started->next;
    tti_unlock(&queue->lock);
    return alone;
}

/* Messages tend to follow each other, and to be waited for by the dozen: a wake-up for each would cost more than most. */
static enum tti_haste haste_of(const struct tti_started *started)
{
    bool mail = started->mail != NULL;
    uint64_t bytes = mail ? tti_mail_bytes(started->mail) : started->op.in_bytes + started->op.out_bytes;
    if (bytes <= TTI_STAGE_BYTES) return TTI_SOMETIME;
    return mail && bytes < LARGE_MAIL_BYTES ? TTI_SOON : TTI_AT_ONCE;
}

void tti_queue_start(struct tti_started *started)
{
    tutti_comm *comm = started->op.comm;
    struct tti_queue *queue = &comm->queue;
    enum tti_haste haste = haste_of(started);
    bool packs = started->op.many != NULL && haste == TTI_AT_ONCE;
    started->op.state = TTI_OP_QUEUED;
    started->failed = TUTTI_OK;
    atomic_store_explicit(&started->out, true, memory_order_relaxed);
    started->vigil = (struct tti_vigil){.since_ns = started->op.deadline_ms != 0 ? tti_now_ns() : 0};
    atomic_store_explicit(&started->cancelled, 0, memory_order_relaxed);
    atomic_store_explicit(&started->asked, false, memory_order_relaxed);
    if (haste != TTI_AT_ONCE) tti_queue_count_start(queue);
    if (started->mail != NULL) {
        started->queued = true;
        atomic_store_explicit(&started->status, TUTTI_IN_PROGRESS, memory_order_relaxed);
        atomic_fetch_add_explicit(&queue->count, 1, memory_order_release);
        /* all that can be done was; the rest is for who brings something, and rings */
        if (tti_queue_post_mail(started) && !tti_service_dozes(comm)) tti_service_wake(comm, haste);
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

tutti_status tti_queue_run(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    TTI_TRY(tti_queue_ready(comm, op->shape.kind));
    if (comm->caller.starting != NULL && !comm->caller.preparing && tti_hand_start(op)) return TUTTI_OK;
    struct tti_started *started = tti_queue_copy(op);
    if (started == NULL) return no_memory(op);
    if (comm->caller.starting != NULL) {
        comm->caller.starting->id = atomic_load_explicit(&started->id, memory_order_relaxed);
        started->persistent = comm->caller.preparing;
        if (!comm->caller.preparing) tti_queue_start(started);
        return TUTTI_OK;
    }
    tti_queue_start(started);
    tutti_status status = tti_queue_await(started, INT64_MAX);
    if (status != TUTTI_OK && started->error != NULL) comm->errors.call = *started->error;
    tti_started_free(started);
    return status;
}

/* ---- Closing --------------------------------------------------------------------------------------------------- */

static void cancel_mail(tutti_comm *comm, uint32_t how)
{
    tti_queue_take(comm);
    TTI_LIST_EACH(link, &comm->queue.mail)
    {
        struct tti_started *started = tti_mail_on(link)->started;
        if (how == TTI_CANCEL || atomic_load_explicit(&started->cancelled, memory_order_relaxed) == 0)
            atomic_store_explicit(&started->cancelled, how, memory_order_relaxed);
    }
    atomic_store_explicit(&comm->queue.cancels, true, memory_order_release);
    tti_queue_give_back(comm);
}

/* A message in flight, which is not freed when it ends until it was let go; NULL: there is none. */
static struct tti_started *hold_mail(tutti_comm *comm, bool *dropped)
{
    struct tti_queue *queue = &comm->queue;
    tti_queue_take(comm);
    struct tti_started *started = tti_list_is_empty(&queue->mail) ? NULL : tti_mail_on(queue->mail.next)->started;
    if (started != NULL) {
        tti_lock(&queue->lock);
        *dropped = started->dropped;
        started->dropped = false;
        tti_unlock(&queue->lock);
    }
    tti_queue_give_back(comm);
    return started;
}

static void await_mail(tutti_comm *comm, int64_t until_ns)
{
    struct tti_started *started;
    bool dropped = false;
    while ((started = hold_mail(comm, &dropped)) != NULL) {
        tutti_status status = tti_queue_await(started, until_ns);
        if (status == TUTTI_IN_PROGRESS) {
            tti_lock(&comm->queue.lock);
            started->dropped = dropped && started->queued;
            tti_unlock(&comm->queue.lock);
            return;
        }
        if (dropped) tti_started_free(started);
    }
}

/* Who waits for this rank in a collective need not wait for its messages; nor who waits for one that it has not sent, or does
 * not receive, for these or its collectives: those of which nothing was said yet are taken back by then. */
static void end_calls(tutti_comm *comm)
{
    tti_queue_take(comm);
    tti_queue_drive_mail(comm);
    bool ended = first_of(comm) == NULL, under_way = !ended || !tti_list_is_empty(&comm->queue.mail);
    if (under_way && tti_messages_have_answered(comm) && tti_comm_health(comm, TTI_LEAVE, false) == TUTTI_OK)
        comm->peers->tell(comm, ended ? TTI_NEWS_CALLS_NO_MORE : TTI_NEWS_STARTS_NO_MORE);
    tti_queue_give_back(comm);
}

static void end_all(tutti_comm *comm)
{
    cancel_mail(comm, TTI_CANCEL_GENTLY); /* what was received by nobody will not be */
    int64_t until = tti_now_ns() + (comm->traits.tolerant ? comm->world->options.fence_ms : CLOSE_MS) * MS;
    if (first_of(comm) != NULL) end_calls(comm);
    while (first_of(comm) != NULL && tti_now_ns() < until) {
        if (!tti_queue_help(comm, true)) tti_wait_turn();
        tti_callbacks_call(comm);
    }
    if (first_of(comm) == NULL) end_calls(comm);
    await_mail(comm, until);
    while (!tti_queue_is_idle(comm) || tti_callbacks_are_due(comm)) {
        struct tti_started *first = first_of(comm);
        bool late = tti_now_ns() >= until;
        if (first != NULL && late) atomic_store_explicit(&first->cancelled, TTI_CANCEL, memory_order_relaxed);
        if (late) cancel_mail(comm, TTI_CANCEL);
        if (late) tti_messages_forget(comm);
        if (late) tti_group_cancel_all(comm);
        if (!tti_queue_help(comm, true)) tti_wait_turn();
        tti_callbacks_call(comm);
    }
}

void tti_queue_abandon(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    queue->first = NULL;
    queue->last = &queue->first;
    tti_list_init(&queue->mail);
    tti_list_init(&queue->ended_mail);
    atomic_store_explicit(&queue->lock, 0, memory_order_relaxed);
    atomic_store_explicit(&queue->busy, TTI_BUSY_NOBODY, memory_order_relaxed);
    atomic_store_explicit(&queue->count, 0, memory_order_relaxed);
}

void tti_queue_finish(tutti_comm *comm)
{
    if (comm->queue.served.by != NULL) end_all(comm);
}

void tti_queue_close(tutti_comm *comm)
{
    if (comm->queue.served.by == NULL) return;
    end_all(comm);
    tti_service_remove(comm);
    tti_started_free_all(comm);
}
