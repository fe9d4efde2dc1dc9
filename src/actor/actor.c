/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates, finds and stops actors by name.
 */
#include "actor/actors.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/latest.h"
#include "base/sized.h"
#include "base/status.h"
#include <ctype.h>
#include <string.h>

enum { MAILBOX = 1024, RESTARTS = 3, WINDOW_MS = 60000 };
enum { MAILBOX_MOST = 1 << 24, RESTARTS_MOST = 1 << 20 };

/* ---- Names ----------------------------------------------------------------------------------------------------- */

tutti_status tti_actor_check_name(const char *name, const char **why)
{
    size_t length = name == NULL ? 0 : strnlen(name, TUTTI_ACTOR_NAME_BYTES);
    *why = name == NULL ? "is NULL" : length == 0 ? "is empty" : "has more than 47 bytes";
    if (length == 0 || length == TUTTI_ACTOR_NAME_BYTES) return TUTTI_ERR_ARGUMENT;
    *why = "has a character that cannot be printed";
    for (size_t i = 0; i < length; i++)
        if (iscntrl((unsigned char)name[i])) return TUTTI_ERR_ARGUMENT;
    return TUTTI_OK;
}

static size_t bucket_of(const char *name)
{
    return tti_hash_bytes(TTI_HASH_START, name, strlen(name)) % TTI_ACTOR_BUCKETS;
}

tutti_actor *tti_actor_find(const tutti_actors *actors, const char *name)
{
    tutti_actor *actor = actors->buckets[bucket_of(name)];
    while (actor != NULL && strcmp(actor->name, name) != 0) actor = actor->next;
    return actor;
}

void tti_actor_forget(tutti_actor *actor)
{
    tutti_actor **link = &actor->actors->buckets[bucket_of(actor->name)];
    while (*link != actor) link = &(*link)->next;
    *link = actor->next;
}

const char *tutti_actor_name(const tutti_actor *self)
{
    return self->name;
}

tutti_actors *tutti_actor_actors(const tutti_actor *self)
{
    return self->actors;
}

/* ---- Creating -------------------------------------------------------------------------------------------------- */

static int positive_or(int value, int initial)
{
    return value == 0 ? initial : value;
}

/* Returns the given options, as far as their struct goes, with defaults for the rest. */
static tutti_actor_options options_of(const tutti_actor_options *given)
{
    tutti_actor_options options = {0};
    (void)tti_sized_take(&options, sizeof options, given);
    options.mailbox = positive_or(options.mailbox, MAILBOX);
    options.restarts = options.restarts == -1 ? 0 : positive_or(options.restarts, RESTARTS);
    if (options.restart_window_ms == 0) options.restart_window_ms = WINDOW_MS;
    return options;
}

static tutti_status check(tutti_actors *actors, const tutti_actor_options *given, tutti_actor_options *options)
{
    tutti_error error;
    const char *why = NULL;
    if (actors == NULL) return tti_latest_stray("actor_create", TUTTI_ERR_ARGUMENT, "actor_create: `actors` is NULL");
    if (actors->fork_count != tti_fork_count())
        return tti_latest_stray("actor_create", TUTTI_ERR_FORKED,
                                "actor_create: these actors belong to the parent process");
    if (given == NULL || given->struct_size == 0) {
        tti_actors_describe(actors, &error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1,
                            "actor_create: `options` is NULL, or its struct_size is not set");
        return tti_actors_refuse(actors, &error);
    }
    *options = options_of(given);
    if (tti_actor_check_name(options->name, &why) != TUTTI_OK)
        tti_actors_describe(actors, &error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1, "actor_create: `name` %s", why);
    else if (options->handle == NULL)
        tti_actors_describe(actors, &error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1, "actor_create: '%s' has no `handle`",
                            options->name);
    else if (options->mailbox < 1 || options->mailbox > MAILBOX_MOST || options->restarts < 0 ||
             options->restarts > RESTARTS_MOST || options->restart_window_ms < 1 ||
             options->restart_window_ms > TTI_WEEK_MS)
        tti_actors_describe(
            actors, &error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1,
            "actor_create: '%s' with a mailbox of %d and %d restarts in %lld ms; these are 1 to %d, -1 or up "
            "to %d, and 1 ms to a week",
            options->name, options->mailbox, options->restarts, (long long)options->restart_window_ms, MAILBOX_MOST,
            RESTARTS_MOST);
    else
        return TUTTI_OK;
    return tti_actors_refuse(actors, &error);
}

static tutti_actor *new_actor(tutti_actors *actors, const tutti_actor_options *options)
{
    tutti_actor *actor = tti_calloc(1, sizeof *actor);
    int64_t *times = tti_calloc((size_t)options->restarts + 1, sizeof *times);
    if (actor == NULL || times == NULL) {
        tti_free(actor);
        tti_free(times);
        return NULL;
    }
    actor->actors = actors;
    actor->options = *options;
    actor->restarted_ns = times;
    actor->phase = TTI_STARTING;
    snprintf(actor->name, sizeof actor->name, "%s", options->name);
    struct tti_link *lists[] = {&actor->children, &actor->sibling,  &actor->on,      &actor->mailbox, &actor->taken,
                                &actor->kept,     &actor->watchers, &actor->watches, &actor->timers};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) tti_list_init(lists[i]);
    return actor;
}

/* Takes the crew of a pinned actor that has ended. The lock is held. */
static struct tti_crew *take_ended_crew(tutti_actors *actors)
{
    for (struct tti_crew **link = &actors->pinned; *link != NULL; link = &(*link)->next) {
        struct tti_crew *crew = *link;
        if (!atomic_load_explicit(&crew->ended, memory_order_acquire)) continue;
        *link = crew->next;
        return crew;
    }
    return NULL;
}

