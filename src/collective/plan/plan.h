/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans: what one rank does in one operation, as data. Pure arithmetic, no I/O: every algorithm can be checked for
 * every rank without running it.
 *
 * A plan's steps are done in order; a wait step says what must have happened on another rank first. A rank publishes
 * growing numbers; a wait for a number ends once the peer has published it or a larger one. Number 0 means that the
 * peer has entered, TTI_LEFT that it has left.
 *
 * Paths, and their requirements:
 *   STAGED   data small enough for the slot that carries the entry: staged before entering, so that a rank waits only
 *            for the ranks whose data it needs. A little larger data are staged by ranks whose buffers are private,
 *            before they meet; that is enough when all ranks' are, and of a broadcast when the root's is.
 *   DIRECT   every buffer can be read and written by every rank, between the entry and the exit of the operation.
 *   ATTACH   every buffer can be read by every rank (cross-memory attach). A rank writes its own only, but for a
 *            broadcast's root, which may write others'.
 *   BOUNCE   no rank can reach another's buffers: chunks go through bounce buffers, two in flight.
 *   MESSAGES ranks share nothing: data travel in messages (plan_message.h).
 * STAGED and MESSAGES have no meeting. The others begin with a meeting: nothing is touched before all ranks have
 * entered. Where ranks reach each other's buffers, they end with leaving: a buffer is its owner's again when all ranks
 * have left.
 *
 * Messages. SEND and RECV only post; AWAIT and DRAIN wait. The k-th SEND from rank a to rank b matches the k-th RECV of
 * b from a, with as many bytes, 0 included. Messages of a pair arrive in order; those of different peers in any. Until
 * it is drained a send reads its memory, which nothing may change but data that its receiver sent after having awaited
 * it: these can only come when it has been read. A plan ends when all it posted was awaited and drained. No plan relies
 * on a send being complete before its receive is posted, and none can deadlock without that.
 *
 * Where the same is done window after window it is said once, and AGAIN how often: in each turn IN and OUT of the steps
 * begin `bytes` further on, and what they publish and wait for is larger by `sources`. Before an AGAIN all that was
 * posted is awaited and drained; after it receives and sends are counted anew.
 *
 * Reductions over messages fold parts: a leaf is one rank's contribution, in elements; a partial is a subtree of the
 * canonical tree (reduce.h), in accumulators, which is how it travels. A leaf of a scaled sum travels as a partial,
 * since only its owner knows the factor. So a rank needs no factor but its own.
 */
#ifndef TTI_COLLECTIVE_PLAN_H
#define TTI_COLLECTIVE_PLAN_H

#include "collective/plan/kind.h"
#include "collective/reduce/copy.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/experimental.h>

enum {
    TTI_PAYLOAD_BYTES = 56, /* data that travel in the cache line of their entry word */
    TTI_STAGE_ROOM = 8192,  /* room for more data of one rank and one operation, which lie elsewhere */
    TTI_STAGE_BYTES = TTI_PAYLOAD_BYTES + TTI_STAGE_ROOM, /* bytes of the space STAGE */
    TTI_ALL = -1                                          /* in place of a rank: every rank */
};
#define TTI_LEFT UINT32_C(0x7fffffff)

enum tti_path { TTI_STAGED, TTI_DIRECT, TTI_ATTACH, TTI_BOUNCE, TTI_MESSAGES };
enum tti_space {
    TTI_IN,
    TTI_OUT,
    TTI_STAGE,
    TTI_BOUNCED,
    /* this operation's scratch memory on this rank, `temp_bytes` of the plan; aligned to 64, contents undefined */
    TTI_TEMP
};

struct tti_region {
    int32_t rank;   /* a rank, or TTI_ALL */
    uint32_t space; /* enum tti_space */
    uint64_t offset;
};

enum tti_step_kind {
    TTI_STEP_ENTER,    /* makes the call and the staged data visible */
    TTI_STEP_PUBLISH,  /* publishes `value` */
    TTI_STEP_WAIT,     /* waits for `value` from `peer`, or from all others (TTI_ALL) */
    TTI_STEP_COPY,     /* copies `bytes` from source to target; to every rank's target if target.rank is TTI_ALL */
    TTI_STEP_REDUCE,   /* reduces the same region of ranks 0..sources-1 into target (or every rank's) */
    TTI_STEP_PREFIX,   /* scan: reduces the same region of all ranks into every rank's target; `exclusive` */
    TTI_STEP_EXCHANGE, /* swaps `bytes` of source and target */
    TTI_STEP_LEAVE,    /* publishes TTI_LEFT */
    TTI_STEP_FOLD,     /* folds parts[first .. first + sources) into target, by tti_fold; `value` is the divisor */
    TTI_STEP_SEND,     /* posts `bytes` at source to `peer` */
    TTI_STEP_RECV,     /* posts `bytes` from `peer` to target */
    TTI_STEP_AWAIT,    /* waits until the first `value` receives, in order of posting, have arrived */
    TTI_STEP_DRAIN,    /* waits until the first `value` sends, in order of posting, are done with their memory */
    TTI_STEP_AGAIN     /* does the steps from `first` on `value` times in all */
};

struct tti_step {
    uint8_t kind;  /* enum tti_step_kind */
    uint8_t store; /* enum tti_store */
    bool exclusive;
    int32_t peer;
    int32_t sources;
    uint32_t value;
    uint32_t first; /* FOLD: index in the plan's parts; AGAIN: in its steps */
    uint64_t bytes; /* FOLD: the bytes of so many elements, also if it reads or writes partials */
    struct tti_region source, target;
    /* REDUCE of staged data: the place of this rank's data in its input, which is read sooner than its stage */
    uint64_t own;
};

