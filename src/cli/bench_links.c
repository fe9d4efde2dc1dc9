/* SPDX-License-Identifier: Apache-2.0
 *
 * What tutti sim needs to know of the links between ranks that exchange messages, and of what their cores do with them.
 * Ranks are measured in pairs, all pairs at once, so that what they share is in the figures: small messages one way and
 * both ways, and exchanges of growing sizes. How long cores are busy with a message of a size is what the simulated exchange
 * needs to take as long as the real one.
 */
#include "cli/bench.h"

#include <string.h>
#include <time.h>

enum { LINK_SAMPLES = 15, BURST = 32, SMALL = 8, ADD_CHUNK = 262144, ADD_BYTES = 4 << 20, TRIAL_CALLS = 4 };
static const size_t link_sizes[BENCH_LINK_SIZES] = {4096, 16384, 65536, 262144, 1 << 20, 4 << 20};
static const double link_sample_seconds = 1e-3;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- What is timed ----------------------------------------------------------------------------------------------- */

typedef tutti_status link_call(struct bench_rank *self, size_t bytes);

/* The last of an odd number is alone. */
static int partner_of(const struct bench_rank *self)
{
    int partner = self->rank ^ 1;
    return partner < self->ranks ? partner : self->rank;
}

static tutti_status one_way(struct bench_rank *self, size_t bytes, bool sends)
{
    int partner = partner_of(self);
    if (partner == self->rank) return TUTTI_OK;
    if (sends) return tutti_send(self->world, self->in_buffer, bytes, TUTTI_U8, partner, 0);
    return tutti_recv(self->world, self->out_buffer, bytes, TUTTI_U8, partner, 0, NULL);
}

/* Many messages one way, as fast as they go, then one back. */
static tutti_status burst(struct bench_rank *self, size_t bytes)
{
    bool sends = self->rank % 2 == 0;
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < BURST && status == TUTTI_OK; i++) status = one_way(self, bytes, sends);
    return status == TUTTI_OK ? one_way(self, bytes, !sends) : status;
}

static tutti_status there_and_back(struct bench_rank *self, size_t bytes)
{
    bool sends = self->rank % 2 == 0;
    tutti_status status = one_way(self, bytes, sends);
    return status == TUTTI_OK ? one_way(self, bytes, !sends) : status;
}

/* As much each way at once: at the same place of the buffers, or at the next. */
static tutti_status exchange(struct bench_rank *self, size_t bytes)
{
    int partner = partner_of(self);
    size_t at = self->link_at + bytes <= self->link_most ? self->link_at : 0;
    self->link_at = at + bytes;
    return tutti_sendrecv(self->world, self->in_buffer + at, bytes, partner, 0, self->out_buffer + at, bytes, partner,
                          0, TUTTI_U8, NULL);
}

/* Sums as a reduction makes them: of the own input and what came, a chunk at a time. */
static tutti_status add(struct bench_rank *self, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += ADD_CHUNK) {
        const char *in[2] = {self->in_buffer + at, self->in_buffer};
        floor_add(in, self->out_buffer + at, bytes - at < ADD_CHUNK ? bytes - at : ADD_CHUNK);
    }
    return TUTTI_OK;
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* Of the slowest rank. */
static int time_batch(struct bench_rank *self, link_call *call, size_t bytes, uint64_t batch, double *seconds)
{
    if (tutti_barrier(self->world) != TUTTI_OK) return bench_failed(self);
    double start = now();
    for (uint64_t i = 0; i < batch; i++)
        if (call(self, bytes) != TUTTI_OK) return bench_failed(self);
    *seconds = (now() - start) / (double)batch;
    if (tutti_all_reduce(self->world, seconds, seconds, 1, TUTTI_F64, TUTTI_MAX) != TUTTI_OK) return bench_failed(self);
    return CLI_GO_ON;
}

