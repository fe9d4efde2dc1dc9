/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan waits
 *
 * Collectives of a rank as an actor, and a world of threads as an actor: requests in order, ranks that fail, end or lose their
 * device, requests that are tried again, full queues, deadlines, shutdown; in threads and in simulated time. With a list of devices
 * ("cuda:0,cuda:1") only what needs them is done, on these.
 */
#include "fault.h"
#include "sim_setup.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/actor.h>

enum { SIZE = 4, COUNT = 300, MANY = 40 };

#define OPTIONS(...) (&(tutti_world_actor_options){.struct_size = sizeof(tutti_world_actor_options), __VA_ARGS__})
#define REQUEST(...) (&(tutti_world_request){.struct_size = sizeof(tutti_world_request), __VA_ARGS__})

/* ---- Calls --------------------------------------------------------------------------------------------------------- */

static tutti_actors *make(tutti_comm *comm)
{
    tutti_actors *actors = NULL;
    CHECK(tutti_actors_create(comm, NULL, &actors) == TUTTI_OK);
    return actors;
}

static void says(tutti_actors *actors, tutti_status status, tutti_status expected, const char *words)
{
    const tutti_error *error = tutti_actors_error(actors);
    CHECK_THAT(status == expected && error != NULL && strstr(error->text, words) != NULL, "%s, not %s %s: %s",
               tutti_status_name(status), tutti_status_name(expected), words, error == NULL ? "" : error->text);
}

static bool works(tutti_actors *actors, tutti_status status)
{
    const tutti_error *error = tutti_actors_error(actors);
    return CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
}

static void await(_Atomic int *word, int value)
{
    for (int64_t until = tutti_clock_ns() + INT64_C(30000000000); *word != value && tutti_clock_ns() < until;)
        tutti_spend_ns(50000);
    CHECK(*word == value);
}

static tutti_collective_call sum_of(double *x, size_t count)
{
    return (tutti_collective_call){
        .kind = TUTTI_DO_ALL_REDUCE, .in = x, .out = x, .count = count, .type = TUTTI_F64, .reduction = TUTTI_SUM};
}

/* Each rank's buffer, and a request to add them up. */
struct sums {
    double values[SIZE][COUNT];
    tutti_collective_call calls[SIZE];
};

static void fill(struct sums *sums, int number)
{
    for (int r = 0; r < SIZE; r++) {
        for (int i = 0; i < COUNT; i++) sums->values[r][i] = r + number + i;
        sums->calls[r] = sum_of(sums->values[r], COUNT);
    }
}

static void check_sums(const struct sums *sums, int number)
{
    for (int r = 0; r < SIZE; r++)
        for (int i = 0; i < COUNT; i += 37) {
            const double wanted = SIZE * (SIZE - 1) / 2 + SIZE * (number + i);
            CHECK_THAT(sums->values[r][i] == wanted, "rank %d, %d: %g, not %g", r, i, sums->values[r][i], wanted);
        }
}

static tutti_status add_up(tutti_actors *actors, struct sums *sums, int number)
{
    fill(sums, number);
    tutti_status status = tutti_world_do(actors, "world", REQUEST(.calls = sums->calls, .count = 1));
    if (works(actors, status)) check_sums(sums, number);
    return status;
}

/* ---- A rank's collectives as an actor ------------------------------------------------------------------------------ */

