/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements what ranks do after a loss: list the lost ranks, agree among the others, and break a comm on purpose.
 */
#define TUTTI_NO_CALL_SITES
#include "collective/api/heal.h"

#include "base/alloc.h"
#include "base/status.h"
#include "collective/api/inside.h"
#include "collective/comm/epoch.h"
#include "collective/op/callback.h"
#include "collective/op/thread_local_op.h"
#include <stdio.h>

static tutti_status check_usable(tutti_comm *comm, enum tti_kind kind)
{
    if (comm == NULL) return tti_api_no_comm(kind);
    if (tti_comm_is_stillborn(comm)) return comm->errors.call.status;
    if (comm->traits.fork_count != tti_fork_count())
        return tti_comm_refuse(comm, kind, TUTTI_ERR_FORKED,
                               "this comm belongs to the parent process; a child must join for itself");
    return TUTTI_OK;
}

tutti_status tti_heal_begin(tutti_comm *comm, enum tti_kind kind)
{
    TTI_TRY(check_usable(comm, kind));
    if (tti_is_in_callback()) return tti_callback_refuse(comm, kind);
    TTI_TRY(tti_group_without(comm, kind));
    if (tti_epoch_is_old(comm)) return tti_epoch_refuse_call(comm, kind);
    if (comm->traits.tolerant)
        return tti_comm_refuse(comm, kind, TUTTI_ERR_UNSUPPORTED,
                               "%s: this comm is tolerant, and does without ranks that are lost; call it on the comm "
                               "that this one was made from",
                               tti_kind_name(kind));
    tti_thread_local_op_clear(comm);
    comm->errors.call.status = TUTTI_OK;
    atomic_store_explicit(&comm->errors.shows_ended, false, memory_order_relaxed);
    return TUTTI_OK;
}

/* ---- Agreement ------------------------------------------------------------------------------------------------- */

bool tti_healing_open(struct tti_healing *healing, tutti_comm *comm, enum tti_kind kind)
{
    size_t size = (size_t)comm->size;
    int64_t said = comm->caller.deadline_ms;
    *healing = (struct tti_healing){.comm = comm, .kind = kind};
    healing->deadline_ms = said > 0 ? said : comm->world->options.deadline_ms;
    healing->values = tti_calloc(size, sizeof *healing->values);
    healing->present = tti_calloc(size, sizeof *healing->present);
    return healing->values != NULL && healing->present != NULL;
}

void tti_healing_close(struct tti_healing *healing)
{
    tti_free(healing->values);
    tti_free(healing->present);
}

static tutti_status fail(const struct tti_healing *healing, tutti_status status, const struct tti_agreement *agreement)
{
    tutti_comm *comm = healing->comm;
    const char *name = tti_kind_name(healing->kind);
    char doing[192] = "";
    if (status == TUTTI_ERR_MEMORY) return status;
    if (agreement->peer >= 0) comm->peers->describe(comm, agreement->peer, doing, sizeof doing);
    if (status == TUTTI_ERR_EXCLUDED)
        tti_comm_refuse(comm, healing->kind, status,
                        "%s: rank %d was not heard in time by the others, or those that hear each other are less than "
                        "half of the %d ranks; others may go on without it: end this process",
                        name, comm->rank, comm->size);
    else if (agreement->differs)
        tti_comm_refuse(comm, healing->kind, status,
                        "%s: rank %d called something else than the others while they agreed; all ranks must call the "
                        "same, and nobody agrees on this comm any more: end the job",
                        name, agreement->peer);
    else
        tti_comm_refuse(comm, healing->kind, status,
                        "%s: rank %d did not come within the deadline; %s; nobody agrees on this comm any more: end "
                        "the job",
                        name, agreement->peer, doing);
    tti_comm_blame(comm, agreement->peer);
    return status;
}

tutti_status tti_healing_agree(struct tti_healing *healing, uint64_t mine, uint64_t *all)
{
    tutti_comm *comm = healing->comm;
    struct tti_agreement agreement = {.kind = healing->kind,
                                      .mine = mine,
                                      .deadline_ms = healing->deadline_ms,
                                      .kills = healing->kills,
                                      .values = healing->values,
                                      .present = healing->present,
                                      .peer = -1};
    tutti_status status = comm->peers->decisions->agree(comm, &agreement);
    if (status != TUTTI_OK) return fail(healing, status, &agreement);
    *all = UINT64_MAX;
    for (int rank = 0; rank < comm->size; rank++)
        if (healing->present[rank]) *all &= healing->values[rank];
    return TUTTI_OK;
}

tutti_status tutti_comm_agree(tutti_comm *comm, uint64_t mine, uint64_t *all)
{
    struct tti_healing healing;
    uint64_t result = 0;
    TTI_TRY(tti_heal_begin(comm, TTI_COMM_AGREE));
    if (all == NULL)
        return tti_comm_refuse(comm, TTI_COMM_AGREE, TUTTI_ERR_ARGUMENT,
                               "comm_agree: there is no place for the outcome (NULL)");
    bool opened = tti_healing_open(&healing, comm, TTI_COMM_AGREE);
    tutti_status status = opened ? tti_healing_agree(&healing, mine, &result)
                                 : tti_comm_refuse(comm, TTI_COMM_AGREE, TUTTI_ERR_MEMORY,
                                                   "comm_agree: no memory for the values of %d ranks", comm->size);
    if (status == TUTTI_OK) *all = result;
    tti_healing_close(&healing);
    tti_call_forget(comm);
    return status;
}

/* ---- Who is lost ----------------------------------------------------------------------------------------------- */

tutti_status tutti_comm_lost(tutti_comm *comm, int *ranks, int room, int *count)
{
    int found = 0;
    TTI_TRY(check_usable(comm, TTI_COMM_LOST));
    if (count == NULL || room < 0 || (room > 0 && ranks == NULL))
        return tti_comm_refuse(comm, TTI_COMM_LOST, TUTTI_ERR_ARGUMENT, "comm_lost: there is no place for %s",
                               count == NULL ? "the count (NULL)" : "the ranks");
    for (int rank = 0; rank < comm->size; rank++) {
        if (!comm->peers->decisions->was_lost(comm, rank)) continue;
        if (found < room) ranks[found] = rank;
        found++;
    }
    *count = found;
    return TUTTI_OK;
}

/* ---- On purpose ------------------------------------------------------------------------------------------------ */

tutti_status tutti_comm_revoke(tutti_comm *comm)
{
    char site[112] = "", text[256];
    TTI_TRY(check_usable(comm, TTI_COMM_REVOKE));
    if (tti_epoch_is_old(comm)) return tti_epoch_refuse_call(comm, TTI_COMM_REVOKE);
    if (tti_comm_is_broken(comm)) { /* it is broken already */
        tti_call_forget(comm);
        return TUTTI_OK;
    }
    if (comm->caller.site.line > 0) tti_site_describe(&comm->caller.site, site, sizeof site);
    snprintf(text, sizeof text, "rank %d has revoked the comm%s; nothing can be done on it any more", comm->rank, site);
    tutti_status status = tti_inside_break(comm, TTI_COMM_REVOKE, TUTTI_ERR_CANCELLED, text);
    comm->errors.call.status = TUTTI_OK; /* that the comm is broken now is no failure of this call */
    return status == TUTTI_ERR_CANCELLED || tti_comm_is_broken(comm) ? TUTTI_OK : status;
}
