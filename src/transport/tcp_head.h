/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands before every piece on a connection of the mesh. Pure: no I/O, no memory.
 *
 * A frame is numbered, from 0, per pair of ranks and direction; frames are begun and ended in that order. Its data follow
 * its head (FRAME), or come in chunks over all connections of the pair (STRIPED), each with a head of its own that says
 * which part of which frame it is (CHUNK).
 */
#ifndef TTI_TRANSPORT_TCP_HEAD_H
#define TTI_TRANSPORT_TCP_HEAD_H

#include "transport/transport.h"

enum { TTI_TCP_MAGIC = 0x5454, TTI_TCP_VERSION = 3 };
enum tti_tcp_kind { TTI_TCP_FRAME = 1, TTI_TCP_STRIPED, TTI_TCP_CHUNK, TTI_TCP_GOODBYE };

/* Little-endian, as it lies. A whole line, so that data whose buffer begins at one lie so in the system's buffers too: some
 * processors copy ten times slower to where a place in a page is a few bytes further on than where it comes from. */
struct tti_tcp_head {
    uint16_t magic;
    uint8_t version, kind;
    uint32_t epoch;
    uint64_t number; /* of the frame; of a chunk: of the frame it belongs to */
    struct tti_frame_head frame;
};

/* Of a chunk: where in its frame, and how much. */
#define TTI_TCP_OFFSET(head) ((head)->frame.value)
/* More than this is no frame but garbage. */
#define TTI_TCP_FRAME_MOST ((uint64_t)1 << 50)

/* What a receiver knows when a head has come. */
struct tti_tcp_expected {
    uint32_t epoch;
    uint64_t number;      /* of the next frame, or of the one that is under way */
    bool striped;         /* a striped frame is under way: of this many bytes, of which so many have come */
    uint64_t bytes, come; /* chunks under way included */
    bool first_stream;
};

enum tti_tcp_verdict {
    TTI_TCP_TAKE,
    TTI_TCP_LATER, /* it is for a frame that has not begun, or another is under way */
    TTI_TCP_BAD    /* *why says in what */
};

enum tti_tcp_verdict tti_tcp_judge(const struct tti_tcp_head *head, const struct tti_tcp_expected *expected,
                                   const char **why);

#endif
