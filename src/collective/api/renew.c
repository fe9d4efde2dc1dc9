/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a comm of an earlier epoch again. All ranks of the world tell each other which ranks their old comm had, as a
 * list that gives the place of each rank of the world in it. A rank that was started again has none: it finds itself in
 * the lists of the others.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/api/inside.h"
#include "collective/comm/trace.h"
#include <string.h>

/* What each rank tells the others: after the fields, the place of each rank of the world in its old comm; -1: none. */
struct told {
    int32_t has, tolerant;
    int32_t places[];
};

struct renewal {
    tutti_comm *world;
    const tutti_comm *old; /* NULL: this rank was started again */
    size_t bytes;          /* the size of what each rank tells */
    struct told *mine;
    char *all;       /* [size] what all ranks tell */
    int32_t *firsts; /* [size]: for each rank the first rank that has its old comm, itself included; -1: none has */
};

static const struct told *told_by(const struct renewal *renewal, int rank)
{
    return (const struct told *)(const void *)(renewal->all + (size_t)rank * renewal->bytes);
}

static void fill(const struct renewal *renewal)
{
    const tutti_comm *world = renewal->world, *old = renewal->old;
    for (int rank = 0; rank < world->size; rank++) renewal->mine->places[rank] = -1;
    if (old == NULL) return;
    renewal->mine->has = true;
    renewal->mine->tolerant = old->traits.tolerant;
    for (int place = 0; place < old->size; place++)
        for (int rank = 0; rank < world->size; rank++)
            if (tti_job_rank_of(world, rank) == tti_job_rank_of(old, place)) renewal->mine->places[rank] = place;
}

static int find_first(const struct renewal *renewal, int rank)
{
    for (int other = 0; other < renewal->world->size; other++)
        if (told_by(renewal, other)->has && told_by(renewal, other)->places[rank] >= 0) return other;
    return -1;
}

/* Returns the first rank that gave another comm than this rank did, for a rank that is in this rank's comm, itself
 * included; -1: none did. A rank that was started again may be the only one that two comms have in common. */
static int find_rival(const struct renewal *renewal, int rank)
{
    const struct told *told = told_by(renewal, rank);
    const int first = renewal->firsts[rank];
    if (memcmp(told, told_by(renewal, first), renewal->bytes) != 0) return first;
    for (int other = 0; other < renewal->world->size; other++)
        if (told->places[other] >= 0 && renewal->firsts[other] != first) return renewal->firsts[other];
    return -1;
}

/* Checks that ranks which were in one comm give that comm. Returns the first rank that is in conflict, and sets the
 * rank that gave another; all ranks find the same. -1: there is none. */
static int find_other(const struct renewal *renewal, int *rival)
{
    for (int rank = 0; rank < renewal->world->size; rank++) {
        if (!told_by(renewal, rank)->has) continue;
        *rival = find_rival(renewal, rank);
        if (*rival >= 0) return rank;
    }
    return -1;
}

static tutti_status make(struct renewal *renewal, tutti_comm **made)
{
    tutti_comm *world = renewal->world;
    for (int rank = 0; rank < world->size; rank++) renewal->firsts[rank] = find_first(renewal, rank);
    int rival, other = find_other(renewal, &rival);
    if (other >= 0) {
        tti_comm_refuse(world, TTI_COMM_RENEW, TUTTI_ERR_MISMATCH,
                        "comm_renew: ranks %d and %d give comms that had some ranks in common, but not all; those that "
                        "were in one must give it, and NULL who was started again",
                        rival, other);
        tti_comm_blame(world, other);
        return TUTTI_ERR_MISMATCH;
    }
    const int first = renewal->firsts[world->rank];
    struct tti_split_call call = {.kind = TTI_COMM_RENEW, .colour = first};
    if (first >= 0) {
        call.key = told_by(renewal, first)->places[world->rank];
        call.tolerant = told_by(renewal, first)->tolerant;
    }
    return tti_comm_make(world, &call, made);
}

static tutti_status exchange(struct renewal *renewal, tutti_comm **made)
{
    tutti_comm *world = renewal->world;
    struct tti_site site = world->caller.site;
    int64_t deadline_ms = world->caller.deadline_ms;
    fill(renewal);
    tutti_comm *named = tti_inside(world, "comm_renew", "ranks");
    TTI_TRY(tutti_all_gather(named, renewal->mine, renewal->all, renewal->bytes, TUTTI_U8));
    world->caller.site = site;
    world->caller.deadline_ms = deadline_ms;
    TTI_TRY(make(renewal, made));
    if (*made != NULL && renewal->old != NULL && renewal->old->trace != NULL)
        tti_trace_name(*made, renewal->old->trace->name);
    return TUTTI_OK;
}

/* Checks the old comm. It may be of another epoch, and broken: only its list of ranks is read. */
static tutti_status check_old(tutti_comm *old, tutti_comm *world)
{
    if (old == NULL) return TUTTI_OK;
    if (tti_comm_is_stillborn(old) || old->traits.has_left)
        return tti_comm_refuse(world, TTI_COMM_RENEW, TUTTI_ERR_ARGUMENT,
                               "comm_renew: the old comm was never joined, or was left before; give one that was not "
                               "freed yet");
    if (old->traits.of_epoch)
        return tti_comm_refuse(world, TTI_COMM_RENEW, TUTTI_ERR_ARGUMENT,
                               "comm_renew: the old comm is a world, in whose place there is the one that is given");
    return TUTTI_OK;
}

tutti_status tutti_comm_renew(tutti_comm *old, tutti_comm *world, tutti_comm **made)
{
    if (made != NULL) *made = NULL;
    TTI_TRY(tti_api_begin(world, TTI_COMM_RENEW));
    TTI_TRY(tti_group_without(world, TTI_COMM_RENEW));
    if (made == NULL)
        return tti_comm_refuse(world, TTI_COMM_RENEW, TUTTI_ERR_ARGUMENT,
                               "comm_renew: there is no place for the new comm (NULL)");
    TTI_TRY(check_old(old, world));
    size_t size = (size_t)world->size;
    struct renewal renewal = {.world = world, .old = old, .bytes = sizeof(struct told) + size * sizeof(int32_t)};
    renewal.mine = tti_calloc(1, renewal.bytes);
    renewal.all = tti_calloc(size, renewal.bytes);
    renewal.firsts = tti_calloc(size, sizeof *renewal.firsts);
    tutti_status status;
    if (renewal.mine != NULL && renewal.all != NULL && renewal.firsts != NULL) {
        status = exchange(&renewal, made);
    } else { /* otherwise the others would wait for this rank */
        status = tti_inside_break(world, TTI_COMM_RENEW, TUTTI_ERR_MEMORY, "a rank has no memory to renew a comm");
        tti_call_end(world);
    }
    tti_free(renewal.mine);
    tti_free(renewal.all);
    tti_free(renewal.firsts);
    return status;
}
