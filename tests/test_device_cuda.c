/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 waits
 *
 * What only GPUs have: contexts and memory of others, graph capture, memory that processes share, failure for good. Skipped
 * where there is none; tests/cli/cuda.sh runs it with a driver that is made of threads, `make test-gpu` with a real one.
 *
 *     test_device_cuda [cuda:N]
 *     test_device_cuda --here       only says whether there is a GPU
 */
#include "base/clock.h"
#include "base/task.h"
#include "device/buffer.h"
#include "device/cuda_device.h"
#include "device/find.h"
#include "device/library.h"
#include "device_check.h"
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 1000 };

static const char *program;

static void *symbol(const char *name)
{
    static void *handle;
    static char path[TTI_LIBRARY_PATH];
    if (handle == NULL) GOOD(tti_library_open(&tti_library_cuda, &handle, path, &error));
    return dlsym(handle, name);
}

static struct tti_cuda_device *inside_of(tutti_device *handle)
{
    struct tti_device *device = tti_device_take(handle, &error);
    tti_object_give(&device->object); /* the handle refers to it */
    return tti_cuda_of(device);
}

/* ---- Devices ------------------------------------------------------------------------------------------------------- */

static void test_describe(tutti_device *device)
{
    tutti_device_about about = {.struct_size = sizeof about};
    unsigned char none[16] = {0};
    GOOD(tutti_device_describe(device, &about, &error));
    CHECK(about.capability >= 50 && about.model[0] != '\0' && memcmp(about.uuid, none, sizeof none) != 0);
    printf("%s: %s, capability %d, %.1f GiB free of %.1f\n", device_name, about.model, about.capability,
           (double)about.memory_free / (1 << 30), (double)about.memory_total / (1 << 30));
    tutti_device *absent = NULL;
    FAILS(TUTTI_ERR_ARGUMENT, "is not here: the driver shows", tutti_device_open("cuda:99", &absent, &error));
    CHECK(tutti_has("cuda") && !tutti_has("x") && !tutti_has(NULL));
}

/* A context of the caller's; here, the one that CUDA's runtime would use. */
static void test_adopt_context(tutti_device *device)
{
    tutti_device *adopted = NULL, *again = NULL;
    void *context = inside_of(device)->context;
    int32_t three = 3, out[N] = {0};
    FAILS(TUTTI_ERR_ARGUMENT, "NULL", tutti_device_adopt("cuda", NULL, &adopted, &error));
    FAILS(TUTTI_ERR_UNSUPPORTED, "no context", tutti_device_adopt("host", context, &adopted, &error));
    GOOD(tutti_device_adopt("cuda", context, &adopted, &error));
    GOOD(tutti_device_adopt("cuda", context, &again, &error));
    CHECK(adopted != device && adopted == again && strcmp(tutti_device_name(adopted), device_name) == 0);
    tutti_stream *stream = make_stream(adopted);
    tutti_buffer *x = make_buffer(adopted, TUTTI_I32, N);
    GOOD(tutti_buffer_fill(x, 0, N, &three, stream, &error));
    GOOD(tutti_buffer_get(x, 0, out, N, stream, &error));
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    CHECK(out[0] == 3 && out[N - 1] == 3);
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(stream, &error));
    GOOD(tutti_device_free(adopted, &error));
    GOOD(tutti_device_free(again, &error));
    stream = make_stream(device); /* the context is still there */
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    GOOD(tutti_stream_free(stream, &error));
}

/* The caller's current context is as before, after every call. */
static void test_current_context(tutti_device *device)
{
    const struct tti_cuda *cuda = inside_of(device)->cuda;
    int current = -1;
    CHECK(cuda->context_device(&current) != TTI_CUDA_OK); /* there is none, and all tests before have left it so */
    (void)device;
}

static void test_default_streams(tutti_device *device)
{
    tutti_stream *stream = NULL;
    for (uintptr_t i = 0; i <= 2; i++)
        FAILS(TUTTI_ERR_ARGUMENT, "default stream", tutti_stream_adopt(device, (void *)i, &stream, &error));
}

static int warnings;

static void count_warnings(void *context, tutti_log_level level, const char *line)
{
    (void)context;
    (void)level;
    warnings += strstr(line, "is a blocking one (cudaStreamCreate)") != NULL;
}

