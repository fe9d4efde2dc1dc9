/* SPDX-License-Identifier: Apache-2.0
 *
 * Values that do not stay: zero 3, and bf16.
 *
 * Values of a bucket are gathered into a slot before they are used. The largest bucket (often an embedding, which the
 * last layer uses, too) has a slot of its own and stays there until values change; the others take two slots in turn,
 * even and odd numbers, so that the bucket that comes next, in the direction in which they were needed, is on its way
 * while this one is used. With bf16 values come as bf16 and are widened in place; below stage 3 they are here already.
 *
 * Invariant: the calls of need and done alone decide which gathering starts when. All ranks of the group make the same
 * gatherings, whatever arrives when: a rank without samples, too.
 */
#define TUTTI_NO_CALL_SITES
#include "base/clock.h"
#include "base/status.h"
#include "train/ddp.h"
#include "train/ledger.h"
#include <string.h>

static size_t length(const struct tti_bucket *bucket)
{
    return bucket->to - bucket->from;
}

static struct tti_value_slot *slot_of(struct tutti_ddp *ddp, size_t bucket)
{
    return &ddp->zero.slots[bucket == ddp->zero.largest ? TTI_VALUE_SLOTS - 1 : bucket % 2];
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static void size_slots(struct tutti_ddp *ddp)
{
    ddp->zero.largest = 0;
    ddp->zero.last_needed = TTI_NO_BUCKET;
    for (size_t b = 1; b < ddp->bucket_count; b++)
        if (length(&ddp->buckets[b]) > length(&ddp->buckets[ddp->zero.largest])) ddp->zero.largest = b;
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        struct tti_value_slot *slot = slot_of(ddp, b);
        if (length(&ddp->buckets[b]) > slot->elements) slot->elements = length(&ddp->buckets[b]);
    }
}

/* Copies this rank's own part of the parameters' values, if they have any. */
static void copy_values(struct tutti_ddp *ddp)
{
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        struct tti_span mine = tti_zero_slice(ddp, &ddp->buckets[b]);
        for (size_t i = 0; i < ddp->count; i++) {
            const tutti_parameter *p = &ddp->parameters[i];
            size_t lo = ddp->starts[i] > mine.lo ? ddp->starts[i] : mine.lo;
            size_t hi = ddp->starts[i + 1] < mine.hi ? ddp->starts[i + 1] : mine.hi;
            if (lo < hi && p->value != NULL)
                memcpy(ddp->zero.values + ddp->zero.owned_at[b] + (lo - mine.lo), p->value + (lo - ddp->starts[i]),
                       (hi - lo) * sizeof(float));
        }
    }
}

/* Makes the memory in which all ranks keep values; if these are the masters, bf16 besides them. If another ddp has the
 * masters, bf16 alone is enough below zero 3: the values come as bf16. */
static bool make_own(struct tutti_ddp *ddp)
{
    struct tti_zero *zero = &ddp->zero;
    const size_t bytes = zero->elements * sizeof(float), listed = ddp->bytes;
    const size_t kept = zero->stage >= TTI_ZERO_PARAMETERS ? zero->elements : ddp->elements;
    float *halves = NULL;
    bool made = (!ddp->valued && zero->bf16 && zero->stage < TTI_ZERO_PARAMETERS) ||
                tti_ddp_take(ddp, bytes, &zero->values);
    if (zero->bf16) made = tti_ddp_take(ddp, kept * sizeof *zero->halves, &halves) && made;
    zero->halves = (uint16_t *)(void *)halves;
    ddp->bytes = listed; /* these are no buffers */
    return made;
}

tutti_status tti_zero_make_values(struct tutti_ddp *ddp, tutti_error *error)
{
    struct tti_zero *zero = &ddp->zero;
    size_slots(ddp);
    bool made = make_own(ddp);
    for (int i = 0; i < TTI_VALUE_SLOTS; i++) {
        struct tti_value_slot *slot = &zero->slots[i];
        slot->bucket = TTI_NO_BUCKET;
        made = tti_ddp_take(ddp, slot->elements * sizeof(float), &slot->values) && made;
    }
    if (!made)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0,
                             "ddp: no memory for the values of %zu elements that are owned, and of three buckets",
                             zero->elements);
    if (zero->values == NULL) return TUTTI_OK;
    copy_values(ddp);
    if (zero->bf16) tti_bf16_begin(ddp);
    return TUTTI_OK;
}

/* ---- Gathering ------------------------------------------------------------------------------------------------- */

static tutti_status slot_wait(struct tti_value_slot *slot)
{
    tutti_op op = slot->op;
    slot->op = (tutti_op){0};
    return op.id == 0 ? TUTTI_OK : tutti_wait(op);
}

/* Gathers values into a slot: as bf16 at the end of its room, or as f32. */
static tutti_status gather_values(struct tutti_ddp *ddp, const struct tti_bucket *bucket, struct tti_value_slot *slot)
{
    const struct tti_zero *zero = &ddp->zero;
    const size_t at = zero->owned_at[bucket - ddp->buckets];
    tutti_comm *comm = tti_ddp_inside_group(ddp, "values");
    tti_ddp_slice_counts(ddp, bucket, (struct tti_span){bucket->from, bucket->to});
    if (!zero->bf16)
        return tutti_all_gather_v_start(comm, zero->values + at, slot->values, ddp->counts, NULL, TUTTI_F32, &slot->op);
    slot->packed = true;
    return tutti_all_gather_v_start(comm, zero->halves + at, tti_bf16_packed(slot->values, length(bucket)), ddp->counts,
                                    NULL, TUTTI_BF16, &slot->op);
}

