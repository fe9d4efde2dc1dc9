/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes comms of some of a comm's ranks. Making one is collective over the comm it comes from, in three exchanges:
 * which ranks form which comm; where each new comm's shared memory lies, which its first rank allocates, or on several
 * hosts the first of each; whether all ranks could make their side of it. So either all ranks of a new comm have it, or
 * all get the same error.
 *
 * Invariant: the memory of a comm belongs to the arena of the rank that allocated it. It is given back when all its
 * ranks have freed their side, by its owner, at the next comm that is made or freed; until then it is retired memory.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/api/inside.h"
#include "collective/comm/trace.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include "world/cluster.h"
#include <stdio.h>

#define MS INT64_C(1000000)

/* What each rank sends first. */
struct wish {
    int32_t colour, key;
    uint64_t id;     /* the number it proposes for a comm over the transport */
    uint64_t digest; /* a digest of what all ranks give alike */
};
enum { SAID = 256 };

/* What each rank sends then: whether it can go on, and where the memory lies if it allocated some. */
struct offer {
    int32_t status, process;
    uint64_t offset;
    uint64_t refuses; /* this rank cannot use the new comm's number */
};

struct split {
    tutti_comm *parent;
    enum tti_kind kind;
    bool tolerant;
    char said[SAID];      /* the call, in words */
    char given[32];       /* the name that the caller has given it; "": none */
    char name[64];        /* the name of the exchanges */
    int32_t line;         /* the line of the call */
    int64_t until_ns;     /* its deadline; 0: the comm's */
    struct wish *wishes;  /* those of all ranks of the parent */
    struct offer *offers; /* those of all ranks of the parent */
    int *group;           /* the parent's numbers of the new comm's ranks, in the new order */
    int size, rank;       /* size 0: this rank is in no new comm */
    bool local;           /* the new comm's ranks all share memory */
    int *host_of;         /* their hosts if only the ranks of each host share memory; else NULL */
    int first, users; /* for those that share memory with this rank: the rank whose offer counts, and their number */
    struct offer mine;
    struct tti_area *made; /* the area, if this rank made it, or NULL */
    struct tti_area *area; /* the one that all of them use, once it is known */
    size_t area_bytes;
    struct tti_making making; /* over the transport: the new comm's number */
    tutti_error error;
};

/* ---- Who goes where -------------------------------------------------------------------------------------------- */

/* Returns the parent for the next exchange, with the name, line and deadline of the user's call. */
static tutti_comm *parent_of(const struct split *split)
{
    tutti_comm *parent = tti_inside(split->parent, split->name, split->given);
    parent->caller.site.line = split->line;
    if (split->until_ns != 0) tutti_within(parent, (split->until_ns - tti_now_ns() + MS - 1) / MS);
    return parent;
}

static tutti_status exchange(const struct split *split, const void *mine, void *all, size_t bytes)
{
    return tutti_all_gather(parent_of(split), mine, all, bytes, TUTTI_U8);
}

/* Returns the first rank that gave something else than rank 0, or 0. All ranks find the same. */
static int find_other(const struct split *split)
{
    for (int rank = 1; rank < split->parent->size; rank++)
        if (split->wishes[rank].digest != split->wishes[0].digest) return rank;
    return 0;
}

/* Tells all ranks what two of them gave. The comm stays whole: everybody has the same error. */
static tutti_status disagree(struct split *split, int other)
{
    tutti_comm *comm = split->parent;
    char first[SAID], second[SAID];
    TTI_TRY(tutti_broadcast(parent_of(split), split->said, first, SAID, TUTTI_U8, 0));
    TTI_TRY(tutti_broadcast(parent_of(split), split->said, second, SAID, TUTTI_U8, other));
    tti_comm_refuse(comm, split->kind, TUTTI_ERR_MISMATCH,
                    "rank 0 calls %.*s, rank %d calls %.*s; all ranks of the comm must give the same here", SAID - 1,
                    first, other, SAID - 1, second);
    tti_comm_blame(comm, other);
    return TUTTI_ERR_MISMATCH;
}

static bool comes_before(const struct split *split, int one, int other)
{
    int a = split->wishes[one].key, b = split->wishes[other].key;
    return a != b ? a < b : one < other;
}

/* Finds the ranks of this rank's group. They are sorted by insertion, since they are mostly in order already. */
static void find_group(struct split *split)
{
    const tutti_comm *parent = split->parent;
    int colour = split->wishes[parent->rank].colour;
    for (int rank = 0; rank < parent->size && colour >= 0; rank++) {
        if (split->wishes[rank].colour != colour) continue;
        int at = split->size++;
        for (; at > 0 && comes_before(split, rank, split->group[at - 1]); at--) split->group[at] = split->group[at - 1];
        split->group[at] = rank;
    }
    for (int i = 0; i < split->size; i++)
        if (split->group[i] == parent->rank) split->rank = i;
}

