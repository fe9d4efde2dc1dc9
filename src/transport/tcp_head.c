/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp_head.h"

#include <assert.h>

static_assert(sizeof(struct tti_frame_head) == 48 && sizeof(struct tti_tcp_head) == 64, "travels as it lies");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "heads travel as they lie, little-endian");

static enum tti_tcp_verdict bad(const char **why, const char *text)
{
    *why = text;
    return TTI_TCP_BAD;
}

/* Judges a chunk. It may come before the head of its frame, which uses another connection. */
static enum tti_tcp_verdict judge_chunk(const struct tti_tcp_head *head, const struct tti_tcp_expected *expected,
                                        const char **why)
{
    uint64_t bytes = head->frame.bytes, offset = TTI_TCP_OFFSET(head);
    if (bytes == 0 || bytes > TTI_TCP_FRAME_MOST) return bad(why, "sent a chunk of impossible size");
    if (head->number < expected->number) return bad(why, "sent a chunk of a frame that has ended");
    if (head->number > expected->number || !expected->striped) return TTI_TCP_LATER;
    if (offset > expected->bytes || bytes > expected->bytes - offset || bytes > expected->bytes - expected->come)
        return bad(why, "sent a chunk that does not fit its frame");
    return TTI_TCP_TAKE;
}

enum tti_tcp_verdict tti_tcp_judge(const struct tti_tcp_head *head, const struct tti_tcp_expected *expected,
                                   const char **why)
{
    if (head->magic != TTI_TCP_MAGIC) return bad(why, "sent something that is no frame");
    if (head->version != TTI_TCP_VERSION) return bad(why, "runs another version of the library");
    if (head->frame.zero != 0) return bad(why, "sent a head that is damaged");
    if (head->epoch != expected->epoch) return bad(why, "is in another epoch");
    if (head->kind == TTI_TCP_CHUNK) return judge_chunk(head, expected, why);
    if (head->kind != TTI_TCP_FRAME && head->kind != TTI_TCP_STRIPED && head->kind != TTI_TCP_GOODBYE)
        return bad(why, "sent a frame of unknown kind");
    if (!expected->first_stream) return bad(why, "sent a frame on a connection for chunks");
    if (head->frame.bytes > TTI_TCP_FRAME_MOST || (head->kind == TTI_TCP_STRIPED && head->frame.bytes == 0))
        return bad(why, "sent a frame of impossible size");
    if (head->number != expected->number + expected->striped) return bad(why, "lost a frame");
    return expected->striped ? TTI_TCP_LATER : TTI_TCP_TAKE;
}
