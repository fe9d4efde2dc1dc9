/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts a model into stages. A unit is the part between two places at which the model may be cut; a stage is one unit or
 * several. Rank 0 measures a unit of each kind, forward and backward, on one micro-batch, and all ranks cut by its
 * figures; after a loss by those from before, so that each rank's part stays the same.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/quartile.h"
#include "base/status.h"
#include "nn/nn_kernels.h"
#include "train/trainer.h"
#include "train/trainer_pipeline.h"
#include <string.h>

/* ---- Units ----------------------------------------------------------------------------------------------------- */

struct tti_layers tti_unit_at(const tutti_model *model, int layer)
{
    struct tti_layers unit = {layer, layer + 1};
    while (unit.hi < model->layer_count && !tutti_model_cut(model, unit.hi)) unit.hi++;
    return unit;
}

int tti_units(const tutti_model *model)
{
    int count = 0;
    for (int i = 0; i < model->layer_count; i = tti_unit_at(model, i).hi) count++;
    return count;
}

static bool same_layer(const tutti_model *model, const tutti_layer *a, const tutti_layer *b)
{
    if (a->ops != b->ops || a->inputs != b->inputs || a->outputs != b->outputs || a->saved != b->saved ||
        a->tensor_count != b->tensor_count)
        return false;
    for (int t = 0; t < a->tensor_count; t++)
        if (model->tensors[a->tensors[t]].count != model->tensors[b->tensors[t]].count) return false;
    return true;
}

static bool same_unit(const tutti_model *model, struct tti_layers a, struct tti_layers b)
{
    if (a.hi - a.lo != b.hi - b.lo) return false;
    for (int i = 0; i < a.hi - a.lo; i++)
        if (!same_layer(model, model->layers[a.lo + i], model->layers[b.lo + i])) return false;
    return true;
}

/* ---- Measuring ------------------------------------------------------------------------------------------------- */

/* One unit or several by themselves: a model that has only their layers, and a batch of zeros. */
struct trial {
    tutti_model *model;
    tutti_pass *pass;
    float *memory, *tied, *sums;
    int32_t *tokens;
    int64_t *bounds;
    tutti_loss *losses;
    tutti_batch batch;
};

static void trial_free(struct trial *trial)
{
    tutti_pass_free(trial->pass);
    tutti_model_free(trial->model);
    tti_free(trial->memory);
    tti_free(trial->tied);
    tti_free(trial->sums);
    tti_free(trial->tokens);
    tti_free(trial->bounds);
    tti_free(trial->losses);
}

static bool trial_memory(struct trial *trial, struct tti_layers unit, int64_t samples, int grains)
{
    const tutti_model *model = trial->model;
    size_t rows = (size_t)(samples * model->shape.rows);
    size_t in = rows * (size_t)model->layers[unit.lo]->inputs, out = rows * (size_t)model->layers[unit.hi - 1]->outputs;
    float *memory = trial->memory = tti_calloc_aligned((2 * (in + out) + 2 * rows + 16) * sizeof(float));
    trial->tied = tti_calloc_aligned((tutti_model_tied(model) + 16) * sizeof(float));
    trial->sums = tti_calloc_aligned((tutti_model_elements(model) + 16) * sizeof(float));
    trial->tokens = tti_calloc(rows, sizeof *trial->tokens);
    trial->bounds = tti_calloc((size_t)grains + 1, sizeof *trial->bounds);
    trial->losses = tti_calloc((size_t)grains, sizeof *trial->losses);
    if (trial->memory == NULL || trial->tied == NULL || trial->sums == NULL || trial->tokens == NULL) return false;
    if (trial->bounds == NULL || trial->losses == NULL) return false;
    for (int g = 0; g <= grains; g++) trial->bounds[g] = samples / grains * g;
    trial->batch = (tutti_batch){.struct_size = sizeof(tutti_batch),
                                 .samples = samples,
                                 .grains = grains,
                                 .grain_bounds = trial->bounds,
                                 .tokens = trial->tokens,
                                 .targets = trial->tokens,
                                 .inputs = memory,
                                 .target_values = memory + 2 * (in + out),
                                 .boundary = {memory, memory + in, memory + in + out, memory + in + 2 * out}};
    return true;
}

