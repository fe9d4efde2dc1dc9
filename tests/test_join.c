/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan,tsan processors=2
 *
 * Joining: every rank gets a world, or every rank gets an error that names who is at fault, in time. Each case starts
 * its own processes; each is one rank and reports through a pipe. Nothing is waited for without a bound.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "world/wire.h"
#include "world/world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static int passed, failed;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            passed++;                                                                                                  \
        } else {                                                                                                       \
            failed++;                                                                                                  \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition);                                       \
        }                                                                                                              \
    } while (0)

enum { RANKS_MOST = 80, BOUND_MS = 20000, AREA_BYTES = 12345, LONG_MS = 15000 };

#define MS ((int64_t)1000000)

/* ---- Ranks as processes ---------------------------------------------------------------------------------------- */

/* What one rank is to do. */
struct part {
    char job[TTI_WIRE_JOB];
    int rank, size;
    int64_t timeout_ms;
    size_t area_bytes;
    long allowed; /* allocations before they fail; -1: all succeed */
    size_t limit_fds, limit_space, arena_bytes;
    void (*then)(struct tti_world *world, const struct part *part); /* once joined */
};

/* What it reports. */
struct report {
    tutti_status status;
    int64_t took_ns;
    tutti_error error;
};

struct process {
    pid_t pid;
    int pipe; /* of its report */
};

static int job_number;

static struct part part_of(int rank, int size)
{
    struct part part = {.rank = rank, .size = size, .timeout_ms = LONG_MS, .area_bytes = AREA_BYTES, .allowed = -1};
    part.arena_bytes = (size_t)256 << 20;
    snprintf(part.job, sizeof part.job, "test-%d-%d", (int)getpid(), job_number);
    return part;
}

static void set_limit(__rlimit_resource_t what, size_t limit)
{
    struct rlimit low = {limit, limit};
    if (limit != 0 && setrlimit(what, &low) != 0) _exit(100);
}

static tutti_options options_of(const struct part *part)
{
    tutti_options options = {.struct_size = sizeof options, .job = "", .tuning = "", .log = "warn"};
    options.join_timeout_ms = part->timeout_ms;
    options.arena_bytes = (int64_t)part->arena_bytes;
    return options;
}

static struct tti_world *join_part(const struct part *part, struct report *report)
{
    tutti_options options = options_of(part);
    struct tti_world *world = NULL;
    int64_t start = tti_now_ns();
    report->status = tti_world_join(part->job, part->rank, part->size, &options, part->area_bytes, &world,
                                    &report->error);
    report->took_ns = tti_now_ns() - start;
    return world;
}

static void run_part(const struct part *part, int out)
{
    struct report report = {0};
    set_limit(RLIMIT_NOFILE, part->limit_fds);
    set_limit(RLIMIT_AS, part->limit_space);
    tti_alloc_fail_after(part->allowed);
    struct tti_world *world = join_part(part, &report);
    tti_alloc_fail_after(-1);
    if (write(out, &report, sizeof report) != sizeof report) _exit(101);
    if (world != NULL) {
        if (part->then != NULL) part->then(world, part);
        tti_world_release(world);
    }
    close(out);
    exit(0); /* not _exit: a leak checker wants its say */
}

static struct process start(const struct part *part)
{
    int ends[2];
    struct process process = {.pid = -1, .pipe = -1};
    fflush(stdout);
    if (pipe2(ends, O_CLOEXEC) != 0) return process;
    process.pid = fork();
    if (process.pid == 0) {
        close(ends[0]);
        run_part(part, ends[1]);
    }
    close(ends[1]);
    process.pipe = ends[0];
    return process;
}

/* The rank's report; status IN_PROGRESS when it ended without one, or never came. */
static struct report report_of(struct process *process)
{
    struct report report = {.status = TUTTI_IN_PROGRESS};
    struct pollfd polled = {.fd = process->pipe, .events = POLLIN};
    int64_t deadline = tti_now_ns() + BOUND_MS * MS;
    while (poll(&polled, 1, 1000) <= 0 && tti_now_ns() < deadline) {}
    if (polled.revents == 0 || read(process->pipe, &report, sizeof report) != sizeof report)
        report = (struct report){.status = TUTTI_IN_PROGRESS};
    return report;
}

