/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated transport's table and its network. The links are in sim_link.c.
 */
#include "transport/sim_parts.h"

#include "base/alloc.h"
#include "base/status.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

static void doze(struct tti_sim_endpoint *endpoint, int64_t timeout_ns)
{
    endpoint->sleepers++;
    if (endpoint->idle_to_ns != tti_sim_now_ns()) endpoint->idle_from_ns = tti_sim_now_ns();
    tti_sim_bell_sleep(&endpoint->bell, atomic_load_explicit(&endpoint->bell, memory_order_relaxed), timeout_ns);
    endpoint->sleepers--;
    endpoint->idle_to_ns = tti_sim_now_ns();
}

static void free_frames(struct tti_sim_network *network, struct tti_sim_frames *frames)
{
    for (struct tti_sim_frame *frame; (frame = take_first(frames)) != NULL;) tti_sim_frame_free(network, frame);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* Returns the value on the line through the two points around `bytes`, or through the nearest two; never below 0. */
static int64_t ns_at(const tutti_sim_point *points, size_t count, uint64_t bytes)
{
    const tutti_sim_point *point = points;
    if (count == 0) return 0;
    if (count == 1 || bytes <= point->bytes) return point->ns;
    while (point + 2 < points + count && bytes > point[1].bytes) point++;
    double slope = (double)(point[1].ns - point->ns) / (double)(point[1].bytes - point->bytes);
    return tti_sim_duration((double)point->ns + (double)(bytes - point->bytes) * slope + 0.5);
}

static int64_t copy_ns(uint64_t bytes)
{
    const struct tti_sim_setup *setup = tti_sim_setup_of();
    return ns_at(setup->copy, setup->copy_count, bytes);
}

static bool send(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing)
{
    struct tti_sim_endpoint *from = (struct tti_sim_endpoint *)transport;
    struct tti_sim_network *network = from->network;
    const struct tti_sim_setup *setup = tti_sim_setup_of();
    if (setup->overhead_ns > 0) tti_sim_sleep(setup->overhead_ns);
    bool lost = from->state != OPEN || (network->pairs != NULL ? pair_of(from, &network->endpoints[peer])->ended
                                                               : network->endpoints[peer].state == ANNOUNCED);
    struct tti_sim_frame *frame = lost ? NULL : tti_sim_frame_new(network);
    if (frame == NULL) {
        tti_sim_hand_back(from, outgoing, lost ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_MEMORY);
        return false;
    }
    frame->from = from;
    frame->to = &network->endpoints[peer];
    frame->head = outgoing->head;
    frame->outgoing = outgoing;
    from->on_the_way++;
    if (network->pairs != NULL) pair_of(from, frame->to)->on_the_way++;
    if (from->host == frame->to->host) {
        int64_t moved = tti_sim_duration((double)outgoing->head.bytes * setup->local_ns_per_byte + 0.5);
        tti_sim_has_left(frame, later(tti_sim_now_ns() + setup->local_latency_ns, frame->to->busy_until_ns) + moved);
        return false;
    }
    int64_t copying = copy_ns(outgoing->head.bytes);
    frame->delay_ns = ns_at(setup->delay, setup->delay_count, outgoing->head.bytes);
    if (copying > 0) frame->copied_ns = tti_sim_now_ns() + copying + network->latency_ns + frame->delay_ns;
    tti_sim_link_send(frame);
    if (copying > 0) tti_sim_sleep(copying);
    return false;
}

/* The receiver copies a frame: a part was copied as it came while the receiver slept, the rest is copied now. */
static void receive_copying(struct tti_sim_endpoint *endpoint, const struct tti_sim_frame *frame)
{
    if (frame->copied_ns == 0) return;
    int64_t now = tti_sim_now_ns(), left = copy_ns(frame->head.bytes);
    int64_t from = later(endpoint->idle_from_ns, frame->in_from_ns + frame->delay_ns);
    if (endpoint->idle_to_ns > from) left -= endpoint->idle_to_ns - from;
    endpoint->idle_from_ns = endpoint->idle_to_ns;
    int64_t until = later(left > 0 ? now + left : now, frame->copied_ns);
    if (until > now) tti_sim_sleep(until - now);
}

static bool take_arrived(struct tti_sim_endpoint *endpoint)
{
    struct tti_sink *sink = &endpoint->transport.sink;
    bool any = false;
    for (struct tti_sim_frame *frame; (frame = take_first(&endpoint->arrived)) != NULL; any = true) {
        int peer = frame->from->transport.rank;
        void *cookie = NULL, *place = sink->begin(sink->context, peer, &frame->head, &cookie);
        receive_copying(endpoint, frame);
        if (place != NULL && frame->data != NULL) memcpy(place, frame->data, frame->head.bytes);
        sink->end(sink->context, peer, &frame->head, cookie);
        tti_sim_frame_free(endpoint->network, frame);
    }
    return any;
}

static bool notify_sent(struct tti_sim_endpoint *endpoint)
{
    struct tti_outgoing *outgoing = endpoint->sent;
    bool any = outgoing != NULL;
    endpoint->sent = NULL;
    endpoint->sent_last = &endpoint->sent;
    for (struct tti_outgoing *next; outgoing != NULL; outgoing = next) {
        next = outgoing->next; /* done() may free it */
        outgoing->done(outgoing, (tutti_status)(int64_t)outgoing->sent);
    }
    return any;
}

static bool notify_departures(struct tti_sim_endpoint *endpoint)
{
    struct tti_sim_network *network = endpoint->network;
    struct tti_sink *sink = &endpoint->transport.sink;
    bool any = false;
    if (network->pairs != NULL) return tti_sim_notify_ends(endpoint);
    while (endpoint->heard < network->departed_count) {
        const struct tti_sim_endpoint *gone = &network->endpoints[network->departed[endpoint->heard++]];
        if (gone == endpoint) continue;
        sink->lost(sink->context, gone->transport.rank, gone->in_order, gone->in_order ? 0 : ECONNRESET,
                   gone->in_order ? "it closed its connections" : "it is gone from the simulated network");
        any = true;
    }
    return any;
}

static bool progress(struct tti_transport *transport, int awaited)
{
    (void)awaited;
    struct tti_sim_endpoint *endpoint = (struct tti_sim_endpoint *)transport;
    bool any = take_arrived(endpoint);
    any |= notify_sent(endpoint);
    return notify_departures(endpoint) || any;
}

/* The data of a frame are copied when all of it has left. */
static void keep(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing, const void *copy)
{
    (void)transport, (void)peer;
    outgoing->data = copy;
}

/* A frame that has begun ends at once, so nothing is left to drop. */
static void drop(struct tti_transport *transport, int peer)
{
    (void)transport, (void)peer;
}

static void sleep_until(struct tti_transport *transport, int64_t timeout_ns)
{
    struct tti_sim_endpoint *endpoint = (struct tti_sim_endpoint *)transport;
    if (endpoint->arrived.first != NULL || endpoint->sent != NULL || timeout_ns <= 0) return;
    const struct tti_sim_network *network = endpoint->network;
    if (network->pairs != NULL ? endpoint->looked_at != network->changes : endpoint->heard < network->departed_count)
        return;
    doze(endpoint, timeout_ns);
}

/* The waking thread is on the same host: the wake takes as long as any change of memory takes to be seen. */
static void wake(struct tti_transport *transport)
{
    struct tti_sim_endpoint *endpoint = (struct tti_sim_endpoint *)transport;
    if (endpoint->sleepers > 0) tti_bell_ring(&endpoint->bell, false);
}

static void leave(struct tti_sim_endpoint *endpoint, bool in_order)
{
    endpoint->in_order = in_order;
    tti_sim_link_forget(endpoint, in_order ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_PEER_LOST);
    free_frames(endpoint->network, &endpoint->arrived);
    endpoint->state = GONE;
    endpoint->network->open--;
    tti_sim_announce_departure(endpoint);
}

/* Returns true once all has left: that arrives in any case, since the network has its own memory. */
static bool is_delivered(struct tti_transport *transport)
{
    return ((struct tti_sim_endpoint *)transport)->queued.first == NULL;
}

static void part(struct tti_transport *transport, int64_t timeout_ns)
{
    struct tti_sim_endpoint *endpoint = (struct tti_sim_endpoint *)transport;
    int64_t until = tti_sim_now_ns() + timeout_ns;
    while (endpoint->queued.first != NULL && tti_sim_now_ns() < until) {
        notify_sent(endpoint);
        doze(endpoint, until - tti_sim_now_ns());
    }
    if (endpoint->state == OPEN) leave(endpoint, timeout_ns >= 0); /* otherwise it was dropped before */
    notify_sent(endpoint);
}

static const struct tti_transport_ops sim_ops = {
    .name = "sim",
    .send = send,
    .progress = progress,
    .keep = keep,
    .drop = drop,
    .sleep = sleep_until,
    .wake = wake,
    .is_delivered = is_delivered,
    .part = part,
    .close = part,
};

/* ---- The network ------------------------------------------------------------------------------------------------- */

static void prepare(struct tti_sim_network *network)
{
    for (int host = 0; host < network->hosts; host++) tti_sim_link_init(&network->links[host], network, host);
    for (int rank = 0; rank < network->size; rank++) {
        struct tti_sim_endpoint *endpoint = &network->endpoints[rank];
        endpoint->transport = (struct tti_transport){.ops = &sim_ops, .rank = rank, .size = network->size};
        tti_sim_endpoint_init(endpoint, network, rank);
    }
}

tutti_status tti_sim_network_create(int hosts, int ranks_per_host, double link_ns_per_byte, int64_t link_latency_ns,
                                    struct tti_sim_network **network, tutti_error *error)
{
    struct tti_sim_network *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a simulated network");
    *made = (struct tti_sim_network){.hosts = hosts,
                                     .each = ranks_per_host,
                                     .size = hosts * ranks_per_host,
                                     .ns_per_byte = link_ns_per_byte,
                                     .latency_ns = link_latency_ns};
    made->links = tti_calloc((size_t)hosts, sizeof *made->links);
    made->endpoints = tti_calloc((size_t)made->size, sizeof *made->endpoints);
    made->departed = tti_calloc((size_t)made->size, sizeof *made->departed);
    if (made->links == NULL || made->endpoints == NULL || made->departed == NULL) {
        tti_sim_network_free(made);
        return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "no memory for a simulated network of %d ranks",
                             hosts * ranks_per_host);
    }
    prepare(made);
    *network = made;
    return TUTTI_OK;
}

