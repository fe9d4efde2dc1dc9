/* SPDX-License-Identifier: Apache-2.0
 *
 * Worlds for tests. Every world runs in processes of its own, so a crash or a hang is a failure of one world and not of the
 * test: world_fork gives a child an alarm, and world_await gives up on all that have not ended in time. In a child the ranks
 * are made in one of five ways. fault.h, conformance_world.h and ranks.h say what ranks do there, and what they report.
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <tutti/tutti.h>

enum { WORLD_MOST = 128 };

enum world_ranks {
    WORLD_THREADS,   /* tutti_main with TUTTI_RANKS */
    WORLD_PROCESSES, /* each joins by itself */
    WORLD_JOINED,   /* threads of one process, each joins by itself; not under the thread sanitizer, which cannot follow
                           ranks that map the same memory at several places of one process */
    WORLD_PAIRS,    /* processes of two threads, by tutti_main; sizes that are odd: one thread each */
    WORLD_SIMULATED /* tutti_sim_run: one thread, simulated time */
};
/* "threads of processes" */
const char *world_ranks_name(enum world_ranks ranks);
/* How many processes so many ranks are in. */
int world_process_count(enum world_ranks ranks, int size);

/* ---- By the test ------------------------------------------------------------------------------------------------- */

int64_t world_now_ns(void);

struct world_process {
    pid_t pid;  /* -1: it was not started, or has ended */
    int status; /* then: as waitpid gives it */
};

/* Returns 0 in the child, which an alarm ends after so long, and SIGKILL if the test ends before it. */
pid_t world_fork(unsigned seconds);
/* Notes a process that has ended. Returns true if this one did. */
bool world_reap(struct world_process *process);
/* Waits until all have ended; kills those that have not after `limit_ms`, and returns how many. `ended` is called for each that
 * has ended by itself, `hangs` for each before it is killed, `between` again and again; all may be NULL. */
struct world_watch {
    int64_t limit_ms;
    void *context;
    void (*ended)(void *context, int number, int status);
    void (*hangs)(void *context, int number);
    void (*between)(void);
};
int world_await(struct world_process *processes, int count, const struct world_watch *watch);
/* "signal 9" or "status 1". */
const char *world_end_text(int status, char text[32]);

/* ---- In a child -------------------------------------------------------------------------------------------------- */

/* Descriptors, and mappings of the library's shared memory, that are open. */
struct world_holds {
    int descriptors, mappings;
};
struct world_holds world_holds(void);

void world_set(const char *name, int64_t number);
/* Process `process` of a job's, of all ranks of a rank each, or `each` of them; job NULL: of no job. For tutti_join and
 * tutti_main. */
void world_be(const char *job, int process, int size, int each);
/* Runs so many ranks as threads, each of which joins by itself, and returns when all have ended. */
typedef void world_joins(const char *job, int rank);
void world_run_joined(const char *job, int size, world_joins *joins);

#endif
