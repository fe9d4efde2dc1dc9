/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that move data: copies, reductions, prefixes, exchanges, between memory that this rank can reach.
 */
#include "base/sim.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "collective/engine/executor.h"
#include "collective/reduce/copy.h"

enum { PIECE_BYTES = 1 << 20 }; /* after this much copying the comm is looked at again */

const struct tti_place *tti_op_place(const struct tti_op *op, int rank, enum tti_space space)
{
    const struct tti_met *met = &tti_slot_of(op->comm, rank, op->comm->sequence)->met;
    return space == TTI_IN ? &met->in : &met->out;
}

/* The address of a region here; NULL when it is another process's private memory. */
static char *address(const struct tti_op *op, int rank, enum tti_space space, uint64_t offset)
{
    tutti_comm *comm = op->comm;
    switch (space) {
    case TTI_STAGE:
        if (offset < TTI_PAYLOAD_BYTES) return (char *)tti_slot_of(comm, rank, comm->sequence)->payload + offset;
        return tti_stage_of(op, rank) + offset - TTI_PAYLOAD_BYTES;
    case TTI_BOUNCED: return comm->memory->bounce + (size_t)rank * comm->memory->bounce_bytes + offset;
    case TTI_IN:
        if (rank == comm->rank) return (char *)(uintptr_t)op->in + offset;
        break;
    case TTI_OUT:
        if (rank == comm->rank) return (char *)op->out + offset;
        break;
    case TTI_TEMP: break; /* of messages only */
    }
    char *base = tti_place_resolve(comm, rank, *tti_op_place(op, rank, space));
    return base == NULL ? NULL : base + offset;
}

/* Whether that rank will read what is written for it on the core where this one writes. */
static bool reads_here(const tutti_comm *comm, int rank)
{
    if (rank == comm->rank || !comm->traits.crowded) return rank == comm->rank;
    return atomic_load_explicit(&comm->memory->posts[rank].core, memory_order_relaxed) ==
           atomic_load_explicit(&comm->memory->posts[comm->rank].core, memory_order_relaxed);
}

/* Those that read here come first, from the own one on. */
static void copy_to_all(struct tti_op *op, const struct tti_step *step, const char *source, uint64_t bytes)
{
    tutti_comm *comm = op->comm;
    int here = 0, elsewhere = comm->size;
    for (int k = 0; k < comm->size; k++) {
        int rank = (comm->rank + k) % comm->size;
        char *target = address(op, rank, (enum tti_space)step->target.space, step->target.offset + op->walk.done);
        bool stays = step->store != TTI_MIXED || reads_here(comm, rank);
        comm->engine->targets[stays ? here++ : --elsewhere] = target;
    }
    if (here < comm->size)
        tti_copy_apart(comm->engine->targets, here, comm->size, source, bytes);
    else
        tti_copy_to_all(comm->engine->targets, comm->size, source, bytes, (enum tti_store)step->store);
}

/* Half of a mixed copy stays in this core's caches, from which another core would fetch it at a high price. */
static enum tti_store store_for(const struct tti_op *op, const struct tti_step *step)
{
    bool leaves = step->store == TTI_MIXED && !reads_here(op->comm, step->target.rank);
    return leaves ? TTI_STREAMED : (enum tti_store)step->store;
}

static tutti_status copy_step(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    const struct tti_region *from = &step->source;
    char *source = address(op, from->rank, (enum tti_space)from->space, from->offset + op->walk.done);
    if (step->target.rank == TTI_ALL) {
        copy_to_all(op, step, source, bytes);
        return TUTTI_OK;
    }
    char *target = address(op, step->target.rank, (enum tti_space)step->target.space,
                           step->target.offset + op->walk.done);
    if (source == NULL)
        return tti_place_fetch(op->comm, op->shape.kind, from->rank,
                               *tti_op_place(op, from->rank, (enum tti_space)from->space), from->offset + op->walk.done,
                               target, bytes);
    if (target == NULL)
        return tti_place_store(op->comm, op->shape.kind, step->target.rank,
                               *tti_op_place(op, step->target.rank, (enum tti_space)step->target.space),
                               step->target.offset + op->walk.done, source, bytes);
    bool across = step->target.space == TTI_STAGE || step->target.space == TTI_BOUNCED;
    if (across)
        tti_copy_across(&op->comm->engine->ferry, target, source, bytes, TTI_ACROSS_FROM);
    else if (target != source)
        tti_copy(target, source, bytes, store_for(op, step));
    return TUTTI_OK;
}

