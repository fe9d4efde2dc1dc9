/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan
 *
 * Training: the same weights, losses and validations bit for bit on any number of ranks of any kind, however the work is
 * cut into passes, stopped at any step and resumed on another number of ranks; what a model can learn and no better.
 */
#include "base/alloc.h"
#include "conformance_world.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tutti/train.h>
#include <unistd.h>

enum { STEPS = 6 };

static char folder[] = "/tmp/tutti-train-XXXXXX";

/* One run, and what came of it, in memory that all processes share. */
struct run {
    tutti_train_options options;
    int until;          /* rank 0 kills its process after this step; 0: never */
    const char *shrink; /* this file loses its end after the first step */
    bool save_each;
    bool diverges; /* the last step is to */
    uint64_t hash, hash_before;
    double losses[STEPS], last, validation, entropy;
    char text[480];
    tutti_status status;
    tutti_train_about about;
};
static struct run *run;

static tutti_train_options small(void)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=11,length=4000";
    options.layers = 2;
    options.heads = 2;
    options.width = 16;
    options.context = 8;
    options.batch = 13;
    options.grains = 8;
    options.steps = STEPS;
    options.warmup = 2;
    options.lr = 0.01;
    options.dropout = 0.1;
    options.val_samples = 30;
    options.check_every = 2;
    return options;
}

/* ---- One run --------------------------------------------------------------------------------------------------- */

static bool take_steps(tutti_comm *comm, tutti_trainer *trainer)
{
    int steps = (int)run->options.steps;
    tutti_train_about about;
    tutti_trainer_describe(trainer, &about);
    for (int i = (int)about.step; i < steps; i++) {
        tutti_train_step step;
        const uint64_t before = run->diverges ? tutti_trainer_hash(trainer) : 0;
        tutti_status status = tutti_trainer_step(trainer, &step);
        const uint64_t behind = run->diverges ? tutti_trainer_hash(trainer) : 0;
        if (tutti_rank(comm) == 0) run->hash_before = before;
        if (tutti_rank(comm) == 0 && status != TUTTI_OK) run->hash = behind;
        if (tutti_rank(comm) == 0) {
            run->status = status;
            if (status != TUTTI_OK) snprintf(run->text, sizeof run->text, "%s", tutti_trainer_error(trainer)->text);
            if (i < STEPS) run->losses[i] = step.loss;
            run->last = step.loss;
        }
        if (status != TUTTI_OK) return false;
        if (run->shrink != NULL && i == 0) {
            CHECK_THAT(tutti_rank(comm) > 0 || truncate(run->shrink, 10) == 0, "truncate");
            tutti_barrier(comm);
        }
        if (run->save_each)
            CHECK_THAT(tutti_trainer_save(trainer) == TUTTI_OK, "save: %s", tutti_trainer_error(trainer)->text);
        if (i + 1 == run->until && tutti_rank(comm) == 0) kill(getpid(), SIGKILL);
    }
    return true;
}

static void train(tutti_comm *comm, void *context)
{
    (void)context;
    tutti_trainer *trainer = NULL;
    tutti_error error;
    double validation = 0;
    tutti_status status = tutti_trainer_create(comm, &run->options, &trainer, &error);
    if (status != TUTTI_OK) {
        CHECK_THAT(trainer == NULL && error.status == status, "an error has its status");
        if (tutti_rank(comm) == 0) {
            run->status = status;
            snprintf(run->text, sizeof run->text, "%s", error.text);
        }
        return;
    }
    if (take_steps(comm, trainer)) {
        CHECK_THAT(tutti_trainer_validate(trainer, &validation) == TUTTI_OK, "validate: %s",
                   tutti_trainer_error(trainer)->text);
        const uint64_t hash = tutti_trainer_hash(trainer);
        if (tutti_rank(comm) == 0) {
            run->hash = hash;
            run->validation = validation;
            tutti_trainer_describe(trainer, &run->about);
            run->entropy = run->about.entropy;
        }
    }
    tutti_trainer_free(trainer);
}

