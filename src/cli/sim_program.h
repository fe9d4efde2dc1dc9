/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one seed's program (sim_faults.h): what the seed has chosen, and what its ranks record for each other.
 * They run one at a time in one thread, so this needs no locks.
 */
#ifndef TUTTI_CLI_SIM_PROGRAM_H
#define TUTTI_CLI_SIM_PROGRAM_H

#include "cli/sim_faults.h"

enum { ELEMENTS = 16384, ATTEMPTS = 64, DEADLINE_MS = 10000, LIMIT_MS = 20000, FAULTS_MOST = 12 };
#define DEADLINE_NS (INT64_C(1000000) * DEADLINE_MS)
#define LONGEST_NS INT64_C(400000000000) /* longest simulated time of a run in which each op ends by DEADLINE_MS */

struct outcome { /* one agreement and the shrink after it, as seen by the first rank that had it */
    bool is_known, lost_known, made_known, broke_known;
    bool given_up; /* a rank that has seen a failure has revoked the comm */
    int rank, lost_rank, made_rank, broke_rank;
    uint64_t all, lost, epoch;
    uint64_t members; /* members of the comm that shrink has made */
    uint64_t broke;   /* who was lost as the comm broke */
    uint64_t given;   /* ranks that gave "all went well" */
};

/* Times of one agreement in the run without faults: when the last rank called it, and when each had the outcome. */
struct moment {
    int64_t called_ns, returned_ns[FAULTS_MOST_RANKS];
};

struct survivor {
    uint64_t in_buffer[ELEMENTS], out_buffer[ELEMENTS];
    enum faults_doing doing;
    bool ended, finished; /* the rank's work has returned; it has done all steps */
    int attempts;
    uint64_t members, epoch;
};

struct program {
    uint64_t seed;
    int size, hosts, steps, slow_rank;
    bool shared; /* buffers are allocated by the library */
    bool parts;  /* ranks with even numbers have a comm of their own, and so have the others */
    enum faults_plant plant;
    tutti_sim_death deaths[FAULTS_MOST_DEATHS];
    int death_count;
    tutti_sim_fault faults[FAULTS_MOST];
    int fault_count;
    int64_t heartbeat_ns;
    int64_t unsure_ns, late_ns; /* from these times on, ranks that live may be given up, or be late; INT64_MAX: never */
    uint64_t larger;            /* in a lasting partition, the ranks of the side that continues; 0: there is none */
    bool rehearses;             /* this run has no faults */
    int64_t start_ns, took_ns;  /* took_ns: of the whole run; -1: it is not over */
    struct moment moments[ATTEMPTS]; /* of the run without faults */
    int moment_count;
    struct outcome outcomes[ATTEMPTS];
    struct survivor *ranks; /* (size) */
    struct faults_finding *finding;
    struct faults_counts *counts;
};

/* Chooses the ranks and links by the seed. The next function chooses the faults of the second run, once
 * program->moments are known. */
void sim_program_choose(struct program *program, uint64_t *random, int least, int most, tutti_sim_setup *setup,
                        tutti_sim_point delay[2]);
void sim_program_disturb(struct program *program, uint64_t *random, int64_t time_ns, tutti_sim_setup *setup);
/* Describes ranks, hosts, and faults with their times. */
void sim_program_describe(const struct program *program, struct faults_finding *finding);

#endif
