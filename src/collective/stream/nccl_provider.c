/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/stream/nccl_engine.h"
#include "device/open.h"
#include "device/stream.h"
#include <string.h>
#include <tutti/device.h>

#define MS INT64_C(1000000)
enum { POLL_MS = 10 };

#define QUIET_NS INT64_C(500000)    /* time without an op before the end of the last ones is asked for */
#define BLAME_NS INT64_C(500000000) /* time for a rank that NCCL may have lost to be found lost */

static struct tti_nccl_engine *engine_of(const struct tti_started *started)
{
    return started->turn->comm->queue.streams->engine;
}

/* ---- Several comms ------------------------------------------------------------------------------------------------- */

/* The engines of this process. A comm is not freed while its engine is in the list. */
static struct tti_link engines = {&engines, &engines};
static pthread_mutex_t engines_lock = PTHREAD_MUTEX_INITIALIZER;

static void enlist(struct tti_nccl_engine *engine, tutti_comm *data)
{
    pthread_mutex_lock(&engines_lock);
    engine->data = data;
    tti_list_append(&engines, &engine->link);
    pthread_mutex_unlock(&engines_lock);
}

static void withdraw(struct tti_nccl_engine *engine)
{
    pthread_mutex_lock(&engines_lock);
    tti_list_remove(&engine->link);
    pthread_mutex_unlock(&engines_lock);
}

/* Finds the oldest op of the comm that flies. */
static bool find_flying(tutti_comm *data, struct tti_call *call)
{
    tti_lock(&data->queue.lock);
    const struct tti_started *first = data->queue.first;
    bool flies = first != NULL && tti_turn_flies(first);
    if (flies) *call = first->op.call;
    tti_unlock(&data->queue.lock);
    return flies;
}

/* The kernels of several communicators may wait for each other if ranks have put them on the GPU in different orders. */
static void advise(const struct tti_started *started, char *text, size_t bytes)
{
    const struct tti_nccl_engine *engine = engine_of(started);
    char other[160] = "";
    struct tti_call call;
    int others = 0;
    pthread_mutex_lock(&engines_lock);
    TTI_LIST_EACH(link, &engines)
    {
        const struct tti_nccl_engine *beside = TTI_LIST_OF(link, struct tti_nccl_engine, link);
        if (beside == engine || beside->device->number != engine->device->number) continue;
        if (find_flying(beside->data, &call) && others++ == 0) tti_call_describe(&call, other, sizeof other);
    }
    pthread_mutex_unlock(&engines_lock);
    if (others == 0) return;
    snprintf(
        text, bytes,
        "; NCCL also has %s of another comm on %s%s: ops of several comms must be put on a GPU in the same order on "
        "all ranks",
        other, engine->device->name, others == 1 ? "" : ", and ops of more comms");
}

/* ---- Waiting for the engine's thread ------------------------------------------------------------------------------- */

/* A thread that waits for NCCL watches the other ranks: NCCL may wait for one that is gone. */
static tutti_status look_at_others(tutti_comm *comm, enum tti_kind kind)
{
    if (tti_comm_is_broken(comm)) return tti_comm_health(comm, kind, false);
    if (!tti_queue_try(comm)) return TUTTI_OK;
    tutti_status status = tti_comm_health(comm, kind, !comm->traits.all_threads);
    tti_queue_give_back(comm);
    return status;
}

struct patience {
    enum tti_kind kind;
    int64_t limit_ms;
    const char *call, *option; /* the call of NCCL, and the option that sets the limit */
};

static tutti_status await_thread(struct tti_nccl_engine *engine, tutti_comm *comm, const struct patience *patience,
                                 tutti_error *error)
{
    int64_t now = tti_now_ns(), until = now + patience->limit_ms * MS, looked = now, nap = 0;
    while (!tti_nccl_finished(engine)) {
        tti_poll_nap(&nap);
        now = tti_now_ns();
        if (now - looked >= POLL_MS * MS) {
            looked = now;
            tutti_status status = look_at_others(comm, patience->kind);
            if (status != TUTTI_OK)
                return tti_error_set(error, status, 0, "a rank was lost, or failed, in %s", patience->call);
        }
        if (now >= until)
            return tti_error_set(error, TUTTI_ERR_TIMEOUT, 0, "NCCL has not returned from %s after %lld ms (%s)",
                                 patience->call, (long long)patience->limit_ms, patience->option);
    }
    if (engine->orders.status == TUTTI_OK) return TUTTI_OK;
    return tti_error_set(error, engine->orders.status, 0, "%s", engine->orders.text);
}

