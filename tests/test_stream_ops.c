/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=180 labels=asan,tsan
 *
 * Collectives on streams beyond the plain call: prepared and started often, in groups of one and several comms, on buffers
 * that are freed meanwhile, and what is remembered of them. `test_stream_ops cuda:0` is the same on a GPU, `test_stream_ops cuda
 * given_up` only what is given up, on a GPU for each rank.
 */
#include "stream_place.h"

#include <unistd.h>

enum { COUNT = 1000, ROUNDS = 30 };

static bool over_tcp, only_given_up;

static int32_t sum_of(const tutti_comm *comm, int32_t each)
{
    int size = tutti_size(comm);
    return size * each + size * (size - 1) / 2;
}

/* ---- Prepared ---------------------------------------------------------------------------------------------------- */

/* One op, started again and again, and waited for in turn by the host, its stream and another one. */
static void prepared(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    CHECK(tutti_all_reduce_start(tutti_prepared(tutti_on(comm, place.stream)), place.x, place.y, COUNT, TUTTI_I32,
                                 TUTTI_SUM, &op) == TUTTI_OK);
    for (int round = 0; round < ROUNDS; round++) {
        tutti_stream *waits = round % 3 == 1 ? place.stream : place.other;
        fill(&place, place.in, COUNT, round + tutti_rank(comm));
        CHECK(tutti_start(op) == TUTTI_OK);
        if (round == 5) refused_with(comm, tutti_start(op), TUTTI_ERR_HANDLE, "started already");
        if (round % 3 != 0) GOOD(&place, tutti_stream_wait(waits, op, &place.error));
        if (round % 3 == 0) CHECK(tutti_wait(op) == TUTTI_OK);
        int32_t got = read_one(&place, place.out, COUNT - 1, waits);
        CHECK_THAT(got == sum_of(comm, round), "round %d: %d", round, got);
        if (round % 3 != 0) CHECK(tutti_wait(op) == TUTTI_OK);
    }
    CHECK(tutti_drop(op) == TUTTI_OK);
    close_place(&place);
}

/* Kinds with tables of counts, with pieces, and without memory. */
static void prepared_kinds(tutti_comm *comm, struct fault_rank *self)
{
    enum { EACH = 50 };
    int rank = tutti_rank(comm), size = tutti_size(comm);
    struct place place;
    tutti_op ops[3];
    size_t counts[FAULT_RANKS];
    (void)self;
    for (int i = 0; i < FAULT_RANKS; i++) counts[i] = (size_t)(EACH - i);
    open_place(&place, TUTTI_MEMORY_SHARED, EACH * FAULT_RANKS);
    tutti_piece pieces[] = {{place.x, place.y, 3}, {place.x + 8, place.y + 8, EACH}};
    CHECK(tutti_barrier_start(tutti_prepared(tutti_on(comm, place.stream)), &ops[0]) == TUTTI_OK);
    CHECK(tutti_all_gather_v_start(tutti_prepared(tutti_on(comm, place.stream)), place.x, place.y, counts, NULL,
                                   TUTTI_I32, &ops[1]) == TUTTI_OK);
    CHECK(tutti_all_reduce_many_start(tutti_prepared(tutti_on(comm, place.stream)), pieces, 2, TUTTI_I32, TUTTI_SUM,
                                      &ops[2]) == TUTTI_OK);
    for (int round = 0; round < 5; round++) {
        fill(&place, place.in, EACH * FAULT_RANKS, round + rank);
        for (int i = 0; i < 2; i++) CHECK(tutti_start(ops[i]) == TUTTI_OK);
        for (int i = 0; i < 2; i++) CHECK(tutti_wait(ops[i]) == TUTTI_OK);
        CHECK(read_one(&place, place.out, 0, place.stream) == round);
        CHECK(size == 1 || read_one(&place, place.out, EACH, place.stream) == round + 1);
        CHECK(tutti_start(ops[2]) == TUTTI_OK && tutti_wait(ops[2]) == TUTTI_OK);
        CHECK(read_one(&place, place.out, 8 + EACH - 1, place.stream) == sum_of(comm, round));
    }
    for (int i = 0; i < 3; i++) CHECK(tutti_drop(ops[i]) == TUTTI_OK);
    close_place(&place);
}

