/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=240 labels=asan,tsan
 *
 * Messages on streams: between devices, and between a device and the host; all forms; in order with other work on their
 * streams; ranks that die, leave or whose device fails; what is refused. `test_stream_messages cuda:0` is the same on a GPU.
 */
#include "stream_place.h"

#include <unistd.h>

enum { COUNT = 300000 };

static bool over_tcp;

static int next_of(const tutti_comm *comm)
{
    return (tutti_rank(comm) + 1) % tutti_size(comm);
}

static int before(const tutti_comm *comm)
{
    return (tutti_rank(comm) + tutti_size(comm) - 1) % tutti_size(comm);
}

static void good(tutti_comm *comm, tutti_status status, int line)
{
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_OK, "line %d: %s: %s", line, tutti_status_name(status),
               error == NULL ? "" : error->text);
}
#define DONE(call) good(comm, (call), __LINE__)

/* ---- Results ------------------------------------------------------------------------------------------------------ */

static const size_t counts[] = {0, 1, 1023, 1024, 1025, 20000, COUNT - 1, COUNT};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Each message's data are written on the stream before it; what comes is read on the stream after it. */
static void ring(tutti_comm *comm, tutti_memory memory)
{
    struct place place;
    open_place(&place, memory, COUNT);
    for (int i = 0; i < COUNTS; i++) {
        size_t count = counts[i], got = 77;
        tutti_message message = {0};
        tutti_op ops[2];
        fill(&place, place.in, COUNT, i * 100 + tutti_rank(comm));
        fill(&place, place.out, COUNT, -1);
        tutti_comm *on = tutti_on(comm, place.stream);
        if (i % 2 == 0) {
            DONE(
                tutti_sendrecv(on, place.x, count, next_of(comm), i, place.y, COUNT, before(comm), i, TUTTI_I32, &got));
        } else {
            DONE(tutti_recv_start(on, place.y, COUNT, TUTTI_I32, before(comm), i, &message, &ops[0]));
            DONE(tutti_send_start(tutti_on(comm, place.stream), place.x, count, TUTTI_I32, next_of(comm), i, &ops[1]));
            for (int k = 0; k < 2; k++) DONE(tutti_wait(ops[k]));
            got = message.count;
        }
        CHECK_THAT(got == count, "%zu of %zu", got, count);
        CHECK_THAT(count_wrong(&place, place.out, count, i * 100 + before(comm)) == 0, "count %zu", count);
        CHECK(count == COUNT || read_one(&place, place.out, count, place.stream) == -1);
    }
    close_place(&place);
}

static void rings(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    ring(comm, TUTTI_MEMORY_SHARED);
    ring(comm, TUTTI_MEMORY_LOCAL);
}

/* The host sends to a device, and a device to the host. */
static void mixed(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    int32_t *host = malloc(COUNT * sizeof *host);
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    for (int i = 0; i < COUNTS; i++) {
        size_t count = counts[i], got = 77, wrong = 0;
        tutti_op op;
        fill(&place, place.in, COUNT, i + tutti_rank(comm));
        for (size_t k = 0; k < COUNT; k++) host[k] = -1;
        DONE(tutti_send_start(tutti_on(comm, place.stream), place.x, count, TUTTI_I32, next_of(comm), 1, &op));
        DONE(tutti_recv(comm, host, COUNT, TUTTI_I32, before(comm), 1, &got));
        DONE(tutti_wait(op));
        for (size_t k = 0; k < COUNT; k++) wrong += host[k] != (k < count ? i + before(comm) : -1);
        CHECK_THAT(got == count && wrong == 0, "%zu: %zu came, %zu wrong", count, got, wrong);
        for (size_t k = 0; k < COUNT; k++) host[k] = i * 7 + tutti_rank(comm);
        DONE(tutti_recv_start(tutti_on(comm, place.stream), place.y, COUNT, TUTTI_I32, before(comm), 2, NULL, &op));
        DONE(tutti_send(comm, host, count, TUTTI_I32, next_of(comm), 2));
        GOOD(&place, tutti_stream_wait(place.other, op, &place.error));
        CHECK(count == 0 || read_one(&place, place.out, count - 1, place.other) == i * 7 + before(comm));
        DONE(tutti_wait(op));
        CHECK_THAT(count_wrong(&place, place.out, count, i * 7 + before(comm)) == 0, "count %zu", count);
    }
    free(host);
    close_place(&place);
}

