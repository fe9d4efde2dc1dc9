/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of every piece on a connection of the mesh. Pure: no I/O, no memory.
 *
 * Frames are numbered from 0 for each pair of ranks and direction, and are begun and ended in that order. A frame's
 * data follow its head (FRAME), or come in chunks over all connections of the pair (STRIPED), each with a head of its
 * own that says which part of which frame it is (CHUNK).
 */
#ifndef TTI_TRANSPORT_TCP_HEAD_H
#define TTI_TRANSPORT_TCP_HEAD_H

#include "transport/transport.h"

enum { TTI_TCP_MAGIC = 0x5454, TTI_TCP_VERSION = 3 };
enum tti_tcp_kind { TTI_TCP_FRAME = 1, TTI_TCP_STRIPED, TTI_TCP_CHUNK, TTI_TCP_GOODBYE };

/* Sent as it is in memory, little-endian. It has a whole cache line, so that data in an aligned buffer are aligned in
 * the system's buffers, too: some processors copy ten times slower if the target's place in its page is a few bytes
 * behind the source's. */
struct tti_tcp_head {
    uint16_t magic;
    uint8_t version, kind;
    uint32_t epoch;
    uint64_t number; /* the number of the frame, or of the frame to which a chunk belongs */
    struct tti_frame_head frame;
};

/* For a chunk: its place in the frame. */
#define TTI_TCP_OFFSET(head) ((head)->frame.value)
/* A larger size is garbage, not a frame. */
#define TTI_TCP_FRAME_MOST ((uint64_t)1 << 50)

/* What a receiver knows when a head has come. */
struct tti_tcp_expected {
    uint32_t epoch;
    uint64_t number;      /* the next frame, or the one that is being received */
    bool striped;         /* a striped frame is being received */
    uint64_t bytes, come; /* its size, and the bytes that have come, with chunks that have begun */
    bool first_stream;
};

enum tti_tcp_verdict {
    TTI_TCP_TAKE,
    TTI_TCP_LATER, /* for a frame that has not begun, or another frame is being received */
    TTI_TCP_BAD    /* *why gives the reason */
};

enum tti_tcp_verdict tti_tcp_judge(const struct tti_tcp_head *head, const struct tti_tcp_expected *expected,
                                   const char **why);

#endif
