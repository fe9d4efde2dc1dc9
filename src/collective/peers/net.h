/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's side of all its comms that go over a transport. Frames are sorted by comm and sender; each comm's collectives
 * take theirs in order (host_run.c).
 *
 * Data of a collective travel as DATA frames: the k-th from a to b on a comm is received by the k-th receive that b
 * posts for a there, and must have its length. One that comes before its receive is put aside, so senders are held
 * back: at most TTI_NET_WINDOW bytes to a peer and comm that it has not said it took (GRANT), and a large frame, of
 * more than `eager` bytes, only when its receive was posted (GRANT too). Every frame carries the number of its op and
 * the signature of all calls up to it: a frame that fits no op of its number shows that ranks called different things.
 * A rank that waits long for another ASKs it what it is doing; who sees the difference breaks the comm and says so to
 * all (BREAK).
 *
 * A rank that asks out of a blocking message (TTI_ASK_IN_MESSAGE) is asked back by one that is in a blocking collective which
 * cannot end without it (TTI_ASK_STUCK). That comes after all that was sent before; so if the message is still missing then,
 * and the asker has not called that collective, both would wait for ever. One whose collective needs a third rank says which:
 * if that one is stuck in an earlier collective for lack of the asker, and has said so, all three would. Of more ranks, each
 * stuck in an earlier collective than the one before, or idle in the same, each hears for whose lack the next one is, and in
 * which op (WAITS).
 *
 * A rank whose blocking message has met nothing gives its ask a number, by which this wait for this peer is known. It sends
 * nothing more in it without being accepted. A peer that waits so too, for whomever, answers with a number of its own (UNMET).
 * That comes after all that it had sent; so if the asker has still met nothing then, it will not before the peer goes on. Who
 * knows that of its peer sends a probe there (PROBE), which all that know the same of theirs send on: if it comes to one that
 * waits for the rank and the number that it began with, none of them will ever go on.
 *
 * A rank that waits in a collective tells those that have asked it whom it waits for in the end (WAITS), so that all
 * blame the rank that does not come. It repeats that, ever less often: who falls silent is to be blamed itself. In a
 * blocking message, with nothing else in flight, it tells those that wait in messages for it, whose errors then say so.
 *
 * Everything here but the word `lock` is guarded by that lock, which is never held while data are reduced.
 */
#ifndef TTI_COLLECTIVE_NET_H
#define TTI_COLLECTIVE_NET_H

#include "base/table.h"
#include "collective/comm/comm.h"
#include "collective/comm/provider.h"
#include "transport/transport.h"

enum { TTI_FRAME_MESSAGES = 64, TTI_FRAME_MESSAGES_END = 80 }; /* the kinds */

/* Takes the frames of messages, which the layer above matches. As in struct tti_sink; `peer` is the comm's number of the rank. */
struct tti_letter_sink {
    void *(*begin)(tutti_comm *comm, int peer, const struct tti_frame_head *head, void **cookie);
    void (*end)(tutti_comm *comm, int peer, const struct tti_frame_head *head, void *cookie);
    void (*lost)(tutti_comm *comm, int peer);
};

/* What messages of a comm need to send frames, and who takes those that come. */
struct tti_frames {
    const struct tti_letter_sink *sink;
    struct tti_transport *transport;
    uint32_t comm;    /* goes into every frame */
    const int *ranks; /* the transport's number of each rank of the comm; NULL: the same */
};

static inline bool tti_frame_is_message(const struct tti_frame_head *head)
{
    return head->kind >= TTI_FRAME_MESSAGES && head->kind < TTI_FRAME_MESSAGES_END;
}

enum { TTI_NET_WINDOW = 1 << 20, TTI_NET_CHARGE = 256, TTI_NET_CALLS = 64, TTI_NET_QUESTION = 8, TTI_NET_PROBES = 16 };

