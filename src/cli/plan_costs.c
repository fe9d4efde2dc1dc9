/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the time of layers, transfers and steps of a pipeline here, on as many cores as ranks can have, all at once.
 */
#include "cli/cli_plan.h"
#include "cli/cli_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/pipeline.h>

static struct plan_costs measured;
static const tutti_train_options *options;

/* Replaces values by their average over ranks. */
static int agree(tutti_comm *world, double *values, size_t count)
{
    if (tutti_all_reduce(world, values, values, count, TUTTI_F64, TUTTI_AVG) == TUTTI_OK) return CLI_OK;
    return cli_fail("plan", "%s", tutti_comm_error(world)->text);
}

/* ---- Transfers --------------------------------------------------------------------------------------------------- */

/* Sends a message there and back. */
static tutti_status exchange(tutti_comm *world, float *in, float *out, size_t count)
{
    const int rank = tutti_rank(world), peer = 1 - rank;
    tutti_status status = TUTTI_OK;
    if (rank > 1) return TUTTI_OK;
    if (rank == 0) status = tutti_send(world, in, count, TUTTI_F32, peer, 0);
    if (status == TUTTI_OK) status = tutti_recv(world, out, count, TUTTI_F32, peer, 0, NULL);
    if (status == TUTTI_OK && rank == 1) status = tutti_send(world, in, count, TUTTI_F32, peer, 0);
    return status;
}

static tutti_status transfer(tutti_comm *world, tutti_train_op op, float *in, float *out, size_t bytes)
{
    const size_t count = bytes / sizeof(float), block = count / (size_t)tutti_size(world);
    if (op == TUTTI_TRAIN_ALL_REDUCE) return tutti_all_reduce(world, in, out, count, TUTTI_F32, TUTTI_SUM);
    if (op == TUTTI_TRAIN_REDUCE_SCATTER) return tutti_reduce_scatter(world, in, out, block, TUTTI_F32, TUTTI_SUM);
    if (op == TUTTI_TRAIN_ALL_GATHER) return tutti_all_gather(world, in, out, block, TUTTI_F32);
    if (op == TUTTI_TRAIN_ALL_TO_ALL) return tutti_all_to_all(world, in, out, block, TUTTI_F32);
    return exchange(world, in, out, count);
}

/* Returns the shortest time of a few; 0: it failed. */
static double time_transfer(tutti_comm *world, tutti_train_op op, float *in, float *out, size_t bytes)
{
    enum { TIMES = 15 };
    double best = INFINITY;
    for (int i = 0; i < TIMES; i++) {
        const double began = train_now();
        if (transfer(world, op, in, out, bytes) != TUTTI_OK) return 0;
        best = fmin(best, train_now() - began);
    }
    return op == TUTTI_TRAIN_SEND ? best / 2 : best;
}

static int measure_transfers(tutti_comm *world)
{
    double times[TUTTI_TRAIN_OPS][2];
    float *in = tutti_alloc(world, PLAN_LARGE), *out = tutti_alloc(world, PLAN_LARGE);
    if (in == NULL || out == NULL) return cli_fail("plan", "%s", tutti_comm_error(world)->text);
    memset(in, 0, PLAN_LARGE);
    memset(out, 0, PLAN_LARGE);
    for (tutti_train_op op = 0; op < TUTTI_TRAIN_OPS; op++) {
        times[op][0] = time_transfer(world, op, in, out, PLAN_SMALL);
        times[op][1] = time_transfer(world, op, in, out, PLAN_LARGE);
    }
    (void)tutti_free(world, in);
    (void)tutti_free(world, out);
    int status = agree(world, &times[0][0], 2 * TUTTI_TRAIN_OPS);
    if (tutti_rank(world) == 0) memcpy(measured.transfers, times, sizeof times);
    return status;
}

/* ---- Steps of a pipeline ----------------------------------------------------------------------------------------- */

static tutti_status no_work(void *context, const tutti_pipeline_call *call)
{
    (void)context, (void)call;
    return TUTTI_OK;
}

/* Measures the seconds of one step of a pipeline that computes nothing: a whole run, divided by the steps that follow
 * each other in its table. */
