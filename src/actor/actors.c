/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes and frees all actors of a rank, and keeps their errors.
 */
#define TUTTI_NO_CALL_SITES
#include "actor/actors.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/latest.h"
#include "base/sized.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/api/inside.h"
#include "collective/op/callback.h"
#include <stdarg.h>
#include <string.h>
#include <tutti/experimental.h>

enum { THREADS = 2, THREADS_MOST = 1024, GRACE_MS = 10000, COLLECT_MS = 1000 };
enum { PAYLOAD_BYTES = 16 << 20, PAYLOAD_MOST = 1 << 30 };

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

tutti_status tti_actors_describe(const tutti_actors *actors, tutti_error *error, enum tti_kind kind,
                                 tutti_status status, int peer, const char *format, ...)
{
    va_list arguments;
    *error = (tutti_error){.status = status, .rank = actors->comm->rank, .peer = peer};
    snprintf(error->operation, sizeof error->operation, "%s", tti_kind_name(kind));
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    tutti_text_printable(error->text);
    return status;
}

void tti_actors_note(tutti_actors *actors, const tutti_error *error)
{
    actors->error = *error;
}

tutti_status tti_actors_refuse(tutti_actors *actors, const tutti_error *error)
{
    tti_actors_lock(actors);
    tti_actors_note(actors, error);
    tti_actors_unlock(actors);
    tti_comm_note(actors->comm, error);
    return error->status;
}

/* Returns a copy, since requests of other threads may end at any moment. */
const tutti_error *tutti_actors_error(tutti_actors *actors)
{
    static _Thread_local tutti_error copy;
    if (actors == NULL) return NULL;
    tti_actors_lock(actors);
    copy = actors->error;
    tti_actors_unlock(actors);
    return copy.status == TUTTI_OK ? NULL : &copy;
}

/* ---- Options --------------------------------------------------------------------------------------------------- */

static tutti_actors_options options_of(const tutti_comm *comm, const tutti_actors_options *given)
{
    tutti_actors_options options = {0};
    if (given != NULL) (void)tti_sized_take(&options, sizeof options, given);
    options.struct_size = sizeof options;
    if (options.threads == 0) options.threads = THREADS;
    if (options.payload_bytes == 0) options.payload_bytes = PAYLOAD_BYTES;
    if (options.deadline_ms == 0) options.deadline_ms = comm->world->options.deadline_ms;
    if (options.free_grace_ms == 0) options.free_grace_ms = GRACE_MS;
    return options;
}

