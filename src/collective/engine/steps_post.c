/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps by which ranks that share memory see each other: a rank enters an operation, publishes its progress in it, and
 * sees the others enter and publish. posts.h describes the memory for this.
 */
#include "base/status.h"
#include "collective/comm/epoch.h"
#include "collective/comm/trace.h"
#include "collective/engine/run.h"
#include "collective/peers/net.h"
#include <assert.h>

/* Returns the place of the rank at which the cursor stands. */
static int next_place(const struct tti_op *op)
{
    const struct tti_posts *memory = op->comm->memory;
    int place = memory->place + 1 + op->cursor;
    return place < memory->count ? place : place - memory->count;
}

/* ---- Entering and seeing others enter -------------------------------------------------------------------------- */

bool tti_post_show_places(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_met met = {.in = tti_place_of(comm, op->in, op->in_bytes),
                          .out = tti_place_of(comm, op->out, op->out_bytes),
                          .can_attach = comm->traits.can_attach};
    if (comm->lanes != NULL)
        comm->memory->posts[comm->memory->place].temp = tti_place_of(comm, comm->lanes->work.temp,
                                                                     op->walk.plan->temp_bytes);
    bool is_private = met.in.reach == TTI_PRIVATE || met.out.reach == TTI_PRIVATE;
    bool unreached = comm->world->options.direct == 0 || (!comm->memory->one_process && is_private);
    /* written at once: the others may be polling this line, and would take it away in between */
    tti_slot_of(comm, comm->memory->place, comm->sequence)->met = met;
    return unreached;
}

tutti_status tti_post_check_places(struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    uint32_t ours = comm->traits.era.made;
    for (int place = 0; place < comm->memory->count; place++) {
        if (place == comm->memory->place)
            continue; /* this rank's own epoch; and a load would wait until the line is back from the peers */
        const struct tti_met *met = &tti_slot_of(comm, place, comm->sequence)->met;
        if (met->in.epoch != ours) /* both places are made together, so one is checked */
            return tti_epoch_refuse(op->comm, op->shape.kind, tti_rank_here(comm, place), "a buffer", met->in.epoch);
    }
    return TUTTI_OK;
}

void tti_post_enter(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_slot *slot = tti_slot_of(comm, comm->memory->place, comm->sequence);
    uint64_t entry = comm->sequence << 32 | comm->signature;
    if (op->any_private) entry |= 1;
    atomic_store_explicit(&slot->entry, entry, memory_order_release);
    op->entered = true;
    tti_comm_ring(comm, false);
    tti_trace_entry(op);
}

/* Returns OK if the rank at that place has entered after the same calls as this rank. A rank that is past this
 * operation, which it cannot complete without this rank, has called something else. */
static inline tutti_status seen_entry(struct tti_op *op, int place)
{
    const tutti_comm *comm = op->comm;
    uint64_t entry = atomic_load_explicit(&tti_slot_of(comm, place, comm->sequence)->entry, memory_order_acquire);
    if ((int32_t)((uint32_t)(entry >> 32) - (uint32_t)comm->sequence) < 0) return TUTTI_IN_PROGRESS;
    if (((entry ^ tti_mark(op, comm->signature)) & ~UINT64_C(1)) != 0)
        return tti_op_mismatch(op, tti_rank_here(comm, place));
    op->any_private |= (entry & 1) != 0;
    op->all_private &= (entry & 1) != 0;
    return TUTTI_OK;
}

static inline tutti_status seen_number(const struct tti_op *op, int place, uint32_t number)
{
    uint64_t progress = atomic_load_explicit(&op->comm->memory->posts[place].progress, memory_order_acquire);
    bool there = (int64_t)(progress - tti_mark(op, number)) >= 0 && progress != tti_mark(op, TTI_FAILED);
    return there ? TUTTI_OK : TUTTI_IN_PROGRESS;
}

/* Returns true if entries need not be read again, since all have met. Over several hosts they may be overwritten: the
 * leader of a barrier goes on after it. */
static bool has_met(const struct tti_op *op)
{
    const struct tti_posts *memory = op->comm->memory;
    return op->state == TTI_OP_RUNNING && (memory->all_entered == op->comm->sequence || memory->hosts != NULL);
}

