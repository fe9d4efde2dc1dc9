/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans over memory that ranks can reach: DIRECT (read and write) and ATTACH (mostly read).
 *
 * Owned slices: each rank reads its slice of every input once and writes it to every output, so that all bytes move
 * once and all ranks move as many. This is right in place, too, because only its owner touches a slice.
 */
#include "collective/plan/plan_build.h"

/* Data that do not stay in the caches anyway are written past them: as soon as all ranks' buffers together do not fit;
 * later if one read serves several ranks; and only from twice that size on if they are read again while they are in the
 * cache (scans). */
static enum tti_store store_of(const struct tti_shape *shape)
{
    uint64_t footprint = tti_shape_footprint(shape), fits = (uint64_t)shape->tuning->stream;
    bool scans = shape->kind == TTI_SCAN || shape->kind == TTI_EXSCAN;
    bool to_all = shape->kind == TTI_BROADCAST || shape->kind == TTI_ALL_GATHER;
    uint64_t limit = to_all ? (uint64_t)shape->tuning->stream_to_all : scans ? 2 * fits : fits;
    if (footprint < limit) return TTI_CACHED;
    return tti_shape_reduces(shape) ? TTI_STREAMED : tti_store_past(footprint, fits);
}

/* Every rank fetches its own data, beginning with its own block and then its neighbour's, so that no two ranks read
 * from the same one at the same time. */
static void pull(struct tti_plan *plan, const struct tti_shape *shape, enum tti_store store)
{
    for (int k = 0; k < shape->size; k++) {
        int from = (shape->rank + k) % shape->size;
        struct tti_flow flow = tti_flow_of(shape, from, shape->rank);
        tti_add_copy(plan, tti_at(shape->rank, TTI_OUT, flow.target), tti_at(from, TTI_IN, flow.source), flow.bytes,
                     store);
    }
}

static void push_to_root(struct tti_plan *plan, const struct tti_shape *shape, enum tti_store store)
{
    struct tti_flow flow = tti_flow_of(shape, shape->rank, shape->root);
    tti_add_copy(plan, tti_at(shape->root, TTI_OUT, flow.target), tti_at(shape->rank, TTI_IN, flow.source), flow.bytes,
                 store);
}

/* In place, the root's own block does not move, and each rank copies its slice of all the others. */
static void share_root_blocks(struct tti_plan *plan, const struct tti_shape *shape, enum tti_store store)
{
    bool gathers = shape->kind == TTI_GATHER;
    uint64_t block = shape->count * shape->element;
    struct tti_block own = tti_slice_of(block, shape->rank, shape->size);
    for (int k = 0; k < shape->size; k++) {
        int peer = (shape->rank + k) % shape->size;
        uint64_t place = (uint64_t)peer * block + own.offset; /* in the root's buffer */
        struct tti_region target = gathers ? tti_at(shape->root, TTI_OUT, place) : tti_at(peer, TTI_OUT, own.offset);
        struct tti_region source = gathers ? tti_at(peer, TTI_IN, own.offset) : tti_at(shape->root, TTI_IN, place);
        if (peer != shape->root) tti_add_copy(plan, target, source, own.bytes, store);
    }
}

/* In place, each pair swaps its two blocks, half by each side. */
static void exchange_in_place(struct tti_plan *plan, const struct tti_shape *shape)
{
    uint64_t block = shape->count * shape->element;
    for (int k = 1; k < shape->size; k++) {
        int peer = (shape->rank + k) % shape->size;
        struct tti_block half = tti_slice_of(block, shape->rank < peer ? 0 : 1, 2);
        tti_add_exchange(plan, tti_at(shape->rank, TTI_OUT, (uint64_t)peer * block + half.offset),
                         tti_at(peer, TTI_OUT, (uint64_t)shape->rank * block + half.offset), half.bytes);
    }
}

static void reduce_own_block(struct tti_plan *plan, const struct tti_shape *shape, enum tti_store store)
{
    struct tti_flow block = tti_reduce_block(shape, shape->rank);
    tti_add_reduce(plan, tti_at(shape->rank, TTI_OUT, 0), tti_at(TTI_ALL, TTI_IN, block.source), shape->size,
                   block.bytes, store);
}