/* Returns true if the communicator is gone by then. */
static bool await_end(const struct tti_nccl_engine *engine, int64_t until_ns)
{
    int64_t nap = 0;
    while (!tti_nccl_is_gone(engine) && tti_now_ns() < until_ns) tti_poll_nap(&nap);
    return tti_nccl_is_gone(engine);
}

/* ---- Opening and closing ------------------------------------------------------------------------------------------- */

/* What each rank tells the others. */
struct opening {
    struct tti_opening common;
    int32_t version, capability;
    struct tti_nccl_id id; /* the id of rank 0 is used */
};

static tutti_status agree(tutti_comm *comm, struct tti_streams *streams, const struct opening *mine,
                          struct opening *all, tutti_error *error)
{
    TTI_TRY(tti_streams_agree(comm, streams, &mine->common, all, sizeof *mine, error));
    for (int rank = 0; rank < comm->size; rank++)
        if (all[rank].version != all[0].version)
            return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                                 "rank 0 has NCCL's version %d and rank %d has %d; all must have the same",
                                 all[0].version, rank, all[rank].version);
    return TUTTI_OK;
}

static tutti_status let_thread(struct tti_nccl_engine *engine, tutti_comm *comm, enum tti_nccl_task task,
                               const char *call, tutti_error *error)
{
    struct patience patience = {.kind = comm->op.shape.kind,
                                .limit_ms = comm->world->options.join_timeout_ms,
                                .call = call,
                                .option = "TUTTI_JOIN_TIMEOUT_MS"};
    tti_nccl_order(engine, task);
    return await_thread(engine, comm, &patience, error);
}

/* Prepares the engine; rank 0 takes the id. Every rank has all it needs before any makes a call that waits for all. */
static tutti_status prepare(struct tti_nccl_engine **engine, tutti_comm *comm, struct tti_streams *streams,
                            struct opening *mine, tutti_error *error)
{
    tutti_device_about about = {.struct_size = sizeof about};
    TTI_TRY(tti_nccl_engine_make(streams->device, engine, error));
    TTI_TRY(streams->device->ops->describe(streams->device, &about, error));
    (*engine)->rank = comm->rank;
    (*engine)->size = comm->size;
    (*engine)->fence_ns = comm->world->options.fence_ms * MS;
    (*engine)->broken = &comm->area->broken;
    mine->version = (*engine)->nccl->number;
    mine->capability = about.capability;
    if (comm->rank != 0) return TUTTI_OK;
    TTI_TRY(let_thread(*engine, comm, TTI_NCCL_GET_ID, "ncclGetUniqueId", error));
    mine->id = (*engine)->id;
    return TUTTI_OK;
}

static tutti_status open_all(struct tti_nccl_engine **engine, tutti_comm *comm, struct tti_streams *streams,
                             struct opening *all, tutti_error *error)
{
    struct opening mine = {0};
    tti_opening_note(&mine.common, prepare(engine, comm, streams, &mine, error), error);
    TTI_TRY(agree(comm, streams, &mine, all, error));
    (*engine)->id = all[0].id;
    (*engine)->traits = (struct tti_nccl_traits){all[0].version, all[0].capability};
    for (int rank = 1; rank < comm->size; rank++)
        if (all[rank].capability < (*engine)->traits.capability) (*engine)->traits.capability = all[rank].capability;
    tti_opening_note(&mine.common, let_thread(*engine, comm, TTI_NCCL_INIT, "ncclCommInitRankConfig", error), error);
    return agree(comm, streams, &mine, all, error);
}

/* Lets go of the engine. Its threads end by themselves, now or when NCCL lets them. */
static void dismiss(struct tti_nccl_engine *engine)
{
    pthread_mutex_lock(&engine->orders.lock);
    engine->broken = NULL;
    pthread_mutex_unlock(&engine->orders.lock);
    tti_nccl_order(engine, TTI_NCCL_END);
    tti_nccl_engine_give(engine);
}

