/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's side of all its comms that go over a transport. Frames are sorted by comm and sender; each comm's
 * collectives take theirs in order (steps_link.c).
 *
 * Data of a collective travel as DATA frames (link.h): the k-th from a to b on a comm is received by the k-th receive
 * that b posts for a there, and must have its length. A frame of more than `eager` bytes leaves when its receive was
 * posted, others leave within the window. Every frame carries the number of its op and the signature of all calls up to
 * it: a frame that fits no op of its number shows that ranks called different things. A rank that waits long for
 * another ASKs it what it is doing; the rank that sees a difference breaks the comm and tells all (BREAK).
 *
 * Which rank waits for which (waits.h). A rank in a long wait ASKs the rank that it waits for, with the number of its
 * wait. If that one waits too it answers after its next poll (WAITS), and again when its answer has changed: with its
 * own record and those that it knows of the ranks behind it in the chain of waits, so that each learns the whole chain
 * from the next rank in it. Frames come in order. So a rank that answers has received all that the asker had sent
 * before it asked, and the asker has received all that the other had sent before it answered. A rank that does not
 * answer is taken to wait for nobody.
 *
 * `lock` guards everything else here. It is not held while more than a little is reduced.
 */
#ifndef TTI_COLLECTIVE_NET_H
#define TTI_COLLECTIVE_NET_H

#include "base/table.h"
#include "collective/comm/comm.h"
#include "collective/comm/provider.h"
#include "collective/peers/link.h"

enum { TTI_FRAME_MESSAGES = 64, TTI_FRAME_MESSAGES_END = 80 }; /* the kinds */

/* The layer above, which takes the frames of letters and matches them. `peer` is the rank's number in the comm. */
struct tti_letter_sink {
    /* A frame with data begins to come. `taking` gets the letter that it is for, and where its data go. */
    enum tti_match (*match)(tutti_comm *comm, int peer, const struct tti_frame_head *head, struct tti_taking *taking);
    /* The data have come. */
    void (*arrived)(tutti_comm *comm, int peer, const struct tti_frame_head *head, void *letter);
    /* A frame has come. If it was put aside, that memory is the layer's from now on; NULL: it has no data, or was
     * dropped. */
    void (*hear)(tutti_comm *comm, int peer, const struct tti_frame_head *head, struct tti_aside *aside);
    /* A frame cannot be put aside: there is no memory. */
    void (*no_memory)(tutti_comm *comm, int peer);
};

static inline bool tti_frame_is_message(const struct tti_frame_head *head)
{
    return head->kind >= TTI_FRAME_MESSAGES && head->kind < TTI_FRAME_MESSAGES_END;
}

enum { TTI_NET_CALLS = 64, TTI_NET_QUESTION = 8 };
/* The most ranks that are asked at the same time what they wait for, and that a WAITS tells of; the most bytes of a
 * frame that is neither DATA nor a message. */
enum { TTI_NET_CHAIN = 64, TTI_NET_SAID = 16384 };

enum tti_frame_kind {
    TTI_FRAME_DATA = 1, /* data of op `sequence` */
    TTI_FRAME_GRANT,    /* type: the purpose; value: charges taken so far; sequence: large receives posted so far */
    TTI_FRAME_ASK, /* asks which call was op `sequence`. data: the asker's last calls; value: the number of its wait, if
                    * it also asks what the receiver waits for */
    TTI_FRAME_BREAK, /* the comm is broken. data: tutti_error */
    TTI_FRAME_LEAVE, /* the sender makes no more calls on this comm. value: the first op that it takes no part in, 0:
                      * not told; type 1: its ops are still under way, and it sends this again when they have ended;
                      * data: its last calls, if it says which op */
    TTI_FRAME_NUDGE, /* the sender has published something in memory that both share (posts.h) */
    TTI_FRAME_WAITS, /* the answer to ASK. value: as asked; data: struct tti_wait_record, the sender's own first */
    TTI_FRAME_AGREE, /* a message of world/agree.h */
    TTI_FRAME_SETTLE /* the same, of the decision on who was lost when the comm broke */
};

