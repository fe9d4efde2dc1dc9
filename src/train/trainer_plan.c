/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes a trainer's memory on one rank, for a real trainer or one that is only planned. A planned trainer is made by
 * the same functions as any other, in the same order, for any rank of any number: it has no comm, gets no memory for
 * numbers, and tells no other rank. So a plan reports of a layout, refusals included, what the trainer would report.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "train/ddp.h"
#include "train/ledger.h"
#include "train/trainer.h"
#include "train/trainer_copy.h"
#include "train/trainer_save.h"
#include <math.h>
#include <string.h>

/* ---- Memory by purpose ----------------------------------------------------------------------------------------- */

static size_t activation_bytes(const struct tutti_trainer *t)
{
    return t->pass_bytes + t->batch_bytes + (t->pipeline == NULL ? 0 : tutti_pipeline_bytes(t->pipeline->runner));
}

/* Returns the bytes for communication. The gradient of a layer that shares a tensor counts here, since it will be
 * sent. */
static size_t communication_bytes(const struct tutti_trainer *t)
{
    const struct tutti_ddp *tied = t->tie.ddp;
    size_t bytes = tutti_ddp_bytes(t->ddp) + t->tie.bytes;
    if (tied != NULL) bytes += tutti_ddp_bytes(tied);
    /* A ddp leaves out the sums that it owns, which are gradients. These are not: they are added to the owner's. */
    if (tied != NULL && t->tie.passes) bytes += tied->zero.elements * sizeof(float);
    return bytes;
}

void tutti_trainer_describe(const tutti_trainer *t, tutti_train_about *about)
{
    *about = (tutti_train_about){.struct_size = sizeof *about, .step = t->step, .entropy = NAN};
    if (t->unmade) return;
    const struct tti_ledger ledger = tti_trainer_ledger(t);
    *about = (tutti_train_about){.struct_size = sizeof *about,
                                 .step = t->step,
                                 .parameters = tutti_model_parameters(t->model),
                                 .grains = t->options.fast ? 0 : (int)t->cells,
                                 .flops_per_row = tutti_model_flops_per_row(t->model),
                                 .rows_per_step = (size_t)(t->options.batch * tutti_model_rows(t->model)),
                                 .entropy = t->about.entropy,
                                 .samples = t->about.samples,
                                 .held_out_samples = t->about.held_out_samples,
                                 .resumed_from = t->resumed_from[0] == '\0' ? NULL : t->resumed_from,
                                 .parameter_bytes = ledger.parameters,
                                 .gradient_bytes = ledger.gradients + t->scratch_bytes,
                                 .optimizer_bytes = t->optimizer_bytes + ledger.masters,
                                 .activation_bytes = activation_bytes(t),
                                 .communication_bytes = communication_bytes(t),
                                 .saving_bytes = tti_background_bytes(t),
                                 .copy_bytes = tti_copies_bytes(t),
                                 .restored_from = t->restored_from[0] == '\0' ? NULL : t->restored_from,
                                 .pipeline = t->pipeline == NULL ? NULL : tti_trainer_table(t)};
}

/* ---- Plans ----------------------------------------------------------------------------------------------------- */

static tutti_status make_planned(const struct tutti_trainer *like, struct tutti_trainer **trainer, tutti_error *error);

/* Plans two images of the rank's own, and two of the rank for which it keeps images, which is planned for that. */
static tutti_status plan_copies(struct tutti_trainer *t, tutti_error *error)
{
    int owner;
    if (!tti_copies_plan(t, &owner)) return TUTTI_OK;
    t->planned_copies = TTI_KEPT * tti_image_bytes(t);
    if (owner < 0) return TUTTI_OK;
    const struct tutti_trainer like = {.world_rank = owner,
                                       .world_size = t->world_size,
                                       .options = t->options,
                                       .own = t->own,
                                       .unit_costs = t->pipeline == NULL ? t->unit_costs : t->pipeline->costs,
                                       .told = &t->about};
    struct tutti_trainer *other = NULL;
    tutti_status status = make_planned(&like, &other, error);
    if (status == TUTTI_OK) t->planned_copies += TTI_KEPT * tti_image_bytes(other);
    tutti_trainer_free(other);
    return status;
}

static tutti_status make_planned(const struct tutti_trainer *like, struct tutti_trainer **trainer, tutti_error *error)
{
    struct tutti_trainer *made = *trainer = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a trainer");
    memcpy(made, like, sizeof *made);
    TTI_TRY(tti_trainer_make(made, error));
    TTI_TRY(tti_background_make(made, error));
    return plan_copies(made, error);
}

tutti_status tti_trainer_plan(const tutti_train_options *options, int ranks, int rank, const double *unit_costs,
                              struct tutti_trainer **trainer, tutti_error *error)
{
    const struct tutti_trainer like = {
        .world_rank = rank, .world_size = ranks, .options = *options, .unit_costs = unit_costs};
    return make_planned(&like, trainer, error);
}

tutti_status tti_trainer_plan_like(const struct tutti_trainer *t, const tutti_train_options *options,
                                   tutti_train_about *about, tutti_error *error)
{
    const struct tutti_trainer like = {.world_rank = t->world_rank,
                                       .world_size = t->world_size,
                                       .options = *options,
                                       .own = t->own,
                                       .unit_costs = t->pipeline == NULL ? NULL : t->pipeline->costs,
                                       .told = &t->about,
                                       .heals = t->heals,
                                       .places = t->places};
    struct tutti_trainer *planned = NULL;
    tutti_status status = make_planned(&like, &planned, error);
    if (status == TUTTI_OK) tutti_trainer_describe(planned, about);
    tutti_trainer_free(planned);
    return status;
}

size_t tti_about_bytes(const tutti_train_about *about)
{
    return about->parameter_bytes + about->gradient_bytes + about->optimizer_bytes + about->activation_bytes +
           about->communication_bytes + about->saving_bytes + about->copy_bytes;
}

tutti_status tti_trainer_plan_healing(const tutti_train_options *options, int ranks, int rank, const double *unit_costs,
                                      tutti_train_about *about, tutti_error *error)
{
    const struct tutti_trainer like = {
        .world_rank = rank, .world_size = ranks, .options = *options, .unit_costs = unit_costs, .heals = true};
    struct tutti_trainer *planned = NULL;
    tutti_status status = make_planned(&like, &planned, error);
    if (status == TUTTI_OK) tutti_trainer_describe(planned, about);
    if (status == TUTTI_OK) about->resumed_from = NULL;
    tutti_trainer_free(planned);
    return status;
}

tutti_status tutti_train_plan(const tutti_train_options *options, int ranks, int rank, tutti_train_about *about,
                              tutti_error *error)
{
    tutti_error unused;
    if (error == NULL) error = &unused;
    *error = (tutti_error){.rank = rank, .peer = -1, .operation = "train_plan"};
    if (options == NULL || about == NULL || ranks < 1 || rank < 0 || rank >= ranks)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a plan needs options, a place to go, and one of 1 or more ranks: this is rank %d of %d",
                             rank, ranks);
    return tti_trainer_plan_healing(options, ranks, rank, NULL, about, error);
}