/* The quarter of the samples that was disturbed least decides. */
static int time_call(struct bench_rank *self, link_call *call, size_t bytes, double *seconds)
{
    double samples[LINK_SAMPLES];
    uint64_t batch = 1;
    int status = CLI_GO_ON;
    for (; batch < 65536; batch *= 4) {
        status = time_batch(self, call, bytes, batch, seconds);
        if (status != CLI_GO_ON || *seconds * (double)batch >= link_sample_seconds / 4) break;
    }
    for (int i = 0; i < LINK_SAMPLES && status == CLI_GO_ON; i++)
        status = time_batch(self, call, bytes, batch, &samples[i]);
    if (status != CLI_GO_ON) return status;
    (void)bench_median(samples, LINK_SAMPLES);
    *seconds = samples[LINK_SAMPLES / 4];
    return CLI_GO_ON;
}

/* ---- The same, simulated ----------------------------------------------------------------------------------------- */

struct trial {
    struct bench_rank *self;
    tutti_sim_setup setup;
    tutti_sim_point points[BENCH_LINK_SIZES + 1]; /* of `setup.copy` */
    size_t bytes;
    int64_t took_ns;
};

static int trial_work(tutti_comm *world, void *context)
{
    struct trial *trial = context;
    struct bench_rank one = *trial->self;
    one.world = world;
    one.rank = tutti_rank(world);
    one.ranks = tutti_size(world);
    int64_t start = tutti_clock_ns();
    for (int i = 0; i < TRIAL_CALLS; i++)
        if (exchange(&one, trial->bytes) != TUTTI_OK) return 1;
    trial->took_ns = (tutti_clock_ns() - start) / TRIAL_CALLS;
    return 0;
}

/* With the last point at `ns`. */
static int run_trial(struct trial *trial, int64_t ns, double *seconds)
{
    tutti_sim_report report = {0};
    tutti_error error;
    trial->points[trial->setup.copy_count - 1].ns = ns;
    tutti_status status = tutti_sim_run(&trial->setup, trial_work, trial, &report, &error);
    if (status != TUTTI_OK) return cli_fail("bench", "%s: %s", tutti_status_name(status), error.text);
    *seconds = (double)trial->took_ns * 1e-9;
    return report.result == 0 ? CLI_GO_ON : cli_fail("bench", "a simulated exchange failed");
}

/* How long copying must take for the simulated exchange to take as long as the real one. */
static int add_point(struct trial *trial, size_t bytes, double wanted)
{
    int64_t low = trial->points[trial->setup.copy_count - 1].ns, high = low + (int64_t)(wanted * 1e9);
    double seconds = 0;
    trial->bytes = bytes;
    trial->points[trial->setup.copy_count++].bytes = bytes;
    while (high - low > 1 + low / 500) {
        int64_t middle = low + (high - low) / 2;
        int status = run_trial(trial, middle, &seconds);
        if (status != CLI_GO_ON) return status;
        *(seconds < wanted ? &low : &high) = middle;
    }
    trial->points[trial->setup.copy_count - 1].ns = low;
    return CLI_GO_ON;
}