static void start(enum world_ranks ranks, int size, const tutti_train_options *options)
{
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .killed = run->until > 0, .body = train};
    run->options = *options;
    run->hash = 0;
    run->status = TUTTI_OK;
    run->text[0] = '\0';
    conf_world_run(&world);
}

/* ---- The same bits --------------------------------------------------------------------------------------------- */

static void same(const struct run *wanted, enum world_ranks ranks, int size, const tutti_train_options *options)
{
    start(ranks, size, options);
    CHECK_THAT(run->status == TUTTI_OK, "%d %s: %s", size, world_ranks_name(ranks), run->text);
    CHECK_THAT(run->hash == wanted->hash, "%d %s, %lld grains, %lld passes: other weights than on one rank", size,
               world_ranks_name(ranks), (long long)options->grains, (long long)options->accumulate);
    CHECK_THAT(memcmp(run->losses, wanted->losses, sizeof run->losses) == 0 &&
                   memcmp(&run->validation, &wanted->validation, sizeof run->validation) == 0,
               "%d %s: other losses", size, world_ranks_name(ranks));
}

static void test_layouts(void)
{
    static const int sizes[] = {2, 3, 4, 8};
    for (int grains = 8; grains <= 12; grains += 4) {
        tutti_train_options options = small();
        options.grains = grains;
        start(WORLD_THREADS, 1, &options);
        CHECK_THAT(run->status == TUTTI_OK && run->hash != 0, "one rank: %s", run->text);
        struct run first = *run;
        CHECK_THAT(fabs(first.losses[0] - log(11)) < 0.2, "the first loss is %g, not ln 11", first.losses[0]);
        CHECK_THAT(first.losses[STEPS - 1] < first.losses[0], "it learns nothing");
        for (int i = 0; i < 4; i++) {
            same(&first, WORLD_THREADS, sizes[i], &options);
            if (!SANITIZED || i == 1) same(&first, WORLD_PROCESSES, sizes[i], &options);
        }
        for (int passes = 2; passes <= 5; passes += 1 + 2 * SANITIZED) {
            options.accumulate = passes;
            same(&first, WORLD_THREADS, 1, &options);
            same(&first, WORLD_THREADS, 3, &options);
        }
        options.accumulate = 1;
        options.threads = 2;
        same(&first, WORLD_THREADS, 2, &options);
        options.seed = 2;
        options.threads = 1;
        start(WORLD_THREADS, 1, &options);
        CHECK_THAT(run->hash != first.hash, "another seed, the same weights");
    }
}

/* Without grains ranks give other bits, but nearly the same numbers; a rank may have no samples. */
static void test_fast(void)
{
    tutti_train_options options = small();
    options.dropout = 0;
    start(WORLD_THREADS, 1, &options);
    struct run exact = *run;
    options.fast = 1;
    for (int size = 1; size <= 3; size++) {
        options.accumulate = size;
        start(WORLD_THREADS, size, &options);
        CHECK_THAT(run->status == TUTTI_OK, "fast: %s", run->text);
        for (int i = 0; i < STEPS; i++)
            CHECK_THAT(fabs(run->losses[i] - exact.losses[i]) < 1e-3, "fast, %d ranks: loss %d is %g, not %g", size, i,
                       run->losses[i], exact.losses[i]);
        CHECK_THAT(fabs(run->validation - exact.validation) < 1e-3, "fast: validation");
    }
    options.batch = 2;
    start(WORLD_THREADS, 3, &options);
    CHECK_THAT(run->status == TUTTI_OK, "a rank without samples: %s", run->text);
}

static void test_optimizers(void)
{
    static const char *const names[] = {"sgd", "adam", "lion"};
    for (int i = 0; i < 3; i++) {
        tutti_train_options options = small();
        options.optimizer = names[i];
        options.lr = 0.001;
        start(WORLD_THREADS, 1, &options);
        struct run first = *run;
        CHECK_THAT(run->status == TUTTI_OK, "%s: %s", names[i], run->text);
        same(&first, WORLD_PROCESSES, 3, &options);
        options.threads = 3;
        same(&first, WORLD_THREADS, 1, &options);
    }
}

