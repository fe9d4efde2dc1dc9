/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements posting, matching and progress of messages. The protocol is described in message_parts.h.
 */
#include "base/alloc.h"
#include "collective/message/message_parts.h"
#include "collective/peers/net.h"
#include <assert.h>

enum {
    TIDIED_AT_ONCE = 8, /* idle peers polled per call */
    QUIET = 200         /* calls in which nothing came, before slower checks are made */
};

/* ---- Boxes ----------------------------------------------------------------------------------------------------- */

struct tti_messages *tti_messages_create(tutti_comm *comm)
{
    struct tti_messages *messages = tti_calloc(1, sizeof *messages);
    if (messages == NULL) return NULL;
    messages->comm = comm;
    messages->boxes = TTI_TABLE(comm->size);
    tti_list_init(&messages->active);
    tti_list_init(&messages->any);
    tti_list_init(&messages->work);
    tti_list_init(&messages->lifted);
    return messages;
}

void tti_early_free(struct tti_box *box, struct tti_aside *early)
{
    assert(box->messages->early > 0);
    tti_list_remove(&early->on);
    box->early_bytes -= tti_early_is_large(early) ? 0 : early->head.value;
    box->messages->early--;
    tti_free(early);
}

void tti_messages_free(struct tti_messages *messages)
{
    if (messages == NULL) return;
    tti_copiers_free(atomic_load_explicit(&messages->copiers, memory_order_relaxed));
    tti_channels_leave(messages);
    TTI_TABLE_EACH(place, &messages->boxes)
    {
        struct tti_box *box = messages->boxes.values[place];
        TTI_LIST_EACH(link, &box->early) tti_early_free(box, TTI_EARLY_ON(link));
        tti_free(box->given_aside);
        tti_trouble_free(box);
        tti_free(box);
    }
    tti_table_free(&messages->boxes);
    tti_free(messages);
}

static struct tti_box *make_box(struct tti_messages *messages, int peer)
{
    struct tti_lanes *lanes = peer == messages->comm->rank ? NULL : messages->comm->lanes;
    struct tti_lane *lane = lanes == NULL ? NULL : tti_lane_to(lanes, peer);
    struct tti_box *box = lanes != NULL && lane == NULL ? NULL : tti_calloc(1, sizeof *box);
    if (box == NULL || !tti_table_set(&messages->boxes, peer, box)) {
        tti_free(box);
        return NULL;
    }
    box->messages = messages;
    box->peer = peer;
    box->lane = lane;
    box->route = lane != NULL ? &tti_route_frames : &tti_route_channel;
    if (peer == messages->comm->rank) box->route = &tti_route_self;
    struct tti_link *lists[] = {&box->active,
                                &box->posted,
                                &box->queue,
                                &box->sending,
                                &box->taking,
                                &box->early,
                                &box->trouble.withdrawals,
                                &box->trouble.debts};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) tti_list_init(lists[i]);
    return box;
}

struct tti_box *tti_box_of(struct tti_messages *messages, int peer)
{
    struct tti_box *box = tti_box_at(messages, peer);
    return box != NULL ? box : make_box(messages, peer);
}

static bool has_letters(const struct tti_box *box)
{
    return !tti_list_is_empty(&box->posted) || !tti_list_is_empty(&box->queue) || !tti_list_is_empty(&box->sending) ||
           !tti_list_is_empty(&box->taking) || !tti_list_is_empty(&box->trouble.withdrawals) ||
           !tti_list_is_empty(&box->trouble.debts);
}

void tti_box_activate(struct tti_box *box)
{
    if (tti_list_is_empty(&box->active)) tti_list_append(&box->messages->active, &box->active);
}

int tti_messages_pending(const tutti_comm *comm)
{
    return comm->messages->pending;
}

/* Notes whether the peer has left. Called before its messages are read, since it sent them before it left. */
static void look_whether_left(struct tti_box *box)
{
    const tutti_comm *comm = box->messages->comm;
    enum tti_presence presence = comm->peers->presence(comm, box->peer);
    box->leaving = presence == TTI_PEER_LEAVING || presence == TTI_PEER_LEFT;
    box->left = presence == TTI_PEER_LEFT;
    /* without `tolerant` the comm breaks */
    if (presence == TTI_PEER_LOST && comm->traits.tolerant) tti_trouble_poll(box);
}

/* ---- Letters --------------------------------------------------------------------------------------------------- */

