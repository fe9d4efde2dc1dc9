/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=180 labels=asan,tsan
 *
 * Collectives on streams of device `host`: enqueued ahead, in order with other work, started and waited for by streams; on
 * queues that are shared, full or slow; ranks that differ, die, leave or whose device fails; what is refused.
 */
#define TUTTI_NO_CALL_SITES
#include "device/host_fault.h"
#include "fault.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/device.h>
#include <unistd.h>

enum { COUNT = 1000, AHEAD = 64, LONG_MS = 45000 };

static bool over_tcp;

/* A rank's device, stream and two buffers. */
struct place {
    tutti_device *device;
    tutti_stream *stream;
    tutti_buffer *in, *out;
    int32_t *x, *y; /* where they lie */
    tutti_error error;
};

#define GOOD(place, call) CHECK_THAT((call) == TUTTI_OK, "%s", (place)->error.text)

static void open_place_of(struct place *place, tutti_memory memory, int count)
{
    memset(place, 0, sizeof *place);
    GOOD(place, tutti_device_open("host", &place->device, &place->error));
    GOOD(place, tutti_stream_create(place->device, &place->stream, &place->error));
    GOOD(place, tutti_buffer_create(place->device, memory, TUTTI_I32, (size_t)count, &place->in, &place->error));
    GOOD(place, tutti_buffer_create(place->device, memory, TUTTI_I32, (size_t)count, &place->out, &place->error));
    place->x = tutti_buffer_at(place->in, 0, (size_t)count);
    place->y = tutti_buffer_at(place->out, 0, (size_t)count);
    CHECK(place->x != NULL && place->y != NULL);
}

static void open_place(struct place *place, int count)
{
    open_place_of(place, TUTTI_MEMORY_SHARED, count);
}

static tutti_status sync_place(struct place *place)
{
    return tutti_stream_sync(place->stream, LONG_MS, &place->error);
}

static void close_place(struct place *place)
{
    CHECK(tutti_buffer_free(place->in, NULL) == TUTTI_OK && tutti_buffer_free(place->out, NULL) == TUTTI_OK);
    GOOD(place, tutti_stream_free(place->stream, &place->error));
    GOOD(place, tutti_device_free(place->device, &place->error));
}

static void fill(struct place *place, int32_t value)
{
    GOOD(place, tutti_buffer_fill(place->in, 0, COUNT, &value, place->stream, &place->error));
}

/* ---- Ahead ------------------------------------------------------------------------------------------------------- */

/* Each op's input is written on the stream before it, and its output read on the stream after it. */
static void run_ahead(tutti_comm *comm, struct place *place)
{
    static int32_t got[FAULT_RANKS][AHEAD];
    int rank = tutti_rank(comm), size = tutti_size(comm), wrong = 0;
    for (int i = 0; i < AHEAD; i++) {
        fill(place, i * 10 + rank);
        CHECK(tutti_all_reduce(tutti_on(comm, place->stream), place->x, place->y, COUNT, TUTTI_I32, TUTTI_SUM) ==
              TUTTI_OK);
        GOOD(place, tutti_buffer_get(place->out, COUNT - 1, &got[rank][i], 1, place->stream, &place->error));
    }
    GOOD(place, sync_place(place));
    for (int i = 0; i < AHEAD; i++) wrong += got[rank][i] != size * i * 10 + size * (size - 1) / 2;
    CHECK_THAT(wrong == 0, "%d of %d sums are wrong", wrong, AHEAD);
}

static void ahead(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place(&place, COUNT);
    run_ahead(comm, &place);
    tti_fault_delay(place.device, 200000); /* of every piece of work: hosts are far ahead */
    run_ahead(comm, &place);
    tti_fault_delay(place.device, 0);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    close_place(&place);
}

/* Streams of all thread ranks go through one queue, with room for few pieces of work. */
static void crowded(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_device *device;
    (void)self;
    CHECK(tutti_device_open("host", &device, NULL) == TUTTI_OK);
    tti_fault_share(device, 1);
    tti_fault_room(device, 3);
    fault_meet(comm);
    open_place(&place, COUNT);
    run_ahead(comm, &place);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    close_place(&place);
    CHECK(tutti_device_free(device, NULL) == TUTTI_OK);
}

/* ---- Every kind -------------------------------------------------------------------------------------------------- */

