/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Streams, marks and buffers that several streams use, and what providers stand on, as any device must do them:
 * test_device_streams [NAME], "host" unless told.
 */
#include "base/clock.h"
#include "device/buffer.h"
#include "device/find.h"
#include "device/gate.h"
#include "device/pinned.h"
#include "device/stream.h"
#include "device_check.h"
#include <stdlib.h>
#include <unistd.h>

enum { N = 1000 };

/* ---- Words, marks, order ----------------------------------------------------------------------------------------- */

struct held { /* a stream that stands still until its word is raised */
    struct tti_stream *stream;
    struct tti_word *word;
    uint64_t value;
};

static struct held hold_stream(tutti_stream *handle)
{
    struct held held = {.stream = tti_stream_take(handle, &error)};
    GOOD(tti_word_take(held.stream->device, &held.word, &error));
    held.value = atomic_load(&held.word->value) + 1;
    GOOD(tti_stream_hold(held.stream, held.word, held.value, &error));
    return held;
}

static void let_go(struct held *held, tutti_stream *handle)
{
    tti_word_store(held->word, held->value);
    GOOD(tutti_stream_sync(handle, LONG_MS, &error));
    tti_word_give(held->stream->device, held->word);
    tti_object_give(&held->stream->object);
}

static void test_sync(tutti_device *device)
{
    tutti_stream *stream = make_stream(device);
    tutti_status at_once = tutti_stream_sync(stream, 0, &error);
    CHECK(at_once == TUTTI_OK || at_once == TUTTI_ERR_TIMEOUT);
    GOOD(tutti_stream_sync(stream, -1, &error));
    struct held held = hold_stream(stream);
    int64_t start = tti_now_ns();
    FAILS(TUTTI_ERR_TIMEOUT, "the last that was put there is a hold", tutti_stream_sync(stream, 20, &error));
    CHECK(tti_now_ns() - start >= 20 * MS);
    let_go(&held, stream);
    GOOD(tutti_stream_free(stream, &error));
}

static void test_words(tutti_device *handle)
{
    tutti_stream *a = make_stream(handle), *b = make_stream(handle);
    struct tti_stream *first = tti_stream_take(a, &error), *second = tti_stream_take(b, &error);
    struct tti_word *word, *other;
    GOOD(tti_word_take(first->device, &word, &error));
    GOOD(tti_word_take(first->device, &other, &error));
    CHECK(word != other);
    atomic_store(&word->value, UINT64_MAX); /* comparison is cyclic: 1 comes after it */
    CHECK(tti_word_reached(word, UINT64_MAX) && tti_word_reached(word, 5 + TTI_WORD_FAR * 2) &&
          !tti_word_reached(word, 0) && !tti_word_reached(word, TTI_WORD_FAR));
    GOOD(tti_stream_raise(first, word, 1, &error));
    GOOD(tti_stream_hold(second, word, 0, &error));
    GOOD(tti_stream_hold(second, word, 1, &error));
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    CHECK(atomic_load(&word->value) == 1);
    GOOD(tti_stream_hold(second, word, 77, &error)); /* raised by far, it lets everybody go */
    tti_word_store(word, 77 + TTI_WORD_FAR);
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    tti_word_give(first->device, word);
    tti_word_give(first->device, other);
    GOOD(tti_word_take(first->device, &word, &error));
    tti_word_give(first->device, word);
    tti_object_give(&first->object);
    tti_object_give(&second->object);
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_free(b, &error));
}

