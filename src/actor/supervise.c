/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles actors that failed or were stopped. An actor's worker does all of it, between two requests: it decides, waits
 * for the children's end, calls `stop`, and calls `start` again or forgets the actor. Requests that come meanwhile are
 * queued.
 */
#include "actor/actors.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

/* ---- Deciding -------------------------------------------------------------------------------------------------- */

void tti_actor_describe_failure(tutti_actor *actor, const char *function, tutti_status status, tutti_error *error)
{
    const tutti_actors *actors = actor->actors;
    tutti_status given = status < 0 ? status : TUTTI_ERR_ARGUMENT;
    const char *said = actor->said.status != TUTTI_OK ? actor->said.text : tutti_status_text(given);
    tti_actors_describe(actors, error, TTI_ACTOR_ASK, given, actors->comm->rank,
                        "actor '%s' of rank %d failed in `%s`: %s", actor->name, actors->comm->rank, function, said);
}

tutti_status tutti_actor_fail(tutti_actor *self, tutti_status status, const char *text)
{
    self->said.status = status < 0 ? status : TUTTI_ERR_ARGUMENT;
    snprintf(self->said.text, sizeof self->said.text, "%s", text != NULL ? text : tutti_status_text(self->said.status));
    return self->said.status;
}

/* Notes a restart; returns false if there were as many within the window as are allowed. */
static bool may_restart(tutti_actor *actor)
{
    int64_t now = tti_now_ns(), window = actor->options.restart_window_ms * TTI_MS;
    uint64_t most = (uint64_t)actor->options.restarts;
    if (most == 0) return false;
    int64_t *oldest = &actor->restarted_ns[actor->restart_count % most];
    if (actor->restart_count >= most && now - *oldest < window) return false;
    *oldest = now;
    actor->restart_count++;
    return true;
}

static const char *const outcomes[] = {[TUTTI_RESTART] = "it is restarted",
                                       [TUTTI_RESUME] = "it goes on",
                                       [TUTTI_STOP] = "it ends",
                                       [TUTTI_ESCALATE] = "it ends, and its parent fails with it"};

static tutti_decision decide(tutti_actor *actor, const tutti_error *error)
{
    const tutti_actor_options *options = &actor->options;
    tutti_decision decision = options->decide == NULL ? TUTTI_RESTART : options->decide(options->context, error);
    if (decision == TUTTI_RESTART && !may_restart(actor)) {
        tti_log(TUTTI_WARN, "actor '%s' of rank %d may be restarted %d times in %lld ms, and has been", actor->name,
                actor->actors->comm->rank, options->restarts, (long long)options->restart_window_ms);
        decision = TUTTI_ESCALATE;
    }
    if (decision > TUTTI_ESCALATE || (decision == TUTTI_RESUME && !actor->has_state)) decision = TUTTI_STOP;
    if (decision == TUTTI_ESCALATE && actor->parent == NULL) decision = TUTTI_STOP;
    return decision;
}

static tutti_error *copy_error(const tutti_error *error)
{
    tutti_error *copy = tti_calloc(1, sizeof *copy);
    if (copy != NULL) *copy = *error;
    return copy;
}

/* Makes the parent fail with this error, unless it has one to fail with already. The lock is held. */
static void blame_parent(tutti_actor *actor, tutti_error *failure)
{
    tutti_actor *parent = actor->parent;
    if (parent->failure == NULL)
        parent->failure = failure;
    else
        tti_free(failure);
    atomic_store_explicit(&parent->wanted, true, memory_order_release);
    tti_actor_schedule(parent);
}

static void stop_children(tutti_actor *actor)
{
    TTI_LIST_EACH(link, &actor->children) tti_actor_stop(TTI_LIST_OF(link, tutti_actor, sibling));
}

void tti_actor_failed(tutti_actor *actor, const tutti_error *error)
{
    tutti_decision decision = decide(actor, error);
    tti_log(TUTTI_WARN, "%s; %s", error->text, outcomes[decision]);
    if (decision == TUTTI_RESUME) return;
    tutti_error *why = copy_error(error), *failure = decision == TUTTI_ESCALATE ? copy_error(error) : NULL;
    tti_actors_lock(actor->actors);
    if (actor->why == NULL && decision != TUTTI_RESTART && actor->phase != TTI_STOPPING) {
        actor->why = why;
        why = NULL;
    }
    if (actor->phase != TTI_STOPPING) actor->phase = decision == TUTTI_RESTART ? TTI_RESTARTING : TTI_STOPPING;
    atomic_store_explicit(&actor->wanted, true, memory_order_release);
    stop_children(actor);
    if (failure != NULL) blame_parent(actor, failure);
    tti_actors_unlock(actor->actors);
    tti_free(why);
}

/* ---- Restarting ------------------------------------------------------------------------------------------------ */

static struct tti_request *take_kept(tutti_actor *actor)
{
    struct tti_request *request = NULL;
    tti_actors_lock(actor->actors);
    if (!tti_list_is_empty(&actor->kept)) {
        request = TTI_LIST_OF(actor->kept.next, struct tti_request, of);
        tti_list_remove(&request->of);
        tti_number_remove(actor->actors, request->kept);
        request->kept = 0;
    }
    tti_actors_unlock(actor->actors);
    return request;
}

/* Forgets its watches: it is told of no end any more. */
static void forget_watches(tutti_actor *actor)
{
    TTI_LIST_EACH(link, &actor->watches)
    {
        TTI_LIST_OF(link, struct tti_request, of)->watcher = NULL;
        tti_list_remove(link);
    }
}

