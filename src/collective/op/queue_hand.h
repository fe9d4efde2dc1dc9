/* SPDX-License-Identifier: Apache-2.0
 *
 * The op at hand: started, alone, and soon waited for by its thread. See queue_hand.c.
 */
#ifndef TTI_COLLECTIVE_QUEUE_HAND_H
#define TTI_COLLECTIVE_QUEUE_HAND_H

#include "collective/op/queue.h"

/* Starts the comm's op, at hand, where that suits it; its handle goes to comm->caller.starting. The queue must be ready. */
bool tti_hand_start(struct tti_op *op);
/* OK: it has ended, and its handle is void. IN_PROGRESS: it must be waited for as one of the queue, or is one by now. */
tutti_status tti_hand_wait(struct tti_started *started);

/* What is at hand, if anything is, becomes one of the queue. */
void tti_hand_put_down(tutti_comm *comm);
static inline void tti_hand_clear(tutti_comm *comm)
{
    if (atomic_load_explicit(&comm->queue.at_hand, memory_order_acquire) != NULL) tti_hand_put_down(comm);
}

#endif
