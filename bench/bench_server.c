/* SPDX-License-Identifier: Apache-2.0
 *
 * What a bound on staleness is worth where steps are slow now and then: workers whose steps sleep, three times as long with
 * probability 1/4 (from a seed), with staleness 4 and all together, in turns.
 *
 *     tutti run -n 5 build/bench_server [STEPS [STALENESS [MILLISECONDS]]]       four workers and a server
 *
 * Prints samples a second of both, and the ratio: the median of five turns.
 */
#include "median.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/experimental.h>
#include <tutti/train.h>

enum { ELEMENTS = 10000, SAMPLES = 16, TURNS = 5 };

struct setting {
    int steps, staleness;
    long sleep_us;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* One in four, whoever asks: from the worker, the step and the turn alone. */
static bool is_slow(int worker, int step, int turn)
{
    uint64_t x = (uint64_t)worker * 1000003 + (uint64_t)step * 7919 + (uint64_t)turn * 104729 + 12345;
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    x ^= x >> 33;
    return x % 4 == 0;
}

static void compute(const struct setting *setting, int worker, int step, int turn)
{
    const long us = setting->sleep_us * (is_slow(worker, step, turn) ? 3 : 1);
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static void must(const tutti_server *server, tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "%s\n", tutti_server_error(server)->text);
    exit(1);
}

/* Seconds that all steps of all workers take. */
static double run(tutti_comm *world, const tutti_parameter *parameter, const struct setting *setting, int turn)
{
    tutti_server_options options = {.struct_size = sizeof options, .staleness = setting->staleness};
    tutti_server *server = NULL;
    tutti_error error;
    if (tutti_server_create(world, parameter, 1, &options, &server, &error) != TUTTI_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(2);
    }
    double began = now_s();
    if (tutti_server_serves(server)) must(server, tutti_server_serve(server));
    for (int step = 1; !tutti_server_serves(server) && step <= setting->steps; step++) {
        compute(setting, tutti_rank(world), step, turn);
        tutti_push push = {
            .struct_size = sizeof push, .rate = 0.001, .count = SAMPLES, .catch_up = step == setting->steps};
        must(server, tutti_server_push(server, &push, NULL));
        must(server, tutti_server_pull(server));
    }
    tutti_server_free(server);
    double took = now_s() - began;
    if (tutti_all_reduce(world, &took, &took, 1, TUTTI_F64, TUTTI_MAX) != TUTTI_OK) exit(tutti_explain(world, stderr));
    return took;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    struct setting stale = {argc > 1 ? atoi(argv[1]) : 100, argc > 2 ? atoi(argv[2]) : 4,
                            argc > 3 ? 1000 * atol(argv[3]) : 10000};
    struct setting together = {stale.steps, 0, stale.sleep_us};
    float *values = calloc(2 * ELEMENTS, sizeof *values);
    if (values == NULL) return 1;
    const tutti_parameter parameter = {"weights", values, values + ELEMENTS, ELEMENTS, false};
    double rates[TURNS], together_rates[TURNS], ratios[TURNS];
    const double samples = (double)(tutti_size(world) - 1) * stale.steps * SAMPLES;
    for (int i = 0; i < TURNS; i++) {
        rates[i] = samples / run(world, &parameter, &stale, i);
        together_rates[i] = samples / run(world, &parameter, &together, i);
        ratios[i] = rates[i] / together_rates[i];
    }
    if (tutti_rank(world) == 0)
        printf(
            "%d workers, %d steps of %ld ms (one in four: %ld): staleness %d %.0f samples/s, 0 %.0f samples/s: %.2fx\n",
            tutti_size(world) - 1, stale.steps, stale.sleep_us / 1000, 3 * stale.sleep_us / 1000, stale.staleness,
            median(rates, TURNS), median(together_rates, TURNS), median(ratios, TURNS));
    free(values);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
