/* SPDX-License-Identifier: Apache-2.0
 *
 * State that the guard's files share: guard.c starts and ends ranks, guard_join.c processes that join while the job
 * runs.
 */
#ifndef TUTTI_CLI_GUARD_H
#define TUTTI_CLI_GUARD_H

#include "cli/cli_run.h"
#include <tutti/experimental.h>

struct end {
    pid_t pid; /* 0: it has not ended, or its end is on the board */
    int status;
    bool held; /* the launcher has not decided yet if it is started again */
    bool runs; /* as far as is known, processes of its group still run */
};

struct guard {
    const struct launch *launch;
    int control;
    bool launcher_gone;
    pid_t *pids;             /* [most]; 0: not started or ended */
    struct end *ends;        /* [most] */
    struct joining *joining; /* guard_join.c; NULL: the job does not grow */
    int ranks_running;
    char board_name[64]; /* "": none */
    /* NULL with --hosts, or if there is no memory: then ranks that join find out by their deadline */
    tutti_board *board;
    tutti_board *gathered;   /* with --hosts: shows the ranks of all hosts, for tutti top; only kept here */
    char master[GUARD_TEXT]; /* where rank 0 waits, if its host was lost; "": as the launcher says */
    int64_t lease_ms;        /* ranks may run until then, unless it is extended; 0: no lease */
    bool excluded;           /* the lease ran out */
    unsigned asked;          /* the last answer of tutti_board_asked */
    int32_t kills;           /* processes other than ranks that a sweep killed */
    bool sweeping;
};

/* ---- guard.c ---- */

void guard_report(struct guard *guard, enum guard_event event, int rank, pid_t pid, int value);
/* Records the end of a rank's process, which the guard has already reaped. */
void guard_note_end(struct guard *guard, int rank, pid_t pid, int status);
/* Returns how many processes the job has now. */
int guard_size(const struct guard *guard);

/* ---- guard_join.c: all do nothing where the job does not grow ---- */

enum { JOIN_POLLS = 65 };
/* Returns false, with errno, if nobody can join. */
bool joining_open(struct guard *guard);
size_t joining_poll(const struct guard *guard, struct pollfd *polls); /* [JOIN_POLLS] */
void joining_serve(struct guard *guard, const struct pollfd *polls, size_t count);
/* Makes ranks of waiting processes that were taken in, and kills those that are late. Must be called before an end is
 * reported. */
void joining_sync(struct guard *guard);
/* Returns true if it was a waiting process. */
bool joining_ended(struct guard *guard, pid_t pid, int status);
int joining_running(const struct guard *guard); /* number of waiting processes */
/* Tells the command that started this rank that it has ended for good. */
void joining_tell_end(struct guard *guard, int rank, int status);
/* Returns true if the rank has joined and the command that started it has ended: it cannot be restarted. */
bool joining_is_orphan(const struct guard *guard, int rank);
/* Called in the process of a rank that is restarted. Returns true if it is one that joined, and sets its own command,
 * environment and output. */
bool joining_become(const struct guard *guard, int rank, char ***argv);
/* Ends joining, when the job ends: waiting processes are told. */
void joining_finish(struct guard *guard);

#endif
