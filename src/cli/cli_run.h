/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `tutti run`: cli_run.c checks and prepares, guard.c is the process that owns the ranks, job.c is the
 * launcher's event loop, output.c prints the ranks' lines, bind.c chooses cores. With several hosts: cli_place.c
 * decides which part of the job is this host's, hosts.c starts a launcher on each host, remote.c is what such a
 * launcher does differently; nodes.c connects launchers that were started one by one; job_heal.c starts ranks again that
 * have failed, also those of a host that is lost.
 */
#ifndef TUTTI_CLI_CLI_RUN_H
#define TUTTI_CLI_CLI_RUN_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* The flags of the command line. */
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
    int64_t spare;        /* the last ones of `hosts`, or nodes behind `nnodes`, which wait */
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

/* The part of the job that this launcher starts. */
struct place {
    int first, world; /* its first rank, and the number of ranks in the whole job */
    int node, nodes;
    const char *master_addr; /* with several hosts: the address where rank 0 waits */
    int master_port;
    const char *host; /* this host's name, for messages; NULL: the job is on one host */
};

struct launch {
    int size;    /* processes to start: ranks, or with --hosts one remote shell for each host */
    int most;    /* the most ranks that there can be, with those that join later */
    bool grows;  /* processes may join */
    char **argv; /* the program and its arguments */
    char job[256];
    struct place place;
    struct hosts *hosts; /* NULL: the processes are ranks */
    /* another launcher decides for this one, and talks to it through stdin and stderr, or over `link` */
    bool remote;
    int link;                  /* the connection to the launcher of node 0; 0: there is none */
    int max_restarts;          /* how many times failed ranks are started again, in total; with --hosts see `values` */
    int generation;            /* how many restarts there were before this launcher began */
    bool heals;                /* one launcher decides for all hosts which ranks go on when some are lost */
    int ends;                  /* with --hosts: how many ends of ranks have a number so far */
    int *lives;                /* with --hosts: [place.world] how often each rank has ended; NULL: not kept */
    bool pass_input;           /* rank 0 reads the launcher's stdin; otherwise /dev/null */
    struct launch_rank *ranks; /* [size] */
    cpu_set_t *cores;          /* [size], or NULL: not bound */
    sigset_t mask; /* the signal mask, SIGPIPE and limit that the launcher was started with, for the ranks */
    struct sigaction pipe_action;
    struct rlimit files;
};

/* ---- Several hosts ---- */

/* Fills in launch->size and launch->place from the flags. Returns CLI_GO_ON or an exit status. */
int place_read(const struct run_values *values, struct launch *launch);

/* Reads --hosts and prepares a remote shell for each, with a pipe to its stdin that holds everything the launcher there
 * needs; secrets are sent nowhere else. Returns CLI_GO_ON or an exit status. */
int hosts_open(const struct run_values *values, struct launch *launch);
void hosts_close(struct hosts *hosts); /* NULL is ignored */
const char *hosts_name(const struct hosts *hosts, int host);
char **hosts_command(const struct hosts *hosts, int host);
int hosts_input(const struct hosts *hosts, int host); /* the stdin of its remote shell */
/* its first rank; the next function returns how many ranks it has, 0 for a spare one */
int hosts_first(const struct hosts *hosts, int host);
int hosts_slots(const struct hosts *hosts, int host);
void hosts_close_inputs(struct hosts *hosts);       /* called in the launcher once the shells are started */
void hosts_close_controls(struct hosts *hosts);     /* called in the guard; in the launcher it ends all hosts */
void hosts_signal(struct hosts *hosts, int signal); /* after SIGKILL they are sent nothing more */
/* Sends an order to the launcher on one host. A launcher that can no longer read it is noticed by its silence. */
struct remote_order;
void hosts_order(struct hosts *hosts, int host, const struct remote_order *order);
/* Gives the place of a lost host to a spare one; `generation`: how many restarts there were by then. Afterwards
 * `launch` has the address where rank 0 waits. Returns false if the spare host cannot be told. */
bool hosts_replace(const struct run_values *values, struct launch *launch, int lost, int spare, int generation);
/* Closes the pipe to a host that is lost or not needed any more: its launcher then ends its processes. */
void hosts_close_control(struct hosts *hosts, int host);

/* Prepares the same for launchers that were started one by one, which are connected to this one: `links` has the
 * connection to each, which this takes over, and -1 for the launcher of this host, which is started without a shell. */
int hosts_open_links(const struct run_values *values, struct launch *launch, const int *links);
/* are_nodes: returns true if they were prepared so. link: returns the connection to the launcher of that host, -1: there
 * is none here; is_linked: it is connected, in place of a shell; title: "host a" or "node 1". */
