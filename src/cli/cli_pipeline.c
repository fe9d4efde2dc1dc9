/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti pipeline: checks, prints and draws tables of pipelines.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/pipeline.h>

/* ---- The page ---------------------------------------------------------------------------------------------------- */

struct values { /* the flags, as given */
    int64_t ranks, micro, chunks;
    const char *times, *picture, *json;
};

#define OFFSET(field) offsetof(struct values, field)

static const struct cli_flag pipeline_flags[] = {
    {.row = {"ranks", TUTTI_OPTION_INT, "", 1, 65536, "ranks of a table that is named"},
     .offset = OFFSET(ranks),
     .short_name = "n"},
    {.row = {"micro", TUTTI_OPTION_INT, "", 1, 1048576, "its micro-batches"},
     .offset = OFFSET(micro),
     .short_name = "m"},
    {.row = {"chunks", TUTTI_OPTION_INT, "", 1, 1024,
             "its stages per rank; 2 of interleaved and zb-v if not given, else 1"},
     .offset = OFFSET(chunks)},
    {.row = {"times", TUTTI_OPTION_TEXT, "1,1,1", 0, 0,
             "what a forward step, an input part and a weights part of one stage take, in any unit"},
     .offset = OFFSET(times),
     .value = "F,I,W"},
    {.row = {"picture", TUTTI_OPTION_TEXT, "", 0, 0, "draw it as SVG; -: to stdout, the table to stderr"},
     .offset = OFFSET(picture),
     .value = "FILE"},
    {.row = {"json", TUTTI_OPTION_TEXT, "", 0, 0,
             "write the verdict as a line of JSON; - or no value: to stdout, the table to stderr"},
     .offset = OFFSET(json),
     .value = "[FILE]",
     .bare = "-"},
    {.row = {.name = NULL}},
};

static const struct cli_example pipeline_examples[] = {
    {"tutti pipeline 1f1b --ranks 4 --micro 8",
     "its table, how long it takes, how idle each rank is and what it keeps"},
    {"tutti pipeline zb-v --ranks 4 --micro 8 --times 1,1.2,0.9 --picture zb-v.svg",
     "with times of one's own, drawn too"},
    {"tutti pipeline 1f1b -n 4 -m 8 > mine; $EDITOR mine; tutti pipeline mine",
     "change a table by hand, and find out whether it can be carried out"},
    {NULL, NULL},
};

static const char *const file_lines[] = {"ranks 2", "micro 3", "rank 0: F0 F1 B0 F2 B1 B2", "rank 1: F0 B0 F1 B1 F2 B2",
                                         NULL};
static const struct cli_file pipeline_file = {
    .title = "file with a table",
    .about =
        "A line of steps names its rank; F, B, I and W are forward, backward, and backward's input and weights parts, "
        "with a micro-batch and, of several chunks, a chunk: F3.1. Before them stand ranks, micro and, where there are "
        "several, chunks and the rank of each stage: stages 0 1 1 0. # begins a comment.",
    .lines = file_lines,
};

const struct cli_page cli_pipeline_page = {
    .usage = "tutti pipeline gpipe|1f1b|interleaved|zb-h1|zb-v --ranks N --micro N [flags]\n"
             "       tutti pipeline FILE [flags]",
    .about = "Prints the table of a pipeline, who does what in which order, and checks it: each step is there once, "
             "and ranks "
             "never wait for each other in a round, with no message buffered. Says how long it takes, how much of that "
             "ranks "
             "are idle, and how many micro-batches (of chunks) each rank keeps at once.\n\n"
             "What is printed is a file with the table: it can be changed by hand and given back. A file whose table "
             "cannot be "
             "carried out is refused with status 2, and the step, its rank and the round are named.",
    .examples = pipeline_examples,
    .flags = pipeline_flags,
    .file = &pipeline_file,
    .operands = true,
};

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

