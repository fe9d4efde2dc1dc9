/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers inside the library.
 *
 * Invariant: memory is given back to the device when no work that was put on a stream uses it any more, and no op that will
 * put some holds it. A buffer knows that work by marks: of the last write, and of the reads since, one for each of a few
 * streams. Where more streams read, one of them waits for another and stands for both.
 */
#ifndef TTI_DEVICE_BUFFER_H
#define TTI_DEVICE_BUFFER_H

#include "device/ops.h"

enum { TTI_BUFFER_READERS = 4 };

struct tti_device_buffer {
    struct tti_object object;
    struct tti_device *device; /* a reference */
    uint64_t generation;
    struct tti_link link; /* of the device's buffers, or of its limbo */
    bool reclaimed;       /* its device has taken the memory back; under the device's lock */
    tutti_type type;
    size_t count;
    struct tti_memory memory; /* base is NULL once it was given back */
    uint64_t offered;         /* the number that others know it by, or 0; under `lock`, as is: */
    int offered_fd;
    _Atomic uint32_t dropped; /* by its owner */
    _Atomic uint32_t held;    /* ops that have begun and not ended: its memory stays */
    _Atomic uint32_t lock;    /* of the marks; held for a few instructions */
    struct tti_mark *writer;  /* of the last write, or NULL; a reference each */
    struct tti_mark *readers[TTI_BUFFER_READERS];
};

/* With a reference; NULL: *error says why. It may be stale. */
struct tti_device_buffer *tti_buffer_take(tutti_buffer *handle, tutti_error *error);

/* OK if it can be used: else ERR_STALE (dropped, device shut down, device re-opened) or ERR_DEVICE. */
tutti_status tti_buffer_usable(struct tti_device_buffer *buffer, tutti_error *error);
/* The same for these elements of it, and where they are; ERR_COUNT: past the end. */
tutti_status tti_buffer_range(struct tti_device_buffer *buffer, size_t offset, size_t count, char **at,
                              tutti_error *error);

/* Before work that uses it is put on the stream: the stream waits for uses on other streams that this one must follow. */
tutti_status tti_buffer_begin(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                              tutti_error *error);
/* After it was put there. Where no memory is left to note it, the host waits until the stream is done with it. */
tutti_status tti_buffer_end(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                            tutti_error *error);
/* The same for one of several buffers that the work uses; behind the last of them comes tti_stream_settle_shown. */
tutti_status tti_buffer_note(struct tti_device_buffer *buffer, tutti_access access, struct tti_stream *stream,
                             tutti_error *error);

/* An op has begun that will use it, whatever becomes of its handle meanwhile; and has ended. The reference is the caller's. */
void tti_buffer_hold(struct tti_device_buffer *buffer);
void tti_buffer_let_go(struct tti_device_buffer *buffer);

/* For other processes: a descriptor of a SHARED buffer's memory, the caller's to close; */
tutti_status tti_buffer_share(struct tti_device_buffer *buffer, int *fd, tutti_error *error);
/* or one that stays open as long as the buffer is there, and a number that no other buffer of this process ever has. */
tutti_status tti_buffer_offer(struct tti_device_buffer *buffer, int *fd, uint64_t *id, tutti_error *error);

/* Memory of a device without a buffer around it: for providers. Freed with ops->free. When the device has none left, waits
 * for a moment for what is about to be given back. */
tutti_status tti_device_alloc(struct tti_device *device, tutti_memory kind, size_t bytes, struct tti_memory *memory,
                              tutti_error *error);

/* When the device is shut down: gives the memory of all buffers back. Their handles stay, and are stale. */
void tti_buffers_reclaim(struct tti_device *device);

#endif
