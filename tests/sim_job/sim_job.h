/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a job of several hosts in simulated time, with the launchers' own decisions (src/cli/job_heal.c) and made-up guards; for
 * test_sim_rebuild and the plants.
 */
#ifndef TEST_SIM_JOB_H
#define TEST_SIM_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns true if nothing went wrong; `text` says what the seed was, or what went wrong. One seed for each process: what those that are
 * killed held is not given back. */
bool sim_job_run_seed(uint64_t seed, char *text, size_t bytes);

#endif