/* Random messages of random sizes on two streams, blocking, started and of the host, in one order on all ranks. */
static void random_messages(tutti_comm *comm, struct fault_rank *self)
{
    enum { MESSAGES = 60, EACH = 3000 };
    struct place place;
    uint64_t state = 17;
    tutti_op ops[2 * MESSAGES];
    int rank = tutti_rank(comm), size = tutti_size(comm), started = 0;
    size_t want[MESSAGES];
    int32_t value[MESSAGES];
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, MESSAGES * EACH);
    tutti_buffer *far = make_buffer(&place, TUTTI_MEMORY_LOCAL, MESSAGES * EACH);
    int32_t *z = tutti_buffer_at(far, 0, MESSAGES * EACH);
    fill(&place, place.out, MESSAGES * EACH, -1);
    fill(&place, far, MESSAGES * EACH, -1);
    for (int i = 0; i < MESSAGES; i++) {
        uint64_t random = fault_random(&state);
        int from = (int)(random % (uint64_t)size), to = (int)(random / 8 % (uint64_t)size);
        size_t count = random / 64 % EACH, at = (size_t)i * EACH;
        bool local = random >> 40 & 1, any = random >> 41 & 1;
        tutti_stream *stream = random >> 42 & 1 ? place.stream : place.other;
        want[i] = to == rank ? count : 0;
        value[i] = i * 10 + from;
        if (to == rank)
            DONE(tutti_recv_start(tutti_on(comm, stream), local ? z + at : place.y + at, EACH, TUTTI_I32, from,
                                  any ? TUTTI_ANY_TAG : i, NULL, &ops[started++]));
        if (from != rank) continue;
        GOOD(&place, tutti_buffer_fill(place.in, at, EACH, &value[i], stream, &place.error));
        DONE(tutti_send_start(tutti_on(comm, stream), place.x + at, count, TUTTI_I32, to, i, &ops[started++]));
    }
    CHECK(tutti_wait_all(ops, (size_t)started) == TUTTI_OK);
    int32_t *got = malloc(2 * MESSAGES * EACH * sizeof *got);
    GOOD(&place, tutti_buffer_get(place.out, 0, got, MESSAGES * EACH, place.stream, &place.error));
    GOOD(&place, tutti_buffer_get(far, 0, got + MESSAGES * EACH, MESSAGES * EACH, place.stream, &place.error));
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    size_t wrong = 0;
    for (int i = 0; i < MESSAGES; i++)
        for (size_t k = 0; k < want[i]; k++)
            wrong += got[(size_t)i * EACH + k] != value[i] && got[(size_t)(MESSAGES + i) * EACH + k] != value[i];
    CHECK_THAT(wrong == 0, "%zu elements are wrong", wrong);
    free(got);
    CHECK(tutti_buffer_free(far, NULL) == TUTTI_OK);
    close_place(&place);
}

/* All streams of the process share one queue with room for little: nothing waits for itself. */
static void crowded(tutti_comm *comm, struct fault_rank *self)
{
    tutti_device *device;
    CHECK(tutti_device_open(device_name, &device, NULL) == TUTTI_OK);
    tti_fault_share(device, 1);
    tti_fault_room(device, 3);
    fault_meet(comm);
    random_messages(comm, self);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_device_free(device, NULL) == TUTTI_OK);
}

/* ---- Matching ----------------------------------------------------------------------------------------------------- */

/* Sends match in the order of their calls, also where the first one's stream is late. */
static void in_order_of_calls(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op first, second;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, 2000);
    if (tutti_rank(comm) == 0) {
        int32_t late = 1, early = 2;
        GOOD(&place, tutti_buffer_fill(place.out, 0, 2000, &early, place.other, &place.error));
        GOOD(&place, tutti_stream_sync(place.other, LONG_MS, &place.error));
        tti_fault_delay(place.device, 100000000);
        GOOD(&place, tutti_buffer_fill(place.in, 0, 2000, &late, place.stream, &place.error));
        DONE(tutti_send_start(tutti_on(comm, place.stream), place.x, 2000, TUTTI_I32, 1, 5, &first));
        tti_fault_delay(place.device, 0);
        DONE(tutti_send_start(tutti_on(comm, place.other), place.y, 1500, TUTTI_I32, 1, 5, &second));
        DONE(tutti_wait(first));
        DONE(tutti_wait(second));
    } else {
        size_t got = 0;
        tutti_message message;
        DONE(tutti_recv(tutti_on(comm, place.stream), place.x, 2000, TUTTI_I32, 0, 5, &got));
        CHECK(got == 2000 && count_wrong(&place, place.in, 2000, 1) == 0);
        DONE(tutti_recv_message(tutti_on(comm, place.stream), place.x, 2000, TUTTI_I32, TUTTI_ANY_SOURCE, TUTTI_ANY_TAG,
                                &message));
        CHECK(message.count == 1500 && message.source == 0 && message.tag == 5 && message.type == TUTTI_I32);
        CHECK(count_wrong(&place, place.in, 1500, 2) == 0);
    }
    DONE(tutti_barrier(comm));
    close_place(&place);
}

