/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on after a loss: a few steps, each a sum over all ranks. When a rank dies in the midst of one, the others agree on whether the
 * step was done, go on in a comm of those that are left, and repeat the step if it was not done for all.
 *
 *     tutti run -n 4 build/examples/heal
 *     tutti run -n 4 --keep-going build/examples/heal 2 3        rank 2 kills itself before step 3
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { STEPS = 6 };

/* One step. All ranks that return from it with success know that it was done for all of them. */
static tutti_status do_step(tutti_comm *comm, int *ranks)
{
    int one = 1;
    uint64_t done = 0;
    tutti_status status = tutti_all_reduce(comm, &one, ranks, 1, TUTTI_I32, TUTTI_SUM);
    tutti_status agreed = tutti_comm_agree(comm, status == TUTTI_OK, &done);
    if (agreed != TUTTI_OK || done != 0) return agreed;
    return status != TUTTI_OK ? status : TUTTI_ERR_BROKEN; /* it failed for another rank: the comm is of no use */
}

/* Puts a comm of the ranks that are left in place of the old one, which is freed, unless it is the world. */
static tutti_status go_on_without(tutti_comm **comm, const tutti_comm *world)
{
    tutti_comm *next;
    tutti_status status = tutti_comm_revoke(*comm); /* so that nobody waits in it any more */
    if (status == TUTTI_OK) status = tutti_comm_shrink(*comm, &next);
    if (status != TUTTI_OK) return status;
    if (*comm != world) tutti_comm_free(*comm);
    *comm = next;
    return TUTTI_OK;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    int victim = argc > 2 ? atoi(argv[1]) : -1, when = argc > 2 ? atoi(argv[2]) : -1, ranks = 0;
    tutti_comm *comm = world;
    for (int step = 0; step < STEPS;) {
        if (tutti_rank(world) == victim && step == when) raise(SIGKILL);
        tutti_status status = do_step(comm, &ranks);
        if (status != TUTTI_OK && go_on_without(&comm, world) != TUTTI_OK) return tutti_explain(comm, stderr);
        if (status != TUTTI_OK) continue;
        if (tutti_rank(comm) == 0) printf("step %d: %d ranks, epoch %d\n", step, ranks, (int)tutti_epoch(comm));
        fflush(stdout);
        step++;
    }
    if (comm != world) tutti_comm_free(comm);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
