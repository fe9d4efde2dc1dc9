/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that were started: a send, a receive, both, or a group of them. They run beside the comm's collectives, in
 * no order but that of matching; the thread that is busy with the comm takes them forward too.
 */
#include "collective/op/pending.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/message/message_parts.h"
#include "collective/op/callback.h"
#include "device/stream.h"
#include <assert.h>
#include <string.h>

#define MS INT64_C(1000000)

static struct tti_message_request *on_the_way(struct tti_pending *pending)
{
    return &pending->requests[pending->started->persistent ? pending->count : 0];
}

static struct tti_letter *unfinished(struct tti_pending *pending)
{
    for (; pending->ended < pending->count; pending->ended++) {
        struct tti_letter *letter = tti_letter_of(&on_the_way(pending)[pending->ended]);
        if (letter->status == TUTTI_IN_PROGRESS) return letter;
    }
    return NULL;
}

/* Tells letters if somebody asks for their op now; nobody does for one that was cancelled. */
static void notify(struct tti_queue *queue)
{
    uint32_t asks = atomic_load_explicit(&queue->asks, memory_order_acquire);
    if (queue->told_asks == asks) return;
    queue->told_asks = asks;
    TTI_LIST_EACH(link, &queue->pending)
    {
        struct tti_pending *pending = tti_pending_on(link);
        bool asked = atomic_load_explicit(&pending->started->asked, memory_order_relaxed) &&
                     atomic_load_explicit(&pending->started->cancelled, memory_order_relaxed) == 0;
        if (pending->asked == asked) continue;
        pending->asked = asked;
        for (int i = pending->ended; i < pending->count; i++) tti_letter_of(&on_the_way(pending)[i])->asked = asked;
    }
}

/* Breaks the comm, since others wait for the message or move its data: its end is the comm's. */
static void break_off(tutti_comm *comm, const struct tti_pending *pending, const struct tti_letter *letter)
{
    char what[200];
    tti_letter_describe(letter, what, sizeof what);
    tti_comm_break(comm, pending->kind, TUTTI_ERR_CANCELLED, comm->rank, "rank %d cancelled %s%s, which was under way",
                   comm->rank, pending->kind == TTI_GROUP ? "a group with a " : "", what);
}

/* Ends the letters for which it is not too late. Returns the first of the others; NULL: there are none. */
static struct tti_letter *cancel(tutti_comm *comm, struct tti_pending *pending, bool gently)
{
    for (int i = pending->ended; i < pending->count; i++) {
        struct tti_letter *each = tti_letter_of(&on_the_way(pending)[i]);
        if (pending->late)
            tti_letter_give_up(each, TUTTI_ERR_TIMEOUT);
        else
            tti_letter_cancel(each, gently);
    }
    struct tti_letter *letter = unfinished(pending);
    if (letter != NULL && !gently && !tti_comm_is_broken(comm) && !comm->traits.tolerant)
        break_off(comm, pending, letter);
    return letter;
}

/* Returns the first message that failed, or -1. */
static int find_failed(struct tti_pending *pending)
{
    for (int i = 0; i < pending->count; i++)
        if (tti_letter_of(&on_the_way(pending)[i])->status != TUTTI_OK) return i;
    return -1;
}

static void explain_cancelled(const struct tti_pending *pending, const struct tti_letter *letter, tutti_error *error)
{
    const tutti_comm *comm = letter->comm;
    char what[200];
    tti_letter_describe(letter, what, sizeof what);
    tti_comm_describe(comm, error, pending->kind, TUTTI_ERR_CANCELLED,
                      "rank %d cancelled %s%s, %s; the comm is as good as before", comm->rank,
                      pending->kind == TTI_GROUP ? "a group with a " : "", what,
                      letter->is_send ? "which no receive has taken" : "for which no message had come");
}

void tti_pending_explain(struct tti_pending *pending, tutti_error *error)
{
    struct tti_message_request *request = &on_the_way(pending)[find_failed(pending)];
    if (tti_letter_of(request)->status == TUTTI_ERR_CANCELLED && !pending->hopeless)
        explain_cancelled(pending, tti_letter_of(request), error);
    else if (pending->kind == TTI_GROUP)
        tti_group_explain(request, error);
    else
        tti_recv_explain(&request->recv, pending->kind, "", error);
}