static void collectives(tutti_comm *comm, struct fault_rank *self)
{
    tutti_actors *actors = make(comm);
    const int rank = tutti_rank(comm), size = tutti_size(comm);
    double values[MANY][8], more[2];
    tutti_op ops[MANY];
    (void)self;
    CHECK(tutti_collective_actor(actors, comm, "sums") == TUTTI_OK);
    for (int i = 0; i < MANY; i++) {
        for (int k = 0; k < 8; k++) values[i][k] = rank + i;
        const tutti_collective_call call = sum_of(values[i], 8);
        CHECK(tutti_collective_do_start(actors, "sums", &call, 1, 0, &ops[i]) == TUTTI_OK);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK); /* of the comm that it was made from */
    CHECK(tutti_wait_all(ops, MANY) == TUTTI_OK);
    for (int i = 0; i < MANY; i++) CHECK(values[i][7] == size * (size - 1) / 2 + size * i);
    more[0] = more[1] = rank;
    const tutti_collective_call group[] = {
        sum_of(&more[0], 1),
        {.kind = TUTTI_DO_BROADCAST, .in = &more[1], .out = &more[1], .count = 1, .type = TUTTI_F64, .root = 1},
        {.kind = TUTTI_DO_BARRIER}};
    CHECK(works(actors, tutti_collective_do(actors, "sums", group, 3, 0)));
    CHECK(more[0] == size * (size - 1) / 2 && more[1] == 1);
    says(actors, tutti_collective_do(actors, "sums", NULL, 0, 0), TUTTI_ERR_ARGUMENT, "no calls");
    says(actors, tutti_collective_do(actors, "other", group, 3, 0), TUTTI_ERR_ACTOR, "no actor 'other'");
    says(actors, tutti_actor_ask(actors, rank, "sums", "x", 1, NULL, 0, NULL, 0), TUTTI_ERR_ARGUMENT, "the own rank's");
    fault_meet(comm);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* Rank 0 does not come: the others' request ends by its deadline, and the comm is good for nothing until it is renewed. */
static void alone(tutti_comm *comm, struct fault_rank *self)
{
    tutti_actors *actors = make(comm);
    double x = 1;
    const tutti_collective_call call = sum_of(&x, 1);
    (void)self;
    CHECK(tutti_collective_actor(actors, comm, "sums") == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) != 0) {
        says(actors, tutti_collective_do(actors, "sums", &call, 1, 50), TUTTI_ERR_TIMEOUT, "all_reduce");
        CHECK(tutti_collective_do(actors, "sums", &call, 1, 0) != TUTTI_OK);
    }
    fault_meet(comm);
    says(actors, tutti_collective_renew(actors, NULL, "sums"), TUTTI_ERR_ARGUMENT, "there is no comm");
    says(actors, tutti_collective_renew(actors, comm, "other"), TUTTI_ERR_ARGUMENT, "no actor of that name");
    CHECK(works(actors, tutti_collective_renew(actors, comm, "sums")));
    x = tutti_rank(comm);
    CHECK(works(actors, tutti_collective_do(actors, "sums", &call, 1, 0)) && x == 3);
    fault_meet(comm);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* ---- A world ------------------------------------------------------------------------------------------------------- */

static void ordinary(tutti_comm *comm)
{
    tutti_actors *actors = make(comm);
    struct sums *sums = calloc(MANY, sizeof *sums);
    tutti_op ops[MANY];
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE)))) return;
    for (int i = 0; i < MANY; i++) {
        fill(&sums[i], i);
        CHECK(tutti_world_do_start(actors, "world", REQUEST(.calls = sums[i].calls, .count = 1), &ops[i]) == TUTTI_OK);
    }
    CHECK(tutti_wait_all(ops, MANY) == TUTTI_OK);
    for (int i = 0; i < MANY; i++) check_sums(&sums[i], i);

    tutti_collective_call group[SIZE][3]; /* a sum, its copy from rank 2 to all, and everybody's first number */
    double gathered[SIZE][SIZE], copies[SIZE];
    fill(&sums[0], 7);
    for (int r = 0; r < SIZE; r++) {
        copies[r] = r;
        group[r][0] = sums[0].calls[r];
        group[r][1] = (tutti_collective_call){
            .kind = TUTTI_DO_BROADCAST, .in = &copies[r], .out = &copies[r], .count = 1, .type = TUTTI_F64, .root = 2};
        group[r][2] = (tutti_collective_call){.kind = TUTTI_DO_ALL_GATHER,
                                              .in = &sums[1].values[r][0],
                                              .out = gathered[r],
                                              .count = 1,
                                              .type = TUTTI_F64};
    }
    CHECK(works(actors, tutti_world_do(actors, "world", REQUEST(.calls = &group[0][0], .count = 3))));
    check_sums(&sums[0], 7);
    for (int r = 0; r < SIZE; r++) CHECK(copies[r] == 2 && gathered[r][3] == sums[1].values[3][0]);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
    free(sums);
}

