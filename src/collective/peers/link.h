/* SPDX-License-Identifier: Apache-2.0
 *
 * Links: how packets of collectives and of letters get to a peer over a transport. There is one lane per comm and peer,
 * in which each of the two purposes has credits of its own: letters that nobody receives hold up no collective.
 *
 * A packet is a frame with data. Packets for one purpose leave, and arrive, in the order in which they are sent. A
 * packet leaves
 *   within the window   if no more than TTI_LINK_WINDOW bytes of such packets were not received, as far as the receiver
 *                       has said (GRANT);
 *   when it is posted   if the receiver has said that it waits for it (GRANT too): the k-th such packet for the k-th
 *                       that is posted there;
 *   when it is accepted, which is now: the layer above has asked the receiver by itself.
 * Packets that may not leave yet are held back, in order. Data that arrive are written to their place if the receiver
 * knows it when they begin to arrive; else they are put aside. A transport needs the memory of a packet until the
 * packet is done, and the place of arriving data until they have all arrived: both can be taken back after a failure.
 */
#ifndef TTI_COLLECTIVE_LINK_H
#define TTI_COLLECTIVE_LINK_H

#include "base/list.h"
#include "transport/transport.h"

enum { TTI_LINK_WINDOW = 1 << 20, TTI_LINK_CHARGE = 256 };

enum tti_purpose { TTI_COLLECTIVES, TTI_LETTERS, TTI_PURPOSES };

enum tti_leaves { TTI_WITHIN_WINDOW, TTI_WHEN_POSTED, TTI_WHEN_ACCEPTED };

/* A packet on its way out. Its memory and its data must not be changed until it is done. */
struct tti_packet {
    struct tti_outgoing outgoing; /* first */
    int peer;
    enum tti_leaves leaves;
    bool done;
    void *copy; /* the copy that is sent since it was taken back, or NULL */
    void (*gone)(struct tti_packet *packet, tutti_status status); /* called when the link is done with it; or NULL */
    struct tti_packet *next;                                      /* the next packet that is held back */
};

/* A frame that was put aside, until its receive is posted. */
struct tti_aside {
    struct tti_link on; /* a list of its owner */
    int peer;           /* the sender, by its number in the world */
    struct tti_frame_head head;
    unsigned char data[];
};

/* Credits of one purpose: bytes that may go to a peer, and bytes that came from it. */
struct tti_credits {
    struct tti_packet *held, **held_last;
    uint64_t sent,
        granted; /* charges of packets within the window: sent, and received by the peer as far as it has said so */
    uint64_t taken, told; /* the same the other way: received here, and as far as the peer was told */
    uint64_t large_sent,
        large_granted;     /* packets that leave when they are posted: sent, and posted there as far as is known */
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

/* All of these are called with the lock of the net held. */

struct tti_aside *tti_aside_new(int peer, const struct tti_frame_head *head); /* NULL: no memory */

/* Sends a packet, or holds it back until it may go. The caller has set the head, `data`, `leaves` and `gone`. Returns
 * true if it is done already. */
bool tti_link_send(struct tti_lane *lane, enum tti_purpose purpose, struct tti_packet *packet);
/* Returns true if so many more bytes fit into the window. */
bool tti_link_has_room(const struct tti_lane *lane, enum tti_purpose purpose, uint64_t bytes);
/* Gives the data of an unfinished packet back to the caller: the packet goes on with a copy. Returns false if there is
 * no memory. */
bool tti_link_take_back(struct tti_lane *lane, struct tti_packet *packet);
/* Gives back the packets that are held back, and forgets them. */
void tti_link_stop(struct tti_lane *lane, enum tti_purpose purpose);

/* Notes that a packet within the window was received. */
void tti_link_take(struct tti_lane *lane, enum tti_purpose purpose, uint64_t bytes);
/* Notes that this rank waits for a packet that leaves when it is posted; tti_lanes_grant tells the peer. */
void tti_link_expect(struct tti_lane *lane, enum tti_purpose purpose);
void tti_link_hear_grant(struct tti_lane *lane, const struct tti_frame_head *head);

/* Returns the receive that data of the peer go to now, on this comm, or NULL. */
const void *tti_link_coming(const struct tti_lane *lane, enum tti_purpose purpose);
/* Drops the data that are still to come for that receive. */
void tti_link_drop(struct tti_lane *lane, enum tti_purpose purpose);

#endif
