/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * The early end of ops: messages that are cancelled, and every kind of op cancelled, dropped or out of time at a random moment.
 */
#define TUTTI_NO_CALL_SITES
#include "collective/op/queue.h"
#include "fault.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { OPS = 8, SMALL = 10, LARGE = 1 << 16 };

static bool over_tcp;
static uint64_t seed;

static float *make(tutti_comm *comm, size_t count)
{
    float *x = tutti_alloc(comm, count * sizeof *x);
    CHECK(x != NULL);
    if (x != NULL) memset(x, 0, count * sizeof *x);
    return x;
}

static void check_error(tutti_comm *comm, tutti_status status, const char *words)
{
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_CANCELLED && error != NULL && strstr(error->text, words) != NULL, "%s: %s",
               tutti_status_name(status), error == NULL ? "" : error->text);
}

static void cancel(tutti_comm *comm, tutti_op op, const char *words)
{
    CHECK(tutti_wait_for(op, 5) == TUTTI_IN_PROGRESS && tutti_cancel(op) == TUTTI_OK);
    check_error(comm, tutti_wait_for(op, 45000), words);
}

/* What nobody else knows of is taken back. */
static void taken_back(tutti_comm *comm, struct fault_rank *self)
{
    float *x = make(comm, LARGE), *y = make(comm, LARGE);
    tutti_op op;
    (void)self;
    if (tutti_rank(comm) == 0) {
        CHECK(tutti_recv_start(tutti_at(comm, "a.c", 7), y, 1, TUTTI_F32, 1, 3, NULL, &op) == TUTTI_OK);
        cancel(comm, op, "rank 0 cancelled recv from rank 1 with tag 3 at a.c:7, for which no message had come");
        CHECK(tutti_send_start(comm, x, LARGE, TUTTI_F32, 0, 4, &op) == TUTTI_OK);
        cancel(comm, op, "rank 0 cancelled send to rank 0 with tag 4, which no receive has taken");
        CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_recv(comm, y, 1, TUTTI_F32, 1, 5, NULL) == TUTTI_OK);
        CHECK(tutti_group_end_start(comm, &op) == TUTTI_OK);
        cancel(comm, op, "rank 0 cancelled a group with a recv from rank 1 with tag 5");
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* What a peer knows of breaks the comm where the ranks share memory, and the peer learns why. */
static bool in_group;

static void under_way(tutti_comm *comm, struct fault_rank *self)
{
    const char *words = in_group ? "rank 0 cancelled a group with a send to rank 1 with tag 3 at a.c:7, which was under"
                                 : "rank 0 cancelled send to rank 1 with tag 3 at a.c:7, which was under way";
    float *x = make(comm, LARGE), *y = make(comm, LARGE);
    tutti_op op;
    if (tutti_rank(comm) == 1) {
        fault_await_mark(0, 1);
        check_error(comm, tutti_recv(comm, y, LARGE, TUTTI_F32, 0, 3, NULL), words);
        return;
    }
    if (in_group) {
        CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_recv(comm, y, 1, TUTTI_F32, 1, 3, NULL) == TUTTI_OK);
        CHECK(tutti_send(tutti_at(comm, "a.c", 7), x, LARGE, TUTTI_F32, 1, 3) == TUTTI_OK);
        CHECK(tutti_group_end_start(comm, &op) == TUTTI_OK);
    } else {
        CHECK(tutti_send_start(tutti_at(comm, "a.c", 7), x, LARGE, TUTTI_F32, 1, 3, &op) == TUTTI_OK);
    }
    cancel(comm, op, words);
    CHECK(tutti_barrier(comm) == TUTTI_ERR_BROKEN);
    self->mark = 1;
}

/* Receives that were started do no harm when all others have left: they can still be taken back, or get what this rank sends to
 * itself, although a probe says that nobody else is there. One that is waited for then is an error. */
