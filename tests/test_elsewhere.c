/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan waits
 *
 * A rank waits in a message for another that waits for it in a collective: told at once where it is certain, and nowhere
 * else.
 */
#include "fault.h"

#include <signal.h>
#include <stdlib.h>

enum { LIMIT_MS = 1000, LARGE = 300000, SLOW_MS = 250, ASKED_MS = 30 };

static bool over_tcp;
static int peer_of_0; /* whom rank 0's message is to or from */

/* ---- Certain --------------------------------------------------------------------------------------------------- */

typedef tutti_status play(tutti_comm *comm, float *x);

static tutti_status play_recv(tutti_comm *comm, float *x)
{
    return tutti_recv(comm, x, 1, TUTTI_F32, peer_of_0, 3, NULL);
}

static tutti_status play_send(tutti_comm *comm, float *x)
{
    return tutti_send(comm, x, LARGE, TUTTI_F32, peer_of_0, 3);
}

static tutti_status play_probe(tutti_comm *comm, float *x)
{
    tutti_message message;
    (void)x;
    return tutti_probe(comm, peer_of_0, 3, &message);
}

static tutti_status play_sendrecv(tutti_comm *comm, float *x)
{
    return tutti_sendrecv(comm, x, 1, peer_of_0, 3, x + 1, 1, peer_of_0, 4, TUTTI_F32, NULL);
}

static tutti_status play_group(tutti_comm *comm, float *x)
{
    tutti_group_begin(comm);
    for (int peer = 1; peer < tutti_size(comm); peer++) tutti_send(comm, x, 1, TUTTI_F32, peer, 3);
    tutti_recv(comm, x + 1, 1, TUTTI_F32, peer_of_0, 4, NULL);
    return tutti_group_end(comm);
}

static tutti_status play_barrier(tutti_comm *comm, float *x)
{
    (void)x;
    return tutti_barrier(comm);
}

static tutti_status play_all_reduce(tutti_comm *comm, float *x)
{
    return tutti_all_reduce(comm, x, x, LARGE, TUTTI_F32, TUTTI_SUM);
}

static tutti_status play_many(tutti_comm *comm, float *x)
{
    tutti_piece pieces[] = {{x, x, 3}, {x + 3, x + 3, LARGE - 3}};
    return tutti_all_reduce_many(comm, pieces, 2, TUTTI_F32, TUTTI_SUM);
}

static tutti_status play_broadcast(tutti_comm *comm, float *x)
{
    return tutti_broadcast(comm, x, x, 1, TUTTI_F32, 0);
}

static tutti_status play_gather_v(tutti_comm *comm, float *x)
{
    size_t counts[FAULT_RANKS];
    for (int rank = 0; rank < tutti_size(comm); rank++) counts[rank] = 1;
    return tutti_gather_v(comm, x, 1, x + 1, counts, NULL, TUTTI_F32, peer_of_0);
}

/* These wait until rank 0 lets them send. */
static tutti_status play_broadcast_to_0(tutti_comm *comm, float *x)
{
    return tutti_broadcast(comm, x, x, LARGE, TUTTI_F32, peer_of_0);
}

static tutti_status play_gather_to_0(tutti_comm *comm, float *x)
{
    return tutti_gather(comm, x, NULL, LARGE, TUTTI_F32, 0);
}

static const struct pairing {
    const char *message, *collective;
    play *by_0, *by_others;
} pairings[] = {
    {"recv with tag 3", "barrier", play_recv, play_barrier},
    {"send with tag 3", "all_reduce(", play_send, play_all_reduce},
    {"probe with tag 3", "all_reduce_many(", play_probe, play_many},
    {"sendrecv (recv with tag 4)", "broadcast(", play_sendrecv, play_broadcast},
    {"group", "gather_v(", play_group, play_gather_v},
    {"recv with tag 3", "all_reduce(", play_recv, play_all_reduce},
    {"recv with tag 3", "broadcast(", play_recv, play_broadcast_to_0},
    {"recv with tag 3", "gather(", play_recv, play_gather_to_0},
};
static const struct pairing *now;

