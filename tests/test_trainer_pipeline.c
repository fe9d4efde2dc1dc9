/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan,tsan
 *
 * Training with a pipeline: on any mesh of data and pipe, by any table, with any number of micro-batches, losses, norms, weights
 * and the tensors in checkpoints are those of one rank, bit for bit; so are runs that are saved on one mesh and resumed on
 * another after every step. A stage that fails, and what is refused.
 */
#include "conformance_world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tutti/train.h>
#include <unistd.h>

#ifndef FULL
#define FULL 0
#endif

enum { STEPS = 4 };

static char folder[] = "/tmp/tutti-pipeline-XXXXXX";

/* What one rank alone comes to, in memory that all processes share. */
struct result {
    uint64_t hash;
    double losses[STEPS], norms[STEPS], validation;
};
static struct result *alone;

struct trial {
    int ranks;
    const char *mesh, *pipeline, *stages;
    int64_t micro, accumulate, zero, threads;
    double dropout;
};

static tutti_train_options options_of(const struct trial *trial)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=11,length=4000";
    options.layers = 3;
    options.heads = 2;
    options.width = 24;
    options.vocabulary = 700; /* the tied weight has several blocks */
    options.context = 8;
    options.batch = 13; /* grains of one sample and of two */
    options.grains = 8;
    options.steps = STEPS;
    options.warmup = 2;
    options.lr = 0.01;
    options.clip = 0.5; /* below the first norms, so that they count */
    options.check_every = 1;
    options.val_every = 0;
    options.mesh = trial->mesh;
    options.dropout = trial->dropout;
    if (trial->pipeline != NULL) options.pipeline = trial->pipeline;
    if (trial->stages != NULL) options.stages = trial->stages;
    if (trial->micro > 0) options.micro = trial->micro;
    if (trial->accumulate > 0) options.accumulate = trial->accumulate;
    if (trial->threads > 0) options.threads = trial->threads;
    options.zero = trial->zero;
    return options;
}

static bool worked(tutti_comm *comm, tutti_status status, const char *what, const char *text)
{
    return CHECK_THAT(status == TUTTI_OK, "rank %d of %d: %s: %s: %s", tutti_rank(comm), tutti_size(comm), what,
                      tutti_status_name(status), text);
}

/* Steps until `until`, and saves at the end where there is a folder. */
static bool train(tutti_comm *comm, const tutti_train_options *options, uint64_t until, struct result *result)
{
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    tutti_train_about about = {0};
    bool good = worked(comm, tutti_trainer_create(comm, options, &trainer, &error), options->mesh, error.text);
    if (good) tutti_trainer_describe(trainer, &about);
    while (good && about.step < until) {
        tutti_train_step step;
        good = worked(comm, tutti_trainer_step(trainer, &step), options->mesh, tutti_trainer_error(trainer)->text);
        result->losses[about.step] = step.loss;
        result->norms[about.step] = step.norm;
        about.step++;
    }
    if (good) good = worked(comm, tutti_trainer_validate(trainer, &result->validation), "validate", "");
    if (good && options->save[0] != '\0')
        good = worked(comm, tutti_trainer_save(trainer), options->save, tutti_trainer_error(trainer)->text);
    if (good) result->hash = tutti_trainer_hash(trainer);
    tutti_trainer_free(trainer);
    return good;
}

static void run(int size, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = WORLD_THREADS, .size = size, .direct = 1, .attach = 1, .body = body, .context = context};
    conf_world_run(&world);
}

/* ---- The same bits --------------------------------------------------------------------------------------------- */

static void run_alone(tutti_comm *comm, void *context)
{
    tutti_train_options options = options_of(context);
    train(comm, &options, STEPS, alone);
}

static void run_same(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    tutti_train_options options = options_of(trial);
    struct result result = {0};
    if (!train(comm, &options, STEPS, &result)) return;
    CHECK_THAT(memcmp(&result, alone, sizeof result) == 0,
               "rank %d of %s, %s, %lld micro-batches, %lld passes: hash %016llx, not %016llx; loss %.17g, not %.17g",
               tutti_rank(comm), trial->mesh, options.pipeline, (long long)trial->micro, (long long)options.accumulate,
               (unsigned long long)result.hash, (unsigned long long)alone->hash, result.losses[STEPS - 1],
               alone->losses[STEPS - 1]);
}

/* ---- Saved on one mesh, resumed on another --------------------------------------------------------------------- */

struct saved {
    const struct trial *trial;
    const char *name;
    uint64_t until;
};

static void run_saved(tutti_comm *comm, void *context)
{
    const struct saved *saved = context;
    tutti_train_options options = options_of(saved->trial);
    struct result result = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, saved->name);
    options.save = path;
    options.resume = saved->until > 1 && access(path, F_OK) == 0;
    if (!train(comm, &options, saved->until, &result)) return;
    CHECK_THAT(saved->until < STEPS || result.hash == alone->hash, "%s: other weights than in one go", saved->name);
}

