/* SPDX-License-Identifier: Apache-2.0
 *
 * A libcuda for machines without a GPU: the functions that src/device/cuda_api.h declares, carried out on the host. Each
 * stream is a thread with a list of work. tests/cli/cuda.sh builds it and lets the library find it by TUTTI_CUDA_PATH.
 *
 * FAKE_CUDA_VERSION   what cuDriverGetVersion tells (13000)
 * FAKE_CUDA_INIT      what cuInit answers (0)
 * FAKE_CUDA_GPUS      how many there are (2)
 * FAKE_CUDA_REACH     0: none of them reaches another one's memory
 * FAKE_CUDA_FAULT     NAME:NTH:CODE,…  what the NTH call (from 1) of the function NAME answers; after a CODE that is for good
 *                     (700, 719, 214 …) everything does. fake_cuda_fault(text) says so at run time, and counts anew
 * FAKE_CUDA_QUEUE     how much work may be pending on a stream: whoever puts more there is held up until some is done, and so is
 *                     every other thread of the process that calls a function meanwhile (1000000)
 * FAKE_CUDA_COPY_MS   how long each copy takes at least (0)
 * -DFAKE_WITHOUT_TRIM leaves out one function, as an old library would
 *
 * Streams write and wait for words only in memory that is registered, in a context that is still there.
 * A kernel on a GPU whose arguments lead to another GPU's memory, without that being allowed to it, fails as one called wild
 * does. A kernel called mix does what the tests' kernel does; one called wild writes to an illegal address: from then on every
 * function answers 700, and no work is done any more.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    OK = 0,
    INVALID_VALUE = 1,
    NO_MEMORY = 2,
    NO_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    ILLEGAL = 700,
    REGISTERED = 712,
    CAPTURED = 900
};
enum { GPUS_MOST = 8, RANGES_MOST = 4096, DEPTH = 16, GRANULE = 2 << 20 };
#define MEMORY_BYTES ((size_t)1 << 30)

static _Atomic int broken; /* the result of every function, once it is not 0 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int from_environment(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : atoi(text);
}

/* ---- Contexts ---------------------------------------------------------------------------------------------------- */

struct context {
    int device;
    int retained;
};
static struct context contexts[GPUS_MOST];
static _Thread_local struct context *stack[DEPTH];
static _Thread_local int depth;

/* ---- Faults ------------------------------------------------------------------------------------------------------ */

enum { FAULTS_MOST = 8 };
static struct {
    char name[48];
    int nth, code, count;
} faults[FAULTS_MOST];
static _Atomic int fault_count = -1; /* -1: the environment was not read yet */
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;

void fake_cuda_fault(const char *text)
{
    int count = 0;
    pthread_mutex_lock(&faults_lock);
    while (text != NULL && *text != '\0' && count < FAULTS_MOST) {
        if (sscanf(text, "%47[^:]:%d:%d", faults[count].name, &faults[count].nth, &faults[count].code) != 3) break;
        faults[count++].count = 0;
        text = strchr(text, ',');
        if (text != NULL) text++;
    }
    atomic_store(&fault_count, count);
    pthread_mutex_unlock(&faults_lock);
}

static bool is_for_good(int code)
{
    return code == 214 || code == 220 || code == 226 || code == 721 || code == 810 || code == 911 ||
           (code >= 700 && code <= 720 && code != 701 && code != 704 && code != 705 && code != 709);
}

/* What the call answers; OK: it goes on. Names may be given without their version. */
static int fault(const char *name)
{
    int result = OK;
    if (atomic_load(&fault_count) < 0) fake_cuda_fault(getenv("FAKE_CUDA_FAULT"));
    if (atomic_load(&fault_count) == 0) return OK;
    pthread_mutex_lock(&faults_lock);
    for (int i = 0; i < atomic_load(&fault_count); i++) {
        size_t length = strlen(faults[i].name);
        if (strncmp(name, faults[i].name, length) != 0 || (name[length] != '\0' && name[length] != '_')) continue;
        if (++faults[i].count == faults[i].nth) result = faults[i].code;
    }
    pthread_mutex_unlock(&faults_lock);
    if (is_for_good(result)) atomic_store(&broken, result);
    return result;
}

