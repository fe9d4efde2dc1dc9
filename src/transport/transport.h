/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport moves frames between two ranks: in order per pair of ranks, without blocking. A rank has one endpoint of a
 * transport; calls on an endpoint come from one thread at a time (the caller sees to it).
 *
 * What a frame means is the business of the layer above, which gives an endpoint a sink: told that a frame begins, it
 * says where the data shall go, so that large data are received in place; then it is told that they are all there.
 */
#ifndef TTI_TRANSPORT_TRANSPORT_H
#define TTI_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

/* Travels as it is, little-endian; the transport looks at `bytes` only. */
struct tti_frame_head {
    uint32_t comm; /* the comm it is for */
    uint16_t kind; /* what the layer above makes of it */
    uint16_t type;
    int32_t tag;
    uint32_t signature;
    uint64_t sequence;
    uint64_t value;
    uint64_t bytes; /* of data that follow */
    uint32_t epoch; /* that the comm was made in */
    uint32_t zero;
};

/* A frame on its way out. The caller's memory, not to be moved or changed until send() returned true or done() was called,
 * exactly once: OK when the data may be changed again, else why they were not sent. done() is never called from within
 * send(). */
struct tti_outgoing {
    struct tti_frame_head head;
    const void *data;
    bool both_ways; /* the peer has about as much to send meanwhile */
    void (*done)(struct tti_outgoing *outgoing, tutti_status status);
    struct tti_outgoing *next; /* the transport's from here on */
    uint64_t sent;
};

/* The layer above. All are called from within progress() only; they may call send(). */
struct tti_sink {
    void *context;
    /* A frame of `peer` begins: where its data go. NULL: nowhere, they are dropped. The memory must stay until end() or
     * lost(). `cookie` is handed to end(). Called for frames without data too. */
    void *(*begin)(void *context, int peer, const struct tti_frame_head *head, void **cookie);
    void (*end)(void *context, int peer, const struct tti_frame_head *head, void *cookie);
    /* Nothing more will come from this peer or go to it: a frame that had begun will not end. `text` says why. `closed`: it
     * had closed in order. */
    void (*lost)(void *context, int peer, bool closed, int system_errno, const char *text);
};

enum { TTI_ANYBODY = -1, TTI_NOBODY = -2 };

struct tti_transport; /* an endpoint; each transport begins its own struct with this one */

struct tti_transport_ops {
    const char *name;
    /* Queues a frame, and moves what can be moved at once. True: all of it was, and done() will not be called. Never blocks.
     * To a lost peer: done() with ERR_PEER_LOST. */
    bool (*send)(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing);
    /* Moves what can be moved now, in both directions; true when anything moved. Never blocks. `awaited` is the peer for whom
     * the caller waits: others may be looked at more rarely. TTI_ANYBODY: no one in particular; TTI_NOBODY: only for what is
     * being sent. */
    bool (*progress)(struct tti_transport *transport, int awaited);
    /* For a caller who needs its memory before done() or end() were called, which are called later as ever. What is still to go
     * of this frame to `peer` goes out of `copy`, which holds all of its data. */
    void (*keep)(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing, const void *copy);
    /* What is still to come of the frame of `peer` that has begun is dropped. */
    void (*drop)(struct tti_transport *transport, int peer);
    /* Sleeps until progress() could move something, somebody calls wake(), or the time is over. Other threads may call all but
     * close() meanwhile, and take what it would have been woken for. May return at once, to be called again after
     * progress(), which prepares for it. */
    void (*sleep)(struct tti_transport *transport, int64_t timeout_ns);
    /* The same for who sleeps on several endpoints: between the two, the descriptor that is returned is readable when the sleep
     * is to end. -1: do not sleep now. NULL: there is only sleep(). */
    int (*sleep_begin)(struct tti_transport *transport);
    void (*sleep_end)(struct tti_transport *transport);
    /* Ends a sleep of another thread. May come from any thread. */
    void (*wake)(struct tti_transport *transport);
    /* Returns true once all that was sent has come to where the peers are: no connection that is closed now can lose it. */
    bool (*is_delivered)(struct tti_transport *transport);
    /* Tries for at most so long to hand over what is queued, and says goodbye. Everybody is lost from then on, of which the sink
     * is not told. */
    void (*part)(struct tti_transport *transport, int64_t timeout_ns);
    /* The same, and frees everything. */
    void (*close)(struct tti_transport *transport, int64_t timeout_ns);
};

struct tti_transport {
    const struct tti_transport_ops *ops;
    int rank, size;
    struct tti_sink sink; /* set by the layer above before the first progress() */
};

#endif
