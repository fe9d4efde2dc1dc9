/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank shows of itself on the launcher's board (world/rows.h): the call it was last seen in, whom it waits for, and what
 * it has done on all its comms. Long waits are shown always, calls while somebody watches.
 */
#ifndef TTI_COLLECTIVE_SHOW_H
#define TTI_COLLECTIVE_SHOW_H

#include "collective/comm/comm.h"

struct tti_shown;

/* The first comm of a rank joins; NULL: there is nobody to show anything to. Shared by all its comms. */
struct tti_shown *tti_shown_open(const tutti_comm *comm);
void tti_shown_close(struct tti_shown *shown); /* NULL is ignored */
/* Where a comm finds out whether somebody watches. */
const _Atomic uint32_t *tti_shown_watched(const struct tti_shown *shown);
/* A comm is freed, under the lock of its rank's list: what it has done stays counted. */
void tti_shown_keep(struct tti_shown *shown, const tutti_comm *comm);

void tti_show_op(const struct tti_op *op);
/* A wait since that moment, as the others know it, and the rank that it is for in the end, or -1; called every few milliseconds. */
void tti_show_wait(const tutti_comm *comm, const struct tti_wait_record *now, int64_t since_ns, int blamed);
void tti_show_wait_ended(const tutti_comm *comm);
void tti_show_device(const tutti_comm *comm, const char *name);

static inline bool tti_is_watched(const tutti_comm *comm)
{
    return atomic_load_explicit(comm->counts.watched, memory_order_relaxed) != 0;
}

#endif
