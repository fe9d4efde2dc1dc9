/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows come from the board; the system tells if a process still lives, and how much memory it has.
 */
#include "cli/job_table.h"
#include "cli/cli_run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000LL
enum { OLD_MS = 1000 };

/* A row, with the system's view of its process. */
struct seen {
    tutti_board_row row;
    int state; /* as in /proc: 'T' is stopped; 0: there is no such process */
    long long memory;
};

static void name_host(char host[65])
{
    if (gethostname(host, 64) != 0) (void)snprintf(host, 65, "?");
    host[64] = '\0';
}

/* ---- Looking ------------------------------------------------------------------------------------------------------------ */

static char read_state(int pid)
{
    char path[64], text[512] = "", state = '\0';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return '\0';
    size_t length = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[length] = '\0';
    const char *fields = strrchr(text, ')'); /* the name before it may hold any character */
    if (fields == NULL || sscanf(fields, ") %c", &state) != 1 || state == 'Z' || state == 'X') return '\0';
    return state;
}

/* Returns the bytes of the process that are in the machine's memory. */
static long long read_memory(int pid)
{
    char path[64];
    long long size = 0, resident = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    bool good = fscanf(file, "%lld %lld", &size, &resident) == 2;
    (void)fclose(file);
    return good ? resident * sysconf(_SC_PAGESIZE) : 0;
}

static bool look(const tutti_board *board, int rank, struct seen *seen)
{
    if (!tutti_board_row_read(board, rank, &seen->row)) return false;
    if (seen->row.host[0] != '\0') {
        seen->state = seen->row.state;
        seen->memory = seen->row.memory_bytes;
        return true;
    }
    seen->state = seen->row.pid == 0 ? '\0' : read_state(seen->row.pid);
    seen->memory = seen->state == '\0' ? 0 : read_memory(seen->row.pid);
    return true;
}

bool job_table_look(const tutti_board *board, int rank, tutti_board_row *row)
{
    char host[65];
    struct seen seen;
    if (!look(board, rank, &seen)) return false;
    *row = seen.row;
    name_host(host);
    (void)snprintf(row->host, sizeof row->host, "%.23s", host);
    row->state = seen.state;
    row->memory_bytes = seen.memory;
    return true;
}

static bool has_ended(const struct seen *seen)
{
    return seen->row.ended || (seen->row.pid != 0 && seen->state == '\0');
}

static bool waits(const struct seen *seen)
{
    return seen->row.waits_ns > 0 && !has_ended(seen);
}

static const char *does(const struct seen *seen, char text[32])
{
    int status = seen->row.wait_status;
    if (seen->row.ended && WIFSIGNALED(status))
        (void)snprintf(text, 32, "killed %d", WTERMSIG(status));
    else if (seen->row.ended)
        (void)snprintf(text, 32, "ended %d", WEXITSTATUS(status));
    else if (has_ended(seen))
        return "ended";
    else if (seen->row.pid == 0)
        return "joins";
    else if (seen->state == 'T' || seen->state == 't')
        return "stopped";
    else
        return waits(seen) ? "waits" : "runs";
    return text;
}

/* ---- Lines -------------------------------------------------------------------------------------------------------------- */

/* Writes a number such as "123", "1.2K", "34M". */
static const char *scale(unsigned long long number, unsigned unit, char text[16])
{
    static const char letters[] = " KMGTPE";
    double value = (double)number;
    int at = 0;
    while (value >= 999.5 && at < 6) {
        value /= unit;
        at++;
    }
    if (at == 0)
        (void)snprintf(text, 16, "%llu", number);
    else
        (void)snprintf(text, 16, value < 9.95 ? "%.1f%c" : "%.0f%c", value, letters[at]);
    return text;
}

static const char *duration(long long ns, char text[16])
{
    if (ns < 10000)
        (void)snprintf(text, 16, "%.1fus", (double)ns / 1e3);
    else if (ns < 1000 * 1000)
        (void)snprintf(text, 16, "%lldus", ns / 1000);
    else if (ns < 1000 * MS)
        (void)snprintf(text, 16, ns < 10 * MS ? "%.1fms" : "%.0fms", (double)ns / 1e6);
    else
        (void)snprintf(text, 16, ns < 100000 * MS ? "%.1fs" : "%.0fs", (double)ns / 1e9);
    return text;
}

static void print_wait(FILE *stream, const struct seen *seen)
{
    char whom[16] = "-", since[16] = "-";
    if (waits(seen)) {
        (void)duration(seen->row.waits_ns, since);
        (void)snprintf(whom, sizeof whom, seen->row.awaited < 0 ? "any" : "%d", seen->row.awaited);
    }
    (void)fprintf(stream, " %4s %6s", whom, since);
}

static void print_row(FILE *stream, const struct seen *seen, const char *host)
{
    const tutti_board_row *row = &seen->row;
    char doing[32], ops[16], bytes[16], skew[16], memory[16], age[16];
    (void)fprintf(stream, "%4d %-8.16s %8d %-7s %-9s", row->rank, row->host[0] != '\0' ? row->host : host, row->pid,
                  row->device[0] ? row->device : "-", does(seen, doing));
    print_wait(stream, seen);
    (void)fprintf(stream, " %5s %6s %7s %6s %8d  %s", scale(row->ops, 1000, ops), scale(row->bytes, 1024, bytes),
                  duration(row->skew_mean_ns, skew), scale((unsigned long long)seen->memory, 1024, memory),
                  row->restarts, row->pid == 0 ? "-" : row->op);
    if (row->pid != 0 && row->age_ns > OLD_MS * MS) (void)fprintf(stream, " (seen %s ago)", duration(row->age_ns, age));
    (void)fputc('\n', stream);
}

