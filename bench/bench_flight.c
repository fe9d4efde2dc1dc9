/* SPDX-License-Identifier: Apache-2.0
 *
 * Ten thousand ops in flight on a hundred comms: how long they take, and what memory the process needs for them.
 *
 *     TUTTI_RANKS=2 build/bench_flight
 *     tutti run -n 2 --transport tcp build/bench_flight
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <tutti/tutti.h>

enum { COMMS = 100, OPS = 100, COUNT = 256 };

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Of the whole process, at its most. */
static double peak_mib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static bool fly(tutti_comm *const *comms, float *data, tutti_op *ops)
{
    for (int i = 0; i < COMMS * OPS; i++) {
        float *x = data + (size_t)i * COUNT;
        x[0] = (float)i;
        if (tutti_all_reduce_start(comms[i % COMMS], x, x, COUNT, TUTTI_F32, TUTTI_SUM, &ops[i]) != TUTTI_OK)
            return tutti_explain(comms[i % COMMS], stderr) == 0;
    }
    for (int i = COMMS * OPS; i-- > 0;) /* the last one first: all are in flight together */
        if (tutti_wait(ops[i]) != TUTTI_OK) return tutti_explain(comms[i % COMMS], stderr) == 0;
    for (int i = 0; i < COMMS * OPS; i++)
        if (data[(size_t)i * COUNT] != (float)(i * tutti_size(comms[0]))) return false;
    return true;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    tutti_comm *comms[COMMS];
    size_t all = (size_t)COMMS * OPS;
    (void)argc, (void)argv;
    float *data = tutti_alloc(world, all * COUNT * sizeof *data);
    tutti_op *ops = calloc(all, sizeof *ops);
    if (data == NULL || ops == NULL || tutti_barrier(world) != TUTTI_OK) return 1;
    double before = peak_mib(), start = now_ms();
    for (int i = 0; i < COMMS; i++)
        if (tutti_comm_duplicate(world, &comms[i]) != TUTTI_OK) return tutti_explain(world, stderr);
    if (tutti_barrier(world) != TUTTI_OK) return 1;
    double with_comms = peak_mib(), made = now_ms();
    if (!fly(comms, data, ops) || tutti_barrier(world) != TUTTI_OK) return 1;
    double end = now_ms();
    if (tutti_rank(world) == 0)
        printf("%d comms: %.0f ms, %.1f MiB more; %d ops of %zu bytes in flight on them: %.0f ms, %.1f MiB more\n",
               COMMS, made - start, with_comms - before, (int)all, COUNT * sizeof *data, end - made,
               peak_mib() - with_comms);
    for (int i = 0; i < COMMS; i++) tutti_comm_free(comms[i]);
    free(ops);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
