/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO: the owners of elements, and the data that go between owners and all ranks.
 *
 * Of every bucket each rank owns consecutive blocks, its slice. With zero, the sums of a bucket stay with their owners:
 * the optimizer updates the elements of its rank, and owners then send their values to all. Updates are element by
 * element and sums are in the canonical order whichever rank adds, so weights are those of plain data parallel, bit for
 * bit; a norm is the tree over the blocks' sums, in the order of all parameters, whichever rank has summed them.
 *
 * With replicas the ranks are groups of consecutive ones. Each group owns everything; ranks of the same place in their
 * groups own the same, and add up their sums.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "train/ddp.h"
#include "train/ledger.h"
#include "train/norm.h"
#include <math.h>
#include <string.h>

/* ---- Slices ---------------------------------------------------------------------------------------------------- */

/* Returns the ranks of one replica, which own everything together. */
static int group_size(const struct tutti_ddp *ddp)
{
    return ddp->size / ddp->zero.replicas;
}

static int group_rank(const struct tutti_ddp *ddp)
{
    return ddp->rank % group_size(ddp);
}

struct tti_span tti_ddp_slice(const struct tutti_ddp *ddp, const struct tti_bucket *bucket, int rank)
{
    const struct tti_blocks blocks = {ddp->starts, ddp->count};
    const int size = group_size(ddp);
    return tti_blocks_owned(&blocks, (struct tti_span){bucket->from, bucket->to}, rank % size, size);
}

struct tti_span tti_zero_slice(const struct tutti_ddp *ddp, const struct tti_bucket *bucket)
{
    if (ddp->zero.bf16 && ddp->zero.stage == 0) return (struct tti_span){bucket->from, bucket->to};
    return tti_ddp_slice(ddp, bucket, ddp->rank);
}

static struct tti_span common(struct tti_span a, struct tti_span b)
{
    struct tti_span both = {a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
    return both.hi > both.lo ? both : (struct tti_span){b.lo, b.lo};
}

void tti_ddp_slice_counts(struct tutti_ddp *ddp, const struct tti_bucket *bucket, struct tti_span within)
{
    for (int r = 0; r < group_size(ddp); r++) {
        struct tti_span part = common(tti_ddp_slice(ddp, bucket, r), within);
        ddp->counts[r] = part.hi - part.lo;
    }
}

/* Buckets go from the end of the list to its beginning; owned elements are listed the other way. */
static const struct tti_bucket *ascending(const struct tutti_ddp *ddp, size_t number)
{
    return &ddp->buckets[ddp->bucket_count - 1 - number];
}

static struct tti_span parameter_span(const struct tutti_ddp *ddp, size_t index)
{
    return (struct tti_span){ddp->starts[index], ddp->starts[index + 1]};
}

/* Returns where a part's values and gradients are. `at`: its place among the elements that this rank owns. */
static tutti_parameter owned_part(const struct tutti_ddp *ddp, size_t index, struct tti_span part, size_t at)
{
    const struct tti_zero *zero = &ddp->zero;
    const tutti_parameter *p = &ddp->parameters[index];
    const size_t offset = part.lo - ddp->starts[index];
    float *value = p->value == NULL ? NULL : p->value + offset;
    if (tti_ddp_passes_values(ddp)) value = zero->values == NULL ? NULL : zero->values + at;
    return (tutti_parameter){.name = p->name,
                             .value = value,
                             .gradient = zero->stage >= TTI_ZERO_GRADIENTS ? zero->pending[0] + at
                                                                           : p->gradient + offset,
                             .count = part.hi - part.lo,
                             .decays = p->decays};
}

/* Lists the parts of parameters that this rank owns; called twice: to count, and to fill in. */
static size_t list_owned(const struct tutti_ddp *ddp, tutti_parameter *owned, size_t *first)
{
    size_t made = 0, at = 0;
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        struct tti_span slice = tti_zero_slice(ddp, ascending(ddp, b));
        for (size_t i = 0; i < ddp->count; i++) {
            struct tti_span part = common(slice, parameter_span(ddp, i));
            if (part.hi == part.lo) continue;
            if (owned != NULL) owned[made] = owned_part(ddp, i, part, at);
            if (owned != NULL) first[made] = part.lo;
            at += part.hi - part.lo;
            made++;
        }
    }
    return made;
}

