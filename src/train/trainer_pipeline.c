/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of a model that is cut into stages. Micro-batches are those of micro.h, so sums over grains are in the
 * canonical tree whatever the table; the table's weights must come in the order of micro-batches, which is checked.
 * Validation runs the same table with backward steps that do nothing.
 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer_pipeline.h"

#include "base/alloc.h"
#include "base/status.h"
#include "nn/sequence.h"
#include "train/ddp.h"
#include "train/pipeline_run.h"
#include "train/pipeline_table.h"
#include "train/trainer.h"
#include <errno.h>
#include <string.h>

/* ---- The table ------------------------------------------------------------------------------------------------- */

const char *tti_trainer_table(const struct tutti_trainer *t)
{
    return t->options.pipeline[0] == '\0' ? "1f1b" : t->options.pipeline;
}

static bool is_named(const char *name)
{
    for (size_t i = 0; tutti_pipeline_names(i) != NULL; i++)
        if (strcmp(tutti_pipeline_names(i), name) == 0) return true;
    return false;
}

static int64_t rank_grains(const struct tutti_trainer *t)
{
    return ((int64_t)t->cells + t->size - 1) / t->size;
}

/* Returns the most micro-batches that a rank can have: by its grains, and how often it runs the table in a step. */
static int64_t most_micros(const struct tutti_trainer *t)
{
    return rank_grains(t) / t->options.accumulate;
}

static int64_t usual_micros(const struct tutti_trainer *t, const char *name)
{
    int64_t pipe = t->mesh.sizes[TTI_MESH_PIPE], micros = most_micros(t);
    if (micros > 4 * pipe) micros = 4 * pipe;
    if (strcmp(name, "interleaved") == 0 && micros > pipe) micros -= micros % pipe;
    return micros < 1 ? 1 : micros;
}

/* Writes the options that give a rank so many micro-batches: "--grains 16 --batch 16". */
static const char *enough_grains(const struct tutti_trainer *t, int64_t micros, char text[80])
{
    const int64_t needed = micros * t->options.accumulate * t->size;
    int used = snprintf(text, 80, "--grains %lld", (long long)needed);
    if (needed > t->options.batch) (void)snprintf(text + used, 80 - (size_t)used, " --batch %lld", (long long)needed);
    return text;
}

/* Refuses the number of micro-batches, which come in groups of `group`, and says which numbers would do. */
static tutti_status too_many_micros(const struct tutti_trainer *t, int64_t micros, int64_t group, tutti_error *error)
{
    const int64_t each = t->options.accumulate, most = most_micros(t) / group * group,
                  wanted = (micros + group - 1) / group * group;
    char fewer[48] = "", more[48] = "", grains[80];
    if (most > 0) (void)snprintf(fewer, sizeof fewer, "--micro %lld or ", (long long)most);
    if (wanted != micros) (void)snprintf(more, sizeof more, "--micro %lld ", (long long)wanted);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "%lld micro-batch%s in each of %lld pass%s are more than the %lld grain%s of a rank; "
                         "%s%s%s allows it",
                         (long long)micros, micros == 1 ? "" : "es", (long long)each, each == 1 ? "" : "es",
                         (long long)rank_grains(t), rank_grains(t) == 1 ? "" : "s", fewer, more,
                         enough_grains(t, wanted, grains));
}

/* Refuses micro-batches that do not go into groups, and says which numbers would do. */
static tutti_status no_groups(const struct tutti_trainer *t, int64_t micros, int64_t group, tutti_error *error)
{
    const int64_t below = micros / group * group, above = below + group;
    char smaller[32] = "", grains[80], with[96] = "";
    if (below > 0) (void)snprintf(smaller, sizeof smaller, "%lld or ", (long long)below);
    if (above > most_micros(t)) (void)snprintf(with, sizeof with, " with %s", enough_grains(t, above, grains));
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "%s: %lld micro-batch%s no multiple of pipe=%lld; %s%lld%s would do", tti_trainer_table(t),
                         (long long)micros, micros == 1 ? " is" : "es are", (long long)group, smaller, (long long)above,
                         with);
}

