/* SPDX-License-Identifier: Apache-2.0
 *
 * Receiving. Heads and small data come through a buffer, of which one read may fill many frames. When the buffer is
 * empty, one call reads the missing data of a piece into their place, and the bytes behind them into the buffer.
 *
 * Invariant: frames begin and end in order. While a striped frame is being received, the first connection may hold the
 * heads of later frames, and any other one chunks of later frames: those wait in their buffer, and their connection is
 * paused until the frame has ended.
 */
#include "transport/tcp_inside.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { READS_AT_ONCE = 16 }; /* after this many reads other peers have their turn */

/* ---- Frames ---------------------------------------------------------------------------------------------------- */

static void end_frame(struct tti_tcp *tcp, struct tti_tcp_peer *peer)
{
    peer->number++;
    if (!tcp->closing) tcp->base.sink.end(tcp->base.sink.context, peer->rank, &peer->frame, peer->cookie);
}

/* Lets paused connections go on; the next read finds their heads in their buffers. */
static void unpause(struct tti_tcp *tcp, struct tti_tcp_peer *peer)
{
    for (int i = 0; i < peer->stream_count; i++) {
        struct tti_tcp_stream *stream = &peer->streams[i];
        if (!stream->paused) continue;
        stream->paused = false;
        peer->resume = true;
        tti_tcp_watch(tcp, peer, stream);
    }
}

static void begin_frame(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream,
                        const struct tti_tcp_head *head)
{
    peer->frame = head->frame;
    peer->cookie = NULL;
    peer->into = NULL;
    if (!tcp->closing)
        peer->into = tcp->base.sink.begin(tcp->base.sink.context, peer->rank, &peer->frame, &peer->cookie);
    if (head->kind == TTI_TCP_STRIPED) {
        peer->striped = true;
        peer->come = peer->asked = 0;
        unpause(tcp, peer);
    } else if (head->frame.bytes == 0) {
        end_frame(tcp, peer);
    } else {
        stream->into = peer->into;
        stream->wants = head->frame.bytes;
    }
}

static void begin_chunk(struct tti_tcp_peer *peer, struct tti_tcp_stream *stream, const struct tti_tcp_head *head)
{
    stream->into = peer->into == NULL ? NULL : peer->into + TTI_TCP_OFFSET(head);
    stream->wants = head->frame.bytes;
    peer->asked += head->frame.bytes;
}

/* Counts `bytes` of the piece that have come. */
static void count_come(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream, size_t bytes)
{
    stream->wants -= bytes;
    if (stream->into != NULL) stream->into += bytes;
    if (peer->striped) {
        peer->come += bytes;
        if (peer->come < peer->frame.bytes) return;
        peer->striped = false;
        end_frame(tcp, peer);
        unpause(tcp, peer);
    } else if (stream->wants == 0) {
        end_frame(tcp, peer);
    }
}

/* ---- The buffer ------------------------------------------------------------------------------------------------ */

static const char gone[] = "has closed its connection without leaving";

/* Loses the peer if all its connections have ended or wait for another: what they wait for will not come. */
static void check_stuck(struct tti_tcp *tcp, struct tti_tcp_peer *peer)
{
    for (int i = 0; i < peer->stream_count; i++)
        if (!peer->streams[i].ended && !peer->streams[i].paused) return;
    tti_tcp_lose(tcp, peer, 0, gone);
}

static void take_head(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    struct tti_tcp_head head;
    const char *why = NULL;
    struct tti_tcp_expected expected = {.epoch = tcp->epoch,
                                        .number = peer->number,
                                        .striped = peer->striped,
                                        .bytes = peer->frame.bytes,
                                        .come = peer->asked,
                                        .first_stream = stream->index == 0};
    memcpy(&head, stream->buffer + stream->start, sizeof head);
    enum tti_tcp_verdict verdict = tti_tcp_judge(&head, &expected, &why);
    if (verdict == TTI_TCP_LATER) {
        stream->paused = true;
        tti_tcp_watch(tcp, peer, stream);
        check_stuck(tcp, peer);
        return;
    }
    if (verdict == TTI_TCP_BAD) {
        tti_tcp_lose(tcp, peer, EPROTO, why);
        return;
    }
    stream->start += (uint32_t)sizeof head;
    if (head.kind == TTI_TCP_GOODBYE) {
        peer->goodbye = true;
        tti_tcp_lose(tcp, peer, 0, "has left");
    } else if (head.kind == TTI_TCP_CHUNK) {
        begin_chunk(peer, stream, &head);
    } else {
        begin_frame(tcp, peer, stream, &head);
    }
}

