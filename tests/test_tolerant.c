/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=150 labels=asan,tsan waits
 *
 * Tolerant comms: messages of all sizes between ranks of which one is killed, stops, is late or leaves. What was for that rank
 * ends with its number in the error; everything else goes on, on the same comm.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 1, TAG = 7, LARGE = 300000, REQUESTS = 3000, BYTES = 64, LATE_MS = 60 };

static bool over_tcp;
static const size_t sizes[] = {0, 8, 2000, 9000, 70000, LARGE};
enum { SIZES = sizeof sizes / sizeof *sizes };

static tutti_comm *make(tutti_comm *comm)
{
    tutti_comm *made = NULL;
    CHECK(tutti_comm_tolerant(comm, &made) == TUTTI_OK && made != NULL);
    return made;
}

static void fill(char *data, size_t bytes, int seed)
{
    for (size_t i = 0; i < bytes; i++) data[i] = (char)(i * 7 + (size_t)seed);
}

static bool is_filled(const char *data, size_t bytes, int seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (char)(i * 7 + (size_t)seed)) return false;
    return true;
}

/* Both ranks send each other a message of every size, so the comm is good between them. */
static void exchange_with(tutti_comm *made, int peer)
{
    char *out = malloc(LARGE), *in = malloc(LARGE);
    int rank = tutti_rank(made);
    for (int i = 0; i < SIZES; i++) {
        size_t received = 0;
        fill(out, sizes[i], rank + i);
        memset(in, -1, LARGE);
        tutti_status status = tutti_sendrecv(made, out, sizes[i], peer, TAG, in, LARGE, peer, TAG, TUTTI_U8, &received);
        CHECK_THAT(status == TUTTI_OK && received == sizes[i] && is_filled(in, received, peer + i),
                   "rank %d and %d, %zu bytes: %s, %zu received", rank, peer, sizes[i], tutti_status_name(status),
                   received);
    }
    free(out);
    free(in);
}

/* All pairs of ranks but those of the victim, in an order in which nobody waits for ever. */
static void exchange_all(tutti_comm *made, int without)
{
    int rank = tutti_rank(made), size = tutti_size(made);
    for (int sum = 1; sum < 2 * size; sum++) {
        int peer = sum - rank;
        if (peer < 0 || peer >= size || peer == rank || peer == without || rank == without) continue;
        exchange_with(made, peer);
    }
}

static bool names(const tutti_comm *made, tutti_status status, int peer, const char *words)
{
    const tutti_error *error = tutti_comm_error(made);
    if (error == NULL) return CHECK_THAT(false, "there is no error");
    return CHECK_THAT(error->status == status && error->peer == peer && strstr(error->text, words) != NULL,
                      "%s, peer %d: %s", tutti_status_name(error->status), error->peer, error->text);
}

/* ---- Ordinary use -------------------------------------------------------------------------------------------------- */

static void ordinary(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = make(comm);
    int x = tutti_rank(comm), y = 0;
    (void)self;
    exchange_all(made, -1);
    CHECK(tutti_all_reduce(made, &x, &y, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(tutti_comm_error(made)->text, "tolerant") != NULL);
    tutti_comm *more = made;
    CHECK(tutti_comm_duplicate(made, &more) == TUTTI_ERR_UNSUPPORTED && more == NULL);
    CHECK(tutti_comm_tolerant(made, &more) == TUTTI_ERR_UNSUPPORTED && tutti_comm_tolerant(comm, NULL) < 0);
    tutti_op op;
    CHECK(tutti_barrier_start(made, &op) == TUTTI_ERR_UNSUPPORTED);
    exchange_all(made, -1);
    CHECK(tutti_group_begin(made) == TUTTI_OK);
    int next = (x + 1) % tutti_size(comm), before = (x + tutti_size(comm) - 1) % tutti_size(comm);
    CHECK(tutti_send(made, &x, 1, TUTTI_I32, next, 3) == TUTTI_OK);
    CHECK(tutti_recv(made, &y, 1, TUTTI_I32, before, 3, NULL) == TUTTI_OK);
    CHECK(tutti_group_end(made) == TUTTI_OK && y == before);
    tutti_message message;
    CHECK(tutti_send(made, &x, 1, TUTTI_I32, next, 4) == TUTTI_OK);
    CHECK(tutti_probe(made, before, 4, &message) == TUTTI_OK && message.source == before && message.count == 1);
    CHECK(tutti_recv(made, &y, 1, TUTTI_I32, TUTTI_ANY_SOURCE, 4, NULL) == TUTTI_OK && y == before);
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_comm_free(made) == TUTTI_OK);
}

