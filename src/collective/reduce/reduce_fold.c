/* SPDX-License-Identifier: Apache-2.0
 *
 * Folds the tree over parts: some sources are leaves, others subtrees that other ranks have folded.
 */
#include "collective/reduce/reduce_pass.h"

size_t tti_accumulator_bytes(const struct tti_reducer *reducer)
{
    if (reducer->code == TTI_REDUCE_FUNCTION) return tutti_type_bytes(reducer->type);
    return row_of(tti_kernels_now(), reducer)->accumulator_bytes;
}

/* The ranks of an entry of the stack. Two neighbours are siblings if they have as many ranks and lie in one node of
 * twice as many; the entries left at the end are folded from the top, as in a tree of leaves. */
struct span {
    int first, ranks;
};

static bool siblings(struct span left, struct span right)
{
    return left.ranks == right.ranks && left.first % (2 * left.ranks) == 0;
}

/* Returns how many sources from here on one kernel folds as the tree does: 4 or 1. */
static int quad(const struct tti_fold_source *sources, int left)
{
    for (int k = 1; k < TTI_KERNEL_ARITY; k++)
        if (left < TTI_KERNEL_ARITY || sources[k].ranks != sources[0].ranks) return 1;
    return sources[0].first % (TTI_KERNEL_ARITY * sources[0].ranks) == 0 ? TTI_KERNEL_ARITY : 1;
}

/* Returns a source's accumulators at `offset`: in its own memory, or in `into`. */
static const void *part_at(const struct tti_reduce_pass *pass, const struct tti_fold_source *source, size_t offset,
                           size_t n, void *into)
{
    const unsigned char *data = source->data;
    if (source->partial) return data + offset * tti_accumulator_bytes(pass->reducer);
    return load_from(pass, data + offset * pass->element_bytes, &source->factor, n, into);
}

/* Returns the next one or four sources as one entry, which is at `depth` of the stack. */
static const void *next_entry(const struct tti_reduce_pass *pass, const struct tti_fold_source *sources, int i,
                              int count, int depth, size_t offset, size_t n)
{
    if (count == 1) return part_at(pass, &sources[i], offset, n, slot(pass, depth));
    const void *in[TTI_KERNEL_ARITY];
    for (int k = 0; k < count; k++) in[k] = part_at(pass, &sources[i + k], offset, n, slot(pass, pass->levels + k));
    pass->row->fold[count - 2](slot(pass, depth), in, NULL, 0, n);
    return slot(pass, depth);
}

static const void *fold_block(const struct tti_reduce_pass *pass, const struct tti_fold_source *sources, size_t offset,
                              size_t n)
{
    const void *entry[LEVELS_MAX];
    struct span span[LEVELS_MAX];
    int depth = 0, step;
    for (int i = 0; i < pass->source_count; i += step) {
        step = is_function(pass) ? 1 : quad(&sources[i], pass->source_count - i);
        span[depth] = (struct span){sources[i].first, sources[i].ranks * step};
        entry[depth] = next_entry(pass, sources, i, step, depth, offset, n);
        depth++;
        bool last = i + step == pass->source_count;
        while (depth > 1 && (last || siblings(span[depth - 2], span[depth - 1]))) {
            depth--;
            combine(pass, slot(pass, depth - 1), entry[depth - 1], entry[depth], n);
            entry[depth - 1] = slot(pass, depth - 1);
            span[depth - 1].ranks += span[depth].ranks;
        }
    }
    return entry[0];
}

/* Folds blocks of accumulators, through scratch. */
static void fold_at_length(struct tti_reduce_pass *pass, const struct tti_fold_source *sources, int divisor, void *dst,
                           size_t count)
{
    _Alignas(LINE_BYTES) unsigned char scratch[SCRATCH_BYTES];
    const struct tti_fold_source *last = &sources[pass->source_count - 1];
    pass->scratch = scratch;
    pass_plan(pass, last->first + last->ranks, TTI_KERNEL_ARITY);
    size_t accumulator_bytes = tti_accumulator_bytes(pass->reducer);
    for (size_t offset = 0; offset < count; offset += pass->block) {
        size_t n = count - offset < pass->block ? count - offset : pass->block;
        const void *total = fold_block(pass, sources, offset, n);
        if (divisor > 0)
            settle(pass, total, divisor, n, element_at(pass, dst, offset));
        else
            memmove((unsigned char *)dst + offset * accumulator_bytes, total, n * accumulator_bytes);
    }
}

/* Runs one kernel over everything, if no accumulators must be made and the kernel computes the result itself; else
 * returns false. */
static bool fold_at_once(const struct tti_reduce_pass *pass, const struct tti_fold_source *sources, int divisor,
                         void *dst, size_t count)
{
    int parts = pass->source_count;
    bool tree_of_four = parts == TTI_KERNEL_ARITY && quad(sources, parts) == parts;
    if (is_function(pass) || (parts != 2 && !tree_of_four)) return false;
    if (divisor > 0 && pass->row->store != NULL) return false;
    const void *in[TTI_KERNEL_ARITY];
    for (int k = 0; k < parts; k++) {
        if (!sources[k].partial && pass->row->load != NULL) return false;
        in[k] = sources[k].data;
    }
    pass->row->fold[parts - 2](dst, in, NULL, 0, count);
    return true;
}

enum { FEW_LEAVES = 64 };

/* Folds all leaves of a whole tree with tti_reduce; returns false for other sources. */
static bool fold_leaves(const struct tti_reducer *reducer, const struct tti_fold_source *sources, int source_count,
                        int divisor, void *dst, size_t count)
{
    const void *leaves[FEW_LEAVES];
    double factors[FEW_LEAVES];
    if (divisor != source_count || source_count > FEW_LEAVES || sources[0].first != 0) return false;
    for (int k = 0; k < source_count; k++) {
        if (sources[k].partial) return false;
        leaves[k] = sources[k].data;
        factors[k] = sources[k].factor;
    }
    tti_reduce(reducer, leaves, factors, source_count, &dst, 1, count, false);
    return true;
}

void tti_fold(const struct tti_reducer *reducer, const struct tti_fold_source *sources, int source_count, int divisor,
              void *dst, size_t count)
{
    assert(source_count >= 1);
    if (count == 0 || fold_leaves(reducer, sources, source_count, divisor, dst, count)) return;
    const struct tti_kernels *set = tti_kernels_now();
    struct tti_reduce_pass pass = {.reducer = reducer,
                                   .row = row_of(set, reducer),
                                   .source_count = source_count,
                                   .element_bytes = tutti_type_bytes(reducer->type)};
    if (!fold_at_once(&pass, sources, divisor, dst, count)) fold_at_length(&pass, sources, divisor, dst, count);
}
