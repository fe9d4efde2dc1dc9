/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous as every rank but 0 does it: it finds rank 0, gives, and waits for all, or for an error.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "world/apart.h"
#include "world/join_messages.h"
#include "world/meeting.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REFUSALS_MOST = 20, RETRY_MS = 2, RETRY_MOST_MS = 20 };

/* ---- Finding rank 0 -------------------------------------------------------------------------------------------- */

static tutti_status prove_local(struct tti_meeting *meeting, int fd, struct tti_proof *proof)
{
    tti_proof_connect(proof, &meeting->proof, TTI_PROOF_RENDEZVOUS, 0, 0);
    for (;;) {
        enum tti_proof_state state = tti_proof_step(proof, fd);
        if (state == TTI_PROOF_DONE) return TUTTI_OK;
        if (state == TTI_PROOF_FAILED || tti_now_ns() >= meeting->deadline_ns) return TUTTI_ERR_JOIN;
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        tti_poll(&polled, 1, tti_poll_ms(meeting->deadline_ns));
    }
}

static tutti_status not_here(struct tti_meeting *meeting, const char *why, tutti_error *error)
{
    error->peer = 0;
    return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                         "%s of job %s %s not found rank 0 on this host in time (%s); is it running, with the "
                         "same job name, number of ranks, user and TUTTI_TRANSPORT, or had it given up before?",
                         tti_meeting_name(meeting, meeting->where.rank).text, meeting->job,
                         meeting->where.ranks_each == 1 ? "has" : "have", why);
}

/* Returns true if rank 0's process will be ended, and started again. */
static bool end_root(struct tti_meeting *meeting)
{
    bool ended = tti_meeting_end_late(meeting, 0);
    meeting->ended_late = true;
    return ended;
}

static tutti_status find_local(struct tti_meeting *meeting, tutti_error *error)
{
    char name[TTI_MEETING_SOCKET], foreign[TTI_WIRE_TEXT];
    struct tti_proof proof;
    tti_meeting_socket(meeting, name);
    for (int pause_ms = 1, refusals = 0;; pause_ms = pause_ms < RETRY_MOST_MS ? 2 * pause_ms : RETRY_MOST_MS) {
        const char *why = "its connection was refused";
        int fd = tti_wire_connect(name, SOCK_STREAM);
        if (fd < 0 && errno == EACCES && tti_wire_is_foreign(name, SOCK_STREAM, foreign))
            return tti_error_set(error, TUTTI_ERR_JOIN, 0, "%s", foreign);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE))
            return tti_error_set(error, TUTTI_ERR_LIMIT, errno,
                                 "file descriptors ran out: raise the limit (ulimit -n)");
        if (fd >= 0 && prove_local(meeting, fd, &proof) == TUTTI_OK) {
            meeting->members[0].fd = fd;
            return TUTTI_OK;
        }
        if (fd >= 0) {
            close(fd);
            refusals++;
        }
        TTI_TRY(tti_board_check(meeting->where.board, error));
        if (fd < 0) TTI_TRY(tti_apart_poll_join(meeting->where.apart, error));
        if ((tti_now_ns() >= meeting->deadline_ns && !end_root(meeting)) || refusals > REFUSALS_MOST)
            return not_here(meeting, why, error);
        tti_poll(NULL, 0, pause_ms);
    }
}

/* The same of launchers that meet. */
static const char *what_launchers_do(const struct tti_knock *knock)
{
    if (knock->other_service) return "; does anything else use the port behind --master-port there?";
    if (knock->refusals > 0)
        return "; were all launchers given the same --nnodes and --spare, the same --master-addr, written in the same "
               "way, "
               "and different --node-rank?";
    return "; is `tutti run --node-rank 0` running there, with --max-restarts or --keep-going, too?";
}

static const char *what_to_do(const struct tti_meeting *meeting, const struct tti_knock *knock)
{
    if (strcmp(meeting->where.each, "node") == 0) return what_launchers_do(knock);
    if (knock->other_service) return "; does MASTER_PORT (--master-port) name a port that nothing else uses there?";
    if (knock->refusals > 0)
        return "; do all ranks have the same job name and number of ranks? A job that is named after MASTER_ADDR "
               "(--master-addr) needs it written in the same way on every host";
    return "; is rank 0 running there, or had it given up before?";
}

