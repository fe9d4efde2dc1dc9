/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu_kernels [DEVICE [MIB]]: how long the kernels of collectives take on a GPU, beside copies of as many bytes (the
 * floor: what N ranks of MIB each write, copied from device memory to device memory). Queued: a batch of launches is put on
 * the stream, and the host waits for the last. Every figure is the median of several batches.
 */
#include "collective/gpu/gpu_kernels.h"
#include "base/clock.h"
#include "bench/median.h"
#include "device/open.h"
#include "device/stream.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 16, BATCH = 30, BATCHES = 9, SMALL_ROUNDS = 2000 };

static tutti_error error;
static tutti_device *device;
static struct tti_stream *stream;
static void *in[RANKS_MOST], *out[RANKS_MOST];
static size_t bytes;

static void must(tutti_status status)
{
    if (status == TUTTI_OK) return;
    fprintf(stderr, "bench_gpu_kernels: %s\n", error.text);
    exit(1);
}

static void sync(void)
{
    must(tti_stream_sync(stream, tti_now_ns() + INT64_C(60000000000), &error));
}

/* What is measured. */
struct work {
    struct tti_gpu_kernel kernel;
    int ranks, outputs;
    size_t count;         /* elements */
    size_t odd;           /* bytes that the outputs are shifted by */
    const size_t *counts; /* slices */
    const struct tti_gpu_flow *flows;
    size_t flow_count;
    struct tti_gpu_launch launch;
};

static void run_copies(struct work *work)
{
    for (int k = 0; k < work->ranks; k++) must(tti_stream_copy(stream, out[k], in[k], bytes, &error));
}

static void run_fold(struct work *work)
{
    void *to[RANKS_MOST];
    for (int k = 0; k < work->outputs; k++) to[k] = (char *)out[k] + work->odd;
    struct tti_gpu_fold fold = {.inputs = work->ranks,
                                .outputs = work->outputs,
                                .in = (const void *const *)in,
                                .out = to,
                                .count = work->count,
                                .counts = work->counts};
    must(tti_gpu_fold(stream, &work->kernel, &fold, &work->launch, &error));
}

static void run_scan(struct work *work)
{
    struct tti_gpu_scan scan = {.ranks = work->ranks, .in = (const void *const *)in, .out = out, .count = work->count};
    must(tti_gpu_scan(stream, &work->kernel, &scan, &work->launch, &error));
}

static void run_move(struct work *work)
{
    must(tti_gpu_move(stream, &work->kernel, work->flows, work->flow_count, &work->launch, &error));
    if (work->launch.lists == NULL) return;
    sync();
    tti_pinned_give(work->launch.lists);
}

/* Microseconds of one, queued. */
static double time_queued(void (*run)(struct work *work), struct work *work)
{
    double times[BATCHES];
    run(work);
    sync();
    for (int batch = 0; batch < BATCHES; batch++) {
        int64_t start = tti_now_ns();
        for (int i = 0; i < BATCH; i++) run(work);
        sync();
        times[batch] = (double)(tti_now_ns() - start) / 1e3 / BATCH;
    }
    return median(times, BATCHES);
}

static struct tti_gpu_kernel prepare(enum tti_gpu_work work, tutti_type type, int ranks)
{
    struct tti_reducer reducer;
    struct tti_gpu_kernel kernel = {0};
    char why[200];
    if (tti_reducer_init(&reducer, type, TUTTI_SUM, why, sizeof why) != TUTTI_OK) exit(1);
    int64_t start = tti_now_ns();
    must(tti_gpu_prepare(stream->device, work, &reducer, ranks, &kernel, &error));
    double ms = (double)(tti_now_ns() - start) / 1e6;
    if (ms > 1) printf("    (%s ready after %.0f ms)\n", kernel.few != NULL ? kernel.few->name : kernel.many->name, ms);
    return kernel;
}

static void show(const char *what, int ranks, double us, double floor_us)
{
    printf("%-44s %2d ranks %9.1f us, floor %9.1f us: %5.1f%%\n", what, ranks, us, floor_us, 100 * floor_us / us);
}

/* All with the same bytes of inputs, whatever the type. */
static void measure_folds(int ranks, double floor_us)
{
    static const tutti_type types[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F8E4M3, TUTTI_F64};
    size_t counts[RANKS_MOST];
    char what[80];
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct work work = {.kernel = prepare(TTI_GPU_FOLD, types[t], ranks), .ranks = ranks, .outputs = ranks};
        int multiprocessors = work.kernel.multiprocessors;
        work.count = bytes / tutti_type_bytes(types[t]);
        (void)snprintf(what, sizeof what, "all_reduce %s", tutti_type_name(types[t]));
        show(what, ranks, time_queued(run_fold, &work), floor_us);
        if (t > 0) continue;
        for (int half = 1; half <= 8; half *= 2) { /* 8 blocks a multiprocessor are two halves */
            work.kernel.multiprocessors = multiprocessors * half / 2;
            (void)snprintf(what, sizeof what, "  with %d blocks a multiprocessor", 4 * half);
            show(what, ranks, time_queued(run_fold, &work), floor_us);
        }
        work.kernel.multiprocessors = multiprocessors;
        work.count -= 4;
        work.odd = 4;
        show("all_reduce f32, outputs shifted by 4 bytes", ranks, time_queued(run_fold, &work), floor_us);
        work.odd = 0;
        work.count += 4;
        work.outputs = 1;
        show("reduce f32 (reads all, writes one)", ranks, time_queued(run_fold, &work),
             floor_us * (ranks + 1) / (2 * ranks));
        work.outputs = ranks;
        for (int k = 0; k < ranks; k++) counts[k] = work.count / (size_t)ranks;
        counts[ranks - 1] += work.count % (size_t)ranks;
        work.counts = counts;
        show("reduce_scatter f32 (reads all, writes one)", ranks, time_queued(run_fold, &work),
             floor_us * (ranks + 1) / (2 * ranks));
    }
    struct work scan = {.kernel = prepare(TTI_GPU_SCAN, TUTTI_F32, ranks), .ranks = ranks};
    scan.count = bytes / 4;
    show("scan f32", ranks, time_queued(run_scan, &scan), floor_us);
}

