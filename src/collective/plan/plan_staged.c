/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans through staged copies: STAGED (one chunk; comm.h says where it lies), BOUNCE (many chunks, two in flight), and
 * the barrier, which stages nothing.
 *
 * A chunk is a window of every block: bytes [t * window, (t + 1) * window). A rank stages its part at offset 0 (one
 * block for all readers) or at receiver * window (one block per receiver).
 */
#include "collective/plan/plan_build.h"

struct chunk {
    enum tti_space space;
    uint64_t base;   /* where this chunk lies in the space */
    uint64_t begin;  /* where the window begins in every block */
    uint64_t window; /* bytes */
};

static uint64_t part(uint64_t block_bytes, const struct chunk *chunk)
{
    if (block_bytes <= chunk->begin) return 0;
    uint64_t rest = block_bytes - chunk->begin;
    return rest < chunk->window ? rest : chunk->window;
}

/* Returns the largest of a rank's outgoing blocks that is not split by receiver. */
static uint64_t common_block(const struct tti_shape *shape, int from)
{
    if (tti_shape_reduces(shape)) return shape->count * shape->element;
    uint64_t largest = 0;
    for (int to = 0; to < shape->size; to++) {
        uint64_t bytes = tti_flow_of(shape, from, to).bytes;
        if (bytes > largest) largest = bytes;
        if (shape->kind == TTI_BROADCAST || shape->kind == TTI_ALL_GATHER || shape->kind == TTI_ALL_GATHER_V) break;
    }
    return largest;
}

static void stage(struct tti_plan *plan, const struct tti_shape *shape, const struct chunk *chunk)
{
    int me = shape->rank;
    struct tti_region staged = {me, (uint32_t)chunk->space, chunk->base};
    struct tti_region in = {me, TTI_IN, chunk->begin};
    if (!tti_shape_splits(shape)) {
        tti_add_copy(plan, staged, in, part(common_block(shape, me), chunk), TTI_CACHED);
        return;
    }
    bool one_block = shape->kind == TTI_REDUCE_SCATTER || shape->kind == TTI_REDUCE_SCATTER_V;
    for (int to = 0; to < shape->size; to++) {
        if (to == me) continue; /* a rank reads its own block from its input */
        struct tti_flow flow = one_block ? tti_reduce_block(shape, to) : tti_flow_of(shape, me, to);
        staged.offset = chunk->base + (uint64_t)to * chunk->window;
        in.offset = flow.source + chunk->begin;
        tti_add_copy(plan, staged, in, part(flow.bytes, chunk), TTI_CACHED);
    }
}

static void take_reduced(struct tti_plan *plan, const struct tti_shape *shape, const struct chunk *chunk)
{
    int me = shape->rank, sources = shape->size;
    uint64_t bytes = shape->count * shape->element, offset = chunk->base, own = chunk->begin;
    if (shape->kind == TTI_REDUCE && me != shape->root) return;
    if (shape->kind == TTI_SCAN) sources = me + 1;
    if (shape->kind == TTI_EXSCAN) sources = me;
    if (tti_shape_splits(shape)) {
        bytes = tti_reduce_block(shape, me).bytes;
        offset += (uint64_t)me * chunk->window;
        own += tti_reduce_block(shape, me).source;
    }
    size_t before = plan->count;
    tti_add_reduce(plan, tti_at(me, TTI_OUT, chunk->begin), tti_at(TTI_ALL, chunk->space, offset), sources,
                   part(bytes, chunk), TTI_CACHED);
    if (plan->count > before) plan->steps[before].own = own;
}

static void take(struct tti_plan *plan, const struct tti_shape *shape, const struct chunk *chunk)
{
    if (tti_shape_reduces(shape)) {
        take_reduced(plan, shape, chunk);
        return;
    }
    int me = shape->rank;
    uint64_t mine = tti_shape_splits(shape) ? (uint64_t)me * chunk->window : 0;
    for (int k = 0; k < shape->size; k++) {
        int from = (me + k) % shape->size;
        struct tti_flow flow = tti_flow_of(shape, from, me);
        struct tti_region source = {from, (uint32_t)chunk->space, chunk->base + mine};
        if (from == me) source = tti_at(me, TTI_IN, flow.source + chunk->begin); /* in place: nothing is copied */
        tti_add_copy(plan, tti_at(me, TTI_OUT, flow.target + chunk->begin), source, part(flow.bytes, chunk),
                     TTI_CACHED);
    }
}

/* Returns the rank whose data this rank needs: TTI_ALL, one rank, or only its own. */
static int needed(const struct tti_shape *shape)
{
    int me = shape->rank;
    switch (shape->kind) {
    case TTI_BROADCAST:
    case TTI_SCATTER: return shape->root;
    case TTI_REDUCE:
    case TTI_GATHER: return me == shape->root ? TTI_ALL : me;
    default: return TTI_ALL;
    }
}

void tti_build_staged(struct tti_plan *plan, const struct tti_shape *shape)
{
    uint64_t staged = tti_staged_bytes(shape);
    uint64_t window = tti_shape_splits(shape) ? staged / (uint64_t)shape->size : TTI_STAGE_ROOM;
    struct chunk chunk = {
        .space = TTI_STAGE, .base = staged <= TTI_PAYLOAD_BYTES ? 0 : TTI_PAYLOAD_BYTES, .window = window};
    stage(plan, shape, &chunk);
    tti_add_enter(plan);
    int from = needed(shape);
    if (shape->kind == TTI_SCAN || shape->kind == TTI_EXSCAN) {
        for (int lower = 0; lower < shape->rank; lower++) tti_add_wait(plan, lower, 0);
    } else if (from != shape->rank) {
        tti_add_wait(plan, from, 0);
    }
    take(plan, shape, &chunk);
}

