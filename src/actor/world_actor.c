/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles the requests of a world's actor; makes such actors, and sends them requests.
 */
#define TUTTI_NO_CALL_SITES
#include "actor/collective_calls.h"
#include "actor/world_ranks.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/sized.h"
#include "base/status.h"
#include <stdio.h>
#include <string.h>

enum { WEEK_MS = 7 * 24 * 3600 * 1000, REBUILDS = 3, MOST_RANKS = 4096 };

/* ---- A request ----------------------------------------------------------------------------------------------------- */

/* Notes a failure of a rank whose actor has ended, or is about to: it takes no part. */
static void lose_rank(struct tti_thread_world_rank *rank, tutti_status status)
{
    const tutti_error *why = tutti_actors_error(rank->world->actors);
    rank->result.status = status;
    (void)snprintf(rank->result.text, sizeof rank->result.text, "%s",
                   why != NULL && why->status == status ? why->text : tutti_status_text(status));
}

/* Waits until that time for a rank that was asked. */
static void await_rank(struct tti_thread_world *world, int r, int64_t until_ns)
{
    struct tti_thread_world_rank *rank = &world->ranks[r];
    rank->late = false;
    if (world->ops[r].id == 0) return;
    tutti_status status = tutti_wait_for(world->ops[r], tti_left_ms(until_ns));
    rank->late = status == TUTTI_IN_PROGRESS;
    if (rank->late) return;
    world->ops[r] = (tutti_op){0};
    if (status != TUTTI_OK) lose_rank(rank, status);
}

/* Returns a rank that is late even then; NULL: all have returned. */
static const struct tti_thread_world_rank *await_all(struct tti_thread_world *world, int64_t until_ns)
{
    const struct tti_thread_world_rank *late = NULL;
    for (int r = 0; r < world->size; r++) {
        await_rank(world, r, until_ns);
        if (world->ranks[r].late && late == NULL) late = &world->ranks[r];
    }
    if (late == NULL) atomic_store(&world->running, false);
    return late;
}

/* Has all ranks do their part. Returns a rank that is late. */
static const struct tti_thread_world_rank *ask_all(struct tti_thread_world *world,
                                                   const struct tti_thread_world_part *part)
{
    tutti_actors *actors = world->actors;
    const int self = actors->comm->rank;
    atomic_store(&world->running, true);
    for (int r = 0; r < world->size; r++) {
        struct tti_thread_world_rank *rank = &world->ranks[r];
        world->ops[r] = (tutti_op){0};
        rank->result = (tutti_error){.rank = r, .peer = -1};
        tutti_status status = tutti_actor_ask_start(actors, self, rank->name, part, sizeof *part, NULL, 0, NULL,
                                                    WEEK_MS, &world->ops[r]);
        if (status == TUTTI_OK) continue;
        lose_rank(rank, status);
        tti_thread_world_revoke(rank);
    }
    return await_all(world, part->request->until_ns + TTI_THREAD_WORLD_PATIENCE_MS * TTI_MS);
}

/* Ranks failures by how likely the others come from them: first that of a rank whose comm was not broken until then,
 * next one that is not about other ranks. */
static int weight_of(const struct tti_thread_world_rank *rank)
{
    const tutti_status status = rank->result.status;
    if (rank->caused) return 2;
    return status != TUTTI_ERR_CANCELLED && status != TUTTI_ERR_PEER_LOST;
}

/* Returns the rank whose failure is reported; NULL: all ranks are done. */
static const struct tti_thread_world_rank *find_failure(const struct tti_thread_world *world)
{
    const struct tti_thread_world_rank *found = NULL;
    for (int r = 0; r < world->size; r++) {
        const struct tti_thread_world_rank *rank = &world->ranks[r];
        if (rank->result.status == TUTTI_OK) continue;
        if (found == NULL || weight_of(rank) > weight_of(found)) found = rank;
    }
    return found;
}

/* Returns true if a rank failed, and not its request. */
static bool is_loss(tutti_status status)
{
    return status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_CANCELLED || status == TUTTI_ERR_ACTOR ||
           status == TUTTI_ERR_DEVICE;
}

static tutti_status refuse_failed(tutti_request *request, const struct tti_thread_world_rank *rank, int attempt)
{
    const char *text = rank->result.text[0] == '\0' ? tutti_status_text(rank->result.status) : rank->result.text;
    char all[sizeof rank->result.text], tried[48] = "";
    if (attempt > 1) (void)snprintf(tried, sizeof tried, " (tried %d times)", attempt);
    (void)snprintf(all, sizeof all, "rank %d of world '%s'%s: %.380s", rank->number, rank->world->name, tried, text);
    return tutti_request_refuse(request, rank->result.status, all);
}

