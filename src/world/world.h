/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes of a job on this host, their arenas, and whether they are still alive.
 *
 * A world is one process's view of the job; the ranks that are threads of one process share it (by reference count).
 * Its control segment is mapped by every process of the job: a header, one state per rank, and an area for the layer
 * above. All of it is plain memory: no function here waits, except while joining.
 */
#ifndef TTI_WORLD_WORLD_H
#define TTI_WORLD_WORLD_H

#include "base/memory.h"
#include "base/wait.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <tutti/experimental.h>
#include <tutti/tutti.h>

enum tti_rank_state {
    TTI_RANK_JOINED = 1,
    TTI_RANK_LEFT, /* by tutti_leave: an orderly end; comms that were split off may go on */
    TTI_RANK_GONE, /* it had left, and now its process or its work has ended */
    TTI_RANK_LOST  /* its process died, or its thread ended, without leaving */
};

/* One per rank in the segment, in cache lines of its own. */
struct tti_rank_info {
    _Alignas(64) _Atomic uint32_t state;
    int32_t process; /* an index into tti_world.processes */
    int32_t pid;
    _Atomic uint32_t attaches; /* it reads and writes other processes' memory; set when its first comm is made */
    /* the rank on whose bell this rank's service thread sleeps: one thread may serve several ranks */
    _Atomic int32_t served_at;
    _Alignas(64) tti_bell bell;
};

/* The start of the segment. */
struct tti_segment {
    uint64_t magic;
    int32_t size, process_count;
    uint32_t epoch;
    _Atomic uint32_t lost_count; /* grows when a rank is marked lost: a cheap check whether anything happened */
    tutti_tuning tuning;         /* rank 0's holds for all */
    uint32_t crowded;            /* more ranks than cores, as rank 0 sees it */
    uint64_t area_offset, area_bytes;
    struct tti_rank_info ranks[];
};

/* A process of the job, as this process sees it. */
struct tti_process {
    int pid;
    int pidfd;                /* readable when the process has ended; -1 for this process */
    struct tti_mapping arena; /* this process's own is world->arena->mapping (not owned twice) */
};

#define TTI_COUNT_INT 0
#define TTI_COUNT_MS 0
#define TTI_COUNT_BYTES 0
#define TTI_COUNT_BOOL 0
#define TTI_COUNT_TEXT 1
#define TTI_COUNT_OPTION(name, kind, initial, low, high, help) +TTI_COUNT_##kind
enum { TTI_TEXT_OPTIONS = 0 TUTTI_OPTION_LIST(TTI_COUNT_OPTION) };

/* The beginning of memory that one process's arena has for several ranks: its owner gives it back when the last of its
 * users has said that it needs it no more. */
struct tti_retired {
    _Atomic uint32_t users;
    struct tti_retired *next; /* the owner's list */
};

struct tti_world {
    char job[128];
    int size;
    int process_count;
    int process; /* this process's index */
    tutti_options options;
    char option_text[TTI_TEXT_OPTIONS][256]; /* copies to which the options' TEXT fields point */
    int64_t clock_offset_ns;                 /* added to this host's clock to get that of rank 0's host */
    struct tti_mapping segment_mapping;
    struct tti_segment *segment;
    void *area; /* segment + area_offset: for the layer above, zeroed */
    struct tti_process *processes;
    struct tti_arena *arena; /* this process's arena, also in the epochs before and after */
    _Atomic uint32_t retired_lock;
    struct tti_retired *retired; /* memory of this process that it no longer uses itself */
    atomic_int references;       /* ranks of this process that have not left */
    atomic_bool trace_lost;      /* a part of the trace could not be written */
    atomic_bool follows;         /* noted on the launcher's board: see tti_world_follow */
};

/* Called when one of the users needs it no more; `owner`: it is the one in whose arena it lies. Memory that nobody uses
 * any more is given back. */
void tti_retired_leave(struct tti_world *world, struct tti_retired *retired, bool owner);
void tti_retired_clear(struct tti_world *world);

