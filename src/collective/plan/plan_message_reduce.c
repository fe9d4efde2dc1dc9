/* SPDX-License-Identifier: Apache-2.0
 *
 * Small reductions over messages: exchanges of sets of subtrees (plan_message.h), each as a pair of functions, one that
 * posts the receives of a window and one that does the rest. Large ones: plan_message_slices.c.
 *
 *   flat      every member sends its contribution to the root, or to all
 *   doubling  recursive doubling: in round j a member exchanges all it holds with the one whose number differs in bit
 *             j. Members past the largest power of two hand theirs to one before it first, and get the result from it;
 *             with message_paired those past half of that.
 *   tree      a binomial tree of members, in which the root keeps its own place
 *   scanning  recursive doubling, in which a rank keeps the subtrees of lower ranks that it receives
 */
#include "collective/plan/plan_message.h"

/* ---- Receives of a window -------------------------------------------------------------------------------------- */

static void post_set(struct tti_message_build *build, struct tti_window *window, int from,
                     struct tti_member_span members)
{
    struct tti_set set = tti_set_of(build, members, build->arrived);
    uint64_t bytes = tti_set_bytes(build, set, window->bytes);
    struct tti_region slot = tti_temp(build, bytes);
    window->slots[build->received - window->base] = slot.offset;
    tti_post_recv(build, from, slot, bytes);
}

/* Waits for the window's next set, whose number is `*next`, and returns it. */
static struct tti_set take_set(struct tti_message_build *build, const struct tti_window *window, uint32_t *next,
                               struct tti_member_span members)
{
    struct tti_set set = tti_set_of(build, members, build->arrived);
    tti_set_place(build, set, tti_own(build, TTI_TEMP, window->slots[*next]), window->bytes);
    tti_await(build, window->base + ++*next);
    return set;
}

static struct tti_member_span one_member(int member)
{
    return (struct tti_member_span){member, member + 1, 0, 0};
}

/* ---- Flat ------------------------------------------------------------------------------------------------------ */

static bool gets_result(const struct tti_message_build *build, const struct tti_window *window)
{
    return window->root == TTI_ALL || window->root == build->members.me;
}

static void post_flat(struct tti_message_build *build, struct tti_window *window)
{
    int count = build->members.count, me = build->members.me;
    for (int k = 1; k < count && gets_result(build, window); k++)
        post_set(build, window, (me - k + count) % count, one_member((me - k + count) % count));
}

static void run_flat(struct tti_message_build *build, struct tti_window *window)
{
    int count = build->members.count, me = build->members.me;
    struct tti_part *rooms[] = {build->held, build->all};
    struct tti_set held = tti_set_own(build, window->offset, window->bytes, count > 1, rooms[0]);
    for (int k = 1; k < count; k++) {
        int to = (me + k) % count;
        if (window->root == TTI_ALL || window->root == to) tti_set_send(build, held, to, window->bytes);
    }
    if (!gets_result(build, window)) return;
    uint32_t next = 0;
    for (int k = 1; k < count; k++) {
        struct tti_set set = take_set(build, window, &next, one_member((me - k + count) % count));
        held = tti_set_join(held, set, rooms[k % 2]);
    }
    tti_set_finish(build, held, window->target, build->shape->size, window->bytes);
}

static const struct tti_exchange flat = {post_flat, run_flat};

/* ---- Recursive doubling ---------------------------------------------------------------------------------------- */

/* Returns how many members double: a power of two, and not less than half of all. */
static int doublers(const struct tti_message_build *build)
{
    int power = 1;
    while (power * 2 <= tti_groups(build)) power *= 2;
    return power * 2 < build->members.count ? power * 2 : power;
}

/* Returns the members whose contributions a member holds before round j. */
static struct tti_member_span held_by(const struct tti_message_build *build, int member, int round)
{
    int count = build->members.count, power = doublers(build), width = 1 << round;
    int first = member / width * width, also_last = power + first + width;
    if (also_last > count) also_last = count;
    return (struct tti_member_span){first, first + width, power + first, also_last};
}

/* Returns the part of the result that a member gets: all of it, or its block of a reduce_scatter. */
static struct tti_block result_block(const struct tti_message_build *build, const struct tti_window *window, int member)
{
    if (!tti_shape_splits(build->shape)) return (struct tti_block){0, window->bytes};
    struct tti_flow flow = tti_reduce_block(build->shape, member);
    return (struct tti_block){flow.source, flow.bytes};
}

/* Returns true if a member's first message is its own contribution, which need not wait for the window before. */
static bool sends_at_once(const struct tti_message_build *build)
{
    int count = build->members.count, me = build->members.me, power = doublers(build);
    return power > 1 && me + power >= count && me < power && !build->shape->scaled;
}

