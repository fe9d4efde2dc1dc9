/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Thread-local ops: small, alone, and kept by the thread that started them until somebody else needs them. Whatever happens
 * between their start and their end, and whoever else comes, they end as all others do.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

enum { COUNT = 2, TURNS = SANITIZED ? 300 : 1000 };

struct vectors {
    float in[COUNT], out[COUNT];
};

static tutti_status start(tutti_comm *comm, struct vectors *x, int turn, tutti_op *op)
{
    x->in[0] = (float)turn;
    x->in[1] = (float)tutti_rank(comm);
    x->out[0] = x->out[1] = -1;
    return tutti_all_reduce_start(comm, x->in, x->out, COUNT, TUTTI_F32, TUTTI_SUM, op);
}

static bool is_right(const tutti_comm *comm, const struct vectors *x, int turn)
{
    int size = tutti_size(comm);
    return x->out[0] == (float)(turn * size) && x->out[1] == (float)(size * (size - 1) / 2);
}

/* ---- By one thread ------------------------------------------------------------------------------------------------ */

/* Each rank for itself: the ways in which an op can be brought to its end. */
static tutti_status await_somehow(tutti_op op, uint64_t how)
{
    size_t index;
    tutti_status status = TUTTI_IN_PROGRESS;
    switch (how % 4) {
    case 0: return tutti_wait(op);
    case 1:
        while (status == TUTTI_IN_PROGRESS) status = tutti_test(op);
        return status;
    case 2:
        while (status == TUTTI_IN_PROGRESS) status = tutti_wait_for(op, 0);
        return status;
    default: return tutti_wait_any(&op, 1, -1, &index);
    }
}

/* The same on all ranks: what comes between an op's start and its end. */
static void interrupt(tutti_comm *comm, uint64_t how)
{
    struct vectors x;
    int size = tutti_size(comm), rank = tutti_rank(comm), sent = rank, received = -1;
    tutti_op other;
    switch (how % 8) {
    case 0: CHECK(tutti_barrier(comm) == TUTTI_OK); break;
    case 1:
        CHECK(start(comm, &x, 5, &other) == TUTTI_OK && tutti_wait(other) == TUTTI_OK && is_right(comm, &x, 5));
        break;
    case 2:
        CHECK(start(comm, &x, 6, &other) == TUTTI_OK && tutti_drop(other) == TUTTI_OK);
        CHECK(tutti_wait(other) == TUTTI_ERR_HANDLE && tutti_barrier(comm) == TUTTI_OK);
        break;
    case 3:
        CHECK(tutti_sendrecv(comm, &sent, 1, (rank + 1) % size, 0, &received, 1, (rank + size - 1) % size, 0, TUTTI_I32,
                             NULL) == TUTTI_OK);
        CHECK(received == (rank + size - 1) % size);
        break;
    default: break; /* nothing */
    }
}

static void one_by_one(tutti_comm *comm, struct fault_rank *self)
{
    struct vectors x;
    uint64_t all = 7, own = 11 + (uint64_t)tutti_rank(comm);
    tutti_op op;
    int wrong = 0;
    (void)self;
    for (int turn = 0; turn < TURNS; turn++) {
        CHECK(start(comm, &x, turn, &op) == TUTTI_OK);
        interrupt(comm, fault_random(&all));
        tutti_status status = await_somehow(op, fault_random(&own));
        wrong += status != TUTTI_OK || !is_right(comm, &x, turn) || tutti_wait(op) != TUTTI_ERR_HANDLE;
    }
    CHECK_THAT(wrong == 0, "%d of %d went wrong", wrong, TURNS);
}

/* What is waited for at once needs no service thread, and what is not does: here it takes the op from its keeper. */
static void nobody_waits(tutti_comm *comm, struct fault_rank *self)
{
    struct vectors x;
    tutti_op op;
    (void)self;
    for (int turn = 1; turn <= 20; turn++) {
        CHECK(start(comm, &x, turn, &op) == TUTTI_OK);
        const volatile float *out = &x.out[0];
        int64_t until = fault_now_ns() + INT64_C(45000000000);
        while (!SANITIZED && *out == -1 && fault_now_ns() < until) continue;
        CHECK_THAT(SANITIZED || *out != -1, "turn %d: nobody took it forward", turn);
        CHECK(tutti_wait(op) == TUTTI_OK && is_right(comm, &x, turn));
    }
}

/* ---- By several threads ------------------------------------------------------------------------------------------- */

enum { PLACES = 4 };
struct relay {
    tutti_comm *comm;
    sem_t filled, emptied;
    struct vectors x[PLACES];
    tutti_op ops[PLACES];
    int wrong;
};

static void *wait_behind(void *argument)
{
    struct relay *relay = argument;
    for (int turn = 0; turn < TURNS; turn++) {
        sem_wait(&relay->filled);
        int place = turn % PLACES;
        if (turn % 3 != 0) relay->wrong += tutti_wait(relay->ops[place]) != TUTTI_OK;
        relay->wrong += !is_right(relay->comm, &relay->x[place], turn);
        sem_post(&relay->emptied);
    }
    return NULL;
}

