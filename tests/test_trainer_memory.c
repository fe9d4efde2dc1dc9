/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan,tsan
 *
 * What a trainer does to need less memory: recomputation on every kind of mesh, and bf16 weights on those that can, with the
 * losses, norms, validations and weights of one rank that keeps everything, bit for bit, also saved on one and resumed on
 * another; what each rank takes, against formulas written apart and against the memory of the process; and what is refused.
 */
#include "conformance_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tutti/train.h>
#include <unistd.h>

enum { STEPS = 3 };

#ifndef FULL
#define FULL 0
#endif

static char folder[] = "/tmp/tutti-memory-XXXXXX";
static size_t arena_bytes; /* 0: the usual */

/* What one rank alone comes to, in memory that all processes share. */
struct outcome {
    uint64_t hash;
    double losses[STEPS], norms[STEPS], validation;
    size_t activation_bytes;
};
static struct outcome *alone;

struct trial {
    int ranks;
    const char *mesh, *pipeline;
    int64_t zero, accumulate, width_grains, threads, fast, keeps_all, sequence;
    const char *type, *save; /* NULL: f32, nothing is saved */
    int until;               /* 0: STEPS */
};

static tutti_train_options options_of(const struct trial *trial)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=203,length=4000";
    options.layers = 3;
    options.heads = 4;
    options.width = 40;
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
    options.mesh = trial->mesh == NULL ? "" : trial->mesh;
    if (trial->pipeline != NULL) options.pipeline = trial->pipeline;
    options.zero = trial->zero;
    options.fast = trial->fast != 0;
    options.recompute = !trial->keeps_all;
    options.sequence = trial->sequence != 0;
    if (trial->type != NULL) options.type = trial->type;
    if (trial->accumulate > 0) options.accumulate = trial->accumulate;
    if (trial->width_grains > 0) options.width_grains = trial->width_grains;
    if (trial->threads > 0) options.threads = trial->threads;
    return options;
}

static bool worked(tutti_comm *comm, const struct trial *trial, tutti_status status, const char *text)
{
    return CHECK_THAT(status == TUTTI_OK, "rank %d of %d, %s, zero %lld: %s: %s", tutti_rank(comm), tutti_size(comm),
                      trial->mesh == NULL ? "" : trial->mesh, (long long)trial->zero, tutti_status_name(status), text);
}

/* ---- The same bits --------------------------------------------------------------------------------------------- */

static bool train(tutti_comm *comm, const struct trial *trial, struct outcome *outcome)
{
    tutti_train_options options = options_of(trial);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    tutti_train_about about = {.struct_size = sizeof about};
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, trial->save == NULL ? "" : trial->save);
    if (trial->save != NULL) options.save = path;
    if (trial->save != NULL) options.resume = trial->until == 0;
    bool good = worked(comm, trial, tutti_trainer_create(comm, &options, &trainer, &error), error.text);
    if (good) tutti_trainer_describe(trainer, &about);
    for (int i = (int)about.step; good && i < (trial->until == 0 ? STEPS : trial->until); i++) {
        tutti_train_step step;
        good = worked(comm, trial, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
        outcome->losses[i] = step.loss;
        outcome->norms[i] = step.norm;
    }
    good = good && worked(comm, trial, tutti_trainer_validate(trainer, &outcome->validation), "validate");
    if (good && trial->save != NULL)
        good = worked(comm, trial, tutti_trainer_save(trainer), tutti_trainer_error(trainer)->text);
    if (good) outcome->hash = tutti_trainer_hash(trainer);
    outcome->activation_bytes = about.activation_bytes;
    tutti_trainer_free(trainer);
    return good;
}

static void run_alone(tutti_comm *comm, void *context)
{
    train(comm, context, alone);
}

static void run_same(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    struct outcome outcome = {0}, *expected = alone, kept = {0};
    struct trial keeping = *trial;
    keeping.keeps_all = 1;
    if (!train(comm, trial, &outcome) || !train(comm, &keeping, &kept)) return;
    const size_t most = strstr(options_of(trial).mesh, "pipe") != NULL ? kept.activation_bytes - 1
                                                                       : kept.activation_bytes * 2 / 3;
    CHECK_THAT(outcome.activation_bytes <= most, "%s: %zu bytes of activations, %zu without",
               trial->mesh == NULL ? "" : trial->mesh, outcome.activation_bytes, kept.activation_bytes);
    if (trial->fast) expected = &kept;
    outcome.activation_bytes = expected->activation_bytes;
    CHECK_THAT(memcmp(&outcome, expected, sizeof outcome) == 0,
               "rank %d of %s %s, zero %lld: hash %016llx, not %016llx; loss %.17g, not %.17g", tutti_rank(comm),
               trial->mesh == NULL ? "" : trial->mesh, trial->pipeline == NULL ? "" : trial->pipeline,
               (long long)trial->zero, (unsigned long long)outcome.hash, (unsigned long long)expected->hash,
               outcome.losses[STEPS - 1], expected->losses[STEPS - 1]);
}

