/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations over messages that only move data. Large data travel whole, from where they are to where they belong, unless
 * somebody passes them on: then in chunks, so that he can begin before he has everything.
 *
 * A rank knows its own row of counts only, so v-forms with a root, and all_to_all_v, go straight from rank to rank, one
 * message per pair, empty ones too: ranks that disagree about a count find out by its length.
 */
#include "collective/plan_message.h"

static void copy_own(struct tti_message_build *build, uint64_t out, uint64_t in, uint64_t bytes)
{
    tti_add_copy(build->plan, tti_own(build, TTI_OUT, out), tti_own(build, TTI_IN, in), bytes, false);
}

/* ---- Broadcast ------------------------------------------------------------------------------------------------- */

/* Members counted from the root. */
static int place_of(const struct tti_message_build *build, int root)
{
    return (build->members.me - root + build->members.count) % build->members.count;
}

static int member_at(const struct tti_message_build *build, int root, int place)
{
    return (place + root) % build->members.count;
}

/* In a binomial tree place v has the children v + 2^j, for all 2^j below its own lowest bit. */
static int lowest_bit(const struct tti_message_build *build, int place)
{
    int bit = 1;
    while (bit < build->members.count && (place & bit) == 0) bit *= 2;
    return bit;
}

/* Among the first of each group; they pass it on to their partners. */
static void broadcast_by_tree(struct tti_message_build *build, int root, struct tti_region at, uint64_t bytes)
{
    int count = build->members.count, groups = tti_groups(build), place = place_of(build, root);
    bool flat = count < build->shape->tuning->message_flat || count == 2; /* its messages leave one after the other */
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

static uint64_t chunk_for(const struct tti_message_build *build, uint64_t bytes)
{
    uint64_t most = (uint64_t)build->shape->tuning->message_chunk;
    uint64_t chunk = bytes / 4 / (uint64_t)build->members.count;
    if (chunk < most / 8) chunk = most / 8;
    if (chunk > most) chunk = most;
    if (chunk < bytes / 1024) chunk = bytes / 1024; /* steps are to be bounded, too */
    return chunk < 64 ? 64 : chunk / 64 * 64;
}

static void broadcast_by_chain(struct tti_message_build *build, int root, struct tti_region at, uint64_t bytes)
{
    int count = build->members.count, place = place_of(build, root);
    uint64_t chunk = chunk_for(build, bytes), begin;
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
    if (build->members.me == root && source == TTI_IN) copy_own(build, offset, offset, bytes);
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
    copy_own(build, tti_block_from(shape, shape->rank).offset, own.offset, own.bytes);
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
    copy_own(build, own.offset, block.offset, block.bytes);
}

/* How many places a subtree of a binomial tree has, whose parent reaches it over `bit`. */
static int places_below(const struct tti_message_build *build, int place, int bit)
{
    int left = build->members.count - place;
    return bit < left ? bit : left;
}

/* A place's own block and those below it lie in TEMP in order of places; the root turns them into ranks. */
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
        if (places > 1) tti_add_copy(build->plan, temp, tti_own(build, TTI_IN, 0), block, false);
        tti_await(build, build->received);
        tti_post_send(build, member_at(build, shape->root, place - width), temp, (uint64_t)places * block);
        return;
    }
    uint64_t root = (uint64_t)shape->root, high = (uint64_t)count - root - 1;
    copy_own(build, root * block, 0, block);
    tti_await(build, build->received);
    temp.offset += block;
    tti_add_copy(build->plan, tti_own(build, TTI_OUT, (root + 1) * block), temp, high * block, false);
    temp.offset += high * block;
    tti_add_copy(build->plan, tti_own(build, TTI_OUT, 0), temp, root * block, false);
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
        tti_add_copy(build->plan, temp, tti_own(build, TTI_IN, root * block), high * block, false);
        tti_add_copy(build->plan, rest, tti_own(build, TTI_IN, 0), root * block, false);
    }
    for (int bit = width / 2; bit > 0; bit /= 2) {
        struct tti_region at = {temp.rank, temp.space, temp.offset + (uint64_t)bit * block};
        if (place + bit < count)
            tti_post_send(build, member_at(build, shape->root, place + bit), at,
                          (uint64_t)places_below(build, place + bit, bit) * block);
    }
    if (places > 1) tti_add_copy(build->plan, tti_own(build, TTI_OUT, 0), temp, block, false);
}

