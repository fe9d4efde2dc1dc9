/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan waits
 *
 * Actors of one rank, in real threads and in simulated time: every request gets one answer, whatever happens to its actor; what
 * supervisors decide; timers, watches, bad input, shutting down.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "fault.h"
#include "sim_setup.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/actor.h>

static bool simulated;

#define OPTIONS(...) (&(tutti_actor_options){.struct_size = sizeof(tutti_actor_options), __VA_ARGS__})

static tutti_actors *make(tutti_comm *comm, int threads)
{
    tutti_actors *actors = NULL;
    tutti_actors_options options = {.struct_size = sizeof options, .threads = threads, .deadline_ms = 60000};
    CHECK(tutti_actors_create(comm, &options, &actors) == TUTTI_OK && actors != NULL);
    return actors;
}

static bool tells(tutti_actors *actors, tutti_status status, const char *words)
{
    const tutti_error *error = tutti_actors_error(actors);
    if (error == NULL) return CHECK_THAT(false, "there is no error; %s", words);
    return CHECK_THAT(error->status == status && strstr(error->text, words) != NULL, "%s: %s",
                      tutti_status_name(error->status), error->text);
}

/* ---- Actors -------------------------------------------------------------------------------------------------------- */

enum { ADD = 1, FAIL, SILENT, TWICE, KEEP, OWN, COLLECTIVE, FREE, LONG, REFUSE, WATCH, TIMER, SLEEP, CHILD, ESCALATES };

enum { KEPT = 64 };

struct order {
    int what;
    int value;
};

/* What the actors have done, for the test: it outlives them. */
struct diary {
    _Atomic int starts, stops, handled, ended, timers, told;
    _Atomic int64_t last_ns;
    _Atomic int inside, overlaps;
    _Atomic int gate; /* SLEEP waits until this is not 0 */
    _Atomic int entered;
    tutti_comm *comm;
    _Atomic uint64_t kept[KEPT];
    _Atomic int kept_count;
    _Atomic int fails_start; /* so many starts fail */
    tutti_status ended_with;
    char ended_text[480];
    tutti_decision decision;
};

struct sum {
    struct diary *diary;
    int total;
};

static tutti_status start(tutti_actor *self, void *context, void **state)
{
    struct diary *diary = context;
    diary->starts++;
    if (diary->fails_start > 0) {
        diary->fails_start--;
        return tutti_actor_fail(self, TUTTI_ERR_SYSTEM, "no luck");
    }
    struct sum *sum = calloc(1, sizeof *sum);
    sum->diary = diary;
    *state = sum;
    return TUTTI_OK;
}

static void stop(tutti_actor *self, void *state)
{
    struct sum *sum = state;
    (void)self;
    sum->diary->stops++;
    free(sum);
}

static void await(_Atomic int *word, int least)
{
    for (int64_t until = tutti_clock_ns() + INT64_C(20000000000); *word < least && tutti_clock_ns() < until;)
        tutti_spend_ns(50000);
    CHECK_THAT(*word >= least, "%d, not %d", *word, least);
}

static tutti_status handle_asked(tutti_actor *self, struct sum *sum, tutti_request *request);

static tutti_status handle(tutti_actor *self, void *state, tutti_request *request)
{
    struct sum *sum = state;
    struct diary *diary = sum->diary;
    if (diary->inside++ != 0) diary->overlaps++;
    tutti_status status = TUTTI_OK;
    diary->last_ns = tutti_clock_ns();
    if (request->kind == TUTTI_TIMER) diary->timers += (int)request->number;
    if (request->kind == TUTTI_TOLD) diary->told++;
    if (request->kind == TUTTI_ENDED) {
        diary->ended_with = request->error == NULL ? TUTTI_OK : request->error->status;
        snprintf(diary->ended_text, sizeof diary->ended_text, "%s",
                 request->error == NULL ? request->name : request->error->text);
        diary->ended++;
    }
    if (request->kind == TUTTI_ASKED || request->kind == TUTTI_TOLD) status = handle_asked(self, sum, request);
    diary->handled++;
    diary->inside--;
    return status;
}

