/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files message*.c share: boxes, notes and their routes.
 *
 * Ranks exchange notes, in order per pair of ranks. A small message is one note (EAGER), or that and some more (PART,
 * with number 0). A large one is announced (LARGE, with the place of its data) and waits in its sender; the receiver
 * that matches it answers with the way it chose and the place of its own buffer (ACCEPT). The rest depends on the way:
 *   HALVES  both can reach the other's buffer, by attach too: each copies half, then says so (SENT, RECEIVED)
 *   FETCH   the receiver reads the sender's memory, then says so (RECEIVED)
 *   PARTS   the data travel as notes (PART)
 *   COPY    both are on devices: see message_device.h
 * Large messages of one direction are numbered from 1 in the order they were announced; all notes but EAGER and LARGE
 * carry that number.
 *
 * Invariant: a note for which a rank waits gets through. A rank reads the notes of a peer for as long as one of its
 * letters may need one of them, however many have to be put aside for that; otherwise it leaves them in the channel,
 * and the peer waits. Answers (ACCEPT, RECEIVED) take another ring than messages, and wait for none.
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
    /* the rest of a message will not come; number 0: the rest of the one that is coming in several notes */
    TTI_NOTE_WITHDRAW
};

enum tti_way { TTI_WAY_HALVES, TTI_WAY_FETCH, TTI_WAY_PARTS, TTI_WAY_COPY };

struct tti_note {
    uint8_t kind;
    uint8_t type;   /* EAGER, LARGE: the type of the elements; ACCEPT: the way */
    int32_t tag;    /* EAGER, LARGE: the tag; others: the large message's number */
    uint64_t bytes; /* EAGER, LARGE: bytes of the message; PART: bytes of the piece */
};

/* Boxes are written with every poll, so they must not share a cache line with what another thread allocated. */
enum { TTI_APART = 64 };

struct tti_box;
struct tti_messages;

/* Sends notes to a peer and takes those that come from it. */
struct tti_route {
    size_t most; /* bytes of data that one note of a message carries */
    /* Makes what put() needs; NULL: it needs nothing. */
    tutti_status (*open)(struct tti_box *box, tutti_error *error);
    /* Sends a note with a copy of `length` bytes of data; returns false if there is no room now, or no memory: if a
     * peer would wait for the note, the comm breaks then. */
    bool (*put)(struct tti_box *box, const struct tti_note *note, const void *data, size_t length);
    /* Sends a message that is larger than a note, with its data, and ends it when these have left; returns false if
     * there is no room for more of it, or no memory, and the comm is broken. NULL: put() is used for all. */
    bool (*give)(struct tti_box *box, struct tti_send *send);
    /* Returns how large a message may be that is sent before it is received, as a multiple of `eager`; NULL: 1. */
    int (*gives)(const struct tti_box *box, const struct tti_send *send);
    /* Moves data of a large message that is sent as notes; ends it when no more are needed. Returns true if anything
     * moved. */
    bool (*move)(struct tti_box *box, struct tti_send *send);
    /* Hands notes that have come to tti_note_arrived, while tti_box_listens; it takes not many more than were there
     * when it began. */
    void (*poll)(struct tti_box *box);
    /* Says that an announced message will not come; an acceptance may be on its way. Returns false if there is no
     * memory. NULL: not possible, since the receiver may be reading it already. */
    bool (*withdraw)(struct tti_box *box, uint32_t number);
    /* Returns true if a small message may be sent before it is received, since not too many were; NULL: a ring limits
     * them. */
    bool (*has_room)(const struct tti_box *box, uint64_t bytes);
    /* Called when a small message was received; NULL: not needed. */
    void (*consumed)(struct tti_box *box, uint64_t bytes);
};
extern const struct tti_route tti_route_channel, tti_route_self, tti_route_frames;

/* Work that is left for a message that was given up: its withdrawal must be sent, or the rest of it must come and be
 * dropped, or must leave out of a copy. Each debt counts as an op in flight, so that the comm is polled. */
struct tti_debt {
    struct tti_link on;
    struct tti_box *box; /* NULL: there is no debt */
    uint32_t number;     /* the number of the large message; 0: the one that comes in several notes, or in a frame */
    uint64_t left;       /* bytes that are still to come */
    bool allocated;
};

/* Records what is wrong between two ranks of a tolerant comm: see message_tolerant.c. */
struct tti_trouble {
    bool any;                    /* something is wrong */
    bool lost;                   /* the peer is lost; messages that it had sent before may still be received */
    tutti_status failed;         /* why no message goes from or to it any more; OK: messages go */
    char *why;                   /* the same in words; NULL: there was no memory for them */
    struct tti_link withdrawals; /* debts: withdrawals that must be sent before anything else */
    struct tti_link debts;       /* other debts */
    bool drops_given;            /* drops the message that comes in several notes now: its receive was given up */
};

