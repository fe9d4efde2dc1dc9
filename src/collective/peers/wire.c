/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers by wire: ranks that exchange frames over a transport, how they see each other, sleep and leave.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "collective/peers/local.h"
#include "collective/peers/net.h"
#include <stdio.h>

#define MS INT64_C(1000000)
enum {
    SLEEP_MS = 2,       /* another thread may have received what this one sleeps for, */
    SLEEP_SHARE = 32,   /* which then comes late by this part of the wait at most, where that is more */
    TOLD_AT_ONCE = 64,  /* in a comm of so many, all are told that a rank leaves it */
    DELIVERED_MS = 500, /* how long a rank that leaves the world waits until the others have got that */
    HEARD_LAST = 100    /* looks at what has come when it leaves, as long as there is something */
};

/* ---- Seeing others --------------------------------------------------------------------------------------------- */

static int find_lost(tutti_comm *comm, bool look, char *who, size_t bytes)
{
    struct tti_net *net = comm->lanes->net;
    int lost = -1;
    (void)look;
    tti_net_lock(net); /* another thread may note one more that is lost, and move the table */
    for (int rank = 0; net->lost.room > 0 && rank < comm->size && lost < 0; rank++) {
        const char *why = tti_table_get(&net->lost, tti_member(comm, rank));
        if (why == NULL) continue;
        snprintf(who, bytes, "%s", why);
        lost = rank;
    }
    tti_net_unlock(net);
    return lost;
}

/* By its word alone, which comes after all that it has sent: its mark in shared memory could be seen before. */
static enum tti_presence presence(const tutti_comm *comm, int rank)
{
    tti_net_lock(comm->lanes->net);
    const struct tti_lane *lane = tti_lane_at(comm->lanes, rank);
    bool left = lane != NULL && lane->left, leaving = lane != NULL && lane->leaving;
    tti_net_unlock(comm->lanes->net);
    return left ? TTI_PEER_LEFT : leaving ? TTI_PEER_LEAVING : TTI_PEER_HERE;
}

static int find_absent(const tutti_comm *comm, int awaited)
{
    const struct tti_lanes *lanes = comm->lanes;
    int absent = presence(comm, awaited) == TTI_PEER_LEFT ? awaited : -1;
    tti_net_lock(lanes->net);
    TTI_TABLE_EACH(place, &lanes->peers)
    {
        const struct tti_lane *lane = lanes->peers.values[place];
        if (absent < 0 && lane->left_before != 0 && lane->left_before <= lanes->sequence) absent = lane->peer;
    }
    tti_net_unlock(lanes->net);
    return absent;
}

static uint64_t mark_of(const tutti_comm *comm, int rank)
{
    tti_net_lock(comm->lanes->net);
    const struct tti_lane *lane = tti_lane_at(comm->lanes, rank);
    uint64_t mark = lane == NULL ? 0 : lane->sequence << 8 | (lane->posted != NULL);
    tti_net_unlock(comm->lanes->net);
    return mark ^ tti_local_mark(comm, rank);
}

static void describe(const tutti_comm *comm, int rank, char *text, size_t bytes)
{
    struct tti_lanes *lanes = comm->lanes;
    tti_net_lock(lanes->net);
    const struct tti_lane *lane = tti_lane_at(lanes, rank);
    uint64_t sequence = lane == NULL ? 0 : lane->sequence, here = tti_local_mark(comm, rank) >> 32;
    if (here > sequence) sequence = here;
    const struct tti_past_call *past = sequence == 0 ? NULL : tti_past_call(lanes, sequence);
    char call[160] = "", wait[64] = "";
    int awaited = comm->rank, waits_in = lane == NULL ? 0 : lane->waits_in - 1;
    if (lane != NULL && waits_in <= TTI_LEAVE) waits_in = tti_lane_in_message(lane, &awaited) - 1;
    if (waits_in > TTI_LEAVE)
        snprintf(wait, sizeof wait, " and it said that it waits in %s for rank %d",
                 tti_kind_name((enum tti_kind)waits_in), awaited);
    const struct tti_past_call *told = lane == NULL ? NULL : tti_lane_told(lane);
    bool newest = told != NULL && told->sequence >= sequence, ahead = sequence > lanes->sequence;
    if (newest) {
        past = told;
        sequence = told->sequence;
    }
    if (past != NULL) tti_call_describe(&past->call, call, sizeof call);
    tti_net_unlock(lanes->net);
    if (newest)
        snprintf(text, bytes, "rank %d's last call was #%llu %s%s", rank, (unsigned long long)sequence, call, wait);
    else if (sequence == 0)
        snprintf(text, bytes, "rank %d has not been heard of in a collective on this comm%s", rank, wait);
    else if (ahead)
        snprintf(text, bytes, "rank %d was last heard of in #%llu, which rank %d has not called", rank,
                 (unsigned long long)sequence, comm->rank);
    else
        snprintf(text, bytes, "rank %d was last heard of in #%llu %s%s", rank, (unsigned long long)sequence, call,
                 wait);
}