/* For the fake libnccl: the GPU fails. */
void fake_cuda_break(int code)
{
    atomic_store(&broken, code);
}

#define FAULT()                                                                                                        \
    do {                                                                                                               \
        int answer = fault(__func__);                                                                                  \
        if (answer != OK) return answer;                                                                               \
    } while (0)

static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER; /* held by a thread that is held up, so that all are */

/* What every function begins with. */
static int enter(void)
{
    int result = atomic_load(&broken);
    pthread_mutex_lock(&driver);
    pthread_mutex_unlock(&driver);
    return result != OK ? result : depth == 0 ? NO_CONTEXT : OK;
}

int cuDriverGetVersion(int *version)
{
    FAULT();
    *version = from_environment("FAKE_CUDA_VERSION", 13000);
    return OK;
}

int cuInit(unsigned flags)
{
    FAULT();
    (void)flags;
    return from_environment("FAKE_CUDA_INIT", OK);
}

int cuGetErrorName(int code, const char **name)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
                 {NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {100, "CUDA_ERROR_NO_DEVICE"},
                 {NO_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
                 {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
                 {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
                 {ILLEGAL, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                 {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
                 {719, "CUDA_ERROR_LAUNCH_FAILED"},
                 {226, "CUDA_ERROR_CONTAINED"},
                 {721, "CUDA_ERROR_TENSOR_MEMORY_LEAK"},
                 {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED"},
                 {911, "CUDA_ERROR_EXTERNAL_DEVICE"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].code != code) continue;
        *name = names[i].name;
        return OK;
    }
    return INVALID_VALUE;
}

int cuDeviceGetCount(int *count)
{
    FAULT();
    *count = from_environment("FAKE_CUDA_GPUS", 2);
    return atomic_load(&broken);
}

int cuDeviceGet(int *device, int ordinal)
{
    FAULT();
    *device = ordinal;
    return OK;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    FAULT();
    snprintf(name, (size_t)bytes, "Fake GPU %d", device);
    return OK;
}

int cuDeviceGetUuid_v2(unsigned char uuid[16], int device)
{
    FAULT();
    memset(uuid, 17 + device, 16);
    return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    FAULT();
    (void)device;
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1;
    return OK;
}

int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    FAULT();
    *can = device != peer && from_environment("FAKE_CUDA_REACH", 1) != 0;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    FAULT();
    if (atomic_load(&broken) != OK) return atomic_load(&broken);
    contexts[device].device = device;
    contexts[device].retained++;
    *context = &contexts[device];
    return OK;
}

static void forget_registered(int device);

int cuDevicePrimaryCtxRelease_v2(int device)
{
    FAULT();
    if (contexts[device].retained == 0) return NO_CONTEXT;
    if (--contexts[device].retained == 0) forget_registered(device);
    return OK;
}

int cuCtxPushCurrent_v2(void *context)
{
    FAULT();
    struct context *of = context;
    if (depth == DEPTH || of < contexts || of >= contexts + GPUS_MOST || of->retained == 0) return NO_CONTEXT;
    stack[depth++] = of;
    return OK;
}

int cuCtxPopCurrent_v2(void **context)
{
    if (depth == 0) return NO_CONTEXT;
    *context = stack[--depth];
    return OK;
}

int cuCtxGetDevice(int *device)
{
    FAULT();
    if (depth == 0) return NO_CONTEXT;
    *device = stack[depth - 1]->device;
    return OK;
}

static _Atomic unsigned reached[GPUS_MOST]; /* by contexts: bits of the GPUs whose memory each may use */

int cuCtxEnablePeerAccess(void *peer, unsigned flags)
{
    FAULT();
    struct context *of = peer;
    if (depth == 0 || of < contexts || of >= contexts + GPUS_MOST || flags != 0) return INVALID_VALUE;
    if (from_environment("FAKE_CUDA_REACH", 1) == 0) return 217;
    int mine = stack[depth - 1]->device;
    unsigned before = atomic_fetch_or(&reached[mine], 1u << of->device);
    return (before >> of->device & 1) != 0 ? 704 : OK;
}

int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    FAULT();
    *total = MEMORY_BYTES;
    *left = MEMORY_BYTES / 2;
    return enter();
}

/* ---- What pointers are known ------------------------------------------------------------------------------------- */

struct range {
    char *base;
    size_t bytes;
    int type, device, managed;
    uint64_t id;     /* of no other */
    int fd;          /* that it is a mapping of, or 0 */
    unsigned access; /* bits of the GPUs that may use it, beside its own */
};
static struct range ranges[RANGES_MOST];
static int range_count;
static uint64_t range_ids;

static void add(struct range range)
{
    range.device = depth == 0 ? 0 : stack[depth - 1]->device;
    pthread_mutex_lock(&lock);
    range.id = ++range_ids;
    if (range_count < RANGES_MOST) ranges[range_count++] = range;
    pthread_mutex_unlock(&lock);
}

static void add_range(void *base, size_t bytes, int type)
{
    add((struct range){.base = base, .bytes = bytes, .type = type});
}

static bool remove_range(const void *base)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < range_count && !found; i++) {
        if (ranges[i].base != base) continue;
        ranges[i] = ranges[--range_count];
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static struct range range_of(uint64_t pointer)
{
    struct range found = {0};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < range_count; i++)
        if (pointer - (uint64_t)(uintptr_t)ranges[i].base < ranges[i].bytes) found = ranges[i];
    pthread_mutex_unlock(&lock);
    return found;
}

/* A context takes what was registered in it along. */
static void forget_registered(int device)
{
    pthread_mutex_lock(&lock);
    for (int i = range_count - 1; i >= 0; i--)
        if (ranges[i].type == 1 && ranges[i].device == device) ranges[i] = ranges[--range_count];
    pthread_mutex_unlock(&lock);
}

int cuPointerGetAttributes(unsigned count, int *attributes, void **values, uint64_t pointer)
{
    FAULT();
    struct range found = range_of(pointer);
    for (unsigned i = 0; i < count; i++) switch (attributes[i]) {
        case 2: *(int *)values[i] = found.type; break;
        case 7: *(uint64_t *)values[i] = found.id; break;
        case 8: *(int *)values[i] = found.managed; break;
        case 9: *(int *)values[i] = found.device; break;
        case 11: *(uint64_t *)values[i] = (uint64_t)(uintptr_t)found.base; break;
        case 12: *(size_t *)values[i] = found.bytes; break;
        default: return INVALID_VALUE;
        }
    return enter();
}

int cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags)
{
    FAULT();
    (void)flags;
    if (enter() != OK) return enter();
    if (range_of((uint64_t)(uintptr_t)base).type != 0) return REGISTERED;
    add_range(base, bytes, 1);
    return OK;
}

