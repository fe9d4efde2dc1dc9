/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread-local op: it was started, is alone, and its thread soon waits for it. See thread_local_op.c.
 */
#ifndef TTI_COLLECTIVE_THREAD_LOCAL_OP_H
#define TTI_COLLECTIVE_THREAD_LOCAL_OP_H

#include "collective/op/queue.h"

/* Starts the comm's op as a thread-local op and gives its handle, if that suits it. The queue must be ready. */
bool tti_thread_local_op_start(struct tti_op *op, tutti_op *handle);
/* Waits for it. OK: it has ended, and its handle is void. IN_PROGRESS: it is in the queue by now, or must be waited for
 * as if it were. */
tutti_status tti_thread_local_op_wait(struct tti_started *started);

/* Puts the thread-local op, if there is one, into the queue. */
void tti_thread_local_op_put_down(tutti_comm *comm);
static inline void tti_thread_local_op_clear(tutti_comm *comm)
{
    if (atomic_load_explicit(&comm->queue.thread_local_op, memory_order_acquire) != NULL)
        tti_thread_local_op_put_down(comm);
}

#endif