tutti_status tti_nccl_engine_open(tutti_comm *comm, struct tti_streams *streams, tutti_error *error)
{
    struct tti_nccl_engine *engine = NULL;
    struct opening *all = tti_calloc((size_t)comm->size, sizeof *all);
    if (all == NULL) /* the others would wait for this rank */
        return tti_comm_break(comm, comm->op.shape.kind, TUTTI_ERR_MEMORY, comm->rank,
                              "rank %d has no memory for calls on streams", comm->rank);
    tutti_status status = open_all(&engine, comm, streams, all, error);
    tti_free(all);
    if (status == TUTTI_OK) {
        streams->engine = engine;
        enlist(engine, streams->data);
    } else if (engine != NULL) {
        tti_nccl_reap(engine);
        dismiss(engine);
    }
    return status;
}

static bool is_whole(struct tti_nccl_engine *engine)
{
    return atomic_load_explicit(&engine->life, memory_order_acquire) == TTI_NCCL_ALIVE &&
           atomic_load_explicit(engine->broken, memory_order_acquire) == TTI_WHOLE;
}

/* If the comm is not broken, the ranks close the communicator together, as far as they come. */
static void close_engine(struct tti_streams *streams)
{
    struct tti_nccl_engine *engine = streams->engine;
    int64_t nap = 0, now = tti_now_ns(), until = now + TTI_DEVICE_CLOSE_NS;
    if (engine == NULL) return;
    streams->engine = NULL;
    withdraw(engine);
    if (is_whole(engine)) {
        tti_nccl_order(engine, TTI_NCCL_CLOSE);
        while (!tti_nccl_finished(engine) && tti_now_ns() < until) tti_poll_nap(&nap);
        if (!tti_nccl_finished(engine)) {
            tti_log(TUTTI_WARN, "rank %d: NCCL does not return from closing its communicator", engine->rank);
            tti_nccl_reap(engine);
        } else if (engine->orders.status != TUTTI_OK) {
            tti_log(TUTTI_WARN, "rank %d: %s", engine->rank, engine->orders.text);
        }
    } else {
        tti_nccl_reap(engine);
        (void)await_end(engine, now + engine->fence_ns);
    }
    dismiss(engine);
}

static tutti_status renew(struct tti_streams *streams, tutti_error *error)
{
    return tti_nccl_engine_renew(streams->engine, error);
}

/* ---- One op -------------------------------------------------------------------------------------------------------- */

static bool supports(const struct tti_streams *streams, const struct tti_op *op)
{
    const struct tti_nccl_engine *engine = streams->engine;
    return tti_nccl_supports(&engine->traits, op);
}

static size_t shown_bytes(const struct tti_op *op)
{
    return op->shape.tables == NULL ? 0 : TTI_GIVEN * (size_t)op->shape.size * sizeof(uint64_t);
}

static int64_t deadline_ms(const struct tti_started *started)
{
    int64_t own = started->op.deadline_ms;
    return own != 0 ? own : started->op.comm->world->options.deadline_ms;
}

/* Returns true if the op's deadline may matter: it counts from when the stream comes to the op, which the stream has to
 * say. */
static bool counts(const struct tti_started *started)
{
    return deadline_ms(started) < TTI_DEVICE_PATIENCE_NS / MS;
}

/* Raises the word for ops before one with a deadline now: later it would be raised only with that op's end, which may
 * not come. */
static tutti_status pay_before(const struct tti_nccl_engine *engine, struct tti_stream *stream, tutti_error *error)
{
    TTI_TRY(tti_stream_pay(engine->ends.teller, error));
    return tti_stream_pay(stream, error);
}

static tutti_status show(struct tti_started *started, tutti_error *error)
{
    const struct tti_nccl_engine *engine = engine_of(started);
    struct tti_turn *turn = started->turn;
    uint64_t key = tti_nccl_key(&started->op, started->row);
    turn->connects = engine->known[key % TTI_NCCL_KNOWN] != key;
    if (started->row != NULL) memcpy(turn->mine, started->row, shown_bytes(&started->op));
    if (!counts(started)) return TUTTI_OK;
    TTI_TRY(pay_before(engine, turn->stream, error));
    return tti_turn_put_reached(started, error);
}

static bool tells_later(const struct tti_started *started)
{
    return started->turn->blocking && started->op.deadline_ms == 0;
}

