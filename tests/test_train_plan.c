/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * A plan of a layout against the trainer itself: for every mesh of up to 4 ranks, ZeRO stage, table, number of micro-batches and of
 * passes the plan of each rank names the bytes that its trainer has, by purpose; or both refuse it, with the same words.
 */
#include "conformance_world.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/pipeline.h>
#include <tutti/train.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-plan-save-XXXXXX";

static tutti_train_options small_gpt(void)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.data = "markov:order=1,states=11,length=4000";
    options.layers = 3;
    options.heads = 2;
    options.width = 24;
    options.vocabulary = 700;
    options.context = 8;
    options.batch = 13; /* grains of one sample and of two */
    options.grains = 8;
    return options;
}

/* Layers that stages begin with, so that a plan and a trainer cut alike whatever they would measure. */
static void name_stages(const tutti_train_options *options, int stages, char text[256])
{
    tutti_model *model = NULL;
    const tutti_gpt gpt = {.layers = (int)options->layers,
                           .heads = (int)options->heads,
                           .width = options->width,
                           .context = options->context,
                           .vocabulary = options->vocabulary};
    size_t used = 0;
    int named = 1;
    text[0] = '\0';
    if (tutti_gpt_create(&gpt, &model) != TUTTI_OK) return;
    for (int i = 1; i < tutti_model_layers(model) && named < stages; i++) {
        if (!tutti_model_cut(model, i)) continue;
        used += (size_t)snprintf(text + used, 256 - used, "%s%s", named > 1 ? "," : "",
                                 tutti_model_layer(model, i)->name);
        named++;
    }
    tutti_model_free(model);
}

static void same(size_t planned, size_t has, const char *what, const tutti_train_options *options, int rank, int ranks)
{
    CHECK_THAT(planned == has,
               "rank %d of %d, mesh %s, zero %lld, %s, micro %lld, accumulate %lld: %s: planned %zu, not %zu", rank,
               ranks, options->mesh, (long long)options->zero, options->pipeline, (long long)options->micro,
               (long long)options->accumulate, what, planned, has);
}

/* Both ways, on every rank. Returns whether the trainer takes it. */
static bool compare(tutti_comm *comm, const tutti_train_options *options)
{
    const int rank = tutti_rank(comm), ranks = tutti_size(comm);
    tutti_trainer *trainer = NULL;
    tutti_error error = {0}, planned_error = {0};
    tutti_train_about about = {0}, planned = {0};
    tutti_status status = tutti_trainer_create(comm, options, &trainer, &error);
    tutti_status planned_status = tutti_train_plan(options, ranks, rank, &planned, &planned_error);
    CHECK_THAT(status == planned_status && (status == TUTTI_OK || strcmp(error.text, planned_error.text) == 0),
               "mesh %s, zero %lld, %s: the plan says %s: %s; the trainer %s: %s", options->mesh,
               (long long)options->zero, options->pipeline, tutti_status_name(planned_status), planned_error.text,
               tutti_status_name(status), error.text);
    if (status != TUTTI_OK || planned_status != TUTTI_OK) return false;
    tutti_trainer_describe(trainer, &about);
    same(planned.parameter_bytes, about.parameter_bytes, "parameters", options, rank, ranks);
    same(planned.gradient_bytes, about.gradient_bytes, "gradients", options, rank, ranks);
    same(planned.optimizer_bytes, about.optimizer_bytes, "optimizer", options, rank, ranks);
    same(planned.activation_bytes, about.activation_bytes, "activations", options, rank, ranks);
    same(planned.communication_bytes, about.communication_bytes, "communication", options, rank, ranks);
    same(planned.saving_bytes, about.saving_bytes, "saving", options, rank, ranks);
    CHECK_THAT((about.saving_bytes > 0) == (options->save_async && rank == 0) || ranks > 1,
               "rank %d of %d: %zu bytes for a copy that is saved", rank, ranks, about.saving_bytes);
    same(planned.rows_per_step, about.rows_per_step, "rows", options, rank, ranks);
    tutti_trainer_free(trainer);
    return true;
}

