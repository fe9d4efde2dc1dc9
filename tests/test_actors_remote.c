/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan waits
 *
 * Requests to actors of other ranks, over memory, tcp, between threads, and simulated: payloads of all sizes, thousands at once,
 * errors that come back, ranks that are killed, leave, are late, or of another epoch; collectives go on beside them.
 */
#define TUTTI_NO_CALL_SITES
#include "collective/comm/epoch.h"
#include "fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/actor.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 1, MANY = 2000, LIMIT = 1 << 20 };

static bool over_tcp;

#define OPTIONS(...) (&(tutti_actor_options){.struct_size = sizeof(tutti_actor_options), __VA_ARGS__})

static tutti_actors *make(tutti_comm *comm)
{
    tutti_actors *actors = NULL;
    tutti_actors_options options = {
        .struct_size = sizeof options, .threads = 1, .payload_bytes = LIMIT, .deadline_ms = 50000};
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

/* ---- Actors: the first byte says what to do ------------------------------------------------------------------------ */

struct state {
    _Atomic int handled, told, ended, kept;
    _Atomic int gate, entered;
    uint32_t last[RANKS]; /* numbers of the requests of each rank, which come in order */
    uint64_t numbers[MANY];
    tutti_status ended_with;
    int ended_rank;
};

static void await(_Atomic int *word, int least)
{
    for (int64_t until = tutti_clock_ns() + INT64_C(30000000000); *word < least && tutti_clock_ns() < until;)
        tutti_spend_ns(50000);
    CHECK_THAT(*word >= least, "%d, not %d", *word, least);
}

static void turn_over(unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)~data[i];
}

static tutti_status echo(tutti_request *request)
{
    unsigned char *copy = malloc(request->bytes + 1);
    memcpy(copy, request->data, request->bytes);
    turn_over(copy, request->bytes);
    tutti_status status = tutti_request_answer(request, copy, request->bytes);
    free(copy);
    return status;
}

static tutti_status handle(tutti_actor *self, void *context, tutti_request *request)
{
    struct state *state = context;
    uint32_t number = 0;
    state->handled++;
    if (request->kind == TUTTI_ENDED) {
        state->ended_with = request->error == NULL ? TUTTI_OK : request->error->status;
        state->ended_rank = request->rank;
        state->ended++;
        return TUTTI_OK;
    }
    switch (request->bytes == 0 ? 'e' : ((const char *)request->data)[0]) {
    case 'f': return tutti_actor_fail(self, TUTTI_ERR_DIVERGED, "the loss is NaN");
    case 'k':
        state->numbers[state->kept] = tutti_request_keep(request);
        state->kept++;
        return TUTTI_OK;
    case 'n': /* a number, which is larger than the last one of that rank */
        memcpy(&number, (const char *)request->data + 4, sizeof number);
        CHECK_THAT(number == state->last[request->rank] + 1, "%u after %u of rank %d", number,
                   state->last[request->rank], request->rank);
        state->last[request->rank] = number;
        if (request->kind == TUTTI_TOLD) return TUTTI_OK;
        return tutti_request_answer(request, &number, sizeof number);
    case 'K': return kill(getpid(), SIGKILL) == 0 ? TUTTI_OK : TUTTI_ERR_SYSTEM;
    case 's':
        state->entered++;
        await(&state->gate, 1);
        return tutti_request_answer(request, NULL, 0);
    case 'o': state->gate = 1; return tutti_request_answer(request, NULL, 0);
    case 'w':
        CHECK(tutti_actor_watch(self, ((const char *)request->data)[1], "worker") == TUTTI_OK);
        return tutti_request_answer(request, NULL, 0);
    default: return request->kind == TUTTI_TOLD ? TUTTI_OK : echo(request);
    }
}

static void create(tutti_actors *actors, const char *name, struct state *state, bool pinned)
{
    CHECK(tutti_actor_create(actors, OPTIONS(.name = name, .handle = handle, .context = state, .mailbox = MANY,
                                             .pinned = pinned)) == TUTTI_OK);
}

static tutti_status ask_for(tutti_actors *actors, int rank, const char *what)
{
    char answer[8];
    size_t received;
    return tutti_actor_ask(actors, rank, "worker", what, strlen(what), answer, sizeof answer, &received, 0);
}

