/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Batch norm in passes of one's own: against a reference in double, forward, backward and in evaluation; the same bits on 1 to
 * 8 ranks, whose grains are unequal and may be empty, on any number of threads, computed again, and cut by the width; running means and variances
 * as PyTorch has them; batches without a variance.
 */
#include "base/share.h"
#include "check_nn.h"
#include "conformance_world.h"
#include "nn_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SAMPLES = 11,
    GRAINS = 8,
    INPUTS = 6,
    WIDTH = 12,
    OUTPUTS = 3,
    STEPS = 2,
    ELEMENTS_MOST = 2048,
    STATES_MOST = 256
};

/* Samples before each grain: some have none, and so have the last ranks of 8. */
static const int64_t bounds[GRAINS + 1] = {0, 2, 2, 5, 6, 6, 10, 11, 11};

/* What a run has come to, in memory that all processes share. */
struct outcome {
    float gradients[ELEMENTS_MOST], states[STATES_MOST];
    float outputs[SAMPLES * OUTPUTS], evaluated[SAMPLES * OUTPUTS];
    double losses[GRAINS];
    tutti_status status[8];
    char text[480];
};
static struct outcome *outcome;

static struct {
    int threads;
    bool recompute, fast;
    int width_grains, tensor; /* 0: the model is not cut */
    bool sequence;
} the;

/* Batch norm of the inputs, in a residual branch, there also between two layers that ranks can cut, and behind it. */
static tutti_model *make_model(tutti_mesh *mesh)
{
    tutti_model *model = NULL;
    tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = INPUTS}, &model);
    tutti_add_batch_norm(model, "first", &(tutti_batch_norm){.momentum = 0.25});
    tutti_add_linear(model, "front", &(tutti_linear){.outputs = WIDTH});
    tutti_residual_begin(model);
    tutti_add_batch_norm(model, "inside", &(tutti_batch_norm){.epsilon = 0.01});
    tutti_add_linear(model, "wide", &(tutti_linear){.outputs = 2 * WIDTH, .activation = TUTTI_GELU});
    tutti_add_batch_norm(model, "between", NULL);
    tutti_add_linear(model, "middle", &(tutti_linear){.outputs = WIDTH});
    tutti_add_batch_norm(model, "end", NULL);
    tutti_residual_end(model);
    tutti_add_linear(model, "back", &(tutti_linear){.outputs = OUTPUTS});
    tutti_add_mse(model);
    tutti_model_seal(model);
    tutti_model_placing placing = {
        .struct_size = sizeof placing, .mesh = mesh, .width_grains = the.width_grains, .sequence = the.sequence};
    if (the.width_grains > 0) tutti_model_place(model, &placing);
    if (tutti_model_bind(model, NULL, NULL) != TUTTI_OK || tutti_model_init(model, 5) != TUTTI_OK)
        exit(tutti_model_explain(model, stdout));
    return model;
}

static size_t whole_count(const tutti_tensor *tensor)
{
    return (size_t)tensor->shape[0] * (tensor->dimensions > 1 ? (size_t)tensor->shape[1] : 1);
}

/* ---- One rank's part --------------------------------------------------------------------------------------------- */

struct part {
    tutti_mesh *mesh;
    tutti_comm *all, *comm; /* that which shares the batch */
    tutti_model *model;
    tutti_pass *pass;
    tutti_ddp *ddp;
    struct tti_span grains;
    int64_t own[GRAINS + 1];
    tutti_batch batch;
};

static void cut_batch(const tutti_batch *all, struct part *part)
{
    const int rank = tutti_rank(part->comm), size = tutti_size(part->comm);
    part->grains = tti_share(GRAINS, (size_t)rank, (size_t)size);
    const int64_t first = bounds[part->grains.lo];
    for (size_t g = part->grains.lo; g <= part->grains.hi; g++) part->own[g - part->grains.lo] = bounds[g] - first;
    part->batch = *all;
    part->batch.samples = bounds[part->grains.hi] - first;
    part->batch.inputs += first * INPUTS;
    part->batch.target_values += first * OUTPUTS;
    part->batch.grain_bounds = the.fast ? NULL : part->own;
    part->batch.grains = (int)(part->grains.hi - part->grains.lo);
    part->batch.first_sample = first;
}

