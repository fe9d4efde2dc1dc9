/* SPDX-License-Identifier: Apache-2.0
 *
 * The table has the columns of nccl-tests, then the fastest and the 99th percentile sample, the floor, and the fraction
 * of it that was reached. The JSON file has one object per line and per measurement.
 */
#include "cli/bench.h"

#include <errno.h>
#include <string.h>

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

static void print_device(const struct bench_report *report, const struct bench_rank *self)
{
    const struct bench_device *device = self->device;
    (void)fprintf(report->table, "# device: %s (%s)", tutti_device_name(device->device), device->about.model);
    if (device->devices > 1) (void)fprintf(report->table, " on rank 0, %d devices in all", device->devices);
    (void)fprintf(report->table,
                  "; provider %s: %s\n"
                  "# calls of a sample are queued on a stream, and waited for together (-m 1: each)\n"
                  "# floor: the bytes that the ranks must read and write, copied from the device to itself\n",
                  device->provider, device->why);
}

static void print_header(const struct bench_report *report, const struct bench_rank *self)
{
    const struct bench_settings *settings = self->settings;
    (void)fprintf(report->table,
                  "# tutti bench %d.%d.%d: %d ranks as %s, transport %s, %s buffers, %s\n"
                  "# machine: %s, %d cores; kernels %s, floor %s\n"
                  "# time is the median (p50) of the samples; %%fl: floor / time\n",
                  TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH, self->ranks,
                  settings->as_threads ? "threads" : "processes", tutti_comm_transport(self->world),
                  settings->buffers_private ? "private" : "shared",
                  self->bound ? "each on its core" : "not bound to cores", tutti_cpu(), self->cores, tutti_kernels(),
                  floor_kernels_name());
    if (self->device != NULL) print_device(report, self);
}

int bench_report_open(struct bench_report *report, struct bench_rank *self)
{
    const char *json = self->settings->flags.json;
    *report = (struct bench_report){.table = stdout, .checked = self->settings->flags.check != 0};
    if (cli_is_stdout(json)) {
        report->json = stdout;
        report->table = stderr;
    } else if (json[0] != '\0') {
        report->json = fopen(json, "we");
        if (!report->json) return cli_blame_path("bench", "cannot write", json);
    }
    print_header(report, self);
    return CLI_GO_ON;
}

