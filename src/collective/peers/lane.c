/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes: a comm's dealings with each of its peers over the transport. What they mean is told in net.h.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include "world/agree.h"
#include <string.h>

static int world_rank(const struct tti_lanes *lanes, int rank)
{
    return tti_member(lanes->comm, rank);
}

struct tti_lane *tti_lane_to(struct tti_lanes *lanes, int peer)
{
    struct tti_lane *lane = tti_lane_at(lanes, peer);
    if (lane != NULL) return lane;
    lane = tti_calloc(1, sizeof *lane);
    if (lane == NULL || !tti_table_set(&lanes->peers, peer, lane)) {
        tti_free(lane);
        lanes->no_memory = true;
        return NULL;
    }
    lane->peer = peer;
    lane->posted_last = &lane->posted;
    lane->aside_last = &lane->aside;
    lane->held_last = &lane->held;
    return lane;
}

/* ---- Sending --------------------------------------------------------------------------------------------------- */

static void shipped(struct tti_outgoing *outgoing, tutti_status status)
{
    (void)status; /* a peer that is lost is found by the wait */
    ((struct tti_shipment *)outgoing)->done = true;
}

static bool may_go(const struct tti_lanes *lanes, const struct tti_lane *lane, const struct tti_shipment *shipment)
{
    uint64_t bytes = shipment->outgoing.head.bytes;
    if (bytes > lanes->eager) return lane->large_sent < lane->large_granted;
    return lane->sent - lane->granted + tti_frame_charge(bytes) <= TTI_NET_WINDOW;
}

static void ship(struct tti_lanes *lanes, int peer, struct tti_shipment *shipment)
{
    struct tti_lane *lane = tti_lane_at(lanes, peer);
    struct tti_transport *transport = lanes->net->transport;
    if (shipment->outgoing.head.bytes > lanes->eager)
        lane->large_sent++;
    else
        lane->sent += tti_frame_charge(shipment->outgoing.head.bytes);
    shipment->outgoing.both_ways = lane->posted != NULL;
    shipment->done = transport->ops->send(transport, world_rank(lanes, peer), &shipment->outgoing);
}

static void ship_held(struct tti_lanes *lanes, int peer)
{
    struct tti_lane *lane = tti_lane_at(lanes, peer);
    while (lane->held != NULL && may_go(lanes, lane, lane->held)) {
        struct tti_shipment *shipment = lane->held;
        lane->held = shipment->next;
        if (lane->held == NULL) lane->held_last = &lane->held;
        ship(lanes, peer, shipment);
    }
}

void tti_lane_send(struct tti_lanes *lanes, int peer, struct tti_shipment *shipment)
{
    struct tti_lane *lane = tti_lane_to(lanes, peer);
    shipment->peer = peer;
    shipment->done = lane == NULL; /* then it never goes: see no_memory */
    shipment->next = NULL;
    shipment->outgoing.done = shipped;
    if (lane == NULL) return;
    if (lane->held == NULL && may_go(lanes, lane, shipment)) {
        ship(lanes, peer, shipment);
        return;
    }
    *lane->held_last = shipment;
    lane->held_last = &shipment->next;
}

/* A frame that frees itself. */
struct word {
    struct tti_outgoing outgoing; /* first */
    unsigned char data[];
};

static void said(struct tti_outgoing *outgoing, tutti_status status)
{
    (void)status;
    tti_free(outgoing);
}

bool tti_net_say(struct tti_net *net, int rank, struct tti_frame_head head, const void *data)
{
    struct word *word = tti_calloc(1, sizeof *word + head.bytes);
    if (word == NULL) return false; /* what is asked is asked again */
    word->outgoing.head = head;
    if (data != NULL) memcpy(word->data, data, head.bytes);
    word->outgoing.data = word->data;
    word->outgoing.done = said;
    if (net->transport->ops->send(net->transport, rank, &word->outgoing)) tti_free(word);
    return true;
}

bool tti_lane_say(struct tti_lanes *lanes, int peer, struct tti_frame_head head, const void *data)
{
    head.comm = lanes->id;
    head.epoch = lanes->comm->traits.era.made;
    return tti_net_say(lanes->net, world_rank(lanes, peer), head, data);
}

