/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of reductions. reduce_kernels.inc is compiled once per instruction set; every set computes the same
 * bits.
 *
 * A reduction on a type is one row. Elements are loaded into accumulators (wider, or scaled, or made 0/1), folded, and
 * stored (divided, rounded, narrowed). If accumulators are the elements themselves, `load` and `store` are NULL.
 * `direct` does all steps in registers, for the few sources that most calls have.
 *
 * Every loop works element by element, so an output may be exactly one of the inputs. Pointers need no alignment.
 */
#ifndef TTI_COLLECTIVE_REDUCE_KERNELS_H
#define TTI_COLLECTIVE_REDUCE_KERNELS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <tutti/tutti.h>

enum {
    TTI_KERNEL_ARITY = 4,    /* most inputs of one kernel */
    TTI_KERNEL_WIDE = 64,    /* most inputs and outputs of a wide kernel */
    TTI_KERNEL_AHEAD = 8192, /* bytes to read ahead; caches by themselves do not read so far ahead */
    TTI_KERNEL_SCALED_SUM = TUTTI_REDUCTION_COUNT, /* column of the scaled sum */
    TTI_KERNEL_REDUCTIONS = TUTTI_REDUCTION_COUNT + 1
};

/* Sets out[i] = f(in[0][i], in[1][i], ...) for i < n. `factors` (one per input, or NULL) is for scaled sums only,
 * `divisor` for averages only. */
typedef void tti_kernel(void *out, const void *const *in, const double *factors, int divisor, size_t n);

/* Sets outs[k][i] = f(in[0][i], ...) for all k and i < n: outs are aligned to 64, n * size is a multiple of 64. */
typedef void tti_to_all_kernel(void *const *outs, int out_count, const void *const *in, int divisor, size_t n,
                               bool stream);

struct tti_kernel_row {
    tti_kernel *direct[TTI_KERNEL_ARITY];        /* elements of 1..4 sources -> elements; NULL: load, fold, store */
    tti_kernel *load;                            /* elements of one source -> accumulators */
    tti_kernel *fold[TTI_KERNEL_ARITY - 1];      /* 2..4 accumulators -> one; [0] is never NULL */
    tti_kernel *store;                           /* accumulators -> elements */
    tti_to_all_kernel *to_all[TTI_KERNEL_ARITY]; /* for 1..4 sources; NULL: `direct`, and then copies */
    tti_to_all_kernel *wide;  /* for 5..TTI_KERNEL_WIDE sources, as many as `divisor` says; or NULL */
    size_t accumulator_bytes; /* 0: this pair is an error */
};

struct tti_kernels {
    const char *name;
    bool (*usable)(void); /* returns true if this CPU can run them */
    /* Copies whole lines (bytes is a multiple of 64) to all outputs at once; each line is read once. */
    void (*copy)(void *const *outs, int out_count, const void *in, size_t bytes);
    /* Copies past the caches; outs are aligned. `ahead`: `in` comes from memory, and the bytes behind it are read
     * next. */
    void (*stream)(void *const *outs, int out_count, const void *in, size_t bytes, bool ahead);
    void (*swap)(void *one, void *other, size_t bytes);
    void (*fence)(void);                                        /* orders streamed stores */
    const struct tti_kernel_row (*rows)[TTI_KERNEL_REDUCTIONS]; /* [TUTTI_TYPE_COUNT] */
};

extern _Atomic(const struct tti_kernels *) tti_kernels_chosen; /* the set in use; NULL: not chosen yet */
const struct tti_kernels *tti_kernels_choose(void);            /* chooses the best that this CPU can run */
static inline const struct tti_kernels *tti_kernels_now(void)
{
    const struct tti_kernels *now = atomic_load_explicit(&tti_kernels_chosen, memory_order_relaxed);
    return now != NULL ? now : tti_kernels_choose();
}

extern const struct tti_kernels tti_kernels_portable;
#if defined(__x86_64__)
extern const struct tti_kernels tti_kernels_avx2;
extern const struct tti_kernels tti_kernels_avx512;
#endif

#endif