int tti_pending_failed(struct tti_pending *pending, char *text, size_t bytes)
{
    struct tti_message_request *request = &on_the_way(pending)[find_failed(pending)];
    tti_letter_describe(tti_letter_of(request), text, bytes);
    return request->number;
}

/* For a tolerant comm, whose other messages go on: describes the failure now, since what is known of the peer may
 * change. */
static void explain_alone(struct tti_started *started, int failed)
{
    struct tti_pending *pending = started->pending;
    const struct tti_letter *letter = tti_letter_of(&on_the_way(pending)[failed]);
    bool usual = letter->status == TUTTI_ERR_CANCELLED || letter->status == TUTTI_ERR_TRUNCATED;
    started->error = tti_calloc(1, sizeof *started->error);
    if (started->error == NULL) return;
    if (usual)
        tti_pending_explain(pending, started->error);
    else
        tti_letter_explain(letter, pending->kind, started->op.deadline_ms, started->error);
}

static void trace(tutti_comm *comm, struct tti_pending *pending, tutti_status status)
{
    uint64_t bytes = 0;
    for (int i = 0; i < pending->count; i++) bytes += tti_letter_of(&on_the_way(pending)[i])->bytes;
    int peer = pending->kind == TTI_GROUP ? -1 : tti_letter_of(&on_the_way(pending)[0])->peer;
    tti_trace_note_pending(comm, pending->kind, tti_pending_site(pending), pending->traced, peer, bytes, status);
}

/* ---- On streams ---------------------------------------------------------------------------------------------------- */

tutti_status tti_pending_put(struct tti_pending *pending, tutti_error *error)
{
    for (int i = 0; i < pending->count; i++) {
        struct tti_device_letter *device = tti_letter_of(&pending->requests[i])->device;
        tutti_status status = device == NULL ? TUTTI_OK : tti_device_letter_put(device, error);
        if (status == TUTTI_OK) continue;
        for (int k = 0; k <= i; k++)
            if (tti_letter_of(&pending->requests[k])->device != NULL)
                tti_device_letter_end(tti_letter_of(&pending->requests[k])->device);
        return status;
    }
    return TUTTI_OK;
}

/* Checks its streams: returns an error if one will never come, or if copies will never be done. */
static tutti_status look_at_streams(struct tti_pending *pending, bool *come, tutti_error *error)
{
    *come = true;
    for (int i = 0; i < pending->count; i++) {
        const struct tti_letter *letter = tti_letter_of(&on_the_way(pending)[i]);
        if (letter->device == NULL || letter->status != TUTTI_IN_PROGRESS) continue;
        *come = *come && tti_device_letter_has_come(letter->device);
        TTI_TRY(tti_device_letter_state(letter->device, error));
    }
    return TUTTI_OK;
}

static void fail_on_stream(struct tti_pending *pending, const tutti_error *error)
{
    tutti_comm *comm = pending->started->op.comm;
    struct tti_letter *letter = unfinished(pending);
    char what[200] = "";
    if (letter != NULL) tti_letter_describe(letter, what, sizeof what);
    if (!comm->traits.tolerant) {
        tti_comm_break_apart(comm, pending->kind, error->status, comm->rank,
                             "rank %d called %s, and its stream never comes to it: %s", comm->rank, what, error->text);
        return;
    }
    for (int i = pending->ended; i < pending->count; i++)
        tti_letter_give_up(tti_letter_of(&on_the_way(pending)[i]), error->status);
}