/* Parses the command line. The table may come before, between or after the flags. */
static int parse(int argc, char **argv, struct values *flags, const char **word)
{
    for (;;) {
        int rest = 0, status = cli_parse("pipeline", &cli_pipeline_page, argc, argv, flags, &rest);
        if (status != CLI_GO_ON) return status;
        if (rest == argc) break;
        if (*word != NULL) return cli_refuse("pipeline", "one table at a time: '%s' or '%s'", *word, argv[rest]);
        *word = argv[rest];
        memmove(&argv[rest], &argv[rest + 1], (size_t)(argc - rest - 1) * sizeof *argv);
        argc--;
    }
    if (*word == NULL)
        return cli_refuse("pipeline", "which table? For example: tutti pipeline 1f1b --ranks 4 --micro 8");
    if (cli_is_stdout(flags->picture) && cli_is_stdout(flags->json))
        return cli_refuse("pipeline", "--picture - and --json both write to stdout; give one of them a file");
    return CLI_GO_ON;
}

/* Reads times such as "1,1.2,0.9". */
static int parse_times(const char *text, tutti_pipeline_times *times)
{
    double *parts[] = {&times->forward, &times->input, &times->weights};
    const char *at = text;
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        *parts[i] = strtod(at, &end);
        if (end == at || *end != (i < 2 ? ',' : '\0') || !(*parts[i] >= 0 && *parts[i] <= 1e12))
            return cli_refuse("pipeline", "--times %s: give three numbers from 0 on, such as 1,1.2,0.9", text);
        at = end + 1;
    }
    return CLI_GO_ON;
}

static bool is_name(const char *word)
{
    const char *name;
    for (size_t i = 0; (name = tutti_pipeline_names(i)) != NULL; i++)
        if (strcmp(name, word) == 0) return true;
    return false;
}

static int refuse_word(const char *word)
{
    const char *names[16], *name;
    size_t count = 0;
    while (count < 16 && (name = tutti_pipeline_names(count)) != NULL) names[count++] = name;
    const char *near = tutti_nearest(word, names, count);
    return cli_refuse("pipeline", "'%s' is no table's name, and there is no such file%s%s%s", word,
                      near == NULL ? "" : "; did you mean '", near == NULL ? "" : near, near == NULL ? "" : "'?");
}

static int make_named(const struct values *flags, const char *word, tutti_pipeline **table)
{
    tutti_error error;
    if (flags->ranks == 0 || flags->micro == 0)
        return cli_refuse("pipeline", "%s: how many %s? Give --%s", word, flags->ranks == 0 ? "ranks" : "micro-batches",
                          flags->ranks == 0 ? "ranks" : "micro");
    tutti_status status = tutti_pipeline_build(word, (int)flags->ranks, (int)flags->chunks, (int)flags->micro, table,
                                               &error);
    return status == TUTTI_OK ? CLI_GO_ON : cli_blame("pipeline", &error);
}

static int make_table(const struct values *flags, const char *word, tutti_pipeline **table)
{
    tutti_error error;
    if (is_name(word)) return make_named(flags, word, table);
    if (flags->ranks != 0 || flags->micro != 0 || flags->chunks != 0) {
        FILE *file = fopen(word, "re");
        if (file == NULL) return refuse_word(word);
        (void)fclose(file);
        return cli_refuse("pipeline",
                          "%s says itself how many ranks, micro-batches and chunks it has; leave out the flags", word);
    }
    if (tutti_pipeline_read(word, table, &error) == TUTTI_OK) return CLI_GO_ON;
    return error.system_errno == ENOENT ? refuse_word(word) : cli_blame("pipeline", &error);
}

/* ---- What is said ------------------------------------------------------------------------------------------------ */

struct report {
    const tutti_pipeline *table;
    const char *word;
    tutti_pipeline_about about;
    tutti_pipeline_times times;
    tutti_pipeline_verdict verdict;
};

static void print_table(FILE *stream, const struct report *report)
{
    const tutti_pipeline_times *times = &report->times;
    tutti_pipeline_write(report->table, stream);
    (void)fprintf(stream, "# can be carried out: %zu steps, each once, and none waits for itself\n",
                  report->about.steps);
    (void)fprintf(stream, "# makespan %.10g with F=%g I=%g W=%g per stage; bubble %.1f%%%s\n", report->verdict.makespan,
                  times->forward, times->input, times->weights, 100 * report->verdict.idle,
                  report->verdict.ordered ? "" : "; weights are not in the order of micro-batches");
    (void)fprintf(stream, "# rank       busy    idle   live%s\n", report->about.chunks > 1 ? " (chunks)" : "");
    for (int rank = 0; rank < report->about.ranks; rank++) {
        const tutti_pipeline_load *load = &report->verdict.loads[rank];
        (void)fprintf(stream, "# %4d %10.6g %6.1f%% %6d\n", rank, load->busy, 100 * load->idle, load->live);
    }
}

