/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan,tsan
 *
 * Training on meshes with a dimension `tensor`: the losses, norms, validations, weights and checkpoints of one rank, bit for
 * bit, with every stage of zero, with dropout and clipping, in one pass and in several; saved on one mesh and resumed on
 * another; stopped by any rank; a rank that cannot read its data; meshes that do not fit.
 */
#include "check_nn.h"
#include "conformance_world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tutti/train.h>
#include <unistd.h>

enum { STEPS = 4 };

static char folder[] = "/tmp/tutti-tensor-XXXXXX";

/* What one rank alone comes to, in memory that all processes share. */
struct outcome {
    uint64_t hash;
    double losses[STEPS], norms[STEPS], validation;
};
static struct outcome *alone;

struct trial {
    const char *mesh;
    int64_t zero, accumulate, fast, sequence;
    const char *save; /* NULL: nothing is saved */
    int64_t resume, until;
    int64_t heads; /* and as many width grains; 0: 4 */
};

static tutti_train_options small(const struct trial *trial)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=203,length=4000";
    options.layers = 2;
    options.heads = 4;
    options.width = 40; /* grains of tensors that end with padding, and others of more than a block */
    options.context = 8;
    options.batch = 13;
    options.grains = 8;
    options.width_grains = 4;
    if (trial->heads > 0) {
        options.heads = options.width_grains = trial->heads;
        options.width = 8 * trial->heads;
    }
    options.dropout = 0.1;
    options.steps = STEPS;
    options.warmup = 2;
    options.lr = 0.01;
    options.clip = 0.5; /* below the first norms, so that they count */
    options.check_every = 2;
    options.val_every = 0;
    options.val_samples = 20;
    options.mesh = trial->mesh;
    options.zero = trial->zero;
    options.accumulate = trial->accumulate == 0 ? 1 : trial->accumulate;
    options.fast = trial->fast;
    options.sequence = trial->sequence;
    options.resume = trial->resume;
    return options;
}

static bool worked(tutti_comm *comm, tutti_status status, const char *text)
{
    return CHECK_THAT(status == TUTTI_OK, "rank %d of %d: %s: %s", tutti_rank(comm), tutti_size(comm),
                      tutti_status_name(status), text);
}

/* ---- The same bits --------------------------------------------------------------------------------------------- */

static bool take_steps(tutti_comm *comm, tutti_trainer *trainer, uint64_t until, struct outcome *outcome)
{
    tutti_train_about about;
    bool good = true;
    tutti_trainer_describe(trainer, &about);
    while (good && about.step < until) {
        tutti_train_step step;
        good = worked(comm, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
        outcome->losses[about.step] = step.loss;
        outcome->norms[about.step] = step.norm;
        tutti_trainer_describe(trainer, &about);
    }
    return good && worked(comm, tutti_trainer_validate(trainer, &outcome->validation), "validate");
}

static bool train(tutti_comm *comm, const struct trial *trial, struct outcome *outcome)
{
    tutti_train_options options = small(trial);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, trial->save == NULL ? "" : trial->save);
    if (trial->save != NULL) options.save = path;
    const uint64_t until = trial->until == 0 ? STEPS : (uint64_t)trial->until;
    bool good = worked(comm, tutti_trainer_create(comm, &options, &trainer, &error), error.text);
    good = good && take_steps(comm, trainer, until, outcome);
    if (good && trial->save != NULL)
        good = worked(comm, tutti_trainer_save(trainer), tutti_trainer_error(trainer)->text);
    if (good) outcome->hash = tutti_trainer_hash(trainer);
    tutti_trainer_free(trainer);
    return good;
}

static void run_alone(tutti_comm *comm, void *context)
{
    train(comm, context, alone);
}

static void run_trial(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    struct outcome outcome = {0};
    if (!train(comm, trial, &outcome) || trial->fast || (trial->until != 0 && trial->until < STEPS)) return;
    const bool same = outcome.hash == alone->hash && outcome.validation == alone->validation;
    CHECK_THAT(
        same && (trial->resume || memcmp(&outcome, alone, sizeof outcome) == 0),
        "rank %d of mesh %s, zero %lld, %lld passes: loss %.17g, norm %.17g, held out %.17g, weights %016llx; one "
        "rank %.17g, %.17g, %.17g, %016llx",
        tutti_rank(comm), trial->mesh, (long long)trial->zero, (long long)trial->accumulate, outcome.losses[STEPS - 1],
        outcome.norms[STEPS - 1], outcome.validation, (unsigned long long)outcome.hash, alone->losses[STEPS - 1],
        alone->norms[STEPS - 1], alone->validation, (unsigned long long)alone->hash);
}

static void run(enum world_ranks ranks, int size, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = body, .context = context};
    conf_world_run(&world);
}

