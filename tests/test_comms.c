/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Comms of some ranks: split, duplicated, selected, by host, along a mesh; in use together, freed in any order, by threads
 * and processes, over memory and over tcp.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "collective/comm/comm.h"
#include "collective/peers/net.h"
#include "fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { MANY = 100, EACH = 100, LARGE = 1 << 16 };

static int sum_of(tutti_comm *comm, int value)
{
    int32_t in = value, out = -1;
    tutti_status status = tutti_all_reduce(comm, &in, &out, 1, TUTTI_I32, TUTTI_SUM);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_OK, "%s", error == NULL ? tutti_status_name(status) : error->text);
    return out;
}

static void check_large(tutti_comm *comm)
{
    int size = tutti_size(comm), rank = tutti_rank(comm);
    float *x = tutti_alloc(comm, LARGE * sizeof *x), *y = calloc(LARGE, sizeof *y);
    for (int i = 0; i < LARGE; i++) x[i] = (float)(i % 7 + rank);
    for (int count = LARGE / 20; count <= LARGE; count *= 20) { /* through bounce buffers, if need be, and by attach */
        CHECK(tutti_all_reduce(comm, x, y, (size_t)count, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
        bool right = true;
        for (int i = 0; i < count; i++) right = right && y[i] == (float)(size * (i % 7) + size * (size - 1) / 2);
        CHECK(right);
    }
    CHECK(tutti_free(comm, x) == TUTTI_OK);
    free(y);
}

static void split_them(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    tutti_comm *half = NULL, *again = NULL, *backwards = NULL, *none = NULL;
    tutti_tuning tuning;
    (void)self;
    tutti_tuning_get(comm, &tuning);
    tuning.chunk = tuning.message_chunk = 8192;
    CHECK(tutti_broadcast(comm, &tuning, &tuning, sizeof tuning, TUTTI_U8, 0) == TUTTI_OK); /* hosts have their own */
    CHECK(tutti_tuning_set(comm, &tuning) == TUTTI_OK);
    CHECK(tutti_comm_split(comm, rank % 2, 0, &half) == TUTTI_OK && half != NULL);
    tutti_tuning_get(half, &tuning);
    CHECK(tuning.chunk == 8192 && tuning.message_chunk == 8192);
    CHECK(tutti_size(half) == (size + 1 - rank % 2) / 2 && tutti_rank(half) == rank / 2);
    int expected = 0;
    for (int i = rank % 2; i < size; i += 2) expected += i;
    CHECK(sum_of(half, rank) == expected);
    CHECK(tutti_comm_split(comm, 5, -rank, &backwards) == TUTTI_OK);
    CHECK(tutti_rank(backwards) == size - 1 - rank && sum_of(backwards, rank) == size * (size - 1) / 2);
    CHECK(tutti_comm_split(comm, rank == 0 ? -1 : 0, 0, &none) == TUTTI_OK);
    CHECK(rank == 0 ? none == NULL : tutti_size(none) == size - 1 && tutti_rank(none) == rank - 1);
    CHECK(tutti_comm_split(half, 0, -tutti_rank(half), &again) == TUTTI_OK); /* of a comm that was split off itself */
    CHECK(tutti_rank(again) == tutti_size(half) - 1 - tutti_rank(half) && sum_of(again, rank) == expected);
    for (int i = 0; i < tutti_size(again); i++)
        CHECK(tutti_world_rank(again, i) == rank % 2 + 2 * (tutti_size(half) - 1 - i));
    CHECK(tutti_world_rank(comm, rank) == rank && tutti_world_rank(half, tutti_rank(half)) == rank);
    CHECK(tutti_world_rank(half, tutti_size(half)) == -1 && tutti_world_rank(half, -1) == -1);
    CHECK(tutti_world_rank(NULL, 0) == -1);
    check_large(half);
    check_large(backwards);
    check_large(again);
    if (none != NULL) check_large(none);
    int32_t mine = rank, first = -1;
    CHECK(tutti_broadcast(backwards, &mine, &first, 1, TUTTI_I32, 0) == TUTTI_OK && first == size - 1);
    tutti_comm *all[] = {half, again, backwards, none}; /* freed in another order by each rank */
    for (int i = 0; i < 4; i++) CHECK(tutti_comm_free(all[(i + rank) % 4]) == TUTTI_OK);
    CHECK(sum_of(comm, 1) == size);
}

static void select_them(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    tutti_comm *twin = NULL, *two = NULL, *host = NULL;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &twin) == TUTTI_OK && tutti_rank(twin) == rank && tutti_size(twin) == size);
    CHECK(sum_of(twin, 1) == size && sum_of(comm, 2) == 2 * size);
    int list[] = {size - 1, 0};
    CHECK(tutti_comm_select(comm, list, 2, &two) == TUTTI_OK);
    CHECK(rank == 0 || rank == size - 1 ? tutti_rank(two) == (rank == 0) : two == NULL);
    if (two != NULL) CHECK(sum_of(two, rank) == size - 1);
    CHECK(tutti_comm_by_host(comm, &host) == TUTTI_OK && tutti_size(host) == size && tutti_rank(host) == rank);
    CHECK(sum_of(host, rank) == size * (size - 1) / 2);
    int twice[] = {0, 0}, beyond[] = {size};
    tutti_comm *bad = comm;
    CHECK(tutti_comm_select(comm, twice, 2, &bad) == TUTTI_ERR_ARGUMENT && bad == NULL);
    CHECK(tutti_comm_select(comm, beyond, 1, &bad) == TUTTI_ERR_RANK && tutti_comm_select(comm, NULL, 1, &bad) < 0);
    CHECK(strstr(tutti_comm_error(comm)->text, "`ranks` is NULL") != NULL);
    CHECK(tutti_comm_split(comm, 0, 0, NULL) == TUTTI_ERR_ARGUMENT && tutti_comm_split(NULL, 0, 0, &bad) < 0);
    CHECK(sum_of(comm, 1) == size);
    CHECK(tutti_comm_free(twin) == TUTTI_OK && tutti_comm_free(NULL) == TUTTI_OK);
    CHECK(tutti_comm_free(two) == TUTTI_OK);
    /* `host` outlives the world */
    tutti_comm **kept = (tutti_comm **)fault_shared->scratch;
    if (tutti_all_threads(comm))
        kept[rank] = host;
    else
        CHECK(tutti_comm_free(host) == TUTTI_OK);
    if (tutti_all_threads(comm)) CHECK(tutti_comm_free(kept[rank]) == TUTTI_OK);
}

