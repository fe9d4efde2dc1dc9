/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=300 labels=asan,tsan
 *
 * Ranks that die: killed at a random moment of every operation, ended by exit without leaving, or as a thread that ends
 * without returning. Every survivor's operation ends in time with ERR_PEER_LOST about the same rank; inputs are intact,
 * what was reported as success was right, the comm says from then on that it is broken, leaving is quick, and nothing
 * is left behind (fault.c counts descriptors, mappings and children of every process).
 */
#include "fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_MS = 100, LEAVE_MS = 100 };
enum { NUMBER_WRONG, NUMBER_INTACT, NUMBER_CALLS };

enum memory { SHARED, PRIVATE, PRIVATE_NO_ATTACH, NO_DIRECT, MEMORIES };
static const char *const memory_names[] = {"shared", "private", "private, no attach", "not direct"};

static int the_op, victim, second_victim, end_after;
static size_t the_count;
static enum memory the_memory;
static int64_t delay_us;
static int64_t died_ns[FAULT_RANKS];
static uint64_t seed;

/* ---- What ranks do --------------------------------------------------------------------------------------------- */

static void end_here(tutti_comm *comm, int rank);
static void (*end_of_victim)(tutti_comm *comm, int rank) = end_here;

static void end_here(tutti_comm *comm, int rank)
{
    (void)comm, (void)rank;
}

/* Calls until one fails, and once more. */
static void call_until_lost(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    int rank = tutti_rank(comm);
    if (!fault_buffers_make(&buffers, comm, the_count, the_memory == SHARED || the_memory == NO_DIRECT)) return;
    atomic_store(&self->mark, 1);
    tutti_status status = TUTTI_OK;
    for (int64_t call = 0; status == TUTTI_OK; call++) {
        if (end_after >= 0 && call == end_after && rank == victim) {
            fault_buffers_free(&buffers);
            end_of_victim(comm, rank);
        }
        fault_op_spoil(&buffers);
        self->steps_done = 0;
        status = FAULT_CALL(self, comm, fault_op(the_op, &buffers));
        if (status == TUTTI_OK && !fault_op_right(the_op, &buffers)) self->numbers[NUMBER_WRONG]++;
        self->numbers[NUMBER_CALLS] = call;
        if (call == 0) atomic_store(&self->mark, 2);
    }
    self->numbers[NUMBER_INTACT] = fault_inputs_intact(&buffers);
    FAULT_CALL(self, comm, tutti_barrier(comm));
    FAULT_CALL(self, comm, fault_op(the_op, &buffers));
    fault_buffers_free(&buffers);
}

/* ---- What the test does meanwhile ------------------------------------------------------------------------------ */

static void kill_at_random(struct fault_world *world)
{
    for (int rank = 0; rank < world->size; rank++) fault_await_mark(rank, 1);
    if (delay_us > 0) usleep((useconds_t)delay_us);
    fault_expect_end(victim);
    died_ns[victim] = fault_now_ns();
    kill(world->pids[victim], SIGKILL);
    if (second_victim < 0) return;
    fault_expect_end(second_victim);
    kill(world->pids[second_victim], SIGKILL);
}

/* ---- What is demanded ------------------------------------------------------------------------------------------ */

static void check_survivor(int rank, int64_t since_ns, int peer)
{
    const struct fault_rank *self = &fault_shared->ranks[rank];
    const struct fault_step *step = &self->steps[0];
    if (!CHECK_THAT(step->done && self->finished, "rank %d did not end", rank)) return;
    CHECK_THAT(step->status == TUTTI_ERR_PEER_LOST, "rank %d: %s: %s", rank, tutti_status_name(step->status),
               step->error.text);
    CHECK_THAT(step->error.peer == peer, "rank %d: about rank %d, not %d: %s", rank, step->error.peer, peer,
               step->error.text);
    CHECK_THAT(fault_has(step, "rank %d", peer), "rank %d: %s", rank, step->error.text);
    if (since_ns > 0) fault_time("death: until a survivor's call ends", step->ended_ns - since_ns, LIMIT_MS);
    CHECK_THAT(self->numbers[NUMBER_WRONG] == 0, "rank %d: %d of %d successes had wrong data", rank,
               (int)self->numbers[NUMBER_WRONG], (int)self->numbers[NUMBER_CALLS]);
    CHECK_THAT(self->numbers[NUMBER_INTACT] == 1, "rank %d: its input was changed", rank);
    for (int later = 1; later <= 2; later++)
        CHECK_THAT(self->steps[later].status == TUTTI_ERR_BROKEN && fault_has(&self->steps[later], "rank %d", peer),
                   "rank %d: %s: %s", rank, tutti_status_name(self->steps[later].status),
                   self->steps[later].error.text);
    fault_time("death: leaving", self->leave_ns, LEAVE_MS);
}

static void check_survivors(int size)
{
    int peer = victim;
    for (int rank = 0; second_victim >= 0 && rank < size; rank++)
        if (rank != victim && rank != second_victim) peer = fault_shared->ranks[rank].steps[0].error.peer;
    CHECK(peer == victim || peer == second_victim);
    for (int rank = 0; rank < size; rank++)
        if (rank != victim && rank != second_victim) check_survivor(rank, died_ns[victim], peer);
}