/* One that the legacy default stream waits for: it is used as any other, and told once. */
static void test_blocking_stream(tutti_device *handle)
{
    struct tti_cuda_device *device = inside_of(handle);
    tutti_buffer *x = make_buffer(handle, TUTTI_I32, N);
    int32_t four = 4, out[N] = {0};
    void *plain[3];
    CHECK(tti_cuda_enter(device) == TTI_CUDA_OK);
    for (unsigned i = 0; i < 3; i++) CHECK(device->cuda->stream_create(&plain[i], i == 0 ? 1 : 0) == TTI_CUDA_OK);
    tti_cuda_leave(device);
    tutti_log_set_level(TUTTI_WARN);
    tutti_log_to(count_warnings, NULL);
    for (int i = 0; i < 3; i++) {
        tutti_stream *stream = NULL;
        GOOD(tutti_stream_adopt(handle, plain[i], &stream, &error));
        CHECK_THAT(warnings == (i > 0), "%d warnings after %d streams", warnings, i + 1);
        GOOD(tutti_buffer_fill(x, 0, N, &four, stream, &error));
        GOOD(tutti_buffer_get(x, 0, out, N, stream, &error));
        GOOD(tutti_stream_sync(stream, LONG_MS, &error));
        CHECK(out[0] == 4 && out[N - 1] == 4);
        GOOD(tutti_stream_free(stream, &error));
    }
    tutti_log_to(NULL, NULL);
    tutti_log_set_level(TUTTI_QUIET);
    CHECK(tti_cuda_enter(device) == TTI_CUDA_OK);
    for (int i = 0; i < 3; i++) CHECK(device->cuda->stream_destroy(plain[i]) == TTI_CUDA_OK);
    tti_cuda_leave(device);
    GOOD(tutti_buffer_free(x, &error));
}

/* ---- Memory of others, out of memory -------------------------------------------------------------------------------- */

static void check_where(const void *pointer, int where)
{
    struct tti_found found;
    tti_memory_find(pointer, &found);
    CHECK_THAT((int)found.where == where && found.buffer == NULL, "%d, not %d", (int)found.where, where);
    CHECK(where == TTI_FOUND_PRIVATE || (found.device != NULL && found.base != NULL && found.bytes >= 4096));
    tti_found_give(&found);
}

static void test_foreign_memory(tutti_device *handle)
{
    struct tti_cuda_device *device = inside_of(handle);
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))symbol("cuMemAlloc_v2");
    int (*release)(uint64_t) = (int (*)(uint64_t))symbol("cuMemFree_v2");
    int (*managed)(uint64_t *, size_t, unsigned) = (int (*)(uint64_t *, size_t, unsigned))symbol("cuMemAllocManaged");
    uint64_t plain = 0, shared = 0;
    static char private[4096];
    check_where(private + 8, TTI_FOUND_PRIVATE);
    if (alloc == NULL) return;
    CHECK(tti_cuda_enter(device) == TTI_CUDA_OK);
    CHECK(alloc(&plain, 8192) == TTI_CUDA_OK && managed(&shared, 8192, 1) == TTI_CUDA_OK);
    check_where((char *)(uintptr_t)plain + 4000, TTI_FOUND_DEVICE);
    check_where((char *)(uintptr_t)shared + 4000, TTI_FOUND_MANAGED);
    CHECK(release(plain) == TTI_CUDA_OK && release(shared) == TTI_CUDA_OK);
    tti_cuda_leave(device);
}

static tutti_status take_on(const void *pointer, tutti_stream *handle)
{
    struct tti_stream *stream = tti_stream_take(handle, &error);
    struct tti_device_buffer *buffer = NULL;
    tutti_status status = tti_memory_take(pointer, 4096, "in", stream, &buffer, &error);
    tti_object_give(&stream->object);
    return status;
}

