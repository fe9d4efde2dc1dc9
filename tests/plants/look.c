/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks for a mistake that was planted in the library (the .sed files beside this one): runs the seeds of tutti sim --faults until one
 * is found; fails if none is.
 */
#include "cli/sim_faults.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    unsigned long long seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 100, found = 0;
    struct faults_counts counts = {0};
    tutti_log_set_level(TUTTI_QUIET); /* that ranks die is meant */
    for (unsigned long long seed = 1; seed <= seeds; seed++) {
        struct faults_finding finding;
        faults_run_seed(seed, FAULTS_LEAST_RANKS, FAULTS_MOST_RANKS, PLANT_NOTHING, &finding, &counts);
        if (finding.kind == FAULTS_NONE) continue;
        found++;
        printf("seed %llu: %s\n    %s\n", seed, finding.text, finding.setup);
        if (argc <= 2) break; /* with one more argument: how many of them find it */
    }
    printf("%llu seeds of %llu have found it\n", found, seeds);
    return found > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