/* What it owes for a mark is raised when the other stream has passed that, and not before. */
static void test_debt_for_another(tutti_device *handle, struct tti_stream *stream, struct tti_word *word,
                                  uint64_t value)
{
    tutti_stream *b = make_stream(handle);
    struct tti_stream *other = tti_stream_take(b, &error);
    struct tti_mark *mark = NULL;
    GOOD(tti_mark_make(stream->device, &mark, &error));
    struct held held = hold_stream(b);
    GOOD(tti_stream_record(other, mark, &error));
    tti_stream_owe(stream, word, value, mark);
    GOOD(tti_stream_pay(stream, &error));
    FAILS(TUTTI_ERR_TIMEOUT, "has not ended in time", tti_stream_sync(stream, tti_now_ns() + 20 * MS, &error));
    CHECK(atomic_load(&word->value) == value - 1);
    let_go(&held, b);
    GOOD(tti_stream_sync(stream, tti_now_ns() + LONG_MS * MS, &error));
    CHECK(atomic_load(&word->value) == value);
    tti_object_give(&mark->object);
    tti_object_give(&other->object);
    GOOD(tutti_stream_free(b, &error));
}

/* What a stream owes is raised when it is told to pay, before it waits, and when it is freed; only once. */
static void test_debts(tutti_device *handle)
{
    tutti_stream *a = make_stream(handle);
    struct tti_stream *stream = tti_stream_take(a, &error);
    struct tti_word *word;
    GOOD(tti_word_take(stream->device, &word, &error));
    uint64_t base = atomic_load(&word->value);
    tti_stream_owe(stream, word, base + 1, NULL);
    tti_stream_owe(stream, word, base + 2, NULL);
    GOOD(tutti_stream_sync(a, LONG_MS, &error));
    CHECK(tti_stream_owes(stream) && atomic_load(&word->value) == base);
    GOOD(tti_stream_pay(stream, &error));
    GOOD(tti_stream_pay(stream, &error));
    GOOD(tutti_stream_sync(a, LONG_MS, &error));
    CHECK(!tti_stream_owes(stream) && atomic_load(&word->value) == base + 2);
    tti_stream_owe(stream, word, base + 3, NULL);
    struct held held = hold_stream(a); /* it stands still, behind what it owed */
    int64_t nap = 0, until = tti_now_ns() + LONG_MS * MS;
    while (!tti_word_reached(word, base + 3) && tti_now_ns() < until) tti_poll_nap(&nap);
    CHECK(atomic_load(&word->value) == base + 3);
    let_go(&held, a);
    tti_stream_owe(stream, word, base + 4, NULL);
    GOOD(tti_stream_pay(stream, &error));
    test_debt_for_another(handle, stream, word, base + 5);
    tti_stream_owe(stream, word, base + 6, NULL);
    GOOD(tutti_stream_free(a, &error));
    CHECK(atomic_load(&word->value) == base + 6);
    tti_word_give(stream->device, word);
    tti_object_give(&stream->object);
}

/* What a stream owes when its device is opened again is raised, too: somebody may wait for it. */
static void test_debt_at_reopen(tutti_device *handle)
{
    tutti_stream *a = make_stream(handle);
    struct tti_stream *stream = tti_stream_take(a, &error);
    struct tti_word *word;
    GOOD(tti_word_take(stream->device, &word, &error));
    uint64_t base = atomic_load(&word->value);
    tti_stream_owe(stream, word, base + 1, NULL);
    GOOD(tutti_device_reopen(handle, &error));
    CHECK(atomic_load(&word->value) == base + 1);
    GOOD(tutti_stream_free(a, &error));
    tti_word_give(stream->device, word);
    tti_object_give(&stream->object);
}

static void test_marks(tutti_device *device)
{
    tutti_stream *a = make_stream(device), *b = make_stream(device);
    tutti_mark *mark = NULL, *never = NULL;
    GOOD(tutti_mark_create(device, &mark, &error));
    GOOD(tutti_mark_create(device, &never, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "the mark was never recorded", tutti_stream_after(b, never, &error));
    struct held held = hold_stream(a);
    GOOD(tutti_mark_record(mark, a, &error));
    GOOD(tutti_stream_after(b, mark, &error));
    FAILS(TUTTI_ERR_TIMEOUT, "a wait for a mark", tutti_stream_sync(b, 10, &error));
    GOOD(tutti_mark_record(mark, b, &error)); /* the wait is for the record before */
    FAILS(TUTTI_ERR_TIMEOUT, "", tutti_stream_sync(b, 10, &error));
    GOOD(tutti_mark_free(mark, &error)); /* work still refers to it */
    FAILS(TUTTI_ERR_STALE, "the mark was freed", tutti_stream_after(b, mark, &error));
    FAILS(TUTTI_ERR_STALE, "the mark was freed", tutti_mark_record(mark, a, &error));
    let_go(&held, a);
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    GOOD(tutti_mark_free(never, &error));
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_free(b, &error));
}

