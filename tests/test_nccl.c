/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60
 *
 * The provider nccl. Arguments: GPUS, "each" (rank i is on cuda:i) or "one" (all ranks are on cuda:0, as processes that NCCL
 * takes for hosts of their own); PART, "all", "results", "faults" (of the fake libnccl, tests/fake/nccl.c), "endings" and
 * "crossed" (some of these) or "kills"; KILLS, how often a rank is killed, or "0/4" for the first of four shares of the faults.
 * tests/cli/nccl.sh runs it on the fake one, scripts/gpu/run.sh on a GPU.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/device.h>
#include <unistd.h>

enum { LONG_MS = 45000, MOST = 8 * 5000, BYTES = MOST * 8 };

static bool one_gpu;
static int kills = 5;
static int share, shares = 1, fault_number; /* of the faults, this run takes every `shares`th one */

static bool is_ours(void)
{
    return fault_number++ % shares == share;
}

/* A rank's device, stream and two buffers. */
struct place {
    tutti_device *device;
    tutti_stream *stream;
    tutti_buffer *in, *out;
    char *x, *y; /* where they lie */
    tutti_error error;
};

#define GOOD(place, call) CHECK_THAT((call) == TUTTI_OK, "%s", (place)->error.text)

static void open_place(const tutti_comm *comm, struct place *place)
{
    char name[16], host[16];
    memset(place, 0, sizeof *place);
    snprintf(name, sizeof name, "cuda:%d", one_gpu ? 0 : tutti_rank(comm));
    snprintf(host, sizeof host, "host-%d", tutti_rank(comm));
    if (one_gpu) setenv("NCCL_HOSTID", host, 1);
    GOOD(place, tutti_device_open(name, &place->device, &place->error));
    GOOD(place, tutti_stream_create(place->device, &place->stream, &place->error));
    GOOD(place, tutti_buffer_create(place->device, TUTTI_MEMORY_LOCAL, TUTTI_U8, BYTES, &place->in, &place->error));
    GOOD(place, tutti_buffer_create(place->device, TUTTI_MEMORY_LOCAL, TUTTI_U8, BYTES, &place->out, &place->error));
    place->x = tutti_buffer_at(place->in, 0, BYTES);
    place->y = tutti_buffer_at(place->out, 0, BYTES);
    CHECK(place->x != NULL && place->y != NULL);
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

static const char *said(const tutti_comm *comm)
{
    const tutti_error *error = tutti_comm_error(comm);
    return error == NULL ? "" : error->text;
}

/* ---- Results ------------------------------------------------------------------------------------------------------- */

/* One call, made on the host and on a stream. */
struct wanted {
    int kind;
    size_t count;
    tutti_type type;
    tutti_reduction reduction;
    bool in_place;
};
enum { KINDS = 20 }; /* the last is all_to_all_v */

static tutti_status call_v(const struct wanted *of, tutti_comm *comm, const char *in, char *out)
{
    int size = tutti_size(comm), rank = tutti_rank(comm), root = size - 1;
    size_t counts[FAULT_RANKS], gives[FAULT_RANKS], takes[FAULT_RANKS];
    for (int i = 0; i < size; i++) {
        counts[i] = of->count + (size_t)i;
        gives[i] = (size_t)((rank + 2 * i) % 3) * of->count; /* to rank i, and from it: some of them nothing */
        takes[i] = (size_t)((i + 2 * rank) % 3) * of->count;
    }
    switch (of->kind) {
    case 9: return tutti_all_gather_v(comm, in, out, counts, NULL, of->type);
    case 10: return tutti_gather_v(comm, in, counts[rank], out, counts, NULL, of->type, root);
    case 11: return tutti_scatter_v(comm, in, counts, NULL, out, counts[rank], of->type, root);
    case 12: return tutti_reduce_scatter_v(comm, in, out, counts, of->type, of->reduction);
    default: return tutti_all_to_all_v(comm, in, gives, NULL, out, takes, NULL, of->type);
    }
}

static tutti_status call(const struct wanted *of, tutti_comm *comm, const char *in, char *out)
{
    int size = tutti_size(comm), root = size - 1;
    size_t n = of->count, offset = 2 * n * (size_t)size * tutti_type_bytes(of->type);
    tutti_piece pieces[] = {{in, out, n}, {in + offset, out + offset, 5}};
    switch (of->kind) {
    case 0: return tutti_barrier(comm);
    case 1: return tutti_all_reduce(comm, in, out, n, of->type, of->reduction);
    case 2: return tutti_reduce(comm, in, out, n, of->type, of->reduction, root);
    case 3: return tutti_broadcast(comm, in, out, n, of->type, root);
    case 4: return tutti_all_gather(comm, in, out, n, of->type);
    case 5: return tutti_gather(comm, in, out, n, of->type, root);
    case 6: return tutti_scatter(comm, in, out, n, of->type, root);
    case 7: return tutti_reduce_scatter(comm, in, out, n, of->type, of->reduction);
    case 8: return tutti_all_to_all(comm, in, out, n, of->type);
    case 13: return tutti_scan(comm, in, out, n, of->type, of->reduction);
    case 14: return tutti_exscan(comm, in, out, n, of->type, of->reduction);
    case 15: return tutti_all_reduce_many(comm, pieces, 2, of->type, of->reduction);
    case 16: return tutti_broadcast_many(comm, pieces, 2, of->type, root);
    case 17: return tutti_all_gather_many(comm, pieces, 2, of->type);
    case 18: return tutti_reduce_scatter_many(comm, pieces, 2, of->type, of->reduction);
    default: return call_v(of, comm, in, out);
    }
}

/* Small whole numbers, which sum and multiply exactly in every type. */
static void fill(char *at, tutti_type type, int rank)
{
    for (int i = 0; i < MOST; i++) {
        int value = 1 + (i * 7 + rank * 3) % 3;
        double f64 = value;
        float f32 = (float)value;
        static const uint16_t f16[] = {0, 0x3c00, 0x4000, 0x4200}, bf16[] = {0, 0x3f80, 0x4000, 0x4040};
        static const uint8_t e4m3[] = {0, 0x38, 0x40, 0x44}, e5m2[] = {0, 0x3c, 0x40, 0x42};
        int64_t whole = value;
        const void *from = type == TUTTI_F64      ? (const void *)&f64
                           : type == TUTTI_F32    ? (const void *)&f32
                           : type == TUTTI_F16    ? (const void *)&f16[value]
                           : type == TUTTI_BF16   ? (const void *)&bf16[value]
                           : type == TUTTI_F8E4M3 ? (const void *)&e4m3[value]
                           : type == TUTTI_F8E5M2 ? (const void *)&e5m2[value]
                                                  : (const void *)&whole;
        memcpy(at + (size_t)i * tutti_type_bytes(type), from, tutti_type_bytes(type));
    }
}

/* Where this rank's input lies in `out`, or its output in `in`, in place. */
static bool place_in(const struct wanted *of, const tutti_comm *comm, char *x, char *y, const char **in, char **out)
{
    size_t own = (size_t)tutti_rank(comm) * of->count * tutti_type_bytes(of->type);
    bool root = tutti_rank(comm) == tutti_size(comm) - 1;
    *in = x;
    *out = y;
    switch (of->kind) {
    case 1:
    case 3:
    case 8:
    case 13: *out = x; return true;
    case 2: *out = root ? x : y; return true;
    case 4: *in = y + own; return true;
    case 7: *out = x + own; return true;
    default: return false;
    }
}

/* NCCL was asked for: what it has not is refused, and nothing is left behind. */
static bool is_refused(const struct wanted *of)
{
    bool scans = of->kind == 13 || of->kind == 14, bits = of->reduction == TUTTI_XOR;
    bool folds = of->kind == 1 || of->kind == 2 || of->kind == 7 || of->kind == 12 || of->kind == 15 || of->kind == 18;
    bool whole = of->type >= TUTTI_I8, short_ones = of->type == TUTTI_I16 || of->type == TUTTI_U16;
    if (scans || (of->kind == 8 && of->in_place)) return true;
    return folds && (bits || short_ones || (whole && (of->reduction == TUTTI_AVG || of->reduction > TUTTI_XOR)));
}

static void compare(const struct wanted *of, tutti_comm *comm, struct place *place)
{
    static char x[FAULT_RANKS][BYTES], want[FAULT_RANKS][2][BYTES], got[FAULT_RANKS][2][BYTES];
    int rank = tutti_rank(comm);
    const char *in = x[rank];
    char *out = want[rank][1];
    fill(x[rank], of->type, rank);
    memcpy(want[rank][0], x[rank], BYTES);
    memcpy(want[rank][1], x[rank], BYTES); /* what is in place begins there */
    GOOD(place, tutti_buffer_put(place->in, 0, want[rank][0], BYTES, place->stream, &place->error));
    GOOD(place, tutti_buffer_put(place->out, 0, want[rank][1], BYTES, place->stream, &place->error));
    GOOD(place, sync_place(place));
    if (of->in_place && !place_in(of, comm, want[rank][0], want[rank][1], &in, &out)) return;
    CHECK(call(of, comm, in, out) == TUTTI_OK);
    const char *on_in = place->x;
    char *on_out = place->y;
    if (of->in_place) place_in(of, comm, place->x, place->y, &on_in, &on_out);
    tutti_status status = call(of, tutti_on(comm, place->stream), on_in, on_out);
    if (is_refused(of)) {
        CHECK_THAT(status == TUTTI_ERR_UNSUPPORTED &&
                       strstr(said(comm), "TUTTI_DEVICE_PROVIDER=nccl, which does not have ") != NULL,
                   "kind %d, %s, %s: %s", of->kind, tutti_type_name(of->type), tutti_reduction_name(of->reduction),
                   said(comm));
        return;
    }
    CHECK_THAT(status == TUTTI_OK, "kind %d, %s: %s", of->kind, tutti_type_name(of->type), said(comm));
    GOOD(place, tutti_buffer_get(place->in, 0, got[rank][0], BYTES, place->stream, &place->error));
    GOOD(place, tutti_buffer_get(place->out, 0, got[rank][1], BYTES, place->stream, &place->error));
    GOOD(place, sync_place(place));
    CHECK_THAT(memcmp(got[rank], want[rank], sizeof got[rank]) == 0, "kind %d, %zu %s, %s%s", of->kind, of->count,
               tutti_type_name(of->type), tutti_reduction_name(of->reduction), of->in_place ? ", in place" : "");
}

static void results(tutti_comm *comm, struct fault_rank *self)
{
    static const size_t counts[] = {1, 37, 1500};
    struct place place;
    tutti_reduction scaled;
    void *native;
    (void)self;
    CHECK(tutti_reduction_scaled_sum(2, &scaled, NULL) == TUTTI_OK);
    open_place(comm, &place);
    CHECK(tutti_nccl_comm(comm, &native) == TUTTI_ERR_ARGUMENT);
    CHECK_THAT(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK, "%s", said(comm));
    CHECK_THAT(tutti_nccl_comm(comm, &native) == TUTTI_OK && native != NULL, "%s", said(comm));
    const tutti_reduction all[] = {TUTTI_SUM, TUTTI_PROD, TUTTI_MIN, TUTTI_MAX, TUTTI_AVG, TUTTI_XOR, scaled};
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 6; i++)
            compare(&(struct wanted){kind, counts[i / 2], TUTTI_I32, TUTTI_SUM, i % 2 == 1}, comm, &place);
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        compare(&(struct wanted){8, 37, (tutti_type)type, TUTTI_SUM, false}, comm, &place);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            bool whole = type >= TUTTI_I8, bits = all[i] == TUTTI_XOR;
            if (type == TUTTI_BOOL || (bits && !whole) || (all[i] == TUTTI_AVG && tutti_size(comm) == 3)) continue;
            if ((type == TUTTI_F8E4M3 || type == TUTTI_F8E5M2) && all[i] != TUTTI_MAX) continue; /* they round */
            compare(&(struct wanted){1, 37, (tutti_type)type, all[i], false}, comm, &place);
            compare(&(struct wanted){12, 5, (tutti_type)type, all[i], false}, comm, &place);
        }
    }
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    close_place(&place);
}

