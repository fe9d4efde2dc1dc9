/* SPDX-License-Identifier: Apache-2.0
 *
 * One operation from start to end: numbering, waiting, and the one way to finish.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/comm.h"
#include "collective/executor.h"
#include "collective/queue.h"
#include <string.h>

enum { KILL_MS = 1000 };

/* A peer that could still write to this rank's buffers. */
static bool may_touch(const struct tti_op *op, int peer)
{
    const tutti_comm *comm = op->comm;
    uint64_t entry = atomic_load_explicit(&tti_slot_of(comm, peer, comm->sequence)->entry, memory_order_acquire);
    if ((uint32_t)(entry >> 32) != (uint32_t)comm->sequence) return false;
    /* one that made another call never meets this one, and may have ended its own and be busy elsewhere */
    if ((((uint32_t)entry ^ comm->signature) & ~UINT32_C(1)) != 0) return false;
    if (atomic_load_explicit(&tti_info_of(comm, peer)->state, memory_order_acquire) != TTI_RANK_JOINED) return false;
    uint64_t progress = atomic_load_explicit(&comm->posts[peer].progress, memory_order_acquire);
    return (int64_t)(progress - (comm->sequence << 32 | TTI_LEFT)) < 0;
}

void tti_op_stop(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    atomic_store_explicit(&comm->posts[comm->rank].progress, comm->sequence << 32 | TTI_FAILED, memory_order_release);
    tti_comm_ring(comm, true);
    tti_fence_rare(); /* whoever entered by now is seen, whoever enters from now on sees the break */
}

/* Whether peers reach this rank's buffers while the op runs; `direct`: even those of other processes. */
static bool is_exposed(const struct tti_op *op, bool *direct)
{
    bool runs = op->state == TTI_OP_RUNNING;
    *direct = op->state == TTI_OP_MEETING || (runs && op->shape.path == TTI_DIRECT);
    return op->entered && (*direct || (runs && op->shape.path == TTI_ATTACH));
}

bool tti_op_is_fenced(struct tti_op *op, int64_t until_ns)
{
    tutti_comm *comm = op->comm;
    bool direct;
    if (!is_exposed(op, &direct)) return true;
    bool late = tti_now_ns() >= until_ns;
    int pid = tti_info_of(comm, comm->rank)->pid;
    if (!comm->all_threads) tti_world_check_alive(comm->world);
    for (int peer = 0; peer < comm->size; peer++) {
        if (peer == comm->rank || !may_touch(op, peer)) continue;
        if (!direct && tti_info_of(comm, peer)->pid != pid) continue; /* it only reads, and not by address */
        if (!late) return false;
        if (!tti_world_kill(comm->world, tti_member(comm, peer), KILL_MS))
            tti_comm_quarantine(comm, op->shape.kind, peer, op->in, op->out);
    }
    return true;
}

/* Cores come and go with binding: look again as operations pass, ever more rarely. */
static void count_cores(tutti_comm *comm)
{
    if ((comm->sequence & (comm->sequence - 1)) != 0 || comm->sequence > 65536) return;
    uint64_t mine[TTI_CORE_WORDS], all[TTI_CORE_WORDS];
    tti_cores_mine(mine);
    for (int i = 0; i < TTI_CORE_WORDS; i++) {
        if (mine[i] != 0) atomic_fetch_or_explicit(&comm->area->cores[i], mine[i], memory_order_relaxed);
        all[i] = atomic_load_explicit(&comm->area->cores[i], memory_order_relaxed);
    }
    comm->crowded = comm->size > tti_cores_count(all);
}

void tti_op_begin(struct tti_op *op, const uint64_t *row)
{
    tutti_comm *comm = op->comm;
    comm->sequence++;
    count_cores(comm);
    comm->signature = tti_call_signature(comm->signature, &op->call);
    size_t words = 4 * (size_t)comm->size;
    if (op->shape.tables != NULL) memcpy(comm->tables + (size_t)comm->rank * words, row, words * sizeof *row);
    op->state = TTI_OP_OPENING;
}

tutti_status tti_op_run(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    if (!comm->preparing) comm->called++;
    if (comm->starting != NULL || !tti_queue_is_idle(comm)) return tti_queue_run(op);
    tti_op_begin(op, comm->row);
    struct tti_waitable waitable = {.progress = tti_op_progress,
                                    .object = op,
                                    .waiting_for = &op->waiting_for,
                                    .awaited = &op->awaited,
                                    .site = &op->call.site,
                                    .kind = op->shape.kind,
                                    .deadline_ms = op->deadline_ms};
    tutti_status status = tti_comm_wait(comm, &waitable);
    if (status != TUTTI_OK) {
        tti_op_stop(op);
        int64_t until = tti_now_ns() + comm->world->options.fence_ms * 1000000;
        while (!tti_op_is_fenced(op, until)) tti_wait_turn();
    }
    op->state = TTI_OP_ENDED;
    return status;
}