/* ---- Stopped and resumed --------------------------------------------------------------------------------------- */

/* Killed after every step in turn, resumed on other numbers of ranks. */
static void test_resume(void)
{
    tutti_train_options options = small();
    start(WORLD_THREADS, 1, &options);
    uint64_t wanted = run->hash;
    for (int until = 1; until < STEPS; until++) {
        char save[128];
        snprintf(save, sizeof save, "%s/resume-%d", folder, until);
        options = small();
        options.save = save;
        run->until = until;
        run->save_each = true;
        start(WORLD_THREADS, 1 + until % 3, &options); /* one process, so that all ranks end at once */
        run->until = 0;
        run->save_each = false;
        options.resume = 1;
        start(until % 2 ? WORLD_PROCESSES : WORLD_THREADS, 4 - until % 3, &options);
        CHECK_THAT(run->status == TUTTI_OK && run->hash == wanted, "resumed after step %d: other weights %s", until,
                   run->text);
    }
}

static void refused(int size, const tutti_train_options *options, const char *complaint)
{
    start(WORLD_THREADS, size, options);
    CHECK_THAT(run->status != TUTTI_OK && strstr(run->text, complaint) != NULL, "\"%s\" is not \"%s\"", run->text,
               complaint);
}

static void test_refusals(void)
{
    char save[128];
    tutti_train_options options = small();
    options.data = "/nowhere/at/all";
    refused(2, &options, "data: /nowhere/at/all");
    options = small();
    refused(9, &options,
            "9 ranks are more than 8 grains: every rank needs a grain; 8 ranks, --grains 9 or --fast would do");
    options.grains = 14;
    refused(1, &options,
            "14 grains are more than the 13 samples of a batch: a grain needs a sample; --grains 13 or --batch 14 "
            "would do");
    options = small();
    options.heads = 3;
    refused(1, &options, "not 3 heads of width");
    refused(1, &options, "2 or 4 would do");
    options = small();
    options.optimizer = "adamx";
    refused(2, &options, "\"adamx\"");
    options = small();
    options.schedule = "up";
    refused(1, &options, "\"up\"");
    options = small();
    options.resume = 1;
    refused(2, &options, "save");
    options.save = folder;
    refused(2, &options, "there is no checkpoint in");
    snprintf(save, sizeof save, "%s/resume-1", folder);
    options.save = save;
    options.layers = 3;
    refused(2, &options, "is of another model: layers is 2 there, 3 here");
    options.layers = 2;
    options.data = "markov:order=1,states=12,length=4000";
    refused(2, &options, "is of another model: its tensor \"wte.weight\" is (11, 16), the model's is (12, 16)");
    options = small();
    options.lr = 1e9;
    options.clip = 0;
    options.steps = 40;
    options.schedule = "constant";
    refused(2, &options, "a lower learning rate");
    CHECK_THAT(run->status == TUTTI_ERR_DIVERGED && strstr(run->text, "layer ") != NULL, "diverged: %s", run->text);
}

/* A file of the folder shrinks while it is learned from. The rank that next reads from it says so, to all, whether the
 * others have read from it or not, and nobody is killed by a page that is gone. */
static void test_shrinking(void)
{
    static const char line[] = "all work and no play makes jack a dull boy\n";
    char data[128], path[160];
    snprintf(data, sizeof data, "%s/shrinking", folder);
    CHECK_THAT(mkdir(data, 0777) == 0, "mkdir");
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < 8; i++) {
            snprintf(path, sizeof path, "%s/%d", data, i);
            FILE *file = fopen(path, "w");
            for (int k = 0; k < 300; k++) fputs(line, file);
            fclose(file);
        }
        tutti_train_options options = small();
        options.data = data;
        options.fast = kind;
        options.steps = 500;
        snprintf(path, sizeof path, "%s/3", data);
        run->shrink = path;
        start(kind == 0 ? WORLD_THREADS : WORLD_PROCESSES, 3, &options);
        run->shrink = NULL;
        CHECK_THAT(run->status == TUTTI_ERR_DAMAGED &&
                       strstr(run->text, "/3 has shrunk from 12900 to 10 bytes") != NULL,
                   "a file that shrinks: %s %s", tutti_status_name(run->status), run->text);
    }
}