/* The calls of one rank with blocks of other sizes, scans and messages: rank r has r + 1 elements, which are all r. */
struct kinds {
    size_t counts[SIZE], offsets[SIZE], ones[SIZE], own[SIZE];
    double in[16], all[16], blocks[16], root[16], own_part[16], slice[16], turned[16], scan, exscan, one,
        gathered[SIZE], scattered, peer;
};

static void fill_kinds(struct kinds *k, int rank)
{
    for (int r = 0, at = 0; r < SIZE; r++) {
        k->counts[r] = (size_t)r + 1;
        k->offsets[r] = (size_t)at;
        k->ones[r] = (size_t)r;
        k->own[r] = 1;
        at += r + 1;
    }
    for (int i = 0; i < 16; i++) k->in[i] = rank;
    k->one = rank;
    k->exscan = -1;
}

#define CALL(NAME, ...)                                                                                                \
    (tutti_collective_call)                                                                                            \
    {                                                                                                                  \
        .kind = TUTTI_DO_##NAME, .type = TUTTI_F64, .reduction = TUTTI_SUM, __VA_ARGS__                                \
    }
enum { KINDS = 11 };

static void call_kinds(struct kinds *k, int rank, tutti_collective_call *calls)
{
    const size_t mine = (size_t)rank + 1;
    calls[0] = CALL(SCAN, .in = &k->one, .out = &k->scan, .count = 1);
    calls[1] = CALL(EXSCAN, .in = &k->one, .out = &k->exscan, .count = 1);
    calls[2] = CALL(GATHER, .in = &k->one, .out = k->gathered, .count = 1, .root = 3);
    calls[3] = CALL(SCATTER, .in = k->in, .out = &k->scattered, .count = 1, .root = 2);
    calls[4] = CALL(ALL_GATHER_V, .in = k->in, .out = k->all, .counts = k->counts, .offsets = k->offsets);
    calls[5] = CALL(GATHER_V, .in = k->in, .count = mine, .out = k->root, .counts = k->counts, .root = 1);
    calls[6] = CALL(SCATTER_V, .in = k->in, .counts = k->counts, .out = k->own_part, .count = mine, .root = 3);
    calls[7] = CALL(REDUCE_SCATTER_V, .in = k->in, .out = k->slice, .counts = k->counts);
    calls[8] = CALL(ALL_TO_ALL_V, .in = k->in, .counts = k->own, .offsets = k->ones, .out = k->turned,
                    .out_counts = k->own, .out_offsets = k->offsets);
    /* 0 sends to 3, and the others do nothing */
    calls[9] = CALL(SEND, .in = &k->one, .count = 1, .peer = rank == 0 ? 3 : TUTTI_NOBODY, .tag = 5);
    calls[10] = CALL(RECV, .out = &k->peer, .count = 1, .peer = rank == 3 ? 0 : TUTTI_NOBODY, .tag = 5);
}

static void check_kinds(const struct kinds *k, int rank)
{
    static const double packed[] = {0, 1, 1, 2, 2, 2, 3, 3, 3, 3};
    CHECK(k->scan == rank * (rank + 1) / 2.0 && k->exscan == (rank == 0 ? -1 : rank * (rank - 1) / 2.0));
    CHECK(k->scattered == 2 && k->all[9] == 3 && memcmp(k->all, packed, sizeof packed) == 0);
    for (int r = 0; r < SIZE; r++) {
        CHECK(k->turned[k->offsets[r]] == r);
        if (rank == 3) CHECK(k->gathered[r] == r);
    }
    if (rank == 1) CHECK(memcmp(k->root, packed, sizeof packed) == 0);
    for (int i = 0; i <= rank; i++) CHECK(k->own_part[i] == 3 && k->slice[i] == 6);
    if (rank == 3) CHECK(k->peer == 0);
}

