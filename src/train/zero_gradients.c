/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that do not stay: zero 2 and 3.
 *
 * Two buffers take the gradients of buckets in turn, one for those of even numbers, one for the others. A bucket that
 * is full is reduced from its buffer to the owners of its slices, while the next one is filled; the one after that
 * waits until the first has left its buffer. That works because gradients are made from the end of the list to its
 * beginning; a request in another order is refused.
 *
 * Sums are at depth 0 if the step has one pass. Otherwise each pass's sums are pending at the depth of its subtree in
 * the tree over all grains, and are added when those to their right are there.
 */
#define TUTTI_NO_CALL_SITES
#include "base/status.h"
#include "nn/nn_kernels.h"
#include "train/ddp.h"
#include "train/ledger.h"
#include <string.h>

static size_t length(const struct tti_bucket *bucket)
{
    return bucket->to - bucket->from;
}

static size_t number(const struct tutti_ddp *ddp, const struct tti_bucket *bucket)
{
    return (size_t)(bucket - ddp->buckets);
}

float *tti_zero_gradients(const struct tutti_ddp *ddp, const struct tti_bucket *bucket, int partial)
{
    return ddp->zero.buffers[number(ddp, bucket) % 2] + (size_t)partial * length(bucket);
}

float *tti_zero_sums(const struct tutti_ddp *ddp, const struct tti_bucket *bucket)
{
    return ddp->zero.pending[tti_ddp_pass(ddp)->depth] + ddp->zero.owned_at[number(ddp, bucket)];
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

tutti_status tti_zero_need_pending(struct tutti_ddp *ddp, int depth)
{
    struct tti_zero *zero = &ddp->zero;
    if (zero->pending[depth] != NULL) return TUTTI_OK;
    const size_t bytes = zero->elements * sizeof(float);
    if (!tti_ddp_take(ddp, bytes, &zero->pending[depth])) return tutti_comm_error(ddp->comm)->status;
    if (depth == 0) ddp->bytes -= bytes; /* these are the gradients themselves */
    return TUTTI_OK;
}

static tutti_status no_memory(const struct tutti_ddp *ddp, tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0,
                         "ddp: no memory for the gradients of %zu elements that are owned, "
                         "and of two buckets",
                         ddp->zero.elements);
}

/* Returns the most partials that a rank has of a bucket. */
static size_t most_partials(const struct tutti_ddp *ddp)
{
    int most = 1;
    for (int i = 0; i < ddp->pass_count; i++)
        if (ddp->passes[i].partial_count > most) most = ddp->passes[i].partial_count;
    return (size_t)most;
}

tutti_status tti_zero_make_buffers(struct tutti_ddp *ddp, tutti_error *error)
{
    struct tti_zero *zero = &ddp->zero;
    int deepest = 0;
    for (int parity = 0; parity < 2; parity++) {
        size_t most = 0;
        for (size_t b = (size_t)parity; b < ddp->bucket_count; b += 2)
            if (length(&ddp->buckets[b]) > most) most = length(&ddp->buckets[b]);
        size_t bytes = most * most_partials(ddp) * sizeof(float);
        zero->buffer_bucket[parity] = TTI_NO_BUCKET;
        if (!tti_ddp_take(ddp, bytes, &zero->buffers[parity])) return no_memory(ddp, error);
    }
    for (int i = 0; i < ddp->pass_count; i++)
        if (ddp->passes[i].depth > deepest) deepest = ddp->passes[i].depth;
    for (int depth = 0; depth <= deepest; depth++)
        if (tti_zero_need_pending(ddp, depth) != TUTTI_OK) return no_memory(ddp, error);
    return TUTTI_OK;
}

/* ---- Where gradients go ---------------------------------------------------------------------------------------- */

static tutti_status take_buffer(struct tutti_ddp *ddp, struct tti_bucket *bucket)
{
    const size_t mine = number(ddp, bucket);
    size_t *has = &ddp->zero.buffer_bucket[mine % 2];
    if (*has == mine) return TUTTI_OK;
    if (mine >= ddp->next + 2 || mine < ddp->next)
        return tti_ddp_refuse(
            ddp, "gradient",
            "gradients are made from the end of the list to its beginning: others come first, or this "
            "one was ready already");
    tutti_status status = TUTTI_OK;
    if (mine >= ddp->now.lo + 2 && tti_ddp_pass(ddp)->aligned && !ddp->buckets[mine - 2].halfway) {
        status = tutti_wait(ddp->buckets[mine - 2].op);
        ddp->buckets[mine - 2].op = (tutti_op){0};
    }
    *has = mine;
    return status;
}