/* A mark that is recorded again while the first record waits: who waits for the second passes, and stays so when the first
 * passes later. */
static void test_marks_again(tutti_device *device)
{
    tutti_stream *a = make_stream(device), *b = make_stream(device), *c = make_stream(device);
    tutti_mark *mark = NULL;
    GOOD(tutti_mark_create(device, &mark, &error));
    struct held held = hold_stream(a);
    GOOD(tutti_mark_record(mark, a, &error));
    GOOD(tutti_stream_after(c, mark, &error)); /* for a */
    GOOD(tutti_mark_record(mark, b, &error));
    GOOD(tutti_stream_after(b, mark, &error)); /* for b */
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    FAILS(TUTTI_ERR_TIMEOUT, "", tutti_stream_sync(c, 10, &error));
    let_go(&held, a);
    GOOD(tutti_stream_sync(c, LONG_MS, &error));
    GOOD(tutti_stream_after(c, mark, &error));
    GOOD(tutti_stream_sync(c, LONG_MS, &error));
    GOOD(tutti_mark_free(mark, &error));
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_free(b, &error));
    GOOD(tutti_stream_free(c, &error));
}

/* ---- Uses of buffers on several streams --------------------------------------------------------------------------- */

/* A write on a stream that stands still; readers and writers elsewhere wait for it, others do not. */
static void test_last_writer(tutti_device *device)
{
    tutti_stream *a = make_stream(device), *b = make_stream(device), *c = make_stream(device);
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N), *y = make_buffer(device, TUTTI_I32, N);
    struct pinned pinned = make_pinned(device, N);
    int32_t one = 1, two = 2, *out = pinned.at;
    GOOD(tutti_buffer_fill(x, 0, N, &one, a, &error));
    struct held held = hold_stream(a); /* after the fill: nobody who needs x waits for this */
    GOOD(tutti_buffer_copy(y, 0, x, 0, N, b, &error));
    GOOD(tutti_buffer_get(y, 0, out, N, b, &error));
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    CHECK(out[0] == 1 && out[N - 1] == 1);
    GOOD(tutti_buffer_fill(x, 0, N, &two, a, &error)); /* behind the hold */
    GOOD(tutti_buffer_copy(y, 0, x, 0, N, b, &error));
    FAILS(TUTTI_ERR_TIMEOUT, "", tutti_stream_sync(b, 10, &error));
    GOOD(tutti_stream_sync(c, LONG_MS, &error));
    GOOD(tutti_buffer_get(y, 0, out, N, c, &error)); /* waits for b, which waits for a */
    FAILS(TUTTI_ERR_TIMEOUT, "", tutti_stream_sync(c, 10, &error));
    let_go(&held, a);
    GOOD(tutti_stream_sync(c, LONG_MS, &error));
    CHECK(out[0] == 2 && out[N - 1] == 2);
    GOOD(tutti_buffer_free(pinned.buffer, &error));
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_buffer_free(y, &error));
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_free(b, &error));
    GOOD(tutti_stream_free(c, &error));
}

/* More readers than a buffer has places for, all standing still; a write waits for every one of them, whichever goes on
 * last. */
