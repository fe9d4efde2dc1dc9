/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int rank_job_number;

struct part rank_part(int rank, int size)
{
    struct part part = {.rank = rank, .size = size, .timeout_ms = LONG_MS, .area_bytes = AREA_BYTES, .allowed = -1};
    part.arena_bytes = (size_t)256 << 20;
    snprintf(part.job, sizeof part.job, "test-%d-%d", (int)getpid(), rank_job_number);
    return part;
}

static void set_limit(__rlimit_resource_t what, size_t limit)
{
    struct rlimit low = {limit, limit};
    if (limit != 0 && setrlimit(what, &low) != 0) _exit(100);
}

tutti_options rank_options(const struct part *part)
{
    tutti_options options = {.struct_size = sizeof options, .job = "", .tuning = "", .log = "warn"};
    options.join_timeout_ms = part->timeout_ms;
    options.arena_bytes = (int64_t)part->arena_bytes;
    return options;
}

struct tti_world *rank_join(const struct part *part, struct report *report)
{
    tutti_options options = rank_options(part);
    struct tti_world *world = NULL;
    int64_t start = tti_now_ns();
    struct tti_member member = {.job = part->job, .process = part->rank, .process_count = part->size, .ranks_each = 1};
    report->status = tti_world_join(&member, &options, part->area_bytes, &world, &report->error);
    report->took_ns = tti_now_ns() - start;
    return world;
}

static void run_part(const struct part *part, int out)
{
    struct report report = {0};
    set_limit(RLIMIT_NOFILE, part->limit_fds);
    set_limit(RLIMIT_AS, part->limit_space);
    tti_alloc_fail_after(part->allowed);
    struct tti_world *world = rank_join(part, &report);
    tti_alloc_fail_after(-1);
    if (write(out, &report, sizeof report) != sizeof report) _exit(101);
    if (world != NULL) {
        if (part->then != NULL) part->then(world, part);
        tti_world_release(world);
    }
    close(out);
    exit(0); /* not _exit: a leak checker wants its say */
}

struct process rank_start(const struct part *part)
{
    int ends[2];
    struct process process = {.pid = -1, .pipe = -1};
    if (pipe2(ends, O_CLOEXEC) != 0) return process;
    process.pid = world_fork(2 * BOUND_MS / 1000);
    if (process.pid == 0) {
        close(ends[0]);
        run_part(part, ends[1]);
    }
    close(ends[1]);
    process.pipe = ends[0];
    return process;
}

struct report rank_report(struct process *process)
{
    struct report report = {.status = TUTTI_IN_PROGRESS};
    struct pollfd polled = {.fd = process->pipe, .events = POLLIN};
    int64_t deadline = tti_now_ns() + BOUND_MS * MS;
    while (poll(&polled, 1, 1000) <= 0 && tti_now_ns() < deadline) {}
    if (polled.revents == 0 || read(process->pipe, &report, sizeof report) != sizeof report)
        report = (struct report){.status = TUTTI_IN_PROGRESS};
    return report;
}

bool rank_finish(struct process *process)
{
    struct world_process awaited = {.pid = process->pid};
    if (process->pid <= 0) return false;
    bool in_time = world_await(&awaited, 1, &(struct world_watch){.limit_ms = BOUND_MS}) == 0;
    int status = awaited.status;
    close(process->pipe);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) printf("a rank ended with %d\n", WEXITSTATUS(status));
    return in_time && (WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
}

void ranks_run(const struct part *parts, struct report *reports, int count)
{
    struct process processes[RANKS_MOST];
    for (int i = 0; i < count; i++) processes[i] = rank_start(&parts[i]);
    for (int i = 0; i < count; i++) reports[i] = rank_report(&processes[i]);
    for (int i = 0; i < count; i++) CHECK(rank_finish(&processes[i]));
    rank_job_number++;
}

void ranks_fill(struct part *parts, int size)
{
    for (int rank = 0; rank < size; rank++) parts[rank] = rank_part(rank, size);
}

bool rank_meet(struct tti_world *world, int at)
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

void rank_expect(bool condition, const char *file, int line)
{
    if (condition) return;
    printf("%s:%d: failed in a rank\n", file, line);
    fflush(stdout);
    _exit(1);
}
void rank_use_world(struct tti_world *world, const struct part *part)
{
    tutti_error error;
    uint64_t *offsets = (uint64_t *)((char *)world->area + 4096);
    EXPECT(world->size == part->size && world->process_count == part->size && world->process == part->rank);
    EXPECT(strcmp(world->job, part->job) == 0 && world->segment->area_bytes == AREA_BYTES);
    EXPECT((uintptr_t)world->area % 64 == 0 && world->segment->tuning.chunk > 0);
    EXPECT(world->segment->ranks[part->rank].pid == getpid());
    int *mine = tti_arena_alloc(world->arena, 8192, &error);
    EXPECT(mine != NULL);
    mine[100] = 1000 + part->rank;
    offsets[part->rank] = (uint64_t)((char *)mine - world->arena->mapping.base);
    EXPECT(rank_meet(world, 0));
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
    EXPECT(rank_meet(world, 1));
    tti_world_mark(world, part->rank, TTI_RANK_LEFT);
    tti_world_mark(world, part->rank, TTI_RANK_LOST); /* the first mark stands */
    EXPECT(tti_world_check_alive(world) == -1);
}
