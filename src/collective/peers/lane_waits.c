/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks say of whom they wait for, and how they find that they wait in a round. Told in net.h.
 */
#include "base/clock.h"
#include "collective/peers/net.h"

#define MS INT64_C(1000000)
enum {
    TELL_MS = 100,        /* a wait so long is told to those that wait for this rank, */
    TELL_MOST_MS = 1000,  /* and again when it is half as long again, or after this */
    TELL_SLACK_MS = 1000, /* who has not told again by twice that and this much is taken for stopped */
    AGAIN_MS = 200        /* a probe may have found no place to wait in */
};

void tti_wait_hear(const struct tti_lanes *lanes, struct tti_lane *lane, const struct tti_frame_head *head)
{
    int64_t again_ms = head->tag < 0 ? 0 : head->tag < TELL_MOST_MS ? head->tag : TELL_MOST_MS;
    if (head->value >= (uint64_t)lanes->comm->size) return;
    lane->awaits = (int)head->value + 1;
    lane->awaits_message = head->type > TTI_LEAVE + 1 && head->type <= TTI_GROUP + 1 ? head->type : 0;
    lane->awaits_idle = head->type == TTI_WAITS_IDLE;
    lane->awaits_in = head->sequence;
    lane->awaits_stuck_in = head->signature;
    lane->awaits_until_ns = tti_now_ns() + (2 * again_ms + TELL_SLACK_MS) * MS;
}

int tti_lane_awaits(const struct tti_lanes *lanes, int peer)
{
    const struct tti_lane *lane = tti_lane_at(lanes, peer);
    if (lane == NULL || lane->awaits == 0 || lane->awaits_message != 0 || lane->awaits_in > lanes->sequence) return -1;
    return tti_now_ns() < lane->awaits_until_ns ? lane->awaits - 1 : -1;
}

int tti_lane_in_message(const struct tti_lane *lane, int *awaited)
{
    *awaited = lane->awaits - 1;
    return lane->awaits == 0 || tti_now_ns() >= lane->awaits_until_ns ? 0 : lane->awaits_message;
}

/* Whether it wants to know. */
static bool is_told(const struct tti_lanes *lanes, const struct tti_lane *lane, int in)
{
    return in > TTI_LEAVE + 1 ? lane->waits_in > TTI_LEAVE + 1 : lane->asked_in >= lanes->sequence;
}

void tti_lanes_tell(struct tti_lanes *lanes, int awaited, int in, uint32_t stuck_in, bool first)
{
    int64_t now = tti_now_ns();
    if (first) lanes->waits_ns = now;
    int64_t waited_ms = (now - lanes->waits_ns) / MS;
    int64_t again_ms = waited_ms < 2 * TELL_MOST_MS ? waited_ms / 2 : TELL_MOST_MS;
    if (waited_ms < TELL_MS) return;
    bool due = now >= lanes->tell_ns;
    if (due) lanes->tell_ns = now + again_ms * MS;
    lanes->tells = true;
    TTI_TABLE_EACH(place, &lanes->peers)
    {
        struct tti_lane *lane = lanes->peers.values[place];
        if (!is_told(lanes, lane, in) || (!due && lane->told_awaits == awaited + 1)) continue;
        lane->told_awaits = awaited + 1;
        tti_lane_say(lanes, lane->peer,
                     (struct tti_frame_head){.kind = TTI_FRAME_WAITS,
                                             .type = (uint16_t)in,
                                             .tag = (int32_t)again_ms,
                                             .signature = stuck_in,
                                             .sequence = lanes->sequence,
                                             .value = (uint64_t)awaited},
                     NULL);
    }
}

/* ---- Messages that have met nothing -------------------------------------------------------------------------------- */

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

static void answer_all(struct tti_lanes *lanes, const struct tti_waitable *waitable, int peer, int tag)
{
    TTI_TABLE_EACH(place, &lanes->peers)
    {
        struct tti_lane *lane = lanes->peers.values[place];
        bool told = lane->told_unmet == lane->asks_unmet && lane->told_unmet_as == lanes->asks_unmet;
        if (lane->asks_unmet == 0 || told) continue;
        struct tti_frame_head answer = {.kind = TTI_FRAME_UNMET,
                                        .type = (uint16_t)(waitable->kind + 1),
                                        .tag = tag,
                                        .signature = (uint32_t)peer,
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

bool tti_unmet_look(struct tti_lanes *lanes, const struct tti_waitable *waitable, int peer, int32_t edge, int tag,
                    struct tti_seen *seen)
{
    int64_t now = tti_now_ns();
    answer_all(lanes, waitable, peer, tag);
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
