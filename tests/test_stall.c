/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=300 labels=asan,tsan waits
 *
 * Ranks that stall: a deadline ends the others' operation with an error that names the rank, its last operation and how
 * long ago it moved; before that a report of it is logged. Once the error has been returned nobody writes to the buffers
 * of the call any more: a process that might is killed, and what a thread might write to is never handed out again.
 * Waiting costs next to nothing.
 */
#include "collective/comm/comm.h"
#include "fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEADLINE_MS = 300, FENCE_MS = 200, LONG_MS = 30000, ATTEMPTS = 4 };
enum { MARK_READY = 1, MARK_CALLED, MARK_FAILED, MARK_DONE };
enum { NUMBER_TOUCHED, NUMBER_LINE, NUMBER_SHARE, NUMBER_SAME, NUMBER_REPORTS };

static int the_op, victim;
static size_t the_count;
static bool shared_memory, by_option, one_deadline, killed_expected, came_late;
static int64_t delay_us;
static uint64_t seed;

static tutti_comm *bounded(tutti_comm *comm)
{
    if (by_option || (one_deadline && tutti_rank(comm) != (victim + 1) % tutti_size(comm))) return comm;
    return tutti_within(comm, DEADLINE_MS);
}

/* ---- After the error ------------------------------------------------------------------------------------------- */

static unsigned char pattern_of(size_t i)
{
    return (unsigned char)(i * 7 + 3);
}

static void fill_pattern(void *buffer, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)buffer)[i] = pattern_of(i);
}

static bool is_pattern(const void *buffer, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)buffer)[i] != pattern_of(i)) return false;
    return true;
}

/* The call has failed: its output is this rank's own again, whatever the stalled rank does when it goes on. */
static void use_output_again(struct fault_buffers *buffers, struct fault_rank *self)
{
    size_t bytes = (size_t)buffers->size * buffers->count * sizeof *buffers->out;
    fill_pattern(buffers->out, bytes);
    atomic_store(&self->mark, MARK_FAILED);
    for (int i = 0; i < LONG_MS && atomic_load(&fault_shared->go) == 0; i++) usleep(1000);
    self->numbers[NUMBER_TOUCHED] = !is_pattern(buffers->out, bytes);
}

static bool is_stopped(pid_t pid)
{
    char path[32], state = ' ';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    bool read = file != NULL && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    if (file != NULL) fclose(file);
    return read && state == 'T';
}

/* Waits for the survivors to have their error, lets the stopped rank go on, and then has them look. Who was to stop in the call
 * and has not even come to it, on a slow machine, gets an error there. */
static void go_on(struct fault_world *world)
{
    int status;
    for (int rank = 0; rank < world->size; rank++)
        if (rank != victim) fault_await_mark(rank, MARK_FAILED);
    pid_t pid = world->pids[victim];
    bool dead = waitpid(pid, &status, WNOHANG) == pid;
    if (dead) {
        world->pids[victim] = -1;
        fault_shared->ranks[victim].exit_status = status;
        bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        bool late =
            fault_shared->ranks[victim].finished; /* on a slow machine its deadline passed before it was stopped */
        CHECK_THAT(killed || (late && !killed_expected), "status %x", (unsigned)status);
        dead = killed;
    } else if (killed_expected && !is_stopped(pid)) {
        came_late = true;
    } else {
        CHECK_THAT(!killed_expected, "rank %d was in the call and is still alive", victim);
        kill(pid, SIGCONT);
        fault_await_mark(victim, MARK_DONE);
    }
    fault_shared->ranks[victim].numbers[NUMBER_SAME] = dead;
    atomic_store(&fault_shared->go, 1);
}

/* When the first of the survivors made its call: its deadline may be the one that passed. */
static int64_t first_began(int size)
{
    int64_t first = INT64_MAX;
    for (int rank = 0; rank < size; rank++) {
        int64_t began = fault_shared->ranks[rank].steps[0].began_ns;
        if (rank != victim && began < first) first = began;
    }
    return first;
}

