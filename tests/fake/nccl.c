/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnccl for machines without a GPU: the functions that src/device/nccl_api.h declares, carried out between threads and
 * processes of one machine, on streams of the fake libcuda. Data go through rings in a file that all ranks map.
 *
 * FAKE_NCCL_VERSION   what ncclGetVersion tells (22809)
 * FAKE_NCCL_FAULT     NAME:NTH:RANK:HOW,…   what the NTH call (from 1) of the function NAME does on RANK (-1: on any):
 *                         fail    returns an error
 *                         hang    returns an error when the communicator is revoked or aborted, or never
 *                         hard    never returns
 *                         kill    kills the process
 *                         stall   what it puts on the stream does not end before the communicator is aborted
 *                         async   the same, and ncclCommGetAsyncError tells an error
 *                         sick    returns an "unhandled cuda error", and the GPU has failed; the fake libcuda's
 *                         gone    as async, with that error and that failure
 *                         late    puts its work on the stream after the rank's next call, of another communicator
 * FAKE_NCCL_IN_TURN   1: the calls on one GPU go one after the other, of all communicators, as if each filled it
 * -DFAKE_WITHOUT_REVOKE, -DFAKE_WITHOUT_SEND   leave out a function, as an old library would
 */
#define _GNU_SOURCE
#include "collective/reduce/reduce_kernels_convert.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OK, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS };
enum { SUM, PROD, MAX, MIN, AVG, FIRST_SCALED };
enum { RANKS_MOST = 8, RING_BYTES = 1 << 16, SCALED_MOST = 64, CALLS_MOST = 64 };

static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* ---- What ranks share ---------------------------------------------------------------------------------------------- */

struct ring {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
    char data[RING_BYTES];
};

struct shared {
    _Atomic int joined;
    struct {
        uint64_t host;
        unsigned char uuid[16];
    } places[RANKS_MOST];
    struct ring rings[RANKS_MOST][RANKS_MOST]; /* from, to */
};

struct comm {
    struct comm *next; /* of all: none is ever freed */
    struct shared *shared;
    int rank, size;
    atomic_bool aborted;
    _Atomic int async;
    double factors[SCALED_MOST];
    int scaled;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *comms;
static char last_error[160];

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* ---- Faults -------------------------------------------------------------------------------------------------------- */

static struct {
    char name[40];
    int counts[RANKS_MOST + 1];
} counted[CALLS_MOST];

static _Atomic uint64_t puts_of[RANKS_MOST]; /* work that was put on streams, by rank */

/* How often the function was called on the rank, with this call. */
static int count_call(const char *name, int rank)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (counted[i].name[0] != '\0' && strcmp(counted[i].name, name) != 0) i++;
    snprintf(counted[i].name, sizeof counted[i].name, "%s", name);
    int count = ++counted[i].counts[rank + 1];
    pthread_mutex_unlock(&lock);
    return count;
}

/* For tests: calls of the function so far, on all ranks of the process. */
int fake_nccl_calls(const char *name)
{
    int sum = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CALLS_MOST; i++)
        for (int rank = 0; strcmp(counted[i].name, name) == 0 && rank <= RANKS_MOST; rank++)
            sum += counted[i].counts[rank];
    pthread_mutex_unlock(&lock);
    return sum;
}

static int fail(int result, const char *text)
{
    pthread_mutex_lock(&lock);
    snprintf(last_error, sizeof last_error, "%s", text);
    pthread_mutex_unlock(&lock);
    return result;
}

/* True if the call is one that is to go wrong, and how. */
static bool is_faulty(const char *name, int count, int rank, char how[16])
{
    const char *text = getenv("FAKE_NCCL_FAULT");
    while (text != NULL && *text != '\0') {
        char wanted[40];
        int nth, on;
        if (sscanf(text, "%39[^:]:%d:%d:%15[^,]", wanted, &nth, &on, how) != 4) return false;
        if (strcmp(wanted, name) == 0 && count == nth && (on < 0 || on == rank)) return true;
        text = strchr(text, ',');
        if (text != NULL) text++;
    }
    return false;
}

static void *cuda(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
    return library == NULL ? NULL : dlsym(library, name);
}

static void break_gpu(void)
{
    void (*broken)(int) = (void (*)(int))cuda("fake_cuda_break");
    if (broken != NULL) broken(719);
}