static int64_t grain_samples(const struct tutti_trainer *t)
{
    return t->options.batch / (int64_t)t->cells;
}

/* A grain of many rows takes as long for each row as a smaller one. */
static int64_t trial_samples(const struct tutti_trainer *t)
{
    enum { ROWS = 1024 };
    const int64_t enough = ROWS / tutti_model_rows(t->model) + 1, grain = grain_samples(t);
    if (grain < 2 && tti_trainer_collects(t)) return 2; /* one row has no variance */
    return grain < enough ? grain : enough;
}

static tutti_status trial_make(const struct tutti_trainer *t, struct tti_layers unit, int grains, struct trial *trial)
{
    const int64_t samples = trial_samples(t) * grains;
    tutti_error ignored;
    TTI_TRY(tti_trainer_model(t, &trial->model, &ignored));
    if (tti_trainer_is_planned(t)) TTI_TRY(tti_trainer_cut(t, trial->model, &ignored)); /* this rank's share, alone */
    TTI_TRY(tti_model_keep(trial->model, &unit, 1));
    TTI_TRY(tutti_model_bind(trial->model, NULL, NULL));
    TTI_TRY(tutti_model_init(trial->model, 1));
    if (tutti_model_gradients(trial->model) == NULL || !trial_memory(trial, unit, samples, grains))
        return TUTTI_ERR_MEMORY;
    tutti_pass_options options = {.struct_size = sizeof options,
                                  .samples = samples,
                                  .threads = (int)t->options.threads,
                                  .grains = grains,
                                  .split = true,
                                  .first_layer = unit.lo,
                                  .end_layer = unit.hi};
    return tutti_pass_create(trial->model, &options, &trial->pass);
}

enum { TIMES_LEAST = 8, TIMES_MOST = 24 };

/* Returns true if layers should be measured once more: a few times unless that takes long, and many times if it takes
 * only a moment. */
static bool once_more(int times, int64_t spent_ns)
{
    enum { SHORT_NS = 200000000, LONG_NS = 1000000000 };
    return times == 0 || (times < TIMES_MOST && spent_ns < (times < TIMES_LEAST ? LONG_NS : SHORT_NS));
}

/* Adds up gradients as between two micro-batches, so that the caches have the same contents as there. */
static void add_gradients(struct trial *trial)
{
    const float *gradients = tutti_model_gradients(trial->model);
    tti_nn_kernels()->add(trial->sums, trial->sums, gradients, tutti_model_elements(trial->model));
}

static tutti_status trial_part(struct trial *trial, int part, double *seconds)
{
    const tutti_backward how = {.struct_size = sizeof how, .tied = &trial->tied, .parts = part};
    const int64_t began = tti_now_ns();
    const tutti_status status = part == 0 ? tutti_pass_forward(trial->pass, &trial->batch, trial->losses)
                                          : tutti_pass_backward(trial->pass, &how);
    *seconds = (double)(tti_now_ns() - began) * 1e-9;
    return status;
}

/* Returns the typical time. The first one touches new memory, and counts only if it is the only one. */
static double typical(double *seconds, int count)
{
    return count < 2 ? seconds[0] : tti_lower_quartile(seconds + 1, (size_t)count - 1);
}

