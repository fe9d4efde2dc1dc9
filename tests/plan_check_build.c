/* SPDX-License-Identifier: Apache-2.0
 *
 * The plans of all ranks for one operation, built as the entry points of the library would.
 */
#include "plan_check.h"

#include <stdlib.h>
#include <string.h>

/* Rows as the entry points fill them (see plan.h): in counts, in offsets, out counts, out offsets. */
static void fill_rows(const struct plan_check_op *op, int rank, uint64_t *row)
{
    const struct conf_layout *layout = &op->layouts[rank];
    size_t n = (size_t)op->size;
    for (size_t i = 0; i < n; i++) {
        row[i] = layout->in_counts[i];
        row[n + i] = layout->in_offsets[i];
        row[2 * n + i] = layout->out_counts[i];
        row[3 * n + i] = layout->out_offsets[i];
    }
    bool root = rank == op->one.root;
    if (op->one.kind == TTI_GATHER_V) {
        if (!root) memset(row + 2 * n, 0xff, 2 * n * sizeof *row);
        row[0] = layout->in_count;
    }
    if (op->one.kind == TTI_SCATTER_V) {
        if (!root) memset(row, 0xff, 2 * n * sizeof *row);
        row[2 * n] = layout->out_count;
    }
}

static bool is_v(enum tti_kind kind)
{
    return kind >= TTI_ALL_GATHER_V && kind <= TTI_ALL_TO_ALL_V;
}

/* Before a meeting a rank knows its own rows only: the others' are made senseless then. */
static void fill_tables(const struct plan_check_op *op, int rank, uint64_t *tables)
{
    size_t row = 4 * (size_t)op->size;
    if (op->path == TTI_MESSAGES) fill_rows(op, rank, tables);
    for (int other = 0; other < op->size && op->path != TTI_MESSAGES; other++) {
        fill_rows(op, other, tables + (size_t)other * row);
        if (op->path == TTI_STAGED && other != rank) memset(tables + (size_t)other * row, 0xee, row * sizeof *tables);
    }
}

static bool goes_in_place(const struct plan_check_op *op, int rank)
{
    const struct conf_case *one = &op->one;
    if (op->layouts[rank].inside == CONF_APART) return false;
    if (one->place == CONF_IN_PLACE_ODD) return one->kind != TTI_ALL_TO_ALL && rank % 2 == 1;
    return one->place == CONF_IN_PLACE;
}

struct tti_shape plan_check_shape(const struct plan_check_op *op, int rank)
{
    bool swaps = op->one.kind == TTI_ALL_TO_ALL && op->in_place[rank] && op->one.count > 0;
    bool rooted = op->one.kind == TTI_BROADCAST || op->one.kind == TTI_GATHER || op->one.kind == TTI_SCATTER;
    bool in_place = op->path == TTI_MESSAGES ? op->in_place[rank] : rooted ? op->in_place[op->one.root] : swaps;
    return (struct tti_shape){.kind = op->one.kind,
                              .path = op->path,
                              .rank = rank,
                              .size = op->size,
                              .root = op->one.root,
                              .element = op->element,
                              .count = is_v(op->one.kind) ? 0 : op->one.count,
                              .in_place = in_place,
                              .bounce_bytes = op->bounce_bytes,
                              .accumulator = op->accumulator,
                              .scaled = op->scaled,
                              .tuning = &op->tuning};
}

static bool build_rank(struct plan_check_op *op, int rank, uint64_t *tables)
{
    struct tti_shape shape = plan_check_shape(op, rank);
    shape.tables = is_v(op->one.kind) ? tables : NULL;
    bool swaps = shape.kind == TTI_ALL_TO_ALL && shape.in_place;
    bool overwrites = shape.kind == TTI_SCAN || shape.kind == TTI_EXSCAN || swaps;
    fill_tables(op, rank, tables);
    if (op->path == TTI_STAGED && !tti_shape_fits_stage(&shape)) return false;
    if (op->path == TTI_ATTACH && overwrites) return false;
    if (op->path != TTI_STAGED && op->path != TTI_MESSAGES && shape.kind == TTI_BARRIER) return false;
    return tti_plan_build(&op->plans[rank], &shape) == TUTTI_OK;
}

tutti_tuning plan_check_tuning(uint64_t hash, size_t chunk)
{
    enum { NEVER = 1 << 30, SMALLEST = 64 };
    bool small = hash & 1;
    return (tutti_tuning){.message_flat = hash >> 1 & 1 ? 1 : 4,
                          .message_paired = hash >> 2 & 1 ? 300 : 0,
                          .message_tree = small ? NEVER : 0,
                          .message_doubling = small ? NEVER : 0,
                          .message_halving = hash >> 3 & 1 ? 2 : NEVER,
                          .message_bruck = small ? NEVER : 0,
                          .message_chunk = hash >> 4 & 1 ? SMALLEST : (int64_t)chunk};
}

bool plan_check_build(struct plan_check_op *op)
{
    uint64_t *tables = calloc(4 * (size_t)(op->size * op->size), sizeof *tables);
    bool built = true;
    for (int rank = 0; rank < op->size; rank++) {
        conf_layout_of(&op->one, op->size, rank, &op->layouts[rank]);
        op->in_place[rank] = goes_in_place(op, rank);
    }
    for (int rank = 0; rank < op->size && built; rank++) built = build_rank(op, rank, tables);
    free(tables);
    return built;
}

void plan_check_free(struct plan_check_op *op)
{
    for (int rank = 0; rank < CONF_RANKS_MOST; rank++) tti_plan_free(&op->plans[rank]);
}
