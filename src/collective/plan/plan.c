/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/plan/plan_build.h"

#include "base/alloc.h"
#include "base/hash.h"
#include <string.h>

/* ---- Storing steps --------------------------------------------------------------------------------------------- */

static bool grow(struct tti_plan *plan)
{
    size_t capacity = plan->capacity == 0 ? 32 : plan->capacity * 2;
    struct tti_step *steps = tti_calloc(capacity, sizeof *steps);
    if (steps == NULL) return false;
    if (plan->count > 0) memcpy(steps, plan->steps, plan->count * sizeof *steps);
    tti_free(plan->steps);
    plan->steps = steps;
    plan->capacity = capacity;
    return true;
}

/* Adds a step and returns it, to be filled in where it lies: making it elsewhere and copying it would cost more than
 * the step's own work. */
static struct tti_step *add(struct tti_plan *plan, enum tti_step_kind kind)
{
    static _Thread_local struct tti_step nowhere; /* for a step that could not be stored */
    if (plan->count == plan->capacity && !grow(plan)) {
        plan->failed = true;
        return &nowhere;
    }
    struct tti_step *step = &plan->steps[plan->count++];
    step->kind = (uint8_t)kind;
    return step;
}

/* Makes room for `count` more parts. */
static bool grow_parts(struct tti_plan *plan, size_t count)
{
    size_t capacity = plan->part_capacity * 2 + count;
    struct tti_part *parts = tti_calloc(capacity, sizeof *parts);
    if (parts == NULL) return false;
    if (plan->part_count > 0) memcpy(parts, plan->parts, plan->part_count * sizeof *parts);
    tti_free(plan->parts);
    plan->parts = parts;
    plan->part_capacity = capacity;
    return true;
}

void tti_plan_free(struct tti_plan *plan)
{
    tti_free(plan->steps);
    tti_free(plan->parts);
    *plan = (struct tti_plan){0};
}

void tti_add_enter(struct tti_plan *plan)
{
    add(plan, TTI_STEP_ENTER);
}

void tti_add_publish(struct tti_plan *plan, uint32_t value)
{
    add(plan, TTI_STEP_PUBLISH)->value = value;
}

void tti_add_wait(struct tti_plan *plan, int peer, uint32_t value)
{
    struct tti_step *step = add(plan, TTI_STEP_WAIT);
    step->peer = peer;
    step->value = value;
}

void tti_add_leave(struct tti_plan *plan)
{
    add(plan, TTI_STEP_LEAVE);
    tti_add_wait(plan, TTI_ALL, TTI_LEFT);
}

static struct tti_step *add_move(struct tti_plan *plan, enum tti_step_kind kind, struct tti_region target,
                                 struct tti_region source, uint64_t bytes, enum tti_store store)
{
    struct tti_step *step = add(plan, kind);
    step->target = target;
    step->source = source;
    step->bytes = bytes;
    step->store = (uint8_t)store;
    return step;
}

void tti_add_copy(struct tti_plan *plan, struct tti_region target, struct tti_region source, uint64_t bytes,
                  enum tti_store store)
{
    if (bytes > 0) add_move(plan, TTI_STEP_COPY, target, source, bytes, store);
}

void tti_add_exchange(struct tti_plan *plan, struct tti_region target, struct tti_region source, uint64_t bytes)
{
    if (bytes > 0) add_move(plan, TTI_STEP_EXCHANGE, target, source, bytes, TTI_CACHED);
}

void tti_add_reduce(struct tti_plan *plan, struct tti_region target, struct tti_region source, int sources,
                    uint64_t bytes, enum tti_store store)
{
    if (bytes > 0 && sources > 0) add_move(plan, TTI_STEP_REDUCE, target, source, bytes, store)->sources = sources;
}

void tti_add_prefix(struct tti_plan *plan, uint64_t offset, uint64_t bytes, bool exclusive, enum tti_store store)
{
    if (bytes == 0) return;
    struct tti_region target = {TTI_ALL, TTI_OUT, offset}, source = {TTI_ALL, TTI_IN, offset};
    add_move(plan, TTI_STEP_PREFIX, target, source, bytes, store)->exclusive = exclusive;
}

