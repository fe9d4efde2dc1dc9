/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/round.h"
#include "base/status.h"
#include "collective/op/many.h"
#include "collective/stream/cuda_engine.h"
#include "device/buffer.h"
#include "device/nvrtc.h"
#include "device/open.h"
#include "device/stream.h"
#include <string.h>
#include <unistd.h>

static struct tti_cuda_engine *engine_of(const struct tti_started *started)
{
    return started->turn->comm->queue.streams->engine;
}

/* ---- Opening ------------------------------------------------------------------------------------------------------- */

/* What each rank tells the others: addresses are valid in its process only. */
struct opening {
    struct tti_opening common;
    uint64_t words;                 /* where the words lie in this process; told by its first rank */
    struct tti_place shared;        /* the launcher's memory for the words */
    uint64_t marks[TTI_CUDA_SLOTS]; /* handles of the launcher's `ended`, or of the rank's `ready` */
};

/* Reaches a device of this process that is another GPU: also memory that its rank has allocated by itself. */
static tutti_status reach_device(struct tti_cuda_engine *engine, struct tti_device *other, tutti_error *error)
{
    struct tti_device *device = engine->device;
    return other == device || device->ops->reach == NULL ? TUTTI_OK : device->ops->reach(device, other, error);
}

/* Lets this device use the memory of the near ranks' devices: at first, and when one of the two was opened again. */
static tutti_status reach_all(struct tti_cuda_engine *engine, tutti_error *error)
{
    for (int rank = 0; rank < engine->comm->size; rank++) {
        struct tti_cuda_marks *marks = &engine->others[rank];
        if (marks->slots[0] == NULL || marks->reached == marks->slots[0]->generation) continue;
        TTI_TRY(reach_device(engine, marks->slots[0]->device, error));
        marks->reached = marks->slots[0]->generation;
    }
    return TUTTI_OK;
}

static tutti_status take_all_marks(struct tti_cuda_engine *engine, const struct opening *all, tutti_error *error)
{
    tutti_comm *comm = engine->comm;
    if (!engine->near) return TUTTI_OK;
    if (comm->rank != TTI_LAUNCHER) return tti_cuda_marks_take(&engine->ended, all[TTI_LAUNCHER].marks, error);
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank && tti_is_of_this_process(comm, rank))
            TTI_TRY(tti_cuda_marks_take(&engine->others[rank], all[rank].marks, error));
    return reach_all(engine, error);
}

static bool allocate(struct tti_cuda_engine *engine, size_t n)
{
    engine->in = tti_calloc(n, sizeof *engine->in);
    engine->out = tti_calloc(n, sizeof *engine->out);
    engine->factors = tti_calloc(n, sizeof *engine->factors);
    engine->counts = tti_calloc(n, sizeof *engine->counts);
    engine->flows = tti_calloc(n * n, sizeof *engine->flows);
    engine->others = tti_calloc(n, sizeof *engine->others);
    return engine->in != NULL && engine->out != NULL && engine->factors != NULL && engine->counts != NULL &&
           engine->flows != NULL && engine->others != NULL;
}

/* Returns whole pages, since only these are registered with devices. */
static size_t shared_bytes(const tutti_comm *comm)
{
    return tti_round_up((2 + (size_t)comm->size) * sizeof(struct tti_word), (size_t)sysconf(_SC_PAGESIZE));
}

/* Without the compiler no call could be carried out: this is found now, while all ranks may still stage. */
static tutti_status check_compiler(const struct tti_device *device, tutti_error *error)
{
    if (strcmp(device->ops->kind, "host") == 0 || tti_nvrtc_load(error) != NULL) return TUTTI_OK;
    return error->status;
}

static tutti_status make_counters(struct tti_cuda_engine *engine, tutti_error *error)
{
    engine->cleared = false;
    TTI_TRY(
        tutti_buffer_create(engine->device->object.handle, TUTTI_MEMORY_LOCAL, TUTTI_U32, 2, &engine->counting, error));
    engine->counters = tutti_buffer_at(engine->counting, 0, 2);
    return TUTTI_OK;
}

/* The words lie in the launcher's arena, which all local ranks map, and stay there: another rank may still read them
 * when the launcher needs them no more. */
