/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/peers/link.h"

#include "base/alloc.h"
#include "base/sim.h"
#include "collective/peers/net.h"
#include <assert.h>

/* The least that a packet counts for, and after how many bytes the sender is told that they were received. */
static const struct {
    uint64_t least, step;
} terms[TTI_PURPOSES] = {
    [TTI_COLLECTIVES] = {TTI_LINK_CHARGE, TTI_LINK_WINDOW / 2}, [TTI_LETTERS] = {0, TTI_LINK_WINDOW / 4}};

static uint64_t charge_of(enum tti_purpose purpose, uint64_t bytes)
{
    return bytes < terms[purpose].least ? terms[purpose].least : bytes;
}

/* Invariant of a lane's credits: holds whenever nobody is changing them. */
static __attribute__((unused)) bool are_sound(const struct tti_credits *credits)
{
    bool window = credits->granted <= credits->sent && credits->sent - credits->granted <= TTI_LINK_WINDOW;
    bool large = credits->large_sent <= credits->large_granted;
    bool held = (credits->held == NULL) == (credits->held_last == &credits->held);
    return window && large && held && credits->told <= credits->taken;
}

/* ---- Sending --------------------------------------------------------------------------------------------------- */

bool tti_link_has_room(const struct tti_lane *lane, enum tti_purpose purpose, uint64_t bytes)
{
    const struct tti_credits *credits = &lane->credits[purpose];
    return credits->sent - credits->granted + charge_of(purpose, bytes) <= TTI_LINK_WINDOW;
}

static bool may_go(const struct tti_lane *lane, enum tti_purpose purpose, const struct tti_packet *packet)
{
    const struct tti_credits *credits = &lane->credits[purpose];
    if (packet->leaves == TTI_WHEN_POSTED) return credits->large_sent < credits->large_granted;
    return packet->leaves == TTI_WHEN_ACCEPTED || tti_link_has_room(lane, purpose, packet->outgoing.head.bytes);
}

static void is_done(struct tti_packet *packet, tutti_status status)
{
    packet->done = true;
    if (packet->gone != NULL) packet->gone(packet, status);
}

/* A lost peer is found by the wait. */
static void done(struct tti_outgoing *outgoing, tutti_status status)
{
    struct tti_packet *packet = (struct tti_packet *)outgoing;
    tti_free(packet->copy);
    packet->copy = NULL;
    is_done(packet, status);
}

/* Sends the packet. Returns true if it is done already. */
static bool let_go(struct tti_lane *lane, enum tti_purpose purpose, struct tti_packet *packet)
{
    struct tti_transport *transport = lane->lanes->net->transport;
    if (packet->leaves == TTI_WHEN_POSTED)
        lane->credits[purpose].large_sent++;
    else if (packet->leaves == TTI_WITHIN_WINDOW)
        lane->credits[purpose].sent += charge_of(purpose, packet->outgoing.head.bytes);
    assert(are_sound(&lane->credits[purpose]));
    packet->outgoing.both_ways = lane->posted != NULL;
    if (!transport->ops->send(transport, lane->world_rank, &packet->outgoing)) return false;
    is_done(packet, TUTTI_OK);
    return true;
}

bool tti_link_send(struct tti_lane *lane, enum tti_purpose purpose, struct tti_packet *packet)
{
    struct tti_credits *credits = &lane->credits[purpose];
    packet->peer = lane->peer;
    packet->done = false;
    packet->copy = NULL;
    packet->next = NULL;
    packet->outgoing.done = done;
    if (credits->held == NULL && may_go(lane, purpose, packet)) return let_go(lane, purpose, packet);
    *credits->held_last = packet;
    credits->held_last = &packet->next;
    return false;
}

static void let_held_go(struct tti_lane *lane, enum tti_purpose purpose)
{
    struct tti_credits *credits = &lane->credits[purpose];
    while (credits->held != NULL && may_go(lane, purpose, credits->held)) {
        struct tti_packet *packet = credits->held;
        credits->held = packet->next;
        if (credits->held == NULL) credits->held_last = &credits->held;
        let_go(lane, purpose, packet);
    }
}

bool tti_link_take_back(struct tti_lane *lane, struct tti_packet *packet)
{
    return tti_net_copy(lane->lanes->net->transport, lane->world_rank, &packet->outgoing, &packet->copy);
}

