/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of images, for going on after the loss of a rank. Where all ranks are one class each of them has everything, and nothing
 * is copied. Else each rank keeps an image of its own, since it must be able to go back to what the others have; and where nobody
 * elsewhere is of its class, another process gets it too: on another host, where there is one.
 *
 * A task copies and sends while the next step computes. Invariant: a rank tells its losses only after its task has ended, and
 * weights are updated only after all losses were gathered. So when any rank begins with the images of step k + 1, those of step k
 * are whole everywhere; and until those of step k + 1 are, they stay: an image has two places.
 */
#ifndef TTI_TRAIN_TRAINER_COPY_H
#define TTI_TRAIN_TRAINER_COPY_H

#include "train/trainer_image.h"

/* Two of this rank's own, then two of the rank whose image it keeps. */
enum { TTI_IMAGES = 4, TTI_KEPT = 2 };

struct tti_held {
    struct tti_image images[TTI_IMAGES];
};
void tti_held_free(struct tti_held *held); /* NULL is ignored */
size_t tti_held_bytes(const struct tti_held *held);

/* Where a rank is. */
struct tti_rank_place {
    int64_t host, process;
};

/* Collective: where all ranks are, for this rank's plan. Nothing is found where nothing is to be copied. */
tutti_status tti_copies_find_places(struct tutti_trainer *trainer, tutti_error *error);
/* True if this rank is to keep images of its own; then `owner` is the rank whose images it keeps too, or -1. Without places each rank
 * is taken to be a process of one host. */
bool tti_copies_plan(const struct tutti_trainer *trainer, int *owner);

/* Collective: plans who keeps whose, and makes memory for that in what the trainer holds, where what is there already does not fit.
 * Nothing is made where nothing is to be copied. */
tutti_status tti_copies_make(struct tutti_trainer *trainer, tutti_error *error);
void tti_copies_free(struct tutti_trainer *trainer); /* after a copy under way; what is held stays */

/* After a step on all ranks: a task takes and sends the image. */
void tti_copies_start(struct tutti_trainer *trainer);
/* Waits for it. What fails is in the trainer's error. */
tutti_status tti_copies_wait(struct tutti_trainer *trainer);
size_t tti_copies_bytes(const struct tutti_trainer *trainer);

#endif
