/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_COLLECTIVE_EXECUTOR_H
#define TTI_COLLECTIVE_EXECUTOR_H

#include "collective/comm.h"

/* Does what can be done now; IN_PROGRESS when it must wait (op->waiting_for says for whom). Never blocks. */
tutti_status tti_op_progress(void *op);

/* Ends a failed operation: publishes that this rank does nothing more, and waits, at most fence_ms, until no peer can
 * touch its buffers any more. */
void tti_op_fence(struct tti_op *op);

#endif
