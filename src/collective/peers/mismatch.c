/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds that ranks that share memory made different calls, or gave different counts in a v-form, and tells all of them.
 */
#include "collective/comm/epoch.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"

/* Returns true if this rank's slot holds that operation. */
static bool holds(const tutti_comm *comm, uint64_t sequence)
{
    uint64_t entry = atomic_load_explicit(&tti_slot_of(comm, comm->rank, sequence)->entry, memory_order_relaxed);
    return (uint32_t)(entry >> 32) == (uint32_t)sequence;
}

/* Returns the first operation that is known to differ, up to this rank's present one; 0: none is. */
static uint64_t first_difference(const tutti_comm *comm, int peer)
{
    for (uint64_t back = comm->memory->window; back-- > 0;) {
        uint64_t sequence = comm->sequence - back;
        if (comm->sequence > back && holds(comm, sequence) && tti_peer_called_otherwise(comm, peer, sequence))
            return sequence;
    }
    return 0;
}

/* `call`: the present call of this rank. */
static void describe_difference(const tutti_comm *comm, uint64_t first, int peer, const struct tti_call *call,
                                char *text, size_t bytes)
{
    struct tti_call ours = first == comm->sequence ? *call : *tti_call_of(comm, comm->rank, first);
    struct tti_call theirs = *tti_call_of(comm, peer, first);
    tti_call_describe_two(first, comm->rank, &ours, peer, &theirs, text, bytes);
}

tutti_status tti_op_mismatch(struct tti_op *op, int peer)
{
    char text[640];
    struct tti_lanes *lanes = op->comm->lanes;
    if (lanes != NULL) {
        if (tti_lane_to(lanes, peer) != NULL) lanes->differs.peer = peer;
        return TUTTI_IN_PROGRESS;
    }
    uint64_t first = first_difference(op->comm, peer);
    uint32_t epoch = atomic_load_explicit(&op->comm->memory->posts[peer].epoch, memory_order_relaxed);
    if (epoch != op->comm->traits.era.made)
        return tti_epoch_refuse(op->comm, (enum tti_kind)op->call.kind, peer, "the post", epoch);
    describe_difference(op->comm, first == 0 ? op->comm->sequence : first, peer, &op->call, text, sizeof text);
    return tti_comm_break(op->comm, (enum tti_kind)op->call.kind, TUTTI_ERR_MISMATCH, peer, "%s", text);
}

/* If both ranks have made the call, both know that they differ. A peer that has not left, and made another call where
 * this rank leaves, gets its own error. */
void tti_leave_compare(tutti_comm *comm, const struct tti_call *call)
{
    char text[640];
    atomic_thread_fence(memory_order_seq_cst); /* one of two that leave together sees the other */
    for (int peer = 0; peer < comm->size; peer++) {
        uint64_t first = first_difference(comm, peer);
        bool left = atomic_load_explicit(&comm->memory->posts[peer].left, memory_order_acquire) >= TTI_CALLS_NO_MORE;
        if (tti_comm_is_broken(comm)) return; /* somebody has noticed */
        if (first == 0 || (first == comm->sequence && !left)) continue;
        describe_difference(comm, first, peer, call, text, sizeof text);
        tti_comm_leave_differing(comm, peer, text);
        return;
    }
}

static tutti_status counts_differ(struct tti_op *op, const struct tti_unequal *unequal)
{
    tutti_comm *comm = op->comm;
    int from = unequal->from, to = unequal->to;
    struct tti_call sender = *tti_call_of(comm, from, comm->sequence),
                    receiver = *tti_call_of(comm, to, comm->sequence);
    char sender_site[112], receiver_site[112];
    tti_site_describe(&sender.site, sender_site, sizeof sender_site);
    tti_site_describe(&receiver.site, receiver_site, sizeof receiver_site);
    return tti_comm_break(comm, op->shape.kind, TUTTI_ERR_MISMATCH, from == comm->rank ? to : from,
                          "counts differ in %s #%llu: rank %d%s sends %llu elements to rank %d%s, which receives %llu",
                          tti_kind_name(op->shape.kind), (unsigned long long)comm->sequence, from, sender_site,
                          (unsigned long long)unequal->sent, to, receiver_site, (unsigned long long)unequal->received);
}

tutti_status tti_op_check_counts(struct tti_op *op)
{
    struct tti_unequal unequal;
    return tti_shape_is_unequal(&op->shape, op->comm->rank, &unequal) ? counts_differ(op, &unequal) : TUTTI_OK;
}