static void check_timeout(int rank, int size, bool names_call)
{
    const struct fault_rank *self = &fault_shared->ranks[rank];
    const struct fault_step *step = &self->steps[0];
    if (!CHECK_THAT(step->done, "rank %d did not end", rank)) return;
    CHECK_THAT(step->status == TUTTI_ERR_TIMEOUT, "rank %d: %s: %s", rank, tutti_status_name(step->status),
               step->error.text);
    CHECK_THAT(step->error.peer == victim, "rank %d: about rank %d: %s", rank, step->error.peer, step->error.text);
    CHECK_THAT(fault_has(step, "for rank %d", victim) && fault_has(step, "not moved for ") &&
                   fault_has(step, "%d ms", DEADLINE_MS),
               "%s", step->error.text);
    if (names_call)
        CHECK_THAT(fault_has(step, "; its process is stopped, and rank %d has not moved for ", victim) &&
                       fault_has(step, "rank %d's last call was #1 all_reduce(3 f64, max)", victim) &&
                       fault_has(step, "\"before\"") &&
                       fault_has(step, "test_stall.c:%d", (int)self->numbers[NUMBER_LINE]),
                   "%s", step->error.text);
    int64_t took = step->ended_ns - step->began_ns, since = step->ended_ns - first_began(size);
    CHECK_THAT(since >= (DEADLINE_MS - 2) * INT64_C(1000000), "after %.1f ms", (double)since / 1e6);
    fault_time("stall: until the error, deadline 300 + fence 200", took, DEADLINE_MS + FENCE_MS + 200);
    CHECK_THAT(self->numbers[NUMBER_TOUCHED] == 0, "rank %d: its output was written to after the error", rank);
    CHECK_THAT(self->steps[1].done && self->steps[1].status == TUTTI_ERR_BROKEN && fault_has(&self->steps[1], "waited"),
               "rank %d: %s", rank, self->steps[1].error.text);
}

/* ---- Stopped before entering ----------------------------------------------------------------------------------- */

/* So that what the error says of the victim does not depend on how fast it was. */
static void await_stopped(const tutti_comm *comm)
{
    int ms = 0;
    while (!tti_world_is_stopped(comm->world, victim) && ms++ < LONG_MS) usleep(1000);
    CHECK(ms < LONG_MS);
}

static void stop_before(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    double x[3] = {1, 2, 3}, y[3];
    if (!fault_buffers_make(&buffers, comm, the_count, shared_memory)) return;
    self->numbers[NUMBER_LINE] = __LINE__ + 1;
    CHECK(tutti_all_reduce(tutti_within(tutti_named(comm, "before"), LONG_MS), x, y, 3, TUTTI_F64, TUTTI_MAX) == 0);
    fault_meet(comm);
    if (tutti_rank(comm) == victim) raise(SIGSTOP);
    if (tutti_rank(comm) != victim) await_stopped(comm);
    if (tutti_rank(comm) != victim) bounded(comm);
    FAULT_CALL(self, comm, fault_op(the_op, &buffers));
    if (tutti_rank(comm) != victim) use_output_again(&buffers, self);
    FAULT_CALL(self, comm, tutti_barrier(comm));
    atomic_store(&self->mark, MARK_DONE);
    fault_buffers_free(&buffers);
}

static void run_stopped(fault_body *body, int size, bool names_call)
{
    struct fault_world world = {.size = size, .processes = true, .body = body, .meanwhile = go_on};
    world.settings[0] = "TUTTI_FENCE_MS=200";
    if (by_option) world.settings[1] = "TUTTI_DEADLINE_MS=300";
    int attempts = 0;
    do {
        came_late = false;
        fault_run(&world);
    } while (came_late && ++attempts < ATTEMPTS);
    CHECK(!came_late);
    for (int rank = 0; rank < size; rank++)
        if (rank != victim) check_timeout(rank, size, names_call);
}

