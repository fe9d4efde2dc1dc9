/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes: a comm's state for each of its peers over the transport. net.h explains them.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include "world/agree.h"
#include <assert.h>
#include <string.h>

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
    lane->lanes = lanes;
    lane->peer = peer;
    lane->world_rank = tti_member(lanes->comm, peer);
    assert((lanes->rank_of == NULL ? lane->world_rank : lanes->rank_of[lane->world_rank]) == peer);
    lane->posted_last = &lane->posted;
    tti_list_init(&lane->aside);
    for (int i = 0; i < TTI_PURPOSES; i++) lane->credits[i].held_last = &lane->credits[i].held;
    return lane;
}

/* ---- Saying ---------------------------------------------------------------------------------------------------- */

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
    struct word *word = tti_malloc(1, sizeof *word + head.bytes);
    if (word == NULL) return false; /* a question is asked again later */
    word->outgoing = (struct tti_outgoing){.head = head, .data = word->data, .done = said};
    if (head.bytes > 0) memcpy(word->data, data, head.bytes);
    if (net->transport->ops->send(net->transport, rank, &word->outgoing)) tti_free(word);
    return true;
}

bool tti_lane_say(struct tti_lanes *lanes, int peer, struct tti_frame_head head, const void *data)
{
    head.comm = lanes->id;
    head.epoch = lanes->comm->traits.era.made;
    return tti_net_say(lanes->net, tti_member(lanes->comm, peer), head, data);
}

/* ---- Packets of collectives: the k-th that comes is for the k-th receive --------------------------------------- */

void tti_lane_send(struct tti_lanes *lanes, int peer, struct tti_packet *packet)
{
    struct tti_lane *lane = tti_lane_to(lanes, peer);
    packet->peer = peer;
    packet->done = true; /* without memory it is never sent: see no_memory */
    packet->gone = NULL;
    packet->leaves = packet->outgoing.head.bytes > lanes->eager ? TTI_WHEN_POSTED : TTI_WITHIN_WINDOW;
    if (lane != NULL) tti_link_send(lane, TTI_COLLECTIVES, packet);
}

/* Returns true if the packet belongs to the running op and fits this receive. */
static bool fits(struct tti_lane *lane, const struct tti_frame_head *head, const struct tti_posted *posted)
{
    struct tti_lanes *lanes = lane->lanes;
    if (head->sequence == lanes->sequence && head->signature == lanes->signature && head->bytes == posted->bytes)
        return true;
    if (lanes->differs.peer >= 0) return false; /* the first one is the reason; others may be of calls after that */
    lanes->differs.peer = lane->peer;
    lanes->differs.cut = head->sequence == lanes->sequence && head->signature == lanes->signature;
    lanes->differs.sent = head->bytes;
    lanes->differs.received = posted->bytes;
    return false;
}

/* A large frame is sent only when its receive was posted, and no frame is larger than the window before that. A peer
 * that claims more is not believed, and no memory is taken for its frame. */
static enum tti_match refuse_unasked(struct tti_lane *lane, const struct tti_frame_head *head)
{
    struct tti_difference *differs = &lane->lanes->differs;
    if (differs->peer < 0) *differs = (struct tti_difference){.peer = lane->peer, .cut = true, .sent = head->bytes};
    return TTI_DROP;
}

void tti_lane_arrived(struct tti_lane *lane, struct tti_posted *posted)
{
    assert(!posted->arrived);
    posted->arrived = true;
    if (posted->bytes <= lane->lanes->eager) tti_link_take(lane, TTI_COLLECTIVES, posted->bytes);
}

static void hand_over(struct tti_lane *lane, struct tti_aside *aside, struct tti_posted *posted)
{
    if (posted->bytes > 0 && tti_move(posted->bytes)) memcpy(posted->target, aside->data, posted->bytes);
    tti_moved();
    tti_list_remove(&aside->on);
    tti_free(aside);
    tti_lane_arrived(lane, posted);
}

void tti_lane_post(struct tti_lanes *lanes, struct tti_posted *posted)
{
    struct tti_lane *lane = tti_lane_to(lanes, posted->peer);
    posted->arrived = false;
    posted->next = NULL;
    if (lane == NULL) return;
    if (posted->bytes > lanes->eager) tti_link_expect(lane, TTI_COLLECTIVES);
    if (tti_list_is_empty(&lane->aside)) {
        *lane->posted_last = posted;
        lane->posted_last = &posted->next;
        return;
    }
    struct tti_aside *aside = TTI_LIST_OF(lane->aside.next, struct tti_aside, on);
    if (fits(lane, &aside->head, posted)) hand_over(lane, aside, posted);
}

/* Takes the first receive, if the packet is for it. */
static struct tti_posted *take_posted(struct tti_lane *lane, const struct tti_frame_head *head)
{
    struct tti_posted *posted = lane->posted;
    if (posted == NULL || !fits(lane, head, posted)) return NULL;
    lane->posted = posted->next;
    if (lane->posted == NULL) lane->posted_last = &lane->posted;
    return posted;
}

