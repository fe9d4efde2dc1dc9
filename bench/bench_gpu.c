/* SPDX-License-Identifier: Apache-2.0
 *
 * all_reduce on streams of a device, beside the time that copying the same bytes takes there: for ranks that share a GPU.
 *
 *     TUTTI_RANKS=4 bench_gpu cuda:0            threads
 *     tutti run -n 4 bench_gpu cuda:0           processes
 *     TUTTI_RANKS=2 bench_gpu cuda:0 staged     by the provider `staged`
 *     tutti run -n 2 bench_gpu cuda:0 slow      8 B and 64 MiB, few of them: for NCCL on a GPU that ranks share
 *
 * Prints for 8 B … 64 MiB the time of one op, in microseconds: where the host waits for each, by the blocking form and the stream's
 * sync ("waited") and by _start and tutti_wait ("started"), where 50 are queued, and what a copy of ranks x bytes from the device
 * to itself takes (the floor). With `staged`, the floor is the slower one of what such an
 * op cannot do without: all ranks copying their bytes to pinned memory and back, both directions at once, and the same op
 * on memory of the host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/device.h>
#include <tutti/tutti.h>

enum { QUEUED = 50, SLOW = 5, STAGED = 5, ROUNDS = 5, WAIT_MS = 60000 };

/* How the host goes on after an op. */
enum form { WAITED, STARTED, ENQUEUED, FORMS };