static tutti_status place(struct tutti_ddp *ddp, int partial, size_t offset, size_t count, float **gradients)
{
    struct tti_bucket *bucket = tti_ddp_bucket_of(ddp, offset);
    if (ddp->zero.stage < TTI_ZERO_GRADIENTS) {
        *gradients = ddp->grains > 0 ? ddp->partials[partial] + offset : ddp->flat + offset;
        return TUTTI_OK;
    }
    if (offset + count > bucket->to)
        return tti_ddp_refuse(ddp, "gradient",
                              "these elements are of several buckets: options.groups keeps together "
                              "what is used together");
    TTI_TRY(take_buffer(ddp, bucket));
    *gradients = tti_zero_gradients(ddp, bucket, partial) + (offset - bucket->from);
    return TUTTI_OK;
}

tutti_status tutti_ddp_gradient_run(tutti_ddp *ddp, int partial, size_t offset, size_t count, float **gradients)
{
    if (ddp == NULL || !ddp->begun)
        return tti_ddp_refuse(ddp, "gradient", "no pass has begun: tutti_ddp_begin comes first");
    int partials = ddp->grains > 0 ? tti_ddp_pass(ddp)->partial_count : 1;
    if (gradients == NULL || offset > ddp->elements || count > ddp->elements - offset || partial < 0 ||
        partial >= partials)
        return tti_ddp_refuse(ddp, "gradient", "there are not so many parameters, elements or partials");
    return place(ddp, partial, offset, count, gradients);
}

tutti_status tutti_ddp_gradient(tutti_ddp *ddp, size_t index, float **gradient)
{
    if (ddp == NULL || gradient == NULL || index >= ddp->count)
        return tti_ddp_refuse(ddp, "gradient", "there are not so many parameters");
    if (ddp->zero.stage < TTI_ZERO_GRADIENTS && ddp->grains == 0) {
        *gradient = ddp->parameters[index].gradient;
        return TUTTI_OK;
    }
    return tutti_ddp_gradient_run(ddp, 0, ddp->starts[index], ddp->parameters[index].count, gradient);
}

tutti_status tti_zero_fill_missing(struct tutti_ddp *ddp, struct tti_bucket *bucket)
{
    TTI_TRY(take_buffer(ddp, bucket));
    ddp->zero.buffer_bucket[number(ddp, bucket) % 2] = TTI_NO_BUCKET; /* the next pass takes it again */
    for (size_t i = 0; i < ddp->count; i++) {
        if (ddp->starts[i] < bucket->from || ddp->starts[i + 1] > bucket->to || ddp->ready[i] > 0) continue;
        for (int k = 0; k < tti_ddp_pass(ddp)->partial_count || k == 0; k++)
            memset(tti_zero_gradients(ddp, bucket, k) + (ddp->starts[i] - bucket->from), 0,
                   ddp->parameters[i].count * sizeof(float));
    }
    return TUTTI_OK;
}

/* ---- Sums ------------------------------------------------------------------------------------------------------ */

void tti_zero_merge(struct tutti_ddp *ddp)
{
    const struct tti_grain_pass *pass = tti_ddp_pass(ddp);
    const struct tti_span now = ddp->now;
    if (now.lo == now.hi) return;
    const struct tti_span highest = tti_ddp_slice(ddp, &ddp->buckets[now.lo], ddp->rank);
    const size_t from = ddp->zero.owned_at[now.hi - 1], to = ddp->zero.owned_at[now.lo] + (highest.hi - highest.lo);
    for (int depth = pass->depth; depth > pass->depth - pass->merges; depth--) {
        float *left = ddp->zero.pending[depth - 1] + from;
        tti_nn_kernels()->add(left, left, ddp->zero.pending[depth] + from, to - from);
    }
}
