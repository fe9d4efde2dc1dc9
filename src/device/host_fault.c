/* SPDX-License-Identifier: Apache-2.0 */
#include "device/host_fault.h"

#include "device/host_queue.h"
#include "device/open.h"

/* Returns the device with a reference; NULL: it is no open device of kind host. */
static struct tti_host_device *host_of(tutti_device *handle)
{
    struct tti_device *device = tti_device_take(handle, NULL);
    if (device == NULL || device->ops == &tti_host_ops) return device == NULL ? NULL : tti_host_of(device);
    tti_object_give(&device->object);
    return NULL;
}

static void give(struct tti_host_device *host)
{
    tti_object_give(&host->device.object);
}

void tti_fault_poison(tutti_device *device, int code, const char *code_name, const char *what)
{
    struct tti_host_device *host = host_of(device);
    if (host == NULL) return;
    tti_device_poison(&host->device, "device host", code, code_name, what);
    give(host);
}

void tti_fault_delay(tutti_device *device, int64_t ns)
{
    struct tti_host_device *host = host_of(device);
    if (host == NULL) return;
    atomic_store_explicit(&host->delay_ns, ns, memory_order_relaxed);
    give(host);
}

void tti_fault_room(tutti_device *device, size_t room)
{
    struct tti_host_device *host = host_of(device);
    if (host == NULL) return;
    atomic_store_explicit(&host->room, room == 0 ? TTI_HOST_ROOM : room, memory_order_relaxed);
    give(host);
}

void tti_fault_share(tutti_device *device, int queues)
{
    struct tti_host_device *host = host_of(device);
    if (host == NULL) return;
    int most = queues < TTI_HOST_QUEUES ? queues : TTI_HOST_QUEUES;
    atomic_store_explicit(&host->shared_queues, most, memory_order_relaxed);
    give(host);
}

void tti_fault_hold(tutti_device *device, int64_t ns)
{
    struct tti_host_device *host = host_of(device);
    if (host == NULL) return;
    atomic_store_explicit(&host->hold_ns, ns == 0 ? TTI_DEVICE_PATIENCE_NS : ns, memory_order_relaxed);
    give(host);
}

void tti_fault_memory(tutti_device *device, size_t bytes)
{
    struct tti_host_device *host = host_of(device);
    if (host == NULL) return;
    atomic_store_explicit(&host->bytes_most, bytes == 0 ? SIZE_MAX : bytes, memory_order_relaxed);
    give(host);
}