/* A receive of another type, or to a buffer that is too short, ends alone: the message is still there. */
static void refused(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = make(comm);
    float y = 0;
    int x[2] = {5, 6};
    (void)self;
    if (tutti_rank(comm) == 1) CHECK(tutti_send(made, x, 2, TUTTI_I32, 0, TAG) == TUTTI_OK);
    if (tutti_rank(comm) == 0) {
        CHECK(tutti_recv(made, &y, 1, TUTTI_F32, 1, TAG, NULL) == TUTTI_ERR_MISMATCH);
        names(made, TUTTI_ERR_MISMATCH, 1, "i32");
        CHECK(tutti_recv(made, &x[1], 1, TUTTI_I32, 1, TAG, NULL) == TUTTI_ERR_TRUNCATED);
        x[0] = x[1] = 0;
        CHECK(tutti_recv(made, x, 2, TUTTI_I32, 1, TAG, NULL) == TUTTI_OK && x[0] == 5 && x[1] == 6);
    }
    fault_meet(comm);
    exchange_all(made, -1);
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_comm_free(made) == TUTTI_OK);
}

/* ---- Requests in both directions ----------------------------------------------------------------------------------- */

struct mailbox {
    tutti_comm *comm;
    char in[BYTES];
    _Atomic int heard;
};

static void listen(struct mailbox *box);

/* Its callbacks are the only ones that make calls on the comm, one after the other. */
static void heard(void *context, tutti_status status, const tutti_error *error)
{
    struct mailbox *box = context;
    CHECK_THAT(status == TUTTI_OK, "%s", error == NULL ? "" : error->text);
    if (atomic_fetch_add(&box->heard, 1) + 1 < REQUESTS * (tutti_size(box->comm) - 1)) listen(box);
}

static void listen(struct mailbox *box)
{
    tutti_op op;
    CHECK(tutti_recv_start(box->comm, box->in, BYTES, TUTTI_U8, TUTTI_ANY_SOURCE, TAG, NULL, &op) == TUTTI_OK);
    CHECK(tutti_when_ended(op, heard, box) == TUTTI_OK && tutti_drop(op) == TUTTI_OK);
}

static void await_heard(struct mailbox *box, int times)
{
    int64_t until = fault_now_ns() + 2 * FAULT_SLACK_MS * INT64_C(1000000);
    while (atomic_load(&box->heard) < times && fault_now_ns() < until) fault_sleep_ms(1);
    CHECK_THAT(atomic_load(&box->heard) == times, "%d of %d", atomic_load(&box->heard), times);
}

/* Thousands are in flight in both directions: one comm to send on, and one that callbacks receive on. */
static void many(tutti_comm *comm, struct fault_rank *self)
{
    struct mailbox box = {.comm = make(comm)};
    int rank = tutti_rank(comm), size = tutti_size(comm);
    char out[BYTES] = {0};
    tutti_op *ops = calloc((size_t)(REQUESTS * size), sizeof *ops);
    (void)self;
    if (rank == 0) listen(&box);
    if (rank > 0)
        for (int i = 0; i < REQUESTS; i++)
            CHECK(tutti_send_start(box.comm, out, BYTES, TUTTI_U8, 0, TAG, &ops[i]) == TUTTI_OK);
    if (rank > 0) CHECK(tutti_wait_all(ops, REQUESTS) == TUTTI_OK);
    if (rank == 0) await_heard(&box, REQUESTS * (size - 1));
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    if (rank == 0)
        for (int i = 0; i < REQUESTS * (size - 1); i++)
            CHECK(tutti_send_start(box.comm, out, BYTES, TUTTI_U8, 1 + i % (size - 1), TAG, &ops[i]) == TUTTI_OK);
    if (rank > 0)
        for (int i = 0; i < REQUESTS; i++) CHECK(tutti_recv(box.comm, out, BYTES, TUTTI_U8, 0, TAG, NULL) == TUTTI_OK);
    if (rank == 0) CHECK(tutti_wait_all(ops, (size_t)REQUESTS * (size_t)(size - 1)) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_comm_free(box.comm) == TUTTI_OK);
    free(ops);
}