/* The result of a call that is to go wrong; OK: it goes on. *stalls: but what it puts on the stream does not end. */
static int fault(const char *name, int rank, struct comm *comm, bool *stalls)
{
    char how[16];
    uint64_t before = rank < 0 ? 0 : atomic_load(&puts_of[rank]);
    int count = count_call(name, rank);
    *stalls = false;
    if (!is_faulty(name, count, rank, how)) return OK;
    if (strcmp(how, "fail") == 0) return fail(SYSTEM_ERROR, "made to fail");
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    bool gone = strcmp(how, "gone") == 0;
    if (gone || strcmp(how, "sick") == 0) break_gpu();
    if (strcmp(how, "sick") == 0) return fail(CUDA_ERROR, "made to fail");
    if (gone && comm != NULL) atomic_store(&comm->async, CUDA_ERROR);
    if (strcmp(how, "async") == 0 && comm != NULL) atomic_store(&comm->async, REMOTE_ERROR);
    *stalls = gone || strcmp(how, "stall") == 0 || strcmp(how, "async") == 0;
    if (*stalls) return OK;
    if (strcmp(how, "late") == 0) {
        while (atomic_load(&puts_of[rank]) == before && !atomic_load(&comm->aborted)) nap();
        return OK;
    }
    while (strcmp(how, "hard") == 0 || comm == NULL || !atomic_load(&comm->aborted)) nap();
    return fail(INTERNAL_ERROR, "aborted");
}

static int plain_fault(const char *name, int rank, struct comm *comm)
{
    bool stalls;
    return fault(name, rank, comm, &stalls);
}

/* ---- Libcuda ------------------------------------------------------------------------------------------------------- */

static bool current_device(unsigned char uuid[16], int *device)
{
    int (*get_device)(int *) = (int (*)(int *))cuda("cuCtxGetDevice");
    int (*get_uuid)(unsigned char *, int) = (int (*)(unsigned char *, int))cuda("cuDeviceGetUuid_v2");
    return get_device != NULL && get_uuid != NULL && get_device(device) == 0 && get_uuid(uuid, *device) == 0;
}

/* ---- Exchanging data ----------------------------------------------------------------------------------------------- */

struct part {
    bool sends;
    int peer;
    char *at;
    size_t bytes, done;
};

static bool move_part(struct comm *comm, struct part *part)
{
    struct ring *ring = part->sends ? &comm->shared->rings[comm->rank][part->peer]
                                    : &comm->shared->rings[part->peer][comm->rank];
    uint64_t written = atomic_load(&ring->written), read = atomic_load(&ring->read);
    size_t can = part->sends ? RING_BYTES - (size_t)(written - read) : (size_t)(written - read);
    size_t offset = (size_t)(part->sends ? written : read) % RING_BYTES, left = part->bytes - part->done;
    if (can > left) can = left;
    if (can > RING_BYTES - offset) can = RING_BYTES - offset;
    if (can == 0) return false;
    if (part->sends)
        memcpy(ring->data + offset, part->at + part->done, can);
    else
        memcpy(part->at + part->done, ring->data + offset, can);
    part->done += can;
    atomic_fetch_add(part->sends ? &ring->written : &ring->read, can);
    return true;
}

/* Parts of one direction and peer go one after the other, all others side by side. False: aborted. */
static bool exchange(struct comm *comm, struct part *parts, int count)
{
    for (bool ended = false; !ended;) {
        bool blocked[2][RANKS_MOST] = {{false}}, moved = false;
        ended = true;
        for (int i = 0; i < count; i++) {
            struct part *part = &parts[i];
            if (part->done == part->bytes || blocked[part->sends][part->peer]) continue;
            moved = move_part(comm, part) || moved;
            blocked[part->sends][part->peer] = true;
            ended = false;
        }
        if (atomic_load(&comm->aborted)) return false;
        if (!moved && !ended) nap();
    }
    return true;
}

/* ---- Arithmetic ---------------------------------------------------------------------------------------------------- */

static bool is_float(int type)
{
    return type >= 6;
}