/* ---- What can be learned --------------------------------------------------------------------------------------- */

/* Held-out loss comes near the entropy of the source, and not below it by more than chance. A source of order 2 needs
 * attention: its last token alone says little. */
static void learn_markov(const char *data, int64_t steps, double rate, double near)
{
    tutti_train_options options = small();
    options.data = data;
    options.dropout = 0;
    options.batch = 32;
    options.context = 16;
    options.steps = steps;
    options.val_samples = 1000;
    options.lr = rate;
    options.decay = 0;
    start(WORLD_THREADS, 2, &options);
    printf("%s: held-out loss %.4f, entropy %.4f\n", data, run->validation, run->entropy);
    CHECK_THAT(run->status == TUTTI_OK, "markov: %s", run->text);
    CHECK_THAT(run->validation < run->entropy + near, "held-out loss %g, entropy %g", run->validation, run->entropy);
    CHECK_THAT(run->validation > run->entropy - 0.02, "held-out loss %g is below the entropy %g", run->validation,
               run->entropy);
}

static void test_markov(void)
{
    learn_markov("markov:order=1,states=11,length=200000", SANITIZED ? 150 : 500, 0.02, SANITIZED ? 0.1 : 0.03);
    if (!SANITIZED) learn_markov("markov:order=2,states=5,length=200000", 800, 0.01, 0.05);
}

/* One batch, again and again. */
static void test_overfit(void)
{
    tutti_train_options options = small();
    char path[128];
    snprintf(path, sizeof path, "%s/text", folder);
    FILE *file = fopen(path, "w");
    fputs("abcdefghijklmnopqrstuvwxyz01234567", file);
    fclose(file);
    options.data = path;
    options.dropout = 0;
    options.held_out = 0;
    options.batch = 3;
    options.grains = 2;
    options.schedule = "constant";
    options.steps = 300;
    options.lr = 0.01;
    start(WORLD_THREADS, 1, &options);
    CHECK_THAT(run->status == TUTTI_OK && run->last < 0.05, "one batch, again and again: loss %g %s", run->last,
               run->text);
}

/* Points of a square; those inside a circle are one class. */
static tutti_train_options of_points(char path[128])
{
    tutti_train_options options = small();
    snprintf(path, 128, "%s/points.csv", folder);
    FILE *file = fopen(path, "w");
    fputs("x,y,inside\n", file);
    for (int i = 0; i < 400; i++) {
        double x = (i * 37 % 101) / 50.0 - 1, y = (i * 53 % 97) / 48.0 - 1;
        fprintf(file, "%g,%g,%d\n", x, y, x * x + y * y < 0.6);
    }
    fclose(file);
    options.model = "mlp";
    options.data = path;
    options.dropout = 0;
    return options;
}

static void test_table(void)
{
    char path[128];
    tutti_train_options options = of_points(path);
    options.layers = 2;
    options.width = 16;
    options.batch = 32;
    options.steps = 300;
    options.val_samples = 40;
    start(WORLD_THREADS, 2, &options);
    CHECK_THAT(run->status == TUTTI_OK && run->validation < 0.25, "mlp: held-out loss %g %s", run->validation,
               run->text);
    struct run first = *run;
    same(&first, WORLD_PROCESSES, 3, &options);
    options.loss = "mse";
    start(WORLD_THREADS, 2, &options);
    CHECK_THAT(run->status == TUTTI_OK && run->validation < 0.1, "mse: held-out loss %g %s", run->validation,
               run->text);
}

/* ---- Batch norm over all ranks ----------------------------------------------------------------------------------- */

