/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's view of its job, for job.c, its event loop, and job_heal.c, which starts again what has failed.
 */
#ifndef TUTTI_CLI_JOB_H
#define TUTTI_CLI_JOB_H

#include "cli/cli_run.h"
#include <tutti/experimental.h>

enum step { STEP_RUN, STEP_GRACE, STEP_TERM, STEP_KILL, STEP_LEAVE };

/* How likely a rank is the first that failed. Others may notice its end, and end before it. */
enum likely {
    LIKELY_NOT,   /* it has not failed */
    LIKELY_LATER, /* it knew that another rank was the cause */
    LIKELY_FIRST, /* as far as is known */
    LIKELY_SURELY, /* killed by a signal other than that of abort(), which is no answer to what happened to another rank */
};

/* The rank that failed first, as far as is known. */
struct suspect {
    enum likely likely;
    const char *host;
    int rank, pid, wait_status;
    int64_t until_ms; /* then it was the first */
};

/* The first rank that ended with status 0: where it has not left, that may be why others fail. */
struct quiet {
    int rank, pid; /* 0: there is none */
};

/* A host, to the launcher that has started its launcher. */
struct job_host {
    bool begun;       /* its launcher has said so */
    bool waits;       /* it is spare */
    bool lost;        /* what comes of it is not looked at any more */
    bool empty;       /* its launcher said that nothing of the job is left there */
    int beat;         /* the last time that it told, */
    int64_t heard_ms; /* and when that came */
    int64_t gone_ms;  /* its shell has ended; its ranks have at this time. 0: neither */
};

/* What job_heal.c knows. */
struct heal {
    struct job_host *hosts; /* [size], where this launcher has started those of hosts */
    struct guard_report
        *asked;           /* [size], of ranks that have failed: the other launcher is to say what becomes of them */
    bool formed;          /* the job's world was, as some host says */
    int64_t heartbeat_ms; /* a host that is silent for so long is lost; 0: nobody asks */
    int64_t began_ms;     /* when this launcher began, */
    int64_t beat_ms;      /* and when it tells next that it lives */
};

struct job {
    const struct run_values *values;
    struct launch *launch;
    struct output *output;
    int control, signals;
    pid_t guard;
    enum step step;
    int64_t deadline_ms; /* when the next step is due; meaningless in STEP_RUN */
    int ranks_left;
    int restarts; /* so far; of hosts, their generation */
    bool *ended;  /* [size] */
    struct heal heal;
    bool orphan; /* the launcher that started this one is gone */
    struct suspect suspect;
    struct quiet quiet;
    tutti_board *board; /* the guard's; NULL: not known */
    bool decided;       /* the exit status is: by the first failure, or a signal */
    int status;
    int signals_seen;
    bool guard_gone, empty; /* `empty`: the guard said that nothing is left */
};

/* ---- job.c ---- */

int64_t job_now_ms(void);
/* "exited with status 3" or "was killed by signal 9 (Killed)" */
const char *job_describe(int wait_status, char text[96]);
void job_send_order(struct job *job, const struct guard_command *command);
/* The job cannot go on: its exit status, unless that is decided, and the beginning of its end. */
void job_fail(struct job *job, int status);
/* A rank of this launcher has ended for good. */
void job_take_end(struct job *job, const struct guard_report *report);
/* True if it ended so because of another rank, as it knew. */
bool job_follows(int wait_status, bool follows);

/* ---- job_heal.c ---- */

/* False: there is no memory. */
bool heal_open(struct job *job);
void heal_close(struct job *job);

/* A rank of this launcher has ended, and may be started again. True if it is, or if the launcher that decides was asked. */
bool heal_takes(struct job *job, const struct guard_report *report);
/* The guard's other words. */
void heal_on_late(struct job *job, int rank);
void heal_on_excluded(struct job *job);
/* Nothing of the job is left on this host. */
void heal_on_empty(struct job *job);
/* What the launcher that decides says; ORDER_SIGNAL and ORDER_GONE are job.c's. */
void heal_obey(struct job *job, const struct remote_order *order);
/* What other hosts' launchers say. */
void heal_hear(struct job *job, int host, const struct remote_report *report);
/* A host's shell has ended, before the job has: true if that is taken care of. */
bool heal_host_ended(struct job *job, int host, int wait_status);
/* A host that has no ranks: it is spare, or lost. */
bool heal_is_apart(const struct job *job, int host);
/* The job ends: hosts that wait are not needed. */
void heal_let_go(struct job *job);
/* Tells that this launcher lives, and looks who does not. */
void heal_check_clock(struct job *job);
/* When that is to be called next; INT64_MAX: never. */
int64_t heal_next_ms(const struct job *job);

#endif