static tutti_status issue(struct tti_nccl_engine *engine, struct tti_started *started, tutti_error *error)
{
    struct tti_turn *turn = started->turn;
    struct patience patience = {.kind = (enum tti_kind)started->op.call.kind,
                                .limit_ms = deadline_ms(started),
                                .call = "putting the first op of this kind and size on its stream",
                                .option = "its deadline"};
    engine->stream = turn->stream;
    engine->ends.later = tells_later(started);
    int64_t until = tti_now_ns() + patience.limit_ms * MS;
    atomic_store_explicit(&engine->until_ns, until, memory_order_relaxed);
    if (turn->connects) {
        tti_nccl_order(engine, TTI_NCCL_ISSUE);
        return await_thread(engine, turn->comm, &patience, error);
    }
    tutti_status status = tti_nccl_issue(engine, error);
    if (status == TUTTI_OK || tti_now_ns() < until) return status;
    return tti_error_set(error, TUTTI_ERR_TIMEOUT, 0, "NCCL had not returned after %lld ms, its deadline",
                         (long long)patience.limit_ms);
}

/* Called if only this op's threads may still use its buffers; they end with the communicator. */
static void clear_up(struct tti_nccl_engine *engine, const struct tti_started *started)
{
    tti_nccl_reap(engine);
    if (!await_end(engine, tti_now_ns() + engine->fence_ns))
        tti_log(TUTTI_WARN, "rank %d: NCCL may still use the buffers of %s: do not reuse them", engine->rank,
                tti_kind_name((enum tti_kind)started->op.call.kind));
}

/* The communicator was doomed by an op before this one, whose end explains the reason: waits for that end first. */
static void await_cause(const struct tti_nccl_engine *engine, const struct tti_started *started)
{
    int64_t nap = 0, until = tti_now_ns() + engine->fence_ns;
    while (!tti_comm_is_broken(started->turn->comm) && tti_now_ns() < until) tti_poll_nap(&nap);
}

static void launch(struct tti_started *started)
{
    struct tti_nccl_engine *engine = engine_of(started);
    struct tti_turn *turn = started->turn;
    struct tti_verdict *verdict = &turn->verdict;
    const uint64_t *rows = (const uint64_t *)(const void *)turn->all;
    uint64_t key = tti_nccl_key(&started->op, started->row);
    tutti_error error = {0};
    tutti_status status = tti_streams_check_counts(&started->op.shape, rows, &error);
    if (status == TUTTI_OK) {
        tti_nccl_plan(&engine->calls, &started->op, rows, engine->scratch);
        status = engine->calls.failed ? tti_error_set(&error, TUTTI_ERR_MEMORY, 0, "no memory for NCCL's calls")
                                      : issue(engine, started, &error);
        if (status != TUTTI_OK) clear_up(engine, started);
        if (status == TUTTI_ERR_BROKEN) await_cause(engine, started);
    }
    verdict->done = engine->first_done + engine->issued;
    verdict->status = status;
    if (status == TUTTI_OK)
        engine->known[key % TTI_NCCL_KNOWN] = key;
    else
        snprintf(verdict->text, sizeof verdict->text, "%.*s", (int)sizeof verdict->text - 1, error.text);
}

static tutti_status follow(struct tti_started *started, struct tti_stream *stream, tutti_error *error)
{
    const struct tti_turn *turn = started->turn;
    if (turn->stream == stream) return TUTTI_OK;
    return tti_stream_hold(stream, engine_of(started)->done, turn->verdict.done, error);
}

/* ---- Watching ------------------------------------------------------------------------------------------------------ */

/* Returns true if the stream has come to the op. To have it say so costs a microsecond: only calls with a deadline
 * below the longest do. */
static bool reached(const struct tti_started *started)
{
    return started->turn->number == 0 || tti_gate_reached(&started->turn->gate->gate, started->turn->number);
}

/* NCCL may see a lost rank's connections end before its process is seen to end: the library's own detector gets time
 * first. */
static tutti_status blame_the_lost(struct tti_nccl_engine *engine, struct tti_op *op)
{
    int64_t now = tti_now_ns();
    if (engine->error_since_ns == 0) engine->error_since_ns = now;
    TTI_TRY(tti_comm_health(op->comm, (enum tti_kind)op->call.kind, true));
    return now - engine->error_since_ns < BLAME_NS ? TUTTI_IN_PROGRESS : TUTTI_OK;
}

/* Asks for the end of the op if nothing was issued for a moment, and its end was told to no thread yet. */
static void ask_for_end(struct tti_nccl_engine *engine, const struct tti_started *started)
{
    struct tti_stream *stream = started->turn->stream;
    if (tti_stream_is_shown(stream)) stream = engine->ends.teller;
    if (!tti_stream_owes(stream)) return;
    if (tti_now_ns() - atomic_load_explicit(&engine->ends.issued_ns, memory_order_relaxed) < QUIET_NS) return;
    tti_nccl_ask(engine, stream);
}

