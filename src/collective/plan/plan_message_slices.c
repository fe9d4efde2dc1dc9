/* SPDX-License-Identifier: Apache-2.0
 *
 * Large reductions over messages: owned slices. Each member owns a slice of the vector, receives all contributions to
 * it, folds them in the canonical order, and passes the result on. Slices are cut into chunks, of which a few (`ahead`)
 * travel while one is folded; results are sent as soon as they are made. A member can be at most `ahead` chunks further
 * than another, since it needs the other's contributions: with receives posted for twice as many, whatever comes has
 * its place and is not put aside.
 *
 * A member sends another, in this order: its contributions to the other's first `ahead` chunks; then, for each of its
 * own chunks c, the result c and its contributions to the other's chunk c + ahead. The other posts its receives in the
 * same order.
 *
 * In place: what arrives as a result was sent as a contribution before, to the member that made the result of it.
 */
#include "collective/plan/plan_message.h"

enum { AHEAD_LEAST = 2, AHEAD_MOST = 4, SLOTS_MOST = 2 * AHEAD_MOST };
enum { TEMP_MOST = 4 << 20, TEMP_CACHED = 1 << 20, CHUNK_LEAST = 4096 };
enum { OF_TWO_MOST = 3 * TTI_PACKET };

struct slices {
    struct tti_message_build *build;
    uint64_t offset, bytes; /* the range of the vector */
    enum tti_keep keep;
    int root;
    uint64_t chunk;   /* bytes of elements */
    uint64_t chunks;  /* chunks of the largest slice */
    uint64_t longest; /* bytes of the longest chunk: the last one of a slice may be longer, to leave no small rest */
    uint64_t ahead;   /* how many chunks of contributions travel */
    uint64_t slots;   /* chunks for which there is room: 2 * ahead, or `ahead` if that takes too much */
    int parts;        /* the number of subtrees of all members, in `trees` of the build, in rank order */
    int own_parts;
    uint64_t slot;                 /* TEMP bytes of one chunk */
    uint64_t begin;                /* where the slots begin */
    uint64_t sent_parts;           /* where contributions that had to be made lie in a slot */
    uint64_t sent_result;          /* where the result lies in a slot, if it is not this rank's */
    uint32_t received[SLOTS_MOST]; /* receives posted up to the contributions to a chunk, by slot */
    uint32_t sent[SLOTS_MOST];     /* sends posted up to the last contribution to a chunk */
    uint32_t passed[SLOTS_MOST];   /* sends posted up to the last of its results */
};

static bool raw(const struct tti_message_build *build)
{
    return !build->combined && !build->shape->scaled;
}

/* Returns true if contributions must be made before they are sent. */
static bool makes_parts(const struct tti_message_build *build)
{
    return build->shape->scaled && !build->combined;
}

static struct tti_part part_of(const struct slices *slices, const struct tti_subtree *tree)
{
    return (struct tti_part){.first = tree->first, .ranks = tree->ranks, .partial = !raw(slices->build)};
}

/* Returns a member's slice of the vector. */
static struct tti_block slice_of(const struct slices *slices, int member)
{
    const struct tti_message_build *build = slices->build;
    if (tti_shape_splits(build->shape)) {
        struct tti_flow flow = tti_reduce_block(build->shape, member);
        return (struct tti_block){flow.source, flow.bytes};
    }
    struct tti_block slice = tti_slice_of(slices->bytes, member, build->members.count);
    slice.offset += slices->offset;
    return slice;
}

static struct tti_block chunk_of(const struct slices *slices, int member, uint64_t c)
{
    struct tti_block slice = slice_of(slices, member);
    uint64_t begin = c * slices->chunk;
    if (c >= slices->chunks || begin >= slice.bytes) return (struct tti_block){slice.offset, 0};
    uint64_t left = slice.bytes - begin;
    bool all = c + 1 == slices->chunks || left < slices->chunk;
    return (struct tti_block){slice.offset + begin, all ? left : slices->chunk};
}

static struct tti_region slot_at(const struct slices *slices, uint64_t c, uint64_t offset)
{
    return tti_own(slices->build, TTI_TEMP, slices->begin + c % slices->slots * slices->slot + offset);
}

static uint64_t part_room(const struct slices *slices)
{
    struct tti_part part = {.partial = !raw(slices->build)};
    return tti_whole_lines(tti_part_bytes(slices->build, &part, slices->longest));
}

/* ---- Contributions --------------------------------------------------------------------------------------------- */

/* Posts receives for the contributions to a chunk. Subtrees have their places in a slot in rank order, without the own
 * ones. */
static void post_contributions(struct slices *slices, uint64_t c)
{
    struct tti_message_build *build = slices->build;
    int me = build->members.me, place = 0;
    uint64_t bytes = chunk_of(slices, me, c).bytes;
    for (int i = 0; i < slices->parts && bytes > 0; i++) {
        struct tti_part part = part_of(slices, &build->trees[i]);
        if (build->trees[i].owner == me) continue;
        struct tti_region at = slot_at(slices, c, (uint64_t)place++ * part_room(slices));
        tti_post_recv(build, build->trees[i].owner, at, tti_part_bytes(build, &part, bytes));
    }
    slices->received[c % slices->slots] = build->received;
}

