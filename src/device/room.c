/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps a stream's queue from filling up. A GPU's driver takes about a thousand pieces of work for a stream; whoever puts more
 * there is held up inside the driver, and with it every thread that calls the driver, for as long as the stream stands still. So
 * a caller waits here before that, at a word in host memory: no lock is held, and who gives the stream up lets it go on.
 *
 * Invariant: behind each EACH pieces of work the stream raises its word, and nothing is put there before the word was raised for
 * the raise before the last one: at most three times EACH are pending, and what the library itself adds.
 */
#include "base/clock.h"
#include "base/status.h"
#include "device/open.h"
#include "device/stream.h"
#include "device/word.h"

enum { EACH = 256 };

tutti_status tti_stream_make_room(struct tti_stream *stream, tutti_error *error)
{
    const struct tti_device_ops *ops = stream->device->ops;
    if (!ops->holds_up || atomic_load_explicit(&stream->works, memory_order_relaxed) < EACH) return TUTTI_OK;
    TTI_TRY(tti_stream_ready(stream, error));
    TTI_TRY(ops->raise(stream, stream->done, stream->syncs + 1, error));
    atomic_store_explicit(&stream->works, 0, memory_order_relaxed);
    uint64_t before = stream->rooms[0];
    stream->rooms[0] = stream->rooms[1];
    stream->rooms[1] = ++stream->syncs;
    if (before == 0) return TUTTI_OK;
    return tti_word_await(stream, stream->done, before, tti_now_ns() + TTI_DEVICE_PATIENCE_NS, error);
}
