/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "collective/op/callback.h"

#include "base/alloc.h"
#include "base/latest.h"
#include "base/log.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/comm/epoch.h"
#include "collective/op/handle.h"
#include "collective/op/pending.h"
#include <assert.h>

_Thread_local int tti_callbacks_here;

/* Simulated ranks share a thread, and one that is in a callback may let others run: it must be asked for the rank. */
bool tti_is_in_callback_now(void)
{
    return tti_sim == NULL || *tti_sim_depth() != 0;
}

static void count(int change)
{
    tti_callbacks_here += change;
    assert(tti_callbacks_here >= 0);
    if (tti_sim != NULL) *tti_sim_depth() += change;
}

tutti_status tti_callback_refuse(tutti_comm *comm, enum tti_kind kind)
{
    return tti_comm_refuse(
        comm, kind, TUTTI_ERR_ARGUMENT,
        "%s: a callback of tutti_when_ended must not wait, since the op that it would wait for may need "
        "its thread; start the operation, with a callback of its own",
        tti_kind_name(kind));
}

/* ---- Becoming due -------------------------------------------------------------------------------------------------- */

static void describe_end(const struct tti_started *started, tutti_status status, tutti_error *error)
{
    *error = (tutti_error){.status = status, .rank = started->comm->rank, .peer = -1};
    if (started->error != NULL) *error = *started->error;
    if (error->text[0] != '\0') return;
    snprintf(error->operation, sizeof error->operation, "%s", tti_kind_name(tti_started_kind(started)));
    snprintf(error->text, sizeof error->text, "%s", tutti_status_text(status));
}

static void append(tutti_comm *comm, struct tti_callback *callback)
{
    struct tti_callbacks *callbacks = &comm->queue.callbacks;
    struct tti_callback **last = &callbacks->first;
    assert(!callback->pending); /* it is called once for each end, and tti_callback_await comes before the next one */
    while (*last != NULL) last = &(*last)->next;
    callback->next = NULL;
    callback->pending = true;
    *last = callback;
    atomic_fetch_add_explicit(&callbacks->due, 1, memory_order_release);
}

void tti_callback_due(struct tti_started *started, tutti_status status)
{
    struct tti_callback **link = &started->callbacks;
    while (*link != NULL) {
        struct tti_callback *callback = *link;
        callback->status = status;
        if (status != TUTTI_OK) describe_end(started, status, &callback->error);
        if (callback->lasts)
            link = &callback->sibling;
        else
            *link = callback->sibling;
        append(started->comm, callback);
    }
}

/* Frees the callbacks of an op; one that is due is freed when it is called. */
void tti_callback_forget(struct tti_started *started)
{
    while (started->callbacks != NULL) {
        struct tti_callback *callback = started->callbacks;
        started->callbacks = callback->sibling;
        callback->lasts = false;
        if (!callback->pending) tti_free(callback);
    }
}

/* ---- Calling ------------------------------------------------------------------------------------------------------- */

struct tti_callback *tti_callbacks_take(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    tti_lock(&queue->lock);
    struct tti_callback *first = queue->callbacks.first;
    queue->callbacks.first = NULL;
    tti_unlock(&queue->lock);
    return first;
}

static void call(const struct tti_callback *callback)
{
    bool failed = callback->status != TUTTI_OK;
    assert(callback->status != TUTTI_IN_PROGRESS);
    count(1);
    callback->ended(callback->context, callback->status, failed ? &callback->error : NULL);
    count(-1);
}

/* Copies a callback before it is called: from then on its op may be started again, and end again, also by the callback
 * itself. */
static struct tti_callback copy(tutti_comm *comm, struct tti_callback *callback)
{
    tti_lock(&comm->queue.lock); /* under it a thread that drops the op says that the callback lasts no longer */
    struct tti_callback taken = *callback;
    assert(callback->pending);
    callback->pending = false;
    tti_unlock(&comm->queue.lock);
    if (!taken.lasts) tti_free(callback);
    return taken;
}

