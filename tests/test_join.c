/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Worlds that form, of threads and of processes, and what can be seen of their ranks' lives.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Worlds that form ------------------------------------------------------------------------------------------ */

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
        ranks_fill(parts, size);
        for (int rank = 0; rank < size; rank++) parts[rank].then = rank_use_world;
        ranks_run(parts, reports, size);
        int64_t slowest = 0;
        for (int rank = 0; rank < size; rank++) {
            CHECK(reports[rank].status == TUTTI_OK);
            if (reports[rank].status != TUTTI_OK) printf("rank %d: %s\n", rank, reports[rank].error.text);
            if (reports[rank].took_ns > slowest) slowest = reports[rank].took_ns;
        }
        printf("%d processes joined within %.2f ms, starting them included\n", size, (double)slowest / 1e6);
    }
    ranks_fill(parts, 3);
    for (int rank = 0; rank < 3; rank++) parts[rank].then = count_fds;
    ranks_run(parts, reports, 3);
}

static void test_alone(void)
{
    struct part part = rank_part(0, 1);
    struct report report;
    struct tti_world *world = rank_join(&part, &report);
    CHECK(report.status == TUTTI_OK && world->size == 1 && strcmp(world->job, part.job) == 0);
    CHECK(tti_world_check_alive(world) == -1);
    tti_world_release(world);
    static const struct {
        const char *job;
        int rank, size;
    } bad[] = {{"", 0, 1}, {NULL, 0, 1}, {"x", 2, 2}, {"x", -1, 2}, {"x", 0, 0}, {"x", 0, 70000}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tutti_options options = rank_options(&part);
        tutti_error error;
        struct tti_member member = {
            .job = bad[i].job, .process = bad[i].rank, .process_count = bad[i].size, .ranks_each = 1};
        CHECK(tti_world_join(&member, &options, 1, &world, &error) == TUTTI_ERR_ARGUMENT);
        CHECK(world == NULL && error.text[0] != '\0');
    }
}