static int fit_points(struct trial *trial, const struct bench_links *links, struct bench_link_costs *costs)
{
    int status = CLI_GO_ON;
    tutti_sim_setup_init(&trial->setup);
    trial->setup.hosts = 2;
    trial->setup.sizes_only = 1;
    trial->setup.link_bytes_per_s = links->link_bytes_per_s;
    trial->setup.link_latency_ns = links->link_latency_ns;
    trial->setup.local_bytes_per_s = costs->local_bytes_per_s;
    trial->setup.copy = trial->points;
    trial->setup.copy_count = 1;
    trial->points[0] = costs->copy[0];
    for (size_t i = 0; i < BENCH_LINK_SIZES && status == CLI_GO_ON; i++)
        status = add_point(trial, link_sizes[i], costs->exchange_s[i]);
    memcpy(costs->copy, trial->points, sizeof costs->copy);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

/* A message costs both cores something, at least half of an exchange of nothing, unless they are busy for less when they
 * send many; the rest of its way is latency. */
static int measure_small(struct bench_rank *self, struct bench_links *links)
{
    double both = 0, there = 0, many = 0;
    int status = time_call(self, exchange, SMALL, &both);
    if (status == CLI_GO_ON) status = time_call(self, there_and_back, SMALL, &there);
    if (status == CLI_GO_ON) status = time_call(self, burst, SMALL, &many);
    double each = (many - there) / (BURST - 1), half = both / 2;
    double core = each < half ? each : half, latency = there / 2 - core;
    if (core < 0) core = 0;
    links->near.copy[0] = links->far.copy[0] = (tutti_sim_point){0, (int64_t)(core * 1e9)};
    links->link_latency_ns = latency > 0 ? (int64_t)(latency * 1e9) : 0;
    return status;
}

/* `most`: how much of the buffers is used. */
static int measure_costs(struct bench_rank *self, size_t most, struct bench_link_costs *costs)
{
    double seconds = 0;
    self->link_most = most;
    int status = time_call(self, add, most, &seconds);
    costs->local_bytes_per_s = 3 * (double)most / seconds;
    if (most < self->max_bytes) self->link_most = 0; /* an exchange stays where it is */
    for (size_t i = 0; i < BENCH_LINK_SIZES && status == CLI_GO_ON; i++)
        status = time_call(self, exchange, link_sizes[i], &costs->exchange_s[i]);
    return status;
}

static int measure_rate(struct bench_rank *self, double *bytes_per_s)
{
    int status = CLI_GO_ON;
    for (size_t i = 0; i < BENCH_LINK_SIZES && status == CLI_GO_ON; i++) {
        double seconds = 0;
        status = time_call(self, there_and_back, link_sizes[i], &seconds);
        double rate = 2 * (double)link_sizes[i] / seconds;
        if (status == CLI_GO_ON && rate > *bytes_per_s) *bytes_per_s = rate;
    }
    return status;
}

int bench_links_measure(struct bench_rank *self, struct bench_links *links)
{
    struct trial trial = {.self = self};
    tutti_tuning tuning = {.struct_size = sizeof tuning};
    *links = (struct bench_links){0};
    tutti_tuning_get(self->world, &tuning);
    links->far_bytes = (size_t)tuning.stream / (2 * (size_t)self->ranks);
    int status = measure_small(self, links);
    if (status == CLI_GO_ON) status = measure_rate(self, &links->link_bytes_per_s);
    if (status == CLI_GO_ON) status = measure_costs(self, ADD_BYTES, &links->near);
    if (status == CLI_GO_ON) status = measure_costs(self, self->max_bytes, &links->far);
    if (status == CLI_GO_ON && self->rank == 0) status = fit_points(&trial, links, &links->near);
    if (status == CLI_GO_ON && self->rank == 0) status = fit_points(&trial, links, &links->far);
    return bench_agree(self, status == CLI_GO_ON);
}

static void write_costs(FILE *file, const char *suffix, const struct bench_link_costs *costs)
{
    (void)fprintf(file, "# local%s %.4gG:200ns\n# copy%s ", suffix, costs->local_bytes_per_s * 1e-9, suffix);
    for (size_t i = 0; i <= BENCH_LINK_SIZES; i++)
        (void)fprintf(file, "%s%llu:%lldns", i == 0 ? "" : ",", (unsigned long long)costs->copy[i].bytes,
                      (long long)costs->copy[i].ns);
    (void)fprintf(file, "\n");
}

void bench_links_write(FILE *file, const struct bench_links *links)
{
    (void)fprintf(file, "# figures of the links, for tutti sim --links; all pairs of ranks exchanged at once\n");
    (void)fprintf(file, "# link %.4gG:%lldns\n# far %zu\n", links->link_bytes_per_s * 8e-9,
                  (long long)links->link_latency_ns, links->far_bytes);
    write_costs(file, "", &links->near);
    write_costs(file, "_far", &links->far);
}
