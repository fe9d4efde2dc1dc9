/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=180 labels=asan,tsan
 *
 * Training on a mesh of data and tensor: every pair of sizes of 1 to 8 ranks gives the losses, norms, weights and states of
 * the optimizer of one rank, bit for bit, with dropout and clipping.
 */
#include "check_nn.h"
#include "conformance_world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STEPS = 3, GRAINS = 8, WIDTH_GRAINS = 8, SAMPLES = 8 };

static const tutti_gpt gpt = {.layers = 2,
                              .heads = 8,
                              .width = 40,
                              .context = 7,
                              .vocabulary = 203,
                              .dropout = 0.1}; /* blocks: some tensors have two */

struct outcome {
    double losses[STEPS], norms[STEPS];
    uint64_t hash, states[2];
};
static struct outcome *alone; /* in memory that all processes share */

struct learner {
    tutti_comm *data;
    tutti_model *model;
    tutti_parameter *list;
    size_t count;
    tutti_ddp *ddp;
    tutti_optimizer *optimizer;
    tutti_pass *pass;
    int first, grains; /* of this rank */
};

static bool worked(const struct learner *l, tutti_status status)
{
    const tutti_error *why = tutti_model_error(l->model);
    return CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), why == NULL ? "" : why->text);
}

static bool make(struct learner *l, tutti_mesh *mesh)
{
    tutti_model_placing placing = {.struct_size = sizeof placing, .mesh = mesh, .width_grains = WIDTH_GRAINS};
    tutti_ddp_options options = {.struct_size = sizeof options, .grains = GRAINS};
    tutti_optimizer_settings settings;
    tutti_error error = {0};
    if (!worked(l, tutti_mesh_comm(mesh, "data", &l->data)) || !worked(l, tutti_gpt_create(&gpt, &l->model)) ||
        !worked(l, tutti_model_place(l->model, &placing)) || !worked(l, tutti_model_bind(l->model, NULL, NULL)) ||
        !worked(l, tutti_model_init(l->model, 5)))
        return false;
    l->count = tutti_model_list_count(l->model);
    l->list = calloc(l->count, sizeof *l->list);
    tutti_status status = tutti_model_list(l->model, l->list);
    if (status == TUTTI_OK) status = tutti_ddp_create(l->data, l->list, l->count, &options, &l->ddp, &error);
    if (status == TUTTI_OK) status = tutti_optimizer_defaults("adamw", &settings, &error);
    if (status == TUTTI_OK) status = tutti_optimizer_create(&settings, l->list, l->count, &l->optimizer, &error);
    if (!CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error.text)) return false;
    tutti_ddp_grains(l->ddp, &l->first, &l->grains);
    tutti_pass_options pass = {.struct_size = sizeof pass, .samples = l->grains, .grains = l->grains};
    return worked(l, tutti_pass_create(l->model, &pass, &l->pass));
}

struct ready {
    tutti_ddp *ddp;
    tutti_status status;
};

static void on_ready(void *context, size_t offset, size_t count)
{
    struct ready *ready = context;
    if (ready->status == TUTTI_OK) ready->status = tutti_ddp_ready_run(ready->ddp, offset, count);
}

