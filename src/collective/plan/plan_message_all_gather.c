/* SPDX-License-Identifier: Apache-2.0
 *
 * All-gather of blocks over messages; a rank may have several blocks (plan_hosts.h).
 */
#include "collective/plan/plan_message.h"

static bool piece_of(const struct tti_message_build *build, int member, int index, struct tti_block *block)
{
    if (build->piece != NULL) return build->piece(build, member, index, block);
    *block = tti_block_from(build->shape, member);
    return index == 0;
}

/* Returns the bytes of the blocks of `count` members from this one on. */
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
    tti_copy_own(build, tti_block_from(build->shape, me).offset, 0, tti_block_from(build->shape, me).bytes);
}

/* Receives the blocks of a member from `from` in chunks; ring_send sends them to `to` as they come. */
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

/* Round after round each member passes on to the next one what it received in the round before. */
static void ring(struct tti_message_build *build)
{
    int count = build->members.count, me = build->members.me;
    /* two members pass nothing on */
    uint64_t chunk = count == 2 ? UINT64_MAX / 2 : tti_chunk_for(build, members_bytes(build, 0, count));
    uint32_t received = build->received;
    for (int k = 1; k < count; k++) ring_receive(build, (me - 1 + count) % count, (me - k + count) % count, chunk);
    for (int k = 0; k < count - 1; k++) {
        ring_send(build, (me + 1) % count, (me - k + count) % count, chunk, &received);
        if (k == 0) copy_block(build); /* done while the first messages travel */
    }
    if (count == 1) copy_block(build);
}

/* Sends as many bytes as a ring, but no member waits for a block that another one passes on. */
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

/* Posts the blocks of `count` members from this one on, in OUT: as one message if they lie there in one piece on all
 * ranks. */
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

/* For a power of two of members: from round to round pairs swap all they have. There is one exchange at a time, and if
 * ranks share cores the largest exchange stays on one core, so that data are still in its cache when they are read. */
static void all_gather_by_doubling(struct tti_message_build *build)
{
    int me = build->members.me;
    if (build->piece == NULL)
        tti_add_copy(build->plan, tti_own(build, TTI_OUT, tti_block_from(build->shape, me).offset),
                     tti_own(build, TTI_IN, 0), tti_block_from(build->shape, me).bytes, TTI_CACHED);
    for (int width = 1; width < build->members.count; width *= 2) {
        int mine = me / width * width;
        tti_await(build, build->received);
        post_span(build, me ^ width, mine ^ width, width, false);
        post_span(build, me ^ width, mine, width, true);
    }
}

/* Copies a member's blocks between OUT and TEMP, where they are packed from `temp` on in order of members. */
static void copy_packed(struct tti_message_build *build, int member, struct tti_region *temp, bool pack)
{
    struct tti_block block;
    for (int k = 0; piece_of(build, member, k, &block); k++) {
        struct tti_region out = tti_own(build, TTI_OUT, block.offset);
        if (pack && build->piece == NULL) out = tti_own(build, TTI_IN, 0);
        tti_add_copy(build->plan, pack ? *temp : out, pack ? out : *temp, block.bytes, TTI_CACHED);
        temp->offset += block.bytes;
    }
}

/* Returns the same for groups: for those members and their partners. */
static uint64_t groups_bytes(const struct tti_message_build *build, int first, int groups)
{
    int count = build->members.count, all = tti_groups(build);
    uint64_t bytes = 0;
    for (int i = 0; i < groups; i++)
        for (int member = (first + i) % all; member < count; member += all) bytes += members_bytes(build, member, 1);
    return bytes;
}

/* Unpacks all blocks, which were packed in the order in which a group's first member gets them. */
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

/* For a member that lets its partner exchange for it. */
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

/* Bruck's algorithm: the first member of a group holds the blocks of the groups from its own on, packed in TEMP; in
 * each round it doubles their number. */
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

/* With three ranks every message goes straight to its receiver in one round, and there are no more messages than
 * otherwise. Rounds send as many bytes as the ring, and copy them once more; if pairs can swap what they have, that
 * takes as few messages without the copy. Large blocks go round the ring, so that all connections carry them at once,
 * or, if ranks are few, straight to their receivers. */
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
