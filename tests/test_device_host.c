/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan waits
 *
 * Device `host` under faults: what fails for good, what waits for ever, queues that are full or shared, memory that runs
 * out. What takes long is tried in simulated time.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/task.h"
#include "device/buffer.h"
#include "device/gate.h"
#include "device/host_fault.h"
#include "device/host_queue.h"
#include "device/pinned.h"
#include "device_check.h"

enum { N = 1000 };

static struct tti_word *take_word(tutti_device *handle)
{
    struct tti_device *device = tti_device_take(handle, &error);
    struct tti_word *word = NULL;
    GOOD(tti_word_take(device, &word, &error));
    tti_object_give(&device->object);
    return word;
}

static void give_word(tutti_device *handle, struct tti_word *word)
{
    struct tti_device *device = tti_device_take(handle, &error);
    if (device == NULL) return;
    tti_word_give(device, word);
    tti_object_give(&device->object);
}

static tutti_status hold(tutti_stream *handle, struct tti_word *word, uint64_t value)
{
    struct tti_stream *stream = tti_stream_take(handle, &error);
    tutti_status status = tti_stream_hold(stream, word, value, &error);
    tti_object_give(&stream->object);
    return status;
}

static tutti_status raise_word(tutti_stream *handle, struct tti_word *word, uint64_t value)
{
    struct tti_stream *stream = tti_stream_take(handle, &error);
    tutti_status status = tti_stream_raise(stream, word, value, &error);
    tti_object_give(&stream->object);
    return status;
}

/* ---- Poison -------------------------------------------------------------------------------------------------------- */

static const char poison_words[] = "has failed: FAULT_INJECTED (700) from device host, seen in a kernel called x";

struct sleeper {
    tutti_stream *stream;
    tutti_status status;
    tutti_error error;
    _Atomic uint32_t begun;
};

static void *sync_for_long(void *argument)
{
    struct sleeper *sleeper = argument;
    atomic_store(&sleeper->begun, 1);
    sleeper->status = tutti_stream_sync(sleeper->stream, LONG_MS, &sleeper->error);
    return NULL;
}

