/* SPDX-License-Identifier: Apache-2.0
 *
 * The actor that makes the collectives of one rank. It owns a comm and has a thread of its own.
 */
#define TUTTI_NO_CALL_SITES
#include "actor/actors.h"
#include "actor/collective_calls.h"

#include "base/alloc.h"
#include "base/status.h"
#include <stdalign.h>
#include <string.h>

enum { GRACE_MS = 2000 }; /* added to the request's deadline, since the comm's own deadline explains more */

/* The state of the actor. */
struct collective {
    tutti_comm *comm;              /* used by the actor's thread only */
    _Atomic(tutti_comm *) renewed; /* takes its place when the actor comes to the request that says so; or NULL */
};

/* The data of a request; the calls follow it. */
struct call {
    int64_t until_ns;
    bool renews; /* it has no calls, and a new comm lies in the actor's state */
    alignas(16) tutti_collective_call list[];
};

/* ---- The actor ------------------------------------------------------------------------------------------------- */

/* Changes to the comm that lies in the state, unless its giver has taken it back. */
static tutti_status change_comm(struct collective *collective, tutti_request *request)
{
    tutti_comm *renewed = atomic_exchange(&collective->renewed, NULL);
    if (renewed != NULL) {
        (void)tutti_comm_free(collective->comm);
        collective->comm = renewed;
    }
    return tutti_request_answer(request, NULL, 0);
}

static tutti_status handle(tutti_actor *self, void *state, tutti_request *request)
{
    struct collective *collective = state;
    const struct call *call = request->data;
    const bool own = tti_request_of(request)->source < 0;
    (void)self;
    if (own && request->kind == TUTTI_ASKED && request->bytes == sizeof *call && call->renews)
        return change_comm(collective, request);
    if (request->kind != TUTTI_ASKED || request->bytes <= sizeof *call || !own)
        return tutti_request_refuse(request, TUTTI_ERR_ARGUMENT,
                                    "collectives are asked of the own rank's actor (tutti_collective_do)");
    const size_t count = (request->bytes - sizeof *call) / sizeof *call->list;
    tutti_status status = tti_collective_make(collective->comm, NULL, call->list, count, tti_left_ms(call->until_ns));
    const tutti_error *why = tutti_comm_error(collective->comm);
    if (status == TUTTI_OK) return tutti_request_answer(request, NULL, 0);
    return tutti_request_refuse(request, status, why == NULL ? NULL : why->text);
}

static void leave(tutti_actor *self, void *state)
{
    struct collective *collective = state;
    (void)self;
    (void)tutti_comm_free(atomic_exchange(&collective->renewed, NULL));
    (void)tutti_comm_free(collective->comm);
    tti_free(collective);
}

/* Ends the actor after a failure: its comm is of no use any more. */
static tutti_decision end_it(void *context, const tutti_error *error)
{
    (void)context, (void)error;
    return TUTTI_STOP;
}

/* ---- Making one, and renewing it --------------------------------------------------------------------------------- */

static tutti_status refuse(tutti_actors *actors, const char *call, const char *text)
{
    tutti_error error;
    (void)tti_actors_describe(actors, &error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1, "%s: %s", call, text);
    return tti_actors_refuse(actors, &error);
}

tutti_status tutti_collective_actor(tutti_actors *actors, tutti_comm *comm, const char *name)
{
    tutti_comm *own = NULL;
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    if (comm == NULL) return refuse(actors, "collective_actor", "there is no comm");
    TTI_TRY(tutti_comm_duplicate(comm, &own));
    struct collective *collective = tti_calloc(1, sizeof *collective);
    tutti_actor_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .context = collective,
                                   .handle = handle,
                                   .stop = leave,
                                   .decide = end_it,
                                   .pinned = true};
    if (collective != NULL) collective->comm = own;
    tutti_status status = collective == NULL ? TUTTI_ERR_MEMORY : tutti_actor_create(actors, &options);
    if (status == TUTTI_OK) return TUTTI_OK;
    (void)tutti_comm_free(own);
    tti_free(collective);
    return status;
}

