/* SPDX-License-Identifier: Apache-2.0
 *
 * For ranks that share cores and reach all buffers. A rank's part of an operation is the data that its plan moves. The
 * first rank that comes to a part after all have entered does it: the rank itself, or one that runs on its core; at
 * last, if the operation is large, any rank that has nothing left to do, since ranks need not be spread evenly. The
 * operation ends when all parts are done, and a rank that waits for its turn on a core holds no other up: one turn for
 * each is enough, instead of one to enter and one to leave.
 *
 * This is not done with counts for each rank: these lie in tables that are used again as soon as all parts are done,
 * while a rank without a part has yet to read them. And each rank calls a user's function itself.
 */
#include "base/status.h"
#include "collective/engine/run.h"

/* for smaller operations the data in the caches of a part's core count more than an idle core */
enum { LARGE_BYTES = 256 << 10 };

static bool may_claim(const struct tti_op *op, int rank)
{
    const tutti_comm *comm = op->comm;
    if (rank == comm->rank || !comm->traits.crowded) return rank == comm->rank;
    return op->part >= comm->size ||
           atomic_load_explicit(&comm->memory->posts[rank].core, memory_order_relaxed) ==
               atomic_load_explicit(&comm->memory->posts[comm->rank].core, memory_order_relaxed);
}

static bool claim(const struct tti_op *op, int rank)
{
    const tutti_comm *comm = op->comm;
    struct tti_post *post = &comm->memory->posts[rank];
    if (!may_claim(op, rank)) return false;
    uint64_t before = atomic_load_explicit(&post->claimed, memory_order_relaxed);
    if (before >> 32 == tti_mark(op, 0) >> 32) return false;
    return atomic_compare_exchange_strong_explicit(&post->claimed, &before, tti_mark(op, (uint32_t)comm->rank + 1),
                                                   memory_order_relaxed, memory_order_relaxed);
}

/* Returns how many parts a rank tries: those of its core's ranks, and all of them once more if the operation is
 * large. */
static int parts_to_see(const struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    return comm->traits.crowded && tti_shape_bytes(&op->shape) >= LARGE_BYTES ? 2 * comm->size : comm->size;
}

static tutti_status do_parts(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    for (int most = parts_to_see(op); op->part < most; op->part++) {
        struct tti_shape shape = op->shape;
        shape.rank = (comm->rank + op->part) % comm->size;
        if (op->walk.plan == NULL) {
            if (!claim(op, shape.rank)) continue;
            TTI_TRY(tti_run_build(op, &shape, NULL));
        }
        TTI_TRY(tti_run_to(op, TTI_STEP_LEAVE));
        op->walk.plan = NULL;
        atomic_store_explicit(&comm->memory->posts[shape.rank].done, tti_mark(op, TTI_LEFT), memory_order_release);
        tti_comm_ring(comm, shape.rank != comm->rank);
    }
    return TUTTI_OK;
}

/* Returns the rank that does that rank's part: itself, unless another one has claimed it. */
static int doer_of(const struct tti_op *op, int rank)
{
    uint64_t claimed = atomic_load_explicit(&op->comm->memory->posts[rank].claimed, memory_order_relaxed);
    return claimed >> 32 == tti_mark(op, 0) >> 32 ? (int)(uint32_t)claimed - 1 : rank;
}

tutti_status tti_run_parts(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    if (op->part < parts_to_see(op)) {
        TTI_TRY(do_parts(op));
        tti_post_publish(op, TTI_LEFT);
    }
    for (; op->cursor < comm->size; op->cursor++) {
        int rank = (comm->rank + op->cursor) % comm->size;
        uint64_t done = atomic_load_explicit(&comm->memory->posts[rank].done, memory_order_acquire);
        if ((int64_t)(done - tti_mark(op, TTI_LEFT)) >= 0) continue;
        op->waiting_for = doer_of(op, rank);
        op->awaited = tti_mark(op, TTI_LEFT);
        return TUTTI_IN_PROGRESS;
    }
    op->cursor = 0;
    return TUTTI_OK;
}
