/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the tables of tutti plan, the command to type, and the JSON.
 */
#include "cli/cli_plan.h"

#include <math.h>
#include <string.h>

const char *plan_bytes_text(double bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) bytes /= 1024, unit++;
    (void)snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
    return text;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static void append(char *text, const char *format, const char *name, const char *value)
{
    const size_t used = strlen(text);
    (void)snprintf(text + used, PLAN_COMMAND_BYTES - used, format, name, value);
}

/* Quotes a word for the shell. */
static const char *quoted(const char *word, char text[PLAN_COMMAND_BYTES])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+-@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') return word;
    size_t used = 0;
    text[used++] = '\'';
    for (const char *c = word; *c != '\0' && used + 6 < PLAN_COMMAND_BYTES; c++) {
        if (*c == '\'')
            used += (size_t)snprintf(text + used, 5, "'\\''");
        else
            text[used++] = *c;
    }
    text[used++] = '\'';
    text[used] = '\0';
    return text;
}

static bool same_text(const char *value, const char *initial)
{
    return strcmp(value, initial) == 0;
}

/* Appends a flag, whose setting is not the default; "_" in its name becomes "-". */
static void append_flag(char *text, const char *name, const char *value)
{
    char flag[64], word[PLAN_COMMAND_BYTES];
    (void)snprintf(flag, sizeof flag, "%s", name);
    for (char *c = flag; *c != '\0'; c++)
        if (*c == '_') *c = '-';
    append(text, value == NULL ? " --%s%s" : " --%s %s", flag, value == NULL ? "" : quoted(value, word));
}

static void append_INT(char *text, const char *name, int64_t value, const char *initial)
{
    char number[32];
    (void)snprintf(number, sizeof number, "%lld", (long long)value);
    if (!same_text(number, initial)) append_flag(text, name, number);
}

static void append_REAL(char *text, const char *name, double value, const char *initial)
{
    char number[32];
    (void)snprintf(number, sizeof number, "%.15g", value);
    if (!same_text(number, initial)) append_flag(text, name, number);
}

static void append_BOOL(char *text, const char *name, bool value, const char *initial)
{
    (void)initial;
    if (value) append_flag(text, name, NULL);
}

static void append_TEXT(char *text, const char *name, const char *value, const char *initial)
{
    if (!same_text(value, initial) && strcmp(name, "model") != 0) append_flag(text, name, value);
}

