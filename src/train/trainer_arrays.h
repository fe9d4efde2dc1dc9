/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays that a trainer saves: the weights, the model's states and each of the optimizer's, as tensors in their
 * global shapes; and the elements of these that are on this rank, on any mesh and with any zero.
 */
#ifndef TTI_TRAIN_TRAINER_ARRAYS_H
#define TTI_TRAIN_TRAINER_ARRAYS_H

#include "train/optimizer.h"
#include "train/pieces.h"

struct tutti_trainer;

enum { TTI_ARRAYS = 1 + TTI_OPTIMIZER_STATES, TTI_ARRAY_STATE = TTI_ARRAYS };

/* The array of a tensor of the list, and its number among the model's tensors, or among its states in
 * TTI_ARRAY_STATE. */
struct tti_array_place {
    int array, index;
};

struct tti_arrays {
    const struct tutti_trainer *trainer;
    int count; /* the number of arrays: the weights, then the optimizer's states */
    /* this rank's part of each array, in the order of its tensors here; the last: the model's states */
    float *values[TTI_ARRAYS + 1];
    bool owned[TTI_ARRAYS + 1];     /* true if that is only the owned part, one piece after the other */
    size_t *owned_at;               /* [parts + 1]: where each owned part begins in such an array */
    tutti_checkpoint_tensor *list;  /* all arrays: the weights, the model's states, the optimizer's; without values */
    struct tti_array_place *places; /* [list_count] */
    char (*names)[2 * TUTTI_NAME_BYTES];
    size_t list_count;
};

tutti_status tti_arrays_make(const struct tutti_trainer *trainer, struct tti_arrays *arrays, tutti_error *error);
void tti_arrays_free(struct tti_arrays *arrays);

/* The arrays as what is saved and read piece by piece. Failures of this rank go to `error`. */
struct tti_piece_source tti_arrays_source(const struct tti_arrays *arrays, tutti_error *error);

#endif