static bool await_process(struct process *process, int *status)
{
    int64_t deadline = tti_now_ns() + BOUND_MS * MS;
    while (waitpid(process->pid, status, WNOHANG) != process->pid) {
        if (tti_now_ns() > deadline) {
            kill(process->pid, SIGKILL);
            waitpid(process->pid, status, 0);
            return false;
        }
        poll(NULL, 0, 1);
    }
    return true;
}

/* Waits for its end; true if that was in time, and in order or by SIGKILL. */
static bool finish(struct process *process)
{
    int status = 0;
    if (process->pid <= 0) return false;
    bool in_time = await_process(process, &status);
    close(process->pipe);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) printf("a rank ended with %d\n", WEXITSTATUS(status));
    return in_time && (WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
}

static bool has(const struct report *report, const char *words)
{
    if (strstr(report->error.text, words) != NULL) return true;
    printf("expected \"%s\" in: %s\n", words, report->error.text);
    return false;
}

/* Starts all parts and collects all reports, in order. */
static void run_all(const struct part *parts, struct report *reports, int count)
{
    struct process processes[RANKS_MOST];
    for (int i = 0; i < count; i++) processes[i] = start(&parts[i]);
    for (int i = 0; i < count; i++) reports[i] = report_of(&processes[i]);
    for (int i = 0; i < count; i++) CHECK(finish(&processes[i]));
    job_number++;
}

static void fill_parts(struct part *parts, int size)
{
    for (int rank = 0; rank < size; rank++) parts[rank] = part_of(rank, size);
}

/* ---- Worlds that form ------------------------------------------------------------------------------------------ */

/* Meets the others by counting in the area. False if they do not come. */
static bool meet(struct tti_world *world, int at)
{
    _Atomic uint32_t *count = (_Atomic uint32_t *)world->area + at;
    int64_t deadline = tti_now_ns() + BOUND_MS * MS;
    atomic_fetch_add(count, 1);
    while (atomic_load(count) < (uint32_t)world->size) {
        if (tti_now_ns() > deadline) return false;
        poll(NULL, 0, 1);
    }
    return true;
}

static void expect(bool condition, int line)
{
    if (condition) return;
    printf("%s:%d: failed in a rank\n", __FILE__, line);
    fflush(stdout);
    _exit(1);
}
#define EXPECT(condition) expect((condition), __LINE__)

/* Every rank writes to its arena and says where; every rank finds every other's. */
static void use_world(struct tti_world *world, const struct part *part)
{
    tutti_error error;
    uint64_t *offsets = (uint64_t *)((char *)world->area + 4096);
    EXPECT(world->size == part->size && world->process_count == part->size && world->process == part->rank);
    EXPECT(strcmp(world->job, part->job) == 0 && world->segment->area_bytes == AREA_BYTES);
    EXPECT((uintptr_t)world->area % 64 == 0 && world->segment->tuning.chunk > 0);
    EXPECT(world->segment->ranks[part->rank].pid == getpid());
    int *mine = tti_arena_alloc(&world->arena, 8192, &error);
    EXPECT(mine != NULL);
    mine[100] = 1000 + part->rank;
    offsets[part->rank] = (uint64_t)((char *)mine - world->arena.mapping.base);
    EXPECT(meet(world, 0));
    for (int rank = 0; rank < world->size; rank++) {
        EXPECT(atomic_load(&world->segment->ranks[rank].state) != TTI_RANK_LOST);
        EXPECT(world->segment->ranks[rank].process == rank);
        int *theirs = tti_world_translate(world, rank, offsets[rank], 8192);
        EXPECT(theirs != NULL && theirs[100] == 1000 + rank);
    }
    EXPECT(tti_world_translate(world, 0, world->processes[0].arena.bytes, 1) == NULL);
    EXPECT(tti_world_translate(world, 0, UINT64_MAX, 8) == NULL && tti_world_translate(world, -1, 0, 1) == NULL);
    EXPECT(tti_world_translate(world, world->size, 0, 1) == NULL);
    EXPECT(tti_world_check_alive(world) == -1);
    EXPECT(!tti_world_kill(world, part->rank, 1));
    EXPECT(meet(world, 1));
    tti_world_mark(world, part->rank, TTI_RANK_LEFT);
    tti_world_mark(world, part->rank, TTI_RANK_LOST); /* the first mark stands */
    EXPECT(tti_world_check_alive(world) == -1);
}