void tti_add_fold(struct tti_plan *plan, struct tti_region target, const struct tti_part *parts, int count, int divisor,
                  uint64_t bytes)
{
    if (bytes == 0) return;
    if (plan->part_count + (size_t)count > plan->part_capacity && !grow_parts(plan, (size_t)count)) {
        plan->failed = true;
        return;
    }
    struct tti_step *step = add(plan, TTI_STEP_FOLD);
    step->target = target;
    step->first = (uint32_t)plan->part_count;
    step->sources = count;
    step->value = (uint32_t)divisor;
    step->bytes = bytes;
    memcpy(plan->parts + plan->part_count, parts, (size_t)count * sizeof *parts);
    plan->part_count += (size_t)count;
}

void tti_add_message(struct tti_plan *plan, enum tti_step_kind kind, int peer, struct tti_region at, uint64_t bytes)
{
    struct tti_step *step = add(plan, kind);
    step->peer = peer;
    step->bytes = bytes;
    if (kind == TTI_STEP_SEND)
        step->source = at;
    else
        step->target = at;
}

void tti_add_settle(struct tti_plan *plan, enum tti_step_kind kind, uint32_t value)
{
    add(plan, kind)->value = value;
}

void tti_add_again(struct tti_plan *plan, size_t first, uint32_t turns, uint64_t bytes, uint32_t numbers)
{
    struct tti_step *step = add(plan, TTI_STEP_AGAIN);
    step->first = (uint32_t)first;
    step->value = turns;
    step->bytes = bytes;
    step->sources = (int32_t)numbers;
}

void tti_plan_count(struct tti_plan *plan)
{
    struct tti_postings most = {0}, turn = {0};
    for (size_t i = 0; i < plan->count; i++) {
        const struct tti_step *step = &plan->steps[i];
        turn.sends += step->kind == TTI_STEP_SEND;
        turn.receives += step->kind == TTI_STEP_RECV;
        bool again = step->kind == TTI_STEP_AGAIN;
        if (!again && i + 1 < plan->count) continue;
        most.all_sends += turn.sends * (again ? step->value : 1);
        if (turn.sends > most.sends) most.sends = turn.sends;
        if (turn.receives > most.receives) most.receives = turn.receives;
        turn = (struct tti_postings){0};
    }
    plan->posted = most;
}

/* ---- Shapes ---------------------------------------------------------------------------------------------------- */

/* Reads one count or offset of a v-form's tables, in bytes. */
static uint64_t table(const struct tti_shape *shape, int rank, enum tti_given what, int peer)
{
    if (shape->path == TTI_MESSAGES) rank = 0; /* this path has only this rank's row */
    return tti_given_by(shape, rank, what, peer) * shape->element;
}

static struct tti_flow scatter_flow(const struct tti_shape *shape, int from, int to)
{
    if (from != shape->root) return (struct tti_flow){0};
    uint64_t bytes = shape->count * shape->element;
    if (shape->kind == TTI_SCATTER) return (struct tti_flow){bytes, (uint64_t)to * bytes, 0};
    return (struct tti_flow){table(shape, from, TTI_IN_COUNTS, to), table(shape, from, TTI_IN_OFFSETS, to), 0};
}

static struct tti_flow gather_flow(const struct tti_shape *shape, int from, int to)
{
    if (to != shape->root) return (struct tti_flow){0};
    uint64_t bytes = shape->count * shape->element;
    if (shape->kind == TTI_GATHER) return (struct tti_flow){bytes, 0, (uint64_t)from * bytes};
    return (struct tti_flow){table(shape, to, TTI_OUT_COUNTS, from), 0, table(shape, to, TTI_OUT_OFFSETS, from)};
}

