/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles of ops. A handle is a number: which place of the table, and how often that place was used before. A handle that
 * was waited for, dropped, or whose comm is gone does not fit its place any more, and is refused, never followed.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collective/api.h"
#include "collective/queue.h"
#include "collective/queue_hand.h"
#include "collective/queue_message.h"
#include "collective/stats.h"

#define MS INT64_C(1000000)
enum { PLACE_BITS = 24, CHUNK = 256, CHUNKS = (1 << PLACE_BITS) / CHUNK };

/* Chunks are never given back: what a stale handle points to can always be looked at. */
static struct {
    _Atomic uint32_t lock;
    uint32_t chunk_count;
    _Atomic(struct tti_started *) chunks[CHUNKS];
    struct tti_started *free;
} table;

static bool add_chunk(void)
{
    if (table.chunk_count == CHUNKS) return false;
    struct tti_started *chunk = tti_calloc(CHUNK, sizeof *chunk);
    if (chunk == NULL) return false;
    uint64_t first = (uint64_t)table.chunk_count * CHUNK;
    for (uint64_t i = CHUNK; i-- > 0;) {
        atomic_store_explicit(&chunk[i].id, (first + i) | UINT64_C(1) << PLACE_BITS, memory_order_relaxed);
        chunk[i].next = table.free;
        table.free = &chunk[i];
    }
    atomic_store_explicit(&table.chunks[table.chunk_count++], chunk, memory_order_release);
    return true;
}

static struct tti_started *take_from_table(void)
{
    tti_lock(&table.lock);
    struct tti_started *started = NULL;
    if (table.free != NULL || add_chunk()) {
        started = table.free;
        table.free = started->next;
    }
    tti_unlock(&table.lock);
    return started;
}

static struct tti_started *add_place(tutti_comm *comm)
{
    struct tti_started *started = take_from_table();
    if (started == NULL) return NULL;
    started->comm = started->op.comm = comm;
    started->next = NULL;
    tti_lock(&comm->queue.lock);
    started->sibling = comm->queue.all;
    comm->queue.all = started;
    tti_unlock(&comm->queue.lock);
    return started;
}

/* The caller is the only one to start ops; others give places back, which are taken all at once. */
bool tti_started_reserve(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    if (queue->own_free != NULL) return true;
    tti_lock(&queue->lock);
    queue->own_free = queue->free;
    queue->free = NULL;
    tti_unlock(&queue->lock);
    if (queue->own_free == NULL) queue->own_free = add_place(comm);
    return queue->own_free != NULL;
}

struct tti_started *tti_started_new(tutti_comm *comm)
{
    if (!tti_started_reserve(comm)) return NULL;
    struct tti_started *started = comm->queue.own_free;
    comm->queue.own_free = started->next;
    started->queued = started->persistent = started->dropped = started->bare = false;
    atomic_store_explicit(&started->out, false, memory_order_relaxed);
    atomic_store_explicit(&started->used, true, memory_order_relaxed);
    atomic_store_explicit(&started->status, TUTTI_OK, memory_order_relaxed);
    return started;
}

uint64_t tti_started_bare(tutti_comm *comm)
{
    struct tti_started *started = tti_started_new(comm);
    started->bare = true;
    return atomic_load_explicit(&started->id, memory_order_relaxed);
}

void tti_started_void(struct tti_started *started)
{
    uint64_t id = atomic_load_explicit(&started->id, memory_order_relaxed);
    atomic_store_explicit(&started->id, id + (UINT64_C(1) << PLACE_BITS), memory_order_release);
    atomic_store_explicit(&started->used, false, memory_order_relaxed);
}

/* Its handle is void from now on. */
static void empty(struct tti_started *started)
{
    tti_free(started->error);
    tti_free(started->row);
    tti_mail_put_by(started);
    tti_free(started->op.many);
    started->op.many = NULL;
    started->error = NULL;
    started->row = NULL;
    if (atomic_load_explicit(&started->used, memory_order_relaxed)) tti_started_void(started);
}

