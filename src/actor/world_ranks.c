/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "actor/world_ranks.h"
#include "actor/collective_calls.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/wait.h"
#include "collective/api/heal.h"
#include "collective/comm/comm.h"
#include <stdio.h>
#include <string.h>

/* ---- A rank's part ------------------------------------------------------------------------------------------------- */

void tti_thread_world_revoke(struct tti_thread_world_rank *rank)
{
    tti_lock(&rank->lock);
    if (atomic_load(&rank->world->running) && !rank->revoked) {
        rank->caused = !tti_comm_is_broken(rank->comm);
        (void)tutti_comm_revoke(rank->comm);
        rank->revoked = true;
    }
    tti_unlock(&rank->lock);
}

static tutti_status make_calls(const struct tti_thread_world_rank *rank, const struct tti_thread_world_asked *request,
                               tutti_error *error)
{
    const tutti_collective_call *calls = request->calls + (size_t)rank->number * request->count;
    tutti_status status = tti_collective_make(rank->comm, rank->stream, calls, request->count,
                                              tti_left_ms(request->until_ns));
    if (status != TUTTI_OK && tutti_comm_error(rank->comm) != NULL) *error = *tutti_comm_error(rank->comm);
    return status;
}

static tutti_status do_work(const struct tti_thread_world_rank *rank, const struct tti_thread_world_part *part,
                            tutti_error *error)
{
    const struct tti_thread_world_asked *request = part->request;
    const tutti_world_place place = {.struct_size = sizeof place,
                                     .rank = rank->number,
                                     .size = rank->world->size,
                                     .comm = rank->comm,
                                     .device = rank->device,
                                     .stream = rank->stream,
                                     .attempt = part->attempt,
                                     .rebuilds = rank->world->generation,
                                     .deadline_ms = tti_left_ms(request->until_ns)};
    return request->work(&place, request->context, error);
}

/* Carries out a request, and waits until the stream is empty, whatever the result. */
static tutti_status carry_out(const struct tti_thread_world_rank *rank, const struct tti_thread_world_part *part,
                              tutti_error *error)
{
    tutti_error ignored = {0};
    tutti_status status = part->request->work == NULL ? make_calls(rank, part->request, error)
                                                      : do_work(rank, part, error);
    if (rank->stream == NULL) return status;
    tutti_status synced = tutti_stream_sync(rank->stream,
                                            tti_left_ms(part->request->until_ns) + TTI_THREAD_WORLD_GRACE_MS,
                                            status == TUTTI_OK ? error : &ignored);
    return status == TUTTI_OK ? synced : status;
}

static tutti_status handle_part(tutti_actor *self, void *state, tutti_request *request)
{
    struct tti_thread_world_rank *rank = state;
    struct tti_thread_world_part part;
    if (request->kind != TUTTI_ASKED || request->bytes != sizeof part ||
        request->rank != tutti_actor_actors(self)->comm->rank || !atomic_load(&rank->world->running))
        return tutti_request_refuse(request, TUTTI_ERR_ARGUMENT,
                                    "a rank of a world does its part of the world's requests only (tutti_world_do)");
    memcpy(&part, request->data, sizeof part);
    rank->result.text[0] = '\0';
    tutti_status status = carry_out(rank, &part, &rank->result);
    rank->result.status = status;
    if (status != TUTTI_OK) tti_thread_world_revoke(rank);
    return tutti_request_answer(request, NULL, 0);
}

static void end_rank(tutti_actor *self, void *state)
{
    (void)self;
    tti_thread_world_revoke(state);
}

tutti_decision tti_thread_world_end_it(void *context, const tutti_error *error)
{
    (void)context, (void)error;
    return TUTTI_STOP;
}

static tutti_status make_rank(struct tti_thread_world *world, int number)
{
    tutti_actor_options options = {.struct_size = sizeof options,
                                   .name = world->ranks[number].name,
                                   .parent = world->name,
                                   .context = &world->ranks[number],
                                   .handle = handle_part,
                                   .stop = end_rank,
                                   .decide = tti_thread_world_end_it,
                                   .pinned = true};
    return tutti_actor_create(world->actors, &options);
}

/* ---- Making the world ---------------------------------------------------------------------------------------------- */

