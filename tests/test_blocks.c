/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Blocks and who owns them: each element one owner, bounds where blocks end, parts of one size give or take a block. The
 * ledger against formulas written by themselves.
 */
#include "check.h"
#include "train/blocks.h"
#include "train/ledger.h"
#include "train/shuffle.h"

#include <stdlib.h>

/* ---- Blocks ---------------------------------------------------------------------------------------------------- */

enum { STRETCHES = 12, MOST = 200000 };

static bool bound[MOST + 1]; /* where blocks end, element by element */

static size_t mark_bounds(const size_t *starts, size_t count)
{
    size_t blocks = 0;
    for (size_t e = 0; e <= MOST; e++) bound[e] = false;
    for (size_t i = 0; i < count; i++) {
        size_t in_block = 0;
        for (size_t e = starts[i]; e < starts[i + 1]; e++) {
            if (in_block == 0) bound[e] = true, blocks++;
            in_block = in_block + 1 == 4096 ? 0 : in_block + 1;
        }
    }
    bound[starts[count]] = true;
    return blocks;
}

static size_t nearest(size_t element, size_t end)
{
    for (size_t away = 0;; away++) {
        if (away <= element && bound[element - away]) return element - away;
        if (element + away <= end && bound[element + away]) return element + away;
    }
}

static void check_owners(const struct tti_blocks *blocks, struct tti_span all, int size)
{
    size_t at = all.lo, even = (all.hi - all.lo) / (size_t)size;
    for (int r = 0; r < size; r++) {
        struct tti_span owned = tti_blocks_owned(blocks, all, r, size);
        CHECK_THAT(owned.lo == at && owned.hi >= owned.lo && bound[owned.lo] && bound[owned.hi],
                   "rank %d of %d: %zu to %zu, behind %zu", r, size, owned.lo, owned.hi, at);
        CHECK_THAT(owned.hi - owned.lo <= even + 4097 && owned.hi - owned.lo + 4097 > even,
                   "rank %d of %d has %zu of %zu", r, size, owned.hi - owned.lo, all.hi - all.lo);
        at = owned.hi;
    }
    CHECK_THAT(at == all.hi, "%d ranks own up to %zu of %zu", size, at, all.hi);
}

static void check_stretches(uint64_t seed)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 8192, 16, 20000, 50257, 3};
    size_t starts[STRETCHES + 1] = {0}, count = tti_draw(seed, 0) % (STRETCHES + 1);
    for (size_t i = 0; i < count; i++) {
        size_t length = sizes[tti_draw(seed, i + 1) % 10];
        starts[i + 1] = starts[i] + (starts[i] + length > MOST ? 0 : length);
    }
    struct tti_blocks blocks = {starts, count};
    size_t end = starts[count], made = mark_bounds(starts, count), before = 0;
    CHECK(tti_blocks_before(&blocks, end) == made);
    for (size_t e = 0; e <= end; e += 1 + tti_draw(seed, e) % 500) {
        CHECK_THAT(tti_blocks_nearest(&blocks, e) == nearest(e, end), "seed %llu, %zu: %zu, not %zu",
                   (unsigned long long)seed, e, tti_blocks_nearest(&blocks, e), nearest(e, end));
    }
    for (size_t e = 0; e < end; e++) {
        if (!bound[e]) continue;
        CHECK(tti_blocks_before(&blocks, e) == before);
        before++;
    }
    for (int size = 1; size <= 9; size++) {
        check_owners(&blocks, (struct tti_span){0, end}, size);
        if (count > 2) check_owners(&blocks, (struct tti_span){starts[1], starts[count - 1]}, size);
    }
}

/* ---- The ledger ------------------------------------------------------------------------------------------------ */

/* Bytes of Adam per parameter on each rank and per parameter shared by all ranks, as papers give them. */
static void check_formula(int zero, bool bf16, double each, double shared)
{
    const uint64_t elements = 124439808;
    for (uint64_t ranks = 1; ranks <= 16; ranks *= 2) {
        struct tti_ledger_sizes sizes = {
            .elements = elements, .owned = elements / ranks, .states = 2, .zero = zero, .bf16 = bf16};
        struct tti_ledger ledger = tti_ledger_of(&sizes);
        double bytes = each * (double)elements + shared * (double)elements / (double)ranks;
        CHECK_THAT((double)tti_ledger_sum(&ledger) == bytes, "zero %d, %d: %llu bytes on %llu ranks, not %.0f", zero,
                   bf16, (unsigned long long)tti_ledger_sum(&ledger), (unsigned long long)ranks, bytes);
    }
}

/* What ranks own, unevenly, makes up the whole of what is shared. */
static void check_sums(void)
{
    const size_t starts[] = {0, 10000, 10007, 65536};
    const struct tti_blocks blocks = {starts, 3};
    for (int size = 1; size < 7; size++) {
        uint64_t states = 0, gradients = 0;
        for (int r = 0; r < size; r++) {
            struct tti_span owned = tti_blocks_owned(&blocks, (struct tti_span){0, 65536}, r, size);
            struct tti_ledger_sizes sizes = {
                .elements = 65536, .owned = owned.hi - owned.lo, .states = 2, .zero = TTI_ZERO_GRADIENTS};
            struct tti_ledger ledger = tti_ledger_of(&sizes);
            CHECK(ledger.parameters == UINT64_C(4) * 65536 && ledger.masters == 0);
            states += ledger.states;
            gradients += ledger.gradients;
        }
        CHECK(states == UINT64_C(8) * 65536 && gradients == UINT64_C(4) * 65536);
    }
}

int main(void)
{
    for (uint64_t seed = 0; seed < 60; seed++) check_stretches(seed);
    check_formula(TTI_ZERO_NONE, false, 16, 0);
    check_formula(TTI_ZERO_STATE, false, 8, 8);
    check_formula(TTI_ZERO_GRADIENTS, false, 4, 12);
    check_formula(TTI_ZERO_PARAMETERS, false, 0, 16);
    check_formula(TTI_ZERO_NONE, true, 18, 0);
    check_formula(TTI_ZERO_STATE, true, 6, 12);
    check_formula(TTI_ZERO_GRADIENTS, true, 2, 16);
    check_formula(TTI_ZERO_PARAMETERS, true, 0, 18);
    check_sums();
    return check_end();
}
