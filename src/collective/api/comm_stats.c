/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports what a comm has done and holds, for tutti_comm_stats and tutti_comm_waits.
 */
#define TUTTI_NO_CALL_SITES
#include "base/sized.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/comm/stats.h"
#include "collective/comm/trace.h"
#include "collective/engine/engine.h"
#include "collective/message/message_parts.h"
#include "collective/op/many.h"
#include "collective/op/pending.h"
#include "collective/op/queue.h"
#include "collective/op/turn.h"
#include "collective/peers/net.h"
#include <string.h>
#include <tutti/device.h>

/* Returns the bytes that the comm holds. Needs the right to take ops forward, since much of it is built by the thread
 * that does. */
static uint64_t held_by(tutti_comm *comm)
{
    size_t n = (size_t)comm->size;
    uint64_t bytes = sizeof *comm;
    if (comm->counts.waited_for != NULL) bytes += n * sizeof *comm->counts.waited_for;
    bytes += tti_engine_bytes(comm);
    if (comm->engine->pack != NULL) bytes += TTI_PACK_BYTES;
    if (comm->trace != NULL)
        bytes += sizeof *comm->trace + 2 * comm->trace->operations.room * sizeof(struct tti_trace_event);
    const struct tti_lanes *lanes = comm->lanes;
    if (lanes != NULL)
        bytes += sizeof *lanes + lanes->work.temp_bytes + lanes->work.post_room * sizeof *lanes->work.posts +
                 lanes->work.packet_room * sizeof *lanes->work.packets;
    tti_lock(&comm->queue.lock);
    for (const struct tti_started *op = comm->queue.all; op != NULL; op = op->sibling) bytes += sizeof *op;
    tti_unlock(&comm->queue.lock);
    return bytes;
}

/* Reads figures that are changed by threads that take ops forward or move messages. */
static void look_inside(tutti_comm *comm, tutti_stats *stats)
{
    tti_queue_hold(comm);
    stats->memory_bytes = held_by(comm);
    tti_messages_lock(comm);
    const struct tti_messages *messages = comm->messages;
    stats->sent = messages->sent.count;
    stats->sent_bytes = messages->sent.bytes;
    stats->received = messages->received.count;
    stats->received_bytes = messages->received.bytes;
    tti_messages_unlock(comm);
    tti_queue_let_go(comm, TUTTI_OK);
}

static tutti_status check(tutti_comm *comm)
{
    if (comm == NULL) return tti_api_no_comm(TTI_STATS);
    if (tti_comm_is_stillborn(comm)) return comm->errors.call.status;
    return comm->traits.fork_count == tti_fork_count() ? TUTTI_OK : TUTTI_ERR_FORKED;
}

static tutti_status refuse(tutti_comm *comm, const char *why)
{
    return tti_comm_refuse(comm, TTI_STATS, TUTTI_ERR_ARGUMENT, "statistics: %s", why);
}

static void count_streams(const struct tti_streams *streams, tutti_stats *stats)
{
    if (streams == NULL) return;
    stats->on_host = atomic_load_explicit(&streams->carried[TTI_ON_HOST], memory_order_relaxed);
    stats->on_staging = atomic_load_explicit(&streams->carried[TTI_ON_STAGING], memory_order_relaxed);
    stats->on_cuda = atomic_load_explicit(&streams->carried[TTI_ON_CUDA], memory_order_relaxed);
    stats->on_nccl = atomic_load_explicit(&streams->carried[TTI_ON_NCCL], memory_order_relaxed);
    stats->unordered = atomic_load_explicit(&streams->unordered, memory_order_relaxed);
}

const char *tutti_comm_provider(const tutti_comm *comm, const char **why)
{
    const struct tti_streams *streams = comm == NULL ? NULL : comm->queue.streams;
    if (why != NULL) *why = streams == NULL ? "the comm has made no call on a stream yet" : streams->why;
    if (streams == NULL) return NULL;
    if (streams->provider != NULL) return tti_carrier_names[streams->provider->carrier];
    return tti_carrier_names[streams->stager != NULL ? TTI_ON_STAGING : TTI_ON_HOST];
}

tutti_status tutti_comm_stats(tutti_comm *comm, tutti_stats *stats)
{
    TTI_TRY(check(comm));
    if (stats == NULL) return refuse(comm, "`stats` is NULL");
    if (stats->struct_size < offsetof(tutti_stats, operations))
        return refuse(comm, "set struct_size to sizeof(tutti_stats) before the call");
    const struct tti_counts *counts = &comm->counts;
    tutti_stats now = {.operations = atomic_load_explicit(&counts->called, memory_order_relaxed),
                       .started = atomic_load_explicit(&counts->started, memory_order_relaxed),
                       .bytes = atomic_load_explicit(&counts->bytes, memory_order_relaxed),
                       .waits = atomic_load_explicit(&counts->waits, memory_order_relaxed),
                       .waited_ns = atomic_load_explicit(&counts->waited_ns, memory_order_relaxed),
                       .skew_max_ns = atomic_load_explicit(&counts->skew_most_ns, memory_order_relaxed),
                       .shared_bytes = comm->memory == NULL ? 0 : comm->memory->bytes};
    look_inside(comm, &now);
    count_streams(comm->queue.streams, &now);
    if (now.operations > 0)
        now.skew_mean_ns = atomic_load_explicit(&counts->skew_ns, memory_order_relaxed) / (int64_t)now.operations;
    tti_sized_give(stats, &now, sizeof now);
    return TUTTI_OK;
}

tutti_status tutti_comm_waits(tutti_comm *comm, int64_t *waited_ns)
{
    TTI_TRY(check(comm));
    if (waited_ns == NULL) return refuse(comm, "`waited_ns` is NULL");
    struct tti_counts *counts = &comm->counts;
    for (int rank = 0; rank < comm->size && counts->waited_for != NULL; rank++)
        waited_ns[rank] = atomic_load_explicit(&counts->waited_for[rank], memory_order_relaxed);
    if (counts->waited_for != NULL) return TUTTI_OK;
    tti_lock(&counts->waits_lock);
    for (int rank = 0; rank < comm->size; rank++)
        waited_ns[rank] = (int64_t)(intptr_t)tti_table_get(&counts->waited_for_of, rank);
    tti_unlock(&counts->waits_lock);
    return TUTTI_OK;
}
