/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_COLLECTIVE_EXECUTOR_H
#define TTI_COLLECTIVE_EXECUTOR_H

#include "collective/comm.h"

/* Does what can be done now; IN_PROGRESS when it must wait (op->waiting_for says for whom). Never blocks. */
tutti_status tti_shared_progress(struct tti_op *op);

/* As much of it as can be done without moving much: the others see that this rank has entered. */
tutti_status tti_shared_open(struct tti_op *op);

#endif