enum tti_frame_kind {
    TTI_FRAME_DATA = 1, /* of op `sequence` */
    TTI_FRAME_GRANT,    /* value: bytes taken so far; sequence: large receives posted so far */
    TTI_FRAME_ASK,   /* what was called as op `sequence`? data: the asker's call; type: how it waits; value: for whom;
                      * tag: the number of a wait in a message that has met nothing, or 0; of one that is stuck for lack of
                      * the receiver in another's op: of that op, or 0 */
    TTI_FRAME_BREAK, /* the comm is broken. data: tutti_error */
    TTI_FRAME_LEAVE, /* the sender makes no more calls on this comm; value: the first op it takes no part in; 0: not told;
                      * type: 1, what it has started is still under way, and it says so again after that; data: its last
                      * calls, where it says what op that is */
    TTI_FRAME_NUDGE, /* it has published something in memory that both share (local.h) */
    TTI_FRAME_UNMET, /* to an ASK of number `value`: the sender waits in a message, too, for rank `signature`, and has met
                      * nothing; sequence: its own number; type: kind + 1 of the call; tag: its tag */
    TTI_FRAME_PROBE, /* goes from each rank that waits so to whom it waits for. value: the first, sequence: its number; tag: the
                      * receiver's; type: how many it has passed */
    TTI_FRAME_WAITS /* op `sequence` of the sender waits for rank `value`, or no more if that is the sender;
                         * it says so again in `tag` ms at most; type: kind + 1 of a call of messages, 0: a collective,
                     * TTI_WAITS_IDLE: one in which it sends and publishes nothing more before it may go on;
                     * signature: the op for lack of which by that rank it is stuck, for certain, or 0 */
};

enum { TTI_WAITS_IDLE = 1 };

/* And, times TTI_ASK_KIND, the kind of the blocking call that it waits in, + 1. */
enum { TTI_ASK_IN_MESSAGE = 1, TTI_ASK_STUCK = 2, TTI_ASK_KIND = 256 };

/* First in what begin() gives the transport as a cookie. */
struct tti_receipt {
    bool posted; /* else put aside */
};

/* A receive of the op that runs. */
struct tti_posted {
    struct tti_receipt receipt;
    bool begun, arrived;
    int peer;
    void *target;
    uint64_t bytes;
    struct tti_posted *next;
};

/* A frame that was put aside. */
struct tti_aside {
    struct tti_receipt receipt;
    bool complete;
    bool orphan; /* its comm was freed while it came: kept for the transport */
    bool stray;  /* for a comm that is not made here yet */
    int peer;    /* of the world */
    struct tti_frame_head head;
    struct tti_posted *taker; /* it is to be copied to */
    struct tti_aside *next;
    unsigned char data[];
};

struct tti_shipment {
    struct tti_outgoing outgoing;
    int peer;
    bool done;
    struct tti_shipment *next; /* behind it, until there is a grant */
};

/* What was called, for as long as somebody may ask. */
struct tti_past_call {
    uint64_t sequence;
    uint32_t signature;
    struct tti_call call;
};

/* A rank's last calls, oldest first. */
struct tti_question {
    struct tti_past_call calls[TTI_NET_QUESTION];
};

