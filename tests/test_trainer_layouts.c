/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan,tsan
 *
 * Training on meshes of all four dimensions: losses, norms, validations, weights and the tensors in checkpoints are those of one
 * rank, bit for bit, with every stage of zero and every table of a pipeline, with dropout and clipping; saved on one mesh and
 * resumed on another after every step; stopped by any rank; a rank that cannot read its data.
 */
#include "check_nn.h"
#include "conformance_world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tutti/train.h>
#include <unistd.h>

#ifndef FULL
#define FULL 0
#endif

enum { STEPS = 3, ZERO_MOST = 3 };

static char folder[] = "/tmp/tutti-layouts-XXXXXX";

/* What one rank alone comes to, with so many heads and each type, in memory that all processes share. */
struct outcome {
    uint64_t hash;
    double losses[STEPS], norms[STEPS], validation;
};
enum { HEADS = 4, HEADS_MOST = 8, OUTCOMES = 2 * (HEADS_MOST + 1) };
static struct outcome *outcomes;

struct trial {
    int ranks;
    const char *mesh;
    int64_t zero;
    const char *pipeline;
    int64_t micro, accumulate, threads;
    bool processes, sequence, recompute, bf16;
    int heads;        /* and width grains; 0: HEADS */
    const char *save; /* in the folder, at the end; NULL: nowhere */
};

static int heads_of(const struct trial *trial)
{
    return trial->heads == 0 ? HEADS : trial->heads;
}

static struct outcome *alone_of(const struct trial *trial)
{
    return &outcomes[2 * heads_of(trial) + trial->bf16];
}

static tutti_train_options options_of(const struct trial *trial)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=203,length=4000";
    options.layers = 4;
    options.heads = options.width_grains = heads_of(trial);
    options.width = 40 % options.heads == 0
                        ? 40
                        : 42; /* grains of tensors that end with padding, and others of more than a block */
    options.context = 8;
    options.batch = 13; /* grains of one sample and of two */
    options.grains = 8;
    options.dropout = 0.1;
    options.steps = STEPS;
    options.warmup = 2;
    options.lr = 0.01;
    options.clip = 0.5; /* below the first norms, so that they count */
    options.check_every = 1;
    options.val_every = 0;
    options.val_samples = 20;
    options.mesh = trial->mesh;
    options.zero = trial->zero;
    if (trial->pipeline != NULL) options.pipeline = trial->pipeline;
    if (trial->micro > 0) options.micro = trial->micro;
    if (trial->accumulate > 0) options.accumulate = trial->accumulate;
    if (trial->threads > 0) options.threads = trial->threads;
    options.sequence = trial->sequence;
    options.recompute = trial->recompute;
    if (trial->bf16) options.type = "bf16";
    return options;
}

static bool worked(tutti_comm *comm, const char *mesh, tutti_status status, const char *text)
{
    return CHECK_THAT(status == TUTTI_OK, "rank %d of %s: %s: %s", tutti_rank(comm), mesh, tutti_status_name(status),
                      text);
}

