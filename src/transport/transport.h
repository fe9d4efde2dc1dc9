/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport moves frames between two ranks: in order per pair of ranks, without blocking. A rank has one endpoint of
 * a transport; calls on an endpoint come from one thread at a time (the caller sees to it).
 *
 * The layer above knows what a frame means, and gives an endpoint a sink: when a frame begins, the sink says where the
 * data go, so that large data are received in place; when all data are there, the sink is called again.
 */
#ifndef TTI_TRANSPORT_TRANSPORT_H
#define TTI_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

/* Sent as it is, little-endian; the transport reads only `bytes`. */
struct tti_frame_head {
    uint32_t comm; /* the comm to which it belongs */
    uint16_t kind; /* used by the layer above */
    uint16_t type;
    int32_t tag;
    uint32_t signature;
    uint64_t sequence;
    uint64_t value;
    uint64_t bytes; /* bytes of data that follow */
    uint32_t epoch; /* the epoch in which the comm was made */
    uint32_t zero;
};

/* A frame to be sent. It is the caller's memory, which must not be moved or changed until send() returned true or
 * done() was called, exactly once: OK when the data may be changed again, else why they were not sent. done() is never
 * called from within send(). */
struct tti_outgoing {
    struct tti_frame_head head;
    const void *data;
    bool both_ways; /* the peer sends about as much meanwhile */
    void (*done)(struct tti_outgoing *outgoing, tutti_status status);
    struct tti_outgoing *next; /* used by the transport from here on */
    uint64_t sent;
};

/* The layer above. All functions are called from within progress() only; they may call send(). */
struct tti_sink {
    void *context;
    /* Called when a frame of `peer` begins, also if it has no data: returns where its data go. NULL: they are dropped.
     * The memory must stay until end() or lost(). `cookie` is passed to end(). */
    void *(*begin)(void *context, int peer, const struct tti_frame_head *head, void **cookie);
    void (*end)(void *context, int peer, const struct tti_frame_head *head, void *cookie);
    /* Called when nothing more will come from this peer or go to it: a frame that had begun will not end. `text` says
     * why. `closed`: it had closed in order. */
    void (*lost)(void *context, int peer, bool closed, int system_errno, const char *text);
};

enum { TTI_ANYBODY = -1, TTI_NOBODY = -2 };

struct tti_transport; /* an endpoint; each transport's own struct begins with this one */

struct tti_transport_ops {
    const char *name;
    /* Queues a frame, and sends what can be sent at once. Returns true if all of it was sent; then done() will not be
     * called. Never blocks. For a lost peer: done() with ERR_PEER_LOST. */
    bool (*send)(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing);
    /* Moves what can be moved now, in both directions; returns true if anything moved. Never blocks. `awaited` is the
     * peer for which the caller waits: others may be polled more rarely. TTI_ANYBODY: no peer in particular;
     * TTI_NOBODY: only for frames that are being sent. */
    bool (*progress)(struct tti_transport *transport, int awaited);
    /* For a caller that needs its memory before done() or end() were called; these are called later as usual. The rest
     * of this frame to `peer` is sent from `copy`, which holds all of its data. */
    void (*keep)(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing, const void *copy);
    /* Drops the rest of the frame of `peer` that has begun. */
    void (*drop)(struct tti_transport *transport, int peer);
    /* Sleeps until progress() could move something, another thread calls wake(), or the time is over. Other threads may
     * call all but close() meanwhile, and take what would have ended the sleep. May return at once, to be called again
     * after progress(), which prepares for it. */
    void (*sleep)(struct tti_transport *transport, int64_t timeout_ns);
    /* For a thread that sleeps on several endpoints: between the two calls, the descriptor that is returned is readable
     * when the sleep should end. -1: do not sleep now. NULL: there is only sleep(). */
    int (*sleep_begin)(struct tti_transport *transport);
    void (*sleep_end)(struct tti_transport *transport);
    /* Ends a sleep of another thread. May be called by any thread. */
    void (*wake)(struct tti_transport *transport);
    /* Returns true once everything that was sent has arrived at the peers' hosts: closing a connection now cannot lose
     * it. */
    bool (*is_delivered)(struct tti_transport *transport);
    /* Tries for at most so long to hand over queued frames, and says goodbye. All peers are lost from then on, without
     * a call of the sink. A time below 0: without any of that, as if the process had ended. */
    void (*part)(struct tti_transport *transport, int64_t timeout_ns);
    /* Does the same, and frees everything. */
    void (*close)(struct tti_transport *transport, int64_t timeout_ns);
};

struct tti_transport {
    const struct tti_transport_ops *ops;
    int rank, size;
    struct tti_sink sink; /* set by the layer above before the first progress() */
};

#endif