static void test_threads_world(void)
{
    struct part part = rank_part(0, 4);
    tutti_options options = rank_options(&part);
    struct tti_world *world;
    tutti_error error;
    CHECK(tti_world_threads(4, &options, NULL, AREA_BYTES, &world, &error) == TUTTI_OK);
    CHECK(world->size == 4 && world->process_count == 1 && atomic_load(&world->references) == 4);
    CHECK(world->arena->mapping.fd == -1 && world->options.log != options.log);
    void *block = tti_arena_alloc(world->arena, 1000, &error);
    uint64_t offset = (uint64_t)((char *)block - world->arena->mapping.base);
    CHECK(tti_world_translate(world, 0, offset, 1000) == block);
    CHECK(tti_world_first_lost(world) == -1 && tti_world_check_alive(world) == -1);
    tti_world_mark(world, 2, TTI_RANK_LOST);
    tti_world_mark(world, 2, TTI_RANK_LOST);
    CHECK(tti_world_first_lost(world) == 2 && atomic_load(&world->segment->lost_count) == 1);
    for (int i = 0; i < 4; i++) tti_world_release(world);

    options.tuning = "/nonexistent/tuning";
    CHECK(tti_world_threads(1, &options, NULL, 1, &world, &error) == TUTTI_ERR_OPTION && world == NULL);
    for (long allowed = 0;; allowed++) {
        options.tuning = "";
        tti_alloc_fail_after(allowed);
        tutti_status status = tti_world_threads(2, &options, NULL, AREA_BYTES, &world, &error);
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
    struct tti_world *world = rank_join(part, &report);
    if (world == NULL) return (void *)1;
    rank_use_world(world, part);
    tti_world_release(world);
    return NULL;
}

static void test_threads_of_one_process(void)
{
    enum { SIZE = 5 };
    struct part parts[SIZE];
    pthread_t threads[SIZE];
    ranks_fill(parts, SIZE);
    for (int rank = 0; rank < SIZE; rank++) {
        parts[rank].arena_bytes = (size_t)64 << 20;
        CHECK(pthread_create(&threads[rank], NULL, thread_part, &parts[rank]) == 0);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        void *result;
        CHECK(pthread_join(threads[rank], &result) == 0 && result == NULL);
    }
    rank_job_number++;
}

/* Names too long for a socket, alike up to their end; and the same job again and again. */
static void test_two_jobs(void)
{
    struct part parts[6];
    struct report reports[6];
    for (int round = 0; round < 3; round++) {
        ranks_fill(parts, 3);
        ranks_fill(parts + 3, 3);
        for (int i = 0; i < 6; i++) {
            snprintf(parts[i].job, sizeof parts[i].job, "%0110d-%d-%c", 7, (int)getpid(), i < 3 ? 'a' : 'b');
            parts[i].then = rank_use_world;
        }
        ranks_run(parts, reports, 6);
        for (int i = 0; i < 6; i++) CHECK(reports[i].status == TUTTI_OK);
    }
}

/* ---- Liveness -------------------------------------------------------------------------------------------------- */

static void stay(struct tti_world *world, const struct part *part)
{
    (void)part;
    EXPECT(rank_meet(world, 0));
    poll(NULL, 0, BOUND_MS);
}

static int64_t until_lost(struct tti_world *world, int rank)
{
    int64_t start_ns = tti_now_ns();
    while (tti_world_check_alive(world) != rank && tti_now_ns() - start_ns < BOUND_MS * MS) usleep(100);
    return tti_now_ns() - start_ns;
}

static void test_liveness(void)
{
    enum { SIZE = 4 };
    struct part parts[SIZE];
    struct process processes[SIZE];
    struct report report;
    ranks_fill(parts, SIZE);
    for (int rank = 1; rank < SIZE; rank++) {
        parts[rank].then = stay;
        processes[rank] = rank_start(&parts[rank]);
    }
    struct tti_world *world = rank_join(&parts[0], &report);
    CHECK(report.status == TUTTI_OK && world != NULL);
    if (world == NULL) return;
    for (int rank = 1; rank < SIZE; rank++) CHECK(rank_report(&processes[rank]).status == TUTTI_OK);
    CHECK(rank_meet(world, 0) && tti_world_check_alive(world) == -1);

    kill(processes[2].pid, SIGKILL);
    int64_t took = until_lost(world, 2);
    printf("a killed rank was seen after %.2f ms\n", (double)took / 1e6);
    CHECK(took < (100 + SLACK_MS) * MS && tti_world_first_lost(world) == 2);
    CHECK(atomic_load(&world->segment->lost_count) == 1);

    kill(processes[1].pid, SIGSTOP); /* even a stopped one can be killed */
    CHECK(tti_world_check_alive(world) == 2);
    CHECK(tti_world_kill(world, 1, BOUND_MS) && tti_world_first_lost(world) == 1);
    CHECK(tti_world_kill(world, 1, 0)); /* has ended already */

    tti_world_mark(world, 3, TTI_RANK_LEFT); /* one that left is not lost when it ends */
    kill(processes[3].pid, SIGKILL);
    for (int rank = 1; rank < SIZE; rank++) CHECK(rank_finish(&processes[rank]));
    tti_world_check_alive(world);
    CHECK(atomic_load(&world->segment->ranks[3].state) == TTI_RANK_GONE);
    CHECK(atomic_load(&world->segment->lost_count) == 2);
    tti_world_release(world);
    rank_job_number++;
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
        EXPECT(rank_meet(world, round));
        struct tti_world *second = rank_join(&again, &report);
        EXPECT(second != NULL);
        tti_world_release(second);
        if (report.took_ns < best) best = report.took_ns;
    }
    if (part->rank != 0) return;
    printf("%d processes joined in %.2f ms, without starting them\n", part->size, (double)best / 1e6);
    fflush(stdout);
    EXPECT(best < (20 + SLACK_MS) * MS);
}

static void test_speed(int size)
{
    struct part parts[RANKS_MOST];
    struct report reports[RANKS_MOST];
    ranks_fill(parts, size);
    for (int rank = 0; rank < size; rank++) parts[rank].then = join_again;
    for (int rank = 0; rank < size; rank++) parts[rank].arena_bytes = 0;
    ranks_run(parts, reports, size);
    for (int rank = 0; rank < size; rank++) CHECK(reports[rank].status == TUTTI_OK);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_alone();
    test_threads_world();
    test_sizes();
    test_threads_of_one_process();
    test_two_jobs();
    test_liveness();
    test_speed(8);
    if (!SANITIZED) test_speed(64);
    return check_end();
}
