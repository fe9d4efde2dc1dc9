/* SPDX-License-Identifier: Apache-2.0
 *
 * A request from its start to its one answer. A call that is refused leaves no trace; a request that was started ends
 * in tti_request_end.
 */
#include "actor/actors.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/latest.h"
#include "base/status.h"
#include "collective/op/callback.h"
#include <string.h>

/* ---- Making and freeing ---------------------------------------------------------------------------------------- */

static struct tti_request *request_with(struct tti_external *external)
{
    return TTI_LIST_OF(external, struct tti_request, op);
}

struct tti_request *tti_request_new(tutti_actors *actors, tutti_request_kind kind, const char *name, const void *data,
                                    size_t bytes)
{
    struct tti_request *request = tti_malloc(1, sizeof *request + bytes);
    if (request == NULL) return NULL;
    memset(request, 0, sizeof *request);
    request->seen = (tutti_request){.struct_size = sizeof(tutti_request),
                                    .kind = kind,
                                    .rank = actors->comm->rank,
                                    .data = request->data,
                                    .bytes = bytes};
    request->actors = actors;
    request->source = -1;
    request->peer = actors->comm->rank;
    atomic_store_explicit(&request->users, 1, memory_order_relaxed);
    tti_list_init(&request->on);
    tti_list_init(&request->of);
    memcpy(request->name, name, strnlen(name, sizeof request->name - 1)); /* the rest stays 0 */
    if (data != NULL) memcpy(request->data, data, bytes);
    return request;
}

void tti_request_hold(struct tti_request *request)
{
    atomic_fetch_add_explicit(&request->users, 1, memory_order_relaxed);
}

void tti_request_release(struct tti_request *request)
{
    if (atomic_fetch_sub_explicit(&request->users, 1, memory_order_acq_rel) != 1) return;
    tti_free(request->error);
    tti_free(request);
}

/* ---- Numbers --------------------------------------------------------------------------------------------------- */

static bool more_numbers(struct tti_numbers *numbers)
{
    uint32_t count = numbers->count == 0 ? 64 : 2 * numbers->count;
    struct tti_number *places = tti_calloc(count, sizeof *places);
    if (places == NULL) return false;
    if (numbers->places != NULL) memcpy(places, numbers->places, numbers->count * sizeof *places);
    for (uint32_t i = count; i-- > numbers->count;) {
        places[i].next_free = numbers->free;
        numbers->free = i + 1;
    }
    tti_free(numbers->places);
    numbers->places = places;
    numbers->count = count;
    return true;
}

uint64_t tti_number_add(tutti_actors *actors, struct tti_request *request)
{
    struct tti_numbers *numbers = &actors->numbers;
    if (numbers->free == 0 && !more_numbers(numbers)) return 0;
    uint32_t place = numbers->free;
    struct tti_number *number = &numbers->places[place - 1];
    numbers->free = number->next_free;
    number->request = request;
    return (uint64_t)++number->uses << 32 | place;
}

static struct tti_number *number_at(const tutti_actors *actors, uint64_t number)
{
    uint32_t place = (uint32_t)number;
    if (place == 0 || place > actors->numbers.count) return NULL;
    struct tti_number *found = &actors->numbers.places[place - 1];
    return found->request != NULL && found->uses == (uint32_t)(number >> 32) ? found : NULL;
}

struct tti_request *tti_number_find(const tutti_actors *actors, uint64_t number)
{
    const struct tti_number *found = number_at(actors, number);
    return found == NULL ? NULL : found->request;
}