/* Descriptors that stay: one pidfd per other process, and the arena's own memfd. */
static void count_fds(struct tti_world *world, const struct part *part)
{
    int open = 0, others = 0;
    for (int fd = 0; fd < 1024; fd++) open += fcntl(fd, F_GETFD) != -1;
    for (int rank = 0; rank < world->size; rank++) others += world->processes[rank].pidfd >= 0;
    EXPECT(others == (part->size > 1 ? part->size - 1 : 0));
    tti_world_release(world);
    for (int fd = 0; fd < 1024; fd++) open -= fcntl(fd, F_GETFD) != -1;
    if (open != others + (part->size > 1)) printf("%d descriptors stayed open for %d others\n", open, others);
    fflush(stdout);
    _exit(open != others + (part->size > 1));
}

static void test_sizes(void)
{
    static const int sizes[] = {2, 3, 8, RANKS_MOST};
    struct part parts[RANKS_MOST];
    struct report reports[RANKS_MOST];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int size = sizes[i];
        if (SANITIZED && size > 8) continue;
        fill_parts(parts, size);
        for (int rank = 0; rank < size; rank++) parts[rank].then = use_world;
        run_all(parts, reports, size);
        int64_t slowest = 0;
        for (int rank = 0; rank < size; rank++) {
            CHECK(reports[rank].status == TUTTI_OK);
            if (reports[rank].status != TUTTI_OK) printf("rank %d: %s\n", rank, reports[rank].error.text);
            if (reports[rank].took_ns > slowest) slowest = reports[rank].took_ns;
        }
        printf("%d processes joined within %.2f ms, starting them included\n", size, (double)slowest / 1e6);
    }
    fill_parts(parts, 3);
    for (int rank = 0; rank < 3; rank++) parts[rank].then = count_fds;
    run_all(parts, reports, 3);
}

static void test_alone(void)
{
    struct part part = part_of(0, 1);
    struct report report;
    struct tti_world *world = join_part(&part, &report);
    CHECK(report.status == TUTTI_OK && world->size == 1 && strcmp(world->job, part.job) == 0);
    CHECK(tti_world_check_alive(world) == -1);
    tti_world_release(world);
    static const struct {
        const char *job;
        int rank, size;
    } bad[] = {{"", 0, 1}, {NULL, 0, 1}, {"x", 2, 2}, {"x", -1, 2}, {"x", 0, 0}, {"x", 0, 70000}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tutti_options options = options_of(&part);
        tutti_error error;
        CHECK(tti_world_join(bad[i].job, bad[i].rank, bad[i].size, &options, 1, &world, &error) == TUTTI_ERR_ARGUMENT);
        CHECK(world == NULL && error.text[0] != '\0');
    }
}

