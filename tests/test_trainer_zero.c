/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=180 labels=asan,tsan
 *
 * Training with zero 1, 2 and 3: the same weights, losses and checkpoints, bit for bit, as without, on any number of ranks,
 * with grains and without, in one pass and in several, in one group of ranks and in replicas; saved with one and resumed
 * with another; each rank's memory.
 * test_trainer_zero_full.c has more layouts.
 */
#include "conformance_world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tutti/train.h>
#include <unistd.h>

enum { STEPS = 6 };

static char folder[] = "/tmp/tutti-zero-XXXXXX";

/* What one rank alone comes to, in memory that all processes share. */
struct shared {
    uint64_t hash;
    double losses[STEPS], norms[STEPS];
};
static struct shared *alone;

struct trial {
    int64_t fast, accumulate, threads;
    const char *optimizer;
    const char *mesh;
    int64_t grains;     /* 0: 8 */
    int64_t vocabulary; /* 0: the data's */
};

static tutti_train_options small(const struct trial *trial)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=11,length=4000";
    options.layers = 2;
    options.heads = 2;
    options.width = 40; /* tensors of more than a block, and less */
    options.context = 8;
    options.vocabulary = trial->vocabulary;
    options.batch = 13;
    options.grains = trial->grains == 0 ? 8 : trial->grains;
    options.steps = STEPS;
    options.warmup = 2;
    options.lr = 0.01;
    options.clip = 0.5; /* below the first norms, so that they count */
    options.check_every = 2;
    options.val_every = 0;
    options.fast = trial->fast;
    options.accumulate = trial->accumulate;
    options.threads = trial->threads;
    options.optimizer = trial->optimizer;
    return options;
}

static bool worked(tutti_comm *comm, tutti_status status, const char *text)
{
    return CHECK_THAT(status == TUTTI_OK, "rank %d of %d: %s: %s", tutti_rank(comm), tutti_size(comm),
                      tutti_status_name(status), text);
}

/* ---- The same bits --------------------------------------------------------------------------------------------- */

