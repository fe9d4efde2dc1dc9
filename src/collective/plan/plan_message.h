/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans over messages: what their builders share. Internal to the plan_message*.c and plan_hosts.c files.
 *
 * The ranks that exchange messages are members: every rank, or one rank per host that leads it. A member contributes
 * the largest subtrees of the canonical tree that its ranks cover: a rank one leaf, in its input; a host one subtree or
 * several, combined before, in TEMP. At any time of an exchange a member holds the set of the largest subtrees of those
 * members whose contributions it has: so messages shrink as far as the canonical order allows, and every member knows
 * how long each message is.
 *
 * A window is a piece of the vector that goes through an exchange on its own. Its receives are posted one window ahead.
 */
#ifndef TTI_COLLECTIVE_PLAN_MESSAGE_H
#define TTI_COLLECTIVE_PLAN_MESSAGE_H

#include "collective/plan/plan_build.h"
#include "collective/reduce/subtree.h"

struct tti_members {
    int count, me;
    const int *ranks;     /* (count) ranks of members; NULL: member m is rank m */
    const int *member_of; /* (ranks) members of ranks; NULL likewise */
    bool side_by_side;    /* each member's ranks lie in order, so that they need not be read one by one */
};

struct tti_message_build {
    struct tti_plan *plan;
    const struct tti_shape *shape;
    struct tti_members members;
    bool combined; /* own subtrees lie in TEMP as partials, `stride` bytes each, of the vector from `origin` on */
    uint64_t stride, origin;
    struct tti_region result; /* where the result for the vector's byte `origin` goes */
    /* all_gather: returns where the blocks of a member lie in OUT, index by index; false: there are no more. NULL: a
     * member has the block of its rank, which is in IN when the operation begins; otherwise all are in OUT. */
    bool (*piece)(const struct tti_message_build *build, int member, int index, struct tti_block *block);
    const void *context;
    uint32_t sent, received;   /* messages posted */
    uint32_t awaited, drained; /* how many of these were awaited and drained */
    uint64_t temp;             /* bytes of TEMP in use */
    int *owner_of;             /* room for one per rank */
    struct tti_subtree *trees;
    struct tti_part *held, *arrived, *all; /* room for one per rank each */
    uint64_t *slots[3];                    /* where the receives of a window lie; room for one per member and round */
};

struct tti_set {
    struct tti_part *parts;
    int count;
};

/* Returns false if there is no memory: nothing else in the build may be used then, and the plan failed. */
bool tti_message_begin(struct tti_message_build *build, struct tti_plan *plan, const struct tti_shape *shape,
                       struct tti_members members);
void tti_message_end(struct tti_message_build *build); /* awaits and drains all messages */

static inline struct tti_region tti_own(const struct tti_message_build *build, enum tti_space space, uint64_t offset)
{
    return (struct tti_region){build->shape->rank, (uint32_t)space, offset};
}

static inline int tti_member_rank(const struct tti_message_build *build, int member)
{
    return build->members.ranks == NULL ? member : build->members.ranks[member];
}

static inline struct tti_region tti_result_at(const struct tti_message_build *build, uint64_t offset)
{
    struct tti_region region = build->result;
    region.offset += offset - build->origin;
    return region;
}

/* Returns a switch-over size for this many members: a message costs as much as some thousand bytes, so the more members
 * there are, the longer it pays to send few messages. It is bounded by what may lie in TEMP. */
static inline uint64_t tti_small_for(const struct tti_message_build *build, int64_t size, int members_per_size)
{
    const uint64_t temp = 4 << 20;
    if ((uint64_t)size >= temp) return temp; /* sizes may be so large that a product would overflow */
    uint64_t most = (uint64_t)size * (1 + (uint64_t)(build->members.count / members_per_size));
    return most < temp ? most : temp;
}

/* Peers are given as members, not ranks. */
void tti_post_send(struct tti_message_build *build, int to, struct tti_region source, uint64_t bytes);
void tti_post_recv(struct tti_message_build *build, int from, struct tti_region target, uint64_t bytes);
void tti_await(struct tti_message_build *build, uint32_t receives);
void tti_drain(struct tti_message_build *build, uint32_t sends);
/* returns so much of TEMP, aligned to 64 */
struct tti_region tti_temp(struct tti_message_build *build, uint64_t bytes);
/* Copies from the own input to the own output. */
void tti_copy_own(struct tti_message_build *build, uint64_t out, uint64_t in, uint64_t bytes);
/* Bytes that a packet carries on loopback, without the heads. A message that is slightly longer takes one more packet,
 * so tti_whole_packets cuts off that excess. */