/* Lets deadlines count from when all streams have come. */
static void watch_streams(tutti_comm *comm)
{
    tti_messages_lock(comm);
    TTI_LIST_EACH(link, &comm->queue.pending)
    {
        struct tti_pending *pending = tti_pending_on(link);
        struct tti_started *started = pending->started;
        tutti_error error = {0};
        bool come;
        if (pending->on_devices == 0) continue;
        if (look_at_streams(pending, &come, &error) != TUTTI_OK) fail_on_stream(pending, &error);
        if (come && !pending->come) {
            pending->come = true;
            started->wait_state = (struct tti_wait_state){.since_ns = started->op.deadline_ms != 0 ? tti_now_ns() : 0};
        }
    }
    tti_messages_unlock(comm);
}

/* ---- The end ------------------------------------------------------------------------------------------------------- */

static void finish(struct tti_pending *pending)
{
    struct tti_started *started = pending->started;
    tutti_comm *comm = started->op.comm;
    assert(pending->batch.left == 0);
    assert(atomic_load_explicit(&comm->messages->on_devices, memory_order_relaxed) >= pending->on_devices);
    if (pending->on_devices > 0)
        atomic_fetch_sub_explicit(&comm->messages->on_devices, pending->on_devices, memory_order_relaxed);
    for (int i = 0; i < pending->count && pending->on_devices > 0; i++) /* a message to nobody was never posted */
        if (tti_letter_of(&on_the_way(pending)[i])->device != NULL)
            tti_device_letter_end(tti_letter_of(&on_the_way(pending)[i])->device);
    int failed = find_failed(pending);
    tutti_status status = failed < 0 ? TUTTI_OK : tti_letter_of(&on_the_way(pending)[failed])->status;
    tti_list_remove(&pending->batch.on);
    tti_list_remove(&pending->on);
    for (int i = 0; i < pending->count; i++) {
        const struct tti_message_request *request = &on_the_way(pending)[i];
        if (!request->sends && request->recv.letter.status == TUTTI_OK)
            tti_recv_results(&request->recv, request->received, request->message);
    }
    if (tti_traced(comm)) trace(comm, pending, status);
    /* a message that ended by itself says so, whatever became of the comm since */
    bool alone = (status == TUTTI_ERR_CANCELLED || status == TUTTI_ERR_TRUNCATED) && comm->queue.error.status != status;
    if (status != TUTTI_OK && !alone && tti_comm_is_broken(comm))
        tti_started_fail(started);
    else if (status != TUTTI_OK && comm->traits.tolerant && !pending->hopeless)
        explain_alone(started, failed);
    tti_started_end(started, status);
}

/* Called when the comm is broken: letters end when nobody can touch their buffers any more. */
static void fail_all(tutti_comm *comm, tutti_status status)
{
    struct tti_queue *queue = &comm->queue;
    if (queue->pending_until_ns == 0) {
        queue->pending_until_ns = tti_now_ns() + comm->world->options.fence_ms * MS;
        tti_messages_stop(comm);
    }
    if (!tti_messages_fence(comm, status) && tti_now_ns() >= queue->pending_until_ns) tti_messages_fail(comm, status);
}

static void cancel_those(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    bool late = false;
    atomic_store_explicit(&queue->cancels, false, memory_order_seq_cst);
    tti_messages_lock(comm);
    TTI_LIST_EACH(link, &queue->pending)
    {
        struct tti_pending *pending = tti_pending_on(link);
        uint32_t cancelled = atomic_load_explicit(&pending->started->cancelled, memory_order_seq_cst);
        if (cancelled != 0 && pending->batch.left > 0)
            late = cancel(comm, pending, cancelled == TTI_CANCEL_GENTLY) != NULL || late;
    }
    tti_messages_unlock(comm);
    if (late) atomic_store_explicit(&queue->cancels, true, memory_order_relaxed); /* until the late ones have ended */
}

