/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SIM_SETUP_H
#define TESTS_SIM_SETUP_H

#include <tutti/experimental.h>

/* One host, and stacks so small that there can be many. */
static inline tutti_sim_setup sim_setup(int ranks, uint64_t seed)
{
    tutti_sim_setup setup;
    tutti_sim_setup_init(&setup);
    setup.ranks_per_host = ranks;
    setup.seed = seed;
    setup.stack_bytes = 1 << 18;
    return setup;
}

#endif