/* Hosts of two ranks: their comms, one of a rank of each, and one in which ranks of a host are apart. */
static void separate_them(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), host = rank / 2, here = 2 * host + 1 < size ? 2 : 1;
    tutti_comm *own = NULL, *across = NULL, *turned = NULL;
    (void)self;
    CHECK(tutti_comm_by_host(comm, &own) == TUTTI_OK && tutti_size(own) == here && tutti_rank(own) == rank % 2);
    CHECK(sum_of(own, rank) == (here == 2 ? 4 * host + 1 : 2 * host));
    CHECK(tutti_comm_split(comm, rank % 2, 0, &across) == TUTTI_OK && tutti_rank(across) == host);
    CHECK(tutti_comm_split(comm, 0, rank % 2 * size + host, &turned) == TUTTI_OK);
    check_large(own);
    check_large(across);
    check_large(turned);
    CHECK(tutti_barrier(turned) == TUTTI_OK && sum_of(turned, 1) == size && sum_of(comm, 1) == size);
    tutti_comm *all[] = {own, across, turned};
    for (int i = 0; i < 3; i++) CHECK(tutti_comm_free(all[(i + rank) % 3]) == TUTTI_OK);
}

static void mesh_them(tutti_comm *comm, struct fault_rank *self)
{
    static const char *const names[] = {"data", "pipeline", "tensor"};
    int sizes[] = {2, 1, 3}, rank = tutti_rank(comm);
    tutti_mesh *mesh;
    tutti_comm *data = NULL, *tensor = NULL, *both = NULL, *same = NULL;
    (void)self;
    CHECK(tutti_mesh_create(comm, names, sizes, 3, &mesh) == TUTTI_OK);
    CHECK(tutti_mesh_dimensions(mesh) == 3 && strcmp(tutti_mesh_name(mesh, 2), names[2]) == 0);
    CHECK(tutti_mesh_name(mesh, 3) == NULL && tutti_mesh_name(mesh, -1) == NULL && tutti_mesh_dimensions(NULL) == 0);
    CHECK(tutti_mesh_size(mesh, "tensor") == 3 && tutti_mesh_size(mesh, "expert") == -1);
    CHECK(tutti_mesh_coordinate(mesh, "data") == rank / 3 && tutti_mesh_coordinate(mesh, "tensor") == rank % 3);
    CHECK(tutti_mesh_comm(mesh, "data", &data) == TUTTI_OK && tutti_mesh_comm(mesh, "tensor", &tensor) == TUTTI_OK);
    CHECK(tutti_mesh_comm(mesh, "tensor,data", &both) == TUTTI_OK && tutti_mesh_comm(mesh, "data,tensor", &same) == 0);
    CHECK(both == same && tutti_size(both) == 6 && tutti_rank(both) == rank);
    CHECK(tutti_size(data) == 2 && tutti_rank(data) == rank / 3 && sum_of(data, rank) == 2 * (rank % 3) + 3);
    CHECK(tutti_size(tensor) == 3 && tutti_rank(tensor) == rank % 3 && sum_of(tensor, rank) == 9 * (rank / 3) + 3);
    tutti_op op; /* whose error does not hide the mesh's */
    CHECK(tutti_recv_start(comm, sizes, 1, TUTTI_I32, 0, 0, NULL, &op) == TUTTI_OK && tutti_cancel(op) == TUTTI_OK);
    CHECK(tutti_wait(op) == TUTTI_ERR_CANCELLED);
    CHECK(tutti_mesh_comm(mesh, "data,expert", &same) == TUTTI_ERR_ARGUMENT && same == NULL);
    CHECK(strstr(tutti_comm_error(comm)->text, "\"data,expert\" does not name") != NULL);
    CHECK(strstr(tutti_comm_error(comm)->text, "this mesh, which is data 2 x pipeline 1 x tensor 3;") != NULL);
    tutti_mesh_free(mesh);
    sizes[2] = 4;
    CHECK(tutti_mesh_create(comm, names, sizes, 3, &mesh) == TUTTI_ERR_ARGUMENT && mesh == NULL);
    CHECK(strstr(tutti_comm_error(comm)->text, "data 2 x pipeline 1 x tensor 4 is not 6") != NULL);
    static const char *const long_name = "as long as a name of 32 bytes is", *const shorter =
                                                                                 "s long as a name of 32 bytes is";
    sizes[0] = 6;
    CHECK(tutti_mesh_create(comm, &long_name, sizes, 1, &mesh) == TUTTI_ERR_ARGUMENT && mesh == NULL);
    CHECK(tutti_mesh_create(comm, &shorter, sizes, 1, &mesh) == TUTTI_OK && tutti_mesh_size(mesh, shorter) == 6);
    tutti_mesh_free(mesh);
    tutti_mesh_free(NULL);
}

