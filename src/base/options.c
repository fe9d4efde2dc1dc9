/* SPDX-License-Identifier: Apache-2.0
 *
 * An option is one row. Everything here is derived from the lists in the public headers: the rows, the defaults, the
 * environment, the tuning file. Values are read strictly: a value that is not wholly understood is refused with a
 * sentence that names the option, repeats the value and says what is accepted.
 */
#include "base/options.h"

#include "base/status.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* ---- Rows from the lists --------------------------------------------------------------------------------------- */

/* The form of a default in the list: a token for numbers, a string for TEXT. */
#define INITIAL_INT(initial) #initial
#define INITIAL_MS(initial) #initial
#define INITIAL_BYTES(initial) #initial
#define INITIAL_BOOL(initial) #initial
#define INITIAL_TEXT(initial) initial

static const tutti_option_row option_rows[] = {
#define OPTION_ROW(name, kind, initial, low, high, help)                                                               \
    {#name, TUTTI_OPTION_##kind, INITIAL_##kind(initial), low, high, help},
    TUTTI_OPTION_LIST(OPTION_ROW)
#undef OPTION_ROW
};

/* The offset of row i's value in tutti_options. */
static const size_t option_offsets[] = {
#define OPTION_OFFSET(name, kind, initial, low, high, help) offsetof(tutti_options, name),
    TUTTI_OPTION_LIST(OPTION_OFFSET)
#undef OPTION_OFFSET
};

static const tutti_option_row tuning_rows[] = {
#define TUNING_ROW(name, kind, initial, low, high, help) {#name, TUTTI_OPTION_##kind, #initial, low, high, help},
    TUTTI_TUNING_LIST(TUNING_ROW)
#undef TUNING_ROW
};

static const size_t tuning_offsets[] = {
#define TUNING_OFFSET(name, kind, initial, low, high, help) offsetof(tutti_tuning, name),
    TUTTI_TUNING_LIST(TUNING_OFFSET)
#undef TUNING_OFFSET
};

enum {
    OPTION_COUNT = sizeof option_rows / sizeof option_rows[0],
    TUNING_COUNT = sizeof tuning_rows / sizeof tuning_rows[0],
    WORD_BYTES = 64, /* longer words are never near to another */
    LINE_BYTES = 256
};

const tutti_option_row *tutti_option_rows(size_t *count)
{
    if (count != NULL) *count = OPTION_COUNT;
    return option_rows;
}

const tutti_option_row *tutti_tuning_rows(size_t *count)
{
    if (count != NULL) *count = TUNING_COUNT;
    return tuning_rows;
}

/* ---- Reading one value ----------------------------------------------------------------------------------------- */

typedef struct unit {
    const char *suffix;
    int64_t factor;
} unit;

static const unit no_units[] = {{"", 1}, {NULL, 0}};
static const unit ms_units[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"min", 60000}, {NULL, 0}};
static const unit byte_units[] = {
    {"", 1},  {"K", INT64_C(1) << 10}, {"M", INT64_C(1) << 20}, {"G", INT64_C(1) << 30}, {"T", INT64_C(1) << 40},
    {NULL, 0}};

static const unit *units_of(tutti_option_kind kind)
{
    if (kind == TUTTI_OPTION_MS) return ms_units;
    if (kind == TUTTI_OPTION_BYTES) return byte_units;
    return no_units;
}

/* Reads digits, one of the suffixes, and the end. A value too large for int64_t becomes INT64_MAX, which is outside
 * every row's range. */
static bool read_number(const char *text, const unit *units, int64_t *number)
{
    bool negative = *text == '-';
    if (negative) text++;
    if (*text < '0' || *text > '9') return false;
    int64_t value = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        int64_t digit = *text - '0';
        value = value > (INT64_MAX - digit) / 10 ? INT64_MAX : value * 10 + digit;
    }
    while (units->suffix != NULL && strcmp(units->suffix, text) != 0) units++;
    if (units->suffix == NULL) return false;
    value = value > INT64_MAX / units->factor ? INT64_MAX : value * units->factor;
    *number = negative ? -value : value;
    return true;
}

static bool read_bool(const char *text, int64_t *number)
{
    static const char *const words[] = {"0", "1", "no", "yes", "off", "on"}; /* words at odd places mean 1 */
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *number = (int64_t)(i % 2);
            return true;
        }
    }
    return false;
}