enum { READERS = TTI_BUFFER_READERS + 3 };
static void test_many_readers(tutti_device *device, int last)
{
    tutti_stream *writer = make_stream(device), *readers[READERS];
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N);
    struct pinned pinned = make_pinned(device, READERS * N);
    struct held held[READERS];
    int32_t one = 1, two = 2;
    GOOD(tutti_buffer_fill(x, 0, N, &one, writer, &error));
    for (int i = 0; i < READERS; i++) {
        readers[i] = make_stream(device);
        held[i] = hold_stream(readers[i]);
        GOOD(tutti_buffer_get(x, 0, pinned.at + i * N, N, readers[i], &error));
    }
    GOOD(tutti_buffer_fill(x, 0, N, &two, writer, &error));
    for (int i = 1; i <= READERS; i++) {
        struct held *next = &held[(last + i) % READERS];
        FAILS(TUTTI_ERR_TIMEOUT, "", tutti_stream_sync(writer, 2, &error));
        tti_word_store(next->word, next->value);
    }
    GOOD(tutti_stream_sync(writer, LONG_MS, &error));
    for (int i = 0; i < READERS; i++) {
        let_go(&held[i], readers[i]);
        CHECK(pinned.at[i * N] == 1 && pinned.at[i * N + N - 1] == 1);
        GOOD(tutti_stream_free(readers[i], &error));
    }
    GOOD(tutti_buffer_free(pinned.buffer, &error));
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(writer, &error));
}

/* A pointer to where a buffer lay that was dropped. */
static void refused_as_stale(const int32_t *pointer, tutti_stream *handle)
{
    struct tti_stream *stream = tti_stream_take(handle, &error);
    struct tti_device_buffer *buffer = NULL;
    tutti_status status = tti_memory_take(pointer, sizeof *pointer, "in", stream, &buffer, &error);
    CHECK_THAT(status == TUTTI_ERR_STALE && buffer == NULL && strstr(error.text, "was freed (dropped)") != NULL,
               "%s: %s", tutti_status_name(status), error.text);
    tti_object_give(&stream->object);
}

/* Whatever the device still knows of its memory. */
static void test_stale_pointers(tutti_device *device)
{
    tutti_stream *a = make_stream(device);
    for (int memory = TUTTI_MEMORY_LOCAL; memory <= TUTTI_MEMORY_PINNED; memory++) {
        tutti_buffer *x = NULL;
        int32_t one = 1;
        GOOD(tutti_buffer_create(device, (tutti_memory)memory, TUTTI_I32, N, &x, &error));
        int32_t *at = tutti_buffer_at(x, 0, N);
        GOOD(tutti_buffer_fill(x, 0, N, &one, a, &error));
        GOOD(tutti_stream_sync(a, LONG_MS, &error));
        GOOD(tutti_buffer_free(x, &error));
        refused_as_stale(at + 7, a);
    }
    GOOD(tutti_stream_free(a, &error));
}

/* A buffer is freed while work that uses it waits: at once for its owner, and the work still has it. */
static void test_free_in_use(tutti_device *device)
{
    tutti_stream *a = make_stream(device), *b = make_stream(device);
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N), *y = make_buffer(device, TUTTI_I32, N);
    struct pinned pinned = make_pinned(device, 3 * N);
    int32_t nine = 9, *out = pinned.at, *y_at = tutti_buffer_at(y, 0, N);
    GOOD(tutti_buffer_fill(y, 0, N, &nine, a, &error));
    GOOD(tutti_stream_sync(a, LONG_MS, &error));
    struct held held = hold_stream(a);
    GOOD(tutti_buffer_fill(x, 0, N, &nine, a, &error));
    GOOD(tutti_buffer_get(x, 0, out, N, a, &error));
    GOOD(tutti_buffer_get(y, 0, out + N, N, a, &error));
    GOOD(tutti_buffer_get(y, 0, out + 2 * N, N, b, &error));
    GOOD(tutti_buffer_free(x, &error)); /* one stream uses it: freed in its order */
    GOOD(tutti_buffer_free(y, &error)); /* two do: freed when both have passed */
    refused_as_stale(y_at, a);
    refused_as_stale(y_at + N - 1, a);
    let_go(&held, a);
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    for (int i = 0; i < 3; i++) CHECK(out[i * N] == 9 && out[i * N + N - 1] == 9);
    GOOD(tutti_buffer_free(pinned.buffer, &error));
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_free(b, &error));
}