int cuMemHostUnregister(void *base)
{
    FAULT();
    return remove_range(base) ? enter() : INVALID_VALUE;
}

int cuMemHostGetDevicePointer_v2(uint64_t *address, void *base, unsigned flags)
{
    FAULT();
    (void)flags;
    *address = (uint64_t)(uintptr_t)base;
    return enter();
}

/* What programs of others take: other processes can map it. */
struct handle { /* CUipcMemHandle */
    int process, fd;
    size_t bytes;
    char unused[48];
};

static char *map_file(int fd, size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static int take(uint64_t *address, size_t bytes, int managed)
{
    int fd = memfd_create("fake", MFD_CLOEXEC);
    char *memory = fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ? NULL : map_file(fd, bytes);
    if (memory == NULL) return NO_MEMORY;
    add((struct range){.base = memory, .bytes = bytes, .type = 2, .managed = managed, .fd = fd});
    *address = (uint64_t)(uintptr_t)memory;
    return enter();
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    FAULT();
    return take(address, bytes, 0);
}

int cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags)
{
    FAULT();
    return flags == 1 ? take(address, bytes, 1) : INVALID_VALUE;
}

int cuIpcGetMemHandle(struct handle *handle, uint64_t address)
{
    FAULT();
    struct range range = range_of(address);
    if (range.fd == 0 || range.managed) return INVALID_VALUE;
    *handle = (struct handle){.process = (int)getpid(), .fd = range.fd, .bytes = range.bytes};
    return enter();
}