static void left_alone(tutti_comm *comm, struct fault_rank *self)
{
    enum { LOOKS = 2000 };
    int32_t x = 7, y[4] = {0};
    tutti_comm *part;
    tutti_op from_1, from_any, own, last;
    tutti_message message;
    CHECK(tutti_comm_duplicate(comm, &part) == TUTTI_OK);
    if (tutti_rank(comm) == 1) {
        CHECK(tutti_comm_free(part) == TUTTI_OK);
        self->mark = 1;
        return;
    }
    CHECK(tutti_recv_start(part, &y[0], 1, TUTTI_I32, 1, 1, NULL, &from_1) == TUTTI_OK);
    CHECK(tutti_recv_start(part, &y[1], 1, TUTTI_I32, TUTTI_ANY_SOURCE, 2, NULL, &from_any) == TUTTI_OK);
    CHECK(tutti_recv_start(part, &y[2], 1, TUTTI_I32, 0, 3, NULL, &own) == TUTTI_OK);
    fault_await_mark(1, 1);
    for (int i = 0; i < LOOKS; i++) CHECK(tutti_test(own) == TUTTI_IN_PROGRESS);
    tutti_status found;
    do found = tutti_try_probe(part, TUTTI_ANY_SOURCE, 4, &message);
    while (found == TUTTI_IN_PROGRESS);
    CHECK(found == TUTTI_ERR_MISMATCH);
    CHECK(tutti_send(part, &x, 1, TUTTI_I32, 0, 2) == TUTTI_OK && tutti_send(part, &x, 1, TUTTI_I32, 0, 3) == TUTTI_OK);
    CHECK(tutti_wait(from_any) == TUTTI_OK && tutti_wait(own) == TUTTI_OK && y[1] == 7 && y[2] == 7);
    CHECK(tutti_cancel(from_1) == TUTTI_OK);
    check_error(part, tutti_wait_for(from_1, 45000), "recv from rank 1 with tag 1, for which no message had come");
    CHECK(tutti_recv_start(part, &y[3], 1, TUTTI_I32, TUTTI_ANY_SOURCE, 5, NULL, &last) == TUTTI_OK);
    CHECK(tutti_wait_for(last, 45000) == TUTTI_ERR_MISMATCH);
    CHECK(tutti_comm_free(part) == TUTTI_OK);
}

/* ---- Beside others ----------------------------------------------------------------------------------------------- */

static void break_by_cancel(tutti_comm *comm)
{
    static int32_t x, y;
    tutti_op op;
    CHECK(tutti_all_reduce_start(comm, &x, &y, 1, TUTTI_I32, TUTTI_SUM, &op) == TUTTI_OK);
    CHECK(tutti_cancel(op) == TUTTI_OK && tutti_wait_for(op, 45000) == TUTTI_ERR_CANCELLED);
}

/* A blocking message with another one in flight beside it: it fails with the error, and the next call says that the comm is
 * broken. */
static void blocking_beside(tutti_comm *comm, struct fault_rank *self)
{
    int32_t x = 0, y = 0;
    tutti_op op;
    if (tutti_rank(comm) == 1) {
        fault_await_mark(0, 1);
        fault_sleep_ms(2); /* as a rule it waits by then, and need not */
        break_by_cancel(comm);
        return;
    }
    CHECK(tutti_recv_start(comm, &x, 1, TUTTI_I32, 1, 9, NULL, &op) == TUTTI_OK);
    self->mark = 1;
    check_error(comm, tutti_recv(comm, &y, 1, TUTTI_I32, 1, 3, NULL), "rank 1 cancelled all_reduce");
    CHECK(tutti_barrier(comm) == TUTTI_ERR_BROKEN);
    CHECK(tutti_wait_for(op, 45000) == TUTTI_ERR_CANCELLED);
}

static void await_stop(int rank)
{
    char path[64], state = ' ';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)fault_shared->ranks[rank].numbers[0]);
    while (state != 'T') {
        FILE *file = fopen(path, "r");
        if (!CHECK(file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1)) state = 'T';
        if (file != NULL) fclose(file);
    }
}

/* Data that are brought along: rank 0 has them all, goes on and does nothing more on this comm; the comm breaks before rank 1,
 * which had entered, comes to look. It has nothing to fear of rank 0, and must not wait for it nor kill it. */
