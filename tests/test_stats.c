/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Statistics of a comm: what was called, whom was waited for and how long, what it holds; over threads, processes and tcp.
 */
#include "fault.h"

#include <string.h>

enum { LATE_MS = 40, LATEST_MS = 3000, LEAST_MS = 10, COUNT = 1000, ROUNDS = 5 };
#define MS INT64_C(1000000)

static bool over_tcp;

static tutti_stats stats_of(tutti_comm *comm)
{
    tutti_stats stats = {.struct_size = sizeof stats};
    CHECK(tutti_comm_stats(comm, &stats) == TUTTI_OK);
    return stats;
}

static void check_counts(tutti_comm *comm)
{
    float in[COUNT] = {0}, out[COUNT];
    tutti_op op;
    tutti_stats before = stats_of(comm);
    CHECK(tutti_all_reduce(comm, in, out, COUNT, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_all_reduce_start(comm, in, out, COUNT, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_OK);
    CHECK(tutti_all_reduce_start(tutti_prepared(comm), in, out, COUNT, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    for (int i = 0; i < 3; i++) CHECK(tutti_start(op) == TUTTI_OK && tutti_wait(op) == TUTTI_OK);
    CHECK(tutti_drop(op) == TUTTI_OK);
    tutti_stats after = stats_of(comm);
    CHECK(after.operations == before.operations + 5 && after.started == before.started + 4);
    CHECK(after.bytes == before.bytes + 5 * 2 * sizeof in);
    CHECK(after.memory_bytes >= sizeof in && after.memory_bytes < 64 << 20);
}

/* What pieces are packed into is made for the first call that has some, and kept. */
static void check_memory(tutti_comm *comm)
{
    float x[8] = {0};
    tutti_piece pieces[] = {{x, x, 3}, {x + 4, x + 4, 2}};
    tutti_stats before = stats_of(comm);
    CHECK(tutti_all_reduce_many(comm, pieces, 2, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    tutti_stats first = stats_of(comm);
    CHECK(tutti_all_reduce_many(comm, pieces, 2, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(first.memory_bytes > before.memory_bytes + (64 << 10) &&
          first.memory_bytes < before.memory_bytes + (64 << 20));
    CHECK(stats_of(comm).memory_bytes == first.memory_bytes);
}

/* Each rank sends to the next, with and without a handle or prepared, small and large, and to itself; what is only looked
 * for, or taken back, is not counted. */
static void check_messages(tutti_comm *comm)
{
    enum { LARGE = 100000 };
    static _Thread_local char in[LARGE], out[LARGE];
    int rank = tutti_rank(comm), size = tutti_size(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
    tutti_op sent, got, idle;
    tutti_message message;
    tutti_stats before = stats_of(comm);
    CHECK(tutti_sendrecv(comm, in, 8, to, 0, out, 8, from, 0, TUTTI_U8, NULL) == TUTTI_OK);
    CHECK(tutti_send_start(comm, in, LARGE, TUTTI_U8, to, 1, &sent) == TUTTI_OK);
    CHECK(tutti_recv_start(comm, out, LARGE, TUTTI_U8, TUTTI_ANY_SOURCE, 1, NULL, &got) == TUTTI_OK);
    CHECK(tutti_wait(sent) == TUTTI_OK && tutti_wait(got) == TUTTI_OK);
    CHECK(tutti_send(comm, in, 4, TUTTI_U8, to, 4) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_recv(comm, out, 4, TUTTI_U8, from, 4, NULL) == TUTTI_OK); /* it has come by then */
    CHECK(tutti_send(comm, in, 24, TUTTI_U8, rank, 2) == TUTTI_OK);
    CHECK(tutti_probe(comm, rank, 2, &message) == TUTTI_OK);
    CHECK(tutti_recv(comm, out, 32, TUTTI_U8, rank, 2, NULL) == TUTTI_OK);
    CHECK(tutti_recv_start(comm, out, 8, TUTTI_U8, from, 3, NULL, &idle) == TUTTI_OK);
    CHECK(tutti_cancel(idle) == TUTTI_OK && tutti_wait(idle) == TUTTI_ERR_CANCELLED);
    CHECK(tutti_sendrecv_start(tutti_prepared(comm), in, 2, to, 5, out, 2, from, 5, TUTTI_U8, NULL, &got) == TUTTI_OK);
    CHECK(tutti_start(got) == TUTTI_OK && tutti_wait(got) == TUTTI_OK && tutti_drop(got) == TUTTI_OK);
    tutti_stats after = stats_of(comm);
    CHECK_THAT(after.sent == before.sent + 5 && after.received == before.received + 5, "%llu sent, %llu received",
               (unsigned long long)after.sent, (unsigned long long)after.received);
    CHECK(after.sent_bytes == before.sent_bytes + 8 + LARGE + 4 + 24 + 2);
    CHECK(after.received_bytes == before.received_bytes + 8 + LARGE + 4 + 24 + 2);
    CHECK(after.operations == before.operations + 1);
}

/* Everyone waits for the last rank, which comes late. Whether this rank has waited long enough for that to be seen. */
static bool wait_for_last(tutti_comm *comm, struct fault_rank *self, int round, int64_t late_ms)
{
    int rank = tutti_rank(comm), last = tutti_size(comm) - 1;
    int64_t waited[FAULT_RANKS] = {0}, all = 0;
    tutti_stats before = stats_of(comm);
    int64_t began = fault_now_ns();
    self->mark = round;
    for (int i = 0; i < last && rank == last; i++) CHECK(fault_await_mark(i, round));
    if (rank == last) fault_sleep_ms(late_ms);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    int64_t took = fault_now_ns() - began;
    tutti_stats after = stats_of(comm);
    CHECK(tutti_comm_waits(comm, waited) == TUTTI_OK);
    for (int i = 0; i <= last; i++) all += waited[i];
    CHECK(waited[rank] == 0 && all <= after.waited_ns);
    CHECK(after.waited_ns - before.waited_ns <= took);
    CHECK(after.skew_max_ns >= after.skew_mean_ns && after.skew_mean_ns >= 0);
    return rank == last || (after.waited_ns - before.waited_ns >= LEAST_MS * MS && after.waits > before.waits);
}

/* A machine that is loaded may hold up the others as well: then the last one comes later still. */
static void check_waits(tutti_comm *comm, struct fault_rank *self)
{
    int32_t seen = 0;
    for (int i = 0; i < ROUNDS; i++) CHECK(tutti_barrier(comm) == TUTTI_OK);
    for (int late_ms = LATE_MS, round = 1; seen == 0 && late_ms < LATEST_MS; late_ms *= 4, round++) {
        seen = wait_for_last(comm, self, round, late_ms);
        CHECK(tutti_all_reduce(comm, &seen, &seen, 1, TUTTI_I32, TUTTI_MIN) == TUTTI_OK);
    }
    CHECK_THAT(seen != 0, "%lld", (long long)stats_of(comm).waited_ns);
}

/* It was the last rank that they waited for. Of three over tcp, one may have waited for another that did. */
static void check_blame(tutti_comm *comm)
{
    int64_t waited[FAULT_RANKS];
    int last = tutti_size(comm) - 1;
    if (tutti_rank(comm) == last || (over_tcp && last > 1)) return;
    CHECK(tutti_comm_waits(comm, waited) == TUTTI_OK);
    CHECK_THAT(waited[last] >= LEAST_MS * MS, "%lld ns", (long long)waited[last]);
    CHECK(stats_of(comm).skew_max_ns >= LEAST_MS * MS);
}

/* Who waits for a message waits for what a rank sends, not for that rank to come to a collective: that is no skew. Whether
 * rank 0 has waited long enough for it to be seen. */
static bool wait_for_message(tutti_comm *comm, struct fault_rank *self, int round, int64_t late_ms)
{
    int32_t x = 0;
    tutti_stats before = stats_of(comm);
    if (tutti_rank(comm) == 0) {
        self->mark = round;
        CHECK(tutti_recv(comm, &x, 1, TUTTI_I32, 1, 0, NULL) == TUTTI_OK);
    } else {
        CHECK(fault_await_mark(0, round));
        fault_sleep_ms(late_ms);
        CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, 0) == TUTTI_OK);
    }
    tutti_stats after = stats_of(comm);
    CHECK_THAT(after.skew_max_ns == 0 && after.skew_mean_ns == 0, "%lld ns", (long long)after.skew_max_ns);
    return tutti_rank(comm) == 1 || after.waited_ns - before.waited_ns >= LEAST_MS * MS;
}

static void check_skew(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *other;
    int32_t seen = 0;
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    for (int late_ms = LATE_MS, round = 101; seen == 0 && late_ms < LATEST_MS; late_ms *= 4, round++) {
        seen = wait_for_message(other, self, round, late_ms);
        CHECK(tutti_all_reduce(comm, &seen, &seen, 1, TUTTI_I32, TUTTI_MIN) == TUTTI_OK);
    }
    CHECK_THAT(seen != 0, "%lld", (long long)stats_of(other).waited_ns);
    CHECK(tutti_comm_free(other) == TUTTI_OK);
}

static void use(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *other;
    check_counts(comm);
    check_memory(comm);
    check_messages(comm);
    check_waits(comm, self);
    check_blame(comm);
    if (tutti_size(comm) == 2) check_skew(comm, self);
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    CHECK(stats_of(other).operations == 0 && stats_of(other).waited_ns == 0);
    check_counts(other);
    CHECK(tutti_comm_free(other) == TUTTI_OK);
}

static void check_sizes(tutti_comm *comm, struct fault_rank *self)
{
    struct {
        tutti_stats known;
        char more[16];
    } larger;
    (void)self;
    memset(&larger, 7, sizeof larger);
    larger.known.struct_size = sizeof larger;
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_comm_stats(comm, &larger.known) == TUTTI_OK && larger.more[0] == 0 && larger.known.operations == 1);
    tutti_stats smaller;
    memset(&smaller, 7, sizeof smaller);
    smaller.struct_size = offsetof(tutti_stats, started);
    CHECK(tutti_comm_stats(comm, &smaller) == TUTTI_OK && smaller.operations == 1);
    CHECK(smaller.started == UINT64_C(0x0707070707070707));
    CHECK(tutti_comm_stats(comm, NULL) == TUTTI_ERR_ARGUMENT && tutti_comm_waits(comm, NULL) == TUTTI_ERR_ARGUMENT);
    smaller.struct_size = 0;
    CHECK(tutti_comm_stats(comm, &smaller) == TUTTI_ERR_ARGUMENT);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK(error != NULL && strstr(error->text, "sizeof(tutti_stats)") != NULL);
    CHECK(tutti_comm_stats(NULL, &smaller) == TUTTI_ERR_ARGUMENT);
}

int main(void)
{
    fault_begin(50);
    static const char *const transports[] = {"TUTTI_TRANSPORT=auto", "TUTTI_TRANSPORT=tcp"};
    for (int kind = 0; kind < 2; kind++) {
        for (int size = 2; size <= 3; size++) {
            struct fault_world world = {
                .size = size, .processes = size == 3, .body = use, .settings = {transports[kind]}};
            over_tcp = kind == 1;
            check_title("%s, %d ranks", transports[kind], size);
            CHECK(fault_run(&world));
        }
    }
    struct fault_world world = {.size = 2, .body = check_sizes};
    check_title("sizes of the struct");
    CHECK(fault_run(&world));
    return fault_end();
}