static void post_doubling(struct tti_message_build *build, struct tti_window *window)
{
    int count = build->members.count, me = build->members.me, power = doublers(build);
    if (me >= power) return;
    if (me + power < count) post_set(build, window, me + power, one_member(me + power));
    for (int round = 0; 1 << round < power; round++)
        post_set(build, window, me ^ 1 << round, held_by(build, me ^ 1 << round, round));
    if (!sends_at_once(build)) return;
    struct tti_set own = tti_set_own(build, window->offset, window->bytes, true, build->held);
    tti_set_send(build, own, me ^ 1, window->bytes);
}

static void send_to_extra(struct tti_message_build *build, const struct tti_window *window)
{
    int extra = build->members.me + doublers(build);
    if (extra >= build->members.count) return;
    struct tti_block block = result_block(build, window, extra);
    struct tti_region source = window->target;
    source.offset += block.offset;
    tti_post_send(build, extra, source, block.bytes);
}

static void run_doubling(struct tti_message_build *build, struct tti_window *window)
{
    int count = build->members.count, me = build->members.me, power = doublers(build);
    uint32_t next = 0;
    struct tti_set held = tti_set_own(build, window->offset, window->bytes, count > 1, build->held);
    if (me >= power) {
        tti_set_send(build, held, me - power, window->bytes);
        tti_post_recv(build, me - power, window->target, result_block(build, window, me).bytes);
        return;
    }
    if (me + power < count) {
        struct tti_set both = tti_set_join(held, take_set(build, window, &next, one_member(me + power)), build->all);
        held = tti_set_fold(build, both, held_by(build, me, 0), window->bytes, build->held);
    }
    for (int round = 0; 1 << round < power; round++) {
        int peer = me ^ 1 << round;
        if (round > 0 || !sends_at_once(build)) tti_set_send(build, held, peer, window->bytes);
        struct tti_set both = tti_set_join(held, take_set(build, window, &next, held_by(build, peer, round)),
                                           build->all);
        if (2 << round < power)
            held = tti_set_fold(build, both, held_by(build, me, round + 1), window->bytes, build->held);
        else
            held = both;
    }
    tti_set_finish(build, held, window->target, build->shape->size, window->bytes);
    send_to_extra(build, window);
}

static const struct tti_exchange doubling = {post_doubling, run_doubling};

/* ---- Tree ------------------------------------------------------------------------------------------------------ */

enum { NO_RANK = -1 };

/* The members below one node, and the one that holds their contributions. */
struct node {
    struct tti_member_span span;
    int holder; /* NO_RANK: there is no such node */
};

static struct node node_of(const struct tti_message_build *build, int root, int place, int level)
{
    int count = build->members.count, first = place >> level << level, last = first + (1 << level);
    if (first >= count) return (struct node){.holder = NO_RANK};
    if (last > count) last = count;
    return (struct node){{first, last, 0, 0}, root >= first && root < last ? root : first};
}

/* The nodes of one level in which this member has a part. */
struct meeting {
    struct node mine, sibling, parent;
};

static struct meeting meeting_at(const struct tti_message_build *build, int root, int level)
{
    int me = build->members.me, place = me >> level << level;
    return (struct meeting){node_of(build, root, place, level), node_of(build, root, place ^ 1 << level, level),
                            node_of(build, root, place, level + 1)};
}

static void post_tree(struct tti_message_build *build, struct tti_window *window)
{
    int me = build->members.me;
    for (int level = 0; 1 << level < build->members.count; level++) {
        struct meeting meeting = meeting_at(build, window->root, level);
        if (meeting.mine.holder != me || meeting.parent.holder != me) return;
        if (meeting.sibling.holder != NO_RANK) post_set(build, window, meeting.sibling.holder, meeting.sibling.span);
    }
}

static void run_tree(struct tti_message_build *build, struct tti_window *window)
{
    int count = build->members.count, me = build->members.me;
    uint32_t next = 0;
    struct tti_set held = tti_set_own(build, window->offset, window->bytes, count > 1 && me != window->root,
                                      build->held);
    for (int level = 0; 1 << level < count; level++) {
        struct meeting meeting = meeting_at(build, window->root, level);
        if (meeting.parent.holder != me) {
            tti_set_send(build, held, meeting.parent.holder, window->bytes);
            return;
        }
        if (meeting.sibling.holder == NO_RANK) continue;
        struct tti_set set = take_set(build, window, &next, meeting.sibling.span);
        held = tti_set_join(held, set, build->all);
        if (2 << level < count) held = tti_set_fold(build, held, meeting.parent.span, window->bytes, build->held);
    }
    tti_set_finish(build, held, window->target, build->shape->size, window->bytes);
}

