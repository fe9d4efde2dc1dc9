/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a trainer: everything is made on every rank, and every rank learns of the first failure.
 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/options.h"
#include "base/sized.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "collective/comm/epoch.h"
#include "nn/pass.h"
#include "train/ddp.h"
#include "train/ledger.h"
#include "train/optimizer.h"
#include "train/parameter_list.h"
#include "train/train_options.h"
#include "train/trainer_copy.h"
#include "train/trainer_save.h"
#include <string.h>
#include <unistd.h>

/* ---- Calls ----------------------------------------------------------------------------------------------------- */

tutti_trainer *tutti_trainer_at(tutti_trainer *t, const char *file, int line)
{
    if (t != NULL) t->here = (struct tti_here){file, line};
    return t;
}

void tti_trainer_begin(struct tutti_trainer *t)
{
    (void)tutti_ddp_at(t->ddp, t->here.file, t->here.line);
    (void)tutti_ddp_at(t->tie.ddp, t->here.file, t->here.line);
    t->error = (tutti_error){.rank = tutti_rank(tti_trainer_all(t)), .peer = -1};
}

tutti_comm *tti_trainer_all(const struct tutti_trainer *t)
{
    return t->server == NULL ? t->comm : t->server->all;
}

tutti_status tti_trainer_end(struct tutti_trainer *t, const char *call, tutti_status status)
{
    /* otherwise the failing function has noted it */
    if (status == TUTTI_OK || t->error.status != status) return status;
    if (t->error.operation[0] == '\0')
        (void)snprintf(t->error.operation, sizeof t->error.operation, "trainer_%s", call);
    tti_comm_note(tti_trainer_all(t), &t->error);
    return status;
}

/* ---- Data and model -------------------------------------------------------------------------------------------- */

static tutti_schedule schedule_of(const tutti_train_options *o)
{
    return (tutti_schedule){.shape = o->schedule,
                            .rate = o->lr,
                            .end = o->end_lr,
                            .warmup = (uint64_t)o->warmup,
                            .steps = (uint64_t)o->steps};
}

/* The number of grains depends on the batch alone, not on the ranks. */
size_t tti_train_grains(const tutti_train_options *o)
{
    enum { USUAL = 16 };
    size_t grains = 1;
    if (o->grains > 0) return (size_t)o->grains;
    while (grains < USUAL && 2 * grains <= (size_t)o->batch) grains *= 2;
    return grains;
}

static tutti_status open_data(struct tutti_trainer *t, tutti_error *error)
{
    const tutti_train_options *o = &t->options;
    char source[PATH_MAX + 8];
    t->table = t->own.make != NULL ? t->own.table : strcmp(o->model, "mlp") == 0;
    if (t->told != NULL) t->about = *t->told;
    if (t->told != NULL) return TUTTI_OK;
    if (t->data != NULL) return TUTTI_OK; /* it is kept from before the world was rebuilt */
    if (tti_trainer_is_planned(t) && o->data[0] == '\0' && o->vocabulary > 0 && !t->table) {
        t->about = (tutti_data_about){.struct_size = sizeof t->about, .vocabulary = (size_t)o->vocabulary};
        return TUTTI_OK;
    }
    if (o->data[0] == '\0') return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "data: nothing is given to learn from");
    (void)snprintf(source, sizeof source, "%s%s", t->table ? "csv:" : "", o->data);
    tutti_data_settings settings = {.struct_size = sizeof settings,
                                    .source = source,
                                    .context = (size_t)o->context,
                                    .held_out = o->held_out,
                                    .seed = (uint64_t)o->seed,
                                    .classes = strcmp(o->loss, "mse") != 0,
                                    .vocabulary = (size_t)o->vocabulary};
    TTI_TRY(tutti_data_open(&settings, &t->data, error));
    tutti_data_describe(t->data, &t->about);
    return TUTTI_OK;
}

/* Allocates memory that every rank of the host can reach, so that nothing is copied when it is sent. With zero 2 and 3
 * the ddp has the gradients, and the values, that this rank owns. */
static tutti_status allocate(struct tutti_trainer *t)
{
    const size_t bytes = t->elements * sizeof(float);
    t->list = tti_calloc(t->list_count + 1, sizeof *t->list);
    if (t->list == NULL) return TUTTI_ERR_MEMORY;
    if (tti_trainer_is_planned(t)) return TUTTI_OK;
    if (!tti_trainer_passing_values(t)) {
        t->values = tutti_alloc(t->comm, t->model->value_elements * sizeof(float));
        if (t->values == NULL) return TUTTI_ERR_MEMORY;
    }
    if (!tti_trainer_passing_gradients(t)) {
        t->gradients = tutti_alloc(t->comm, bytes);
        if (t->gradients == NULL) return TUTTI_ERR_MEMORY;
    }
    return TUTTI_OK;
}