static void looked_at(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_message message = {0};
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, 5000);
    if (tutti_rank(comm) == 0) {
        fill(&place, place.in, 5000, 3);
        DONE(tutti_send(tutti_on(comm, place.stream), place.x, 5000, TUTTI_I32, 1, 9));
        DONE(tutti_send(tutti_on(comm, place.stream), place.x, 10, TUTTI_I32, 1, 10));
    } else {
        DONE(tutti_probe(tutti_on(comm, place.stream), 0, TUTTI_ANY_TAG, &message));
        CHECK(message.count == 5000 && message.tag == 9);
        size_t got = 7;
        refused_with(comm, tutti_recv(tutti_on(comm, place.stream), place.x, 4999, TUTTI_I32, 0, 9, &got),
                     TUTTI_ERR_TRUNCATED, "has 5000 elements");
        DONE(tutti_recv(tutti_on(comm, place.stream), place.x, 5000, TUTTI_I32, 0, 9, &got));
        CHECK(got == 5000 && count_wrong(&place, place.in, 5000, 3) == 0);
        tutti_status status;
        while ((status = tutti_try_probe(tutti_on(comm, place.stream), TUTTI_ANY_SOURCE, 10, &message)) ==
               TUTTI_IN_PROGRESS) {}
        CHECK(status == TUTTI_OK && message.count == 10);
        DONE(tutti_recv(tutti_on(comm, place.stream), place.x, 10, TUTTI_I32, 0, 10, NULL));
    }
    DONE(tutti_barrier(comm));
    close_place(&place);
}

/* To the own rank, and to nobody. */
static void alone(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    int rank = tutti_rank(comm);
    size_t got = 7;
    (void)self;
    open_place(&place, TUTTI_MEMORY_LOCAL, 5000);
    fill(&place, place.in, 5000, 40 + rank);
    DONE(tutti_send(tutti_on(comm, place.stream), place.x, 8, TUTTI_I32, rank, 0));
    DONE(tutti_recv(tutti_on(comm, place.stream), place.y, 5000, TUTTI_I32, rank, 0, &got));
    CHECK(got == 8 && count_wrong(&place, place.out, 8, 40 + rank) == 0);
    DONE(tutti_sendrecv(tutti_on(comm, place.stream), place.x, 5000, rank, 1, place.y, 5000, rank, 1, TUTTI_I32, &got));
    CHECK(got == 5000 && count_wrong(&place, place.out, 5000, 40 + rank) == 0);
    refused_with(comm, tutti_send(tutti_on(comm, place.stream), place.x, 5000, TUTTI_I32, rank, 2), TUTTI_ERR_ARGUMENT,
                 "own rank");
    DONE(tutti_sendrecv(tutti_on(comm, place.stream), place.x, 5000, TUTTI_NOBODY, 1, place.y, 5000, TUTTI_NOBODY, 1,
                        TUTTI_I32, &got));
    CHECK(got == 0);
    close_place(&place);
}

/* ---- Prepared, in groups ------------------------------------------------------------------------------------------ */

static void prepared(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op ops[2];
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, 5000);
    DONE(tutti_recv_start(tutti_prepared(tutti_on(comm, place.other)), place.y, 5000, TUTTI_I32, before(comm), 0, NULL,
                          &ops[0]));
    DONE(tutti_send_start(tutti_prepared(tutti_on(comm, place.stream)), place.x, 5000, TUTTI_I32, next_of(comm), 0,
                          &ops[1]));
    for (int round = 0; round < 20; round++) {
        fill(&place, place.in, 5000, round * 10 + tutti_rank(comm));
        for (int i = 0; i < 2; i++) DONE(tutti_start(ops[i]));
        for (int i = 0; i < 2; i++) DONE(tutti_wait_for(ops[i], LONG_MS));
        CHECK(count_wrong(&place, place.out, 5000, round * 10 + before(comm)) == 0);
    }
    GOOD(&place, tutti_buffer_free(place.in, &place.error));
    place.in = NULL;
    refused_with(comm, tutti_start(ops[1]), TUTTI_ERR_STALE, "freed (dropped)");
    for (int i = 0; i < 2; i++) CHECK(tutti_drop(ops[i]) == TUTTI_OK);
    DONE(tutti_barrier(comm));
    close_place(&place);
}

