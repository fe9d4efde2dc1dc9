/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices `cuda:N`: the context, the resources that it needs, and the meaning of its results.
 */
#include "device/cuda_device.h"

#include "base/alloc.h"
#include "base/sim.h"
#include "base/status.h"
#include "device/open.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- Results ----------------------------------------------------------------------------------------------------- */

int tti_cuda_enter(struct tti_cuda_device *device)
{
    return device->cuda->context_push(device->context);
}

void tti_cuda_leave(struct tti_cuda_device *device)
{
    void *popped;
    (void)device->cuda->context_pop(&popped);
}

/* Returns true for errors after which nothing works in the context any more, and the process cannot get another one. */
static bool is_sticky(int code)
{
    static const int sticky[] = {
        TTI_CUDA_ECC,
        TTI_CUDA_NVLINK,
        TTI_CUDA_CONTAINED,
        TTI_CUDA_ILLEGAL_ADDRESS,
        TTI_CUDA_LAUNCH_TIMEOUT,
        TTI_CUDA_ASSERT,
        TTI_CUDA_STACK,
        TTI_CUDA_ILLEGAL_INSTRUCTION,
        TTI_CUDA_MISALIGNED,
        TTI_CUDA_INVALID_PC,
        TTI_CUDA_UNKNOWN,
        TTI_CUDA_ADDRESS_SPACE,
        TTI_CUDA_LAUNCH_FAILED,
        TTI_CUDA_TENSOR_MEMORY_LEAK,
        TTI_CUDA_CLIENT_TERMINATED,
        TTI_CUDA_EXTERNAL_DEVICE,
        TTI_CUDA_CONTEXT_DESTROYED,
    };
    for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++)
        if (sticky[i] == code) return true;
    return false;
}

static tutti_status poison(struct tti_cuda_device *device, int code, const char *what, struct tti_stream *stream,
                           tutti_error *error)
{
    char text[160];
    const char *last = stream == NULL ? NULL : atomic_load_explicit(&stream->last, memory_order_relaxed);
    const char *kernel = atomic_load_explicit(&device->last_kernel, memory_order_relaxed);
    if (last != NULL || kernel != NULL)
        (void)snprintf(text, sizeof text, "%s; put last on that stream: %.40s; launched last: %.40s", what,
                       last == NULL ? "nothing" : last, kernel == NULL ? "nothing of ours" : kernel);
    else
        (void)snprintf(text, sizeof text, "%s", what);
    tti_device_poison(&device->device, "libcuda", code, tti_cuda_name(device->cuda, code), text);
    return tti_device_poison_error(&device->device, error);
}

tutti_status tti_cuda_check(struct tti_cuda_device *device, int code, const char *what, struct tti_stream *stream,
                            tutti_error *error)
{
    const char *name = device->device.name;
    if (code == TTI_CUDA_OK) return TUTTI_OK;
    /* the caller, who owns the context, has destroyed it */
    bool ended = code == TTI_CUDA_CONTEXT_DESTROYED && device->adopted;
    if (is_sticky(code) && !ended) return poison(device, code, what, stream, error);
    const char *result = tti_cuda_name(device->cuda, code);
    if (code == TTI_CUDA_NO_MEMORY)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%s has no memory left: %s (%d) from %s", name, result, code,
                             what);
    if (ended || code == TTI_CUDA_INVALID_HANDLE || code == TTI_CUDA_INVALID_CONTEXT)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a stream or context of %s was destroyed by its owner: %s (%d) from %s", name, result,
                             code, what);
    if (code >= TTI_CUDA_CAPTURE_UNSUPPORTED && code <= TTI_CUDA_CAPTURE_LAST)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a stream of %s is being captured into a graph: %s (%d) from %s", name, result, code,
                             what);
    return tti_error_set(error, code == TTI_CUDA_NOT_SUPPORTED ? TUTTI_ERR_UNSUPPORTED : TUTTI_ERR_SYSTEM, 0,
                         "%s: %s (%d) from %s", name, result, code, what);
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static tutti_status cuda_count(int *count, tutti_error *error)
{
    const struct tti_cuda *cuda = tti_cuda_load(error);
    if (cuda == NULL) return error->status;
    int code = cuda->device_count(count);
    if (code == TTI_CUDA_OK) return TUTTI_OK;
    *count = 0;
    return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "GPUs cannot be counted: %s (%d) from cuDeviceGetCount",
                         tti_cuda_name(cuda, code), code);
}

