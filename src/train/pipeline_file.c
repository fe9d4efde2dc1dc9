/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables as text, for people: docs/pipelines.md.
 *
 *     ranks 2
 *     micro 3
 *     rank 0: F0 F1 B0 F2 B1 B2
 *     rank 1: F0 B0 F1 B1 F2 B2
 *
 * A line is a setting, or steps of a rank, which are appended to its earlier ones. Errors name file and line.
 */
#include "train/pipeline_table.h"

#include "base/alloc.h"
#include "base/status.h"
#include "train/file.h"
#include <ctype.h>
#include <string.h>
#include <unistd.h>

enum { WORD_BYTES = 40, FILE_MOST = 1 << 28 };

struct reader {
    const char *path, *at, *end;
    size_t line;
    const char *line_end;         /* the end of this line's words */
    int ranks, chunks, micros;    /* 0: not given yet */
    int *stage_ranks;             /* NULL: not given */
    struct tutti_pipeline *table; /* NULL: settings may still come */
};

/* ---- Lines and words ------------------------------------------------------------------------------------------- */

/* Goes to the next line; returns false at the end of the file. Comments are skipped. */
static bool next_line(struct reader *reader)
{
    if (reader->line > 0) reader->at = reader->line_end;
    if (reader->line > 0) {
        const char *stop = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
        reader->at = stop == NULL ? reader->end : stop + 1;
    }
    if (reader->at == reader->end) return false;
    reader->line++;
    size_t left = (size_t)(reader->end - reader->at);
    const char *stop = memchr(reader->at, '\n', left);
    reader->line_end = stop == NULL ? reader->end : stop;
    const char *comment = memchr(reader->at, '#', (size_t)(reader->line_end - reader->at));
    if (comment != NULL) reader->line_end = comment;
    return true;
}

/* Reads the next word of the line; returns false if there is none. A word that is too long, or no text, ends in
 * dots. */
static bool next_word(struct reader *reader, char word[WORD_BYTES])
{
    const char *start = reader->at;
    while (start < reader->line_end && isspace((unsigned char)*start)) start++;
    const char *stop = start;
    while (stop < reader->line_end && !isspace((unsigned char)*stop)) stop++;
    reader->at = stop;
    size_t length = (size_t)(stop - start);
    bool whole = length < WORD_BYTES && memchr(start, '\0', length) == NULL;
    (void)snprintf(word, WORD_BYTES, whole ? "%.*s" : "%.*s...", whole ? (int)length : WORD_BYTES - 4, start);
    return length > 0;
}

/* Reads digits, up to `most`, at the front of *text, which is moved behind them. */
static bool take_number(const char **text, int most, int *number)
{
    const char *digit = *text;
    *number = 0;
    for (; isdigit((unsigned char)*digit); digit++) {
        if (*number > (most - (*digit - '0')) / 10) return false;
        *number = 10 * *number + (*digit - '0');
    }
    bool any = digit > *text;
    *text = digit;
    return any;
}

static bool is_number(const char *word, int most, int *number)
{
    return take_number(&word, most, number) && *word == '\0';
}

/* ---- Settings -------------------------------------------------------------------------------------------------- */

static tutti_status read_setting(struct reader *reader, const char *name, int most, int *setting, tutti_error *error)
{
    char word[WORD_BYTES], more[WORD_BYTES];
    if (reader->table != NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: '%s' must stand before the steps", reader->path,
                             reader->line, name);
    if (*setting != 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: '%s' is said twice", reader->path, reader->line,
                             name);
    if (!next_word(reader, word) || !is_number(word, most, setting) || *setting == 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: '%s' needs a number from 1 to %d, not '%s'",
                             reader->path, reader->line, name, most, word);
    if (!next_word(reader, more)) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: '%s' behind the number of '%s'", reader->path,
                         reader->line, more, name);
}

