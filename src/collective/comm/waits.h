/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank waits for which, and what follows from it: pure functions over one record per rank. They find the rank
 * that a wait is for in the end, write the chain of waits for people, and find waits that can never end. Peers provide
 * the records: `posts` shows them in shared memory, `wire` sends them to ranks that ask.
 *
 * The rule. A wait that is `sure` ends only by something that the awaited rank does for it, and until then its own rank
 * does nothing that another one waits for, unless that one makes another call. Its rank notes in `looked` which wait
 * the awaited rank was in when it had taken all that this rank did before, and that it then polled once more and found
 * nothing. So the awaited rank must leave that wait first. If this holds for every rank that a chain of waits leads to,
 * the first of them to leave its wait would have to leave it after another one: none ever does. Records may be old or
 * of different moments, since each one stays true of the waits that it names.
 *
 * A rank that waits for anyone waits for all others that have not left: `looked` then stands for the waits of all of
 * them.
 */
#ifndef TTI_COLLECTIVE_WAITS_H
#define TTI_COLLECTIVE_WAITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TTI_ANYONE = -1, TTI_WAIT_WHAT = 126 };

enum tti_doing {
    TTI_RUNS, /* it waits for no rank, as far as is known */
    TTI_WAITS,
    TTI_GONE /* it has left, and does nothing any more */
};

/* What a rank does now. It travels between ranks as it lies in memory. */
struct tti_wait_record {
    uint64_t number;          /* number of the present wait, or of the last one; grows with each wait */
    uint64_t looked;          /* tti_waits_digest() as known before the last poll; 0: not known */
    int64_t seen_ns;          /* the rank has polled since this moment, or later */
    int32_t rank, awaited;    /* TTI_ANYONE: any other rank can end the wait */
    uint8_t doing;            /* enum tti_doing */
    uint8_t sure;             /* see above: the call blocks, nothing else is in flight, nothing is on its way */
    char what[TTI_WAIT_WHAT]; /* "recv with tag 3 at cli_train.c:12" */
};
_Static_assert(sizeof(struct tti_wait_record) % sizeof(uint64_t) == 0, "records are copied by words");

/* The records of a comm's ranks. */
struct tti_waits {
    int size;
    const void *context;
    void (*get)(const void *context, int rank, struct tti_wait_record *record);
};

/* A rank's own record, and what it remembers to keep it up. */
struct tti_own_wait {
    struct tti_wait_record record;
    uint64_t stand; /* changes when the call has moved on */
    uint64_t known; /* the digest at its last poll */
};

/* Brings the own record up to date: rank, awaited, doing, sure and what are those of `now`. A wait is another one, with
 * a new number, if the awaited rank, `sure` or `stand` changed. Returns true if it is still the same. */
bool tti_wait_renew(struct tti_own_wait *own, const struct tti_wait_record *now, uint64_t stand);
/* The rank has polled and looks again at what the awaited ranks do: `known` is their digest, if they have taken all
 * that this rank did before its wait; else 0. */
void tti_wait_poll(struct tti_own_wait *own, uint64_t known);

/* Returns a digest of the present waits of the ranks that `rank` waits for: of `awaited`, or of all others. 0: one of
 * them runs. */
uint64_t tti_waits_digest(const struct tti_waits *waits, int rank, int awaited);
/* Returns true if the rank waits, in the end, for itself, and its wait can never end. */
bool tti_waits_forever(const struct tti_waits *waits, int rank);
/* Returns the rank at the end of the chain of waits that begins with `rank` waiting for `awaited`: one that runs or
 * waits for anyone; `awaited` itself if the chain comes round. */
int tti_waits_blame(const struct tti_waits *waits, int rank, int awaited);
/* Writes that chain from `awaited` on: "; rank 2 waits in #7 barrier at a.c:10 for rank 1". */
void tti_waits_describe(const struct tti_waits *waits, int rank, int awaited, char *text, size_t bytes);
/* If that chain ends with a rank that waits for anyone, writes what the ranks wait in that are not on it: each of them
 * could have ended that wait. Else writes "". */
void tti_waits_describe_others(const struct tti_waits *waits, int rank, int awaited, char *text, size_t bytes);

#endif