/* Along every set of the dimensions of a cube, of which each is a bit of the rank. */
static void mesh_cube(tutti_comm *comm, struct fault_rank *self)
{
    static const char *const names[] = {"four", "two", "one"};
    static const char *const along[] = {"", "one", "two", "two,one", "four", "four,one", "four,two", "four,two,one"};
    static const int sizes[] = {2, 2, 2};
    int rank = tutti_rank(comm);
    tutti_mesh *mesh;
    (void)self;
    CHECK(tutti_mesh_create(comm, names, sizes, 3, &mesh) == TUTTI_OK);
    for (int bits = 1; bits < 8; bits++) {
        int count = 0, place = 0, sum = 0;
        for (int other = 0; other < 8; other++) {
            if ((other & ~bits) != (rank & ~bits)) continue;
            count++;
            place += other < rank;
            sum += other;
        }
        tutti_comm *made = NULL;
        CHECK(tutti_mesh_comm(mesh, along[bits], &made) == TUTTI_OK);
        CHECK_THAT(tutti_size(made) == count && tutti_rank(made) == place && sum_of(made, rank) == sum, "%s: %d of %d",
                   along[bits], tutti_rank(made), tutti_size(made));
    }
    tutti_mesh_free(mesh);
}

/* A mesh and the comm it was made from are freed in either order; its own comms only by itself. */
static void mesh_outlives(tutti_comm *comm, struct fault_rank *self)
{
    static const char *const names[] = {"data", "tensor"};
    int size = tutti_size(comm), sizes[] = {size, 1};
    tutti_comm *from = NULL, *data = NULL;
    tutti_mesh *mesh = NULL, *other = NULL;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &from) == TUTTI_OK);
    CHECK(tutti_mesh_create(from, names, sizes, 2, &mesh) == TUTTI_OK);
    CHECK(tutti_mesh_create(from, names, sizes, 2, &other) == TUTTI_OK);
    tutti_mesh_free(other);
    CHECK(tutti_comm_free(from) == TUTTI_OK);
    CHECK(tutti_mesh_comm(mesh, "expert", &data) == TUTTI_ERR_ARGUMENT && data == NULL);
    CHECK(tutti_mesh_comm(mesh, "data", &data) == TUTTI_OK && sum_of(data, 1) == size);
    CHECK(tutti_comm_free(data) == TUTTI_ERR_ARGUMENT && tutti_leave(data) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_comm_error(data)->text, "tutti_mesh_free") != NULL && sum_of(data, 1) == size);
    tutti_mesh_free(mesh);
    CHECK(sum_of(comm, 1) == size);
}

