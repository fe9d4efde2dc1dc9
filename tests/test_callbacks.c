/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Callbacks of ops: called exactly once for every end, with what the op ended with, by a thread that holds nothing; for ops
 * that have ended, fail, are cancelled, dropped or prepared; callbacks that start the next op, and callbacks that wait.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <string.h>
#include <unistd.h>

enum { OPS = 200, LINKS = 100, ROUNDS = 50, LARGE = 1 << 16 };

static bool over_tcp;

/* What a callback was told. */
struct told {
    _Atomic int times;
    _Atomic int status;
    char text[480];
};

static void note(void *context, tutti_status status, const tutti_error *error)
{
    struct told *told = context;
    if (error != NULL) memcpy(told->text, error->text, sizeof told->text);
    atomic_store(&told->status, status);
    atomic_fetch_add(&told->times, 1);
}

static bool await_times(const struct told *told, int times)
{
    int64_t until = fault_now_ns() + FAULT_SLACK_MS * INT64_C(1000000);
    while (atomic_load(&told->times) < times && fault_now_ns() < until) fault_sleep_ms(1);
    return atomic_load(&told->times) == times;
}

/* ---- Every op, once --------------------------------------------------------------------------------------------- */

/* Waited for, tested, dropped and left to the service thread in turn. */
static void finish_somehow(tutti_op op, int how, struct told *told)
{
    if (how == 0) CHECK(tutti_wait(op) == TUTTI_OK);
    if (how == 1)
        while (tutti_test(op) == TUTTI_IN_PROGRESS) {}
    if (how == 2) CHECK(tutti_drop(op) == TUTTI_OK);
    if (how == 3) {
        CHECK(await_times(told, 1));
        CHECK(tutti_wait(op) == TUTTI_OK);
    }
}