struct tti_flow tti_flow_of(const struct tti_shape *shape, int from, int to)
{
    uint64_t bytes = shape->count * shape->element;
    switch (shape->kind) {
    case TTI_BROADCAST: return (struct tti_flow){from == shape->root ? bytes : 0, 0, 0};
    case TTI_ALL_GATHER: return (struct tti_flow){bytes, 0, (uint64_t)from * bytes};
    /* every rank gives the same counts, so the reader's own row says them all */
    case TTI_ALL_GATHER_V:
        return (struct tti_flow){table(shape, shape->rank, TTI_OUT_COUNTS, from), 0,
                                 to == shape->rank ? table(shape, to, TTI_OUT_OFFSETS, from) : 0};
    case TTI_GATHER:
    case TTI_GATHER_V: return gather_flow(shape, from, to);
    case TTI_SCATTER:
    case TTI_SCATTER_V: return scatter_flow(shape, from, to);
    case TTI_ALL_TO_ALL: return (struct tti_flow){bytes, (uint64_t)to * bytes, (uint64_t)from * bytes};
    case TTI_ALL_TO_ALL_V:
        return (struct tti_flow){table(shape, from, TTI_IN_COUNTS, to), table(shape, from, TTI_IN_OFFSETS, to),
                                 table(shape, to, TTI_OUT_OFFSETS, from)};
    default: return (struct tti_flow){0};
    }
}

static struct tti_unequal compare_counts(const struct tti_shape *shape, int rank, int peer)
{
    int root = shape->root;
    switch (shape->kind) {
    case TTI_ALL_TO_ALL_V:
        return (struct tti_unequal){peer, rank, tti_given_by(shape, peer, TTI_IN_COUNTS, rank),
                                    tti_given_by(shape, rank, TTI_OUT_COUNTS, peer)};
    case TTI_GATHER_V:
        return (struct tti_unequal){peer, root, tti_given_by(shape, peer, TTI_IN_COUNTS, 0),
                                    tti_given_by(shape, root, TTI_OUT_COUNTS, peer)};
    case TTI_SCATTER_V:
        return (struct tti_unequal){root, peer, tti_given_by(shape, root, TTI_IN_COUNTS, peer),
                                    tti_given_by(shape, peer, TTI_OUT_COUNTS, 0)};
    default: return (struct tti_unequal){0};
    }
}

bool tti_shape_is_unequal(const struct tti_shape *shape, int rank, struct tti_unequal *unequal)
{
    for (int peer = 0; peer < shape->size; peer++) {
        *unequal = compare_counts(shape, rank, peer);
        if (unequal->sent != unequal->received) return true;
    }
    return false;
}

struct tti_block tti_block_to(const struct tti_shape *shape, int to)
{
    uint64_t bytes = shape->count * shape->element;
    switch (shape->kind) {
    case TTI_SCATTER:
    case TTI_ALL_TO_ALL: return (struct tti_block){(uint64_t)to * bytes, bytes};
    case TTI_SCATTER_V:
    case TTI_ALL_TO_ALL_V:
        return (struct tti_block){table(shape, shape->rank, TTI_IN_OFFSETS, to),
                                  table(shape, shape->rank, TTI_IN_COUNTS, to)};
    case TTI_GATHER_V: return (struct tti_block){0, table(shape, shape->rank, TTI_IN_COUNTS, 0)};
    case TTI_ALL_GATHER_V: return (struct tti_block){0, table(shape, shape->rank, TTI_OUT_COUNTS, shape->rank)};
    default: return (struct tti_block){0, bytes};
    }
}

struct tti_block tti_block_from(const struct tti_shape *shape, int from)
{
    uint64_t bytes = shape->count * shape->element;
    switch (shape->kind) {
    case TTI_GATHER:
    case TTI_ALL_GATHER:
    case TTI_ALL_TO_ALL: return (struct tti_block){(uint64_t)from * bytes, bytes};
    case TTI_GATHER_V:
    case TTI_ALL_GATHER_V:
    case TTI_ALL_TO_ALL_V:
        return (struct tti_block){table(shape, shape->rank, TTI_OUT_OFFSETS, from),
                                  table(shape, shape->rank, TTI_OUT_COUNTS, from)};
    case TTI_SCATTER_V: return (struct tti_block){0, table(shape, shape->rank, TTI_OUT_COUNTS, 0)};
    default: return (struct tti_block){0, bytes};
    }
}

