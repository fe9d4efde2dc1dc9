/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of the provider `nccl`, and all calls of NCCL (nccl_engine.h).
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/task.h"
#include "collective/reduce/reduce_kernels_convert.h"
#include "collective/stream/nccl_engine.h"
#include "device/cuda_device.h"
#include "device/open.h"
#include "device/stream.h"
#include <string.h>
#include <time.h>

enum { POLL_MS = 100, REAP_POLL_MS = 1, IN_PROGRESS = 7, OWED_MOST = 16 };
#define MS INT64_C(1000000)
#define REAP_PATIENCE_NS (600 * 1000 * MS) /* after this time the communicator is left as it is */

static void nap_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

tutti_status tti_nccl_error(const struct tti_nccl_engine *engine, const char *call, int result, tutti_error *error)
{
    const char *reason = engine->nccl->error_string(result), *detail = engine->nccl->last_error(engine->native);
    bool refused = result == TTI_NCCL_INVALID_USAGE || result == TTI_NCCL_INVALID_ARGUMENT;
    /* NCCL does not say which error */
    if (result == TTI_NCCL_CUDA_ERROR) engine->device->ops->probe(engine->device, NULL);
    if (result == TTI_NCCL_CUDA_ERROR && tti_device_is_poisoned(engine->device))
        return tti_device_poison_error(engine->device, error);
    return tti_error_set(error, refused ? TUTTI_ERR_UNSUPPORTED : TUTTI_ERR_SYSTEM, 0, "%s: %.80s (%d)%s%.300s", call,
                         reason == NULL ? "?" : reason, result, detail == NULL || detail[0] == '\0' ? "" : ": ",
                         detail == NULL ? "" : detail);
}

/* ---- Who is inside ------------------------------------------------------------------------------------------------- */

static bool enter(struct tti_nccl_engine *engine)
{
    atomic_fetch_add_explicit(&engine->inside, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&engine->life, memory_order_seq_cst) == TTI_NCCL_ALIVE) return true;
    atomic_fetch_sub_explicit(&engine->inside, 1, memory_order_release);
    return false;
}

static void leave(struct tti_nccl_engine *engine)
{
    atomic_fetch_sub_explicit(&engine->inside, 1, memory_order_release);
}

static tutti_status enter_device(struct tti_nccl_engine *engine, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(engine->device);
    TTI_TRY(tti_cuda_check(device, tti_cuda_enter(device), "cuCtxPushCurrent", NULL, error));
    if (enter(engine)) return TUTTI_OK;
    tti_cuda_leave(device);
    return tti_error_set(error, TUTTI_ERR_BROKEN, 0, "NCCL's communicator is being aborted");
}

static void leave_device(struct tti_nccl_engine *engine)
{
    leave(engine);
    tti_cuda_leave(tti_cuda_of(engine->device));
}

/* ---- Issuing ------------------------------------------------------------------------------------------------------- */

static int make_call(const struct tti_nccl_engine *engine, const struct tti_nccl_call *call, int reduction,
                     const char **name)
{
    const struct tti_nccl *nccl = engine->nccl;
    void *comm = engine->native, *stream = engine->stream->native;
    int type = engine->calls.type;
    switch (call->what) {
    case TTI_NCCL_ALL_REDUCE:
        *name = "ncclAllReduce";
        return nccl->all_reduce(call->in, call->out, call->count, type, reduction, comm, stream);
    case TTI_NCCL_REDUCE:
        *name = "ncclReduce";
        return nccl->reduce(call->in, call->out, call->count, type, reduction, call->peer, comm, stream);
    case TTI_NCCL_BROADCAST:
        *name = "ncclBroadcast";
        return nccl->broadcast(call->in, call->out, call->count, type, call->peer, comm, stream);
    case TTI_NCCL_ALL_GATHER:
        *name = "ncclAllGather";
        return nccl->all_gather(call->in, call->out, call->count, type, comm, stream);
    case TTI_NCCL_REDUCE_SCATTER:
        *name = "ncclReduceScatter";
        return nccl->reduce_scatter(call->in, call->out, call->count, type, reduction, comm, stream);
    case TTI_NCCL_SEND: *name = "ncclSend"; return nccl->send(call->in, call->count, type, call->peer, comm, stream);
    case TTI_NCCL_RECV: *name = "ncclRecv"; return nccl->recv(call->out, call->count, type, call->peer, comm, stream);
    default: return TTI_NCCL_OK;
    }
}

