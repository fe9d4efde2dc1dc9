/* SPDX-License-Identifier: Apache-2.0
 *
 * The way out of a host is shared evenly: each of k ranks that send has a k-th of its rate. `passed` counts the bytes
 * that each of them has sent since the link was last idle; a frame that begins at `passed` has left at `passed` + its
 * bytes, however many come and go meanwhile. So only the frame that leaves next needs an event.
 *
 * Invariants. The latency is the same between all hosts: so both links can be computed when a frame has left. The way
 * in is busy for as long as all frames took that came since the frame began, and the frame itself. Frames for one
 * endpoint arrive at times that never decrease: so frames of a pair stay in order. A rank that closed or was dropped is
 * announced when none of its frames is on its way.
 */
#include "transport/sim_parts.h"

#include "base/alloc.h"
#include <string.h>

static int64_t duration(const struct tti_sim_network *network, uint64_t bytes)
{
    return tti_sim_duration((double)bytes * network->ns_per_byte + 0.5);
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

struct tti_sim_frame *tti_sim_frame_new(struct tti_sim_network *network)
{
    if (network->free == NULL) {
        struct tti_sim_block *block = tti_calloc(1, sizeof *block);
        if (block == NULL) return NULL;
        block->next = network->blocks;
        network->blocks = block;
        for (int i = 0; i < BLOCK_FRAMES; i++) {
            block->frames[i].next = network->free;
            network->free = &block->frames[i];
        }
    }
    struct tti_sim_frame *frame = network->free;
    network->free = frame->next;
    *frame = (struct tti_sim_frame){0};
    return frame;
}

void tti_sim_frame_free(struct tti_sim_network *network, struct tti_sim_frame *frame)
{
    tti_free(frame->data);
    frame->data = NULL;
    frame->next = network->free;
    network->free = frame;
}

/* The sender may change its data once they have left, but not before they are copied here. */
static bool keep_data(struct tti_sim_frame *frame)
{
    size_t bytes = frame->head.bytes;
    if (bytes == 0 || (bytes > TTI_SIM_SMALL_BYTES && tti_sim_setup_of()->sizes_only)) return true;
    frame->data = tti_calloc(1, bytes);
    if (frame->data != NULL) memcpy(frame->data, frame->outgoing->data, bytes);
    return frame->data != NULL;
}

void tti_sim_hand_back(struct tti_sim_endpoint *from, struct tti_outgoing *outgoing, tutti_status status)
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
    struct tti_sim_endpoint *gone = (struct tti_sim_endpoint *)((char *)event -
                                                                offsetof(struct tti_sim_endpoint, departure));
    struct tti_sim_network *network = gone->network;
    gone->state = ANNOUNCED;
    tti_sim_note_change(network);
    network->departed[network->departed_count++] = gone->transport.rank;
    for (int rank = 0; rank < network->size && network->open > 0; rank++) rouse(&network->endpoints[rank]);
}

void tti_sim_announce_departure(struct tti_sim_endpoint *gone)
{
    if (gone->state == GONE && gone->on_the_way == 0)
        tti_sim_at(&gone->departure, tti_sim_now_ns() + gone->network->latency_ns);
}

static void arrive(struct tti_event *event)
{
    struct tti_sim_frame *frame = (struct tti_sim_frame *)event;
    struct tti_sim_endpoint *from = frame->from, *to = frame->to;
    from->on_the_way--;
    bool ended = to->network->pairs != NULL && pair_of(to, from)->ended;
    if (to->network->pairs != NULL) pair_of(from, to)->on_the_way--;
    if (to->network->pairs != NULL && (from->state >= GONE || pair_of(from, to)->ended))
        tti_sim_note_change(to->network);
    if (to->state < GONE && !ended) {
        append(&to->arrived, frame);
        rouse(to);
    } else {
        tti_sim_frame_free(to->network, frame);
    }
    tti_sim_announce_departure(from);
}

bool tti_sim_let_go(struct tti_sim_frame *frame)
{
    bool kept = keep_data(frame);
    tti_sim_hand_back(frame->from, frame->outgoing, kept ? TUTTI_OK : TUTTI_ERR_MEMORY);
    if (kept) return true;
    frame->from->on_the_way--;
    if (frame->to->network->pairs != NULL) pair_of(frame->from, frame->to)->on_the_way--;
    tti_sim_frame_free(frame->to->network, frame);
    return false;
}

void tti_sim_comes(struct tti_sim_frame *frame, int64_t there_ns)
{
    struct tti_sim_endpoint *to = frame->to;
    int64_t noise = tti_sim_setup_of()->noise_ns;
    if (noise > 0) there_ns += (int64_t)(tti_sim_random() % (uint64_t)(noise + 1));
    to->busy_until_ns = later(there_ns, to->busy_until_ns) + tti_sim_setup_of()->overhead_ns;
    frame->event.fire = arrive;
    frame->event.id = (uint64_t)frame->from->transport.rank << 32 | (uint64_t)to->transport.rank;
    tti_sim_at(&frame->event, to->busy_until_ns);
}

void tti_sim_has_left(struct tti_sim_frame *frame, int64_t there_ns)
{
    if (tti_sim_let_go(frame)) tti_sim_comes(frame, there_ns);
}

/* ---- Links ------------------------------------------------------------------------------------------------------- */

static void catch_up(struct tti_sim_link *link)
{
    int64_t now = tti_sim_now_ns();
    if (link->senders > 0 && link->network->ns_per_byte > 0)
        link->passed += (double)(now - link->at_ns) / link->network->ns_per_byte / link->senders;
    link->at_ns = now;
}

static void expect_next(struct tti_sim_link *link)
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

