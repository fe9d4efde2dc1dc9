/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor that the first layer owns and the last one shares. The gradients of both are summed over all grains apart from
 * each other, each in the canonical tree, and then added up: that is the same wherever the two layers are. Where they are on
 * different ranks of the pipe, the last layer's sum goes to the owner by a message, and new values come back by another.
 *
 * The last layer's gradient has a ddp of its own. With zero 2 and 3 it has the passes of the other gradients' ddp; its sums
 * are where its own slices are owned, and go from there to the owners of the tensor. Where the two layers are on different ranks
 * of the pipe, a slice goes to the rank of the owner's stage with the same samples, and from there on; new values of zero 3 go
 * the same way back.
 */
#ifndef TTI_TRAIN_TIE_H
#define TTI_TRAIN_TIE_H

#include "train/trainer_mesh.h"

struct tti_tie {
    size_t elements;           /* 0: the model has no such tensor, or neither layer is here */
    bool owns, shares;         /* true if the owner, and the layer that shares, is on this rank */
    int owner, sharer;         /* their ranks along the pipe */
    tutti_comm *pipe;          /* NULL: both are on all ranks */
    tutti_comm *batch;         /* of those that share the batch */
    tutti_comm *comm;          /* the same, apart: sums of the two ddps have no common order */
    tutti_ddp *ddp;            /* of the sharing layer's gradient */
    tutti_parameter parameter; /* that gradient (NULL with zero 2 and 3), and the tensor's values */
    size_t first;              /* the tensor's first element, among those of the owner's rank */
    bool passes;               /* zero 2 and 3: sums are with their owners only */
    int zero;                  /* as the trainer's option */
    bool bf16;          /* values are of 16 bits, and the two layers on different ranks: they go as they are, or with
                                * zero 3 as f32, which both round */
    float *owned;       /* then: the sums of what this rank owns of the tensor */
    float *slice;       /* then, on the owner's rank, where it does not share: a slice of the sharing layer's ddp */
    size_t owned_first; /* where these begin in the tensor */
    size_t *counts;     /* then: [4 ranks of a replica], of one exchange */
    size_t bytes;       /* of the gradient, or of `owned` */
};

/* Memory for the gradient; owns, shares, owner, sharer and pipe are set before. `zero`: as the trainer's option. */
tutti_status tti_tie_allocate(struct tti_tie *tie, const struct tti_trainer_mesh *mesh, const tutti_model *model,
                              int zero, tutti_error *error);
/* Collective over the ranks that share the batch: `ddp` is that of the other gradients, made with `options`. */
tutti_status tti_tie_make(struct tti_tie *tie, const tutti_ddp *ddp, const tutti_ddp_options *options,
                          tutti_error *error);
void tti_tie_free(struct tti_tie *tie);

/* Before each pass, beside the same call of the other gradients' ddp. */
tutti_status tti_tie_begin(struct tti_tie *tie, bool last);
/* With zero 2 and 3: where the gradients of the pass's subtrees go. */
tutti_status tti_tie_places(struct tti_tie *tie, float **gradients);
/* After the other ddp's end. `passes_on`: not if a stage of the pipe has failed. Then add, on the owner's rank: its gradient, as
 * much of it as is the rank's, becomes the sum of both. */
tutti_status tti_tie_end(struct tti_tie *tie, const tutti_ddp *ddp, bool passes_on);
void tti_tie_add(const struct tti_tie *tie, const tutti_ddp *ddp);
/* After the optimizer's step, or other changes of values: the sharing layer's rank gets them. */
tutti_status tti_tie_spread(struct tti_tie *tie, const tutti_ddp *ddp);

#endif
