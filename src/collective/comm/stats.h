/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts what a comm does. Waits are counted only once they are so long that the waiting code has read the clock, so
 * short ones cost nothing.
 */
#ifndef TTI_COLLECTIVE_STATS_H
#define TTI_COLLECTIVE_STATS_H

#include "collective/comm/comm.h"

bool tti_stats_create(tutti_comm *comm); /* false: no memory */
void tti_stats_free(tutti_comm *comm);

/* To be called by the one thread that adds to this count. */
static inline void tti_stats_add(_Atomic uint64_t *count, uint64_t more)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + more, memory_order_relaxed);
}

/* Counts a call that runs an op, or starts it. */
static inline void tti_stats_count(tutti_comm *comm, const struct tti_op *op, bool starts)
{
    struct tti_counts *counts = &comm->counts;
    tti_stats_add(&counts->called, 1);
    tti_stats_add(&counts->bytes, op->in_bytes + op->out_bytes);
    if (starts) tti_stats_add(&counts->started, 1);
}

/* Counts part of a wait, for a rank or (-1) for any rank. */
void tti_stats_waited(tutti_comm *comm, int peer, int64_t ns);
/* Counts the end of a wait that was timed; `skew_ns` of it was for ranks that had not come yet. */
void tti_stats_wait_ended(tutti_comm *comm, int64_t skew_ns);

#endif
