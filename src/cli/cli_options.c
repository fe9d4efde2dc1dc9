/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses flags by their rows: --name value, --name=value, -n value, -nvalue. Flags end at the first word that is none,
 * or at --.
 */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 64, WORDS = 128 };

/* ---- Messages -------------------------------------------------------------------------------------------------- */

static void say(const char *command, const char *format, va_list arguments)
{
    char line[1024]; /* one write, so that lines of several processes are not mixed */
    int used = command == NULL ? snprintf(line, sizeof line, "tutti: ")
                               : snprintf(line, sizeof line, "tutti %s: ", command);
    (void)vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    (void)fprintf(stderr, "%s\n", tutti_text_printable(line)); /* names may hold any bytes */
}

int cli_refuse(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(command, format, arguments);
    va_end(arguments);
    return CLI_USAGE;
}

int cli_fail(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(command, format, arguments);
    va_end(arguments);
    return CLI_FAILED;
}

static bool is_bad_path(int why)
{
    return why == ENOENT || why == EACCES || why == ENOTDIR || why == EISDIR || why == EROFS || why == EPERM ||
           why == ENAMETOOLONG || why == ELOOP || why == EEXIST;
}

static bool is_bad_input(const tutti_error *error)
{
    return strcmp(tutti_status_group(error->status), "argument") == 0 || is_bad_path(error->system_errno);
}

int cli_blame(const char *command, const tutti_error *error)
{
    return is_bad_input(error) ? cli_refuse(command, "%s", error->text) : cli_fail(command, "%s", error->text);
}

int cli_blame_path(const char *command, const char *cannot, const char *path)
{
    int why = errno;
    return is_bad_path(why) ? cli_refuse(command, "%s %s: %s", cannot, path, strerror(why))
                            : cli_fail(command, "%s %s: %s", cannot, path, strerror(why));
}

bool cli_is_stdout(const char *path)
{
    return strcmp(path, "-") == 0;
}

int cli_check_output(const char *command, const char *path)
{
    struct stat about;
    if (path == NULL || path[0] == '\0' || cli_is_stdout(path)) return CLI_GO_ON;
    bool is_new = stat(path, &about) != 0;
    FILE *file = fopen(path, "ae");
    if (file == NULL || fclose(file) != 0) return cli_blame_path(command, "cannot write", path);
    if (is_new) (void)unlink(path); /* the command may end before it has anything to write */
    return CLI_GO_ON;
}

int cli_check_options(const char *command, int hosts)
{
    tutti_options options;
    tutti_error error;
    tutti_status status = tutti_options_init(&options, &error);
    if (status == TUTTI_OK) status = tutti_options_check(&options, hosts, &error);
    return status == TUTTI_OK ? CLI_GO_ON : cli_refuse(command, "%s", error.text);
}

/* ---- Rows and their names -------------------------------------------------------------------------------------- */

bool cli_is_launcher_option(const tutti_option_row *row)
{
    static const char *const names[] = {"ranks", "launcher", "job", "rank", "size", "board", "ticket"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(row->name, names[i]) == 0) return true;
    }
    return false;
}

const struct cli_flag *cli_find_flag(const struct cli_page *page, const char *name)
{
    for (const struct cli_flag *flag = page->flags; flag->row.name != NULL; flag++) {
        if (strcmp(flag->row.name, name) == 0) return flag;
    }
    return NULL;
}

/* Finds the library's option of that name, if the page accepts them and has no flag of its own for it. */
static const tutti_option_row *find_library_option(const struct cli_page *page, const char *name)
{
    size_t count = 0;
    const tutti_option_row *rows = tutti_option_rows(&count);
    for (size_t i = 0; page->library_options && i < count; i++) {
        if (strcmp(rows[i].name, name) == 0 && !cli_is_launcher_option(&rows[i])) return &rows[i];
    }
    return NULL;
}

/* Turns "log_dir" into "--log-dir". */
static const char *flag_name(const char *name, char text[NAME_BYTES])
{
    (void)snprintf(text, NAME_BYTES, "--%s", name);
    for (char *c = text; *c != '\0'; c++) *c = *c == '_' ? '-' : *c;
    return text;
}

static int refuse_flag(const char *command, const struct cli_page *page, const char *word)
{
    char texts[WORDS][NAME_BYTES];
    const char *words[WORDS] = {"--help"};
    size_t count = 1, rows_count = 0;
    for (const struct cli_flag *flag = page->flags; flag->row.name != NULL && count < WORDS; flag++, count++) {
        words[count] = flag_name(flag->row.name, texts[count]);
    }
    const tutti_option_row *rows = tutti_option_rows(&rows_count);
    for (size_t i = 0; page->library_options && i < rows_count && count < WORDS; i++) {
        if (cli_is_launcher_option(&rows[i])) continue;
        words[count] = flag_name(rows[i].name, texts[count]);
        count++;
    }
    const char *near = tutti_nearest(word, words, count);
    for (const struct cli_foreign *row = page->foreign; row != NULL && row->theirs != NULL; row++)
        if (strcmp(row->theirs, word) == 0) near = row->ours;
    if (near == NULL) return cli_refuse(command, "unknown flag '%s'; see tutti %s --help", word, command);
    if (near[0] != '-') return cli_refuse(command, "unknown flag '%s'; %s", word, near);
    return cli_refuse(command, "unknown flag '%s'; did you mean '%s'?", word, near);
}