static void check_disagree(tutti_comm *comm, tutti_status status, const char *one, const char *other)
{
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH && error != NULL && strstr(error->text, one) != NULL &&
                   strstr(error->text, other) != NULL,
               "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    CHECK(sum_of(comm, 1) == tutti_size(comm)); /* the comm stays whole */
}

/* What all ranks must give alike, and two do not: all learn who gave what. */
static void disagree(tutti_comm *comm, struct fault_rank *self)
{
    static const char *const names[] = {"data", "tensor"}, *const others[] = {"data", "sensor"};
    int rank = tutti_rank(comm), list[] = {rank == 2, rank != 2}, sizes[] = {rank == 2 ? 3 : 2, rank == 2 ? 2 : 3};
    tutti_comm *made = comm;
    tutti_mesh *mesh = NULL;
    (void)self;
    check_disagree(comm, tutti_comm_select(tutti_at(comm, "a.c", 10 + rank), list, 2, &made),
                   "rank 0 calls comm_select {0, 1} at a.c:10", "rank 2 calls comm_select {1, 0} at a.c:12");
    check_disagree(comm, tutti_comm_select(comm, list, rank == 1 ? 1 : 2, &made), "rank 0 calls comm_select {0, 1},",
                   "rank 1 calls comm_select {0};");
    check_disagree(comm, rank == 5 ? tutti_comm_duplicate(comm, &made) : tutti_comm_by_host(comm, &made),
                   "rank 0 calls comm_by_host,", "rank 5 calls comm_duplicate;");
    check_disagree(comm, tutti_mesh_create(comm, names, sizes, 2, &mesh), "rank 0 calls mesh data 2 x tensor 3,",
                   "rank 2 calls mesh data 3 x tensor 2;");
    sizes[0] = 2, sizes[1] = 3;
    check_disagree(comm, tutti_mesh_create(comm, rank == 1 ? others : names, sizes, 2, &mesh),
                   "rank 0 calls mesh data 2 x tensor 3,", "rank 1 calls mesh data 2 x sensor 3;");
    CHECK(made == NULL && mesh == NULL && tutti_mesh_create(comm, names, sizes, 2, &mesh) == TUTTI_OK);
    check_disagree(comm, tutti_mesh_comm(mesh, rank == 1 ? "data" : "tensor", &made),
                   "rank 0 calls mesh comm along tensor,", "rank 1 calls mesh comm along data;");
    CHECK(made == NULL && tutti_mesh_comm(mesh, "tensor", &made) == TUTTI_OK && sum_of(made, 1) == 3);
    tutti_mesh_free(mesh);
}

