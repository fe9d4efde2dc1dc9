/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and marks inside the library, for providers. Every function that puts work on a stream first checks that the
 * stream is usable (ERR_STALE, ERR_DEVICE); if it fails it has put nothing there.
 *
 * A provider that lets the host carry out an operation at a stream's turn uses gate.h.
 */
#ifndef TTI_DEVICE_STREAM_H
#define TTI_DEVICE_STREAM_H

#include "device/ops.h"

/* Returns the stream with a reference, which tti_object_give(&stream->object) gives back; NULL: *error says why. It may
 * be stale. */
struct tti_stream *tti_stream_take(tutti_stream *handle, tutti_error *error);

/* Makes a stream without a handle; `drop` takes its reference, and works like tutti_stream_free. It ends with its
 * device, too. */
tutti_status tti_stream_make(struct tti_device *device, struct tti_stream **stream, tutti_error *error);
tutti_status tti_stream_drop(struct tti_stream *stream, tutti_error *error);

/* Returns OK if work can be put on it now. */
tutti_status tti_stream_ready(struct tti_stream *stream, tutti_error *error);
/* Returns OK unless it is stale or given up, or its device has failed. Enters no driver, so it can be used for
 * polling. */
tutti_status tti_stream_state(const struct tti_stream *stream, tutti_error *error);

/* Called by a caller's own thread before it puts work there: waits while much is pending (room.c). */
tutti_status tti_stream_make_room(struct tti_stream *stream, tutti_error *error);

tutti_status tti_stream_copy(struct tti_stream *stream, void *to, const void *from, size_t bytes, tutti_error *error);
tutti_status tti_stream_fill(struct tti_stream *stream, void *to, size_t count, const void *element,
                             size_t element_bytes, tutti_error *error);
/* Waits until the word has reached the value (word.h); if a stream raises the word, the raise must have been put there
 * before, in the order of calls. */
tutti_status tti_stream_hold(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
tutti_status tti_stream_raise(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
/* Raises the word later: a raise takes a GPU about two microseconds, and one is enough for all work before it. It is
 * done by tti_stream_pay, by the next wait that is put on the stream, and when the stream is freed; a caller that needs
 * the result makes sure that one of these comes. A further debt, for the same word, replaces the one before. With
 * `mark`, which may be NULL, it also stands for the mark's work when it is paid; the caller keeps the mark until
 * then. */
void tti_stream_owe(struct tti_stream *stream, struct tti_word *word, uint64_t value, struct tti_mark *mark);
tutti_status tti_stream_pay(struct tti_stream *stream, tutti_error *error);
static inline bool tti_stream_owes(const struct tti_stream *stream)
{
    return atomic_load_explicit(&stream->owed, memory_order_relaxed) != 0;
}
/* Returns true if others know its native form, and may put waits on it that are not seen here. */
static inline bool tti_stream_is_shown(const struct tti_stream *stream)
{
    return stream->adopted || atomic_load_explicit(&stream->shown, memory_order_relaxed) != 0;
}
tutti_status tti_stream_launch(struct tti_stream *stream, const struct tti_kernel *kernel,
                               const struct tti_launch_shape *shape, const void *arguments, size_t bytes,
                               tutti_error *error);
/* The host waits until all work that was put on it is done. */
tutti_status tti_stream_sync(struct tti_stream *stream, int64_t deadline_ns, tutti_error *error);

/* A guard is called before the holds of a stream are let go without having been reached: its owner must know that the
 * work still on it is not done, or must not be taken for done. */
struct tti_stream_guard {
    struct tti_link link;
    struct tti_stream *stream; /* NULL: it guards no stream */
    void (*give_up)(struct tti_stream_guard *guard);
};
/* Guards the stream until `unguard`; after that give_up is not called any more. It may block for a bounded time; it
 * must not guard or unguard. */
void tti_stream_guard(struct tti_stream *stream, struct tti_stream_guard *guard);
void tti_stream_unguard(struct tti_stream_guard *guard);
/* Takes no more work, calls the guards, and lets its holds go. */
void tti_stream_give_up(struct tti_stream *stream);

/* Marks without a handle; the caller has a reference. */
tutti_status tti_mark_make(struct tti_device *device, struct tti_mark **mark, tutti_error *error);
/* Makes a mark usable again after its device was opened again, in place: other ranks may hold it. */
tutti_status tti_mark_renew(struct tti_mark *mark, tutti_error *error);
tutti_status tti_stream_record(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);
tutti_status tti_stream_after(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);

/* Returns a mark, with a reference, for all work that is on the stream now. It is recorded when it is needed, or before
 * the stream is told to wait for anything: so that nobody waits for more than necessary. */
tutti_status tti_stream_note(struct tti_stream *stream, struct tti_mark **mark, tutti_error *error);
/* Called before the caller may put work on a stream whose native form it knows: its waits are not seen, and a mark that
 * was noted must not be recorded behind them. So it is recorded now. */
tutti_status tti_stream_settle_shown(struct tti_stream *stream, tutti_error *error);
/* Records such a mark now, unless it was recorded. May block as putting work does. */
tutti_status tti_mark_settle(struct tti_mark *mark, tutti_error *error);
/* Returns true if all its work is done. Does not wait; a mark that was not recorded passes only when its stream has
 * ended. */
bool tti_mark_passed(struct tti_mark *mark);

/* Ends all streams of a device: waits for their work until the deadline, and gives up streams that have not ended, with
 * ERR_TIMEOUT. */
tutti_status tti_streams_end(struct tti_device *device, int64_t deadline_ns, tutti_error *error);

/* Sleeps a little, longer each time; *nap_ns is 0 at first. For polling without a bell. */
void tti_poll_nap(int64_t *nap_ns);

#endif
