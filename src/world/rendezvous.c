/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous: its messages and what both sides do. The sides are in meeting_root.c and meeting_member.c.
 */
#include "world/rendezvous.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "world/meeting.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static_assert(sizeof(struct tti_meeting_head) == 40, "travels as it lies");

#define LATE_NS (INT64_C(5000) * 1000000)

/* ---- Messages -------------------------------------------------------------------------------------------------- */

/* Returns true if the other side may send such a head; `size` ranks bound an ALL. */
static bool head_fits(const struct tti_meeting_head *head, bool from_root, int size)
{
    uint64_t most = (uint64_t)size * (TTI_BLOB_MOST + sizeof(uint32_t));
    if (head->magic != TTI_MEETING_MAGIC) return false;
    switch (head->kind) {
    case TTI_MEETING_GIVE: return !from_root && head->bytes <= TTI_BLOB_MOST;
    case TTI_MEETING_ALL: return from_root && head->bytes >= (uint64_t)size * sizeof(uint32_t) && head->bytes <= most;
    case TTI_MEETING_TROUBLE: return head->bytes == sizeof(struct tti_meeting_trouble);
    default: return false;
    }
}

bool tti_meeting_message_make(struct tti_meeting_message *message, enum tti_meeting_kind kind, uint32_t round,
                              size_t bytes)
{
    *message = (struct tti_meeting_message){
        .head = {.magic = TTI_MEETING_MAGIC, .kind = kind, .round = round, .bytes = bytes}};
    message->body = tti_calloc(1, bytes + 1);
    return message->body != NULL;
}

bool tti_meeting_message_trouble(struct tti_meeting_message *message, uint32_t round, const tutti_error *error)
{
    struct tti_meeting_trouble trouble = {
        .status = error->status, .peer = error->peer, .system_errno = error->system_errno};
    snprintf(trouble.text, sizeof trouble.text, "%s", error->text);
    if (!tti_meeting_message_make(message, TTI_MEETING_TROUBLE, round, sizeof trouble)) return false;
    memcpy(message->body, &trouble, sizeof trouble);
    return true;
}

