/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120
 *
 * Memory that the program has taken from CUDA itself, in calls on streams: of cudaMalloc, which processes reach of each other,
 * and managed; streams that are captured into a graph; and calls on no stream. Skipped unless told the device: tests/cli/cuda_memory.sh runs it
 * with a driver that is made of threads, `make test-gpu` with a real one.
 *
 *     test_stream_memory cuda:0
 *     test_stream_memory cuda      ranks on GPUs of their own, of which the first reaches all others
 */
#include "stream_place.h"

#include "device/cuda_device.h"
#include "device/library.h"
#include "device/open.h"
#include <dlfcn.h>

enum { COUNT = 20000, LARGE = 300000, ROUNDS = 100, OFFSET = 16 };

static bool over_tcp;

static void *symbol(const char *name)
{
    void *handle = NULL;
    char path[TTI_LIBRARY_PATH];
    tutti_error error;
    CHECK_THAT(tti_library_open(&tti_library_cuda, &handle, path, &error) == TUTTI_OK, "%s", error.text);
    return handle == NULL ? NULL : dlsym(handle, name);
}

static struct tti_cuda_device *inside_of(struct place *place)
{
    struct tti_device *device = tti_device_take(place->device, &place->error);
    tti_object_give(&device->object); /* the handle refers to it */
    return tti_cuda_of(device);
}

/* ---- What a program does with CUDA ----------------------------------------------------------------------------------- */

static int32_t *take(struct place *place, size_t count, bool managed)
{
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))symbol("cuMemAlloc_v2");
    int (*alloc_managed)(uint64_t *, size_t,
                         unsigned) = (int (*)(uint64_t *, size_t, unsigned))symbol("cuMemAllocManaged");
    uint64_t at = 0;
    CHECK(tti_cuda_enter(inside_of(place)) == TTI_CUDA_OK);
    int code = managed ? alloc_managed(&at, count * sizeof(int32_t), 1) : alloc(&at, count * sizeof(int32_t));
    CHECK_THAT(code == TTI_CUDA_OK && at != 0, "%d", code);
    tti_cuda_leave(inside_of(place));
    return (int32_t *)(uintptr_t)at;
}

static void give(struct place *place, const int32_t *at)
{
    int (*release)(uint64_t) = (int (*)(uint64_t))symbol("cuMemFree_v2");
    CHECK(tti_cuda_enter(inside_of(place)) == TTI_CUDA_OK);
    CHECK(release((uint64_t)(uintptr_t)at) == TTI_CUDA_OK);
    tti_cuda_leave(inside_of(place));
}

static void copy(struct place *place, int32_t *to, const int32_t *from, size_t count)
{
    struct tti_stream *stream = tti_stream_take(place->stream, &place->error);
    GOOD(place, tti_stream_copy(stream, to, from, count * sizeof *to, &place->error));
    tti_object_give(&stream->object);
}

/* As a kernel of the program's own would write it. */
static void write_all(struct place *place, int32_t *at, size_t count, int32_t value)
{
    fill(place, place->in, count, value);
    copy(place, at, place->x, count);
}

static size_t wrong_at(struct place *place, const int32_t *at, size_t count, int32_t value)
{
    copy(place, place->y, at, count);
    return count_wrong(place, place->out, count, value);
}

/* ---- Collectives and messages ---------------------------------------------------------------------------------------- */

static int32_t sum_of(const tutti_comm *comm, int32_t each)
{
    int size = tutti_size(comm);
    return size * each + size * (size - 1) / 2;
}

static void reduce_once(tutti_comm *comm, struct place *place, bool managed, int32_t each)
{
    int32_t *x = take(place, COUNT + OFFSET, managed), *y = take(place, COUNT, managed);
    write_all(place, x + OFFSET, COUNT, each + tutti_rank(comm));
    tutti_status status = tutti_all_reduce(tutti_on(comm, place->stream), x + OFFSET, y, COUNT, TUTTI_I32, TUTTI_SUM);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_OK, "%s", error == NULL ? "" : error->text);
    CHECK_THAT(wrong_at(place, y, COUNT, sum_of(comm, each)) == 0, "each %d", each);
    give(place, x);
    give(place, y);
}

static void exchange_once(tutti_comm *comm, struct place *place, bool managed, int32_t each)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), before = (rank + size - 1) % size;
    int32_t *x = take(place, LARGE + OFFSET, managed), *y = take(place, LARGE, managed);
    write_all(place, x + OFFSET, LARGE, each + rank);
    tutti_status status = tutti_sendrecv(tutti_on(comm, place->stream), x + OFFSET, LARGE, (rank + 1) % size, 0, y,
                                         LARGE, before, 0, TUTTI_I32, NULL);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_OK, "%s", error == NULL ? "" : error->text);
    CHECK_THAT(wrong_at(place, y, LARGE, each + before) == 0, "each %d", each);
    CHECK(tutti_barrier(comm) == TUTTI_OK); /* the other may still read x */
    give(place, x);
    give(place, y);
}

