/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor: takes one rank through one operation without blocking. tti_shared_progress does what can be done now and
 * returns IN_PROGRESS when it must wait for a peer.
 *
 *   OPENING  until the slot of this operation may be written (the window), and what it stages
 *   FAST     without a plan: all_reduce of what fits beside the entry word, broadcast of what fits the slot, barrier
 *   MEETING  entered; until all ranks have; then the path follows from all entries, and the plan from the path
 *   RUNNING  the plan's steps
 *
 * Fencing. From its entry to its exit a rank may write to others' outputs. So a rank whose operation failed gives its
 * buffers back to the caller only when every peer that entered has published that it left or failed (it does nothing
 * more then), or has been killed. A peer that enters later sees the broken comm before it touches anything: the failed
 * rank fences for everyone between the break and its look at the entries.
 */
#include "collective/engine/executor.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "collective/comm/trace.h"
#include "collective/reduce/copy.h"
#include <string.h>

/* The one that the cursor stands for. */
static int next_peer(const struct tti_op *op)
{
    int peer = op->comm->rank + 1 + op->cursor;
    return peer < op->comm->size ? peer : peer - op->comm->size;
}

static uint64_t mark(const struct tti_op *op, uint32_t number)
{
    return op->comm->sequence << 32 | number;
}

/* ---- Entering and seeing others enter -------------------------------------------------------------------------- */

/* Tells the others where this rank's buffers lie; true when some of them cannot reach one. */
static bool show_places(struct tti_op *op, struct tti_met *met)
{
    tutti_comm *comm = op->comm;
    met->in = tti_place_of(comm, op->in, op->in_bytes);
    met->out = tti_place_of(comm, op->out, op->out_bytes);
    met->can_attach = comm->traits.can_attach;
    if (comm->world->options.direct == 0) return true;
    return !comm->traits.all_threads && (met->in.reach == TTI_PRIVATE || met->out.reach == TTI_PRIVATE);
}

/* Waiting ranks look at it, so it lies apart from what changes with every operation. */
static void show_core(struct tti_post *post)
{
    int core = tti_core_now();
    if (atomic_load_explicit(&post->core, memory_order_relaxed) != core)
        atomic_store_explicit(&post->core, core, memory_order_relaxed);
}

/* What the others read seldom is written first, so that what shares the entry's line is written right before it: they may
 * be polling that line, and would take it away in between. */
static void show_call(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_post *post = &comm->memory->posts[comm->rank];
    uint64_t *shown = &comm->memory->shown[comm->sequence & (comm->memory->window - 1)];
    if (op->edition == 0 || op->edition != *shown) *tti_call_of(comm, comm->rank, comm->sequence) = op->call;
    *shown = op->edition;
    if (comm->traits.crowded) show_core(post);
    atomic_store_explicit(&post->progress, comm->sequence << 32, memory_order_release);
}

static void enter(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_slot *slot = tti_slot_of(comm, comm->rank, comm->sequence);
    uint64_t entry = comm->sequence << 32 | comm->signature;
    if (op->any_private) entry |= 1;
    atomic_store_explicit(&slot->entry, entry, memory_order_release);
    op->entered = true;
    tti_comm_ring(comm, false);
    tti_trace_entry(op);
}

/* Whether `peer` has entered operation `sequence`, and with the same calls up to there as this rank. */
static tutti_status seen_entry(struct tti_op *op, int peer, uint64_t sequence, uint32_t signature)
{
    uint64_t entry = atomic_load_explicit(&tti_slot_of(op->comm, peer, sequence)->entry, memory_order_acquire);
    if ((uint32_t)(entry >> 32) != (uint32_t)sequence) return TUTTI_IN_PROGRESS;
    if ((((uint32_t)entry ^ signature) & ~UINT32_C(1)) != 0) return tti_op_mismatch(op, peer);
    op->any_private |= (entry & 1) != 0;
    op->all_private &= (entry & 1) != 0;
    return TUTTI_OK;
}

