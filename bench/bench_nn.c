/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_nn [gpt2|small] [threads] [grains] [seconds]: the time of one training step (forward, backward, AdamW), and its
 * share of the rate at which OpenBLAS multiplies matrices in the same run. grains 0: fast mode. 6 FLOP per parameter and
 * token. bench/torch_gpt.py does the small one with PyTorch.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/train.h>

struct shape {
    const char *name;
    tutti_gpt gpt;
    int64_t batch;
};

static const struct shape shapes[] = {
    {"gpt2", {.layers = 12, .heads = 12, .width = 768, .context = 64, .vocabulary = 50257}, 4},
    {"small", {.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = 256}, 12},
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static const struct shape *shape_named(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

static void fill_batch(const struct shape *shape, int32_t *tokens, int32_t *targets)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < shape->batch * shape->gpt.context; i++) {
        tokens[i] = (int32_t)((state = state * 1664525u + 1013904223u) >> 8) % (int32_t)shape->gpt.vocabulary;
        targets[i] = (int32_t)((state = state * 1664525u + 1013904223u) >> 8) % (int32_t)shape->gpt.vocabulary;
    }
}

static tutti_status adamw(tutti_model *model, tutti_parameter *list, tutti_optimizer **optimizer)
{
    tutti_optimizer_settings settings;
    tutti_error error;
    tutti_status status = tutti_model_list(model, list);
    if (status == TUTTI_OK) status = tutti_optimizer_defaults("adamw", &settings, &error);
    if (status == TUTTI_OK)
        status = tutti_optimizer_create(&settings, list, (size_t)tutti_model_tensors(model), optimizer, &error);
    return status;
}

struct times {
    double forward, backward, update; /* best, in seconds */
    double step;                      /* mean */
    int steps;
    double loss;
};

static tutti_status measure(tutti_pass *pass, const tutti_batch *batch, tutti_optimizer *optimizer, double seconds,
                            struct times *times)
{
    *times = (struct times){.forward = 1e9, .backward = 1e9, .update = 1e9};
    double total = 0;
    for (int i = -1; i < 2 || total < seconds; i++) {
        tutti_loss losses[64] = {{0}};
        double start = now();
        tutti_status status = tutti_pass_forward(pass, batch, losses);
        double middle = now();
        if (status == TUTTI_OK) status = tutti_pass_backward(pass, NULL);
        double ready = now();
        if (status != TUTTI_OK) return status;
        tutti_optimizer_step_on(optimizer, pass, 1e-4, 1 / (double)batch->samples);
        double end = now();
        times->loss = losses[0].sum / losses[0].count;
        if (i < 0) continue; /* the first one touches memory */
        if (middle - start < times->forward) times->forward = middle - start;
        if (ready - middle < times->backward) times->backward = ready - middle;
        if (end - ready < times->update) times->update = end - ready;
        total += end - start;
        times->step = total / ++times->steps;
    }
    return TUTTI_OK;
}

static void report(const struct shape *shape, const tutti_model *model, const tutti_pass *pass, int threads, int grains,
                   const struct times *times)
{
    const double rows = (double)(shape->batch * shape->gpt.context);
    const double flops = tutti_model_flops_per_row(model) * rows;
    const double rate = tutti_blas_rate(threads, 2);
    printf("%s: %zu parameters, batch %lld x %lld, %d threads, %s, %s\n", shape->name, tutti_model_parameters(model),
           (long long)shape->batch, (long long)shape->gpt.context, threads, tutti_blas_name(), tutti_nn_kernels_name());
    if (grains > 0)
        printf("%d grains, ", grains);
    else
        printf("fast, ");
    printf("%d steps, loss %.4f, activations %.1f MB\n", times->steps, times->loss,
           (double)tutti_pass_bytes(pass) * 1e-6);
    printf("step %.2f ms (best forward %.2f, backward %.2f, AdamW %.2f), %.0f tokens/s, %.1f GFLOP/s\n",
           times->step * 1e3, times->forward * 1e3, times->backward * 1e3, times->update * 1e3, rows / times->step,
           flops / times->step * 1e-9);
    printf("sgemm %.1f GFLOP/s: the step runs at %.1f%% of it\n", rate, flops / times->step * 1e-7 / rate);
}

int main(int argc, char **argv)
{
    const struct shape *shape = shape_named(argc > 1 ? argv[1] : "small");
    const int threads = argc > 2 ? atoi(argv[2]) : 1, grains = argc > 3 ? atoi(argv[3]) : 0;
    const double seconds = argc > 4 ? atof(argv[4]) : 5;
    if (shape == NULL || threads < 1 || grains < 0 || grains > 64) {
        fprintf(stderr, "bench_nn [gpt2|small] [threads] [grains, 0 is fast, at most 64] [seconds]\n");
        return 2;
    }
    tutti_model *model;
    if (tutti_gpt_create(&shape->gpt, &model) != TUTTI_OK || tutti_model_bind(model, NULL, NULL) != TUTTI_OK ||
        tutti_model_init(model, 1) != TUTTI_OK)
        return tutti_model_explain(model, stderr);
    size_t rows = (size_t)(shape->batch * shape->gpt.context);
    int32_t *tokens = malloc(2 * rows * sizeof *tokens), *targets = tokens + rows;
    int64_t bounds[65];
    for (int g = 0; g <= grains; g++) bounds[g] = shape->batch * g / (grains > 0 ? grains : 1);
    tutti_batch batch = {.struct_size = sizeof batch,
                         .samples = shape->batch,
                         .tokens = tokens,
                         .targets = targets,
                         .grains = grains,
                         .grain_bounds = grains > 0 ? bounds : NULL};
    tutti_pass *pass = NULL;
    struct times times;
    if (tokens != NULL) fill_batch(shape, tokens, targets);
    tutti_optimizer *optimizer = NULL;
    tutti_parameter *list = calloc((size_t)tutti_model_tensors(model), sizeof *list);
    tutti_pass_options options = {
        .struct_size = sizeof options, .samples = shape->batch, .grains = grains, .threads = threads};
    bool good = tokens != NULL && tutti_pass_create(model, &options, &pass) == TUTTI_OK && list != NULL &&
                adamw(model, list, &optimizer) == TUTTI_OK &&
                measure(pass, &batch, optimizer, seconds, &times) == TUTTI_OK;
    if (good) report(shape, model, pass, threads, grains, &times);
    if (!good) tutti_model_explain(model, stderr);
    tutti_optimizer_free(optimizer);
    tutti_pass_free(pass);
    tutti_model_free(model);
    free(list);
    free(tokens);
    return good ? 0 : 1;
}