static void test_threads_world(void)
{
    struct part part = part_of(0, 4);
    tutti_options options = options_of(&part);
    struct tti_world *world;
    tutti_error error;
    CHECK(tti_world_threads(4, &options, AREA_BYTES, &world, &error) == TUTTI_OK);
    CHECK(world->size == 4 && world->process_count == 1 && atomic_load(&world->references) == 4);
    CHECK(world->arena.mapping.fd == -1 && world->options.log != options.log);
    void *block = tti_arena_alloc(&world->arena, 1000, &error);
    uint64_t offset = (uint64_t)((char *)block - world->arena.mapping.base);
    CHECK(tti_world_translate(world, 0, offset, 1000) == block);
    CHECK(tti_world_first_lost(world) == -1 && tti_world_check_alive(world) == -1);
    tti_world_mark(world, 2, TTI_RANK_LOST);
    tti_world_mark(world, 2, TTI_RANK_LOST);
    CHECK(tti_world_first_lost(world) == 2 && atomic_load(&world->segment->lost_count) == 1);
    for (int i = 0; i < 4; i++) tti_world_release(world);

    options.tuning = "/nonexistent/tuning";
    CHECK(tti_world_threads(1, &options, 1, &world, &error) == TUTTI_ERR_OPTION && world == NULL);
    for (long allowed = 0;; allowed++) {
        options.tuning = "";
        tti_alloc_fail_after(allowed);
        tutti_status status = tti_world_threads(2, &options, AREA_BYTES, &world, &error);
        tti_alloc_fail_after(-1);
        CHECK(status == TUTTI_OK || (status == TUTTI_ERR_MEMORY && world == NULL));
        if (status != TUTTI_OK && allowed < 100) continue;
        CHECK(allowed > 4 && allowed < 100);
        tti_world_release(world);
        tti_world_release(world);
        break;
    }
}

static void *thread_part(void *argument)
{
    const struct part *part = argument;
    struct report report;
    struct tti_world *world = join_part(part, &report);
    if (world == NULL) return (void *)1;
    use_world(world, part);
    tti_world_release(world);
    return NULL;
}

static void test_threads_of_one_process(void)
{
    enum { SIZE = 5 };
    struct part parts[SIZE];
    pthread_t threads[SIZE];
    fill_parts(parts, SIZE);
    for (int rank = 0; rank < SIZE; rank++) {
        parts[rank].arena_bytes = (size_t)64 << 20;
        CHECK(pthread_create(&threads[rank], NULL, thread_part, &parts[rank]) == 0);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        void *result;
        CHECK(pthread_join(threads[rank], &result) == 0 && result == NULL);
    }
    job_number++;
}

/* Names too long for a socket, alike up to their end; and the same job again and again. */
static void test_two_jobs(void)
{
    struct part parts[6];
    struct report reports[6];
    for (int round = 0; round < 3; round++) {
        fill_parts(parts, 3);
        fill_parts(parts + 3, 3);
        for (int i = 0; i < 6; i++) {
            snprintf(parts[i].job, sizeof parts[i].job, "%0110d-%d-%c", 7, (int)getpid(), i < 3 ? 'a' : 'b');
            parts[i].then = use_world;
        }
        run_all(parts, reports, 6);
        for (int i = 0; i < 6; i++) CHECK(reports[i].status == TUTTI_OK);
    }
}

/* ---- Worlds that do not ---------------------------------------------------------------------------------------- */

static void check_errors(const struct report *reports, int count, const char *words, int64_t within_ms)
{
    for (int i = 0; i < count; i++) {
        CHECK(reports[i].status == TUTTI_ERR_JOIN);
        CHECK(has(&reports[i], words));
        CHECK(reports[i].took_ns < within_ms * MS);
    }
}

static void test_missing(void)
{
    struct part parts[8];
    struct report reports[8];
    static const int come[] = {0, 1, 3, 4, 6};
    for (int i = 0; i < 5; i++) {
        parts[i] = part_of(come[i], 8);
        parts[i].timeout_ms = 300;
    }
    run_all(parts, reports, 5);
    check_errors(reports, 5, "ranks 2, 5 and 7 of 8 did not join", 700);

    fill_parts(parts, 3); /* the shortest patience counts for all */
    parts[1].timeout_ms = 200;
    run_all(parts, reports, 2);
    check_errors(reports, 2, "rank 2 of 3 did not join", 700);
    CHECK(reports[0].error.peer == 2 && reports[1].error.peer == 2 && reports[1].error.rank == 1);

    fill_parts(parts, 3); /* rank 0 does not come */
    for (int i = 0; i < 3; i++) parts[i].timeout_ms = 200;
    run_all(parts + 1, reports, 2);
    check_errors(reports, 2, "rank 0 has not opened job", 500);
    CHECK(has(&reports[0], "within 200 ms"));
}

