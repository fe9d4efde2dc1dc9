/* SPDX-License-Identifier: Apache-2.0
 *
 * The way out of a host is shared evenly: each of k ranks that send has a k-th of its rate. `passed` counts what each of
 * them has sent since somebody last did; a frame that begins at `passed` has left at `passed` + its bytes, however many
 * come and go meanwhile. So only the frame that leaves next needs an event.
 *
 * Invariants. The latency is the same between all hosts: so both links can be reckoned with when a frame has left. The way
 * in is busy for as long as all that came since the frame began took, and the frame itself. Frames for one endpoint arrive
 * at times that never decrease: so frames of a pair stay in order. A rank that closed or was dropped is announced when none
 * of its frames is on its way.
 */
#include "transport/sim.h"

#include "base/alloc.h"
#include "base/sim.h"
#include "base/status.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    BLOCK_FRAMES = 256 /* made together */
};

struct frame {
    struct tti_event event; /* its arrival; the first member */
    struct frame *next;
    struct endpoint *from, *to;
    struct tti_frame_head head;
    struct tti_outgoing *outgoing; /* until all of it has left */
    int64_t in_from_ns;            /* when it could have begun to pass the way in, and */
    int64_t in_before_ns;          /* what had passed there by then */
    int64_t delay_ns;              /* how much later it comes than by all else */
    int64_t copied_ns; /* when its last byte can be there at the earliest: the sender has copied it; 0: any time */
    void *data;        /* NULL: there are none, or sizes only */
};

struct frames {
    struct frame *first, **last;
};

struct block {
    struct block *next;
    struct frame frames[BLOCK_FRAMES];
};

enum state { UNUSED, OPEN, GONE, ANNOUNCED };

struct endpoint {
    struct tti_transport transport; /* the first member */
    struct tti_sim_network *network;
    struct tti_event departure;
    int host;
    enum state state;
    bool in_order; /* it closed, rather than being dropped */
    bool asleep;
    int64_t idle_from_ns, idle_to_ns; /* its last sleep: what came meanwhile was copied as it came */
    tti_bell bell;
    struct frames queued;  /* to leave */
    struct frames arrived; /* to be taken */
    struct tti_outgoing *sent, **sent_last;
    struct endpoint *next, *previous; /* of those of its host that are sending */
    bool sends;                       /* is one of those: its first queued frame */
    double until;                     /* `passed` of the link when that has left */
    uint64_t on_the_way;              /* frames of its own that have not arrived */
    int64_t busy_until_ns;            /* with what has arrived */
    int heard;                        /* departures it was told of */
};

struct link {
    struct tti_event event;        /* the first sender's frame has left; the first member */
    struct endpoint *first, *last; /* that send, in the order in which their frames will have left */
    int senders;
    double passed; /* bytes, for each of them, */
    int64_t at_ns; /* by then */
    struct tti_sim_network *network;
    int64_t in_busy_until_ns, in_passed_ns; /* the way in, and how long all that passed it took */
};

struct tti_sim_network {
    int hosts, each, size;
    double ns_per_byte;
    int64_t latency_ns;
    struct link *links;
    struct endpoint *endpoints;
    int *departed, departed_count; /* ranks, in order */
    int open;                      /* endpoints */
    struct frame *free;
    struct block *blocks;
};

