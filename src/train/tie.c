/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "train/tie.h"

#include "base/alloc.h"
#include "base/status.h"
#include "collective/api/inside.h"
#include "nn/model.h"
#include "train/blocks.h"
#include "train/ddp.h"
#include "train/ledger.h"

enum { TAG_SUM = 1, TAG_VALUES };

/* Returns the last layer if it shares a tensor, or NULL. */
static const tutti_layer *sharer_of(const tutti_model *model)
{
    const tutti_layer *last = tutti_model_layer(model, tutti_model_layers(model) - 1);
    return last->shared_with >= 0 ? last : NULL;
}

tutti_status tti_tie_allocate(struct tti_tie *tie, const struct tti_trainer_mesh *mesh, const tutti_model *model,
                              int zero, tutti_error *error)
{
    const tutti_layer *layer = sharer_of(model);
    if (layer == NULL || (!tie->owns && !tie->shares)) return TUTTI_OK;
    const tutti_tensor *tensor = tutti_model_tensor(model, layer->tensors[0]);
    tie->passes = zero >= TTI_ZERO_GRADIENTS;
    tie->zero = zero;
    tie->batch = mesh->batch;
    tie->first = tensor->offset;
    tie->elements = tutti_model_tied(model);
    tie->parameter = (tutti_parameter){.name = layer->name, .count = tie->elements};
    const bool planned = mesh->batch == NULL;
    if (tutti_model_values(model) != NULL) tie->parameter.value = tutti_model_values(model) + tensor->offset;
    if (tie->passes) return TUTTI_OK;
    tie->bytes = tie->elements * sizeof(float);
    if (planned) return TUTTI_OK;
    tie->parameter.gradient = tutti_alloc(mesh->batch, tie->bytes);
    if (tie->parameter.gradient != NULL) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the gradient of %s's weight", layer->name);
}

/* Returns true if the two layers are on different ranks, and one of them is here. */
static bool is_apart(const struct tti_tie *tie)
{
    return tie->owns != tie->shares;
}

/* ---- From the slices of one ddp to those of the other ---------------------------------------------------------- */

/* Returns the rank's part of the tensor in the ddp of all parameters, which has it in one bucket, as elements of the
 * tensor. */
static struct tti_span owned_of(const struct tti_tie *tie, const tutti_ddp *ddp, int rank)
{
    const size_t first = tie->first, end = first + tie->elements;
    const struct tti_span slice = tti_ddp_slice(ddp, tti_ddp_bucket_of(ddp, first), rank);
    const size_t lo = slice.lo > first ? slice.lo : first, hi = slice.hi < end ? slice.hi : end;
    return hi > lo ? (struct tti_span){lo - first, hi - first} : (struct tti_span){0, 0};
}

/* Returns its part in the ddp of the sharing layer, which has one parameter; that ddp need not be here. */
static struct tti_span tied_of(const struct tti_tie *tie, int rank, int size)
{
    const size_t starts[] = {0, tie->elements};
    const struct tti_blocks blocks = {starts, 1};
    return tti_blocks_owned(&blocks, (struct tti_span){0, tie->elements}, rank % size, size);
}

/* Returns how many elements two spans have in common, and where these begin in the first. */
static size_t common(struct tti_span a, struct tti_span b, size_t *at)
{
    const size_t lo = a.lo > b.lo ? a.lo : b.lo, hi = a.hi < b.hi ? a.hi : b.hi;
    *at = hi > lo ? lo - a.lo : 0;
    return hi > lo ? hi - lo : 0;
}

static int group_size(const tutti_ddp *ddp)
{
    return ddp->size / ddp->zero.replicas;
}

/* Exchanges slices of the sharing layer's ddp for those of the other, or back. */
static tutti_status exchange(struct tti_tie *tie, const tutti_ddp *ddp, bool back, const float *in, float *out)
{
    const int size = group_size(ddp), rank = ddp->rank % size;
    const struct tti_span tied = tied_of(tie, rank, size), owned = owned_of(tie, ddp, rank);
    size_t *in_counts = tie->counts, *in_at = in_counts + size, *out_counts = in_at + size, *out_at = out_counts + size;
    for (int r = 0; r < size; r++) {
        const struct tti_span their_tied = tied_of(tie, r, size), their_owned = owned_of(tie, ddp, r);
        in_counts[r] = back ? common(owned, their_tied, &in_at[r]) : common(tied, their_owned, &in_at[r]);
        out_counts[r] = back ? common(tied, their_owned, &out_at[r]) : common(owned, their_tied, &out_at[r]);
    }
    return tutti_all_to_all_v(tti_ddp_inside_group(ddp, "tied weight"), in, in_counts, in_at, out, out_counts, out_at,
                              TUTTI_F32);
}

