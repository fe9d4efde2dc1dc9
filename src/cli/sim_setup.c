/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads hosts and links as users describe them, or as tutti bench --tune measured them.
 */
#include "cli/cli_sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Rates and times --------------------------------------------------------------------------------------------- */

#define RATE_LEAST 8 /* least bits or bytes per second */
#define RATE_MOST 1e18
#define TIME_MOST 1e15 /* nanoseconds */

struct suffix {
    const char *text;
    double factor;
};

static bool with_suffix(const char *text, const struct suffix *suffixes, double *number)
{
    char *end = NULL;
    *number = strtod(text, &end);
    if (end == text || !(*number >= 0)) return false;
    for (; suffixes->text != NULL; suffixes++)
        if (strcmp(end, suffixes->text) == 0) {
            *number *= suffixes->factor;
            return *number <= RATE_MOST;
        }
    return false;
}

static bool read_time(const char *text, int64_t *ns)
{
    static const struct suffix suffixes[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
    double number;
    if (!with_suffix(text, suffixes, &number) || number > TIME_MOST) return false;
    *ns = (int64_t)(number + 0.5);
    return true;
}

/* Reads a rate in bytes per second; `bits`: a number without a unit counts bits. */
static bool read_rate(const char *text, bool bits, double *bytes_per_s)
{
    static const struct suffix suffixes[] = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {NULL, 0}};
    char copy[64];
    size_t length = strlen(text);
    if (length >= sizeof copy) return false;
    memcpy(copy, text, length + 1);
    if (length > 3 && strcmp(copy + length - 3, "bit") == 0) {
        copy[length - 3] = '\0';
        bits = true;
    } else if (length > 1 && copy[length - 1] == 'B') {
        copy[length - 1] = '\0';
        bits = false;
    }
    if (!with_suffix(copy, suffixes, bytes_per_s) || *bytes_per_s < RATE_LEAST) return false;
    if (bits) *bytes_per_s /= 8;
    return true;
}

static int read_pair(const char *command, const char *flag, const char *text, bool bits, double *rate,
                     int64_t *latency_ns)
{
    char copy[64];
    const char *colon = strchr(text, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - text);
    if (colon != NULL && length < sizeof copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
        if (read_rate(copy, bits, rate) && read_time(colon + 1, latency_ns)) return CLI_GO_ON;
    }
    return cli_refuse(command, "--%s is '%s'; it takes RATE:TIME, such as %s: %d to %g %s per second, and up to %.0fs",
                      flag, text, bits ? "400G:5us" : "50G:1us", RATE_LEAST, RATE_MOST, bits ? "bits" : "bytes",
                      TIME_MOST / 1e9);
}

static int read_one_time(const char *command, const char *flag, const char *text, int64_t *ns)
{
    if (read_time(text, ns)) return CLI_GO_ON;
    return cli_refuse(command, "--%s is '%s'; it takes a time, such as 100ns, 5us or 1ms, up to %.0fs", flag, text,
                      TIME_MOST / 1e9);
}

/* ---- Copying ----------------------------------------------------------------------------------------------------- */

static int refuse_copy(const char *command, const char *text)
{
    return cli_refuse(command,
                      "--copy is '%s'; it takes bytes per second, such as 5G, or growing sizes and the time of each, "
                      "such as 0:1us,64K:12us",
                      text);
}

static bool read_size(const char *text, uint64_t *bytes)
{
    static const tutti_option_row row = {"copy", TUTTI_OPTION_BYTES, "0", 0, INT64_C(1) << 40, ""};
    int64_t number;
    if (tutti_option_parse(&row, text, &number, NULL) != TUTTI_OK) return false;
    *bytes = (uint64_t)number;
    return true;
}

static bool add_point(tutti_sim_point *points, size_t *count, bool grow, char *text)
{
    char *colon = strchr(text, ':');
    if (colon == NULL || *count == SIM_MAX_POINTS) return false;
    *colon = '\0';
    tutti_sim_point *point = &points[(*count)++];
    if (!read_size(text, &point->bytes) || !read_time(colon + 1, &point->ns)) return false;
    return *count == 1 || (point->bytes > point[-1].bytes && (!grow || point->ns >= point[-1].ns));
}

/* Reads points. `grow`: a larger size must not have a shorter time. */
static bool read_points(const char *text, bool grow, tutti_sim_point *points, size_t *count)
{
    char copy[SIM_LINE], *rest = NULL;
    if (strlen(text) >= sizeof copy) return false;
    strcpy(copy, text);
    for (char *part = strtok_r(copy, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest))
        if (!add_point(points, count, grow, part)) return false;
    return true;
}

static int read_copy(const char *command, const char *text, struct sim_costs *costs)
{
    double rate;
    if (text[0] == '\0') return CLI_GO_ON;
    if (strchr(text, ':') == NULL) {
        if (!read_rate(text, false, &rate)) return refuse_copy(command, text);
        costs->copy[1] = (tutti_sim_point){1 << 30, (int64_t)((1 << 30) / rate * 1e9)};
        costs->copy_count = 2;
        return CLI_GO_ON;
    }
    return read_points(text, true, costs->copy, &costs->copy_count) ? CLI_GO_ON : refuse_copy(command, text);
}