/* ---- A rank is killed ---------------------------------------------------------------------------------------------- */

struct flight {
    tutti_op ops[2 * SIZES + 1];
    char *out, *in;
};

static void take_off(tutti_comm *made, struct flight *flight)
{
    flight->out = malloc(LARGE);
    flight->in = malloc((size_t)LARGE * SIZES);
    for (int i = 0; i < SIZES; i++) { /* nothing of it is received or sent */
        CHECK(tutti_send_start(made, flight->out, LARGE, TUTTI_U8, VICTIM, 100 + i, &flight->ops[2 * i]) == TUTTI_OK);
        CHECK(tutti_recv_start(made, flight->in + (size_t)i * LARGE, sizes[i], TUTTI_U8, VICTIM, 200 + i, NULL,
                               &flight->ops[2 * i + 1]) == TUTTI_OK);
    }
}

static void land(tutti_comm *made, struct flight *flight, tutti_status status, const char *words)
{
    for (int i = 0; i < 2 * SIZES; i++) {
        tutti_status ended = tutti_wait(flight->ops[i]);
        CHECK_THAT(ended == status, "op %d: %s", i, tutti_status_name(ended));
        names(made, status, VICTIM, words);
    }
    free(flight->out);
    free(flight->in);
}

static void killed(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = make(comm);
    struct flight flight;
    int rank = tutti_rank(comm), from_any = 0;
    tutti_op any;
    (void)self;
    exchange_all(made, -1);
    fault_meet(comm);
    if (rank == VICTIM) {
        raise(SIGKILL);
    }
    if (rank == 0) CHECK(tutti_recv_start(made, &from_any, 1, TUTTI_I32, TUTTI_ANY_SOURCE, 9, NULL, &any) == TUTTI_OK);
    int64_t began = fault_now_ns();
    take_off(made, &flight);
    land(made, &flight, TUTTI_ERR_PEER_LOST, "rank 1 died or ended without leaving");
    fault_time("told of a lost peer", fault_now_ns() - began, over_tcp ? 200 : 100);
    CHECK(tutti_send(made, &rank, 1, TUTTI_I32, VICTIM, 1) == TUTTI_ERR_PEER_LOST);
    names(made, TUTTI_ERR_PEER_LOST, VICTIM, "send to rank 1");
    CHECK(tutti_recv(made, &rank, 1, TUTTI_I32, VICTIM, 1, NULL) == TUTTI_ERR_PEER_LOST);
    exchange_all(made, VICTIM);
    if (rank == 0) CHECK(tutti_test(any) == TUTTI_IN_PROGRESS);
    if (rank == 0) CHECK(tutti_send(made, NULL, 0, TUTTI_I32, 2, 8) == TUTTI_OK); /* only now it may come */
    if (rank == 2) CHECK(tutti_recv(made, NULL, 0, TUTTI_I32, 0, 8, NULL) == TUTTI_OK);
    if (rank == 2) CHECK(tutti_send(made, &(int){42}, 1, TUTTI_I32, 0, 9) == TUTTI_OK);
    if (rank == 0) CHECK(tutti_wait(any) == TUTTI_OK && from_any == 42);
    CHECK(tutti_comm_free(made) == TUTTI_OK);
}