static tutti_status launcher_open(struct tti_cuda_engine *engine, struct opening *opening, tutti_error *error)
{
    tutti_comm *comm = engine->comm;
    size_t bytes = shared_bytes(comm);
    if (!allocate(engine, (size_t)comm->size))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for launches");
    TTI_TRY(check_compiler(engine->device, error));
    TTI_TRY(make_counters(engine, error));
    char *base = tti_arena_alloc(comm->world->arena, bytes, error);
    if (base == NULL) return TUTTI_ERR_MEMORY;
    opening->shared = tti_place_of(comm, base, bytes);
    return TUTTI_OK;
}

/* Returns the lowest of a process's ranks, which registers the words with the device. */
static int first_of_process(const tutti_comm *comm)
{
    int rank = 0;
    while (!tti_is_of_this_process(comm, rank)) rank++;
    return rank;
}

static tutti_status enlist_words(struct tti_cuda_engine *engine, const struct opening *all, tutti_error *error)
{
    tutti_comm *comm = engine->comm;
    char *base = tti_place_resolve(comm, all[TTI_LAUNCHER].shared, tti_is_of_this_process(comm, TTI_LAUNCHER));
    if (first_of_process(comm) == comm->rank) {
        TTI_TRY(engine->device->ops->enlist_words(engine->device, base, shared_bytes(comm), error));
        engine->shared = base;
    }
    TTI_TRY(take_all_marks(engine, all, error));
    return tti_mark_make(engine->device, &engine->raised, error);
}

static void engine_free(struct tti_cuda_engine *engine)
{
    tti_offers_free(&engine->offers);
    tti_cuda_marks_give(&engine->ready);
    tti_cuda_marks_give(&engine->ended);
    for (int rank = 0; engine->others != NULL && rank < engine->comm->size; rank++)
        tti_cuda_marks_give(&engine->others[rank]);
    tti_free(engine->others);
    (void)tutti_buffer_free(engine->counting, NULL);
    if (engine->raised != NULL) tti_object_give(&engine->raised->object);
    if (engine->shared != NULL) engine->device->ops->withdraw_words(engine->device, engine->shared);
    tti_free(engine->in);
    tti_free(engine->out);
    tti_free(engine->factors);
    tti_free(engine->counts);
    tti_free(engine->flows);
    tti_free(engine->tables);
    tti_free(engine);
}

/* The ranks agree twice: on what the launcher has made, and on that all have found it. */
static tutti_status agree(struct tti_cuda_engine *engine, struct opening *mine, struct opening *all, tutti_error *error)
{
    tutti_comm *comm = engine->comm;
    bool launches = comm->rank == TTI_LAUNCHER;
    tutti_status status = launches ? launcher_open(engine, mine, error) : TUTTI_OK;
    if (status == TUTTI_OK && engine->near)
        status = tti_cuda_marks_make(engine->device, launches ? &engine->ended : &engine->ready, mine->marks, error);
    tti_opening_note(&mine->common, status, error);
    TTI_TRY(tti_streams_agree(comm, engine->streams, &mine->common, all, sizeof *mine, error));
    status = enlist_words(engine, all, error);
    tti_opening_note(&mine->common, status, error);
    mine->words = (uint64_t)(uintptr_t)engine->shared;
    return tti_streams_agree(comm, engine->streams, &mine->common, all, sizeof *mine, error);
}

static tutti_status open_all(struct tti_cuda_engine *engine, struct opening *all, tutti_error *error)
{
    tutti_comm *comm = engine->comm;
    struct opening mine = {0};
    engine->near = tti_is_of_this_process(comm, TTI_LAUNCHER);
    tutti_status status = agree(engine, &mine, all, error);
    tti_cuda_marks_revoke(mine.marks);
    TTI_TRY(status);
    struct tti_word *words = (struct tti_word *)(uintptr_t)all[first_of_process(comm)].words;
    engine->words = (struct tti_cuda_words){.abort = words, .done = words + 1, .ready = words + 2};
    engine->offers.passed = engine->words.done;
    return TUTTI_OK;
}

tutti_status tti_cuda_engine_open(tutti_comm *comm, struct tti_streams *streams, tutti_error *error)
{
    struct tti_cuda_engine *engine = tti_calloc(1, sizeof *engine);
    struct opening *all = tti_calloc((size_t)comm->size, sizeof *all);
    if (engine == NULL || all == NULL) { /* the others would wait for this rank */
        tti_free(engine);
        tti_free(all);
        return tti_comm_break(comm, comm->op.shape.kind, TUTTI_ERR_MEMORY, comm->rank,
                              "rank %d has no memory for calls on streams", comm->rank);
    }
    engine->comm = comm;
    engine->streams = streams;
    engine->device = streams->device;
    engine->offers = (struct tti_offers){.comm = comm, .device = streams->device};
    tutti_status status = open_all(engine, all, error);
    tti_free(all);
    if (status == TUTTI_OK)
        streams->engine = engine;
    else
        engine_free(engine);
    return status;
}

