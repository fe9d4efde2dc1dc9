/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `tutti run`: cli_run.c checks and prepares, guard.c is the process that owns the ranks, job.c is the
 * launcher's event loop, output.c carries the ranks' lines, bind.c chooses cores. With several hosts: cli_place.c says which
 * part of the job is this host's, hosts.c starts a launcher on each host, remote.c is what that one does differently;
 * job_heal.c starts ranks again that have failed, also those of a host that is lost.
 */
#ifndef TUTTI_CLI_CLI_RUN_H
#define TUTTI_CLI_CLI_RUN_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* What the command line said. */
struct run_values {
    int64_t ranks, nproc_per_node; /* 0: not given */
    int64_t nnodes, node_rank;     /* 0, -1: not given */
    const char *master_addr;       /* "": not given */
    int64_t master_port;
    const char *hosts; /* "": none */
    const char *ssh, *remote_tutti, *env;
    bool from_stdin;
    int64_t grace_ms;
    bool keep_going;
    int64_t max_restarts; /* 0: none */
    int64_t spare;        /* of `hosts`, the last ones, which wait */
    int64_t max_ranks;    /* 0: not given */
    const char *join;     /* "": none */
    bool no_prefix;
    bool tee;
    const char *log_dir; /* "": none */
    const char *bind;    /* "core" or "none" */
};

/* ---- Starting ranks: what the guard needs to know ---- */

struct launch_rank {
    int out, err; /* descriptors for the rank's stdout and stderr; -1: the launcher's own */
};

/* Which part of the job this launcher has. */
struct place {
    int first, world; /* its first rank, and how many there are in all */
    int node, nodes;
    const char *master_addr; /* several hosts: where rank 0 waits */
    int master_port;
    const char *host; /* this host's name, for messages; NULL: the job is on one host */
};

struct launch {
    int size;    /* processes to start: ranks; or hosts, one remote shell each */
    int most;    /* ranks that there can be, with those that join later */
    bool grows;  /* some may */
    char **argv; /* the program and its arguments */
    char job[256];
    struct place place;
    struct hosts *hosts;       /* NULL: the processes are ranks */
    bool remote;               /* started by a launcher on another host, which talks to this one by stdin and stderr */
    int max_restarts;          /* ranks that fail are started again so often, all together; hosts: see values */
    int generation;            /* how often that was done before this launcher began */
    bool pass_input;           /* rank 0 reads the launcher's stdin; otherwise /dev/null */
    struct launch_rank *ranks; /* [size] */
    cpu_set_t *cores;          /* [size], or NULL: not bound */
    sigset_t mask;             /* signal mask, SIGPIPE and limit that the launcher was started with, for the ranks */
    struct sigaction pipe_action;
    struct rlimit files;
};

/* ---- Several hosts ---- */

/* Fills in launch->size and launch->place from the flags. CLI_GO_ON or an exit status. */
int place_read(const struct run_values *values, struct launch *launch);

/* Reads --hosts and prepares a remote shell for each, with pipes to their stdin, which hold all that the launchers there
 * need: what is secret goes nowhere else. CLI_GO_ON or an exit status. */
int hosts_open(const struct run_values *values, struct launch *launch);
void hosts_close(struct hosts *hosts); /* NULL is ignored */
const char *hosts_name(const struct hosts *hosts, int host);
char **hosts_command(const struct hosts *hosts, int host);
int hosts_input(const struct hosts *hosts, int host); /* what its remote shell gets as stdin */
int hosts_first(const struct hosts *hosts, int host); /* its first rank, and how many it has; spares have none */
int hosts_slots(const struct hosts *hosts, int host);
void hosts_close_inputs(struct hosts *hosts);       /* in the launcher, once the shells are started */
void hosts_close_controls(struct hosts *hosts);     /* in the guard; in the launcher: everyone must end */
void hosts_signal(struct hosts *hosts, int signal); /* SIGKILL: the last that they hear */
/* To the launcher on one host; what it is too far gone for is noticed by its silence. */
struct remote_order;
void hosts_order(struct hosts *hosts, int host, const struct remote_order *order);
/* A spare host takes the place of one that is lost; `generation`: how often ranks were started again by then. Where rank 0 waits is
 * in `launch` afterwards. False: it cannot be told. */
bool hosts_replace(const struct run_values *values, struct launch *launch, int lost, int spare, int generation);
/* It is not needed any more, or lost: its launcher ends what it has. */
void hosts_close_control(struct hosts *hosts, int host);

/* What a launcher says about itself on stderr to the one that started it: lines that begin with REMOTE_MARK. */
#define REMOTE_MARK '\x1e'
enum remote_event {
    REMOTE_STARTED, /* it has read what it is to do */
    REMOTE_ENDED,   /* rank, pid, value: wait status; the first rank that failed */
    REMOTE_FAILED,  /* the same of a rank that may be started again: an order about it is awaited */
    REMOTE_LATE,    /* rank: of a process of another host, which others have waited too long for */
    REMOTE_ALIVE,   /* value: its time, in milliseconds */
    REMOTE_EMPTY    /* no process of the job is left there */
};
struct remote_report {
    enum remote_event event;
    int rank, pid, value;
    int follows; /* as in guard_report */
    int joined;
};
bool hosts_read_report(const char *line, size_t length, struct remote_report *report);
/* Without its newline. */
void hosts_write_report(const struct remote_report *report, char *line, size_t bytes);

/* Reads from stdin what to do: sets this process's environment and folder, `launch`'s place and job, and gives a command
 * line as cli_run gets it, which stays. CLI_GO_ON or an exit status. */
