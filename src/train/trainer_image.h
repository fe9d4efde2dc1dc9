/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's state after a step in one piece of memory, an image: what the step told, the states of layers, the values of all that
 * the rank owns, and the optimizer's states of these.
 *
 * Ranks that own the same have the same image: they are one class. Those are in different classes that differ along pipe or tensor, or
 * with zero in their place among the ranks that own everything together.
 */
#ifndef TTI_TRAIN_TRAINER_IMAGE_H
#define TTI_TRAIN_TRAINER_IMAGE_H

#include <tutti/train.h>

#define TTI_NO_STEP UINT64_MAX

struct tti_image {
    int rank;      /* whose it is */
    uint64_t step; /* TTI_NO_STEP: it is not whole */
    size_t bytes;
    char *data; /* NULL: there is none */
};

int tti_image_classes(const struct tutti_trainer *trainer);
int tti_image_class(const struct tutti_trainer *trainer, int rank);

size_t tti_image_bytes(const struct tutti_trainer *trainer); /* of this rank's */
/* False: no memory. */
bool tti_image_make(struct tti_image *image, int rank, size_t bytes);
void tti_image_free(struct tti_image *image);

/* Takes this rank's, in two parts, after which it is whole: what the next step changes from its begin on, and what stays until it
 * updates the weights. */
void tti_image_begin(const struct tutti_trainer *trainer, struct tti_image *image);
void tti_image_take(const struct tutti_trainer *trainer, struct tti_image *image);
/* The step of an image that was received. */
uint64_t tti_image_step(const struct tti_image *image);
/* Gives the trainer that state, but for values that others own. */
void tti_image_apply(struct tutti_trainer *trainer, const struct tti_image *image);

#endif
