/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's side of all its comms that go over a transport. Frames are sorted by comm and sender; each comm's collectives
 * take theirs in order (steps_link.c).
 *
 * Data of a collective travel as DATA frames (link.h): the k-th from a to b on a comm is received by the k-th receive that b
 * posts for a there, and must have its length. One of more than `eager` bytes goes when its receive was posted, others within
 * the window. Every frame carries the number of its op and the signature of all calls up to it: a frame that fits no op of its
 * number shows that ranks called different things. A rank that waits long for another ASKs it what it is doing; who sees the
 * difference breaks the comm and says so to all (BREAK).
 *
 * Who waits for whom (waits.h). A rank in a long wait ASKs whom it waits for, by the number of its wait. One that waits too
 * answers after its next poll (WAITS), and again when its answer has changed: with its own record and those that it knows of
 * the ranks behind it in the chain of waits, so that each learns the whole chain from the next rank in it. Frames come in order.
 * So who answers has taken all that the asker had sent before it asked, and who is answered has all that the other had sent
 * before that. Who does not answer is taken to wait for nobody.
 *
 * Everything here but the word `lock` is guarded by that lock, which is not held while more than a little is reduced.
 */
#ifndef TTI_COLLECTIVE_NET_H
#define TTI_COLLECTIVE_NET_H

#include "base/table.h"
#include "collective/comm/comm.h"
#include "collective/comm/provider.h"
#include "collective/peers/link.h"

enum { TTI_FRAME_MESSAGES = 64, TTI_FRAME_MESSAGES_END = 80 }; /* the kinds */

/* Takes the frames of letters, which the layer above matches. `peer` is the comm's number of the rank. */
struct tti_letter_sink {
    /* A frame with data begins. `taking`: the letter that it is for, and where its data go. */
    enum tti_match (*match)(tutti_comm *comm, int peer, const struct tti_frame_head *head, struct tti_taking *taking);
    /* They are there. */
    void (*arrived)(tutti_comm *comm, int peer, const struct tti_frame_head *head, void *letter);
    /* A frame has come that was put aside, and is the layer's from now on; or has no data, or was dropped (NULL). */
    void (*hear)(tutti_comm *comm, int peer, const struct tti_frame_head *head, struct tti_aside *aside);
    /* A frame cannot be put aside. */
    void (*no_memory)(tutti_comm *comm, int peer);
};

static inline bool tti_frame_is_message(const struct tti_frame_head *head)
{
    return head->kind >= TTI_FRAME_MESSAGES && head->kind < TTI_FRAME_MESSAGES_END;
}

enum { TTI_NET_CALLS = 64, TTI_NET_QUESTION = 8 };
/* Ranks that are asked at once what they wait for, and that a WAITS tells of; bytes of a frame that is neither DATA nor of a
 * message: no more than these. */
enum { TTI_NET_CHAIN = 64, TTI_NET_SAID = 16384 };

enum tti_frame_kind {
    TTI_FRAME_DATA = 1, /* of op `sequence` */
    TTI_FRAME_GRANT,    /* type: the purpose; value: charges taken so far; sequence: large receives posted so far */
    TTI_FRAME_ASK, /* what did you call as op `sequence`? data: the asker's last calls; value: the number of its wait, if it
                      * also asks what the receiver waits for */
    TTI_FRAME_BREAK, /* the comm is broken. data: tutti_error */
    TTI_FRAME_LEAVE, /* the sender makes no more calls on this comm; value: the first op it takes no part in; 0: not told;
                      * type: 1, what it has started is still under way, and it says so again after that; data: its last
                      * calls, where it says what op that is */
    TTI_FRAME_NUDGE, /* it has published something in memory that both share (posts.h) */
    TTI_FRAME_WAITS, /* the answer; value: as asked; data: struct tti_wait_record, the sender's own first */
    TTI_FRAME_AGREE  /* a message of world/agree.h */
};

/* A receive of the op that runs. */
struct tti_posted {
    bool arrived;
    int peer;
    void *target;
    uint64_t bytes;
    struct tti_posted *next;
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
    struct tti_lanes *lanes;
    int peer, world_rank;
    struct tti_posted *posted, **posted_last; /* receives of collectives whose frame has not begun */
    struct tti_link aside;                    /* DATA that came before its receive */
    struct tti_credits credits[TTI_PURPOSES];
    bool grants; /* it is to be told what was posted for it: */
    struct tti_lane *next_grant;
    uint64_t sequence;               /* of its newest op that is known */
    bool leaving, left;              /* it starts nothing more; and all that it had started has ended */
    uint64_t left_before;            /* and took no part in this op; 0: it did not say, */
    struct tti_question *last_calls; /* and made these; NULL: it has not left, or did not say */
    struct tti_question *question;   /* its last, or NULL */
    bool asks;                       /* and it is not answered */
    uint64_t asks_in;                /* the number of the wait that it asks in for this rank's; 0: it does not */
    int64_t asks_ns;                 /* when it asked last */
    uint64_t answered;               /* a hash of what it was answered last; 0: nothing since */
    uint64_t asked_in;               /* the number of this rank's wait that it was asked in */
    int64_t asked_ns;                /* and when */
};

/* What a rank has said of its wait, or another one of it. */
struct tti_heard {
    struct tti_wait_record record;
    uint64_t answers; /* the number of this rank's wait in which it said so; 0: it did not say so itself */
};

struct tti_lane_waits {
    struct tti_own_wait own;
    struct tti_table heard; /* struct tti_heard */
};