/* Enqueued ahead, started, waited for by streams, on two streams in turn, which the caller comes to know on the way. */
static void ahead(tutti_comm *comm, struct fault_rank *self)
{
    enum { AHEAD = 40, COUNT = 300 };
    static int32_t got[FAULT_RANKS][AHEAD];
    int rank = tutti_rank(comm), size = tutti_size(comm), wrong = 0;
    struct place place;
    tutti_stream *other;
    tutti_op ops[AHEAD];
    (void)self;
    open_place(comm, &place);
    GOOD(&place, tutti_stream_create(place.device, &other, &place.error));
    for (int i = 0; i < AHEAD; i++) {
        tutti_stream *stream = i % 3 == 0 ? other : place.stream;
        if (i == AHEAD / 4) CHECK(tutti_stream_native(other) != NULL);
        if (i == AHEAD * 3 / 4) CHECK(tutti_stream_native(place.stream) != NULL);
        int32_t value = i * 10 + rank, *x = (int32_t *)(void *)place.x, *y = (int32_t *)(void *)place.y;
        GOOD(&place, tutti_buffer_put(place.in, 0, (char *)&value, sizeof value, stream, &place.error));
        CHECK_THAT((i % 2 == 0 ? tutti_all_reduce(tutti_on(comm, stream), x, y, COUNT, TUTTI_I32, TUTTI_SUM)
                               : tutti_all_reduce_start(tutti_on(comm, stream), x, y, COUNT, TUTTI_I32, TUTTI_SUM,
                                                        &ops[i])) == TUTTI_OK,
                   "%d: %s", i, said(comm));
        if (i % 2 == 1) GOOD(&place, tutti_stream_wait(stream, ops[i], &place.error));
        GOOD(&place, tutti_buffer_get(place.out, 0, (char *)&got[rank][i], sizeof got[rank][i], stream, &place.error));
    }
    for (int i = 1; i < AHEAD; i += 2) CHECK(tutti_wait(ops[i]) == TUTTI_OK);
    GOOD(&place, sync_place(&place));
    GOOD(&place, tutti_stream_sync(other, LONG_MS, &place.error));
    for (int i = 0; i < AHEAD; i++) wrong += got[rank][i] != size * i * 10 + size * (size - 1) / 2;
    CHECK_THAT(wrong == 0, "%d of %d sums are wrong", wrong, AHEAD);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    GOOD(&place, tutti_stream_free(other, &place.error));
    close_place(&place);
}