/* A collective that all call comes first, so that numbers do not begin at 0. */
static void meet_elsewhere(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(LARGE + FAULT_RANKS, sizeof *x);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    fault_meet(comm);
    FAULT_CALL(self, comm, tutti_rank(comm) == 0 ? now->by_0(comm, x) : now->by_others(comm, x));
    FAULT_CALL(self, comm, tutti_barrier(comm)); /* one whose part in the collective ended well learns it here */
    free(x);
}

static void check_told(int size)
{
    for (int rank = 0; rank < size; rank++) {
        const struct fault_step *step = fault_shared->ranks[rank].steps;
        if (step->status == TUTTI_OK) step++;
        CHECK_THAT(step->status == TUTTI_ERR_MISMATCH, "rank %d: %s: %s", rank, tutti_status_name(step->status),
                   step->error.text);
        CHECK_THAT(fault_has(step, "rank 0 waits in %s", now->message) && fault_has(step, " for rank %d", peer_of_0) &&
                       fault_has(step, "rank %d waits in #2 %s", peer_of_0, now->collective) &&
                       fault_has(step, " for rank 0") && fault_has(step, ": none of them can go on"),
                   "rank %d: %s", rank, step->error.text);
        fault_time("a message that meets a collective: until the error", step->ended_ns - step->began_ns, LIMIT_MS);
    }
}

static void run_certain(int size, bool processes, const char *setting)
{
    struct fault_world world = {
        .size = size, .processes = processes, .body = meet_elsewhere, .settings = {"TUTTI_DEADLINE_MS=20000", setting}};
    check_title("rank 0 in %s meets %s) of rank %d; %d %s, %s", now->message, now->collective, peer_of_0, size,
                processes ? "processes" : "threads", setting);
    fault_run(&world);
    check_told(size);
}

static void test_certain(void)
{
    for (size_t i = 0; i < sizeof pairings / sizeof *pairings; i++)
        for (int processes = 0; processes < 2; processes++) {
            if (SANITIZED && i % 2 != (size_t)processes) continue;
            now = &pairings[i];
            peer_of_0 = 1;
            run_certain(2, processes != 0, "TUTTI_TRANSPORT=shm");
            run_certain(2, processes != 0, "TUTTI_TRANSPORT=tcp");
            peer_of_0 = i % 2 == 0 ? 3 : 2;
            run_certain(4, processes != 0, "TUTTI_TRANSPORT=shm");
            run_certain(4, processes != 0, "TUTTI_TRANSPORT=tcp");
            if (processes != 0) run_certain(4, true, "TUTTI_HOST_PROCESSES=2");
        }
}

/* Rank 0 waits in a message for rank 1, which waits for rank 2, which waits in a barrier for any of the two. */
static void meet_in_turn(tutti_comm *comm, struct fault_rank *self)
{
    float x = 0;
    int rank = tutti_rank(comm);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    fault_meet(comm);
    FAULT_CALL(self, comm, rank == 2 ? tutti_barrier(comm) : tutti_recv(comm, &x, 1, TUTTI_F32, rank + 1, 3, NULL));
}

/* Rank 0 waits in a message for rank 1, which waits for rank 2 in a call that rank 2 has not made yet: it waits for rank 0 in
 * one before. */
static void meet_around(tutti_comm *comm, struct fault_rank *self)
{
    float x = 0, all[3];
    int rank = tutti_rank(comm);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    fault_meet(comm);
    if (rank == 1) CHECK(tutti_gather(comm, &x, NULL, 1, TUTTI_F32, 2) == TUTTI_OK);
    FAULT_CALL(self, comm,
               rank == 0   ? tutti_recv(comm, &x, 1, TUTTI_F32, 1, 3, NULL)
               : rank == 1 ? tutti_broadcast(comm, &x, &x, 1, TUTTI_F32, 2)
                           : tutti_gather(comm, &x, all, 1, TUTTI_F32, 2));
}

/* As on hosts with a core for each rank. */
static void keep_to_trees(tutti_comm *comm)
{
    tutti_tuning tuning;
    tutti_tuning_get(comm, &tuning);
    tuning.message_paired = 0;
    CHECK(tutti_tuning_set(comm, &tuning) == TUTTI_OK);
}

