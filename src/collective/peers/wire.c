/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers by wire: how ranks that exchange frames over a transport see each other, sleep and leave.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "collective/comm/epoch.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include <stdio.h>

#define MS INT64_C(1000000)
enum {
    SLEEP_MS = 2,       /* another thread may have received what this one sleeps for; it is noticed after this, */
    SLEEP_SHARE = 32,   /* or after this part of the wait, where that is more */
    TOLD_AT_ONCE = 64,  /* in a comm of up to so many ranks, all are told */
    DELIVERED_MS = 500, /* how long a rank that leaves the world waits until the others have received that */
    HEARD_LAST = 100    /* polls when it leaves, as long as something comes */
};

/* ---- Seeing others --------------------------------------------------------------------------------------------- */

static int find_lost(const tutti_comm *comm, int first, bool polls, char *who, size_t bytes)
{
    struct tti_net *net = comm->lanes->net;
    int lost = -1;
    (void)polls;
    tti_net_lock(net); /* another thread may note one more lost rank and move the table */
    for (int rank = first; net->lost.room > 0 && rank < comm->size && lost < 0; rank++) {
        const char *why = tti_table_get(&net->lost, tti_member(comm, rank));
        if (why == NULL) continue;
        snprintf(who, bytes, "%s", why);
        lost = rank;
    }
    tti_net_unlock(net);
    return lost;
}

/* Goes by the rank's word alone, which comes after all that it has sent: its mark in shared memory could be seen
 * before. */