static tutti_decision stop_it(void *context, const tutti_error *error)
{
    (void)error;
    return ((struct diary *)context)->decision;
}

static tutti_status handle_asked(tutti_actor *self, struct sum *sum, tutti_request *request)
{
    tutti_actors *actors = tutti_actor_actors(self);
    struct diary *diary = sum->diary;
    struct order order = {0};
    static const char bytes[5000];
    uint64_t kept;
    int x = 0;
    CHECK(request->bytes == sizeof order && (uintptr_t)request->data % 16 == 0);
    memcpy(&order, request->data, sizeof order);
    switch (order.what) {
    case ADD: sum->total += order.value; break;
    case FAIL: return tutti_actor_fail(self, (tutti_status)order.value, "as it was told");
    case SILENT: return TUTTI_OK;
    case TWICE:
        CHECK(tutti_request_answer(request, &order.value, sizeof order.value) == TUTTI_OK);
        order.value = -1;
        CHECK(tutti_request_answer(request, &order.value, sizeof order.value) == TUTTI_ERR_ARGUMENT);
        CHECK(tutti_request_keep(request) == 0);
        return TUTTI_OK;
    case KEEP:
        kept = tutti_request_keep(request);
        CHECK(kept != 0 && diary->kept_count < KEPT);
        diary->kept[diary->kept_count++] = kept; /* several actors may do so at once */
        return TUTTI_OK;
    case OWN: {
        tutti_op op;
        CHECK(tutti_actor_ask(actors, 0, tutti_actor_name(self), &order, sizeof order, NULL, 0, NULL, 0) ==
              TUTTI_ERR_ARGUMENT);
        tells(actors, TUTTI_ERR_ARGUMENT, "would wait for its own answer");
        order.what = ADD;
        CHECK(tutti_actor_ask_start(actors, 0, tutti_actor_name(self), &order, sizeof order, NULL, 0, NULL, 0, &op) ==
              TUTTI_OK);
        CHECK(tutti_wait(op) == TUTTI_ERR_ARGUMENT && tutti_test(op) == TUTTI_IN_PROGRESS);
        CHECK(tutti_cancel(op) == TUTTI_OK && tutti_wait(op) == TUTTI_ERR_CANCELLED);
        break;
    }
    case COLLECTIVE:
        CHECK(tutti_barrier(diary->comm) == TUTTI_ERR_ARGUMENT);
        CHECK(tutti_all_reduce(diary->comm, &x, &x, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_ERR_ARGUMENT);
        break;
    case FREE:
        CHECK(tutti_actors_free(actors) == TUTTI_ERR_ARGUMENT);
        tells(actors, TUTTI_ERR_ARGUMENT, "must not free");
        break;
    case LONG: return tutti_request_answer(request, bytes, (size_t)order.value);
    case REFUSE: return tutti_request_refuse(request, (tutti_status)order.value, "not today");
    case WATCH: CHECK(tutti_actor_watch(self, 0, order.value == 0 ? "other" : "nobody") == TUTTI_OK); break;
    case TIMER: CHECK(tutti_actor_timer(self, 1, order.value, order.value < 0 ? 0 : order.value) == TUTTI_OK); break;
    case SLEEP:
        diary->entered++;
        await(&diary->gate, 1);
        break;
    case CHILD:
        CHECK(tutti_actor_create(actors, OPTIONS(.name = "child", .parent = tutti_actor_name(self), .context = diary,
                                                 .handle = handle, .start = start, .stop = stop, .decide = stop_it)) ==
              TUTTI_OK);
        break;
    default: CHECK(false);
    }
    return request->kind == TUTTI_ASKED ? tutti_request_answer(request, &sum->total, sizeof sum->total) : TUTTI_OK;
}

static void create(tutti_actors *actors, const char *name, struct diary *diary, bool pinned)
{
    CHECK(tutti_actor_create(actors, OPTIONS(.name = name, .context = diary, .handle = handle, .start = start,
                                             .stop = stop, .pinned = pinned)) == TUTTI_OK);
}

/* The answer, or a status. */
static tutti_status ask(tutti_actors *actors, const char *name, int what, int value, int *answer)
{
    struct order order = {what, value};
    size_t received = 99;
    int mine = -7;
    tutti_status status = tutti_actor_ask(actors, 0, name, &order, sizeof order, &mine, sizeof mine, &received, 0);
    if (status == TUTTI_OK) CHECK_THAT(received == sizeof mine, "%zu", received);
    if (answer != NULL) *answer = mine;
    return status;
}

static tutti_op ask_start(tutti_actors *actors, const char *name, int what, int value, int64_t deadline_ms)
{
    struct order order = {what, value};
    tutti_op op = {0};
    CHECK(tutti_actor_ask_start(actors, 0, name, &order, sizeof order, NULL, 0, NULL, deadline_ms, &op) == TUTTI_OK);
    return op;
}

static void end(tutti_actors *actors, struct diary *diary)
{
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
    CHECK_THAT(diary->stops <= diary->starts && diary->overlaps == 0, "%d of %d, %d", diary->stops, diary->starts,
               diary->overlaps);
}

/* ---- Cases --------------------------------------------------------------------------------------------------------- */

static void ordinary(tutti_comm *comm, bool pinned)
{
    struct diary diary = {.comm = comm};
    tutti_actors *actors = make(comm, 2);
    struct order order = {ADD, 1};
    int answer;
    create(actors, "sum", &diary, pinned);
    for (int i = 1; i <= 200; i++) CHECK(ask(actors, "sum", ADD, i, &answer) == TUTTI_OK && answer == i * (i + 1) / 2);
    for (int i = 0; i < 100; i++) CHECK(tutti_actor_tell(actors, 0, "sum", &order, sizeof order) == TUTTI_OK);
    CHECK(ask(actors, "sum", ADD, 0, &answer) == TUTTI_OK && answer == 20200); /* behind all that was told */
    tutti_op op;
    CHECK(tutti_actor_tell_start(actors, 0, "sum", &order, sizeof order, &op) == TUTTI_OK &&
          tutti_wait(op) == TUTTI_OK);
    CHECK(ask(actors, "sum", TWICE, 5, &answer) == TUTTI_OK && answer == 5);
    CHECK(ask(actors, "sum", SILENT, 0, NULL) == TUTTI_ERR_ACTOR);
    tells(actors, TUTTI_ERR_ACTOR, "gave no answer");
    CHECK(ask(actors, "sum", REFUSE, TUTTI_ERR_DIVERGED, NULL) == TUTTI_ERR_DIVERGED);
    tells(actors, TUTTI_ERR_DIVERGED, "not today");
    CHECK(ask(actors, "sum", LONG, 5, NULL) == TUTTI_ERR_TRUNCATED);
    tells(actors, TUTTI_ERR_TRUNCATED, "has 5 bytes, and there is room for 4");
    CHECK(ask(actors, "sum", OWN, 0, NULL) == TUTTI_OK);
    CHECK(ask(actors, "sum", COLLECTIVE, 0, NULL) == TUTTI_OK);
    CHECK(ask(actors, "sum", FREE, 0, NULL) == TUTTI_OK);
    CHECK(diary.starts == 1 && diary.stops == 0 && diary.told == 101);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    end(actors, &diary);
    CHECK(diary.stops == 1);
}

static void bad_input(tutti_comm *comm)
{
    struct diary diary = {.comm = comm};
    tutti_actors *actors = make(comm, 1), *none = actors;
    tutti_actors_options odd = {.struct_size = sizeof odd, .threads = -1};
    char name[60];
    tutti_op op;
    memset(name, 'x', sizeof name);
    name[48] = '\0';
    CHECK(tutti_actors_create(comm, &odd, &none) == TUTTI_ERR_ARGUMENT && none == NULL);
    odd = (tutti_actors_options){.threads = 1};
    CHECK(tutti_actors_create(comm, &odd, &none) == TUTTI_ERR_ARGUMENT && none == NULL);
    CHECK(strstr(tutti_comm_error(comm)->text, "set struct_size to sizeof") != NULL);
    CHECK(tutti_actors_create(comm, NULL, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actors_create(NULL, NULL, &none) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actors_free(NULL) == TUTTI_OK && tutti_actors_error(actors) == NULL);
    CHECK(tutti_actor_create(actors, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actor_create(actors, &(tutti_actor_options){.name = "x", .handle = handle}) == TUTTI_ERR_ARGUMENT);
    tells(actors, TUTTI_ERR_ARGUMENT, "struct_size is not set");
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "x")) == TUTTI_ERR_ARGUMENT);
    tells(actors, TUTTI_ERR_ARGUMENT, "has no `handle`");
    CHECK(tutti_actor_create(actors, OPTIONS(.name = name, .handle = handle)) == TUTTI_ERR_ARGUMENT);
    tells(actors, TUTTI_ERR_ARGUMENT, "more than 47 bytes");
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "", .handle = handle)) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "a\n", .handle = handle)) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "a", .handle = handle, .mailbox = -1)) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "a", .handle = handle, .parent = "b")) == TUTTI_ERR_ACTOR);
    tells(actors, TUTTI_ERR_ACTOR, "child of 'b', which rank 0 does not have");
    create(actors, "sum", &diary, 0);
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "sum", .handle = handle)) == TUTTI_ERR_ARGUMENT);
    tells(actors, TUTTI_ERR_ARGUMENT, "has an actor 'sum' already");
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "sum", .handle = handle, .pinned = 1)) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actor_ask_start(actors, 1, "sum", NULL, 0, NULL, 0, NULL, 0, &op) == TUTTI_ERR_RANK);
    CHECK(tutti_actor_ask_start(actors, 0, "sum", NULL, 1, NULL, 0, NULL, 0, &op) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actor_ask_start(actors, 0, "sum", name, 4, NULL, 0, NULL, -1, &op) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actor_ask_start(actors, 0, "sum", name, (16 << 20) + 1, NULL, 0, NULL, 0, &op) == TUTTI_ERR_COUNT);
    tells(actors, TUTTI_ERR_COUNT, "16777217 bytes for actor 'sum' of rank 0, and a request has at most 16777216");
    CHECK(tutti_actor_ask_start(actors, 0, "sum", name, 4, NULL, 0, NULL, 0, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actor_tell(actors, 0, "summe", name, 4) == TUTTI_ERR_ACTOR);
    tells(actors, TUTTI_ERR_ACTOR, "rank 0 has no actor 'summe'");
    CHECK(tutti_actor_tell(NULL, 0, "summe", name, 4) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_actor_stop(actors, "summe") == TUTTI_ERR_ACTOR);
    CHECK(tutti_actors_answer(actors, 0, TUTTI_OK, NULL, 0) == TUTTI_ERR_HANDLE);
    CHECK(tutti_actors_answer(actors, 77, TUTTI_OK, NULL, 0) == TUTTI_ERR_HANDLE);
    diary.fails_start = 1;
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "bad", .handle = handle, .start = start, .context = &diary)) ==
          TUTTI_ERR_SYSTEM);
    tells(actors, TUTTI_ERR_SYSTEM, "actor 'bad' of rank 0 failed in `start`: no luck");
    end(actors, &diary);
}