static void grant(struct tti_lanes *lanes, struct tti_lane *lane)
{
    if (lane->grants) { /* then this says it */
        struct tti_lane **link = &lanes->grants;
        while (*link != lane) link = &(*link)->next_grant;
        *link = lane->next_grant;
        lane->grants = false;
    }
    lane->told = lane->taken;
    struct tti_frame_head head = {.kind = TTI_FRAME_GRANT, .value = lane->taken, .sequence = lane->large_posted};
    if (!tti_lane_say(lanes, lane->peer, head, NULL)) lanes->no_memory = true; /* the peer would wait for it */
}

static void owe_grant(struct tti_lanes *lanes, struct tti_lane *lane)
{
    struct tti_lane **link = &lanes->grants;
    if (lane->grants) return;
    lane->grants = true;
    while (*link != NULL && (*link)->peer < lane->peer) link = &(*link)->next_grant;
    lane->next_grant = *link;
    *link = lane;
}

void tti_lanes_grant(struct tti_lanes *lanes)
{
    while (lanes->grants != NULL) grant(lanes, lanes->grants);
}

/* ---- Receiving ------------------------------------------------------------------------------------------------- */

static void take(struct tti_lanes *lanes, int peer, uint64_t bytes)
{
    struct tti_lane *lane = tti_lane_at(lanes, peer);
    if (bytes > lanes->eager) return;
    lane->taken += tti_frame_charge(bytes);
    if (lane->taken - lane->told >= TTI_NET_WINDOW / 2) grant(lanes, lane);
}

/* Whether the frame belongs to the op that runs and fits this receive. */
static bool fits(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head, const struct tti_posted *posted)
{
    if (head->sequence == lanes->sequence && head->signature == lanes->signature && head->bytes == posted->bytes)
        return true;
    if (lanes->differs.peer >= 0) return false; /* the first one says why; others may be of calls after that */
    lanes->differs.peer = peer;
    lanes->differs.cut = head->sequence == lanes->sequence && head->signature == lanes->signature;
    lanes->differs.sent = head->bytes;
    lanes->differs.received = posted->bytes;
    return false;
}

static void unlink_aside(struct tti_lane *lane, struct tti_aside *aside)
{
    struct tti_aside **link = &lane->aside;
    while (*link != aside) link = &(*link)->next;
    *link = aside->next;
    if (aside->next == NULL) lane->aside_last = link;
}

static void hand_over(struct tti_aside *aside, struct tti_posted *posted)
{
    if (posted->bytes > 0 && tti_move(posted->bytes)) memcpy(posted->target, aside->data, posted->bytes);
    tti_moved();
    posted->arrived = true;
}

static void give(struct tti_lanes *lanes, int peer, struct tti_aside *aside, struct tti_posted *posted)
{
    unlink_aside(tti_lane_at(lanes, peer), aside);
    hand_over(aside, posted);
    tti_free(aside);
    take(lanes, peer, posted->bytes);
}

void tti_lane_post(struct tti_lanes *lanes, struct tti_posted *posted)
{
    struct tti_lane *lane = tti_lane_to(lanes, posted->peer);
    posted->receipt.posted = true;
    posted->begun = posted->arrived = false;
    posted->next = NULL;
    if (lane == NULL) return;
    if (posted->bytes > lanes->eager) {
        lane->large_posted++;
        owe_grant(lanes, lane);
    }
    struct tti_aside *aside = lane->aside;
    while (aside != NULL && aside->taker != NULL) aside = aside->next;
    if (aside == NULL) {
        *lane->posted_last = posted;
        lane->posted_last = &posted->next;
    } else if (fits(lanes, posted->peer, &aside->head, posted)) {
        if (aside->complete)
            give(lanes, posted->peer, aside, posted);
        else
            aside->taker = posted;
    }
}

struct tti_aside *tti_aside_new(int peer, const struct tti_frame_head *head)
{
    bool comes = tti_sim == NULL || !tti_sim_setup_of()->sizes_only || head->bytes <= TTI_SIM_SMALL_BYTES;
    struct tti_aside *aside = tti_malloc(1, sizeof *aside + (comes ? head->bytes : 0));
    if (aside != NULL) *aside = (struct tti_aside){.peer = peer, .head = *head};
    return aside;
}

/* Remembers where the peer is, and whether it is somewhere else than this rank. */
void tti_lane_note(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head)
{
    struct tti_lane *lane = tti_lane_at(lanes, peer);
    if (head->sequence > lane->sequence) lane->sequence = head->sequence;
    if (head->sequence == lanes->sequence && head->signature != lanes->signature) lanes->differs.peer = peer;
}

