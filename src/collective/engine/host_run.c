/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans over messages. Message steps only post; the transport moves data while the plan goes on, and AWAIT and DRAIN steps say
 * where it must have moved them.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/engine/engine.h"
#include "collective/peers/local.h"
#include "collective/peers/net.h"

#define MS INT64_C(1000000)
enum {
    ANSWER_MS = 2000, /* how long a peer that is elsewhere may take to say where */
    EAGER_BYTES = 256 << 10,
    EAGER_ONE_WAY_BYTES = 64 << 10
};

/* ---- The plan -------------------------------------------------------------------------------------------------- */

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
    if (lanes->temp_bytes >= bytes) return true;
    void *more = tti_local_alloc(lanes->comm, bytes);
    if (more == NULL) return false;
    tti_local_release(lanes->comm, lanes->temp, false);
    lanes->temp = more;
    lanes->temp_bytes = bytes;
    return true;
}

/* Messages that a plan posts: before receives and sends are counted anew, at most, and in all. */
struct postings {
    size_t sends, receives;
    uint64_t all_sends;
};

static struct postings count_postings(const struct tti_plan *plan)
{
    struct postings most = {0}, turn = {0};
    for (size_t i = 0; i < plan->count; i++) {
        const struct tti_step *step = &plan->steps[i];
        turn.sends += step->kind == TTI_STEP_SEND;
        turn.receives += step->kind == TTI_STEP_RECV;
        bool again = step->kind == TTI_STEP_AGAIN;
        if (!again && i + 1 < plan->count) continue;
        most.all_sends += turn.sends * (again ? step->value : 1);
        if (turn.sends > most.sends) most.sends = turn.sends;
        if (turn.receives > most.receives) most.receives = turn.receives;
        turn = (struct postings){0};
    }
    return most;
}

static bool make_room(struct tti_lanes *lanes, const struct tti_plan *plan)
{
    struct postings most = count_postings(plan);
    if (tti_sim != NULL) tti_sim_expect(most.all_sends);
    return grow((void **)&lanes->posts, &lanes->post_room, most.receives, sizeof *lanes->posts) &&
           grow((void **)&lanes->shipments, &lanes->shipment_room, most.sends, sizeof *lanes->shipments) &&
           grow_temp(lanes, plan->temp_bytes);
}

