/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60
 *
 * A device as an actor whose device fails for good, in the midst of work that waits: all of it is answered, the actor ends, and so does
 * the rank's process, which the launcher starts again; the others rebuild the world and renew their actors, whose devices have
 * never stopped. Run by tests/cli/heal_streams.sh, under `tutti run --max-restarts`. Arguments: DEVICE, VICTIM, STEP.
 */
#include "device_poison.h"
#include <stdio.h>
#include <tutti/actor.h>

enum { STEPS = 8, COUNT = 500, WAITING = 5 };

struct job {
    const char *poisons; /* the name of the device, which this piece of work makes fail; or NULL */
    int32_t in, out;
};

/* Puts a number into the device's memory and reads it again. */
static tutti_status work_on(tutti_device *device, tutti_stream *stream, void *context, tutti_error *error)
{
    struct job *job = context;
    tutti_buffer *buffer = NULL;
    if (job->poisons != NULL) {
        poison_device(job->poisons, device, stream);
        return TUTTI_OK;
    }
    tutti_status status = tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_I32, COUNT, &buffer, error);
    if (status == TUTTI_OK) status = tutti_buffer_fill(buffer, 0, COUNT, &job->in, stream, error);
    if (status == TUTTI_OK) status = tutti_buffer_get(buffer, COUNT - 1, &job->out, 1, stream, error);
    if (status == TUTTI_OK) status = tutti_stream_sync(stream, 45000, error);
    if (buffer != NULL) (void)tutti_buffer_free(buffer, NULL);
    return status;
}

/* The device fails with work behind: each piece has an answer, and the actor has ended then, with the reason. */
static int end_as_poisoned(tutti_actors *actors, int rank, const char *name)
{
    struct job bad = {.poisons = name}, jobs[WAITING] = {{0}};
    tutti_op first, ops[WAITING], watch;
    if (tutti_actor_watch_start(actors, rank, "device", &watch) != TUTTI_OK) return 2;
    if (tutti_device_do_start(actors, "device", work_on, &bad, 20000, &first) != TUTTI_OK) return 2;
    int asked = 0; /* those behind may find that the actor has ended already */
    while (asked < WAITING &&
           tutti_device_do_start(actors, "device", work_on, &jobs[asked], 20000, &ops[asked]) == TUTTI_OK)
        asked++;
    const tutti_status failed = tutti_wait(first);
    printf("poisoned: %s\n", tutti_status_name(failed));
    for (int i = 0; i < asked; i++) {
        const tutti_status status = tutti_wait(ops[i]);
        if (status != TUTTI_ERR_ACTOR && status != TUTTI_ERR_DEVICE) printf("wrong: %s\n", tutti_status_name(status));
    }
    const tutti_status ended = tutti_wait(watch);
    fprintf(stderr, "rank %d ends: %s: %s\n", rank, tutti_status_name(ended),
            tutti_actors_error(actors) == NULL ? "" : tutti_actors_error(actors)->text);
    fflush(stdout);
    return 1; /* its process can do nothing more with the device */
}

static int say(tutti_actors *actors, const char *what)
{
    const tutti_error *error = tutti_actors_error(actors);
    return fprintf(stderr, "%s: %s\n", what, error == NULL ? "" : error->text), 3;
}

static tutti_status go_on(tutti_comm **comm, const tutti_comm *world, tutti_actors *actors)
{
    tutti_comm *next;
    tutti_status status = tutti_comm_rebuild(*comm, &next);
    if (status == TUTTI_OK) status = tutti_actors_renew(actors, next);
    if (status != TUTTI_OK) return status;
    if (*comm != world) tutti_comm_free(*comm);
    *comm = next;
    return TUTTI_OK;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    const int victim = atoi(argv[2]), when = atoi(argv[3]), rank = tutti_rank(world);
    int32_t step = 0, sum;
    tutti_comm *comm = world;
    tutti_actors *actors;
    (void)argc;
    if (tutti_actors_create(world, NULL, &actors) != TUTTI_OK) return tutti_explain(world, stderr);
    tutti_device_actor_options options = {.struct_size = sizeof options, .device = argv[1]};
    if (tutti_device_actor(actors, "device", &options) != TUTTI_OK) return say(actors, "device actor");
    bool meets = tutti_epoch(world) > 0; /* all find the step first */
    while (step < STEPS) {
        struct job job = {.in = step * 10 + rank};
        if (rank == victim && step == when && tutti_epoch(world) == 0) return end_as_poisoned(actors, rank, argv[1]);
        if (!meets && tutti_device_do(actors, "device", work_on, &job, 20000) != TUTTI_OK) return say(actors, "work");
        tutti_status status = meets ? tutti_all_reduce(comm, &step, &step, 1, TUTTI_I32, TUTTI_MAX)
                                    : tutti_all_reduce(comm, &job.out, &sum, 1, TUTTI_I32, TUTTI_SUM);
        if (status != TUTTI_OK && go_on(&comm, world, actors) != TUTTI_OK) return tutti_explain(comm, stderr);
        const bool met = meets && status == TUTTI_OK;
        meets = status != TUTTI_OK;
        if (met || meets) continue;
        const int size = tutti_size(comm);
        if (sum != step * 10 * size + size * (size - 1) / 2) return say(actors, "a wrong sum");
        if (rank == 0) printf("step %d: %d ranks, epoch %d\n", (int)step, size, (int)tutti_epoch(comm));
        fflush(stdout);
        step++;
    }
    (void)tutti_actors_free(actors);
    return comm != world && tutti_comm_free(comm) != TUTTI_OK;
}

int main(int argc, char **argv)
{
    if (argc == 4) return tutti_main(work, argc, argv);
    printf("skipped: tests/cli/heal_streams.sh runs it\n");
    return 77;
}