static tutti_status seen_number(struct tti_op *op, int peer, uint32_t number)
{
    tutti_comm *comm = op->comm;
    uint64_t progress = atomic_load_explicit(&comm->memory->posts[peer].progress, memory_order_acquire);
    if ((int64_t)(progress - mark(op, number)) < 0 || progress == mark(op, TTI_FAILED)) return TUTTI_IN_PROGRESS;
    return TUTTI_OK;
}

static tutti_status seen(struct tti_op *op, int peer, uint32_t number)
{
    tutti_status status = number == 0 ? TUTTI_OK : seen_number(op, peer, number);
    if (status == TUTTI_OK) status = seen_entry(op, peer, op->comm->sequence, op->comm->signature);
    if (status == TUTTI_IN_PROGRESS) {
        op->waiting_for = peer;
        op->awaited = mark(op, number);
    }
    return status;
}

static tutti_status seen_all(struct tti_op *op, uint32_t number)
{
    tutti_comm *comm = op->comm;
    for (; op->cursor < comm->size - 1; op->cursor++) {
        int peer = next_peer(op);
        /* once met, entries need no second look */
        if (number != 0 && op->state == TTI_OP_RUNNING && comm->memory->all_entered == comm->sequence) {
            if (seen_number(op, peer, number) == TUTTI_OK) continue;
            op->waiting_for = peer;
            op->awaited = mark(op, number);
            return TUTTI_IN_PROGRESS;
        }
        TTI_TRY(seen(op, peer, number));
    }
    op->cursor = 0;
    comm->memory->all_entered = comm->sequence;
    return TUTTI_OK;
}

/* ---- The window ------------------------------------------------------------------------------------------------ */

/* A rank that has to wait here waits until half the window is free: then it works in bursts, instead of asking its peers
 * before every operation and slowing them down by asking. They can all come that far without it. */
static __attribute__((noinline)) tutti_status await_slot(struct tti_op *op, uint64_t needed)
{
    tutti_comm *comm = op->comm;
    uint64_t last = comm->sequence - 1, ahead_most = comm->sequence - needed + 1;
    uint64_t wanted = op->blocked ? needed + ahead_most / 2 - 1 : needed;
    if (op->cursor == 0) op->least = last;
    for (; op->cursor < comm->size - 1; op->cursor++) {
        int peer = next_peer(op);
        uint64_t progress = atomic_load_explicit(&comm->memory->posts[peer].progress, memory_order_acquire);
        int32_t ahead = (int32_t)((uint32_t)(progress >> 32) - (uint32_t)wanted);
        op->waiting_for = peer;
        op->awaited = wanted << 32;
        op->blocked = op->blocked || ahead < 0;
        if (ahead < 0) return TUTTI_IN_PROGRESS;
        /* one that this rank has been through, and still holds */
        uint64_t at = wanted + (uint64_t)ahead < last ? wanted + (uint64_t)ahead : last;
        if (tti_calls_differ(comm, peer, at)) return tti_op_mismatch(op, peer);
        if (at < op->least) op->least = at;
    }
    op->cursor = 0;
    comm->memory->all_entered = op->least;
    return TUTTI_OK;
}

static tutti_status open_slot(struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    bool open = comm->sequence < comm->memory->window ||
                comm->memory->all_entered + comm->memory->window > comm->sequence;
    return open ? TUTTI_OK : await_slot(op, comm->sequence - comm->memory->window + 1);
}

/* Where it stages, and whether this rank writes there. */
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

/* All others must have ended what this rank staged there before. */
static tutti_status open_stage(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    uint64_t last = 0;
    find_stage(op);
    for (uint32_t i = op->stage.first; i < op->stage.first + op->stage.count; i++)
        if (comm->engine->stage_used[i] > last) last = comm->engine->stage_used[i];
    if (last > 0 && comm->memory->all_entered <= last) TTI_TRY(await_slot(op, last + 1));
    for (uint32_t i = op->stage.first; i < op->stage.first + op->stage.count; i++)
        comm->engine->stage_used[i] = comm->sequence;
    return TUTTI_OK;
}

