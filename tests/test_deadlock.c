/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan waits
 *
 * Ranks that wait for each other: in blocking messages they are told at once, else a deadline ends it. The error says what
 * they were doing, and what to do about it.
 */
#include "collective/comm/comm.h"
#include "collective/comm/peers.h"
#include "fault.h"

#include <stdlib.h>
#include <string.h>

enum { SOON_MS = 100, LATE_MS = 60000, LEAVE_MS = 1000, LARGE = 300000, SMALL = 1000, TAG = 7 };

static bool over_tcp;

/* The others wait long, so that it is rank 0 who tells, once these are seen to wait. */
static tutti_comm *in_time(tutti_comm *comm, const char *others)
{
    char doing[256];
    tutti_message message;
    int64_t until = fault_now_ns() + LATE_MS * INT64_C(1000000);
    if (tutti_rank(comm) != 0) return tutti_within(comm, LATE_MS);
    for (int rank = 1; rank < tutti_size(comm);) {
        tutti_status status = tutti_try_probe(comm, TUTTI_ANY_SOURCE, TAG + 1, &message); /* hears what is said */
        comm->peers->describe(comm, rank, doing, sizeof doing);
        if (strstr(doing, others) != NULL) rank++;
        if (status == TUTTI_IN_PROGRESS && fault_now_ns() < until) continue;
        CHECK_THAT(false, "%s: %s", tutti_status_name(status), doing);
        break;
    }
    return tutti_within(comm, SOON_MS);
}

static void send_to_each_other(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(LARGE, sizeof *x);
    FAULT_CALL(self, comm, tutti_send(comm, x, LARGE, TUTTI_F32, 1 - tutti_rank(comm), TAG));
    free(x);
}

static void receive_from_each_other(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1;
    int peer = 1 - tutti_rank(comm);
    CHECK(tutti_send(comm, &x, 1, TUTTI_F32, peer, TAG + 1) == TUTTI_OK);
    FAULT_CALL(self, comm, tutti_recv(comm, &x, 1, TUTTI_F32, peer, TAG, NULL));
}

/* Each of three to the next; a fourth one waits for the first. */
static void send_around(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(LARGE, sizeof *x);
    FAULT_CALL(self, comm, tutti_send(comm, x, LARGE, TUTTI_F32, (tutti_rank(comm) + 1) % 3, TAG));
    free(x);
}

/* The same with receives, after messages the other way, and in a call of another kind on one of the ranks. */
static void receive_around(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1, y;
    int rank = tutti_rank(comm), size = tutti_size(comm), next = (rank + 1) % size;
    CHECK(tutti_send(comm, &x, 1, TUTTI_F32, (rank + size - 1) % size, TAG + 1) == TUTTI_OK);
    if (rank == 0)
        FAULT_CALL(self, comm, tutti_sendrecv(comm, &x, 1, next, TAG, &y, 1, next, TAG, TUTTI_F32, NULL));
    else
        FAULT_CALL(self, comm, tutti_recv(comm, &y, 1, TUTTI_F32, next, TAG, NULL));
}

static void send_with_other_tag(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(LARGE, sizeof *x);
    if (tutti_rank(comm) == 0)
        FAULT_CALL(self, comm, tutti_send(comm, x, LARGE, TUTTI_F32, 1, TAG + 1));
    else
        FAULT_CALL(self, comm, tutti_recv(comm, x, LARGE, TUTTI_F32, 0, TAG, NULL));
    free(x);
}

/* Each sends what the other does not receive. */
static void exchange_by_other_tags(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1, y;
    int peer = 1 - tutti_rank(comm);
    FAULT_CALL(self, comm, tutti_sendrecv(comm, &x, 1, peer, TAG + 2, &y, 1, peer, TAG, TUTTI_F32, NULL));
}

static void wait_for_receive(tutti_comm *comm, struct fault_rank *self)
{
    float x;
    tutti_op op;
    tutti_comm *with = in_time(comm, "in recv");
    if (tutti_rank(comm) == 0) {
        CHECK(tutti_recv_start(with, &x, 1, TUTTI_F32, 1, TAG, NULL, &op) == TUTTI_OK);
        FAULT_CALL(self, comm, tutti_wait(op));
    } else {
        FAULT_CALL(self, comm, tutti_recv(with, &x, 1, TUTTI_F32, 0, TAG, NULL));
    }
}