void tti_meeting_message_drop(struct tti_meeting_message *message)
{
    tti_free(message->body);
    memset(message, 0, sizeof *message);
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static enum tti_meeting_message_state receive_part(void *at, size_t bytes, size_t *done, int fd)
{
    while (*done < bytes) {
        ssize_t got = recv(fd, (char *)at + *done, bytes - *done, MSG_DONTWAIT);
        if (got < 0 && would_block()) return TTI_MEETING_PARTLY;
        if (got == 0 || (got < 0 && errno == ECONNRESET)) errno = EPIPE;
        if (got <= 0) return TTI_MEETING_BROKEN;
        *done += (size_t)got;
    }
    return TTI_MEETING_WHOLE;
}

enum tti_meeting_message_state tti_meeting_message_receive(struct tti_meeting_message *message, int fd, bool from_root,
                                                           int size)
{
    enum tti_meeting_message_state state = receive_part(&message->head, sizeof message->head, &message->head_done, fd);
    if (state != TTI_MEETING_WHOLE) return state;
    if (message->body == NULL) {
        bool fits = head_fits(&message->head, from_root, size);
        if (fits) message->body = tti_calloc(1, (size_t)message->head.bytes + 1);
        errno = fits ? ENOMEM : EBADMSG;
        if (message->body == NULL) return TTI_MEETING_BROKEN;
    }
    return receive_part(message->body, (size_t)message->head.bytes, &message->body_done, fd);
}

static enum tti_meeting_message_state send_part(const void *at, size_t bytes, size_t *done, int fd, int flags)
{
    while (*done < bytes) {
        ssize_t sent = send(fd, (const char *)at + *done, bytes - *done, MSG_DONTWAIT | MSG_NOSIGNAL | flags);
        if (sent < 0 && would_block()) return TTI_MEETING_PARTLY;
        if (sent < 0 && errno == ECONNRESET) errno = EPIPE;
        if (sent <= 0) return TTI_MEETING_BROKEN;
        *done += (size_t)sent;
    }
    return TTI_MEETING_WHOLE;
}

enum tti_meeting_message_state tti_meeting_message_send(struct tti_meeting_message *message, int fd)
{
    int more = message->head.bytes > 0 ? MSG_MORE : 0;
    enum tti_meeting_message_state state = send_part(&message->head, sizeof message->head, &message->head_done, fd,
                                                     more);
    if (state != TTI_MEETING_WHOLE) return state;
    return send_part(message->body, (size_t)message->head.bytes, &message->body_done, fd, 0);
}

tutti_status tti_meeting_take_trouble(const struct tti_meeting_message *message, tutti_error *error)
{
    struct tti_meeting_trouble trouble;
    memcpy(&trouble, message->body, sizeof trouble);
    error->peer = trouble.peer;
    tti_error_set(error, TUTTI_ERR_JOIN, 0, "%.*s", (int)sizeof trouble.text - 1, trouble.text);
    error->system_errno = trouble.system_errno;
    return error->status;
}

/* ---- Blobs ----------------------------------------------------------------------------------------------------- */

const void *tti_blob(const struct tti_blobs *all, int rank, size_t *bytes)
{
    size_t start = rank == 0 ? 0 : all->ends[rank - 1];
    *bytes = all->ends[rank] - start;
    return all->bytes + start;
}

void tti_blobs_free(struct tti_blobs *all)
{
    tti_free(all->ends);
    if (all->bytes != NULL) tti_free(all->bytes - (size_t)all->count * sizeof(uint32_t));
    memset(all, 0, sizeof *all);
}

/* Takes the blobs from the body: `size` lengths of 4 bytes, then the bytes. */
bool tti_blobs_take(struct tti_blobs *all, unsigned char *body, size_t bytes, int size)
{
    size_t table = (size_t)size * sizeof(uint32_t), used = 0;
    memset(all, 0, sizeof *all);
    if (bytes < table) return false;
    size_t *ends = tti_calloc((size_t)size, sizeof *ends);
    for (int i = 0; ends != NULL && i < size; i++) {
        uint32_t length;
        memcpy(&length, body + (size_t)i * sizeof length, sizeof length);
        used += length;
        ends[i] = used;
    }
    if (ends == NULL || used != bytes - table) {
        tti_free(ends);
        return false;
    }
    *all = (struct tti_blobs){.count = size, .ends = ends, .bytes = body + table};
    return true;
}

/* ---- Meetings -------------------------------------------------------------------------------------------------- */

/* Returns true if ranks meet by the job's name: no address is given, and none can be told. */
static bool is_local(const struct tti_rendezvous *where)
{
    return (where->address == NULL || where->address[0] == '\0') && where->lookup == NULL && where->publish == NULL;
}

static tutti_status check(const struct tti_rendezvous *where, tutti_error *error)
{
    if (where->job == NULL || where->job[0] == '\0' || strlen(where->job) >= sizeof((struct tti_meeting *)0)->job)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the job has no name, or one of more than 255 bytes");
    if (where->size < 1 || where->rank < 0 || where->rank >= where->size)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "rank %d is not one of %d ranks", where->rank, where->size);
    if (!is_local(where) && where->key == NULL)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                             "ranks of several hosts need a key that only they have: make one with `tutti key FILE`, "
                             "copy it to every host, and set TUTTI_KEY_FILE=FILE (or the flag --key-file FILE)");
    return TUTTI_OK;
}