/* ---- Killed at a random moment --------------------------------------------------------------------------------- */

static struct fault_world world_of(int size, bool processes)
{
    struct fault_world world = {.size = size, .processes = processes, .body = call_until_lost};
    if (the_memory == PRIVATE_NO_ATTACH) world.settings[0] = "TUTTI_ATTACH=0";
    if (the_memory == NO_DIRECT) world.settings[0] = "TUTTI_DIRECT=0";
    return world;
}

static void kill_one(int op, size_t count, enum memory memory, int size)
{
    the_op = op;
    the_count = count;
    the_memory = memory;
    end_after = -1;
    victim = (int)(fault_random(&seed) % (uint64_t)size);
    second_victim = size == 4 && fault_random(&seed) % 4 == 0 ? (victim + 1) % size : -1;
    delay_us = (int64_t)(fault_random(&seed) % 12) * (int64_t)(fault_random(&seed) % 2000);
    struct fault_world world = world_of(size, true);
    world.meanwhile = kill_at_random;
    check_title("%s of %zu, %s memory, rank %d of %d killed after %lld us%s", fault_op_name(op), count,
                memory_names[memory], victim, size, (long long)delay_us, second_victim >= 0 ? ", and the next" : "");
    fault_run(&world);
    check_survivors(size);
}

static void test_kills(int rounds)
{
    static const size_t counts[] = {2, 500, 1700, 20000, 300000, 1500000};
    int turn = 0;
    for (int round = 0; round < rounds; round++)
        for (int op = 0; op < FAULT_OPS; op++)
            for (int memory = 0; memory < MEMORIES; memory++, turn++) {
                if (SANITIZED && turn % 3 != 0) continue;
                size_t count = counts[fault_random(&seed) % (sizeof counts / sizeof *counts)];
                kill_one(op, count, (enum memory)memory, 2 + (int)(fault_random(&seed) % 3));
            }
}

/* ---- Ended by itself ------------------------------------------------------------------------------------------- */

static void end_by_exit(tutti_comm *comm, int rank)
{
    (void)comm;
    fault_shared->ranks[rank].numbers[0] = fault_now_ns();
    _exit(3);
}

/* With whatever runs at exit. */
static void end_by_long_exit(tutti_comm *comm, int rank)
{
    (void)comm;
    fault_shared->ranks[rank].numbers[0] = fault_now_ns();
    exit(3);
}

static void end_by_abort(tutti_comm *comm, int rank)
{
    (void)comm;
    signal(SIGABRT, SIG_DFL);
    fault_shared->ranks[rank].numbers[0] = fault_now_ns();
    abort();
}

static void end_thread(tutti_comm *comm, int rank)
{
    (void)comm;
    fault_shared->ranks[rank].numbers[0] = fault_now_ns();
    pthread_exit(NULL);
}

static void expect_victim(struct fault_world *world)
{
    (void)world;
    if (world->processes) fault_expect_end(victim);
}

static void end_one(const char *how, void (*end)(tutti_comm *comm, int rank), int op, int size, bool processes)
{
    the_op = op;
    the_memory = SHARED;
    end_of_victim = end;
    end_after = (int)(fault_random(&seed) % 5);
    victim = (int)(fault_random(&seed) % (uint64_t)size);
    second_victim = -1;
    struct fault_world world = world_of(size, processes);
    world.meanwhile = expect_victim;
    check_title("%s of %zu, rank %d of %d %s ends by %s before call %d", fault_op_name(op), the_count, victim, size,
                processes ? "processes" : "threads", how, end_after);
    fault_run(&world);
    died_ns[victim] = fault_shared->ranks[victim].numbers[0];
    check_survivors(size);
}

static void test_ends(void)
{
    static const size_t counts[] = {2, 1700, 100000};
    for (int op = 0; op < FAULT_OPS; op++) {
        the_count = counts[op % 3];
        int size = 2 + op % 3;
        if (SANITIZED && op % 2 != 0) continue;
        end_one("_exit", end_by_exit, op, size, true);
        if (!SANITIZED) end_one("exit", end_by_long_exit, op, size, true);
        if (!SANITIZED) end_one("abort", end_by_abort, op, size, true);
        end_one("pthread_exit", end_thread, op, size, false);
    }
}

/* ---- While a survivor reads the dead rank's memory ------------------------------------------------------------- */

/* Every rank fetches from all others for as long as the buffers are large: death meets cross-memory attach. */
static void test_attach(void)
{
    int rounds = SANITIZED ? 4 : 24;
    for (int round = 0; round < rounds; round++) {
        static const int ops[] = {FAULT_ALL_GATHER, FAULT_ALL_REDUCE, FAULT_BROADCAST, FAULT_SEND};
        kill_one(ops[round % 4], 4000000, PRIVATE, 2 + round % 2);
    }
}

/* [SEED [ROUNDS]] */
int main(int argc, char **argv)
{
    enum { ROUNDS = SANITIZED ? 1 : 3 };
    int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS;
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 20240611;
    printf("seed %llu\n", (unsigned long long)seed);
    fault_begin(280 * (unsigned)(rounds < ROUNDS ? 1 : rounds / ROUNDS));
    test_ends();
    test_attach();
    test_kills(rounds);
    return fault_end();
}
