/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a comm of the ranks that are left, of the next epoch, in three agreements on the comm that has lost some: who
 * is left; where the new comm's memory lies, which the first of them allocates, or over a transport what its number is;
 * whether all have made their side of it. If another rank is lost before the second one, the first that is left
 * allocates again; a later loss is a loss of the new comm.
 *
 * The world's memory stays as it is, so that each rank's buffers stay its own. The area is new, so that no lost rank
 * writes to it: a lost process has ended, and a lost thread does nothing any more.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/api/heal.h"
#include "collective/comm/epoch.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include "world/cluster.h"
#include <assert.h>

/* What each rank says in the first agreement, as bits. */
enum { SEES_WHOLE = 1, CAN_GO_ON = 2 };

struct shrink {
    tutti_comm *parent;
    struct tti_healing healing;
    int *group; /* (parent's size) the parent's numbers of the ranks that are left */
    int size;   /* how many ranks are left */
    int rank;   /* this rank's number among them */
    size_t area_bytes;
    struct tti_area *made;    /* the area, if this rank made it, or NULL */
    struct tti_area *area;    /* the area that all use */
    struct tti_making making; /* over a transport, in place of memory: the new comm's number there */
    bool takes;               /* this rank can use that number */
    tutti_error error;
};

/* ---- Who is left --------------------------------------------------------------------------------------------------- */

/* Finds the ranks that took part in the last agreement. Returns true if they are others than before. */
static bool find_group(struct shrink *shrink)
{
    int before = shrink->size;
    shrink->size = 0;
    for (int rank = 0; rank < shrink->parent->size; rank++) {
        if (!shrink->healing.present[rank]) continue;
        if (rank == shrink->parent->rank) shrink->rank = shrink->size;
        shrink->group[shrink->size++] = rank;
    }
    return shrink->size != before; /* no rank comes back, so the count tells */
}

/* ---- Memory -------------------------------------------------------------------------------------------------------- */

static int process_of(const struct shrink *shrink, int index)
{
    return tti_info_of(shrink->parent, shrink->group[index])->process;
}

static size_t area_bytes(const struct shrink *shrink)
{
    bool bounce = shrink->parent->world->options.direct == 0;
    for (int i = 1; i < shrink->size; i++) bounce |= process_of(shrink, i) != process_of(shrink, 0);
    return tti_posts_bytes_small(shrink->size, bounce);
}

/* Returns where the new area lies in this process's arena, from 1 on; 0: there is no memory. */
static uint64_t make_area(struct shrink *shrink)
{
    struct tti_world *world = shrink->parent->world;
    tti_retired_clear(world);
    shrink->made = tti_arena_alloc(world->arena, shrink->area_bytes, &shrink->error);
    if (shrink->made == NULL) return 0;
    atomic_store_explicit(&shrink->made->retired.users, (uint32_t)shrink->size, memory_order_relaxed);
    shrink->made->epoch = shrink->parent->traits.era.made + 1;
    return (uint64_t)((char *)shrink->made - world->arena->mapping.base) + 1;
}

static void drop_area(struct shrink *shrink)
{
    tutti_error ignored = {0};
    if (shrink->made != NULL) tti_arena_free(shrink->parent->world->arena, shrink->made, &ignored);
    shrink->made = NULL;
}

/* Tells all ranks where the memory lies, or that there is none: then the error is that of the first rank. */
static tutti_status share_area(struct shrink *shrink)
{
    uint64_t all, place;
    do {
        drop_area(shrink);
        shrink->area_bytes = area_bytes(shrink);
        place = shrink->rank == 0 ? make_area(shrink) : 1;
        TTI_TRY(tti_healing_agree(&shrink->healing, place, &all));
    } while (find_group(shrink));
    assert(shrink->healing.present[shrink->group[0]]); /* the rank that allocated it took part */
    place = shrink->healing.values[shrink->group[0]];
    if (place == 0) {
        tti_comm_refuse(shrink->parent, TTI_COMM_SHRINK, TUTTI_ERR_MEMORY,
                        "comm_shrink: rank %d has no memory for a comm of %d ranks: %s", shrink->group[0], shrink->size,
                        shrink->rank == 0 ? shrink->error.text : "see its error");
        return TUTTI_ERR_MEMORY;
    }
    shrink->area = tti_world_translate(shrink->parent->world, process_of(shrink, 0), place - 1, shrink->area_bytes);
    return TUTTI_OK;
}

