/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that run actors. A crew has a list of actors that have something to do; each of its workers takes the first
 * one, lets it handle some requests, and puts it at the end of the list if there are more. A worker with nothing to do
 * polls for messages from other ranks for a while, so that a request that comes is handled by the thread that has seen
 * it, and then sleeps.
 *
 * Invariant: either a worker has read the list after an actor was put there, or the thread that put it there sees that
 * a worker sleeps.
 */
#include "actor/actors.h"

#include "base/alloc.h"
#include "base/sim.h"
#include "base/status.h"
#include "collective/op/callback.h"

enum { BATCH = 64, PATIENCE_US = 200, SLEEP_MS = 1000 };

static _Thread_local void *worker_here;

static void **here(void)
{
    return tti_sim != NULL ? tti_sim_slot() : &worker_here;
}

struct tti_worker *tti_worker_here(void)
{
    return *here();
}

/* ---- Scheduling ------------------------------------------------------------------------------------------------ */

void tti_actor_schedule(tutti_actor *actor)
{
    struct tti_crew *crew = actor->crew;
    if (actor->scheduled || actor->phase == TTI_STARTING) return;
    actor->scheduled = true;
    tti_list_append(&crew->ready, &actor->on);
    atomic_fetch_add_explicit(&crew->ready_count, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&crew->sleepers, memory_order_seq_cst) != 0) tti_bell_ring(&crew->bell, false);
}

static tutti_actor *take_ready(struct tti_crew *crew)
{
    tutti_actor *actor = NULL;
    if (atomic_load_explicit(&crew->ready_count, memory_order_acquire) == 0) return NULL;
    tti_actors_lock(crew->actors);
    if (!tti_list_is_empty(&crew->ready)) {
        actor = TTI_LIST_OF(crew->ready.next, tutti_actor, on);
        tti_list_remove(&actor->on);
        atomic_fetch_sub_explicit(&crew->ready_count, 1, memory_order_relaxed);
    }
    tti_actors_unlock(crew->actors);
    return actor;
}

/* ---- Handling -------------------------------------------------------------------------------------------------- */

static void end_without_answer(tutti_actor *actor, struct tti_request *request)
{
    tutti_error error;
    tti_actors_describe(actor->actors, &error, TTI_ACTOR_ASK, TUTTI_ERR_ACTOR, actor->actors->comm->rank,
                        "actor '%s' of rank %d has handled the request and gave no answer", actor->name,
                        actor->actors->comm->rank);
    tti_request_end(request, &error, NULL, 0);
}

/* Notes that a request was taken; a timer's request may be queued again from now on. */
static void note_taken(tutti_actor *actor, struct tti_request *request)
{
    if (request->seen.kind == TUTTI_ASKED || request->seen.kind == TUTTI_TOLD) {
        atomic_fetch_sub_explicit(&actor->queued, 1, memory_order_relaxed);
        return;
    }
    tti_actors_lock(actor->actors);
    request->queued = false;
    tti_actors_unlock(actor->actors);
}

/* Returns true if nobody waits for the answer any more, or the timer was removed. */
static bool is_stale(const struct tti_request *request)
{
    bool may_be = request->seen.kind == TUTTI_ASKED || request->seen.kind == TUTTI_TIMER;
    return may_be && atomic_load_explicit(&request->answered, memory_order_acquire);
}

static void handle(tutti_actor *actor, struct tti_request *request)
{
    tutti_error error;
    note_taken(actor, request);
    if (is_stale(request)) return;
    actor->said.status = TUTTI_OK;
    tutti_status status = actor->options.handle(actor, actor->state, &request->seen);
    bool asked = request->seen.kind == TUTTI_ASKED;
    if (status == TUTTI_OK) {
        if (asked && !request->handled) end_without_answer(actor, request);
        return;
    }
    tti_actor_describe_failure(actor, "handle", status, &error);
    if (asked && !request->handled) tti_request_end(request, &error, NULL, 0);
    tti_actor_failed(actor, &error);
}

/* Returns the next request; those in the mailbox are taken all at once. */
static struct tti_request *next_request(tutti_actor *actor)
{
    if (tti_list_is_empty(&actor->taken)) {
        tti_actors_lock(actor->actors);
        TTI_LIST_EACH(link, &actor->mailbox)
        {
            tti_list_remove(link);
            tti_list_append(&actor->taken, link);
        }
        tti_actors_unlock(actor->actors);
    }
    if (tti_list_is_empty(&actor->taken)) return NULL;
    struct tti_link *first = actor->taken.next;
    tti_list_remove(first);
    return TTI_LIST_OF(first, struct tti_request, on);
}