/* Returns the values of the tensor that this rank owns, with zero 3. */
static const float *owned_values(const struct tti_tie *tie, const tutti_ddp *ddp)
{
    const struct tti_bucket *bucket = tti_ddp_bucket_of(ddp, tie->first);
    const struct tti_span slice = tti_ddp_slice(ddp, bucket, ddp->rank);
    const size_t before = tie->first > slice.lo ? tie->first - slice.lo : 0;
    return ddp->zero.values + ddp->zero.owned_at[bucket - ddp->buckets] + before;
}

/* ---- Making one ------------------------------------------------------------------------------------------------ */

/* Makes the memory for owned sums, on the owner's ranks, with zero 2 and 3. */
static tutti_status make_owned(struct tti_tie *tie, const tutti_ddp *ddp, tutti_error *error)
{
    const int size = group_size(ddp);
    const struct tti_span mine = owned_of(tie, ddp, ddp->rank % size), tied = tied_of(tie, ddp->rank, size);
    const size_t slice = is_apart(tie) ? tied.hi - tied.lo : 0;
    tie->owned_first = mine.lo;
    tie->bytes = (mine.hi - mine.lo + slice) * sizeof(float);
    if (ddp->comm == NULL) return TUTTI_OK;
    tie->owned = tti_calloc_aligned((mine.hi - mine.lo + 1) * sizeof(float));
    tie->slice = tti_calloc_aligned((slice + 1) * sizeof(float));
    tie->counts = tti_calloc(4 * (size_t)size, sizeof *tie->counts);
    if (tie->owned == NULL || tie->slice == NULL || tie->counts == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the sums of %s's gradient",
                             tie->parameter.name);
    return TUTTI_OK;
}

/* Returns the bytes that the sharing layer's rank keeps for each of its elements: the sum, and with zero 3 the
 * value. */
static size_t slice_bytes(const struct tti_tie *tie)
{
    const bool valued = tie->zero >= TTI_ZERO_PARAMETERS;
    return sizeof(float) + (valued ? sizeof(float) : 0) + (valued && tie->bf16 ? sizeof(uint16_t) : 0);
}

/* Makes the ddp of the sharing layer's gradient, which has its values, too, if the owner is on another rank and zero is
 * 3 or the type bf16. */
static tutti_status make_ddp(struct tti_tie *tie, const tutti_ddp *ddp, const tutti_ddp_options *options,
                             tutti_error *error)
{
    tutti_ddp_options own = {.struct_size = sizeof own,
                             .grains = options->grains,
                             .pass_grains = options->pass_grains,
                             .allow_unused = true,
                             .bf16 = tie->bf16};
    if (tie->passes) own.zero = is_apart(tie) ? tie->zero : TTI_ZERO_GRADIENTS;
    if (tie->passes) own.replicas = options->replicas;
    struct tti_ddp_place place = {.rank = ddp->rank, .size = ddp->size, .alone = ddp->alone};
    if (ddp->comm != NULL) {
        tutti_status status = tutti_comm_duplicate(tti_inside(tie->batch, "trainer", "tied weight"), &tie->comm);
        if (status != TUTTI_OK && tutti_comm_error(tie->batch) != NULL) *error = *tutti_comm_error(tie->batch);
        TTI_TRY(status);
        place.comm = tie->comm;
    }
    TTI_TRY(tti_ddp_make(&place, &tie->parameter, 1, false, &own, &tie->ddp, error));
    if (tie->passes && is_apart(tie)) /* sums, and values, which are counted as such elsewhere */
        tie->bytes = tie->ddp->zero.elements * slice_bytes(tie);
    return TUTTI_OK;
}

tutti_status tti_tie_make(struct tti_tie *tie, const tutti_ddp *ddp, const tutti_ddp_options *options,
                          tutti_error *error)
{
    if (tie->elements == 0) return TUTTI_OK;
    tie->bf16 = options->bf16 && is_apart(tie);
    if (tie->shares) TTI_TRY(make_ddp(tie, ddp, options, error));
    return tie->passes && tie->owns ? make_owned(tie, ddp, error) : TUTTI_OK;
}

void tti_tie_free(struct tti_tie *tie)
{
    tutti_ddp_free(tie->ddp);
    if (tie->parameter.gradient != NULL) (void)tutti_free(tie->batch, tie->parameter.gradient);
    (void)tutti_comm_free(tie->comm);
    tti_free(tie->owned);
    tti_free(tie->slice);
    tti_free(tie->counts);
    *tie = (struct tti_tie){0};
}

