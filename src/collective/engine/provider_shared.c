/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider `shared`: ranks that reach each other's memory. It takes one rank through one operation without
 * blocking: progress does what can be done now and returns IN_PROGRESS when it must wait for a peer.
 *
 *   OPENING  waits until the slot of this operation may be written (the window), and its stage
 *   FAST     without a plan: all_reduce of data that fit beside the entry word, broadcast of data that fit the slot,
 *            barrier
 *   MEETING  has entered, and waits until all ranks have; then the path follows from all entries, and the plan from the
 *            path
 *   RUNNING  does the plan's steps
 *
 * Fencing. From its entry to its exit a rank may write to others' outputs. So a rank whose operation failed gives its
 * buffers back to the caller only when every peer that entered has published that it left or failed (it does nothing
 * more then), or has been killed. A peer that enters later sees the broken comm before it touches anything: the failed
 * rank fences for everyone between the break and its reading of the entries.
 */
#include "base/clock.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/engine/run.h"
#include "collective/reduce/copy.h"
#include <string.h>

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Finds the place where the operation stages data, and whether this rank writes there. */
static void find_stage(struct tti_op *op)
{
    const struct tti_shape *shape = &op->shape;
    uint64_t bytes = tti_staged_bytes(shape);
    op->stage.count = 0;
    op->stage.used = bytes > op->comm->memory->slot_room;
    if (!op->stage.used) return;
    uint32_t grains = 1, half = TTI_GRAINS / 2;
    while (grains * TTI_GRAIN_BYTES < bytes) grains *= 2;
    uint32_t places = grains < half / 2 ? half / 2 / grains : 1, turn = (uint32_t)op->comm->sequence;
    op->stage.first = turn % 2 * half + turn / 2 % places * grains;
    bool from_root = shape->kind == TTI_BROADCAST || shape->kind == TTI_SCATTER;
    if (!from_root || shape->root == shape->rank) op->stage.count = grains;
}

/* Waits until all others have ended the operation for which this rank staged data there before. */
static tutti_status open_stage(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    uint64_t last = 0;
    find_stage(op);
    for (uint32_t i = op->stage.first; i < op->stage.first + op->stage.count; i++)
        if (comm->engine->stage_used[i] > last) last = comm->engine->stage_used[i];
    if (last > 0 && comm->memory->all_entered <= last) TTI_TRY(tti_post_await_slot(op, last + 1));
    for (uint32_t i = op->stage.first; i < op->stage.first + op->stage.count; i++)
        comm->engine->stage_used[i] = comm->sequence;
    return TUTTI_OK;
}

static tutti_status open_slot(struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    bool open = comm->sequence < comm->memory->window ||
                comm->memory->all_entered + comm->memory->window > comm->sequence;
    return open ? TUTTI_OK : tti_post_await_slot(op, comm->sequence - comm->memory->window + 1);
}

/* ---- Meeting ---------------------------------------------------------------------------------------------------- */

static bool everyone_attaches(const struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    for (int rank = 0; rank < comm->size; rank++)
        if (tti_slot_of(comm, rank, comm->sequence)->met.can_attach == 0) return false;
    return true;
}

/* Chooses the path. All ranks choose the same, since it depends on what all have published. */
static enum tti_path path_of(const struct tti_op *op)
{
    const struct tti_shape *shape = &op->shape;
    if (!op->any_private) return TTI_DIRECT;
    bool overwrites = shape->kind == TTI_SCAN || shape->kind == TTI_EXSCAN || op->call.in_place != 0;
    uint64_t least = (uint64_t)shape->tuning->attach;
    if (shape->kind == TTI_ALL_REDUCE) least *= 2; /* all_reduce attaches twice */
    bool large = tti_shape_bytes(shape) >= least;
    return large && !overwrites && everyone_attaches(op) ? TTI_ATTACH : TTI_BOUNCE;
}