/* Counts that differ: all are told, and NCCL has seen nothing. */
static void differ(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    size_t gives[FAULT_RANKS], takes[FAULT_RANKS];
    (void)self;
    open_place(comm, &place);
    for (int i = 0; i < tutti_size(comm); i++) gives[i] = takes[i] = 10;
    if (tutti_rank(comm) == 1) gives[0] = 11;
    CHECK(tutti_barrier(tutti_on(comm, place.stream)) == TUTTI_OK);
    tutti_status status = tutti_all_to_all_v(tutti_on(comm, place.stream), place.x, gives, NULL, place.y, takes, NULL,
                                             TUTTI_U8);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH &&
                   strstr(said(comm), "rank 1 sends 11 elements to rank 0, which receives 10") != NULL,
               "%s: %s", tutti_status_name(status), said(comm));
    GOOD(&place, sync_place(&place));
    close_place(&place);
}

/* ---- Ranks that are killed ----------------------------------------------------------------------------------------- */

/* Rank 1 dies at some call; the others are told, and their streams go on. */
static void killed(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_status status = TUTTI_OK;
    int at = fault_shared->scratch[0];
    open_place(comm, &place);
    for (int i = 0; i < 40 && status == TUTTI_OK; i++) {
        if (i == at && tutti_rank(comm) == 1) {
            atomic_store((_Atomic int64_t *)(void *)&fault_shared->scratch[64], fault_now_ns());
            kill(getpid(), SIGKILL);
        }
        status = tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, 3000, TUTTI_I32, TUTTI_SUM);
        if (i % 8 == 7 && status == TUTTI_OK && sync_place(&place) != TUTTI_OK) break;
    }
    if (status == TUTTI_OK) status = tutti_barrier(comm);
    int64_t died = atomic_load((_Atomic int64_t *)(void *)&fault_shared->scratch[64]);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == TUTTI_ERR_PEER_LOST && error->peer == 1, "%s: %s", tutti_status_name(status), said(comm));
    self->numbers[1] = fault_now_ns() - died;
    GOOD(&place, sync_place(&place));
    self->numbers[2] = fault_now_ns() - died;
    close_place(&place);
}