int cuIpcOpenMemHandle_v2(uint64_t *address, struct handle handle, unsigned flags)
{
    FAULT();
    char path[64];
    if (flags != 1 || handle.process == (int)getpid()) return flags != 1 ? INVALID_VALUE : NO_CONTEXT;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char *memory = fd < 0 ? NULL : map_file(fd, handle.bytes);
    if (fd >= 0) close(fd);
    if (memory == NULL) return INVALID_VALUE;
    add_range(memory, handle.bytes, 2);
    *address = (uint64_t)(uintptr_t)memory;
    return enter();
}

int cuIpcCloseMemHandle(uint64_t address)
{
    FAULT();
    struct range range = range_of(address);
    if (range.fd != 0 || !remove_range((void *)(uintptr_t)address)) return INVALID_VALUE;
    munmap(range.base, range.bytes);
    return enter();
}

int cuMemFree_v2(uint64_t address)
{
    FAULT();
    struct range range = range_of(address);
    if (!remove_range((void *)(uintptr_t)address)) return INVALID_VALUE;
    munmap(range.base, range.bytes);
    close(range.fd);
    return enter();
}

struct access { /* CUmemAccessDesc */
    int type, device, flags;
};

static unsigned bits_of(const struct access *access, size_t count)
{
    unsigned bits = 0;
    for (size_t i = 0; i < count; i++) bits |= access[i].type == 1 && access[i].flags == 3 ? 1u << access[i].device : 0;
    return bits;
}

static void set_access(uint64_t address, unsigned bits)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < range_count; i++)
        if (address == (uint64_t)(uintptr_t)ranges[i].base) ranges[i].access = bits;
    pthread_mutex_unlock(&lock);
}