/* Cancels all events that are still due. */
static void cancel_all(struct tti_sim_network *network)
{
    for (int rank = 0; rank < network->size && network->endpoints != NULL; rank++) {
        assert(network->endpoints[rank].state != OPEN);
        tti_sim_cancel(&network->endpoints[rank].departure);
    }
    for (int host = 0; host < network->hosts && network->links != NULL; host++)
        tti_sim_cancel(&network->links[host].event);
}

void tti_sim_network_free(struct tti_sim_network *network)
{
    if (network == NULL) return;
    cancel_all(network);
    tti_sim_cuts_free(network);
    while (network->blocks != NULL) {
        struct tti_sim_block *block = network->blocks;
        network->blocks = block->next;
        for (int i = 0; i < BLOCK_FRAMES; i++) {
            tti_sim_cancel(&block->frames[i].event);
            tti_free(block->frames[i].data);
        }
        tti_free(block);
    }
    tti_free(network->departed);
    tti_free(network->endpoints);
    tti_free(network->links);
    tti_free(network);
}

struct tti_transport *tti_sim_network_open(struct tti_sim_network *network, int rank)
{
    struct tti_sim_endpoint *endpoint = &network->endpoints[rank];
    assert(endpoint->state == UNUSED);
    endpoint->state = OPEN;
    network->open++;
    return &endpoint->transport;
}

void tti_sim_network_drop(struct tti_sim_network *network, int rank)
{
    if (network->endpoints[rank].state == OPEN) leave(&network->endpoints[rank], false);
}
