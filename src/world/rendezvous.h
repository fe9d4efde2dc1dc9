/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a job meet here before they know each other: rank 0 listens, the others come to it, each gives some
 * bytes and all get the bytes of all. All or nothing: if one rank is missing or in trouble, every rank that came gets
 * an error that names it.
 *
 *     struct tti_meeting *meeting;
 *     TTI_TRY(tti_meeting_open(&where, &meeting, error));
 *     TTI_TRY(tti_meeting_exchange(meeting, mine, bytes, &all, error));      as often as needed, with the same ranks
 *     tti_meeting_close(meeting);
 *
 * Between hosts it uses tcp, and every rank proves the job's key first. Ranks of one host can meet without address and
 * key: at a socket in memory with the job's name, where the system tells whether the other end is the same user.
 */
#ifndef TTI_WORLD_RENDEZVOUS_H
#define TTI_WORLD_RENDEZVOUS_H

#include "base/key.h"
#include "world/board.h"
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { TTI_BLOB_MOST = 262144, TTI_PLACE_BYTES = 1024 };

struct tti_rendezvous {
    const char *job; /* all ranks give the same one */
    int rank, size;
    int ranks_each;      /* for messages, if those that meet are processes: the ranks of each; 0: one */
    const char *each;    /* for messages: what those that meet are, such as "node"; NULL: ranks */
    uint32_t generation; /* as in struct tti_sequel: processes of another generation meet elsewhere */
    uint32_t attempt;    /* as in struct tti_sequel: processes of another attempt meet elsewhere */
    bool again;          /* they have met before, to form a world that they form anew */
    int64_t deadline_ns; /* the deadline for the whole meeting, by tti_now_ns() */
    /* "HOST:PORT", at which rank 0 listens and to which the others connect. HOST is rank 0's host; rank 0 itself uses
     * the port only, unless HOST is loopback: then it listens nowhere else. Several, with commas between, are tried one
     * after the other. NULL or "": all ranks are on this host and meet by the job's name. */
    const char *address;
    const struct tti_key *key; /* NULL only without an address */
    /* NULL or "": rank 0 listens on all interfaces, or as `address` says; otherwise on this one, and at `address` */
    const char *interface;
    const struct tti_apart *apart; /* where other ranks of this host may wait; NULL: none can be waiting elsewhere */
    /* The board of this host's launcher, or NULL. It is read up to the end of the first exchange: with a board there
     * must be a second exchange, before any rank goes its own way. It stays until the meeting is closed. */
    const struct tti_board *board;
    /* the board's name, for `again`: a process that does not come in time is ended and started again */
    const char *board_name;
    /* With publish(), rank 0 listens at any port if `address` has none or 0, and hands over the real address
     * ("A:P,B:P", less than TTI_PLACE_BYTES) before it waits for anyone. With lookup() the others ask for that text,
     * and `address` is not read. Both are called from within tti_meeting_open, on the calling thread, may block up to
     * the deadline, and fail with the error set. NULL: not used. */
    void *context;
    tutti_status (*publish)(void *context, const char *text, tutti_error *error);
    tutti_status (*lookup)(void *context, char *text, size_t bytes, int64_t deadline_ns, tutti_error *error);
};

/* What the ranks gave, in rank order. */
struct tti_blobs {
    int count;
    size_t *ends; /* blob i goes from ends[i - 1] (0 for the first) to ends[i] */
    unsigned char *bytes;
};

const void *tti_blob(const struct tti_blobs *all, int rank, size_t *bytes);
void tti_blobs_free(struct tti_blobs *all);

struct tti_meeting;

/* Opens the meeting: rank 0 listens (and publishes); the others connect and prove the key. */
tutti_status tti_meeting_open(const struct tti_rendezvous *where, struct tti_meeting **meeting, tutti_error *error);
/* Returns on all ranks when all have called it, or fails on all of them. `bytes` is at most TTI_BLOB_MOST. After a
 * failure the meeting is over. */
tutti_status tti_meeting_exchange(struct tti_meeting *meeting, const void *mine, size_t bytes, struct tti_blobs *all,
                                  tutti_error *error);
/* Called instead of an exchange if this rank cannot go on: the exchanges of all others fail with this error. */
void tti_meeting_abandon(struct tti_meeting *meeting, const tutti_error *why);
/* Called between two exchanges; does not wait. Returns true if a rank has abandoned the meeting or is gone, with *error
 * as the next exchange would set it. */
bool tti_meeting_has_trouble(struct tti_meeting *meeting, tutti_error *error);
/* Hands the connections over after an exchange over tcp, to the caller: on rank 0 one for each rank, by its number, its own
 * is -1; elsewhere one, to rank 0. What follows is to close the meeting. */
void tti_meeting_take(struct tti_meeting *meeting, int *fds);
void tti_meeting_close(struct tti_meeting *meeting); /* NULL is ignored */
/* Compares clocks by some more exchanges: sets what must be added to this process's clock to get rank 0's, the same for
 * processes that share a clock; 0 if they may share rank 0's. */
tutti_status tti_meeting_compare_clocks(struct tti_meeting *meeting, int64_t *offset_ns, tutti_error *error);

#endif
