/* SPDX-License-Identifier: Apache-2.0
 *
 * What users do with handles of ops: they wait, test, cancel, drop, and start again.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/latest.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/comm/epoch.h"
#include "collective/comm/stats.h"
#include "collective/op/callback.h"
#include "collective/op/handle.h"
#include "collective/op/pending.h"
#include "collective/op/queue_external.h"
#include "collective/op/queue_group.h"
#include "collective/op/turn.h"

#define MS INT64_C(1000000)

/* Notes an error for the rank that was given this handle, or for the process if that rank cannot be found. */
static void note(tutti_op handle, const char *call, tutti_status status)
{
    struct tti_told told = {.error = {.status = status, .rank = -1, .peer = -1}};
    snprintf(told.error.operation, sizeof told.error.operation, "%s", call);
    snprintf(told.error.text, sizeof told.error.text, "tutti_%s: %s", call, tutti_status_text(status));
    tti_lock(&tti_handles.lock); /* the comm of the place is not freed before it has given its places back */
    const struct tti_started *started = tti_handle_place(handle);
    const tutti_comm *comm = started == NULL ? NULL : started->comm;
    bool given = comm != NULL && comm->traits.fork_count == tti_fork_count() && handle.id >= started->first_id &&
                 handle.id <= atomic_load_explicit(&started->id, memory_order_relaxed);
    if (given) told.error.rank = comm->rank;
    tti_latest_note(given ? comm->errors.latest : NULL, &told);
    tti_unlock(&tti_handles.lock);
}

/* Reports an error that no comm keeps. It is logged a few times only, since the caller may poll. */
static __attribute__((noinline)) tutti_status report(const char *call, tutti_op handle, tutti_status status)
{
    enum { TOLD_MOST = 8 };
    static atomic_int told;
    note(handle, call, status);
    if (status == TUTTI_ERR_HANDLE && atomic_fetch_add_explicit(&told, 1, memory_order_relaxed) < TOLD_MOST)
        tti_log(TUTTI_ERROR, "tutti_%s: %s", call, tutti_status_text(status));
    return status;
}

static tutti_status refuse_null(const char *call, const char *what)
{
    tti_log(TUTTI_ERROR, "tutti_%s: %s is NULL", call, what);
    return tti_latest_stray(call, TUTTI_ERR_ARGUMENT, "tutti_%s: %s is NULL", call, what);
}