/* A large frame is sent only when its receive was posted, and no frame is larger than the window before: what a peer claims
 * beyond that is not believed, and no memory is taken for it. */
static void refuse_unasked(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head)
{
    if (lanes->differs.peer >= 0) return;
    lanes->differs.peer = peer;
    lanes->differs.cut = true;
    lanes->differs.sent = head->bytes;
    lanes->differs.received = 0;
}

void *tti_lane_begin(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head, void **cookie)
{
    struct tti_lane *lane = tti_lane_to(lanes, peer);
    if (lane == NULL) return NULL;
    tti_lane_note(lanes, peer, head);
    struct tti_posted *posted = lane->posted;
    if (posted != NULL && fits(lanes, peer, head, posted)) {
        lane->posted = posted->next;
        if (lane->posted == NULL) lane->posted_last = &lane->posted;
        posted->begun = true;
        *cookie = posted;
        return posted->target;
    }
    if (head->bytes > TTI_NET_WINDOW) {
        refuse_unasked(lanes, peer, head);
        return NULL;
    }
    struct tti_aside *aside = tti_aside_new(world_rank(lanes, peer), head);
    if (aside == NULL) {
        lanes->no_memory = true;
        return NULL;
    }
    *lane->aside_last = aside;
    lane->aside_last = &aside->next;
    *cookie = aside;
    return aside->data;
}

void tti_lane_end(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head, struct tti_receipt *receipt)
{
    if (receipt->posted) {
        ((struct tti_posted *)receipt)->arrived = true;
        take(lanes, peer, head->bytes);
        return;
    }
    struct tti_aside *aside = (struct tti_aside *)receipt;
    aside->complete = true;
    if (aside->taker != NULL) give(lanes, peer, aside, aside->taker);
}

/* ---- What ranks say besides data ------------------------------------------------------------------------------- */

const struct tti_past_call *tti_past_call(const struct tti_lanes *lanes, uint64_t sequence)
{
    const struct tti_past_call *past = &lanes->calls[sequence % TTI_NET_CALLS];
    return past->sequence == sequence ? past : NULL;
}

/* Those up to `newest`. */
static struct tti_question last_calls(const struct tti_lanes *lanes, uint64_t newest)
{
    struct tti_question question = {0};
    size_t count = 0;
    for (uint64_t back = TTI_NET_QUESTION; back-- > 0;) {
        const struct tti_past_call *past = newest > back ? tti_past_call(lanes, newest - back) : NULL;
        if (past != NULL) question.calls[count++] = *past;
    }
    return question;
}

bool tti_lanes_differ(const struct tti_lanes *lanes, int peer, const struct tti_question *question, char *text,
                      size_t bytes)
{
    for (int i = 0; i < TTI_NET_QUESTION; i++) {
        const struct tti_past_call *theirs = &question->calls[i];
        const struct tti_past_call *mine = theirs->sequence == 0 ? NULL : tti_past_call(lanes, theirs->sequence);
        if (mine == NULL || mine->signature == theirs->signature) continue;
        tti_call_differ(mine->sequence, lanes->comm->rank, &mine->call, peer, &theirs->call, text, bytes);
        return true;
    }
    return false;
}

bool tti_lane_ask(struct tti_lanes *lanes, int peer, uint64_t wait)
{
    struct tti_question question = last_calls(lanes, lanes->sequence);
    return tti_lane_say(lanes, peer,
                        (struct tti_frame_head){.kind = TTI_FRAME_ASK,
                                                .value = wait,
                                                .sequence = lanes->sequence,
                                                .signature = lanes->signature,
                                                .bytes = sizeof question},
                        &question);
}

const struct tti_past_call *tti_lane_told(const struct tti_lane *lane)
{
    const struct tti_past_call *newest = NULL;
    for (int i = 0; lane->question != NULL && i < TTI_NET_QUESTION && lane->question->calls[i].sequence != 0; i++)
        newest = &lane->question->calls[i];
    return newest;
}

/* An asker's call against what was called here as the same op; what is not called yet is compared when it is. */
void tti_lane_answer(struct tti_lanes *lanes, int peer)
{
    struct tti_lane *lane = tti_lane_at(lanes, peer);
    const struct tti_past_call *newest = tti_lane_told(lane);
    const struct tti_past_call *past = newest == NULL ? NULL : tti_past_call(lanes, newest->sequence);
    if (newest != NULL && past == NULL && newest->sequence > lanes->sequence) return;
    lane->asks = false;
    lanes->questions--;
    if (past != NULL && past->signature != newest->signature) lanes->differs.peer = peer;
}

