/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/peers/local.h"

#include "base/alloc.h"
#include "base/round.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/peers/net.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

size_t tti_local_bytes(int count)
{
    return tti_whole_lines(sizeof(struct tti_area)) + (size_t)count * sizeof(struct tti_local_post);
}

/* ---- Making and freeing ---------------------------------------------------------------------------------------- */

static void find_ranks(struct tti_local *local, int rank)
{
    const struct tti_hosts *hosts = local->hosts;
    int host = hosts->host_of[rank];
    local->ranks = hosts->ranks + hosts->first[host];
    local->count = hosts->first[host + 1] - hosts->first[host];
    local->place = hosts->place_of[rank];
}

tutti_status tti_local_create(tutti_comm *comm, const struct tti_local_setup *setup, tutti_error *error)
{
    struct tti_local *local = tti_calloc(1, sizeof *local);
    bool given = setup->hosts != NULL;
    bool made = local != NULL && (given || tti_hosts_make(&local->own, setup->host_of, comm->size) == TUTTI_OK);
    if (made) local->hosts = given ? setup->hosts : &local->own;
    if (made) find_ranks(local, comm->rank);
    if (made && !setup->one_process) local->scratch = tti_calloc((size_t)local->count, TTI_SCRATCH_BYTES);
    if (!made || (!setup->one_process && local->scratch == NULL)) {
        if (made) tti_hosts_free(&local->own);
        tti_free(local);
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a comm of %d ranks on several hosts",
                             comm->size);
    }
    local->area = setup->area;
    local->given = setup->given;
    local->owns_area = setup->owns;
    local->one_process = setup->one_process;
    local->posts = (struct tti_local_post *)((char *)setup->area + tti_whole_lines(sizeof(struct tti_area)));
    local->posts[local->place].pid = (int32_t)getpid();
    if (!tti_fence_setup()) atomic_store_explicit(&local->area->full_fences, 1, memory_order_seq_cst);
    comm->local = local;
    return TUTTI_OK;
}

void tti_local_free(tutti_comm *comm)
{
    struct tti_local *local = comm->local;
    if (local == NULL) return;
    if (local->given) tti_grave_leave(comm->world, &local->area->grave, local->owns_area);
    tti_hosts_free(&local->own);
    tti_free(local->scratch);
    tti_free(local);
    comm->local = NULL;
}

/* The place of a rank among those of this host, or -1. */
static int place_here(const tutti_comm *comm, int rank)
{
    const struct tti_local *local = comm->local;
    if (local == NULL || local->hosts->host_of[rank] != local->hosts->host_of[comm->rank]) return -1;
    return local->hosts->place_of[rank];
}

bool tti_local_covers(const tutti_comm *comm, enum tti_kind kind)
{
    return comm->local != NULL && tti_hosts_pay(comm->local->hosts) && tti_hosts_cover(kind);
}

uint64_t tti_local_mark(const tutti_comm *comm, int rank)
{
    int place = place_here(comm, rank);
    return place < 0 ? 0 : atomic_load_explicit(&comm->local->posts[place].progress, memory_order_relaxed);
}

