/* SPDX-License-Identifier: Apache-2.0
 *
 * A world once it is formed: marks, liveness, addresses. join.c says how processes form one.
 */
#include "world/world.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/options.h"
#include "base/round.h"
#include "base/sim.h"
#include "base/status.h"
#include "base/wait.h"
#include "transport/socket.h"
#include "world/board.h"
#include "world/build.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEGMENT_MAGIC 0x1074756974757474u
#define AREA_ALIGN ((size_t)4096)

enum { POLLED_AT_ONCE = 64 };

/* ---- Building -------------------------------------------------------------------------------------------------- */

/* Copies a text, since the caller's strings may be freed. */
static tutti_status copy_text(struct tti_world *world, int at, const char *name, const char **text, tutti_error *error)
{
    const char *from = *text != NULL ? *text : "";
    if (strlen(from) >= sizeof world->option_text[at])
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "the option %s is longer than %zu bytes", name,
                             sizeof world->option_text[at] - 1);
    strcpy(world->option_text[at], from);
    *text = world->option_text[at];
    return TUTTI_OK;
}

static tutti_status copy_options(struct tti_world *world, const tutti_options *options, tutti_error *error)
{
    int at = 0;
    world->options = *options;
#define COPY_INT(name)
#define COPY_MS(name)
#define COPY_BYTES(name)
#define COPY_BOOL(name)
#define COPY_TEXT(name) TTI_TRY(copy_text(world, at++, #name, &world->options.name, error));
#define COPY_OPTION(name, kind, initial, low, high, help) COPY_##kind(name)
    TUTTI_OPTION_LIST(COPY_OPTION)
#undef COPY_OPTION
    return TUTTI_OK;
}

tutti_status tti_world_new(const char *job, int size, int process_count, const tutti_options *options,
                           struct tti_world **world, tutti_error *error)
{
    struct tti_world *made = tti_calloc(1, sizeof *made);
    struct tti_process *processes = tti_calloc((size_t)process_count, sizeof *processes);
    if (made == NULL || processes == NULL) {
        tti_free(processes);
        tti_free(made);
        return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a world of %d ranks ran out", size);
    }
    snprintf(made->job, sizeof made->job, "%s", job);
    made->size = size;
    made->process_count = process_count;
    made->processes = processes;
    made->segment_mapping.fd = -1;
    atomic_init(&made->references, 1);
    for (int i = 0; i < process_count; i++) processes[i] = (struct tti_process){-1, -1, {NULL, 0, -1}};
    tutti_status status = copy_options(made, options, error);
    if (status == TUTTI_OK)
        *world = made;
    else
        tti_world_release(made);
    return status;
}

/* Returns true if there are more ranks than cores: every meeting costs turns on a core, so more operations stage their
 * data. One rank decides this once, since all must choose alike. */
static bool is_crowded(int size)
{
    return tti_sim == NULL && size > tti_cores_of_host(); /* each simulated rank computes on its own */
}

static tutti_status read_tuning(const struct tti_world *world, tutti_tuning *tuning, tutti_error *error)
{
    TTI_TRY(tti_tuning_load(world->options.tuning, tuning, error));
    if (is_crowded(world->size)) {
        tuning->one_shot = tuning->one_shot_crowded;
        tuning->staged = tuning->staged_crowded;
    }
    return TUTTI_OK;
}

void tti_world_attach_segment(struct tti_world *world)
{
    world->segment = (struct tti_segment *)world->segment_mapping.base;
    world->area = world->segment_mapping.base + world->segment->area_offset;
}

tutti_status tti_world_make_segment(struct tti_world *world, size_t area_bytes, bool shared, tutti_error *error)
{
    size_t ranks = (size_t)world->size * sizeof(struct tti_rank_info);
    size_t area_offset = tti_round_up(sizeof(struct tti_segment) + ranks, AREA_ALIGN);
    tutti_tuning tuning;
    TTI_TRY(read_tuning(world, &tuning, error));
    if (area_bytes > PTRDIFF_MAX - area_offset)
        return tti_error_set(error, TUTTI_ERR_COUNT, 0, "a control area of %zu bytes cannot be made", area_bytes);
    TTI_TRY(tti_mapping_create(&world->segment_mapping, area_offset + area_bytes, shared, true, error));
    struct tti_segment *segment = (struct tti_segment *)world->segment_mapping.base;
    segment->magic = SEGMENT_MAGIC;
    segment->size = world->size;
    segment->process_count = world->process_count;
    segment->tuning = tuning;
    segment->crowded = is_crowded(world->size);
    segment->area_offset = area_offset;
    segment->area_bytes = area_bytes;
    tti_world_attach_segment(world);
    return TUTTI_OK;
}