/* Every kind of call one after the other, and all together. */
static void kinds(tutti_comm *comm)
{
    tutti_actors *actors = make(comm);
    struct kinds *k = calloc(SIZE, sizeof *k);
    tutti_collective_call all[SIZE][KINDS], one[SIZE];
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE)))) return;
    for (int together = 0; together < 2; together++) {
        memset(k, 0, SIZE * sizeof *k);
        for (int r = 0; r < SIZE; r++) {
            fill_kinds(&k[r], r);
            k[r].peer = 9;
            call_kinds(&k[r], r, all[r]);
        }
        if (together)
            CHECK(works(actors, tutti_world_do(actors, "world", REQUEST(.calls = &all[0][0], .count = KINDS))));
        for (int i = 0; !together && i < KINDS - 2; i++) {
            for (int r = 0; r < SIZE; r++) one[r] = all[r][i];
            CHECK(works(actors, tutti_world_do(actors, "world", REQUEST(.calls = one, .count = 1))));
        }
        for (int r = 0; !together && r < SIZE; r++) one[r] = all[r][r == 3 ? KINDS - 1 : KINDS - 2];
        if (!together) CHECK(works(actors, tutti_world_do(actors, "world", REQUEST(.calls = one, .count = 1))));
        for (int r = 0; r < SIZE; r++) check_kinds(&k[r], r);
    }
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
    free(k);
}

/* ---- Ranks that fail ------------------------------------------------------------------------------------------------ */

enum how { FAILS, FAILS_BEFORE, LOSES_DEVICE, LOSES_ACTOR, ENDS, WAITS, STALLS };
/* What whoever fails returns; only who ENDS has no actor any more. */
static const tutti_status reasons[] = {[FAILS] = TUTTI_ERR_LIMIT,
                                       [FAILS_BEFORE] = TUTTI_ERR_LIMIT,
                                       [LOSES_DEVICE] = TUTTI_ERR_DEVICE,
                                       [LOSES_ACTOR] = TUTTI_ERR_ACTOR,
                                       [ENDS] = TUTTI_ERR_PEER_LOST};
struct trouble {
    tutti_actors *actors;
    enum how how;
    int rank, until;         /* who, in attempts up to this one */
    _Atomic int calls[SIZE]; /* of each rank */
    _Atomic int attempts;    /* the latest */
    _Atomic int entered, gate;
    double sum[SIZE];
};

static tutti_status add(const tutti_world_place *place, struct trouble *trouble)
{
    double *x = &trouble->sum[place->rank];
    *x = place->rank;
    const int64_t deadline_ms = trouble->how == STALLS ? place->deadline_ms : 20000;
    return tutti_all_reduce(tutti_within(place->comm, deadline_ms), x, x, 1, TUTTI_F64, TUTTI_SUM);
}

static tutti_status work(const tutti_world_place *place, void *context, tutti_error *error)
{
    struct trouble *trouble = context;
    trouble->calls[place->rank]++;
    trouble->attempts = place->attempt;
    CHECK(place->size == SIZE && place->deadline_ms > 0 && tutti_rank(place->comm) == place->rank);
    if (trouble->how == WAITS) {
        trouble->entered++;
        await(&trouble->gate, 1);
    }
    if (trouble->how == STALLS) {
        if (place->rank == trouble->rank) await(&trouble->gate, 1);
        tutti_status status = place->rank == trouble->rank ? TUTTI_OK : add(place, trouble);
        trouble->entered += place->rank != trouble->rank;
        return status;
    }
    const bool mine = place->rank == trouble->rank && place->attempt <= trouble->until;
    if (mine && trouble->how == FAILS_BEFORE) CHECK(add(place, trouble) == TUTTI_OK);
    if (mine && trouble->how == ENDS) CHECK(tutti_actor_stop(trouble->actors, "world.2") == TUTTI_OK);
    if (mine) {
        snprintf(error->text, sizeof error->text, "number %d has had enough", place->rank);
        return reasons[trouble->how];
    }
    tutti_status status = add(place, trouble);
    if (status == TUTTI_OK && trouble->how == FAILS_BEFORE)
        status = add(place, trouble); /* the second is not answered */
    if (status != TUTTI_OK) snprintf(error->text, sizeof error->text, "%s", tutti_comm_error(place->comm)->text);
    return status;
}