/* More allocations than stay mapped, each with other contents, at addresses that come again; none is staged. */
static void taken_by_the_program(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_stats stats = {.struct_size = sizeof stats};
    (void)self;
    open_place_for(comm, &place, TUTTI_MEMORY_SHARED, LARGE);
    for (int round = 0; round < ROUNDS; round++) reduce_once(comm, &place, false, round * 10);
    CHECK(tutti_comm_stats(comm, &stats) == TUTTI_OK);
    if (!over_tcp)
        CHECK_THAT(stats.on_cuda == ROUNDS && stats.on_staging == 0, "%llu on cuda, %llu staged",
                   (unsigned long long)stats.on_cuda, (unsigned long long)stats.on_staging);
    for (int round = 0; round < 10; round++) exchange_once(comm, &place, false, round * 10);
    close_place(&place);
}

static void managed(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place_for(comm, &place, TUTTI_MEMORY_SHARED, LARGE);
    for (int round = 0; round < 5; round++) reduce_once(comm, &place, true, round * 10);
    for (int round = 0; round < 3; round++) exchange_once(comm, &place, true, round * 10);
    close_place(&place);
}

/* ---- What is refused ------------------------------------------------------------------------------------------------- */

static void refused(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place_for(comm, &place, TUTTI_MEMORY_SHARED, COUNT);
    int32_t *x = take(&place, COUNT, false);
    tutti_stream *on = place.stream;
    refused_with(comm, tutti_all_reduce(tutti_on(comm, on), x + 1, place.y, COUNT, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_COUNT, "past the end of its memory of 80000 bytes by 4 bytes");
    fault_meet(comm); /* nobody takes memory any more, which might lie there */
    give(&place, x);
    refused_with(comm, tutti_all_reduce(tutti_on(comm, on), x, place.y, COUNT, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_ARGUMENT, "`in` is host memory");
    refused_with(comm, tutti_send(tutti_on(comm, on), x, COUNT, TUTTI_I32, 0, 0), TUTTI_ERR_ARGUMENT,
                 "`in` is host memory");
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    close_place(&place);
}

/* Memory that only a GPU can read, in calls that are on no stream: refused in every form, with no trace left. */
static void without_stream(tutti_comm *comm, int32_t *x, const char *words)
{
    enum { N = 8 };
    int rank = tutti_rank(comm), size = tutti_size(comm), next = (rank + 1) % size;
    int32_t *host = tutti_alloc(comm, 64 * sizeof *host);
    size_t counts[4] = {N, N, N, N};
    tutti_piece piece = {.in = host, .out = x, .count = N};
    tutti_op op;
    refused_with(comm, tutti_all_reduce(comm, x, host, 1, TUTTI_I32, TUTTI_SUM), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_all_reduce(comm, host, x, N, TUTTI_I32, TUTTI_SUM), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_all_reduce_start(comm, x, x, N, TUTTI_I32, TUTTI_SUM, &op), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_all_gather_v(comm, x, host, counts, NULL, TUTTI_I32), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_all_reduce_many(comm, &piece, 1, TUTTI_I32, TUTTI_SUM), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_send(comm, x, N, TUTTI_I32, next, 0), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_recv_start(comm, x, N, TUTTI_I32, next, 0, NULL, &op), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_sendrecv(comm, host, N, next, 0, x, N, next, 0, TUTTI_I32, NULL), TUTTI_ERR_ARGUMENT,
                 words);
    refused_with(comm, tutti_all_reduce_start(tutti_prepared(comm), x, host, N, TUTTI_I32, TUTTI_SUM, &op),
                 TUTTI_ERR_ARGUMENT, words);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    refused_with(comm, tutti_all_reduce(comm, x, host, N, TUTTI_I32, TUTTI_SUM), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_group_end(comm), TUTTI_ERR_ARGUMENT, words);
    CHECK(tutti_all_reduce(comm, x, x, 0, TUTTI_I32, TUTTI_SUM) == TUTTI_OK); /* nothing of it is read */
    tutti_free(comm, host);
}

static void allowed(tutti_comm *comm, int32_t *x)
{
    int size = tutti_size(comm);
    for (int i = 0; i < 9; i++) x[i] = i;
    CHECK(tutti_all_reduce(comm, x, x, 9, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    for (int i = 0; i < 9; i++) CHECK(x[i] == i * size);
}

static void on_no_stream(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place_for(comm, &place, TUTTI_MEMORY_SHARED, COUNT);
    char words[80];
    snprintf(words, sizeof words, "is memory of %s: put the call on a stream with tutti_on",
             tutti_device_name(place.device));
    tutti_buffer *local = make_buffer(&place, TUTTI_MEMORY_LOCAL, COUNT),
                 *pinned = make_buffer(&place, TUTTI_MEMORY_PINNED, COUNT);
    int32_t *taken = take(&place, COUNT, false), *everywhere = take(&place, COUNT, true);
    without_stream(comm, place.x, words);
    without_stream(comm, tutti_buffer_at(local, 5, COUNT - 5), words);
    without_stream(comm, taken + 3, words);
    allowed(comm, tutti_buffer_at(pinned, 0, COUNT));
    allowed(comm, everywhere);
    give(&place, taken);
    give(&place, everywhere);
    CHECK(tutti_buffer_free(local, NULL) == TUTTI_OK && tutti_buffer_free(pinned, NULL) == TUTTI_OK);
    fill(&place, place.in, COUNT, 3);
    CHECK(tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    refused_with(comm, tutti_all_reduce(comm, place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM), TUTTI_ERR_ARGUMENT,
                 words);
    CHECK(count_wrong(&place, place.out, COUNT, 3 * tutti_size(comm)) == 0);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    close_place(&place);
}

/* Before anything is recorded: the capture is good afterwards, and so is the stream. */
static void captured(tutti_comm *comm, struct fault_rank *self)
{
    static const char words[] = "being captured into a graph";
    int (*begin)(void *, int) = (int (*)(void *, int))symbol("cuStreamBeginCapture_v2");
    int (*end)(void *, void **) = (int (*)(void *, void **))symbol("cuStreamEndCapture");
    int rank = tutti_rank(comm), size = tutti_size(comm), next = (rank + 1) % size, before = (rank + size - 1) % size;
    struct place place;
    tutti_op op, ready;
    void *graph = NULL;
    (void)self;
    open_place_for(comm, &place, TUTTI_MEMORY_SHARED, LARGE);
    tutti_stream *on = place.stream;
    void *native = tutti_stream_native(on);
    CHECK(tutti_send_start(tutti_prepared(tutti_on(comm, on)), place.x, 9, TUTTI_I32, next, 1, &ready) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(begin(native, 2) == TTI_CUDA_OK); /* relaxed: other calls of this thread are not our matter */
    refused_with(comm, tutti_send(tutti_on(comm, on), place.x, 9, TUTTI_I32, next, 0), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_send(tutti_on(comm, on), place.x, LARGE, TUTTI_I32, next, 0), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_recv(tutti_on(comm, on), place.y, 9, TUTTI_I32, before, 0, NULL), TUTTI_ERR_ARGUMENT,
                 words);
    refused_with(comm, tutti_recv_start(tutti_on(comm, on), place.y, 9, TUTTI_I32, before, 0, NULL, &op),
                 TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_sendrecv(tutti_on(comm, on), place.x, 9, next, 0, place.y, 9, before, 0, TUTTI_I32, NULL),
                 TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_start(ready), TUTTI_ERR_ARGUMENT, words);
    refused_with(comm, tutti_all_reduce(tutti_on(comm, on), place.x, place.y, 9, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_ARGUMENT, words);
    CHECK(end(native, &graph) == TTI_CUDA_OK);
    CHECK(tutti_drop(ready) == TUTTI_OK && tutti_barrier(comm) == TUTTI_OK);
    fill(&place, place.in, LARGE, 70 + rank);
    CHECK(tutti_sendrecv(tutti_on(comm, on), place.x, LARGE, next, 0, place.y, LARGE, before, 0, TUTTI_I32, NULL) ==
          TUTTI_OK);
    CHECK(count_wrong(&place, place.out, LARGE, 70 + before) == 0);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    close_place(&place);
}

static void run_all(bool processes)
{
    for (int size = 1; size <= 3; size++) {
        run_body("memory of the program", taken_by_the_program, size, processes, over_tcp);
        run_body("managed memory", managed, size, processes, over_tcp);
    }
    run_body("refused", refused, 2, processes, over_tcp);
    run_body("on no stream", on_no_stream, 2, processes, over_tcp);
    run_body("captured", captured, 2, processes, over_tcp);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        printf("skipped: no device was told\n");
        return 77;
    }
    device_name = argv[1];
    fault_begin(110);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
