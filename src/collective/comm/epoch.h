/* SPDX-License-Identifier: Apache-2.0
 *
 * Epochs count a world's rebuilds. All that ranks register with each other carries the epoch of its comm: frames, the
 * memory of comms and channels, posts, places of buffers. If the epoch is another one it is refused, with both numbers,
 * and never read; frames of an older epoch are dropped.
 *
 * A rank that goes on to the next epoch breaks all comms that it has: their ops end with ERR_EPOCH, and so does every
 * call on them and on their handles from then on. They can only be freed.
 */
#ifndef TTI_COLLECTIVE_EPOCH_H
#define TTI_COLLECTIVE_EPOCH_H

#include "collective/comm/comm.h"

/* The epoch of a rank: all its comms share it. */
struct tti_rank_epoch {
    _Atomic uint32_t now;
    _Atomic uint32_t lock; /* lock of the list */
    int users;
    tutti_comm *first;
    struct tti_shown *shown; /* show.h */
};

/* Called when a comm is made from another one of its rank, or joins the world. `next`: it is of the epoch that its rank
 * is about to go on to, which is the next one, or that of a rebuilt world. Returns false if there is no memory. */
bool tti_epoch_join(tutti_comm *comm, const tutti_comm *parent, bool next);
void tti_epoch_part(tutti_comm *comm);

/* Returns true if the comm's rank has gone on to a later epoch since the comm was made. */
static inline bool tti_epoch_is_old(const tutti_comm *comm)
{
    const struct tti_era *era = &comm->traits.era;
    return era->rank != NULL && atomic_load_explicit(&era->rank->now, memory_order_acquire) != era->made;
}
/* Refuse a call on such a comm, or write the reason. */
tutti_status tti_epoch_refuse_call(tutti_comm *comm, enum tti_kind kind);
void tti_epoch_describe(const tutti_comm *comm, enum tti_kind kind, tutti_error *error);

/* Breaks the comm because `what` of that rank is of another epoch. Returns ERR_EPOCH. */
tutti_status tti_epoch_refuse(tutti_comm *comm, enum tti_kind kind, int rank, const char *what, uint32_t theirs);
/* Returns true if the place of a rank's buffer comes from a comm of another epoch. */
bool tti_place_is_old(const tutti_comm *comm, struct tti_place place);

/* Moves this rank on to a later epoch: all its comms are of an older one then, except those that were made for it. */
void tti_epoch_raise(tutti_comm *comm, uint32_t epoch);
/* Returns true if the loss of a rank has broken any comm of the same rank and epoch. On the same host that is seen
 * sooner than over the connections that the world's comm polls. */
bool tti_epoch_has_loss(tutti_comm *comm);
/* To be called before that: breaks all comms of the same rank and epoch, for their other ranks too, so that none of
 * these waits there for a rank that is about to rebuild the world. Tolerant comms stay. */
void tti_epoch_give_up(tutti_comm *comm);
/* Calls `leave` for each comm of the same rank that is a world of a later epoch than the first. */
void tti_epoch_each_world(tutti_comm *comm, void (*leave)(tutti_comm *world));

#endif