static tutti_status ask(struct trouble *trouble, int retries)
{
    return tutti_world_do(trouble->actors, "world", REQUEST(.work = work, .context = trouble, .retries = retries));
}

static void failing(tutti_comm *comm)
{
    tutti_actors *actors = make(comm);
    struct sums sums;
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE)))) return;
    for (enum how how = FAILS; how <= FAILS_BEFORE; how++)
        for (int rank = 0; rank < SIZE;
             rank += 3) { /* with the reason, although it may be tried again: it is no loss */
            struct trouble trouble = {actors, how, rank, 9, {0}, 0, 0, 0, {0}};
            says(actors, ask(&trouble, 2), TUTTI_ERR_LIMIT, "has had enough");
            CHECK(trouble.calls[0] == 1 && trouble.calls[1] == 1);
            (void)add_up(actors, &sums, rank);
        }
    for (enum how how = LOSES_DEVICE; how <= ENDS; how++) {
        struct trouble once = {actors, how, 2, 1, {0}, 0, 0, 0, {0}}, twice = {actors, how, 2, 2, {0}, 0, 0, 0, {0}};
        CHECK(works(actors, ask(&once, 1)));
        CHECK(once.attempts == 2 && once.calls[0] == 2 && once.sum[3] == SIZE * (SIZE - 1) / 2);
        says(actors, ask(&twice, 1), reasons[how], "rank 2 of world 'world' (tried 2 times): number 2 has had enough");
        CHECK(twice.calls[2] == 2);
        (void)add_up(actors, &sums, (int)how);
    }
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* Rank 1 does not return until long after the deadline: its request is answered with that, so are others, and then the world goes
 * on; and one whose ranks differ. */
static void late(tutti_comm *comm)
{
    tutti_actors *actors = make(comm);
    struct trouble trouble = {actors, STALLS, 1, 1, {0}, 0, 0, 0, {0}};
    struct sums sums;
    tutti_op op;
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE)))) return;
    CHECK(tutti_world_do_start(actors, "world", REQUEST(.work = work, .context = &trouble, .deadline_ms = 40), &op) ==
          TUTTI_OK);
    says(actors, tutti_wait(op), TUTTI_ERR_TIMEOUT, "rank 1 of world 'world': its function has not returned");
    await(&trouble.entered, SIZE - 1); /* as many have ended */
    fill(&sums, 0);
    says(actors, tutti_world_do(actors, "world", REQUEST(.calls = sums.calls, .count = 1, .deadline_ms = 20)),
         TUTTI_ERR_TIMEOUT, "rank 1 of world 'world': its function has not returned");
    trouble.gate = 1;
    (void)add_up(actors, &sums, 1);
    fill(&sums, 0);
    sums.calls[2].count = COUNT - 1;
    says(actors, tutti_world_do(actors, "world", REQUEST(.calls = sums.calls, .count = 1, .retries = 1)),
         TUTTI_ERR_MISMATCH, "of world 'world'");
    (void)add_up(actors, &sums, 2);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* A rank's actor is stopped between requests: the next one meets it gone. */
