/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations over messages that only move data. Large data travel whole, straight to their receiver, unless a rank
 * passes them on: then they travel in chunks, so that it can begin before it has everything.
 *
 * A rank knows its own row of counts only, so v-forms with a root, and all_to_all_v, go straight from rank to rank, one
 * message per pair, even if it is empty: ranks that disagree about a count notice it by the message's length.
 */
#include "collective/plan/plan_message.h"

/* ---- Broadcast ------------------------------------------------------------------------------------------------- */

/* Returns this member's place, counted from the root. */
static int place_of(const struct tti_message_build *build, int root)
{
    return (build->members.me - root + build->members.count) % build->members.count;
}

static int member_at(const struct tti_message_build *build, int root, int place)
{
    return (place + root) % build->members.count;
}

/* Returns the lowest bit of a place: in a binomial tree place v has the children v + 2^j, for all 2^j below it. */
static int lowest_bit(const struct tti_message_build *build, int place)
{
    int bit = 1;
    while (bit < build->members.count && (place & bit) == 0) bit *= 2;
    return bit;
}

/* Broadcasts among the first members of each group, which pass the data on to their partners. */
static void broadcast_by_tree(struct tti_message_build *build, int root, struct tti_region at, uint64_t bytes)
{
    int count = build->members.count, groups = tti_groups(build), place = place_of(build, root);
    /* the root sends its messages one after the other */
    bool flat = count < build->shape->tuning->message_flat || count == 2;
    int width = flat ? 1 : lowest_bit(build, place), partner = place + groups;
    if (place > 0) {
        int parent = place >= groups ? place - groups : flat ? 0 : place - width;
        tti_post_recv(build, member_at(build, root, parent), at, bytes);
        tti_await(build, build->received);
    }
    if (place >= groups) return;
    if (flat)
        for (int child = 1; child < groups && place == 0; child++)
            tti_post_send(build, member_at(build, root, child), at, bytes);
    for (int bit = width / 2; bit > 0; bit /= 2)
        if (place + bit < groups) tti_post_send(build, member_at(build, root, place + bit), at, bytes);
    if (partner < count) tti_post_send(build, member_at(build, root, partner), at, bytes);
}

static void broadcast_by_chain(struct tti_message_build *build, int root, struct tti_region at, uint64_t bytes)
{
    int count = build->members.count, place = place_of(build, root);
    uint64_t chunk = tti_chunk_for(build, bytes), begin;
    uint32_t base = build->received;
    for (begin = 0; begin < bytes && place > 0; begin += chunk) {
        struct tti_region target = at;
        target.offset += begin;
        tti_post_recv(build, member_at(build, root, place - 1), target, bytes - begin < chunk ? bytes - begin : chunk);
    }
    for (begin = 0; begin < bytes && place + 1 < count; begin += chunk) {
        struct tti_region source = at;
        source.offset += begin;
        if (place > 0) tti_await(build, ++base);
        tti_post_send(build, member_at(build, root, place + 1), source, bytes - begin < chunk ? bytes - begin : chunk);
    }
}

void tti_build_message_broadcast(struct tti_message_build *build, uint64_t offset, uint64_t bytes, int root,
                                 enum tti_space source)
{
    int count = build->members.count;
    uint64_t small = tti_small_for(build, build->shape->tuning->message_tree, 8);
    struct tti_region at = tti_own(build, build->members.me == root ? source : TTI_OUT, offset);
    if (count > 2 && bytes > small && build->shape->tuning->message_paired == 0)
        broadcast_by_chain(build, root, at, bytes);
    else
        broadcast_by_tree(build, root, at, bytes);
    if (build->members.me == root && source == TTI_IN) tti_copy_own(build, offset, offset, bytes);
}

/* ---- Gather and scatter ---------------------------------------------------------------------------------------- */

static bool goes_by_tree(const struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    return shape->tables == NULL && shape->size > shape->tuning->message_flat &&
           tti_shape_bytes(shape) <= tti_small_for(build, shape->tuning->message_tree, 8);
}

static void gather_directly(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    struct tti_block own = tti_block_to(shape, shape->root);
    if (shape->rank != shape->root) {
        tti_post_send(build, shape->root, tti_own(build, TTI_IN, own.offset), own.bytes);
        return;
    }
    for (int k = 1; k < shape->size; k++) {
        int from = (shape->rank + k) % shape->size;
        struct tti_block block = tti_block_from(shape, from);
        tti_post_recv(build, from, tti_own(build, TTI_OUT, block.offset), block.bytes);
    }
    tti_copy_own(build, tti_block_from(shape, shape->rank).offset, own.offset, own.bytes);
}

static void scatter_directly(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    struct tti_block own = tti_block_from(shape, shape->root);
    if (shape->rank != shape->root) {
        tti_post_recv(build, shape->root, tti_own(build, TTI_OUT, own.offset), own.bytes);
        return;
    }
    for (int k = 1; k < shape->size; k++) {
        int to = (shape->rank + k) % shape->size;
        struct tti_block block = tti_block_to(shape, to);
        tti_post_send(build, to, tti_own(build, TTI_IN, block.offset), block.bytes);
    }
    struct tti_block block = tti_block_to(shape, shape->rank);
    tti_copy_own(build, own.offset, block.offset, block.bytes);
}

