/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider `net`, for ranks that exchange messages, and share memory with the ranks of their own host.
 */
#include "base/clock.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/engine/run.h"
#include "collective/peers/net.h"

enum { EAGER_BYTES = 256 << 10, EAGER_ONE_WAY_BYTES = 64 << 10 };

/* ---- Running --------------------------------------------------------------------------------------------------- */

static tutti_status build(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_shape *shape = &op->shape;
    shape->path = TTI_MESSAGES;
    shape->in_place = op->in_place;
    shape->accumulator = op->call.reduction == TTI_NO_REDUCTION ? 0 : tti_accumulator_bytes(&op->reducer);
    shape->scaled = op->reducer.code == TTI_REDUCE_SCALED_SUM;
    TTI_TRY(tti_run_build(op, shape, tti_posts_cover(comm, shape->kind) ? comm->memory->hosts : NULL));
    if (tti_sim != NULL && tti_sim_setup_of()->inspect != NULL)
        tti_sim_note(tti_plan_hash(op->walk.plan) + (uint64_t)shape->rank);
    return tti_link_make_room(op) ? TUTTI_OK : tti_run_no_memory(op);
}

static tutti_status no_memory(struct tti_op *op)
{
    return tti_comm_break(op->comm, op->shape.kind, TUTTI_ERR_MEMORY, op->comm->rank,
                          "rank %d has no memory for what other ranks send", op->comm->rank);
}

static void answer_all(struct tti_lanes *lanes)
{
    TTI_TABLE_EACH(place, &lanes->peers)
    {
        const struct tti_lane *lane = lanes->peers.values[place];
        if (lane->asks) tti_lane_answer(lanes, lane->peer);
    }
}

/* Returns up to how many bytes a message is sent without a grant. If data go one way the sender may be calls ahead of
 * the receiver, and data that come early are copied once more: so less is sent. But if ranks share cores, the sender
 * would have to wait for its receiver's turn, so the full amount is sent. */
static uint64_t eager_bytes(const struct tti_op *op)
{
    bool one_way = op->shape.root >= 0, crowded = op->comm->tuning.message_paired != 0;
    return one_way && !crowded ? EAGER_ONE_WAY_BYTES : EAGER_BYTES;
}

static void start(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_lanes *lanes = comm->lanes;
    lanes->sequence = comm->sequence;
    lanes->signature = comm->signature;
    lanes->eager = eager_bytes(op);
    lanes->calls[comm->sequence % TTI_NET_CALLS] = (struct tti_past_call){
        .sequence = comm->sequence, .signature = comm->signature, .call = op->call};
    tti_link_begin(lanes);
    if (lanes->questions > 0) answer_all(lanes);
    op->cursor = 0;
    op->entered = true;
    if (!tti_posts_cover(comm, op->shape.kind)) return;
    tti_post_show_places(op);
    tti_post_show(op);
}

static bool waits(const struct tti_op *op, tutti_status status)
{
    return status == TUTTI_IN_PROGRESS && !tti_comm_is_broken(op->comm);
}

/* Returns the rank of the world that the op waits for, if it waits for a small message: large ones come from all ranks
 * at once. */
static int awaited(const struct tti_op *op)
{
    const struct tti_lanes *lanes = op->comm->lanes;
    if (lanes->work.arrived == lanes->work.post_count) return TTI_NOBODY;
    const struct tti_posted *next = &lanes->work.posts[lanes->work.arrived];
    if (next->bytes > lanes->eager) return TTI_ANYBODY;
    return tti_member(op->comm, next->peer);
}

/* Takes the op as far as it goes; `moves`: also moves the transport. */
static tutti_status advance(struct tti_op *op, bool moves)
{
    struct tti_lanes *lanes = op->comm->lanes;
    bool opens = op->state == TTI_OP_OPENING;
    tutti_status status;
    if (opens) TTI_TRY(build(op));
    tti_net_lock(lanes->net);
    if (opens) start(op);
    do {
        status = tti_run_to(op, TTI_STEP_NONE);
        if (lanes->grants != NULL) tti_lanes_grant(lanes);
    } while (moves && waits(op, status) && tti_net_move(lanes->net, awaited(op)));
    bool failed = lanes->no_memory && status == TUTTI_IN_PROGRESS;
    tti_net_unlock(lanes->net);
    return failed ? no_memory(op) : status;
}

