/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for ops that were started: a thread that waits takes them forward, unless another one does.
 */
#include "base/clock.h"
#include "collective/op/callback.h"
#include "collective/op/pending.h"
#include "collective/op/queue.h"
#include "collective/op/queue_external.h"
#include "collective/op/queue_group.h"
#include "collective/op/turn.h"

#define MS INT64_C(1000000)
enum { HANDOVER_MS = 10, POLL_MS = 10 };

struct waiting {
    struct tti_started *awaited, *first; /* the awaited op, and the one that must end before it, or itself */
};

static void detail(void *object, char *text, size_t bytes)
{
    const struct waiting *waiting = object;
    tti_turn_detail(waiting->first, text, bytes);
}

/* Returns OK if the caller must check again which op is first, and which thread is busy. */
static tutti_status progress(void *object)
{
    struct waiting *waiting = object;
    tti_queue_drive(waiting->awaited->op.comm);
    if (atomic_load_explicit(&waiting->awaited->status, memory_order_acquire) != TUTTI_IN_PROGRESS) return TUTTI_OK;
    if (tti_queue_is_wanted(waiting->awaited->op.comm)) return TUTTI_OK;
    return tti_queue_first(waiting->awaited->op.comm) == waiting->first ? TUTTI_IN_PROGRESS : TUTTI_OK;
}

/* Waits in short steps, since an op that a device ends rings no bell. */
static void wait_for_flight(struct waiting *waiting, int64_t until_ns)
{
    tutti_comm *comm = waiting->awaited->op.comm;
    struct tti_wait wait;
    tti_bell nobody = 0;
    int64_t polled_ns = tti_now_ns();
    tti_wait_begin(&wait, false, MS);
    while (progress(waiting) == TUTTI_IN_PROGRESS) {
        if (tti_wait_pause(&wait, false)) continue;
        tti_bell_sleep(&nobody, 0, MS / 20, false);
        int64_t now = tti_now_ns();
        if (now >= until_ns) return;
        if (now - polled_ns < POLL_MS * MS) continue;
        polled_ns = now;
        if (tti_queue_poll(comm, now) < 0) return;
    }
}

static void wait_as_driver(struct tti_started *started, int64_t until_ns)
{
    tutti_comm *comm = started->op.comm;
    if (started->pending != NULL) {
        tti_queue_await_pending(started, until_ns);
        return;
    }
    struct waiting waiting = {.awaited = started, .first = tti_queue_first(comm)};
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
    struct tti_waitable waitable = tti_queue_waitable(waiting.first);
    waitable.progress = progress;
    waitable.object = &waiting;
    if (waiting.first->turn != NULL) waitable.detail = detail;
    tutti_status status = tti_comm_wait_until(comm, &waitable, until_ns);
    /* the wait found an error that ends the op it was for */
    if (status < 0 && tti_queue_first(comm) == waiting.first) tti_queue_fail(waiting.first, status);
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
    if (started->pending != NULL) atomic_fetch_add_explicit(&started->op.comm->queue.asks, 1, memory_order_release);
}

void tti_queue_ask(struct tti_started *started, bool polls)
{
    tutti_comm *comm = started->op.comm;
    if (tti_is_group(started)) {
        tti_group_ask(started, polls);
        return;
    }
    if (started->external != NULL) {
        tti_external_ask(started, polls);
        return;
    }
    tti_queue_set_asked(started, true);
    tti_turn_help(started, polls);
    tti_queue_help(comm, polls);
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
        if (!tti_queue_is_wanted(comm) && tti_queue_try_for_ops(comm)) {
            wait_as_driver(started, until_ns);
            tti_queue_give_back(comm);
            tti_callbacks_call(comm);
        } else if (turns++ < 1000) {
            tti_wait_turn(); /* the busy thread is busy for a moment only, or waits itself */
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
    if (started->external != NULL) return tti_external_await(started, until_ns);
    tti_turn_await_meeting(started, until_ns);
    tti_queue_set_asked(started, true);
    status = await(started, until_ns);
    tti_queue_set_asked(started, false);
    return status;
}