/* One rank's bits, losses and running statistics on every mesh. */
static void test_norm_layouts(const struct run *first, const tutti_train_options *given)
{
    static const struct {
        int size;
        const char *mesh;
        int zero, micro, threads;
        const char *stages;
    } cases[] = {
        {8, "data=2,pipe=2,tensor=2", 3, 1, 1, "layers.2"}, /* grains without a class, in a stage of their own */
        {4, "pipe=2,tensor=2", 0, 1, 1, "loss"},
        {2, "", 0, 0, 2, NULL},
        {3, "", 0, 0, 1, NULL},
        {5, "", 3, 0, 1, NULL},
        {7, "", 2, 0, 1, NULL},
        {8, "", 1, 0, 1, NULL},
        {4, "shard=2", 2, 0, 1, NULL},
        {4, "tensor=2", 0, 0, 1, NULL},
        {4, "pipe=2", 0, 1, 1, NULL},
        {8, "data=2,pipe=2,tensor=2", 3, 1, 1, NULL}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tutti_train_options options = *given;
        options.mesh = cases[c].mesh;
        options.zero = cases[c].zero;
        options.micro = cases[c].micro;
        if (cases[c].stages != NULL) options.stages = cases[c].stages;
        options.threads = cases[c].threads;
        same(first, c % 2 == 0 || SANITIZED ? WORLD_THREADS : WORLD_PROCESSES, cases[c].size, &options);
    }
}

/* Saved after two steps on two ranks, and gone on with on three, and on a mesh. */
static void test_norm_resume(const struct run *first, const tutti_train_options *given)
{
    char save[128];
    snprintf(save, sizeof save, "%s/norms", folder);
    tutti_train_options options = *given;
    options.save = save;
    options.mesh = "tensor=2";
    run->until = 2;
    run->save_each = true;
    start(WORLD_THREADS, 2, &options);
    run->until = 0;
    options.resume = 1;
    options.mesh = "";
    options.zero = 3;
    start(WORLD_PROCESSES, 3, &options);
    CHECK_THAT(run->status == TUTTI_OK && run->about.step == STEPS && run->hash == first->hash &&
                   run->validation == first->validation,
               "batch norm, resumed: other weights or means %s", run->text);
    run->save_each = false;
    options.batch_norm = 0;
    start(WORLD_THREADS, 1, &options);
    CHECK_THAT(run->status == TUTTI_ERR_ARGUMENT && strstr(run->text, "batch_norm is 1 there, 0 here") != NULL, "%s",
               run->text);
}

static void test_norm_refusals(const tutti_train_options *given)
{
    tutti_train_options options = *given;
    options.accumulate = 3;
    refused(2, &options, "batch_norm: it is over the whole batch, so a rank makes one pass over its part, not 3");
    options.accumulate = 1;
    options.mesh = "pipe=2";
    refused(2, &options, "batch_norm: it is over the whole batch, and pipe=2 works on 8 micro-batches");
    options.mesh = "";
    options.recompute = 1;
    refused(1, &options, "recompute: an mlp has no residual branches");
    options.recompute = 0;
    options.layers = 0;
    refused(1, &options, "batch_norm: it stands behind hidden layers");
    options.layers = 2;
    options.grains = options.batch = 1;
    refused(1, &options, "batch_norm: a batch of 1 sample has no variance");
    options = small();
    options.batch_norm = 1;
    refused(1, &options, "batch_norm: it is for the mlp; a gpt has layer norms");
}

/* A step that diverges leaves the running means as they were: hash and validation are those of the steps before. */
static void test_norm_diverged(const tutti_train_options *given)
{
    tutti_train_options options = *given;
    options.steps = 1;
    start(WORLD_THREADS, 2, &options);
    const uint64_t before = run->hash;
    run->diverges = true;
    options.steps = 2;
    options.lr = 1e38;
    start(WORLD_THREADS, 2, &options);
    run->diverges = false;
    CHECK_THAT(before != 0 && run->status == TUTTI_ERR_DIVERGED, "%s", run->text);
    CHECK_THAT(run->hash == run->hash_before, "a step that was not taken has changed the model");
}

