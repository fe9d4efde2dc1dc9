/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward and backward of a rank's part of the batch: in one pass or several, with grains or without.
 */
#define TUTTI_NO_CALL_SITES
#include "base/clock.h"
#include "base/status.h"
#include "nn/pass.h"
#include "train/ddp.h"
#include "train/trainer.h"
#include <string.h>

/* ---- Failures -------------------------------------------------------------------------------------------------- */
/* A failure on one rank alone (data, the model) must not keep the others waiting: the rank notes it, makes the step's
 * collective calls all the same, and gather_losses tells all ranks. A failure of a comm is one on all ranks already. */

tutti_status tti_trainer_own_failed(struct tutti_trainer *t, tutti_status status)
{
    if (status != TUTTI_OK && t->failed == TUTTI_OK) t->failed = status;
    return status;
}

static tutti_status model_failed(struct tutti_trainer *t, tutti_status status)
{
    const tutti_error *why = tutti_model_error(t->model);
    if (status != TUTTI_OK && why != NULL) t->error = *why;
    return tti_trainer_own_failed(t, status);
}

tutti_status tti_trainer_comm_failed(struct tutti_trainer *t, tutti_status status)
{
    if (status == TUTTI_OK) return TUTTI_OK;
    const struct tti_zero *zero = t->ddp == NULL ? NULL : &t->ddp->zero;
    tutti_comm *const others[] = {t->tie.comm, zero == NULL ? NULL : zero->group, zero == NULL ? NULL : zero->across};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const tutti_error *why = others[i] == NULL ? NULL : tutti_comm_error(others[i]);
        if (why != NULL) t->error = *why;
    }
    tti_trainer_mesh_error(t->comm, &t->mesh, &t->error);
    if (t->error.status == TUTTI_OK) (void)tti_error_set(&t->error, status, 0, "a comm of the trainer has failed");
    return status;
}

/* ---- Samples --------------------------------------------------------------------------------------------------- */

/* Reads sample `index` of the data into place `at` of the pass. A sample that does not count is there for the shapes,
 * but has no part in the loss. */
static tutti_status fill_sample(struct tutti_trainer *t, bool held_out, uint64_t index, int64_t at, bool counts)
{
    int64_t rows = tutti_model_rows(t->model);
    int32_t *targets = t->targets + at * rows;
    t->weights[at] = counts ? 1 : 0;
    if (!t->table) {
        tutti_status status = tutti_data_tokens(t->data, held_out, index, t->tokens + at * rows, targets, &t->error);
        if (status != TUTTI_OK) return tti_trainer_own_failed(t, status);
    } else {
        float target = 0;
        tutti_data_row(t->data, held_out, index, t->inputs + at * (int64_t)t->about.features, &target);
        t->target_values[at] = target;
        targets[0] = (int32_t)target;
    }
    for (int64_t i = 0; !counts && i < rows; i++) targets[i] = -1;
    return TUTTI_OK;
}

/* Fills in for a sample that cannot be read, if others count on this rank's part of the pass. */
static void fill_nothing(struct tutti_trainer *t, int64_t at)
{
    const int64_t rows = tutti_model_rows(t->model);
    memset(t->tokens + at * rows, 0, (size_t)rows * sizeof *t->tokens);
    for (int64_t i = 0; i < rows; i++) t->targets[at * rows + i] = -1;
}

/* A validation's samples end with the held-out ones, or with as many as were asked for. */
uint64_t tti_trainer_last_index(const struct tutti_trainer *t, bool held_out)
{
    uint64_t asked = (uint64_t)t->options.val_samples, have = t->about.held_out_samples;
    if (!held_out) return UINT64_MAX;
    return asked < have ? asked : have;
}

bool tti_trainer_goes_on(const struct tutti_trainer *t)
{
    return tti_trainer_shares_width(t) || tti_trainer_collects(t) ||
           (t->pipeline != NULL && tti_trainer_passing_gradients(t));
}

tutti_status tti_fill_samples(struct tutti_trainer *t, struct tti_span samples, size_t first, bool held_out,
                              uint64_t first_index)
{
    uint64_t last = tti_trainer_last_index(t, held_out);
    for (size_t s = samples.lo; s < samples.hi; s++) {
        const int64_t at = (int64_t)(first + s - samples.lo);
        tutti_status status = fill_sample(t, held_out, first_index + s, at, first_index + s < last);
        if (status != TUTTI_OK && !tti_trainer_goes_on(t)) return status;
        if (status != TUTTI_OK) fill_nothing(t, at);
    }
    return TUTTI_OK;
}