/* Returns true if the root's own data lie in their place already, in a broadcast, gather or scatter. */
static bool root_in_place(const struct tti_op *op)
{
    const struct tti_shape *shape = &op->shape;
    bool whole = shape->kind == TTI_BROADCAST;
    if (!whole && shape->kind != TTI_GATHER && shape->kind != TTI_SCATTER) return shape->in_place;
    const struct tti_place *in = tti_op_place(op, shape->root, TTI_IN), *out = tti_op_place(op, shape->root, TTI_OUT);
    uint64_t own = whole ? 0 : (uint64_t)shape->root * shape->count * shape->element;
    if (in->reach != out->reach) return false;
    return shape->kind == TTI_GATHER ? in->value == out->value + own : out->value == in->value + own;
}

static tutti_status build(struct tti_op *op)
{
    op->shape.bounce_bytes = op->comm->memory->bounce_bytes;
    return tti_run_build(op, &op->shape, NULL);
}

/* Builds a plan for staged data and does its steps up to the entry. */
static tutti_status build_staged(struct tti_op *op)
{
    op->shape.path = TTI_STAGED;
    TTI_TRY(build(op));
    TTI_TRY(tti_run_to(op, TTI_STEP_ENTER));
    op->walk.step++;
    return TUTTI_OK;
}

/* Returns true if a rank that has entered has private buffers. */
static bool is_private(const struct tti_op *op, int rank)
{
    const struct tti_slot *slot = tti_slot_of(op->comm, rank, op->comm->sequence);
    return (atomic_load_explicit(&slot->entry, memory_order_relaxed) & 1) != 0;
}

/* In a broadcast the root alone decides: if it brings its data along, ranks wait only for the root. */
static tutti_status meet_root(struct tti_op *op, bool *brings)
{
    const struct tti_shape *shape = &op->shape;
    *brings = false;
    if (shape->kind != TTI_BROADCAST || !tti_shape_fits_slot(shape)) return TUTTI_OK;
    if (shape->root != shape->rank) TTI_TRY(tti_post_seen(op, shape->root, 0));
    *brings = is_private(op, shape->root);
    if (!*brings) return TUTTI_OK;
    if (!is_private(op, shape->rank)) { /* otherwise it was built before entering */
        find_stage(op);
        TTI_TRY(build_staged(op));
    }
    op->state = TTI_OP_RUNNING;
    return TUTTI_OK;
}

static tutti_status meet(struct tti_op *op)
{
    bool brings;
    TTI_TRY(meet_root(op, &brings));
    if (brings) return TUTTI_OK;
    TTI_TRY(tti_post_all_entered(op));
    tti_trace_meeting(op);
    /* called after all entries, before anything is touched: see Fencing */
    if (tti_comm_is_broken(op->comm)) return tti_comm_health(op->comm, op->shape.kind, false);
    if (op->shape.tables != NULL) TTI_TRY(tti_op_check_counts(op));
    if (op->all_private && tti_shape_fits_slot(&op->shape)) { /* the plan stands where entering left it */
        op->state = TTI_OP_RUNNING;
        return TUTTI_OK;
    }
    TTI_TRY(tti_post_check_places(op));
    op->shape.path = path_of(op);
    op->shape.in_place = root_in_place(op);
    if (!tti_has_parts(op)) return build(op);
    op->state = TTI_OP_RUNNING;
    op->walk.plan = NULL;
    op->part = 0;
    return TUTTI_OK;
}

/* ---- The path without a plan ------------------------------------------------------------------------------------ */

static char *staged_by(const struct tti_op *op, int rank, size_t bytes)
{
    if (bytes > TTI_PAYLOAD_BYTES) return tti_stage_of(op, rank);
    return (char *)tti_slot_of(op->comm, rank, op->comm->sequence)->payload;
}

static tutti_status finish_fast_broadcast(struct tti_op *op)
{
    int root = op->shape.root;
    size_t bytes = op->shape.count * op->shape.element;
    const void *source = op->in;
    if (root != op->shape.rank) {
        TTI_TRY(tti_post_seen(op, root, 0));
        source = staged_by(op, root, bytes);
    }
    bool moves = tti_move(bytes);
    if (moves && bytes > 0 && op->out != source) memcpy(op->out, source, bytes);
    tti_moved();
    return TUTTI_OK;
}