static void hear_question(struct tti_lanes *lanes, int peer, const struct tti_aside *aside)
{
    struct tti_lane *lane = tti_lane_at(lanes, peer);
    if (aside->head.bytes != sizeof *lane->question) return;
    if (lane->question == NULL) lane->question = tti_calloc(1, sizeof *lane->question);
    if (lane->question == NULL) return;
    memcpy(lane->question, aside->data, sizeof *lane->question);
    if (!lane->asks) lanes->questions++;
    lane->asks = true;
    tti_lane_hear_ask(lane, &aside->head);
    tti_lane_note(lanes, peer, &aside->head);
    tti_lane_answer(lanes, peer);
    if (lanes->leaves != TTI_STAYS && lanes->leaves != TTI_HAS_LEFT) tti_lane_say_goodbye(lanes, peer, true);
}

void tti_lanes_note_leaving(struct tti_lanes *lanes)
{
    struct tti_call leave = {.kind = TTI_LEAVE, .type = TUTTI_TYPE_COUNT, .reduction = TTI_NO_REDUCTION, .root = -1};
    uint64_t sequence = lanes->sequence + 1;
    uint32_t signature = tti_call_signature(lanes->signature, tti_call_digest(&leave));
    lanes->calls[sequence % TTI_NET_CALLS] = (struct tti_past_call){sequence, signature, leave};
}

void tti_lane_say_goodbye(struct tti_lanes *lanes, int peer, bool whole)
{
    struct tti_question calls = last_calls(lanes, lanes->sequence + 1);
    bool says_when = whole && lanes->leaves > TTI_STARTS_NO_MORE;
    tti_lane_say(lanes, peer,
                 (struct tti_frame_head){.kind = TTI_FRAME_LEAVE,
                                         .type = lanes->leaves < TTI_HAS_LEFT,
                                         .value = says_when ? lanes->sequence + 1 : 0,
                                         .bytes = says_when ? sizeof calls : 0},
                 &calls);
}

static void hear_goodbye(struct tti_lane *lane, const struct tti_aside *aside)
{
    const struct tti_frame_head *head = &aside->head;
    lane->leaving = true;
    if (head->type == 0) lane->left = true;
    if (head->value != 0) lane->left_before = head->value;
    if (head->bytes != sizeof *lane->last_calls) return;
    if (lane->last_calls == NULL) lane->last_calls = tti_calloc(1, sizeof *lane->last_calls);
    if (lane->last_calls != NULL) memcpy(lane->last_calls, aside->data, sizeof *lane->last_calls);
}

static void hear_break(struct tti_lanes *lanes, int peer, const struct tti_aside *aside)
{
    tutti_error failure;
    if (aside->head.bytes != sizeof failure) return;
    memcpy(&failure, aside->data, sizeof failure);
    failure.text[sizeof failure.text - 1] = '\0';
    bool of_itself = failure.peer == peer || lanes->comm->traits.tolerant; /* a rank whose thread has ended says so */
    if (failure.status == TUTTI_ERR_PEER_LOST && of_itself) tti_net_lose(lanes->net, aside->peer, failure.text);
    if (lanes->comm->traits.tolerant) return;
    lanes->heard_break = true;
    tti_comm_store_failure(lanes->comm, &failure);
}

void tti_lane_hear(struct tti_lanes *lanes, int peer, const struct tti_aside *aside)
{
    struct tti_lane *lane = tti_lane_to(lanes, peer);
    const struct tti_frame_head *head = &aside->head;
    if (lane == NULL) return;
    switch ((enum tti_frame_kind)head->kind) {
    case TTI_FRAME_GRANT:
        if (head->value > lane->granted) lane->granted = head->value;
        if (head->sequence > lane->large_granted) lane->large_granted = head->sequence;
        ship_held(lanes, peer);
        break;
    case TTI_FRAME_ASK: hear_question(lanes, peer, aside); break;
    case TTI_FRAME_BREAK: hear_break(lanes, peer, aside); break;
    case TTI_FRAME_LEAVE: hear_goodbye(lane, aside); break;
    case TTI_FRAME_WAITS: tti_lanes_hear_waits(lanes, peer, aside); break;
    case TTI_FRAME_AGREE: tti_lanes_hear_agree(lanes, peer, aside); break;
    case TTI_FRAME_NUDGE:
    case TTI_FRAME_DATA: break;
    }
}