/* Writes what the row accepts, for people: "a whole number from 1 to 65536". */
static const char *accepted(const tutti_option_row *row, char *text, size_t bytes)
{
    static const char *const formats[] = {
        [TUTTI_OPTION_INT] = "a whole number from %" PRId64 " to %" PRId64,
        [TUTTI_OPTION_MS] = "a time from %" PRId64 " to %" PRId64 " ms, such as 250, 250ms, 3s or 2min",
        [TUTTI_OPTION_BYTES] = "a size from %" PRId64 " to %" PRId64 " bytes, such as 64, 64K, 1M or 2G",
    };
    if (row->kind == TUTTI_OPTION_BOOL) return "0, 1, no, yes, off or on";
    (void)snprintf(text, bytes, formats[row->kind], row->low, row->high);
    return text;
}

tutti_status tutti_option_parse(const tutti_option_row *row, const char *text, int64_t *number, tutti_error *error)
{
    if (row == NULL || text == NULL) return TUTTI_ERR_ARGUMENT;
    if (row->kind == TUTTI_OPTION_TEXT) return TUTTI_OK;
    if (row->kind == TUTTI_OPTION_REAL) return tutti_option_parse_real(row, text, NULL, error);
    char range[128];
    const char *wanted = accepted(row, range, sizeof range);
    int64_t value = 0;
    if (*text == '\0')
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s: the value is empty; give %s", row->name, wanted);
    bool understood = row->kind == TUTTI_OPTION_BOOL ? read_bool(text, &value)
                                                     : read_number(text, units_of(row->kind), &value);
    if (!understood || value < row->low || value > row->high) {
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s: \"%.64s\" is %s; give %s", row->name, text,
                             understood ? "out of range" : "not understood", wanted);
    }
    if (number != NULL) *number = value;
    return TUTTI_OK;
}

tutti_status tutti_option_parse_real(const tutti_option_row *row, const char *text, double *number, tutti_error *error)
{
    if (row == NULL || text == NULL || row->kind != TUTTI_OPTION_REAL) return TUTTI_ERR_ARGUMENT;
    char *end = NULL;
    double value = strtod(text, &end);
    bool understood = end != text && *end == '\0' && !isspace((unsigned char)*text);
    if (!understood || !(value >= (double)row->low && value <= (double)row->high)) {
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "%s: \"%.64s\" is %s; give a number from %" PRId64 " to %" PRId64, row->name, text,
                             understood ? "out of range" : "not understood", row->low, row->high);
    }
    if (number != NULL) *number = value;
    return TUTTI_OK;
}

/* ---- The nearest word ------------------------------------------------------------------------------------------ */

static int folded(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Counts insertions, deletions, replacements and swaps of neighbours. Rows i-2, i-1 and i of the usual table are
 * kept. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][WORD_BYTES + 1];
    for (size_t j = 0; j <= b_length; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            bool same = folded(a[i - 1]) == folded(b[j - 1]);
            row[j] = least(above[j - 1] + (same ? 0 : 1), least(above[j], row[j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                           folded(a[i - 2]) == folded(b[j - 1]);
            if (swapped) row[j] = least(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

static bool begins_with(const char *word, const char *start)
{
    while (*start != '\0' && folded(*word) == folded(*start)) word++, start++;
    return *start == '\0';
}

/* Returns the shortest word that begins with the typed one: an abbreviation says more than a few equal letters. Dashes
 * alone begin every flag, and abbreviate none. */
static const char *shortest_beginning(const char *word, const char *const *words, size_t count)
{
    const char *found = NULL;
    if (word[strspn(word, "-")] == '\0') return NULL;
    for (size_t i = 0; i < count; i++) {
        if (words[i] == NULL || !begins_with(words[i], word)) continue;
        if (found == NULL || strlen(words[i]) < strlen(found)) found = words[i];
    }
    return found;
}

const char *tutti_nearest(const char *word, const char *const *words, size_t count)
{
    if (word == NULL || words == NULL) return NULL;
    size_t length = strlen(word);
    if (length == 0 || length > WORD_BYTES) return NULL;
    const char *abbreviated = shortest_beginning(word, words, count);
    if (abbreviated != NULL) return abbreviated;
    size_t letters = length - strspn(word, "-");
    size_t nearest = (letters + 2) / 3 + 1; /* words at this distance or more are not near */
    const char *found = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t other = words[i] == NULL ? 0 : strlen(words[i]);
        if (other == 0 || other > WORD_BYTES) continue;
        size_t distance = edit_distance(word, length, words[i], other);
        if (distance >= nearest || (distance > 0 && distance >= least(length, other))) continue;
        nearest = distance;
        found = words[i];
    }
    return found;
}

/* Writes "auto, shm or tcp". */
static void list_words(const char *const *words, size_t count, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && used < bytes; i++) {
        const char *before = i == 0 ? "" : i + 1 == count ? " or " : ", ";
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", before, words[i]);
    }
}

tutti_status tti_option_word(const char *name, const char *value, const char *const *words, size_t count,
                             tutti_error *error)
{
    char list[LINE_BYTES];
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], value) == 0) return TUTTI_OK;
    list_words(words, count, list, sizeof list);
    const char *near = tutti_nearest(value, words, count);
    return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s is \"%.64s\"; it takes %s%s%s%s", name, value, list,
                         near == NULL ? "" : "; did you mean ", near == NULL ? "" : near, near == NULL ? "" : "?");
}

