/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between ranks that share no memory: notes travel as packets over a transport (link.h). Data of large
 * messages go from the sender's buffer to the receiver's without another copy by the library.
 *
 * Small messages are sent within the window; those beyond it are announced like large ones. An announced message can be
 * withdrawn: its data are still with the sender, since they leave it only when it hears that they were accepted.
 */
#include "base/alloc.h"
#include "collective/message/message_parts.h"

/* messages this much larger than `eager` need not be announced */
enum { GIVEN = 16, GIVEN_BYTES = GIVEN * TTI_EAGER_BYTES };

/* ---- Out ------------------------------------------------------------------------------------------------------- */

struct carrier {
    struct tti_packet packet; /* the first member */
    /* the letter whose data it carries in place; NULL: they are in `data`, or the letter has ended */
    struct tti_letter *letter;
    struct tti_debt debt; /* the debt of a letter that was given up, or has ended */
    unsigned char data[];
};

static void gone(struct tti_packet *packet, tutti_status status)
{
    struct carrier *carrier = (struct carrier *)packet;
    struct tti_letter *letter = carrier->letter;
    if (carrier->debt.box != NULL) tti_debt_settle(&carrier->debt);
    tti_free(carrier);
    if (letter == NULL) return;
    letter->packet = NULL;
    if (status == TUTTI_OK) tti_letter_end(letter, TUTTI_OK); /* otherwise the peer is lost, and the comm with it */
}

static void send_packet(struct tti_box *box, struct carrier *carrier, const struct tti_note *note, const void *data,
                        size_t length)
{
    bool owes = box->messages->comm->traits.tolerant && carrier->letter == NULL;
    carrier->packet.outgoing.head = (struct tti_frame_head){.comm = box->lane->lanes->id,
                                                            .epoch = box->messages->comm->traits.era.made,
                                                            .kind = (uint16_t)(TTI_FRAME_MESSAGES + note->kind),
                                                            .type = note->type,
                                                            .tag = note->tag,
                                                            .value = note->bytes,
                                                            .bytes = length};
    carrier->packet.outgoing.data = data;
    carrier->packet.leaves = note->kind == TTI_NOTE_EAGER ? TTI_WITHIN_WINDOW : TTI_WHEN_ACCEPTED;
    carrier->packet.gone = gone;
    if (!tti_link_send(box->lane, TTI_LETTERS, &carrier->packet) && owes)
        tti_debt_owe(box, &carrier->debt); /* its message has ended, but the packet must still be sent */
}

/* Reports that a note cannot be sent: the peer would wait for it. */
static bool no_memory(struct tti_box *box)
{
    tutti_comm *comm = box->messages->comm;
    if (comm->traits.tolerant) return false; /* it is tried again */
    tti_box_fault(box, TTI_SEND, TUTTI_ERR_MEMORY, comm->rank, "rank %d has no memory for a message to rank %d",
                  comm->rank, box->peer);
    return false;
}

/* Places mean nothing on another host, so only small messages carry data. */
static bool put(struct tti_box *box, const struct tti_note *note, const void *data, size_t length)
{
    if (note->kind != TTI_NOTE_EAGER) length = 0;
    struct carrier *carrier = tti_malloc(1, sizeof *carrier + length);
    if (carrier == NULL) return note->kind != TTI_NOTE_WITHDRAW && no_memory(box); /* no peer waits for this kind */
    *carrier = (struct carrier){0};
    if (length > 0) memcpy(carrier->data, data, length);
    send_packet(box, carrier, note, carrier->data, length);
    return true;
}

/* Sends a packet with the sender's data in place: the letter ends when they have left. */
static bool send_in_place(struct tti_box *box, struct tti_send *send, const struct tti_note *note)
{
    struct tti_letter *letter = &send->letter;
    struct carrier *carrier = tti_calloc(1, sizeof *carrier);
    if (carrier == NULL) return no_memory(box);
    carrier->letter = letter;
    letter->packet = &carrier->packet;
    letter->state = TTI_LETTER_SAID;
    tti_list_remove(&letter->work);
    tti_list_remove(&letter->on);
    tti_list_append(&box->sending, &letter->on);
    send_packet(box, carrier, note, send->in, letter->bytes);
    return true;
}