struct tti_block tti_slice_of(uint64_t bytes, int rank, int size)
{
    uint64_t lines = (bytes + 63) / 64, share = lines / (uint64_t)size, extra = lines % (uint64_t)size;
    uint64_t r = (uint64_t)rank;
    uint64_t first = r * share + (r < extra ? r : extra), last = first + share + (r < extra ? 1 : 0);
    uint64_t low = first * 64 < bytes ? first * 64 : bytes, high = last * 64 < bytes ? last * 64 : bytes;
    return (struct tti_block){low, high - low};
}

/* Returns the block of every rank's input that rank `to` reduces, in a reduce_scatter. */
struct tti_flow tti_reduce_block(const struct tti_shape *shape, int to)
{
    uint64_t bytes = shape->count * shape->element;
    if (shape->kind == TTI_REDUCE_SCATTER) return (struct tti_flow){bytes, (uint64_t)to * bytes, 0};
    return (struct tti_flow){table(shape, shape->rank, TTI_IN_COUNTS, to),
                             table(shape, shape->rank, TTI_IN_OFFSETS, to), 0};
}

/* For v-forms: returns the sum of blocks, or the largest row, from what every rank knows after the meeting (or before
 * it, if counts are equal). */
static uint64_t table_bytes(const struct tti_shape *shape)
{
    uint64_t total = 0, largest = 0;
    for (int rank = 0; rank < shape->size; rank++) {
        if (shape->kind == TTI_ALL_GATHER_V) total += table(shape, shape->rank, TTI_OUT_COUNTS, rank);
        if (shape->kind == TTI_REDUCE_SCATTER_V) total += table(shape, shape->rank, TTI_IN_COUNTS, rank);
        if (shape->kind == TTI_GATHER_V) total += table(shape, shape->root, TTI_OUT_COUNTS, rank);
        if (shape->kind == TTI_SCATTER_V) total += table(shape, shape->root, TTI_IN_COUNTS, rank);
        if (shape->kind != TTI_ALL_TO_ALL_V) continue;
        uint64_t row = 0;
        for (int to = 0; to < shape->size; to++) row += table(shape, rank, TTI_IN_COUNTS, to);
        if (row > largest) largest = row;
    }
    return total > largest ? total : largest;
}

uint64_t tti_shape_bytes(const struct tti_shape *shape)
{
    uint64_t bytes = shape->count * shape->element;
    switch (shape->kind) {
    case TTI_ALL_GATHER:
    case TTI_GATHER:
    case TTI_SCATTER:
    case TTI_REDUCE_SCATTER:
    case TTI_ALL_TO_ALL: return bytes * (uint64_t)shape->size;
    case TTI_ALL_GATHER_V:
    case TTI_GATHER_V:
    case TTI_SCATTER_V:
    case TTI_REDUCE_SCATTER_V:
    case TTI_ALL_TO_ALL_V: return table_bytes(shape);
    default: return bytes;
    }
}

uint64_t tti_shape_footprint(const struct tti_shape *shape)
{
    uint64_t bytes = tti_shape_bytes(shape), size = (uint64_t)shape->size;
    switch (shape->kind) {
    case TTI_ALL_REDUCE:
    case TTI_SCAN:
    case TTI_ALL_TO_ALL:
    case TTI_ALL_TO_ALL_V: return 2 * size * bytes;
    case TTI_EXSCAN: return 2 * (size - 1) * bytes;
    case TTI_GATHER:
    case TTI_SCATTER: return 2 * (shape->in_place ? bytes - bytes / size : bytes); /* the root keeps its own */
    case TTI_GATHER_V:
    case TTI_SCATTER_V: return 2 * bytes;
    default: return (size + 1) * bytes;
    }
}