static void begin(struct tti_letter *letter, bool is_send)
{
    letter->status = TUTTI_IN_PROGRESS;
    letter->state = TTI_LETTER_POSTED;
    letter->is_send = is_send;
    letter->other_done = letter->asked = false;
    letter->way = TTI_WAY_HALVES;
    letter->packet = NULL;
    letter->done = 0;
    letter->waiting_for = letter->peer == TUTTI_ANY_SOURCE ? -1 : letter->peer;
    tti_list_init(&letter->on);
    tti_list_init(&letter->work);
    letter->comm->messages->pending++;
}

static void set_status(struct tti_letter *letter, tutti_status status)
{
    struct tti_batch *batch = letter->batch;
    letter->status = status;
    if (batch != NULL && --batch->left == 0) tti_list_append(batch->ended, &batch->on);
}

static void count(struct tti_messages *messages, const struct tti_letter *letter)
{
    if (!letter->is_send && TTI_RECV_OF(letter)->probes) return;
    tti_traffic_count(letter->is_send ? &messages->sent : &messages->received, letter->bytes);
}

/* Returns true if the data for a receive on a device are on the host, and must still be copied to the device. */
static bool is_to_be_lifted(const struct tti_letter *letter, tutti_status status)
{
    if (status != TUTTI_OK || letter->is_send || letter->way == TTI_WAY_COPY) return false;
    return letter->state != TTI_LETTER_LIFTED;
}

static void lift(struct tti_letter *letter)
{
    struct tti_messages *messages = letter->comm->messages;
    letter->state = TTI_LETTER_LIFTED;
    tti_list_append(&messages->lifted, &letter->on);
    tti_list_append(&messages->work, &letter->work);
}

void tti_letter_end(struct tti_letter *letter, tutti_status status)
{
    assert(letter->status == TUTTI_IN_PROGRESS && letter->state != TTI_LETTER_ENDED); /* a letter ends exactly once */
    assert(letter->comm->messages->pending > 0);
    tti_list_remove(&letter->on);
    tti_list_remove(&letter->work);
    if (letter->packet != NULL) tti_packet_forget(letter->packet);
    if (letter->device != NULL && is_to_be_lifted(letter, status)) {
        lift(letter);
        return;
    }
    if (letter->device != NULL) tti_device_letter_end(letter->device);
    letter->state = TTI_LETTER_ENDED;
    letter->comm->messages->pending--;
    letter->comm->messages->quiet = 0;
    if (status == TUTTI_OK) count(letter->comm->messages, letter);
    set_status(letter, status);
}

bool tti_letter_is_unmet(const struct tti_letter *letter)
{
    enum tti_letter_state waits = letter->is_send ? TTI_LETTER_ANNOUNCED : TTI_LETTER_POSTED;
    return letter->state == waits || letter->state == TTI_LETTER_ENDED;
}

static tutti_status refuse(struct tti_letter *letter, enum tti_kind kind, tutti_status status, const char *why)
{
    tti_comm_refuse(letter->comm, kind, status, "rank %d: no %s rank %d: %s", letter->comm->rank,
                    kind == TTI_SEND ? "message can be sent to" : "message can be received from", letter->peer, why);
    set_status(letter, status);
    return status;
}

/* There is no peer (no rank): the letter ends here, and is not counted. */
static tutti_status pass_over(struct tti_letter *letter, bool is_send)
{
    letter->state = TTI_LETTER_ENDED;
    letter->is_send = is_send;
    letter->bytes = 0;
    set_status(letter, TUTTI_OK);
    return TUTTI_OK;
}

/* ---- Sending --------------------------------------------------------------------------------------------------- */

static bool is_eager(const struct tti_box *box, const struct tti_send *send)
{
    uint64_t note = (uint64_t)box->messages->comm->tuning.eager, bytes = send->letter.bytes;
    if (send->letter.device != NULL) return false; /* its data can be sent only after its stream has come to it */
    if (bytes > note && (box->route->gives == NULL || bytes > note * (uint64_t)box->route->gives(box, send)))
        return false;
    return box->route->has_room == NULL || box->route->has_room(box, bytes);
}

/* Sends the first note of a message; false: there is no room for it. A message that has begun to go as notes continues
 * so, whatever the switch-over sizes are by then. */
static bool start_send(struct tti_box *box, struct tti_send *send)
{
    struct tti_letter *letter = &send->letter;
    if (letter->done == 0 && !is_eager(box, send)) return tti_large_announce(send);
    if (letter->bytes > box->route->most) return box->route->give(box, send);
    struct tti_note note = {TTI_NOTE_EAGER, (uint8_t)letter->type, letter->tag, letter->bytes};
    if (!box->route->put(box, &note, send->in, letter->bytes)) return false;
    tti_letter_end(letter, TUTTI_OK);
    return true;
}

