/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs plans over messages on real data, all ranks in one thread: a message is a copy, done at once when both sides have
 * posted it, or when somebody waits for it, as the seed will have it.
 */
#ifndef TESTS_PLAN_RUN_H
#define TESTS_PLAN_RUN_H

#include "collective/plan/plan.h"
#include "collective/reduce/reduce.h"

struct plan_run_rank {
    const struct tti_plan *plan;
    const struct tti_reducer *reducer; /* NULL: the operation does not reduce */
    size_t element, accumulator;
    unsigned char *in, *out, *temp;
};

/* False: they wait for each other for ever. */
bool plan_run(const struct plan_run_rank *ranks, int size, uint64_t seed);

#endif