static int with_tables(tutti_comm *comm, tutti_train_options *options, int pipe)
{
    int taken = 0;
    for (size_t table = 0; tutti_pipeline_names(table) != NULL; table++)
        for (int micro = 0; micro <= 4; micro += 2) {
            char stages[256];
            options->pipeline = tutti_pipeline_names(table);
            options->micro = micro;
            name_stages(options, table == 2 || table == 4 ? 2 * pipe : pipe, stages);
            options->stages = stages;
            taken += compare(comm, options);
        }
    options->stages = "";
    return taken;
}

static int with_mesh(tutti_comm *comm, const int *sizes)
{
    tutti_train_options options = small_gpt();
    char mesh[64];
    int taken = 0;
    snprintf(mesh, sizeof mesh, "data=%d,shard=%d,pipe=%d,tensor=%d", sizes[0], sizes[1], sizes[2], sizes[3]);
    options.mesh = mesh;
    for (options.zero = 0; options.zero <= 3; options.zero++)
        for (options.accumulate = 1; options.accumulate <= (SANITIZED ? 1 : 2); options.accumulate++) {
            options.width_grains = sizes[3] > 1 ? 2 : 1;
            options.recompute = (options.zero + options.accumulate) % 2 == 0;
            options.sequence = sizes[3] > 1 && options.zero % 2 == 0;
            options.save_async = options.zero > 1;
            options.save = options.save_async ? folder : "";
            options.type = options.accumulate == 2 || sizes[1] > 1 ? "bf16" : "f32";
            if (sizes[2] > 1)
                taken += with_tables(comm, &options, sizes[2]);
            else
                taken += compare(comm, &options);
        }
    return taken;
}

static void all_meshes(tutti_comm *comm, void *context)
{
    const int ranks = tutti_size(comm);
    int sizes[4], taken = 0;
    (void)context;
    for (sizes[0] = 1; sizes[0] <= ranks; sizes[0]++)
        for (sizes[1] = 1; sizes[1] <= ranks; sizes[1]++)
            for (sizes[2] = 1; sizes[2] <= ranks; sizes[2]++)
                for (sizes[3] = 1; sizes[3] <= ranks; sizes[3]++)
                    if (sizes[0] * sizes[1] * sizes[2] * sizes[3] == ranks) taken += with_mesh(comm, sizes);
    CHECK_THAT(taken >= 4, "of %d ranks only %d layouts work", ranks, taken);
}

/* Other sizes, optimizers and the fast mode; a gpt of one layer and an mlp have no tied weight in a pipe. */
static void odd_ones(tutti_comm *comm, void *context)
{
    tutti_train_options options = small_gpt();
    (void)context;
    static const char *const optimizers[] = {"sgd", "adam", "lion"};
    for (size_t i = 0; i < 3; i++) {
        options.optimizer = optimizers[i];
        for (options.zero = 0; options.zero <= 3; options.zero++) compare(comm, &options);
    }
    options.fast = true;
    for (options.zero = 0; options.zero <= 3; options.zero++)
        for (options.accumulate = 1; options.accumulate <= 3; options.accumulate++) compare(comm, &options);
    options = small_gpt();
    options.width_grains = 2;
    options.threads = 2;
    options.dropout = 0.1;
    compare(comm, &options);
    options.optimizer = "adamx";
    compare(comm, &options);
    options = small_gpt();
    options.type = "bf16";
    for (options.zero = 0; options.zero <= 3; options.zero++) compare(comm, &options);
}

/* Layers that look at the whole batch, which every rank meets in. */
static void batch_norms(tutti_comm *comm, void *context)
{
    static const char *const meshes[] = {"", "tensor=2", "pipe=2", "shard=2"};
    tutti_train_options options = small_gpt();
    options.model = "mlp";
    options.data = context;
    options.vocabulary = 0;
    options.batch_norm = true;
    options.width_grains = 4;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        if (i > 0 && tutti_size(comm) % 2 != 0) continue;
        options.mesh = meshes[i];
        for (options.micro = 0; options.micro <= (i == 2); options.micro++)
            for (options.zero = 0; options.zero <= 3; options.zero++) {
                options.stages = i == 2 ? "layers.1" : "";
                const bool taken = compare(comm, &options);
                CHECK_THAT(taken == (i == 2 ? options.micro == 1 : i < 3 || options.zero > 0), "%s", options.mesh);
            }
    }
    options.mesh = options.stages = "";
    options.fast = true;
    options.micro = 0;
    for (options.zero = 0; options.zero <= 3; options.zero++) CHECK(compare(comm, &options));
    options.accumulate = 2;
    CHECK(!compare(comm, &options));
}

