/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on a device: each rank has a buffer and a stream there, and an all_reduce goes between two pieces of work on it.
 *
 *     TUTTI_RANKS=4 ./gpu               four ranks, as threads, on the GPUs of this machine in turn; all on one if there is one
 *     tutti run -n 4 ./gpu              as processes
 *     TUTTI_RANKS=4 ./gpu cuda:0        all on the first one
 *     TUTTI_RANKS=4 ./gpu host          without a GPU, as is done by itself where there is none: streams are threads then
 */
#include <stdio.h>
#include <tutti/device.h>
#include <tutti/tutti.h>

enum { COUNT = 1 << 20 };

/* What a rank has on the device. */
struct place {
    tutti_device *device;
    tutti_stream *stream;
    tutti_buffer *x;
};

static tutti_status open_place(struct place *place, tutti_comm *world, const char *name, tutti_error *error)
{
    tutti_status status = tutti_device_open_for(world, name, &place->device, error);
    if (status == TUTTI_OK) status = tutti_stream_create(place->device, &place->stream, error);
    /* shared: ranks that are processes reach each other's; between threads any will do */
    if (status == TUTTI_OK)
        status = tutti_buffer_create(place->device, TUTTI_MEMORY_SHARED, TUTTI_F32, COUNT, &place->x, error);
    return status;
}

/* Fill, all_reduce, copy back: all are put on the stream at once, and done in that order. */
static tutti_status run(tutti_comm *world, struct place *place, float *last, tutti_error *error)
{
    float mine = (float)tutti_rank(world);
    float *x = tutti_buffer_at(place->x, 0, COUNT);
    tutti_status status = tutti_buffer_fill(place->x, 0, COUNT, &mine, place->stream, error);
    if (status == TUTTI_OK) {
        status = tutti_all_reduce(tutti_on(world, place->stream), x, x, COUNT, TUTTI_F32, TUTTI_SUM);
        if (status != TUTTI_OK) *error = *tutti_comm_error(world);
    }
    if (status == TUTTI_OK) status = tutti_buffer_get(place->x, COUNT - 1, last, 1, place->stream, error);
    return status == TUTTI_OK ? tutti_stream_sync(place->stream, 10000, error) : status;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    struct place place = {0};
    tutti_error error = {0};
    float last = -1;
    tutti_status status = open_place(&place, world, argc > 1 ? argv[1] : NULL, &error);
    if (status == TUTTI_OK) status = run(world, &place, &last, &error);
    if (status == TUTTI_OK)
        printf("rank %d of %d on %s: %g\n", tutti_rank(world), tutti_size(world), tutti_device_name(place.device),
               last);
    else
        fprintf(stderr, "rank %d: %s\n", tutti_rank(world), error.text);
    tutti_buffer_free(place.x, NULL);
    tutti_stream_free(place.stream, NULL);
    tutti_device_free(place.device, NULL);
    return status == TUTTI_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
