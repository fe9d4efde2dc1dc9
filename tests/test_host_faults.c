/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan waits
 *
 * What goes wrong among ranks that share memory within a host and go by tcp between hosts: a rank is killed, calls
 * something else, does not come. All others get the same error, about that rank, whether it is on their host or not. The
 * hosts are this machine: see the option host_processes.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { LIMIT_MS = 200, STALL_MS = 1500, FORKED_SECONDS = 100 };

static const int ops[] = {FAULT_BARRIER,   FAULT_ALL_REDUCE, FAULT_REDUCE,
                          FAULT_BROADCAST, FAULT_ALL_GATHER, FAULT_REDUCE_SCATTER};
enum { OPS = sizeof ops / sizeof *ops };

static int the_op, victim;
static size_t the_count;
static bool shared_memory;
static int64_t delay_us, killed_ns;
static uint64_t seed = 20261115;

static void check_error(int size, tutti_status status)
{
    for (int rank = 0; rank < size; rank++) {
        const struct fault_rank *self = &fault_shared->ranks[rank];
        const struct fault_step *step = &self->steps[0];
        if (rank == victim) continue;
        if (!CHECK_THAT(step->done && self->finished, "rank %d did not end", rank)) continue;
        CHECK_THAT(step->status == status && step->error.peer == victim && fault_has(step, "rank %d", victim),
                   "rank %d: %s about rank %d: %s", rank, tutti_status_name(step->status), step->error.peer,
                   step->error.text);
        CHECK_THAT(self->steps[1].status == TUTTI_ERR_BROKEN, "rank %d: %s", rank,
                   tutti_status_name(self->steps[1].status));
        CHECK_THAT(self->numbers[0] == 0, "rank %d: %d successes had wrong data", rank, (int)self->numbers[0]);
    }
}

/* ---- Killed ---------------------------------------------------------------------------------------------------- */

static void call_until_lost(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    tutti_status status = TUTTI_OK;
    if (!fault_buffers_make(&buffers, comm, the_count, shared_memory)) return;
    atomic_store(&self->mark, 1);
    while (status == TUTTI_OK) {
        fault_op_spoil(&buffers);
        self->steps_done = 0;
        status = FAULT_CALL(self, comm, fault_op(the_op, &buffers));
        if (status == TUTTI_OK && !fault_op_right(the_op, &buffers)) self->numbers[0]++;
    }
    FAULT_CALL(self, comm, tutti_barrier(comm));
    fault_buffers_free(&buffers);
}

/* What the victim forks lives on until the test ends it. */
static void fork_and_call(tutti_comm *comm, struct fault_rank *self)
{
    if (tutti_rank(comm) == victim) {
        pid_t child = fork();
        if (child == 0) {
            alarm(FORKED_SECONDS);
            for (;;) pause();
        }
        self->numbers[1] = child;
    }
    call_until_lost(comm, self);
}

static void kill_one(struct fault_world *world)
{
    for (int rank = 0; rank < world->size; rank++) fault_await_mark(rank, 1);
    usleep((useconds_t)delay_us);
    fault_expect_end(victim);
    killed_ns = fault_now_ns();
    kill(world->pids[victim], SIGKILL);
}

static void check_killed(struct fault_world *world)
{
    fault_run(world);
    check_error(world->size, TUTTI_ERR_PEER_LOST);
    for (int rank = 0; rank < world->size; rank++)
        if (rank != victim)
            fault_time("death: until a survivor's call ends", fault_shared->ranks[rank].steps[0].ended_ns - killed_ns,
                       LIMIT_MS);
}

/* In a ring of messages, who has noticed first is gone before the last ones notice: they wait for it, not for the dead. */
static void test_killed(int op, int size, int turn, const char *setting)
{
    static const size_t counts[] = {2, 3000, 200000};
    struct fault_world world = {.size = size, .processes = true, .body = call_until_lost, .meanwhile = kill_one};
    world.settings[0] = setting;
    the_op = op;
    the_count = counts[turn % 3];
    shared_memory = turn % 2;
    victim = (int)(fault_random(&seed) % (unsigned)size);
    delay_us = (int64_t)(fault_random(&seed) % (op == FAULT_SENDRECV ? 600 : 6000));
    check_title("%s of %zu, %s memory, %s, rank %d killed after %d us", fault_op_name(the_op), the_count,
                shared_memory ? "shared" : "private", world.settings[0], victim, (int)delay_us);
    check_killed(&world);
}

