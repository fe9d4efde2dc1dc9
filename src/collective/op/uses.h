/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that an op on a stream uses: whether it may, the order with what else uses it, and that it stays until the
 * op has ended, whatever becomes of its handle.
 */
#ifndef TTI_COLLECTIVE_USES_H
#define TTI_COLLECTIVE_USES_H

#include "collective/comm/comm.h"
#include "device/ops.h"

struct tti_use {
    struct tti_device_buffer *buffer; /* a reference; NULL: memory that is in no buffer */
    tutti_access access;
};

struct tti_uses {
    int count;
    bool held;
    struct tti_use uses[];
};

/* All memory that the op uses, where it is memory of the stream's device and can be used. NULL: *error says why. */
struct tti_uses *tti_uses_take(const struct tti_op *op, struct tti_stream *stream, tutti_error *error);
/* Before the op is put on the stream: this waits for uses on others, and the memory stays from now on. After that:
 * others wait for this one. */
tutti_status tti_uses_begin(struct tti_uses *uses, struct tti_stream *stream, tutti_error *error);
tutti_status tti_uses_end(const struct tti_uses *uses, struct tti_stream *stream, tutti_error *error);
/* The op has ended; it may begin again. */
void tti_uses_let_go(struct tti_uses *uses);
/* The op has ended, and something may use its memory at any time: none of it is ever given back. */
void tti_uses_lose(struct tti_uses *uses);
void tti_uses_free(struct tti_uses *uses); /* NULL is ignored */

#endif