static __attribute__((noinline)) void reduce_staged(struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    struct tti_engine *engine = comm->engine;
    for (int rank = 0; rank < comm->size; rank++) {
        /* not from its own stage: a load of data just stored there would wait until the line is back from the peers */
        engine->sources[rank] = rank == comm->rank ? op->in : tti_slot_of(comm, rank, comm->sequence)->payload;
        if (op->reducer.code == TTI_REDUCE_SCALED_SUM)
            engine->factors[rank] = tti_call_of(comm, rank, comm->sequence)->factor;
    }
    engine->targets[0] = op->out;
    if (tti_move((uint64_t)comm->size * op->shape.count * op->shape.element))
        tti_reduce(&op->reducer, engine->sources, tti_op_factors(op), comm->size, engine->targets, 1, op->shape.count,
                   false);
    tti_moved();
}

static tutti_status finish_fast(struct tti_op *op)
{
    if (op->shape.kind == TTI_BROADCAST) return finish_fast_broadcast(op);
    TTI_TRY(tti_post_all_entered(op));
    tti_trace_meeting(op);
    if (op->shape.count > 0) reduce_staged(op);
    return TUTTI_OK;
}

/* Returns true if the operation is done without a plan: see FAST above. */
static bool is_fast(const struct tti_op *op)
{
    const struct tti_shape *shape = &op->shape;
    switch (shape->kind) {
    case TTI_BARRIER:
    case TTI_TUNING: return shape->size < shape->tuning->dissemination;
    case TTI_BROADCAST: return tti_shape_fits_stage(shape);
    case TTI_ALL_REDUCE: return shape->count * shape->element <= TTI_PAYLOAD_BYTES && tti_shape_fits_stage(shape);
    default: return false;
    }
}

/* Stages the data. Ranks that share cores enter operations in bursts, for the time of a turn on a core. */
static void stage(struct tti_op *op, size_t bytes)
{
    char *target = staged_by(op, op->shape.rank, bytes);
    if (op->comm->traits.crowded)
        tti_copy_across(&op->comm->engine->staged_copy, target, op->in, bytes, TTI_ACROSS_FROM_IN_BURSTS);
    else
        memcpy(target, op->in, bytes);
}

static void start_fast(struct tti_op *op)
{
    const struct tti_shape *shape = &op->shape;
    size_t bytes = shape->count * shape->element;
    bool gives = shape->kind == TTI_ALL_REDUCE || (shape->kind == TTI_BROADCAST && shape->root == shape->rank);
    op->state = TTI_OP_FAST;
    op->shape.path = TTI_STAGED;
    if (gives && bytes > 0) stage(op, bytes);
    tti_post_enter(op);
}

/* A rank whose buffers are private brings data along that fit the slot: if all ranks do, nothing else is needed. */
static __attribute__((noinline)) tutti_status start_meeting(struct tti_op *op)
{
    op->any_private = op->all_private = tti_post_show_places(op);
    if (op->any_private && tti_shape_fits_slot(&op->shape)) {
        TTI_TRY(open_stage(op));
        TTI_TRY(build_staged(op));
    }
    op->state = TTI_OP_MEETING;
    tti_post_enter(op);
    return TUTTI_OK;
}

static tutti_status start(struct tti_op *op)
{
    TTI_TRY(open_slot(op));
    tti_post_show(op);
    if (is_fast(op)) {
        if (op->shape.kind == TTI_BROADCAST) TTI_TRY(open_stage(op));
        start_fast(op);
        return TUTTI_OK;
    }
    if (tti_shape_fits_stage(&op->shape)) {
        TTI_TRY(open_stage(op));
        op->shape.path = TTI_STAGED;
        return build(op);
    }
    return start_meeting(op);
}

static __attribute__((noinline)) tutti_status run(struct tti_op *op)
{
    if (op->state == TTI_OP_MEETING) TTI_TRY(meet(op));
    return tti_has_parts(op) ? tti_run_parts(op) : tti_run_to(op, TTI_STEP_NONE);
}

static tutti_status issue(struct tti_op *op)
{
    if (op->state == TTI_OP_OPENING) TTI_TRY(start(op));
    return op->state == TTI_OP_RUNNING ? tti_run_to(op, TTI_STEP_NONE) : TUTTI_IN_PROGRESS; /* staged data are small */
}