static bool same_file(const char *a, const char *b, int step, const char *name)
{
    char command[400];
    snprintf(command, sizeof command, "cmp %s/%s/step-%08d/%s %s/%s/step-%08d/%s", folder, a, step, name, folder, b,
             step, name);
    return system(command) == 0;
}

/* One mesh after each step: the run is stopped there, and goes on on the next. */
static void test_saved(const struct trial *meshes, int count)
{
    for (int step = 1; step <= STEPS; step++) {
        struct saved one = {&meshes[0], "one", (uint64_t)step},
                     other = {&meshes[step % count], "other", (uint64_t)step};
        run(one.trial->ranks, run_saved, &one);
        run(other.trial->ranks, run_saved, &other);
        CHECK_THAT(same_file("one", "other", step, "model.safetensors") &&
                       same_file("one", "other", step, "optimizer.safetensors"),
                   "step %d, %s: other tensors in the checkpoint", step, other.trial->mesh);
    }
}

/* ---- What fails, and what is refused --------------------------------------------------------------------------- */

/* The file that samples come from is cut off: the first stage finds out, and everybody learns why. */
static void run_failing(tutti_comm *comm, void *context)
{
    const struct trial trial = {.mesh = "pipe=2", .pipeline = context};
    tutti_train_options options = options_of(&trial);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    tutti_train_step step;
    char path[128];
    snprintf(path, sizeof path, "%s/data", folder);
    options.data = path;
    if (!worked(comm, tutti_trainer_create(comm, &options, &trainer, &error), "create", error.text)) return;
    worked(comm, tutti_trainer_step(trainer, &step), "step", tutti_trainer_error(trainer)->text);
    worked(comm, tutti_barrier(comm), "barrier", "");
    if (tutti_rank(comm) == 0) CHECK_THAT(truncate(path, 0) == 0, "truncate");
    worked(comm, tutti_barrier(comm), "barrier", "");
    tutti_status status = tutti_trainer_step(trainer, &step);
    const char *text = tutti_trainer_error(trainer)->text;
    CHECK_THAT(status == TUTTI_ERR_DAMAGED && strstr(text, "stage 0 on rank 0 failed in step F0") != NULL, "%s: %s",
               tutti_status_name(status), text);
    tutti_trainer_free(trainer);
}

static void test_failing(const char *pipeline)
{
    char command[300];
    snprintf(command, sizeof command, "head -c 60000 /dev/zero > %s/data", folder);
    CHECK_THAT(system(command) == 0, "%s", command);
    run(4, run_failing, (void *)(uintptr_t)pipeline);
}

struct refusal {
    struct trial trial;
    tutti_status status;
    const char *text;
};

static void run_refused(tutti_comm *comm, void *context)
{
    const struct refusal *refusal = context;
    tutti_train_options options = options_of(&refusal->trial);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    tutti_status status = tutti_trainer_create(comm, &options, &trainer, &error);
    CHECK_THAT(status == refusal->status && strstr(error.text, refusal->text) != NULL, "%s: %s, wanted \"%s\"",
               tutti_status_name(status), error.text, refusal->text);
    tutti_trainer_free(trainer);
}