/* Answers a request that cannot be carried out, or ended, because of a rank that is late. */
static tutti_status refuse_late(tutti_request *request, const struct tti_thread_world_rank *rank)
{
    const int64_t past_ms = (tti_now_ns() - rank->world->asked->until_ns) / TTI_MS;
    char text[256];
    (void)snprintf(
        text, sizeof text,
        "rank %d of world '%s': its function has not returned, %lld ms after its request's deadline; a thread "
        "cannot be ended, so nothing else is carried out before it returns",
        rank->number, rank->world->name, (long long)past_ms);
    return tutti_request_refuse(request, TUTTI_ERR_TIMEOUT, text);
}

/* Makes the world anew. OK: it is whole again. */
static tutti_status recover(tutti_actor *self, struct tti_thread_world *world)
{
    tutti_error error = {0};
    if (world->failures++ >= (world->rebuilds < 0 ? 0 : world->rebuilds))
        return tutti_actor_fail(self, TUTTI_ERR_LIMIT, "its world failed too often in a row");
    world->generation++;
    tutti_status status = tti_thread_world_make(world, &error);
    return status == TUTTI_OK ? TUTTI_OK : tutti_actor_fail(self, status, error.text);
}

static tutti_status carry_out(tutti_actor *self, struct tti_thread_world *world, tutti_request *request)
{
    const struct tti_thread_world_asked *asked = world->asked;
    for (int attempt = 1;; attempt++) {
        if (tti_now_ns() >= asked->until_ns)
            return tutti_request_refuse(request, TUTTI_ERR_TIMEOUT, "its deadline has passed");
        const struct tti_thread_world_rank *late = ask_all(world, &(struct tti_thread_world_part){asked, attempt});
        if (late != NULL) return refuse_late(request, late);
        const struct tti_thread_world_rank *failed = find_failure(world);
        if (failed == NULL) {
            world->failures = 0;
            return tutti_request_answer(request, NULL, 0);
        }
        const bool again = attempt <= asked->retries && is_loss(failed->result.status);
        if (!again) (void)refuse_failed(request, failed, attempt);
        tutti_status status = recover(self, world);
        if (status != TUTTI_OK && again) (void)refuse_failed(request, failed, attempt);
        if (status != TUTTI_OK || !again) return status;
    }
}

/* Waits for ranks that were late in an earlier request, as long as this one may take, and makes the world anew. */
static tutti_status await_late(tutti_actor *self, struct tti_thread_world *world, tutti_request *request,
                               int64_t until_ns, bool *goes_on)
{
    *goes_on = !atomic_load(&world->running);
    if (*goes_on) return TUTTI_OK;
    const struct tti_thread_world_rank *late = await_all(world, until_ns);
    if (late != NULL) return refuse_late(request, late);
    *goes_on = true;
    return recover(self, world);
}

/* The request is copied, since a late rank may use it when it was answered long ago. */
static tutti_status handle_request(tutti_actor *self, struct tti_thread_world *world, tutti_request *request)
{
    bool goes_on;
    const struct tti_thread_world_asked *asked = request->data;
    tutti_status status = await_late(self, world, request, asked->until_ns, &goes_on);
    if (status != TUTTI_OK || !goes_on) return status;
    tti_free(world->asked);
    world->asked = tti_malloc(1, request->bytes);
    if (world->asked == NULL) return tutti_request_refuse(request, TUTTI_ERR_MEMORY, "no memory for a request");
    memcpy(world->asked, request->data, request->bytes);
    return carry_out(self, world, request);
}

/* Makes the world at its first request: before that it cannot be the parent of the ranks' actors. */
static tutti_status open_world(tutti_actor *self, struct tti_thread_world *world, tutti_request *request)
{
    tutti_error error = {0};
    tutti_status status = tti_thread_world_make(world, &error);
    world->made = status == TUTTI_OK;
    if (status == TUTTI_OK) return TUTTI_OK;
    (void)tutti_request_refuse(request, status, error.text);
    return tutti_actor_fail(self, status, error.text);
}