/* What a process brings from the epoch before; zeros if there was none. */
struct tti_sequel {
    uint32_t generation; /* the generation of the launcher's restarts: processes that meet have seen the same one */
    uint32_t epoch;      /* the lowest epoch that the new world may have */
    /* It goes on with these arenas: one for each of its ranks, in order, or the same for all; NULL: it makes them. */
    struct tti_arena *const *arenas;
    bool whole;         /* as far as it knows, nothing was lost */
    uint32_t attempt;   /* the attempt to take processes in that it joins in (ticket.h); 0: none */
    int64_t timeout_ms; /* the time to join; 0: as the options say */
};

/* Returns true if the world was formed before. */
static inline bool tti_is_sequel(const struct tti_sequel *sequel)
{
    return sequel->generation > 0 || sequel->epoch > 0;
}

/* Makes a world of `size` ranks that are all threads of this process (also size 1), of the first epoch, with an arena
 * of its own, unless `sequel` says otherwise. No bootstrap; references = size. */
tutti_status tti_world_threads(int size, const tutti_options *options, const struct tti_sequel *sequel,
                               size_t area_bytes, struct tti_world **world, tutti_error *error);

/* Makes a world of a process that is a job by itself. `shared`: others may join it later, so it gets an arena that they can
 * map. */
tutti_status tti_world_alone(int size, const tutti_options *options, bool shared, size_t area_bytes,
                             struct tti_world **world, tutti_error *error);

/* In system_errno of ERR_JOIN: all processes that join find their world whole. */
#define TTI_WORLD_WHOLE EALREADY

/* This process among those of a job. The ranks of process p are p * ranks_each and those after it, its threads. */
struct tti_member {
    const char *job;
    int process, process_count;
    int ranks_each;
    const struct tti_apart *apart; /* NULL: others of the job cannot be waiting elsewhere */
    /* If these processes are part of a larger job: its name, how many processes it has, and the number there of each
     * process's first rank (process_count). NULL, 0: the same. */
    const char *title;
    int title_processes;
    const int *firsts;
    struct tti_sequel sequel;
};

/* Joins; returns when all processes have, or with the same kind of error on all of them, within
 * options->join_timeout_ms. references = ranks_each. */
tutti_status tti_world_join(const struct tti_member *member, const tutti_options *options, size_t area_bytes,
                            struct tti_world **world, tutti_error *error);

/* Gives up a reference; the last one unmaps and frees everything. */
void tti_world_release(struct tti_world *world);

/* Marks a rank as LEFT or LOST (the first mark stays). */
void tti_world_mark(struct tti_world *world, int rank, enum tti_rank_state state);

/* Polls every other process's pidfd, without blocking, and marks the ranks of ended ones LOST unless they had left.
 * Returns the lowest lost rank, or -1. */
int tti_world_check_alive(struct tti_world *world);
int tti_world_first_lost(const struct tti_world *world);

/* Notes that a rank of another process is the cause, should this one fail: the launcher should name that one. */
void tti_world_follow(struct tti_world *world);
/* Takes that back after the world was rebuilt. */
void tti_world_lead(struct tti_world *world);

/* Kills the process of a rank (SIGKILL through its pidfd) and waits at most `timeout_ms` until it has ended; returns
 * false if it is this process or has not ended by then. */
bool tti_world_kill(struct tti_world *world, int rank, int64_t timeout_ms);

/* Returns true if another process, that of this rank, is stopped by a signal or a debugger: for messages. */
bool tti_world_is_stopped(const struct tti_world *world, int rank);

/* Returns true if this process may read the memory of all others: it is tried on each, before anything depends on
 * it. */
bool tti_world_can_attach(const struct tti_world *world);

/* Returns the address here of memory that another process gave as (process, offset in its arena); NULL if it is outside
 * its arena. */
void *tti_world_translate(const struct tti_world *world, int process, uint64_t offset, size_t bytes);

#endif