/* Steps until `until`, and saves at the end where there is a folder. */
static bool train(tutti_comm *comm, const tutti_train_options *options, uint64_t until, struct outcome *outcome)
{
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    tutti_train_about about = {0};
    bool good = worked(comm, options->mesh, tutti_trainer_create(comm, options, &trainer, &error), error.text);
    if (good) tutti_trainer_describe(trainer, &about);
    while (good && about.step < until) {
        tutti_train_step step;
        good = worked(comm, options->mesh, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
        outcome->losses[about.step] = step.loss;
        outcome->norms[about.step] = step.norm;
        about.step++;
    }
    if (good) good = worked(comm, options->mesh, tutti_trainer_validate(trainer, &outcome->validation), "validate");
    if (good && options->save[0] != '\0')
        good = worked(comm, options->mesh, tutti_trainer_save(trainer), tutti_trainer_error(trainer)->text);
    if (good) outcome->hash = tutti_trainer_hash(trainer);
    tutti_trainer_free(trainer);
    return good;
}

static void run(const struct trial *trial, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {.ranks = trial->processes ? WORLD_PROCESSES : WORLD_THREADS,
                               .size = trial->ranks,
                               .direct = 1,
                               .attach = 1,
                               .body = body,
                               .context = context};
    conf_world_run(&world);
}

/* ---- The same bits --------------------------------------------------------------------------------------------- */

static const char *save_path(const struct trial *trial, char path[128])
{
    path[0] = '\0';
    if (trial->save != NULL) snprintf(path, 128, "%s/%s", folder, trial->save);
    return path;
}

static void run_alone(tutti_comm *comm, void *context)
{
    tutti_train_options options = options_of(context);
    char path[128];
    options.save = save_path(context, path);
    train(comm, &options, STEPS, alone_of(context));
}

static void run_same(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    tutti_train_options options = options_of(trial);
    const struct outcome *alone = alone_of(trial);
    struct outcome outcome = {0};
    char path[128];
    options.save = save_path(trial, path);
    if (!train(comm, &options, STEPS, &outcome)) return;
    CHECK_THAT(
        memcmp(&outcome, alone, sizeof outcome) == 0,
        "rank %d of %s, zero %lld, %s%s%s%s, %lld micro-batches, %lld passes: loss %.17g, norm %.17g, held out %.17g, "
        "weights %016llx; one rank %.17g, %.17g, %.17g, %016llx",
        tutti_rank(comm), trial->mesh, (long long)trial->zero, options.pipeline, trial->bf16 ? ", bf16" : "",
        trial->sequence ? ", sequence" : "", trial->recompute ? ", recompute" : "", (long long)trial->micro,
        (long long)options.accumulate, outcome.losses[STEPS - 1], outcome.norms[STEPS - 1], outcome.validation,
        (unsigned long long)outcome.hash, alone->losses[STEPS - 1], alone->norms[STEPS - 1], alone->validation,
        (unsigned long long)alone->hash);
}

static bool same_file(const char *one, const char *other, int step, const char *name)
{
    char command[400];
    snprintf(command, sizeof command, "cmp %s/%s/step-%08d/%s %s/%s/step-%08d/%s", folder, one, step, name, folder,
             other, step, name);
    return system(command) == 0;
}

static bool same_files(const char *one, const char *other, int step)
{
    return same_file(one, other, step, "model.safetensors") && same_file(one, other, step, "optimizer.safetensors");
}

/* Its checkpoint's tensors too are those of one rank. */
static void run_and_compare_files(struct trial *trial)
{
    char command[160];
    char whole[32];
    trial->save = "same";
    run(trial, run_same, trial);
    snprintf(whole, sizeof whole, "whole%d%d", heads_of(trial), trial->bf16);
    CHECK_THAT(same_files(whole, "same", STEPS), "%s, zero %lld, %s: other tensors in the checkpoint", trial->mesh,
               (long long)trial->zero, trial->pipeline == NULL ? "no table" : trial->pipeline);
    snprintf(command, sizeof command, "rm -rf %s/same", folder);
    CHECK_THAT(system(command) == 0, "%s", command);
}

static const char *const tables[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};

/* Every stage of zero with several tables, and every table with several meshes. */
static void test_some(void)
{
    static const struct trial trials[] = {
        {.ranks = 4, .mesh = "pipe=2,tensor=2", .pipeline = "gpipe"},
        {.ranks = 8, .mesh = "data=2,pipe=2,tensor=2", .zero = 1, .pipeline = "zb-h1", .processes = true},
        {.ranks = 4, .mesh = "pipe=2,tensor=2", .pipeline = "1f1b", .sequence = true, .processes = true},
        {.ranks = 8, .mesh = "pipe=2,tensor=4", .pipeline = "zb-v", .threads = 2},
        {.ranks = 8,
         .mesh = "data=2,pipe=2,tensor=2",
         .zero = 3,
         .pipeline = "zb-h1",
         .sequence = true,
         .threads = 2,
         .recompute = true},
        {.ranks = 8, .mesh = "pipe=2,tensor=4", .pipeline = "zb-v", .sequence = true, .micro = 3},
        {.ranks = 8, .mesh = "pipe=4,tensor=2", .pipeline = "1f1b", .accumulate = 2, .micro = 3},
        {.ranks = 8, .mesh = "shard=2,pipe=2,tensor=2", .zero = 1, .pipeline = "interleaved", .micro = 4},
        {.ranks = 6, .mesh = "data=3,pipe=2,tensor=1", .zero = 1, .pipeline = "1f1b"},
        {.ranks = 4, .mesh = "data=2,pipe=2", .zero = 2, .pipeline = "1f1b"},
        {.ranks = 6, .mesh = "data=3,pipe=2", .zero = 3, .pipeline = "zb-h1", .accumulate = 2, .micro = 1},
        {.ranks = 8, .mesh = "data=2,pipe=2,tensor=2", .zero = 2, .pipeline = "zb-v", .threads = 2},
        {.ranks = 8, .mesh = "data=2,pipe=2,tensor=2", .zero = 3, .pipeline = "interleaved", .processes = true},
        {.ranks = 8, .mesh = "data=2,shard=2,pipe=2", .zero = 3, .pipeline = "gpipe"},
        {.ranks = 3, .mesh = "pipe=3", .zero = 3, .pipeline = "zb-v", .micro = 5},
        {.ranks = 6, .mesh = "data=3,pipe=2", .zero = 2, .pipeline = "zb-v", .micro = 2},
        {.ranks = 4, .mesh = "data=2,pipe=2", .zero = 2, .pipeline = "zb-h1", .recompute = true},
        {.ranks = 4, .mesh = "data=2,pipe=2", .zero = 3, .pipeline = "1f1b", .recompute = true},
        {.ranks = 4, .mesh = "pipe=2,tensor=2", .pipeline = "zb-v", .recompute = true},
        {.ranks = 8, .mesh = "data=2,pipe=2,tensor=2", .zero = 3, .pipeline = "interleaved", .recompute = true},
        {.ranks = 6, .mesh = "pipe=2,tensor=3", .zero = 1, .pipeline = "zb-h1", .heads = 3, .sequence = true},
    };
    struct trial three = {.ranks = 1, .mesh = "", .heads = 3};
    run(&three, run_alone, &three);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i += 1 + SANITIZED)
        run(&trials[i], run_same, (void *)(uintptr_t)&trials[i]);
}