static tutti_status cuda_make(int number, void *context, struct tti_device **device, tutti_error *error)
{
    int count = 0;
    if (tti_sim != NULL)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "a GPU cannot be used in simulated time; use \"host\"");
    TTI_TRY(cuda_count(&count, error));
    if (number >= count)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "cuda:%d is not here: the driver shows %d GPU%s (CUDA_VISIBLE_DEVICES may hide others)",
                             number, count, count == 1 ? "" : "s");
    struct tti_cuda_device *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a device");
    made->cuda = tti_cuda_load(error);
    made->context = context;
    made->adopted = context != NULL;
    pthread_mutex_init(&made->lock, NULL);
    pthread_mutex_init(&made->watch_lock, NULL);
    pthread_rwlock_init(&made->giving, NULL);
    tti_list_init(&made->marks);
    *device = &made->device;
    return TUTTI_OK;
}

static void cuda_destroy(struct tti_device *device)
{
    struct tti_cuda_device *cuda = tti_cuda_of(device);
    pthread_mutex_destroy(&cuda->lock);
    pthread_mutex_destroy(&cuda->watch_lock);
    pthread_rwlock_destroy(&cuda->giving);
    tti_free(cuda);
}

/* Finds the GPU of a context of the caller's. */
static tutti_status cuda_adopt(void *context, int *number, tutti_error *error)
{
    const struct tti_cuda *cuda = tti_cuda_load(error);
    if (cuda == NULL) return error->status;
    void *popped;
    int device = -1, code = cuda->context_push(context), count = 0;
    if (code == TTI_CUDA_OK) {
        code = cuda->context_device(&device);
        (void)cuda->context_pop(&popped);
    }
    if (code != TTI_CUDA_OK)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "that is no context of CUDA's: %s (%d)",
                             tti_cuda_name(cuda, code), code);
    TTI_TRY(cuda_count(&count, error));
    for (int i = 0; i < count; i++) {
        int ordinal = -1;
        if (cuda->device_get(&ordinal, i) == TTI_CUDA_OK && ordinal == device) *number = i;
    }
    return TUTTI_OK;
}

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

static int attribute(struct tti_cuda_device *device, int which)
{
    int value = 0;
    return device->cuda->device_attribute(&value, which, device->ordinal) == TTI_CUDA_OK ? value : 0;
}

static tutti_status check_attributes(struct tti_cuda_device *device, tutti_error *error)
{
    static const struct {
        int attribute;
        const char *what;
    } needed[] = {
        {TTI_CUDA_UNIFIED_ADDRESSING, "one address space with the host"},
        {TTI_CUDA_WORDS_OF_64_BITS, "waits for words of 64 bits (cuStreamWaitValue64)"},
        {TTI_CUDA_MEMORY_POOLS, "memory pools (cuMemAllocAsync)"},
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (attribute(device, needed[i].attribute) == 0)
            return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0, "%s, or its driver, has no %s", device->device.name,
                                 needed[i].what);
    device->same_pointers = attribute(device, TTI_CUDA_HOST_POINTER_IS_DEVICE_POINTER) != 0;
    device->shares = attribute(device, TTI_CUDA_VIRTUAL_MEMORY) != 0 &&
                     attribute(device, TTI_CUDA_SHARES_BY_DESCRIPTOR) != 0;
    return TUTTI_OK;
}

/* Finds the GPUs that can reach this one's memory. They get access without being asked for: when memory is taken,
 * nobody knows which other rank's kernel will read it. */
static void find_users(struct tti_cuda_device *device)
{
    int count = 0, ordinal = 0, can = 0;
    device->users[0] = (struct tti_cuda_access){.location = {TTI_CUDA_LOCATION_DEVICE, device->ordinal},
                                                .flags = TTI_CUDA_ACCESS_READ_WRITE};
    device->user_count = 1;
    if (device->cuda->device_count(&count) != TTI_CUDA_OK) return;
    for (int i = 0; i < count && device->user_count < TTI_CUDA_USERS; i++) {
        if (device->cuda->device_get(&ordinal, i) != TTI_CUDA_OK || ordinal == device->ordinal) continue;
        if (device->cuda->device_reaches(&can, ordinal, device->ordinal) != TTI_CUDA_OK || can == 0) continue;
        device->users[device->user_count] = device->users[0];
        device->users[device->user_count++].location.id = ordinal;
    }
}

