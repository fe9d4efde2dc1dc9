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

/* The buffers that are found. Adding fails only for lack of memory. */
struct tti_device_buffer;
bool tti_find_add(struct tti_device_buffer *buffer);
void tti_find_remove(struct tti_device_buffer *buffer); /* one that is not there is ignored */
void tti_find_forked(void);                             /* in the child */

#endif