static tutti_status progress(struct tti_op *op)
{
    if (op->state == TTI_OP_OPENING) TTI_TRY(start(op));
    if (op->state == TTI_OP_FAST) {
        /* done once only: in place, the result has replaced the input; a caller that waits for a peer may ask once
         * more */
        tutti_status status = finish_fast(op);
        if (status == TUTTI_OK) op->state = TTI_OP_ENDED;
        return status;
    }
    return op->state == TTI_OP_ENDED ? TUTTI_OK : run(op);
}

/* ---- Failing ---------------------------------------------------------------------------------------------------- */

enum {
    KILL_MS = 1000,
    /* the time until the service thread sees that a comm is broken: other ranks must know within 100 ms */
    ENDED_MS = 60
};

/* Returns true if the peer's thread has ended and nothing moves its ops any more. Ops that it had started are still
 * moved by the service thread, until that sees the break; the op that the thread itself was in is moved by nobody. */
static bool has_ended(const struct tti_op *op, int peer, int64_t fenced_ns)
{
    const tutti_comm *comm = op->comm;
    if (atomic_load_explicit(&tti_info_of(comm, peer)->state, memory_order_acquire) == TTI_RANK_JOINED) return false;
    bool here = tti_sim == NULL && tti_info_of(comm, peer)->pid == tti_info_of(comm, comm->rank)->pid;
    return !here || fenced_ns >= ENDED_MS * INT64_C(1000000);
}

static bool brings(const struct tti_op *op, int rank)
{
    uint64_t sequence = op->comm->sequence;
    uint64_t entry = atomic_load_explicit(&tti_slot_of(op->comm, rank, sequence)->entry, memory_order_acquire);
    return (uint32_t)(entry >> 32) == (uint32_t)sequence && (entry & 1) != 0;
}

/* Returns true if the op needs no rank's buffers, since all bring their data along when they enter, or the root of a
 * broadcast does: a peer may have ended the op with these data, without saying that it has left, and be busy
 * elsewhere. */
static bool is_brought(const struct tti_op *op)
{
    const struct tti_shape *shape = &op->shape;
    if (!tti_shape_fits_slot(shape)) return false;
    if (shape->kind == TTI_BROADCAST) return brings(op, shape->root);
    for (int rank = 0; rank < op->comm->size; rank++)
        if (!brings(op, rank)) return false;
    return true;
}

/* Returns true if peers reach this rank's buffers while the op runs; `direct`: peers in other processes do so by
 * address, too. */
static bool is_exposed(const struct tti_op *op, bool *direct)
{
    bool runs = op->state == TTI_OP_RUNNING, attach = op->shape.path == TTI_ATTACH;
    bool written = op->shape.path == TTI_DIRECT || (attach && op->shape.kind == TTI_BROADCAST);
    *direct = (op->state == TTI_OP_MEETING && !is_brought(op)) || (runs && written);
    return op->entered && (*direct || (runs && attach));
}

static bool fence(struct tti_op *op, int64_t until_ns)
{
    tutti_comm *comm = op->comm;
    bool direct;
    if (!is_exposed(op, &direct)) return true;
    int64_t left_ns = until_ns - tti_now_ns(), fenced_ns = comm->world->options.fence_ms * INT64_C(1000000) - left_ns;
    bool late = left_ns <= 0;
    if (!comm->traits.all_threads) tti_world_check_alive(comm->world);
    for (int peer = 0; peer < comm->size; peer++) {
        /* otherwise it only reads, and not by address from another process */
        if (!tti_post_may_touch(op, peer, direct) || has_ended(op, peer, fenced_ns)) continue;
        if (!late) return false;
        if (!tti_world_kill(comm->world, tti_member(comm, peer), KILL_MS))
            tti_comm_quarantine(comm, op->shape.kind, peer, op->in, op->out);
    }
    return true;
}

const struct tti_host_provider tti_provider_shared = {
    .ops = {.name = "shared", .progress = progress, .stop = tti_post_stop, .fence = fence},
    .issue = issue,
};
