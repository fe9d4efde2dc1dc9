/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the ranks of a job meet before they know each other: rank 0 listens, the others come to it, each gives some bytes
 * and all get everybody's. All or nothing: if one rank is missing or in trouble, every rank that came gets an error that
 * names it.
 *
 *     struct tti_meeting *meeting;
 *     TTI_TRY(tti_meeting_open(&where, &meeting, error));
 *     TTI_TRY(tti_meeting_exchange(meeting, mine, bytes, &all, error));      as often as needed, with the same ranks
 *     tti_meeting_close(meeting);
 *
 * Between hosts it goes over tcp, and everyone proves the job's key first. Ranks of one host can meet without address and
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
    int ranks_each;      /* of each of these, which are processes then, for words; 0: one */
    uint32_t generation; /* as in struct tti_sequel: those of another one meet elsewhere */
    bool again;          /* they had met before, to form a world that they form anew */
    int64_t deadline_ns; /* of all that is done at this meeting, as tti_now_ns() counts */
    /* "HOST:PORT", which rank 0 listens at and the others connect to. HOST is rank 0's host; rank 0 itself uses the port
     * only, unless HOST is loopback: then it listens nowhere else. Several, with commas between, are tried one after the other. NULL or "": all ranks are on this host and meet by
     * the job's name. */
    const char *address;
    const struct tti_key *key; /* NULL only without address */
    const char
        *interface; /* NULL or "": rank 0 listens on all, or where said above; else there, and where `address` says */
    const struct tti_apart *apart; /* where ranks of this host meet; NULL: none of them can be waiting elsewhere */
    /* Of this host's launcher, or NULL. Looked at up to the end of the first exchange: where there is one, there must be a
     * second, without which no rank goes its way. It stays until the meeting is closed. */
    const struct tti_board *board;
    const char *board_name; /* its name, for `again`: who does not come in time is ended and started again */
    /* With publish(), rank 0 listens at any port where `address` has none or 0, and hands over the real address ("A:P,B:P",
     * less than TTI_PLACE_BYTES) before it waits for anyone. With lookup() the others ask for that text, and `address` is
     * not looked at. Both are called from within tti_meeting_open, on the calling thread, may block up to the deadline, and
     * fail with the error set. NULL: not used. */
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

/* Rank 0 listens (and publishes); the others connect and prove the key. */
tutti_status tti_meeting_open(const struct tti_rendezvous *where, struct tti_meeting **meeting, tutti_error *error);
/* Returns on all ranks when all have called it, or fails on all of them. `bytes` is at most TTI_BLOB_MOST. After a failure
 * the meeting is over. */
tutti_status tti_meeting_exchange(struct tti_meeting *meeting, const void *mine, size_t bytes, struct tti_blobs *all,
                                  tutti_error *error);
/* Instead of an exchange: this rank cannot go on, and everyone else's exchange fails with this error. */
void tti_meeting_abandon(struct tti_meeting *meeting, const tutti_error *why);
/* Between two exchanges, without waiting: true when somebody has abandoned the meeting or is gone, with *error as the next
 * exchange would give it. */
bool tti_meeting_has_trouble(struct tti_meeting *meeting, tutti_error *error);
void tti_meeting_close(struct tti_meeting *meeting); /* NULL is ignored */
/* Compares clocks by some exchanges more: what to add to this process's for rank 0's, the same for processes that share a
 * clock; 0 when theirs may be rank 0's. */
tutti_status tti_meeting_compare_clocks(struct tti_meeting *meeting, int64_t *offset_ns, tutti_error *error);

#endif