/* Inserts behind all that leave before it. */
static void insert(struct tti_sim_link *link, struct tti_sim_endpoint *endpoint)
{
    struct tti_sim_endpoint *after = link->last;
    while (after != NULL && after->until > endpoint->until) after = after->previous;
    endpoint->previous = after;
    endpoint->next = after == NULL ? link->first : after->next;
    *(endpoint->next == NULL ? &link->last : &endpoint->next->previous) = endpoint;
    *(after == NULL ? &link->first : &after->next) = endpoint;
}

static void take_out(struct tti_sim_link *link, struct tti_sim_endpoint *endpoint)
{
    *(endpoint->next == NULL ? &link->last : &endpoint->next->previous) = endpoint->previous;
    *(endpoint->previous == NULL ? &link->first : &endpoint->previous->next) = endpoint->next;
    endpoint->sends = false;
    link->senders--;
}

/* Begins with its first queued frame, if it has one and is not sending. The link must have caught up. */
static void begin_sending(struct tti_sim_link *link, struct tti_sim_endpoint *endpoint)
{
    struct tti_sim_frame *frame = endpoint->queued.first;
    if (endpoint->sends || frame == NULL) return;
    const struct tti_sim_link *in = &link->network->links[frame->to->host];
    frame->in_from_ns = later(link->at_ns + link->network->latency_ns, in->in_busy_until_ns);
    frame->in_before_ns = in->in_passed_ns;
    endpoint->until = link->passed + (double)(frame->head.bytes + TTI_SIM_FRAME_BYTES);
    endpoint->sends = true;
    link->senders++;
    insert(link, endpoint);
}

/* Returns when all of the frame has passed the way in. */
static int64_t pass_in(struct tti_sim_network *network, const struct tti_sim_frame *frame)
{
    struct tti_sim_link *in = &network->links[frame->to->host];
    int64_t own = duration(network, frame->head.bytes + TTI_SIM_FRAME_BYTES);
    int64_t busy = frame->in_from_ns + in->in_passed_ns - frame->in_before_ns + own;
    int64_t there = later(tti_sim_now_ns() + network->latency_ns, busy);
    /* as late as never, and so is everything after it */
    if (there > 2 * TTI_SIM_LATEST_NS) there = 2 * TTI_SIM_LATEST_NS;
    if (in->in_passed_ns < 2 * TTI_SIM_LATEST_NS) in->in_passed_ns += own;
    in->in_busy_until_ns = later(in->in_busy_until_ns, there);
    return there;
}

static void frame_left(struct tti_event *event)
{
    struct tti_sim_link *link = (struct tti_sim_link *)event;
    struct tti_sim_endpoint *from = link->first;
    catch_up(link);
    take_out(link, from);
    struct tti_sim_frame *frame = take_first(&from->queued);
    if (link->network->pairs != NULL && tti_sim_is_cut(link->network, from->host, frame->to->host))
        tti_sim_hold(frame);
    else
        tti_sim_has_left(frame, pass_in(link->network, frame) + frame->delay_ns);
    begin_sending(link, from);
    expect_next(link);
}

static void forget(struct tti_sim_frame *frame, tutti_status status)
{
    struct tti_sim_endpoint *from = frame->from;
    from->on_the_way--;
    if (from->network->pairs != NULL) pair_of(from, frame->to)->on_the_way--;
    tti_sim_hand_back(from, frame->outgoing, status);
    tti_sim_frame_free(from->network, frame);
}

void tti_sim_link_forget(struct tti_sim_endpoint *endpoint, tutti_status status)
{
    struct tti_sim_link *link = &endpoint->network->links[endpoint->host];
    catch_up(link);
    if (endpoint->sends) take_out(link, endpoint);
    for (struct tti_sim_frame *frame; (frame = take_first(&endpoint->queued)) != NULL;) forget(frame, status);
    expect_next(link);
}

void tti_sim_link_forget_peer(struct tti_sim_endpoint *endpoint, const struct tti_sim_endpoint *peer)
{
    struct tti_sim_link *link = &endpoint->network->links[endpoint->host];
    struct tti_sim_frames all = endpoint->queued;
    if (all.first == NULL) return;
    catch_up(link);
    if (endpoint->sends && all.first->to == peer) take_out(link, endpoint);
    endpoint->queued = (struct tti_sim_frames){.last = &endpoint->queued.first};
    for (struct tti_sim_frame *frame = all.first, *next; frame != NULL; frame = next) {
        next = frame->next;
        if (frame->to == peer)
            forget(frame, TUTTI_ERR_PEER_LOST);
        else
            append(&endpoint->queued, frame);
    }
    begin_sending(link, endpoint);
    expect_next(link);
}

void tti_sim_link_send(struct tti_sim_frame *frame)
{
    struct tti_sim_endpoint *from = frame->from;
    struct tti_sim_link *link = &from->network->links[from->host];
    append(&from->queued, frame);
    catch_up(link);
    begin_sending(link, from);
    expect_next(link);
}

void tti_sim_link_init(struct tti_sim_link *link, struct tti_sim_network *network, int host)
{
    link->network = network;
    link->event.fire = frame_left;
    link->event.id = UINT64_C(1) << 63 | (uint64_t)host;
}

void tti_sim_endpoint_init(struct tti_sim_endpoint *endpoint, struct tti_sim_network *network, int rank)
{
    endpoint->network = network;
    endpoint->host = rank / network->each;
    endpoint->departure.fire = depart;
    endpoint->departure.id = UINT64_C(1) << 62 | (uint64_t)rank;
    endpoint->queued.last = &endpoint->queued.first;
    endpoint->arrived.last = &endpoint->arrived.first;
    endpoint->sent_last = &endpoint->sent;
}
