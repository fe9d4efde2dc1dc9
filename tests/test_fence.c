/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan waits
 *
 * Over tcp a buffer is its owner's again when its operation has failed, also where the peer is stopped in the middle of it:
 * what the peer sends later is not written there, and what it takes later is what was to be sent.
 */
#include "fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECEIVER, SENDER, COUNT = 16 << 20, LIMIT_MS = 1000 };

static bool by_broadcast;
static int stopped;

static tutti_status start(tutti_comm *comm, int rank, int32_t *data, tutti_op *op)
{
    if (by_broadcast) return tutti_broadcast_start(comm, data, data, COUNT, TUTTI_I32, SENDER, op);
    if (rank == SENDER) return tutti_send_start(comm, data, COUNT, TUTTI_I32, RECEIVER, 5, op);
    return tutti_recv_start(comm, data, COUNT, TUTTI_I32, SENDER, 5, NULL, op);
}

static pid_t pid_of(int rank)
{
    return (pid_t)fault_shared->ranks[rank].numbers[0];
}

/* The receiver stops when it has said that it is ready, the sender when the first of the data have come, and far from all. */
static tutti_status stop_in_the_middle(tutti_op op, const volatile int32_t *data)
{
    tutti_status status = tutti_test(op);
    while (stopped == SENDER && data[0] == 0 && status == TUTTI_IN_PROGRESS) status = tutti_test(op);
    if (stopped == RECEIVER || data[0] != 0) kill(pid_of(stopped), SIGSTOP);
    return status;
}

/* It may stop only now, where the machine was slow. What is on its way to it moves when this rank looks for something. */
static void let_go_on(tutti_comm *comm)
{
    tutti_message message;
    do {
        kill(pid_of(stopped), SIGCONT);
        CHECK(tutti_try_probe(comm, stopped, 6, &message) == TUTTI_IN_PROGRESS);
    } while (atomic_load(&fault_shared->ranks[stopped].mark) < 2);
}

static int find_other_than(const int32_t *data, int32_t first, int32_t step)
{
    for (int i = 0; i < COUNT; i++)
        if (data[i] != first + i * step) return i;
    return -1;
}

static void move_and_fail(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *moves;
    tutti_op op;
    int rank = tutti_rank(comm);
    int32_t *data = calloc(COUNT, sizeof *data);
    CHECK(data != NULL && tutti_comm_duplicate(comm, &moves) == TUTTI_OK);
    for (int i = 0; rank == SENDER && i < COUNT; i++) data[i] = i + 1;
    self->numbers[0] = getpid();
    fault_meet(comm);
    if (rank == RECEIVER) fault_await_mark(SENDER, 1);
    CHECK(start(tutti_within(moves, rank == stopped ? 60000 : LIMIT_MS), rank, data, &op) == TUTTI_OK);
    if (rank == SENDER) atomic_store(&self->mark, 1); /* the receiver finds that it has begun */
    tutti_status status = rank == RECEIVER ? stop_in_the_middle(op, data) : TUTTI_IN_PROGRESS;
    status = FAULT_CALL(self, moves, status == TUTTI_IN_PROGRESS ? tutti_wait(op) : status);
    if (rank == stopped) {
        atomic_store(&self->mark, 2);
        if (rank == RECEIVER && status == TUTTI_OK) self->numbers[1] = find_other_than(data, 1, 1) + 1;
    } else {
        memset(data, 0x55, COUNT * sizeof *data);
        let_go_on(comm);
    }
    CHECK(tutti_barrier(tutti_within(comm, 60000)) == TUTTI_OK); /* what was on its way has come */
    if (rank != stopped) self->numbers[1] = find_other_than(data, 0x55555555, 0) + 1;
    CHECK(tutti_comm_free(moves) == TUTTI_OK);
    free(data);
}

static void check_taken_back(void)
{
    for (int rank = 0; rank < 2; rank++) {
        const struct fault_rank *self = &fault_shared->ranks[rank];
        const struct fault_step *step = &self->steps[0];
        CHECK_THAT(step->done && step->status != TUTTI_ERR_PEER_LOST && !fault_has(step, "do not reuse"),
                   "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
        CHECK_THAT(self->numbers[1] == 0, "rank %d has other data from element %d on", rank, (int)self->numbers[1] - 1);
    }
}

/* On a machine that is loaded all data may have come before the first are seen: then once more. */
static void test_taken_back(bool broadcast, int who)
{
    struct fault_world world = {.size = 2, .processes = true, .body = move_and_fail, .limit_ms = 100000};
    const struct fault_step *step = &fault_shared->ranks[1 - who].steps[0];
    world.settings[0] = "TUTTI_TRANSPORT=tcp";
    world.settings[1] = "TUTTI_FENCE_MS=100";
    by_broadcast = broadcast;
    stopped = who;
    check_title("a %s of which the %s is stopped", broadcast ? "broadcast" : "message",
                who == SENDER ? "sender" : "receiver");
    for (int attempt = 0; attempt < 10; attempt++) {
        fault_run(&world);
        check_taken_back();
        if (step->status == TUTTI_ERR_TIMEOUT) return;
    }
    printf("%s: not met, all had come before it was stopped\n", check_titled());
}

int main(void)
{
    fault_begin(100);
    for (int who = RECEIVER; who <= SENDER; who++) {
        test_taken_back(false, who);
        test_taken_back(true, who);
    }
    return fault_end();
}
