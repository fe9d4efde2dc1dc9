/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=400 labels=asan,tsan waits
 *
 * The parameter server: the bits of data parallel without staleness, the bound with it, workers that leave, join and are killed
 * in a push, servers that are killed; over threads, processes and tcp.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"
#include "train/server.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PARAMETERS = 4, STEPS = 5 };
static const size_t sizes[PARAMETERS] = {5, 9000, 1, 700000}; /* some blocks, and more than one request */
static const char *const names[PARAMETERS] = {"a", "b", "c", "d"};

static bool over_tcp;

/* ---- Parameters ---------------------------------------------------------------------------------------------------- */

struct list {
    tutti_parameter parameters[PARAMETERS];
    float *memory;
    size_t elements;
};

static struct list list_make(int rank)
{
    struct list list = {0};
    for (int i = 0; i < PARAMETERS; i++) list.elements += sizes[i];
    list.memory = calloc(2 * list.elements, sizeof(float));
    float *at = list.memory;
    for (int i = 0; i < PARAMETERS; i++, at += 2 * sizes[i - 1]) {
        list.parameters[i] = (tutti_parameter){names[i], at, at + sizes[i], sizes[i], i % 2 == 1};
        for (size_t k = 0; k < sizes[i]; k++) at[k] = (float)((k * 7919 + 13) % 1000) / 500 - 1 + (float)rank;
    }
    return list;
}

/* Gradients that depend on the values, the worker and the step. */
static double differentiate(struct list *list, int worker, int step)
{
    double loss = 0;
    for (int i = 0; i < PARAMETERS; i++)
        for (size_t k = 0; k < sizes[i]; k++) {
            const float aim = (float)((k * (size_t)(worker + 2) + (size_t)(3 * step)) % 101) / 50 - 1;
            list->parameters[i].gradient[k] = list->parameters[i].value[k] - aim;
            if (k < 10) loss += (double)list->parameters[i].gradient[k];
        }
    return loss;
}

static uint64_t hash_of(const struct list *list)
{
    return tutti_weights_hash(list->parameters, PARAMETERS);
}

/* ---- Calls ----------------------------------------------------------------------------------------------------------- */

static tutti_server *make(tutti_comm *comm, struct list *list, tutti_server_options options)
{
    tutti_server *server = NULL;
    tutti_error error = {0};
    options.struct_size = sizeof options;
    *list = list_make(tutti_rank(comm));
    tutti_status status = tutti_server_create(comm, list->parameters, PARAMETERS, &options, &server, &error);
    CHECK_THAT(status == TUTTI_OK && server != NULL, "%s: %s", tutti_status_name(status), error.text);
    return server;
}

static bool works(const tutti_server *server, tutti_status status)
{
    const tutti_error *error = tutti_server_error(server);
    return CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
}

static bool fails(const tutti_server *server, tutti_status status, tutti_status expected, const char *words)
{
    const tutti_error *error = tutti_server_error(server);
    return CHECK_THAT(status == expected && error != NULL && strstr(error->text, words) != NULL, "%s, not %s %s: %s",
                      tutti_status_name(status), tutti_status_name(expected), words, error == NULL ? "" : error->text);
}

static tutti_push push_of(double count, double loss)
{
    return (tutti_push){.struct_size = sizeof(tutti_push), .rate = 0.01, .count = count, .loss = loss};
}

static tutti_status push_step(tutti_server *server, struct list *list, int worker, int step, bool last,
                              tutti_pushed *pushed)
{
    tutti_push push = push_of(4 + worker, 0);
    push.loss = differentiate(list, worker, step);
    push.catch_up = last;
    return tutti_server_push(server, &push, pushed);
}

static void end(tutti_server *server, struct list *list)
{
    tutti_server_free(server);
    free(list->memory);
}

/* ---- The bits of data parallel ----------------------------------------------------------------------------------------- */

static const char *optimizer_name;
static int server_count;

static tutti_optimizer_settings settings_of(void)
{
    tutti_optimizer_settings settings;
    CHECK(tutti_optimizer_defaults(optimizer_name, &settings, NULL) == TUTTI_OK);
    return settings;
}