static bool move(struct tti_box *box, struct tti_send *send)
{
    struct tti_note note = {TTI_NOTE_PART, 0, (int32_t)send->letter.number, send->letter.bytes};
    return send_in_place(box, send, &note);
}

static bool give(struct tti_box *box, struct tti_send *send)
{
    struct tti_letter *letter = &send->letter;
    struct tti_note note = {TTI_NOTE_EAGER, (uint8_t)letter->type, letter->tag, letter->bytes};
    letter->number = 0;
    letter->way = TTI_WAY_PARTS;
    return send_in_place(box, send, &note);
}

static int gives(const struct tti_box *box, const struct tti_send *send)
{
    (void)box, (void)send;
    return GIVEN;
}

static bool withdraw(struct tti_box *box, uint32_t number)
{
    struct tti_note note = {TTI_NOTE_WITHDRAW, 0, (int32_t)number, 0};
    return put(box, &note, NULL, 0);
}

static bool has_room(const struct tti_box *box, uint64_t bytes)
{
    return tti_link_has_room(box->lane, TTI_LETTERS, bytes);
}

static void consumed(struct tti_box *box, uint64_t bytes)
{
    tti_link_take(box->lane, TTI_LETTERS, bytes);
}

static void poll_box(struct tti_box *box)
{
    (void)box; /* incoming frames are delivered by the transport's progress */
}

const struct tti_route tti_route_frames = {.most = TTI_EAGER_BYTES,
                                           .put = put,
                                           .give = give,
                                           .gives = gives,
                                           .move = move,
                                           .withdraw = withdraw,
                                           .poll = poll_box,
                                           .has_room = has_room,
                                           .consumed = consumed};

bool tti_letter_is_carried(const struct tti_letter *letter, const struct tti_box *box)
{
    if (letter->is_send) return letter->packet != NULL;
    return box->lane != NULL && tti_link_coming(box->lane, TTI_LETTERS) == letter;
}

bool tti_letter_take_back(struct tti_letter *letter, struct tti_box *box)
{
    if (letter->is_send) return tti_link_take_back(box->lane, letter->packet);
    tti_link_drop(box->lane, TTI_LETTERS);
    return true;
}

void tti_packet_forget(struct tti_packet *packet)
{
    ((struct carrier *)packet)->letter = NULL;
}

void tti_packet_owe(struct tti_box *box, struct tti_packet *packet)
{
    tti_debt_owe(box, &((struct carrier *)packet)->debt);
}

/* ---- In -------------------------------------------------------------------------------------------------------- */

static struct tti_note note_of(const struct tti_frame_head *head)
{
    return (struct tti_note){.kind = (uint8_t)(head->kind - TTI_FRAME_MESSAGES),
                             .type = (uint8_t)head->type,
                             .tag = head->tag,
                             .bytes = head->value};
}

/* Returns true if the head is one that put() or move() writes. */
static bool is_sound(const struct tti_note *note, uint64_t bytes)
{
    switch (note->kind) {
    case TTI_NOTE_EAGER: return note->bytes == bytes && bytes <= GIVEN_BYTES && note->type < TUTTI_TYPE_COUNT;
    case TTI_NOTE_LARGE: return bytes == 0 && note->bytes <= PTRDIFF_MAX && note->type < TUTTI_TYPE_COUNT;
    case TTI_NOTE_PART: return note->bytes == bytes;
    case TTI_NOTE_ACCEPT: return bytes == 0 && note->type == TTI_WAY_PARTS;
    case TTI_NOTE_WITHDRAW: return bytes == 0;
    default: return false;
    }
}

static void cannot_keep(tutti_comm *comm, int peer)
{
    struct tti_box *box = tti_box_at(comm->messages, peer);
    const char *what = "rank %d has no memory for messages of rank %d";
    if (box != NULL)
        tti_box_fault(box, TTI_RECV, TUTTI_ERR_MEMORY, comm->rank, what, comm->rank, peer);
    else
        comm->messages->failure = tti_comm_break_apart(comm, TTI_RECV, TUTTI_ERR_MEMORY, comm->rank, what, comm->rank,
                                                       peer);
}