struct place {
    tutti_comm *world;
    tutti_device *device;
    tutti_stream *stream;
    tutti_buffer *in, *out;
    float *x, *y;
    tutti_stream *back; /* the rest is for staged ops: the other direction, */
    tutti_buffer *pinned[2];
    float *host[2]; /* and memory of the host */
    tutti_error error;
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int fail(const struct place *place, const char *what)
{
    fprintf(stderr, "bench_gpu: %s: %s\n", what, place->error.text);
    return 1;
}

static tutti_status open_place(struct place *place, const char *name, size_t count)
{
    tutti_status status = tutti_device_open(name, &place->device, &place->error);
    if (status == TUTTI_OK) status = tutti_stream_create(place->device, &place->stream, &place->error);
    if (status == TUTTI_OK)
        status = tutti_buffer_create(place->device, TUTTI_MEMORY_SHARED, TUTTI_F32, count, &place->in, &place->error);
    if (status == TUTTI_OK)
        status = tutti_buffer_create(place->device, TUTTI_MEMORY_SHARED, TUTTI_F32, count, &place->out, &place->error);
    if (status != TUTTI_OK) return status;
    place->x = tutti_buffer_at(place->in, 0, count);
    place->y = tutti_buffer_at(place->out, 0, count);
    float one = 1;
    status = tutti_buffer_fill(place->in, 0, count, &one, place->stream, &place->error);
    return status == TUTTI_OK ? tutti_stream_sync(place->stream, WAIT_MS, &place->error) : status;
}

static tutti_status sync_place(struct place *place)
{
    return tutti_stream_sync(place->stream, WAIT_MS, &place->error);
}

/* One op, and what the form says. */
static tutti_status reduce(struct place *place, size_t count, enum form form)
{
    tutti_comm *on = tutti_on(place->world, place->stream);
    tutti_op op;
    if (form == STARTED) {
        tutti_status status = tutti_all_reduce_start(on, place->x, place->y, count, TUTTI_F32, TUTTI_SUM, &op);
        return status == TUTTI_OK ? tutti_wait(op) : status;
    }
    tutti_status status = tutti_all_reduce(on, place->x, place->y, count, TUTTI_F32, TUTTI_SUM);
    return status == TUTTI_OK && form == WAITED ? sync_place(place) : status;
}

/* `times` ops: microseconds of one. Negative: failed. */
static double time_ops(struct place *place, size_t count, int times, enum form form)
{
    tutti_barrier(place->world);
    double begin = now_us();
    for (int i = 0; i < times; i++)
        if (reduce(place, count, form) != TUTTI_OK) return -1;
    if (form != WAITED && sync_place(place) != TUTTI_OK) return -1;
    return (now_us() - begin) / times;
}

static double time_copies(struct place *place, size_t count, int times)
{
    tutti_barrier(place->world);
    double begin = now_us();
    int copies = tutti_rank(place->world) == 0 ? times * tutti_size(place->world) : 0;
    for (int i = 0; i < copies; i++)
        if (tutti_buffer_copy(place->out, 0, place->in, 0, count, place->stream, &place->error) != TUTTI_OK) return -1;
    if (tutti_stream_sync(place->stream, WAIT_MS, &place->error) != TUTTI_OK) return -1;
    double us = (now_us() - begin) / times;
    tutti_barrier(place->world);
    return us;
}

static double least(double a, double b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

static int measure(struct place *place, size_t bytes, int times)
{
    size_t count = bytes / sizeof(float);
    double best[FORMS] = {0}, floor = 0;
    for (int i = 0; i < ROUNDS; i++) {
        for (int form = 0; form < FORMS; form++) {
            double us = time_ops(place, count, times, (enum form)form);
            if (us < 0) return tutti_explain(place->world, stderr);
            best[form] = least(best[form], us);
        }
        double copy = time_copies(place, count, times);
        if (copy < 0) return fail(place, "copy");
        floor = least(floor, copy);
    }
    if (tutti_rank(place->world) == 0)
        printf("%11zu  %10.2f  %10.2f  %10.2f  %9.2f  %6.0f%%  %7.0f%%  %6.0f%%\n", bytes, best[WAITED], best[STARTED],
               best[ENQUEUED], floor, 100 * floor / best[WAITED], 100 * floor / best[STARTED],
               100 * floor / best[ENQUEUED]);
    fflush(stdout);
    return 0;
}

/* ---- Staged -------------------------------------------------------------------------------------------------------- */

static tutti_status open_staged(struct place *place, size_t count)
{
    tutti_status status = tutti_stream_create(place->device, &place->back, &place->error);
    for (int i = 0; i < 2 && status == TUTTI_OK; i++) {
        status = tutti_buffer_create(place->device, TUTTI_MEMORY_PINNED, TUTTI_F32, count, &place->pinned[i],
                                     &place->error);
        place->host[i] = tutti_alloc(place->world, count * sizeof(float));
        if (place->host[i] == NULL && status == TUTTI_OK) status = TUTTI_ERR_MEMORY;
        if (status == TUTTI_OK) memset(place->host[i], 0, count * sizeof(float));
    }
    return status;
}

static void close_staged(struct place *place)
{
    for (int i = 0; i < 2; i++) {
        tutti_buffer_free(place->pinned[i], NULL);
        tutti_free(place->world, place->host[i]);
    }
    tutti_stream_free(place->back, NULL);
}

/* Every rank copies there and back, on a stream each. */
static double time_both_ways(struct place *place, size_t count)
{
    tutti_status status = TUTTI_OK;
    tutti_barrier(place->world);
    double begin = now_us();
    for (int i = 0; i < STAGED && status == TUTTI_OK; i++) {
        status = tutti_buffer_copy(place->pinned[0], 0, place->in, 0, count, place->stream, &place->error);
        if (status == TUTTI_OK)
            status = tutti_buffer_copy(place->out, 0, place->pinned[1], 0, count, place->back, &place->error);
    }
    if (status == TUTTI_OK) status = tutti_stream_sync(place->stream, WAIT_MS, &place->error);
    if (status == TUTTI_OK) status = tutti_stream_sync(place->back, WAIT_MS, &place->error);
    tutti_barrier(place->world);
    return status == TUTTI_OK ? (now_us() - begin) / STAGED : -1;
}

static double time_host(struct place *place, size_t count)
{
    tutti_barrier(place->world);
    double begin = now_us();
    for (int i = 0; i < STAGED; i++)
        if (tutti_all_reduce(place->world, place->host[0], place->host[1], count, TUTTI_F32, TUTTI_SUM) != TUTTI_OK)
            return -1;
    tutti_barrier(place->world);
    return (now_us() - begin) / STAGED;
}

static int measure_staged(struct place *place, size_t bytes)
{
    size_t count = bytes / sizeof(float);
    double op = 0, copies = 0, host = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double a = time_ops(place, count, STAGED, WAITED), b = time_both_ways(place, count),
               c = time_host(place, count);
        if (a < 0 || c < 0) return tutti_explain(place->world, stderr);
        if (b < 0) return fail(place, "copy");
        op = least(op, a);
        copies = least(copies, b);
        host = least(host, c);
    }
    if (tutti_rank(place->world) == 0)
        printf("%11zu  %9.2f  %10.2f  %9.2f  %7.0f%%\n", bytes, op, copies, host,
               100 * (copies > host ? copies : host) / op);
    fflush(stdout);
    return 0;
}

static int run_staged(struct place *place, size_t most)
{
    int failed = 0;
    if (open_staged(place, most / sizeof(float)) != TUTTI_OK) return fail(place, "memory");
    if (tutti_rank(place->world) == 0)
        printf(
            "# %d ranks, staged; best of %d rounds of %d\n#     bytes  us, staged  us, copies   us, host   of slower\n",
            tutti_size(place->world), ROUNDS, STAGED);
    for (size_t bytes = 1 << 20; bytes <= most && failed == 0; bytes *= 4) failed = measure_staged(place, bytes);
    close_staged(place);
    return failed;
}

static int run(struct place *place, bool slow)
{
    static const size_t sizes[] = {8, 1024, 65536, 1 << 20, 8 << 20, 64 << 20};
    size_t last = sizeof sizes / sizeof *sizes - 1;
    int failed = 0, times = slow ? SLOW : QUEUED;
    if (tutti_rank(place->world) == 0)
        printf("# %d ranks, %s; best of %d rounds of %d\n#     bytes  us, waited  us, started  us, queued   us, copy  "
               "waited  started  queued\n",
               tutti_size(place->world), tutti_device_name(place->device), ROUNDS, times);
    for (size_t i = 0; i <= last && failed == 0; i += slow ? last : 1) failed = measure(place, sizes[i], times);
    return failed;
}

static int work(tutti_comm *world, int argc, char **argv)
{
    enum { MOST = 64 << 20 };
    struct place place = {.world = world};
    bool staged = argc > 2 && strcmp(argv[2], "staged") == 0, slow = argc > 2 && strcmp(argv[2], "slow") == 0;
    if (open_place(&place, argc > 1 ? argv[1] : "host", MOST / sizeof(float)) != TUTTI_OK)
        return fail(&place, "device");
    int failed = staged ? run_staged(&place, MOST) : run(&place, slow);
    tutti_barrier(world);
    tutti_buffer_free(place.in, NULL);
    tutti_buffer_free(place.out, NULL);
    tutti_stream_free(place.stream, NULL);
    tutti_device_free(place.device, NULL);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[2], "staged") == 0) setenv("TUTTI_DEVICE_PROVIDER", "staged", 1);
    return tutti_main(work, argc, argv);
}
