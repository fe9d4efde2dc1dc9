/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti top: what the ranks of a job do now.
 */
#include "cli/cli.h"
#include "cli/job_find.h"
#include "cli/job_table.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

enum { WATCH_S = 5, ANSWER_MS = 200, FAR_MS = 2500, LOOK_MS = 10 };

struct top_values {
    bool once;
    const char *json;
    int64_t interval_ms;
};

static const struct cli_flag top_flags[] = {
    {.row = {"once", TUTTI_OPTION_BOOL, "0", 0, 1, "print one table and end"},
     .offset = offsetof(struct top_values, once),
     .is_switch = true},
    {.row = {"json", TUTTI_OPTION_TEXT, "", 0, 0,
             "write one table as JSON to FILE instead, and end; to stdout if there is no FILE, or for -"},
     .offset = offsetof(struct top_values, json),
     .value = "FILE",
     .bare = "-"},
    {.row = {"interval_ms", TUTTI_OPTION_MS, "1000", 50, 3600000, "how often the table is printed anew"},
     .offset = offsetof(struct top_values, interval_ms)},
    {.row = {.name = NULL}},
};

static const struct cli_example top_examples[] = {
    {"tutti top", "the job of this user on this host, once a second until it ends or Ctrl-C"},
    {"tutti top --once 4711", "one table of the job whose launcher has the pid 4711"},
    {"tutti top --json", "the same for programs"},
    {NULL, NULL},
};

const struct cli_page cli_top_page = {
    .usage = "tutti top [flags] [JOB]",
    .about =
        "Shows a line for each rank of a job that `tutti run` has started here: where it is, its device, what it does, "
        "for whom it waits and since when, how many collectives it has called, the bytes of their buffers and of its "
        "messages, how long a collective waited on average for ranks that had not come (skew), its memory, how often "
        "its process was started again, and the last call it was seen in. JOB is needed when there are several: the "
        "name that is listed then, or its beginning, or the launcher's pid.\n\n"
        "A rank shows what it does when it has waited for some milliseconds, and, while somebody watches, with each "
        "collective, which then takes a little longer; what a rank showed over a second ago says so. Of a "
        "job on several hosts the launcher that was typed (with --nnodes and --max-restarts or --keep-going that of "
        "node 0) "
        "shows the ranks of all, and every other host its own. SIGUSR1 makes the launcher print the same table on "
        "stderr, and so does the failure of a job. Other users' jobs cannot be seen.",
    .examples = top_examples,
    .flags = top_flags,
    .operands = true,
};

/* ---- Showing -------------------------------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits a moment, so that ranks that make calls or wait have shown what they do since. */
static void await_rows(const struct job_found *job)
{
    int64_t began = now_ms(), longest_ms = job->about.gathers ? FAR_MS : ANSWER_MS;
    bool fresh = false;
    while (!fresh && now_ms() - began < longest_ms) {
        (void)poll(NULL, 0, LOOK_MS);
        fresh = true;
        for (int i = 0; i < job->about.ranks; i++) {
            tutti_board_row row;
            if (!tutti_board_row_read(job->board, job->about.first_rank + i, &row)) continue;
            fresh = fresh && row.pid != 0 && row.age_ns / 1000000 <= now_ms() - began;
        }
    }
}

static int write_json(const struct job_found *job, const char *path)
{
    FILE *file = cli_is_stdout(path) ? stdout : fopen(path, "we");
    if (file == NULL) return cli_blame_path("top", "cannot write", path);
    job_table_print_json(file, job->board);
    if (file == stdout) return CLI_OK;
    bool bad = ferror(file) != 0;
    bad |= fclose(file) != 0;
    return bad ? cli_blame_path("top", "cannot write", path) : CLI_OK;
}

static int show_always(const struct job_found *job, int64_t interval_ms)
{
    bool terminal = isatty(STDOUT_FILENO) == 1;
    while (job_is_guard(job->about.keeper)) {
        tutti_board_watch(job->board, WATCH_S + (int)(interval_ms / 1000));
        if (terminal) printf("\033[H\033[J");
        job_table_print(stdout, job->board, 0);
        if (!terminal) printf("\n");
        if (fflush(stdout) != 0) return CLI_OK; /* main says so */
        (void)poll(NULL, 0, (int)interval_ms);
    }
    printf("job %s has ended\n", job->about.job);
    return CLI_OK;
}

static int show(const struct job_found *job, const struct top_values *values)
{
    tutti_board_watch(job->board, WATCH_S);
    await_rows(job);
    if (values->json[0] != '\0') return write_json(job, values->json);
    if (!values->once) return show_always(job, values->interval_ms);
    job_table_print(stdout, job->board, 0);
    return CLI_OK;
}

int cli_top(int argc, char **argv)
{
    struct top_values values;
    int first = argc;
    int status = cli_parse("top", &cli_top_page, argc, argv, &values, &first);
    if (status == CLI_GO_ON) status = cli_check_output("top", values.json);
    if (status != CLI_GO_ON) return status;
    if (argc - first > 1) return cli_refuse("top", "one job at a time; usage: %s", cli_top_page.usage);
    struct job_found job;
    status = job_find("top", first < argc ? argv[first] : NULL, &job);
    if (status != CLI_GO_ON) return status;
    status = show(&job, &values);
    tutti_board_free(job.board);
    return status;
}
