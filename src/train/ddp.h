/* SPDX-License-Identifier: Apache-2.0
 *
 * Data parallel inside the library.
 *
 * All elements of all parameters have one order, that of the list. Memory for gradients is seen through it: `flat` where
 * the parameters' gradients touch each other or are copied together, `partials` where there are several of them.
 */
#ifndef TTI_TRAIN_DDP_H
#define TTI_TRAIN_DDP_H

#include "collective/api/inside.h"
#include "train/blocks.h"
#include "train/tree.h"

#include <tutti/train.h>

/* A stretch of elements that is reduced in one go. */
struct tti_bucket {
    size_t from, to;
    size_t ready; /* of its elements */
    tutti_op op;  /* its reduction, once started; id 0: it has ended or was done at once */
};

/* One subtree of the tree over grains, and the rank that computes it. */
struct tti_grain_subtree {
    struct tti_span span;
    int rank;
};

/* A bucket whose subtrees' slices are on their way to their owners. */
struct tti_grain_exchange {
    struct tti_bucket *bucket; /* NULL: none */
    float *slices;             /* this rank's slice of every subtree, one after the other */
    tutti_op ops[TUTTI_SUBTREES_MAX];
};

/* What this rank owns, where sums stay with their owners. */
struct tti_zero {
    int stage;              /* as tutti_ddp_options.zero */
    tutti_parameter *owned; /* [count]: parts of parameters, in the order of elements */
    size_t count;
    bool by_bucket; /* the values of all parameters are one piece of memory */
};

struct tutti_ddp {
    tutti_comm *comm;
    struct tti_here here; /* the call that is being made */
    const tutti_parameter *parameters;
    size_t count, elements;
    size_t *starts;     /* [count + 1]: the first element of each parameter */
    size_t *ready;      /* [count]: elements that became ready in this pass */
    bool *used, *whole; /* [count]: some of it, and all of it, became ready in a pass of this step */
    bool allows_unused;
    tutti_status failed;     /* OK, or why a bucket of this pass could not be started: tutti_ddp_end tells it too */
    bool begun, last, fresh; /* fresh: the next pass is the first of a step */

    float *flat; /* all gradients in order: the parameters' own memory, or a copy */
    bool copied; /* a copy */
    struct tti_bucket *buckets;
    size_t bucket_count, next; /* next: the first that is not started yet */

    int grains, first_grain, grain_count;
    bool aligned; /* every rank has one subtree, and the tree over ranks is the top of the tree over grains */
    int partial_count;
    int bounds[TUTTI_SUBTREES_MAX + 1];
    float *partials[TUTTI_SUBTREES_MAX];
    float *memory;                          /* of the partials */
    struct tti_grain_subtree *subtrees;     /* [subtree_count], of all ranks, in order */
    int subtree_count, rounds;              /* rounds: the most subtrees of one rank */
    int *of_rank;                           /* [size]: the first subtree of each rank */
    struct tti_grain_exchange exchanges[2]; /* of buckets in turn */
    float *slices;                          /* memory of both */
    size_t *counts;                         /* [4 size]: of one collective */
    struct tti_zero zero;

    double seconds;
    size_t bytes;
};

/* The comm, for a collective that is a part of the call. */
tutti_comm *tti_ddp_inside(const struct tutti_ddp *ddp, const char *what);
/* Sums the partials of all ranks over one bucket, in the order of the tree, into flat. begin starts the exchange of
 * slices; end waits for it, adds up, and starts the gathering, bucket->op. An exchange that was not begun is ended
 * already. */
tutti_status tti_ddp_combine_begin(struct tutti_ddp *ddp, struct tti_bucket *bucket);
tutti_status tti_ddp_combine_end(struct tutti_ddp *ddp, struct tti_grain_exchange *exchange);
/* ERR_ARGUMENT. No comm has it as its own error: it is logged, and tutti_explain finds it as the rank's latest. `call`:
 * "begin" of tutti_ddp_begin. */
tutti_status tti_ddp_refuse(const tutti_ddp *ddp, const char *call, const char *why);
/* Waits for the ops of the first `count` buckets, also after a failure, and returns the first one. */
tutti_status tti_ddp_wait_buckets(struct tutti_ddp *ddp, size_t count);

/* The elements of a bucket that a rank adds up, or owns: whole blocks. */
struct tti_span tti_ddp_slice(const struct tutti_ddp *ddp, const struct tti_bucket *bucket, int rank);
/* How many elements of `within` every rank's slice of a bucket has, into ddp->counts. */
void tti_ddp_slice_counts(struct tutti_ddp *ddp, const struct tti_bucket *bucket, struct tti_span within);
/* Lists what this rank owns. */
tutti_status tti_zero_plan(struct tutti_ddp *ddp, tutti_error *error);
/* tutti_ddp_norm on the threads of a pool; NULL: on this one. */
struct tti_pool;
tutti_status tti_ddp_norm(struct tutti_ddp *ddp, struct tti_pool *pool, double *norm);

/* Who has which grains and subtrees, and memory for them. */
tutti_status tti_ddp_plan_grains(struct tutti_ddp *ddp, tutti_error *error);

#endif
