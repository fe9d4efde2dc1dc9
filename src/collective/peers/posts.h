/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that share memory and differ, in their calls or in the counts of a v-form.
 */
#ifndef TTI_COLLECTIVE_POSTS_H
#define TTI_COLLECTIVE_POSTS_H

#include "collective/comm/comm.h"

/* Of an operation that `peer` and this rank have entered: whether they had made other calls by then. */
static inline bool tti_calls_differ(const tutti_comm *comm, int peer, uint64_t sequence)
{
    uint64_t mine = atomic_load_explicit(&tti_slot_of(comm, comm->rank, sequence)->entry, memory_order_relaxed);
    uint64_t other = atomic_load_explicit(&tti_slot_of(comm, peer, sequence)->entry, memory_order_acquire);
    return mine >> 32 == other >> 32 && ((mine ^ other) & ~UINT64_C(1)) != 0;
}
/* Breaks the comm: this rank and `peer` have made different calls. Names the first of those that both still hold. */
__attribute__((cold)) tutti_status tti_op_mismatch(struct tti_op *op, int peer);
/* This rank has entered `call`, by which it leaves: warns if one that has left before had made other calls, which nobody has
 * noticed. A root may have given what the others have not taken yet. */
void tti_leave_compare(const tutti_comm *comm, const struct tti_call *call);
/* Of a v-form, once all have entered: whether what one sends is what the other receives. */
tutti_status tti_op_check_counts(struct tti_op *op);

#endif
