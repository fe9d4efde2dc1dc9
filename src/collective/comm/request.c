/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the op of a call from its arguments and from what was said about it beforehand.
 */
#include "collective/comm/comm.h"

/* Sets what changes from call to call, whatever its arguments. */
static void renew(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    tti_op_rewind(op);
    op->deadline_ms = comm->caller.deadline_ms;
    op->call.site = comm->caller.site;
    op->edition = 0;
}

struct tti_op *tti_op_fill(tutti_comm *comm, enum tti_kind kind, const void *in, uint64_t in_bytes, void *out,
                           uint64_t out_bytes, uint64_t count, tutti_type type, int root)
{
    struct tti_op *op = &comm->op;
    op->comm = comm;
    op->in = in;
    op->out = out;
    op->in_bytes = in_bytes;
    op->out_bytes = out_bytes;
    op->many = NULL;
    op->watched = comm->traits.siblings != NULL;
    op->reducer.code = TUTTI_SUM;
    op->shape = (struct tti_shape){.kind = kind,
                                   .rank = comm->rank,
                                   .size = comm->size,
                                   .root = root,
                                   .element = type < TUTTI_TYPE_COUNT ? tutti_type_bytes(type) : 1,
                                   .count = count,
                                   .tuning = &comm->tuning};
    struct tti_call *call = &op->call;
    call->kind = (uint8_t)kind;
    call->type = (uint8_t)type;
    call->reduction = TTI_NO_REDUCTION;
    call->in_place = 0;
    call->on_stream = comm->caller.stream != NULL;
    call->root = root;
    call->reduction_signature = call->counts_signature = call->parts = 0;
    call->count = count;
    call->factor = 0;
    comm->caller.repeats = false;
    op->in_place = false;
    renew(op);
    return op;
}