/* The deadline, a cancel and a late answer: whichever is first. */
static void deadlines(tutti_comm *comm)
{
    struct diary diary = {.comm = comm};
    tutti_actors *actors = make(comm, 1);
    int64_t began = tutti_clock_ns();
    create(actors, "sum", &diary, 0);
    tutti_op late = ask_start(actors, "sum", KEEP, 0, 30), other = ask_start(actors, "sum", KEEP, 0, 0);
    CHECK(tutti_wait(late) == TUTTI_ERR_TIMEOUT && tutti_clock_ns() - began >= 30000000);
    tells(actors, TUTTI_ERR_TIMEOUT, "actor 'sum' of rank 0 has not answered within 30 ms");
    if (simulated) CHECK_THAT(tutti_clock_ns() - began < 31000000, "%lld ns", (long long)(tutti_clock_ns() - began));
    CHECK(tutti_wait_for(other, 5) == TUTTI_IN_PROGRESS && tutti_test(other) == TUTTI_IN_PROGRESS);
    await(&diary.kept_count, 2);
    CHECK(tutti_actors_answer(actors, diary.kept[0], TUTTI_OK, NULL, 0) ==
          TUTTI_OK); /* too late, and nobody is harmed */
    CHECK(tutti_actors_answer(actors, diary.kept[0], TUTTI_OK, NULL, 0) == TUTTI_ERR_HANDLE);
    CHECK(tutti_actors_answer(actors, diary.kept[1], TUTTI_ERR_LIMIT, NULL, 0) == TUTTI_OK);
    CHECK(tutti_wait(other) == TUTTI_ERR_LIMIT);
    other = ask_start(actors, "sum", KEEP, 0, 0);
    CHECK(tutti_cancel(other) == TUTTI_OK && tutti_wait(other) == TUTTI_ERR_CANCELLED);
    tutti_op ops[3] = {ask_start(actors, "sum", KEEP, 0, 0), ask_start(actors, "sum", ADD, 1, 0), {0}};
    size_t index = 9;
    CHECK(tutti_wait_any(ops, 3, 10000, &index) == TUTTI_ERR_TRUNCATED &&
          index == 1); /* an answer, and no room for it */
    CHECK(tutti_drop(ops[0]) == TUTTI_OK);
    end(actors, &diary);
    CHECK(diary.stops == 1);
}