static tutti_status no_way(struct tti_meeting *meeting, const struct tti_knock *knock, tutti_error *error)
{
    char tried[300], host[64];
    tti_host_name(host, sizeof host);
    error->peer = 0;
    tti_knock_text(knock, tried, sizeof tried);
    if (knock->other_key_ns != 0)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                             "wrong key, compare TUTTI_KEY_FILE: %s on %s and %s 0 of job %.64s (%s) were given "
                             "different ones",
                             tti_meeting_name(meeting, meeting->where.rank).text, host, meeting->where.each,
                             meeting->job, tried);
    return tti_error_set(error, TUTTI_ERR_JOIN, 0, "%s on %s cannot meet %s 0 of job %.64s (%s)%s",
                         tti_meeting_name(meeting, meeting->where.rank).text, host, meeting->where.each, meeting->job,
                         tried, what_to_do(meeting, knock));
}

/* Returns true if rank 0 has ended: only then will it never open. Ends of other processes are reported to rank 0, on
 * whichever host it is: see talk(). */
static bool root_ended(const struct tti_meeting *meeting)
{
    int process, at = 0;
    while ((process = tti_board_ended(meeting->where.board, at)) > 0) at++;
    return process == 0;
}

static tutti_status knock_until(struct tti_meeting *meeting, struct tti_knock *knock, tutti_error *error)
{
    struct tti_address used;
    for (;;) {
        int fd = tti_knock_step(knock, &used);
        int64_t now_ns = tti_now_ns(), next_ns = knock->next_ns;
        if (fd >= 0) {
            meeting->members[0].fd = fd;
            return TUTTI_OK;
        }
        if (root_ended(meeting)) return tti_board_check(meeting->where.board, error);
        TTI_TRY(tti_board_go_on(meeting->where.board, error));
        if (now_ns >= meeting->deadline_ns && end_root(meeting)) continue;
        bool hopeless = knock->refusals > REFUSALS_MOST || tti_knock_wrong_key(knock);
        /* `again`: the refusal may come from an earlier generation */
        if (now_ns >= meeting->deadline_ns || (hopeless && !meeting->where.again)) return no_way(meeting, knock, error);
        if (next_ns <= now_ns || next_ns > meeting->deadline_ns) next_ns = meeting->deadline_ns;
        int count = tti_knock_poll_set(knock, meeting->polled);
        int poll_ms = tti_board_poll_ms(meeting->where.board, tti_poll_ms(next_ns));
        tti_poll(meeting->polled, (nfds_t)count, knock->next_ns <= now_ns ? RETRY_MS : poll_ms);
    }
}

static tutti_status find_network(struct tti_meeting *meeting, tutti_error *error)
{
    const struct tti_rendezvous *where = &meeting->where;
    struct tti_address_list list;
    if (where->lookup == NULL)
        snprintf(meeting->place, sizeof meeting->place, "%s", where->address);
    else
        TTI_TRY(where->lookup(where->context, meeting->place, sizeof meeting->place, meeting->deadline_ns, error));
    TTI_TRY(tti_addresses_of(meeting->place, &list, error));
    struct tti_knock *knock = tti_knock_new(&meeting->proof, TTI_PROOF_RENDEZVOUS, 0, 0, &list);
    if (knock == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a connection ran out");
    tutti_status status = knock_until(meeting, knock, error);
    tti_knock_free(knock);
    return status;
}

tutti_status tti_meeting_open_member(struct tti_meeting *meeting, tutti_error *error)
{
    return meeting->local ? find_local(meeting, error) : find_network(meeting, error);
}

/* ---- Exchange -------------------------------------------------------------------------------------------------- */

static tutti_status root_lost(struct tti_meeting *meeting, int why, tutti_error *error)
{
    error->peer = 0;
    if (why == EBADMSG)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0, "%s 0 of job %s said something that is not understood",
                             meeting->where.each, meeting->job);
    if (why == ENOMEM) return tti_error_set(error, TUTTI_ERR_MEMORY, why, "memory for what all ranks gave ran out");
    return tti_error_set(error, TUTTI_ERR_JOIN, why == EPIPE ? 0 : why, "%s 0 of job %s ended during the rendezvous",
                         meeting->where.each, meeting->job);
}