/* Returns how many places a subtree of a binomial tree has whose parent reaches it over `bit`. */
static int places_below(const struct tti_message_build *build, int place, int bit)
{
    int left = build->members.count - place;
    return bit < left ? bit : left;
}

/* A place's own block and those below it lie in TEMP in order of places; the root puts them into the order of ranks. */
static void gather_by_tree(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    int place = place_of(build, shape->root), width = lowest_bit(build, place), count = shape->size;
    uint64_t block = shape->count * shape->element;
    int places = places_below(build, place, place == 0 ? count : width);
    struct tti_region temp = places == 1 ? tti_own(build, TTI_IN, 0) : tti_temp(build, (uint64_t)places * block);
    for (int bit = 1; bit < width && place + bit < count; bit *= 2) {
        struct tti_region at = {temp.rank, temp.space, temp.offset + (uint64_t)bit * block};
        tti_post_recv(build, member_at(build, shape->root, place + bit), at,
                      (uint64_t)places_below(build, place + bit, bit) * block);
    }
    if (place > 0) {
        if (places > 1) tti_add_copy(build->plan, temp, tti_own(build, TTI_IN, 0), block, TTI_CACHED);
        tti_await(build, build->received);
        tti_post_send(build, member_at(build, shape->root, place - width), temp, (uint64_t)places * block);
        return;
    }
    uint64_t root = (uint64_t)shape->root, high = (uint64_t)count - root - 1;
    tti_copy_own(build, root * block, 0, block);
    tti_await(build, build->received);
    temp.offset += block;
    tti_add_copy(build->plan, tti_own(build, TTI_OUT, (root + 1) * block), temp, high * block, TTI_CACHED);
    temp.offset += high * block;
    tti_add_copy(build->plan, tti_own(build, TTI_OUT, 0), temp, root * block, TTI_CACHED);
}

static void scatter_by_tree(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    int place = place_of(build, shape->root), width = lowest_bit(build, place), count = shape->size;
    uint64_t block = shape->count * shape->element, root = (uint64_t)shape->root, high = (uint64_t)count - root;
    int places = places_below(build, place, place == 0 ? count : width);
    struct tti_region temp = places == 1 ? tti_own(build, TTI_OUT, 0) : tti_temp(build, (uint64_t)places * block);
    if (place > 0) {
        tti_post_recv(build, member_at(build, shape->root, place - width), temp, (uint64_t)places * block);
        tti_await(build, build->received);
    } else {
        struct tti_region rest = {temp.rank, temp.space, temp.offset + high * block};
        tti_add_copy(build->plan, temp, tti_own(build, TTI_IN, root * block), high * block, TTI_CACHED);
        tti_add_copy(build->plan, rest, tti_own(build, TTI_IN, 0), root * block, TTI_CACHED);
    }
    for (int bit = width / 2; bit > 0; bit /= 2) {
        struct tti_region at = {temp.rank, temp.space, temp.offset + (uint64_t)bit * block};
        if (place + bit < count)
            tti_post_send(build, member_at(build, shape->root, place + bit), at,
                          (uint64_t)places_below(build, place + bit, bit) * block);
    }
    if (places > 1) tti_add_copy(build->plan, tti_own(build, TTI_OUT, 0), temp, block, TTI_CACHED);
}

/* ---- All-to-all ------------------------------------------------------------------------------------------------ */

enum { PAIRS_AHEAD = 8, EXCHANGES_AHEAD = 4 };

static void pairwise(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    int size = shape->size, me = shape->rank;
    for (int k = 1; k < size; k++) {
        int from = (me - k + size) % size;
        struct tti_block block = tti_block_from(shape, from);
        tti_post_recv(build, from, tti_own(build, TTI_OUT, block.offset), block.bytes);
    }
    for (int k = 1; k < size; k++) {
        struct tti_block block = tti_block_to(shape, (me + k) % size);
        if (k > PAIRS_AHEAD) tti_await(build, (uint32_t)(k - PAIRS_AHEAD));
        tti_post_send(build, (me + k) % size, tti_own(build, TTI_IN, block.offset), block.bytes);
    }
    struct tti_block own = tti_block_to(shape, me);
    tti_copy_own(build, tti_block_from(shape, me).offset, own.offset, own.bytes);
}

/* In place, ranks whose sum is the same number modulo `size` swap blocks, chunk by chunk: a chunk that comes waits in
 * TEMP until the data in its place have gone. */
struct swap {
    struct tti_region block, temp;
    uint64_t bytes;
    uint32_t received, sent; /* messages posted up to and including this swap */
};

static void finish_swap(struct tti_message_build *build, struct swap *swap)
{
    if (swap->bytes == 0) return;
    tti_await(build, swap->received);
    tti_drain(build, swap->sent);
    tti_add_copy(build->plan, swap->block, swap->temp, swap->bytes, TTI_CACHED);
    swap->bytes = 0;
}