static void test_disagreement(void)
{
    struct part parts[4];
    struct report reports[4];
    fill_parts(parts, 3);
    parts[3] = parts[1];
    for (int i = 0; i < 4; i++) parts[i].timeout_ms = 1000;
    run_all(parts, reports, 4);
    int told = 0; /* the fourth may come when all is over; then it waits in vain, or is one too many in time */
    for (int i = 0; i < 4; i++) told += reports[i].status == TUTTI_ERR_JOIN;
    CHECK(told == 4 || told == 1);
    for (int i = 0; i < 3 && told == 4; i++) CHECK(has(&reports[i], "rank 1 of job"));

    fill_parts(parts, 4); /* rank 3 never comes: rank 1 twice is certain to be seen */
    parts[3] = parts[1];
    run_all(parts, reports, 4);
    check_errors(reports, 4, "is taken twice, by process", 3000);

    fill_parts(parts, 3);
    parts[2].size = 4;
    run_all(parts, reports, 3);
    check_errors(reports, 3, "rank 2 says that job", 3000);
    CHECK(has(&reports[1], "has 4 ranks, rank 0 says 3"));

    fill_parts(parts, 3);
    parts[1].area_bytes++;
    run_all(parts, reports, 3);
    check_errors(reports, 3, "rank 1 of job", 3000);
    CHECK(has(&reports[0], "another version of the library"));

    fill_parts(parts, 3); /* two ranks 0; rank 2 does not come */
    parts[2] = parts[0];
    run_all(parts, reports, 3);
    check_errors(reports, 3, "rank 0 of job", 3000);
    CHECK(has(&reports[0], "is taken twice") && has(&reports[2], "is taken twice"));
}

/* A rank is killed at a moment of its joining; those who are left hear of it at once. */
static void kill_one(int victim, int64_t after_us)
{
    enum { SIZE = 4 };
    struct part parts[SIZE];
    struct process processes[SIZE];
    fill_parts(parts, SIZE);
    for (int rank = 0; rank < SIZE - 1; rank++) processes[rank] = start(&parts[rank]); /* the last one stays away */
    usleep((useconds_t)after_us);
    kill(processes[victim].pid, SIGKILL);
    int64_t killed = tti_now_ns();
    for (int rank = 0; rank < SIZE - 1; rank++) {
        if (rank == victim) continue;
        struct report report = report_of(&processes[rank]);
        CHECK(report.status == TUTTI_ERR_JOIN);
        char words[32];
        snprintf(words, sizeof words, "rank %d ", victim);
        CHECK(has(&report, words));
    }
    CHECK(tti_now_ns() - killed < 2000 * MS);
    for (int rank = 0; rank < SIZE - 1; rank++) CHECK(finish(&processes[rank]));
    job_number++;
}

/* All come, one is killed somewhere on the way: either a world formed, or all the others hear why it did not. */
static void kill_on_the_way(int victim, int64_t after_us)
{
    enum { SIZE = 4 };
    struct part parts[SIZE];
    struct process processes[SIZE];
    struct report reports[SIZE];
    int joined = 0;
    fill_parts(parts, SIZE);
    for (int rank = 0; rank < SIZE; rank++) parts[rank].timeout_ms = 2000;
    for (int rank = 0; rank < SIZE; rank++) processes[rank] = start(&parts[rank]);
    usleep((useconds_t)after_us);
    kill(processes[victim].pid, SIGKILL);
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != victim) reports[rank] = report_of(&processes[rank]);
    for (int rank = 0; rank < SIZE; rank++) {
        if (rank == victim) continue;
        CHECK(reports[rank].status == TUTTI_OK || reports[rank].status == TUTTI_ERR_JOIN);
        CHECK(reports[rank].took_ns < 2500 * MS);
        joined += reports[rank].status == TUTTI_OK;
    }
    CHECK(joined == 0 || joined == SIZE - 1 || victim == 0); /* rank 0 can die in the midst of saying go */
    for (int rank = 0; rank < SIZE; rank++) CHECK(finish(&processes[rank]));
    job_number++;
}

static void test_death(void)
{
    for (int victim = 0; victim < 3; victim++) kill_one(victim, 100000);
    for (int victim = 0; victim < 4; victim += 3)
        for (int64_t after = 0; after < 6000; after += SANITIZED ? 1500 : 400) kill_on_the_way(victim, after);
}