void tti_describe_batch(const struct tutti_trainer *t, struct tti_span samples, bool held_out, tutti_batch *batch)
{
    bool mse = t->table && strcmp(t->options.loss, "mse") == 0;
    *batch = (tutti_batch){.struct_size = sizeof(tutti_batch),
                           .samples = (int64_t)(samples.hi - samples.lo),
                           .tokens = t->table ? NULL : t->tokens,
                           .targets = mse ? NULL : t->targets,
                           .inputs = t->table ? t->inputs : NULL,
                           .target_values = mse ? t->target_values : NULL,
                           .row_weights = mse ? t->weights : NULL,
                           .first_sample = (int64_t)samples.lo,
                           .step = t->step,
                           .seed = (uint64_t)t->options.seed,
                           .evaluate = held_out};
}

tutti_status tti_fill_batch(struct tutti_trainer *t, struct tti_span samples, bool held_out, uint64_t first_index,
                            tutti_batch *batch)
{
    TTI_TRY(tti_fill_samples(t, samples, 0, held_out, first_index));
    tti_describe_batch(t, samples, held_out, batch);
    return TUTTI_OK;
}

/* ---- Passes ---------------------------------------------------------------------------------------------------- */

/* Returns true if a pass failed because ranks that share the width, or the batch, could not meet: that is no failure of
 * this rank's own. */
static bool is_lost(const struct tutti_trainer *t, tutti_status status)
{
    return status != TUTTI_OK && (tti_trainer_width_lost(t) || tti_trainer_batch_lost(t));
}

/* Does forward, and backward as `how` says (NULL: none). With zero 2 and 3, and with layers that depend on the whole
 * batch, the others count on this rank's part of the pass: if it fails by itself, it makes the pass without samples. */
static tutti_status run_pass(struct tutti_trainer *t, tutti_status filled, tutti_batch *batch, tutti_loss *losses,
                             const tutti_backward *how)
{
    const bool together = tti_trainer_passing_gradients(t) || tti_trainer_collects(t);
    tutti_backward idle = {.struct_size = sizeof idle};
    t->gone = TUTTI_OK;
    tutti_status status = filled;
    int64_t began = tti_now_ns();
    if (status == TUTTI_OK) status = model_failed(t, tutti_pass_forward(t->pass, batch, losses));
    if (is_lost(t, status)) t->gone = status;
    if (status != TUTTI_OK && together && t->gone == TUTTI_OK) {
        t->bounds[0] = 0;
        *batch = (tutti_batch){.struct_size = sizeof(tutti_batch),
                               .grain_bounds = t->options.fast ? NULL : t->bounds,
                               .evaluate = how == NULL};
        status = tutti_pass_forward(t->pass, batch, losses);
        if (how != NULL) idle = *how;
        idle.subtrees = 0;
        if (how != NULL) how = &idle;
    }
    if (how != NULL) tti_timeline_add(t, began);
    began = tti_now_ns();
    if (status == TUTTI_OK && how != NULL) status = model_failed(t, tutti_pass_backward(t->pass, how));
    if (how != NULL) tti_timeline_add(t, began);
    if (is_lost(t, status)) t->gone = status;
    if (t->gone != TUTTI_OK) t->failed = TUTTI_OK; /* this is no failure of this rank's own */
    return tti_trainer_comm_failed(t, t->gone != TUTTI_OK ? t->gone : status);
}

void tti_set_grains(struct tutti_trainer *t, struct tti_span grains, tutti_batch *batch)
{
    const struct tti_span samples = tti_cells_samples(t, grains);
    const size_t count = grains.hi - grains.lo;
    for (size_t g = 0; g < count; g++) t->bounds[g] = (int64_t)(tti_cell_samples(t, grains.lo + g).lo - samples.lo);
    t->bounds[count] = (int64_t)(samples.hi - samples.lo);
    batch->grain_bounds = t->bounds;
    batch->grains = (int)count;
}