/* Checks that all sizes are known, and that the file is long enough for a table of them. */
static tutti_status check_settings(struct reader *reader, tutti_error *error)
{
    enum {
        STEP_BYTES = 3, /* a letter, a digit and a separator */
        SMALL = 4096    /* for a file up to this size the check says which step is missing */
    };
    if (reader->chunks == 0) reader->chunks = 1;
    if (reader->ranks == 0 || reader->micros == 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: '%s' must be said before this, such as '%s 4'",
                             reader->path, reader->line, reader->ranks == 0 ? "ranks" : "micro",
                             reader->ranks == 0 ? "ranks" : "micro");
    char who[400];
    (void)snprintf(who, sizeof who, "%.300s:%zu", reader->path, reader->line);
    TTI_TRY(tti_pipeline_check_sizes(who, reader->ranks, reader->chunks, reader->micros, error));
    int64_t steps = INT64_C(2) * reader->ranks * reader->chunks * reader->micros;
    if (steps * STEP_BYTES <= reader->end - reader->at + SMALL) return TUTTI_OK;
    return tti_error_set(
        error, TUTTI_ERR_ARGUMENT, 0,
        "%s: %d ranks, %d chunks and %d micro-batch%s need %lld steps at least, and what follows is too "
        "short for them",
        who, reader->ranks, reader->chunks, reader->micros, reader->micros == 1 ? "" : "es", (long long)steps);
}

static tutti_status read_stages(struct reader *reader, tutti_error *error)
{
    char word[WORD_BYTES];
    int found = 0;
    if (reader->table != NULL || reader->stage_ranks != NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: 'stages' %s", reader->path, reader->line,
                             reader->table != NULL ? "must stand before the steps" : "is said twice");
    TTI_TRY(check_settings(reader, error));
    int stages = reader->ranks * reader->chunks;
    reader->stage_ranks = tti_calloc((size_t)stages, sizeof(int));
    if (reader->stage_ranks == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory for %d stages", reader->path, stages);
    for (; next_word(reader, word); found++) {
        int rank;
        if (!is_number(word, TTI_PIPELINE_RANKS_MOST, &rank) || rank >= reader->ranks)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: '%s' is no rank; ranks are 0 to %d",
                                 reader->path, reader->line, word, reader->ranks - 1);
        if (found < stages) reader->stage_ranks[found] = rank;
    }
    if (found == stages) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s:%zu: %d stages; %d ranks with %d chunks each have %d",
                         reader->path, reader->line, found, reader->ranks, reader->chunks, stages);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

/* Reads "F3" or "F3.1". */
static bool parse_step(const char *word, tutti_pipeline_step *step)
{
    static const char letters[] = "FBIW";
    const char *letter = *word == '\0' ? NULL : strchr(letters, *word++);
    if (letter == NULL) return false;
    *step = (tutti_pipeline_step){.part = (tutti_pipeline_part)(letter - letters)};
    if (!take_number(&word, TTI_PIPELINE_MICROS_MOST, &step->micro)) return false;
    if (*word == '.' && (word++, !take_number(&word, TTI_PIPELINE_CHUNKS_MOST, &step->chunk))) return false;
    return *word == '\0';
}

/* Makes the table. Settings end at the first steps. */
static tutti_status make_table(struct reader *reader, tutti_error *error)
{
    tutti_error why = {0};
    TTI_TRY(check_settings(reader, error));
    tutti_status status = tutti_pipeline_create(reader->ranks, reader->chunks, reader->micros, reader->stage_ranks,
                                                &reader->table, &why);
    if (status == TUTTI_OK) return TUTTI_OK;
    return tti_error_set(error, status, 0, "%.200s: %.250s", reader->path, why.text);
}

/* Reads "0:". */
static tutti_status read_rank(struct reader *reader, int *rank, tutti_error *error)
{
    char word[WORD_BYTES];
    const char *at = word;
    if (next_word(reader, word) && take_number(&at, TTI_PIPELINE_RANKS_MOST, rank) && strcmp(at, ":") == 0 &&
        *rank < reader->ranks)
        return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "%.300s:%zu: 'rank %s' names no rank; a line of steps begins with 'rank 0:' to 'rank %d:'",
                         reader->path, reader->line, word, reader->ranks - 1);
}

static tutti_status read_steps(struct reader *reader, tutti_error *error)
{
    char word[WORD_BYTES];
    int rank = 0;
    if (reader->table == NULL) TTI_TRY(make_table(reader, error));
    TTI_TRY(read_rank(reader, &rank, error));
    while (next_word(reader, word)) {
        tutti_pipeline_step step;
        tutti_error why = {0};
        if (!parse_step(word, &step))
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                                 "%.300s:%zu: '%s' is no step; steps are F, B, I or W with a micro-batch and, behind a "
                                 "point, a chunk: F3 or F3.1",
                                 reader->path, reader->line, word);
        tutti_status status = tutti_pipeline_add(reader->table, rank, step, &why);
        if (status != TUTTI_OK)
            return tti_error_set(error, status, 0, "%.200s:%zu: %s: %.200s", reader->path, reader->line, word,
                                 why.text);
    }
    return TUTTI_OK;
}