/* Pointers are compared as numbers: with zero 3 there may be no values. */
static bool values_touch(const struct tutti_ddp *ddp)
{
    for (size_t i = 1; i < ddp->count; i++) {
        const tutti_parameter *before = &ddp->parameters[i - 1];
        uintptr_t end = (uintptr_t)before->value + before->count * sizeof *before->value;
        if (end != (uintptr_t)ddp->parameters[i].value) return false;
    }
    return true;
}

tutti_status tti_zero_count(struct tutti_ddp *ddp, tutti_error *error)
{
    struct tti_zero *zero = &ddp->zero;
    zero->owned_at = tti_calloc(ddp->bucket_count + 1, sizeof *zero->owned_at);
    if (zero->owned_at == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for a list of buckets");
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        const struct tti_bucket *bucket = ascending(ddp, b);
        struct tti_span mine = tti_zero_slice(ddp, bucket);
        zero->owned_at[bucket - ddp->buckets] = zero->elements;
        zero->elements += mine.hi - mine.lo;
    }
    return TUTTI_OK;
}

static tutti_status split_failed(const struct tutti_ddp *ddp, tutti_status status, tutti_error *error)
{
    if (status != TUTTI_OK) *error = *tutti_comm_error(ddp->comm);
    return status;
}

tutti_status tti_zero_group(struct tutti_ddp *ddp, tutti_error *error)
{
    struct tti_zero *zero = &ddp->zero;
    const int rank = ddp->rank, size = group_size(ddp);
    zero->group = ddp->comm;
    if (zero->replicas == 1 || ddp->comm == NULL) return TUTTI_OK;
    tutti_comm *group = NULL, *across = NULL;
    TTI_TRY(split_failed(ddp, tutti_comm_split(tti_ddp_inside(ddp, "replica"), rank / size, rank, &group), error));
    zero->group = group;
    TTI_TRY(split_failed(ddp, tutti_comm_split(tti_ddp_inside(ddp, "replicas"), rank % size, rank, &across), error));
    zero->across = across;
    return TUTTI_OK;
}

