/* SPDX-License-Identifier: Apache-2.0
 *
 * The config file of tutti train: each line is a flag. They are read as if they stood on the command line before its
 * own flags, so that these override the file.
 */
#include "cli/cli_train.h"

#include <stdlib.h>
#include <string.h>

enum { SETTINGS = 128 }; /* at least as many as the page has flags */

static const char blank[] = " \t\r\n", between[] = " \t\r\n="; /* `=` separates a name from its value */

static const char *is_config(int argc, char **argv, int i)
{
    if (strncmp(argv[i], "--config=", 9) == 0) return argv[i] + 9;
    return strcmp(argv[i], "--config") == 0 && i + 1 < argc ? argv[i + 1] : NULL;
}

/* *path stays NULL if no file is given. */
static int config_path(int argc, char **argv, const char **path)
{
    for (int i = 1; i < argc; i++) {
        const char *found = is_config(argc, argv, i);
        if (found != NULL && *path != NULL)
            return cli_refuse("train", "one --config at a time: '%s' or '%s'", *path, found);
        if (found != NULL) *path = found;
    }
    return CLI_GO_ON;
}

static int refuse_name(const struct cli_page *page, const char *path, int line, const char *name)
{
    const char *names[SETTINGS];
    size_t count = 0;
    for (const struct cli_flag *flag = page->flags; flag->row.name != NULL && count < SETTINGS; flag++)
        if (strcmp(flag->row.name, "config") != 0) names[count++] = flag->row.name;
    const char *near = tutti_nearest(name, names, count);
    if (near == NULL)
        return cli_refuse("train", "%s:%d: there is no setting '%s'; lines are flags without --, as in: steps 500",
                          path, line, name);
    return cli_refuse("train", "%s:%d: there is no setting '%s'; did you mean '%s'?", path, line, name, near);
}

/* Checks the value here, where the line is known. A switch has a value in a file. */
static int check_value(const struct cli_flag *flag, const char *path, int line, const char *value, bool *on)
{
    tutti_option_row row = flag->row;
    char where[512];
    tutti_error error;
    int64_t number = 1;
    (void)snprintf(where, sizeof where, "%.300s:%d: %s", path, line, row.name);
    row.name = where;
    if (tutti_option_parse(&row, value, &number, &error) != TUTTI_OK) return cli_refuse("train", "%s", error.text);
    *on = number != 0;
    return CLI_GO_ON;
}

/* Where the next flags of the file are put: words of argv, and their text. */
struct sink {
    struct train_words *words;
    size_t used;          /* bytes of the text */
    int set_at[SETTINGS]; /* the line that set each flag of the page; 0: none */
};

static void put_word(struct sink *sink, const char *name, const char *value)
{
    char *word = sink->words->text + sink->used;
    int length = value == NULL ? sprintf(word, "--%s", name) : sprintf(word, "--%s=%s", name, value);
    for (char *c = word; *c != '\0' && *c != '='; c++) *c = *c == '_' ? '-' : *c;
    sink->words->argv[sink->words->argc++] = word;
    sink->used += (size_t)length + 1;
}

static int take_line(const struct cli_page *page, const char *path, int number, char *line, struct sink *sink)
{
    line[strcspn(line, "#")] = '\0';
    char *name = line + strspn(line, blank), *end = name + strcspn(name, between);
    if (*name == '\0') return CLI_GO_ON;
    char *value = end + strspn(end, between);
    *end = '\0';
    for (char *last = value + strlen(value); last > value && strchr(blank, last[-1]) != NULL;) *--last = '\0';
    for (char *c = name; *c != '\0'; c++) *c = *c == '-' ? '_' : *c;
    const struct cli_flag *flag = cli_find_flag(page, name);
    bool on = true;
    if (flag == NULL || strcmp(name, "config") == 0) return refuse_name(page, path, number, name);
    if (*value == '\0') return cli_refuse("train", "%s:%d: %s has no value", path, number, name);
    int *set_at = &sink->set_at[flag - page->flags];
    if (*set_at != 0) return cli_refuse("train", "%s:%d: %s is set already, in line %d", path, number, name, *set_at);
    *set_at = number;
    int status = check_value(flag, path, number, value, &on);
    if (status == CLI_GO_ON && on) put_word(sink, name, flag->is_switch ? NULL : value);
    return status;
}

static int take_file(const struct cli_page *page, const char *path, FILE *file, struct train_words *words, int argc)
{
    char line[1024];
    struct sink sink = {.words = words};
    int status = CLI_GO_ON;
    for (int number = 1; status == CLI_GO_ON && fgets(line, sizeof line, file) != NULL; number++) {
        if (strchr(line, '\n') == NULL && !feof(file))
            return cli_refuse("train", "%s:%d: the line is not text or is longer than %zu bytes", path, number,
                              sizeof line - 2);
        size_t lines = (size_t)words->argc + 1, room = sink.used + sizeof line + 8;
        char **argv = realloc(words->argv, (lines + (size_t)argc + 1) * sizeof *argv);
        if (argv != NULL) words->argv = argv;
        if (argv == NULL || room > ((size_t)1 << 20)) return cli_fail("train", "%s is too long", path);
        status = take_line(page, path, number, line, &sink);
    }
    if (status == CLI_GO_ON && ferror(file)) return cli_blame_path("train", "cannot read", path);
    return status;
}

int train_read_config(const struct cli_page *page, int argc, char **argv, struct train_words *words)
{
    const char *path = NULL;
    int status = config_path(argc, argv, &path);
    if (status != CLI_GO_ON) return status;
    words->argv = malloc(((size_t)argc + 2) * sizeof *words->argv);
    words->text = malloc((size_t)1 << 20);
    if (words->argv == NULL || words->text == NULL) return cli_fail("train", "out of memory");
    words->argv[words->argc++] = argv[0];
    if (path != NULL) {
        FILE *file = fopen(path, "re");
        if (file == NULL) return cli_blame_path("train", "cannot read", path);
        status = take_file(page, path, file, words, argc);
        (void)fclose(file);
    }
    for (int i = 1; i < argc; i++) words->argv[words->argc++] = argv[i];
    words->argv[words->argc] = NULL;
    return status;
}