static void test_stopped_before(void)
{
    static const size_t counts[] = {2, 1500, 300000};
    killed_expected = false;
    for (int round = 0; round < 12; round++) {
        if (SANITIZED && round % 4 != 0) continue;
        the_op = round < 6 ? FAULT_ALL_REDUCE : FAULT_ALL_TO_ALL;
        the_count = counts[round % 3];
        shared_memory = round % 2 == 0;
        by_option = round % 4 < 2;
        one_deadline = false;
        int size = 2 + round % 2;
        victim = round % size;
        check_title("rank %d of %d stopped before %s of %zu, deadline by %s", victim, size, fault_op_name(the_op),
                    the_count, by_option ? "option" : "tutti_within");
        run_stopped(stop_before, size, true);
        CHECK_THAT(fault_shared->ranks[victim].numbers[NUMBER_SAME] == 0, "it was killed without having entered");
        const struct fault_step *step = &fault_shared->ranks[victim].steps[0];
        CHECK_THAT(step->status == TUTTI_ERR_TIMEOUT && step->error.peer == victim, "%s: %s",
                   tutti_status_name(step->status), step->error.text);
        CHECK(fault_shared->ranks[victim].steps[1].status == TUTTI_ERR_BROKEN);
    }
}

/* ---- Stopped in the middle ------------------------------------------------------------------------------------- */

static _Atomic bool stops_here;

static void add_and_stop(void *context, void *left, const void *right, size_t count, tutti_type type)
{
    (void)context, (void)type;
    if (atomic_exchange(&stops_here, false)) raise(SIGSTOP);
    for (size_t i = 0; i < count; i++) ((float *)left)[i] += ((const float *)right)[i];
}

static void stop_inside(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    tutti_reduction reduction;
    if (!fault_buffers_make(&buffers, comm, the_count, true)) return;
    CHECK(tutti_reduction_register("add_and_stop", add_and_stop, NULL, &reduction, NULL) == TUTTI_OK);
    atomic_store(&stops_here, tutti_rank(comm) == victim);
    fault_meet(comm); /* from here on all are in time but the victim */
    FAULT_CALL(self, comm, tutti_all_reduce(bounded(comm), buffers.in, buffers.out, the_count, TUTTI_F32, reduction));
    CHECK(tutti_rank(comm) == victim || fault_inputs_intact(&buffers));
    use_output_again(&buffers, self);
    FAULT_CALL(self, comm, tutti_barrier(comm));
    fault_buffers_free(&buffers);
}

static void test_stopped_inside(void)
{
    killed_expected = true;
    shared_memory = true;
    for (int round = 0; round < 6; round++) {
        if (SANITIZED && round % 3 != 0) continue;
        int size = 2 + round % 3;
        by_option = round % 2 == 1;
        one_deadline = round >= 3 && !by_option;
        the_count = 1000000;
        victim = (round + 1) % size;
        check_title("rank %d of %d stopped inside a large all_reduce, deadline by %s", victim, size,
                    by_option ? "option" : "tutti_within");
        fault_expect_end(victim);
        run_stopped(stop_inside, size, false);
    }
    one_deadline = false;
}

/* ---- Stopped at a random moment -------------------------------------------------------------------------------- */

static void call_until_late(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    if (!fault_buffers_make(&buffers, comm, the_count, shared_memory)) return;
    atomic_store(&self->mark, MARK_READY);
    tutti_status status = TUTTI_OK;
    while (status == TUTTI_OK) {
        self->steps_done = 0;
        status = FAULT_CALL(self, comm, fault_op(the_op, &buffers));
        atomic_store(&self->mark, MARK_CALLED);
    }
    if (tutti_rank(comm) != victim) use_output_again(&buffers, self);
    FAULT_CALL(self, comm, tutti_barrier(comm));
    atomic_store(&self->mark, MARK_DONE);
    fault_buffers_free(&buffers);
}