bool tti_shape_reduces(const struct tti_shape *shape)
{
    switch (shape->kind) {
    case TTI_ALL_REDUCE:
    case TTI_REDUCE:
    case TTI_REDUCE_SCATTER:
    case TTI_REDUCE_SCATTER_V:
    case TTI_SCAN:
    case TTI_EXSCAN: return true;
    default: return false;
    }
}

/* Returns the bytes of the largest block from one sender to one receiver, if blocks differ. */
uint64_t tti_largest_block(const struct tti_shape *shape)
{
    uint64_t largest = 0;
    bool reduces = shape->kind == TTI_REDUCE_SCATTER_V;
    for (int from = 0; from < shape->size; from++)
        for (int to = 0; to < shape->size; to++) {
            if (reduces && from > 0) break;
            uint64_t bytes = reduces ? tti_reduce_block(shape, to).bytes : tti_flow_of(shape, from, to).bytes;
            if (bytes > largest) largest = bytes;
        }
    return largest;
}

static bool counts_fit(const struct tti_shape *shape, uint64_t limit)
{
    for (int from = 0; from < shape->size; from++)
        if (table(shape, shape->rank, TTI_OUT_COUNTS, from) > limit) return false;
    return true;
}

/* Returns true if the blocks are small enough to be staged. one_shot and staged: as in the tuning. */
static bool fits(const struct tti_shape *shape, uint64_t one_shot, uint64_t staged)
{
    uint64_t block = shape->count * shape->element, size = (uint64_t)shape->size;
    switch (shape->kind) {
    case TTI_BARRIER:
    case TTI_TUNING: return true;
    case TTI_GATHER_V: /* only the root knows all counts before the meeting */
    case TTI_SCATTER_V:
    case TTI_ALL_TO_ALL_V: return false;
    case TTI_BROADCAST:
    case TTI_REDUCE:
    case TTI_GATHER: return block <= staged;
    case TTI_SCATTER: return block * size <= staged;
    case TTI_ALL_REDUCE: /* every rank reduces everything, so the cost of that is bounded, too */
        return block <= one_shot && block * size <= one_shot * 16;
    case TTI_ALL_GATHER_V: return counts_fit(shape, one_shot);
    case TTI_REDUCE_SCATTER_V: return tti_largest_block(shape) * size <= one_shot;
    default: return (tti_shape_splits(shape) ? block * size : block) <= one_shot;
    }
}

bool tti_shape_fits_stage(const struct tti_shape *shape)
{
    return fits(shape, (uint64_t)shape->tuning->one_shot, (uint64_t)shape->tuning->staged);
}

/* Blocks that fit beside the entry word are excluded: in a meeting there is no place for them. */
bool tti_shape_fits_slot(const struct tti_shape *shape)
{
    uint64_t room = TTI_STAGE_ROOM, block = shape->count * shape->element;
    if (shape->tables != NULL || block <= TTI_PAYLOAD_BYTES) return false;
    return fits(shape, room, room);
}

uint64_t tti_staged_bytes(const struct tti_shape *shape)
{
    bool splits = tti_shape_splits(shape), uniform = shape->tables == NULL;
    if (!splits && !uniform) return TTI_STAGE_ROOM;
    uint64_t block = uniform ? shape->count * shape->element : tti_largest_block(shape);
    return splits ? block * (uint64_t)shape->size : block;
}

/* ---- Building -------------------------------------------------------------------------------------------------- */

tutti_status tti_plan_build(struct tti_plan *plan, const struct tti_shape *shape)
{
    tti_plan_empty(plan);
    if (shape->path == TTI_MESSAGES)
        tti_build_messages(plan, shape);
    else if (shape->kind == TTI_BARRIER || shape->kind == TTI_TUNING)
        tti_build_barrier(plan, shape);
    else if (shape->path == TTI_STAGED)
        tti_build_staged(plan, shape);
    else if (shape->path == TTI_DIRECT)
        tti_build_direct(plan, shape);
    else if (shape->path == TTI_ATTACH)
        tti_build_attach(plan, shape);
    else
        tti_build_bounce(plan, shape);
    return plan->failed ? TUTTI_ERR_MEMORY : TUTTI_OK;
}

