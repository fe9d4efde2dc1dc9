/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's state after a step in one piece of memory, an image: the result of the step, the states of layers, the
 * values that the rank owns, and the optimizer's states of these.
 *
 * Ranks that own the same have the same image: they are one class. Ranks are in different classes if they differ along
 * pipe or tensor, or with zero in their place among the ranks that own everything together.
 */
#ifndef TTI_TRAIN_TRAINER_IMAGE_H
#define TTI_TRAIN_TRAINER_IMAGE_H

#include <tutti/train.h>

#define TTI_NO_STEP UINT64_MAX

struct tti_image {
    int rank;      /* the rank whose image it is */
    uint64_t step; /* TTI_NO_STEP: it is incomplete */
    size_t bytes;
    char *data; /* NULL: there is none */
};

int tti_image_classes(const struct tutti_trainer *trainer);
int tti_image_class(const struct tutti_trainer *trainer, int rank);

size_t tti_image_bytes(const struct tutti_trainer *trainer); /* returns the bytes of this rank's image */
/* Returns false if there is no memory. */
bool tti_image_make(struct tti_image *image, int rank, size_t bytes);
void tti_image_free(struct tti_image *image);

/* Take this rank's image, in two parts, after which it is complete: first the data that the next step changes from its
 * begin on, then those that stay until it updates the weights. */
void tti_image_begin(const struct tutti_trainer *trainer, struct tti_image *image);
void tti_image_take(const struct tutti_trainer *trainer, struct tti_image *image);
/* Returns the step of an image that was received. */
uint64_t tti_image_step(const struct tti_image *image);
/* Sets the trainer to that state, except for values that others own. */
void tti_image_apply(struct tutti_trainer *trainer, const struct tti_image *image);

#endif
