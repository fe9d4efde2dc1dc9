/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60
 *
 * A world that goes on after a rank's device has failed, or the rank was killed: the other ranks make the next comm, with the
 * rank started again or without it, and their calls go on, on the streams and buffers that they had. Run by
 * tests/cli/heal_streams.sh, under `tutti run --max-restarts` or `--keep-going`. Arguments: DEVICE, VICTIM, STEP, and HOW it ends
 * (poison, kill).
 */
#include "device_poison.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/device.h>
#include <tutti/tutti.h>

enum { STEPS = 8, COUNT = 3000, LONG_MS = 45000 };

struct place {
    tutti_device *device;
    tutti_stream *stream;
    tutti_buffer *in, *out;
    int32_t *x, *y;
};

static tutti_status open_place(tutti_comm *world, const char *name, struct place *place, tutti_error *error)
{
    tutti_status status = tutti_device_open_for(world, name, &place->device, error);
    if (status == TUTTI_OK) status = tutti_stream_create(place->device, &place->stream, error);
    if (status == TUTTI_OK)
        status = tutti_buffer_create(place->device, TUTTI_MEMORY_SHARED, TUTTI_I32, COUNT, &place->in, error);
    if (status == TUTTI_OK)
        status = tutti_buffer_create(place->device, TUTTI_MEMORY_SHARED, TUTTI_I32, COUNT, &place->out, error);
    if (status != TUTTI_OK) return status;
    place->x = tutti_buffer_at(place->in, 0, COUNT);
    place->y = tutti_buffer_at(place->out, 0, COUNT);
    return TUTTI_OK;
}

static void close_place(struct place *place)
{
    tutti_buffer_free(place->in, NULL);
    tutti_buffer_free(place->out, NULL);
    tutti_stream_free(place->stream, NULL);
    tutti_device_free(place->device, NULL);
}

static void end_as(const char *how, const char *name, struct place *place)
{
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    poison_device(name, place->device, place->stream);
}

/* A blocking call and one that is started; then what they have made. */
static tutti_status reduce(tutti_comm *comm, struct place *place, int step, int *ranks)
{
    static int32_t got[2]; /* a copy that was put before a failure may come after it */
    int32_t value = step + 1;
    tutti_op op;
    tutti_error error;
    tutti_status status = tutti_buffer_fill(place->in, 0, COUNT, &value, place->stream, &error);
    if (status == TUTTI_OK)
        status = tutti_all_reduce(tutti_on(comm, place->stream), place->x, place->y, COUNT, TUTTI_I32, TUTTI_SUM);
    if (status == TUTTI_OK) status = tutti_buffer_get(place->out, 0, &got[0], 1, place->stream, &error);
    if (status == TUTTI_OK)
        status = tutti_all_reduce_start(tutti_on(comm, place->stream), place->x, place->y, COUNT, TUTTI_I32, TUTTI_SUM,
                                        &op);
    if (status == TUTTI_OK) {
        (void)tutti_stream_wait(place->stream, op, &error);
        status = tutti_wait(op);
    }
    if (status == TUTTI_OK) status = tutti_buffer_get(place->out, COUNT - 1, &got[1], 1, place->stream, &error);
    if (status == TUTTI_OK) status = tutti_stream_sync(place->stream, LONG_MS, &error);
    if (status != TUTTI_OK) return status;
    if (got[0] != got[1] || got[0] != value * tutti_size(comm)) {
        printf("wrong: %d, %d in step %d of %d ranks\n", got[0], got[1], step, tutti_size(comm));
        abort();
    }
    *ranks = got[0] / value;
    return TUTTI_OK;
}

/* True if it is this rank whose device has failed: it can do nothing any more. */
static bool has_failed(struct place *place)
{
    tutti_device_about about = {.struct_size = sizeof about};
    return tutti_device_describe(place->device, &about, NULL) == TUTTI_ERR_DEVICE;
}

/* All ranks that return from it with success know that it was done for all. */
static tutti_status do_step(tutti_comm *comm, struct place *place, int step, int *ranks)
{
    uint64_t done = 0;
    tutti_status status = reduce(comm, place, step, ranks);
    if (status != TUTTI_OK && has_failed(place)) return status;
    tutti_status agreed = tutti_comm_agree(comm, status == TUTTI_OK, &done);
    if (agreed != TUTTI_OK || done != 0) return agreed;
    return status != TUTTI_OK ? status : TUTTI_ERR_BROKEN;
}

static tutti_status go_on(tutti_comm **comm, const tutti_comm *world)
{
    tutti_comm *next;
    tutti_status status = tutti_comm_revoke(*comm);
    if (status == TUTTI_OK) status = tutti_comm_rebuild(*comm, &next);
    if (status == TUTTI_ERR_UNSUPPORTED) status = tutti_comm_shrink(*comm, &next);
    if (status != TUTTI_OK) return status;
    if (*comm != world) tutti_comm_free(*comm);
    *comm = next;
    return TUTTI_OK;
}

static tutti_status restore(tutti_comm *comm, int *step)
{
    return tutti_all_reduce(comm, step, step, 1, TUTTI_I32, TUTTI_MAX);
}

static int work(tutti_comm *world, int argc, char **argv)
{
    const char *name = argv[1], *how = argv[4];
    int victim = atoi(argv[2]), when = atoi(argv[3]), ranks = 0, step = 0;
    struct place place = {0};
    tutti_comm *comm = world;
    tutti_error error;
    (void)argc;
    if (open_place(world, name, &place, &error) != TUTTI_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    tutti_status status = tutti_epoch(world) > 0 ? restore(world, &step) : TUTTI_OK;
    while (step < STEPS) {
        if (tutti_rank(world) == victim && step == when && tutti_epoch(world) == 0) end_as(how, name, &place);
        if (status == TUTTI_OK) status = do_step(comm, &place, step, &ranks);
        if (status != TUTTI_OK && has_failed(&place)) return 1;
        if (status != TUTTI_OK) {
            if (go_on(&comm, world) != TUTTI_OK) return tutti_explain(comm, stderr);
            status = restore(comm, &step);
            continue;
        }
        if (tutti_rank(comm) == 0) printf("step %d: %d ranks, epoch %d\n", step, ranks, (int)tutti_epoch(comm));
        fflush(stdout);
        step++;
    }
    if (comm != world) tutti_comm_free(comm);
    close_place(&place);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5) return tutti_main(work, argc, argv);
    printf("skipped: tests/cli/heal_streams.sh runs it\n");
    return 77;
}