static void test_meshes(void)
{
    static const struct {
        int size;
        struct trial trial;
    } meshes[] = {{1, {.zero = 3}},
                  {3, {.mesh = "data=3"}},
                  {2, {.mesh = "tensor=2"}},
                  {4, {.mesh = "tensor=4", .zero = 1}},
                  {4, {.mesh = "data=2,tensor=2", .accumulate = 2}},
                  {6, {.mesh = "data=3,tensor=2", .zero = 1, .accumulate = 3}},
                  {6, {.mesh = "data=3,tensor=2", .zero = 2, .accumulate = 2}},
                  {4, {.mesh = "data=2,tensor=2", .zero = 3}},
                  {8, {.mesh = "data=2,shard=2,tensor=2", .zero = 3, .accumulate = 2}},
                  {8, {.mesh = "data=2,tensor=4"}},
                  {4, {.mesh = "data=2,tensor=2", .fast = 1}},
                  {2, {.mesh = "tensor=2", .sequence = 1}},
                  {4, {.mesh = "tensor=4", .zero = 1, .sequence = 1}},
                  {6, {.mesh = "data=3,tensor=2", .zero = 2, .accumulate = 2, .sequence = 1}},
                  {8, {.mesh = "data=2,shard=2,tensor=2", .zero = 3, .accumulate = 2, .sequence = 1}},
                  {4, {.mesh = "data=2,tensor=2", .fast = 1, .sequence = 1}}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct trial trial = meshes[i].trial;
        if (trial.mesh == NULL) trial.mesh = "";
        run(i % 4 == 2 ? WORLD_PROCESSES : WORLD_THREADS, meshes[i].size, run_trial, &trial);
    }
}

/* As many ranks along tensor as a test has, and a number that is no power of two. */
static void test_wide(void)
{
    static const struct {
        int size;
        struct trial trial;
    } meshes[] = {{1, {.mesh = "", .heads = 6}},
                  {3, {.mesh = "tensor=3", .heads = 6, .zero = 1}},
                  {6, {.mesh = "tensor=6", .heads = 6}},
                  {6, {.mesh = "tensor=6", .heads = 6, .accumulate = 2, .sequence = 1}},
                  {1, {.mesh = "", .heads = 8}},
                  {8, {.mesh = "tensor=8", .heads = 8}},
                  {8, {.mesh = "tensor=8", .heads = 8, .accumulate = 2, .sequence = 1}},
                  {8, {.mesh = "data=2,tensor=4", .heads = 8, .zero = 3}}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct trial trial = meshes[i].trial;
        run(i % 4 == 2 ? WORLD_PROCESSES : WORLD_THREADS, meshes[i].size, meshes[i].size == 1 ? run_alone : run_trial,
            &trial);
    }
}

/* ---- Checkpoints ----------------------------------------------------------------------------------------------- */

static bool same_file(const char *a, const char *b, const char *name)
{
    char command[400];
    snprintf(command, sizeof command, "cmp %s/%s/step-00000002/%s %s/%s/step-00000002/%s", folder, a, name, folder, b,
             name);
    return system(command) == 0;
}

static void test_saved(void)
{
    static const struct {
        int size;
        struct trial trial;
    } saves[] = {{1, {.mesh = "", .save = "one"}},
                 {2, {.mesh = "tensor=2", .save = "tensor"}},
                 {4, {.mesh = "data=2,tensor=2", .save = "both"}},
                 {4, {.mesh = "data=2,tensor=2", .save = "state", .zero = 1}},
                 {6, {.mesh = "data=3,tensor=2", .save = "values", .zero = 3, .sequence = 1}}};
    enum { SAVES = sizeof saves / sizeof *saves };
    for (int i = 0; i < SAVES; i++) {
        struct trial trial = saves[i].trial;
        trial.until = 2;
        run(i % 2 ? WORLD_PROCESSES : WORLD_THREADS, saves[i].size, run_trial, &trial);
        CHECK_THAT(same_file("one", trial.save, "model.safetensors") &&
                       same_file("one", trial.save, "optimizer.safetensors"),
                   "mesh %s, zero %lld: other checkpoints than one rank", trial.mesh, (long long)trial.zero);
    }
    for (int i = 0; i < SAVES; i++) { /* on the next one's mesh */
        const int next = (i + 1) % SAVES;
        struct trial trial = saves[next].trial;
        trial.save = saves[i].trial.save;
        trial.resume = 1;
        run(i % 2 ? WORLD_THREADS : WORLD_PROCESSES, saves[next].size, run_trial, &trial);
    }
}

/* ---- What goes wrong ------------------------------------------------------------------------------------------- */