/* ---- Cost ------------------------------------------------------------------------------------------------------ */

static uint64_t folded_bytes(const struct tti_plan *plan, const struct tti_step *step, const struct tti_shape *shape)
{
    uint64_t bytes = 0;
    for (int i = 0; i < step->sources; i++) {
        const struct tti_part *part = &plan->parts[step->first + (uint32_t)i];
        bytes += part->partial ? step->bytes / shape->element * shape->accumulator : step->bytes;
    }
    return bytes;
}

static void add_cost(struct tti_cost *cost, const struct tti_cost *more, uint64_t times)
{
    cost->messages += more->messages * times;
    cost->bytes += more->bytes * times;
    cost->received += more->received * times;
    cost->folded += more->folded * times;
    cost->copied += more->copied * times;
}

struct tti_cost tti_plan_cost(const struct tti_plan *plan, const struct tti_shape *shape)
{
    struct tti_cost cost = {0}, turn = {0};
    for (size_t i = 0; i < plan->count; i++) {
        const struct tti_step *step = &plan->steps[i];
        if (step->kind == TTI_STEP_SEND) {
            turn.messages++;
            turn.bytes += step->bytes;
        }
        if (step->kind == TTI_STEP_RECV) turn.received += step->bytes;
        if (step->kind == TTI_STEP_COPY) turn.copied += step->bytes;
        if (step->kind == TTI_STEP_FOLD) turn.folded += folded_bytes(plan, step, shape);
        if (step->kind != TTI_STEP_AGAIN) continue;
        add_cost(&cost, &turn, step->value);
        turn = (struct tti_cost){0};
    }
    add_cost(&cost, &turn, 1);
    return cost;
}

/* ---- Telling plans apart --------------------------------------------------------------------------------------- */

static uint64_t hash_region(uint64_t hash, const struct tti_region *region)
{
    return tti_mix(tti_mix(hash, (uint64_t)(uint32_t)region->rank << 8 | region->space), region->offset);
}

static uint64_t hash_parts(uint64_t hash, const struct tti_part *parts, int count)
{
    for (int i = 0; i < count; i++) {
        hash = hash_region(hash, &parts[i].at);
        hash = tti_mix(hash, (uint64_t)(uint32_t)parts[i].first << 32 | (uint32_t)parts[i].ranks);
        hash = tti_mix(hash, parts[i].partial);
    }
    return hash;
}

/* Hashes only those fields of a step that its kind uses; the others may hold anything. */
uint64_t tti_plan_hash(const struct tti_plan *plan)
{
    uint64_t hash = tti_mix(plan->count, plan->temp_bytes);
    for (size_t i = 0; i < plan->count; i++) {
        const struct tti_step *step = &plan->steps[i];
        enum tti_step_kind kind = (enum tti_step_kind)step->kind;
        bool sends = kind == TTI_STEP_SEND, receives = kind == TTI_STEP_RECV, folds = kind == TTI_STEP_FOLD;
        bool copies = kind == TTI_STEP_COPY, again = kind == TTI_STEP_AGAIN;
        hash = tti_mix(hash, (uint64_t)kind);
        if (kind == TTI_STEP_ENTER || kind == TTI_STEP_LEAVE) continue;
        if (sends || receives || kind == TTI_STEP_WAIT) hash = tti_mix(hash, (uint32_t)step->peer);
        if (!sends && !receives && !copies) hash = tti_mix(hash, step->value);
        if (sends || receives || copies || folds || again) hash = tti_mix(hash, step->bytes);
        if (sends || copies) hash = hash_region(hash, &step->source);
        if (receives || copies || folds) hash = hash_region(hash, &step->target);
        if (folds || again) hash = tti_mix(hash, (uint32_t)step->sources);
        if (folds) hash = hash_parts(hash, plan->parts + step->first, step->sources);
        if (again) hash = tti_mix(hash, step->first);
    }
    return hash;
}
