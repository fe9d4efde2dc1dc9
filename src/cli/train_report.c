/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what tutti train reports: the progress line, the metrics as lines of JSON, the summary.
 */
#include "cli/cli_train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* seconds between progress lines: on a terminal, in a file */
static const double EVERY = 0.2, EVERY_LINE = 5;

static size_t bytes_of(const tutti_train_about *about)
{
    return about->parameter_bytes + about->gradient_bytes + about->optimizer_bytes + about->activation_bytes +
           about->communication_bytes + about->saving_bytes + about->copy_bytes;
}

/* ---- Beginning ------------------------------------------------------------------------------------------------- */

/* Says why the kernels are slow: a rate measured with them is no figure to compare with. */
static void print_old_kernels(const struct train_report *report)
{
    tutti_blas_about about;
    tutti_blas_describe(&about);
    if (about.old)
        (void)fprintf(report->text, "the matrix kernels are those for %s, %s; to do: %s\n", about.kernels, about.why,
                      about.fix);
    else if (report->machine.old > 0)
        (void)fprintf(report->text,
                      "on %.0f of the ranks the matrix kernels are older than the CPU: see tutti doctor\n",
                      report->machine.old);
}

static void print_head(const struct train_report *report)
{
    const tutti_train_options *options = &report->values->options;
    const tutti_train_about *about = &report->about;
    (void)fprintf(report->text, "%s with %zu parameters on %d rank%s, %lld samples a step", options->model,
                  about->parameters, report->ranks, report->ranks == 1 ? "" : "s", (long long)options->batch);
    if (options->server > 0)
        (void)fprintf(report->text, ", the last %lld of them servers; workers may be %lld step%s apart\n",
                      (long long)options->server, (long long)options->staleness, options->staleness == 1 ? "" : "s");
    else if (about->grains > 0)
        (void)fprintf(report->text, " in %d grains: any number of ranks gives these weights\n", about->grains);
    else
        (void)fprintf(report->text, ", fast: other numbers of ranks give other bits\n");
    (void)fprintf(report->text, "%s: %zu samples to train, %zu held out", options->data, about->samples,
                  about->held_out_samples);
    if (!isnan(about->entropy)) (void)fprintf(report->text, "; entropy %.4f nats per token", about->entropy);
    (void)fprintf(report->text, "\n%s, kernels %s, %.0f GFLOP/s in matrix products\n", tutti_blas_name(),
                  tutti_nn_kernels_name(), report->machine.gflops);
    print_old_kernels(report);
    if (about->resumed_from != NULL) (void)fprintf(report->text, "going on from %s\n", about->resumed_from);
    if (about->step > 0 && about->step >= (uint64_t)options->steps)
        (void)fprintf(report->text, "step %" PRIu64 " is taken already: --steps %lld says where to end\n", about->step,
                      (long long)options->steps);
    (void)fflush(report->text);
}

/* Returns the step of the last whole line that the previous rank wrote, and removes a line that it did not finish. */
static uint64_t find_reported(FILE *metrics)
{
    uint64_t step = 0;
    long end = 0;
    char line[4096];
    rewind(metrics);
    while (fgets(line, sizeof line, metrics) != NULL && strchr(line, '\n') != NULL) {
        (void)sscanf(line, "{\"step\": %" SCNu64, &step);
        end = ftell(metrics);
    }
    if (fflush(metrics) != 0 || ftruncate(fileno(metrics), end) != 0) return step;
    (void)fseek(metrics, 0, SEEK_END);
    return step;
}

static int open_metrics(struct train_report *report)
{
    const char *path = report->values->metrics;
    const bool again = report->epoch > 0;
    if (cli_is_stdout(path)) report->metrics = stdout;
    if (path[0] == '\0' || report->metrics != NULL) return CLI_GO_ON;
    report->metrics = fopen(path, again ? "a+e" : report->about.resumed_from != NULL ? "ae" : "we");
    if (report->metrics == NULL) return cli_blame_path("train", "cannot write", path);
    if (again) report->reported = find_reported(report->metrics);
    return CLI_GO_ON;
}

int train_report_open(struct train_report *report, const struct train_values *values, const tutti_trainer *trainer,
                      int ranks, struct train_machine machine, uint64_t epoch)
{
    bool aside = cli_is_stdout(values->metrics) || cli_is_stdout(values->plot);
    *report = (struct train_report){.values = values,
                                    .text = aside ? stderr : stdout,
                                    .terminal = isatty(aside ? STDERR_FILENO : STDOUT_FILENO) == 1,
                                    .ranks = ranks,
                                    .machine = machine,
                                    .shown_at = train_now(),
                                    .last_validation = NAN,
                                    .epoch = epoch};
    tutti_trainer_describe(trainer, &report->about);
    int status = cli_check_output("train", values->plot);
    if (status == CLI_GO_ON) status = cli_check_output("train", values->timeline);
    if (status != CLI_GO_ON) return status;
    status = open_metrics(report);
    if (status == CLI_GO_ON && epoch == 0) print_head(report);
    return status;
}

