/* SPDX-License-Identifier: Apache-2.0
 *
 * Many tensors in one call against a call for each: all_reduce of 100 tensors of several sizes, in turns.
 *
 *     TUTTI_RANKS=2 build/bench_many
 *     tutti run -n 2 --transport tcp build/bench_many
 */
#include "median.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>

enum { PIECES = 100, ROUNDS = 31 };
static const size_t sizes[] = {64, 1024, 4096, 8192, 16384, 65536}; /* bytes of one tensor */
enum { SIZES = sizeof sizes / sizeof *sizes };

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static tutti_status one_by_one(tutti_comm *world, const tutti_piece *pieces)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < PIECES && status == TUTTI_OK; i++)
        status = tutti_all_reduce(world, pieces[i].in, pieces[i].out, pieces[i].count, TUTTI_F32, TUTTI_SUM);
    return status;
}

static tutti_status together(tutti_comm *world, const tutti_piece *pieces)
{
    return tutti_all_reduce_many(world, pieces, PIECES, TUTTI_F32, TUTTI_SUM);
}

/* Microseconds for all tensors; less than 0: it failed. */
static double measure(tutti_comm *world, tutti_status (*call)(tutti_comm *, const tutti_piece *),
                      const tutti_piece *pieces, int repeats)
{
    if (tutti_barrier(world) != TUTTI_OK) return -1;
    double start = now_us();
    for (int i = 0; i < repeats; i++)
        if (call(world, pieces) != TUTTI_OK) return -1;
    return (now_us() - start) / repeats;
}

static bool measure_size(tutti_comm *world, const char *memory, char *data, size_t bytes)
{
    double single[ROUNDS], many[ROUNDS], ratio[ROUNDS];
    tutti_piece pieces[PIECES];
    int repeats = bytes <= 4096 ? 20 : 2;
    for (size_t i = 0; i < PIECES; i++) pieces[i] = (tutti_piece){data + i * bytes, data + i * bytes, bytes / 4};
    for (int round = 0; round < ROUNDS; round++) {
        single[round] = measure(world, one_by_one, pieces, repeats);
        many[round] = measure(world, together, pieces, repeats);
        if (single[round] < 0 || many[round] < 0) return false;
        ratio[round] = single[round] / many[round];
    }
    if (tutti_rank(world) == 0)
        printf("%d tensors of %6zu bytes, %s: one by one %8.1f us, together %8.1f us, faster by %.2f (medians)\n",
               PIECES, bytes, memory, median(single, ROUNDS), median(many, ROUNDS), median(ratio, ROUNDS));
    return true;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    size_t all = PIECES * sizes[SIZES - 1];
    char *shared = tutti_alloc(world, all), *own = calloc(all, 1);
    bool done = shared != NULL && own != NULL;
    (void)argc, (void)argv;
    for (int i = 0; i < SIZES && done; i++)
        done = measure_size(world, "tutti_alloc", shared, sizes[i]) &&
               measure_size(world, "malloc     ", own, sizes[i]);
    free(own);
    return done ? 0 : tutti_explain(world, stderr);
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
