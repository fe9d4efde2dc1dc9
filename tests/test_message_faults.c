/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * How messages fail: a buffer that is too short, groups misused, types that differ, a peer that leaves or dies.
 */
#include "collective/comm/comm.h"
#include "collective/comm/peers.h"
#include "collective/message/message.h"
#include "messages.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t seed = 20240611;
enum { LIMIT_MS = 1000 };
static bool any_source;
static size_t group_bytes;

/* ---- Errors that leave the comm as it is ----------------------------------------------------------------------- */

static bool says(const tutti_comm *comm, const char *words)
{
    const tutti_error *error = tutti_comm_error(comm);
    return CHECK_THAT(error != NULL && strstr(error->text, words) != NULL, "%s", error == NULL ? "" : error->text);
}

/* Rank 0 sends one that is too long between two that are not. */
static void truncate_one(tutti_comm *comm, struct fault_rank *self)
{
    size_t long_count = group_bytes, received[3] = {0};
    int32_t *x = (int32_t *)(void *)message_alloc(comm, long_count * 4 + 4);
    x[0] = 11;
    int rank = tutti_rank(comm);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    if (rank == 0) {
        CHECK(tutti_send(comm, x, 1, TUTTI_I32, 1, 1) == TUTTI_OK);
        CHECK(tutti_send(comm, x, long_count, TUTTI_I32, 1, 2) == TUTTI_OK);
        CHECK(tutti_send(comm, x, 1, TUTTI_I32, 1, 3) == TUTTI_OK);
        FAULT_CALL(self, comm, tutti_group_end(comm));
    } else {
        int32_t y[3] = {0};
        char words[128];
        CHECK(tutti_recv(comm, &y[0], 1, TUTTI_I32, 0, 1, &received[0]) == TUTTI_OK);
        CHECK(tutti_recv(comm, &y[1], 1, TUTTI_I32, TUTTI_ANY_SOURCE, 2, &received[1]) == TUTTI_OK);
        CHECK(tutti_recv(comm, &y[2], 1, TUTTI_I32, 0, TUTTI_ANY_TAG, &received[2]) == TUTTI_OK);
        CHECK(tutti_group_end(comm) == TUTTI_ERR_TRUNCATED);
        says(comm, "call 2 of the group, recv from any rank with tag 2 at ");
        snprintf(words, sizeof words, "rank 0's message with tag 2 has %zu elements, the buffer of rank 1 only 1",
                 long_count);
        says(comm, words);
        CHECK_THAT(y[0] == 11 && y[1] == 0 && received[0] == 1 && received[1] == 0, "%d %d", y[0], y[1]);
        /* the third got what came next: the long one does not fit it either, or it was the last */
        CHECK(tutti_recv(comm, x, long_count, TUTTI_I32, 0, 2, &received[1]) == TUTTI_OK && received[1] == long_count);
        if (received[2] == 0) CHECK(tutti_recv(comm, &y[2], 1, TUTTI_I32, 0, 3, NULL) == TUTTI_OK);
        CHECK(y[2] == 11);
        FAULT_CALL(self, comm, TUTTI_OK);
    }
    FAULT_CALL(self, comm, tutti_barrier(comm));
    message_free(comm, x);
}

static void misuse_groups(tutti_comm *comm, struct fault_rank *self)
{
    int32_t x = 1;
    tutti_message message;
    CHECK(tutti_group_end(comm) == TUTTI_ERR_ARGUMENT && says(comm, "no group has begun"));
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    CHECK(tutti_group_begin(comm) == TUTTI_ERR_ARGUMENT && says(comm, "has begun on this comm and not ended"));
    CHECK(tutti_group_end(comm) == TUTTI_OK);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, 1) == TUTTI_OK);
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 17, 1) == TUTTI_ERR_RANK);
    CHECK(tutti_group_end(comm) == TUTTI_ERR_RANK && says(comm, "peer 17 is not a rank"));
    CHECK(tutti_try_probe(comm, 0, 1, &message) == TUTTI_IN_PROGRESS);
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, TUTTI_ANY_SOURCE, 1) == TUTTI_ERR_RANK);
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, TUTTI_ANY_TAG) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_recv(comm, &x, 1, TUTTI_I32, TUTTI_ANY_TAG, 0, NULL) == TUTTI_ERR_RANK);
    CHECK(tutti_recv(comm, &x, 1, TUTTI_I32, 0, TUTTI_ANY_SOURCE, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_probe(comm, 0, 0, NULL) == TUTTI_ERR_ARGUMENT && says(comm, "`message` is NULL"));
    CHECK(tutti_probe(comm, 2, 0, &message) == TUTTI_ERR_RANK);
    CHECK(tutti_probe(NULL, 0, 0, &message) == TUTTI_ERR_ARGUMENT && tutti_group_begin(NULL) == TUTTI_ERR_ARGUMENT);
    FAULT_CALL(self, comm, tutti_barrier(comm));
    CHECK(tutti_group_begin(comm) == TUTTI_OK); /* left alone: freed with the comm */
    CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, 1) == TUTTI_OK);
}

