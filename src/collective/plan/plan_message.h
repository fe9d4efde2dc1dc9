/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans over messages: what their builders share. Internal to the plan_message*.c and plan_hosts.c files.
 *
 * Those who exchange messages are members: every rank, or one rank per host that leads it. A member contributes the
 * largest subtrees of the canonical tree that its ranks cover: a rank one leaf, in its input; a host one subtree or
 * several, combined before, in TEMP. Everything a member holds in the course of an exchange is the set of the largest
 * subtrees of those members whose contributions it has: so messages shrink as far as the canonical order allows, and
 * everyone knows how long each message is.
 *
 * A window is a piece of the vector that goes through an exchange on its own. Its receives are posted one window ahead.
 */
#ifndef TTI_COLLECTIVE_PLAN_MESSAGE_H
#define TTI_COLLECTIVE_PLAN_MESSAGE_H

#include "collective/plan/plan_build.h"
#include "collective/reduce/subtree.h"

struct tti_members {
    int count, me;
    const int *ranks;     /* of members; NULL: member m is rank m */
    const int *member_of; /* of ranks; NULL likewise */
    bool side_by_side;    /* each member's ranks are, in order: no need to look at each */
};

struct tti_message_build {
    struct tti_plan *plan;
    const struct tti_shape *shape;
    struct tti_members members;
    bool combined; /* own subtrees lie in TEMP as partials, `stride` bytes each, of the vector from `origin` on */
    uint64_t stride, origin;
    struct tti_region result; /* where the result of the vector's byte `origin` goes */
    /* all_gather: where the blocks of a member lie in OUT, index by index; false: there are no more. NULL: it has one, its
     * rank's, which is in IN when the operation begins; else they are all in OUT. */
    bool (*piece)(const struct tti_message_build *build, int member, int index, struct tti_block *block);
    const void *context;
    uint32_t sent, received;   /* posted */
    uint32_t awaited, drained; /* of these */
    uint64_t temp;             /* in use */
    int *owner_of;             /* room for one per rank */
    struct tti_subtree *trees;
    struct tti_part *held, *arrived, *all; /* room for one per rank each */
    uint64_t *slots[3];                    /* where the receives of a window lie; room for one per member and round */
};

struct tti_set {
    struct tti_part *parts;
    int count;
};

/* Nothing else in the build is to be used after false: out of memory, and the plan failed. */
bool tti_message_begin(struct tti_message_build *build, struct tti_plan *plan, const struct tti_shape *shape,
                       struct tti_members members);
void tti_message_end(struct tti_message_build *build); /* awaits and drains all */

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

/* A switch-over size for this many members: a message costs as much as some thousand bytes, so the more there are, the
 * longer it pays to send few. Bounded by what may lie in TEMP. */
static inline uint64_t tti_small_for(const struct tti_message_build *build, int64_t size, int members_per_size)
{
    const uint64_t temp = 4 << 20;
    if ((uint64_t)size >= temp) return temp; /* sizes may be so large that no product of them fits */
    uint64_t most = (uint64_t)size * (1 + (uint64_t)(build->members.count / members_per_size));
    return most < temp ? most : temp;
}

/* Members are given, not ranks. */
void tti_post_send(struct tti_message_build *build, int to, struct tti_region source, uint64_t bytes);
void tti_post_recv(struct tti_message_build *build, int from, struct tti_region target, uint64_t bytes);
void tti_await(struct tti_message_build *build, uint32_t receives);
void tti_drain(struct tti_message_build *build, uint32_t sends);
struct tti_region tti_temp(struct tti_message_build *build, uint64_t bytes); /* aligned to 64 */
/* From the own input to the own output. */
void tti_copy_own(struct tti_message_build *build, uint64_t out, uint64_t in, uint64_t bytes);
/* What a packet carries on loopback, less what heads take. A message that is a little longer takes one more: without that
 * little. */
enum { TTI_PACKET = (64 << 10) - 192 };
static inline uint64_t tti_whole_packets(uint64_t bytes)
{
    uint64_t over = bytes % TTI_PACKET;
    return bytes > TTI_PACKET && over < TTI_PACKET / 8 ? bytes - over : bytes;
}
/* In what pieces these bytes are passed on. */
uint64_t tti_chunk_for(const struct tti_message_build *build, uint64_t bytes);