/* What a kernel on this GPU would do with the address. */
static bool is_out_of_reach(int device, uint64_t address)
{
    struct range range = range_of(address);
    if (range.type != 2 || range.managed || range.device == device || (range.access >> device & 1) != 0) return false;
    return range.fd == 0 || (atomic_load(&reached[device]) >> range.device & 1) == 0;
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

/* What a record of an event stands for. They are kept: work refers to them. */
struct record {
    struct record *next;
    atomic_bool done;
};
static struct record *records;

struct event {
    struct event *next;
    struct record *last; /* NULL: it was never recorded */
};
static struct event *events; /* destroyed ones, which work may refer to */

struct work {
    struct work *next;
    enum { COPY, FILL, WAIT_EVENT, RECORD, WAIT_VALUE, WRITE_VALUE, LAUNCH, CALL, FREE } kind;
    struct record *record;
    char *to;
    const char *from;
    size_t bytes, width, pitch; /* of a fill: `bytes` rows of `width`, `pitch` apart */
    uint64_t value;
    struct kernel *kernel;
    void (*function)(void *argument);
    void *argument;
    char arguments[4096]; /* as many as every GPU takes */
};

struct stream {
    struct context *context;
    pthread_t thread;
    pthread_cond_t changed;
    struct work *first, **last;
    bool busy, ended;
    int pending;
    unsigned flags;
    atomic_bool captured;
};

struct kernel {
    const char *name;
    void (*function)(const void *arguments); /* NULL: one of ours */
};
/* Those of collectives, where they are linked to it (cuda_kernels.c). */
void (*fake_kernel(const char *name))(const void *arguments) __attribute__((weak));

struct mix_arguments {
    int32_t *y;
    const int32_t *x;
    uint64_t count;
    int32_t factor, add;
};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void launch(const struct work *work)
{
    struct mix_arguments of;
    if (work->kernel->function != NULL) {
        work->kernel->function(work->arguments);
        return;
    }
    if (strcmp(work->kernel->name, "wild") == 0) {
        atomic_store(&broken, ILLEGAL);
        return;
    }
    memcpy(&of, work->arguments, sizeof of);
    for (uint64_t i = 0; i < of.count; i++)
        of.y[i] = (int32_t)((uint32_t)of.y[i] * (uint32_t)of.factor + (uint32_t)of.x[i] + (uint32_t)of.add);
}

static void do_work(const struct work *work)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)work->to;
    switch (work->kind) {
    case COPY:
        usleep((useconds_t)from_environment("FAKE_CUDA_COPY_MS", 0) * 1000);
        memcpy(work->to, work->from, work->bytes);
        break;
    case FILL:
        for (size_t i = 0; i < work->bytes; i++) memcpy(work->to + i * work->pitch, &work->value, work->width);
        break;
    case WAIT_EVENT:
        while (work->record != NULL && !atomic_load(&work->record->done) && atomic_load(&broken) == OK) nap();
        break;
    case RECORD: atomic_store(&work->record->done, true); break;
    case WAIT_VALUE:
        while ((int64_t)(atomic_load(word) - work->value) < 0 && atomic_load(&broken) == OK) nap();
        break;
    case WRITE_VALUE: atomic_store(word, work->value); break;
    case LAUNCH: launch(work); break;
    case CALL: work->function(work->argument); break;
    case FREE: free(work->to); break;
    }
}

static void *serve(void *argument)
{
    struct stream *stream = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (stream->first == NULL && !stream->ended) pthread_cond_wait(&stream->changed, &lock);
        struct work *work = stream->first;
        if (work == NULL) break;
        stream->first = work->next;
        if (stream->first == NULL) stream->last = &stream->first;
        stream->busy = true;
        pthread_mutex_unlock(&lock);
        if (atomic_load(&broken) == OK || work->kind == FREE) do_work(work);
        free(work);
        pthread_mutex_lock(&lock);
        stream->busy = false;
        stream->pending--;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&stream->changed);
    free(stream);
    return NULL;
}

static int put(void *handle, struct work work)
{
    struct stream *stream = handle;
    struct work *made = malloc(sizeof *made);
    if (atomic_load(&stream->captured)) {
        free(made);
        return CAPTURED;
    }
    if (enter() != OK || made == NULL) {
        free(made);
        return enter();
    }
    *made = work;
    made->next = NULL;
    pthread_mutex_lock(&driver);
    pthread_mutex_lock(&lock);
    while (stream->pending >= from_environment("FAKE_CUDA_QUEUE", 1000000)) pthread_cond_wait(&stream->changed, &lock);
    stream->pending++;
    *stream->last = made;
    stream->last = &made->next;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&driver);
    return OK;
}

int cuStreamCreate(void **handle, unsigned flags)
{
    FAULT();
    struct stream *stream;
    if (flags > 1) return INVALID_VALUE;
    if (enter() != OK) return enter();
    stream = calloc(1, sizeof *stream);
    stream->flags = flags;
    stream->context = stack[depth - 1];
    stream->last = &stream->first;
    pthread_cond_init(&stream->changed, NULL);
    if (pthread_create(&stream->thread, NULL, serve, stream) != 0) return NO_MEMORY;
    pthread_detach(stream->thread);
    *handle = stream;
    return OK;
}