static void receive_from_any(tutti_comm *comm, struct fault_rank *self)
{
    float x;
    tutti_comm *with = in_time(comm, "barrier");
    if (tutti_rank(comm) == 0)
        FAULT_CALL(self, comm, tutti_recv(with, &x, 1, TUTTI_F32, TUTTI_ANY_SOURCE, TAG, NULL));
    else
        FAULT_CALL(self, comm, tutti_barrier(with));
}

static void wait_for_started(tutti_comm *comm, struct fault_rank *self)
{
    float x;
    tutti_op op;
    tutti_comm *with = in_time(comm, "barrier");
    if (tutti_rank(comm) == 0) {
        FAULT_CALL(self, comm, tutti_recv(with, &x, 1, TUTTI_F32, 1, TAG, NULL));
    } else {
        CHECK(tutti_barrier_start(with, &op) == TUTTI_OK);
        FAULT_CALL(self, comm, tutti_wait(op));
    }
}

static void ask_for_mesh_comm(tutti_comm *comm, struct fault_rank *self)
{
    static const char *const names[] = {"x"};
    int sizes[] = {tutti_size(comm)};
    tutti_mesh *mesh = NULL;
    tutti_comm *row;
    CHECK(tutti_mesh_create(comm, names, sizes, 1, &mesh) == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == 0) {
        comm->world->options.deadline_ms = SOON_MS;
        FAULT_CALL(self, comm, tutti_mesh_comm(mesh, "x", &row));
        atomic_store(&self->mark, 1);
    } else {
        fault_await_mark(0, 1); /* it does something else meanwhile */
    }
    tutti_mesh_free(mesh);
}

/* Rank 0 leaves with a message that rank 1 does not receive: that one asks, again and again, for another one, or for one of its
 * own to be received, or sends more small ones than there is room for. Or rank 0 leaves with a barrier that it alone has
 * started. */
enum { POLLS, POLLS_ANY, PROBES, SENDS, SENDS_SMALL, POLLS_BESIDE_BARRIER, POLLINGS };
static int polling;

static tutti_status leave_behind(tutti_comm *comm, float *x)
{
    tutti_op op;
    tutti_status status = polling == POLLS_BESIDE_BARRIER
                              ? tutti_barrier_start(comm, &op)
                              : tutti_send_start(comm, x, LARGE, TUTTI_F32, 1, TAG + 1, &op);
    return status == TUTTI_OK ? tutti_drop(op) : status;
}

static tutti_status send_one_more(tutti_comm *comm)
{
    char x[SMALL] = {0};
    tutti_status status = tutti_send(comm, x, SMALL, TUTTI_U8, 0, TAG);
    return status == TUTTI_OK ? TUTTI_IN_PROGRESS : status;
}

static tutti_status poll_once(tutti_comm *comm, tutti_op op)
{
    tutti_message message;
    if (polling == SENDS_SMALL) return send_one_more(comm);
    return polling == PROBES ? tutti_try_probe(comm, 0, TAG, &message) : tutti_wait_for(op, 2);
}

static tutti_status start_other(tutti_comm *comm, float *x, tutti_op *op)
{
    int source = polling == POLLS_ANY ? TUTTI_ANY_SOURCE : 0;
    if (polling == PROBES || polling == SENDS_SMALL) return TUTTI_OK;
    if (polling == SENDS) return tutti_send_start(comm, x, LARGE, TUTTI_F32, 0, TAG, op);
    return tutti_recv_start(comm, x, 1, TUTTI_F32, source, TAG, NULL, op);
}

static void leave_with_send(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(LARGE, sizeof *x);
    int64_t until = fault_now_ns() + LATE_MS * INT64_C(1000000);
    tutti_comm *part;
    tutti_op op = {0};
    CHECK(tutti_comm_duplicate(comm, &part) == TUTTI_OK);
    if (tutti_rank(comm) == 0) {
        CHECK(leave_behind(part, x) == TUTTI_OK);
    } else {
        tutti_status status = TUTTI_IN_PROGRESS;
        CHECK(start_other(part, x, &op) == TUTTI_OK);
        self->began_ns = fault_now_ns();
        while (status == TUTTI_IN_PROGRESS && fault_now_ns() < until) status = poll_once(part, op);
        fault_did(self, part, __LINE__, status);
        if (polling == PROBES) CHECK(tutti_recv(part, x, LARGE, TUTTI_F32, 0, TAG + 1, NULL) == TUTTI_OK);
    }
    FAULT_CALL(self, comm, tutti_comm_free(part));
    free(x);
}