/* Fails the actor if a child has escalated its failure. */
static void fail_for_child(tutti_actor *actor)
{
    tti_actors_lock(actor->actors);
    tutti_error *failure = actor->failure;
    actor->failure = NULL;
    tti_actors_unlock(actor->actors);
    if (failure == NULL) return;
    tti_actor_failed(actor, failure);
    tti_free(failure);
}

/* Returns true if the worker may go on with requests. */
static bool attend(tutti_actor *actor)
{
    if (!atomic_load_explicit(&actor->wanted, memory_order_acquire)) return true;
    fail_for_child(actor);
    tti_actors_lock(actor->actors);
    bool runs = actor->phase == TTI_RUNNING;
    atomic_store_explicit(&actor->wanted, !runs || actor->failure != NULL, memory_order_relaxed);
    tti_actors_unlock(actor->actors);
    return runs;
}

/* Puts the actor at the end of the list if there is more to do. The actor may be freed after this. */
static void put_back(tutti_actor *actor)
{
    tutti_actors *actors = actor->actors;
    tti_actors_lock(actors);
    actor->scheduled = false;
    bool more = !tti_list_is_empty(&actor->taken) || !tti_list_is_empty(&actor->mailbox) ||
                atomic_load_explicit(&actor->wanted, memory_order_relaxed);
    if (more) tti_actor_schedule(actor);
    tti_actors_unlock(actors);
}

static void run(struct tti_worker *worker, tutti_actor *actor)
{
    struct tti_request *request;
    worker->running = actor;
    for (int i = 0; i < BATCH; i++) {
        if (!attend(actor)) {
            tti_actor_change(actor);
            worker->running = NULL;
            return;
        }
        if ((request = next_request(actor)) == NULL) break;
        handle(actor, request);
        tti_request_release(request);
    }
    worker->running = NULL;
    put_back(actor);
}

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

static bool is_idle(struct tti_crew *crew)
{
    return atomic_load_explicit(&crew->ready_count, memory_order_seq_cst) == 0 &&
           !atomic_load_explicit(&crew->stops, memory_order_seq_cst);
}

static void sleep_on(struct tti_crew *crew)
{
    uint32_t seen = atomic_load_explicit(&crew->bell, memory_order_relaxed);
    atomic_fetch_add_explicit(&crew->sleepers, 1, memory_order_seq_cst);
    if (is_idle(crew)) tti_bell_sleep(&crew->bell, seen, SLEEP_MS * TTI_MS, false);
    atomic_fetch_sub_explicit(&crew->sleepers, 1, memory_order_relaxed);
}

static void wait_for_work(struct tti_crew *crew)
{
    struct tti_wait wait;
    tti_wait_begin(&wait, crew->actors->comm->traits.crowded, PATIENCE_US * INT64_C(1000));
    while (is_idle(crew)) {
        tutti_comm *comm = crew->actors->comm; /* a new one after a rebuild */
        if (comm->size > 1) tti_queue_help(comm, false);
        tti_callbacks_call(comm);
        if (!is_idle(crew)) return;
        if (!tti_wait_pause(&wait, false)) sleep_on(crew);
    }
}

static void *work(void *argument)
{
    struct tti_worker *worker = argument;
    struct tti_crew *crew = worker->crew;
    *here() = worker;
    for (;;) {
        tutti_actor *actor = take_ready(crew);
        if (actor != NULL)
            run(worker, actor);
        else if (atomic_load_explicit(&crew->stops, memory_order_seq_cst))
            break;
        else
            wait_for_work(crew);
    }
    atomic_store_explicit(&crew->ended, true, memory_order_release);
    return NULL;
}

/* ---- Crews ----------------------------------------------------------------------------------------------------- */

struct tti_crew *tti_crew_new(tutti_actors *actors, int count, tutti_error *error)
{
    struct tti_crew *crew = tti_calloc(1, sizeof *crew + (size_t)count * sizeof *crew->workers);
    if (crew == NULL) {
        tti_actors_describe(actors, error, TTI_ACTORS, TUTTI_ERR_MEMORY, -1, "no memory for threads of actors");
        return NULL;
    }
    crew->actors = actors;
    tti_list_init(&crew->ready);
    for (; crew->count < count; crew->count++) {
        struct tti_worker *worker = &crew->workers[crew->count];
        worker->crew = crew;
        if (tti_task_start(&worker->task, work, worker, error) == TUTTI_OK) continue;
        tti_crew_stop(crew);
        tti_crew_free(crew);
        return NULL;
    }
    return crew;
}

void tti_crew_stop(struct tti_crew *crew)
{
    atomic_store_explicit(&crew->stops, true, memory_order_seq_cst);
    tti_bell_ring(&crew->bell, false);
}

void tti_crew_free(struct tti_crew *crew)
{
    for (int i = 0; i < crew->count; i++) tti_task_join(&crew->workers[i].task);
    tti_free(crew);
}
