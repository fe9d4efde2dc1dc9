/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a simulated job: sim_job.c runs it and does it harm, sim_job_launchers.c is in place of job.c, hosts.c and guard.c,
 * and sim_job_ranks.c is what ranks do.
 */
#ifndef TEST_SIM_JOB_STATE_H
#define TEST_SIM_JOB_STATE_H

#include "base/sim.h"
#include "base/task.h"
#include "cli/job.h"
#include "transport/sim_socket.h"

#define MS INT64_C(1000000)
enum { HOSTS_MOST = 6, RANKS_MOST = 12, LETTERS_MOST = 4096, HEARTBEAT_MS = 2000, SUMS = 8192 };

/* A process of a rank. */
struct process {
    struct tti_task task;
    int host, rank, pid;
    bool runs;   /* it was started, and has not ended */
    bool ended;  /* by itself, and its end was not seen yet */
    bool killed; /* the same, by a signal */
    int status;  /* its exit status */
    bool held;   /* its launcher has not decided yet if it is started again */
    bool over;   /* it has ended for good */
};

struct letter {
    bool waits, to_main;
    int host;
    int64_t at_ns;
    struct remote_report report;
    struct remote_order order;
    bool begins; /* an order to begin: the spare host takes the ranks of a lost one */
    int generation, ends, lives[RANKS_MOST], first, slots;
};

/* A host, and the launcher and guard on it. */
struct sim_host {
    int number;
    bool begun, gone;        /* its launcher runs; it has ended */
    bool closed;             /* the launcher that decides has closed its connection */
    int64_t silent_until_ns; /* nothing is heard from or by it before */
    int64_t held_until_ns;   /* and what was said meanwhile comes after this */
    int64_t last_ns[2];      /* when the last letter comes to it, and from it */
    int64_t heard_ms;        /* when it heard the launcher that decides last, while it waits */
    int first, slots;        /* of ranks, as the launcher that decides knows it */
    struct launch launch;
    struct job job;
    struct process processes[RANKS_MOST];
    tutti_board *board;
    char board_name[64];
    int64_t lease_ms;
    bool excluded;
    unsigned asked;
};

struct sim_job {
    uint64_t seed;
    int host_count, spares, world, slots;
    struct sim_host hosts[HOSTS_MOST];
    struct launch launch; /* of the launcher that decides */
    struct run_values values;
    struct job main;
    char address[HOSTS_MOST][32];
    struct letter letters[LETTERS_MOST];
    int pids;
    bool stop;   /* ranks end at their next step */
    bool failed; /* something is wrong: `text` says what */
    char text[600], last_said[300];
    bool all_done;
    int rebuilt, killed, lost_hosts, silences, stops, restarts;
    /* what a rank saw in the n-th step of an epoch, which all must see */
    struct {
        uint64_t epoch;
        uint32_t index;
        int rank, word;
    } sums[SUMS];
    int sum_count;
};

extern struct sim_job sim;

__attribute__((format(printf, 1, 2))) void blame(const char *format, ...);

/* ---- ranks.c ---- */

void *rank_live(void *process);

/* ---- launchers.c ---- */

/* Begins the launcher that decides, and those of the hosts. */
void launchers_begin(void);
/* Lets them do what is due. */
void launchers_step(void);
/* A fault: the process is killed; the host ends with all that it has. */
void kill_process(struct process *process, int signal);
void kill_host(struct sim_host *host);
struct process *process_of(int rank); /* NULL: none runs */
bool all_have_ended(void);

#endif