static tutti_status make_memory(struct tutti_trainer *t, tutti_error *error)
{
    t->elements = tutti_model_elements(t->model);
    t->list_count = tutti_model_list_count(t->model);
    if (allocate(t) != TUTTI_OK) {
        const tutti_error *why = tutti_comm_error(t->comm);
        TTI_TRY(tti_trainer_fits(t, error));
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for %zu parameters and their gradients%s%s",
                             tutti_model_parameters(t->model), why == NULL ? "" : ": ", why == NULL ? "" : why->text);
    }
    tti_model_list(t->model, t->values, t->gradients, t->list);
    if (tti_trainer_passing_values(t)) t->model->gradients = t->gradients; /* NULL with zero 2 and 3 */
    if (tti_trainer_passing_values(t) || tti_trainer_is_planned(t)) return TUTTI_OK;
    TTI_TRY(tutti_model_bind(t->model, t->values, t->gradients));
    return tutti_model_init(t->model, (uint64_t)t->options.seed);
}

static tutti_status make_model(struct tutti_trainer *t, tutti_error *error)
{
    if (!tti_trainer_is_planned(t)) TTI_TRY(tutti_blas_load(error));
    TTI_TRY(tti_trainer_model(t, &t->model, error));
    return tti_trainer_cut(t, t->model, error);
}

tutti_status tti_trainer_optimizer_settings(const struct tutti_trainer *t, tutti_optimizer_settings *settings,
                                            tutti_error *error)
{
    const tutti_train_options *o = &t->options;
    TTI_TRY(tutti_optimizer_defaults(o->optimizer, settings, error));
    settings->beta1 = o->beta1;
    settings->beta2 = o->beta2;
    settings->momentum = o->momentum;
    settings->nesterov = o->nesterov != 0;
    settings->decay = o->decay;
    return TUTTI_OK;
}

static tutti_status make_optimizer(struct tutti_trainer *t, tutti_error *error)
{
    const tutti_train_options *o = &t->options;
    const size_t elements = o->zero > 0 ? t->ddp->zero.elements : t->elements;
    tutti_optimizer_settings settings;
    if (t->server != NULL) return TUTTI_OK; /* the servers have it */
    TTI_TRY(tti_optimizer_plan(o->optimizer, elements, &t->optimizer_bytes, error));
    if (tti_trainer_is_planned(t)) return TUTTI_OK;
    TTI_TRY(tti_trainer_optimizer_settings(t, &settings, error));
    const tutti_parameter *owned;
    size_t count = tutti_ddp_owned(t->ddp, &owned);
    return tutti_optimizer_create(&settings, owned, count, &t->optimizer, error);
}

/* ---- Passes ---------------------------------------------------------------------------------------------------- */

struct tti_span tti_cell_samples(const struct tutti_trainer *t, size_t cell)
{
    return tti_tree_share((size_t)t->options.batch, (int)cell, (int)t->cells);
}

struct tti_span tti_cells_samples(const struct tutti_trainer *t, struct tti_span cells)
{
    size_t lo = cells.lo < t->cells ? tti_cell_samples(t, cells.lo).lo : (size_t)t->options.batch;
    return (struct tti_span){lo, cells.hi > cells.lo ? tti_cell_samples(t, cells.hi - 1).hi : lo};
}

/* Plans the passes. In fast mode a rank's one cell is cut into pieces of samples; with grains the cells themselves are
 * the pieces. With zero 2 and 3 ranks make their passes together. */
static tutti_status plan_cells(struct tutti_trainer *t, tutti_error *error)
{
    struct tti_span all = tti_cells_samples(t, t->mine);
    if (t->options.fast) {
        t->piece = 1;
        t->room = (int64_t)((all.hi - all.lo + (size_t)t->options.accumulate - 1) / (size_t)t->options.accumulate);
    }
    TTI_TRY(tti_trainer_plan_passes(t, error));
    if (t->options.fast || tti_trainer_passing_gradients(t)) return TUTTI_OK;
    if (!tti_micros_make(t->cells, t->mine, tti_trainer_passes_most(t), &t->micros))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a list of %d passes",
                             tti_trainer_passes_most(t));
    for (int m = 0; m < t->micros.count; m++) {
        struct tti_span samples = tti_cells_samples(t, t->micros.grains[m]);
        if ((int64_t)(samples.hi - samples.lo) > t->room) t->room = (int64_t)(samples.hi - samples.lo);
    }
    t->piece = t->micros.most_grains;
    return TUTTI_OK;
}