/* ---- The states ------------------------------------------------------------------------------------------------ */

static void publish(struct tti_op *op, uint32_t number)
{
    tutti_comm *comm = op->comm;
    atomic_store_explicit(&comm->memory->posts[comm->rank].progress, mark(op, number), memory_order_release);
    tti_comm_ring(comm, false);
}

static tutti_status do_step(struct tti_op *op, const struct tti_step *step)
{
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_ENTER: enter(op); return TUTTI_OK;
    case TTI_STEP_PUBLISH: publish(op, step->value); return TUTTI_OK;
    case TTI_STEP_LEAVE: publish(op, TTI_LEFT); return TUTTI_OK;
    case TTI_STEP_WAIT: return step->peer == TTI_ALL ? seen_all(op, step->value) : seen(op, step->peer, step->value);
    default: return tti_op_move(op, step);
    }
}

/* Up to a step of this kind, or to the end. */
static tutti_status run_plan_to(struct tti_op *op, int kind)
{
    const struct tti_plan *plan = op->walk.plan;
    for (; op->walk.step < plan->count && plan->steps[op->walk.step].kind != kind; op->walk.step++) {
        tutti_status status = do_step(op, &plan->steps[op->walk.step]);
        if (status != TUTTI_OK) return status;
        tti_trace_step(op, &plan->steps[op->walk.step]);
    }
    return TUTTI_OK;
}

static tutti_status run_plan(struct tti_op *op)
{
    return run_plan_to(op, -1);
}

static __attribute__((noinline)) tutti_status build_for(struct tti_op *op, struct tti_shape *shape)
{
    shape->bounce_bytes = op->comm->memory->bounce_bytes;
    op->walk.step = 0;
    op->state = TTI_OP_RUNNING;
    op->walk.plan = tti_plan_cache_get(&op->comm->engine->plans, shape, NULL);
    if (op->walk.plan != NULL) return TUTTI_OK;
    return tti_comm_break(op->comm, shape->kind, TUTTI_ERR_MEMORY, op->comm->rank,
                          "rank %d has no memory for the plan of %s", op->comm->rank, tti_kind_name(shape->kind));
}

static tutti_status build(struct tti_op *op)
{
    return build_for(op, &op->shape);
}

/* See Parts. */
static bool has_parts(const struct tti_op *op)
{
    return op->comm->traits.shares_parts && op->shape.path == TTI_DIRECT && op->shape.tables == NULL &&
           op->reducer.code != TTI_REDUCE_FUNCTION;
}

static bool everyone_attaches(const struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    for (int rank = 0; rank < comm->size; rank++)
        if (tti_slot_of(comm, rank, comm->sequence)->met.can_attach == 0) return false;
    return true;
}

/* The same on every rank: it depends on what all have published. */
static enum tti_path path_of(const struct tti_op *op)
{
    const struct tti_shape *shape = &op->shape;
    if (!op->any_private) return TTI_DIRECT;
    bool overwrites = shape->kind == TTI_SCAN || shape->kind == TTI_EXSCAN || op->call.in_place != 0;
    uint64_t least = (uint64_t)shape->tuning->attach;
    if (shape->kind == TTI_ALL_REDUCE) least *= 2; /* which attaches twice */
    bool large = tti_shape_bytes(shape) >= least;
    return large && !overwrites && everyone_attaches(op) ? TTI_ATTACH : TTI_BOUNCE;
}

/* Whether what the root keeps lies where it is wanted, in a broadcast, gather or scatter. */
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

/* Builds a plan for staged data and does what comes before entering. */
static tutti_status build_staged(struct tti_op *op)
{
    op->shape.path = TTI_STAGED;
    TTI_TRY(build(op));
    for (; op->walk.plan->steps[op->walk.step].kind != TTI_STEP_ENTER; op->walk.step++)
        TTI_TRY(do_step(op, &op->walk.plan->steps[op->walk.step]));
    op->walk.step++;
    return TUTTI_OK;
}

