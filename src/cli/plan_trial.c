/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs layouts here: the printed command, in a process of its own, for a few steps; and compares the predictions with
 * them.
 */
#include "cli/bench.h"
#include "cli/cli_plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 8, LINE = 4096 };

/* Data for a model that was planned without any: they need not have as many ids as the model knows. */
static const char made_up[] = "markov:order=1,states=8,length=20000";

/* Starts the command: `sh` splits it into words, and the tool is this one. Its metrics come through a pipe. */
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

/* Keeps a line of the tool's own: it says why a run failed. */
static void keep_words(const char *line, char *words, size_t room)
{
    if (strncmp(line, "tutti ", strlen("tutti ")) == 0) (void)snprintf(words, room, "%.*s", (int)room - 1, line);
}

/* Returns the median of the steps' seconds, without the first two; 0: there were too few. */
static double read_steps(FILE *stream, double rows, char *words, size_t room)
{
    static const char rate[] = "\"tokens_per_s\": ";
    char line[LINE];
    double seconds[STEPS];
    size_t count = 0;
    int seen = 0;
    while (fgets(line, sizeof line, stream) != NULL) {
        const char *at = strstr(line, rate);
        line[strcspn(line, "\r\n")] = '\0';
        keep_words(line, words, room);
        if (at != NULL && seen++ >= 2 && count < STEPS) seconds[count++] = rows / strtod(at + strlen(rate), NULL);
    }
    return bench_median(seconds, count);
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
    short_row.options.save_every = 0;
    short_row.options.save_async = false;
    const ssize_t length = readlink("/proc/self/exe", tool, sizeof tool - 1);
    if (length < 0) return cli_fail("plan", "cannot find this program: %s", strerror(errno));
    tool[length] = '\0';
    (void)snprintf(line, sizeof line, "exec '%s'%s --metrics - 2>&1", tool,
                   plan_command(&trial, &short_row, command) + strlen("tutti"));
    pid_t pid = -1;
    FILE *stream = start(line, &pid);
    if (stream == NULL) return cli_fail("plan", "cannot start a run: %s", strerror(errno));
    (void)snprintf(row->failed, sizeof row->failed, "it said nothing");
    row->measured = read_steps(stream, (double)row->estimate.memory.rows_per_step, row->failed, sizeof row->failed);
    (void)fclose(stream);
    int ended = 0;
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0 && row->measured > 0)
        row->failed[0] = '\0';
    else
        row->measured = 0;
    return CLI_GO_ON;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

int plan_measure(struct plan *plan)
{
    const size_t best = least((size_t)plan->values->measure, plan->fitting), rest = plan->fitting - best;
    const size_t spread = least((size_t)plan->values->spread, rest);
    int status = CLI_GO_ON;
    for (size_t i = 0; status == CLI_GO_ON && i < best; i++) status = run(plan, &plan->rows[i]);
    for (size_t k = 0; status == CLI_GO_ON && k < spread; k++) /* the slowest is the last of them */
        status = run(plan, &plan->rows[best + (k + 1) * rest / spread - 1]);
    return status;
}

/* ---- How near they are ------------------------------------------------------------------------------------------- */

static double error_of(const struct plan_row *row)
{
    return row->estimate.seconds / row->measured - 1;
}

static void add_to_score(const struct plan *plan, size_t i, struct plan_score *score)
{
    const struct plan_row *row = &plan->rows[i];
    const bool first = score->measured++ == 0;
    if (first || fabs(error_of(row)) > fabs(score->worst_error)) {
        score->worst = i;
        score->worst_error = error_of(row);
    }
    if (first || row->measured < plan->rows[score->fastest].measured) score->fastest = i;
}

bool plan_score(const struct plan *plan, struct plan_score *score)
{
    double *errors = calloc(plan->fitting + 1, sizeof *errors);
    *score = (struct plan_score){0};
    for (size_t i = 0; errors != NULL && i < plan->fitting; i++) {
        score->failed += plan->rows[i].failed[0] != '\0';
        if (plan->rows[i].measured <= 0) continue;
        errors[score->measured] = fabs(error_of(&plan->rows[i]));
        add_to_score(plan, i, score);
    }
    if (score->measured > 0) {
        score->median_error = bench_median(errors, score->measured);
        if (plan->rows[0].measured > 0)
            score->behind = plan->rows[0].measured / plan->rows[score->fastest].measured - 1;
    }
    free(errors);
    return score->measured > 0;
}