void train_report_restored(struct train_report *report, const tutti_trainer *trainer, uint64_t epoch)
{
    tutti_trainer_describe(trainer, &report->about);
    const tutti_train_about *about = &report->about;
    const char *from = about->restored_from == NULL ? "start" : about->restored_from;
    report->epoch = epoch;
    if (report->terminal) (void)fprintf(report->text, "\r\033[K");
    (void)fprintf(report->text, "a rank was lost and started again; all go on ");
    if (strcmp(from, "start") == 0)
        (void)fprintf(report->text, "from the start (epoch %" PRIu64 ")\n", epoch);
    else
        (void)fprintf(report->text, "after step %" PRIu64 ", from %s (epoch %" PRIu64 ")\n", about->step, from, epoch);
    (void)fflush(report->text);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

static void add_point(struct train_report *report, const tutti_train_step *step, double validation)
{
    if (report->count == report->room) {
        size_t room = report->room == 0 ? 1024 : 2 * report->room;
        struct train_point *points = realloc(report->points, room * sizeof *points);
        if (points == NULL) return; /* the plot ends earlier */
        report->points = points;
        report->room = room;
    }
    report->points[report->count++] = (struct train_point){step->step, step->loss, validation};
}

static double gflops(const struct train_report *report, double rows, double seconds)
{
    return seconds > 0 ? report->about.flops_per_row * rows / seconds * 1e-9 : 0;
}

/* Writes a number such as "0.5", or null: JSON has no NaN or infinity. */
static const char *json_number(double value, char text[32])
{
    if (!isfinite(value)) return "null";
    (void)snprintf(text, 32, "%.9g", value);
    return text;
}

static void write_metrics(struct train_report *report, const tutti_train_step *step, double validation)
{
    char loss[32], val[32], idle[32], predicted[32], stale[32], hash[24] = "null";
    const tutti_train_about *about = &report->about;
    char ahead[24];
    (void)snprintf(ahead, sizeof ahead, "%" PRId64, step->ahead);
    if (step->hashed) (void)snprintf(hash, sizeof hash, "\"%016" PRIx64 "\"", step->hash);
    (void)fprintf(
        report->metrics,
        "{\"step\": %" PRIu64 ", \"loss\": %s, \"val_loss\": %s, \"lr\": %.9g, \"norm\": %.9g, "
        "\"tokens_per_s\": %.1f, \"gflops\": %.2f, \"comm_share\": %.5f, \"bytes\": {\"parameters\": %zu, "
        "\"gradients\": %zu, \"optimizer\": %zu, \"activations\": %zu, \"communication\": %zu, \"saving\": %zu, "
        "\"copies\": %zu}, \"epoch\": %" PRIu64 ", \"idle\": %s, \"predicted_idle\": %s, \"stale\": %s, "
        "\"ahead\": %s, \"weights_hash\": %s}\n",
        step->step, json_number(step->loss, loss), json_number(validation, val), step->rate, step->norm,
        step->rows / step->seconds, gflops(report, step->rows, step->seconds), step->comm_seconds / step->seconds,
        about->parameter_bytes, about->gradient_bytes, about->optimizer_bytes, about->activation_bytes,
        about->communication_bytes, about->saving_bytes, about->copy_bytes, report->epoch,
        json_number(step->idle, idle), json_number(step->predicted_idle, predicted), json_number(step->stale, stale),
        isnan(step->stale) ? "null" : ahead, hash);
    if (fflush(report->metrics) == 0 || report->metrics_lost) return;
    report->metrics_lost = true;
    (void)cli_fail("train", "--metrics %s: %s; training goes on", report->values->metrics, strerror(errno));
}

static void print_left(const struct train_report *report, double seconds)
{
    if (seconds >= 3600)
        (void)fprintf(report->text, "  %.0f:%02.0f:%02.0f left", floor(seconds / 3600), floor(fmod(seconds, 3600) / 60),
                      fmod(seconds, 60));
    else
        (void)fprintf(report->text, "  %.0f:%02.0f left", floor(seconds / 60), floor(fmod(seconds, 60)));
}

static void print_progress(struct train_report *report, const tutti_train_step *step, bool last)
{
    uint64_t steps = (uint64_t)report->values->options.steps;
    double rate = gflops(report, report->rows, report->seconds);
    if (report->terminal) (void)fprintf(report->text, "\r\033[K");
    (void)fprintf(report->text, "step %" PRIu64 "/%" PRIu64 "  loss %.4f", step->step, steps, step->loss);
    if (isfinite(report->last_validation)) (void)fprintf(report->text, "  held-out %.4f", report->last_validation);
    (void)fprintf(report->text, "  %.1fk %s/s  %.1f GFLOP/s", report->rows / report->seconds * 1e-3,
                  strcmp(report->values->options.model, "gpt") == 0 ? "tokens" : "rows", rate);
    if (report->machine.old > 0)
        (void)fprintf(report->text, " (old kernels)");
    else if (report->machine.gflops > 0)
        (void)fprintf(report->text, " (%.0f%%)", 100 * rate / report->machine.gflops);
    (void)fprintf(report->text, "  comm %.1f%%  %.0f MB", 100 * report->comm_seconds / report->seconds,
                  (double)bytes_of(&report->about) * 1e-6);
    if (!last) print_left(report, (double)(steps - step->step) * report->all_seconds / report->all_steps);
    if (!report->terminal || last) (void)fprintf(report->text, "\n");
    (void)fflush(report->text);
    report->shown_at = train_now();
    report->seconds = report->rows = report->comm_seconds = 0;
}

void train_report_step(struct train_report *report, const tutti_trainer *trainer, const tutti_train_step *step,
                       double validation)
{
    bool last = step->step == (uint64_t)report->values->options.steps || step->stop;
    if (step->step <= report->reported) return;
    report->reported = step->step;
    if (report->all_steps == 0) tutti_trainer_describe(trainer, &report->about); /* all memory is allocated by now */
    report->seconds += step->seconds;
    report->rows += step->rows;
    report->comm_seconds += step->comm_seconds;
    report->all_seconds += step->seconds;
    report->all_rows += step->rows;
    report->all_comm_seconds += step->comm_seconds;
    report->all_stale += step->stale;
    report->all_ahead += (double)step->ahead;
    report->all_idle += step->idle;
    report->all_predicted_idle += step->predicted_idle;
    report->all_steps++;
    if (!isnan(validation)) report->last_validation = validation;
    add_point(report, step, validation);
    if (report->metrics != NULL) write_metrics(report, step, validation);
    double since = train_now() - report->shown_at;
    bool first = report->all_steps == 1;
    if (first || last || since >= (report->terminal ? EVERY : EVERY_LINE)) print_progress(report, step, last);
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

static void print_saved(const struct train_report *report)
{
    tutti_checkpoint *checkpoint = NULL;
    tutti_error error;
    if (tutti_checkpoint_open(report->values->options.save, false, &checkpoint, &error) != TUTTI_OK) return;
    double bytes = (double)tutti_checkpoint_bytes(checkpoint);
    if (report->values->options.save_async)
        (void)fprintf(report->text, "%s: %.1f MB, training waited for %.3f s\n", tutti_checkpoint_path(checkpoint),
                      bytes * 1e-6, report->saving_seconds);
    else
        (void)fprintf(report->text, "%s: %.1f MB, written in %.2f s (%.0f MB/s)\n", tutti_checkpoint_path(checkpoint),
                      bytes * 1e-6, report->saving_seconds, bytes * 1e-6 / report->saving_seconds);
    tutti_checkpoint_free(checkpoint);
}

static void print_summary(const struct train_report *report, const tutti_trainer *trainer, uint64_t hash)
{
    tutti_train_about about;
    tutti_trainer_describe(trainer, &about);
    if (report->all_steps > 0)
        (void)fprintf(report->text,
                      "%.0f steps in %.1f s: %.1f ms each, %.1fk %s/s, %.1f GFLOP/s, %.1f%% in communication\n",
                      report->all_steps, report->all_seconds, 1000 * report->all_seconds / report->all_steps,
                      report->all_rows / report->all_seconds * 1e-3,
                      strcmp(report->values->options.model, "gpt") == 0 ? "tokens" : "rows",
                      gflops(report, report->all_rows, report->all_seconds),
                      100 * report->all_comm_seconds / report->all_seconds);
    if (report->all_steps > 0 && !isnan(report->all_idle))
        (void)fprintf(report->text, "pipeline %s: idle for %.1f%% of a step's time, by the table %.1f%%\n",
                      about.pipeline, 100 * report->all_idle / report->all_steps,
                      100 * report->all_predicted_idle / report->all_steps);
    if (report->all_steps > 0 && report->values->options.staleness > 0)
        (void)fprintf(report->text, "between a pull and the push after it %.2f updates of others, %.2f steps ahead\n",
                      report->all_stale / report->all_steps, report->all_ahead / report->all_steps);
    if (report->saving_seconds > 0) print_saved(report);
    if (hash != 0) /* 0: ranks with the other stages, or with parts of the weights, are gone */
        (void)fprintf(report->text, "weights %016" PRIx64 " after step %" PRIu64 "\n", hash, about.step);
}

int train_report_close(struct train_report *report, const tutti_trainer *trainer, uint64_t hash)
{
    const struct train_values *values = report->values;
    int status = CLI_OK;
    if (report->count > 1) train_plot_terminal(report->text, report->points, report->count, report->about.entropy);
    print_summary(report, trainer, hash);
    if (values->plot[0] != '\0' && !train_plot_svg(values->plot, report->points, report->count, report->about.entropy))
        status = cli_fail("train", "--plot %s: %s", values->plot, strerror(errno));
    if (report->metrics != NULL && report->metrics != stdout && fclose(report->metrics) != 0)
        status = cli_fail("train", "--metrics %s: %s", values->metrics, strerror(errno));
    free(report->points);
    (void)fflush(report->text);
    if (report->metrics_lost)
        status = cli_fail("train", "--metrics %s lacks steps: writing them failed", values->metrics);
    return status;
}