/* Everything answers ERR_DEVICE; who waits is told; what was put is dropped; all can be freed. */
static void test_poison(void)
{
    tutti_device *device = open_device();
    tutti_stream *stream = make_stream(device), *made = NULL;
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N), *bad = NULL;
    tutti_mark *mark = NULL, *recorded = NULL;
    tutti_device_about about = {.struct_size = sizeof about};
    struct sleeper sleeper = {.stream = make_stream(device)};
    struct tti_task task;
    struct tti_word *word = take_word(device), *after = take_word(device);
    int32_t one = 1, out[4] = {0};
    GOOD(tutti_mark_create(device, &mark, &error));
    GOOD(tutti_mark_create(device, &recorded, &error));
    GOOD(tutti_mark_record(recorded, stream, &error));
    uint64_t before = atomic_load(&after->value);
    GOOD(hold(sleeper.stream, word, atomic_load(&word->value) + 1));
    GOOD(tutti_buffer_fill(x, 0, N, &one, sleeper.stream, &error));
    GOOD(raise_word(sleeper.stream, after, before + 1));
    GOOD(tti_task_start(&task, sync_for_long, &sleeper, &error));
    while (atomic_load(&sleeper.begun) == 0) tti_wait_turn();
    tti_fault_poison(device, 700, "FAULT_INJECTED", "a kernel called x");
    tti_fault_poison(device, 1, "ANOTHER", "something else"); /* the first one counts */
    int64_t start = tti_now_ns();
    tti_task_join(&task);
    CHECK(tti_now_ns() - start < LONG_MS * MS / 2);
    CHECK_THAT(sleeper.status == TUTTI_ERR_DEVICE && strstr(sleeper.error.text, poison_words) != NULL, "%s",
               sleeper.error.text);
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_stream_sync(stream, 0, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_stream_create(device, &made, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_stream_after(stream, recorded, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_mark_record(mark, stream, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_mark_create(device, &mark, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_I32, 1, &bad, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_buffer_put(x, 0, &one, 1, stream, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_buffer_get(x, 0, out, 4, stream, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_buffer_fill(x, 0, 1, &one, stream, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_buffer_begin(x, TUTTI_READS, stream, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_buffer_check(x, 0, 1, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_device_describe(device, &about, &error));
    FAILS(TUTTI_ERR_DEVICE, poison_words, tutti_device_reopen(device, &error));
    CHECK(tutti_buffer_at(x, 0, 1) == NULL && tutti_stream_native(stream) == NULL);
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(sleeper.stream, &error));
    CHECK(atomic_load(&after->value) == before); /* no work behind it was done */
    GOOD(tutti_stream_free(stream, &error));
    GOOD(tutti_mark_free(recorded, &error));
    GOOD(tutti_device_free(device, &error));
}

/* ---- What waits for ever, in simulated time ------------------------------------------------------------------------ */

static tutti_status in_simulation(void *(*body)(void *), void *argument, uint64_t seed)
{
    struct tti_sim_setup setup = {.seed = seed, .local_latency_ns = 500, .local_ns_per_byte = 0.1, .noise_ns = 300};
    setup.stack_bytes = 1 << 18;
    return tti_sim_run(&setup, body, argument, NULL, &error);
}

static void check_took(int64_t start, int64_t least_ms, int64_t most_ms)
{
    int64_t ms = (tti_now_ns() - start) / MS;
    CHECK_THAT(ms >= least_ms && ms <= most_ms, "%lld ms, not %lld to %lld", (long long)ms, (long long)least_ms,
               (long long)most_ms);
}

static void *held_for_ever(void *argument)
{
    (void)argument;
    tutti_device *device = open_device();
    tutti_stream *a = make_stream(device), *b = make_stream(device), *c = make_stream(device);
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N);
    struct tti_word *word = take_word(device), *raised = take_word(device);
    int32_t one = 1, *at = tutti_buffer_at(x, 0, N);
    at[0] = 77;
    GOOD(hold(a, word, 1));
    GOOD(tutti_buffer_fill(x, 0, N, &one, a, &error));
    GOOD(raise_word(a, raised, 1));
    int64_t start = tti_now_ns();
    FAILS(TUTTI_ERR_TIMEOUT, "given up; the last that was put there is a raise", tutti_stream_free(a, &error));
    check_took(start, 10000, 10100);
    CHECK(at[0] == 77 && tti_word_reached(raised, 1)); /* data were not moved, who holds for it was let go */
    GOOD(hold(b, word, 1));
    GOOD(hold(c, word, 1));
    GOOD(tutti_buffer_fill(x, 0, N, &one, c, &error));
    start = tti_now_ns();
    FAILS(TUTTI_ERR_TIMEOUT, "given up", tutti_device_free(device, &error));
    check_took(start, 10000, 10200); /* in all, not for each */
    FAILS(TUTTI_ERR_STALE, "shut down", tutti_buffer_check(x, 0, 1, &error));
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(b, &error));
    GOOD(tutti_stream_free(c, &error));
    return NULL;
}

static void sleep_an_hour(const void *arguments)
{
    (void)arguments;
    tti_sim_sleep(3600 * 1000 * MS);
}

/* A function that does not return cannot be ended: what it may use is not given back. */
static void *runs_for_ever(void *argument)
{
    (void)argument;
    tutti_device *device = open_device();
    tutti_stream *a = make_stream(device);
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N);
    struct tti_kernel kernel = {.name = "a function that sleeps", .function = sleep_an_hour};
    int32_t one = 1;
    GOOD(tutti_buffer_begin(x, TUTTI_WRITES, a, &error));
    GOOD(mix_launch(&kernel, &(struct mix_arguments){0}, a));
    GOOD(tutti_buffer_fill(x, 0, N, &one, a, &error));
    GOOD(tutti_buffer_end(x, TUTTI_WRITES, a, &error));
    int64_t start = tti_now_ns();
    FAILS(TUTTI_ERR_TIMEOUT, "but goes on: the memory it uses is not given back", tutti_device_free(device, &error));
    check_took(start, 12000, 25000);
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_buffer_free(x, &error));
    return NULL;
}

/* A hold has a limit of its own; whoever waits for its stream is told. */
static void *held_too_long(void *argument)
{
    (void)argument;
    tutti_device *device = open_device();
    tutti_stream *a = make_stream(device);
    struct tti_word *word = take_word(device);
    int64_t start = tti_now_ns();
    GOOD(hold(a, word, 1));
    FAILS(TUTTI_ERR_CANCELLED, "given up", tutti_stream_sync(a, 3600 * 1000, &error));
    check_took(start, 1800 * 1000 - 1, 1801 * 1000);
    FAILS(TUTTI_ERR_CANCELLED, "given up", tutti_stream_sync(a, 0, &error));
    CHECK(hold(a, word, 1) == TUTTI_ERR_CANCELLED);
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_device_free(device, &error));
    return NULL;
}

/* An ordinary use takes the time that moving takes; each open has a device of its own there. */
static void *ordinary(void *argument)
{
    (void)argument;
    tutti_device *device = open_device(), *other = open_device();
    tutti_stream *a = make_stream(device), *b = make_stream(device);
    tutti_buffer *x = make_buffer(device, TUTTI_U8, 1000000);
    unsigned char one = 1, last = 0;
    CHECK(other != device);
    int64_t start = tti_now_ns();
    GOOD(tutti_buffer_fill(x, 0, 1000000, &one, a, &error));
    GOOD(tutti_buffer_get(x, 999999, &last, 1, b, &error));
    GOOD(tutti_stream_sync(b, 1000, &error));
    CHECK_THAT(last == 1 && tti_now_ns() - start >= 100000 && tti_now_ns() - start < 400000, "%lld",
               (long long)(tti_now_ns() - start));
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_free(b, &error));
    GOOD(tutti_device_free(device, &error));
    GOOD(tutti_device_free(other, &error));
    return NULL;
}

static void test_simulated(void)
{
    CHECK(in_simulation(held_for_ever, NULL, 1) == TUTTI_OK);
    CHECK(in_simulation(runs_for_ever, NULL, 2) == TUTTI_OK); /* its thread was left alone, and has ended since */
    CHECK(in_simulation(held_too_long, NULL, 3) == TUTTI_OK);
    for (uint64_t seed = 0; seed < 20; seed++) CHECK(in_simulation(ordinary, NULL, seed) == TUTTI_OK);
}

/* ---- Full and shared queues ----------------------------------------------------------------------------------------- */

struct pusher {
    tutti_stream *stream;
    tutti_buffer *buffer;
    _Atomic uint32_t pushed;
    int failed;
};

static void *push_fills(void *argument)
{
    struct pusher *pusher = argument;
    for (int32_t i = 0; i < 50; i++) {
        pusher->failed += tutti_buffer_fill(pusher->buffer, 0, N, &i, pusher->stream, NULL) != TUTTI_OK;
        atomic_fetch_add(&pusher->pushed, 1);
    }
    return NULL;
}

/* Putting work blocks when the queue is full, and goes on when it drains. */
static void test_full_queue(void)
{
    tutti_device *device = open_device();
    struct tti_task task;
    struct tti_word *word = take_word(device);
    tti_fault_room(device, 4);
    struct pusher pusher = {.stream = make_stream(device), .buffer = make_buffer(device, TUTTI_I32, N)};
    tti_fault_room(device, 0);
    int32_t out[N];
    GOOD(hold(pusher.stream, word, 1));
    GOOD(tti_task_start(&task, push_fills, &pusher, &error));
    while (atomic_load(&pusher.pushed) < 3) tti_wait_turn();
    for (int i = 0; i < 200; i++) tti_wait_turn();
    CHECK(atomic_load(&pusher.pushed) == 3); /* the hold and three fills */
    FAILS(TUTTI_ERR_TIMEOUT, "the queue of a stream of host was full for too long",
          tutti_stream_sync(pusher.stream, 5, &error));
    tti_word_store(word, 1);
    tti_task_join(&task);
    CHECK(pusher.failed == 0);
    GOOD(tutti_buffer_get(pusher.buffer, 0, out, N, pusher.stream, &error));
    GOOD(tutti_stream_sync(pusher.stream, LONG_MS, &error));
    CHECK(out[0] == 49 && out[N - 1] == 49);
    GOOD(tutti_buffer_free(pusher.buffer, &error));
    GOOD(tutti_stream_free(pusher.stream, &error));
    give_word(device, word);
    GOOD(tutti_device_free(device, &error));
}

/* Who is blocked by a full queue is told that the device has failed. */
static void test_full_and_poisoned(void)
{
    tutti_device *device = open_device();
    struct tti_task task;
    struct tti_word *word = take_word(device);
    tti_fault_room(device, 2);
    struct pusher pusher = {.stream = make_stream(device), .buffer = make_buffer(device, TUTTI_I32, N)};
    GOOD(hold(pusher.stream, word, 1));
    GOOD(tti_task_start(&task, push_fills, &pusher, &error));
    while (atomic_load(&pusher.pushed) < 1) tti_wait_turn();
    tti_fault_poison(device, 700, "FAULT_INJECTED", "a kernel called x");
    tti_task_join(&task);
    CHECK(pusher.failed >= 48);
    GOOD(tutti_device_free(device, &error));
    GOOD(tutti_buffer_free(pusher.buffer, &error));
    GOOD(tutti_stream_free(pusher.stream, &error));
}

/* Streams that share a queue: what waits in one holds up the other, and all is well when it was put in order. */
static void test_shared_queue(void)
{
    tutti_device *device = open_device();
    struct tti_word *word = take_word(device);
    tti_fault_share(device, 1);
    tutti_stream *a = make_stream(device), *b = make_stream(device);
    CHECK(tutti_stream_native(a) == tutti_stream_native(b));
    GOOD(raise_word(a, word, 1)); /* before the hold for it */
    GOOD(hold(b, word, 1));
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    GOOD(hold(a, word, 2));
    FAILS(TUTTI_ERR_TIMEOUT, "", tutti_stream_sync(b, 10, &error)); /* has nothing to wait for by itself */
    tti_word_store(word, 2);
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_sync(b, LONG_MS, &error)); /* the queue is still there */
    GOOD(tutti_stream_free(b, &error));
    give_word(device, word);
    GOOD(tutti_device_free(device, &error));
}