/* Calls the callbacks that were taken. The comm may be freed as soon as none is due. */
void tti_callbacks_call_taken(tutti_comm *comm, struct tti_callback *callbacks)
{
    while (callbacks != NULL) {
        struct tti_callback taken = copy(comm, callbacks);
        callbacks = taken.next;
        call(&taken);
        uint32_t due = atomic_fetch_sub_explicit(&comm->queue.callbacks.due, 1, memory_order_release);
        assert(due > 0);
        (void)due;
    }
}

void tti_callbacks_call(tutti_comm *comm)
{
    while (tti_callbacks_are_due(comm) && !tti_is_in_callback()) {
        struct tti_callback *taken = tti_callbacks_take(comm);
        if (taken == NULL) return; /* another thread calls them */
        tti_callbacks_call_taken(comm, taken);
    }
}

void tti_callback_await(struct tti_started *started)
{
    struct tti_queue *queue = &started->comm->queue;
    for (bool pending = true; pending;) {
        pending = false;
        tti_lock(&queue->lock);
        for (const struct tti_callback *each = started->callbacks; each != NULL; each = each->sibling)
            pending = pending || each->pending;
        tti_unlock(&queue->lock);
        if (!pending) return;
        tti_callbacks_call(started->comm);
        tti_wait_turn();
    }
}

/* ---- For users ----------------------------------------------------------------------------------------------------- */

static tutti_status refuse(tutti_status status, const char *why)
{
    tti_log(TUTTI_ERROR, "tutti_when_ended: %s", why);
    return tti_latest_stray("when_ended", status, "tutti_when_ended: %s", why);
}

/* Adds the callback to the op. Returns true if the op has not ended, or can be started again; else the callback is not
 * added. */
static bool attach(struct tti_started *started, struct tti_callback *callback)
{
    struct tti_queue *queue = &started->comm->queue;
    tti_lock(&queue->lock);
    tutti_status status = (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
    bool out = atomic_load_explicit(&started->out, memory_order_relaxed);
    bool attaches = started->persistent || (!started->bare && status == TUTTI_IN_PROGRESS);
    callback->status = status;
    if (status < 0) describe_end(started, status, &callback->error);
    callback->lasts = started->persistent;
    if (attaches) {
        callback->sibling = started->callbacks;
        started->callbacks = callback;
    }
    /* an op that can be started again and has just ended: this end is told too */
    if (started->persistent && out && status != TUTTI_IN_PROGRESS) append(started->comm, callback);
    tti_unlock(&queue->lock);
    return attaches;
}

tutti_status tti_callback_add(struct tti_started *started, tutti_ended *ended, void *context)
{
    struct tti_callback *callback = tti_calloc(1, sizeof *callback);
    if (callback == NULL) return TUTTI_ERR_MEMORY;
    callback->ended = ended;
    callback->context = context;
    if (attach(started, callback)) return TUTTI_OK;
    call(callback);
    tti_free(callback);
    return TUTTI_OK;
}

tutti_status tutti_when_ended(tutti_op op, tutti_ended *ended, void *context)
{
    struct tti_started *started;
    tutti_status status = tti_handle_find_queued(op, &started);
    if (status != TUTTI_OK) return refuse(status, tutti_status_text(status));
    if (ended == NULL) return refuse(TUTTI_ERR_ARGUMENT, "`ended` is NULL");
    tutti_comm *comm = started->comm;
    if (tti_comm_is_broken(comm) && tti_epoch_is_old(comm))
        return refuse(TUTTI_ERR_EPOCH, tutti_status_text(TUTTI_ERR_EPOCH));
    if (tti_callback_add(started, ended, context) != TUTTI_OK)
        return refuse(TUTTI_ERR_MEMORY, "no memory for a callback");
    tti_callbacks_call(comm);
    return TUTTI_OK;
}
