/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/plan/plan_hosts.h"

#include "base/alloc.h"
#include "collective/plan/plan_message.h"

/* ---- Hosts ----------------------------------------------------------------------------------------------------- */

static tutti_status count_trees(struct tti_hosts *hosts)
{
    struct tti_subtree *list = tti_calloc((size_t)hosts->size, sizeof *list);
    int *of_host = tti_calloc((size_t)hosts->count, sizeof *of_host);
    bool memory = list != NULL && of_host != NULL;
    hosts->trees = memory ? tti_subtrees_by_owner(hosts->host_of, hosts->size, list) : 0;
    for (int i = 0; i < hosts->trees; i++)
        if (++of_host[list[i].owner] > hosts->trees_most) hosts->trees_most = of_host[list[i].owner];
    tti_free(of_host);
    tti_free(list);
    if (memory) return TUTTI_OK;
    tti_hosts_free(hosts);
    return TUTTI_ERR_MEMORY;
}

tutti_status tti_hosts_make(struct tti_hosts *hosts, const int *host_of, int size)
{
    size_t n = (size_t)size;
    *hosts = (struct tti_hosts){.size = size};
    hosts->host_of = tti_calloc(n * 4 + 1, sizeof *hosts->host_of);
    if (hosts->host_of == NULL) return TUTTI_ERR_MEMORY;
    hosts->place_of = hosts->host_of + n;
    hosts->ranks = hosts->place_of + n;
    hosts->first = hosts->ranks + n;
    for (int rank = 0; rank < size; rank++) hosts->host_of[rank] = -1;
    int used = 0;
    for (int lowest = 0; lowest < size; lowest++) {
        if (hosts->host_of[lowest] >= 0) continue;
        int host = hosts->count++;
        hosts->first[host] = used;
        for (int rank = lowest; rank < size; rank++) {
            if (host_of[rank] != host_of[lowest]) continue;
            hosts->host_of[rank] = host;
            hosts->place_of[rank] = used - hosts->first[host];
            hosts->ranks[used++] = rank;
        }
        int ranks = used - hosts->first[host];
        if (host == 0 || ranks < hosts->slices) hosts->slices = ranks;
    }
    hosts->first[hosts->count] = used;
    hosts->side_by_side = true;
    for (int i = 0; i < size; i++) hosts->side_by_side = hosts->side_by_side && hosts->ranks[i] == i;
    return count_trees(hosts);
}

void tti_hosts_free(struct tti_hosts *hosts)
{
    tti_free(hosts->host_of);
    *hosts = (struct tti_hosts){0};
}

bool tti_hosts_cover(enum tti_kind kind)
{
    switch (kind) {
    case TTI_BARRIER:
    case TTI_ALL_REDUCE:
    case TTI_REDUCE:
    case TTI_REDUCE_SCATTER:
    case TTI_REDUCE_SCATTER_V:
    case TTI_BROADCAST:
    case TTI_ALL_GATHER: return true;
    default: return false;
    }
}

/* ---- One rank's work ------------------------------------------------------------------------------------------- */

struct work {
    struct tti_plan *plan;
    const struct tti_hosts *hosts;
    const struct tti_shape *shape;
    struct tti_part_of_all window;
    int host, place; /* of this rank */
    int slices;
    struct tti_message_build build; /* its members: the leaders of this rank's slice */
    int *leaders;                   /* their ranks */
    struct tti_subtree *trees;      /* the subtrees of this host */
    int tree_count;
};

static struct tti_region own(const struct work *work, enum tti_space space, uint64_t offset)
{
    return tti_at(work->shape->rank, space, offset);
}

static bool leads(const struct work *work)
{
    return work->place < work->slices;
}

static int slice_count(const struct tti_hosts *hosts, const struct tti_shape *shape, uint64_t bytes)
{
    uint64_t least = (uint64_t)shape->tuning->message_chunk / 8;
    if (shape->kind == TTI_BARRIER) return 1;
    if (shape->kind == TTI_ALL_GATHER) return hosts->slices;
    uint64_t slices = least == 0 ? (uint64_t)hosts->slices : bytes / least;
    if (slices < 1) return 1;
    return slices < (uint64_t)hosts->slices ? (int)slices : hosts->slices;
}

