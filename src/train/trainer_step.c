/* SPDX-License-Identifier: Apache-2.0
 *
 * One step, and validation.
 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "nn/pass.h"
#include "train/ddp.h"
#include <math.h>
#include <string.h>

/* ---- Failures -------------------------------------------------------------------------------------------------- */
/* What fails on one rank alone (data, the model) must not keep the others waiting: the rank notes it, makes the step's
 * collective calls all the same, and gather_losses tells everyone. What fails in a comm fails on all by itself. */

static tutti_status own_failed(struct tutti_trainer *t, tutti_status status)
{
    if (status != TUTTI_OK && t->failed == TUTTI_OK) t->failed = status;
    return status;
}

static tutti_status model_failed(struct tutti_trainer *t, tutti_status status)
{
    const tutti_error *why = tutti_model_error(t->model);
    if (status != TUTTI_OK && why != NULL) t->error = *why;
    return own_failed(t, status);
}

static tutti_status comm_failed(struct tutti_trainer *t, tutti_status status)
{
    if (status != TUTTI_OK) tti_trainer_mesh_error(t->comm, &t->mesh, &t->error);
    return status;
}

/* ---- Samples --------------------------------------------------------------------------------------------------- */

/* Sample `index` of the data into place `at` of the pass. One that does not count is there, for the shapes, but has no
 * part in the loss. */
static tutti_status fill_sample(struct tutti_trainer *t, bool held_out, uint64_t index, int64_t at, bool counts)
{
    int64_t rows = tutti_model_rows(t->model);
    int32_t *targets = t->targets + at * rows;
    t->weights[at] = counts ? 1 : 0;
    if (!t->table) {
        tutti_status status = tutti_data_tokens(t->data, held_out, index, t->tokens + at * rows, targets, &t->error);
        if (status != TUTTI_OK) return own_failed(t, status);
    } else {
        float target = 0;
        tutti_data_row(t->data, held_out, index, t->inputs + at * (int64_t)t->about.features, &target);
        t->target_values[at] = target;
        targets[0] = (int32_t)target;
    }
    for (int64_t i = 0; !counts && i < rows; i++) targets[i] = -1;
    return TUTTI_OK;
}

/* A validation's samples end where the held-out ones, or those asked for, do. */
static uint64_t last_index(const struct tutti_trainer *t, bool held_out)
{
    uint64_t asked = (uint64_t)t->options.val_samples, have = t->about.held_out_samples;
    if (!held_out) return UINT64_MAX;
    return asked < have ? asked : have;
}

static tutti_status fill_batch(struct tutti_trainer *t, struct tti_span samples, bool held_out, uint64_t first_index,
                               tutti_batch *batch)
{
    uint64_t last = last_index(t, held_out);
    bool mse = t->table && strcmp(t->options.loss, "mse") == 0;
    for (size_t s = samples.lo; s < samples.hi; s++)
        TTI_TRY(fill_sample(t, held_out, first_index + s, (int64_t)(s - samples.lo), first_index + s < last));
    *batch = (tutti_batch){.samples = (int64_t)(samples.hi - samples.lo),
                           .tokens = t->table ? NULL : t->tokens,
                           .targets = mse ? NULL : t->targets,
                           .inputs = t->table ? t->inputs : NULL,
                           .target_values = mse ? t->target_values : NULL,
                           .row_weights = mse ? t->weights : NULL,
                           .first_sample = (int64_t)samples.lo,
                           .step = t->step,
                           .seed = (uint64_t)t->options.seed,
                           .evaluate = held_out};
    return TUTTI_OK;
}

/* ---- Passes ---------------------------------------------------------------------------------------------------- */

/* Forward, and backward as `how` says (NULL: none). With zero 2 and 3 the others count on this rank's part of the pass: where it
 * fails by itself, it makes the pass without samples. */
static tutti_status run_pass(struct tutti_trainer *t, tutti_status filled, tutti_batch *batch, tutti_loss *losses,
                             const tutti_backward *how)
{
    const bool together = tti_trainer_passing_gradients(t);
    tutti_backward idle = {0};
    t->gone = TUTTI_OK;
    tutti_status status = filled;
    if (status == TUTTI_OK) status = model_failed(t, tutti_pass_forward(t->pass, batch, losses));
    if (status != TUTTI_OK && together && t->gone == TUTTI_OK) {
        t->bounds[0] = 0;
        *batch = (tutti_batch){.grain_bounds = t->options.fast ? NULL : t->bounds, .evaluate = how == NULL};
        status = tutti_pass_forward(t->pass, batch, losses);
        if (how != NULL) idle = *how;
        idle.subtrees = 0;
        if (how != NULL) how = &idle;
    }
    if (status == TUTTI_OK && how != NULL) status = model_failed(t, tutti_pass_backward(t->pass, how));
    if (t->gone != TUTTI_OK) t->failed = TUTTI_OK; /* no failure of this rank's own */
    return comm_failed(t, t->gone != TUTTI_OK ? t->gone : status);
}