static tutti_status build(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_shape *shape = &op->shape;
    shape->path = TTI_MESSAGES;
    shape->in_place = op->in_place;
    shape->accumulator = op->call.reduction == TTI_NO_REDUCTION ? 0 : tti_accumulator_bytes(&op->reducer);
    shape->scaled = op->reducer.code == TTI_REDUCE_SCALED_SUM;
    const struct tti_hosts *hosts = tti_local_covers(comm, shape->kind) ? comm->local->hosts : NULL;
    op->walk.plan = tti_plan_cache_get(&comm->engine->plans, shape, hosts);
    if (op->walk.plan != NULL && tti_sim != NULL && tti_sim_setup_of()->look != NULL)
        tti_sim_note(tti_plan_hash(op->walk.plan) + (uint64_t)shape->rank);
    if (op->walk.plan != NULL && make_room(comm->lanes, op->walk.plan)) return TUTTI_OK;
    return tti_comm_break(comm, shape->kind, TUTTI_ERR_MEMORY, comm->rank, "rank %d has no memory for the plan of %s",
                          comm->rank, tti_kind_name(shape->kind));
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

/* A frame, or a question, showed that `peer` made other calls: asks it which, and waits a little for the answer, which breaks
 * the comm. With the lock held; it is released for the break. */
static tutti_status mismatch(struct tti_op *op)
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

static void post_send(struct tti_op *op, const struct tti_step *step)
{
    struct tti_lanes *lanes = op->comm->lanes;
    struct tti_shipment *shipment = &lanes->shipments[lanes->shipment_count++];
    shipment->outgoing.head = (struct tti_frame_head){.comm = lanes->id,
                                                      .epoch = op->comm->traits.era.made,
                                                      .kind = TTI_FRAME_DATA,
                                                      .signature = lanes->signature,
                                                      .sequence = lanes->sequence,
                                                      .bytes = step->bytes};
    shipment->outgoing.data = tti_host_address(op, &step->source);
    tti_lane_send(lanes, step->peer, shipment);
}

static void post_receive(struct tti_op *op, const struct tti_step *step)
{
    struct tti_lanes *lanes = op->comm->lanes;
    struct tti_posted *posted = &lanes->posts[lanes->post_count++];
    posted->peer = step->peer;
    posted->target = tti_host_address(op, &step->target);
    posted->bytes = step->bytes;
    tti_lane_post(lanes, posted);
}

static tutti_status await(struct tti_op *op, uint32_t value)
{
    struct tti_lanes *lanes = op->comm->lanes;
    while (lanes->arrived < value && lanes->posts[lanes->arrived].arrived) lanes->arrived++;
    if (lanes->arrived >= value) return TUTTI_OK;
    op->waiting_for = lanes->posts[lanes->arrived].peer;
    op->awaited = op->walk.rounds + lanes->arrived; /* 0: the first message, so the peer may not have come yet */
    return TUTTI_IN_PROGRESS;
}

static tutti_status drain(struct tti_op *op, uint32_t value)
{
    struct tti_lanes *lanes = op->comm->lanes;
    while (lanes->drained < value && lanes->shipments[lanes->drained].done) lanes->drained++;
    if (lanes->drained >= value) return TUTTI_OK;
    op->waiting_for = lanes->shipments[lanes->drained].peer;
    op->awaited = 1;
    return TUTTI_IN_PROGRESS;
}

/* All that was posted is done: its places can be used again. */
static void go_on(struct tti_op *op, const struct tti_step *step)
{
    struct tti_lanes *lanes = op->comm->lanes;
    bool again = ++op->walk.turn < step->value;
    op->walk.rounds++;
    lanes->post_count = lanes->shipment_count = lanes->arrived = lanes->drained = 0;
    op->walk.step = again ? step->first : op->walk.step + 1;
    op->walk.shift = again ? op->walk.shift + step->bytes : 0;
    op->walk.numbers = again ? op->walk.numbers + (uint32_t)step->sources : 0;
    if (!again) op->walk.turn = 0;
}

static tutti_status message_step(struct tti_op *op, const struct tti_step *step)
{
    switch ((enum tti_step_kind)step->kind) {
    case TTI_STEP_SEND: post_send(op, step); return TUTTI_OK;
    case TTI_STEP_RECV: post_receive(op, step); return TUTTI_OK;
    case TTI_STEP_AWAIT: return await(op, step->value);
    case TTI_STEP_WAIT: return tti_local_wait(op, step);
    case TTI_STEP_DRAIN: return drain(op, step->value);
    default: return TUTTI_OK; /* AGAIN */
    }
}

static bool is_message(const struct tti_step *step)
{
    return step->kind >= TTI_STEP_SEND || step->kind == TTI_STEP_WAIT;
}

/* Grants go out together, before anything that takes time. */
static void let_go(struct tti_lanes *lanes)
{
    if (lanes->grants != NULL) tti_lanes_grant(lanes);
    tti_net_unlock(lanes->net);
}

/* With the lock held, except for what takes time. What goes past the caches is a piece of something large, beside which other
 * things travel. */
static tutti_status run_step(struct tti_op *op, const struct tti_step *step)
{
    struct tti_lanes *lanes = op->comm->lanes;
    if (!is_message(step)) {
        let_go(lanes);
        tutti_status status = tti_host_data_step(op, step);
        tti_net_lock(lanes->net);
        if (step->store == TTI_STREAMED) tti_net_move(lanes->net, TTI_ANYBODY);
        return status;
    }
    if (lanes->differs.peer >= 0 && !tti_comm_is_broken(op->comm)) return mismatch(op);
    return message_step(op, step);
}

static tutti_status run_plan(struct tti_op *op)
{
    while (op->walk.step < op->walk.plan->count) {
        const struct tti_step *step = &op->walk.plan->steps[op->walk.step];
        TTI_TRY(run_step(op, step));
        tti_trace_step(op, step);
        if (step->kind == TTI_STEP_AGAIN)
            go_on(op, step);
        else
            op->walk.step++;
    }
    return TUTTI_OK;
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

/* Where data go one way who sends may be calls ahead of who receives, and what comes early is copied once more. But one that
 * shares its core with others would have to be waited for, to say that it is there. */
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
    lanes->post_count = lanes->shipment_count = lanes->arrived = lanes->drained = 0;
    if (lanes->questions > 0) answer_all(lanes);
    op->walk.step = 0;
    op->walk.turn = op->walk.rounds = op->walk.numbers = 0;
    op->walk.shift = 0;
    op->cursor = 0;
    op->entered = true;
    op->state = TTI_OP_RUNNING;
}

static bool waits(const struct tti_op *op, tutti_status status)
{
    return status == TUTTI_IN_PROGRESS && !tti_comm_is_broken(op->comm);
}

/* The rank of the world that the op waits for, if it is for a small message: large ones come from all at once. */
static int awaited(const struct tti_op *op)
{
    const struct tti_lanes *lanes = op->comm->lanes;
    if (lanes->arrived == lanes->post_count) return TTI_NOBODY;
    const struct tti_posted *next = &lanes->posts[lanes->arrived];
    if (next->bytes > lanes->eager) return TTI_ANYBODY;
    return tti_member(op->comm, next->peer);
}

/* The op as far as it goes; `moves`: as the transport brings things. */
static tutti_status advance(struct tti_op *op, bool moves)
{
    struct tti_lanes *lanes = op->comm->lanes;
    tutti_status status;
    if (op->state == TTI_OP_OPENING) TTI_TRY(build(op));
    tti_net_lock(lanes->net);
    if (op->state == TTI_OP_OPENING) start(op);
    do {
        status = run_plan(op);
        if (lanes->grants != NULL) tti_lanes_grant(lanes);
    } while (moves && waits(op, status) && tti_net_move(lanes->net, awaited(op)));
    bool failed = lanes->no_memory && status == TUTTI_IN_PROGRESS;
    tti_net_unlock(lanes->net);
    return failed ? no_memory(op) : status;
}

tutti_status tti_host_progress(struct tti_op *op)
{
    return advance(op, true);
}

tutti_status tti_host_open(struct tti_op *op)
{
    return advance(op, false);
}
