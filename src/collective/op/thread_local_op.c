/* SPDX-License-Identifier: Apache-2.0
 *
 * The right to take a comm's ops forward, and the thread-local op.
 *
 * Most ops are small, alone on their comm, and waited for by the thread that started them, soon. Such an op stays in
 * the comm's own op, as a blocking call does, and its thread keeps the right from one op to the next: between its start
 * and its end nothing is locked, copied or exchanged with other threads. Everybody else takes the right from its keeper
 * when needed, and with it the op, which goes to the queue then: the service thread when the op was there at two of its
 * looks, other threads when they use its handle, the keeper itself for the next call or when the op takes long.
 *
 * Invariant of `busy`: who keeps the right says `inside` and then looks whether it is still kept; who asks says so and
 * then looks for `inside`. Asking is rare, so it fences for both (tti_fence_rare); one of the two sees the other. A
 * comm has one keeper for life, so `inside` has one writer.
 */
#include "collective/op/thread_local_op.h"
#include "base/sim.h"
#include <assert.h>
#include <pthread.h>

static uintptr_t self(void)
{
    return (uintptr_t)pthread_self();
}

static void direct_errors(tutti_comm *comm, bool to_queue)
{
    comm->errors.sink = to_queue ? &comm->queue.error : &comm->errors.call;
}

/* ---- The right ------------------------------------------------------------------------------------------------- */

/* Lets the keeper use its right. Returns false if it has lost it. */
static bool enter(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    if (atomic_load_explicit(&queue->busy, memory_order_acquire) != TTI_BUSY_KEPT ||
        atomic_load_explicit(&queue->keeper, memory_order_relaxed) != self())
        return false;
    atomic_store_explicit(&queue->inside, 1, memory_order_relaxed);
    tti_fence_frequent(atomic_load_explicit(&comm->area->full_fences, memory_order_relaxed) != 0);
    if (atomic_load_explicit(&queue->busy, memory_order_acquire) != TTI_BUSY_KEPT) {
        atomic_store_explicit(&queue->inside, 0, memory_order_release);
        return false;
    }
    direct_errors(comm, true);
    return true;
}

static void leave(tutti_comm *comm)
{
    assert(atomic_load_explicit(&comm->queue.inside, memory_order_relaxed) == 1); /* only the keeper writes it */
    direct_errors(comm, false);
    atomic_store_explicit(&comm->queue.inside, 0, memory_order_release);
}

/* Puts the thread-local op into the queue. */
static void put_down(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    struct tti_started *started = atomic_load_explicit(&queue->thread_local_op, memory_order_relaxed);
    assert(atomic_load_explicit(&queue->busy, memory_order_relaxed) == TTI_BUSY_TAKEN);
    if (started == NULL) return;
    started->op = comm->op;
    started->row = NULL;
    started->failed = TUTTI_OK;
    started->wait_state = (struct tti_wait_state){0};
    atomic_store_explicit(&started->cancelled, 0, memory_order_relaxed);
    if (comm->op.state != TTI_OP_ENDED) tti_queue_append(started);
    atomic_store_explicit(&started->thread_local_op, false, memory_order_release);
    atomic_store_explicit(&queue->thread_local_op, NULL, memory_order_release);
}

/* The keeper, while inside, stops keeping the right: it is busy like any other thread from now on. */
static void resign(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    uint32_t kept = TTI_BUSY_KEPT;
    while (!atomic_compare_exchange_weak_explicit(&queue->busy, &kept, TTI_BUSY_TAKEN, memory_order_acquire,
                                                  memory_order_relaxed)) {
        kept = TTI_BUSY_KEPT; /* a thread that asks right now sees it inside and leaves it the right */
        tti_relax();
    }
    atomic_store_explicit(&queue->inside, 0, memory_order_relaxed);
    put_down(comm);
}