/* ---- Asked, told, and counted --------------------------------------------------------------------------------------- */

static void note_end(void *context, tutti_status status, const tutti_error *error)
{
    (void)error;
    atomic_fetch_add((_Atomic int *)context, status == TUTTI_OK ? 1 : 100);
}

/* An op that waits for its stream has not ended; when it has, who polls sees it, and who asked for that is called once. */
static void asked(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_stats before = {.struct_size = sizeof before}, after = before;
    _Atomic int ended = 0;
    tutti_op op;
    tutti_status status = TUTTI_IN_PROGRESS;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    CHECK(tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_comm_stats(comm, &before) == TUTTI_OK);
    fill(&place, place.in, COUNT, tutti_rank(comm));
    struct held held = hold_stream(&place);
    CHECK(tutti_all_reduce_start(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM, &op) ==
          TUTTI_OK);
    CHECK(tutti_when_ended(op, note_end, (void *)&ended) == TUTTI_OK);
    for (int i = 0; i < 100; i++) CHECK(tutti_test(op) == TUTTI_IN_PROGRESS && atomic_load(&ended) == 0);
    fault_meet(comm);
    let_go(&place, &held);
    for (int64_t until = fault_now_ns() + LONG_MS * INT64_C(1000000);
         status == TUTTI_IN_PROGRESS && fault_now_ns() < until;) {
        status = tutti_test(op);
        if (status == TUTTI_IN_PROGRESS) fault_sleep_ms(1);
    }
    CHECK_THAT(status == TUTTI_OK, "%s", tutti_status_name(status));
    CHECK(read_one(&place, place.out, COUNT - 1, place.stream) == sum_of(comm, 0));
    CHECK(tutti_comm_stats(comm, &after) == TUTTI_OK);
    const char *provider = tutti_comm_provider(comm, NULL);
    uint64_t counted = strcmp(provider, "staged") == 0 ? after.on_staging - before.on_staging
                       : strcmp(provider, "cuda") == 0 ? after.on_cuda - before.on_cuda
                                                       : after.on_host - before.on_host;
    CHECK_THAT(counted == 1, "%s: %llu", provider, (unsigned long long)counted);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    for (int i = 0; i < 1000 && atomic_load(&ended) == 0; i++) fault_sleep_ms(10);
    CHECK(atomic_load(&ended) == 1);
    close_place(&place);
}