static tutti_status handle(tutti_actor *self, void *state, tutti_request *request)
{
    struct tti_thread_world *world = state;
    if (!world->made) TTI_TRY(open_world(self, world, request));
    if (request->kind == TUTTI_ASKED && request->bytes == 0) return tutti_request_answer(request, NULL, 0);
    if (request->kind != TUTTI_ASKED || request->bytes < sizeof(struct tti_thread_world_asked) ||
        request->rank != world->actors->comm->rank)
        return tutti_request_refuse(request, TUTTI_ERR_ARGUMENT,
                                    "a world does the requests of its own process (tutti_world_do)");
    return handle_request(self, world, request);
}

static void end_world(tutti_actor *self, void *state)
{
    (void)self;
    tti_thread_world_free(state);
}

/* ---- Making one ---------------------------------------------------------------------------------------------------- */

static tutti_status refuse_as(tutti_actors *actors, tutti_status status, const char *call, const char *text)
{
    tutti_error error;
    (void)tti_actors_describe(actors, &error, TTI_ACTORS, status, -1, "%s: %s", call, text);
    return tti_actors_refuse(actors, &error);
}

static tutti_status refuse(tutti_actors *actors, const char *call, const char *text)
{
    return refuse_as(actors, TUTTI_ERR_ARGUMENT, call, text);
}

/* Copies the n-th name of a list "a,b,c"; returns how many there are. */
static int device_of(const char *list, int number, char name[TTI_THREAD_WORLD_DEVICE_BYTES])
{
    int count = 0;
    for (const char *at = list; at != NULL && *at != '\0'; count++) {
        const size_t length = strcspn(at, ",");
        if (count == number && length < TTI_THREAD_WORLD_DEVICE_BYTES)
            (void)snprintf(name, TTI_THREAD_WORLD_DEVICE_BYTES, "%.*s", (int)length, at);
        at += length;
        if (*at == ',') at++;
    }
    return count;
}

static const char *check_options(const tutti_world_actor_options *options, const char *name)
{
    if (name == NULL || strlen(name) + 6 > TUTTI_ACTOR_NAME_BYTES) return "its name is to have 1 to 42 bytes";
    if (options->ranks < 0 || options->ranks > MOST_RANKS) return "a world has 1 to 4096 ranks";
    if (options->ranks == 0 && device_of(options->devices, -1, NULL) == 0)
        return "it needs a number of ranks, or devices, such as \"cuda:0,cuda:1\"";
    return options->queue < 0 ? "queue must be 0, for the default, or more" : NULL;
}

static struct tti_thread_world *new_world(tutti_actors *actors, const char *name,
                                          const tutti_world_actor_options *options)
{
    const int devices = device_of(options->devices, -1, NULL), size = options->ranks > 0 ? options->ranks : devices;
    struct tti_thread_world *world = tti_calloc(1, sizeof *world);
    if (world == NULL) return NULL;
    *world = (struct tti_thread_world){.actors = actors,
                                       .size = size,
                                       .rebuilds = options->rebuilds == 0 ? REBUILDS : options->rebuilds,
                                       .ops = tti_calloc((size_t)size, sizeof *world->ops),
                                       .ranks = tti_calloc((size_t)size, sizeof *world->ranks)};
    (void)snprintf(world->name, sizeof world->name, "%s", name);
    for (int r = 0; world->ranks != NULL && r < size; r++) {
        world->ranks[r].world = world;
        world->ranks[r].number = r;
        (void)snprintf(world->ranks[r].name, sizeof world->ranks[r].name, "%s.%d", world->name, r);
        if (devices > 0) (void)device_of(options->devices, r % devices, world->ranks[r].device_name);
    }
    if (world->ops != NULL && world->ranks != NULL) return world;
    world->size = 0;
    tti_thread_world_free(world);
    return NULL;
}

/* Makes the world by a first request. If that fails, its actor ends, and the name is free again. */
static tutti_status open_first(tutti_actors *actors, const char *name)
{
    const int self = actors->comm->rank;
    tutti_op ended;
    tutti_status watched = tutti_actor_watch_start(actors, self, name, &ended);
    tutti_status status = tutti_actor_ask(actors, self, name, NULL, 0, NULL, 0, NULL, 0);
    if (watched != TUTTI_OK) return status;
    if (status == TUTTI_OK) return tutti_drop(ended);
    const tutti_error *why = tutti_actors_error(actors);
    const tutti_error error = why == NULL ? (tutti_error){.status = status} : *why;
    (void)tutti_wait(ended);
    return tti_actors_refuse(actors, &error);
}

