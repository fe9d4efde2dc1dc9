/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTI_COLLECTIVE_EXECUTOR_H
#define TTI_COLLECTIVE_EXECUTOR_H

#include "collective/engine/engine.h"

/* Does what can be done now; IN_PROGRESS when it must wait (op->waiting_for says for whom). Never blocks. */
tutti_status tti_shared_progress(struct tti_op *op);

/* As much of it as can be done without moving much: the others see that this rank has entered. */
tutti_status tti_shared_open(struct tti_op *op);

/* Of a step that moves data (move.c). IN_PROGRESS: the comm broke. */
tutti_status tti_op_move(struct tti_op *op, const struct tti_step *step);
/* Where a rank's buffer lies, as it said when it entered. */
const struct tti_place *tti_op_place(const struct tti_op *op, int rank, enum tti_space space);
/* Of the ranks that comm->engine->sources are of; NULL: the reduction has none. */
const double *tti_op_factors(const struct tti_op *op);

#endif