/* Returns where own subtree number `index` of this `chunk` of the vector lies. */
static struct tti_region own_part(const struct slices *slices, int index, struct tti_block chunk)
{
    const struct tti_message_build *build = slices->build;
    if (!build->combined) return tti_own(build, TTI_IN, chunk.offset);
    uint64_t at = (chunk.offset - build->origin) / build->shape->element * build->shape->accumulator;
    return tti_own(build, TTI_TEMP, (uint64_t)index * build->stride + at);
}

static void send_contribution(struct slices *slices, uint64_t c, int to)
{
    struct tti_message_build *build = slices->build;
    struct tti_block chunk = chunk_of(slices, to, c);
    struct tti_part part = {.partial = !raw(build)};
    for (int i = 0; i < slices->own_parts && chunk.bytes > 0; i++) {
        struct tti_region source = own_part(slices, i, chunk);
        if (makes_parts(build)) {
            int place = to < build->members.me ? to : to - 1;
            struct tti_part leaf = {.at = source, .first = build->shape->rank, .ranks = 1};
            source = slot_at(slices, c, slices->sent_parts + (uint64_t)place * part_room(slices));
            tti_add_fold(build->plan, source, &leaf, 1, 0, chunk.bytes);
        }
        tti_post_send(build, to, source, tti_part_bytes(build, &part, chunk.bytes));
    }
}

static void send_contributions(struct slices *slices, uint64_t c)
{
    struct tti_message_build *build = slices->build;
    int count = build->members.count, me = build->members.me;
    if (makes_parts(build)) tti_drain(build, slices->sent[c % slices->slots]);
    for (int k = 1; k < count; k++) send_contribution(slices, c, (me + k) % count);
    slices->sent[c % slices->slots] = build->sent;
}

/* ---- Results --------------------------------------------------------------------------------------------------- */

static bool gets_result(const struct slices *slices, int member)
{
    return slices->keep == TTI_TO_ALL || (slices->keep == TTI_TO_ROOT && member == slices->root);
}

static void post_results(struct slices *slices, uint64_t c)
{
    struct tti_message_build *build = slices->build;
    int count = build->members.count, me = build->members.me;
    for (int k = 1; k < count && gets_result(slices, me); k++) {
        int from = (me - k + count) % count;
        struct tti_block chunk = chunk_of(slices, from, c);
        if (chunk.bytes > 0) tti_post_recv(build, from, tti_result_at(build, chunk.offset), chunk.bytes);
    }
}

static void fold_chunk(struct slices *slices, struct tti_block chunk, uint64_t c, struct tti_region target)
{
    struct tti_message_build *build = slices->build;
    int own = 0, place = 0;
    for (int i = 0; i < slices->parts; i++) {
        struct tti_part *part = &build->all[i];
        *part = part_of(slices, &build->trees[i]);
        if (build->trees[i].owner != build->members.me) {
            part->at = slot_at(slices, c, (uint64_t)place++ * part_room(slices));
            continue;
        }
        part->at = own_part(slices, own++, chunk);
        part->partial = build->combined;
    }
    tti_add_fold(build->plan, target, build->all, slices->parts, build->shape->size, chunk.bytes);
}

/* Returns where the result goes: to its place in this rank's output, or to a slot if only the root gets it. */
static struct tti_region result_at(const struct slices *slices, struct tti_block chunk, uint64_t c)
{
    const struct tti_message_build *build = slices->build;
    int me = build->members.me;
    if (slices->keep == TTI_KEEP) return tti_own(build, TTI_OUT, chunk.offset - slice_of(slices, me).offset);
    if (gets_result(slices, me)) return tti_result_at(build, chunk.offset);
    return slot_at(slices, c, slices->sent_result);
}

static void finish_chunk(struct slices *slices, uint64_t c)
{
    struct tti_message_build *build = slices->build;
    int count = build->members.count, me = build->members.me;
    struct tti_block chunk = chunk_of(slices, me, c);
    if (chunk.bytes == 0) return;
    struct tti_region target = result_at(slices, chunk, c);
    tti_await(build, slices->received[c % slices->slots]);
    if (target.space == TTI_TEMP) tti_drain(build, slices->passed[c % slices->slots]);
    fold_chunk(slices, chunk, c, target);
    for (int k = 1; k < count; k++)
        if (gets_result(slices, (me + k) % count)) tti_post_send(build, (me + k) % count, target, chunk.bytes);
    slices->passed[c % slices->slots] = build->sent;
}

/* ---- From start to end ----------------------------------------------------------------------------------------- */