/* A GPU's driver keeps descriptors open. */
static bool is_real(void)
{
    return getenv("FAKE_CUDA_GPUS") == NULL;
}

static void run_by_nccl(const char *title, fault_body *body, int size, bool processes)
{
    struct fault_world world = {.size = size,
                                .processes = processes,
                                .body = body,
                                .keeps_files = is_real(),
                                .settings = {"TUTTI_DEVICE_PROVIDER=nccl"}};
    check_title("%s, %d %s", title, size, processes ? "processes" : "threads");
    CHECK(fault_run(&world));
}

static void expect_end(struct fault_world *world)
{
    (void)world;
    fault_expect_end(1);
}

static void run_killed(int size, int times)
{
    for (int i = 0; i < times; i++) {
        check_title("killed, %d processes, %d", size, i);
        memset(fault_shared->scratch, 0, sizeof fault_shared->scratch);
        fault_shared->scratch[0] = (char)(1 + i * 7 % 36);
        struct fault_world world = {.size = size,
                                    .processes = true,
                                    .body = killed,
                                    .meanwhile = expect_end,
                                    .limit_ms = 30000,
                                    .keeps_files = is_real()};
        world.settings[0] = "TUTTI_DEVICE_PROVIDER=nccl";
        CHECK(fault_run(&world));
        for (int rank = 0; rank < size; rank++) {
            if (rank == 1) continue;
            fault_time("a rank is killed: the others are told", fault_shared->ranks[rank].numbers[1], 1000);
            fault_time("a rank is killed: streams go on", fault_shared->ranks[rank].numbers[2], 2000);
        }
    }
}

/* ---- Calls of NCCL that hang or fail --------------------------------------------------------------------------------- */

