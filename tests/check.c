/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PRINTED_MOST = 40, PRINTED_OF_LINE = 6, LINES = 4096 };

static struct totals {
    atomic_long passed, failed;
    atomic_int printed, printed_of[LINES]; /* failures of one line of the test */
    char title[256];
} * totals;

/* Before main, so that all processes of the test share it. */
__attribute__((constructor)) static void make_totals(void)
{
    totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (totals == MAP_FAILED) {
        perror("no shared memory to count checks in");
        abort();
    }
}

/* In one write: lines of several processes stay whole. */
static void print_failure(const char *file, int line, const char *what, const char *text)
{
    char all[1600];
    const char *name = strrchr(file, '/');
    snprintf(all, sizeof all - 1, "%s:%d: %s%s%s%s%s", name == NULL ? file : name + 1, line, totals->title,
             totals->title[0] == '\0' ? "" : ": ", what, text[0] == '\0' ? "" : ": ", text);
    strcat(all, "\n");
    fflush(stdout);
    if (write(STDOUT_FILENO, all, strlen(all)) < 0) abort();
}

static bool is_printed(int line)
{
    if (atomic_fetch_add(&totals->printed_of[line % LINES], 1) >= PRINTED_OF_LINE) return false;
    return atomic_fetch_add(&totals->printed, 1) < PRINTED_MOST;
}

bool check_that(bool holds, const char *file, int line, const char *what, const char *format, ...)
{
    atomic_fetch_add_explicit(holds ? &totals->passed : &totals->failed, 1, memory_order_relaxed);
    if (holds || !is_printed(line)) return holds;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_failure(file, line, what, text);
    return false;
}

void check_title(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(totals->title, sizeof totals->title, format, arguments);
    va_end(arguments);
}

const char *check_titled(void)
{
    return totals->title;
}

long check_passed(void)
{
    return atomic_load(&totals->passed);
}

long check_failed(void)
{
    return atomic_load(&totals->failed);
}

int check_end(void)
{
    long passed = check_passed(), failed = check_failed();
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}

bool check_says(const char *text, const char *words)
{
    if (strstr(text, words) != NULL) return true;
    printf("expected \"%s\" in: %s\n", words, text);
    return false;
}