bool tti_queue_drive_pending(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    if (tti_list_is_empty(&queue->pending) && comm->messages->owed == 0) return false;
    /* before the check for peers that have left: a message that was taken back before that harms nobody */
    if (atomic_load_explicit(&queue->cancels, memory_order_acquire)) cancel_those(comm);
    if (atomic_load_explicit(&comm->messages->on_devices, memory_order_relaxed) > 0) watch_streams(comm);
    if (tti_messages_are_quiet(comm)) notify(queue);
    tutti_status status = tti_comm_is_broken(comm) ? TUTTI_IN_PROGRESS : tti_messages_progress(comm);
    if (status != TUTTI_OK) fail_all(comm, status < 0 ? status : tti_comm_health(comm, TTI_RECV, false));
    tti_messages_lock(comm);
    bool moved = !tti_list_is_empty(&queue->ended_pending);
    TTI_LIST_EACH(link, &queue->ended_pending) finish(TTI_LIST_OF(link, struct tti_pending, batch.on));
    tti_messages_unlock(comm);
    return moved;
}

static void find_awaited(struct tti_pending *pending)
{
    tutti_comm *comm = pending->started->op.comm;
    tti_messages_lock(comm);
    const struct tti_letter *letter = unfinished(pending);
    if (letter != NULL) pending->waiting_for = letter->waiting_for;
    tti_messages_unlock(comm);
}

static tutti_status progress(void *object)
{
    struct tti_started *started = object;
    tti_queue_drive(started->op.comm);
    if (tti_queue_is_wanted(started->op.comm)) return TUTTI_OK;
    if (atomic_load_explicit(&started->status, memory_order_acquire) != TUTTI_IN_PROGRESS) return TUTTI_OK;
    find_awaited(started->pending);
    return TUTTI_IN_PROGRESS;
}

static void detail(void *object, char *text, size_t bytes)
{
    struct tti_started *started = object;
    tti_messages_lock(started->op.comm);
    const struct tti_letter *letter = unfinished(started->pending);
    if (letter != NULL) tti_letter_detail(letter, started->pending->kind, text, bytes);
    size_t used = letter == NULL ? 0 : strlen(text);
    if (letter != NULL && tti_pending_awaits_stream(started->pending))
        snprintf(text + used, bytes - used, " (its stream has not come to it yet)");
    tti_messages_unlock(started->op.comm);
}

static struct tti_waitable waitable_of(struct tti_started *started)
{
    struct tti_pending *pending = started->pending;
    return (struct tti_waitable){.progress = progress,
                                 .object = started,
                                 .waiting_for = &pending->waiting_for,
                                 .site = tti_pending_site(pending),
                                 .kind = pending->kind,
                                 .detail = detail,
                                 .deadline_ms = tti_pending_awaits_stream(pending) ? TTI_WEEK_MS
                                                                                   : started->op.deadline_ms,
                                 .drives = true,
                                 .started = true,
                                 .wait_state = &started->wait_state};
}

/* Waits in short steps, since neither streams nor copies ring a bell. */
static void poll_until(struct tti_started *started, int64_t until_ns)
{
    enum { LOOK_MS = 10, NAP_US = 50 };
    tutti_comm *comm = started->op.comm;
    struct tti_wait wait;
    tti_bell nobody = 0;
    int64_t polled_ns = tti_now_ns();
    tti_wait_begin(&wait, false, MS);
    while (!tti_comm_is_broken(comm) && progress(started) == TUTTI_IN_PROGRESS) {
        if (tti_wait_pause(&wait, false)) continue;
        tti_bell_sleep(&nobody, 0, NAP_US * MS / 1000, false);
        int64_t now = tti_now_ns();
        if (now >= until_ns) return;
        if (now - polled_ns < LOOK_MS * MS) continue;
        polled_ns = now;
        struct tti_waitable waitable = waitable_of(started);
        tti_messages_poll_closely(comm);
        if (tti_comm_check_wait(comm, &waitable, now) < 0) return;
    }
}

void tti_queue_await_pending(struct tti_started *started, int64_t until_ns)
{
    tutti_comm *comm = started->op.comm;
    if (started->pending->on_devices > 0 && !tti_comm_is_broken(comm)) {
        poll_until(started, until_ns);
        return;
    }
    struct tti_waitable waitable = waitable_of(started);
    if (!tti_comm_is_broken(comm)) {
        /* an error that it finds breaks the comm, and is seen in the next round */
        if (tti_comm_poll(comm, progress, started) == TUTTI_IN_PROGRESS) tti_comm_wait_until(comm, &waitable, until_ns);
    } else {
        tti_queue_drive(comm);
        tti_wait_turn();
    }
}

