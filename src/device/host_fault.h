/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults of device `host`, for tests: they cause what may happen on GPUs. Each takes an open device of kind host; any
 * other handle is ignored.
 */
#ifndef TTI_DEVICE_HOST_FAULT_H
#define TTI_DEVICE_HOST_FAULT_H

#include <stddef.h>
#include <stdint.h>
#include <tutti/device.h>

/* Lets the device fail for good, as a GPU after an illegal address: work that was put is dropped. */
void tti_fault_poison(tutti_device *device, int code, const char *code_name, const char *what);
/* Lets each piece of work take so much longer. */
void tti_fault_delay(tutti_device *device, int64_t ns);
/* Gives streams made from now on queues for so many pieces of work; putting one more blocks. 0: as usual. */
void tti_fault_room(tutti_device *device, size_t room);
/* Lets streams made from now on share so many queues, in turn (16 at most). 0: each has its own. */
void tti_fault_share(tutti_device *device, int queues);
/* Gives a stream up when a hold takes longer. 0: as usual, half an hour. */
void tti_fault_hold(tutti_device *device, int64_t ns);
/* Gives the device so much memory. 0: as much as the system has. */
void tti_fault_memory(tutti_device *device, size_t bytes);

#endif
