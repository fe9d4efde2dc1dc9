/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimates the time and the needs of a step of a layout, from planned trainers of all its ranks. A step consists of
 * the passes, in which the slowest ranks count, and then, on each rank, sums of gradients, the norm, the update and new
 * values. Nothing is assumed to go on at the same time as something else: ranks move their data themselves.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "nn/pass.h"
#include "train/ddp.h"
#include "train/pipeline_table.h"
#include "train/train_traffic.h"
#include <math.h>
#include <string.h>

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* ---- Passes ---------------------------------------------------------------------------------------------------- */

static double weights_of(const tutti_model *model, int from, int to)
{
    double count = 0;
    for (int i = from; i < to; i++)
        for (int n = 0; n < model->layers[i]->tensor_count; n++)
            count += (double)model->tensors[model->layers[i]->tensors[n]].count;
    return count;
}

/* Returns the share of a unit's forward that backward makes again with recompute, by the weights of its layers. */
static double remade_share(const tutti_model *model, struct tti_layers unit)
{
    double remade = 0;
    for (int i = unit.lo; i < unit.hi; i++) {
        const int last = model->layers[i]->add_to;
        if (last < 0) continue;
        remade += weights_of(model, i, tti_pass_remade_end(model, i, last));
        i = last;
    }
    return remade > 0 ? remade / weights_of(model, unit.lo, unit.hi) : 0;
}

/* Returns a unit's times for so many grains, which the rank has in one pass. */
static tutti_pipeline_times unit_times(const tutti_train_costs *costs, int unit, double grains)
{
    const tutti_pipeline_times *one = &costs->units[unit], *more = &costs->further;
    const double others = most(grains - 1, 0);
    return (tutti_pipeline_times){one->forward * (grains + others * more->forward),
                                  one->input * (grains + others * more->input),
                                  one->weights * (grains + others * more->weights)};
}

/* Returns the times of the layers alone, for so many samples. If backward is in two parts, each of them makes branches
 * again. */
static tutti_pipeline_times layer_times(const struct tutti_trainer *t, const tutti_train_costs *costs,
                                        struct tti_layers layers, double samples, bool split)
{
    const tutti_model *model = t->model;
    const double grain = (double)(t->options.batch / (int64_t)t->cells), grains = samples / (grain > 0 ? grain : 1);
    tutti_pipeline_times times = {0};
    for (int i = 0, unit = 0; i < layers.hi && (size_t)unit < costs->unit_count; i = tti_unit_at(model, i).hi, unit++) {
        if (i < layers.lo) continue;
        const tutti_pipeline_times all = unit_times(costs, unit, grains);
        const double again = t->options.recompute ? all.forward * remade_share(model, tti_unit_at(model, i)) : 0;
        times.forward += all.forward;
        times.input += all.input + again;
        times.weights += all.weights + (split ? again : 0);
    }
    return times;
}

/* Returns the bytes between a layer and the next one, which is in another stage. */
static size_t boundary_bytes(const tutti_model *model, int layer, double rows)
{
    const tutti_layer *last = model->layers[layer];
    const double here = last->sliced_out ? rows / model->width.ranks : rows;
    return (size_t)(here * (double)last->outputs) * sizeof(float);
}

/* Returns the times of a stage for one micro-batch of so many samples, with meetings, and messages to the next and last
 * stage. Without a pipe the stage is 0, and has all of the model. */