static void test_errors(void)
{
    static const size_t counts[] = {2, 1000, 50000};
    for (int layout = 0; layout < MESSAGE_LAYOUTS; layout++)
        for (size_t k = 0; k < 3; k++) {
            group_bytes = counts[k];
            message_run(layout, 2, truncate_one, "a message that is too long");
            for (int rank = 0; rank < 2; rank++)
                CHECK_THAT(fault_shared->ranks[rank].steps[1].status == TUTTI_OK, "rank %d", rank);
        }
    for (int layout = 0; layout < MESSAGE_LAYOUTS; layout += 3) message_run(layout, 2, misuse_groups, "groups misused");
}

/* ---- Errors that break it -------------------------------------------------------------------------------------- */

/* Rank 1's type is another; rank 2 has nothing to do with it but waits in the same comm. */
static void differ_in_type(tutti_comm *comm, struct fault_rank *self)
{
    float *x = (float *)(void *)message_alloc(comm, 2 * group_bytes * sizeof *x);
    int rank = tutti_rank(comm), other = 1 - rank;
    FAULT_CALL(self, comm, tutti_group_begin(comm));
    if (rank == 2) {
        FAULT_CALL(self, comm, tutti_recv(comm, x, 1, TUTTI_F32, TUTTI_ANY_SOURCE, 1, NULL));
    } else {
        FAULT_CALL(self, comm, tutti_send(comm, x, group_bytes, rank == 0 ? TUTTI_F32 : TUTTI_I32, other, 1));
        FAULT_CALL(self, comm, tutti_recv(comm, x + group_bytes, group_bytes, TUTTI_I32, other, 1, NULL));
    }
    FAULT_CALL(self, comm, tutti_group_end(comm));
    FAULT_CALL(self, comm, tutti_barrier(comm));
    if (rank != 2) CHECK_THAT(tti_messages_pending(comm) == 0, "%d pending", tti_messages_pending(comm));
    message_free(comm, x);
}

static void leave_early(tutti_comm *comm, struct fault_rank *self)
{
    int32_t x = 0;
    int rank = tutti_rank(comm);
    if (rank == 1) {
        CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, 1) == TUTTI_OK);
        return;
    }
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    tutti_recv(comm, &x, 1, TUTTI_I32, TUTTI_ANY_SOURCE, 1, NULL);
    tutti_recv(comm, &x, 1, TUTTI_I32, any_source ? TUTTI_ANY_SOURCE : 1, TUTTI_ANY_TAG, NULL);
    FAULT_CALL(self, comm, tutti_group_end(comm));
}