static void run(enum world_ranks ranks, int size, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = body, .context = context};
    world.arena_bytes = arena_bytes;
    conf_world_run(&world);
}

static void test_recompute(void)
{
    static struct trial trials[] = {{.ranks = 1, .threads = 2},
                                    {.ranks = 1, .accumulate = 3},
                                    {.ranks = 2, .fast = 1},
                                    {.ranks = 3},
                                    {.ranks = 2, .zero = 1, .accumulate = 2},
                                    {.ranks = 3, .zero = 2, .accumulate = 2},
                                    {.ranks = 2, .zero = 3},
                                    {.ranks = 4, .zero = 3, .mesh = "data=2,shard=2", .accumulate = 2},
                                    {.ranks = 2, .mesh = "pipe=2"},
                                    {.ranks = 2, .mesh = "pipe=2", .pipeline = "interleaved", .accumulate = 2},
                                    {.ranks = 2, .mesh = "pipe=2", .pipeline = "zb-h1"},
                                    {.ranks = 4, .mesh = "data=2,pipe=2", .pipeline = "zb-v", .zero = 1},
                                    {.ranks = 2, .mesh = "tensor=2", .width_grains = 4},
                                    {.ranks = 2, .mesh = "tensor=2", .width_grains = 4, .sequence = 1, .accumulate = 2},
                                    {.ranks = 4, .mesh = "data=2,tensor=2", .width_grains = 4, .zero = 3}};
    for (int grains = 1; grains <= 4; grains += 3) {
        struct trial one = {.ranks = 1, .width_grains = grains, .keeps_all = 1};
        run(WORLD_THREADS, 1, run_alone, &one);
        for (size_t i = 0; i < sizeof trials / sizeof *trials; i += 1 + SANITIZED)
            if ((trials[i].width_grains == 4) == (grains == 4))
                run(i % 4 == 3 ? WORLD_PROCESSES : WORLD_THREADS, trials[i].ranks, run_same, &trials[i]);
    }
}

/* ---- bf16 ------------------------------------------------------------------------------------------------------ */

static void run_bf16(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    struct outcome outcome = {0};
    if (!train(comm, trial, &outcome) || trial->until > 0) return;
    const bool same = trial->save == NULL ? memcmp(outcome.losses, alone->losses, sizeof outcome.losses) == 0 &&
                                                memcmp(outcome.norms, alone->norms, sizeof outcome.norms) == 0
                                          : true;
    CHECK_THAT(same && outcome.hash == alone->hash && outcome.validation == alone->validation,
               "bf16, rank %d of %d, %s, zero %lld: hash %016llx, not %016llx; loss %.17g, not %.17g", tutti_rank(comm),
               tutti_size(comm), trial->mesh == NULL ? "" : trial->mesh, (long long)trial->zero,
               (unsigned long long)outcome.hash, (unsigned long long)alone->hash, outcome.losses[STEPS - 1],
               alone->losses[STEPS - 1]);
}

/* Close to what f32 comes to, and not the same: the first loss is of weights that were rounded. */
static void test_rounded(const struct outcome *f32)
{
    CHECK(f32->hash != alone->hash);
    for (int i = 0; i < STEPS; i++)
        CHECK_THAT(f32->losses[i] != alone->losses[i] && fabs(f32->losses[i] - alone->losses[i]) < 0.01,
                   "step %d: loss %.17g with bf16, %.17g with f32", i, alone->losses[i], f32->losses[i]);
}