/* ---- A step ---------------------------------------------------------------------------------------------------- */

tutti_status tti_tie_begin(struct tti_tie *tie, bool last)
{
    return tie->ddp == NULL ? TUTTI_OK : tutti_ddp_begin(tie->ddp, last);
}

tutti_status tti_tie_places(struct tti_tie *tie, float **gradients)
{
    const int count = tie->ddp == NULL ? 0 : tti_ddp_pass(tie->ddp)->partial_count;
    for (int k = 0; k < count; k++) TTI_TRY(tutti_ddp_gradient_run(tie->ddp, k, 0, tie->elements, &gradients[k]));
    return TUTTI_OK;
}

/* Sends from one of the two ranks to the other. */
static tutti_status hand_over(const struct tti_tie *tie, void *values, size_t count, tutti_type type, bool from_owner,
                              int tag)
{
    if (tie->elements == 0 || !is_apart(tie)) return TUTTI_OK;
    tutti_comm *comm = tti_inside(tie->pipe, "trainer", "tied weight");
    if (tie->owns == from_owner)
        return tutti_send(comm, values, count, type, from_owner ? tie->sharer : tie->owner, tag);
    return tutti_recv(comm, values, count, type, from_owner ? tie->owner : tie->sharer, tag, NULL);
}

/* With zero 2 and 3: sends this rank's slice of the sums between the two stages. */
static tutti_status hand_over_sums(struct tti_tie *tie, const tutti_ddp *ddp)
{
    const struct tti_span tied = tied_of(tie, ddp->rank, group_size(ddp));
    float *sums = tie->ddp != NULL ? tie->ddp->zero.pending[0] : tie->slice;
    TTI_TRY(hand_over(tie, sums, tied.hi - tied.lo, TUTTI_F32, false, TAG_SUM));
    return tie->owns ? exchange(tie, ddp, false, sums, tie->owned) : TUTTI_OK;
}

tutti_status tti_tie_end(struct tti_tie *tie, const tutti_ddp *ddp, bool passes_on)
{
    if (tie->ddp != NULL) TTI_TRY(tutti_ddp_end(tie->ddp, 0, NULL));
    if (!passes_on || tie->elements == 0) return TUTTI_OK;
    return tie->passes ? hand_over_sums(tie, ddp)
                       : hand_over(tie, tie->parameter.gradient, tie->elements, TUTTI_F32, false, TAG_SUM);
}

void tti_tie_add(const struct tti_tie *tie, const tutti_ddp *ddp)
{
    const tutti_parameter *owned;
    size_t count = tutti_ddp_owned(ddp, &owned);
    const float *sums = tie->passes ? tie->owned : tie->parameter.gradient;
    for (size_t i = 0; i < count; i++) {
        size_t element = tutti_ddp_owned_first(ddp, i);
        if (element < tie->first || element >= tie->first + tie->elements) continue;
        const float *restrict more = sums + (element - tie->first - tie->owned_first);
        float *restrict sum = owned[i].gradient;
        for (size_t k = 0; k < owned[i].count; k++) sum[k] += more[k];
    }
}

/* Sends rounded values. Below zero 3 all ranks of the owner's stage have all values, as bf16. */
static tutti_status hand_over_rounded(const struct tti_tie *tie, const tutti_ddp *ddp)
{
    uint16_t *halves = tie->owns ? ddp->zero.halves + tie->first : tie->ddp->zero.halves;
    if (tie->shares) tti_zero_forget_values(tie->ddp);
    return hand_over(tie, halves, tie->elements, TUTTI_BF16, true, TAG_VALUES);
}

tutti_status tti_tie_spread(struct tti_tie *tie, const tutti_ddp *ddp)
{
    if (tie->elements == 0 || !is_apart(tie)) return TUTTI_OK;
    if (tie->zero < TTI_ZERO_PARAMETERS && tie->bf16) return hand_over_rounded(tie, ddp);
    if (tie->zero < TTI_ZERO_PARAMETERS)
        return hand_over(tie, tie->parameter.value, tie->elements, TUTTI_F32, true, TAG_VALUES);
    const struct tti_span tied = tied_of(tie, ddp->rank, group_size(ddp));
    if (tie->owns) TTI_TRY(exchange(tie, ddp, true, owned_values(tie, ddp), tie->slice));
    float *values = tie->owns ? tie->slice : tti_ddp_owned_values(tie->ddp);
    TTI_TRY(hand_over(tie, values, tied.hi - tied.lo, TUTTI_F32, true, TAG_VALUES));
    return tie->shares ? tutti_ddp_spread(tie->ddp) : TUTTI_OK;
}
