/* SPDX-License-Identifier: Apache-2.0
 *
 * How much longer than its table a pipeline takes, as processes whose stages sleep: what is over is the runner's and the
 * messages'. Run it alone, as
 *     tutti run -n 8 --no-prefix build/bench_pipeline [MS [BYTES [MICRO [ROUNDS]]]]    20 ms, 64 KiB, 4 times the ranks, 3
 * and with TUTTI_TRANSPORT=tcp. Each line is a table, and the best of its
 * rounds; the last line says which table was worst. On a machine that does other things sleeps are longer than asked for: then
 * the second of both figures, against the table with what its stages took, says more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tutti/experimental.h>
#include <tutti/pipeline.h>

struct sleeper {
    int64_t part_ns; /* of one chunk */
};

static tutti_status sleep_part(void *context, const tutti_pipeline_call *call)
{
    const struct sleeper *sleeper = context;
    int64_t until = tutti_clock_ns() + (call->part == TUTTI_PIPELINE_BACKWARD ? 2 : 1) * sleeper->part_ns;
    struct timespec time = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) continue;
    return TUTTI_OK;
}

/* How much over, as a fraction; -1: it failed. */
static double measure(tutti_comm *world, const char *name, int64_t part_ns, size_t bytes, int micros, int rounds)
{
    tutti_pipeline *table = NULL;
    tutti_pipeline_runner *runner = NULL;
    tutti_pipeline_about about = {.struct_size = sizeof about};
    tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict};
    tutti_pipeline_report report = {.struct_size = sizeof report};
    tutti_error error;
    double over = -1;
    if (tutti_pipeline_build(name, tutti_size(world), 0, micros, &table, &error) != TUTTI_OK ||
        tutti_pipeline_check(table, NULL, 0, &verdict, &error) != TUTTI_OK)
        return fprintf(stderr, "%s\n", error.text), over;
    tutti_pipeline_describe(table, &about);
    size_t *sizes = calloc((size_t)about.stages, sizeof *sizes);
    for (int s = 0; s < about.stages; s++) sizes[s] = bytes;
    struct sleeper sleeper = {part_ns / about.chunks};
    tutti_pipeline_settings settings = {.struct_size = sizeof settings,
                                        .forward = sleep_part,
                                        .backward = sleep_part,
                                        .input = sleep_part,
                                        .weights = sleep_part,
                                        .context = &sleeper,
                                        .bytes = sizes};
    tutti_status status = tutti_pipeline_runner_create(world, table, &settings, &runner, &error);
    for (int round = 0; status == TUTTI_OK && round < rounds; round++) {
        tutti_pipeline_report one = {.struct_size = sizeof one};
        status = tutti_barrier(world);
        if (status == TUTTI_OK) status = tutti_pipeline_run(runner, &one, &error);
        if (status == TUTTI_OK && (round == 0 || one.seconds < report.seconds)) report = one;
    }
    if (status == TUTTI_OK)
        over = report.seconds / (verdict.makespan * (double)sleeper.part_ns * 1e-9) - 1;
    else
        fprintf(stderr, "%s\n", error.text);
    if (tutti_rank(world) == 0 && over > -1)
        printf("%-12s %8.1f ms by its table, %8.1f with what its stages took, %8.1f measured: %.2f%% and %.2f%% over; "
               "idle "
               "%.1f%% by the table, %.1f%% measured\n",
               name, verdict.makespan * (double)sleeper.part_ns * 1e-6, 1e3 * report.predicted_seconds,
               1e3 * report.seconds, 100 * over, 100 * (report.seconds / report.predicted_seconds - 1),
               100 * verdict.idle, 100 * report.idle);
    tutti_pipeline_runner_free(runner);
    tutti_pipeline_free(table);
    free(sizes);
    return over;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    double part_ms = argc > 1 ? strtod(argv[1], NULL) : 20;
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 0) : 65536;
    int micros = argc > 3 ? atoi(argv[3]) : 4 * tutti_size(world), rounds = argc > 4 ? atoi(argv[4]) : 3;
    const char *name, *worst = "";
    double most = 0;
    for (size_t i = 0; (name = tutti_pipeline_names(i)) != NULL; i++) {
        double over = measure(world, name, (int64_t)(part_ms * 1e6), bytes, micros, rounds);
        if (over <= -1) return 1;
        if (over > most) worst = name, most = over;
        if (tutti_rank(world) == 0) fflush(stdout);
    }
    if (tutti_rank(world) == 0) printf("worst: %s, %.2f%% over\n", worst, 100 * most);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
