/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Saving in the background: the files are those of a save that is waited for, of the step at which it was asked for; the next
 * save and the trainer's end wait; a failure is told once, by a step, by a wait or by the log, and harms nothing.
 */
#include "conformance_world.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tutti/train.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-async-XXXXXX";

enum { STEPS = 5 };

struct trial {
    const char *name, *mesh;
    int64_t zero;
    bool async;
};

static tutti_train_options small(const struct trial *trial, char path[128])
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    snprintf(path, 128, "%s/%s", folder, trial->name);
    options.data = "markov:order=1,states=31,length=2000";
    options.layers = 2;
    options.heads = 2;
    options.width = 32;
    options.context = 8;
    options.batch = options.grains = 8;
    options.width_grains = 2;
    options.steps = STEPS;
    options.val_every = 0;
    options.check_every = 0;
    options.keep = 0;
    options.mesh = trial->mesh;
    options.zero = trial->zero;
    options.save = path;
    options.save_async = trial->async;
    return options;
}

static bool worked(const tutti_trainer *trainer, tutti_status status)
{
    return CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), tutti_trainer_error(trainer)->text);
}

static tutti_trainer *make(tutti_comm *comm, const tutti_train_options *options)
{
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    CHECK_THAT(tutti_trainer_create(comm, options, &trainer, &error) == TUTTI_OK, "%s", error.text);
    return trainer;
}

/* ---- The same files -------------------------------------------------------------------------------------------- */

/* Steps follow each save at once: they must not change what is written. */
static void run_trial(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    char path[128];
    tutti_train_options options = small(trial, path);
    tutti_trainer *trainer = make(comm, &options);
    bool good = trainer != NULL;
    for (int i = 0; good && i < STEPS; i++) {
        tutti_train_step step;
        good = worked(trainer, tutti_trainer_step(trainer, &step)) && CHECK(!step.save_failed) &&
               worked(trainer, tutti_trainer_save(trainer));
    }
    tutti_train_about about;
    if (good) tutti_trainer_describe(trainer, &about);
    if (good) CHECK((about.saving_bytes > 0) == (trial->async && tutti_rank(comm) < 2)); /* two files of one part */
    tutti_trainer_free(trainer);
}

static void run(int size, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = WORLD_THREADS, .size = size, .direct = 1, .attach = 1, .body = body, .context = context};
    conf_world_run(&world);
}

static void test_same(void)
{
    struct trial waited = {"waited", "", 0, false};
    struct trial trials[] = {{"alone", "", 0, true}, {"zero", "", 2, true}, {"mesh", "data=2,tensor=2", 1, true}};
    run(1, run_trial, &waited);
    for (int i = 0; i < 3; i++) {
        char command[400];
        check_title("%s in the background", trials[i].name);
        run(i == 0 ? 1 : i == 1 ? 3 : 4, run_trial, &trials[i]);
        for (int step = 1; step <= STEPS; step++) {
            snprintf(command, sizeof command,
                     "cd %s && for f in model optimizer; do cmp waited/step-0000000%d/$f.safetensors "
                     "%s/step-0000000%d/$f.safetensors || exit 1; done",
                     folder, step, trials[i].name, step);
            CHECK_THAT(system(command) == 0, "step %d", step);
        }
        snprintf(command, sizeof command, "test -z \"$(ls -A %s/%s | grep saving)\"", folder, trials[i].name);
        CHECK_THAT(system(command) == 0, "something is left");
    }
}

/* ---- Failures -------------------------------------------------------------------------------------------------- */

/* Files larger than this cannot be written: texts can, tensors not. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* All threads have one limit: rank 0 changes it, while nobody saves. */
static void limit_together(tutti_comm *comm, rlim_t bytes)
{
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    if (tutti_rank(comm) == 0) limit_files(bytes);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* Ranks need not be told at the same step. */
static void step_until_told(tutti_comm *comm, tutti_trainer *trainer)
{
    int32_t told = 0, all = 0;
    for (int i = 0; i < 2000 && !all; i++) {
        tutti_train_step step;
        if (!worked(trainer, tutti_trainer_step(trainer, &step))) return;
        if (step.save_failed) check_says(tutti_trainer_error(trainer)->text, "no checkpoint of step 1 was saved");
        CHECK(!told || !step.save_failed); /* once */
        told = told || step.save_failed;
        if (!CHECK(tutti_all_reduce(comm, &told, &all, 1, TUTTI_I32, TUTTI_MIN) == TUTTI_OK)) return;
    }
    CHECK(all);
}

static void run_failing(tutti_comm *comm, void *context)
{
    char path[128];
    tutti_train_options options = small(context, path);
    tutti_train_step step = {0};
    tutti_trainer *trainer = make(comm, &options);
    if (trainer == NULL) return;
    worked(trainer, tutti_trainer_step(trainer, &step));
    limit_together(comm, 8192);
    worked(trainer, tutti_trainer_save(trainer));
    CHECK(tutti_trainer_save_wait(trainer) == TUTTI_ERR_SYSTEM);
    check_says(tutti_trainer_error(trainer)->text, "no checkpoint of step 1 was saved");
    check_says(tutti_trainer_error(trainer)->text, "cannot be written");
    CHECK(tutti_trainer_save_wait(trainer) == TUTTI_OK); /* told */
    worked(trainer, tutti_trainer_save(trainer));
    step_until_told(comm, trainer);
    limit_together(comm, RLIM_INFINITY);
    worked(trainer, tutti_trainer_save(trainer));
    CHECK(tutti_trainer_save_wait(trainer) == TUTTI_OK);
    tutti_trainer_free(trainer);
}

static void test_failures(void)
{
    struct trial trial = {"failing", "", 1, true};
    char path[128];
    tutti_checkpoint *checkpoint = NULL;
    tutti_error error = {0};
    check_title("saves that fail");
    (void)signal(SIGXFSZ, SIG_IGN);
    run(2, run_failing, &trial);
    snprintf(path, sizeof path, "%s/failing", folder);
    CHECK_THAT(tutti_checkpoint_open(path, true, &checkpoint, &error) == TUTTI_OK, "%s", error.text);
    tutti_checkpoint_free(checkpoint);
}

int main(void)
{
    char command[128];
    conf_begin();
    CHECK(mkdtemp(folder) != NULL);
    test_same();
    test_failures();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return check_end();
}