enum { KINDS = 20, EACH = 37 };

static tutti_status call(int kind, tutti_comm *comm, const int32_t *in, int32_t *out, const size_t *counts)
{
    int size = tutti_size(comm), root = size - 1;
    size_t own = counts[tutti_rank(comm)];
    tutti_piece pieces[] = {{in, out, EACH}, {in + 2 * EACH * size, out + 2 * EACH * size, 5}};
    switch (kind) {
    case 0: return tutti_barrier(comm);
    case 1: return tutti_all_reduce(comm, in, out, EACH, TUTTI_I32, TUTTI_SUM);
    case 2: return tutti_reduce(comm, in, out, EACH, TUTTI_I32, TUTTI_MAX, root);
    case 3: return tutti_broadcast(comm, in, out, EACH, TUTTI_I32, root);
    case 4: return tutti_all_gather(comm, in, out, EACH, TUTTI_I32);
    case 5: return tutti_gather(comm, in, out, EACH, TUTTI_I32, root);
    case 6: return tutti_scatter(comm, in, out, EACH, TUTTI_I32, root);
    case 7: return tutti_reduce_scatter(comm, in, out, EACH, TUTTI_I32, TUTTI_SUM);
    case 8: return tutti_all_to_all(comm, in, out, EACH, TUTTI_I32);
    case 9: return tutti_all_gather_v(comm, in, out, counts, NULL, TUTTI_I32);
    case 10: return tutti_gather_v(comm, in, own, out, counts, NULL, TUTTI_I32, root);
    case 11: return tutti_scatter_v(comm, in, counts, NULL, out, own, TUTTI_I32, root);
    case 12: return tutti_reduce_scatter_v(comm, in, out, counts, TUTTI_I32, TUTTI_SUM);
    case 13: return tutti_scan(comm, in, out, EACH, TUTTI_I32, TUTTI_SUM);
    case 14: return tutti_exscan(comm, in, out, EACH, TUTTI_I32, TUTTI_SUM);
    case 15: return tutti_all_reduce_many(comm, pieces, 2, TUTTI_I32, TUTTI_SUM);
    case 16: return tutti_broadcast_many(comm, pieces, 2, TUTTI_I32, root);
    case 17: return tutti_all_gather_many(comm, pieces, 2, TUTTI_I32);
    case 18: return tutti_reduce_scatter_many(comm, pieces, 2, TUTTI_I32, TUTTI_SUM);
    default: return tutti_all_reduce(comm, in, out, 0, TUTTI_I32, TUTTI_SUM);
    }
}

static void every_kind(tutti_comm *comm, struct fault_rank *self)
{
    enum { ALL = 4 * EACH * FAULT_RANKS };
    static int32_t want[FAULT_RANKS][ALL], given[FAULT_RANKS][ALL];
    int rank = tutti_rank(comm);
    size_t counts[FAULT_RANKS];
    struct place place;
    (void)self;
    open_place(&place, ALL);
    for (int i = 0; i < FAULT_RANKS; i++) counts[i] = (size_t)(EACH - i);
    for (int i = 0; i < ALL; i++) given[rank][i] = place.x[i] = i * 7 + rank * 1000;
    for (int kind = 0; kind < KINDS; kind++) {
        memset(want[rank], 0, sizeof want[rank]);
        memset(place.y, 0, sizeof want[rank]);
        CHECK(call(kind, comm, given[rank], want[rank], counts) == TUTTI_OK);
        tutti_status status = call(kind, tutti_on(comm, place.stream), place.x, place.y, counts);
        const tutti_error *error = tutti_comm_error(comm);
        CHECK_THAT(status == TUTTI_OK, "kind %d: %s", kind, error == NULL ? "" : error->text);
        GOOD(&place, sync_place(&place));
        CHECK_THAT(memcmp(place.y, want[rank], sizeof want[rank]) == 0, "kind %d", kind);
    }
    close_place(&place);
}

/* ---- Started ----------------------------------------------------------------------------------------------------- */