/* A request and its answer of so many bytes. */
static void exchange(tutti_actors *actors, int rank, size_t bytes)
{
    unsigned char *out = calloc(1, bytes + 1), *in = malloc(bytes + 1);
    size_t received = 1234567;
    for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)(200 + i % 51);
    in[bytes] = 77;
    tutti_status status = tutti_actor_ask(actors, rank, "worker", out, bytes, in, bytes, &received, 0);
    CHECK_THAT(status == TUTTI_OK && received == bytes && in[bytes] == 77, "%zu bytes, rank %d: %s", bytes, rank,
               status == TUTTI_OK ? "" : tutti_actors_error(actors)->text);
    turn_over(in, bytes);
    CHECK(status != TUTTI_OK || memcmp(in, out, bytes) == 0);
    free(out);
    free(in);
}

/* ---- Cases --------------------------------------------------------------------------------------------------------- */

static void ordinary(tutti_comm *comm, struct fault_rank *self)
{
    static const size_t sizes[] = {0, 1, 64, 4015, 4016, 4017, 70000, LIMIT};
    struct state state = {0};
    tutti_actors *actors = make(comm);
    int rank = tutti_rank(comm), size = tutti_size(comm), x = 1;
    tutti_op op;
    (void)self;
    create(actors, "worker", &state, rank % 2);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int peer = 0; peer < size; peer++) exchange(actors, peer, sizes[i]);
    int peer = (rank + 1) % size;
    char whom[128];
    CHECK(ask_for(actors, peer, "f") == TUTTI_ERR_DIVERGED);
    snprintf(whom, sizeof whom, "actor 'worker' of rank %d failed in `handle`: the loss is NaN", peer);
    tells(actors, TUTTI_ERR_DIVERGED, whom);
    CHECK(tutti_actor_ask(actors, peer, "nobody", NULL, 0, NULL, 0, NULL, 0) == TUTTI_ERR_ACTOR);
    snprintf(whom, sizeof whom, "rank %d has no actor 'nobody'", peer);
    tells(actors, TUTTI_ERR_ACTOR, whom);
    CHECK(tutti_actor_tell(actors, peer, "nobody", NULL, 0) == TUTTI_ERR_ACTOR);
    CHECK(tutti_actor_ask_start(actors, peer, "worker", "", LIMIT + 1, NULL, 0, NULL, 0, &op) == TUTTI_ERR_COUNT);
    CHECK(tutti_actor_ask(actors, peer, "worker", "echo", 4, whom, 3, NULL, 0) == TUTTI_ERR_TRUNCATED);
    int64_t began = tutti_clock_ns();
    CHECK(tutti_actor_ask(actors, peer, "worker", "k", 1, NULL, 0, NULL, 40) == TUTTI_ERR_TIMEOUT);
    CHECK(tutti_clock_ns() - began >= 40000000);
    snprintf(whom, sizeof whom, "actor 'worker' of rank %d has not answered within 40 ms", peer);
    tells(actors, TUTTI_ERR_TIMEOUT, whom);
    await(&state.kept, 1);
    fault_meet(comm);
    CHECK(tutti_actors_answer(actors, state.numbers[0], TUTTI_OK, "late", 4) == TUTTI_OK);
    CHECK(tutti_all_reduce(comm, &x, &x, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_OK && x == size);
    exchange(actors, peer, 64);
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_actors_free(actors) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* Of which some are large: those of one rank come in order all the same. */
static size_t bytes_of(uint32_t number)
{
    return number % 97 == 0 ? 20000 : 8;
}

static void many(tutti_comm *comm, struct fault_rank *self)
{
    struct state *state = calloc(1, sizeof *state);
    tutti_actors *actors = make(comm);
    int rank = tutti_rank(comm), size = tutti_size(comm), x = 0;
    tutti_op *ops = calloc(MANY, sizeof *ops);
    uint32_t *answers = calloc(MANY, sizeof *answers);
    char *data = calloc(1, 20000);
    (void)self;
    create(actors, "worker", state, 0);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    data[0] = 'n';
    for (uint32_t i = 0; i < MANY / (uint32_t)size; i++) {
        uint32_t number = i + 1;
        int peer = (rank + 1) % size;
        memcpy(data + 4, &number, sizeof number);
        CHECK(tutti_actor_ask_start(actors, peer, "worker", data, bytes_of(number), &answers[i], sizeof *answers, NULL,
                                    0, &ops[i]) == TUTTI_OK);
        if (i % 100 == 0) CHECK(tutti_all_reduce(comm, &x, &x, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_OK); /* beside them */
    }
    CHECK(tutti_wait_all(ops, MANY) == TUTTI_OK);
    for (uint32_t i = 0; i < MANY / (uint32_t)size; i++) CHECK(answers[i] == i + 1);
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_actors_free(actors) == TUTTI_OK);
    free(state);
    free(ops);
    free(answers);
    free(data);
}

/* A mailbox that is full, of another rank: who sends too much is told, and what fitted is handled. */
static void full(tutti_comm *comm, struct fault_rank *self)
{
    enum { ROOM = 5 };
    struct state state = {0};
    tutti_actors *actors = make(comm);
    tutti_op ops[ROOM + 3];
    (void)self;
    if (tutti_rank(comm) == 1)
        CHECK(tutti_actor_create(
                  actors, OPTIONS(.name = "worker", .handle = handle, .context = &state, .mailbox = ROOM)) == TUTTI_OK);
    if (tutti_rank(comm) == 1) create(actors, "other", &state, 1);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    if (tutti_rank(comm) == 0) {
        CHECK(tutti_actor_ask_start(actors, 1, "worker", "s", 1, NULL, 0, NULL, 0, &ops[0]) == TUTTI_OK);
        fault_meet(comm);
        for (int i = 1; i < ROOM + 3; i++)
            CHECK(tutti_actor_tell_start(actors, 1, "worker", "x", 1, &ops[i]) == TUTTI_OK);
        for (int i = 1; i < ROOM + 3; i++) {
            tutti_status status = tutti_wait(ops[i]);
            CHECK_THAT(status == (i <= ROOM ? TUTTI_OK : TUTTI_ERR_FULL), "%d: %s", i, tutti_status_name(status));
        }
        tells(actors, TUTTI_ERR_FULL, "the mailbox of actor 'worker' of rank 1 is full: 5 requests");
        CHECK(tutti_actor_tell(actors, 1, "other", "x", 1) == TUTTI_OK);
        fault_meet(comm);
        CHECK(tutti_wait(ops[0]) == TUTTI_OK);
        tutti_status status; /* until there is room again */
        while ((status = ask_for(actors, 1, "e")) == TUTTI_ERR_FULL) {}
        CHECK_THAT(status == TUTTI_OK, "%s", tutti_status_name(status));
    } else {
        await(&state.entered, 1);
        fault_meet(comm);
        fault_meet(comm);
        state.gate = 1;
        await(&state.handled, ROOM + 3);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_actors_free(actors) == TUTTI_OK);
    CHECK(state.handled == (tutti_rank(comm) == 0 ? 0 : ROOM + 3));
}

/* ---- A rank is lost ------------------------------------------------------------------------------------------------ */

enum end { BY_ITSELF, IN_A_HANDLER, IN_SHUTDOWN, ENDS };
static enum end victims_end;

/* The shutdown has answered what is pending, or is about to. */
static void stop_and_die(tutti_actor *self, void *state)
{
    (void)self, (void)state;
    kill(getpid(), SIGKILL);
}

static void die(tutti_actors *actors)
{
    if (victims_end == IN_A_HANDLER) CHECK(tutti_actor_tell(actors, VICTIM, "worker", "K", 1) == TUTTI_OK);
    if (victims_end == IN_SHUTDOWN) (void)tutti_actors_free(actors);
    if (victims_end == BY_ITSELF) kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* A shutdown may have answered before the death. */
static bool ends_with_rank(tutti_status status)
{
    return status == TUTTI_ERR_PEER_LOST || (victims_end == IN_SHUTDOWN && status == TUTTI_ERR_ACTOR);
}

static void killed(tutti_comm *comm, struct fault_rank *self)
{
    enum { PENDING = 200 };
    struct state *state = calloc(1, sizeof *state);
    tutti_actors *actors = make(comm);
    tutti_op ops[PENDING], watch;
    int rank = tutti_rank(comm);
    char victim[2] = {'w', VICTIM};
    const bool dies_in_stop = rank == VICTIM && victims_end == IN_SHUTDOWN;
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "worker", .handle = handle, .context = state, .mailbox = MANY,
                                             .stop = dies_in_stop ? stop_and_die : NULL)) == TUTTI_OK);
    fault_meet(comm);
    if (rank == VICTIM) {
        fault_meet(comm);
        await(&state->kept, PENDING * (RANKS - 1) < MANY ? PENDING * (RANKS - 1) : MANY);
        die(actors);
    }
    for (int i = 0; i < PENDING; i++)
        CHECK(tutti_actor_ask_start(actors, VICTIM, "worker", "k", 1, NULL, 0, NULL, 0, &ops[i]) == TUTTI_OK);
    CHECK(tutti_actor_watch_start(actors, VICTIM, "worker", &watch) == TUTTI_OK);
    CHECK(tutti_actor_ask(actors, rank, "worker", victim, 2, NULL, 0, NULL, 0) == TUTTI_OK); /* watches it, too */
    fault_meet(comm);
    for (int i = 0; i < PENDING; i++) CHECK(ends_with_rank(tutti_wait(ops[i])));
    if (victims_end != IN_SHUTDOWN) tells(actors, TUTTI_ERR_PEER_LOST, "rank 1 is lost");
    CHECK(tutti_actors_error(actors)->peer == VICTIM && ends_with_rank(tutti_wait(watch)));
    await(&state->ended, 1);
    CHECK(ends_with_rank(state->ended_with) && state->ended_rank == VICTIM);
    while (ask_for(actors, VICTIM, "e") == TUTTI_ERR_ACTOR) {} /* until its process has ended */
    CHECK(ask_for(actors, VICTIM, "e") == TUTTI_ERR_PEER_LOST &&
          tutti_actor_tell(actors, VICTIM, "worker", "e", 1) == TUTTI_ERR_PEER_LOST);
    self->mark = 1;
    for (int peer = 0; peer < RANKS; peer++)
        if (peer != VICTIM) fault_await_mark(peer, 1);
    for (int peer = 0; peer < RANKS; peer++)
        if (peer != VICTIM) exchange(actors, peer, 5000); /* the others go on */
    self->mark = 2;
    for (int peer = 0; peer < RANKS; peer++)
        if (peer != VICTIM) fault_await_mark(peer, 2);
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
    free(state);
}

