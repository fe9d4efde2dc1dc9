/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes prefixes of the tree over sources: after each source is pushed, the stack is folded without changing it.
 */
#include "collective/reduce/reduce_pass.h"

#include "collective/reduce/copy.h"

/* Folds the prefix that the stack holds, without changing the stack: two slots past it take turns. */
static void prefix(const struct tti_reduce_pass *pass, const struct tti_reduce_stack *stack, int divisor, size_t n,
                   void *target)
{
    const void *total = stack->entry[stack->depth - 1];
    for (int d = stack->depth - 2; d >= 0; d--) {
        void *out = slot(pass, pass->levels + (d & 1));
        combine(pass, out, stack->entry[d], total, n);
        total = out;
    }
    settle(pass, total, divisor, n, target);
}

static void write_prefix(const struct tti_reduce_pass *pass, const struct tti_reduce_stack *stack, int divisor,
                         size_t n, void *to)
{
    if (!pass->stream) {
        prefix(pass, stack, divisor, n, to);
        return;
    }
    void *staging = slot(pass, pass->levels + 2);
    prefix(pass, stack, divisor, n, staging);
    tti_stream_some(to, staging, n * pass->element_bytes);
}

static void scan_block(const struct tti_reduce_pass *pass, void *const *dsts, bool exclusive, size_t offset, size_t n)
{
    struct tti_reduce_stack stack;
    stack.depth = 0;
    stack.pushed = 0;
    for (int r = 0; r < pass->source_count; r++) {
        /* dsts[r] may be sources[r], so the source is copied before that is written. */
        void *kept = slot(pass, stack.depth);
        const void *entry = load(pass, r, offset, n, kept);
        if (entry != kept) memcpy(kept, entry, n * pass->element_bytes);
        if (exclusive && r > 0 && dsts[r]) write_prefix(pass, &stack, r, n, element_at(pass, dsts[r], offset));
        push(pass, &stack, kept, n);
        if (!exclusive && dsts[r]) write_prefix(pass, &stack, r + 1, n, element_at(pass, dsts[r], offset));
    }
}

/* Returns true if kernels can make each prefix from the sources themselves: these are few, and their elements are the
 * accumulators. The longest prefix is made first, since dsts[r] may be sources[r], which only longer prefixes read. */
static bool scans_directly(const struct tti_reduce_pass *pass)
{
    const struct tti_kernel_row *row = pass->row;
    if (pass->source_count > TTI_KERNEL_ARITY || row->load || row->store) return false;
    for (int s = 2; s <= pass->source_count; s++)
        if (!row->direct[s - 1]) return false;
    return true;
}

static void scan_directly(const struct tti_reduce_pass *pass, void *const *dsts, bool exclusive, size_t offset,
                          size_t n)
{
    const void *in[TTI_KERNEL_ARITY];
    for (int s = 0; s < pass->source_count; s++) in[s] = source_at(pass, s, offset);
    for (int r = pass->source_count - 1; r >= (exclusive ? 1 : 0); r--) {
        int sources = exclusive ? r : r + 1;
        if (!dsts[r]) continue;
        void *to = element_at(pass, dsts[r], offset);
        const void *made = sources == 1 ? in[0] : pass->stream ? pass->scratch : to;
        if (sources > 1) pass->row->direct[sources - 1]((void *)(uintptr_t)made, in, NULL, sources, n);
        if (pass->stream)
            tti_stream_some(to, made, n * pass->element_bytes);
        else if (made != to)
            memcpy(to, made, n * pass->element_bytes);
    }
}

void tti_scan(const struct tti_reducer *reducer, const void *const *sources, const double *factors, int source_count,
              void *const *dsts, bool exclusive, size_t count, bool stream)
{
    _Alignas(LINE_BYTES) unsigned char scratch[SCRATCH_BYTES];
    const struct tti_kernels *set = tti_kernels_now();
    struct tti_reduce_pass pass = {.reducer = reducer,
                                   .row = row_of(set, reducer),
                                   .sources = sources,
                                   .factors = reducer->code == TTI_REDUCE_SCALED_SUM ? factors : NULL,
                                   .source_count = source_count,
                                   .group = 1,
                                   .element_bytes = tutti_type_bytes(reducer->type),
                                   .stream = stream,
                                   .scratch = scratch};
    bool directly = scans_directly(&pass);
    if (directly)
        pass.block = BLOCK_BYTES / pass.element_bytes;
    else
        pass_plan(&pass, source_count, 3);
    for (size_t offset = 0; offset < count; offset += pass.block) {
        size_t n = count - offset < pass.block ? count - offset : pass.block;
        (directly ? scan_directly : scan_block)(&pass, dsts, exclusive, offset, n);
    }
    if (stream) tti_stream_end();
}
