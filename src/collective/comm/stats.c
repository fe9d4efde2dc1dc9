/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts operations, by the caller, and waits, by the thread that waits.
 */
#include "collective/comm/stats.h"

#include "base/alloc.h"
#include "collective/comm/carrier.h"

/* A large comm has a table in place of an array, since most of its ranks never wait for each other. */
bool tti_stats_create(tutti_comm *comm)
{
    struct tti_counts *counts = &comm->counts;
    counts->waited_for_of = TTI_TABLE(comm->size);
    if (comm->size > TTI_TABLE_DIRECT) return true;
    counts->waited_for = tti_calloc((size_t)comm->size, sizeof *counts->waited_for);
    return counts->waited_for != NULL;
}

void tti_stats_free(tutti_comm *comm)
{
    tti_free(comm->counts.waited_for);
    tti_table_free(&comm->counts.waited_for_of);
}

/* If there is no memory, a time is counted in the total alone. */
static void count_for(struct tti_counts *counts, int peer, int64_t ns)
{
    tti_lock(&counts->waits_lock);
    intptr_t before = (intptr_t)tti_table_get(&counts->waited_for_of, peer);
    tti_table_set(&counts->waited_for_of, peer, (void *)(before + (intptr_t)ns));
    tti_unlock(&counts->waits_lock);
}

void tti_stats_waited(tutti_comm *comm, int peer, int64_t ns)
{
    atomic_fetch_add_explicit(&comm->counts.waited_ns, ns, memory_order_relaxed);
    if (peer < 0) return;
    if (comm->counts.waited_for != NULL)
        atomic_fetch_add_explicit(&comm->counts.waited_for[peer], ns, memory_order_relaxed);
    else
        count_for(&comm->counts, peer, ns);
}

void tti_stats_wait_ended(tutti_comm *comm, int64_t skew_ns)
{
    struct tti_counts *counts = &comm->counts;
    int64_t most = atomic_load_explicit(&counts->skew_most_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts->waits, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts->skew_ns, skew_ns, memory_order_relaxed);
    while (skew_ns > most && !atomic_compare_exchange_weak_explicit(&counts->skew_most_ns, &most, skew_ns,
                                                                    memory_order_relaxed, memory_order_relaxed))
        continue;
}

/* ---- Calls on streams ---------------------------------------------------------------------------------------------- */

const char *const tti_carrier_names[TTI_CARRIERS] = {
    [TTI_ON_HOST] = "host", [TTI_ON_STAGING] = "staged", [TTI_ON_CUDA] = "cuda", [TTI_ON_NCCL] = "nccl"};