/* What is on it is still done. */
int cuStreamDestroy_v2(void *handle)
{
    FAULT();
    struct stream *stream = handle;
    pthread_mutex_lock(&lock);
    stream->ended = true;
    pthread_cond_signal(&stream->changed);
    pthread_mutex_unlock(&lock);
    return enter();
}

int cuStreamQuery(void *handle)
{
    FAULT();
    struct stream *stream = handle;
    if (enter() != OK) return enter();
    pthread_mutex_lock(&lock);
    bool idle = stream->first == NULL && !stream->busy;
    pthread_mutex_unlock(&lock);
    return idle ? OK : NOT_READY;
}

int cuStreamGetCtx(void *handle, void **context)
{
    FAULT();
    *context = ((struct stream *)handle)->context;
    return enter();
}

int cuStreamGetFlags(void *handle, unsigned *flags)
{
    FAULT();
    *flags = ((struct stream *)handle)->flags;
    return enter();
}

int cuStreamIsCapturing(void *handle, int *status)
{
    FAULT();
    *status = atomic_load(&((struct stream *)handle)->captured);
    return enter();
}

/* Nothing can be put on it until the capture ends. */
int cuStreamBeginCapture_v2(void *handle, int mode)
{
    FAULT();
    (void)mode;
    atomic_store(&((struct stream *)handle)->captured, true);
    return atomic_load(&broken);
}

int cuStreamEndCapture(void *handle, void **graph)
{
    FAULT();
    *graph = NULL;
    atomic_store(&((struct stream *)handle)->captured, false);
    return atomic_load(&broken);
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    FAULT();
    struct event *of = event;
    return flags != 0 ? INVALID_VALUE : put(stream, (struct work){.kind = WAIT_EVENT, .record = of->last});
}

int cuStreamWaitValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned flags)
{
    FAULT();
    if (flags != 0 || range_of(address).type != 1) return INVALID_VALUE;
    return put(stream, (struct work){.kind = WAIT_VALUE, .to = (char *)(uintptr_t)address, .value = value});
}

int cuStreamWriteValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned flags)
{
    FAULT();
    if (flags != 0 || range_of(address).type != 1) return INVALID_VALUE;
    return put(stream, (struct work){.kind = WRITE_VALUE, .to = (char *)(uintptr_t)address, .value = value});
}

/* What the fake libnccl does its work by. */
int cuLaunchHostFunc(void *stream, void (*function)(void *argument), void *argument)
{
    FAULT();
    return put(stream, (struct work){.kind = CALL, .function = function, .argument = argument});
}

int cuEventCreate(void **event, unsigned flags)
{
    FAULT();
    if (flags != 2) return INVALID_VALUE;
    *event = calloc(1, sizeof(struct event));
    return enter();
}

int cuEventDestroy_v2(void *event)
{
    FAULT();
    struct event *of = event;
    pthread_mutex_lock(&lock);
    of->next = events;
    events = of;
    pthread_mutex_unlock(&lock);
    return enter();
}

int cuEventRecord(void *event, void *stream)
{
    FAULT();
    struct event *of = event;
    struct record *record = calloc(1, sizeof *record);
    pthread_mutex_lock(&lock);
    record->next = records;
    records = record;
    pthread_mutex_unlock(&lock);
    of->last = record;
    return put(stream, (struct work){.kind = RECORD, .record = record});
}

int cuEventQuery(void *event)
{
    FAULT();
    struct event *of = event;
    if (enter() != OK) return enter();
    return of->last == NULL || atomic_load(&of->last->done) ? OK : NOT_READY;
}

/* ---- Data -------------------------------------------------------------------------------------------------------- */

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    FAULT();
    return put(stream,
               (struct work){
                   .kind = COPY, .to = (char *)(uintptr_t)to, .from = (const char *)(uintptr_t)from, .bytes = bytes});
}

