/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that an op on a stream uses: whether it may, and the order with what else uses it.
 */
#ifndef TTI_COLLECTIVE_USES_H
#define TTI_COLLECTIVE_USES_H

#include "collective/comm/comm.h"
#include "device/ops.h"

/* OK if all of it is memory of the stream's device, and can be used. */
tutti_status tti_uses_check(const struct tti_op *op, struct tti_stream *stream, tutti_error *error);
/* Before the op is put on the stream: this waits for uses on others. After that: others wait for this one. */
tutti_status tti_uses_begin(const struct tti_op *op, struct tti_stream *stream, tutti_error *error);
tutti_status tti_uses_end(const struct tti_op *op, struct tti_stream *stream, tutti_error *error);

#endif
