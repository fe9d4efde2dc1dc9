/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a GPU. LOCAL memory comes from a pool of the device, so that neither taking nor freeing it waits for
 * streams; SHARED memory is an allocation of its own with a descriptor; PINNED memory is host memory that stays
 * registered. Memory that the program has taken from CUDA itself is shared with other processes by CUDA's own handles.
 */
#include "base/clock.h"
#include "base/round.h"
#include "base/status.h"
#include "device/cuda_device.h"
#include "device/open.h"
#include "device/pinned.h"
#include "device/stream.h"
#include <assert.h>
#include <string.h>

#define HOME_NS INT64_C(10000000000) /* limit for an allocation, which nothing holds up */

/* ---- Local ------------------------------------------------------------------------------------------------------- */

/* Waits until the stream on which memory is taken has passed: at once, since nothing else is on it. */
static int wait_home(struct tti_cuda_device *device)
{
    int64_t nap_ns = 0, deadline_ns = tti_now_ns() + HOME_NS;
    int code;
    while ((code = device->cuda->stream_query(device->home)) == TTI_CUDA_NOT_READY && tti_now_ns() < deadline_ns)
        tti_poll_nap(&nap_ns);
    return code;
}

static int take_local(struct tti_cuda_device *device, size_t bytes, struct tti_memory *memory)
{
    const struct tti_cuda *cuda = device->cuda;
    uint64_t address = 0;
    int code = cuda->pool_alloc(&address, bytes, device->pool, device->home);
    if (code == TTI_CUDA_NO_MEMORY) { /* memory that the pool keeps in pieces may suffice as a whole */
        (void)cuda->pool_trim(device->pool, 0);
        code = cuda->pool_alloc(&address, bytes, device->pool, device->home);
    }
    if (code != TTI_CUDA_OK) return code;
    code = wait_home(device);
    if (code != TTI_CUDA_OK) {
        (void)cuda->free_async(address, device->home);
        return code;
    }
    memory->base = (char *)(uintptr_t)address;
    return TTI_CUDA_OK;
}

/* ---- Shared by descriptor ----------------------------------------------------------------------------------------- */

/* Maps all of an allocation for the first `users` of the device's users, which may read and write it. */
static int map_handle(struct tti_cuda_device *device, uint64_t handle, size_t room, size_t users,
                      struct tti_memory *memory)
{
    const struct tti_cuda *cuda = device->cuda;
    uint64_t address = 0;
    int code = cuda->reserve(&address, room, device->granularity, 0, 0);
    if (code != TTI_CUDA_OK) return code;
    code = cuda->map(address, room, 0, handle, 0);
    if (code != TTI_CUDA_OK) goto unreserve;
    code = cuda->set_access(address, room, device->users, users);
    if (code != TTI_CUDA_OK) goto unmap;
    memory->base = (char *)(uintptr_t)address;
    memory->native = handle;
    memory->room = room;
    return TTI_CUDA_OK;

unmap:
    (void)cuda->unmap(address, room);
unreserve:
    (void)cuda->unreserve(address, room);
    return code;
}

static int take_shared(struct tti_cuda_device *device, size_t bytes, struct tti_memory *memory)
{
    struct tti_cuda_allocation properties = {.type = TTI_CUDA_ALLOCATION_PINNED,
                                             .handle_types = TTI_CUDA_HANDLE_DESCRIPTOR,
                                             .location = {TTI_CUDA_LOCATION_DEVICE, device->ordinal}};
    uint64_t handle = 0;
    size_t room = tti_round_up(bytes, device->granularity);
    int code = room < bytes ? TTI_CUDA_NO_MEMORY : device->cuda->create(&handle, room, &properties, 0);
    if (code != TTI_CUDA_OK) return code;
    code = map_handle(device, handle, room, device->user_count, memory);
    if (code != TTI_CUDA_OK) (void)device->cuda->release(handle);
    return code;
}

static void free_shared(struct tti_cuda_device *device, struct tti_memory *memory)
{
    uint64_t address = (uint64_t)(uintptr_t)memory->base;
    (void)device->cuda->unmap(address, memory->room);
    (void)device->cuda->unreserve(address, memory->room);
    (void)device->cuda->release(memory->native);
}

static tutti_status check_shares(const struct tti_cuda_device *device, tutti_error *error)
{
    if (device->shares) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                         "%s, or its driver, cannot share memory by descriptor; use TUTTI_MEMORY_LOCAL",
                         device->device.name);
}

tutti_status tti_cuda_share(struct tti_device *of, const struct tti_memory *memory, int *fd, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->export_handle(fd, memory->native, TTI_CUDA_HANDLE_DESCRIPTOR, 0);
        tti_cuda_leave(device);
    }
    return tti_cuda_check(device, code, "cuMemExportToShareableHandle", NULL, error);
}

