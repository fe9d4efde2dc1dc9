/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_COLLECTIVE_EXECUTOR_H
#define TTI_COLLECTIVE_EXECUTOR_H

#include "collective/comm/comm.h"

/* Does what can be done now; IN_PROGRESS when it must wait (op->waiting_for says for whom). Never blocks. */
tutti_status tti_shared_progress(struct tti_op *op);

/* As much of it as can be done without moving much: the others see that this rank has entered. */
tutti_status tti_shared_open(struct tti_op *op);

/* Of an operation that `peer` and this rank have entered: whether they had made other calls by then. */
static inline bool tti_calls_differ(const tutti_comm *comm, int peer, uint64_t sequence)
{
    uint64_t mine = atomic_load_explicit(&tti_slot_of(comm, comm->rank, sequence)->entry, memory_order_relaxed);
    uint64_t other = atomic_load_explicit(&tti_slot_of(comm, peer, sequence)->entry, memory_order_acquire);
    return mine >> 32 == other >> 32 && ((mine ^ other) & ~UINT64_C(1)) != 0;
}
/* Breaks the comm: this rank and `peer` have made different calls. Names the first of those that both still hold. (differ.c) */
__attribute__((cold)) tutti_status tti_op_mismatch(struct tti_op *op, int peer);
/* This rank has entered `call`, by which it leaves: warns if one that has left before had made other calls, which nobody has
 * noticed. A root may have given what the others have not taken yet. */
void tti_leave_compare(const tutti_comm *comm, const struct tti_call *call);
/* Of a v-form, once all have entered: whether what one sends is what the other receives. */
tutti_status tti_op_check_counts(struct tti_op *op);

/* Of a step that moves data (move.c). IN_PROGRESS: the comm broke. */
tutti_status tti_op_move(struct tti_op *op, const struct tti_step *step);
/* Where a rank's buffer lies, as it said when it entered. */
const struct tti_place *tti_op_place(const struct tti_op *op, int rank, enum tti_space space);
/* Of the ranks that comm->sources are of; NULL: the reduction has none. */
const double *tti_op_factors(const struct tti_op *op);

#endif