static void complain(struct tti_box *box, const struct tti_frame_head *head)
{
    int rank = box->messages->comm->rank;
    tti_box_fault(box, TTI_RECV, TUTTI_ERR_MISMATCH, box->peer,
                  "rank %d got a frame of rank %d that makes no sense (kind %d, %llu bytes); do all ranks use the same "
                  "version?",
                  rank, box->peer, head->kind, (unsigned long long)head->bytes);
}

/* Returns the box that a frame is for; NULL: the comm is broken, or nothing of this peer is taken any more. */
static struct tti_box *box_for(tutti_comm *comm, int peer, const struct tti_frame_head *head)
{
    struct tti_box *box = tti_box_of(comm->messages, peer);
    struct tti_note note = note_of(head);
    bool sound = is_sound(&note, head->bytes);
    if (box == NULL)
        cannot_keep(comm, peer);
    else if (!sound)
        complain(box, head);
    return box != NULL && sound && box->trouble.failed == TUTTI_OK ? box : NULL;
}

static enum tti_match match(tutti_comm *comm, int peer, const struct tti_frame_head *head, struct tti_taking *taking)
{
    struct tti_note note = note_of(head);
    struct tti_box *box = comm->messages->stopped ? NULL : box_for(comm, peer, head);
    if (box == NULL) return TTI_DROP;
    bool part = note.kind == TTI_NOTE_PART;
    struct tti_recv *recv = part ? tti_large_receive(box, &note) : tti_message_claim(box, &note);
    if (recv == NULL) return part ? TTI_DROP : TTI_PUT_ASIDE;
    *taking = (struct tti_taking){&recv->letter, recv->out + recv->letter.done};
    return TTI_GIVE_TO;
}

static void go_on(struct tti_box *box)
{
    if (!tti_list_is_empty(&box->sending) || !tti_list_is_empty(&box->taking)) tti_box_activate(box);
}

static void arrived(tutti_comm *comm, int peer, const struct tti_frame_head *head, void *letter)
{
    struct tti_box *box = tti_box_at(comm->messages, peer);
    struct tti_note note = note_of(head);
    if (comm->messages->stopped) return; /* the comm has failed meanwhile */
    if (note.kind == TTI_NOTE_PART) {
        tti_large_part(box, &note);
    } else {
        consumed(box, note.bytes);
        tti_letter_end(letter, TUTTI_OK);
    }
    go_on(box);
}

/* Counts data that came and were dropped: their receive was given up, or nothing of this peer is taken any more. */
static void hear_dropped(const tutti_comm *comm, int peer, const struct tti_note *note)
{
    struct tti_box *box = tti_box_at(comm->messages, peer);
    if (box == NULL) return;
    if (note->kind == TTI_NOTE_PART) {
        tti_debt_came(box, (uint32_t)note->tag, note->bytes);
    } else {
        tti_debt_came(box, 0, UINT64_MAX);
        consumed(box, note->bytes);
    }
}

static void hear_eager(struct tti_box *box, const struct tti_note *note, struct tti_aside *aside)
{
    box->messages->quiet = 0;
    tti_message_deliver(box, note, aside == NULL ? NULL : aside->data, aside);
}

static void hear(tutti_comm *comm, int peer, const struct tti_frame_head *head, struct tti_aside *aside)
{
    struct tti_note note = note_of(head);
    struct tti_place nowhere = {0};
    bool eager = note.kind == TTI_NOTE_EAGER;
    if (aside == NULL && head->bytes > 0) {
        hear_dropped(comm, peer, &note);
        return;
    }
    struct tti_box *box = eager && comm->messages->stopped ? NULL : box_for(comm, peer, head);
    if (box == NULL || !eager) tti_free(aside);
    if (box == NULL) return;
    if (eager)
        hear_eager(box, &note, aside);
    else if (note.kind == TTI_NOTE_WITHDRAW)
        tti_message_withdrawn(box, (uint32_t)note.tag);
    else
        tti_note_arrived(box, &note, &nowhere);
    go_on(box);
}

const struct tti_letter_sink tti_letter_sink = {
    .match = match, .arrived = arrived, .hear = hear, .no_memory = cannot_keep};