static tutti_pipeline_times times_of(const struct tutti_trainer *t, const tutti_train_costs *costs, int stage,
                                     double samples, struct tti_train_traffic *traffic)
{
    const struct tti_trainer_pipeline *p = t->pipeline;
    const tutti_model *model = t->model;
    const struct tti_layers layers = p == NULL ? (struct tti_layers){0, model->layer_count} : p->ranges[stage];
    const double rows = samples * (double)tutti_model_rows(model), before = traffic->seconds;
    traffic->trainer = t;
    traffic->pipe = p == NULL ? 0 : tutti_pipeline_rank(p->table, stage, NULL);
    const bool split = p != NULL && tti_trainer_pipeline_splits(p, traffic->pipe);
    tutti_pipeline_times times = layer_times(t, costs, layers, samples, split);
    tti_traffic_forward(traffic, layers, rows);
    if (layers.hi < model->layer_count)
        tti_traffic_send(traffic, tutti_pipeline_rank(p->table, stage + 1, NULL),
                         boundary_bytes(model, layers.hi - 1, rows));
    const double between = traffic->seconds;
    tti_traffic_backward(traffic, layers, rows);
    if (layers.lo > 0)
        tti_traffic_send(traffic, tutti_pipeline_rank(p->table, stage - 1, NULL),
                         boundary_bytes(model, layers.lo - 1, rows));
    if (t->options.recompute) tti_traffic_again(traffic, layers, rows);
    const double behind = traffic->seconds;
    if (t->options.recompute && split) tti_traffic_again(traffic, layers, rows);
    const double step = p == NULL ? 0 : costs->step;
    times.forward += between - before + step;
    times.input += behind - between + step;
    times.weights += traffic->seconds - behind + (split ? step : 0);
    return times;
}

static double sum_of(tutti_pipeline_times times)
{
    return times.forward + times.input + times.weights;
}

/* Returns how many samples of the batch the rank has. */
static double samples_of(const struct tutti_trainer *t)
{
    const struct tti_span samples = tti_cells_samples(t, t->mine);
    return (double)(samples.hi - samples.lo);
}

/* Returns the passes of a step, for a model that is in one piece. */
static double rounds_of(const struct tutti_trainer *t)
{
    if (t->options.zero >= 2) return (double)t->passes;
    return t->micros.count > 0 ? (double)t->micros.count : (double)t->options.accumulate;
}

struct passes {
    double seconds; /* of all passes of a step */
    double idle;    /* the idle share */
};

/* For a pipe: runs the table with the times of its stages. `spans` may be NULL. */
static tutti_status run_table(const struct tutti_trainer *t, const tutti_train_costs *costs, tutti_pipeline_span *spans,
                              struct passes *passes, tutti_error *error)
{
    const struct tti_trainer_pipeline *p = t->pipeline;
    const double runs = (double)t->options.accumulate, samples = samples_of(t) / (runs * p->about.micros);
    tutti_pipeline_times *times = tti_calloc((size_t)p->about.stages, sizeof *times);
    tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict, .spans = spans};
    if (times == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the times of stages");
    for (int stage = 0; stage < p->about.stages; stage++) {
        struct tti_train_traffic ignored = {.costs = costs};
        times[stage] = times_of(t, costs, stage, samples, &ignored);
    }
    tutti_status status = tutti_pipeline_check(p->table, times, (size_t)p->about.stages, &verdict, error);
    tti_free(times);
    *passes = (struct passes){runs * verdict.makespan, verdict.idle};
    return status;
}

static tutti_status time_passes(const struct tutti_trainer *t, const tutti_train_costs *costs, struct passes *passes,
                                tutti_error *error)
{
    if (t->pipeline != NULL) return run_table(t, costs, NULL, passes, error);
    struct tti_train_traffic ignored = {.costs = costs};
    const double rounds = rounds_of(t);
    *passes = (struct passes){rounds * sum_of(times_of(t, costs, 0, samples_of(t) / rounds, &ignored)), 0};
    return TUTTI_OK;
}

/* ---- One rank -------------------------------------------------------------------------------------------------- */

/* Counts the data that are sent in the passes; their time is in the passes' time already. */
static void count_passes(const struct tutti_trainer *t, const tutti_train_costs *costs,
                         struct tti_train_traffic *traffic)
{
    const struct tti_trainer_pipeline *p = t->pipeline;
    const double rounds = p == NULL ? rounds_of(t) : (double)t->options.accumulate * p->about.micros;
    struct tti_train_traffic one = {.costs = costs};
    for (int chunk = 0; chunk < (p == NULL ? 1 : p->about.chunks); chunk++) {
        const int stage = p == NULL ? 0 : tutti_pipeline_stage(p->table, t->mesh.at[TTI_MESH_PIPE], chunk);
        (void)times_of(t, costs, stage, samples_of(t) / rounds, &one);
    }
    traffic->operations += (size_t)((double)one.operations * rounds);
    traffic->sent_bytes += one.sent_bytes * rounds;
}

