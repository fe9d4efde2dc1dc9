/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans: what one rank does in one operation, as data. Pure arithmetic, no I/O: every algorithm can be checked for
 * every rank without running it.
 *
 * A plan's steps are done in order; what must have happened on another rank first is said by a wait step. A rank
 * publishes growing numbers; A wait for a number holds once the peer has published it or a larger one. Number 0 stands
 * for the peer's entry, TTI_LEFT for its having left.
 *
 * Paths, and what they rely on:
 *   STAGED   data small enough for the slot that carries the entry: staged before entering, so that a rank waits only
 *            for the ranks whose data it needs.
 *   DIRECT   every buffer can be read and written by every rank, between the entry and the exit of the operation.
 *   ATTACH   every buffer can be read by every rank (cross-memory attach); a rank writes its own only.
 *   BOUNCE   no rank can reach another's buffers: chunks go through bounce buffers, two in flight.
 * All but STAGED begin with a meeting: nothing is touched before all ranks have entered. Where ranks reach each other's
 * buffers, they end with leaving: a buffer is its owner's again when all ranks have left.
 */
#ifndef TTI_COLLECTIVE_PLAN_H
#define TTI_COLLECTIVE_PLAN_H

#include "collective/call.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/experimental.h>

enum {
    TTI_PAYLOAD_BYTES = 56, /* data that travel in the cache line of their entry word */
    TTI_STAGE_BYTES = TTI_PAYLOAD_BYTES +
                      8192, /* staged data of one rank and one operation; more begin at the next line */
    TTI_ALL = -1            /* in place of a rank: every rank */
};
#define TTI_LEFT UINT32_C(0x7fffffff)

enum tti_path { TTI_STAGED, TTI_DIRECT, TTI_ATTACH, TTI_BOUNCE };
enum tti_space { TTI_IN, TTI_OUT, TTI_STAGE, TTI_BOUNCED };

struct tti_region {
    int32_t rank;   /* or TTI_ALL */
    uint32_t space; /* enum tti_space */
    uint64_t offset;
};

enum tti_step_kind {
    TTI_STEP_ENTER,    /* make the call and what was staged visible */
    TTI_STEP_PUBLISH,  /* `value` */
    TTI_STEP_WAIT,     /* for `value` from `peer`, or from all others (TTI_ALL) */
    TTI_STEP_COPY,     /* `bytes` from source to target; to every rank's if target.rank is TTI_ALL */
    TTI_STEP_REDUCE,   /* over the same region of ranks 0..sources-1, into target (or every rank's) */
    TTI_STEP_PREFIX,   /* scan: over the same region of all ranks, into every rank's target; `exclusive` */
    TTI_STEP_EXCHANGE, /* swap `bytes` of source and target */
    TTI_STEP_LEAVE     /* publishes TTI_LEFT */
};

struct tti_step {
    uint8_t kind; /* enum tti_step_kind */
    bool stream;
    bool exclusive;
    int32_t peer;
    int32_t sources;
    uint32_t value;
    uint64_t bytes;
    struct tti_region source, target;
};

struct tti_plan {
    struct tti_step *steps;
    size_t count, capacity;
    bool failed; /* a step could not be added: out of memory */
};

/* What a plan is made from: the same on every rank but for `rank` (and, before a meeting, but for the rows of `tables`
 * that belong to others). */
struct tti_shape {
    enum tti_kind kind;
    enum tti_path path;
    int rank, size, root;
    size_t element;         /* bytes */
    uint64_t count;         /* elements; of one block where there are blocks */
    bool in_place;          /* all_to_all: on all ranks */
    const uint64_t *tables; /* v-forms: size rows of 4 * size: in counts, in offsets, out counts, out offsets */
    size_t bounce_bytes;    /* of one rank; 0: none */
    const tutti_tuning *tuning;
};

/* What goes from rank `from` to rank `to` in an operation that only moves data. */
struct tti_flow {
    uint64_t bytes, source, target; /* offsets in from's in and to's out */
};
struct tti_flow tti_flow_of(const struct tti_shape *shape, int from, int to);

/* Bytes of the largest of a rank's buffers: what the switch-over sizes are compared with. */
uint64_t tti_shape_bytes(const struct tti_shape *shape);

/* Bytes of all ranks' buffers together: what is compared with the caches. */
uint64_t tti_shape_footprint(const struct tti_shape *shape);

/* Whether the operation can go by STAGED: the same answer on every rank, from its own arguments alone. */
bool tti_shape_fits_stage(const struct tti_shape *shape);

/* Replaces the plan's steps. ERR_MEMORY if they could not be stored. */
tutti_status tti_plan_build(struct tti_plan *plan, const struct tti_shape *shape);
void tti_plan_free(struct tti_plan *plan);

#endif
