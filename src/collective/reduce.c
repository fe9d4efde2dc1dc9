/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree over sources, block by block.
 *
 * A block is small enough that its accumulators stay in the first-level cache. The tree of any number of sources is a
 * binary counter: each new leaf is pushed, and as often as its number has trailing ones the two topmost entries are
 * folded into one; at the end the stack is folded from its top. That is T(lo..hi) of reduce.h: entry sizes are powers
 * of two that fall from bottom to top. Leaves are groups of four sources, which one kernel folds as T(4) does; only
 * the last group may be smaller.
 *
 * Invariant: every source's block is read before any destination's block is written, so destinations may be sources.
 */
#include "collective/reduce.h"

#include "collective/copy.h"
#include "collective/kernels.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

enum {
    LINE_BYTES = 64,
    BLOCK_BYTES = 4096,        /* of elements, where kernels need no accumulators in memory */
    STREAM_BLOCK_BYTES = 512,  /* the same past the caches: short turns of reading and writing are faster there */
    ACCUMULATOR_BYTES = 2048,  /* most of one accumulator block */
    SCRATCH_BYTES = 32 * 1024, /* all accumulator blocks of a pass, whatever the number of sources */
    LEVELS_MAX = 33            /* depth of the stack for INT_MAX sources */
};

/* ---- One pass -------------------------------------------------------------------------------------------------- */

/* What a pass over blocks keeps. Slots are blocks of accumulators in scratch. */
struct pass {
    const struct tti_reducer *reducer;
    const struct tti_kernel_row *row;
    const void *const *sources;
    const double *factors; /* NULL: not a scaled sum */
    int source_count;
    int group;  /* sources of one leaf */
    int levels; /* slots of the stack; those of leaves follow */
    size_t element_bytes;
    size_t slot_bytes;
    size_t block; /* most elements of a block */
    bool stream;
    unsigned char *scratch;
};

struct stack {
    const void *entry[LEVELS_MAX]; /* entry[d] is slot d, or a source itself */
    int depth;
    unsigned pushed;
};

/* A user's function has no kernels: elements are the accumulators, and combine() calls it. */
static const struct tti_kernel_row function_row;

static inline bool is_function(const struct pass *pass)
{
    return pass->reducer->code == TTI_REDUCE_FUNCTION;
}

static inline const struct tti_kernel_row *row_of(const struct tti_kernels *set, const struct tti_reducer *reducer)
{
    if (reducer->code == TTI_REDUCE_FUNCTION) return &function_row;
    int column = reducer->code == TTI_REDUCE_SCALED_SUM ? TTI_KERNEL_SCALED_SUM : reducer->code;
    return &set->rows[reducer->type][column];
}

static inline const void *source_at(const struct pass *pass, int source, size_t offset)
{
    return (const unsigned char *)pass->sources[source] + offset * pass->element_bytes;
}

static inline void *slot(const struct pass *pass, int index)
{
    return pass->scratch + (size_t)index * pass->slot_bytes;
}

/* Room for the stack that `leaves` leaves need and for `extra` slots more. */
static void pass_plan(struct pass *pass, int leaves, int extra)
{
    pass->levels = 2;
    for (int left = leaves; left > 1; left /= 2) pass->levels++;
    size_t room = SCRATCH_BYTES / (size_t)(pass->levels + extra);
    size_t accumulator_bytes = is_function(pass) ? pass->element_bytes : pass->row->accumulator_bytes;
    assert(accumulator_bytes >= pass->element_bytes); /* a pair that tti_reducer_init refuses has none */
    pass->slot_bytes = (room < ACCUMULATOR_BYTES ? room : ACCUMULATOR_BYTES) & ~(size_t)(LINE_BYTES - 1);
    pass->block = pass->slot_bytes / accumulator_bytes;
}

/* ---- The tree -------------------------------------------------------------------------------------------------- */

/* out = left (op) right; out may be left, and with kernels also right. */
static void combine(const struct pass *pass, void *out, const void *left, const void *right, size_t n)
{
    if (!is_function(pass)) {
        pass->row->fold[0](out, (const void *const[]){left, right}, NULL, 0, n);
        return;
    }
    if (out != left) memcpy(out, left, n * pass->element_bytes);
    pass->reducer->function(pass->reducer->context, out, right, n, pass->reducer->type);
}

/* One source's elements as accumulators: in `into`, or where they lie if that will do. */
static const void *load_from(const struct pass *pass, const void *from, const double *factor, size_t n, void *into)
{
    if (pass->row->load) {
        pass->row->load(into, &from, factor, 0, n);
        return into;
    }
    if (is_function(pass) && (uintptr_t)from % pass->element_bytes != 0) {
        memcpy(into, from, n * pass->element_bytes); /* users' code may count on alignment */
        return into;
    }
    return from;
}

static const void *load(const struct pass *pass, int source, size_t offset, size_t n, void *into)
{
    const double *factor = pass->factors ? pass->factors + source : NULL;
    return load_from(pass, source_at(pass, source, offset), factor, n, into);
}