static struct fault {
    const char *fault;
    tutti_status status; /* of the ranks, */
    const char *words;   /* and what is in some rank's sentence */
    bool opens;          /* it happens in the first call on a stream */
} faults[] = {
    {"ncclGetUniqueId:1:0:fail", TUTTI_ERR_UNSUPPORTED, "ncclGetUniqueId: unhandled system error (2): made to fail",
     true},
    {"ncclGetUniqueId:1:0:hang", TUTTI_ERR_UNSUPPORTED, "3000 ms", true},
    {"ncclCommInitRankConfig:1:-1:fail", TUTTI_ERR_UNSUPPORTED, "ncclCommInitRankConfig: unhandled system error", true},
    {"ncclCommInitRankConfig:1:1:hard", TUTTI_ERR_UNSUPPORTED, "not returned from ncclCommInitRankConfig after", true},
    {"ncclAllReduce:1:1:fail", TUTTI_ERR_SYSTEM, "rank 1: ncclAllReduce: unhandled system error (2): made", false},
    {"ncclAllReduce:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclAllReduce:1:1:hard", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclAllReduce:1:1:stall", TUTTI_ERR_TIMEOUT, "its deadline of 3000 ms passed", false},
    {"ncclAllReduce:3:1:fail", TUTTI_ERR_SYSTEM, "rank 1: ncclAllReduce: unhandled system error (2): made", false},
    {"ncclAllReduce:3:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclAllReduce:3:1:stall", TUTTI_ERR_TIMEOUT, "its deadline of 3000 ms passed", false},
    {"ncclAllReduce:3:1:async", TUTTI_ERR_SYSTEM, "NCCL reports: remote process exited", false},
    {"ncclGroupStart:2:-1:fail", TUTTI_ERR_SYSTEM, "ncclGroupStart: unhandled system error", false},
    {"ncclGroupEnd:1:1:fail", TUTTI_ERR_SYSTEM, "rank 1: ncclGroupEnd: unhandled system error", false},
    {"ncclGroupEnd:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclGroupEnd:2:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclSend:3:1:stall", TUTTI_ERR_TIMEOUT, "its deadline of 3000 ms passed", false},
    {"ncclRedOpCreatePreMulSum:1:1:fail", TUTTI_ERR_SYSTEM, "ncclRedOpCreatePreMulSum: unhandled", false},
    {"ncclRedOpCreatePreMulSum:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclRedOpDestroy:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclGroupStart:1:-1:hard", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclReduce:1:1:fail", TUTTI_ERR_SYSTEM, "rank 1: ncclReduce: unhandled system error", false},
    {"ncclReduce:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclBroadcast:1:1:fail", TUTTI_ERR_SYSTEM, "rank 1: ncclBroadcast: unhandled system error", false},
    {"ncclBroadcast:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclAllGather:1:1:fail", TUTTI_ERR_SYSTEM, "rank 1: ncclAllGather: unhandled system error", false},
    {"ncclAllGather:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclReduceScatter:1:1:fail", TUTTI_ERR_SYSTEM, "rank 1: ncclReduceScatter: unhandled system error", false},
    {"ncclReduceScatter:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclSend:1:1:fail", TUTTI_ERR_SYSTEM, "rank 1: ncclSend: unhandled system error", false},
    {"ncclSend:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclRecv:1:1:fail", TUTTI_ERR_SYSTEM, "rank 1: ncclRecv: unhandled system error", false},
    {"ncclRecv:1:1:hang", TUTTI_ERR_TIMEOUT, "3000 ms", false},
    {"ncclAllReduce:1:1:sick", TUTTI_ERR_DEVICE, "rank 1: cuda:1 has failed: CUDA_ERROR_LAUNCH_FAILED (719)", false},
    {"ncclAllReduce:3:1:gone", TUTTI_ERR_DEVICE, "rank 1: cuda:1 has failed: CUDA_ERROR_LAUNCH_FAILED (719)", false},
};

/* Until something goes wrong. */
static tutti_status use(tutti_comm *comm, struct place *place, tutti_reduction scaled)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 4 && status == TUTTI_OK; i++) {
        status = tutti_all_reduce(tutti_on(comm, place->stream), place->x, place->y, 100, TUTTI_F32, TUTTI_SUM);
        if (status == TUTTI_OK)
            status = tutti_all_to_all(tutti_on(comm, place->stream), place->x, place->y, 100, TUTTI_F32);
        if (status == TUTTI_OK)
            status = tutti_all_reduce(tutti_on(comm, place->stream), place->x, place->y, 100, TUTTI_F32, scaled);
        if (status == TUTTI_OK)
            status = tutti_reduce(tutti_on(comm, place->stream), place->x, place->y, 100, TUTTI_F32, TUTTI_SUM, 0);
        if (status == TUTTI_OK)
            status = tutti_broadcast(tutti_on(comm, place->stream), place->x, place->y, 100, TUTTI_F32, 0);
        if (status == TUTTI_OK)
            status = tutti_all_gather(tutti_on(comm, place->stream), place->x, place->y, 100, TUTTI_F32);
        if (status == TUTTI_OK)
            status = tutti_reduce_scatter(tutti_on(comm, place->stream), place->x, place->y, 100, TUTTI_F32, TUTTI_SUM);
    }
    if (status != TUTTI_OK) return status;
    (void)sync_place(place);
    for (int i = 0; i < 100 && status == TUTTI_OK; i++) { /* what went wrong later is told by the next call */
        status = tutti_barrier(tutti_on(comm, place->stream));
        if (status == TUTTI_OK) fault_sleep_ms(20);
    }
    return status;
}