/* The deadline of a call that makes a comm holds for all its exchanges: rank 1 comes to the first one only. */
static void stay_away_later(tutti_comm *comm)
{
    char wish[24] = "", wishes[2 * sizeof wish]; /* as many bytes as struct wish in split.c has */
    tutti_comm *copy, *made = NULL;
    CHECK(tutti_comm_duplicate(comm, &copy) == TUTTI_OK);
    if (tutti_rank(comm) == 0) {
        tutti_status status = tutti_comm_split(tutti_within(copy, 50), 0, 0, &made);
        CHECK_THAT(status == TUTTI_ERR_TIMEOUT && made == NULL, "%s", tutti_status_name(status));
    } else {
        tutti_all_gather(copy, wish, wishes, sizeof wish, TUTTI_U8);
    }
    fault_meet(comm);
    CHECK(tutti_comm_free(copy) == TUTTI_OK);
}

/* Rank 1 does not come to what rank 0 asks for; which that was is told by the deadline, and to who frees it. */
static void stay_away(tutti_comm *comm, struct fault_rank *self)
{
    static const char *const names[] = {"data", "tensor"};
    int sizes[] = {1, 2};
    tutti_mesh *mesh;
    tutti_comm *made = NULL, *copy;
    CHECK(tutti_mesh_create(comm, names, sizes, 2, &mesh) == TUTTI_OK);
    CHECK(tutti_comm_duplicate(comm, &copy) == TUTTI_OK);
    if (tutti_rank(comm) == 0) {
        tutti_status status = tutti_comm_split(tutti_at(tutti_within(copy, 50), "a.c", 7), 0, 0, &made);
        const tutti_error *error = tutti_comm_error(copy);
        CHECK_THAT(status == TUTTI_ERR_TIMEOUT && made == NULL &&
                       strstr(error->text, "in #1 all_gather(24 u8) \"comm_split\" at a.c:7 for rank 1") != NULL,
                   "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
        atomic_store(&self->mark, 1);
        status = tutti_mesh_comm(mesh, "tensor", &made);
        error = tutti_comm_error(comm);
        CHECK_THAT(status == TUTTI_ERR_MISMATCH && made == NULL &&
                       strstr(error->text, "\"mesh comm along tensor\"") != NULL &&
                       strstr(error->text, "rank 1") != NULL,
                   "%s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
    }
    fault_await_mark(0, 1);
    tutti_mesh_free(mesh);
    CHECK(tutti_comm_free(copy) == TUTTI_OK);
    stay_away_later(comm);
}

/* Ops of many comms in flight at once, waited for in another order than they were started. */
static void many_comms(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), made = SANITIZED ? MANY / 10 : MANY;
    tutti_comm *comms[MANY];
    tutti_op *ops = calloc(MANY * EACH, sizeof *ops);
    int32_t *values = tutti_alloc(comm, MANY * EACH * sizeof *values);
    (void)self;
    for (int i = 0; i < made; i++) CHECK(tutti_comm_duplicate(comm, &comms[i]) == TUTTI_OK);
    bool started = true, ended = true, right = true;
    for (int k = 0; k < EACH; k++)
        for (int i = 0; i < made; i++) {
            int at = i * EACH + k;
            values[at] = rank + at;
            started = started && tutti_all_reduce_start(comms[i], &values[at], &values[at], 1, TUTTI_I32, TUTTI_SUM,
                                                        &ops[at]) == TUTTI_OK;
        }
    for (int at = made * EACH; at-- > 0;) {
        ended = ended && tutti_wait(ops[at]) == TUTTI_OK;
        right = right && values[at] == size * at + size * (size - 1) / 2;
    }
    CHECK(started && ended && right);
    for (int i = 0; i < made; i++) CHECK(tutti_comm_free(comms[(i * 7 + rank * 13) % made]) == TUTTI_OK);
    free(ops);
}

/* What breaks one comm leaves the others alone. */
static void break_one(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *one = NULL, *other = NULL;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &one) == TUTTI_OK && tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    float x[2] = {1, 2}, y[2];
    tutti_status status = tutti_rank(comm) == 0 ? tutti_all_reduce(one, x, y, 1, TUTTI_F32, TUTTI_SUM)
                                                : tutti_all_reduce(one, x, y, 2, TUTTI_F32, TUTTI_SUM);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH, "%s", tutti_status_name(status));
    CHECK(sum_of(other, 1) == tutti_size(comm) && sum_of(comm, 1) == tutti_size(comm));
    CHECK(tutti_comm_free(one) == TUTTI_OK && tutti_comm_free(other) == TUTTI_OK);
}