static tutti_status time_steps(tutti_comm *world, const tutti_pipeline *table, const size_t *bytes, double *seconds,
                               tutti_error *error)
{
    enum { TIMES = 9 };
    const tutti_pipeline_times each = {1, 1, 0};
    const tutti_pipeline_settings settings = {
        .struct_size = sizeof settings, .forward = no_work, .backward = no_work, .bytes = bytes};
    tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict};
    tutti_pipeline_runner *runner = NULL;
    tutti_status status = tutti_pipeline_check(table, &each, 1, &verdict, error);
    if (status == TUTTI_OK) status = tutti_pipeline_runner_create(world, table, &settings, &runner, error);
    *seconds = INFINITY;
    for (int i = 0; status == TUTTI_OK && i < TIMES; i++) {
        tutti_pipeline_report report = {.struct_size = sizeof report};
        status = tutti_pipeline_run(runner, &report, error);
        *seconds = fmin(*seconds, report.seconds / verdict.makespan);
    }
    tutti_pipeline_runner_free(runner);
    return status;
}

static int measure_steps(tutti_comm *world)
{
    enum { MICROS = 16 };
    const int ranks = tutti_size(world);
    tutti_pipeline *table = NULL;
    tutti_error error;
    double seconds = 0;
    size_t *bytes = calloc((size_t)ranks, sizeof *bytes);
    if (bytes == NULL) return cli_fail("plan", "out of memory");
    for (int i = 0; i < ranks; i++) bytes[i] = PLAN_SMALL;
    tutti_status status = tutti_pipeline_build("1f1b", ranks, 0, MICROS, &table, &error);
    if (status == TUTTI_OK) status = time_steps(world, table, bytes, &seconds, &error);
    tutti_pipeline_free(table);
    free(bytes);
    if (status != TUTTI_OK) return cli_fail("plan", "%s", error.text);
    int agreed = agree(world, &seconds, 1);
    if (tutti_rank(world) == 0) measured.step = seconds;
    return agreed;
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

/* The results of tutti_train_measure as numbers, so that agree() can take them all at once. */
struct figures {
    tutti_pipeline_times units[PLAN_UNITS], further;
    double update, add, failed;
};

static int measure_width(tutti_comm *world, struct plan_width *width)
{
    tutti_error error = {0};
    tutti_train_costs costs = {.struct_size = sizeof costs};
    struct figures *own = calloc(1, sizeof *own);
    if (own == NULL) return cli_fail("plan", "out of memory");
    const size_t count = tutti_train_measure(options, width->tensor, own->units, PLAN_UNITS, &costs, &error);
    own->further = costs.further;
    own->update = costs.update;
    own->add = costs.add;
    own->failed = count == 0;
    int status = agree(world, (double *)own, sizeof *own / sizeof(double));
    if (status == CLI_OK && tutti_rank(world) == 0) {
        memcpy(width->units, own->units, sizeof width->units);
        width->further = own->further;
        width->count = own->failed > 0 ? 0 : count;
        if (count > 0) measured.update = own->update;
        if (count > 0) measured.add = own->add;
        if (count == 0) measured.error = error;
    }
    free(own);
    return status;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    (void)argc, (void)argv;
    int status = CLI_OK;
    if (tutti_size(world) > 1) status = measure_transfers(world);
    if (status == CLI_OK && tutti_size(world) > 1) status = measure_steps(world);
    for (size_t i = 0; status == CLI_OK && i < measured.width_count; i++)
        status = measure_width(world, &measured.widths[i]);
    if (tutti_rank(world) == 0) measured.ranks = tutti_size(world);
    return status;
}

/* Lists the sizes of the tensor dimension that layouts have. The trainer refuses those that the model cannot be cut
 * into. */
static void list_widths(const struct plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        const int tensor = plan->rows[i].layout.tensor;
        size_t known = 0;
        while (known < measured.width_count && measured.widths[known].tensor != tensor) known++;
        if (known == measured.width_count && known < PLAN_WIDTHS)
            measured.widths[measured.width_count++].tensor = tensor;
    }
}

int plan_measure_costs(const struct plan_values *values, const struct plan *plan, const struct plan_costs **costs)
{
    char ranks[24];
    const int64_t each = values->ranks / values->hosts, most = plan->cores / values->options.threads;
    const int64_t here = each < most ? each : most;
    options = &values->options;
    *costs = &measured;
    list_widths(plan);
    (void)snprintf(ranks, sizeof ranks, "%lld", (long long)(here < 1 ? 1 : here));
    if (setenv("TUTTI_RANKS", ranks, 1) != 0) return cli_fail("plan", "out of memory");
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
    int status = tutti_main(work, 0, NULL);
    if (status != CLI_OK) return status;
    return measured.widths[0].count > 0 ? CLI_GO_ON : cli_blame("plan", &measured.error);
}