/* A table for a mesh with a pipe: there are 11 places for stages, and the usual number of micro-batches must fit. */
static bool fits(int table, int pipe, int batch)
{
    const bool two = table == 2 || table == 4;
    if (pipe == 1) return table == 0;
    return (two ? 2 : 1) * pipe <= 11 && (table != 2 || (8 + batch - 1) / batch >= pipe);
}

/* Runs one layout after the other; sequence, recomputation and bf16 take turns. */
static void test_mesh(int data, int shard, int pipe, int tensor)
{
    static int turn;
    const bool usual = tensor == 1 || tensor == 2 || tensor == 4;
    char mesh[64];
    snprintf(mesh, sizeof mesh, "data=%d,shard=%d,pipe=%d,tensor=%d", data, shard, pipe, tensor);
    for (int64_t zero = shard > 1; zero <= ZERO_MOST; zero++)
        for (int table = 0; table < 5; table++) {
            if (!fits(table, pipe, data * shard)) continue;
            turn++;
            struct trial trial = {.ranks = data * shard * pipe * tensor,
                                  .mesh = mesh,
                                  .zero = zero,
                                  .pipeline = pipe > 1 ? tables[table] : NULL,
                                  .threads = 1 + table % 2,
                                  .accumulate = 1 + (data * shard < 4 && table % 2),
                                  .heads = usual ? HEADS : tensor,
                                  .sequence = tensor > 1 && turn % 2 == 0,
                                  .recompute = turn % 3 == 0,
                                  .bf16 = turn % 5 == 0};
            if (table == 2) trial.accumulate = 1;
            run_and_compare_files(&trial);
        }
}

/* One rank alone, with each number of heads that is used, and each type. */
static void run_all_alone(void)
{
    static const char *const names[] = {"whole",   "whole30", "whole31", "whole40", "whole41", "whole50", "whole51",
                                        "whole60", "whole61", "whole70", "whole71", "whole80", "whole81"};
    for (size_t i = 0; i < (FULL ? sizeof names / sizeof *names : 1); i++) {
        struct trial one = {.ranks = 1, .mesh = "", .save = names[i]};
        if (i > 0) one.heads = names[i][5] - '0';
        if (i > 0) one.bf16 = names[i][6] == '1';
        run(&one, run_alone, &one);
    }
}

/* The whole product: every mesh of 1 to 8 ranks, every stage of zero, every table; and some of more ranks, whose width is shared
 * by numbers of ranks that are no power of two. */
static void test_all(void)
{
    static const int more[][4] = {{1, 1, 3, 3}, {3, 1, 1, 3}, {1, 1, 2, 5}, {2, 1, 1, 5}, {1, 1, 2, 6},
                                  {2, 1, 1, 6}, {1, 1, 2, 7}, {2, 1, 1, 7}, {1, 1, 2, 8}, {2, 1, 1, 8}};
    for (int data = 1; data <= 8; data++)
        for (int shard = 1; data * shard <= 8; shard++)
            for (int pipe = 1; data * shard * pipe <= 8; pipe++)
                for (int tensor = 1; data * shard * pipe * tensor <= 8; tensor++) test_mesh(data, shard, pipe, tensor);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) test_mesh(more[i][0], more[i][1], more[i][2], more[i][3]);
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
    struct outcome outcome = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, saved->name);
    options.save = path;
    options.resume = saved->until > 1;
    if (!train(comm, &options, saved->until, &outcome)) return;
    CHECK_THAT(saved->until < STEPS || outcome.hash == alone_of(saved->trial)->hash, "%s: other weights than in one go",
               saved->name);
}