tutti_status tti_zero_plan(struct tutti_ddp *ddp, tutti_error *error)
{
    struct tti_zero *zero = &ddp->zero;
    zero->count = list_owned(ddp, NULL, NULL);
    zero->owned = tti_calloc(zero->count + 1, sizeof *zero->owned);
    zero->first = tti_calloc(zero->count + 1, sizeof *zero->first);
    if (zero->owned == NULL || zero->first == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for what a rank owns");
    (void)list_owned(ddp, zero->owned, zero->first);
    zero->by_bucket = values_touch(ddp);
    return TUTTI_OK;
}

void tti_zero_free(struct tutti_ddp *ddp)
{
    struct tti_zero *zero = &ddp->zero;
    (void)tti_zero_wait_values(ddp);
    for (int i = 0; i < TTI_VALUE_SLOTS; i++) (void)tutti_free(ddp->comm, zero->slots[i].values);
    for (int i = 0; i < TTI_GRAIN_DEPTH; i++) (void)tutti_free(ddp->comm, zero->pending[i]);
    for (int i = 0; i < 2; i++) (void)tutti_free(ddp->comm, zero->buffers[i]);
    (void)tutti_free(ddp->comm, zero->values);
    (void)tutti_free(ddp->comm, zero->halves);
    if (zero->group != ddp->comm) (void)tutti_comm_free(zero->group);
    (void)tutti_comm_free(zero->across);
    tti_free(zero->owned);
    tti_free(zero->first);
    tti_free(zero->owned_at);
}

static bool lists_owned(const struct tutti_ddp *ddp)
{
    return ddp->zero.stage > 0 || ddp->zero.bf16;
}

size_t tutti_ddp_owned(const tutti_ddp *ddp, const tutti_parameter **owned)
{
    if (ddp == NULL || owned == NULL) return 0;
    *owned = lists_owned(ddp) ? ddp->zero.owned : ddp->parameters;
    return lists_owned(ddp) ? ddp->zero.count : ddp->count;
}

size_t tutti_ddp_owned_first(const tutti_ddp *ddp, size_t part)
{
    if (ddp == NULL || part >= (lists_owned(ddp) ? ddp->zero.count : ddp->count)) return 0;
    return lists_owned(ddp) ? ddp->zero.first[part] : ddp->starts[part];
}

/* Returns OK if everything is given and no pass, which uses the buckets, is under way. */
static tutti_status check(const tutti_ddp *ddp, const char *call, bool given)
{
    if (ddp == NULL) return tti_ddp_refuse(NULL, call, "there is no ddp");
    if (!given) return tti_ddp_refuse(ddp, call, "it is given NULL");
    if (ddp->begun && ddp->last) return tti_ddp_refuse(ddp, call, "a pass has begun: tutti_ddp_end comes first");
    return TUTTI_OK;
}

/* ---- Values to all --------------------------------------------------------------------------------------------- */

/* Sends the values of these elements, which follow each other in memory from `base` on: each rank's own to all. */
static tutti_status spread_start(struct tutti_ddp *ddp, const struct tti_bucket *bucket, struct tti_span elements,
                                 float *base, tutti_op *op)
{
    size_t before = 0;
    tti_ddp_slice_counts(ddp, bucket, elements);
    for (int r = 0; r < group_rank(ddp); r++) before += ddp->counts[r];
    return tutti_all_gather_v_start(tti_ddp_inside_group(ddp, "values"), base + before, base, ddp->counts, NULL,
                                    TUTTI_F32, op);
}

/* Sends a bucket's values: at once if they are one piece of memory, else parameter by parameter. */
static tutti_status spread_bucket(struct tutti_ddp *ddp, struct tti_bucket *bucket)
{
    if (ddp->zero.by_bucket)
        return spread_start(ddp, bucket, (struct tti_span){bucket->from, bucket->to},
                            ddp->parameters[0].value + bucket->from, &bucket->op);
    for (size_t i = 0; i < ddp->count; i++) {
        struct tti_span all = parameter_span(ddp, i);
        tutti_op op;
        if (all.lo < bucket->from || all.hi > bucket->to || all.lo == all.hi) continue;
        TTI_TRY(spread_start(ddp, bucket, all, ddp->parameters[i].value, &op));
        TTI_TRY(tutti_wait(op));
    }
    return TUTTI_OK;
}

tutti_status tutti_ddp_spread(tutti_ddp *ddp)
{
    TTI_TRY(check(ddp, "spread", true));
    int64_t began = tti_now_ns();
    tutti_status first = TUTTI_OK;
    if (ddp->zero.bf16) {
        first = tti_bf16_spread(ddp);
        ddp->seconds += (double)(tti_now_ns() - began) * 1e-9;
        return first;
    }
    if (ddp->zero.stage == 0) return TUTTI_OK;
    if (ddp->zero.stage >= TTI_ZERO_PARAMETERS) { /* ranks that need them gather them */
        first = tti_zero_wait_values(ddp);
        tti_zero_forget_values(ddp);
        return first;
    }
    for (size_t b = 0; b < ddp->bucket_count && first == TUTTI_OK; b++) first = spread_bucket(ddp, &ddp->buckets[b]);
    tutti_status waited = tti_ddp_wait_buckets(ddp, ddp->bucket_count);
    ddp->seconds += (double)(tti_now_ns() - began) * 1e-9;
    return first == TUTTI_OK ? waited : first;
}

/* ---- What owners keep ------------------------------------------------------------------------------------------ */

tutti_status tutti_ddp_gather_owned(tutti_ddp *ddp, const float *mine, float *all)
{
    TTI_TRY(check(ddp, "gather_owned", mine != NULL));
    int rank = ddp->rank;
    if (rank >= group_size(ddp)) return TUTTI_OK; /* the first replica has everything */
    if (ddp->zero.stage == 0 && rank == 0 && all != mine) memcpy(all, mine, ddp->elements * sizeof *all);
    for (size_t b = 0; ddp->zero.stage > 0 && b < ddp->bucket_count; b++) {
        const struct tti_bucket *bucket = ascending(ddp, b);
        tti_ddp_slice_counts(ddp, bucket, (struct tti_span){bucket->from, bucket->to});
        TTI_TRY(tutti_gather_v(tti_ddp_inside_group(ddp, "what is owned"), mine, ddp->counts[rank],
                               rank == 0 ? all + bucket->from : NULL, ddp->counts, NULL, TUTTI_F32, 0));
        mine += ddp->counts[rank];
    }
    return TUTTI_OK;
}

static tutti_status scatter_group(tutti_ddp *ddp, const float *all, float *mine)
{
    const int rank = ddp->rank;
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        const struct tti_bucket *bucket = ascending(ddp, b);
        tti_ddp_slice_counts(ddp, bucket, (struct tti_span){bucket->from, bucket->to});
        TTI_TRY(tutti_scatter_v(tti_ddp_inside_group(ddp, "what is owned"), rank == 0 ? all + bucket->from : NULL,
                                ddp->counts, NULL, mine, ddp->counts[rank], TUTTI_F32, 0));
        mine += ddp->counts[rank];
    }
    return TUTTI_OK;
}

