/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Staged v-forms whose blocks are larger than a round takes, and of very different sizes: each rank's blocks come at their offsets,
 * gaps stay as they are, pinned memory stays small, and counts that differ are found before anything is moved.
 * `test_staged_rounds cuda:0` on a GPU.
 */
#include "collective/op/stager.h"
#include "collective/op/turn.h"
#include "device/pinned.h"
#include "stream_place.h"

enum { SIZE = 3, BIG = 1300001, GAP = 100, ROOM = 2 * BIG + 350000 + SIZE * GAP, SLOT_MOST = 8 << 20, UNTOUCHED = -7 };

/* Of rank `from` for rank `to`: 0, 1 or BIG elements, and another number. */
static size_t count_of(int from, int to)
{
    static const size_t counts[] = {0, BIG, 1, 350000};
    return counts[(from * 2 + to * 3 + 1) % 4];
}

static int32_t value_of(int from, int to, size_t i)
{
    return (int32_t)(i * 7 + (size_t)(from * 1000 + to * 100));
}

/* What a rank's buffers hold, on the host. */
struct data {
    int32_t *in, *out, *want;
    size_t counts[SIZE], offsets[SIZE], takes[SIZE], places[SIZE];
};

static void open_data(struct data *data)
{
    data->in = calloc(ROOM, sizeof *data->in);
    data->out = calloc(ROOM, sizeof *data->out);
    data->want = calloc(ROOM, sizeof *data->want);
    if (data->in == NULL || data->out == NULL || data->want == NULL) abort();
}

static void close_data(struct data *data)
{
    free(data->in);
    free(data->out);
    free(data->want);
}

/* Puts the blocks of `counts` behind each other, with gaps. */
static void lay_out(const size_t *counts, size_t *offsets)
{
    size_t at = 0;
    for (int i = 0; i < SIZE; i++) {
        offsets[i] = at;
        at += counts[i] + GAP;
    }
    if (at > ROOM) abort();
}

static void begin(struct place *place, struct data *data)
{
    for (size_t i = 0; i < ROOM; i++) data->want[i] = data->out[i] = UNTOUCHED;
    GOOD(place, tutti_buffer_put(place->in, 0, data->in, ROOM, place->stream, &place->error));
    GOOD(place, tutti_buffer_put(place->out, 0, data->out, ROOM, place->stream, &place->error));
    GOOD(place, tutti_stream_sync(place->stream, LONG_MS, &place->error));
}

static void end(tutti_comm *comm, struct place *place, struct data *data, tutti_status status, const char *what)
{
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_OK, "%s: %s", what, error == NULL ? "" : error->text);
    GOOD(place, tutti_buffer_get(place->out, 0, data->out, ROOM, place->stream, &place->error));
    GOOD(place, tutti_stream_sync(place->stream, LONG_MS, &place->error));
    size_t wrong = 0, first = ROOM;
    for (size_t i = ROOM; i-- > 0;)
        if (data->out[i] != data->want[i]) wrong++, first = i;
    CHECK_THAT(wrong == 0, "%s: rank %d: %zu wrong, the first at %zu", what, tutti_rank(comm), wrong, first);
}

static void write_block(int32_t *at, size_t count, int from, int to)
{
    for (size_t i = 0; i < count; i++) at[i] = value_of(from, to, i);
}

static void all_to_all(tutti_comm *comm, struct place *place, struct data *data)
{
    int rank = tutti_rank(comm);
    for (int i = 0; i < SIZE; i++) {
        data->counts[i] = count_of(rank, i);
        data->takes[i] = count_of(i, rank);
    }
    lay_out(data->counts, data->offsets);
    lay_out(data->takes, data->places);
    for (int i = 0; i < SIZE; i++) write_block(data->in + data->offsets[i], data->counts[i], rank, i);
    begin(place, data);
    tutti_status status = tutti_all_to_all_v(tutti_on(comm, place->stream), place->x, data->counts, data->offsets,
                                             place->y, data->takes, data->places, TUTTI_I32);
    for (int i = 0; i < SIZE; i++) write_block(data->want + data->places[i], data->takes[i], i, rank);
    end(comm, place, data, status, "all_to_all_v");
}

static void all_gather(tutti_comm *comm, struct place *place, struct data *data)
{
    int rank = tutti_rank(comm);
    for (int i = 0; i < SIZE; i++) data->counts[i] = count_of(i, 0);
    lay_out(data->counts, data->offsets);
    write_block(data->in, data->counts[rank], rank, 0);
    begin(place, data);
    tutti_status status = tutti_all_gather_v(tutti_on(comm, place->stream), place->x, place->y, data->counts,
                                             data->offsets, TUTTI_I32);
    for (int i = 0; i < SIZE; i++) write_block(data->want + data->offsets[i], data->counts[i], i, 0);
    end(comm, place, data, status, "all_gather_v");
}

