/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ranks of a comm: matching by tag over channels.
 *
 * The channel from a to b lies in a's arena and is made when a first sends to b; its place is written into the comm's
 * table of channels. A message that arrives before it is wanted waits in the receiver's mailbox; a large one waits in
 * its sender, which has nothing else on its way then.
 */
#ifndef TTI_COLLECTIVE_MESSAGE_H
#define TTI_COLLECTIVE_MESSAGE_H

#include "collective/call.h"
#include "transport/channel.h"
#include <stdbool.h>

struct tti_early; /* a message that came before it was wanted */

/* This rank's two ends towards one peer. */
struct tti_mailbox {
    struct tti_channel_end to, from;
    struct tti_early *first, **last;
};

/* Whether a message to `peer` would find the channel full. */
bool tti_send_is_full(tutti_comm *comm, int peer);

struct tti_mailbox *tti_mailboxes_create(int size);
void tti_mailboxes_free(struct tti_mailbox *mailboxes, int size);

struct tti_send {
    tutti_comm *comm;
    const char *in;
    uint64_t bytes, done;
    tutti_type type;
    int peer, tag, state;
    bool left; /* the peer, when last looked at */
    struct tti_channel_end *end;
    int waiting_for;
};

struct tti_recv {
    tutti_comm *comm;
    char *out;
    uint64_t capacity, bytes, done;
    tutti_type type;
    int peer, tag, state, way;
    struct tti_mailbox *mailbox;
    int waiting_for;
};

tutti_status tti_send_run(struct tti_send *send, int64_t deadline_ms);
tutti_status tti_recv_run(struct tti_recv *recv, int64_t deadline_ms);
tutti_status tti_sendrecv_run(struct tti_send *send, struct tti_recv *recv, int64_t deadline_ms);

#endif