/* Whether the op that runs cannot end here before the peer has posted a receive of it. */
static bool waits_to_send(const struct tti_lanes *lanes, const struct tti_lane *lane)
{
    return lane->held != NULL && lane->held->outgoing.head.bytes > lanes->eager;
}

/* Whether this rank, in a blocking collective with nothing else in flight, cannot go on without the peer. */
static bool is_stuck(const struct tti_lanes *lanes, int peer, int awaited)
{
    const struct tti_past_call *now = tti_past_call(lanes, lanes->sequence);
    const struct tti_lane *lane = tti_lane_at(lanes, peer);
    if (now == NULL) return false;
    if (peer == awaited && tti_local_awaits(lanes->comm, (enum tti_kind)now->call.kind, peer)) return true;
    if (lane != NULL && (lane->posted != NULL || waits_to_send(lanes, lane))) return true;
    return tti_call_depends(&now->call, lanes->comm->rank, peer);
}

/* Whether this rank, in a blocking collective with nothing else in flight, sends and publishes nothing more before the peer
 * that it waits for has: nothing of its own is on its way. */
static bool is_idle(const struct tti_lanes *lanes, int awaited)
{
    const struct tti_past_call *now = tti_past_call(lanes, lanes->sequence);
    for (size_t i = lanes->drained; i < lanes->shipment_count; i++)
        if (!lanes->shipments[i].done) return false;
    if (now != NULL && tti_local_awaits(lanes->comm, (enum tti_kind)now->call.kind, awaited)) return true;
    const struct tti_posted *next = lanes->arrived < lanes->post_count ? &lanes->posts[lanes->arrived] : NULL;
    return next != NULL && next->peer == awaited && !next->begun;
}

/* The op for lack of which by `last` this rank, which waits for `awaited`, is stuck in the end: its own, or one that was told
 * along with whom that one is stuck for; 0: none that is certain. Each waits in an earlier op than the one before, or idly in
 * the same: what it had sent came before its word, and what it had published is seen. */
static uint32_t stuck_in(const struct tti_lanes *lanes, int awaited, int last)
{
    const struct tti_lane *lane = tti_lane_at(lanes, awaited);
    if (!is_stuck(lanes, awaited, awaited)) return 0;
    if (last == awaited) return (uint32_t)lanes->sequence;
    if (lane == NULL || lane->awaits != last + 1) return 0;
    bool earlier = lane->awaits_in < lanes->sequence, idle = lane->awaits_idle && lane->awaits_in == lanes->sequence;
    return earlier || idle ? lane->awaits_stuck_in : 0;
}

/* Those that have asked out of a message, are behind, and are needed, in the end; else they hear who is. */
static void ask_back(struct tti_lanes *lanes, int awaited)
{
    int third = is_stuck(lanes, awaited, awaited) ? awaited : -1;
    TTI_TABLE_EACH(place, &lanes->peers)
    {
        struct tti_lane *lane = lanes->peers.values[place];
        bool direct = is_stuck(lanes, lane->peer, awaited);
        uint32_t in = direct ? 0 : stuck_in(lanes, awaited, lane->peer);
        int needed = direct || in != 0 ? lane->peer : third;
        bool told = lane->told_stuck == needed + 1 && lane->told_in == lanes->sequence;
        if (!lane->in_message || lane->sequence >= lanes->sequence || needed < 0 || told) continue;
        lane->told_stuck = needed + 1;
        lane->told_in = lanes->sequence;
        tti_lane_ask(lanes, lane->peer, TTI_ASK_STUCK, needed, (int32_t)in);
    }
}

