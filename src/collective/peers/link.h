/* SPDX-License-Identifier: Apache-2.0
 *
 * Links: how packets of collectives and of letters get to a peer over a transport. There is one lane per comm and peer, in which
 * each of the two purposes has credits of its own: letters that nobody receives hold up no collective.
 *
 * A packet is a frame with data. Packets for one purpose go, and come, in the order in which they are sent. One goes
 *   within the window   if no more than TTI_LINK_WINDOW bytes of such packets were not received, as far as the receiver has
 *                       said (GRANT);
 *   when it is posted   if the receiver has said that it waits for it (GRANT too): the k-th such packet for the k-th that is
 *                       posted there;
 *   when it is accepted, which is now: the layer above has asked the receiver by itself.
 * Those that may not go are held back, in order. One that comes goes to its place, if whoever it is for knows that place when it
 * begins; else it is put aside. A transport needs the memory of a packet until it is done, and the place of one that comes until
 * it has ended: both can be taken back after a failure.
 */
#ifndef TTI_COLLECTIVE_LINK_H
#define TTI_COLLECTIVE_LINK_H

#include "base/list.h"
#include "transport/transport.h"

enum { TTI_LINK_WINDOW = 1 << 20, TTI_LINK_CHARGE = 256 };

enum tti_purpose { TTI_COLLECTIVES, TTI_LETTERS, TTI_PURPOSES };

enum tti_leaves { TTI_WITHIN_WINDOW, TTI_WHEN_POSTED, TTI_WHEN_ACCEPTED };

/* A packet on its way out. Its memory, and the data, are not to be changed until it is done. */
struct tti_packet {
    struct tti_outgoing outgoing; /* first */
    int peer;
    enum tti_leaves leaves;
    bool done;
    void *copy; /* out of which it goes since it was taken back, or NULL */
    void (*gone)(struct tti_packet *packet, tutti_status status); /* it is done, and the link's no more; or NULL */
    struct tti_packet *next;                                      /* behind it, until it may go */
};

/* A frame that was put aside. */
struct tti_aside {
    struct tti_link on; /* a list of its owner */
    int peer;           /* of the world */
    struct tti_frame_head head;
    unsigned char data[];
};

/* What may go to a peer, and what came from it, for one purpose. */
struct tti_credits {
    struct tti_packet *held, **held_last;
    uint64_t sent,
        granted; /* charges of packets within the window: sent, and received by the peer as far as it has said */
    uint64_t taken, told; /* the same the other way: received here, and as the peer knows */
    uint64_t large_sent,
        large_granted;     /* packets that go when they are posted: sent, and posted there as far as is known */
    uint64_t large_posted; /* the same here */
};

/* What to do with a packet that begins to come. */
enum tti_match {
    TTI_PUT_ASIDE,
    TTI_GIVE_TO, /* the receive of struct tti_taking */
    TTI_DROP     /* it has no data, or makes no sense */
};

struct tti_taking {
    void *receive, *target;
};

struct tti_lane;
struct tti_lanes;

/* All with the lock of the net held. */

struct tti_aside *tti_aside_new(int peer, const struct tti_frame_head *head); /* NULL: no memory */

/* Sends a packet, or holds it back until it may go. The caller has set the head, `data`, `leaves` and `gone`. Returns true if it
 * is done already. */
bool tti_link_send(struct tti_lane *lane, enum tti_purpose purpose, struct tti_packet *packet);
/* Whether so much more fits into the window. */
bool tti_link_has_room(const struct tti_lane *lane, enum tti_purpose purpose, uint64_t bytes);
/* The data of a packet that is not done are to be the caller's again: it goes on with a copy. False: there is no memory. */
bool tti_link_take_back(struct tti_lane *lane, struct tti_packet *packet);
/* Gives those back that are held, and forgets them. */
void tti_link_stop(struct tti_lane *lane, enum tti_purpose purpose);

/* A packet within the window was received. */
void tti_link_take(struct tti_lane *lane, enum tti_purpose purpose, uint64_t bytes);
/* One that goes when it is posted is waited for; the peer is told by tti_lanes_grant. */
void tti_link_expect(struct tti_lane *lane, enum tti_purpose purpose);
void tti_link_hear_grant(struct tti_lane *lane, const struct tti_frame_head *head);

/* Returns the receive that data of the peer go to now, on this comm, or NULL. */
const void *tti_link_coming(const struct tti_lane *lane, enum tti_purpose purpose);
/* What is still to come for that one is dropped. */
void tti_link_drop(struct tti_lane *lane, enum tti_purpose purpose);

#endif
