/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NCCL's interface that is used here, with declarations of its own: the library is built without NCCL and
 * loads libnccl if there is one. Values and layouts are those of NCCL's ABI since version 2.14, to which later versions
 * only added. `make test-gpu` compares them with nccl.h if that is installed.
 */
#ifndef TTI_DEVICE_NCCL_API_H
#define TTI_DEVICE_NCCL_API_H

#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum {
    TTI_NCCL_LEAST = 21400, /* the first version with ncclCommInitRankConfig and ncclCommFinalize */
    TTI_NCCL_FLOAT8_CAPABILITY = 90,
    TTI_NCCL_FLOAT8 = 22400 /* the first version that reduces 8-bit floats, on GPUs of capability 9.0 and newer */
};

/* The results that are handled. */
enum { TTI_NCCL_OK = 0, TTI_NCCL_CUDA_ERROR = 1, TTI_NCCL_INVALID_ARGUMENT = 4, TTI_NCCL_INVALID_USAGE = 5 };

/* ncclDataType_t */
enum {
    TTI_NCCL_I8 = 0,
    TTI_NCCL_U8 = 1,
    TTI_NCCL_I32 = 2,
    TTI_NCCL_U32 = 3,
    TTI_NCCL_I64 = 4,
    TTI_NCCL_U64 = 5,
    TTI_NCCL_F16 = 6,
    TTI_NCCL_F32 = 7,
    TTI_NCCL_F64 = 8,
    TTI_NCCL_BF16 = 9,
    TTI_NCCL_F8E4M3 = 10,
    TTI_NCCL_F8E5M2 = 11
};

/* ncclRedOp_t; make_scaled makes others. */
enum { TTI_NCCL_SUM = 0, TTI_NCCL_PROD = 1, TTI_NCCL_MAX = 2, TTI_NCCL_MIN = 3, TTI_NCCL_AVG = 4 };

enum { TTI_NCCL_SCALAR_ON_HOST = 1, TTI_NCCL_ID_BYTES = 128 };

struct tti_nccl_id { /* ncclUniqueId */
    char bytes[TTI_NCCL_ID_BYTES];
};

/* ncclConfig_t as in version 2.14; newer versions fill in the fields that they have added. */
#define TTI_NCCL_CONFIG_MAGIC 0xcafebeefU
struct tti_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, unused;
};

/* Columns: type, field, symbol, parameters. All functions are required. Functions that return an int return a
 * result. */
/* clang-format off */
#define TTI_NCCL_FUNCTIONS(X)                                                                                          \
    X(int, version, ncclGetVersion, (int *version))                                                                    \
    X(const char *, error_string, ncclGetErrorString, (int result))                                                    \
    X(const char *, last_error, ncclGetLastError, (void *comm))                                                        \
    X(int, unique_id, ncclGetUniqueId, (struct tti_nccl_id *id))                                                       \
    X(int, init_rank, ncclCommInitRankConfig,                                                                          \
      (void **comm, int ranks, struct tti_nccl_id id, int rank, struct tti_nccl_config *config))                       \
    X(int, async_error, ncclCommGetAsyncError, (void *comm, int *result))                                              \
    X(int, abort, ncclCommAbort, (void *comm))                                                                         \
    X(int, finalize, ncclCommFinalize, (void *comm))                                                                   \
    X(int, destroy, ncclCommDestroy, (void *comm))                                                                     \
    X(int, group_start, ncclGroupStart, (void))                                                                        \
    X(int, group_end, ncclGroupEnd, (void))                                                                            \
    X(int, all_reduce, ncclAllReduce,                                                                                  \
      (const void *in, void *out, size_t count, int type, int reduction, void *comm, void *stream))                    \
    X(int, reduce, ncclReduce,                                                                                         \
      (const void *in, void *out, size_t count, int type, int reduction, int root, void *comm, void *stream))          \
    X(int, broadcast, ncclBroadcast,                                                                                   \
      (const void *in, void *out, size_t count, int type, int root, void *comm, void *stream))                         \
    X(int, all_gather, ncclAllGather,                                                                                  \
      (const void *in, void *out, size_t count, int type, void *comm, void *stream))                                   \
    X(int, reduce_scatter, ncclReduceScatter,                                                                          \
      (const void *in, void *out, size_t count, int type, int reduction, void *comm, void *stream))                    \
    X(int, send, ncclSend, (const void *in, size_t count, int type, int peer, void *comm, void *stream))               \
    X(int, recv, ncclRecv, (void *out, size_t count, int type, int peer, void *comm, void *stream))                    \
    X(int, make_scaled, ncclRedOpCreatePreMulSum, (int *reduction, void *factor, int type, int where, void *comm))     \
    X(int, free_scaled, ncclRedOpDestroy, (int reduction, void *comm))
/* clang-format on */

/* The same for functions that may be missing; then the field is NULL. */
#define TTI_NCCL_MORE_FUNCTIONS(X) X(int, revoke, ncclCommRevoke, (void *comm, int flags)) /* from 2.28.7 on */

struct tti_nccl {
#define TTI_NCCL_FIELD(type, field, symbol, parameters) type(*field) parameters;
    TTI_NCCL_FUNCTIONS(TTI_NCCL_FIELD)
    TTI_NCCL_MORE_FUNCTIONS(TTI_NCCL_FIELD)
#undef TTI_NCCL_FIELD
    int number; /* the version's number: 22809 is 2.28.9 */
};

/* Loads libnccl, once; NULL: *error says what is missing (ERR_UNSUPPORTED). After a failure it may be tried again. By
 * any thread. */
const struct tti_nccl *tti_nccl_load(tutti_error *error);

/* Returns OK if a library that was found can be used; otherwise ERR_UNSUPPORTED says what is needed. */
tutti_status tti_nccl_check(void *handle, const char *path, tutti_error *error);

/* Writes what that version can do, for people. */
void tti_nccl_describe(void *handle, char *text, size_t bytes);

/* Returns NCCL's number of a type; negative: it has no such type. */
int tti_nccl_type_of(tutti_type type);

#endif