/* Over a transport the ranks need no common memory, but a number for the new comm that none of them has used. */
static tutti_status share_number(struct shrink *shrink)
{
    struct tti_net *net = shrink->parent->lanes->net;
    uint64_t all;
    uint32_t proposed;
    do {
        proposed = tti_net_propose(net);
        TTI_TRY(tti_healing_agree(&shrink->healing, proposed, &all));
    } while (find_group(shrink));
    for (int i = 0; i < shrink->size; i++) {
        uint64_t other = shrink->healing.values[shrink->group[i]];
        if (other > shrink->making.id) shrink->making.id = (uint32_t)other;
    }
    shrink->takes = tti_net_take_id(net, proposed, &shrink->making);
    return TUTTI_OK;
}

/* ---- Making it ----------------------------------------------------------------------------------------------------- */

static int count_here(const struct shrink *shrink)
{
    const tutti_comm *parent = shrink->parent;
    const struct tti_cluster *cluster = parent->lanes == NULL ? NULL : parent->lanes->net->cluster;
    int count = 0;
    if (cluster == NULL) return shrink->size;
    int own = cluster->ranks[tti_member(parent, parent->rank)].machine;
    for (int i = 0; i < shrink->size; i++) count += cluster->ranks[tti_member(parent, shrink->group[i])].machine == own;
    return count;
}

static tutti_status create_with(struct shrink *shrink, struct tti_comm_setup *setup, tutti_comm **made)
{
    tutti_comm *parent = shrink->parent;
    bool can = parent->lanes == NULL ? shrink->area != NULL : shrink->takes;
    if (setup->members == NULL || !can)
        return tti_error_set(&shrink->error, TUTTI_ERR_MEMORY, 0, "no memory for a comm of %d ranks", shrink->size);
    for (int i = 0; i < shrink->size; i++) setup->members[i] = tti_member(parent, shrink->group[i]);
    atomic_fetch_add_explicit(&parent->world->references, 1, memory_order_relaxed);
    tutti_status status = parent->lanes == NULL ? tti_comm_create(setup, made, &shrink->error)
                                                : tti_comm_create_over(setup, made, &shrink->error);
    if (status != TUTTI_OK) atomic_fetch_sub_explicit(&parent->world->references, 1, memory_order_relaxed);
    return status;
}

static tutti_status create(struct shrink *shrink, tutti_comm **made)
{
    tutti_comm *parent = shrink->parent;
    struct tti_comm_setup setup = {.parent = parent,
                                   .world = parent->world,
                                   .rank = shrink->rank,
                                   .size = shrink->size,
                                   .here = count_here(shrink),
                                   .members = tti_calloc((size_t)shrink->size, sizeof *setup.members),
                                   .area = shrink->area,
                                   .area_bytes = shrink->area_bytes,
                                   .net = parent->lanes == NULL ? NULL : parent->lanes->net,
                                   .id = shrink->making.id,
                                   .next_epoch = true};
    tutti_status status = create_with(shrink, &setup, made);
    if (status != TUTTI_OK) {
        tti_free(setup.members);
        return status;
    }
    (*made)->tuning = parent->tuning;
    if ((*made)->memory != NULL) (*made)->memory->owned = shrink->made != NULL;
    return TUTTI_OK;
}

