/* SPDX-License-Identifier: Apache-2.0
 *
 * Joining a job: what both sides do. All or nothing: a rank that cannot join says so to rank 0, and rank 0 to everyone.
 */
#include "world/join.h"

#include "base/clock.h"
#include "base/status.h"
#include "world/build.h"
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SPARE_FDS = 16, SIZE_MOST = 65536 };

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

tutti_status tti_join_fail(struct tti_join *join, int peer, const char *format, ...)
{
    char text[sizeof join->error->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    join->error->peer = peer;
    return tti_error_set(join->error, TUTTI_ERR_JOIN, 0, "%s", text);
}

tutti_status tti_join_socket_failed(struct tti_join *join, int why)
{
    struct rlimit limit = {0, 0};
    if (why != EMFILE && why != ENFILE && why != ETOOMANYREFS)
        return tti_error_set(join->error, TUTTI_ERR_SYSTEM, why, "the socket of job %s failed", join->job);
    getrlimit(RLIMIT_NOFILE, &limit);
    return tti_error_set(join->error, TUTTI_ERR_LIMIT, why,
                         "file descriptors ran out while joining job %s; the limit is %llu: raise it (ulimit -n)",
                         join->job, (unsigned long long)limit.rlim_cur);
}

void tti_join_error_to_verdict(const tutti_error *error, struct tti_wire_verdict *verdict)
{
    memset(verdict, 0, sizeof *verdict);
    verdict->status = error->status;
    verdict->peer = error->peer;
    verdict->system_errno = error->system_errno;
    snprintf(verdict->text, sizeof verdict->text, "%s", error->text);
}

tutti_status tti_join_take_verdict(struct tti_join *join, const struct tti_wire_verdict *verdict)
{
    tutti_status status = tti_join_fail(join, verdict->peer, "%.*s", (int)sizeof verdict->text - 1, verdict->text);
    join->error->system_errno = verdict->system_errno;
    return status;
}

/* ---- Preparing ------------------------------------------------------------------------------------------------- */

static int open_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    if (folder == NULL) return 3;
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count - 3; /* ".", ".." and the folder itself */
}

/* Running into the limit half way would lose descriptors that are under way; so it is looked at first. */
static tutti_status check_fds(struct tti_join *join)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return TUTTI_OK;
    int used = open_fds(), needed = 2 * join->size + SPARE_FDS;
    if (limit.rlim_cur >= (rlim_t)used + (rlim_t)needed) return TUTTI_OK;
    return tti_error_set(join->error, TUTTI_ERR_LIMIT, EMFILE,
                         "joining %d ranks takes up to %d file descriptors, but the limit is %llu and %d are in use; "
                         "raise it (ulimit -n %d)",
                         join->size, needed, (unsigned long long)limit.rlim_cur, used, used + needed);
}

tutti_status tti_join_prepare(struct tti_join *join)
{
    struct tti_world *world;
    size_t bytes = (size_t)join->options->arena_bytes;
    TTI_TRY(check_fds(join));
    TTI_TRY(tti_world_new(join->job, join->size, join->size, join->options, &world, join->error));
    join->world = world;
    world->process = join->rank;
    if (bytes == 0) bytes = tti_arena_default_bytes(join->size);
    TTI_TRY(tti_arena_create(&world->arena, bytes, true, join->error));
    world->processes[join->rank] = (struct tti_process){getpid(), -1, world->arena.mapping};
    return TUTTI_OK;
}

void tti_join_fill_hello(const struct tti_join *join, tutti_status prepared, struct tti_wire_hello *hello)
{
    memset(hello, 0, sizeof *hello);
    hello->rank = join->rank;
    hello->size = join->size;
    hello->pid = getpid();
    hello->area_bytes = join->area_bytes;
    hello->deadline_ns = join->deadline_ns;
    snprintf(hello->job, sizeof hello->job, "%s", join->job);
    if (prepared == TUTTI_OK)
        hello->arena_bytes = join->world->arena.mapping.bytes;
    else
        tti_join_error_to_verdict(join->error, &hello->trouble);
}

int tti_join_send_hello(const struct tti_join *join, tutti_status prepared, int fd)
{
    struct tti_wire_hello hello;
    int arena = prepared == TUTTI_OK ? join->world->arena.mapping.fd : -1;
    tti_join_fill_hello(join, prepared, &hello);
    return tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, &arena, arena >= 0, join->deadline_ns);
}

/* ---- The other ranks ------------------------------------------------------------------------------------------- */

tutti_status tti_join_map_arena(struct tti_join *join, int rank, int fd, uint64_t bytes)
{
    return tti_mapping_open(&join->world->processes[rank].arena, fd, (size_t)bytes, join->error);
}

/* The pid cannot have become another process's: whoever ends while joining is seen by rank 0, which asks after every
 * rank has opened its pidfds. */
tutti_status tti_join_watch(struct tti_join *join, int rank, int pid)
{
    struct tti_process *process = &join->world->processes[rank];
    process->pid = pid;
    if (pid == getpid()) return TUTTI_OK; /* several ranks may be threads of one process */
    process->pidfd = tti_world_pidfd(pid);
    if (process->pidfd >= 0) return TUTTI_OK;
    if (errno == ESRCH)
        return tti_join_fail(join, rank, "rank %d (process %d) ended while job %s was being joined", rank, pid,
                             join->job);
    if (errno == EMFILE || errno == ENFILE) return tti_join_socket_failed(join, errno);
    return tti_error_set(join->error, TUTTI_ERR_SYSTEM, errno, "rank %d (process %d) cannot be watched", rank, pid);
}

/* ---- Joining --------------------------------------------------------------------------------------------------- */

static tutti_status check_arguments(const char *job, int rank, int size, tutti_error *error)
{
    if (job == NULL || job[0] == '\0') return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the job has no name");
    if (strlen(job) >= TTI_WIRE_JOB)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the job's name is longer than %d bytes", TTI_WIRE_JOB - 1);
    if (size < 1 || size > SIZE_MOST)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a world has 1 to %d ranks, not %d", SIZE_MOST, size);
    if (rank < 0 || rank >= size)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "rank %d is not one of a world of %d ranks (0 to %d)", rank,
                             size, size - 1);
    return TUTTI_OK;
}

static tutti_status join_alone(const char *job, const tutti_options *options, size_t area_bytes,
                               struct tti_world **world, tutti_error *error)
{
    TTI_TRY(tti_world_threads(1, options, area_bytes, world, error));
    snprintf((*world)->job, sizeof(*world)->job, "%s", job);
    return TUTTI_OK;
}

tutti_status tti_world_join(const char *job, int rank, int size, const tutti_options *options, size_t area_bytes,
                            struct tti_world **world, tutti_error *error)
{
    *world = NULL;
    memset(error, 0, sizeof *error);
    error->rank = rank;
    error->peer = -1;
    snprintf(error->operation, sizeof error->operation, "join");
    TTI_TRY(check_arguments(job, rank, size, error));
    if (size == 1) return join_alone(job, options, area_bytes, world, error);

    struct tti_join join = {.job = job,
                            .rank = rank,
                            .size = size,
                            .area_bytes = area_bytes,
                            .options = options,
                            .deadline_ns = tti_now_ns() + options->join_timeout_ms * 1000000,
                            .error = error};
    tutti_status status = rank == 0 ? tti_join_root(&join) : tti_join_member(&join);
    if (status == TUTTI_OK) {
        *world = join.world;
    } else if (join.world != NULL) {
        if (join.world->segment != NULL) tti_world_mark(join.world, rank, TTI_RANK_LOST);
        tti_world_release(join.world);
    }
    return status;
}
