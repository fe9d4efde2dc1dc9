/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of one's own from the library's layers, data parallel: it learns the product and the sum of some numbers. The
 * batch is cut into grains, so that any number of ranks gives the same weights, bit for bit; the hash at the end shows it.
 *
 *     build/examples/model                              one rank
 *     TUTTI_RANKS=3 build/examples/model                three threads
 *     tutti run -n 2 build/examples/model FOLDER        two processes; saves, and goes on from what was saved there
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/train.h>

enum { INPUTS = 4, OUTPUTS = 2, GRAINS = 6, GRAIN_SAMPLES = 8, STEPS = 300, TENSORS_MOST = 16 };

typedef struct learner {
    tutti_comm *world;
    tutti_model *model;
    tutti_parameter list[TENSORS_MOST];
    size_t tensors;
    tutti_pass *pass;
    tutti_ddp *ddp;
    tutti_optimizer *optimizer;
    int first_grain, grains; /* of this rank */
    uint64_t step;
    float inputs[GRAINS * GRAIN_SAMPLES][INPUTS], targets[GRAINS * GRAIN_SAMPLES][OUTPUTS];
} learner;

static int say(const tutti_error *error)
{
    fprintf(stderr, "%s: %s\n", tutti_status_name(error->status), error->text);
    return 1;
}

/* ---- The model ------------------------------------------------------------------------------------------------- */

/* Checking the seal is enough: the first error stays in the model. */
static tutti_status build(tutti_model **model)
{
    tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = INPUTS}, model);
    tutti_add_linear(*model, "in", &(tutti_linear){.outputs = 32, .activation = TUTTI_GELU});
    tutti_residual_begin(*model);
    tutti_add_layer_norm(*model, "norm");
    tutti_add_linear(*model, "middle", &(tutti_linear){.outputs = 32, .activation = TUTTI_GELU});
    tutti_residual_end(*model);
    tutti_add_linear(*model, "out", &(tutti_linear){.outputs = OUTPUTS});
    tutti_add_mse(*model);
    return tutti_model_seal(*model);
}

/* Sample `number` of all that there ever are: the same whoever asks. */
static void draw(uint64_t number, float inputs[INPUTS], float targets[OUTPUTS])
{
    uint32_t state = (uint32_t)number * 2654435761U;
    for (int i = 0; i < INPUTS; i++) {
        state = state * 1664525 + 1013904223;
        inputs[i] = (float)(state >> 8) / (float)(1 << 23) - 1;
    }
    targets[0] = inputs[0] * inputs[1];
    targets[1] = inputs[2] + inputs[3];
}

/* ---- A step ---------------------------------------------------------------------------------------------------- */

/* Backward calls it as soon as gradients are final, so that they travel while it goes on. */
static void ready(void *context, size_t offset, size_t count)
{
    tutti_ddp_ready_run(context, offset, count); /* a failure is tutti_ddp_end's, too */
}

static int take_step(learner *l, double *mean)
{
    int64_t bounds[GRAINS + 1];
    tutti_loss losses[GRAINS], mine = {0};
    double all = 0, sum = 0;
    const int64_t first = (int64_t)l->first_grain * GRAIN_SAMPLES, samples = (int64_t)l->grains * GRAIN_SAMPLES;
    for (int64_t i = 0; i < samples; i++)
        draw(l->step * GRAINS * GRAIN_SAMPLES + (uint64_t)(first + i), l->inputs[i], l->targets[i]);
    for (int g = 0; g <= l->grains; g++) bounds[g] = (int64_t)g * GRAIN_SAMPLES;
    tutti_batch batch = {.struct_size = sizeof batch,
                         .samples = samples,
                         .inputs = l->inputs[0],
                         .target_values = l->targets[0],
                         .grain_bounds = bounds,
                         .grains = l->grains,
                         .first_sample = first,
                         .step = l->step};
    tutti_backward how = {.struct_size = sizeof how, .ready = ready, .context = l->ddp};
    how.subtrees = tutti_ddp_partials(l->ddp, &how.subtree_bounds, &how.gradients);
    tutti_ddp_begin(l->ddp, true);
    if (tutti_pass_forward(l->pass, &batch, losses) != TUTTI_OK || tutti_pass_backward(l->pass, &how) != TUTTI_OK)
        return tutti_model_explain(l->model, stderr);
    for (int g = 0; g < l->grains; g++) mine.sum += losses[g].sum, mine.count += losses[g].count;
    if (tutti_ddp_end(l->ddp, mine.count, &all) != TUTTI_OK ||
        tutti_all_reduce(l->world, &mine.sum, &sum, 1, TUTTI_F64, TUTTI_SUM) != TUTTI_OK)
        return tutti_explain(l->world, stderr);
    tutti_optimizer_step(l->optimizer, 0.01, 1 / all); /* gradients are of sums: divided once, by the global count */
    *mean = sum / all;
    l->step++;
    return 0;
}

/* ---- Checkpoints ----------------------------------------------------------------------------------------------- */