/* ---- All-gather ------------------------------------------------------------------------------------------------ */

static bool piece_of(const struct tti_message_build *build, int member, int index, struct tti_block *block)
{
    if (build->piece != NULL) return build->piece(build, member, index, block);
    *block = tti_block_from(build->shape, member);
    return index == 0;
}

/* What `count` members from here on have. */
static uint64_t members_bytes(const struct tti_message_build *build, int first, int count)
{
    uint64_t bytes = 0;
    struct tti_block block;
    for (int i = 0; i < count; i++)
        for (int k = 0; piece_of(build, (first + i) % build->members.count, k, &block); k++) bytes += block.bytes;
    return bytes;
}

static void copy_block(struct tti_message_build *build)
{
    int me = build->members.me;
    if (build->piece != NULL) return;
    copy_own(build, tti_block_from(build->shape, me).offset, 0, tti_block_from(build->shape, me).bytes);
}

/* Receives what a member has from `from`, or sends it to `to` as it comes; in chunks. */
static void ring_receive(struct tti_message_build *build, int from, int member, uint64_t chunk)
{
    struct tti_block block;
    for (int k = 0; piece_of(build, member, k, &block); k++)
        for (uint64_t begin = 0; begin < block.bytes; begin += chunk)
            tti_post_recv(build, from, tti_own(build, TTI_OUT, block.offset + begin),
                          block.bytes - begin < chunk ? block.bytes - begin : chunk);
}

static void ring_send(struct tti_message_build *build, int to, int member, uint64_t chunk, uint32_t *received)
{
    bool own = member == build->members.me, from_in = own && build->piece == NULL;
    struct tti_block block;
    for (int k = 0; piece_of(build, member, k, &block); k++)
        for (uint64_t begin = 0; begin < block.bytes; begin += chunk) {
            struct tti_region source = from_in ? tti_own(build, TTI_IN, begin)
                                               : tti_own(build, TTI_OUT, block.offset + begin);
            if (!own) tti_await(build, ++*received);
            tti_post_send(build, to, source, block.bytes - begin < chunk ? block.bytes - begin : chunk);
        }
}

/* Round after round each member passes on to the next one what the one before it sent last. */
static void ring(struct tti_message_build *build)
{
    int count = build->members.count, me = build->members.me;
    /* between two, nobody passes anything on */
    uint64_t chunk = count == 2 ? UINT64_MAX / 2 : chunk_for(build, members_bytes(build, 0, count));
    uint32_t received = build->received;
    for (int k = 1; k < count; k++) ring_receive(build, (me - 1 + count) % count, (me - k + count) % count, chunk);
    for (int k = 0; k < count - 1; k++) {
        ring_send(build, (me + 1) % count, (me - k + count) % count, chunk, &received);
        if (k == 0) copy_block(build); /* while the first ones travel */
    }
    if (count == 1) copy_block(build);
}

/* As many bytes as in a ring, and nobody waits for what another one passes on. */
static void all_gather_directly(struct tti_message_build *build)
{
    int count = build->members.count, me = build->members.me;
    for (int k = 1; k < count; k++)
        ring_receive(build, (me - k + count) % count, (me - k + count) % count, UINT64_MAX / 2);
    for (int k = 1; k < count; k++) ring_send(build, (me + k) % count, me, UINT64_MAX / 2, NULL);
    copy_block(build);
}

static void post_run(struct tti_message_build *build, int peer, struct tti_block run, bool send)
{
    struct tti_region at = tti_own(build, TTI_OUT, run.offset);
    if (run.bytes > 0) send ? tti_post_send(build, peer, at, run.bytes) : tti_post_recv(build, peer, at, run.bytes);
}