struct ended {
    _Atomic int count;
    _Atomic int status;
};

static void note_end(void *context, tutti_status status, const tutti_error *error)
{
    struct ended *ended = context;
    ended->count++;
    ended->status = status;
    CHECK((status == TUTTI_OK) == (error == NULL));
}

/* Bounded: what does not fit is an error to its sender; and all of it is answered when the actor dies with a full mailbox. */
static void full(tutti_comm *comm, tutti_decision decision)
{
    enum { ROOM = 8 };
    struct diary diary = {.comm = comm, .decision = decision};
    tutti_actors *actors = make(comm, 2);
    struct ended ended[ROOM + 1] = {0};
    struct order order = {ADD, 1};
    tutti_op op, first, watch;
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "sum", .context = &diary, .handle = handle, .start = start,
                                             .stop = stop, .mailbox = ROOM, .decide = stop_it)) == TUTTI_OK);
    CHECK(tutti_actor_watch_start(actors, 0, "sum", &watch) == TUTTI_OK);
    first = ask_start(actors, "sum", SLEEP, 0, 0);
    await(&diary.entered, 1);
    for (int i = 0; i < ROOM; i++) {
        op = ask_start(actors, "sum", i == 0 ? FAIL : ADD, TUTTI_ERR_DAMAGED, 0);
        CHECK(tutti_when_ended(op, note_end, &ended[i]) == TUTTI_OK && tutti_drop(op) == TUTTI_OK);
    }
    CHECK(tutti_actor_ask_start(actors, 0, "sum", &order, sizeof order, NULL, 0, NULL, 0, &op) == TUTTI_ERR_FULL);
    tells(actors, TUTTI_ERR_FULL, "the mailbox of actor 'sum' of rank 0 is full: 8 requests");
    CHECK(tutti_actor_tell(actors, 0, "sum", &order, sizeof order) == TUTTI_ERR_FULL);
    diary.gate = 1;
    CHECK(tutti_wait(first) == TUTTI_ERR_TRUNCATED);
    for (int i = 0; i < ROOM; i++) await(&ended[i].count, 1);
    CHECK_THAT(ended[0].status == TUTTI_ERR_DAMAGED, "%d", ended[0].status);
    tutti_status others = decision == TUTTI_STOP ? TUTTI_ERR_ACTOR : TUTTI_ERR_TRUNCATED;
    for (int i = 1; i < ROOM; i++)
        CHECK_THAT(ended[i].status == (int)others && ended[i].count == 1, "%d: %d", i, ended[i].status);
    if (decision == TUTTI_STOP) {
        CHECK(tutti_wait(watch) == TUTTI_ERR_DAMAGED);
        tells(actors, TUTTI_ERR_DAMAGED, "as it was told");
        CHECK(tutti_actor_tell(actors, 0, "sum", &order, sizeof order) == TUTTI_ERR_ACTOR);
        CHECK(diary.starts == 1);
    } else {
        CHECK(tutti_test(watch) == TUTTI_IN_PROGRESS); /* a restart is no death */
        CHECK(diary.starts == (decision == TUTTI_RESTART ? 2 : 1) && tutti_actor_stop(actors, "sum") == TUTTI_OK);
        CHECK(tutti_wait(watch) == TUTTI_OK);
    }
    end(actors, &diary);
    CHECK(diary.stops == diary.starts);
}