/* It shuts down with requests pending, and others go on. */
static void leaves(tutti_comm *comm, struct fault_rank *self)
{
    enum { PENDING = 50 };
    struct state *state = calloc(1, sizeof *state);
    tutti_actors *actors = make(comm);
    tutti_op ops[PENDING], own;
    int rank = tutti_rank(comm), size = tutti_size(comm);
    (void)self;
    create(actors, "worker", state, 1);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    for (int i = 0; i < PENDING && rank != VICTIM; i++)
        CHECK(tutti_actor_ask_start(actors, VICTIM, "worker", "k", 1, NULL, 0, NULL, 0, &ops[i]) == TUTTI_OK);
    if (rank == VICTIM) {
        await(&state->kept, PENDING * (size - 1));
        CHECK(tutti_actor_ask_start(actors, 0, "worker", "k", 1, NULL, 0, NULL, 0, &own) == TUTTI_OK);
        CHECK(tutti_drop(own) == TUTTI_OK && tutti_actors_free(actors) == TUTTI_OK);
    } else {
        for (int i = 0; i < PENDING; i++) CHECK(tutti_wait(ops[i]) == TUTTI_ERR_ACTOR);
        tutti_status status;
        while ((status = ask_for(actors, VICTIM, "e")) == TUTTI_OK) {} /* until it is told */
        CHECK(status == TUTTI_ERR_ACTOR);
        for (int peer = 0; peer < size; peer++)
            if (peer != VICTIM) exchange(actors, peer, 100);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    if (rank != VICTIM) {
        CHECK(ask_for(actors, VICTIM, "e") == TUTTI_ERR_ACTOR);
        tells(actors, TUTTI_ERR_ACTOR, "rank 1 has shut down its actors");
        CHECK(tutti_actors_free(actors) == TUTTI_OK);
    }
    free(state);
}

/* Others hear of it, in whatever they ask this rank; nobody hangs. */
static void epochs(tutti_comm *comm, struct fault_rank *self)
{
    struct state state = {0};
    tutti_actors *actors = make(comm);
    tutti_op op;
    (void)self;
    create(actors, "worker", &state, 0);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_actor_ask_start(actors, 1 - tutti_rank(comm), "worker", "k", 1, NULL, 0, NULL, 0, &op) == TUTTI_OK);
    await(&state.kept, 1);
    fault_meet(comm);
    tti_epoch_raise(comm, (uint32_t)tutti_epoch(comm) + 1);
    tutti_status status = tutti_wait(op);
    CHECK_THAT(status == TUTTI_ERR_EPOCH, "%s", tutti_status_name(status));
    status = ask_for(actors, 1 - tutti_rank(comm), "e");
    CHECK_THAT(status == TUTTI_ERR_EPOCH, "%s", tutti_status_name(status));
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
}