void tti_number_remove(tutti_actors *actors, uint64_t number)
{
    struct tti_number *found = number_at(actors, number);
    if (found == NULL) return;
    found->request = NULL;
    found->next_free = actors->numbers.free;
    actors->numbers.free = (uint32_t)number;
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

/* Removes the request from the lists that it is on. Returns how many users it has lost by that. The lock is held. */
static int take_back(struct tti_request *request)
{
    tutti_actors *actors = request->actors;
    int users = 0;
    tti_due_remove(actors, &request->due);
    if (request->pending != 0) {
        tti_number_remove(actors, request->pending);
        request->pending = 0;
        users++;
    }
    if (request->queued && request->seen.kind == TUTTI_ENDED) {
        tti_list_remove(&request->on);
        request->queued = false;
        users++;
    }
    return users;
}

static void end_op(struct tti_request *request, const tutti_error *error, const void *data, size_t bytes)
{
    tutti_actors *actors = request->actors;
    tutti_error truncated;
    if (error == NULL && bytes > request->room) {
        tti_actors_describe(actors, &truncated, TTI_ACTOR_ASK, TUTTI_ERR_TRUNCATED, request->peer,
                            "the answer of actor '%s' of rank %d has %zu bytes, and there is room for %zu",
                            request->name, request->peer, bytes, request->room);
        error = &truncated;
    }
    tti_actors_lock(actors);
    int users = take_back(request);
    if (error != NULL) tti_actors_note(actors, error);
    tti_actors_unlock(actors);
    size_t copied = bytes < request->room ? bytes : request->room;
    if (data != NULL && copied > 0) memcpy(request->answer, data, copied);
    if (request->received != NULL) *request->received = copied;
    tti_external_end(&request->op, error);
    while (users-- > 0) tti_request_release(request);
}

static void tell_watcher(struct tti_request *request, const tutti_error *error)
{
    tutti_actors *actors = request->actors;
    tutti_error *why = error == NULL ? NULL : tti_calloc(1, sizeof *why);
    if (why != NULL) *why = *error;
    tti_actors_lock(actors);
    int users = take_back(request);
    tutti_actor *watcher = request->watcher;
    request->watcher = NULL;
    if (watcher != NULL) {
        tti_list_remove(&request->of);
        request->error = why;
        request->seen.error = why;
        request->seen.rank = request->peer;
        request->seen.name = request->name;
        tti_request_hold(request);
        tti_list_append(&watcher->mailbox, &request->on);
        tti_actor_schedule(watcher);
    }
    tti_actors_unlock(actors);
    if (watcher == NULL) tti_free(why);
    while (users-- > 0) tti_request_release(request);
}

bool tti_request_end(struct tti_request *request, const tutti_error *error, const void *data, size_t bytes)
{
    if (atomic_exchange_explicit(&request->answered, true, memory_order_acq_rel)) return false;
    if (request->source >= 0)
        tti_remote_answer(request, error, data, bytes);
    else if (request->has_op)
        end_op(request, error, data, bytes);
    else if (request->seen.kind == TUTTI_ENDED)
        tell_watcher(request, error);
    return true;
}

/* Returns the next pending request from this place on, held; NULL: there is none. */
static struct tti_request *next_pending(tutti_actors *actors, int peer, uint32_t *place)
{
    struct tti_request *found = NULL;
    tti_actors_lock(actors);
    for (; *place < actors->numbers.count && found == NULL; (*place)++) {
        struct tti_request *request = actors->numbers.places[*place].request;
        if (request != NULL && request->pending != 0 && (peer < 0 || request->peer == peer)) found = request;
    }
    if (found != NULL) tti_request_hold(found);
    tti_actors_unlock(actors);
    return found;
}

void tti_requests_end_pending(tutti_actors *actors, int peer, const tutti_error *error)
{
    uint32_t place = 0;
    struct tti_request *request;
    while ((request = next_pending(actors, peer, &place)) != NULL) {
        tti_request_end(request, error, NULL, 0);
        tti_request_release(request);
    }
}

/* ---- As an op -------------------------------------------------------------------------------------------------- */

static void op_hold(struct tti_external *external)
{
    tti_request_hold(request_with(external));
}

static void op_release(struct tti_external *external)
{
    struct tti_request *request = request_with(external);
    if (request->awaited) { /* tutti_actors_free may wait for this */
        atomic_fetch_sub_explicit(&request->actors->awaiting, 1, memory_order_release);
        request->awaited = false;
    }
    tti_request_release(request);
}

static void op_cancel(struct tti_external *external)
{
    struct tti_request *request = request_with(external);
    tutti_error error;
    tti_actors_describe(request->actors, &error, TTI_ACTOR_ASK, TUTTI_ERR_CANCELLED, request->peer,
                        "the request to actor '%s' of rank %d was cancelled; it may still be handled", request->name,
                        request->peer);
    tti_request_end(request, &error, NULL, 0);
}

/* Explains that a handler which waits for its own actor waits for itself. */
static tutti_status describe_own(const tutti_actors *actors, const char *name, tutti_error *error)
{
    return tti_actors_describe(
        actors, error, TTI_ACTOR_ASK, TUTTI_ERR_ARGUMENT, actors->comm->rank,
        "actor '%s' of rank %d would wait for its own answer, which it can give only after it has "
        "returned; use tutti_when_ended, or tell",
        name, actors->comm->rank);
}

static tutti_status op_may_wait(struct tti_external *external, tutti_error *error)
{
    struct tti_request *request = request_with(external);
    const struct tti_worker *worker = tti_worker_here();
    if (worker != NULL && worker->running != NULL && worker->running == request->actor)
        return describe_own(request->actors, request->name, error);
    if (!request->awaited) {
        request->awaited = true;
        atomic_fetch_add_explicit(&request->actors->awaiting, 1, memory_order_relaxed);
    }
    return TUTTI_OK;
}

static const struct tti_external_ops request_ops = {
    .hold = op_hold, .release = op_release, .cancel = op_cancel, .may_wait = op_may_wait};

/* ---- Starting one ---------------------------------------------------------------------------------------------- */

/* The arguments of a call, checked. */
struct asked {
    tutti_actors *actors;
    enum tti_kind kind; /* TTI_ACTOR_ASK, …_TELL, …_WATCH */
    int rank;
    const char *name;
    const void *data;
    size_t bytes;
    int64_t deadline_ms;
};

static tutti_status check(const struct asked *asked, const void *answer, size_t answer_bytes)
{
    tutti_actors *actors = asked->actors;
    enum tti_kind kind = asked->kind;
    tutti_error error;
    const char *why = NULL;
    if (actors == NULL)
        return tti_latest_stray(tti_kind_name(kind), TUTTI_ERR_ARGUMENT, "%s: `actors` is NULL", tti_kind_name(kind));
    if (actors->fork_count != tti_fork_count())
        return tti_latest_stray(tti_kind_name(kind), TUTTI_ERR_FORKED, "%s: these actors belong to the parent process",
                                tti_kind_name(kind));
    if (asked->rank < 0 || asked->rank >= actors->comm->size)
        tti_actors_describe(actors, &error, kind, TUTTI_ERR_RANK, -1, "%s: rank %d; the ranks are 0 to %d",
                            tti_kind_name(kind), asked->rank, actors->comm->size - 1);
    else if (tti_actor_check_name(asked->name, &why) != TUTTI_OK)
        tti_actors_describe(actors, &error, kind, TUTTI_ERR_ARGUMENT, -1, "%s: `name` %s", tti_kind_name(kind), why);
    else if ((asked->data == NULL && asked->bytes > 0) || (answer == NULL && answer_bytes > 0))
        tti_actors_describe(actors, &error, kind, TUTTI_ERR_ARGUMENT, -1, "%s: `%s` is NULL", tti_kind_name(kind),
                            asked->data == NULL && asked->bytes > 0 ? "data" : "answer");
    else if (asked->bytes > actors->options.payload_bytes)
        tti_actors_describe(actors, &error, kind, TUTTI_ERR_COUNT, -1,
                            "%s: %zu bytes for actor '%s' of rank %d, and a request has at most %zu; set payload_bytes "
                            "of tutti_actors_options, or send them by a comm",
                            tti_kind_name(kind), asked->bytes, asked->name, asked->rank, actors->options.payload_bytes);
    else if (asked->deadline_ms < 0 || asked->deadline_ms > TTI_WEEK_MS)
        tti_actors_describe(actors, &error, kind, TUTTI_ERR_ARGUMENT, -1,
                            "%s: a deadline of %lld ms; it is 1 ms to a week, and 0 the default", tti_kind_name(kind),
                            (long long)asked->deadline_ms);
    else
        return TUTTI_OK;
    return tti_actors_refuse(actors, &error);
}

static struct tti_request *new_request(const struct asked *asked)
{
    static const tutti_request_kind kinds[] = {TUTTI_ASKED, TUTTI_TOLD, TUTTI_ENDED};
    struct tti_request *request = tti_request_new(asked->actors, kinds[asked->kind - TTI_ACTOR_ASK], asked->name,
                                                  asked->data, asked->bytes);
    if (request == NULL) return NULL;
    request->peer = asked->rank;
    request->deadline_ms = asked->deadline_ms != 0 ? asked->deadline_ms : asked->actors->options.deadline_ms;
    return request;
}

tutti_status tti_request_deliver(struct tti_request *request, enum tti_kind kind, tutti_error *error)
{
    tutti_actors *actors = request->actors;
    tutti_actor *actor = tti_actor_find(actors, request->name);
    int rank = actors->comm->rank;
    if (actors->closing || actor == NULL || actor->phase == TTI_STOPPING)
        return tti_actors_describe(actors, error, kind, TUTTI_ERR_ACTOR, rank,
                                   actors->closing ? "rank %d is shutting down its actors, '%s' among them"
                                   : actor == NULL ? "rank %d has no actor '%s'"
                                                   : "rank %d is stopping actor '%s'",
                                   rank, request->name);
    if (kind == TTI_ACTOR_WATCH) {
        request->queued = true;
        tti_list_append(&actor->watchers, &request->on);
        return TUTTI_OK;
    }
    if (atomic_load_explicit(&actor->queued, memory_order_relaxed) >= actor->options.mailbox)
        return tti_actors_describe(actors, error, kind, TUTTI_ERR_FULL, rank,
                                   "the mailbox of actor '%s' of rank %d is full: %d requests wait in it; ask again "
                                   "later, or give it a larger one",
                                   request->name, rank, actor->options.mailbox);
    atomic_fetch_add_explicit(&actor->queued, 1, memory_order_relaxed);
    request->actor = actor;
    tti_list_append(&actor->mailbox, &request->on);
    tti_actor_schedule(actor);
    return TUTTI_OK;
}

static tutti_status no_memory(const struct asked *asked, tutti_error *error)
{
    return tti_actors_describe(asked->actors, error, asked->kind, TUTTI_ERR_MEMORY, -1,
                               "no memory for a request to actor '%s' of rank %d", asked->name, asked->rank);
}

/* Delivers a request, or gives it a number by which the answer of another rank will find it. The lock is held. */
static tutti_status enlist(struct tti_request *request, const struct asked *asked, tutti_error *error)
{
    tutti_actors *actors = asked->actors;
    bool local = asked->rank == actors->comm->rank;
    if (!local && actors->closing)
        return tti_actors_describe(actors, error, asked->kind, TUTTI_ERR_ACTOR, asked->rank,
                                   "rank %d is shutting down its actors, and asks nobody any more", actors->comm->rank);
    if (!local && !tti_remote_is_there(actors, asked->rank, error)) return error->status;
    request->due.at_ns = tti_now_ns() + request->deadline_ms * TTI_MS;
    if (asked->kind != TTI_ACTOR_WATCH && !tti_due_add(actors, &request->due)) return no_memory(asked, error);
    if (local) return tti_request_deliver(request, asked->kind, error);
    request->pending = tti_number_add(actors, request);
    return request->pending != 0 ? TUTTI_OK : no_memory(asked, error);
}

/* Starts a request with an op. If it fails, nothing is left of it. */
static tutti_status start(struct tti_request *request, const struct asked *asked, tutti_op *op)
{
    tutti_actors *actors = asked->actors;
    tutti_error error;
    request->has_op = true;
    request->op.ops = &request_ops;
    tti_request_hold(request); /* for the handle */
    tti_request_hold(request); /* for this call */
    tutti_op made = tti_external_start(&request->op, actors->comm, asked->kind);
    tti_actors_lock(actors);
    tutti_status status = made.id == 0 ? no_memory(asked, &error) : enlist(request, asked, &error);
    if (status != TUTTI_OK) tti_due_remove(actors, &request->due);
    tti_actors_unlock(actors);
    if (status == TUTTI_OK) {
        *op = made;
        if (asked->rank != actors->comm->rank) tti_remote_ask(request, asked->kind);
        if (asked->kind == TTI_ACTOR_TELL && asked->rank == actors->comm->rank) tti_request_end(request, NULL, NULL, 0);
        tti_request_release(request);
        return TUTTI_OK;
    }
    if (made.id != 0) {
        tti_external_end(&request->op, NULL);
        tutti_drop(made);
    } else {
        tti_request_release(request);
    }
    tti_request_release(request);
    tti_request_release(request);
    return tti_actors_refuse(actors, &error);
}

static tutti_status ask_checked(const struct asked *asked, void *answer, size_t answer_bytes, size_t *received,
                                tutti_op *op)
{
    tutti_error error;
    struct tti_request *request = new_request(asked);
    if (request == NULL) {
        no_memory(asked, &error);
        return tti_actors_refuse(asked->actors, &error);
    }
    request->answer = answer;
    request->room = answer_bytes;
    request->received = received;
    return start(request, asked, op);
}

static tutti_status ask(const struct asked *asked, void *answer, size_t answer_bytes, size_t *received, tutti_op *op)
{
    if (op == NULL)
        return tti_latest_stray(tti_kind_name(asked->kind), TUTTI_ERR_ARGUMENT, "%s: `op` is NULL",
                                tti_kind_name(asked->kind));
    TTI_TRY(check(asked, answer, answer_bytes));
    return ask_checked(asked, answer, answer_bytes, received, op);
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

tutti_status tutti_actor_ask_start(tutti_actors *actors, int rank, const char *name, const void *data, size_t bytes,
                                   void *answer, size_t answer_bytes, size_t *received, int64_t deadline_ms,
                                   tutti_op *op)
{
    struct asked asked = {actors, TTI_ACTOR_ASK, rank, name, data, bytes, deadline_ms};
    return ask(&asked, answer, answer_bytes, received, op);
}

/* Checks, before anything is asked, that the calling thread may wait for the answer. */
static tutti_status may_wait(const struct asked *asked)
{
    tutti_actors *actors = asked->actors;
    const struct tti_worker *worker = tti_worker_here();
    tutti_error error;
    bool own = worker != NULL && worker->running != NULL && worker->running->actors == actors &&
               asked->rank == actors->comm->rank && strcmp(worker->running->name, asked->name) == 0;
    if (tti_is_in_callback())
        tti_actors_describe(actors, &error, asked->kind, TUTTI_ERR_ARGUMENT, asked->rank,
                            "%s: a callback of tutti_when_ended must not wait; start it, with a callback of its own",
                            tti_kind_name(asked->kind));
    else if (own && asked->kind == TTI_ACTOR_ASK)
        describe_own(actors, asked->name, &error);
    else
        return TUTTI_OK;
    return tti_actors_refuse(actors, &error);
}

tutti_status tutti_actor_ask(tutti_actors *actors, int rank, const char *name, const void *data, size_t bytes,
                             void *answer, size_t answer_bytes, size_t *received, int64_t deadline_ms)
{
    struct asked asked = {actors, TTI_ACTOR_ASK, rank, name, data, bytes, deadline_ms};
    tutti_op op;
    TTI_TRY(check(&asked, answer, answer_bytes));
    TTI_TRY(may_wait(&asked));
    TTI_TRY(ask_checked(&asked, answer, answer_bytes, received, &op));
    return tutti_wait(op);
}

tutti_status tutti_actor_tell_start(tutti_actors *actors, int rank, const char *name, const void *data, size_t bytes,
                                    tutti_op *op)
{
    struct asked asked = {actors, TTI_ACTOR_TELL, rank, name, data, bytes, 0};
    return ask(&asked, NULL, 0, NULL, op);
}

/* Tells an actor of this rank: nothing has to be waited for. */
static tutti_status tell_here(const struct asked *asked)
{
    tutti_actors *actors = asked->actors;
    tutti_error error;
    struct tti_request *request = new_request(asked);
    tutti_status status = TUTTI_ERR_MEMORY;
    if (request == NULL) {
        no_memory(asked, &error);
        return tti_actors_refuse(actors, &error);
    }
    tti_actors_lock(actors);
    status = tti_request_deliver(request, TTI_ACTOR_TELL, &error);
    tti_actors_unlock(actors);
    if (status == TUTTI_OK) return TUTTI_OK;
    tti_request_release(request);
    return tti_actors_refuse(actors, &error);
}

tutti_status tutti_actor_tell(tutti_actors *actors, int rank, const char *name, const void *data, size_t bytes)
{
    struct asked asked = {actors, TTI_ACTOR_TELL, rank, name, data, bytes, 0};
    tutti_op op;
    TTI_TRY(check(&asked, NULL, 0));
    if (rank == actors->comm->rank) return tell_here(&asked);
    TTI_TRY(may_wait(&asked));
    TTI_TRY(ask_checked(&asked, NULL, 0, NULL, &op));
    return tutti_wait(op);
}

tutti_status tutti_actor_watch_start(tutti_actors *actors, int rank, const char *name, tutti_op *op)
{
    struct asked asked = {actors, TTI_ACTOR_WATCH, rank, name, NULL, 0, 0};
    return ask(&asked, NULL, 0, NULL, op);
}

/* If the watch cannot be started, the watcher is told the error. */
tutti_status tutti_actor_watch(tutti_actor *self, int rank, const char *name)
{
    struct asked asked = {self->actors, TTI_ACTOR_WATCH, rank, name, NULL, 0, 0};
    tutti_actors *actors = self->actors;
    tutti_error error;
    TTI_TRY(check(&asked, NULL, 0));
    struct tti_request *request = new_request(&asked);
    if (request == NULL) {
        no_memory(&asked, &error);
        return tti_actors_refuse(actors, &error);
    }
    tti_request_hold(request);
    tti_actors_lock(actors);
    request->watcher = self;
    tti_list_append(&self->watches, &request->of);
    tutti_status status = enlist(request, &asked, &error);
    tti_actors_unlock(actors);
    if (status != TUTTI_OK) {
        tti_request_end(request, &error, NULL, 0);
        tti_request_release(request);
    } else if (rank != actors->comm->rank) {
        tti_remote_ask(request, TTI_ACTOR_WATCH);
    }
    tti_request_release(request);
    return TUTTI_OK;
}

/* ---- For handlers ---------------------------------------------------------------------------------------------- */

static tutti_status answer(struct tti_request *request, const tutti_error *error, const void *data, size_t bytes)
{
    tutti_actors *actors = request->actors;
    tutti_error refused;
    if (request->seen.kind != TUTTI_ASKED || request->handled)
        tti_actors_describe(actors, &refused, TTI_ACTOR_ASK, TUTTI_ERR_ARGUMENT, request->seen.rank,
                            request->handled ? "actor '%s' has answered this request before, or keeps it; the first "
                                               "answer stands"
                                             : "actor '%s' answers a request that nobody waits for",
                            request->name);
    else if (bytes > actors->options.payload_bytes)
        tti_actors_describe(actors, &refused, TTI_ACTOR_ASK, TUTTI_ERR_COUNT, request->seen.rank,
                            "the answer of actor '%s' has %zu bytes, and there are %zu at most", request->name, bytes,
                            actors->options.payload_bytes);
    else if (data == NULL && bytes > 0)
        tti_actors_describe(actors, &refused, TTI_ACTOR_ASK, TUTTI_ERR_ARGUMENT, request->seen.rank,
                            "the answer of actor '%s' is NULL", request->name);
    else {
        request->handled = true;
        tti_request_end(request, error, data, bytes);
        return TUTTI_OK;
    }
    return tti_actors_refuse(actors, &refused);
}

tutti_status tutti_request_answer(tutti_request *request, const void *data, size_t bytes)
{
    return answer(tti_request_of(request), NULL, data, bytes);
}

static void describe_refusal(const struct tti_request *request, tutti_status status, const char *text,
                             tutti_error *error)
{
    tutti_status given = status < 0 ? status : TUTTI_ERR_ARGUMENT;
    tti_actors_describe(request->actors, error, TTI_ACTOR_ASK, given, request->actors->comm->rank,
                        "actor '%s' of rank %d refuses: %s", request->name, request->actors->comm->rank,
                        text != NULL && text[0] != '\0' ? text : tutti_status_text(given));
}

tutti_status tutti_request_refuse(tutti_request *seen, tutti_status status, const char *text)
{
    struct tti_request *request = tti_request_of(seen);
    tutti_error error;
    describe_refusal(request, status, text, &error);
    return answer(request, &error, NULL, 0);
}

uint64_t tutti_request_keep(tutti_request *seen)
{
    struct tti_request *request = tti_request_of(seen);
    tutti_actors *actors = request->actors;
    if (request->handled || seen->kind != TUTTI_ASKED) return 0;
    tti_actors_lock(actors);
    uint64_t kept = tti_number_add(actors, request);
    if (kept != 0) {
        request->handled = true;
        request->kept = kept;
        tti_request_hold(request);
        tti_list_append(&request->actor->kept, &request->of);
    }
    tti_actors_unlock(actors);
    return kept;
}

tutti_status tutti_actors_answer(tutti_actors *actors, uint64_t kept, tutti_status status, const void *data,
                                 size_t bytes)
{
    tutti_error error;
    tti_actors_lock(actors);
    struct tti_request *request = tti_number_find(actors, kept);
    bool there = request != NULL && request->kept == kept;
    if (there) {
        tti_number_remove(actors, kept);
        tti_list_remove(&request->of);
        request->kept = 0;
    }
    tti_actors_unlock(actors);
    if (!there) {
        tti_actors_describe(actors, &error, TTI_ACTOR_ASK, TUTTI_ERR_HANDLE, -1,
                            "no kept request has this number: it has been answered, or its actor is gone");
        return tti_actors_refuse(actors, &error);
    }
    if (status == TUTTI_OK && bytes > actors->options.payload_bytes) {
        status = TUTTI_ERR_COUNT;
        describe_refusal(request, status, "its answer has more bytes than payload_bytes allows", &error);
    } else if (status != TUTTI_OK) {
        char text[sizeof error.text];
        (void)snprintf(text, sizeof text, "%.*s", (int)(bytes < sizeof text ? bytes : sizeof text),
                       data == NULL ? "" : (const char *)data);
        describe_refusal(request, status, data == NULL ? NULL : text, &error);
    }
    tti_request_end(request, status == TUTTI_OK ? NULL : &error, data, status == TUTTI_OK ? bytes : 0);
    tti_request_release(request);
    return TUTTI_OK;
}
