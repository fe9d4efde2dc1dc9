/* SPDX-License-Identifier: Apache-2.0
 *
 * Data parallel inside the library.
 *
 * All elements of all parameters have one order, that of the list. Memory for gradients has this order: `flat` if the
 * parameters' gradients touch each other or are copied together, `partials` if there are several of them. With zero 2
 * and more there is no such memory: gradients are in the buffers of two buckets at a time, and sums in their owners'
 * memory.
 */
#ifndef TTI_TRAIN_DDP_H
#define TTI_TRAIN_DDP_H

#include "collective/api/inside.h"
#include "train/blocks.h"
#include "train/tree.h"

#include <tutti/train.h>

/* A stretch of elements that is reduced at once. */
struct tti_bucket {
    size_t from, to;
    size_t ready; /* elements that are ready */
    tutti_op op;  /* its reduction, once it was started; id 0: it has ended or was done at once */
    bool halfway; /* the op sums over the ranks of a replica; the sum over replicas follows */
};

/* One subtree of the tree over grains, and the rank that computes it. */
struct tti_grain_subtree {
    struct tti_span span;
    int rank;
};

/* The grains of one pass, which are a subtree of all, and their ranks. */
struct tti_grain_pass {
    struct tti_span grains; /* grains of all ranks */
    int first, count;       /* grains of this rank */
    bool aligned; /* every rank has one subtree, and the tree over ranks is the top of the tree over these grains */
    int partial_count;
    int bounds[TUTTI_SUBTREES_MAX + 1];
    struct tti_grain_subtree *subtrees; /* [subtree_count], of all ranks, in order */
    int subtree_count, rounds;          /* rounds: the most subtrees that a rank has */
    int *of_rank;                       /* [size + 1]: the first subtree of each rank */
    int depth, merges; /* its sums wait at that depth; and how often they are then added to those above */
};

/* A bucket whose subtrees' slices are being sent to their owners. */
struct tti_grain_exchange {
    struct tti_bucket *bucket; /* NULL: there is none */
    float *slices;             /* this rank's slice of every subtree, one after the other */
    tutti_op ops[TUTTI_SUBTREES_MAX];
};

/* Room for the values of one bucket at a time. */
struct tti_value_slot {
    float *values;
    size_t elements; /* the room, in elements */
    size_t bucket;   /* the bucket whose values are there, or are coming; NONE: no bucket's */
    tutti_op op;     /* receives the values that are coming */
    int users;       /* calls of need without a done */
    bool packed;     /* the values that are coming are bf16, at the end of the room */
};

enum { TTI_VALUE_SLOTS = 3, TTI_GRAIN_DEPTH = 32 };
#define TTI_NO_BUCKET ((size_t)-1)

/* The part that this rank owns, if sums stay with their owners. */
struct tti_zero {
    int stage;              /* as in tutti_ddp_options.zero */
    tutti_parameter *owned; /* [count]: parts of parameters, in the order of elements */
    size_t *first;          /* [count]: the first element of each part, counted over all parameters */
    size_t count, elements; /* the number of parts, and their elements together */
    size_t *owned_at;       /* [buckets]: where each bucket's slice begins among the owned elements */
    bool by_bucket;         /* the values of all parameters are one piece of memory */

    int replicas;       /* groups of ranks that each have everything; 1: the whole comm is one */
    tutti_comm *group;  /* the ranks that own everything together: the whole comm, or one of the replicas */
    tutti_comm *across; /* the ranks that own the same part; NULL: there is one replica */

    float *buffers[2];       /* stage 2: gradients of two buckets, in turn */
    size_t buffer_bucket[2]; /* the buckets whose gradients are there */
    /* stage 2: sums of the owned elements; [0]: of all grains, others: of subtrees that wait */
    float *pending[TTI_GRAIN_DEPTH];
    float *values;                                /* stage 3, and bf16: values of the owned elements */
    bool bf16;                                    /* values have 16 bits except `values`, which are the masters then */
    uint16_t *halves;                             /* bf16: of all elements; in stage 3 of the owned ones */
    struct tti_value_slot slots[TTI_VALUE_SLOTS]; /* stage 3: the last slot is only for the largest bucket */
    size_t largest, last_needed;                  /* numbers of buckets */
};

/* Buckets that make passes of their own, one at a time: those of one stage of a pipeline. */
struct tti_ddp_part {
    struct tti_span buckets;
    int passes; /* passes that were begun in this step */
};

/* The first element of each part, ascending, the first at 0; none: everything is one part. */
struct tti_ddp_cut {
    const size_t *starts;
    int count;
};