static bool make_part(tutti_comm *comm, const tutti_batch *all, struct part *part)
{
    const int tensor = the.tensor > 0 ? the.tensor : 1;
    *part = (struct part){.all = comm};
    CHECK(tutti_mesh_create(comm, (const char *const[]){"data", "tensor"},
                            (const int[]){tutti_size(comm) / tensor, tensor}, 2, &part->mesh) == TUTTI_OK);
    CHECK(tutti_mesh_comm(part->mesh, "data", &part->comm) == TUTTI_OK);
    part->model = make_model(part->mesh);
    cut_batch(all, part);
    static tutti_parameter lists[8][64]; /* of ranks that are threads, or processes */
    tutti_parameter *list = lists[tutti_rank(comm)];
    const tutti_ddp_options ddp = {.struct_size = sizeof ddp, .grains = the.fast ? 0 : GRAINS};
    const tutti_pass_options options = {.struct_size = sizeof options,
                                        .samples = SAMPLES,
                                        .grains = the.fast ? 0 : part->batch.grains,
                                        .threads = the.threads,
                                        .recompute = the.recompute,
                                        .batch = part->comm,
                                        .batch_grains = the.fast ? 0 : GRAINS};
    tutti_error error = {.text = ""};
    (void)tutti_model_gradients(part->model);
    CHECK(tutti_model_list(part->model, list) == TUTTI_OK);
    part->pass = nn_pass(part->model, &options);
    return CHECK_THAT(
        tutti_ddp_create(part->comm, list, tutti_model_list_count(part->model), &ddp, &part->ddp, &error) == TUTTI_OK,
        "%s", error.text);
}

static void ready(void *context, size_t offset, size_t count)
{
    struct part *part = context;
    CHECK(tutti_ddp_ready_run(part->ddp, offset, count) == TUTTI_OK);
}

/* Of ranks that share the width, and so have the same losses and outputs. */
static bool is_first(const struct part *part)
{
    return tutti_mesh_coordinate(part->mesh, "tensor") == 0;
}

static void step(struct part *part, double *losses)
{
    tutti_loss own[GRAINS + 1];
    tutti_backward how = {.struct_size = sizeof how, .ready = ready, .context = part};
    CHECK(tutti_ddp_begin(part->ddp, true) == TUTTI_OK);
    if (!the.fast) how.subtrees = tutti_ddp_partials(part->ddp, &how.subtree_bounds, &how.gradients);
    tutti_status status = tutti_pass_forward(part->pass, &part->batch, own);
    if (status == TUTTI_OK) status = tutti_pass_backward(part->pass, &how);
    CHECK_THAT(status == TUTTI_OK, "%s", status == TUTTI_OK ? "" : tutti_model_error(part->model)->text);
    CHECK(tutti_ddp_end(part->ddp, (double)part->batch.samples, NULL) == TUTTI_OK);
    for (int g = 0; !the.fast && is_first(part) && g < part->batch.grains; g++)
        losses[part->grains.lo + (size_t)g] = own[g].sum;
}

static void note_outputs(const struct part *part, float *outputs)
{
    if (part->batch.samples > 0 && is_first(part))
        memcpy(outputs + part->batch.first_sample * OUTPUTS, tutti_pass_outputs(part->pass),
               (size_t)part->batch.samples * OUTPUTS * sizeof *outputs);
}

/* What this rank has of the gradients and states, in global shapes; ranks that have the same write the same. */
static void note_model(const struct part *part)
{
    tutti_model *model = part->model;
    const int tensors = tutti_model_tensors(model);
    size_t at = 0;
    for (int i = 0; i < tensors; i++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, i);
        tutti_tensor_put(model, i, tutti_model_gradients(model) + tensor->offset, outcome->gradients + at);
        at += whole_count(tensor);
    }
    at = 0;
    for (int i = 0; i < tutti_model_states(model); i++) {
        float *values = NULL;
        const tutti_tensor *state = tutti_model_state(model, i, &values);
        tutti_tensor_put(model, tensors + i, values, outcome->states + at);
        at += whole_count(state);
    }
}

/* All ranks have the same: rank after rank writes what it has, and what is there stays as it is. */
static void note_in_turn(const struct part *part)
{
    const int tensor = the.tensor > 0 ? the.tensor : 1;
    CHECK(tutti_barrier(part->all) == TUTTI_OK);
    for (int r = 0; r < tutti_size(part->all); r++) {
        static struct outcome before;
        if (r == tutti_rank(part->all)) {
            before = *outcome;
            note_model(part);
            CHECK_THAT(r < tensor || memcmp(&before, outcome, sizeof before) == 0, "rank %d has others", r);
        }
        CHECK(tutti_barrier(part->all) == TUTTI_OK);
    }
}