static struct tti_block slice_of(const struct work *work, int slice)
{
    struct tti_block block = tti_slice_of(work->window.bytes, slice, work->slices);
    block.offset += work->window.begin;
    return block;
}

static uint64_t partial_bytes(const struct work *work, uint64_t bytes)
{
    return tti_whole_lines(bytes / work->shape->element * work->shape->accumulator);
}

/* Folds this host's contributions to `bytes` at `offset` of its ranks' inputs: one partial per subtree, from `temp`
 * on. */
static void combine(struct work *work, uint64_t offset, uint64_t bytes, uint64_t temp)
{
    for (int i = 0; i < work->tree_count; i++) {
        const struct tti_subtree *tree = &work->trees[i];
        for (int k = 0; k < tree->ranks; k++)
            work->build.all[k] = (struct tti_part){
                .at = tti_at(tree->first + k, TTI_IN, offset), .first = tree->first + k, .ranks = 1};
        tti_add_fold(work->plan, own(work, TTI_TEMP, temp), work->build.all, tree->ranks, 0, bytes);
        temp += partial_bytes(work, bytes);
    }
    if (temp > work->plan->temp_bytes) work->plan->temp_bytes = temp;
}

/* ---- All-reduce and reduce ------------------------------------------------------------------------------------- */

/* Returns where a leader on the root's host keeps a result that is not its own: behind its host's contributions. */
static uint64_t kept_at(const struct work *work, int slice)
{
    return (uint64_t)work->tree_count * partial_bytes(work, slice_of(work, slice).bytes);
}

static void reduce_between(struct work *work)
{
    struct tti_message_build *build = &work->build;
    const struct tti_shape *shape = work->shape;
    struct tti_block slice = slice_of(work, work->place);
    build->combined = true;
    build->stride = partial_bytes(work, slice.bytes);
    build->origin = slice.offset;
    build->result = own(work, TTI_OUT, slice.offset);
    tti_temp(build, kept_at(work, work->place));
    if (shape->kind == TTI_ALL_REDUCE) {
        tti_build_message_all_reduce(build, slice.offset, slice.bytes);
        return;
    }
    if (shape->rank != shape->root) build->result = tti_temp(build, slice.bytes);
    tti_build_message_reduce(build, slice.offset, slice.bytes, work->hosts->host_of[shape->root]);
}

/* Copies all slices but the own one from their leaders. */
static void fetch_slices(struct work *work, bool kept)
{
    for (int k = 0; k < work->slices; k++) {
        int slice = (work->place + k) % work->slices, leader = tti_rank_at(work->hosts, work->host, slice);
        struct tti_block block = slice_of(work, slice);
        struct tti_region source = kept ? tti_at(leader, TTI_TEMP, kept_at(work, slice))
                                        : tti_at(leader, TTI_OUT, block.offset);
        if (leader != work->shape->rank)
            tti_add_copy(work->plan, own(work, TTI_OUT, block.offset), source, block.bytes, TTI_CACHED);
    }
}

static void reduce_phase(struct work *work, enum tti_phase phase)
{
    const struct tti_shape *shape = work->shape;
    struct tti_block slice = slice_of(work, work->place);
    bool all = shape->kind == TTI_ALL_REDUCE;
    if (phase == TTI_BEFORE && leads(work)) combine(work, slice.offset, slice.bytes, 0);
    if (phase == TTI_BETWEEN && leads(work)) reduce_between(work);
    if (phase == TTI_AFTER && (all || shape->rank == shape->root)) fetch_slices(work, !all);
}

/* ---- Reduce-scatter -------------------------------------------------------------------------------------------- */

/* Returns which rank of a host combines the host's contributions to a rank's block. */
static int combiner(const struct work *work, int host, int rank)
{
    return tti_rank_at(work->hosts, host, work->hosts->place_of[rank] % tti_ranks_on(work->hosts, host));
}

static struct tti_block block_window(const struct work *work, int rank)
{
    struct tti_flow flow = tti_reduce_block(work->shape, rank);
    uint64_t begin = work->window.begin;
    if (begin >= flow.bytes) return (struct tti_block){flow.source, 0};
    uint64_t left = flow.bytes - begin;
    return (struct tti_block){flow.source + begin, left < work->window.bytes ? left : work->window.bytes};
}