/* Rank 2 waits in a message for rank 1, which waits for rank 0, which waits for rank 3 in a call before, which waits for rank
 * 2 in one before that: a broadcast comes to the rank before its root by the second behind it. */
static void meet_far_around(tutti_comm *comm, struct fault_rank *self)
{
    float x = 0;
    int rank = tutti_rank(comm);
    keep_to_trees(comm);
    fault_meet(comm);
    if (rank < 2) CHECK(tutti_broadcast(comm, &x, &x, 1, TUTTI_F32, 0) == TUTTI_OK);
    if (rank == 1) CHECK(tutti_broadcast(comm, &x, &x, 1, TUTTI_F32, 1) == TUTTI_OK);
    if (rank == 2)
        FAULT_CALL(self, comm, tutti_recv(comm, &x, 1, TUTTI_F32, 1, 3, NULL));
    else
        FAULT_CALL(self, comm, tutti_broadcast(comm, &x, &x, 1, TUTTI_F32, rank == 0));
}

/* Two hosts of two ranks: one waits in a message for another, whose call does not need it, but waits for its own host's rank
 * in memory, or for the other host's over tcp, which waits so in turn in the same call. */
static const struct across {
    const char *call;
    bool broadcasts;
    int in_message, from, root;
    size_t count;
} across[] = {
    {"#2 reduce", false, 1, 2, 3, 1},     {"#2 reduce", false, 1, 2, 3, LARGE},   {"#2 reduce", false, 1, 3, 2, 1},
    {"#2 reduce", false, 1, 3, 2, LARGE}, {"#2 broadcast", true, 3, 1, 2, LARGE},
};
static const struct across *chain;

static tutti_status play_across(tutti_comm *comm, float *x)
{
    return chain->broadcasts ? tutti_broadcast(comm, x, x, chain->count, TUTTI_F32, chain->root)
                             : tutti_reduce(comm, x, x, chain->count, TUTTI_F32, TUTTI_SUM, chain->root);
}

static void meet_across(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(LARGE, sizeof *x);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    fault_meet(comm);
    FAULT_CALL(self, comm,
               tutti_rank(comm) == chain->in_message ? tutti_recv(comm, x, 1, TUTTI_F32, chain->from, 3, NULL)
                                                     : play_across(comm, x));
    FAULT_CALL(self, comm, tutti_barrier(comm));
    free(x);
}

