/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ranks of a comm. Any number of sends and receives can be posted; nothing here blocks, except
 * where it says so. Calls on one comm come from one thread at a time.
 *
 * Matching: a message is received by the first receive, in the order of posting, whose source and tag fit it; a receive
 * gets the first message that fits it, in the order in which its sender sent them. Receives from any source take the
 * senders in turn.
 *
 * A letter ends exactly once: its status goes from IN_PROGRESS to OK or an error, and its buffer is the owner's again.
 */
#ifndef TTI_COLLECTIVE_MESSAGE_H
#define TTI_COLLECTIVE_MESSAGE_H

#include "base/list.h"
#include "collective/comm/call.h"
#include <stdbool.h>

/* Letters of one op: when the last of them has ended, it goes to `ended`. */
struct tti_batch {
    struct tti_link on, *ended;
    int left;
};

/* What sends and receives have in common. */
struct tti_device_letter;
struct tti_letter {
    tutti_comm *comm;
    const struct tti_site *site; /* for errors; must stay until the letter has ended */
    tutti_type type;
    int peer, tag; /* of a receive also TUTTI_ANY_SOURCE, TUTTI_ANY_TAG */

    tutti_status status;
    int waiting_for;         /* the number of a rank, or -1 for any */
    struct tti_batch *batch; /* the batch to which it belongs, or NULL */
    uint64_t bytes;          /* bytes of the message; a receive knows them when it has ended or found its message */
    struct tti_device_letter *device; /* data in memory of a device (message_device.h); NULL: on the host */

    struct tti_link on, work; /* from here on the fields belong to the files message*.c */
    uint8_t state, way;
    bool is_send, other_done;
    bool asked;                /* a thread waits for it, or tests it; set from outside once it is posted */
    struct tti_packet *packet; /* frames: the packet that carries its data, or NULL */
    uint32_t number;           /* the number of a large message */
    uint64_t done;             /* bytes of the own share that are done */
    uint64_t position;         /* receive: the place of the note that accepted, in its channel */
    struct tti_place place;    /* where the other side's buffer lies */
};

struct tti_send {
    struct tti_letter letter; /* bytes is set by the caller */
    const char *in;
};

struct tti_recv {
    struct tti_letter letter;
    char *out;
    uint64_t capacity;
    bool probes;     /* only probes: ends when a message that fits has come, and leaves it there */
    int source, got; /* rank and tag of the message, when it has ended */
    tutti_type came; /* its type */
    uint64_t order;
};

#define TTI_SEND_OF(pointer) TTI_LIST_OF(pointer, struct tti_send, letter)
#define TTI_RECV_OF(pointer) TTI_LIST_OF(pointer, struct tti_recv, letter)

/* Posts a letter. The caller has set the first four fields of the letter and those of its own struct, whose memory is
 * the letter's until it has ended. Returns the letter's status: an error if it was refused (the comm has the sentence),
 * often OK. */
tutti_status tti_send_post(struct tti_send *send);
tutti_status tti_recv_post(struct tti_recv *recv);

/* For calls while nothing of the comm is in flight: sends a small message without a letter, or receives one that has
 * come (`recv` as above; its results are filled in). Returns false if nothing was done; then the message takes a
 * letter. */
bool tti_send_at_once(const tutti_comm *comm, const void *in, uint64_t bytes, tutti_type type, int peer, int tag);
bool tti_recv_at_once(struct tti_recv *recv);

/* Locks the letters of a comm that uses a transport; held while they are read or changed. */
void tti_messages_lock(const tutti_comm *comm);
void tti_messages_unlock(const tutti_comm *comm);

/* Does all that can be done now for the comm's letters; returns an error if the comm broke by that. */
tutti_status tti_messages_progress(tutti_comm *comm);
/* Makes the next progress thorough, as before a sleep. */
void tti_messages_poll_closely(tutti_comm *comm);
/* Returns true if the next progress looks for letters, among those with `asked`, that will never end. */
bool tti_messages_are_quiet(const tutti_comm *comm);
/* Returns true if no rank is left that could still send to this one: none at all, or not `peer`. */
bool tti_messages_deserted(const tutti_comm *comm, int peer);
/* Returns true if the peers know of all messages that this rank has begun to receive. */
bool tti_messages_have_answered(const tutti_comm *comm);
/* Returns how many letters have not ended. */
int tti_messages_pending(const tutti_comm *comm);

/* Ends a receive that has found no message yet, or a send of which nothing was said yet, with ERR_CANCELLED; unless
 * `gently`, also a send that was announced and can be withdrawn. Returns false if it is too late for that; the letter
 * goes on. */
bool tti_letter_cancel(struct tti_letter *letter, bool gently);

/* For a tolerant comm: ends a letter, in any state, for this rank alone. Data that have begun to come for a receive are
 * lost; data that have begun to go may arrive, or are withdrawn. Returns false if there is no memory for that now. */
bool tti_letter_give_up(struct tti_letter *letter, tutti_status status);
/* Called when the comm is freed: forgets the notes that are still to be sent about messages that were given up. */
void tti_messages_forget(tutti_comm *comm);
/* Explains why a letter of a tolerant comm ended with this error. */
void tti_letter_explain(const struct tti_letter *letter, enum tti_kind kind, int64_t deadline_ms, tutti_error *error);

/* Returns true if the letter has ended, or waits for a call of its peer and can do nothing before that: a receive
 * without a message, a send that was announced. */
bool tti_letter_is_unmet(const struct tti_letter *letter);

/* Writes the sentence for a receive that ended with ERR_TRUNCATED; `prefix` comes before it. Returns its status. */
tutti_status tti_recv_explain(const struct tti_recv *recv, enum tti_kind kind, const char *prefix, tutti_error *error);

/* ---- After a failure. The comm is broken. */

/* Tells the peers that this rank does not touch the memory of any message any more; it does not after this call. */
void tti_messages_stop(tutti_comm *comm);
/* Ends, with `status`, all letters whose buffers no peer can touch any more. Returns true if there are no others. */
bool tti_messages_fence(tutti_comm *comm, tutti_status status);
/* Blocks: does both, until all letters have ended. After fence_ms a process that may still touch a buffer is killed; a
 * thread cannot be killed, so the buffers that it may touch are quarantined. */
void tti_messages_fail(tutti_comm *comm, tutti_status status);

struct tti_messages; /* of one comm on one rank */
struct tti_messages *tti_messages_create(tutti_comm *comm);
void tti_messages_free(struct tti_messages *messages);

extern const struct tti_letter_sink tti_letter_sink; /* takes the frames that come over a transport: see net.h */

#endif