static uint64_t largest_slice(const struct slices *slices)
{
    uint64_t largest = 0;
    for (int member = 0; member < slices->build->members.count; member++) {
        uint64_t bytes = slice_of(slices, member).bytes;
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

static void find_parts(struct slices *slices)
{
    struct tti_message_build *build = slices->build;
    for (int rank = 0; rank < build->shape->size; rank++)
        build->owner_of[rank] = build->members.member_of == NULL ? rank : build->members.member_of[rank];
    slices->parts = tti_subtrees_by_owner(build->owner_of, build->shape->size, build->trees);
    for (int i = 0; i < slices->parts; i++)
        if (build->trees[i].owner == build->members.me) slices->own_parts++;
}

static void cut(struct slices *slices, uint64_t largest)
{
    uint64_t chunk = slices->chunk, over = largest % chunk;
    slices->chunks = largest / chunk + (over > (largest < chunk ? 0 : chunk / 16));
    slices->longest = slices->chunks * chunk < largest ? chunk + over : chunk;
}

/* Chooses the chunk: a quarter of a slice, so that some data travel while others are folded; not less than an eighth of
 * message_chunk, and at most what TEMP allows. Two members send and receive all the time anyhow: their chunk is as
 * large as TEMP allows, but not so large that it would be paced (tcp_send.c). As many chunks travel ahead as the caches
 * hold. All members must choose the same, so nothing here depends on a member's own parts. */
static void choose_chunk(struct slices *slices, uint64_t largest)
{
    const struct tti_shape *shape = slices->build->shape;
    uint64_t most = (uint64_t)shape->tuning->message_chunk, chunk = largest / 4;
    uint64_t parts = (uint64_t)slices->parts + 1;
    bool two = slices->build->members.count == 2;
    if (makes_parts(slices->build)) parts += (uint64_t)slices->build->members.count;
    uint64_t room = TEMP_MOST / (2 * AHEAD_LEAST) / parts;
    if (!raw(slices->build)) room = room * shape->element / shape->accumulator;
    if (room < CHUNK_LEAST) room = CHUNK_LEAST;
    if (chunk < most / 8) chunk = most / 8;
    if (two) chunk = most;
    if (chunk > most) chunk = most;
    if (chunk > room) chunk = room;
    if (two && chunk > OF_TWO_MOST) chunk = OF_TWO_MOST;
    chunk = tti_whole_packets(chunk);
    slices->chunk = chunk < 64 ? 64 : chunk / 64 * 64;
    if (slices->chunk > largest) slices->chunk = largest < 64 ? 64 : tti_whole_lines(largest);
    cut(slices, largest);
    uint64_t slot = (parts - 1) * part_room(slices), ahead = TEMP_CACHED / slot / 2;
    slices->ahead = ahead < AHEAD_LEAST ? AHEAD_LEAST : ahead < AHEAD_MOST ? ahead : AHEAD_MOST;
    if (slices->ahead > slices->chunks) slices->ahead = slices->chunks < 1 ? 1 : slices->chunks;
    slices->slots = 2 * slices->ahead;
    if (slices->slots * parts * part_room(slices) > TEMP_MOST + (1 << 20)) slices->slots = slices->ahead;
}

static void lay_out_slots(struct slices *slices)
{
    struct tti_message_build *build = slices->build;
    uint64_t others = (uint64_t)(slices->parts - slices->own_parts), room = part_room(slices);
    slices->sent_parts = others * room;
    slices->sent_result = slices->sent_parts + (makes_parts(build) ? (uint64_t)(build->members.count - 1) * room : 0);
    bool passes = slices->keep == TTI_TO_ROOT && build->members.me != slices->root;
    slices->slot = slices->sent_result + (passes ? tti_whole_lines(slices->longest) : 0);
    slices->begin = tti_temp(build, slices->slots * slices->slot).offset;
}

void tti_build_slices(struct tti_message_build *build, uint64_t offset, uint64_t bytes, enum tti_keep keep, int root)
{
    struct slices slices = {.build = build, .offset = offset, .bytes = bytes, .keep = keep, .root = root};
    find_parts(&slices);
    uint64_t largest = largest_slice(&slices);
    choose_chunk(&slices, largest);
    lay_out_slots(&slices);
    for (uint64_t c = 0; c < slices.ahead; c++) post_contributions(&slices, c);
    for (uint64_t c = 0; c < slices.ahead; c++) send_contributions(&slices, c);
    /* results expected before a fold */
    uint64_t results = slices.slots > slices.ahead ? slices.slots - slices.ahead : 1;
    for (uint64_t c = 0; c < results; c++) {
        post_results(&slices, c);
        if (c + slices.ahead < slices.slots) post_contributions(&slices, c + slices.ahead);
    }
    for (uint64_t c = 0; c < slices.chunks; c++) {
        finish_chunk(&slices, c);
        send_contributions(&slices, c + slices.ahead);
        if (slices.slots > slices.ahead) post_results(&slices, c + results);
        post_contributions(&slices, c + slices.slots);
        if (slices.slots == slices.ahead) post_results(&slices, c + results);
    }
}
