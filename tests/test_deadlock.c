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

enum { SOON_MS = 300, LATE_MS = 60000, LEAVE_MS = 1000, LARGE = 300000, SMALL = 1000, TAG = 7 };

static bool over_tcp;

/* Whether it is known of the rank that its wait, or else its last call, has these words. Over tcp a rank is told of a wait when it
 * asks, out of one of its own. */
static bool is_seen_in(tutti_comm *comm, int rank, const char *words)
{
    char doing[256];
    tutti_message message;
    struct tti_wait_record record;
    if (tutti_try_probe(comm, TUTTI_ANY_SOURCE, TAG + 1, &message) != TUTTI_IN_PROGRESS)
        return false; /* hears others */
    comm->peers->describe(comm, rank, doing, sizeof doing);
    comm->peers->read_wait(comm, rank, &record);
    return strstr(doing, words) != NULL || (record.doing == TTI_WAITS && strstr(record.what, words) != NULL) ||
           (over_tcp && strstr(words, "barrier") == NULL);
}

/* The others wait long, so that it is rank 0 who tells, once these are seen to wait. */
static tutti_comm *in_time(tutti_comm *comm, const char *others)
{
    int64_t until = fault_now_ns() + LATE_MS * INT64_C(1000000);
    if (tutti_rank(comm) != 0) return tutti_within(comm, LATE_MS);
    for (int rank = 1; rank < tutti_size(comm) && fault_now_ns() < until;)
        if (is_seen_in(comm, rank, others)) rank++;
    CHECK(fault_now_ns() < until);
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
    tutti_comm *with = in_time(comm, "recv");
    if (tutti_rank(comm) == 0) {
        CHECK(tutti_recv_start(with, &x, 1, TUTTI_F32, 1, TAG, NULL, &op) == TUTTI_OK);
        FAULT_CALL(self, comm, tutti_wait(op));
    } else {
        FAULT_CALL(self, comm, tutti_recv(with, &x, 1, TUTTI_F32, 0, TAG, NULL));
    }
}

/* Rank 0 waits for any rank, all of which wait for it. */
static void receive_from_any(tutti_comm *comm, struct fault_rank *self)
{
    float x;
    if (tutti_rank(comm) == 0)
        FAULT_CALL(self, comm, tutti_recv(comm, &x, 1, TUTTI_F32, TUTTI_ANY_SOURCE, TAG, NULL));
    else
        FAULT_CALL(self, comm, tutti_barrier(comm));
}

/* The same, but one of them only looks into its barrier. */
static void receive_from_any_late(tutti_comm *comm, struct fault_rank *self)
{
    float x;
    tutti_op op;
    tutti_comm *with = in_time(comm, "barrier");
    if (tutti_rank(comm) == 0) {
        FAULT_CALL(self, comm, tutti_recv(with, &x, 1, TUTTI_F32, TUTTI_ANY_SOURCE, TAG, NULL));
    } else {
        CHECK(tutti_barrier_start(with, &op) == TUTTI_OK);
        FAULT_CALL(self, comm, tutti_wait(op));
    }
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
    check_title("%s; %d %s, %s", does, size, processes ? "processes" : "threads", over_tcp ? "tcp" : "memory");
    fault_run(&world);
}

static void check_told(int rank, const char *does, const char *other_does, const char *advice)
{
    const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
    CHECK_THAT(step->done && step->status == TUTTI_ERR_MISMATCH && fault_has(step, "rank 0 waits in %s at ", does) &&
                   fault_has(step, "%s at ", other_does) && fault_has(step, ": none of them can go on; %s", advice),
               "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
    fault_time("ranks that wait for each other: until the error", step->ended_ns - step->began_ns, LEAVE_MS);
}

/* All know at once, whoever of them finds it. */
static void run_at_once(fault_body *body, int size, bool processes, const char *does, const char *other_does,
                        const char *advice)
{
    run_world(body, size, processes, does);
    for (int rank = 0; rank < size; rank++) check_told(rank, does, other_does, advice);
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
    run_at_once(send_to_each_other, 2, processes, "send with tag 7", "rank 1 waits in send with tag 7",
                "is there a receive for it?");
    run_at_once(send_with_other_tag, 2, processes, "send with tag 8", "rank 1 waits in recv with tag 7", "is there a ");
    run_at_once(receive_from_each_other, 2, processes, "recv with tag 7", "rank 1 waits in recv with tag 7",
                "is there a send for it");
    run_at_once(exchange_by_other_tags, 2, processes, "sendrecv (recv with tag 7)",
                "rank 1 waits in sendrecv (recv with tag 7)",
                "are there such messages on the other side, with their tags?");
    run_at_once(send_around, 3, processes, "send with tag 7", "rank 1 waits in send with tag 7",
                "is there a receive for it?");
    run_at_once(send_around, 4, processes, "send with tag 7", "rank 1 waits in send with tag 7",
                "is there a receive for it?");
    run_at_once(receive_around, 5, processes, "sendrecv (recv with tag 7)", "rank 1 waits in recv with tag 7", "");
    run_at_once(receive_from_any, 3, processes, "recv with tag 7", " waits in #1 barrier", "is ");
    run(wait_for_receive, 2, processes, " s in recv with tag 7 at ", "; rank 1 waits in recv with tag 7 at ",
        "is there a send for it");
    run(receive_from_any_late, 2, processes, "for any rank; ", "; rank 1 waits in #1 barrier at ",
        "is there a send for it");
    run(wait_for_started, 2, processes, " s in recv with tag 7 at ", "; rank 1 waits in #1 barrier at ",
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