/* One comm's dealings with one peer, made when there are any. */
struct tti_lane {
    int peer;
    struct tti_posted *posted, **posted_last; /* receives whose frame has not begun */
    struct tti_aside *aside, **aside_last;    /* DATA before its receive */
    struct tti_shipment *held, **held_last;   /* sends without a grant */
    uint64_t sent, granted;                   /* charges of eager frames: sent, and taken by the peer */
    uint64_t large_sent, large_granted;
    uint64_t taken, told;  /* charges of its eager frames that were taken, and as last told */
    uint64_t large_posted; /* large receives */
    bool grants;           /* and it is to be told: */
    struct tti_lane *next_grant;
    uint64_t sequence;               /* of its newest op that is known */
    bool leaving, left;              /* it starts nothing more; and all that it had started has ended */
    uint64_t left_before;            /* and took no part in this op; 0: it did not say, */
    struct tti_question *last_calls; /* and made these; NULL: it has not left, or did not say */
    struct tti_question *question;   /* its last, or NULL */
    bool asks;                       /* and it is not answered */
    int waits_in;                    /* the call, or the message, it asked out of: kind + 1; 0: none */
    bool in_message, stuck;          /* how it waited when it asked; it is to be asked back; in its newest call, */
    int stuck_for;                   /* and for which rank, */
    uint32_t stuck_in;               /* which others wait for in this op; 0: it does so itself, in its newest call */
    int told_stuck;     /* rank + 1 that it has been told this one is stuck for, since it asked; 0: none, */
    uint64_t told_in;   /* and in which op */
    uint64_t asked_in;  /* its op when it asked last */
    int32_t asks_unmet; /* the number of its last ask out of a message that has met nothing; 0: none */
    int32_t told_unmet, told_unmet_as; /* and what was answered to: its number, and with this rank's */
    int32_t unmet_number, unmet_as;    /* this rank's, that it has answered to, and its own; */
    struct tti_seen unmet;             /* out of this call */
    int told_awaits;                   /* rank + 1 that it has been told this one waits for, since then; 0: none */
    int awaits;                        /* rank + 1 that it has said it waits for, */
    int awaits_message;                /* in a blocking call of messages: kind + 1; 0: in a collective, */
    uint64_t awaits_in;                /* in this op, */
    bool awaits_idle;                  /* sending and publishing nothing more there before it may go on, */
    uint32_t awaits_stuck_in;          /* for lack of that one in this op, for certain; 0: not so, */
    int64_t awaits_until_ns;           /* and would have said again by then */
};

struct tti_probe {
    int first, hops;
    int32_t number, expects;
};

/* A peer that made other calls, as a frame or a question has shown. */
struct tti_difference {
    int peer;                /* -1: none */
    bool cut;                /* it is in the same op, but with another number of bytes: */
    uint64_t sent, received; /* by the peer; by this rank */
    int64_t asked_ns;        /* when it was asked what it called; 0: it was not */
};

/* A comm's dealings over the transport. */
struct tti_lanes {
    tutti_comm *comm;
    struct tti_net *net;
    uint32_t id;            /* the same on all its ranks */
    struct tti_table peers; /* struct tti_lane: those that it has dealings with */
    int *rank_of;           /* of the world's ranks; -1: not of this comm; NULL: the same */
    uint64_t sequence;      /* the op that runs, and its signature; 0: none */
    uint32_t signature;
    uint64_t eager; /* bytes of a frame of that op that need not wait for its receive */
    struct tti_past_call calls[TTI_NET_CALLS];
    struct tti_posted *posts; /* of the op that runs, in order of posting */
    struct tti_shipment *shipments;
    size_t post_room, shipment_room, post_count, shipment_count, arrived, drained;
    char *temp; /* by tti_local_alloc */
    size_t temp_bytes;
    struct tti_lane *grants; /* of peers that are to be told what was posted for them, in rank order */
    int questions;           /* that are not answered */
    bool no_memory;          /* something that came could not be kept */
    struct tti_difference differs;
    int64_t waits_ns;      /* since when the op that runs waits, and */
    int64_t tell_ns;       /* when those that wait for this rank are told again for whom */
    bool tells;            /* some were */
    int asked;             /* whom the op that runs has asked because it waits long; -1: nobody */
    int asked_for_message; /* and a message, beside it or alone */
    int32_t asks_unmet,
        unmet_count; /* the number that the wait in a message has asked by, or 0; and the last one used */
    struct tti_probe probes[TTI_NET_PROBES]; /* that have come */
    int probe_count;
    int32_t probed;           /* the number that its own probe was sent with last, */
    int64_t probe_ns;         /* and when it is to be sent again */
    bool heard_break;         /* from somebody who told everyone */
    int leaves;               /* this rank: TTI_STAYS… */
    bool untold;              /* this rank broke the comm, and had no memory to tell everyone */
    struct tti_frames frames; /* for messages */
    struct tti_lanes *next;   /* of the net */
};