/* ---- Defaults and environment ---------------------------------------------------------------------------------- */

static void set_number(void *object, size_t offset, int64_t value)
{
    memcpy((char *)object + offset, &value, sizeof value);
}

static void set_bool(void *object, size_t offset, bool value)
{
    memcpy((char *)object + offset, &value, sizeof value);
}

static void set_text(void *object, size_t offset, const char *value)
{
    memcpy((char *)object + offset, &value, sizeof value);
}

static void environment_name(const char *name, char *variable, size_t bytes)
{
    (void)snprintf(variable, bytes, "TUTTI_%s", name);
    for (char *c = variable; *c != '\0'; c++) *c = (char)toupper((unsigned char)*c);
}

static tutti_status set_option(tutti_options *options, size_t i, tutti_error *error)
{
    const tutti_option_row *row = &option_rows[i];
    char variable[WORD_BYTES];
    environment_name(row->name, variable, sizeof variable);
    const char *text = getenv(variable);
    if (row->kind == TUTTI_OPTION_TEXT) {
        set_text(options, option_offsets[i], text != NULL ? text : row->initial);
        return TUTTI_OK;
    }
    int64_t value = strtoll(row->initial, NULL, 10);
    tutti_status status = TUTTI_OK;
    if (text != NULL) {
        tutti_option_row named = *row;
        named.name = variable; /* the reason names the variable that people can change */
        status = tutti_option_parse(&named, text, &value, error);
    }
    if (row->kind == TUTTI_OPTION_BOOL)
        set_bool(options, option_offsets[i], value != 0);
    else
        set_number(options, option_offsets[i], value);
    return status;
}

tutti_status tutti_options_init(tutti_options *options, tutti_error *error)
{
    if (options == NULL) return TUTTI_ERR_ARGUMENT;
    if (error != NULL) *error = (tutti_error){.peer = -1};
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    tutti_status first = TUTTI_OK;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        bool told = first != TUTTI_OK;
        tutti_status status = set_option(options, i, told ? NULL : error);
        if (!told) first = status;
    }
    return first;
}

/* ---- Variables that are no options ------------------------------------------------------------------------------- */

/* Other variables that the tool or make reads, or that systems set which load software as modules. */
static const char *const other_variables[] = {"TUTTI_KEY",  "TUTTI_BENCH_WORKER", "TUTTI_NO_INSTALL", "TUTTI_DIR",
                                              "TUTTI_HOME", "TUTTI_ROOT",         "TUTTI_VERSION"};
enum { OTHER_COUNT = sizeof other_variables / sizeof other_variables[0] };

static bool is_known(const char *variable)
{
    for (size_t i = 0; i < OTHER_COUNT; i++)
        if (strcmp(variable, other_variables[i]) == 0) return true;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char known[WORD_BYTES];
        environment_name(option_rows[i].name, known, sizeof known);
        if (strcmp(variable, known) == 0) return true;
    }
    return false;
}

static void find_nearest(tutti_stray_option *stray)
{
    const char *names[OPTION_COUNT];
    for (size_t i = 0; i < OPTION_COUNT; i++) names[i] = option_rows[i].name;
    const char *near = tutti_nearest(stray->name + strlen("TUTTI_"), names, OPTION_COUNT);
    stray->nearest[0] = '\0';
    if (near != NULL) environment_name(near, stray->nearest, sizeof stray->nearest);
}

