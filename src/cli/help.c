/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints --help and the man page, both from the pages and rows that the parser reads.
 */
#include "cli/cli.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { COLUMNS = 90, HELP_COLUMN = 30, TEXT_BYTES = 128 };

/* The meaning of the tool's exit statuses, for help and man page. */
static const struct cli_example exit_statuses[] = {
    {"0", "success; of run: every rank ended with status 0"},
    {"1", "the tool itself failed while it worked; stderr says how"},
    {"2", "the command line or the program to run was not accepted; nothing was started"},
    {"128+N", "run: signal N killed the first rank that failed, or ended the launcher (Ctrl-C: 130)"},
    {"other", "run: the status of the first rank that failed"},
    {NULL, NULL},
};

/* ---- Rows as text ---------------------------------------------------------------------------------------------- */

/* Names the values of options whose rows say only that they are text. */
static const char *text_name(const char *option)
{
    static const char *const names[][2] = {
        {"tuning", "FILE"},    {"key_file", "FILE"},    {"trace", "FILE"},
        {"log", "LEVEL"},      {"transport", "NAME"},   {"interface", "NAME"},
        {"ports", "LOW-HIGH"}, {"master_addr", "HOST"}, {"data", "DATA"},
        {"save", "FOLDER"},    {"model", "gpt|mlp"},    {"optimizer", "NAME"},
        {"schedule", "NAME"},  {"loss", "NAME"},        {"cuda_path", "FOLDERS"},
        {"cache", "FOLDER"},   {"device", "NAME"},      {"device_provider", "NAME"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], option) == 0) return names[i][1];
    return "TEXT";
}

static const char *value_name(const struct cli_flag *flag)
{
    static const char *const names[] = {
        [TUTTI_OPTION_INT] = "N",    [TUTTI_OPTION_MS] = "TIME",     [TUTTI_OPTION_BYTES] = "BYTES",
        [TUTTI_OPTION_BOOL] = "0|1", [TUTTI_OPTION_REAL] = "NUMBER",
    };
    if (flag->is_switch) return "";
    if (flag->value != NULL) return flag->value;
    if (flag->choices != NULL) return flag->choices;
    return flag->row.kind == TUTTI_OPTION_TEXT ? text_name(flag->row.name) : names[flag->row.kind];
}

/* Turns "log_dir" into "log-dir". */
static const char *dashed(const char *name, char text[TEXT_BYTES])
{
    (void)snprintf(text, TEXT_BYTES, "%s", name);
    for (char *c = text; *c != '\0'; c++) *c = *c == '_' ? '-' : *c;
    return text;
}

const char *cli_bound_text(const tutti_option_row *row, int64_t bound, char text[32])
{
    static const char units[] = "MGT";
    const char *unit = units;
    int64_t number = bound >> 20;
    bool whole = row->kind == TUTTI_OPTION_BYTES && number > 0 && number << 20 == bound;
    for (; whole && unit[1] != '\0' && number % 1024 == 0; unit++) number /= 1024;
    if (whole)
        (void)snprintf(text, 32, "%" PRId64 "%c", number, *unit);
    else
        (void)snprintf(text, 32, "%" PRId64, bound);
    return text;
}

/* Writes a text such as "default 1; 1 to 65536", or "". */
static const char *default_text(const struct cli_flag *flag, char text[TEXT_BYTES])
{
    const tutti_option_row *row = &flag->row;
    char low[32], high[32];
    bool given = row->initial != NULL && row->initial[0] != '\0';
    text[0] = '\0';
    if (flag->is_switch || (!given && row->kind == TUTTI_OPTION_TEXT)) return text;
    const char *unit = row->kind == TUTTI_OPTION_MS ? " ms" : row->kind == TUTTI_OPTION_BYTES ? " bytes" : "";
    /* the default has its unit: 64M */
    if (given && !isdigit((unsigned char)row->initial[strlen(row->initial) - 1])) unit = "";
    if (row->kind == TUTTI_OPTION_TEXT || row->kind == TUTTI_OPTION_BOOL) {
        bool line = given && strcmp(row->initial, "\n") == 0; /* printed as it is, it would break the line */
        if (given) (void)snprintf(text, TEXT_BYTES, "default %s", line ? "a new line" : row->initial);
    } else if (given) {
        (void)snprintf(text, TEXT_BYTES, "default %s%s; %s to %s", row->initial, unit,
                       cli_bound_text(row, row->low, low), cli_bound_text(row, row->high, high));
    } else {
        (void)snprintf(text, TEXT_BYTES, "%s to %s%s", cli_bound_text(row, row->low, low),
                       cli_bound_text(row, row->high, high), row->kind == TUTTI_OPTION_BYTES ? "" : unit);
    }
    return text;
}

