/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of pinned memory for code that stages data: taking it costs little, since pages are registered with the device
 * once and kept. The memory stays the taker's when the device is shut down or opened again, but is not pinned any more
 * then.
 */
#ifndef TTI_DEVICE_PINNED_H
#define TTI_DEVICE_PINNED_H

#include "base/list.h"
#include "base/memory.h"
#include "device/ops.h"

struct tti_pinned {
    char *base;
    size_t bytes;               /* at least as many as requested */
    struct tti_device *device;  /* a reference while it is taken */
    struct tti_mapping mapping; /* empty: the memory is the caller's own */
    struct tti_link link;       /* on the device's list; on no list: the device was shut down since */
    bool taken;
};

/* Takes memory. By any thread. ERR_MEMORY is an ordinary error. */
tutti_status tti_pinned_take(struct tti_device *device, size_t bytes, struct tti_pinned **pinned, tutti_error *error);
/* Called when no work on a stream refers to it any more. NULL is ignored. */
void tti_pinned_give(struct tti_pinned *pinned);
/* Pins whole pages of the caller's own, which stay the caller's: they are pinned until they are released, or the device
 * is shut down. */
tutti_status tti_pinned_adopt(struct tti_device *device, void *base, size_t bytes, struct tti_pinned **pinned,
                              tutti_error *error);
void tti_pinned_release(struct tti_pinned *pinned);
/* Pins it again after the device was opened again. */
tutti_status tti_pinned_renew(struct tti_pinned *pinned, tutti_error *error);
void tti_pinned_clear(struct tti_device *device); /* called when it is shut down */

#endif
