/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement of ranks that exchange messages: a state machine without any I/O. The owner of a transport gives it the
 * messages that come and tells it which ranks are gone, and sends the messages that it passes to `send`.
 *
 * Agreements are numbered, and follow each other. The lowest rank that is not gone coordinates: all others give it
 * their values; when it has all, it proposes the outcome; when all have acknowledged that, it commits. A rank that
 * hears the outcome tells it to all before it goes on. When the coordinator is gone, the next one collects again, and
 * each rank tells it the proposal that it has acknowledged: the latest of these is proposed again.
 *
 * Invariant: an outcome is committed only when every rank that is not gone has acknowledged it, so any later
 * coordinator knows of it. A rank that is gone stays gone, and every message spreads this: a rank that learns that it
 * is gone itself is excluded.
 */
#ifndef TTI_WORLD_AGREE_H
#define TTI_WORLD_AGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tti_agree_outcome {
    TTI_AGREED,
    TTI_AGREE_LATE,     /* a rank did not come in time */
    TTI_AGREE_DIFFERS,  /* a rank called something else */
    TTI_AGREE_EXCLUDED, /* the others go on without this rank, or are too few to go on */
};

/* Sends `bytes` to a rank. Messages to one rank must arrive in order, and once. */
typedef void tti_agree_send(void *context, int to, const void *message, size_t bytes);

struct tti_agree;
/* Makes the state. `by_majority`: an outcome needs more than half of the ranks, or half of them with rank 0, as ranks
 * that are gone may live; otherwise all that are gone have ended. NULL: no memory. */
struct tti_agree *tti_agree_create(int rank, int size, bool by_majority, tti_agree_send *send, void *context);
void tti_agree_free(struct tti_agree *agree);
/* Returns the bytes of every message. */
size_t tti_agree_bytes(int size);

/* Lets this rank take part in the next agreement, and give a value; `kind` must be the same on all. Returns the
 * agreement's number. */
uint32_t tti_agree_start(struct tti_agree *agree, uint32_t kind, uint64_t mine);
/* Tells it that a rank is gone; `lost`: without leaving. */
void tti_agree_gone(struct tti_agree *agree, int rank, bool lost);
/* Takes a message that has come. Other bytes are dropped. */
void tti_agree_hear(struct tti_agree *agree, int from, const void *message, size_t bytes);
/* Called when time is up. `excludes`: ranks that have not come are gone now; otherwise all are told that one is late,
 * if this rank coordinates. Returns a rank that has not come, or -1. */
int tti_agree_expire(struct tti_agree *agree, bool excludes);
/* Returns true if this rank coordinates the agreement in which it takes part. */
bool tti_agree_leads(const struct tti_agree *agree);
/* Returns the rank for which this one waits, or -1. */
int tti_agree_awaited(const struct tti_agree *agree);
/* Returns true if this rank waits for that one, among others. */
bool tti_agree_awaits(const struct tti_agree *agree, int rank);

/* The outcome of an agreement. */
struct tti_agree_result {
    enum tti_agree_outcome outcome;
    int peer;               /* the rank that is the reason, or -1 */
    const uint64_t *values; /* (size) */
};
/* Returns true if that number is decided, or will never be; an agreement that failed stands for all later ones. */
bool tti_agree_result(const struct tti_agree *agree, uint32_t number, struct tti_agree_result *result);
/* For the last agreement: returns true if the rank took part, or was lost. */
bool tti_agree_was_present(const struct tti_agree *agree, int rank);
bool tti_agree_was_lost(const struct tti_agree *agree, int rank);

#endif