/* Makes the pool. It keeps memory that was freed. An allocation never waits for another stream's work. */
static int make_pool(struct tti_cuda_device *device)
{
    const struct tti_cuda *cuda = device->cuda;
    struct tti_cuda_pool properties = {.type = TTI_CUDA_ALLOCATION_PINNED,
                                       .location = {TTI_CUDA_LOCATION_DEVICE, device->ordinal}};
    uint64_t threshold = UINT64_MAX;
    int no = 0, code = cuda->pool_create(&device->pool, &properties);
    if (code != TTI_CUDA_OK) return code;
    code = cuda->pool_set(device->pool, TTI_CUDA_POOL_RELEASE_THRESHOLD, &threshold);
    if (code == TTI_CUDA_OK) code = cuda->pool_set(device->pool, TTI_CUDA_POOL_REUSE_INTERNAL, &no);
    if (code == TTI_CUDA_OK && device->user_count > 1)
        code = cuda->pool_access(device->pool, device->users + 1, device->user_count - 1);
    if (code != TTI_CUDA_OK) (void)cuda->pool_destroy(device->pool);
    return code;
}

static int find_granularity(struct tti_cuda_device *device)
{
    struct tti_cuda_allocation properties = {.type = TTI_CUDA_ALLOCATION_PINNED,
                                             .handle_types = TTI_CUDA_HANDLE_DESCRIPTOR,
                                             .location = {TTI_CUDA_LOCATION_DEVICE, device->ordinal}};
    if (!device->shares) return TTI_CUDA_OK;
    return device->cuda->granularity(&device->granularity, &properties, TTI_CUDA_GRANULARITY_MINIMUM);
}

static tutti_status take_what_it_needs(struct tti_cuda_device *device, tutti_error *error)
{
    const char *what = "cuMemPoolCreate";
    find_users(device);
    int code = make_pool(device);
    if (code != TTI_CUDA_OK) goto failed;
    what = "cuStreamCreate";
    code = device->cuda->stream_create(&device->home, TTI_CUDA_STREAM_NON_BLOCKING);
    if (code != TTI_CUDA_OK) goto destroy_pool;
    what = "cuMemGetAllocationGranularity";
    code = find_granularity(device);
    if (code == TTI_CUDA_OK) return TUTTI_OK;

    (void)device->cuda->stream_destroy(device->home);
destroy_pool:
    (void)device->cuda->pool_destroy(device->pool);
failed:
    return tti_cuda_check(device, code, what, NULL, error);
}

static void release_context(struct tti_cuda_device *device)
{
    if (device->adopted) return;
    (void)device->cuda->context_release(device->ordinal);
    device->context = NULL;
}

static tutti_status cuda_start(struct tti_device *of, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    int code = device->cuda->device_get(&device->ordinal, of->number);
    if (code != TTI_CUDA_OK) return tti_cuda_check(device, code, "cuDeviceGet", NULL, error);
    TTI_TRY(check_attributes(device, error));
    if (!device->adopted) code = device->cuda->context_retain(&device->context, device->ordinal);
    if (code != TTI_CUDA_OK) return tti_cuda_check(device, code, "cuDevicePrimaryCtxRetain", NULL, error);
    tutti_status status = tti_cuda_check(device, tti_cuda_enter(device), "cuCtxPushCurrent", NULL, error);
    if (status == TUTTI_OK) {
        status = take_what_it_needs(device, error);
        tti_cuda_leave(device);
    }
    if (status != TUTTI_OK) release_context(device);
    return status;
}

static void cuda_shut(struct tti_device *of)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    const struct tti_cuda *cuda = device->cuda;
    tti_cuda_watch_stop(device);
    tti_cuda_marks_clear(device);
    pthread_rwlock_wrlock(&device->giving);
    if (tti_cuda_enter(device) == TTI_CUDA_OK) {
        while (device->modules != NULL) {
            struct tti_cuda_module *module = device->modules;
            device->modules = module->next;
            (void)cuda->module_unload(module->native);
            tti_free(module);
        }
        (void)cuda->stream_destroy(device->home);
        (void)cuda->pool_destroy(device->pool);
        tti_cuda_leave(device);
    }
    device->home = device->pool = NULL;
    release_context(device);
    pthread_rwlock_unlock(&device->giving);
}