/* Whatever call of a rank fails first has the error, all later ones say that it is broken; rank 1's is group_end. */
static void check_type_error(int rank)
{
    const struct fault_step *step = fault_shared->ranks[rank].steps, *end = step + fault_shared->ranks[rank].steps_done;
    while (step < end && step->status == TUTTI_OK) step++;
    if (!CHECK_THAT(step < end, "rank %d had no error", rank)) return;
    CHECK_THAT(step->status == TUTTI_ERR_MISMATCH && fault_has(step, "rank 1 receives i32 with tag 1") &&
                   fault_has(step, "test_message_faults.c:") && fault_has(step, "rank 0, which sent f32"),
               "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
    if (rank == 1) CHECK_THAT(step == &fault_shared->ranks[rank].steps[3], "at call %d", step->line);
    while (++step < end) /* the end of a group tells once more what a call of it was told */
        CHECK_THAT(step->status == TUTTI_ERR_BROKEN || fault_has(step, "call 1 of the group (recv): "),
                   "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
}

static void test_breaks(void)
{
    static const size_t counts[] = {1, 1024, 100000};
    for (int layout = 0; layout < MESSAGE_LAYOUTS; layout++)
        for (size_t k = 0; k < 3; k++) {
            group_bytes = counts[k];
            message_run(layout, 3, differ_in_type, "types that differ");
            for (int rank = 0; rank < 3; rank++) check_type_error(rank);
        }
    for (int layout = 0; layout < MESSAGE_FRAMES; layout++)
        for (int any = 0; any < 2; any++) {
            any_source = any != 0;
            message_run(layout, 2, leave_early, any_source ? "all others left" : "the peer left");
            const struct fault_step *step = fault_shared->ranks[0].steps;
            CHECK_THAT(step[0].status == TUTTI_ERR_MISMATCH && fault_has(step, "left") && fault_has(step, "any tag"),
                       "%s: %s", tutti_status_name(step[0].status), step[0].error.text);
            fault_time("a peer that left: until the error", step[0].ended_ns - step[0].began_ns, 1000);
        }
}

/* ---- Messages that nobody sends or takes ------------------------------------------------------------------------ */

static size_t the_count;

static void wrong_type(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(the_count, sizeof *x);
    if (tutti_rank(comm) == 0)
        FAULT_CALL(self, comm, tutti_send(comm, x, the_count, TUTTI_F32, 1, 7));
    else if (tutti_rank(comm) == 1)
        FAULT_CALL(self, comm, tutti_recv(comm, x, the_count, TUTTI_I32, 0, 7, NULL));
    FAULT_CALL(self, comm, tutti_barrier(comm));
    FAULT_CALL(self, comm, tutti_barrier(comm));
    free(x);
}

static void nothing_comes(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(the_count, sizeof *x);
    if (tutti_rank(comm) == 0) FAULT_CALL(self, comm, tutti_recv(comm, x, the_count, TUTTI_F32, 1, 7, NULL));
    if (tutti_rank(comm) == 2)
        FAULT_CALL(self, comm, tutti_sendrecv(comm, x, the_count, 1, 3, NULL, 0, 1, 4, TUTTI_F32, NULL));
    free(x);
}

static void nobody_takes(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(the_count, sizeof *x);
    if (tutti_rank(comm) == 0)
        for (int i = 0; i < 20 && FAULT_CALL(self, comm, tutti_send(comm, x, the_count, TUTTI_F32, 1, 7)) == TUTTI_OK;)
            i++;
    free(x);
}

/* What breaks a comm came with what was waited for on another one: its error is told to who uses it, and not before. */
static void break_apart(tutti_comm *comm, struct fault_rank *self)
{
    enum { TIMES = 20 };
    int rank = tutti_rank(comm);
    for (int i = 0; i < TIMES; i++) {
        tutti_comm *apart;
        tutti_op op;
        int32_t x = 0;
        float y = 0;
        CHECK(tutti_comm_split(comm, 0, rank, &apart) == TUTTI_OK);
        if (rank == 0) CHECK(tutti_recv_start(apart, &x, 1, TUTTI_I32, 1, 7, NULL, &op) == TUTTI_OK);
        CHECK(tutti_barrier(comm) == TUTTI_OK);
        if (rank == 0) {
            CHECK(tutti_recv(comm, &x, 1, TUTTI_I32, 1, 8, NULL) == TUTTI_OK);
            CHECK(tutti_comm_error(apart) == NULL);
            CHECK(tutti_wait(op) == TUTTI_ERR_MISMATCH);
            says(apart, "rank 0 receives i32 with tag 7");
        } else {
            CHECK(tutti_send(apart, &y, 1, TUTTI_F32, 0, 7) == TUTTI_OK);
            CHECK(tutti_send(comm, &x, 1, TUTTI_I32, 0, 8) == TUTTI_OK);
        }
        tutti_comm_free(apart);
    }
    FAULT_CALL(self, comm, tutti_barrier(comm));
}

static void test_apart(void)
{
    fault_run_body("a message of another type on another comm", break_apart, 2, true, true);
    for (int rank = 0; rank < 2; rank++) CHECK(fault_shared->ranks[rank].steps[0].status == TUTTI_OK);
}

static void test_unmatched(void)
{
    static const size_t counts[] = {1, 1000, 100000};
    for (size_t k = 0; k < 3; k++)
        for (int processes = 0; processes < 2; processes++) {
            the_count = counts[k];
            struct fault_world world = {.size = 3, .processes = processes != 0, .body = wrong_type};
            const struct fault_rank *ranks = fault_shared->ranks;
            check_title("a message of another type, %zu elements, %s", counts[k], processes ? "processes" : "threads");
            fault_run(&world);
            const struct fault_step *step = &ranks[1].steps[0];
            CHECK_THAT(step->status == TUTTI_ERR_MISMATCH && step->error.peer == 0, "%s", step->error.text);
            CHECK_THAT(fault_has(step, "rank 1 receives i32 with tag 7") && fault_has(step, "test_message_faults.c:") &&
                           fault_has(step, "rank 0, which sent f32"),
                       "%s", step->error.text);
            CHECK_THAT(ranks[2].steps[0].status == TUTTI_ERR_MISMATCH, "%s", ranks[2].steps[0].error.text);
            CHECK(ranks[1].steps[1].status == TUTTI_ERR_BROKEN && ranks[2].steps[1].status == TUTTI_ERR_BROKEN);
            fault_time("message: until the error", step->ended_ns - step->began_ns, LIMIT_MS);

            check_title("a message from a rank that left, %zu elements, %s", counts[k],
                        processes ? "processes" : "threads");
            world.body = nothing_comes;
            fault_run(&world);
            for (int rank = 0; rank < 3; rank += 2) {
                step = &ranks[rank].steps[0];
                CHECK_THAT(step->status == TUTTI_ERR_MISMATCH && step->error.peer == 1, "rank %d: %s: %s", rank,
                           tutti_status_name(step->status), step->error.text);
                CHECK_THAT(fault_has(step, "rank 1") && fault_has(step, "left"), "%s", step->error.text);
                fault_time("message: until the error", step->ended_ns - step->began_ns, LIMIT_MS);
            }

            check_title("messages to a rank that left, %zu elements, %s", counts[k],
                        processes ? "processes" : "threads");
            world.body = nobody_takes;
            fault_run(&world);
            int last = ranks[0].steps_done < FAULT_STEPS ? ranks[0].steps_done - 1 : FAULT_STEPS - 1;
            step = &ranks[0].steps[last];
            CHECK_THAT(step->status == TUTTI_ERR_MISMATCH && step->error.peer == 1, "%s: %s",
                       tutti_status_name(step->status), step->error.text);
            CHECK_THAT(ranks[0].steps_done <= 9, "%d sends succeeded", ranks[0].steps_done - 1);
        }
}

/* ---- Death in the middle --------------------------------------------------------------------------------------- */

static int victim;
static int64_t delay_us;

/* Groups of all to all, small and large, until something fails; then the buffers are written to at once. */
static void exchange_until_death(tutti_comm *comm, struct fault_rank *self)
{
    enum { BYTES = 400000 };
    int rank = tutti_rank(comm), size = tutti_size(comm);
    char *out = message_alloc(comm, (size_t)size * BYTES), *in = message_alloc(comm, (size_t)size * BYTES);
    memset(out, rank + 1, (size_t)size * BYTES);
    tutti_status status = TUTTI_OK;
    for (int round = 0; status == TUTTI_OK; round++) {
        size_t bytes = round % 3 == 0 ? 100 : BYTES;
        self->steps_done = 0;
        status = FAULT_CALL(self, comm, tutti_group_begin(comm));
        if (status != TUTTI_OK) break;
        self->steps_done = 0;
        for (int peer = 0; peer < size; peer++) {
            tutti_send(comm, out + (size_t)peer * BYTES, bytes, TUTTI_U8, peer, round % 7);
            tutti_recv(comm, in + (size_t)peer * BYTES, bytes, TUTTI_U8, peer, TUTTI_ANY_TAG, NULL);
        }
        status = FAULT_CALL(self, comm, tutti_group_end(comm));
        for (int peer = 0; status == TUTTI_OK && peer < size; peer++)
            CHECK(in[(size_t)peer * BYTES] == peer + 1 && in[(size_t)peer * BYTES + bytes - 1] == peer + 1);
        memset(in, 99, (size_t)size * BYTES);
        atomic_store(&self->mark, 1);
    }
    for (int i = 0; i < 100; i++) sched_yield();
    bool same = true;
    for (int i = 0; i < size * BYTES; i++) same = same && in[i] == 99;
    CHECK_THAT(same, "rank %d: written to after the error", rank);
    CHECK_THAT(tti_messages_pending(comm) == 0, "%d pending", tti_messages_pending(comm));
    message_free(comm, out);
    message_free(comm, in);
}

static void kill_one(struct fault_world *world)
{
    for (int rank = 0; rank < world->size; rank++) fault_await_mark(rank, 1);
    usleep((useconds_t)delay_us);
    fault_expect_end(victim);
    kill(world->pids[victim], SIGKILL);
    fault_shared->ranks[victim].numbers[0] = fault_now_ns();
}

static void test_deaths(void)
{
    int rounds = SANITIZED ? 3 : 12;
    uint64_t state = seed;
    for (int round = 0; round < rounds; round++) {
        struct fault_world world = {.size = 3, .processes = true, .body = exchange_until_death, .meanwhile = kill_one};
        message_shared = round % 3 != 1;
        if (round % 3 == 2) world.settings[0] = "TUTTI_DIRECT=0";
        victim = (int)(fault_random(&state) % 3);
        delay_us = (int64_t)(fault_random(&state) % 20000);
        check_title("rank %d of 3 killed after %d us in groups, %s memory", victim, (int)delay_us,
                    message_shared ? "shared" : "private");
        fault_run(&world);
        for (int rank = 0; rank < 3; rank++) {
            const struct fault_step *step = fault_shared->ranks[rank].steps; /* the last call */
            if (rank == victim) continue;
            /* broken: by the other survivor, before this rank's call began */
            bool told = step->status == TUTTI_ERR_PEER_LOST || step->status == TUTTI_ERR_BROKEN;
            CHECK_THAT(told && step->error.peer == victim, "rank %d: %s: %s", rank, tutti_status_name(step->status),
                       step->error.text);
            fault_time("death in a group: until a survivor's call ends",
                       step->ended_ns - fault_shared->ranks[victim].numbers[0], 100);
        }
    }
}

/* ---- Death before the data are read ----------------------------------------------------------------------------- */

static bool found_in_look;
static const struct tti_peers_ops *usual;

static void await_end_of(int rank)
{
    char path[64], state = ' ';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)fault_shared->ranks[rank].numbers[0]);
    while (state != 'Z' && state != 'X') {
        FILE *file = fopen(path, "r");
        if (file == NULL) return;
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
        fclose(file);
        usleep(100);
    }
}

