/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Simulated worlds that cannot be: bad setups, figures out of range, and a clock that comes to its end.
 */
#include "ranks.h"
#include "sim_setup.h"
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int no_work(tutti_comm *world, void *context)
{
    (void)world, (void)context;
    return 0;
}

/* Figures whose sums would overflow, or that no machine has: an error that names them, not a wrong time. */
static void test_ranges(void)
{
    static const tutti_sim_death late = {.at_ns = INT64_MAX};
    static const struct {
        const char *words;
        tutti_sim_setup setup;
    } cases[] = {
        {"link_bytes_per_s", {.link_bytes_per_s = 1e-300}},
        {"link_bytes_per_s", {.link_bytes_per_s = HUGE_VAL}},
        {"local_bytes_per_s", {.local_bytes_per_s = NAN}},
        {"link_latency_ns", {.link_latency_ns = INT64_MAX}},
        {"local_latency_ns", {.local_latency_ns = -1}},
        {"overhead_ns", {.overhead_ns = INT64_MAX}},
        {"noise_ns", {.noise_ns = INT64_MAX}},
        {"stack_bytes", {.stack_bytes = SIZE_MAX / 2}},
        {"stack_bytes", {.stack_bytes = SIZE_MAX}},
        {"`deaths` is NULL", {.death_count = 1}},
        {"`copy` is NULL", {.copy_count = 1}},
        {"`delay` is NULL", {.delay_count = 1}},
        {"at_ns", {.deaths = &late, .death_count = 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tutti_error error = {0};
        const tutti_sim_setup *odd = &cases[i].setup;
        tutti_sim_setup setup = sim_setup(2, 1);
        if (odd->link_bytes_per_s != 0) setup.link_bytes_per_s = odd->link_bytes_per_s;
        if (odd->local_bytes_per_s != 0) setup.local_bytes_per_s = odd->local_bytes_per_s;
        if (odd->link_latency_ns != 0) setup.link_latency_ns = odd->link_latency_ns;
        if (odd->local_latency_ns != 0) setup.local_latency_ns = odd->local_latency_ns;
        if (odd->overhead_ns != 0) setup.overhead_ns = odd->overhead_ns;
        if (odd->noise_ns != 0) setup.noise_ns = odd->noise_ns;
        if (odd->stack_bytes != 0) setup.stack_bytes = odd->stack_bytes;
        setup.copy_count = odd->copy_count;
        setup.delay_count = odd->delay_count;
        setup.deaths = odd->deaths;
        setup.death_count = odd->death_count;
        CHECK(tutti_sim_run(&setup, no_work, NULL, NULL, &error) == TUTTI_ERR_ARGUMENT);
        CHECK(strstr(error.text, cases[i].words) != NULL);
    }
}

static int leaving_work(tutti_comm *world, void *context)
{
    int32_t one = 1, all = 0;
    (void)context;
    if (tutti_leave(world) != TUTTI_ERR_ARGUMENT || tutti_comm_free(world) != TUTTI_ERR_ARGUMENT) return 1;
    return tutti_all_reduce(world, &one, &all, 1, TUTTI_I32, TUTTI_SUM) != TUTTI_OK || all != tutti_size(world);
}

/* The world that work is given is not its own. */
static void test_leaving(int hosts)
{
    tutti_sim_setup setup = sim_setup(2, 1);
    tutti_sim_report report = {.struct_size = sizeof report, .result = -1};
    setup.hosts = hosts;
    CHECK(tutti_sim_run(&setup, leaving_work, NULL, &report, NULL) == TUTTI_OK && report.result == 0);
    tutti_error error;
    report.struct_size = 0;
    CHECK(tutti_sim_run(&setup, leaving_work, NULL, &report, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(error.text, "struct_size") != NULL);
}

static int spend_long(tutti_comm *world, void *context)
{
    (void)context;
    tutti_spend_ns(tutti_rank(world) == 0 ? INT64_MAX : 0);
    return 0;
}

static int send_much(tutti_comm *world, void *context)
{
    static char byte;
    (void)context;
    if (tutti_rank(world) == 0) return tutti_send(world, &byte, (size_t)1 << 40, TUTTI_I8, 1, 0) != TUTTI_OK;
    return tutti_recv(world, &byte, (size_t)1 << 40, TUTTI_I8, 0, 0, NULL) != TUTTI_OK;
}

/* The clock has an end: a run that would come to it says so. In a process of its own: what its ranks held is lost. */
static bool ends_in_time(void)
{
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        tutti_error error = {0};
        tutti_sim_setup setup = sim_setup(2, 1);
        bool limited = tutti_sim_run(&setup, spend_long, NULL, NULL, &error) == TUTTI_ERR_LIMIT;
        _exit(limited && strstr(error.text, "years of simulated time") != NULL ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void test_end_of_time(void)
{
    tutti_error error = {0};
    tutti_sim_setup setup = sim_setup(2, 1);
    CHECK(ends_in_time());
    tutti_options options; /* a terabyte at a byte per second: its deadline comes long before, in order */
    tutti_sim_report report = {.struct_size = sizeof report};
    CHECK(tutti_options_init(&options, NULL) == TUTTI_OK);
    setup.options = &options;
    setup.hosts = 2;
    setup.ranks_per_host = 1;
    setup.sizes_only = true;
    setup.link_bytes_per_s = 1;
    CHECK(tutti_sim_run(&setup, send_much, NULL, &report, &error) == TUTTI_OK);
    CHECK(report.result != 0 && report.time_ns >= options.deadline_ms * 1000000);
}

static void test_refusals(void)
{
    tutti_error error;
    tutti_sim_setup good = sim_setup(2, 1), bad = good;
    tutti_sim_death death = {.rank = 2};
    CHECK(tutti_sim_run(NULL, no_work, NULL, NULL, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_sim_run(&good, NULL, NULL, NULL, NULL) == TUTTI_ERR_ARGUMENT);
    bad.ranks_per_host = 0;
    CHECK(tutti_sim_run(&bad, no_work, NULL, NULL, &error) == TUTTI_ERR_ARGUMENT);
    bad = good;
    bad.ranks_per_host = 65537;
    CHECK(tutti_sim_run(&bad, no_work, NULL, NULL, &error) == TUTTI_ERR_ARGUMENT);
    bad = good;
    bad.local_bytes_per_s = 0;
    CHECK(tutti_sim_run(&bad, no_work, NULL, NULL, &error) == TUTTI_ERR_ARGUMENT);
    bad = good;
    bad.noise_ns = -1;
    CHECK(tutti_sim_run(&bad, no_work, NULL, NULL, &error) == TUTTI_ERR_ARGUMENT);
    bad = good;
    bad.deaths = &death;
    bad.death_count = 1;
    CHECK(tutti_sim_run(&bad, no_work, NULL, NULL, &error) == TUTTI_ERR_RANK);
    CHECK(strstr(error.text, "rank 2") != NULL);
    tutti_options options = {0}; /* not set up */
    bad = good;
    bad.options = &options;
    CHECK(tutti_sim_run(&bad, no_work, NULL, NULL, &error) == TUTTI_ERR_OPTION);
    CHECK(strstr(error.text, "tutti_options_init") != NULL);
    CHECK(tutti_options_init(&options, NULL) == TUTTI_OK);
    options.fence_ms = -1;
    CHECK(tutti_sim_run(&bad, no_work, NULL, NULL, &error) == TUTTI_ERR_OPTION);
    CHECK(strstr(error.text, "fence_ms is -1") != NULL);
    CHECK(tutti_sim_run(&good, no_work, NULL, NULL, &error) == TUTTI_OK);
}

int main(void)
{
    test_refusals();
    test_ranges();
    test_leaving(1);
    test_leaving(2);
    test_end_of_time();
    return check_end();
}
