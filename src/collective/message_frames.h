/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between ranks that share no memory: notes as frames of a transport. Data of large messages go from the sender's
 * buffer to the receiver's without a copy of ours.
 *
 * A comm with frames uses them for all peers but itself. Whoever owns the transport's endpoint gives its sink's calls for
 * frames of this comm and these kinds to the functions below.
 */
#ifndef TTI_COLLECTIVE_MESSAGE_FRAMES_H
#define TTI_COLLECTIVE_MESSAGE_FRAMES_H

#include "transport/transport.h"

enum { TTI_FRAME_MESSAGES = 64, TTI_FRAME_MESSAGES_END = 80 }; /* the kinds */

struct tti_frames {
    struct tti_transport *transport;
    uint32_t comm;    /* goes into every frame */
    const int *ranks; /* the transport's number of each rank of the comm; NULL: the same */
};

static inline bool tti_frame_is_message(const struct tti_frame_head *head)
{
    return head->kind >= TTI_FRAME_MESSAGES && head->kind < TTI_FRAME_MESSAGES_END;
}

/* As in struct tti_sink; `peer` is the comm's number of the rank. */
void *tti_frame_begin(tutti_comm *comm, int peer, const struct tti_frame_head *head, void **cookie);
void tti_frame_end(tutti_comm *comm, int peer, const struct tti_frame_head *head, void *cookie);
void tti_frame_lost(tutti_comm *comm, int peer);

#endif