/* ---- Sets of subtrees ------------------------------------------------------------------------------------------ */

/* Members [first, last) and [also_first, also_last). */
struct tti_member_span {
    int first, last, also_first, also_last;
};

/* The set that these members make up, without places. A single leaf travels in elements, all else in accumulators. */
struct tti_set tti_set_of(struct tti_message_build *build, struct tti_member_span members, struct tti_part *room);
uint64_t tti_part_bytes(const struct tti_message_build *build, const struct tti_part *part, uint64_t bytes);
uint64_t tti_set_bytes(const struct tti_message_build *build, struct tti_set set, uint64_t bytes);
/* One after the other from here on. */
void tti_set_place(const struct tti_message_build *build, struct tti_set set, struct tti_region at, uint64_t bytes);
/* This member's own contributions to `bytes` at `offset` of the vector; `travels`: as they go into a message. */
struct tti_set tti_set_own(struct tti_message_build *build, uint64_t offset, uint64_t bytes, bool travels,
                           struct tti_part *room);
/* Both in rank order, in `room`. */
struct tti_set tti_set_join(struct tti_set one, struct tti_set other, struct tti_part *room);
/* Folds what is held into the set that these members make up, in TEMP, contiguous. `room` may be that of `held`. */
struct tti_set tti_set_fold(struct tti_message_build *build, struct tti_set held, struct tti_member_span members,
                            uint64_t bytes, struct tti_part *room);
void tti_set_finish(struct tti_message_build *build, struct tti_set held, struct tti_region target, int divisor,
                    uint64_t bytes);
void tti_set_send(struct tti_message_build *build, struct tti_set set, int to, uint64_t bytes);

/* ---- Windows --------------------------------------------------------------------------------------------------- */

struct tti_window {
    uint64_t offset, bytes; /* of the vector */
    struct tti_region target;
    int root;        /* member; TTI_ALL: all get the result */
    uint32_t base;   /* receives posted before this window's */
    uint64_t *slots; /* where they go, in order */
    uint64_t temp;   /* where this window's TEMP goes on after its receives */
    uint32_t sent;   /* sends when it was done */
};

struct tti_exchange {
    void (*post)(struct tti_message_build *build, struct tti_window *window); /* its receives */
    void (*run)(struct tti_message_build *build, struct tti_window *window);
};

/* The exchange over the whole vector from `offset` on, in pieces of `most` bytes, three in flight. Results at the same
 * places from `target` on. */
void tti_exchange_all(struct tti_message_build *build, const struct tti_exchange *exchange, struct tti_window whole,
                      uint64_t most);

/* ---- Whole operations ------------------------------------------------------------------------------------------ */

/* Each member owns a slice of [offset, offset + bytes) (or a block, in a reduce_scatter), obtains all contributions to
 * it, and keeps the result, or passes it on to the root or to all. */
enum tti_keep { TTI_KEEP, TTI_TO_ROOT, TTI_TO_ALL };
void tti_build_slices(struct tti_message_build *build, uint64_t offset, uint64_t bytes, enum tti_keep keep, int root);
/* The same to all, in rounds. */
void tti_build_halving(struct tti_message_build *build, uint64_t offset, uint64_t bytes);
void tti_build_message_reduction(struct tti_message_build *build);
void tti_build_message_all_reduce(struct tti_message_build *build, uint64_t offset, uint64_t bytes);
void tti_build_message_reduce(struct tti_message_build *build, uint64_t offset, uint64_t bytes, int root);
void tti_build_message_move(struct tti_message_build *build);
void tti_build_message_all_gather(struct tti_message_build *build);
void tti_build_dissemination(struct tti_message_build *build);
/* How many members speak: all, or with message_paired half of them, each for itself and for the one so many after it. */
int tti_groups(const struct tti_message_build *build);
void tti_build_message_broadcast(struct tti_message_build *build, uint64_t offset, uint64_t bytes, int root,
                                 enum tti_space source);

#endif