static void test_limits(void)
{
    struct part parts[3];
    struct report reports[3];
    for (int victim = 0; victim < 2; victim++) {
        fill_parts(parts, 3);
        parts[victim].limit_fds = 16;
        run_all(parts, reports, 3);
        CHECK(reports[victim].status == TUTTI_ERR_LIMIT && has(&reports[victim], "ulimit -n"));
        for (int rank = 0; rank < 3; rank++) {
            if (rank == victim) continue;
            CHECK(reports[rank].status == TUTTI_ERR_JOIN && has(&reports[rank], "ulimit -n"));
            CHECK(has(&reports[rank], victim == 0 ? "rank 0 could not join" : "rank 1 could not join"));
            CHECK(reports[rank].error.peer == victim && reports[rank].took_ns < 3000 * MS);
        }
    }
    if (SANITIZED) return; /* sanitizers want address space without bounds */
    fill_parts(parts, 3);
    parts[1].limit_space = (size_t)600 << 20; /* its own arena fits, the others' do not */
    run_all(parts, reports, 3);
    CHECK(reports[1].status == TUTTI_ERR_LIMIT && has(&reports[1], "ulimit -v"));
    CHECK(reports[0].status == TUTTI_ERR_JOIN && has(&reports[0], "rank 1 could not join"));
    CHECK(reports[2].status == TUTTI_ERR_JOIN && has(&reports[2], "ulimit -v"));

    fill_parts(parts, 3); /* unasked, arenas are as small as the limit wants them */
    for (int i = 0; i < 3; i++) parts[i].limit_space = (size_t)600 << 20;
    for (int i = 0; i < 3; i++) parts[i].arena_bytes = 0;
    for (int i = 0; i < 3; i++) parts[i].then = use_world;
    run_all(parts, reports, 3);
    for (int i = 0; i < 3; i++) CHECK(reports[i].status == TUTTI_OK);
}

static void test_countdown(int victim)
{
    struct part parts[3];
    struct report reports[3];
    long allowed = 0;
    for (; allowed < 60; allowed++) {
        fill_parts(parts, 3);
        parts[victim].allowed = allowed;
        run_all(parts, reports, 3);
        if (reports[victim].status == TUTTI_OK) break;
        CHECK(reports[victim].status == TUTTI_ERR_MEMORY);
        for (int rank = 0; rank < 3; rank++) {
            if (rank == victim) continue;
            CHECK(reports[rank].status == TUTTI_ERR_JOIN && reports[rank].took_ns < 3000 * MS);
            CHECK(has(&reports[rank], victim == 0 ? "rank 0 could not join" : "rank 2 could not join"));
        }
    }
    CHECK(allowed > 5 && allowed < 60);
    for (int rank = 0; rank < 3; rank++) CHECK(reports[rank].status == TUTTI_OK);
}

/* Connects to the job's socket as anyone could; -1 until rank 0 is there. */
static int knock(const char *job)
{
    int64_t deadline = tti_now_ns() + BOUND_MS * MS;
    for (;;) {
        int fd = tti_wire_connect(job);
        if (fd >= 0 || tti_now_ns() > deadline) return fd;
        poll(NULL, 0, 1);
    }
}

/* One that says hello and then nothing; another that says a word too much. */
static void test_mute(bool speaks)
{
    struct part part = part_of(0, 2);
    part.timeout_ms = 400;
    struct process root = start(&part);
    int fd = knock(part.job);
    struct tti_mapping arena;
    tutti_error error;
    CHECK(fd >= 0 && tti_mapping_create(&arena, 4096, true, true, &error) == TUTTI_OK);
    struct tti_wire_hello hello = {.rank = 1, .size = 2, .pid = getpid(), .area_bytes = AREA_BYTES};
    hello.arena_bytes = arena.bytes;
    hello.deadline_ns = tti_now_ns() + LONG_MS * MS;
    snprintf(hello.job, sizeof hello.job, "%s", part.job);
    CHECK(tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, &arena.fd, 1, hello.deadline_ns) == 0);
    if (speaks) CHECK(tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, NULL, 0, hello.deadline_ns) == 0);
    struct report report = report_of(&root);
    CHECK(report.status == TUTTI_ERR_JOIN && report.took_ns < 700 * MS && report.error.peer == 1);
    CHECK(has(&report, speaks ? "rank 1 of job" : "came but did not finish joining within 400 ms"));
    CHECK(!speaks || has(&report, "something unexpected"));
    CHECK(finish(&root));
    close(fd);
    tti_mapping_destroy(&arena);
    job_number++;
}