/* A pass over cells lo..hi, at most a piece. Losses go to trainer->losses. */
static tutti_status run_cells(struct tutti_trainer *t, struct tti_span cells, bool held_out, uint64_t first_index,
                              const tutti_backward *how)
{
    const struct tti_span samples = tti_cells_samples(t, cells);
    const size_t count = cells.hi - cells.lo;
    tutti_loss losses[count + 1];
    tutti_batch batch;
    tutti_status filled = fill_batch(t, samples, held_out, first_index, &batch);
    if (filled != TUTTI_OK && !tti_trainer_passing_gradients(t)) return filled;
    for (size_t c = 0; c < count; c++) t->bounds[c] = (int64_t)(tti_cell_samples(t, cells.lo + c).lo - samples.lo);
    t->bounds[count] = (int64_t)(samples.hi - samples.lo);
    batch.grain_bounds = t->bounds;
    batch.grains = (int)count;
    TTI_TRY(run_pass(t, filled, &batch, losses, how));
    for (int c = 0; c < batch.grains; c++) {
        t->losses[cells.lo + (size_t)c].sum += losses[c].sum;
        t->losses[cells.lo + (size_t)c].count += losses[c].count;
    }
    return TUTTI_OK;
}

static void on_ready(void *context, size_t offset, size_t count)
{
    struct tutti_trainer *t = context;
    if (t->ready_status == TUTTI_OK) t->ready_status = tutti_ddp_ready_run(t->ddp, offset, count);
}

/* ---- With grains ----------------------------------------------------------------------------------------------- */

/* All of this rank's grains in one pass; buckets are reduced while it runs. */
static tutti_status backward_at_once(struct tutti_trainer *t)
{
    tutti_backward how = {.ready = on_ready, .context = t};
    how.subtrees = tutti_ddp_partials(t->ddp, &how.subtree_bounds, &how.gradients);
    TTI_TRY(run_cells(t, t->mine, false, t->step * (uint64_t)t->options.batch, &how));
    return comm_failed(t, t->ready_status);
}

/* Passes of all ranks together, each a subtree of all grains. */
static tutti_status backward_together(struct tutti_trainer *t)
{
    for (int p = 0; p < t->passes; p++) {
        tutti_backward how = {.ready = on_ready, .place = tti_trainer_place, .context = t};
        TTI_TRY(comm_failed(t, tutti_ddp_begin(t->ddp, p + 1 == t->passes)));
        how.subtrees = tutti_ddp_partials(t->ddp, &how.subtree_bounds, &how.gradients);
        TTI_TRY(run_cells(t, tti_pass_cells(t, p, t->rank), false, t->step * (uint64_t)t->options.batch, &how));
        TTI_TRY(comm_failed(t, t->ready_status));
    }
    return TUTTI_OK;
}

static float *scratch_of(struct tutti_trainer *t, int depth)
{
    if (t->scratch[depth] == NULL) {
        t->scratch[depth] = tti_calloc_aligned(t->elements * sizeof(float));
        if (t->scratch[depth] != NULL) t->scratch_bytes += t->elements * sizeof(float);
    }
    return t->scratch[depth];
}

/* The gradient of one subtree of the tree over grains, by as many passes as it needs. */
static tutti_status backward_tree(struct tutti_trainer *t, struct tti_span tree, float *gradient, int depth)
{
    size_t leaves = tree.hi - tree.lo;
    if (leaves <= t->piece) {
        int bounds[2] = {0, (int)leaves};
        tutti_backward how = {.subtrees = 1, .subtree_bounds = bounds, .gradients = (float *const[1]){gradient}};
        return run_cells(t, tree, false, t->step * (uint64_t)t->options.batch, &how);
    }
    size_t half = tree.lo + tti_tree_half(leaves);
    float *right = scratch_of(t, depth);
    if (right == NULL)
        return tti_error_set(&t->error, TUTTI_ERR_MEMORY, 0, "no memory to accumulate gradients in %lld passes",
                             (long long)t->options.accumulate);
    TTI_TRY(backward_tree(t, (struct tti_span){tree.lo, half}, gradient, depth + 1));
    TTI_TRY(backward_tree(t, (struct tti_span){half, tree.hi}, right, depth + 1));
    for (size_t i = 0; i < t->elements; i++) gradient[i] += right[i];
    return TUTTI_OK;
}