static void test_forked(const char *setting)
{
    struct fault_world world = {.size = 3, .processes = true, .body = fork_and_call, .meanwhile = kill_one};
    world.settings[0] = setting;
    the_op = FAULT_ALL_REDUCE;
    the_count = 100;
    victim = 1;
    delay_us = 1000;
    check_title("rank 1 killed, which has forked, %s", setting);
    check_killed(&world);
    pid_t child = (pid_t)fault_shared->ranks[victim].numbers[1];
    CHECK(child > 0 && kill(child, SIGKILL) == 0); /* it was there all the time */
}

/* ---- Elsewhere ------------------------------------------------------------------------------------------------- */

/* Its first step is the first call that fails: the odd one, or who had not ended the call before it or needed nobody's
 * data another. */
static void call_another(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    tutti_status status = TUTTI_OK;
    if (!fault_buffers_make(&buffers, comm, the_count, shared_memory)) return;
    int odd = tutti_rank(comm) == victim ? the_op : FAULT_ALL_REDUCE;
    for (int call = 0; call < 4 && status == TUTTI_OK; call++) {
        self->steps_done = 0;
        status = FAULT_CALL(self, comm, fault_op(call == 1 ? odd : FAULT_BARRIER, &buffers));
    }
    FAULT_CALL(self, comm, tutti_barrier(comm));
    fault_buffers_free(&buffers);
}