tutti_status tutti_ddp_scatter_owned(tutti_ddp *ddp, const float *all, float *mine)
{
    TTI_TRY(check(ddp, "scatter_owned", mine != NULL));
    if (ddp->zero.stage == 0)
        return tutti_broadcast(tti_ddp_inside(ddp, "what is owned"), all, mine, ddp->elements, TUTTI_F32, 0);
    if (ddp->rank < group_size(ddp)) TTI_TRY(scatter_group(ddp, all, mine));
    if (ddp->zero.across == NULL) return TUTTI_OK;
    return tutti_broadcast(tti_inside(ddp->zero.across, "ddp", "what is owned"), mine, mine, ddp->zero.elements,
                           TUTTI_F32, 0);
}

/* ---- Norms ----------------------------------------------------------------------------------------------------- */

static size_t blocks_in(const struct tutti_ddp *ddp, struct tti_span slice)
{
    const struct tti_blocks blocks = {ddp->starts, ddp->count};
    return tti_blocks_before(&blocks, slice.hi) - tti_blocks_before(&blocks, slice.lo);
}

/* Moves sums of blocks from the order of their owners, each with the buckets in order, into that of all parameters. */
static void put_in_order(const struct tutti_ddp *ddp, const double *gathered, size_t *next, double *ordered)
{
    for (size_t b = 0; b < ddp->bucket_count; b++)
        for (int r = 0; r < group_size(ddp); r++) {
            size_t count = blocks_in(ddp, tti_ddp_slice(ddp, ascending(ddp, b), r));
            memcpy(ordered, gathered + next[r], count * sizeof *ordered);
            next[r] += count;
            ordered += count;
        }
}

/* Gathers the owners' sums, in the order of all parameters. */
static tutti_status sums_of_owned(struct tutti_ddp *ddp, struct tti_pool *pool, double *sums)
{
    int size = group_size(ddp);
    size_t *next = ddp->counts + size, at = 0;
    for (int r = 0; r < size; r++) {
        ddp->counts[r] = 0;
        for (size_t b = 0; b < ddp->bucket_count; b++)
            ddp->counts[r] += blocks_in(ddp, tti_ddp_slice(ddp, &ddp->buckets[b], r));
        next[r] = at;
        at += ddp->counts[r];
    }
    double *gathered = tti_calloc(at + 1, sizeof *gathered);
    if (gathered == NULL) return TUTTI_ERR_MEMORY;
    double *mine = gathered + next[group_rank(ddp)];
    tti_block_sums(pool, ddp->zero.owned, ddp->zero.count, mine);
    tutti_status status = tutti_all_gather_v(tti_ddp_inside_group(ddp, "norm"), mine, gathered, ddp->counts, NULL,
                                             TUTTI_F64);
    if (status == TUTTI_OK) put_in_order(ddp, gathered, next, sums);
    tti_free(gathered);
    return status;
}

size_t tti_ddp_blocks(const struct tutti_ddp *ddp)
{
    const struct tti_blocks all = {ddp->starts, ddp->count};
    return tti_blocks_before(&all, ddp->elements);
}

tutti_status tti_ddp_block_sums(struct tutti_ddp *ddp, struct tti_pool *pool, double *sums)
{
    tutti_comm *comm = tutti_at(ddp->comm, ddp->here.file, ddp->here.line);
    if (ddp->zero.stage == 0) return tti_gradient_block_sums(comm, pool, ddp->parameters, ddp->count, sums);
    return sums_of_owned(ddp, pool, sums);
}

tutti_status tutti_ddp_norm(tutti_ddp *ddp, double *norm)
{
    TTI_TRY(check(ddp, "norm", norm != NULL));
    double *sums = tti_calloc(tti_ddp_blocks(ddp) + 1, sizeof *sums);
    if (sums == NULL) return TUTTI_ERR_MEMORY;
    tutti_status status = tti_ddp_block_sums(ddp, NULL, sums);
    if (status == TUTTI_OK) *norm = sqrt(tti_tree_sum(sums, tti_ddp_blocks(ddp)));
    tti_free(sums);
    return status;
}