/* Of one that has entered. */
static bool is_private(const struct tti_op *op, int rank)
{
    const struct tti_slot *slot = tti_slot_of(op->comm, rank, op->comm->sequence);
    return (atomic_load_explicit(&slot->entry, memory_order_relaxed) & 1) != 0;
}

/* Of a broadcast the root alone decides: if it brings its data along, nobody waits for anybody but it. */
static tutti_status meet_root(struct tti_op *op, bool *brings)
{
    const struct tti_shape *shape = &op->shape;
    *brings = false;
    if (shape->kind != TTI_BROADCAST || !tti_shape_fits_slot(shape)) return TUTTI_OK;
    if (shape->root != shape->rank) TTI_TRY(seen(op, shape->root, 0));
    *brings = is_private(op, shape->root);
    if (!*brings) return TUTTI_OK;
    if (!is_private(op, shape->rank)) { /* else it was, before entering */
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
    TTI_TRY(seen_all(op, 0));
    tti_trace_meeting(op);
    /* after all entries, before anything is touched: see Fencing */
    if (tti_comm_is_broken(op->comm)) return tti_comm_health(op->comm, op->shape.kind, false);
    if (op->shape.tables != NULL) TTI_TRY(tti_op_check_counts(op));
    if (op->all_private && tti_shape_fits_slot(&op->shape)) { /* the plan is where entering left it */
        op->state = TTI_OP_RUNNING;
        return TUTTI_OK;
    }
    op->shape.path = path_of(op);
    op->shape.in_place = root_in_place(op);
    if (!has_parts(op)) return build(op);
    op->state = TTI_OP_RUNNING;
    op->walk.plan = NULL;
    op->part = 0;
    return TUTTI_OK;
}

/* ---- Parts -----------------------------------------------------------------------------------------------------
 *
 * Where ranks share cores and reach all buffers, a rank's part in an operation, which is what its plan moves, is done by
 * whoever comes to it first once all have entered: the rank itself, or one that runs on its core; at last, where the
 * operation is large, any that has nothing left to do, since ranks need not be spread evenly. The operation ends when all
 * parts are done, and a rank that waits for its turn on a core holds nobody up: one turn for each is enough, instead of one
 * to enter and one to leave. Not with counts for each rank: these lie in tables that are used again as soon as all
 * parts are done, while a rank without a part has yet to read them. And a user's function is called by the rank itself. */

enum { LARGE_BYTES = 256 << 10 }; /* below that, what a part's core has in its cache counts more than an idle core */

static bool may_claim(const struct tti_op *op, int rank)
{
    const tutti_comm *comm = op->comm;
    if (rank == comm->rank || !comm->traits.crowded) return rank == comm->rank;
    return op->part >= comm->size ||
           atomic_load_explicit(&comm->memory->posts[rank].core, memory_order_relaxed) ==
               atomic_load_explicit(&comm->memory->posts[comm->rank].core, memory_order_relaxed);
}

static bool claim(const struct tti_op *op, int rank)
{
    const tutti_comm *comm = op->comm;
    struct tti_post *post = &comm->memory->posts[rank];
    if (!may_claim(op, rank)) return false;
    uint64_t before = atomic_load_explicit(&post->claimed, memory_order_relaxed);
    if (before >> 32 == mark(op, 0) >> 32) return false;
    return atomic_compare_exchange_strong_explicit(&post->claimed, &before, mark(op, (uint32_t)comm->rank + 1),
                                                   memory_order_relaxed, memory_order_relaxed);
}

/* How many parts a rank looks at: those of its core's ranks, and where it is large all of them once more. */
static int parts_to_see(const struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    return comm->traits.crowded && tti_shape_bytes(&op->shape) >= LARGE_BYTES ? 2 * comm->size : comm->size;
}

static tutti_status do_parts(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    for (int most = parts_to_see(op); op->part < most; op->part++) {
        struct tti_shape shape = op->shape;
        shape.rank = (comm->rank + op->part) % comm->size;
        if (op->walk.plan == NULL) {
            if (!claim(op, shape.rank)) continue;
            TTI_TRY(build_for(op, &shape));
        }
        TTI_TRY(run_plan_to(op, TTI_STEP_LEAVE));
        op->walk.plan = NULL;
        atomic_store_explicit(&comm->memory->posts[shape.rank].done, mark(op, TTI_LEFT), memory_order_release);
        tti_comm_ring(comm, shape.rank != comm->rank);
    }
    return TUTTI_OK;
}

/* Who does that rank's part: itself, unless another one has claimed it. */
static int doer_of(const struct tti_op *op, int rank)
{
    uint64_t claimed = atomic_load_explicit(&op->comm->memory->posts[rank].claimed, memory_order_relaxed);
    return claimed >> 32 == mark(op, 0) >> 32 ? (int)(uint32_t)claimed - 1 : rank;
}

static tutti_status run_parts(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    if (op->part < parts_to_see(op)) {
        TTI_TRY(do_parts(op));
        publish(op, TTI_LEFT);
    }
    for (; op->cursor < comm->size; op->cursor++) {
        int rank = (comm->rank + op->cursor) % comm->size;
        uint64_t done = atomic_load_explicit(&comm->memory->posts[rank].done, memory_order_acquire);
        if ((int64_t)(done - mark(op, TTI_LEFT)) >= 0) continue;
        op->waiting_for = doer_of(op, rank);
        op->awaited = mark(op, TTI_LEFT);
        return TUTTI_IN_PROGRESS;
    }
    op->cursor = 0;
    return TUTTI_OK;
}

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
        TTI_TRY(seen(op, root, 0));
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
        /* not its own stage: a load of what was just stored there would wait until the line is back from the peers */
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
    TTI_TRY(seen_all(op, 0));
    tti_trace_meeting(op);
    if (op->shape.count > 0) reduce_staged(op);
    return TUTTI_OK;
}