/* Collectives and messages on a stream of the caller's own, which is never destroyed here. */
static void adopted(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_stream *own = NULL;
    int rank = tutti_rank(comm), size = tutti_size(comm), next = (rank + 1) % size, last = (rank + size - 1) % size;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    GOOD(&place, tutti_stream_adopt(place.device, tutti_stream_native(place.stream), &own, &place.error));
    for (int round = 0; round < 5; round++) {
        tutti_op op;
        int32_t value = round + rank;
        GOOD(&place, tutti_buffer_fill(place.in, 0, COUNT, &value, own, &place.error));
        CHECK(tutti_all_reduce(tutti_on(comm, own), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
        CHECK(read_one(&place, place.out, COUNT - 1, own) == sum_of(comm, round));
        CHECK(tutti_all_reduce_start(tutti_on(comm, own), place.x, place.y, COUNT, TUTTI_I32, TUTTI_MAX, &op) ==
              TUTTI_OK);
        GOOD(&place, tutti_stream_wait(own, op, &place.error));
        CHECK(read_one(&place, place.out, 0, own) == round + size - 1 && tutti_wait(op) == TUTTI_OK);
        CHECK(tutti_sendrecv(tutti_on(comm, own), place.x, COUNT, next, 5, place.y, COUNT, last, 5, TUTTI_I32, NULL) ==
              TUTTI_OK);
        CHECK(read_one(&place, place.out, COUNT - 1, own) == round + last);
    }
    GOOD(&place, tutti_stream_free(own, &place.error));
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

/* Of two comms, on streams and on the host, ended at once and with a handle. */
static void grouped(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm);
    struct place place;
    tutti_comm *second;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &second) == TUTTI_OK);
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    tutti_buffer *more = make_buffer(&place, TUTTI_MEMORY_SHARED, COUNT);
    int32_t *z = tutti_buffer_at(more, 0, COUNT), host = 0;
    for (int round = 0; round < 10; round++) {
        tutti_op op;
        int32_t mine = round * 3 + rank;
        fill(&place, place.in, COUNT, round + rank);
        CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_group_add(comm, second) == TUTTI_OK);
        CHECK(tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM) ==
              TUTTI_OK);
        CHECK(tutti_all_reduce(tutti_on(second, place.stream), place.x, z, COUNT, TUTTI_I32, TUTTI_MAX) == TUTTI_OK);
        CHECK(tutti_all_reduce(comm, &mine, &host, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
        CHECK(tutti_barrier(tutti_on(comm, place.other)) == TUTTI_OK);
        if (round % 2 == 0) {
            CHECK_THAT(tutti_group_end(comm) == TUTTI_OK, "%d", tutti_explain(comm, NULL));
        } else {
            CHECK(tutti_group_end_start(comm, &op) == TUTTI_OK);
            GOOD(&place, tutti_stream_wait(place.other, op, &place.error));
            CHECK(read_one(&place, place.out, 1, place.other) == sum_of(comm, round));
            CHECK(tutti_wait(op) == TUTTI_OK);
        }
        CHECK(read_one(&place, place.out, COUNT - 1, place.stream) == sum_of(comm, round));
        CHECK(read_one(&place, more, COUNT - 1, place.stream) == round + tutti_size(comm) - 1);
        CHECK(host == sum_of(comm, round * 3));
    }
    CHECK(tutti_buffer_free(more, NULL) == TUTTI_OK);
    CHECK(tutti_comm_free(second) == TUTTI_OK);
    close_place(&place);
}