tutti_status tti_cuda_map(struct tti_device *of, int fd, size_t bytes, struct tti_memory *memory, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    struct tti_memory mapped = {.bytes = bytes, .kind = TUTTI_MEMORY_SHARED};
    uint64_t handle = 0;
    TTI_TRY(check_shares(device, error));
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->import_handle(&handle, (void *)(intptr_t)fd, TTI_CUDA_HANDLE_DESCRIPTOR);
        if (code == TTI_CUDA_OK) {
            code = map_handle(device, handle, tti_round_up(bytes, device->granularity), 1, &mapped);
            if (code != TTI_CUDA_OK) (void)device->cuda->release(handle);
        }
        tti_cuda_leave(device);
    }
    if (code == TTI_CUDA_INVALID_VALUE)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "descriptor %d does not stand for %zu bytes of memory of %s",
                             fd, bytes, of->name);
    TTI_TRY(tti_cuda_check(device, code, "cuMemImportFromShareableHandle", NULL, error));
    *memory = mapped;
    return TUTTI_OK;
}

/* ---- Memory that the program has taken itself ------------------------------------------------------------------------ */

static_assert(sizeof(struct tti_lease) == sizeof(struct tti_cuda_ipc), "a lease is CUDA's handle");

/* Lends memory of cudaMalloc; memory of pools and managed memory have no such handle. */
tutti_status tti_cuda_lend(struct tti_device *of, const void *pointer, struct tti_lease *lease, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    struct tti_cuda_ipc handle = {{0}};
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->ipc_handle(&handle, (uint64_t)(uintptr_t)pointer);
        tti_cuda_leave(device);
    }
    if (code == TTI_CUDA_INVALID_VALUE)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "that memory of %s cannot be shared between processes",
                             of->name);
    TTI_TRY(tti_cuda_check(device, code, "cuIpcGetMemHandle", NULL, error));
    memcpy(lease->name, handle.reserved, sizeof lease->name);
    return TUTTI_OK;
}

tutti_status tti_cuda_borrow(struct tti_device *of, const struct tti_lease *lease, size_t bytes,
                             struct tti_memory *memory, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    struct tti_cuda_ipc handle;
    uint64_t address = 0;
    memcpy(handle.reserved, lease->name, sizeof handle.reserved);
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->ipc_open(&address, handle, TTI_CUDA_IPC_LAZY_PEER_ACCESS);
        tti_cuda_leave(device);
    }
    TTI_TRY(tti_cuda_check(device, code, "cuIpcOpenMemHandle", NULL, error));
    *memory = (struct tti_memory){
        .base = (char *)(uintptr_t)address, .bytes = bytes, .kind = TUTTI_MEMORY_SHARED, .borrowed = true};
    return TUTTI_OK;
}

/* ---- All kinds --------------------------------------------------------------------------------------------------- */

static tutti_status take_pinned(struct tti_device *device, size_t bytes, struct tti_memory *memory, tutti_error *error)
{
    struct tti_pinned *pinned = NULL;
    TTI_TRY(tti_pinned_take(device, bytes, &pinned, error));
    memory->base = pinned->base;
    memory->native = (uint64_t)(uintptr_t)pinned;
    return TUTTI_OK;
}

tutti_status tti_cuda_alloc(struct tti_device *of, tutti_memory kind, size_t bytes, struct tti_memory *memory,
                            tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    struct tti_memory taken = {.bytes = bytes, .kind = kind};
    if (kind == TUTTI_MEMORY_PINNED) {
        TTI_TRY(take_pinned(of, bytes, &taken, error));
        *memory = taken;
        return TUTTI_OK;
    }
    if (kind == TUTTI_MEMORY_SHARED) TTI_TRY(check_shares(device, error));
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = kind == TUTTI_MEMORY_SHARED ? take_shared(device, bytes, &taken) : take_local(device, bytes, &taken);
        tti_cuda_leave(device);
    }
    if (code == TTI_CUDA_INVALID_VALUE) code = TTI_CUDA_NO_MEMORY; /* the request is larger than the GPU's memory */
    TTI_TRY(tti_cuda_check(device, code, kind == TUTTI_MEMORY_SHARED ? "cuMemCreate" : "cuMemAllocAsync", NULL, error));
    *memory = taken;
    return TUTTI_OK;
}

/* Gives memory back. If the device was shut, its context has gone, and the memory with it. */
static void give(struct tti_cuda_device *device, struct tti_memory *memory, struct tti_stream *stream)
{
    if (tti_cuda_enter(device) != TTI_CUDA_OK) return;
    if (memory->borrowed)
        (void)device->cuda->ipc_close((uint64_t)(uintptr_t)memory->base);
    else if (memory->kind == TUTTI_MEMORY_SHARED)
        free_shared(device, memory);
    else
        (void)device->cuda->free_async((uint64_t)(uintptr_t)memory->base,
                                       stream != NULL ? stream->native : device->home);
    tti_cuda_leave(device);
}

