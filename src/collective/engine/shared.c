/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider `shared`: ranks that reach each other's memory. Its ops run in executor.c; here is what follows when one fails.
 */
#include "base/clock.h"
#include "base/sim.h"
#include "collective/engine/executor.h"

enum {
    KILL_MS = 1000,
    ENDED_MS = 60 /* for the service thread to see that a comm is broken: others have to know within 100 */
};

/* A peer that could still write to this rank's buffers. */
static bool may_touch(const struct tti_op *op, int peer)
{
    const tutti_comm *comm = op->comm;
    uint64_t entry = atomic_load_explicit(&tti_slot_of(comm, peer, comm->sequence)->entry, memory_order_acquire);
    if ((uint32_t)(entry >> 32) != (uint32_t)comm->sequence) return false;
    /* one that made another call never meets this one, and may have ended its own and be busy elsewhere */
    if ((((uint32_t)entry ^ comm->signature) & ~UINT32_C(1)) != 0) return false;
    uint64_t progress = atomic_load_explicit(&comm->memory->posts[peer].progress, memory_order_acquire);
    return (int64_t)(progress - (comm->sequence << 32 | TTI_LEFT)) < 0;
}

/* What a thread that has ended had started is still moved by the service thread, until that sees the break; what it was in
 * itself, by nobody. */
static bool has_ended(const struct tti_op *op, int peer, int64_t fenced_ns)
{
    const tutti_comm *comm = op->comm;
    if (atomic_load_explicit(&tti_info_of(comm, peer)->state, memory_order_acquire) == TTI_RANK_JOINED) return false;
    bool here = tti_sim == NULL && tti_info_of(comm, peer)->pid == tti_info_of(comm, comm->rank)->pid;
    return !here || fenced_ns >= ENDED_MS * INT64_C(1000000);
}

static void stop(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    atomic_store_explicit(&comm->memory->posts[comm->rank].progress, comm->sequence << 32 | TTI_FAILED,
                          memory_order_release);
    tti_comm_ring(comm, true);
    tti_fence_rare(); /* whoever entered by now is seen, whoever enters from now on sees the break */
}

static bool brings(const struct tti_op *op, int rank)
{
    uint64_t sequence = op->comm->sequence;
    uint64_t entry = atomic_load_explicit(&tti_slot_of(op->comm, rank, sequence)->entry, memory_order_acquire);
    return (uint32_t)(entry >> 32) == (uint32_t)sequence && (entry & 1) != 0;
}

/* What all bring along when they enter, or the root of a broadcast, needs nobody's buffers: a peer may have ended the op by
 * it, without a word of having left, and be busy elsewhere. */
static bool is_brought(const struct tti_op *op)
{
    const struct tti_shape *shape = &op->shape;
    if (!tti_shape_fits_slot(shape)) return false;
    if (shape->kind == TTI_BROADCAST) return brings(op, shape->root);
    for (int rank = 0; rank < op->comm->size; rank++)
        if (!brings(op, rank)) return false;
    return true;
}

/* Whether peers reach this rank's buffers while the op runs; `direct`: even those of other processes. */
static bool is_exposed(const struct tti_op *op, bool *direct)
{
    bool runs = op->state == TTI_OP_RUNNING, attach = op->shape.path == TTI_ATTACH;
    bool written = op->shape.path == TTI_DIRECT || (attach && op->shape.kind == TTI_BROADCAST);
    *direct = (op->state == TTI_OP_MEETING && !is_brought(op)) || (runs && written);
    return op->entered && (*direct || (runs && attach));
}

static bool fence(struct tti_op *op, int64_t until_ns)
{
    tutti_comm *comm = op->comm;
    bool direct;
    if (!is_exposed(op, &direct)) return true;
    int64_t left_ns = until_ns - tti_now_ns(), fenced_ns = comm->world->options.fence_ms * INT64_C(1000000) - left_ns;
    bool late = left_ns <= 0;
    int pid = tti_info_of(comm, comm->rank)->pid;
    if (!comm->traits.all_threads) tti_world_check_alive(comm->world);
    for (int peer = 0; peer < comm->size; peer++) {
        if (peer == comm->rank || !may_touch(op, peer) || has_ended(op, peer, fenced_ns)) continue;
        if (!direct && tti_info_of(comm, peer)->pid != pid) continue; /* it only reads, and not by address */
        if (!late) return false;
        if (!tti_world_kill(comm->world, tti_member(comm, peer), KILL_MS))
            tti_comm_quarantine(comm, op->shape.kind, peer, op->in, op->out);
    }
    return true;
}

const struct tti_provider_ops tti_provider_shared = {
    .name = "shared",
    .issue = tti_shared_open,
    .progress = tti_shared_progress,
    .stop = stop,
    .fence = fence,
};