static void started(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    struct place place;
    tutti_stream *other;
    (void)self;
    open_place(&place, COUNT);
    GOOD(&place, tutti_stream_create(place.device, &other, &place.error));
    for (int round = 0; round < 20; round++) {
        tutti_op op;
        int32_t got = -1;
        fill(&place, round + rank);
        CHECK(tutti_all_reduce_start(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM,
                                     &op) == TUTTI_OK);
        if (round % 3 == 0) {
            CHECK(tutti_wait(op) == TUTTI_OK);
            got = place.y[7];
        } else { /* the stream itself, or another one, waits */
            tutti_stream *waits = round % 3 == 1 ? place.stream : other;
            GOOD(&place, tutti_stream_wait(waits, op, &place.error));
            GOOD(&place, tutti_buffer_get(place.out, 7, &got, 1, waits, &place.error));
            GOOD(&place, tutti_stream_sync(waits, LONG_MS, &place.error));
            CHECK(tutti_wait(op) == TUTTI_OK);
        }
        CHECK_THAT(got == size * round + size * (size - 1) / 2, "round %d: %d", round, got);
    }
    GOOD(&place, tutti_stream_free(other, &place.error));
    close_place(&place);
}

/* A stream waits for an op that is on none. */
static void waits_for_host(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    int32_t got = -1, value = tutti_rank(comm) == 0 ? 41 : -1;
    (void)self;
    open_place(&place, COUNT);
    CHECK(tutti_broadcast_start(comm, &value, place.y, 1, TUTTI_I32, 0, &op) == TUTTI_OK);
    GOOD(&place, tutti_stream_wait(place.stream, op, &place.error));
    GOOD(&place, tutti_buffer_get(place.out, 0, &got, 1, place.stream, &place.error));
    GOOD(&place, sync_place(&place));
    CHECK(got == 41 && tutti_wait(op) == TUTTI_OK);
    CHECK(tutti_stream_wait(place.stream, op, &place.error) == TUTTI_ERR_HANDLE);
    close_place(&place);
}

/* ---- Going wrong ------------------------------------------------------------------------------------------------- */

/* At the 40th call: all are told, ops before it are right, and the streams go on. */
static void differ(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_status status = TUTTI_OK;
    int done = 0;
    (void)self;
    open_place(&place, COUNT);
    tti_fault_delay(place.device, 100000);
    for (int i = 0; i < AHEAD && status == TUTTI_OK; i++) {
        size_t count = i == 40 && tutti_rank(comm) == 1 ? COUNT - 1 : COUNT;
        status = tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, count, TUTTI_I32, TUTTI_SUM);
        done += status == TUTTI_OK;
    }
    const tutti_error *error = tutti_comm_error(comm);
    /* 39: the other rank was told while this one was still in the call before */
    CHECK_THAT((done == 40 || done == 39) && status == TUTTI_ERR_MISMATCH && error != NULL &&
                   strstr(error->text, "999 i32, sum) on a stream") != NULL,
               "after %d: %s", done, error == NULL ? "" : error->text);
    GOOD(&place, sync_place(&place));
    close_place(&place);
}

static void one_on_none(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place(&place, COUNT);
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    tutti_status status = tutti_rank(comm) == 0 ? tutti_barrier(comm) : tutti_barrier(tutti_on(comm, place.stream));
    CHECK_THAT(status == TUTTI_ERR_MISMATCH, "%s", tutti_status_name(status));
    GOOD(&place, sync_place(&place));
    close_place(&place);
}

static void dies(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_status status = TUTTI_OK;
    (void)self;
    open_place(&place, COUNT);
    tti_fault_delay(place.device, 100000);
    for (int i = 0; i < AHEAD && status == TUTTI_OK; i++) {
        if (i == 20 && tutti_rank(comm) == 1) _exit(0);
        status = tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM);
    }
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_PEER_LOST && error->peer == 1, "%s", error == NULL ? "" : error->text);
    GOOD(&place, sync_place(&place));
    close_place(&place);
}

static void fails(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    (void)self;
    open_place(&place, COUNT);
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    GOOD(&place, sync_place(&place));
    tti_fault_delay(place.device, 200000000);
    fill(&place, 1);
    CHECK(tutti_all_reduce_start(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM, &op) ==
          TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == 1) tti_fault_poison(place.device, 700, "an illegal address", "fill");
    tutti_status status = tutti_wait_for(op, LONG_MS);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_DEVICE && error != NULL && error->peer == 1 &&
                   strstr(error->text, "illegal address") != NULL,
               "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    CHECK(tutti_barrier(comm) < 0);
    tti_fault_delay(place.device, 0);
    fault_meet(comm);
    if (tutti_rank(comm) == 1) {
        CHECK(tutti_barrier(tutti_on(comm, place.stream)) < 0);
        CHECK(tutti_device_free(place.device, NULL) == TUTTI_OK);
    } else {
        close_place(&place);
    }
}