/* A group that was opened is closed even after a failure: it would stay open in this thread. */
static int make_calls(const struct tti_nccl_engine *engine, int reduction, const char **name)
{
    const struct tti_nccl_calls *calls = &engine->calls;
    bool grouped = calls->count > 1;
    int result = TTI_NCCL_OK, ended = TTI_NCCL_OK;
    *name = "ncclGroupStart";
    if (grouped) result = engine->nccl->group_start();
    if (result != TTI_NCCL_OK) return result;
    for (size_t i = 0; i < calls->count && result == TTI_NCCL_OK; i++)
        result = make_call(engine, &calls->calls[i], reduction, name);
    if (grouped) ended = engine->nccl->group_end();
    if (result != TTI_NCCL_OK || ended == TTI_NCCL_OK) return result;
    *name = "ncclGroupEnd";
    return ended;
}

union factor {
    double f64;
    float f32;
    uint16_t bits;
};

static union factor factor_of(const struct tti_nccl_calls *calls)
{
    switch (calls->type) {
    case TTI_NCCL_F64: return (union factor){.f64 = calls->factor};
    case TTI_NCCL_F32: return (union factor){.f32 = (float)calls->factor};
    case TTI_NCCL_F16: return (union factor){.bits = encode_f16((float)calls->factor)};
    default: return (union factor){.bits = encode_bf16((float)calls->factor)};
    }
}

static int make_all(const struct tti_nccl_engine *engine, const char **name)
{
    const struct tti_nccl_calls *calls = &engine->calls;
    const struct tti_nccl *nccl = engine->nccl;
    if (!calls->scaled) return make_calls(engine, calls->reduction, name);
    union factor factor = factor_of(calls);
    int reduction = 0;
    *name = "ncclRedOpCreatePreMulSum";
    int result = nccl->make_scaled(&reduction, &factor, calls->type, TTI_NCCL_SCALAR_ON_HOST, engine->native);
    if (result != TTI_NCCL_OK) return result;
    result = make_calls(engine, reduction, name);
    (void)nccl->free_scaled(reduction, engine->native);
    return result;
}

/* Ends are counted, so they must come in order: calls on another stream than before follow the last ones. */
static tutti_status put_in_order(struct tti_nccl_engine *engine, tutti_error *error)
{
    struct tti_stream *last = engine->ends.last_on;
    if (last == NULL || last == engine->stream) return TUTTI_OK;
    TTI_TRY(tti_stream_pay(engine->ends.teller, error));
    if (atomic_load_explicit(&last->ended, memory_order_acquire) == 0) TTI_TRY(tti_stream_pay(last, error));
    return tti_stream_hold(engine->stream, engine->done, engine->first_done + engine->issued, error);
}

static tutti_status put_copies(struct tti_nccl_engine *engine, tutti_error *error)
{
    for (size_t i = 0; i < engine->calls.count; i++) {
        const struct tti_nccl_call *call = &engine->calls.calls[i];
        if (call->what == TTI_NCCL_COPY)
            TTI_TRY(tti_stream_copy(engine->stream, call->out, call->in, call->count, error));
    }
    return TUTTI_OK;
}

static void remember(struct tti_nccl_engine *engine)
{
    atomic_store_explicit(&engine->ends.issued_ns, tti_now_ns(), memory_order_relaxed);
    if (engine->ends.last_on == engine->stream) return;
    tti_object_keep(&engine->stream->object);
    if (engine->ends.last_on != NULL) tti_object_give(&engine->ends.last_on->object);
    engine->ends.last_on = engine->stream;
}

/* Decides which stream raises `done` behind the op that was just put on a stream, when that stream pays. */
static tutti_status owe(struct tti_nccl_engine *engine, struct tti_stream **debtor, tutti_error *error)
{
    uint64_t value = engine->first_done + engine->issued + 1;
    bool shown = tti_stream_is_shown(engine->stream);
    *debtor = shown ? engine->ends.teller : engine->stream;
    if (shown) {
        TTI_TRY(tti_stream_pay(engine->stream, error)); /* for ops from before the stream was shown: words only grow */
        TTI_TRY(tti_stream_record(engine->stream, engine->ends.mark, error));
    }
    tti_stream_owe(*debtor, engine->done, value, shown ? engine->ends.mark : NULL);
    return TUTTI_OK;
}

static tutti_status put_done(struct tti_nccl_engine *engine, tutti_error *error)
{
    bool pays = !engine->ends.later || ++engine->ends.owed >= OWED_MOST;
    struct tti_stream *debtor = NULL;
    TTI_TRY(owe(engine, &debtor, error));
    if (pays) TTI_TRY(tti_stream_pay(debtor, error));
    if (pays) engine->ends.owed = 0;
    engine->issued++;
    remember(engine);
    return TUTTI_OK;
}