static inline tutti_status told(const char *call, tutti_op handle, tutti_status status)
{
    return status == TUTTI_OK ? TUTTI_OK : report(call, handle, status);
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

/* Ends a handle, or one round of a persistent one, and returns the op's status. If the op succeeded, an error that the
 * comm has stays: it may come from another thread's call, which is about to explain it. */
static tutti_status collect(struct tti_started *started, tutti_status status)
{
    tutti_comm *comm = started->comm;
    if (status == TUTTI_IN_PROGRESS) {
        tti_wait_polled();
        return status;
    }
    if (tti_comm_is_broken(comm) && tti_epoch_is_old(comm)) {
        tutti_error error;
        tti_epoch_describe(comm, tti_started_kind(started), &error);
        tti_comm_show(comm, &error);
        tti_started_free(started);
        return TUTTI_ERR_EPOCH;
    }
    bool alone = status == TUTTI_ERR_TRUNCATED || (status == TUTTI_ERR_CANCELLED && started->error == NULL);
    if (alone && started->pending != NULL) { /* the comm itself is not broken */
        tutti_error error;
        tti_pending_explain(started->pending, &error);
        tti_comm_show(comm, &error);
    } else if (status != TUTTI_OK) {
        tutti_error scant = {.status = status, .rank = comm->rank, .peer = -1};
        snprintf(scant.text, sizeof scant.text, "it failed, and there is no memory to say more");
        tti_comm_show(comm, started->error != NULL ? started->error : &scant);
        if (tti_comm_is_broken(comm)) atomic_store_explicit(&comm->errors.told, true, memory_order_relaxed);
    }
    if (!started->persistent) {
        tti_started_free(started);
        return status;
    }
    tti_free(started->error);
    started->error = NULL;
    atomic_store_explicit(&started->status, TUTTI_OK, memory_order_relaxed);
    atomic_store_explicit(&started->out, false, memory_order_relaxed);
    return status;
}

static int64_t after_ms(int64_t timeout_ms)
{
    return timeout_ms < 0 || timeout_ms > TTI_WEEK_MS ? INT64_MAX : tti_now_ns() + timeout_ms * MS;
}

static tutti_status refuse_waiting(const char *call)
{
    static const char why[] = "a callback of tutti_when_ended must not wait, since what it would wait for may need its "
                              "thread; use tutti_test, or a callback of that op";
    tti_log(TUTTI_ERROR, "tutti_%s: %s", call, why);
    return tti_latest_stray(call, TUTTI_ERR_ARGUMENT, "tutti_%s: %s", call, why);
}

tutti_status tutti_wait_for(tutti_op op, int64_t timeout_ms)
{
    struct tti_started *started;
    if (timeout_ms != 0 && tti_is_in_callback()) return refuse_waiting("wait");
    TTI_TRY(told("wait", op, tti_handle_find(op, &started)));
    if (atomic_load_explicit(&started->thread_local_op, memory_order_acquire)) {
        if (tti_thread_local_op_wait(started) == TUTTI_OK) return TUTTI_OK;
        TTI_TRY(tti_handle_find_queued(op, &started));
    }
    if (timeout_ms != 0 && started->external != NULL) TTI_TRY(tti_external_may_wait(started));
    if (timeout_ms == 0) tti_queue_ask(started, false); /* without time to wait, the op is polled once */
    return collect(started, tti_queue_await(started, after_ms(timeout_ms)));
}

tutti_status tutti_wait(tutti_op op)
{
    return tutti_wait_for(op, -1);
}

tutti_status tutti_test(tutti_op op)
{
    struct tti_started *started;
    TTI_TRY(told("test", op, tti_handle_find_queued(op, &started)));
    tutti_status status = (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
    if (status == TUTTI_IN_PROGRESS) {
        tti_queue_ask(started, false);
        status = (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
    }
    return collect(started, status);
}

/* Finds the first of the ops that has ended; sets `count` when none has. Takes forward those that have not. */
static tutti_status look_for_any(const tutti_op *ops, size_t count, size_t *index, bool polls)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (ops[i].id == 0) continue;
        struct tti_started *started;
        *index = i;
        TTI_TRY(told("wait_any", ops[i], tti_handle_find_queued(ops[i], &started)));
        if (started->persistent && !atomic_load_explicit(&started->out, memory_order_relaxed)) continue;
        any = true;
        if (started->external != NULL) TTI_TRY(tti_external_may_wait(started));
        if (atomic_load_explicit(&started->status, memory_order_acquire) == TUTTI_IN_PROGRESS)
            tti_queue_ask(started, polls);
        tutti_status status = (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
        if (status != TUTTI_IN_PROGRESS) return collect(started, status);
    }
    *index = count;
    return any ? TUTTI_IN_PROGRESS : TUTTI_OK;
}

tutti_status tutti_wait_any(const tutti_op *ops, size_t count, int64_t timeout_ms, size_t *index)
{
    if ((ops == NULL && count > 0) || index == NULL) return refuse_null("wait_any", "`ops` or `index`");
    if (timeout_ms != 0 && tti_is_in_callback()) return refuse_waiting("wait_any");
    int64_t until = after_ms(timeout_ms);
    struct tti_wait wait;
    tti_bell nobody = 0;
    tti_wait_begin(&wait, false, MS);
    for (;;) {
        tutti_status status = look_for_any(ops, count, index, tti_wait_slow(&wait));
        if (*index < count || status == TUTTI_OK) return status;
        if (!tti_wait_pause(&wait, false)) tti_bell_sleep(&nobody, 0, MS / 10, false);
        if (wait.now_ns >= until) return TUTTI_IN_PROGRESS;
    }
}

tutti_status tutti_wait_all(const tutti_op *ops, size_t count)
{
    if (ops == NULL && count > 0) return refuse_null("wait_all", "`ops`");
    if (tti_is_in_callback()) return refuse_waiting("wait_all");
    tutti_status first = TUTTI_OK;
    for (size_t i = 0; i < count; i++) {
        tutti_status status = ops[i].id == 0 ? TUTTI_OK : tutti_wait(ops[i]);
        if (first == TUTTI_OK) first = status;
    }
    return first;
}

/* Notes the error without logging it: another thread may have waited for the op just before, and nothing is wrong
 * then. */
static tutti_status cancel_late(tutti_op op, tutti_status status)
{
    note(op, "cancel", status);
    return status;
}

tutti_status tutti_cancel(tutti_op op)
{
    struct tti_started *started;
    tutti_status status = tti_handle_find_queued(op, &started);
    if (status != TUTTI_OK) return cancel_late(op, status);
    tutti_comm *comm = started->comm;
    /* another thread may have waited for it, so that its place may belong to another op by now */
    tti_lock(&comm->queue.lock);
    bool there = atomic_load_explicit(&started->id, memory_order_relaxed) == op.id;
    tutti_comm *runs = there ? started->op.comm : comm;
    struct tti_group_op *group = there && tti_is_group(started) ? started->group : NULL;
    struct tti_external *external = there ? started->external : NULL;
    if (group != NULL) {
        tti_group_cancel(group);
    } else if (external != NULL) {
        external->ops->hold(external);
    } else if (there) {
        atomic_store_explicit(&started->cancelled, TTI_CANCEL, memory_order_seq_cst);
        atomic_store_explicit(&comm->queue.cancels, true, memory_order_seq_cst);
    }
    tti_unlock(&comm->queue.lock);
    if (!there) return cancel_late(op, TUTTI_ERR_HANDLE);
    if (external != NULL) {
        external->ops->cancel(external);
        external->ops->release(external);
        return TUTTI_OK;
    }
    if (group != NULL) {
        tti_group_wake(group);
        return TUTTI_OK;
    }
    runs->peers->wake(runs); /* a thread may sleep while it waits for the op */
    tti_service_wake(runs, TTI_AT_ONCE);
    return TUTTI_OK;
}

tutti_status tutti_drop(tutti_op op)
{
    struct tti_started *started;
    TTI_TRY(told("drop", op, tti_handle_find_queued(op, &started)));
    struct tti_queue *queue = &started->comm->queue;
    tti_lock(&queue->lock);
    bool queued = started->queued;
    started->dropped = true;
    atomic_fetch_add_explicit(&started->id, queued ? UINT64_C(1) << TTI_HANDLE_PLACE_BITS : 0, memory_order_release);
    tti_unlock(&queue->lock);
    if (!queued) tti_started_free(started);
    return TUTTI_OK;
}

/* The site and deadline of the time when it was prepared hold, unless new ones are given now. */
static void renew(struct tti_started *started)
{
    const tutti_comm *comm = started->comm;
    if (comm->caller.deadline_ms != 0) started->op.deadline_ms = comm->caller.deadline_ms;
    if (comm->caller.site.line != 0 || comm->caller.site.name[0] != '\0')
        *tti_started_site(started) = comm->caller.site;
    if (started->pending != NULL) return;
    tti_op_rewind(&started->op);
    started->op.edition = 0;
}

tutti_status tutti_start(tutti_op op)
{
    struct tti_started *started;
    TTI_TRY(told("start", op, tti_handle_find_queued(op, &started)));
    tutti_comm *comm = started->comm;
    enum tti_kind kind = started->op.shape.kind;
    TTI_TRY(tti_api_begin(comm, kind));
    if (!started->persistent)
        return tti_comm_refuse(comm, kind, TUTTI_ERR_HANDLE, "start: this %s was not prepared; see tutti_prepared",
                               tti_kind_name(kind));
    if (atomic_load_explicit(&started->out, memory_order_relaxed))
        return tti_comm_refuse(comm, kind, TUTTI_ERR_HANDLE,
                               "start: this %s was started already; wait for it before it is started again",
                               tti_kind_name(kind));
    TTI_TRY(tti_group_without(comm, kind));
    TTI_TRY(tti_queue_ready(comm, kind));
    tti_callback_await(started);
    renew(started);
    tutti_status status = TUTTI_OK;
    tutti_error error = {0};
    if (started->turn != NULL) {
        status = tti_stream_op_start(started);
    } else if (started->pending != NULL && started->pending->on_devices > 0 &&
               tti_pending_put(started->pending, &error) != TUTTI_OK) {
        status = tti_comm_refuse(comm, kind, error.status, "%s: %s", tti_kind_name(kind), error.text);
    } else {
        if (started->pending == NULL) tti_stats_count(comm, &started->op, true);
        tti_queue_start(started);
    }
    tti_call_end(comm);
    return status;
}

tutti_comm *tutti_prepared(tutti_comm *comm)
{
    if (comm != NULL) comm->caller.preparing = true;
    return comm;
}
