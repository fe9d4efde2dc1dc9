/* SPDX-License-Identifier: Apache-2.0
 *
 * What the provider nccl adds to NCCL: all_reduce of one rank on one GPU, by NCCL directly and through the library, in turns,
 * warm. Twice: many calls are put on the stream before the host waits ("queued"), and the host waits after each ("waits").
 *
 *     bench_nccl [DEVICE [ROUNDS]]     cuda:0, 15; exits with 77 where there is no GPU or no NCCL
 */
#define TUTTI_NO_CALL_SITES
#include "bench/median.h"
#include "device/cuda_api.h"
#include "device/nccl_api.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/device.h>

enum { ROUNDS_MOST = 101, QUEUED = 50, BYTES_MOST = 64 << 20, FIRST_JUDGED = 1 << 20 };
enum way { DIRECT, OURS, WAYS };

/* What both ways use. */
struct bench {
    tutti_comm *comm;
    const struct tti_nccl *nccl;
    void *native; /* the comm's own ncclComm_t, */
    tutti_device *device;
    tutti_stream *stream; /* and the stream of both */
    float *in, *out;
    tutti_error error;
};

static void must(const struct bench *bench, bool good, const char *what)
{
    if (good) return;
    const tutti_error *error = bench->comm == NULL ? NULL : tutti_comm_error(bench->comm);
    fprintf(stderr, "bench_nccl: %s: %s\n", what, error != NULL ? error->text : bench->error.text);
    exit(1);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void call(struct bench *bench, enum way way, size_t count)
{
    if (way == DIRECT) {
        void *stream = tutti_stream_native(bench->stream);
        must(bench,
             bench->nccl->all_reduce(bench->in, bench->out, count, TTI_NCCL_F32, TTI_NCCL_SUM, bench->native, stream) ==
                 TTI_NCCL_OK,
             "ncclAllReduce");
    } else {
        must(bench,
             tutti_all_reduce(tutti_on(bench->comm, bench->stream), bench->in, bench->out, count, TUTTI_F32,
                              TUTTI_SUM) == TUTTI_OK,
             "all_reduce");
    }
}

static void sync_stream(struct bench *bench)
{
    must(bench, tutti_stream_sync(bench->stream, 30000, &bench->error) == TUTTI_OK, "sync");
}

/* One call's part of the time of so many. */
static double sample_us(struct bench *bench, enum way way, size_t count, bool waits)
{
    sync_stream(bench);
    double start = now_us();
    for (int i = 0; i < QUEUED; i++) {
        call(bench, way, count);
        if (waits) sync_stream(bench);
    }
    sync_stream(bench);
    return (now_us() - start) / QUEUED;
}

struct times {
    double us[WAYS];
};

static struct times measure(struct bench *bench, size_t count, bool waits, int rounds)
{
    double samples[WAYS][ROUNDS_MOST];
    for (enum way way = DIRECT; way < WAYS; way++) (void)sample_us(bench, way, count, waits); /* warm */
    for (int i = 0; i < rounds; i++)
        for (int turn = 0; turn < WAYS; turn++) { /* who begins changes */
            enum way way = (turn + i) % 2 == 0 ? DIRECT : OURS;
            samples[way][i] = sample_us(bench, way, count, waits);
        }
    return (struct times){{median(samples[DIRECT], rounds), median(samples[OURS], rounds)}};
}

static bool judge(size_t bytes, const struct times *times)
{
    double more = times->us[OURS] - times->us[DIRECT];
    if (bytes == 8) return more <= 4;
    return bytes < FIRST_JUDGED || more <= times->us[DIRECT] * 0.03;
}

static int run(struct bench *bench, int rounds)
{
    bool good = true;
    printf("%10s %12s %12s %12s %9s %12s %12s %12s %9s\n", "bytes", "queued: nccl", "ours (us)", "more (us)",
           "more (%)", "waits: nccl", "ours (us)", "more (us)", "more (%)");
    for (size_t bytes = 8; bytes <= BYTES_MOST; bytes *= 2) {
        struct times queued = measure(bench, bytes / sizeof(float), false, rounds);
        struct times waits = measure(bench, bytes / sizeof(float), true, rounds);
        const struct times *both[] = {&queued, &waits};
        printf("%10zu", bytes);
        for (int i = 0; i < 2; i++) {
            double direct = both[i]->us[DIRECT], ours = both[i]->us[OURS];
            printf(" %12.2f %12.2f %12.2f %9.1f", direct, ours, ours - direct, (ours - direct) / direct * 100);
        }
        bool kept = judge(bytes, &queued) && judge(bytes, &waits);
        printf("%s\n", kept ? "" : "  too much");
        good = good && kept;
    }
    printf("at most 4 us more at 8 bytes, and 3%% from 1 MiB on: %s\n", good ? "kept" : "NOT kept");
    return good ? 0 : 1;
}

/* As a program that uses CUDA's driver has it. */
static void enter_context(struct bench *bench)
{
    tutti_device_about about = {.struct_size = sizeof about};
    const struct tti_cuda *cuda = tti_cuda_load(&bench->error);
    void *context = NULL;
    must(bench, cuda != NULL && tutti_device_describe(bench->device, &about, &bench->error) == TUTTI_OK, "CUDA");
    must(bench,
         cuda->context_retain(&context, about.number) == TTI_CUDA_OK && cuda->context_push(context) == TTI_CUDA_OK,
         "the context");
}

static float *take(struct bench *bench)
{
    tutti_buffer *buffer = NULL;
    size_t count = BYTES_MOST / sizeof(float);
    must(bench,
         tutti_buffer_create(bench->device, TUTTI_MEMORY_LOCAL, TUTTI_F32, count, &buffer, &bench->error) == TUTTI_OK,
         "memory");
    return tutti_buffer_at(buffer, 0, count);
}

int main(int argc, char **argv)
{
    struct bench bench = {.nccl = NULL};
    int rounds = argc > 2 ? atoi(argv[2]) : 15;
    if (rounds < 1 || rounds > ROUNDS_MOST) rounds = ROUNDS_MOST;
    bench.nccl = tti_nccl_load(&bench.error);
    if (bench.nccl == NULL ||
        tutti_device_open(argc > 1 ? argv[1] : "cuda:0", &bench.device, &bench.error) != TUTTI_OK) {
        printf("skipped: %s\n", bench.error.text);
        return 77;
    }
    setenv("TUTTI_DEVICE_PROVIDER", "nccl", 1);
    must(&bench, tutti_stream_create(bench.device, &bench.stream, &bench.error) == TUTTI_OK, "a stream");
    must(&bench, tutti_join(&bench.comm) == TUTTI_OK, "joining");
    bench.in = take(&bench);
    bench.out = take(&bench);
    enter_context(&bench);
    must(&bench, tutti_barrier(tutti_on(bench.comm, bench.stream)) == TUTTI_OK, "the first call on a stream");
    must(&bench, tutti_nccl_comm(bench.comm, &bench.native) == TUTTI_OK, "NCCL's communicator");
    int result = run(&bench, rounds);
    must(&bench, tutti_leave(bench.comm) == TUTTI_OK, "leaving");
    (void)tutti_device_close(bench.device, NULL);
    return result;
}
