/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts between simulated hosts, and connections that end while both ranks live, as tcp has it: what is sent through a
 * cut is held, and arrives after the cut. Each end watches its peers by a heartbeat. An end that has not heard its peer
 * for so long closes its connection: what it had not sent is lost, and what the peer had sent is not read. The peer
 * learns of it as soon as that news can arrive, after everything that was on its way, unless its own heartbeat has told
 * it before. A connection that has ended stays closed.
 *
 * Invariant: a rank is told of a peer's end once, when nothing from that peer is on its way to it any more.
 */
#include "transport/sim_parts.h"

#include "base/alloc.h"
#include "base/status.h"
#include <errno.h>

enum { RANKS_MOST = 1024, HOSTS_IN_A_SET = 64 };
#define MS INT64_C(1000000)

/* One rank's heartbeat to another one during a cut. */
struct watch {
    struct tti_event event; /* the first member */
    struct tti_sim_endpoint *rank, *peer;
};

/* A cut, or the end of one connection. */
struct tti_sim_cut {
    struct tti_event begins, ends; /* the first member */
    struct tti_sim_network *network;
    tutti_sim_fault fault;
    int64_t heartbeat_ns, until_ns;
    bool now;
    struct watch *watches; /* [size][size] */
};

/* ---- What is cut ------------------------------------------------------------------------------------------------- */

static bool is_in(uint64_t set, int host)
{
    return host < HOSTS_IN_A_SET && (set >> host & 1) != 0;
}

bool tti_sim_is_cut(const struct tti_sim_network *network, int from_host, int to_host)
{
    for (size_t i = 0; i < network->cut_count && from_host != to_host; i++) {
        const struct tti_sim_cut *cut = &network->cuts[i];
        if (cut->now && is_in(cut->fault.from, from_host) && is_in(cut->fault.to, to_host)) return true;
    }
    return false;
}

void tti_sim_note_change(struct tti_sim_network *network)
{
    network->changes++;
    for (int rank = 0; rank < network->size && network->pairs != NULL; rank++) rouse(&network->endpoints[rank]);
}

void tti_sim_hold(struct tti_sim_frame *frame)
{
    if (!tti_sim_let_go(frame)) return;
    frame->from->on_the_way--; /* the sender's end need not wait for it on links that are not cut */
    append(&frame->to->network->held, frame);
    tti_sim_announce_departure(frame->from);
}

/* Drops the frames held between two ranks. NULL: drops none, and releases those that are not cut any more. */
static void sort_held(struct tti_sim_network *network, const struct tti_sim_endpoint *from,
                      const struct tti_sim_endpoint *to)
{
    struct tti_sim_frames all = network->held;
    if (all.first == NULL) return;
    network->held = (struct tti_sim_frames){.last = &network->held.first};
    for (struct tti_sim_frame *frame = all.first, *next; frame != NULL; frame = next) {
        next = frame->next;
        if (frame->from == from && frame->to == to) {
            pair_of(from, to)->on_the_way--;
            tti_sim_frame_free(network, frame);
        } else if (from != NULL || tti_sim_is_cut(network, frame->from->host, frame->to->host)) {
            append(&network->held, frame);
        } else {
            frame->from->on_the_way++;
            tti_sim_comes(frame, tti_sim_now_ns() + network->latency_ns);
        }
    }
}

/* ---- Connections that end ---------------------------------------------------------------------------------------- */

static void drop_arrived(struct tti_sim_endpoint *rank, const struct tti_sim_endpoint *peer)
{
    struct tti_sim_frame *frame = rank->arrived.first;
    rank->arrived = (struct tti_sim_frames){.last = &rank->arrived.first};
    for (struct tti_sim_frame *next; frame != NULL; frame = next) {
        next = frame->next;
        if (frame->from == peer)
            tti_sim_frame_free(rank->network, frame);
        else
            append(&rank->arrived, frame);
    }
}

static void end_connection(struct tti_sim_endpoint *rank, const struct tti_sim_endpoint *peer, bool silent)
{
    struct tti_sim_pair *pair = pair_of(rank, peer);
    if (rank->state != OPEN || pair->ended) return;
    pair->ended = true;
    pair->silent = silent;
    tti_sim_link_forget_peer(rank, peer);
    sort_held(rank->network, rank, peer);
    drop_arrived(rank, peer);
    tti_sim_note_change(rank->network);
}

static void silence(struct tti_event *event)
{
    const struct watch *watch = (const struct watch *)event;
    end_connection(watch->rank, watch->peer, true);
}

/* Returns true if the news of the peer's end can arrive: everything before it has arrived, and no cut is in its way. */
static bool hears_end(const struct tti_sim_endpoint *rank, const struct tti_sim_endpoint *peer)
{
    const struct tti_sim_pair *theirs = pair_of(peer, rank);
    return (peer->state == ANNOUNCED || theirs->ended) && theirs->on_the_way == 0 &&
           !tti_sim_is_cut(rank->network, peer->host, rank->host);
}

static bool notify_end(struct tti_sim_endpoint *rank, const struct tti_sim_endpoint *peer)
{
    struct tti_sink *sink = &rank->transport.sink;
    struct tti_sim_pair *pair = pair_of(rank, peer);
    bool closed = false;
    if (pair->told || peer == rank) return false;
    if (!pair->ended) {
        if (!hears_end(rank, peer)) return false;
        closed = peer->state == ANNOUNCED && peer->in_order && !pair_of(peer, rank)->ended;
        end_connection(rank, peer, false);
    }
    pair->told = true;
    sink->lost(sink->context, peer->transport.rank, closed,
               closed         ? 0
               : pair->silent ? ETIMEDOUT
                              : ECONNRESET,
               closed         ? "it closed its connections"
               : pair->silent ? "its host was not heard for too long"
                              : "it is gone from the simulated network");
    return true;
}