static tutti_status fill(struct tti_meeting *meeting, const struct tti_rendezvous *where, tutti_error *error)
{
    struct tti_key none = {{0}};
    bool root = where->rank == 0;
    meeting->where = *where;
    meeting->deadline_ns = where->deadline_ns;
    snprintf(meeting->job, sizeof meeting->job, "%s", where->job);
    meeting->where.job = meeting->job;
    if (where->ranks_each == 0) meeting->where.ranks_each = 1;
    if (where->each == NULL) meeting->where.each = "rank";
    meeting->local = is_local(where);
    tti_proof_setup(&meeting->proof, where->key != NULL ? where->key : &none, where->job, where->generation,
                    where->rank, where->size);
    tti_door_init(&meeting->door, &meeting->proof, TTI_PROOF_RENDEZVOUS);
    size_t members = root ? (size_t)where->size : 1;
    meeting->polled = tti_calloc(TTI_LISTENERS + TTI_GUESTS + TTI_ADDRESSES + members, sizeof *meeting->polled);
    meeting->members = tti_calloc(members, sizeof *meeting->members);
    for (size_t i = 0; meeting->members != NULL && i < members; i++) meeting->members[i].fd = -1;
    if (meeting->polled != NULL && meeting->members != NULL) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a rendezvous of %d ranks ran out", where->size);
}

int tti_meeting_first(const struct tti_meeting *meeting, int rank)
{
    return rank * meeting->where.ranks_each;
}

struct tti_ranks_name tti_meeting_name(const struct tti_meeting *meeting, int rank)
{
    struct tti_ranks_name name;
    if (strcmp(meeting->where.each, "rank") == 0)
        return tti_ranks_name(tti_meeting_first(meeting, rank), meeting->where.ranks_each);
    snprintf(name.text, sizeof name.text, "%.16s %d", meeting->where.each, rank);
    return name;
}

void tti_meeting_socket(const struct tti_meeting *meeting, char name[TTI_MEETING_SOCKET])
{
    const struct tti_rendezvous *where = &meeting->where;
    if (where->attempt != 0)
        snprintf(name, TTI_MEETING_SOCKET, "%s/meeting/%u+%u", meeting->job, where->generation, where->attempt);
    else if (where->generation != 0)
        snprintf(name, TTI_MEETING_SOCKET, "%s/meeting/%u", meeting->job, where->generation);
    else
        snprintf(name, TTI_MEETING_SOCKET, "%s/meeting", meeting->job);
}

bool tti_meeting_end_late(struct tti_meeting *meeting, int rank)
{
    const struct tti_rendezvous *where = &meeting->where;
    if (!where->again || where->attempt != 0 || meeting->ended_late || tti_board_restarts(where->board) == 0)
        return false;
    if (!tti_board_end(where->board_name, meeting->job, where->board, rank)) return false;
    tti_log(TUTTI_WARN, "%s did not come in time while job %s was rebuilt: its process is ended",
            tti_meeting_name(meeting, rank).text, meeting->job);
    meeting->deadline_ns = tti_now_ns() + LATE_NS;
    return true;
}

tutti_status tti_meeting_check(const struct tti_meeting *meeting, tutti_error *error)
{
    if (meeting->round <= 1) return tti_board_check(meeting->where.board, error);
    return meeting->where.again ? tti_board_go_on(meeting->where.board, error) : TUTTI_OK;
}

int tti_meeting_poll_ms(const struct tti_meeting *meeting, int poll_ms)
{
    bool looks = meeting->round <= 1 || meeting->where.again;
    return looks ? tti_board_poll_ms(meeting->where.board, poll_ms) : poll_ms;
}

const struct tti_board *tti_meeting_board(const struct tti_meeting *meeting)
{
    return meeting->round <= 1 ? meeting->where.board : NULL;
}

tutti_status tti_meeting_open(const struct tti_rendezvous *where, struct tti_meeting **meeting, tutti_error *error)
{
    *meeting = NULL;
    error->rank = where->rank * (where->ranks_each == 0 ? 1 : where->ranks_each);
    error->peer = -1;
    TTI_TRY(check(where, error));
    TTI_TRY(tti_key_setup(error));
    struct tti_meeting *made = tti_calloc(1, sizeof *made);
    if (made == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a rendezvous of %d ranks ran out",
                             where->size);
    tutti_status status = fill(made, where, error);
    if (status == TUTTI_OK)
        status = where->rank == 0 ? tti_meeting_open_root(made, error) : tti_meeting_open_member(made, error);
    if (status == TUTTI_OK)
        *meeting = made;
    else
        tti_meeting_close(made);
    return status;
}