/* ---- Values ---------------------------------------------------------------------------------------------------- */

/* Sets a field, which is a bool if its row is one, otherwise an int64_t. */
static void set_number(void *values, const struct cli_flag *flag, int64_t number)
{
    bool truth = number != 0;
    if (flag->row.kind == TUTTI_OPTION_BOOL)
        memcpy((char *)values + flag->offset, &truth, sizeof truth);
    else
        memcpy((char *)values + flag->offset, &number, sizeof number);
}

static void set_text(void *values, size_t offset, const char *text)
{
    memcpy((char *)values + offset, &text, sizeof text);
}

static void set_real(void *values, size_t offset, double number)
{
    memcpy((char *)values + offset, &number, sizeof number);
}

static int set_defaults(const char *command, const struct cli_page *page, void *values)
{
    for (const struct cli_flag *flag = page->flags; flag->row.name != NULL; flag++) {
        if (flag->row.kind == TUTTI_OPTION_TEXT) {
            set_text(values, flag->offset, flag->row.initial);
        } else if (flag->row.kind == TUTTI_OPTION_REAL) {
            double number = 0;
            if (tutti_option_parse_real(&flag->row, flag->row.initial, &number, NULL) != TUTTI_OK)
                return cli_fail(command, "the default of %s is wrong", flag->row.name);
            set_real(values, flag->offset, number);
        } else if (flag->row.initial != NULL && flag->row.initial[0] != '\0') {
            int64_t number = 0;
            tutti_error error;
            if (tutti_option_parse(&flag->row, flag->row.initial, &number, &error) != TUTTI_OK)
                return cli_fail(command, "the default is wrong: %s", error.text);
            set_number(values, flag, number);
        }
    }
    return CLI_GO_ON;
}

/* Checks that `text` is one of the words of "core|none", of which there are at most CHOICES. */
static int check_choice(const char *command, const char *name, const char *choices, const char *text)
{
    enum { CHOICES = 16 };
    char copy[256], *rest = NULL;
    const char *words[CHOICES];
    size_t count = 0;
    (void)snprintf(copy, sizeof copy, "%s", choices);
    for (char *word = strtok_r(copy, "|", &rest); word != NULL && count < CHOICES; word = strtok_r(NULL, "|", &rest)) {
        if (strcmp(word, text) == 0) return CLI_GO_ON;
        words[count++] = word;
    }
    const char *near = tutti_nearest(text, words, count);
    if (near == NULL) return cli_refuse(command, "%s: '%s' is not one of %s", name, text, choices);
    return cli_refuse(command, "%s: '%s' is not one of %s; did you mean '%s'?", name, text, choices, near);
}

static int check_value(const char *command, const tutti_option_row *row, const char *name, const char *text,
                       int64_t *number)
{
    tutti_option_row named = *row;
    tutti_error error;
    named.name = name; /* the error names the flag as it was typed */
    if (tutti_option_parse(&named, text, number, &error) == TUTTI_OK) return CLI_GO_ON;
    return cli_refuse(command, "%s", error.text);
}

static int take_real(const char *command, const struct cli_flag *flag, const char *name, const char *text, void *values)
{
    tutti_option_row named = flag->row;
    tutti_error error;
    double number = 0;
    named.name = name;
    if (tutti_option_parse_real(&named, text, &number, &error) != TUTTI_OK)
        return cli_refuse(command, "%s", error.text);
    set_real(values, flag->offset, number);
    return CLI_GO_ON;
}

/* Refuses an empty value, as from a shell's variable that is not set: otherwise the flag would silently be ignored. */
static int check_text(const char *command, const char *name, const char *text)
{
    return text[0] != '\0' ? CLI_GO_ON : cli_refuse(command, "%s: the value is empty; leave the flag out", name);
}

static int take_value(const char *command, const struct cli_flag *flag, const char *name, const char *text,
                      void *values)
{
    if (flag->row.kind == TUTTI_OPTION_TEXT) {
        int status = flag->choices == NULL ? check_text(command, name, text)
                                           : check_choice(command, name, flag->choices, text);
        if (status == CLI_GO_ON) set_text(values, flag->offset, text);
        return status;
    }
    if (flag->row.kind == TUTTI_OPTION_REAL) return take_real(command, flag, name, text, values);
    int64_t number = 0;
    int status = check_value(command, &flag->row, name, text, &number);
    if (status == CLI_GO_ON) set_number(values, flag, number);
    return status;
}

