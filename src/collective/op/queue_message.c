/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that were started: a send, a receive, both, or a group of them. They go beside the comm's collectives, in no
 * order but that of matching; whoever is busy with the comm takes them forward too.
 */
#include "collective/op/queue_message.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/message/message_parts.h"
#include "collective/op/callback.h"
#include "device/stream.h"
#include <string.h>

#define MS INT64_C(1000000)

static struct tti_parcel *on_the_way(struct tti_mail *mail)
{
    return &mail->parcels[mail->started->persistent ? mail->count : 0];
}

static struct tti_letter *unfinished(struct tti_mail *mail)
{
    for (; mail->ended < mail->count; mail->ended++) {
        struct tti_letter *letter = tti_letter_of(&on_the_way(mail)[mail->ended]);
        if (letter->status == TUTTI_IN_PROGRESS) return letter;
    }
    return NULL;
}

/* Tells letters whether somebody asks for their op now; of one that was cancelled that is over. */
static void tell(struct tti_queue *queue)
{
    uint32_t asks = atomic_load_explicit(&queue->asks, memory_order_acquire);
    if (queue->told_asks == asks) return;
    queue->told_asks = asks;
    TTI_LIST_EACH(link, &queue->mail)
    {
        struct tti_mail *mail = tti_mail_on(link);
        bool asked = atomic_load_explicit(&mail->started->asked, memory_order_relaxed) &&
                     atomic_load_explicit(&mail->started->cancelled, memory_order_relaxed) == 0;
        if (mail->asked == asked) continue;
        mail->asked = asked;
        for (int i = mail->ended; i < mail->count; i++) tti_letter_of(&on_the_way(mail)[i])->asked = asked;
    }
}

/* Others wait for the message, or move its data: its end is the comm's. */
static void break_off(tutti_comm *comm, const struct tti_mail *mail, const struct tti_letter *letter)
{
    char what[200];
    tti_letter_describe(letter, what, sizeof what);
    tti_comm_break(comm, mail->kind, TUTTI_ERR_CANCELLED, comm->rank, "rank %d cancelled %s%s, which was under way",
                   comm->rank, mail->kind == TTI_GROUP ? "a group with a " : "", what);
}

/* Ends those for which that is not too late. Returns the first of the others; NULL: there are none. */
static struct tti_letter *cancel(tutti_comm *comm, struct tti_mail *mail, bool gently)
{
    for (int i = mail->ended; i < mail->count; i++) {
        struct tti_letter *each = tti_letter_of(&on_the_way(mail)[i]);
        if (mail->late)
            tti_letter_give_up(each, TUTTI_ERR_TIMEOUT);
        else
            tti_letter_cancel(each, gently);
    }
    struct tti_letter *letter = unfinished(mail);
    if (letter != NULL && !gently && !tti_comm_is_broken(comm) && !comm->traits.tolerant) break_off(comm, mail, letter);
    return letter;
}

/* The first one that failed, or -1. */
static int find_failed(struct tti_mail *mail)
{
    for (int i = 0; i < mail->count; i++)
        if (tti_letter_of(&on_the_way(mail)[i])->status != TUTTI_OK) return i;
    return -1;
}

static void explain_cancelled(const struct tti_mail *mail, const struct tti_letter *letter, tutti_error *error)
{
    const tutti_comm *comm = letter->comm;
    char what[200];
    tti_letter_describe(letter, what, sizeof what);
    tti_comm_describe(comm, error, mail->kind, TUTTI_ERR_CANCELLED,
                      "rank %d cancelled %s%s, %s; the comm is as good as before", comm->rank,
                      mail->kind == TTI_GROUP ? "a group with a " : "", what,
                      letter->is_send ? "which no receive has taken" : "for which no message had come");
}

void tti_mail_explain(struct tti_mail *mail, tutti_error *error)
{
    struct tti_parcel *parcel = &on_the_way(mail)[find_failed(mail)];
    if (tti_letter_of(parcel)->status == TUTTI_ERR_CANCELLED && !mail->hopeless)
        explain_cancelled(mail, tti_letter_of(parcel), error);
    else if (mail->kind == TTI_GROUP)
        tti_group_explain(parcel, error);
    else
        tti_recv_explain(&parcel->recv, mail->kind, "", error);
}

int tti_mail_failed(struct tti_mail *mail, char *text, size_t bytes)
{
    struct tti_parcel *parcel = &on_the_way(mail)[find_failed(mail)];
    tti_letter_describe(tti_letter_of(parcel), text, bytes);
    return parcel->number;
}

