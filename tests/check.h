/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of one file and one thread: checks that are counted, and told where they fail.
 */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

enum { TOLD_MOST = 40 };

static int passed, failed;

__attribute__((format(printf, 2, 3))) static inline void check(bool condition, const char *format, ...)
{
    passed += condition;
    failed += !condition;
    if (condition || failed > TOLD_MOST) return;
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

#define CHECK(condition) check((condition), "%s:%d: %s: %s", __FILE__, __LINE__, __func__, #condition)
#define CHECK_THAT(condition, format, ...)                                                                             \
    check((condition), "%s:%d: %s: " format, __FILE__, __LINE__, #condition, ##__VA_ARGS__)

/* Prints the counts; what main returns. */
static inline int end_of_checks(void)
{
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

#endif