/* So many restarts in a window; then it ends. A state is new after a restart, and kept after a resume. */
static void restarts(tutti_comm *comm)
{
    struct diary first = {.comm = comm}, diary = {.comm = comm};
    tutti_actors *actors = make(comm, 1);
    tutti_op watch;
    int answer;
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "sum", .context = &first, .handle = handle, .start = start,
                                             .stop = stop, .restarts = 2, .restart_window_ms = 100)) == TUTTI_OK);
    CHECK(ask(actors, "sum", ADD, 5, &answer) == TUTTI_OK && answer == 5);
    for (int i = 0; i < 2; i++) CHECK(ask(actors, "sum", FAIL, TUTTI_ERR_LIMIT, NULL) == TUTTI_ERR_LIMIT);
    tells(actors, TUTTI_ERR_LIMIT, "actor 'sum' of rank 0 failed in `handle`: as it was told");
    CHECK(ask(actors, "sum", ADD, 6, &answer) == TUTTI_OK && answer == 6 && first.starts == 3);
    if (simulated) { /* long after, there may be two more */
        tutti_spend_ns(INT64_C(200000000));
        for (int i = 0; i < 2; i++) CHECK(ask(actors, "sum", FAIL, TUTTI_ERR_LIMIT, NULL) == TUTTI_ERR_LIMIT);
        CHECK(ask(actors, "sum", ADD, 7, &answer) == TUTTI_OK && answer == 7 && first.starts == 5);
        CHECK(tutti_actor_watch_start(actors, 0, "sum", &watch) == TUTTI_OK);
        CHECK(ask(actors, "sum", FAIL, TUTTI_ERR_LIMIT, NULL) == TUTTI_ERR_LIMIT);
        CHECK(tutti_wait(watch) == TUTTI_ERR_LIMIT && ask(actors, "sum", ADD, 1, NULL) == TUTTI_ERR_ACTOR);
    }
    /* a start that fails is tried again, as often as there may be restarts */
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "again", .context = &diary, .handle = handle, .start = start,
                                             .stop = stop)) == TUTTI_OK);
    diary.fails_start = 2;
    tutti_op kept = ask_start(actors, "again", KEEP, 0, 0);
    CHECK(ask(actors, "again", FAIL, TUTTI_ERR_LIMIT, NULL) == TUTTI_ERR_LIMIT);
    CHECK(tutti_wait(kept) == TUTTI_ERR_ACTOR); /* whoever knew its number is gone */
    tells(actors, TUTTI_ERR_ACTOR, "was restarted before it gave an answer");
    CHECK(ask(actors, "again", ADD, 8, &answer) == TUTTI_OK && answer == 8 && diary.starts == 4 && diary.stops == 1);
    CHECK(tutti_actor_watch_start(actors, 0, "again", &watch) == TUTTI_OK);
    CHECK(ask(actors, "again", FAIL, TUTTI_ERR_LIMIT, NULL) == TUTTI_ERR_LIMIT);
    CHECK(tutti_wait(watch) == TUTTI_ERR_LIMIT);
    end(actors, &diary);
    CHECK_THAT(diary.starts == 4 && diary.stops == 2, "%d %d", diary.starts, diary.stops);
}