/* One mesh after each step: the run is stopped there, and goes on on the next. */
static void test_saved(void)
{
    static const struct trial one = {.ranks = 1, .mesh = ""},
                              meshes[STEPS] = {{.ranks = 8, .mesh = "data=2,pipe=2,tensor=2", .zero = 1},
                                               {.ranks = 4, .mesh = "pipe=2,tensor=2", .pipeline = "zb-v"},
                                               {.ranks = 6, .mesh = "data=3,pipe=2", .zero = 3}};
    for (int step = 1; step <= STEPS; step++) {
        struct saved alone_saved = {&one, "one", (uint64_t)step}, other = {&meshes[step - 1], "other", (uint64_t)step};
        run(&one, run_saved, &alone_saved);
        run(other.trial, run_saved, &other);
        CHECK_THAT(same_files("one", "other", step), "step %d, %s: other tensors in the checkpoint", step,
                   other.trial->mesh);
    }
}

/* ---- What goes wrong ------------------------------------------------------------------------------------------- */

/* One rank is asked to stop, and all learn of it in that step. */
static void run_stopped(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    enum { WHO = 5 };
    tutti_train_options options = options_of(trial);
    tutti_trainer *trainer = NULL;
    tutti_train_step step = {0};
    tutti_error error = {0};
    if (!worked(comm, trial->mesh, tutti_trainer_create(comm, &options, &trainer, &error), error.text)) return;
    if (tutti_rank(comm) == WHO) tutti_trainer_stop(trainer);
    worked(comm, trial->mesh, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
    CHECK_THAT(step.stop, "rank %d has not heard that rank %d was asked to stop", tutti_rank(comm), WHO);
    tutti_trainer_free(trainer);
}

static bool write_tokens(const char *path, size_t count)
{
    FILE *file = fopen(path, "we");
    bool good = file != NULL;
    for (size_t i = 0; good && i < count; i++) good = fputc((int)(i * 7 % 200), file) != EOF;
    return file != NULL && fclose(file) == 0 && good;
}

/* One rank's file shrinks: the others, whatever they share with it, are told which rank it is. */
static void run_shrunk(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    enum { WHO = 5 }; /* in the cube of the first stage, and not the first that shares its width; else of the last */
    char path[128];
    tutti_train_options options = options_of(trial);
    tutti_trainer *trainer = NULL;
    tutti_train_step step;
    tutti_error error = {0};
    double loss;
    snprintf(path, sizeof path, "%s/data%d", folder, tutti_rank(comm));
    CHECK_THAT(write_tokens(path, 9000), "%s", path);
    options.data = path;
    if (!worked(comm, trial->mesh, tutti_trainer_create(comm, &options, &trainer, &error), error.text)) return;
    worked(comm, trial->mesh, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
    if (tutti_rank(comm) == WHO) CHECK_THAT(truncate(path, 0) == 0, "%s", path);
    for (int validate = 0; validate < 2; validate++) {
        tutti_status status = validate ? tutti_trainer_validate(trainer, &loss) : tutti_trainer_step(trainer, &step);
        CHECK_THAT(status == TUTTI_ERR_DAMAGED && tutti_trainer_error(trainer)->rank == WHO, "rank %d: %s: rank %d: %s",
                   tutti_rank(comm), tutti_status_name(status), tutti_trainer_error(trainer)->rank,
                   tutti_trainer_error(trainer)->text);
    }
    tutti_trainer_free(trainer);
}

int main(void)
{
    static struct trial cube = {.ranks = 8, .mesh = "data=2,pipe=2,tensor=2", .pipeline = "zb-h1"};
    static struct trial sharded = {.ranks = 8, .mesh = "data=4,pipe=2", .zero = 3, .micro = 2};
    char command[128];
    outcomes = mmap(NULL, OUTCOMES * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    conf_begin();
    CHECK_THAT(mkdtemp(folder) != NULL && outcomes != MAP_FAILED, "a folder and memory");
    run_all_alone();
    if (FULL)
        test_all();
    else
        test_some();
    test_saved();
    run(&cube, run_stopped, &cube);
    run(&cube, run_shrunk, &cube);
    run(&sharded, run_shrunk, &sharded);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_THAT(system(command) == 0, "%s", command);
    return check_end();
}