/* ---- Strangers on the socket ----------------------------------------------------------------------------------- */

static void send_garbage(const char *job, int kind)
{
    static char junk[4000];
    int fd = knock(job), fds[1] = {0};
    CHECK(fd >= 0);
    int64_t deadline = tti_now_ns() + 1000 * MS;
    struct tti_wire_verdict verdict = {.status = TUTTI_OK};
    struct tti_wire_hello hello = {.rank = 1, .size = 2};
    memset(junk, 0x41, sizeof junk);
    if (kind == 0) CHECK(send(fd, junk, sizeof junk, MSG_NOSIGNAL) > 0);
    if (kind == 1) CHECK(send(fd, junk, 1, MSG_NOSIGNAL) > 0);
    if (kind == 2) CHECK(tti_wire_send(fd, TTI_WIRE_VERDICT, &verdict, sizeof verdict, fds, 1, deadline) == 0);
    if (kind == 3) CHECK(tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, fds, 0, deadline) == 0);
    if (kind == 4) CHECK(tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, fds, 1, deadline) == 0); /* no job */
    if (kind >= 5) usleep(1000); /* comes, says nothing, goes */
    close(fd);
}

static void test_garbage(void)
{
    struct part parts[2];
    struct process processes[2];
    int silent[100];
    fill_parts(parts, 2);
    parts[0].then = parts[1].then = use_world;
    processes[0] = start(&parts[0]);
    for (int i = 0; i < 100; i++) silent[i] = knock(parts[0].job);
    for (int kind = 0; kind < 6; kind++) send_garbage(parts[0].job, kind);
    processes[1] = start(&parts[1]);
    for (int rank = 0; rank < 2; rank++) {
        struct report report = report_of(&processes[rank]);
        CHECK(report.status == TUTTI_OK);
        if (report.status != TUTTI_OK) printf("%s\n", report.error.text);
        CHECK(finish(&processes[rank]));
    }
    for (int i = 0; i < 100; i++) close(silent[i]);
    job_number++;
}

static void be_nobody(const char *job)
{
    if (setresuid(65534, 65534, 65534) != 0) _exit(0);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "tutti-0-%s", job);
    socklen_t bytes = (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)length);
    for (int i = 0; i < 2000 && connect(fd, (struct sockaddr *)&address, bytes) != 0; i++) usleep(1000);
    struct tti_wire_hello hello = {.rank = 1, .size = 2, .pid = getpid()};
    snprintf(hello.job, sizeof hello.job, "%s", job);
    tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, &fd, 1, tti_now_ns() + 100 * MS);
    char byte;
    _exit(recv(fd, &byte, 1, 0) > 0); /* dropped without a word */
}

/* Another user's connection is dropped, whatever it says. */
static void test_other_user(void)
{
    if (geteuid() != 0) {
        printf("not root: another user's connection is not tested\n");
        return;
    }
    struct part parts[2];
    fill_parts(parts, 2);
    struct process first = start(&parts[0]);
    fflush(stdout);
    struct process nobody = {.pid = fork(), .pipe = -1};
    if (nobody.pid == 0) be_nobody(parts[0].job);
    CHECK(finish(&nobody));
    struct process second = start(&parts[1]);
    CHECK(report_of(&first).status == TUTTI_OK && report_of(&second).status == TUTTI_OK);
    CHECK(finish(&first));
    CHECK(finish(&second));
    job_number++;
}

/* ---- Liveness -------------------------------------------------------------------------------------------------- */