static void run_world(fault_body *body, int size, bool processes, const char *does)
{
    struct fault_world world = {.size = size,
                                .processes = processes,
                                .body = body,
                                .settings = {over_tcp ? "TUTTI_TRANSPORT=tcp" : "TUTTI_TRANSPORT=shm"}};
    fault_title("%s; %d %s, %s", does, size, processes ? "processes" : "threads", over_tcp ? "tcp" : "memory");
    fault_run(&world);
}

/* Both know at once, whoever of them finds it. */
static void run_at_once(fault_body *body, bool processes, const char *does, const char *other_does, const char *advice)
{
    char text[2][128];
    snprintf(text[0], sizeof text[0], "for rank 1, which waits for rank 0 in %s; %s", other_does, advice);
    snprintf(text[1], sizeof text[1], "for rank 0, which waits for rank 1 in %s; ", does);
    run_world(body, 2, processes, does);
    for (int rank = 0; rank < 2; rank++) {
        const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
        CHECK_THAT(step->done && step->status == TUTTI_ERR_MISMATCH &&
                       (fault_has(step, "%s", text[0]) || fault_has(step, "%s", text[1])),
                   "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
    }
}

static void run_around(fault_body *body, int size, bool processes, const char *does)
{
    run_world(body, size, processes, does);
    for (int rank = 0; rank < size; rank++) {
        const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
        CHECK_THAT(step->done && step->status == TUTTI_ERR_MISMATCH && fault_has(step, ", which waits for rank ") &&
                       fault_has(step, " with tag 7, and so on in a round; "),
                   "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
    }
}

static void run(fault_body *body, int size, bool processes, const char *does, const char *other_does,
                const char *advice)
{
    run_world(body, size, processes, does);
    for (int rank = 0; rank < size; rank++) {
        const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
        if (rank > 0 && !step->done) continue;
        CHECK_THAT(step->status == TUTTI_ERR_TIMEOUT && fault_has(step, "rank 0 has waited ") &&
                       fault_has(step, "%s", does) && fault_has(step, "%s", other_does) &&
                       fault_has(step, "its deadline of %d ms passed; %s", SOON_MS, advice),
                   "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
    }
}

static void run_leaving(bool processes)
{
    static const char *const ways[] = {"who leaves has not sent it", "likewise, from any rank",
                                       "likewise, a probe",          "who leaves does not receive it",
                                       "likewise, small ones",       "who leaves has only begun a barrier"};
    for (polling = 0; polling < POLLINGS; polling++) {
        run_world(leave_with_send, 2, processes, ways[polling]);
        const struct fault_step *polled = &fault_shared->ranks[1].steps[0], *freed = &fault_shared->ranks[0].steps[0];
        CHECK_THAT(polled->status == TUTTI_ERR_MISMATCH &&
                       (fault_has(polled, "has left and sent no such message") || polling != POLLS),
                   "%s: %s", tutti_status_name(polled->status), polled->error.text);
        fault_time("a message that is not received: until who sent it has left", freed->ended_ns - freed->began_ns,
                   LEAVE_MS);
    }
}

static void run_all(bool processes)
{
    run_leaving(processes);
    run_at_once(send_to_each_other, processes, "send with tag 7", "send with tag 7", "is there a receive for it?");
    run_at_once(send_with_other_tag, processes, "send with tag 8", "recv with tag 7", "is there a receive for it?");
    run_at_once(receive_from_each_other, processes, "recv with tag 7", "recv with tag 7", "is there a send for it");
    run_at_once(exchange_by_other_tags, processes, "sendrecv with tag 7", "sendrecv with tag 7",
                "are there such messages on the other side, with their tags?");
    run_around(send_around, 3, processes, "send");
    run_around(send_around, 4, processes, "send");
    run_around(receive_around, 5, processes, "recv");
    run(wait_for_receive, 2, processes, " s in recv with tag 7 at ", "waits in recv for rank 0",
        "is there a send for it");
    run(receive_from_any, over_tcp ? 2 : 3, processes, "for any rank; ",
        over_tcp ? "rank 1's last call was #1 barrier at" : "; rank 2's last call was #1 barrier at",
        "is there a send for it");
    run(wait_for_started, 2, processes, " s in recv with tag 7 at ", "rank 1's last call was #1 barrier at",
        "is there a send for it");
    run(ask_for_mesh_comm, 2, processes, "\"mesh comm along x\" for rank 1; ",
        over_tcp ? "has not been heard of in a collective on this comm" : "has called no collective on this comm yet",
        "all ranks of the comm have to call it");
}

int main(void)
{
    fault_begin(55);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
