/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of CUDA's driver interface that is used here, with declarations of its own: the library is built without a
 * CUDA toolkit and loads libcuda if there is one. Values and layouts are those of the driver's ABI, which does not
 * change; names of symbols carry the version of the function's ABI (_v2). `make test-gpu` compares them with cuda.h if
 * that is installed.
 */
#ifndef TTI_DEVICE_CUDA_API_H
#define TTI_DEVICE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { TTI_CUDA_LEAST = 12000 }; /* the oldest version of CUDA that the driver must know */

/* The results that are handled. */
enum {
    TTI_CUDA_OK = 0,
    TTI_CUDA_INVALID_VALUE = 1,
    TTI_CUDA_NO_MEMORY = 2,
    TTI_CUDA_NO_DEVICE = 100,
    TTI_CUDA_INVALID_CONTEXT = 201,
    TTI_CUDA_ECC = 214,
    TTI_CUDA_NVLINK = 220,
    TTI_CUDA_CONTAINED = 226, /* an error of NVLink or of hardware */
    TTI_CUDA_INVALID_HANDLE = 400,
    TTI_CUDA_NOT_READY = 600,
    TTI_CUDA_ILLEGAL_ADDRESS = 700,
    TTI_CUDA_LAUNCH_TIMEOUT = 702,
    TTI_CUDA_REACHED_ALREADY = 704,
    TTI_CUDA_CONTEXT_DESTROYED = 709,
    TTI_CUDA_ASSERT = 710,
    TTI_CUDA_STACK = 714,
    TTI_CUDA_ILLEGAL_INSTRUCTION = 715,
    TTI_CUDA_MISALIGNED = 716,
    TTI_CUDA_ADDRESS_SPACE = 717,
    TTI_CUDA_INVALID_PC = 718,
    TTI_CUDA_LAUNCH_FAILED = 719,
    TTI_CUDA_TENSOR_MEMORY_LEAK = 721,
    TTI_CUDA_NOT_SUPPORTED = 801,
    TTI_CUDA_CLIENT_TERMINATED = 810, /* by the server of MPS */
    TTI_CUDA_CAPTURE_UNSUPPORTED = 900,
    TTI_CUDA_CAPTURE_LAST = 908,
    TTI_CUDA_EXTERNAL_DEVICE = 911,
    TTI_CUDA_UNKNOWN = 999,
};

/* Attributes of devices. */
enum {
    TTI_CUDA_MULTIPROCESSORS = 16,
    TTI_CUDA_UNIFIED_ADDRESSING = 41,
    TTI_CUDA_CAPABILITY_MAJOR = 75,
    TTI_CUDA_CAPABILITY_MINOR = 76,
    TTI_CUDA_HOST_POINTER_IS_DEVICE_POINTER = 91, /* for registered host memory */
    TTI_CUDA_VIRTUAL_MEMORY = 102,
    TTI_CUDA_SHARES_BY_DESCRIPTOR = 103,
    TTI_CUDA_MEMORY_POOLS = 115,
    TTI_CUDA_WORDS_OF_64_BITS = 122, /* cuStreamWaitValue64 */
};

/* Attributes of pointers. */
enum {
    TTI_CUDA_POINTER_MEMORY_TYPE = 2,
    TTI_CUDA_POINTER_BUFFER_ID = 7,
    TTI_CUDA_POINTER_IS_MANAGED = 8,
    TTI_CUDA_POINTER_ORDINAL = 9,
    TTI_CUDA_POINTER_RANGE_START = 11,
    TTI_CUDA_POINTER_RANGE_SIZE = 12,
};
enum { TTI_CUDA_TYPE_HOST = 1, TTI_CUDA_TYPE_DEVICE = 2 };

/* Flags. */
enum {
    TTI_CUDA_STREAM_NON_BLOCKING = 1,
    TTI_CUDA_EVENT_NO_TIMING = 2,
    TTI_CUDA_HOST_PORTABLE = 1,
    TTI_CUDA_HOST_MAPPED = 2,
    TTI_CUDA_WAIT_GEQ = 0,
    TTI_CUDA_WRITE_DEFAULT = 0,
    TTI_CUDA_ALLOCATION_PINNED = 1,
    TTI_CUDA_LOCATION_DEVICE = 1,
    TTI_CUDA_HANDLE_DESCRIPTOR = 1,
    TTI_CUDA_ACCESS_READ_WRITE = 3,
    TTI_CUDA_GRANULARITY_MINIMUM = 0,
    TTI_CUDA_POOL_REUSE_INTERNAL = 3,
    TTI_CUDA_POOL_RELEASE_THRESHOLD = 4,
    TTI_CUDA_IPC_LAZY_PEER_ACCESS = 1,
    TTI_CUDA_JIT_ERROR_LOG = 5,
    TTI_CUDA_JIT_ERROR_LOG_BYTES = 6,
};
#define TTI_CUDA_LAUNCH_END ((void *)0)
#define TTI_CUDA_LAUNCH_BUFFER ((void *)1)
#define TTI_CUDA_LAUNCH_BUFFER_SIZE ((void *)2)
#define TTI_CUDA_STREAM_LEGACY ((void *)1)
#define TTI_CUDA_STREAM_PER_THREAD ((void *)2)