static void ended(tutti_comm *comm)
{
    tutti_actors *actors = make(comm);
    struct sums sums;
    tutti_op op;
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE)))) return;
    for (int retries = 0; retries < 2; retries++) {
        (void)add_up(actors, &sums, retries); /* it may be being made anew until then */
        CHECK(tutti_actor_watch_start(actors, tutti_rank(comm), "world.1", &op) == TUTTI_OK);
        CHECK(tutti_actor_stop(actors, "world.1") == TUTTI_OK && tutti_wait(op) == TUTTI_OK);
        fill(&sums, 5);
        tutti_status status = tutti_world_do(actors, "world",
                                             REQUEST(.calls = sums.calls, .count = 1, .retries = retries));
        if (retries == 0) says(actors, status, TUTTI_ERR_ACTOR, "rank 1 of world 'world'");
    }
    (void)add_up(actors, &sums, 3);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* It fails more often in a row than it may: all that waits is answered, and the name is free. */
static void given_up(tutti_comm *comm)
{
    enum { REBUILDS = 2, WAITING = 6 };
    tutti_actors *actors = make(comm);
    struct trouble trouble = {actors, FAILS, 1, 9, {0}, 0, 0, 0, {0}};
    struct sums sums;
    tutti_op ops[WAITING], op;
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE, .rebuilds = REBUILDS)))) return;
    CHECK(tutti_actor_watch_start(actors, tutti_rank(comm), "world", &op) == TUTTI_OK);
    for (int i = 0; i < WAITING; i++)
        CHECK(tutti_world_do_start(actors, "world", REQUEST(.work = work, .context = &trouble), &ops[i]) == TUTTI_OK);
    for (int i = 0; i < WAITING; i++) {
        tutti_status status = tutti_wait(ops[i]), expected = i <= REBUILDS ? TUTTI_ERR_LIMIT : TUTTI_ERR_ACTOR;
        CHECK_THAT(status == expected, "%d: %s", i, tutti_status_name(status));
    }
    CHECK(tutti_wait(op) == TUTTI_ERR_LIMIT);
    CHECK(works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE))));
    (void)add_up(actors, &sums, 3);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* It is stopped while a request runs: that one ends, carried out or not, and more are refused. */
static void stopped(tutti_comm *comm)
{
    tutti_actors *actors = make(comm);
    struct trouble waits = {actors, WAITS, -1, 0, {0}, 0, 0, 0, {0}};
    tutti_op op, more;
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE)))) return;
    CHECK(tutti_world_do_start(actors, "world", REQUEST(.work = work, .context = &waits), &op) == TUTTI_OK);
    await(&waits.entered, SIZE);
    CHECK(tutti_actor_stop(actors, "world") == TUTTI_OK);
    says(actors, tutti_world_do_start(actors, "world", REQUEST(.work = work, .context = &waits), &more),
         TUTTI_ERR_ACTOR, "this world is about to end");
    waits.gate = 1;
    (void)tutti_wait(op);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* ---- Queues, deadlines, the end -------------------------------------------------------------------------------------- */

static void full(tutti_comm *comm)
{
    enum { ROOM = 3 };
    tutti_actors *actors = make(comm);
    struct trouble waits = {actors, WAITS, -1, 0, {0}, 0, 0, 0, {0}}, late = {actors, FAILS, -1, 0, {0}, 0, 0, 0, {0}};
    tutti_op ops[ROOM + 1], more;
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE, .queue = ROOM)))) return;
    CHECK(tutti_world_do_start(actors, "world", REQUEST(.work = work, .context = &waits), &ops[ROOM]) == TUTTI_OK);
    await(&waits.entered, SIZE);
    CHECK(tutti_world_do_start(actors, "world", REQUEST(.work = work, .context = &late, .deadline_ms = 1), &ops[0]) ==
          TUTTI_OK);
    for (int i = 1; i < ROOM; i++)
        CHECK(tutti_world_do_start(actors, "world", REQUEST(.work = work, .context = &waits), &ops[i]) == TUTTI_OK);
    says(actors, tutti_world_do_start(actors, "world", REQUEST(.work = work, .context = &waits), &more), TUTTI_ERR_FULL,
         "3 requests wait");
    CHECK(tutti_wait(ops[0]) == TUTTI_ERR_TIMEOUT);
    waits.gate = 1;
    CHECK(tutti_wait_all(ops + 1, ROOM) == TUTTI_OK);
    CHECK(late.calls[0] == 0); /* its asker had given it up */
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