/* With two GPUs: copies between them, by a stream of either; managed memory is that of both, other memory is not. */
static void test_two_devices(tutti_device *first, tutti_device *second)
{
    struct tti_cuda_device *device = inside_of(second);
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))symbol("cuMemAlloc_v2");
    int (*managed)(uint64_t *, size_t, unsigned) = (int (*)(uint64_t *, size_t, unsigned))symbol("cuMemAllocManaged");
    int (*release)(uint64_t) = (int (*)(uint64_t))symbol("cuMemFree_v2");
    tutti_stream *a = make_stream(first), *b = make_stream(second);
    tutti_buffer *x = make_buffer(first, TUTTI_I32, N), *y = make_buffer(second, TUTTI_I32, N);
    int32_t seven = 7, eight = 8, out[N] = {0};
    uint64_t plain = 0, shared = 0;
    GOOD(tutti_buffer_fill(x, 0, N, &seven, a, &error));
    GOOD(tutti_buffer_copy(y, 0, x, 0, N, b, &error)); /* waits for the fill by itself */
    GOOD(tutti_buffer_get(y, 0, out, N, b, &error));
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    CHECK(out[0] == 7 && out[N - 1] == 7);
    GOOD(tutti_buffer_fill(y, 0, N, &eight, b, &error));
    GOOD(tutti_buffer_copy(x, 0, y, 0, N, b, &error));
    GOOD(tutti_buffer_get(x, 0, out, N, a, &error));
    GOOD(tutti_stream_sync(a, LONG_MS, &error));
    CHECK(out[0] == 8 && out[N - 1] == 8);
    CHECK(tti_cuda_enter(device) == TTI_CUDA_OK);
    CHECK(alloc(&plain, 8192) == TTI_CUDA_OK && managed(&shared, 8192, 1) == TTI_CUDA_OK);
    CHECK(take_on((void *)(uintptr_t)plain, b) == TUTTI_OK);
    CHECK(take_on((void *)(uintptr_t)plain, a) == TUTTI_ERR_ARGUMENT && strstr(error.text, "memory of cuda:") != NULL);
    CHECK(take_on((void *)(uintptr_t)shared, a) == TUTTI_OK && take_on((void *)(uintptr_t)shared, b) == TUTTI_OK);
    CHECK(release(plain) == TTI_CUDA_OK && release(shared) == TTI_CUDA_OK);
    tti_cuda_leave(device);
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_buffer_free(y, &error));
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_free(b, &error));
}

static void test_others(tutti_device *first)
{
    tutti_device *second = NULL, *host = NULL;
    int count = 0;
    GOOD(tutti_device_open("host", &host, &error));
    CHECK(tutti_device_reaches(first, first) && !tutti_device_reaches(first, host) &&
          !tutti_device_reaches(host, first));
    CHECK(!tutti_device_reaches(first, NULL) && !tutti_device_reaches(NULL, first));
    GOOD(tutti_device_free(host, &error));
    GOOD(tutti_device_count("cuda", &count, &error));
    if (count < 2) {
        printf("one GPU: copies between two were not tried\n");
        return;
    }
    GOOD(tutti_device_open(strcmp(device_name, "cuda:1") == 0 ? "cuda:0" : "cuda:1", &second, &error));
    printf("%s %s the memory of %s\n", device_name, tutti_device_reaches(first, second) ? "reaches" : "does not reach",
           tutti_device_name(second));
    test_two_devices(first, second);
    GOOD(tutti_device_free(second, &error));
}

/* An ordinary error, after which everything works. */
static void test_out_of_memory(tutti_device *device)
{
    tutti_device_about about = {.struct_size = sizeof about};
    tutti_buffer *bad = NULL;
    GOOD(tutti_device_describe(device, &about, &error));
    for (int memory = TUTTI_MEMORY_LOCAL; memory <= TUTTI_MEMORY_SHARED; memory++)
        FAILS(
            TUTTI_ERR_MEMORY, "has no memory left",
            tutti_buffer_create(device, (tutti_memory)memory, TUTTI_U8, about.memory_total + (64 << 20), &bad, &error));
    tutti_buffer *good = make_buffer(device, TUTTI_U8, 1 << 20);
    GOOD(tutti_buffer_free(good, &error));
}

/* ---- Graph capture --------------------------------------------------------------------------------------------------- */