static tutti_status gather_start(struct tutti_ddp *ddp, size_t number)
{
    struct tti_value_slot *slot = slot_of(ddp, number);
    const struct tti_bucket *bucket = &ddp->buckets[number];
    if (slot->bucket == number) return TUTTI_OK;
    TTI_TRY(slot_wait(slot));
    slot->bucket = number;
    if (ddp->zero.stage >= TTI_ZERO_PARAMETERS) return gather_values(ddp, bucket, slot);
    tti_bf16_widen(slot->values, ddp->zero.halves + bucket->from, length(bucket));
    return TUTTI_OK;
}

/* Returns the bucket that is probably needed after this one; too large: none. Jumps, such as to a tensor that several
 * layers share, are not used for the guess. */
static size_t next_of(const struct tutti_ddp *ddp, size_t number)
{
    const size_t last = ddp->zero.last_needed;
    if (last == TTI_NO_BUCKET) return number + 1 == ddp->bucket_count ? number - 1 : number + 1;
    if (number + 1 == last) return number - 1;
    return number == last + 1 || number == 0 ? number + 1 : TTI_NO_BUCKET;
}

/* Returns true if both buckets are in one part: parts are used separately. */
static bool same_part(const struct tutti_ddp *ddp, size_t a, size_t b)
{
    for (int p = 0; p < ddp->part_count; p++) {
        const struct tti_span buckets = ddp->parts[p].buckets;
        if (a >= buckets.lo && a < buckets.hi) return b >= buckets.lo && b < buckets.hi;
    }
    return true;
}

static tutti_status prefetch(struct tutti_ddp *ddp, size_t number)
{
    const size_t next = next_of(ddp, number);
    ddp->zero.last_needed = number;
    if (ddp->zero.stage < TTI_ZERO_PARAMETERS) return TUTTI_OK; /* nothing is on its way */
    if (next >= ddp->bucket_count || !same_part(ddp, number, next) || slot_of(ddp, next)->users > 0) return TUTTI_OK;
    return gather_start(ddp, next);
}

static tutti_status need(struct tutti_ddp *ddp, size_t number)
{
    struct tti_value_slot *slot = slot_of(ddp, number);
    if (slot->bucket != number && slot->users > 0)
        return tti_ddp_refuse(ddp, "need", "other values are in use: tutti_ddp_done comes first");
    const int64_t began = tti_now_ns();
    const bool moved = number != ddp->zero.last_needed;
    TTI_TRY(gather_start(ddp, number));
    slot->users++;
    if (moved) TTI_TRY(prefetch(ddp, number));
    tutti_status status = slot_wait(slot);
    if (slot->packed) tti_bf16_widen_packed(slot->values, length(&ddp->buckets[number]));
    slot->packed = false;
    ddp->seconds += (double)(tti_now_ns() - began) * 1e-9;
    return status;
}

tutti_status tutti_ddp_need_run(tutti_ddp *ddp, size_t offset, size_t count, const float **values)
{
    if (ddp == NULL || values == NULL || offset > ddp->elements || count > ddp->elements - offset)
        return tti_ddp_refuse(ddp, "need", "there are not so many parameters or elements");
    if (!tti_ddp_passes_values(ddp))
        return tti_ddp_refuse(ddp, "need_run",
                              "runs of values are for zero 3 and bf16: without, parameters have theirs");
    const struct tti_bucket *bucket = tti_ddp_bucket_of(ddp, offset);
    if (offset + count > bucket->to)
        return tti_ddp_refuse(ddp, "need",
                              "these elements are of several buckets: options.groups keeps together what is "
                              "used together");
    const size_t number = (size_t)(bucket - ddp->buckets);
    TTI_TRY(need(ddp, number));
    *values = slot_of(ddp, number)->values + (offset - bucket->from);
    return TUTTI_OK;
}

void tutti_ddp_done_run(tutti_ddp *ddp, size_t offset, size_t count)
{
    (void)count;
    if (ddp == NULL || !tti_ddp_passes_values(ddp) || ddp->bucket_count == 0) return;
    struct tti_value_slot *slot = slot_of(ddp, (size_t)(tti_ddp_bucket_of(ddp, offset) - ddp->buckets));
    if (slot->users > 0) slot->users--;
}

tutti_status tutti_ddp_need(tutti_ddp *ddp, size_t index, const float **values)
{
    if (ddp == NULL || values == NULL || index >= ddp->count)
        return tti_ddp_refuse(ddp, "need", "there are not so many parameters");
    *values = ddp->parameters[index].value;
    if (!tti_ddp_passes_values(ddp) || ddp->parameters[index].count == 0) return TUTTI_OK;
    return tutti_ddp_need_run(ddp, ddp->starts[index], ddp->parameters[index].count, values);
}

void tutti_ddp_done(tutti_ddp *ddp, size_t index)
{
    if (ddp == NULL || index >= ddp->count || ddp->parameters[index].count == 0) return;
    tutti_ddp_done_run(ddp, ddp->starts[index], ddp->parameters[index].count);
}

tutti_status tti_zero_wait_values(struct tutti_ddp *ddp)
{
    tutti_status first = TUTTI_OK;
    for (int i = 0; i < TTI_VALUE_SLOTS; i++) {
        tutti_status status = slot_wait(&ddp->zero.slots[i]);
        if (first == TUTTI_OK) first = status;
    }
    return first;
}

void tti_zero_forget_values(struct tutti_ddp *ddp)
{
    for (int i = 0; i < TTI_VALUE_SLOTS; i++) {
        ddp->zero.slots[i].bucket = TTI_NO_BUCKET;
        ddp->zero.slots[i].packed = false;
    }
    ddp->zero.last_needed = TTI_NO_BUCKET;
}