/* A peer that made other calls, as a frame or a question has shown. */
struct tti_difference {
    int peer;                /* -1: none */
    bool cut;                /* it is in the same op, but with another number of bytes: */
    uint64_t sent, received; /* by the peer; by this rank */
    int64_t asked_ns;        /* when it was asked what it called; 0: it was not */
};

/* What the op that runs has posted, in order of posting, and its memory, which is kept for the next one. */
struct tti_link_work {
    struct tti_posted *posts;
    struct tti_packet *packets;
    size_t post_room, packet_room;
    size_t post_count, packet_count;
    size_t arrived, drained; /* of these, those that were waited for */
    char *temp;              /* by tti_temp_alloc */
    size_t temp_bytes;
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
    struct tti_link_work work;
    struct tti_lane *grants; /* of peers that are to be told what was posted for them, in rank order */
    int questions;           /* that are not answered */
    bool no_memory;          /* something that came could not be kept */
    struct tti_difference differs;
    struct tti_lane_waits waits;
    bool heard_break;        /* from somebody who told everyone */
    int leaves;              /* this rank: TTI_STAYS… */
    _Atomic bool dozes;      /* the service thread sleeps until something comes for this comm */
    bool untold;             /* this rank broke the comm, and had no memory to tell everyone */
    struct tti_agree *agree; /* NULL: nobody has agreed on anything yet */
    bool agree_late;         /* this rank waited too long for one that was to coordinate: */
    int agree_late_for;      /* this one */
    bool lost_asked;         /* the launcher's board, who was lost when the comm broke: */
    uint64_t lost_ends;      /* processes whose ends have numbers below this one; 0: it does not say */
    const struct tti_letter_sink *sink;
    struct tti_lanes *next; /* of the net */
};

/* What comes from a rank of the world now: to a receive of a comm, or aside; or neither. */
struct tti_coming {
    struct tti_lanes *lanes;
    enum tti_purpose purpose;
    void *receive;
    struct tti_aside *aside;
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
    struct tti_kept *kept;  /* memory of freed comms that the transport may still use */
    struct tti_link strays; /* struct tti_aside, for comms that are not made here yet */
    uint64_t stray_bytes;
    bool warned;               /* of strays that are too many, */
    bool warned_of_epoch;      /* and of frames of an older epoch */
    uint32_t epoch;            /* that the rank is in */
    struct tti_table lost;     /* char: why these ranks were */
    struct tti_table coming;   /* struct tti_coming */
    uint32_t next_id;          /* no comm had this number or a larger one, nor was it proposed */
    struct tti_making *making; /* these have numbers that are agreed on */
    _Atomic int
        doze_fd; /* to be written to so that the service thread wakes that sleeps on it; 0: it sleeps on the transport only */
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
/* Asks a peer to compare this rank's last calls with its own; in a wait, for its number also what the peer waits for. False: no
 * memory. */
bool tti_lane_ask(struct tti_lanes *lanes, int peer, uint64_t wait);
/* The newest call that it has told of, or NULL. */
const struct tti_past_call *tti_lane_told(const struct tti_lane *lane);
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
void tti_lane_send(struct tti_lanes *lanes, int peer, struct tti_packet *packet);
/* Small frames of a kind of their own; data are copied. To a rank of the world, or of the comm. False: no memory. */
bool tti_net_say(struct tti_net *net, int rank, struct tti_frame_head head, const void *data);
bool tti_lane_say(struct tti_lanes *lanes, int peer, struct tti_frame_head head, const void *data);

/* ---- Between net.c, which sorts what comes, and lane.c, with the lock held ---- */

/* DATA begins; has come to its receive; has come and was put aside, to be taken over. */
enum tti_match tti_lane_match(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head,
                              struct tti_taking *taking);
void tti_lane_arrived(struct tti_lane *lane, struct tti_posted *posted);
void tti_lane_came(struct tti_lanes *lanes, int peer, struct tti_aside *aside);
/* All other kinds, when they are there. */
void tti_lane_hear(struct tti_lanes *lanes, int peer, const struct tti_aside *aside);
/* What came for a comm before it was made here. */
void tti_net_take_strays(struct tti_net *net, struct tti_lanes *lanes);

/* A rank is lost, and why. */
void tti_net_lose(struct tti_net *net, int peer, const char *text);

/* Moves what can be moved; true when anything did. Nothing from within progress(), or if another thread does. */
bool tti_net_pump(struct tti_net *net);
/* The same with the lock held, when a rank of the world is waited for. */
bool tti_net_move(struct tti_net *net, int awaited);

/* ---- Between wire.c, lane.c and lane_waits.c, with the lock held ---- */

/* As in struct tti_peers_ops. */
void tti_lanes_show_wait(struct tti_lanes *lanes, const struct tti_wait_record *now, uint64_t stand);
void tti_lanes_read_wait(const struct tti_lanes *lanes, int rank, struct tti_wait_record *record);
/* AGREE has come; who was lost as the last agreement has it, or this rank knows (wire_agree.c). */
void tti_lanes_hear_agree(struct tti_lanes *lanes, int peer, const struct tti_aside *aside);
bool tti_lanes_was_lost(const struct tti_lanes *lanes, int rank);
/* Without the lock, before that: asks the launcher of all ranks, if there is one, who was lost when the comm broke. */
void tti_lanes_settle_lost(tutti_comm *comm);
/* As in struct tti_peers_ops, without the lock. */
tutti_status tti_wire_agree(tutti_comm *comm, struct tti_agreement *agreement);
/* ASK and WAITS have come. */
void tti_lane_hear_ask(struct tti_lane *lane, const struct tti_frame_head *head);
void tti_lanes_hear_waits(struct tti_lanes *lanes, int peer, const struct tti_aside *aside);

#endif