/* Makes a table with a name, after checking the stages, then the grains, and then if micro-batches go into groups. */
static tutti_status build_table(struct tutti_trainer *t, struct tti_trainer_pipeline *made, tutti_error *error)
{
    const char *name = tti_trainer_table(t);
    const int pipe = t->mesh.sizes[TTI_MESH_PIPE];
    const int64_t micros = t->options.micro > 0 ? t->options.micro : usual_micros(t, name),
                  group = strcmp(name, "interleaved") == 0 ? pipe : 1;
    TTI_TRY(tti_stages_fit(t, pipe, tti_pipeline_usual_chunks(name), error));
    if (micros > most_micros(t)) return too_many_micros(t, micros, group, error);
    if (micros % group != 0) return no_groups(t, micros, group, error);
    return tutti_pipeline_build(name, pipe, 0, (int)micros, &made->table, error);
}

/* Reads a table from a file. */
static tutti_status read_file(const char *path, tutti_pipeline **table, tutti_error *error)
{
    tutti_error why;
    tutti_status status = tutti_pipeline_read(path, table, &why);
    if (status == TUTTI_OK) return TUTTI_OK;
    return tti_error_set(error, status, 0,
                         "pipeline %.80s: it is none of gpipe, 1f1b, interleaved, zb-h1, zb-v, nor a file with a "
                         "table: %.300s",
                         path, why.text);
}

tutti_status tti_trainer_pipeline_known(const char *name, tutti_error *error)
{
    tutti_pipeline *table = NULL;
    if (is_named(name)) return TUTTI_OK;
    TTI_TRY(read_file(name, &table, error));
    tutti_pipeline_free(table);
    return TUTTI_OK;
}

static tutti_status read_table(struct tutti_trainer *t, struct tti_trainer_pipeline *made, tutti_error *error)
{
    const char *path = t->options.pipeline;
    tutti_pipeline_about about = {.struct_size = sizeof about};
    TTI_TRY(read_file(path, &made->table, error));
    tutti_pipeline_describe(made->table, &about);
    if (about.ranks != t->mesh.sizes[TTI_MESH_PIPE])
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "pipeline %.200s: the table has %d ranks, and the mesh pipe=%d; pipe=%d would do", path,
                             about.ranks, t->mesh.sizes[TTI_MESH_PIPE], about.ranks);
    if (t->options.micro > 0 && t->options.micro != about.micros)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "pipeline %.200s: the table has %d micro-batch%s, not %lld; leave --micro out", path,
                             about.micros, about.micros == 1 ? "" : "es", (long long)t->options.micro);
    return TUTTI_OK;
}

static tutti_status check_table(const struct tutti_trainer *t, const struct tti_trainer_pipeline *made,
                                tutti_error *error)
{
    tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict};
    tutti_error why;
    tutti_status status = tutti_pipeline_check(made->table, NULL, 0, &verdict, &why);
    if (status != TUTTI_OK)
        return tti_error_set(error, status, 0, "pipeline %.120s: %.340s", tti_trainer_table(t), why.text);
    if (!verdict.ordered)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "pipeline %.200s: the weights of a stage do not come in the order of micro-batches, in "
                             "which their gradients are summed",
                             tti_trainer_table(t));
    return made->about.micros > most_micros(t) ? too_many_micros(t, made->about.micros, 1, error) : TUTTI_OK;
}

tutti_status tti_trainer_pipeline_plan(struct tutti_trainer *t, tutti_error *error)
{
    struct tti_trainer_pipeline *made = t->pipeline = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a pipeline");
    if (t->options.fast)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a pipeline works on grains: fast and pipe=%d do not go together; leave one of them out",
                             t->mesh.sizes[TTI_MESH_PIPE]);
    TTI_TRY(is_named(tti_trainer_table(t)) ? build_table(t, made, error) : read_table(t, made, error));
    made->about.struct_size = sizeof made->about;
    tutti_pipeline_describe(made->table, &made->about);
    return check_table(t, made, error);
}

/* ---- Stages ---------------------------------------------------------------------------------------------------- */

