/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of images, for going on after the loss of a rank. If all ranks are one class each of them has everything, and
 * nothing is copied. Otherwise each rank keeps an image of its own, since it must be able to go back to the state that
 * the others have; and if no rank elsewhere is in its class, another process gets the image, too: on another host, if
 * there is one.
 *
 * A task copies and sends while the next step computes. Invariant: a rank tells its losses only after its task has
 * ended, and weights are updated only after all losses were gathered. So when any rank begins with the images of step k
 * + 1, those of step k are complete everywhere; and until those of step k + 1 are, they stay: an image has two places.
 */
#ifndef TTI_TRAIN_TRAINER_COPY_H
#define TTI_TRAIN_TRAINER_COPY_H

#include "train/trainer_image.h"

/* Two of this rank's own, then two of the rank for which it keeps images. */
enum { TTI_IMAGES = 4, TTI_KEPT = 2 };

struct tti_held {
    struct tti_image images[TTI_IMAGES];
};
void tti_held_free(struct tti_held *held); /* NULL is ignored */
size_t tti_held_bytes(const struct tti_held *held);

/* The host and process of a rank. */
struct tti_rank_place {
    int64_t host, process;
};

/* Collective: finds the places of all ranks, for this rank's plan. Does nothing if nothing will be copied. */
tutti_status tti_copies_find_places(struct tutti_trainer *trainer, tutti_error *error);
/* Returns true if this rank keeps images of its own; then `owner` is the rank for which it keeps images, too, or -1.
 * Without places each rank counts as a process of one host. */
bool tti_copies_plan(const struct tutti_trainer *trainer, int *owner);

/* Collective: plans the keeper of each rank, and makes memory for the images in what the trainer holds, unless the
 * present images fit. Does nothing if nothing will be copied. */
tutti_status tti_copies_make(struct tutti_trainer *trainer, tutti_error *error);
void tti_copies_free(struct tutti_trainer *trainer); /* waits for a copy under way; held images stay */

/* Called after a step on all ranks: a task takes and sends the image. */
void tti_copies_start(struct tutti_trainer *trainer);
/* Waits for the task. A failure is in the trainer's error. */
tutti_status tti_copies_wait(struct tutti_trainer *trainer);
size_t tti_copies_bytes(const struct tutti_trainer *trainer);

#endif