/* Steps until `until`, and saves at the end where there is a folder. */
static bool train(tutti_comm *comm, const tutti_train_options *options, uint64_t until, struct shared *result,
                  tutti_train_about *about)
{
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    bool good = worked(comm, tutti_trainer_create(comm, options, &trainer, &error), error.text);
    if (good) tutti_trainer_describe(trainer, about);
    while (good && about->step < until) {
        tutti_train_step step;
        good = worked(comm, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
        result->losses[about->step] = step.loss;
        result->norms[about->step] = step.norm;
        tutti_trainer_describe(trainer, about);
    }
    if (good && options->save[0] != '\0')
        good = worked(comm, tutti_trainer_save(trainer), tutti_trainer_error(trainer)->text);
    if (good) result->hash = tutti_trainer_hash(trainer);
    tutti_trainer_free(trainer);
    return good;
}

static bool equal(const struct shared *a, const struct shared *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void run_alone(tutti_comm *comm, void *context)
{
    tutti_train_options options = small(context);
    tutti_train_about about;
    train(comm, &options, STEPS, alone, &about);
}

/* What ranks have together, of their rows of the ledger; written apart from the ledger. */
static void check_bytes(tutti_comm *comm, int zero, const tutti_train_about *plain, const tutti_train_about *about)
{
    uint64_t mine[3] = {about->parameter_bytes, about->gradient_bytes, about->optimizer_bytes}, all[3];
    const uint64_t whole[3] = {plain->parameter_bytes, plain->gradient_bytes, plain->optimizer_bytes};
    const int shared_from[3] = {3, 2, 1};
    worked(comm, tutti_all_reduce(comm, mine, all, 3, TUTTI_U64, TUTTI_SUM), "sum");
    for (int i = 0; i < 3; i++)
        CHECK_THAT(all[i] == whole[i] * (zero >= shared_from[i] ? 1 : (uint64_t)tutti_size(comm)),
                   "zero %d: %llu bytes of row %d on all ranks, a rank alone has %llu", zero,
                   (unsigned long long)all[i], i, (unsigned long long)whole[i]);
}

/* With zero and without; with grains also as on one rank. Without grains each pass of zero 2 and 3 is summed over ranks by
 * itself: other bits. */
static void run_all(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    tutti_train_options options = small(trial);
    struct shared plain = {0};
    tutti_train_about before, about;
    if (!train(comm, &options, STEPS, &plain, &before)) return;
    CHECK_THAT(trial->fast || equal(&plain, alone), "%d ranks: other bits than on one", tutti_size(comm));
    for (int stage = 1; stage <= 3; stage++) {
        struct shared zero = {0};
        options.zero = stage;
        options.mesh = trial->mesh == NULL ? "" : trial->mesh;
        if (!train(comm, &options, STEPS, &zero, &about)) return;
        const bool same = !trial->fast || stage == 1 || trial->accumulate == 1;
        CHECK_THAT(!same || equal(&plain, &zero),
                   "rank %d of %d, zero %d %s, fast %lld, %lld passes, %s: other weights, losses or norms",
                   tutti_rank(comm), tutti_size(comm), stage, options.mesh, (long long)trial->fast,
                   (long long)trial->accumulate, trial->optimizer);
        if (trial->mesh == NULL && trial->accumulate == 1) check_bytes(comm, stage, &before, &about);
    }
}

/* ---- Checkpoints ----------------------------------------------------------------------------------------------- */

struct saved {
    const char *name;
    int64_t zero, resume;
    uint64_t until;
    const char *mesh; /* NULL: none */
};

static void run_saved(tutti_comm *comm, void *context)
{
    static const struct trial trial = {.accumulate = 1, .threads = 1, .optimizer = "adamw"};
    const struct saved *saved = context;
    char path[128];
    tutti_train_options options = small(&trial);
    struct shared result = {0};
    tutti_train_about about;
    snprintf(path, sizeof path, "%s/%s", folder, saved->name);
    options.save = path;
    options.zero = saved->zero;
    options.resume = saved->resume;
    options.mesh = saved->mesh == NULL ? "" : saved->mesh;
    if (!train(comm, &options, saved->until, &result, &about)) return;
    CHECK_THAT(saved->until < STEPS || result.hash == alone->hash, "%s: other weights than in one go", saved->name);
}

/* A save that cannot be: all ranks are told why, and steps go on. */
static void run_unsaved(tutti_comm *comm, void *context)
{
    static const struct trial trial = {.accumulate = 1, .threads = 1, .optimizer = "adamw"};
    (void)context;
    tutti_train_options options = small(&trial);
    tutti_trainer *trainer = NULL;
    tutti_train_step step;
    tutti_error error = {0};
    options.zero = 1;
    if (!worked(comm, tutti_trainer_create(comm, &options, &trainer, &error), error.text)) return;
    tutti_status status = tutti_trainer_save(trainer);
    CHECK_THAT(status == TUTTI_ERR_ARGUMENT, "no folder: %s", tutti_status_name(status));
    worked(comm, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
    tutti_trainer_free(trainer);
}

static void run(enum world_ranks ranks, int size, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = body, .context = context};
    conf_world_run(&world);
}

static bool same_file(const char *a, const char *b, const char *name)
{
    char command[400];
    snprintf(command, sizeof command, "cmp %s/%s/%s %s/%s/%s", folder, a, name, folder, b, name);
    return system(command) == 0;
}

static void test_saved(void)
{
    struct saved saves[] = {{"zero0", 0, 0, 3, NULL},
                            {"zero1", 1, 0, 3, NULL},
                            {"zero2", 2, 0, 3, NULL},
                            {"zero3", 3, 0, 3, NULL},
                            {"hybrid", 3, 0, 3, "data=2,shard=2"}};
    for (int i = 0; i < 5; i++) {
        run(i % 2 ? WORLD_PROCESSES : WORLD_THREADS, i == 4 ? 4 : 2 + i % 2, run_saved, &saves[i]);
        CHECK_THAT(same_file(saves[0].name, saves[i].name, "step-00000003/model.safetensors") &&
                       same_file(saves[0].name, saves[i].name, "step-00000003/optimizer.safetensors"),
                   "%s makes other checkpoints", saves[i].name);
    }
    for (int i = 0; i < 5; i++) { /* on another number of ranks, with the next stage */
        struct saved again = {saves[i].name, (saves[i].zero + 1) % 4, 1, STEPS, NULL};
        run(i % 2 ? WORLD_THREADS : WORLD_PROCESSES, 3 - i % 3, run_saved, &again);
    }
    run(WORLD_THREADS, 3, run_unsaved, NULL);
}

/* ---- Which ----------------------------------------------------------------------------------------------------- */

#ifndef TEST_MAIN
#define TEST_MAIN test_some
static void test_some(void)
{
    static struct trial trials[] = {{0, 1, 1, "adamw", NULL, 0, 0},
                                    {0, 3, 2, "lion", NULL, 0, 350},
                                    {0, 2, 1, "adamw", NULL, 13, 500},
                                    {1, 1, 1, "adam", NULL, 0, 0},
                                    {1, 2, 1, "sgd", NULL, 0, 0}};
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (int i = 5; i-- > 0;) {
        run(WORLD_THREADS, 1, run_alone, &trials[i]);
        for (int k = 0; k < 5; k += 1 + SANITIZED) run(WORLD_THREADS, sizes[k], run_all, &trials[i]);
        run(WORLD_PROCESSES, 2 + i % 2, run_all, &trials[i]);
        if (trials[i].fast) continue;
        struct trial hybrid = trials[i];
        hybrid.mesh = i == 0 ? "data=2,shard=2" : "data=2,shard=3";
        run(WORLD_THREADS, i == 0 ? 4 : 6, run_all, &hybrid);
    }
    test_saved(); /* of the first trial, the last that was run alone */
}
#endif

int main(void)
{
    char command[128];
    alone = mmap(NULL, sizeof *alone, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    conf_begin();
    CHECK_THAT(mkdtemp(folder) != NULL && alone != MAP_FAILED, "a folder and memory");
    TEST_MAIN();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_THAT(system(command) == 0, "%s", command);
    return check_end();
}
