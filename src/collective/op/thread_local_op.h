/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread-local op: started, alone, and soon waited for by its thread. See thread_local_op.c.
 */
#ifndef TTI_COLLECTIVE_THREAD_LOCAL_OP_H
#define TTI_COLLECTIVE_THREAD_LOCAL_OP_H

#include "collective/op/queue.h"

/* Starts the comm's op, as a thread-local op, where that suits it; its handle is given. The queue must be ready. */
bool tti_thread_local_op_start(struct tti_op *op, tutti_op *handle);
/* OK: it has ended, and its handle is void. IN_PROGRESS: it must be waited for as one of the queue, or is one by now. */
tutti_status tti_thread_local_op_wait(struct tti_started *started);

/* What is thread-local, if anything is, becomes one of the queue. */
void tti_thread_local_op_put_down(tutti_comm *comm);
static inline void tti_thread_local_op_clear(tutti_comm *comm)
{
    if (atomic_load_explicit(&comm->queue.thread_local_op, memory_order_acquire) != NULL)
        tti_thread_local_op_put_down(comm);
}

#endif