static struct tti_span elements_of(const tutti_model *model, struct tti_layers layers)
{
    struct tti_span span = {SIZE_MAX, 0};
    for (int i = 0; i < model->tensor_count; i++) {
        const tutti_tensor *tensor = &model->tensors[i];
        if (tensor->layer < layers.lo || tensor->layer >= layers.hi) continue;
        if (tensor->offset < span.lo) span.lo = tensor->offset;
        span.hi = tensor->offset + tti_tensor_room(model, i);
    }
    return span.hi == 0 ? (struct tti_span){0, 0} : span;
}

static void find_owners(const struct tutti_trainer *t, struct tti_trainer_pipeline *p)
{
    for (int i = 0; i < t->model->tensor_count; i++)
        for (int stage = 0; stage < p->about.stages; stage++)
            if (t->model->tensors[i].layer >= p->ranges[stage].lo && t->model->tensors[i].layer < p->ranges[stage].hi)
                p->owners[i] = tutti_pipeline_rank(p->table, stage, NULL);
}

static void set_tie(struct tutti_trainer *t, const struct tti_trainer_pipeline *p)
{
    struct tti_tie *tie = &t->tie;
    tie->pipe = t->mesh.along[TTI_MESH_PIPE];
    tie->owner = tutti_pipeline_rank(p->table, 0, NULL);
    tie->sharer = tutti_pipeline_rank(p->table, p->about.stages - 1, NULL);
    tie->owns = tie->owner == t->mesh.at[TTI_MESH_PIPE];
    tie->shares = tie->sharer == t->mesh.at[TTI_MESH_PIPE];
}

static tutti_status make_lists(const struct tutti_trainer *t, struct tti_trainer_pipeline *p, tutti_error *error)
{
    p->ranges = tti_calloc((size_t)p->about.stages, sizeof *p->ranges);
    p->bytes = tti_calloc((size_t)p->about.stages, sizeof *p->bytes);
    p->stages = tti_calloc((size_t)p->about.chunks, sizeof *p->stages);
    p->owners = tti_calloc((size_t)t->model->tensor_count + 1, sizeof *p->owners);
    p->places = tti_calloc((size_t)tti_trainer_passes_most(t), sizeof *p->places);
    if (p->ranges != NULL && p->bytes != NULL && p->stages != NULL && p->owners != NULL && p->places != NULL)
        return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a pipeline of %d stages", p->about.stages);
}

tutti_status tti_trainer_pipeline_cut(struct tutti_trainer *t, tutti_error *error)
{
    struct tti_trainer_pipeline *p = t->pipeline;
    TTI_TRY(tti_agree(tti_trainer_comm(t), make_lists(t, p, error), error));
    TTI_TRY(tti_stages_cut(t, p->about.stages, p->ranges, error));
    struct tti_layers kept[p->about.chunks];
    for (int chunk = 0; chunk < p->about.chunks; chunk++)
        kept[chunk] = p->stages[chunk].layers =
            p->ranges[tutti_pipeline_stage(p->table, t->mesh.at[TTI_MESH_PIPE], chunk)];
    find_owners(t, p);
    set_tie(t, p);
    if (tti_model_keep(t->model, kept, p->about.chunks) != TUTTI_OK) {
        *error = *tutti_model_error(t->model);
        return error->status;
    }
    for (int chunk = 0; chunk < p->about.chunks; chunk++) {
        struct tti_stage *stage = &p->stages[chunk];
        stage->elements = elements_of(t->model, stage->layers);
        stage->shares = stage->layers.hi == t->model->layer_count && tutti_model_tied(t->model) > 0;
    }
    return TUTTI_OK;
}

/* ---- Micro-batches --------------------------------------------------------------------------------------------- */

/* Returns the cells of a micro-batch; with zero 2 and 3 those of a pass of all ranks, and the last ones may be empty on
 * all. */
static struct tti_span cells_of(const struct tutti_trainer *t, int micro)
{
    if (!tti_trainer_passing_gradients(t)) return t->micros.grains[micro];
    return micro < t->passes ? tti_pass_cells(t, micro, t->rank) : (struct tti_span){0, 0};
}

static struct tti_span samples_of(const struct tutti_trainer *t, int micro)
{
    return tti_cells_samples(t, cells_of(t, micro));
}

