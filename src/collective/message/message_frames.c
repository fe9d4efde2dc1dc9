/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/message/message_frames.h"

#include "base/alloc.h"
#include "collective/message/message_parts.h"
#include "collective/peers/net.h"

/* CREDIT says how much of the small messages was received since the last one of these. Their sender has no more than
 * TTI_EARLY_BYTES of them on the way or put aside; what is beyond that it announces like large ones. WITHDRAW says that an
 * announced message will not come: its data are still with the sender, since they leave it only when it hears that they
 * were accepted. */
enum { CREDIT_BYTES = TTI_EARLY_BYTES / 4 };

enum { GIVEN = 16, GIVEN_BYTES = GIVEN * TTI_EAGER_BYTES }; /* so much more than `eager` need not be announced */

/* ---- Out ------------------------------------------------------------------------------------------------------- */

struct carrier {
    struct tti_outgoing outgoing;
    struct tti_letter *letter; /* whose data it carries; NULL: they are in `data` or `copy`, or it has ended */
    void *copy;
    struct tti_debt debt; /* of a letter that was given up */
    unsigned char data[];
};

static void sent(struct tti_outgoing *outgoing, tutti_status status)
{
    struct carrier *carrier = TTI_LIST_OF(outgoing, struct carrier, outgoing);
    struct tti_letter *letter = carrier->letter;
    if (carrier->debt.box != NULL) tti_debt_settle(&carrier->debt);
    tti_free(carrier->copy);
    tti_free(carrier);
    if (letter == NULL) return;
    letter->carrier = NULL;
    letter->exposed = false;
    if (status == TUTTI_OK) tti_letter_end(letter, TUTTI_OK); /* else the peer is lost, and so is the comm */
}

static int number_of(const struct tti_frames *frames, int peer)
{
    return frames->ranks == NULL ? peer : frames->ranks[peer];
}

static void send_frame(struct tti_box *box, struct carrier *carrier, const struct tti_note *note, const void *data,
                       size_t length)
{
    const struct tti_frames *frames = box->messages->comm->frames;
    carrier->outgoing = (struct tti_outgoing){.head = {.comm = frames->comm,
                                                       .epoch = box->messages->comm->traits.era.made,
                                                       .kind = (uint16_t)(TTI_FRAME_MESSAGES + note->kind),
                                                       .type = note->type,
                                                       .tag = note->tag,
                                                       .value = note->bytes,
                                                       .bytes = length},
                                              .data = data,
                                              .done = sent};
    if (frames->transport->ops->send(frames->transport, number_of(frames, box->peer), &carrier->outgoing))
        sent(&carrier->outgoing, TUTTI_OK);
    else if (box->messages->comm->traits.tolerant && carrier->letter == NULL)
        tti_debt_owe(box, &carrier->debt); /* its message has ended, and somebody has to see to it */
}

/* The peer would wait for what cannot be said. */
static bool no_memory(struct tti_box *box)
{
    tutti_comm *comm = box->messages->comm;
    if (comm->traits.tolerant) return false; /* it is tried again */
    tti_box_fault(box, TTI_SEND, TUTTI_ERR_MEMORY, comm->rank, "rank %d has no memory for a message to rank %d",
                  comm->rank, box->peer);
    return false;
}

/* Places mean nothing on another host, so only small messages have data. */
static bool put(struct tti_box *box, const struct tti_note *note, const void *data, size_t length)
{
    if (note->kind != TTI_NOTE_EAGER) length = 0;
    struct carrier *carrier = tti_malloc(1, sizeof *carrier + length);
    if (carrier == NULL)
        return note->kind <= TTI_NOTE_RECEIVED && no_memory(box); /* nobody waits for the other notes */
    *carrier = (struct carrier){0};
    if (length > 0) memcpy(carrier->data, data, length);
    if (note->kind == TTI_NOTE_EAGER) box->owed += length;
    send_frame(box, carrier, note, carrier->data, length);
    return true;
}