static enum tti_presence presence(const tutti_comm *comm, int rank)
{
    tti_net_lock(comm->lanes->net);
    const struct tti_lane *lane = tti_lane_at(comm->lanes, rank);
    bool closed = tti_table_get(&comm->lanes->net->closed, tti_member(comm, rank)) != NULL;
    bool left = closed || (lane != NULL && lane->left), leaving = lane != NULL && lane->leaving;
    bool lost = tti_table_get(&comm->lanes->net->lost, tti_member(comm, rank)) != NULL;
    tti_net_unlock(comm->lanes->net);
    if (left) return TTI_PEER_LEFT;
    return lost ? TTI_PEER_LOST : leaving ? TTI_PEER_LEAVING : TTI_PEER_HERE;
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

static uint64_t read_wait(const tutti_comm *comm, int rank, struct tti_wait_record *record)
{
    struct tti_lanes *lanes = comm->lanes;
    tti_net_lock(lanes->net);
    const struct tti_lane *lane = tti_lane_at(lanes, rank);
    uint64_t mark = lane == NULL ? 0 : lane->sequence << 8 | (lane->posted != NULL);
    tti_lanes_read_wait(lanes, rank, record);
    tti_net_unlock(lanes->net);
    return mark ^ tti_posts_mark(comm, rank) ^ record->number;
}

static void show_wait(tutti_comm *comm, const struct tti_wait_record *now, uint64_t stand)
{
    tti_net_lock(comm->lanes->net);
    tti_lanes_show_wait(comm->lanes, now, stand);
    tti_net_unlock(comm->lanes->net);
}

static void describe(const tutti_comm *comm, int rank, char *text, size_t bytes)
{
    struct tti_lanes *lanes = comm->lanes;
    tti_net_lock(lanes->net);
    const struct tti_lane *lane = tti_lane_at(lanes, rank);
    uint64_t sequence = lane == NULL ? 0 : lane->sequence, here = tti_posts_mark(comm, rank) >> 32;
    if (here > sequence) sequence = here;
    const struct tti_past_call *past = sequence == 0 ? NULL : tti_past_call(lanes, sequence);
    char call[160] = "";
    const struct tti_past_call *told = lane == NULL ? NULL : tti_lane_told(lane);
    bool newest = told != NULL && told->sequence >= sequence, ahead = sequence > lanes->sequence;
    if (newest) {
        past = told;
        sequence = told->sequence;
    }
    if (past != NULL) tti_call_describe(&past->call, call, sizeof call);
    tti_net_unlock(lanes->net);
    if (newest)
        snprintf(text, bytes, "rank %d's last call was #%llu %s", rank, (unsigned long long)sequence, call);
    else if (sequence == 0)
        snprintf(text, bytes, "rank %d has not been heard of in a collective on this comm", rank);
    else if (ahead)
        snprintf(text, bytes, "rank %d was last heard of in #%llu, which rank %d has not called", rank,
                 (unsigned long long)sequence, comm->rank);
    else
        snprintf(text, bytes, "rank %d was last heard of in #%llu %s", rank, (unsigned long long)sequence, call);
}

/* ---- Sleeping and leaving -------------------------------------------------------------------------------------- */

static tutti_status sleep_once(tutti_comm *comm, const struct tti_waitable *waitable, int64_t waited_ns,
                               int64_t timeout_ns)
{
    int64_t longest = waited_ns / SLEEP_SHARE > SLEEP_MS * MS ? waited_ns / SLEEP_SHARE : SLEEP_MS * MS;
    struct tti_transport *transport = comm->lanes->net->transport;
    bool here = tti_posts_cover(comm, waitable->kind);
    if (here) tti_posts_announce(comm, -1);
    tutti_status status = waitable->progress(waitable->object);
    if (status == TUTTI_IN_PROGRESS && !tti_comm_is_broken(comm))
        transport->ops->sleep(transport, timeout_ns < longest ? timeout_ns : longest);
    if (here) tti_posts_awake(comm);
    return status;
}

static bool gives_way(const tutti_comm *comm, const struct tti_waitable *waitable)
{
    (void)comm;
    (void)waitable;
    return true;
}

/* The transport wakes a thread that sleeps on it; this covers what another thread takes from it meanwhile. */
static bool doze(tutti_comm *comm, bool dozes)
{
    if (comm->memory != NULL) tti_posts_doze(comm, dozes);
    atomic_store_explicit(&comm->lanes->dozes, dozes, memory_order_release);
    return !dozes;
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

/* Tells the peers that this rank had dealings with, and its host's ranks, who see it; in a small comm all. Others learn
 * it when they ask. The end of a connection may come before a break that another rank has told of: so a rank that
 * leaves a broken comm tells why. */
static void say_goodbye(tutti_comm *comm, int leaves)
{
    struct tti_lanes *lanes = comm->lanes;
    if (tti_net_is_excluded(lanes->net)) return;
    const struct tti_posts *here = comm->memory;
    /* the others learn of a broken comm by the break, which may still be on its way from the rank that broke it */
    bool whole = !tti_comm_is_broken(comm);
    tti_net_lock(lanes->net);
    lanes->leaves = leaves;
    if (whole && leaves > TTI_STARTS_NO_MORE) tti_lanes_note_leaving(lanes);
    TTI_TABLE_EACH(place, &lanes->peers) take_leave(comm, tti_table_number(&lanes->peers, place), whole);
    for (int place = 0; whole && here != NULL && place < here->count; place++)
        if (tti_lane_at(lanes, tti_rank_here(comm, place)) == NULL) take_leave(comm, tti_rank_here(comm, place), whole);
    bool all = lanes->untold || comm->size <= TOLD_AT_ONCE;
    for (int rank = 0; all && rank < comm->size; rank++)
        if (tti_lane_at(lanes, rank) == NULL) take_leave(comm, rank, whole);
    tti_net_unlock(lanes->net);
    if (here != NULL && whole && leaves > TTI_STARTS_NO_MORE)
        atomic_store_explicit(&here->posts[here->place].left, (uint32_t)leaves, memory_order_release);
}

/* Moves frames until the others' systems have all that this rank has sent, which closing the connections has to wait
 * for anyway. If two ranks leave at the same time, one of them has then received the other's goodbye. */
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

/* Reports calls that differed and that nobody has noticed, such as a last small broadcast from two roots. Of two ranks
 * the one that leaves later knows, by the other's goodbye. */
static void compare_calls(tutti_comm *comm)
{
    struct tti_lanes *lanes = comm->lanes;
    char text[640];
    int differs = -1;
    if (comm->traits.is_world || comm->traits.rebuilt) await_delivery(lanes->net);
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

static void set_epoch(tutti_comm *comm)
{
    struct tti_net *net = comm->lanes->net;
    tti_net_lock(net);
    net->epoch = atomic_load_explicit(&comm->traits.era.rank->now, memory_order_acquire);
    tti_net_unlock(net);
}

static void notify(tutti_comm *comm, enum tti_news news)
{
    switch (news) {
    case TTI_NEWS_BROKE: spread(comm); break;
    case TTI_NEWS_EPOCH: set_epoch(comm); break;
    case TTI_NEWS_STARTS_NO_MORE: say_goodbye(comm, TTI_STARTS_NO_MORE); break;
    case TTI_NEWS_CALLS_NO_MORE: say_goodbye(comm, TTI_CALLS_NO_MORE); break;
    case TTI_NEWS_LEFT:
        say_goodbye(comm, TTI_HAS_LEFT);
        if (!tti_comm_is_broken(comm)) compare_calls(comm);
        break;
    }
}

/* Where no launcher says who was lost, the ranks begin to decide it; whoever asks waits for that. */
static void settle_lost(tutti_comm *comm)
{
    tti_net_lock(comm->lanes->net);
    tti_lanes_begin_settling(comm->lanes);
    tti_net_unlock(comm->lanes->net);
}

static bool was_lost(tutti_comm *comm, int rank)
{
    tti_lanes_settle_lost(comm);
    tti_net_lock(comm->lanes->net);
    bool lost = tti_lanes_was_lost(comm->lanes, rank);
    tti_net_unlock(comm->lanes->net);
    return lost;
}

static void shut(tutti_comm *comm)
{
    if (comm->lanes != NULL) tti_lanes_free(comm->lanes);
    if (comm->memory != NULL && comm->memory->given)
        tti_retired_leave(comm->world, &comm->memory->area->retired, comm->memory->owned);
    tti_free(comm->area);
}

static const struct tti_decision_ops decisions = {
    .settle_lost = settle_lost,
    .was_lost = was_lost,
    .agree = tti_wire_agree,
};

const struct tti_peers_ops tti_peers_wire = {
    .name = "wire",
    .find_lost = find_lost,
    .presence = presence,
    .find_absent = find_absent,
    .describe = describe,
    .show_wait = show_wait,
    .read_wait = read_wait,
    .sleep = sleep_once,
    .wake = wake,
    .doze = doze,
    .gives_way = gives_way,
    .notify = notify,
    .decisions = &decisions,
    .close = shut,
};
