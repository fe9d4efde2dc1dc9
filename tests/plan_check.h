/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks plans without running them: the plans of all ranks are interpreted together, step by step, on memory whose
 * cells (one element each) hold symbols: "element i of rank r's input", "the reduction over ranks 0..k of elements i".
 *
 * Happens-before is kept in vector clocks: a wait joins what the peer knew at the earliest publication that satisfies
 * it, which is all that a real wait guarantees. A plan is wrong when
 *   - an output is not exactly what the operation promises, or is written twice, or anything else is changed,
 *   - a cell is read that was not written, or not written before (in that order) the read,
 *   - a cell is overwritten though a read or write of it may still be under way (races, in place too),
 *   - a rank's buffers are touched before it entered, or after it left and may have reused them,
 *   - a region is outside its buffer, or out of reach on the plan's path,
 *   - the ranks wait for each other for ever.
 * Since plans do not depend on data, one order of steps finds the races of all orders.
 */
#ifndef TESTS_PLAN_CHECK_H
#define TESTS_PLAN_CHECK_H

#include "collective/plan/plan.h"
#include "conformance_layout.h"

/* One operation: a case, its path, and the plans of all ranks. */
struct plan_check_op {
    struct conf_case one;
    enum tti_path path;
    int size;
    size_t element, bounce_bytes;
    size_t accumulator; /* MESSAGES, as in the shape */
    bool scaled;
    tutti_tuning tuning;
    bool in_place[CONF_RANKS_MOST];
    struct conf_layout layouts[CONF_RANKS_MOST];
    struct tti_plan plans[CONF_RANKS_MOST];
};

enum plan_check_order { PLAN_CHECK_ROUND_ROBIN, PLAN_CHECK_ONE_FIRST, PLAN_CHECK_RANDOM, PLAN_CHECK_ORDERS };

/* Switch-over sizes of messages, as the lowest bits of `hash` have them; pieces are cut to `chunk` bytes or less. */
tutti_tuning plan_check_tuning(uint64_t hash, size_t chunk);

/* Builds the plans of all ranks from one, path, size, element, bounce_bytes and tuning. False: this operation does not go
 * by this path. */
bool plan_check_build(struct plan_check_op *op);
struct tti_shape plan_check_shape(const struct plan_check_op *op, int rank);
void plan_check_free(struct plan_check_op *op);

/* Interprets operations (of the same element and bounce_bytes) one after the other, as ranks that do not wait in between
 * would. NULL, or what is wrong. */
const char *plan_check_run(struct plan_check_op *const *ops, int count, enum plan_check_order order, uint64_t seed);

#endif