static int fill(uint64_t to, uint64_t value, size_t width, size_t pitch, size_t rows, void *stream)
{
    return put(
        stream,
        (struct work){
            .kind = FILL, .to = (char *)(uintptr_t)to, .bytes = rows, .width = width, .pitch = pitch, .value = value});
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void *stream)
{
    FAULT();
    return fill(to, value, 1, 1, count, stream);
}

int cuMemsetD16Async(uint64_t to, unsigned short value, size_t count, void *stream)
{
    FAULT();
    return fill(to, value, 2, 2, count, stream);
}

int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void *stream)
{
    FAULT();
    return fill(to, value, 4, 4, count, stream);
}

int cuMemsetD2D32Async(uint64_t to, size_t pitch, unsigned value, size_t width, size_t height, void *stream)
{
    FAULT();
    return width != 1 ? INVALID_VALUE : fill(to, value, 4, pitch, height, stream);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static unsigned pools[GPUS_MOST]; /* bits of the GPUs that may use each GPU's */

static bool is_pool(const void *pool)
{
    return (const unsigned *)pool >= pools && (const unsigned *)pool < pools + GPUS_MOST;
}

int cuMemPoolCreate(void **pool, const int *properties)
{
    FAULT();
    pools[properties[3]] = 0; /* location.id */
    *pool = &pools[properties[3]];
    return enter();
}

int cuMemPoolDestroy(void *pool)
{
    FAULT();
    return is_pool(pool) ? enter() : INVALID_VALUE;
}

int cuMemPoolSetAccess(void *pool, const struct access *access, size_t count)
{
    FAULT();
    if (!is_pool(pool)) return INVALID_VALUE;
    *(unsigned *)pool = bits_of(access, count);
    return enter();
}

int cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    FAULT();
    (void)value;
    return is_pool(pool) && (attribute == 3 || attribute == 4) ? enter() : INVALID_VALUE;
}

#ifndef FAKE_WITHOUT_TRIM
int cuMemPoolTrimTo(void *pool, size_t bytes)
{
    FAULT();
    return is_pool(pool) && bytes == 0 ? enter() : INVALID_VALUE;
}
#endif

int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, void *pool, void *stream)
{
    FAULT();
    (void)stream;
    if (enter() != OK || !is_pool(pool)) return enter() != OK ? enter() : INVALID_VALUE;
    char *memory = bytes > MEMORY_BYTES ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (memory == NULL) return NO_MEMORY;
    add((struct range){.base = memory, .bytes = bytes, .type = 2, .access = *(unsigned *)pool});
    *address = (uint64_t)(uintptr_t)memory;
    return OK;
}

/* As the driver does, forgets it at once and frees it when the stream gets there. */
int cuMemFreeAsync(uint64_t address, void *stream)
{
    FAULT();
    if (!remove_range((void *)(uintptr_t)address)) return INVALID_VALUE;
    return put(stream, (struct work){.kind = FREE, .to = (char *)(uintptr_t)address});
}

int cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option)
{
    FAULT();
    (void)properties;
    (void)option;
    *bytes = GRANULE;
    return enter();
}

int cuMemCreate(uint64_t *handle, size_t bytes, const void *properties, uint64_t flags)
{
    FAULT();
    (void)properties;
    (void)flags;
    if (enter() != OK) return enter();
    if (bytes % GRANULE != 0) return INVALID_VALUE;
    if (bytes > MEMORY_BYTES) return NO_MEMORY;
    int fd = memfd_create("fake", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) return NO_MEMORY;
    *handle = (uint64_t)fd;
    return OK;
}

int cuMemRelease(uint64_t handle)
{
    FAULT();
    return close((int)handle) == 0 ? enter() : INVALID_VALUE;
}

int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wish, uint64_t flags)
{
    FAULT();
    (void)alignment;
    (void)wish;
    (void)flags;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NO_MEMORY;
    *address = (uint64_t)(uintptr_t)base;
    return enter();
}