static void test_bf16(void)
{
    static struct trial trials[] = {{.ranks = 1, .threads = 2},
                                    {.ranks = 3, .accumulate = 2, .keeps_all = 1},
                                    {.ranks = 2, .zero = 1},
                                    {.ranks = 5, .zero = 1, .keeps_all = 1},
                                    {.ranks = 3, .zero = 2, .accumulate = 2},
                                    {.ranks = 2, .zero = 3},
                                    {.ranks = 4, .zero = 3, .mesh = "data=2,shard=2", .accumulate = 2},
                                    {.ranks = 2, .mesh = "pipe=2"},
                                    {.ranks = 3, .mesh = "pipe=3", .pipeline = "zb-h1", .keeps_all = 1},
                                    {.ranks = 4, .mesh = "data=2,pipe=2", .pipeline = "interleaved", .zero = 1},
                                    {.ranks = 6, .mesh = "data=3,pipe=2", .zero = 2, .keeps_all = 1},
                                    {.ranks = 4, .mesh = "data=2,pipe=2", .pipeline = "zb-v", .zero = 2},
                                    {.ranks = 6, .mesh = "data=3,pipe=2", .zero = 3},
                                    {.ranks = 8, .mesh = "data=2,shard=2,pipe=2", .pipeline = "zb-h1", .zero = 3},
                                    {.ranks = 8, .mesh = "data=2,shard=2,pipe=2", .zero = 1},
                                    {.ranks = 4, .mesh = "data=2,tensor=2", .width_grains = 4},
                                    {.ranks = 4, .mesh = "pipe=2,tensor=2", .width_grains = 4},
                                    {.ranks = 8, .mesh = "data=2,pipe=2,tensor=2", .width_grains = 4, .zero = 2},
                                    {.ranks = 4, .mesh = "data=2,tensor=2", .width_grains = 4, .zero = 3}};
    for (int grains = 1; grains <= 4; grains += 3) {
        struct trial one = {.ranks = 1, .width_grains = grains, .keeps_all = 1};
        run(WORLD_THREADS, 1, run_alone, &one);
        const struct outcome f32 = *alone;
        one.type = "bf16";
        run(WORLD_THREADS, 1, run_alone, &one);
        test_rounded(&f32);
        for (size_t i = 0; i < sizeof trials / sizeof *trials; i += 1 + SANITIZED) {
            trials[i].type = "bf16";
            if ((trials[i].width_grains == 4) == (grains == 4))
                run(i % 3 == 2 ? WORLD_PROCESSES : WORLD_THREADS, trials[i].ranks, run_bf16, &trials[i]);
        }
    }
    /* of four width grains, the last that ran alone */
    struct trial saves[] = {{.ranks = 1},
                            {.ranks = 3, .zero = 1},
                            {.ranks = 2, .mesh = "pipe=2"},
                            {.ranks = 2, .zero = 3},
                            {.ranks = 4, .mesh = "data=2,pipe=2", .zero = 3},
                            {.ranks = 2, .mesh = "tensor=2", .zero = 2}};
    const int count = (int)(sizeof saves / sizeof *saves);
    for (int i = 0; i < count; i++) {
        struct trial first = saves[i], second = saves[(i + 1) % count];
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        first.type = second.type = "bf16";
        first.width_grains = second.width_grains = 4;
        first.save = second.save = name;
        first.until = 2;
        run(WORLD_THREADS, first.ranks, run_bf16, &first);
        run(WORLD_THREADS, second.ranks, run_bf16, &second);
    }
}

/* ---- Bytes ----------------------------------------------------------------------------------------------------- */

struct weighing {
    const char *type;
    int64_t zero;
    int ranks;
    const char *mesh, *pipeline; /* mesh NULL: data, of which a formula tells bytes per parameter */
    bool recompute, sequence, async;
};

