/* SPDX-License-Identifier: Apache-2.0
 *
 * Large all_reduces of many members over messages: recursive halving, then doubling. The number of messages that a
 * member sends grows with the logarithm of the number of members; it sends no more bytes than with owned slices.
 *
 * Members meet along the canonical tree, level by level: at level j a left node of 2^j members meets the right node
 * beside it. Each member of a left node owns a piece of what the node's members contribute; pieces are halved by the
 * bits of the member's number, from the lowest on. Nodes of the same size halve their pieces once more: a member and
 * the one whose number differs in bit j send each other the half that they do not keep. A right node that is smaller
 * has fewer owners, the largest power of two, and passes its pieces on to the left one, cut as these are. At the last
 * level pieces become results; they return on the same paths.
 *
 * Two windows of the vector go side by side, so that one travels while the other is folded. Receives of results are
 * posted first of all, so that no message has to be put aside; in place, their memory must still be read, and they are
 * posted last.
 */
#include "collective/plan/plan_message.h"

#include "base/alloc.h"

enum { LEVELS_MOST = 32, SIDE_BY_SIDE = 2 };

/* Two nodes that meet: members [first, middle) and [middle, last). */
struct meeting {
    int level, width, first, middle, last;
    int owners; /* owners of the right node's piece */
    bool even;
    enum { NO_PART, LEFT, RIGHT } side; /* this member's side */
};

struct piece_window {
    struct tti_window window;
    struct tti_set held;                                  /* the set that is held of the member's piece */
    struct tti_block piece;                               /* the member's piece, as a range of the window */
    uint64_t slots[LEVELS_MOST];                          /* where the contributions of a level arrive */
    uint32_t arrivals[LEVELS_MOST], results[LEVELS_MOST]; /* receives posted up to a level */
    struct tti_part *room;
};

struct halving {
    struct tti_message_build *build;
    struct meeting meetings[LEVELS_MOST]; /* those in which this member has a part, from the lowest */
    int count;
    struct piece_window side[SIDE_BY_SIDE];
    int sides; /* how many of these are in use */
};

static int largest_power(int count)
{
    int power = 1;
    while (power * 2 <= count) power *= 2;
    return power;
}

static struct meeting meeting_at(const struct tti_message_build *build, int level)
{
    int me = build->members.me, count = build->members.count, width = 1 << level, first = me / (2 * width) * 2 * width;
    struct meeting meeting = {.level = level, .width = width, .first = first, .middle = first + width};
    if (meeting.middle >= count) return meeting;
    meeting.last = count - first < 2 * width ? count : first + 2 * width;
    meeting.owners = largest_power(meeting.last - meeting.middle);
    meeting.even = meeting.owners == width;
    meeting.side = me < meeting.middle ? LEFT : me - meeting.middle < meeting.owners ? RIGHT : NO_PART;
    return meeting;
}

static void find_meetings(struct halving *halving)
{
    for (int level = 0; 1 << level < halving->build->members.count; level++) {
        struct meeting meeting = meeting_at(halving->build, level);
        if (meeting.side != NO_PART) halving->meetings[halving->count++] = meeting;
        if (meeting.side == RIGHT && !meeting.even) break; /* others go on with its contributions */
    }
}

/* Returns what is left of a window after so many halvings, by the bits of the member's number. Blocks are whole cache
 * lines, except for the last. */
static struct tti_block cut(const struct piece_window *side, int member, int halvings)
{
    struct tti_block block = {0, side->window.bytes};
    for (int i = 0; i < halvings; i++) {
        uint64_t low = tti_whole_lines(block.bytes / 2);
        if (low > block.bytes) low = block.bytes;
        block.offset += member >> i & 1 ? low : 0;
        block.bytes = member >> i & 1 ? block.bytes - low : low;
    }
    return block;
}

/* Returns the block that the member owns after the two nodes have met. */
static struct tti_block kept(const struct piece_window *side, const struct meeting *meeting, int member)
{
    return cut(side, member, meeting->even ? meeting->level + 1 : meeting->level);
}

