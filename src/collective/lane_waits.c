/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in blocking messages that wait in a round, each for the next, and have met nothing: told in net.h.
 */
#include "base/clock.h"
#include "collective/net.h"

#define MS INT64_C(1000000)
enum { AGAIN_MS = 200 }; /* a probe may have found no place to wait in */

void tti_unmet_hear(struct tti_lane *lane, const struct tti_frame_head *head)
{
    lane->unmet_number = (int32_t)head->value;
    lane->unmet_as = (int32_t)head->sequence;
    lane->unmet = (struct tti_seen){
        .message = head->type <= TTI_GROUP + 1 ? head->type : 0, .tag = head->tag, .awaited = (int)head->signature};
}

void tti_probe_hear(struct tti_lanes *lanes, const struct tti_frame_head *head)
{
    if (lanes->probe_count == TTI_NET_PROBES) return;
    lanes->probes[lanes->probe_count++] = (struct tti_probe){
        .first = (int)head->value, .number = (int32_t)head->sequence, .expects = head->tag, .hops = head->type};
}

int32_t tti_unmet_edge(const struct tti_lanes *lanes, int peer)
{
    tti_net_lock(lanes->net);
    const struct tti_lane *lane = tti_lane_at(lanes, peer);
    bool answered = lane != NULL && lanes->asks_unmet != 0 && lane->unmet_number == lanes->asks_unmet;
    int32_t edge = answered ? lane->unmet_as : 0;
    tti_net_unlock(lanes->net);
    return edge;
}

static void answer_all(struct tti_lanes *lanes, const struct tti_waitable *waitable, int tag)
{
    TTI_TABLE_EACH(place, &lanes->peers)
    {
        struct tti_lane *lane = lanes->peers.values[place];
        bool told = lane->told_unmet == lane->asks_unmet && lane->told_unmet_as == lanes->asks_unmet;
        if (lane->asks_unmet == 0 || told) continue;
        struct tti_frame_head answer = {.kind = TTI_FRAME_UNMET,
                                        .type = (uint16_t)(waitable->kind + 1),
                                        .tag = tag,
                                        .signature = (uint32_t)*waitable->waiting_for,
                                        .sequence = (uint64_t)lanes->asks_unmet,
                                        .value = (uint64_t)lane->asks_unmet};
        if (!tti_lane_say(lanes, lane->peer, answer, NULL)) continue;
        lane->told_unmet = lane->asks_unmet;
        lane->told_unmet_as = lanes->asks_unmet;
    }
}

static void send_probe(struct tti_lanes *lanes, int peer, struct tti_probe probe, int32_t edge)
{
    tti_lane_say(lanes, peer,
                 (struct tti_frame_head){.kind = TTI_FRAME_PROBE,
                                         .type = (uint16_t)(probe.hops + 1),
                                         .tag = edge,
                                         .sequence = (uint64_t)probe.number,
                                         .value = (uint64_t)probe.first},
                 NULL);
}

/* Sends on those that have come this way; true: one has come from the peer that it would be sent on to. */
static bool pass_on(struct tti_lanes *lanes, int peer, int32_t edge)
{
    bool round = false;
    for (int i = 0; i < lanes->probe_count; i++) {
        struct tti_probe probe = lanes->probes[i];
        if (probe.expects != lanes->asks_unmet) continue; /* of an earlier wait */
        if (probe.first == peer && probe.number == edge)
            round = true;
        else if (probe.hops < lanes->comm->size)
            send_probe(lanes, peer, probe, edge);
    }
    lanes->probe_count = 0;
    return round;
}

bool tti_unmet_look(struct tti_lanes *lanes, const struct tti_waitable *waitable, int32_t edge, int tag,
                    struct tti_seen *seen)
{
    int peer = *waitable->waiting_for;
    int64_t now = tti_now_ns();
    answer_all(lanes, waitable, tag);
    if (edge == 0) return false; /* probes wait until the peer has answered */
    bool round = pass_on(lanes, peer, edge);
    if (lanes->probed != lanes->asks_unmet || now >= lanes->probe_ns) {
        send_probe(lanes, peer, (struct tti_probe){.first = lanes->comm->rank, .number = lanes->asks_unmet}, edge);
        lanes->probed = lanes->asks_unmet;
        lanes->probe_ns = now + AGAIN_MS * MS;
    }
    *seen = tti_lane_at(lanes, peer)->unmet;
    return round && seen->message > TTI_LEAVE + 1;
}