/* The same steps with ddp; leaves the hash of the weights, and of each step loss and norm. */
static uint64_t train_ddp(tutti_comm *comm, double results[STEPS][2])
{
    const double clip = 0.4;
    const int rank = tutti_rank(comm);
    struct list list = list_make(rank);
    tutti_optimizer_settings settings = settings_of();
    tutti_ddp *ddp = NULL;
    tutti_optimizer *optimizer = NULL;
    CHECK(tutti_ddp_create(comm, list.parameters, PARAMETERS, NULL, &ddp, NULL) == TUTTI_OK);
    CHECK(tutti_optimizer_create(&settings, list.parameters, PARAMETERS, &optimizer, NULL) == TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        double loss = differentiate(&list, rank, step), rows = 0, norm = 0;
        CHECK(tutti_ddp_begin(ddp, true) == TUTTI_OK);
        for (size_t i = PARAMETERS; i-- > 0;) CHECK(tutti_ddp_ready(ddp, i) == TUTTI_OK);
        CHECK(tutti_ddp_end(ddp, 4 + rank, &rows) == TUTTI_OK);
        CHECK(tutti_all_reduce(comm, &loss, &loss, 1, TUTTI_F64, TUTTI_SUM) == TUTTI_OK);
        CHECK(tutti_gradient_norm(comm, list.parameters, PARAMETERS, &norm) == TUTTI_OK);
        norm /= rows;
        tutti_optimizer_step(optimizer, 0.01, norm > clip ? 1 / rows * (clip / norm) : 1 / rows);
        results[step][0] = loss / rows;
        results[step][1] = norm;
    }
    uint64_t hash = hash_of(&list);
    tutti_optimizer_free(optimizer);
    tutti_ddp_free(ddp);
    free(list.memory);
    return hash;
}

static void same_bits(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    const int rank = tutti_rank(comm), workers = tutti_size(comm) - server_count;
    double results[STEPS][2];
    tutti_optimizer_settings settings = settings_of();
    tutti_comm *part = NULL;
    struct list list;
    CHECK(tutti_comm_split(comm, rank < workers, rank, &part) == TUTTI_OK);
    const uint64_t expected = rank < workers ? train_ddp(part, results) : 0;
    tutti_server *server = make(comm, &list,
                                (tutti_server_options){.servers = server_count, .optimizer = &settings, .clip = 0.4});
    CHECK(tutti_server_serves(server) == (rank >= workers));
    if (rank >= workers) works(server, tutti_server_serve(server));
    for (int step = 0; rank < workers && step < STEPS; step++) {
        tutti_pushed pushed = {0};
        works(server, push_step(server, &list, rank, step, false, &pushed));
        works(server, tutti_server_pull(server));
        CHECK_THAT(pushed.loss == results[step][0] && pushed.norm == results[step][1], "%.17g %.17g, not %.17g %.17g",
                   pushed.loss, pushed.norm, results[step][0], results[step][1]);
        CHECK(pushed.step == (uint64_t)step + 1 && pushed.updates == pushed.step && pushed.ahead == 0);
    }
    CHECK_THAT(rank >= workers || hash_of(&list) == expected, "%s: rank %d has other weights", optimizer_name, rank);
    end(server, &list);
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_comm_free(part) == TUTTI_OK);
}

/* ---- Staleness ----------------------------------------------------------------------------------------------------------- */

