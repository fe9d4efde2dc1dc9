/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO: who owns which elements, and what goes between owners and all.
 *
 * Of every bucket each rank owns successive blocks, its slice. With zero, the sums of a bucket stay with their owners: the
 * optimizer updates what its rank owns, and owners then hand their values to all. Updates are element by element and sums
 * are in the canonical order whoever adds, so weights are those of plain data parallel, bit for bit; a norm is the tree
 * over the blocks' sums, in the order of all parameters, whoever has summed them.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "train/ddp.h"
#include "train/norm.h"
#include <math.h>
#include <string.h>

/* ---- Slices ---------------------------------------------------------------------------------------------------- */

struct tti_span tti_ddp_slice(const struct tutti_ddp *ddp, const struct tti_bucket *bucket, int rank)
{
    const struct tti_blocks blocks = {ddp->starts, ddp->count};
    return tti_blocks_owned(&blocks, (struct tti_span){bucket->from, bucket->to}, rank, tutti_size(ddp->comm));
}

static struct tti_span common(struct tti_span a, struct tti_span b)
{
    struct tti_span both = {a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
    return both.hi > both.lo ? both : (struct tti_span){b.lo, b.lo};
}

void tti_ddp_slice_counts(struct tutti_ddp *ddp, const struct tti_bucket *bucket, struct tti_span within)
{
    for (int r = 0; r < tutti_size(ddp->comm); r++) {
        struct tti_span part = common(tti_ddp_slice(ddp, bucket, r), within);
        ddp->counts[r] = part.hi - part.lo;
    }
}

/* Buckets go from the end of the list to its beginning; what is owned is listed the other way. */
static const struct tti_bucket *ascending(const struct tutti_ddp *ddp, size_t number)
{
    return &ddp->buckets[ddp->bucket_count - 1 - number];
}

static struct tti_span parameter_span(const struct tutti_ddp *ddp, size_t index)
{
    return (struct tti_span){ddp->starts[index], ddp->starts[index + 1]};
}

/* Parts of parameters that this rank owns; called twice: to count, and to fill in. */
static size_t list_owned(const struct tutti_ddp *ddp, tutti_parameter *owned)
{
    size_t made = 0;
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        struct tti_span slice = tti_ddp_slice(ddp, ascending(ddp, b), tutti_rank(ddp->comm));
        for (size_t i = 0; i < ddp->count; i++) {
            struct tti_span part = common(slice, parameter_span(ddp, i));
            if (part.hi == part.lo) continue;
            if (owned != NULL) {
                const tutti_parameter *p = &ddp->parameters[i];
                size_t offset = part.lo - ddp->starts[i];
                owned[made] = (tutti_parameter){p->name, p->value + offset, p->gradient + offset, part.hi - part.lo,
                                                p->decays};
            }
            made++;
        }
    }
    return made;
}

static bool values_touch(const struct tutti_ddp *ddp)
{
    for (size_t i = 1; i < ddp->count; i++)
        if (ddp->parameters[i - 1].value + ddp->parameters[i - 1].count != ddp->parameters[i].value) return false;
    return true;
}

tutti_status tti_zero_plan(struct tutti_ddp *ddp, tutti_error *error)
{
    struct tti_zero *zero = &ddp->zero;
    zero->count = list_owned(ddp, NULL);
    zero->owned = tti_calloc(zero->count + 1, sizeof *zero->owned);
    if (zero->owned == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for what a rank owns");
    (void)list_owned(ddp, zero->owned);
    zero->by_bucket = values_touch(ddp);
    return TUTTI_OK;
}

size_t tutti_ddp_owned(const tutti_ddp *ddp, const tutti_parameter **owned)
{
    if (ddp == NULL || owned == NULL) return 0;
    *owned = ddp->zero.stage > 0 ? ddp->zero.owned : ddp->parameters;
    return ddp->zero.stage > 0 ? ddp->zero.count : ddp->count;
}

/* OK if everything is there and no pass is under way, which has the buckets. */
static tutti_status check(const tutti_ddp *ddp, const char *call, bool given)
{
    if (ddp == NULL) return tti_ddp_refuse(NULL, call, "there is no ddp");
    if (!given) return tti_ddp_refuse(ddp, call, "it is given NULL");
    if (ddp->begun && ddp->last) return tti_ddp_refuse(ddp, call, "a pass has begun: tutti_ddp_end comes first");
    return TUTTI_OK;
}

/* ---- Values to all --------------------------------------------------------------------------------------------- */

/* The values of these elements, which follow each other in memory from `base` on: everyone's own to everyone. */
static tutti_status spread_start(struct tutti_ddp *ddp, const struct tti_bucket *bucket, struct tti_span elements,
                                 float *base, tutti_op *op)
{
    size_t before = 0;
    tti_ddp_slice_counts(ddp, bucket, elements);
    for (int r = 0; r < tutti_rank(ddp->comm); r++) before += ddp->counts[r];
    return tutti_all_gather_v_start(tti_ddp_inside(ddp, "values"), base + before, base, ddp->counts, NULL, TUTTI_F32,
                                    op);
}

/* In one go where the values of a bucket are one piece of memory, else parameter by parameter. */
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
    if (ddp->zero.stage == 0) return TUTTI_OK;
    for (size_t b = 0; b < ddp->bucket_count && first == TUTTI_OK; b++) first = spread_bucket(ddp, &ddp->buckets[b]);
    tutti_status waited = tti_ddp_wait_buckets(ddp, ddp->bucket_count);
    ddp->seconds += (double)(tti_now_ns() - began) * 1e-9;
    return first == TUTTI_OK ? waited : first;
}