static void start_queued(struct tti_box *box)
{
    if (box->trouble.any && !tti_trouble_say(box)) return;
    while (!tti_list_is_empty(&box->queue))
        if (!start_send(box, TTI_SEND_OF(TTI_LETTER_ON(box->queue.next)))) return;
}

static tutti_status post_send(struct tti_send *send)
{
    struct tti_letter *letter = &send->letter;
    if (letter->peer == TUTTI_NOBODY) return pass_over(letter, true);
    struct tti_box *box = tti_box_of(letter->comm->messages, letter->peer);
    if (box == NULL) return refuse(letter, TTI_SEND, TUTTI_ERR_MEMORY, "memory ran out");
    if (box->to.slots == NULL && box->route->open != NULL) {
        tutti_error error = {0};
        if (box->route->open(box, &error) != TUTTI_OK) return refuse(letter, TTI_SEND, error.status, error.text);
    }
    begin(letter, true);
    if (box->trouble.failed != TUTTI_OK) {
        tti_letter_end(letter, box->trouble.failed);
        return letter->status;
    }
    if (tti_list_is_empty(&box->queue) && !box->trouble.any && start_send(box, send)) {
        if (letter->status == TUTTI_IN_PROGRESS) tti_box_activate(box);
        return letter->status;
    }
    tti_list_append(&box->queue, &letter->on);
    tti_box_activate(box);
    return letter->status;
}

/* ---- Matching -------------------------------------------------------------------------------------------------- */

static bool tag_fits(const struct tti_recv *recv, int tag)
{
    return recv->letter.tag == tag || recv->letter.tag == TUTTI_ANY_TAG;
}

static struct tti_recv *first_that_fits(const struct tti_link *list, int tag)
{
    TTI_LIST_EACH(link, list)
    {
        struct tti_recv *recv = TTI_RECV_OF(TTI_LETTER_ON(link));
        if (tag_fits(recv, tag)) return recv;
    }
    return NULL;
}

/* Returns the first receive, in the order of posting, that a message fits. */
static struct tti_recv *match(const struct tti_box *box, int tag)
{
    struct tti_recv *mine = first_that_fits(&box->posted, tag), *any = NULL;
    if (!tti_list_is_empty(&box->messages->any)) any = first_that_fits(&box->messages->any, tag);
    if (mine == NULL || any == NULL) return mine != NULL ? mine : any;
    return mine->order < any->order ? mine : any;
}

tutti_status tti_recv_explain(const struct tti_recv *recv, enum tti_kind kind, const char *prefix, tutti_error *error)
{
    const struct tti_letter *letter = &recv->letter;
    size_t element = tutti_type_bytes(letter->type);
    char site[112] = "";
    if (prefix[0] == '\0') tti_site_describe(letter->site, site, sizeof site);
    return tti_comm_describe(
        letter->comm, error, kind, letter->status,
        "%srank %d's message with tag %d has %llu elements, the buffer of rank %d%s only %llu; it can "
        "still be received with a larger one",
        prefix, recv->source, recv->got, (unsigned long long)(letter->bytes / element), letter->comm->rank, site,
        (unsigned long long)(recv->capacity / element));
}

static tutti_status wrong_type(struct tti_recv *recv)
{
    struct tti_letter *letter = &recv->letter;
    char site[112];
    if (letter->comm->traits.tolerant) { /* the message may be for another receive */
        tti_letter_end(letter, TUTTI_ERR_MISMATCH);
        return TUTTI_OK;
    }
    tti_site_describe(letter->site, site, sizeof site);
    return tti_comm_break_apart(letter->comm, TTI_RECV, TUTTI_ERR_MISMATCH, recv->source,
                                "rank %d receives %s with tag %d%s from rank %d, which sent %s", letter->comm->rank,
                                tutti_type_name(letter->type), recv->got, site, recv->source,
                                tutti_type_name(recv->came));
}

