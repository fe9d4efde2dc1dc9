/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles of ops. A handle holds the number of a place in the table, and how often that place was used before. It does
 * not fit its place any more when it was waited for or dropped, or when its comm is gone: it is refused then, never
 * followed.
 */
#ifndef TTI_COLLECTIVE_HANDLE_H
#define TTI_COLLECTIVE_HANDLE_H

#include "base/status.h"
#include "collective/op/queue.h"
#include "collective/op/thread_local_op.h"

enum {
    TTI_HANDLE_PLACE_BITS = 24,
    TTI_HANDLE_CHUNK = 256,
    TTI_HANDLE_CHUNKS = (1 << TTI_HANDLE_PLACE_BITS) / TTI_HANDLE_CHUNK
};

/* Chunks are never given back, so the place of a stale handle can always be read. */
struct tti_handle_table {
    _Atomic uint32_t lock;
    uint32_t chunk_count;
    _Atomic(struct tti_started *) chunks[TTI_HANDLE_CHUNKS];
    struct tti_started *free;
};
extern struct tti_handle_table tti_handles;

/* Returns the place that a handle names, which may be used by another op by now; NULL: there is none. */
static inline struct tti_started *tti_handle_place(tutti_op handle)
{
    uint64_t place = handle.id & ((UINT64_C(1) << TTI_HANDLE_PLACE_BITS) - 1);
    struct tti_started *chunk = atomic_load_explicit(&tti_handles.chunks[place / TTI_HANDLE_CHUNK],
                                                     memory_order_acquire);
    return chunk == NULL ? NULL : &chunk[place % TTI_HANDLE_CHUNK];
}

static inline struct tti_started *tti_handle_at(tutti_op handle)
{
    struct tti_started *started = tti_handle_place(handle);
    if (started == NULL) return NULL;
    bool there = atomic_load_explicit(&started->id, memory_order_acquire) == handle.id &&
                 atomic_load_explicit(&started->used, memory_order_relaxed);
    return there ? started : NULL;
}

/* Finds the op of a handle, or says why it cannot be used. */
static inline tutti_status tti_handle_find(tutti_op handle, struct tti_started **started)
{
    *started = tti_handle_at(handle);
    if (*started == NULL) return TUTTI_ERR_HANDLE;
    return (*started)->comm->traits.fork_count == tti_fork_count() ? TUTTI_OK : TUTTI_ERR_FORKED;
}

/* The same; if the op is thread-local it is put into the queue first. */
static inline tutti_status tti_handle_find_queued(tutti_op handle, struct tti_started **started)
{
    TTI_TRY(tti_handle_find(handle, started));
    if (atomic_load_explicit(&(*started)->thread_local_op, memory_order_acquire))
        tti_thread_local_op_clear((*started)->comm);
    return TUTTI_OK;
}

#endif
