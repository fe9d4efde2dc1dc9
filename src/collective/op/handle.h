/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles of ops. A handle is a number: which place of the table, and how often that place was used before. A handle that
 * was waited for, dropped, or whose comm is gone does not fit its place any more, and is refused, never followed.
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

/* Chunks are never given back: what a stale handle points to can always be looked at. */
struct tti_handle_table {
    _Atomic uint32_t lock;
    uint32_t chunk_count;
    _Atomic(struct tti_started *) chunks[TTI_HANDLE_CHUNKS];
    struct tti_started *free;
};
extern struct tti_handle_table tti_handles;

/* The place that a handle names, which may be another op's by now; NULL: there is none. */
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

/* The op of a handle, or why it cannot be used. */
static inline tutti_status tti_handle_find(tutti_op handle, struct tti_started **started)
{
    *started = tti_handle_at(handle);
    if (*started == NULL) return TUTTI_ERR_HANDLE;
    return (*started)->comm->traits.fork_count == tti_fork_count() ? TUTTI_OK : TUTTI_ERR_FORKED;
}

/* The same, and it is not thread-local. */
static inline tutti_status tti_handle_find_queued(tutti_op handle, struct tti_started **started)
{
    TTI_TRY(tti_handle_find(handle, started));
    if (atomic_load_explicit(&(*started)->thread_local_op, memory_order_acquire))
        tti_thread_local_op_clear((*started)->comm);
    return TUTTI_OK;
}

#endif