/* ---- Two threads of each rank make comms at once ------------------------------------------------------------------ */

enum { TWIN_ROUNDS = SANITIZED ? 30 : 200 };

/* Comms that are made at the same time from different ones never get each other's messages. */
static void *make_and_use(void *argument)
{
    tutti_comm *from = argument, *made = NULL;
    int size = tutti_size(from), rank = tutti_rank(from);
    for (int round = 0; round < TWIN_ROUNDS; round++) {
        tutti_status made_it = tutti_comm_duplicate(from, &made);
        if (!CHECK_THAT(made_it == TUTTI_OK, "%s", made_it == TUTTI_OK ? "" : tutti_comm_error(from)->text)) break;
        int64_t x = (int64_t)round * size + rank, y = 0;
        tutti_status status = tutti_all_reduce(made, &x, &y, 1, TUTTI_I64, TUTTI_SUM);
        bool right = status == TUTTI_OK && y == (int64_t)round * size * size + size * (size - 1) / 2;
        CHECK_THAT(right, "round %d: %s: %s", round, tutti_status_name(status),
                   status == TUTTI_OK ? "wrong" : tutti_comm_error(made)->text);
        CHECK(tutti_comm_free(made) == TUTTI_OK);
        if (!right) break;
    }
    return NULL;
}

static void make_at_once(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *one, *other;
    pthread_t thread;
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &one) == TUTTI_OK && tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    if (!CHECK(pthread_create(&thread, NULL, make_and_use, one) == 0)) return;
    make_and_use(other);
    pthread_join(thread, NULL);
    CHECK(tutti_comm_free(one) == TUTTI_OK && tutti_comm_free(other) == TUTTI_OK);
}

/* What comes for a comm that is freed here is not kept. */
static void send_to_freed(tutti_comm *comm, struct fault_rank *self)
{
    static char data[20000];
    (void)self;
    if (comm->lanes == NULL) return;
    for (int round = 0; round < 5; round++) {
        tutti_comm *made;
        CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK);
        if (tutti_rank(comm) == 1) CHECK(tutti_comm_free(made) == TUTTI_OK);
        fault_meet(comm);
        if (tutti_rank(comm) == 0) CHECK(tutti_send(made, data, sizeof data, TUTTI_U8, 1, 0) == TUTTI_OK);
        if (tutti_rank(comm) == 0) CHECK(tutti_comm_free(made) == TUTTI_OK);
        CHECK(tutti_barrier(comm) == TUTTI_OK);
    }
    tti_net_lock(comm->lanes->net);
    uint64_t kept = comm->lanes->net->stray_bytes;
    tti_net_unlock(comm->lanes->net);
    CHECK_THAT(kept == 0, "%llu bytes are kept", (unsigned long long)kept);
}

