/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that were started: a send, a receive, or both. They go beside the comm's collectives, in no order but that of
 * matching; whoever is busy with the comm takes them forward too.
 */
#include "collective/queue_message.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/queue.h"

#define MS INT64_C(1000000)

static struct tti_letter *unfinished(struct tti_mail *mail)
{
    if (mail->sends && mail->send.letter.status == TUTTI_IN_PROGRESS) return &mail->send.letter;
    if (mail->receives && mail->recv.letter.status == TUTTI_IN_PROGRESS) return &mail->recv.letter;
    return NULL;
}

static tutti_status outcome(const struct tti_mail *mail)
{
    if (mail->sends && mail->send.letter.status != TUTTI_OK) return mail->send.letter.status;
    return mail->receives ? mail->recv.letter.status : TUTTI_OK;
}

static void finish(struct tti_started **link)
{
    struct tti_started *started = *link;
    struct tti_mail *mail = started->mail;
    tutti_comm *comm = started->op.comm;
    tutti_status status = outcome(mail);
    *link = started->next;
    if (status == TUTTI_OK && mail->receives) tti_recv_results(&mail->recv, mail->received, mail->message);
    if (status != TUTTI_OK && tti_comm_is_broken(comm)) {
        started->error = tti_calloc(1, sizeof *started->error);
        if (started->error != NULL) *started->error = comm->queue.error;
    }
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

bool tti_queue_drive_mail(tutti_comm *comm)
{
    struct tti_started **link = &comm->queue.mail;
    if (*link == NULL) return false;
    tutti_status status = tti_comm_is_broken(comm) ? TUTTI_IN_PROGRESS : tti_messages_progress(comm);
    if (status != TUTTI_OK) fail_all(comm, status < 0 ? status : tti_comm_health(comm, TTI_RECV, false));
    bool moved = false;
    tti_messages_lock(comm);
    while (*link != NULL) {
        struct tti_letter *letter = unfinished((*link)->mail);
        if (letter != NULL && atomic_load_explicit(&(*link)->cancelled, memory_order_relaxed) != 0 &&
            tti_letter_cancel(letter))
            letter = unfinished((*link)->mail);
        if (letter != NULL) {
            (*link)->mail->waiting_for = letter->waiting_for;
            link = &(*link)->next;
            continue;
        }
        finish(link);
        moved = true;
    }
    tti_messages_unlock(comm);
    return moved;
}

static tutti_status progress(void *object)
{
    struct tti_started *started = object;
    tti_queue_drive(started->op.comm);
    return atomic_load_explicit(&started->status, memory_order_acquire) == TUTTI_IN_PROGRESS ? TUTTI_IN_PROGRESS
                                                                                             : TUTTI_OK;
}

static struct tti_waitable waitable_of(struct tti_started *started)
{
    struct tti_mail *mail = started->mail;
    return (struct tti_waitable){.progress = progress,
                                 .object = started,
                                 .waiting_for = &mail->waiting_for,
                                 .site = &mail->site,
                                 .kind = mail->kind,
                                 .deadline_ms = started->op.deadline_ms,
                                 .vigil = &started->vigil};
}

void tti_queue_await_mail(struct tti_started *started, int64_t until_ns)
{
    tutti_comm *comm = started->op.comm;
    struct tti_waitable waitable = waitable_of(started);
    if (!tti_comm_is_broken(comm)) {
        tti_comm_wait_until(comm, &waitable,
                            until_ns); /* what it finds breaks the comm, and is seen in the next round */
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
    if (status < 0 && tti_comm_is_broken(comm) && comm->queue.error.status == status) comm->error = comm->queue.error;
    tti_queue_give_back(comm);
    return status;
}

void tti_queue_look_at_mail(tutti_comm *comm)
{
    struct tti_started *started = comm->queue.mail;
    if (started == NULL || tti_comm_is_broken(comm)) return;
    struct tti_waitable waitable = waitable_of(started);
    tti_comm_look(comm, &waitable, tti_now_ns());
}

void tti_queue_post_mail(struct tti_started *started)
{
    struct tti_mail *mail = started->mail;
    tutti_comm *comm = started->op.comm;
    tti_queue_take(comm);
    mail->waiting_for = -1;
    if (mail->receives) {
        mail->recv = mail->recv_given;
        mail->recv.letter.site = &mail->site;
        tti_recv_post(&mail->recv);
    }
    if (mail->sends) {
        mail->send = mail->send_given;
        mail->send.letter.site = &mail->site;
        tti_send_post(&mail->send);
    }
    started->next = comm->queue.mail;
    comm->queue.mail = started;
    tti_queue_drive_mail(comm);
    tti_queue_give_back(comm);
}

tutti_status tti_queue_mail(tutti_comm *comm, const struct tti_mail *given)
{
    TTI_TRY(tti_queue_ready(comm, given->kind));
    struct tti_started *started = tti_started_new(comm);
    struct tti_mail *mail = started == NULL ? NULL : tti_calloc(1, sizeof *mail);
    if (mail == NULL) {
        if (started != NULL) tti_started_free(started);
        return tti_comm_refuse(comm, given->kind, TUTTI_ERR_MEMORY, "%s: no memory for one more op in flight",
                               tti_kind_name(given->kind));
    }
    *mail = *given;
    mail->site = comm->site;
    started->mail = mail;
    started->op.comm = comm;
    started->op.deadline_ms = comm->next_deadline_ms;
    started->op.shape.kind = given->kind;
    started->persistent = comm->preparing;
    comm->starting->id = atomic_load_explicit(&started->id, memory_order_relaxed);
    if (!comm->preparing) tti_queue_start(started);
    tti_api_end(comm);
    return TUTTI_OK;
}
