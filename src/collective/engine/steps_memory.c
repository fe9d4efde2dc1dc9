/* SPDX-License-Identifier: Apache-2.0
 *
 * Does steps that move data between memory that this rank can reach: copies, reductions, folds, prefixes, exchanges.
 */
#include "base/alloc.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "collective/engine/run.h"
#include "collective/peers/net.h"
#include "collective/reduce/copy.h"
#include <errno.h>

enum {
    PIECE_BYTES = 1 << 20, /* after so much copying it is checked whether the comm broke */
    FEW_PARTS = 16         /* a fold of more parts allocates memory */
};

/* ---- Where data lie -------------------------------------------------------------------------------------------- */

static const struct tti_post *post_of(const tutti_comm *comm, int rank)
{
    return &comm->memory->posts[tti_place_here(comm->memory, rank)];
}

const struct tti_place *tti_op_place(const struct tti_op *op, int rank, enum tti_space space)
{
    const tutti_comm *comm = op->comm;
    const struct tti_met *met = &tti_slot_of(comm, tti_place_here(comm->memory, rank), comm->sequence)->met;
    if (space == TTI_TEMP) return &post_of(comm, rank)->temp;
    return space == TTI_IN ? &met->in : &met->out;
}

/* Adds as numbers: a buffer of no elements may be NULL. */
static char *at(const void *base, uint64_t offset)
{
    return (char *)((uintptr_t)base + offset);
}

/* Returns the address here of another rank's region; NULL if it is another process's private memory. */
static char *address_of_other(const struct tti_op *op, int rank, enum tti_space space, uint64_t offset)
{
    const tutti_comm *comm = op->comm;
    struct tti_place place = *tti_op_place(op, rank, space);
    bool here = place.reach != TTI_PRIVATE || comm->memory->one_process ||
                post_of(comm, rank)->pid == post_of(comm, comm->rank)->pid;
    char *base = tti_place_resolve(comm, place, here);
    return base == NULL ? NULL : base + offset;
}

/* Returns the address here of a region; NULL if it is another process's private memory. */
char *tti_op_address(const struct tti_op *op, int rank, enum tti_space space, uint64_t offset)
{
    tutti_comm *comm = op->comm;
    bool own = rank == comm->rank;
    switch (space) {
    case TTI_STAGE:
        if (offset < TTI_PAYLOAD_BYTES) return (char *)tti_slot_of(comm, rank, comm->sequence)->payload + offset;
        return tti_stage_of(op, rank) + offset - TTI_PAYLOAD_BYTES;
    case TTI_BOUNCED: return comm->memory->bounce + (size_t)rank * comm->memory->bounce_bytes + offset;
    case TTI_TEMP: return own ? at(comm->lanes->work.temp, offset) : address_of_other(op, rank, space, offset);
    case TTI_IN:
    case TTI_OUT: break;
    }
    offset += op->walk.shift;
    if (!own) return address_of_other(op, rank, space, offset);
    return at(space == TTI_IN ? op->in : op->out, offset);
}

static char *address(const struct tti_op *op, const struct tti_region *region)
{
    return tti_op_address(op, region->rank, (enum tti_space)region->space, region->offset + op->walk.done);
}

/* Returns true if a rank has failed and so has its buffers back; one that has left the operation still waits there for
 * all to leave. */
static bool has_failed(const struct tti_op *op, int rank)
{
    return atomic_load_explicit(&post_of(op->comm, rank)->progress, memory_order_acquire) == tti_mark(op, TTI_FAILED);
}

/* Reads or writes memory that has no address here. If the rank has ended, and with it the op, the wait finds out
 * why. */
static tutti_status attach(struct tti_op *op, int rank, enum tti_space space, uint64_t offset, char *here,
                           uint64_t bytes, bool writes)
{
    tutti_comm *comm = op->comm;
    uint64_t shift = space == TTI_TEMP ? 0 : op->walk.shift;
    uint64_t there = tti_op_place(op, rank, space)->value + offset + shift;
    int why = tti_attach(post_of(comm, rank)->pid, there, here, bytes, writes);
    if (why == 0) return TUTTI_OK;
    op->waiting_for = rank;
    op->awaited = tti_mark(op, 1);
    if (why == ESRCH || has_failed(op, rank)) return TUTTI_IN_PROGRESS;
    TTI_TRY(tti_comm_health(comm, op->shape.kind, true));
    return tti_attach_failed(comm, op->shape.kind, rank, &(struct tti_attached){there, here, bytes, writes}, why);
}

/* ---- Copies ---------------------------------------------------------------------------------------------------- */