/* Of a tolerant comm, whose other messages go on: everything is told now, since what is known of the peer may change. */
static void explain_alone(struct tti_started *started, int failed)
{
    struct tti_mail *mail = started->mail;
    const struct tti_letter *letter = tti_letter_of(&on_the_way(mail)[failed]);
    bool usual = letter->status == TUTTI_ERR_CANCELLED || letter->status == TUTTI_ERR_TRUNCATED;
    started->error = tti_calloc(1, sizeof *started->error);
    if (started->error == NULL) return;
    if (usual)
        tti_mail_explain(mail, started->error);
    else
        tti_letter_explain(letter, mail->kind, started->op.deadline_ms, started->error);
}

static void trace(tutti_comm *comm, struct tti_mail *mail, tutti_status status)
{
    uint64_t bytes = 0;
    for (int i = 0; i < mail->count; i++) bytes += tti_letter_of(&on_the_way(mail)[i])->bytes;
    int peer = mail->kind == TTI_GROUP ? -1 : tti_letter_of(&on_the_way(mail)[0])->peer;
    tti_trace_note_mail(comm, mail->kind, tti_mail_site(mail), mail->traced, peer, bytes, status);
}

/* ---- On streams ---------------------------------------------------------------------------------------------------- */

tutti_status tti_mail_put(struct tti_mail *mail, tutti_error *error)
{
    for (int i = 0; i < mail->count; i++) {
        struct tti_device_letter *device = tti_letter_of(&mail->parcels[i])->device;
        tutti_status status = device == NULL ? TUTTI_OK : tti_device_letter_put(device, error);
        if (status == TUTTI_OK) continue;
        for (int k = 0; k <= i; k++)
            if (tti_letter_of(&mail->parcels[k])->device != NULL)
                tti_device_letter_end(tti_letter_of(&mail->parcels[k])->device);
        return status;
    }
    return TUTTI_OK;
}

/* Whether one of its streams will never come, or copies will never be done. */
static tutti_status look_at_streams(struct tti_mail *mail, bool *come, tutti_error *error)
{
    *come = true;
    for (int i = 0; i < mail->count; i++) {
        const struct tti_letter *letter = tti_letter_of(&on_the_way(mail)[i]);
        if (letter->device == NULL || letter->status != TUTTI_IN_PROGRESS) continue;
        *come = *come && tti_device_letter_has_come(letter->device);
        TTI_TRY(tti_device_letter_state(letter->device, error));
    }
    return TUTTI_OK;
}

static void fail_on_stream(struct tti_mail *mail, const tutti_error *error)
{
    tutti_comm *comm = mail->started->op.comm;
    struct tti_letter *letter = unfinished(mail);
    char what[200] = "";
    if (letter != NULL) tti_letter_describe(letter, what, sizeof what);
    if (!comm->traits.tolerant) {
        tti_comm_break_apart(comm, mail->kind, error->status, comm->rank,
                             "rank %d called %s, and its stream never comes to it: %s", comm->rank, what, error->text);
        return;
    }
    for (int i = mail->ended; i < mail->count; i++)
        tti_letter_give_up(tti_letter_of(&on_the_way(mail)[i]), error->status);
}

/* Deadlines count from when all its streams have come. */
static void watch_streams(tutti_comm *comm)
{
    tti_messages_lock(comm);
    TTI_LIST_EACH(link, &comm->queue.mail)
    {
        struct tti_mail *mail = tti_mail_on(link);
        struct tti_started *started = mail->started;
        tutti_error error = {0};
        bool come;
        if (mail->on_devices == 0) continue;
        if (look_at_streams(mail, &come, &error) != TUTTI_OK) fail_on_stream(mail, &error);
        if (come && !mail->come) {
            mail->come = true;
            started->vigil = (struct tti_vigil){.since_ns = started->op.deadline_ms != 0 ? tti_now_ns() : 0};
        }
    }
    tti_messages_unlock(comm);
}

/* ---- The end ------------------------------------------------------------------------------------------------------- */

