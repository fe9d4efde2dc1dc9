/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=180 labels=asan,tsan
 *
 * Calls on streams of devices that are opened again: what was made before is refused as stale, and the same comm goes on with new
 * streams and buffers, whichever ranks have opened theirs again, and when. `test_stream_reopen cuda:0` is the same on a GPU,
 * `test_stream_reopen cuda` with a GPU for each rank. tests/cli/stream_reopen.sh runs it with each provider.
 */
#include "stream_place.h"

enum { COUNT = 5000, ROUNDS = 4 };

static bool over_tcp;

/* True if all ranks use one device of one process: it is opened again when all of them are quiet. */
static bool shares_device(const tutti_comm *comm)
{
    return strcmp(device_name, "cuda") != 0 && fault_shared->scratch[0] != 0 && tutti_size(comm) > 1;
}

static void make_place(tutti_comm *comm, struct place *place)
{
    memset(place, 0, sizeof *place);
    place->count = COUNT;
    if (strcmp(device_name, "cuda") == 0)
        GOOD(place, tutti_device_open_for(comm, device_name, &place->device, &place->error));
    else
        GOOD(place, tutti_device_open(device_name, &place->device, &place->error));
}

static void furnish(struct place *place)
{
    GOOD(place, tutti_stream_create(place->device, &place->stream, &place->error));
    GOOD(place, tutti_stream_create(place->device, &place->other, &place->error));
    place->in = make_buffer(place, TUTTI_MEMORY_SHARED, COUNT);
    place->out = make_buffer(place, TUTTI_MEMORY_SHARED, COUNT);
    place->x = tutti_buffer_at(place->in, 0, COUNT);
    place->y = tutti_buffer_at(place->out, 0, COUNT);
    CHECK(place->x != NULL && place->y != NULL);
}

static const char *said(const tutti_comm *comm)
{
    const tutti_error *error = tutti_comm_error(comm);
    return error == NULL ? "" : error->text;
}

static int32_t sum_of(const tutti_comm *comm, int32_t each)
{
    int size = tutti_size(comm);
    return size * each + size * (size - 1) / 2;
}

static void check_sum(tutti_comm *comm, struct place *place, tutti_stream *stream, const char *what, int32_t each)
{
    int32_t got = read_one(place, place->out, COUNT - 1, stream);
    CHECK_THAT(got == sum_of(comm, each), "%s, round %d: %d", what, each, got);
}

static void pass_on(tutti_comm *comm, struct place *place, int32_t round)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), before = (rank + size - 1) % size;
    fill(place, place->in, COUNT, 100 * round + rank);
    tutti_status status = tutti_sendrecv(tutti_on(comm, place->stream), place->x, COUNT, (rank + 1) % size, 7, place->y,
                                         COUNT, before, 7, TUTTI_I32, NULL);
    CHECK_THAT(status == TUTTI_OK, "sendrecv: %s", said(comm));
    int32_t got = read_one(place, place->out, COUNT - 1, place->stream);
    CHECK_THAT(got == 100 * round + before, "sendrecv, round %d: %d", round, got);
}

static void pass_v(tutti_comm *comm, struct place *place, int32_t round)
{
    size_t counts[FAULT_RANKS], all = 0;
    for (int i = 0; i < tutti_size(comm); i++) all += counts[i] = (size_t)(5 + i);
    fill(place, place->in, COUNT, round + tutti_rank(comm));
    CHECK(tutti_all_gather_v(tutti_on(comm, place->stream), place->x, place->y, counts, NULL, TUTTI_I32) == TUTTI_OK);
    int32_t got = read_one(place, place->out, all - 1, place->stream);
    CHECK_THAT(got == round + tutti_size(comm) - 1, "all_gather_v, round %d: %d", round, got);
}

