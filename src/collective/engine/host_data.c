/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider `host`: steps that move data within this rank's memory, or from that of its host's ranks.
 */
#include "base/alloc.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/engine/engine.h"
#include "collective/peers/local.h"
#include "collective/peers/net.h"
#include "collective/reduce/copy.h"

uint64_t tti_host_offset(const struct tti_op *op, const struct tti_region *region)
{
    return region->space == TTI_TEMP ? region->offset : region->offset + op->walk.shift;
}

/* By numbers: a buffer of no elements may be NULL. */
char *tti_host_address(const struct tti_op *op, const struct tti_region *region)
{
    const void *base = op->comm->lanes->temp;
    if (region->rank != op->comm->rank) return tti_local_address(op, region);
    if (region->space == TTI_IN) base = op->in;
    if (region->space == TTI_OUT) base = op->out;
    return (char *)((uintptr_t)base + tti_host_offset(op, region));
}

/* Where the parts of a fold lie, from `done` bytes on; those of other processes are read first. */
static tutti_status find_sources(struct tti_op *op, const struct tti_step *step, uint64_t done, uint64_t bytes,
                                 struct tti_fold_source *sources)
{
    const struct tti_part *parts = &op->walk.plan->parts[step->first];
    for (int i = 0; i < step->sources; i++) {
        bool partial = parts[i].partial, own = parts[i].at.rank == op->comm->rank;
        uint64_t offset = partial ? done / op->shape.element * op->shape.accumulator : done;
        char *at = tti_host_address(op, &parts[i].at);
        if (at == NULL && !own) {
            at = op->comm->local->scratch + (size_t)i * TTI_SCRATCH_BYTES;
            TTI_TRY(tti_local_fetch(op, &parts[i].at, offset, at, bytes));
        } else {
            at = (char *)((uintptr_t)at + offset);
        }
        double factor = own ? op->reducer.factor : tti_local_factor(op, parts[i].at.rank);
        sources[i] = (struct tti_fold_source){at, parts[i].first, parts[i].ranks, partial, factor};
    }
    return TUTTI_OK;
}

/* Parts of other processes are folded piece by piece: only leaves are. */
static uint64_t piece_of(const struct tti_op *op, const struct tti_step *step)
{
    const struct tti_part *parts = &op->walk.plan->parts[step->first];
    for (int i = 0; i < step->sources; i++)
        if (parts[i].at.rank != op->comm->rank && tti_host_address(op, &parts[i].at) == NULL) return TTI_SCRATCH_BYTES;
    return step->bytes;
}

static tutti_status fold(struct tti_op *op, const struct tti_step *step)
{
    struct tti_fold_source few[16], *sources = few;
    int count = step->sources;
    tutti_status status = TUTTI_OK;
    if (count > 16) sources = tti_calloc((size_t)count, sizeof *sources);
    if (sources == NULL)
        return tti_comm_break(op->comm, op->shape.kind, TUTTI_ERR_MEMORY, op->comm->rank,
                              "rank %d has no memory to combine %d contributions", op->comm->rank, count);
    uint64_t piece = piece_of(op, step), target_bytes = step->value == 0 ? op->shape.accumulator : op->shape.element;
    for (uint64_t done = 0; done < step->bytes && status == TUTTI_OK; done += piece) {
        uint64_t bytes = step->bytes - done < piece ? step->bytes - done : piece, elements = bytes / op->shape.element;
        char *target = tti_host_address(op, &step->target) + done / op->shape.element * target_bytes;
        status = find_sources(op, step, done, bytes, sources);
        if (status == TUTTI_OK && tti_move(bytes * ((uint64_t)count + 1)))
            tti_fold(&op->reducer, sources, count, (int)step->value, target, elements);
        tti_moved();
    }
    if (sources != few) tti_free(sources);
    return status;
}

static tutti_status copy(struct tti_op *op, const struct tti_step *step)
{
    char *target = tti_host_address(op, &step->target), *source = tti_host_address(op, &step->source);
    if (source == NULL && step->source.rank != op->comm->rank)
        return tti_local_fetch(op, &step->source, 0, target, step->bytes);
    if (target != source && tti_move(2 * step->bytes))
        tti_copy(target, source, step->bytes, (enum tti_store)step->store);
    tti_moved();
    return TUTTI_OK;
}

tutti_status tti_host_data_step(struct tti_op *op, const struct tti_step *step)
{
    if (step->kind == TTI_STEP_FOLD) return fold(op, step);
    if (step->kind == TTI_STEP_COPY) return copy(op, step);
    tti_local_say(op, step);
    return TUTTI_OK;
}