tutti_status tti_nccl_issue(struct tti_nccl_engine *engine, tutti_error *error)
{
    const char *name = "";
    TTI_TRY(put_in_order(engine, error));
    TTI_TRY(put_copies(engine, error));
    TTI_TRY(enter_device(engine, error));
    int result = make_all(engine, &name);
    tutti_status status = result == TTI_NCCL_OK ? TUTTI_OK : tti_nccl_error(engine, name, result, error);
    leave_device(engine);
    return status == TUTTI_OK ? put_done(engine, error) : status;
}

/* ---- The engine's thread ------------------------------------------------------------------------------------------- */

static tutti_status get_id(struct tti_nccl_engine *engine, tutti_error *error)
{
    TTI_TRY(enter_device(engine, error));
    int result = engine->nccl->unique_id(&engine->id);
    tutti_status status = result == TTI_NCCL_OK ? TUTTI_OK : tti_nccl_error(engine, "ncclGetUniqueId", result, error);
    leave_device(engine);
    return status;
}

static tutti_status init(struct tti_nccl_engine *engine, tutti_error *error)
{
    struct tti_nccl_config config = {
        .size = sizeof config, .magic = TTI_NCCL_CONFIG_MAGIC, .version = TTI_NCCL_LEAST, .blocking = 1};
    void *native = NULL;
    tutti_status status = TUTTI_OK;
    TTI_TRY(enter_device(engine, error));
    int result = engine->nccl->init_rank(&native, engine->size, engine->id, engine->rank, &config);
    if (result == TTI_NCCL_OK)
        engine->native = native;
    else
        status = tti_nccl_error(engine, "ncclCommInitRankConfig", result, error);
    leave_device(engine);
    return status;
}

/* Closes the communicator. The device may have been shut before; NCCL keeps its own hold on the GPU's context. */
static tutti_status close_native(struct tti_nccl_engine *engine, tutti_error *error)
{
    struct tti_cuda_device *device = tti_cuda_of(engine->device);
    const char *name = "ncclCommFinalize";
    if (!enter(engine)) return TUTTI_OK; /* the reaper closes it */
    bool entered = tti_cuda_enter(device) == TTI_CUDA_OK;
    int result = engine->nccl->finalize(engine->native);
    if (result == TTI_NCCL_OK) {
        name = "ncclCommDestroy";
        result = engine->nccl->destroy(engine->native);
    }
    if (entered) tti_cuda_leave(device);
    engine->native = NULL;
    leave(engine);
    return result == TTI_NCCL_OK ? TUTTI_OK : tti_nccl_error(engine, name, result, error);
}

static void carry_out(struct tti_nccl_engine *engine, enum tti_nccl_task task)
{
    struct tti_nccl_orders *orders = &engine->orders;
    tutti_error error = {0};
    orders->status = task == TTI_NCCL_GET_ID  ? get_id(engine, &error)
                     : task == TTI_NCCL_INIT  ? init(engine, &error)
                     : task == TTI_NCCL_ISSUE ? tti_nccl_issue(engine, &error)
                                              : close_native(engine, &error);
    snprintf(orders->text, sizeof orders->text, "%.*s", (int)sizeof orders->text - 1, error.text);
}

static bool is_broken(struct tti_nccl_engine *engine)
{
    pthread_mutex_lock(&engine->orders.lock);
    bool broken = engine->broken != NULL && atomic_load_explicit(engine->broken, memory_order_acquire) != 0;
    pthread_mutex_unlock(&engine->orders.lock);
    return broken;
}

/* Ends a call that takes long while the comm is broken, or longer than allowed; otherwise asks NCCL for errors. */
static void polls(struct tti_nccl_engine *engine)
{
    int result = TTI_NCCL_OK;
    int64_t until = atomic_load_explicit(&engine->until_ns, memory_order_relaxed);
    if (engine->native == NULL || atomic_load_explicit(&engine->life, memory_order_relaxed) != TTI_NCCL_ALIVE) return;
    if (atomic_load_explicit(&engine->inside, memory_order_acquire) != 0) {
        if (is_broken(engine) || tti_now_ns() >= until) tti_nccl_reap(engine);
        return;
    }
    if (!enter(engine)) return; /* without the GPU's context, which ends when the device is closed */
    bool told = engine->nccl->async_error(engine->native, &result) == TTI_NCCL_OK && result != IN_PROGRESS;
    if (told && result == TTI_NCCL_CUDA_ERROR) engine->device->ops->probe(engine->device, NULL);
    if (told) atomic_store_explicit(&engine->async_error, result, memory_order_release);
    leave(engine);
}

