/* SPDX-License-Identifier: Apache-2.0
 *
 * What the provider nccl adds to NCCL: all_reduce of one rank on one GPU, by NCCL directly and through the library, in turns,
 * warm. Twice: many calls are put on the stream before the host waits ("queued"), and the host waits after each ("waits").
 * "ours" is on a stream of the library's, "adopted" on the caller's own, as NCCL's calls are.
 *
 * "floor" is NCCL's call and the least with which others can see its end: an event recorded behind it, and one look at it. What
 * agrees with other ranks, checks the call, and keeps its buffers until its end is not in the floor. From 1 MiB on ours may
 * take 3% more than NCCL's call or, where the floor takes more than that itself, 100/85 of the floor.
 *
 *     bench_nccl [DEVICE [ROUNDS]]          cuda:0, 15; exits with 77 where there is no GPU or no NCCL
 *     bench_nccl DEVICE ROUNDS parts        what NCCL's call and each thing that may be put behind it on the stream take
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

enum { ROUNDS_MOST = 101, QUEUED = 50, BYTES_MOST = 64 << 20, FIRST_JUDGED = 1 << 20, EVENTS = 3, EIGHTH = 8 };

/* The first four are compared always. The rest are NCCL's call with something behind it. */
enum way {
    DIRECT,
    FLOOR,
    OURS,
    ADOPTED,
    COMPARED,
    WORD = COMPARED, /* a word is raised, */
    WORD_TWICE,      /* two are, */
    WORD_EIGHTH,     /* after every eighth call */
    EVENT,           /* an event is recorded, */
    EVENT_THRICE,    /* three are, */
    EVENT_AND_WORD,  /* both */
    EVENT_ASIDE,     /* another stream waits for the event and raises the word */
    KERNEL,          /* the same behind a kernel, which NCCL's calls between GPUs are: memory is filled; */
    KERNEL_WORD,
    KERNEL_EVENT,
    WAYS
};

static const char *const way_names[WAYS] = {[DIRECT] = "nccl",
                                            [FLOOR] = "floor",
                                            [OURS] = "ours",
                                            [ADOPTED] = "adopted",
                                            [WORD] = "+word",
                                            [WORD_TWICE] = "+2 words",
                                            [WORD_EIGHTH] = "+word/8",
                                            [EVENT] = "+event",
                                            [EVENT_THRICE] = "+3 events",
                                            [EVENT_AND_WORD] = "+ev+word",
                                            [EVENT_ASIDE] = "+ev aside",
                                            [KERNEL] = "kernel",
                                            [KERNEL_WORD] = "k.+word",
                                            [KERNEL_EVENT] = "k.+event"};

