/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/staging_v.h"

#include <string.h>

static const uint64_t *part(const struct tti_shape *shape, const uint64_t *row, enum tti_given what)
{
    return row + (size_t)what * (size_t)shape->size;
}

static struct tti_side all_of(const struct tti_shape *shape, const uint64_t *row, enum tti_given counts)
{
    return (struct tti_side){(size_t)shape->size, part(shape, row, counts), part(shape, row, counts + 1)};
}

static struct tti_side one_of(const uint64_t *count)
{
    return (struct tti_side){1, count, NULL};
}

struct tti_side tti_side_of(const struct tti_shape *shape, const uint64_t *row, bool out)
{
    const struct tti_side none = {0};
    bool root = shape->rank == shape->root;
    switch (shape->kind) {
    case TTI_ALL_GATHER_V:
        return out ? all_of(shape, row, TTI_OUT_COUNTS) : one_of(part(shape, row, TTI_OUT_COUNTS) + shape->rank);
    case TTI_REDUCE_SCATTER_V:
        return out ? one_of(part(shape, row, TTI_IN_COUNTS) + shape->rank) : all_of(shape, row, TTI_IN_COUNTS);
    case TTI_GATHER_V:
        if (!out) return one_of(part(shape, row, TTI_IN_COUNTS));
        return root ? all_of(shape, row, TTI_OUT_COUNTS) : none;
    case TTI_SCATTER_V:
        if (out) return one_of(part(shape, row, TTI_OUT_COUNTS));
        return root ? all_of(shape, row, TTI_IN_COUNTS) : none;
    case TTI_ALL_TO_ALL_V: return all_of(shape, row, out ? TTI_OUT_COUNTS : TTI_IN_COUNTS);
    default: return none;
    }
}

uint64_t tti_side_cut(const struct tti_side *side, uint64_t each, uint64_t round)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < side->blocks; i++) sum += tti_cut(side->counts[i], each, round);
    return sum;
}

uint64_t tti_side_most(const struct tti_side *side)
{
    uint64_t most = 0;
    for (size_t i = 0; i < side->blocks; i++)
        if (side->counts[i] > most) most = side->counts[i];
    return most;
}

static void cut_side(const struct tti_shape *shape, const uint64_t *row, bool out, const uint64_t at[2], uint64_t *cut)
{
    struct tti_side side = tti_side_of(shape, row, out);
    uint64_t packed = 0;
    for (size_t i = 0; i < side.blocks; i++) {
        size_t place = (size_t)(side.counts - row) + i;
        cut[place] = tti_cut(side.counts[i], at[0], at[1]);
        if (side.offsets == NULL) continue;
        cut[place + (size_t)shape->size] = packed;
        packed += cut[place];
    }
}

void tti_cut_row(const struct tti_shape *shape, const uint64_t *row, uint64_t each, uint64_t round, uint64_t *cut)
{
    const uint64_t at[] = {each, round};
    memset(cut, 0, TTI_GIVEN * (size_t)shape->size * sizeof *cut);
    cut_side(shape, row, false, at, cut);
    cut_side(shape, row, true, at, cut);
}

uint64_t tti_largest_flow(const struct tti_shape *given)
{
    struct tti_shape shape = *given;
    uint64_t most = 0;
    for (shape.rank = 0; shape.rank < shape.size; shape.rank++) {
        const uint64_t *row = shape.tables + (size_t)shape.rank * TTI_GIVEN * (size_t)shape.size;
        struct tti_side in = tti_side_of(&shape, row, false), out = tti_side_of(&shape, row, true);
        if (tti_side_most(&in) > most) most = tti_side_most(&in);
        if (tti_side_most(&out) > most) most = tti_side_most(&out);
    }
    return most;
}
