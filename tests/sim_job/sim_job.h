/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a job of several hosts in simulated time, with the launchers' own decisions (src/cli/job_heal.c) and made-up guards; for
 * test_sim_rebuild and the plants.
 */
#ifndef TEST_SIM_JOB_H
#define TEST_SIM_JOB_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if nothing went wrong; else it has printed what did. With VERBOSE in the environment it always says what the seed was.
 * Each seed has a process of its own, since what those that are killed held is not given back. */
bool sim_job_run_seed(uint64_t seed);

#endif