/* A sample is a grain. */
static bool take_step(struct learner *l, int step, struct outcome *outcome)
{
    int64_t bounds[GRAINS + 1];
    tutti_loss losses[GRAINS];
    double sums[2 * GRAINS], all[2 * GRAINS];
    tutti_batch batch = nn_tokens(SAMPLES, gpt.context, (int32_t)gpt.vocabulary, (uint64_t)step);
    tutti_batch mine = batch;
    for (int g = 0; g <= l->grains; g++) bounds[g] = g;
    mine.samples = mine.grains = l->grains;
    mine.tokens += l->first * gpt.context;
    mine.targets += l->first * gpt.context;
    mine.grain_bounds = bounds;
    mine.first_sample = l->first;
    mine.step = (uint64_t)step;
    struct ready ready = {.ddp = l->ddp};
    tutti_backward how = {.struct_size = sizeof how, .ready = on_ready, .context = &ready};
    bool good = worked(l, tutti_ddp_begin(l->ddp, true));
    how.subtrees = tutti_ddp_partials(l->ddp, &how.subtree_bounds, &how.gradients);
    good = good && worked(l, tutti_pass_forward(l->pass, &mine, losses));
    good = good && worked(l, tutti_pass_backward(l->pass, &how)) && worked(l, ready.status);
    good = good && worked(l, tutti_ddp_end(l->ddp, 0, NULL));
    nn_batch_free(&batch);
    if (!good) return false;
    size_t counts[GRAINS] = {0}, at = 0;
    for (int r = 0; r < tutti_size(l->data); r++)
        counts[r] = (size_t)(2 * (GRAINS / tutti_size(l->data) + (r < GRAINS % tutti_size(l->data))));
    for (int g = 0; g < l->grains; g++) {
        sums[at++] = losses[g].sum;
        sums[at++] = losses[g].count;
    }
    good = worked(l, tutti_all_gather_v(l->data, sums, all, counts, NULL, TUTTI_F64));
    double total = 0, count = 0, norm = 0;
    for (int g = 0; g < GRAINS; g++) {
        total += all[2 * g];
        count += all[2 * g + 1];
    }
    good = good && worked(l, tutti_model_norm(l->model, &norm));
    outcome->losses[step] = total / count;
    outcome->norms[step] = norm / count;
    const double clip = 0.5 * count / norm;
    tutti_optimizer_step(l->optimizer, 0.01, (clip < 1 ? clip : 1) / count);
    return good;
}

/* The optimizer's state in place of the values, so that it can be hashed as they are. */
static bool hash_states(struct learner *l, struct outcome *outcome)
{
    float *state = NULL;
    bool good = true;
    for (int s = 0; s < 2 && tutti_optimizer_state(l->optimizer, s, &state) != NULL; s++) {
        memcpy(tutti_model_values(l->model), state, tutti_model_elements(l->model) * sizeof *state);
        good = worked(l, tutti_model_hash(l->model, &outcome->states[s])) && good;
    }
    return good;
}

static void run_mesh(tutti_comm *comm, void *context)
{
    static const char *const names[] = {"data", "tensor"};
    const int tensor = *(const int *)context, data = tutti_size(comm) / tensor;
    struct learner l = {0};
    struct outcome outcome = {0};
    tutti_mesh *mesh = NULL;
    bool good = CHECK_THAT(tutti_mesh_create(comm, names, (const int[]){data, tensor}, 2, &mesh) == TUTTI_OK, "a mesh");
    good = good && make(&l, mesh);
    for (int step = 0; good && step < STEPS; step++) good = take_step(&l, step, &outcome);
    good = good && worked(&l, tutti_model_hash(l.model, &outcome.hash)) && hash_states(&l, &outcome);
    if (good && tutti_size(comm) == 1) *alone = outcome;
    CHECK_THAT(good && memcmp(&outcome, alone, sizeof outcome) == 0,
               "data=%d,tensor=%d: loss %.17g, norm %.17g, hash %016llx; alone %.17g, %.17g, %016llx", data, tensor,
               outcome.losses[STEPS - 1], outcome.norms[STEPS - 1], (unsigned long long)outcome.hash,
               alone->losses[STEPS - 1], alone->norms[STEPS - 1], (unsigned long long)alone->hash);
    tutti_pass_free(l.pass);
    tutti_optimizer_free(l.optimizer);
    tutti_ddp_free(l.ddp);
    tutti_model_free(l.model);
    free(l.list);
    tutti_mesh_free(mesh);
}

static void run(enum world_ranks ranks, int size, int tensor)
{
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = run_mesh, .context = &tensor};
    conf_world_run(&world);
}

int main(void)
{
    nn_need_blas();
    alone = mmap(NULL, sizeof *alone, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    conf_begin();
    CHECK_THAT(alone != MAP_FAILED, "memory");
    for (int size = 1; size <= 8; size++)
        for (int tensor = 1; tensor <= WIDTH_GRAINS; tensor *= 2)
            if (size % tensor == 0) run(WORLD_THREADS, size, tensor);
    run(WORLD_PROCESSES, 4, 2);
    return check_end();
}
