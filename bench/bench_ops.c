/* SPDX-License-Identifier: Apache-2.0
 *
 * What a handle costs: all_reduce of 8 bytes, blocking against start and wait, in turns.
 *
 *     TUTTI_RANKS=2 build/bench_ops
 */
#include "median.h"

#include <stdio.h>
#include <time.h>
#include <tutti/tutti.h>

enum { ROUNDS = 201, CALLS = 2000, COUNT = 2 };

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static tutti_status block(tutti_comm *world, const float *in, float *out)
{
    return tutti_all_reduce(world, in, out, COUNT, TUTTI_F32, TUTTI_SUM);
}

static tutti_status start_and_wait(tutti_comm *world, const float *in, float *out)
{
    tutti_op op;
    tutti_status status = tutti_all_reduce_start(world, in, out, COUNT, TUTTI_F32, TUTTI_SUM, &op);
    return status == TUTTI_OK ? tutti_wait(op) : status;
}

/* Microseconds per call; less than 0: it failed. */
static double measure(tutti_comm *world, tutti_status (*call)(tutti_comm *, const float *, float *), const float *in,
                      float *out)
{
    if (tutti_barrier(world) != TUTTI_OK) return -1;
    double start = now_us();
    for (int i = 0; i < CALLS; i++)
        if (call(world, in, out) != TUTTI_OK) return -1;
    return (now_us() - start) / CALLS;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    double blocking[ROUNDS], started[ROUNDS], more[ROUNDS];
    float *in = tutti_alloc(world, COUNT * sizeof *in), *out = tutti_alloc(world, COUNT * sizeof *out);
    (void)argc, (void)argv;
    if (in == NULL || out == NULL) return tutti_explain(world, stderr);
    in[0] = in[1] = 1;
    for (int round = 0; round < ROUNDS; round++) {
        blocking[round] = measure(world, block, in, out);
        started[round] = measure(world, start_and_wait, in, out);
        if (blocking[round] < 0 || started[round] < 0) return tutti_explain(world, stderr);
        more[round] = started[round] - blocking[round];
    }
    if (tutti_rank(world) == 0)
        printf("all_reduce of 8 bytes, %d ranks: blocking %.3f us, start and wait %.3f us, more by %.3f us (medians)\n",
               tutti_size(world), median(blocking, ROUNDS), median(started, ROUNDS), median(more, ROUNDS));
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