/* In all as many bytes are written as by the copies. */
static void measure_moves(int ranks, double floor_us)
{
    struct tti_gpu_flow flows[RANKS_MOST * RANKS_MOST];
    struct work work = {.kernel = prepare(TTI_GPU_MOVE, TUTTI_F32, ranks), .ranks = ranks, .flows = flows};
    size_t block = bytes / (size_t)ranks / 16 * 16, n = 0;
    for (int k = 0; k < ranks; k++) flows[n++] = (struct tti_gpu_flow){in[0], out[k], bytes, false};
    work.flow_count = n;
    show("broadcast (reads one, writes all)", ranks, time_queued(run_move, &work),
         floor_us * (ranks + 1) / (2 * ranks));
    n = 0;
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++)
            flows[n++] = (struct tti_gpu_flow){in[from], (char *)out[to] + (size_t)from * block, block, false};
    work.flow_count = n;
    show("all_gather (reads one, writes all)", ranks, time_queued(run_move, &work),
         floor_us * (ranks + 1) / (2 * ranks));
    n = 0;
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++)
            flows[n++] = (struct tti_gpu_flow){(char *)in[from] + (size_t)to * block,
                                               (char *)out[to] + (size_t)from * block, block, false};
    work.flow_count = n;
    show("all_to_all", ranks, time_queued(run_move, &work), floor_us);
}

/* One launch of 8 bytes, and the host waits: by polling the word that the kernel raises, or for the stream. */
static void measure_small(int ranks)
{
    static const uint32_t zero = 0;
    struct work work = {
        .kernel = prepare(TTI_GPU_FOLD, TUTTI_F32, ranks), .ranks = ranks, .outputs = ranks, .count = 2};
    struct tti_word *abort = NULL, *done = NULL;
    uint64_t value;
    void *counters = out[RANKS_MOST - 1];
    must(tti_word_take(stream->device, &abort, &error));
    must(tti_word_take(stream->device, &done, &error));
    must(tti_stream_fill(stream, counters, 2, &zero, sizeof zero, &error));
    tti_word_store(abort, 0);
    value = atomic_load_explicit(&done->value, memory_order_relaxed);
    sync();
    double us[3];
    for (int how = 0; how < 3; how++) {
        work.launch = (struct tti_gpu_launch){.abort = how > 0 ? abort : NULL, .done = how < 2 ? done : NULL};
        work.launch.counters = counters;
        int64_t start = 0;
        for (int i = -100; i < SMALL_ROUNDS; i++) {
            if (i == 0) start = tti_now_ns();
            work.launch.value = ++value;
            work.launch.ticket = work.launch.ticket % 1000 + 1;
            run_fold(&work);
            if (how == 2) sync();
            while (how < 2 && !tti_word_reached(done, value)) continue;
        }
        us[how] = (double)(tti_now_ns() - start) / 1e3 / SMALL_ROUNDS;
    }
    printf(
        "8 B f32, one launch, %d ranks: word polled %.2f us, with an abort word %.2f us; stream waited for %.2f us\n",
        ranks, us[0], us[1], us[2]);
    tti_word_give(stream->device, abort);
    tti_word_give(stream->device, done);
}

int main(int argc, char **argv)
{
    static const int some[] = {2, 4, 8, 3, 6, 16};
    tutti_stream *handle = NULL;
    const char *name = argc > 1 ? argv[1] : "cuda:0";
    bytes = (argc > 2 ? (size_t)atoll(argv[2]) : 64) << 20;
    must(tutti_device_open(name, &device, &error));
    must(tutti_stream_create(device, &handle, &error));
    stream = tti_stream_take(handle, &error);
    for (int k = 0; k < RANKS_MOST; k++) {
        tutti_buffer *buffers[2] = {NULL, NULL};
        for (int i = 0; i < 2; i++)
            must(tutti_buffer_create(device, TUTTI_MEMORY_LOCAL, TUTTI_U8, bytes, &buffers[i], &error));
        in[k] = tutti_buffer_at(buffers[0], 0, bytes);
        out[k] = tutti_buffer_at(buffers[1], 0, bytes);
        must(tutti_buffer_fill(buffers[0], 0, bytes, "\0", handle, &error));
    }
    printf("%s, %zu MiB a rank\n", name, bytes >> 20);
    for (int i = 0; i < 3; i++) measure_small(some[i]);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct work copies = {.ranks = some[i]};
        double floor_us = time_queued(run_copies, &copies);
        measure_folds(some[i], floor_us);
        measure_moves(some[i], floor_us);
    }
    tti_object_give(&stream->object);
    must(tutti_device_free(device, &error));
    return 0;
}
