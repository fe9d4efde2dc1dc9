/* SPDX-License-Identifier: Apache-2.0
 *
 * One step, and validation.
 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer.h"
#include "train/trainer_copy.h"
#include "train/trainer_save.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "nn/pass.h"
#include "train/ddp.h"
#include "train/norm.h"
#include <math.h>
#include <string.h>

/* ---- Losses ---------------------------------------------------------------------------------------------------- */

enum { STOP = 1, FAILED = 2 };

/* Lists the cells whose losses a rank of the comm tells, in that order: its own, if it has the last layer. Of ranks
 * that share the width, and know the same losses, the first one tells them. */
static size_t cells_of(const struct tutti_trainer *t, int world_rank, size_t *cells)
{
    const int last = t->pipeline == NULL ? 0 : t->tie.sharer;
    const int rank = tti_trainer_mesh_batch_rank(&t->mesh, world_rank);
    size_t count = 0;
    if (tti_trainer_mesh_at(&t->mesh, world_rank, TTI_MESH_PIPE) != last) return 0;
    if (tti_trainer_mesh_at(&t->mesh, world_rank, TTI_MESH_TENSOR) != 0) return 0;
    for (int p = 0; p < (t->pass_bounds == NULL ? 1 : t->passes); p++) {
        const struct tti_span span = tti_pass_cells(t, p, rank);
        for (size_t c = span.lo; c < span.hi; c++) cells[count++] = c;
    }
    return count;
}

/* Fills in this rank's message: a word of flags, then sum and count of each of its cells. Returns its place. */
static double *tell_losses(struct tutti_trainer *t)
{
    size_t cells[t->cells], mine = 0;
    for (int r = 0; r < tutti_size(t->comm); r++) {
        t->counts[r] = 1 + 2 * cells_of(t, r, cells);
        if (r < tutti_rank(t->comm)) mine += t->counts[r];
    }
    double *own = t->gathered + mine;
    *own++ = (atomic_load_explicit(&t->stop, memory_order_relaxed) != 0 ? STOP : 0) +
             (t->failed != TUTTI_OK ? FAILED : 0);
    const size_t count = cells_of(t, tutti_rank(t->comm), cells);
    for (size_t i = 0; i < count; i++) {
        *own++ = t->losses[cells[i]].sum;
        *own++ = t->losses[cells[i]].count;
    }
    return t->gathered + mine;
}