void tti_queue_hold(tutti_comm *comm)
{
    if (tti_queue_is_idle(comm)) return;
    tti_queue_take(comm);
    comm->queue.held = true;
}

tutti_status tti_queue_let_go(tutti_comm *comm, tutti_status status)
{
    if (!comm->queue.held) return status;
    comm->queue.held = false;
    if (status < 0 && tti_comm_is_broken(comm) && comm->queue.error.status == status) {
        comm->errors.call = comm->queue.error;
        tti_comm_note(comm, &comm->errors.call);
        atomic_store_explicit(&comm->errors.told, true, memory_order_relaxed);
    }
    tti_queue_give_back(comm);
    if (tti_callbacks_are_due(comm)) tti_service_wake(comm, TTI_AT_ONCE);
    return status;
}

void tti_queue_expire(tutti_comm *comm, int64_t now_ns)
{
    bool any = false;
    TTI_LIST_EACH(link, &comm->queue.pending)
    {
        struct tti_pending *pending = tti_pending_on(link);
        if (pending->late || !tti_started_is_overdue(pending->started, now_ns)) continue;
        pending->late = any = true;
        atomic_store_explicit(&pending->started->cancelled, TTI_CANCEL, memory_order_relaxed);
    }
    if (any) atomic_store_explicit(&comm->queue.cancels, true, memory_order_release);
}

void tti_queue_poll_pending(tutti_comm *comm)
{
    if (tti_list_is_empty(&comm->queue.pending) || tti_comm_is_broken(comm)) return;
    struct tti_pending *pending = tti_pending_on(comm->queue.pending.next);
    find_awaited(pending);
    struct tti_waitable waitable = waitable_of(pending->started);
    waitable.passing = true;
    tti_comm_check_wait(comm, &waitable, tti_now_ns());
}

enum tti_kind tti_started_kind(const struct tti_started *started)
{
    return started->pending != NULL ? started->pending->kind : (enum tti_kind)started->op.call.kind;
}

struct tti_site *tti_started_site(struct tti_started *started)
{
    return started->pending != NULL ? tti_pending_site(started->pending) : &started->op.call.site;
}

void tti_pending_end_hopeless(struct tti_started *started)
{
    struct tti_pending *pending = started->pending;
    tutti_comm *comm = started->comm;
    tti_queue_take(comm);
    tti_messages_lock(comm);
    for (int i = pending->ended; i < pending->count; i++) {
        struct tti_letter *letter = tti_letter_of(&on_the_way(pending)[i]);
        if (!tti_letter_is_own(letter) || letter->status != TUTTI_IN_PROGRESS) continue;
        pending->hopeless = true;
        tti_letter_cancel(letter, true);
    }
    tti_messages_unlock(comm);
    tti_queue_drive_pending(comm);
    tti_queue_give_back(comm);
}

uint64_t tti_pending_bytes(const struct tti_pending *pending)
{
    uint64_t bytes = 0;
    for (int i = 0; i < pending->count; i++) {
        const struct tti_message_request *request = &pending->requests[i];
        bytes += request->sends ? request->send.letter.bytes : request->recv.capacity;
    }
    return bytes;
}

bool tti_queue_post_pending(struct tti_started *started)
{
    struct tti_pending *pending = started->pending;
    tutti_comm *comm = started->op.comm;
    struct tti_message_request *requests = on_the_way(pending);
    tti_queue_take(comm);
    pending->waiting_for = -1;
    pending->ended = 0;
    pending->asked = pending->late = pending->come = false;
    if (pending->on_devices > 0)
        atomic_fetch_add_explicit(&comm->messages->on_devices, pending->on_devices, memory_order_relaxed);
    pending->batch = (struct tti_batch){.ended = &comm->queue.ended_pending, .left = pending->count};
    tti_list_append(&comm->queue.pending, &pending->on);
    if (tti_traced(comm)) pending->traced = tti_trace_ticks(comm->trace);
    if (started->persistent) memcpy(requests, pending->requests, (size_t)pending->count * sizeof *requests);
    for (int i = 0; i < pending->count; i++) tti_letter_of(&requests[i])->batch = &pending->batch;
    tti_message_requests_post(requests, pending->count);
    if (pending->count == 0) tti_list_append(&comm->queue.ended_pending, &pending->batch.on);
    tti_queue_drive_pending(comm);
    bool any = !tti_list_is_empty(&comm->queue.pending) || tti_callbacks_are_due(comm) || comm->messages->owed > 0;
    tti_queue_give_back(comm);
    return any;
}

