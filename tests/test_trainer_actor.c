/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan waits
 *
 * Trainers as actors: steps that any rank asks for, many at once, with the losses and weights of a trainer that is called; what
 * fails on one rank is the request's error, by name; a rank that is killed. Threads, processes and tcp.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>
#include <unistd.h>

enum { RANKS = 3, STEPS = 6, VICTIM = 2 };
static bool over_tcp;

struct setup {
    tutti_comm *own;
    tutti_trainer *trainer;
    tutti_actors *actors;
};

static tutti_train_options small(void)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=11,length=4000";
    options.layers = 1;
    options.heads = 2;
    options.width = 16;
    options.context = 8;
    options.batch = 8;
    options.steps = 1000;
    options.schedule = "constant";
    return options;
}

static tutti_trainer *make_trainer(tutti_comm *comm, double rate)
{
    tutti_train_options options = small();
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    options.lr = rate;
    CHECK_THAT(tutti_trainer_create(comm, &options, &trainer, &error) == TUTTI_OK, "%s", error.text);
    return trainer;
}

static struct setup make(tutti_comm *comm, double rate)
{
    struct setup setup = {0};
    CHECK(tutti_comm_duplicate(comm, &setup.own) == TUTTI_OK);
    setup.trainer = make_trainer(setup.own, rate);
    tutti_actors_options options = {.struct_size = sizeof options, .threads = 1, .deadline_ms = 50000};
    CHECK(tutti_actors_create(comm, &options, &setup.actors) == TUTTI_OK);
    tutti_status status = tutti_trainer_actor(setup.trainer, setup.actors, "trainer");
    CHECK_THAT(status == TUTTI_OK, "%s", tutti_status_name(status));
    return setup;
}

static void end(struct setup *setup)
{
    CHECK(tutti_actors_free(setup->actors) == TUTTI_OK);
    tutti_trainer_free(setup->trainer);
    (void)tutti_comm_free(setup->own);
}

static void says(tutti_actors *actors, tutti_status status, tutti_status expected, const char *words)
{
    const tutti_error *error = tutti_actors_error(actors);
    CHECK_THAT(status == expected && error != NULL && strstr(error->text, words) != NULL, "%s, not %s %s: %s",
               tutti_status_name(status), tutti_status_name(expected), words, error == NULL ? "" : error->text);
}