static void run(tutti_comm *comm, void *context)
{
    struct part part;
    tutti_batch all = nn_values(SAMPLES, INPUTS, OUTPUTS, 4);
    (void)context;
    if (make_part(comm, &all, &part)) {
        for (int i = 0; i < STEPS; i++) step(&part, outcome->losses);
        note_outputs(&part, outcome->outputs);
        note_in_turn(&part);
        part.batch.evaluate = true;
        tutti_loss own[GRAINS + 1];
        CHECK(tutti_pass_forward(part.pass, &part.batch, own) == TUTTI_OK);
        note_outputs(&part, outcome->evaluated);
    }
    tutti_ddp_free(part.ddp);
    tutti_pass_free(part.pass);
    tutti_model_free(part.model);
    tutti_mesh_free(part.mesh);
    nn_batch_free(&all);
}

static struct outcome run_on(enum world_ranks ranks, int size, int threads, bool recompute, bool fast)
{
    struct conf_world world = {.ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = run};
    the.threads = threads;
    the.recompute = recompute;
    the.fast = fast;
    *outcome = (struct outcome){0};
    conf_world_run(&world);
    return *outcome;
}

/* ---- The reference ----------------------------------------------------------------------------------------------- */

static bool is_near(const float *seen, const double *expected, size_t count)
{
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++)
        wrong += !(fabs((double)seen[i] - expected[i]) <= 2e-4 * (fabs(expected[i]) + 0.1));
    return wrong == 0;
}

/* Running numbers of the inputs after so many equal batches; the variance is that of samples, divided by one less. */
static void check_running(const tutti_batch *batch, const struct outcome *got)
{
    for (int i = 0; i < INPUTS; i++) {
        double mean = 0, variance = 0, running_mean = 0, running_variance = 1;
        for (int s = 0; s < SAMPLES; s++) mean += (double)batch->inputs[s * INPUTS + i] / SAMPLES;
        for (int s = 0; s < SAMPLES; s++)
            variance += pow((double)batch->inputs[s * INPUTS + i] - mean, 2) / (SAMPLES - 1);
        for (int s = 0; s < STEPS; s++) {
            running_mean = 0.75 * running_mean + 0.25 * mean;
            running_variance = 0.75 * running_variance + 0.25 * variance;
        }
        CHECK_THAT(fabs((double)got->states[i] - running_mean) < 1e-6, "mean %g", (double)got->states[i]);
        CHECK_THAT(fabs((double)got->states[INPUTS + i] - running_variance) < 1e-6, "variance %g",
                   (double)got->states[INPUTS + i]);
    }
}

static void put_states(tutti_model *model, const struct outcome *got)
{
    size_t at = 0;
    float *values = NULL;
    for (int i = 0; i < tutti_model_states(model); i++) {
        const tutti_tensor *state = tutti_model_state(model, i, &values);
        memcpy(values, got->states + at, state->count * sizeof *values);
        at += state->count;
    }
}

static void check_reference(const struct outcome *got)
{
    tutti_model *model = make_model(NULL);
    tutti_batch batch = nn_values(SAMPLES, INPUTS, OUTPUTS, 4);
    const size_t elements = tutti_model_elements(model);
    double parameters[ELEMENTS_MOST], outputs[SAMPLES * WIDTH], sum = 0;
    CHECK(elements <= ELEMENTS_MOST);
    for (size_t i = 0; i < elements; i++) parameters[i] = (double)tutti_model_values(model)[i];
    const double loss = nn_reference_loss(model, parameters, &batch, outputs);
    for (int g = 0; g < GRAINS; g++) sum += got->losses[g];
    CHECK_THAT(fabs(sum - loss) < 1e-5 * loss, "loss %g, not %g", sum, loss);
    CHECK(is_near(got->outputs, outputs, SAMPLES * OUTPUTS));
    const float *seen = got->gradients;
    for (int t = 0; t < tutti_model_tensors(model); t++) {
        const tutti_tensor *tensor = tutti_model_tensor(model, t);
        for (size_t i = 0; i < tensor->count; i++, seen++) {
            const double slope = nn_reference_slope(model, parameters, &batch, tensor->offset + i);
            CHECK_THAT(is_near(seen, &slope, 1), "%s %zu: %g, not %g", tensor->name, i, (double)*seen, slope);
        }
    }
    check_running(&batch, got);
    put_states(model, got);
    batch.evaluate = true;
    (void)nn_reference_loss(model, parameters, &batch, outputs);
    CHECK(is_near(got->evaluated, outputs, SAMPLES * OUTPUTS));
    nn_batch_free(&batch);
    tutti_model_free(model);
}

/* ---- What is demanded -------------------------------------------------------------------------------------------- */

static void same_bits(const struct outcome *wanted)
{
    for (int size = 1; size <= 8; size += 1 + (SANITIZED && size > 2)) {
        const struct outcome got = run_on(size % 2 == 0 ? WORLD_PROCESSES : WORLD_THREADS, size, 1 + size % 3,
                                          size % 3 == 1, false);
        CHECK_THAT(memcmp(&got, wanted, sizeof got) == 0, "%d ranks: other bits than one", size);
    }
}