static double update_seconds(const struct tutti_trainer *t, const tutti_train_costs *costs)
{
    const size_t owned = t->options.zero > 0 ? t->ddp->zero.elements : t->elements;
    size_t adds = 0, added = t->elements;
    for (int i = 0; t->micros.count > 0 && i < t->micros.first[t->micros.count]; i++)
        adds += t->micros.work[i].from >= 0;
    if (t->options.zero >= 2) {
        adds = (size_t)(t->ddp->pass_count - 1);
        added = owned;
    }
    const size_t tied = t->tie.owns ? t->tie.elements : 0;
    return costs->update * (double)owned + costs->add * (double)(adds * added + tied);
}

/* Sums over ranks. */
struct sums {
    double after;   /* the time after the passes: the longest */
    double busy;    /* busy time of all ranks */
    double working; /* time in passes, of all ranks */
};

static tutti_status add_rank(const struct tutti_trainer *t, const tutti_train_costs *costs, struct sums *sums,
                             tutti_train_estimate *estimate, tutti_error *error)
{
    struct tti_train_traffic traffic = {.costs = costs, .trainer = t, .pipe = t->mesh.at[TTI_MESH_PIPE]};
    struct passes passes = {0};
    tutti_train_about about;
    tutti_trainer_describe(t, &about);
    if (tti_about_bytes(&about) > estimate->bytes) {
        estimate->memory = about;
        estimate->memory.resumed_from = NULL;
        estimate->bytes = tti_about_bytes(&about);
        estimate->rank = t->world_rank;
    }
    TTI_TRY(time_passes(t, costs, &passes, error));
    tti_traffic_batch(&traffic);
    const double update = update_seconds(t, costs);
    if (traffic.seconds + update > sums->after) {
        sums->after = traffic.seconds + update;
        estimate->update_seconds = update;
        estimate->comm_seconds = traffic.seconds;
    }
    estimate->compute_seconds = most(estimate->compute_seconds, passes.seconds);
    sums->working += passes.seconds * (1 - passes.idle);
    sums->busy += passes.seconds * (1 - passes.idle) + update + traffic.seconds;
    count_passes(t, costs, &traffic);
    if (traffic.operations > estimate->operations) estimate->operations = traffic.operations;
    estimate->sent_bytes = most(estimate->sent_bytes, traffic.sent_bytes);
    return TUTTI_OK;
}

/* ---- All of them ----------------------------------------------------------------------------------------------- */

/* For a trainer with a pipe: writes "h.1.ln_1,ln_f". */
static void name_stages(const struct tutti_trainer *t, char text[TUTTI_TRAIN_STAGES_BYTES])
{
    size_t used = 0;
    for (int stage = 1; t->pipeline != NULL && stage < t->pipeline->about.stages; stage++) {
        const char *name = t->model->layers[t->pipeline->ranges[stage].lo]->name;
        int wrote = snprintf(text + used, TUTTI_TRAIN_STAGES_BYTES - used, "%s%s", stage > 1 ? "," : "", name);
        used += (size_t)wrote;
        if (used >= TUTTI_TRAIN_STAGES_BYTES) { /* without the text the trainer balances them itself */
            text[0] = '\0';
            return;
        }
    }
}

static double *unit_sums(const tutti_train_costs *costs)
{
    double *sums = tti_calloc(costs->unit_count + 1, sizeof *sums);
    for (size_t i = 0; sums != NULL && i < costs->unit_count; i++) sums[i] = sum_of(costs->units[i]);
    return sums;
}