bool tutti_options_stray(size_t *place, tutti_stray_option *stray)
{
    for (; environ != NULL && environ[*place] != NULL; ++*place) {
        const char *variable = environ[*place];
        size_t length = strcspn(variable, "=");
        if (strncmp(variable, "TUTTI_", 6) != 0 || length >= sizeof stray->name) continue;
        memcpy(stray->name, variable, length);
        stray->name[length] = '\0';
        if (is_known(stray->name)) continue;
        find_nearest(stray);
        ++*place;
        return true;
    }
    return false;
}

/* ---- Switch-over sizes ----------------------------------------------------------------------------------------- */

tutti_status tti_tuning_defaults(tutti_tuning *tuning)
{
    if (tuning == NULL) return TUTTI_ERR_ARGUMENT;
    memset(tuning, 0, sizeof *tuning);
    tuning->struct_size = sizeof *tuning;
    for (size_t i = 0; i < TUNING_COUNT; i++) {
        set_number(tuning, tuning_offsets[i], strtoll(tuning_rows[i].initial, NULL, 10));
    }
    return TUTTI_OK;
}

static tutti_status refuse_name(const char *name, tutti_error *error)
{
    const char *names[TUNING_COUNT];
    for (size_t i = 0; i < TUNING_COUNT; i++) names[i] = tuning_rows[i].name;
    const char *near = tutti_nearest(name, names, TUNING_COUNT);
    if (near == NULL) return tti_error_set(error, TUTTI_ERR_OPTION, 0, "\"%.64s\" is not a switch-over size", name);
    return tti_error_set(error, TUTTI_ERR_OPTION, 0, "\"%.64s\" is not a switch-over size; did you mean %s?", name,
                         near);
}

/* Reads one line, which is cut into words in place. `seen` has one flag per row: a name may be given once. */
static tutti_status read_line(char *line, tutti_tuning *tuning, bool *seen, tutti_error *error)
{
    static const char space[] = " \t\r\n\v\f";
    line[strcspn(line, "#")] = '\0';
    char *rest = NULL;
    const char *name = strtok_r(line, space, &rest);
    if (name == NULL) return TUTTI_OK;
    const char *value = strtok_r(NULL, space, &rest);
    const char *more = strtok_r(NULL, space, &rest);
    size_t i = 0;
    while (i < TUNING_COUNT && strcmp(tuning_rows[i].name, name) != 0) i++;
    if (i == TUNING_COUNT) return refuse_name(name, error);
    if (value == NULL)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s has no value; lines are \"name value\"", name);
    if (more != NULL) {
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s: \"%.64s\" follows the value; lines are \"name value\"",
                             name, more);
    }
    if (seen[i]) return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s is given twice", name);
    int64_t number = 0;
    tutti_status status = tutti_option_parse(&tuning_rows[i], value, &number, error);
    if (status != TUTTI_OK) return status;
    seen[i] = true;
    set_number(tuning, tuning_offsets[i], number);
    return TUTTI_OK;
}

static tutti_status read_lines(FILE *file, const char *path, tutti_tuning *tuning, tutti_error *error)
{
    bool seen[TUNING_COUNT] = {false};
    char line[LINE_BYTES];
    tutti_error why;
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        bool whole = strchr(line, '\n') != NULL || feof(file);
        if (!whole) {
            return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s:%d: the line is not text or is longer than %d bytes",
                                 path, number, LINE_BYTES - 2);
        }
        if (read_line(line, tuning, seen, &why) != TUTTI_OK) {
            return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s:%d: %s", path, number, why.text);
        }
    }
    if (ferror(file)) return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s: cannot be read: %m", path);
    return TUTTI_OK;
}

tutti_status tti_tuning_read(const char *path, tutti_tuning *tuning, tutti_error *error)
{
    if (path == NULL || tuning == NULL) return TUTTI_ERR_ARGUMENT;
    FILE *file = fopen(path, "re");
    if (file == NULL) return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s: cannot be opened: %m", path);
    tutti_tuning result = *tuning;
    tutti_status status = read_lines(file, path, &result, error);
    (void)fclose(file);
    if (status == TUTTI_OK) *tuning = result;
    return status;
}

tutti_status tti_tuning_load(const char *path, tutti_tuning *tuning, tutti_error *error)
{
    tutti_error why;
    tti_tuning_defaults(tuning);
    tutti_status status = path[0] == '\0' ? TUTTI_OK : tti_tuning_read(path, tuning, &why);
    return status == TUTTI_OK ? TUTTI_OK : tti_error_set(error, status, 0, "the option tuning: %s", why.text);
}