/* Returns true if that rank will read the data on the core where this one writes them. */
static bool reads_here(const tutti_comm *comm, int rank)
{
    if (rank == comm->rank || !comm->traits.crowded) return rank == comm->rank;
    return atomic_load_explicit(&comm->memory->posts[rank].core, memory_order_relaxed) ==
           atomic_load_explicit(&comm->memory->posts[comm->rank].core, memory_order_relaxed);
}

/* Copies to all ranks; those that read on this core come first, from the own one on. */
static void copy_to_all(struct tti_op *op, const struct tti_step *step, const char *source, uint64_t bytes)
{
    tutti_comm *comm = op->comm;
    int here = 0, elsewhere = comm->size;
    for (int k = 0; k < comm->size; k++) {
        int rank = (comm->rank + k) % comm->size;
        char *target = tti_op_address(op, rank, (enum tti_space)step->target.space,
                                      step->target.offset + op->walk.done);
        bool stays = step->store != TTI_MIXED || reads_here(comm, rank);
        comm->engine->targets[stays ? here++ : --elsewhere] = target;
    }
    if (here < comm->size)
        tti_copy_apart(comm->engine->targets, here, comm->size, source, bytes);
    else
        tti_copy_to_all(comm->engine->targets, comm->size, source, bytes, (enum tti_store)step->store);
}

/* Half of a mixed copy stays in this core's caches, from which another core could fetch it only at a high cost. */
static enum tti_store store_for(const struct tti_op *op, const struct tti_step *step)
{
    bool leaves = step->store == TTI_MIXED && !reads_here(op->comm, step->target.rank);
    return leaves ? TTI_STREAMED : (enum tti_store)step->store;
}

static tutti_status copy_step(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    const struct tti_region *from = &step->source;
    char *source = address(op, from);
    if (step->target.rank == TTI_ALL) {
        copy_to_all(op, step, source, bytes);
        return TUTTI_OK;
    }
    char *target = address(op, &step->target);
    if (source == NULL && from->rank != op->comm->rank)
        return attach(op, from->rank, (enum tti_space)from->space, from->offset + op->walk.done, target, bytes, false);
    if (target == NULL)
        return attach(op, step->target.rank, (enum tti_space)step->target.space, step->target.offset + op->walk.done,
                      source, bytes, true);
    bool across = step->target.space == TTI_STAGE || step->target.space == TTI_BOUNCED;
    if (across)
        tti_copy_across(&op->comm->engine->staged_copy, target, source, bytes, TTI_ACROSS_FROM);
    else if (target != source)
        tti_copy(target, source, bytes, store_for(op, step));
    return TUTTI_OK;
}

/* ---- Reductions ------------------------------------------------------------------------------------------------ */

