/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/comm/epoch.h"

#include "base/alloc.h"
#include "base/status.h"
#include "collective/comm/show.h"
#include <string.h>

bool tti_epoch_join(tutti_comm *comm, const tutti_comm *parent, bool next)
{
    struct tti_era *era = &comm->traits.era;
    struct tti_rank_epoch *rank = parent != NULL ? parent->traits.era.rank : tti_calloc(1, sizeof *rank);
    if (rank == NULL) return false;
    if (parent == NULL) {
        atomic_store_explicit(&rank->now, comm->world->segment->epoch, memory_order_relaxed);
        rank->shown = tti_shown_open(comm);
    }
    comm->counts.watched = tti_shown_watched(rank->shown);
    tti_lock(&rank->lock);
    bool joins = parent == NULL || parent->world != comm->world;
    era->made = joins ? comm->world->segment->epoch : parent->traits.era.made + next;
    era->rank = rank;
    era->next = rank->first;
    rank->first = comm;
    rank->users++;
    tti_unlock(&rank->lock);
    comm->signature = era->made; /* so calls of ranks in different epochs differ from the first one on */
    return true;
}

void tti_epoch_part(tutti_comm *comm)
{
    struct tti_rank_epoch *rank = comm->traits.era.rank;
    if (rank == NULL) return;
    tti_lock(&rank->lock);
    tutti_comm **link = &rank->first;
    while (*link != NULL && *link != comm) link = &(*link)->traits.era.next;
    if (*link != NULL) *link = comm->traits.era.next;
    tti_shown_keep(rank->shown, comm);
    bool last = --rank->users == 0;
    tti_unlock(&rank->lock);
    comm->traits.era.rank = NULL;
    if (!last) return;
    tti_shown_close(rank->shown);
    tti_free(rank);
}

static const char advice[] = "what was made before the world was rebuilt has to be made again";

void tti_epoch_describe(const tutti_comm *comm, enum tti_kind kind, tutti_error *error)
{
    const struct tti_era *era = &comm->traits.era;
    tti_comm_describe(comm, error, kind, TUTTI_ERR_EPOCH,
                      "%s: this comm is of epoch %u, and rank %d is in epoch %u; %s", tti_kind_name(kind), era->made,
                      comm->rank, atomic_load_explicit(&era->rank->now, memory_order_acquire), advice);
}

tutti_status tti_epoch_refuse_call(tutti_comm *comm, enum tti_kind kind)
{
    tutti_error error;
    tti_epoch_describe(comm, kind, &error);
    return tti_comm_refuse(comm, kind, TUTTI_ERR_EPOCH, "%s", error.text);
}

tutti_status tti_epoch_refuse(tutti_comm *comm, enum tti_kind kind, int rank, const char *what, uint32_t theirs)
{
    return tti_comm_break(comm, kind, TUTTI_ERR_EPOCH, rank,
                          "%s of rank %d is of epoch %u, and this comm of epoch %u; %s", what, rank, theirs,
                          comm->traits.era.made, advice);
}

/* A copy of the list would not do, since its comms may be freed meanwhile. */
void tti_epoch_raise(tutti_comm *comm, uint32_t epoch)
{
    struct tti_rank_epoch *rank = comm->traits.era.rank;
    tti_lock(&rank->lock);
    uint32_t now = epoch;
    atomic_store_explicit(&rank->now, now, memory_order_release);
    for (tutti_comm *each = rank->first; each != NULL; each = each->traits.era.next) {
        if (each->traits.era.made == now) continue;
        each->peers->notify(each, TTI_NEWS_EPOCH);
        tti_comm_break_apart(each, TTI_LEAVE, TUTTI_ERR_EPOCH, each->rank,
                             "rank %d has gone on to epoch %u, and this comm is of epoch %u; %s", each->rank, now,
                             each->traits.era.made, advice);
    }
    tti_unlock(&rank->lock);
}

/* Returns true if the failure is the loss of a rank, or if another rank gives the epoch up because of one. */
static bool tells_of_loss(tutti_comm *comm)
{
    tutti_error failure;
    if (!tti_comm_failure(comm, &failure)) return false;
    return failure.status == TUTTI_ERR_PEER_LOST || strcmp(failure.operation, tti_kind_name(TTI_COMM_REBUILD)) == 0;
}

bool tti_epoch_has_loss(tutti_comm *comm)
{
    struct tti_rank_epoch *rank = comm->traits.era.rank;
    bool lost = false;
    tti_lock(&rank->lock);
    for (tutti_comm *each = rank->first; each != NULL && !lost; each = each->traits.era.next)
        lost = each->traits.era.made == comm->traits.era.made && tells_of_loss(each);
    tti_unlock(&rank->lock);
    return lost;
}

void tti_epoch_give_up(tutti_comm *comm)
{
    struct tti_rank_epoch *rank = comm->traits.era.rank;
    tti_lock(&rank->lock);
    for (tutti_comm *each = rank->first; each != NULL; each = each->traits.era.next) {
        if (each == comm || each->traits.era.made != comm->traits.era.made || each->traits.tolerant) continue;
        tti_comm_break_apart(each, TTI_COMM_REBUILD, TUTTI_ERR_CANCELLED, each->rank,
                             "rank %d has given this comm up to rebuild the world, which has lost a rank", each->rank);
    }
    tti_unlock(&rank->lock);
}

void tti_epoch_each_world(tutti_comm *comm, void (*leave)(tutti_comm *world))
{
    struct tti_rank_epoch *rank = comm->traits.era.rank;
    if (rank == NULL) return;
    tti_lock(&rank->lock);
    for (tutti_comm *each = rank->first; each != NULL; each = each->traits.era.next)
        if (each != comm && each->traits.rebuilt) leave(each);
    tti_unlock(&rank->lock);
}