static void test_elsewhere(int op, size_t count, bool shared)
{
    struct fault_world world = {.size = 4, .processes = true, .body = call_another};
    world.settings[0] = "TUTTI_HOST_PROCESSES=2";
    the_op = op;
    the_count = count;
    shared_memory = shared;
    victim = (int)(fault_random(&seed) % 4);
    check_title("%s of %zu by rank %d, all_reduce by the others", fault_op_name(op), count, victim);
    fault_run(&world);
    for (int rank = 0; rank < world.size; rank++) {
        const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
        CHECK_THAT(step->status == TUTTI_ERR_MISMATCH && fault_has(step, "all_reduce(") &&
                       fault_has(step, "%s", fault_op_name(op)) && fault_has(step, "rank %d called", victim),
                   "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
        CHECK(fault_shared->ranks[rank].steps[1].status == TUTTI_ERR_BROKEN);
    }
}

/* ---- Does not come --------------------------------------------------------------------------------------------- */

/* Rank 2 is a host of its own: rank 1 waits for it through rank 0. */
static void come_late(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    if (!fault_buffers_make(&buffers, comm, the_count, shared_memory)) return;
    CHECK(tutti_barrier(tutti_within(comm, 30000)) == TUTTI_OK);
    fault_meet(comm); /* all are in time from here on, but the victim */
    if (tutti_rank(comm) == victim) {
        for (int rank = 0; rank < tutti_size(comm); rank++)
            if (rank != victim) fault_await_mark(rank, 1);
        FAULT_CALL(self, comm, fault_op(the_op, &buffers));
    } else {
        FAULT_CALL(self, comm, fault_op(the_op, &buffers));
        atomic_store(&self->mark, 1);
        FAULT_CALL(self, comm, tutti_barrier(comm));
    }
    fault_buffers_free(&buffers);
}

/* In a machine that stands still for seconds, ranks cannot tell each other anything before the deadline: then once more. */
static void run_in_time(struct fault_world *world, int64_t deadline_ms)
{
    enum { LATE_MS = 100 };
    for (int attempt = 0; attempt < 4; attempt++) {
        int64_t first = INT64_MAX, last = 0;
        fault_run(world);
        for (int rank = 0; rank < world->size; rank++) {
            const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
            if (!step->done || rank == victim) continue;
            first = step->began_ns < first ? step->began_ns : first;
            last = step->ended_ns > last ? step->ended_ns : last;
        }
        if (last - first <= (deadline_ms + LATE_MS) * 1000000) return;
    }
}

static void test_late(int op, size_t count, bool shared)
{
    struct fault_world world = {.size = 3, .processes = true, .body = come_late};
    world.settings[0] = "TUTTI_HOST_PROCESSES=2";
    world.settings[1] = "TUTTI_DEADLINE_MS=1500";
    the_op = op;
    the_count = count;
    shared_memory = shared;
    victim = 2;
    check_title("%s of %zu, to which rank 2 does not come", fault_op_name(op), count);
    run_in_time(&world, STALL_MS);
    check_error(world.size, TUTTI_ERR_TIMEOUT);
    for (int rank = 0; rank < 2; rank++) {
        const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
        fault_time("stall: until the error, deadline 1500", step->ended_ns - step->began_ns, STALL_MS);
    }
    CHECK(fault_shared->ranks[2].steps[0].done); /* it may find all it needs: the others had come */
}

/* Through others that wait too, on its host and elsewhere: everybody names the one that does not come. */
static void test_chain(int op, const char *setting)
{
    struct fault_world world = {.size = 5, .processes = true, .body = come_late};
    world.settings[0] = setting;
    world.settings[1] = "TUTTI_DEADLINE_MS=2500";
    the_op = op;
    the_count = 100;
    shared_memory = false;
    victim = 3;
    check_title("%s, %s, to which rank 3 does not come", fault_op_name(op), setting);
    run_in_time(&world, 2500);
    check_error(world.size, TUTTI_ERR_TIMEOUT);
}

/* ---- Has left ---------------------------------------------------------------------------------------------------- */

/* Rank 1 frees the comm of its host, leaves and ends: for rank 0 it has left, and did not die. */
static void leave_host(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *host;
    tutti_message message;
    tutti_status found = TUTTI_IN_PROGRESS;
    CHECK(tutti_comm_by_host(comm, &host) == TUTTI_OK);
    self->numbers[0] = getpid();
    fault_meet(comm);
    if (tutti_rank(comm) == 0) {
        while (kill((pid_t)fault_shared->ranks[1].numbers[0], 0) == 0) fault_sleep_ms(1);
        while (found == TUTTI_IN_PROGRESS) found = tutti_try_probe(host, 1, 3, &message);
        FAULT_CALL(self, host, found);
    }
    CHECK(tutti_comm_free(host) == TUTTI_OK);
}

static void test_left(void)
{
    struct fault_world world = {.size = 3, .processes = true, .body = leave_host};
    world.settings[0] = "TUTTI_HOST_PROCESSES=2";
    check_title("a rank that has left the comm of its host, and the world");
    fault_run(&world);
    const struct fault_step *step = &fault_shared->ranks[0].steps[0];
    CHECK_THAT(step->status == TUTTI_ERR_MISMATCH && fault_has(step, "rank 1 has left"), "%s: %s",
               tutti_status_name(step->status), step->error.text);
}

/* ---- Waits in a message ---------------------------------------------------------------------------------------- */

/* Rank 0 waits for rank 1, which waits for rank 2, which does not come. */
static void await_in_turn(tutti_comm *comm, struct fault_rank *self)
{
    int32_t x = 0;
    int rank = tutti_rank(comm);
    fault_meet(comm);
    if (rank == 2) fault_await_mark(0, 1);
    if (rank < 2)
        FAULT_CALL(self, comm,
                   tutti_recv(rank == 0 ? tutti_within(comm, 2500) : comm, &x, 1, TUTTI_I32, rank + 1, 7, NULL));
    atomic_store(&self->mark, 1);
}

static void test_in_turn(const char *setting)
{
    struct fault_world world = {.size = 3, .processes = true, .body = await_in_turn};
    world.settings[0] = setting;
    check_title("receives that wait for each other, %s", setting);
    run_in_time(&world, 2500);
    const struct fault_step *step = &fault_shared->ranks[0].steps[0];
    CHECK_THAT(step->status == TUTTI_ERR_TIMEOUT && step->error.peer == 2 && fault_has(step, "for rank 1; ") &&
                   fault_has(step, "; rank 1 waits in recv with tag 7 for rank 2; "),
               "%s: %s", tutti_status_name(step->status), step->error.text);
}

static int waiter;

/* The waiter has started a collective, in which others wait for it and it for rank 3, which does not come; it waits for
 * a message that is to come after that. */
static void await_beside(tutti_comm *comm, struct fault_rank *self)
{
    enum { EACH = 100000 }; /* so much goes round in a ring */
    static int32_t in[EACH], out[5 * EACH];
    int32_t x;
    int rank = tutti_rank(comm);
    tutti_op gathers, comes;
    fault_meet(comm);
    if (rank == victim) {
        for (int other = 0; other < 5; other++)
            if (other != victim && other != waiter) fault_await_mark(other, 1);
    } else if (rank == waiter) {
        CHECK(tutti_all_gather_start(tutti_within(comm, 60000), in, out, EACH, TUTTI_I32, &gathers) == TUTTI_OK);
        CHECK(tutti_recv_start(tutti_within(comm, 60000), &x, 1, TUTTI_I32, 2, 7, NULL, &comes) == TUTTI_OK);
        FAULT_CALL(self, comm, tutti_wait(comes));
        tutti_wait(gathers);
    } else {
        FAULT_CALL(self, comm, tutti_all_gather(tutti_within(comm, 2000), in, out, EACH, TUTTI_I32));
        atomic_store(&self->mark, 1);
    }
    if (rank != victim) FAULT_CALL(self, comm, tutti_barrier(comm));
}

static void test_beside(int rank, const char *setting)
{
    struct fault_world world = {.size = 5, .processes = true, .body = await_beside};
    world.settings[0] = setting;
    victim = 3;
    waiter = rank;
    check_title("rank %d waits for a message beside a collective to which rank 3 does not come, %s", rank, setting);
    run_in_time(&world, 2000);
    check_error(world.size, TUTTI_ERR_TIMEOUT);
}

/* Some 80 in each round, in worlds whose ranks share memory within a host, and in worlds that go by tcp alone. */
static void test_kills(int rounds)
{
    static const char *const hosts[] = {"TUTTI_HOST_PROCESSES=2", "TUTTI_HOST_PROCESSES=3"};
    int on_hosts = rounds * (SANITIZED ? 6 : 28), in_rings = rounds * (SANITIZED ? 3 : 12);
    int over_tcp = rounds * (SANITIZED ? 1 : 2);
    for (int turn = 0; turn < on_hosts; turn++) test_killed(ops[turn % OPS], 4, turn, hosts[turn / 2 % 2]);
    for (int turn = 0; turn < in_rings; turn++) test_killed(FAULT_SENDRECV, 5, turn, hosts[turn / 2 % 2]);
    for (int op = 0; op < FAULT_OPS; op++)
        for (int turn = op; turn < op + over_tcp; turn++) test_killed(op, 3, turn, "TUTTI_TRANSPORT=tcp");
}

/* [SEED [ROUNDS]] */
int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 1;
    if (argc > 1) seed = strtoull(argv[1], NULL, 0);
    printf("seed %llu\n", (unsigned long long)seed);
    fault_begin(110 * (unsigned)(rounds < 1 ? 1 : rounds));
    test_kills(rounds);
    test_forked("TUTTI_TRANSPORT=tcp");
    test_forked("TUTTI_HOST_PROCESSES=2");
    test_forked("TUTTI_TRANSPORT=shm");
    test_elsewhere(FAULT_BARRIER, 2, true);
    test_elsewhere(FAULT_BROADCAST, 40000, false);
    test_elsewhere(FAULT_REDUCE, 2, false);
    test_elsewhere(FAULT_SCAN, 40000, true);
    test_elsewhere(FAULT_ALL_TO_ALL, 40000, true);
    test_late(FAULT_ALL_REDUCE, 40000, true);
    test_late(FAULT_BARRIER, 1, true);
    test_late(FAULT_ALL_GATHER, 2, false);
    test_chain(FAULT_BARRIER, "TUTTI_HOST_PROCESSES=2");
    test_chain(FAULT_ALL_GATHER_V, "TUTTI_TRANSPORT=tcp");
    test_in_turn("TUTTI_TRANSPORT=tcp");
    test_beside(4, "TUTTI_TRANSPORT=tcp");
    test_beside(0, "TUTTI_HOST_PROCESSES=2");
    test_left();
    return fault_end();
}