/* Combines the blocks of this rank's share, its own among them, into TEMP in rank order. */
static void scatter_before(struct work *work)
{
    uint64_t temp = 0;
    for (int rank = 0; rank < work->shape->size; rank++) {
        bool here = work->hosts->host_of[rank] == work->host;
        if (here ? rank != work->shape->rank : combiner(work, work->host, rank) != work->shape->rank) continue;
        struct tti_block block = block_window(work, rank);
        combine(work, block.offset, block.bytes, temp);
        temp += (uint64_t)work->tree_count * partial_bytes(work, block.bytes);
    }
}

static void send_combined(struct work *work, uint64_t *own_at)
{
    struct tti_message_build *build = &work->build;
    for (int rank = 0; rank < work->shape->size; rank++) {
        bool here = work->hosts->host_of[rank] == work->host, mine = rank == work->shape->rank;
        if (here ? !mine : combiner(work, work->host, rank) != work->shape->rank) continue;
        uint64_t bytes = block_window(work, rank).bytes, stride = partial_bytes(work, bytes);
        struct tti_region temp = tti_temp(build, (uint64_t)work->tree_count * stride);
        if (mine) *own_at = temp.offset;
        for (int i = 0; i < work->tree_count && !mine && bytes > 0; i++) {
            tti_post_send(build, rank, temp, bytes / work->shape->element * work->shape->accumulator);
            temp.offset += stride;
        }
    }
}

/* Folds all hosts' subtrees in rank order: its own from TEMP, the others as they come. */
static void scatter_between(struct work *work)
{
    struct tti_message_build *build = &work->build;
    const struct tti_shape *shape = work->shape;
    uint64_t own_at = 0, bytes = block_window(work, shape->rank).bytes, stride = partial_bytes(work, bytes);
    send_combined(work, &own_at);
    if (bytes == 0) return;
    int count = tti_subtrees_by_owner(work->hosts->host_of, shape->size, build->trees);
    for (int i = 0; i < count; i++) {
        const struct tti_subtree *tree = &build->trees[i];
        struct tti_part *part = &build->all[i];
        *part = (struct tti_part){.first = tree->first, .ranks = tree->ranks, .partial = true};
        if (tree->owner == work->host) {
            part->at = own(work, TTI_TEMP, own_at);
            own_at += stride;
            continue;
        }
        part->at = tti_temp(build, stride);
        tti_post_recv(build, combiner(work, tree->owner, shape->rank), part->at,
                      bytes / shape->element * shape->accumulator);
    }
    tti_await(build, build->received);
    tti_add_fold(work->plan, own(work, TTI_OUT, work->window.begin), build->all, count, shape->size, bytes);
}

/* ---- Broadcast ------------------------------------------------------------------------------------------------- */

static void broadcast_phase(struct work *work, enum tti_phase phase)
{
    const struct tti_shape *shape = work->shape;
    int root_host = work->hosts->host_of[shape->root];
    struct tti_block block = slice_of(work, work->place);
    if (shape->rank == shape->root) block = (struct tti_block){work->window.begin, work->window.bytes};
    if (phase == TTI_BEFORE && work->host == root_host && (leads(work) || shape->rank == shape->root))
        tti_add_copy(work->plan, own(work, TTI_OUT, block.offset), tti_at(shape->root, TTI_IN, block.offset),
                     block.bytes, TTI_CACHED);
    block = slice_of(work, work->place);
    if (phase == TTI_BETWEEN && leads(work))
        tti_build_message_broadcast(&work->build, block.offset, block.bytes, root_host, TTI_OUT);
    if (phase == TTI_AFTER && shape->rank != shape->root) fetch_slices(work, false);
}

/* ---- All-gather ------------------------------------------------------------------------------------------------ */

/* Returns a member's block number `index`: slice i has the blocks of ranks at places i, i + slices, … of each host. */
static bool column_piece(const struct tti_message_build *build, int host, int index, struct tti_block *block)
{
    const struct work *work = build->context;
    int place = work->place + index * work->slices;
    if (place >= tti_ranks_on(work->hosts, host)) return false;
    uint64_t bytes = work->shape->count * work->shape->element;
    *block = (struct tti_block){(uint64_t)tti_rank_at(work->hosts, host, place) * bytes + work->window.begin,
                                work->window.bytes};
    return true;
}