tutti_status tti_layers_measure(const struct tutti_trainer *t, struct tti_layers layers, int grains,
                                tutti_pipeline_times *times)
{
    struct trial trial = {0};
    const int64_t first = tti_now_ns();
    const double scale = (double)grain_samples(t) / (double)trial_samples(t);
    double forward[TIMES_MOST], input[TIMES_MOST], weights[TIMES_MOST];
    int count = 0;
    *times = (tutti_pipeline_times){0};
    tutti_status status = trial_make(t, layers, grains, &trial);
    for (; status == TUTTI_OK && once_more(count, tti_now_ns() - first); count++) {
        add_gradients(&trial);
        status = trial_part(&trial, 0, &forward[count]);
        if (status == TUTTI_OK) status = trial_part(&trial, TUTTI_BACKWARD_INPUT, &input[count]);
        if (status == TUTTI_OK) status = trial_part(&trial, TUTTI_BACKWARD_WEIGHTS, &weights[count]);
    }
    trial_free(&trial);
    if (status != TUTTI_OK) return status;
    *times = (tutti_pipeline_times){scale * typical(forward, count), scale * typical(input, count),
                                    scale * typical(weights, count)};
    return TUTTI_OK;
}

/* Measures a unit; returns 1 if that is not possible: then all units count the same. */
static double measure(const struct tutti_trainer *t, struct tti_layers unit)
{
    tutti_pipeline_times times;
    tutti_status status = tti_layers_measure(t, unit, 1, &times);
    return status == TUTTI_OK ? times.forward + times.input + times.weights : 1;
}

bool tti_unit_is_new(const tutti_model *model, int layer, int *like)
{
    *like = 0;
    for (int i = 0; i < layer; i = tti_unit_at(model, i).hi, ++*like)
        if (same_unit(model, tti_unit_at(model, i), tti_unit_at(model, layer))) return false;
    return true;
}

static void measure_all(const struct tutti_trainer *t, double *costs)
{
    const tutti_model *model = t->model;
    for (int i = 0, unit = 0, like; i < model->layer_count; i = tti_unit_at(model, i).hi, unit++) {
        if (t->unit_costs != NULL || t->known_costs != NULL)
            costs[unit] = t->unit_costs != NULL ? t->unit_costs[unit] : t->known_costs[unit];
        else if (tti_unit_is_new(model, i, &like))
            costs[unit] = measure(t, tti_unit_at(model, i));
        else
            costs[unit] = costs[like];
    }
}

/* ---- Cutting --------------------------------------------------------------------------------------------------- */

/* Fills stages with units up to a limit, at least one each and one left for each later stage. Returns false if some
 * units are left over. */
static bool fill_stages(const double *costs, int units, int stages, double limit, int *ends)
{
    int unit = 0;
    for (int stage = 0; stage < stages; stage++) {
        double sum = costs[unit++];
        int last = units - (stages - 1 - stage); /* the units that must be left begin there */
        while (unit < last && sum + costs[unit] <= limit) sum += costs[unit++];
        if (sum > limit) return false;
        ends[stage] = unit;
    }
    return unit == units;
}

static void balance(const double *costs, int units, int stages, int *ends)
{
    enum { HALVINGS = 60 };
    double low = 0, high = 0;
    for (int i = 0; i < units; i++) high += costs[i];
    high *= 1 + 1e-9; /* however it was rounded, all of them fit into one stage */
    for (int i = 0; i < HALVINGS; i++) {
        double middle = (low + high) / 2;
        if (fill_stages(costs, units, stages, middle, ends))
            high = middle;
        else
            low = middle;
    }
    (void)fill_stages(costs, units, stages, high, ends);
}

static void set_ranges(const tutti_model *model, const int *ends, int stages, struct tti_layers *ranges)
{
    int unit = 0, layer = 0;
    for (int stage = 0; stage < stages; stage++) {
        ranges[stage].lo = layer;
        for (; unit < ends[stage]; unit++) layer = tti_unit_at(model, layer).hi;
        ranges[stage].hi = layer;
    }
}

