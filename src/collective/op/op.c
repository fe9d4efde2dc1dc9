/* SPDX-License-Identifier: Apache-2.0
 *
 * One operation from start to end: numbering, waiting, and the one way to finish.
 */
#include "base/clock.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "collective/comm/show.h"
#include "collective/comm/stats.h"
#include "collective/comm/trace.h"
#include "collective/engine/engine.h"
#include "collective/op/callback.h"
#include "collective/op/many.h"
#include "collective/op/queue.h"
#include "collective/op/siblings.h"
#include <assert.h>
#include <string.h>

/* Checks again, ever more rarely as operations pass, how many cores the ranks have: binding changes that. */
static __attribute__((noinline)) void count_cores(tutti_comm *comm)
{
    uint64_t all[TTI_CORE_WORDS];
    tti_comm_show_cores(comm);
    for (int i = 0; i < TTI_CORE_WORDS; i++) all[i] = atomic_load_explicit(&comm->area->cores[i], memory_order_relaxed);
    comm->traits.crowded = comm->traits.here > (comm->lanes == NULL ? tti_cores_count(all) : tti_cores_of_host());
}

static void number(struct tti_op *op, const uint64_t *row)
{
    tutti_comm *comm = op->comm;
    comm->sequence++;
    if ((comm->sequence & (comm->sequence - 1)) == 0 && comm->sequence <= 65536) count_cores(comm);
    comm->signature = tti_call_signature(comm->signature, op->edition != 0 ? op->digest : tti_call_digest(&op->call));
    size_t words = TTI_GIVEN * (size_t)comm->size;
    if (op->shape.tables != NULL)
        memcpy(comm->engine->tables + comm->engine->own_row * words, row, words * sizeof *row);
    op->state = TTI_OP_OPENING;
    if (tti_is_watched(comm)) tti_show_op(op);
    tti_trace_begin(op);
}

static __attribute__((noinline)) void begin_watched(struct tti_op *op)
{
    if (op->many != NULL) tti_many_begin(op);
    if (op->comm->traits.siblings != NULL) tti_siblings_show(op);
}

void tti_op_begin(struct tti_op *op, const uint64_t *row)
{
    if (op->watched) begin_watched(op);
    number(op, row);
}

/* Compares the outputs of siblings. An op that fails here has not ended, and is treated like any other failure. */
static tutti_status compare_outputs(struct tti_op *op)
{
    tutti_status status = tti_siblings_compare(op);
    if (status != TUTTI_OK && op->state == TTI_OP_ENDED) op->state = TTI_OP_FAST;
    return status;
}

/* Called when a watched op has ended, or a round of an op with pieces: begins the next round. */
static __attribute__((noinline)) tutti_status go_on(struct tti_op *op)
{
    bool shows = op->comm->traits.siblings != NULL;
    if (shows) TTI_TRY(compare_outputs(op));
    if (op->many == NULL || !tti_many_next(op)) return TUTTI_OK;
    if (shows) tti_siblings_show(op);
    number(op, NULL);
    return TUTTI_IN_PROGRESS;
}

tutti_status tti_op_open(struct tti_op *op)
{
    assert(op->state == TTI_OP_OPENING);
    tutti_status status = op->comm->provider->issue(op);
    return status == TUTTI_OK && op->watched ? go_on(op) : status;
}

tutti_status tti_op_progress(void *object)
{
    struct tti_op *op = object;
    const struct tti_provider_ops *provider = &op->comm->provider->ops;
    tutti_status status;
    do {
        status = provider->progress(op);
        if (status != TUTTI_OK || !op->watched) return status;
        status = go_on(op);
    } while (status == TUTTI_IN_PROGRESS);
    return status;
}

static __attribute__((noinline)) tutti_status await(struct tti_op *op)
{
    struct tti_wait_state wait_state = {.since_ns = op->many != NULL ? tti_now_ns() : 0};
    struct tti_waitable waitable = {.progress = tti_op_progress,
                                    .object = op,
                                    .waiting_for = &op->waiting_for,
                                    .awaited = &op->awaited,
                                    .site = &op->call.site,
                                    .kind = (enum tti_kind)op->call.kind,
                                    .op = op,
                                    .deadline_ms = op->deadline_ms,
                                    .wait_state = op->many != NULL ? &wait_state : NULL};
    return tti_comm_wait(op->comm, &waitable);
}

static __attribute__((noinline)) void give_up(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    comm->provider->ops.stop(op);
    int64_t until = tti_now_ns() + comm->world->options.fence_ms * 1000000;
    while (!comm->provider->ops.fence(op, until)) tti_wait_turn();
}

static inline tutti_status run(struct tti_op *op, tutti_op *handle)
{
    tutti_comm *comm = op->comm;
    if (handle != NULL) return tti_queue_give(op, handle);
    if (!tti_queue_is_idle(comm)) return tti_queue_run(op);
    tti_op_begin(op, comm->engine->row);
    tutti_status status = tti_comm_poll(comm, tti_op_progress, op);
    if (status == TUTTI_IN_PROGRESS) status = await(op);
    if (status != TUTTI_OK) give_up(op);
    op->state = TTI_OP_ENDED;
    tti_trace_end(op, status, false);
    return status;
}

tutti_status tti_op_run(struct tti_op *op, tutti_op *handle)
{
    tutti_comm *comm = op->comm;
    if (handle == NULL && tti_is_in_callback()) return tti_callback_refuse(comm, op->shape.kind);
    if (!comm->caller.preparing) tti_stats_count(comm, op, handle != NULL);
    return run(op, handle);
}

tutti_status tti_op_run_part(struct tti_op *op)
{
    return run(op, NULL);
}