static tutti_status backward_in_passes(struct tutti_trainer *t)
{
    const int *bounds;
    float *const *gradients;
    int subtrees = tutti_ddp_partials(t->ddp, &bounds, &gradients);
    for (int k = 0; k < subtrees; k++) {
        struct tti_span tree = {t->mine.lo + (size_t)bounds[k], t->mine.lo + (size_t)bounds[k + 1]};
        TTI_TRY(backward_tree(t, tree, gradients[k], 0));
    }
    return comm_failed(t, tutti_ddp_ready_run(t->ddp, 0, t->elements));
}

/* ---- Without --------------------------------------------------------------------------------------------------- */

static tutti_status fast_pass(struct tutti_trainer *t, struct tti_span samples, bool held_out, uint64_t first_index,
                              const tutti_backward *how)
{
    tutti_batch batch;
    tutti_loss loss = {0};
    tutti_status filled = fill_batch(t, samples, held_out, first_index, &batch);
    if (filled != TUTTI_OK && !tti_trainer_passing_gradients(t)) return filled;
    TTI_TRY(run_pass(t, filled, &batch, &loss, how));
    t->losses[t->mine.lo].sum += loss.sum;
    t->losses[t->mine.lo].count += loss.count;
    return TUTTI_OK;
}

/* Calls fast_pass on parts of this rank's samples that fit; a rank may have none. */
static tutti_status fast_passes(struct tutti_trainer *t, bool held_out, uint64_t first_index)
{
    struct tti_span all = tti_cell_samples(t, t->mine.lo);
    for (size_t lo = all.lo; lo < all.hi; lo += (size_t)t->room) {
        struct tti_span part = {lo, lo + (size_t)t->room < all.hi ? lo + (size_t)t->room : all.hi};
        bool last = part.hi == all.hi;
        tutti_backward how = {.accumulate = lo > all.lo, .ready = last ? on_ready : NULL, .context = t};
        TTI_TRY(fast_pass(t, part, held_out, first_index, held_out ? NULL : &how));
    }
    return comm_failed(t, t->ready_status);
}

/* The same with zero 2 and 3: as many passes on every rank, and each sends its gradients. */
static tutti_status fast_together(struct tutti_trainer *t, bool held_out, uint64_t first_index)
{
    const struct tti_span all = tti_cell_samples(t, t->mine.lo);
    const size_t room = (size_t)t->room;
    for (int p = 0; p < t->passes; p++) {
        const size_t lo = all.lo + (size_t)p * room < all.hi ? all.lo + (size_t)p * room : all.hi;
        const struct tti_span part = {lo, lo + room < all.hi ? lo + room : all.hi};
        tutti_backward how = {.subtrees = 1, .ready = on_ready, .place = tti_trainer_place, .context = t};
        if (!held_out) TTI_TRY(comm_failed(t, tutti_ddp_begin(t->ddp, p + 1 == t->passes)));
        TTI_TRY(fast_pass(t, part, held_out, first_index, held_out ? NULL : &how));
        TTI_TRY(comm_failed(t, t->ready_status));
    }
    return TUTTI_OK;
}

/* ---- Losses ---------------------------------------------------------------------------------------------------- */

enum { STOP = 1, FAILED = 2 };

/* Walks over the cells of a rank, in the order in which it tells them. */
static size_t cells_of(const struct tutti_trainer *t, int rank, size_t *cells)
{
    size_t count = 0;
    for (int p = 0; p < (t->pass_bounds == NULL ? 1 : t->passes); p++) {
        const struct tti_span span = tti_pass_cells(t, p, rank);
        for (size_t c = span.lo; c < span.hi; c++) cells[count++] = c;
    }
    return count;
}