/* Rank 0 stands still: the others get two steps ahead of it, and are told for whom they wait. Then all go on. */
static void stale(tutti_comm *comm, struct fault_rank *self)
{
    enum { AHEAD = 2 };
    const int rank = tutti_rank(comm), workers = tutti_size(comm) - 1;
    struct list list;
    tutti_pushed pushed = {0};
    (void)self;
    tutti_server *server = make(
        comm, &list, (tutti_server_options){.servers = 1, .staleness = AHEAD, .deadline_ms = over_tcp ? 300 : 150});
    for (int step = 0; rank > 0 && rank < workers && step < AHEAD; step++) {
        works(server, push_step(server, &list, rank, step, false, &pushed));
        CHECK(pushed.step == (uint64_t)step + 1 && pushed.ahead == step + 1);
    }
    if (rank > 0 && rank < workers)
        fails(server, push_step(server, &list, rank, AHEAD, false, &pushed), TUTTI_ERR_TIMEOUT,
              "for rank 0, which has made 0 steps");
    fault_meet(comm);
    if (rank == 0) works(server, push_step(server, &list, rank, 0, false, NULL)); /* it waits for nobody */
    if (rank < workers) works(server, tutti_server_leave(server));
    if (rank == workers) works(server, tutti_server_serve(server));
    end(server, &list);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* Whoever is fast: nobody is further ahead than the bound, and after the last step all have the same weights. */
static void bounded(tutti_comm *comm, struct fault_rank *self)
{
    enum { AHEAD = 2, MANY = 12 };
    const int rank = tutti_rank(comm), workers = tutti_size(comm) - 2;
    struct list list;
    (void)self;
    tutti_server *server = make(comm, &list, (tutti_server_options){.servers = 2, .staleness = AHEAD});
    if (rank >= workers) works(server, tutti_server_serve(server));
    for (int step = 0; rank < workers && step < MANY; step++) {
        tutti_pushed pushed = {0};
        if ((step + rank) % workers == 0) tutti_spend_ns(2000000);
        works(server, push_step(server, &list, rank, step, step + 1 == MANY, &pushed));
        CHECK_THAT(pushed.ahead >= 0 && pushed.ahead <= AHEAD, "%lld", (long long)pushed.ahead);
        CHECK(pushed.step == (uint64_t)step + 1 && pushed.updates >= pushed.step);
        if (step + 1 == MANY) CHECK(pushed.updates == (uint64_t)(MANY * workers));
        works(server, tutti_server_pull(server));
    }
    if (rank < workers) works(server, tutti_server_leave(server));
    uint64_t hash = rank < workers ? hash_of(&list) : 0, first = hash;
    CHECK(tutti_broadcast(comm, &first, &first, 1, TUTTI_U64, 0) == TUTTI_OK);
    CHECK(rank >= workers || hash == first);
    end(server, &list);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* ---- Coming and going ------------------------------------------------------------------------------------------------------ */

static void steps_until(tutti_server *server, struct list *list, int rank, int from, int to)
{
    for (int step = from; step < to; step++) {
        tutti_pushed pushed = {0};
        works(server, push_step(server, list, rank, step, false, &pushed));
        CHECK_THAT(pushed.step == (uint64_t)step + 1, "%llu, not %d", (unsigned long long)pushed.step, step + 1);
        works(server, tutti_server_pull(server));
    }
}

/* The last worker leaves and comes back: nobody waits for it meanwhile, and it goes on where the others are. */
static void come_and_go(tutti_comm *comm, struct fault_rank *self)
{
    const int rank = tutti_rank(comm), workers = tutti_size(comm) - 2;
    struct list list;
    (void)self;
    tutti_server *server = make(comm, &list, (tutti_server_options){.servers = 2});
    if (rank < workers) steps_until(server, &list, rank, 0, 2);
    if (rank + 1 == workers) {
        works(server, tutti_server_leave(server));
        fails(server, push_step(server, &list, rank, 0, false, NULL), TUTTI_ERR_ARGUMENT, "has left");
    }
    if (rank + 1 < workers) steps_until(server, &list, rank, 2, 4);
    fault_meet(comm);
    if (rank + 1 == workers) works(server, tutti_server_join(server));
    if (rank + 1 == workers) works(server, tutti_server_pull(server));
    fault_meet(comm);
    if (rank < workers) steps_until(server, &list, rank, 4, 6);
    uint64_t hash = rank < workers ? hash_of(&list) : 0, first = hash;
    CHECK(tutti_broadcast(comm, &first, &first, 1, TUTTI_U64, 0) == TUTTI_OK);
    CHECK(rank >= workers || hash == first);
    if (rank < workers) works(server, tutti_server_leave(server));
    if (rank >= workers) works(server, tutti_server_serve(server));
    end(server, &list);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* ---- Death ----------------------------------------------------------------------------------------------------------------- */

enum { KILLED_RANKS = 5, VICTIM = 1, KILLED_WORKERS = 3 };
static int staleness;
static bool committed; /* the victim's commit is on its way, too */

/* What a push does, up to its middle or its end. */
static void begin_push(tutti_server *server, struct list *list)
{
    const struct tti_server_subtree span = {VICTIM, VICTIM + 1};
    struct {
        struct tti_server_call call;
        float data[100];
    } stage = {.call = {.what = TTI_SERVER_STAGE, .count = 100}};
    struct {
        struct tti_server_commit commit;
        struct tti_server_subtree span;
    } commit = {
        .commit = {.call = {.what = TTI_SERVER_COMMIT}, .leaves = KILLED_WORKERS, .subtrees = 1, .deadline_ms = 9999},
        .span = span};
    tutti_op op;
    differentiate(list, VICTIM, 2);
    for (int s = 0; s < 2; s++)
        CHECK(tutti_actor_ask(server->actors, KILLED_WORKERS + s, TTI_SERVER_ACTOR, &stage, sizeof stage, NULL, 0, NULL,
                              0) == TUTTI_OK);
    if (committed)
        CHECK(tutti_actor_ask_start(server->actors, KILLED_WORKERS, TTI_SERVER_ACTOR, &commit, sizeof commit, NULL, 0,
                                    NULL, 0, &op) == TUTTI_OK);
}

/* A worker is killed in its third push: the others go on without it. */
static void worker_killed(tutti_comm *comm, struct fault_rank *self)
{
    const int rank = tutti_rank(comm);
    struct list list;
    tutti_server *server = make(comm, &list, (tutti_server_options){.servers = 2, .staleness = staleness});
    if (rank < KILLED_WORKERS) steps_until(server, &list, rank, 0, 2);
    if (rank == VICTIM) {
        begin_push(server, &list);
        kill(getpid(), SIGKILL);
    }
    if (rank < KILLED_WORKERS) steps_until(server, &list, rank, 2, 8);
    if (rank < KILLED_WORKERS) works(server, push_step(server, &list, rank, 8, true, NULL));
    if (rank < KILLED_WORKERS) works(server, tutti_server_pull(server));
    self->numbers[0] = rank < KILLED_WORKERS ? (int64_t)hash_of(&list) : 0;
    if (rank >= KILLED_WORKERS) works(server, tutti_server_serve(server));
    end(server, &list);
}

static void expect_victim(struct fault_world *world)
{
    (void)world;
    fault_expect_end(VICTIM);
}

static void run_worker_killed(void)
{
    for (int i = 0; i < 3; i++) {
        staleness = i == 2 ? 2 : 0;
        committed = i == 1;
        struct fault_world world = {
            .size = KILLED_RANKS, .processes = true, .body = worker_killed, .meanwhile = expect_victim};
        if (over_tcp) world.settings[0] = "TUTTI_TRANSPORT=tcp";
        check_title("a worker is killed in a push%s, staleness %d%s", committed ? " that is committed" : "", staleness,
                    over_tcp ? ", tcp" : "");
        fault_run(&world);
        CHECK(fault_shared->ranks[0].numbers[0] == fault_shared->ranks[2].numbers[0]);
    }
}

static int lost_server; /* the lead, or the other one */

/* All workers are told, by name; one of them waits in a push, which the lead keeps. The other server ends with the error, too. */
static void server_killed(tutti_comm *comm, struct fault_rank *self)
{
    const int rank = tutti_rank(comm);
    char words[64];
    struct list list;
    tutti_server *server = make(comm, &list, (tutti_server_options){.servers = 2});
    snprintf(words, sizeof words, "rank %d", lost_server);
    if (rank < KILLED_WORKERS) steps_until(server, &list, rank, 0, 2);
    fault_meet(comm);
    if (rank == lost_server) {
        fault_await_mark(0, 1);
        kill(getpid(), SIGKILL);
    }
    if (rank == 0) self->mark = 1; /* and then waits for the others */
    tutti_status status = TUTTI_OK;
    if (rank == 0) status = push_step(server, &list, rank, 2, false, NULL);
    if (rank > 0 && rank < KILLED_WORKERS) {
        while ((status = tutti_server_pull(server)) == TUTTI_OK) {} /* until it is lost */
    }
    if (rank >= KILLED_WORKERS) status = tutti_server_serve(server);
    if (rank < KILLED_WORKERS || lost_server != KILLED_WORKERS) fails(server, status, TUTTI_ERR_PEER_LOST, words);
    if (rank == 0) fails(server, tutti_server_pull(server), TUTTI_ERR_PEER_LOST, words);
    end(server, &list);
}

static void expect_server(struct fault_world *world)
{
    (void)world;
    fault_expect_end(lost_server);
}

static void run_server_killed(void)
{
    for (lost_server = KILLED_WORKERS; lost_server < KILLED_RANKS; lost_server++) {
        struct fault_world world = {
            .size = KILLED_RANKS, .processes = true, .body = server_killed, .meanwhile = expect_server};
        if (over_tcp) world.settings[0] = "TUTTI_TRANSPORT=tcp";
        check_title("server %d is killed%s", lost_server, over_tcp ? ", tcp" : "");
        fault_run(&world);
    }
}

/* ---- In simulated time ----------------------------------------------------------------------------------------------------- */

enum { SIM_STEPS = 6 };
static uint64_t sim_hashes[KILLED_RANKS];
static float *sim_left; /* memory that the dead worker cannot free */

/* Worker VICTIM dies after its third step: the others make all of theirs, within the bound, and have the same values. */
static int simulated(tutti_comm *world, void *context)
{
    const int rank = tutti_rank(world);
    struct list list;
    (void)context;
    tutti_server *server = make(world, &list, (tutti_server_options){.servers = 2, .staleness = staleness});
    for (int step = 0; rank < KILLED_WORKERS && step < SIM_STEPS; step++) {
        tutti_pushed pushed = {0};
        if (rank == VICTIM && step == 3) {
            sim_left = list.memory;
            tutti_spend_ns(INT64_C(100000000000));
        }
        tutti_spend_ns(INT64_C(1000000) * (1 + rank));
        works(server, push_step(server, &list, rank, step, step + 1 == SIM_STEPS, &pushed));
        CHECK_THAT(pushed.step == (uint64_t)step + 1 && pushed.ahead >= 0 && pushed.ahead <= staleness, "%lld ahead",
                   (long long)pushed.ahead);
        works(server, tutti_server_pull(server));
    }
    sim_hashes[rank] = rank < KILLED_WORKERS ? hash_of(&list) : 0;
    if (rank >= KILLED_WORKERS) works(server, tutti_server_serve(server));
    end(server, &list);
    return 0;
}

static void run_simulated(void)
{
    tutti_sim_death death = {.rank = VICTIM, .at_ns = INT64_C(10000000000)};
    for (int seed = 0; seed < 4; seed++) {
        tutti_sim_setup setup;
        tutti_error error = {0};
        staleness = seed % 2 * 2;
        check_title("simulated, seed %d, staleness %d", seed, staleness);
        tutti_sim_setup_init(&setup);
        setup.hosts = seed < 2 ? 1 : KILLED_RANKS;
        setup.ranks_per_host = KILLED_RANKS / setup.hosts;
        setup.seed = (uint64_t)seed;
        setup.noise_ns = seed * 50;
        setup.stack_bytes = 1 << 18;
        setup.deaths = &death;
        setup.death_count = 1;
        memset(sim_hashes, 0, sizeof sim_hashes);
        tutti_status status = tutti_sim_run(&setup, simulated, NULL, NULL, &error);
        free(sim_left);
        sim_left = NULL;
        CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error.text);
        CHECK(sim_hashes[0] != 0 && sim_hashes[0] == sim_hashes[2] && sim_hashes[VICTIM] == 0);
    }
}

/* ---- Bad input --------------------------------------------------------------------------------------------------------------- */

static void refused(tutti_comm *comm, tutti_server_options options, tutti_status expected, const char *words)
{
    struct list list = list_make(0);
    tutti_server *server = NULL;
    tutti_error error = {0};
    options.struct_size = sizeof options;
    tutti_status status = tutti_server_create(comm, list.parameters, PARAMETERS, &options, &server, &error);
    CHECK_THAT(status == expected && server == NULL && strstr(error.text, words) != NULL, "%s, not %s: %s",
               tutti_status_name(status), words, error.text);
    free(list.memory);
}

static void bad_input(tutti_comm *comm, struct fault_rank *self)
{
    const int rank = tutti_rank(comm), size = tutti_size(comm);
    tutti_optimizer_settings settings = {.struct_size = sizeof settings, .name = "sgdd"};
    struct list list;
    (void)self;
    refused(comm, (tutti_server_options){.servers = size}, TUTTI_ERR_ARGUMENT, "3 parameter servers of 3 ranks");
    refused(comm, (tutti_server_options){.servers = -1}, TUTTI_ERR_ARGUMENT, "-1 parameter servers");
    refused(comm, (tutti_server_options){.staleness = -1}, TUTTI_ERR_ARGUMENT, "staleness of -1");
    refused(comm, (tutti_server_options){.clip = NAN}, TUTTI_ERR_ARGUMENT, "clip nan");
    refused(comm, (tutti_server_options){.staleness = rank == 1}, TUTTI_ERR_MISMATCH, "rank 1 has");
    refused(comm, (tutti_server_options){.optimizer = &settings}, TUTTI_ERR_OPTION, "sgdd");
    tutti_server *server = NULL;
    tutti_error error = {0};
    CHECK(tutti_server_create(comm, NULL, 0, &(tutti_server_options){.servers = 2}, &server, &error) ==
          TUTTI_ERR_ARGUMENT);
    CHECK_THAT(strstr(error.text, "set struct_size to sizeof") != NULL, "%s", error.text);
    server = make(comm, &list, (tutti_server_options){0});
    tutti_push push = push_of(1, 0);
    if (rank == size - 1) {
        fails(server, tutti_server_push(server, &push, NULL), TUTTI_ERR_ARGUMENT, "rank 2 is a server");
        fails(server, tutti_server_pull(server), TUTTI_ERR_ARGUMENT, "rank 2 is a server");
        works(server, tutti_server_serve(server));
    } else {
        fails(server, tutti_server_serve(server), TUTTI_ERR_ARGUMENT, "is a worker");
        fails(server, tutti_server_push(server, NULL, NULL), TUTTI_ERR_ARGUMENT, "needs a rate");
        push.rate = NAN;
        fails(server, tutti_server_push(server, &push, NULL), TUTTI_ERR_ARGUMENT, "a rate of");
        const uint64_t before = hash_of(&list);
        differentiate(&list, rank, 0);
        list.parameters[1].gradient[8000] = rank == 0 ? NAN : 0;
        push = push_of(1, 0);
        fails(server, tutti_server_push(server, &push, NULL), TUTTI_ERR_DIVERGED, "not finite");
        works(server, tutti_server_pull(server));
        CHECK(hash_of(&list) == before);
        steps_until(server, &list, rank, 0, 1);
    }
    end(server, &list);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* ---- Everywhere --------------------------------------------------------------------------------------------------------------- */

static void run_all(bool processes)
{
    for (int i = 0; tutti_optimizer_names((size_t)i) != NULL; i++) {
        char title[64];
        optimizer_name = tutti_optimizer_names((size_t)i);
        server_count = 1 + i % 3;
        snprintf(title, sizeof title, "the bits of ddp, %s, %d servers", optimizer_name, server_count);
        fault_run_body(title, same_bits, server_count + (i == 0 ? 1 : 3), processes, over_tcp);
    }
    fault_run_body("a bound", bounded, 5, processes, over_tcp);
    fault_run_body("a worker that stands still", stale, 4, processes, over_tcp);
    fault_run_body("workers come and go", come_and_go, 5, processes, over_tcp);
    fault_run_body("bad input", bad_input, 3, processes, over_tcp);
    if (processes) run_worker_killed();
    if (processes) run_server_killed();
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
