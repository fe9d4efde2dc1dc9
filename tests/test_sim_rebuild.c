/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan
 *
 * A job of several hosts in simulated time: processes join by sockets and tcp, and rebuild their world; the launchers decide by the same
 * file as those of `tutti run` (cli/job_heal.c), over messages that take a while and are held up when a host is silent. Guards, which
 * start and end processes, are short ones of this test. Processes are killed, also while the world is rebuilt, stand still, and hosts end
 * or fall silent, and others that wait take their ranks. In the end all ranks are there; no two processes were ever the same rank at a
 * time; ranks of an epoch have seen the same sums; and nothing took too long.
 */
#include "sim_job/sim_job.h"

#include "check.h"
#include "sanitized.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 0) : SANITIZED ? 10 : 40;
    for (uint64_t seed = first; seed < first + seeds; seed++)
        if (!CHECK_THAT(sim_job_run_seed(seed), "seed %llu", (unsigned long long)seed)) break;
    return check_end();
}