/* It dies while its messages come, large ones too: receives from any source take others instead. */
static void killed_sending(tutti_comm *comm, struct fault_rank *self)
{
    enum { SENDS = 40 };
    tutti_comm *made = make(comm);
    int rank = tutti_rank(comm), size = tutti_size(comm), from[RANKS] = {0};
    char *data = calloc(1, LARGE);
    (void)self;
    fault_meet(comm);
    if (rank == VICTIM) {
        tutti_op op;
        for (int i = 0; i < 3; i++) CHECK(tutti_send(made, data, LARGE, TUTTI_U8, 0, 9) == TUTTI_OK);
        CHECK(tutti_send_start(made, data, LARGE, TUTTI_U8, 0, 9, &op) == TUTTI_OK);
        raise(SIGKILL);
    }
    if (rank != 0)
        for (int i = 0; i < SENDS; i++) CHECK(tutti_send(made, data, i % 2 ? LARGE : 100, TUTTI_U8, 0, 9) == TUTTI_OK);
    for (int got = 0; rank == 0 && got < SENDS * (size - 2); got++) {
        tutti_message message = {0};
        CHECK(tutti_recv_message(made, data, LARGE, TUTTI_U8, TUTTI_ANY_SOURCE, 9, &message) == TUTTI_OK);
        from[message.source]++;
        if (message.source == VICTIM) got--;
    }
    if (rank == 0)
        CHECK_THAT(from[2] == SENDS && from[3] == SENDS && from[1] <= 4, "%d %d %d", from[1], from[2], from[3]);
    exchange_all(made, VICTIM);
    CHECK(tutti_comm_free(made) == TUTTI_OK);
    free(data);
}

/* Freed while a peer is lost that nobody has dealt with since; and while ops for it are in flight. */
static void freed(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = make(comm), *other = make(comm);
    struct flight flight = {0};
    (void)self;
    fault_meet(comm);
    if (tutti_rank(comm) == VICTIM) {
        raise(SIGKILL);
    }
    take_off(other, &flight);
    for (int i = 0; i < 2 * SIZES; i++) CHECK(tutti_drop(flight.ops[i]) == TUTTI_OK);
    CHECK(tutti_comm_free(other) == TUTTI_OK);
    CHECK(tutti_comm_free(made) == TUTTI_OK);
    free(flight.out);
    free(flight.in);
}

/* ---- A rank does not come, or stops -------------------------------------------------------------------------------- */

/* The victim is stopped, or waits elsewhere; then it goes on, and the comm is good between the two. */
static void wait_for_others(tutti_comm *comm, struct fault_rank *self, bool stops)
{
    fault_meet(comm);
    self->mark = 1;
    if (stops) raise(SIGSTOP);
    for (int rank = 0; rank < tutti_size(comm); rank++)
        if (rank != VICTIM) fault_await_mark(rank, 2);
}

static void fly_late(tutti_comm *made, struct flight *flight)
{
    flight->out = calloc(1, LARGE);
    flight->in = malloc((size_t)LARGE * SIZES);
    for (int i = 0; i < SIZES; i++) {
        tutti_within(made, LATE_MS);
        CHECK(tutti_send_start(made, flight->out, LARGE, TUTTI_U8, VICTIM, 100 + i, &flight->ops[2 * i]) == TUTTI_OK);
        tutti_within(made, LATE_MS);
        CHECK(tutti_recv_start(made, flight->in + (size_t)i * LARGE, sizes[i], TUTTI_U8, VICTIM, 200 + i, NULL,
                               &flight->ops[2 * i + 1]) == TUTTI_OK);
    }
}

static void late(tutti_comm *comm, struct fault_rank *self, bool stops)
{
    tutti_comm *made = make(comm);
    struct flight flight;
    int x = 0;
    if (tutti_rank(comm) == VICTIM) {
        wait_for_others(comm, self, stops);
    } else {
        fault_meet(comm);
        fault_await_mark(VICTIM, 1);
        fly_late(made, &flight);
        exchange_all(made, VICTIM);
        land(made, &flight, TUTTI_ERR_TIMEOUT, "its deadline of 60 ms passed");
        CHECK(tutti_recv(tutti_within(made, LATE_MS), &x, 1, TUTTI_I32, VICTIM, 5, NULL) == TUTTI_ERR_TIMEOUT);
        names(made, TUTTI_ERR_TIMEOUT, VICTIM, "recv from rank 1");
        take_off(made, &flight);
        for (int i = 0; i < 2 * SIZES; i++) CHECK(tutti_cancel(flight.ops[i]) == TUTTI_OK);
        for (int i = 0; i < 2 * SIZES; i++) CHECK(tutti_wait(flight.ops[i]) == TUTTI_ERR_CANCELLED);
        free(flight.out);
        free(flight.in);
        exchange_all(made, VICTIM);
        self->mark = 2;
    }
    exchange_all(made, -1); /* nothing of what was given up is in the way */
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_comm_free(made) == TUTTI_OK);
}