static const struct tti_exchange tree = {post_tree, run_tree};

/* ---- Scanning -------------------------------------------------------------------------------------------------- */

/* In round j the ranks of two neighbouring nodes of 2^j ranks exchange the nodes' contributions, if a rank will use
 * them: the right ones always use them, the left ones to pass on the two together. The data that a rank needs lie left
 * of it and are complete. */

static bool passes_on(int rank, int round, int size);

/* Returns true if the rank sends its node of this round to its partner. */
static bool sends_at(int rank, int round, int size)
{
    int width = 1 << round, partner = rank ^ width;
    if (partner > rank) return partner < size;
    bool complete = (rank / width + 1) * width <= size;
    return complete && passes_on(partner, round + 1, size);
}

/* Returns true if the rank sends any node from this round on. */
static bool passes_on(int rank, int round, int size)
{
    for (; 1 << round < size; round++)
        if (sends_at(rank, round, size)) return true;
    return false;
}

static struct tti_part node_part(const struct tti_message_build *build, int rank, int round)
{
    int width = 1 << round;
    return (struct tti_part){
        .first = rank / width * width, .ranks = width, .partial = round > 0 || build->shape->scaled};
}

static void post_scanning(struct tti_message_build *build, struct tti_window *window)
{
    int me = build->members.me, size = build->shape->size;
    for (int round = 0; 1 << round < size; round++) {
        int partner = me ^ 1 << round;
        if (partner >= size || !sends_at(partner, round, size)) continue;
        struct tti_part part = node_part(build, partner, round);
        uint64_t bytes = tti_part_bytes(build, &part, window->bytes);
        struct tti_region slot = tti_temp(build, bytes);
        window->slots[build->received - window->base] = slot.offset;
        tti_post_recv(build, partner, slot, bytes);
    }
}

/* Folds this round's node and its sibling into the node of the next round. */
static struct tti_part fold_pair(struct tti_message_build *build, struct tti_part mine, struct tti_part other,
                                 uint64_t bytes)
{
    struct tti_part pair[2] = {mine, other};
    if (other.first < mine.first) pair[0] = other, pair[1] = mine;
    struct tti_part both = {.first = pair[0].first, .ranks = 2 * mine.ranks, .partial = true};
    both.at = tti_temp(build, tti_part_bytes(build, &both, bytes));
    tti_add_fold(build->plan, both.at, pair, 2, 0, bytes);
    return both;
}

static void run_scanning(struct tti_message_build *build, struct tti_window *window)
{
    int me = build->members.me, size = build->shape->size, used = 0;
    bool inclusive = build->shape->kind == TTI_SCAN;
    struct tti_part lower[sizeof(int) * 8 + 1]; /* the parts of the result, from the right */
    struct tti_part mine =
        tti_set_own(build, window->offset, window->bytes, passes_on(me, 0, size), build->held).parts[0];
    uint32_t next = 0;
    if (inclusive) lower[used++] = mine;
    for (int round = 0; 1 << round < size; round++) {
        int partner = me ^ 1 << round;
        if (partner >= size) continue;
        struct tti_part other = node_part(build, partner, round);
        if (sends_at(me, round, size))
            tti_post_send(build, partner, mine.at, tti_part_bytes(build, &mine, window->bytes));
        if (!sends_at(partner, round, size)) continue;
        other.at = tti_own(build, TTI_TEMP, window->slots[next]);
        tti_await(build, window->base + ++next);
        if (partner < me) lower[used++] = other;
        if (passes_on(me, round + 1, size)) mine = fold_pair(build, mine, other, window->bytes);
    }
    struct tti_set held = {build->all, used};
    for (int i = 0; i < used; i++) held.parts[i] = lower[used - 1 - i];
    if (used > 0) tti_set_finish(build, held, window->target, inclusive ? me + 1 : me, window->bytes);
}

static const struct tti_exchange scanning = {post_scanning, run_scanning};

/* ---- Which one ------------------------------------------------------------------------------------------------- */

static int rounds_of(int members)
{
    int rounds = 0;
    while (1 << rounds < members) rounds++;
    return rounds;
}

/* Returns the bytes of an exchange's windows: as many elements as a quarter of the chunk has, so that some travel while
 * others are folded; fewer if a window holds many sets. */
