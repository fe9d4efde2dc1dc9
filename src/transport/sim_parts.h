/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the simulated transport share: sim_transport.c has the transport's table and the network,
 * sim_link.c takes a frame from its sender to its receiver, sim_cut.c cuts hosts off and ends connections.
 */
#ifndef TTI_TRANSPORT_SIM_PARTS_H
#define TTI_TRANSPORT_SIM_PARTS_H

#include "base/sim.h"
#include "transport/sim_transport.h"

enum {
    BLOCK_FRAMES = 256 /* frames that are allocated together */
};

struct tti_sim_frame {
    struct tti_event event; /* its arrival; the first member */
    struct tti_sim_frame *next;
    struct tti_sim_endpoint *from, *to;
    struct tti_frame_head head;
    struct tti_outgoing *outgoing; /* set until all of it has left */
    int64_t in_from_ns;            /* when it could have begun to pass the way in */
    int64_t in_before_ns;          /* the time of all frames that had passed there by then */
    int64_t delay_ns;              /* its delay besides everything else */
    /* the earliest time at which its last byte can arrive, since the sender has copied it by then; 0: any time */
    int64_t copied_ns;
    void *data; /* NULL: there are none, or sizes only */
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
    bool in_order;                    /* it was closed, and not dropped */
    int sleepers;                     /* tasks of the rank that sleep: its own, and its service tasks */
    int64_t idle_from_ns, idle_to_ns; /* its last sleep: frames that came meanwhile were copied as they came */
    tti_bell bell;
    struct tti_sim_frames queued;  /* frames that have not left */
    struct tti_sim_frames arrived; /* frames that were not taken yet */
    struct tti_outgoing *sent, **sent_last;
    struct tti_sim_endpoint *next, *previous; /* neighbours in the list of those of its host that are sending */
    bool sends;                               /* it is sending its first queued frame */
    double until;                             /* the link's `passed` when that frame has left */
    uint64_t on_the_way;                      /* its own frames that have not arrived */
    int64_t busy_until_ns;                    /* until when it is busy with frames that have arrived */
    int heard;                                /* how many departures it was told of */
    uint64_t looked_at; /* the network's `changes` when it last looked for peers that it has lost */
};

struct tti_sim_link {
    struct tti_event event;                /* the first sender's frame has left; the first member */
    struct tti_sim_endpoint *first, *last; /* the senders, in the order in which their frames will have left */
    int senders;
    double passed; /* bytes that each of them has sent */
    int64_t at_ns; /* at this time */
    struct tti_sim_network *network;
    int64_t in_busy_until_ns, in_passed_ns; /* until when the way in is busy, and the time of all that has passed it */
};

/* One rank's end of its connection to another one; there is one for each where connections can end. */
struct tti_sim_pair {
    uint32_t on_the_way; /* frames to the peer that have not arrived */
    bool ended;          /* nothing is sent to the peer any more, and what comes from it is dropped */
    bool told;           /* the layer above knows that it has ended */
    bool silent;         /* it has ended because the peer was not heard for the time of a heartbeat */
};

struct tti_sim_cut;

struct tti_sim_network {
    int hosts, each, size;
    double ns_per_byte;
    int64_t latency_ns;
    struct tti_sim_link *links;
    struct tti_sim_endpoint *endpoints;
    int *departed, departed_count; /* ranks that have departed, in order */
    int open;                      /* open endpoints */
    struct tti_sim_frame *free;
    struct tti_sim_block *blocks;
    struct tti_sim_pair *pairs; /* [size][size] by who sees whom; NULL: connections end with their ranks only */
    struct tti_sim_cut *cuts;
    size_t cut_count;
    struct tti_sim_frames held;
    uint64_t changes; /* changes so far that may make one rank lose another */
};

static inline struct tti_sim_pair *pair_of(const struct tti_sim_endpoint *from, const struct tti_sim_endpoint *to)
{
    const struct tti_sim_network *network = from->network;
    return &network->pairs[(size_t)from->transport.rank * (size_t)network->size + (size_t)to->transport.rank];
}

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

/* Makes a frame. NULL: no memory. */
struct tti_sim_frame *tti_sim_frame_new(struct tti_sim_network *network);
void tti_sim_frame_free(struct tti_sim_network *network, struct tti_sim_frame *frame);

/* Gives a frame back to its sender, whose progress() calls its done(). */
void tti_sim_hand_back(struct tti_sim_endpoint *from, struct tti_outgoing *outgoing, tutti_status status);

/* Announces an endpoint that is gone and none of whose frames is on its way any more. */
void tti_sim_announce_departure(struct tti_sim_endpoint *gone);

/* Keeps a frame's data and gives the frame back to its sender. Returns false if there is no memory, and frees it. */
bool tti_sim_let_go(struct tti_sim_frame *frame);
/* Called after tti_sim_let_go: the frame arrives at the given time, or as soon as the receiver has taken those before
 * it. */
void tti_sim_comes(struct tti_sim_frame *frame, int64_t there_ns);
/* Does both: the frame leaves its sender, and arrives. */
void tti_sim_has_left(struct tti_sim_frame *frame, int64_t there_ns);

void tti_sim_link_init(struct tti_sim_link *link, struct tti_sim_network *network, int host);
/* Puts a frame on the link of its sender's host, behind that rank's other frames. */
void tti_sim_link_send(struct tti_sim_frame *frame);
/* Drops the frames that the endpoint has queued and that have not left; those that have left still arrive. */
void tti_sim_link_forget(struct tti_sim_endpoint *endpoint, tutti_status status);
/* Drops those queued frames that are for one peer. */
void tti_sim_link_forget_peer(struct tti_sim_endpoint *endpoint, const struct tti_sim_endpoint *peer);

/* ---- sim_cut.c, to be called only if network->pairs is not NULL ---- */

/* Returns true if nothing passes from one host to the other now. */
bool tti_sim_is_cut(const struct tti_sim_network *network, int from_host, int to_host);
/* Keeps a frame that has left until the cut is over. */
void tti_sim_hold(struct tti_sim_frame *frame);
/* Tells the layer above of peers that the rank has lost. Returns true if there were any. */
bool tti_sim_notify_ends(struct tti_sim_endpoint *endpoint);
/* Wakes all ranks: one may have lost another. Does nothing if network->pairs is NULL. */
void tti_sim_note_change(struct tti_sim_network *network);
void tti_sim_cuts_free(struct tti_sim_network *network);

void tti_sim_endpoint_init(struct tti_sim_endpoint *endpoint, struct tti_sim_network *network, int rank);

#endif
