/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan
 *
 * Ranks that share a device, as processes, and one of them is killed in the middle of an all_reduce, or its device fails: all
 * others are told whom and why, within a second, and their streams go on.
 *     test_gpu_faults cuda:0 50 20     on a GPU: 50 kills, 20 illegal addresses
 */
#define TUTTI_NO_CALL_SITES
#include "device/cuda_device.h"
#include "device/host_fault.h"
#include "device/stream.h"
#include "fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/device.h>
#include <unistd.h>

enum { COUNT = 1 << 18, OPS = 60, LONG_MS = 45000, SIZE = 4, VICTIM = 1, PROMISED_MS = 1000 };
enum { TOLD_NS }; /* among a rank's numbers: how long after the victim's end it had its error */

static const char *name = "host";
static int round_number;
static size_t room; /* pieces of work that a stream of device `host` takes; 0: any number */

struct place {
    tutti_device *device;
    tutti_stream *stream;
    tutti_buffer *in, *out;
    float *x, *y; /* where they lie */
    tutti_error error;
};

#define GOOD(place, call) CHECK_THAT((call) == TUTTI_OK, "%s", (place)->error.text)

static void open_place(struct place *place)
{
    memset(place, 0, sizeof *place);
    GOOD(place, tutti_device_open(name, &place->device, &place->error));
    if (strcmp(name, "host") == 0) tti_fault_room(place->device, room);
    GOOD(place, tutti_stream_create(place->device, &place->stream, &place->error));
    GOOD(place, tutti_buffer_create(place->device, TUTTI_MEMORY_SHARED, TUTTI_F32, COUNT, &place->in, &place->error));
    GOOD(place, tutti_buffer_create(place->device, TUTTI_MEMORY_SHARED, TUTTI_F32, COUNT, &place->out, &place->error));
    place->x = tutti_buffer_at(place->in, 0, COUNT);
    place->y = tutti_buffer_at(place->out, 0, COUNT);
}

static void close_place(struct place *place)
{
    CHECK(tutti_buffer_free(place->in, NULL) == TUTTI_OK && tutti_buffer_free(place->out, NULL) == TUTTI_OK);
    GOOD(place, tutti_stream_free(place->stream, &place->error));
    GOOD(place, tutti_device_free(place->device, &place->error));
}

static tutti_status reduce(tutti_comm *comm, struct place *place)
{
    return tutti_all_reduce(tutti_on(comm, place->stream), place->x, place->y, COUNT, TUTTI_F32, TUTTI_SUM);
}

/* When the victim ended, for all processes. */
static _Atomic int64_t *end_ns(void)
{
    return (_Atomic int64_t *)(void *)fault_shared->scratch;
}

/* Ops until one fails: the first word of it that this rank hears. */
static void until_told(tutti_comm *comm, struct place *place, tutti_status wanted, const char *words)
{
    tutti_status status = TUTTI_OK;
    int64_t give_up = fault_now_ns() + LONG_MS * INT64_C(1000000);
    while (status == TUTTI_OK && fault_now_ns() < give_up) status = reduce(comm, place);
    const tutti_error *error = tutti_comm_error(comm);
    CHECK_THAT(status == wanted && error != NULL && error->peer == VICTIM && strstr(error->text, words) != NULL,
               "round %d: %s: %s", round_number, tutti_status_name(status), error == NULL ? "" : error->text);
}

static void dies(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    open_place(&place);
    for (int i = 0; i < OPS; i++) {
        if (i == 7 + round_number % 50 && tutti_rank(comm) == VICTIM % tutti_size(comm)) {
            atomic_store(end_ns(), fault_now_ns());
            (void)kill(getpid(), SIGKILL);
        }
        if (reduce(comm, &place) != TUTTI_OK) break;
    }
    const tutti_error *error = tutti_comm_error(comm);
    if (error == NULL || error->status == TUTTI_OK) until_told(comm, &place, TUTTI_ERR_PEER_LOST, "rank 1");
    self->numbers[TOLD_NS] = fault_now_ns() - atomic_load(end_ns());
    error = tutti_comm_error(comm);
    CHECK_THAT(error != NULL && error->peer == VICTIM, "round %d: %s", round_number, error == NULL ? "" : error->text);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    close_place(&place);
}

