/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli_sim.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- Files ------------------------------------------------------------------------------------------------------- */

int sim_open(const char *path, FILE **stream)
{
    *stream = NULL;
    if (path[0] == '\0') return CLI_GO_ON;
    *stream = cli_is_stdout(path) ? stdout : fopen(path, "we");
    return *stream != NULL ? CLI_GO_ON : cli_blame_path("sim", "cannot write", path);
}

int sim_close(const char *path, FILE *stream)
{
    if (stream == NULL) return CLI_OK;
    bool bad = ferror(stream) || fflush(stream) != 0;
    if (stream != stdout) bad |= fclose(stream) != 0;
    return bad ? cli_fail("sim", "cannot write %s: %s", path, strerror(errno)) : CLI_OK;
}

/* ---- Numbers for people ------------------------------------------------------------------------------------------ */

const char *sim_time_text(int64_t ns, char text[32])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double value = (double)ns;
    int unit = 0;
    for (; value >= 1000 && unit < 3; unit++) value /= 1000;
    (void)snprintf(text, 32,
                   unit == 0     ? "%.0f %s"
                   : value < 10  ? "%.2f %s"
                   : value < 100 ? "%.1f %s"
                                 : "%.0f %s",
                   value, units[unit]);
    return text;
}

const char *sim_size_text(size_t bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++) value /= 1024;
    (void)snprintf(text, 32, value == floor(value) ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

bool sim_has_size(const struct sim_case *c)
{
    return c->op->shape != FLOOR_BARRIER;
}

static void print_case(FILE *stream, const struct sim_case *c)
{
    char size[32], link[32], local[32];
    const tutti_sim_setup made = sim_setup_of(c), *setup = &made;
    int ranks = setup->hosts * setup->ranks_per_host;
    (void)fprintf(stream, "%s%s%s, %d ranks on %d host%s", c->op->name, sim_has_size(c) ? " of " : "",
                  sim_has_size(c) ? sim_size_text(c->bytes, size) : "", ranks, setup->hosts,
                  setup->hosts == 1 ? "" : "s");
    if (setup->hosts > 1)
        (void)fprintf(stream, ", links %g Gbit/s and %s", setup->link_bytes_per_s * 8 / 1e9,
                      sim_time_text(setup->link_latency_ns, link));
    (void)fprintf(stream, ", memory %g GB/s and %s, seed %llu\n", setup->local_bytes_per_s / 1e9,
                  sim_time_text(setup->local_latency_ns, local), (unsigned long long)setup->seed);
}

/* Writes the bytes of the vector per nanosecond, which is GB/s. */
static const char *rate_text(const struct sim_case *c, const struct sim_prediction *prediction, char text[32])
{
    double rate = prediction->time_ns > 0 ? (double)c->bytes / (double)prediction->time_ns : 0;
    (void)snprintf(text, 32, sim_has_size(c) ? "%.2f" : "-", rate);
    return text;
}

void sim_report_all(FILE *stream, const struct sim_case *c, const struct sim_prediction *predictions, size_t count,
                    int chosen)
{
    bool any_too_large = false;
    print_case(stream, c);
    (void)fprintf(stream, "   %-16s %12s %10s  %s\n", "algorithm", "time", "GB/s", "");
    for (size_t i = 0; i < count; i++) {
        char time[32], rate[32];
        if (predictions[i].too_large) {
            any_too_large = true;
            (void)fprintf(stream, "   %-16s %12s %10s  %s\n", predictions[i].name, "-", "-", predictions[i].why);
            continue;
        }
        (void)fprintf(stream, " %c %-16s %12s %10s  %s\n", (int)i == chosen ? '*' : ' ', predictions[i].name,
                      sim_time_text(predictions[i].time_ns, time), rate_text(c, &predictions[i], rate),
                      predictions[i].help);
    }
    (void)fprintf(stream, chosen >= 0 ? " * what the library chooses\n"
                                      : " what the library chooses is too large to be simulated here\n");
    if (any_too_large)
        (void)fprintf(stream,
                      " - not simulated: takes a larger --limit, or fewer --bytes, --hosts or --ranks-per-host\n");
}

void sim_report_sweep(FILE *stream, const struct sim_case *c, const struct sim_cell *cells, size_t rows, size_t columns)
{
    char text[32];
    print_case(stream, c);
    (void)fprintf(stream, "%10s", "hosts");
    for (size_t column = 0; column < columns; column++) (void)fprintf(stream, " %10d", cells[column].hosts);
    (void)fprintf(stream, "\n");
    for (size_t row = 0; row < rows; row++) {
        (void)fprintf(stream, "%10s", sim_has_size(c) ? sim_size_text(cells[row * columns].bytes, text) : "-");
        for (size_t column = 0; column < columns; column++) {
            const struct sim_prediction *chosen = &cells[row * columns + column].chosen;
            (void)fprintf(stream, " %10s", chosen->too_large ? "-" : sim_time_text(chosen->time_ns, text));
        }
        (void)fprintf(stream, "\n");
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

void sim_json(FILE *stream, const struct sim_case *c, const struct sim_prediction *prediction, bool is_chosen)
{
    const tutti_sim_setup made = sim_setup_of(c), *setup = &made;
    if (prediction->too_large) return;
    (void)fprintf(stream,
                  "{\"op\": \"%s\", \"bytes\": %zu, \"dtype\": \"%s\", \"hosts\": %d, \"ranks_per_host\": %d, "
                  "\"link_bytes_per_s\": %.17g, \"link_latency_ns\": %lld, \"local_bytes_per_s\": %.17g, "
                  "\"local_latency_ns\": %lld, \"overhead_ns\": %lld, \"noise_ns\": %lld, \"seed\": %llu, ",
                  c->op->name, sim_has_size(c) ? c->bytes : 0, tutti_type_name(c->type), setup->hosts,
                  setup->ranks_per_host, setup->link_bytes_per_s, (long long)setup->link_latency_ns,
                  setup->local_bytes_per_s, (long long)setup->local_latency_ns, (long long)setup->overhead_ns,
                  (long long)setup->noise_ns, (unsigned long long)setup->seed);
    if (prediction->name != NULL) (void)fprintf(stream, "\"algorithm\": \"%s\", ", prediction->name);
    (void)fprintf(stream,
                  "\"chosen\": %s, \"time_ns\": %lld, \"events\": %llu, \"trace\": \"%016llx\", \"real_s\": %.6f, "
                  "\"peak_bytes\": %lld}\n",
                  is_chosen ? "true" : "false", (long long)prediction->time_ns, (unsigned long long)prediction->events,
                  (unsigned long long)prediction->trace, prediction->real_s, (long long)prediction->peak_bytes);
}
