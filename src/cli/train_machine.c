/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti train: measures what the machine can do, to compare the training with.
 */
#include "cli/cli_train.h"

#include <unistd.h>

/* Returns how many threads of this rank have a core of their host to themselves, after those of the ranks before it. */
static int threads_with_cores(const struct train_values *asked, tutti_comm *world)
{
    tutti_comm *host;
    if (tutti_comm_by_host(world, &host) != TUTTI_OK) return 0;
    int64_t threads = asked->options.threads, left = sysconf(_SC_NPROCESSORS_ONLN) - tutti_rank(host) * threads;
    if (tutti_comm_free(host) != TUTTI_OK || left <= 0) return 0;
    if (tutti_rank(world) >= tutti_size(world) - asked->options.server) return 0; /* servers multiply no matrices */
    return (int)(left < threads ? left : threads);
}

struct train_machine train_measure_machine(const struct train_values *values, tutti_comm *world)
{
    struct train_machine mine = {0}, all = {0};
    int threads = threads_with_cores(values, world);
    if (tutti_barrier(world) != TUTTI_OK) return all;
    if (tutti_blas_load(NULL) == TUTTI_OK) {
        tutti_blas_about about;
        tutti_blas_describe(&about);
        mine.old = about.old;
        if (threads > 0) mine.gflops = tutti_blas_rate(threads, 0.2);
    }
    bool told = tutti_all_reduce(world, &mine, &all, 2, TUTTI_F64, TUTTI_SUM) == TUTTI_OK;
    return told ? all : (struct train_machine){0};
}