static double load_float(int type, const char *at)
{
    float f32;
    double f64;
    uint16_t bits;
    memcpy(&f64, at, type == 8 ? 8 : 0);
    memcpy(&f32, at, type == 7 ? 4 : 0);
    memcpy(&bits, at, type == 6 || type == 9 ? 2 : 0);
    switch (type) {
    case 6: return decode_f16(bits);
    case 7: return f32;
    case 8: return f64;
    case 9: return decode_bf16(bits);
    case 10: return decode_f8e4m3((uint8_t)*at);
    default: return decode_f8e5m2((uint8_t)*at);
    }
}

static void store_float(int type, char *at, double value)
{
    float f32 = (float)value;
    uint16_t bits = type == 6 ? encode_f16(f32) : encode_bf16(f32);
    uint8_t byte = type == 10 ? encode_f8e4m3(f32) : encode_f8e5m2(f32);
    switch (type) {
    case 7: memcpy(at, &f32, 4); break;
    case 8: memcpy(at, &value, 8); break;
    case 6:
    case 9: memcpy(at, &bits, 2); break;
    default: *at = (char)byte;
    }
}

static double fold_float(int reduction, double left, double right)
{
    switch (reduction) {
    case PROD: return left * right;
    case MAX: return left > right ? left : right;
    case MIN: return left < right ? left : right;
    default: return left + right;
    }
}

/* Signed types are extended. */
static uint64_t load_integer(int type, const char *at)
{
    int32_t i32;
    uint32_t u32;
    uint64_t u64;
    memcpy(&i32, at, type == 2 ? 4 : 0);
    memcpy(&u32, at, type == 3 ? 4 : 0);
    memcpy(&u64, at, type == 4 || type == 5 ? 8 : 0);
    switch (type) {
    case 0: return (uint64_t)(int64_t) * (const int8_t *)at;
    case 1: return *(const uint8_t *)at;
    case 2: return (uint64_t)(int64_t)i32;
    case 3: return u32;
    default: return u64;
    }
}

static uint64_t fold_integer(int type, int reduction, uint64_t left, uint64_t right)
{
    bool is_signed = type == 0 || type == 2 || type == 4;
    bool less = is_signed ? (int64_t)left < (int64_t)right : left < right;
    switch (reduction) {
    case PROD: return left * right;
    case MAX: return less ? right : left;
    case MIN: return less ? left : right;
    default: return left + right;
    }
}

/* Over all ranks' contributions, in their order. */
static void fold(const struct comm *comm, int type, int reduction, char *const *inputs, char *out, size_t count)
{
    size_t width = widths[type];
    for (size_t i = 0; i < count; i++) {
        double value = 0;
        uint64_t integer = 0;
        for (int rank = 0; rank < comm->size; rank++) {
            const char *at = inputs[rank] + i * width;
            if (is_float(type))
                value = rank == 0 ? load_float(type, at) : fold_float(reduction, value, load_float(type, at));
            else
                integer = rank == 0 ? load_integer(type, at)
                                    : fold_integer(type, reduction, integer, load_integer(type, at));
        }
        if (is_float(type))
            store_float(type, out + i * width, reduction == AVG ? value / comm->size : value);
        else
            memcpy(out + i * width, &integer, width); /* the lowest bytes come first */
    }
}

/* ---- Collectives --------------------------------------------------------------------------------------------------- */

