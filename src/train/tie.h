/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor that the first layer owns and the last one shares. The gradients of both are summed over all grains
 * separately, each in the canonical tree, and then added up: so the result does not depend on the two layers' ranks. If
 * they are on different ranks of the pipe, the last layer's sum goes to the owner by a message, and new values come
 * back by another.
 *
 * The last layer's gradient has a ddp of its own. With zero 2 and 3 it has the same passes as the other gradients' ddp;
 * its sums are with the owners of its own slices, and go from there to the owners of the tensor. If the two layers are
 * on different ranks of the pipe, a slice first goes to the rank of the owner's stage with the same samples; new values
 * of zero 3 go back in the same way.
 */
#ifndef TTI_TRAIN_TIE_H
#define TTI_TRAIN_TIE_H

#include "train/trainer_mesh.h"

struct tti_tie {
    size_t elements;           /* 0: the model has no such tensor, or neither layer is on this rank */
    bool owns, shares;         /* true if the owner, and the layer that shares, is on this rank */
    int owner, sharer;         /* their ranks along the pipe */
    tutti_comm *pipe;          /* the comm along the pipe; NULL: both layers are on all ranks */
    tutti_comm *batch;         /* the ranks that share the batch */
    tutti_comm *comm;          /* a duplicate of it, since sums of the two ddps have no common order */
    tutti_ddp *ddp;            /* the ddp of the sharing layer's gradient */
    tutti_parameter parameter; /* that gradient (NULL with zero 2 and 3), and the tensor's values */
    size_t first;              /* the tensor's first element among those of the owner's rank */
    bool passes;               /* zero 2 and 3: only owners have the sums */
    int zero;                  /* as in the trainer's options */
    /* values have 16 bits, and the two layers are on different ranks: values are sent as they are, or with zero 3 as
     * f32, which both round */
    bool bf16;
    float *owned;       /* with `passes`: the sums that this rank owns of the tensor */
    float *slice;       /* with `passes`, on an owner's rank that does not share: a slice of the sharing layer's ddp */
    size_t owned_first; /* where `owned` begins in the tensor */
    size_t *counts;     /* with `passes`: [4 ranks of a replica], for one exchange */
    size_t bytes;       /* bytes of the gradient, or of `owned` */
};

/* Makes memory for the gradient; owns, shares, owner, sharer and pipe are set before. `zero`: as in the trainer's
 * options. */
tutti_status tti_tie_allocate(struct tti_tie *tie, const struct tti_trainer_mesh *mesh, const tutti_model *model,
                              int zero, tutti_error *error);
/* Makes the tie; collective over the ranks that share the batch. `ddp` is the one of the other gradients, made with
 * `options`. */
tutti_status tti_tie_make(struct tti_tie *tie, const tutti_ddp *ddp, const tutti_ddp_options *options,
                          tutti_error *error);
void tti_tie_free(struct tti_tie *tie);

/* Called before each pass, besides the same call of the other gradients' ddp. */
tutti_status tti_tie_begin(struct tti_tie *tie, bool last);
/* With zero 2 and 3: returns where the gradients of the pass's subtrees go. */
tutti_status tti_tie_places(struct tti_tie *tie, float **gradients);
/* Called after the other ddp's end. `passes_on` is false if a stage of the pipe has failed. Then add, on the owner's
 * rank, makes its gradient, or the rank's part of it, the sum of both. */
tutti_status tti_tie_end(struct tti_tie *tie, const tutti_ddp *ddp, bool passes_on);
void tti_tie_add(const struct tti_tie *tie, const tutti_ddp *ddp);
/* Called after the optimizer's step, or other changes of values: sends them to the sharing layer's rank. */
tutti_status tti_tie_spread(struct tti_tie *tie, const tutti_ddp *ddp);

#endif
