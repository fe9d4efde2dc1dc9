/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints inside the library. index.json is {"checksum": …, "index": {format, version, step, notes, files}}; the
 * checksum is computed over the index printed in one fixed way, so it covers every value in it.
 */
#ifndef TTI_TRAIN_CHECKPOINT_H
#define TTI_TRAIN_CHECKPOINT_H

#include "train/safetensors.h"

#include <jansson.h>
#include <limits.h>
#include <tutti/train.h>

#define TTI_CHECKPOINT_FORMAT "tutti checkpoint"
#define TTI_SAVING_PREFIX ".saving-" /* prefix of folders that the next save removes */
enum { TTI_CHECKPOINT_VERSION = 2, TTI_CHECKPOINT_FILES = 8, TTI_INDEX_MOST = 4 << 20, TTI_HEX = 17 };

struct tti_range_plan;

struct tti_checkpoint_file {
    char group[64];
    char path[PATH_MAX];
    int fd;
    uint64_t bytes;
    const json_t *row; /* its row of the index, with its hashes */
    struct tti_safetensors tensors;
};

struct tutti_checkpoint {
    char path[PATH_MAX];
    uint64_t step;
    json_t *index;
    size_t file_count;
    struct tti_checkpoint_file files[TTI_CHECKPOINT_FILES];
};

/* A small file of a checkpoint for other programs to read. Its hash is in the index, and it is checked like the other
 * files. */
struct tti_checkpoint_text {
    const char *name, *text;
};

struct tti_checkpoint_content {
    const tutti_note *notes;
    size_t note_count;
    const tutti_checkpoint_tensor *tensors;
    size_t tensor_count;
    const struct tti_checkpoint_text *texts;
    size_t text_count;
    bool locked;    /* the caller holds the folder's lock */
    bool elsewhere; /* tensors have no values here: these are given piece by piece */
};

/* Makes the folder unless it exists, and checks that checkpoints can be saved into it. */
tutti_status tti_checkpoint_folder(const char *folder, tutti_error *error);

/* Locks the folder, so that only one process saves into it, until the lock is closed. ERR_ARGUMENT: another one holds
 * it. File systems without locks have none. */
tutti_status tti_checkpoint_lock(const char *folder, int *lock, tutti_error *error);

/* Returns ERR_ARGUMENT if the content could not be read again: names that are not UTF-8 or occur twice, groups that are
 * not contiguous. */
tutti_status tti_checkpoint_check(const struct tti_checkpoint_content *content, tutti_error *error);
/* Returns a note's value in the form in which it is saved: if it is not UTF-8, each byte that is not ASCII is written
 * as \xNN. NULL: no memory. */
json_t *tti_note_json(const char *value);
bool tti_note_is(const char *note, const char *value); /* returns true if that note was made from this value */

/* tutti_checkpoint_save in steps, so that many ranks may write. All of them make a saving, with the same content, and
 * end it; one opens it, all write ranges of its files (checkpoint_ranges.h) into `working`, and when everything is on
 * the disk that one commits it with the hashes of all parts. A saving that was opened and is ended without a commit is
 * removed. */
struct tti_saving {
    const char *folder;
    uint64_t step;
    char target[PATH_MAX], working[PATH_MAX];
    const struct tti_checkpoint_content *content;
    struct tti_range_plan *plan;
    int lock; /* -1: not this rank's */
    bool open;
    json_t *files, *texts;
};
tutti_status tti_saving_make(const char *folder, uint64_t step, const struct tti_checkpoint_content *content,
                             struct tti_saving *saving, tutti_error *error);
tutti_status tti_saving_open(struct tti_saving *saving, tutti_error *error);
tutti_status tti_saving_commit(struct tti_saving *saving, const uint64_t *hashes, int keep, tutti_error *error);
void tti_saving_end(struct tti_saving *saving);

/* Checks that the checkpoint has exactly these tensors of their groups; the other reads elements of one of them. */
tutti_status tti_checkpoint_has(const tutti_checkpoint *checkpoint, const tutti_checkpoint_tensor *tensors,
                                size_t count, tutti_error *error);
tutti_status tti_checkpoint_read(const tutti_checkpoint *checkpoint, const tutti_checkpoint_tensor *tensor,
                                 size_t first, size_t count, float *to, tutti_error *error);

/* Lists the steps of a folder's checkpoints, ascending. The caller frees *steps. */
tutti_status tti_checkpoint_steps(const char *folder, uint64_t **steps, size_t *count, tutti_error *error);
void tti_checkpoint_name(const char *folder, uint64_t step, char path[PATH_MAX]);

/* Returns its file of that group, or NULL. */
const struct tti_checkpoint_file *tti_checkpoint_group(const tutti_checkpoint *checkpoint, const char *group);

/* Writes the checksum of an index, as text. Returns false if there is no memory. */
bool tti_index_checksum(const json_t *index, char text[TTI_HEX]);
/* Reads the text of an index.json; returns NULL with a sentence if it is no index or its checksum is wrong. */
json_t *tti_index_parse(const char *text, size_t bytes, const char *path, tutti_error *error);
const char *tti_hex(uint64_t value, char text[TTI_HEX]);

#endif
