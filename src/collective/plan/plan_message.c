/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/plan/plan_message.h"

#include "base/alloc.h"

enum { ROUNDS_MOST = 64, OWN_LARGE = 4 << 20, OWN_PIECE = 128 << 10 };

/* ---- Begin and end --------------------------------------------------------------------------------------------- */

bool tti_message_begin(struct tti_message_build *build, struct tti_plan *plan, const struct tti_shape *shape,
                       struct tti_members members)
{
    size_t size = (size_t)shape->size, slots = (size_t)members.count + ROUNDS_MOST;
    *build = (struct tti_message_build){.plan = plan, .shape = shape, .members = members};
    build->result = tti_own(build, TTI_OUT, 0);
    build->owner_of = tti_malloc(size, sizeof *build->owner_of);
    build->trees = tti_malloc(size, sizeof *build->trees);
    build->held = tti_malloc(3 * size, sizeof *build->held);
    build->slots[0] = tti_malloc(3 * slots, sizeof **build->slots);
    if (build->owner_of != NULL && build->trees != NULL && build->held != NULL && build->slots[0] != NULL) {
        build->arrived = build->held + size;
        build->all = build->arrived + size;
        build->slots[1] = build->slots[0] + slots;
        build->slots[2] = build->slots[1] + slots;
        return true;
    }
    plan->failed = true;
    tti_message_end(build);
    return false;
}

