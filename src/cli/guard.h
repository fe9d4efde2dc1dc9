/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard's own: guard.c starts and ends ranks, guard_join.c those that join while the job runs.
 */
#ifndef TUTTI_CLI_GUARD_H
#define TUTTI_CLI_GUARD_H

#include "cli/cli_run.h"
#include <tutti/experimental.h>

struct end {
    pid_t pid; /* 0: not ended, or noted on the board */
    int status;
    bool held; /* the launcher has not said yet whether it is started again */
    bool runs; /* as far as is known processes of its group do */
};

struct guard {
    const struct launch *launch;
    int control;
    bool launcher_gone;
    pid_t *pids;             /* [most]; 0: not started or ended */
    struct end *ends;        /* [most] */
    struct joining *joining; /* guard_join.c; NULL: the job does not grow */
    int ranks_running;
    char board_name[64];     /* "": none */
    tutti_board *board;      /* NULL for hosts, and where there is no memory: then the ranks' join has its time */
    char master[GUARD_TEXT]; /* where rank 0 waits, since its host was lost; "": as the launcher says */
    int64_t lease_ms;        /* until then the ranks may go on, unless it is made longer; 0: no lease */
    bool excluded;           /* it ran out */
    int32_t kills;           /* processes that were no ranks and died from a sweep */
    bool sweeping;
};

/* ---- guard.c ---- */

void guard_report(struct guard *guard, enum guard_event event, int rank, pid_t pid, int value);
/* A rank's process, which the guard does not wait for any more, ended so. */
void guard_note_end(struct guard *guard, int rank, pid_t pid, int status);
/* How many processes the job has now. */
int guard_size(const struct guard *guard);

/* ---- guard_join.c: all do nothing where the job does not grow ---- */

enum { JOIN_POLLS = 65 };
/* False, with errno: nobody can join. */
bool joining_open(struct guard *guard);
size_t joining_poll(const struct guard *guard, struct pollfd *polls); /* [JOIN_POLLS] */
void joining_serve(struct guard *guard, const struct pollfd *polls, size_t count);
/* Makes those that were taken in ranks, and ends those that are late. To be called before any end is told of. */
void joining_sync(struct guard *guard);
/* Returns true if it was a process that waits. */
bool joining_ended(struct guard *guard, pid_t pid, int status);
int joining_running(const struct guard *guard); /* processes that wait */
/* Whoever started this rank is told that it has ended for good. */
void joining_tell_end(struct guard *guard, int rank, int status);
/* Returns true if the rank is one that joined, whose launcher has ended: it cannot be started again. */
bool joining_is_orphan(const struct guard *guard, int rank);
/* In the process of a rank that is started again: true if it is one that joined, and all that such a one has of its own is set. */
bool joining_become(const struct guard *guard, int rank, char ***argv);
/* The job ends: who waits is told so, and nobody can join any more. */
void joining_finish(struct guard *guard);

#endif