/* One operand of a FOLD: the contributions of ranks first .. first + ranks. */
struct tti_part {
    struct tti_region at;
    int32_t first, ranks;
    bool partial; /* true: in accumulators; false: a leaf, in elements */
};

/* The messages that a plan posts: the most before receives and sends are counted anew, and those sent in all. */
struct tti_postings {
    uint32_t sends, receives;
    uint64_t all_sends;
};

struct tti_plan {
    struct tti_step *steps;
    size_t count, capacity;
    struct tti_part *parts;
    size_t part_count, part_capacity;
    uint64_t temp_bytes;
    struct tti_postings posted; /* set by tti_plan_count */
    bool failed;                /* there was no memory to add a step */
};

/* The parts of a rank's row in the tables of a v-form, one after the other, each with as many elements as there are
 * ranks. For a sender in a gather_v, and a receiver in a scatter_v, the first count is its own. */
enum tti_given { TTI_IN_COUNTS, TTI_IN_OFFSETS, TTI_OUT_COUNTS, TTI_OUT_OFFSETS, TTI_GIVEN };

/* The input from which a plan is made: the same on every rank except `rank` (and, before a meeting, except the rows of
 * `tables` that belong to others). */
struct tti_shape {
    enum tti_kind kind;
    enum tti_path path;
    int rank, size, root;
    size_t element; /* bytes */
    uint64_t count; /* elements, or elements of one block if there are blocks */
    /* all_to_all: all ranks are in place; broadcast, gather, scatter: the root is; MESSAGES: this rank's buffers
     * overlap, any kind */
    bool in_place;
    const uint64_t *tables; /* v-forms: size rows of TTI_GIVEN * size; MESSAGES: this rank's row alone */
    size_t bounce_bytes;    /* bytes of one rank's bounce buffer; 0: there is none */
    size_t accumulator;     /* MESSAGES: bytes of one element of a partial (tti_accumulator_bytes) */
    bool scaled;            /* MESSAGES: leaves travel as partials */
    const tutti_tuning *tuning;
};

static inline uint64_t tti_given_by(const struct tti_shape *shape, int rank, enum tti_given what, int peer)
{
    size_t size = (size_t)shape->size;
    return shape->tables[((size_t)rank * TTI_GIVEN + (size_t)what) * size + (size_t)peer];
}

/* The data that go from rank `from` to rank `to` in an operation that only moves data. */
struct tti_flow {
    uint64_t bytes, source, target; /* source: offset in the input of `from`; target: offset in the output of `to` */
};
struct tti_flow tti_flow_of(const struct tti_shape *shape, int from, int to);

/* Two ranks of a v-form whose counts do not agree: one sends more or less than the other receives. */
struct tti_unequal {
    int from, to;
    uint64_t sent, received; /* elements */
};
/* Returns true if there is such a pair among all that concern a rank (in gather_v and scatter_v: among all). All rows
 * of the tables must be filled. */
bool tti_shape_is_unequal(const struct tti_shape *shape, int rank, struct tti_unequal *unequal);

/* Returns the bytes of the largest of a rank's buffers, which are compared with the switch-over sizes. */
uint64_t tti_shape_bytes(const struct tti_shape *shape);

/* Returns the bytes of all ranks' buffers together, which are compared with the caches. */
uint64_t tti_shape_footprint(const struct tti_shape *shape);

/* Returns true if the operation can use STAGED: the same answer on every rank, from its own arguments alone. */
bool tti_shape_fits_stage(const struct tti_shape *shape);

/* Returns true if it could use STAGED in case no rank can reach another's buffers: then ranks bring their data along
 * when they meet. */
bool tti_shape_fits_slot(const struct tti_shape *shape);
/* Returns true if a rank's input has one block per receiver. */
static inline bool tti_shape_splits(const struct tti_shape *shape)
{
    switch (shape->kind) {
    case TTI_SCATTER:
    case TTI_SCATTER_V:
    case TTI_REDUCE_SCATTER:
    case TTI_REDUCE_SCATTER_V:
    case TTI_ALL_TO_ALL:
    case TTI_ALL_TO_ALL_V: return true;
    default: return false;
    }
}
/* Returns the most bytes that a rank stages, for an operation that fits by either rule. */
uint64_t tti_staged_bytes(const struct tti_shape *shape);

/* Replaces the plan's steps. Returns ERR_MEMORY if they could not be stored. */
tutti_status tti_plan_build(struct tti_plan *plan, const struct tti_shape *shape);
void tti_plan_free(struct tti_plan *plan);
/* Counts the messages that a plan posts, once it is built. */
void tti_plan_count(struct tti_plan *plan);

/* Hashes all steps of a plan over messages: equal for equal plans. */
uint64_t tti_plan_hash(const struct tti_plan *plan);

/* The amounts that a plan makes its rank send and reduce: for tests, and to predict times. */
struct tti_cost {
    uint64_t messages, bytes; /* sent */
    uint64_t received;        /* bytes */
    uint64_t folded;          /* bytes of elements and accumulators read by folds */
    uint64_t copied;          /* bytes */
};
struct tti_cost tti_plan_cost(const struct tti_plan *plan, const struct tti_shape *shape);

#endif