static uint64_t window_bytes(const struct tti_message_build *build, int sets)
{
    const struct tti_shape *shape = build->shape;
    uint64_t quarter = (uint64_t)shape->tuning->message_chunk / 4;
    uint64_t bytes = quarter * shape->element / shape->accumulator / (uint64_t)sets / 64 * 64;
    return bytes < 64 ? 64 : bytes;
}

static struct tti_window window_over(const struct tti_message_build *build, uint64_t offset, uint64_t bytes, int root)
{
    return (struct tti_window){.offset = offset, .bytes = bytes, .target = tti_result_at(build, offset), .root = root};
}

/* Two members send as many bytes by doubling as by slices, and wait for each other once; more members send more bytes
 * by doubling. */
enum { OF_TWO = 16, OF_HALVING = 32 };

static bool halves(const struct tti_message_build *build)
{
    const tutti_tuning *tuning = build->shape->tuning;
    return build->members.count >= (tuning->message_paired != 0 ? 4 : tuning->message_halving);
}

/* Returns up to how many bytes, of all rounds together, doubling is used. It sends everything in each round; owned
 * slices take two messages to each member, halving takes twice as many rounds. */
static uint64_t doubles_up_to(const struct tti_message_build *build)
{
    uint64_t most = (uint64_t)build->shape->tuning->message_doubling, count = (uint64_t)build->members.count;
    uint64_t paired = (uint64_t)build->shape->tuning->message_paired;
    uint64_t of_many = most / OF_TWO * (count + (count > 3 ? 4 : 2)) / 4;
    if (count > 2 && paired > of_many) return paired;
    if (halves(build)) return most / OF_HALVING * (uint64_t)rounds_of(build->members.count);
    return count == 2 && !build->combined && !build->shape->scaled ? most : of_many;
}

void tti_build_message_all_reduce(struct tti_message_build *build, uint64_t offset, uint64_t bytes)
{
    const struct tti_shape *shape = build->shape;
    int count = build->members.count, rounds = rounds_of(count);
    uint64_t travels = bytes / shape->element * shape->accumulator * (uint64_t)rounds;
    struct tti_window whole = window_over(build, offset, bytes, TTI_ALL);
    uint64_t most = window_bytes(build, 1 + rounds / 2);
    if (count == 2) most *= 4; /* two members pass nothing on, and wait for each other at each window */
    if (travels > doubles_up_to(build) && halves(build))
        tti_build_halving(build, offset, bytes);
    else if (travels > doubles_up_to(build))
        tti_build_slices(build, offset, bytes, TTI_TO_ALL, TTI_ALL);
    else /* three members take one round and as many messages as by doubling */
        tti_exchange_all(build, count == 3 ? &flat : &doubling, whole, most);
}

void tti_build_message_reduce(struct tti_message_build *build, uint64_t offset, uint64_t bytes, int root)
{
    const tutti_tuning *tuning = build->shape->tuning;
    int count = build->members.count;
    struct tti_window whole = window_over(build, offset, bytes, root);
    if (bytes <= (uint64_t)tuning->message_tree)
        tti_exchange_all(build, count <= tuning->message_flat ? &flat : &tree, whole, UINT64_MAX);
    else if (count <= 2)
        tti_exchange_all(build, &tree, whole, window_bytes(build, 1));
    else
        tti_build_slices(build, offset, bytes, TTI_TO_ROOT, root);
}

/* ---- Reduce-scatter by halving --------------------------------------------------------------------------------- */

/* For a power of two of ranks, which meet along the canonical tree in pairs: each sends its contributions to the blocks
 * that the other one keeps, so that every level halves them. This sends as many bytes as going straight to the blocks'
 * owners, in fewer messages. Returns true if the rank keeps the block at this level. */

static bool keeps(int rank, int width, int block)
{
    return ((rank ^ block) & width) == 0;
}

/* Returns the bytes of a contribution of `width` ranks to a block. */
static uint64_t contribution_bytes(const struct tti_message_build *build, int width, int block)
{
    struct tti_part part = {.partial = width > 1};
    return tti_part_bytes(build, &part, tti_reduce_block(build->shape, block).bytes);
}

/* Returns the bytes of all that a rank gets at this level. */
static uint64_t level_bytes(const struct tti_message_build *build, int rank, int width)
{
    uint64_t bytes = 0;
    for (int block = rank % width; block < build->shape->size; block += width)
        if (keeps(rank, width, block)) bytes += contribution_bytes(build, width, block);
    return bytes;
}