static tutti_status progress(struct tti_op *op)
{
    return advance(op, true);
}

static tutti_status issue(struct tti_op *op)
{
    return advance(op, false);
}

/* ---- Failing --------------------------------------------------------------------------------------------------- */

static void stop(struct tti_op *op)
{
    struct tti_lanes *lanes = op->comm->lanes;
    tti_net_lock(lanes->net);
    tti_lanes_stop(lanes);
    tti_net_unlock(lanes->net);
    if (op->entered && tti_posts_cover(op->comm, op->shape.kind)) tti_post_stop(op);
}

/* Returns a peer for which the transport still reads or writes a buffer of the op, or -1. Called with the lock held.
 * Data for a peer that has left, or is lost, are read until the transport says that they are not. */
static int find_busy(const struct tti_lanes *lanes)
{
    TTI_TABLE_EACH(place, &lanes->peers)
    if (tti_link_coming(lanes->peers.values[place], TTI_COLLECTIVES) != NULL)
        return tti_table_number(&lanes->peers, place);
    for (size_t i = 0; i < lanes->work.packet_count; i++)
        if (!lanes->work.packets[i].done) return lanes->work.packets[i].peer;
    return -1;
}

/* Frees the op's buffers of peers that may not poll for a long time: data still to come are dropped, data still to go
 * leave out of copies. A peer that goes on in the op meanwhile gets the right data. Called with the lock held. Returns
 * false if there is no memory. */
static bool take_back(struct tti_lanes *lanes)
{
    bool all = true;
    for (size_t i = 0; i < lanes->work.packet_count; i++) {
        struct tti_packet *packet = &lanes->work.packets[i];
        if (!packet->done && !tti_link_take_back(tti_lane_at(lanes, packet->peer), packet)) all = false;
    }
    TTI_TABLE_EACH(place, &lanes->peers) tti_link_drop(lanes->peers.values[place], TTI_COLLECTIVES);
    tti_net_keep(lanes->net, lanes->work.packets); /* the transport still marks them as done */
    lanes->work.packets = NULL;
    lanes->work.packet_room = lanes->work.packet_count = 0;
    return all;
}

/* Returns a rank that may still read this rank's buffers by their address, or -1. */
static int find_reader(const struct tti_op *op)
{
    const struct tti_posts *here = op->comm->memory;
    /* there is nothing to read, and a rank that has passed a barrier does not say that it has left */
    if (op->shape.kind == TTI_BARRIER || op->shape.kind == TTI_TUNING) return -1;
    for (int place = 0; place < here->count; place++) {
        bool left = atomic_load_explicit(&here->posts[place].left, memory_order_acquire) != TTI_STAYS;
        if (!left && tti_post_may_touch(op, place, false)) return tti_rank_here(op->comm, place);
    }
    return -1;
}

static bool fence(struct tti_op *op, int64_t until_ns)
{
    struct tti_lanes *lanes = op->comm->lanes;
    if (!op->entered) return true;
    tti_net_pump(lanes->net);
    tti_net_lock(lanes->net);
    bool late = tti_now_ns() >= until_ns;
    int busy = find_busy(lanes);
    if (busy >= 0 && late && take_back(lanes)) busy = -1;
    if (busy < 0 && tti_posts_cover(op->comm, op->shape.kind)) busy = find_reader(op);
    late &= busy >= 0;
    if (late) { /* the memory is never freed: some rank may still use it */
        lanes->work.temp = NULL;
        lanes->work.temp_bytes = 0;
    }
    tti_net_unlock(lanes->net);
    if (late) tti_comm_quarantine(op->comm, op->shape.kind, busy, op->in, op->out);
    return busy < 0 || late;
}

const struct tti_host_provider tti_provider_net = {
    .ops = {.name = "net", .progress = progress, .stop = stop, .fence = fence},
    .issue = issue,
};