/* What all ways use. */
struct bench {
    tutti_comm *comm;
    const struct tti_nccl *nccl;
    const struct tti_cuda *cuda;
    void *native; /* the comm's own ncclComm_t */
    tutti_device *device;
    void *foreign;         /* a stream made by the driver, */
    tutti_stream *adopted; /* the same, known to the library, */
    tutti_stream *own;     /* and the library's own */
    void *aside;           /* another one made by the driver */
    void *events[EVENTS];
    uint64_t *word, raised, calls;
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

static void must_cuda(int code, const char *what)
{
    if (code == TTI_CUDA_OK) return;
    fprintf(stderr, "bench_nccl: %s: CUDA's result %d\n", what, code);
    exit(1);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void call_direct(struct bench *bench, size_t count)
{
    must(bench,
         bench->nccl->all_reduce(bench->in, bench->out, count, TTI_NCCL_F32, TTI_NCCL_SUM, bench->native,
                                 bench->foreign) == TTI_NCCL_OK,
         "ncclAllReduce");
}

static void call_ours(struct bench *bench, tutti_stream *stream, size_t count)
{
    must(bench,
         tutti_all_reduce(tutti_on(bench->comm, stream), bench->in, bench->out, count, TUTTI_F32, TUTTI_SUM) ==
             TUTTI_OK,
         "all_reduce");
}

static void call_kernel(struct bench *bench, size_t count)
{
    must_cuda(bench->cuda->fill_32((uint64_t)(uintptr_t)bench->out, 0, count, bench->foreign), "cuMemsetD32Async");
}

static void raise_word(struct bench *bench, void *stream)
{
    uint64_t at = (uint64_t)(uintptr_t)bench->word;
    must_cuda(bench->cuda->stream_write_value(stream, at, ++bench->raised, TTI_CUDA_WRITE_DEFAULT),
              "cuStreamWriteValue64");
}

static void record(struct bench *bench, int events)
{
    for (int i = 0; i < events; i++)
        must_cuda(bench->cuda->event_record(bench->events[i], bench->foreign), "cuEventRecord");
}

/* One event, and whether it has passed. */
static void be_seen(struct bench *bench)
{
    record(bench, 1);
    int code = bench->cuda->event_query(bench->events[0]);
    must_cuda(code == TTI_CUDA_NOT_READY ? TTI_CUDA_OK : code, "cuEventQuery");
}

static void add_behind(struct bench *bench, enum way way)
{
    switch (way) {
    case FLOOR: be_seen(bench); break;
    case KERNEL_WORD:
    case WORD: raise_word(bench, bench->foreign); break;
    case WORD_TWICE:
        raise_word(bench, bench->foreign);
        raise_word(bench, bench->foreign);
        break;
    case WORD_EIGHTH:
        if (++bench->calls % EIGHTH == 0) raise_word(bench, bench->foreign);
        break;
    case KERNEL_EVENT:
    case EVENT: record(bench, 1); break;
    case EVENT_THRICE: record(bench, EVENTS); break;
    case EVENT_AND_WORD:
        raise_word(bench, bench->foreign);
        record(bench, 1);
        break;
    case EVENT_ASIDE:
        record(bench, 1);
        must_cuda(bench->cuda->stream_wait_event(bench->aside, bench->events[0], 0), "cuStreamWaitEvent");
        raise_word(bench, bench->aside);
        break;
    default: break;
    }
}

static void call(struct bench *bench, enum way way, size_t count)
{
    if (way == OURS || way == ADOPTED) {
        call_ours(bench, way == OURS ? bench->own : bench->adopted, count);
        return;
    }
    if (way >= KERNEL)
        call_kernel(bench, count);
    else
        call_direct(bench, count);
    add_behind(bench, way);
}

static void sync_stream(struct bench *bench, enum way way)
{
    tutti_stream *stream = way == OURS ? bench->own : bench->adopted;
    must(bench, tutti_stream_sync(stream, 30000, &bench->error) == TUTTI_OK, "sync");
}

/* One call's part of the time of so many. */
static double sample_us(struct bench *bench, enum way way, size_t count, bool waits)
{
    sync_stream(bench, way);
    double start = now_us();
    for (int i = 0; i < QUEUED; i++) {
        call(bench, way, count);
        if (waits) sync_stream(bench, way);
    }
    sync_stream(bench, way);
    return (now_us() - start) / QUEUED;
}

struct times {
    double us[WAYS];
};

static struct times measure(struct bench *bench, int ways, size_t count, bool waits, int rounds)
{
    double samples[WAYS][ROUNDS_MOST];
    struct times times;
    for (int way = 0; way < ways; way++) (void)sample_us(bench, (enum way)way, count, waits); /* warm */
    for (int i = 0; i < rounds; i++)
        for (int turn = 0; turn < ways; turn++) { /* who begins changes */
            int way = (turn + i) % ways;
            samples[way][i] = sample_us(bench, (enum way)way, count, waits);
        }
    for (int way = 0; way < ways; way++) times.us[way] = median(samples[way], rounds);
    return times;
}

static double slower_of_ours(const struct times *times)
{
    return times->us[ADOPTED] > times->us[OURS] ? times->us[ADOPTED] : times->us[OURS];
}

static bool judge(size_t bytes, const struct times *times)
{
    double ours = slower_of_ours(times), direct = times->us[DIRECT];
    if (bytes <= 8) return ours <= direct + 4;
    return bytes < FIRST_JUDGED || ours <= direct * 1.03 || ours <= times->us[FLOOR] / 0.85;
}

static void print_times(size_t bytes, const char *form, int ways, const struct times *times)
{
    printf("%10zu %7s", bytes, form);
    for (int way = 0; way < ways; way++) printf(" %10.2f", times->us[way]);
    for (int way = OURS; way < COMPARED; way++) printf(" %8.1f", (times->us[way] / times->us[DIRECT] - 1) * 100);
    printf(" %8.0f", 100 * times->us[FLOOR] / slower_of_ours(times));
}

static int run(struct bench *bench, int ways, int rounds)
{
    bool good = true;
    size_t factor = ways == COMPARED ? 2 : 16, first = ways == COMPARED ? 8 : 4;
    printf("# us of one call, %d in a row; median of %d rounds\n%10s %7s", QUEUED, rounds, "bytes", "host");
    for (int way = 0; way < ways; way++) printf(" %10s", way_names[way]);
    printf(" %8s %8s %8s\n", "ours +%", "adopt. +%", "floor %");
    for (size_t bytes = first; bytes <= BYTES_MOST; bytes *= factor) {
        for (int waits = 0; waits < 2; waits++) {
            struct times times = measure(bench, ways, bytes / sizeof(float), waits != 0, rounds);
            bool kept = judge(bytes, &times);
            print_times(bytes, waits ? "waits" : "queues", ways, &times);
            printf("%s\n", kept ? "" : "  too much");
            good = good && kept;
        }
        fflush(stdout);
    }
    printf("at most 4 us more at 8 bytes; from 1 MiB on at most 3%% more, or 85%% of the floor: %s\n",
           good ? "kept" : "NOT kept");
    return good ? 0 : 1;
}

/* As a program that uses CUDA's driver has it. */
static void enter_context(struct bench *bench)
{
    tutti_device_about about = {.struct_size = sizeof about};
    void *context = NULL;
    bench->cuda = tti_cuda_load(&bench->error);
    must(bench, bench->cuda != NULL && tutti_device_describe(bench->device, &about, &bench->error) == TUTTI_OK, "CUDA");
    must(bench,
         bench->cuda->context_retain(&context, about.number) == TTI_CUDA_OK &&
             bench->cuda->context_push(context) == TTI_CUDA_OK,
         "the context");
}

static void *take(struct bench *bench, tutti_memory memory, size_t count)
{
    tutti_buffer *buffer = NULL;
    must(bench, tutti_buffer_create(bench->device, memory, TUTTI_F32, count, &buffer, &bench->error) == TUTTI_OK,
         "memory");
    return tutti_buffer_at(buffer, 0, count);
}

static void make_streams(struct bench *bench)
{
    const struct tti_cuda *cuda = bench->cuda;
    bool made = cuda->stream_create(&bench->foreign, TTI_CUDA_STREAM_NON_BLOCKING) == TTI_CUDA_OK &&
                cuda->stream_create(&bench->aside, TTI_CUDA_STREAM_NON_BLOCKING) == TTI_CUDA_OK;
    for (int i = 0; i < EVENTS; i++)
        made = made && cuda->event_create(&bench->events[i], TTI_CUDA_EVENT_NO_TIMING) == TTI_CUDA_OK;
    must(bench, made, "the driver's streams and events");
    must(bench,
         tutti_stream_create(bench->device, &bench->own, &bench->error) == TUTTI_OK &&
             tutti_stream_adopt(bench->device, bench->foreign, &bench->adopted, &bench->error) == TUTTI_OK,
         "streams");
}

int main(int argc, char **argv)
{
    struct bench bench = {.nccl = NULL};
    int rounds = argc > 2 ? atoi(argv[2]) : 15;
    bool parts = argc > 3 && strcmp(argv[3], "parts") == 0;
    if (rounds < 1 || rounds > ROUNDS_MOST) rounds = ROUNDS_MOST;
    bench.nccl = tti_nccl_load(&bench.error);
    if (bench.nccl == NULL ||
        tutti_device_open(argc > 1 ? argv[1] : "cuda:0", &bench.device, &bench.error) != TUTTI_OK) {
        printf("skipped: %s\n", bench.error.text);
        return 77;
    }
    setenv("TUTTI_DEVICE_PROVIDER", "nccl", 1);
    must(&bench, tutti_join(&bench.comm) == TUTTI_OK, "joining");
    bench.in = take(&bench, TUTTI_MEMORY_LOCAL, BYTES_MOST / sizeof(float));
    bench.out = take(&bench, TUTTI_MEMORY_LOCAL, BYTES_MOST / sizeof(float));
    bench.word = take(&bench, TUTTI_MEMORY_PINNED, 64);
    enter_context(&bench);
    make_streams(&bench);
    must(&bench, tutti_barrier(tutti_on(bench.comm, bench.own)) == TUTTI_OK, "the first call on a stream");
    must(&bench, tutti_nccl_comm(bench.comm, &bench.native) == TUTTI_OK, "NCCL's communicator");
    int result = run(&bench, parts ? WAYS : COMPARED, rounds);
    must(&bench, tutti_leave(bench.comm) == TUTTI_OK, "leaving");
    (void)tutti_device_free(bench.device, NULL);
    return result;
}