/* This rank's side of the messages with one peer, made when it is first needed. */
struct tti_box {
    char apart[TTI_APART];
    struct tti_messages *messages;
    const struct tti_route *route;
    int peer;
    bool leaving, left;      /* the peer's state at the last poll */
    bool withdrew;           /* an announced message was withdrawn: its acceptance may come all the same */
    struct tti_link active;  /* on messages->active as long as the box has letters */
    struct tti_link posted;  /* receives without a message */
    struct tti_link queue;   /* sends of which nothing was said yet */
    struct tti_link sending; /* large messages from the announcement on, and those that are sent in several notes */
    struct tti_link taking; /* large messages from the acceptance on, and those whose data go straight to their place */
    struct tti_link early;  /* struct tti_aside: messages that came before a receive for them, see tti_early_new */
    uint64_t early_bytes;
    uint32_t announced, heard;          /* numbers of large messages, sent and received */
    struct tti_retired *made;           /* our channel to the peer, or NULL */
    struct tti_ring to, answers_to;     /* our channel: the cells, and the peer's answers */
    struct tti_ring from, answers_from; /* the peer's channel to us: its cells, and our answers */
    struct tti_note given;              /* channels: the message that comes in several notes */
    struct tti_recv *given_to;          /* the receive that it is for */
    struct tti_aside *given_aside;      /* or its copy that is put aside */
    uint64_t given_done;                /* bytes of it that have come */
    struct tti_trouble trouble;
    struct tti_lane *lane; /* frames: the lane that they use */
    char apart_too[TTI_APART];
};

enum {
    TTI_EAGER_BYTES = 4096,   /* the largest `eager` */
    TTI_EARLY_BYTES = 1 << 20 /* most bytes put aside without need, per peer */
};

/* Counts messages that have ended with success. */
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
    _Atomic(struct tti_copier *) copiers; /* one for each device */
    uint64_t order;                       /* number of the last receive */
    int pending;                          /* letters that have not ended */
    int early;                            /* messages put aside, in all boxes */
    int turn;                             /* the source that a receive from any source tries first */
    int idle;               /* the peer whose channel is polled next although nothing is expected from it */
    int present;            /* a peer that had not left when last checked */
    int quiet;              /* calls since anything came */
    _Atomic int on_devices; /* letters of ops in flight whose data lie on devices: no bell rings when these can go on */
    int owed;               /* debts in all boxes; each counts in the comm's queue */
    struct tti_traffic received, sent;
    bool tidies; /* polls idle peers */
    bool stopped;
    struct tti_staged_copy staged_copy;
    int64_t probed_ns;    /* when a probe that does not wait last checked whether the others live */
    tutti_status failure; /* the status of the note that was read last */
    char apart_too[TTI_APART];
};

enum tti_letter_state {
    TTI_LETTER_POSTED,    /* send: nothing said yet; receive: no message yet */
    TTI_LETTER_ANNOUNCED, /* send: LARGE was sent */
    TTI_LETTER_ACCEPTING, /* receive: ACCEPT must be sent */
    TTI_LETTER_MOVING,    /* the own share must be moved */
    TTI_LETTER_CLOSING,   /* the own share is done, which must be said */
    TTI_LETTER_SAID,      /* waits for the other's share */
    TTI_LETTER_LIFTED,    /* receive: the data have come to the host, and are copied to the device */
    TTI_LETTER_ENDED
};

static inline struct tti_box *tti_box_at(const struct tti_messages *messages, int peer) /* NULL: not needed so far */
{
    return tti_table_get(&messages->boxes, peer);
}
struct tti_box *tti_box_of(struct tti_messages *messages, int peer); /* makes it if need be; NULL: no memory */
/* Returns true if a receive may need a note of this peer, or there is room to put its messages aside. */
static inline bool tti_box_listens(const struct tti_box *box)
{
    return !tti_list_is_empty(&box->posted) || !tti_list_is_empty(&box->taking) ||
           !tti_list_is_empty(&box->messages->any) || !tti_list_is_empty(&box->trouble.debts) ||
           (box->messages->tidies && box->early_bytes < TTI_EARLY_BYTES);
}
void tti_box_activate(struct tti_box *box); /* called when it has letters: polls it from now on */
void tti_note_arrived(struct tti_box *box, const struct tti_note *note, const void *data);

/* Copies data of a message that came with a note. */
static inline void tti_note_copy(void *target, const void *source, size_t bytes)
{
    if (bytes == 0) return;
    if (tti_move(bytes)) tti_copy(target, source, bytes, TTI_CACHED);
    tti_moved();
}

void tti_letter_end(struct tti_letter *letter, tutti_status status);
void tti_messages_pump(const tutti_comm *comm, int awaited_rank); /* frames: lets the transport move what it can */

/* Reports that something from this peer makes no sense, or cannot be kept. Breaks the comm; in a tolerant comm ends all
 * messages between the two ranks. */