static void forget_state(tutti_actor *actor)
{
    struct tti_request *request;
    tutti_error error;
    tti_actors_describe(actor->actors, &error, TTI_ACTOR_ASK, TUTTI_ERR_ACTOR, actor->actors->comm->rank,
                        "actor '%s' of rank %d kept the request and %s before it gave an answer", actor->name,
                        actor->actors->comm->rank, actor->phase == TTI_RESTARTING ? "was restarted" : "ended");
    while ((request = take_kept(actor)) != NULL) {
        tti_request_end(request, &error, NULL, 0);
        tti_request_release(request);
    }
    tti_actors_lock(actor->actors);
    tti_timers_clear(actor);
    forget_watches(actor);
    tti_actors_unlock(actor->actors);
    if (actor->has_state && actor->options.stop != NULL) actor->options.stop(actor, actor->state);
    actor->has_state = false;
    actor->state = NULL;
}

/* Goes on after a restart. The actor may have been stopped meanwhile; without a state it is restarted once more, or
 * ends. The lock is held. */
static void go_on(tutti_actor *actor)
{
    if (actor->phase == TTI_RESTARTING && actor->has_state) actor->phase = TTI_RUNNING;
    atomic_store_explicit(&actor->wanted, actor->phase != TTI_RUNNING || actor->failure != NULL, memory_order_relaxed);
    actor->scheduled = false;
    tti_actor_schedule(actor);
}

static void restart(tutti_actor *actor)
{
    const tutti_actor_options *options = &actor->options;
    forget_state(actor);
    actor->said.status = TUTTI_OK;
    actor->state = options->context;
    tutti_status status = options->start == NULL ? TUTTI_OK : options->start(actor, options->context, &actor->state);
    actor->has_state = status == TUTTI_OK;
    tutti_error error;
    if (status != TUTTI_OK) {
        tti_actor_describe_failure(actor, "start", status, &error);
        tti_actor_failed(actor, &error);
    }
    tti_actors_lock(actor->actors);
    go_on(actor);
    tti_actors_unlock(actor->actors);
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

/* Takes a request that nobody will handle from the mailbox or, at last, from the watchers. NULL: there is none. */
static struct tti_request *take_left(tutti_actor *actor, struct tti_link *list)
{
    struct tti_request *request = NULL;
    tti_actors_lock(actor->actors);
    if (!tti_list_is_empty(list)) {
        request = TTI_LIST_OF(list->next, struct tti_request, on);
        tti_list_remove(&request->on);
        request->queued = false;
    }
    tti_actors_unlock(actor->actors);
    return request;
}

static void answer_all(tutti_actor *actor, struct tti_link *list, const tutti_error *error)
{
    struct tti_request *request;
    int told = 0;
    while ((request = take_left(actor, list)) != NULL) {
        bool watches = list == &actor->watchers;
        told += request->seen.kind == TUTTI_TOLD;
        if (watches || request->seen.kind == TUTTI_ASKED)
            tti_request_end(request, watches ? actor->why : error, NULL, 0);
        tti_request_release(request);
    }
    if (told > 0)
        tti_log(TUTTI_WARN, "actor '%s' of rank %d ended before it handled %d requests that it was told", actor->name,
                actor->actors->comm->rank, told);
}

static void describe_end(const tutti_actor *actor, tutti_error *error)
{
    int rank = actor->actors->comm->rank;
    if (actor->why != NULL)
        tti_actors_describe(actor->actors, error, TTI_ACTOR_ASK, TUTTI_ERR_ACTOR, rank,
                            "actor '%s' of rank %d ended before it handled the request: %.300s", actor->name, rank,
                            actor->why->text);
    else
        tti_actors_describe(actor->actors, error, TTI_ACTOR_ASK, TUTTI_ERR_ACTOR, rank,
                            "actor '%s' of rank %d was stopped before it handled the request", actor->name, rank);
}

static void free_actor(tutti_actor *actor)
{
    tti_free(actor->failure);
    tti_free(actor->why);
    tti_free(actor->restarted_ns);
    tti_free(actor);
}

/* Ends the actor. From here on nobody finds it: requests are answered that there is no such actor. */
static void end(tutti_actor *actor)
{
    tutti_actors *actors = actor->actors;
    tutti_error error;
    forget_state(actor);
    describe_end(actor, &error);
    tti_actors_lock(actors);
    tti_actor_forget(actor);
    tti_actors_unlock(actors);
    answer_all(actor, &actor->taken, &error);
    answer_all(actor, &actor->mailbox, &error);
    answer_all(actor, &actor->watchers, &error);
    tti_actors_lock(actors);
    if (actor->parent != NULL) {
        tti_list_remove(&actor->sibling);
        if (actor->parent->phase != TTI_RUNNING) tti_actor_schedule(actor->parent);
    }
    if (actor->crew != actors->pool) tti_crew_stop(actor->crew);
    actors->actor_count--;
    free_actor(actor);
    tti_bell_ring(&actors->ended, false);
    tti_actors_unlock(actors);
}

void tti_actor_change(tutti_actor *actor)
{
    tutti_actors *actors = actor->actors;
    tti_actors_lock(actors);
    bool waits = !tti_list_is_empty(&actor->children);
    bool ends = actor->phase == TTI_STOPPING;
    if (waits) actor->scheduled = false; /* the last child schedules it again */
    tti_actors_unlock(actors);
    if (waits) return;
    if (ends)
        end(actor);
    else
        restart(actor);
}