/* Notes the peer's operation, and if it differs from this rank's. */
static void note_where(struct tti_lane *lane, const struct tti_frame_head *head)
{
    struct tti_lanes *lanes = lane->lanes;
    if (head->sequence > lane->sequence) lane->sequence = head->sequence;
    if (head->sequence == lanes->sequence && head->signature != lanes->signature) lanes->differs.peer = lane->peer;
}

enum tti_match tti_lane_match(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head,
                              struct tti_taking *taking)
{
    struct tti_lane *lane = tti_lane_to(lanes, peer);
    if (lane == NULL) return TTI_DROP;
    note_where(lane, head);
    struct tti_posted *posted = take_posted(lane, head);
    if (posted == NULL) return head->bytes > TTI_LINK_WINDOW ? refuse_unasked(lane, head) : TTI_PUT_ASIDE;
    *taking = (struct tti_taking){posted, posted->target};
    return TTI_GIVE_TO;
}

void tti_lane_came(struct tti_lanes *lanes, int peer, struct tti_aside *aside)
{
    struct tti_lane *lane = tti_lane_to(lanes, peer);
    if (lane == NULL) {
        tti_free(aside);
        return;
    }
    note_where(lane, &aside->head);
    struct tti_posted *posted = take_posted(lane, &aside->head);
    tti_list_append(&lane->aside, &aside->on);
    if (posted != NULL) hand_over(lane, aside, posted);
}

/* ---- What ranks say besides data ------------------------------------------------------------------------------- */

const struct tti_past_call *tti_past_call(const struct tti_lanes *lanes, uint64_t sequence)
{
    const struct tti_past_call *past = &lanes->calls[sequence % TTI_NET_CALLS];
    return past->sequence == sequence ? past : NULL;
}

/* Returns the last calls up to `newest`. */
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
        tti_call_describe_two(mine->sequence, lanes->comm->rank, &mine->call, peer, &theirs->call, text, bytes);
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

/* Compares an asker's call with what was called here as the same op; a call that is not made here yet is compared when
 * it is. */
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
    note_where(lane, &aside->head);
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
    if (head->type == 0) tti_lanes_note_gone(lane->lanes, lane->peer);
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
    bool of_itself = failure.peer == peer || lanes->comm->traits.tolerant; /* its own thread ended */
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
    case TTI_FRAME_GRANT: tti_link_hear_grant(lane, head); break;
    case TTI_FRAME_ASK: hear_question(lanes, peer, aside); break;
    case TTI_FRAME_BREAK: hear_break(lanes, peer, aside); break;
    case TTI_FRAME_LEAVE: hear_goodbye(lane, aside); break;
    case TTI_FRAME_WAITS: tti_lanes_hear_waits(lanes, peer, aside); break;
    case TTI_FRAME_AGREE: tti_lanes_hear_agree(lanes, peer, aside); break;
    case TTI_FRAME_SETTLE: tti_lanes_hear_settle(lanes, peer, aside); break;
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
    lanes->sink = sink;
    comm->lanes = lanes;
    tti_net_lock(net);
    net->references++;
    lanes->next = net->lanes;
    net->lanes = lanes;
    if (id >= net->next_id) net->next_id = id + 1;
    tti_net_take_strays(net, lanes);
    tti_net_unlock(net);
    return TUTTI_OK;
}

static void free_lane(struct tti_lane *lane)
{
    for (int i = 0; i < TTI_PURPOSES; i++) tti_link_drop(lane, (enum tti_purpose)i);
    TTI_LIST_EACH(link, &lane->aside) tti_free(TTI_LIST_OF(link, struct tti_aside, on));
    tti_free(lane->question);
    tti_free(lane->last_calls);
    tti_free(lane);
}

/* Frees the memory of the last op, or has the net keep it, since the transport may still read it. */
static void free_work(struct tti_lanes *lanes)
{
    bool in_use = false;
    for (size_t i = 0; i < lanes->work.packet_count; i++) in_use = in_use || !lanes->work.packets[i].done;
    tti_temp_release(lanes->comm, lanes->work.temp, in_use);
    if (in_use)
        tti_net_keep(lanes->net, lanes->work.packets);
    else
        tti_free(lanes->work.packets);
    tti_free(lanes->work.posts);
}

static void stop_lane(struct tti_lane *lane)
{
    tti_link_stop(lane, TTI_COLLECTIVES);
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
    TTI_TABLE_EACH(place, &lanes->peers) free_lane(lanes->peers.values[place]);
    TTI_TABLE_EACH(place, &lanes->waits.heard) tti_free(lanes->waits.heard.values[place]);
    free_work(lanes);
    tti_net_unlock(net);
    tti_table_free(&lanes->peers);
    tti_table_free(&lanes->waits.heard);
    tti_agree_free(lanes->agree);
    tti_agree_free(lanes->settling);
    tti_free(lanes->rank_of);
    tti_free(lanes);
    tti_net_release(net);
}
