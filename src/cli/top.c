/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti top: what the ranks of a job do now. Jobs are found by their guards, processes of this user that `tutti run` has named so;
 * who may open a guard's descriptors may read the board it keeps, and the system lets nobody else.
 */
#include "cli/cli.h"
#include "cli/job_table.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { JOBS_MOST = 64, WATCH_S = 5, ANSWER_MS = 200, LOOK_MS = 10 };

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
        "job on several hosts each host shows its own ranks. SIGUSR1 makes the launcher print the same table on "
        "stderr, and so does the failure of a job. Other users' jobs cannot be seen.",
    .examples = top_examples,
    .flags = top_flags,
    .operands = true,
};

/* ---- Finding jobs --------------------------------------------------------------------------------------------------- */

struct job_found {
    tutti_board *board;
    tutti_board_about about;
    int launcher;
};

struct jobs {
    struct job_found list[JOBS_MOST];
    int count, others; /* of this user; those of others */
};

static bool read_line(int pid, const char *file, char *text, size_t bytes)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    FILE *stream = fopen(path, "re");
    if (stream == NULL) return false;
    bool good = fgets(text, (int)bytes, stream) != NULL;
    (void)fclose(stream);
    return good;
}

static bool is_guard(int pid)
{
    char name[32];
    return read_line(pid, "comm", name, sizeof name) && strcmp(name, "tutti-guard\n") == 0;
}

static int parent_of(int pid)
{
    char text[512];
    int parent = 0;
    if (!read_line(pid, "stat", text, sizeof text)) return 0;
    const char *fields = strrchr(text, ')');
    return fields != NULL && sscanf(fields, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* A guard whose board cannot be read is about to end, or keeps none: that of --hosts, whose ranks are elsewhere. */
static void add_job(struct jobs *jobs, int pid)
{
    char path[64];
    struct stat about;
    (void)snprintf(path, sizeof path, "/proc/%d", pid);
    if (stat(path, &about) != 0 || !is_guard(pid)) return;
    if (about.st_uid != geteuid()) {
        jobs->others++;
        return;
    }
    struct job_found *job = &jobs->list[jobs->count];
    if (jobs->count == JOBS_MOST || tutti_board_attach(pid, &job->board, NULL) != TUTTI_OK) return;
    tutti_board_describe(job->board, &job->about);
    job->launcher = parent_of(pid);
    jobs->count++;
}

static int find_jobs(struct jobs *jobs)
{
    DIR *folder = opendir("/proc");
    if (folder == NULL) return cli_fail("top", "/proc cannot be read: %s", strerror(errno));
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (isdigit((unsigned char)entry->d_name[0])) add_job(jobs, atoi(entry->d_name));
    (void)closedir(folder);
    return CLI_GO_ON;
}

static void forget_jobs(struct jobs *jobs)
{
    for (int i = 0; i < jobs->count; i++) tutti_board_free(jobs->list[i].board);
}

static bool is_meant(const struct job_found *job, const char *name)
{
    char pid[16];
    (void)snprintf(pid, sizeof pid, "%d", job->launcher);
    return strcmp(pid, name) == 0 || strncmp(job->about.job, name, strlen(name)) == 0;
}

static void list_jobs(const struct jobs *jobs)
{
    for (int i = 0; i < jobs->count; i++) {
        const struct job_found *job = &jobs->list[i];
        (void)fprintf(stderr, "  %-32s launcher %d, %d rank%s here\n", job->about.job, job->launcher, job->about.ranks,
                      job->about.ranks == 1 ? "" : "s");
    }
}

/* Chooses the one that is meant, the only one where no name is given. NULL after a message. */
static const struct job_found *choose(const struct jobs *jobs, const char *name)
{
    const struct job_found *chosen = NULL;
    int meant = 0;
    char others[80] = "";
    if (jobs->others > 0)
        (void)snprintf(others, sizeof others, "; %d of other users cannot be looked at", jobs->others);
    for (int i = 0; i < jobs->count; i++) {
        if (name != NULL && !is_meant(&jobs->list[i], name)) continue;
        chosen = &jobs->list[i];
        meant++;
    }
    if (meant == 1) return chosen;
    if (jobs->count == 0)
        (void)cli_refuse("top", "no job of this user that `tutti run` has started is running on this host%s", others);
    else if (meant == 0)
        (void)cli_refuse("top", "there is no job '%s' of this user on this host, but:", name);
    else
        (void)cli_refuse("top", "%d jobs are running; say which one, by its name or its launcher's pid:", meant);
    list_jobs(jobs);
    return NULL;
}

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
    int64_t began = now_ms();
    bool fresh = false;
    while (!fresh && now_ms() - began < ANSWER_MS) {
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
    while (is_guard(job->about.keeper)) {
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
    static struct jobs jobs;
    int first = argc;
    int status = cli_parse("top", &cli_top_page, argc, argv, &values, &first);
    if (status == CLI_GO_ON) status = cli_check_output("top", values.json);
    if (status != CLI_GO_ON) return status;
    if (argc - first > 1) return cli_refuse("top", "one job at a time; usage: %s", cli_top_page.usage);
    status = find_jobs(&jobs);
    if (status != CLI_GO_ON) return status;
    const struct job_found *job = choose(&jobs, first < argc ? argv[first] : NULL);
    status = job == NULL ? CLI_USAGE : show(job, &values);
    forget_jobs(&jobs);
    return status;
}
