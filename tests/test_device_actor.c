/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan waits
 *
 * Devices as actors, on device "host", or on a GPU (test_device_actor cuda:0): work in order, its errors, a device that fails and is opened again while work waits, one
 * that fails too often, a full queue.
 */
#include "fault.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/actor.h>

enum { MANY = 100, COUNT = 64 };
static const char *device_name = "host";

#define OPTIONS(...) (&(tutti_device_actor_options){.struct_size = sizeof(tutti_device_actor_options), __VA_ARGS__})

/* ---- Work ---------------------------------------------------------------------------------------------------------- */

struct job {
    int number, *last; /* of those before */
    uint64_t generation;
    _Atomic int *gate, *entered;
    tutti_status returns;
    tutti_buffer **buffer; /* made by the first that has it, and read by others */
    float value;
};

static void await(_Atomic int *word)
{
    for (int64_t until = tutti_clock_ns() + INT64_C(30000000000); *word == 0 && tutti_clock_ns() < until;)
        tutti_spend_ns(50000);
    CHECK(*word != 0);
}

/* Memory of the device: its value is what was put there. */
static tutti_status use_buffer(tutti_device *device, tutti_stream *stream, struct job *job, tutti_error *error)
{
    const float seven = 7;
    if (*job->buffer == NULL) {
        tutti_status status = tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_F32, COUNT, job->buffer, error);
        return status == TUTTI_OK ? tutti_buffer_fill(*job->buffer, 0, COUNT, &seven, stream, error) : status;
    }
    return tutti_buffer_get(*job->buffer, 3, &job->value, 1, stream, error);
}

static tutti_status work(tutti_device *device, tutti_stream *stream, void *context, tutti_error *error)
{
    struct job *job = context;
    tutti_device_about about = {.struct_size = sizeof about};
    CHECK(tutti_device_describe(device, &about, error) == TUTTI_OK);
    job->generation = about.generation;
    if (job->last != NULL) CHECK_THAT(*job->last == job->number - 1, "%d after %d", job->number, *job->last);
    if (job->last != NULL) *job->last = job->number;
    if (job->entered != NULL) *job->entered = 1;
    if (job->gate != NULL) await(job->gate);
    if (job->returns != TUTTI_OK) snprintf(error->text, sizeof error->text, "work number %d failed", job->number);
    if (job->returns != TUTTI_OK) return job->returns;
    return job->buffer != NULL ? use_buffer(device, stream, job, error) : TUTTI_OK;
}

/* ---- Cases --------------------------------------------------------------------------------------------------------- */

static tutti_actors *make(tutti_comm *comm)
{
    tutti_actors *actors = NULL;
    CHECK(tutti_actors_create(comm, NULL, &actors) == TUTTI_OK);
    return actors;
}

static void says(tutti_actors *actors, tutti_status status, tutti_status expected, const char *words)
{
    const tutti_error *error = tutti_actors_error(actors);
    CHECK_THAT(status == expected && error != NULL && strstr(error->text, words) != NULL, "%s, not %s %s: %s",
               tutti_status_name(status), tutti_status_name(expected), words, error == NULL ? "" : error->text);
}

static tutti_status do_one(tutti_actors *actors, struct job *job)
{
    return tutti_device_do(actors, "device", work, job, 0);
}

