/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Messages with nobody on the other side, in every form, over threads, processes and tcp: nothing is sent, nothing comes,
 * nothing is waited for, and errors count them as what they are.
 */
#include "fault.h"

#include <string.h>

enum { KEPT = 77 };

static bool says(const tutti_comm *comm, const char *words)
{
    const tutti_error *error = tutti_comm_error(comm);
    return error != NULL && strstr(error->text, words) != NULL;
}

static bool is_nothing(const tutti_message *message)
{
    return message->source == TUTTI_NOBODY && message->tag == TUTTI_ANY_TAG && message->type == TUTTI_I32 &&
           message->count == 0;
}

static void blocking(tutti_comm *comm)
{
    int32_t x = 1, y = KEPT;
    size_t received = 9;
    tutti_message message = {0};
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, TUTTI_NOBODY, 0) == TUTTI_OK);
    CHECK(tutti_recv(comm, &y, 1, TUTTI_I32, TUTTI_NOBODY, 0, &received) == TUTTI_OK && received == 0);
    CHECK(tutti_recv_message(comm, &y, 1, TUTTI_I32, TUTTI_NOBODY, 5, &message) == TUTTI_OK && is_nothing(&message));
    received = 9;
    CHECK(tutti_sendrecv(comm, &x, 1, TUTTI_NOBODY, 0, &y, 1, TUTTI_NOBODY, 0, TUTTI_I32, &received) == TUTTI_OK);
    CHECK(received == 0 && y == KEPT);
}

static void started(tutti_comm *comm)
{
    int32_t x = 1, y = KEPT;
    size_t received = 9;
    tutti_message message = {0};
    tutti_op ops[3];
    CHECK(tutti_send_start(comm, &x, 1, TUTTI_I32, TUTTI_NOBODY, 0, &ops[0]) == TUTTI_OK);
    CHECK(tutti_recv_start(comm, &y, 1, TUTTI_I32, TUTTI_NOBODY, 0, &message, &ops[1]) == TUTTI_OK);
    CHECK(tutti_sendrecv_start(comm, &x, 1, TUTTI_NOBODY, 0, &y, 1, TUTTI_NOBODY, 0, TUTTI_I32, &received, &ops[2]) ==
          TUTTI_OK);
    for (int i = 0; i < 3; i++) CHECK(ops[i].id != 0);
    CHECK(tutti_test(ops[0]) == TUTTI_OK && tutti_test(ops[0]) == TUTTI_ERR_HANDLE);
    CHECK(tutti_wait_all(ops + 1, 2) == TUTTI_OK && is_nothing(&message) && received == 0 && y == KEPT);
}

static void prepared(tutti_comm *comm)
{
    int32_t y = KEPT;
    tutti_op op;
    tutti_message message;
    CHECK(tutti_recv_start(tutti_prepared(comm), &y, 1, TUTTI_I32, TUTTI_NOBODY, 0, &message, &op) == TUTTI_OK);
    for (int turn = 0; turn < 3; turn++) {
        memset(&message, 0, sizeof message);
        CHECK(tutti_start(op) == TUTTI_OK && tutti_wait(op) == TUTTI_OK && is_nothing(&message));
    }
    CHECK(tutti_drop(op) == TUTTI_OK && y == KEPT);
}

static void line(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    int below = rank == 0 ? TUTTI_NOBODY : rank - 1, above = rank == size - 1 ? TUTTI_NOBODY : rank + 1;
    int32_t x = rank, down = KEPT, up = KEPT;
    size_t received[2] = {9, 9};
    tutti_op op;
    CHECK(tutti_sendrecv(comm, &x, 1, above, 1, &down, 1, below, 1, TUTTI_I32, &received[0]) == TUTTI_OK);
    CHECK(tutti_sendrecv_start(comm, &x, 1, below, 2, &up, 1, above, 2, TUTTI_I32, &received[1], &op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_OK);
    CHECK(down == (rank == 0 ? KEPT : rank - 1) && received[0] == (rank > 0));
    CHECK(up == (rank == size - 1 ? KEPT : rank + 1) && received[1] == (rank < size - 1));
    FAULT_CALL(self, comm, tutti_barrier(comm));
}

static void grouped(tutti_comm *comm)
{
    int rank = tutti_rank(comm), peer = 1 - rank;
    int32_t x[2] = {rank, rank}, y = KEPT, z = KEPT;
    tutti_op op;
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_group_end(comm) == TUTTI_OK);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    CHECK(tutti_recv(comm, &y, 1, TUTTI_I32, TUTTI_NOBODY, 0, NULL) == TUTTI_OK);
    CHECK(tutti_send(comm, x, 1, TUTTI_I32, TUTTI_NOBODY, 0) == TUTTI_OK);
    CHECK(tutti_sendrecv(comm, x, 1, peer, 0, &z, 1, peer, 0, TUTTI_I32, NULL) == TUTTI_OK);
    CHECK(tutti_group_end_start(comm, &op) == TUTTI_OK && tutti_wait(op) == TUTTI_OK);
    CHECK(y == KEPT && z == peer);
    CHECK(tutti_group_begin(comm) == TUTTI_OK); /* the second message is too long */
    CHECK(tutti_recv(comm, &y, 1, TUTTI_I32, TUTTI_NOBODY, 0, NULL) == TUTTI_OK);
    CHECK(tutti_recv(comm, &y, 1, TUTTI_I32, peer, 0, NULL) == TUTTI_OK);
    CHECK(tutti_send(comm, x, 2, TUTTI_I32, peer, 0) == TUTTI_OK);
    CHECK(tutti_group_end(comm) == TUTTI_ERR_TRUNCATED && says(comm, "call 2 of the group"));
    CHECK(tutti_recv(comm, x, 2, TUTTI_I32, peer, 0, NULL) == TUTTI_OK);
}

static void refused(tutti_comm *comm)
{
    int32_t x = 1;
    tutti_message message;
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, TUTTI_NOBODY, -1) == TUTTI_ERR_ARGUMENT && says(comm, "tag -1"));
    CHECK(tutti_send(comm, NULL, 1, TUTTI_I32, TUTTI_NOBODY, 0) == TUTTI_ERR_ARGUMENT && says(comm, "NULL"));
    CHECK(tutti_probe(comm, TUTTI_NOBODY, 0, &message) == TUTTI_ERR_RANK && says(comm, "(TUTTI_NOBODY)"));
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, TUTTI_ANY_SOURCE, 0) == TUTTI_ERR_RANK &&
          says(comm, "(TUTTI_ANY_SOURCE)"));
    CHECK(tutti_broadcast(comm, &x, &x, 1, TUTTI_I32, TUTTI_NOBODY) == TUTTI_ERR_RANK);
}

static void every_form(tutti_comm *comm, struct fault_rank *self)
{
    tutti_stats before = {.struct_size = sizeof before}, after = before;
    CHECK(tutti_comm_stats(comm, &before) == TUTTI_OK);
    blocking(comm);
    started(comm);
    prepared(comm);
    CHECK(tutti_comm_stats(comm, &after) == TUTTI_OK);
    CHECK(after.sent == before.sent && after.received == before.received);
    grouped(comm);
    refused(comm);
    FAULT_CALL(self, comm, tutti_barrier(comm));
}

static bool over_tcp;

static void run_all(bool processes)
{
    fault_run_body("every form", every_form, 2, processes, over_tcp);
    fault_run_body("a line", line, 1, processes, over_tcp);
    fault_run_body("a line", line, 3, processes, over_tcp);
}

int main(void)
{
    fault_begin(50);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
