/* SPDX-License-Identifier: Apache-2.0
 *
 * A table behind the launcher's board, a row for each rank of this host: what the rank does. `tutti top` reads it, and so does the
 * launcher when the job fails.
 *
 * Invariant: only the rank whose row it is writes there (one of its threads at a time), and whoever started its process again.
 * Readers copy a row and look whether it changed meanwhile; one that died while it wrote leaves a row that is read as it lies.
 *
 * A rank writes when it waits for long, and with each op while somebody watches: the word that says so is all that an op looks at.
 */
#ifndef TTI_WORLD_ROWS_H
#define TTI_WORLD_ROWS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { TTI_ROW_NOBODY = -1, TTI_ROW_ANYONE = -2, TTI_ROW_TEXT = 128, TTI_ROW_DEVICE = 24 };

/* What a rank shows. It is copied by words. */
struct tti_row_facts {
    int32_t pid, awaited; /* rank of the job, TTI_ROW_ANYONE or TTI_ROW_NOBODY */
    uint32_t epoch;
    int32_t blamed;  /* rank of the job that the last wait was for in the end, or TTI_ROW_NOBODY; and what was known */
    int64_t told_ns; /* of it at this moment, since it may wait for nobody and so show nothing: */
    char told[TTI_ROW_TEXT]; /* "last call was #7 …" */
    int64_t since_ns;        /* when the wait began; 0: it does not wait */
    int64_t seen_ns;         /* when this was written */
    uint64_t ops, bytes;
    int64_t waited_ns, skew_ns, skew_most_ns;
    char op[TTI_ROW_TEXT]; /* the last one that it was seen in */
    char device[TTI_ROW_DEVICE];
};
enum { TTI_ROW_WORDS = sizeof(struct tti_row_facts) / sizeof(uint64_t) };
_Static_assert(sizeof(struct tti_row_facts) % sizeof(uint64_t) == 0, "rows are copied by words");

struct tti_row {
    _Alignas(64) _Atomic uint32_t version; /* odd: it is being written */
    _Atomic uint64_t words[TTI_ROW_WORDS];
};

struct tti_rows {
    int32_t first, count, each; /* ranks, and those of a process */
    _Atomic uint32_t watched;   /* until this second of the clock; 0: nobody does */
    struct tti_row rows[];      /* [count] */
};

size_t tti_rows_bytes(int count);
void tti_rows_init(struct tti_rows *rows, int first, int count, int each);
/* Empties a process's rows: it is about to be started. */
void tti_rows_clear(struct tti_rows *rows, int process);
/* False: the rank has not joined, or was started again since. */
bool tti_rows_read(const struct tti_rows *rows, int rank, struct tti_row_facts *facts);

/* Asks all ranks to write with each op, for so long. */
void tti_rows_watch(struct tti_rows *rows, int seconds);

/* ---- A rank's own ---------------------------------------------------------------------------------------------------- */

/* The row of a rank of a process with `each` ranks, as mapped from the launcher's board; NULL: there is none. */
struct tti_row_handle;
struct tti_row_handle *tti_row_open(const tutti_options *options, int rank);
void tti_row_close(struct tti_row_handle *handle); /* NULL is ignored */
/* Not 0 while somebody watches. */
const _Atomic uint32_t *tti_row_watched(const struct tti_row_handle *handle);
/* Looks whether that is still so. */
bool tti_row_is_watched(const struct tti_row_handle *handle);
void tti_row_write(struct tti_row_handle *handle, const struct tti_row_facts *facts);

#endif