/* Returns the state of the actor with that name; NULL: there is none that makes collectives. The lock is held. */
static struct collective *find(const tutti_actors *actors, const char *name)
{
    const char *why;
    if (tti_actor_check_name(name, &why) != TUTTI_OK) return NULL;
    const tutti_actor *actor = tti_actor_find(actors, name);
    const bool is_one = actor != NULL && actor->options.handle == handle && actor->phase != TTI_STOPPING;
    return is_one ? actor->options.context : NULL;
}

/* Puts a comm into the state of the actor with that name, or takes it back: `put` takes the place of `there`. Returns
 * false if there is no such actor, or another comm is there. */
static bool exchange(tutti_actors *actors, const char *name, tutti_comm *there, tutti_comm *put)
{
    tti_actors_lock(actors);
    struct collective *collective = find(actors, name);
    const bool done = collective != NULL && atomic_compare_exchange_strong(&collective->renewed, &there, put);
    tti_actors_unlock(actors);
    return done;
}

tutti_status tutti_collective_renew(tutti_actors *actors, tutti_comm *comm, const char *name)
{
    const struct call call = {.renews = true};
    static const char none[] = "this rank has no actor of that name that makes collectives, or it is being renewed; a "
                               "rank that was started again calls tutti_collective_actor";
    tutti_comm *own = NULL;
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    if (comm == NULL) return refuse(actors, "collective_renew", "there is no comm");
    if (!exchange(actors, name, NULL, NULL)) return refuse(actors, "collective_renew", none);
    TTI_TRY(tutti_comm_duplicate(comm, &own));
    if (!exchange(actors, name, NULL, own)) {
        (void)tutti_comm_free(own);
        return refuse(actors, "collective_renew", none);
    }
    tutti_status status = tutti_actor_ask(actors, actors->comm->rank, name, &call, sizeof call, NULL, 0, NULL, 0);
    if (status != TUTTI_OK && exchange(actors, name, own, NULL)) (void)tutti_comm_free(own);
    return status;
}

/* ---- Asking -------------------------------------------------------------------------------------------------------- */

/* Makes the data of a request; NULL: no memory. */
static struct call *make_call(const tutti_actors *actors, const tutti_collective_call *calls, size_t count,
                              int64_t deadline_ms, size_t *bytes)
{
    struct call *call = tti_calloc(1, *bytes = sizeof *call + count * sizeof *calls);
    if (call == NULL) return NULL;
    call->until_ns = tti_until_ns(actors, deadline_ms);
    memcpy(call->list, calls, count * sizeof *calls);
    return call;
}

tutti_status tutti_collective_do_start(tutti_actors *actors, const char *name, const tutti_collective_call *calls,
                                       size_t count, int64_t deadline_ms, tutti_op *op)
{
    size_t bytes;
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    const char *why = tti_collective_check(calls, count);
    if (why != NULL) return refuse(actors, "collective_do", why);
    if (deadline_ms < 0) return refuse(actors, "collective_do", "deadline_ms must be 0, for the default, or more");
    struct call *call = make_call(actors, calls, count, deadline_ms, &bytes);
    if (call == NULL) return TUTTI_ERR_MEMORY;
    tutti_status status = tutti_actor_ask_start(actors, actors->comm->rank, name, call, bytes, NULL, 0, NULL,
                                                tti_left_ms(call->until_ns) + GRACE_MS, op);
    tti_free(call);
    return status;
}

tutti_status tutti_collective_do(tutti_actors *actors, const char *name, const tutti_collective_call *calls,
                                 size_t count, int64_t deadline_ms)
{
    tutti_op op;
    TTI_TRY(tutti_collective_do_start(actors, name, calls, count, deadline_ms, &op));
    return tutti_wait(op);
}
