/* SPDX-License-Identifier: Apache-2.0
 *
 * Brings the pieces of a checkpoint's files together: each rank writes some, and others have parts of their data. Reads them
 * back: each rank what it has.
 */
#ifndef TTI_TRAIN_PIECES_H
#define TTI_TRAIN_PIECES_H

#include "base/share.h"
#include "collective/api/inside.h"
#include "train/checkpoint_ranges.h"

/* Called for a run of elements of a tensor that is on this rank: `first` counts in the whole tensor. */
typedef void tti_array_run(void *context, size_t first, size_t count, float *values);

/* The tensors of a checkpoint, and who has what of them: a trainer's (trainer_arrays.h), or those of a ddp (ddp_save.c). */
struct tti_piece_source {
    tutti_comm *comm; /* all ranks that have some, and share out the writing */
    struct tti_here here;
    bool whole;                          /* every rank has all of every tensor */
    const tutti_checkpoint_tensor *list; /* without values */
    size_t count;
    /* Returns true if this rank gives its part of the tensor to that rank, and not another one with the same part. */
    bool (*gives)(const void *context, size_t tensor, int to);
    /* Calls `run` for the elements `within` of a tensor that are on this rank. */
    void (*runs)(const void *context, size_t tensor, struct tti_span within, tti_array_run *run, void *with);
    const void *context;
    tutti_error *error; /* where failures of this rank go */
};

/* A sequence of exchanges, each of one piece per rank. */
struct tti_pieces {
    struct tti_piece_source source;
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

tutti_status tti_pieces_make(const struct tti_piece_source *source, const struct tti_range_plan *plan,
                             struct tti_pieces *pieces, tutti_error *error);
void tti_pieces_free(struct tti_pieces *pieces);

/* Brings to each rank that piece of its part in that round: this rank's into `bytes`, TTI_PIECE_BYTES at most.
 * Collective; *mine has no file if this rank has no such piece. A failure of this rank alone is in the source's error
 * and in `status`. */
tutti_status tti_pieces_bring(struct tti_pieces *pieces, size_t round, size_t number, struct tti_range_piece *mine,
                              char *bytes);

/* Collective: brings all pieces, and writes those of this rank into the saving's files; `hashes` gets those of its parts.
 * The other ends the saving on all ranks, `written` being each one's result: it gets its name, or all learn why not. */
tutti_status tti_pieces_write(struct tti_pieces *pieces, const struct tti_saving *saving, uint64_t *hashes);
tutti_status tti_saving_finish(struct tti_saving *saving, uint64_t *hashes, tutti_comm *comm, int keep,
                               tutti_status written, tutti_error *error);

/* Reads what this rank has of the tensors. */
tutti_status tti_pieces_read(const struct tti_piece_source *source, const tutti_checkpoint *checkpoint,
                             tutti_error *error);

#endif
