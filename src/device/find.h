/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a pointer leads: the one place that says whether it is private host memory or a device's, and which.
 */
#ifndef TTI_DEVICE_FIND_H
#define TTI_DEVICE_FIND_H

#include "device/ops.h"

/* Of any pointer. One load where no device is open; else a search among all buffers, and then, if it is in none, a question
 * to the driver of each open device. `found` holds references until tti_found_give. */
void tti_memory_find(const void *pointer, struct tti_found *found);
void tti_found_give(struct tti_found *found); /* one that holds none is ignored */

/* OK if these bytes (not 0) are memory of the stream's device, and can be used: *buffer is the one that they are in, with a
 * reference, or NULL. Else *error says what they are, and calls them `name`. */
struct tti_device_buffer;
tutti_status tti_memory_take(const void *pointer, uint64_t bytes, const char *name, const struct tti_stream *stream,
                             struct tti_device_buffer **buffer, tutti_error *error);

/* The buffers that are found, from when they have memory until it is given back to the device, which may be long after they
 * were dropped. Adding fails only for lack of memory. Of the last ones that were removed and `was_used` it is known where they
 * lay, so that who still uses such memory hears what it was. */
bool tti_find_add(struct tti_device_buffer *buffer);
void tti_find_remove(struct tti_device_buffer *buffer, bool was_used); /* one that is not there is ignored */
void tti_find_forked(void);                                            /* in the child */

#endif