int cuMemAddressFree(uint64_t address, size_t bytes)
{
    FAULT();
    return munmap((void *)(uintptr_t)address, bytes) == 0 ? enter() : INVALID_VALUE;
}

int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
    FAULT();
    (void)flags;
    void *base = (void *)(uintptr_t)address;
    if (lseek((int)handle, 0, SEEK_END) < (off_t)bytes) return INVALID_VALUE;
    if (mmap(base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset) == MAP_FAILED)
        return NO_MEMORY;
    add_range(base, bytes, 2);
    return enter();
}

int cuMemUnmap(uint64_t address, size_t bytes)
{
    FAULT();
    void *base = (void *)(uintptr_t)address;
    if (!remove_range(base)) return INVALID_VALUE;
    return mmap(base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == base ? enter() : NO_MEMORY;
}

int cuMemSetAccess(uint64_t address, size_t bytes, const struct access *access, size_t count)
{
    FAULT();
    if (count < 1) return INVALID_VALUE;
    set_access(address, bits_of(access, count));
    return mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE) == 0 ? enter() : INVALID_VALUE;
}

int cuMemExportToShareableHandle(void *fd, uint64_t handle, int type, uint64_t flags)
{
    FAULT();
    if (type != 1 || flags != 0) return INVALID_VALUE;
    *(int *)fd = fcntl((int)handle, F_DUPFD_CLOEXEC, 0);
    return enter();
}

int cuMemImportFromShareableHandle(uint64_t *handle, void *fd, int type)
{
    FAULT();
    int copy = type != 1 ? -1 : fcntl((int)(intptr_t)fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return INVALID_VALUE;
    *handle = (uint64_t)copy;
    return enter();
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

enum { KERNELS = 1024 };
static struct kernel kernels[KERNELS] = {{"mix", NULL}, {"wild", NULL}};

/* The place of a kernel, under the lock; NULL: there is none of this name. */
static struct kernel *find_kernel(const char *name)
{
    int i = 0;
    while (i < KERNELS && kernels[i].name != NULL && strcmp(kernels[i].name, name) != 0) i++;
    if (i < KERNELS && kernels[i].name != NULL) return &kernels[i];
    if (i == KERNELS || fake_kernel == NULL || fake_kernel(name) == NULL) return NULL;
    kernels[i].function = fake_kernel(name);
    kernels[i].name = strdup(name);
    return &kernels[i];
}

int cuModuleLoadDataEx(void **module, const void *code, unsigned count, int *names, void **values)
{
    FAULT();
    *module = kernels;
    if (strstr(code, ".entry") != NULL) return enter();
    for (unsigned i = 0; i < count; i++)
        if (names[i] == 5) snprintf(values[i], 40, "line 1: this is no code");
    return 218;
}

int cuModuleUnload(void *module)
{
    FAULT();
    return module == kernels ? enter() : INVALID_HANDLE;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    FAULT();
    (void)module;
    pthread_mutex_lock(&lock);
    *function = find_kernel(name);
    pthread_mutex_unlock(&lock);
    if (*function != NULL) return enter();
    return 500;
}

int cuFuncLoad(void *function)
{
    FAULT();
    return function == NULL ? INVALID_HANDLE : enter();
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters,
                   void **extra)
{
    FAULT();
    struct work work = {.kind = LAUNCH, .kernel = function};
    (void)shared_bytes;
    if (parameters != NULL || grid_x * grid_y * grid_z * block_x * block_y * block_z == 0) return INVALID_VALUE;
    if (extra != NULL) {
        size_t bytes = *(size_t *)extra[3];
        if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != NULL || bytes > sizeof work.arguments)
            return INVALID_VALUE;
        memcpy(work.arguments, extra[1], bytes);
        for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, work.arguments + i, sizeof word);
            if (is_out_of_reach(((struct stream *)stream)->context->device, word)) atomic_store(&broken, ILLEGAL);
        }
    }
    return put(stream, work);
}