bool hosts_are_nodes(const struct hosts *hosts);
int hosts_link(const struct hosts *hosts, int host);
bool hosts_is_linked(const struct hosts *hosts, int host);
const char *hosts_title(const struct hosts *hosts, int host, char text[96]);
void hosts_close_link(struct hosts *hosts, int host); /* called in the guard, once the host's process has it */

/* ---- Launchers that were started one by one, and are connected ---- */

/* Returns true if this is a job of several nodes in which one launcher decides. */
bool nodes_are_linked(const struct run_values *values, const struct launch *launch);
/* Meets the other launchers. On node 0 it fills in launch->hosts then; elsewhere it waits for the order, and fills in
 * `launch` and `values` from it. Returns CLI_GO_ON or an exit status. */
int nodes_open(struct run_values *values, struct launch *launch);
/* Passes orders from stdin on over a connection, and reports from there to stderr, as a remote shell does. Returns the
 * exit status of the other launcher. */
int nodes_pump(int link);
/* Sends the last report to the launcher of node 0, if this one is connected to it, and ends the connection. */
void nodes_close(struct launch *launch, int status);

/* Reports of a launcher to the one that started it: lines on stderr that begin with REMOTE_MARK. */
#define REMOTE_MARK '\x1e'
enum remote_event {
    REMOTE_STARTED, /* it has read its order */
    REMOTE_ENDED,   /* rank, pid, value: wait status; of the first rank that failed */
    REMOTE_FAILED,  /* the same, for a rank that may be started again: the launcher waits for an order */
    REMOTE_LATE,    /* rank: a process of another host, for which others have waited too long */
    REMOTE_ALIVE,   /* value: the launcher's time, in milliseconds */
    REMOTE_GONE,    /* rank, pid: a process that has ended with all that it had started */
    REMOTE_ASKED,   /* value: an epoch; ranks ask who was lost in it */
    REMOTE_EMPTY,   /* no process of the job is left on that host */
    REMOTE_ROW,     /* text: what a rank does, for somebody who watches (job_rows.c) */
    REMOTE_EXIT     /* over a connection: the last report; value: the launcher's exit status */
};
struct remote_report {
    enum remote_event event;
    int rank, pid, value;
    int follows; /* as in guard_report */
    int joined;
    const char *text; /* REMOTE_ROW; until the next report is read */
};
enum { REPORT_TEXT = 600 };
bool hosts_read_report(const char *line, size_t length, struct remote_report *report);
/* Writes a report as a line without its newline. */
void hosts_write_report(const struct remote_report *report, char *line, size_t bytes);

/* Reads the order from stdin: sets this process's environment and folder, and `launch`'s place and job, and returns a
 * command line in the form that cli_run gets, which stays allocated. Returns CLI_GO_ON or an exit status. */
int remote_read(struct launch *launch, int *argc, char ***argv);
/* Reads the order from the launcher of node 0 over launch->link. The command line, environment and folder are this
 * launcher's own. */
int remote_read_link(struct run_values *values, struct launch *launch);
/* Returns the descriptor that orders come from. */
int remote_fd(void);
/* Orders of the other launcher: lines such as "restart 3 1", with a word, a rank, a value and for some a text. */
enum remote_order_kind {
    ORDER_NONE,    /* nothing yet */
    ORDER_GONE,    /* the other launcher is gone */
    ORDER_SIGNAL,  /* value: a signal for all ranks */
    ORDER_ALIVE,   /* value: the last time that the other launcher heard from this one */
    ORDER_MOVE,    /* value: number of restarts, the last on another host; text: where rank 0 waits, or "" */
    ORDER_RESTART, /* value, text: the same; rank: a rank of this host that is to be started again */
    ORDER_NOTE,    /* rank: a rank that is not started again */
    ORDER_LATE,    /* rank: a rank that is to be killed */
    ORDER_GONE_AS, /* rank: it has ended with all that it had started; value: the number of this end on all hosts */
    ORDER_SETTLED, /* rank: an epoch; value: ranks whose ends have numbers up to this one were lost in it */
    ORDER_WATCH,   /* somebody watches the job's ranks: they are to be told for some seconds */
    ORDER_OVER     /* to a spare host: the job ends and has not needed it */
};
/* A spare host that has heard nothing for a heartbeat and so much more ends. */
enum { ORDER_VERSION = 4, SPARE_MORE_MS = 900 };
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
    GUARD_ENDED,    /* rank, pid, value: wait status; if ranks are restarted, the guard waits for a command about it */
    GUARD_LATE,     /* rank: a rank of the job on another host, for which others have waited too long */
    GUARD_JOINED,   /* rank, pid: a process that --join started is now this rank */
    GUARD_GONE,     /* with --hosts; rank, pid: it has ended with all that it had started */
    GUARD_ASKED,    /* with --hosts; value: an epoch; ranks ask who was lost in it */
    GUARD_EXCLUDED, /* the lease has run out, and the ranks are ended */
    GUARD_EMPTY     /* value: how many processes other than ranks had to be killed; the guard's last report */
};