/* Makes a pass over cells lo..hi, at most a piece. Losses go to trainer->losses. */
static tutti_status run_cells(struct tutti_trainer *t, struct tti_span cells, bool held_out, uint64_t first_index,
                              const tutti_backward *how)
{
    const struct tti_span samples = tti_cells_samples(t, cells);
    const size_t count = cells.hi - cells.lo;
    tutti_loss losses[count + 1];
    tutti_batch batch;
    tutti_status filled = tti_fill_batch(t, samples, held_out, first_index, &batch);
    if (filled != TUTTI_OK && !tti_trainer_passing_gradients(t)) return filled;
    tti_set_grains(t, cells, &batch);
    TTI_TRY(run_pass(t, filled, &batch, losses, how));
    for (int c = 0; c < batch.grains; c++) {
        t->losses[cells.lo + (size_t)c].sum += losses[c].sum;
        t->losses[cells.lo + (size_t)c].count += losses[c].count;
    }
    return TUTTI_OK;
}

void tti_trainer_on_ready(void *context, size_t offset, size_t count)
{
    struct tutti_trainer *t = context;
    if (t->server != NULL) return;
    if (t->ready_status == TUTTI_OK) t->ready_status = tutti_ddp_ready_run(t->ddp, offset, count);
}

void tti_trainer_on_tied_ready(void *context)
{
    struct tutti_trainer *t = context;
    if (t->server != NULL) return;
    if (t->ready_status == TUTTI_OK) t->ready_status = tutti_ddp_ready(t->tie.ddp, 0);
}

/* ---- With grains ----------------------------------------------------------------------------------------------- */

static uint64_t first_of_step(const struct tutti_trainer *t)
{
    return t->step * (uint64_t)t->options.batch;
}

/* Begins a pass. Workers of parameter servers push their gradients only when all are computed. */
static tutti_status begin_pass(struct tutti_trainer *t, bool last)
{
    if (t->server != NULL) return TUTTI_OK;
    TTI_TRY(tti_trainer_comm_failed(t, tutti_ddp_begin(t->ddp, last)));
    return tti_trainer_comm_failed(t, tti_tie_begin(&t->tie, last));
}

/* Makes ready the gradients that did not become ready layer by layer. */
static tutti_status all_ready(struct tutti_trainer *t)
{
    if (t->server != NULL) return TUTTI_OK;
    if (t->tie.ddp != NULL) TTI_TRY(tti_trainer_comm_failed(t, tutti_ddp_ready(t->tie.ddp, 0)));
    return tti_trainer_comm_failed(t, tutti_ddp_ready_run(t->ddp, 0, t->elements));
}

/* In one pass buckets are reduced while it runs; in several, gradients are added up first. */
static tutti_status backward_grains(struct tutti_trainer *t)
{
    const bool once = t->micros.count == 1, shares = t->tie.ddp != NULL;
    for (int m = 0; m < t->micros.count; m++) {
        struct tti_targets targets;
        tutti_backward how = {.struct_size = sizeof how, .context = t};
        if (once) how.ready = tti_trainer_on_ready;
        if (once) how.tied_ready = tti_trainer_on_tied_ready;
        tti_micro_targets(t, m, shares, &targets, &how);
        TTI_TRY(run_cells(t, t->micros.grains[m], false, first_of_step(t), &how));
        tti_micro_add(t, m, (struct tti_span){0, t->elements}, shares);
    }
    return once ? tti_trainer_comm_failed(t, t->ready_status) : all_ready(t);
}

/* With zero 2 and 3 every micro-batch is a pass of its own. */
static tutti_status backward_pipeline(struct tutti_trainer *t)
{
    const bool passing = tti_trainer_passing_gradients(t);
    if (!passing) TTI_TRY(begin_pass(t, true));
    TTI_TRY(tti_trainer_pipeline_run(t, false, first_of_step(t)));
    return passing ? TUTTI_OK : all_ready(t);
}

/* Makes the passes of all ranks together, each a subtree of all grains. */
static tutti_status backward_together(struct tutti_trainer *t)
{
    for (int p = 0; p < t->passes; p++) {
        float *tied[TUTTI_SUBTREES_MAX];
        tutti_backward how = {.struct_size = sizeof how,
                              .ready = tti_trainer_on_ready,
                              .tied_ready = tti_trainer_on_tied_ready,
                              .place = tti_trainer_place,
                              .context = t};
        TTI_TRY(begin_pass(t, p + 1 == t->passes));
        TTI_TRY(tti_trainer_comm_failed(t, tti_tie_places(&t->tie, tied)));
        if (t->tie.ddp != NULL) how.tied = tied;
        how.subtrees = tutti_ddp_partials(t->ddp, &how.subtree_bounds, &how.gradients);
        TTI_TRY(run_cells(t, tti_pass_cells(t, p, t->rank), false, first_of_step(t), &how));
        TTI_TRY(tti_trainer_comm_failed(t, t->ready_status));
    }
    return TUTTI_OK;
}

