/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of joining a job that both sides share. All or nothing: a rank that cannot join says so to rank 0, and rank
 * 0 to all others.
 */
#include "world/join.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/socket.h"
#include "world/build.h"
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SPARE_FDS = 16, SIZE_MOST = 65536 };

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

int tti_join_first(const struct tti_join *join, int process)
{
    bool known = join->firsts != NULL && process >= 0 && process < join->process_count;
    return known ? join->firsts[process] : process * join->ranks_each;
}

struct tti_ranks_name tti_join_name(const struct tti_join *join, int process)
{
    return tti_ranks_name(tti_join_first(join, process), join->ranks_each);
}

tutti_status tti_join_fail(struct tti_join *join, int process, const char *format, ...)
{
    char text[sizeof join->error->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    join->error->peer = process < 0 ? -1 : tti_join_first(join, process);
    return tti_error_set(join->error, TUTTI_ERR_JOIN, 0, "%s", text);
}

tutti_status tti_join_socket_failed(struct tti_join *join, int why)
{
    struct rlimit limit = {0, 0};
    if (why != EMFILE && why != ENFILE && why != ETOOMANYREFS)
        return tti_error_set(join->error, TUTTI_ERR_SYSTEM, why, "the socket of job %s failed", join->title);
    getrlimit(RLIMIT_NOFILE, &limit);
    return tti_error_set(join->error, TUTTI_ERR_LIMIT, why,
                         "file descriptors ran out while joining job %s; the limit is %llu: raise it (ulimit -n)",
                         join->title, (unsigned long long)limit.rlim_cur);
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
    tutti_status status = tti_join_fail(join, -1, "%.*s", (int)sizeof verdict->text - 1, verdict->text);
    join->error->peer = verdict->peer;
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
    return count - 3; /* without ".", ".." and the folder itself */
}

/* Checks the limit first: reaching it half way would lose descriptors that are under way. */
static tutti_status check_fds(struct tti_join *join)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return TUTTI_OK;
    int used = open_fds(), needed = 2 * join->process_count + SPARE_FDS;
    if (limit.rlim_cur >= (rlim_t)used + (rlim_t)needed) return TUTTI_OK;
    return tti_error_set(
        join->error, TUTTI_ERR_LIMIT, EMFILE,
        "joining %d processes takes up to %d file descriptors, but the limit is %llu and %d are in use; "
        "raise it (ulimit -n %d)",
        join->process_count, needed, (unsigned long long)limit.rlim_cur, used, used + needed);
}

tutti_status tti_join_prepare(struct tti_join *join)
{
    struct tti_world *world;
    size_t bytes = (size_t)join->options->arena_bytes;
    TTI_TRY(check_fds(join));
    int count = join->process_count, size = count * join->ranks_each;
    TTI_TRY(tti_world_new(join->job, size, count, join->options, &world, join->error));
    join->world = world;
    world->process = join->process;
    if (bytes == 0) bytes = tti_arena_default_bytes(count);
    if (join->sequel.arenas != NULL)
        world->arena = tti_arena_hold(join->sequel.arenas[0]);
    else
        TTI_TRY(tti_arena_new(bytes, true, &world->arena, join->error));
    world->processes[join->process] = (struct tti_process){getpid(), -1, world->arena->mapping};
    return TUTTI_OK;
}

static void fill_hello(const struct tti_join *join, tutti_status prepared, struct tti_wire_hello *hello)
{
    memset(hello, 0, sizeof *hello);
    hello->process = join->process;
    hello->process_count = join->process_count;
    hello->ranks_each = join->ranks_each;
    hello->pid = getpid();
    hello->area_bytes = join->area_bytes;
    hello->deadline_ns = join->deadline_ns;
    hello->epoch = join->sequel.epoch;
    hello->whole = join->sequel.whole;
    snprintf(hello->job, sizeof hello->job, "%s", join->job);
    if (prepared == TUTTI_OK)
        hello->arena_bytes = join->world->arena->mapping.bytes;
    else
        tti_join_error_to_verdict(join->error, &hello->trouble);
}

int tti_join_send_hello(const struct tti_join *join, tutti_status prepared, int fd)
{
    struct tti_wire_hello hello;
    int arena = prepared == TUTTI_OK ? join->world->arena->mapping.fd : -1;
    fill_hello(join, prepared, &hello);
    return tti_wire_send(fd, TTI_WIRE_HELLO, &hello, sizeof hello, &arena, arena >= 0, join->deadline_ns);
}

int tti_join_complain(const struct tti_join *join, int fd, struct tti_wire_verdict *verdict)
{
    struct tti_wire_packet packet;
    int why = tti_join_send_hello(join, TUTTI_ERR_JOIN, fd);
    if (why == 0 || why == EPIPE) why = tti_poll_until(fd, POLLIN, join->deadline_ns);
    if (why == 0) why = tti_wire_receive(fd, &packet);
    if (why != 0) return why;
    tti_wire_drop_fds(&packet);
    if (packet.as.head.version != TTI_WIRE_VERSION || packet.as.head.kind != TTI_WIRE_VERDICT) return EBADMSG;
    *verdict = packet.as.verdict;
    return 0;
}

/* ---- The other processes --------------------------------------------------------------------------------------- */

tutti_status tti_join_map_arena(struct tti_join *join, int process, int fd, uint64_t bytes)
{
    return tti_mapping_open(&join->world->processes[process].arena, fd, (size_t)bytes, join->error);
}

/* The pid cannot have become another process's: the root sees any process that ends while joining, since it asks after
 * every process has opened its pidfds. */