/* ---- The file -------------------------------------------------------------------------------------------------- */

static tutti_status read_line(struct reader *reader, tutti_error *error)
{
    char word[WORD_BYTES];
    if (!next_word(reader, word)) return TUTTI_OK;
    if (strcmp(word, "rank") == 0) return read_steps(reader, error);
    if (strcmp(word, "stages") == 0) return read_stages(reader, error);
    if (strcmp(word, "ranks") == 0)
        return read_setting(reader, "ranks", TTI_PIPELINE_RANKS_MOST, &reader->ranks, error);
    if (strcmp(word, "chunks") == 0)
        return read_setting(reader, "chunks", TTI_PIPELINE_CHUNKS_MOST, &reader->chunks, error);
    if (strcmp(word, "micro") == 0)
        return read_setting(reader, "micro", TTI_PIPELINE_MICROS_MOST, &reader->micros, error);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "%.300s:%zu: '%s' is none of ranks, chunks, micro, stages and rank", reader->path,
                         reader->line, word);
}

tutti_status tti_pipeline_parse(const char *path, const char *text, size_t bytes, tutti_pipeline **pipeline,
                                tutti_error *error)
{
    struct reader reader = {.path = path, .at = text, .end = text + bytes};
    tutti_status status = TUTTI_OK;
    while (status == TUTTI_OK && next_line(&reader)) status = read_line(&reader, error);
    if (status == TUTTI_OK && reader.table == NULL)
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s has no steps; a line of them is 'rank 0: F0 B0'",
                               path);
    tti_free(reader.stage_ranks);
    if (status == TUTTI_OK)
        *pipeline = reader.table;
    else
        tutti_pipeline_free(reader.table);
    return status;
}

static tutti_status read_open(const char *path, int fd, uint64_t bytes, tutti_pipeline **pipeline, tutti_error *error)
{
    if (bytes > FILE_MOST)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%.300s has %llu bytes; a table has %d at most", path,
                             (unsigned long long)bytes, FILE_MOST);
    char *text = tti_malloc(bytes + 1, 1);
    if (text == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "%.300s: no memory to read it", path);
    tutti_status status = tti_file_read(fd, path, 0, bytes, text, error);
    if (status == TUTTI_OK) status = tti_pipeline_parse(path, text, bytes, pipeline, error);
    tti_free(text);
    return status;
}

tutti_status tutti_pipeline_read(const char *path, tutti_pipeline **pipeline, tutti_error *error)
{
    tutti_error unused;
    int fd;
    uint64_t bytes;
    error = tti_pipeline_error(error, &unused, "pipeline_read");
    if (path == NULL || pipeline == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: a file and a place to go are needed");
    if (tti_file_open(path, &fd, &bytes, error) != TUTTI_OK)
        return error->status = TUTTI_ERR_ARGUMENT; /* it is not a file of this library that was damaged */
    tutti_status status = read_open(path, fd, bytes, pipeline, error);
    (void)close(fd);
    return status;
}

static bool goes_round(const struct tutti_pipeline *pipeline)
{
    for (int stage = 0; stage < pipeline->stages; stage++)
        if (pipeline->stage_rank[stage] != stage % pipeline->ranks) return false;
    return true;
}

void tutti_pipeline_write(const tutti_pipeline *pipeline, FILE *stream)
{
    if (pipeline->name[0] != '\0') (void)fprintf(stream, "# %s\n", pipeline->name);
    (void)fprintf(stream, "ranks %d\n", pipeline->ranks);
    if (pipeline->chunks > 1) (void)fprintf(stream, "chunks %d\n", pipeline->chunks);
    (void)fprintf(stream, "micro %d\n", pipeline->micros);
    if (!goes_round(pipeline)) {
        (void)fprintf(stream, "stages");
        for (int stage = 0; stage < pipeline->stages; stage++)
            (void)fprintf(stream, " %d", pipeline->stage_rank[stage]);
        (void)fprintf(stream, "\n");
    }
    for (int rank = 0; rank < pipeline->ranks; rank++) {
        const struct tti_pipeline_steps *list = &pipeline->of_rank[rank];
        char text[TTI_PIPELINE_STEP_BYTES];
        (void)fprintf(stream, "rank %d:", rank);
        for (size_t i = 0; i < list->count; i++)
            (void)fprintf(stream, " %s", tutti_pipeline_step_text(pipeline, list->steps[i], text, sizeof text));
        (void)fprintf(stream, "\n");
    }
}