/* Sets an option of the library, which reads it from the environment, in this process and in those it starts. */
static int take_library_option(const char *command, const tutti_option_row *row, const char *name, const char *text)
{
    int64_t number = 0;
    int status = row->kind == TUTTI_OPTION_TEXT ? check_text(command, name, text) : CLI_GO_ON;
    if (status == CLI_GO_ON) status = check_value(command, row, name, text, &number);
    if (status != CLI_GO_ON) return status;
    char variable[NAME_BYTES];
    (void)snprintf(variable, sizeof variable, "TUTTI_%s", row->name);
    for (char *c = variable; *c != '\0'; c++) *c = (char)toupper((unsigned char)*c);
    return setenv(variable, text, 1) == 0 ? CLI_GO_ON : cli_fail(command, "out of memory");
}

/* ---- The command line ------------------------------------------------------------------------------------------ */

struct cursor {
    int argc, at; /* argv[at] is the word being read */
    char **argv;
};

static bool looks_like_flag(const char *word)
{
    return word[0] == '-' && word[1] != '\0'; /* "-" alone is stdout */
}

/* Returns the value next to the flag (`joined`, from --name=value or -nvalue), or else the next word. A flag that may
 * stand alone has the value `bare` if there is no next word or it is a flag. */
static const char *value_of(struct cursor *cursor, const char *joined, const char *bare)
{
    if (joined != NULL) return joined;
    bool at_end = cursor->at + 1 >= cursor->argc;
    if (at_end || (bare != NULL && looks_like_flag(cursor->argv[cursor->at + 1]))) return bare;
    return cursor->argv[++cursor->at];
}

static int take_flag(const char *command, const struct cli_page *page, struct cursor *cursor, void *values)
{
    const char *word = cursor->argv[cursor->at], *joined = strchr(word, '=');
    char name[NAME_BYTES], shown[NAME_BYTES];
    size_t length = joined != NULL ? (size_t)(joined - word) : strlen(word);
    if (joined != NULL) joined++;
    if (length >= sizeof name) return refuse_flag(command, page, word);
    memcpy(shown, word, length);
    shown[length] = '\0';
    for (size_t i = 0; i + 2 <= length; i++) name[i] = shown[i + 2] == '-' ? '_' : shown[i + 2];

    const struct cli_flag *flag = cli_find_flag(page, name);
    const tutti_option_row *option = flag == NULL ? find_library_option(page, name) : NULL;
    if ((flag == NULL && option == NULL) || strchr(shown, '_') != NULL) return refuse_flag(command, page, shown);
    if (flag != NULL && flag->is_switch) {
        if (joined != NULL) return cli_refuse(command, "%s takes no value", shown);
        set_number(values, flag, 1);
        return CLI_GO_ON;
    }
    const char *text = value_of(cursor, joined, flag == NULL ? NULL : flag->bare);
    if (text == NULL) return cli_refuse(command, "%s needs a value", shown);
    if (option != NULL) return take_library_option(command, option, shown, text);
    return take_value(command, flag, shown, text, values);
}

static int take_short_flag(const char *command, const struct cli_page *page, struct cursor *cursor, void *values)
{
    const char *word = cursor->argv[cursor->at];
    char shown[3] = {'-', word[1], '\0'};
    const struct cli_flag *flag = page->flags;
    while (flag->row.name != NULL && (flag->short_name == NULL || flag->short_name[0] != word[1])) flag++;
    if (flag->row.name == NULL) return refuse_flag(command, page, word);
    const char *joined = word[2] != '\0' ? word + 2 : NULL;
    bool number = flag->row.kind != TUTTI_OPTION_TEXT && flag->row.kind != TUTTI_OPTION_BOOL;
    if (number && joined != NULL && isalpha((unsigned char)joined[0])) /* -np 4, as in mpirun */
        return cli_refuse(command, "unknown flag '%s'; did you mean '%s'?", word, shown);
    if (flag->is_switch) {
        if (joined != NULL) return cli_refuse(command, "%s takes no value", shown);
        set_number(values, flag, 1);
        return CLI_GO_ON;
    }
    const char *text = value_of(cursor, joined, flag->bare);
    if (text == NULL) return cli_refuse(command, "%s needs a value", shown);
    return take_value(command, flag, shown, text, values);
}

static int print_help(const char *command)
{
    size_t count = 0;
    const struct cli_command *commands = cli_commands(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(commands[i].name, command) == 0) cli_help_command(&commands[i], stdout);
    }
    return CLI_OK;
}

int cli_parse(const char *command, const struct cli_page *page, int argc, char **argv, void *values, int *rest)
{
    struct cursor cursor = {argc, 1, argv};
    int status = set_defaults(command, page, values);
    for (; status == CLI_GO_ON && cursor.at < argc; cursor.at++) {
        const char *word = argv[cursor.at];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return print_help(command);
        if (!looks_like_flag(word)) break;
        if (strcmp(word, "--") == 0) {
            cursor.at++;
            break;
        }
        status = word[1] == '-' ? take_flag(command, page, &cursor, values)
                                : take_short_flag(command, page, &cursor, values);
    }
    if (status != CLI_GO_ON) return status;
    if (!page->operands && cursor.at < argc) {
        return cli_refuse(command, "unexpected word '%s'; see tutti %s --help", argv[cursor.at], command);
    }
    if (rest != NULL) *rest = cursor.at;
    return CLI_GO_ON;
}
