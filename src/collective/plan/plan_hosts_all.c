/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the three phases of a collective across hosts as one plan, window after window.
 */
#include "collective/plan/plan_build.h"
#include "collective/plan/plan_hosts.h"

enum { TEMP_MOST = 8 << 20, WINDOW_LEAST = 4096 };

/* ---- Windows --------------------------------------------------------------------------------------------------- */

uint64_t tti_hosts_bytes(const struct tti_hosts *hosts, const struct tti_shape *shape)
{
    if (shape->kind == TTI_BARRIER) return 0;
    if (shape->kind != TTI_REDUCE_SCATTER_V) return shape->count * shape->element;
    uint64_t largest = 0;
    for (int rank = 0; rank < hosts->size; rank++) {
        uint64_t bytes = tti_reduce_block(shape, rank).bytes;
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

/* Returns the most partials that a rank holds for one byte of a slice before any arrive; if there are blocks, for one
 * byte of a block, with those that arrive. */
static uint64_t partials_most(const struct tti_hosts *hosts, const struct tti_shape *shape)
{
    if (!tti_shape_splits(shape)) return (uint64_t)hosts->trees_most;
    int largest = 0;
    for (int host = 0; host < hosts->count; host++)
        if (tti_ranks_on(hosts, host) > largest) largest = tti_ranks_on(hosts, host);
    uint64_t blocks = 1 + (uint64_t)(hosts->count * ((largest + hosts->slices - 1) / hosts->slices));
    return blocks * (uint64_t)hosts->trees_most + (uint64_t)hosts->trees;
}

/* Only reductions keep data in TEMP that grow with the window. */
uint64_t tti_hosts_window(const struct tti_hosts *hosts, const struct tti_shape *shape)
{
    if (!tti_shape_reduces(shape)) return UINT64_MAX / 64 * 64;
    uint64_t slices = tti_shape_splits(shape) ? 1 : (uint64_t)hosts->slices;
    uint64_t bytes = TEMP_MOST / shape->accumulator * shape->element / partials_most(hosts, shape) * slices;
    return bytes < WINDOW_LEAST ? WINDOW_LEAST : bytes / 64 * 64;
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

/* Counts messages through all phases of a window. */
struct posted {
    uint32_t sent, received;
};

static void append_step(struct tti_plan *plan, const struct tti_plan *phase, const struct tti_step *step,
                        struct posted before)
{
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_COPY: tti_add_copy(plan, step->target, step->source, step->bytes, (enum tti_store)step->store); break;
    case TTI_STEP_FOLD:
        tti_add_fold(plan, step->target, phase->parts + step->first, step->sources, (int)step->value, step->bytes);
        break;
    case TTI_STEP_SEND: tti_add_message(plan, TTI_STEP_SEND, step->peer, step->source, step->bytes); break;
    case TTI_STEP_RECV: tti_add_message(plan, TTI_STEP_RECV, step->peer, step->target, step->bytes); break;
    case TTI_STEP_AWAIT: tti_add_settle(plan, TTI_STEP_AWAIT, before.received + step->value); break;
    case TTI_STEP_DRAIN: tti_add_settle(plan, TTI_STEP_DRAIN, before.sent + step->value); break;
    default: plan->failed = true; /* phases have no other steps */
    }
}

static void append(struct tti_plan *plan, const struct tti_plan *phase, struct posted *posted)
{
    struct posted before = *posted;
    for (size_t i = 0; i < phase->count; i++) {
        append_step(plan, phase, &phase->steps[i], before);
        posted->sent += phase->steps[i].kind == TTI_STEP_SEND;
        posted->received += phase->steps[i].kind == TTI_STEP_RECV;
    }
    if (phase->temp_bytes > plan->temp_bytes) plan->temp_bytes = phase->temp_bytes;
}

/* No rank writes in BETWEEN what another may still read in BEFORE: a leader writes its own slice, which it alone reads;
 * in a reduce_scatter its own block, likewise; in an all_gather blocks of other hosts. Windows are disjoint except for
 * TEMP, which the root reads in a reduce. So only ranks that need results meet. */
bool tti_hosts_meet(enum tti_kind kind, enum tti_phase phase)
{
    if (phase == TTI_BEFORE) return kind == TTI_REDUCE;
    return phase == TTI_AFTER && kind != TTI_REDUCE_SCATTER && kind != TTI_REDUCE_SCATTER_V;
}

/* Makes a host's ranks wait for each other: none goes on before all have come here. */
static void add_meeting(struct tti_plan *plan, uint32_t number)
{
    tti_add_publish(plan, number);
    tti_add_wait(plan, TTI_ALL, number);
}

/* Ranks that do not lead wait for the leader, which meets the other hosts. */
static bool build_barrier(struct tti_plan *plan, const struct tti_hosts *hosts, const struct tti_shape *shape,
                          struct tti_plan *room)
{
    int leader = tti_rank_at(hosts, hosts->host_of[shape->rank], 0);
    struct posted posted = {0};
    if (leader != shape->rank) {
        tti_add_wait(plan, leader, TTI_LEFT);
        return true;
    }
    tti_add_wait(plan, TTI_ALL, 0);
    if (tti_hosts_build(room, hosts, shape, TTI_BETWEEN, (struct tti_part_of_all){0}) != TUTTI_OK) return false;
    append(plan, room, &posted);
    tti_add_publish(plan, TTI_LEFT);
    return true;
}

/* Builds the steps of one window. */
static bool build_window(struct tti_plan *plan, const struct tti_hosts *hosts, const struct tti_shape *shape,
                         struct tti_plan *room, struct tti_part_of_all window, uint32_t *number)
{
    struct posted posted = {0};
    for (int phase = 0; phase < TTI_PHASES; phase++) {
        bool meets = tti_hosts_meet(shape->kind, (enum tti_phase)phase) && (window.begin > 0 || phase > 0);
        if (tti_hosts_build(room, hosts, shape, (enum tti_phase)phase, window) != TUTTI_OK) return false;
        if (meets) add_meeting(plan, ++*number);
        append(plan, room, &posted);
    }
    return true;
}

/* Returns how many windows, from this one on, have the same steps except for their places. */
static uint64_t count_alike(const struct tti_shape *shape, struct tti_part_of_all window, uint64_t bytes, uint64_t most)
{
    bool first_differs = window.begin == 0 && tti_hosts_meet(shape->kind, TTI_BEFORE);
    if (first_differs || shape->kind == TTI_REDUCE_SCATTER_V || window.bytes < most) return 1;
    return (bytes - window.begin) / most;
}

static bool build_windows(struct tti_plan *plan, const struct tti_hosts *hosts, const struct tti_shape *shape,
                          struct tti_plan *room)
{
    uint64_t bytes = tti_hosts_bytes(hosts, shape), most = tti_hosts_window(hosts, shape), begin = 0;
    uint32_t number = 0;
    tti_add_wait(plan, TTI_ALL, 0);
    do {
        struct tti_part_of_all window = {begin, bytes - begin < most ? bytes - begin : most};
        uint64_t turns = count_alike(shape, window, bytes, most);
        uint32_t before = number;
        size_t first = plan->count;
        if (!build_window(plan, hosts, shape, room, window, &number)) return false;
        begin += turns * window.bytes;
        if (turns > 1 || begin < bytes) tti_add_again(plan, first, (uint32_t)turns, most, number - before);
        number += (uint32_t)(turns - 1) * (number - before);
    } while (begin < bytes);
    tti_add_leave(plan);
    return true;
}

tutti_status tti_hosts_build_all(struct tti_plan *plan, const struct tti_hosts *hosts, const struct tti_shape *shape)
{
    struct tti_plan room = {0};
    tti_plan_empty(plan);
    tti_add_enter(plan);
    bool made = shape->kind == TTI_BARRIER ? build_barrier(plan, hosts, shape, &room)
                                           : build_windows(plan, hosts, shape, &room);
    tti_plan_free(&room);
    return made && !plan->failed ? TUTTI_OK : TUTTI_ERR_MEMORY;
}