/* ---- Nobody else is disturbed -------------------------------------------------------------------------------------- */

/* A collective of the comm whose actors it is one of. */
static tutti_status call_collective(tutti_actor *self, void *context, tutti_request *request)
{
    double x = 1;
    (void)self;
    tutti_status status = tutti_all_reduce(context, &x, &x, 1, TUTTI_F64, TUTTI_SUM);
    return tutti_request_answer(request, &status, sizeof status);
}

static void fill_mailbox(tutti_actors *actors, int room)
{
    tutti_status status = TUTTI_OK;
    tutti_op op;
    int taken = 0;
    CHECK(tutti_actor_ask_start(actors, 0, "small", "s", 1, NULL, 0, NULL, 0, &op) == TUTTI_OK);
    while (taken <= room + 1 && (status = tutti_actor_tell(actors, 0, "small", "x", 1)) == TUTTI_OK) taken++;
    CHECK_THAT(status == TUTTI_ERR_FULL && taken >= room - 1 && taken <= room, "%s after %d", tutti_status_name(status),
               taken);
    tells(actors, TUTTI_ERR_FULL, "the mailbox of actor 'small' of rank 0 is full");
    CHECK(ask_for(actors, 0, "o") == TUTTI_OK && tutti_wait(op) == TUTTI_OK);
}

