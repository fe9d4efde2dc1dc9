/* SPDX-License-Identifier: Apache-2.0
 *
 * The latest error of a rank, whatever it was of: tutti_explain tells it when the comm that it is asked about has none of
 * its own, so that a job that failed never looks well. All comms of a rank share one record. What is known to be no rank's,
 * such as a handle that was never given, goes to the record of the process. Thread-safe, and slow.
 */
#ifndef TTI_BASE_LATEST_H
#define TTI_BASE_LATEST_H

#include <stdbool.h>
#include <tutti/tutti.h>

struct tti_latest; /* NULL stands for the process's, where not said otherwise */

/* An error as tutti_explain prints it. */
struct tti_told {
    tutti_error error; /* rank -1: that of whoever asks */
    char numbers[240]; /* which ranks of the world its numbers mean; "": they are the world's */
};

/* One more user of a record; NULL: makes one. Returns NULL where there is no memory. */
struct tti_latest *tti_latest_join(struct tti_latest *latest);
void tti_latest_part(struct tti_latest *latest); /* NULL is ignored */

void tti_latest_note(struct tti_latest *latest, const struct tti_told *told);
/* Of the process: an error with this sentence. `operation`: "wait". Returns `status`. */
tutti_status tti_latest_stray(const char *operation, tutti_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The newer one of this record's and the process's. False: neither has one. */
bool tti_latest_find(struct tti_latest *latest, struct tti_told *told);

/* The rank has failed, although no call may have told it: tutti_main is not to return 0. */
void tti_latest_fail(struct tti_latest *latest);
bool tti_latest_failed(const struct tti_latest *latest);

void tti_latest_forked(void); /* in the child */

#endif
