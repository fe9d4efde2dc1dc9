/* SPDX-License-Identifier: Apache-2.0
 *
 * One save of a trainer, in steps: begun by all ranks together; written, each rank its parts; ended by all together.
 */
#ifndef TTI_TRAIN_TRAINER_SAVE_H
#define TTI_TRAIN_TRAINER_SAVE_H

#include "train/trainer_pieces.h"

struct tti_notes;

/* What a save refers to until it has ended. */
struct tti_save {
    struct tti_arrays arrays;
    struct tti_notes *notes;
    char *config;
    struct tti_checkpoint_text text;
    struct tti_checkpoint_content content;
    struct tti_saving saving;
    uint64_t *hashes; /* [parts]: of those that this rank has written */
};

/* Collective: rank 0 makes the files. After it, also after a failure, comes free. */
tutti_status tti_save_begin(struct tutti_trainer *trainer, struct tti_save *save);
/* Collective over `comm`, of all ranks: with what came of each rank's writing. The checkpoint gets its name, or all learn why
 * not. */
tutti_status tti_save_end(struct tti_save *save, tutti_comm *comm, int keep, tutti_status written, tutti_error *error);
void tti_save_free(struct tti_save *save);

/* ---- In the background (trainer_background.c) ------------------------------------------------------------------ */

/* With save_async: a comm for it, and how much is copied, on a trainer that is otherwise whole. Collective. */
tutti_status tti_background_make(struct tutti_trainer *trainer, tutti_error *error);
void tti_background_free(struct tutti_trainer *trainer); /* after what is under way has ended */
/* Collective: waits for the save before, copies what this rank writes, and lets a task write it. */
tutti_status tti_background_save(struct tutti_trainer *trainer);
/* True if a save has failed that nobody was told of; the trainer's error says why, and it counts as told. `wait`: for one that is
 * under way. */
bool tti_background_failed(struct tutti_trainer *trainer, bool wait);
/* Bytes of the copy. */
size_t tti_background_bytes(const struct tutti_trainer *trainer);

#endif