/* ---- One's own work, native streams -------------------------------------------------------------------------------- */

static void test_launch(tutti_device *device)
{
    tutti_stream *a = make_stream(device), *b = make_stream(device);
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N), *y = make_buffer(device, TUTTI_I32, N);
    struct tti_kernel kernel = mix_kernel(device);
    static int32_t in[N], out[N];
    int32_t start = 100;
    for (int i = 0; i < N; i++) in[i] = i;
    GOOD(tutti_buffer_put(x, 0, in, N, a, &error));
    GOOD(tutti_buffer_fill(y, 0, N, &start, b, &error));
    struct mix_arguments arguments = {tutti_buffer_at(y, 0, N), tutti_buffer_at(x, 0, N), N, 3, 7};
    GOOD(tutti_buffer_begin(x, TUTTI_READS, a, &error));
    GOOD(tutti_buffer_begin(y, TUTTI_WRITES, a, &error));
    GOOD(mix_launch(&kernel, &arguments, a));
    arguments = (struct mix_arguments){0}; /* a copy was taken */
    GOOD(tutti_buffer_end(x, TUTTI_READS, a, &error));
    GOOD(tutti_buffer_end(y, TUTTI_WRITES, a, &error));
    GOOD(tutti_buffer_get(y, 0, out, N, b, &error));
    GOOD(tutti_stream_sync(b, LONG_MS, &error));
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += out[i] != 307 + i;
    CHECK_THAT(wrong == 0, "%d wrong, such as %d", wrong, out[0]);
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_buffer_free(y, &error));
    GOOD(tutti_stream_free(a, &error));
    GOOD(tutti_stream_free(b, &error));
}

static void test_adopt(tutti_device *device)
{
    tutti_stream *own = make_stream(device), *adopted = NULL, *other = make_stream(device);
    tutti_buffer *x = make_buffer(device, TUTTI_I32, N);
    struct pinned pinned = make_pinned(device, N);
    int32_t five = 5, six = 6, *out = pinned.at;
    FAILS(TUTTI_ERR_ARGUMENT, "default stream", tutti_stream_adopt(device, NULL, &adopted, &error));
    GOOD(tutti_stream_adopt(device, tutti_stream_native(own), &adopted, &error));
    CHECK(tutti_stream_native(adopted) == tutti_stream_native(own) && adopted != own);
    struct held held = hold_stream(own);
    GOOD(tutti_buffer_fill(x, 0, N, &five, adopted, &error)); /* behind what the owner has put there */
    GOOD(tutti_buffer_get(x, 0, out, N, other, &error));
    FAILS(TUTTI_ERR_TIMEOUT, "", tutti_stream_sync(adopted, 10, &error));
    FAILS(TUTTI_ERR_TIMEOUT, "", tutti_stream_sync(other, 10, &error));
    int64_t start = tti_now_ns();
    GOOD(tutti_stream_free(adopted, &error)); /* does not wait: the stream is its owner's */
    CHECK(tti_now_ns() - start < TTI_DEVICE_CLOSE_NS);
    let_go(&held, own);
    GOOD(tutti_stream_sync(other, LONG_MS, &error));
    CHECK(out[0] == 5 && out[N - 1] == 5);
    GOOD(tutti_buffer_free(pinned.buffer, &error));
    GOOD(tutti_buffer_fill(x, 0, N, &six, own, &error));
    GOOD(tutti_stream_sync(own, LONG_MS, &error));
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(own, &error));
    GOOD(tutti_stream_free(other, &error));
}

/* ---- For providers ------------------------------------------------------------------------------------------------ */