/* ---- Figures from a file ----------------------------------------------------------------------------------------- */

struct figures {
    char link[SIM_LINE], local[SIM_LINE], copy[SIM_LINE], delay[SIM_LINE];
    char far[SIM_LINE], local_far[SIM_LINE], copy_far[SIM_LINE], delay_far[SIM_LINE];
};

static void read_figure(const char *line, const char *name, char *value)
{
    size_t length = strlen(name);
    if (strncmp(line, "# ", 2) != 0 || strncmp(line + 2, name, length) != 0 || line[2 + length] != ' ') return;
    (void)snprintf(value, SIM_LINE, "%.*s", (int)strcspn(line + 3 + length, "\n"), line + 3 + length);
}

static int read_figures(const char *command, const char *path, struct figures *figures)
{
    char line[SIM_LINE];
    FILE *file = fopen(path, "re");
    if (file == NULL) return cli_refuse(command, "--links: cannot read %s: %s", path, strerror(errno));
    bool text = true;
    while (text && fgets(line, sizeof line, file) != NULL) {
        text = strchr(line, '\n') != NULL || feof(file);
        read_figure(line, "link", figures->link);
        read_figure(line, "local", figures->local);
        read_figure(line, "copy", figures->copy);
        read_figure(line, "delay", figures->delay);
        read_figure(line, "far", figures->far);
        read_figure(line, "local_far", figures->local_far);
        read_figure(line, "copy_far", figures->copy_far);
        read_figure(line, "delay_far", figures->delay_far);
    }
    (void)fclose(file);
    if (!text) return cli_refuse(command, "--links: %s has a line that is no text, or too long", path);
    if (figures->link[0] != '\0' && figures->local[0] != '\0' && figures->copy[0] != '\0') return CLI_GO_ON;
    return cli_refuse(command, "--links: %s has no figures of links; tutti bench --tune %s --transport tcp writes them",
                      path, path);
}

static int read_costs(const char *command, const char *local, const char *copy, struct sim_costs *costs)
{
    int status = read_pair(command, "local", local, false, &costs->local_bytes_per_s, &costs->local_latency_ns);
    return status == CLI_GO_ON ? read_copy(command, copy, costs) : status;
}

static int read_delay(const char *command, const char *path, const char *text, struct sim_costs *costs)
{
    if (read_points(text, false, costs->delay, &costs->delay_count)) return CLI_GO_ON;
    return cli_refuse(command, "--links: %s says delay '%s'; it takes growing sizes and the time of each", path, text);
}

static int read_links(const char *command, const char *path, struct sim_case *c)
{
    static struct figures figures;
    uint64_t far = 0;
    int status = read_figures(command, path, &figures);
    if (status == CLI_GO_ON)
        status = read_pair(command, "link", figures.link, true, &c->setup.link_bytes_per_s, &c->setup.link_latency_ns);
    if (status == CLI_GO_ON) status = read_costs(command, figures.local, figures.copy, &c->near);
    if (status == CLI_GO_ON) status = read_delay(command, path, figures.delay, &c->near);
    if (status != CLI_GO_ON || figures.far[0] == '\0') return status;
    if (!read_size(figures.far, &far)) return cli_refuse(command, "--links: %s says far '%s'", path, figures.far);
    c->far_bytes = (size_t)far;
    status = read_costs(command, figures.local_far, figures.copy_far, &c->far);
    return status == CLI_GO_ON ? read_delay(command, path, figures.delay_far, &c->far) : status;
}

tutti_sim_setup sim_setup_of(const struct sim_case *c)
{
    const struct sim_costs *costs = c->far_bytes > 0 && c->bytes >= c->far_bytes ? &c->far : &c->near;
    tutti_sim_setup setup = c->setup;
    setup.local_bytes_per_s = costs->local_bytes_per_s;
    setup.local_latency_ns = costs->local_latency_ns;
    setup.copy = costs->copy;
    setup.copy_count = costs->copy_count;
    setup.delay = costs->delay;
    setup.delay_count = costs->delay_count;
    return setup;
}

int sim_read_setup(const char *command, const struct sim_values *flags, struct sim_case *c)
{
    tutti_sim_setup *setup = &c->setup;
    tutti_sim_setup_init(setup);
    setup->hosts = (int)flags->hosts;
    setup->ranks_per_host = (int)flags->ranks_per_host;
    setup->seed = (uint64_t)flags->seed;
    setup->sizes_only = true;
    setup->limit_ms = flags->limit_ms;
    int status = read_pair(command, "link", flags->link, true, &setup->link_bytes_per_s, &setup->link_latency_ns);
    if (status == CLI_GO_ON) status = read_costs(command, flags->local, flags->copy, &c->near);
    if (status == CLI_GO_ON) status = read_one_time(command, "overhead", flags->overhead, &setup->overhead_ns);
    if (status == CLI_GO_ON) status = read_one_time(command, "noise", flags->noise, &setup->noise_ns);
    if (status != CLI_GO_ON || flags->links[0] == '\0') return status;
    c->near = (struct sim_costs){0};
    return read_links(command, flags->links, c);
}