/* A receive of the running op. */
struct tti_posted {
    bool arrived;
    int peer;
    void *target;
    uint64_t bytes;
    struct tti_posted *next;
};

/* A past call, kept for as long as a rank may ask about it. */
struct tti_past_call {
    uint64_t sequence;
    uint32_t signature;
    struct tti_call call;
};

/* A rank's last calls, oldest first. */
struct tti_question {
    struct tti_past_call calls[TTI_NET_QUESTION];
};

/* State of one comm and one peer, made when it is first needed. */
struct tti_lane {
    struct tti_lanes *lanes;
    int peer, world_rank;
    struct tti_posted *posted, **posted_last; /* receives of collectives whose frame has not begun to come */
    struct tti_link aside;                    /* DATA that came before its receive */
    struct tti_credits credits[TTI_PURPOSES];
    bool grants; /* the peer is to be told what was posted for it; the next such lane: */
    struct tti_lane *next_grant;
    uint64_t sequence;               /* number of its newest op that is known */
    bool leaving, left;              /* it starts nothing more; all that it had started has ended too */
    uint64_t left_before;            /* it left before this op; 0: it did not say */
    struct tti_question *last_calls; /* its last calls before it left; NULL: it has not left, or did not say */
    struct tti_question *question;   /* its last question, or NULL */
    bool asks;                       /* `question` is not answered yet */
    uint64_t asks_in;                /* the number of its wait in which it asks for this rank's; 0: it does not ask */
    int64_t asks_ns;                 /* when it last asked */
    uint64_t answered;               /* a hash of the last answer to it; 0: none since then */
    uint64_t asked_in;               /* the number of this rank's wait in which it was asked */
    int64_t asked_ns;                /* when it was asked */
};

/* What is known of a rank's wait, from itself or from another rank. */
struct tti_heard {
    struct tti_wait_record record;
    uint64_t answers; /* the number of this rank's wait in which it answered; 0: it did not itself */
};

struct tti_lane_waits {
    struct tti_own_wait own;
    struct tti_table heard; /* struct tti_heard */
};

/* A peer that made other calls, as a frame or a question has shown. */
struct tti_difference {
    int peer;                /* -1: none */
    bool cut;                /* it is in the same op, but with another number of bytes: */
    uint64_t sent, received; /* bytes that the peer sent; bytes that this rank receives */
    int64_t asked_ns;        /* when it was asked for its call; 0: it was not */
};

/* Sends and receives that the running op has posted, in order, and their memory, which is kept for the next op. */
struct tti_link_work {
    struct tti_posted *posts;
    struct tti_packet *packets;
    size_t post_room, packet_room;
    size_t post_count, packet_count;
    size_t arrived, drained; /* how many of these were waited for */
    char *temp;              /* memory from tti_temp_alloc */
    size_t temp_bytes;
};

/* A comm's state over the transport. */
struct tti_lanes {
    tutti_comm *comm;
    struct tti_net *net;
    uint32_t id;            /* the same on all its ranks */
    struct tti_table peers; /* struct tti_lane, of the peers that it has dealings with */
    int *rank_of;           /* the comm's numbers of the world's ranks; -1: not in this comm; NULL: the same */
    uint64_t sequence;      /* the running op, and its signature; 0: none */
    uint32_t signature;
    uint64_t eager; /* the most bytes of a frame of that op that need not wait for its receive */
    struct tti_past_call calls[TTI_NET_CALLS];
    struct tti_link_work work;
    struct tti_lane *grants; /* lanes of peers that are to be told what was posted for them, in rank order */
    int questions;           /* questions that are not answered */
    bool no_memory;          /* something that came could not be kept in memory */
    struct tti_difference differs;
    struct tti_lane_waits waits;
    bool heard_break;        /* another rank has told everyone that the comm is broken */
    int leaves;              /* how far this rank has left: TTI_STAYS… */
    _Atomic bool dozes;      /* the service thread sleeps until something comes for this comm */
    bool untold;             /* this rank broke the comm, and had no memory to tell everyone */
    struct tti_agree *agree; /* NULL: nobody has agreed on anything yet */
    bool agree_late;         /* this rank waited too long for a coordinator: */
    int agree_late_for;      /* its number */
    /* the decision on which ranks were lost when the comm broke, if no launcher says it; NULL: it has not begun */
    struct tti_agree *settling;
    bool lost_asked;    /* it was waited for, or the launcher's board was asked: */
    uint64_t lost_ends; /* processes whose ends have numbers below this one were lost; 0: it does not say */
    const struct tti_letter_sink *sink;
    struct tti_lanes *next; /* the next comm of the net */
};