static void stop_and_go_on(struct fault_world *world)
{
    for (int rank = 0; rank < world->size; rank++) fault_await_mark(rank, MARK_READY);
    usleep((useconds_t)delay_us);
    kill(world->pids[victim], SIGSTOP);
    go_on(world);
}

static void test_stopped_at_random(void)
{
    static const int ops[] = {FAULT_ALL_REDUCE, FAULT_BROADCAST, FAULT_ALL_GATHER, FAULT_GATHER,
                              FAULT_SCAN,       FAULT_SEND,      FAULT_SENDRECV,   FAULT_REDUCE};
    int rounds = SANITIZED ? 6 : 24, killed = 0;
    by_option = true;
    killed_expected = one_deadline = false;
    for (int round = 0; round < rounds; round++) {
        int size = 2 + (int)(fault_random(&seed) % 2);
        the_op = ops[round % 8];
        the_count = SANITIZED ? 300000 : 2000000;
        shared_memory = round % 4 != 3 || the_op == FAULT_SENDRECV;
        victim = (int)(fault_random(&seed) % (uint64_t)size);
        delay_us = (int64_t)(fault_random(&seed) % 40000);
        struct fault_world world = {.size = size, .processes = true, .body = call_until_late};
        world.meanwhile = stop_and_go_on;
        world.settings[0] = "TUTTI_FENCE_MS=200";
        world.settings[1] = "TUTTI_DEADLINE_MS=300";
        check_title("%s, %s memory, rank %d of %d stopped after %lld us", fault_op_name(the_op),
                    shared_memory ? "shared" : "private", victim, size, (long long)delay_us);
        fault_run(&world);
        killed += fault_shared->ranks[victim].numbers[NUMBER_SAME] != 0;
        for (int rank = 0; rank < size; rank++) {
            const struct fault_rank *self = &fault_shared->ranks[rank];
            if (rank == victim) continue;
            CHECK_THAT(self->steps[0].done && self->steps[0].status == TUTTI_ERR_TIMEOUT, "rank %d: %s: %s", rank,
                       tutti_status_name(self->steps[0].status), self->steps[0].error.text);
            CHECK_THAT(self->numbers[NUMBER_TOUCHED] == 0, "rank %d: its output was written to after the error", rank);
            CHECK_THAT(self->steps[1].status == TUTTI_ERR_BROKEN, "rank %d", rank);
        }
    }
    printf("stopped at a random moment: %d of %d had to be killed by the fence\n", killed, rounds);
}

/* ---- A thread that does not come back -------------------------------------------------------------------------- */

static _Atomic int sleeper;
static _Thread_local bool slept;

/* The first that comes here sleeps until all others have their error. */
static void add_and_sleep(void *context, void *left, const void *right, size_t count, tutti_type type)
{
    (void)context, (void)type;
    int others = atomic_exchange(&sleeper, 0);
    for (int i = 0; i < LONG_MS && atomic_load(&fault_shared->go) < others; i++) usleep(1000);
    slept = slept || others > 0;
    for (size_t i = 0; i < count; i++) ((float *)left)[i] += ((const float *)right)[i];
}

static tutti_reduction sleeping;

static void register_sleeping(void)
{
    CHECK(tutti_reduction_register("add_and_sleep", add_and_sleep, NULL, &sleeping, NULL) == TUTTI_OK);
}

static bool overlap(const void *one, const void *other, size_t bytes)
{
    uintptr_t a = (uintptr_t)one, b = (uintptr_t)other;
    return (a > b ? a - b : b - a) < bytes;
}

