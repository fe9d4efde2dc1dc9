/* SPDX-License-Identifier: Apache-2.0
 *
 * What the trainer needs if its model is cut into width grains, which ranks along `tensor` may share. Their samples are
 * the same, and so are their passes: each of these ranks takes part in every pass.
 *
 * A cut tensor lies grain by grain; in checkpoints, and in an array that is called whole here, every tensor has its
 * global shape, one behind the other, each beginning at a multiple of 16 floats.
 */
#ifndef TTI_TRAIN_TRAINER_WIDTH_H
#define TTI_TRAIN_TRAINER_WIDTH_H

#include <tutti/train.h>

struct tutti_trainer;

/* Returns true if the model has several width grains; or if several ranks share them. */
bool tti_trainer_is_cut(const struct tutti_trainer *trainer);
bool tti_trainer_shares_width(const struct tutti_trainer *trainer);

/* Returns true if these ranks cannot meet any more. */
bool tti_trainer_width_lost(const struct tutti_trainer *trainer);

/* Cuts a sealed model as the options and the mesh say. The error for a cut that does not fit says which would. */
tutti_status tti_trainer_cut(const struct tutti_trainer *trainer, tutti_model *model, tutti_error *error);
/* Sets the layer of each parameter of the model's list. */
void tti_trainer_list_layers(const tutti_model *model, int *layers);

/* Compares tensors that are not cut, which must be the same on all ranks along `tensor`; ERR_MISMATCH: `odd` is the
 * lowest rank of the trainer's comm whose tensors differ from those of the first rank with which it shares the width.
 * Collective over all ranks. */
tutti_status tti_trainer_compare_uncut(const struct tutti_trainer *trainer, int *odd);

#endif
