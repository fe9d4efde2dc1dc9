/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "collective/op/handle.h"

#include "base/alloc.h"
#include "base/log.h"
#include "collective/op/callback.h"
#include "collective/op/pending.h"
#include "collective/op/queue_external.h"
#include "collective/op/queue_group.h"
#include "collective/op/turn.h"
#include <assert.h>

struct tti_handle_table tti_handles;

static bool add_chunk(void)
{
    if (tti_handles.chunk_count == TTI_HANDLE_CHUNKS) return false;
    struct tti_started *chunk = tti_calloc_aligned(TTI_HANDLE_CHUNK * sizeof *chunk);
    if (chunk == NULL) return false;
    uint64_t first = (uint64_t)tti_handles.chunk_count * TTI_HANDLE_CHUNK;
    for (uint64_t i = TTI_HANDLE_CHUNK; i-- > 0;) {
        atomic_store_explicit(&chunk[i].id, (first + i) | UINT64_C(1) << TTI_HANDLE_PLACE_BITS, memory_order_relaxed);
        chunk[i].next = tti_handles.free;
        tti_handles.free = &chunk[i];
    }
    atomic_store_explicit(&tti_handles.chunks[tti_handles.chunk_count++], chunk, memory_order_release);
    return true;
}

static struct tti_started *take_from_table(tutti_comm *comm)
{
    tti_lock(&tti_handles.lock);
    struct tti_started *started = NULL;
    if (tti_handles.free != NULL || add_chunk()) {
        started = tti_handles.free;
        tti_handles.free = started->next;
        started->comm = comm;
        started->first_id = atomic_load_explicit(&started->id, memory_order_relaxed);
    }
    tti_unlock(&tti_handles.lock);
    return started;
}

static struct tti_started *add_place(tutti_comm *comm)
{
    struct tti_started *started = take_from_table(comm);
    if (started == NULL) return NULL;
    started->op.comm = comm;
    started->next = NULL;
    tti_lock(&comm->queue.lock);
    started->sibling = comm->queue.all;
    comm->queue.all = started;
    tti_unlock(&comm->queue.lock);
    return started;
}

/* Makes sure that there is a free place. Only the caller starts ops; others give places back, which are taken all at
 * once. */
bool tti_started_reserve(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    if (queue->own_free != NULL) return true;
    tti_lock(&queue->lock);
    queue->own_free = queue->free;
    queue->free = NULL;
    tti_unlock(&queue->lock);
    if (queue->own_free == NULL) queue->own_free = add_place(comm);
    return queue->own_free != NULL;
}

static struct tti_started *renew(struct tti_started *started)
{
    started->queued = started->persistent = started->dropped = started->bare = false;
    started->then = NULL;
    started->group = NULL;
    atomic_store_explicit(&started->out, false, memory_order_relaxed);
    atomic_store_explicit(&started->used, true, memory_order_relaxed);
    atomic_store_explicit(&started->status, TUTTI_OK, memory_order_relaxed);
    return started;
}

struct tti_started *tti_started_new(tutti_comm *comm)
{
    if (!tti_started_reserve(comm)) return NULL;
    struct tti_started *started = comm->queue.own_free;
    comm->queue.own_free = started->next;
    return renew(started);
}

struct tti_started *tti_started_new_beside(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    tti_lock(&queue->lock);
    struct tti_started *started = queue->free;
    if (started != NULL) queue->free = started->next;
    tti_unlock(&queue->lock);
    if (started == NULL) started = add_place(comm);
    return started == NULL ? NULL : renew(started);
}

uint64_t tti_started_bare(tutti_comm *comm)
{
    struct tti_started *started = tti_started_new(comm);
    started->bare = true;
    return atomic_load_explicit(&started->id, memory_order_relaxed);
}

void tti_started_void(struct tti_started *started)
{
    uint64_t id = atomic_load_explicit(&started->id, memory_order_relaxed);
    atomic_store_explicit(&started->id, id + (UINT64_C(1) << TTI_HANDLE_PLACE_BITS), memory_order_release);
    atomic_store_explicit(&started->used, false, memory_order_relaxed);
}