void tti_started_free(struct tti_started *started)
{
    struct tti_queue *queue = &started->comm->queue;
    tti_lock(&queue->lock);
    empty(started);
    started->next = queue->free;
    queue->free = started;
    tti_unlock(&queue->lock);
}

static bool is_forgotten(const struct tti_started *started)
{
    bool used = atomic_load_explicit(&started->used, memory_order_relaxed);
    bool idle = started->persistent && !atomic_load_explicit(&started->out, memory_order_relaxed);
    return used && !started->dropped && !idle && started != started->comm->queue.spare;
}

/* Where it was started; NULL: it is not known. */
static const struct tti_site *site_of(struct tti_started *started)
{
    const struct tti_site *site = tti_started_site(started);
    return !started->bare && site->line > 0 ? site : NULL;
}

/* A wait that is missing shows in wrong data at best: the buffers were read while they were filled. */
static void tell_forgotten(const tutti_comm *comm)
{
    struct tti_started *one = NULL;
    char site[112], such[160] = "";
    int count = 0;
    for (struct tti_started *started = comm->queue.all; started != NULL; started = started->sibling) {
        if (!is_forgotten(started)) continue;
        if (site_of(started) != NULL && (one == NULL || one->mail == NULL)) one = started;
        count++;
    }
    if (count == 0 || tti_comm_is_broken(comm)) return;
    if (one != NULL) {
        tti_site_describe(site_of(one), site, sizeof site);
        snprintf(such, sizeof such, ", such as %s%s", tti_kind_name(tti_started_kind(one)), site);
    }
    tti_log(TUTTI_WARN,
            "rank %d frees a comm and has not waited for %d of the ops it has started%s; what an op is to fill is "
            "there after tutti_wait, and tutti_drop is for ops that nobody waits for",
            comm->rank, count, such);
}

void tti_started_free_all(tutti_comm *comm)
{
    struct tti_started *started = comm->queue.all;
    tell_forgotten(comm);
    tti_lock(&table.lock);
    while (started != NULL) {
        struct tti_started *sibling = started->sibling;
        empty(started);
        tti_free(started->used_mail);
        started->used_mail = NULL;
        started->op.comm = NULL;
        started->next = table.free;
        table.free = started;
        started = sibling;
    }
    tti_unlock(&table.lock);
    comm->queue.all = comm->queue.free = comm->queue.own_free = comm->queue.spare = NULL;
}

static struct tti_started *find(tutti_op handle)
{
    uint64_t place = handle.id & ((UINT64_C(1) << PLACE_BITS) - 1);
    struct tti_started *chunk = atomic_load_explicit(&table.chunks[place / CHUNK], memory_order_acquire);
    if (chunk == NULL) return NULL;
    struct tti_started *started = &chunk[place % CHUNK];
    bool there = atomic_load_explicit(&started->id, memory_order_acquire) == handle.id &&
                 atomic_load_explicit(&started->used, memory_order_relaxed);
    return there ? started : NULL;
}

/* The op of a handle, or why it cannot be used. */
static tutti_status find_any(tutti_op handle, struct tti_started **started)
{
    *started = find(handle);
    if (*started == NULL) return TUTTI_ERR_HANDLE;
    return (*started)->comm->fork_count == tti_fork_count() ? TUTTI_OK : TUTTI_ERR_FORKED;
}

/* The same, and it is not at hand. */
static tutti_status find_op(tutti_op handle, struct tti_started **started)
{
    TTI_TRY(find_any(handle, started));
    if (atomic_load_explicit(&(*started)->at_hand, memory_order_acquire)) tti_hand_clear((*started)->comm);
    return TUTTI_OK;
}

void tti_handles_forked(void)
{
    tti_unlock(&table.lock);
}

/* No comm keeps this error, so that tutti_explain cannot tell it. Said a few times only: somebody may poll. */
static __attribute__((noinline)) tutti_status tell(const char *call, tutti_status status)
{
    enum { TOLD_MOST = 8 };
    static atomic_int told;
    if (status == TUTTI_ERR_HANDLE && atomic_fetch_add_explicit(&told, 1, memory_order_relaxed) < TOLD_MOST)
        tti_log(TUTTI_ERROR, "%s: %s", call, tutti_status_text(status));
    return status;
}

