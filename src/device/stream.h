/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and marks inside the library. This is what providers call; every function that puts work on a stream checks first
 * that the stream is usable (ERR_STALE, ERR_DEVICE), and has put nothing there when it fails.
 *
 * A provider that lets the host carry out an operation at a stream's turn uses gate.h.
 */
#ifndef TTI_DEVICE_STREAM_H
#define TTI_DEVICE_STREAM_H

#include "device/ops.h"

/* With a reference, which tti_object_give(&stream->object) gives back; NULL: *error says why. It may be stale. */
struct tti_stream *tti_stream_take(tutti_stream *handle, tutti_error *error);

/* A stream without a handle; a reference, which `drop` takes. It ends with its device, too. As tutti_stream_free. */
tutti_status tti_stream_make(struct tti_device *device, struct tti_stream **stream, tutti_error *error);
tutti_status tti_stream_drop(struct tti_stream *stream, tutti_error *error);

/* OK if work can be put on it now. */
tutti_status tti_stream_ready(struct tti_stream *stream, tutti_error *error);
/* OK unless it is stale, given up or its device has failed. Enters no driver: for those who poll. */
tutti_status tti_stream_state(const struct tti_stream *stream, tutti_error *error);

tutti_status tti_stream_copy(struct tti_stream *stream, void *to, const void *from, size_t bytes, tutti_error *error);
tutti_status tti_stream_fill(struct tti_stream *stream, void *to, size_t count, const void *element,
                             size_t element_bytes, tutti_error *error);
/* Until the word has reached the value (word.h); a word that a stream will raise must have been raised there before, by
 * order of the calls. */
tutti_status tti_stream_hold(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
tutti_status tti_stream_raise(struct tti_stream *stream, struct tti_word *word, uint64_t value, tutti_error *error);
/* The same, later: raising a word takes a GPU about two microseconds, and one does for all that is on the stream before it.
 * It is done by tti_stream_pay, by the next wait that is put on the stream, and when the stream is freed; whoever needs to know
 * sees to it that one of these comes. A further debt, to the same word, replaces the one before. With `mark`, which may be NULL,
 * it is for what that stands for when it is paid; whoever owes keeps the mark until it is. */
void tti_stream_owe(struct tti_stream *stream, struct tti_word *word, uint64_t value, struct tti_mark *mark);
tutti_status tti_stream_pay(struct tti_stream *stream, tutti_error *error);
static inline bool tti_stream_owes(const struct tti_stream *stream)
{
    return atomic_load_explicit(&stream->owed, memory_order_relaxed) != 0;
}
/* True if others know its native form, and may put waits on it that are not seen here. */
static inline bool tti_stream_is_shown(const struct tti_stream *stream)
{
    return stream->adopted || atomic_load_explicit(&stream->shown, memory_order_relaxed) != 0;
}
tutti_status tti_stream_launch(struct tti_stream *stream, const struct tti_kernel *kernel,
                               const struct tti_launch_shape *shape, const void *arguments, size_t bytes,
                               tutti_error *error);
/* The host waits until all that was put on it is done. */
tutti_status tti_stream_sync(struct tti_stream *stream, int64_t deadline_ns, tutti_error *error);

/* Somebody who must know, before the holds of a stream are let go without having been reached, that what is still on it is
 * not to be done or not to be taken for done. */
struct tti_stream_guard {
    struct tti_link link;
    struct tti_stream *stream; /* NULL: it guards none */
    void (*give_up)(struct tti_stream_guard *guard);
};
/* Until `unguard`, after which it is not called any more. It may block for a bounded time; it must not guard or unguard. */
void tti_stream_guard(struct tti_stream *stream, struct tti_stream_guard *guard);
void tti_stream_unguard(struct tti_stream_guard *guard);
/* Takes no more work, tells the guards, and lets its holds go. */
void tti_stream_give_up(struct tti_stream *stream);

/* Marks without a handle; a reference each. */
tutti_status tti_mark_make(struct tti_device *device, struct tti_mark **mark, tutti_error *error);
tutti_status tti_stream_record(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);
tutti_status tti_stream_after(struct tti_stream *stream, struct tti_mark *mark, tutti_error *error);

/* A mark, with a reference, for all that is on the stream now. It is recorded when somebody needs it, or before the stream
 * is told to wait for anything: so nobody who waits for it waits for more than he must. */
tutti_status tti_stream_note(struct tti_stream *stream, struct tti_mark **mark, tutti_error *error);
/* Before the caller may put work on a stream that he knows by its native form: his waits are not seen, and a mark that was
 * noted must not stand behind them. So it is recorded now. */
tutti_status tti_stream_settle_shown(struct tti_stream *stream, tutti_error *error);
/* Records such a mark now, unless it was. May block as putting work does. */
tutti_status tti_mark_settle(struct tti_mark *mark, tutti_error *error);
/* Whether all it stands for is done. Does not wait; one that was not recorded has not passed before its stream has ended. */
bool tti_mark_passed(struct tti_mark *mark);

/* Ends all streams of a device: waits for their work until then, and gives up what has not ended, with ERR_TIMEOUT. */
tutti_status tti_streams_end(struct tti_device *device, int64_t deadline_ns, tutti_error *error);

/* Sleeps a little, longer each time; *nap_ns is 0 at first. For polling what has no bell. */
void tti_poll_nap(int64_t *nap_ns);

#endif