static tutti_status cut_by_cost(struct tutti_trainer *t, int stages, struct tti_layers *ranges, tutti_error *error)
{
    int units = tti_units(t->model);
    double *costs = t->pipeline->costs = tti_calloc((size_t)units, sizeof *costs);
    int *ends = tti_calloc((size_t)stages, sizeof *ends);
    tutti_status status = costs == NULL || ends == NULL
                              ? tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to cut a model into stages")
                              : TUTTI_OK;
    status = tti_agree(tti_trainer_comm(t), status, error);
    if (status == TUTTI_OK) {
        if (t->world_rank == t->teacher || tti_trainer_is_planned(t)) measure_all(t, costs);
    }
    if (status == TUTTI_OK && !tti_trainer_is_planned(t)) {
        status = tutti_broadcast(tti_inside(tti_trainer_comm(t), "trainer", "what layers cost"), costs, costs,
                                 (size_t)units, TUTTI_F64, t->teacher);
        if (status != TUTTI_OK) *error = *tutti_comm_error(t->comm);
    }
    if (status == TUTTI_OK) {
        balance(costs, units, stages, ends);
        set_ranges(t->model, ends, stages, ranges);
    }
    tti_free(ends);
    return status;
}

/* Returns the layer with that name, of `length` bytes; -1: there is none. */
static int find_layer(const tutti_model *model, const char *name, size_t length)
{
    for (int i = 0; i < model->layer_count; i++)
        if (strlen(model->layers[i]->name) == length && strncmp(model->layers[i]->name, name, length) == 0) return i;
    return -1;
}

/* Cuts at the given layers: "h.1.ln_1,ln_f" says where each stage but the first begins. */
static tutti_status cut_as_given(const struct tutti_trainer *t, int stages, struct tti_layers *ranges,
                                 tutti_error *error)
{
    const char *word = t->options.stages;
    ranges[0].lo = 0;
    for (int stage = 1; stage < stages || *word != '\0'; stage++) {
        size_t length = strcspn(word, ",");
        int layer = find_layer(t->model, word, length);
        if (stage >= stages || length == 0)
            return tti_error_set(
                error, TUTTI_ERR_OPTION, 0,
                "stages %.200s: %d stages need the name%s of %d layer%s, where each but the first begins",
                t->options.stages, stages, stages == 2 ? "" : "s", stages - 1, stages == 2 ? "" : "s");
        if (layer <= ranges[stage - 1].lo || !tutti_model_cut(t->model, layer))
            return tti_error_set(error, TUTTI_ERR_OPTION, 0, "stages %.200s: no stage can begin with '%.*s': %s",
                                 t->options.stages, (int)length, word,
                                 layer < 0                       ? "the model has no layer of that name"
                                 : layer <= ranges[stage - 1].lo ? "it comes no later than the one before"
                                                                 : "it is in the middle of a residual branch");
        ranges[stage - 1].hi = ranges[stage].lo = layer;
        word += length + (word[length] == ',');
    }
    ranges[stages - 1].hi = t->model->layer_count;
    return TUTTI_OK;
}

tutti_status tti_stages_fit(const struct tutti_trainer *t, int pipe, int chunks, tutti_error *error)
{
    const int units = tti_units(t->model), most = units / chunks;
    char fewer[32] = "";
    if ((int64_t)pipe * chunks <= units) return TUTTI_OK;
    if (most > 0) (void)snprintf(fewer, sizeof fewer, "; pipe=%d at most", most);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "pipe=%d × %d chunk%s is %lld stages; this model can be cut into %d%s", pipe, chunks,
                         chunks == 1 ? "" : "s", (long long)pipe * chunks, units, fewer);
}

tutti_status tti_stages_cut(struct tutti_trainer *t, int stages, struct tti_layers *ranges, tutti_error *error)
{
    const int pipe = t->mesh.sizes[TTI_MESH_PIPE];
    TTI_TRY(tti_stages_fit(t, pipe, stages / pipe, error));
    if (t->options.stages[0] != '\0') return cut_as_given(t, stages, ranges, error);
    return cut_by_cost(t, stages, ranges, error);
}