static tutti_status refuse_null(const char *what)
{
    tti_log(TUTTI_ERROR, "%s is NULL", what);
    return TUTTI_ERR_ARGUMENT;
}

static inline tutti_status told(const char *call, tutti_status status)
{
    return status == TUTTI_OK ? TUTTI_OK : tell(call, status);
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

/* The end of a handle, or of one round of a persistent one: tells what the op ended with. An error that is there stays if that
 * was success: it may be of a call that another thread makes, and is about to explain. */
static tutti_status collect(struct tti_started *started, tutti_status status)
{
    tutti_comm *comm = started->comm;
    if (status == TUTTI_IN_PROGRESS) {
        tti_wait_looked();
        return status;
    }
    bool alone = status == TUTTI_ERR_TRUNCATED || (status == TUTTI_ERR_CANCELLED && started->error == NULL);
    if (alone && started->mail != NULL) { /* the comm is whole */
        tti_mail_explain(comm, started->mail);
    } else if (status != TUTTI_OK) {
        tutti_error scant = {.status = status, .rank = comm->rank, .peer = -1};
        snprintf(scant.text, sizeof scant.text, "it failed, and there is no memory to say more");
        tti_comm_show(comm, started->error != NULL ? started->error : &scant);
        if (tti_comm_is_broken(comm)) atomic_store_explicit(&comm->told, true, memory_order_relaxed);
    }
    if (!started->persistent) {
        tti_started_free(started);
        return status;
    }
    tti_free(started->error);
    started->error = NULL;
    atomic_store_explicit(&started->status, TUTTI_OK, memory_order_relaxed);
    atomic_store_explicit(&started->out, false, memory_order_relaxed);
    return status;
}

static int64_t after_ms(int64_t timeout_ms)
{
    return timeout_ms < 0 || timeout_ms > TTI_WEEK_MS ? INT64_MAX : tti_now_ns() + timeout_ms * MS;
}

tutti_status tutti_wait_for(tutti_op op, int64_t timeout_ms)
{
    struct tti_started *started;
    TTI_TRY(told("tutti_wait", find_any(op, &started)));
    if (atomic_load_explicit(&started->at_hand, memory_order_acquire)) {
        if (tti_hand_wait(started) == TUTTI_OK) return TUTTI_OK;
        TTI_TRY(find_op(op, &started));
    }
    if (timeout_ms == 0) tti_queue_ask(started, false); /* there is no time to wait in */
    return collect(started, tti_queue_await(started, after_ms(timeout_ms)));
}

tutti_status tutti_wait(tutti_op op)
{
    return tutti_wait_for(op, -1);
}

tutti_status tutti_test(tutti_op op)
{
    struct tti_started *started;
    TTI_TRY(told("tutti_test", find_op(op, &started)));
    tutti_status status = (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
    if (status == TUTTI_IN_PROGRESS) {
        tti_queue_ask(started, false);
        status = (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
    }
    return collect(started, status);
}

/* The first of the ops that has ended; `count` when none has. Helps those that have not. */
static tutti_status look_for_any(const tutti_op *ops, size_t count, size_t *index, bool look)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        if (ops[i].id == 0) continue;
        struct tti_started *started;
        *index = i;
        TTI_TRY(told("tutti_wait_any", find_op(ops[i], &started)));
        if (started->persistent && !atomic_load_explicit(&started->out, memory_order_relaxed)) continue;
        any = true;
        if (atomic_load_explicit(&started->status, memory_order_acquire) == TUTTI_IN_PROGRESS)
            tti_queue_ask(started, look);
        tutti_status status = (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
        if (status != TUTTI_IN_PROGRESS) return collect(started, status);
    }
    *index = count;
    return any ? TUTTI_IN_PROGRESS : TUTTI_OK;
}

tutti_status tutti_wait_any(const tutti_op *ops, size_t count, int64_t timeout_ms, size_t *index)
{
    if ((ops == NULL && count > 0) || index == NULL) return refuse_null("tutti_wait_any: `ops` or `index`");
    int64_t until = after_ms(timeout_ms);
    struct tti_wait wait;
    tti_bell nobody = 0;
    tti_wait_begin(&wait, false, MS);
    for (;;) {
        tutti_status status = look_for_any(ops, count, index, tti_wait_slow(&wait));
        if (*index < count || status == TUTTI_OK) return status;
        if (!tti_wait_pause(&wait, false)) tti_bell_sleep(&nobody, 0, MS / 10, false);
        if (wait.now_ns >= until) return TUTTI_IN_PROGRESS;
    }
}

tutti_status tutti_wait_all(const tutti_op *ops, size_t count)
{
    if (ops == NULL && count > 0) return refuse_null("tutti_wait_all: `ops`");
    tutti_status first = TUTTI_OK;
    for (size_t i = 0; i < count; i++) {
        tutti_status status = ops[i].id == 0 ? TUTTI_OK : tutti_wait(ops[i]);
        if (first == TUTTI_OK) first = status;
    }
    return first;
}

tutti_status tutti_cancel(tutti_op op)
{
    struct tti_started *started;
    TTI_TRY(find_op(op, &started));
    tutti_comm *comm = started->comm;
    tti_lock(&comm->queue.lock); /* another thread may have waited for it, and its place be another op's by now */
    bool there = atomic_load_explicit(&started->id, memory_order_relaxed) == op.id;
    if (there) {
        atomic_store_explicit(&started->cancelled, TTI_CANCEL, memory_order_seq_cst);
        atomic_store_explicit(&comm->queue.cancels, true, memory_order_seq_cst);
    }
    tti_unlock(&comm->queue.lock);
    if (!there) return TUTTI_ERR_HANDLE;
    comm->provider->wake(comm); /* somebody may sleep while waiting for it */
    tti_service_wake(comm, TTI_AT_ONCE);
    return TUTTI_OK;
}

tutti_status tutti_drop(tutti_op op)
{
    struct tti_started *started;
    TTI_TRY(told("tutti_drop", find_op(op, &started)));
    struct tti_queue *queue = &started->op.comm->queue;
    tti_lock(&queue->lock);
    bool queued = started->queued;
    started->dropped = true;
    atomic_fetch_add_explicit(&started->id, queued ? UINT64_C(1) << PLACE_BITS : 0, memory_order_release);
    tti_unlock(&queue->lock);
    if (!queued) tti_started_free(started);
    return TUTTI_OK;
}

/* What was said when it was prepared still holds, unless something else is said now. */
static void renew(struct tti_started *started)
{
    const tutti_comm *comm = started->op.comm;
    if (comm->next_deadline_ms != 0) started->op.deadline_ms = comm->next_deadline_ms;
    if (comm->site.line != 0 || comm->site.name[0] != '\0') *tti_started_site(started) = comm->site;
    if (started->mail != NULL) return;
    tti_op_rewind(&started->op);
    started->op.edition = 0;
}

tutti_status tutti_start(tutti_op op)
{
    struct tti_started *started;
    TTI_TRY(told("tutti_start", find_op(op, &started)));
    tutti_comm *comm = started->op.comm;
    enum tti_kind kind = started->op.shape.kind;
    TTI_TRY(tti_api_begin(comm, kind));
    if (!started->persistent)
        return tti_comm_refuse(comm, kind, TUTTI_ERR_HANDLE, "start: this %s was not prepared; see tutti_prepared",
                               tti_kind_name(kind));
    if (atomic_load_explicit(&started->out, memory_order_relaxed))
        return tti_comm_refuse(comm, kind, TUTTI_ERR_HANDLE,
                               "start: this %s was started already; wait for it before it is started again",
                               tti_kind_name(kind));
    TTI_TRY(tti_queue_ready(comm, kind));
    renew(started);
    if (started->mail == NULL) tti_stats_count(comm, &started->op, true);
    tti_queue_start(started);
    tti_api_end(comm);
    return TUTTI_OK;
}
