/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a checkpoint as ranges of bytes that ranks share out: arithmetic, and the writing of one range.
 *
 * A file is cut into parts of 64 MiB, which have a hash each; parts go to ranks in turn, so a range of one rank begins
 * at a whole MiB. A part is written in pieces of 1 MiB. A part's hash is that of its pieces in order, each with the one
 * before as its seed. Only the assignment of ranges depends on the number of ranks: equal tensors make equal files.
 */
#ifndef TTI_TRAIN_CHECKPOINT_RANGES_H
#define TTI_TRAIN_CHECKPOINT_RANGES_H

#include "train/checkpoint.h"

enum { TTI_PART_BYTES = 64 << 20, TTI_PIECE_BYTES = TTI_FILE_STEP, TTI_PART_PIECES = TTI_PART_BYTES / TTI_PIECE_BYTES };

/* The file of one group. */
struct tti_range_file {
    char name[128]; /* for example model.safetensors */
    const tutti_checkpoint_tensor *tensors;
    size_t count;
    char *header; /* the length of the JSON text, the text, and its padding */
    size_t header_bytes;
    uint64_t bytes;           /* bytes of the whole file */
    size_t first_part, parts; /* counted over all files */
};

struct tti_range_plan {
    struct tti_range_file files[TTI_CHECKPOINT_FILES];
    size_t file_count, parts;
};

tutti_status tti_range_plan_make(const struct tti_checkpoint_content *content, struct tti_range_plan *plan,
                                 tutti_error *error);
void tti_range_plan_free(struct tti_range_plan *plan);

/* Bytes from..to of a file; file NULL: none. */
struct tti_range_piece {
    const struct tti_range_file *file;
    size_t part;
    uint64_t from, to;
};

/* Returns the number of rounds. In each of them every rank has one part or none, and writes it in TTI_PART_PIECES
 * pieces, of which the last may be empty. */
size_t tti_range_rounds(const struct tti_range_plan *plan, int size);
struct tti_range_piece tti_range_piece(const struct tti_range_plan *plan, int rank, int size, size_t round,
                                       size_t piece);

/* Calls `run` for each run of elements of a tensor in the piece, in order; `at` is the run's place in the piece, in
 * bytes. */
typedef void tti_range_run(void *context, const tutti_checkpoint_tensor *tensor, size_t first, size_t count, size_t at);
void tti_range_walk(const struct tti_range_piece *piece, tti_range_run *run, void *context);
/* Copies the bytes of the header that are in the piece to their place in it. */
void tti_range_header(const struct tti_range_piece *piece, char *bytes);

/* Writes pieces of one rank, in order, into files that exist. `hashes`: [plan->parts], of the parts that were
 * written. */
struct tti_range_writer {
    const char *folder;
    const struct tti_range_file *file; /* the file that is open */
    int fd;
    uint64_t *hashes;
};
tutti_status tti_range_put(struct tti_range_writer *writer, const struct tti_range_piece *piece, const char *bytes,
                           tutti_error *error);
/* Brings written data to the disk and closes; called after a failure, too. */
tutti_status tti_range_close(struct tti_range_writer *writer, tutti_error *error);

#endif