/* Whichever rank reduces first sleeps in the function; the other has a deadline. */
static void sleep_inside(tutti_comm *comm, struct fault_rank *self)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct fault_buffers buffers;
    pthread_once(&once, register_sleeping);
    atomic_store(&sleeper, tutti_size(comm) - 1);
    fault_catch_log();
    if (!fault_buffers_make(&buffers, comm, the_count, true)) return;
    size_t bytes = (size_t)buffers.size * the_count * sizeof *buffers.out;
    fault_meet(comm);
    tutti_comm *limited = tutti_within(comm, DEADLINE_MS);
    FAULT_CALL(self, comm, tutti_all_reduce(limited, buffers.in, buffers.out, the_count, TUTTI_F32, sleeping));
    const void *in = buffers.in, *out = buffers.out;
    fault_buffers_free(&buffers);
    if (slept) return;
    self->numbers[NUMBER_LINE] = 1;
    for (int i = 0; i < 8; i++) {
        void *again = tutti_alloc(comm, bytes);
        CHECK(again != NULL);
        self->numbers[NUMBER_SAME] |= overlap(again, in, bytes) || overlap(again, out, bytes);
    }
    atomic_fetch_add(&fault_shared->go, 1);
}

/* On a slow machine the deadline may pass before anybody reduces: then once more. */
static void run_sleeping(int size)
{
    struct fault_world world = {.size = size, .body = sleep_inside};
    world.settings[0] = "TUTTI_FENCE_MS=200";
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int64_t awake = 0;
        fault_run(&world);
        for (int rank = 0; rank < size; rank++) awake += fault_shared->ranks[rank].numbers[NUMBER_LINE];
        if (awake < size) return;
    }
}

static void test_sleeping_thread(void)
{
    the_count = 500000;
    for (int size = 2; size <= 3; size++) {
        check_title("a thread of %d sleeps in a reduction", size);
        run_sleeping(size);
        int awake = 0;
        for (int rank = 0; rank < size; rank++) {
            const struct fault_rank *self = &fault_shared->ranks[rank];
            CHECK_THAT(self->steps[0].status == TUTTI_ERR_TIMEOUT, "rank %d: %s: %s", rank,
                       tutti_status_name(self->steps[0].status), self->steps[0].error.text);
            if (self->numbers[NUMBER_LINE] == 0) continue;
            awake++;
            CHECK_THAT(self->numbers[NUMBER_SAME] == 0, "rank %d: what may still be written to was handed out", rank);
            CHECK_THAT(fault_has(&self->steps[0], "do not reuse"), "%s", self->steps[0].error.text);
            fault_time("a sleeping thread: deadline 300 + fence 200", self->steps[0].ended_ns - self->steps[0].began_ns,
                       DEADLINE_MS + FENCE_MS);
        }
        CHECK_THAT(awake == size - 1, "%d ranks ended before the sleeper", awake);
    }
}

/* ---- Giving up while the other reads --------------------------------------------------------------------------- */

enum who { SENDER, RECEIVER, THIRD };
static enum who gives_up;

/* Bytes of the sender's buffer are 1, those of the others' 2. */
static bool has_arrived(const char *buffer, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 1024)
        if (buffer[i] != 1) return false;
    return true;
}

/* A message (or a broadcast) that takes longer than a deadline of one of its two ranks or of a third one; whoever gets
 * the error takes its buffer away at once. That must not pull it from under the other's feet, and what was cut short
 * must not be taken for a success. */
static void give_up(tutti_comm *comm, struct fault_rank *self)
{
    size_t bytes = (size_t)96 << 20, count = bytes / sizeof(float);
    int rank = tutti_rank(comm);
    char *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(buffer != MAP_FAILED)) return;
    madvise(buffer, bytes, MADV_NOHUGEPAGE);
    /* each side of a message copies half: the one that has no deadline finds its target's pages missing, and is slow */
    if (rank == 0) memset(buffer, 1, bytes);
    if (rank == 1) memset(buffer + (gives_up == SENDER ? bytes / 2 : 0), 2, bytes / 2);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    fault_meet(comm);
    if (rank == (int)gives_up) tutti_within(comm, gives_up == THIRD ? 5 : 1);
    if (rank == 2)
        FAULT_CALL(self, comm, tutti_barrier(comm));
    else if (the_op == FAULT_BROADCAST)
        FAULT_CALL(self, comm, tutti_broadcast(comm, buffer, buffer, count, TUTTI_F32, 0));
    else if (rank == 0)
        FAULT_CALL(self, comm, tutti_send(comm, buffer, count, TUTTI_F32, 1, 0));
    else
        FAULT_CALL(self, comm, tutti_recv(comm, buffer, count, TUTTI_F32, 0, 0, NULL));
    if (rank == 1 && self->steps[0].status == TUTTI_OK) CHECK_THAT(has_arrived(buffer, bytes), "a part did not arrive");
    munmap(buffer, bytes);
}

