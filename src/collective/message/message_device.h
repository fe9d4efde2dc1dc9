/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages whose data lie in memory of a device, put on one of its streams.
 *
 * A letter is posted when it is called, so that messages match in the order of the calls. Its data move when its stream
 * has come to it: then the work put on the stream before is done. A send is announced even if it is small. The rest
 * depends on the way:
 *   COPY   both sides are on devices, and the receiver reaches the sender's memory: the sender says SENT when its
 *          stream has come; when the receiver's has come too, a stream of the comm's own copies the data, and RECEIVED
 *          is said at the end
 *   else   the sender copies its data to pinned memory, and they go from there as data of the host do; what comes for a
 *          receive on a device comes to pinned memory, and a copy takes it from there when the receiver's stream has
 *          come
 * So a message may go from a device to the host, and back.
 *
 * Invariant: no stream waits for a message. Copies are put on the comm's own stream only when they can be done at once,
 * so that it never stands still, whatever queues of the hardware it shares.
 */
#ifndef TTI_COLLECTIVE_MESSAGE_DEVICE_H
#define TTI_COLLECTIVE_MESSAGE_DEVICE_H

#include "collective/message/message.h"
#include "collective/peers/offers.h"
#include "device/gate.h"
#include "device/pinned.h"

/* The copies of a comm on one device. */
struct tti_copier {
    struct tti_copier *next;
    tutti_comm *comm;
    struct tti_device *device; /* a reference */
    struct tti_stream *stream; /* a reference; the copier's own */
    struct tti_word *done;     /* the n-th copy sets it to first_done + n */
    uint64_t first_done, copies;
    struct tti_stream_gate *gates; /* gates of the caller's streams */
    struct tti_offers offers;      /* memory of other processes that is mapped here */
    unsigned char uuid[16];        /* identifies the device */
    _Atomic uint64_t buffered;     /* bytes of small messages that were sent and have not left yet */
};

/* A letter's data on a device, and its place on a stream. The fields from `gate` on belong to one start. */
struct tti_device_letter {
    struct tti_copier *copier;
    struct tti_stream *stream;        /* a reference to the stream of the call */
    struct tti_device_buffer *buffer; /* a reference; NULL: the memory is in no buffer */
    char *at;
    uint64_t bytes;
    bool sends;
    bool buffers; /* true for a small send: the stream itself copies the data to `host`, and continues */

    struct tti_stream_gate *gate; /* NULL: the letter is not put on its stream */
    uint64_t turn;
    struct tti_pinned *host;        /* a copy on the host, or NULL */
    struct tti_device_offer *offer; /* send: tells the receiver where the data lie; or NULL */
    const char *source;             /* receive: where the sender's data lie here */
    uint64_t copy;                  /* the number of its copy; 0: none was put */
};

/* Makes the device part of a letter; checks the memory and the stream. */
tutti_status tti_device_letter_make(tutti_comm *comm, struct tti_stream *stream, const void *pointer, uint64_t bytes,
                                    bool sends, struct tti_device_letter **made, tutti_error *error);
void tti_device_letter_free(struct tti_device_letter *device); /* NULL is ignored */

/* Called before the letter is posted: puts it on its stream. If it fails, nothing was put there. */
tutti_status tti_device_letter_put(struct tti_device_letter *device, tutti_error *error);
/* Called when its letter has ended: its memory is the caller's again, now or when the copies have passed. It may be put
 * again. */
void tti_device_letter_end(struct tti_device_letter *device);

/* Returns true if its stream has come to it. Calls no driver. */
static inline bool tti_device_letter_has_come(const struct tti_device_letter *device)
{
    return device->gate != NULL && tti_gate_reached(&device->gate->gate, device->turn) &&
           /* a stream that was given up need not have come */
           atomic_load_explicit(&device->stream->given_up, memory_order_acquire) == 0;
}
/* Returns OK unless the stream never comes, or copies are never done. Calls no driver, either. */
tutti_status tti_device_letter_state(const struct tti_device_letter *device, tutti_error *error);

/* For message*.c. Says where a send's data lie, for the receiver; NOWHERE: it cannot reach them. */
struct tti_place tti_device_place_of(struct tti_send *send);
/* Returns true if a receive can read the data at such a place. */
bool tti_device_reaches(struct tti_recv *recv, int peer, struct tti_place place);
/* These do what can be done now, and return true when it is complete: make_room: a receive has memory on the host;
 * copy: its data were copied from the sender's device; fetch: the data of a send are on the host, in send->in; lift:
 * the data of a receive are on the device. A failure breaks the comm. */
bool tti_device_make_room(struct tti_recv *recv);
bool tti_device_copy(struct tti_recv *recv);
bool tti_device_fetch(struct tti_send *send);
bool tti_device_lift(struct tti_recv *recv);
/* Waits until copies that are under way have passed; returns false if some have not by then. */
bool tti_copiers_await(struct tti_copier *copiers, int64_t until_ns);
void tti_copiers_free(struct tti_copier *copiers);

#endif
