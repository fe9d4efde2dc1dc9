/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of checkpoints: written and read in order, in steps of a fixed size, and hashed meanwhile.
 */
#ifndef TTI_TRAIN_FILE_H
#define TTI_TRAIN_FILE_H

#include <stdbool.h>
#include <tutti/tutti.h>

enum { TTI_FILE_STEP = 1 << 20 }; /* bytes at a time: hashed while they are in the cache */

struct tti_writer {
    char path[512]; /* for messages */
    int fd;
    uint64_t bytes, started; /* bytes written; and how many of these the disk was told to write */
    void *hash;              /* the state of the hash */
};

/* Makes a new file. All errors name the path. */
tutti_status tti_writer_open(struct tti_writer *writer, const char *path, tutti_error *error);
tutti_status tti_writer_put(struct tti_writer *writer, const void *bytes, size_t count, tutti_error *error);
/* Waits until everything is on the disk. `hash` gets the hash of all bytes. */
tutti_status tti_writer_finish(struct tti_writer *writer, uint64_t *hash, tutti_error *error);
void tti_writer_abandon(struct tti_writer *writer); /* closes; may be called after a failure or a finish */

/* Opens a file for reading, and finds its length. ERR_DAMAGED if there is none, or it is no file, such as a pipe. */
tutti_status tti_file_open(const char *path, int *fd, uint64_t *bytes, tutti_error *error);
/* Reads bytes at..at+count into `to`. ERR_DAMAGED if the file is shorter. */
tutti_status tti_file_read(int fd, const char *path, uint64_t at, size_t count, void *to, tutti_error *error);
/* Computes the hash of a whole file, through a buffer of TTI_FILE_STEP bytes. */
tutti_status tti_file_hash(int fd, const char *path, uint64_t *bytes, uint64_t *hash, tutti_error *error);

uint64_t tti_hash(const void *bytes, size_t count, uint64_t seed);

/* Makes sure that the names in a folder are on the disk. */
tutti_status tti_folder_sync(const char *path, tutti_error *error);
/* Removes a folder of plain files; returns true if it is gone. */
bool tti_folder_remove(const char *path);

#endif