static void finish(struct tti_mail *mail)
{
    struct tti_started *started = mail->started;
    tutti_comm *comm = started->op.comm;
    if (mail->on_devices > 0)
        atomic_fetch_sub_explicit(&comm->messages->on_devices, mail->on_devices, memory_order_relaxed);
    for (int i = 0; i < mail->count && mail->on_devices > 0; i++) /* one to nobody was never posted */
        if (tti_letter_of(&on_the_way(mail)[i])->device != NULL)
            tti_device_letter_end(tti_letter_of(&on_the_way(mail)[i])->device);
    int failed = find_failed(mail);
    tutti_status status = failed < 0 ? TUTTI_OK : tti_letter_of(&on_the_way(mail)[failed])->status;
    tti_list_remove(&mail->batch.on);
    tti_list_remove(&mail->on);
    for (int i = 0; i < mail->count; i++) {
        const struct tti_parcel *parcel = &on_the_way(mail)[i];
        if (!parcel->sends && parcel->recv.letter.status == TUTTI_OK)
            tti_recv_results(&parcel->recv, parcel->received, parcel->message);
    }
    if (tti_traced(comm)) trace(comm, mail, status);
    /* what ended by itself says so, whatever has become of the comm since */
    bool alone = (status == TUTTI_ERR_CANCELLED || status == TUTTI_ERR_TRUNCATED) && comm->queue.error.status != status;
    if (status != TUTTI_OK && !alone && tti_comm_is_broken(comm))
        tti_started_fail(started);
    else if (status != TUTTI_OK && comm->traits.tolerant && !mail->hopeless)
        explain_alone(started, failed);
    tti_started_end(started, status);
}

/* The comm is broken: letters end when nobody can touch their buffers any more. */
static void fail_all(tutti_comm *comm, tutti_status status)
{
    struct tti_queue *queue = &comm->queue;
    if (queue->mail_until_ns == 0) {
        queue->mail_until_ns = tti_now_ns() + comm->world->options.fence_ms * MS;
        tti_messages_stop(comm);
    }
    if (!tti_messages_fence(comm, status) && tti_now_ns() >= queue->mail_until_ns) tti_messages_fail(comm, status);
}

static void cancel_those(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    bool late = false;
    atomic_store_explicit(&queue->cancels, false, memory_order_seq_cst);
    tti_messages_lock(comm);
    TTI_LIST_EACH(link, &queue->mail)
    {
        struct tti_mail *mail = tti_mail_on(link);
        uint32_t cancelled = atomic_load_explicit(&mail->started->cancelled, memory_order_seq_cst);
        if (cancelled != 0 && mail->batch.left > 0)
            late = cancel(comm, mail, cancelled == TTI_CANCEL_GENTLY) != NULL || late;
    }
    tti_messages_unlock(comm);
    if (late) atomic_store_explicit(&queue->cancels, true, memory_order_relaxed); /* until these have ended */
}

bool tti_queue_drive_mail(tutti_comm *comm)
{
    struct tti_queue *queue = &comm->queue;
    if (tti_list_is_empty(&queue->mail) && comm->messages->owed == 0) return false;
    /* before it is looked whether peers have left: what was taken back before that harms nobody */
    if (atomic_load_explicit(&queue->cancels, memory_order_acquire)) cancel_those(comm);
    if (atomic_load_explicit(&comm->messages->on_devices, memory_order_relaxed) > 0) watch_streams(comm);
    if (tti_messages_are_quiet(comm)) tell(queue);
    tutti_status status = tti_comm_is_broken(comm) ? TUTTI_IN_PROGRESS : tti_messages_progress(comm);
    if (status != TUTTI_OK) fail_all(comm, status < 0 ? status : tti_comm_health(comm, TTI_RECV, false));
    tti_messages_lock(comm);
    bool moved = !tti_list_is_empty(&queue->ended_mail);
    TTI_LIST_EACH(link, &queue->ended_mail) finish(TTI_LIST_OF(link, struct tti_mail, batch.on));
    tti_messages_unlock(comm);
    return moved;
}

static void find_awaited(struct tti_mail *mail)
{
    tutti_comm *comm = mail->started->op.comm;
    tti_messages_lock(comm);
    const struct tti_letter *letter = unfinished(mail);
    if (letter != NULL) mail->waiting_for = letter->waiting_for;
    tti_messages_unlock(comm);
}

static tutti_status progress(void *object)
{
    struct tti_started *started = object;
    tti_queue_drive(started->op.comm);
    if (tti_queue_is_wanted(started->op.comm)) return TUTTI_OK;
    if (atomic_load_explicit(&started->status, memory_order_acquire) != TUTTI_IN_PROGRESS) return TUTTI_OK;
    find_awaited(started->mail);
    return TUTTI_IN_PROGRESS;
}

static void detail(void *object, char *text, size_t bytes)
{
    struct tti_started *started = object;
    tti_messages_lock(started->op.comm);
    const struct tti_letter *letter = unfinished(started->mail);
    if (letter != NULL) tti_letter_detail(letter, started->mail->kind, text, bytes);
    size_t used = letter == NULL ? 0 : strlen(text);
    if (letter != NULL && tti_mail_awaits_stream(started->mail))
        snprintf(text + used, bytes - used, " (its stream has not come to it yet)");
    tti_messages_unlock(started->op.comm);
}