static void goes_wrong(tutti_comm *comm, struct fault_rank *self)
{
    const struct fault *fault = &faults[(int)fault_shared->scratch[0]];
    tutti_reduction scaled;
    struct place place;
    (void)self;
    CHECK(tutti_reduction_scaled_sum(2, &scaled, NULL) == TUTTI_OK);
    open_place(comm, &place);
    tutti_status status = use(comm, &place, scaled);
    CHECK_THAT(status == fault->status && strstr(said(comm), fault->words) != NULL, "%s: %s: %s", fault->fault,
               tutti_status_name(status), said(comm));
    CHECK((tutti_barrier(comm) == TUTTI_OK) == fault->opens); /* refused, or broken for all */
    if (fault->status == TUTTI_ERR_DEVICE && sync_place(&place) != TUTTI_OK) {
        CHECK(tutti_rank(comm) == 1 && place.error.status == TUTTI_ERR_DEVICE);
        (void)tutti_device_free(place.device, NULL);
        return;
    }
    GOOD(&place, sync_place(&place));
    close_place(&place);
}

/* ---- Calls that end a communicator, and hang or fail ------------------------------------------------------------------ */

static const struct ending {
    const char *fault;
    bool breaks; /* an op has stalled before, so the communicator is revoked and aborted; else it is closed */
    bool stays;  /* what has stalled never ends: the stream is lost with it */
} endings[] = {
    {"ncclCommGetAsyncError:1:1:fail", false, false},
    {"ncclRedOpDestroy:1:1:fail", false, false},
    {"ncclCommFinalize:1:1:fail", false, false},
    {"ncclCommFinalize:1:1:hang", false, false},
    {"ncclCommDestroy:1:1:hang", false, false},
    {"ncclCommFinalize:1:1:hard", false, false},
    {"ncclCommDestroy:1:1:fail", false, false},
    {"ncclAllReduce:2:1:stall,ncclCommRevoke:1:-1:fail", true, false},
    {"ncclAllReduce:2:1:stall,ncclCommAbort:1:-1:fail", true, false},
    {"ncclAllReduce:2:1:stall,ncclCommAbort:1:-1:hard", true, false},
    {"ncclAllReduce:2:1:stall,ncclCommRevoke:1:-1:hard", true, true},
};

/* All are told in time, and leave. */
static void ends_badly(tutti_comm *comm, struct fault_rank *self)
{
    const struct ending *ending = &endings[(int)fault_shared->scratch[0]];
    struct place place;
    tutti_status status = TUTTI_OK;
    (void)self;
    open_place(comm, &place);
    int64_t began = fault_now_ns();
    for (int i = 0; i < 4 && status == TUTTI_OK; i++)
        status = tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, 100, TUTTI_F32, TUTTI_SUM);
    for (int i = 0; i < 400 && status == TUTTI_OK && ending->breaks; i++) {
        status = tutti_barrier(tutti_on(comm, place.stream));
        if (status == TUTTI_OK) fault_sleep_ms(10);
    }
    CHECK_THAT(status == (ending->breaks ? TUTTI_ERR_TIMEOUT : TUTTI_OK), "%s: %s", tutti_status_name(status),
               said(comm));
    if (ending->breaks) CHECK(fault_now_ns() - began < INT64_C(15000000000));
    if (ending->stays) return; /* the process ends with all it has on the device */
    GOOD(&place, sync_place(&place));
    close_place(&place);
}

static void run_endings(void)
{
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char setting[128];
        if (!is_ours()) continue;
        check_title("%s", endings[i].fault);
        snprintf(setting, sizeof setting, "FAKE_NCCL_FAULT=%s", endings[i].fault);
        memset(fault_shared->scratch, 0, sizeof fault_shared->scratch);
        fault_shared->scratch[0] = (char)i;
        struct fault_world world = {.size = 2,
                                    .processes = true,
                                    .body = ends_badly,
                                    .keeps_files = endings[i].stays,
                                    .settings = {"TUTTI_DEVICE_PROVIDER=nccl", "TUTTI_DEADLINE_MS=1000", setting}};
        CHECK(fault_run(&world));
    }
}