/* To and from all ranks, of two comms, with a collective; ended at once and with a handle. */
static void grouped(tutti_comm *comm, struct fault_rank *self)
{
    enum { EACH = 1200 };
    struct place place;
    tutti_comm *second;
    int size = tutti_size(comm);
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &second) == TUTTI_OK);
    open_place(&place, TUTTI_MEMORY_SHARED, (size_t)EACH * FAULT_RANKS * 2);
    for (int round = 0; round < 6; round++) {
        tutti_op op;
        bool others = round % 3 != 0;
        fill(&place, place.in, (size_t)EACH * FAULT_RANKS * 2, round * 10 + tutti_rank(comm));
        fill(&place, place.out, (size_t)EACH * FAULT_RANKS * 2, -1);
        DONE(tutti_group_begin(comm));
        if (others) DONE(tutti_group_add(comm, second));
        for (int peer = 0; peer < size; peer++) {
            int32_t *x = place.x + peer * EACH, *y = place.y + peer * EACH;
            DONE(tutti_send(tutti_on(comm, place.stream), x, EACH, TUTTI_I32, peer, 0));
            DONE(tutti_recv(tutti_on(comm, place.stream), y, EACH, TUTTI_I32, peer, 0, NULL));
            if (!others) continue;
            DONE(tutti_send(tutti_on(second, place.other), x, EACH, TUTTI_I32, peer, 0));
            DONE(tutti_recv(tutti_on(second, place.stream), y + EACH * FAULT_RANKS, EACH, TUTTI_I32, peer, 0, NULL));
        }
        if (others) DONE(tutti_barrier(tutti_on(second, place.stream)));
        if (round % 2 == 0) {
            DONE(tutti_group_end(comm));
        } else {
            DONE(tutti_group_end_start(comm, &op));
            GOOD(&place, tutti_stream_wait(place.stream, op, &place.error));
            CHECK(read_one(&place, place.out, 0, place.stream) == round * 10);
            DONE(tutti_wait(op));
        }
        for (int peer = 0; peer < size; peer++) {
            size_t at = (size_t)peer * EACH + EACH - 1;
            CHECK(read_one(&place, place.out, at, place.stream) == round * 10 + peer);
            CHECK(!others || read_one(&place, place.out, at + EACH * FAULT_RANKS, place.stream) == round * 10 + peer);
        }
    }
    DONE(tutti_barrier(comm));
    CHECK(tutti_comm_free(second) == TUTTI_OK);
    close_place(&place);
}

/* ---- Time, and buffers that go ------------------------------------------------------------------------------------ */

/* A deadline counts from when the stream gets there; then it ends the wait. */
static void deadlines(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, 5000);
    tti_fault_delay(place.device, 100000000);
    for (int i = 0; i < 20; i++) fill(&place, place.in, 5000, 6); /* takes two seconds; a copy and its word 0.2 */
    DONE(tutti_sendrecv(tutti_on(tutti_within(comm, SANITIZED ? 30000 : 1900), place.stream), place.x, 5000,
                        next_of(comm), 0, place.y, 5000, before(comm), 0, TUTTI_I32, NULL));
    tti_fault_delay(place.device, 0);
    CHECK(count_wrong(&place, place.out, 5000, 6) == 0);
    fault_meet(comm);
    if (tutti_rank(comm) == 0)
        refused_with(comm,
                     tutti_recv(tutti_on(tutti_within(comm, 200), place.stream), place.y, 1, TUTTI_I32, 1, 3, NULL),
                     TUTTI_ERR_TIMEOUT, "200 ms");
    fault_meet(comm);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