static tutti_status give(struct tti_meeting *meeting, const void *mine, size_t bytes, tutti_error *error)
{
    struct tti_meeting_member *root = &meeting->members[0];
    int64_t left_ms = (meeting->deadline_ns - tti_now_ns()) / 1000000;
    tti_meeting_message_drop(&root->out);
    if (!tti_meeting_message_make(&root->out, TTI_MEETING_GIVE, meeting->round, bytes))
        return root_lost(meeting, ENOMEM, error);
    root->out.head.left_ms = left_ms < 0 ? 0 : left_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)left_ms;
    if (bytes > 0) memcpy(root->out.body, mine, bytes);
    meeting->gave_ns = tti_now_ns();
    return TUTTI_OK;
}

static tutti_status take(struct tti_meeting *meeting, struct tti_blobs *all, tutti_error *error)
{
    struct tti_meeting_message *in = &meeting->members[0].in;
    if (in->head.kind == TTI_MEETING_TROUBLE) return tti_meeting_take_trouble(in, error);
    if (in->head.round != meeting->round) return root_lost(meeting, EBADMSG, error);
    if (!tti_blobs_take(all, in->body, (size_t)in->head.bytes, meeting->where.size))
        return root_lost(meeting, EBADMSG, error);
    tti_meeting_compare(meeting, &in->head);
    memset(in, 0, sizeof *in); /* the blobs own the body now */
    return TUTTI_OK;
}

/* Exchanges messages with rank 0. Its last message may have come although nothing can be sent to it any more: so
 * reading decides. */
static tutti_status talk(struct tti_meeting *meeting, struct tti_blobs *all, tutti_error *error)
{
    struct tti_meeting_member *root = &meeting->members[0];
    bool sending = true;
    for (;;) {
        if (sending) sending = tti_meeting_message_send(&root->out, root->fd) == TTI_MEETING_PARTLY;
        enum tti_meeting_message_state state = tti_meeting_message_receive(&root->in, root->fd, true,
                                                                           meeting->where.size);
        if (state == TTI_MEETING_WHOLE) return take(meeting, all, error);
        if (state == TTI_MEETING_BROKEN) return root_lost(meeting, errno, error);
        /* rank 0 may be on another host, and not see the end of a process of this one */
        TTI_TRY(tti_meeting_check(meeting, error));
        if (tti_now_ns() >= meeting->deadline_ns + TTI_JOIN_GRACE_NS && !end_root(meeting)) {
            error->peer = 0;
            return tti_error_set(error, TUTTI_ERR_JOIN, 0, "%s 0 of job %.64s at %.100s has not answered in time",
                                 meeting->where.each, meeting->job, meeting->place);
        }
        struct pollfd polled = {.fd = root->fd, .events = (short)(POLLIN | (sending ? POLLOUT : 0))};
        int poll_ms = tti_poll_ms(meeting->deadline_ns + TTI_JOIN_GRACE_NS);
        tti_poll(&polled, 1, tti_meeting_poll_ms(meeting, poll_ms));
    }
}

tutti_status tti_meeting_member_exchange(struct tti_meeting *meeting, const void *mine, size_t bytes,
                                         struct tti_blobs *all, tutti_error *error)
{
    TTI_TRY(give(meeting, mine, bytes, error));
    tutti_status status = talk(meeting, all, error);
    tti_meeting_message_drop(&meeting->members[0].out);
    tti_meeting_message_drop(&meeting->members[0].in);
    return status;
}

bool tti_meeting_member_trouble(struct tti_meeting *meeting, tutti_error *error)
{
    struct tti_meeting_member *root = &meeting->members[0];
    enum tti_meeting_message_state state = tti_meeting_message_receive(&root->in, root->fd, true, meeting->where.size);
    if (state == TTI_MEETING_PARTLY) return false;
    if (state == TTI_MEETING_BROKEN)
        root_lost(meeting, errno, error);
    else if (root->in.head.kind == TTI_MEETING_TROUBLE)
        tti_meeting_take_trouble(&root->in, error);
    else
        root_lost(meeting, EBADMSG, error); /* nothing was given that this could answer */
    return true;
}