enum what { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

struct op {
    struct op *next;
    enum what what;
    char *in, *out;
    size_t count;
    int type, reduction, peer;
    double factor; /* 0: none */
    struct comm *comm;
    void *stream;
    bool stalls;
    int device;      /* its calls go one after the other; -1: they do not, */
    uint64_t number; /* and this one's place among them */
};

/* This rank's input, multiplied where the reduction says so; freed by the caller. */
static char *own_input(const struct op *op, size_t count)
{
    size_t width = widths[op->type];
    char *made = malloc(count * width + 1);
    memcpy(made, op->in, count * width);
    for (size_t i = 0; op->factor != 0 && i < count; i++)
        store_float(op->type, made + i * width, load_float(op->type, made + i * width) * op->factor);
    return made;
}

/* Every rank in `takes` gets its block, `stride` apart in the input, of all ranks' and folds it. */
static void run_reduce(struct op *op, uint32_t takes, size_t stride)
{
    struct comm *comm = op->comm;
    size_t bytes = op->count * widths[op->type];
    struct part parts[2 * RANKS_MOST];
    char *inputs[RANKS_MOST] = {NULL};
    int count = 0, rank = comm->rank;
    bool mine = (takes >> rank & 1) != 0;
    char *own = own_input(op, stride == 0 ? op->count : op->count * (size_t)comm->size);
    for (int peer = 0; peer < comm->size; peer++) {
        if (mine) inputs[peer] = peer == rank ? own + stride * (size_t)rank : malloc(bytes + 1);
        if (peer == rank) continue;
        if ((takes >> peer & 1) != 0) parts[count++] = (struct part){true, peer, own + stride * (size_t)peer, bytes, 0};
        if (mine) parts[count++] = (struct part){false, peer, inputs[peer], bytes, 0};
    }
    if (exchange(comm, parts, count) && mine)
        fold(comm, op->type, op->reduction >= FIRST_SCALED ? SUM : op->reduction, inputs, op->out, op->count);
    for (int peer = 0; peer < comm->size; peer++)
        if (peer != rank) free(inputs[peer]);
    free(own);
}

static void run_move(struct op *op)
{
    struct comm *comm = op->comm;
    size_t bytes = op->count * widths[op->type];
    struct part parts[2 * RANKS_MOST];
    int count = 0, rank = comm->rank;
    bool gathers = op->what == ALL_GATHER, gives = gathers || rank == op->peer;
    char *own = op->out + (gathers ? (size_t)rank * bytes : 0);
    if (gives && own != op->in) memmove(own, op->in, bytes);
    for (int peer = 0; peer < comm->size; peer++) {
        if (peer == rank) continue;
        if (gives) parts[count++] = (struct part){true, peer, op->in, bytes, 0};
        if (gathers || peer == op->peer)
            parts[count++] = (struct part){false, peer, op->out + (gathers ? (size_t)peer * bytes : 0), bytes, 0};
    }
    exchange(comm, parts, count);
}

static void run_collective(struct op *op)
{
    switch (op->what) {
    case ALL_REDUCE: run_reduce(op, UINT32_MAX, 0); break;
    case REDUCE: run_reduce(op, UINT32_C(1) << op->peer, 0); break;
    case REDUCE_SCATTER: run_reduce(op, UINT32_MAX, op->count * widths[op->type]); break;
    default: run_move(op); break;
    }
}

static void run_messages(const struct op *ops, struct comm *comm)
{
    int count = 0;
    for (const struct op *op = ops; op != NULL; op = op->next) count += op->what >= SEND;
    struct part *parts = calloc((size_t)count + 1, sizeof *parts);
    count = 0;
    for (const struct op *op = ops; op != NULL; op = op->next)
        if (op->what >= SEND)
            parts[count++] = (struct part){op->what == SEND, op->peer, op->what == SEND ? op->in : op->out,
                                           op->count * widths[op->type], 0};
    exchange(comm, parts, count);
    free(parts);
}

static _Atomic uint64_t queued[RANKS_MOST], served[RANKS_MOST]; /* calls by GPU */

/* When the stream has come to it. */
static void run(void *argument)
{
    struct op *ops = argument;
    struct comm *comm = ops->comm;
    int device = ops->device;
    while (device >= 0 && atomic_load(&served[device]) != ops->number) nap();
    for (const struct op *op = ops; op != NULL; op = op->next)
        while (op->stalls && !atomic_load(&comm->aborted)) nap();
    if (!atomic_load(&comm->aborted)) run_messages(ops, comm);
    while (ops != NULL) {
        struct op *op = ops;
        if (op->what < SEND && !atomic_load(&comm->aborted)) run_collective(op);
        ops = op->next;
        free(op);
    }
    if (device >= 0) atomic_fetch_add(&served[device], 1);
}

/* ---- Groups -------------------------------------------------------------------------------------------------------- */

static _Thread_local int depth;
static _Thread_local struct op *first, **last;

static int submit(void)
{
    struct op *ops = first;
    int (*call)(void *, void (*)(void *), void *) = (int (*)(void *, void (*)(void *), void *))cuda("cuLaunchHostFunc");
    first = NULL;
    if (ops == NULL) return OK;
    unsigned char uuid[16];
    ops->device = -1;
    if (getenv("FAKE_NCCL_IN_TURN") != NULL && current_device(uuid, &ops->device))
        ops->number = atomic_fetch_add(&queued[ops->device], 1);
    return call != NULL && call(ops->stream, run, ops) == 0 ? OK : fail(CUDA_ERROR, "cuLaunchHostFunc");
}

static int put(const char *name, struct op op)
{
    int result = op.comm == NULL ? fail(INVALID_ARGUMENT, "no communicator")
                                 : fault(name, op.comm->rank, op.comm, &op.stalls);
    if (result != OK) return result;
    if (op.reduction >= FIRST_SCALED) op.factor = op.comm->factors[op.reduction - FIRST_SCALED];
    if (first == NULL) last = &first;
    *last = malloc(sizeof op);
    **last = op;
    last = &(*last)->next;
    if (depth > 0) return OK;
    result = submit();
    atomic_fetch_add(&puts_of[op.comm->rank], 1);
    return result;
}

int ncclGroupStart(void)
{
    int result = plain_fault("ncclGroupStart", -1, NULL);
    if (result == OK) depth++;
    return result;
}

int ncclGroupEnd(void)
{
    struct comm *comm = first == NULL ? NULL : first->comm;
    int result = plain_fault("ncclGroupEnd", comm == NULL ? -1 : comm->rank, comm);
    if (--depth > 0) return result;
    if (result == OK) return submit();
    while (first != NULL) {
        struct op *op = first;
        first = op->next;
        free(op);
    }
    return result;
}

/* ---- The library --------------------------------------------------------------------------------------------------- */

int ncclGetVersion(int *version)
{
    const char *text = getenv("FAKE_NCCL_VERSION");
    *version = text == NULL ? 22809 : atoi(text);
    return OK;
}

const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result < 0 || result > IN_PROGRESS ? "unknown result code" : texts[result];
}