/* One starts, another waits, while the first starts the next ones and waits for some itself. */
static void relayed(tutti_comm *comm, struct fault_rank *self)
{
    struct relay relay = {.comm = comm};
    pthread_t thread;
    int wrong = 0;
    (void)self;
    sem_init(&relay.filled, 0, 0);
    sem_init(&relay.emptied, 0, PLACES);
    CHECK(pthread_create(&thread, NULL, wait_behind, &relay) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        int place = turn % PLACES;
        sem_wait(&relay.emptied);
        wrong += start(comm, &relay.x[place], turn, &relay.ops[place]) != TUTTI_OK;
        if (turn % 3 == 0) wrong += tutti_wait(relay.ops[place]) != TUTTI_OK;
        sem_post(&relay.filled);
    }
    pthread_join(thread, NULL);
    CHECK_THAT(wrong == 0 && relay.wrong == 0, "%d and %d went wrong", wrong, relay.wrong);
    sem_destroy(&relay.filled);
    sem_destroy(&relay.emptied);
}

static void *start_and_wait(void *argument)
{
    tutti_comm *comm = argument;
    struct vectors x;
    tutti_op op;
    for (int turn = 0; turn < 50; turn++)
        CHECK(start(comm, &x, turn, &op) == TUTTI_OK && tutti_wait(op) == TUTTI_OK && is_right(comm, &x, turn));
    return NULL;
}

/* The comm goes from thread to thread, with an op in flight. */
static void passed_on(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    for (int round = 0; round < 10; round++) {
        struct vectors x;
        tutti_op op;
        pthread_t thread;
        start_and_wait(comm);
        CHECK(start(comm, &x, round, &op) == TUTTI_OK);
        CHECK(pthread_create(&thread, NULL, start_and_wait, comm) == 0);
        pthread_join(thread, NULL);
        CHECK(tutti_wait(op) == TUTTI_OK && is_right(comm, &x, round));
    }
}

/* ---- Failures ----------------------------------------------------------------------------------------------------- */

static void check_op_failed(tutti_comm *comm, tutti_op op, tutti_status expected, const char *words)
{
    tutti_status status = tutti_wait(op);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == expected && error != NULL && strstr(error->text, words) != NULL, "%s: %s",
               tutti_status_name(status), error == NULL ? "" : error->text);
    CHECK(tutti_barrier(comm) == TUTTI_ERR_BROKEN);
}

static void different(tutti_comm *comm, struct fault_rank *self)
{
    struct vectors x = {.in = {0}};
    tutti_op op;
    (void)self;
    start_and_wait(comm);
    size_t count = tutti_rank(comm) == 0 ? 1 : 2;
    CHECK(tutti_all_reduce_start(comm, x.in, x.out, count, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    check_op_failed(comm, op, TUTTI_ERR_MISMATCH, "ranks differ at operation #51");
}

static void *cancel(void *argument)
{
    const tutti_op *op = argument;
    CHECK(tutti_cancel(*op) == TUTTI_OK);
    return NULL;
}

static void cancelled_elsewhere(tutti_comm *comm, struct fault_rank *self)
{
    struct vectors x;
    tutti_op op;
    pthread_t thread;
    start_and_wait(comm);
    fault_meet(comm); /* what rank 0 breaks has no op of rank 1's in flight */
    if (tutti_rank(comm) == 1) {
        fault_await_mark(0, 1);
        CHECK(tutti_barrier(comm) == TUTTI_ERR_CANCELLED);
        return;
    }
    CHECK(start(comm, &x, 1, &op) == TUTTI_OK);
    CHECK(pthread_create(&thread, NULL, cancel, &op) == 0);
    pthread_join(thread, NULL);
    check_op_failed(comm, op, TUTTI_ERR_CANCELLED, "rank 0 cancelled all_reduce(");
    self->mark = 1;
}

/* Of the job, not of the op: the wait, or else the service thread, sees that it has passed. */
static void deadline(tutti_comm *comm, struct fault_rank *self)
{
    struct vectors x;
    tutti_op op;
    fault_meet(comm); /* no op but this one, which 300 ms might not do for on a loaded machine */
    if (tutti_rank(comm) == 1) {
        fault_await_mark(0, 1);
        return;
    }
    CHECK(start(comm, &x, 1, &op) == TUTTI_OK);
    check_op_failed(comm, op, TUTTI_ERR_TIMEOUT, "300 ms");
    self->mark = 1;
}

static void run(const char *title, fault_body *body, int size, bool processes)
{
    check_title("%s, %d %s", title, size, processes ? "processes" : "threads");
    struct fault_world world = {.size = size, .processes = processes, .body = body};
    if (body == deadline) world.settings[0] = "TUTTI_DEADLINE_MS=300";
    fault_run(&world);
}

int main(void)
{
    fault_begin(60);
    for (int processes = 0; processes < 2; processes++) {
        for (int size = 1; size <= 3; size++) run("one by one", one_by_one, size, processes);
        run("nobody waits", nobody_waits, 2, processes);
        run("relayed", relayed, 2, processes);
        run("passed on", passed_on, 2, processes);
        run("different calls", different, 2, processes);
        run("cancelled by another thread", cancelled_elsewhere, 2, processes);
        run("a deadline", deadline, 2, processes);
    }
    return fault_end();
}
