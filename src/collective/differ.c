/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that share memory and differ, in their calls or in the counts of a v-form: what all of them are told.
 */
#include "collective/comm.h"
#include "collective/executor.h"

tutti_status tti_op_mismatch(struct tti_op *op, int peer)
{
    tutti_comm *comm = op->comm;
    uint64_t first = comm->sequence;
    for (uint64_t back = comm->window - 1; back > 0; back--) {
        if (comm->sequence <= back) continue;
        uint64_t sequence = comm->sequence - back;
        uint64_t mine = atomic_load_explicit(&tti_slot_of(comm, comm->rank, sequence)->entry, memory_order_relaxed);
        uint64_t other = atomic_load_explicit(&tti_slot_of(comm, peer, sequence)->entry, memory_order_acquire);
        if (mine >> 32 != other >> 32 || ((mine ^ other) & ~UINT64_C(1)) == 0) continue;
        first = sequence;
        break;
    }
    struct tti_call ours = first == comm->sequence ? op->call : *tti_call_of(comm, comm->rank, first);
    struct tti_call theirs = *tti_call_of(comm, peer, first);
    char our_text[160], their_text[160], which[96];
    tti_call_describe(&ours, our_text, sizeof our_text);
    tti_call_describe(&theirs, their_text, sizeof their_text);
    tti_call_compare(&ours, &theirs, which, sizeof which);
    return tti_comm_break(
        comm, (enum tti_kind)op->call.kind, TUTTI_ERR_MISMATCH, peer,
        "ranks differ at operation #%llu: rank %d called %s, but rank %d called %s%s; all ranks must make "
        "the same calls in the same order",
        (unsigned long long)first, comm->rank, our_text, peer, their_text, which);
}

static tutti_status counts_differ(struct tti_op *op, int from, uint64_t sent, int to, uint64_t received)
{
    tutti_comm *comm = op->comm;
    struct tti_call sender = *tti_call_of(comm, from, comm->sequence),
                    receiver = *tti_call_of(comm, to, comm->sequence);
    char sender_site[112], receiver_site[112];
    tti_site_describe(&sender.site, sender_site, sizeof sender_site);
    tti_site_describe(&receiver.site, receiver_site, sizeof receiver_site);
    return tti_comm_break(comm, op->shape.kind, TUTTI_ERR_MISMATCH, from == comm->rank ? to : from,
                          "counts differ in %s #%llu: rank %d%s sends %llu elements to rank %d%s, which receives %llu",
                          tti_kind_name(op->shape.kind), (unsigned long long)comm->sequence, from, sender_site,
                          (unsigned long long)sent, to, receiver_site, (unsigned long long)received);
}

tutti_status tti_op_check_counts(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    const struct tti_shape *shape = &op->shape;
    size_t n = (size_t)shape->size;
    int me = comm->rank;
    for (int peer = 0; peer < shape->size; peer++) {
        const uint64_t *mine = shape->tables + (size_t)me * 4 * n, *other = shape->tables + (size_t)peer * 4 * n;
        const uint64_t *root = shape->root < 0 ? NULL : shape->tables + (size_t)shape->root * 4 * n;
        uint64_t sent = 0, received = 0;
        int from = peer, to = me;
        if (shape->kind == TTI_ALL_TO_ALL_V) {
            sent = other[me];
            received = mine[2 * n + (size_t)peer];
        } else if (shape->kind == TTI_GATHER_V) {
            sent = other[0]; /* row IN_COUNTS of a sender holds its own count, see api_v.c */
            received = root[2 * n + (size_t)peer];
            to = shape->root;
        } else if (shape->kind == TTI_SCATTER_V) {
            sent = root[peer];
            received = other[2 * n];
            from = shape->root;
            to = peer;
        }
        if (sent != received) return counts_differ(op, from, sent, to, received);
    }
    return TUTTI_OK;
}