tutti_status tti_meeting_exchange(struct tti_meeting *meeting, const void *mine, size_t bytes, struct tti_blobs *all,
                                  tutti_error *error)
{
    memset(all, 0, sizeof *all);
    error->rank = tti_meeting_first(meeting, meeting->where.rank);
    error->peer = -1;
    if (bytes > TTI_BLOB_MOST)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a rank may give %d bytes at most", TTI_BLOB_MOST);
    meeting->round++;
    tutti_status status = meeting->where.rank == 0 ? tti_meeting_root_exchange(meeting, mine, bytes, all, error)
                                                   : tti_meeting_member_exchange(meeting, mine, bytes, all, error);
    meeting->failed = status != TUTTI_OK;
    return status;
}

/* The last message must arrive, but closing with unread bytes would reset the connection. So this ends the direction of
 * sending, and waits a moment for the other end to close, too. */
static void close_gently(int fd, int64_t deadline_ns)
{
    char rest[512];
    shutdown(fd, SHUT_WR);
    for (;;) {
        ssize_t got = recv(fd, rest, sizeof rest, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && !would_block()) || tti_now_ns() >= deadline_ns) break;
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        if (got < 0) tti_poll(&polled, 1, tti_poll_ms(deadline_ns));
    }
    close(fd);
}

void tti_meeting_abandon(struct tti_meeting *meeting, const tutti_error *why)
{
    struct tti_meeting_member *root = &meeting->members[0];
    meeting->failed = true;
    if (meeting->where.rank == 0) {
        tti_meeting_root_notify(meeting, why);
    } else if (root->fd >= 0) {
        tti_meeting_message_drop(&root->out);
        if (tti_meeting_message_trouble(&root->out, meeting->round, why))
            tti_meeting_message_send(&root->out, root->fd);
    }
}

bool tti_meeting_has_trouble(struct tti_meeting *meeting, tutti_error *error)
{
    bool trouble = meeting->where.rank == 0 ? tti_meeting_root_trouble(meeting, error)
                                            : tti_meeting_member_trouble(meeting, error);
    if (!trouble && meeting->where.again) trouble = tti_board_go_on(meeting->where.board, error) != TUTTI_OK;
    meeting->failed |= trouble;
    return trouble;
}

void tti_meeting_take(struct tti_meeting *meeting, int *fds)
{
    int count = meeting->where.rank == 0 ? meeting->where.size : 1;
    for (int i = 0; i < count; i++) {
        fds[i] = meeting->members[i].fd;
        meeting->members[i].fd = -1;
    }
}

void tti_meeting_close(struct tti_meeting *meeting)
{
    enum { LINGER_MS = 200 };
    if (meeting == NULL) return;
    bool root = meeting->where.rank == 0;
    int64_t deadline_ns = tti_now_ns() + (int64_t)LINGER_MS * 1000000;
    tti_door_close(&meeting->door);
    int count = meeting->members == NULL ? 0 : root ? meeting->where.size : 1;
    for (int i = 0; i < count; i++) {
        struct tti_meeting_member *member = &meeting->members[i];
        tti_meeting_message_drop(&member->in);
        tti_meeting_message_drop(&member->out);
        if (member->fd >= 0) shutdown(member->fd, SHUT_WR);
    }
    for (int i = 0; i < count; i++) {
        if (meeting->members[i].fd < 0) continue;
        if (meeting->failed)
            close_gently(meeting->members[i].fd, deadline_ns);
        else
            close(meeting->members[i].fd); /* nothing is under way */
    }
    tti_free(meeting->members);
    tti_free(meeting->polled);
    tti_free(meeting);
}