static void test_giving_up(void)
{
    static const char *const names[] = {"sender", "receiver", "third rank"};
    int rounds = SANITIZED ? 8 : 32;
    for (int round = 0; round < rounds; round++) {
        struct fault_world world = {.body = give_up};
        world.processes = round % 8 == 3;
        world.joins = round % 8 == 4;
        the_op = round % 4 == 0 ? FAULT_BROADCAST : FAULT_SEND;
        gives_up = the_op == FAULT_BROADCAST ? SENDER : (enum who)(round % 4 - 1);
        world.size = gives_up == THIRD ? 3 : 2;
        check_title("%s of 96 MiB, %s, the %s gives up", the_op == FAULT_BROADCAST ? "broadcast" : "message",
                    world.processes ? "processes" : (world.joins ? "joined threads" : "threads"), names[gives_up]);
        fault_run(&world); /* nobody crashes */
        for (int rank = 0; rank < world.size; rank++) {
            const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
            /* the third rank's barrier: the others may also have ended theirs, and left */
            bool left = rank == 2 && step->status == TUTTI_ERR_MISMATCH;
            CHECK_THAT(step->done && (step->status == TUTTI_OK || step->status == TUTTI_ERR_TIMEOUT || left), "%s: %s",
                       tutti_status_name(step->status), step->error.text);
        }
    }
}

/* ---- The report ------------------------------------------------------------------------------------------------ */

/* Waits for the first report, and some time more. */
static int reports_after(int64_t ms)
{
    for (int i = 0; i < LONG_MS && atomic_load(&fault_shared->log.count) == 0; i++) usleep(1000);
    fault_sleep_ms(ms);
    return atomic_load(&fault_shared->log.count);
}

