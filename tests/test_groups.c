/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=180 labels=asan,tsan
 *
 * Groups of collectives and messages, of one or several comms: ranks that make their calls in different orders of comms, every
 * kind of call, handles, callbacks, and how groups fail: refused, misused, different on other ranks, cancelled, late, with a
 * rank that dies, left open.
 */
#include "fault.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/device.h>
#include <unistd.h>

enum { COMMS = 3, SMALL = 3, LARGE = 1 << 16, KINDS = 9, ROUNDS = 4 };

static bool over_tcp;

static bool says(const tutti_comm *comm, const char *words)
{
    const tutti_error *error = tutti_comm_error(comm);
    return CHECK_THAT(error != NULL && strstr(error->text, words) != NULL, "\"%s\" is not in \"%s\"", words,
                      error == NULL ? "" : error->text);
}

/* ---- One comm's calls ---------------------------------------------------------------------------------------------- */

/* What one rank calls on one comm, and what comes of it. */
struct place {
    tutti_comm *comm;
    int rank, size;
    size_t count;
    int value; /* of the comm's inputs, on rank 0 */
    float *in, *out[KINDS];
    size_t counts[FAULT_RANKS], received;
    tutti_message message;
    tutti_piece pieces[2];
};

static float input(const struct place *place, int rank)
{
    return (float)(place->value + rank);
}

static void make_place(struct place *place, tutti_comm *comm, size_t count, int value)
{
    *place = (struct place){.comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm), .count = count};
    place->value = value;
    size_t bytes = count * (size_t)place->size * sizeof(float);
    place->in = tutti_alloc(comm, bytes);
    for (size_t i = 0; i < count * (size_t)place->size; i++) place->in[i] = input(place, place->rank);
    for (int i = 0; i < KINDS; i++) {
        place->out[i] = i % 2 == 0 ? malloc(bytes) : tutti_alloc(comm, bytes);
        for (size_t k = 0; k < count * (size_t)place->size; k++) place->out[i][k] = -1;
    }
}

static void free_place(struct place *place)
{
    for (int i = 0; i < KINDS; i++) {
        if (i % 2 == 0)
            free(place->out[i]);
        else
            CHECK(tutti_free(place->comm, place->out[i]) == TUTTI_OK);
    }
    CHECK(tutti_free(place->comm, place->in) == TUTTI_OK);
}