int remote_read(struct launch *launch, int *argc, char ***argv);
/* What the other launcher asks for, by a line: "restart 3 1" and the like, a word, a rank, a value and perhaps a text. */
enum remote_order_kind {
    ORDER_NONE,    /* nothing yet */
    ORDER_GONE,    /* the other launcher is */
    ORDER_SIGNAL,  /* value: a signal for all ranks */
    ORDER_ALIVE,   /* value: the last time that was heard of this launcher */
    ORDER_MOVE,    /* value: how often ranks were started again, now on another host; text: where rank 0 waits, or "" */
    ORDER_RESTART, /* value, text: the same; rank: it is to be started again here */
    ORDER_NOTE,    /* rank: it is not started again */
    ORDER_LATE     /* rank: it is to be ended */
};
enum { ORDER_VERSION = 2 };
extern const char *const remote_order_words[];
struct remote_order {
    enum remote_order_kind kind;
    int rank, value;
    char text[256];
};
struct remote_order remote_next_order(void);

/* ---- Guard ---- */

enum guard_event {
    GUARD_STARTED,      /* rank, pid */
    GUARD_START_FAILED, /* rank, value: errno of fork; no further rank is started */
    GUARD_EXEC_FAILED,  /* rank, pid, value: errno of exec; sent by the rank itself */
    GUARD_ENDED,        /* rank, pid, value: wait status; where ranks are started again it awaits a command about it */
    GUARD_LATE,         /* rank: of the job, on another host; others have waited too long for it */
    GUARD_JOINED,       /* rank, pid: a process that was started by --join is this rank now */
    GUARD_EXCLUDED,     /* the lease has run out, and the ranks are ended */
    GUARD_EMPTY         /* value: how many processes that were no ranks had to be killed. The guard's last word */
};

struct guard_report {
    int32_t event, rank, pid, value;
    int32_t follows; /* GUARD_ENDED: 1 when it knew that another rank was the cause */
    int32_t joined;  /* GUARD_ENDED: 1 when the job's world had been formed before */
    int32_t orphan;  /* GUARD_ENDED: 1 when it had joined, and whoever started it by --join is gone */
};

/* Commands to the guard. */
enum guard_order {
    GUARD_SIGNAL,  /* value: a signal for all. SIGKILL means every descendant, repeated until none is left */
    GUARD_RESTART, /* value: a rank that has ended; it is started again, and: */
    GUARD_MOVE,    /* generation: how often ranks were; text: where rank 0 waits from now on, or "" */
    GUARD_NOTE,    /* value: a rank that has ended for good; the others are told so */
    GUARD_END,     /* value: a rank; it is killed */
    GUARD_FINISH,  /* the job ends, and nobody can join any more */
    GUARD_LEASE    /* until_ms: the ranks may go on until then; later others go on without this host */
};

enum { GUARD_TEXT = 256, GUARD_EXCLUDED_MS = 600 }; /* between the end of the lease and that of the ranks */
struct guard_command {
    int32_t order, value, generation;
    int64_t until_ms; /* of CLOCK_MONOTONIC */
    char text[GUARD_TEXT];
};

/* The guard's process: starts the ranks, then serves `control` until no process is left. What comes in is a guard_command. */
int guard_main(const struct launch *launch, int control);

/* Kills and reaps this process's children, and the orphans that become its children thereby, until none is left.
 * Needs PR_SET_CHILD_SUBREAPER. Children noted by guard_spare_children, which were there before, are left alone. */
void guard_sweep(void);
void guard_spare_children(void);

/* From here on the launcher's signals arrive by this descriptor. What the ranks must get back is kept in `launch`. */
int run_take_signals(struct launch *launch);

/* tutti run --join: has the job's guard start `launch`'s processes, and waits for their end. Returns the exit status of the
 * tool. */
int join_run(const struct run_values *values, struct launch *launch);

/* ---- Output ---- */

struct output;

/* Makes the pipes and log files and notes the ranks' ends in launch->ranks. CLI_GO_ON, or an exit status after a
 * message to stderr. */
int output_open(const struct run_values *values, struct launch *launch, struct output **opened);
void output_close(struct output *output);

/* Closes the ranks' ends in this process: the guard has them now. */
void output_started(struct launch *launch);

/* Descriptors to be polled besides the caller's own: fills `polls`, of output_poll_room, and returns how many. */
struct pollfd;
size_t output_poll_room(const struct output *output);
size_t output_poll(struct output *output, struct pollfd *polls);
void output_serve(struct output *output, const struct pollfd *polls, size_t count);

/* What is printed in front of lines of the rank with this place, in place of its number. */
void output_name_rank(struct output *output, int rank, const char *name);

/* Takes what rank's pipes hold now, so that what it said comes before what is said about it. */
void output_drain_rank(struct output *output, int rank);
/* Takes what all pipes hold now, and last lines that have no newline. No more comes after this. */
void output_finish(struct output *output);
bool output_pending(const struct output *output);

/* The first error of a write: errno, with *target what was written to; 0: none. */
int output_error(const struct output *output, const char **target);

/* Lines of other launchers about themselves go here instead of to stderr. */
typedef void output_report(void *context, int host, const struct remote_report *report);
void output_on_report(struct output *output, output_report *take, void *context);
/* A line of this launcher about itself to the other. */
void output_write_report(struct output *output, const struct remote_report *report);

/* A line of the launcher's own, "tutti run: …", to stderr in order with the ranks' lines. */
__attribute__((format(printf, 2, 3))) void output_say(struct output *output, const char *format, ...);

/* ---- Cores, events ---- */

/* One core per rank, in topology order, from those this process may use. CLI_GO_ON or an exit status. */
int bind_cores(int size, cpu_set_t **cores);

/* Runs the job that the guard has begun, until its end. Returns the exit status of the tool. */
int job_serve(const struct run_values *values, struct launch *launch, struct output *output, pid_t guard, int control,
              int signals);

#endif