void tti_link_stop(struct tti_lane *lane, enum tti_purpose purpose)
{
    struct tti_credits *credits = &lane->credits[purpose];
    for (struct tti_packet *held = credits->held; held != NULL; held = held->next) held->done = true;
    credits->held = NULL;
    credits->held_last = &credits->held;
}

/* ---- Credit ---------------------------------------------------------------------------------------------------- */

/* Takes the lane off the list of peers that are to be told what was posted for them. */
static void owe_no_more(struct tti_lane *lane)
{
    struct tti_lane **link = &lane->lanes->grants;
    if (!lane->grants) return;
    while (*link != lane) link = &(*link)->next_grant;
    *link = lane->next_grant;
    lane->grants = false;
}

static void grant(struct tti_lane *lane, enum tti_purpose purpose)
{
    struct tti_credits *credits = &lane->credits[purpose];
    if (purpose == TTI_COLLECTIVES) owe_no_more(lane);
    struct tti_frame_head head = {
        .kind = TTI_FRAME_GRANT, .type = (uint16_t)purpose, .value = credits->taken, .sequence = credits->large_posted};
    if (tti_lane_say(lane->lanes, lane->peer, head, NULL))
        credits->told = credits->taken;
    else if (purpose == TTI_COLLECTIVES)
        lane->lanes->no_memory =
            true; /* the peer would wait for it; of letters it hears when the next one is received */
}

void tti_link_take(struct tti_lane *lane, enum tti_purpose purpose, uint64_t bytes)
{
    struct tti_credits *credits = &lane->credits[purpose];
    credits->taken += charge_of(purpose, bytes);
    if (credits->taken - credits->told >= terms[purpose].step) grant(lane, purpose);
    assert(are_sound(credits));
}

void tti_link_expect(struct tti_lane *lane, enum tti_purpose purpose)
{
    struct tti_lane **link = &lane->lanes->grants;
    lane->credits[purpose].large_posted++;
    if (lane->grants) return;
    lane->grants = true;
    while (*link != NULL && (*link)->peer < lane->peer) link = &(*link)->next_grant;
    lane->next_grant = *link;
    *link = lane;
}

void tti_lanes_grant(struct tti_lanes *lanes)
{
    while (lanes->grants != NULL) grant(lanes->grants, TTI_COLLECTIVES);
}

void tti_link_hear_grant(struct tti_lane *lane, const struct tti_frame_head *head)
{
    enum tti_purpose purpose = head->type == TTI_LETTERS ? TTI_LETTERS : TTI_COLLECTIVES;
    struct tti_credits *credits = &lane->credits[purpose];
    if (head->value > credits->granted && head->value <= credits->sent) credits->granted = head->value;
    if (head->sequence > credits->large_granted) credits->large_granted = head->sequence;
    let_held_go(lane, purpose);
    assert(are_sound(credits));
}

/* ---- Receiving ------------------------------------------------------------------------------------------------- */

struct tti_aside *tti_aside_new(int peer, const struct tti_frame_head *head)
{
    bool comes = tti_sim == NULL || !tti_sim_setup_of()->sizes_only || head->bytes <= TTI_SIM_SMALL_BYTES;
    struct tti_aside *aside = tti_malloc(1, sizeof *aside + (comes ? head->bytes : 0));
    if (aside == NULL) return NULL;
    *aside = (struct tti_aside){.peer = peer, .head = *head};
    tti_list_init(&aside->on);
    return aside;
}

static struct tti_coming *coming_of(const struct tti_lane *lane, enum tti_purpose purpose)
{
    struct tti_coming *coming = tti_table_get(&lane->lanes->net->coming, lane->world_rank);
    bool is = coming != NULL && coming->receive != NULL && coming->lanes == lane->lanes && coming->purpose == purpose;
    return is ? coming : NULL;
}

const void *tti_link_coming(const struct tti_lane *lane, enum tti_purpose purpose)
{
    const struct tti_coming *coming = coming_of(lane, purpose);
    return coming == NULL ? NULL : coming->receive;
}

void tti_link_drop(struct tti_lane *lane, enum tti_purpose purpose)
{
    struct tti_transport *transport = lane->lanes->net->transport;
    struct tti_coming *coming = coming_of(lane, purpose);
    if (coming == NULL) return;
    transport->ops->drop(transport, lane->world_rank);
    coming->receive = NULL;
}
