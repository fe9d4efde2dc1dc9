/* SPDX-License-Identifier: Apache-2.0
 *
 * A sample is a batch of calls made back to back after a barrier; its time is that of the slowest rank, divided by the
 * batch. Machines drift, within minutes by more than the differences to be seen: samples of the operation and of its
 * floor are taken in turns, a few of each per round, so that both are measured under the same conditions.
 *
 * Invariant: every decision (how long a batch, which ways of the floor, when to stop) follows from times that were
 * combined over all ranks, so that all ranks decide the same.
 */
#include "cli/bench.h"

#include <stdlib.h>
#include <time.h>

enum { SAMPLES = 50, ROUNDS = 10, MAX_BATCH = 1 << 18, SAMPLES_MIN = 5 };
static const double sample_seconds = 1.5e-3; /* target length of a batch */
static const double row_seconds = 0.3;       /* target length of all samples of one operation */
static const double round_seconds = 0.05;
static const double hopeless = 1.3; /* a way of the floor that is slower than the best by this factor is left out */

/* Times of all samples of one kind. */
struct series {
    double *seconds; /* (room) of one call each */
    size_t count, room;
    uint64_t batch;
};

struct measurement {
    struct bench_rank *self;
    const struct bench_case *c;
    floor_call floor_call;
    struct series tutti;
    struct series floor[FLOOR_WAYS];
    bool floor_used[FLOOR_WAYS];
    double *round; /* (1 + FLOOR_WAYS, samples of a round) elapsed seconds, first of this rank, then of the slowest */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int bench_failed(struct bench_rank *self)
{
    if (!tutti_explain(self->world, stderr)) return cli_fail("bench", "rank %d failed", self->rank);
    return CLI_FAILED;
}

/* Replaces the times on all ranks by those of the slowest rank. */
static int combine(struct bench_rank *self, double *seconds, size_t count)
{
    if (count == 0) return CLI_GO_ON;
    if (tutti_all_reduce(self->world, seconds, seconds, count, TUTTI_F64, TUTTI_MAX) == TUTTI_OK) return CLI_GO_ON;
    return bench_failed(self);
}

int bench_agree(struct bench_rank *self, bool ok)
{
    int32_t all = ok;
    if (tutti_all_reduce(self->world, &all, &all, 1, TUTTI_I32, TUTTI_MIN) != TUTTI_OK) return bench_failed(self);
    return all ? CLI_GO_ON : CLI_FAILED;
}

/* ---- One sample -------------------------------------------------------------------------------------------------- */

static int sample_tutti(struct bench_rank *self, const struct bench_case *c, uint64_t batch, double *elapsed)
{
    bench_call *call = c->op->call;
    if (tutti_barrier(self->world) != TUTTI_OK) return bench_failed(self);
    double start = now();
    for (uint64_t i = 0; i < batch; i++)
        if (call(self, c) != TUTTI_OK) return bench_failed(self);
    if (bench_device_sync(self) != TUTTI_OK) return bench_device_failed(self);
    *elapsed = now() - start;
    if (c->op->shape == FLOOR_PING_PONG) *elapsed /= 2;
    return CLI_GO_ON;
}

static int sample_floor(struct measurement *m, floor_way way, uint64_t batch, double *elapsed)
{
    bool on_device = m->self->device != NULL;
    *elapsed = on_device ? bench_device_floor(m->self, m->c, batch)
                         : floor_sample(&m->self->floor, &m->floor_call, way, batch);
    if (*elapsed >= 0) return CLI_GO_ON;
    if (on_device) return bench_device_failed(m->self);
    return cli_fail("bench", "rank %d: another rank stopped while the floor was measured", m->self->rank);
}

/* Takes one sample. Way -1 is the operation itself. */
static int sample(struct measurement *m, int way, uint64_t batch, double *elapsed)
{
    if (way < 0) return sample_tutti(m->self, m->c, batch, elapsed);
    return sample_floor(m, (floor_way)way, batch, elapsed);
}

int bench_time_batch(struct bench_rank *self, const struct bench_case *c, uint64_t batch, double *seconds)
{
    int status = sample_tutti(self, c, batch, seconds);
    if (status == CLI_GO_ON) status = combine(self, seconds, 1);
    *seconds /= (double)batch;
    return status;
}

/* ---- Preparing --------------------------------------------------------------------------------------------------- */

/* Returns the batch, rounded up to an even number for ping-pong's floor, which changes direction at every call. */
static uint64_t whole_batch(const struct measurement *m, int way, uint64_t batch)
{
    return way >= 0 && m->c->op->shape == FLOOR_PING_PONG ? (batch + 1) / 2 * 2 : batch;
}

/* Finds how many calls make a sample long enough to be timed, and how long one takes. */
static int calibrate(struct measurement *m, int way, uint64_t *batch, double *seconds)
{
    uint64_t asked = (uint64_t)m->self->settings->flags.batch;
    *batch = whole_batch(m, way, asked ? asked : 1);
    for (;;) {
        double elapsed = 0;
        int status = sample(m, way, *batch, &elapsed);
        if (status == CLI_GO_ON) status = combine(m->self, &elapsed, 1);
        if (status != CLI_GO_ON) return status;
        *seconds = elapsed / (double)*batch;
        if (asked || elapsed >= sample_seconds / 4 || *batch >= MAX_BATCH) break;
        *batch = whole_batch(m, way, *batch * 4);
    }
    if (asked) return CLI_GO_ON;
    double wanted = *seconds > 0 ? sample_seconds / *seconds : 1;
    *batch = whole_batch(m, way, wanted < 1 ? 1 : wanted > MAX_BATCH ? MAX_BATCH : (uint64_t)wanted);
    return CLI_GO_ON;
}

static bool has_way(const struct measurement *m, int way)
{
    const struct bench_rank *self = m->self;
    if (self->device != NULL) return way == 0 && self->settings->flags.floor && m->c->bytes > 0;
    return self->floor_bytes && floor_has_way(&self->floor, &m->floor_call, (floor_way)way);
}

static int calibrate_floor(struct measurement *m)
{
    double seconds[FLOOR_WAYS], best = 0;
    for (int way = 0; way < FLOOR_WAYS; way++) {
        m->floor_used[way] = has_way(m, way);
        if (!m->floor_used[way]) continue;
        for (int twice = 0; twice < 2; twice++) { /* the first time warms up */
            int status = calibrate(m, way, &m->floor[way].batch, &seconds[way]);
            if (status != CLI_GO_ON) return status;
        }
        if (best == 0 || seconds[way] < best) best = seconds[way];
    }
    for (int way = 0; way < FLOOR_WAYS; way++)
        if (m->floor_used[way] && seconds[way] > hopeless * best) m->floor_used[way] = false;
    return CLI_GO_ON;
}

static int warm_up(struct measurement *m)
{
    double unused = 0;
    if (bench_fill(m->self, m->c) != TUTTI_OK) return bench_device_failed(m->self);
    uint64_t calls = (uint64_t)m->self->settings->flags.warmup;
    return calls ? sample_tutti(m->self, m->c, calls, &unused) : CLI_GO_ON;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

/* Takes `each` samples of everything that is measured, and records them. */
static int take_round(struct measurement *m, size_t each)
{
    size_t used = 0;
    for (int way = -1; way < FLOOR_WAYS; way++) {
        if (way >= 0 && !m->floor_used[way]) continue;
        uint64_t batch = way < 0 ? m->tutti.batch : m->floor[way].batch;
        /* the caches hold what was measured before, and all ways of the floor use the same buffers: one batch to warm
         * up */
        double unused = 0;
        int status = sample(m, way, whole_batch(m, way, 1), &unused);
        for (size_t i = 0; i < each && status == CLI_GO_ON; i++) status = sample(m, way, batch, &m->round[used++]);
        if (status != CLI_GO_ON) return status;
    }
    int status = combine(m->self, m->round, used);
    if (status != CLI_GO_ON) return status;
    used = 0;
    for (int way = -1; way < FLOOR_WAYS; way++) {
        if (way >= 0 && !m->floor_used[way]) continue;
        struct series *series = way < 0 ? &m->tutti : &m->floor[way];
        for (size_t i = 0; i < each; i++) series->seconds[series->count++] = m->round[used++] / (double)series->batch;
    }
    return CLI_GO_ON;
}

static int take_samples(struct measurement *m, double seconds, size_t total, size_t rounds)
{
    bool by_time = m->self->settings->flags.samples == 0;
    size_t each = (total + rounds - 1) / rounds;
    double sample_takes = seconds * (double)m->tutti.batch, spent = 0;
    if (by_time && sample_takes * (double)each > round_seconds) each = (size_t)(round_seconds / sample_takes);
    if (each == 0) each = 1;
    while (m->tutti.count < total) {
        if (each > total - m->tutti.count) each = total - m->tutti.count;
        size_t before = m->tutti.count;
        int status = take_round(m, each);
        if (status != CLI_GO_ON) return status;
        for (size_t i = before; i < m->tutti.count; i++) spent += m->tutti.seconds[i] * (double)m->tutti.batch;
        if (by_time && m->tutti.count >= SAMPLES_MIN && spent >= row_seconds) break;
    }
    return CLI_GO_ON;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double bench_median(double *values, size_t count)
{
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void summarize(struct measurement *m, struct bench_result *result)
{
    struct series *series = &m->tutti;
    result->p50 = bench_median(series->seconds, series->count);
    result->min = series->seconds[0];
    result->p99 = series->seconds[(series->count * 99 + 99) / 100 - 1];
    result->samples = series->count;
    result->batch = series->batch;
    result->floor = result->floor_min = 0;
    for (int way = 0; way < FLOOR_WAYS; way++) {
        if (!m->floor_used[way]) continue;
        double p50 = bench_median(m->floor[way].seconds, m->floor[way].count);
        if (result->floor == 0 || p50 < result->floor) result->floor = p50;
        double least = m->floor[way].seconds[0];
        if (result->floor_min == 0 || least < result->floor_min) result->floor_min = least;
    }
}

static int check(struct bench_rank *self, const struct bench_case *c, struct bench_result *result)
{
    result->wrong = UINT64_MAX;
    if (!self->settings->flags.check) return CLI_GO_ON;
    uint64_t wrong = 0;
    for (int64_t i = 0; i < self->settings->flags.check; i++) {
        uint64_t here;
        if (bench_check(self, c, &here) != TUTTI_OK) return bench_device_failed(self);
        wrong += here;
    }
    if (tutti_all_reduce(self->world, &wrong, &result->wrong, 1, TUTTI_U64, TUTTI_SUM) != TUTTI_OK)
        return bench_failed(self);
    return CLI_GO_ON;
}

static bool series_open(struct measurement *m, size_t total)
{
    double *all = calloc((2 * FLOOR_WAYS + 2) * total, sizeof *all);
    if (!all) return false;
    m->round = all;
    m->tutti.seconds = all + (FLOOR_WAYS + 1) * total;
    for (size_t way = 0; way < FLOOR_WAYS; way++) m->floor[way].seconds = m->tutti.seconds + (way + 1) * total;
    return true;
}

static int measure(struct measurement *m, size_t total, size_t rounds, struct bench_result *result)
{
    double seconds = 0;
    int status = warm_up(m);
    if (status == CLI_GO_ON) status = calibrate(m, -1, &m->tutti.batch, &seconds);
    if (status == CLI_GO_ON) status = calibrate_floor(m);
    if (status == CLI_GO_ON) status = take_samples(m, seconds, total, rounds);
    if (status == CLI_GO_ON) summarize(m, result);
    return status;
}

int bench_measure(struct bench_rank *self, const struct bench_case *c, struct bench_result *result)
{
    const struct bench_values *flags = &self->settings->flags;
    size_t total = flags->samples ? (size_t)flags->samples : SAMPLES;
    size_t rounds = flags->rounds ? (size_t)flags->rounds : ROUNDS;
    struct measurement m = {.self = self, .c = c};
    m.floor_call = (floor_call){.op = c->op->shape, .bytes = c->bytes, .in_place = c->in_place, .root = c->root};
    *result = (struct bench_result){.wrong = UINT64_MAX};
    int status = bench_agree(self, series_open(&m, total));
    if (status == CLI_GO_ON) status = measure(&m, total, rounds, result);
    if (status == CLI_GO_ON) status = check(self, c, result);
    result->provider = bench_device_carrier(self);
    free(m.round);
    return status;
}
