/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults of device `host`, for tests: what happens on GPUs, on demand. Each takes an open device of kind host; any other
 * handle is ignored.
 */
#ifndef TTI_DEVICE_HOST_FAULT_H
#define TTI_DEVICE_HOST_FAULT_H

#include <stddef.h>
#include <stdint.h>
#include <tutti/device.h>

/* The device fails for good, as a GPU after an illegal address: work that was put is dropped. */
void tti_fault_poison(tutti_device *device, int code, const char *code_name, const char *what);
/* Each piece of work takes that much longer. */
void tti_fault_delay(tutti_device *device, int64_t ns);
/* Streams made from now on have queues of so many pieces of work; putting one more blocks. 0: as usual. */
void tti_fault_room(tutti_device *device, size_t room);
/* Streams made from now on share so many queues, in turn (16 at most). 0: each has its own. */
void tti_fault_share(tutti_device *device, int queues);
/* A hold that takes longer gives its stream up. 0: as usual, half an hour. */
void tti_fault_hold(tutti_device *device, int64_t ns);
/* The device has so much memory. 0: as much as the system. */
void tti_fault_memory(tutti_device *device, size_t bytes);

#endif
