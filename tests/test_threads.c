/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Several threads of a rank. On one comm, one waits for ops, for as long as they take, while another starts the next ones and
 * makes calls of its own, without which the first would wait for ever. On two, each takes the other's forward.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>

enum { PLACES = 4, TURNS = SANITIZED ? 60 : 200, LARGE = 40000 };

static bool over_tcp;

/* Ops from the thread that starts to the one that waits. */
struct relay {
    sem_t filled, emptied;
    tutti_op ops[PLACES];
    int32_t *x[PLACES];
    int wrong;
};

static int length(int turn)
{
    return turn % 5 == 0 ? LARGE : 1 + turn * 37 % 3000;
}

static tutti_status await_somehow(tutti_op op, int how)
{
    size_t index;
    tutti_status status = TUTTI_IN_PROGRESS;
    if (how % 4 == 0) return tutti_wait(op);
    if (how % 4 == 1) return tutti_wait_any(&op, 1, -1, &index);
    while (status == TUTTI_IN_PROGRESS) status = how % 4 == 2 ? tutti_wait_for(op, 1) : tutti_test(op);
    return status;
}

static void *wait_behind(void *argument)
{
    struct relay *relay = argument;
    for (int turn = 0; turn < TURNS; turn++) {
        int place = turn % PLACES;
        sem_wait(&relay->filled);
        relay->wrong += await_somehow(relay->ops[place], turn) != TUTTI_OK;
        relay->wrong += relay->x[place][0] != turn || relay->x[place][length(turn) - 1] != turn;
        sem_post(&relay->emptied);
    }
    return NULL;
}

/* What the peers' ops wait for, and calls besides. */
static void call(tutti_comm *comm, int32_t *out, int turn)
{
    int size = tutti_size(comm), rank = tutti_rank(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
    int32_t one = 1, sum = 0, came = -1;
    tutti_message message;
    for (int i = 0; i < length(turn); i++) out[i] = turn;
    if (turn % 3 == 0) CHECK(tutti_all_reduce(comm, &one, &sum, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_OK && sum == size);
    CHECK(tutti_send(comm, out, (size_t)length(turn), TUTTI_I32, to, turn) == TUTTI_OK);
    if (turn % 4 == 0)
        CHECK(tutti_sendrecv(comm, &rank, 1, to, TURNS, &came, 1, from, TURNS, TUTTI_I32, NULL) == TUTTI_OK &&
              came == from);
    if (turn % 4 != 1) return;
    CHECK(tutti_send(comm, &one, 1, TUTTI_I32, to, TURNS + 1) == TUTTI_OK);
    CHECK(tutti_probe(comm, TUTTI_ANY_SOURCE, TURNS + 1, &message) == TUTTI_OK && message.source == from);
    CHECK(tutti_recv(comm, &came, 1, TUTTI_I32, from, TURNS + 1, NULL) == TUTTI_OK && came == 1);
}

static void beside(tutti_comm *comm, struct fault_rank *self)
{
    struct relay relay = {.wrong = 0};
    int32_t *out = malloc(LARGE * sizeof *out);
    int from = (tutti_rank(comm) + tutti_size(comm) - 1) % tutti_size(comm);
    pthread_t thread;
    (void)self;
    sem_init(&relay.filled, 0, 0);
    sem_init(&relay.emptied, 0, PLACES);
    for (int i = 0; i < PLACES; i++) relay.x[i] = malloc(LARGE * sizeof *relay.x[i]);
    CHECK(pthread_create(&thread, NULL, wait_behind, &relay) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
        int place = turn % PLACES;
        sem_wait(&relay.emptied);
        CHECK(tutti_recv_start(comm, relay.x[place], LARGE, TUTTI_I32, from, turn, NULL, &relay.ops[place]) ==
              TUTTI_OK);
        sem_post(&relay.filled);
        call(comm, out, turn);
    }
    pthread_join(thread, NULL);
    CHECK_THAT(relay.wrong == 0, "%d went wrong", relay.wrong);
    for (int i = 0; i < PLACES; i++) free(relay.x[i]);
    free(out);
    sem_destroy(&relay.filled);
    sem_destroy(&relay.emptied);
}

/* ---- Each with a comm of its own ----------------------------------------------------------------------------------- */

/* Whoever moves frames does so for all comms: this one's messages come while their rank looks for them. */
static void *probe_and_receive(void *argument)
{
    tutti_comm *comm = argument;
    int size = tutti_size(comm), rank = tutti_rank(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int turn = 0; turn < TURNS; turn++) {
        int32_t sent = rank * TURNS + turn, came = -1;
        tutti_message message;
        tutti_status status;
        CHECK(tutti_send(comm, &sent, 1, TUTTI_I32, to, turn) == TUTTI_OK);
        int source = turn % 2 == 0 ? from : TUTTI_ANY_SOURCE;
        while ((status = tutti_try_probe(comm, source, turn, &message)) == TUTTI_IN_PROGRESS) sched_yield();
        CHECK(status == TUTTI_OK && tutti_recv(comm, &came, 1, TUTTI_I32, from, turn, NULL) == TUTTI_OK);
        CHECK_THAT(came == from * TURNS + turn, "%d came in turn %d", came, turn);
    }
    return NULL;
}

static void apart(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *other;
    pthread_t thread;
    (void)self;
    if (!CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK)) return;
    CHECK(pthread_create(&thread, NULL, probe_and_receive, other) == 0);
    probe_and_receive(comm);
    pthread_join(thread, NULL);
    CHECK(tutti_comm_free(other) == TUTTI_OK);
}

static void run_all(bool processes)
{
    for (int size = 1; size <= 3; size++) fault_run_body("probes on two comms", apart, size, processes, over_tcp);
    for (int size = 1; size <= 3; size++) fault_run_body("messages beside a wait", beside, size, processes, over_tcp);
}

int main(void)
{
    fault_begin(50);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