struct guard_report {
    int32_t event, rank, pid, value;
    int32_t follows; /* GUARD_ENDED: 1 if the rank knew that another one was the cause */
    int32_t joined;  /* GUARD_ENDED: 1 if the job's world had been formed before */
    int32_t orphan;  /* GUARD_ENDED: 1 if the rank had joined, and the command that started it is gone */
};

/* Commands to the guard. */
enum guard_order {
    GUARD_SIGNAL,  /* value: a signal for all ranks. SIGKILL goes to every descendant, until none is left */
    GUARD_RESTART, /* value: a rank that has ended and is started again; also sets what GUARD_MOVE sets */
    GUARD_MOVE,    /* generation: the number of restarts; text: where rank 0 waits from now on, or "" */
    GUARD_NOTE,    /* value: a rank that has ended for good; the other ranks are told */
    GUARD_END,     /* value: a rank to be killed */
    GUARD_FINISH,  /* the job ends, and nobody can join any more */
    GUARD_LEASE,   /* until_ms: the ranks may run until then; after that the other hosts continue without this one */
    /* value: a rank of the job that has ended with all that it had started; number: the number of this end */
    GUARD_COUNT,
    GUARD_SETTLE /* value: an epoch; number: ranks whose ends have numbers up to this one were lost in it */
};

enum { GUARD_TEXT = 256, GUARD_EXCLUDED_MS = 600 }; /* from the end of the lease until the ranks are killed */
struct guard_command {
    int32_t order, value, generation, number;
    int64_t until_ms; /* of CLOCK_MONOTONIC */
    char text[GUARD_TEXT];
};

/* Runs the guard's process: starts the ranks, then reads guard_commands from `control` until no process is left. */
int guard_main(const struct launch *launch, int control);

/* Kills and reaps this process's children, and the orphans that become its children thereby, until none is left. Needs
 * PR_SET_CHILD_SUBREAPER. Children that existed before, recorded by guard_spare_children, are left alone. */
void guard_sweep(void);
void guard_spare_children(void);

/* Blocks the launcher's signals, and returns a descriptor that delivers them. The settings that the ranks must get back
 * are kept in `launch`. */
int run_take_signals(struct launch *launch);

/* Runs tutti run --join: has the job's guard start `launch`'s processes, and waits for their end. Returns the exit
 * status of the tool. */
int join_run(const struct run_values *values, struct launch *launch);

/* ---- Output ---- */

struct output;

/* Makes the pipes and log files, and puts the ranks' ends into launch->ranks. Returns CLI_GO_ON, or an exit status
 * after a message to stderr. */
int output_open(const struct run_values *values, struct launch *launch, struct output **opened);
void output_close(struct output *output);

/* Closes the ranks' ends in this process, once the guard has them. */
void output_started(struct launch *launch);

/* Adds descriptors to the caller's own for poll: fills `polls`, of output_poll_room, and returns how many. */
struct pollfd;
size_t output_poll_room(const struct output *output);
size_t output_poll(struct output *output, struct pollfd *polls);
void output_serve(struct output *output, const struct pollfd *polls, size_t count);

/* Sets the text that is printed in front of lines of the rank with this place, instead of its number. */
void output_name_rank(struct output *output, int rank, const char *name);

/* Reads everything that rank's pipes hold now, so that its output comes before messages about its end. */
void output_drain_rank(struct output *output, int rank);
/* Reads everything that all pipes hold now, and ends last lines that have no newline. No output comes after this. */
void output_finish(struct output *output);
bool output_pending(const struct output *output);

/* Returns the errno of the first failed write, with its file in *target; 0: none failed. */
int output_error(const struct output *output, const char **target);

/* Sets the function that gets reports of other launchers, instead of stderr. */
typedef void output_report(void *context, int host, const struct remote_report *report);
void output_on_report(struct output *output, output_report *take, void *context);
/* Writes a report of this launcher for the one that started it. */
void output_write_report(struct output *output, const struct remote_report *report);
/* Waits for a moment until all reports are sent. */
void output_end_reports(struct output *output);

/* Prints a line of the launcher's own, "tutti run: …", to stderr, in order with the ranks' lines. */
__attribute__((format(printf, 2, 3))) void output_say(struct output *output, const char *format, ...);

/* ---- Cores, events ---- */

/* Chooses one core per rank, in topology order, from those this process may use. Returns CLI_GO_ON or an exit
 * status. */
int bind_cores(int size, cpu_set_t **cores);

/* Serves the job that the guard has started until its end. Returns the exit status of the tool. */
int job_serve(const struct run_values *values, struct launch *launch, struct output *output, pid_t guard, int control,
              int signals);

#endif
