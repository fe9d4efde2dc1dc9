/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints docs/errors.md and docs/options.md from the lists that the library itself is built from.
 */
#include "cli/cli.h"

#include <ctype.h>

struct status_row {
    const char *name, *group, *text;
    int value;
};

static const struct status_row statuses[] = {
#define ROW(name, value, group, text) {"TUTTI_" #name, group, text, value},
    TUTTI_STATUS_LIST(ROW)
#undef ROW
};

void cli_reference_errors(FILE *stream)
{
    (void)fprintf(stream,
                  "# Statuses\n\nPrinted by `tutti help --errors` from the list in `tutti.h`. What failed, who, "
                  "where and what to do\nstands in the comm's `tutti_error` (`tutti_comm_error`, "
                  "`tutti_explain`).\n\n| status | value | what broke | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        (void)fprintf(stream, "| `%s` | %d | %s | %s |\n", statuses[i].name, statuses[i].value, statuses[i].group,
                      statuses[i].text);
}

static void print_rows(FILE *stream, const tutti_option_row *rows, size_t count, const char *prefix)
{
    static const char *const kinds[] = {
        [TUTTI_OPTION_INT] = "number",  [TUTTI_OPTION_MS] = "time, ms", [TUTTI_OPTION_BYTES] = "bytes",
        [TUTTI_OPTION_BOOL] = "0 or 1", [TUTTI_OPTION_REAL] = "number", [TUTTI_OPTION_TEXT] = "text",
    };
    for (size_t i = 0; i < count; i++) {
        char name[80], low[32], high[32];
        int length = snprintf(name, sizeof name, "%s%s", prefix, rows[i].name);
        for (int c = 0; c < length && prefix[0] != '\0'; c++) name[c] = (char)toupper((unsigned char)name[c]);
        (void)fprintf(stream, "| `%s` | %s | %s | ", name, kinds[rows[i].kind],
                      rows[i].initial[0] == '\0' ? "none" : rows[i].initial);
        if (rows[i].kind == TUTTI_OPTION_TEXT)
            (void)fprintf(stream, "| %s |\n", rows[i].help);
        else
            (void)fprintf(stream, "%s to %s | %s |\n", cli_bound_text(&rows[i], rows[i].low, low),
                          cli_bound_text(&rows[i], rows[i].high, high), rows[i].help);
    }
}

void cli_reference_options(FILE *stream)
{
    static const char head[] = "kind | default | range | meaning |\n|---|---|---|---|---|\n";
    size_t count;
    const tutti_option_row *rows = tutti_option_rows(&count);
    (void)fprintf(
        stream,
        "# Options\n\nPrinted by `tutti help --options` from the lists in `tutti.h` and "
        "`experimental.h`. An option is a field of\n`tutti_options`, an environment variable and a "
        "flag of `tutti run` (`TUTTI_FENCE_MS`: `--fence-ms`). Times are written as 250,\n250ms, 3s or 2min, "
        "bytes as 64, 64K, 1M, 2G or 1T (powers of 1024). A value that is not understood is an\nerror; of a "
        "variable that is none of these, such as `TUTTI_RNAKS`, the job's first process warns.\n\n| variable | %s",
        head);
    print_rows(stream, rows, count, "TUTTI_");
    rows = tutti_tuning_rows(&count);
    (void)fprintf(stream,
                  "\n## Switch-over sizes\n\nMeasured and written by `tutti bench --tune FILE`, read with "
                  "`TUTTI_TUNING=FILE`: lines of `name value`, `#` starts a comment. Rank 0's hold for all.\n\n"
                  "| name | %s",
                  head);
    print_rows(stream, rows, count, "");
}
