/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays that a trainer saves: the weights, the model's states and each of the optimizer's, as tensors in their
 * global shapes; and the elements of these that are on this rank, on any mesh and with any zero.
 */
#ifndef TTI_TRAIN_TRAINER_ARRAYS_H
#define TTI_TRAIN_TRAINER_ARRAYS_H

#include "base/share.h"
#include "train/optimizer.h"

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

/* Calls `run` for each run of elements `within` of a tensor of the list that is on this rank: `first` counts in the
 * whole tensor. */
typedef void tti_array_run(void *context, size_t first, size_t count, float *values);
void tti_arrays_runs(const struct tti_arrays *arrays, size_t tensor, struct tti_span within, tti_array_run *run,
                     void *context);

/* Returns true if this rank gives its part of the tensor to that rank of the trainer's comm, and not another rank with
 * the same part. */
bool tti_arrays_give(const struct tti_arrays *arrays, size_t tensor, int to);
/* Returns true if each rank has all of every tensor. */
bool tti_arrays_whole(const struct tti_arrays *arrays);

#endif