struct answers {
    _Atomic int done, ended, others;
};

static void note(void *context, tutti_status status, const tutti_error *error)
{
    struct answers *answers = context;
    (void)error;
    if (status == TUTTI_OK)
        answers->done++;
    else if (status == TUTTI_ERR_ACTOR || status == TUTTI_ERR_CANCELLED)
        answers->ended++;
    else
        answers->others++;
}

/* Requests that wait, and one that runs, when all actors are freed: each is answered once. */
static void shut(tutti_comm *comm)
{
    tutti_actors *actors = make(comm);
    struct trouble waits = {actors, WAITS, -1, 0, {0}, 0, 0, 0, {0}};
    struct sums *sums = calloc(MANY, sizeof *sums);
    struct answers answers = {0};
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE)))) return;
    for (int i = 0; i < MANY; i++) {
        tutti_op op;
        fill(&sums[i], i);
        tutti_world_request request = {.struct_size = sizeof request, .calls = sums[i].calls, .count = 1, .retries = 1};
        if (i == 0) request = *REQUEST(.work = work, .context = &waits);
        CHECK(tutti_world_do_start(actors, "world", &request, &op) == TUTTI_OK);
        CHECK(tutti_when_ended(op, note, &answers) == TUTTI_OK && tutti_drop(op) == TUTTI_OK);
    }
    await(&waits.entered, SIZE);
    waits.gate = 1;
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
    CHECK_THAT(answers.done + answers.ended == MANY && answers.done < MANY && answers.others == 0, "%d, %d, %d",
               answers.done, answers.ended, answers.others);
    free(sums);
}

/* ---- Devices ----------------------------------------------------------------------------------------------------------- */

static const char *device_names = "host,host,host,host";

/* A buffer on the rank's device: made, filled, added up on its stream, read. */
static tutti_status on_device(const tutti_world_place *place, void *context, tutti_error *error)
{
    struct trouble *trouble = context;
    tutti_buffer *buffer = NULL;
    float values[COUNT], one = (float)(place->rank + 1);
    if (place->rank == trouble->rank && place->attempt <= trouble->until) return TUTTI_ERR_DEVICE;
    tutti_status status = tutti_buffer_create(place->device, TUTTI_MEMORY_LOCAL, TUTTI_F32, COUNT, &buffer, error);
    if (status == TUTTI_OK) status = tutti_buffer_fill(buffer, 0, COUNT, &one, place->stream, error);
    void *x = status == TUTTI_OK ? tutti_buffer_at(buffer, 0, COUNT) : NULL;
    if (status == TUTTI_OK) {
        status = tutti_all_reduce(tutti_on(tutti_within(place->comm, 20000), place->stream), x, x, COUNT, TUTTI_F32,
                                  TUTTI_SUM);
        if (status != TUTTI_OK) *error = *tutti_comm_error(place->comm);
    }
    if (status == TUTTI_OK) status = tutti_buffer_get(buffer, 0, values, COUNT, place->stream, error);
    if (status == TUTTI_OK) status = tutti_stream_sync(place->stream, 20000, error);
    trouble->sum[place->rank] = (double)values[COUNT - 1];
    tutti_error ignored;
    if (buffer != NULL) (void)tutti_buffer_free(buffer, &ignored);
    return status;
}

static void devices(tutti_comm *comm, struct fault_rank *self)
{
    tutti_actors *actors = make(comm);
    (void)self;
    if (!works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE, .devices = device_names)))) return;
    for (int until = 0; until < 2; until++) {
        struct trouble trouble = {actors, LOSES_DEVICE, 1, until, {0}, 0, 0, 0, {0}};
        CHECK(works(actors, tutti_world_do(actors, "world",
                                           REQUEST(.work = on_device, .context = &trouble, .retries = until))));
        for (int r = 0; r < SIZE; r++) CHECK(trouble.sum[r] == SIZE * (SIZE + 1) / 2);
    }
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* ---- Bad input ----------------------------------------------------------------------------------------------------------- */