static void test_gate(tutti_device *handle)
{
    tutti_stream *a = make_stream(handle);
    tutti_buffer *x = NULL;
    struct tti_stream *stream = tti_stream_take(a, &error);
    struct tti_gate gate;
    uint64_t turns[3];
    int32_t value[3] = {1, 2, 3}, *at;
    GOOD(tutti_buffer_create(handle, TUTTI_MEMORY_PINNED, TUTTI_I32, N, &x, &error));
    at = tutti_buffer_at(x, 0, N);
    GOOD(tti_gate_make(stream->device, &gate, &error));
    for (int i = 0; i < 3; i++) {
        GOOD(tutti_buffer_fill(x, 0, N, &value[i], a, &error));
        GOOD(tti_gate_put(&gate, stream, &turns[i], &error));
    }
    for (int i = 0; i < 3; i++) { /* the host works on the memory while the stream stands still */
        int64_t deadline = tti_now_ns() + LONG_MS * MS;
        while (!tti_gate_reached(&gate, turns[i]) && tti_now_ns() < deadline) tti_wait_turn();
        CHECK(tti_gate_reached(&gate, turns[i]) && (i == 2 || !tti_gate_reached(&gate, turns[i + 1])));
        CHECK(tti_stream_state(stream, &error) == TUTTI_OK);
        CHECK_THAT(at[0] == i + 1 && at[N - 1] == i + 1, "%d", at[0]);
        at[0] = 1000 + i;
        tti_gate_open(&gate, turns[i]);
    }
    GOOD(tutti_stream_sync(a, LONG_MS, &error));
    CHECK(at[0] == 1002);
    tti_gate_free(&gate);
    tti_object_give(&stream->object);
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_stream_free(a, &error));
}

static void check_found(const void *pointer, int where, tutti_buffer *buffer)
{
    struct tti_found found;
    tti_memory_find(pointer, &found);
    CHECK_THAT((int)found.where == where, "%d, not %d", (int)found.where, where);
    CHECK((found.buffer == NULL ? NULL : found.buffer->object.handle) == buffer);
    if (buffer != NULL) CHECK(found.device != NULL && found.base != NULL && found.bytes >= 1 && found.generation == 1);
    tti_found_give(&found);
    tti_found_give(&found);
}

static void test_find(tutti_device *device)
{
    enum { BUFFERS = 200 };
    static tutti_buffer *buffers[BUFFERS];
    static char private[64];
    tutti_buffer *pinned = NULL;
    check_found(private, TTI_FOUND_PRIVATE, NULL);
    for (size_t i = 0; i < BUFFERS; i++) buffers[i] = make_buffer(device, TUTTI_U8, 1 + i % 300);
    for (size_t i = 0; i < BUFFERS; i += 3) GOOD(tutti_buffer_free(buffers[i], &error));
    GOOD(tutti_buffer_create(device, TUTTI_MEMORY_PINNED, TUTTI_U8, 4, &pinned, &error));
    for (size_t i = 0; i < BUFFERS; i++) {
        if (i % 3 == 0) continue;
        check_found(tutti_buffer_at(buffers[i], 0, 1), TTI_FOUND_DEVICE, buffers[i]);
        check_found(tutti_buffer_at(buffers[i], i % 300, 1), TTI_FOUND_DEVICE, buffers[i]);
        struct tti_found past;
        tti_memory_find(tutti_buffer_at(buffers[i], 1 + i % 300, 0), &past);
        CHECK(past.buffer == NULL || past.buffer->object.handle != buffers[i]);
        tti_found_give(&past);
    }
    check_found(tutti_buffer_at(pinned, 3, 1), TTI_FOUND_PINNED, pinned);
    check_found(private, TTI_FOUND_PRIVATE, NULL);
    check_found(NULL, TTI_FOUND_PRIVATE, NULL);
    for (size_t i = 0; i < BUFFERS; i++)
        if (i % 3 != 0) GOOD(tutti_buffer_free(buffers[i], &error));
    GOOD(tutti_buffer_free(pinned, &error));
    /* one that was found is dropped before it is used */
    tutti_buffer *dropped = make_buffer(device, TUTTI_U8, 4);
    struct tti_found found;
    tti_memory_find(tutti_buffer_at(dropped, 0, 1), &found);
    GOOD(tutti_buffer_free(dropped, &error));
    CHECK(found.buffer != NULL && tti_buffer_usable(found.buffer, &error) == TUTTI_ERR_STALE);
    CHECK(strstr(error.text, "dropped") != NULL);
    tti_found_give(&found);
}

