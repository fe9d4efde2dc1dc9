/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks for all tests. They are counted in memory that the processes of a test share, so that a check may stand in a rank
 * that is a thread or a process as well as in the test itself. The first failures are printed, with the place of the check and the
 * title of the case that runs.
 *
 *     check_title("%d ranks", size);
 *     CHECK(tutti_barrier(comm) == TUTTI_OK);
 *     CHECK_THAT(sum == 3, "the sum is %d", sum);
 *     return check_end();
 */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

/* Each gives what its condition was. */
#define CHECK(condition) check_that((condition), __FILE__, __LINE__, #condition, "%s", "")
#define CHECK_THAT(condition, ...) check_that((condition), __FILE__, __LINE__, #condition, __VA_ARGS__)
bool check_that(bool holds, const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Names the case that runs now. */
void check_title(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *check_titled(void);
/* Checks of all processes so far. */
long check_passed(void);
long check_failed(void);
/* Prints "N passed, M failed"; what main returns: not 0 where a check failed, or none was made. */
int check_end(void);

/* Whether `text` has these words; prints it if not. */
bool check_says(const char *text, const char *words);

#endif
