/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of calls on streams that run on any device: a rank's device, streams and buffers, and what is refused.
 */
#ifndef TEST_STREAM_PLACE_H
#define TEST_STREAM_PLACE_H

#define TUTTI_NO_CALL_SITES
#include "device/host_fault.h"
#include "device/stream.h"
#include "fault.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/device.h>

enum { LONG_MS = 45000 };

static const char *device_name = "host"; /* under test; "cuda": the GPU of each rank's number */

struct place {
    tutti_device *device;
    tutti_stream *stream, *other;
    tutti_buffer *in, *out;
    int32_t *x, *y; /* where they lie */
    size_t count;
    tutti_error error;
};

#define GOOD(place, call) CHECK_THAT((call) == TUTTI_OK, "%s", (place)->error.text)

static inline tutti_buffer *make_buffer(struct place *place, tutti_memory memory, size_t count)
{
    tutti_buffer *buffer = NULL;
    GOOD(place, tutti_buffer_create(place->device, memory, TUTTI_I32, count, &buffer, &place->error));
    return buffer;
}

static inline void open_place_for(tutti_comm *comm, struct place *place, tutti_memory memory, size_t count)
{
    memset(place, 0, sizeof *place);
    place->count = count;
    if (comm != NULL && strcmp(device_name, "cuda") == 0)
        GOOD(place, tutti_device_open_for(comm, device_name, &place->device, &place->error));
    else
        GOOD(place, tutti_device_open(device_name, &place->device, &place->error));
    GOOD(place, tutti_stream_create(place->device, &place->stream, &place->error));
    GOOD(place, tutti_stream_create(place->device, &place->other, &place->error));
    place->in = make_buffer(place, memory, count);
    place->out = make_buffer(place, memory, count);
    place->x = tutti_buffer_at(place->in, 0, count);
    place->y = tutti_buffer_at(place->out, 0, count);
    CHECK(place->x != NULL && place->y != NULL);
}

static inline void open_place(struct place *place, tutti_memory memory, size_t count)
{
    open_place_for(NULL, place, memory, count);
}

static inline void close_place(struct place *place)
{
    if (place->in != NULL) CHECK(tutti_buffer_free(place->in, NULL) == TUTTI_OK);
    if (place->out != NULL) CHECK(tutti_buffer_free(place->out, NULL) == TUTTI_OK);
    GOOD(place, tutti_stream_free(place->stream, &place->error));
    GOOD(place, tutti_stream_free(place->other, &place->error));
    GOOD(place, tutti_device_free(place->device, &place->error));
}

/* A stream that stands still until its word is raised: on every device. */
struct held {
    struct tti_stream *stream;
    struct tti_word *word;
    uint64_t value;
};

static inline struct held hold_stream(struct place *place)
{
    struct held held = {.stream = tti_stream_take(place->stream, &place->error)};
    GOOD(place, tti_word_take(held.stream->device, &held.word, &place->error));
    held.value = atomic_load(&held.word->value) + 1;
    GOOD(place, tti_stream_hold(held.stream, held.word, held.value, &place->error));
    return held;
}

static inline void let_go(struct place *place, struct held *held)
{
    tti_word_store(held->word, held->value);
    GOOD(place, tutti_stream_sync(place->stream, LONG_MS, &place->error));
    tti_word_give(held->stream->device, held->word);
    tti_object_give(&held->stream->object);
}

static inline void fill(struct place *place, tutti_buffer *buffer, size_t count, int32_t value)
{
    GOOD(place, tutti_buffer_fill(buffer, 0, count, &value, place->stream, &place->error));
}

/* One element, when the stream gets there. */
static inline int32_t read_one(struct place *place, tutti_buffer *buffer, size_t at, tutti_stream *stream)
{
    int32_t got = INT32_MIN;
    GOOD(place, tutti_buffer_get(buffer, at, &got, 1, stream, &place->error));
    GOOD(place, tutti_stream_sync(stream, LONG_MS, &place->error));
    return got;
}

/* How many of the first elements are not this one. */
static inline size_t count_wrong(struct place *place, tutti_buffer *buffer, size_t count, int32_t value)
{
    int32_t *got = malloc((count + 1) * sizeof *got);
    size_t wrong = 0;
    GOOD(place, tutti_buffer_get(buffer, 0, got, count, place->stream, &place->error));
    GOOD(place, tutti_stream_sync(place->stream, LONG_MS, &place->error));
    for (size_t i = 0; i < count; i++) wrong += got[i] != value;
    free(got);
    return wrong;
}

/* As fault_run_body. A GPU's driver keeps descriptors of its own. */
static inline void run_body(const char *title, fault_body *body, int size, bool processes, bool over_tcp)
{
    struct fault_world world = {.size = size,
                                .processes = processes,
                                .keeps_files = strcmp(device_name, "host") != 0,
                                .body = body,
                                .settings = {over_tcp ? "TUTTI_TRANSPORT=tcp" : NULL}};
    check_title("%s, %d %s%s", title, size, processes ? "processes" : "threads", over_tcp ? ", tcp" : "");
    fault_run(&world);
}

static inline void refused_with(tutti_comm *comm, tutti_status status, tutti_status wanted, const char *words)
{
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == wanted && error != NULL && strstr(error->text, words) != NULL, "%s: %s",
               tutti_status_name(status), error == NULL ? "" : error->text);
}

#endif