static void free_ended_crews(tutti_actors *actors)
{
    struct tti_crew *crew;
    do {
        tti_actors_lock(actors);
        crew = take_ended_crew(actors);
        tti_actors_unlock(actors);
        if (crew != NULL) tti_crew_free(crew);
    } while (crew != NULL);
}

/* Adds the actor under its name; from now on requests to it are queued. The lock is held. */
static tutti_status enter(tutti_actor *actor, const char *parent, tutti_error *error)
{
    tutti_actors *actors = actor->actors;
    tutti_actor *above = parent == NULL ? NULL : tti_actor_find(actors, parent);
    if (actors->closing)
        return tti_actors_describe(actors, error, TTI_ACTORS, TUTTI_ERR_ACTOR, -1,
                                   "actor_create: rank %d is shutting down its actors", actors->comm->rank);
    if (tti_actor_find(actors, actor->name) != NULL)
        return tti_actors_describe(actors, error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1,
                                   "actor_create: rank %d has an actor '%s' already", actors->comm->rank, actor->name);
    if (parent != NULL && (above == NULL || above->phase == TTI_STOPPING))
        return tti_actors_describe(actors, error, TTI_ACTORS, TUTTI_ERR_ACTOR, -1,
                                   "actor_create: '%s' is to be a child of '%s', which rank %d %s", actor->name, parent,
                                   actors->comm->rank, above == NULL ? "does not have" : "is stopping");
    actor->parent = above;
    if (above != NULL) tti_list_append(&above->children, &actor->sibling);
    size_t bucket = bucket_of(actor->name);
    actor->next = actors->buckets[bucket];
    actors->buckets[bucket] = actor;
    actors->actor_count++;
    return TUTTI_OK;
}

/* Makes its first state. If that fails, its worker ends it, and answers the requests that have come. */
static tutti_status begin(tutti_actor *actor, tutti_error *error)
{
    tutti_actors *actors = actor->actors;
    const tutti_actor_options *options = &actor->options;
    actor->state = options->context;
    tutti_status status = options->start == NULL ? TUTTI_OK : options->start(actor, options->context, &actor->state);
    tti_actors_lock(actors);
    actor->has_state = status == TUTTI_OK;
    if (status != TUTTI_OK) tti_actor_describe_failure(actor, "start", status, error);
    actor->phase = status == TUTTI_OK && !actor->stop_asked ? TTI_RUNNING : TTI_STOPPING;
    if (actor->phase == TTI_STOPPING) tti_actor_stop(actor);
    tti_actor_schedule(actor);
    tti_actors_unlock(actors);
    return status == TUTTI_OK ? TUTTI_OK : error->status;
}

static struct tti_crew *crew_for(tutti_actors *actors, const tutti_actor_options *options, tutti_error *error)
{
    return options->pinned ? tti_crew_new(actors, 1, error) : actors->pool;
}

tutti_status tutti_actor_create(tutti_actors *actors, const tutti_actor_options *given)
{
    tutti_actor_options options;
    tutti_error error = {0};
    TTI_TRY(check(actors, given, &options));
    free_ended_crews(actors);
    tutti_actor *actor = new_actor(actors, &options);
    tti_actors_describe(actors, &error, TTI_ACTORS, TUTTI_ERR_MEMORY, -1, "no memory for actor '%s'", options.name);
    if (actor == NULL) return tti_actors_refuse(actors, &error);
    struct tti_crew *crew = actor->crew = crew_for(actors, &options, &error);
    tutti_status status = crew == NULL ? error.status : TUTTI_OK;
    tti_actors_lock(actors);
    if (crew != NULL && options.pinned) {
        crew->next = actors->pinned;
        actors->pinned = crew;
    }
    if (status == TUTTI_OK) status = enter(actor, options.parent, &error);
    if (status != TUTTI_OK && crew != NULL && options.pinned) tti_crew_stop(crew);
    tti_actors_unlock(actors);
    if (status != TUTTI_OK) {
        tti_free(actor->restarted_ns);
        tti_free(actor);
        return tti_actors_refuse(actors, &error);
    }
    status = begin(actor, &error);
    return status == TUTTI_OK ? TUTTI_OK : tti_actors_refuse(actors, &error);
}

/* ---- Stopping -------------------------------------------------------------------------------------------------- */

/* Stops the actor. If its first `start` runs, it is stopped after that. Its children are stopped with it. */
void tti_actor_stop(tutti_actor *actor)
{
    if (actor->phase == TTI_STARTING)
        actor->stop_asked = true;
    else
        actor->phase = TTI_STOPPING;
    atomic_store_explicit(&actor->wanted, true, memory_order_release);
    TTI_LIST_EACH(link, &actor->children) tti_actor_stop(TTI_LIST_OF(link, tutti_actor, sibling));
    tti_actor_schedule(actor);
}

tutti_status tutti_actor_stop(tutti_actors *actors, const char *name)
{
    tutti_error error;
    const char *why;
    if (actors == NULL || tti_actor_check_name(name, &why) != TUTTI_OK)
        return tti_latest_stray("actor_stop", TUTTI_ERR_ARGUMENT, "actor_stop: `actors` is NULL, or `name` is none");
    tti_actors_lock(actors);
    tutti_actor *actor = tti_actor_find(actors, name);
    if (actor != NULL) tti_actor_stop(actor);
    tti_actors_unlock(actors);
    if (actor != NULL) return TUTTI_OK;
    tti_actors_describe(actors, &error, TTI_ACTORS, TUTTI_ERR_ACTOR, -1, "actor_stop: rank %d has no actor '%s'",
                        actors->comm->rank, name);
    return tti_actors_refuse(actors, &error);
}
