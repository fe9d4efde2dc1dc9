/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files message*.c share: boxes, notes and the routes they take.
 *
 * Ranks exchange notes, in order per pair of ranks. A small message is one note (EAGER), or that and some more (PART, with
 * number 0). A large one is announced (LARGE, with the place of its data) and waits in its sender; the receiver that matches
 * it answers with the way it chose and the place of its own buffer (ACCEPT). Then, by the way:
 *   HALVES  both can reach the other's buffer, by attach too: each copies half, then says so (SENT, RECEIVED)
 *   FETCH   the receiver reads the sender's memory, then says so (RECEIVED)
 *   PARTS   the data travel as notes (PART)
 *   COPY    both are on devices: message_device.h
 * Large messages of one direction are numbered from 1 in the order they were announced; all notes but EAGER and LARGE
 * carry that number.
 *
 * Invariant: a note that is awaited gets through. A rank reads the notes of a peer for as long as one of its letters may
 * need one of them, however many have to be put aside for that; otherwise it leaves them in the channel, and the peer
 * waits. Answers (ACCEPT, RECEIVED) take another ring than messages, and wait for none.
 */
#ifndef TTI_COLLECTIVE_MESSAGE_PARTS_H
#define TTI_COLLECTIVE_MESSAGE_PARTS_H

#include "base/sim.h"
#include "base/table.h"
#include "collective/comm/comm.h"
#include "collective/message/message_device.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include "collective/reduce/copy.h"
#include "transport/channel.h"
#include <string.h>

enum tti_note_kind {
    TTI_NOTE_EAGER,
    TTI_NOTE_LARGE,
    TTI_NOTE_ACCEPT,
    TTI_NOTE_PART,
    TTI_NOTE_SENT,
    TTI_NOTE_RECEIVED,
    TTI_NOTE_WITHDRAW /* the rest of a message will not come; number 0: of the one that is coming in several notes */
};

enum tti_way { TTI_WAY_HALVES, TTI_WAY_FETCH, TTI_WAY_PARTS, TTI_WAY_COPY };

struct tti_note {
    uint8_t kind;
    uint8_t type;   /* EAGER, LARGE: of the elements; ACCEPT: the way */
    int32_t tag;    /* EAGER, LARGE: the tag; others: the large message's number */
    uint64_t bytes; /* EAGER, LARGE: of the message; PART: of the piece */
};

/* Written with every poll: must not share a cache line with what another thread allocated. */
enum { TTI_APART = 64 };

struct tti_box;
struct tti_messages;

/* How notes get to a peer and come from it. */
struct tti_route {
    size_t most; /* bytes of data that one note of a message carries */
    /* Makes what put() needs; NULL: nothing. */
    tutti_status (*open)(struct tti_box *box, tutti_error *error);
    /* Copies a note with `length` bytes of data on its way; false when there is no room now, or no memory: what somebody would
     * wait for breaks the comm then. */
    bool (*put)(struct tti_box *box, const struct tti_note *note, const void *data, size_t length);
    /* Sends a message that is larger than a note, with its data, and ends it when these are on their way; false: no room for
     * more of it, or no memory, and the comm is broken. NULL: put() is for all. */
    bool (*give)(struct tti_box *box, struct tti_send *send);
    /* How many bytes of this message, in notes, may be sent before it is received; NULL: one note. */
    int (*gives)(const struct tti_box *box, const struct tti_send *send);
    /* Moves data of a large message that goes as notes; ends it when no more are needed. Whether anything moved. */
    bool (*move)(struct tti_box *box, struct tti_send *send);
    /* Hands notes that have come to tti_note_arrived, while tti_box_listens; not much more than were there when it
     * began. */
    void (*poll)(struct tti_box *box);
    /* Says that an announced message will not come; an acceptance may be on its way. False: no memory. NULL: the receiver may
     * be reading it already. */
    bool (*withdraw)(struct tti_box *box, uint32_t number);
    /* Whether a small message may be sent before it is received, since not too many were; NULL: a ring sees to that. */
    bool (*has_room)(const struct tti_box *box, uint64_t bytes);
    /* A small message was received; NULL: nobody wants to know. */
    void (*consumed)(struct tti_box *box, uint64_t bytes);
};
extern const struct tti_route tti_route_channel, tti_route_self, tti_route_frames;

/* Something that is still to happen for a message that was given up: its withdrawal, or that the rest of it comes and is dropped,
 * or goes out of a copy. Each counts as something in flight, so that somebody sees to it. */
struct tti_debt {
    struct tti_link on;
    struct tti_box *box; /* NULL: there is none */
    uint32_t number;     /* of the large message; 0: of the one that comes in several notes, or in a frame */
    uint64_t left;       /* bytes that are still to come */
    bool allocated;
};

/* What is wrong between two ranks of a tolerant comm: see message_tolerant.c. */
struct tti_trouble {
    bool any;                    /* something is */
    bool lost;                   /* the peer is; what it had sent before may still be received */
    tutti_status failed;         /* why no message goes from or to it any more; OK: they do, */
    char *why;                   /* and in words; NULL: there was no memory for them */
    struct tti_link withdrawals; /* debts: to be said, before anything else goes; */
    struct tti_link debts;       /* and others */
    bool drops_given;            /* what comes in several notes now is dropped: its receive was given up */
};

