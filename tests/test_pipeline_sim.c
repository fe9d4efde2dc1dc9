/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan
 *
 * Pipelines in simulated time: a run takes as long as its table says, on one host and over links, by every table; it says
 * itself how long and how idle ranks were; and a rank that dies in a step is named to all others.
 */
#include "check.h"
#include "sanitized.h"
#include "sim_setup.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tutti/pipeline.h>
#include <unistd.h>

#define MS INT64_C(1000000)
enum { PART_MS = 20, BOUNDARY = 1 << 16, STAGES_MOST = 32 }; /* a part of a whole rank takes 20 ms; 64 KiB go on */

struct scene {
    const tutti_pipeline *table;
    int64_t part_ns; /* of one chunk */
    double unit_s;
    tutti_pipeline_report report; /* rank 0's */
    double rank_idle[8], rank_predicted[8];
    tutti_status status[8];
    tutti_error error[8];
};

static tutti_status spend(void *context, const tutti_pipeline_call *call)
{
    const struct scene *scene = context;
    tutti_spend_ns(call->part == TUTTI_PIPELINE_BACKWARD ? 2 * scene->part_ns : scene->part_ns);
    return TUTTI_OK;
}

static int work(tutti_comm *world, void *context)
{
    struct scene *scene = context;
    int rank = tutti_rank(world), ranks = tutti_size(world);
    size_t bytes[STAGES_MOST];
    for (int i = 0; i < STAGES_MOST; i++) bytes[i] = BOUNDARY;
    tutti_pipeline_settings settings = {.struct_size = sizeof settings,
                                        .forward = spend,
                                        .backward = spend,
                                        .input = spend,
                                        .weights = spend,
                                        .context = scene,
                                        .bytes = bytes};
    tutti_pipeline_runner *runner = NULL;
    tutti_pipeline_report report = {.struct_size = sizeof report};
    tutti_status status = tutti_pipeline_runner_create(world, scene->table, &settings, &runner, &scene->error[rank]);
    if (status == TUTTI_OK) status = tutti_pipeline_run(runner, &report, &scene->error[rank]);
    scene->status[rank] = status;
    if (status == TUTTI_OK && rank == 0) {
        scene->report = report;
        memcpy(scene->rank_idle, report.rank_idle, (size_t)ranks * sizeof(double));
        memcpy(scene->rank_predicted, report.rank_predicted_idle, (size_t)ranks * sizeof(double));
    }
    tutti_pipeline_runner_free(runner);
    return status != TUTTI_OK;
}

static double worst[2];

static void check_time(const char *name, int p, int m, bool apart)
{
    struct scene scene = {0};
    tutti_pipeline *table = NULL;
    tutti_pipeline_about about = {.struct_size = sizeof about};
    tutti_pipeline_load loads[8];
    tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict, .loads = loads};
    CHECK(tutti_pipeline_build(name, p, 0, m, &table, NULL) == TUTTI_OK);
    tutti_pipeline_describe(table, &about);
    CHECK(tutti_pipeline_check(table, NULL, 0, &verdict, NULL) == TUTTI_OK);
    scene.table = table;
    scene.part_ns = PART_MS * MS / about.chunks;
    tutti_sim_setup setup = sim_setup(apart ? 1 : p, 1);
    setup.hosts = apart ? p : 1;
    tutti_sim_report report = {.struct_size = sizeof report};
    tutti_error error;
    tutti_status status = tutti_sim_run(&setup, work, &scene, &report, &error);
    CHECK_THAT(status == TUTTI_OK && report.result == 0, "%s p=%d m=%d: %s %s", name, p, m, error.text,
               scene.error[0].text);
    double predicted = verdict.makespan * (double)scene.part_ns * 1e-9, over = scene.report.seconds / predicted - 1;
    CHECK_THAT(over >= 0 && over <= 0.005, "%s p=%d m=%d %s: %.3f%% over", name, p, m, apart ? "apart" : "together",
               100 * over);
    CHECK(fabs(scene.report.predicted_seconds - predicted) < 1e-6 &&
          fabs(scene.report.predicted_idle - verdict.idle) < 1e-6);
    CHECK(fabs(scene.report.idle - verdict.idle) < 0.005);
    for (int rank = 0; rank < p; rank++)
        CHECK_THAT(fabs(scene.rank_idle[rank] - loads[rank].idle) < 0.005 &&
                       fabs(scene.rank_predicted[rank] - loads[rank].idle) < 1e-6,
                   "%s p=%d m=%d %s rank %d: %g and %g, not %g", name, p, m, apart ? "apart" : "together", rank,
                   scene.rank_idle[rank], scene.rank_predicted[rank], loads[rank].idle);
    if (over > worst[apart]) worst[apart] = over;
    tutti_pipeline_free(table);
}

static void test_times(void)
{
    const char *name;
    for (size_t i = 0; (name = tutti_pipeline_names(i)) != NULL; i++)
        for (int p = 2; p <= 8; p *= 2)
            for (int m = 2 * p; m <= 4 * p; m *= 2)
                for (int apart = 0; apart < 2; apart++)
                    if (!SANITIZED || p < 8) check_time(name, p, m, apart == 1);
    printf("at most %.4f%% over the table on one host, %.4f%% over links of 100 Gbit/s and 5 us\n", 100 * worst[0],
           100 * worst[1]);
}

/* At its third forward step, in the middle of what the stage does. */
static void run_death(const char *name, int hosts)
{
    struct scene scene = {.part_ns = PART_MS * MS};
    tutti_pipeline *table = NULL;
    CHECK(tutti_pipeline_build(name, 4, 0, 8, &table, NULL) == TUTTI_OK);
    scene.table = table;
    tutti_sim_setup setup = sim_setup(4 / hosts, 1);
    const tutti_sim_death death = {.rank = 2, .at_ns = 130 * MS};
    setup.hosts = hosts;
    setup.deaths = &death;
    setup.death_count = 1;
    tutti_sim_report report = {.struct_size = sizeof report};
    tutti_error error;
    CHECK_THAT(tutti_sim_run(&setup, work, &scene, &report, &error) == TUTTI_OK, "%s", error.text);
    for (int rank = 0; rank < 4; rank++) {
        if (rank == 2) continue;
        CHECK_THAT(scene.status[rank] == TUTTI_ERR_PEER_LOST && scene.error[rank].peer == 2 &&
                       strstr(scene.error[rank].text, "rank 2") != NULL,
                   "%s, rank %d: %s", name, rank, scene.error[rank].text);
    }
    tutti_pipeline_free(table);
}

/* In a process that ends with what the dead rank held. */
static void test_death(const char *name, int hosts)
{
    int status = -1;
    long before = check_failed();
    pid_t child = fork();
    if (child == 0) {
        run_death(name, hosts);
        fflush(stdout);
        _exit(check_failed() > before);
    }
    CHECK_THAT(child > 0 && waitpid(child, &status, 0) == child && status == 0, "%s, %d hosts", name, hosts);
}

int main(void)
{
    test_times();
    fflush(stdout);
    for (int hosts = 1; hosts <= 4; hosts *= 4) {
        test_death("1f1b", hosts);
        test_death("zb-v", hosts);
    }
    return check_end();
}
