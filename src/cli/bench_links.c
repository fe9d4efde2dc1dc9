/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what tutti sim needs to know of the links between ranks that exchange messages, and of the time that their
 * cores spend on them. Ranks are measured in pairs, all pairs at once, so that the figures include what they share:
 * small messages one way and both ways, and messages of growing sizes both ways, many at a time and alone. The time
 * that cores are busy with a message of a size is chosen so that a simulated stream of such messages takes as long as
 * the real one. If a message that is alone takes longer than that, the rest is delay: the message is still on its way,
 * but no core is busy.
 */
#include "cli/bench.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { LINK_SAMPLES = 15, BURST = 32, SMALL = 8, ADD_CHUNK = 262144, ADD_BYTES = 4 << 20, TRIAL_CALLS = 4 };
enum { STREAM_MOST = 8, STREAM_BYTES = 2 << 20, LARGE = 1 << 20, FITS = 2 };
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

/* Returns the rank's partner; with an odd number of ranks the last one is its own. */
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

/* Sends many messages one way, as fast as they go, then one back. */
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

/* Chooses where the next message is sent from and where it goes: to places that were just used, or for one of the two
 * to the next place. Collectives that cut vectors into pieces do so, too: data to send were made or have come just
 * before, or data that come are used up at once and their place is used again. */
static void next_places(struct bench_rank *self, size_t bytes, char **in, char **out)
{
    size_t near = self->link_turn % 4 * bytes, far = self->link_at;
    if ((self->link_turn % 4 + 1) * bytes > STREAM_BYTES) near = 0;
    if (far + bytes > self->link_most) far = 0;
    bool walks = self->link_most > 0, sends = self->link_turn % 2 == 0;
    *in = self->in_buffer + (walks && sends ? far : near);
    *out = self->out_buffer + (walks && !sends ? far : near);
    if (!sends) self->link_at = far + bytes;
    self->link_turn++;
}

/* Sends one message each way at once, as a collective does: it is neither announced nor accepted. */
static tutti_status exchange(struct bench_rank *self, size_t bytes)
{
    size_t counts[2] = {bytes, bytes}, offsets[2] = {0};
    char *in, *out;
    counts[tutti_rank(self->link_pair)] = 0;
    next_places(self, bytes, &in, &out);
    return tutti_all_to_all_v(self->link_pair, in, counts, offsets, out, counts, offsets, TUTTI_U8);
}

static size_t stream_depth(size_t bytes)
{
    size_t depth = bytes < LARGE ? STREAM_BYTES / bytes : 1;
    return depth > STREAM_MOST ? STREAM_MOST : depth;
}

/* Does the same with several messages under way, each way or one way: the next ones start as soon as these have
 * arrived. */
static tutti_status stream_ways(struct bench_rank *self, size_t bytes, bool sends, bool receives)
{
    int partner = partner_of(self);
    tutti_status status = tutti_group_begin(self->world);
    for (size_t i = 0; i < stream_depth(bytes) && status == TUTTI_OK; i++) {
        char *in, *out;
        next_places(self, bytes, &in, &out);
        if (sends) status = tutti_send(self->world, in, bytes, TUTTI_U8, partner, 0);
        if (receives && status == TUTTI_OK) status = tutti_recv(self->world, out, bytes, TUTTI_U8, partner, 0, NULL);
    }
    tutti_status ended = tutti_group_end(self->world);
    return status == TUTTI_OK ? ended : status;
}

static tutti_status stream(struct bench_rank *self, size_t bytes)
{
    return stream_ways(self, bytes, true, true);
}

static tutti_status stream_one_way(struct bench_rank *self, size_t bytes)
{
    if (partner_of(self) == self->rank) return TUTTI_OK;
    return stream_ways(self, bytes, self->rank % 2 == 0, self->rank % 2 != 0);
}

/* Adds as a reduction does: its own input and received data, one chunk at a time. */
static tutti_status add(struct bench_rank *self, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += ADD_CHUNK) {
        const char *in[2] = {self->in_buffer + at, self->in_buffer};
        floor_add(in, self->out_buffer + at, bytes - at < ADD_CHUNK ? bytes - at : ADD_CHUNK);
    }
    return TUTTI_OK;
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* Measures the seconds of one call on the slowest rank. */
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