static void ended_unseen(tutti_comm *comm, struct fault_rank *self)
{
    enum { COUNT = 2500 };
    static unsigned char x[3 * COUNT], y[COUNT];
    int rank = tutti_rank(comm);
    tutti_op op;
    if (rank == 1) {
        self->numbers[0] = getpid();
        CHECK(tutti_reduce_scatter_start(comm, x, y, COUNT, TUTTI_U8, TUTTI_SUM, &op) == TUTTI_OK);
        self->mark = 1;
        raise(SIGSTOP);
        CHECK(tutti_wait_for(op, 45000) == TUTTI_ERR_CANCELLED);
        self->mark = 2;
        return;
    }
    fault_await_mark(1, 1);
    await_stop(1);
    CHECK(tutti_reduce_scatter(comm, x, y, COUNT, TUTTI_U8, TUTTI_SUM) == TUTTI_OK);
    self->mark = 1;
    if (rank == 2) {
        fault_await_mark(0, 1);
        break_by_cancel(comm);
        kill((pid_t)fault_shared->ranks[1].numbers[0], SIGCONT);
    }
    fault_await_mark(1, 2);
    CHECK(tutti_barrier(comm) < 0);
}

/* A large message whose sender is stopped before it hears that it is received, as it has heard of the one before: it knows of
 * no buffer, and the receiver, whose time is over, must not kill it. */
static void accepted_unseen(tutti_comm *comm, struct fault_rank *self)
{
    enum { COUNT = 1 << 20 };
    static unsigned char x[COUNT];
    tutti_op op;
    if (tutti_rank(comm) == 0) {
        self->numbers[0] = getpid();
        CHECK(tutti_send(comm, x, COUNT, TUTTI_U8, 1, 0) == TUTTI_OK);
        CHECK(tutti_send_start(comm, x, COUNT, TUTTI_U8, 1, 1, &op) == TUTTI_OK);
        self->mark = 1;
        raise(SIGSTOP);
        CHECK(tutti_wait_for(op, 45000) == TUTTI_ERR_TIMEOUT);
        return;
    }
    CHECK(tutti_recv(comm, x, COUNT, TUTTI_U8, 0, 0, NULL) == TUTTI_OK);
    fault_await_mark(0, 1);
    await_stop(0);
    CHECK(tutti_recv(tutti_within(comm, 50), x, COUNT, TUTTI_U8, 0, 1, NULL) == TUTTI_ERR_TIMEOUT);
    kill((pid_t)fault_shared->ranks[0].numbers[0], SIGCONT);
}

/* ---- Too late ---------------------------------------------------------------------------------------------------- */

/* The handle of an op that has ended: whoever cancels it must not hit the op that gets its place. */
static _Atomic uint64_t ended_id;
static _Atomic bool enough;

static void *cancel_ended(void *nothing)
{
    while (!atomic_load_explicit(&enough, memory_order_relaxed)) {
        tutti_op op = {atomic_load_explicit(&ended_id, memory_order_acquire)};
        if (op.id != 0) tutti_cancel(op);
    }
    return nothing;
}

static void one_after_the_other(tutti_comm *comm)
{
    int32_t x = 1, y = 0;
    tutti_op first, second;
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, 1) == TUTTI_OK);
    CHECK(tutti_recv_start(comm, &y, 1, TUTTI_I32, 0, 1, NULL, &first) == TUTTI_OK);
    atomic_store_explicit(&ended_id, first.id, memory_order_release);
    CHECK(tutti_wait(first) == TUTTI_OK);
    atomic_store_explicit(&ended_id, 0, memory_order_relaxed);
    CHECK(tutti_recv_start(comm, &y, 1, TUTTI_I32, 0, 2, NULL, &second) == TUTTI_OK);
    for (int i = 0; i < 50; i++)
        if (!CHECK(tutti_test(second) == TUTTI_IN_PROGRESS)) return;
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, 2) == TUTTI_OK && tutti_wait(second) == TUTTI_OK);
}

static void too_late(tutti_comm *comm, struct fault_rank *self)
{
    pthread_t others[2];
    int64_t end = fault_now_ns() + INT64_C(800000000);
    (void)self;
    enough = false;
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&others[i], NULL, cancel_ended, NULL) == 0);
    while (fault_now_ns() < end) one_after_the_other(comm);
    enough = true;
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
}