enum { TTI_PACKET = (64 << 10) - 192 };
static inline uint64_t tti_whole_packets(uint64_t bytes)
{
    uint64_t over = bytes % TTI_PACKET;
    return bytes > TTI_PACKET && over < TTI_PACKET / 8 ? bytes - over : bytes;
}
/* Returns the size of the pieces in which these bytes are passed on. */
uint64_t tti_chunk_for(const struct tti_message_build *build, uint64_t bytes);

/* ---- Sets of subtrees ------------------------------------------------------------------------------------------ */

/* The members [first, last) and [also_first, also_last). */
struct tti_member_span {
    int first, last, also_first, also_last;
};

/* Returns the set that these members make up, without places. A single leaf travels in elements, all else in
 * accumulators. */
struct tti_set tti_set_of(struct tti_message_build *build, struct tti_member_span members, struct tti_part *room);
uint64_t tti_part_bytes(const struct tti_message_build *build, const struct tti_part *part, uint64_t bytes);
uint64_t tti_set_bytes(const struct tti_message_build *build, struct tti_set set, uint64_t bytes);
/* Places the parts one after the other from here on. */
void tti_set_place(const struct tti_message_build *build, struct tti_set set, struct tti_region at, uint64_t bytes);
/* Returns this member's own contributions to `bytes` at `offset` of the vector; `travels`: in the form in which they
 * are sent. */
struct tti_set tti_set_own(struct tti_message_build *build, uint64_t offset, uint64_t bytes, bool travels,
                           struct tti_part *room);
/* Joins both in rank order, in `room`. */
struct tti_set tti_set_join(struct tti_set one, struct tti_set other, struct tti_part *room);
/* Folds the held set into the set that these members make up, in TEMP, contiguous. `room` may be that of `held`. */
struct tti_set tti_set_fold(struct tti_message_build *build, struct tti_set held, struct tti_member_span members,
                            uint64_t bytes, struct tti_part *room);
void tti_set_finish(struct tti_message_build *build, struct tti_set held, struct tti_region target, int divisor,
                    uint64_t bytes);
void tti_set_send(struct tti_message_build *build, struct tti_set set, int to, uint64_t bytes);

/* ---- Windows --------------------------------------------------------------------------------------------------- */

struct tti_window {
    uint64_t offset, bytes; /* the range of the vector */
    struct tti_region target;
    int root;        /* the member that gets the result; TTI_ALL: all do */
    uint32_t base;   /* receives posted before this window's */
    uint64_t *slots; /* where they go, in order */
    uint64_t temp;   /* where this window's TEMP continues after its receives */
    uint32_t sent;   /* the number of sends when the window was done */
};

struct tti_exchange {
    void (*post)(struct tti_message_build *build, struct tti_window *window); /* posts the window's receives */
    void (*run)(struct tti_message_build *build, struct tti_window *window);
};

/* Runs the exchange over the whole vector from `offset` on, in pieces of `most` bytes, three in flight. Results go to
 * the same places from `target` on. */
void tti_exchange_all(struct tti_message_build *build, const struct tti_exchange *exchange, struct tti_window whole,
                      uint64_t most);

/* ---- Whole operations ------------------------------------------------------------------------------------------ */

/* Each member owns a slice of [offset, offset + bytes) (or a block, in a reduce_scatter), obtains all contributions to
 * it, and keeps the result, or passes it on to the root or to all. */
enum tti_keep { TTI_KEEP, TTI_TO_ROOT, TTI_TO_ALL };
void tti_build_slices(struct tti_message_build *build, uint64_t offset, uint64_t bytes, enum tti_keep keep, int root);
/* Does the same for a result that goes to all, in rounds. */
void tti_build_halving(struct tti_message_build *build, uint64_t offset, uint64_t bytes);
void tti_build_message_reduction(struct tti_message_build *build);
void tti_build_message_all_reduce(struct tti_message_build *build, uint64_t offset, uint64_t bytes);
void tti_build_message_reduce(struct tti_message_build *build, uint64_t offset, uint64_t bytes, int root);
void tti_build_message_move(struct tti_message_build *build);
void tti_build_message_all_gather(struct tti_message_build *build);
void tti_build_dissemination(struct tti_message_build *build);
/* Returns how many members speak: all, or with message_paired half of them, each for itself and for its partner, the
 * member that many places after it. */
int tti_groups(const struct tti_message_build *build);
void tti_build_message_broadcast(struct tti_message_build *build, uint64_t offset, uint64_t bytes, int root,
                                 enum tti_space source);

#endif