/* In width grains, which ranks share or not, with rows shared out or not. */
static void same_width(const struct outcome *uncut)
{
    double gradients[ELEMENTS_MOST];
    the.width_grains = 4;
    const struct outcome wanted = run_on(WORLD_THREADS, 1, 1, false, false);
    for (size_t i = 0; i < ELEMENTS_MOST; i++) gradients[i] = (double)uncut->gradients[i];
    CHECK(is_near(wanted.gradients, gradients, ELEMENTS_MOST));
    for (int i = 0; i < 8; i++) {
        the.tensor = 2 + 2 * (i & 1);
        the.sequence = (i & 2) != 0;
        const struct outcome got = run_on(i % 3 == 0 ? WORLD_PROCESSES : WORLD_THREADS, the.tensor * (i < 4 ? 1 : 2), 1,
                                          (i & 2) == 0, false);
        CHECK_THAT(memcmp(&got, &wanted, sizeof got) == 0, "tensor=%d%s%s: other bits", the.tensor,
                   the.sequence ? ", rows shared out" : "", i < 4 ? "" : ", data=2");
    }
    the.width_grains = the.tensor = 0;
    the.sequence = false;
}

/* Numbers that are nearly those: a rank is one cell, and the last of five have few samples or none. */
static void nearly(const struct outcome *wanted)
{
    double gradients[ELEMENTS_MOST], evaluated[SAMPLES * OUTPUTS];
    for (size_t i = 0; i < ELEMENTS_MOST; i++) gradients[i] = (double)wanted->gradients[i];
    for (size_t i = 0; i < SAMPLES * OUTPUTS; i++) evaluated[i] = (double)wanted->evaluated[i];
    for (int size = 1; size <= 8; size += 1 + 2 * (size > 2)) {
        const struct outcome got = run_on(WORLD_THREADS, size, 1 + size % 2, false, true);
        CHECK_THAT(is_near(got.gradients, gradients, ELEMENTS_MOST), "fast on %d ranks: other gradients", size);
        CHECK_THAT(is_near(got.evaluated, evaluated, SAMPLES * OUTPUTS), "fast on %d ranks: evaluation", size);
    }
}

/* One row of all ranks has no variance, which all of them are told; none at all is no harm. */
static void run_few(tutti_comm *comm, void *context)
{
    const int rows = *(const int *)context;
    struct part part;
    tutti_batch all = nn_values(SAMPLES, INPUTS, OUTPUTS, 4);
    tutti_loss loss;
    if (make_part(comm, &all, &part)) {
        part.batch.samples = tutti_rank(comm) == 1 ? rows : 0;
        tutti_status status = tutti_pass_forward(part.pass, &part.batch, &loss);
        CHECK(status == (rows == 1 ? TUTTI_ERR_ARGUMENT : TUTTI_OK));
        CHECK(rows != 1 || strstr(tutti_model_error(part.model)->text,
                                  "layer 'first' (batch_norm): the whole batch has one row; a variance needs two"));
        CHECK(tutti_barrier(comm) == TUTTI_OK);
    }
    tutti_ddp_free(part.ddp);
    tutti_pass_free(part.pass);
    tutti_model_free(part.model);
    tutti_mesh_free(part.mesh);
    nn_batch_free(&all);
}

static void refusals(void)
{
    static const tutti_batch_norm odd[] = {{.epsilon = -1}, {.momentum = 1.5}, {.momentum = -0.1}, {.epsilon = NAN}};
    the.fast = true;
    the.threads = 1;
    the.recompute = false;
    for (int rows = 0; rows <= 2; rows++) {
        struct conf_world world = {
            .ranks = WORLD_THREADS, .size = 3, .direct = 1, .attach = 1, .body = run_few, .context = &rows};
        conf_world_run(&world);
    }
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        tutti_model *model = NULL;
        tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = INPUTS}, &model);
        CHECK(tutti_add_batch_norm(model, "norm", &odd[i]) == TUTTI_ERR_ARGUMENT);
        CHECK(strstr(tutti_model_error(model)->text, "epsilon is above 0, momentum at most 1") != NULL);
        tutti_model_free(model);
    }
}

int main(void)
{
    nn_need_blas();
    conf_begin();
    outcome = mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcome == MAP_FAILED) return 1;
    const struct outcome one = run_on(WORLD_THREADS, 1, 1, false, false);
    check_reference(&one);
    same_bits(&one);
    same_width(&one);
    nearly(&one);
    refusals();
    return check_end();
}