/* ---- A full queue ---------------------------------------------------------------------------------------------------- */

enum { FILLS = 1500 }; /* a GPU's stream takes about a thousand pieces of work */

static bool raw; /* the fills are the program's own, and the library does not see them */

static void fill_one(struct place *place, struct tti_stream *stream)
{
    float one = 1;
    if (!raw) {
        GOOD(place, tutti_buffer_fill(place->in, 0, 1, &one, place->stream, &place->error));
        return;
    }
    struct tti_cuda_device *device = tti_cuda_of(stream->device);
    CHECK(tti_cuda_enter(device) == TTI_CUDA_OK);
    CHECK(device->cuda->fill_32((uint64_t)(uintptr_t)place->x, 0, 1, stream->native) == TTI_CUDA_OK);
    tti_cuda_leave(device);
}

/* Puts so much on the stream behind an op which does not end that this thread is held up. */
static void fill_up(struct place *place, struct fault_rank *self)
{
    struct tti_stream *stream = tti_stream_take(place->stream, &place->error);
    for (int i = 0; i < FILLS; i++) {
        fill_one(place, stream);
        atomic_store(&self->mark, i + 1);
    }
    tti_object_give(&stream->object);
}

/* Until the rank puts nothing on its stream any more; one that was only slow is not held up, and all must be right then, too. */
static void await_standstill(int rank)
{
    int before = -1;
    CHECK(fault_await_mark(rank, 1));
    for (int mark; (mark = atomic_load(&fault_shared->ranks[rank].mark)) != before; before = mark) fault_sleep_ms(50);
}

/* Lets the stream stand still for as long as its process lives. */
static void hold(struct place *place)
{
    struct tti_stream *stream = tti_stream_take(place->stream, &place->error);
    struct tti_word *word = NULL;
    GOOD(place, tti_word_take(stream->device, &word, &place->error));
    GOOD(place, tti_stream_hold(stream, word, atomic_load(&word->value) + 1, &place->error));
    tti_object_give(&stream->object);
}

/* The victim's stream never comes to the op. It is killed when the others' threads are held up in the driver: nobody who
 * finds that out may be. If it `issues`, it makes the last call of one more op before, which the others' service threads then
 * issue, and are held up, too. */
static void is_full(tutti_comm *comm, struct fault_rank *self, bool issues)
{
    struct place place;
    tutti_comm *other;
    tutti_op op;
    open_place(&place);
    CHECK(tutti_comm_duplicate(comm, &other) == TUTTI_OK);
    CHECK(reduce(comm, &place) == TUTTI_OK && reduce(other, &place) == TUTTI_OK);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    fault_meet(comm);
    bool victim = tutti_rank(comm) == VICTIM;
    if (victim) hold(&place);
    CHECK(reduce(comm, &place) == TUTTI_OK);
    for (int i = 0; i < tutti_size(comm) && victim; i++)
        if (i != VICTIM) await_standstill(i);
    if (issues)
        CHECK(tutti_all_reduce_start(tutti_on(other, place.stream), place.x, place.y, COUNT, TUTTI_F32, TUTTI_SUM,
                                     &op) == TUTTI_OK);
    if (victim) {
        fault_sleep_ms(100); /* by then the others' service threads may have come to it */
        atomic_store(end_ns(), fault_now_ns());
        (void)kill(getpid(), SIGKILL);
    }
    fill_up(&place, self);
    until_told(comm, &place, TUTTI_ERR_PEER_LOST, "rank 1");
    self->numbers[TOLD_NS] = fault_now_ns() - atomic_load(end_ns());
    if (issues) CHECK(tutti_wait_for(op, LONG_MS) == TUTTI_ERR_PEER_LOST);
    GOOD(&place, tutti_stream_sync(place.stream, LONG_MS, &place.error));
    CHECK(tutti_comm_free(other) == TUTTI_OK);
    close_place(&place);
}

static void fills(tutti_comm *comm, struct fault_rank *self)
{
    is_full(comm, self, false);
}

static void fills_and_issues(tutti_comm *comm, struct fault_rank *self)
{
    is_full(comm, self, true);
}