bool tti_sim_notify_ends(struct tti_sim_endpoint *endpoint)
{
    struct tti_sim_network *network = endpoint->network;
    bool any = false;
    /* otherwise it is called again */
    while (endpoint->looked_at != network->changes && endpoint->arrived.first == NULL) {
        endpoint->looked_at = network->changes;
        for (int rank = 0; rank < network->size; rank++) any |= notify_end(endpoint, &network->endpoints[rank]);
    }
    return any;
}

/* ---- Cuts -------------------------------------------------------------------------------------------------------- */

static void watch(struct tti_sim_cut *cut, struct tti_sim_endpoint *rank, struct tti_sim_endpoint *peer)
{
    struct watch *made = &cut->watches[rank->transport.rank * cut->network->size + peer->transport.rank];
    if (made->event.place != 0) return; /* both hosts are in both sets: the pair is watched already */
    int64_t after_ns = cut->heartbeat_ns + (int64_t)(tti_sim_random() % (uint64_t)(cut->heartbeat_ns / 2 + 1));
    if (tti_sim_now_ns() + after_ns >= cut->until_ns) return;
    *made = (struct watch){.rank = rank, .peer = peer};
    made->event.fire = silence;
    made->event.id = UINT64_C(5) << 60 | (uint64_t)rank->transport.rank << 30 | (uint64_t)peer->transport.rank;
    tti_sim_at(&made->event, tti_sim_now_ns() + after_ns);
}

static void begin_cut(struct tti_sim_cut *cut)
{
    struct tti_sim_network *network = cut->network;
    cut->now = true;
    cut->until_ns = tti_sim_now_ns() + cut->fault.for_ns;
    for (int from = 0; from < network->size; from++)
        for (int to = 0; to < network->size; to++) {
            struct tti_sim_endpoint *a = &network->endpoints[from], *b = &network->endpoints[to];
            if (a->host == b->host || !is_in(cut->fault.from, a->host) || !is_in(cut->fault.to, b->host)) continue;
            watch(cut, a, b);
            watch(cut, b, a);
        }
    tti_sim_at(&cut->ends, cut->until_ns);
}

static void begin(struct tti_event *event)
{
    struct tti_sim_cut *cut = (struct tti_sim_cut *)event;
    struct tti_sim_endpoint *endpoints = cut->network->endpoints;
    if (cut->fault.kind == TUTTI_SIM_CUT)
        begin_cut(cut);
    else
        end_connection(&endpoints[cut->fault.from], &endpoints[cut->fault.to], false);
}

static void end(struct tti_event *event)
{
    struct tti_sim_cut *cut = (struct tti_sim_cut *)((char *)event - offsetof(struct tti_sim_cut, ends));
    cut->now = false;
    sort_held(cut->network, NULL, NULL);
    tti_sim_note_change(cut->network);
}

static bool plan(struct tti_sim_network *network, const tutti_sim_fault *fault, int64_t heartbeat_ms)
{
    if (fault->kind != TUTTI_SIM_CUT && fault->kind != TUTTI_SIM_BREAK) return true;
    struct tti_sim_cut *cut = &network->cuts[network->cut_count++];
    *cut = (struct tti_sim_cut){.network = network, .fault = *fault, .heartbeat_ns = heartbeat_ms * MS};
    cut->begins = (struct tti_event){.fire = begin, .id = UINT64_C(3) << 62 | network->cut_count};
    cut->ends = (struct tti_event){.fire = end, .id = UINT64_C(7) << 61 | network->cut_count};
    if (fault->kind == TUTTI_SIM_CUT)
        cut->watches = tti_calloc((size_t)network->size * (size_t)network->size, sizeof *cut->watches);
    tti_sim_at(&cut->begins, tti_sim_now_ns() + fault->at_ns);
    return fault->kind != TUTTI_SIM_CUT || cut->watches != NULL;
}

tutti_status tti_sim_network_disturb(struct tti_sim_network *network, const tutti_sim_fault *faults, size_t count,
                                     int64_t heartbeat_ms, tutti_error *error)
{
    size_t size = (size_t)network->size;
    if (size > RANKS_MOST)
        return tti_error_set(error, TUTTI_ERR_LIMIT, 0, "simulation: faults can be simulated of %d ranks, not of %zu",
                             RANKS_MOST, size);
    network->cuts = tti_calloc(count, sizeof *network->cuts);
    network->pairs = tti_calloc(size * size, sizeof *network->pairs);
    network->held.last = &network->held.first;
    bool good = network->cuts != NULL && network->pairs != NULL;
    for (size_t i = 0; i < count && good; i++) good = plan(network, &faults[i], heartbeat_ms);
    if (good) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for %zu faults of %zu simulated ranks", count,
                         size);
}

void tti_sim_cuts_free(struct tti_sim_network *network)
{
    size_t pairs = (size_t)network->size * (size_t)network->size;
    for (size_t i = 0; i < network->cut_count; i++) {
        struct tti_sim_cut *cut = &network->cuts[i];
        tti_sim_cancel(&cut->begins);
        tti_sim_cancel(&cut->ends);
        for (size_t pair = 0; pair < pairs && cut->watches != NULL; pair++) tti_sim_cancel(&cut->watches[pair].event);
        tti_free(cut->watches);
    }
    tti_free(network->cuts);
    tti_free(network->pairs);
}
