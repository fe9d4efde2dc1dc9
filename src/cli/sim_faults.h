/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti sim --faults, in four parts:
 *   sim_faults.c    runs seeds in processes of their own, and reports findings
 *   sim_program.c   the program of one seed: its ranks and links, and what goes wrong
 *   sim_survive.c   what its ranks do, and the properties that must hold
 *   sim_step.c      one collective of that program
 */
#ifndef TUTTI_CLI_SIM_FAULTS_H
#define TUTTI_CLI_SIM_FAULTS_H

#include "cli/cli_sim.h"

enum { FAULTS_LEAST_RANKS = 3, FAULTS_MOST_RANKS = 32, FAULTS_MOST_DEATHS = 3 };

enum faults_kind {
    FAULTS_NONE,
    FAULTS_HANG,
    FAULTS_DISAGREEMENT,
    FAULTS_WRONG,
    FAULTS_FAILED,
    FAULTS_CRASHED,
    FAULTS_KINDS
};

/* A deliberate error of ranks that have seen a loss. */
enum faults_plant { PLANT_NOTHING, PLANT_HANG, PLANT_DISAGREEMENT, PLANT_WRONG };

enum faults_doing { DOING_OTHER, DOING_COLLECTIVE, DOING_AGREE, DOING_SHRINK, DOING_RENEW, DOING_KINDS };

struct faults_finding { /* the first of a seed */
    enum faults_kind kind;
    uint64_t seed;
    char text[512], setup[1024]; /* what was wrong; the ranks, hosts and faults of this seed */
};

struct faults_counts {
    uint64_t deaths[DOING_KINDS]; /* by what the rank did at its death */
    uint64_t faults[TUTTI_SIM_JUMP + 1];
    uint64_t agreements, shrinks, excluded, collectives; /* calls of survivors that ended as they may */
};

/* ---- One collective ------------------------------------------------------------------------------------------------- */

/* One collective. The caller sets the first four fields. */
struct sim_step {
    tutti_comm *comm;
    const int *ids;     /* (size) the ranks' numbers in every comm, which their data depend on */
    uint64_t *in, *out; /* (most) */
    int call, root, rank, size;
    const char *name;
    size_t count; /* elements of a rank's block */
    uint64_t key;
};

uint64_t sim_mix(uint64_t a, uint64_t b);
uint64_t sim_draw(uint64_t *state, uint64_t below);

/* Chooses a collective with at most so many elements, by `random`; the same on all ranks. */
void sim_step_choose(struct sim_step *step, uint64_t random, size_t most);
void sim_step_fill(const struct sim_step *step); /* fills its input */
tutti_status sim_step_do(const struct sim_step *step);
/* Checks the output. Returns false if the element at *place is not *right. */
bool sim_step_check(const struct sim_step *step, size_t *place, uint64_t *right);
void sim_step_spoil(const struct sim_step *step); /* makes one element of the output wrong */

/* ---- One seed ------------------------------------------------------------------------------------------------------- */

/* Runs the seed with so many ranks at least and at most; finding->kind is NONE if everything held. */
void faults_run_seed(uint64_t seed, int least, int most, enum faults_plant plant, struct faults_finding *finding,
                     struct faults_counts *counts);

/* Runs tutti sim --faults. Returns a tool's exit status. */
int sim_faults(const struct sim_values *flags);

#endif