bool tti_world_segment_fits(const struct tti_world *world, size_t area_bytes)
{
    const struct tti_segment *segment = (const struct tti_segment *)world->segment_mapping.base;
    size_t bytes = world->segment_mapping.bytes;
    return bytes >= sizeof *segment && segment->magic == SEGMENT_MAGIC && segment->size == world->size &&
           segment->area_bytes == area_bytes && segment->area_offset <= bytes &&
           area_bytes <= bytes - segment->area_offset;
}

void tti_world_place_rank(struct tti_world *world, int rank, int process, int pid)
{
    struct tti_rank_info *info = &world->segment->ranks[rank];
    info->process = process;
    info->pid = pid;
    atomic_store_explicit(&info->state, TTI_RANK_JOINED, memory_order_release);
}

static tutti_status take_arena(struct tti_world *world, const struct tti_sequel *sequel, bool shared,
                               tutti_error *error)
{
    size_t bytes = (size_t)world->options.arena_bytes;
    if (sequel == NULL || sequel->arenas == NULL) return tti_arena_new(bytes, shared, &world->arena, error);
    world->arena = tti_arena_hold(sequel->arenas[0]);
    return TUTTI_OK;
}

static tutti_status make_threads(int size, const tutti_options *options, const struct tti_sequel *sequel, bool shared,
                                 size_t area_bytes, struct tti_world **world, tutti_error *error)
{
    struct tti_world *made = NULL;
    *world = NULL;
    TTI_TRY(tti_world_new(options->job != NULL ? options->job : "", size, 1, options, &made, error));
    tutti_status status = take_arena(made, sequel, shared, error);
    if (status == TUTTI_OK) status = tti_world_make_segment(made, area_bytes, false, error);
    if (status != TUTTI_OK) {
        tti_world_release(made);
        return status;
    }
    if (sequel != NULL) made->segment->epoch = sequel->epoch;
    made->processes[0] = (struct tti_process){getpid(), -1, made->arena->mapping};
    for (int rank = 0; rank < size; rank++) tti_world_place_rank(made, rank, 0, getpid());
    atomic_store_explicit(&made->references, size, memory_order_relaxed);
    *world = made;
    return TUTTI_OK;
}

tutti_status tti_world_threads(int size, const tutti_options *options, const struct tti_sequel *sequel,
                               size_t area_bytes, struct tti_world **world, tutti_error *error)
{
    return make_threads(size, options, sequel, false, area_bytes, world, error);
}

tutti_status tti_world_alone(int size, const tutti_options *options, bool shared, size_t area_bytes,
                             struct tti_world **world, tutti_error *error)
{
    return make_threads(size, options, NULL, shared, area_bytes, world, error);
}

void tti_world_release(struct tti_world *world)
{
    if (atomic_fetch_sub_explicit(&world->references, 1, memory_order_acq_rel) > 1) return;
    for (int i = 0; i < world->process_count; i++) {
        struct tti_process *process = &world->processes[i];
        if (process->pidfd >= 0) close(process->pidfd);
        if (i != world->process) tti_mapping_destroy(&process->arena); /* the own arena belongs to world->arena */
    }
    tti_arena_release(world->arena);
    tti_mapping_destroy(&world->segment_mapping);
    tti_free(world->processes);
    tti_free(world);
}

/* ---- Graves ---------------------------------------------------------------------------------------------------- */

void tti_retired_clear(struct tti_world *world)
{
    tutti_error ignored = {0};
    tti_lock(&world->retired_lock);
    for (struct tti_retired **link = &world->retired; *link != NULL;) {
        struct tti_retired *retired = *link;
        if (atomic_load_explicit(&retired->users, memory_order_acquire) != 0) {
            link = &retired->next;
            continue;
        }
        *link = retired->next;
        tti_arena_free(world->arena, retired, &ignored);
    }
    tti_unlock(&world->retired_lock);
}

void tti_retired_leave(struct tti_world *world, struct tti_retired *retired, bool owner)
{
    if (owner) {
        tti_lock(&world->retired_lock);
        retired->next = world->retired;
        world->retired = retired;
        tti_unlock(&world->retired_lock);
    }
    atomic_fetch_sub_explicit(&retired->users, 1, memory_order_acq_rel); /* the memory may be freed after this */
    if (owner) tti_retired_clear(world);
}

/* ---- Marks and liveness ---------------------------------------------------------------------------------------- */