/* Messages stand between collectives; lists may change as soon as a call has returned. */
static void call_all(struct place *place)
{
    tutti_comm *comm = place->comm;
    float *in = place->in, **out = place->out;
    int size = place->size, next = (place->rank + 1) % size, before = (place->rank + size - 1) % size;
    size_t n = place->count, *counts = place->counts;
    CHECK(tutti_recv_message(comm, out[0], n, TUTTI_F32, before, 7, &place->message) == TUTTI_OK);
    CHECK(tutti_all_reduce(comm, in, out[1], n, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_all_gather(comm, in, out[2], n, TUTTI_F32) == TUTTI_OK);
    for (int i = 0; i < size; i++) counts[i] = n;
    CHECK(tutti_all_gather_v(comm, in, out[3], counts, NULL, TUTTI_F32) == TUTTI_OK);
    memset(counts, 0xff, sizeof place->counts);
    place->pieces[0] = (tutti_piece){in, out[4], n};
    place->pieces[1] = (tutti_piece){in, out[5], 1};
    CHECK(tutti_all_reduce_many(comm, place->pieces, 2, TUTTI_F32, TUTTI_MAX) == TUTTI_OK);
    memset(place->pieces, 0, sizeof place->pieces);
    CHECK(tutti_send(comm, in, n, TUTTI_F32, next, 7) == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_broadcast(comm, in, out[6], n, TUTTI_F32, size - 1) == TUTTI_OK);
    CHECK(tutti_scan(comm, in, out[7], n, TUTTI_F32, TUTTI_MIN) == TUTTI_OK);
    CHECK(tutti_sendrecv(comm, in, n, next, 8, out[8], n, before, 8, TUTTI_F32, &place->received) == TUTTI_OK);
    for (int i = 0; i < KINDS; i++) CHECK(out[i][0] == -1); /* nothing of it has been done */
}

static bool all_are(const float *data, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        if (data[i] != value) return false;
    return true;
}

static void check_all(const struct place *place)
{
    int size = place->size, before = (place->rank + size - 1) % size;
    float sum = 0, first = input(place, 0), last = input(place, size - 1);
    size_t n = place->count;
    for (int rank = 0; rank < size; rank++) {
        sum += input(place, rank);
        CHECK(all_are(place->out[2] + n * (size_t)rank, n, input(place, rank)));
        CHECK(all_are(place->out[3] + n * (size_t)rank, n, input(place, rank)));
    }
    CHECK(all_are(place->out[0], n, input(place, before)) && place->message.source == before);
    CHECK(place->message.count == n && place->message.tag == 7 && place->received == n);
    CHECK(all_are(place->out[1], n, sum));
    CHECK(all_are(place->out[4], n, last) && place->out[5][0] == last);
    CHECK(all_are(place->out[6], n, last) && all_are(place->out[7], n, first));
    CHECK(all_are(place->out[8], n, input(place, before)));
}

/* ---- Every order of comms -------------------------------------------------------------------------------------------- */

struct told {
    _Atomic int times, status;
};

static void note(void *context, tutti_status status, const tutti_error *error)
{
    struct told *told = context;
    CHECK((status == TUTTI_OK) == (error == NULL));
    atomic_store(&told->status, status);
    atomic_fetch_add(&told->times, 1);
}

static bool await_told(const struct told *told)
{
    int64_t until = fault_now_ns() + FAULT_SLACK_MS * INT64_C(1000000);
    while (atomic_load(&told->times) == 0 && fault_now_ns() < until) fault_sleep_ms(1);
    return atomic_load(&told->times) == 1;
}

/* How a group ends: blocking, waited for, tested, with a callback alone, dropped with one. */
enum { BLOCKS, WAITS, TESTS, WAITS_ANY, CALLED, DROPPED, WAYS };

static void end_group(tutti_comm *comm, int way)
{
    struct told told = {0};
    tutti_op op;
    size_t index = 1;
    if (way == BLOCKS) {
        CHECK_THAT(tutti_group_end(comm) == TUTTI_OK, "%s",
                   tutti_comm_error(comm) == NULL ? "" : tutti_comm_error(comm)->text);
        return;
    }
    CHECK(tutti_group_end_start(comm, &op) == TUTTI_OK);
    CHECK(tutti_when_ended(op, note, &told) == TUTTI_OK);
    if (way == WAITS) CHECK(tutti_wait(op) == TUTTI_OK);
    while (way == TESTS) {
        tutti_status status = tutti_test(op);
        if (status == TUTTI_IN_PROGRESS) continue;
        CHECK(status == TUTTI_OK);
        break;
    }
    if (way == WAITS_ANY) CHECK(tutti_wait_any(&op, 1, -1, &index) == TUTTI_OK && index == 0);
    if (way == DROPPED) CHECK(tutti_drop(op) == TUTTI_OK);
    CHECK(await_told(&told) && told.status == TUTTI_OK);
    if (way == CALLED) CHECK(tutti_wait(op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_ERR_HANDLE);
}

/* Each rank has an order of its own, in which most would wait for each other for ever if calls ran one by one. */
static void one_round(tutti_comm *comms[COMMS], size_t count, int round, int way)
{
    struct place places[COMMS], *order[COMMS];
    int rank = tutti_rank(comms[0]);
    for (int i = 0; i < COMMS; i++) {
        int at = (i + rank + round) % COMMS;
        make_place(&places[i], comms[i], count, 10 * i + round);
        order[i] = &places[rank % 2 == 0 ? at : COMMS - 1 - at];
    }
    CHECK(tutti_group_begin(order[0]->comm) == TUTTI_OK);
    for (int i = 1; i < COMMS; i++) CHECK(tutti_group_add(order[0]->comm, order[i]->comm) == TUTTI_OK);
    for (int i = 0; i < COMMS; i++) call_all(order[i]);
    end_group(order[0]->comm, way);
    for (int i = 0; i < COMMS; i++) check_all(&places[i]);
    for (int i = 0; i < COMMS; i++) free_place(&places[i]);
}

static void any_order(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *comms[COMMS] = {comm};
    (void)self;
    for (int i = 1; i < COMMS; i++) CHECK(tutti_comm_duplicate(comm, &comms[i]) == TUTTI_OK);
    for (int round = 0; round < (SANITIZED ? 1 : ROUNDS); round++)
        for (int way = 0; way < WAYS; way++) one_round(comms, way % 2 == 0 ? SMALL : LARGE, round, way);
    for (int i = 0; i < COMMS; i++) CHECK(tutti_barrier(comms[i]) == TUTTI_OK); /* in no group any more */
    for (int i = 1; i < COMMS; i++) CHECK(tutti_comm_free(comms[i]) == TUTTI_OK);
}

/* Some calls on one comm only, and none at all. */
static void one_comm(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    float x = 1, y = 0;
    tutti_stats stats = {.struct_size = sizeof stats};
    (void)self;
    for (int way = 0; way < WAYS; way++) {
        make_place(&place, comm, SMALL, way);
        CHECK(tutti_group_begin(comm) == TUTTI_OK);
        call_all(&place);
        end_group(comm, way);
        check_all(&place);
        free_place(&place);
        CHECK(tutti_group_begin(comm) == TUTTI_OK);
        end_group(comm, way);
    }
    CHECK(tutti_comm_stats(comm, &stats) == TUTTI_OK && stats.operations == 7 * WAYS &&
          stats.started == 7 * (WAYS - 1));
    CHECK(tutti_all_reduce(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK && y == (float)tutti_size(comm));
}

/* The second comm is freed before the group is waited for, and the first one before its end. */
static void freed_early(tutti_comm *comm, struct fault_rank *self)
{
    struct told told = {0};
    tutti_comm *one, *other = NULL;
    tutti_op op;
    float x = 1, y[2] = {0};
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &one) == TUTTI_OK && tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    CHECK(tutti_group_begin(one) == TUTTI_OK && tutti_group_add(one, other) == TUTTI_OK);
    CHECK(tutti_all_reduce(other, &x, &y[0], 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_all_reduce(one, &x, &y[1], 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_group_end_start(one, &op) == TUTTI_OK && tutti_comm_free(other) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_OK && y[0] == y[1] && y[0] == (float)tutti_size(comm));
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    y[0] = 0;
    CHECK(tutti_group_begin(one) == TUTTI_OK && tutti_group_add(one, other) == TUTTI_OK);
    CHECK(tutti_all_reduce(other, &x, &y[0], 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_group_end_start(one, &op) == TUTTI_OK && tutti_when_ended(op, note, &told) == TUTTI_OK);
    CHECK(tutti_comm_free(one) == TUTTI_OK && told.times == 1 && y[0] == (float)tutti_size(comm));
    CHECK(tutti_wait(op) == TUTTI_ERR_HANDLE && tutti_comm_free(other) == TUTTI_OK);
}

static void two_meshes(tutti_comm *comm, struct fault_rank *self)
{
    static const char *const names[] = {"data", "tensor"};
    static const int sizes[] = {2, 2};
    int rank = tutti_rank(comm);
    tutti_mesh *meshes[2];
    tutti_comm *comms[4];
    struct place places[4];
    (void)self;
    for (int i = 0; i < 2; i++) {
        CHECK(tutti_mesh_create(comm, names, sizes, 2, &meshes[i]) == TUTTI_OK);
        for (int k = 0; k < 2; k++) CHECK(tutti_mesh_comm(meshes[i], names[k], &comms[2 * i + k]) == TUTTI_OK);
    }
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 4; i++) make_place(&places[i], comms[i], SMALL, i);
        CHECK(tutti_group_begin(comms[round % 4]) == TUTTI_OK);
        for (int i = 1; i < 4; i++) CHECK(tutti_group_add(comms[round % 4], comms[(round + i) % 4]) == TUTTI_OK);
        for (int i = 0; i < 4; i++) call_all(&places[(i * (rank % 2 == 0 ? 1 : 3) + rank + round) % 4]);
        end_group(comms[round % 4], round % WAYS);
        for (int i = 0; i < 4; i++) check_all(&places[i]);
        for (int i = 0; i < 4; i++) free_place(&places[i]);
    }
    for (int i = 0; i < 2; i++) tutti_mesh_free(meshes[i]);
}

/* ---- Refused ----------------------------------------------------------------------------------------------------------- */

static void begin_both(tutti_comm *one, tutti_comm *other)
{
    CHECK(tutti_group_begin(one) == TUTTI_OK && tutti_group_add(one, other) == TUTTI_OK);
}

/* The group ends with what was refused, starts nothing, and both comms are as good as before. */
static void end_refused(tutti_comm *one, tutti_comm *other, tutti_status status, const char *words)
{
    CHECK(tutti_group_end(one) == status && says(one, words));
    CHECK(tutti_barrier(other) == TUTTI_OK && tutti_barrier(one) == TUTTI_OK);
}

static tutti_comm *of_rank[FAULT_RANKS];

static void refused_adding(tutti_comm *one, tutti_comm *other)
{
    tutti_op op;
    CHECK(tutti_group_add(NULL, other) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_group_add(one, other) == TUTTI_ERR_ARGUMENT && says(one, "no group has begun on this comm"));
    begin_both(one, other);
    CHECK(tutti_group_begin(other) == TUTTI_ERR_ARGUMENT && says(other, "this comm was added to a group"));
    CHECK(tutti_group_end(other) == TUTTI_ERR_ARGUMENT && says(other, "begun on another comm"));
    CHECK(tutti_group_end_start(other, &op) == TUTTI_ERR_ARGUMENT && says(other, "begun on another comm"));
    CHECK(tutti_group_end_start(other, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_group_add(other, one) == TUTTI_ERR_ARGUMENT && says(other, "no group has begun on this comm"));
    CHECK(tutti_group_end(one) == TUTTI_OK);
    begin_both(one, other);
    CHECK(tutti_group_add(one, other) == TUTTI_ERR_ARGUMENT && says(one, "this comm is in the group already"));
    end_refused(one, other, TUTTI_ERR_ARGUMENT, "this comm is in the group already");
    CHECK(tutti_group_begin(one) == TUTTI_OK);
    CHECK(tutti_group_add(one, one) == TUTTI_ERR_ARGUMENT && says(one, "this comm is in the group already"));
    end_refused(one, other, TUTTI_ERR_ARGUMENT, "this comm is in the group already");
    CHECK(tutti_group_begin(one) == TUTTI_OK && tutti_group_add(one, NULL) == TUTTI_ERR_ARGUMENT);
    end_refused(one, other, TUTTI_ERR_ARGUMENT, "group_add: `other` is NULL");
    CHECK(tutti_group_begin(one) == TUTTI_OK && tutti_group_begin(other) == TUTTI_OK);
    CHECK(tutti_group_add(one, other) == TUTTI_ERR_ARGUMENT && says(one, "this comm is in another group"));
    CHECK(tutti_group_end(other) == TUTTI_OK);
    end_refused(one, other, TUTTI_ERR_ARGUMENT, "this comm is in another group");
}

static void refused_calls(tutti_comm *one, tutti_comm *other)
{
    float x[2] = {1, 1}, y[2] = {0};
    tutti_op op;
    tutti_comm *made;
    tutti_tuning tuning;
    begin_both(one, other);
    CHECK(tutti_all_reduce(one, x, y, 2, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_broadcast(other, x, y, 2, TUTTI_F32, 17) == TUTTI_ERR_RANK);
    CHECK(tutti_send(one, x, 2, TUTTI_F32, 18, 0) == TUTTI_ERR_RANK);
    end_refused(one, other, TUTTI_ERR_RANK,
                "call 2 of the group was refused, and nothing was done: broadcast: root 17");
    CHECK(y[0] == 0 && y[1] == 0);
    begin_both(one, other);
    CHECK(tutti_all_gather_v(other, x, y, NULL, NULL, TUTTI_F32) == TUTTI_ERR_ARGUMENT);
    end_refused(one, other, TUTTI_ERR_ARGUMENT, "call 1 of the group was refused");
    begin_both(one, other);
    CHECK(tutti_all_reduce_many(other, NULL, 3, TUTTI_F32, TUTTI_SUM) == TUTTI_ERR_ARGUMENT);
    end_refused(one, other, TUTTI_ERR_ARGUMENT, "`pieces` is NULL");
    begin_both(one, other);
    CHECK(tutti_barrier_start(other, &op) == TUTTI_ERR_ARGUMENT && op.id == 0);
    end_refused(one, other, TUTTI_ERR_ARGUMENT, "no handle of its own; use tutti_barrier");
    begin_both(one, other);
    CHECK(tutti_barrier_start(tutti_prepared(other), &op) == TUTTI_ERR_ARGUMENT);
    end_refused(one, other, TUTTI_ERR_ARGUMENT, "cannot be prepared");
    begin_both(one, other);
    CHECK(tutti_barrier(other) == TUTTI_OK);
    CHECK(tutti_group_end_start(tutti_prepared(one), &op) == TUTTI_ERR_UNSUPPORTED);
    CHECK(says(one, "only a group of messages of one comm can be prepared"));
    begin_both(one, other); /* what is no call of the group does not spoil it */
    CHECK(tutti_comm_duplicate(other, &made) == TUTTI_ERR_ARGUMENT && made == NULL && says(other, "is in a group"));
    tutti_tuning_get(other, &tuning);
    CHECK(tutti_tuning_set(other, &tuning) == TUTTI_ERR_ARGUMENT && says(other, "is in a group"));
    CHECK(tutti_all_reduce(other, x, y, 2, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_group_end(one) == TUTTI_OK && y[1] == (float)tutti_size(one));
}

static void refused_elsewhere(tutti_comm *one, tutti_comm *other)
{
    tutti_device *device;
    tutti_stream *stream;
    tutti_op prepared;
    CHECK(tutti_device_open("host", &device, NULL) == TUTTI_OK);
    CHECK(tutti_stream_create(device, &stream, NULL) == TUTTI_OK);
    CHECK(tutti_stream_free(stream, NULL) == TUTTI_OK && tutti_device_free(device, NULL) == TUTTI_OK);
    begin_both(one, other);
    CHECK(tutti_barrier(tutti_on(other, stream)) == TUTTI_ERR_STALE);
    end_refused(one, other, TUTTI_ERR_STALE, "freed (dropped)");
    CHECK(tutti_barrier_start(tutti_prepared(other), &prepared) == TUTTI_OK);
    begin_both(one, other);
    CHECK(tutti_start(prepared) == TUTTI_ERR_ARGUMENT);
    end_refused(one, other, TUTTI_ERR_ARGUMENT, "holds nothing but collectives and messages");
    CHECK(tutti_start(prepared) == TUTTI_OK && tutti_wait(prepared) == TUTTI_OK && tutti_drop(prepared) == TUTTI_OK);
}

static void misused(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *other, *extra;
    float x = 1, y = 0;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    refused_adding(comm, other);
    refused_calls(comm, other);
    refused_elsewhere(comm, other);
    of_rank[tutti_rank(comm)] = comm;
    fault_meet(comm);
    if (tutti_all_threads(comm) && tutti_size(comm) > 1) {
        int next = (tutti_rank(comm) + 1) % tutti_size(comm);
        CHECK(tutti_group_begin(other) == TUTTI_OK);
        CHECK(tutti_group_add(other, of_rank[next]) == TUTTI_ERR_ARGUMENT && says(other, "another rank's comm"));
        CHECK(tutti_group_end(other) == TUTTI_ERR_ARGUMENT);
    }
    fault_meet(comm);
    CHECK(tutti_comm_duplicate(comm, &extra) == TUTTI_OK);
    begin_both(comm, extra);
    CHECK(tutti_all_reduce(extra, &x, &y, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_comm_free(extra) == TUTTI_OK && fault_logged("added to a group which has begun and not ended"));
    end_refused(comm, other, TUTTI_ERR_ARGUMENT, "was freed before its end");
    begin_both(other, comm);
    CHECK(tutti_all_reduce(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK && y == 0);
    CHECK(tutti_comm_free(other) == TUTTI_OK && fault_logged("on which a group has begun and not ended"));
    CHECK(tutti_all_reduce(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK && y == (float)tutti_size(comm));
}

/* ---- Failing ------------------------------------------------------------------------------------------------------------- */

/* The first failure in the order of calls is told, whichever was found first; what did not fail has been done. */
static void failing(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *other, *third = NULL;
    float x = 1, sum[2] = {0}, room[4], four[4] = {1, 2, 3, 4};
    int rank = tutti_rank(comm), size = tutti_size(comm), next = (rank + 1) % size, before = (rank + size - 1) % size;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK && tutti_comm_duplicate(comm, &third) == TUTTI_OK);
    begin_both(comm, third);
    CHECK(tutti_all_reduce(comm, &x, &sum[0], 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_recv(third, room, 2, TUTTI_F32, before, 5, NULL) == TUTTI_OK);
    CHECK(tutti_send(third, four, 4, TUTTI_F32, next, 5) == TUTTI_OK);
    CHECK(tutti_recv(third, room, 2, TUTTI_F32, before, 6, NULL) == TUTTI_OK);
    CHECK(tutti_send(third, four, 2, TUTTI_F32, next, 6) == TUTTI_OK);
    CHECK(tutti_group_end(comm) == TUTTI_ERR_TRUNCATED && says(comm, "call 2 of the group, recv from rank"));
    CHECK(sum[0] == (float)size && room[1] == 2);
    CHECK(tutti_recv(third, room, 4, TUTTI_F32, before, 5, NULL) == TUTTI_OK && room[3] == 4);
    fault_meet(comm);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    CHECK(tutti_group_add(comm, other) == TUTTI_OK && tutti_group_add(comm, third) == TUTTI_OK);
    CHECK(tutti_all_reduce(comm, &x, &sum[1], 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK((rank == 0 ? tutti_barrier(third) : tutti_all_reduce(third, &x, &x, 1, TUTTI_F32, TUTTI_MIN)) == TUTTI_OK);
    CHECK((rank == 0 ? tutti_barrier(other) : tutti_broadcast(other, &x, &x, 1, TUTTI_F32, 0)) == TUTTI_OK);
    fault_meet(comm);
    CHECK(tutti_group_end(comm) == TUTTI_ERR_MISMATCH && says(comm, "call 2 of the group ("));
    CHECK(says(comm, ", on another comm): ranks differ at operation") && says(comm, "test_groups.c:"));
    CHECK(sum[1] == (float)size && tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_barrier(third) < 0 && tutti_barrier(other) < 0);
    begin_both(comm, other); /* others are made when a call finds its comm broken */
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_barrier(other) == TUTTI_ERR_BROKEN);
    CHECK(tutti_group_end(comm) == TUTTI_ERR_BROKEN && says(comm, "call 2 of the group (barrier): this comm is"));
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_comm_free(other) == TUTTI_OK && tutti_comm_free(third) == TUTTI_OK);
}

/* The comm that the group was begun on breaks before its end: what was called on another one is done by all ranks. */
static void first_breaks(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *first;
    tutti_op op;
    float x = 1, y = 0;
    CHECK(tutti_comm_duplicate(comm, &first) == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == 0) CHECK(tutti_barrier_start(first, &op) == TUTTI_OK);
    begin_both(first, comm);
    CHECK(tutti_all_reduce(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == 0) CHECK(tutti_cancel(op) == TUTTI_OK && tutti_wait(op) == TUTTI_ERR_CANCELLED);
    self->mark = 1;
    fault_await_mark(0, 1);
    CHECK(tutti_group_end(first) == TUTTI_OK && tutti_comm_error(first) == NULL && y == (float)tutti_size(comm));
    CHECK(tutti_comm_free(first) == TUTTI_OK && tutti_barrier(comm) == TUTTI_OK);
}

/* Rank 0 cancels a group in which nobody joins it: on all comms of it all ranks are told. */
static void cancelled(tutti_comm *comm, struct fault_rank *self)
{
    struct told told = {0};
    tutti_comm *comms[2];
    tutti_op op;
    float y;
    for (int i = 0; i < 2; i++) CHECK(tutti_comm_duplicate(comm, &comms[i]) == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == 0) {
        begin_both(comms[0], comms[1]);
        for (int i = 1; i >= 0; i--) CHECK(tutti_barrier(comms[i]) == TUTTI_OK);
        CHECK(tutti_recv(comms[0], &y, 1, TUTTI_F32, 1, 9, NULL) == TUTTI_OK);
        CHECK(tutti_group_end_start(comms[0], &op) == TUTTI_OK && tutti_when_ended(op, note, &told) == TUTTI_OK);
        CHECK(tutti_test(op) == TUTTI_IN_PROGRESS && tutti_wait_for(op, 1) == TUTTI_IN_PROGRESS);
        CHECK(tutti_cancel(op) == TUTTI_OK && tutti_wait(op) == TUTTI_ERR_CANCELLED);
        CHECK(says(comms[0], "call 1 of the group (barrier at ") && says(comms[0], "rank 0 cancelled barrier"));
        CHECK(await_told(&told) && told.status == TUTTI_ERR_CANCELLED && tutti_cancel(op) == TUTTI_ERR_HANDLE);
        self->mark = 1;
    } else {
        fault_await_mark(0, 1);
    }
    for (int i = 0; i < 2; i++) {
        tutti_status first = tutti_barrier(comms[i]); /* over tcp the news may come after what rank 0 did before */
        CHECK(first < 0 ? says(comms[i], "cancelled barrier") : tutti_barrier(comms[i]) < 0);
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    for (int i = 0; i < 2; i++) CHECK(tutti_comm_free(comms[i]) == TUTTI_OK);
}

/* A message to the own rank that nothing of the group receives, beside a collective. */
static void hopeless(tutti_comm *comm, struct fault_rank *self)
{
    enum { MANY = 1 << 18 }; /* not sent before it is received */
    float *x = tutti_alloc(comm, MANY * sizeof *x), y;
    (void)self;
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_send(comm, x, MANY, TUTTI_F32, tutti_rank(comm), 4) == TUTTI_OK);
    CHECK(tutti_group_end(comm) == TUTTI_ERR_ARGUMENT && says(comm, "call 2 of the group, send to rank"));
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_barrier(comm) == TUTTI_OK);
    CHECK(tutti_recv(comm, &y, 1, TUTTI_F32, tutti_rank(comm), 4, NULL) == TUTTI_OK);
    CHECK(tutti_group_end(comm) == TUTTI_ERR_ARGUMENT && says(comm, "the group has no counterpart for it"));
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_free(comm, x) == TUTTI_OK);
}

/* The deadline of the group's end is that of each call which has none of its own. */
static void late(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *other;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == 0) {
        begin_both(comm, other);
        CHECK(tutti_barrier(other) == TUTTI_OK && tutti_barrier(comm) == TUTTI_OK);
        CHECK(tutti_group_end(tutti_within(comm, 100)) == TUTTI_ERR_TIMEOUT && says(comm, "call 1 of the group ("));
    }
    fault_meet(comm);
    CHECK(tutti_comm_free(other) == TUTTI_OK);
}

/* Rank 1 dies while the others are in the group, with or without having noted its calls. */
static void peer_dies(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *other;
    float x = 1, y;
    int rank = tutti_rank(comm);
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    fault_meet(comm);
    begin_both(comm, other);
    tutti_comm *first = rank == 0 ? other : comm, *second = rank == 0 ? comm : other;
    CHECK(tutti_recv(first, &y, 1, TUTTI_F32, 1, 3, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce(first, &x, &x, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK &&
          tutti_all_reduce(second, &x, &x, 1, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    fault_meet(comm); /* calls on a comm that is known to be broken are refused */
    if (rank == 1) _exit(0);
    tutti_status status = tutti_group_end(comm);
    CHECK_THAT(status == TUTTI_ERR_PEER_LOST, "status %d: %s", status, tutti_comm_error(comm)->text);
    CHECK(says(comm, "call 1 of the group (recv from rank 1 with tag 3 at ") && says(comm, "rank 1 died"));
    CHECK(tutti_comm_free(other) == TUTTI_OK);
}

static void run_all(bool processes)
{
    for (int size = 1; size <= 4; size++) {
        fault_run_body("any order", any_order, size, processes, over_tcp);
        fault_run_body("one comm", one_comm, size, processes, over_tcp);
    }
    for (int size = 1; size <= 3; size += 2) {
        fault_run_body("freed early", freed_early, size, processes, over_tcp);
        fault_run_body("hopeless", hopeless, size, processes, over_tcp);
        fault_run_body("misused", misused, size, processes, over_tcp);
    }
    fault_run_body("two meshes", two_meshes, 4, processes, over_tcp);
    fault_run_body("failing", failing, 3, processes, over_tcp);
    fault_run_body("the first comm breaks", first_breaks, 3, processes, over_tcp);
    fault_run_body("cancelled", cancelled, 2, processes, over_tcp);
    fault_run_body("late", late, 2, processes, over_tcp);
    if (processes) fault_run_body("a peer dies", peer_dies, 3, processes, over_tcp);
}

int main(void)
{
    fault_begin(170);
    fault_catch_log();
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