static void close_engine(struct tti_streams *streams)
{
    if (streams->engine != NULL) engine_free(streams->engine);
    streams->engine = NULL;
}

/* Makes the engine anew. The words and the marks stay where they are, since other ranks know them. */
static tutti_status renew(struct tti_streams *streams, tutti_error *error)
{
    struct tti_cuda_engine *engine = streams->engine;
    bool launches = engine->comm->rank == TTI_LAUNCHER;
    tti_offers_unmap(&engine->offers);
    engine->raised_on = engine->launched_on = NULL;
    TTI_TRY(tti_mark_renew(engine->raised, error));
    TTI_TRY(tti_cuda_marks_renew(launches ? &engine->ended : &engine->ready, error));
    if (!launches) return TUTTI_OK;
    for (int rank = 0; rank < engine->comm->size; rank++) engine->others[rank].reached = 0;
    (void)tutti_buffer_free(engine->counting, NULL);
    engine->counting = NULL;
    return make_counters(engine, error);
}

/* ---- One op -------------------------------------------------------------------------------------------------------- */

static bool supports(const struct tti_streams *streams, const struct tti_op *op)
{
    (void)streams;
    return op->reducer.code != TTI_REDUCE_FUNCTION && op->shape.size <= TTI_GPU_RANKS;
}

/* Returns an offer of the op's k-th buffer: `in` of the first piece, `out` of it, and so on. */
static struct tti_offer place_of(struct tti_cuda_engine *engine, const struct tti_op *op, size_t k)
{
    const struct tti_shape *shape = &op->shape;
    bool is_out = k % 2 == 1;
    if (op->many == NULL)
        return is_out ? tti_offer_of(&engine->offers, op->out, op->out_bytes, engine->near)
                      : tti_offer_of(&engine->offers, op->in, op->in_bytes, engine->near);
    const tutti_piece *piece = &op->many->pieces[k / 2];
    uint64_t bytes = piece->count * shape->element;
    bool blocks = shape->kind == (is_out ? TTI_ALL_GATHER : TTI_REDUCE_SCATTER);
    bool used = is_out || shape->kind != TTI_BROADCAST || shape->root == shape->rank;
    return tti_offer_of(&engine->offers, is_out ? piece->out : piece->in,
                        !used    ? 0
                        : blocks ? bytes * (uint64_t)shape->size
                                 : bytes,
                        engine->near);
}

/* Raises this rank's word. Words only grow: a raise on another stream than before follows the last one. Ops of a comm
 * run in order anyway. */
static tutti_status raise_ready(struct tti_cuda_engine *engine, struct tti_stream *stream, bool *by_marks,
                                tutti_error *error)
{
    struct tti_word *word = &engine->words.ready[engine->comm->rank];
    uint64_t followed = atomic_load_explicit(&engine->followed, memory_order_relaxed);
    *by_marks = engine->ready.slots[0] != NULL && engine->readies + 1 - followed < TTI_CUDA_SLOTS;
    if (engine->raised_on != NULL && engine->raised_on != stream)
        TTI_TRY(tti_stream_after(stream, engine->raised, error));
    if (*by_marks) TTI_TRY(tti_stream_record(stream, tti_cuda_mark_of(&engine->ready, engine->readies + 1), error));
    TTI_TRY(tti_stream_raise(stream, word, engine->readies + 1, error));
    engine->readies++;
    TTI_TRY(tti_stream_record(stream, engine->raised, error));
    engine->raised_on = stream;
    return TUTTI_OK;
}

static void set_verdict(struct tti_verdict *verdict, tutti_status status, const tutti_error *error)
{
    verdict->status = status;
    snprintf(verdict->text, sizeof verdict->text, "%.*s", (int)sizeof verdict->text - 1, error->text);
}

