/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's state of its job, for job.c, its event loop, and job_heal.c, which restarts what has failed.
 */
#ifndef TUTTI_CLI_JOB_H
#define TUTTI_CLI_JOB_H

#include "cli/cli_run.h"
#include <tutti/experimental.h>

enum step { STEP_RUN, STEP_GRACE, STEP_TERM, STEP_KILL, STEP_LEAVE };

/* How likely it is that a rank failed first. Others may notice its end, and end before it. */
enum likely {
    LIKELY_NOT,    /* it has not failed */
    LIKELY_LATER,  /* it knew that another rank was the cause */
    LIKELY_FIRST,  /* the first, as far as is known */
    LIKELY_SURELY, /* killed by a signal other than abort()'s, so not because of another rank's end */
};

/* The rank that failed first, as far as is known. */
struct suspect {
    enum likely likely;
    const char *host;
    int rank, pid, wait_status;
    int64_t until_ms; /* at this time it counts as the first */
};

/* The first rank that ended with status 0. If it did not leave the world, others may have failed because of it. */
struct quiet {
    int rank, pid; /* 0: there is none */
};

/* A host, in the launcher that has started the launcher there. */
struct job_host {
    bool begun;        /* its launcher has reported that it began */
    bool waits;        /* a spare host */
    bool lost;         /* its reports are ignored */
    bool dropped;      /* all its ranks were killed and the others go on: only the ends of its ranks are read */
    bool empty;        /* its launcher has reported that nothing of the job is left there */
    bool unheard;      /* it waited, was given ranks, and has not reported since */
    int beat;          /* the last time that it reported */
    int64_t heard_ms;  /* when that report came */
    int64_t gone_ms;   /* its shell has ended, and its ranks have ended by this time; 0: it has not */
    int64_t blamed_ms; /* when others last said that they have waited too long for a rank of it; 0: never */
};

/* A rank, in the launcher that has started those of hosts. */
struct ended_rank {
    bool gone; /* it has ended, all hosts were told so, and it was not started again */
    int pid;   /* the process of its last end */
};

/* The state of job_heal.c. */
struct heal {
    struct job_host *hosts; /* [size] if this launcher has started those of other hosts */
    /* [size] failed ranks about which the other launcher was asked */
    struct guard_report *asked;
    struct ended_rank *ranks; /* [place.world] if there are `hosts` */
    unsigned settled;         /* the last epoch + 1 for which it is settled who was lost; 0: none */
    bool formed;              /* the job's world was formed, as some host reported */
    int64_t heartbeat_ms;     /* a host that is silent for so long is lost; 0: hosts are not watched */
    int64_t began_ms;         /* when this launcher began */
    int64_t beat_ms;          /* when it reports next that it lives */
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
    int restarts; /* restarts so far; with --hosts the generation */
    bool *ended;  /* [size] */
    struct heal heal;
    bool orphan; /* the launcher that started this one is gone */
    struct suspect suspect;
    struct quiet quiet;
    tutti_board *board; /* the guard's; NULL: there is none */
    struct job_rows {
        tutti_board *gathered;     /* with --hosts: shows the ranks of all hosts; NULL: there is none */
        int64_t next_ms, until_ms; /* when the hosts are asked, or told, again; until then others watch */
    } rows;
    bool decided; /* the exit status is decided: by the first failure, or a signal */
    int status;
    int signals_seen;
    bool guard_gone, empty; /* `empty`: the guard reported that nothing is left */
};

/* ---- job.c ---- */

int64_t job_now_ms(void);
/* Writes "exited with status 3" or "was killed by signal 9 (Killed)". */
const char *job_describe(int wait_status, char text[96]);
/* Writes the same for the launcher on a host, which may be reached by a connection in place of a shell. */
const char *job_describe_host(const struct job *job, int host, int wait_status, char text[96]);
void job_send_order(struct job *job, const struct guard_command *command);
/* Begins the end of a job that cannot continue, with this exit status unless another one is decided. */
void job_fail(struct job *job, int status);
/* Called when a rank of this launcher has ended for good. */
void job_take_end(struct job *job, const struct guard_report *report);
/* Returns true if a rank that ended like this did so because of another one, and knew it. */
bool job_follows(int wait_status, bool follows);

/* ---- job_rows.c: what the ranks of all hosts do, for tutti top ---- */

/* Opens the guard's board, in the launcher that has started others. */
void rows_open(struct job *job);
/* Takes a row that another host has told. */
void rows_take(struct job *job, const char *text);
/* Called when somebody watches: this launcher tells what its ranks do for a while. */
void rows_watch(struct job *job);
/* Asks and tells what is due. Returns when to call it next; INT64_MAX: never. */
int64_t rows_step(struct job *job);

/* ---- job_heal.c ---- */

/* Returns false if there is no memory. */
bool heal_open(struct job *job);
void heal_close(struct job *job);

/* Called when a rank of this launcher has ended and may be restarted. Returns true if it is, or if the launcher that
 * decides was asked. */
bool heal_takes(struct job *job, const struct guard_report *report);
/* They handle other reports of the guard. */
void heal_on_late(struct job *job, int rank);
void heal_on_excluded(struct job *job);
void heal_on_gone(struct job *job, const struct guard_report *report);
void heal_on_asked(struct job *job, int epoch);
/* Called when nothing of the job is left on this host. */
void heal_on_empty(struct job *job);
/* Follows an order of the launcher that decides; ORDER_SIGNAL and ORDER_GONE are job.c's. */
void heal_obey(struct job *job, const struct remote_order *order);
/* Handles a report of another host's launcher. */
void heal_hear(struct job *job, int host, const struct remote_report *report);
/* Called when a host's shell has ended before the job. Returns true if that is handled. */
bool heal_host_ended(struct job *job, int host, int wait_status);
/* Called when a host's last rank was killed. Returns true if the job goes on without that host. */
bool heal_drops(struct job *job, int host, const struct remote_report *report);
/* Returns true if a host has no ranks: it is spare, or lost. */
bool heal_is_apart(const struct job *job, int host);
/* Called when the job ends: spare hosts are not needed any more. */
void heal_let_go(struct job *job);
/* Called when all shells have ended: ends the job if hosts were lost meanwhile. */
void heal_finish(struct job *job);
/* Reports that this launcher lives, and looks for hosts that do not. */
void heal_check_clock(struct job *job);
/* Returns when heal_check_clock must be called next; INT64_MAX: never. */
int64_t heal_next_ms(const struct job *job);

#endif