/* ---- Bounce ---------------------------------------------------------------------------------------------------- */

/* Every rank does S0 S1 C0 S2 C1 S3 C2 …, where S stages a chunk and C takes it, and publishes each with its place in
 * that order: so one number per rank tells both which chunks can be read and which can be overwritten. */
static uint32_t staged_number(uint64_t t)
{
    return t == 0 ? 1 : (uint32_t)(2 * t);
}

static uint32_t taken_number(uint64_t t)
{
    return (uint32_t)(2 * t + 3);
}

static struct chunk chunk_at(uint64_t t, uint64_t window, uint64_t half)
{
    return (struct chunk){.space = TTI_BOUNCED, .base = t % 2 * half, .begin = t * window, .window = window};
}

static void stage_and_publish(struct tti_plan *plan, const struct tti_shape *shape, uint64_t t, struct chunk chunk)
{
    if (t >= 2) tti_add_wait(plan, TTI_ALL, taken_number(t - 2));
    stage(plan, shape, &chunk);
    tti_add_publish(plan, staged_number(t));
}

static void bounce_all(struct tti_plan *plan, const struct tti_shape *shape, uint64_t largest, uint64_t window)
{
    uint64_t half = shape->bounce_bytes / 2, chunks = (largest + window - 1) / window;
    if (chunks == 0) return;
    stage_and_publish(plan, shape, 0, chunk_at(0, window, half));
    for (uint64_t t = 0; t < chunks; t++) {
        if (t + 1 < chunks) stage_and_publish(plan, shape, t + 1, chunk_at(t + 1, window, half));
        struct chunk chunk = chunk_at(t, window, half);
        tti_add_wait(plan, TTI_ALL, staged_number(t));
        take(plan, shape, &chunk);
        if (t + 2 < chunks) tti_add_publish(plan, taken_number(t)); /* nobody waits for the last ones */
    }
}

/* A binary tree over ranks counted from the root; chunks follow each other down. Chunk t is taken (2t + 1) and then
 * staged for the children (2t + 2). */
static void tree_broadcast(struct tti_plan *plan, const struct tti_shape *shape, uint64_t window)
{
    int size = shape->size, place = (shape->rank - shape->root + size) % size;
    int parent = ((place - 1) / 2 + shape->root) % size;
    uint64_t bytes = shape->count * shape->element, half = shape->bounce_bytes / 2;
    for (uint64_t t = 0; t * window < bytes; t++) {
        struct chunk chunk = chunk_at(t, window, half);
        uint64_t length = part(bytes, &chunk);
        struct tti_region out = {shape->rank, TTI_OUT, chunk.begin}, source = {shape->rank, TTI_IN, chunk.begin};
        if (place > 0) {
            source = tti_at(parent, TTI_BOUNCED, chunk.base);
            tti_add_wait(plan, parent, (uint32_t)(2 * t + 2));
        }
        tti_add_copy(plan, out, source, length, TTI_CACHED);
        tti_add_publish(plan, (uint32_t)(2 * t + 1));
        if (2 * place + 1 >= size) continue;
        for (int child = 2 * place + 1; child <= 2 * place + 2 && child < size && t >= 2; child++)
            tti_add_wait(plan, (child + shape->root) % size, (uint32_t)(2 * (t - 2) + 1));
        tti_add_copy(plan, tti_at(shape->rank, TTI_BOUNCED, chunk.base), out, length, TTI_CACHED);
        tti_add_publish(plan, (uint32_t)(2 * t + 2));
    }
}

void tti_build_bounce(struct tti_plan *plan, const struct tti_shape *shape)
{
    uint64_t half = shape->bounce_bytes / 2, window = (uint64_t)shape->tuning->chunk / 64 * 64;
    if (window > half) window = half;
    uint64_t block = shape->count * shape->element;
    if (tti_shape_splits(shape)) {
        if (window > half / (uint64_t)shape->size / 64 * 64) window = half / (uint64_t)shape->size / 64 * 64;
        bool uniform = shape->tables == NULL;
        bounce_all(plan, shape, uniform ? block : tti_largest_block(shape), window);
    } else if (shape->kind == TTI_BROADCAST && shape->size > 4 && block >= (uint64_t)shape->tuning->tree) {
        tree_broadcast(plan, shape, window);
    } else {
        bounce_all(plan, shape, shape->tables == NULL ? block : tti_largest_block(shape), window);
    }
    /* No rank reaches another's buffers here, and the bounce buffers are written again only after the next meeting; but
     * the tables of a v-form are written before it. */
    if (shape->tables != NULL) tti_add_leave(plan);
}

/* ---- Barrier --------------------------------------------------------------------------------------------------- */

/* Dissemination: in round k a rank hears from the rank 2^k before it, which by then has heard from 2^k ranks. */
void tti_build_barrier(struct tti_plan *plan, const struct tti_shape *shape)
{
    tti_add_enter(plan);
    if (shape->size < shape->tuning->dissemination) {
        tti_add_wait(plan, TTI_ALL, 0);
        return;
    }
    uint32_t round = 0;
    for (int distance = 1; distance < shape->size; distance *= 2, round++) {
        if (round > 0) tti_add_publish(plan, round);
        tti_add_wait(plan, (shape->rank - distance + shape->size) % shape->size, round);
    }
}