static void test_batch_norm(void)
{
    char path[128];
    tutti_train_options options = of_points(path);
    options.batch_norm = 1;
    options.width_grains = 4;
    start(WORLD_THREADS, 1, &options);
    struct run first = *run;
    CHECK_THAT(run->status == TUTTI_OK && first.losses[STEPS - 1] < first.losses[0], "batch norm: %s", run->text);
    test_norm_layouts(&first, &options);
    test_norm_resume(&first, &options);
    test_norm_refusals(&options);
    test_norm_diverged(&options);
    tutti_train_options fast = options;
    fast.fast = 1;
    for (int size = 1; size <= 3; size++) {
        start(WORLD_THREADS, size, &fast);
        for (int i = 0; i < STEPS; i++)
            CHECK_THAT(run->status == TUTTI_OK && fabs(run->losses[i] - first.losses[i]) < 1e-3, "fast, %d ranks: %g",
                       size, run->losses[i]);
    }
    fast.batch = 2;
    start(WORLD_THREADS, 3, &fast);
    CHECK_THAT(run->status == TUTTI_OK, "batch norm on a rank without samples: %s", run->text);
}

/* ---- Out of memory --------------------------------------------------------------------------------------------- */

/* The first allocation fails, then the second, and so on, until it is one within a collective, which breaks the comm:
 * always an error, and nothing is left. */
static void starve(tutti_comm *comm, void *context)
{
    (void)context;
    tutti_train_options options = small();
    options.data = "markov:order=1,states=11,length=300";
    tutti_status status = TUTTI_ERR_MEMORY;
    long allowed = 0;
    for (; status != TUTTI_OK && allowed < 2000; allowed++) {
        tutti_trainer *trainer = NULL;
        tutti_error error = {0};
        tti_alloc_fail_after(allowed);
        status = tutti_trainer_create(comm, &options, &trainer, &error);
        tti_alloc_fail_after(-1);
        if (status == TUTTI_ERR_BROKEN) break;
        CHECK_THAT(status == TUTTI_OK || (status == TUTTI_ERR_MEMORY && trainer == NULL && error.text[0] != '\0'),
                   "after %ld allocations: %s %s", allowed, tutti_status_name(status), error.text);
        tutti_trainer_free(trainer);
    }
    CHECK_THAT(allowed > 50, "only %ld allocations", allowed);
}

struct starving {
    _Atomic long allowed;
    _Atomic bool told; /* all ranks have their error of the allocation that is looked for */
};

/* One of two ranks has no memory to hold what its host's ranks need: both are told. Goes on until an allocation breaks the comm. */
static void starve_one(tutti_comm *comm, void *context)
{
    struct starving *starving = context;
    tutti_train_options options = small();
    options.data = "markov:order=1,states=11,length=300";
    for (long allowed = starving->allowed; !starving->told; allowed++) {
        tutti_trainer *trainer = NULL;
        tutti_error error = {0};
        if (tutti_rank(comm) == 1) tti_alloc_fail_once(allowed);
        tutti_status status = tutti_trainer_create(comm, &options, &trainer, &error);
        tti_alloc_fail_after(-1);
        tutti_trainer_free(trainer);
        if (tutti_rank(comm) == 0) starving->allowed = allowed + 1;
        bool told = status == TUTTI_ERR_MEMORY && strstr(error.text, "ranks of a host") != NULL;
        if (tutti_barrier(comm) != TUTTI_OK) return;
        if (told) starving->told = true;
        if (tutti_barrier(comm) != TUTTI_OK || allowed > 1000) return;
    }
}

