/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over grains that do not depend on which rank has which grain.
 *
 * The sum is that of the canonical tree over all grains. A rank has a run of grains; it computes the fewest
 * subtrees that make up the run by itself. Above them the tree is the same, whichever rank computed what:
 *
 *     8 grains on 3 ranks      rank 0: 0..2        rank 1: 3..5        rank 2: 6..7
 *     subtrees                 [0 1] [2]           [3] [4 5]           [6 7]
 *     the rest                 (([0 1] + ([2] + [3])) + ([4 5] + [6 7]))
 *
 * Each rank adds up a slice of every bucket, whole blocks. It gets that slice of every subtree (one exchange per
 * subtree of the rank that has most), adds them in the order of the tree, and the slices are gathered unless they stay
 * with their owners. If every rank has one subtree and all are of one size, a power of two, the tree over ranks is just
 * the top of the tree over grains, and all_reduce computes it.
 *
 * All of this happens during backward: when a bucket is ready its exchange is started, and then the bucket before it,
 * whose exchange had as long as this one took to become ready, is added up and its gathering started. That is the same
 * order of operations on all ranks, whichever data arrived first.
 *
 * If gradients do not stay (zero 2), ranks do not add up several passes by themselves: every pass is a subtree of all
 * grains, shared out among the ranks anew, and owners add the sums of passes in the order of the tree.
 */
#define TUTTI_NO_CALL_SITES
#include "nn/nn_kernels.h"
#include "train/ddp.h"

#include "base/alloc.h"
#include "base/status.h"
#include "train/ledger.h"
#include <string.h>

enum { BLOCK = 4096 }; /* elements that are added at a time, so that they stay in the cache */

/* ---- Passes ---------------------------------------------------------------------------------------------------- */

/* Cuts a subtree until no rank has more than `most` of its grains, or one grain is left. */
static void cut_passes(struct tti_span tree, size_t largest, int depth, struct tti_grain_pass *passes, int *count)
{
    size_t leaves = tree.hi - tree.lo;
    if (leaves <= largest || leaves == 1) {
        passes[(*count)++] = (struct tti_grain_pass){.grains = tree, .depth = depth};
        return;
    }
    size_t half = tree.lo + tti_tree_half(leaves);
    cut_passes((struct tti_span){tree.lo, half}, largest, depth, passes, count);
    cut_passes((struct tti_span){half, tree.hi}, largest, depth + 1, passes, count);
    passes[*count - 1].merges++;
}

static int list_passes(int grains, int ranks, int most, struct tti_grain_pass *passes)
{
    int count = 0;
    size_t largest = most > 0 ? (size_t)most * (size_t)ranks : (size_t)grains;
    cut_passes((struct tti_span){0, (size_t)grains}, largest, 0, passes, &count);
    return count;
}

int tti_grain_passes(int grains, int ranks, int most, int *bounds)
{
    struct tti_grain_pass *passes = tti_calloc((size_t)grains, sizeof *passes);
    if (passes == NULL) return 0;
    int count = list_passes(grains, ranks, most, passes);
    for (int i = 0; i < count; i++) bounds[i] = (int)passes[i].grains.lo;
    bounds[count] = grains;
    tti_free(passes);
    return count;
}

/* ---- Who has what ---------------------------------------------------------------------------------------------- */

static bool is_power(size_t number)
{
    return (number & (number - 1)) == 0;
}

/* With replicas, the tree over ranks begins with the tree over the ranks of one replica. */
static bool is_aligned(const struct tutti_ddp *ddp, size_t grains, size_t size)
{
    size_t group = size / (size_t)ddp->zero.replicas;
    return grains % size == 0 && is_power(grains / size) && (ddp->zero.replicas == 1 || is_power(group));
}