static void send_half(struct tti_message_build *build, const struct tti_part *held, int width)
{
    int partner = build->shape->rank ^ width;
    uint64_t total = level_bytes(build, partner, width);
    struct tti_region packed = tti_temp(build, total), at = packed;
    for (int block = partner % width; block < build->shape->size; block += width) {
        if (!keeps(partner, width, block)) continue;
        uint64_t bytes = contribution_bytes(build, width, block);
        tti_add_copy(build->plan, at, held[block].at, bytes, TTI_CACHED);
        at.offset += bytes;
    }
    tti_post_send(build, partner, packed, total);
}

/* Folds the half that has arrived, from `at` on, into the held parts. */
static void fold_half(struct tti_message_build *build, struct tti_part *held, int width, struct tti_region at)
{
    int me = build->shape->rank, size = build->shape->size, first = (me ^ width) / width * width;
    for (int block = me % width; block < size; block += width) {
        if (!keeps(me, width, block)) continue;
        uint64_t bytes = tti_reduce_block(build->shape, block).bytes;
        struct tti_part other = {.at = at, .first = first, .ranks = width, .partial = width > 1}, mine = held[block];
        at.offset += contribution_bytes(build, width, block);
        if (2 * width < size) {
            held[block] = fold_pair(build, mine, other, bytes);
        } else {
            struct tti_part pair[2] = {first < mine.first ? other : mine, first < mine.first ? mine : other};
            tti_set_finish(build, (struct tti_set){pair, 2}, tti_own(build, TTI_OUT, 0), size, bytes);
        }
    }
}

static void reduce_scatter_by_halving(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    for (int block = 0; block < shape->size; block++)
        build->held[block] = (struct tti_part){
            .at = tti_own(build, TTI_IN, tti_reduce_block(shape, block).source), .first = shape->rank, .ranks = 1};
    for (int width = 1; width < shape->size; width *= 2) {
        uint64_t bytes = level_bytes(build, shape->rank, width);
        struct tti_region at = tti_temp(build, bytes);
        tti_post_recv(build, shape->rank ^ width, at, bytes);
        send_half(build, build->held, width);
        tti_await(build, build->received);
        fold_half(build, build->held, width, at);
    }
}

/* Returns true for small blocks: a message costs more than to pass on a small block, and still more if ranks share
 * cores. */
static bool scatters_by_halving(const struct tti_shape *shape, uint64_t bytes)
{
    bool power = shape->size >= 4 && (shape->size & (shape->size - 1)) == 0;
    uint64_t partials = bytes / shape->element * shape->accumulator;
    bool small = partials <= (uint64_t)shape->tuning->message_bruck * 2 * (uint64_t)shape->size;
    return power && !shape->scaled && (small || bytes <= (uint64_t)shape->tuning->message_paired / 4);
}

/* Small blocks for many ranks: everything is reduced by doubling, and each rank takes its own block. */
static void reduce_scatter(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    uint64_t bytes = tti_shape_bytes(shape);
    int count = build->members.count, rounds = rounds_of(count);
    uint64_t travels = bytes / shape->element * shape->accumulator * (uint64_t)rounds;
    if (count <= 3 || travels > (uint64_t)shape->tuning->message_doubling / OF_TWO * (uint64_t)count / 32) {
        if (scatters_by_halving(shape, bytes))
            reduce_scatter_by_halving(build);
        else
            tti_build_slices(build, 0, bytes, TTI_KEEP, TTI_ALL);
        return;
    }
    bool extra = build->members.me >= doublers(build);
    struct tti_window whole = {.bytes = bytes, .root = TTI_ALL};
    whole.target = extra ? tti_own(build, TTI_OUT, 0) : tti_temp(build, bytes);
    tti_exchange_all(build, &doubling, whole, UINT64_MAX);
    if (extra) return;
    struct tti_flow block = tti_reduce_block(shape, build->members.me);
    struct tti_region source = whole.target;
    source.offset += block.source;
    if (shape->in_place) tti_drain(build, build->sent);
    tti_add_copy(build->plan, tti_own(build, TTI_OUT, 0), source, block.bytes, TTI_CACHED);
}

void tti_build_message_reduction(struct tti_message_build *build)
{
    const struct tti_shape *shape = build->shape;
    uint64_t bytes = shape->count * shape->element;
    switch (shape->kind) {
    case TTI_ALL_REDUCE: tti_build_message_all_reduce(build, 0, bytes); break;
    case TTI_REDUCE: tti_build_message_reduce(build, 0, bytes, shape->root); break;
    case TTI_SCAN:
    case TTI_EXSCAN:
        tti_exchange_all(build, &scanning, window_over(build, 0, bytes, TTI_ALL),
                         window_bytes(build, 1 + rounds_of(shape->size) / 2));
        break;
    default: reduce_scatter(build); break;
    }
}
