/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of 16 bits. Owners keep theirs as f32, too: these masters, ddp->zero.values, are what an optimizer updates.
 * Ranks keep and send each other bf16, rounded to the nearest, with ties to even. Layers get f32: the values of a
 * bucket are widened into one of the slots that zero 3 gathers into.
 */
#define TUTTI_NO_CALL_SITES
#include "base/status.h"
#include "collective/reduce/reduce_kernels_convert.h"
#include "train/ddp.h"
#include "train/ledger.h"

void tti_bf16_round(uint16_t *restrict halves, const float *restrict values, size_t count)
{
    for (size_t i = 0; i < count; i++) halves[i] = encode_bf16(values[i]);
}

void tti_bf16_widen(float *restrict values, const uint16_t *restrict halves, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = decode_bf16(halves[i]);
}

/* Widens from the front. The first half of the room is overwritten first, so the values to be read lie behind those
 * that are written, or were read before. */
void tti_bf16_widen_packed(float *values, size_t count)
{
    enum { STEP = 1024 };
    const uint16_t *packed = tti_bf16_packed(values, count);
    uint16_t some[STEP];
    for (size_t i = 0; i < count; i += STEP) {
        const size_t left = count - i, length = left < STEP ? left : STEP;
        memcpy(some, packed + i, length * sizeof *some);
        tti_bf16_widen(values + i, some, length);
    }
}

/* ---- From masters to all --------------------------------------------------------------------------------------- */

/* Returns the place of this rank's own values of a bucket among those it keeps. */
static size_t own_place(const struct tutti_ddp *ddp, size_t bucket)
{
    if (ddp->zero.stage >= TTI_ZERO_PARAMETERS) return ddp->zero.owned_at[bucket];
    return tti_zero_slice(ddp, &ddp->buckets[bucket]).lo;
}

static tutti_status gather_start(struct tutti_ddp *ddp, struct tti_bucket *bucket)
{
    tti_ddp_slice_counts(ddp, bucket, (struct tti_span){bucket->from, bucket->to});
    return tutti_all_gather_v_start(tti_ddp_inside_group(ddp, "values"),
                                    ddp->zero.halves + tti_zero_slice(ddp, bucket).lo, ddp->zero.halves + bucket->from,
                                    ddp->counts, NULL, TUTTI_BF16, &bucket->op);
}

static void round_owned(struct tutti_ddp *ddp)
{
    const struct tti_zero *zero = &ddp->zero;
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        const struct tti_span mine = tti_zero_slice(ddp, &ddp->buckets[b]);
        tti_bf16_round(zero->halves + own_place(ddp, b), zero->values + zero->owned_at[b], mine.hi - mine.lo);
    }
}

void tti_bf16_begin(struct tutti_ddp *ddp)
{
    round_owned(ddp);
    for (size_t i = 0; ddp->zero.stage < TTI_ZERO_PARAMETERS && i < ddp->count; i++)
        if (ddp->parameters[i].value != NULL)
            tti_bf16_round(ddp->zero.halves + ddp->starts[i], ddp->parameters[i].value, ddp->parameters[i].count);
}

tutti_status tti_bf16_spread(struct tutti_ddp *ddp)
{
    const struct tti_zero *zero = &ddp->zero;
    const bool gathers = zero->stage > 0 && zero->stage < TTI_ZERO_PARAMETERS;
    tutti_status first = tti_zero_wait_values(ddp);
    tti_zero_forget_values(ddp);
    round_owned(ddp);
    for (size_t b = 0; gathers && first == TUTTI_OK && b < ddp->bucket_count; b++)
        first = gather_start(ddp, &ddp->buckets[b]);
    tutti_status waited = tti_ddp_wait_buckets(ddp, ddp->bucket_count);
    return first == TUTTI_OK ? waited : first;
}