/* Frames for a comm that nobody has made: so many are kept, and then it is said whose are not. */
static void send_to_nobody(tutti_comm *comm, struct fault_rank *self)
{
    enum { COMM = 1 << 30, FRAMES = 65 };
    static const char data[TTI_LINK_WINDOW];
    struct tti_frame_head head = {.comm = COMM, .kind = TTI_FRAME_DATA, .bytes = sizeof data};
    struct tti_net *net = comm->lanes->net;
    (void)self;
    if (tutti_rank(comm) == 1) fault_catch_log();
    fault_meet(comm);
    tti_net_lock(net);
    for (int i = 0; tutti_rank(comm) == 0 && i < FRAMES; i++) CHECK(tti_net_say(net, 1, head, data));
    tti_net_unlock(net);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

static void sent(struct tti_outgoing *outgoing, tutti_status status)
{
    (void)outgoing, (void)status;
}

/* A frame of a gigabyte that nobody has asked for: the comm breaks, and no memory is taken for it. */
static void send_unasked(tutti_comm *comm, struct fault_rank *self)
{
    static struct tti_outgoing frame;
    const size_t bytes = (size_t)1 << 30;
    struct tti_lanes *lanes = comm->lanes;
    (void)self;
    frame = (struct tti_outgoing){.head = {.comm = lanes->id, .kind = TTI_FRAME_DATA, .bytes = bytes}, .done = sent};
    frame.data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!CHECK(frame.data != MAP_FAILED)) return;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    tti_net_lock(lanes->net);
    if (tutti_rank(comm) == 0) (void)lanes->net->transport->ops->send(lanes->net->transport, 1, &frame);
    tti_net_unlock(lanes->net);
    tutti_status status = tutti_barrier(comm);
    if (status == TUTTI_OK && tutti_rank(comm) == 0) status = tutti_barrier(comm); /* rank 1 had come to the first */
    if (!CHECK(status == TUTTI_ERR_MISMATCH)) return;
    const char *text = tutti_comm_error(comm)->text; /* by whether rank 1 was in the barrier when the frame came */
    bool unasked = strstr(text, "rank 0 sends 1073741824 bytes to rank 1") != NULL;
    CHECK_THAT(unasked || strstr(text, "but rank 0 called something else") != NULL, "%s", text);
    if (tutti_rank(comm) == 0) return; /* a sanitizer may keep notes of what it has sent */
    getrusage(RUSAGE_SELF, &after);
    CHECK_THAT(after.ru_maxrss - before.ru_maxrss < 512 * 1024, "%ld KiB more", after.ru_maxrss - before.ru_maxrss);
}

static void test_strays(void)
{
    fault_run_body("a frame that nobody has asked for", send_unasked, 2, true, true);
    fault_run_body("frames for a comm that nobody has made", send_to_nobody, 2, true, true);
    CHECK(fault_logged("rank 1 drops what rank 0 sends on a comm that it has not made (number 1073741824, kind 1, "));
}

/* One that is still there when the world is left stays good. */
static _Thread_local tutti_comm *kept;
static bool kept_by_threads;

static void keep_one(tutti_comm *comm, struct fault_rank *self)
{
    (void)self;
    CHECK(tutti_comm_duplicate(comm, &kept) == TUTTI_OK);
}

static void use_kept(void)
{
    for (int i = 0; i < 20; i++) CHECK(sum_of(kept, 1) == tutti_size(kept));
    /* threads that join one by one meet in memory that each has mapped for itself: the sanitizer does not see them meet */
    if (!SANITIZED_THREADS || !kept_by_threads) check_large(kept);
    tutti_comm *again = NULL;
    CHECK(tutti_comm_split(kept, 0, 0, &again) == TUTTI_OK && sum_of(again, 1) == tutti_size(kept));
    CHECK(tutti_comm_free(kept) == TUTTI_OK);
    CHECK(sum_of(again, 2) == 2 * tutti_size(again) && tutti_comm_free(again) == TUTTI_OK);
}

static void leave_first(bool processes, const char *setting)
{
    struct fault_world world = {.size = 3,
                                .processes = processes,
                                .joins = !processes,
                                .body = keep_one,
                                .after = use_kept,
                                .settings = {setting}};
    kept_by_threads = !processes;
    check_title("the world is left first, %s, %s", processes ? "processes" : "threads", setting);
    for (int i = 0; i < 5; i++) fault_run(&world);
}

