/* SPDX-License-Identifier: Apache-2.0
 *
 * Sending. A peer's frames are a queue; `next` is the first that was not given to connections completely. A connection
 * that has sent its piece takes the next one: on the first connection the head of `next` with all its data or, if it is
 * to be striped, without; on every connection, once the head has been given, chunks of it.
 *
 * Invariant: frames are given to the first connection in order, and leave the queue in order, when all of their pieces
 * have been taken by the system. So done() is called in order too.
 */
#include "transport/tcp_inside.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    INLINE_BYTES = 2048,    /* copied behind their head: one buffer costs the system less than two */
    TURN_BYTES = 256 << 10, /* handed over at once while both sides send */
    TURNS_MOST = 1 << 20    /* for frames up to this size */
};
#define SENT_ALL UINT64_MAX /* a value of tti_outgoing.sent: the system has taken all pieces */
#define CHUNK_BYTES ((uint64_t)256 << 10)
#define STRIPED_FROM ((uint64_t)4 << 20) /* for smaller frames one connection is faster */

static void finish(struct tti_tcp *tcp, struct tti_outgoing *outgoing, tutti_status status)
{
    /* otherwise it comes after those in the list */
    if (outgoing == tcp->sending && status == TUTTI_OK && tcp->finished == NULL) {
        tcp->sending = NULL;
        return;
    }
    outgoing->sent = (uint64_t)status;
    outgoing->next = NULL;
    *tcp->finished_end = outgoing;
    tcp->finished_end = &outgoing->next;
    atomic_store_explicit(&tcp->due, true, memory_order_relaxed);
}

void tti_tcp_drop_queue(struct tti_tcp *tcp, struct tti_tcp_peer *peer, tutti_status status)
{
    while (peer->first != NULL) {
        struct tti_outgoing *outgoing = peer->first;
        peer->first = outgoing->next;
        finish(tcp, outgoing, status);
    }
    peer->last = peer->next = NULL;
    for (int i = 0; i < peer->stream_count; i++) {
        peer->streams[i].head_left = 0;
        peer->streams[i].data_left = 0;
        peer->streams[i].of = NULL;
    }
}

/* ---- Pieces ---------------------------------------------------------------------------------------------------- */

static void fill_head(const struct tti_tcp *tcp, struct tti_tcp_stream *stream, enum tti_tcp_kind kind, uint64_t number,
                      const struct tti_frame_head *frame)
{
    stream->head = (struct tti_tcp_head){.magic = TTI_TCP_MAGIC,
                                         .version = TTI_TCP_VERSION,
                                         .kind = (uint8_t)kind,
                                         .epoch = tcp->epoch,
                                         .number = number,
                                         .frame = *frame};
    stream->head_left = sizeof stream->head;
}

static bool is_striped(const struct tti_tcp_peer *peer, const struct tti_outgoing *outgoing)
{
    return peer->stream_count > 1 && outgoing->head.bytes >= STRIPED_FROM;
}

static void advance(struct tti_tcp_peer *peer)
{
    peer->next = peer->next->next;
    peer->given = 0;
    peer->announced = false;
    peer->send_number++;
}

static void take_head(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    struct tti_outgoing *outgoing = peer->next;
    bool striped = is_striped(peer, outgoing);
    fill_head(tcp, stream, striped ? TTI_TCP_STRIPED : TTI_TCP_FRAME, peer->send_number, &outgoing->head);
    if (striped) {
        peer->announced = true; /* the head is a copy: the frame may end before it was taken */
        return;
    }
    stream->of = outgoing;
    stream->data = outgoing->data;
    stream->data_left = outgoing->head.bytes;
    advance(peer);
}

static void take_chunk(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    struct tti_outgoing *outgoing = peer->next;
    uint64_t left = outgoing->head.bytes - peer->given;
    uint64_t bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    struct tti_frame_head chunk = {.value = peer->given, .bytes = bytes};
    fill_head(tcp, stream, TTI_TCP_CHUNK, peer->send_number, &chunk);
    stream->of = outgoing;
    stream->data = (const char *)outgoing->data + peer->given;
    stream->data_left = bytes;
    peer->given += bytes;
    if (peer->given == outgoing->head.bytes) advance(peer);
}

/* Takes the next piece for this connection; returns false if there is none. */
static bool take_piece(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    if (peer->next == NULL || (!peer->announced && stream->index != 0)) return false;
    if (peer->announced)
        take_chunk(tcp, peer, stream);
    else
        take_head(tcp, peer, stream);
    return true;
}

/* ---- The system ------------------------------------------------------------------------------------------------ */

/* Returns TURN_BYTES in whole packets: a rest would need a packet of its own. The size of packets grows while a
 * connection is young. */
static size_t turn_bytes(int fd)
{
    int packet = 0;
    socklen_t size = sizeof packet;
    if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &packet, &size) != 0 || packet <= 0 || packet > TURN_BYTES)
        return TURN_BYTES;
    return (size_t)(TURN_BYTES / packet * packet);
}

/* Returns how many bytes to hand over at once. Some systems (bbr) pace a sender that hands over more than they send at
 * that moment, by timers, at a rate that was measured while it was paced before: an exchange then takes half again as
 * long for the rest of the connection's life. A few packets at a time are not paced. If only one side sends, or for
 * frames larger than the system takes, more at once is better. */