static void stay(struct tti_world *world, const struct part *part)
{
    (void)part;
    EXPECT(meet(world, 0));
    poll(NULL, 0, BOUND_MS);
}

static int64_t until_lost(struct tti_world *world, int rank)
{
    int64_t start_ns = tti_now_ns();
    while (tti_world_check_alive(world) != rank && tti_now_ns() - start_ns < 2000 * MS) usleep(100);
    return tti_now_ns() - start_ns;
}

static void test_liveness(void)
{
    enum { SIZE = 4 };
    struct part parts[SIZE];
    struct process processes[SIZE];
    struct report report;
    fill_parts(parts, SIZE);
    for (int rank = 1; rank < SIZE; rank++) {
        parts[rank].then = stay;
        processes[rank] = start(&parts[rank]);
    }
    struct tti_world *world = join_part(&parts[0], &report);
    CHECK(report.status == TUTTI_OK && world != NULL);
    if (world == NULL) return;
    for (int rank = 1; rank < SIZE; rank++) CHECK(report_of(&processes[rank]).status == TUTTI_OK);
    CHECK(meet(world, 0) && tti_world_check_alive(world) == -1);

    kill(processes[2].pid, SIGKILL);
    int64_t took = until_lost(world, 2);
    printf("a killed rank was seen after %.2f ms\n", (double)took / 1e6);
    CHECK(took < 100 * MS && tti_world_first_lost(world) == 2);
    CHECK(atomic_load(&world->segment->lost_count) == 1);

    kill(processes[1].pid, SIGSTOP); /* even a stopped one can be killed */
    CHECK(tti_world_check_alive(world) == 2);
    CHECK(tti_world_kill(world, 1, 1000) && tti_world_first_lost(world) == 1);
    CHECK(tti_world_kill(world, 1, 0)); /* has ended already */

    tti_world_mark(world, 3, TTI_RANK_LEFT); /* one that left is not lost when it ends */
    kill(processes[3].pid, SIGKILL);
    for (int rank = 1; rank < SIZE; rank++) CHECK(finish(&processes[rank]));
    tti_world_check_alive(world);
    CHECK(atomic_load(&world->segment->ranks[3].state) == TTI_RANK_LEFT);
    CHECK(atomic_load(&world->segment->lost_count) == 2);
    tti_world_release(world);
    job_number++;
}

/* ---- Speed ----------------------------------------------------------------------------------------------------- */

/* Joins once to meet, then again all at the same time: the join without the start of processes. */
static void join_again(struct tti_world *world, const struct part *part)
{
    enum { ROUNDS = 5 };
    int64_t best = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        struct part again = *part;
        struct report report;
        snprintf(again.job, sizeof again.job, "again-%d-%d", round, world->segment->ranks[0].pid);
        EXPECT(meet(world, round));
        struct tti_world *second = join_part(&again, &report);
        EXPECT(second != NULL);
        tti_world_release(second);
        if (report.took_ns < best) best = report.took_ns;
    }
    if (part->rank != 0) return;
    printf("%d processes joined in %.2f ms, without starting them\n", part->size, (double)best / 1e6);
    fflush(stdout);
    EXPECT(SANITIZED || part->size > 8 || best < 20 * MS);
}

static void test_speed(int size)
{
    struct part parts[RANKS_MOST];
    struct report reports[RANKS_MOST];
    fill_parts(parts, size);
    for (int rank = 0; rank < size; rank++) parts[rank].then = join_again;
    for (int rank = 0; rank < size; rank++) parts[rank].arena_bytes = 0;
    run_all(parts, reports, size);
    for (int rank = 0; rank < size; rank++) CHECK(reports[rank].status == TUTTI_OK);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    test_alone();
    test_threads_world();
    test_sizes();
    test_threads_of_one_process();
    test_two_jobs();
    test_missing();
    test_disagreement();
    test_death();
    test_limits();
    for (int victim = 0; victim < 3; victim += 2) test_countdown(victim);
    test_mute(false);
    test_mute(true);
    test_garbage();
    test_other_user();
    test_liveness();
    test_speed(8);
    if (!SANITIZED) test_speed(64);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