/* Collects the kernels' sources; data in another process's private memory are fetched into scratch first. */
static tutti_status find_sources(struct tti_op *op, const struct tti_step *step, int count, uint64_t bytes)
{
    tutti_comm *comm = op->comm;
    for (int rank = 0; rank < count; rank++) {
        uint64_t offset = step->source.offset + op->walk.done;
        bool own = rank == comm->rank && (step->source.space == TTI_STAGE || step->source.space == TTI_BOUNCED);
        char *source = own ? (char *)(uintptr_t)op->in + step->own + op->walk.done
                           : tti_op_address(op, rank, (enum tti_space)step->source.space, offset);
        if (source == NULL) {
            source = comm->engine->scratch + (size_t)rank * TTI_SCRATCH_BYTES;
            TTI_TRY(attach(op, rank, (enum tti_space)step->source.space, offset, source, bytes, false));
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
        comm->engine->targets[k] = tti_op_address(op, rank, (enum tti_space)step->target.space,
                                                  step->target.offset + op->walk.done);
        /* in place, the line to be written was just read: written past the caches it would travel once more */
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
        comm->engine->targets[rank] = tti_op_address(op, rank, TTI_OUT, step->target.offset + op->walk.done);
        if (comm->engine->targets[rank] == comm->engine->sources[rank]) stream = false;
    }
    tti_scan(&op->reducer, comm->engine->sources, tti_op_factors(op), comm->size, comm->engine->targets,
             step->exclusive, bytes / op->shape.element, stream);
    return TUTTI_OK;
}

static tutti_status exchange_step(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    tti_swap(address(op, &step->source), address(op, &step->target), bytes);
    return TUTTI_OK;
}

/* ---- Folds ----------------------------------------------------------------------------------------------------- */

static double factor_of(const struct tti_op *op, int rank)
{
    return tti_call_of(op->comm, tti_place_here(op->comm->memory, rank), op->comm->sequence)->factor;
}

static tutti_status find_parts(struct tti_op *op, const struct tti_step *step, uint64_t bytes,
                               struct tti_fold_source *sources)
{
    const struct tti_part *parts = &op->walk.plan->parts[step->first];
    uint64_t done = op->walk.done, done_partial = done / op->shape.element * op->shape.accumulator;
    for (int i = 0; i < step->sources; i++) {
        int rank = parts[i].at.rank;
        bool own = rank == op->comm->rank;
        enum tti_space space = (enum tti_space)parts[i].at.space;
        uint64_t offset = parts[i].at.offset + (parts[i].partial ? done_partial : done);
        char *source = tti_op_address(op, rank, space, offset);
        if (source == NULL && !own) { /* this is a leaf: others' partials are not read */
            source = op->comm->engine->scratch + (size_t)i * TTI_SCRATCH_BYTES;
            TTI_TRY(attach(op, rank, space, offset, source, bytes, false));
        }
        double factor = own ? op->reducer.factor : factor_of(op, rank);
        sources[i] = (struct tti_fold_source){source, parts[i].first, parts[i].ranks, parts[i].partial, factor};
    }
    return TUTTI_OK;
}

static tutti_status fold_parts(struct tti_op *op, const struct tti_step *step, uint64_t bytes,
                               struct tti_fold_source *sources)
{
    uint64_t elements = bytes / op->shape.element, done = op->walk.done / op->shape.element;
    size_t each = step->value == 0 ? op->shape.accumulator : op->shape.element;
    char *target = tti_op_address(op, step->target.rank, (enum tti_space)step->target.space,
                                  step->target.offset + done * each);
    TTI_TRY(find_parts(op, step, bytes, sources));
    tti_fold(&op->reducer, sources, step->sources, (int)step->value, target, elements);
    return TUTTI_OK;
}

static tutti_status fold_step(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    struct tti_fold_source few[FEW_PARTS], *sources = few;
    if (step->sources > FEW_PARTS) sources = tti_calloc((size_t)step->sources, sizeof *sources);
    if (sources == NULL)
        return tti_comm_break(op->comm, op->shape.kind, TUTTI_ERR_MEMORY, op->comm->rank,
                              "rank %d has no memory to combine %d contributions", op->comm->rank, step->sources);
    tutti_status status = fold_parts(op, step, bytes, sources);
    if (sources != few) tti_free(sources);
    return status;
}

/* Returns true if a part of a fold must be fetched first. */
static bool has_fetched_part(const struct tti_op *op, const struct tti_step *step)
{
    const struct tti_part *parts = &op->walk.plan->parts[step->first];
    if (op->comm->engine->scratch == NULL) return false;
    for (int i = 0; i < step->sources; i++)
        if (parts[i].at.rank != op->comm->rank && address(op, &parts[i].at) == NULL) return true;
    return false;
}

/* ---- One step -------------------------------------------------------------------------------------------------- */

/* Returns the bytes for which a simulated rank pays: a copy counts once, every further source or target once more. Over
 * messages reads and writes both count. */
static uint64_t weight_of(const struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    uint64_t size = (uint64_t)op->comm->size, targets = step->target.rank == TTI_ALL ? size : 1;
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_COPY: return (op->shape.path == TTI_MESSAGES ? 2 : targets) * bytes;
    case TTI_STEP_FOLD: return ((uint64_t)step->sources + 1) * bytes;
    case TTI_STEP_REDUCE: return ((uint64_t)step->sources + targets - 1) * bytes;
    default: return 2 * targets * bytes; /* all inputs and outputs of a prefix, both sides of an exchange */
    }
}

static tutti_status move_some(struct tti_op *op, const struct tti_step *step, uint64_t bytes)
{
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_COPY: return copy_step(op, step, bytes);
    case TTI_STEP_REDUCE: return reduce_step(op, step, bytes);
    case TTI_STEP_FOLD: return fold_step(op, step, bytes);
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

/* Returns the most bytes of a piece: fetched data have only the room of the scratch memory. */
static uint64_t piece_of(const struct tti_op *op, const struct tti_step *step)
{
    bool fetches = step->kind == TTI_STEP_FOLD ? has_fetched_part(op, step)
                                               : op->shape.path == TTI_ATTACH && step->kind == TTI_STEP_REDUCE;
    return fetches ? TTI_SCRATCH_BYTES : PIECE_BYTES;
}

/* Moves data in bounded pieces, so that a comm that broke is noticed in time. */
tutti_status tti_step_move(struct tti_op *op, const struct tti_step *step)
{
    uint64_t most = piece_of(op, step);
    while (op->walk.done < step->bytes) {
        uint64_t bytes = step->bytes - op->walk.done < most ? step->bytes - op->walk.done : most;
        TTI_TRY(tti_sim == NULL ? move_some(op, step, bytes) : simulate_some(op, step, bytes));
        op->walk.done += bytes;
        if (op->walk.done < step->bytes && tti_comm_is_broken(op->comm)) return TUTTI_IN_PROGRESS;
    }
    op->walk.done = 0;
    return TUTTI_OK;
}