static tutti_status check_options(tutti_comm *comm, const tutti_actors_options *given,
                                  const tutti_actors_options *options)
{
    if (given != NULL && given->struct_size == 0)
        return tti_comm_refuse(comm, TTI_ACTORS, TUTTI_ERR_ARGUMENT,
                               "actors_create: set struct_size to sizeof(tutti_actors_options)");
    if (options->threads < 1 || options->threads > THREADS_MOST)
        return tti_comm_refuse(comm, TTI_ACTORS, TUTTI_ERR_ARGUMENT, "actors_create: %d threads; there are 1 to %d",
                               options->threads, THREADS_MOST);
    if (options->payload_bytes > PAYLOAD_MOST)
        return tti_comm_refuse(comm, TTI_ACTORS, TUTTI_ERR_ARGUMENT, "actors_create: payload_bytes %zu; it is 1 to %d",
                               options->payload_bytes, PAYLOAD_MOST);
    if (options->deadline_ms < 1 || options->deadline_ms > TTI_WEEK_MS || options->free_grace_ms < 1 ||
        options->free_grace_ms > TTI_WEEK_MS)
        return tti_comm_refuse(comm, TTI_ACTORS, TUTTI_ERR_ARGUMENT,
                               "actors_create: a deadline of %lld ms and a grace of %lld ms; both are 1 ms to a week",
                               (long long)options->deadline_ms, (long long)options->free_grace_ms);
    return TUTTI_OK;
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

/* Returns true if the calling thread is in a handler of actors that were created on this comm. */
static bool serves(const tutti_comm *comm)
{
    const struct tti_worker *worker = tti_worker_here();
    return worker != NULL && worker->running != NULL && worker->crew->actors->parent == comm;
}

static void set_serving(tutti_comm *comm, int change)
{
    comm->traits.servers += change;
    comm->traits.serves = comm->traits.servers > 0 ? serves : NULL;
    comm->traits.restricted = comm->traits.tolerant || comm->traits.servers > 0;
}

static void release_all(tutti_actors *actors)
{
    tutti_comm_free(actors->comm);
    tti_remote_free(actors->remote);
    while (actors->former != NULL) {
        struct tti_former *former = actors->former;
        actors->former = former->next;
        tutti_comm_free(former->comm);
        tti_remote_free(former->remote);
        tti_free(former);
    }
    tti_free(actors->numbers.places);
    tti_free(actors);
}

static tutti_status open_remote(tutti_actors *actors, tutti_comm *comm, struct tti_remote **remote, tutti_error *error)
{
    *remote = NULL;
    if (tti_queue_ready(comm, TTI_ACTORS) == TUTTI_OK) return tti_remote_open(actors, comm, remote, error);
    *error = comm->errors.call;
    return error->status;
}

/* Makes the parts that this rank needs for itself. */
static tutti_status open(tutti_actors *actors, tutti_error *error)
{
    struct tti_remote *remote = NULL;
    TTI_TRY(tti_dues_start(actors, error));
    actors->pool = tti_crew_new(actors, actors->options.threads, error);
    if (actors->pool == NULL) goto stop_dues;
    tutti_status status = open_remote(actors, actors->comm, &remote, error);
    actors->remote = remote;
    if (status == TUTTI_OK) return TUTTI_OK;
    tti_crew_stop(actors->pool);
    tti_crew_free(actors->pool);
stop_dues:
    tti_dues_stop(actors);
    return error->status;
}

/* All or nothing: compares the status of each rank, and its payload size. */
static tutti_status agree(tutti_comm *comm, tutti_status mine, size_t payload_bytes)
{
    int64_t low[2] = {(int64_t)payload_bytes, mine}, high[2] = {(int64_t)payload_bytes, mine};
    TTI_TRY(tutti_all_reduce(tti_inside(comm, "actors_create", "agree"), low, low, 2, TUTTI_I64, TUTTI_MIN));
    TTI_TRY(tutti_all_reduce(tti_inside(comm, "actors_create", "agree"), high, high, 2, TUTTI_I64, TUTTI_MAX));
    if (mine != TUTTI_OK) return mine;
    if (low[1] != TUTTI_OK)
        return tti_comm_refuse(comm, TTI_ACTORS, (tutti_status)low[1], "actors_create: another rank has failed: %s",
                               tutti_status_text((tutti_status)low[1]));
    if (low[0] != high[0])
        return tti_comm_refuse(
            comm, TTI_ACTORS, TUTTI_ERR_MISMATCH,
            "actors_create: payload_bytes is %zu here, and %lld to %lld on all ranks; it must be the same",
            payload_bytes, (long long)low[0], (long long)high[0]);
    return TUTTI_OK;
}

static void close_all(tutti_actors *actors);

tutti_status tutti_actors_create(tutti_comm *comm, const tutti_actors_options *given, tutti_actors **made)
{
    if (made != NULL) *made = NULL;
    TTI_TRY(tti_api_begin(comm, TTI_ACTORS));
    if (made == NULL) return tti_comm_refuse(comm, TTI_ACTORS, TUTTI_ERR_ARGUMENT, "actors_create: `actors` is NULL");
    tutti_actors_options options = options_of(comm, given);
    TTI_TRY(check_options(comm, given, &options));
    tutti_comm *own = NULL;
    tutti_error error = {0};
    TTI_TRY(tutti_comm_tolerant(comm, &own));
    tutti_actors *actors = tti_calloc(1, sizeof *actors);
    tutti_status status = TUTTI_ERR_MEMORY;
    if (actors != NULL) {
        *actors = (tutti_actors){.comm = own, .parent = comm, .options = options, .fork_count = tti_fork_count()};
        status = open(actors, &error);
    } else {
        snprintf(error.text, sizeof error.text, "no memory for actors");
    }
    bool opened = status == TUTTI_OK;
    status = agree(comm, status, options.payload_bytes);
    if (status == TUTTI_OK) {
        set_serving(comm, 1);
        *made = actors;
        return TUTTI_OK;
    }
    if (!opened) tti_comm_refuse(comm, TTI_ACTORS, status, "actors_create: %s", error.text);
    if (opened) close_all(actors);
    if (actors != NULL)
        release_all(actors);
    else
        tutti_comm_free(own);
    return status;
}

/* ---- Another epoch --------------------------------------------------------------------------------------------- */

static tutti_status check_renewal(tutti_actors *actors, tutti_comm *world)
{
    if (actors == NULL)
        return tti_comm_refuse(world, TTI_ACTORS, TUTTI_ERR_ARGUMENT,
                               "actors_renew: `actors` is NULL; a rank that was started again calls "
                               "tutti_actors_create");
    const struct tti_worker *worker = tti_worker_here();
    if (worker != NULL && worker->crew->actors == actors)
        return tti_comm_refuse(world, TTI_ACTORS, TUTTI_ERR_ARGUMENT,
                               "actors_renew: a handler must not renew the actors that it is one of");
    uint32_t theirs = world->traits.era.made, ours = actors->comm->traits.era.made;
    if (theirs > ours) return TUTTI_OK;
    return tti_comm_refuse(world, TTI_ACTORS, TUTTI_ERR_ARGUMENT,
                           "actors_renew: this comm is of epoch %u, and the actors of epoch %u; they are renewed on a "
                           "comm of a later one",
                           theirs, ours);
}

/* Changes to another comm. The former one stays for handles that are not given back yet. */
static void change_way(tutti_actors *actors, struct tti_former *former, tutti_comm *parent, tutti_comm *comm,
                       struct tti_remote *remote)
{
    tti_actors_lock(actors);
    *former = (struct tti_former){actors->comm, actors->remote, actors->former};
    actors->former = former;
    actors->comm = comm;
    actors->remote = remote;
    tti_actors_unlock(actors);
    set_serving(actors->parent, -1);
    actors->parent = parent;
    set_serving(parent, 1);
}

/* Makes the same collectives as tutti_actors_create, which ranks call that were started again. */
tutti_status tutti_actors_renew(tutti_actors *actors, tutti_comm *world)
{
    TTI_TRY(tti_api_begin(world, TTI_ACTORS));
    TTI_TRY(check_renewal(actors, world));
    tutti_error error = {0};
    tti_actors_describe(actors, &error, TTI_ACTOR_ASK, TUTTI_ERR_EPOCH, actors->comm->rank,
                        "the world was made anew before the answer came");
    tti_remote_retire(actors->remote, &error);
    tutti_comm *own = NULL;
    TTI_TRY(tutti_comm_tolerant(world, &own));
    struct tti_remote *remote = NULL;
    struct tti_former *former = tti_calloc(1, sizeof *former);
    tutti_status status = TUTTI_ERR_MEMORY;
    snprintf(error.text, sizeof error.text, "no memory for actors");
    if (former != NULL) status = open_remote(actors, own, &remote, &error);
    bool opened = status == TUTTI_OK;
    status = agree(world, status, actors->options.payload_bytes);
    if (status == TUTTI_OK) {
        change_way(actors, former, world, own, remote);
        return TUTTI_OK;
    }
    if (!opened) tti_comm_refuse(world, TTI_ACTORS, status, "actors_renew: %s", error.text);
    if (opened) tti_remote_close(remote);
    tutti_comm_free(own);
    tti_remote_free(remote);
    tti_free(former);
    return status;
}

/* ---- Freeing --------------------------------------------------------------------------------------------------- */

/* Takes no new requests, and stops every actor. */
static void stop_all(tutti_actors *actors)
{
    tti_actors_lock(actors);
    actors->closing = true;
    for (int i = 0; i < TTI_ACTOR_BUCKETS; i++)
        for (tutti_actor *actor = actors->buckets[i]; actor != NULL; actor = actor->next)
            if (actor->parent == NULL) tti_actor_stop(actor);
    tti_actors_unlock(actors);
}

static int count_actors(tutti_actors *actors)
{
    tti_actors_lock(actors);
    int count = actors->actor_count;
    tti_actors_unlock(actors);
    return count;
}

static bool await_actors(tutti_actors *actors, int64_t until_ns)
{
    for (;;) {
        uint32_t seen = atomic_load_explicit(&actors->ended, memory_order_acquire);
        if (count_actors(actors) == 0) return true;
        int64_t left = until_ns - tti_now_ns();
        if (left <= 0) return false;
        tti_bell_sleep(&actors->ended, seen, left, false);
    }
}

/* Names an actor that has not ended, if possible one without children. */
static void describe_late(tutti_actors *actors, tutti_error *error)
{
    const tutti_actor *late = NULL;
    tti_actors_lock(actors);
    for (int i = 0; i < TTI_ACTOR_BUCKETS; i++)
        for (const tutti_actor *actor = actors->buckets[i]; actor != NULL; actor = actor->next)
            if (late == NULL || tti_list_is_empty(&actor->children)) late = actor;
    tti_actors_describe(
        actors, error, TTI_ACTORS, TUTTI_ERR_TIMEOUT, -1,
        "actors_free: actor '%s' of rank %d has not ended within %lld ms: its handler has not returned; "
        "call tutti_actors_free again when it has",
        late == NULL ? "?" : late->name, actors->comm->rank, (long long)actors->options.free_grace_ms);
    tti_actors_unlock(actors);
}

/* Ends the requests that this rank has sent to others. */
static void end_own_requests(tutti_actors *actors)
{
    tutti_error error;
    tti_actors_describe(actors, &error, TTI_ACTOR_ASK, TUTTI_ERR_CANCELLED, actors->comm->rank,
                        "rank %d has shut down its actors before the answer came", actors->comm->rank);
    tti_requests_end_pending(actors, -1, &error);
}

/* Waits until threads that wait for requests have given their handles back: they have their answers now. */
static void await_waiters(tutti_actors *actors)
{
    int64_t until = tti_now_ns() + COLLECT_MS * TTI_MS;
    while (atomic_load_explicit(&actors->awaiting, memory_order_acquire) != 0 && tti_now_ns() < until) tti_wait_turn();
}

/* Closes everything. No actor is left. */
static void close_all(tutti_actors *actors)
{
    actors->closing = true;
    end_own_requests(actors);
    tti_remote_close(actors->remote);
    tti_crew_stop(actors->pool);
    tti_crew_free(actors->pool);
    while (actors->pinned != NULL) {
        struct tti_crew *crew = actors->pinned;
        actors->pinned = crew->next;
        tti_crew_free(crew);
    }
    tti_dues_stop(actors);
    await_waiters(actors);
}

tutti_status tutti_actors_free(tutti_actors *actors)
{
    const struct tti_worker *worker = tti_worker_here();
    tutti_error error;
    if (actors == NULL) return TUTTI_OK;
    if (actors->fork_count != tti_fork_count())
        return tti_latest_stray("actors_free", TUTTI_ERR_FORKED,
                                "actors_free: these actors belong to the parent process");
    if ((worker != NULL && worker->crew->actors == actors) || tti_is_in_callback()) {
        tti_actors_describe(
            actors, &error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1,
            "actors_free: a handler or a callback must not free the actors, whose end it would wait for");
        return tti_actors_refuse(actors, &error);
    }
    stop_all(actors);
    if (!await_actors(actors, tti_now_ns() + actors->options.free_grace_ms * TTI_MS)) {
        describe_late(actors, &error);
        return tti_actors_refuse(actors, &error);
    }
    close_all(actors);
    set_serving(actors->parent, -1);
    release_all(actors);
    return TUTTI_OK;
}
