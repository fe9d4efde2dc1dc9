/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over grains that do not depend on who has which grain.
 *
 * The sum is that of the canonical tree over all grains. A rank has a run of grains; the fewest subtrees that make up
 * the run are what it computes by itself. Above them the tree is the same for everyone, whoever computed what:
 *
 *     8 grains on 3 ranks      rank 0: 0..2        rank 1: 3..5        rank 2: 6..7
 *     subtrees                 [0 1] [2]           [3] [4 5]           [6 7]
 *     the rest                 (([0 1] + ([2] + [3])) + ([4 5] + [6 7]))
 *
 * Each rank adds up a slice of every bucket, whole blocks. It gets that slice of every subtree (one exchange per subtree of the rank that
 * has most), adds them in the order of the tree, and the slices are gathered. Where every rank has one subtree and all
 * are of one size, a power of two, the tree over ranks is just the top of the tree over grains, and all_reduce does it.
 *
 * All of it goes on beside backward: when a bucket is ready its exchange is started, and then the bucket before it, whose
 * exchange had as long as this one took to become ready, is added up and its gathering started. That is the same order of
 * operations on all ranks, whatever was in time where.
 */
#define TUTTI_NO_CALL_SITES
#include "train/ddp.h"

#include "base/alloc.h"
#include "base/status.h"
#include <string.h>

enum { BLOCK = 4096 }; /* elements that are added at a time, so that they stay in the cache */

/* ---- Who has what ---------------------------------------------------------------------------------------------- */

static bool is_aligned(const struct tutti_ddp *ddp, int size)
{
    size_t each = (size_t)ddp->grains / (size_t)size;
    return ddp->grains % size == 0 && (each & (each - 1)) == 0;
}

static tutti_status list_subtrees(struct tutti_ddp *ddp, int size, tutti_error *error)
{
    ddp->subtrees = tti_calloc((size_t)size * TUTTI_SUBTREES_MAX, sizeof *ddp->subtrees);
    ddp->of_rank = tti_calloc((size_t)size + 1, sizeof *ddp->of_rank);
    if (ddp->subtrees == NULL || ddp->of_rank == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for a plan of %d grains", ddp->grains);
    for (int r = 0; r < size; r++) {
        struct tti_span share = tti_tree_share((size_t)ddp->grains, r, size);
        int bounds[TUTTI_SUBTREES_MAX + 1];
        int made = tutti_grain_subtrees(ddp->grains, (int)share.lo, (int)(share.hi - share.lo), bounds);
        ddp->of_rank[r] = ddp->subtree_count;
        for (int k = 0; k < made; k++)
            ddp->subtrees[ddp->subtree_count++] = (struct tti_grain_subtree){
                .span = {share.lo + (size_t)bounds[k], share.lo + (size_t)bounds[k + 1]}, .rank = r};
        if (made > ddp->rounds) ddp->rounds = made;
    }
    ddp->of_rank[size] = ddp->subtree_count;
    return TUTTI_OK;
}

/* The first partial is the gradients' own memory; the others, and slices of all, are more. */
static tutti_status make_memory(struct tutti_ddp *ddp, tutti_error *error)
{
    size_t largest = 0, more = (size_t)ddp->partial_count - 1;
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        struct tti_span mine = tti_ddp_slice(ddp, &ddp->buckets[b], tutti_rank(ddp->comm));
        if (mine.hi - mine.lo > largest) largest = mine.hi - mine.lo;
    }
    size_t slice = largest * (size_t)ddp->subtree_count;
    ddp->memory = tutti_alloc(ddp->comm, more * ddp->elements * sizeof(float));
    ddp->slices = ddp->aligned ? NULL : tutti_alloc(ddp->comm, 2 * slice * sizeof(float));
    if (ddp->memory == NULL || (ddp->slices == NULL && !ddp->aligned))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for the gradients of %d subtrees of grains",
                             ddp->partial_count);
    ddp->bytes += (more * ddp->elements + (ddp->aligned ? 0 : 2 * slice)) * sizeof(float);
    ddp->exchanges[0].slices = ddp->slices;
    ddp->exchanges[1].slices = ddp->aligned ? NULL : ddp->slices + slice;
    ddp->partials[0] = ddp->flat;
    for (int k = 1; k < ddp->partial_count; k++) ddp->partials[k] = ddp->memory + (size_t)(k - 1) * ddp->elements;
    return TUTTI_OK;
}

tutti_status tti_ddp_plan_grains(struct tutti_ddp *ddp, tutti_error *error)
{
    int size = tutti_size(ddp->comm), rank = tutti_rank(ddp->comm);
    struct tti_span share = tti_tree_share((size_t)ddp->grains, rank, size);
    if (ddp->copied)
        return tti_error_set(
            error, TUTTI_ERR_ARGUMENT, 0,
            "ddp: with grains the parameters' gradients must follow each other in one piece of memory");
    ddp->first_grain = (int)share.lo;
    ddp->grain_count = (int)(share.hi - share.lo);
    ddp->aligned = is_aligned(ddp, size);
    ddp->partial_count = tutti_grain_subtrees(ddp->grains, ddp->first_grain, ddp->grain_count, ddp->bounds);
    TTI_TRY(list_subtrees(ddp, size, error));
    return make_memory(ddp, error);
}

