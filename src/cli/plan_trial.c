/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs layouts here: the command that is printed, in a process of its own, for a few steps.
 */
#include "cli/cli_plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 8, LINE = 4096 };

/* Data for a model that was planned without any: as many ids as it knows are not needed. */
static const char made_up[] = "markov:order=1,states=8,length=20000";

/* `sh` gives the words; the tool is this one. Its metrics come through a pipe. */
static FILE *start(const char *command, pid_t *pid)
{
    int ends[2];
    if (pipe(ends) != 0) return NULL;
    *pid = fork();
    if (*pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)unsetenv("TUTTI_RANKS");
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    FILE *stream = *pid < 0 ? NULL : fdopen(ends[0], "r");
    if (stream == NULL) (void)close(ends[0]);
    return stream;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the steps' seconds, but for the first two; 0: there were too few. */
static double read_steps(FILE *stream, double rows)
{
    static const char rate[] = "\"tokens_per_s\": ";
    char line[LINE];
    double seconds[STEPS];
    int count = 0, seen = 0;
    while (fgets(line, sizeof line, stream) != NULL) {
        const char *at = strstr(line, rate);
        if (at != NULL && seen++ >= 2 && count < STEPS) seconds[count++] = rows / strtod(at + strlen(rate), NULL);
    }
    if (count == 0) return 0;
    qsort(seconds, (size_t)count, sizeof *seconds, compare_doubles);
    return seconds[count / 2];
}

static int run(struct plan *plan, struct plan_row *row)
{
    char command[PLAN_COMMAND_BYTES], line[PLAN_COMMAND_BYTES + 512], tool[400];
    struct plan_values values = *plan->values;
    struct plan trial = *plan;
    struct plan_row short_row = *row;
    trial.values = &values;
    if (values.data[0] == '\0') values.data = made_up;
    short_row.options.steps = STEPS;
    short_row.options.val_every = short_row.options.check_every = 0;
    short_row.options.save = "";
    const ssize_t length = readlink("/proc/self/exe", tool, sizeof tool - 1);
    if (length < 0) return cli_fail("plan", "cannot find this program: %s", strerror(errno));
    tool[length] = '\0';
    (void)snprintf(line, sizeof line, "exec '%s'%s --metrics - 2>/dev/null", tool,
                   plan_command(&trial, &short_row, command) + strlen("tutti"));
    pid_t pid = -1;
    FILE *stream = start(line, &pid);
    if (stream == NULL) return cli_fail("plan", "cannot start a run: %s", strerror(errno));
    row->measured = read_steps(stream, (double)row->estimate.memory.rows_per_step);
    (void)fclose(stream);
    int ended = 0;
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) {}
    if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0 || row->measured <= 0)
        return cli_fail("plan", "the run of a layout has failed: %s", command);
    return CLI_GO_ON;
}

int plan_measure(struct plan *plan)
{
    int status = CLI_GO_ON;
    for (size_t i = 0; status == CLI_GO_ON && i < plan->fitting && i < (size_t)plan->values->measure; i++)
        status = run(plan, &plan->rows[i]);
    return status;
}
