/* SPDX-License-Identifier: Apache-2.0
 *
 * Folds the tree over sources, block by block (reduce_pass.h). Leaves are groups of four sources, which one kernel
 * folds as T(4) does; only the last group may be smaller.
 *
 * Invariant: every source's block is read before any destination's block is written, so destinations may be sources.
 */
#include "collective/reduce/reduce_pass.h"

#include "collective/reduce/copy.h"

/* ---- The tree -------------------------------------------------------------------------------------------------- */

/* Returns T of sources [first, first + count), count <= group: in `out`, or in the source's own memory. */
static inline const void *leaf(const struct tti_reduce_pass *pass, int first, int count, size_t offset, size_t n,
                               void *out)
{
    if (count == 1) return load(pass, first, offset, n, out);
    const void *in[TTI_KERNEL_ARITY];
    for (int k = 0; k < count; k++) in[k] = load(pass, first + k, offset, n, slot(pass, pass->levels + k));
    pass->row->fold[count - 2](out, in, NULL, 0, n);
    return out;
}

static void tree(const struct tti_reduce_pass *pass, size_t offset, size_t n, void *target)
{
    /* The last step may write elements at once, unless its results are accumulators; a user's function works in place
     * on its left operand, and the target may be its right one. */
    bool last_writes = !pass->row->store && !is_function(pass);
    int last = (pass->source_count - 1) / pass->group * pass->group;
    struct tti_reduce_stack stack;
    stack.depth = 0;
    stack.pushed = 0;
    for (int first = 0; first < last; first += pass->group)
        push(pass, &stack, leaf(pass, first, pass->group, offset, n, slot(pass, stack.depth)), n);
    void *out = last == 0 && last_writes ? target : slot(pass, stack.depth);
    const void *total = leaf(pass, last, pass->source_count - last, offset, n, out);
    while (stack.depth > 0) {
        stack.depth--;
        out = stack.depth == 0 && last_writes ? target : slot(pass, stack.depth);
        combine(pass, out, stack.entry[stack.depth], total, n);
        total = out;
    }
    settle(pass, total, pass->source_count, n, target);
}

/* Folds all sources at once, in registers; they are at most four. */
static void direct(const struct tti_reduce_pass *pass, tti_kernel *kernel, size_t offset, size_t n, void *target)
{
    const void *in[TTI_KERNEL_ARITY];
    for (int k = 0; k < pass->source_count; k++) in[k] = source_at(pass, k, offset);
    kernel(target, in, pass->factors, pass->source_count, n);
}

/* ---- Destinations ---------------------------------------------------------------------------------------------- */

/* Returns the elements before the first whole line of dst: blocks that begin there are streamed without partial
 * lines. */
static size_t lead(const struct tti_reduce_pass *pass, const void *dst)
{
    size_t bytes = -(uintptr_t)dst % LINE_BYTES;
    return bytes % pass->element_bytes == 0 ? bytes / pass->element_bytes : 0;
}

/* Computes each block once and writes it to every destination. */
static void run_blocks(const struct tti_reduce_pass *pass, tti_kernel *kernel, void *staging, void *const *dsts,
                       int dst_count, size_t count)
{
    size_t end = pass->stream ? lead(pass, dsts[0]) : 0;
    for (size_t offset = 0; offset < count; offset = end, end = 0) {
        if (end == 0 || end > offset + pass->block) end = offset + pass->block;
        if (end > count) end = count;
        size_t n = end - offset;
        void *target = pass->stream ? staging : element_at(pass, dsts[0], offset);
        if (kernel)
            direct(pass, kernel, offset, n, target);
        else
            tree(pass, offset, n, target);
        for (int k = pass->stream ? 0 : 1; k < dst_count; k++) {
            void *to = element_at(pass, dsts[k], offset);
            if (pass->stream)
                tti_stream_some(to, target, n * pass->element_bytes);
            else
                memcpy(to, target, n * pass->element_bytes);
        }
    }
    if (pass->stream) tti_stream_end();
}

static void reduce_in_blocks(struct tti_reduce_pass *pass, tti_kernel *kernel, void *const *dsts, int dst_count,
                             size_t count)
{
    _Alignas(LINE_BYTES) unsigned char scratch[SCRATCH_BYTES]; /* not initialised: most of it is often not needed */
    void *staging = scratch;
    pass->scratch = scratch;
    if (kernel) {
        pass->block = (pass->stream ? STREAM_BLOCK_BYTES : BLOCK_BYTES) / pass->element_bytes;
    } else {
        pass->group = is_function(pass) ? 1 : TTI_KERNEL_ARITY;
        pass_plan(pass, (pass->source_count - 1) / pass->group + 1, TTI_KERNEL_ARITY + 1);
        staging = slot(pass, pass->levels + TTI_KERNEL_ARITY);
    }
    run_blocks(pass, kernel, staging, dsts, dst_count, count);
}

/* Returns true if whole lines begin at the same elements of all destinations, so that one kernel can write to them
 * all. */
static bool lines_agree(const struct tti_reduce_pass *pass, void *const *dsts, int dst_count)
{
    uintptr_t differ = 0;
    for (int k = 1; k < dst_count; k++) differ |= (uintptr_t)dsts[k] ^ (uintptr_t)dsts[0];
    return differ % LINE_BYTES == 0 && (uintptr_t)dsts[0] % pass->element_bytes == 0;
}