void tutti_ddp_grains(const tutti_ddp *ddp, int *first, int *count)
{
    *first = ddp->first_grain;
    *count = ddp->grain_count;
}

int tutti_ddp_partials(const tutti_ddp *ddp, const int **bounds, float *const **gradients)
{
    *bounds = ddp->bounds;
    *gradients = ddp->partials;
    return ddp->partial_count;
}

/* ---- Adding up ------------------------------------------------------------------------------------------------- */

/* The slices of all subtrees lie one after the other, `length` elements each. */
struct sum {
    const struct tutti_ddp *ddp;
    float *slices;
    size_t length;
    int next; /* the first of the subtrees that was not taken yet */
};

/* Sums the subtree lo..hi over `count` elements from `at` on, into the memory of its first part, which is returned. */
static float *add_up(struct sum *sum, struct tti_span tree, size_t at, size_t count)
{
    const struct tti_span listed = sum->ddp->subtrees[sum->next].span;
    if (listed.lo == tree.lo && listed.hi == tree.hi) return sum->slices + (size_t)sum->next++ * sum->length + at;
    size_t half = tree.lo + tti_tree_half(tree.hi - tree.lo);
    float *restrict left = add_up(sum, (struct tti_span){tree.lo, half}, at, count);
    const float *restrict right = add_up(sum, (struct tti_span){half, tree.hi}, at, count);
    for (size_t i = 0; i < count; i++) left[i] += right[i];
    return left;
}

/* Starts one exchange: everyone's subtree number `round`, each rank's slice to that rank. */
static tutti_status exchange_start(struct tutti_ddp *ddp, struct tti_grain_exchange *exchange, int round)
{
    int size = tutti_size(ddp->comm), rank = tutti_rank(ddp->comm);
    const struct tti_bucket *bucket = exchange->bucket;
    size_t all = (size_t)size;
    size_t *in_counts = ddp->counts, *in_offsets = in_counts + all, *out_counts = in_offsets + all,
           *out_offsets = out_counts + all;
    struct tti_span mine = tti_ddp_slice(ddp, bucket, rank);
    for (int r = 0; r < size; r++) {
        struct tti_span slice = tti_ddp_slice(ddp, bucket, r);
        int theirs = ddp->of_rank[r] + round;
        bool has = theirs < ddp->of_rank[r + 1];
        in_counts[r] = round < ddp->partial_count ? slice.hi - slice.lo : 0;
        in_offsets[r] = slice.lo - bucket->from;
        out_counts[r] = has ? mine.hi - mine.lo : 0;
        out_offsets[r] = has ? (size_t)theirs * (mine.hi - mine.lo) : 0;
    }
    const float *in = ddp->partials[round < ddp->partial_count ? round : 0] + bucket->from;
    return tutti_all_to_all_v_start(tti_ddp_inside(ddp, "gradients of grains"), in, in_counts, in_offsets,
                                    exchange->slices, out_counts, out_offsets, TUTTI_F32, &exchange->ops[round]);
}

tutti_status tti_ddp_combine_begin(struct tutti_ddp *ddp, struct tti_bucket *bucket)
{
    struct tti_grain_exchange *exchange = &ddp->exchanges[(bucket - ddp->buckets) % 2];
    exchange->bucket = bucket;
    for (int round = 0; round < ddp->rounds; round++) TTI_TRY(exchange_start(ddp, exchange, round));
    return TUTTI_OK;
}

/* Waits for all of an exchange, also after a failure: nothing may write to the slices any more. */
static tutti_status exchange_wait(struct tutti_ddp *ddp, struct tti_grain_exchange *exchange)
{
    tutti_status first = TUTTI_OK;
    for (int round = 0; round < ddp->rounds; round++) {
        if (exchange->ops[round].id == 0) continue;
        tutti_status status = tutti_wait(exchange->ops[round]);
        exchange->ops[round] = (tutti_op){0};
        if (first == TUTTI_OK) first = status;
    }
    return first;
}

tutti_status tti_ddp_combine_end(struct tutti_ddp *ddp, struct tti_grain_exchange *exchange)
{
    struct tti_bucket *bucket = exchange->bucket;
    if (bucket == NULL) return TUTTI_OK;
    exchange->bucket = NULL;
    TTI_TRY(exchange_wait(ddp, exchange));
    struct tti_span mine = tti_ddp_slice(ddp, bucket, tutti_rank(ddp->comm));
    float *values = ddp->flat;
    for (size_t at = 0; at < mine.hi - mine.lo; at += BLOCK) {
        size_t left = mine.hi - mine.lo - at, count = left < BLOCK ? left : BLOCK;
        struct sum sum = {.ddp = ddp, .slices = exchange->slices, .length = mine.hi - mine.lo};
        const float *all = add_up(&sum, (struct tti_span){0, (size_t)ddp->grains}, at, count);
        memcpy(values + mine.lo + at, all, count * sizeof *values);
    }
    if (ddp->zero.stage > 0) return TUTTI_OK; /* sums stay with their owners */
    tti_ddp_slice_counts(ddp, bucket, (struct tti_span){bucket->from, bucket->to});
    return tutti_all_gather_v_start(tti_ddp_inside(ddp, "gradients"), values + mine.lo, values + bucket->from,
                                    ddp->counts, NULL, TUTTI_F32, &bucket->op);
}