static void test_starved_ranks(void)
{
    struct starving *starving = mmap(NULL, sizeof *starving, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct conf_world two = {
        .ranks = WORLD_PROCESSES, .size = 2, .direct = 1, .attach = 1, .body = starve_one, .context = starving};
    for (int i = 0; i < 60 && !starving->told; i++) conf_world_run(&two);
    CHECK_THAT(starving->told, "not told after %ld allocations", starving->allowed);
    munmap(starving, sizeof *starving);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static size_t resident(void)
{
    size_t pages = 0, ignored = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%zu %zu", &ignored, &pages) != 2) pages = 0;
    if (file != NULL) fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* 16 bytes per parameter with Adam, and all of the ledger is what the process has grown by. */
static void weigh(tutti_comm *comm, void *context)
{
    (void)context;
    tutti_train_options options = small();
    tutti_trainer *trainer = NULL;
    tutti_error error;
    tutti_train_step step;
    tutti_train_about about;
    CHECK_THAT(tutti_trainer_create(comm, &options, &trainer, &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(tutti_trainer_step(trainer, &step) == TUTTI_OK, "%s", tutti_trainer_error(trainer)->text);
    tutti_trainer_free(trainer);
    (void)tutti_blas_rate(1, 0.01); /* the matrix library's own buffers are there now */
    options.width = 512;
    options.layers = 6;
    options.heads = 8;
    options.context = 64;
    size_t before = resident();
    CHECK_THAT(tutti_trainer_create(comm, &options, &trainer, &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(tutti_trainer_step(trainer, &step) == TUTTI_OK, "%s", tutti_trainer_error(trainer)->text);
    size_t grown = resident() - before;
    tutti_trainer_describe(trainer, &about);
    size_t state = about.parameter_bytes + about.gradient_bytes + about.optimizer_bytes;
    size_t all = state + about.activation_bytes + about.communication_bytes;
    CHECK_THAT(state >= 16 * about.parameters && state < 16 * about.parameters + 16 * 4 * 16 * 200,
               "%zu bytes for %zu parameters", state, about.parameters);
    CHECK_THAT(fabs((double)grown / (double)all - 1) < 0.02, "the process has grown by %zu bytes, the ledger has %zu",
               grown, all);
    printf("ledger %.1f MB, the process has grown by %.1f MB\n", (double)all * 1e-6, (double)grown * 1e-6);
    tutti_trainer_free(trainer);
}

/* Ranks that make different calls of a trainer: the error names them, and no line of the library; the latest error of the rank is
 * the trainer's. */
static void differ(tutti_comm *comm, void *context)
{
    (void)context;
    tutti_train_options options = small();
    tutti_trainer *trainer = NULL;
    tutti_error error;
    tutti_train_step step;
    double loss;
    char text[1024] = "";
    CHECK_THAT(tutti_trainer_create(comm, &options, &trainer, &error) == TUTTI_OK, "%s", error.text);
    tutti_status status = tutti_rank(comm) == 0 ? tutti_trainer_step(trainer, &step)
                                                : tutti_trainer_validate(trainer, &loss);
    const char *why = tutti_trainer_error(trainer)->text;
    const char *one = strstr(why, "test_trainer.c:"), *other = one == NULL ? NULL : strstr(one + 1, "test_trainer.c:");
    const bool named = other != NULL;
    CHECK_THAT(status == TUTTI_ERR_MISMATCH && named && strstr(why, "src/") == NULL, "%s", why);
    FILE *memory = fmemopen(text, sizeof text, "w");
    CHECK_THAT(tutti_explain(comm, memory) == 1, "explained");
    fclose(memory);
    CHECK_THAT(strstr(text, why) != NULL, "%s", text);
    tutti_trainer_free(trainer);
}

int main(void)
{
    char command[64];
    tutti_error error;
    if (tutti_blas_load(&error) != TUTTI_OK) {
        printf("skipped: %s\n", error.text);
        return 77;
    }
    conf_begin();
    run = mmap(NULL, sizeof *run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED || mkdtemp(folder) == NULL) return 1;
    test_layouts();
    test_fast();
    test_optimizers();
    test_resume();
    test_refusals();
    test_shrinking();
    test_markov();
    test_overfit();
    test_table();
    test_batch_norm();
    struct conf_world differing = {.ranks = WORLD_THREADS, .size = 2, .direct = 1, .attach = 1, .body = differ};
    conf_world_run(&differing);
    struct conf_world starved = {.ranks = WORLD_THREADS, .size = 1, .direct = 1, .attach = 1, .body = starve};
    conf_world_run(&starved);
    test_starved_ranks();
    struct conf_world alone = {.ranks = WORLD_THREADS, .size = 1, .direct = 1, .attach = 1, .body = weigh};
    if (!SANITIZED) conf_world_run(&alone);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_THAT(system(command) == 0, "rm");
    return check_end();
}