/* Returns true for an op of one message, as most are: its memory is kept for the next one in its place. */
static bool is_usual(const struct tti_started *started, int count)
{
    return count == 1 && !started->persistent;
}

void tti_pending_put_by(struct tti_started *started)
{
    struct tti_pending *pending = started->pending;
    if (pending == NULL) return;
    for (int i = 0; pending->on_devices > 0 && i < pending->count; i++)
        tti_device_letter_free(tti_letter_of(&pending->requests[i])->device);
    if (started->used_pending == NULL && is_usual(started, pending->count))
        started->used_pending = pending;
    else
        tti_free(pending);
    started->pending = NULL;
}

static struct tti_pending *make_pending(struct tti_started *started, enum tti_kind kind,
                                        const struct tti_message_request *requests, int count)
{
    size_t bytes = (size_t)count * sizeof *requests;
    struct tti_pending *pending = is_usual(started, count) ? started->used_pending : NULL;
    if (pending != NULL)
        started->used_pending = NULL;
    else
        pending = tti_malloc(1, sizeof *pending + (started->persistent ? 2 : 1) * bytes);
    if (pending == NULL) return NULL;
    pending->started = started;
    pending->kind = kind;
    pending->count = count;
    pending->ended = 0;
    pending->hopeless = false;
    if (kind == TTI_GROUP) pending->group_site = started->comm->caller.site;
    if (count > 0) memcpy(pending->requests, requests, bytes);
    pending->on_devices = 0;
    for (int i = 0; i < count; i++) pending->on_devices += tti_letter_of(&pending->requests[i])->device != NULL;
    return pending;
}

struct tti_started *tti_pending_new(tutti_comm *comm, enum tti_kind kind, const struct tti_message_request *requests,
                                    int count)
{
    struct tti_started *started = tti_started_new(comm);
    if (started != NULL) started->persistent = comm->caller.preparing;
    struct tti_pending *pending = started == NULL ? NULL : make_pending(started, kind, requests, count);
    if (pending == NULL) {
        if (started != NULL) tti_started_free(started);
        return NULL;
    }
    started->pending = pending;
    started->op.comm = comm;
    started->op.deadline_ms = comm->caller.deadline_ms;
    started->op.shape.kind = kind;
    return started;
}

tutti_status tti_queue_pending(tutti_comm *comm, enum tti_kind kind, struct tti_message_request *requests, int count,
                               tutti_op *handle)
{
    tutti_status status = tti_queue_ready(comm, kind);
    struct tti_started *started = status == TUTTI_OK ? tti_pending_new(comm, kind, requests, count) : NULL;
    if (started == NULL) {
        tti_message_requests_forget(requests, count);
        return status != TUTTI_OK ? status
                                  : tti_comm_refuse(comm, kind, TUTTI_ERR_MEMORY,
                                                    "%s: no memory for one more op in flight", tti_kind_name(kind));
    }
    tutti_error error = {0};
    bool puts = started->pending->on_devices > 0 && !comm->caller.preparing;
    if (puts && tti_pending_put(started->pending, &error) != TUTTI_OK) {
        tti_started_free(started);
        return tti_comm_refuse(comm, kind, error.status, "%s: %s", tti_kind_name(kind), error.text);
    }
    handle->id = atomic_load_explicit(&started->id, memory_order_relaxed);
    if (!comm->caller.preparing) tti_queue_start(started);
    tti_call_end(comm);
    return TUTTI_OK;
}
