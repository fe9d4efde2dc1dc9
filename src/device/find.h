/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the memory of a pointer: the one place that says whether it is private host memory or a device's, and which
 * device's.
 */
#ifndef TTI_DEVICE_FIND_H
#define TTI_DEVICE_FIND_H

#include "device/ops.h"

/* Finds the memory of any pointer: by one load if no device is open; otherwise by a search among all buffers and then,
 * if it is in none, by a question to the driver of each open device. `found` holds references until tti_found_give. */
void tti_memory_find(const void *pointer, struct tti_found *found);
void tti_found_give(struct tti_found *found); /* does nothing if it holds none */

/* Returns OK if these bytes (not 0) are memory of the stream's device, and can be used: *buffer is the buffer that they
 * are in, with a reference, or NULL. Otherwise *error says what they are, and calls them `name`. */
struct tti_device_buffer;
tutti_status tti_memory_take(const void *pointer, uint64_t bytes, const char *name, const struct tti_stream *stream,
                             struct tti_device_buffer **buffer, tutti_error *error);

/* Returns OK if the host may use what the pointer points to. ERR_ARGUMENT: only a GPU can, as *error says. */
tutti_status tti_memory_for_host(const void *pointer, const char *name, tutti_error *error);

/* The buffers that can be found, from when they have memory until it is given back to the device, which may be long
 * after they were dropped. Adding fails only for lack of memory. The places of the last ones that were removed and
 * `was_used` are kept, so that the error for a later use of such memory says what it was. */
bool tti_find_add(struct tti_device_buffer *buffer);
void tti_find_remove(struct tti_device_buffer *buffer, bool was_used); /* does nothing if it is not there */
void tti_find_forked(void);                                            /* called in the child */

#endif
