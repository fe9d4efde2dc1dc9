/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers inside the library.
 *
 * Invariant: memory is given back to the device when no work that was put on a stream uses it any more, and no op that
 * will put some holds it. A buffer knows that work by marks: one for the last write, and for the reads since then one
 * for each of a few streams. If more streams read, one of them waits for another, and its mark stands for both.
 */
#ifndef TTI_DEVICE_BUFFER_H
#define TTI_DEVICE_BUFFER_H

#include "device/ops.h"

enum { TTI_BUFFER_READERS = 4 };

struct tti_device_buffer {
    struct tti_object object;
    struct tti_device *device; /* a reference */
    uint64_t generation;
    struct tti_link link; /* on the device's list of buffers, or on its limbo */
    bool reclaimed;       /* its device has taken the memory back; under the device's lock */
    tutti_type type;
    size_t count;
    struct tti_memory memory; /* base is NULL once it was given back */
    uint64_t offered;         /* the number by which others know it, or 0; under `lock`, as is `offered_fd` */
    int offered_fd;
    _Atomic uint32_t dropped; /* dropped by its owner */
    _Atomic uint32_t held;    /* ops that use it and have not ended: its memory stays */
    _Atomic uint32_t lock;    /* guards the marks; held for a few instructions */
    struct tti_mark *writer;  /* the last write, or NULL; the marks are references */
    struct tti_mark *readers[TTI_BUFFER_READERS];
};

/* Returns the buffer with a reference; NULL: *error says why. It may be stale. */
struct tti_device_buffer *tti_buffer_take(tutti_buffer *handle, tutti_error *error);

/* Returns OK if it can be used; otherwise ERR_STALE (dropped, device shut down, device re-opened) or ERR_DEVICE. */
tutti_status tti_buffer_usable(struct tti_device_buffer *buffer, tutti_error *error);
/* Does the same for some of its elements, and sets where they are; ERR_COUNT: past the end. */
tutti_status tti_buffer_range(struct tti_device_buffer *buffer, size_t offset, size_t count, char **at,
                              tutti_error *error);

/* Called before work that uses it is put on the stream: the stream waits for uses on other streams that this one must
 * follow. */
tutti_status tti_buffer_begin(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                              tutti_error *error);
/* Called after the work was put there. If there is no memory to note it, the host waits until the stream is done with
 * it. */
tutti_status tti_buffer_end(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                            tutti_error *error);
/* Does the same for one of several buffers that the work uses; tti_stream_settle_shown follows after the last of
 * them. */
tutti_status tti_buffer_note(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                             tutti_error *error);

/* hold: an op begins that will use it, whatever happens to its handle meanwhile; let_go: it has ended. The reference
 * stays the caller's. */
void tti_buffer_hold(struct tti_device_buffer *buffer);
void tti_buffer_let_go(struct tti_device_buffer *buffer);

/* For other processes: returns a descriptor of a SHARED buffer's memory, which the caller closes. */
tutti_status tti_buffer_share(struct tti_device_buffer *buffer, int *fd, tutti_error *error);
/* Returns a descriptor that stays open as long as the buffer exists, and a number that no other buffer of this process
 * ever has. */
tutti_status tti_buffer_offer(struct tti_device_buffer *buffer, int *fd, uint64_t *id, tutti_error *error);

/* Takes memory of a device without a buffer around it, for providers. It is freed with ops->free. If the device has
 * none left, this waits for a moment for memory that is about to be given back. */
tutti_status tti_device_alloc(struct tti_device *device, tutti_memory kind, size_t bytes, struct tti_memory *memory,
                              tutti_error *error);

/* Called when the device is shut down: gives the memory of all buffers back. Their handles stay, and are stale. */
void tti_buffers_reclaim(struct tti_device *device);

#endif