size_t tti_trainer_pipeline_samples(const struct tutti_trainer *t)
{
    size_t samples = 0;
    for (int m = 0; m < tti_trainer_passes_most(t); m++) samples += samples_of(t, m).hi - samples_of(t, m).lo;
    return samples;
}

/* Fills in the samples: the first stage reads inputs, the last one targets. */
static void fill_all(struct tutti_trainer *t, bool held_out, uint64_t first_index)
{
    struct tti_trainer_pipeline *p = t->pipeline;
    size_t at = 0;
    tutti_status status = TUTTI_OK;
    for (int m = 0; m < tti_trainer_passes_most(t); m++) {
        const struct tti_span samples = samples_of(t, m);
        p->places[m] = at;
        if (status == TUTTI_OK && (t->tie.owns || t->tie.shares))
            status = tti_fill_samples(t, samples, at, held_out, first_index);
        at += samples.hi - samples.lo;
    }
    tti_describe_batch(t, (struct tti_span){0, 0}, held_out, &p->batch);
}

/* ---- Steps of a run -------------------------------------------------------------------------------------------- */

static tutti_status stage_failed(struct tutti_trainer *t, const tutti_pipeline_call *call, tutti_status status)
{
    const tutti_error *why = tutti_model_error(t->model);
    if (status != TUTTI_OK && why != NULL)
        (void)snprintf(call->reason, TUTTI_PIPELINE_REASON_BYTES, "%.250s", why->text);
    return status;
}

static int micro_of(const struct tutti_trainer *t, const tutti_pipeline_call *call)
{
    return t->pipeline->round * t->pipeline->about.micros + call->micro;
}

/* Returns the part of this rank's samples that a micro-batch has. */
static tutti_batch batch_of(const struct tutti_trainer *t, const tutti_pipeline_call *call)
{
    const struct tti_trainer_pipeline *p = t->pipeline;
    struct tti_span samples = samples_of(t, micro_of(t, call));
    size_t before = p->places[micro_of(t, call)], rows = before * (size_t)tutti_model_rows(t->model);
    tutti_batch batch = p->batch;
    batch.samples = (int64_t)(samples.hi - samples.lo);
    batch.first_sample = (int64_t)samples.lo;
    if (batch.tokens != NULL) batch.tokens += rows;
    if (batch.targets != NULL) batch.targets += rows;
    if (batch.inputs != NULL) batch.inputs += before * t->about.features;
    if (batch.target_values != NULL) batch.target_values += before;
    if (batch.row_weights != NULL) batch.row_weights += before;
    batch.slot = call->slot;
    batch.boundary = (tutti_boundary){call->in, call->out, (float *)(uintptr_t)call->out_gradient, call->in_gradient};
    return batch;
}

static tutti_status forward(void *context, const tutti_pipeline_call *call)
{
    struct tutti_trainer *t = context;
    /* samples could not be read */
    if (t->failed != TUTTI_OK && !tti_trainer_goes_on(t)) {
        (void)snprintf(call->reason, TUTTI_PIPELINE_REASON_BYTES, "%.250s", t->error.text);
        return t->failed;
    }
    tutti_batch batch = batch_of(t, call);
    struct tti_span grains = cells_of(t, micro_of(t, call));
    tutti_loss losses[grains.hi - grains.lo + 1];
    tti_set_grains(t, grains, &batch);
    TTI_TRY(stage_failed(t, call, tutti_pass_forward(t->pipeline->stages[call->chunk].pass, &batch, losses)));
    for (size_t g = grains.lo; g < grains.hi; g++) {
        t->losses[g].sum += losses[g - grains.lo].sum;
        t->losses[g].count += losses[g - grains.lo].count;
    }
    return TUTTI_OK;
}

static const int parts[TUTTI_PIPELINE_PARTS] = {
    [TUTTI_PIPELINE_INPUT] = TUTTI_BACKWARD_INPUT, [TUTTI_PIPELINE_WEIGHTS] = TUTTI_BACKWARD_WEIGHTS};