/* Returns true if the receive takes this message. If not, it has ended or broken the comm. */
static bool takes(struct tti_recv *recv, struct tti_box *box, const struct tti_note *note)
{
    struct tti_letter *letter = &recv->letter;
    recv->source = box->peer;
    recv->got = note->tag;
    recv->came = (tutti_type)note->type;
    letter->bytes = note->bytes;
    if (recv->probes) {
        tti_letter_end(letter, TUTTI_OK);
    } else if (recv->came != letter->type) {
        box->messages->failure = wrong_type(recv);
    } else if (note->bytes > recv->capacity) {
        tti_letter_end(letter, TUTTI_ERR_TRUNCATED);
    } else {
        if (letter->peer == TUTTI_ANY_SOURCE) box->messages->turn = (box->peer + 1) % letter->comm->size;
        return true;
    }
    return false;
}

struct tti_recv *tti_message_claim(struct tti_box *box, const struct tti_note *note)
{
    struct tti_recv *recv = match(box, note->tag);
    if (recv == NULL || recv->probes || recv->letter.type != (tutti_type)note->type || note->bytes > recv->capacity)
        return NULL;
    struct tti_letter *letter = &recv->letter;
    takes(recv, box, note);
    letter->waiting_for = box->peer;
    letter->number = 0;
    if (letter->device != NULL && !tti_device_make_room(recv)) return NULL;
    letter->way = TTI_WAY_PARTS;
    letter->state = TTI_LETTER_MOVING;
    tti_list_remove(&letter->on);
    tti_list_append(&box->taking, &letter->on);
    return recv;
}

struct tti_aside *tti_early_new(struct tti_box *box, const struct tti_note *note)
{
    tutti_comm *comm = box->messages->comm;
    struct tti_frame_head head = {.kind = (uint16_t)(TTI_FRAME_MESSAGES + note->kind),
                                  .type = note->type,
                                  .tag = note->tag,
                                  .value = note->bytes,
                                  .bytes = note->kind == TTI_NOTE_LARGE ? sizeof(struct tti_place) : note->bytes};
    struct tti_aside *early = tti_aside_new(box->peer, &head);
    if (early == NULL)
        tti_box_fault(box, TTI_RECV, TUTTI_ERR_MEMORY, comm->rank,
                      "rank %d has no memory for a message of rank %d that came early", comm->rank, box->peer);
    return early;
}

static void keep_early(struct tti_box *box, const struct tti_note *note, const void *data, struct tti_aside *early)
{
    bool large = note->kind == TTI_NOTE_LARGE;
    if (early == NULL) {
        early = tti_early_new(box, note);
        if (early == NULL) return;
        if (large)
            memcpy(early->data, data, sizeof(struct tti_place));
        else
            tti_note_copy(early->data, data, note->bytes);
    }
    early->head.sequence = box->heard;
    tti_list_append(&box->early, &early->on);
    box->early_bytes += large ? 0 : note->bytes;
    box->messages->early++;
}

static void finish_eager(struct tti_box *box, struct tti_recv *recv, const void *data)
{
    recv->letter.waiting_for = box->peer;
    if (recv->letter.device != NULL && !tti_device_make_room(recv)) return;
    tti_note_copy(recv->out, data, recv->letter.bytes);
    if (box->route->consumed != NULL) box->route->consumed(box, recv->letter.bytes);
    tti_letter_end(&recv->letter, TUTTI_OK);
}

void tti_message_deliver(struct tti_box *box, const struct tti_note *note, const void *data, struct tti_aside *early)
{
    struct tti_recv *recv;
    if (note->kind == TTI_NOTE_LARGE) box->heard++;
    while ((recv = match(box, note->tag)) != NULL && !takes(recv, box, note) && box->messages->failure == TUTTI_OK)
        continue;
    if (recv == NULL) {
        keep_early(box, note, data, early);
        return;
    }
    if (box->messages->failure != TUTTI_OK) {
        /* the comm is broken: nobody will ask for the message any more */
    } else if (note->kind == TTI_NOTE_EAGER) {
        finish_eager(box, recv, data);
    } else {
        tti_large_accept(recv, box, box->heard, data);
    }
    tti_free(early);
}

void tti_note_arrived(struct tti_box *box, const struct tti_note *note, const void *data)
{
    box->messages->quiet = 0;
    if (box->trouble.failed != TUTTI_OK && !box->trouble.lost) return;
    if (note->kind > TTI_NOTE_LARGE)
        tti_large_heard(box, note, data);
    else if (!box->messages->stopped)
        tti_message_deliver(box, note, data, NULL);
}

/* ---- Receiving ------------------------------------------------------------------------------------------------- */

/* Searches the messages that were put aside. Returns true if the receive has found one, or ended, or broken the
 * comm. */