int bench_report_close(struct bench_report *report)
{
    if (report->results) {
        if (report->checked)
            (void)fprintf(report->table, "\n# wrong elements: %llu\n", (unsigned long long)report->wrong);
        else
            (void)fprintf(report->table, "\n# results were not checked\n");
        (void)fprintf(report->table, "# average busbw: %.3f GB/s\n", report->bus_sum / (double)report->results);
    }
    bool bad = fflush(report->table) != 0;
    if (report->json) {
        bad |= ferror(report->json) || fflush(report->json) != 0;
        if (report->json != stdout) bad |= fclose(report->json) != 0;
    }
    if (bad) return cli_fail("bench", "cannot write the results: %s", strerror(errno));
    return report->wrong ? CLI_FAILED : CLI_OK;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

void bench_report_section(struct bench_report *report, const struct bench_op *op)
{
    static const char *const side = "    time     min     p99  algbw  busbw   floor  %fl #wr";
    static const char *const units = "    (us)    (us)    (us) (GB/s) (GB/s)    (us)         ";
    bool twice = op->in_place != BENCH_NEVER;
    (void)fprintf(report->table, "\n# %s: %s\n", op->name, op->help);
    (void)fprintf(report->table, "#%38s  %-53s%s\n", "", "out-of-place", twice ? "  in-place" : "");
    (void)fprintf(report->table, "#%10s %9s %6s %5s %4s%s%s\n", "size", "count", "type", "redop", "root", side,
                  twice ? side : "");
    (void)fprintf(report->table, "#%10s %9s %6s %5s %4s%s%s\n", "(B)", "", "", "", "", units, twice ? units : "");
    (void)fflush(report->table);
}

/* Prints about four digits, in 7 characters. */
static void print_us(FILE *stream, double seconds)
{
    double us = seconds * 1e6;
    int decimals = us < 10 ? 3 : us < 100 ? 2 : us < 10000 ? 1 : 0;
    (void)fprintf(stream, " %7.*f", decimals, us);
}

static void print_bandwidth(FILE *stream, double gigabytes)
{
    int decimals = gigabytes < 10 ? 3 : gigabytes < 100 ? 2 : gigabytes < 1000 ? 1 : 0;
    (void)fprintf(stream, " %6.*f", decimals, gigabytes);
}

static void print_side(FILE *stream, const struct bench_result *result, double algbw, double busbw)
{
    print_us(stream, result->p50);
    print_us(stream, result->min);
    print_us(stream, result->p99);
    print_bandwidth(stream, algbw);
    print_bandwidth(stream, busbw);
    if (result->floor > 0) {
        print_us(stream, result->floor);
        (void)fprintf(stream, " %4.0f", 100 * result->floor / result->p50);
    } else {
        (void)fprintf(stream, " %7s %4s", "-", "-");
    }
    if (result->wrong == UINT64_MAX)
        (void)fprintf(stream, " %3s", "N/A");
    else
        (void)fprintf(stream, " %3llu", (unsigned long long)result->wrong);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_text(FILE *stream, const char *name, const char *text)
{
    (void)fprintf(stream, "\"%s\":\"", name);
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            (void)fprintf(stream, "\\%c", byte);
        else if (byte < 0x20)
            (void)fprintf(stream, "\\u%04x", byte);
        else
            (void)fputc(byte, stream);
    }
    (void)fputs("\",", stream);
}

static void json_count(FILE *stream, const char *name, uint64_t number)
{
    (void)fprintf(stream, "\"%s\":%llu,", name, (unsigned long long)number);
}

static void json_real(FILE *stream, const char *name, double number)
{
    (void)fprintf(stream, "\"%s\":%.6g,", name, number);
}

static void json_device(FILE *stream, const struct bench_device *device, const char *provider)
{
    if (device == NULL) {
        (void)fputs("\"device\":null,\"provider\":null,", stream);
        return;
    }
    json_text(stream, "device", tutti_device_name(device->device));
    json_text(stream, "provider", provider == NULL ? "" : provider);
}

static void json_case(FILE *stream, const struct bench_rank *self, const struct bench_case *c, const char *provider)
{
    const struct bench_settings *settings = self->settings;
    (void)fputc('{', stream);
    json_text(stream, "op", c->op->name);
    json_count(stream, "ranks", (uint64_t)self->ranks);
    json_text(stream, "as", settings->as_threads ? "threads" : "processes");
    json_text(stream, "transport", tutti_comm_transport(self->world));
    json_text(stream, "buffers", settings->buffers_private ? "private" : "shared");
    json_device(stream, self->device, provider);
    json_count(stream, "bytes", c->bytes);
    json_count(stream, "count", c->count);
    json_text(stream, "dtype", tutti_type_name(c->type));
    if (c->op->reduces)
        json_text(stream, "redop", bench_reduction_name(c->reduction));
    else
        (void)fputs("\"redop\":null,", stream);
    if (c->op->rooted)
        json_count(stream, "root", (uint64_t)c->root);
    else
        (void)fputs("\"root\":null,", stream);
}

static void json_row(FILE *stream, const struct bench_rank *self, const struct bench_case *c, bool in_place,
                     const struct bench_result *result, double algbw, double busbw)
{
    json_case(stream, self, c, result->provider);
    (void)fprintf(stream, "\"in_place\":%s,", in_place ? "true" : "false");
    json_count(stream, "samples", result->samples);
    json_count(stream, "batch", result->batch);
    json_real(stream, "min_us", result->min * 1e6);
    json_real(stream, "p50_us", result->p50 * 1e6);
    json_real(stream, "p99_us", result->p99 * 1e6);
    json_real(stream, "algbw", algbw);
    json_real(stream, "busbw", busbw);
    if (result->floor > 0) {
        json_real(stream, "floor_us", result->floor * 1e6);
        json_real(stream, "floor_min_us", result->floor_min * 1e6);
    } else {
        (void)fputs("\"floor_us\":null,\"floor_min_us\":null,", stream);
    }
    if (result->wrong == UINT64_MAX)
        (void)fputs("\"wrong\":null}\n", stream);
    else
        (void)fprintf(stream, "\"wrong\":%llu}\n", (unsigned long long)result->wrong);
    (void)fflush(stream);
}

/* ---- A row ------------------------------------------------------------------------------------------------------- */

static void report_side(struct bench_report *report, struct bench_rank *self, const struct bench_case *c, bool in_place,
                        const struct bench_result *result)
{
    double algbw = result->p50 > 0 ? (double)c->bytes / result->p50 / 1e9 : 0;
    double busbw = algbw * bench_bus_factor(c->op, self->ranks);
    print_side(report->table, result, algbw, busbw);
    if (report->json) json_row(report->json, self, c, in_place, result, algbw, busbw);
    report->bus_sum += busbw;
    report->results++;
    if (result->wrong != UINT64_MAX) report->wrong += result->wrong;
}

/* Names the provider of calls that the comm's provider left to another one. */
static void print_carrier(FILE *stream, const struct bench_device *device, const struct bench_result *result)
{
    if (device == NULL || result->provider == NULL || strcmp(result->provider, device->provider) == 0) return;
    (void)fprintf(stream, "  %s", result->provider);
}

void bench_report_row(struct bench_report *report, struct bench_rank *self, const struct bench_case *c,
                      const struct bench_result *out_of_place, const struct bench_result *in_place)
{
    (void)fprintf(report->table, " %10zu %9zu %6s %5s %4d", c->bytes, c->count, tutti_type_name(c->type),
                  c->op->reduces ? bench_reduction_name(c->reduction) : "none", c->op->rooted ? c->root : -1);
    report_side(report, self, c, false, out_of_place);
    if (in_place) report_side(report, self, c, true, in_place);
    print_carrier(report->table, self->device, out_of_place);
    (void)fputc('\n', report->table);
    (void)fflush(report->table);
}