/* This rank's message: what it says, then sum and count of each of its cells. Returns where it is. */
static double *tell_losses(struct tutti_trainer *t)
{
    size_t cells[t->cells], mine = 0;
    for (int r = 0; r < t->size; r++) {
        t->counts[r] = 1 + 2 * cells_of(t, r, cells);
        if (r < t->rank) mine += t->counts[r];
    }
    double *own = t->gathered + mine;
    *own++ = (atomic_load_explicit(&t->stop, memory_order_relaxed) != 0 ? STOP : 0) +
             (t->failed != TUTTI_OK ? FAILED : 0);
    const size_t count = cells_of(t, t->rank, cells);
    for (size_t i = 0; i < count; i++) {
        *own++ = t->losses[cells[i]].sum;
        *own++ = t->losses[cells[i]].count;
    }
    return t->gathered + mine;
}

/* Everyone's losses, and whether someone wants to stop or has failed. */
static tutti_status gather_losses(struct tutti_trainer *t, double *sum, double *count, bool *stop)
{
    const double *own = tell_losses(t), *at = t->gathered;
    int64_t began = tti_now_ns();
    TTI_TRY(comm_failed(t, tutti_all_gather_v(tti_inside(tti_trainer_batch_comm(t), "trainer", "losses"), own,
                                              t->gathered, t->counts, NULL, TUTTI_F64)));
    t->seconds += (double)(tti_now_ns() - began) * 1e-9;
    double sums[t->cells], counts[t->cells];
    unsigned said = 0;
    for (int r = 0; r < t->size; r++) {
        size_t cells[t->cells];
        const size_t theirs = cells_of(t, r, cells);
        said |= (unsigned)*at++;
        for (size_t i = 0; i < theirs; i++) {
            sums[cells[i]] = *at++;
            counts[cells[i]] = *at++;
        }
    }
    *stop = (said & STOP) != 0;
    *sum = tti_tree_sum(sums, t->cells);
    *count = tti_tree_sum(counts, t->cells);
    return said & FAILED ? tti_agree(tti_trainer_comm(t), t->failed, &t->error) : TUTTI_OK;
}

/* ---- What is not finite ---------------------------------------------------------------------------------------- */

/* The first rank that finds a value that is not finite says which; all ranks get the same sentence. */
static tutti_status diverged(struct tutti_trainer *t, const tutti_train_step *step)
{
    enum { TEXT = 256 };
    char mine[TEXT] = "", *all = tti_calloc((size_t)t->size, TEXT);
    tutti_fault fault;
    if (tutti_pass_fault(t->pass, &fault) || (tti_trainer_passing_gradients(t) && tti_trainer_owned_fault(t, &fault)))
        (void)snprintf(mine, sizeof mine, "on rank %d, %s %.64s of layer %.64s has %g at %zu", t->rank, fault.what,
                       fault.tensor, fault.layer, (double)fault.value, fault.index);
    if (all == NULL) return tti_error_set(&t->error, TUTTI_ERR_MEMORY, 0, "no memory to say what diverged");
    tutti_status status = comm_failed(
        t, tutti_all_gather(tti_inside(tti_trainer_comm(t), "trainer", "what diverged"), mine, all, TEXT, TUTTI_U8));
    const char *first = "in a sum over ranks";
    for (int r = t->size; status == TUTTI_OK && r-- > 0;)
        if (all[r * TEXT] != '\0') first = all + r * TEXT;
    if (status == TUTTI_OK)
        status = tti_error_set(&t->error, TUTTI_ERR_DIVERGED, 0,
                               "step %llu: the loss is %g and the norm of the gradient %g: %s; a lower learning rate "
                               "(now %g) or more warm-up may help",
                               (unsigned long long)step->step, step->loss, step->norm, first, step->rate);
    tti_free(all);
    return status;
}

static tutti_status check_weights(struct tutti_trainer *t, tutti_train_step *step)
{
    int odd = -1;
    uint64_t every = (uint64_t)t->options.check_every;
    if (every == 0 || t->step % every != 0) return TUTTI_OK;
    step->hashed = true;
    step->hash = tutti_trainer_hash(t);
    tutti_status status = tutti_weights_compare(tti_trainer_batch_comm(t), step->hash, &odd);
    if (status != TUTTI_ERR_MISMATCH || odd < 0) return comm_failed(t, status);
    return tti_error_set(&t->error, status, 0, "after step %llu rank %d has other weights than rank 0",
                         (unsigned long long)t->step, odd);
}

/* ---- The step -------------------------------------------------------------------------------------------------- */

