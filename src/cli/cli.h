/* SPDX-License-Identifier: Apache-2.0
 *
 * The tool: one table of commands, and for each command one page that parsing, --help and the man page all read.
 * Code here uses the public headers only.
 */
#ifndef TUTTI_CLI_H
#define TUTTI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <tutti/experimental.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 }; /* exit statuses of the tool itself */
enum { CLI_GO_ON = -1 };                            /* cli_parse returns it: no exit status yet */

/* One flag. `row.name` is written as in the environment: "log_dir" is --log-dir. Its value goes to the field at
 * `offset` of the command's values: an int64_t, for REAL a double, or for TEXT a const char *. If it is not given, the
 * field gets the row's default; a number without a default has initial "", and its field keeps its value. */
struct cli_flag {
    tutti_option_row row;
    size_t offset;
    const char *short_name; /* "n" for -n, or NULL */
    const char *value;      /* what the help calls the value: "DIR"; NULL: by kind */
    const char *choices;    /* TEXT: "core|none", or NULL for any text */
    const char *bare; /* TEXT: its value if none follows, at the end or before another flag; NULL: one must follow */
    bool is_switch;   /* takes no value; sets an int64_t to 1 */
};

struct cli_example {
    const char *line; /* "tutti run -n 4 ./hello" */
    const char *says; /* what it does */
};

/* Another tool's name for a flag. Someone who types it is told ours, or, if that is no flag, what to do. */
struct cli_foreign {
    const char *theirs, *ours;
};

/* A file that a command reads and that users write by hand. */
struct cli_file {
    const char *title;        /* "config file" */
    const char *about;        /* what a line means; wrapped when printed */
    const char *const *lines; /* a working example, up to NULL */
};

/* The description of a command. The arrays end with an entry whose first field is NULL. */
struct cli_page {
    const char *usage; /* "tutti run [flags] PROGRAM [ARGUMENT]..." */
    const char *about; /* paragraphs, separated by an empty line; wrapped when printed */
    const struct cli_example *examples;
    const struct cli_flag *flags;
    const struct cli_foreign *foreign; /* ends with an entry without a name; NULL: none */
    const struct cli_file *file;       /* NULL: none */
    bool operands;        /* true if words that are no flags may follow; flags end at the first of them or at -- */
    bool library_options; /* also accepts the library's options as flags and passes them on as TUTTI_ environment */
};

struct cli_command {
    const char *name;
    const char *summary;               /* one line, no full stop */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */
    const struct cli_page *page;
};

/* ---- Commands: each in its own file, listed in main.c ---- */

extern const struct cli_page cli_run_page;
extern const struct cli_page cli_bench_page;
extern const struct cli_page cli_key_page;
extern const struct cli_page cli_train_page;
extern const struct cli_page cli_plan_page;
extern const struct cli_page cli_sample_page;
extern const struct cli_page cli_ckpt_page;
extern const struct cli_page cli_sim_page;
extern const struct cli_page cli_doctor_page;
extern const struct cli_page cli_pipeline_page;
extern const struct cli_page cli_top_page;
extern const struct cli_page cli_faultbench_page;
int cli_run(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_key(int argc, char **argv);
int cli_train(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_sample(int argc, char **argv);
int cli_ckpt(int argc, char **argv);
int cli_sim(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_pipeline(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_faultbench(int argc, char **argv);

const struct cli_command *cli_commands(size_t *count);

/* ---- For commands ---- */

/* Sets the defaults in `values`, then the flags in argv. `command` is the name for messages, "run". Returns CLI_GO_ON
 * with *rest the index of the first operand (argc if none), or an exit status: after --help, or after a message to
 * stderr about what was wrong. `rest` may be NULL if the page takes no operands. */
int cli_parse(const char *command, const struct cli_page *page, int argc, char **argv, void *values, int *rest);

/* They print "tutti run: …\n" to stderr and return CLI_USAGE or CLI_FAILED: `return cli_refuse("run", "…")`. */
__attribute__((format(printf, 2, 3))) int cli_refuse(const char *command, const char *format, ...);
__attribute__((format(printf, 2, 3))) int cli_fail(const char *command, const char *format, ...);
/* Prints the text of a library's error. Returns CLI_USAGE if the input is to blame, a missing file included, otherwise
 * CLI_FAILED. */
int cli_blame(const char *command, const tutti_error *error);
/* Prints "CANNOT PATH: why" and returns a status by errno, in the same way: cli_blame_path("run", "cannot open",
 * path). */
int cli_blame_path(const char *command, const char *cannot, const char *path);
/* Returns true for "-" in place of a file's name. */
bool cli_is_stdout(const char *path);
/* Returns CLI_GO_ON if the file can be written, and leaves it as it was, or absent. "" and stdout: does nothing. */
int cli_check_output(const char *command, const char *path);
/* Returns CLI_GO_ON if ranks could join with the library's current options, in a job of so many hosts, this one among
 * them; 0: all ranks are on other hosts. */
int cli_check_options(const char *command, int hosts);

/* ---- Help ---- */

/* Returns true for the library's options that are no flags: they say who a rank is, which the launcher decides. */
bool cli_is_launcher_option(const tutti_option_row *row);
const struct cli_flag *cli_find_flag(const struct cli_page *page, const char *name); /* NULL: none */

/* Returns the lowest or highest value of a row as a user would write it: "65536", for bytes "16M". */
const char *cli_bound_text(const tutti_option_row *row, int64_t bound, char text[32]);

void cli_help_tool(FILE *stream);
void cli_help_command(const struct cli_command *command, FILE *stream);
void cli_help_man(FILE *stream);
/* They print docs/errors.md and docs/options.md. */
void cli_reference_errors(FILE *stream);
void cli_reference_options(FILE *stream);

#endif