struct tutti_ddp {
    tutti_comm *comm; /* NULL: it is only planned, and has no memory for numbers */
    int rank, size;
    struct tti_here here; /* the call that is being made */
    const tutti_parameter *parameters;
    size_t count, elements;
    size_t *starts;     /* [count + 1]: the first element of each parameter */
    size_t *ready;      /* [count]: elements that became ready in this pass */
    bool *used, *whole; /* [count]: a part, or all, of the parameter became ready in a pass of this step */
    bool allows_unused;
    bool alone;              /* as in tti_ddp_place */
    bool valued;             /* parameters have values; false: it sums gradients only */
    tutti_status failed;     /* OK, or why a bucket of this pass could not be started: tutti_ddp_end returns it, too */
    bool begun, last, fresh; /* fresh: the next pass is the first of a step */

    float *flat; /* all gradients in order: the parameters' own memory, or a copy */
    bool copied; /* `flat` is a copy */
    struct tti_bucket *buckets;
    size_t bucket_count, next;  /* next: the first bucket that was not started */
    struct tti_span now;        /* the buckets of the pass: all, or those of a part */
    struct tti_ddp_part *parts; /* [part_count] */
    int part_count, left;       /* left: passes of parts that have not begun in this step */

    int grains;
    struct tti_grain_pass *passes; /* [pass_count] the passes of a step */
    int pass_count, pass;          /* pass: the one that has begun, or the last one */
    float *partials[TUTTI_SUBTREES_MAX];
    float *memory;                          /* memory of the partials */
    struct tti_grain_exchange exchanges[2]; /* exchanges of two buckets, in turn */
    float *slices;                          /* memory of both exchanges */
    size_t *counts;                         /* [4 size]: counts for one collective */
    struct tti_zero zero;

    double seconds;
    size_t bytes;
};

/* Makes a ddp that sums gradients only, with zero 2 at most: values are not used. Otherwise like tutti_ddp_create. */
tutti_status tti_ddp_create_sums(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                                 const tutti_ddp_options *options, tutti_ddp **ddp, tutti_error *error);

/* Like tutti_ddp_create, or with `valued` false like the function above, in parts. With zero 2 and 3 each part makes
 * its passes, as many as tutti_ddp_passes, one by one with tti_ddp_begin_part, in any order that is the same on all
 * ranks; a pass ends where the next one begins, and the last of all with tutti_ddp_end. A part without parameters makes
 * none. Without a comm: makes the plan of that rank of `size`: its buckets, passes and `bytes`; for tutti_ddp_bytes and
 * tutti_ddp_free, and to be read. */
struct tti_ddp_place {
    tutti_comm *comm;
    int rank, size;
    struct tti_ddp_cut cut;
    /* the ranks' sums are made elsewhere: the ddp says which grains this rank has, and where their gradients go */
    bool alone;
};
tutti_status tti_ddp_make(const struct tti_ddp_place *place, const tutti_parameter *parameters, size_t count,
                          bool valued, const tutti_ddp_options *options, tutti_ddp **ddp, tutti_error *error);
tutti_status tti_ddp_begin_part(struct tutti_ddp *ddp, int part);
/* Takes memory that all ranks of the host can reach, counted in `bytes`; a ddp that is only planned gets none. Returns
 * false if there is none. */
bool tti_ddp_take(struct tutti_ddp *ddp, size_t bytes, float **memory);

/* Returns the comm, for a collective that is a part of the call; or the comm of the ranks that own everything
 * together. */
tutti_comm *tti_ddp_inside(const struct tutti_ddp *ddp, const char *what);
tutti_comm *tti_ddp_inside_group(const struct tutti_ddp *ddp, const char *what);
/* Sums the partials of all ranks over one bucket, in the order of the tree, into its place for sums. begin starts the
 * exchange of slices; end waits for it, adds up, and starts the gathering, bucket->op. An exchange that was not begun
 * has ended already. */
tutti_status tti_ddp_combine_begin(struct tutti_ddp *ddp, struct tti_bucket *bucket);
tutti_status tti_ddp_combine_end(struct tutti_ddp *ddp, struct tti_grain_exchange *exchange);
/* Returns ERR_ARGUMENT. No comm keeps this error: it is logged, and tutti_explain finds it as the rank's latest.
 * `call`: "begin" for tutti_ddp_begin. */
tutti_status tti_ddp_refuse(const tutti_ddp *ddp, const char *call, const char *why);
/* Waits for the ops of the first `count` buckets, after a failure, too, and returns the first failure. */
tutti_status tti_ddp_wait_buckets(struct tutti_ddp *ddp, size_t count);
/* Returns where the sums of this rank's slice of a bucket go. */
float *tti_ddp_sums(const struct tutti_ddp *ddp, const struct tti_bucket *bucket);
/* Returns the bucket that has an element. */
struct tti_bucket *tti_ddp_bucket_of(const struct tutti_ddp *ddp, size_t element);