static void freed_in_flight(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op ops[2];
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, 5000);
    tutti_buffer *late[2];
    fill(&place, place.in, 5000, 11 + tutti_rank(comm));
    struct held held = hold_stream(&place);
    DONE(tutti_send_start(tutti_on(comm, place.stream), place.x, 5000, TUTTI_I32, next_of(comm), 0, &ops[0]));
    DONE(tutti_recv_start(tutti_on(comm, place.stream), place.y, 5000, TUTTI_I32, before(comm), 0, NULL, &ops[1]));
    GOOD(&place, tutti_buffer_free(place.in, &place.error));
    GOOD(&place, tutti_buffer_free(place.out, &place.error));
    place.in = place.out = NULL;
    for (int i = 0; i < 2; i++) late[i] = make_buffer(&place, TUTTI_MEMORY_SHARED, 5000);
    for (int i = 0; i < 2; i++) fill(&place, late[i], 5000, -1);
    refused_with(comm, tutti_send(tutti_on(comm, place.stream), place.x, 5, TUTTI_I32, 0, 0), TUTTI_ERR_STALE,
                 "was freed (dropped)");
    let_go(&place, &held);
    for (int i = 0; i < 2; i++) DONE(tutti_wait(ops[i]));
    for (int i = 0; i < 2; i++) CHECK(count_wrong(&place, late[i], 5000, -1) == 0);
    for (int i = 0; i < 2; i++) GOOD(&place, tutti_buffer_free(late[i], &place.error));
    DONE(tutti_barrier(comm));
    close_place(&place);
}

/* ---- Going wrong --------------------------------------------------------------------------------------------------- */

static void refused(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_stream *gone;
    tutti_message message;
    tutti_op op;
    int32_t here = 1;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, 100);
    GOOD(&place, tutti_stream_create(place.device, &gone, &place.error));
    GOOD(&place, tutti_stream_free(gone, &place.error));
    tutti_stream *on = place.stream;
    refused_with(comm, tutti_send(tutti_on(comm, on), &here, 1, TUTTI_I32, 0, 0), TUTTI_ERR_ARGUMENT, "host memory");
    refused_with(comm, tutti_recv(tutti_on(comm, on), &here, 1, TUTTI_I32, 0, 0, NULL), TUTTI_ERR_ARGUMENT,
                 "host memory");
    refused_with(comm, tutti_sendrecv(tutti_on(comm, on), place.x, 1, 0, 0, &here, 1, 0, 0, TUTTI_I32, NULL),
                 TUTTI_ERR_ARGUMENT, "`out` is host memory");
    refused_with(comm, tutti_send_start(tutti_on(comm, on), place.x, 101, TUTTI_I32, 0, 0, &op), TUTTI_ERR_COUNT,
                 "past the end");
    refused_with(comm, tutti_send_start(tutti_prepared(tutti_on(comm, on)), &here, 1, TUTTI_I32, 0, 0, &op),
                 TUTTI_ERR_ARGUMENT, "host memory");
    refused_with(comm, tutti_recv(tutti_on(comm, gone), place.x, 1, TUTTI_I32, 0, 0, NULL), TUTTI_ERR_STALE, "");
    refused_with(comm, tutti_probe(tutti_on(comm, gone), 0, 0, &message), TUTTI_ERR_STALE, "");
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    CHECK(tutti_send(tutti_on(comm, on), place.x, 1, TUTTI_I32, 0, 0) == TUTTI_OK);
    refused_with(comm, tutti_send(tutti_on(comm, on), &here, 1, TUTTI_I32, 0, 0), TUTTI_ERR_ARGUMENT, "host memory");
    refused_with(comm, tutti_group_end(comm), TUTTI_ERR_ARGUMENT, "call 2 of the group was refused");
    if (strcmp(device_name, "host") == 0) {
        tutti_device *other;
        tutti_buffer *far;
        CHECK(tutti_device_open("host:1", &other, NULL) == TUTTI_OK);
        CHECK(tutti_buffer_create(other, TUTTI_MEMORY_LOCAL, TUTTI_I32, 9, &far, NULL) == TUTTI_OK);
        refused_with(comm, tutti_send(tutti_on(comm, on), tutti_buffer_at(far, 0, 9), 9, TUTTI_I32, 0, 0),
                     TUTTI_ERR_ARGUMENT, "memory of host:1");
        CHECK(tutti_buffer_free(far, NULL) == TUTTI_OK && tutti_device_free(other, NULL) == TUTTI_OK);
    }
    DONE(tutti_barrier(comm));
    close_place(&place);
}

static void dies(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    DONE(tutti_sendrecv(tutti_on(comm, place.stream), place.x, COUNT, next_of(comm), 0, place.y, COUNT, before(comm), 0,
                        TUTTI_I32, NULL));
    DONE(tutti_barrier(comm));
    if (tutti_rank(comm) == 1) _exit(0);
    tutti_status status = tutti_rank(comm) == 0
                              ? tutti_send(tutti_on(comm, place.stream), place.x, COUNT, TUTTI_I32, 1, 1)
                              : tutti_recv(tutti_on(comm, place.stream), place.y, COUNT, TUTTI_I32, 1, 1, NULL);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_PEER_LOST && error->peer == 1, "%s", error == NULL ? "" : error->text);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