static const struct tti_cluster *cluster_of(const tutti_comm *comm)
{
    return comm->lanes == NULL ? NULL : comm->lanes->net->cluster;
}

/* Returns true if the group's ranks are in one world of memory. */
static bool shares_memory(const struct split *split)
{
    const tutti_comm *parent = split->parent;
    const struct tti_cluster *cluster = cluster_of(parent);
    if (parent->lanes == NULL) return true;
    if (cluster == NULL) return split->size == 1;
    int host = cluster->ranks[tti_member(parent, split->group[0])].host;
    for (int i = 1; i < split->size; i++)
        if (cluster->ranks[tti_member(parent, split->group[i])].host != host) return false;
    return true;
}

/* Returns the world's number of a rank, or its number in its host's world if memory is shared. */
static int number_of(const struct split *split, int rank)
{
    const struct tti_cluster *cluster = cluster_of(split->parent);
    int member = tti_member(split->parent, rank);
    if (split->parent->lanes == NULL || !split->local) return member;
    return cluster == NULL ? 0 : cluster->ranks[member].local;
}

static int host_at(const struct split *split, int index)
{
    return cluster_of(split->parent)->ranks[tti_member(split->parent, split->group[index])].host;
}

/* Finds the ranks that share memory with this one in the new comm. Returns OK, or no memory to find out. */
static tutti_status find_sharers(struct split *split)
{
    const struct tti_cluster *cluster = cluster_of(split->parent);
    split->local = shares_memory(split);
    split->first = split->group[0];
    split->users = split->size;
    if (split->local || cluster == NULL || !cluster->shares) return TUTTI_OK;
    split->host_of = tti_calloc((size_t)split->size, sizeof *split->host_of);
    if (split->host_of == NULL) return TUTTI_ERR_MEMORY;
    int own = host_at(split, split->rank);
    split->users = 0;
    for (int i = split->size; i-- > 0;) {
        split->host_of[i] = host_at(split, i);
        if (split->host_of[i] != own) continue;
        split->first = split->group[i];
        split->users++;
    }
    return TUTTI_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static bool needs_bounce(const struct split *split)
{
    const struct tti_world *world = split->parent->world;
    if (world->options.direct == 0) return true;
    for (int i = 1; i < split->size; i++)
        if (world->segment->ranks[number_of(split, split->group[i])].process !=
            world->segment->ranks[number_of(split, split->group[0])].process)
            return true;
    return false;
}

static void make_area(struct split *split)
{
    struct tti_world *world = split->parent->world;
    tti_retired_clear(world);
    struct tti_area *area = tti_arena_alloc(world->arena, split->area_bytes, &split->error);
    if (area == NULL) {
        split->mine.status = split->error.status;
        return;
    }
    atomic_store_explicit(&area->retired.users, (uint32_t)split->users, memory_order_relaxed);
    area->epoch = split->parent->traits.era.made;
    split->mine.process = world->process;
    split->mine.offset = (uint64_t)((char *)area - world->arena->mapping.base);
    split->made = area;
}

static void find_area(struct split *split)
{
    const struct offer *first = &split->offers[split->first];
    if (split->area_bytes > 0)
        split->area = tti_world_translate(split->parent->world, first->process, first->offset, split->area_bytes);
}

/* Frees the area. No rank has made a comm in it, since all have heard of the failure. */
static void drop_area(struct split *split)
{
    tutti_error ignored = {0};
    if (split->made != NULL) tti_arena_free(split->parent->world->arena, split->made, &ignored);
    split->made = NULL;
}

/* Leaves the area for this rank, which has no comm whose end would do that. */
static void leave_area(struct split *split)
{
    if (split->area != NULL) tti_retired_leave(split->parent->world, &split->area->retired, split->made != NULL);
}

/* ---- Making it ------------------------------------------------------------------------------------------------- */

static int *list_members(const struct split *split)
{
    int *members = tti_calloc((size_t)split->size, sizeof *members);
    for (int i = 0; members != NULL && i < split->size; i++) members[i] = number_of(split, split->group[i]);
    return members;
}

static int count_here(const struct split *split)
{
    const struct tti_cluster *cluster = cluster_of(split->parent);
    if (split->local || cluster == NULL) return split->size;
    int own = cluster->ranks[tti_member(split->parent, split->parent->rank)].machine, count = 0;
    for (int i = 0; i < split->size; i++)
        count += cluster->ranks[tti_member(split->parent, split->group[i])].machine == own;
    return count;
}

static uint32_t choose_id(const struct split *split)
{
    uint32_t id = 0;
    for (int i = 0; i < split->size; i++)
        if (split->wishes[split->group[i]].id > id) id = (uint32_t)split->wishes[split->group[i]].id;
    return id;
}

/* Returns true if the ranks on this rank's host are threads of this process. */
static bool is_one_process(const struct split *split)
{
    const struct tti_cluster *cluster = cluster_of(split->parent);
    for (int i = 0; i < split->size; i++)
        if (split->host_of[i] == split->host_of[split->rank] &&
            cluster->ranks[tti_member(split->parent, split->group[i])].process != cluster->process)
            return false;
    return true;
}

/* Lists the job's ranks of the new comm if its members are numbered as in the world of their host, and those of the
 * parent were not. */
static bool list_job_ranks(const struct split *split, int **ranks)
{
    const tutti_comm *parent = split->parent;
    *ranks = NULL;
    if (!split->local || (parent->lanes == NULL && parent->job_ranks == NULL)) return true;
    *ranks = tti_calloc((size_t)split->size, sizeof **ranks);
    for (int i = 0; *ranks != NULL && i < split->size; i++) (*ranks)[i] = tti_job_rank_of(parent, split->group[i]);
    return *ranks != NULL;
}

/* Refuses memory that was made for a comm of another epoch. */
static tutti_status check_epoch(struct split *split)
{
    uint32_t ours = split->parent->traits.era.made;
    if (split->area == NULL || split->area->epoch == ours) return TUTTI_OK;
    return tti_error_set(&split->error, TUTTI_ERR_EPOCH, 0,
                         "the memory of rank %d is of epoch %u, and this comm of epoch %u", split->first,
                         split->area->epoch, ours);
}

static tutti_status create(struct split *split, tutti_comm **comm)
{
    tutti_comm *parent = split->parent;
    int *job_ranks;
    find_area(split);
    struct tti_here_setup shared = {.host_of = split->host_of, .area = split->area, .given = true};
    if (split->host_of != NULL) shared.one_process = is_one_process(split);
    struct tti_comm_setup setup = {.parent = parent,
                                   .world = parent->world,
                                   .rank = split->rank,
                                   .size = split->size,
                                   .here = count_here(split),
                                   .members = list_members(split),
                                   .area = split->area,
                                   .area_bytes = split->area_bytes,
                                   .shared = split->host_of == NULL ? NULL : &shared};
    tutti_status status = check_epoch(split);
    if (status == TUTTI_OK) status = TUTTI_ERR_MEMORY;
    if (list_job_ranks(split, &job_ranks) && setup.members != NULL && status != TUTTI_ERR_EPOCH) {
        atomic_fetch_add_explicit(&parent->world->references, 1, memory_order_relaxed);
        if (split->local) {
            status = tti_comm_create(&setup, comm, &split->error);
        } else {
            setup.net = parent->lanes->net;
            setup.id = split->making.id;
            status = tti_comm_create_over(&setup, comm, &split->error);
        }
        if (status != TUTTI_OK) atomic_fetch_sub_explicit(&parent->world->references, 1, memory_order_relaxed);
    }
    if (status != TUTTI_OK) {
        tti_free(setup.members);
        tti_free(job_ranks);
        return status;
    }
    (*comm)->job_ranks = job_ranks;
    (*comm)->tuning = parent->tuning;
    (*comm)->traits.tolerant = (*comm)->traits.restricted = split->tolerant;
    if ((*comm)->memory != NULL) (*comm)->memory->owned = split->made != NULL;
    return TUTTI_OK;
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

static bool allocate(struct split *split)
{
    size_t n = (size_t)split->parent->size;
    split->wishes = tti_calloc(n, sizeof *split->wishes);
    split->offers = tti_calloc(n, sizeof *split->offers);
    split->group = tti_calloc(n, sizeof *split->group);
    return split->wishes != NULL && split->offers != NULL && split->group != NULL;
}

/* Returns the first rank of the group that cannot go on, or -1. */
static int find_trouble(const struct split *split)
{
    for (int i = 0; i < split->size; i++)
        if (split->offers[split->group[i]].status != TUTTI_OK) return split->group[i];
    return -1;
}

static tutti_status report(struct split *split, int rank)
{
    tutti_status status = (tutti_status)split->offers[rank].status;
    bool own = rank == split->parent->rank && split->error.text[0] != '\0';
    return tti_comm_refuse(split->parent, split->kind, status,
                           "%s: rank %d cannot make its side of a comm of %d ranks: %s", tti_kind_name(split->kind),
                           rank, split->size, own ? split->error.text : tutti_status_text(status));
}

static bool anybody_refuses(const struct split *split)
{
    for (int rank = 0; rank < split->parent->size; rank++)
        if (split->offers[rank].refuses != 0) return true;
    return false;
}

static void take_id(struct split *split, uint32_t proposed)
{
    if (split->size == 0 || split->local) return;
    split->making.id = choose_id(split);
    split->mine.refuses = !tti_net_take_id(split->parent->lanes->net, proposed, &split->making);
}

/* Exchanges offers and, in rare cases, wishes with other proposals. */
static tutti_status exchange_offers(struct split *split, struct wish *wish)
{
    struct tti_net *net = split->parent->lanes == NULL ? NULL : split->parent->lanes->net;
    for (;;) {
        take_id(split, (uint32_t)wish->id);
        TTI_TRY(exchange(split, &split->mine, split->offers, sizeof split->mine));
        if (!anybody_refuses(split)) return TUTTI_OK;
        tti_net_made(net, &split->making);
        wish->id = tti_net_propose(net);
        TTI_TRY(exchange(split, wish, split->wishes, sizeof *wish));
    }
}

/* Makes the comm. If the exchange of offers fails, which breaks the parent, the area stays with the arena: others may
 * be using it. */
static tutti_status make(struct split *split, struct wish wish, tutti_comm **comm)
{
    tutti_comm *made = NULL;
    TTI_TRY(exchange(split, &wish, split->wishes, sizeof wish));
    int other = find_other(split);
    if (other > 0) return disagree(split, other);
    find_group(split);
    if (split->size > 0) split->mine.status = find_sharers(split);
    if (split->size > 0 && split->local) split->area_bytes = tti_posts_bytes_small(split->size, needs_bounce(split));
    if (split->size > 0 && split->host_of != NULL) split->area_bytes = tti_posts_bytes_here(split->users);
    if (split->area_bytes > 0 && split->first == split->parent->rank) make_area(split);
    TTI_TRY(exchange_offers(split, &wish));
    int trouble = find_trouble(split);
    if (trouble >= 0)
        drop_area(split);
    else if (split->size > 0)
        split->mine.status = create(split, &made);
    tutti_status status = exchange(split, &split->mine, split->offers, sizeof split->mine);
    if (status == TUTTI_OK && trouble < 0) trouble = find_trouble(split);
    if (status == TUTTI_OK && trouble < 0) {
        *comm = made;
        return TUTTI_OK;
    }
    if (made == NULL) leave_area(split);
    tti_comm_destroy(made);
    return status != TUTTI_OK ? status : report(split, trouble);
}

static void describe(struct split *split, const struct tti_split_call *call)
{
    const tutti_comm *parent = split->parent;
    char site[112];
    tti_site_describe(&parent->caller.site, site, sizeof site);
    size_t used = (size_t)snprintf(split->said, sizeof split->said, "%s%s%s", tti_kind_name(call->kind),
                                   call->said[0] == '\0' ? "" : " ", call->said);
    snprintf(split->given, sizeof split->given, "%s", parent->caller.site.name);
    snprintf(split->name, sizeof split->name, "%.63s",
             split->given[0] != '\0' ? tti_kind_name(call->kind) : split->said);
    if (used < sizeof split->said) snprintf(split->said + used, sizeof split->said - used, "%s", site);
    split->line = parent->caller.site.line;
    if (parent->caller.deadline_ms != 0) split->until_ns = tti_now_ns() + parent->caller.deadline_ms * MS;
}

/* Breaks the comm: without lists this rank cannot take part in the exchanges, and the others would wait for it. */
static void cannot_begin(struct split *split)
{
    tutti_comm *comm = split->parent;
    tti_comm_break(comm, split->kind, TUTTI_ERR_MEMORY, comm->rank, "rank %d has no memory to begin a %s", comm->rank,
                   tti_kind_name(split->kind));
    tti_call_end(comm);
}

tutti_status tti_comm_make(tutti_comm *comm, const struct tti_split_call *call, tutti_comm **made)
{
    enum tti_kind kind = call->kind;
    struct split split = {.parent = comm, .kind = kind, .tolerant = call->tolerant};
    struct wish wish = {.colour = call->colour, .key = call->key, .digest = tti_mix(call->digest, (uint64_t)kind)};
    describe(&split, call);
    if (comm->lanes != NULL) wish.id = tti_net_propose(comm->lanes->net);
    tutti_status status = TUTTI_ERR_MEMORY;
    if (allocate(&split))
        status = make(&split, wish, made);
    else
        cannot_begin(&split);
    if (status == TUTTI_OK && *made != NULL) tti_trace_name(*made, split.given);
    if (comm->lanes != NULL) tti_net_made(comm->lanes->net, &split.making);
    tti_free(split.wishes);
    tti_free(split.offers);
    tti_free(split.group);
    tti_free(split.host_of);
    return status;
}

static tutti_status begin(tutti_comm *comm, enum tti_kind kind, tutti_comm **made)
{
    if (made != NULL) *made = NULL;
    TTI_TRY(tti_api_begin(comm, kind));
    TTI_TRY(tti_group_without(comm, kind));
    if (made != NULL) return TUTTI_OK;
    return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT, "%s: there is no place for the new comm (NULL)",
                           tti_kind_name(kind));
}

tutti_status tutti_comm_split(tutti_comm *comm, int colour, int key, tutti_comm **made)
{
    TTI_TRY(begin(comm, TTI_COMM_SPLIT, made));
    return tti_comm_make(comm, &(struct tti_split_call){.kind = TTI_COMM_SPLIT, .colour = colour, .key = key}, made);
}

tutti_status tutti_comm_duplicate(tutti_comm *comm, tutti_comm **made)
{
    TTI_TRY(begin(comm, TTI_COMM_DUPLICATE, made));
    return tti_comm_make(comm, &(struct tti_split_call){.kind = TTI_COMM_DUPLICATE}, made);
}

tutti_status tutti_comm_tolerant(tutti_comm *comm, tutti_comm **made)
{
    TTI_TRY(begin(comm, TTI_COMM_TOLERANT, made));
    return tti_comm_make(comm, &(struct tti_split_call){.kind = TTI_COMM_TOLERANT, .tolerant = true}, made);
}

static tutti_status check_list(tutti_comm *comm, const int *ranks, int count, int *position)
{
    if (ranks == NULL)
        return tti_comm_refuse(comm, TTI_COMM_SELECT, TUTTI_ERR_ARGUMENT, "comm_select: `ranks` is NULL");
    if (count < 1 || count > comm->size)
        return tti_comm_refuse(comm, TTI_COMM_SELECT, TUTTI_ERR_ARGUMENT,
                               "comm_select: a list of %d ranks; it has at least one and at most the %d of this comm",
                               count, comm->size);
    for (int i = 0; i < count; i++) {
        TTI_TRY(tti_api_check_rank(comm, TTI_COMM_SELECT, "rank", ranks[i]));
        if (ranks[i] == comm->rank) *position = i;
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return tti_comm_refuse(comm, TTI_COMM_SELECT, TUTTI_ERR_ARGUMENT,
                                       "comm_select: rank %d is in the list twice", ranks[i]);
    }
    return TUTTI_OK;
}

static void say_list(struct tti_split_call *call, const int *ranks, int count)
{
    enum { SHOWN = 8 };
    char rest[32] = "";
    size_t used = 0;
    call->digest = (uint64_t)count;
    for (int i = 0; i < count; i++) {
        call->digest = tti_mix(call->digest, (uint64_t)ranks[i]);
        if (i < SHOWN)
            used += (size_t)snprintf(call->said + used, sizeof call->said - used, "%s%d", i == 0 ? "{" : ", ",
                                     ranks[i]);
    }
    if (count > SHOWN) snprintf(rest, sizeof rest, " and %d more", count - SHOWN);
    snprintf(call->said + used, sizeof call->said - used, "%s}", rest);
}

tutti_status tutti_comm_select(tutti_comm *comm, const int *ranks, int count, tutti_comm **made)
{
    int position = -1;
    TTI_TRY(begin(comm, TTI_COMM_SELECT, made));
    TTI_TRY(check_list(comm, ranks, count, &position));
    struct tti_split_call call = {.kind = TTI_COMM_SELECT, .colour = position < 0 ? -1 : 0, .key = position};
    say_list(&call, ranks, count);
    return tti_comm_make(comm, &call, made);
}

int tti_host_of(const tutti_comm *comm)
{
    const struct tti_cluster *cluster = cluster_of(comm);
    return cluster == NULL ? 0 : cluster->ranks[tti_member(comm, comm->rank)].first;
}

tutti_status tutti_comm_by_host(tutti_comm *comm, tutti_comm **made)
{
    TTI_TRY(begin(comm, TTI_COMM_BY_HOST, made));
    return tti_comm_make(comm, &(struct tti_split_call){.kind = TTI_COMM_BY_HOST, .colour = tti_host_of(comm)}, made);
}

tutti_status tutti_comm_free(tutti_comm *comm)
{
    return tutti_leave(comm);
}