/* The newest call of a rank that cannot end it before this one has called it, or `third` has, which is set then; NULL: there
 * is no such call, as far as it has said. */
static const struct tti_past_call *stuck_call(const struct tti_lanes *lanes, int rank, int *third)
{
    const struct tti_lane *lane = tti_lane_at(lanes, rank);
    const struct tti_past_call *told = lane == NULL ? NULL : tti_lane_told(lane);
    if (told == NULL || !lane->stuck || told->sequence <= lanes->sequence) return NULL;
    if (lane->stuck_in != 0 && (int32_t)(lane->stuck_in - (uint32_t)lanes->sequence) <= 0) return NULL;
    *third = lane->stuck_for == lanes->comm->rank ? -1 : lane->stuck_for;
    return told;
}

/* Whether the peer waits for this rank, or for a third one that does so in an earlier call. */
static bool waits_here(const struct tti_lanes *lanes, int peer)
{
    int third = -1, fourth = -1;
    const struct tti_past_call *call = stuck_call(lanes, peer, &third);
    if (call == NULL || third < 0) return call != NULL;
    const struct tti_past_call *before = stuck_call(lanes, third, &fourth);
    return before != NULL && fourth < 0 && before->sequence < call->sequence;
}

static uint16_t how_it_waits(const struct tti_lanes *lanes, const struct tti_waitable *waitable, int peer)
{
    if (waitable->passing || (waitable->started && waitable->kind <= TTI_LEAVE)) return 0;
    uint16_t in = (uint16_t)((waitable->kind + 1) * TTI_ASK_KIND);
    if (waitable->started || waitable->drives) return in;
    if (waitable->kind > TTI_LEAVE) return in | TTI_ASK_IN_MESSAGE;
    return is_stuck(lanes, peer, peer) ? in | TTI_ASK_STUCK : in;
}

/* Along the ranks of this host, as their memory shows; of one that is elsewhere, as it has said. */
static int blame(const tutti_comm *comm, int rank)
{
    struct tti_lanes *lanes = comm->lanes;
    int last = tti_local_blame(comm, rank);
    tti_net_lock(lanes->net);
    int awaited = tti_lane_awaits(lanes, last);
    tti_net_unlock(lanes->net);
    return awaited < 0 || awaited == comm->rank ? last : awaited; /* itself: it has waited */
}

/* Who was told that this rank waits for another is to blame this one from now on. */
static void end_wait(struct tti_lanes *lanes)
{
    tti_net_lock(lanes->net);
    if (lanes->tells && !tti_comm_is_broken(lanes->comm)) tti_lanes_tell(lanes, lanes->comm->rank, 0, 0, false);
    lanes->tells = false;
    lanes->asks_unmet = 0;
    tti_net_unlock(lanes->net);
}

/* Whom it waits for, once, and again when a message of it is found to have met nothing; and those that wait for this rank. */
static void ask(struct tti_lanes *lanes, const struct tti_waitable *waitable, int peer, bool unmet, bool first)
{
    bool message = waitable->kind > TTI_LEAVE;
    int *asked = message ? &lanes->asked_for_message : &lanes->asked;
    bool anew = *asked != peer || (first && message);
    if (anew && message) lanes->asks_unmet = 0;
    if (unmet && lanes->asks_unmet == 0) {
        lanes->asks_unmet = lanes->unmet_count = lanes->unmet_count % INT32_MAX + 1;
        anew = true;
    }
    if (anew) tti_lane_ask(lanes, peer, how_it_waits(lanes, waitable, peer), peer, message ? lanes->asks_unmet : 0);
    *asked = peer;
    if (!message && !waitable->started) ask_back(lanes, peer);
}

