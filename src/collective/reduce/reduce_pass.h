/* SPDX-License-Identifier: Apache-2.0
 *
 * What reductions, scans and folds have in common: a pass over blocks, and the stack on which a tree is folded.
 *
 * A block is small enough that its accumulators stay in the first-level cache. The tree of any number of sources is a
 * binary counter: each new leaf is pushed, and as often as its number has trailing ones the two topmost entries are
 * folded into one; at the end the stack is folded from its top. That is T(lo..hi) of reduce.h: entry sizes are powers
 * of two that fall from bottom to top.
 */
#ifndef TTI_COLLECTIVE_REDUCE_PASS_H
#define TTI_COLLECTIVE_REDUCE_PASS_H

#include "collective/reduce/reduce.h"
#include "collective/reduce/reduce_kernels.h"
#include <assert.h>
#include <stdint.h>
#include <string.h>

enum {
    LINE_BYTES = 64,
    BLOCK_BYTES = 4096,        /* of elements, if kernels need no accumulators in memory */
    STREAM_BLOCK_BYTES = 512,  /* the same for streaming: short turns of reading and writing are faster there */
    ACCUMULATOR_BYTES = 2048,  /* most of one accumulator block */
    SCRATCH_BYTES = 32 * 1024, /* all accumulator blocks of a pass, whatever the number of sources */
    LEVELS_MAX = 33            /* depth of the stack for INT_MAX sources */
};

/* The state of a pass over blocks. Slots are blocks of accumulators in scratch. */
struct tti_reduce_pass {
    const struct tti_reducer *reducer;
    const struct tti_kernel_row *row;
    const void *const *sources;
    const double *factors; /* NULL: not a scaled sum */
    int source_count;
    int group;  /* sources of one leaf */
    int levels; /* slots of the stack; the slots of leaves follow */
    size_t element_bytes;
    size_t slot_bytes;
    size_t block; /* most elements of a block */
    bool stream;
    unsigned char *scratch;
};

struct tti_reduce_stack {
    const void *entry[LEVELS_MAX]; /* entry[d] is slot d, or a source itself */
    int depth;
    unsigned pushed;
};

/* A user's function has no kernels: elements are the accumulators, and combine() calls it. */
static const struct tti_kernel_row function_row;

static inline bool is_function(const struct tti_reduce_pass *pass)
{
    return pass->reducer->code == TTI_REDUCE_FUNCTION;
}

static inline const struct tti_kernel_row *row_of(const struct tti_kernels *set, const struct tti_reducer *reducer)
{
    if (reducer->code == TTI_REDUCE_FUNCTION) return &function_row;
    int column = reducer->code == TTI_REDUCE_SCALED_SUM ? TTI_KERNEL_SCALED_SUM : reducer->code;
    return &set->rows[reducer->type][column];
}

static inline const void *source_at(const struct tti_reduce_pass *pass, int source, size_t offset)
{
    return (const unsigned char *)pass->sources[source] + offset * pass->element_bytes;
}

static inline void *slot(const struct tti_reduce_pass *pass, int index)
{
    return pass->scratch + (size_t)index * pass->slot_bytes;
}

/* Sets sizes so that there is room for the stack of `leaves` leaves and for `extra` more slots. */
static inline void pass_plan(struct tti_reduce_pass *pass, int leaves, int extra)
{
    pass->levels = 2;
    for (int left = leaves; left > 1; left /= 2) pass->levels++;
    size_t room = SCRATCH_BYTES / (size_t)(pass->levels + extra);
    size_t accumulator_bytes = is_function(pass) ? pass->element_bytes : pass->row->accumulator_bytes;
    assert(accumulator_bytes >= pass->element_bytes); /* pairs that tti_reducer_init refuses have 0 */
    pass->slot_bytes = (room < ACCUMULATOR_BYTES ? room : ACCUMULATOR_BYTES) & ~(size_t)(LINE_BYTES - 1);
    pass->block = pass->slot_bytes / accumulator_bytes;
}

static inline void *element_at(const struct tti_reduce_pass *pass, void *dst, size_t offset)
{
    return (unsigned char *)dst + offset * pass->element_bytes;
}

/* Sets out = left (op) right; out may be left, and with kernels also right. */
static inline void combine(const struct tti_reduce_pass *pass, void *out, const void *left, const void *right, size_t n)
{
    if (!is_function(pass)) {
        pass->row->fold[0](out, (const void *const[]){left, right}, NULL, 0, n);
        return;
    }
    if (out != left) memcpy(out, left, n * pass->element_bytes);
    pass->reducer->function(pass->reducer->context, out, right, n, pass->reducer->type);
}

/* Returns one source's elements as accumulators: in `into`, or in place if that is possible. */
static inline const void *load_from(const struct tti_reduce_pass *pass, const void *from, const double *factor,
                                    size_t n, void *into)
{
    if (pass->row->load) {
        pass->row->load(into, &from, factor, 0, n);
        return into;
    }
    if (is_function(pass) && (uintptr_t)from % pass->element_bytes != 0) {
        memcpy(into, from, n * pass->element_bytes); /* users' code may rely on alignment */
        return into;
    }
    return from;
}

static inline const void *load(const struct tti_reduce_pass *pass, int source, size_t offset, size_t n, void *into)
{
    const double *factor = pass->factors ? pass->factors + source : NULL;
    return load_from(pass, source_at(pass, source, offset), factor, n, into);
}

static inline void push(const struct tti_reduce_pass *pass, struct tti_reduce_stack *stack, const void *entry, size_t n)
{
    stack->entry[stack->depth++] = entry;
    for (unsigned carry = stack->pushed++; carry & 1; carry >>= 1) {
        int left = stack->depth - 2;
        combine(pass, slot(pass, left), stack->entry[left], stack->entry[left + 1], n);
        stack->entry[left] = slot(pass, left);
        stack->depth--;
    }
}

/* Converts accumulators to elements. */
static inline void settle(const struct tti_reduce_pass *pass, const void *total, int divisor, size_t n, void *target)
{
    if (pass->row->store)
        pass->row->store(target, &total, NULL, divisor, n);
    else if (total != target)
        memcpy(target, total, n * pass->element_bytes);
}

#endif