static void test_across(void)
{
    for (size_t i = 0; i < sizeof across / sizeof *across; i++) {
        struct fault_world world = {.size = 4,
                                    .processes = true,
                                    .body = meet_across,
                                    .settings = {"TUTTI_HOST_PROCESSES=2", "TUTTI_DEADLINE_MS=20000"}};
        chain = &across[i];
        check_title("%s of %zu to or from rank %d, without rank %d", chain->call, chain->count, chain->root,
                    chain->in_message);
        fault_run(&world);
        for (int rank = 0; rank < 4; rank++) {
            const struct fault_step *step = fault_shared->ranks[rank].steps;
            if (step->status == TUTTI_OK) step++;
            CHECK_THAT(step->status == TUTTI_ERR_MISMATCH &&
                           fault_has(step, "rank %d waits in recv with tag 3 at ", chain->in_message) &&
                           fault_has(step, "rank %d waits in %s(", chain->from, chain->call) &&
                           fault_has(step, ": none of them can go on"),
                       "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
            fault_time("a message that meets a collective: until the error", step->ended_ns - step->began_ns, LIMIT_MS);
        }
    }
}

/* `first`: the rank in the message. */
static void check_around(int size, int first, const char *call)
{
    for (int rank = 0; rank < size; rank++) {
        const struct fault_step *step = fault_shared->ranks[rank].steps;
        CHECK_THAT(step->status == TUTTI_ERR_MISMATCH &&
                       fault_has(step, "rank %d waits in recv with tag 3 at ", first) &&
                       fault_has(step, "rank 1 waits in %s(", call) && fault_has(step, ": none of them can go on"),
                   "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
        fault_time("a message that meets a collective: until the error", step->ended_ns - step->began_ns, LIMIT_MS);
    }
}

static void test_far_around(void)
{
    for (int processes = 0; processes < 2; processes++) {
        struct fault_world world = {.size = 4,
                                    .processes = processes != 0,
                                    .body = meet_far_around,
                                    .settings = {"TUTTI_TRANSPORT=tcp", "TUTTI_DEADLINE_MS=20000"}};
        check_title("a message and three collectives in turn; %s", processes ? "processes" : "threads");
        fault_run(&world);
        check_around(4, 2, "#4 broadcast");
    }
}

static void test_around(void)
{
    for (int way = 0; way < 5; way++) {
        struct fault_world world = {.size = 3, .processes = way % 2 != 0 || way == 4, .body = meet_around};
        world.settings[0] = way < 2   ? "TUTTI_TRANSPORT=shm"
                            : way < 4 ? "TUTTI_TRANSPORT=tcp"
                                      : "TUTTI_HOST_PROCESSES=2";
        world.settings[1] = "TUTTI_DEADLINE_MS=20000";
        check_title("a message and two collectives in turn; %s, %s", world.processes ? "processes" : "threads",
                    world.settings[0]);
        fault_run(&world);
        check_around(3, 0, "#3 broadcast");
    }
}

static void test_in_turn(void)
{
    for (int way = 0; way < 4; way++) {
        struct fault_world world = {.size = 3, .processes = way % 2 != 0, .body = meet_in_turn};
        world.settings[0] = way < 2 ? "TUTTI_TRANSPORT=shm" : "TUTTI_TRANSPORT=tcp";
        world.settings[1] = "TUTTI_DEADLINE_MS=20000";
        check_title("messages in turn meet a barrier; %s, %s", way % 2 ? "processes" : "threads", world.settings[0]);
        fault_run(&world);
        for (int rank = 0; rank < 3; rank++) {
            const struct fault_step *step = fault_shared->ranks[rank].steps;
            CHECK_THAT(step->status == TUTTI_ERR_MISMATCH && fault_has(step, "rank 1 waits in recv with tag 3 at ") &&
                           fault_has(step, "rank 2 waits in #2 barrier at ") &&
                           fault_has(step, ": none of them can go on"),
                       "rank %d: %s: %s", rank, tutti_status_name(step->status), step->error.text);
            fault_time("a message that meets a collective: until the error", step->ended_ns - step->began_ns, LIMIT_MS);
        }
    }
}

/* ---- Not certain, and not so ----------------------------------------------------------------------------------- */

/* Rank 0's own collectives wait for rank 2; rank 1 has ended the first and is in the second. */
static void have_it_started(tutti_comm *comm, struct fault_rank *self)
{
    float x[3] = {0}, y = 0;
    int rank = tutti_rank(comm);
    tutti_op ops[2];
    if (rank == 2) fault_sleep_ms(SLOW_MS);
    if (rank == 0) {
        tutti_gather_start(comm, &y, x, 1, TUTTI_F32, 0, &ops[0]);
        tutti_barrier_start(comm, &ops[1]);
        FAULT_CALL(self, comm, tutti_recv(comm, &y, 1, TUTTI_F32, 1, 0, NULL));
        FAULT_CALL(self, comm, tutti_wait_all(ops, 2));
        return;
    }
    FAULT_CALL(self, comm, tutti_gather(comm, &y, NULL, 1, TUTTI_F32, 0));
    FAULT_CALL(self, comm, tutti_barrier(comm));
    if (rank == 1) FAULT_CALL(self, comm, tutti_send(comm, &y, 1, TUTTI_F32, 0, 0));
}

/* Rank 1 only looks into its collective for a while. */
static void look_in(tutti_comm *comm, struct fault_rank *self)
{
    float y = 0;
    tutti_op op;
    if (tutti_rank(comm) == 1) {
        tutti_barrier_start(comm, &op);
        CHECK(tutti_wait_for(op, SLOW_MS) == TUTTI_IN_PROGRESS);
        FAULT_CALL(self, comm, tutti_send(comm, &y, 1, TUTTI_F32, 0, 0));
        FAULT_CALL(self, comm, tutti_wait(op));
    } else {
        if (tutti_rank(comm) == 0) FAULT_CALL(self, comm, tutti_recv(comm, &y, 1, TUTTI_F32, 1, 0, NULL));
        FAULT_CALL(self, comm, tutti_barrier(comm));
    }
}

/* Rank 1's collective does not need rank 0, only rank 2, which is slow. */
static void need_others(tutti_comm *comm, struct fault_rank *self)
{
    float y = 0;
    int rank = tutti_rank(comm);
    if (rank == 2) fault_sleep_ms(SLOW_MS);
    if (rank == 0) FAULT_CALL(self, comm, tutti_recv(comm, &y, 1, TUTTI_F32, 1, 0, NULL));
    FAULT_CALL(self, comm, tutti_broadcast(comm, &y, &y, 1, TUTTI_F32, 2));
    if (rank == 1) FAULT_CALL(self, comm, tutti_send(comm, &y, 1, TUTTI_F32, 0, 0));
    FAULT_CALL(self, comm, tutti_barrier(comm));
}

/* Rank 2 waits for rank 0, and so does rank 1 soon for rank 2; but rank 0 has its message by then. */
static void go_around(tutti_comm *comm, struct fault_rank *self)
{
    float y = 0, all[3];
    int rank = tutti_rank(comm);
    for (int round = 0; round < 4; round++) {
        if (rank == 1) fault_sleep_ms(ASKED_MS);
        if (rank == 1) FAULT_CALL(self, comm, tutti_gather(comm, &y, NULL, 1, TUTTI_F32, 2));
        if (rank == 1) FAULT_CALL(self, comm, tutti_send(comm, &y, 1, TUTTI_F32, 0, 0));
        if (rank == 0) FAULT_CALL(self, comm, tutti_recv(comm, &y, 1, TUTTI_F32, 1, 0, NULL));
        if (rank == 0) fault_sleep_ms(ASKED_MS);
        if (rank != 1) FAULT_CALL(self, comm, tutti_gather(comm, &y, all, 1, TUTTI_F32, 2));
        FAULT_CALL(self, comm, tutti_broadcast(comm, &y, &y, 1, TUTTI_F32, 2));
    }
}

/* As in meet_far_around, but rank 2 has made the first call before it waits for the message, which comes after the last. */
static void go_far_around(tutti_comm *comm, struct fault_rank *self)
{
    float y = 0, z = 0;
    int rank = tutti_rank(comm);
    keep_to_trees(comm);
    for (int round = 0; round < 4; round++) {
        if (rank == 2) fault_sleep_ms(round % 2 == 0 ? ASKED_MS : SLOW_MS);
        FAULT_CALL(self, comm, tutti_broadcast(comm, &y, &y, 1, TUTTI_F32, 0));
        if (rank == 2) FAULT_CALL(self, comm, tutti_recv(comm, &z, 1, TUTTI_F32, 1, 0, NULL));
        FAULT_CALL(self, comm, tutti_broadcast(comm, &y, &y, 1, TUTTI_F32, 1));
        if (rank == 3) fault_sleep_ms(ASKED_MS);
        FAULT_CALL(self, comm, tutti_broadcast(comm, &y, &y, 1, TUTTI_F32, 0));
        if (rank == 1) FAULT_CALL(self, comm, tutti_send(comm, &z, 1, TUTTI_F32, 2, 0));
    }
}

/* As in meet_across, but the rank makes its call, late, before it waits for the message, which comes late too. */
static void go_across(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(LARGE, sizeof *x);
    int rank = tutti_rank(comm);
    for (size_t i = 0; i < sizeof across / sizeof *across; i++) {
        chain = &across[i];
        if (rank == chain->in_message) fault_sleep_ms(SLOW_MS);
        FAULT_CALL(self, comm, play_across(comm, x));
        if (rank == chain->from) fault_sleep_ms(i % 2 == 0 ? ASKED_MS : SLOW_MS);
        if (rank == chain->from) FAULT_CALL(self, comm, tutti_send(comm, x, 1, TUTTI_F32, chain->in_message, 3));
        if (rank == chain->in_message) FAULT_CALL(self, comm, tutti_recv(comm, x, 1, TUTTI_F32, chain->from, 3, NULL));
    }
    free(x);
}

/* Rank 1 has its message under way and waits in the collective; while it is stopped it cannot take part in it. */
static void have_it_under_way(tutti_comm *comm, struct fault_rank *self)
{
    float *x = calloc(LARGE, sizeof *x);
    int rank = tutti_rank(comm);
    tutti_op op;
    if (rank == 1) {
        tutti_recv_start(comm, x, LARGE, TUTTI_F32, 0, 0, NULL, &op);
        atomic_store(&self->mark, 1);
        FAULT_CALL(self, comm, tutti_barrier(comm));
        FAULT_CALL(self, comm, tutti_wait(op));
    } else {
        if (rank == 0) {
            fault_await_mark(2, 2);
            FAULT_CALL(self, comm, tutti_send(comm, x, LARGE, TUTTI_F32, 1, 0));
        }
        FAULT_CALL(self, comm, tutti_barrier(comm));
    }
    free(x);
}

/* Ranks 0 and 1 wait for each other by turns, in a message and in a collective, long enough to ask what the other does. Over a
 * transport they hear the question, or its answer, only when it does not matter any more. */
static void answer_late(tutti_comm *comm, struct fault_rank *self)
{
    float y = 0;
    int rank = tutti_rank(comm);
    for (int round = 0; round < 4; round++) {
        if (rank == 1) fault_sleep_ms(ASKED_MS); /* rank 0 has asked, out of its message */
        if (rank == 1) FAULT_CALL(self, comm, tutti_send(comm, &y, 1, TUTTI_F32, 0, 0));
        if (rank == 0) FAULT_CALL(self, comm, tutti_recv(comm, &y, 1, TUTTI_F32, 1, 0, NULL));
        if (rank == 0) fault_sleep_ms(ASKED_MS); /* rank 1 has asked back, out of its barrier */
        FAULT_CALL(self, comm, tutti_barrier(comm));
    }
}

static void stop_rank_1(struct fault_world *world)
{
    if (!fault_await_mark(1, 1)) return;
    fault_sleep_ms(SLOW_MS); /* it sleeps by now, or the case is another one that must go well too */
    kill(world->pids[1], SIGSTOP);
    atomic_store(&fault_shared->ranks[2].mark, 2);
    fault_sleep_ms(SLOW_MS);
    kill(world->pids[1], SIGCONT);
}

static void run_well_set(const char *title, fault_body *body, int size, bool processes,
                         void (*meanwhile)(struct fault_world *world), const char *setting)
{
    struct fault_world world = {
        .size = size, .processes = processes, .body = body, .meanwhile = meanwhile, .settings = {setting}};
    check_title("%s; %s, %s", title, processes ? "processes" : "threads", setting);
    fault_run(&world);
    for (int rank = 0; rank < world.size; rank++)
        for (int i = 0; i < fault_shared->ranks[rank].steps_done; i++) {
            const struct fault_step *step = &fault_shared->ranks[rank].steps[i];
            CHECK_THAT(step->status == TUTTI_OK, "rank %d, line %d: %s: %s", rank, step->line,
                       tutti_status_name(step->status), step->error.text);
        }
}

static void run_well(const char *title, fault_body *body, int size, bool processes,
                     void (*meanwhile)(struct fault_world *world))
{
    run_well_set(title, body, size, processes, meanwhile, over_tcp ? "TUTTI_TRANSPORT=tcp" : "TUTTI_TRANSPORT=shm");
}

static void test_uncertain(bool processes)
{
    run_well("the collective was started", have_it_started, 3, processes, NULL);
    run_well("the collective is not waited for to its end", look_in, 3, processes, NULL);
    run_well("the collective does not need the rank", need_others, 3, processes, NULL);
    run_well("the answer comes late", answer_late, 3, processes, NULL);
    run_well("three wait in turn, and go on", go_around, 3, processes, NULL);
    if (over_tcp) run_well("four wait in turn, and go on", go_far_around, 4, processes, NULL);
    if (processes) run_well("the message is under way", have_it_under_way, 3, true, stop_rank_1);
}

int main(void)
{
    fault_begin(55);
    fault_everywhere(test_uncertain, &over_tcp);
    test_certain();
    test_in_turn();
    test_around();
    test_far_around();
    test_across();
    run_well_set("hosts wait in turn, and go on", go_across, 4, true, NULL, "TUTTI_HOST_PROCESSES=2");
    return fault_end();
}