static void test_capture(tutti_device *device)
{
    int (*begin)(void *, int) = (int (*)(void *, int))symbol("cuStreamBeginCapture_v2");
    int (*end)(void *, void **) = (int (*)(void *, void **))symbol("cuStreamEndCapture");
    tutti_stream *stream = make_stream(device);
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N);
    int32_t one = 1;
    void *native = tutti_stream_native(stream), *graph = NULL;
    if (begin != NULL) {
        CHECK(begin(native, 0) == 0);
        FAILS(TUTTI_ERR_ARGUMENT, "being captured into a graph", tutti_buffer_fill(x, 0, N, &one, stream, &error));
        FAILS(TUTTI_ERR_ARGUMENT, "being captured into a graph", tutti_stream_sync(stream, 0, &error));
        CHECK(end(native, &graph) == 0); /* nothing was recorded, so the capture is good */
    }
    GOOD(tutti_buffer_fill(x, 0, N, &one, stream, &error));
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(stream, &error));
}

/* Code that cannot be loaded: the log is shown. */
static void test_bad_code(tutti_device *handle)
{
    struct tti_device *device = &inside_of(handle)->device;
    struct tti_kernel kernel = {.name = "mix"};
    CHECK(device->ops->load(device, "this is no code", &kernel, &error) != TUTTI_OK);
    CHECK_THAT(strstr(error.text, "the code of mix cannot be loaded") != NULL, "%s", error.text);
    CHECK(device->ops->load(device, NULL, &kernel, &error) == TUTTI_ERR_ARGUMENT);
    kernel = mix_kernel(handle);
    CHECK(kernel.native != NULL);
}

/* ---- Several processes ----------------------------------------------------------------------------------------------- */

/* Runs this program again, for one part; the child's status. */
static int run_again(const char *part, const char *argument)
{
    int status = -1;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        (void)execl(program, program, device_name, part, argument, (char *)NULL);
        _exit(99);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

/* In another process: reads what the first one has written, and answers. */
static void answer_in_memory(int fd)
{
    tutti_device *handle = open_device();
    tutti_stream *stream = make_stream(handle);
    struct tti_device *device = &inside_of(handle)->device;
    struct tti_stream *inside = tti_stream_take(stream, &error);
    struct tti_memory memory = {0};
    static int32_t seen[N];
    GOOD(device->ops->map(device, fd, sizeof seen, &memory, &error));
    GOOD(tti_stream_copy(inside, seen, memory.base, sizeof seen, &error));
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    CHECK(seen[0] == 41 && seen[N - 1] == 41);
    GOOD(tti_stream_fill(inside, memory.base, N, &(int32_t){42}, 4, &error));
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    device->ops->free(device, &memory, NULL);
    tti_object_give(&inside->object);
    GOOD(tutti_stream_free(stream, &error));
    GOOD(tutti_device_free(handle, &error));
}

static void test_share(tutti_device *device)
{
    tutti_stream *stream = make_stream(device);
    tutti_buffer *x = NULL;
    int32_t first = 41, out[N] = {0};
    int fd = -1;
    char text[16];
    GOOD(tutti_buffer_create(device, TUTTI_MEMORY_SHARED, TUTTI_I32, N, &x, &error));
    GOOD(tutti_buffer_fill(x, 0, N, &first, stream, &error));
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    struct tti_device_buffer *buffer = tti_buffer_take(x, &error);
    GOOD(tti_buffer_share(buffer, &fd, &error));
    tti_object_give(&buffer->object);
    (void)snprintf(text, sizeof text, "%d", dup(fd)); /* the copy is not closed by exec */
    CHECK(run_again("share", text) == 0);
    GOOD(tutti_buffer_get(x, 0, out, N, stream, &error));
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    CHECK_THAT(out[0] == 42 && out[N - 1] == 42, "%d", out[0]);
    (void)close(fd);
    (void)close(atoi(text));
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(stream, &error));
}

/* ---- What must not wait for a stream that stands still ------------------------------------------------------------------ */

struct trial {
    tutti_device *device;
    tutti_stream *other; /* that nothing holds */
    tutti_buffer *buffer;
    struct tti_kernel kernel;
    const struct try *of;
    _Atomic uint32_t done;
};

static void try_memory(struct trial *trial, tutti_memory memory)
{
    tutti_buffer *x = NULL;
    GOOD(tutti_buffer_create(trial->device, memory, TUTTI_U8, 32 << 20, &x, &error));
    GOOD(tutti_buffer_free(x, &error));
}

static void try_local(struct trial *trial)
{
    try_memory(trial, TUTTI_MEMORY_LOCAL);
}

static void try_shared(struct trial *trial)
{
    try_memory(trial, TUTTI_MEMORY_SHARED);
}

