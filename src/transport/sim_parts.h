/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two parts of the simulated transport share: sim_transport.c is the transport's table and the network, sim_link.c what
 * happens to a frame between its sender and its receiver.
 */
#ifndef TTI_TRANSPORT_SIM_PARTS_H
#define TTI_TRANSPORT_SIM_PARTS_H

#include "base/sim.h"
#include "transport/sim_transport.h"

enum {
    BLOCK_FRAMES = 256 /* made together */
};

struct tti_sim_frame {
    struct tti_event event; /* its arrival; the first member */
    struct tti_sim_frame *next;
    struct tti_sim_endpoint *from, *to;
    struct tti_frame_head head;
    struct tti_outgoing *outgoing; /* until all of it has left */
    int64_t in_from_ns;            /* when it could have begun to pass the way in, and */
    int64_t in_before_ns;          /* what had passed there by then */
    int64_t delay_ns;              /* how much later it comes than by all else */
    int64_t copied_ns; /* when its last byte can be there at the earliest: the sender has copied it; 0: any time */
    void *data;        /* NULL: there are none, or sizes only */
};

struct tti_sim_frames {
    struct tti_sim_frame *first, **last;
};

struct tti_sim_block {
    struct tti_sim_block *next;
    struct tti_sim_frame frames[BLOCK_FRAMES];
};

enum tti_sim_state { UNUSED, OPEN, GONE, ANNOUNCED };

struct tti_sim_endpoint {
    struct tti_transport transport; /* the first member */
    struct tti_sim_network *network;
    struct tti_event departure;
    int host;
    enum tti_sim_state state;
    bool in_order;                    /* it closed, rather than being dropped */
    int sleepers;                     /* tasks of the rank: its own, and its service tasks */
    int64_t idle_from_ns, idle_to_ns; /* its last sleep: what came meanwhile was copied as it came */
    tti_bell bell;
    struct tti_sim_frames queued;  /* to leave */
    struct tti_sim_frames arrived; /* to be taken */
    struct tti_outgoing *sent, **sent_last;
    struct tti_sim_endpoint *next, *previous; /* of those of its host that are sending */
    bool sends;                               /* is one of those: its first queued frame */
    double until;                             /* `passed` of the link when that has left */
    uint64_t on_the_way;                      /* frames of its own that have not arrived */
    int64_t busy_until_ns;                    /* with what has arrived */
    int heard;                                /* departures it was told of */
};

struct tti_sim_link {
    struct tti_event event;                /* the first sender's frame has left; the first member */
    struct tti_sim_endpoint *first, *last; /* that send, in the order in which their frames will have left */
    int senders;
    double passed; /* bytes, for each of them, */
    int64_t at_ns; /* by then */
    struct tti_sim_network *network;
    int64_t in_busy_until_ns, in_passed_ns; /* the way in, and how long all that passed it took */
};

struct tti_sim_network {
    int hosts, each, size;
    double ns_per_byte;
    int64_t latency_ns;
    struct tti_sim_link *links;
    struct tti_sim_endpoint *endpoints;
    int *departed, departed_count; /* ranks, in order */
    int open;                      /* endpoints */
    struct tti_sim_frame *free;
    struct tti_sim_block *blocks;
};

static inline int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline void rouse(struct tti_sim_endpoint *endpoint)
{
    if (endpoint->sleepers > 0) tti_sim_bell_ring(&endpoint->bell, 0);
}

static inline void append(struct tti_sim_frames *frames, struct tti_sim_frame *frame)
{
    frame->next = NULL;
    *frames->last = frame;
    frames->last = &frame->next;
}

static inline struct tti_sim_frame *take_first(struct tti_sim_frames *frames)
{
    struct tti_sim_frame *frame = frames->first;
    if (frame == NULL) return NULL;
    frames->first = frame->next;
    if (frames->first == NULL) frames->last = &frames->first;
    return frame;
}

/* NULL: no memory. */
struct tti_sim_frame *tti_sim_frame_new(struct tti_sim_network *network);
void tti_sim_frame_free(struct tti_sim_network *network, struct tti_sim_frame *frame);

/* What was sent goes back to its sender, whose progress() calls its done(). */
void tti_sim_hand_back(struct tti_sim_endpoint *from, struct tti_outgoing *outgoing, tutti_status status);

/* Who is gone, and of whom nothing is on its way any more. */
void tti_sim_announce_departure(struct tti_sim_endpoint *gone);

/* All of a frame has left, and will be there at the given time, or as soon as the receiver has dealt with those before. */
void tti_sim_has_left(struct tti_sim_frame *frame, int64_t there_ns);

void tti_sim_link_init(struct tti_sim_link *link, struct tti_sim_network *network, int host);
/* On the link of its sender's host, behind that one's other frames. */
void tti_sim_link_send(struct tti_sim_frame *frame);
/* What the endpoint has queued and has not left by now never will; what has still arrives. */
void tti_sim_link_forget(struct tti_sim_endpoint *endpoint, tutti_status status);

void tti_sim_endpoint_init(struct tti_sim_endpoint *endpoint, struct tti_sim_network *network, int rank);

#endif