/* Returns true once NCCL's work on streams may end without having been done. */
static bool is_doomed(const struct tti_nccl_engine *engine)
{
    return atomic_load_explicit(&engine->life, memory_order_acquire) != TTI_NCCL_ALIVE;
}

static tutti_status progress(struct tti_op *op)
{
    struct tti_started *started = tti_started_of(op);
    struct tti_nccl_engine *engine = engine_of(started);
    int rank = op->comm->rank, code = atomic_load_explicit(&engine->async_error, memory_order_acquire);
    bool failed = tti_device_is_poisoned(engine->device);
    tutti_error error = {0};
    if (tti_word_is_far(engine->done, started->turn->verdict.done)) return tti_turn_released(started);
    if (tti_word_reached(engine->done, started->turn->verdict.done))
        return is_doomed(engine) ? tti_turn_inherit(started) : TUTTI_OK;
    tutti_status blamed = failed || code == TTI_NCCL_OK ? TUTTI_OK : blame_the_lost(engine, op);
    if (blamed != TUTTI_OK) return blamed;
    if (failed)
        tti_device_poison_error(engine->device, &error);
    else if (code != TTI_NCCL_OK)
        tti_error_set(&error, TUTTI_ERR_SYSTEM, 0, "NCCL reports: %s (%d)", engine->nccl->error_string(code), code);
    else {
        ask_for_end(engine, started);
        return TUTTI_IN_PROGRESS;
    }
    return tti_comm_break(op->comm, (enum tti_kind)op->call.kind, error.status, rank, "rank %d: %s", rank, error.text);
}

static void abandon(struct tti_streams *streams)
{
    tti_nccl_reap(streams->engine);
}

static void give_up(struct tti_streams *streams)
{
    struct tti_nccl_engine *engine = streams->engine;
    tti_nccl_reap(engine);
    if (!await_end(engine, tti_now_ns() + engine->fence_ns))
        tti_log(TUTTI_WARN, "rank %d: NCCL may still work on a stream that was given up", engine->rank);
}

static void stop(struct tti_op *op)
{
    tti_nccl_reap(engine_of(tti_started_of(op)));
}

/* Work that is not over by then may never be. Buffers stay with their stream; streams that wait for the op go on. */
static bool fence(struct tti_op *op, int64_t until_ns)
{
    struct tti_started *started = tti_started_of(op);
    struct tti_nccl_engine *engine = engine_of(started);
    uint64_t done = started->turn->verdict.done;
    if (tti_word_reached(engine->done, done) || tti_device_is_poisoned(engine->device)) return true;
    tti_nccl_reap(engine);
    if (tti_now_ns() < until_ns) return false;
    tti_log(TUTTI_WARN, "rank %d: NCCL may still use the buffers of %s: do not reuse them", engine->rank,
            tti_kind_name((enum tti_kind)op->call.kind));
    tti_word_store(engine->done, done + TTI_WORD_FAR);
    return true;
}

const struct tti_device_provider tti_device_provider_nccl = {
    .carrier = TTI_ON_NCCL,
    .ops = {.name = "nccl", .progress = progress, .stop = stop, .fence = fence},
    .supports = supports,
    .shown_bytes = shown_bytes,
    .show = show,
    .launch = launch,
    .everyone = true,
    .reached = reached,
    .advise = advise,
    .follow = follow,
    .abandon = abandon,
    .give_up = give_up,
    .renew = renew,
    .close = close_engine,
};

tutti_status tutti_nccl_comm(tutti_comm *comm, void **native)
{
    if (comm == NULL || native == NULL) return TUTTI_ERR_ARGUMENT;
    *native = NULL;
    if (tti_comm_is_stillborn(comm)) return tutti_comm_error(comm)->status;
    const struct tti_streams *streams = comm->queue.streams;
    if (streams == NULL)
        return tti_comm_refuse(comm, TTI_STATS, TUTTI_ERR_ARGUMENT,
                               "nccl_comm: the comm gets NCCL's communicator with its first call on a stream");
    if (streams->provider != &tti_device_provider_nccl)
        return tti_comm_refuse(comm, TTI_STATS, TUTTI_ERR_UNSUPPORTED,
                               "nccl_comm: this comm's calls on streams do not go by NCCL: %s", streams->why);
    *native = ((struct tti_nccl_engine *)streams->engine)->native;
    return TUTTI_OK;
}