/* ---- A device that fails ------------------------------------------------------------------------------------------- */

static const char wild_code[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .entry wild(.param .align 8 .b8 a[8])\n{\n.reg .b64 %d<2>;\n.reg .b32 %r;\n"
                                "ld.param.u64 %d0, [a];\nmov.u32 %r, 1;\nst.global.u32 [%d0], %r;\nret;\n}\n";

static void write_wildly(struct place *place)
{
    struct tti_kernel kernel = {.name = "wild"};
    struct tti_launch_shape shape = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    uint64_t nowhere = 16;
    struct tti_stream *stream = tti_stream_take(place->stream, &place->error);
    if (strncmp(name, "cuda", 4) != 0) {
        tti_fault_poison(place->device, 700, "an illegal address", "wild");
    } else {
        GOOD(place, stream->device->ops->load(stream->device, wild_code, &kernel, &place->error));
        GOOD(place, tti_stream_launch(stream, &kernel, &shape, &nowhere, sizeof nowhere, &place->error));
    }
    tti_object_give(&stream->object);
}

static void fails(tutti_comm *comm, struct fault_rank *self)
{
    struct place place;
    bool victim = tutti_rank(comm) == VICTIM;
    tutti_status status = TUTTI_OK;
    open_place(&place);
    for (int i = 0; i < OPS && status == TUTTI_OK; i++) {
        if (i == 20 && victim) {
            atomic_store(end_ns(), fault_now_ns());
            write_wildly(&place);
        }
        status = reduce(comm, &place);
    }
    if (!victim && status == TUTTI_OK) {
        until_told(comm, &place, TUTTI_ERR_DEVICE, "rank 1");
    } else if (!victim) {
        const tutti_error *error = tutti_comm_error(comm);
        CHECK_THAT(status == TUTTI_ERR_DEVICE && error != NULL && error->peer == VICTIM, "%s: %s",
                   tutti_status_name(status), error == NULL ? "" : error->text);
    } else {
        int64_t give_up = fault_now_ns() + LONG_MS * INT64_C(1000000);
        while (status == TUTTI_OK && fault_now_ns() < give_up) status = reduce(comm, &place);
        CHECK_THAT(status == TUTTI_ERR_DEVICE, "the one that failed has %s", tutti_status_name(status));
    }
    self->numbers[TOLD_NS] = fault_now_ns() - atomic_load(end_ns());
    fault_meet(comm);
    (void)tutti_device_free(place.device, NULL);
}

static void expect_end(struct fault_world *world)
{
    (void)world;
    fault_expect_end(VICTIM);
}

static void run(const char *title, fault_body *body, int size, bool ends)
{
    struct fault_world world = {.size = size,
                                .processes = true,
                                .body = body,
                                .meanwhile = ends ? expect_end : NULL,
                                .keeps_files = strcmp(name, "host") != 0,
                                .settings = {"TUTTI_DEVICE_PROVIDER=cuda", "FAKE_CUDA_QUEUE=1000"}};
    check_title("%s, round %d", title, round_number);
    fault_run(&world);
    for (int rank = 0; rank < size; rank++) /* ranks are processes: only here all times are known */
        if (rank != VICTIM) fault_time(title, fault_shared->ranks[rank].numbers[TOLD_NS], PROMISED_MS);
}

int main(int argc, char **argv)
{
    int kills = argc > 2 ? atoi(argv[2]) : 5, failures = argc > 3 ? atoi(argv[3]) : 3;
    if (argc > 1) name = argv[1];
    fault_begin(argc > 1 ? 400 : 110);
    for (round_number = 0; round_number < kills; round_number++) run("a rank is killed", dies, SIZE, true);
    for (round_number = 0; round_number < failures; round_number++) run("a device fails", fails, SIZE, false);
    room = 1000;
    for (round_number = 0; round_number < 4; round_number++) {
        raw = round_number % 2 == 1 && strcmp(name, "host") != 0;
        run("a rank is killed, and the others' queues are full", fills, SIZE, true);
        run("a rank is killed, and full queues hold up an op", fills_and_issues, round_number < 2 ? 2 : SIZE, true);
    }
    return fault_end();
}