static int partner_of(const struct tti_message_build *build, const struct meeting *meeting)
{
    int me = build->members.me;
    return meeting->even ? me ^ meeting->width : meeting->middle + (me - meeting->first) % meeting->owners;
}

static struct tti_member_span span_of(const struct meeting *meeting, bool left, bool right)
{
    return (struct tti_member_span){left ? meeting->first : meeting->middle, right ? meeting->last : meeting->middle, 0,
                                    0};
}

/* ---- Contributions --------------------------------------------------------------------------------------------- */

static bool combines(const struct meeting *meeting)
{
    return meeting->even || meeting->side == LEFT;
}

static struct tti_set other_set(const struct halving *halving, const struct meeting *meeting)
{
    bool left = meeting->side == RIGHT;
    return tti_set_of(halving->build, span_of(meeting, left, !left), halving->build->arrived);
}

static void post_contribution(struct halving *halving, struct piece_window *side, int index)
{
    struct tti_message_build *build = halving->build;
    const struct meeting *meeting = &halving->meetings[index];
    if (!combines(meeting)) return;
    uint64_t bytes = kept(side, meeting, build->members.me).bytes;
    uint64_t total = tti_set_bytes(build, other_set(halving, meeting), bytes);
    struct tti_region slot = tti_temp(build, total);
    side->slots[index] = slot.offset;
    if (total > 0) tti_post_recv(build, partner_of(build, meeting), slot, total);
    side->arrivals[index] = build->received;
}

/* Returns, in `room`, that part of the own piece's set which lies at `block` of the window. */
static struct tti_set within(const struct tti_message_build *build, const struct piece_window *side,
                             struct tti_block block, struct tti_part *room)
{
    struct tti_set set = {room, side->held.count};
    for (int i = 0; i < set.count; i++) {
        room[i] = side->held.parts[i];
        room[i].at.offset += tti_part_bytes(build, &room[i], block.offset - side->piece.offset);
    }
    return set;
}

static void send_block(struct halving *halving, struct piece_window *side, int to, struct tti_block block)
{
    struct tti_message_build *build = halving->build;
    if (block.bytes > 0) tti_set_send(build, within(build, side, block, build->all), to, block.bytes);
}

static void send_contributions(struct halving *halving, struct piece_window *side, int index)
{
    if (index == halving->count) return;
    const struct meeting *meeting = &halving->meetings[index];
    int me = halving->build->members.me;
    if (meeting->even) send_block(halving, side, me ^ meeting->width, kept(side, meeting, me ^ meeting->width));
    if (combines(meeting)) return;
    for (int to = meeting->first + me - meeting->middle; to < meeting->middle; to += meeting->owners)
        send_block(halving, side, to, kept(side, meeting, to));
}

static struct tti_region result_at(const struct piece_window *side, struct tti_block block)
{
    struct tti_region region = side->window.target;
    region.offset += block.offset;
    return region;
}

static void combine(struct halving *halving, struct piece_window *side, int index)
{
    struct tti_message_build *build = halving->build;
    const struct meeting *meeting = &halving->meetings[index];
    if (!combines(meeting)) return;
    struct tti_block block = kept(side, meeting, build->members.me);
    tti_await(build, side->arrivals[index]);
    struct tti_set mine = within(build, side, block, side->room), other = other_set(halving, meeting);
    tti_set_place(build, other, tti_own(build, TTI_TEMP, side->slots[index]), block.bytes);
    struct tti_set both = tti_set_join(mine, other, build->all);
    side->piece = block;
    if (index + 1 < halving->count) {
        side->held = tti_set_fold(build, both, span_of(meeting, true, true), block.bytes, side->room);
        return;
    }
    tti_set_finish(build, both, result_at(side, block), build->shape->size, block.bytes);
}

/* ---- Results --------------------------------------------------------------------------------------------------- */

static void post_result(struct halving *halving, struct piece_window *side, int from, struct tti_block block)
{
    if (block.bytes > 0) tti_post_recv(halving->build, from, result_at(side, block), block.bytes);
}

