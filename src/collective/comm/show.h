/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's row on the launcher's board (world/rows.h): the call that it was last seen in, the rank that it waits for,
 * and what it has done on all its comms. Long waits are always shown, calls only while somebody watches.
 */
#ifndef TTI_COLLECTIVE_SHOW_H
#define TTI_COLLECTIVE_SHOW_H

#include "collective/comm/comm.h"

struct tti_shown;

/* Called for the first comm of a rank, and shared by all its comms. NULL: nobody keeps a board. */
struct tti_shown *tti_shown_open(const tutti_comm *comm);
void tti_shown_close(struct tti_shown *shown); /* NULL is ignored */
/* Returns the word that tells a comm if somebody watches: not 0. */
const _Atomic uint32_t *tti_shown_watched(const struct tti_shown *shown);
/* Called when a comm is freed, under the lock of its rank's list: its sums stay counted. */
void tti_shown_keep(struct tti_shown *shown, const tutti_comm *comm);

void tti_show_op(const struct tti_op *op);
/* Shows a wait since `since_ns`, as the others know it, and the rank that it is for in the end, or -1; called every few
 * milliseconds. */
void tti_show_wait(const tutti_comm *comm, const struct tti_wait_record *now, int64_t since_ns, int blamed);
void tti_show_wait_ended(const tutti_comm *comm);
void tti_show_device(const tutti_comm *comm, const char *name);

static inline bool tti_is_watched(const tutti_comm *comm)
{
    return atomic_load_explicit(comm->counts.watched, memory_order_relaxed) != 0;
}

#endif