/* What `count` members from here on have, in OUT: one message if it lies there on all ranks in one piece. */
static void post_span(struct tti_message_build *build, int peer, int first, int count, bool send)
{
    struct tti_block run = {0}, block;
    for (int member = first; member < first + count; member++)
        for (int k = 0; piece_of(build, member, k, &block); k++) {
            bool adjacent = build->shape->tables == NULL && block.offset == run.offset + run.bytes;
            if (!adjacent) post_run(build, peer, run, send);
            run = adjacent ? (struct tti_block){run.offset, run.bytes + block.bytes} : block;
        }
    post_run(build, peer, run, send);
}

/* A power of two of them: from round to round pairs swap all they have. One exchange at a time, and where ranks share cores
 * the largest stays on one, so that data are in its cache still when they are read. */
static void all_gather_by_doubling(struct tti_message_build *build)
{
    int me = build->members.me;
    copy_block(build);
    for (int width = 1; width < build->members.count; width *= 2) {
        int mine = me / width * width;
        tti_await(build, build->received);
        post_span(build, me ^ width, mine ^ width, width, false);
        post_span(build, me ^ width, mine, width, true);
    }
}

/* Between what members have, packed from `temp` on in order of members, and OUT. */
static void copy_packed(struct tti_message_build *build, int member, struct tti_region *temp, bool pack)
{
    struct tti_block block;
    for (int k = 0; piece_of(build, member, k, &block); k++) {
        struct tti_region out = tti_own(build, TTI_OUT, block.offset);
        if (pack && build->piece == NULL) out = tti_own(build, TTI_IN, 0);
        tti_add_copy(build->plan, pack ? *temp : out, pack ? out : *temp, block.bytes, false);
        temp->offset += block.bytes;
    }
}

/* The same of groups: those members and their partners. */
static uint64_t groups_bytes(const struct tti_message_build *build, int first, int groups)
{
    int count = build->members.count, all = tti_groups(build);
    uint64_t bytes = 0;
    for (int i = 0; i < groups; i++)
        for (int member = (first + i) % all; member < count; member += all) bytes += members_bytes(build, member, 1);
    return bytes;
}

/* All that was packed in the order in which a group's first member gets it. */
static void unpack_groups(struct tti_message_build *build, int first, struct tti_region temp)
{
    int count = build->members.count, groups = tti_groups(build);
    copy_block(build);
    for (int i = 0; i < groups; i++)
        for (int member = (first + i) % groups; member < count; member += groups) {
            if (member == build->members.me)
                temp.offset += members_bytes(build, member, 1);
            else
                copy_packed(build, member, &temp, false);
        }
}

/* One that lets its partner exchange for it. */
static void all_gather_by_partner(struct tti_message_build *build, int partner)
{
    int me = build->members.me;
    uint64_t all = members_bytes(build, 0, build->members.count), mine = members_bytes(build, me, 1);
    struct tti_region temp = tti_temp(build, all), own = tti_temp(build, mine), next = own;
    tti_post_recv(build, partner, temp, all);
    copy_packed(build, me, &next, true);
    tti_post_send(build, partner, own, mine);
    tti_await(build, build->received);
    unpack_groups(build, partner, temp);
}

/* Bruck: the first member of a group holds the blocks of the groups from its own on, packed in TEMP; in each round it gets as
 * many again. */