static void bad_input(tutti_comm *comm)
{
    tutti_actors *actors = make(comm);
    tutti_collective_call calls[SIZE] = {{.kind = TUTTI_DO_COLLECTIVES}};
    struct sums sums;
    says(actors, tutti_world_actor(actors, "world", NULL), TUTTI_ERR_ARGUMENT, "a number of ranks, or devices");
    says(actors, tutti_world_actor(actors, "world", &(tutti_world_actor_options){.ranks = 2}), TUTTI_ERR_ARGUMENT,
         "set struct_size to sizeof");
    says(actors, tutti_world_do(actors, "world", &(tutti_world_request){.work = work}), TUTTI_ERR_ARGUMENT,
         "set struct_size to sizeof");
    says(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = -1)), TUTTI_ERR_ARGUMENT, "1 to 4096 ranks");
    says(actors, tutti_world_actor(actors, "a name that is so long that no rank has room", OPTIONS(.ranks = 2)),
         TUTTI_ERR_ARGUMENT, "1 to 42 bytes");
    CHECK(tutti_world_actor(actors, "world", OPTIONS(.devices = "nothing:3")) != TUTTI_OK); /* and the name is free: */
    CHECK(works(actors, tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE))));
    CHECK(tutti_world_actor(actors, "world", OPTIONS(.ranks = SIZE)) == TUTTI_ERR_ARGUMENT);
    says(actors, tutti_world_do(actors, "other", REQUEST(.work = work)), TUTTI_ERR_ARGUMENT, "no world of that name");
    says(actors, tutti_world_do(actors, "world.1", REQUEST(.work = work)), TUTTI_ERR_ARGUMENT, "no world of that name");
    says(actors, tutti_world_do(actors, "world", REQUEST(.count = 0)), TUTTI_ERR_ARGUMENT, "there are no calls");
    says(actors, tutti_world_do(actors, "world", REQUEST(.calls = calls, .count = 1)), TUTTI_ERR_ARGUMENT,
         "no such collective");
    says(actors, tutti_world_do(actors, "world", REQUEST(.work = work, .calls = calls, .count = 1)), TUTTI_ERR_ARGUMENT,
         "not both");
    says(actors, tutti_actor_ask(actors, tutti_rank(comm), "world.1", "x", 1, NULL, 0, NULL, 0), TUTTI_ERR_ARGUMENT,
         "its part of the world's requests only");
    (void)add_up(actors, &sums, 1);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

static int run_all(tutti_comm *comm, void *context)
{
    (void)context;
    ordinary(comm);
    kinds(comm);
    failing(comm);
    late(comm);
    ended(comm);
    given_up(comm);
    stopped(comm);
    full(comm);
    shut(comm);
    bad_input(comm);
    return 0;
}

static void body(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    (void)run_all(comm, NULL);
}

int main(int argc, char **argv)
{
    fault_begin(50);
    tutti_log_set_level(TUTTI_QUIET);
    setenv("TUTTI_LOG", "quiet", 1);
    if (argc > 1) device_names = argv[1];
    if (argc > 1) fault_run_body("a world with devices", devices, 1, true, false);
    if (argc > 1) return fault_end();
    for (uint64_t seed = 0; seed < 5; seed++) {
        tutti_sim_setup setup = sim_setup(1, seed);
        tutti_error error = {0};
        check_title("simulated, seed %d", (int)seed);
        setup.noise_ns = seed == 0 ? 0 : 200;
        tutti_status status = tutti_sim_run(&setup, run_all, NULL, NULL, &error);
        CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error.text);
    }
    fault_run_body("collectives", collectives, 3, false, false);
    fault_run_body("collectives of processes", collectives, 2, true, false);
    fault_run_body("collectives of processes", collectives, 3, true, true);
    fault_run_body("nobody else comes", alone, 3, false, false);
    fault_run_body("a world", body, 1, true, false);
    fault_run_body("a world with devices", devices, 1, true, false);
    return fault_end();
}
