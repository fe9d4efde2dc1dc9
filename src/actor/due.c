/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines of requests and timers of actors: a heap, and one task that sleeps until the earliest is due.
 *
 * Invariant: either the task has read the heap after an entry became its first, or the thread that put it there sees
 * that the task sleeps.
 */
#include "actor/actors.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include <string.h>

enum { FIRST_ROOM = 64, SLEEP_MS = 3600000 };

/* ---- The heap -------------------------------------------------------------------------------------------------- */

static void put(struct tti_dues *dues, size_t place, struct tti_due *due)
{
    dues->heap[place] = due;
    due->place = place;
}

static void rise(struct tti_dues *dues, struct tti_due *due)
{
    size_t place = due->place;
    for (; place > 1 && dues->heap[place / 2]->at_ns > due->at_ns; place /= 2) put(dues, place, dues->heap[place / 2]);
    put(dues, place, due);
}

static void sink(struct tti_dues *dues, struct tti_due *due)
{
    size_t place = due->place;
    for (size_t child; (child = 2 * place) <= dues->count; place = child) {
        if (child < dues->count && dues->heap[child + 1]->at_ns < dues->heap[child]->at_ns) child++;
        if (dues->heap[child]->at_ns >= due->at_ns) break;
        put(dues, place, dues->heap[child]);
    }
    put(dues, place, due);
}

static bool make_room(struct tti_dues *dues)
{
    if (dues->count + 1 < dues->room) return true;
    size_t room = dues->room == 0 ? FIRST_ROOM : 2 * dues->room;
    struct tti_due **heap = tti_calloc(room, sizeof *heap);
    if (heap == NULL) return false;
    if (dues->heap != NULL) memcpy(heap, dues->heap, dues->room * sizeof *heap);
    tti_free(dues->heap);
    dues->heap = heap;
    dues->room = room;
    return true;
}

bool tti_due_add(tutti_actors *actors, struct tti_due *due)
{
    struct tti_dues *dues = &actors->dues;
    if (!make_room(dues)) return false;
    put(dues, ++dues->count, due);
    rise(dues, due);
    if (due->place == 1 && atomic_load_explicit(&dues->sleeps, memory_order_relaxed)) tti_bell_ring(&dues->bell, false);
    return true;
}

void tti_due_remove(tutti_actors *actors, struct tti_due *due)
{
    struct tti_dues *dues = &actors->dues;
    if (due->place == 0) return;
    struct tti_due *last = dues->heap[dues->count--];
    if (last != due) {
        put(dues, due->place, last);
        rise(dues, last);
        sink(dues, last);
    }
    due->place = 0;
}

/* ---- What is due ----------------------------------------------------------------------------------------------- */

static void end_late(struct tti_request *request)
{
    tutti_error error;
    tti_actors_describe(request->actors, &error, TTI_ACTOR_ASK, TUTTI_ERR_TIMEOUT, request->peer,
                        "actor '%s' of rank %d has not answered within %lld ms; what was asked may still be done",
                        request->name, request->peer, (long long)request->deadline_ms);
    tti_request_end(request, &error, NULL, 0);
    tti_request_release(request);
}

/* Puts a timer's request into the mailbox, unless it is there already. The lock is held. */
static void fire(struct tti_timer *timer, int64_t now_ns)
{
    struct tti_request *request = timer->request;
    if (timer->every_ns > 0) {
        int64_t late = (now_ns - timer->due.at_ns) / timer->every_ns;
        timer->due.at_ns += (late + 1) * timer->every_ns;
        tti_due_add(timer->actor->actors, &timer->due); /* there is room, since it was in the heap before */
    }
    if (request->queued) return;
    request->queued = true;
    tti_request_hold(request);
    tti_list_append(&timer->actor->mailbox, &request->on);
    tti_actor_schedule(timer->actor);
}

/* Handles the first entry, if it is due. Returns how long to sleep; 0: not at all. The lock is held, and released. */
static int64_t look(tutti_actors *actors)
{
    struct tti_dues *dues = &actors->dues;
    struct tti_due *first = dues->count == 0 ? NULL : dues->heap[1];
    int64_t now = tti_now_ns();
    if (first == NULL || first->at_ns > now) {
        int64_t sleep_ns = first == NULL ? SLEEP_MS * TTI_MS : first->at_ns - now;
        atomic_store_explicit(&dues->sleeps, true, memory_order_relaxed);
        tti_actors_unlock(actors);
        return sleep_ns;
    }
    tti_due_remove(actors, first);
    if (first->kind == TTI_DUE_TIMER) {
        fire(TTI_LIST_OF(first, struct tti_timer, due), now);
        tti_actors_unlock(actors);
        return 0;
    }
    struct tti_request *request = TTI_LIST_OF(first, struct tti_request, due);
    tti_request_hold(request);
    tti_actors_unlock(actors);
    end_late(request);
    return 0;
}