static void take_data(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    size_t there = stream->end - stream->start;
    size_t bytes = stream->wants < there ? (size_t)stream->wants : there;
    if (stream->into != NULL) memcpy(stream->into, stream->buffer + stream->start, bytes);
    stream->start += (uint32_t)bytes;
    count_come(tcp, peer, stream, bytes);
}

/* Takes the contents of the buffer, up to a head that is incomplete or must wait. */
static void take_buffer(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    while (peer->connected && !stream->paused && stream->start < stream->end) {
        if (stream->wants > 0)
            take_data(tcp, peer, stream);
        else if (stream->end - stream->start >= sizeof(struct tti_tcp_head))
            take_head(tcp, peer, stream);
        else
            break;
    }
    if (!peer->connected) return;
    if (stream->start == stream->end) {
        stream->start = stream->end = 0;
    } else if (stream->start > 0 && !stream->paused) { /* a part of a head: move it to the front */
        memmove(stream->buffer, stream->buffer + stream->start, stream->end - stream->start);
        stream->end -= stream->start;
        stream->start = 0;
    }
}

/* ---- The system ------------------------------------------------------------------------------------------------ */

static ssize_t read_in_place(struct tti_tcp_stream *stream)
{
    struct iovec parts[] = {{stream->into, (size_t)stream->wants}, {stream->buffer, stream->buffer_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return recvmsg(stream->fd, &message, MSG_DONTWAIT);
}

/* Ends a connection. The end of the first one is the end of the peer. The end of another one means nothing yet: the
 * first may hold much that was not read. */
static void end_stream(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream, int why)
{
    if (stream->index == 0) {
        tti_tcp_lose(tcp, peer, why, why == 0 ? gone : NULL);
        return;
    }
    stream->ended = true;
    tti_tcp_unwatch(tcp, stream);
    check_stuck(tcp, peer);
}

/* Returns true if it read all that it asked for, so that there may be more. */
static bool read_once(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream, bool *moved)
{
    bool in_place = stream->wants > 0 && stream->into != NULL && stream->start == stream->end;
    size_t room = stream->buffer_bytes - stream->end;
    size_t asked = in_place ? (size_t)stream->wants + stream->buffer_bytes : room;
    ssize_t got = in_place ? read_in_place(stream) : recv(stream->fd, stream->buffer + stream->end, room, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
        end_stream(tcp, peer, stream, got == 0 ? 0 : errno);
        return false;
    }
    *moved = true;
    size_t rest = (size_t)got;
    if (in_place) {
        size_t placed = rest < stream->wants ? rest : (size_t)stream->wants;
        rest -= placed;
        count_come(tcp, peer, stream, placed);
    }
    stream->end += (uint32_t)rest;
    return (size_t)got == asked;
}

/* Takes bytes that waited in buffers: the system does not announce them again. */
static void take_resumed(struct tti_tcp *tcp, struct tti_tcp_peer *peer)
{
    while (peer->resume && peer->connected) {
        peer->resume = false;
        for (int i = 0; i < peer->stream_count && peer->connected; i++) take_buffer(tcp, peer, &peer->streams[i]);
    }
}

bool tti_tcp_receive(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    bool moved = false;
    for (int reads = 0; reads < READS_AT_ONCE && !stream->paused && !stream->ended; reads++) {
        bool more = read_once(tcp, peer, stream, &moved);
        if (peer->connected && stream->start < stream->end) take_buffer(tcp, peer, stream);
        if (!more || !peer->connected) break; /* a lost peer has no connections any more */
    }
    if (peer->resume) take_resumed(tcp, peer);
    return moved;
}
