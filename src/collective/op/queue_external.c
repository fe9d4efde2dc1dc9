/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/queue_external.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "collective/op/callback.h"

#define MS INT64_C(1000000)
enum { SLEEP_MS = 1000 };

tutti_op tti_external_start(struct tti_external *external, tutti_comm *comm, enum tti_kind kind)
{
    struct tti_started *started = tti_started_new_beside(comm);
    if (started == NULL) return (tutti_op){0};
    started->external = external;
    started->op.comm = comm;
    started->op.shape.kind = kind;
    started->op.call.kind = (uint8_t)kind;
    started->op.call.site.line = 0;
    external->started = started;
    tti_started_begin_apart(started);
    return (tutti_op){atomic_load_explicit(&started->id, memory_order_relaxed)};
}

static void keep_error(struct tti_started *started, const tutti_error *error)
{
    if (error == NULL) return;
    started->error = tti_calloc(1, sizeof *error);
    if (started->error != NULL) *started->error = *error;
}

/* The comm stays until the count goes down; the record stays since the caller holds it. */
void tti_external_end(struct tti_external *external, const tutti_error *error)
{
    struct tti_started *started = external->started;
    tutti_comm *comm = started->comm;
    keep_error(started, error);
    bool dropped = tti_started_end_apart(started, error == NULL ? TUTTI_OK : error->status);
    if (dropped && error != NULL) tti_log(TUTTI_WARN, "nobody waits for this any more: %s", error->text);
    /* a read that writes: either it sees a thread that is about to sleep, or that thread sees the status */
    if (atomic_fetch_or_explicit(&external->sleepers, 0, memory_order_acq_rel) != 0)
        tti_bell_ring(&external->bell, false);
    if (tti_callbacks_are_due(comm)) tti_callbacks_call(comm);
    tti_queue_uncount(&comm->queue);
}

static tutti_status status_of(struct tti_started *started)
{
    return (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
}

tutti_status tti_external_may_wait(struct tti_started *started)
{
    struct tti_external *external = started->external;
    tutti_error error = {0};
    if (external == NULL || status_of(started) != TUTTI_IN_PROGRESS) return TUTTI_OK;
    tutti_status status = external->ops->may_wait(external, &error);
    if (status != TUTTI_OK) tti_comm_show(started->comm, &error);
    return status;
}

/* A message may end the op, so a thread that waits for it takes messages forward. */
void tti_external_ask(struct tti_started *started, bool polls)
{
    tutti_comm *comm = started->comm;
    if (comm->size > 1) tti_queue_help(comm, polls);
    tti_callbacks_call(comm);
}

static void sleep_on(struct tti_started *started, int64_t until_ns)
{
    struct tti_external *external = started->external;
    uint32_t seen = atomic_load_explicit(&external->bell, memory_order_relaxed);
    int64_t left = until_ns == INT64_MAX ? INT64_MAX : until_ns - tti_now_ns();
    atomic_fetch_add_explicit(&external->sleepers, 1, memory_order_acq_rel);
    if (status_of(started) == TUTTI_IN_PROGRESS)
        tti_bell_sleep(&external->bell, seen, left < SLEEP_MS * MS ? left : SLEEP_MS * MS, false);
    atomic_fetch_sub_explicit(&external->sleepers, 1, memory_order_relaxed);
}

tutti_status tti_external_await(struct tti_started *started, int64_t until_ns)
{
    struct tti_wait wait;
    tutti_status status;
    tti_wait_begin(&wait, started->comm->traits.crowded, MS);
    while ((status = status_of(started)) == TUTTI_IN_PROGRESS) {
        if (until_ns != INT64_MAX && tti_now_ns() >= until_ns) break;
        tti_external_ask(started, tti_wait_slow(&wait));
        if (!tti_wait_pause(&wait, false)) sleep_on(started, until_ns);
    }
    return status;
}