/* A call that is refused spoils the group; nothing is done. */
static void spoiled(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    int32_t here = 0;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    fill(&place, place.out, COUNT, 7);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    CHECK(tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    refused_with(comm, tutti_all_reduce(tutti_on(comm, place.stream), &here, place.y, 1, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_ARGUMENT, "host memory");
    refused_with(comm, tutti_group_end(comm), TUTTI_ERR_ARGUMENT, "call 2 of the group was refused");
    CHECK(count_wrong(&place, place.out, COUNT, 7) == 0);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    refused_with(comm, tutti_barrier_start(tutti_on(comm, place.stream), &op), TUTTI_ERR_ARGUMENT, "no handle");
    CHECK(tutti_group_end(comm) != TUTTI_OK);
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

/* ---- Buffers that go ---------------------------------------------------------------------------------------------- */

/* Both are freed while the op waits for its stream; what is made then does not lie where they lay, and the sums are right. */
static void freed_in_flight(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    /* loads the kernel: a GPU does not while a stream stands still */
    CHECK(tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    for (int round = 0; round < 5; round++) {
        tutti_buffer *in = make_buffer(&place, TUTTI_MEMORY_SHARED, COUNT);
        tutti_buffer *out = make_buffer(&place, TUTTI_MEMORY_SHARED, COUNT), *late[2];
        int32_t *x = tutti_buffer_at(in, 0, COUNT), *y = tutti_buffer_at(out, 0, COUNT);
        fill(&place, in, COUNT, round + tutti_rank(comm));
        struct held held = hold_stream(&place);
        CHECK(tutti_all_reduce_start(tutti_on(comm, place.stream), x, y, COUNT, TUTTI_I32, TUTTI_SUM, &op) == TUTTI_OK);
        GOOD(&place, tutti_buffer_free(in, &place.error));
        GOOD(&place, tutti_buffer_free(out, &place.error));
        for (int i = 0; i < 2; i++) late[i] = make_buffer(&place, TUTTI_MEMORY_SHARED, COUNT);
        for (int i = 0; i < 2; i++) fill(&place, late[i], COUNT, -1);
        refused_with(comm, tutti_all_reduce(tutti_on(comm, place.stream), x, y, COUNT, TUTTI_I32, TUTTI_SUM),
                     TUTTI_ERR_STALE, "was freed (dropped)");
        let_go(&place, &held);
        CHECK(tutti_wait(op) == TUTTI_OK);
        for (int i = 0; i < 2; i++) CHECK(count_wrong(&place, late[i], COUNT, -1) == 0);
        for (int i = 0; i < 2; i++) GOOD(&place, tutti_buffer_free(late[i], &place.error));
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    close_place(&place);
}

/* A prepared op does not keep its buffers, and is refused once one is gone, with which reason. */
static void stale(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    CHECK(tutti_all_reduce_start(tutti_prepared(tutti_on(comm, place.stream)), place.x, place.y, COUNT, TUTTI_I32,
                                 TUTTI_SUM, &op) == TUTTI_OK);
    fill(&place, place.in, COUNT, tutti_rank(comm));
    CHECK(tutti_start(op) == TUTTI_OK && tutti_wait(op) == TUTTI_OK);
    CHECK(read_one(&place, place.out, 0, place.stream) == sum_of(comm, 0));
    GOOD(&place, tutti_buffer_free(place.in, &place.error));
    place.in = NULL;
    refused_with(comm, tutti_start(op), TUTTI_ERR_STALE, "freed (dropped)");
    refused_with(comm, tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, 1, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_STALE, "freed (dropped)");
    CHECK(tutti_drop(op) == TUTTI_OK);
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

/* Its stream was freed: told before anything is put there. */
static void stale_stream(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_stream *gone;
    tutti_op op;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    GOOD(&place, tutti_stream_create(place.device, &gone, &place.error));
    CHECK(tutti_barrier_start(tutti_prepared(tutti_on(comm, gone)), &op) == TUTTI_OK);
    CHECK(tutti_start(op) == TUTTI_OK && tutti_wait(op) == TUTTI_OK);
    GOOD(&place, tutti_stream_free(gone, &place.error));
    refused_with(comm, tutti_start(op), TUTTI_ERR_STALE, "");
    CHECK(tutti_drop(op) == TUTTI_OK && tutti_barrier(comm) == TUTTI_OK);
    close_place(&place);
}

/* An op that was started writes; its stream waits for it; a use on another stream waits for that by itself. */
static void remembers(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    for (int round = 0; round < 5; round++) {
        fill(&place, place.in, COUNT, round + tutti_rank(comm));
        tti_fault_delay(place.device, 5000000);
        CHECK(tutti_all_reduce_start(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM,
                                     &op) == TUTTI_OK);
        GOOD(&place, tutti_stream_wait(place.stream, op, &place.error));
        CHECK(read_one(&place, place.out, COUNT - 1, place.other) == sum_of(comm, round));
        tti_fault_delay(place.device, 0);
        CHECK(tutti_wait(op) == TUTTI_OK);
        CHECK(tutti_barrier(comm) == TUTTI_OK);
    }
    close_place(&place);
}

/* ---- Going wrong -------------------------------------------------------------------------------------------------- */

static void dies(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    tutti_status status = TUTTI_OK;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    CHECK(tutti_all_reduce_start(tutti_prepared(tutti_on(comm, place.stream)), place.x, place.y, COUNT, TUTTI_I32,
                                 TUTTI_SUM, &op) == TUTTI_OK);
    for (int i = 0; i < 20 && status == TUTTI_OK; i++) {
        if (i == 10 && tutti_rank(comm) == 1) _exit(0);
        status = tutti_start(op);
        if (status == TUTTI_OK) status = tutti_wait_for(op, LONG_MS);
    }
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_PEER_LOST && error->peer == 1, "%s", error == NULL ? "" : error->text);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

static void mix(void *context, void *left, const void *right, size_t count, tutti_type type)
{
    (void)context, (void)left, (void)right, (void)count, (void)type;
}

/* What the provider that was asked for has not is refused on all ranks, and the comm stays usable: a reduction of one's own, and
 * between processes memory that only its owner reaches. */
static void not_staged(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_reduction own;
    tutti_op op;
    (void)self;
    CHECK(tutti_reduction_register("mix", mix, NULL, &own, NULL) == TUTTI_OK);
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    if (strcmp(tutti_comm_provider(comm, NULL), "cuda") == 0) {
        refused_with(comm, tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, 1, TUTTI_I32, own),
                     TUTTI_ERR_UNSUPPORTED, "TUTTI_DEVICE_PROVIDER=cuda, which does not have all_reduce(1 i32, ");
        refused_with(comm,
                     tutti_all_reduce_start(tutti_on(comm, place.stream), place.x, place.y, 1, TUTTI_I32, own, &op),
                     TUTTI_ERR_UNSUPPORTED, "leave it at auto");
        tutti_buffer *local = make_buffer(&place, TUTTI_MEMORY_LOCAL, COUNT);
        int32_t *at = tutti_buffer_at(local, 0, COUNT);
        bool near = fault_shared->scratch[0] == 0;
        tutti_status status = tutti_all_reduce(tutti_on(comm, place.stream), at, place.y, 1, TUTTI_I32, TUTTI_SUM);
        if (near)
            CHECK(status == TUTTI_OK);
        else
            refused_with(comm, status, TUTTI_ERR_UNSUPPORTED, "rank 0 cannot reach the memory of all ranks");
        status = tutti_all_reduce_start(tutti_on(comm, place.stream), at, place.y, 1, TUTTI_I32, TUTTI_SUM, &op);
        CHECK(status == TUTTI_OK);
        if (near)
            CHECK(tutti_wait(op) == TUTTI_OK);
        else
            refused_with(comm, tutti_wait(op), TUTTI_ERR_UNSUPPORTED, "leave it at auto");
        CHECK(tutti_buffer_free(local, NULL) == TUTTI_OK);
    }
    fill(&place, place.in, COUNT, tutti_rank(comm));
    CHECK(tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, COUNT, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    CHECK(read_one(&place, place.out, COUNT - 1, place.stream) == sum_of(comm, 0));
    close_place(&place);
}

/* Which rank gives its stream up, and whether the call was started. */
struct giving_up {
    int rank;
    bool starts;
};

static tutti_status call_given_up(tutti_comm *comm, struct place *place, const struct giving_up *how)
{
    tutti_op op = {0};
    tutti_status status = how->starts ? tutti_all_reduce_start(tutti_on(comm, place->stream), place->x, place->y, COUNT,
                                                               TUTTI_I32, TUTTI_SUM, &op)
                                      : tutti_all_reduce(tutti_on(comm, place->stream), place->x, place->y, COUNT,
                                                         TUTTI_I32, TUTTI_SUM);
    CHECK(status == TUTTI_OK);
    fault_meet(comm);
    if (tutti_rank(comm) == how->rank) {
        struct tti_stream *stream = tti_stream_take(place->stream, &place->error);
        tti_stream_give_up(stream); /* as tutti_stream_free does after 10 s */
        tti_object_give(&stream->object);
    }
    if (how->starts) return tutti_wait_for(op, LONG_MS);
    for (int i = 0; i < 1000 && status == TUTTI_OK; i++) {
        status = tutti_barrier(comm);
        fault_sleep_ms(10);
    }
    return status;
}

/* A stream is given up, with a call on it, while rank 1's stands before its input: no rank takes the call for done, and nothing
 * was written by it. */
static void given_up(tutti_comm *comm, struct fault_rank *self)
{
    const struct giving_up *how = (const void *)fault_shared->scratch;
    struct place place;
    struct held held = {0};
    (void)self;
    open_place_for(comm, &place, TUTTI_MEMORY_SHARED, COUNT);
    fill(&place, place.out, COUNT, -7);
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    fault_meet(comm);
    const char *provider = tutti_comm_provider(comm, NULL);
    if (!how->starts && strcmp(provider, "staged") == 0) { /* it would wait for the op itself */
        close_place(&place);
        return;
    }
    bool writes = strcmp(provider, "cuda") != 0 || tutti_rank(comm) == how->rank;
    if (tutti_rank(comm) == 1) held = hold_stream(&place);
    fill(&place, place.in, COUNT, 1);
    tutti_status status = call_given_up(comm, &place, how);
    refused_with(comm, status, TUTTI_ERR_CANCELLED, "given up");
    CHECK(tutti_barrier(comm) < 0);
    fault_meet(comm);
    if (held.word != NULL) {
        tti_word_store(held.word, held.value);
        tti_object_give(&held.stream->object);
    }
    if (!writes) CHECK(count_wrong(&place, place.out, COUNT, -7) == 0);
    close_place(&place);
}

static void run_given_up(bool processes)
{
    for (int i = 0; i < 4; i++) {
        struct giving_up how = {.rank = i % 2, .starts = i >= 2};
        memcpy(fault_shared->scratch, &how, sizeof how);
        run_body(i < 2 ? "given up" : "started, given up", given_up, 3, processes, over_tcp);
    }
}

/* One rank's call of a group differs: all are told how. The call that is named is the first that had not ended by then, which
 * may be the one before. */
static void group_differs(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place(&place, TUTTI_MEMORY_SHARED, COUNT);
    CHECK(tutti_group_begin(comm) == TUTTI_OK);
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    size_t count = tutti_rank(comm) == 1 ? COUNT - 1 : COUNT;
    CHECK(tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, count, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    tutti_status status = tutti_group_end(comm);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH && strstr(error->text, " of the group") != NULL &&
                   strstr(error->text, "all_reduce(999 i32, sum)") != NULL,
               "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

static void run_all(bool processes)
{
    const char *provider = getenv("TUTTI_DEVICE_PROVIDER");
    if (over_tcp && provider != NULL && strcmp(provider, "cuda") == 0) return; /* needs memory that processes share */
    if (only_given_up) {
        run_given_up(processes);
        return;
    }
    for (int size = 1; size <= 3; size++) {
        run_body("prepared", prepared, size, processes, over_tcp);
        run_body("prepared kinds", prepared_kinds, size, processes, over_tcp);
        run_body("grouped", grouped, size, processes, over_tcp);
        run_body("freed in flight", freed_in_flight, size, processes, over_tcp);
    }
    run_body("asked", asked, 3, processes, over_tcp);
    run_body("adopted", adopted, 3, processes, over_tcp);
    run_body("spoiled", spoiled, 2, processes, over_tcp);
    run_body("stale", stale, 2, processes, over_tcp);
    run_body("stale stream", stale_stream, 2, processes, over_tcp);
    run_body("remembers", remembers, 2, processes, over_tcp);
    fault_shared->scratch[0] = (char)processes;
    if (provider != NULL && strcmp(provider, "cuda") == 0) run_body("not staged", not_staged, 3, processes, over_tcp);
    run_body("a group differs", group_differs, 3, processes, over_tcp);
    run_given_up(processes);
    if (processes) run_body("dies", dies, 3, processes, over_tcp);
}

int main(int argc, char **argv)
{
    if (argc > 1) device_name = argv[1];
    only_given_up = argc > 2;
    fault_begin(170);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