static void all_gather_by_rounds(struct tti_message_build *build)
{
    int count = build->members.count, me = build->members.me, groups = tti_groups(build), partner = me + groups;
    if (me >= groups) {
        all_gather_by_partner(build, me - groups);
        return;
    }
    uint32_t base = build->received;
    struct tti_region temp = tti_temp(build, members_bytes(build, 0, count)), next = temp;
    if (partner < count)
        tti_post_recv(build, partner, tti_own(build, TTI_TEMP, temp.offset + members_bytes(build, me, 1)),
                      members_bytes(build, partner, 1));
    for (int have = 1; have < groups; have *= 2) {
        int gets = have < groups - have ? have : groups - have;
        struct tti_region at = tti_own(build, TTI_TEMP, temp.offset + groups_bytes(build, me, have));
        tti_post_recv(build, (me + have) % groups, at, groups_bytes(build, (me + have) % groups, gets));
    }
    copy_packed(build, me, &next, true);
    if (partner < count) tti_await(build, ++base);
    for (int have = 1; have < groups; have *= 2) {
        int gives = have < groups - have ? have : groups - have;
        tti_post_send(build, (me - have + groups) % groups, temp, groups_bytes(build, me, gives));
        tti_await(build, ++base);
    }
    if (partner < count) tti_post_send(build, partner, temp, members_bytes(build, 0, count));
    unpack_groups(build, me, temp);
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
    copy_own(build, tti_block_from(shape, me).offset, own.offset, own.bytes);
}

/* In place, ranks that add up to the same number modulo `size` swap blocks, chunk by chunk: what comes waits in TEMP until
 * what was there has gone. */
struct swap {
    struct tti_region block, temp;
    uint64_t bytes;
    uint32_t received, sent; /* with this swap */
};

static void finish_swap(struct tti_message_build *build, struct swap *swap)
{
    if (swap->bytes == 0) return;
    tti_await(build, swap->received);
    tti_drain(build, swap->sent);
    tti_add_copy(build->plan, swap->block, swap->temp, swap->bytes, false);
    swap->bytes = 0;
}

static void swap_in_place(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    int size = shape->size, me = shape->rank;
    uint64_t block = shape->count * shape->element, chunk = chunk_for(build, block), at = 0;
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

/* How many of the blocks 0 .. size - 1 take this hop. */
static int blocks_with(int size, int hop)
{
    int rest = size % (2 * hop) - hop;
    return size / (2 * hop) * hop + (rest > 0 ? rest : 0);
}

/* Bruck: the block for the rank `i` further on takes the hops that make up i. Block i lies where the last hop left it. */
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
            tti_add_copy(build->plan, at, bruck_block(build, i, bit, received), block, false);
            at.offset += block;
        }
        tti_post_send(build, (me + bit) % size, packed, bytes);
        tti_await(build, ++base);
    }
    for (int i = 0; i < size; i++)
        tti_add_copy(build->plan, tti_own(build, TTI_OUT, (uint64_t)((me - i + size) % size) * block),
                     bruck_block(build, i, size, received), block, false);
}

/* ---- Which one ------------------------------------------------------------------------------------------------- */

static bool is_small(const struct tti_message_build *build)
{
    return tti_shape_bytes(build->shape) <= tti_small_for(build, build->shape->tuning->message_bruck, 8);
}

/* With three ranks every message goes where it belongs in one round, and they are no more. Rounds send as many bytes as the
 * ring, and copy them once more; where pairs can swap what they have, that takes as few messages without the copy. Large
 * blocks go round the ring, so that all connections carry them at once, or from few ranks straight to where they belong. */
void tti_build_message_all_gather(struct tti_message_build *build)
{
    int count = build->members.count;
    const tutti_tuning *tuning = build->shape->tuning;
    uint64_t bytes = members_bytes(build, 0, count);
    bool crowded = tuning->message_paired != 0, power = (count & (count - 1)) == 0;
    bool small = bytes <= tti_small_for(build, tuning->message_bruck * (crowded ? 1 : 8), 2) ||
                 bytes <= (uint64_t)tuning->message_paired;
    bool swaps = crowded || bytes <= (uint64_t)tuning->message_doubling / 2 * (uint64_t)count;
    if (!(small && crowded) && swaps && power && count > 2)
        all_gather_by_doubling(build);
    else if (count <= (small ? 3 : tuning->message_flat))
        all_gather_directly(build);
    else if (small)
        all_gather_by_rounds(build);
    else
        ring(build);
}

static void all_to_all(struct tti_message_build *build)
{
    if (build->shape->kind == TTI_ALL_TO_ALL && build->shape->size > build->shape->tuning->message_flat &&
        is_small(build))
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
