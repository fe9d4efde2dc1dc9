/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan,tsan
 *
 * What a trainer does to need less memory: recomputation on every kind of mesh, with the losses, norms, validations and
 * weights of one rank that keeps everything, bit for bit; what each rank says it takes; and what is refused.
 */
#include "conformance_world.h"

#include <string.h>
#include <sys/mman.h>
#include <tutti/train.h>

enum { STEPS = 3 };

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
    int64_t zero, accumulate, width_grains, threads, fast, keeps_all;
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
    bool good = worked(comm, trial, tutti_trainer_create(comm, &options, &trainer, &error), error.text);
    for (int i = 0; good && i < STEPS; i++) {
        tutti_train_step step;
        good = worked(comm, trial, tutti_trainer_step(trainer, &step), tutti_trainer_error(trainer)->text);
        outcome->losses[i] = step.loss;
        outcome->norms[i] = step.norm;
    }
    good = good && worked(comm, trial, tutti_trainer_validate(trainer, &outcome->validation), "validate");
    if (good) tutti_trainer_describe(trainer, &about);
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

static void run(enum conf_ranks ranks, int size, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = body, .context = context};
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
                                    {.ranks = 4, .mesh = "data=2,tensor=2", .width_grains = 4, .zero = 3}};
    for (int grains = 1; grains <= 4; grains += 3) {
        struct trial one = {.ranks = 1, .width_grains = grains, .keeps_all = 1};
        run(CONF_THREADS, 1, run_alone, &one);
        for (size_t i = 0; i < sizeof trials / sizeof *trials; i += 1 + SANITIZED)
            if ((trials[i].width_grains == 4) == (grains == 4))
                run(i % 4 == 3 ? CONF_PROCESSES : CONF_THREADS, trials[i].ranks, run_same, &trials[i]);
    }
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
}

int main(void)
{
    alone = mmap(NULL, sizeof *alone, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    conf_begin();
    CHECK_THAT(alone != MAP_FAILED, "memory");
    test_recompute();
    run(CONF_THREADS, 1, run_refused, NULL);
    return check_end();
}
