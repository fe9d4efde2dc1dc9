/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=tsan
 *
 * Many ranks, as threads, start many ops on two streams each, which share the queues of one device: nothing waits for itself,
 * and every sum is right. `test_streams_many cuda:0 64 1000` is the same on a GPU.
 */
#include "conformance_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <tutti/device.h>
#include <tutti/tutti.h>

enum { COUNT = 64, STREAMS = 2, WAIT_MS = 100000 };

static const char *name = "host";
static int ops = SANITIZED ? 40 : 200;

struct place {
    tutti_device *device;
    tutti_stream *streams[STREAMS];
    tutti_buffer *in, *out;
    int32_t *x, *y; /* (COUNT), (ops, COUNT) */
};

static void open_place(struct place *place)
{
    tutti_error error;
    CHECK_THAT(tutti_device_open(name, &place->device, &error) == TUTTI_OK, "%s", error.text);
    for (int i = 0; i < STREAMS; i++)
        CHECK_THAT(tutti_stream_create(place->device, &place->streams[i], &error) == TUTTI_OK, "%s", error.text);
    size_t all = (size_t)ops * COUNT;
    CHECK_THAT(tutti_buffer_create(place->device, TUTTI_MEMORY_LOCAL, TUTTI_I32, all, &place->in, &error) == TUTTI_OK,
               "%s", error.text);
    CHECK_THAT(tutti_buffer_create(place->device, TUTTI_MEMORY_LOCAL, TUTTI_I32, all, &place->out, &error) == TUTTI_OK,
               "%s", error.text);
    place->x = tutti_buffer_at(place->in, 0, all);
    place->y = tutti_buffer_at(place->out, 0, all);
}

/* Op i adds i + rank; each is put behind a fill on its stream. */
static void start_all(tutti_comm *world, struct place *place, tutti_op *started)
{
    tutti_error error;
    for (int i = 0; i < ops; i++) {
        tutti_stream *stream = place->streams[i % STREAMS];
        int32_t value = i + tutti_rank(world);
        size_t at = (size_t)i * COUNT;
        CHECK_THAT(tutti_buffer_fill(place->in, at, COUNT, &value, stream, &error) == TUTTI_OK, "%s", error.text);
        CHECK(tutti_all_reduce_start(tutti_on(world, stream), place->x + at, place->y + at, COUNT, TUTTI_I32, TUTTI_SUM,
                                     &started[i]) == TUTTI_OK);
    }
}

static int work(tutti_comm *world, int argc, char **argv)
{
    struct place place = {0};
    tutti_error error;
    int size = tutti_size(world), wrong = 0;
    tutti_op *started = calloc((size_t)ops, sizeof *started);
    int32_t *got = calloc((size_t)ops * COUNT, sizeof *got);
    (void)argc, (void)argv;
    open_place(&place);
    start_all(world, &place, started);
    for (int i = 0; i < ops; i++) CHECK(tutti_wait_for(started[i], WAIT_MS) == TUTTI_OK);
    CHECK_THAT(tutti_buffer_get(place.out, 0, got, (size_t)ops * COUNT, place.streams[0], &error) == TUTTI_OK, "%s",
               error.text);
    CHECK_THAT(tutti_stream_sync(place.streams[0], WAIT_MS, &error) == TUTTI_OK, "%s", error.text);
    for (int i = 0; i < ops * COUNT; i++) wrong += got[i] != size * (i / COUNT) + size * (size - 1) / 2;
    CHECK_THAT(wrong == 0, "rank %d: %d of %d sums are wrong", tutti_rank(world), wrong, ops * COUNT);
    tutti_barrier(world);
    for (int i = 0; i < STREAMS; i++) tutti_stream_free(place.streams[i], NULL);
    tutti_buffer_free(place.in, NULL);
    tutti_buffer_free(place.out, NULL);
    tutti_device_free(place.device, NULL);
    free(started);
    free(got);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) name = argv[1];
    setenv("TUTTI_RANKS", argc > 2 ? argv[2] : SANITIZED ? "8" : "16", 1);
    if (argc > 3) ops = atoi(argv[3]);
    setenv("TUTTI_DEVICE_PROVIDER", "cuda", 1);
    conf_begin();
    CHECK(tutti_main(work, 0, NULL) == 0);
    return check_end();
}