struct tti_cuda_location {
    int type, id;
};

struct tti_cuda_allocation { /* CUmemAllocationProp */
    int type, handle_types;
    struct tti_cuda_location location;
    void *unused;
    unsigned char flags[8];
};

struct tti_cuda_access { /* CUmemAccessDesc */
    struct tti_cuda_location location;
    int flags;
};

struct tti_cuda_ipc { /* CUipcMemHandle */
    unsigned char reserved[64];
};

struct tti_cuda_pool { /* CUmemPoolProps */
    int type, handle_types;
    struct tti_cuda_location location;
    void *unused;
    unsigned char reserved[64];
};

/* Columns: field, symbol, parameters. All functions are required. */
/* clang-format off */
#define TTI_CUDA_FUNCTIONS(X)                                                                                          \
    X(driver_version, cuDriverGetVersion, (int *version))                                                              \
    X(init, cuInit, (unsigned flags))                                                                                  \
    X(error_name, cuGetErrorName, (int code, const char **name))                                                       \
    X(device_count, cuDeviceGetCount, (int *count))                                                                    \
    X(device_get, cuDeviceGet, (int *device, int ordinal))                                                             \
    X(device_name, cuDeviceGetName, (char *name, int bytes, int device))                                               \
    X(device_uuid, cuDeviceGetUuid_v2, (unsigned char uuid[16], int device))                                           \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))                                 \
    X(device_reaches, cuDeviceCanAccessPeer, (int *can, int device, int peer))                                         \
    X(context_retain, cuDevicePrimaryCtxRetain, (void **context, int device))                                          \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                                     \
    X(context_push, cuCtxPushCurrent_v2, (void *context))                                                              \
    X(context_pop, cuCtxPopCurrent_v2, (void **context))                                                               \
    X(context_reach, cuCtxEnablePeerAccess, (void *peer, unsigned flags))                                              \
    X(context_device, cuCtxGetDevice, (int *device))                                                                   \
    X(memory_info, cuMemGetInfo_v2, (size_t *left, size_t *total))                                                     \
    X(stream_create, cuStreamCreate, (void **stream, unsigned flags))                                                  \
    X(stream_destroy, cuStreamDestroy_v2, (void *stream))                                                              \
    X(stream_query, cuStreamQuery, (void *stream))                                                                     \
    X(stream_context, cuStreamGetCtx, (void *stream, void **context))                                                  \
    X(stream_flags, cuStreamGetFlags, (void *stream, unsigned *flags))                                                 \
    X(stream_capturing, cuStreamIsCapturing, (void *stream, int *status))                                              \
    X(stream_wait_event, cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                               \
    X(stream_wait_value, cuStreamWaitValue64_v2, (void *stream, uint64_t address, uint64_t value, unsigned flags))     \
    X(stream_write_value, cuStreamWriteValue64_v2, (void *stream, uint64_t address, uint64_t value, unsigned flags))   \
    X(event_create, cuEventCreate, (void **event, unsigned flags))                                                     \
    X(event_destroy, cuEventDestroy_v2, (void *event))                                                                 \
    X(event_record, cuEventRecord, (void *event, void *stream))                                                        \
    X(event_query, cuEventQuery, (void *event))                                                                        \
    X(copy, cuMemcpyAsync, (uint64_t to, uint64_t from, size_t bytes, void *stream))                                   \
    X(fill_8, cuMemsetD8Async, (uint64_t to, unsigned char value, size_t count, void *stream))                         \
    X(fill_16, cuMemsetD16Async, (uint64_t to, unsigned short value, size_t count, void *stream))                      \
    X(fill_32, cuMemsetD32Async, (uint64_t to, unsigned value, size_t count, void *stream))                            \
    X(fill_rows_32, cuMemsetD2D32Async,                                                                                \
      (uint64_t to, size_t pitch, unsigned value, size_t width, size_t height, void *stream))                          \
    X(host_register, cuMemHostRegister_v2, (void *base, size_t bytes, unsigned flags))                                 \
    X(host_unregister, cuMemHostUnregister, (void *base))                                                              \
    X(host_pointer, cuMemHostGetDevicePointer_v2, (uint64_t *address, void *base, unsigned flags))                     \
    X(ipc_handle, cuIpcGetMemHandle, (struct tti_cuda_ipc *handle, uint64_t address))                                  \
    X(ipc_open, cuIpcOpenMemHandle_v2, (uint64_t *address, struct tti_cuda_ipc handle, unsigned flags))                \
    X(ipc_close, cuIpcCloseMemHandle, (uint64_t address))                                                              \
    X(pool_create, cuMemPoolCreate, (void **pool, const struct tti_cuda_pool *properties))                             \
    X(pool_destroy, cuMemPoolDestroy, (void *pool))                                                                    \
    X(pool_set, cuMemPoolSetAttribute, (void *pool, int attribute, void *value))                                       \
    X(pool_trim, cuMemPoolTrimTo, (void *pool, size_t bytes))                                                          \
    X(pool_access, cuMemPoolSetAccess, (void *pool, const struct tti_cuda_access *access, size_t count))               \
    X(pool_alloc, cuMemAllocFromPoolAsync, (uint64_t *address, size_t bytes, void *pool, void *stream))                \
    X(free_async, cuMemFreeAsync, (uint64_t address, void *stream))                                                    \
    X(granularity, cuMemGetAllocationGranularity,                                                                      \
      (size_t *bytes, const struct tti_cuda_allocation *properties, int option))                                       \
    X(create, cuMemCreate,                                                                                             \
      (uint64_t *handle, size_t bytes, const struct tti_cuda_allocation *properties, uint64_t flags))                  \
    X(release, cuMemRelease, (uint64_t handle))                                                                        \
    X(reserve, cuMemAddressReserve,                                                                                    \
      (uint64_t *address, size_t bytes, size_t alignment, uint64_t wish, uint64_t flags))                              \
    X(unreserve, cuMemAddressFree, (uint64_t address, size_t bytes))                                                   \
    X(map, cuMemMap, (uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags))                 \
    X(unmap, cuMemUnmap, (uint64_t address, size_t bytes))                                                             \
    X(set_access, cuMemSetAccess,                                                                                      \
      (uint64_t address, size_t bytes, const struct tti_cuda_access *access, size_t count))                            \
    X(export_handle, cuMemExportToShareableHandle, (void *fd, uint64_t handle, int type, uint64_t flags))              \
    X(import_handle, cuMemImportFromShareableHandle, (uint64_t *handle, void *fd, int type))                           \
    X(pointer_attributes, cuPointerGetAttributes,                                                                      \
      (unsigned count, int *attributes, void **values, uint64_t pointer))                                              \
    X(module_load, cuModuleLoadDataEx,                                                                                 \
      (void **module, const void *code, unsigned options, int *names, void **values))                                  \
    X(module_unload, cuModuleUnload, (void *module))                                                                   \
    X(module_function, cuModuleGetFunction, (void **function, void *module, const char *name))                         \
    X(launch, cuLaunchKernel,                                                                                          \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,          \
       unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra))
/* clang-format on */

/* The same for functions that may be missing; then the field is NULL. */
#define TTI_CUDA_MORE_FUNCTIONS(X) X(function_load, cuFuncLoad, (void *function)) /* from 12.4 on */

struct tti_cuda {
#define TTI_CUDA_FIELD(field, symbol, parameters) int(*field) parameters;
    TTI_CUDA_FUNCTIONS(TTI_CUDA_FIELD)
    TTI_CUDA_MORE_FUNCTIONS(TTI_CUDA_FIELD)
#undef TTI_CUDA_FIELD
    int version; /* the version of CUDA that the driver knows: 12040 is 12.4 */
};

/* Loads libcuda and starts it, once; NULL: *error says what is missing (ERR_UNSUPPORTED), or that this process was
 * forked from one that had loaded it (ERR_FORKED). After a failure it may be tried again. By any thread. */
const struct tti_cuda *tti_cuda_load(tutti_error *error);

/* Returns a name like "CUDA_ERROR_ILLEGAL_ADDRESS". */
const char *tti_cuda_name(const struct tti_cuda *cuda, int code);

#endif