const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return last_error;
}

struct id {
    char bytes[128];
};

int ncclGetUniqueId(struct id *id)
{
    int result = plain_fault("ncclGetUniqueId", 0, NULL);
    const char *folder = getenv("FAKE_NCCL_FOLDER"); /* removed by the test: ranks that are killed remove nothing */
    if (result != OK) return result;
    snprintf(id->bytes, sizeof id->bytes, "%.100s/fake_nccl_XXXXXX", folder == NULL ? "/dev/shm" : folder);
    int fd = mkstemp(id->bytes);
    bool made = fd >= 0 && ftruncate(fd, sizeof(struct shared)) == 0;
    if (fd >= 0) close(fd);
    return made ? OK : fail(SYSTEM_ERROR, "no file to share");
}

/* Whether two ranks are on one GPU of one host. */
static int check_places(const struct comm *comm, int device)
{
    const struct shared *shared = comm->shared;
    char text[120];
    for (int i = 0; i < comm->size; i++)
        for (int k = 0; k < i; k++) {
            if (memcmp(&shared->places[i], &shared->places[k], sizeof shared->places[i]) != 0) continue;
            snprintf(text, sizeof text, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", k, i,
                     device);
            return fail(INVALID_USAGE, text);
        }
    return OK;
}

static int join(struct comm *comm, const char *path)
{
    const char *host = getenv("NCCL_HOSTID");
    int fd = open(path, O_RDWR | O_CLOEXEC), device = 0;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (mapped == MAP_FAILED) return fail(SYSTEM_ERROR, "the id leads nowhere");
    comm->shared = mapped;
    if (!current_device(comm->shared->places[comm->rank].uuid, &device)) return fail(CUDA_ERROR, "no context");
    for (const char *c = host == NULL ? "here" : host; *c != '\0'; c++)
        comm->shared->places[comm->rank].host = comm->shared->places[comm->rank].host * 31 + (uint64_t)*c;
    atomic_fetch_add(&comm->shared->joined, 1);
    while (atomic_load(&comm->shared->joined) < comm->size) nap();
    if (comm->rank == 0) unlink(path);
    return check_places(comm, device);
}

struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

int ncclCommInitRankConfig(void **made, int size, struct id id, int rank, struct config *config)
{
    int result = plain_fault("ncclCommInitRankConfig", rank, NULL);
    if (result != OK) return result;
    if (size > RANKS_MOST || config->magic != 0xcafebeefU || config->version < 21400 || config->blocking != 1)
        return fail(INVALID_ARGUMENT, "a bad configuration");
    struct comm *comm = calloc(1, sizeof *comm);
    comm->rank = rank;
    comm->size = size;
    pthread_mutex_lock(&lock);
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&lock);
    result = join(comm, id.bytes);
    if (result == OK) *made = comm;
    return result;
}