/* A child ends with its parent, and before it; its failure may be the parent's. */
static void families(tutti_comm *comm)
{
    struct diary diary = {.comm = comm, .decision = TUTTI_ESCALATE}, other = {.comm = comm};
    tutti_actors *actors = make(comm, 2);
    tutti_op child;
    int answer;
    create(actors, "parent", &diary, 0);
    CHECK(ask(actors, "parent", CHILD, 0, NULL) == TUTTI_OK && diary.starts == 2);
    CHECK(ask(actors, "parent", ADD, 3, NULL) == TUTTI_OK && ask(actors, "child", ADD, 4, &answer) == TUTTI_OK &&
          answer == 4);
    CHECK(tutti_actor_watch_start(actors, 0, "child", &child) == TUTTI_OK);
    CHECK(ask(actors, "child", FAIL, TUTTI_ERR_LIMIT, NULL) == TUTTI_ERR_LIMIT);
    CHECK(tutti_wait(child) == TUTTI_ERR_LIMIT);
    await(&diary.starts, 3); /* the parent was restarted for it */
    CHECK(ask(actors, "parent", ADD, 1, &answer) == TUTTI_OK && answer == 1);
    CHECK(ask(actors, "child", ADD, 4, NULL) == TUTTI_ERR_ACTOR);
    /* a parent that fails by itself: its child ends before it is restarted */
    CHECK(ask(actors, "parent", CHILD, 0, NULL) == TUTTI_OK);
    CHECK(tutti_actor_watch_start(actors, 0, "child", &child) == TUTTI_OK);
    CHECK(ask(actors, "parent", FAIL, TUTTI_ERR_LIMIT, NULL) == TUTTI_ERR_LIMIT);
    CHECK(ask(actors, "parent", ADD, 2, &answer) == TUTTI_OK && answer == 2);
    CHECK(tutti_wait(child) == TUTTI_OK && diary.starts == 5 && diary.stops == 4);
    /* watched by an actor, which is told; and of one that is not there at once */
    create(actors, "other", &other, 1);
    CHECK(ask(actors, "parent", WATCH, 0, NULL) == TUTTI_OK);
    CHECK(tutti_actor_stop(actors, "other") == TUTTI_OK);
    await(&diary.ended, 1);
    CHECK(diary.ended_with == TUTTI_OK && strcmp(diary.ended_text, "other") == 0 && other.stops == 1);
    CHECK(ask(actors, "parent", WATCH, 1, NULL) == TUTTI_OK);
    await(&diary.ended, 2);
    CHECK_THAT(diary.ended_with == TUTTI_ERR_ACTOR, "%s", diary.ended_text);
    CHECK(ask(actors, "parent", CHILD, 0, NULL) == TUTTI_OK);
    tutti_op own = ask_start(actors, "child", KEEP, 0, 0);
    CHECK(tutti_actor_watch_start(actors, 0, "parent", &child) == TUTTI_OK);
    CHECK(tutti_actor_stop(actors, "parent") == TUTTI_OK && tutti_wait(child) == TUTTI_OK);
    CHECK(tutti_wait(own) == TUTTI_ERR_ACTOR && diary.stops == diary.starts);
    end(actors, &diary);
}