/* The number of a comm that is being made here. */
struct tti_making {
    uint32_t id;
    struct tti_making *next;
};

struct tti_net {
    _Atomic uint32_t lock;
    _Atomic(const void *) owner; /* the task that holds it, and */
    int depth;                   /* how often: an error that is found under the lock is told under the lock */
    struct tti_transport *transport;
    int rank, size;
    struct tti_lanes *lanes;
    struct tti_kept *kept;                   /* memory of freed comms that the transport may still use */
    struct tti_aside *strays, **strays_last; /* for comms that are not made here yet */
    uint64_t stray_bytes;
    bool warned;               /* of strays that are too many */
    struct tti_table lost;     /* char: why these ranks were */
    struct tti_table coming;   /* struct tti_aside, of the frame that comes from a rank now: of no lane's */
    uint32_t next_id;          /* no comm had this number or a larger one, nor was it proposed */
    struct tti_making *making; /* these have numbers that are agreed on */
    int references;
    void *cluster; /* freed with it */
    void (*release)(void *cluster);
};

/* Takes the transport over. */
tutti_status tti_net_create(struct tti_transport *transport, struct tti_net **net, tutti_error *error);
void tti_net_release(struct tti_net *net);
/* This rank uses none of its comms any more, freed or not: says goodbye to all. */
void tti_net_part(struct tti_net *net);

/* The transport goes on with a copy of the frame's data, which is to be kept until it has gone; NULL where data are not moved.
 * False: there is no memory for it. With the lock held. */
bool tti_net_copy(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing, void **copy);
/* Frees the memory when the transport is closed. With the lock held. */
void tti_net_keep(struct tti_net *net, void *memory);

/* Comms that have a rank in common have different numbers, also when they are made at the same time: each rank of a new one
 * proposes a number, once, and takes the largest that was if it is its own or was never seen here. Else all propose again. */
uint32_t tti_net_propose(struct tti_net *net);
bool tti_net_take_id(struct tti_net *net, uint32_t proposed, struct tti_making *making);
void tti_net_made(struct tti_net *net, struct tti_making *making); /* or not; ignored where it was not taken */

/* Adds or removes a comm. */
tutti_status tti_lanes_create(tutti_comm *comm, struct tti_net *net, uint32_t id, const struct tti_letter_sink *sink,
                              tutti_error *error);
void tti_lanes_free(struct tti_lanes *lanes);

void tti_net_lock(struct tti_net *net);
void tti_net_unlock(struct tti_net *net);

/* With the lock held: */
static inline struct tti_lane *tti_lane_at(const struct tti_lanes *lanes, int peer) /* NULL: no dealings yet */
{
    return tti_table_get(&lanes->peers, peer);
}
struct tti_lane *tti_lane_to(struct tti_lanes *lanes, int peer); /* made if need be; NULL: no memory */
void tti_lane_answer(struct tti_lanes *lanes, int peer);
const struct tti_past_call *tti_past_call(const struct tti_lanes *lanes,
                                          uint64_t sequence); /* NULL: forgotten, or to come */
/* Asks a peer to compare this rank's last calls with its own; the rank that it waits for. */
void tti_lane_ask(struct tti_lanes *lanes, int peer, uint16_t how, int awaited, int32_t number);
/* The newest call that it has told of, or NULL. */
const struct tti_past_call *tti_lane_told(const struct tti_lane *lane);
/* Whom the peer waits for in the op that runs or one before, as it has said lately; -1: it has not. */
int tti_lane_awaits(const struct tti_lanes *lanes, int peer);
/* The call of messages that the peer is in, kind + 1, and whom it waits for there, as it has said lately; 0: it has not. */
int tti_lane_in_message(const struct tti_lane *lane, int *awaited);
/* Tells those that wait for this rank, in the op that runs or one to come, whom it waits for, once that takes long; in a call
 * of messages (`in`: its kind + 1), those that wait in messages. `first`: the wait has just begun. This rank itself: it waits
 * no more. */