static void forget_collective(struct tti_started *started)
{
    tti_free(started->row);
    tti_free(started->op.many);
    started->row = NULL;
    started->op.many = NULL;
}

/* Things that an op stood for and that are freed with it; NULL: none. */
struct stood_for {
    struct tti_group_op *group;
    struct tti_external *external;
};

/* Empties a place: its handle is void from now on. */
static struct stood_for empty(struct tti_started *started)
{
    struct stood_for stood_for = {tti_is_group(started) ? started->group : NULL, started->external};
    if (started->error != NULL) tti_free(started->error);
    started->error = NULL;
    if (started->pending != NULL)
        tti_pending_put_by(started);
    else if (!started->bare)
        forget_collective(started);
    if (started->callbacks != NULL) tti_callback_forget(started);
    if (started->turn != NULL) tti_turn_free(started);
    started->group = NULL;
    started->external = NULL;
    if (atomic_load_explicit(&started->used, memory_order_relaxed)) tti_started_void(started);
    return stood_for;
}

static void release(struct stood_for stood_for)
{
    if (stood_for.group != NULL) tti_group_release(stood_for.group);
    if (stood_for.external != NULL) stood_for.external->ops->release(stood_for.external);
}

void tti_started_free(struct tti_started *started)
{
    struct tti_queue *queue = &started->comm->queue;
    tti_lock(&queue->lock);
    assert(!started->queued); /* an op keeps its place until it has ended */
    struct stood_for stood_for = empty(started);
    started->next = queue->free;
    queue->free = started;
    tti_unlock(&queue->lock);
    release(stood_for);
}

static bool is_forgotten(const struct tti_started *started)
{
    bool used = atomic_load_explicit(&started->used, memory_order_relaxed);
    bool idle = started->persistent && !atomic_load_explicit(&started->out, memory_order_relaxed);
    bool part = started->group != NULL && !tti_is_group(started);
    return used && !part && !started->dropped && !idle && started != started->comm->queue.spare;
}

/* Returns where the op was started; NULL: it is not known. */
static const struct tti_site *site_of(struct tti_started *started)
{
    const struct tti_site *site = tti_started_site(started);
    return !started->bare && site->line > 0 ? site : NULL;
}

/* Warns of handles that nobody waited for or dropped. A missing wait otherwise shows only as wrong data: buffers were
 * read while they were filled. */
static void tell_forgotten(const tutti_comm *comm)
{
    struct tti_started *one = NULL;
    char site[112], such[160] = "";
    int count = 0;
    for (struct tti_started *started = comm->queue.all; started != NULL; started = started->sibling) {
        if (!is_forgotten(started)) continue;
        if (site_of(started) != NULL && (one == NULL || one->pending == NULL)) one = started;
        count++;
    }
    if (count == 0 || tti_comm_is_broken(comm)) return;
    if (one != NULL) {
        tti_site_describe(site_of(one), site, sizeof site);
        snprintf(such, sizeof such, ", such as %s%s", tti_kind_name(tti_started_kind(one)), site);
    }
    tti_log(TUTTI_WARN,
            "rank %d frees a comm and has not waited for %d of the ops it has started%s; what an op is to fill is "
            "there after tutti_wait, and tutti_drop is for ops that nobody waits for",
            comm->rank, count, such);
}

void tti_started_free_all(tutti_comm *comm)
{
    struct tti_started *started = comm->queue.all;
    tell_forgotten(comm);
    tti_lock(&tti_handles.lock);
    while (started != NULL) {
        struct tti_started *sibling = started->sibling;
        release(empty(started));
        tti_free(started->used_pending);
        started->used_pending = NULL;
        started->comm = started->op.comm = NULL;
        started->next = tti_handles.free;
        tti_handles.free = started;
        started = sibling;
    }
    tti_unlock(&tti_handles.lock);
    comm->queue.all = comm->queue.free = comm->queue.own_free = comm->queue.spare = NULL;
}

void tti_handles_forked(void)
{
    tti_unlock(&tti_handles.lock);
}