static tutti_status list_subtrees(const struct tutti_ddp *ddp, struct tti_grain_pass *pass, tutti_error *error)
{
    const int size = ddp->size;
    const size_t grains = pass->grains.hi - pass->grains.lo;
    pass->subtrees = tti_calloc((size_t)size * TUTTI_SUBTREES_MAX, sizeof *pass->subtrees);
    pass->of_rank = tti_calloc((size_t)size + 1, sizeof *pass->of_rank);
    if (pass->subtrees == NULL || pass->of_rank == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for a plan of %d grains", ddp->grains);
    for (int r = 0; r < size; r++) {
        struct tti_span share = tti_tree_share(grains, r, size);
        size_t first = pass->grains.lo + share.lo;
        int bounds[TUTTI_SUBTREES_MAX + 1];
        int made = tutti_grain_subtrees((int)grains, (int)share.lo, (int)(share.hi - share.lo), bounds);
        pass->of_rank[r] = pass->subtree_count;
        for (int k = 0; k < made; k++)
            pass->subtrees[pass->subtree_count++] = (struct tti_grain_subtree){
                .span = {first + (size_t)bounds[k], first + (size_t)bounds[k + 1]}, .rank = r};
        if (made > pass->rounds) pass->rounds = made;
    }
    pass->of_rank[size] = pass->subtree_count;
    return TUTTI_OK;
}

static tutti_status plan_pass(const struct tutti_ddp *ddp, struct tti_grain_pass *pass, tutti_error *error)
{
    const size_t grains = pass->grains.hi - pass->grains.lo;
    struct tti_span share = tti_tree_share(grains, ddp->rank, ddp->size);
    pass->first = (int)(pass->grains.lo + share.lo);
    pass->count = (int)(share.hi - share.lo);
    pass->aligned = is_aligned(ddp, grains, (size_t)ddp->size);
    pass->partial_count = tutti_grain_subtrees((int)grains, (int)share.lo, pass->count, pass->bounds);
    return list_subtrees(ddp, pass, error);
}

/* Returns the largest value of a pass. */
static size_t most_of(const struct tutti_ddp *ddp, size_t (*of)(const struct tti_grain_pass *pass))
{
    size_t most = 0;
    for (int i = 0; i < ddp->pass_count; i++)
        if (of(&ddp->passes[i]) > most) most = of(&ddp->passes[i]);
    return most;
}

static size_t exchanged(const struct tti_grain_pass *pass)
{
    return pass->aligned ? 0 : (size_t)pass->subtree_count;
}

/* Makes memory. The first partial is the gradients' own memory; the others, and the slices, need more. */
static tutti_status make_memory(struct tutti_ddp *ddp, tutti_error *error)
{
    const int partials = ddp->zero.stage >= TTI_ZERO_GRADIENTS ? 1 : ddp->passes[0].partial_count;
    size_t largest = 0, more = (size_t)partials - 1;
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        struct tti_span mine = tti_ddp_slice(ddp, &ddp->buckets[b], ddp->rank);
        if (mine.hi - mine.lo > largest) largest = mine.hi - mine.lo;
    }
    size_t slice = ddp->alone ? 0 : largest * most_of(ddp, exchanged);
    if (!tti_ddp_take(ddp, more * ddp->elements * sizeof(float), &ddp->memory) ||
        !tti_ddp_take(ddp, 2 * slice * sizeof(float), &ddp->slices))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for the gradients of %d subtrees of grains",
                             ddp->passes[0].partial_count);
    if (ddp->comm == NULL) return TUTTI_OK;
    ddp->exchanges[0].slices = ddp->slices;
    ddp->exchanges[1].slices = ddp->slices + slice;
    ddp->partials[0] = ddp->flat;
    for (int k = 1; k < partials; k++) ddp->partials[k] = ddp->memory + (size_t)(k - 1) * ddp->elements;
    return TUTTI_OK;
}