void tti_lanes_tell(struct tti_lanes *lanes, int awaited, int in, uint32_t stuck_in, bool first);
/* The first of these calls of the peer that differs from this rank's, if one does. */
bool tti_lanes_differ(const struct tti_lanes *lanes, int peer, const struct tti_question *question, char *text,
                      size_t bytes);
/* Leaving is a call like any other, for who compares. */
void tti_lanes_note_leaving(struct tti_lanes *lanes);
/* This rank leaves the comm, or calls no more; `whole`: it is not broken. */
void tti_lane_say_goodbye(struct tti_lanes *lanes, int peer, bool whole);
/* Takes back what the transport has not begun with. */
void tti_lanes_stop(struct tti_lanes *lanes);
void tti_lane_post(struct tti_lanes *lanes, struct tti_posted *posted);
/* Tells peers what was posted for them since it was called last. */
void tti_lanes_grant(struct tti_lanes *lanes);
void tti_lane_send(struct tti_lanes *lanes, int peer, struct tti_shipment *shipment);
/* Small frames of a kind of their own; data are copied. To a rank of the world, or of the comm. False: no memory. */
bool tti_net_say(struct tti_net *net, int rank, struct tti_frame_head head, const void *data);
bool tti_lane_say(struct tti_lanes *lanes, int peer, struct tti_frame_head head, const void *data);

/* ---- Between net.c, which sorts what comes, and lane.c, with the lock held ---- */

/* What a frame counts for where frames are limited. */
static inline uint64_t tti_frame_charge(uint64_t bytes)
{
    return bytes < TTI_NET_CHARGE ? TTI_NET_CHARGE : bytes;
}
struct tti_aside *tti_aside_new(int peer, const struct tti_frame_head *head); /* NULL: no memory */
/* DATA begins and ends, as in struct tti_sink. */
void *tti_lane_begin(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head, void **cookie);
void tti_lane_end(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head, struct tti_receipt *receipt);
/* A frame shows where the peer is. */
void tti_lane_note(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head);
/* All other kinds, when they are there. */
void tti_lane_hear(struct tti_lanes *lanes, int peer, const struct tti_aside *aside);
/* What came for a comm before it was made here. */
void tti_net_take_strays(struct tti_net *net, struct tti_lanes *lanes);

/* Moves what can be moved; true when anything did. Nothing from within progress(), or if another thread does. */
bool tti_net_pump(struct tti_net *net);
/* The same with the lock held, when a rank of the world is waited for. */
bool tti_net_move(struct tti_net *net, int awaited);

/* ---- Between host.c, lane.c and lane_waits.c ---- */

/* The number of the wait of this peer for which this rank's own message waits, as it has answered; 0: it has not. To be looked
 * up before it is found that nothing was met. */
int32_t tti_unmet_edge(const struct tti_lanes *lanes, int peer);
/* With the lock held, in such a wait: answers, sends probes on; whether one has gone round. */
bool tti_unmet_look(struct tti_lanes *lanes, const struct tti_waitable *waitable, int peer, int32_t edge, int tag,
                    struct tti_seen *seen);
void tti_wait_hear(const struct tti_lanes *lanes, struct tti_lane *lane, const struct tti_frame_head *head);
void tti_unmet_hear(struct tti_lane *lane, const struct tti_frame_head *head);
void tti_probe_hear(struct tti_lanes *lanes, const struct tti_frame_head *head);

/* ---- Between host.c, host_run.c, host_data.c and local.c ---- */

tutti_status tti_host_progress(struct tti_op *op);
tutti_status tti_host_open(struct tti_op *op);

/* Where a region begins in its space, in this turn. */
uint64_t tti_host_offset(const struct tti_op *op, const struct tti_region *region);
/* Where a region lies; NULL: it is of another process and has to be fetched. */
char *tti_host_address(const struct tti_op *op, const struct tti_region *region);
/* FOLD, COPY, and what local ranks publish. */
tutti_status tti_host_data_step(struct tti_op *op, const struct tti_step *step);

#endif