static bool look(tutti_comm *comm, const struct tti_waitable *waitable, bool first, struct tti_seen *seen)
{
    struct tti_lanes *lanes = comm->lanes;
    if (waitable == NULL) {
        end_wait(lanes);
        return false;
    }
    int peer = *waitable->waiting_for; /* only once: of a message another thread may change it meanwhile */
    bool message = waitable->kind > TTI_LEAVE;
    bool shows = !message || !waitable->drives; /* else a collective beside it does */
    int last = peer < 0 || waitable->kind >= TTI_LEAVE ? peer : blame(comm, peer);
    if (comm->local != NULL && shows) tti_local_await(comm, last);
    if (peer < 0 || peer == comm->rank || waitable->kind == TTI_LEAVE) return false;
    int tag;
    int32_t edge = message ? tti_unmet_edge(lanes, peer) : 0;
    bool unmet = message && tti_is_unmet(waitable, peer, &tag);
    tti_net_lock(lanes->net);
    ask(lanes, waitable, peer, unmet, first);
    bool blocks = !message && !waitable->started && !waitable->drives;
    int in = message ? (int)waitable->kind + 1 : blocks && is_idle(lanes, peer) ? TTI_WAITS_IDLE : 0;
    if (shows) tti_lanes_tell(lanes, last, in, blocks ? stuck_in(lanes, peer, last) : 0, first);
    bool elsewhere = waits_here(lanes, peer) || (unmet && tti_unmet_look(lanes, waitable, peer, edge, tag, seen));
    tti_net_unlock(lanes->net);
    return elsewhere;
}

/* ---- Sleeping and leaving -------------------------------------------------------------------------------------- */

static tutti_status sleep_once(tutti_comm *comm, const struct tti_waitable *waitable, int64_t waited_ns,
                               int64_t timeout_ns)
{
    int64_t longest = waited_ns / SLEEP_SHARE > SLEEP_MS * MS ? waited_ns / SLEEP_SHARE : SLEEP_MS * MS;
    struct tti_transport *transport = comm->lanes->net->transport;
    bool local = tti_local_covers(comm, waitable->kind);
    if (local) tti_local_announce(comm, true);
    tutti_status status = waitable->progress(waitable->object);
    if (status == TUTTI_IN_PROGRESS && !tti_comm_is_broken(comm))
        transport->ops->sleep(transport, timeout_ns < longest ? timeout_ns : longest);
    if (local) tti_local_announce(comm, false);
    return status;
}

static bool gives_way(const tutti_comm *comm, const struct tti_waitable *waitable)
{
    (void)comm;
    (void)waitable;
    return true;
}

static void wake(tutti_comm *comm)
{
    struct tti_transport *transport = comm->lanes->net->transport;
    transport->ops->wake(transport);
}

static void take_leave(tutti_comm *comm, int rank, bool whole)
{
    struct tti_lanes *lanes = comm->lanes;
    struct tti_frame_head why = {.kind = TTI_FRAME_BREAK, .bytes = sizeof comm->area->failure};
    if (rank == comm->rank) return;
    if (!whole) tti_lane_say(lanes, rank, why, &comm->area->failure);
    tti_lane_say_goodbye(lanes, rank, whole);
}

/* Whom it had dealings with is told, and its host's ranks, who see it; or all of a few. Others learn it when they ask. The end
 * of a connection may come before a break that somebody else has told of: so who leaves a broken comm tells why. */
static void say_goodbye(tutti_comm *comm, int leaves)
{
    struct tti_lanes *lanes = comm->lanes;
    const struct tti_local *local = comm->local;
    /* of a broken comm the others learn by the break, which may still be on its way from whoever broke it */
    bool whole = !tti_comm_is_broken(comm);
    tti_net_lock(lanes->net);
    lanes->leaves = leaves;
    if (whole && leaves > TTI_STARTS_NO_MORE) tti_lanes_note_leaving(lanes);
    TTI_TABLE_EACH(place, &lanes->peers) take_leave(comm, tti_table_number(&lanes->peers, place), whole);
    for (int place = 0; whole && local != NULL && place < local->count; place++)
        if (tti_lane_at(lanes, local->ranks[place]) == NULL) take_leave(comm, local->ranks[place], whole);
    bool all = lanes->untold || comm->size <= TOLD_AT_ONCE;
    for (int rank = 0; all && rank < comm->size; rank++)
        if (tti_lane_at(lanes, rank) == NULL) take_leave(comm, rank, whole);
    tti_net_unlock(lanes->net);
    if (local != NULL && whole && leaves > TTI_STARTS_NO_MORE)
        atomic_store_explicit(&local->posts[local->place].left, 1, memory_order_release);
}