/* The model's tensors and each state of the optimizer, which lies in the same order. */
static size_t describe(const learner *l, tutti_checkpoint_tensor *tensors)
{
    size_t count = 0;
    float *values = tutti_model_values(l->model);
    const char *group = "model";
    for (int state = 0; group != NULL; group = tutti_optimizer_state(l->optimizer, state++, &values))
        for (int i = 0; i < (int)l->tensors; i++) {
            const tutti_tensor *tensor = tutti_model_tensor(l->model, i);
            tutti_checkpoint_tensor *made = &tensors[count++];
            *made = (tutti_checkpoint_tensor){group, tensor->name, tensor->dimensions, {0}, values + tensor->offset};
            for (int d = 0; d < tensor->dimensions; d++) made->shape[d] = tensor->shape[d];
        }
    return count;
}

static int save(const learner *l, const char *folder)
{
    tutti_checkpoint_tensor tensors[3 * TENSORS_MOST];
    tutti_note note = {"grains", "6"};
    tutti_error error;
    size_t count = describe(l, tensors);
    if (tutti_checkpoint_save(folder, l->step, 2, &note, 1, tensors, count, &error) != TUTTI_OK) return say(&error);
    printf("saved after step %llu\n", (unsigned long long)l->step);
    return 0;
}

/* Every rank reads it. Where there is none the run begins anew; one that cannot be used is an error. */
static int resume(learner *l, const char *folder)
{
    tutti_checkpoint_tensor tensors[3 * TENSORS_MOST];
    tutti_checkpoint *checkpoint = NULL;
    tutti_error error;
    tutti_status status = tutti_checkpoint_open(folder, true, &checkpoint, &error);
    if (status == TUTTI_ERR_ARGUMENT || status == TUTTI_ERR_SYSTEM) return 0;
    if (status == TUTTI_OK) status = tutti_checkpoint_load(checkpoint, tensors, describe(l, tensors), &error);
    if (status == TUTTI_OK) l->step = tutti_checkpoint_step(checkpoint);
    tutti_optimizer_set_steps(l->optimizer, l->step);
    tutti_checkpoint_free(checkpoint);
    return status == TUTTI_OK ? 0 : say(&error);
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

static int make(learner *l)
{
    tutti_optimizer_settings settings;
    tutti_ddp_options options = {.struct_size = sizeof options, .grains = GRAINS};
    tutti_error error;
    if (build(&l->model) != TUTTI_OK) return tutti_model_explain(l->model, stderr);
    size_t bytes = tutti_model_elements(l->model) * sizeof(float);
    float *gradients = tutti_alloc(l->world, bytes); /* where the other ranks reach them without a copy */
    if (gradients == NULL) return tutti_explain(l->world, stderr);
    if (tutti_model_bind(l->model, NULL, gradients) != TUTTI_OK || tutti_model_init(l->model, 42) != TUTTI_OK)
        return tutti_model_explain(l->model, stderr);
    l->tensors = (size_t)tutti_model_tensors(l->model);
    tutti_model_list(l->model, l->list);
    if (tutti_ddp_create(l->world, l->list, l->tensors, &options, &l->ddp, &error) != TUTTI_OK ||
        tutti_optimizer_defaults("adamw", &settings, &error) != TUTTI_OK ||
        tutti_optimizer_create(&settings, l->list, l->tensors, &l->optimizer, &error) != TUTTI_OK)
        return say(&error);
    tutti_ddp_grains(l->ddp, &l->first_grain, &l->grains);
    tutti_pass_options pass = {
        .struct_size = sizeof pass, .samples = (int64_t)l->grains * GRAIN_SAMPLES, .grains = l->grains};
    return tutti_pass_create(l->model, &pass, &l->pass) == TUTTI_OK ? 0 : tutti_model_explain(l->model, stderr);
}

static int train(learner *l, const char *folder)
{
    const bool speaks = tutti_rank(l->world) == 0;
    const uint64_t end = l->step + STEPS;
    int status = 0;
    for (double loss; status == 0 && l->step < end;) {
        status = take_step(l, &loss);
        if (status == 0 && speaks && l->step % 100 == 0)
            printf("step %llu: loss %.4f\n", (unsigned long long)l->step, loss);
    }
    uint64_t hash = tutti_weights_hash(l->list, l->tensors);
    if (status == 0 && tutti_weights_compare(l->world, hash, NULL) != TUTTI_OK) return tutti_explain(l->world, stderr);
    if (status == 0 && speaks) printf("weights %016llx\n", (unsigned long long)hash);
    return status == 0 && speaks && folder != NULL ? save(l, folder) : status;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    learner *l = calloc(1, sizeof *l);
    const char *folder = argc > 1 ? argv[1] : NULL;
    if (l == NULL) return 1;
    l->world = world;
    int status = make(l);
    if (status == 0 && folder != NULL) status = resume(l, folder);
    if (status == 0) status = train(l, folder);
    tutti_pass_free(l->pass);
    tutti_optimizer_free(l->optimizer);
    tutti_ddp_free(l->ddp);
    tutti_model_free(l->model); /* the gradients are given back when the world is left */
    free(l);
    return status;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