/* Rank 1 frees a comm that it had no dealings on with others; they wait for it there. */
static void free_early(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *made[2] = {NULL, NULL};
    int32_t in = 1, out = 0;
    (void)self;
    for (int i = 0; i < 2; i++) CHECK(tutti_comm_duplicate(comm, &made[i]) == TUTTI_OK);
    int64_t began = fault_now_ns();
    for (int i = 0; i < 2 && tutti_rank(comm) == 0; i++) {
        tutti_status status = i == 0 ? tutti_all_reduce(made[0], &in, &out, 1, TUTTI_I32, TUTTI_SUM)
                                     : tutti_recv(made[1], &out, 1, TUTTI_I32, 1, 0, NULL);
        CHECK_THAT(status == TUTTI_ERR_MISMATCH, "%d: %s", i, tutti_status_name(status));
        fault_time("the end of a call on a comm that another rank freed", fault_now_ns() - began, 1000);
        began = fault_now_ns();
    }
    for (int i = 0; i < 2; i++) CHECK(tutti_comm_free(made[i]) == TUTTI_OK);
    fault_meet(comm);
}

/* Rank 1 has left the world and ended, and never frees the other comm. */
static void end_without_freeing(tutti_comm *comm, struct fault_rank *self)
{
    static tutti_comm *volatile left_behind; /* as a leak it is not to be counted */
    tutti_comm *made = NULL;
    int32_t in = 1, out = 0;
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK);
    if (tutti_rank(comm) == 1) {
        left_behind = made;
        CHECK(left_behind != NULL);
        return;
    }
    int64_t began = fault_now_ns();
    tutti_status status = tutti_all_reduce(made, &in, &out, 1, TUTTI_I32, TUTTI_SUM);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_PEER_LOST, "%s", tutti_status_name(status));
    fault_time("the end of a rank that had left", fault_now_ns() - began, 1000);
    tutti_comm_free(made);
    (void)self;
}

int main(void)
{
    fault_begin(115);
    for (int i = 0; i < 4; i++) {
        bool processes = i % 2;
        const char *tcp = i / 2 == 0 ? NULL : "TUTTI_TRANSPORT=tcp";
        fault_run_set("split", split_them, 5, processes, tcp);
        fault_run_set("split", split_them, 2, processes, tcp);
        fault_run_set("selected", select_them, 3, processes, tcp);
        fault_run_set("mesh", mesh_them, 6, processes, tcp);
        fault_run_set("cube", mesh_cube, 8, processes, tcp);
        fault_run_set("mesh outlives", mesh_outlives, 2, processes, tcp);
        fault_run_set("disagree", disagree, 6, processes, tcp);
        fault_run_set("one stays away", stay_away, 2, processes, tcp);
        fault_run_set("many comms", many_comms, 2, processes, tcp);
        fault_run_set("one is broken", break_one, 2, processes, tcp);
        fault_run_set("made at once", make_at_once, 3, processes, tcp);
        fault_run_set("sent to a freed one", send_to_freed, 2, processes, tcp);
        leave_first(processes, tcp == NULL ? "TUTTI_TRANSPORT=auto" : tcp);
        if (!processes) fault_run_set("one ends", end_without_freeing, 2, false, tcp);
        fault_run_set("freed early", free_early, 2, processes, tcp);
        fault_run_set("freed early", free_early, 4, processes, tcp);
    }
    fault_run_set("split", split_them, 5, false, "TUTTI_DIRECT=0");
    test_strays();
    static const char hosts_of_2[] = "TUTTI_HOST_PROCESSES=2", hosts_of_3[] = "TUTTI_HOST_PROCESSES=3";
    fault_run_set("split", split_them, 5, true, hosts_of_2);
    fault_run_set("split", split_them, 5, true, hosts_of_3);
    fault_run_set("hosts", separate_them, 5, true, hosts_of_2);
    fault_run_set("mesh", mesh_them, 6, true, hosts_of_2);
    fault_run_set("mesh outlives", mesh_outlives, 3, true, hosts_of_2);
    fault_run_set("many comms", many_comms, 3, true, hosts_of_2);
    fault_run_set("one is broken", break_one, 3, true, hosts_of_2);
    return fault_end();
}