static bool write_table(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) return false;
    fputs("x,y,class\n", file);
    for (int i = 0; i < 60; i++) fprintf(file, "%d,%d,%d\n", i * 37 % 101, i * 53 % 97, i % 3);
    return fclose(file) == 0;
}

/* Without anything to learn from; and what no plan can be made of. */
static void test_arguments(void)
{
    tutti_train_options options = small_gpt();
    tutti_train_about about, other;
    tutti_error error;
    CHECK_THAT(tutti_train_plan(&options, 4, 0, &about, &error) == TUTTI_OK, "%s", error.text);
    options.data = "";
    CHECK_THAT(tutti_train_plan(&options, 4, 0, &other, &error) == TUTTI_OK &&
                   about.activation_bytes == other.activation_bytes && about.parameters == other.parameters,
               "%s", error.text);
    options.vocabulary = 0;
    CHECK_THAT(tutti_train_plan(&options, 4, 0, &other, &error) == TUTTI_ERR_ARGUMENT &&
                   strstr(error.text, "nothing is given") != NULL,
               "%s", error.text);
    CHECK_THAT(tutti_train_plan(&options, 0, 0, &other, &error) == TUTTI_ERR_ARGUMENT, "0 ranks");
    CHECK_THAT(tutti_train_plan(&options, 2, 2, &other, &error) == TUTTI_ERR_ARGUMENT, "rank 2 of 2");
    CHECK_THAT(tutti_train_plan(&options, 2, -1, &other, NULL) == TUTTI_ERR_ARGUMENT, "rank -1");
    CHECK_THAT(tutti_train_plan(NULL, 2, 0, &other, NULL) == TUTTI_ERR_ARGUMENT, "no options");
}

/* ---- Formulas ---------------------------------------------------------------------------------------------------- */
/* Elements of a GPT on one of `tensor` ranks that share its width, written apart from the model: all widths are multiples of 16,
 * so nothing is padded. */

enum { LAYERS = 4, WIDTH = 64, VOCABULARY = 256, CONTEXT = 16 };

/* Norms and the biases behind a sum over the width are on every rank, everything else is cut. */
static size_t block_elements(size_t tensor)
{
    const size_t d = WIDTH, norms = 2 * 2 * d, biases = 2 * d;
    return norms + biases + (3 * d * (d + 1) + d * d + 4 * d * (d + 1) + 4 * d * d) / tensor;
}

struct stage_elements {
    size_t own, tied; /* weights that are trained here; the copy of the embedding that the loss reads */
};

/* Stage `at` of `pipe`, which have `blocks` of the model's. */
static struct stage_elements stage_elements(int at, int pipe, size_t blocks, size_t tensor)
{
    const size_t embedding = VOCABULARY * WIDTH / tensor;
    struct stage_elements elements = {.own = blocks * block_elements(tensor)};
    if (at == 0) elements.own += embedding + CONTEXT * WIDTH;
    if (at == pipe - 1) elements.own += 2 * WIDTH;
    if (at == pipe - 1 && pipe > 1) elements.tied = embedding;
    return elements;
}

