/* SPDX-License-Identifier: Apache-2.0
 *
 * The uses of a buffer: the marks of the last write and of the reads since.
 */
#ifndef TTI_DEVICE_BUFFER_USES_H
#define TTI_DEVICE_BUFFER_USES_H

#include "device/buffer.h"

/* Returns true if all of them are done. Does not wait. */
bool tti_uses_passed(struct tti_device_buffer *buffer);
/* Returns the one stream that all of them are on, with a reference, while work can be put there; otherwise NULL. */
struct tti_stream *tti_uses_only(struct tti_device_buffer *buffer);
/* Makes sure that all of them will pass. */
void tti_uses_settle(struct tti_device_buffer *buffer);
/* Forgets them. */
void tti_uses_clear(struct tti_device_buffer *buffer);

#endif