/* Reduces less than a line, at either end. */
static void reduce_edge(const struct tti_reduce_pass *pass, void *const *dsts, int dst_count, size_t offset, size_t n)
{
    const void *in[TTI_KERNEL_WIDE];
    void *out[TTI_KERNEL_WIDE];
    struct tti_reduce_pass edge = *pass;
    tti_kernel *kernel = pass->source_count <= TTI_KERNEL_ARITY ? pass->row->direct[pass->source_count - 1] : NULL;
    for (int s = 0; s < pass->source_count; s++) in[s] = source_at(pass, s, offset);
    for (int k = 0; k < dst_count; k++) out[k] = element_at(pass, dsts[k], offset);
    edge.sources = in;
    edge.stream = false;
    if (n > 0) reduce_in_blocks(&edge, kernel, out, dst_count, n);
}

/* Runs one kernel for the lines that destinations have whole, and another for the elements before and after them. */
static void reduce_to_all(const struct tti_reduce_pass *pass, tti_to_all_kernel *kernel, void *const *dsts,
                          int dst_count, size_t count)
{
    size_t per_line = LINE_BYTES / pass->element_bytes;
    size_t head = lead(pass, dsts[0]);
    if (head > count) head = count;
    size_t body = (count - head) / per_line * per_line, tail = head + body;
    const void *in[TTI_KERNEL_WIDE];
    void *out[TTI_KERNEL_WIDE];
    for (int s = 0; s < pass->source_count; s++) in[s] = source_at(pass, s, head);
    for (int k = 0; k < dst_count; k++) out[k] = element_at(pass, dsts[k], head);
    reduce_edge(pass, dsts, dst_count, 0, head);
    kernel(out, dst_count, in, pass->source_count, body, pass->stream);
    reduce_edge(pass, dsts, dst_count, tail, count - tail);
    if (pass->stream) tti_stream_end();
}

/* Returns the kernel that writes to all destinations at once; NULL: there is none, or reducing in blocks is faster. */
static tti_to_all_kernel *at_once(const struct tti_reduce_pass *pass, void *const *dsts, int dst_count)
{
    bool few = pass->source_count <= TTI_KERNEL_ARITY &&
               (dst_count <= 2 || (pass->stream && dst_count <= TTI_KERNEL_ARITY));
    tti_to_all_kernel *kernel = pass->source_count <= TTI_KERNEL_ARITY ? pass->row->to_all[pass->source_count - 1]
                                                                       : pass->row->wide;
    if (kernel == NULL || pass->source_count > TTI_KERNEL_WIDE || dst_count > TTI_KERNEL_WIDE) return NULL;
    if (!lines_agree(pass, dsts, dst_count)) return NULL;
    return few || tti_lie_apart(pass->sources, pass->source_count, dsts, dst_count) ? kernel : NULL;
}

static void reduce_at_length(const struct tti_reducer *reducer, const struct tti_kernels *set,
                             const void *const *sources, const double *factors, int source_count, void *const *dsts,
                             int dst_count, size_t count, bool stream)
{
    struct tti_reduce_pass pass = {.reducer = reducer,
                                   .row = row_of(set, reducer),
                                   .sources = sources,
                                   .factors = factors,
                                   .source_count = source_count,
                                   .element_bytes = tutti_type_bytes(reducer->type),
                                   .stream = stream};
    if (source_count == 1 && !pass.row->load && !pass.row->store) {
        for (int k = 0; k < dst_count; k++)
            tti_copy(dsts[k], sources[0], count * pass.element_bytes, stream ? TTI_STREAMED : TTI_CACHED);
        return;
    }
    tti_to_all_kernel *to_all = at_once(&pass, dsts, dst_count);
    if (to_all != NULL) {
        reduce_to_all(&pass, to_all, dsts, dst_count, count);
        return;
    }
    tti_kernel *kernel = source_count <= TTI_KERNEL_ARITY ? pass.row->direct[source_count - 1] : NULL;
    reduce_in_blocks(&pass, kernel, dsts, dst_count, count);
}

void tti_reduce(const struct tti_reducer *reducer, const void *const *sources, const double *factors, int source_count,
                void *const *dsts, int dst_count, size_t count, bool stream)
{
    assert(source_count >= 1 && dst_count >= 1);
    if (count == 0) return;
    const struct tti_kernels *set = tti_kernels_now();
    const struct tti_kernel_row *row = row_of(set, reducer);
    if (reducer->code != TTI_REDUCE_SCALED_SUM) factors = NULL;
    /* Most calls are short, on few sources: nothing is set up for them. */
    if (source_count <= TTI_KERNEL_ARITY && row->direct[source_count - 1] && !stream) {
        size_t bytes = count * tutti_type_bytes(reducer->type);
        if (dst_count == 1 || bytes <= BLOCK_BYTES) {
            row->direct[source_count - 1](dsts[0], sources, factors, source_count, count);
            for (int k = 1; k < dst_count; k++) memcpy(dsts[k], dsts[0], bytes);
            return;
        }
    }
    reduce_at_length(reducer, set, sources, factors, source_count, dsts, dst_count, count, stream);
}
