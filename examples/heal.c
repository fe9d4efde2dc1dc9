/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on after a loss: a few steps, each a sum over all ranks. When a rank dies in the midst of one, the others agree on whether the
 * step was done, and go on: with the lost rank, where the launcher starts it again, or without it. Then all take the step from those
 * that know it, and repeat it if it was not done for all.
 *
 *     tutti run -n 4 build/examples/heal
 *     tutti run -n 4 --max-restarts 1 build/examples/heal 2 3    rank 2 kills itself before step 3, and is started again
 *     tutti run -n 4 --keep-going build/examples/heal 2 3        the others go on without it
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

/* Puts a comm of the next epoch in place of the old one, which is freed, unless it is the world. */
static tutti_status go_on(tutti_comm **comm, const tutti_comm *world)
{
    tutti_comm *next;
    tutti_status status = tutti_comm_revoke(*comm); /* so that nobody waits in it any more */
    if (status == TUTTI_OK) status = tutti_comm_rebuild(*comm, &next);
    if (status == TUTTI_ERR_UNSUPPORTED) status = tutti_comm_shrink(*comm, &next); /* nobody starts ranks again */
    if (status != TUTTI_OK) return status;
    if (*comm != world) tutti_comm_free(*comm);
    *comm = next;
    return TUTTI_OK;
}

/* A rank that was started again knows nothing; the others know which step is next. */
static tutti_status restore(tutti_comm *comm, int *step)
{
    return tutti_all_reduce(comm, step, step, 1, TUTTI_I32, TUTTI_MAX);
}

static int work(tutti_comm *world, int argc, char **argv)
{
    int victim = argc > 2 ? atoi(argv[1]) : -1, when = argc > 2 ? atoi(argv[2]) : -1, ranks = 0, step = 0;
    tutti_comm *comm = world;
    tutti_status status = tutti_epoch(world) > 0 ? restore(world, &step) : TUTTI_OK;
    while (step < STEPS) {
        if (tutti_rank(world) == victim && step == when && tutti_epoch(world) == 0) raise(SIGKILL);
        if (status == TUTTI_OK) status = do_step(comm, &ranks);
        if (status != TUTTI_OK) {
            if (go_on(&comm, world) != TUTTI_OK) return tutti_explain(comm, stderr);
            status = restore(comm, &step);
            continue;
        }
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