/* ---- Without --------------------------------------------------------------------------------------------------- */

static tutti_status fast_pass(struct tutti_trainer *t, struct tti_span samples, bool held_out, uint64_t first_index,
                              const tutti_backward *how)
{
    tutti_batch batch;
    tutti_loss loss = {0};
    tutti_status filled = tti_fill_batch(t, samples, held_out, first_index, &batch);
    if (filled != TUTTI_OK && !tti_trainer_passing_gradients(t)) return filled;
    TTI_TRY(run_pass(t, filled, &batch, &loss, how));
    t->losses[t->mine.lo].sum += loss.sum;
    t->losses[t->mine.lo].count += loss.count;
    return TUTTI_OK;
}

/* Calls fast_pass on parts of this rank's samples that fit; a rank may have none, and then makes no pass unless others
 * count on it. */
static tutti_status fast_passes(struct tutti_trainer *t, bool held_out, uint64_t first_index)
{
    struct tti_span all = tti_cell_samples(t, t->mine.lo);
    if (all.lo == all.hi && tti_trainer_collects(t)) {
        tutti_backward how = {.struct_size = sizeof how, .ready = tti_trainer_on_ready, .context = t};
        TTI_TRY(fast_pass(t, all, held_out, first_index, held_out ? NULL : &how));
    }
    for (size_t lo = all.lo; lo < all.hi; lo += (size_t)t->room) {
        struct tti_span part = {lo, lo + (size_t)t->room < all.hi ? lo + (size_t)t->room : all.hi};
        bool last = part.hi == all.hi;
        tutti_backward how = {.struct_size = sizeof how,
                              .accumulate = lo > all.lo,
                              .ready = last ? tti_trainer_on_ready : NULL,
                              .context = t};
        TTI_TRY(fast_pass(t, part, held_out, first_index, held_out ? NULL : &how));
    }
    return tti_trainer_comm_failed(t, t->ready_status);
}

/* Does the same with zero 2 and 3: every rank makes as many passes, and each sends its gradients. */
static tutti_status fast_together(struct tutti_trainer *t, bool held_out, uint64_t first_index)
{
    const struct tti_span all = tti_cell_samples(t, t->mine.lo);
    const size_t room = (size_t)t->room;
    for (int p = 0; p < t->passes; p++) {
        const size_t lo = all.lo + (size_t)p * room < all.hi ? all.lo + (size_t)p * room : all.hi;
        const struct tti_span part = {lo, lo + room < all.hi ? lo + room : all.hi};
        tutti_backward how = {.struct_size = sizeof how,
                              .subtrees = 1,
                              .ready = tti_trainer_on_ready,
                              .place = tti_trainer_place,
                              .context = t};
        if (!held_out) TTI_TRY(tti_trainer_comm_failed(t, tutti_ddp_begin(t->ddp, p + 1 == t->passes)));
        TTI_TRY(fast_pass(t, part, held_out, first_index, held_out ? NULL : &how));
        TTI_TRY(tti_trainer_comm_failed(t, t->ready_status));
    }
    return TUTTI_OK;
}

/* ---- A step's, and a validation's ------------------------------------------------------------------------------- */

tutti_status tti_trainer_backward(struct tutti_trainer *t)
{
    if (t->pipeline != NULL) return backward_pipeline(t);
    if (tti_trainer_passing_gradients(t))
        return t->options.fast ? fast_together(t, false, first_of_step(t)) : backward_together(t);
    TTI_TRY(begin_pass(t, true));
    return t->options.fast ? fast_passes(t, false, first_of_step(t)) : backward_grains(t);
}

tutti_status tti_trainer_evaluate(struct tutti_trainer *t, uint64_t first_index)
{
    if (t->pipeline != NULL) return tti_trainer_pipeline_run(t, true, first_index);
    if (t->options.fast && tti_trainer_passing_gradients(t)) return fast_together(t, true, first_index);
    if (t->options.fast) return fast_passes(t, true, first_index);
    for (int p = 0; t->pass_bounds != NULL && p < t->passes; p++)
        TTI_TRY(run_cells(t, tti_pass_cells(t, p, t->rank), true, first_index, NULL));
    for (int m = 0; t->pass_bounds == NULL && m < t->micros.count; m++)
        TTI_TRY(run_cells(t, t->micros.grains[m], true, first_index, NULL));
    return TUTTI_OK;
}