/* Gathers the kernels' sources; what lies in another process's private memory is fetched into scratch first. */
static tutti_status find_sources(struct tti_op *op, const struct tti_step *step, int count, uint64_t bytes)
{
    tutti_comm *comm = op->comm;
    for (int rank = 0; rank < count; rank++) {
        uint64_t offset = step->source.offset + op->walk.done;
        bool own = rank == comm->rank && (step->source.space == TTI_STAGE || step->source.space == TTI_BOUNCED);
        char *source = own ? (char *)(uintptr_t)op->in + step->own + op->walk.done
                           : address(op, rank, (enum tti_space)step->source.space, offset);
        if (source == NULL) {
            source = comm->engine->scratch + (size_t)rank * TTI_SCRATCH_BYTES;
            TTI_TRY(tti_place_fetch(comm, op->shape.kind, rank,
                                    *tti_op_place(op, rank, (enum tti_space)step->source.space), offset, source,
                                    bytes));
        }
        comm->engine->sources[rank] = source;
        if (op->reducer.code == TTI_REDUCE_SCALED_SUM)
            comm->engine->factors[rank] = tti_call_of(comm, rank, comm->sequence)->factor;
    }
    return TUTTI_OK;
}

const double *tti_op_factors(const struct tti_op *op)
{
    return op->reducer.code == TTI_REDUCE_SCALED_SUM ? op->comm->engine->factors : NULL;
}

static tutti_status reduce_step(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    tutti_comm *comm = op->comm;
    TTI_TRY(find_sources(op, step, step->sources, bytes));
    int targets = step->target.rank == TTI_ALL ? comm->size : 1;
    bool stream = step->store == TTI_STREAMED;
    for (int k = 0; k < targets; k++) {
        int rank = targets == 1 && step->target.rank != TTI_ALL ? step->target.rank : (comm->rank + k) % comm->size;
        comm->engine->targets[k] = address(op, rank, (enum tti_space)step->target.space,
                                           step->target.offset + op->walk.done);
        /* in place the line to be written was just read: past the caches it would travel once more */
        if (rank < step->sources && comm->engine->targets[k] == comm->engine->sources[rank]) stream = false;
    }
    tti_reduce(&op->reducer, comm->engine->sources, tti_op_factors(op), step->sources, comm->engine->targets, targets,
               bytes / op->shape.element, stream);
    return TUTTI_OK;
}

static tutti_status prefix_step(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    tutti_comm *comm = op->comm;
    TTI_TRY(find_sources(op, step, comm->size, bytes));
    bool stream = step->store == TTI_STREAMED;
    for (int rank = 0; rank < comm->size; rank++) {
        comm->engine->targets[rank] = address(op, rank, TTI_OUT, step->target.offset + op->walk.done);
        if (comm->engine->targets[rank] == comm->engine->sources[rank]) stream = false;
    }
    tti_scan(&op->reducer, comm->engine->sources, tti_op_factors(op), comm->size, comm->engine->targets,
             step->exclusive, bytes / op->shape.element, stream);
    return TUTTI_OK;
}

static tutti_status exchange_step(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    tti_swap(address(op, step->source.rank, (enum tti_space)step->source.space, step->source.offset + op->walk.done),
             address(op, step->target.rank, (enum tti_space)step->target.space, step->target.offset + op->walk.done),
             bytes);
    return TUTTI_OK;
}

/* What a simulated rank pays for: a copy counts once, every further source or target once more. */
static uint64_t weight_of(const struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    uint64_t size = (uint64_t)op->comm->size, targets = step->target.rank == TTI_ALL ? size : 1;
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_COPY: return targets * bytes;
    case TTI_STEP_REDUCE: return ((uint64_t)step->sources + targets - 1) * bytes;
    default: return 2 * targets * bytes; /* all of a prefix's inputs and outputs, both sides of an exchange */
    }
}

static tutti_status move_some(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_COPY: return copy_step(op, step, bytes);
    case TTI_STEP_REDUCE: return reduce_step(op, step, bytes);
    case TTI_STEP_PREFIX: return prefix_step(op, step, bytes);
    default: return exchange_step(op, step, bytes);
    }
}

static tutti_status simulate_some(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    tutti_status status = tti_sim_move(weight_of(op, step, bytes)) ? move_some(op, step, bytes) : TUTTI_OK;
    tti_sim_moved();
    return status;
}

/* Moves data in bounded pieces, so that a comm that broke is noticed in time. */
tutti_status tti_op_move(struct tti_op *op, const struct tti_step *step)
{
    bool fetches = op->shape.path == TTI_ATTACH && step->kind == TTI_STEP_REDUCE;
    uint64_t most = fetches ? TTI_SCRATCH_BYTES : PIECE_BYTES;
    while (op->walk.done < step->bytes) {
        uint64_t bytes = step->bytes - op->walk.done < most ? step->bytes - op->walk.done : most;
        TTI_TRY(tti_sim == NULL ? move_some(op, step, bytes) : simulate_some(op, step, bytes));
        op->walk.done += bytes;
        if (op->walk.done < step->bytes && tti_comm_is_broken(op->comm)) return TUTTI_IN_PROGRESS;
    }
    op->walk.done = 0;
    return TUTTI_OK;
}
