/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends a comm's ops in flight before it is freed.
 */
#include "base/clock.h"
#include "collective/message/message.h"
#include "collective/op/callback.h"
#include "collective/op/pending.h"
#include "collective/op/queue.h"
#include "collective/op/queue_group.h"

#define MS INT64_C(1000000)
enum { CLOSE_MS = 30000 };

static void cancel_pending(tutti_comm *comm, uint32_t how)
{
    tti_queue_take(comm);
    TTI_LIST_EACH(link, &comm->queue.pending)
    {
        struct tti_started *started = tti_pending_on(link)->started;
        if (how == TTI_CANCEL || atomic_load_explicit(&started->cancelled, memory_order_relaxed) == 0)
            atomic_store_explicit(&started->cancelled, how, memory_order_relaxed);
    }
    atomic_store_explicit(&comm->queue.cancels, true, memory_order_release);
    tti_queue_give_back(comm);
}

/* Returns a message in flight and holds it, so that it is not freed when it ends; NULL: there is none. */
static struct tti_started *hold_pending(tutti_comm *comm, bool *dropped)
{
    struct tti_queue *queue = &comm->queue;
    tti_queue_take(comm);
    struct tti_started *started = tti_list_is_empty(&queue->pending) ? NULL
                                                                     : tti_pending_on(queue->pending.next)->started;
    if (started != NULL) {
        tti_lock(&queue->lock);
        *dropped = started->dropped;
        started->dropped = false;
        tti_unlock(&queue->lock);
    }
    tti_queue_give_back(comm);
    return started;
}

static void await_pending(tutti_comm *comm, int64_t until_ns)
{
    struct tti_started *started;
    bool dropped = false;
    while ((started = hold_pending(comm, &dropped)) != NULL) {
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

/* Tells the others that this rank calls nothing more. Messages that no peer was told of are taken back first, so that
 * nobody waits for them in vain: neither ranks in a collective with this rank, nor ranks that wait for its messages. */
static void end_calls(tutti_comm *comm)
{
    tti_queue_take(comm);
    tti_queue_drive_pending(comm);
    bool ended = tti_queue_first(comm) == NULL, under_way = !ended || !tti_list_is_empty(&comm->queue.pending);
    if (under_way && tti_messages_have_answered(comm) && tti_comm_health(comm, TTI_LEAVE, false) == TUTTI_OK)
        comm->peers->notify(comm, ended ? TTI_NEWS_CALLS_NO_MORE : TTI_NEWS_STARTS_NO_MORE);
    tti_queue_give_back(comm);
}

static void end_all(tutti_comm *comm)
{
    cancel_pending(comm, TTI_CANCEL_GENTLY); /* nobody will receive these any more */
    int64_t until = tti_now_ns() + (comm->traits.tolerant ? comm->world->options.fence_ms : CLOSE_MS) * MS;
    if (tti_queue_first(comm) != NULL) end_calls(comm);
    while (tti_queue_first(comm) != NULL && tti_now_ns() < until) {
        if (!tti_queue_help(comm, true)) tti_wait_turn();
        tti_callbacks_call(comm);
    }
    if (tti_queue_first(comm) == NULL) end_calls(comm);
    await_pending(comm, until);
    while (!tti_queue_is_idle(comm) || tti_callbacks_are_due(comm)) {
        struct tti_started *first = tti_queue_first(comm);
        bool late = tti_now_ns() >= until;
        if (first != NULL && late) atomic_store_explicit(&first->cancelled, TTI_CANCEL, memory_order_relaxed);
        if (late) cancel_pending(comm, TTI_CANCEL);
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
    tti_list_init(&queue->pending);
    tti_list_init(&queue->ended_pending);
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