static tutti_status backward(struct tutti_trainer *t)
{
    const uint64_t first = t->step * (uint64_t)t->options.batch;
    if (tti_trainer_passing_gradients(t))
        return t->options.fast ? fast_together(t, false, first) : backward_together(t);
    TTI_TRY(tutti_ddp_begin(t->ddp, true));
    if (t->options.fast) return fast_passes(t, false, first);
    return t->mine.hi - t->mine.lo <= t->piece ? backward_at_once(t) : backward_in_passes(t);
}

static void begin_part(struct tutti_trainer *t)
{
    t->failed = t->ready_status = TUTTI_OK;
    memset(t->losses, 0, t->cells * sizeof *t->losses);
}

static tutti_status find_gradient(struct tutti_trainer *t, tutti_train_step *step, double *scale)
{
    double sum = 0, norm = 0;
    begin_part(t);
    tutti_status status = backward(t);
    if (status != TUTTI_OK && t->failed == TUTTI_OK) return status;
    TTI_TRY(comm_failed(t, tutti_ddp_end(t->ddp, 0, NULL)));
    TTI_TRY(gather_losses(t, &sum, &step->rows, &step->stop));
    TTI_TRY(comm_failed(t, tti_ddp_norm(t->ddp, t->pass->pool, &norm)));
    step->loss = sum / step->rows;
    step->norm = norm / step->rows;
    *scale = 1 / step->rows;
    if (t->options.clip > 0 && step->norm > t->options.clip) *scale *= t->options.clip / step->norm;
    return TUTTI_OK;
}

static tutti_status take_step(struct tutti_trainer *t, tutti_train_step *step)
{
    int64_t began = tti_now_ns();
    double waited = t->seconds + tutti_ddp_seconds(t->ddp), scale = 0;
    *step = (tutti_train_step){.struct_size = sizeof *step, .step = t->step + 1};
    step->rate = tutti_schedule_rate(&t->schedule, t->step);
    TTI_TRY(find_gradient(t, step, &scale));
    if (!isfinite(step->loss) || !isfinite(step->norm)) return diverged(t, step);
    tutti_optimizer_step_on(t->optimizer, t->pass, step->rate, scale);
    TTI_TRY(comm_failed(t, tutti_ddp_spread(t->ddp)));
    t->step++;
    TTI_TRY(check_weights(t, step));
    step->seconds = (double)(tti_now_ns() - began) * 1e-9;
    step->comm_seconds = t->seconds + tutti_ddp_seconds(t->ddp) - waited;
    return TUTTI_OK;
}

tutti_status tutti_trainer_step(tutti_trainer *t, tutti_train_step *step)
{
    tutti_train_step unused;
    tti_trainer_begin(t);
    return tti_trainer_end(t, "step", take_step(t, step == NULL ? &unused : step));
}

static tutti_status validate_round(struct tutti_trainer *t, uint64_t first_index)
{
    if (t->options.fast && tti_trainer_passing_gradients(t)) return fast_together(t, true, first_index);
    if (t->options.fast) return fast_passes(t, true, first_index);
    for (int p = 0; t->pass_bounds != NULL && p < t->passes; p++)
        TTI_TRY(run_cells(t, tti_pass_cells(t, p, t->rank), true, first_index, NULL));
    if (t->pass_bounds != NULL) return TUTTI_OK;
    for (size_t lo = t->mine.lo; lo < t->mine.hi; lo += t->piece) {
        size_t hi = lo + t->piece < t->mine.hi ? lo + t->piece : t->mine.hi;
        TTI_TRY(run_cells(t, (struct tti_span){lo, hi}, true, first_index, NULL));
    }
    return TUTTI_OK;
}

static tutti_status validate(struct tutti_trainer *t, double *loss)
{
    double sum = 0, count = 0;
    bool stop;
    *loss = NAN;
    if (t->about.held_out_samples == 0) return TUTTI_OK;
    begin_part(t);
    for (uint64_t at = 0; at < last_index(t, true); at += (uint64_t)t->options.batch) {
        tutti_status status = validate_round(t, at);
        if (status != TUTTI_OK && t->failed == TUTTI_OK) return status;
        if (status != TUTTI_OK && !tti_trainer_passing_gradients(t)) break;
    }
    TTI_TRY(gather_losses(t, &sum, &count, &stop));
    *loss = sum / count;
    return TUTTI_OK;
}

tutti_status tutti_trainer_validate(tutti_trainer *t, double *loss)
{
    double unused;
    tti_trainer_begin(t);
    return tti_trainer_end(t, "validate", validate(t, loss == NULL ? &unused : loss));
}