/* Begins a pass of all ranks that share the batch, over one stage: sets where its gradients go. */
static tutti_status begin_pass(struct tutti_trainer *t, const tutti_pipeline_call *call, float **tied,
                               tutti_backward *how)
{
    const int micro = micro_of(t, call);
    if (call->part == TUTTI_PIPELINE_INPUT || micro >= t->passes) return TUTTI_OK;
    TTI_TRY(tti_ddp_begin_part(t->ddp, call->chunk));
    if (t->pipeline->stages[call->chunk].shares) {
        TTI_TRY(tti_tie_begin(&t->tie, micro + 1 == t->passes));
        TTI_TRY(tti_tie_places(&t->tie, tied));
    }
    const struct tti_grain_pass *pass = &t->ddp->passes[micro];
    how->subtrees = pass->partial_count;
    how->subtree_bounds = pass->bounds;
    how->ready = tti_trainer_on_ready;
    how->tied_ready = tti_trainer_on_tied_ready;
    return TUTTI_OK;
}

/* With zero 2 and 3: gradients are sent as soon as they are ready. */
static tutti_status backward_passing(struct tutti_trainer *t, const tutti_pipeline_call *call)
{
    const struct tti_stage *stage = &t->pipeline->stages[call->chunk];
    float *tied[TUTTI_SUBTREES_MAX] = {0};
    tutti_backward how = {.struct_size = sizeof how,
                          .parts = parts[call->part],
                          .slot = call->slot,
                          .place = tti_trainer_place,
                          .tied = tied,
                          .context = t};
    tutti_status status = begin_pass(t, call, tied, &how);
    if (status == TUTTI_OK) status = stage_failed(t, call, tutti_pass_backward(stage->pass, &how));
    if (status == TUTTI_OK) status = t->ready_status;
    if (t->gone == TUTTI_OK && tutti_comm_error(t->mesh.batch) != NULL) t->gone = status;
    return status;
}

static tutti_status backward(void *context, const tutti_pipeline_call *call)
{
    struct tutti_trainer *t = context;
    const struct tti_stage *stage = &t->pipeline->stages[call->chunk];
    struct tti_targets targets;
    if (t->pipeline->batch.evaluate) return TUTTI_OK;
    if (tti_trainer_passing_gradients(t)) return backward_passing(t, call);
    tutti_backward how = {.struct_size = sizeof how, .parts = parts[call->part], .slot = call->slot};
    tti_micro_targets(t, micro_of(t, call), stage->shares, &targets, &how);
    TTI_TRY(stage_failed(t, call, tutti_pass_backward(stage->pass, &how)));
    if (call->part != TUTTI_PIPELINE_INPUT) tti_micro_add(t, micro_of(t, call), stage->elements, stage->shares);
    return TUTTI_OK;
}

/* ---- Making it ------------------------------------------------------------------------------------------------- */

bool tti_trainer_pipeline_splits(const struct tti_trainer_pipeline *p, int rank)
{
    size_t count;
    const tutti_pipeline_step *steps = tutti_pipeline_steps(p->table, rank, &count);
    for (size_t i = 0; i < count; i++)
        if (steps[i].part == TUTTI_PIPELINE_INPUT) return true;
    return false;
}

static tutti_status make_pass(struct tutti_trainer *t, int chunk, tutti_error *error)
{
    struct tti_trainer_pipeline *p = t->pipeline;
    struct tti_stage *stage = &p->stages[chunk];
    const tutti_value_source source = tti_trainer_source(t);
    tutti_pass_options options = {.struct_size = sizeof options,
                                  .samples = t->room > 0 ? t->room : 1,
                                  .grains = (int)t->piece,
                                  .threads = (int)t->options.threads,
                                  .recompute = t->options.recompute,
                                  .split = tti_trainer_pipeline_splits(p, t->mesh.at[TTI_MESH_PIPE]),
                                  .first_layer = stage->layers.lo,
                                  .end_layer = stage->layers.hi,
                                  .slots = tutti_pipeline_slots(p->runner, chunk),
                                  .source = tti_trainer_passing_values(t) ? &source : NULL};
    return tti_trainer_make_pass(t, &options, &stage->pass, error);
}