/* The message has not come when the wait begins; when it looks who waits for whom, it has, and its sender is no more. */
static void show_late(tutti_comm *comm, const struct tti_wait_record *now, uint64_t stand)
{
    if (atomic_exchange(&fault_shared->ranks[0].mark, 1) == 0) await_end_of(1);
    usual->show_wait(comm, now, stand);
}

static void announce_and_end(tutti_comm *comm, struct fault_rank *self)
{
    enum { FETCHED = 20000 }; /* more than goes at once; so little that the receiver reads it alone */
    static unsigned char x[FETCHED];
    static struct tti_peers_ops late;
    tutti_op op;
    self->numbers[0] = getpid();
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    if (tutti_rank(comm) == 1) {
        if (found_in_look) fault_await_mark(0, 1);
        CHECK(tutti_send_start(comm, x, FETCHED, TUTTI_U8, 0, 7, &op) == TUTTI_OK);
        atomic_store(&self->mark, 1);
        for (;;) pause();
    }
    if (found_in_look) {
        usual = comm->peers;
        late = *usual;
        late.show_wait = show_late;
        comm->peers = &late;
        FAULT_CALL(self, comm, tutti_recv(comm, x, FETCHED, TUTTI_U8, 1, 7, NULL));
        comm->peers = usual;
    } else {
        await_end_of(1);
        CHECK(tutti_recv_start(comm, x, FETCHED, TUTTI_U8, 1, 7, NULL, &op) == TUTTI_OK);
        FAULT_CALL(self, comm, tutti_wait(op));
    }
}