static void timers(tutti_comm *comm)
{
    struct diary diary = {.comm = comm};
    tutti_actors *actors = make(comm, 1);
    int64_t began = tutti_clock_ns();
    create(actors, "sum", &diary, 0);
    CHECK(ask(actors, "sum", TIMER, 10, NULL) == TUTTI_OK);
    await(&diary.timers, 3);
    CHECK(tutti_clock_ns() - began >= 30000000);
    if (simulated) {
        CHECK_THAT(diary.last_ns - began < 31000000, "%lld", (long long)(diary.last_ns - began));
        tutti_spend_ns(INT64_C(10000000000));
        CHECK_THAT(diary.timers >= 1000 && diary.timers <= 1004, "%d", diary.timers);
    }
    CHECK(ask(actors, "sum", TIMER, -1, NULL) == TUTTI_OK);
    int fired = diary.timers;
    tutti_spend_ns(INT64_C(30000000));
    CHECK_THAT(diary.timers <= fired, "%d after %d", diary.timers, fired);
    end(actors, &diary);
}

/* Everything that is pending is answered when all is freed. */
static void shut_down(tutti_comm *comm)
{
    enum { MANY = 300 };
    struct diary diary = {.comm = comm};
    struct ended ended[MANY + 2] = {0};
    tutti_actors_options options = {.struct_size = sizeof options, .threads = 1, .free_grace_ms = 20};
    tutti_actors *actors = NULL;
    CHECK(tutti_actors_create(comm, &options, &actors) == TUTTI_OK);
    create(actors, "sum", &diary, 0);
    create(actors, "pinned", &diary, 1);
    for (int i = 0; i < MANY + 2; i++) {
        tutti_op op;
        if (i == MANY)
            CHECK(tutti_actor_watch_start(actors, 0, "sum", &op) == TUTTI_OK);
        else
            op = ask_start(actors, i % 2 ? "sum" : "pinned", i > MANY ? SLEEP : i < 40 ? KEEP : ADD, 0, 0);
        CHECK(tutti_when_ended(op, note_end, &ended[i]) == TUTTI_OK && tutti_drop(op) == TUTTI_OK);
    }
    await(&diary.entered, 1);
    CHECK(tutti_actors_free(actors) == TUTTI_ERR_TIMEOUT);
    tells(actors, TUTTI_ERR_TIMEOUT, "actor 'sum' of rank 0 has not ended within 20 ms");
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "x", .handle = handle)) == TUTTI_ERR_ACTOR);
    CHECK(ask(actors, "sum", ADD, 0, NULL) == TUTTI_ERR_ACTOR);
    diary.gate = 1;
    tutti_status status;
    while ((status = tutti_actors_free(actors)) == TUTTI_ERR_TIMEOUT) {}
    CHECK(status == TUTTI_OK);
    for (int i = 0; i < MANY + 2; i++) CHECK_THAT(ended[i].count == 1, "request %d: %d ends", i, ended[i].count);
    for (int i = 0; i < 40; i++) CHECK(ended[i].status == TUTTI_ERR_ACTOR);
    CHECK(diary.stops == 2);
}