static inline tutti_status seen(struct tti_op *op, int place, uint32_t number)
{
    tutti_status status = number == 0 ? TUTTI_OK : seen_number(op, place, number);
    if (status == TUTTI_OK && (number == 0 || !has_met(op))) status = seen_entry(op, place);
    if (status == TUTTI_IN_PROGRESS) {
        op->waiting_for = tti_rank_here(op->comm, place);
        op->awaited = tti_mark(op, number);
    }
    return status;
}

tutti_status tti_post_seen(struct tti_op *op, int peer, uint32_t number)
{
    return seen(op, tti_place_here(op->comm->memory, peer), number);
}

tutti_status tti_post_all_entered(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    for (; op->cursor < comm->memory->count - 1; op->cursor++) TTI_TRY(seen(op, next_place(op), 0));
    op->cursor = 0;
    comm->memory->all_entered = comm->sequence;
    return TUTTI_OK;
}

tutti_status tti_post_seen_all(struct tti_op *op, uint32_t number)
{
    if (number == 0) return tti_post_all_entered(op);
    for (; op->cursor < op->comm->memory->count - 1; op->cursor++) TTI_TRY(seen(op, next_place(op), number));
    op->cursor = 0;
    op->comm->memory->all_entered = op->comm->sequence;
    return TUTTI_OK;
}

/* ---- Failing --------------------------------------------------------------------------------------------------- */

void tti_post_stop(struct tti_op *op)
{
    tti_post_publish(op, TTI_FAILED);
    tti_fence_rare(); /* ranks that have entered by now are seen; ranks that enter from now on see the break */
}

/* A rank that made another call never meets this one, and may have ended its own and be busy elsewhere. */
bool tti_post_is_in(const struct tti_op *op, int place)
{
    const tutti_comm *comm = op->comm;
    uint64_t entry = atomic_load_explicit(&tti_slot_of(comm, place, comm->sequence)->entry, memory_order_acquire);
    if (((entry ^ tti_mark(op, comm->signature)) & ~UINT64_C(1)) != 0) return false;
    uint64_t progress = atomic_load_explicit(&comm->memory->posts[place].progress, memory_order_acquire);
    return (int64_t)(progress - tti_mark(op, TTI_LEFT)) < 0;
}

bool tti_post_may_touch(const struct tti_op *op, int place, bool attached)
{
    const struct tti_posts *memory = op->comm->memory;
    bool here = memory->posts[place].pid == memory->posts[memory->place].pid;
    return place != memory->place && (attached || here) && tti_post_is_in(op, place);
}

/* ---- The window ------------------------------------------------------------------------------------------------ */

/* Waits until the slot is free. A rank that has to wait here waits until half the window is free: then it works in
 * bursts, instead of reading its peers' progress before every operation, which slows them down. The peers can all come
 * that far without this rank. */
tutti_status tti_post_await_slot(struct tti_op *op, uint64_t needed)
{
    tutti_comm *comm = op->comm;
    uint64_t last = comm->sequence - 1, ahead_most = comm->sequence - needed + 1;
    uint64_t wanted = op->blocked ? needed + ahead_most / 2 - 1 : needed;
    if (op->cursor == 0) op->least = last;
    for (; op->cursor < comm->size - 1; op->cursor++) {
        int peer = next_place(op);
        uint64_t progress = atomic_load_explicit(&comm->memory->posts[peer].progress, memory_order_acquire);
        int32_t ahead = (int32_t)((uint32_t)(progress >> 32) - (uint32_t)wanted);
        op->waiting_for = peer;
        op->awaited = wanted << 32;
        op->blocked = op->blocked || ahead < 0;
        if (ahead < 0) return TUTTI_IN_PROGRESS;
        /* an operation that this rank has done, and of which it still has the call */
        uint64_t at = wanted + (uint64_t)ahead < last ? wanted + (uint64_t)ahead : last;
        if (tti_peer_called_otherwise(comm, peer, at)) return tti_op_mismatch(op, peer);
        if (at < op->least) op->least = at;
    }
    assert(op->least >= needed && op->least <= last);
    op->cursor = 0;
    comm->memory->all_entered = op->least;
    return TUTTI_OK;
}
