/* SPDX-License-Identifier: Apache-2.0
 *
 * Brings the pieces of a checkpoint's files together: each rank writes some, and others have parts of their data.
 */
#ifndef TTI_TRAIN_TRAINER_PIECES_H
#define TTI_TRAIN_TRAINER_PIECES_H

#include "train/checkpoint_ranges.h"
#include "train/trainer_arrays.h"

/* A sequence of exchanges, each of one piece per rank. */
struct tti_pieces {
    struct tutti_trainer *trainer;
    const struct tti_arrays *arrays;
    const struct tti_range_plan *plan;
    int rank, size;
    uint32_t *sent, *received;
    size_t sent_room;                   /* in words */
    size_t *sent_counts, *sent_offsets; /* [size], in words */
    size_t *counts, *offsets;           /* [size] for `received` */
    size_t made;                        /* words so far */
    uint64_t at;         /* the place that a tensor's first element would have in the piece, in bytes; wraps around */
    char *bytes;         /* this rank's piece */
    tutti_status status; /* the status of this rank alone: after a failure it goes on, and sends nothing */
};

tutti_status tti_pieces_make(struct tutti_trainer *trainer, const struct tti_arrays *arrays,
                             const struct tti_range_plan *plan, struct tti_pieces *pieces, tutti_error *error);
void tti_pieces_free(struct tti_pieces *pieces);

/* Brings to each rank that piece of its part in that round: this rank's into `bytes`, TTI_PIECE_BYTES at most.
 * Collective; *mine has no file if this rank has no such piece. A failure of this rank alone is in the trainer's error
 * and in `status`. */
tutti_status tti_pieces_bring(struct tti_pieces *pieces, size_t round, size_t number, struct tti_range_piece *mine,
                              char *bytes);

#endif