static void test_share(tutti_device *handle)
{
    tutti_buffer *x = NULL, *local = make_buffer(handle, TUTTI_I32, N);
    tutti_stream *a = make_stream(handle);
    struct tti_stream *stream = tti_stream_take(a, &error);
    struct tti_device *device = stream->device;
    struct tti_memory mapped = {0};
    static int32_t out[N];
    int32_t seven = 7;
    int fd = -1;
    GOOD(tutti_buffer_create(handle, TUTTI_MEMORY_SHARED, TUTTI_I32, N, &x, &error));
    struct tti_device_buffer *buffer = tti_buffer_take(x, &error), *not_shared = tti_buffer_take(local, &error);
    CHECK(tti_buffer_share(not_shared, &fd, &error) == TUTTI_ERR_ARGUMENT);
    GOOD(tti_buffer_share(buffer, &fd, &error));
    GOOD(device->ops->map(device, fd, N * sizeof seven, &mapped, &error));
    CHECK(close(fd) == 0 && mapped.base != NULL && mapped.base != buffer->memory.base);
    GOOD(tutti_buffer_fill(x, 0, N, &seven, a, &error));
    GOOD(tti_stream_copy(stream, out, mapped.base, sizeof out, &error));
    GOOD(tutti_stream_sync(a, LONG_MS, &error));
    CHECK(out[0] == 7 && out[N - 1] == 7);
    device->ops->free(device, &mapped, NULL);
    tti_object_give(&buffer->object);
    tti_object_give(&not_shared->object);
    tti_object_give(&stream->object);
    GOOD(tutti_buffer_free(x, &error));
    GOOD(tutti_buffer_free(local, &error));
    GOOD(tutti_stream_free(a, &error));
}

static void test_pinned(tutti_device *handle)
{
    struct tti_device *device = tti_device_take(handle, &error);
    struct tti_pinned *a = NULL, *b = NULL, *c = NULL;
    GOOD(tti_pinned_take(device, 100000, &a, &error));
    GOOD(tti_pinned_take(device, 100000, &b, &error));
    CHECK(a != b && a->bytes >= 100000 && (uintptr_t)a->base % 4096 == 0);
    memset(a->base, 1, a->bytes);
    char *base = a->base;
    tti_pinned_give(a);
    GOOD(tti_pinned_take(device, 120000, &c, &error));
    CHECK(c->base == base); /* it is kept */
    CHECK(tti_pinned_take(device, SIZE_MAX, &a, &error) == TUTTI_ERR_COUNT);
    tti_pinned_give(b);
    tti_pinned_give(c);
    tti_pinned_give(NULL);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *own = aligned_alloc(page, 4 * page);
    GOOD(tti_pinned_adopt(device, own, 4 * page, &a, &error));
    CHECK(a->base == own);
    GOOD(tti_pinned_take(device, 1, &b, &error));
    CHECK(b->base < own || b->base >= own + 4 * page); /* what is the caller's is given to nobody */
    tti_pinned_release(a);
    GOOD(tti_pinned_adopt(device, own, 4 * page, &a, &error)); /* it can be again */
    tti_pinned_release(a);
    tti_pinned_give(b);
    free(own);
    tti_object_give(&device->object);
}

int main(int argc, char **argv)
{
    if (argc > 1) device_name = argv[1];
    tutti_log_set_level(TUTTI_QUIET);
    tutti_device *device = open_device();
    test_sync(device);
    test_words(device);
    test_debts(device);
    test_marks(device);
    test_marks_again(device);
    test_last_writer(device);
    for (int last = 0; last < READERS; last++) test_many_readers(device, last);
    test_stale_pointers(device);
    test_free_in_use(device);
    test_launch(device);
    test_adopt(device);
    test_gate(device);
    test_find(device);
    test_share(device);
    test_pinned(device);
    test_debt_at_reopen(device);
    GOOD(tutti_device_free(device, &error));
    return check_end();
}