/* What the one path without a plan does: see FAST above. */
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

/* Ranks that share cores enter operations in bursts, a turn on a core long. */
static void stage(struct tti_op *op, size_t bytes)
{
    char *target = staged_by(op, op->shape.rank, bytes);
    if (op->comm->traits.crowded)
        tti_copy_across(&op->comm->engine->ferry, target, op->in, bytes, TTI_ACROSS_FROM_IN_BURSTS);
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
    enter(op);
}

/* A rank whose buffers are private brings along what fits the slot: when all do, nothing else is needed. */
static __attribute__((noinline)) tutti_status start_meeting(struct tti_op *op)
{
    op->any_private = op->all_private = show_places(op,
                                                    &tti_slot_of(op->comm, op->comm->rank, op->comm->sequence)->met);
    if (op->any_private && tti_shape_fits_slot(&op->shape)) {
        TTI_TRY(open_stage(op));
        TTI_TRY(build_staged(op));
    }
    op->state = TTI_OP_MEETING;
    enter(op);
    return TUTTI_OK;
}

static tutti_status start(struct tti_op *op)
{
    TTI_TRY(open_slot(op));
    show_call(op);
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
    return has_parts(op) ? run_parts(op) : run_plan(op);
}

tutti_status tti_shared_open(struct tti_op *op)
{
    if (op->state == TTI_OP_OPENING) TTI_TRY(start(op));
    return op->state == TTI_OP_RUNNING ? run_plan(op) : TUTTI_IN_PROGRESS; /* what is staged is small */
}

tutti_status tti_shared_progress(struct tti_op *op)
{
    if (op->state == TTI_OP_OPENING) TTI_TRY(start(op));
    if (op->state == TTI_OP_FAST) {
        /* Once only: in place, the result has taken the input's place. Who looks after a peer may ask once more. */
        tutti_status status = finish_fast(op);
        if (status == TUTTI_OK) op->state = TTI_OP_ENDED;
        return status;
    }
    return op->state == TTI_OP_ENDED ? TUTTI_OK : run(op);
}