/* Measures the median: what is predicted from it is compared with medians. */
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
    *seconds = bench_median(samples, LINK_SAMPLES);
    return CLI_GO_ON;
}

/* ---- The same, simulated ----------------------------------------------------------------------------------------- */

struct trial {
    struct bench_rank *self;
    tutti_sim_setup setup;
    tutti_sim_point copy[BENCH_LINK_SIZES + 1], delay[BENCH_LINK_SIZES + 1];
    link_call *call;
    size_t bytes;
    int64_t took_ns;
};

static int trial_work(tutti_comm *world, void *context)
{
    struct trial *trial = context;
    struct bench_rank one = *trial->self;
    one.world = one.link_pair = world;
    one.rank = tutti_rank(world);
    one.ranks = tutti_size(world);
    int64_t start = tutti_clock_ns();
    for (int i = 0; i < TRIAL_CALLS; i++)
        if (trial->call(&one, trial->bytes) != TUTTI_OK) return 1;
    trial->took_ns = (tutti_clock_ns() - start) / TRIAL_CALLS;
    return 0;
}

static int run_trial(struct trial *trial, double *seconds)
{
    tutti_sim_report report = {.struct_size = sizeof report};
    tutti_error error;
    tutti_status status = tutti_sim_run(&trial->setup, trial_work, trial, &report, &error);
    if (status != TUTTI_OK) return cli_fail("bench", "%s: %s", tutti_status_name(status), error.text);
    *seconds = (double)trial->took_ns * 1e-9;
    return report.result == 0 ? CLI_GO_ON : cli_fail("bench", "a simulated exchange failed");
}

/* Finds the `ns`, not less than `low`, with which the simulated call takes as long as the real one. */
static int fit(struct trial *trial, link_call *call, int64_t *ns, int64_t low, double wanted)
{
    int64_t high = low + (int64_t)(wanted * 1e9);
    double seconds = 0;
    trial->call = call;
    while (high - low > 1 + low / 500) {
        *ns = low + (high - low) / 2;
        int status = run_trial(trial, &seconds);
        if (status != CLI_GO_ON) return status;
        *(seconds < wanted ? &low : &high) = *ns;
    }
    *ns = low;
    return CLI_GO_ON;
}

/* Fits the costs of messages of one size. A delay that ends before the next message comes costs a stream little, but
 * something: so both are fitted in turns. Large messages are streams themselves. */
static int add_point(struct trial *trial, size_t bytes, double stream_s, double alone_s)
{
    size_t last = trial->setup.copy_count;
    tutti_sim_point *copy = &trial->copy[last], *delay = &trial->delay[last];
    int status = CLI_GO_ON;
    trial->bytes = copy->bytes = delay->bytes = bytes;
    trial->setup.copy_count = trial->setup.delay_count = last + 1;
    if (stream_depth(bytes) == 1) return fit(trial, exchange, &copy->ns, copy[-1].ns, alone_s);
    for (int i = 0; i < FITS && status == CLI_GO_ON; i++) {
        status = fit(trial, stream, &copy->ns, copy[-1].ns, stream_s);
        if (status == CLI_GO_ON) status = fit(trial, exchange, &delay->ns, 0, alone_s);
    }
    return status;
}