static tutti_status check_units(const struct tutti_trainer *t, const tutti_train_costs *costs, tutti_error *error)
{
    const int units = tti_units(t->model);
    if (costs->unit_count == (size_t)units) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "costs of %zu units are given; the model has %d",
                         costs->unit_count, units);
}

/* Finds the copies' memory on the rank that needs most. It is not in that rank's sum: there are copies only if lost
 * ranks are started again. */
static tutti_status find_copies(const tutti_train_options *options, int ranks, const double *unit_costs,
                                tutti_train_estimate *estimate, tutti_error *error)
{
    tutti_train_about about;
    TTI_TRY(tti_trainer_plan_healing(options, ranks, estimate->rank, unit_costs, &about, error));
    estimate->memory.copy_bytes = about.copy_bytes;
    return TUTTI_OK;
}

static tutti_status estimate_ranks(const tutti_train_options *options, int ranks, const tutti_train_costs *costs,
                                   const double *unit_costs, tutti_train_estimate *estimate, tutti_error *error)
{
    struct sums sums = {0};
    tutti_status status = TUTTI_OK;
    for (int rank = 0; status == TUTTI_OK && rank < ranks; rank++) {
        struct tutti_trainer *t = NULL;
        status = tti_trainer_plan(options, ranks, rank, unit_costs, &t, error);
        if (status == TUTTI_OK) status = check_units(t, costs, error);
        if (status == TUTTI_OK) status = add_rank(t, costs, &sums, estimate, error);
        if (status == TUTTI_OK && rank == 0) name_stages(t, estimate->stages);
        tutti_trainer_free(t);
    }
    TTI_TRY(status);
    TTI_TRY(find_copies(options, ranks, unit_costs, estimate, error));
    if (estimate->compute_seconds > 0) estimate->idle = most(1 - sums.working / (estimate->compute_seconds * ranks), 0);
    estimate->seconds = estimate->compute_seconds + sums.after;
    if (costs->cores > 0 && (int64_t)costs->cores < ranks * options->threads) /* the ranks take turns */
        estimate->seconds = most(estimate->seconds, sums.busy * (double)options->threads / costs->cores);
    return TUTTI_OK;
}

static tutti_status check_arguments(const tutti_train_options *options, int ranks, const tutti_train_costs *costs,
                                    bool given, tutti_error *error)
{
    if (options != NULL && ranks >= 1 && costs != NULL && given && (costs->units != NULL || costs->unit_count == 0))
        return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "an estimate needs options, costs, a place to go and 1 rank or more: these are %d", ranks);
}

tutti_status tutti_train_estimate_layout(const tutti_train_options *options, int ranks, const tutti_train_costs *costs,
                                         tutti_train_estimate *estimate, tutti_error *error)
{
    tutti_error unused;
    if (error == NULL) error = &unused;
    *error = (tutti_error){.peer = -1, .operation = "train_estimate"};
    TTI_TRY(check_arguments(options, ranks, costs, estimate != NULL, error));
    *estimate = (tutti_train_estimate){.struct_size = sizeof *estimate};
    double *unit_costs = unit_sums(costs);
    tutti_status status = unit_costs == NULL
                              ? tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the costs of units")
                              : estimate_ranks(options, ranks, costs, unit_costs, estimate, error);
    tti_free(unit_costs);
    return status;
}

/* ---- The picture ----------------------------------------------------------------------------------------------- */

static tutti_status draw_table(const struct tutti_trainer *t, const tutti_train_costs *costs, const char *title,
                               FILE *stream, tutti_error *error)
{
    struct passes passes;
    tutti_pipeline_span *spans = tti_calloc(t->pipeline->about.steps, sizeof *spans);
    tutti_status status = spans == NULL ? tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a picture")
                                        : run_table(t, costs, spans, &passes, error);
    const int pipe = t->mesh.sizes[TTI_MESH_PIPE], pipes = t->world_size / pipe;
    char ranks[80], about[TTI_PIPELINE_ABOUT];
    (void)snprintf(ranks, sizeof ranks, "%d ranks", pipe);
    if (pipes > 1) (void)snprintf(ranks, sizeof ranks, "the %d ranks of one of %d pipes, which are alike", pipe, pipes);
    (void)tti_pipeline_about(t->pipeline->table, ranks, about);
    if (status == TUTTI_OK) tti_pipeline_picture(t->pipeline->table, spans, title, about, stream);
    tti_free(spans);
    return status;
}