static void silent(tutti_comm *comm, struct fault_rank *self)
{
    late(comm, self, false);
}

static void stopped(tutti_comm *comm, struct fault_rank *self)
{
    late(comm, self, true);
}

static void wake_victim(struct fault_world *world)
{
    for (int rank = 0; rank < world->size; rank++)
        if (rank != VICTIM) fault_await_mark(rank, 2);
    kill(world->pids[VICTIM], SIGCONT);
}

/* ---- Half of a message --------------------------------------------------------------------------------------------- */

/* What has begun to go is given up: its receive takes the next message. What has begun to come is given up: the next one comes. */
static void halves(tutti_comm *comm, struct fault_rank *self)
{
    enum { HUGE = 64 << 20 };
    tutti_comm *made = make(comm);
    char *data = calloc(1, HUGE);
    int rank = tutti_rank(comm);
    tutti_op op;
    (void)self;
    for (int round = 0; round < 6; round++) {
        size_t received = 0;
        bool sender_gives_up = round % 2 == 0;
        fault_meet(comm);
        if (rank == 1) {
            CHECK(tutti_send_start(made, data, HUGE, TUTTI_U8, 0, TAG, &op) == TUTTI_OK);
            if (sender_gives_up) {
                CHECK(tutti_wait_for(op, 1 + round) == TUTTI_IN_PROGRESS || true);
                CHECK(tutti_cancel(op) == TUTTI_OK || true);
                tutti_status status = tutti_wait(op);
                CHECK(status == TUTTI_ERR_CANCELLED || status == TUTTI_OK || status == TUTTI_ERR_HANDLE);
            }
            CHECK(tutti_send(made, data, 77, TUTTI_U8, 0, TAG) == TUTTI_OK);
            if (!sender_gives_up) CHECK(tutti_wait(op) == TUTTI_OK);
        }
        if (rank == 0 && sender_gives_up) {
            CHECK(tutti_recv(made, data, HUGE, TUTTI_U8, 1, TAG, &received) == TUTTI_OK);
            if (received == HUGE) CHECK(tutti_recv(made, data, HUGE, TUTTI_U8, 1, TAG, &received) == TUTTI_OK);
            CHECK_THAT(received == 77, "%zu", received);
        }
        if (rank == 0 && !sender_gives_up) {
            CHECK(tutti_recv_start(made, data, HUGE, TUTTI_U8, 1, TAG, NULL, &op) == TUTTI_OK);
            tutti_status status = tutti_wait_for(op, 1 + round);
            if (status == TUTTI_IN_PROGRESS) {
                CHECK(tutti_cancel(op) == TUTTI_OK);
                status = tutti_wait(op);
            }
            CHECK(status == TUTTI_ERR_CANCELLED || status == TUTTI_OK);
            do CHECK(tutti_recv(made, data, HUGE, TUTTI_U8, 1, TAG, &received) == TUTTI_OK);
            while (received == HUGE); /* it may have been cancelled before anything had come */
            CHECK_THAT(received == 77, "%zu", received);
        }
    }
    fault_meet(comm);
    exchange_all(made, -1);
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_comm_free(made) == TUTTI_OK);
    free(data);
}

/* ---- A rank leaves ------------------------------------------------------------------------------------------------- */

