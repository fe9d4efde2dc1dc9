/* SPDX-License-Identifier: Apache-2.0
 *
 * Does steps over links. They only post; the transport moves data while the plan goes on, and AWAIT and DRAIN steps say
 * which data it must have moved.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/engine/run.h"
#include "collective/peers/net.h"

#define MS INT64_C(1000000)
enum { ANSWER_MS = 2000 }; /* how long a peer that is in another call may take to say in which */

/* ---- Room ------------------------------------------------------------------------------------------------------ */

static bool grow(void **room, size_t *have, size_t want, size_t each)
{
    if (*have >= want) return true;
    void *more = tti_calloc(want, each);
    if (more == NULL) return false;
    tti_free(*room);
    *room = more;
    *have = want;
    return true;
}

static bool grow_temp(struct tti_lanes *lanes, size_t bytes)
{
    if (lanes->work.temp_bytes >= bytes) return true;
    void *more = tti_temp_alloc(lanes->comm, bytes);
    if (more == NULL) return false;
    tti_temp_release(lanes->comm, lanes->work.temp, false);
    lanes->work.temp = more;
    lanes->work.temp_bytes = bytes;
    return true;
}

bool tti_link_make_room(struct tti_op *op)
{
    struct tti_lanes *lanes = op->comm->lanes;
    const struct tti_plan *plan = op->walk.plan;
    if (tti_sim != NULL) tti_sim_expect(plan->posted.all_sends);
    return grow((void **)&lanes->work.posts, &lanes->work.post_room, plan->posted.receives,
                sizeof *lanes->work.posts) &&
           grow((void **)&lanes->work.packets, &lanes->work.packet_room, plan->posted.sends,
                sizeof *lanes->work.packets) &&
           grow_temp(lanes, plan->temp_bytes);
}

/* ---- Ranks that are elsewhere ---------------------------------------------------------------------------------- */

static tutti_status compare(struct tti_op *op, int peer, const struct tti_question *question)
{
    char text[640];
    if (!tti_lanes_differ(op->comm->lanes, peer, question, text, sizeof text)) return TUTTI_OK;
    return tti_comm_break(op->comm, (enum tti_kind)op->call.kind, TUTTI_ERR_MISMATCH, peer, "%s", text);
}

static tutti_status cut_short(struct tti_op *op, int peer)
{
    tutti_comm *comm = op->comm;
    char site[112];
    size_t element = tutti_type_bytes((tutti_type)op->call.type);
    uint64_t sent = comm->lanes->differs.sent, received = comm->lanes->differs.received;
    bool whole = element > 0 && sent % element == 0 && received % element == 0;
    if (!whole) element = 1;
    tti_site_describe(&op->call.site, site, sizeof site);
    return tti_comm_break(comm, op->shape.kind, TUTTI_ERR_MISMATCH, peer,
                          "counts differ in %s #%llu: rank %d sends %llu %s to rank %d%s, which receives %llu",
                          tti_kind_name(op->shape.kind), (unsigned long long)comm->sequence, peer,
                          (unsigned long long)(sent / element), whole ? "elements" : "bytes", comm->rank, site,
                          (unsigned long long)(received / element));
}

/* Called after a frame, or a question, showed that the peer made other calls: asks it which, and waits a little for the
 * answer, which breaks the comm. The lock is held; it is released for the break. */
tutti_status tti_link_mismatch(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_lanes *lanes = comm->lanes;
    int peer = lanes->differs.peer;
    struct tti_lane *lane = tti_lane_at(lanes, peer);
    struct tti_question question = {0};
    if (lane->question != NULL) question = *lane->question;
    bool cut = lanes->differs.cut, first = lanes->differs.asked_ns == 0;
    if (first && !cut) tti_lane_ask(lanes, peer, 0);
    if (first) lanes->differs.asked_ns = tti_now_ns();
    tti_net_unlock(lanes->net);
    tutti_status status = cut ? cut_short(op, peer) : compare(op, peer, &question);
    if (status == TUTTI_OK && tti_now_ns() - lanes->differs.asked_ns >= ANSWER_MS * MS) {
        char call[160];
        tti_call_describe(&op->call, call, sizeof call);
        status = tti_comm_break(comm, op->shape.kind, TUTTI_ERR_MISMATCH, peer,
                                "ranks differ at operation #%llu or before: rank %d called %s, but rank %d called "
                                "something else; all ranks must make the same calls in the same order",
                                (unsigned long long)comm->sequence, comm->rank, call, peer);
    }
    tti_net_lock(lanes->net);
    return status == TUTTI_OK ? TUTTI_IN_PROGRESS : status;
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

static char *address(const struct tti_op *op, const struct tti_region *region)
{
    return tti_op_address(op, region->rank, (enum tti_space)region->space, region->offset);
}

static __attribute__((noinline)) void post_send(struct tti_op *op, const struct tti_step *step)
{
    struct tti_lanes *lanes = op->comm->lanes;
    struct tti_packet *packet = &lanes->work.packets[lanes->work.packet_count++];
    packet->outgoing.head = (struct tti_frame_head){.comm = lanes->id,
                                                    .epoch = op->comm->traits.era.made,
                                                    .kind = TTI_FRAME_DATA,
                                                    .signature = lanes->signature,
                                                    .sequence = lanes->sequence,
                                                    .bytes = step->bytes};
    packet->outgoing.data = address(op, &step->source);
    tti_lane_send(lanes, step->peer, packet);
}

static __attribute__((noinline)) void post_receive(struct tti_op *op, const struct tti_step *step)
{
    struct tti_lanes *lanes = op->comm->lanes;
    struct tti_posted *posted = &lanes->work.posts[lanes->work.post_count++];
    posted->peer = step->peer;
    posted->target = address(op, &step->target);
    posted->bytes = step->bytes;
    tti_lane_post(lanes, posted);
}

static tutti_status await(struct tti_op *op, uint32_t value)
{
    struct tti_lanes *lanes = op->comm->lanes;
    while (lanes->work.arrived < value && lanes->work.posts[lanes->work.arrived].arrived) lanes->work.arrived++;
    if (lanes->work.arrived >= value) return TUTTI_OK;
    op->waiting_for = lanes->work.posts[lanes->work.arrived].peer;
    /* 0 for the first message, since the peer may not have come yet */
    op->awaited = op->walk.rounds + lanes->work.arrived;
    return TUTTI_IN_PROGRESS;
}

static tutti_status drain(struct tti_op *op, uint32_t value)
{
    struct tti_lanes *lanes = op->comm->lanes;
    while (lanes->work.drained < value && lanes->work.packets[lanes->work.drained].done) lanes->work.drained++;
    if (lanes->work.drained >= value) return TUTTI_OK;
    op->waiting_for = lanes->work.packets[lanes->work.drained].peer;
    op->awaited = 1;
    return TUTTI_IN_PROGRESS;
}

void tti_link_begin(struct tti_lanes *lanes)
{
    lanes->work.post_count = lanes->work.packet_count = lanes->work.arrived = lanes->work.drained = 0;
}

tutti_status tti_link_step(struct tti_op *op, const struct tti_step *step)
{
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_SEND: post_send(op, step); return TUTTI_OK;
    case TTI_STEP_RECV: post_receive(op, step); return TUTTI_OK;
    case TTI_STEP_AWAIT: return await(op, step->value);
    case TTI_STEP_DRAIN: return drain(op, step->value);
    default: return TUTTI_OK; /* AGAIN is done by the walk */
    }
}