static bool map_ranks(struct tti_lanes *lanes)
{
    const tutti_comm *comm = lanes->comm;
    if (comm->members == NULL) return true;
    lanes->rank_of = tti_calloc((size_t)lanes->net->size, sizeof *lanes->rank_of);
    if (lanes->rank_of == NULL) return false;
    for (int rank = 0; rank < lanes->net->size; rank++) lanes->rank_of[rank] = -1;
    for (int rank = 0; rank < comm->size; rank++) lanes->rank_of[comm->members[rank]] = rank;
    return true;
}

tutti_status tti_lanes_create(tutti_comm *comm, struct tti_net *net, uint32_t id, const struct tti_letter_sink *sink,
                              tutti_error *error)
{
    struct tti_lanes *lanes = tti_calloc(1, sizeof *lanes);
    if (lanes != NULL) {
        lanes->comm = comm;
        lanes->net = net;
        lanes->id = id;
        lanes->peers = lanes->waits.heard = TTI_TABLE(comm->size);
    }
    if (lanes == NULL || !map_ranks(lanes)) {
        tti_free(lanes);
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a comm of %d ranks over %s", comm->size,
                             net->transport->ops->name);
    }
    lanes->differs.peer = -1;
    lanes->frames = (struct tti_frames){.sink = sink, .transport = net->transport, .comm = id, .ranks = comm->members};
    comm->lanes = lanes;
    comm->frames = &lanes->frames;
    tti_net_lock(net);
    net->references++;
    lanes->next = net->lanes;
    net->lanes = lanes;
    if (id >= net->next_id) net->next_id = id + 1;
    tti_net_take_strays(net, lanes);
    tti_net_unlock(net);
    return TUTTI_OK;
}

static void free_lane(struct tti_net *net, struct tti_lane *lane)
{
    struct tti_aside *aside = lane->aside;
    while (aside != NULL) {
        struct tti_aside *next = aside->next;
        aside->taker = NULL;
        aside->orphan = true;
        if (aside->complete)
            tti_free(aside);
        else
            tti_net_keep(net, aside);
        aside = next;
    }
    tti_free(lane->question);
    tti_free(lane->last_calls);
    tti_free(lane);
}

/* Whether the transport may still read or write what belongs to the last op. */
static bool is_in_use(const struct tti_lanes *lanes)
{
    for (size_t i = 0; i < lanes->shipment_count; i++)
        if (!lanes->shipments[i].done) return true;
    for (size_t i = 0; i < lanes->post_count; i++)
        if (lanes->posts[i].begun && !lanes->posts[i].arrived) return true;
    return false;
}

static void free_work(struct tti_lanes *lanes)
{
    void *work[] = {lanes->posts, lanes->shipments};
    bool in_use = is_in_use(lanes);
    tti_temp_release(lanes->comm, lanes->temp, in_use);
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) {
        if (in_use)
            tti_net_keep(lanes->net, work[i]);
        else
            tti_free(work[i]);
    }
}

static void stop_lane(struct tti_lane *lane)
{
    for (struct tti_shipment *held = lane->held; held != NULL; held = held->next) held->done = true;
    for (struct tti_aside *aside = lane->aside; aside != NULL; aside = aside->next) aside->taker = NULL;
    lane->held = NULL;
    lane->held_last = &lane->held;
    lane->posted = NULL;
    lane->posted_last = &lane->posted;
}

void tti_lanes_stop(struct tti_lanes *lanes)
{
    TTI_TABLE_EACH(place, &lanes->peers) stop_lane(lanes->peers.values[place]);
}

void tti_lanes_free(struct tti_lanes *lanes)
{
    struct tti_net *net = lanes->net;
    tti_net_lock(net);
    struct tti_lanes **link = &net->lanes;
    while (*link != lanes) link = &(*link)->next;
    *link = lanes->next;
    TTI_TABLE_EACH(place, &lanes->peers) free_lane(net, lanes->peers.values[place]);
    TTI_TABLE_EACH(place, &lanes->waits.heard) tti_free(lanes->waits.heard.values[place]);
    free_work(lanes);
    tti_net_unlock(net);
    tti_table_free(&lanes->peers);
    tti_table_free(&lanes->waits.heard);
    tti_agree_free(lanes->agree);
    tti_free(lanes->rank_of);
    tti_free(lanes);
    tti_net_release(net);
}
