/* SPDX-License-Identifier: Apache-2.0
 *
 * Epochs count a world's rebuilds. Whatever ranks register with each other carries the epoch that its comm was made in: frames,
 * the memory of comms and channels, posts, places of buffers. What is of another epoch is refused, with both numbers, and never
 * read; frames of an older one are dropped.
 *
 * A rank that goes on to the next epoch breaks all comms that it has: their ops end with ERR_EPOCH, and so does every call on
 * them and on their handles from then on. They can only be freed.
 */
#ifndef TTI_COLLECTIVE_EPOCH_H
#define TTI_COLLECTIVE_EPOCH_H

#include "collective/comm/comm.h"

/* A rank's own: all its comms share it. */
struct tti_rank_epoch {
    _Atomic uint32_t now;
    _Atomic uint32_t lock; /* of the list */
    int users;
    tutti_comm *first;
    struct tti_shown *shown; /* show.h */
};

/* A comm is made, from another one of its rank, or joins the world; `next`: for the epoch that its rank is about to go on to, which
 * is the next one, or that of a world that was rebuilt. False: no memory. */
bool tti_epoch_join(tutti_comm *comm, const tutti_comm *parent, bool next);
void tti_epoch_part(tutti_comm *comm);

/* Whether its rank has gone on since the comm was made. */
static inline bool tti_epoch_is_old(const tutti_comm *comm)
{
    const struct tti_era *era = &comm->traits.era;
    return era->rank != NULL && atomic_load_explicit(&era->rank->now, memory_order_acquire) != era->made;
}
/* Refuses a call on such a comm, or writes why. */
tutti_status tti_epoch_refuse_call(tutti_comm *comm, enum tti_kind kind);
void tti_epoch_describe(const tutti_comm *comm, enum tti_kind kind, tutti_error *error);

/* Breaks the comm: `what` of that rank is of another epoch. Returns ERR_EPOCH. */
tutti_status tti_epoch_refuse(tutti_comm *comm, enum tti_kind kind, int rank, const char *what, uint32_t theirs);
/* Whether a rank's buffer was told on a comm of another epoch. */
bool tti_place_is_old(const tutti_comm *comm, struct tti_place place);

/* This rank goes on to a later epoch: all its comms but those that were made for it are of an older one. */
void tti_epoch_raise(tutti_comm *comm, uint32_t epoch);
/* True if a comm of its epoch that the comm's rank has was broken by the loss of a rank. On the same host that is seen sooner than
 * over the connections that the world's comm looks at. */
bool tti_epoch_has_loss(tutti_comm *comm);
/* Before that: breaks all comms of its epoch that the comm's rank has, for their other ranks, too, so that none of these waits in one of
 * them for a rank that is about to rebuild the world. Tolerant ones stay. */
void tti_epoch_give_up(tutti_comm *comm);
/* All comms of the comm's rank that are worlds of a later epoch than the first: `leave` is called for each. */
void tti_epoch_each_world(tutti_comm *comm, void (*leave)(tutti_comm *world));

#endif