static tutti_status show(struct tti_started *started, tutti_error *error)
{
    struct tti_cuda_engine *engine = engine_of(started);
    struct tti_turn *turn = started->turn;
    struct tti_op *op = &started->op;
    struct tti_cuda_shown *shown = (void *)turn->mine;
    size_t places = 2 * (op->many == NULL ? 1 : op->many->count);
    for (size_t i = 0; i < places; i++) shown->places[i] = place_of(engine, op, i);
    shown->factor = op->reducer.factor;
    if (started->row != NULL)
        memcpy(&shown->places[places], started->row, TTI_GIVEN * (size_t)op->shape.size * sizeof *started->row);
    if (engine->comm->rank == TTI_LAUNCHER) { /* loading waits for all streams: now no stream holds for this op yet */
        tutti_error why = {0};
        tutti_status status = tti_cuda_prepare(started, &turn->kernel, &why);
        if (status != TUTTI_OK) set_verdict(&turn->verdict, status, &why);
    }
    bool by_marks = false;
    TTI_TRY(raise_ready(engine, turn->stream, &by_marks, error));
    shown->ready = engine->readies;
    shown->by_marks = by_marks;
    return TUTTI_OK;
}

static tutti_status await_ready(struct tti_cuda_engine *engine, const struct tti_started *started, tutti_error *error)
{
    struct tti_stream *stream = started->turn->stream;
    for (int rank = 0; rank < engine->comm->size; rank++) {
        const struct tti_cuda_shown *shown = tti_cuda_shown_of(started, rank);
        if (rank == engine->comm->rank) continue;
        if (shown->by_marks != 0)
            TTI_TRY(tti_stream_after(stream, tti_cuda_mark_of(&engine->others[rank], shown->ready), error));
        else
            TTI_TRY(tti_stream_hold(stream, &engine->words.ready[rank], shown->ready, error));
    }
    return TUTTI_OK;
}

static tutti_status clear_counters(struct tti_cuda_engine *engine, struct tti_stream *stream, tutti_error *error)
{
    uint32_t none = 0;
    if (engine->cleared) return TUTTI_OK;
    TTI_TRY(tti_stream_fill(stream, engine->counters, 2, &none, sizeof none, error));
    engine->cleared = true;
    return TUTTI_OK;
}

/* Ends are counted, so they must come in order: a launch on another stream than before follows the last one. */
static tutti_status launch_on(struct tti_cuda_engine *engine, struct tti_started *started, tutti_error *error)
{
    struct tti_stream *stream = started->turn->stream;
    TTI_TRY(reach_all(engine, error));
    TTI_TRY(clear_counters(engine, stream, error));
    if (engine->launched_on != NULL && engine->launched_on != stream)
        TTI_TRY(tti_stream_hold(stream, engine->words.done, engine->launched, error));
    TTI_TRY(await_ready(engine, started, error));
    TTI_TRY(tti_cuda_launch_all(engine, started, engine->launched + 1, error));
    engine->launched++;
    TTI_TRY(tti_stream_record(stream, tti_cuda_mark_of(&engine->ended, engine->launched), error));
    engine->launched_on = stream;
    return TUTTI_OK;
}

static void launch(struct tti_started *started)
{
    struct tti_cuda_engine *engine = engine_of(started);
    struct tti_verdict *verdict = &started->turn->verdict;
    tutti_error error = {0};
    bool reaches = true;
    if (verdict->status != TUTTI_OK) return;
    tutti_status status = tti_cuda_check_shown(engine, started, &reaches, &error);
    if (status == TUTTI_OK && !reaches && started->turn->comm->queue.streams->forced)
        status = tti_error_set(
            &error, TUTTI_ERR_UNSUPPORTED, 0,
            "TUTTI_DEVICE_PROVIDER=cuda, and rank 0 cannot reach the memory of all ranks; use "
            "TUTTI_MEMORY_SHARED, or leave it at auto, so that such calls are staged through the host");
    if (status == TUTTI_OK && reaches) status = launch_on(engine, started, &error);
    verdict->by_host = !reaches;
    verdict->done = engine->launched;
    if (status != TUTTI_OK) set_verdict(verdict, status, &error);
}