tutti_status tti_join_watch(struct tti_join *join, int process, int pid)
{
    struct tti_process *watched = &join->world->processes[process];
    watched->pid = pid;
    if (pid == getpid()) return TUTTI_OK; /* threads of one process may join one by one */
    watched->pidfd = tti_world_pidfd(pid);
    if (watched->pidfd >= 0) return TUTTI_OK;
    if (errno == ESRCH)
        return tti_join_fail(join, process, "%s (process %d) ended while job %s was being joined",
                             tti_join_name(join, process).text, pid, join->title);
    if (errno == EMFILE || errno == ENFILE) return tti_join_socket_failed(join, errno);
    return tti_error_set(join->error, TUTTI_ERR_SYSTEM, errno, "%s (process %d) cannot be watched",
                         tti_join_name(join, process).text, pid);
}

/* ---- Processes that are late ----------------------------------------------------------------------------------- */

#define LATE_NS (INT64_C(5000) * 1000000)

bool tti_join_end_late(struct tti_join *join, int process)
{
    if (!tti_is_sequel(&join->sequel) || join->sequel.attempt != 0 || join->ended_late ||
        tti_board_restarts(&join->board) == 0)
        return false;
    int number = tti_join_first(join, process) / join->ranks_each;
    if (!tti_board_end(join->options->board, join->title, &join->board, number)) return false;
    tti_log(TUTTI_WARN, "%s did not come within %lld ms while job %s was rebuilt: its process is ended",
            tti_join_name(join, process).text, (long long)join->timeout_ms, join->title);
    join->deadline_ns = tti_now_ns() + LATE_NS;
    return true;
}

/* ---- Joining --------------------------------------------------------------------------------------------------- */

static tutti_status check_member(const struct tti_member *member, tutti_error *error)
{
    const char *job = member->job;
    int process = member->process, count = member->process_count, each = member->ranks_each;
    if (job == NULL || job[0] == '\0') return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the job has no name");
    if (strlen(job) >= TTI_WIRE_JOB)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the job's name is longer than %d bytes", TTI_WIRE_JOB - 1);
    if (count < 1 || count > SIZE_MOST || each < 1 || each > SIZE_MOST / count)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a world has 1 to %d ranks, not %lld", SIZE_MOST,
                             (long long)count * each);
    if (process < 0 || process >= count)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "rank %d is not one of a world of %d ranks (0 to %d)",
                             process, count, count - 1);
    return TUTTI_OK;
}

/* Names the socket: processes of another generation, or of an attempt to take some in, wait at another one. */
static const char *name_socket(const struct tti_member *member, char name[TTI_WIRE_JOB])
{
    const struct tti_sequel *sequel = &member->sequel;
    if (sequel->attempt != 0)
        snprintf(name, TTI_WIRE_JOB, "%.130s/%u+%u", member->job, sequel->generation, sequel->attempt);
    else if (sequel->generation != 0)
        snprintf(name, TTI_WIRE_JOB, "%.140s/%u", member->job, sequel->generation);
    else
        return member->job;
    return name;
}

static tutti_status join_alone(const struct tti_member *member, const tutti_options *options, size_t area_bytes,
                               struct tti_world **world, tutti_error *error)
{
    struct tti_board board;
    tti_board_open(&board, options->board, member->job, 1, member->ranks_each);
    bool shared = tti_board_grows(&board);
    tti_board_close(&board);
    TTI_TRY(tti_world_alone(member->ranks_each, options, shared, area_bytes, world, error));
    snprintf((*world)->job, sizeof(*world)->job, "%s", member->job);
    return TUTTI_OK;
}

static void give_up(struct tti_join *join)
{
    struct tti_world *world = join->world;
    if (world == NULL) return;
    for (int i = 0; i < join->ranks_each && world->segment != NULL; i++)
        tti_world_mark(world, join->process * join->ranks_each + i, TTI_RANK_LOST);
    tti_world_release(world);
}

tutti_status tti_world_join(const struct tti_member *member, const tutti_options *options, size_t area_bytes,
                            struct tti_world **world, tutti_error *error)
{
    *world = NULL;
    memset(error, 0, sizeof *error);
    error->peer = -1;
    snprintf(error->operation, sizeof error->operation, "join");
    char name[TTI_WIRE_JOB];
    int64_t timeout_ms = member->sequel.timeout_ms > 0 ? member->sequel.timeout_ms : options->join_timeout_ms;
    struct tti_join join = {.job = member->job,
                            .title = member->title != NULL ? member->title : member->job,
                            .process = member->process,
                            .process_count = member->process_count,
                            .ranks_each = member->ranks_each,
                            .firsts = member->firsts,
                            .area_bytes = area_bytes,
                            .apart = member->apart,
                            .options = options,
                            .sequel = member->sequel,
                            .timeout_ms = timeout_ms,
                            .deadline_ns = tti_now_ns() + timeout_ms * 1000000,
                            .error = error};
    error->rank = tti_join_first(&join, join.process);
    TTI_TRY(check_member(member, error));
    if (member->process_count == 1) return join_alone(member, options, area_bytes, world, error);
    join.job = name_socket(member, name);
    int processes = member->title != NULL ? member->title_processes : member->process_count;
    tti_board_open(&join.board, options->board, join.title, processes, member->ranks_each);
    if (tti_board_restarts(&join.board) > 0) join.board.generation = member->sequel.generation;
    join.board.attempt = member->sequel.attempt;
    tutti_status status = join.process == 0 ? tti_join_root(&join) : tti_join_member(&join);
    tti_board_close(&join.board);
    if (status != TUTTI_OK) {
        give_up(&join);
        return status;
    }
    atomic_store_explicit(&join.world->references, join.ranks_each, memory_order_relaxed);
    *world = join.world;
    return TUTTI_OK;
}