/* All that rank 1 can do wrong to rank 0. */
static void misbehave(tutti_actors *actors, int room)
{
    char *large = calloc(1, LIMIT + 1), answer[8];
    tutti_status inside = TUTTI_OK;
    fill_mailbox(actors, room);
    for (int i = 0; i < 20; i++) {
        CHECK(tutti_actor_ask(actors, 0, "nobody", "e", 1, NULL, 0, NULL, 0) == TUTTI_ERR_ACTOR);
        tells(actors, TUTTI_ERR_ACTOR, "nobody");
        CHECK(tutti_actor_ask(actors, 0, "worker", large, LIMIT + 1, NULL, 0, NULL, 0) == TUTTI_ERR_COUNT);
        CHECK(tutti_actor_ask(actors, 0, "worker", large, 100, answer, 8, NULL, 0) == TUTTI_ERR_TRUNCATED);
        CHECK(ask_for(actors, 0, "f") == TUTTI_ERR_DIVERGED);
        CHECK(tutti_actor_ask(actors, 0, "caller", NULL, 0, &inside, sizeof inside, NULL, 0) == TUTTI_OK);
        CHECK_THAT(inside == TUTTI_ERR_ARGUMENT, "%s", tutti_status_name(inside));
    }
    free(large);
}

/* Requests between ranks 0 and 2, and collectives, until rank 1 has done its worst. */
static void go_on(tutti_actors *actors, tutti_comm *pair, int peer)
{
    double done = 0;
    for (size_t round = 0; done < 2; round++) {
        exchange(actors, peer, 64 + 997 * round % 9000);
        done = fault_shared->ranks[1].mark;
        CHECK(tutti_all_reduce(pair, &done, &done, 1, TUTTI_F64, TUTTI_SUM) == TUTTI_OK);
    }
    exchange(actors, peer, 64);
}

static void undisturbed(tutti_comm *comm, struct fault_rank *self)
{
    enum { ROOM = 3 };
    struct state state = {0};
    tutti_comm *pair = NULL;
    const int rank = tutti_rank(comm);
    CHECK(tutti_comm_split(comm, rank == 1, rank, &pair) == TUTTI_OK);
    tutti_actors *actors = make(comm);
    CHECK(tutti_actor_create(
              actors, OPTIONS(.name = "worker", .handle = handle, .context = &state, .restarts = 1000)) == TUTTI_OK);
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "small", .handle = handle, .context = &state, .mailbox = ROOM,
                                             .pinned = true)) == TUTTI_OK);
    CHECK(tutti_actor_create(actors, OPTIONS(.name = "caller", .handle = call_collective, .context = comm)) ==
          TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    if (rank == 1)
        misbehave(actors, ROOM);
    else
        go_on(actors, pair, 2 - rank);
    self->mark = 1; /* of rank 1: the others may end */
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_actors_free(actors) == TUTTI_OK && tutti_comm_free(pair) == TUTTI_OK);
}