/* Reports that a rank could not make its side of it. */
static tutti_status report(struct shrink *shrink)
{
    int rank = shrink->parent->rank, first = -1;
    for (int i = shrink->size; i-- > 0;)
        if (shrink->healing.values[shrink->group[i]] == 0) first = shrink->group[i];
    tti_comm_refuse(shrink->parent, TTI_COMM_SHRINK, TUTTI_ERR_MEMORY,
                    "comm_shrink: rank %d cannot make its side of a comm of %d ranks: %s", first, shrink->size,
                    first == rank ? shrink->error.text : tutti_status_text(TUTTI_ERR_MEMORY));
    tti_comm_blame(shrink->parent, first);
    return TUTTI_ERR_MEMORY;
}

static tutti_status make_all(struct shrink *shrink, tutti_comm **result)
{
    tutti_comm *made = NULL;
    uint64_t all = 0;
    tutti_status own = create(shrink, &made);
    tutti_status status = tti_healing_agree(&shrink->healing, own == TUTTI_OK, &all);
    if (status == TUTTI_OK && all != 0) {
        tti_epoch_raise(shrink->parent, made->traits.era.made);
        *result = made;
        return TUTTI_OK;
    }
    if (made == NULL && shrink->area != NULL)
        tti_retired_leave(shrink->parent->world, &shrink->area->retired, shrink->made != NULL);
    tti_comm_destroy(made);
    return status != TUTTI_OK ? status : report(shrink);
}

static tutti_status make(struct shrink *shrink, tutti_comm **made)
{
    tutti_comm *parent = shrink->parent;
    uint64_t all;
    uint64_t mine = (tti_comm_is_broken(parent) ? 0 : SEES_WHOLE) | (shrink->group == NULL ? 0 : CAN_GO_ON);
    TTI_TRY(tti_healing_agree(&shrink->healing, mine, &all));
    if ((all & CAN_GO_ON) == 0)
        return tti_comm_refuse(parent, TTI_COMM_SHRINK, TUTTI_ERR_MEMORY, "comm_shrink: %s has no memory to begin",
                               shrink->group == NULL ? "this rank" : "a rank");
    find_group(shrink);
    if ((all & SEES_WHOLE) != 0 && shrink->size == parent->size)
        return tti_comm_refuse(parent, TTI_COMM_SHRINK, TUTTI_ERR_ARGUMENT,
                               "comm_shrink: this comm is whole, and all its %d ranks are there: nothing changes; to "
                               "give it up nevertheless, call tutti_comm_revoke first",
                               parent->size);
    TTI_TRY(parent->lanes == NULL ? share_area(shrink) : share_number(shrink));
    return make_all(shrink, made);
}

static tutti_status check(tutti_comm *comm, tutti_comm **made)
{
    if (made == NULL)
        return tti_comm_refuse(comm, TTI_COMM_SHRINK, TUTTI_ERR_ARGUMENT,
                               "comm_shrink: there is no place for the new comm (NULL)");
    if (comm->traits.of_epoch) return TUTTI_OK;
    return tti_comm_refuse(comm, TTI_COMM_SHRINK, TUTTI_ERR_ARGUMENT,
                           "comm_shrink: this comm was made from another one; shrink the world, and make it again from "
                           "what that gives");
}

tutti_status tutti_comm_shrink(tutti_comm *comm, tutti_comm **made)
{
    if (made != NULL) *made = NULL;
    TTI_TRY(tti_heal_begin(comm, TTI_COMM_SHRINK));
    TTI_TRY(check(comm, made));
    struct shrink shrink = {.parent = comm};
    tutti_status status = TUTTI_ERR_MEMORY;
    if (tti_healing_open(&shrink.healing, comm, TTI_COMM_SHRINK)) {
        shrink.healing.kills = true;
        shrink.group = tti_calloc((size_t)comm->size, sizeof *shrink.group);
        status = make(&shrink, made);
        if (status != TUTTI_OK && shrink.area == NULL) drop_area(&shrink);
    } else {
        tti_comm_refuse(comm, TTI_COMM_SHRINK, status, "comm_shrink: no memory for the values of %d ranks", comm->size);
    }
    if (shrink.takes) tti_net_made(comm->lanes->net, &shrink.making);
    tti_healing_close(&shrink.healing);
    tti_free(shrink.group);
    tti_call_forget(comm);
    return status;
}