static struct tti_waitable waitable_of(struct tti_started *started)
{
    struct tti_mail *mail = started->mail;
    return (struct tti_waitable){.progress = progress,
                                 .object = started,
                                 .waiting_for = &mail->waiting_for,
                                 .site = tti_mail_site(mail),
                                 .kind = mail->kind,
                                 .detail = detail,
                                 .deadline_ms = tti_mail_awaits_stream(mail) ? TTI_WEEK_MS : started->op.deadline_ms,
                                 .drives = true,
                                 .started = true,
                                 .vigil = &started->vigil};
}

/* Neither streams nor copies ring: the waits in between are short. */
static void poll_until(struct tti_started *started, int64_t until_ns)
{
    enum { LOOK_MS = 10, NAP_US = 50 };
    tutti_comm *comm = started->op.comm;
    struct tti_wait wait;
    tti_bell nobody = 0;
    int64_t looked_ns = tti_now_ns();
    tti_wait_begin(&wait, false, MS);
    while (!tti_comm_is_broken(comm) && progress(started) == TUTTI_IN_PROGRESS) {
        if (tti_wait_pause(&wait, false)) continue;
        tti_bell_sleep(&nobody, 0, NAP_US * MS / 1000, false);
        int64_t now = tti_now_ns();
        if (now >= until_ns) return;
        if (now - looked_ns < LOOK_MS * MS) continue;
        looked_ns = now;
        struct tti_waitable waitable = waitable_of(started);
        tti_messages_look_closely(comm);
        if (tti_comm_look(comm, &waitable, now) < 0) return;
    }
}