static void kill_announced(struct fault_world *world)
{
    if (!fault_await_mark(1, 1)) return;
    fault_expect_end(1);
    kill(world->pids[1], SIGKILL);
}

static void test_unread(void)
{
    for (int look = 0; look < 2; look++) {
        struct fault_world world = {
            .size = 2, .processes = true, .body = announce_and_end, .meanwhile = kill_announced};
        found_in_look = look != 0;
        check_title("the sender has ended before its data are read%s", look ? ", found by a look at who waits" : "");
        fault_run(&world);
        const struct fault_step *step = fault_shared->ranks[0].steps;
        CHECK_THAT(step->done && step->status == TUTTI_ERR_PEER_LOST && step->error.peer == 1, "%s: %s",
                   tutti_status_name(step->status), step->error.text);
    }
}

/* ---- Started towards each other -------------------------------------------------------------------------------- */

/* Nobody receives. Of both ends the error says what they wait in, and it is the call's own. */
static void send_to_each_other(tutti_comm *comm, struct fault_rank *self)
{
    enum { COUNT = 100000, TAG = 7, TIME_MS = 3000 }; /* on a loaded machine the other one has its turns by then */
    float *data = calloc(COUNT, sizeof *data);
    tutti_op op;
    (void)self;
    fault_meet(comm);
    tutti_status status = tutti_send_start(tutti_within(comm, TIME_MS), data, COUNT, TUTTI_F32, 1 - tutti_rank(comm),
                                           TAG, &op);
    CHECK(status == TUTTI_OK && tutti_wait(op) == TUTTI_ERR_TIMEOUT);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK(error != NULL && strcmp(error->operation, "send") == 0 && error->sequence == 0);
    if (error != NULL)
        CHECK_THAT(strstr(error->text, "in send with tag 7 at ") && strstr(error->text, "waits in send with tag 7 at "),
                   "%s", error->text);
    free(data);
}

