/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of tokens. A source is a row: a prefix ("u16:") and a function that opens it; an open source has a length and
 * a function that reads any stretch. Rows of a CSV file are kept separately, as numbers in memory.
 */
#ifndef TTI_TRAIN_DATA_H
#define TTI_TRAIN_DATA_H

#include <stdbool.h>
#include <sys/types.h>
#include <tutti/train.h>

struct tti_source {
    size_t length;     /* in tokens */
    size_t vocabulary; /* ids are lower than this */
    double entropy;    /* in nats per token, or NaN if unknown */
    /* Reads tokens at..at+count, which lie within the length. ERR_DAMAGED if they are no longer there. */
    tutti_status (*read)(const struct tti_source *source, size_t at, size_t count, int32_t *tokens, tutti_error *error);
    void (*close)(struct tti_source *source);
    void *state;
};

/* Opens a source. `text` is the part behind the prefix. After a failure nothing is left open. */
typedef tutti_status tti_source_open(const char *text, struct tti_source *source, tutti_error *error);
tti_source_open tti_source_bytes, tti_source_u16, tti_source_u32, tti_source_markov;

/* A file in memory, read-only. An empty file is an error, since no source can use one. */
struct tti_file {
    const unsigned char *bytes;
    size_t count;
    char *path;
    dev_t device;
    ino_t number; /* the file's inode on its device: the path may become another file's */
};
tutti_status tti_file_map(const char *path, struct tti_file *file, tutti_error *error);
void tti_file_unmap(struct tti_file *file);

struct tti_csv {
    size_t rows, columns;
    float *cells; /* (rows, columns) */
};
tutti_status tti_csv_read(const char *path, struct tti_csv *table, tutti_error *error);

#endif