static void leaves_early(tutti_comm *comm, struct fault_rank *self)
{
    static struct place places[FAULT_RANKS];
    struct place *place = &places[tutti_rank(comm)];
    (void)self;
    open_place_of(place, TUTTI_MEMORY_LOCAL, COUNT); /* shared memory would stay mapped */
    tti_fault_delay(place->device, 1000000);
    for (int i = 0; i < 20; i++) {
        tutti_op op;
        CHECK(tutti_barrier(tutti_on(comm, place->stream)) == TUTTI_OK);
        CHECK(tutti_barrier_start(tutti_on(comm, place->stream), &op) == TUTTI_OK && tutti_drop(op) == TUTTI_OK);
    }
    /* the world is left with all of these in flight */
}

/* ---- What is refused --------------------------------------------------------------------------------------------- */

static void refused_with(tutti_comm *comm, tutti_status status, tutti_status wanted, const char *words)
{
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == wanted && error != NULL && strstr(error->text, words) != NULL, "%s: %s",
               tutti_status_name(status), error == NULL ? "" : error->text);
}

static void refused(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_device *other;
    tutti_buffer *far;
    tutti_stream *gone;
    int32_t here = 1;
    (void)self;
    open_place(&place, COUNT);
    CHECK(tutti_device_open("host:1", &other, NULL) == TUTTI_OK);
    CHECK(tutti_buffer_create(other, TUTTI_MEMORY_LOCAL, TUTTI_I32, COUNT, &far, NULL) == TUTTI_OK);
    CHECK(tutti_stream_create(place.device, &gone, NULL) == TUTTI_OK && tutti_stream_free(gone, NULL) == TUTTI_OK);
    void *y = place.y, *x = place.x;
    refused_with(comm, tutti_all_reduce(tutti_on(comm, place.stream), &here, y, 1, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_ARGUMENT, "host memory");
    refused_with(comm,
                 tutti_all_reduce(tutti_on(comm, place.stream), tutti_buffer_at(far, 0, 1), y, 1, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_ARGUMENT, "memory of host:1");
    refused_with(comm, tutti_all_reduce(tutti_on(comm, place.stream), x, y, COUNT + 1, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_COUNT, "past the end");
    /* a device's memory is its own: how much the host has, and where, says nothing about it */
    refused_with(comm, tutti_all_reduce(tutti_on(comm, place.stream), x, x, (size_t)1 << 45, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_COUNT, "past the end of its memory");
    refused_with(comm, tutti_barrier(tutti_on(comm, gone)), TUTTI_ERR_STALE, "");
    CHECK(tutti_buffer_free(far, NULL) == TUTTI_OK && tutti_device_free(other, NULL) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK); /* not on a stream, and nothing is left behind */
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    GOOD(&place, sync_place(&place));
    close_place(&place);
}

static void run_all(bool processes)
{
    const char *provider = getenv("TUTTI_DEVICE_PROVIDER");
    if (over_tcp && provider != NULL && strcmp(provider, "cuda") == 0) return; /* needs memory that processes share */
    for (int size = 1; size <= 4; size += size == 1 ? 1 : 2) {
        fault_run_body("ahead", ahead, size, processes, over_tcp);
        fault_run_body("crowded", crowded, size, processes, over_tcp);
        fault_run_body("every kind", every_kind, size, processes, over_tcp);
        fault_run_body("started", started, size, processes, over_tcp);
        fault_run_body("waits for the host", waits_for_host, size, processes, over_tcp);
        fault_run_body("refused", refused, size, processes, over_tcp);
        fault_run_body("leaves early", leaves_early, size, processes, over_tcp);
    }
    fault_run_body("differ", differ, 3, processes, over_tcp);
    fault_run_body("one on none", one_on_none, 2, processes, over_tcp);
    if (!processes) return; /* threads share their process's devices, and its end */
    fault_run_body("dies", dies, 3, processes, over_tcp);
    fault_run_body("a device fails", fails, 3, processes, over_tcp);
}

int main(void)
{
    fault_begin(170);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