static int fit_points(struct trial *trial, const struct bench_links *links, struct bench_link_costs *costs)
{
    int status = CLI_GO_ON;
    tutti_sim_setup_init(&trial->setup);
    trial->setup.hosts = 2;
    trial->setup.sizes_only = true;
    trial->setup.link_bytes_per_s = links->link_bytes_per_s;
    trial->setup.link_latency_ns = links->link_latency_ns;
    trial->setup.local_bytes_per_s = costs->local_bytes_per_s;
    trial->setup.copy = trial->copy;
    trial->setup.delay = trial->delay;
    trial->setup.copy_count = trial->setup.delay_count = 1;
    trial->copy[0] = costs->copy[0];
    trial->delay[0] = (tutti_sim_point){0};
    for (size_t i = 0; i < BENCH_LINK_SIZES && status == CLI_GO_ON; i++)
        status = add_point(trial, link_sizes[i], costs->stream_s[i], costs->alone_s[i]);
    memcpy(costs->copy, trial->copy, sizeof costs->copy);
    memcpy(costs->delay, trial->delay, sizeof costs->delay);
    return status;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

/* Measures small messages. A message costs both cores something, at least half of an exchange of nothing, unless they
 * are busy for less when they send many; the rest of its time is latency. */
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

/* Measures with the first `most` bytes of the buffers. */
static int measure_costs(struct bench_rank *self, size_t most, struct bench_link_costs *costs)
{
    double seconds = 0;
    self->link_most = most;
    int status = time_call(self, add, most, &seconds);
    costs->local_bytes_per_s = 3 * (double)most / seconds;
    for (size_t i = 0; i < BENCH_LINK_SIZES && status == CLI_GO_ON; i++) {
        self->link_most = most;
        if (link_sizes[i] < LARGE) status = time_call(self, stream, link_sizes[i], &costs->stream_s[i]);
        /* a vector that is sent at once is small, so it stays in the caches */
        if (most < self->max_bytes) self->link_most = 0;
        if (status == CLI_GO_ON) status = time_call(self, exchange, link_sizes[i], &costs->alone_s[i]);
    }
    return status;
}

/* Measures the best rate one way when nothing is sent the other way, by a message alone or by many. */
static int measure_rate(struct bench_rank *self, double *bytes_per_s)
{
    int status = CLI_GO_ON;
    self->link_most = 0;
    for (size_t i = 0; i < BENCH_LINK_SIZES && status == CLI_GO_ON; i++) {
        double alone = 0, many = 0, bytes = (double)link_sizes[i];
        status = time_call(self, there_and_back, link_sizes[i], &alone);
        if (status == CLI_GO_ON) status = time_call(self, stream_one_way, link_sizes[i], &many);
        double rate = fmax(2 * bytes / alone, (double)stream_depth(link_sizes[i]) * bytes / many);
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
    if (tutti_comm_split(self->world, self->rank / 2, self->rank, &self->link_pair) != TUTTI_OK)
        return bench_failed(self);
    int status = measure_small(self, links);
    if (status == CLI_GO_ON) status = measure_rate(self, &links->link_bytes_per_s);
    if (status == CLI_GO_ON) status = measure_costs(self, ADD_BYTES, &links->near);
    if (status == CLI_GO_ON) status = measure_costs(self, self->max_bytes, &links->far);
    (void)tutti_comm_free(self->link_pair);
    if (status == CLI_GO_ON && self->rank == 0) status = fit_points(&trial, links, &links->near);
    if (status == CLI_GO_ON && self->rank == 0) status = fit_points(&trial, links, &links->far);
    return bench_agree(self, status == CLI_GO_ON);
}

static void write_points(FILE *file, const char *name, const char *suffix, const tutti_sim_point *points)
{
    (void)fprintf(file, "# %s%s ", name, suffix);
    for (size_t i = 0; i <= BENCH_LINK_SIZES; i++)
        (void)fprintf(file, "%s%llu:%lldns", i == 0 ? "" : ",", (unsigned long long)points[i].bytes,
                      (long long)points[i].ns);
    (void)fprintf(file, "\n");
}

static void write_costs(FILE *file, const char *suffix, const struct bench_link_costs *costs)
{
    (void)fprintf(file, "# local%s %.4gG:200ns\n", suffix, costs->local_bytes_per_s * 1e-9);
    write_points(file, "copy", suffix, costs->copy);
    write_points(file, "delay", suffix, costs->delay);
}

void bench_links_write(FILE *file, const struct bench_links *links)
{
    (void)fprintf(file, "# figures of the links, for tutti sim --links; all pairs of ranks exchanged at once\n");
    (void)fprintf(file, "# link %.4gG:%lldns\n# far %zu\n", links->link_bytes_per_s * 8e-9,
                  (long long)links->link_latency_ns, links->far_bytes);
    write_costs(file, "", &links->near);
    write_costs(file, "_far", &links->far);
}