static void try_pinned(struct trial *trial)
{
    try_memory(trial, TUTTI_MEMORY_PINNED);
}

static void try_stream(struct trial *trial)
{
    tutti_stream *stream = make_stream(trial->device);
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    GOOD(tutti_stream_free(stream, &error));
}

static void try_mark(struct trial *trial)
{
    tutti_mark *mark = NULL;
    GOOD(tutti_mark_create(trial->device, &mark, &error));
    GOOD(tutti_mark_record(mark, trial->other, &error));
    GOOD(tutti_mark_free(mark, &error));
}

static void try_describe(struct trial *trial)
{
    tutti_device_about about = {.struct_size = sizeof about};
    GOOD(tutti_device_describe(trial->device, &about, &error));
}

static void try_copies(struct trial *trial)
{
    static int32_t host[N];
    GOOD(tutti_buffer_put(trial->buffer, 0, host, N, trial->other, &error));
    GOOD(tutti_buffer_get(trial->buffer, 0, host, N, trial->other, &error));
    GOOD(tutti_stream_sync(trial->other, LONG_MS, &error));
}

static void try_launch(struct trial *trial)
{
    struct mix_arguments arguments = {tutti_buffer_at(trial->buffer, 0, N), tutti_buffer_at(trial->buffer, 0, N), N, 1,
                                      1};
    GOOD(mix_launch(&trial->kernel, &arguments, trial->other));
    GOOD(tutti_stream_sync(trial->other, LONG_MS, &error));
}

static void try_load(struct trial *trial)
{
    (void)mix_kernel(trial->device);
}

static const struct
try {
    const char *what;
    void (*body)(struct trial * trial);
    bool may_wait;
}
tries[] = {
    {"local memory", try_local, false},   {"shared memory", try_shared, false},
    {"pinned memory", try_pinned, false}, {"a stream", try_stream, false},
    {"a mark", try_mark, false},          {"memory information", try_describe, false},
    {"copies", try_copies, false},        {"a launch", try_launch, false},
    {"loading a kernel", try_load, true},
};

static void *try_it(void *argument)
{
    struct trial *trial = argument;
    trial->of->body(trial);
    atomic_store(&trial->done, 1);
    return NULL;
}

static void check_try(struct trial *trial, tutti_stream *held)
{
    struct tti_stream *inside = tti_stream_take(held, &error);
    struct tti_word *word = NULL;
    struct tti_task task;
    GOOD(tti_word_take(inside->device, &word, &error));
    uint64_t value = atomic_load(&word->value) + 1;
    GOOD(tti_stream_hold(inside, word, value, &error));
    atomic_store(&trial->done, 0);
    int64_t start = tti_now_ns(), deadline = start + 1500 * MS;
    bool started = tti_task_start(&task, try_it, trial, &error) == TUTTI_OK;
    while (atomic_load(&trial->done) == 0 && tti_now_ns() < deadline) tti_wait_turn();
    bool waits = atomic_load(&trial->done) == 0;
    printf("beside a stream that stands still: %s %s (%.2f ms)\n", trial->of->what, waits ? "WAITS" : "goes on",
           (double)(tti_now_ns() - start) / (double)MS);
    tti_word_store(word, value);
    if (started) tti_task_join(&task); /* which counts checks meanwhile */
    CHECK_THAT(started && (!waits || trial->of->may_wait), "%s", trial->of->what);
    GOOD(tutti_stream_sync(held, LONG_MS, &error));
    tti_word_give(inside->device, word);
    tti_object_give(&inside->object);
}

static void test_beside_a_hold(tutti_device *device)
{
    tutti_stream *held = make_stream(device);
    struct trial trial = {.device = device, .other = make_stream(device), .kernel = mix_kernel(device)};
    trial.buffer = make_buffer(device, TUTTI_I32, N);
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        trial.of = &tries[i];
        check_try(&trial, held);
    }
    GOOD(tutti_buffer_free(trial.buffer, &error));
    GOOD(tutti_stream_free(trial.other, &error));
    GOOD(tutti_stream_free(held, &error));
}

/* ---- Holds that nobody ends ------------------------------------------------------------------------------------------- */

