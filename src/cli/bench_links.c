/* SPDX-License-Identifier: Apache-2.0
 *
 * What tutti sim needs to know of the links between ranks that exchange messages, and of what their cores do with them.
 * Ranks are measured in pairs, all pairs at once, so that what they share is in the figures.
 */
#include "cli/bench.h"

#include <string.h>
#include <time.h>

enum { LINK_SAMPLES = 15, BURST = 32, ADD_CHUNK = 262144 };
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

/* A message each way at once. */
static tutti_status hop(struct bench_rank *self, size_t bytes)
{
    (void)bytes;
    return tutti_barrier(self->world);
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

/* As much each way at once. */
static tutti_status exchange(struct bench_rank *self, size_t bytes)
{
    int partner = partner_of(self);
    return tutti_sendrecv(self->world, self->in_buffer, bytes, partner, 0, self->out_buffer, bytes, partner, 0,
                          TUTTI_U8, NULL);
}

static tutti_status exchange8(struct bench_rank *self, size_t bytes)
{
    int partner = partner_of(self);
    tutti_op ops[8];
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 8 && status == TUTTI_OK; i++)
        status = tutti_sendrecv_start(self->world, self->in_buffer + (size_t)i * bytes % (16 << 20), bytes, partner, 0, self->out_buffer+ (size_t)i * bytes % (16 << 20), bytes, partner, 0, TUTTI_U8, NULL, &ops[i]);
    for (int i = 0; i < 8 && status == TUTTI_OK; i++) status = tutti_wait(ops[i]);
    return status;
}
static tutti_status a2a(struct bench_rank *self, size_t bytes)
{
    return tutti_all_to_all(self->world, self->in_buffer, self->out_buffer, bytes, TUTTI_U8);
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

int bench_links(struct bench_rank *self)
{
    static const size_t sizes[] = {16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20};
    double t = 0;
    time_call(self, hop, 0, &t); if (self->rank == 0) printf("hop %.2f us\n", t * 1e6);
    time_call(self, there_and_back, 8, &t); if (self->rank == 0) printf("pingpong/2 %.2f us\n", t * 1e6 / 2);
    double u = t;
    time_call(self, burst, 8, &t); if (self->rank == 0) printf("burst each %.2f us\n", (t - u) * 1e6 / (BURST - 1));
    for (int i = 0; i < 6; i++) {
        double e, a, o, p, q = 0;
        time_call(self, exchange, sizes[i], &e);
        time_call(self, exchange8, sizes[i], &p); if (sizes[i] < 16 << 20) time_call(self, a2a, sizes[i], &q);
        time_call(self, there_and_back, sizes[i], &o);
        time_call(self, add, sizes[i], &a);
        if (self->rank == 0) printf("%zu: exchange %.2f us %.3f ns/B, piped %.3f ns/B, a2a %.2f us, one way %.2f us %.3f ns/B, add %.2f us %.3f ns/B\n", sizes[i], e*1e6, e*1e9/(double)sizes[i], p*1e9/8/(double)sizes[i], q * 1e6, o*.5e6, o*.5e9/(double)sizes[i], a*1e6, a*1e9/(double)sizes[i]);
    }
    return CLI_OK;
}