static void test_foreign_stream(void)
{
    tutti_device *device = open_device(), *other = NULL;
    tutti_stream *a = make_stream(device), *adopted = NULL;
    GOOD(tutti_device_open("host:1", &other, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "no such stream", tutti_stream_adopt(other, tutti_stream_native(a), &adopted, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "no such stream", tutti_stream_adopt(device, device, &adopted, &error));
    CHECK(adopted == NULL);
    /* buffers and marks of one device on streams of another */
    tutti_buffer *x = make_buffer(other, TUTTI_I32, N);
    tutti_mark *mark = NULL;
    int32_t three = 3, out = 0;
    GOOD(tutti_mark_create(other, &mark, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "a mark of host:1 cannot be recorded on a stream of host",
          tutti_mark_record(mark, a, &error));
    GOOD(tutti_buffer_fill(x, 0, N, &three, a, &error));
    GOOD(tutti_buffer_get(x, 5, &out, 1, a, &error));
    GOOD(tutti_stream_sync(a, LONG_MS, &error));
    CHECK(out == 3);
    GOOD(tutti_mark_free(mark, &error));
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_device_free(other, &error));
    GOOD(tutti_device_free(device, &error));
}

/* ---- Memory ---------------------------------------------------------------------------------------------------------- */

/* A device that has no memory left: an ordinary error. What is freed, but still in use, is waited for. */
static void test_no_device_memory(void)
{
    tutti_device *device = open_device();
    tutti_device_about about = {.struct_size = sizeof about};
    tutti_stream *a = make_stream(device), *b = make_stream(device);
    struct tti_word *word = take_word(device);
    tutti_buffer *x = NULL, *y = NULL;
    unsigned char one = 1;
    tti_fault_memory(device, 10000);
    GOOD(tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_U8, 6000, &x, &error));
    GOOD(tutti_device_describe(device, &about, &error));
    CHECK(about.memory_total == 10000 && about.memory_free == 4000);
    FAILS(TUTTI_ERR_MEMORY, "host has no memory left for 5000 bytes",
          tutti_buffer_create(device, TUTTI_MEMORY_PINNED, TUTTI_U8, 5000, &y, &error));
    GOOD(hold(a, word, 1));
    GOOD(tutti_buffer_fill(x, 0, 10, &one, a, &error));
    GOOD(tutti_buffer_get(x, 0, &one, 1, b, &error));
    GOOD(tutti_buffer_free(x, &error));
    FAILS(TUTTI_ERR_MEMORY, "", tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_U8, 5000, &y, &error));
    tti_word_store(word, 1);
    GOOD(tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_U8, 10000, &y, &error));
    GOOD(tutti_buffer_free(y, &error));
    give_word(device, word);
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_free(b, &error));
    GOOD(tutti_device_free(device, &error));
}