static void test_given_up(tutti_device *handle)
{
    tutti_stream *held = make_stream(handle), *other = make_stream(handle);
    struct tti_stream *inside = tti_stream_take(held, &error);
    struct tti_word *word = NULL;
    GOOD(tti_word_take(inside->device, &word, &error));
    GOOD(tti_stream_hold(inside, word, atomic_load(&word->value) + 1, &error));
    tti_object_give(&inside->object);
    int64_t start = tti_now_ns();
    FAILS(TUTTI_ERR_TIMEOUT, "given up; the last that was put there is a hold", tutti_stream_free(held, &error));
    int64_t took_ms = (tti_now_ns() - start) / MS;
    CHECK_THAT(took_ms >= 10000 && took_ms < 20000, "%lld ms", (long long)took_ms);
    GOOD(tutti_stream_sync(other, LONG_MS, &error)); /* the device is as good as before */
    GOOD(tutti_stream_free(other, &error));
}

/* ---- Failure for good -------------------------------------------------------------------------------------------------- */

static const char wild_code[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .entry wild()\n{\n.reg .b64 %d<2>;\n.reg .b32 %r<2>;\n"
                                "mov.u64 %d0, 16;\nmov.u32 %r0, 1;\nst.global.u32 [%d0], %r0;\nret;\n}\n";

struct sleeper {
    tutti_stream *stream;
    tutti_status status;
    tutti_error error;
    int64_t woken_ns;
};

static void *sync_for_long(void *argument)
{
    struct sleeper *sleeper = argument;
    sleeper->status = tutti_stream_sync(sleeper->stream, LONG_MS, &sleeper->error);
    sleeper->woken_ns = tti_now_ns();
    return NULL;
}

/* Until somebody waits for long. */
static void await_watched(struct tti_cuda_device *device)
{
    int64_t deadline_ns = tti_now_ns() + LONG_MS * MS;
    int count = 0;
    while (count == 0 && tti_now_ns() < deadline_ns) {
        pthread_mutex_lock(&device->watch_lock);
        count = device->watched_count;
        pthread_mutex_unlock(&device->watch_lock);
        tti_wait_turn();
    }
    CHECK(count == 1);
}

static void launch_wild(const struct tti_kernel *kernel, tutti_stream *stream)
{
    struct tti_launch_shape shape = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    struct tti_stream *inside = tti_stream_take(stream, &error);
    GOOD(tti_stream_launch(inside, kernel, &shape, NULL, 0, &error));
    tti_object_give(&inside->object);
}

/* In a process of its own: what waits is told, within a second; everything answers ERR_DEVICE; all can be freed. */
static void fail_for_good(void)
{
    static const char words[] = "has failed: CUDA_ERROR_ILLEGAL_ADDRESS (700) from libcuda";
    tutti_device *device = open_device(), *again = NULL;
    tutti_stream *stream = make_stream(device), *made = NULL;
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N), *bad = NULL;
    tutti_device_about about = {.struct_size = sizeof about};
    struct sleeper sleeper = {.stream = make_stream(device)};
    struct tti_stream *inside = tti_stream_take(sleeper.stream, &error);
    struct tti_task task;
    struct tti_word *word = NULL;
    struct tti_kernel kernel = {.name = "wild"};
    int32_t one = 1;
    GOOD(inside->device->ops->load(inside->device, wild_code, &kernel, &error)); /* before anything holds */
    GOOD(tti_word_take(inside->device, &word, &error));
    GOOD(tti_stream_hold(inside, word, atomic_load(&word->value) + 1, &error));
    tti_object_give(&inside->object);
    GOOD(tti_task_start(&task, sync_for_long, &sleeper, &error));
    await_watched(inside_of(device));
    int64_t start = tti_now_ns();
    launch_wild(&kernel, stream);
    tti_task_join(&task);
    CHECK_THAT(sleeper.status == TUTTI_ERR_DEVICE && strstr(sleeper.error.text, words) != NULL, "%s",
               sleeper.error.text);
    CHECK_THAT(sleeper.woken_ns - start < 1000 * MS, "told after %lld ms",
               (long long)((sleeper.woken_ns - start) / MS));
    printf("told after %.1f ms: %s\n", (double)(sleeper.woken_ns - start) / (double)MS, sleeper.error.text);
    FAILS(TUTTI_ERR_DEVICE, words, tutti_stream_sync(stream, LONG_MS, &error));
    FAILS(TUTTI_ERR_DEVICE, words, tutti_buffer_fill(x, 0, N, &one, stream, &error));
    FAILS(TUTTI_ERR_DEVICE, words, tutti_buffer_check(x, 0, N, &error));
    FAILS(TUTTI_ERR_DEVICE, words, tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_I32, 1, &bad, &error));
    FAILS(TUTTI_ERR_DEVICE, words, tutti_stream_create(device, &made, &error));
    FAILS(TUTTI_ERR_DEVICE, words, tutti_device_describe(device, &about, &error));
    FAILS(TUTTI_ERR_DEVICE, words, tutti_device_reopen(device, &error));
    start = tti_now_ns();
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(stream, &error));
    GOOD(tutti_device_free(device, &error));
    GOOD(tutti_stream_free(sleeper.stream, &error));
    CHECK_THAT(tti_now_ns() - start < TTI_DEVICE_CLOSE_NS, "freeing took %lld ms",
               (long long)((tti_now_ns() - start) / MS));
    tutti_status status = tutti_device_open(device_name, &again, &error); /* a new one is not to be had here */
    printf("opened again: %s %s\n", tutti_status_name(status), error.text);
    CHECK(status == TUTTI_ERR_DEVICE || status == TUTTI_ERR_UNSUPPORTED);
}