void tti_message_end(struct tti_message_build *build)
{
    tti_await(build, build->received);
    tti_drain(build, build->sent);
    tti_free(build->owner_of);
    tti_free(build->trees);
    tti_free(build->held);
    tti_free(build->slots[0]);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

void tti_post_send(struct tti_message_build *build, int to, struct tti_region source, uint64_t bytes)
{
    tti_add_message(build->plan, TTI_STEP_SEND, tti_member_rank(build, to), source, bytes);
    build->sent++;
}

void tti_post_recv(struct tti_message_build *build, int from, struct tti_region target, uint64_t bytes)
{
    tti_add_message(build->plan, TTI_STEP_RECV, tti_member_rank(build, from), target, bytes);
    build->received++;
}

void tti_await(struct tti_message_build *build, uint32_t receives)
{
    if (receives <= build->awaited) return;
    tti_add_settle(build->plan, TTI_STEP_AWAIT, receives);
    build->awaited = receives;
}

void tti_drain(struct tti_message_build *build, uint32_t sends)
{
    if (sends <= build->drained) return;
    tti_add_settle(build->plan, TTI_STEP_DRAIN, sends);
    build->drained = sends;
}

struct tti_region tti_temp(struct tti_message_build *build, uint64_t bytes)
{
    struct tti_region region = tti_own(build, TTI_TEMP, build->temp);
    build->temp += tti_whole_lines(bytes);
    if (build->temp > build->plan->temp_bytes) build->plan->temp_bytes = build->temp;
    return region;
}

/* Large data are copied past the caches, which hold messages on their way, and in pieces, between which the transport
 * has its turn. */
void tti_copy_own(struct tti_message_build *build, uint64_t out, uint64_t in, uint64_t bytes)
{
    const bool large = bytes >= OWN_LARGE;
    const uint64_t piece = !large ? bytes : bytes / 1024 > OWN_PIECE ? bytes / 1024 / 64 * 64 : OWN_PIECE;
    for (uint64_t at = 0; at < bytes; at += piece)
        tti_add_copy(build->plan, tti_own(build, TTI_OUT, out + at), tti_own(build, TTI_IN, in + at),
                     bytes - at < piece ? bytes - at : piece, large ? TTI_STREAMED : TTI_CACHED);
}

uint64_t tti_chunk_for(const struct tti_message_build *build, uint64_t bytes)
{
    uint64_t most = (uint64_t)build->shape->tuning->message_chunk;
    uint64_t chunk = bytes / 4 / (uint64_t)build->members.count;
    if (chunk < most / 8) chunk = most / 8;
    if (chunk > most) chunk = most;
    if (chunk < bytes / 1024) chunk = bytes / 1024; /* the number of steps is bounded, too */
    chunk = tti_whole_packets(chunk);
    return chunk < 64 ? 64 : chunk / 64 * 64;
}

/* ---- Sets of subtrees ------------------------------------------------------------------------------------------ */

static bool within(int member, struct tti_member_span span)
{
    return (member >= span.first && member < span.last) || (member >= span.also_first && member < span.also_last);
}

/* Stores in `trees` the subtrees of members that are ranks, and the subtrees of their hosts' ranks. */
static int trees_of_ranks(struct tti_message_build *build, struct tti_member_span span)
{
    int size = build->shape->size;
    if (span.also_first == span.last && span.also_last > span.also_first)
        return tti_subtrees_of_range(span.first, span.also_last, size, build->trees);
    int used = tti_subtrees_of_range(span.first, span.last, size, build->trees);
    return used + tti_subtrees_of_range(span.also_first, span.also_last, size, build->trees + used);
}

/* Returns the first rank of a member, for hosts whose ranks lie one after the other. */
static int first_rank(const struct tti_message_build *build, int member)
{
    int low = 0, high = build->shape->size;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (build->members.member_of[middle] < member)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int trees_of_hosts(struct tti_message_build *build, struct tti_member_span span)
{
    if (build->members.side_by_side)
        return trees_of_ranks(
            build, (struct tti_member_span){first_rank(build, span.first), first_rank(build, span.last),
                                            first_rank(build, span.also_first), first_rank(build, span.also_last)});
    int size = build->shape->size;
    for (int rank = 0; rank < size; rank++)
        build->owner_of[rank] = within(build->members.member_of[rank], span) ? 0 : -1;
    return tti_subtrees_by_owner(build->owner_of, size, build->trees);
}

struct tti_set tti_set_of(struct tti_message_build *build, struct tti_member_span members, struct tti_part *room)
{
    bool ranks = build->members.member_of == NULL;
    struct tti_set set = {room, ranks ? trees_of_ranks(build, members) : trees_of_hosts(build, members)};
    for (int i = 0; i < set.count; i++)
        room[i] = (struct tti_part){.first = build->trees[i].first, .ranks = build->trees[i].ranks, .partial = true};
    bool raw = !build->combined && !build->shape->scaled;
    if (raw && set.count == 1 && room[0].ranks == 1) room[0].partial = false;
    return set;
}

uint64_t tti_part_bytes(const struct tti_message_build *build, const struct tti_part *part, uint64_t bytes)
{
    return part->partial ? bytes / build->shape->element * build->shape->accumulator : bytes;
}

uint64_t tti_set_bytes(const struct tti_message_build *build, struct tti_set set, uint64_t bytes)
{
    uint64_t total = 0;
    for (int i = 0; i < set.count; i++) total += tti_part_bytes(build, &set.parts[i], bytes);
    return total;
}

void tti_set_place(const struct tti_message_build *build, struct tti_set set, struct tti_region at, uint64_t bytes)
{
    for (int i = 0; i < set.count; i++) {
        set.parts[i].at = at;
        at.offset += tti_part_bytes(build, &set.parts[i], bytes);
    }
}

struct tti_set tti_set_own(struct tti_message_build *build, uint64_t offset, uint64_t bytes, bool travels,
                           struct tti_part *room)
{
    int me = build->members.me;
    struct tti_set set = tti_set_of(build, (struct tti_member_span){me, me + 1, 0, 0}, room);
    if (build->combined) {
        uint64_t at = (offset - build->origin) / build->shape->element * build->shape->accumulator;
        for (int i = 0; i < set.count; i++) room[i].at = tti_own(build, TTI_TEMP, (uint64_t)i * build->stride + at);
        return set;
    }
    struct tti_part leaf = {.at = tti_own(build, TTI_IN, offset), .first = me, .ranks = 1};
    if (travels && build->shape->scaled) {
        room[0].at = tti_temp(build, tti_part_bytes(build, &room[0], bytes));
        tti_add_fold(build->plan, room[0].at, &leaf, 1, 0, bytes);
    } else {
        room[0] = leaf;
    }
    return set;
}

struct tti_set tti_set_join(struct tti_set one, struct tti_set other, struct tti_part *room)
{
    int i = 0, k = 0, used = 0;
    while (i < one.count || k < other.count) {
        bool first = k == other.count || (i < one.count && one.parts[i].first < other.parts[k].first);
        room[used++] = first ? one.parts[i++] : other.parts[k++];
    }
    return (struct tti_set){room, used};
}

/* Returns how many of the parts from here on make up `whole`. */
static int parts_within(const struct tti_part *parts, int count, const struct tti_part *whole)
{
    int used = 0;
    while (used < count && parts[used].first < whole->first + whole->ranks) used++;
    return used;
}

struct tti_set tti_set_fold(struct tti_message_build *build, struct tti_set held, struct tti_member_span members,
                            uint64_t bytes, struct tti_part *room)
{
    struct tti_set set = tti_set_of(build, members, room);
    tti_set_place(build, set, tti_temp(build, tti_set_bytes(build, set, bytes)), bytes);
    int used = 0;
    for (int i = 0; i < set.count; i++) {
        int count = parts_within(held.parts + used, held.count - used, &set.parts[i]);
        const struct tti_part *part = &held.parts[used];
        if (count == 1 && part->partial == set.parts[i].partial)
            tti_add_copy(build->plan, set.parts[i].at, part->at, tti_part_bytes(build, part, bytes), TTI_CACHED);
        else
            tti_add_fold(build->plan, set.parts[i].at, part, count, 0, bytes);
        used += count;
    }
    return set;
}

void tti_set_finish(struct tti_message_build *build, struct tti_set held, struct tti_region target, int divisor,
                    uint64_t bytes)
{
    if (build->shape->in_place) tti_drain(build, build->sent); /* data being sent may lie where the result goes */
    tti_add_fold(build->plan, target, held.parts, held.count, divisor, bytes);
}

static bool contiguous(const struct tti_message_build *build, struct tti_set set, uint64_t bytes)
{
    for (int i = 1; i < set.count; i++)
        if (set.parts[i].at.offset != set.parts[i - 1].at.offset + tti_part_bytes(build, &set.parts[i - 1], bytes))
            return false;
    return true;
}

void tti_set_send(struct tti_message_build *build, struct tti_set set, int to, uint64_t bytes)
{
    uint64_t total = tti_set_bytes(build, set, bytes);
    if (!contiguous(build, set, bytes)) {
        struct tti_region packed = tti_temp(build, total), at = packed;
        for (int i = 0; i < set.count; i++) {
            uint64_t length = tti_part_bytes(build, &set.parts[i], bytes);
            tti_add_copy(build->plan, at, set.parts[i].at, length, TTI_CACHED);
            at.offset += length;
        }
        tti_post_send(build, to, packed, total);
        return;
    }
    tti_post_send(build, to, set.parts[0].at, total);
}

/* ---- Windows --------------------------------------------------------------------------------------------------- */

enum { IN_FLIGHT = 3 };

static struct tti_window window_at(const struct tti_window *whole, uint64_t index, uint64_t most)
{
    struct tti_window window = *whole;
    uint64_t begin = index * most, left = whole->bytes - begin;
    window.offset += begin;
    window.target.offset += begin;
    window.bytes = left < most ? left : most;
    return window;
}

static void post(struct tti_message_build *build, const struct tti_exchange *exchange, struct tti_window *window,
                 uint64_t temp)
{
    build->temp = temp;
    window->base = build->received;
    exchange->post(build, window);
    window->temp = build->temp;
}

static void run(struct tti_message_build *build, const struct tti_exchange *exchange, struct tti_window *window)
{
    build->temp = window->temp;
    exchange->run(build, window);
    window->sent = build->sent;
}

/* Returns the TEMP that one window needs: the window is built, and undone. */
static uint64_t measure(struct tti_message_build *build, const struct tti_exchange *exchange, struct tti_window window)
{
    struct tti_message_build before = *build;
    struct tti_plan *plan = build->plan;
    size_t count = plan->count, part_count = plan->part_count;
    uint64_t temp_bytes = plan->temp_bytes;
    window.slots = build->slots[0];
    post(build, exchange, &window, build->temp);
    run(build, exchange, &window);
    uint64_t used = build->temp - before.temp;
    *build = before;
    plan->count = count;
    plan->part_count = part_count;
    plan->temp_bytes = temp_bytes;
    return used;
}

void tti_exchange_all(struct tti_message_build *build, const struct tti_exchange *exchange, struct tti_window whole,
                      uint64_t most)
{
    uint64_t count = whole.bytes <= most ? 1 : (whole.bytes + most - 1) / most, begin = build->temp;
    uint64_t area = count > 1 ? measure(build, exchange, window_at(&whole, 0, most)) : 0;
    struct tti_window windows[IN_FLIGHT] = {0};
    for (uint64_t i = 0; i <= count; i++) {
        if (i < count) {
            struct tti_window *next = &windows[i % IN_FLIGHT];
            tti_drain(build, next->sent); /* sends of the window that had this TEMP before */
            *next = window_at(&whole, i, most);
            next->slots = build->slots[i % IN_FLIGHT];
            post(build, exchange, next, begin + i % IN_FLIGHT * area);
        }
        if (i > 0) run(build, exchange, &windows[(i - 1) % IN_FLIGHT]);
    }
}

/* ---- One rank's plan ------------------------------------------------------------------------------------------- */

int tti_groups(const struct tti_message_build *build)
{
    int count = build->members.count;
    return count >= 4 && build->shape->tuning->message_paired != 0 ? (count + 1) / 2 : count;
}

/* Returns the group to which this one sends in the round of this distance, or, `heard`, the one from which it receives.
 * If their number is a power of two, groups meet in pairs: messages that two send each other at the same time go over
 * one connection. */
static int round_peer(int me, int distance, int groups, bool heard)
{
    if ((groups & (groups - 1)) == 0) return me ^ distance;
    return (heard ? me - distance + groups : me + distance) % groups;
}

/* Dissemination: in round k a group hears from the group 2^k before it, which by then has heard from 2^k groups. */
void tti_build_dissemination(struct tti_message_build *build)
{
    int groups = tti_groups(build), me = build->members.me;
    int partner = me < groups ? me + groups : me - groups;
    bool paired = partner < build->members.count, speaks = me < groups;
    uint32_t base = build->received;
    struct tti_region nothing = tti_own(build, TTI_TEMP, 0);
    if (paired) tti_post_recv(build, partner, nothing, 0);
    for (int distance = 1; distance < groups && speaks; distance *= 2)
        tti_post_recv(build, round_peer(me, distance, groups, true), nothing, 0);
    if (paired && !speaks) tti_post_send(build, partner, nothing, 0);
    if (paired) tti_await(build, ++base);
    for (int distance = 1; distance < groups && speaks; distance *= 2) {
        tti_post_send(build, round_peer(me, distance, groups, false), nothing, 0);
        tti_await(build, ++base);
    }
    if (paired && speaks) tti_post_send(build, partner, nothing, 0);
}

void tti_build_messages(struct tti_plan *plan, const struct tti_shape *shape)
{
    struct tti_message_build build;
    struct tti_members ranks = {.count = shape->size, .me = shape->rank};
    if (!tti_message_begin(&build, plan, shape, ranks)) return;
    if (shape->kind == TTI_BARRIER || shape->kind == TTI_TUNING)
        tti_build_dissemination(&build);
    else if (tti_shape_reduces(shape))
        tti_build_message_reduction(&build);
    else
        tti_build_message_move(&build);
    tti_message_end(&build);
}