/* Calls `print` for the page's flags and then for the library's options that it passes on. */
typedef void flag_printer(FILE *stream, const struct cli_flag *flag);

static void each_own_flag(const struct cli_page *page, FILE *stream, flag_printer *print)
{
    static const struct cli_flag help_flag = {
        .row = {.name = "help", .kind = TUTTI_OPTION_BOOL, .help = "print this help"},
        .short_name = "h",
        .is_switch = true};
    for (const struct cli_flag *flag = page->flags; flag->row.name != NULL; flag++) print(stream, flag);
    print(stream, &help_flag);
}

static void each_library_flag(const struct cli_page *page, FILE *stream, flag_printer *print)
{
    size_t count = 0;
    const tutti_option_row *rows = tutti_option_rows(&count);
    for (size_t i = 0; i < count; i++) {
        if (cli_is_launcher_option(&rows[i]) || cli_find_flag(page, rows[i].name) != NULL) continue;
        struct cli_flag flag = {.row = rows[i]};
        print(stream, &flag);
    }
}

/* ---- Plain help ------------------------------------------------------------------------------------------------ */

/* Prints `text` from column `at` on, wrapped at COLUMNS, with following lines indented. A newline in the text stays. */
static void print_wrapped(FILE *stream, const char *text, int at, int indent)
{
    bool first = true; /* the first word of its line */
    while (*text != '\0') {
        int length = (int)strcspn(text, " \n");
        if (!first && at + 1 + length > COLUMNS) {
            (void)fprintf(stream, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        if (length > 0) at += fprintf(stream, "%s%.*s", first ? "" : " ", length, text);
        first = length == 0 && first;
        text += length;
        if (*text == '\n') {
            (void)fprintf(stream, "\n%*s", text[1] == '\n' ? 0 : indent, "");
            at = indent;
            first = true;
        }
        if (*text != '\0') text++;
    }
    (void)fprintf(stream, "\n");
}

static void print_flag(FILE *stream, const struct cli_flag *flag)
{
    char name[TEXT_BYTES], text[TEXT_BYTES], help[512];
    const char *value = value_name(flag);
    int at = flag->short_name != NULL ? fprintf(stream, "  -%s, --%s", flag->short_name, dashed(flag->row.name, name))
                                      : fprintf(stream, "      --%s", dashed(flag->row.name, name));
    if (*value != '\0') at += fprintf(stream, " %s", value);
    if (at < HELP_COLUMN - 1) {
        at += fprintf(stream, "%*s", HELP_COLUMN - at, "");
    } else {
        (void)fprintf(stream, "\n%*s", HELP_COLUMN, "");
        at = HELP_COLUMN;
    }
    const char *initial = default_text(flag, text);
    (void)snprintf(help, sizeof help, *initial != '\0' ? "%s (%s)" : "%s%s", flag->row.help, initial);
    print_wrapped(stream, help, at, HELP_COLUMN);
}

static void print_pairs(FILE *stream, const struct cli_example *pair, int column)
{
    for (; pair->line != NULL; pair++) {
        int at = fprintf(stream, "  %s", pair->line);
        if (at >= column) at = fprintf(stream, "\n") - 1;
        at += fprintf(stream, "%*s", column - at, "");
        print_wrapped(stream, pair->says, at, column);
    }
}

static void print_example(FILE *stream, const struct cli_example *example)
{
    (void)fprintf(stream, "  %s\n      ", example->line);
    print_wrapped(stream, example->says, 6, 6);
}

static void print_file(FILE *stream, const struct cli_file *file)
{
    (void)fprintf(stream, "\n%s:\n  ", file->title);
    print_wrapped(stream, file->about, 2, 2);
    (void)fprintf(stream, "\n");
    for (const char *const *line = file->lines; *line != NULL; line++) (void)fprintf(stream, "      %s\n", *line);
}

void cli_help_command(const struct cli_command *command, FILE *stream)
{
    const struct cli_page *page = command->page;
    (void)fprintf(stream, "tutti %s: %s\n\nusage: %s\n\n", command->name, command->summary, page->usage);
    print_wrapped(stream, page->about, 0, 0);
    (void)fprintf(stream, "\nexamples:\n");
    for (const struct cli_example *example = page->examples; example->line != NULL; example++)
        print_example(stream, example);
    (void)fprintf(stream, "\nflags:\n");
    each_own_flag(page, stream, print_flag);
    if (page->file != NULL) print_file(stream, page->file);
    if (!page->library_options) return;
    (void)fprintf(stream, "\nflags for the library, passed on in the environment (TUTTI_ and the name in capitals):\n");
    each_library_flag(page, stream, print_flag);
}

void cli_help_tool(FILE *stream)
{
    (void)fprintf(stream, "tutti: collectives and training on many ranks, be they threads, processes or hosts\n\n"
                          "usage: tutti COMMAND [flags] ...\n\ncommands:\n");
    size_t count = 0;
    const struct cli_command *commands = cli_commands(&count);
    for (size_t i = 0; i < count; i++) (void)fprintf(stream, "  %-13s%s\n", commands[i].name, commands[i].summary);
    (void)fprintf(stream, "  %-13s%s\n", "help", "say more about a command: tutti help COMMAND");
    (void)fprintf(stream, "\nexamples:\n");
    for (size_t i = 0; i < count; i++) print_example(stream, commands[i].page->examples);
    (void)fprintf(stream,
                  "\nflags:\n  --help       print this help\n  --version    print the version\n\nexit status:\n");
    print_pairs(stream, exit_statuses, 10);
}

/* ---- Man page -------------------------------------------------------------------------------------------------- */

/* Prints the first character of UTF-8 text, as \[u2026]. Returns the bytes that it takes; 1 if the text is not
 * UTF-8. */
static size_t roff_character(FILE *stream, const char *text)
{
    unsigned char first = (unsigned char)text[0];
    size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2, i = 1;
    unsigned code = first & (0x7fU >> bytes);
    for (; i < bytes && ((unsigned char)text[i] & 0xc0) == 0x80; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    (void)fprintf(stream, i == bytes ? "\\[u%04X]" : "?", code);
    return i;
}

/* Prints text as roff: escapes backslashes and dashes, starts no line with a control character, and prints empty lines
 * as .PP. */
static void roff(FILE *stream, const char *text)
{
    bool line_start = true;
    for (; *text != '\0'; text++) {
        if (text[0] == '\n' && text[1] == '\n') {
            (void)fprintf(stream, "\n.PP\n");
            text++;
            line_start = true;
            continue;
        }
        if (line_start && (*text == '.' || *text == '\'')) (void)fputs("\\&", stream);
        if (*text == '\\') {
            (void)fputs("\\e", stream);
        } else if (*text == '-') {
            (void)fputs("\\-", stream);
        } else if ((unsigned char)*text >= 0x80) {
            text += roff_character(stream, text) - 1;
        } else {
            (void)fputc(*text, stream);
        }
        line_start = *text == '\n';
    }
}

static void man_line(FILE *stream, const char *macro, const char *text)
{
    (void)fprintf(stream, "%s", macro);
    roff(stream, text);
    (void)fprintf(stream, "\n");
}

static void man_flag(FILE *stream, const struct cli_flag *flag)
{
    char name[TEXT_BYTES], text[TEXT_BYTES];
    (void)fprintf(stream, ".TP\n\\fB");
    if (flag->short_name != NULL) (void)fprintf(stream, "\\-%s\\fR, \\fB", flag->short_name);
    (void)fprintf(stream, "\\-\\-");
    roff(stream, dashed(flag->row.name, name));
    (void)fprintf(stream, "\\fR \\fI");
    roff(stream, value_name(flag));
    (void)fprintf(stream, "\\fR\n");
    roff(stream, flag->row.help);
    const char *initial = default_text(flag, text);
    if (*initial != '\0') (void)fprintf(stream, " (%s)", initial);
    (void)fprintf(stream, "\n");
}

static void man_file(FILE *stream, const struct cli_file *file)
{
    man_line(stream, ".PP\nThe ", file->title);
    man_line(stream, ".PP\n", file->about);
    (void)fprintf(stream, ".PP\n.nf\n.RS\n");
    for (const char *const *line = file->lines; *line != NULL; line++) man_line(stream, "", *line);
    (void)fprintf(stream, ".RE\n.fi\n");
}

static void man_command(FILE *stream, const struct cli_command *command)
{
    const struct cli_page *page = command->page;
    (void)fprintf(stream, ".SS \"tutti %s\"\n", command->name);
    man_line(stream, "", command->summary);
    man_line(stream, ".PP\n.B ", page->usage);
    man_line(stream, ".PP\n", page->about);
    each_own_flag(page, stream, man_flag);
    if (page->file != NULL) man_file(stream, page->file);
    if (page->library_options) (void)fprintf(stream, ".PP\nAnd the flags of the library, see OPTIONS.\n");
    (void)fprintf(stream, ".PP\nExamples:\n");
    for (const struct cli_example *example = page->examples; example->line != NULL; example++) {
        man_line(stream, ".TP\n.B ", example->line);
        man_line(stream, "", example->says);
    }
}

static void man_variable(FILE *stream, const tutti_option_row *row)
{
    struct cli_flag flag = {.row = *row};
    char text[TEXT_BYTES];
    (void)fprintf(stream, ".TP\n.B TUTTI_");
    for (const char *c = row->name; *c != '\0'; c++) (void)fputc(toupper((unsigned char)*c), stream);
    (void)fprintf(stream, "\n");
    roff(stream, row->help);
    const char *initial = default_text(&flag, text);
    if (*initial != '\0') (void)fprintf(stream, " (%s)", initial);
    (void)fprintf(stream, "\n");
}

void cli_help_man(FILE *stream)
{
    static const struct cli_flag no_flags[] = {{.row = {.name = NULL}}};
    static const struct cli_page none = {.flags = no_flags};
    (void)fprintf(stream,
                  ".TH TUTTI 1 \"\" \"tutti %d.%d.%d\"\n.SH NAME\ntutti \\- collectives and training on many ranks\n",
                  TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
    (void)fprintf(stream, ".SH SYNOPSIS\n.B tutti\n.I COMMAND\n[flags] ...\n.SH COMMANDS\n");
    size_t count = 0;
    const struct cli_command *commands = cli_commands(&count);
    for (size_t i = 0; i < count; i++) man_command(stream, &commands[i]);
    (void)fprintf(stream, ".SH OPTIONS\nOptions of the library, as flags of the commands that take them.\n");
    each_library_flag(&none, stream, man_flag);
    (void)fprintf(stream, ".SH ENVIRONMENT\nThe library reads its options from these.\n");
    const tutti_option_row *rows = tutti_option_rows(&count);
    for (size_t i = 0; i < count; i++) man_variable(stream, &rows[i]);
    (void)fprintf(stream, ".SH \"TUNING FILE\"\nLines of \"name value\"; # starts a comment. The names:\n");
    rows = tutti_tuning_rows(&count);
    for (size_t i = 0; i < count; i++) {
        char text[TEXT_BYTES];
        struct cli_flag flag = {.row = rows[i]};
        man_line(stream, ".TP\n.B ", rows[i].name);
        man_line(stream, "", rows[i].help);
        (void)fprintf(stream, "(%s)\n", default_text(&flag, text));
    }
    (void)fprintf(stream, ".SH \"EXIT STATUS\"\n");
    for (const struct cli_example *pair = exit_statuses; pair->line != NULL; pair++) {
        man_line(stream, ".TP\n.B ", pair->line);
        man_line(stream, "", pair->says);
    }
    (void)fprintf(stream,
                  ".SH \"SEE ALSO\"\nThe pages in share/doc/tutti/docs, below where this is installed: launchers, "
                  "training, simulation, tracing and others.\n");
}