/* ---- What it costs ------------------------------------------------------------------------------------------------------ */

static double us_since(int64_t start_ns, int count)
{
    return (double)(tti_now_ns() - start_ns) / 1000 / count;
}

/* Printed, not judged. */
static void measure(tutti_device *device)
{
    enum { TIMES = 500 };
    tutti_stream *stream = make_stream(device);
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N), *buffers[TIMES];
    int32_t one = 1;
    GOOD(tutti_buffer_fill(x, 0, 1, &one, stream, &error));
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    int64_t start = tti_now_ns();
    for (int i = 0; i < TIMES; i++) GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    double sync = us_since(start, TIMES);
    start = tti_now_ns();
    for (int i = 0; i < TIMES; i++) {
        GOOD(tutti_buffer_fill(x, 0, 1, &one, stream, &error));
        GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    }
    double both = us_since(start, TIMES);
    start = tti_now_ns();
    for (int i = 0; i < TIMES; i++) GOOD(tutti_buffer_fill(x, 0, 1, &one, stream, &error));
    double put = us_since(start, TIMES);
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    start = tti_now_ns();
    for (int i = 0; i < TIMES; i++) buffers[i] = make_buffer(device, TUTTI_U8, 1 << 16);
    double create = us_since(start, TIMES);
    start = tti_now_ns();
    for (int i = 0; i < TIMES; i++) GOOD(tutti_buffer_free(buffers[i], &error));
    printf("us: sync %.2f, fill and sync %.2f, putting a fill %.2f, making a buffer %.2f, freeing it %.2f\n", sync,
           both, put, create, us_since(start, TIMES));
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(stream, &error));
}

static int run_part(const char *part, const char *argument)
{
    if (strcmp(part, "share") == 0) answer_in_memory(atoi(argument));
    if (strcmp(part, "fail") == 0) fail_for_good();
    return check_end();
}

int main(int argc, char **argv)
{
    int count = 0;
    program = "/proc/self/exe";
    device_name = argc > 1 ? argv[1] : "cuda:0";
    tutti_log_set_level(TUTTI_QUIET);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)alarm(100); /* a driver that hangs is not waited for */
    if (argc > 3) return run_part(argv[2], argv[3]);
    if (tutti_device_count("cuda", &count, &error) != TUTTI_OK || count == 0) {
        printf("skipped: no GPU: %s\n", error.text);
        return 77;
    }
    if (strcmp(device_name, "--here") == 0) return 0;
    tutti_device *device = open_device();
    test_describe(device);
    test_adopt_context(device);
    test_default_streams(device);
    test_blocking_stream(device);
    test_foreign_memory(device);
    test_others(device);
    test_out_of_memory(device);
    test_capture(device);
    test_bad_code(device);
    test_share(device);
    measure(device);
    test_beside_a_hold(device);
    test_given_up(device);
    test_current_context(device);
    GOOD(tutti_device_free(device, &error));
    CHECK(run_again("fail", "") == 0);
    return check_end();
}