/* All that an ordinary program does; the first failure's status, and everything is freed whatever happens. */
static tutti_status whole_program(void)
{
    tutti_device *device = NULL;
    tutti_stream *a = NULL, *b = NULL;
    tutti_buffer *x = NULL, *y = NULL;
    tutti_mark *mark = NULL;
    static int32_t in[N], out[N];
    tutti_status status = tutti_device_open("host", &device, &error);
    if (status == TUTTI_OK) status = tutti_stream_create(device, &a, &error);
    if (status == TUTTI_OK) status = tutti_stream_create(device, &b, &error);
    if (status == TUTTI_OK) status = tutti_mark_create(device, &mark, &error);
    if (status == TUTTI_OK) status = tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_I32, N, &x, &error);
    if (status == TUTTI_OK) status = tutti_buffer_create(device, TUTTI_MEMORY_SHARED, TUTTI_I32, N, &y, &error);
    for (int32_t i = 0; i < N; i++) in[i] = i;
    memset(out, 0, sizeof out);
    if (status == TUTTI_OK) status = tutti_buffer_put(x, 0, in, N, a, &error);
    if (status == TUTTI_OK) status = tutti_buffer_copy(y, 0, x, 0, N, b, &error);
    if (status == TUTTI_OK) status = tutti_mark_record(mark, b, &error);
    if (status == TUTTI_OK) status = tutti_stream_after(a, mark, &error);
    if (status == TUTTI_OK) status = tutti_buffer_get(y, 0, out, N, a, &error);
    if (status == TUTTI_OK) status = tutti_stream_sync(a, LONG_MS, &error);
    if (status == TUTTI_OK) CHECK(memcmp(in, out, sizeof in) == 0);
    (void)tutti_buffer_free(x, NULL);
    (void)tutti_buffer_free(y, NULL);
    (void)tutti_mark_free(mark, NULL);
    if (a != NULL) CHECK(tutti_stream_free(a, NULL) == TUTTI_OK);
    if (b != NULL) CHECK(tutti_stream_free(b, NULL) == TUTTI_OK);
    if (device != NULL) CHECK(tutti_device_free(device, NULL) == TUTTI_OK);
    return status;
}