static void gather_between(struct work *work)
{
    work->build.piece = column_piece;
    work->build.context = work;
    tti_build_message_all_gather(&work->build);
}

static void gather_phase(struct work *work, enum tti_phase phase)
{
    const struct tti_hosts *hosts = work->hosts;
    uint64_t block = work->shape->count * work->shape->element, begin = work->window.begin, bytes = work->window.bytes;
    if (phase == TTI_BETWEEN && leads(work)) gather_between(work);
    if (phase == TTI_BETWEEN) return;
    for (int rank = 0; rank < hosts->size; rank++) {
        uint64_t offset = (uint64_t)rank * block + begin;
        int column = hosts->place_of[rank] % work->slices, leader = tti_rank_at(hosts, work->host, column);
        bool here = hosts->host_of[rank] == work->host, mine = rank == work->shape->rank;
        bool leads_it = leader == work->shape->rank;
        if (phase == TTI_BEFORE && here && (mine || leads_it))
            tti_add_copy(work->plan, own(work, TTI_OUT, offset), tti_at(rank, TTI_IN, begin), bytes, TTI_CACHED);
        if (phase == TTI_AFTER && !mine && !leads_it)
            tti_add_copy(work->plan, own(work, TTI_OUT, offset), tti_at(leader, TTI_OUT, offset), bytes, TTI_CACHED);
    }
}

/* ---- Building -------------------------------------------------------------------------------------------------- */

/* Returns the members: the leaders of this rank's slice, by host; all ranks in a reduce_scatter, in which any may send
 * to any. */
static struct tti_members members_of(const struct work *work)
{
    const struct tti_hosts *hosts = work->hosts;
    if (tti_shape_splits(work->shape)) return (struct tti_members){.count = hosts->size, .me = work->shape->rank};
    int place = leads(work) ? work->place : 0;
    for (int host = 0; host < hosts->count; host++) work->leaders[host] = tti_rank_at(hosts, host, place);
    return (struct tti_members){.count = hosts->count,
                                .me = work->host,
                                .ranks = work->leaders,
                                .member_of = hosts->host_of,
                                .side_by_side = hosts->side_by_side};
}

/* Finds the subtrees that this rank's host covers. */
static int find_trees(const struct work *work)
{
    const struct tti_hosts *hosts = work->hosts;
    const int *first = &hosts->first[work->host];
    if (hosts->side_by_side) return tti_subtrees_of_range(first[0], first[1], hosts->size, work->trees);
    return tti_subtrees(hosts->host_of, hosts->size, work->host, work->trees);
}

static void build_phase(struct work *work, enum tti_phase phase)
{
    switch (work->shape->kind) {
    case TTI_BARRIER:
        if (phase == TTI_BETWEEN && leads(work)) tti_build_dissemination(&work->build);
        break;
    case TTI_BROADCAST: broadcast_phase(work, phase); break;
    case TTI_ALL_GATHER: gather_phase(work, phase); break;
    case TTI_REDUCE_SCATTER:
    case TTI_REDUCE_SCATTER_V:
        if (phase == TTI_BEFORE) scatter_before(work);
        if (phase == TTI_BETWEEN) scatter_between(work);
        break;
    default: reduce_phase(work, phase); break;
    }
}

tutti_status tti_hosts_build(struct tti_plan *plan, const struct tti_hosts *hosts, const struct tti_shape *shape,
                             enum tti_phase phase, struct tti_part_of_all window)
{
    struct work work = {.plan = plan, .hosts = hosts, .shape = shape, .window = window};
    tti_plan_empty(plan);
    work.host = hosts->host_of[shape->rank];
    work.place = hosts->place_of[shape->rank];
    work.slices = slice_count(hosts, shape, window.bytes);
    work.leaders = tti_malloc((size_t)hosts->size, sizeof *work.leaders);
    work.trees = tti_malloc((size_t)hosts->size, sizeof *work.trees);
    bool memory = work.leaders != NULL && work.trees != NULL;
    if (memory && tti_message_begin(&work.build, plan, shape, members_of(&work))) {
        work.tree_count = find_trees(&work);
        build_phase(&work, phase);
        tti_message_end(&work.build);
    }
    tti_free(work.leaders);
    tti_free(work.trees);
    return !memory || plan->failed ? TUTTI_ERR_MEMORY : TUTTI_OK;
}