/* Moves frames until the others' systems have all that this rank has sent, which whoever closes its connections has to wait for
 * anyway. Of two ranks that leave at the same time, one has then got what the other said when it left. */
static void await_delivery(struct tti_net *net)
{
    struct tti_transport *transport = net->transport;
    int64_t until = tti_now_ns() + DELIVERED_MS * MS;
    tti_net_lock(net);
    while (!transport->ops->is_delivered(transport) && tti_now_ns() < until) {
        bool moved = tti_net_move(net, TTI_ANYBODY);
        tti_net_unlock(net);
        if (!moved) transport->ops->sleep(transport, MS / 4);
        tti_net_lock(net);
    }
    tti_net_unlock(net);
}

/* Calls that differed and that nobody has noticed, such as a last small broadcast from two roots: of two ranks, who leaves
 * later has heard of it by what the other said when it left. */
static void compare_calls(tutti_comm *comm)
{
    struct tti_lanes *lanes = comm->lanes;
    char text[640];
    int differs = -1;
    if (comm->traits.is_world) await_delivery(lanes->net);
    tti_net_lock(lanes->net);
    for (int i = 0; i < HEARD_LAST && tti_net_move(lanes->net, TTI_ANYBODY); i++) {}
    TTI_TABLE_EACH(place, &lanes->peers)
    {
        const struct tti_lane *lane = lanes->peers.values[place];
        if (lane->last_calls == NULL || tti_comm_is_broken(comm) || differs >= 0) continue;
        if (tti_lanes_differ(lanes, lane->peer, lane->last_calls, text, sizeof text)) differs = lane->peer;
    }
    tti_net_unlock(lanes->net);
    if (differs >= 0) tti_comm_leave_differing(comm, differs, text);
}

static void spread(tutti_comm *comm)
{
    struct tti_lanes *lanes = comm->lanes;
    struct tti_frame_head head = {.kind = TTI_FRAME_BREAK, .bytes = sizeof comm->area->failure};
    tti_net_lock(lanes->net);
    for (int rank = 0; rank < comm->size && !lanes->heard_break; rank++)
        if (rank != comm->rank && !tti_lane_say(lanes, rank, head, &comm->area->failure)) lanes->untold = true;
    tti_net_unlock(lanes->net);
    tti_net_pump(lanes->net);
}

static void tell(tutti_comm *comm, enum tti_news news)
{
    switch (news) {
    case TTI_NEWS_BROKE: spread(comm); break;
    case TTI_NEWS_STARTS_NO_MORE: say_goodbye(comm, TTI_STARTS_NO_MORE); break;
    case TTI_NEWS_CALLS_NO_MORE: say_goodbye(comm, TTI_CALLS_NO_MORE); break;
    case TTI_NEWS_LEFT:
        say_goodbye(comm, TTI_HAS_LEFT);
        if (!tti_comm_is_broken(comm)) compare_calls(comm);
        break;
    }
}

static void shut(tutti_comm *comm)
{
    if (comm->lanes != NULL) tti_lanes_free(comm->lanes);
    tti_local_free(comm);
    tti_free(comm->area);
}

const struct tti_peers_ops tti_peers_wire = {
    .name = "wire",
    .find_lost = find_lost,
    .presence = presence,
    .find_absent = find_absent,
    .blame = blame,
    .mark_of = mark_of,
    .describe = describe,
    .look = look,
    .sleep = sleep_once,
    .wake = wake,
    .gives_way = gives_way,
    .tell = tell,
    .close = shut,
};