void tti_queue_await_mail(struct tti_started *started, int64_t until_ns)
{
    tutti_comm *comm = started->op.comm;
    if (started->mail->on_devices > 0 && !tti_comm_is_broken(comm)) {
        poll_until(started, until_ns);
        return;
    }
    struct tti_waitable waitable = waitable_of(started);
    if (!tti_comm_is_broken(comm)) {
        /* what it finds breaks the comm, and is seen in the next round */
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
    TTI_LIST_EACH(link, &comm->queue.mail)
    {
        struct tti_mail *mail = tti_mail_on(link);
        if (mail->late || !tti_started_is_overdue(mail->started, now_ns)) continue;
        mail->late = any = true;
        atomic_store_explicit(&mail->started->cancelled, TTI_CANCEL, memory_order_relaxed);
    }
    if (any) atomic_store_explicit(&comm->queue.cancels, true, memory_order_release);
}

void tti_queue_look_at_mail(tutti_comm *comm)
{
    if (tti_list_is_empty(&comm->queue.mail) || tti_comm_is_broken(comm)) return;
    struct tti_mail *mail = tti_mail_on(comm->queue.mail.next);
    find_awaited(mail);
    struct tti_waitable waitable = waitable_of(mail->started);
    waitable.passing = true;
    tti_comm_look(comm, &waitable, tti_now_ns());
}

enum tti_kind tti_started_kind(const struct tti_started *started)
{
    return started->mail != NULL ? started->mail->kind : (enum tti_kind)started->op.call.kind;
}

struct tti_site *tti_started_site(struct tti_started *started)
{
    return started->mail != NULL ? tti_mail_site(started->mail) : &started->op.call.site;
}

void tti_mail_end_hopeless(struct tti_started *started)
{
    struct tti_mail *mail = started->mail;
    tutti_comm *comm = started->comm;
    tti_queue_take(comm);
    tti_messages_lock(comm);
    for (int i = mail->ended; i < mail->count; i++) {
        struct tti_letter *letter = tti_letter_of(&on_the_way(mail)[i]);
        if (!tti_letter_is_own(letter) || letter->status != TUTTI_IN_PROGRESS) continue;
        mail->hopeless = true;
        tti_letter_cancel(letter, true);
    }
    tti_messages_unlock(comm);
    tti_queue_drive_mail(comm);
    tti_queue_give_back(comm);
}

uint64_t tti_mail_bytes(const struct tti_mail *mail)
{
    uint64_t bytes = 0;
    for (int i = 0; i < mail->count; i++) {
        const struct tti_parcel *parcel = &mail->parcels[i];
        bytes += parcel->sends ? parcel->send.letter.bytes : parcel->recv.capacity;
    }
    return bytes;
}

bool tti_queue_post_mail(struct tti_started *started)
{
    struct tti_mail *mail = started->mail;
    tutti_comm *comm = started->op.comm;
    struct tti_parcel *parcels = on_the_way(mail);
    tti_queue_take(comm);
    mail->waiting_for = -1;
    mail->ended = 0;
    mail->asked = mail->late = mail->come = false;
    if (mail->on_devices > 0)
        atomic_fetch_add_explicit(&comm->messages->on_devices, mail->on_devices, memory_order_relaxed);
    mail->batch = (struct tti_batch){.ended = &comm->queue.ended_mail, .left = mail->count};
    tti_list_append(&comm->queue.mail, &mail->on);
    if (tti_traced(comm)) mail->traced = tti_trace_ticks(comm->trace);
    if (started->persistent) memcpy(parcels, mail->parcels, (size_t)mail->count * sizeof *parcels);
    for (int i = 0; i < mail->count; i++) tti_letter_of(&parcels[i])->batch = &mail->batch;
    tti_parcels_post(parcels, mail->count);
    if (mail->count == 0) tti_list_append(&comm->queue.ended_mail, &mail->batch.on);
    tti_queue_drive_mail(comm);
    bool any = !tti_list_is_empty(&comm->queue.mail) || tti_callbacks_are_due(comm) || comm->messages->owed > 0;
    tti_queue_give_back(comm);
    return any;
}

/* One message is what most ops are about: what it was made of is kept for the next one in its place. */
static bool is_usual(const struct tti_started *started, int count)
{
    return count == 1 && !started->persistent;
}

void tti_mail_put_by(struct tti_started *started)
{
    struct tti_mail *mail = started->mail;
    for (int i = 0; mail != NULL && mail->on_devices > 0 && i < mail->count; i++)
        tti_device_letter_free(tti_letter_of(&mail->parcels[i])->device);
    if (mail != NULL && started->used_mail == NULL && is_usual(started, mail->count))
        started->used_mail = mail;
    else
        tti_free(mail);
    started->mail = NULL;
}

static struct tti_mail *make_mail(struct tti_started *started, enum tti_kind kind, const struct tti_parcel *parcels,
                                  int count)
{
    size_t bytes = (size_t)count * sizeof *parcels;
    struct tti_mail *mail = is_usual(started, count) ? started->used_mail : NULL;
    if (mail != NULL)
        started->used_mail = NULL;
    else
        mail = tti_malloc(1, sizeof *mail + (started->persistent ? 2 : 1) * bytes);
    if (mail == NULL) return NULL;
    mail->started = started;
    mail->kind = kind;
    mail->count = count;
    mail->ended = 0;
    mail->hopeless = false;
    if (kind == TTI_GROUP) mail->group_site = started->comm->caller.site;
    if (count > 0) memcpy(mail->parcels, parcels, bytes);
    mail->on_devices = 0;
    for (int i = 0; i < count; i++) mail->on_devices += tti_letter_of(&mail->parcels[i])->device != NULL;
    return mail;
}

struct tti_started *tti_mail_new(tutti_comm *comm, enum tti_kind kind, const struct tti_parcel *parcels, int count)
{
    struct tti_started *started = tti_started_new(comm);
    if (started != NULL) started->persistent = comm->caller.preparing;
    struct tti_mail *mail = started == NULL ? NULL : make_mail(started, kind, parcels, count);
    if (mail == NULL) {
        if (started != NULL) tti_started_free(started);
        return NULL;
    }
    started->mail = mail;
    started->op.comm = comm;
    started->op.deadline_ms = comm->caller.deadline_ms;
    started->op.shape.kind = kind;
    return started;
}

tutti_status tti_queue_mail(tutti_comm *comm, enum tti_kind kind, struct tti_parcel *parcels, int count)
{
    tutti_status status = tti_queue_ready(comm, kind);
    struct tti_started *started = status == TUTTI_OK ? tti_mail_new(comm, kind, parcels, count) : NULL;
    if (started == NULL) {
        tti_parcels_forget(parcels, count);
        return status != TUTTI_OK ? status
                                  : tti_comm_refuse(comm, kind, TUTTI_ERR_MEMORY,
                                                    "%s: no memory for one more op in flight", tti_kind_name(kind));
    }
    tutti_error error = {0};
    bool puts = started->mail->on_devices > 0 && !comm->caller.preparing;
    if (puts && tti_mail_put(started->mail, &error) != TUTTI_OK) {
        tti_started_free(started);
        return tti_comm_refuse(comm, kind, error.status, "%s: %s", tti_kind_name(kind), error.text);
    }
    comm->caller.starting->id = atomic_load_explicit(&started->id, memory_order_relaxed);
    if (!comm->caller.preparing) tti_queue_start(started);
    tti_call_end(comm);
    return TUTTI_OK;
}