/* This rank's side towards one peer, made when it is first needed. */
struct tti_box {
    char apart[TTI_APART];
    struct tti_messages *messages;
    const struct tti_route *route;
    int peer;
    bool leaving, left;      /* the peer, when last looked at */
    bool withdrew;           /* an announced message: its acceptance may come all the same */
    struct tti_link active;  /* on messages->active, as long as it has letters */
    struct tti_link posted;  /* receives without a message */
    struct tti_link queue;   /* sends of which nothing was said yet */
    struct tti_link sending; /* large messages from the announcement on, and those that were given */
    struct tti_link taking;  /* large messages from the acceptance on, and those that come to their place at once */
    struct tti_link early;   /* struct tti_aside: messages that came before a receive for them, see tti_early_new */
    uint64_t early_bytes;
    uint32_t announced, heard;          /* numbers of large messages, out and in */
    struct tti_retired *made;           /* our channel to the peer, or NULL */
    struct tti_ring to, answers_to;     /* of it: cells, and what the peer answers */
    struct tti_ring from, answers_from; /* of its channel to us: cells, and what we answer */
    struct tti_note given;              /* channels: the one that comes in several notes, */
    struct tti_recv *given_to;          /* for this receive, */
    struct tti_aside *given_aside;      /* or put aside */
    uint64_t given_done;                /* bytes of it that have come */
    struct tti_trouble trouble;
    struct tti_lane *lane; /* frames: they go along this one */
    char apart_too[TTI_APART];
};

enum {
    TTI_EAGER_BYTES = 4096,   /* the largest `eager` */
    TTI_EARLY_BYTES = 1 << 20 /* put aside, per peer, without need */
};

/* Messages that have ended with success. */
struct tti_traffic {
    uint64_t count, bytes;
};

static inline void tti_traffic_count(struct tti_traffic *traffic, uint64_t bytes)
{
    traffic->count++;
    traffic->bytes += bytes;
}

struct tti_messages {
    char apart[TTI_APART];
    tutti_comm *comm;
    struct tti_table boxes;               /* struct tti_box: those that were needed */
    struct tti_link active;               /* boxes */
    struct tti_link any;                  /* receives from any source */
    struct tti_link work;                 /* large messages that can go on without hearing anything more */
    struct tti_link lifted;               /* receives on devices whose data have come to the host */
    _Atomic(struct tti_copier *) copiers; /* of devices */
    uint64_t order;                       /* of receives */
    int pending;                          /* letters */
    int early;                            /* messages, of all boxes */
    int turn;                             /* the source that a receive from any looks at first */
    int idle;                             /* the peer whose channel is looked at next for no particular reason */
    int present;                          /* a peer that had not left */
    int quiet;                            /* calls since anything came */
    _Atomic int on_devices; /* letters of ops in flight whose data lie on devices: nobody rings when these can go on */
    int owed;               /* debts, of all boxes; each counts in the comm's queue */
    struct tti_traffic received, sent;
    bool tidies; /* looks at idle peers */
    bool stopped;
    struct tti_staged_copy staged_copy;
    int64_t probed_ns;    /* when a probe that does not wait last looked whether the others live */
    tutti_status failure; /* of the note that was looked at last */
    char apart_too[TTI_APART];
};

enum tti_letter_state {
    TTI_LETTER_POSTED,    /* send: nothing said yet; receive: no message yet */
    TTI_LETTER_ANNOUNCED, /* send: LARGE said */
    TTI_LETTER_ACCEPTING, /* receive: ACCEPT to be said */
    TTI_LETTER_MOVING,    /* own share to be done */
    TTI_LETTER_CLOSING,   /* done, to be said */
    TTI_LETTER_SAID,      /* the other's share is awaited */
    TTI_LETTER_LIFTED,    /* receive: the data have come to the host, and go to the device */
    TTI_LETTER_ENDED
};

static inline struct tti_box *tti_box_at(const struct tti_messages *messages, int peer) /* NULL: not needed so far */
{
    return tti_table_get(&messages->boxes, peer);
}
struct tti_box *tti_box_of(struct tti_messages *messages, int peer); /* made if need be; NULL: no memory */
/* Whether a receive may need a note of this peer, or there is room to put its messages aside. */
static inline bool tti_box_listens(const struct tti_box *box)
{
    return !tti_list_is_empty(&box->posted) || !tti_list_is_empty(&box->taking) ||
           !tti_list_is_empty(&box->messages->any) || !tti_list_is_empty(&box->trouble.debts) ||
           (box->messages->tidies && box->early_bytes < TTI_EARLY_BYTES);
}
void tti_box_activate(struct tti_box *box); /* it has letters: look at it */
void tti_note_arrived(struct tti_box *box, const struct tti_note *note, const void *data);