void tti_world_mark(struct tti_world *world, int rank, enum tti_rank_state state)
{
    uint32_t expected = state == TTI_RANK_GONE ? TTI_RANK_LEFT : TTI_RANK_JOINED;
    if (!atomic_compare_exchange_strong_explicit(&world->segment->ranks[rank].state, &expected, (uint32_t)state,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    if (state == TTI_RANK_LOST) atomic_fetch_add_explicit(&world->segment->lost_count, 1, memory_order_release);
}

int tti_world_first_lost(const struct tti_world *world)
{
    if (atomic_load_explicit(&world->segment->lost_count, memory_order_acquire) == 0) return -1;
    for (int rank = 0; rank < world->size; rank++)
        if (atomic_load_explicit(&world->segment->ranks[rank].state, memory_order_acquire) == TTI_RANK_LOST)
            return rank;
    return -1;
}

static void mark_process_ended(struct tti_world *world, int process)
{
    for (int rank = 0; rank < world->size; rank++) {
        if (world->segment->ranks[rank].process != process) continue;
        tti_world_mark(world, rank, TTI_RANK_LOST);
        tti_world_mark(world, rank, TTI_RANK_GONE); /* applies only if the rank had left */
    }
}

/* Polls processes from `first` on, as many as fit into one poll; returns the first one that was not polled. */
static int check_some(struct tti_world *world, int first)
{
    struct pollfd polled[POLLED_AT_ONCE];
    int process_of[POLLED_AT_ONCE];
    nfds_t count = 0;
    for (; first < world->process_count && count < POLLED_AT_ONCE; first++) {
        if (world->processes[first].pidfd < 0) continue;
        process_of[count] = first;
        polled[count++] = (struct pollfd){.fd = world->processes[first].pidfd, .events = POLLIN};
    }
    if (count == 0 || poll(polled, count, 0) <= 0) return first;
    for (nfds_t i = 0; i < count; i++)
        if (polled[i].revents != 0) mark_process_ended(world, process_of[i]);
    return first;
}

int tti_world_check_alive(struct tti_world *world)
{
    for (int next = 0; next < world->process_count;) next = check_some(world, next);
    return tti_world_first_lost(world);
}

int tti_world_pidfd(int pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0); /* the descriptor is close-on-exec by default */
}

void tti_world_follow(struct tti_world *world)
{
    const tutti_options *options = &world->options;
    if (options->board[0] == '\0' || atomic_exchange_explicit(&world->follows, true, memory_order_relaxed)) return;
    tti_board_follow(options->board, options->job, (int)options->rank, true);
}

void tti_world_lead(struct tti_world *world)
{
    const tutti_options *options = &world->options;
    if (!atomic_exchange_explicit(&world->follows, false, memory_order_relaxed)) return;
    tti_board_follow(options->board, options->job, (int)options->rank, false);
}

bool tti_world_kill(struct tti_world *world, int rank, int64_t timeout_ms)
{
    int process = world->segment->ranks[rank].process;
    int pidfd = world->processes[process].pidfd;
    if (pidfd < 0) return false;
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0); /* if it has ended already, the wait says so */
    if (tti_poll_until(pidfd, POLLIN, tti_now_ns() + timeout_ms * 1000000) != 0) return false;
    mark_process_ended(world, process);
    return true;
}

bool tti_world_is_stopped(const struct tti_world *world, int rank)
{
    const struct tti_process *process = &world->processes[world->segment->ranks[rank].process];
    char path[64], text[512];
    if (process->pidfd < 0) return false;
    snprintf(path, sizeof path, "/proc/%d/stat", process->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *name_end = strrchr(text, ')'); /* the name before it may hold anything */
    return name_end != NULL && (strncmp(name_end, ") T", 3) == 0 || strncmp(name_end, ") t", 3) == 0);
}

/* ---- Addresses ------------------------------------------------------------------------------------------------- */

bool tti_world_can_attach(const struct tti_world *world)
{
    if (world->options.attach == 0) return false;
    for (int i = 0; i < world->process_count; i++) {
        const struct tti_process *process = &world->processes[i];
        if (i == world->process || process->pid == (int)getpid()) continue;
        char byte;
        struct iovec local = {&byte, 1}, remote = {(void *)(uintptr_t)1, 1};
        /* address 1 is never mapped: EFAULT says that access is allowed, EPERM that it is not */
        if (process_vm_readv(process->pid, &local, 1, &remote, 1, 0) < 0 && errno != EFAULT) return false;
        if (process_vm_writev(process->pid, &local, 1, &remote, 1, 0) < 0 && errno != EFAULT) return false;
    }
    return true;
}

void *tti_world_translate(const struct tti_world *world, int process, uint64_t offset, size_t bytes)
{
    if (process < 0 || process >= world->process_count) return NULL;
    const struct tti_mapping *arena = &world->processes[process].arena;
    if (offset > arena->bytes || bytes > arena->bytes - offset) return NULL;
    return arena->base + offset;
}