/* One call of each form, on two streams. */
static void use(tutti_comm *comm, struct place *place, int32_t round)
{
    tutti_op op;
    fill(place, place->in, COUNT, round + tutti_rank(comm));
    tutti_status status = tutti_all_reduce(tutti_on(comm, place->stream), place->x, place->y, COUNT, TUTTI_I32,
                                           TUTTI_SUM);
    CHECK_THAT(status == TUTTI_OK, "round %d: %s", round, said(comm));
    check_sum(comm, place, place->stream, "blocking", round);
    fill(place, place->out, COUNT, -1);
    status = tutti_all_reduce_start(tutti_on(comm, place->stream), place->x, place->y, COUNT, TUTTI_I32, TUTTI_SUM,
                                    &op);
    CHECK_THAT(status == TUTTI_OK, "round %d: %s", round, said(comm));
    if (status == TUTTI_OK) {
        GOOD(place, tutti_stream_wait(place->other, op, &place->error));
        CHECK(tutti_wait(op) == TUTTI_OK);
    }
    check_sum(comm, place, place->other, "started", round);
    status = tutti_all_reduce(tutti_on(comm, place->other), place->y, place->y, COUNT, TUTTI_I32, TUTTI_MAX);
    CHECK_THAT(status == TUTTI_OK, "round %d: %s", round, said(comm));
    check_sum(comm, place, place->other, "in place", round);
    CHECK(tutti_exscan(tutti_on(comm, place->stream), place->x, place->y, COUNT, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    pass_v(comm, place, round);
    pass_on(comm, place, round);
}

/* Memory that was given back may have been taken again, of threads by another rank, too. */
static bool overlap(const int32_t *x, const int32_t *y)
{
    uintptr_t from = (uintptr_t)x, other = (uintptr_t)y, bytes = COUNT * sizeof *x;
    return from < other + bytes && other < from + bytes;
}

/* Those made before are refused, whichever of the two it is, and leave no trace on the comm. */
static void check_stale(tutti_comm *comm, struct place *old, struct place *now)
{
    refused_with(comm, tutti_all_reduce(tutti_on(comm, old->stream), now->x, now->y, COUNT, TUTTI_I32, TUTTI_SUM),
                 TUTTI_ERR_STALE, "the stream is of generation");
    GOOD(now, tutti_buffer_check(now->in, 0, COUNT, &now->error));
    CHECK(tutti_buffer_check(old->in, 0, 1, &old->error) == TUTTI_ERR_STALE);
    if (fault_shared->scratch[0] == 0 && !overlap(now->x, old->x) && !overlap(now->y, old->x))
        refused_with(comm, tutti_all_reduce(tutti_on(comm, now->stream), old->x, now->y, COUNT, TUTTI_I32, TUTTI_SUM),
                     TUTTI_ERR_STALE, "until the device was opened again");
    CHECK(tutti_buffer_at(old->in, 0, 1) == NULL);
}

static void drop(struct place *old)
{
    CHECK(tutti_buffer_free(old->in, NULL) == TUTTI_OK && tutti_buffer_free(old->out, NULL) == TUTTI_OK);
    CHECK(tutti_stream_free(old->stream, NULL) == TUTTI_OK && tutti_stream_free(old->other, NULL) == TUTTI_OK);
}

static void open_again(tutti_comm *comm, struct place *place, bool refuses)
{
    struct place old = *place;
    GOOD(place, tutti_device_reopen(place->device, &place->error));
    furnish(place);
    if (refuses) check_stale(comm, &old, place);
    drop(&old);
}

/* The device is all ranks': one of them opens it again, and nobody calls anything on it meanwhile. */
static void open_shared_again(tutti_comm *comm, struct place *place)
{
    struct place old = *place;
    fault_meet(comm);
    if (tutti_rank(comm) == 1) GOOD(place, tutti_device_reopen(place->device, &place->error));
    fault_meet(comm);
    furnish(place);
    check_stale(comm, &old, place);
    drop(&old);
}

/* In each round another one of the ranks opens its device again between two calls, the last time all do; nobody else knows. */
static void again_and_again(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    struct place place;
    (void)self;
    make_place(comm, &place);
    furnish(&place);
    use(comm, &place, 0);
    for (int round = 1; round < ROUNDS; round++) {
        bool all = round == ROUNDS - 1;
        if (shares_device(comm))
            open_shared_again(comm, &place);
        else if (all || rank == (size - round % size) % size)
            open_again(comm, &place, true);
        use(comm, &place, round);
    }
    close_place(&place);
}

/* An op that is under way, prepared or in a group when the device is opened again: it ends, with an error at the worst, and a
 * comm that is whole is good for more. */
static void under_way(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op, kept;
    (void)self;
    make_place(comm, &place);
    furnish(&place);
    use(comm, &place, 0);
    CHECK(tutti_all_reduce_start(tutti_prepared(tutti_on(comm, place.stream)), place.x, place.y, COUNT, TUTTI_I32,
                                 TUTTI_SUM, &kept) == TUTTI_OK);
    CHECK(tutti_barrier_start(tutti_on(comm, place.stream), &op) == TUTTI_OK);
    if (shares_device(comm))
        open_shared_again(comm, &place);
    else if (tutti_rank(comm) == 0)
        open_again(comm, &place, false);
    tutti_status status = tutti_wait(op);
    CHECK_THAT(status == TUTTI_OK || status == TUTTI_ERR_STALE, "%s: %s", tutti_status_name(status), said(comm));
    CHECK(tutti_drop(kept) == TUTTI_OK);
    fault_meet(comm);
    if (tutti_barrier(comm) == TUTTI_OK) use(comm, &place, 1);
    close_place(&place);
}

/* A prepared op keeps its stream, which is stale now. */
static void prepared(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_op op;
    (void)self;
    make_place(comm, &place);
    furnish(&place);
    CHECK(tutti_all_reduce_start(tutti_prepared(tutti_on(comm, place.stream)), place.x, place.y, COUNT, TUTTI_I32,
                                 TUTTI_SUM, &op) == TUTTI_OK);
    CHECK(tutti_start(op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_OK);
    if (shares_device(comm))
        open_shared_again(comm, &place);
    else
        open_again(comm, &place, true);
    refused_with(comm, tutti_start(op), TUTTI_ERR_STALE, "the stream is of generation");
    CHECK(tutti_drop(op) == TUTTI_OK);
    use(comm, &place, 1);
    close_place(&place);
}

static void run_all(bool processes)
{
    const char *provider = getenv("TUTTI_DEVICE_PROVIDER");
    if (over_tcp && provider != NULL && strcmp(provider, "cuda") == 0) return; /* it shares memory */
    fault_shared->scratch[0] = !processes;
    run_body("again and again", again_and_again, 3, processes, over_tcp);
    run_body("under way", under_way, 3, processes, over_tcp);
    run_body("prepared", prepared, 2, processes, over_tcp);
}

int main(int argc, char **argv)
{
    if (argc > 1) device_name = argv[1];
    fault_begin(170);
    fault_everywhere(run_all, &over_tcp);
    return fault_end();
}