void tti_cuda_free(struct tti_device *of, struct tti_memory *memory, struct tti_stream *stream)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    if (memory->kind == TUTTI_MEMORY_PINNED) {
        tti_pinned_give((struct tti_pinned *)(uintptr_t)memory->native);
    } else {
        pthread_rwlock_rdlock(&device->giving);
        give(device, memory, stream);
        pthread_rwlock_unlock(&device->giving);
    }
    memory->base = NULL;
}

/* ---- Pointers ---------------------------------------------------------------------------------------------------- */

struct about {
    int type, managed, ordinal;
    uint64_t start, id;
    size_t bytes;
};

/* Asks the driver about a pointer. Returns false if the driver does not know it, or has failed, which is noted. */
static bool ask(struct tti_cuda_device *device, const void *pointer, struct about *about)
{
    int names[] = {TTI_CUDA_POINTER_MEMORY_TYPE, TTI_CUDA_POINTER_IS_MANAGED, TTI_CUDA_POINTER_ORDINAL,
                   TTI_CUDA_POINTER_RANGE_START, TTI_CUDA_POINTER_RANGE_SIZE, TTI_CUDA_POINTER_BUFFER_ID};
    void *values[] = {&about->type, &about->managed, &about->ordinal, &about->start, &about->bytes, &about->id};
    if (tti_cuda_enter(device) != TTI_CUDA_OK) return false;
    int code = device->cuda->pointer_attributes(sizeof names / sizeof *names, names, values,
                                                (uint64_t)(uintptr_t)pointer);
    tti_cuda_leave(device);
    if (code != TTI_CUDA_INVALID_VALUE) (void)tti_cuda_check(device, code, "cuPointerGetAttributes", NULL, NULL);
    return code == TTI_CUDA_OK && about->type != 0;
}

bool tti_cuda_knows(struct tti_cuda_device *device, const void *pointer)
{
    struct about about = {0};
    return ask(device, pointer, &about);
}

bool tti_cuda_find(struct tti_device *of, const void *pointer, struct tti_found *found)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    struct about about = {0};
    if (!ask(device, pointer, &about)) return false;
    bool managed = (about.managed & 0xff) != 0;
    if (about.type == TTI_CUDA_TYPE_DEVICE && !managed && about.ordinal != of->number) return false;
    found->where = managed                              ? TTI_FOUND_MANAGED
                   : about.type == TTI_CUDA_TYPE_DEVICE ? TTI_FOUND_DEVICE
                                                        : TTI_FOUND_PINNED;
    found->base = (char *)(uintptr_t)about.start;
    found->bytes = about.bytes;
    found->id = about.id;
    return true;
}

tutti_status tti_cuda_enlist(struct tti_device *of, void *base, size_t bytes, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->host_register(base, bytes, TTI_CUDA_HOST_PORTABLE | TTI_CUDA_HOST_MAPPED);
        tti_cuda_leave(device);
    }
    return tti_cuda_check(device, code, "cuMemHostRegister", NULL, error);
}

void tti_cuda_withdraw(struct tti_device *of, void *base)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    pthread_rwlock_rdlock(&device->giving);
    if (tti_cuda_enter(device) == TTI_CUDA_OK) {
        (void)device->cuda->host_unregister(base);
        tti_cuda_leave(device);
    }
    pthread_rwlock_unlock(&device->giving);
}

/* Memory is registered in one context, for all contexts: so that one is kept. A context of the caller's own outlives the
 * device. */
tutti_status tti_cuda_enlist_words(struct tti_device *of, void *base, size_t bytes, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    void *context = NULL;
    int code = device->adopted ? TTI_CUDA_OK : device->cuda->context_retain(&context, device->ordinal);
    TTI_TRY(tti_cuda_check(device, code, "cuDevicePrimaryCtxRetain", NULL, error));
    tutti_status status = tti_cuda_enlist(of, base, bytes, error);
    if (status != TUTTI_OK && !device->adopted) (void)device->cuda->context_release(device->ordinal);
    return status;
}

void tti_cuda_withdraw_words(struct tti_device *of, void *base)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    const struct tti_cuda *cuda = device->cuda;
    void *context = device->context, *popped;
    if (!device->adopted && cuda->context_retain(&context, device->ordinal) != TTI_CUDA_OK) return;
    if (cuda->context_push(context) == TTI_CUDA_OK) {
        (void)cuda->host_unregister(base);
        (void)cuda->context_pop(&popped);
    }
    for (int i = 0; i < 2 && !device->adopted; i++) (void)cuda->context_release(device->ordinal);
}

void *tti_cuda_address(struct tti_device *of, void *enlisted)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    uint64_t address = 0;
    if (device->same_pointers) return enlisted;
    if (tti_cuda_enter(device) != TTI_CUDA_OK) return NULL;
    int code = device->cuda->host_pointer(&address, enlisted, 0);
    tti_cuda_leave(device);
    return code == TTI_CUDA_OK ? (void *)(uintptr_t)address : NULL;
}