/* A frame with the sender's data where they lie: the letter ends when they are on their way. */
static bool send_in_place(struct tti_box *box, struct tti_send *send, const struct tti_note *note)
{
    struct tti_letter *letter = &send->letter;
    struct carrier *carrier = tti_calloc(1, sizeof *carrier);
    if (carrier == NULL) return no_memory(box);
    carrier->letter = letter;
    letter->carrier = carrier;
    letter->exposed = true;
    letter->state = TTI_LETTER_SAID;
    tti_list_remove(&letter->work);
    tti_list_remove(&letter->on);
    tti_list_append(&box->sending, &letter->on);
    send_frame(box, carrier, note, send->in, letter->bytes);
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
    if (!send_in_place(box, send, &note)) return false;
    box->owed += note.bytes;
    return true;
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

void tti_carrier_forget(void *carrier)
{
    if (carrier != NULL) ((struct carrier *)carrier)->letter = NULL;
}

bool tti_letter_take_back(struct tti_letter *letter, int peer)
{
    const struct tti_frames *frames = letter->comm->frames;
    struct tti_transport *transport = frames->transport;
    struct carrier *carrier = letter->carrier;
    int number = number_of(frames, peer);
    if (!letter->is_send) {
        transport->ops->drop(transport, number);
        return true;
    }
    return tti_net_copy(transport, number, &carrier->outgoing, &carrier->copy);
}

void tti_carrier_owe(struct tti_box *box, void *carrier)
{
    if (carrier != NULL) tti_debt_owe(box, &((struct carrier *)carrier)->debt);
}

/* ---- In -------------------------------------------------------------------------------------------------------- */

static uint64_t unread(const struct tti_box *box)
{
    return box->owed;
}

static void consumed(struct tti_box *box, uint64_t bytes)
{
    box->credit += bytes;
    struct tti_note note = {TTI_NOTE_CREDIT, 0, 0, box->credit};
    if (box->credit >= CREDIT_BYTES && put(box, &note, NULL, 0)) box->credit = 0;
}

static void poll_box(struct tti_box *box)
{
    (void)box; /* what comes makes itself heard, in the transport's progress */
}

const struct tti_route tti_route_frames = {.most = TTI_EAGER_BYTES,
                                           .put = put,
                                           .give = give,
                                           .gives = gives,
                                           .move = move,
                                           .withdraw = withdraw,
                                           .poll = poll_box,
                                           .unread = unread,
                                           .consumed = consumed};

static struct tti_note note_of(const struct tti_frame_head *head)
{
    return (struct tti_note){.kind = (uint8_t)(head->kind - TTI_FRAME_MESSAGES),
                             .type = (uint8_t)head->type,
                             .tag = head->tag,
                             .bytes = head->value};
}

/* Whether the head is one that put() or move() writes. */
static bool is_sound(const struct tti_note *note, uint64_t bytes)
{
    switch (note->kind) {
    case TTI_NOTE_EAGER: return note->bytes == bytes && bytes <= GIVEN_BYTES && note->type < TUTTI_TYPE_COUNT;
    case TTI_NOTE_LARGE: return bytes == 0 && note->bytes <= PTRDIFF_MAX && note->type < TUTTI_TYPE_COUNT;
    case TTI_NOTE_PART: return note->bytes == bytes;
    case TTI_NOTE_ACCEPT: return bytes == 0 && note->type == TTI_WAY_PARTS;
    case TTI_NOTE_CREDIT:
    case TTI_NOTE_WITHDRAW: return bytes == 0;
    default: return false;
    }
}

static void complain(struct tti_box *box, const struct tti_frame_head *head)
{
    tutti_comm *comm = box->messages->comm;
    tti_box_fault(box, TTI_RECV, TUTTI_ERR_MISMATCH, box->peer,
                  "rank %d got a frame of rank %d that makes no sense (kind %d, %llu bytes); do all ranks use the same "
                  "version?",
                  comm->rank, box->peer, head->kind, (unsigned long long)head->bytes);
}

/* A cookie is what a message is put aside in or, marked, the letter that it comes to. */
enum { CLAIMED = 1 };

static void end_claimed(struct tti_box *box, const void *cookie, uint64_t bytes)
{
    if (box->trouble.drops_frame) { /* its receive was given up, and another letter may be where it was */
        box->trouble.drops_frame = false;
        tti_debt_came(box, 0, UINT64_MAX);
        consumed(box, bytes);
        return;
    }
    TTI_LIST_EACH(link, &box->taking)
    {
        struct tti_letter *letter = TTI_LETTER_ON(link);
        if ((const char *)letter + CLAIMED != (const char *)cookie || !letter->exposed) continue;
        letter->exposed = false;
        if (box->messages->stopped) return; /* it has failed meanwhile */
        consumed(box, bytes);
        tti_letter_end(letter, TUTTI_OK);
        return;
    }
}

static void *begin_eager(struct tti_box *box, const struct tti_note *note, void **cookie)
{
    struct tti_recv *recv = note->bytes > TTI_EAGER_BYTES ? tti_message_claim(box, note) : NULL;
    if (recv != NULL) {
        *cookie = (char *)&recv->letter + CLAIMED;
        return recv->out;
    }
    struct tti_early *early = tti_early_new(box, note);
    *cookie = early;
    if (early == NULL) return NULL;
    tti_list_append(&box->incoming, &early->on);
    return early->data;
}

static struct tti_letter *taken_by(const struct tti_box *box, const struct tti_note *note)
{
    return tti_large_find(&box->taking, (uint32_t)note->tag);
}

static void *frame_begin(tutti_comm *comm, int peer, const struct tti_frame_head *head, void **cookie)
{
    *cookie = NULL;
    struct tti_box *box = tti_box_of(comm->messages, peer);
    struct tti_note note = note_of(head);
    if (comm->messages->stopped) return NULL;
    if (box == NULL) {
        comm->messages->failure = tti_comm_break_apart(comm, TTI_RECV, TUTTI_ERR_MEMORY, comm->rank,
                                                       "rank %d has no memory for messages of rank %d", comm->rank,
                                                       peer);
        return NULL;
    }
    if (!is_sound(&note, head->bytes)) {
        complain(box, head);
        return NULL;
    }
    if (box->trouble.failed != TUTTI_OK) return NULL;
    if (note.kind == TTI_NOTE_EAGER) return begin_eager(box, &note, cookie);
    if (note.kind != TTI_NOTE_PART) return NULL;
    char *target = tti_large_target(box, &note);
    if (target != NULL) taken_by(box, &note)->exposed = true;
    return target;
}

static void end_part(struct tti_box *box, const struct tti_note *note)
{
    struct tti_letter *letter = taken_by(box, note);
    if (letter == NULL) tti_debt_came(box, (uint32_t)note->tag, note->bytes);
    if (letter == NULL || !letter->exposed) return; /* it has failed meanwhile */
    letter->exposed = false;
    tti_large_part(box, note);
}

static void frame_end(tutti_comm *comm, int peer, const struct tti_frame_head *head, void *cookie)
{
    struct tti_box *box = tti_box_of(comm->messages, peer);
    struct tti_note note = note_of(head);
    struct tti_place nowhere = {0};
    if (box == NULL || !is_sound(&note, head->bytes)) return;
    if (note.kind == TTI_NOTE_EAGER && ((uintptr_t)cookie & CLAIMED) != 0) {
        end_claimed(box, cookie, note.bytes);
    } else if (note.kind == TTI_NOTE_EAGER) {
        struct tti_early *early = cookie;
        if (early == NULL) return;
        tti_list_remove(&early->on);
        comm->messages->quiet = 0;
        if (comm->messages->stopped)
            tti_free(early);
        else
            tti_message_deliver(box, &note, early->data, early);
    } else if (note.kind == TTI_NOTE_PART) {
        end_part(box, &note);
    } else if (note.kind == TTI_NOTE_CREDIT) {
        box->owed -= note.bytes < box->owed ? note.bytes : box->owed;
    } else if (note.kind == TTI_NOTE_WITHDRAW) {
        tti_message_withdrawn(box, (uint32_t)note.tag);
    } else {
        tti_note_arrived(box, &note, &nowhere);
    }
    if (!tti_list_is_empty(&box->sending) || !tti_list_is_empty(&box->taking)) tti_box_activate(box);
}

static void frame_lost(tutti_comm *comm, int peer)
{
    struct tti_box *box = tti_box_at(comm->messages, peer);
    if (box == NULL) return;
    TTI_LIST_EACH(link, &box->incoming)
    {
        tti_list_remove(link);
        tti_free(TTI_LIST_OF(link, struct tti_early, on));
    }
    TTI_LIST_EACH(link, &box->taking) TTI_LETTER_ON(link)->exposed = false;
    box->trouble.drops_frame = false;
}

const struct tti_letter_sink tti_letter_sink = {.begin = frame_begin, .end = frame_end, .lost = frame_lost};