static tutti_status cuda_describe(struct tti_device *of, tutti_device_about *about, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    size_t left = 0, total = 0;
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->memory_info(&left, &total);
        if (code == TTI_CUDA_OK)
            code = device->cuda->device_name(about->model, (int)sizeof about->model, device->ordinal);
        if (code == TTI_CUDA_OK) code = device->cuda->device_uuid(about->uuid, device->ordinal);
        tti_cuda_leave(device);
    }
    about->memory_free = left;
    about->memory_total = total;
    about->capability = attribute(device, TTI_CUDA_CAPABILITY_MAJOR) * 10 +
                        attribute(device, TTI_CUDA_CAPABILITY_MINOR);
    about->multiprocessors = attribute(device, TTI_CUDA_MULTIPROCESSORS);
    about->shares = device->shares;
    return tti_cuda_check(device, code, "cuMemGetInfo", NULL, error);
}

static bool cuda_reaches(struct tti_device *of, struct tti_device *other)
{
    struct tti_cuda_device *device = tti_cuda_of(of), *peer = tti_cuda_of(other);
    int can = 0;
    if (device->ordinal == peer->ordinal) return true;
    return device->cuda->device_reaches(&can, device->ordinal, peer->ordinal) == TTI_CUDA_OK && can != 0;
}

static bool cuda_reaches_uuid(struct tti_device *of, const unsigned char uuid[16])
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    const struct tti_cuda *cuda = device->cuda;
    unsigned char other[16];
    int count = 0, ordinal = 0, can = 0;
    if (cuda->device_count(&count) != TTI_CUDA_OK) return false;
    for (int i = 0; i < count; i++) {
        if (cuda->device_get(&ordinal, i) != TTI_CUDA_OK || cuda->device_uuid(other, ordinal) != TTI_CUDA_OK) continue;
        if (memcmp(other, uuid, sizeof other) != 0) continue;
        if (ordinal == device->ordinal) return true;
        return cuda->device_reaches(&can, device->ordinal, ordinal) == TTI_CUDA_OK && can != 0;
    }
    return false;
}

/* Makes memory of the other GPU reachable that comes neither from pools nor from SHARED memory, but that a program has
 * taken itself. */
static tutti_status cuda_reach(struct tti_device *of, struct tti_device *other, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(of);
    if (tti_cuda_of(other)->ordinal == device->ordinal) return TUTTI_OK;
    int code = tti_cuda_enter(device);
    if (code == TTI_CUDA_OK) {
        code = device->cuda->context_reach(tti_cuda_of(other)->context, 0);
        tti_cuda_leave(device);
    }
    if (code == TTI_CUDA_REACHED_ALREADY) code = TTI_CUDA_OK;
    return tti_cuda_check(device, code, "cuCtxEnablePeerAccess", NULL, error);
}

const struct tti_device_ops tti_cuda_ops = {
    .kind = "cuda",
    .holds_up = true,
    .unreadable = true,
    .count = cuda_count,
    .make = cuda_make,
    .adopt = cuda_adopt,
    .destroy = cuda_destroy,
    .start = cuda_start,
    .shut = cuda_shut,
    .describe = cuda_describe,
    .alloc = tti_cuda_alloc,
    .free = tti_cuda_free,
    .share = tti_cuda_share,
    .map = tti_cuda_map,
    .lend = tti_cuda_lend,
    .borrow = tti_cuda_borrow,
    .find = tti_cuda_find,
    .enlist = tti_cuda_enlist,
    .withdraw = tti_cuda_withdraw,
    .enlist_words = tti_cuda_enlist_words,
    .withdraw_words = tti_cuda_withdraw_words,
    .address = tti_cuda_address,
    .reaches = cuda_reaches,
    .reaches_uuid = cuda_reaches_uuid,
    .reach = cuda_reach,
    .stream_open = tti_cuda_stream_open,
    .stream_idle = tti_cuda_stream_idle,
    .stream_abort = tti_cuda_stream_abort,
    .stream_close = tti_cuda_stream_close,
    .stream_check = tti_cuda_stream_check,
    .copy = tti_cuda_copy,
    .fill = tti_cuda_fill,
    .mark_open = tti_cuda_mark_open,
    .mark_close = tti_cuda_mark_close,
    .record = tti_cuda_record,
    .after = tti_cuda_after,
    .passed = tti_cuda_passed,
    .hold = tti_cuda_hold,
    .raise = tti_cuda_raise,
    .load = tti_cuda_kernel_load,
    .launch = tti_cuda_launch,
    .probe = tti_cuda_probe,
    .watch = tti_cuda_watch,
};