static void test_refused(void)
{
    static struct refusal refusals[] = {
        {{.ranks = 6, .mesh = "pipe=6", .pipeline = "zb-v"},
         TUTTI_ERR_ARGUMENT,
         "pipe=6 × 2 chunks is 12 stages; this model can be cut into 9; pipe=4 at most"},
        {{.ranks = 4, .mesh = "pipe=4", .pipeline = "interleaved", .micro = 6},
         TUTTI_ERR_ARGUMENT,
         "interleaved: 6 micro-batches are no multiple of pipe=4; 4 or 8 would do"},
        {{.ranks = 2, .mesh = "pipe=2", .micro = 9},
         TUTTI_ERR_ARGUMENT,
         "more than the 8 grains of a rank; --micro 8 or --grains 9 allows it"},
        {{.ranks = 2, .mesh = "pipe=2", .pipeline = "1f2b"}, TUTTI_ERR_ARGUMENT, "none of gpipe, 1f1b"},
        {{.ranks = 2, .mesh = "pipe=2", .stages = "h.0.attn"}, TUTTI_ERR_OPTION, "in the middle of a residual branch"},
        {{.ranks = 2, .mesh = "pipe=2", .stages = "h.9.ln_1"}, TUTTI_ERR_OPTION, "no layer of that name"},
        {{.ranks = 2, .mesh = "pipe=2", .stages = "h.0.ln_1,ln_f"}, TUTTI_ERR_OPTION, "need the name of 1 layer,"},
        {{.ranks = 16, .mesh = "pipe=16", .pipeline = "interleaved"},
         TUTTI_ERR_ARGUMENT,
         "pipe=16 × 2 chunks is 32 stages; this model can be cut into 9; pipe=4 at most"},
        {{.ranks = 8, .mesh = "data=2,pipe=4", .pipeline = "interleaved", .accumulate = 2},
         TUTTI_ERR_ARGUMENT,
         "interleaved: 2 micro-batches are no multiple of pipe=4; 4 with --grains 16 --batch 16 would do"},
        {{.ranks = 4, .mesh = "pipe=4", .pipeline = "interleaved", .micro = 9},
         TUTTI_ERR_ARGUMENT,
         "9 micro-batches in each of 1 pass are more than the 8 grains of a rank; --micro 8 or --micro 12 --grains 12 "
         "allows it"},
        {{.ranks = 8, .mesh = "data=8", .pipeline = "zb-h1"},
         TUTTI_ERR_ARGUMENT,
         "pipeline zb-h1 needs stages: give a mesh with pipe=2"},
        {{.ranks = 1, .mesh = "", .pipeline = "bogus"}, TUTTI_ERR_ARGUMENT, "none of gpipe, 1f1b"},
        {{.ranks = 2, .mesh = "", .micro = 4}, TUTTI_ERR_ARGUMENT, "micro 4 needs stages"},
        {{.ranks = 2, .mesh = "", .stages = "h.1.ln_1"}, TUTTI_ERR_ARGUMENT, "stages h.1.ln_1 needs stages"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        run(refusals[i].trial.ranks, run_refused, &refusals[i]);
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

static const char *const tables[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};

/* Every mesh of up to 8 ranks, every table. */
static void test_all(double dropout)
{
    for (int data = 1; data <= 8; data++)
        for (int pipe = 2; data * pipe <= 8; pipe++)
            for (int table = 0; table < 5; table++) {
                bool two = table == 2 || table == 4;
                char mesh[32];
                snprintf(mesh, sizeof mesh, "data=%d,pipe=%d", data, pipe);
                struct trial trial = {.ranks = data * pipe,
                                      .mesh = mesh,
                                      .pipeline = tables[table],
                                      .dropout = dropout,
                                      .zero = (data + table) % 2,
                                      .threads = 1 + table % 2};
                if ((two ? 2 : 1) * pipe > 9 || (table == 2 && (8 + data - 1) / data < pipe)) continue;
                run(trial.ranks, run_same, &trial);
            }
}

static void test_some(void)
{
    static struct trial trials[] = {
        {.ranks = 2, .mesh = "pipe=2", .pipeline = "gpipe"},
        {.ranks = 3, .mesh = "pipe=3", .pipeline = "1f1b", .micro = 5, .threads = 2},
        {.ranks = 4, .mesh = "pipe=2", .pipeline = "interleaved", .zero = 1},
        {.ranks = 6, .mesh = "data=3,pipe=2", .pipeline = "zb-h1", .micro = 3},
        {.ranks = 4, .mesh = "pipe=4", .pipeline = "zb-v"},
        {.ranks = 8, .mesh = "data=2,pipe=4", .pipeline = "zb-h1", .accumulate = 2, .micro = 2},
        {.ranks = 2, .mesh = "pipe=2", .pipeline = "1f1b", .stages = "h.2.ln_2", .micro = 1},
        {.ranks = 8, .mesh = "data=2,shard=2,pipe=2", .pipeline = "1f1b", .zero = 1},
    };
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i += 1 + SANITIZED)
        run(trials[i].ranks, run_same, &trials[i]);
}

int main(void)
{
    static struct trial one = {.ranks = 1, .mesh = ""}, dropped = {.ranks = 1, .mesh = "", .dropout = 0.1};
    static const struct trial meshes[] = {{.ranks = 1, .mesh = ""},
                                          {.ranks = 4, .mesh = "pipe=2", .pipeline = "zb-v", .zero = 1},
                                          {.ranks = 3, .mesh = "pipe=3", .pipeline = "1f1b"},
                                          {.ranks = 2, .mesh = "data=2"},
                                          {.ranks = 6, .mesh = "data=2,pipe=3", .pipeline = "zb-h1"}};
    static struct trial with_dropout = {.ranks = 4, .mesh = "pipe=2", .pipeline = "zb-h1", .dropout = 0.1};
    char command[128];
    alone = mmap(NULL, sizeof *alone, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    conf_begin();
    CHECK_THAT(mkdtemp(folder) != NULL && alone != MAP_FAILED, "a folder and memory");
    run(1, run_alone, &dropped);
    if (FULL)
        test_all(0.1);
    else
        run(with_dropout.ranks, run_same, &with_dropout);
    run(1, run_alone, &one);
    if (FULL)
        test_all(0);
    else
        test_some();
    test_saved(meshes, 5);
    test_failing("1f1b");
    test_failing("zb-h1");
    test_refused();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_THAT(system(command) == 0, "%s", command);
    return check_end();
}