void tti_build_direct(struct tti_plan *plan, const struct tti_shape *shape)
{
    enum tti_store store = store_of(shape);
    uint64_t bytes = shape->count * shape->element;
    struct tti_block own = tti_slice_of(bytes, shape->rank, shape->size);
    switch (shape->kind) {
    case TTI_ALL_REDUCE:
    case TTI_REDUCE: {
        int target = shape->kind == TTI_REDUCE ? shape->root : TTI_ALL;
        tti_add_reduce(plan, tti_at(target, TTI_OUT, own.offset), tti_at(TTI_ALL, TTI_IN, own.offset), shape->size,
                       own.bytes, store);
        break;
    }
    case TTI_SCAN:
    case TTI_EXSCAN: tti_add_prefix(plan, own.offset, own.bytes, shape->kind == TTI_EXSCAN, store); break;
    case TTI_BROADCAST:
        tti_add_copy(plan, tti_at(TTI_ALL, TTI_OUT, own.offset), tti_at(shape->root, TTI_IN, own.offset), own.bytes,
                     store);
        break;
    case TTI_ALL_GATHER:
        tti_add_copy(plan, tti_at(TTI_ALL, TTI_OUT, (uint64_t)shape->rank * bytes), tti_at(shape->rank, TTI_IN, 0),
                     bytes, store);
        break;
    case TTI_GATHER:
    case TTI_GATHER_V:
        if (shape->in_place)
            share_root_blocks(plan, shape, store);
        else
            push_to_root(plan, shape, store);
        break;
    case TTI_SCATTER:
        if (shape->in_place)
            share_root_blocks(plan, shape, store);
        else
            pull(plan, shape, store);
        break;
    case TTI_REDUCE_SCATTER:
    case TTI_REDUCE_SCATTER_V: reduce_own_block(plan, shape, store); break;
    case TTI_ALL_TO_ALL:
        if (shape->in_place)
            exchange_in_place(plan, shape);
        else
            pull(plan, shape, store);
        break;
    default: pull(plan, shape, store); break;
    }
    tti_add_leave(plan);
}

/* Reduces the own slice into the own output, then fetches the other slices from the outputs where they were made. This
 * is right in place, too, because slice p of anybody's buffer is read by p alone before p publishes, and overwritten
 * only after that. */
static void all_reduce_in_two_phases(struct tti_plan *plan, const struct tti_shape *shape, enum tti_store store)
{
    uint64_t bytes = shape->count * shape->element;
    struct tti_block own = tti_slice_of(bytes, shape->rank, shape->size);
    tti_add_reduce(plan, tti_at(shape->rank, TTI_OUT, own.offset), tti_at(TTI_ALL, TTI_IN, own.offset), shape->size,
                   own.bytes, TTI_CACHED);
    tti_add_publish(plan, 1);
    for (int k = 1; k < shape->size; k++) {
        int from = (shape->rank + k) % shape->size;
        struct tti_block slice = tti_slice_of(bytes, from, shape->size);
        if (slice.bytes == 0) continue;
        tti_add_wait(plan, from, 1);
        tti_add_copy(plan, tti_at(shape->rank, TTI_OUT, slice.offset), tti_at(from, TTI_OUT, slice.offset), slice.bytes,
                     store);
    }
}

/* The others fetch the root's data, except for a share that the root writes to them meanwhile if it has nothing to copy
 * itself. */
static void broadcast_by_attach(struct tti_plan *plan, const struct tti_shape *shape, enum tti_store store)
{
    uint64_t bytes = shape->count * shape->element;
    struct tti_block share = tti_slice_of(bytes, shape->size - 1, shape->size);
    if (!shape->in_place) {
        pull(plan, shape, store);
    } else if (shape->rank != shape->root) {
        tti_add_copy(plan, tti_at(shape->rank, TTI_OUT, 0), tti_at(shape->root, TTI_IN, 0), share.offset, store);
    } else {
        for (int k = 1; k < shape->size; k++)
            tti_add_copy(plan, tti_at((shape->root + k) % shape->size, TTI_OUT, share.offset),
                         tti_at(shape->root, TTI_IN, share.offset), share.bytes, store);
    }
}

void tti_build_attach(struct tti_plan *plan, const struct tti_shape *shape)
{
    enum tti_store store = store_of(shape);
    switch (shape->kind) {
    case TTI_ALL_REDUCE: all_reduce_in_two_phases(plan, shape, store); break;
    case TTI_BROADCAST: broadcast_by_attach(plan, shape, store); break;
    case TTI_REDUCE:
        if (shape->rank == shape->root)
            tti_add_reduce(plan, tti_at(shape->root, TTI_OUT, 0), tti_at(TTI_ALL, TTI_IN, 0), shape->size,
                           shape->count * shape->element, store);
        break;
    case TTI_REDUCE_SCATTER:
    case TTI_REDUCE_SCATTER_V: reduce_own_block(plan, shape, store); break;
    default: pull(plan, shape, store); break;
    }
    tti_add_leave(plan);
}
