/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement of ranks that exchange messages: a state machine without any I/O. Whoever has a transport feeds it with what comes and
 * with who is gone, and sends what it gives to `send`.
 *
 * Agreements are numbered, and follow each other. The lowest rank that is not gone coordinates: all others give it their values; when
 * it has all, it proposes the outcome; when all have acknowledged that, it commits. Who hears the outcome tells it to everyone before
 * it goes on. When the coordinator is gone, the next one collects again, and each rank tells it the proposal that it has
 * acknowledged: of these the latest is proposed again.
 *
 * Invariant: an outcome is committed only when every rank that is not gone has acknowledged it, so any later coordinator knows of
 * it. Who is gone stays so, and that spreads with every message: a rank that learns that it is gone itself is excluded.
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

/* Sends `bytes` to a rank. Its messages to one rank must come in order, and once. */
typedef void tti_agree_send(void *context, int to, const void *message, size_t bytes);

struct tti_agree;
/* `by_majority`: an outcome needs more than half of the ranks, or half of them with rank 0, as ranks that are gone may live; else all
 * that are gone have ended. NULL: no memory. */
struct tti_agree *tti_agree_create(int rank, int size, bool by_majority, tti_agree_send *send, void *context);
void tti_agree_free(struct tti_agree *agree);
/* Bytes of every message. */
size_t tti_agree_bytes(int size);

/* This rank takes part in the next agreement, and gives a value; `kind` is to be the same on all. Returns its number. */
uint32_t tti_agree_start(struct tti_agree *agree, uint32_t kind, uint64_t mine);
/* A rank is gone; `lost`: without leaving. */
void tti_agree_gone(struct tti_agree *agree, int rank, bool lost);
/* A message has come. What is none is dropped. */
void tti_agree_hear(struct tti_agree *agree, int from, const void *message, size_t bytes);
/* Time is up. `excludes`: those that have not come are gone now; else all are told that one is late, if this rank coordinates.
 * Returns a rank that has not come, or -1. */
int tti_agree_expire(struct tti_agree *agree, bool excludes);
/* True if this rank coordinates the agreement that it takes part in. */
bool tti_agree_leads(const struct tti_agree *agree);
/* The rank that this one waits for, or -1. */
int tti_agree_awaited(const struct tti_agree *agree);
/* True if it waits for that one, among others. */
bool tti_agree_awaits(const struct tti_agree *agree, int rank);

/* The outcome of an agreement. */
struct tti_agree_result {
    enum tti_agree_outcome outcome;
    int peer;               /* whom it is about, or -1 */
    const uint64_t *values; /* (size) */
};
/* True if that number is decided, or will never be; one that failed stands for all later ones. */
bool tti_agree_result(const struct tti_agree *agree, uint32_t number, struct tti_agree_result *result);
/* Of the last one: who took part; who was lost then. */
bool tti_agree_was_present(const struct tti_agree *agree, int rank);
bool tti_agree_was_lost(const struct tti_agree *agree, int rank);

#endif
