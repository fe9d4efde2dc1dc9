/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that grows: steps, each a sum over all ranks. Before each step the ranks look whether processes wait to join, and take them in.
 * A rank that joins gets the number of the step from those that know it. When there are as many ranks as were asked for, three more
 * steps are done.
 *
 *     tutti run -n 2 --max-ranks 4 build/examples/grow 4
 *     tutti run -n 2 --join JOB build/examples/grow 4        in another terminal; tutti top shows the job's name
 */
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>
#include <tutti/tutti.h>

enum { LAST_STEPS = 3 };

/* A rank that has joined knows nothing; the others know which step is next. */
static tutti_status restore(tutti_comm *comm, int *step)
{
    return tutti_all_reduce(comm, step, step, 1, TUTTI_I32, TUTTI_MAX);
}

/* Returns true if all ranks see somebody wait. */
static tutti_status look(tutti_comm *comm, int *waiting)
{
    *waiting = tutti_comm_waiting(comm);
    return tutti_all_reduce(comm, waiting, waiting, 1, TUTTI_I32, TUTTI_MIN);
}

/* Takes in those that wait. The comm that was before is freed, unless it is the world. */
static tutti_status take_in(tutti_comm **comm, const tutti_comm *world, int *step)
{
    tutti_comm *next;
    tutti_status status = tutti_comm_grow(*comm, &next);
    if (status == TUTTI_ERR_ARGUMENT || status == TUTTI_ERR_JOIN) return TUTTI_OK; /* they have gone: nothing changes */
    if (status != TUTTI_OK) return status;
    if (*comm != world) tutti_comm_free(*comm);
    *comm = next;
    return restore(next, step);
}

static tutti_status do_step(tutti_comm *comm, int step)
{
    const struct timespec work = {.tv_nsec = 10 * 1000 * 1000};
    int one = 1, ranks;
    thrd_sleep(&work, NULL);
    tutti_status status = tutti_all_reduce(comm, &one, &ranks, 1, TUTTI_I32, TUTTI_SUM);
    if (status == TUTTI_OK && tutti_rank(comm) == 0)
        printf("step %d: %d ranks, epoch %d\n", step, ranks, (int)tutti_epoch(comm));
    fflush(stdout);
    return status;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    int wanted = argc > 1 ? atoi(argv[1]) : 1, step = 0, last = LAST_STEPS, waiting;
    tutti_comm *comm = world;
    tutti_status status = tutti_epoch(world) > 0 ? restore(world, &step) : TUTTI_OK;
    while (status == TUTTI_OK && last > 0) {
        status = look(comm, &waiting);
        if (status == TUTTI_OK && waiting > 0) {
            status = take_in(&comm, world, &step);
            continue;
        }
        if (status == TUTTI_OK) status = do_step(comm, step++);
        if (tutti_size(comm) >= wanted) last--;
    }
    if (status != TUTTI_OK) return tutti_explain(comm, stderr);
    if (comm != world) tutti_comm_free(comm);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