/* The last rank asks for all steps at once. */
static void ordinary(tutti_comm *comm, struct fault_rank *self)
{
    const int rank = tutti_rank(comm), asker = tutti_size(comm) - 1;
    double losses[STEPS], validation = 0;
    tutti_train_step steps[STEPS], answer;
    tutti_op ops[STEPS];
    (void)self;
    tutti_trainer *called = make_trainer(comm, 0.01);
    for (int i = 0; i < STEPS; i++) {
        CHECK(tutti_trainer_step(called, &steps[0]) == TUTTI_OK);
        losses[i] = steps[0].loss;
    }
    CHECK(tutti_trainer_validate(called, &validation) == TUTTI_OK);
    const uint64_t hash = tutti_trainer_hash(called);
    struct setup setup = make(comm, 0.01);
    CHECK(tutti_trainer_actor(setup.trainer, setup.actors, "trainer") != TUTTI_OK); /* the name is taken */
    CHECK(tutti_trainer_actor(called, setup.actors, "other") == TUTTI_ERR_ARGUMENT);
    says(setup.actors, TUTTI_ERR_ARGUMENT, TUTTI_ERR_ARGUMENT, "tutti_comm_duplicate");
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    for (int i = 0; rank == asker && i < STEPS; i++)
        CHECK(tutti_trainer_ask_start(setup.actors, "trainer", TUTTI_TRAIN_STEP, &steps[i], 0, &ops[i]) == TUTTI_OK);
    for (int i = 0; rank == asker && i < STEPS; i++) {
        CHECK(tutti_wait(ops[i]) == TUTTI_OK);
        CHECK_THAT(steps[i].step == (uint64_t)i + 1 && steps[i].loss == losses[i] && steps[i].norm > 0 &&
                       steps[i].rows == 64 && steps[i].seconds > 0,
                   "step %llu: %g, not %g", (unsigned long long)steps[i].step, steps[i].loss, losses[i]);
    }
    if (rank == asker) {
        CHECK(tutti_trainer_ask(setup.actors, "trainer", TUTTI_TRAIN_VALIDATE, &answer, 0) == TUTTI_OK);
        CHECK(answer.loss == validation);
        tutti_status status = tutti_trainer_ask(setup.actors, "trainer", TUTTI_TRAIN_SAVE, NULL, 0);
        says(setup.actors, status, TUTTI_ERR_ARGUMENT, "rank 0: no folder for checkpoints");
        says(setup.actors, tutti_trainer_ask(setup.actors, "trainer", (tutti_train_request)9, NULL, 0),
             TUTTI_ERR_ARGUMENT, "tutti_trainer_ask");
        CHECK(tutti_trainer_ask(setup.actors, "nobody", TUTTI_TRAIN_STEP, NULL, 0) == TUTTI_ERR_ACTOR);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_actors_free(setup.actors) == TUTTI_OK);
    setup.actors = NULL;
    CHECK(tutti_trainer_hash(setup.trainer) == hash);
    end(&setup);
    tutti_trainer_free(called);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* A step that fails is the error of its request; the actor goes on. */
static void diverges(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    struct setup setup = make(comm, 1e6);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    if (tutti_rank(comm) == 0) {
        tutti_train_step step;
        tutti_status status = TUTTI_OK;
        for (int i = 0; i < 50 && status == TUTTI_OK; i++)
            status = tutti_trainer_ask(setup.actors, "trainer", TUTTI_TRAIN_STEP, &step, 0);
        says(setup.actors, status, TUTTI_ERR_DIVERGED, "on rank ");
        CHECK(tutti_trainer_ask(setup.actors, "trainer", TUTTI_TRAIN_STEP, &step, 0) == TUTTI_ERR_DIVERGED);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    end(&setup);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* One rank is killed among many steps: of those that were asked for, the first ones are done, and the others name it. */
static void killed(tutti_comm *comm, struct fault_rank *self)
{
    enum { MANY = 200 };
    tutti_train_step steps[MANY];
    tutti_op ops[MANY];
    const int rank = tutti_rank(comm);
    struct setup setup = make(comm, 0.001);
    fault_meet(comm);
    for (int i = 0; rank == 1 && i < MANY; i++)
        CHECK(tutti_trainer_ask_start(setup.actors, "trainer", TUTTI_TRAIN_STEP, &steps[i], 0, &ops[i]) == TUTTI_OK);
    if (rank == 1) CHECK(tutti_wait(ops[0]) == TUTTI_OK);
    if (rank == 1) self->mark = 1;
    if (rank == VICTIM) {
        fault_await_mark(1, 1);
        kill(getpid(), SIGKILL);
    }
    int done = 1;
    for (int i = 1; rank == 1 && i < MANY; i++) {
        tutti_status status = tutti_wait(ops[i]);
        if (status == TUTTI_OK) CHECK(done++ == i);
        if (status != TUTTI_OK) says(setup.actors, status, TUTTI_ERR_PEER_LOST, "rank 2");
    }
    if (rank == 1) CHECK(done < MANY);
    if (rank == 1) self->mark = 2;
    if (rank == 0) fault_await_mark(1, 2);
    end(&setup);
}

static void expect_victim(struct fault_world *world)
{
    (void)world;
    fault_expect_end(VICTIM);
}

static void run_all(bool processes)
{
    fault_run_body("steps that are asked for", ordinary, RANKS, processes, over_tcp);
    fault_run_body("one rank", ordinary, 1, processes, over_tcp);
    fault_run_body("a step that fails", diverges, 2, processes, over_tcp);
    struct fault_world world = {.size = RANKS, .processes = true, .body = killed, .meanwhile = expect_victim};
    if (over_tcp) world.settings[0] = "TUTTI_TRANSPORT=tcp";
    check_title("a rank is killed%s", over_tcp ? ", tcp" : "");
    if (processes) fault_run(&world);
}

int main(void)
{
    tutti_error error;
    if (tutti_blas_load(&error) != TUTTI_OK) {
        printf("skipped: %s\n", error.text);
        return 77;
    }
    fault_begin(110);
    tutti_log_set_level(TUTTI_QUIET);
    setenv("TUTTI_LOG", "quiet", 1);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