static tutti_status follow(struct tti_started *started, struct tti_stream *stream, tutti_error *error)
{
    struct tti_cuda_engine *engine = engine_of(started);
    const struct tti_turn *turn = started->turn;
    const struct tti_cuda_shown *shown = (const void *)turn->mine;
    if (turn->comm->rank == TTI_LAUNCHER && turn->stream == stream) return TUTTI_OK;
    /* the op's own stream follows before the next op is launched; others may come late, when the mark stands for
     * another op */
    if (turn->stream != stream || turn->comm->rank == TTI_LAUNCHER || engine->ended.slots[0] == NULL)
        return tti_stream_hold(stream, engine->words.done, turn->verdict.done, error);
    atomic_store_explicit(&engine->followed, shown->ready, memory_order_relaxed);
    return tti_stream_after(stream, tti_cuda_mark_of(&engine->ended, turn->verdict.done), error);
}

/* ---- Watching ------------------------------------------------------------------------------------------------------ */

static bool reached(const struct tti_started *started)
{
    const struct tti_cuda_engine *engine = engine_of(started);
    const struct tti_cuda_shown *shown = (const void *)started->turn->mine;
    return tti_word_reached(&engine->words.ready[engine->comm->rank], shown->ready);
}

/* Returns true once kernels that begin touch nothing. A kernel that has ended while this was false has done its
 * work. */
static bool is_aborted(const struct tti_cuda_engine *engine)
{
    return atomic_load_explicit(&engine->words.abort->value, memory_order_acquire) != 0;
}

/* For words: returns a rank whose stream has not come to the op, or -1. */
static int find_missing(const struct tti_cuda_engine *engine, const struct tti_started *started)
{
    for (int rank = 0; rank < engine->comm->size; rank++)
        if (!tti_word_reached(&engine->words.ready[rank], tti_cuda_shown_of(started, rank)->ready)) return rank;
    return -1;
}

static tutti_status progress(struct tti_op *op)
{
    struct tti_started *started = tti_started_of(op);
    struct tti_cuda_engine *engine = engine_of(started);
    struct tti_device *device = engine->device;
    tutti_error error = {0};
    if (tti_word_is_far(engine->words.done, started->turn->verdict.done)) return tti_turn_released(started);
    if (tti_word_reached(engine->words.done, started->turn->verdict.done))
        return is_aborted(engine) ? tti_turn_inherit(started) : TUTTI_OK;
    if (started->turn->watched) op->waiting_for = find_missing(engine, started);
    if (!tti_device_is_poisoned(device)) return TUTTI_IN_PROGRESS;
    tti_device_poison_error(device, &error);
    return tti_comm_break(op->comm, (enum tti_kind)op->call.kind, TUTTI_ERR_DEVICE, op->comm->rank, "rank %d: %s",
                          op->comm->rank, error.text);
}

/* Raises the words of lost ranks, by any rank that is left: kernels see `abort` first, and touch nothing. */
static void release(struct tti_cuda_engine *engine)
{
    const struct tti_cuda_words *words = &engine->words;
    tti_word_store(words->abort, 1);
    for (int rank = 0; rank < engine->comm->size; rank++) tti_word_store(&words->ready[rank], TTI_WORD_FAR);
}

/* Returns true if the rank is lost. It is marked so when its process has ended, and with it all work that it had put on
 * the device. */
static bool is_lost(const tutti_comm *comm, int rank)
{
    return atomic_load_explicit(&tti_info_of(comm, rank)->state, memory_order_acquire) == TTI_RANK_LOST;
}

static void abandon(struct tti_streams *streams)
{
    release(streams->engine);
}

static void stop(struct tti_op *op)
{
    release(engine_of(tti_started_of(op)));
}

static bool fence(struct tti_op *op, int64_t until_ns)
{
    struct tti_started *started = tti_started_of(op);
    struct tti_cuda_engine *engine = engine_of(started);
    if (tti_word_reached(engine->words.done, started->turn->verdict.done)) return true;
    if (tti_device_is_poisoned(engine->device)) return true;
    release(engine);
    if (!is_lost(engine->comm, TTI_LAUNCHER) && tti_now_ns() < until_ns) return false;
    /* no rank raises it any more, or not soon: streams that wait for it go on */
    tti_word_store(engine->words.done, started->turn->verdict.done + TTI_WORD_FAR);
    return true;
}

const struct tti_device_provider tti_device_provider_cuda = {
    .carrier = TTI_ON_CUDA,
    .ops = {.name = "cuda", .progress = progress, .stop = stop, .fence = fence},
    .supports = supports,
    .shown_bytes = tti_cuda_shown_bytes,
    .show = show,
    .launch = launch,
    .reached = reached,
    .follow = follow,
    .abandon = abandon,
    .give_up = abandon,
    .renew = renew,
    .close = close_engine,
};