static void gather(tutti_comm *comm, struct place *place, struct data *data, int root)
{
    int rank = tutti_rank(comm);
    for (int i = 0; i < SIZE; i++) data->counts[i] = count_of(i, root);
    lay_out(data->counts, data->offsets);
    write_block(data->in, data->counts[rank], rank, root);
    begin(place, data);
    tutti_status status = tutti_gather_v(tutti_on(comm, place->stream), place->x, data->counts[rank], place->y,
                                         data->counts, data->offsets, TUTTI_I32, root);
    for (int i = 0; i < SIZE && rank == root; i++) write_block(data->want + data->offsets[i], data->counts[i], i, root);
    end(comm, place, data, status, "gather_v");
}

static void scatter(tutti_comm *comm, struct place *place, struct data *data, int root)
{
    int rank = tutti_rank(comm);
    for (int i = 0; i < SIZE; i++) data->counts[i] = count_of(root, i);
    lay_out(data->counts, data->offsets);
    for (int i = 0; i < SIZE; i++) write_block(data->in + data->offsets[i], data->counts[i], root, i);
    begin(place, data);
    tutti_status status = tutti_scatter_v(tutti_on(comm, place->stream), place->x, data->counts, data->offsets,
                                          place->y, data->counts[rank], TUTTI_I32, root);
    write_block(data->want, data->counts[rank], root, rank);
    end(comm, place, data, status, "scatter_v");
}

static void reduce_scatter(tutti_comm *comm, struct place *place, struct data *data)
{
    int rank = tutti_rank(comm);
    size_t at = 0;
    for (int i = 0; i < SIZE; i++) {
        data->counts[i] = count_of(0, i);
        write_block(data->in + at, data->counts[i], rank, i);
        at += data->counts[i];
    }
    begin(place, data);
    tutti_status status = tutti_reduce_scatter_v(tutti_on(comm, place->stream), place->x, place->y, data->counts,
                                                 TUTTI_I32, TUTTI_SUM);
    for (size_t i = 0; i < data->counts[rank]; i++) {
        data->want[i] = 0;
        for (int from = 0; from < SIZE; from++) data->want[i] += value_of(from, rank, i);
    }
    end(comm, place, data, status, "reduce_scatter_v");
}

static void check_slots(const tutti_comm *comm)
{
    const struct tti_stager *stager = comm->queue.streams->stager;
    for (int i = 0; i < TTI_STAGER_SLOTS; i++)
        CHECK_THAT(stager->slots[i] == NULL || stager->slots[i]->bytes <= SLOT_MOST, "slot %d has %zu bytes", i,
                   stager->slots[i]->bytes);
}

/* Rank 1 sends one element more than rank 0 receives, of so many that this shows in a later round. */
static void differ(tutti_comm *comm, struct place *place, struct data *data)
{
    int rank = tutti_rank(comm);
    for (int i = 0; i < SIZE; i++) {
        data->counts[i] = rank == 1 && i == 0 ? BIG : 0;
        data->takes[i] = rank == 0 && i == 1 ? BIG - 1 : 0;
    }
    begin(place, data);
    tutti_status status = tutti_all_to_all_v(tutti_on(comm, place->stream), place->x, data->counts, NULL, place->y,
                                             data->takes, NULL, TUTTI_I32);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH &&
                   strstr(error->text, "rank 1 sends 1300001 elements to rank 0, which receives 1300000") != NULL,
               "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    fault_meet(comm);
    CHECK(count_wrong(place, place->out, ROOM, UNTOUCHED) == 0);
}

static void rounds(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    struct data data;
    (void)self;
    open_place(&place, TUTTI_MEMORY_LOCAL, ROOM);
    open_data(&data);
    all_to_all(comm, &place, &data);
    all_gather(comm, &place, &data);
    for (int root = 0; root < SIZE; root++) {
        gather(comm, &place, &data, root);
        scatter(comm, &place, &data, root);
    }
    reduce_scatter(comm, &place, &data);
    check_slots(comm);
    differ(comm, &place, &data);
    close_data(&data);
    close_place(&place);
}

int main(int argc, char **argv)
{
    if (argc > 1) device_name = argv[1];
    fault_begin(50);
    setenv("TUTTI_DEVICE_PROVIDER", "staged", 1);
    for (int i = 0; i < 3; i++) run_body("rounds", rounds, SIZE, i > 0, i > 1);
    return fault_end();
}