/* What the ranks of data have together, in elements, of one stage and one part of the width. */
static void check_stage(const tutti_train_options *options, int data, int pipe, int tensor, int at, size_t blocks)
{
    const struct stage_elements wanted = stage_elements(at, pipe, blocks, (size_t)tensor);
    size_t parameters = 0, gradients = 0, states = 0;
    for (int d = 0; d < data; d++) {
        tutti_train_about about;
        tutti_error error;
        const int rank = (d * pipe + at) * tensor + tensor - 1;
        if (!CHECK_THAT(tutti_train_plan(options, data * pipe * tensor, rank, &about, &error) == TUTTI_OK,
                        "%s, rank %d: %s", options->mesh, rank, error.text))
            return;
        parameters += about.parameter_bytes / 4;
        gradients += about.gradient_bytes / 4;
        states += about.optimizer_bytes / 8;
    }
    const size_t each = (size_t)data, all = wanted.own + wanted.tied;
    const int64_t zero = options->zero;
    CHECK_THAT(parameters == (zero >= 3 ? wanted.own : each * all) &&
                   gradients == (zero >= 2 ? 1 : each) * wanted.own && states == (zero >= 1 ? 1 : each) * wanted.own,
               "mesh %s, zero %lld, stage %d: %zu weights, %zu gradients, %zu states; by the formula %zu and %zu tied",
               options->mesh, (long long)zero, at, parameters, gradients, states, wanted.own, wanted.tied);
}

/* The ledger of layouts with pipe and tensor, to the byte: 16 for each weight of f32 with Adam, 4 for a tied copy, which with
 * zero 3 is a buffer. */
static void test_formulas(void)
{
    static const char *const stages[] = {"", "", "h.2.ln_1", "h.1.ln_1,h.3.ln_1", "h.1.ln_1,h.2.ln_1,h.3.ln_1"};
    static const size_t blocks[][4] = {{0}, {4}, {2, 2}, {1, 2, 1}, {1, 1, 1, 1}};
    tutti_train_options options = small_gpt();
    char mesh[64];
    options.layers = LAYERS;
    options.heads = options.width_grains = 4;
    options.width = WIDTH;
    options.vocabulary = VOCABULARY;
    options.context = CONTEXT;
    options.batch = options.grains = 4;
    options.mesh = mesh;
    for (int tensor = 1; tensor <= 4; tensor *= 2)
        for (int pipe = 1; pipe <= 4; pipe++)
            for (int data = 1; data <= 2; data++)
                for (options.zero = 0; options.zero <= (data > 1 ? 3 : 0); options.zero++) {
                    snprintf(mesh, sizeof mesh, "data=%d,pipe=%d,tensor=%d", data, pipe, tensor);
                    options.stages = stages[pipe];
                    options.micro = pipe > 1; /* no sums that wait */
                    for (int at = 0; at < pipe; at++) check_stage(&options, data, pipe, tensor, at, blocks[pipe][at]);
                }
}

/* A model far larger than any memory, and ranks that nobody has. */
static void test_large(void)
{
    tutti_train_options options = small_gpt();
    tutti_train_about about;
    tutti_error error;
    options.data = "";
    options.vocabulary = 50257;
    options.layers = 96;
    options.heads = 96;
    options.width = 12288;
    options.context = 2048;
    options.batch = options.grains = 1024;
    options.zero = 3;
    tutti_status status = tutti_train_plan(&options, 1024, 1023, &about, &error);
    if (!CHECK_THAT(status == TUTTI_OK, "%s", error.text)) return;
    CHECK_THAT(about.parameters > 174000000000 && about.parameter_bytes < 4 * about.parameters / 1000,
               "%zu parameters, %zu bytes of them on one of 1,024 ranks", about.parameters, about.parameter_bytes);
}

int main(void)
{
    char table[] = "/tmp/tutti-plan-XXXXXX";
    const int file = mkstemp(table);
    conf_begin();
    CHECK(file >= 0 && write_table(table) && mkdtemp(folder) != NULL);
    test_arguments();
    test_large();
    test_formulas();
    for (int ranks = 1; ranks <= 4; ranks++) {
        struct conf_world world = {.ranks = WORLD_THREADS, .size = ranks, .direct = 1, .attach = 1, .body = all_meshes};
        conf_world_run(&world);
        world.body = odd_ones;
        conf_world_run(&world);
        world.body = batch_norms;
        world.context = table;
        conf_world_run(&world);
    }
    (void)unlink(table);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    (void)close(file);
    return check_end();
}