/* Returns the pass that has begun, or the first one. */
static inline struct tti_grain_pass *tti_ddp_pass(const struct tutti_ddp *ddp)
{
    return &ddp->passes[ddp->pass];
}

/* Returns the elements of a bucket that a rank adds up, or owns: whole blocks. */
struct tti_span tti_ddp_slice(const struct tutti_ddp *ddp, const struct tti_bucket *bucket, int rank);
/* Returns this rank's part of a bucket: its slice; with bf16 and no stage all of it. */
struct tti_span tti_zero_slice(const struct tutti_ddp *ddp, const struct tti_bucket *bucket);
/* Counts the elements of `within` in every rank's slice of the bucket, in ddp->counts. */
void tti_ddp_slice_counts(struct tutti_ddp *ddp, const struct tti_bucket *bucket, struct tti_span within);
/* group: makes the comms of replicas. count: counts this rank's part of each bucket, and lists it. */
tutti_status tti_zero_group(struct tutti_ddp *ddp, tutti_error *error);
tutti_status tti_zero_count(struct tutti_ddp *ddp, tutti_error *error);
tutti_status tti_zero_plan(struct tutti_ddp *ddp, tutti_error *error);
void tti_zero_free(struct tutti_ddp *ddp);
/* Computes the sum of squares of every block of gradients, in the order of all parameters, on the threads of a pool;
 * NULL: on this one. tutti_ddp_norm is the root of their sum in the tree. */
struct tti_pool;
size_t tti_ddp_blocks(const struct tutti_ddp *ddp);
tutti_status tti_ddp_block_sums(struct tutti_ddp *ddp, struct tti_pool *pool, double *sums);

/* Stage 2 and more (zero_gradients.c): makes the buffers of buckets; the other returns where gradients of a bucket
 * go. */
tutti_status tti_zero_make_buffers(struct tutti_ddp *ddp, tutti_error *error);
float *tti_zero_gradients(const struct tutti_ddp *ddp, const struct tti_bucket *bucket, int partial);
float *tti_zero_sums(const struct tutti_ddp *ddp, const struct tti_bucket *bucket);
/* Called before a bucket is reduced: gradients that were not made ready in this pass count as zeros. */
tutti_status tti_zero_fill_missing(struct tutti_ddp *ddp, struct tti_bucket *bucket);
/* Adds the sums of the pass that has ended to those that wait for them. */
void tti_zero_merge(struct tutti_ddp *ddp);
/* Makes memory for sums that wait at this depth. */
tutti_status tti_zero_need_pending(struct tutti_ddp *ddp, int depth);

/* Returns true if values come only through tutti_ddp_need. */
static inline bool tti_ddp_passes_values(const struct tutti_ddp *ddp)
{
    return ddp->zero.bf16 || ddp->zero.stage == 3;
}

/* Returns the values of owned elements, one after the other, if these are not the parameters' own. */
static inline float *tti_ddp_owned_values(const struct tutti_ddp *ddp)
{
    return ddp->zero.values;
}

/* Stage 3 (zero_values.c): makes room for values of buckets, gathered in turn. */
tutti_status tti_zero_make_values(struct tutti_ddp *ddp, tutti_error *error);
void tti_zero_forget_values(struct tutti_ddp *ddp); /* called when the values have changed */
tutti_status tti_zero_wait_values(struct tutti_ddp *ddp);

/* bf16 (zero_bf16.c): rounds this rank's values, and gives them to all ranks, or puts them where stage 3 gathers them
 * later. */
tutti_status tti_bf16_spread(struct tutti_ddp *ddp);
void tti_bf16_begin(struct tutti_ddp *ddp); /* begins with the parameters' values, which all ranks have */
void tti_bf16_round(uint16_t *restrict halves, const float *restrict values, size_t count);
void tti_bf16_widen(float *restrict values, const uint16_t *restrict halves, size_t count);
/* Returns where values of 16 bits are received in a room for as many of 32; they are widened there. */
static inline uint16_t *tti_bf16_packed(float *values, size_t count)
{
    return (uint16_t *)(void *)values + count;
}
void tti_bf16_widen_packed(float *values, size_t count);

/* Cuts grains into passes of at most `most` grains of each rank (0: any number), each a subtree; `bounds` has room for
 * grains + 1. Returns the number of passes. */
int tti_grain_passes(int grains, int ranks, int most, int *bounds);

/* Finds each rank's grains and subtrees in each pass, and makes memory for them. */
tutti_status tti_ddp_plan_grains(struct tutti_ddp *ddp, int most, tutti_error *error);
void tti_ddp_free_grains(struct tutti_ddp *ddp);

#endif
