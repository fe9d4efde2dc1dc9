/* SPDX-License-Identifier: Apache-2.0
 *
 * One save of a trainer, in steps: all ranks begin it together; each writes its parts; all end it together.
 */
#ifndef TTI_TRAIN_TRAINER_SAVE_H
#define TTI_TRAIN_TRAINER_SAVE_H

#include "train/trainer_arrays.h"

struct tti_notes;

/* The data that a save needs until it has ended. */
struct tti_save {
    struct tti_arrays arrays;
    struct tti_notes *notes;
    char *config;
    struct tti_checkpoint_text text;
    struct tti_checkpoint_content content;
    struct tti_saving saving;
    uint64_t *hashes; /* [parts]: of the parts that this rank has written */
};

/* Collective: rank 0 makes the files. After it, or its failure, the save must be freed. */
tutti_status tti_save_begin(struct tutti_trainer *trainer, struct tti_save *save);
/* Collective over `comm`, which has all ranks; `written`: the result of each rank's writing. The checkpoint gets its
 * name, or all learn why not. */
tutti_status tti_save_end(struct tti_save *save, tutti_comm *comm, int keep, tutti_status written, tutti_error *error);
void tti_save_free(struct tti_save *save);

/* ---- In the background (trainer_background.c) ------------------------------------------------------------------ */

/* With save_async: makes a comm for it, and finds how much is copied, on a trainer that is otherwise complete.
 * Collective. */
tutti_status tti_background_make(struct tutti_trainer *trainer, tutti_error *error);
void tti_background_free(struct tutti_trainer *trainer); /* waits for a save under way */
/* Collective: waits for the save before, copies the data that this rank writes, and lets a task write them. */
tutti_status tti_background_save(struct tutti_trainer *trainer);
/* Returns true if a save has failed and this was not reported; the trainer's error says why, and it counts as reported.
 * `wait`: also for a save under way. */
bool tti_background_failed(struct tutti_trainer *trainer, bool wait);
/* Returns the bytes of the copy. */
size_t tti_background_bytes(const struct tutti_trainer *trainer);

#endif