static void print_json(FILE *stream, const struct report *report)
{
    (void)fprintf(
        stream,
        "{\"table\": \"%s\", \"ranks\": %d, \"chunks\": %d, \"micro\": %d, \"steps\": %zu, \"times\": [%.10g, "
        "%.10g, %.10g], \"makespan\": %.10g, \"idle\": %.10g, \"live\": %d, \"ordered\": %s, \"loads\": [",
        report->about.name, report->about.ranks, report->about.chunks, report->about.micros, report->about.steps,
        report->times.forward, report->times.input, report->times.weights, report->verdict.makespan,
        report->verdict.idle, report->verdict.live, report->verdict.ordered ? "true" : "false");
    for (int rank = 0; rank < report->about.ranks; rank++) {
        const tutti_pipeline_load *load = &report->verdict.loads[rank];
        (void)fprintf(stream, "%s{\"rank\": %d, \"busy\": %.10g, \"idle\": %.10g, \"live\": %d}", rank == 0 ? "" : ", ",
                      rank, load->busy, load->idle, load->live);
    }
    (void)fprintf(stream, "]}\n");
}

static void print_picture(FILE *stream, const struct report *report)
{
    tutti_pipeline_picture(report->table, report->verdict.spans, report->word, stream);
}

/* Writes to a file. "": nothing is written; "-": to stdout. */
static int write_to(const char *path, void (*print)(FILE *stream, const struct report *report),
                    const struct report *report)
{
    if (path[0] == '\0') return CLI_OK;
    FILE *stream = cli_is_stdout(path) ? stdout : fopen(path, "we");
    if (stream == NULL) return cli_blame_path("pipeline", "cannot write", path);
    print(stream, report);
    bool bad = ferror(stream) || fflush(stream) != 0;
    if (stream != stdout) bad |= fclose(stream) != 0;
    return bad ? cli_fail("pipeline", "cannot write %s: %s", path, strerror(errno)) : CLI_OK;
}

static int tell(const struct values *flags, struct report *report)
{
    tutti_error error;
    tutti_status status = tutti_pipeline_check(report->table, &report->times, 1, &report->verdict, &error);
    if (status == TUTTI_ERR_ARGUMENT) return cli_refuse("pipeline", "%s: %s", report->word, error.text);
    if (status != TUTTI_OK) return cli_blame("pipeline", &error);
    print_table(cli_is_stdout(flags->json) || cli_is_stdout(flags->picture) ? stderr : stdout, report);
    int json = write_to(flags->json, print_json, report), picture = write_to(flags->picture, print_picture, report);
    return json != CLI_OK ? json : picture;
}

static int run(const struct values *flags, const char *word, const tutti_pipeline_times *times)
{
    tutti_pipeline *table = NULL;
    int status = make_table(flags, word, &table);
    if (status != CLI_GO_ON) return status;
    struct report report = {.table = table,
                            .word = word,
                            .about = {.struct_size = sizeof report.about},
                            .times = *times,
                            .verdict = {.struct_size = sizeof report.verdict}};
    tutti_pipeline_describe(table, &report.about);
    report.verdict.loads = calloc((size_t)report.about.ranks, sizeof *report.verdict.loads);
    report.verdict.spans = calloc(report.about.steps + 1, sizeof *report.verdict.spans);
    if (report.verdict.loads == NULL || report.verdict.spans == NULL)
        status = cli_fail("pipeline", "no memory for %zu steps", report.about.steps);
    else
        status = tell(flags, &report);
    free(report.verdict.loads);
    free(report.verdict.spans);
    tutti_pipeline_free(table);
    return status;
}

int cli_pipeline(int argc, char **argv)
{
    struct values flags = {0};
    tutti_pipeline_times times;
    const char *word = NULL;
    int status = parse(argc, argv, &flags, &word);
    if (status == CLI_GO_ON) status = parse_times(flags.times, &times);
    if (status == CLI_GO_ON) status = cli_check_output("pipeline", flags.picture);
    if (status == CLI_GO_ON) status = cli_check_output("pipeline", flags.json);
    return status == CLI_GO_ON ? run(&flags, word, &times) : status;
}