static tutti_status start_world(tutti_actors *actors, struct tti_thread_world *world, const char *name, int queue)
{
    tutti_actor_options options = {.struct_size = sizeof options,
                                   .name = world->name,
                                   .context = world,
                                   .handle = handle,
                                   .stop = end_world,
                                   .decide = tti_thread_world_end_it,
                                   .mailbox = queue,
                                   .pinned = true};
    tutti_status status = tutti_actor_create(actors, &options);
    if (status != TUTTI_OK) {
        tti_thread_world_free(world);
        return status;
    }
    return open_first(actors, name);
}

tutti_status tutti_world_actor(tutti_actors *actors, const char *name, const tutti_world_actor_options *given)
{
    tutti_world_actor_options options = {0};
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    if (given != NULL && !tti_sized_take(&options, sizeof options, given))
        return refuse(actors, "world_actor", "set struct_size to sizeof(tutti_world_actor_options)");
    const char *why = check_options(&options, name);
    if (why != NULL) return refuse(actors, "world_actor", why);
    struct tti_thread_world *world = new_world(actors, name, &options);
    return world == NULL ? TUTTI_ERR_MEMORY : start_world(actors, world, name, options.queue);
}

/* ---- Asking ---------------------------------------------------------------------------------------------------------- */

/* Returns how many ranks the world with that name has; 0: there is none; -1: it is about to end, and may be freed at
 * any moment. */
static int size_of(tutti_actors *actors, const char *name)
{
    const char *why;
    if (tti_actor_check_name(name, &why) != TUTTI_OK) return 0;
    tti_actors_lock(actors);
    const tutti_actor *actor = tti_actor_find(actors, name);
    int size = 0;
    if (actor != NULL && actor->options.handle == handle) {
        const struct tti_thread_world *world = actor->options.context;
        size = actor->phase == TTI_STOPPING ? -1 : world->size;
    }
    tti_actors_unlock(actors);
    return size;
}

static tutti_status make_request(tutti_actors *actors, const char *name, const tutti_world_request *given,
                                 struct tti_thread_world_asked **made, size_t *bytes)
{
    const int size = size_of(actors, name);
    if (size == 0) return refuse(actors, "world_do", "there is no world of that name");
    if (size < 0) return refuse_as(actors, TUTTI_ERR_ACTOR, "world_do", "this world is about to end");
    const size_t count = given->work == NULL ? given->count * (size_t)size : 0;
    if (given->work != NULL && given->count > 0) return refuse(actors, "world_do", "it has work, or calls, not both");
    if (given->retries < 0 || given->deadline_ms < 0)
        return refuse(actors, "world_do", "retries and deadline_ms must be 0 or more");
    const char *why = given->work == NULL ? tti_collective_check(given->calls, count) : NULL;
    if (why != NULL) return refuse(actors, "world_do", why);
    struct tti_thread_world_asked *request = *made = tti_calloc(1, *bytes = sizeof *request +
                                                                            count * sizeof *given->calls);
    if (request == NULL) return TUTTI_ERR_MEMORY;
    request->work = given->work;
    request->context = given->context;
    request->until_ns = tti_until_ns(actors, given->deadline_ms);
    request->count = given->count;
    request->retries = given->retries;
    if (count > 0) memcpy(request->calls, given->calls, count * sizeof *given->calls);
    return TUTTI_OK;
}

tutti_status tutti_world_do_start(tutti_actors *actors, const char *name, const tutti_world_request *given,
                                  tutti_op *op)
{
    tutti_world_request known = {0};
    struct tti_thread_world_asked *request = NULL;
    size_t bytes = 0;
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    if (given != NULL && !tti_sized_take(&known, sizeof known, given))
        return refuse(actors, "world_do", "set struct_size to sizeof(tutti_world_request)");
    TTI_TRY(make_request(actors, name, &known, &request, &bytes));
    tutti_status status = tutti_actor_ask_start(actors, actors->comm->rank, name, request, bytes, NULL, 0, NULL,
                                                tti_left_ms(request->until_ns) + TTI_THREAD_WORLD_GRACE_MS, op);
    tti_free(request);
    return status;
}

tutti_status tutti_world_do(tutti_actors *actors, const char *name, const tutti_world_request *request)
{
    tutti_op op;
    TTI_TRY(tutti_world_do_start(actors, name, request, &op));
    return tutti_wait(op);
}