/* Gathers all losses, and finds whether a rank wants to stop or has failed. */
static tutti_status gather_losses(struct tutti_trainer *t, double *sum, double *count, bool *stop)
{
    const double *own = tell_losses(t), *at = t->gathered;
    int64_t began = tti_now_ns();
    TTI_TRY(tti_trainer_comm_failed(t, tutti_all_gather_v(tti_inside(tti_trainer_comm(t), "trainer", "losses"), own,
                                                          t->gathered, t->counts, NULL, TUTTI_F64)));
    t->seconds += (double)(tti_now_ns() - began) * 1e-9;
    double sums[t->cells], counts[t->cells];
    unsigned said = 0;
    for (int r = 0; r < tutti_size(t->comm); r++) {
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

static bool find_fault(const struct tutti_trainer *t, tutti_fault *fault)
{
    if (t->pipeline == NULL && tutti_pass_fault(t->pass, fault)) return true;
    for (int chunk = 0; t->pipeline != NULL && chunk < t->pipeline->about.chunks; chunk++)
        if (tutti_pass_fault(t->pipeline->stages[chunk].pass, fault)) return true;
    return (tti_trainer_passing_gradients(t) || tti_trainer_passing_values(t)) && tti_trainer_owned_fault(t, fault);
}

/* The first rank that finds a value that is not finite names it; all ranks get the same sentence. */
static tutti_status diverged(struct tutti_trainer *t, const tutti_train_step *step)
{
    enum { TEXT = 256 };
    const int rank = tutti_rank(t->comm), size = tutti_size(t->comm);
    char mine[TEXT] = "", *all = tti_calloc((size_t)size, TEXT);
    tutti_fault fault;
    if (find_fault(t, &fault))
        (void)snprintf(mine, sizeof mine, "on rank %d, %s %.64s of layer %.64s has %g at %zu", rank, fault.what,
                       fault.tensor, fault.layer, (double)fault.value, fault.index);
    if (all == NULL) return tti_error_set(&t->error, TUTTI_ERR_MEMORY, 0, "no memory to say what diverged");
    tutti_status status = tti_trainer_comm_failed(
        t, tutti_all_gather(tti_inside(tti_trainer_comm(t), "trainer", "what diverged"), mine, all, TEXT, TUTTI_U8));
    const char *first = "in a sum over ranks";
    for (int r = size; status == TUTTI_OK && r-- > 0;)
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
    step->hash = tti_trainer_hash(t);
    tutti_status status = tutti_weights_compare(tti_trainer_comm(t), step->hash, &odd);
    if (status == TUTTI_OK) status = tti_trainer_compare_uncut(t, &odd);
    if (status != TUTTI_ERR_MISMATCH || odd < 0) return tti_trainer_comm_failed(t, status);
    return tti_error_set(&t->error, status, 0, "after step %llu rank %d has other weights than rank 0",
                         (unsigned long long)t->step, odd);
}

/* ---- The step -------------------------------------------------------------------------------------------------- */

static void begin_part(struct tutti_trainer *t)
{
    t->failed = t->ready_status = TUTTI_OK;
    memset(t->losses, 0, t->cells * sizeof *t->losses);
}

/* Sums the gradients. Ranks whose part has failed give zeros here, so that the others need not wait; no message passes
 * between stages then. */
static tutti_status sum_gradients(struct tutti_trainer *t)
{
    TTI_TRY(tti_trainer_comm_failed(t, tutti_ddp_end(t->ddp, 0, NULL)));
    TTI_TRY(tti_trainer_comm_failed(t, tti_tie_end(&t->tie, t->ddp, t->pipeline == NULL || !t->pipeline->broken)));
    if (t->tie.elements > 0 && t->tie.owns) tti_tie_add(&t->tie, t->ddp);
    return TUTTI_OK;
}

static tutti_status find_norm(struct tutti_trainer *t, double *norm)
{
    const size_t blocks = tti_ddp_blocks(t->ddp);
    double *sums = tti_calloc(blocks + 1, sizeof *sums);
    if (sums == NULL) return tti_error_set(&t->error, TUTTI_ERR_MEMORY, 0, "no memory for a norm");
    tutti_comm *model = t->mesh.model == NULL ? NULL : tutti_at(t->mesh.model, t->here.file, t->here.line);
    tutti_status status = tti_ddp_block_sums(t->ddp, t->pass->pool, sums);
    if (status == TUTTI_OK)
        status = tti_shared_norm(t->model, model, t->pipeline == NULL ? NULL : t->pipeline->owners, sums, blocks, norm);
    tti_free(sums);
    if (status == TUTTI_ERR_MEMORY) (void)tti_error_set(&t->error, status, 0, "no memory for a norm");
    return tti_trainer_comm_failed(t, status);
}

static tutti_status find_gradient(struct tutti_trainer *t, tutti_train_step *step, double *scale)
{
    double sum = 0, norm = 0;
    begin_part(t);
    tti_timeline_begin(t);
    tutti_status status = tti_trainer_backward(t);
    if (status != TUTTI_OK && t->failed == TUTTI_OK) return status;
    tti_trainer_watched(t, TUTTI_TRAIN_AT_GRADIENTS, t->step + 1);
    TTI_TRY(sum_gradients(t));
    TTI_TRY(tti_copies_wait(t));
    TTI_TRY(gather_losses(t, &sum, &step->rows, &step->stop));
    tti_timeline_end(t);
    TTI_TRY(find_norm(t, &norm));
    step->loss = sum / step->rows;
    step->norm = norm / step->rows;
    *scale = 1 / step->rows;
    if (t->options.clip > 0 && step->norm > t->options.clip) *scale *= t->options.clip / step->norm;
    return TUTTI_OK;
}

tutti_status tti_trainer_spread(struct tutti_trainer *t)
{
    TTI_TRY(tti_trainer_comm_failed(t, tutti_ddp_spread(t->ddp)));
    return tti_trainer_comm_failed(t, tti_tie_spread(&t->tie, t->ddp));
}

static double comm_seconds(const struct tutti_trainer *t)
{
    if (t->server != NULL) return t->server->seconds;
    double seconds = t->seconds + tutti_ddp_seconds(t->ddp);
    if (t->tie.ddp != NULL) seconds += tutti_ddp_seconds(t->tie.ddp);
    if (t->pipeline == NULL) return seconds + t->pass->meeting_seconds;
    for (int chunk = 0; chunk < t->pipeline->about.chunks; chunk++)
        seconds += t->pipeline->stages[chunk].pass->meeting_seconds;
    return seconds;
}

/* Makes a step with servers, which do sums, optimizer and new values. */
static tutti_status step_with_servers(struct tutti_trainer *t, tutti_train_step *step, int64_t began)
{
    const double waited = comm_seconds(t);
    tti_trainer_watched(t, TUTTI_TRAIN_AT_STEP, step->step);
    begin_part(t);
    TTI_TRY(tti_trainer_backward(t));
    tti_trainer_watched(t, TUTTI_TRAIN_AT_GRADIENTS, step->step);
    TTI_TRY(tti_trainer_server_step(t, step));
    step->seconds = (double)(tti_now_ns() - began) * 1e-9;
    t->taken = *step;
    step->comm_seconds = comm_seconds(t) - waited;
    return TUTTI_OK;
}

/* Does everything before the weights change. */
static tutti_status find_update(struct tutti_trainer *t, tutti_train_step *step, double *scale)
{
    TTI_TRY(find_gradient(t, step, scale));
    return isfinite(step->loss) && isfinite(step->norm) ? TUTTI_OK : diverged(t, step);
}

/* Notes the step. From here on this rank's own part is that of the next step, whether or not others get it. */
static void note_step(struct tutti_trainer *t, const tutti_train_step *step, int64_t began)
{
    t->step++;
    t->taken = *step;
    t->taken.seconds = (double)(tti_now_ns() - began) * 1e-9;
}

static tutti_status take_step(struct tutti_trainer *t, tutti_train_step *step)
{
    int64_t began = tti_now_ns();
    double waited = comm_seconds(t), scale = 0;
    *step = (tutti_train_step){
        .struct_size = sizeof *step, .step = t->step + 1, .idle = NAN, .predicted_idle = NAN, .stale = NAN};
    step->rate = tutti_schedule_rate(&t->schedule, t->step);
    if (t->server != NULL) return step_with_servers(t, step, began);
    tti_trainer_watched(t, TUTTI_TRAIN_AT_STEP, step->step);
    tti_trainer_keep_state(t);
    tutti_status status = find_update(t, step, &scale);
    if (status != TUTTI_OK) tti_trainer_restore_state(t);
    TTI_TRY(status);
    if (t->pipeline != NULL) tti_trainer_pipeline_idle(t, &step->idle, &step->predicted_idle);
    tutti_optimizer_step_on(t->optimizer, t->pass, step->rate, scale);
    note_step(t, step, began);
    tti_trainer_watched(t, TUTTI_TRAIN_AT_UPDATE, step->step);
    TTI_TRY(tti_trainer_spread(t));
    tti_copies_start(t);
    TTI_TRY(check_weights(t, step));
    step->seconds = (double)(tti_now_ns() - began) * 1e-9;
    step->comm_seconds = comm_seconds(t) - waited;
    step->save_failed = tti_background_failed(t, false);
    return TUTTI_OK;
}

tutti_status tutti_trainer_step(tutti_trainer *t, tutti_train_step *step)
{
    tutti_train_step unused;
    TTI_TRY(tti_trainer_usable(t));
    tti_trainer_begin(t);
    if (tutti_trainer_serves(t)) return tti_trainer_refuse_server(t, "step");
    return tti_trainer_end(t, "step", take_step(t, step == NULL ? &unused : step));
}

static tutti_status validate(struct tutti_trainer *t, double *loss)
{
    double sum = 0, count = 0;
    bool stop;
    *loss = NAN;
    if (t->about.held_out_samples == 0) return TUTTI_OK;
    begin_part(t);
    if (t->server != NULL) return tti_trainer_server_validate(t, loss);
    for (uint64_t at = 0; at < tti_trainer_last_index(t, true); at += (uint64_t)t->options.batch) {
        tutti_status status = tti_trainer_evaluate(t, at);
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
    TTI_TRY(tti_trainer_usable(t));
    tti_trainer_begin(t);
    if (tutti_trainer_serves(t)) return tti_trainer_refuse_server(t, "validate");
    return tti_trainer_end(t, "validate", validate(t, loss == NULL ? &unused : loss));
}