static void come_late(tutti_comm *comm, struct fault_rank *self)
{
    float x = 1, y;
    self->numbers[NUMBER_LINE] = __LINE__ + 1;
    CHECK(tutti_all_reduce(tutti_named(comm, "first"), &x, &y, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    fault_meet(comm); /* on a slow machine there may have been a report of this */
    fault_catch_log();
    if (tutti_rank(comm) == victim) self->numbers[NUMBER_REPORTS] = reports_after(300);
    if (the_op == FAULT_SEND && tutti_rank(comm) == victim)
        FAULT_CALL(self, comm, tutti_send(comm, &x, 1, TUTTI_F32, 1 - victim, 0));
    else if (the_op == FAULT_SEND)
        FAULT_CALL(self, comm, tutti_recv(comm, &y, 1, TUTTI_F32, victim, 0, NULL));
    else
        FAULT_CALL(self, comm, tutti_barrier(comm));
    FAULT_CALL(self, comm, tutti_barrier(comm)); /* nobody leaves before all is said */
}

static void test_report(void)
{
    for (int processes = 0; processes < 2; processes++)
        for (int message = 0; message < 2; message++) {
            struct fault_world world = {.size = 2, .processes = processes != 0, .body = come_late};
            char words[128];
            world.settings[0] = "TUTTI_STALL_REPORT_MS=200";
            victim = processes;
            the_op = message ? FAULT_SEND : FAULT_BARRIER;
            check_title("a report of a late %s in %s", processes ? "process" : "thread", message ? "recv" : "barrier");
            fault_run(&world);
            const struct fault_rank *waiter = &fault_shared->ranks[1 - victim];
            const char *line = fault_shared->log.lines[0];
            CHECK_THAT(waiter->steps[0].status == TUTTI_OK && waiter->steps[1].status == TUTTI_OK, "%s",
                       waiter->steps[0].error.text);
            int64_t reports = fault_shared->ranks[victim].numbers[NUMBER_REPORTS];
            CHECK_THAT(reports == 1, "%d reports: %s", (int)reports, line); /* one per wait */
            snprintf(words, sizeof words, "rank %d has waited ", 1 - victim);
            CHECK_THAT(fault_logged(words), "%s", line);
            snprintf(words, sizeof words, " s in %s", message ? "recv" : "#2 barrier");
            CHECK_THAT(fault_logged(words), "%s", line);
            snprintf(words, sizeof words, " for rank %d; ", victim);
            CHECK_THAT(fault_logged(words), "%s", line);
            snprintf(words, sizeof words, "rank %d's last call was #1 all_reduce(1 f32, sum) \"first\" at", victim);
            CHECK_THAT(fault_logged(words), "%s", line);
            snprintf(words, sizeof words, "test_stall.c:%d", (int)waiter->numbers[NUMBER_LINE]);
            CHECK_THAT(fault_logged(words) && fault_logged("not moved for "), "%s", line);
            if (processes && !message) printf("a report: %s\n", line);
        }
}

/* ---- What waiting costs ---------------------------------------------------------------------------------------- */

enum { WAITED_MS = 1200 };

static int64_t cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static void wait_long(tutti_comm *comm, struct fault_rank *self)
{
    struct fault_buffers buffers;
    if (!fault_buffers_make(&buffers, comm, the_count, true)) return;
    if (the_op != FAULT_SEND) CHECK(tutti_barrier(comm) == TUTTI_OK);
    if (tutti_rank(comm) == victim) fault_sleep_ms(WAITED_MS);
    int64_t used = cpu_ns();
    tutti_status status = FAULT_CALL(self, comm, fault_op(the_op, &buffers));
    used = cpu_ns() - used;
    CHECK_THAT(status == TUTTI_OK, "%s", self->steps[0].error.text);
    self->numbers[NUMBER_SHARE] = used * 1000000 / (self->steps[0].ended_ns - self->steps[0].began_ns);
    fault_buffers_free(&buffers);
}

static void test_cost(void)
{
    static const struct {
        int op;
        size_t count;
    } waits[] = {{FAULT_BARRIER, 1},
                 {FAULT_ALL_REDUCE, 2},
                 {FAULT_ALL_REDUCE, 100000},
                 {FAULT_SEND, 2},
                 {FAULT_SENDRECV, 100000}};
    for (int processes = 0; processes < 2; processes++)
        for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
            if (SANITIZED && i > 0) continue;
            struct fault_world world = {.size = 3, .processes = processes != 0, .body = wait_long};
            the_op = waits[i].op;
            the_count = waits[i].count;
            victim = 0;
            check_title("waiting %d ms in %s of %zu, %s", WAITED_MS, fault_op_name(the_op), the_count,
                        processes ? "processes" : "threads");
            fault_run(&world);
            for (int rank = 1; rank < 3; rank++) {
                double share = (double)fault_shared->ranks[rank].numbers[NUMBER_SHARE] / 1e4;
                printf("%s: rank %d used %.3f%% of a core\n", check_titled(), rank, share);
                CHECK_THAT(share < (SANITIZED ? 20 : 5), "rank %d used %.3f%% of a core", rank, share);
            }
        }
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 20240611;
    printf("seed %llu\n", (unsigned long long)seed);
    fault_begin(280);
    test_report();
    test_stopped_before();
    test_stopped_inside();
    test_stopped_at_random();
    test_sleeping_thread();
    test_giving_up();
    test_cost();
    return fault_end();
}
