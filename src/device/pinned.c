/* SPDX-License-Identifier: Apache-2.0 */
#include "device/pinned.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/wait.h"
#include <errno.h>

#define LEAST_BYTES ((size_t)64 << 10)

/* Rounds up to a power of two, so that memory that is given back fits the next request. 0: too many. */
static size_t round_up(size_t bytes)
{
    size_t rounded = LEAST_BYTES;
    while (rounded < bytes && rounded != 0) rounded *= 2;
    return rounded;
}

static void destroy(struct tti_pinned *pinned)
{
    if (pinned->mapping.base != NULL) tti_mapping_destroy(&pinned->mapping);
    tti_free(pinned);
}

/* Registers the memory with the device. */
static tutti_status enter(struct tti_pinned *pinned, struct tti_device *device, void *base, size_t bytes,
                          tutti_error *error)
{
    TTI_TRY(device->ops->enlist(device, base, bytes, error));
    pinned->base = base;
    pinned->bytes = bytes;
    pinned->device = device;
    pinned->taken = true;
    tti_lock(&device->lock);
    tti_list_append(&device->pinned, &pinned->link);
    tti_unlock(&device->lock);
    return TUTTI_OK;
}

tutti_status tti_pinned_renew(struct tti_pinned *pinned, tutti_error *error)
{
    struct tti_device *device = pinned->device;
    tti_lock(&device->lock);
    bool known = !tti_list_is_empty(&pinned->link);
    tti_unlock(&device->lock);
    return known ? TUTTI_OK : enter(pinned, device, pinned->base, pinned->bytes, error);
}

static struct tti_pinned *reuse(struct tti_device *device, size_t bytes)
{
    struct tti_pinned *found = NULL;
    tti_lock(&device->lock);
    TTI_LIST_EACH(link, &device->pinned)
    {
        struct tti_pinned *pinned = TTI_LIST_OF(link, struct tti_pinned, link);
        if (pinned->taken || pinned->bytes != bytes) continue;
        pinned->taken = true;
        found = pinned;
        break;
    }
    tti_unlock(&device->lock);
    return found;
}

static tutti_status make(struct tti_device *device, size_t bytes, struct tti_pinned **made, tutti_error *error)
{
    struct tti_pinned *pinned = tti_calloc(1, sizeof *pinned);
    if (pinned == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a pinned buffer");
    tutti_status status = tti_mapping_create(&pinned->mapping, bytes, false, true, error);
    if (status == TUTTI_OK) status = enter(pinned, device, pinned->mapping.base, bytes, error);
    if (status == TUTTI_OK)
        *made = pinned;
    else
        destroy(pinned);
    return status;
}

tutti_status tti_pinned_take(struct tti_device *device, size_t bytes, struct tti_pinned **pinned, tutti_error *error)
{
    size_t rounded = round_up(bytes);
    if (rounded == 0)
        return tti_error_set(error, TUTTI_ERR_COUNT, 0, "%zu bytes of pinned memory were asked for", bytes);
    struct tti_pinned *found = reuse(device, rounded);
    if (found == NULL) TTI_TRY(make(device, rounded, &found, error));
    tti_object_keep(&device->object);
    *pinned = found;
    return TUTTI_OK;
}

void tti_pinned_give(struct tti_pinned *pinned)
{
    if (pinned == NULL) return;
    struct tti_device *device = pinned->device;
    tti_lock(&device->lock);
    pinned->taken = false;
    bool orphan = tti_list_is_empty(&pinned->link);
    tti_unlock(&device->lock);
    if (orphan) destroy(pinned);
    tti_object_give(&device->object);
}

tutti_status tti_pinned_adopt(struct tti_device *device, void *base, size_t bytes, struct tti_pinned **pinned,
                              tutti_error *error)
{
    struct tti_pinned *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a pinned buffer");
    tutti_status status = enter(made, device, base, bytes, error);
    if (status != TUTTI_OK) {
        tti_free(made);
        return status;
    }
    tti_object_keep(&device->object);
    *pinned = made;
    return TUTTI_OK;
}

void tti_pinned_release(struct tti_pinned *pinned)
{
    struct tti_device *device = pinned->device;
    tti_lock(&device->lock);
    if (!tti_list_is_empty(&pinned->link)) device->ops->withdraw(device, pinned->base);
    tti_list_remove(&pinned->link);
    tti_unlock(&device->lock);
    destroy(pinned);
    tti_object_give(&device->object);
}

static struct tti_pinned *first(struct tti_device *device, bool *taken)
{
    struct tti_pinned *pinned = NULL;
    tti_lock(&device->lock);
    if (!tti_list_is_empty(&device->pinned)) {
        pinned = TTI_LIST_OF(device->pinned.next, struct tti_pinned, link);
        device->ops->withdraw(device, pinned->base);
        tti_list_remove(&pinned->link);
        *taken = pinned->taken;
    }
    tti_unlock(&device->lock);
    return pinned;
}

void tti_pinned_clear(struct tti_device *device)
{
    struct tti_pinned *pinned;
    bool taken = false;
    while ((pinned = first(device, &taken)) != NULL)
        if (!taken) destroy(pinned);
}