static size_t resident(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%*u %llu", &pages) == 1);
    if (file != NULL) fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Bytes of weights, gradients and optimizer per parameter, written apart from the ledger, of rank 0 of N and of all. */
static double formula(const struct weighing *weighing, double n)
{
    const bool bf16 = strcmp(weighing->type, "bf16") == 0;
    switch (weighing->zero) {
    case 0: return bf16 ? 18 : 16;
    case 1: return bf16 ? 6 + 12 / n : 8 + 8 / n;
    case 2: return bf16 ? 2 + 16 / n : 4 + 12 / n;
    default: return bf16 ? 18 / n : 16 / n;
    }
}

static tutti_train_options larger(const struct weighing *weighing)
{
    const struct trial trial = {.keeps_all = 1};
    tutti_train_options options = options_of(&trial);
    options.layers = 4;
    options.width = 384;
    options.batch = 8;
    options.dropout = 0;
    options.type = weighing->type;
    options.zero = weighing->zero;
    options.recompute = weighing->recompute;
    options.sequence = weighing->sequence;
    options.save_async = weighing->async;
    if (weighing->mesh != NULL && strstr(weighing->mesh, "tensor") != NULL) options.width_grains = 2;
    if (weighing->mesh != NULL) options.mesh = weighing->mesh;
    if (weighing->pipeline != NULL) options.pipeline = weighing->pipeline;
    if (FULL) { /* GPT-2's of 124M */
        options.layers = options.heads = 12;
        options.width = 768;
        options.context = 64;
        options.vocabulary = 50257;
    }
    return options;
}

/* Memory that ranks of a host reach comes in steps of 2 MiB: at most so much more in each rank. */
static double rounded(const struct weighing *weighing)
{
    if (FULL) return 0; /* all of it is far less than 2% */
    const bool passes = weighing->zero == 3 || strcmp(weighing->type, "bf16") == 0;
    const bool piped = weighing->mesh != NULL && strstr(weighing->mesh, "pipe") != NULL; /* boundaries, a tied weight */
    return (2 + (weighing->zero >= 2 ? 2 : 0) + (passes ? 4 : 0) + (piped ? 2 : 0)) * 2097152.0;
}

static size_t ledger_bytes(const tutti_train_about *about)
{
    return about->parameter_bytes + about->gradient_bytes + about->optimizer_bytes + about->activation_bytes +
           about->communication_bytes + about->saving_bytes;
}

/* Bytes per parameter of all ranks, and of this one. */
static void check_formula(tutti_comm *comm, const struct weighing *weighing, const tutti_train_about *about)
{
    const size_t state = about->parameter_bytes + about->gradient_bytes + about->optimizer_bytes;
    const double n = tutti_size(comm), expected = formula(weighing, n);
    const struct trial none = {0};
    size_t sum = 0;
    worked(comm, &none, tutti_all_reduce(comm, &state, &sum, 1, TUTTI_U64, TUTTI_SUM), "sum");
    const double per = (double)sum / n / (double)about->parameters, own = (double)state / (double)about->parameters;
    CHECK_THAT(fabs(per / expected - 1) < 0.002, "%s, zero %lld: %.4f bytes per parameter and rank, %.4f expected",
               weighing->type, (long long)weighing->zero, per, expected);
    CHECK_THAT(fabs(own / expected - 1) < 0.02, "%s, zero %lld: rank %d has %.4f bytes per parameter", weighing->type,
               (long long)weighing->zero, tutti_rank(comm), own);
}

/* A step, and a save in the background that has ended, so that all memory has been written to. */
static bool use(tutti_comm *comm, const struct weighing *weighing, tutti_trainer *trainer)
{
    const struct trial none = {.mesh = weighing->mesh};
    tutti_train_step step;
    if (!worked(comm, &none, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text)) return false;
    if (!weighing->async) return true;
    return worked(comm, &none, tutti_trainer_save(trainer), tutti_trainer_error(trainer)->text) &&
           worked(comm, &none, tutti_trainer_save_wait(trainer), tutti_trainer_error(trainer)->text);
}

/* Makes a trainer and weighs it: the process grows by what all of its ranks, which are threads, have. The first one of a process
 * only brings there what the process needs otherwise. */
static bool weigh(tutti_comm *comm, const struct weighing *weighing, const tutti_train_options *options, bool first,
                  tutti_train_about *about)
{
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    const struct trial none = {.mesh = weighing->mesh};
    if (!first) (void)tutti_blas_rate(1, 0.01); /* the matrix library's own buffers */
    if (!worked(comm, &none, tutti_barrier(comm), "barrier")) return false;
    const size_t before = resident();
    if (!worked(comm, &none, tutti_barrier(comm), "barrier")) return false;
    if (!worked(comm, &none, tutti_trainer_create(comm, options, &trainer, &error), error.text)) return false;
    bool good = use(comm, weighing, trainer);
    tutti_trainer_describe(trainer, about);
    size_t mine = ledger_bytes(about), all = 0;
    good = good && worked(comm, &none, tutti_all_reduce(comm, &mine, &all, 1, TUTTI_U64, TUTTI_SUM), "sum");
    if (good && !first && weighing->mesh == NULL) check_formula(comm, weighing, about);
    good = good && worked(comm, &none, tutti_barrier(comm), "barrier");
    const double grown = (double)resident() - (double)before,
                 most = 1.02 * (double)all + rounded(weighing) * tutti_size(comm);
    if (FULL && good && !first && tutti_rank(comm) == 0)
        printf("%s, zero %lld, %d ranks %s%s%s%s%s: %.3f of the ledgers\n", weighing->type, (long long)weighing->zero,
               tutti_size(comm), options->mesh, weighing->pipeline == NULL ? "" : " ",
               weighing->pipeline == NULL ? "" : weighing->pipeline, weighing->recompute ? " recompute" : "",
               weighing->sequence ? " sequence"
               : weighing->async  ? " save_async"
                                  : "",
               grown / (double)all);
    CHECK_THAT(first || !good || SANITIZED || (grown > 0.98 * (double)all && grown < most),
               "%s, zero %lld, %d ranks %s %s%s%s%s: the process has grown by %.0f bytes, the ledgers have %zu",
               weighing->type, (long long)weighing->zero, tutti_size(comm), options->mesh, options->pipeline,
               weighing->recompute ? " recompute" : "", weighing->sequence ? " sequence" : "",
               weighing->async ? " save_async" : "", grown, all);
    good = good && worked(comm, &none, tutti_barrier(comm), "barrier");
    tutti_trainer_free(trainer);
    return good;
}

static void run_weighing(tutti_comm *comm, void *context)
{
    const struct weighing *weighing = context;
    tutti_train_options options = larger(weighing), small = options;
    tutti_error error = {0};
    tutti_train_about about = {.struct_size = sizeof about}, planned = about;
    char saves[2][128];
    for (int i = 0; i < 2; i++) snprintf(saves[i], sizeof saves[i], "%s/weighed%d", folder, i);
    small.width = FULL ? 48 : 32;
    if (weighing->async) small.save = saves[0];
    if (weighing->async) options.save = saves[1];
    if (!weigh(comm, weighing, &small, true, &about) || !weigh(comm, weighing, &options, false, &about)) return;
    tutti_status status = tutti_train_plan(&options, tutti_size(comm), tutti_rank(comm), &planned, &error);
    /* a plan measures its own costs of layers, and may cut elsewhere */
    const bool cut = weighing->mesh != NULL && strstr(weighing->mesh, "pipe") != NULL;
    CHECK_THAT(status == TUTTI_OK && (cut || ledger_bytes(&planned) == ledger_bytes(&about)),
               "%s, zero %lld %s: %zu bytes planned, not %zu: %s", weighing->type, (long long)weighing->zero,
               options.mesh, ledger_bytes(&planned), ledger_bytes(&about), error.text);
}

static void test_bytes(void)
{
    static struct weighing others[] = {
        {.type = "f32", .ranks = 2, .mesh = "pipe=2"},
        {.type = "f32", .zero = 1, .ranks = 4, .mesh = "data=2,pipe=2", .pipeline = "zb-h1", .async = true},
        {.type = "f32", .ranks = 2, .mesh = "tensor=2"},
        {.type = "f32", .ranks = 2, .mesh = "tensor=2", .sequence = true, .recompute = true},
        {.type = "f32", .zero = 2, .ranks = 4, .mesh = "data=2,shard=2", .async = true},
        {.type = "bf16", .zero = 3, .ranks = 4, .mesh = "data=2,shard=2"},
        {.type = "f32",
         .zero = 3,
         .ranks = 8,
         .mesh = "data=2,pipe=2,tensor=2",
         .pipeline = "interleaved",
         .recompute = true},
        {.type = "bf16", .zero = 1, .ranks = 4, .mesh = "pipe=2,tensor=2", .pipeline = "zb-v", .sequence = true},
    };
    arena_bytes = (size_t)(FULL ? 6 : 1) << 30;
    for (int i = 0; i < 8; i++) {
        struct weighing weighing = {.type = i % 2 ? "bf16" : "f32", .zero = i / 2, .ranks = i / 2 == 0 ? 1 : 2};
        run(WORLD_THREADS, weighing.ranks, run_weighing, &weighing);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i += 1 + SANITIZED)
        run(WORLD_THREADS, others[i].ranks, run_weighing, &others[i]);
    arena_bytes = 0;
}

/* ---- Too much memory ------------------------------------------------------------------------------------------- */

static size_t all_bytes(const tutti_train_options *options, int ranks, int rank)
{
    tutti_train_about about = {.struct_size = sizeof about};
    tutti_error error = {0};
    tutti_status status = tutti_train_plan(options, ranks, rank, &about, &error);
    CHECK_THAT(status == TUTTI_OK, "%s", error.text);
    return about.parameter_bytes + about.gradient_bytes + about.optimizer_bytes + about.activation_bytes +
           about.communication_bytes;
}

/* "801.6 GiB", of a number of that size. */
static const char *gibibytes(size_t bytes, char text[32])
{
    snprintf(text, 32, "%.1f GiB", (double)bytes / (double)(1 << 30));
    return text;
}

/* The last stage has the logits, and needs most: so many rows are more than any machine has memory for. */
static void run_short(tutti_comm *comm, void *context)
{
    const struct trial trial = {.keeps_all = 1, .mesh = "data=2,pipe=2"};
    tutti_train_options options = options_of(&trial), less = options;
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    char wanted[80], needed[32], saved[32];
    (void)context;
    options.data = "markov:order=1,states=203,length=30000";
    options.vocabulary = 20000;
    options.context = 1024;
    options.batch = 20000;
    options.width = 512;
    options.dropout = 0;
    options.stages = "h.1.ln_1";
    const size_t before = resident();
    tutti_status status = tutti_trainer_create(comm, &options, &trainer, &error);
    const size_t bytes = all_bytes(&options, 4, 1);
    CHECK(bytes > all_bytes(&options, 4, 0) && bytes >= all_bytes(&options, 4, 3));
    less = options;
    less.recompute = true;
    snprintf(wanted, sizeof wanted, "rank 1 (stage 1) needs %s, ", gibibytes(bytes, needed));
    CHECK_THAT(status == TUTTI_ERR_MEMORY && trainer == NULL && error.rank == 1 && check_says(error.text, wanted),
               "%s: %s; should say: %s", tutti_status_name(status), error.text, wanted);
    snprintf(wanted, sizeof wanted, "; --recompute saves %s, --zero 3 saves ",
             gibibytes(bytes - all_bytes(&less, 4, 1), saved));
    CHECK_THAT(check_says(error.text, " are free: activations ") && check_says(error.text, wanted),
               "%s; should say: %s", error.text, wanted);
    CHECK_THAT(SANITIZED || resident() < before + (64 << 20), "%zu bytes more were taken", resident() - before);
}

/* Four ranks on two hosts: two of them share what a host has. */
static void run_hosts(tutti_comm *comm, void *context)
{
    const struct trial trial = {.keeps_all = 1};
    tutti_train_options options = options_of(&trial);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    (void)context;
    options.width = 1 << 20;
    options.layers = 40;
    tutti_status status = tutti_trainer_create(comm, &options, &trainer, &error);
    CHECK_THAT(status == TUTTI_ERR_MEMORY && trainer == NULL && check_says(error.text, " left for each of 2;") &&
                   check_says(error.text, ", --zero 3 saves "),
               "%s: %s", tutti_status_name(status), error.text);
}

static void test_short(void)
{
    struct conf_world hosts = {
        .ranks = WORLD_SIMULATED, .size = 4, .hosts = 2, .direct = 1, .attach = 1, .body = run_hosts};
    run(WORLD_THREADS, 4, run_short, NULL);
    conf_world_run(&hosts);
}

/* ---- Refused --------------------------------------------------------------------------------------------------- */

static void run_refused(tutti_comm *comm, void *context)
{
    const struct trial trial = {.ranks = 1};
    tutti_train_options options = options_of(&trial);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0};
    (void)context;
    options.model = "mlp";
    tutti_status status = tutti_trainer_create(comm, &options, &trainer, &error);
    CHECK_THAT(status == TUTTI_ERR_OPTION && strstr(error.text, "no residual branches") != NULL, "%s: %s",
               tutti_status_name(status), error.text);
    options = options_of(&trial);
    options.type = "f16";
    status = tutti_trainer_create(comm, &options, &trainer, &error);
    CHECK_THAT(status == TUTTI_ERR_OPTION && strstr(error.text, "f32") != NULL && strstr(error.text, "bf16") != NULL,
               "%s: %s", tutti_status_name(status), error.text);
}

int main(void)
{
    alone = mmap(NULL, sizeof *alone, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    conf_begin();
    CHECK_THAT(alone != MAP_FAILED && mkdtemp(folder) != NULL, "memory and a folder");
    if (!FULL) test_recompute();
    if (!FULL) test_bf16();
    test_bytes();
    if (!FULL) test_short();
    if (!FULL) run(WORLD_THREADS, 2, run_refused, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_THAT(system(command) == 0, "%s", command);
    return check_end();
}
