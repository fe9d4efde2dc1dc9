/* SPDX-License-Identifier: Apache-2.0
 *
 * Training that survives: a small model, trained step by step. When a rank dies, the launcher starts it again, and all go on after the
 * last step that all ranks have, from memory: with the weights of a run that nothing happened to.
 *
 *     tutti run -n 4 build/examples/survive
 *     tutti run -n 4 --max-restarts 1 build/examples/survive 2 30    rank 2 kills itself before step 30
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/train.h>

enum { STEPS = 40 };

struct run {
    tutti_comm *comm; /* the world, or what was rebuilt in its place */
    tutti_trainer *trainer;
    tutti_error error;
};

static tutti_status begin(struct run *run)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=2,states=16";
    options.layers = options.heads = 2;
    options.width = 32;
    options.context = 16;
    options.batch = 8;
    options.steps = STEPS;
    return tutti_trainer_create(run->comm, &options, &run->trainer, &run->error);
}

/* The world again, with all its ranks, and the trainer with the state that they still have. */
static tutti_status go_on(struct run *run, const tutti_comm *world)
{
    tutti_comm *before = run->comm, *next;
    tutti_train_about about;
    tutti_status status = tutti_comm_rebuild(before, &next);
    if (status != TUTTI_OK) return status;
    run->comm = next;
    status = run->trainer == NULL ? begin(run) : tutti_trainer_restore(run->trainer, next);
    if (before != world) tutti_comm_free(before);
    if (status != TUTTI_OK) return go_on(run, world); /* another one was lost; after too many, rebuild fails */
    tutti_trainer_describe(run->trainer, &about);
    if (tutti_rank(next) == 0) printf("on after step %" PRIu64 ", from %s\n", about.step, about.restored_from);
    return TUTTI_OK;
}

static uint64_t steps_taken(const struct run *run)
{
    tutti_train_about about;
    if (run->trainer == NULL) return 0;
    tutti_trainer_describe(run->trainer, &about);
    return about.step;
}

/* True if all ranks are done, and know the hash of the weights. */
static bool end(struct run *run, uint64_t *hash)
{
    uint64_t all = 0;
    *hash = tutti_trainer_hash(run->trainer);
    return tutti_comm_agree(run->comm, *hash != 0, &all) == TUTTI_OK && all != 0;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    const int victim = argc > 2 ? atoi(argv[1]) : -1;
    const uint64_t when = argc > 2 ? (uint64_t)atoi(argv[2]) : 0;
    struct run run = {.comm = world};
    uint64_t hash = 0;
    tutti_status status = begin(&run);
    while (status != TUTTI_OK || steps_taken(&run) < STEPS || !end(&run, &hash)) {
        if (status == TUTTI_OK && steps_taken(&run) < STEPS) {
            if (tutti_rank(world) == victim && steps_taken(&run) + 1 == when && tutti_epoch(world) == 0) raise(SIGKILL);
            status = tutti_trainer_step(run.trainer, NULL);
            if (status == TUTTI_OK) continue;
        }
        status = go_on(&run, world);
        if (status != TUTTI_OK) return tutti_explain(run.comm, stderr);
    }
    if (tutti_rank(world) == 0) printf("step %" PRIu64 ": weights %016" PRIx64 "\n", steps_taken(&run), hash);
    tutti_trainer_free(run.trainer);
    if (run.comm != world) tutti_comm_free(run.comm);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