/* Without being asked for, NCCL that cannot be opened is done without. */
static void does_without(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    void *native;
    (void)self;
    open_place(comm, &place);
    CHECK_THAT(tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, 10, TUTTI_F32, TUTTI_SUM) == TUTTI_OK,
               "%s", said(comm));
    CHECK(tutti_nccl_comm(comm, &native) == TUTTI_ERR_UNSUPPORTED && native == NULL);
    CHECK_THAT(strstr(said(comm), "made to fail") != NULL, "%s", said(comm));
    GOOD(&place, sync_place(&place));
    close_place(&place);
}

/* What stands in `fault_shared->scratch` is in the refusal; the comm stays usable. */
static void refused(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    (void)self;
    open_place(comm, &place);
    tutti_status status = tutti_barrier(tutti_on(comm, place.stream));
    CHECK_THAT(status == TUTTI_ERR_UNSUPPORTED && strstr(said(comm), fault_shared->scratch) != NULL, "%s: %s",
               tutti_status_name(status), said(comm));
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    close_place(&place);
}

static void run_refused(const char *words, const char *setting, const char *provider)
{
    check_title("refused: %s", words);
    memset(fault_shared->scratch, 0, sizeof fault_shared->scratch);
    snprintf(fault_shared->scratch, sizeof fault_shared->scratch, "%s", words);
    struct fault_world world = {
        .size = 2, .processes = true, .body = refused, .keeps_files = is_real(), .settings = {provider, setting}};
    CHECK(fault_run(&world));
}

/* Each takes as long as its deadline: threads, which differ little, get a third of them, and so do sanitizers. */
static void run_faults(bool processes)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i += processes && !SANITIZED ? 1 : 3) {
        char setting[96];
        /* the leak sanitizer dies of a thread that never returns */
        if (SANITIZED && !processes && strstr(faults[i].fault, ":hard") != NULL) continue;
        if (!processes && faults[i].status == TUTTI_ERR_DEVICE)
            continue; /* they share the GPU's library, which has failed */
        if (!is_ours()) continue;
        check_title("%s, %s", faults[i].fault, processes ? "processes" : "threads");
        snprintf(setting, sizeof setting, "FAKE_NCCL_FAULT=%s", faults[i].fault);
        memset(fault_shared->scratch, 0, sizeof fault_shared->scratch);
        fault_shared->scratch[0] = (char)i;
        struct fault_world world = {.size = 3,
                                    .processes = processes,
                                    .body = goes_wrong,
                                    .settings = {"TUTTI_DEVICE_PROVIDER=nccl", "TUTTI_JOIN_TIMEOUT_MS=3000",
                                                 "TUTTI_DEADLINE_MS=3000", setting}};
        CHECK(fault_run(&world));
    }
    if (share == 0)
        fault_run_set("does without", does_without, 3, processes, "FAKE_NCCL_FAULT=ncclCommInitRankConfig:1:-1:fail");
}

/* ---- Two comms, in different orders ------------------------------------------------------------------------------------ */

struct crossing {
    tutti_comm *comm;
    struct place *place;
    struct fault_rank *self;
    tutti_status status;
};

static void *call_first(void *argument)
{
    struct crossing *crossing = argument;
    struct place *place = crossing->place;
    crossing->status = tutti_all_reduce(tutti_on(crossing->comm, place->stream), place->x, place->y, 100, TUTTI_F32,
                                        TUTTI_SUM);
    atomic_store(&crossing->self->mark, 1);
    return NULL;
}

/* Until ncclAllReduce was called so often in this process. */
static void await_calls(int count)
{
    tutti_library found = {.struct_size = sizeof found};
    tutti_error error;
    CHECK(tutti_library_find("nccl", &found, &error) == TUTTI_OK);
    void *library = dlopen(found.path, RTLD_NOLOAD | RTLD_NOW);
    int (*calls)(const char *) = library == NULL ? NULL : (int (*)(const char *))dlsym(library, "fake_nccl_calls");
    if (!CHECK(calls != NULL)) return;
    for (int i = 0; i < 3000 && calls("ncclAllReduce") < count; i++) fault_sleep_ms(10);
    CHECK(calls("ncclAllReduce") >= count);
    dlclose(library);
}

static tutti_status until_told(tutti_comm *comm)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < 1000 && status == TUTTI_OK; i++) {
        status = tutti_barrier(comm);
        if (status == TUTTI_OK) fault_sleep_ms(10);
    }
    return status;
}

/* Rank 0's first call is late, and comes to the GPU behind the second one; rank 1's come in their order. So each waits for the
 * other, and the error names both. */