/* The rank that is waited for has left. */
static void leaves(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    DONE(tutti_barrier(comm));
    if (tutti_rank(comm) == 0)
        refused_with(comm, tutti_recv(tutti_on(comm, place.stream), place.y, COUNT, TUTTI_I32, 1, 1, NULL),
                     TUTTI_ERR_MISMATCH, "has left");
    close_place(&place);
}

static void fails(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    DONE(tutti_sendrecv(tutti_on(comm, place.stream), place.x, COUNT, next_of(comm), 0, place.y, COUNT, before(comm), 0,
                        TUTTI_I32, NULL));
    DONE(tutti_barrier(comm));
    tti_fault_delay(place.device, 200000000);
    fill(&place, place.in, COUNT, 1);
    DONE(tutti_sendrecv_start(tutti_on(comm, place.stream), place.x, COUNT, next_of(comm), 0, place.y, COUNT,
                              before(comm), 0, TUTTI_I32, NULL, &op));
    fault_meet(comm);
    if (tutti_rank(comm) == 1) tti_fault_poison(place.device, 700, "an illegal address", "fill");
    tutti_status status = tutti_wait_for(op, LONG_MS);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_DEVICE && error != NULL && error->peer == 1 &&
                   strstr(error->text, "illegal address") != NULL,
               "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    tti_fault_delay(place.device, 0);
    fault_meet(comm);
    if (tutti_rank(comm) == 1)
        CHECK(tutti_device_free(place.device, NULL) == TUTTI_OK);
    else
        close_place(&place);
}

/* A comm that outlives its ranks: what is between others goes on. */
static void tolerant(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_comm *made;
    tutti_message message;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, 5000);
    CHECK(tutti_comm_tolerant(comm, &made) == TUTTI_OK);
    fill(&place, place.in, 5000, 20 + tutti_rank(comm));
    for (int i = 0; i < 3; i++) {
        size_t count = i == 0 ? 5000 : i == 1 ? 0 : 3;
        CHECK(tutti_sendrecv(tutti_on(made, place.stream), place.x, count, next_of(comm), 0, place.y, 5000,
                             before(comm), 0, TUTTI_I32, NULL) == TUTTI_OK);
        CHECK(count_wrong(&place, place.out, count, 20 + before(comm)) == 0);
    }
    CHECK(tutti_recv_message(tutti_on(tutti_within(made, 100), place.stream), place.y, 1, TUTTI_I32, before(comm), 3,
                             &message) == TUTTI_ERR_TIMEOUT);
    CHECK(tutti_sendrecv(tutti_on(made, place.stream), place.x, 5000, next_of(comm), 4, place.y, 5000, before(comm), 4,
                         TUTTI_I32, NULL) == TUTTI_OK);
    DONE(tutti_barrier(comm));
    CHECK(tutti_comm_free(made) == TUTTI_OK);
    close_place(&place);
}

static void run_all(bool processes)
{
    bool host = strcmp(device_name, "host") == 0;
    for (int size = 1; size <= 3; size++) {
        run_body("rings", rings, size, processes, over_tcp);
        run_body("mixed", mixed, size, processes, over_tcp);
        run_body("random", random_messages, size, processes, over_tcp);
        if (host) run_body("crowded", crowded, size, processes, over_tcp);
        run_body("alone", alone, size, processes, over_tcp);
        run_body("prepared", prepared, size, processes, over_tcp);
        run_body("grouped", grouped, size, processes, over_tcp);
        run_body("freed in flight", freed_in_flight, size, processes, over_tcp);
    }
    run_body("in order of calls", in_order_of_calls, 2, processes, over_tcp);
    run_body("looked at", looked_at, 2, processes, over_tcp);
    run_body("deadlines", deadlines, 2, processes, over_tcp);
    run_body("refused", refused, 2, processes, over_tcp);
    run_body("leaves", leaves, 2, processes, over_tcp);
    run_body("tolerant", tolerant, 3, processes, over_tcp);
    if (!processes) return; /* threads share their process's devices, and its end */
    run_body("dies", dies, 3, processes, over_tcp);
    if (host) run_body("a device fails", fails, 3, processes, over_tcp);
}

int main(int argc, char **argv)
{
    if (argc > 1) device_name = argv[1];
    fault_begin(230);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