/* One rank is asked to stop, and all learn of it in that step. */
static void run_stopped(tutti_comm *comm, void *context)
{
    const int who = *(const int *)context;
    const struct trial trial = {.mesh = "data=2,tensor=2"};
    tutti_train_options options = small(&trial);
    tutti_trainer *trainer = NULL;
    tutti_train_step step = {0};
    tutti_error error = {0};
    if (!worked(comm, tutti_trainer_create(comm, &options, &trainer, &error), error.text)) return;
    if (tutti_rank(comm) == who) tutti_trainer_stop(trainer);
    worked(comm, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
    CHECK_THAT(step.stop, "rank %d has not heard that rank %d was asked to stop", tutti_rank(comm), who);
    tutti_trainer_free(trainer);
}

static bool write_tokens(const char *path, size_t count)
{
    FILE *file = fopen(path, "we");
    bool good = file != NULL;
    for (size_t i = 0; good && i < count; i++) good = fputc((int)(i * 7 % 200), file) != EOF;
    return file != NULL && fclose(file) == 0 && good;
}

/* One rank's file shrinks: the others, which share the width with it or not, are told which rank it is. */
static void run_shrunk(tutti_comm *comm, void *context)
{
    struct trial trial = *(const struct trial *)context;
    enum { WHO = 3 };
    char path[128];
    tutti_train_options options = small(&trial);
    tutti_trainer *trainer = NULL;
    tutti_train_step step;
    tutti_error error = {0};
    double loss;
    snprintf(path, sizeof path, "%s/data%d", folder, tutti_rank(comm));
    CHECK_THAT(write_tokens(path, 9000), "%s", path);
    options.data = path;
    if (!worked(comm, tutti_trainer_create(comm, &options, &trainer, &error), error.text)) return;
    worked(comm, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
    if (tutti_rank(comm) == WHO) CHECK_THAT(truncate(path, 0) == 0, "%s", path);
    for (int validate = 0; validate < 2; validate++) {
        tutti_status status = validate ? tutti_trainer_validate(trainer, &loss) : tutti_trainer_step(trainer, &step);
        CHECK_THAT(status == TUTTI_ERR_DAMAGED && tutti_trainer_error(trainer)->rank == WHO, "rank %d: %s: %s",
                   tutti_rank(comm), tutti_status_name(status), tutti_trainer_error(trainer)->text);
    }
    tutti_trainer_free(trainer);
}

struct bad {
    const char *mesh;
    int64_t heads, width_grains, sequence;
    tutti_status status;
    const char *says;
};

static void run_bad(tutti_comm *comm, void *context)
{
    const struct bad *bad = context;
    const struct trial trial = {.mesh = bad->mesh, .sequence = bad->sequence};
    tutti_train_options options = small(&trial);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    options.heads = bad->heads;
    options.width_grains = bad->width_grains;
    tutti_status status = tutti_trainer_create(comm, &options, &trainer, &error);
    CHECK_THAT(status == bad->status && trainer == NULL && strstr(error.text, bad->says) != NULL,
               "%s with %lld heads and %lld width grains: %s: %s; should say: %s", bad->mesh, (long long)bad->heads,
               (long long)bad->width_grains, tutti_status_name(status), error.text, bad->says);
    tutti_trainer_free(trainer);
}

static void test_bad(void)
{
    struct bad bad[] = {{"tensor=3", 4, 4, 0, TUTTI_ERR_ARGUMENT, "tensor=3: 4 width grains go to 1, 2 or 4 ranks"},
                        {"tensor=3", 5, 5, 0, TUTTI_ERR_ARGUMENT, "tensor=3: 5 width grains go to 1 or 5 ranks"},
                        {"tensor=3", 8, 3, 0, TUTTI_ERR_ARGUMENT,
                         "its 8 heads cannot be cut into 3 width grains; --width-grains 2 or 4"},
                        {"data=2,tensor=2", 3, 1, 0, TUTTI_ERR_ARGUMENT, "needs 4 ranks; this job has 3"},
                        {"data=3", 4, 4, 1, TUTTI_ERR_ARGUMENT,
                         "sequence: rows are shared out among ranks along tensor; give a mesh with tensor=2 or more"},
                        {"tensor=3", 1, 0, 0, TUTTI_ERR_ARGUMENT, "tensor=3: 1 width grain goes to 1 rank"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) run(WORLD_THREADS, 3, run_bad, &bad[i]);
    struct bad allowed = {
        "tensor=2", 4, 1, 0, TUTTI_ERR_ARGUMENT, "tensor=2: 1 width grain goes to 1 rank; --width-grains 2 allows it"};
    run(WORLD_THREADS, 2, run_bad, &allowed);
}

int main(void)
{
    char command[128];
    struct trial one = {.mesh = ""}, plain = {.mesh = "data=2,tensor=2"},
                 shared = {.mesh = "data=2,tensor=2", .zero = 3};
    nn_need_blas();
    alone = mmap(NULL, sizeof *alone, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    conf_begin();
    CHECK_THAT(mkdtemp(folder) != NULL && alone != MAP_FAILED, "a folder and memory");
    test_wide();
    run(WORLD_THREADS, 1, run_alone, &one);
    test_meshes();
    test_saved();
    for (int who = 0; who < 4; who += 3) run(WORLD_THREADS, 4, run_stopped, &who);
    run(WORLD_THREADS, 4, run_shrunk, &plain);
    run(WORLD_PROCESSES, 4, run_shrunk, &shared);
    test_bad();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_THAT(system(command) == 0, "%s", command);
    return check_end();
}