static void release(tutti_comm *comm)
{
    assert(atomic_load_explicit(&comm->queue.busy, memory_order_relaxed) == TTI_BUSY_TAKEN);
    atomic_store_explicit(&comm->queue.busy, TTI_BUSY_NOBODY, memory_order_seq_cst);
    if (atomic_load_explicit(&comm->queue.waiters, memory_order_seq_cst) != 0)
        tti_bell_ring(&comm->queue.handover, false);
}

static bool has_ops(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->queue.count, memory_order_acquire) != 0;
}

/* Called by other threads: asks for the kept right. Returns false if the keeper is inside. */
static bool ask(tutti_comm *comm, bool for_ops)
{
    struct tti_queue *queue = &comm->queue;
    uint32_t kept = TTI_BUSY_KEPT;
    if (atomic_load_explicit(&queue->inside, memory_order_relaxed) != 0 ||
        !atomic_compare_exchange_strong_explicit(&queue->busy, &kept, TTI_BUSY_ASKED, memory_order_seq_cst,
                                                 memory_order_relaxed))
        return false;
    tti_fence_rare();
    bool stays = atomic_load_explicit(&queue->inside, memory_order_acquire) != 0 || (for_ops && !has_ops(comm));
    atomic_store_explicit(&queue->busy, stays ? TTI_BUSY_KEPT : TTI_BUSY_TAKEN, memory_order_release);
    if (stays) return false;
    direct_errors(comm, true);
    put_down(comm);
    return true;
}

/* Tries to take the right. `for_ops`: only if ops are in flight. That is checked once the right is taken: an op seen
 * before may have ended meanwhile, and its caller may be in a blocking call that needs no right. */