const char *plan_command(const struct plan *plan, const struct plan_row *row, char text[PLAN_COMMAND_BYTES])
{
    char ranks[24];
    const struct plan_values *values = plan->values;
    tutti_train_options options = row->options;
    options.data = values->data;
    if (options.data[0] == '\0') options.data = "DATA";
    (void)snprintf(ranks, sizeof ranks, "%lld", (long long)(values->ranks / values->hosts));
    if (values->hosts > 1)
        (void)snprintf(text, PLAN_COMMAND_BYTES, "tutti run --hosts HOSTS -n %s tutti train %s", ranks, options.model);
    else
        (void)snprintf(text, PLAN_COMMAND_BYTES, "tutti train %s", options.model);
    if (values->hosts == 1) append_flag(text, "ranks", ranks);
#define APPEND(name, kind, initial, low, high, help) append_##kind(text, #name, options.name, initial);
    TUTTI_TRAIN_LIST(APPEND)
#undef APPEND
    return text;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static const char *time_text(double seconds, char text[32])
{
    if (seconds < 1)
        (void)snprintf(text, 32, "%.2f ms", 1e3 * seconds);
    else
        (void)snprintf(text, 32, "%.3f s", seconds);
    return text;
}

const char *plan_layout_text(const struct plan_row *row, char text[PLAN_LAYOUT_BYTES])
{
    size_t used = (size_t)snprintf(text, PLAN_LAYOUT_BYTES, "%s", row->mesh[0] == '\0' ? "one rank" : row->mesh);
    if (row->layout.zero > 0)
        used += (size_t)snprintf(text + used, PLAN_LAYOUT_BYTES - used, " zero %d", row->layout.zero);
    if (row->layout.pipeline != NULL)
        used += (size_t)snprintf(text + used, PLAN_LAYOUT_BYTES - used, " %s micro %d", row->layout.pipeline,
                                 row->layout.micro);
    if (row->layout.accumulate > 1)
        used += (size_t)snprintf(text + used, PLAN_LAYOUT_BYTES - used, " accumulate %d", row->layout.accumulate);
    if (row->layout.sequence) used += (size_t)snprintf(text + used, PLAN_LAYOUT_BYTES - used, " sequence");
    if (row->layout.recompute) (void)snprintf(text + used, PLAN_LAYOUT_BYTES - used, " recompute");
    return text;
}

static void print_row(FILE *stream, size_t number, const struct plan_row *row)
{
    const tutti_train_estimate *e = &row->estimate;
    char layout[PLAN_LAYOUT_BYTES], time[32], idle[16], all[32], weights[32], gradients[32], optimizer[32],
        activations[32], buffers[32], copies[32], sent[32];
    (void)snprintf(idle, sizeof idle, "%.1f%%", 100 * e->idle);
    (void)fprintf(stream, "%3zu  %-46s %10s %6s %10s %10s %10s %10s %10s %10s %10s %10s %6zu\n", number,
                  plan_layout_text(row, layout), time_text(e->seconds, time), idle,
                  plan_bytes_text((double)e->bytes, all), plan_bytes_text((double)e->memory.parameter_bytes, weights),
                  plan_bytes_text((double)e->memory.gradient_bytes, gradients),
                  plan_bytes_text((double)e->memory.optimizer_bytes, optimizer),
                  plan_bytes_text((double)e->memory.activation_bytes, activations),
                  plan_bytes_text((double)e->memory.communication_bytes, buffers),
                  plan_bytes_text((double)e->memory.copy_bytes, copies), plan_bytes_text(e->sent_bytes, sent),
                  e->operations);
}

static void print_missing(FILE *stream, const struct plan *plan)
{
    enum { MOST = 5 };
    const size_t none = plan->possible - plan->fitting;
    if (none == 0) return;
    char text[32], layout[PLAN_LAYOUT_BYTES];
    (void)fprintf(stream, "\n%zu layouts do not fit into %s per rank; nearest:\n", none,
                  plan_bytes_text((double)plan->values->memory, text));
    for (size_t i = plan->fitting; i < plan->possible && i < plan->fitting + MOST; i++) {
        const struct plan_row *row = &plan->rows[i];
        char needs[32];
        (void)fprintf(stream, "     %-46s needs %s on rank %d: %s are missing\n", plan_layout_text(row, layout),
                      plan_bytes_text((double)row->estimate.bytes, needs), row->estimate.rank,
                      plan_bytes_text((double)row->estimate.bytes - (double)plan->values->memory, text));
    }
}

static void print_refused(FILE *stream, const struct plan *plan)
{
    enum { MOST = 5 };
    size_t told = 0;
    char layout[PLAN_LAYOUT_BYTES];
    if (plan->count == plan->possible) return;
    (void)fprintf(stream, "\n%zu layouts are refused by the trainer, such as:\n", plan->count - plan->possible);
    for (size_t i = plan->possible; i < plan->count && told < MOST; i++) {
        bool again = false;
        for (size_t k = plan->possible; k < i && !again; k++) again = strcmp(plan->rows[k].why, plan->rows[i].why) == 0;
        if (again) continue;
        (void)fprintf(stream, "     %s: %s\n", plan_layout_text(&plan->rows[i], layout), plan->rows[i].why);
        told++;
    }
}

void plan_print(FILE *stream, const struct plan *plan)
{
    const struct plan_values *values = plan->values;
    const size_t show = values->show == 0 || (size_t)values->show > plan->fitting ? plan->fitting
                                                                                  : (size_t)values->show;
    char sharing[48] = "ranks have one each", hosts[48] = "";
    if (values->hosts > 1) (void)snprintf(hosts, sizeof hosts, " of %lld hosts", (long long)values->hosts);
    if (plan->shared > 0) (void)snprintf(sharing, sizeof sharing, "ranks share %d", plan->shared);
    (void)fprintf(stream, "%s of %zu parameters on %lld ranks%s (%d cores here, %s): %zu layouts",
                  values->options.model, plan->possible > 0 ? plan->rows[0].estimate.memory.parameters : 0,
                  (long long)values->ranks, hosts, plan->cores, sharing, plan->count);
    (void)fprintf(stream, ", %zu possible, %zu fit\n\n", plan->possible, plan->fitting);
    if (show > 0)
        (void)fprintf(stream, "%3s  %-46s %10s %6s %10s %10s %10s %10s %10s %10s %10s %10s %6s\n", "", "layout", "step",
                      "idle", "memory", "weights", "gradients", "optimizer", "activation", "buffers", "copies", "sent",
                      "ops");
    for (size_t i = 0; i < show; i++) print_row(stream, i + 1, &plan->rows[i]);
    if (show < plan->fitting) (void)fprintf(stream, "     and %zu more: --show 0\n", plan->fitting - show);
    if (show > 0)
        (void)fprintf(stream,
                      "memory: of the rank that needs most; copies: that much more under tutti run --max-restarts; "
                      "sent, ops: of one rank in one step\n");
    print_missing(stream, plan);
    print_refused(stream, plan);
}

static void print_score(FILE *stream, const struct plan *plan)
{
    struct plan_score score;
    char layout[PLAN_LAYOUT_BYTES];
    if (!plan_score(plan, &score)) return;
    (void)fprintf(stream, "predicted over measured: median error %.1f%%, largest %+.1f%% (number %zu, %s)\n",
                  100 * score.median_error, 100 * score.worst_error, score.worst + 1,
                  plan_layout_text(&plan->rows[score.worst], layout));
    (void)fprintf(stream, "measured fastest: number %zu, %s", score.fastest + 1,
                  plan_layout_text(&plan->rows[score.fastest], layout));
    if (score.fastest > 0 && plan->rows[0].measured > 0)
        (void)fprintf(stream, "; number 1 takes %.1f%% longer", 100 * score.behind);
    (void)fputc('\n', stream);
}

void plan_print_measured(FILE *stream, const struct plan *plan)
{
    char layout[PLAN_LAYOUT_BYTES], predicted[32], took[32];
    (void)fprintf(stream, "\n%3s  %-46s %10s %10s\n", "", "layout", "predicted", "measured");
    for (size_t i = 0; i < plan->fitting; i++) {
        const struct plan_row *row = &plan->rows[i];
        if (row->failed[0] != '\0')
            (void)fprintf(stream, "%3zu  %-46s %10s     failed  %s\n", i + 1, plan_layout_text(row, layout),
                          time_text(row->estimate.seconds, predicted), row->failed);
        if (row->measured <= 0) continue;
        (void)fprintf(stream, "%3zu  %-46s %10s %10s  %+.1f%%\n", i + 1, plan_layout_text(row, layout),
                      time_text(row->estimate.seconds, predicted), time_text(row->measured, took),
                      100 * (row->estimate.seconds / row->measured - 1));
    }
    print_score(stream, plan);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_text(FILE *stream, const char *text)
{
    (void)fputc('"', stream);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            (void)fprintf(stream, "\\%c", *c);
        else if (*c < 0x20)
            (void)fprintf(stream, "\\u%04x", *c);
        else
            (void)fputc(*c, stream);
    }
    (void)fputc('"', stream);
}

static void json_layout(FILE *stream, const tutti_train_layout *layout)
{
    (void)fprintf(stream,
                  "{\"data\": %d, \"shard\": %d, \"pipe\": %d, \"tensor\": %d, \"zero\": %d, \"micro\": %d, "
                  "\"accumulate\": %d, \"sequence\": %s, \"recompute\": %s, \"pipeline\": ",
                  layout->data, layout->shard, layout->pipe, layout->tensor, layout->zero, layout->micro,
                  layout->accumulate, layout->sequence ? "true" : "false", layout->recompute ? "true" : "false");
    if (layout->pipeline == NULL)
        (void)fputs("null", stream);
    else
        json_text(stream, layout->pipeline);
}

static void json_row(FILE *stream, const struct plan *plan, const struct plan_row *row)
{
    const tutti_train_estimate *e = &row->estimate;
    char command[PLAN_COMMAND_BYTES];
    json_layout(stream, &row->layout);
    if (row->status != TUTTI_OK) {
        (void)fputs(", \"refused\": ", stream);
        json_text(stream, row->why);
        (void)fputc('}', stream);
        return;
    }
    (void)fprintf(
        stream,
        ", \"fits\": %s, \"bytes\": %zu, \"rank\": %d, \"parameter_bytes\": %zu, \"gradient_bytes\": %zu, "
        "\"optimizer_bytes\": %zu, \"activation_bytes\": %zu, \"communication_bytes\": %zu, \"copy_bytes\": %zu, ",
        row->fits ? "true" : "false", e->bytes, e->rank, e->memory.parameter_bytes, e->memory.gradient_bytes,
        e->memory.optimizer_bytes, e->memory.activation_bytes, e->memory.communication_bytes, e->memory.copy_bytes);
    (void)fprintf(stream,
                  "\"seconds\": %.9g, \"compute_seconds\": %.9g, \"update_seconds\": %.9g, \"comm_seconds\": %.9g, "
                  "\"idle\": %.6g, \"operations\": %zu, \"sent_bytes\": %.0f, ",
                  e->seconds, e->compute_seconds, e->update_seconds, e->comm_seconds, e->idle, e->operations,
                  e->sent_bytes);
    if (row->measured > 0) (void)fprintf(stream, "\"measured_seconds\": %.9g, ", row->measured);
    if (row->failed[0] != '\0') {
        (void)fputs("\"failed\": ", stream);
        json_text(stream, row->failed);
        (void)fputs(", ", stream);
    }
    (void)fputs("\"command\": ", stream);
    json_text(stream, plan_command(plan, row, command));
    (void)fputc('}', stream);
}

/* Writes the accuracy of the predictions. `fastest` and `worst` are places in the list of layouts. */
static void json_score(FILE *stream, const struct plan *plan)
{
    struct plan_score score;
    if (plan->values->measure == 0) return;
    const bool any = plan_score(plan, &score);
    (void)fprintf(stream, ", \"measured\": {\"layouts\": %zu, \"failed\": %zu", score.measured, score.failed);
    if (any)
        (void)fprintf(stream,
                      ", \"median_error\": %.6g, \"largest_error\": %.6g, \"worst\": %zu, \"fastest\": %zu, "
                      "\"first_behind\": %.6g",
                      score.median_error, score.worst_error, score.worst, score.fastest, score.behind);
    (void)fputc('}', stream);
}

int plan_json(const struct plan *plan)
{
    const char *path = plan->values->json;
    if (path[0] == '\0') return CLI_GO_ON;
    FILE *stream = cli_is_stdout(path) ? stdout : fopen(path, "we");
    if (stream == NULL) return cli_blame_path("plan", "cannot write", path);
    (void)fprintf(
        stream, "{\"model\": \"%s\", \"ranks\": %lld, \"hosts\": %lld, \"memory\": %lld, \"cores\": %d, \"layouts\": [",
        plan->values->options.model, (long long)plan->values->ranks, (long long)plan->values->hosts,
        (long long)plan->values->memory, plan->shared);
    for (size_t i = 0; i < plan->count; i++) {
        (void)fputs(i == 0 ? "\n" : ",\n", stream);
        json_row(stream, plan, &plan->rows[i]);
    }
    (void)fputs("\n]", stream);
    json_score(stream, plan);
    (void)fputs("}\n", stream);
    const bool bad = stream == stdout ? fflush(stream) != 0 : fclose(stream) != 0;
    return bad ? cli_blame_path("plan", "cannot write", path) : CLI_GO_ON;
}