/* ---- Buffers that are no memory -------------------------------------------------------------------------------- */

static size_t bad_bytes;
static int bad_rank;
static bool bad_broadcast;

/* Of so many bytes the last page cannot be touched on the bad rank. */
static char *make_buffer(bool bad)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (bad_bytes + 2 * page - 1) / page * page;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || (bad && mprotect(memory + bytes - 2 * page, 2 * page, PROT_NONE) != 0)) abort();
    return memory + (bytes - page - bad_bytes);
}

/* Nobody touches it but by attach, which fails: all are told whose buffer it is, and nothing that would have it touched. */
static void use_bad_buffer(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm);
    char *buffer = make_buffer(rank == bad_rank), words[100];
    (void)self;
    fault_meet(comm);
    if (!comm->traits.can_attach) return; /* here ranks have to copy it themselves */
    tutti_status status = bad_broadcast ? tutti_broadcast(comm, buffer, buffer, bad_bytes, TUTTI_U8, bad_rank)
                          : rank == 1   ? tutti_send(comm, buffer, bad_bytes, TUTTI_U8, 0, 7)
                                        : tutti_recv(comm, buffer, bad_bytes, TUTTI_U8, 1, 7, NULL);
    if (status == TUTTI_OK) status = tutti_barrier(comm); /* its part may have been done */
    const tutti_error *error = tutti_comm_error(comm);
    snprintf(words, sizeof words, "rank %d gave a buffer%s that is not memory of its process", bad_rank,
             bad_broadcast ? "" : " for a message");
    CHECK_THAT(status == TUTTI_ERR_ARGUMENT && error != NULL && error->peer == bad_rank &&
                   strstr(error->text, words) != NULL && strstr(error->text, "TUTTI_") == NULL,
               "rank %d: %s: %s", rank, tutti_status_name(status), error == NULL ? "" : error->text);
}

static void test_bad_buffers(void)
{
    static const size_t sizes[] = {20000, 1 << 20};
    for (int broadcast = 0; broadcast < 2; broadcast++)
        for (size_t i = 0; i < 2; i++)
            for (bad_rank = 0; bad_rank < 2; bad_rank++) {
                bad_broadcast = broadcast != 0;
                bad_bytes = sizes[i] << (bad_broadcast ? 3 : 0);
                char title[80];
                snprintf(title, sizeof title, "%s of %zu bytes, rank %d has them not",
                         broadcast ? "a broadcast" : "a message", bad_bytes, bad_rank);
                fault_run_body(title, use_bad_buffer, 2, true, false);
            }
}

static bool over_tcp;

static void test_started_sends(bool processes)
{
    fault_run_body("started sends to each other", send_to_each_other, 2, processes, over_tcp);
}

int main(void)
{
    fault_begin(115);
    fault_everywhere(test_started_sends, &over_tcp);
    test_bad_buffers();
    test_errors();
    test_breaks();
    test_unmatched();
    test_apart();
    test_deaths();
    test_unread();
    return fault_end();
}
