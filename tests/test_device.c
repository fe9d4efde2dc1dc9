/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Devices, streams, marks and buffers, as any device must do them: test_device [NAME], "host" unless told.
 */
#include "device_check.h"
#include <sys/wait.h>
#include <unistd.h>

enum { N = 1000 };

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

static void test_names(void)
{
    tutti_device *device = NULL, *again = NULL;
    static const char *const bad[] = {"", "hos", "hosts", "host:", "host:x", "host:1x", "host:-1", "host:99999", ":0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        FAILS(TUTTI_ERR_ARGUMENT, "is no device", tutti_device_open(bad[i], &device, &error));
        CHECK(device == NULL);
    }
    FAILS(TUTTI_ERR_ARGUMENT, "is no device", tutti_device_open("host:64", &device, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "NULL", tutti_device_open(NULL, &device, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "NULL", tutti_device_open("host", NULL, &error));
    CHECK(tutti_device_open("x", &device, NULL) == TUTTI_ERR_ARGUMENT);
    device = open_device();
    CHECK(strcmp(tutti_device_name(device), device_name) == 0);
    GOOD(tutti_device_open(device_name, &again, &error));
    CHECK(again == device);
    GOOD(tutti_device_free(again, &error));
    CHECK(tutti_device_name(device) != NULL);
    GOOD(tutti_device_free(device, &error));
    CHECK(tutti_device_name(device) == NULL);
    FAILS(TUTTI_ERR_STALE, "closed", tutti_device_free(device, &error));
    GOOD(tutti_device_free(NULL, &error));
}

static void test_describe(tutti_device *device)
{
    int count = -1;
    char kind[8] = "";
    memcpy(kind, device_name, strcspn(device_name, ":"));
    GOOD(tutti_device_count(kind, &count, &error));
    CHECK(count >= 1);
    FAILS(TUTTI_ERR_ARGUMENT, "is no device", tutti_device_count("x", &count, &error));
    CHECK(count == 0);
    FAILS(TUTTI_ERR_ARGUMENT, "NULL", tutti_device_count(NULL, &count, &error));
    tutti_device_about about = {.struct_size = sizeof about};
    GOOD(tutti_device_describe(device, &about, &error));
    CHECK(about.memory_total > 0 && about.memory_free > 0 && about.memory_free <= about.memory_total);
    CHECK(about.generation == 1 && about.model[0] != '\0' && about.shares);
    about.struct_size = 8;
    FAILS(TUTTI_ERR_ARGUMENT, "struct_size", tutti_device_describe(device, &about, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "NULL",
          tutti_device_describe(NULL, &(tutti_device_about){.struct_size = sizeof about}, &error));
}

/* ---- Handles ----------------------------------------------------------------------------------------------------- */

static void test_handles(tutti_device *device)
{
    tutti_stream *stream = make_stream(device), *next;
    tutti_buffer *buffer = make_buffer(device, TUTTI_F32, N);
    FAILS(TUTTI_ERR_ARGUMENT, "the stream is NULL", tutti_stream_sync(NULL, 0, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "a buffer was given where a stream belongs",
          tutti_stream_sync((tutti_stream *)(void *)buffer, 0, &error));
    GOOD(tutti_stream_free(stream, &error));
    FAILS(TUTTI_ERR_STALE, "the stream was freed", tutti_stream_free(stream, &error));
    FAILS(TUTTI_ERR_STALE, "the stream was freed", tutti_stream_sync(stream, 0, &error));
    CHECK(tutti_stream_native(stream) == NULL);
    next = make_stream(device); /* its place is used again, and the old handle is still refused */
    CHECK(next != stream);
    FAILS(TUTTI_ERR_STALE, "the stream was freed", tutti_stream_sync(stream, 0, &error));
    FAILS(TUTTI_ERR_STALE, "the stream was freed", tutti_buffer_fill(buffer, 0, N, &(float){1}, stream, &error));
    GOOD(tutti_stream_sync(next, LONG_MS, &error));
    GOOD(tutti_stream_free(next, &error));
    GOOD(tutti_buffer_free(buffer, &error));
    FAILS(TUTTI_ERR_STALE, "dropped", tutti_buffer_free(buffer, &error));
    FAILS(TUTTI_ERR_STALE, "", tutti_stream_sync((tutti_stream *)(uintptr_t)0x7f0000000002, 0, &error));
    GOOD(tutti_buffer_free(NULL, &error));
    GOOD(tutti_stream_free(NULL, &error));
    GOOD(tutti_mark_free(NULL, &error));
}

static void test_fork(tutti_device *device)
{
    tutti_stream *stream = make_stream(device);
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        bool refused = tutti_stream_sync(stream, 0, &error) == TUTTI_ERR_FORKED &&
                       tutti_device_free(device, &error) == TUTTI_ERR_FORKED;
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    GOOD(tutti_stream_free(stream, &error));
}

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

static void test_bounds(tutti_device *device)
{
    tutti_buffer *buffer = make_buffer(device, TUTTI_F64, N), *none = make_buffer(device, TUTTI_U8, 0), *bad;
    char *base = tutti_buffer_at(buffer, 0, N);
    CHECK(base != NULL && (uintptr_t)base % 64 == 0);
    CHECK((char *)tutti_buffer_at(buffer, 3, 4) == base + 24 && tutti_buffer_at(buffer, N, 0) == base + 8 * N);
    CHECK(tutti_buffer_at(buffer, 0, N + 1) == NULL && tutti_buffer_at(buffer, N + 1, 0) == NULL);
    CHECK(tutti_buffer_at(buffer, 1, SIZE_MAX) == NULL && tutti_buffer_at(NULL, 0, 0) == NULL);
    FAILS(TUTTI_ERR_COUNT, "999 elements from 2 on end past the buffer", tutti_buffer_check(buffer, 2, N - 1, &error));
    GOOD(tutti_buffer_check(buffer, 2, N - 2, &error));
    CHECK(tutti_buffer_at(none, 0, 0) != NULL && tutti_buffer_at(none, 0, 1) == NULL);
    FAILS(TUTTI_ERR_COUNT, "more than can be addressed",
          tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_F64, SIZE_MAX / 8, &bad, &error));
    CHECK(bad == NULL);
    FAILS(TUTTI_ERR_MEMORY, "",
          tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_U8, (size_t)1 << 52, &bad, &error));
    FAILS(TUTTI_ERR_MEMORY, "",
          tutti_buffer_create(device, TUTTI_MEMORY_SHARED, TUTTI_U8, (size_t)1 << 46, &bad, &error));
    FAILS(TUTTI_ERR_TYPE, "", tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_TYPE_COUNT, 1, &bad, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "", tutti_buffer_create(device, (tutti_memory)3, TUTTI_U8, 1, &bad, &error));
    tutti_buffer_about about = {.struct_size = sizeof about};
    GOOD(tutti_buffer_describe(buffer, &about, &error));
    CHECK(about.device == device && about.type == TUTTI_F64 && about.count == N && about.generation == 1);
    GOOD(tutti_buffer_free(buffer, &error));
    GOOD(tutti_buffer_free(none, &error));
    CHECK(tutti_buffer_at(buffer, 0, N) == NULL);
    FAILS(TUTTI_ERR_STALE, "dropped", tutti_buffer_check(buffer, 0, 0, &error));
}

/* Every type, odd offsets, values whose bytes differ. */
static void test_copies(tutti_device *device, tutti_memory memory)
{
    tutti_stream *stream = make_stream(device);
    static unsigned char in[N * 8], out[N * 8];
    for (size_t i = 0; i < sizeof in; i++) in[i] = (unsigned char)(i * 7 + i / 256);
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        size_t bytes = tutti_type_bytes((tutti_type)type);
        tutti_buffer *a = NULL, *b = make_buffer(device, (tutti_type)type, N);
        GOOD(tutti_buffer_create(device, memory, (tutti_type)type, N, &a, &error));
        memset(out, 0, sizeof out);
        GOOD(tutti_buffer_put(a, 0, in, N, stream, &error));
        GOOD(tutti_buffer_fill(b, 0, N, in + 100, stream, &error));
        GOOD(tutti_buffer_copy(b, 3, a, 5, 501, stream, &error));
        GOOD(tutti_buffer_fill(b, 700, 13, in + 900, stream, &error));
        GOOD(tutti_buffer_get(b, 0, out, N, stream, &error));
        GOOD(tutti_stream_sync(stream, LONG_MS, &error));
        int wrong = 0;
        for (size_t i = 0; i < N; i++) {
            const unsigned char *wanted = in + (i >= 3 && i < 504 ? (i + 2) * bytes : i >= 700 && i < 713 ? 900 : 100);
            wrong += memcmp(out + i * bytes, wanted, bytes) != 0;
        }
        CHECK_THAT(wrong == 0, "%s: %d wrong", tutti_type_name((tutti_type)type), wrong);
        GOOD(tutti_buffer_free(a, &error));
        GOOD(tutti_buffer_free(b, &error));
    }
    GOOD(tutti_stream_free(stream, &error));
}

static void test_refused_copies(tutti_device *device)
{
    tutti_stream *stream = make_stream(device);
    tutti_buffer *a = make_buffer(device, TUTTI_I32, N), *b = make_buffer(device, TUTTI_I64, N);
    int32_t host[N] = {0};
    FAILS(TUTTI_ERR_COUNT, "past the buffer", tutti_buffer_put(a, 1, host, N, stream, &error));
    FAILS(TUTTI_ERR_COUNT, "past the buffer", tutti_buffer_get(a, N + 1, host, 0, stream, &error));
    FAILS(TUTTI_ERR_COUNT, "past the buffer", tutti_buffer_fill(a, 0, SIZE_MAX, host, stream, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "NULL", tutti_buffer_put(a, 0, NULL, 1, stream, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "NULL", tutti_buffer_get(a, 0, NULL, 1, stream, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "NULL", tutti_buffer_fill(a, 0, 1, NULL, stream, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "the stream is NULL", tutti_buffer_put(a, 0, host, 1, NULL, &error));
    FAILS(TUTTI_ERR_TYPE, "i64", tutti_buffer_copy(a, 0, b, 0, 1, stream, &error));
    FAILS(TUTTI_ERR_OVERLAP, "", tutti_buffer_copy(a, 0, a, 9, 10, stream, &error));
    FAILS(TUTTI_ERR_ARGUMENT, "TUTTI_READS", tutti_buffer_begin(a, (tutti_access)2, stream, &error));
    GOOD(tutti_buffer_copy(a, 0, a, 10, 10, stream, &error));
    GOOD(tutti_buffer_put(a, 0, NULL, 0, stream, &error));
    CHECK(tutti_buffer_put(a, 1, host, N, stream, NULL) == TUTTI_ERR_COUNT);
    GOOD(tutti_stream_sync(stream, LONG_MS, &error));
    GOOD(tutti_buffer_free(a, &error));
    GOOD(tutti_buffer_free(b, &error));
    GOOD(tutti_stream_free(stream, &error));
}

/* ---- Generations --------------------------------------------------------------------------------------------------- */

struct old { /* what is left of a generation */
    tutti_stream *stream;
    tutti_mark *mark;
    tutti_buffer *buffer;
};

static struct old make_old(tutti_device *device)
{
    struct old old = {.stream = make_stream(device), .buffer = make_buffer(device, TUTTI_I32, N)};
    int32_t one = 1;
    GOOD(tutti_mark_create(device, &old.mark, &error));
    GOOD(tutti_buffer_fill(old.buffer, 0, N, &one, old.stream, &error));
    GOOD(tutti_mark_record(old.mark, old.stream, &error));
    return old;
}

static void check_old(struct old *old, const char *words, tutti_stream *good)
{
    static int32_t host[N];
    CHECK(tutti_buffer_at(old->buffer, 0, 1) == NULL && tutti_stream_native(old->stream) == NULL);
    FAILS(TUTTI_ERR_STALE, words, tutti_buffer_check(old->buffer, 0, 1, &error));
    FAILS(TUTTI_ERR_STALE, words, tutti_stream_sync(old->stream, 0, &error));
    FAILS(TUTTI_ERR_STALE, words, tutti_mark_record(old->mark, good != NULL ? good : old->stream, &error));
    FAILS(TUTTI_ERR_STALE, words, tutti_stream_after(good != NULL ? good : old->stream, old->mark, &error));
    FAILS(TUTTI_ERR_STALE, words, tutti_buffer_put(old->buffer, 0, host, 1, good != NULL ? good : old->stream, &error));
    FAILS(TUTTI_ERR_STALE, words, tutti_buffer_get(old->buffer, 0, host, 1, good != NULL ? good : old->stream, &error));
    FAILS(TUTTI_ERR_STALE, words,
          tutti_buffer_begin(old->buffer, TUTTI_READS, good != NULL ? good : old->stream, &error));
    tutti_buffer_about about = {.struct_size = sizeof about};
    GOOD(tutti_buffer_describe(old->buffer, &about, &error));
    CHECK(about.count == N);
}

static void free_old(struct old *old)
{
    GOOD(tutti_stream_free(old->stream, &error));
    GOOD(tutti_mark_free(old->mark, &error));
    GOOD(tutti_buffer_free(old->buffer, &error));
    FAILS(TUTTI_ERR_STALE, "dropped", tutti_buffer_check(old->buffer, 0, 0, &error));
}

static void test_generations(void)
{
    tutti_device *device = open_device();
    tutti_device_about about = {.struct_size = sizeof about};
    struct old old = make_old(device), shut;
    GOOD(tutti_device_reopen(device, &error));
    GOOD(tutti_device_describe(device, &about, &error));
    CHECK(about.generation == 2);
    tutti_stream *stream = make_stream(device);
    check_old(&old, "which was re-opened since and is of generation 2", stream);
    free_old(&old);
    shut = make_old(device);
    GOOD(tutti_buffer_copy(shut.buffer, 0, shut.buffer, 10, 5, stream, &error));
    GOOD(tutti_device_free(device, &error));
    check_old(&shut, "which was shut down", NULL);
    FAILS(TUTTI_ERR_STALE, "shut down", tutti_stream_sync(stream, 0, &error));
    GOOD(tutti_stream_free(stream, &error));
    free_old(&shut);
    FAILS(TUTTI_ERR_STALE, "the device was closed", tutti_device_reopen(device, &error));
}

int main(int argc, char **argv)
{
    if (argc > 1) device_name = argv[1];
    tutti_log_set_level(TUTTI_QUIET);
    test_names();
    tutti_device *device = open_device();
    test_describe(device);
    test_handles(device);
    test_bounds(device);
    for (int memory = TUTTI_MEMORY_LOCAL; memory <= TUTTI_MEMORY_PINNED; memory++)
        test_copies(device, (tutti_memory)memory);
    test_refused_copies(device);
    test_fork(device);
    GOOD(tutti_device_free(device, &error));
    test_generations();
    return check_end();
}
