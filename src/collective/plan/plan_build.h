/* SPDX-License-Identifier: Apache-2.0
 *
 * What the plan builders share: functions that add steps and read shapes. Internal to the plan_*.c files.
 */
#ifndef TTI_COLLECTIVE_PLAN_BUILD_H
#define TTI_COLLECTIVE_PLAN_BUILD_H

#include "base/round.h"
#include "collective/plan/plan.h"

static inline struct tti_region tti_at(int rank, enum tti_space space, uint64_t offset)
{
    return (struct tti_region){rank, (uint32_t)space, offset};
}

/* Removes all steps; the memory stays for the next ones. */
static inline void tti_plan_empty(struct tti_plan *plan)
{
    plan->count = plan->part_count = 0;
    plan->temp_bytes = 0;
    plan->failed = false;
}

void tti_add_enter(struct tti_plan *plan);
void tti_add_publish(struct tti_plan *plan, uint32_t value);
void tti_add_wait(struct tti_plan *plan, int peer, uint32_t value);
void tti_add_leave(struct tti_plan *plan); /* leaves, and waits until all have left */
/* Moves and folds of 0 bytes are not added. */
void tti_add_copy(struct tti_plan *plan, struct tti_region target, struct tti_region source, uint64_t bytes,
                  enum tti_store store);
void tti_add_exchange(struct tti_plan *plan, struct tti_region target, struct tti_region source, uint64_t bytes);
void tti_add_reduce(struct tti_plan *plan, struct tti_region target, struct tti_region source, int sources,
                    uint64_t bytes, enum tti_store store);
void tti_add_prefix(struct tti_plan *plan, uint64_t offset, uint64_t bytes, bool exclusive, enum tti_store store);
void tti_add_fold(struct tti_plan *plan, struct tti_region target, const struct tti_part *parts, int count, int divisor,
                  uint64_t bytes);
/* tti_add_message: SEND or RECV, of 0 bytes too; tti_add_settle: AWAIT or DRAIN. */
void tti_add_message(struct tti_plan *plan, enum tti_step_kind kind, int peer, struct tti_region at, uint64_t bytes);
void tti_add_settle(struct tti_plan *plan, enum tti_step_kind kind, uint32_t value);
void tti_add_again(struct tti_plan *plan, size_t first, uint32_t turns, uint64_t bytes, uint32_t numbers);

/* The block that this rank sends to a rank (of its input) or receives from one (in its output), as far as it knows that
 * itself. */
struct tti_block {
    uint64_t offset, bytes;
};
struct tti_block tti_block_to(const struct tti_shape *shape, int to);
struct tti_block tti_block_from(const struct tti_shape *shape, int from);
/* Returns a rank's share of `bytes`, cut at cache lines. */
struct tti_block tti_slice_of(uint64_t bytes, int rank, int size);

struct tti_flow tti_reduce_block(const struct tti_shape *shape, int to);
bool tti_shape_reduces(const struct tti_shape *shape);
uint64_t tti_largest_block(const struct tti_shape *shape);

void tti_build_barrier(struct tti_plan *plan, const struct tti_shape *shape);
void tti_build_staged(struct tti_plan *plan, const struct tti_shape *shape);
void tti_build_direct(struct tti_plan *plan, const struct tti_shape *shape);
void tti_build_attach(struct tti_plan *plan, const struct tti_shape *shape);
void tti_build_bounce(struct tti_plan *plan, const struct tti_shape *shape);
void tti_build_messages(struct tti_plan *plan, const struct tti_shape *shape);

#endif