/* A frame that comes from a rank of the world now: to a receive of a comm, or put aside; or neither. */
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
    _Atomic(const void *) owner; /* the task that holds the lock */
    int depth;                   /* how often that task holds it: an error found under the lock is also told under it */
    struct tti_transport *transport;
    int rank, size;
    struct tti_lanes *lanes;
    struct tti_kept *kept;  /* memory of freed comms that the transport may still use */
    struct tti_link strays; /* struct tti_aside, for comms that are not made here yet */
    uint64_t stray_bytes;
    bool warned;               /* it has warned of too many strays */
    bool warned_of_epoch;      /* it has warned of frames of an older epoch */
    uint32_t epoch;            /* the rank's epoch */
    struct tti_table lost;     /* char: for each lost rank the reason */
    struct tti_table closed;   /* ranks that have left the world, and with it comms that are made later */
    struct tti_table coming;   /* struct tti_coming */
    uint32_t next_id;          /* no comm had this number or a larger one, and none was proposed */
    struct tti_making *making; /* comms in the making, whose numbers are agreed on */
    _Atomic int doze_fd;       /* written to wake the service thread that sleeps on it; 0: it sleeps on the transport */
    int references;
    void *cluster; /* freed with it */
    void (*release)(void *cluster);
};

/* Makes a net, which takes the transport over. */
tutti_status tti_net_create(struct tti_transport *transport, struct tti_net **net, tutti_error *error);
void tti_net_release(struct tti_net *net);
/* Says goodbye to all: this rank uses none of its comms any more, freed or not. */
void tti_net_part(struct tti_net *net);

/* Has the transport go on with a copy of the frame's data, which must be kept until it has gone; NULL if data are not
 * moved. Returns false if there is no memory for it. With the lock held. */
bool tti_net_copy(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing, void **copy);
/* Frees the memory when the transport is closed. With the lock held. */
void tti_net_keep(struct tti_net *net, void *memory);

/* Comms that have a rank in common have different numbers, also when they are made at the same time: each rank of a new
 * comm proposes a number, once, and takes the largest proposal if that is its own or was never seen here. Else all
 * propose again. */
uint32_t tti_net_propose(struct tti_net *net);
bool tti_net_take_id(struct tti_net *net, uint32_t proposed, struct tti_making *making);
void tti_net_made(struct tti_net *net, struct tti_making *making); /* or not; ignored if the number was not taken */

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
struct tti_lane *tti_lane_to(struct tti_lanes *lanes, int peer); /* makes the lane if need be; NULL: no memory */
void tti_lane_answer(struct tti_lanes *lanes, int peer);
const struct tti_past_call *tti_past_call(const struct tti_lanes *lanes,
                                          uint64_t sequence); /* NULL: the call is forgotten, or still to come */
/* Asks a peer to compare this rank's last calls with its own, and in a wait (its number) also what the peer waits for.
 * Returns false if there is no memory. */
bool tti_lane_ask(struct tti_lanes *lanes, int peer, uint64_t wait);
/* Returns the newest call that the peer has told of, or NULL. */
const struct tti_past_call *tti_lane_told(const struct tti_lane *lane);
/* Finds the first of these calls of the peer that differs from this rank's, and describes both. Returns false if none
 * does. */
bool tti_lanes_differ(const struct tti_lanes *lanes, int peer, const struct tti_question *question, char *text,
                      size_t bytes);