static void crossed(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    tutti_comm *other;
    tutti_stream *stream;
    pthread_t thread;
    open_place(comm, &place);
    GOOD(&place, tutti_stream_create(place.device, &stream, &place.error));
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    CHECK(tutti_all_reduce(tutti_on(comm, place.stream), place.x, place.y, 100, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_all_reduce(tutti_on(other, place.stream), place.x, place.y, 200, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    GOOD(&place, sync_place(&place));
    fault_meet(comm);
    struct crossing crossing = {.comm = comm, .place = &place, .self = self};
    CHECK(pthread_create(&thread, NULL, call_first, &crossing) == 0);
    CHECK(fault_await_mark(1, 1));
    await_calls(fault_shared->scratch[0] != 0 ? 3 : 6);
    tutti_status status = tutti_all_reduce(tutti_on(other, stream), place.x + 4096, place.y + 4096, 200, TUTTI_F32,
                                           TUTTI_SUM);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_THAT(status == TUTTI_OK && crossing.status == TUTTI_OK, "%s: %s", said(comm), said(other));
    status = until_told(comm);
    tutti_comm *told = status != TUTTI_OK ? comm : other;
    if (status == TUTTI_OK) status = until_told(other);
    CHECK_THAT(status == TUTTI_ERR_TIMEOUT && strstr(said(told), "all_reduce(100 f32, sum)") != NULL &&
                   strstr(said(told), "all_reduce(200 f32, sum)") != NULL &&
                   strstr(said(told), "in the same order") != NULL,
               "%s: %s", tutti_status_name(status), said(told));
    GOOD(&place, tutti_stream_free(stream, &place.error));
    CHECK(tutti_comm_free(other) == TUTTI_OK);
    GOOD(&place, sync_place(&place));
    close_place(&place);
}

static void run_crossed(bool processes)
{
    struct fault_world world = {.size = 2,
                                .processes = processes,
                                .body = crossed,
                                .settings = {"TUTTI_DEVICE_PROVIDER=nccl", "TUTTI_DEADLINE_MS=2000",
                                             "FAKE_NCCL_IN_TURN=1", "FAKE_NCCL_FAULT=ncclAllReduce:3:0:late"}};
    fault_shared->scratch[0] = processes;
    check_title("two comms in different orders, %s", processes ? "processes" : "threads");
    CHECK(fault_run(&world));
}

/* ---- All of it ------------------------------------------------------------------------------------------------------ */

static void run_results(bool processes, int least, int most)
{
    for (int size = least; size <= most; size += size < 2 ? 1 : 2) {
        run_by_nccl("results", results, size, processes);
        run_by_nccl("ahead", ahead, size, processes);
    }
}

static bool wants(const char *part, const char *name)
{
    return strcmp(part, "all") == 0 || strcmp(part, name) == 0;
}

int main(int argc, char **argv)
{
    const char *part = argc > 2 ? argv[2] : "all";
    tutti_error error;
    tutti_library found = {.struct_size = sizeof found};
    one_gpu = argc > 1 && strcmp(argv[1], "one") == 0;
    if (argc > 3 && strchr(argv[3], '/') != NULL)
        sscanf(argv[3], "%d/%d", &share, &shares);
    else if (argc > 3)
        kills = atoi(argv[3]);
    if (argc < 2 || tutti_library_find("nccl", &found, &error) != TUTTI_OK) {
        printf("skipped: %s\n", argc < 2 ? "tests/cli/nccl.sh runs it" : error.text);
        return 77;
    }
    fault_begin(600);
    bool fake = strstr(found.path, "fake") != NULL;
    if (wants(part, "results") && one_gpu) run_results(false, 1, 1); /* one process is one host */
    if (wants(part, "results") && !one_gpu) run_results(false, 1, 4);
    if (wants(part, "results")) run_results(true, 1, 4);
    if (wants(part, "results")) run_by_nccl("differ", differ, 2, true);
    if (wants(part, "results"))
        run_refused("TUTTI_EXACT=1, and NCCL sums in an order of its own", "TUTTI_EXACT=1",
                    "TUTTI_DEVICE_PROVIDER=nccl");
    if (wants(part, "faults") && fake) run_faults(true);
    if ((wants(part, "faults") || wants(part, "endings")) && fake) run_endings();
    if (wants(part, "faults") && fake && !one_gpu) run_faults(false);
    for (int processes = 0; processes < 2 && fake && !one_gpu; processes++)
        if ((wants(part, "faults") && share == 0) || wants(part, "crossed")) run_crossed(processes != 0);
    if (wants(part, "kills")) run_killed(2, kills - kills / 5);
    if (wants(part, "kills")) run_killed(4, kills / 5);
    return fault_end();
}
