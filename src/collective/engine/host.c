/* SPDX-License-Identifier: Apache-2.0
 *
 * The provider `net`: ranks that have messages between them. Its ops run in host_run.c; here is what follows when one fails.
 */
#include "base/clock.h"
#include "collective/peers/local.h"
#include "collective/peers/net.h"

static void stop(struct tti_op *op)
{
    struct tti_lanes *lanes = op->comm->lanes;
    tti_net_lock(lanes->net);
    tti_lanes_stop(lanes);
    tti_net_unlock(lanes->net);
    if (op->entered && tti_local_covers(op->comm, op->shape.kind)) tti_local_stop(op);
}

static bool is_lost(const struct tti_lanes *lanes, int rank)
{
    return tti_table_get(&lanes->net->lost, tti_member(lanes->comm, rank)) != NULL || tti_lane_at(lanes, rank)->left;
}

/* With the lock held: whether the transport still reads or writes a buffer of the op. What goes to a peer that has left, or is
 * lost, is read until the transport says that it is not. */
static int find_busy(const struct tti_lanes *lanes)
{
    for (size_t i = 0; i < lanes->post_count; i++) {
        const struct tti_posted *posted = &lanes->posts[i];
        if (posted->begun && !posted->arrived && !is_lost(lanes, posted->peer)) return posted->peer;
    }
    for (size_t i = 0; i < lanes->shipment_count; i++)
        if (!lanes->shipments[i].done) return lanes->shipments[i].peer;
    return -1;
}

static bool go_on_with_copy(struct tti_lanes *lanes, struct tti_shipment *shipment)
{
    void *copy;
    if (!tti_net_copy(lanes->net->transport, tti_member(lanes->comm, shipment->peer), &shipment->outgoing, &copy))
        return false;
    tti_net_keep(lanes->net, copy);
    return true;
}

static void set_work_aside(struct tti_lanes *lanes)
{
    tti_net_keep(lanes->net, lanes->posts);
    tti_net_keep(lanes->net, lanes->shipments);
    lanes->posts = NULL;
    lanes->shipments = NULL;
    lanes->post_room = lanes->shipment_room = lanes->post_count = lanes->shipment_count = 0;
}

/* With the lock held: of peers that may not look for a long time, what is still to come is dropped, and what is still to go
 * goes out of copies, so that the op's buffers are free. A peer that goes on in the op meanwhile gets the right data. False:
 * there is no memory. */
static bool take_back(struct tti_lanes *lanes)
{
    struct tti_transport *transport = lanes->net->transport;
    bool all = true;
    for (size_t i = 0; i < lanes->shipment_count; i++)
        if (!lanes->shipments[i].done && !go_on_with_copy(lanes, &lanes->shipments[i])) all = false;
    for (size_t i = 0; i < lanes->post_count; i++) {
        const struct tti_posted *posted = &lanes->posts[i];
        if (posted->begun && !posted->arrived && !is_lost(lanes, posted->peer))
            transport->ops->drop(transport, tti_member(lanes->comm, posted->peer));
    }
    set_work_aside(lanes);
    return all;
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
    if (busy < 0 && tti_local_covers(op->comm, op->shape.kind)) busy = tti_local_reader(op);
    late &= busy >= 0;
    if (late) { /* never given back: somebody may still use it */
        lanes->temp = NULL;
        lanes->temp_bytes = 0;
    }
    tti_net_unlock(lanes->net);
    if (late) tti_comm_quarantine(op->comm, op->shape.kind, busy, op->in, op->out);
    return busy < 0 || late;
}

const struct tti_provider_ops tti_provider_net = {
    .name = "net",
    .issue = tti_host_open,
    .progress = tti_host_progress,
    .stop = stop,
    .fence = fence,
};