static void leaves(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made = make(comm);
    int x = 0;
    (void)self;
    exchange_all(made, -1);
    fault_meet(comm);
    if (tutti_rank(comm) == VICTIM) {
        CHECK(tutti_comm_free(made) == TUTTI_OK);
    } else {
        CHECK(tutti_recv(made, &x, 1, TUTTI_I32, VICTIM, 5, NULL) == TUTTI_ERR_MISMATCH);
        names(made, TUTTI_ERR_MISMATCH, VICTIM, "rank 1 has left");
        exchange_all(made, VICTIM);
        CHECK(tutti_comm_free(made) == TUTTI_OK);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* ---- Simulated ----------------------------------------------------------------------------------------------------- */

/* The victim ends where it stands; requests to others go on, and come in the time that messages take. */
static int simulated(tutti_comm *world, void *context)
{
    tutti_comm *made = make(world);
    int rank = tutti_rank(world), x = 0;
    (void)context;
    exchange_all(made, -1);
    if (rank == VICTIM) tutti_spend_ns(INT64_C(10000000000));
    CHECK(tutti_recv(made, &x, 1, TUTTI_I32, VICTIM, 5, NULL) == TUTTI_ERR_PEER_LOST);
    names(made, TUTTI_ERR_PEER_LOST, VICTIM, "rank 1 died or ended without leaving");
    CHECK(tutti_send(made, &x, 1, TUTTI_I32, VICTIM, 5) == TUTTI_ERR_PEER_LOST);
    exchange_all(made, VICTIM);
    tutti_op op;
    CHECK(tutti_recv_start(tutti_within(made, LATE_MS), &x, 1, TUTTI_I32, TUTTI_ANY_SOURCE, 6, NULL, &op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_ERR_TIMEOUT);
    CHECK(tutti_comm_free(made) == TUTTI_OK);
    return 0;
}

static void run_simulated(void)
{
    tutti_sim_death death = {.rank = VICTIM, .at_ns = INT64_C(1000000000)};
    for (int hosts = 1; hosts <= RANKS; hosts *= 2) {
        tutti_sim_setup setup;
        tutti_sim_report report = {.struct_size = sizeof report};
        tutti_error error = {0};
        check_title("simulated, %d hosts", hosts);
        tutti_sim_setup_init(&setup);
        setup.hosts = hosts;
        setup.ranks_per_host = RANKS / hosts;
        setup.stack_bytes = 1 << 18;
        setup.deaths = &death;
        setup.death_count = 1;
        tutti_status status = tutti_sim_run(&setup, simulated, NULL, &report, &error);
        CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error.text);
        CHECK_THAT(report.time_ns < INT64_C(3000000000), "it took %lld ns", (long long)report.time_ns);
    }
}

/* ---- Everywhere ---------------------------------------------------------------------------------------------------- */

static void run_stopped(void)
{
    struct fault_world world = {.size = RANKS, .processes = true, .body = stopped, .meanwhile = wake_victim};
    if (over_tcp) world.settings[0] = "TUTTI_TRANSPORT=tcp";
    check_title("a rank is stopped%s", over_tcp ? ", tcp" : "");
    fault_run(&world);
}

static void expect_victim(struct fault_world *world)
{
    (void)world;
    fault_expect_end(VICTIM);
}

static void run_killed(const char *title, fault_body *body)
{
    struct fault_world world = {.size = RANKS, .processes = true, .body = body, .meanwhile = expect_victim};
    if (over_tcp) world.settings[0] = "TUTTI_TRANSPORT=tcp";
    check_title("%s%s", title, over_tcp ? ", tcp" : "");
    fault_run(&world);
}

static void run_all(bool processes)
{
    fault_run_body("ordinary", ordinary, RANKS, processes, over_tcp);
    fault_run_body("refused", refused, 2, processes, over_tcp);
    fault_run_body("thousands in flight", many, 3, processes, over_tcp);
    fault_run_body("a rank does not come", silent, RANKS, processes, over_tcp);
    fault_run_body("half of a message", halves, 2, processes, over_tcp);
    fault_run_body("a rank leaves", leaves, RANKS, processes, over_tcp);
    if (!processes) return;
    run_killed("a rank is killed", killed);
    run_killed("a rank is killed while it sends", killed_sending);
    run_killed("freed while a rank is lost", freed);
    run_stopped();
}

int main(void)
{
    fault_begin(140);
    run_simulated();
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
