/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic of staging for v-forms: each round takes so many elements (`each`) of every flow between two ranks, and what a round
 * takes lies packed in its slot.
 */
#ifndef TTI_COLLECTIVE_STAGING_V_H
#define TTI_COLLECTIVE_STAGING_V_H

#include "collective/plan/plan.h"

/* The blocks of a rank's input or output: how many elements each has, and where it begins. */
struct tti_side {
    size_t blocks;
    const uint64_t *counts;
    const uint64_t *offsets; /* NULL: there is one block, at 0 */
};

/* `row`: what the rank itself gave. */
struct tti_side tti_side_of(const struct tti_shape *shape, const uint64_t *row, bool out);
static inline uint64_t tti_cut(uint64_t count, uint64_t each, uint64_t round)
{
    uint64_t first = round * each;
    return count <= first ? 0 : count - first < each ? count - first : each;
}
/* Returns how many elements a round takes of all blocks. */
uint64_t tti_side_cut(const struct tti_side *side, uint64_t each, uint64_t round);
uint64_t tti_side_most(const struct tti_side *side);
/* Writes the row with which a round runs: its counts, and where they lie in its slot. */
void tti_cut_row(const struct tti_shape *shape, const uint64_t *row, uint64_t each, uint64_t round, uint64_t *cut);
/* Returns the elements of the largest flow of any rank. `shape->tables`: the rows of all of them, whose counts agree. */
uint64_t tti_largest_flow(const struct tti_shape *shape);

#endif