static int run_all(tutti_comm *world, void *context)
{
    (void)context;
    ordinary(world, 0);
    ordinary(world, 1);
    bad_input(world);
    deadlines(world);
    full(world, TUTTI_STOP);
    full(world, TUTTI_RESTART);
    full(world, TUTTI_RESUME);
    restarts(world);
    families(world);
    timers(world);
    shut_down(world);
    return 0;
}

static void body(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    tutti_log_set_level(TUTTI_ERROR);
    run_all(comm, NULL);
}

/* Each allocation fails once: an error to the caller, or nothing. */
static void without_memory(tutti_comm *comm, struct fault_rank *self)
{
    struct diary diary = {.comm = comm};
    bool failed = true;
    (void)self;
    tutti_log_set_level(TUTTI_QUIET);
    for (long count = 0; failed && count < 400; count++) {
        tutti_actors *actors = NULL;
        int answer = 0;
        tti_alloc_fail_once(count);
        failed = tutti_actors_create(comm, NULL, &actors) != TUTTI_OK;
        if (!failed)
            failed = tutti_actor_create(actors, OPTIONS(.name = "sum", .context = &diary, .handle = handle,
                                                        .start = start, .stop = stop)) != TUTTI_OK;
        if (!failed) failed = ask(actors, "sum", ADD, 3, &answer) != TUTTI_OK;
        tti_alloc_fail_after(-1);
        CHECK(failed || answer == 3);
        CHECK(tutti_actors_free(actors) == TUTTI_OK);
        if (tutti_barrier(comm) != TUTTI_OK) return;
    }
    CHECK(!failed);
}

int main(void)
{
    fault_begin(50);
    simulated = true;
    tutti_log_set_level(TUTTI_QUIET);
    for (uint64_t seed = 0; seed < 20; seed++) {
        tutti_sim_setup setup = sim_setup(1, seed);
        tutti_error error = {0};
        check_title("simulated, seed %d", (int)seed);
        setup.noise_ns = seed == 0 ? 0 : 200;
        tutti_status status = tutti_sim_run(&setup, run_all, NULL, NULL, &error);
        CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error.text);
    }
    simulated = false;
    fault_run_body("actors", body, 1, true, false);
    fault_run_body("without memory", without_memory, 1, true, false);
    return fault_end();
}