static bool find_early(struct tti_recv *recv, struct tti_box *box)
{
    TTI_LIST_EACH(link, &box->early)
    {
        struct tti_aside *early = TTI_EARLY_ON(link);
        if (!tag_fits(recv, early->head.tag)) continue;
        struct tti_note note = {TTI_NOTE_EAGER, (uint8_t)early->head.type, early->head.tag, early->head.value};
        if (!takes(recv, box, &note)) return true;
        if (tti_early_is_large(early))
            tti_large_accept(recv, box, (uint32_t)early->head.sequence, early->data);
        else
            finish_eager(box, recv, early->data);
        tti_early_free(box, early);
        return true;
    }
    return false;
}

static bool find_early_of_any(struct tti_recv *recv)
{
    struct tti_messages *messages = recv->letter.comm->messages;
    int size = recv->letter.comm->size, first = messages->turn;
    for (int i = 0; i < size; i++) {
        struct tti_box *box = tti_box_at(messages, (first + i) % size);
        if (box != NULL && find_early(recv, box)) return true;
    }
    return false;
}

/* Inserts a receive before those that were posted later; there are such only after a message was withdrawn. */
static void insert(struct tti_link *list, struct tti_recv *recv)
{
    struct tti_link *before = list;
    while (before->previous != list && TTI_RECV_OF(TTI_LETTER_ON(before->previous))->order > recv->order)
        before = before->previous;
    tti_list_append(before, &recv->letter.on);
}

void tti_recv_poll(struct tti_recv *recv)
{
    struct tti_letter *letter = &recv->letter;
    struct tti_messages *messages = letter->comm->messages;
    bool any = letter->peer == TUTTI_ANY_SOURCE;
    struct tti_box *box = any ? NULL : tti_box_at(messages, letter->peer);
    if (messages->early > 0 && (any ? find_early_of_any(recv) : find_early(recv, box))) {
        tti_box_activate(tti_box_at(messages, recv->source));
        if (messages->failure != TUTTI_OK) tti_letter_end(letter, messages->failure);
        return;
    }
    insert(any ? &messages->any : &box->posted, recv);
    if (box != NULL) tti_box_activate(box);
}

static tutti_status recv_nothing(struct tti_recv *recv)
{
    recv->source = TUTTI_NOBODY;
    recv->got = TUTTI_ANY_TAG;
    recv->came = recv->letter.type;
    return pass_over(&recv->letter, false);
}

static tutti_status post_recv(struct tti_recv *recv)
{
    struct tti_letter *letter = &recv->letter;
    struct tti_messages *messages = letter->comm->messages;
    if (letter->peer == TUTTI_NOBODY) return recv_nothing(recv);
    if (letter->peer != TUTTI_ANY_SOURCE && tti_box_of(messages, letter->peer) == NULL)
        return refuse(letter, TTI_RECV, TUTTI_ERR_MEMORY, "memory ran out");
    begin(letter, false);
    recv->source = TUTTI_NOBODY;
    recv->order = ++messages->order;
    messages->failure = TUTTI_OK;
    tti_recv_poll(recv);
    if (messages->failure != TUTTI_OK) tti_comm_health(letter->comm, TTI_RECV, false);
    return letter->status;
}

/* ---- Progress -------------------------------------------------------------------------------------------------- */

static void look_at_active(struct tti_messages *messages)
{
    bool asks = messages->quiet > QUIET;
    TTI_LIST_EACH(link, &messages->active)
    {
        struct tti_box *box = TTI_LIST_OF(link, struct tti_box, active);
        if (!has_letters(box)) {
            tti_list_remove(link);
            continue;
        }
        if (asks) look_whether_left(box);
        if (box->trouble.failed == TUTTI_OK || box->trouble.lost) box->route->poll(box);
        if (box->trouble.failed != TUTTI_OK)
            tti_trouble_end(box);
        else if (!tti_list_is_empty(&box->queue) || box->trouble.any)
            start_queued(box);
    }
}

/* Polls `count` peers from `first` on; those that have sent nothing so far are left out. */
static void look_at_others(struct tti_messages *messages, int first, int count)
{
    int size = messages->comm->size;
    for (int i = 0, peer = first; i < count && i < size; i++, peer = peer + 1 < size ? peer + 1 : 0) {
        if (peer == messages->comm->rank || !tti_channel_is_there(messages, peer)) continue;
        struct tti_box *box = tti_box_of(messages, peer);
        if (box == NULL) continue; /* no memory: it is tried again at the next poll */
        box->route->poll(box);
        if (has_letters(box)) tti_box_activate(box);
    }
}

