/* SPDX-License-Identifier: Apache-2.0
 *
 * A table behind the launcher's board, with a row for each rank of this host that shows what the rank does. `tutti top`
 * reads it, and so does the launcher when the job fails.
 *
 * Invariant: only the row's rank writes there (one of its threads at a time), and the launcher when it starts its
 * process again. Readers copy a row and check whether it changed meanwhile; a rank that died while it wrote leaves a
 * row that is read as it is.
 *
 * A rank writes when it waits for long, and with each op while a reader watches: an op reads only the word that says
 * so.
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
    int32_t pid, awaited; /* awaited: a rank of the job, TTI_ROW_ANYONE or TTI_ROW_NOBODY */
    uint32_t epoch;
    int32_t blamed;          /* the rank of the job that was the cause of the last wait, or TTI_ROW_NOBODY */
    int64_t told_ns;         /* when `told` was written, since that rank may wait for nobody and so show nothing */
    char told[TTI_ROW_TEXT]; /* what was known of that rank then: "last call was #7 …" */
    int64_t since_ns;        /* when the wait began; 0: it does not wait */
    int64_t seen_ns;         /* when this row was written */
    uint64_t ops, bytes;
    int64_t waited_ns, skew_ns, skew_most_ns;
    char op[TTI_ROW_TEXT]; /* the last op in which the rank was seen */
    char device[TTI_ROW_DEVICE];
    /* of a rank of another host, written by the launcher in its place; host "": the rank writes, and has none of these */
    char host[TTI_ROW_DEVICE];
    int64_t memory_bytes;
    int32_t state, restarts, ended, wait_status;
};
enum { TTI_ROW_WORDS = sizeof(struct tti_row_facts) / sizeof(uint64_t) };
_Static_assert(sizeof(struct tti_row_facts) % sizeof(uint64_t) == 0, "rows are copied by words");

struct tti_row {
    _Alignas(64) _Atomic uint32_t version; /* odd: it is being written */
    _Atomic uint64_t words[TTI_ROW_WORDS];
};

struct tti_rows {
    int32_t first, count, each; /* the ranks, and how many a process has */
    _Atomic uint32_t watched;   /* watched until this second of the clock; 0: nobody watches */
    struct tti_row rows[];      /* [count] */
};

size_t tti_rows_bytes(int count);
void tti_rows_init(struct tti_rows *rows, int first, int count, int each);
/* Empties a process's rows before it is started. */
void tti_rows_clear(struct tti_rows *rows, int process);
/* Returns false if the rank has not joined, or was started again since. */
bool tti_rows_read(const struct tti_rows *rows, int rank, struct tti_row_facts *facts);

/* Writes a row in the place of its rank, which is of another host. */
void tti_rows_write(struct tti_rows *rows, int rank, const struct tti_row_facts *facts);

/* Asks all ranks to write with each op, for so many seconds; and for how long they are asked still. */
void tti_rows_watch(struct tti_rows *rows, int seconds);
bool tti_rows_are_watched(const struct tti_rows *rows);

/* ---- A rank's own ---------------------------------------------------------------------------------------------------- */

/* Opens the row of a rank, mapped from the launcher's board; NULL: there is none. */
struct tti_row_handle;
struct tti_row_handle *tti_row_open(const tutti_options *options, int rank);
void tti_row_close(struct tti_row_handle *handle); /* NULL is ignored */
/* Returns a word that is not 0 while a reader watches. */
const _Atomic uint32_t *tti_row_watched(const struct tti_row_handle *handle);
/* Checks whether a reader still watches. */
bool tti_row_is_watched(const struct tti_row_handle *handle);
void tti_row_write(struct tti_row_handle *handle, const struct tti_row_facts *facts);

#endif