/* ---- What owners keep ------------------------------------------------------------------------------------------ */

tutti_status tutti_ddp_gather_owned(tutti_ddp *ddp, const float *mine, float *all)
{
    TTI_TRY(check(ddp, "gather_owned", mine != NULL));
    int rank = tutti_rank(ddp->comm);
    if (ddp->zero.stage == 0 && rank == 0 && all != mine) memcpy(all, mine, ddp->elements * sizeof *all);
    for (size_t b = 0; ddp->zero.stage > 0 && b < ddp->bucket_count; b++) {
        const struct tti_bucket *bucket = ascending(ddp, b);
        tti_ddp_slice_counts(ddp, bucket, (struct tti_span){bucket->from, bucket->to});
        TTI_TRY(tutti_gather_v(tti_ddp_inside(ddp, "what is owned"), mine, ddp->counts[rank],
                               rank == 0 ? all + bucket->from : NULL, ddp->counts, NULL, TUTTI_F32, 0));
        mine += ddp->counts[rank];
    }
    return TUTTI_OK;
}

tutti_status tutti_ddp_scatter_owned(tutti_ddp *ddp, const float *all, float *mine)
{
    TTI_TRY(check(ddp, "scatter_owned", mine != NULL));
    int rank = tutti_rank(ddp->comm);
    if (ddp->zero.stage == 0)
        return tutti_broadcast(tti_ddp_inside(ddp, "what is owned"), all, mine, ddp->elements, TUTTI_F32, 0);
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        const struct tti_bucket *bucket = ascending(ddp, b);
        tti_ddp_slice_counts(ddp, bucket, (struct tti_span){bucket->from, bucket->to});
        TTI_TRY(tutti_scatter_v(tti_ddp_inside(ddp, "what is owned"), rank == 0 ? all + bucket->from : NULL,
                                ddp->counts, NULL, mine, ddp->counts[rank], TUTTI_F32, 0));
        mine += ddp->counts[rank];
    }
    return TUTTI_OK;
}

/* ---- Norms ----------------------------------------------------------------------------------------------------- */

static size_t blocks_in(const struct tutti_ddp *ddp, struct tti_span slice)
{
    const struct tti_blocks blocks = {ddp->starts, ddp->count};
    return tti_blocks_before(&blocks, slice.hi) - tti_blocks_before(&blocks, slice.lo);
}

/* Sums of blocks from the order of their owners, each with the buckets in order, into that of all parameters. */
static void put_in_order(const struct tutti_ddp *ddp, const double *gathered, size_t *next, double *ordered)
{
    for (size_t b = 0; b < ddp->bucket_count; b++)
        for (int r = 0; r < tutti_size(ddp->comm); r++) {
            size_t count = blocks_in(ddp, tti_ddp_slice(ddp, ascending(ddp, b), r));
            memcpy(ordered, gathered + next[r], count * sizeof *ordered);
            next[r] += count;
            ordered += count;
        }
}

/* `sums` has room for two doubles per block. */
static tutti_status norm_of_owned(struct tutti_ddp *ddp, struct tti_pool *pool, size_t blocks, double *sums,
                                  double *norm)
{
    int size = tutti_size(ddp->comm);
    size_t *next = ddp->counts + size, at = 0;
    for (int r = 0; r < size; r++) {
        ddp->counts[r] = 0;
        for (size_t b = 0; b < ddp->bucket_count; b++)
            ddp->counts[r] += blocks_in(ddp, tti_ddp_slice(ddp, &ddp->buckets[b], r));
        next[r] = at;
        at += ddp->counts[r];
    }
    double *mine = sums + next[tutti_rank(ddp->comm)];
    tti_block_sums(pool, ddp->zero.owned, ddp->zero.count, mine);
    TTI_TRY(tutti_all_gather_v(tti_ddp_inside(ddp, "norm"), mine, sums, ddp->counts, NULL, TUTTI_F64));
    put_in_order(ddp, sums, next, sums + blocks);
    *norm = sqrt(tti_tree_sum(sums + blocks, blocks));
    return TUTTI_OK;
}

tutti_status tti_ddp_norm(struct tutti_ddp *ddp, struct tti_pool *pool, double *norm)
{
    const struct tti_blocks all = {ddp->starts, ddp->count};
    size_t blocks = tti_blocks_before(&all, ddp->elements);
    tutti_comm *comm = tutti_at(ddp->comm, ddp->here.file, ddp->here.line);
    if (ddp->zero.stage == 0) return tti_gradient_norm(comm, pool, ddp->parameters, ddp->count, norm);
    double *sums = tti_calloc(2 * blocks + 1, sizeof *sums);
    if (sums == NULL) return TUTTI_ERR_MEMORY;
    tutti_status status = norm_of_owned(ddp, pool, blocks, sums, norm);
    tti_free(sums);
    return status;
}

tutti_status tutti_ddp_norm(tutti_ddp *ddp, double *norm)
{
    TTI_TRY(check(ddp, "norm", norm != NULL));
    return tti_ddp_norm(ddp, NULL, norm);
}