static void post_results(struct halving *halving, struct piece_window *side, int index)
{
    const struct meeting *meeting = &halving->meetings[index];
    int me = halving->build->members.me;
    if (meeting->even) post_result(halving, side, me ^ meeting->width, kept(side, meeting, me ^ meeting->width));
    for (int from = meeting->first + me - meeting->middle; !combines(meeting) && from < meeting->middle;
         from += meeting->owners)
        post_result(halving, side, from, kept(side, meeting, from));
    side->results[index] = halving->build->received;
}

static void post_all_results(struct halving *halving)
{
    for (int i = halving->count; i-- > 0;)
        for (int s = 0; s < halving->sides; s++) post_results(halving, &halving->side[s], i);
}

static void send_results(struct halving *halving, struct piece_window *side, int index)
{
    const struct meeting *meeting = &halving->meetings[index];
    if (!combines(meeting)) return;
    struct tti_block block = kept(side, meeting, halving->build->members.me);
    if (block.bytes > 0)
        tti_post_send(halving->build, partner_of(halving->build, meeting), result_at(side, block), block.bytes);
}

/* ---- From start to end ----------------------------------------------------------------------------------------- */

static void begin(struct halving *halving, struct piece_window *side)
{
    const struct tti_window *window = &side->window;
    side->piece = (struct tti_block){0, window->bytes};
    side->held = tti_set_own(halving->build, window->offset, window->bytes, true, side->room);
    send_contributions(halving, side, 0);
}

static void reduce(struct halving *halving)
{
    for (int i = 0; i < halving->count; i++)
        for (int s = 0; s < halving->sides; s++) post_contribution(halving, &halving->side[s], i);
    if (!halving->build->shape->in_place) post_all_results(halving);
    for (int s = 0; s < halving->sides; s++) begin(halving, &halving->side[s]);
    for (int i = 0; i < halving->count; i++)
        for (int s = 0; s < halving->sides; s++) {
            combine(halving, &halving->side[s], i);
            if (combines(&halving->meetings[i])) send_contributions(halving, &halving->side[s], i + 1);
        }
}

static void gather(struct halving *halving)
{
    if (halving->build->shape->in_place) post_all_results(halving);
    for (int i = halving->count; i-- > 0;)
        for (int s = 0; s < halving->sides; s++) {
            if (i + 1 < halving->count) tti_await(halving->build, halving->side[s].results[i + 1]);
            send_results(halving, &halving->side[s], i);
        }
    tti_await(halving->build, halving->build->received);
}

/* Returns the bytes of a window. The last pieces must be worth a message each; all members choose the same. */
static uint64_t window_bytes(const struct tti_message_build *build, uint64_t bytes)
{
    uint64_t each = (uint64_t)build->shape->tuning->message_chunk / 16, most = each * (uint64_t)build->members.count;
    if (most < 4 * (uint64_t)build->shape->tuning->message_chunk)
        most = 4 * (uint64_t)build->shape->tuning->message_chunk;
    if (bytes <= most * SIDE_BY_SIDE) most = (bytes + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE;
    return tti_whole_lines(most);
}

void tti_build_halving(struct tti_message_build *build, uint64_t offset, uint64_t bytes)
{
    struct halving halving = {.build = build};
    uint64_t most = window_bytes(build, bytes), begin_temp = build->temp;
    struct tti_part *room = tti_malloc(SIDE_BY_SIDE * (size_t)build->shape->size, sizeof *room);
    build->plan->failed |= room == NULL;
    find_meetings(&halving);
    for (uint64_t done = 0; done < bytes && room != NULL;) {
        build->temp = begin_temp;
        tti_drain(build, build->sent);
        for (halving.sides = 0; halving.sides < SIDE_BY_SIDE && done < bytes; halving.sides++) {
            uint64_t left = bytes - done, each = left < most ? left : most;
            halving.side[halving.sides] = (struct piece_window){
                .window = {.offset = offset + done, .bytes = each, .target = tti_result_at(build, offset + done)},
                .room = room + halving.sides * build->shape->size};
            done += each;
        }
        reduce(&halving);
        gather(&halving);
    }
    tti_free(room);
}