static void ordinary(tutti_comm *comm, struct fault_rank *self)
{
    tutti_actors *actors = make(comm);
    struct job jobs[MANY] = {0}, read = {0}, odd = {.returns = TUTTI_ERR_LIMIT, .number = 9};
    tutti_op ops[MANY];
    tutti_buffer *buffer = NULL;
    int last = 0;
    (void)self;
    CHECK(tutti_device_actor(actors, "device", OPTIONS(.device = device_name, .queue = 0)) == TUTTI_OK);
    for (int i = 0; i < MANY; i++) {
        jobs[i] = (struct job){.number = i + 1, .last = &last};
        CHECK(tutti_device_do_start(actors, "device", work, &jobs[i], 0, &ops[i]) == TUTTI_OK);
    }
    CHECK(tutti_wait_all(ops, MANY) == TUTTI_OK && last == MANY);
    read.buffer = &buffer;
    CHECK(do_one(actors, &read) == TUTTI_OK && do_one(actors, &read) == TUTTI_OK && read.value == 7);
    says(actors, do_one(actors, &odd), TUTTI_ERR_LIMIT, "work number 9 failed"); /* the device goes on */
    CHECK(do_one(actors, &read) == TUTTI_OK);
    const uint64_t before = read.generation;
    CHECK(tutti_device_renew_start(actors, "device", 0, &ops[0]) == TUTTI_OK);
    tutti_status stale = do_one(actors, &read);
    CHECK_THAT(stale == TUTTI_ERR_STALE, "%s", tutti_status_name(stale));
    CHECK(tutti_wait(ops[0]) == TUTTI_OK && read.generation == before + 1);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* The device fails with work waiting behind it, all of which is done by the next generation. */
static void reopened(tutti_comm *comm, struct fault_rank *self)
{
    tutti_actors *actors = make(comm);
    _Atomic int gate = 0, entered = 0;
    struct job bad = {.number = 1, .gate = &gate, .entered = &entered, .returns = TUTTI_ERR_DEVICE}, jobs[MANY] = {0};
    tutti_op first, ops[MANY];
    (void)self;
    CHECK(tutti_device_actor(actors, "device", OPTIONS(.device = device_name, .restarts = 2)) == TUTTI_OK);
    for (int round = 0; round < 4; round++) { /* more often than in a row */
        gate = entered = 0;
        CHECK(tutti_device_do_start(actors, "device", work, &bad, 0, &first) == TUTTI_OK);
        await(&entered);
        for (int i = 0; i < MANY; i++)
            CHECK(tutti_device_do_start(actors, "device", work, &jobs[i], 0, &ops[i]) == TUTTI_OK);
        gate = 1;
        says(actors, tutti_wait(first), TUTTI_ERR_DEVICE, "work number 1 failed");
        CHECK(tutti_wait_all(ops, MANY) == TUTTI_OK);
        for (int i = 0; i < MANY; i++) CHECK(jobs[i].generation == bad.generation + 1);
    }
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* One that fails again and again ends; what waits is answered. */
static void given_up(tutti_comm *comm, struct fault_rank *self)
{
    enum { RESTARTS = 2, WAITING = 10 };
    tutti_actors *actors = make(comm);
    _Atomic int gate = 0;
    struct job bad = {.number = 1, .gate = &gate, .returns = TUTTI_ERR_DEVICE};
    tutti_op ops[WAITING];
    (void)self;
    CHECK(tutti_device_actor(actors, "device", OPTIONS(.device = device_name, .restarts = RESTARTS)) == TUTTI_OK);
    for (int i = 0; i < WAITING; i++)
        CHECK(tutti_device_do_start(actors, "device", work, &bad, 0, &ops[i]) == TUTTI_OK);
    gate = 1;
    for (int i = 0; i < WAITING; i++) {
        tutti_status status = tutti_wait(ops[i]), expected = i <= RESTARTS ? TUTTI_ERR_DEVICE : TUTTI_ERR_ACTOR;
        CHECK_THAT(status == expected, "%d: %s", i, tutti_status_name(status));
    }
    tutti_status after;
    while ((after = do_one(actors, &bad)) == TUTTI_ERR_DEVICE) {} /* until it has ended */
    CHECK(after == TUTTI_ERR_ACTOR);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

static void full(tutti_comm *comm, struct fault_rank *self)
{
    enum { ROOM = 4 };
    tutti_actors *actors = make(comm);
    _Atomic int gate = 0, entered = 0;
    struct job waits = {.gate = &gate, .entered = &entered}, job = {0};
    tutti_op ops[ROOM + 1], more;
    (void)self;
    CHECK(tutti_device_actor(actors, "device", OPTIONS(.device = device_name, .queue = ROOM)) == TUTTI_OK);
    CHECK(tutti_device_do_start(actors, "device", work, &waits, 0, &ops[ROOM]) == TUTTI_OK);
    await(&entered);
    for (int i = 0; i < ROOM; i++) CHECK(tutti_device_do_start(actors, "device", work, &job, 0, &ops[i]) == TUTTI_OK);
    says(actors, tutti_device_do_start(actors, "device", work, &job, 0, &more), TUTTI_ERR_FULL, "4 requests wait");
    gate = 1;
    CHECK(tutti_wait_all(ops, ROOM + 1) == TUTTI_OK);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

static void bad_input(tutti_comm *comm, struct fault_rank *self)
{
    tutti_actors *actors = make(comm);
    tutti_op op;
    (void)self;
    says(actors, tutti_device_actor(actors, "device", NULL), TUTTI_ERR_ARGUMENT, "the name of a device");
    says(actors, tutti_device_actor(actors, "device", &(tutti_device_actor_options){.device = device_name}),
         TUTTI_ERR_ARGUMENT, "set struct_size to sizeof");
    CHECK(tutti_device_actor(actors, "other", OPTIONS(.device = "nothing:3")) != TUTTI_OK);
    CHECK(tutti_device_actor(actors, "device", OPTIONS(.device = device_name, .sync_ms = -1)) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_device_do(actors, "device", NULL, NULL, 0) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_device_do(actors, "device", work, NULL, 0) == TUTTI_ERR_ACTOR);
    CHECK(tutti_device_renew_start(actors, "device", 0, &op) == TUTTI_ERR_ACTOR);
    CHECK(tutti_device_actor(actors, "device", OPTIONS(.device = device_name, .queue = 0)) == TUTTI_OK);
    says(actors, tutti_actor_ask(actors, tutti_rank(comm), "device", "x", 1, NULL, 0, NULL, 0), TUTTI_ERR_ARGUMENT,
         "work of its own rank");
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

int main(int argc, char **argv)
{
    if (argc > 1) device_name = argv[1];
    fault_begin(50);
    tutti_log_set_level(TUTTI_QUIET);
    setenv("TUTTI_LOG", "quiet", 1);
    fault_run_body("in order", ordinary, 2, true, false);
    fault_run_body("opened again", reopened, 1, true, false);
    fault_run_body("given up", given_up, 1, true, false);
    fault_run_body("a full queue", full, 1, true, false);
    fault_run_body("bad input", bad_input, 1, true, false);
    return fault_end();
}
