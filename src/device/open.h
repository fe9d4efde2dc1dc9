/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices inside the library: finding one, checks for everything that belongs to it, and its failure.
 */
#ifndef TTI_DEVICE_OPEN_H
#define TTI_DEVICE_OPEN_H

#include "device/ops.h"

/* For functions that fill in a tutti_error: sets which operation reports. `none` is used if the caller wants no error.
 * Returns the error to use. */
tutti_error *tti_error_begin(tutti_error *error, tutti_error *none, const char *operation);

/* Returns OK if it names a device of a kind that exists, here or elsewhere; "cuda" without a number, too. */
tutti_status tti_device_check_name(const char *name, tutti_error *error);

/* Returns the device with a reference, which tti_object_give(&device->object) gives back; NULL: *error says why. */
struct tti_device *tti_device_take(tutti_device *handle, tutti_error *error);

/* Returns OK if an object made in `generation` can be used; otherwise ERR_STALE (shut down, re-opened) or ERR_DEVICE.
 * `noun` names the object. */
tutti_status tti_device_usable(struct tti_device *device, uint64_t generation, const char *noun, tutti_error *error);

static inline uint64_t tti_device_generation(const struct tti_device *device)
{
    return atomic_load_explicit(&device->generation, memory_order_acquire);
}

static inline bool tti_device_is_poisoned(const struct tti_device *device)
{
    return atomic_load_explicit(&device->poisoned, memory_order_acquire) != 0;
}

/* Notes that the device has failed for good. The first call decides the error, and logs it. `what` says what was
 * running, as far as it is known. By any thread. */
void tti_device_poison(struct tti_device *device, const char *library, int code, const char *code_name,
                       const char *what);
/* Returns ERR_DEVICE with that error. */
tutti_status tti_device_poison_error(struct tti_device *device, tutti_error *error);

/* Calls `each` for all open devices of this process, while it returns true. With the lock of all devices held: `each`
 * takes references and does little else. */
void tti_devices_each(bool (*each)(struct tti_device *device, void *context), void *context);
/* Returns true if any device is open: one load, for callers that ask at every call. */
bool tti_devices_any(void);

/* Returns why the first device of this process that failed for good has done so, or NULL. By any thread. */
const char *tti_devices_failure(void);

void tti_devices_forked(void); /* called in the child */

#endif