static void swap_in_place(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    int size = shape->size, me = shape->rank;
    uint64_t block = shape->count * shape->element, chunk = tti_chunk_for(build, block), at = 0;
    struct swap swaps[EXCHANGES_AHEAD] = {0};
    for (int i = 0; i < EXCHANGES_AHEAD; i++) swaps[i].temp = tti_temp(build, chunk < block ? chunk : block);
    for (int k = 0; k < size; k++) {
        int peer = (k - me + size) % size;
        for (uint64_t begin = 0; begin < block && peer != me; begin += chunk) {
            struct swap *swap = &swaps[at++ % EXCHANGES_AHEAD];
            finish_swap(build, swap);
            swap->block = tti_own(build, TTI_OUT, (uint64_t)peer * block + begin);
            swap->bytes = block - begin < chunk ? block - begin : chunk;
            tti_post_recv(build, peer, swap->temp, swap->bytes);
            tti_post_send(build, peer, swap->block, swap->bytes);
            swap->received = build->received;
            swap->sent = build->sent;
        }
    }
    for (int i = 0; i < EXCHANGES_AHEAD; i++) finish_swap(build, &swaps[(at + (uint64_t)i) % EXCHANGES_AHEAD]);
}

/* Returns how many of the blocks 0 .. size - 1 take this hop. */
static int blocks_with(int size, int hop)
{
    int rest = size % (2 * hop) - hop;
    return size / (2 * hop) * hop + (rest > 0 ? rest : 0);
}

/* Bruck's algorithm: the block for the rank `i` places further on takes the hops that make up i. Block i lies where the
 * last hop left it. */
static struct tti_region bruck_block(struct tti_message_build *build, int i, int bit, const uint64_t *received)
{
    const struct tti_shape *shape = build->shape;
    uint64_t block = shape->count * shape->element;
    int last = 0;
    for (int hop = 1; hop < bit; hop *= 2)
        if ((i & hop) != 0) last = hop;
    if (last == 0) return tti_own(build, TTI_IN, (uint64_t)((shape->rank + i) % shape->size) * block);
    uint64_t before = (uint64_t)blocks_with(i, last);
    int round = 0;
    while (1 << round < last) round++;
    return tti_own(build, TTI_TEMP, received[round] + before * block);
}

static void all_to_all_by_rounds(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    int size = shape->size, me = shape->rank, round = 0;
    uint64_t block = shape->count * shape->element, *received = build->slots[0];
    uint32_t base = build->received;
    for (int bit = 1; bit < size; bit *= 2) {
        uint64_t bytes = (uint64_t)blocks_with(size, bit) * block;
        struct tti_region slot = tti_temp(build, bytes);
        received[round++] = slot.offset;
        tti_post_recv(build, (me - bit + size) % size, slot, bytes);
    }
    for (int bit = 1; bit < size; bit *= 2) {
        uint64_t bytes = (uint64_t)blocks_with(size, bit) * block;
        struct tti_region packed = tti_temp(build, bytes), at = packed;
        for (int i = bit; i < size; i++) {
            if ((i & bit) == 0) continue;
            tti_add_copy(build->plan, at, bruck_block(build, i, bit, received), block, TTI_CACHED);
            at.offset += block;
        }
        tti_post_send(build, (me + bit) % size, packed, bytes);
        tti_await(build, ++base);
    }
    for (int i = 0; i < size; i++)
        tti_add_copy(build->plan, tti_own(build, TTI_OUT, (uint64_t)((me - i + size) % size) * block),
                     bruck_block(build, i, size, received), block, TTI_CACHED);
}

/* ---- Which one ------------------------------------------------------------------------------------------------- */

/* Few ranks need few messages anyway, but if ranks share cores every message counts. */
static bool goes_by_rounds(const struct tti_message_build *build)
{
    const tutti_tuning *tuning = build->shape->tuning;
    bool crowded = tuning->message_paired != 0;
    return build->shape->kind == TTI_ALL_TO_ALL && build->shape->size > (crowded ? 3 : tuning->message_flat) &&
           tti_shape_bytes(build->shape) <= tti_small_for(build, tuning->message_bruck * (crowded ? 2 : 1), 8);
}

static void all_to_all(struct tti_message_build *build)
{
    if (goes_by_rounds(build))
        all_to_all_by_rounds(build);
    else if (build->shape->in_place && build->shape->count > 0)
        swap_in_place(build);
    else
        pairwise(build);
}

void tti_build_message_move(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    switch (shape->kind) {
    case TTI_BROADCAST:
        tti_build_message_broadcast(build, 0, shape->count * shape->element, shape->root, TTI_IN);
        break;
    case TTI_GATHER:
    case TTI_GATHER_V: goes_by_tree(build) ? gather_by_tree(build) : gather_directly(build); break;
    case TTI_SCATTER:
    case TTI_SCATTER_V: goes_by_tree(build) ? scatter_by_tree(build) : scatter_directly(build); break;
    case TTI_ALL_GATHER:
    case TTI_ALL_GATHER_V: tti_build_message_all_gather(build); break;
    default: all_to_all(build); break;
    }
}