/* Moves data of a message that came with a note. */
static inline void tti_note_copy(void *target, const void *source, size_t bytes)
{
    if (bytes == 0) return;
    if (tti_move(bytes)) tti_copy(target, source, bytes, TTI_CACHED);
    tti_moved();
}

void tti_letter_end(struct tti_letter *letter, tutti_status status);
void tti_messages_pump(const tutti_comm *comm, int awaited_rank); /* frames: moves what the transport can */

/* Something of this peer's makes no sense, or cannot be kept. Breaks the comm; of a tolerant one, all that is between the two. */
void tti_box_fault(struct tti_box *box, enum tti_kind kind, tutti_status status, int peer, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Tolerant comms (message_tolerant.c): looks what is wrong between the two ranks, and ends the letters that it concerns. */
void tti_trouble_poll(struct tti_box *box);
void tti_trouble_end(struct tti_box *box);
/* A message that was given up: the rest of it, which has been taken back, is on its way out of a copy, or has gone. */
void tti_debt_owe(struct tti_box *box, struct tti_debt *debt);
void tti_debt_settle(struct tti_debt *debt);
/* So many bytes have come of it. */
void tti_debt_came(struct tti_box *box, uint32_t number, uint64_t bytes);
/* Says what was withdrawn; false: there is no room for all of it. */
bool tti_trouble_say(struct tti_box *box);
void tti_trouble_free(struct tti_box *box); /* or forgets it, since the comm is freed */
/* Ends letters that wait for peers that have left, and, where nobody is left, receives from any. */
void tti_tolerant_check_left(struct tti_messages *messages, bool alone);
/* A receive whose message will not come after all looks for another one. */
void tti_recv_poll_again(struct tti_letter *letter);
/* Of channels: the rest of the message that comes in several notes will not come. */
void tti_given_withdrawn(struct tti_box *box);

/* Whether anybody else could still send. Letters that can never end, which breaks the comm: of peers that were found to have
 * left, and where all others have. */
bool tti_message_somebody(struct tti_messages *messages);
tutti_status tti_message_check_left(const struct tti_messages *messages);
tutti_status tti_message_check_alone(const struct tti_messages *messages);

/* Frames: whether the transport uses the buffer of the letter. That it is to use it no more: what is still to come of it is
 * dropped, what is still to go goes out of a copy; false: there is no memory for one. */
bool tti_letter_is_carried(const struct tti_letter *letter, const struct tti_box *box);
bool tti_letter_take_back(struct tti_letter *letter, struct tti_box *box);
void tti_packet_forget(struct tti_packet *packet);                   /* its letter ends before it has gone */
void tti_packet_owe(struct tti_box *box, struct tti_packet *packet); /* of a letter that was given up, and taken back */
/* A message has come: to the receive that it is for, or aside. `early`: it lies in this already, which is taken over. */
void tti_message_deliver(struct tti_box *box, const struct tti_note *note, const void *data, struct tti_aside *early);
/* The receive that a message which has begun to come is for: its data go to their place. NULL: it is to be put aside first. */
struct tti_recv *tti_message_claim(struct tti_box *box, const struct tti_note *note);
/* A large message will not come after all: its receive looks for another one (message_cancel.c). */
void tti_message_withdrawn(struct tti_box *box, uint32_t number);
/* A message that comes before a receive for it, with its data, or with the place of them while they are with the sender. NULL:
 * the comm is broken. */
struct tti_aside *tti_early_new(struct tti_box *box, const struct tti_note *note);
void tti_early_free(struct tti_box *box, struct tti_aside *early);
static inline bool tti_early_is_large(const struct tti_aside *early)
{
    return early->head.kind == TTI_FRAME_MESSAGES + TTI_NOTE_LARGE; /* its number is head.sequence */
}
#define TTI_EARLY_ON(link) TTI_LIST_OF(link, struct tti_aside, on)
/* A receive without a message gets one that was put aside, or waits for one. */
void tti_recv_poll(struct tti_recv *recv);

/* Large messages, message_large.c. Of a list of them, the one with this number, or NULL. */
struct tti_letter *tti_large_find(const struct tti_link *list, uint32_t number);
bool tti_large_announce(struct tti_send *send);
void tti_large_accept(struct tti_recv *recv, struct tti_box *box, uint32_t number, const void *place);
void tti_large_heard(struct tti_box *box, const struct tti_note *note, const void *data);
/* The receive that a PART is for, NULL (and the comm is broken) when it makes no sense; and that its data are there. */
struct tti_recv *tti_large_receive(struct tti_box *box, const struct tti_note *note);
void tti_large_part(struct tti_box *box, const struct tti_note *note);
bool tti_large_put_parts(struct tti_box *box, struct tti_send *send);
/* Does what can be done, of the data one piece; whether anything moved. */
bool tti_large_step(struct tti_letter *letter);

/* Whether a peer has made a channel to this rank. */
bool tti_channel_is_there(const struct tti_messages *messages, int peer);
/* The comm is freed: this rank uses its channels no more. */
void tti_channels_leave(struct tti_messages *messages);
#define TTI_LETTER_ON(link) TTI_LIST_OF(link, struct tti_letter, on)

#endif