tutti_status tti_trainer_pipeline_make(struct tutti_trainer *t, tutti_error *error)
{
    struct tti_trainer_pipeline *p = t->pipeline;
    for (int stage = 0; stage + 1 < p->about.stages; stage++) {
        const size_t floats = tti_boundary_floats(t->model, p->ranges[stage].hi - 1, t->room > 0 ? t->room : 1,
                                                  (int)t->piece);
        p->bytes[stage] = (floats > 0 ? floats : 1) * sizeof(float); /* rows that are cut may have none here */
    }
    tutti_pipeline_settings settings = {.struct_size = sizeof settings,
                                        .forward = forward,
                                        .backward = backward,
                                        .input = backward,
                                        .weights = backward,
                                        .context = t,
                                        .bytes = p->bytes};
    tutti_comm *comm = tutti_at(t->mesh.along[TTI_MESH_PIPE], t->here.file, t->here.line);
    TTI_TRY(tti_trainer_is_planned(t)
                ? tti_pipeline_plan(p->table, t->mesh.at[TTI_MESH_PIPE], p->bytes, &p->runner, error)
                : tutti_pipeline_runner_create(comm, p->table, &settings, &p->runner, error));
    for (int chunk = 0; chunk < p->about.chunks; chunk++) TTI_TRY(make_pass(t, chunk, error));
    t->pass = p->stages[0].pass;
    return TUTTI_OK;
}

void tti_trainer_pipeline_free(struct tutti_trainer *t)
{
    struct tti_trainer_pipeline *p = t->pipeline;
    if (p == NULL) return;
    for (int chunk = 0; p->stages != NULL && chunk < p->about.chunks; chunk++) tutti_pass_free(p->stages[chunk].pass);
    tutti_pipeline_runner_free(p->runner);
    tutti_pipeline_free(p->table);
    void *const own[] = {p->ranges, p->costs, p->bytes, p->stages, p->owners, p->places};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) tti_free(own[i]);
    tti_free(p);
    t->pipeline = NULL;
    t->pass = NULL;
}

/* ---- A step ---------------------------------------------------------------------------------------------------- */

/* Notes a run that failed; it has ended on all ranks of the pipe. If ranks that share the width or the batch could not
 * meet, that is the reason. With zero 2 and 3, and if layers depend on the whole batch, the ranks that share the batch
 * wait in passes that will not come: they are told. */
static tutti_status run_failed(struct tutti_trainer *t, tutti_status status, const tutti_error *error)
{
    t->pipeline->broken = true;
    t->error = *error;
    t->error.rank = tutti_world_rank(t->mesh.along[TTI_MESH_PIPE], error->rank < 0 ? 0 : error->rank);
    t->failed = status;
    const bool passing = tti_trainer_passing_gradients(t) || tti_trainer_collects(t);
    if (!passing && !tti_trainer_width_lost(t)) return status;
    if (passing && t->gone == TUTTI_OK) (void)tti_inside_break(t->mesh.batch, TTI_DDP_END, status, error->text);
    t->failed = TUTTI_OK;
    return tti_trainer_comm_failed(t, status);
}

tutti_status tti_trainer_pipeline_run(struct tutti_trainer *t, bool held_out, uint64_t first_index)
{
    struct tti_trainer_pipeline *p = t->pipeline;
    t->gone = TUTTI_OK;
    fill_all(t, held_out, first_index);
    p->report.struct_size = sizeof p->report;
    p->idle = p->predicted_idle = 0;
    p->broken = false;
    p->runner->unseen = held_out;
    for (p->round = 0; p->round < t->options.accumulate; p->round++) {
        tutti_pipeline_runner *runner = tutti_pipeline_at(p->runner, t->here.file, t->here.line);
        tutti_error error;
        tutti_status status = tutti_pipeline_run(runner, &p->report, &error);
        if (!held_out) tti_timeline_run(t, p->runner->began_ns);
        p->idle += p->report.idle;
        p->predicted_idle += p->report.predicted_idle;
        if (status != TUTTI_OK) return run_failed(t, status, &error);
    }
    return TUTTI_OK;
}

void tti_trainer_pipeline_idle(const struct tutti_trainer *t, double *idle, double *predicted)
{
    *idle = t->pipeline->idle / (double)t->options.accumulate;
    *predicted = t->pipeline->predicted_idle / (double)t->options.accumulate;
}