int ncclCommGetAsyncError(void *handle, int *result)
{
    struct comm *comm = handle;
    *result = atomic_load(&comm->async);
    return plain_fault("ncclCommGetAsyncError", comm->rank, comm);
}

int ncclCommAbort(void *handle)
{
    struct comm *comm = handle;
    int result = plain_fault("ncclCommAbort", comm->rank, comm);
    atomic_store(&comm->aborted, true);
    return result;
}

#ifndef FAKE_WITHOUT_REVOKE
int ncclCommRevoke(void *handle, int flags)
{
    struct comm *comm = handle;
    int result = flags != 0 ? INVALID_ARGUMENT : plain_fault("ncclCommRevoke", comm->rank, comm);
    atomic_store(&comm->aborted, true);
    return result;
}
#endif

int ncclCommFinalize(void *handle)
{
    struct comm *comm = handle;
    return plain_fault("ncclCommFinalize", comm->rank, comm);
}

int ncclCommDestroy(void *handle)
{
    struct comm *comm = handle;
    return plain_fault("ncclCommDestroy", comm->rank, comm);
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int reduction, void *comm, void *stream)
{
    return put("ncclAllReduce", (struct op){.what = ALL_REDUCE,
                                            .in = (char *)(uintptr_t)in,
                                            .out = out,
                                            .count = count,
                                            .type = type,
                                            .reduction = reduction,
                                            .comm = comm,
                                            .stream = stream});
}

int ncclReduce(const void *in, void *out, size_t count, int type, int reduction, int root, void *comm, void *stream)
{
    return put("ncclReduce", (struct op){.what = REDUCE,
                                         .in = (char *)(uintptr_t)in,
                                         .out = out,
                                         .count = count,
                                         .peer = root,
                                         .type = type,
                                         .reduction = reduction,
                                         .comm = comm,
                                         .stream = stream});
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    return put("ncclBroadcast", (struct op){.what = BROADCAST,
                                            .in = (char *)(uintptr_t)in,
                                            .out = out,
                                            .count = count,
                                            .peer = root,
                                            .type = type,
                                            .comm = comm,
                                            .stream = stream});
}

int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    return put("ncclAllGather", (struct op){.what = ALL_GATHER,
                                            .in = (char *)(uintptr_t)in,
                                            .out = out,
                                            .count = count,
                                            .type = type,
                                            .comm = comm,
                                            .stream = stream});
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int reduction, void *comm, void *stream)
{
    return put("ncclReduceScatter", (struct op){.what = REDUCE_SCATTER,
                                                .in = (char *)(uintptr_t)in,
                                                .out = out,
                                                .count = count,
                                                .type = type,
                                                .reduction = reduction,
                                                .comm = comm,
                                                .stream = stream});
}

#ifndef FAKE_WITHOUT_SEND
int ncclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream)
{
    return put("ncclSend", (struct op){.what = SEND,
                                       .in = (char *)(uintptr_t)in,
                                       .count = count,
                                       .peer = peer,
                                       .type = type,
                                       .comm = comm,
                                       .stream = stream});
}
#endif

int ncclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream)
{
    return put(
        "ncclRecv",
        (struct op){
            .what = RECV, .out = out, .count = count, .peer = peer, .type = type, .comm = comm, .stream = stream});
}

int ncclRedOpCreatePreMulSum(int *reduction, void *factor, int type, int where, void *handle)
{
    struct comm *comm = handle;
    int result = where != 1 ? INVALID_ARGUMENT : plain_fault("ncclRedOpCreatePreMulSum", comm->rank, comm);
    if (result != OK) return result;
    int index = comm->scaled++ % SCALED_MOST;
    comm->factors[index] = load_float(type, factor);
    *reduction = FIRST_SCALED + index;
    return OK;
}

int ncclRedOpDestroy(int reduction, void *comm)
{
    int result = comm == NULL ? OK : plain_fault("ncclRedOpDestroy", ((struct comm *)comm)->rank, comm);
    if (result != OK) return result;
    return comm != NULL && reduction >= FIRST_SCALED ? OK : INVALID_ARGUMENT;
}