void tti_local_announce(tutti_comm *comm, bool asleep)
{
    struct tti_local_post *post = &comm->local->posts[comm->local->place];
    if (asleep)
        atomic_fetch_add_explicit(&post->asleep, 1, memory_order_seq_cst);
    else
        atomic_fetch_sub_explicit(&post->asleep, 1, memory_order_release);
    if (asleep) tti_fence_rare(); /* either who publishes sees it, or the poll that follows sees what was published */
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static bool is_nowhere(void)
{
    return tti_sim != NULL && tti_sim_setup_of()->sizes_only;
}

void *tti_local_alloc(tutti_comm *comm, size_t bytes)
{
    tutti_error ignored = {0};
    if (is_nowhere()) return tti_sim_nowhere(bytes);
    if (comm->local == NULL || comm->local->one_process) return tti_calloc(1, bytes);
    return tti_arena_alloc(&comm->world->arena, bytes, &ignored);
}

void tti_local_release(tutti_comm *comm, void *memory, bool in_use)
{
    tutti_error ignored = {0};
    if (is_nowhere()) return;
    if (comm->local == NULL || comm->local->one_process) {
        if (in_use)
            tti_net_keep(comm->lanes->net, memory);
        else
            tti_free(memory);
    } else if (in_use) {
        tti_arena_quarantine(&comm->world->arena, memory);
    } else if (memory != NULL) {
        tti_arena_free(&comm->world->arena, memory, &ignored);
    }
}

/* ---- Seeing each other ----------------------------------------------------------------------------------------- */

static uint64_t mark(const struct tti_op *op, uint32_t number)
{
    return op->comm->sequence << 32 | number;
}

static struct tti_local_post *own_post(const struct tti_op *op)
{
    return &op->comm->local->posts[op->comm->local->place];
}

static void nudge(tutti_comm *comm, int place)
{
    struct tti_local *local = comm->local;
    if (tti_sim != NULL) {
        struct tti_transport *endpoint = local->posts[place].endpoint;
        endpoint->ops->wake(endpoint);
        return;
    }
    tti_net_lock(comm->lanes->net);
    tti_lane_say(comm->lanes, local->ranks[place], (struct tti_frame_head){.kind = TTI_FRAME_NUDGE}, NULL);
    tti_net_unlock(comm->lanes->net);
}

static void publish(struct tti_op *op, uint32_t number)
{
    tutti_comm *comm = op->comm;
    struct tti_local *local = comm->local;
    atomic_store_explicit(&own_post(op)->progress, mark(op, number), memory_order_release);
    tti_fence_frequent(atomic_load_explicit(&local->area->full_fences, memory_order_relaxed) != 0);
    for (int place = 0; place < local->count; place++) {
        if (place == local->place) continue;
        if (atomic_load_explicit(&local->posts[place].asleep, memory_order_relaxed) != 0) nudge(comm, place);
    }
}

static void enter(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    struct tti_local_post *post = own_post(op);
    post->signature = comm->signature;
    post->factor = op->reducer.factor;
    post->endpoint = comm->lanes->net->transport;
    post->in = tti_place_of(comm, op->in, op->in_bytes);
    post->out = tti_place_of(comm, op->out, op->out_bytes);
    post->temp = tti_place_of(comm, comm->lanes->temp, op->walk.plan->temp_bytes);
    publish(op, 0);
}

void tti_local_say(struct tti_op *op, const struct tti_step *step)
{
    if (step->kind == TTI_STEP_ENTER) enter(op);
    if (step->kind == TTI_STEP_PUBLISH) publish(op, step->value + op->walk.numbers);
    if (step->kind == TTI_STEP_LEAVE) publish(op, TTI_LEFT);
}

/* One that has entered another operation is asked what it called, as is one that a frame shows to be elsewhere. */
static tutti_status seen(struct tti_op *op, int place, uint32_t number)
{
    tutti_comm *comm = op->comm;
    int rank = comm->local->ranks[place];
    const struct tti_local_post *post = &comm->local->posts[place];
    uint64_t progress = atomic_load_explicit(&post->progress, memory_order_acquire);
    op->waiting_for = rank;
    op->awaited = mark(op, number);
    if (progress == mark(op, TTI_FAILED) || (int64_t)(progress - mark(op, number)) < 0) return TUTTI_IN_PROGRESS;
    if (number > 0) return TUTTI_OK;
    /* past this operation, which it cannot be without this rank, it has called something else in its place */
    bool same = (uint32_t)(progress >> 32) == (uint32_t)comm->sequence && post->signature == comm->signature;
    if (same) return TUTTI_OK;
    if (tti_lane_to(comm->lanes, rank) != NULL) comm->lanes->differs.peer = rank;
    return TUTTI_IN_PROGRESS;
}

tutti_status tti_local_wait(struct tti_op *op, const struct tti_step *step)
{
    const struct tti_local *local = op->comm->local;
    uint32_t number = step->value + op->walk.numbers;
    if (step->peer != TTI_ALL) return seen(op, local->hosts->place_of[step->peer], number);
    for (; op->cursor < local->count - 1; op->cursor++)
        TTI_TRY(seen(op, (local->place + 1 + op->cursor) % local->count, number));
    op->cursor = 0;
    return TUTTI_OK;
}

/* ---- Reading each other ---------------------------------------------------------------------------------------- */

static const struct tti_local_post *post_of(const struct tti_op *op, int rank)
{
    return &op->comm->local->posts[op->comm->local->hosts->place_of[rank]];
}

static const struct tti_place *place_of(const struct tti_op *op, const struct tti_region *region)
{
    const struct tti_local_post *post = post_of(op, region->rank);
    if (region->space == TTI_IN) return &post->in;
    return region->space == TTI_OUT ? &post->out : &post->temp;
}

char *tti_local_address(const struct tti_op *op, const struct tti_region *region)
{
    const struct tti_place *place = place_of(op, region);
    if (place->reach == TTI_ARENA)
        return tti_world_translate(op->comm->world, place->process, place->value + tti_host_offset(op, region), 0);
    bool mine = post_of(op, region->rank)->pid == own_post(op)->pid;
    return mine ? (char *)(uintptr_t)(place->value + tti_host_offset(op, region)) : NULL;
}

/* Whether it still is in this operation: its buffers are what it said. */
static bool is_in(const struct tti_op *op, const struct tti_local_post *post)
{
    uint64_t progress = atomic_load_explicit(&post->progress, memory_order_acquire);
    return (uint32_t)(progress >> 32) == (uint32_t)op->comm->sequence && (uint32_t)progress < TTI_LEFT;
}

tutti_status tti_local_fetch(struct tti_op *op, const struct tti_region *region, uint64_t offset, void *target,
                             size_t bytes)
{
    tutti_comm *comm = op->comm;
    const struct tti_local_post *post = post_of(op, region->rank);
    uint64_t from = place_of(op, region)->value + tti_host_offset(op, region) + offset;
    int why = tti_attach(post->pid, from, target, bytes, false);
    if (why == 0) return TUTTI_OK;
    op->waiting_for = region->rank;
    op->awaited = mark(op, 1);
    if (why == ESRCH || !is_in(op, post)) return TUTTI_IN_PROGRESS; /* why it ended is found by the wait */
    return tti_attach_failed(comm, op->shape.kind, region->rank, &(struct tti_attached){from, target, bytes, false},
                             why);
}

double tti_local_factor(const struct tti_op *op, int rank)
{
    return post_of(op, rank)->factor;
}

/* ---- Failing --------------------------------------------------------------------------------------------------- */

void tti_local_stop(struct tti_op *op)
{
    publish(op, TTI_FAILED);
    tti_fence_rare(); /* whoever has entered by now is seen, whoever enters from now on sees that this rank failed */
}

static bool may_read(const struct tti_op *op, int place)
{
    const tutti_comm *comm = op->comm;
    const struct tti_local_post *post = &comm->local->posts[place];
    if (place == comm->local->place || post->pid != own_post(op)->pid || !is_in(op, post)) return false;
    /* one that made another call goes no further than its entry */
    return post->signature == comm->signature && atomic_load_explicit(&post->left, memory_order_acquire) == 0;
}

int tti_local_reader(const struct tti_op *op)
{
    /* nothing to read, and who has passed one does not say that it has left */
    if (op->shape.kind == TTI_BARRIER || op->shape.kind == TTI_TUNING) return -1;
    for (int place = 0; place < op->comm->local->count; place++)
        if (may_read(op, place)) return op->comm->local->ranks[place];
    return -1;
}
