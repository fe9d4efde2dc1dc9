/* SPDX-License-Identifier: Apache-2.0
 *
 * The latest error of a rank, from any part of the library: tutti_explain prints it when the comm that it is asked
 * about has no error of its own, so that a job that failed never looks successful. All comms of a rank share one
 * record. Errors that belong to no rank, such as a handle that was never given, go to the record of the process.
 * Thread-safe, and slow.
 */
#ifndef TTI_BASE_LATEST_H
#define TTI_BASE_LATEST_H

#include <stdbool.h>
#include <tutti/tutti.h>

struct tti_latest; /* NULL stands for the process's record, unless said otherwise */

/* An error as tutti_explain prints it. */
struct tti_told {
    tutti_error error; /* rank -1: the rank that asks */
    char numbers[240]; /* maps the error's rank numbers to ranks of the world; "": they are the world's */
};

/* Adds a user to a record; NULL: makes a record. Returns NULL if there is no memory. */
struct tti_latest *tti_latest_join(struct tti_latest *latest);
void tti_latest_part(struct tti_latest *latest); /* NULL is ignored */

void tti_latest_note(struct tti_latest *latest, const struct tti_told *told);
/* Notes an error of the process with this sentence. `operation`: for example "wait". Returns `status`. */
tutti_status tti_latest_stray(const char *operation, tutti_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Finds the newer one of this record's error and the process's. Returns false if neither has one. */
bool tti_latest_find(struct tti_latest *latest, struct tti_told *told);

/* Notes that the rank has failed, although no call may have reported it: tutti_main must not return 0. */
void tti_latest_fail(struct tti_latest *latest);
bool tti_latest_failed(const struct tti_latest *latest);

void tti_latest_forked(void); /* called in the child */

#endif