static void differing(tutti_comm *comm, struct fault_rank *self)
{
    tutti_actors *actors = NULL;
    tutti_actors_options options = {.struct_size = sizeof options, .payload_bytes = 100 + (size_t)tutti_rank(comm)};
    (void)self;
    CHECK(tutti_actors_create(comm, &options, &actors) == TUTTI_ERR_MISMATCH && actors == NULL);
    CHECK(strstr(tutti_comm_error(comm)->text, "payload_bytes is") != NULL);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* ---- Everywhere ---------------------------------------------------------------------------------------------------- */

static void expect_victim(struct fault_world *world)
{
    (void)world;
    fault_expect_end(VICTIM);
}

static void run_killed(void)
{
    struct fault_world world = {.size = RANKS, .processes = true, .body = killed, .meanwhile = expect_victim};
    if (over_tcp) world.settings[0] = "TUTTI_TRANSPORT=tcp";
    for (victims_end = 0; victims_end < ENDS; victims_end++) {
        static const char *const names[] = {"", " in a handler", " while it shuts down"};
        check_title("a rank is killed%s%s", names[victims_end], over_tcp ? ", tcp" : "");
        fault_run(&world);
    }
}

static void run_all(bool processes)
{
    fault_run_body("ordinary", ordinary, 3, processes, over_tcp);
    fault_run_body("many at once", many, 2, processes, over_tcp);
    fault_run_body("a full mailbox", full, 2, processes, over_tcp);
    fault_run_body("a rank leaves", leaves, 3, processes, over_tcp);
    fault_run_body("another epoch", epochs, 2, processes, over_tcp);
    fault_run_body("nobody else is disturbed", undisturbed, 3, processes, over_tcp);
    fault_run_body("ranks that differ", differing, 2, processes, over_tcp);
    if (processes) run_killed();
}

/* The victim ends where it stands, with requests of all others pending. */
static int simulated(tutti_comm *world, void *context)
{
    struct state *state = calloc(1, sizeof *state);
    tutti_actors *actors = make(world);
    int rank = tutti_rank(world), size = tutti_size(world);
    tutti_op op;
    (void)context;
    create(actors, "worker", state, rank % 2);
    CHECK(tutti_barrier(world) == TUTTI_OK);
    for (int peer = 0; peer < size; peer++) exchange(actors, peer, (size_t)(10 + 3000 * rank));
    CHECK(tutti_actor_ask_start(actors, VICTIM, "worker", "k", 1, NULL, 0, NULL, 0, &op) == TUTTI_OK);
    if (rank == VICTIM) tutti_spend_ns(INT64_C(100000000000));
    CHECK(tutti_wait(op) == TUTTI_ERR_PEER_LOST && tutti_clock_ns() > INT64_C(1000000000));
    for (int peer = 0; peer < size; peer++)
        if (peer != VICTIM) exchange(actors, peer, 64);
    int64_t began = tutti_clock_ns();
    CHECK(tutti_actor_ask(actors, rank == 0 ? 2 : 0, "worker", "k", 1, NULL, 0, NULL, 5000) == TUTTI_ERR_TIMEOUT);
    CHECK_THAT(tutti_clock_ns() - began < INT64_C(5010000000), "%lld", (long long)(tutti_clock_ns() - began));
    tutti_spend_ns(INT64_C(5000000000)); /* the others' too */
    CHECK(tutti_actors_free(actors) == TUTTI_OK);
    free(state);
    return 0;
}

static void run_simulated(void)
{
    tutti_sim_death death = {.rank = VICTIM, .at_ns = INT64_C(1000000000)};
    for (int i = 0; i < 12; i++) {
        tutti_sim_setup setup;
        tutti_error error = {0};
        check_title("simulated, seed %d", i);
        tutti_sim_setup_init(&setup);
        setup.hosts = 1 << i % 3;
        setup.ranks_per_host = RANKS / setup.hosts;
        setup.seed = (uint64_t)i;
        setup.noise_ns = i * 50;
        setup.stack_bytes = 1 << 18;
        setup.deaths = &death;
        setup.death_count = 1;
        tutti_status status = tutti_sim_run(&setup, simulated, NULL, NULL, &error);
        CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error.text);
    }
}

int main(void)
{
    fault_begin(110);
    tutti_log_set_level(TUTTI_QUIET);
    setenv("TUTTI_LOG", "quiet", 1);
    run_simulated();
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