/* Plans a ddp without grains: the gradients of ranks are summed as they are. */
static tutti_status plan_ranks(struct tutti_ddp *ddp, tutti_error *error)
{
    ddp->pass_count = 1;
    ddp->passes = tti_calloc(1, sizeof *ddp->passes);
    if (ddp->passes == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory");
    ddp->passes[0].aligned = true;
    return TUTTI_OK;
}

tutti_status tti_ddp_plan_grains(struct tutti_ddp *ddp, int most, tutti_error *error)
{
    if (ddp->grains == 0) return plan_ranks(ddp, error);
    if (ddp->copied)
        return tti_error_set(
            error, TUTTI_ERR_ARGUMENT, 0,
            "ddp: with grains the parameters' gradients must follow each other in one piece of memory");
    ddp->passes = tti_calloc((size_t)ddp->grains, sizeof *ddp->passes);
    if (ddp->passes == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "ddp: no memory for a plan of grains");
    ddp->pass_count = list_passes(ddp->grains, ddp->size, ddp->zero.stage >= TTI_ZERO_GRADIENTS ? most : 0,
                                  ddp->passes);
    for (int i = 0; i < ddp->pass_count; i++) TTI_TRY(plan_pass(ddp, &ddp->passes[i], error));
    return make_memory(ddp, error);
}

void tti_ddp_free_grains(struct tutti_ddp *ddp)
{
    (void)tutti_free(ddp->comm, ddp->memory);
    (void)tutti_free(ddp->comm, ddp->slices);
    for (int i = 0; i < ddp->pass_count; i++) {
        tti_free(ddp->passes[i].subtrees);
        tti_free(ddp->passes[i].of_rank);
    }
    tti_free(ddp->passes);
}

int tutti_ddp_passes(const tutti_ddp *ddp)
{
    return ddp == NULL ? 0 : ddp->pass_count;
}

void tutti_ddp_grains(const tutti_ddp *ddp, int *first, int *count)
{
    *first = tti_ddp_pass(ddp)->first;
    *count = tti_ddp_pass(ddp)->count;
}

int tutti_ddp_partials(const tutti_ddp *ddp, const int **bounds, float *const **gradients)
{
    *bounds = tti_ddp_pass(ddp)->bounds;
    *gradients = ddp->partials;
    return tti_ddp_pass(ddp)->partial_count;
}

/* ---- Adding up ------------------------------------------------------------------------------------------------- */

/* The slices of all subtrees lie one after the other, with `length` elements each. */
struct sum {
    const struct tti_grain_subtree *subtrees;
    float *slices;
    size_t length;
    int next; /* the first of the subtrees that was not taken yet */
};

/* Sums the subtree lo..hi over `count` elements from `at` on, into the memory of its first part, which it returns. */
static float *add_up(struct sum *sum, struct tti_span tree, size_t at, size_t count)
{
    const struct tti_span listed = sum->subtrees[sum->next].span;
    if (listed.lo == tree.lo && listed.hi == tree.hi) return sum->slices + (size_t)sum->next++ * sum->length + at;
    size_t half = tree.lo + tti_tree_half(tree.hi - tree.lo);
    float *left = add_up(sum, (struct tti_span){tree.lo, half}, at, count);
    const float *right = add_up(sum, (struct tti_span){half, tree.hi}, at, count);
    tti_nn_kernels()->add(left, left, right, count);
    return left;
}

static const float *partial_of(const struct tutti_ddp *ddp, const struct tti_bucket *bucket, int partial)
{
    if (ddp->zero.stage >= TTI_ZERO_GRADIENTS) return tti_zero_gradients(ddp, bucket, partial);
    return ddp->partials[partial] + bucket->from;
}

/* Starts one exchange: subtree number `round` of all ranks; each rank's slice goes to that rank. */
static tutti_status exchange_start(struct tutti_ddp *ddp, struct tti_grain_exchange *exchange, int round)
{
    int size = ddp->size, rank = ddp->rank;
    const struct tti_bucket *bucket = exchange->bucket;
    const struct tti_grain_pass *pass = tti_ddp_pass(ddp);
    const bool mine_too = round < pass->partial_count;
    size_t all = (size_t)size;
    size_t *in_counts = ddp->counts, *in_offsets = in_counts + all, *out_counts = in_offsets + all,
           *out_offsets = out_counts + all;
    struct tti_span mine = tti_ddp_slice(ddp, bucket, rank);
    for (int r = 0; r < size; r++) {
        struct tti_span slice = tti_ddp_slice(ddp, bucket, r);
        int theirs = pass->of_rank[r] + round;
        bool has = theirs < pass->of_rank[r + 1];
        in_counts[r] = mine_too ? slice.hi - slice.lo : 0;
        in_offsets[r] = slice.lo - bucket->from;
        out_counts[r] = has ? mine.hi - mine.lo : 0;
        out_offsets[r] = has ? (size_t)theirs * (mine.hi - mine.lo) : 0;
    }
    const float *in = partial_of(ddp, bucket, mine_too ? round : 0);
    return tutti_all_to_all_v_start(tti_ddp_inside(ddp, "gradients of grains"), in, in_counts, in_offsets,
                                    exchange->slices, out_counts, out_offsets, TUTTI_F32, &exchange->ops[round]);
}

tutti_status tti_ddp_combine_begin(struct tutti_ddp *ddp, struct tti_bucket *bucket)
{
    struct tti_grain_exchange *exchange = &ddp->exchanges[(bucket - ddp->buckets) % 2];
    exchange->bucket = bucket;
    for (int round = 0; round < tti_ddp_pass(ddp)->rounds; round++) TTI_TRY(exchange_start(ddp, exchange, round));
    return TUTTI_OK;
}

/* Waits for all of an exchange, after a failure, too: nothing may write to the slices any more. */
static tutti_status exchange_wait(struct tti_grain_exchange *exchange)
{
    tutti_status first = TUTTI_OK;
    for (int round = 0; round < TUTTI_SUBTREES_MAX; round++) {
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
    TTI_TRY(exchange_wait(exchange));
    struct tti_span mine = tti_ddp_slice(ddp, bucket, ddp->rank);
    float *sums = tti_ddp_sums(ddp, bucket);
    for (size_t at = 0; at < mine.hi - mine.lo; at += BLOCK) {
        size_t left = mine.hi - mine.lo - at, count = left < BLOCK ? left : BLOCK;
        struct sum sum = {
            .subtrees = tti_ddp_pass(ddp)->subtrees, .slices = exchange->slices, .length = mine.hi - mine.lo};
        const float *all = add_up(&sum, tti_ddp_pass(ddp)->grains, at, count);
        memcpy(sums + at, all, count * sizeof *sums);
    }
    if (ddp->zero.stage > 0) return TUTTI_OK; /* sums stay with their owners */
    tti_ddp_slice_counts(ddp, bucket, (struct tti_span){bucket->from, bucket->to});
    return tutti_all_gather_v_start(tti_ddp_inside(ddp, "gradients"), sums, ddp->flat + bucket->from, ddp->counts, NULL,
                                    TUTTI_F32, &bucket->op);
}