static void print_head(FILE *stream, const tutti_board_about *about, const char *host)
{
    int size = about->ranks / about->processes * about->processes_of_job;
    (void)fprintf(stream, "job %s %s %s, ", about->job, about->gathers ? "on all its hosts, from" : "on", host);
    if (about->ranks == size)
        (void)fprintf(stream, "%d rank%s", size, size == 1 ? "" : "s");
    else
        (void)fprintf(stream, "ranks %d to %d of %d (the launcher that was typed shows all)", about->first_rank,
                      about->first_rank + about->ranks - 1, size);
    if (about->formed) (void)fprintf(stream, ", epoch %u", about->epoch);
    if (about->restarts_most > 0)
        (void)fprintf(stream, ", %d restart%s of %d", about->restarts, about->restarts == 1 ? "" : "s",
                      about->restarts_most);
    if (about->processes_most > 0) (void)fprintf(stream, ", at most %d", about->processes_most);
    if (about->waiting > 0)
        (void)fprintf(stream, ", %d wait%s to join", about->waiting, about->waiting == 1 ? "s" : "");
    (void)fprintf(
        stream,
        "\nrank host          pid device  does       for  since   ops  bytes    skew memory restarts  last op\n");
}

void job_table_print(FILE *stream, const tutti_board *board, int most)
{
    char host[65];
    tutti_board_about about;
    struct seen seen;
    name_host(host);
    tutti_board_describe(board, &about);
    print_head(stream, &about, host);
    int shown = most > 0 && about.ranks > most ? most : about.ranks;
    for (int i = 0; i < shown; i++)
        if (look(board, about.first_rank + i, &seen)) print_row(stream, &seen, host);
    if (shown < about.ranks) (void)fprintf(stream, "and %d more\n", about.ranks - shown);
}

static bool has_rows(const tutti_board *board)
{
    tutti_board_about about;
    tutti_board_row row;
    tutti_board_describe(board, &about);
    for (int i = 0; i < about.ranks; i++)
        if (tutti_board_row_read(board, about.first_rank + i, &row) && row.pid != 0) return true;
    return false;
}

void job_table_say(struct output *output, const tutti_board *board, int most)
{
    char *text = NULL, *rest = NULL;
    size_t bytes = 0;
    FILE *stream = board != NULL && has_rows(board) ? open_memstream(&text, &bytes) : NULL;
    if (stream == NULL) return;
    job_table_print(stream, board, most);
    (void)fclose(stream);
    char *line = text == NULL ? NULL : strtok_r(text, "\n", &rest);
    for (; line != NULL; line = strtok_r(NULL, "\n", &rest)) output_say(output, "%s", line);
    free(text);
}

/* ---- JSON --------------------------------------------------------------------------------------------------------------- */

static void print_text(FILE *stream, const char *name, const char *text)
{
    (void)fprintf(stream, "\"%s\": \"", name);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') (void)fputc('\\', stream);
        (void)fputc(*text, stream); /* the text was made printable before */
    }
    (void)fputs("\", ", stream);
}

static void print_json_row(FILE *stream, const struct seen *seen, const char *host, const char *job)
{
    const tutti_board_row *row = &seen->row;
    char doing[32];
    (void)fprintf(stream, "  {\"rank\": %d, ", row->rank);
    print_text(stream, "job", job);
    print_text(stream, "host", row->host[0] != '\0' ? row->host : host);
    print_text(stream, "device", row->device);
    print_text(stream, "does", does(seen, doing));
    print_text(stream, "op", row->op);
    (void)fprintf(stream, "\"pid\": %d, \"epoch\": %u, \"restarts\": %d, ", row->pid, row->epoch, row->restarts);
    if (waits(seen) && row->awaited >= 0) (void)fprintf(stream, "\"awaited\": %d, ", row->awaited);
    (void)fprintf(stream, "\"waits_ms\": %.3f, \"age_ms\": %.3f, ", waits(seen) ? (double)row->waits_ns / 1e6 : 0.0,
                  (double)row->age_ns / 1e6);
    (void)fprintf(stream, "\"ops\": %llu, \"bytes\": %llu, \"waited_ms\": %.3f, ", (unsigned long long)row->ops,
                  (unsigned long long)row->bytes, (double)row->waited_ns / 1e6);
    (void)fprintf(stream, "\"skew_mean_us\": %.3f, \"skew_max_us\": %.3f, \"memory_bytes\": %lld}",
                  (double)row->skew_mean_ns / 1e3, (double)row->skew_max_ns / 1e3, seen->memory);
}

void job_table_print_json(FILE *stream, const tutti_board *board)
{
    char host[65];
    tutti_board_about about;
    struct seen seen;
    name_host(host);
    tutti_board_describe(board, &about);
    (void)fputs("[\n", stream);
    for (int i = 0; i < about.ranks; i++) {
        if (!look(board, about.first_rank + i, &seen)) continue;
        print_json_row(stream, &seen, host, about.job);
        (void)fputs(i + 1 < about.ranks ? ",\n" : "\n", stream);
    }
    (void)fputs("]\n", stream);
}