static size_t data_at_once(const struct tti_tcp_stream *stream)
{
    const struct tti_outgoing *of = stream->of;
    size_t left = (size_t)stream->data_left;
    if (!stream->near || left <= TURN_BYTES || of->head.bytes > TURNS_MOST) return left;
    if (!of->both_ways && stream->wants == 0) return left;
    return turn_bytes(stream->fd) - stream->head_left;
}

/* Sends the rest of the piece, in one call. */
static ssize_t send_piece(struct tti_tcp_stream *stream)
{
    const char *head = (const char *)&stream->head + sizeof stream->head - stream->head_left;
    if (stream->head_left > 0 && stream->data_left <= INLINE_BYTES) {
        char whole[sizeof stream->head + INLINE_BYTES];
        memcpy(whole, head, stream->head_left);
        if (stream->data_left > 0) memcpy(whole + stream->head_left, stream->data, stream->data_left);
        return send(stream->fd, whole, stream->head_left + stream->data_left, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    struct iovec parts[] = {{(void *)(uintptr_t)head, stream->head_left},
                            {(void *)(uintptr_t)stream->data, data_at_once(stream)}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return sendmsg(stream->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void count_sent(struct tti_tcp_stream *stream, size_t sent)
{
    size_t of_head = sent < stream->head_left ? sent : stream->head_left;
    stream->head_left -= (uint32_t)of_head;
    sent -= of_head;
    stream->data = stream->data == NULL ? NULL : stream->data + sent;
    stream->data_left -= sent;
    if (stream->of != NULL) stream->of->sent += sent;
}

static void end_piece(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    struct tti_outgoing *outgoing = stream->of;
    stream->of = NULL;
    stream->data = NULL;
    if (outgoing == NULL) return; /* a head alone */
    if (outgoing->sent == outgoing->head.bytes) outgoing->sent = SENT_ALL;
    while (peer->first != NULL && peer->first->sent == SENT_ALL) {
        outgoing = peer->first;
        peer->first = outgoing->next;
        if (peer->first == NULL) peer->last = NULL;
        finish(tcp, outgoing, TUTTI_OK);
    }
}

/* Sends a piece; returns true while there may be more to do. */
static bool push_piece(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    size_t bytes = stream->head_left + (size_t)stream->data_left;
    ssize_t sent = send_piece(stream);
    if (sent < 0 && errno == EINTR) return true;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) {
        stream->blocked = true;
        return false;
    }
    if (sent < 0) {
        peer->send_errno = errno;
        return false;
    }
    count_sent(stream, (size_t)sent);
    if ((size_t)sent == bytes) end_piece(tcp, peer, stream);
    return true;
}

static bool push_stream(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    bool moved = false, blocked = stream->blocked;
    stream->blocked = false;
    while (stream->head_left > 0 || stream->data_left > 0 || take_piece(tcp, peer, stream)) {
        if (!push_piece(tcp, peer, stream)) break;
        moved = true;
    }
    if (stream->blocked != blocked) tti_tcp_watch(tcp, peer, stream);
    return moved;
}

/* Sends to all connections. Frames that cannot be sent any more are dropped; reading finds whether the peer is lost,
 * and why. */
bool tti_tcp_push(struct tti_tcp *tcp, struct tti_tcp_peer *peer)
{
    bool moved = false;
    for (int i = 0; i < peer->stream_count && peer->send_errno == 0; i++)
        moved |= push_stream(tcp, peer, &peer->streams[i]);
    if (peer->send_errno != 0) tti_tcp_drop_queue(tcp, peer, TUTTI_ERR_PEER_LOST);
    return moved;
}

bool tti_tcp_send(struct tti_transport *transport, int rank, struct tti_outgoing *outgoing)
{
    struct tti_tcp *tcp = (struct tti_tcp *)transport;
    struct tti_tcp_peer *peer = tcp->peers[rank];
    outgoing->next = NULL;
    outgoing->sent = 0;
    if (peer == NULL || !peer->connected || peer->send_errno != 0) {
        finish(tcp, outgoing, TUTTI_ERR_PEER_LOST);
        return false;
    }
    if (peer->last != NULL)
        peer->last->next = outgoing;
    else
        peer->first = outgoing;
    peer->last = outgoing;
    if (peer->next == NULL) {
        peer->next = outgoing;
        peer->given = 0;
        peer->announced = false;
    }
    if (peer->streams[0].blocked) return false;
    tcp->sending = outgoing;
    tti_tcp_push(tcp, peer);
    bool taken = tcp->sending == NULL;
    tcp->sending = NULL;
    return taken;
}

void tti_tcp_keep(struct tti_transport *transport, int rank, struct tti_outgoing *outgoing, const void *copy)
{
    struct tti_tcp_peer *peer = ((struct tti_tcp *)transport)->peers[rank];
    for (int i = 0; peer != NULL && i < peer->stream_count; i++) {
        struct tti_tcp_stream *stream = &peer->streams[i];
        if (stream->of == outgoing) stream->data = (const char *)copy + (stream->data - (const char *)outgoing->data);
    }
    outgoing->data = copy;
}

void tti_tcp_say_goodbye(struct tti_tcp *tcp, struct tti_tcp_peer *peer)
{
    static const struct tti_frame_head nothing;
    struct tti_tcp_stream *stream = &peer->streams[0];
    if (!peer->connected || peer->send_errno != 0 || peer->first != NULL) return;
    fill_head(tcp, stream, TTI_TCP_GOODBYE, peer->send_number, &nothing);
    push_stream(tcp, peer, stream);
}