/* Adds the passes of one rank, one after the other, to its row. */
static tutti_status add_row(const struct tutti_trainer *t, const tutti_train_costs *costs, int rounds,
                            tutti_pipeline *rows, tutti_pipeline_span *spans, tutti_error *error)
{
    struct tti_train_traffic ignored = {.costs = costs};
    const double own = rounds_of(t), samples = samples_of(t) / own;
    const tutti_pipeline_times times = times_of(t, costs, 0, samples, &ignored);
    double at = 0;
    for (int i = 0; i < (int)own && i < rounds; i++) {
        TTI_TRY(tutti_pipeline_add(rows, t->world_rank, (tutti_pipeline_step){TUTTI_PIPELINE_FORWARD, 0, i}, error));
        TTI_TRY(tutti_pipeline_add(rows, t->world_rank, (tutti_pipeline_step){TUTTI_PIPELINE_BACKWARD, 0, i}, error));
        *spans++ = (tutti_pipeline_span){at, at + times.forward};
        *spans++ = (tutti_pipeline_span){at + times.forward, at + sum_of(times)};
        at += sum_of(times);
    }
    return TUTTI_OK;
}

static tutti_status draw_rows(const tutti_train_options *options, int ranks, const tutti_train_costs *costs, int rounds,
                              const char *title, FILE *stream, tutti_error *error)
{
    tutti_pipeline *rows = NULL;
    tutti_pipeline_span *spans = tti_calloc(2 * (size_t)ranks * (size_t)rounds, sizeof *spans);
    tutti_status status = spans == NULL ? tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a picture")
                                        : tutti_pipeline_create(ranks, 1, rounds, NULL, &rows, error);
    for (int rank = 0; status == TUTTI_OK && rank < ranks; rank++) {
        struct tutti_trainer *t = NULL;
        status = tti_trainer_plan(options, ranks, rank, NULL, &t, error);
        if (status == TUTTI_OK) status = add_row(t, costs, rounds, rows, spans + 2 * rank * rounds, error);
        tutti_trainer_free(t);
    }
    char about[TTI_PIPELINE_ABOUT];
    (void)snprintf(about, sizeof about, "%d rank%s, %d pass%s", ranks, ranks == 1 ? "" : "s", rounds,
                   rounds == 1 ? "" : "es");
    if (status == TUTTI_OK) tti_pipeline_picture(rows, spans, title, about, stream);
    tutti_pipeline_free(rows);
    tti_free(spans);
    return status;
}

tutti_status tutti_train_picture(const tutti_train_options *options, int ranks, const tutti_train_costs *costs,
                                 const char *title, FILE *stream, tutti_error *error)
{
    tutti_error unused;
    if (error == NULL) error = &unused;
    *error = (tutti_error){.peer = -1, .operation = "train_picture"};
    TTI_TRY(check_arguments(options, ranks, costs, title != NULL && stream != NULL, error));
    struct tutti_trainer *t = NULL;
    double *unit_costs = unit_sums(costs);
    tutti_status status = unit_costs == NULL
                              ? tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the costs of units")
                              : tti_trainer_plan(options, ranks, 0, unit_costs, &t, error);
    if (status == TUTTI_OK) status = check_units(t, costs, error);
    if (status == TUTTI_OK)
        status = t->pipeline != NULL ? draw_table(t, costs, title, stream, error)
                                     : draw_rows(options, ranks, costs, (int)rounds_of(t), title, stream, error);
    tutti_trainer_free(t);
    tti_free(unit_costs);
    return status;
}