/* Waits for the next task. IDLE: there was none for a while, or a stream should pay. */
static enum tti_nccl_task next_task(struct tti_nccl_orders *orders)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += POLL_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    int timed_out = 0;
    pthread_mutex_lock(&orders->lock);
    while (orders->task == TTI_NCCL_IDLE && orders->pays == NULL && timed_out == 0)
        timed_out = pthread_cond_timedwait(&orders->changed, &orders->lock, &until);
    enum tti_nccl_task task = orders->task;
    pthread_mutex_unlock(&orders->lock);
    return task;
}

/* Has a stream pay; returns false if none should. */
static bool let_pay(struct tti_nccl_orders *orders)
{
    tutti_error ignored = {0};
    pthread_mutex_lock(&orders->lock);
    struct tti_stream *stream = orders->pays;
    orders->pays = NULL;
    pthread_mutex_unlock(&orders->lock);
    if (stream == NULL) return false;
    (void)tti_stream_pay(stream, &ignored); /* a stream that has ended has paid */
    tti_object_give(&stream->object);
    return true;
}

void tti_nccl_ask(struct tti_nccl_engine *engine, struct tti_stream *stream)
{
    struct tti_nccl_orders *orders = &engine->orders;
    pthread_mutex_lock(&orders->lock);
    if (orders->pays == NULL && orders->task != TTI_NCCL_END) {
        tti_object_keep(&stream->object);
        orders->pays = stream;
        pthread_cond_signal(&orders->changed);
    }
    pthread_mutex_unlock(&orders->lock);
}

static void *serve(void *argument)
{
    struct tti_nccl_engine *engine = argument;
    struct tti_nccl_orders *orders = &engine->orders;
    for (enum tti_nccl_task task; (task = next_task(orders)) != TTI_NCCL_END;) {
        if (task == TTI_NCCL_IDLE) {
            if (!let_pay(orders)) polls(engine);
            continue;
        }
        carry_out(engine, task);
        pthread_mutex_lock(&orders->lock);
        if (orders->task == task) orders->task = TTI_NCCL_IDLE; /* otherwise it should end */
        pthread_mutex_unlock(&orders->lock);
        atomic_fetch_add_explicit(&orders->finished, 1, memory_order_release);
    }
    tti_nccl_engine_give(engine);
    return NULL;
}

void tti_nccl_order(struct tti_nccl_engine *engine, enum tti_nccl_task task)
{
    struct tti_nccl_orders *orders = &engine->orders;
    pthread_mutex_lock(&orders->lock);
    orders->task = task;
    if (task != TTI_NCCL_END) orders->given++;
    pthread_cond_signal(&orders->changed);
    pthread_mutex_unlock(&orders->lock);
}

/* ---- The reaper ---------------------------------------------------------------------------------------------------- */

static void *reap(void *argument)
{
    struct tti_nccl_engine *engine = argument;
    const struct tti_nccl *nccl = engine->nccl;
    struct tti_cuda_device *device = tti_cuda_of(engine->device);
    int64_t until = tti_now_ns() + REAP_PATIENCE_NS;
    bool entered = tti_cuda_enter(device) == TTI_CUDA_OK;
    if (engine->native != NULL && nccl->revoke != NULL) (void)nccl->revoke(engine->native, 0);
    while (atomic_load_explicit(&engine->inside, memory_order_seq_cst) != 0 && tti_now_ns() < until)
        nap_ms(REAP_POLL_MS);
    if (atomic_load_explicit(&engine->inside, memory_order_seq_cst) == 0) {
        if (engine->native != NULL) (void)nccl->abort(engine->native);
        atomic_store_explicit(&engine->life, TTI_NCCL_GONE, memory_order_release);
    } else {
        tti_log(TUTTI_WARN, "rank %d: a call of NCCL does not return: its communicator is left as it is", engine->rank);
    }
    if (entered) tti_cuda_leave(device);
    tti_nccl_engine_give(engine);
    return NULL;
}

static tutti_status start_thread(struct tti_nccl_engine *engine, void *(*body)(void *), tutti_error *error)
{
    struct tti_task task;
    atomic_fetch_add_explicit(&engine->references, 1, memory_order_relaxed);
    tutti_status status = tti_task_start(&task, body, engine, error);
    if (status == TUTTI_OK)
        pthread_detach(task.thread);
    else
        atomic_fetch_sub_explicit(&engine->references, 1, memory_order_relaxed);
    return status;
}