static bool try(tutti_comm *comm, bool for_ops)
{
    struct tti_queue *queue = &comm->queue;
    uint32_t nobody = atomic_load_explicit(&queue->busy, memory_order_relaxed);
    if (nobody == TTI_BUSY_KEPT) {
        if (!enter(comm)) return ask(comm, for_ops);
        resign(comm);
        return true;
    }
    if (nobody != TTI_BUSY_NOBODY ||
        !atomic_compare_exchange_strong_explicit(&queue->busy, &nobody, TTI_BUSY_TAKEN, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    if (for_ops && !has_ops(comm)) {
        release(comm);
        return false;
    }
    direct_errors(comm, true);
    return true;
}

bool tti_queue_try(tutti_comm *comm)
{
    return try(comm, false);
}

bool tti_queue_try_for_ops(tutti_comm *comm)
{
    return try(comm, true);
}

void tti_queue_take(tutti_comm *comm)
{
    enum { TURNS = 64 };
    int turns = 0;
    while (!tti_queue_try(comm)) {
        if (++turns == TURNS) { /* the busy thread waits for an op, and may sleep */
            atomic_fetch_add_explicit(&comm->queue.wanted, 1, memory_order_seq_cst);
            comm->peers->wake(comm);
        }
        tti_wait_turn();
    }
    if (turns >= TURNS) atomic_fetch_sub_explicit(&comm->queue.wanted, 1, memory_order_relaxed);
}

void tti_queue_give_back(tutti_comm *comm)
{
    direct_errors(comm, false);
    release(comm);
}

void tti_thread_local_op_put_down(tutti_comm *comm)
{
    tti_queue_take(comm);
    tti_queue_give_back(comm);
}

/* ---- The thread-local op -------------------------------------------------------------------------------------------- */

/* Returns true if its thread is likely to wait for it before anything else happens, and the thread may keep the
 * right. */
static bool suits(const struct tti_op *op)
{
    const tutti_comm *comm = op->comm;
    uintptr_t keeper = atomic_load_explicit(&comm->queue.keeper, memory_order_relaxed);
    bool first = atomic_load_explicit(&comm->queue.count, memory_order_acquire) == 0; /* no other thread is busy */
    return first && op->in_bytes + op->out_bytes <= TTI_STAGE_BYTES && op->many == NULL && op->shape.tables == NULL &&
           op->deadline_ms == 0 && comm->lanes == NULL && comm->trace == NULL && !comm->traits.crowded &&
           tti_sim == NULL && (keeper == 0 || keeper == self());
}

/* Takes the right in order to keep it. Returns true if the thread is inside then. */
static bool keep(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    if (!tti_queue_try(comm)) return false;
    uintptr_t keeper = atomic_load_explicit(&queue->keeper, memory_order_relaxed);
    assert(keeper == 0 || keeper == self()); /* a comm has one keeper for life */
    (void)keeper;
    atomic_store_explicit(&queue->keeper, self(), memory_order_relaxed);
    atomic_store_explicit(&queue->inside, 1, memory_order_relaxed);
    atomic_store_explicit(&queue->busy, TTI_BUSY_KEPT, memory_order_release);
    return true;
}

static struct tti_started *place_for(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    struct tti_started *started = queue->spare != NULL ? queue->spare : tti_started_new(comm);
    queue->spare = NULL;
    return started;
}

static void pick_up(tutti_comm *comm, struct tti_started *started, bool ended)
{
    struct tti_queue *queue = &comm->queue;
    assert(atomic_load_explicit(&queue->thread_local_op, memory_order_relaxed) == NULL);
    atomic_store_explicit(&started->used, true, memory_order_relaxed);
    atomic_store_explicit(&started->thread_local_op, true, memory_order_relaxed);
    atomic_store_explicit(&queue->thread_local_op, started, memory_order_relaxed);
    atomic_store_explicit(&queue->count, ended ? 0 : 1, memory_order_release);
    tti_queue_count_start(queue);
}

bool tti_thread_local_op_start(struct tti_op *op, tutti_op *handle)
{
    tutti_comm *comm = op->comm;
    if (!suits(op) || !(enter(comm) || keep(comm))) return false;
    struct tti_started *started = place_for(comm);
    if (started == NULL) {
        leave(comm);
        return false;
    }
    tti_op_begin(op, NULL);
    tutti_status status = tti_op_open(op);
    if (status == TUTTI_OK) op->state = TTI_OP_ENDED;
    pick_up(comm, started, status == TUTTI_OK);
    handle->id = atomic_load_explicit(&started->id, memory_order_relaxed);
    if (status >= 0) {
        leave(comm);
    } else {
        resign(comm);
        tti_queue_fail(started, status);
        tti_queue_give_back(comm);
    }
    tti_service_wake(comm, TTI_SOMETIME);
    return true;
}

/* Called when the op has ended: its handle is void, and its place is for the next one. */
static void end(tutti_comm *comm, struct tti_started *started)
{
    struct tti_queue *queue = &comm->queue;
    assert(atomic_load_explicit(&queue->thread_local_op, memory_order_relaxed) == started);
    comm->op.state = TTI_OP_ENDED;
    tti_started_void(started);
    atomic_store_explicit(&started->thread_local_op, false, memory_order_relaxed);
    atomic_store_explicit(&queue->thread_local_op, NULL, memory_order_relaxed);
    atomic_store_explicit(&queue->count, 0, memory_order_release);
    queue->spare = started;
}

tutti_status tti_thread_local_op_wait(struct tti_started *started)
{
    enum { PATIENCE = 8 };
    tutti_comm *comm = started->comm;
    if (!enter(comm)) return TUTTI_IN_PROGRESS;
    if (atomic_load_explicit(&comm->queue.thread_local_op, memory_order_relaxed) != started) {
        leave(comm);
        return TUTTI_IN_PROGRESS;
    }
    tutti_status status = comm->op.state == TTI_OP_ENDED ? TUTTI_OK : TUTTI_IN_PROGRESS;
    for (int i = 0; i < PATIENCE && status == TUTTI_IN_PROGRESS && !tti_comm_is_broken(comm); i++)
        status = tti_comm_poll(comm, tti_op_progress, &comm->op);
    if (status == TUTTI_OK) {
        end(comm, started);
        leave(comm);
        return TUTTI_OK;
    }
    resign(comm);
    if (status < 0) tti_queue_fail(started, status);
    tti_queue_give_back(comm);
    return TUTTI_IN_PROGRESS;
}