/* T of sources [first, first + count), count <= group: in `out`, or where the source lies. */
static const void *leaf(const struct pass *pass, int first, int count, size_t offset, size_t n, void *out)
{
    if (count == 1) return load(pass, first, offset, n, out);
    const void *in[TTI_KERNEL_ARITY];
    for (int k = 0; k < count; k++) in[k] = load(pass, first + k, offset, n, slot(pass, pass->levels + k));
    pass->row->fold[count - 2](out, in, NULL, 0, n);
    return out;
}

static void push(const struct pass *pass, struct stack *stack, const void *entry, size_t n)
{
    stack->entry[stack->depth++] = entry;
    for (unsigned carry = stack->pushed++; carry & 1; carry >>= 1) {
        int left = stack->depth - 2;
        combine(pass, slot(pass, left), stack->entry[left], stack->entry[left + 1], n);
        stack->entry[left] = slot(pass, left);
        stack->depth--;
    }
}

/* Accumulators -> elements. */
static void settle(const struct pass *pass, const void *total, int divisor, size_t n, void *target)
{
    if (pass->row->store)
        pass->row->store(target, &total, NULL, divisor, n);
    else if (total != target)
        memcpy(target, total, n * pass->element_bytes);
}

static void tree(const struct pass *pass, size_t offset, size_t n, void *target)
{
    /* The last step may write elements at once, unless they are not what it computes; a user's function works in
     * place on its left operand, and the target may be its right one. */
    bool last_writes = !pass->row->store && !is_function(pass);
    int last = (pass->source_count - 1) / pass->group * pass->group;
    struct stack stack;
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

/* All sources at once, in registers; they are at most four. */
static void direct(const struct pass *pass, tti_kernel *kernel, size_t offset, size_t n, void *target)
{
    const void *in[TTI_KERNEL_ARITY];
    for (int k = 0; k < pass->source_count; k++) in[k] = source_at(pass, k, offset);
    kernel(target, in, pass->factors, pass->source_count, n);
}

/* ---- Destinations ---------------------------------------------------------------------------------------------- */

static inline void *element_at(const struct pass *pass, void *dst, size_t offset)
{
    return (unsigned char *)dst + offset * pass->element_bytes;
}

/* Elements up to where dst has whole lines: blocks that begin there are streamed without partial lines. */
static size_t lead(const struct pass *pass, const void *dst)
{
    size_t bytes = -(uintptr_t)dst % LINE_BYTES;
    return bytes % pass->element_bytes == 0 ? bytes / pass->element_bytes : 0;
}

/* Computes each block once and writes it to every destination. */
static void run_blocks(const struct pass *pass, tti_kernel *kernel, void *staging, void *const *dsts, int dst_count,
                       size_t count)
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

static void reduce_in_blocks(struct pass *pass, tti_kernel *kernel, void *const *dsts, int dst_count, size_t count)
{
    _Alignas(LINE_BYTES) unsigned char scratch[SCRATCH_BYTES]; /* left as it is: most of it is often not needed */
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

/* Whether all destinations have whole lines at the same elements, so that one kernel can write to them all. */
static bool lines_agree(const struct pass *pass, void *const *dsts, int dst_count)
{
    uintptr_t differ = 0;
    for (int k = 1; k < dst_count; k++) differ |= (uintptr_t)dsts[k] ^ (uintptr_t)dsts[0];
    return differ % LINE_BYTES == 0 && (uintptr_t)dsts[0] % pass->element_bytes == 0;
}

/* Less than a line, at either end. */
static void reduce_edge(const struct pass *pass, void *const *dsts, int dst_count, size_t offset, size_t n)
{
    const void *in[TTI_KERNEL_WIDE];
    void *out[TTI_KERNEL_WIDE];
    struct pass edge = *pass;
    tti_kernel *kernel = pass->source_count <= TTI_KERNEL_ARITY ? pass->row->direct[pass->source_count - 1] : NULL;
    for (int s = 0; s < pass->source_count; s++) in[s] = source_at(pass, s, offset);
    for (int k = 0; k < dst_count; k++) out[k] = element_at(pass, dsts[k], offset);
    edge.sources = in;
    edge.stream = false;
    if (n > 0) reduce_in_blocks(&edge, kernel, out, dst_count, n);
}

/* One kernel for the lines that destinations have whole, another for what is before and after them. */
static void reduce_to_all(const struct pass *pass, tti_to_all_kernel *kernel, void *const *dsts, int dst_count,
                          size_t count)
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

/* The kernel that writes to all destinations at once; NULL: there is none, or in blocks it is faster. */
static tti_to_all_kernel *at_once(const struct pass *pass, void *const *dsts, int dst_count)
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
    struct pass pass = {.reducer = reducer,
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

/* ---- Scans ----------------------------------------------------------------------------------------------------- */

/* The prefix that the stack holds, without changing it: two slots past the stack take turns. */
static void prefix(const struct pass *pass, const struct stack *stack, int divisor, size_t n, void *target)
{
    const void *total = stack->entry[stack->depth - 1];
    for (int d = stack->depth - 2; d >= 0; d--) {
        void *out = slot(pass, pass->levels + (d & 1));
        combine(pass, out, stack->entry[d], total, n);
        total = out;
    }
    settle(pass, total, divisor, n, target);
}

static void write_prefix(const struct pass *pass, const struct stack *stack, int divisor, size_t n, void *to)
{
    if (!pass->stream) {
        prefix(pass, stack, divisor, n, to);
        return;
    }
    void *staging = slot(pass, pass->levels + 2);
    prefix(pass, stack, divisor, n, staging);
    tti_stream_some(to, staging, n * pass->element_bytes);
}

static void scan_block(const struct pass *pass, void *const *dsts, bool exclusive, size_t offset, size_t n)
{
    struct stack stack;
    stack.depth = 0;
    stack.pushed = 0;
    for (int r = 0; r < pass->source_count; r++) {
        /* dsts[r] may be sources[r]: the source must be out of the way before that is written. */
        void *kept = slot(pass, stack.depth);
        const void *entry = load(pass, r, offset, n, kept);
        if (entry != kept) memcpy(kept, entry, n * pass->element_bytes);
        if (exclusive && r > 0 && dsts[r]) write_prefix(pass, &stack, r, n, element_at(pass, dsts[r], offset));
        push(pass, &stack, kept, n);
        if (!exclusive && dsts[r]) write_prefix(pass, &stack, r + 1, n, element_at(pass, dsts[r], offset));
    }
}

/* Of few sources whose elements are the accumulators, kernels make each prefix from the sources themselves: the longest
 * first, since dsts[r] may be sources[r], which only longer prefixes read. */
static bool scans_directly(const struct pass *pass)
{
    const struct tti_kernel_row *row = pass->row;
    if (pass->source_count > TTI_KERNEL_ARITY || row->load || row->store) return false;
    for (int s = 2; s <= pass->source_count; s++)
        if (!row->direct[s - 1]) return false;
    return true;
}

static void scan_directly(const struct pass *pass, void *const *dsts, bool exclusive, size_t offset, size_t n)
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
    struct pass pass = {.reducer = reducer,
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

/* ---- Folds of parts -------------------------------------------------------------------------------------------- */

size_t tti_accumulator_bytes(const struct tti_reducer *reducer)
{
    if (reducer->code == TTI_REDUCE_FUNCTION) return tutti_type_bytes(reducer->type);
    return row_of(tti_kernels_now(), reducer)->accumulator_bytes;
}

/* What the entries of the stack stand for. Two neighbours are siblings when they have as many ranks and lie in one node of
 * twice as many; what is left over at the end is folded from the top, as in a tree of leaves. */
struct span {
    int first, ranks;
};

static bool siblings(struct span left, struct span right)
{
    return left.ranks == right.ranks && left.first % (2 * left.ranks) == 0;
}

/* How many sources from here one kernel folds as the tree does: 4 or 1. */
static int quad(const struct tti_fold_source *sources, int left)
{
    for (int k = 1; k < TTI_KERNEL_ARITY; k++)
        if (left < TTI_KERNEL_ARITY || sources[k].ranks != sources[0].ranks) return 1;
    return sources[0].first % (TTI_KERNEL_ARITY * sources[0].ranks) == 0 ? TTI_KERNEL_ARITY : 1;
}

/* A source's accumulators at `offset`: where they lie, or in `into`. */
static const void *part_at(const struct pass *pass, const struct tti_fold_source *source, size_t offset, size_t n,
                           void *into)
{
    const unsigned char *data = source->data;
    if (source->partial) return data + offset * tti_accumulator_bytes(pass->reducer);
    return load_from(pass, data + offset * pass->element_bytes, &source->factor, n, into);
}

/* The next one or four sources as one entry, which is at `depth` of the stack. */
static const void *next_entry(const struct pass *pass, const struct tti_fold_source *sources, int i, int count,
                              int depth, size_t offset, size_t n)
{
    if (count == 1) return part_at(pass, &sources[i], offset, n, slot(pass, depth));
    const void *in[TTI_KERNEL_ARITY];
    for (int k = 0; k < count; k++) in[k] = part_at(pass, &sources[i + k], offset, n, slot(pass, pass->levels + k));
    pass->row->fold[count - 2](slot(pass, depth), in, NULL, 0, n);
    return slot(pass, depth);
}

static const void *fold_block(const struct pass *pass, const struct tti_fold_source *sources, size_t offset, size_t n)
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

/* Blocks of accumulators, through scratch. */
static void fold_at_length(struct pass *pass, const struct tti_fold_source *sources, int divisor, void *dst,
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

/* One kernel over everything, where accumulators need not be made and the result is what it computes. */
static bool fold_at_once(const struct pass *pass, const struct tti_fold_source *sources, int divisor, void *dst,
                         size_t count)
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

/* All leaves of a whole tree: what tti_reduce is for. */
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
    struct pass pass = {.reducer = reducer,
                        .row = row_of(set, reducer),
                        .source_count = source_count,
                        .element_bytes = tutti_type_bytes(reducer->type)};
    if (!fold_at_once(&pass, sources, divisor, dst, count)) fold_at_length(&pass, sources, divisor, dst, count);
}
