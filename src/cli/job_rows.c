/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of all hosts do, for tutti top. The launcher that has started others has no ranks; its guard keeps a board
 * that shows those of all hosts. While somebody watches it, the other launchers are asked to tell their rows, as reports.
 */
#include "cli/cli.h"
#include "cli/job.h"
#include "cli/job_table.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 250, ASK_MS = 1000, TELL_MS = 300, WATCH_S = 3 };

void rows_open(struct job *job)
{
    if (job->rows.gathered == NULL) (void)tutti_board_attach((int)job->guard, &job->rows.gathered, NULL);
}

/* ---- A row as text ---------------------------------------------------------------------------------------------- */

static const char *word(const char *text)
{
    return text[0] == '\0' || strchr(text, ' ') != NULL ? "-" : text;
}

static void write_row(const tutti_board_row *row, char text[REPORT_TEXT])
{
    (void)snprintf(
        text, REPORT_TEXT, "%d %d %u %d %d %d %d %lld %lld %llu %llu %lld %lld %lld %d %lld %.23s %.23s %.127s",
        row->rank, row->pid, row->epoch, row->restarts, row->ended, row->wait_status, row->awaited,
        (long long)row->waits_ns, (long long)row->age_ns, (unsigned long long)row->ops, (unsigned long long)row->bytes,
        (long long)row->waited_ns, (long long)row->skew_mean_ns, (long long)row->skew_max_ns, row->state,
        (long long)row->memory_bytes, word(row->host), word(row->device), row->op);
}

static bool read_row(const char *text, tutti_board_row *row)
{
    long long waits, age, waited, mean, most, memory;
    unsigned long long ops, bytes;
    int ended, used = 0;
    *row = (tutti_board_row){.struct_size = sizeof *row};
    if (sscanf(text, "%d %d %u %d %d %d %d %lld %lld %llu %llu %lld %lld %lld %d %lld %23s %23s%n", &row->rank,
               &row->pid, &row->epoch, &row->restarts, &ended, &row->wait_status, &row->awaited, &waits, &age, &ops,
               &bytes, &waited, &mean, &most, &row->state, &memory, row->host, row->device, &used) != 18)
        return false;
    row->ended = ended != 0;
    row->waits_ns = waits;
    row->age_ns = age;
    row->ops = ops;
    row->bytes = bytes;
    row->waited_ns = waited;
    row->skew_mean_ns = mean;
    row->skew_max_ns = most;
    row->memory_bytes = memory;
    if (strcmp(row->device, "-") == 0) row->device[0] = '\0';
    (void)snprintf(row->op, sizeof row->op, "%s", text[used] == ' ' ? text + used + 1 : "");
    return true;
}

/* ---- Telling and taking ------------------------------------------------------------------------------------------ */

void rows_take(struct job *job, const char *text)
{
    tutti_board_row row;
    if (job->rows.gathered != NULL && read_row(text, &row)) tutti_board_row_write(job->rows.gathered, &row);
}

static void tell(struct job *job)
{
    tutti_board_about about;
    tutti_board_row row;
    char text[REPORT_TEXT];
    struct remote_report report = {.event = REMOTE_ROW, .text = text};
    tutti_board_describe(job->board, &about);
    for (int i = 0; i < about.ranks; i++) {
        if (!job_table_look(job->board, about.first_rank + i, &row)) continue;
        write_row(&row, text);
        output_write_report(job->output, &report);
    }
}

void rows_watch(struct job *job)
{
    if (job->board == NULL) return;
    tutti_board_watch(job->board, WATCH_S);
    job->rows.until_ms = job_now_ms() + WATCH_S * 1000;
}

static void ask(struct job *job)
{
    const struct remote_order order = {.kind = ORDER_WATCH, .rank = -1};
    bool watched = tutti_board_is_watched(job->rows.gathered);
    for (int host = 0; watched && host < job->launch->size; host++)
        if (job->heal.hosts[host].begun && !heal_is_apart(job, host)) hosts_order(job->launch->hosts, host, &order);
    job->rows.next_ms = job_now_ms() + (watched ? ASK_MS : LOOK_MS);
}

int64_t rows_step(struct job *job)
{
    struct job_rows *rows = &job->rows;
    int64_t now = job_now_ms();
    if (rows->gathered == NULL && (job->board == NULL || now >= rows->until_ms)) return INT64_MAX;
    if (now < rows->next_ms) return rows->next_ms;
    if (rows->gathered != NULL) {
        ask(job);
    } else {
        tell(job);
        rows->next_ms = now + TELL_MS;
    }
    return rows->next_ms;
}