void tti_box_fault(struct tti_box *box, enum tti_kind kind, tutti_status status, int peer, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Tolerant comms (message_tolerant.c): checks what is wrong between the two ranks, and ends the letters that it
 * concerns. */
void tti_trouble_poll(struct tti_box *box);
void tti_trouble_end(struct tti_box *box);
/* Records a debt for a message that was given up. tti_debt_settle: the debt is gone. */
void tti_debt_owe(struct tti_box *box, struct tti_debt *debt);
void tti_debt_settle(struct tti_debt *debt);
/* Counts bytes that have come for a debt. */
void tti_debt_came(struct tti_box *box, uint32_t number, uint64_t bytes);
/* Sends the withdrawals; returns false if there is no room for all of them. */
bool tti_trouble_say(struct tti_box *box);
void tti_trouble_free(struct tti_box *box); /* frees the debts, or forgets them since the comm is freed */
/* Ends letters that wait for peers that have left, and receives from any source if no peer is left. */
void tti_tolerant_check_left(struct tti_messages *messages, bool alone);
/* Makes a receive look for another message, since its own will not come. */
void tti_recv_poll_again(struct tti_letter *letter);
/* Channels: the rest of the message that comes in several notes will not come. */
void tti_given_withdrawn(struct tti_box *box);

/* tti_message_somebody: returns true if another rank could still send. The others break the comm for letters that can
 * never end: those for peers that were found to have left, and those left when all others have. */
bool tti_message_somebody(struct tti_messages *messages);
tutti_status tti_message_check_left(const struct tti_messages *messages);
tutti_status tti_message_check_alone(const struct tti_messages *messages);

/* Frames. tti_letter_is_carried: returns true if the transport uses the letter's buffer. tti_letter_take_back: makes it
 * stop; data that are still to come are dropped, data that are still to go leave out of a copy; false: there is no
 * memory for one. */
bool tti_letter_is_carried(const struct tti_letter *letter, const struct tti_box *box);
bool tti_letter_take_back(struct tti_letter *letter, struct tti_box *box);
void tti_packet_forget(struct tti_packet *packet);                   /* its letter ends before it has left */
void tti_packet_owe(struct tti_box *box, struct tti_packet *packet); /* for a letter that was given up and taken back */
/* Delivers a message that has come: to its receive, or puts it aside. `early`: the memory in which it lies already,
 * which is taken over. */
void tti_message_deliver(struct tti_box *box, const struct tti_note *note, const void *data, struct tti_aside *early);
/* Returns the receive for a message that has begun to come: its data go straight to their place. NULL: it is put aside
 * first. */
struct tti_recv *tti_message_claim(struct tti_box *box, const struct tti_note *note);
/* Called when a large message will not come after all: its receive looks for another one (message_cancel.c). */
void tti_message_withdrawn(struct tti_box *box, uint32_t number);
/* Makes a record for a message that comes before its receive, with its data, or with their place while they are with
 * the sender. NULL: the comm is broken. */
struct tti_aside *tti_early_new(struct tti_box *box, const struct tti_note *note);
void tti_early_free(struct tti_box *box, struct tti_aside *early);
static inline bool tti_early_is_large(const struct tti_aside *early)
{
    return early->head.kind == TTI_FRAME_MESSAGES + TTI_NOTE_LARGE; /* its number is head.sequence */
}
#define TTI_EARLY_ON(link) TTI_LIST_OF(link, struct tti_aside, on)
/* Gives a receive without a message one that was put aside; otherwise it waits for one. */
void tti_recv_poll(struct tti_recv *recv);

/* Large messages, message_large.c. Returns the one with this number from a list of them, or NULL. */
struct tti_letter *tti_large_find(const struct tti_link *list, uint32_t number);
bool tti_large_announce(struct tti_send *send);
void tti_large_accept(struct tti_recv *recv, struct tti_box *box, uint32_t number, const void *place);
void tti_large_heard(struct tti_box *box, const struct tti_note *note, const void *data);
/* tti_large_receive: returns the receive that a PART is for; NULL (and the comm is broken) if it makes no sense.
 * tti_large_part: its data are there. */
struct tti_recv *tti_large_receive(struct tti_box *box, const struct tti_note *note);
void tti_large_part(struct tti_box *box, const struct tti_note *note);
bool tti_large_put_parts(struct tti_box *box, struct tti_send *send);
/* Does what can be done now, of the data one piece; returns true if anything moved. */
bool tti_large_step(struct tti_letter *letter);

/* Returns true if the peer has made a channel to this rank. */
bool tti_channel_is_there(const struct tti_messages *messages, int peer);
/* Called when the comm is freed: this rank uses its channels no more. */
void tti_channels_leave(struct tti_messages *messages);
#define TTI_LETTER_ON(link) TTI_LIST_OF(link, struct tti_letter, on)

#endif