/* ---- Withdrawn --------------------------------------------------------------------------------------------------- */

static void pause_a_little(uint64_t spins)
{
    static _Atomic int nothing;
    while (spins-- > 0) nothing++;
}

static bool is_expected(tutti_status status)
{
    return status == TUTTI_OK || status == TUTTI_ERR_CANCELLED || status == TUTTI_ERR_TIMEOUT ||
           status == TUTTI_ERR_MISMATCH; /* a peer has left that had taken its part back */
}

/* Over tcp a send that nobody has taken is withdrawn, and the next one is received in its place. */
static void withdrawn(tutti_comm *comm, struct fault_rank *self)
{
    float *x = make(comm, LARGE), *y = make(comm, LARGE);
    tutti_op op;
    if (tutti_rank(comm) == 0) {
        CHECK(tutti_send_start(tutti_at(comm, "a.c", 7), x, LARGE, TUTTI_F32, 1, 3, &op) == TUTTI_OK);
        cancel(comm, op,
               "rank 0 cancelled send to rank 1 with tag 3 at a.c:7, which no receive has taken; the comm is as");
        self->mark = 1;
        x[LARGE - 1] = 5;
        CHECK(tutti_send(comm, x, LARGE, TUTTI_F32, 1, 3) == TUTTI_OK);
    } else {
        fault_await_mark(0, 1);
        CHECK(tutti_recv(comm, y, LARGE, TUTTI_F32, 0, 3, NULL) == TUTTI_OK && y[LARGE - 1] == 5);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

/* Cancelled before its peer leaves, and looked at after that: it harms nobody. Meanwhile nobody may be busy with the comm. */
static void withdrawn_late(tutti_comm *comm, struct fault_rank *self)
{
    float *x = make(comm, LARGE);
    tutti_comm *part;
    tutti_op op;
    CHECK(tutti_comm_duplicate(comm, &part) == TUTTI_OK);
    if (tutti_rank(comm) == 0) {
        CHECK(tutti_send_start(part, x, LARGE, TUTTI_F32, 1, 3, &op) == TUTTI_OK);
        tti_queue_take(part);
        CHECK(tutti_cancel(op) == TUTTI_OK);
        self->mark = 1;
        CHECK(tutti_barrier(comm) == TUTTI_OK); /* and with it comes that rank 1 has left */
        tti_queue_give_back(part);
        check_error(part, tutti_wait_for(op, 45000), "which no receive has taken; the comm is as good as before");
    } else {
        fault_await_mark(0, 1);
    }
    CHECK(tutti_comm_free(part) == TUTTI_OK);
    if (tutti_rank(comm) == 1) CHECK(tutti_barrier(comm) == TUTTI_OK);
}

static tutti_status start_and_cancel(tutti_comm *comm, float *x, uint64_t spins)
{
    tutti_op op;
    x[0] = x[LARGE - 1] = 0;
    CHECK(tutti_send_start(comm, x, LARGE, TUTTI_F32, 1, 3, &op) == TUTTI_OK);
    pause_a_little(spins);
    CHECK(tutti_cancel(op) == TUTTI_OK);
    tutti_status status = tutti_wait_for(op, 45000);
    x[0] = x[LARGE - 1] = 77; /* the buffer is this rank's again */
    return status;
}

/* From anyone; and again, if it was rank 0's. Returns how that one's send must have ended. */
static tutti_status take_one_of_two(tutti_comm *comm, float *y)
{
    tutti_message message = {0};
    tutti_status status = tutti_recv_message(comm, y, LARGE, TUTTI_F32, TUTTI_ANY_SOURCE, 3, &message);
    bool from_0 = status == TUTTI_OK && message.source == 0;
    CHECK_THAT(status == TUTTI_OK || status == TUTTI_ERR_CANCELLED, "%s", tutti_status_name(status));
    if (status == TUTTI_OK)
        CHECK_THAT(y[0] == (float)message.source && y[LARGE - 1] == y[0], "%g and %g of rank %d", (double)y[0],
                   (double)y[LARGE - 1], message.source);
    if (from_0) CHECK(tutti_recv(comm, y, LARGE, TUTTI_F32, 2, 3, NULL) == TUTTI_OK && y[0] == 2);
    return from_0 ? TUTTI_OK : TUTTI_ERR_CANCELLED;
}

/* Rank 0 cancels its send while rank 1 is about to take it; then rank 2 sends. Too late, it breaks the comm. */
static void withdrawn_or_not(tutti_comm *comm, struct fault_rank *self)
{
    enum { ROUNDS = SANITIZED ? 10 : 30 };
    float *x = make(comm, LARGE), *y = make(comm, LARGE);
    uint64_t random = seed + (uint64_t)over_tcp;
    int rank = tutti_rank(comm);
    x[0] = x[LARGE - 1] = (float)rank;
    for (int round = 1; round <= ROUNDS; round++) {
        tutti_comm *part;
        tutti_status taken = TUTTI_OK;
        uint64_t spins = fault_random(&random) % 30000;
        if (!CHECK(tutti_comm_duplicate(comm, &part) == TUTTI_OK)) return;
        if (rank == 0) self->numbers[0] = start_and_cancel(part, x, spins);
        if (rank == 0) self->mark = round;
        if (rank == 1) taken = take_one_of_two(part, y);
        fault_await_mark(0, round);
        if (rank == 1) CHECK(fault_shared->ranks[0].numbers[0] == taken);
        tutti_status sent = rank == 2 ? tutti_send(part, x, LARGE, TUTTI_F32, 1, 3) : TUTTI_OK;
        CHECK_THAT(is_expected(sent) || sent == TUTTI_ERR_BROKEN, "%s", tutti_status_name(sent));
        CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_comm_free(part) == TUTTI_OK);
    }
}

/* ---- Out of time -------------------------------------------------------------------------------------------------- */

/* The one with a deadline is behind the one that is waited for, or beside it. */
enum { BEHIND, BEHIND_BLOCKING, TWO_MESSAGES, BESIDE_MESSAGE, BESIDE_COLLECTIVE, UNWATCHED, PAIRINGS };
static int pairing;

static tutti_status run_out(tutti_comm *comm, float *x)
{
    tutti_op op, other;
    bool message = pairing == TWO_MESSAGES || pairing == BESIDE_COLLECTIVE || pairing == UNWATCHED;
    if (pairing <= BEHIND_BLOCKING)
        CHECK(tutti_barrier_start(comm, &other) == TUTTI_OK);
    else if (message)
        CHECK(tutti_recv_start(tutti_within(comm, 50), x, 1, TUTTI_F32, 1, 1, NULL, &op) == TUTTI_OK);
    if (pairing == BEHIND || pairing == BESIDE_MESSAGE)
        CHECK(tutti_all_reduce_start(tutti_within(comm, 50), x, x, 1, TUTTI_F32, TUTTI_SUM, &op) == TUTTI_OK);
    if (pairing == BEHIND_BLOCKING) return tutti_barrier(tutti_within(comm, 50));
    if (pairing == BESIDE_COLLECTIVE) return tutti_barrier(comm);
    if (pairing == BESIDE_MESSAGE) return tutti_recv(comm, x + 1, 1, TUTTI_F32, 1, 2, NULL);
    if (message) CHECK(tutti_recv_start(comm, x + 1, 1, TUTTI_F32, 1, 2, NULL, &other) == TUTTI_OK);
    tutti_status status = TUTTI_IN_PROGRESS;
    int64_t until = fault_now_ns() + INT64_C(30000000000);
    while (pairing == UNWATCHED && status == TUTTI_IN_PROGRESS && fault_now_ns() < until) status = tutti_test(op);
    return pairing == UNWATCHED ? status : tutti_wait_for(message ? other : op, 30000);
}

static void another_has_less(tutti_comm *comm, struct fault_rank *self)
{
    float x[2] = {0};
    if (tutti_rank(comm) == 0) {
        tutti_status status = run_out(comm, x);
        const tutti_error *error = tutti_comm_error(comm);
        CHECK_THAT(status == TUTTI_ERR_TIMEOUT && error != NULL && strstr(error->text, "its deadline of 50 ms passed"),
                   "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
        self->mark = 1;
    }
    fault_await_mark(0, 1);
}

/* ---- Every kind -------------------------------------------------------------------------------------------------- */

/* Of one op: `count` elements for each rank, in and out. */
struct data {
    float *in, *out;
    size_t count;
    int tag;
};

static tutti_status start_group(tutti_comm *comm, const struct data *data, tutti_op *op)
{
    tutti_status bad = tutti_group_begin(comm);
    for (size_t peer = 0; bad == TUTTI_OK && peer < (size_t)tutti_size(comm); peer++) {
        bad = tutti_send(comm, data->in + peer * data->count, data->count, TUTTI_F32, (int)peer, data->tag);
        if (bad == TUTTI_OK)
            bad = tutti_recv(comm, data->out + peer * data->count, data->count, TUTTI_F32, (int)peer, data->tag, NULL);
    }
    tutti_status ended = tutti_group_end_start(comm, op);
    return bad != TUTTI_OK ? bad : ended;
}

/* Between ranks 0 and 1. */
static tutti_status start_message(tutti_comm *comm, const struct data *data, int sender, tutti_op *op)
{
    int rank = tutti_rank(comm);
    if (rank > 1) return TUTTI_OK;
    return rank == sender ? tutti_send_start(comm, data->in, data->count, TUTTI_F32, 1 - rank, data->tag, op)
                          : tutti_recv_start(comm, data->out, data->count, TUTTI_F32, 1 - rank, data->tag, NULL, op);
}

enum { KINDS = 24 };

static tutti_status start(int kind, tutti_comm *comm, const struct data *data, tutti_op *op)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
    float *in = data->in, *out = data->out;
    size_t n = data->count, counts[FAULT_RANKS];
    tutti_piece pieces[2] = {{in, out, n}, {in + n, out + n, n / 2}}, whole[1] = {{in, out, n}};
    for (int i = 0; i < size; i++) counts[i] = n;
    switch (kind) {
    case 0: return tutti_barrier_start(comm, op);
    case 1: return tutti_all_reduce_start(comm, in, out, n, TUTTI_F32, TUTTI_SUM, op);
    case 2: return tutti_reduce_start(comm, in, out, n, TUTTI_F32, TUTTI_MAX, 1, op);
    case 3: return tutti_broadcast_start(comm, in, out, n, TUTTI_F32, 1, op);
    case 4: return tutti_all_gather_start(comm, in, out, n, TUTTI_F32, op);
    case 5: return tutti_gather_start(comm, in, out, n, TUTTI_F32, 0, op);
    case 6: return tutti_scatter_start(comm, in, out, n, TUTTI_F32, 1, op);
    case 7: return tutti_reduce_scatter_start(comm, in, out, n, TUTTI_F32, TUTTI_SUM, op);
    case 8: return tutti_all_to_all_start(comm, in, out, n, TUTTI_F32, op);
    case 9: return tutti_all_gather_v_start(comm, in, out, counts, NULL, TUTTI_F32, op);
    case 10: return tutti_gather_v_start(comm, in, n, out, counts, NULL, TUTTI_F32, 1, op);
    case 11: return tutti_scatter_v_start(comm, in, counts, NULL, out, n, TUTTI_F32, 0, op);
    case 12: return tutti_reduce_scatter_v_start(comm, in, out, counts, TUTTI_F32, TUTTI_SUM, op);
    case 13: return tutti_all_to_all_v_start(comm, in, counts, NULL, out, counts, NULL, TUTTI_F32, op);
    case 14: return tutti_scan_start(comm, in, out, n, TUTTI_F32, TUTTI_SUM, op);
    case 15: return tutti_exscan_start(comm, in, out, n, TUTTI_F32, TUTTI_SUM, op);
    case 16: return tutti_all_reduce_many_start(comm, pieces, 2, TUTTI_F32, TUTTI_SUM, op);
    case 17: return tutti_broadcast_many_start(comm, pieces, 2, TUTTI_F32, 0, op);
    case 18: return tutti_all_gather_many_start(comm, whole, 1, TUTTI_F32, op);
    case 19: return tutti_reduce_scatter_many_start(comm, whole, 1, TUTTI_F32, TUTTI_SUM, op);
    case 20: return start_message(comm, data, 0, op);
    case 21: return start_message(comm, data, 1, op);
    case 22: return tutti_sendrecv_start(comm, in, n, to, data->tag, out, n, from, data->tag, TUTTI_F32, NULL, op);
    default: return start_group(comm, data, op);
    }
}

/* Rank 0 ends one op of a busy comm, by a deadline or by cancelling it, and all drop some: everything ends, on every rank. */
static int ending; /* its kind */
static bool by_deadline;

static void random_end(tutti_comm *comm, struct fault_rank *self)
{
    uint64_t common = seed, random = seed * 64 + (uint64_t)tutti_rank(comm);
    size_t at = fault_random(&common) % OPS, all = (size_t)tutti_size(comm) * LARGE;
    tutti_op ops[OPS] = {{0}};
    float *x = make(comm, 2 * OPS * all);
    (void)self;
    for (size_t i = 0; i < OPS; i++) {
        bool ends = i == at, mine = ends && tutti_rank(comm) == 0;
        uint64_t drawn = fault_random(&common), spins = fault_random(&random) % 3000;
        struct data data = {x + 2 * i * all, x + (2 * i + 1) * all, drawn / KINDS % 3 == 0 ? SMALL : LARGE,
                            .tag = (int)i};
        if (mine && by_deadline) tutti_within(comm, 1);
        tutti_status status = start(ends ? ending : (int)(drawn % KINDS), comm, &data, &ops[i]);
        CHECK_THAT(is_expected(status) || status == TUTTI_ERR_BROKEN, "%s", tutti_status_name(status));
        if (status != TUTTI_OK || ops[i].id == 0) continue;
        pause_a_little(spins);
        if (mine && !by_deadline) CHECK(tutti_cancel(ops[i]) == TUTTI_OK);
        if (fault_random(&random) % 4 != 0) continue;
        CHECK(tutti_drop(ops[i]) == TUTTI_OK);
        ops[i].id = 0;
    }
    for (size_t i = 0; i < OPS; i++) {
        tutti_status status = ops[i].id == 0 ? TUTTI_OK : tutti_wait_for(ops[i], 45000);
        CHECK_THAT(is_expected(status), "%s", tutti_status_name(status));
    }
}

static void run(const char *title, fault_body *body, int size, bool processes)
{
    fault_run_body(title, body, size, processes, over_tcp);
}

static void run_all(bool processes)
{
    run("taken back", taken_back, 2, processes);
    run("left alone", left_alone, 2, processes);
    if (!processes && !over_tcp) run("too late", too_late, 1, processes);
    run("blocking beside", blocking_beside, 2, processes);
    if (processes && !over_tcp) run("ended unseen", ended_unseen, 3, processes);
    if (processes && !over_tcp) run("accepted unseen", accepted_unseen, 2, processes);
    if (over_tcp) run("withdrawn", withdrawn, 2, processes);
    if (over_tcp) run("withdrawn when its peer has left", withdrawn_late, 2, processes);
    if (over_tcp) run("withdrawn, or not", withdrawn_or_not, 3, processes);
    for (int group = 0; group < 2 && !over_tcp; group++) {
        in_group = group;
        run(group ? "a group under way" : "under way", under_way, 2, processes);
    }
    for (pairing = 0; pairing < PAIRINGS; pairing++) {
        char title[64];
        snprintf(title, sizeof title, "another op has less time, pairing %d", pairing);
        run(title, another_has_less, 2, processes);
    }
    for (ending = 0; ending < KINDS; ending++) {
        char title[64];
        by_deadline = seed++ % 2 == 0;
        snprintf(title, sizeof title, "random end of kind %d by %s", ending, by_deadline ? "a deadline" : "cancel");
        run(title, random_end, 2 + (int)(seed / 2 % 2), processes);
    }
    seed++; /* the next round ends each kind in the other way */
}

int main(void)
{
    fault_begin(110);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