void tti_nccl_reap(struct tti_nccl_engine *engine)
{
    uint32_t alive = TTI_NCCL_ALIVE;
    tutti_error error = {0};
    if (!atomic_compare_exchange_strong_explicit(&engine->life, &alive, TTI_NCCL_DOOMED, memory_order_seq_cst,
                                                 memory_order_relaxed))
        return;
    if (start_thread(engine, reap, &error) != TUTTI_OK)
        tti_log(TUTTI_WARN, "rank %d: NCCL's communicator cannot be aborted: %s", engine->rank, error.text);
}

/* ---- Making and freeing -------------------------------------------------------------------------------------------- */

/* Gives back what the engine has on the device. */
static void give_own(struct tti_nccl_engine *engine)
{
    tutti_error ignored = {0};
    if (engine->ends.last_on != NULL) tti_object_give(&engine->ends.last_on->object);
    if (engine->ends.teller != NULL) (void)tti_stream_drop(engine->ends.teller, &ignored);
    if (engine->ends.mark != NULL) tti_object_give(&engine->ends.mark->object);
    (void)tutti_buffer_free(engine->memory, NULL);
    engine->ends.last_on = engine->ends.teller = NULL;
    engine->ends.mark = NULL;
    engine->memory = NULL;
}

static tutti_status take_own(struct tti_nccl_engine *engine, tutti_error *error)
{
    enum { SCRATCH_BYTES = 256 };
    struct tti_device *device = engine->device;
    TTI_TRY(tti_stream_make(device, &engine->ends.teller, error));
    TTI_TRY(tti_mark_make(device, &engine->ends.mark, error));
    TTI_TRY(tutti_buffer_create(device->object.handle, TUTTI_MEMORY_LOCAL, TUTTI_U8, SCRATCH_BYTES, &engine->memory,
                                error));
    engine->scratch = tutti_buffer_at(engine->memory, 0, SCRATCH_BYTES);
    return TUTTI_OK;
}

tutti_status tti_nccl_engine_renew(struct tti_nccl_engine *engine, tutti_error *error)
{
    give_own(engine);
    engine->ends.owed = 0;
    return take_own(engine, error);
}

static void engine_free(struct tti_nccl_engine *engine)
{
    if (engine->orders.pays != NULL) tti_object_give(&engine->orders.pays->object);
    give_own(engine);
    /* if the word was not raised to the end, a stream may still raise it */
    if (engine->done != NULL && tti_word_reached(engine->done, engine->first_done + engine->issued))
        tti_word_give(engine->device, engine->done);
    tti_free(engine->calls.calls);
    pthread_cond_destroy(&engine->orders.changed);
    pthread_mutex_destroy(&engine->orders.lock);
    tti_object_give(&engine->device->object);
    tti_free(engine);
}

void tti_nccl_engine_give(struct tti_nccl_engine *engine)
{
    if (atomic_fetch_sub_explicit(&engine->references, 1, memory_order_acq_rel) == 1) engine_free(engine);
}

static void orders_init(struct tti_nccl_orders *orders)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&orders->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&orders->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static tutti_status take(struct tti_nccl_engine *engine, tutti_error *error)
{
    struct tti_device *device = engine->device;
    TTI_TRY(tti_word_take(device, &engine->done, error));
    engine->first_done = atomic_load_explicit(&engine->done->value, memory_order_relaxed);
    TTI_TRY(take_own(engine, error));
    return start_thread(engine, serve, error);
}

tutti_status tti_nccl_engine_make(struct tti_device *device, struct tti_nccl_engine **made, tutti_error *error)
{
    const struct tti_nccl *nccl = tti_nccl_load(error);
    if (nccl == NULL) return error->status;
    if (strcmp(device->ops->kind, "cuda") != 0 || tti_cuda_of(device)->adopted)
        return tti_error_set(error, TUTTI_ERR_UNSUPPORTED, 0,
                             "NCCL needs a GPU that was not opened with a context of "
                             "the caller's own");
    struct tti_nccl_engine *engine = tti_calloc(1, sizeof *engine);
    if (engine == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for NCCL");
    orders_init(&engine->orders);
    engine->references = 1;
    engine->nccl = nccl;
    engine->device = device;
    tti_object_keep(&device->object);
    tutti_status status = take(engine, error);
    if (status == TUTTI_OK)
        *made = engine;
    else
        tti_nccl_engine_give(engine);
    return status;
}