static void *run(void *argument)
{
    tutti_actors *actors = argument;
    struct tti_dues *dues = &actors->dues;
    while (!atomic_load_explicit(&dues->stops, memory_order_acquire)) {
        tti_actors_lock(actors);
        uint32_t seen = atomic_load_explicit(&dues->bell, memory_order_relaxed);
        int64_t sleep_ns = look(actors);
        if (sleep_ns == 0) continue;
        if (!atomic_load_explicit(&dues->stops, memory_order_acquire))
            tti_bell_sleep(&dues->bell, seen, sleep_ns, false);
        atomic_store_explicit(&dues->sleeps, false, memory_order_relaxed);
    }
    return NULL;
}

tutti_status tti_dues_start(tutti_actors *actors, tutti_error *error)
{
    if (!make_room(&actors->dues))
        return tti_actors_describe(actors, error, TTI_ACTORS, TUTTI_ERR_MEMORY, -1, "no memory for deadlines");
    return tti_task_start(&actors->dues.task, run, actors, error);
}

void tti_dues_stop(tutti_actors *actors)
{
    atomic_store_explicit(&actors->dues.stops, true, memory_order_release);
    tti_bell_ring(&actors->dues.bell, false);
    tti_task_join(&actors->dues.task);
    tti_free(actors->dues.heap);
}

/* ---- Timers ---------------------------------------------------------------------------------------------------- */

static struct tti_timer *find_timer(tutti_actor *actor, int64_t number)
{
    TTI_LIST_EACH(link, &actor->timers)
    {
        struct tti_timer *timer = TTI_LIST_OF(link, struct tti_timer, on);
        if (timer->number == number) return timer;
    }
    return NULL;
}

/* Frees a timer. Its request, if it is in the mailbox, is passed over. The lock is held. */
static void free_timer(struct tti_timer *timer)
{
    tti_due_remove(timer->actor->actors, &timer->due);
    tti_list_remove(&timer->on);
    atomic_store_explicit(&timer->request->answered, true, memory_order_release);
    tti_request_release(timer->request);
    tti_free(timer);
}

void tti_timers_clear(tutti_actor *actor)
{
    TTI_LIST_EACH(link, &actor->timers) free_timer(TTI_LIST_OF(link, struct tti_timer, on));
}

static struct tti_timer *new_timer(tutti_actor *actor, int64_t number)
{
    struct tti_timer *timer = tti_calloc(1, sizeof *timer);
    struct tti_request *request = timer == NULL ? NULL
                                                : tti_request_new(actor->actors, TUTTI_TIMER, actor->name, NULL, 0);
    if (request == NULL) {
        tti_free(timer);
        return NULL;
    }
    request->seen.number = number;
    *timer = (struct tti_timer){.due.kind = TTI_DUE_TIMER, .actor = actor, .number = number, .request = request};
    tti_list_init(&timer->on);
    return timer;
}

/* Sets a timer in place of one with the same number. Returns false if there is no memory; then the old one stays. */
static bool set_timer(tutti_actor *actor, struct tti_timer *timer)
{
    tutti_actors *actors = actor->actors;
    tti_actors_lock(actors);
    struct tti_timer *old = find_timer(actor, timer->number);
    bool added = tti_due_add(actors, &timer->due);
    if (added && old != NULL) free_timer(old);
    if (added) tti_list_append(&actor->timers, &timer->on);
    if (!added) free_timer(timer);
    tti_actors_unlock(actors);
    return added;
}

tutti_status tutti_actor_timer(tutti_actor *self, int64_t number, int64_t after_ms, int64_t every_ms)
{
    tutti_actors *actors = self->actors;
    tutti_error error;
    if (after_ms < -1 || after_ms > TTI_WEEK_MS || every_ms < 0 || every_ms > TTI_WEEK_MS) {
        tti_actors_describe(
            actors, &error, TTI_ACTOR_ASK, TUTTI_ERR_ARGUMENT, -1,
            "a timer of actor '%s' after %lld ms and every %lld ms: both are 0 to a week, and -1 takes it away",
            self->name, (long long)after_ms, (long long)every_ms);
        return tti_actors_refuse(actors, &error);
    }
    if (after_ms < 0) {
        tti_actors_lock(actors);
        struct tti_timer *old = find_timer(self, number);
        if (old != NULL) free_timer(old);
        tti_actors_unlock(actors);
        return TUTTI_OK;
    }
    struct tti_timer *timer = new_timer(self, number);
    if (timer != NULL) {
        timer->due.at_ns = tti_now_ns() + after_ms * TTI_MS;
        timer->every_ns = every_ms * TTI_MS;
        if (set_timer(self, timer)) return TUTTI_OK;
    }
    tti_actors_describe(actors, &error, TTI_ACTOR_ASK, TUTTI_ERR_MEMORY, -1, "no memory for a timer of actor '%s'",
                        self->name);
    return tti_actors_refuse(actors, &error);
}