static void leave_all(struct tti_thread_world *world)
{
    for (int r = 0; r < world->size; r++) {
        struct tti_thread_world_rank *rank = &world->ranks[r];
        tti_lock(&rank->lock);
        tutti_comm *comm = rank->comm;
        rank->comm = NULL;
        rank->revoked = true;
        tti_unlock(&rank->lock);
        (void)tutti_leave(comm);
    }
}

static tutti_status join_all(struct tti_thread_world *world, tutti_error *error)
{
    tutti_options options = world->actors->comm->world->options;
    tutti_comm *comms[world->size];
    options.deadline_ms = world->actors->options.deadline_ms;
    options.board = options.trace = options.master_addr = "";
    TTI_TRY(tti_join_alone(&options, world->size, comms, error));
    for (int r = 0; r < world->size; r++) {
        world->ranks[r].comm = comms[r];
        world->ranks[r].revoked = world->ranks[r].caused = false;
    }
    return TUTTI_OK;
}

static void free_stream(struct tti_thread_world_rank *rank)
{
    tutti_error ignored;
    if (rank->stream != NULL) (void)tutti_stream_free(rank->stream, &ignored);
    rank->stream = NULL;
}

/* Opens devices that have failed again; ranks may share one, and all its streams are stale then. */
static tutti_status open_devices(struct tti_thread_world *world, tutti_error *error)
{
    for (int r = 0; r < world->size; r++) free_stream(&world->ranks[r]);
    for (int r = 0; r < world->size; r++) {
        struct tti_thread_world_rank *rank = &world->ranks[r];
        if (rank->device_name[0] == '\0') continue;
        if (rank->device == NULL)
            TTI_TRY(tutti_device_open(rank->device_name, &rank->device, error));
        else if (rank->result.status == TUTTI_ERR_DEVICE)
            TTI_TRY(tutti_device_reopen(rank->device, error));
    }
    for (int r = 0; r < world->size; r++)
        if (world->ranks[r].device != NULL)
            TTI_TRY(tutti_stream_create(world->ranks[r].device, &world->ranks[r].stream, error));
    return TUTTI_OK;
}

enum presence { ABSENT, ENDING, PRESENT };

static enum presence look_for(const struct tti_thread_world_rank *rank)
{
    tutti_actors *actors = rank->world->actors;
    tti_actors_lock(actors);
    const tutti_actor *actor = tti_actor_find(actors, rank->name);
    const enum presence presence = actor == NULL ? ABSENT : actor->phase == TTI_STOPPING ? ENDING : PRESENT;
    tti_actors_unlock(actors);
    return presence;
}

/* Waits for the end of an actor that is about to end, so that its name is free. */
static enum presence await_end(const struct tti_thread_world_rank *rank)
{
    tutti_actors *actors = rank->world->actors;
    const int64_t until_ns = tti_until_ns(actors, 0);
    for (;;) {
        const uint32_t seen = atomic_load_explicit(&actors->ended, memory_order_acquire);
        const enum presence presence = look_for(rank);
        const int64_t left_ns = until_ns - tti_now_ns();
        if (presence != ENDING || left_ns <= 0) return presence;
        tti_bell_sleep(&actors->ended, seen, left_ns, false);
    }
}

static tutti_status make_actors(struct tti_thread_world *world, tutti_error *error)
{
    for (int r = 0; r < world->size; r++) {
        if (await_end(&world->ranks[r]) == PRESENT) continue;
        tutti_status status = make_rank(world, r);
        if (status != TUTTI_OK) *error = *tutti_actors_error(world->actors);
        TTI_TRY(status);
    }
    return TUTTI_OK;
}

tutti_status tti_thread_world_make(struct tti_thread_world *world, tutti_error *error)
{
    leave_all(world);
    TTI_TRY(open_devices(world, error));
    TTI_TRY(make_actors(world, error));
    return join_all(world, error);
}

void tti_thread_world_free(struct tti_thread_world *world)
{
    tutti_error ignored;
    leave_all(world);
    for (int r = 0; r < world->size; r++) {
        free_stream(&world->ranks[r]);
        if (world->ranks[r].device != NULL) (void)tutti_device_free(world->ranks[r].device, &ignored);
        if (world->ops[r].id != 0) (void)tutti_drop(world->ops[r]);
    }
    tti_free(world->asked);
    tti_free(world->ranks);
    tti_free(world->ops);
    tti_free(world);
}