/* A rank that waits puts aside messages of other peers, so that these do not wait for it in turn. */
static void tidy(struct tti_messages *messages)
{
    messages->tidies = true;
    look_at_others(messages, messages->idle, TIDIED_AT_ONCE);
    messages->tidies = false;
    messages->idle = (messages->idle + TIDIED_AT_ONCE) % messages->comm->size;
}

static bool work_once(struct tti_messages *messages)
{
    bool moved = false;
    TTI_LIST_EACH(link, &messages->work)
    {
        if (messages->failure != TUTTI_OK) return false;
        if (tti_large_step(TTI_LIST_OF(link, struct tti_letter, work))) moved = true;
    }
    return moved;
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

/* The last poll before a sleep must be a thorough one; over a transport, where a poll costs system calls, each may
 * be. */
static bool is_about_to_sleep(const tutti_comm *comm)
{
    return comm->lanes != NULL ||
           atomic_load_explicit(&comm->memory->posts[comm->rank].waiting_for, memory_order_relaxed) != 0;
}

void tti_messages_poll_closely(tutti_comm *comm)
{
    if (comm->lanes == NULL) comm->messages->quiet = QUIET;
}

bool tti_messages_are_quiet(const tutti_comm *comm)
{
    /* over a transport `quiet` is changed under the lock, so it is not read here */
    return is_about_to_sleep(comm) || comm->messages->quiet >= QUIET;
}

void tti_messages_pump(const tutti_comm *comm, int awaited_rank)
{
    struct tti_transport *transport = comm->lanes == NULL ? NULL : comm->lanes->net->transport;
    if (transport != NULL) transport->ops->progress(transport, awaited_rank);
}

/* Returns the only rank for which letters wait, in the world's numbers, or TTI_ANYBODY. */
static int awaited(const struct tti_messages *messages)
{
    const struct tti_link *first = messages->active.next;
    if (!tti_list_is_empty(&messages->any) || first == &messages->active || first->next != &messages->active)
        return TTI_ANYBODY;
    return tti_member(messages->comm, TTI_LIST_OF(first, const struct tti_box, active)->peer);
}

static tutti_status make_progress(tutti_comm *comm)
{
    struct tti_messages *messages = comm->messages;
    if ((messages->pending == 0 && messages->owed == 0) || messages->stopped) return TUTTI_OK;
    messages->failure = TUTTI_OK;
    if (is_about_to_sleep(comm)) messages->quiet = QUIET;
    bool quiet = ++messages->quiet > QUIET;
    tti_messages_pump(comm, comm->lanes == NULL ? TTI_ANYBODY : awaited(messages));
    bool alone = quiet && !tti_list_is_empty(&messages->any) && !tti_message_somebody(messages);
    look_at_active(messages);
    if (!tti_list_is_empty(&messages->any)) look_at_others(messages, messages->turn, comm->size);
    if (quiet) tidy(messages);
    while (!tti_list_is_empty(&messages->work) && work_once(messages)) look_at_active(messages);
    if (messages->failure != TUTTI_OK) return tti_comm_health(comm, TTI_RECV, false);
    if (!quiet) return TUTTI_OK;
    if (comm->traits.tolerant) {
        tti_tolerant_check_left(messages, alone);
        return TUTTI_OK;
    }
    return alone ? tti_message_check_alone(messages) : tti_message_check_left(messages);
}

/* ---- From outside ---------------------------------------------------------------------------------------------- */

/* The thread that moves the transport delivers frames to any comm: see net.h. */
void tti_messages_lock(const tutti_comm *comm)
{
    if (comm->lanes != NULL) tti_net_lock(comm->lanes->net);
}

void tti_messages_unlock(const tutti_comm *comm)
{
    if (comm->lanes != NULL) tti_net_unlock(comm->lanes->net);
}

tutti_status tti_send_post(struct tti_send *send)
{
    tti_messages_lock(send->letter.comm);
    tutti_status status = post_send(send);
    tti_messages_unlock(send->letter.comm);
    return status;
}

tutti_status tti_recv_post(struct tti_recv *recv)
{
    tti_messages_lock(recv->letter.comm);
    tutti_status status = post_recv(recv);
    tti_messages_unlock(recv->letter.comm);
    return status;
}

tutti_status tti_messages_progress(tutti_comm *comm)
{
    tti_messages_lock(comm);
    tutti_status status = make_progress(comm);
    tti_messages_unlock(comm);
    return status;
}
