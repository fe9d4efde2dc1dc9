/* SPDX-License-Identifier: Apache-2.0
 *
 * Training in which gradients (zero 2), and values, too (zero 3), only exist while they are used. Every pass is then
 * made by all ranks together: a rank that has no samples of it, or has failed by itself, makes it without samples.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "nn/model.h"
#include "nn/nn_kernels.h"
#include "train/ddp.h"
#include "train/ledger.h"
#include "train/trainer.h"

/* ---- Passes ---------------------------------------------------------------------------------------------------- */

struct tti_span tti_pass_cells(const struct tutti_trainer *t, int pass, int rank)
{
    if (t->pass_bounds == NULL) return tti_tree_share(t->cells, rank, t->size);
    const size_t first = (size_t)t->pass_bounds[pass], cells = (size_t)t->pass_bounds[pass + 1] - first;
    const struct tti_span share = tti_tree_share(cells, rank, t->size);
    return (struct tti_span){first + share.lo, first + share.hi};
}

int tti_trainer_passes_most(const struct tutti_trainer *t)
{
    return (int)t->options.accumulate * (t->pipeline == NULL ? 1 : t->pipeline->about.micros);
}

/* Cuts the cells of each pass. In a pipeline a pass is one of its micro-batches, and there may be fewer of them, but
 * not more. */
static int cut_passes(struct tutti_trainer *t)
{
    const size_t size = (size_t)t->size, most = (size_t)tti_trainer_passes_most(t);
    const size_t each = (t->cells + size - 1) / size;
    int passes;
    t->pass_grains = (int)((each + most - 1) / most);
    while ((passes = tti_grain_passes((int)t->cells, t->size, t->pass_grains, t->pass_bounds)) > (int)most &&
           t->pipeline != NULL)
        t->pass_grains++;
    return passes;
}

tutti_status tti_trainer_plan_passes(struct tutti_trainer *t, tutti_error *error)
{
    t->passes = 1;
    if (!tti_trainer_passing_gradients(t)) return TUTTI_OK;
    if (t->options.fast) t->passes = (int)t->options.accumulate;
    if (t->options.fast) return TUTTI_OK;
    t->pass_bounds = tti_calloc(t->cells + 1, sizeof *t->pass_bounds);
    if (t->pass_bounds != NULL) t->passes = cut_passes(t);
    if (t->pass_bounds == NULL || t->passes == 0)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a plan of %zu grains", t->cells);
    t->piece = 0;
    t->room = 0;
    for (int p = 0; p < t->passes; p++) {
        const struct tti_span mine = tti_pass_cells(t, p, t->rank), samples = tti_cells_samples(t, mine);
        if (mine.hi - mine.lo > t->piece) t->piece = mine.hi - mine.lo;
        if ((int64_t)(samples.hi - samples.lo) > t->room) t->room = (int64_t)(samples.hi - samples.lo);
    }
    return TUTTI_OK;
}

/* ---- Values and gradients that come and go --------------------------------------------------------------------- */

static tutti_status need(void *context, size_t offset, size_t count, const float **values)
{
    struct tutti_trainer *t = context;
    const bool tied = offset >= t->elements; /* a copy of another stage's tensor */
    tutti_status status = tied ? tutti_ddp_need_run(t->tie.ddp, offset - t->tie.first, count, values)
                               : tutti_ddp_need_run(t->ddp, offset, count, values);
    if (t->gone == TUTTI_OK) t->gone = status;
    return status;
}

static void done(void *context, size_t offset, size_t count)
{
    const struct tutti_trainer *t = context;
    if (offset >= t->elements)
        tutti_ddp_done_run(t->tie.ddp, offset - t->tie.first, count);
    else
        tutti_ddp_done_run(t->ddp, offset, count);
}

tutti_value_source tti_trainer_source(struct tutti_trainer *t)
{
    return (tutti_value_source){need, done, t};
}

tutti_status tti_trainer_place(void *context, int subtree, size_t offset, size_t count, float **gradients)
{
    struct tutti_trainer *t = context;
    tutti_status status = tutti_ddp_gradient_run(t->ddp, subtree, offset, count, gradients);
    if (t->gone == TUTTI_OK) t->gone = status;
    return status;
}

/* ---- What this rank owns --------------------------------------------------------------------------------------- */

/* Returns the tensor of an owned part, and where the part begins in it. There is padding behind the tensor's
 * elements. */
static const tutti_tensor *tensor_of(const struct tutti_trainer *t, size_t part, size_t *first, size_t *index)
{
    const size_t at = tutti_ddp_owned_first(t->ddp, part);
    size_t i = (size_t)tutti_model_tensors(t->model) - 1;
    while (tutti_model_tensor(t->model, (int)i)->offset > at) i--;
    *index = i;
    *first = at - tutti_model_tensor(t->model, (int)i)->offset;
    return tutti_model_tensor(t->model, (int)i);
}

void tti_trainer_init_owned(struct tutti_trainer *t)
{
    const tutti_parameter *owned;
    const size_t count = tutti_ddp_owned(t->ddp, &owned);
    for (size_t p = 0; p < count; p++) {
        size_t first, index;
        const tutti_tensor *tensor = tensor_of(t, p, &first, &index);
        tti_tensor_init(t->model, tensor, (uint64_t)t->options.seed, first, owned[p].count, owned[p].value);
    }
}

static bool part_fault(const float *values, size_t count, const char *what, const char *name, size_t first,
                       tutti_fault *fault)
{
    const ptrdiff_t index = tti_nn_kernels()->find_nonfinite(values, count);
    if (index < 0) return false;
    *fault = (tutti_fault){.index = first + (size_t)index, .value = values[index]};
    (void)snprintf(fault->what, sizeof fault->what, "%s", what);
    (void)snprintf(fault->tensor, sizeof fault->tensor, "%s", name);
    return true;
}

bool tti_trainer_owned_fault(const struct tutti_trainer *t, tutti_fault *fault)
{
    const tutti_parameter *owned;
    const size_t count = tutti_ddp_owned(t->ddp, &owned);
    for (int what = 0; what < 2; what++)
        for (size_t p = 0; p < count; p++) {
            size_t first, index;
            const tutti_tensor *tensor = tensor_of(t, p, &first, &index);
            if (part_fault(what == 0 ? owned[p].value : owned[p].gradient, owned[p].count,
                           what == 0 ? "parameter" : "gradient", owned[p].name, first, fault)) {
                (void)snprintf(fault->layer, sizeof fault->layer, "%s",
                               tutti_model_layer(t->model, tensor->layer)->name);
                return true;
            }
        }
    return false;
}

struct tti_ledger tti_trainer_ledger(const struct tutti_trainer *t)
{
    const struct tti_ledger_sizes sizes = {.elements = t->elements,
                                           .owned = t->ddp->zero.elements,
                                           .zero = (int)t->options.zero,
                                           .bf16 = tti_trainer_is_bf16(t)};
    struct tti_ledger ledger = tti_ledger_of(&sizes);
    if (t->options.zero < TTI_ZERO_PARAMETERS) /* of tensors of other stages; with zero 3 those are in the tie */
        ledger.parameters += (t->model->value_elements - t->elements) * (sizes.bf16 ? 2 : sizeof(float));
    ledger.parameters += 2 * t->model->state_elements * sizeof(float); /* with the states from before the step */
    return ledger;
}