static int64_t duration(const struct tti_sim_network *network, uint64_t bytes)
{
    return tti_sim_duration((double)bytes * network->ns_per_byte + 0.5);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void rouse(struct endpoint *endpoint)
{
    if (endpoint->asleep) tti_sim_bell_ring(&endpoint->bell, 0);
}

static void doze(struct endpoint *endpoint, int64_t timeout_ns)
{
    endpoint->asleep = true;
    if (endpoint->idle_to_ns != tti_sim_now_ns()) endpoint->idle_from_ns = tti_sim_now_ns();
    tti_sim_bell_sleep(&endpoint->bell, atomic_load_explicit(&endpoint->bell, memory_order_relaxed), timeout_ns);
    endpoint->asleep = false;
    endpoint->idle_to_ns = tti_sim_now_ns();
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

static void append(struct frames *frames, struct frame *frame)
{
    frame->next = NULL;
    *frames->last = frame;
    frames->last = &frame->next;
}

static struct frame *take_first(struct frames *frames)
{
    struct frame *frame = frames->first;
    if (frame == NULL) return NULL;
    frames->first = frame->next;
    if (frames->first == NULL) frames->last = &frames->first;
    return frame;
}

static struct frame *new_frame(struct tti_sim_network *network)
{
    if (network->free == NULL) {
        struct block *block = tti_calloc(1, sizeof *block);
        if (block == NULL) return NULL;
        block->next = network->blocks;
        network->blocks = block;
        for (int i = 0; i < BLOCK_FRAMES; i++) {
            block->frames[i].next = network->free;
            network->free = &block->frames[i];
        }
    }
    struct frame *frame = network->free;
    network->free = frame->next;
    *frame = (struct frame){0};
    return frame;
}

static void free_frame(struct tti_sim_network *network, struct frame *frame)
{
    tti_free(frame->data);
    frame->data = NULL;
    frame->next = network->free;
    network->free = frame;
}

static void free_frames(struct tti_sim_network *network, struct frames *frames)
{
    for (struct frame *frame; (frame = take_first(frames)) != NULL;) free_frame(network, frame);
}

/* The sender may change its data once they have left: not before they are kept. */
static bool keep_data(struct frame *frame)
{
    size_t bytes = frame->head.bytes;
    if (bytes == 0 || (bytes > TTI_SIM_SMALL_BYTES && tti_sim_setup_of()->sizes_only)) return true;
    frame->data = tti_calloc(1, bytes);
    if (frame->data != NULL) memcpy(frame->data, frame->outgoing->data, bytes);
    return frame->data != NULL;
}

/* Its done() is called in progress(). */
static void hand_back(struct endpoint *from, struct tti_outgoing *outgoing, tutti_status status)
{
    outgoing->sent = (uint64_t)(int64_t)status;
    outgoing->next = NULL;
    *from->sent_last = outgoing;
    from->sent_last = &outgoing->next;
    rouse(from);
}

/* ---- Departures -------------------------------------------------------------------------------------------------- */

static void depart(struct tti_event *event)
{
    struct endpoint *gone = (struct endpoint *)((char *)event - offsetof(struct endpoint, departure));
    struct tti_sim_network *network = gone->network;
    gone->state = ANNOUNCED;
    network->departed[network->departed_count++] = gone->transport.rank;
    for (int rank = 0; rank < network->size && network->open > 0; rank++) rouse(&network->endpoints[rank]);
}

static void announce_departure(struct endpoint *gone)
{
    if (gone->state == GONE && gone->on_the_way == 0)
        tti_sim_at(&gone->departure, tti_sim_now_ns() + gone->network->latency_ns);
}

static void arrive(struct tti_event *event)
{
    struct frame *frame = (struct frame *)event;
    struct endpoint *from = frame->from, *to = frame->to;
    from->on_the_way--;
    if (to->state < GONE) {
        append(&to->arrived, frame);
        rouse(to);
    } else {
        free_frame(to->network, frame);
    }
    announce_departure(from);
}

/* All of it has left, and will be there at the given time, or as soon as the receiver has dealt with those before. */
static void has_left(struct frame *frame, int64_t there_ns)
{
    struct endpoint *to = frame->to;
    int64_t noise = tti_sim_setup_of()->noise_ns;
    bool kept = keep_data(frame);
    hand_back(frame->from, frame->outgoing, kept ? TUTTI_OK : TUTTI_ERR_MEMORY);
    if (!kept) {
        frame->from->on_the_way--;
        free_frame(to->network, frame);
        return;
    }
    if (noise > 0) there_ns += (int64_t)(tti_sim_random() % (uint64_t)(noise + 1));
    to->busy_until_ns = later(there_ns, to->busy_until_ns) + tti_sim_setup_of()->overhead_ns;
    frame->event.fire = arrive;
    frame->event.id = (uint64_t)frame->from->transport.rank << 32 | (uint64_t)to->transport.rank;
    tti_sim_at(&frame->event, to->busy_until_ns);
}

/* ---- Links ------------------------------------------------------------------------------------------------------- */

static void catch_up(struct link *link)
{
    int64_t now = tti_sim_now_ns();
    if (link->senders > 0 && link->network->ns_per_byte > 0)
        link->passed += (double)(now - link->at_ns) / link->network->ns_per_byte / link->senders;
    link->at_ns = now;
}

static void expect_next(struct link *link)
{
    if (link->first == NULL) {
        tti_sim_cancel(&link->event);
        link->passed = 0;
        return;
    }
    double left = link->first->until - link->passed;
    int64_t ns = left <= 0 ? 0 : tti_sim_duration(left * link->network->ns_per_byte * link->senders + 0.999);
    tti_sim_at(&link->event, link->at_ns + ns);
}

/* Behind all that leave before it. */
static void insert(struct link *link, struct endpoint *endpoint)
{
    struct endpoint *after = link->last;
    while (after != NULL && after->until > endpoint->until) after = after->previous;
    endpoint->previous = after;
    endpoint->next = after == NULL ? link->first : after->next;
    *(endpoint->next == NULL ? &link->last : &endpoint->next->previous) = endpoint;
    *(after == NULL ? &link->first : &after->next) = endpoint;
}

static void take_out(struct link *link, struct endpoint *endpoint)
{
    *(endpoint->next == NULL ? &link->last : &endpoint->next->previous) = endpoint->previous;
    *(endpoint->previous == NULL ? &link->first : &endpoint->previous->next) = endpoint->next;
    endpoint->sends = false;
    link->senders--;
}

/* With its first queued frame, when it has one and is not sending. The link must have caught up. */
static void begin_sending(struct link *link, struct endpoint *endpoint)
{
    struct frame *frame = endpoint->queued.first;
    if (endpoint->sends || frame == NULL) return;
    const struct link *in = &link->network->links[frame->to->host];
    frame->in_from_ns = later(link->at_ns + link->network->latency_ns, in->in_busy_until_ns);
    frame->in_before_ns = in->in_passed_ns;
    endpoint->until = link->passed + (double)(frame->head.bytes + TTI_SIM_FRAME_BYTES);
    endpoint->sends = true;
    link->senders++;
    insert(link, endpoint);
}

/* When all of it has passed the way in. */
static int64_t pass_in(struct tti_sim_network *network, const struct frame *frame)
{
    struct link *in = &network->links[frame->to->host];
    int64_t own = duration(network, frame->head.bytes + TTI_SIM_FRAME_BYTES);
    int64_t busy = frame->in_from_ns + in->in_passed_ns - frame->in_before_ns + own;
    int64_t there = later(tti_sim_now_ns() + network->latency_ns, busy);
    if (there > 2 * TTI_SIM_LATEST_NS) there = 2 * TTI_SIM_LATEST_NS; /* as good as never, as all after it */
    if (in->in_passed_ns < 2 * TTI_SIM_LATEST_NS) in->in_passed_ns += own;
    in->in_busy_until_ns = later(in->in_busy_until_ns, there);
    return there;
}

static void frame_left(struct tti_event *event)
{
    struct link *link = (struct link *)event;
    struct endpoint *from = link->first;
    catch_up(link);
    take_out(link, from);
    struct frame *frame = take_first(&from->queued);
    has_left(frame, pass_in(link->network, frame) + frame->delay_ns);
    begin_sending(link, from);
    expect_next(link);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* On the line through the two points around it, or through the nearest two; never below 0. */
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
    struct endpoint *from = (struct endpoint *)transport;
    struct tti_sim_network *network = from->network;
    const struct tti_sim_setup *setup = tti_sim_setup_of();
    if (setup->overhead_ns > 0) tti_sim_sleep(setup->overhead_ns);
    bool lost = network->endpoints[peer].state == ANNOUNCED;
    struct frame *frame = lost ? NULL : new_frame(network);
    if (frame == NULL) {
        hand_back(from, outgoing, lost ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_MEMORY);
        return false;
    }
    frame->from = from;
    frame->to = &network->endpoints[peer];
    frame->head = outgoing->head;
    frame->outgoing = outgoing;
    from->on_the_way++;
    if (from->host == frame->to->host) {
        int64_t moved = tti_sim_duration((double)outgoing->head.bytes * setup->local_ns_per_byte + 0.5);
        has_left(frame, later(tti_sim_now_ns() + setup->local_latency_ns, frame->to->busy_until_ns) + moved);
        return false;
    }
    int64_t copying = copy_ns(outgoing->head.bytes);
    frame->delay_ns = ns_at(setup->delay, setup->delay_count, outgoing->head.bytes);
    if (copying > 0) frame->copied_ns = tti_sim_now_ns() + copying + network->latency_ns + frame->delay_ns;
    struct link *link = &network->links[from->host];
    append(&from->queued, frame);
    catch_up(link);
    begin_sending(link, from);
    expect_next(link);
    if (copying > 0) tti_sim_sleep(copying);
    return false;
}

/* The receiver copies what comes: while it comes, as far as it slept then, and the rest now. */
static void receive_copying(struct endpoint *endpoint, const struct frame *frame)
{
    if (frame->copied_ns == 0) return;
    int64_t now = tti_sim_now_ns(), left = copy_ns(frame->head.bytes);
    int64_t from = later(endpoint->idle_from_ns, frame->in_from_ns + frame->delay_ns);
    if (endpoint->idle_to_ns > from) left -= endpoint->idle_to_ns - from;
    endpoint->idle_from_ns = endpoint->idle_to_ns;
    int64_t until = later(left > 0 ? now + left : now, frame->copied_ns);
    if (until > now) tti_sim_sleep(until - now);
}

static bool take_arrived(struct endpoint *endpoint)
{
    struct tti_sink *sink = &endpoint->transport.sink;
    bool any = false;
    for (struct frame *frame; (frame = take_first(&endpoint->arrived)) != NULL; any = true) {
        int peer = frame->from->transport.rank;
        void *cookie = NULL, *place = sink->begin(sink->context, peer, &frame->head, &cookie);
        receive_copying(endpoint, frame);
        if (place != NULL && frame->data != NULL) memcpy(place, frame->data, frame->head.bytes);
        sink->end(sink->context, peer, &frame->head, cookie);
        free_frame(endpoint->network, frame);
    }
    return any;
}

static bool tell_sent(struct endpoint *endpoint)
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

static bool tell_departures(struct endpoint *endpoint)
{
    struct tti_sim_network *network = endpoint->network;
    struct tti_sink *sink = &endpoint->transport.sink;
    bool any = false;
    while (endpoint->heard < network->departed_count) {
        const struct endpoint *gone = &network->endpoints[network->departed[endpoint->heard++]];
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
    struct endpoint *endpoint = (struct endpoint *)transport;
    bool any = take_arrived(endpoint);
    any |= tell_sent(endpoint);
    return tell_departures(endpoint) || any;
}

static void sleep_until(struct tti_transport *transport, int64_t timeout_ns)
{
    struct endpoint *endpoint = (struct endpoint *)transport;
    if (endpoint->arrived.first != NULL || endpoint->sent != NULL || timeout_ns <= 0) return;
    if (endpoint->heard < endpoint->network->departed_count) return;
    doze(endpoint, timeout_ns);
}

/* Who wakes another is on its host: it takes as long as any change of memory takes to be seen. */
static void wake(struct tti_transport *transport)
{
    struct endpoint *endpoint = (struct endpoint *)transport;
    if (endpoint->asleep) tti_bell_ring(&endpoint->bell, false);
}

/* What has not left by now never will; what has still arrives. */
static void forget_queued(struct endpoint *endpoint, tutti_status status)
{
    struct link *link = &endpoint->network->links[endpoint->host];
    catch_up(link);
    if (endpoint->sends) take_out(link, endpoint);
    for (struct frame *frame; (frame = take_first(&endpoint->queued)) != NULL;) {
        endpoint->on_the_way--;
        hand_back(endpoint, frame->outgoing, status);
        free_frame(endpoint->network, frame);
    }
    expect_next(link);
}

static void leave(struct endpoint *endpoint, bool in_order)
{
    endpoint->in_order = in_order;
    forget_queued(endpoint, in_order ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_PEER_LOST);
    free_frames(endpoint->network, &endpoint->arrived);
    endpoint->state = GONE;
    endpoint->network->open--;
    announce_departure(endpoint);
}

static void close_endpoint(struct tti_transport *transport, int64_t timeout_ns)
{
    struct endpoint *endpoint = (struct endpoint *)transport;
    int64_t until = tti_sim_now_ns() + timeout_ns;
    while (endpoint->queued.first != NULL && tti_sim_now_ns() < until) {
        tell_sent(endpoint);
        doze(endpoint, until - tti_sim_now_ns());
    }
    if (endpoint->state == OPEN) leave(endpoint, true); /* else it was dropped before */
    tell_sent(endpoint);
}

static const struct tti_transport_ops sim_ops = {
    .name = "sim", .send = send, .progress = progress, .sleep = sleep_until, .wake = wake, .close = close_endpoint};

/* ---- The network ------------------------------------------------------------------------------------------------- */

static void prepare(struct tti_sim_network *network)
{
    for (int host = 0; host < network->hosts; host++) {
        struct link *link = &network->links[host];
        link->network = network;
        link->event.fire = frame_left;
        link->event.id = UINT64_C(1) << 63 | (uint64_t)host;
    }
    for (int rank = 0; rank < network->size; rank++) {
        struct endpoint *endpoint = &network->endpoints[rank];
        endpoint->transport = (struct tti_transport){.ops = &sim_ops, .rank = rank, .size = network->size};
        endpoint->network = network;
        endpoint->host = rank / network->each;
        endpoint->departure.fire = depart;
        endpoint->departure.id = UINT64_C(1) << 62 | (uint64_t)rank;
        endpoint->queued.last = &endpoint->queued.first;
        endpoint->arrived.last = &endpoint->arrived.first;
        endpoint->sent_last = &endpoint->sent;
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

/* What is still to happen is taken out of the run. */
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
    while (network->blocks != NULL) {
        struct block *block = network->blocks;
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
    struct endpoint *endpoint = &network->endpoints[rank];
    assert(endpoint->state == UNUSED);
    endpoint->state = OPEN;
    network->open++;
    return &endpoint->transport;
}

void tti_sim_network_drop(struct tti_sim_network *network, int rank)
{
    if (network->endpoints[rank].state == OPEN) leave(&network->endpoints[rank], false);
}
