/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Ops: started, waited for, tested, cancelled, dropped, prepared; in order on one comm, with blocking calls between them;
 * taken forward by whoever waits or by the service thread.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { COUNT = 1000, MANY = 200, LARGE = 1 << 18 };

static float *make(tutti_comm *comm, size_t count)
{
    float *x = tutti_alloc(comm, count * sizeof *x);
    CHECK(x != NULL);
    return x;
}

static void fill(float *x, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++) x[i] = (float)((int)(i % 100) + rank);
}

static bool is_sum(const float *x, size_t count, int size)
{
    for (size_t i = 0; i < count; i++)
        if (x[i] != (float)(size * (int)(i % 100) + size * (size - 1) / 2)) return false;
    return true;
}

/* ---- In order ---------------------------------------------------------------------------------------------------- */

/* A handle that is void stays so when the next op has its place: it does not reach that one. */
static void check_void_beside(tutti_comm *comm, tutti_op old, const float *x, float *y, size_t count)
{
    tutti_op op;
    CHECK(tutti_all_reduce_start(comm, x, y, count, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK && op.id != old.id);
    CHECK(tutti_wait(old) == TUTTI_ERR_HANDLE && tutti_test(old) == TUTTI_ERR_HANDLE);
    CHECK(tutti_cancel(old) == TUTTI_ERR_HANDLE && tutti_drop(old) == TUTTI_ERR_HANDLE);
    CHECK(tutti_wait(op) == TUTTI_OK && is_sum(y, count, tutti_size(comm)));
}

static void start_and_wait(tutti_comm *comm, struct fault_rank *self)
{
    static const size_t counts[] = {0, 1, 14, COUNT, LARGE};
    int rank = tutti_rank(comm), size = tutti_size(comm);
    (void)self;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        float *x = make(comm, counts[k]), *y = make(comm, counts[k]);
        fill(x, counts[k], rank);
        tutti_op op = {7};
        CHECK(tutti_all_reduce_start(comm, x, y, counts[k], TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
        CHECK(tutti_wait(op) == TUTTI_OK && tutti_comm_error(comm) == NULL);
        CHECK(is_sum(y, counts[k], size));
        CHECK(tutti_wait(op) == TUTTI_ERR_HANDLE && tutti_test(op) == TUTTI_ERR_HANDLE);
        CHECK(tutti_cancel(op) == TUTTI_ERR_HANDLE && tutti_drop(op) == TUTTI_ERR_HANDLE);
        check_void_beside(comm, op, x, y, counts[k]);
        tutti_free(comm, x);
        tutti_free(comm, y);
    }
}

/* Many in flight, blocking calls behind them, waited for in any order. */
static void many_at_once(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    tutti_op ops[MANY];
    float *x = make(comm, MANY * COUNT);
    (void)self;
    for (int i = 0; i < MANY; i++) {
        fill(x + i * COUNT, COUNT, rank);
        CHECK(tutti_all_reduce_start(comm, x + i * COUNT, x + i * COUNT, COUNT, TUTTI_F32, TUTTI_SUM, &ops[i]) ==
              TUTTI_OK);
    }
    int32_t one = 1, sum = 0;
    CHECK(tutti_all_reduce(comm, &one, &sum, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_OK && sum == size);
    /* the blocking call went behind them, so they have all ended */
    for (int i = 0; i < MANY; i++) CHECK(tutti_test(ops[(i * 7 + 3) % MANY]) == TUTTI_OK);
    CHECK(is_sum(x, COUNT, size) && is_sum(x + (MANY - 1) * COUNT, COUNT, size));
    for (int i = 0; i < MANY; i++) {
        fill(x + i * COUNT, COUNT, rank);
        tutti_all_reduce_start(comm, x + i * COUNT, x + i * COUNT, COUNT, TUTTI_F32, TUTTI_SUM, &ops[i]);
    }
    for (int left = MANY; left > 0; left--) {
        size_t index = MANY;
        CHECK(tutti_wait_any(ops, MANY, 10000, &index) == TUTTI_OK);
        if (!CHECK(index < MANY)) return;
        CHECK(is_sum(x + index * COUNT, COUNT, size));
        ops[index].id = 0;
    }
    size_t index = 0;
    CHECK(tutti_wait_any(ops, MANY, 10, &index) == TUTTI_OK && index == MANY);
    CHECK(tutti_wait_all(ops, MANY) == TUTTI_OK);
}

static void every_kind(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), k = 0;
    size_t n = (size_t)size, counts[FAULT_RANKS], zeros[FAULT_RANKS] = {0};
    int32_t *x = tutti_alloc(comm, 64 * n * sizeof *x), *y = tutti_alloc(comm, 16 * 64 * n * sizeof *y), *out[16];
    tutti_op ops[16];
    (void)self;
    for (int i = 0; i < size; i++) counts[i] = 2;
    for (size_t i = 0; i < 64 * n; i++) x[i] = rank + 1;
    for (int i = 0; i < 16; i++) out[i] = y + 64 * n * (size_t)i;
    tutti_status bad = TUTTI_OK;
#define START(call) bad |= (call), k++
    START(tutti_barrier_start(comm, &ops[k]));
    START(tutti_all_reduce_start(comm, x, out[k], 3, TUTTI_I32, TUTTI_SUM, &ops[k]));
    START(tutti_reduce_start(comm, x, out[k], 3, TUTTI_I32, TUTTI_MAX, size - 1, &ops[k]));
    START(tutti_broadcast_start(comm, x, out[k], 3, TUTTI_I32, size - 1, &ops[k]));
    START(tutti_all_gather_start(comm, x, out[k], 2, TUTTI_I32, &ops[k]));
    START(tutti_gather_start(comm, x, out[k], 2, TUTTI_I32, 0, &ops[k]));
    START(tutti_scatter_start(comm, x, out[k], 2, TUTTI_I32, 0, &ops[k]));
    START(tutti_reduce_scatter_start(comm, x, out[k], 2, TUTTI_I32, TUTTI_SUM, &ops[k]));
    START(tutti_all_to_all_start(comm, x, out[k], 2, TUTTI_I32, &ops[k]));
    START(tutti_all_gather_v_start(comm, x, out[k], counts, NULL, TUTTI_I32, &ops[k]));
    START(tutti_gather_v_start(comm, x, 2, out[k], counts, NULL, TUTTI_I32, 0, &ops[k]));
    START(tutti_scatter_v_start(comm, x, counts, NULL, out[k], 2, TUTTI_I32, 0, &ops[k]));
    START(tutti_reduce_scatter_v_start(comm, x, out[k], counts, TUTTI_I32, TUTTI_SUM, &ops[k]));
    START(tutti_all_to_all_v_start(comm, x, counts, NULL, out[k], counts, NULL, TUTTI_I32, &ops[k]));
    START(tutti_scan_start(comm, x, out[k], 3, TUTTI_I32, TUTTI_SUM, &ops[k]));
    START(tutti_exscan_start(comm, x, out[k], 3, TUTTI_I32, TUTTI_SUM, &ops[k]));
#undef START
    memcpy(counts, zeros, sizeof counts); /* they are the caller's again */
    CHECK(bad == TUTTI_OK && tutti_wait_all(ops, 16) == TUTTI_OK);
    int all = size * (size + 1) / 2, me = rank + 1;
    CHECK(out[1][2] == all && (rank != size - 1 || out[2][0] == size) && out[3][1] == size);
    CHECK(out[4][2 * n - 1] == size && (rank != 0 || out[5][2 * n - 1] == size) && out[6][1] == 1 && out[7][1] == all);
    CHECK(out[8][2 * n - 1] == size && out[9][2 * n - 1] == size && (rank != 0 || out[10][2 * n - 1] == size));
    CHECK(out[11][1] == 1 && out[12][1] == all && out[13][2 * n - 1] == size);
    CHECK(out[14][2] == me * (me + 1) / 2 && (rank == 0 || out[15][2] == rank * (rank + 1) / 2));
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/* Many in flight, large and small, posted in another order than they are sent, beside collectives and blocking messages. */
static void messages(tutti_comm *comm, struct fault_rank *self)
{
    enum { LETTERS = 20 };
    int rank = tutti_rank(comm), size = tutti_size(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
    float *out = make(comm, LETTERS * COUNT * 40), *in = calloc(LETTERS * COUNT * 40, sizeof *in);
    tutti_op ops[2 * LETTERS + 1];
    tutti_message got[LETTERS];
    (void)self;
    for (size_t i = 0; i < LETTERS * COUNT * 40; i++) in[i] = (float)(rank + (int)(i % 1000));
    for (int i = 0; i < LETTERS; i++) { /* the odd ones are large */
        size_t count = i % 2 == 0 ? 10 : COUNT * 40;
        CHECK(tutti_recv_start(comm, out + i * COUNT * 40, count, TUTTI_F32, i % 3 == 0 ? TUTTI_ANY_SOURCE : from, i,
                               &got[i], &ops[i]) == TUTTI_OK);
    }
    for (int i = LETTERS; i-- > 0;) {
        size_t count = i % 2 == 0 ? 10 : COUNT * 40;
        CHECK(tutti_send_start(comm, in + i * COUNT * 40, count, TUTTI_F32, to, i, &ops[LETTERS + i]) == TUTTI_OK);
    }
    CHECK(tutti_barrier_start(comm, &ops[2 * LETTERS]) == TUTTI_OK);
    float x = (float)rank, y = -1;
    CHECK(tutti_sendrecv(comm, &x, 1, to, 77, &y, 1, from, 77, TUTTI_F32, NULL) == TUTTI_OK && y == (float)from);
    CHECK(tutti_wait_all(ops, 2 * LETTERS + 1) == TUTTI_OK);
    for (int i = 0; i < LETTERS; i++) {
        size_t count = i % 2 == 0 ? 10 : COUNT * 40, last = (size_t)i * COUNT * 40 + count - 1;
        CHECK(got[i].source == from && got[i].tag == i && got[i].count == count &&
              out[last] == (float)(from + (int)(last % 1000)));
    }
    /* the first failure counts, whatever comes after it; a message that is too long harms nobody else */
    CHECK(tutti_recv_start(comm, out, 1, TUTTI_F32, from, 50, NULL, &ops[0]) == TUTTI_OK &&
          tutti_recv_start(comm, out, 1, TUTTI_F32, from, 51, NULL, &ops[1]) == TUTTI_OK);
    CHECK(tutti_send(comm, in, 2, TUTTI_F32, to, 50) == TUTTI_OK &&
          tutti_send(comm, in, 1, TUTTI_F32, to, 51) == TUTTI_OK);
    CHECK(tutti_wait_all(ops, 2) == TUTTI_ERR_TRUNCATED && tutti_wait(ops[1]) == TUTTI_ERR_HANDLE);
    CHECK(tutti_recv(comm, out, 2, TUTTI_F32, from, 50, NULL) == TUTTI_OK);
    size_t received = 0;
    CHECK(tutti_sendrecv_start(tutti_prepared(comm), &x, 1, to, 5, &y, 1, from, 5, TUTTI_F32, &received, &ops[0]) ==
          TUTTI_OK);
    for (int round = 0; round < 10; round++) {
        y = -1;
        CHECK(tutti_start(ops[0]) == TUTTI_OK && tutti_wait(ops[0]) == TUTTI_OK && y == (float)from && received == 1);
    }
    CHECK(tutti_drop(ops[0]) == TUTTI_OK);
    /* one that nobody sends can be cancelled, and the comm stays whole */
    CHECK(tutti_recv_start(comm, out, 1, TUTTI_F32, from, 99, NULL, &ops[0]) == TUTTI_OK);
    CHECK(tutti_wait_for(ops[0], 5) == TUTTI_IN_PROGRESS && tutti_cancel(ops[0]) == TUTTI_OK);
    CHECK(tutti_wait(ops[0]) == TUTTI_ERR_CANCELLED);
    CHECK(tutti_send_start(comm, in, 20, TUTTI_F32, to, 6, &ops[0]) == TUTTI_OK);
    CHECK(tutti_recv_start(comm, out, 10, TUTTI_F32, from, 6, NULL, &ops[1]) == TUTTI_OK);
    tutti_status status = tutti_wait(ops[1]);
    CHECK_THAT(status == TUTTI_ERR_TRUNCATED && strstr(tutti_comm_error(comm)->text, "20 elements") != NULL, "%s",
               tutti_status_name(status));
    CHECK(tutti_recv(comm, out, 20, TUTTI_F32, from, 6, NULL) == TUTTI_OK && tutti_wait(ops[0]) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    free(in);
}

/* To and from everyone, large and small, with one handle; the group's order does not matter. */
static tutti_status start_group(tutti_comm *comm, float *out, const float *in, size_t count, size_t *received,
                                tutti_op *op)
{
    int size = tutti_size(comm);
    tutti_status bad = tutti_group_begin(comm);
    for (int peer = 0; peer < size; peer++) {
        bad |= tutti_send(comm, in + (size_t)peer * count, count, TUTTI_F32, peer, peer);
        bad |= tutti_recv(comm, out + (size_t)peer * count, count, TUTTI_F32, peer, tutti_rank(comm), &received[peer]);
    }
    return bad != TUTTI_OK ? bad : tutti_group_end_start(comm, op);
}

static void groups(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
    size_t received[FAULT_RANKS], n = (size_t)size;
    float *in = make(comm, n * LARGE), *out = make(comm, n * LARGE);
    tutti_op op, behind;
    (void)self;
    for (int round = 0; round < 6; round++) {
        size_t count = round % 2 == 0 ? 10 : LARGE;
        for (size_t i = 0; i < n * count; i++) in[i] = (float)(rank * 1000 + round);
        CHECK(start_group(comm, out, in, count, received, &op) == TUTTI_OK);
        CHECK(tutti_barrier_start(comm, &behind) == TUTTI_OK);
        while (round == 2 && tutti_test(op) == TUTTI_IN_PROGRESS) continue;
        CHECK(tutti_wait(behind) == TUTTI_OK && (round == 2 || tutti_wait(op) == TUTTI_OK));
        for (int peer = 0; peer < size; peer++)
            CHECK(received[peer] == count && out[(size_t)(peer + 1) * count - 1] == (float)(peer * 1000 + round));
    }
    /* prepared, and none at all */
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_send(comm, in, 5, TUTTI_F32, to, 1) == TUTTI_OK);
    CHECK(tutti_recv(comm, out, 5, TUTTI_F32, from, 1, NULL) == TUTTI_OK);
    CHECK(tutti_group_end_start(tutti_prepared(comm), &op) == TUTTI_OK);
    for (int round = 0; round < 5; round++) {
        in[4] = (float)round;
        CHECK(tutti_start(op) == TUTTI_OK && tutti_wait(op) == TUTTI_OK && out[4] == (float)round);
        CHECK(tutti_barrier(comm) == TUTTI_OK);
    }
    CHECK(tutti_drop(op) == TUTTI_OK);
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_group_end_start(comm, &op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_OK);
}

/* What goes wrong in a group that was started. */
static void bad_groups(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
    float x[20] = {0}, y[20] = {0};
    tutti_op op = {7}, none = {7};
    (void)self;
    CHECK(tutti_group_end_start(comm, &op) == TUTTI_ERR_ARGUMENT && op.id == 0); /* none has begun */
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_send(comm, x, 1, TUTTI_F32, 99, 0) == TUTTI_ERR_RANK);
    CHECK(tutti_group_end_start(comm, &op) == TUTTI_ERR_RANK && op.id == 0);
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_group_end_start(comm, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_group_begin(comm) == TUTTI_OK); /* that one has ended */
    CHECK(tutti_send_start(comm, x, 1, TUTTI_F32, to, 0, &none) == TUTTI_ERR_ARGUMENT && none.id == 0);
    CHECK(tutti_group_end_start(comm, &op) == TUTTI_ERR_ARGUMENT);
    /* the second of its messages is too long for its buffer; the first one comes */
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_recv(comm, x, 1, TUTTI_F32, from, 1, NULL) == TUTTI_OK);
    CHECK(tutti_recv(comm, y, 3, TUTTI_F32, from, 2, NULL) == TUTTI_OK && tutti_group_end_start(comm, &op) == TUTTI_OK);
    float one = (float)rank, many[9] = {0};
    CHECK(tutti_send(comm, &one, 1, TUTTI_F32, to, 1) == TUTTI_OK);
    CHECK(tutti_send_start(comm, many, 9, TUTTI_F32, to, 2, &none) == TUTTI_OK);
    tutti_status status = tutti_wait(op);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_TRUNCATED && error != NULL &&
                   strstr(error->text, "call 2 of the group, recv from") && strstr(error->text, "9 elements"),
               "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    CHECK(x[0] == (float)from && tutti_recv(comm, y, 9, TUTTI_F32, from, 2, NULL) == TUTTI_OK);
    CHECK(tutti_wait(none) == TUTTI_OK);
    /* nobody sends these: they can be cancelled, and the comm stays whole */
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_recv(comm, x, 1, TUTTI_F32, from, 3, NULL) == TUTTI_OK);
    CHECK(tutti_recv(comm, y, 3, TUTTI_F32, from, 4, NULL) == TUTTI_OK && tutti_group_end_start(comm, &op) == TUTTI_OK);
    CHECK(tutti_wait_for(op, 5) == TUTTI_IN_PROGRESS && tutti_cancel(op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_ERR_CANCELLED && tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_recv(comm, x, 1, TUTTI_F32, from, 5, NULL) == TUTTI_OK);
    CHECK(tutti_group_end_start(comm, &op) == TUTTI_OK && tutti_drop(op) == TUTTI_OK); /* ended when leaving */
}

/* ---- Alone ------------------------------------------------------------------------------------------------------- */

/* Nobody waits: the service thread brings it to its end. */
static void by_service(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    float *x = make(comm, LARGE);
    (void)self;
    for (int round = 0; round < 20; round++) {
        size_t count = round % 2 == 0 ? LARGE : 10;
        fill(x, count, rank);
        tutti_op op;
        CHECK(tutti_all_reduce_start(comm, x, x, count, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
        int64_t until = fault_now_ns() + INT64_C(45000000000);
        bool ended = false;
        /* looks at the data alone: that nothing but the service thread takes the op forward is the point */
        const volatile float *last = &x[count - 1];
        while (!SANITIZED && !ended && fault_now_ns() < until)
            ended = *last != (float)((int)((count - 1) % 100) + rank);
        CHECK_THAT(ended || size == 1 || SANITIZED, "round %d: nobody took it forward", round);
        CHECK(tutti_wait(op) == TUTTI_OK && is_sum(x, count, size));
    }
}

static void drop_them(tutti_comm *comm, struct fault_rank *self)
{
    float *x = make(comm, MANY * COUNT);
    (void)self;
    for (int i = 0; i < MANY; i++) {
        tutti_op op;
        CHECK(tutti_all_reduce_start(comm, x + i * COUNT, x + i * COUNT, COUNT, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
        CHECK(tutti_drop(op) == TUTTI_OK && tutti_wait(op) == TUTTI_ERR_HANDLE);
    }
    /* leaving finishes them */
}

static void prepared(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    float *x = make(comm, COUNT), *y = make(comm, COUNT);
    tutti_op op;
    (void)self;
    CHECK(tutti_all_reduce_start(tutti_prepared(comm), x, y, COUNT, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    for (int round = 0; round < 50; round++) {
        fill(x, COUNT, rank);
        if (round == 7 && rank > 0) fault_meet(comm); /* until then it is in flight on rank 0 */
        CHECK(tutti_start(op) == TUTTI_OK);
        if (round == 7 && rank == 0) {
            CHECK(size == 1 ||
                  (tutti_start(op) == TUTTI_ERR_HANDLE && tutti_comm_error(comm)->status == TUTTI_ERR_HANDLE));
            fault_meet(comm);
        }
        if (round == 9) { /* it has ended, but nobody has waited for it */
            CHECK(tutti_barrier(comm) == TUTTI_OK);
            CHECK(tutti_start(op) == TUTTI_ERR_HANDLE);
        }
        CHECK(tutti_wait(op) == TUTTI_OK && is_sum(y, COUNT, size));
    }
    CHECK(tutti_wait(op) == TUTTI_OK); /* not started: nothing to wait for */
    tutti_op both[2] = {op};
    size_t index = 9;
    CHECK(tutti_barrier_start(tutti_prepared(comm), &both[1]) == TUTTI_OK && tutti_start(both[1]) == TUTTI_OK);
    CHECK(tutti_wait_any(both, 2, -1, &index) == TUTTI_OK && index == 1);
    CHECK(tutti_wait_any(both, 2, -1, &index) == TUTTI_OK && index == 2 && tutti_drop(both[1]) == TUTTI_OK);
    CHECK(tutti_drop(op) == TUTTI_OK && tutti_start(op) == TUTTI_ERR_HANDLE);
}

static void bad_handles(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1, y = 0;
    tutti_op op;
    size_t index;
    (void)self;
    CHECK(tutti_wait((tutti_op){0}) == TUTTI_ERR_HANDLE && tutti_wait((tutti_op){~UINT64_C(0)}) == TUTTI_ERR_HANDLE);
    CHECK(tutti_all_reduce_start(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_all_reduce_start(comm, NULL, &y, 1, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_ERR_ARGUMENT && op.id == 0);
    CHECK(tutti_all_reduce_start(NULL, &x, &y, 1, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_wait_any(NULL, 1, 0, &index) == TUTTI_ERR_ARGUMENT && tutti_wait_all(NULL, 1) == TUTTI_ERR_ARGUMENT);
    /* a refused start leaves the next call a blocking one */
    CHECK(tutti_all_reduce(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK && y == (float)tutti_size(comm));
    CHECK(tutti_all_reduce_start(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    CHECK(tutti_start(op) == TUTTI_ERR_HANDLE);
    CHECK(tutti_wait(op) == TUTTI_OK);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void timed_out_wait(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1, y = 0;
    tutti_op op;
    if (tutti_rank(comm) == 1) fault_await_mark(0, 1);
    CHECK(tutti_all_reduce_start(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    if (tutti_rank(comm) == 0) {
        CHECK(tutti_wait_for(op, 20) == TUTTI_IN_PROGRESS && tutti_test(op) == TUTTI_IN_PROGRESS);
        size_t index;
        CHECK(tutti_wait_any(&op, 1, 20, &index) == TUTTI_IN_PROGRESS);
        self->mark = 1;
    }
    CHECK(tutti_wait_for(op, INT64_MAX) == TUTTI_OK && y == (float)tutti_size(comm));
}

static void check_op_failed(tutti_comm *comm, tutti_op op, tutti_status expected, const char *words)
{
    tutti_status status = tutti_wait_for(op, 45000);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == expected && error != NULL && strstr(error->text, words) != NULL, "%s: %s",
               tutti_status_name(status), error == NULL ? "" : error->text);
    tutti_status next = tutti_barrier(comm);
    CHECK_THAT(next == TUTTI_ERR_BROKEN, "then %s", tutti_status_name(next));
}

static bool over_tcp;
static bool service_ends_it; /* nobody waits until it has ended */

static void deadline_passes(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1, y = 0;
    tutti_op op, behind;
    (void)self;
    if (tutti_rank(comm) == 1) { /* comes too late: what broke the comm is told here too */
        fault_await_mark(0, 1);
        tutti_status status = tutti_all_reduce(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM);
        /* over messages rank 0's contribution may have come before its end: a success that stands */
        if (over_tcp && status == TUTTI_OK) status = tutti_barrier(comm);
        CHECK(status == TUTTI_ERR_TIMEOUT);
        return;
    }
    CHECK(tutti_all_reduce_start(tutti_within(comm, 30), &x, &y, 1, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    CHECK(tutti_barrier_start(comm, &behind) == TUTTI_OK);
    if (service_ends_it) fault_sleep_ms(300);
    check_op_failed(comm, op, TUTTI_ERR_TIMEOUT, "30 ms");
    CHECK(tutti_wait(behind) == TUTTI_ERR_TIMEOUT);
    self->mark = 1;
}

static void cancelled(tutti_comm *comm, struct fault_rank *self)
{
    float *x = make(comm, LARGE), *y = make(comm, LARGE);
    tutti_op op;
    if (tutti_rank(comm) == 1) {
        fault_await_mark(0, 1);
        tutti_status status = tutti_all_reduce(comm, x, y, LARGE, TUTTI_F32, TUTTI_SUM);
        CHECK_THAT(status == TUTTI_ERR_CANCELLED, "%s", tutti_status_name(status));
        return;
    }
    CHECK(tutti_all_reduce_start(comm, x, y, LARGE, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    CHECK(tutti_cancel(op) == TUTTI_OK);
    check_op_failed(comm, op, TUTTI_ERR_CANCELLED, "rank 0 cancelled all_reduce(");
    self->mark = 1;
}

/* One starts, another waits; several wait at once. */
struct waiter {
    tutti_op op;
    tutti_status status;
};

static void *wait_elsewhere(void *argument)
{
    struct waiter *waiter = argument;
    waiter->status = tutti_wait(waiter->op);
    return NULL;
}

static void many_threads(tutti_comm *comm, struct fault_rank *self)
{
    enum { THREADS = 4 };
    int rank = tutti_rank(comm), size = tutti_size(comm);
    float *x = make(comm, THREADS * LARGE);
    (void)self;
    for (int round = 0; round < 10; round++) {
        struct waiter waiters[THREADS];
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            size_t count = (i + round) % 2 == 0 ? 10 : LARGE;
            fill(x + i * LARGE, count, rank);
            CHECK(tutti_all_reduce_start(comm, x + i * LARGE, x + i * LARGE, count, TUTTI_F32, TUTTI_SUM,
                                         &waiters[i].op) == TUTTI_OK);
        }
        for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, wait_elsewhere, &waiters[i]) == 0);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            CHECK(waiters[i].status == TUTTI_OK && is_sum(x + i * LARGE, 10, size));
        }
    }
}

/* One is told that an op has failed while another makes calls, which are refused, on the same comm. */
static void fails_beside(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1;
    struct waiter waiter;
    pthread_t thread;
    if (tutti_rank(comm) == 1) {
        fault_await_mark(0, 1);
        tutti_status came = tutti_barrier(comm);
        CHECK((over_tcp && came == TUTTI_OK ? tutti_barrier(comm) : came) == TUTTI_ERR_TIMEOUT);
        return;
    }
    CHECK(tutti_barrier_start(tutti_within(comm, 30), &waiter.op) == TUTTI_OK);
    CHECK(pthread_create(&thread, NULL, wait_elsewhere, &waiter) == 0);
    tutti_status status;
    do status = tutti_send(comm, &x, 1, TUTTI_F32, 2, 0);
    while (status == TUTTI_ERR_RANK);
    CHECK_THAT(status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_BROKEN, "%s", tutti_status_name(status));
    pthread_join(thread, NULL);
    CHECK(waiter.status == TUTTI_ERR_TIMEOUT && tutti_barrier(comm) == TUTTI_ERR_BROKEN);
    self->mark = 1;
}

/* Ten thousand in flight on a hundred comms, waited for from the last one on; what memory that takes. */
static void very_many(tutti_comm *comm, struct fault_rank *self)
{
    enum { COMMS = SANITIZED ? 10 : 100, OPS = 100, ALL = COMMS * OPS };
    int size = tutti_size(comm);
    tutti_comm *comms[COMMS];
    tutti_op *ops = calloc(ALL, sizeof *ops);
    int32_t *x = calloc(ALL, sizeof *x), wrong = 0;
    struct rusage before, after;
    (void)self;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < COMMS; i++) CHECK(tutti_comm_duplicate(comm, &comms[i]) == TUTTI_OK);
    for (int i = 0; i < ALL; i++) {
        x[i] = i;
        wrong += tutti_all_reduce_start(comms[i % COMMS], &x[i], &x[i], 1, TUTTI_I32, TUTTI_SUM, &ops[i]) != TUTTI_OK;
    }
    for (int i = ALL; i-- > 0;) wrong += tutti_wait(ops[i]) != TUTTI_OK;
    for (int i = 0; i < ALL; i++) wrong += x[i] != i * size;
    getrusage(RUSAGE_SELF, &after);
    CHECK_THAT(wrong == 0, "%d went wrong", wrong);
    CHECK_THAT(SANITIZED || after.ru_maxrss - before.ru_maxrss < 200 << 10, "%ld KiB more",
               after.ru_maxrss - before.ru_maxrss);
    for (int i = 0; i < COMMS; i++) CHECK(tutti_comm_free(comms[i]) == TUTTI_OK);
    free(ops);
    free(x);
}

static void left_in_flight(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1, y = 0;
    tutti_op op = {0};
    (void)self;
    if (tutti_rank(comm) == 0) CHECK(tutti_all_reduce_start(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    /* rank 1 leaves instead: rank 0's op fails, and leaving with it in flight must not hang */
}

static void run(const char *title, fault_body *body, int size, bool processes)
{
    fault_run_body(title, body, size, processes, over_tcp);
}

static void run_all(bool processes)
{
    run("start and wait", start_and_wait, 1, processes);
    run("start and wait", start_and_wait, 2, processes);
    run("start and wait", start_and_wait, 5, processes);
    run("many at once", many_at_once, 2, processes);
    run("many at once", many_at_once, 4, processes);
    run("every kind", every_kind, 3, processes);
    run("messages", messages, 2, processes);
    run("messages", messages, 3, processes);
    run("groups", groups, 2, processes);
    run("groups", groups, 4, processes);
    run("bad groups", bad_groups, 2, processes);
    run("by the service thread", by_service, 2, processes);
    run("dropped", drop_them, 3, processes);
    run("prepared", prepared, 2, processes);
    run("bad handles", bad_handles, 2, processes);
    run("a wait that times out", timed_out_wait, 2, processes);
    for (int served = 0; served < 2; served++) {
        service_ends_it = served;
        run(served ? "a deadline seen by the service thread" : "a deadline", deadline_passes, 2, processes);
    }
    run("cancelled", cancelled, 2, processes);
    run("many threads", many_threads, 2, processes);
    run("a failure beside other calls", fails_beside, 2, processes);
    if (processes == over_tcp) run("very many", very_many, 2, processes);
    run("left in flight", left_in_flight, 2, processes);
}

int main(void)
{
    fault_begin(110);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