/* Notes this rank's leaving as a call like any other, so that peers can compare it. */
void tti_lanes_note_leaving(struct tti_lanes *lanes);
/* Tells the peer that this rank leaves the comm, or makes no more calls; `whole`: the comm is not broken. */
void tti_lane_say_goodbye(struct tti_lanes *lanes, int peer, bool whole);
/* Takes back the frames that the transport has not begun to send. */
void tti_lanes_stop(struct tti_lanes *lanes);
void tti_lane_post(struct tti_lanes *lanes, struct tti_posted *posted);
/* Tells peers what was posted for them since the last call. */
void tti_lanes_grant(struct tti_lanes *lanes);
void tti_lane_send(struct tti_lanes *lanes, int peer, struct tti_packet *packet);
/* Sends a small frame of a kind of its own, to a rank of the world or of the comm; data are copied. Returns false if
 * there is no memory. */
bool tti_net_say(struct tti_net *net, int rank, struct tti_frame_head head, const void *data);
bool tti_lane_say(struct tti_lanes *lanes, int peer, struct tti_frame_head head, const void *data);

/* ---- Between net.c, which sorts what comes, and lane.c, with the lock held ---- */

/* A DATA frame begins to come; has come to its receive; has come and was put aside, to be taken over. */
enum tti_match tti_lane_match(struct tti_lanes *lanes, int peer, const struct tti_frame_head *head,
                              struct tti_taking *taking);
void tti_lane_arrived(struct tti_lane *lane, struct tti_posted *posted);
void tti_lane_came(struct tti_lanes *lanes, int peer, struct tti_aside *aside);
/* Takes frames of all other kinds, when they have come. */
void tti_lane_hear(struct tti_lanes *lanes, int peer, const struct tti_aside *aside);
/* What came for a comm before it was made here. */
void tti_net_take_strays(struct tti_net *net, struct tti_lanes *lanes);

/* Notes that a rank is lost, and the reason. */
void tti_net_lose(struct tti_net *net, int peer, const char *text);

/* Returns true if others go on without this process's host. It does not leave then, but is lost: another process gets its
 * number, and they wait for that. */
bool tti_net_is_excluded(const struct tti_net *net);

/* Moves what can be moved; returns true if anything did. Does nothing from within progress(), or if another thread does
 * it. */
bool tti_net_pump(struct tti_net *net);
/* The same with the lock held, while this rank waits for a rank of the world. */
bool tti_net_move(struct tti_net *net, int awaited);

/* ---- Between wire.c, lane.c and lane_waits.c, with the lock held ---- */

/* As in struct tti_peers_ops. */
void tti_lanes_show_wait(struct tti_lanes *lanes, const struct tti_wait_record *now, uint64_t stand);
void tti_lanes_read_wait(const struct tti_lanes *lanes, int rank, struct tti_wait_record *record);
/* AGREE has come. Then: which ranks were lost as the last agreement has it, or as this rank knows (wire_agree.c). */
void tti_lanes_hear_agree(struct tti_lanes *lanes, int peer, const struct tti_aside *aside);
bool tti_lanes_was_lost(const struct tti_lanes *lanes, int rank);
/* To be called before that, without the lock: asks the launcher of all ranks, if there is one, which ranks were lost
 * when the comm broke; otherwise waits until the ranks have decided it. */
void tti_lanes_settle_lost(tutti_comm *comm);
/* For comms without such a launcher: begins to decide which ranks were lost, as the comm breaks; SETTLE has come; a rank
 * is gone. */
void tti_lanes_begin_settling(struct tti_lanes *lanes);
void tti_lanes_hear_settle(struct tti_lanes *lanes, int peer, const struct tti_aside *aside);
void tti_lanes_note_gone(struct tti_lanes *lanes, int rank);
/* As in struct tti_peers_ops, without the lock. */
tutti_status tti_wire_agree(tutti_comm *comm, struct tti_agreement *agreement);
/* ASK and WAITS have come. */
void tti_lane_hear_ask(struct tti_lane *lane, const struct tti_frame_head *head);
void tti_lanes_hear_waits(struct tti_lanes *lanes, int peer, const struct tti_aside *aside);

#endif