static void once_each(tutti_comm *comm, struct fault_rank *self)
{
    static struct told all[FAULT_RANKS][OPS];
    int rank = tutti_rank(comm), size = tutti_size(comm);
    struct told *told = all[rank];
    float *x = tutti_alloc(comm, LARGE * sizeof *x), *y = tutti_alloc(comm, LARGE * sizeof *y),
          *z = tutti_alloc(comm, LARGE * sizeof *z);
    (void)self;
    for (int i = 0; i < OPS; i++) {
        size_t count = i % 3 == 0 ? LARGE : 4;
        tutti_op op, back = {0};
        if (i % 2 == 0) {
            CHECK(tutti_all_reduce_start(comm, x, x, count, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
        } else {
            CHECK(tutti_recv_start(comm, y, count, TUTTI_F32, (rank + size - 1) % size, i, NULL, &op) == TUTTI_OK);
            CHECK(tutti_send_start(comm, z, count, TUTTI_F32, (rank + 1) % size, i, &back) == TUTTI_OK);
        }
        CHECK(tutti_when_ended(op, note, &told[i]) == TUTTI_OK);
        if (back.id != 0) CHECK(tutti_drop(back) == TUTTI_OK);
        finish_somehow(op, i % 4, &told[i]);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    for (int i = 0; i < OPS; i++)
        CHECK_THAT(await_times(&told[i], 1) && told[i].status == TUTTI_OK, "%d: %d times", i, told[i].times);
}

/* ---- Ended already; freed with some due ---------------------------------------------------------------------------- */

static void ended_before(tutti_comm *comm, struct fault_rank *self)
{
    struct told told = {0};
    int x = 1, others = tutti_size(comm) - 1;
    tutti_op op;
    (void)self;
    CHECK(tutti_all_reduce_start(comm, &x, &x, 1, TUTTI_I32, TUTTI_SUM, &op) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK); /* behind it */
    CHECK(tutti_when_ended(op, note, &told) == TUTTI_OK && atomic_load(&told.times) == 1 && told.status == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_OK && x == others + 1 && atomic_load(&told.times) == 1);
    CHECK(tutti_when_ended(op, note, &told) == TUTTI_ERR_HANDLE && atomic_load(&told.times) == 1);
    CHECK(tutti_barrier_start(comm, &op) == TUTTI_OK);
    CHECK(tutti_when_ended(op, NULL, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_wait(op) == TUTTI_OK);
}

static void slow_note(void *context, tutti_status status, const tutti_error *error)
{
    fault_sleep_ms(20);
    note(context, status, error);
}

static void freed_after(tutti_comm *comm, struct fault_rank *self)
{
    struct told told[8] = {0};
    (void)self;
    tutti_comm *other;
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    for (int i = 0; i < 8; i++) {
        tutti_op op;
        CHECK(tutti_barrier_start(other, &op) == TUTTI_OK);
        CHECK(tutti_when_ended(op, slow_note, &told[i]) == TUTTI_OK && tutti_drop(op) == TUTTI_OK);
    }
    CHECK(tutti_comm_free(other) == TUTTI_OK);
    for (int i = 0; i < 8; i++) CHECK(atomic_load(&told[i].times) == 1);
}

/* ---- Prepared ------------------------------------------------------------------------------------------------------ */

static void prepared(tutti_comm *comm, struct fault_rank *self)
{
    struct told first = {0}, told = {0};
    int *x = tutti_alloc(comm, sizeof *x);
    tutti_op op;
    (void)self;
    CHECK(tutti_all_reduce_start(tutti_prepared(comm), x, x, 1, TUTTI_I32, TUTTI_MAX, &op) == TUTTI_OK);
    CHECK(tutti_when_ended(op, note, &first) == TUTTI_OK);
    CHECK(tutti_when_ended(op, note, &told) == TUTTI_OK); /* beside it */
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(tutti_start(op) == TUTTI_OK);
        CHECK(tutti_wait(op) == TUTTI_OK);
    }
    CHECK(await_times(&told, ROUNDS) && await_times(&first, ROUNDS));
    CHECK(tutti_drop(op) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* ---- Chains: each callback starts the next one ---------------------------------------------------------------------- */

struct chain {
    tutti_comm *comm;
    int value;
    _Atomic int links;
    _Atomic int status;
};

static void go_on(void *context, tutti_status status, const tutti_error *error)
{
    struct chain *chain = context;
    tutti_op op;
    (void)error;
    if (status == TUTTI_OK && atomic_fetch_add(&chain->links, 1) + 1 < LINKS) {
        int rank = tutti_rank(chain->comm), size = tutti_size(chain->comm), link = atomic_load(&chain->links);
        status = link % 3 == 0
                     ? tutti_sendrecv_start(chain->comm, &rank, 1, (rank + 1) % size, 1, &chain->value, 1,
                                            (rank + size - 1) % size, 1, TUTTI_I32, NULL, &op)
                     : tutti_all_reduce_start(chain->comm, &chain->value, &chain->value, 1, TUTTI_I32, TUTTI_MAX, &op);
        if (status == TUTTI_OK) status = tutti_when_ended(op, go_on, chain);
        if (status == TUTTI_OK) status = tutti_drop(op);
        if (status == TUTTI_OK) return;
    }
    atomic_store(&chain->status, status == TUTTI_OK ? 1 : status);
}

static void chained(tutti_comm *comm, struct fault_rank *self)
{
    static struct chain chains[FAULT_RANKS];
    struct chain *chain = &chains[tutti_rank(comm)];
    tutti_op op;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &chain->comm) == TUTTI_OK);
    CHECK(tutti_barrier_start(chain->comm, &op) == TUTTI_OK);
    CHECK(tutti_when_ended(op, go_on, chain) == TUTTI_OK && tutti_drop(op) == TUTTI_OK);
    int64_t until = fault_now_ns() + FAULT_SLACK_MS * INT64_C(1000000);
    while (atomic_load(&chain->status) == 0 && fault_now_ns() < until) fault_sleep_ms(1);
    CHECK_THAT(atomic_load(&chain->status) == 1 && atomic_load(&chain->links) == LINKS, "%d links, status %d",
               atomic_load(&chain->links), atomic_load(&chain->status));
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_comm_free(chain->comm) == TUTTI_OK);
}

/* ---- Waiting in a callback is refused ------------------------------------------------------------------------------- */

struct waiter {
    tutti_comm *comm;
    tutti_op other;
    _Atomic int refused, times;
};

static void wait_in_it(void *context, tutti_status status, const tutti_error *error)
{
    struct waiter *waiter = context;
    tutti_comm *comm = waiter->comm;
    int x = 0, refused = 0;
    size_t index;
    tutti_message message;
    (void)status, (void)error;
    refused += tutti_barrier(comm) == TUTTI_ERR_ARGUMENT;
    refused += tutti_all_reduce(comm, &x, &x, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_ERR_ARGUMENT &&
               strstr(tutti_comm_error(comm)->text, "must not wait") != NULL;
    refused += tutti_send(comm, &x, 1, TUTTI_I32, 0, 0) == TUTTI_ERR_ARGUMENT;
    refused += tutti_recv(comm, &x, 1, TUTTI_I32, 0, 0, NULL) == TUTTI_ERR_ARGUMENT;
    refused += tutti_sendrecv(comm, &x, 1, 0, 0, &x + 0, 0, 0, 0, TUTTI_I32, NULL) == TUTTI_ERR_ARGUMENT;
    refused += tutti_probe(comm, 0, 0, &message) == TUTTI_ERR_ARGUMENT;
    refused += tutti_try_probe(comm, 0, 0, &message) == TUTTI_IN_PROGRESS; /* which does not wait */
    refused += tutti_wait(waiter->other) == TUTTI_ERR_ARGUMENT;
    refused += tutti_wait_for(waiter->other, 5) == TUTTI_ERR_ARGUMENT;
    refused += tutti_wait_any(&waiter->other, 1, -1, &index) == TUTTI_ERR_ARGUMENT;
    refused += tutti_wait_all(&waiter->other, 1) == TUTTI_ERR_ARGUMENT;
    refused += tutti_comm_free(comm) == TUTTI_ERR_ARGUMENT;
    refused += tutti_group_begin(comm) == TUTTI_OK && tutti_group_end(comm) == TUTTI_ERR_ARGUMENT;
    atomic_store(&waiter->refused, refused);
    atomic_fetch_add(&waiter->times, 1);
}

static void waits(tutti_comm *comm, struct fault_rank *self)
{
    struct waiter waiter = {0};
    tutti_op op;
    int x;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &waiter.comm) == TUTTI_OK);
    CHECK(tutti_recv_start(comm, &x, 1, TUTTI_I32, tutti_rank(comm), 3, NULL, &waiter.other) == TUTTI_OK);
    CHECK(tutti_barrier_start(waiter.comm, &op) == TUTTI_OK);
    CHECK(tutti_when_ended(op, wait_in_it, &waiter) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_OK);
    int64_t until = fault_now_ns() + FAULT_SLACK_MS * INT64_C(1000000);
    while (atomic_load(&waiter.times) == 0 && fault_now_ns() < until) fault_sleep_ms(1);
    CHECK_THAT(waiter.refused == 13 && waiter.times == 1, "%d of 13, %d times", waiter.refused, waiter.times);
    CHECK(tutti_barrier(waiter.comm) == TUTTI_OK); /* it is as good as before */
    CHECK(tutti_cancel(waiter.other) == TUTTI_OK && tutti_wait(waiter.other) == TUTTI_ERR_CANCELLED);
    CHECK(tutti_comm_free(waiter.comm) == TUTTI_OK);
}

/* ---- Failing ------------------------------------------------------------------------------------------------------- */

static void cancelled(tutti_comm *comm, struct fault_rank *self)
{
    struct told message = {0}, collective = {0};
    tutti_op op;
    int x;
    CHECK(tutti_recv_start(comm, &x, 1, TUTTI_I32, tutti_rank(comm), 3, NULL, &op) == TUTTI_OK);
    CHECK(tutti_when_ended(op, note, &message) == TUTTI_OK);
    CHECK(tutti_cancel(op) == TUTTI_OK && tutti_wait(op) == TUTTI_ERR_CANCELLED);
    CHECK_THAT(await_times(&message, 1) && message.status == TUTTI_ERR_CANCELLED && message.text[0] != '\0',
               "%d times, status %d: %s", message.times, message.status, message.text);
    fault_meet(comm);
    if (tutti_rank(comm) > 0) fault_await_mark(0, 1);
    if (tutti_rank(comm) == 0 && tutti_size(comm) > 1) {
        CHECK(tutti_barrier_start(comm, &op) == TUTTI_OK && tutti_when_ended(op, note, &collective) == TUTTI_OK);
        CHECK(tutti_cancel(op) == TUTTI_OK && tutti_wait(op) == TUTTI_ERR_CANCELLED);
        CHECK(await_times(&collective, 1) && collective.status == TUTTI_ERR_CANCELLED &&
              strstr(collective.text, "cancelled") != NULL);
    }
    self->mark = 1;
}

static void peer_dies(tutti_comm *comm, struct fault_rank *self)
{
    struct told told = {0};
    tutti_op op;
    (void)self;
    fault_meet(comm);
    if (tutti_rank(comm) == 1) _exit(0);
    tutti_status started = tutti_barrier_start(comm, &op);
    if (started == TUTTI_ERR_PEER_LOST) return; /* this rank had no turn before its loss was known */
    CHECK(started == TUTTI_OK && tutti_when_ended(op, note, &told) == TUTTI_OK);
    CHECK(await_times(&told, 1) && told.status == TUTTI_ERR_PEER_LOST && strstr(told.text, "rank 1") != NULL);
    CHECK(tutti_wait(op) == TUTTI_ERR_PEER_LOST);
}

static void run_all(bool processes)
{
    for (int size = 1; size <= 4; size += size == 1 ? 1 : 2) {
        fault_run_body("once each", once_each, size, processes, over_tcp);
        fault_run_body("ended before", ended_before, size, processes, over_tcp);
        fault_run_body("freed after", freed_after, size, processes, over_tcp);
        fault_run_body("prepared", prepared, size, processes, over_tcp);
        fault_run_body("chained", chained, size, processes, over_tcp);
        fault_run_body("waits", waits, size, processes, over_tcp);
        fault_run_body("cancelled", cancelled, size, processes, over_tcp);
    }
    if (!processes) return;
    fault_run_body("a peer dies", peer_dies, 3, processes, over_tcp);
}

int main(void)
{
    fault_begin(110);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
