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

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a process of its own: what the dead held is given back with it. */
static bool run_seed(uint64_t seed)
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char text[600] = "";
        alarm(120);
        bool good = sim_job_run_seed(seed, text, sizeof text);
        if (good || getenv("VERBOSE") != NULL) printf("%s\n", text);
        fflush(stdout);
        _exit(CHECK_THAT(good, "seed %llu: %s", (unsigned long long)seed, text) ? 0 : 1);
    }
    return CHECK_THAT(child > 0 && waitpid(child, &status, 0) == child && status == 0, "seed %llu",
                      (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 0) : SANITIZED ? 10 : 40;
    for (uint64_t seed = first; seed < first + seeds && run_seed(seed); seed++) {}
    return check_end();
}
