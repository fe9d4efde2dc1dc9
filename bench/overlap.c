/* SPDX-License-Identifier: Apache-2.0
 *
 * What starting an operation gains: a 16 MiB all_reduce beside a computation that takes as long, on a machine with cores to
 * spare for the service threads:
 *     TUTTI_RANKS=2 build/bench_overlap; tutti run -n 2 build/bench_overlap
 */
#include "median.h"

#include <stdio.h>
#include <time.h>
#include <tutti/tutti.h>

enum { LARGE = 16 << 20, ROUNDS = 30 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static volatile double sink;

/* Arithmetic that touches no memory. */
static void compute(long turns)
{
    double x = 1;
    for (long i = 0; i < turns; i++) x = x * 1.0000001 + 1e-9;
    sink = x;
}

/* The slowest rank's time of a piece of work, the median of the rounds. */
static double measure(tutti_comm *world, float *x, long turns, int communicates, int overlaps)
{
    double times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        tutti_op op;
        double slowest = 0;
        tutti_barrier(world);
        double began = now_us();
        if (overlaps) tutti_all_reduce_start(world, x, x, LARGE / sizeof *x, TUTTI_F32, TUTTI_MAX, &op);
        if (communicates && !overlaps) tutti_all_reduce(world, x, x, LARGE / sizeof *x, TUTTI_F32, TUTTI_MAX);
        if (turns > 0) compute(turns);
        if (overlaps) tutti_wait(op);
        double took = now_us() - began;
        tutti_all_reduce(world, &took, &slowest, 1, TUTTI_F64, TUTTI_MAX);
        times[i] = slowest;
    }
    return median(times, ROUNDS);
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    float *x = tutti_alloc(world, LARGE);
    if (x == NULL) return tutti_explain(world, stderr);
    measure(world, x, 0, 1, 0);
    double communication = measure(world, x, 0, 1, 0), turns = 1e6, once = 0;
    double began = now_us();
    compute((long)turns);
    once = now_us() - began;
    tutti_all_reduce(world, &once, &once, 1, TUTTI_F64, TUTTI_MAX);
    turns *= communication / once;
    double computation = measure(world, x, (long)turns, 0, 0), both = measure(world, x, (long)turns, 0, 1);
    double longer = computation > communication ? computation : communication;
    if (tutti_rank(world) == 0)
        printf("16 MiB all_reduce %.0f us, computation %.0f us, both at once %.0f us: %.2f of the longer\n",
               communication, computation, both, both / longer);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