static void test_no_memory(void)
{
    int succeeded = 0;
    CHECK(whole_program() == TUTTI_OK); /* what is made once has been */
    for (long allowed = 0; allowed < 60; allowed++) {
        tti_alloc_fail_once(allowed);
        tutti_status status = whole_program();
        tti_alloc_fail_after(-1);
        succeeded += status == TUTTI_OK;
        CHECK_THAT(status == TUTTI_OK || status == TUTTI_ERR_MEMORY || status == TUTTI_ERR_LIMIT, "%ld: %s", allowed,
                   error.text);
    }
    CHECK(succeeded > 0 && succeeded < 60);
}

/* Pinned memory outlives its device. */
static void test_pinned_outlives(void)
{
    tutti_device *handle = open_device();
    struct tti_device *device = tti_device_take(handle, &error);
    struct tti_pinned *pinned = NULL;
    struct tti_gate gate;
    GOOD(tti_pinned_take(device, 5000, &pinned, &error));
    GOOD(tti_gate_make(device, &gate, &error));
    tti_object_give(&device->object);
    GOOD(tutti_device_free(handle, &error));
    memset(pinned->base, 1, pinned->bytes);
    CHECK(tti_gate_reached(&gate, 0));
    tti_pinned_give(pinned);
    tti_gate_free(&gate);
}

int main(void)
{
    tutti_log_set_level(TUTTI_QUIET);
    test_poison();
    test_simulated();
    test_full_queue();
    test_full_and_poisoned();
    test_shared_queue();
    test_foreign_stream();
    test_no_device_memory();
    test_no_memory();
    test_pinned_outlives();
    return check_end();
}