static tutti_status make_batch(struct tutti_trainer *t, tutti_error *error)
{
    size_t samples = t->pipeline == NULL ? (size_t)t->room : tti_trainer_pipeline_samples(t);
    size_t ranks = (size_t)t->world_size;
    if (samples == 0) samples = 1;
    size_t rows = samples * (size_t)tutti_model_rows(t->model), features = samples * (t->about.features + 1);
    t->batch_bytes = 2 * rows * sizeof *t->tokens + features * sizeof *t->inputs + 2 * samples * sizeof *t->weights;
    if (tti_trainer_is_planned(t)) return TUTTI_OK;
    t->tokens = tti_calloc(rows, sizeof *t->tokens);
    t->targets = tti_calloc(rows, sizeof *t->targets);
    t->inputs = tti_calloc(features, sizeof *t->inputs);
    t->target_values = tti_calloc(samples, sizeof *t->target_values);
    t->weights = tti_calloc(samples, sizeof *t->weights);
    t->bounds = tti_calloc(t->piece + 2, sizeof *t->bounds);
    t->losses = tti_calloc(t->cells, sizeof *t->losses);
    t->gathered = tti_calloc(2 * t->cells + ranks, sizeof *t->gathered);
    t->counts = tti_calloc(ranks, sizeof *t->counts);
    if (t->tokens == NULL || t->targets == NULL || t->inputs == NULL || t->target_values == NULL ||
        t->weights == NULL || t->bounds == NULL || t->losses == NULL || t->gathered == NULL || t->counts == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a batch of %zu samples", samples);
    return TUTTI_OK;
}

tutti_status tti_trainer_make_pass(struct tutti_trainer *t, const tutti_pass_options *given, tutti_pass **pass,
                                   tutti_error *error)
{
    size_t bytes = 0;
    tutti_pass_options options = *given;
    tti_trainer_share_batch(t, &options);
    tutti_status status = tti_trainer_is_planned(t) ? tti_pass_plan(t->model, &options, &bytes)
                                                    : tutti_pass_create(t->model, &options, pass);
    if (status != TUTTI_OK)
        *error = *tutti_model_error(t->model);
    else
        t->pass_bytes += *pass == NULL ? bytes : tutti_pass_bytes(*pass);
    return status;
}

static tutti_status make_pass(struct tutti_trainer *t, tutti_error *error)
{
    const tutti_value_source source = tti_trainer_source(t);
    tutti_pass_options options = {.struct_size = sizeof options,
                                  .samples = t->room > 0 ? t->room : 1,
                                  .grains = t->options.fast ? 0 : (int)t->piece,
                                  .threads = (int)t->options.threads,
                                  .recompute = t->options.recompute,
                                  .source = tti_trainer_passing_values(t) ? &source : NULL};
    return tti_trainer_make_pass(t, &options, &t->pass, error);
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

/* Refuses a job in which more ranks share the batch than there are grains. */
static tutti_status too_few_grains(const struct tutti_trainer *t, size_t grains, tutti_error *error)
{
    char batch[48] = "";
    if (t->options.batch < t->size) (void)snprintf(batch, sizeof batch, " with --batch %d", t->size);
    return tti_error_set(
        error, TUTTI_ERR_ARGUMENT, 0,
        "%d ranks are more than %zu grain%s: every rank needs a grain; %zu rank%s, --grains %d%s or --fast "
        "would do",
        t->size, grains, grains == 1 ? "" : "s", grains, grains == 1 ? "" : "s", t->size, batch);
}

/* Describes what will be made: nothing takes much memory yet. */
static tutti_status describe(struct tutti_trainer *t, tutti_error *error)
{
    t->schedule = schedule_of(&t->options);
    TTI_TRY(tutti_schedule_check(&t->schedule, error));
    size_t grains = tti_train_grains(&t->options);
    if (!t->options.fast && (size_t)t->size > grains) return too_few_grains(t, grains, error);
    t->cells = t->options.fast ? (size_t)t->size : grains;
    t->mine = tti_tree_share(t->cells, t->rank, t->size);
    TTI_TRY(open_data(t, error));
    TTI_TRY(make_model(t, error));
    return t->mesh.sizes[TTI_MESH_PIPE] > 1 ? tti_trainer_pipeline_plan(t, error) : TUTTI_OK;
}

/* With a pipeline ranks cut the model together. */
static tutti_status describe_part(struct tutti_trainer *t, tutti_error *error)
{
    tutti_status status = describe(t, error);
    t->tie.owns = t->tie.shares = !t->options.fast;
    if (t->mesh.sizes[TTI_MESH_PIPE] == 1) return status;
    TTI_TRY(tti_agree(tti_trainer_comm(t), status, error));
    return tti_trainer_pipeline_cut(t, error);
}

/* Makes the parts that each rank makes by itself, once all ranks know that everything fits. */
static tutti_status make_parts(struct tutti_trainer *t, tutti_error *error)
{
    TTI_TRY(make_memory(t, error));
    TTI_TRY(tti_tie_allocate(&t->tie, &t->mesh, t->model, (int)t->options.zero, error));
    TTI_TRY(plan_cells(t, error));
    TTI_TRY(tti_trainer_check_passes(t, error));
    TTI_TRY(tti_trainer_make_state(t, error));
    TTI_TRY(make_batch(t, error));
    TTI_TRY(tti_timeline_make(t, error));
    return t->pipeline == NULL ? make_pass(t, error) : TUTTI_OK;
}

/* Makes the ddps. Parameters of a layer are used together. A rank whose samples cannot be read still takes part in a
 * step, and tells the others then. */
static tutti_status make_ddps(struct tutti_trainer *t, int *layers, tutti_error *error)
{
    const bool sharded = t->mesh.sizes[TTI_MESH_SHARD] > 1;
    tutti_ddp_options ddp = {.struct_size = sizeof ddp,
                             .grains = t->options.fast ? 0 : (int)t->cells,
                             .pass_grains = t->pass_grains,
                             .allow_unused = true,
                             .zero = (int)t->options.zero,
                             .bf16 = tti_trainer_is_bf16(t),
                             .replicas = sharded ? t->mesh.sizes[TTI_MESH_DATA] : 0,
                             .groups = layers};
    const int chunks = t->pipeline == NULL ? 0 : t->pipeline->about.chunks;
    size_t starts[chunks + 1];
    tti_trainer_list_layers(t->model, layers);
    for (int chunk = 0; chunk < chunks; chunk++) { /* one without tensors begins where the one before ends */
        const struct tti_span own = t->pipeline->stages[chunk].elements;
        starts[chunk] = own.hi > 0 || chunk == 0 ? own.lo : t->pipeline->stages[chunk - 1].elements.hi;
    }
    struct tti_ddp_place place = {.rank = t->rank, .size = t->size, .alone = t->server != NULL};
    if (!tti_trainer_is_planned(t)) place.comm = tti_trainer_batch_comm(t);
    if (tti_trainer_passing_gradients(t)) place.cut = (struct tti_ddp_cut){starts, chunks};
    TTI_TRY(tti_ddp_make(&place, t->list, t->list_count, true, &ddp, &t->ddp, error));
    return tti_tie_make(&t->tie, t->ddp, &ddp, error);
}

static tutti_status make_ddp(struct tutti_trainer *t, tutti_error *error)
{
    int *layers = tti_calloc(t->list_count + 1, sizeof *layers);
    if (layers == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a list of tensors");
    tutti_status status = make_ddps(t, layers, error);
    tti_free(layers);
    return status;
}

/* Makes the parts that ranks make together, and those that depend on them. Ranks of a pipe meet only after all ranks of
 * the batch could. */
static tutti_status make_shared(struct tutti_trainer *t, tutti_error *error)
{
    tutti_status status = make_ddp(t, error);
    if (t->pipeline != NULL) status = tti_agree(tti_trainer_comm(t), status, error);
    TTI_TRY(status);
    if (t->pipeline != NULL) TTI_TRY(tti_trainer_pipeline_make(t, error));
    TTI_TRY(tti_trainer_make_scratch(t, error));
    if (tti_trainer_passing_values(t) && !tti_trainer_is_planned(t)) tti_trainer_init_owned(t);
    TTI_TRY(make_optimizer(t, error));
    return tti_trainer_take_folder(t, error);
}

/* Finds the ranks that share the batch. Without a mesh ranks need not meet for that: they tell each other of failures
 * later. */
static tutti_status make_mesh(struct tutti_trainer *t, tutti_error *error)
{
    tutti_status status = tti_trainer_read_options(t, error);
    bool asked = t->options.mesh != NULL && t->options.mesh[0] != '\0';
    if (asked) status = tti_agree(tti_trainer_comm(t), status, error);
    TTI_TRY(status);
    tti_trainer_mesh_place(&t->mesh, t->world_rank);
    t->rank = tti_trainer_mesh_batch_rank(&t->mesh, t->world_rank);
    t->size = t->mesh.sizes[TTI_MESH_DATA] * t->mesh.sizes[TTI_MESH_SHARD];
    if (t->server != NULL) {
        t->size = t->server->workers;
        t->rank = tutti_rank(t->server->all) % t->size; /* a server plans like some worker */
    }
    if (!tti_trainer_is_planned(t))
        TTI_TRY(tti_trainer_mesh_make(tti_trainer_comm(t), t->options.mesh, &t->mesh, error));
    return TUTTI_OK;
}

tutti_status tti_trainer_make(struct tutti_trainer *t, tutti_error *error)
{
    tutti_status status = make_mesh(t, error);
    if (status == TUTTI_OK) status = describe_part(t, error);
    TTI_TRY(tti_agree(tti_trainer_comm(t), status, error));
    TTI_TRY(tti_trainer_check_memory(t, error));
    status = tti_agree(tti_trainer_comm(t), make_parts(t, error), error);
    if (status == TUTTI_OK) status = tti_agree(tti_trainer_comm(t), make_shared(t, error), error);
    const bool spreads = tti_trainer_passing_values(t) && !tti_trainer_is_bf16(t); /* bf16 is rounded first */
    if (status != TUTTI_OK || !spreads || tti_trainer_is_planned(t)) return status;
    status = tti_tie_spread(&t->tie, t->ddp); /* sends values to the ranks that use them */
    if (status != TUTTI_OK) tti_trainer_mesh_error(t->comm, &t->mesh, error);
    return status;
}

tutti_status tti_trainer_assemble(struct tutti_trainer *t, tutti_error *error)
{
    t->heals = tutti_comm_can_rebuild(t->comm);
    const bool recovers = t->heals && tutti_epoch(t->comm) > 0;
    if (recovers) TTI_TRY(tti_trainer_find_teacher(t, error));
    TTI_TRY(tti_trainer_make(t, error));
    TTI_TRY(tti_trainer_share_folder(t, error));
    TTI_TRY(tti_background_make(t, error));
    if (recovers)
        TTI_TRY(tti_trainer_recover(t, error));
    else if (t->options.resume)
        TTI_TRY(tti_trainer_resume(t, error));
    TTI_TRY(tti_trainer_round(t, error));
    TTI_TRY(tti_copies_make(t, error));
    if (recovers && t->taken.struct_size != 0) tti_copies_start(t); /* another loss may follow */
    if (t->copies == NULL) {
        tti_held_free(t->held);
        t->held = NULL;
    }
    return TUTTI_OK;
}

/* Frees a trainer that could not be made. If that was because a rank was lost, others may have made theirs and wait for
 * this rank in a comm of its mesh: they must not take it for one that has left. */
static void give_up(struct tutti_trainer *t, tutti_comm *comm)
{
    if (t->heals && (tti_comm_is_broken(comm) || tti_epoch_has_loss(comm))) tti_epoch_give_up(comm);
    tutti_trainer_free(t);
}

static tutti_status create(tutti_comm *comm, const tutti_train_options *options, const tutti_train_model *own,
                           tutti_trainer **trainer, tutti_error *error)
{
    struct tutti_trainer *made = tti_calloc(1, sizeof *made);
    struct tti_here here = tti_here(comm);
    *trainer = NULL;
    if (made == NULL) {
        tutti_status none = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a trainer");
        return tti_agree(tutti_at(comm, here.file, here.line), none, error);
    }
    *made = (struct tutti_trainer){.comm = comm,
                                   .world_rank = tutti_rank(comm),
                                   .world_size = tutti_size(comm),
                                   .here = here,
                                   .options = *options,
                                   .own = *own};
    if (own->make != NULL) made->options.model = own->name;
    tutti_status status = options->server > 0 ? tti_trainer_server_create(made, error)
                                              : tti_trainer_assemble(made, error);
    if (status != TUTTI_OK)
        give_up(made, comm);
    else
        *trainer = made;
    return status;
}

static tutti_status create_with(tutti_comm *comm, const tutti_train_options *options, const tutti_train_model *own,
                                tutti_trainer **trainer, tutti_error *error)
{
    static const tutti_train_options none = {0};
    tutti_status status = comm == NULL || trainer == NULL
                              ? tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a trainer needs a comm and a place to go")
                              : create(comm, options == NULL ? &none : options, own, trainer, error);
    if (status != TUTTI_OK) tti_comm_note(comm, error);
    return status;
}

tutti_status tutti_trainer_create(tutti_comm *comm, const tutti_train_options *options, tutti_trainer **trainer,
                                  tutti_error *error)
{
    tutti_error unused;
    if (error == NULL) error = &unused;
    *error = (tutti_error){.rank = tutti_rank(comm), .peer = -1, .operation = "trainer_create"};
    return create_with(comm, options, &(tutti_train_model){0}, trainer, error);
}

tutti_status tutti_trainer_create_model(tutti_comm *comm, const tutti_train_options *options,
                                        const tutti_train_model *model, tutti_trainer **trainer, tutti_error *error)
{
    tutti_error unused;
    tutti_train_model own = {0};
    if (error == NULL) error = &unused;
    *error = (tutti_error){.rank = tutti_rank(comm), .peer = -1, .operation = "trainer_create_model"};
    const bool given = model != NULL && tti_sized_take(&own, sizeof own, model) && own.make != NULL && own.name != NULL;
    const bool ours = given && (strcmp(own.name, "gpt") == 0 || strcmp(own.name, "mlp") == 0);
    if (given && !ours && own.name[0] != '\0') return create_with(comm, options, &own, trainer, error);
    if (trainer != NULL) *trainer = NULL;
    tutti_status status = tti_error_set(
        error, TUTTI_ERR_ARGUMENT, 0,
        "a model of one's own needs struct_size, a name that is neither gpt nor mlp, and a function that makes it");
    if (comm != NULL) tti_comm_note(comm, error);
    return status;
}

/* Frees everything that was made on the comm. */
static void free_shared(struct tutti_trainer *t)
{
    tti_copies_free(t);
    if (!tti_trainer_is_planned(t)) tti_free(t->places); /* a plan has borrowed them */
    tti_background_free(t);
    tti_trainer_pipeline_free(t);
    tutti_pass_free(t->pass);
    tti_tie_free(&t->tie);
    tutti_ddp_free(t->ddp);
    tutti_optimizer_free(t->optimizer);
    tutti_model_free(t->model);
    (void)tutti_free(t->comm, t->values);
    (void)tutti_free(t->comm, t->gradients);
    tti_trainer_mesh_free(&t->mesh);
    tti_trainer_server_free(t);
    if (t->locked) (void)close(t->lock);
}

static void free_own(struct tutti_trainer *t)
{
    tti_micros_free(&t->micros);
    for (size_t i = 0; i < sizeof t->scratch / sizeof *t->scratch; i++) tti_free(t->scratch[i]);
    void *const own[] = {t->list,        t->tokens,  t->targets,     t->inputs,         t->target_values,
                         t->pass_bounds, t->weights, t->bounds,      t->timeline.spans, t->losses,
                         t->gathered,    t->counts,  t->state_before};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) tti_free(own[i]);
}

void tti_trainer_release(struct tutti_trainer *t)
{
    if (t->pipeline != NULL && t->pipeline->costs != NULL) {
        tti_free(t->known_costs);
        t->known_costs = t->pipeline->costs;
        t->pipeline->costs = NULL;
    }
    free_shared(t);
    free_own(t);
    *t = (struct tutti_trainer){.comm = t->comm,
                                .world_rank = t->world_rank,
                                .world_size = t->world_size,
                                .here = t->here,
                                .options = t->options,
                                .own = t->own,
                                .error = t->error,
                                .data = t->data,
                                .about = t->about,
                                .step = t->step,
                                .stop = atomic_load_explicit(&t->stop, memory_order_relaxed),
                                .heals = t->heals,
                                .held = t->held,
                                .unmade = true,
                                .taken = t->taken,
                                .known_costs = t->known_costs,
                                .watch = t->watch,
                                .watch_context = t->watch_context};
}

void tutti_trainer_free(tutti_trainer *t)
{
    if (t == NULL) return;
    free_shared(t);
    free_own(t);
    tutti_data_free(t->data);
    tti_held_free(t->held);
    tti_free(t->known_costs);
    tti_free(t);
}

void tutti_trainer_stop(tutti_trainer *trainer)
{
    atomic_store_explicit(&trainer->stop, 1, memory_order_relaxed);
}

const tutti_error *tutti_trainer_error(const tutti_trainer *trainer)
{
    return &trainer->error;
}
