/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of numbers: one row per line, cells separated by commas, a first line of names if none of its cells is a
 * number. Every row must have as many cells as the first; errors name file, line and column.
 */
#include "train/data.h"

#include "base/alloc.h"
#include "base/status.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL_BYTES = 64 };

struct reader {
    const char *path, *at, *end;
    size_t line;
};

/* Finds the next line that is not blank, without its end. Returns false at the end of the file. */
static bool next_line(struct reader *reader, const char **from, const char **to)
{
    while (reader->at < reader->end) {
        const char *start = reader->at;
        const char *stop = memchr(start, '\n', (size_t)(reader->end - start));
        reader->at = stop == NULL ? reader->end : stop + 1;
        reader->line++;
        if (stop == NULL) stop = reader->end;
        while (stop > start && isspace((unsigned char)stop[-1])) stop--;
        while (start < stop && isspace((unsigned char)*start)) start++;
        if (start == stop) continue;
        *from = start;
        *to = stop;
        return true;
    }
    return false;
}

/* Cuts the first cell off the line; its text, without spaces around it, goes to `cell`. A cell that is too long for a
 * number, or no text, ends in dots there, and is no number. */
static void next_cell(const char **from, const char *to, char cell[CELL_BYTES])
{
    const char *comma = memchr(*from, ',', (size_t)(to - *from));
    const char *start = *from, *stop = comma == NULL ? to : comma;
    *from = comma == NULL ? NULL : comma + 1;
    while (start < stop && isspace((unsigned char)*start)) start++;
    while (stop > start && isspace((unsigned char)stop[-1])) stop--;
    size_t length = (size_t)(stop - start);
    bool whole = length < CELL_BYTES && memchr(start, '\0', length) == NULL;
    (void)snprintf(cell, CELL_BYTES, whole ? "%.*s" : "%.*s...", whole ? (int)length : CELL_BYTES - 4, start);
}

static bool cell_number(const char *cell, float *number)
{
    char *end = NULL;
    *number = strtof(cell, &end);
    return *cell != '\0' && *end == '\0' && isfinite(*number);
}

/* Counts cells, and how many of them are numbers. */
static size_t count_numbers(const char *from, const char *to, size_t *columns)
{
    size_t numbers = 0;
    *columns = 0;
    while (from != NULL) {
        char cell[CELL_BYTES];
        float number;
        next_cell(&from, to, cell);
        numbers += cell_number(cell, &number);
        ++*columns;
    }
    return numbers;
}

/* Reads one row. `first`: it is the file's first line. */
static tutti_status read_row(const struct reader *reader, const char *from, const char *to, size_t columns, bool first,
                             float *cells, tutti_error *error)
{
    size_t column = 0;
    for (; from != NULL; column++) {
        char cell[CELL_BYTES];
        float number = 0;
        next_cell(&from, to, cell);
        if (column < columns && !cell_number(cell, &number))
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: column %zu is \"%s\", not a number%s",
                                 reader->path, reader->line, column + 1, cell,
                                 first ? "; in a first line of names no cell is one" : "");
        if (column < columns) cells[column] = number;
    }
    if (column == columns) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: %zu columns, but the rows before it have %zu",
                         reader->path, reader->line, column, columns);
}

static size_t count_lines(struct reader reader)
{
    const char *from, *to;
    size_t lines = 0;
    while (next_line(&reader, &from, &to)) lines++;
    return lines;
}

static tutti_status read_table(struct reader *reader, struct tti_csv *table, tutti_error *error)
{
    const char *from = NULL, *to = NULL;
    size_t most = count_lines(*reader);
    struct reader first = *reader;
    if (most == 0) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s has no rows", reader->path);
    (void)next_line(&first, &from, &to);
    bool names = count_numbers(from, to, &table->columns) == 0;
    if (names) *reader = first;
    if (table->columns < 2)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "%.300s has one column; inputs and, last, a target are needed", reader->path);
    table->cells = tti_calloc(most * table->columns, sizeof *table->cells);
    if (table->cells == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory for %zu rows", reader->path, most);
    for (; next_line(reader, &from, &to); table->rows++)
        TTI_TRY(read_row(reader, from, to, table->columns, table->rows == 0 && !names,
                         table->cells + table->rows * table->columns, error));
    if (table->rows > 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s has names but no rows of numbers", reader->path);
}

tutti_status tti_csv_read(const char *path, struct tti_csv *table, tutti_error *error)
{
    struct tti_file file;
    *table = (struct tti_csv){0};
    TTI_TRY(tti_file_map(path, &file, error));
    const char *text = (const char *)file.bytes;
    struct reader reader = {.path = path, .at = text, .end = text + file.count};
    tutti_status status = read_table(&reader, table, error);
    tti_file_unmap(&file);
    if (status != TUTTI_OK) {
        tti_free(table->cells);
        *table = (struct tti_csv){0};
    }
    return status;
}
