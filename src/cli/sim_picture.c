/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws a sweep: time over bytes, a line for each number of ranks; for a single size, time over ranks.
 */
#include "cli/cli_sim.h"

#include <math.h>

enum { WIDTH = 860, HEIGHT = 560, LEFT = 90, RIGHT = 120, TOP = 60, BOTTOM = 60, COLOURS = 12 };

struct picture {
    const struct sim_case *c;
    const struct sim_cell *cells;
    size_t rows, columns;                /* sizes, hosts */
    bool over_ranks;                     /* there is one size only, or none */
    double x_low, x_high, y_low, y_high; /* both axes in decades */
};

static int ranks_of(const struct picture *picture, const struct sim_cell *cell)
{
    return cell->hosts * picture->c->setup.ranks_per_host;
}

static double x_value(const struct picture *picture, const struct sim_cell *cell)
{
    return picture->over_ranks ? (double)ranks_of(picture, cell) : (double)cell->bytes;
}

static double x_at(const struct picture *picture, const struct sim_cell *cell)
{
    double part = (log10(x_value(picture, cell)) - picture->x_low) / (picture->x_high - picture->x_low);
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}

static double y_at(const struct picture *picture, double decade)
{
    double part = (decade - picture->y_low) / (picture->y_high - picture->y_low);
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

static double decade_of(const struct sim_cell *cell)
{
    return cell->chosen.time_ns > 0 ? log10((double)cell->chosen.time_ns) : 0;
}

static void set_axes(struct picture *picture)
{
    size_t count = picture->rows * picture->columns;
    picture->x_low = log10(x_value(picture, &picture->cells[0]));
    picture->x_high = log10(x_value(picture, &picture->cells[count - 1]));
    picture->y_low = 18;
    for (size_t i = 0; i < count; i++) {
        if (picture->cells[i].chosen.too_large) continue;
        double decade = decade_of(&picture->cells[i]);
        if (floor(decade) < picture->y_low) picture->y_low = floor(decade);
        if (ceil(decade) > picture->y_high) picture->y_high = ceil(decade);
    }
    if (picture->y_low > picture->y_high) picture->y_low = 0; /* there are no times */
    if (picture->y_high <= picture->y_low) picture->y_high = picture->y_low + 1;
    if (picture->x_high <= picture->x_low) picture->x_high = picture->x_low + 1;
}

static void draw_axes(FILE *stream, const struct picture *picture)
{
    char text[32];
    for (double decade = picture->y_low; decade <= picture->y_high; decade++) {
        double y = y_at(picture, decade);
        (void)fprintf(stream,
                      "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                      "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                      LEFT, y, WIDTH - RIGHT, y, LEFT - 8, y + 4, sim_time_text((int64_t)pow(10, decade), text));
    }
    size_t count = picture->over_ranks ? picture->columns : picture->rows;
    for (size_t i = 0; i < count; i++) {
        const struct sim_cell *cell = &picture->cells[picture->over_ranks ? i : i * picture->columns];
        double x = x_at(picture, cell);
        if (picture->over_ranks)
            (void)snprintf(text, sizeof text, "%d", ranks_of(picture, cell));
        else
            sim_size_text(cell->bytes, text);
        (void)fprintf(stream,
                      "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#eee\"/>\n"
                      "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                      x, TOP, x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 20, text);
    }
    (void)fprintf(stream, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#666\">%s</text>\n",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, picture->over_ranks ? "ranks" : "bytes");
}

/* Draws `count` cells, each `stride` after the one before. */
static void draw_line(FILE *stream, const struct picture *picture, const struct sim_cell *first, size_t count,
                      size_t stride, const char *colour)
{
    (void)fprintf(stream, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (size_t i = 0; i < count; i++)
        if (!first[i * stride].chosen.too_large)
            (void)fprintf(stream, "%.1f,%.1f ", x_at(picture, &first[i * stride]),
                          y_at(picture, decade_of(&first[i * stride])));
    (void)fprintf(stream, "\"/>\n");
    for (size_t i = 0; i < count; i++)
        if (!first[i * stride].chosen.too_large)
            (void)fprintf(stream, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                          x_at(picture, &first[i * stride]), y_at(picture, decade_of(&first[i * stride])), colour);
}

static void draw_lines(FILE *stream, const struct picture *picture)
{
    static const char *const colours[COLOURS] = {"#1b6ca8", "#c8553d", "#2a9d5c", "#8e5ea2", "#b8860b", "#3b8ea5",
                                                 "#d1495b", "#555555", "#e377c2", "#6b8e23", "#00429d", "#a0522d"};
    size_t columns = picture->columns;
    if (picture->over_ranks) {
        draw_line(stream, picture, picture->cells, columns, 1, colours[0]);
        return;
    }
    for (size_t column = 0; column < columns; column++) {
        const char *colour = colours[column % COLOURS];
        draw_line(stream, picture, &picture->cells[column], picture->rows, columns, colour);
        (void)fprintf(stream, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%d ranks</text>\n", WIDTH - RIGHT + 10,
                      TOP + 16 * (int)(columns - column), colour, ranks_of(picture, &picture->cells[column]));
    }
}

static void draw_title(FILE *stream, const struct picture *picture)
{
    char link[32], local[32], size[64] = "";
    const struct sim_case *c = picture->c;
    tutti_sim_setup setup = sim_setup_of(c);
    if (picture->over_ranks && sim_has_size(c))
        (void)snprintf(size, sizeof size, " of %s", sim_size_text(picture->cells[0].bytes, link));
    (void)fprintf(stream,
                  "<text x=\"%d\" y=\"26\" font-size=\"16\">%s%s: predicted time over %s, %d rank%s per host</text>\n",
                  LEFT, c->op->name, size, picture->over_ranks ? "ranks" : "bytes", c->setup.ranks_per_host,
                  c->setup.ranks_per_host == 1 ? "" : "s");
    (void)fprintf(
        stream,
        "<text x=\"%d\" y=\"46\" fill=\"#666\">links %g Gbit/s and %s, memory %g GB/s and %s, seed %llu</text>\n", LEFT,
        setup.link_bytes_per_s * 8 / 1e9, sim_time_text(setup.link_latency_ns, link), setup.local_bytes_per_s / 1e9,
        sim_time_text(setup.local_latency_ns, local), (unsigned long long)setup.seed);
}

void sim_svg(FILE *stream, const struct sim_case *c, const struct sim_cell *cells, size_t rows, size_t columns)
{
    struct picture picture = {.c = c, .cells = cells, .rows = rows, .columns = columns, .over_ranks = rows == 1};
    set_axes(&picture);
    (void)fprintf(stream,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                  WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_title(stream, &picture);
    draw_axes(stream, &picture);
    draw_lines(stream, &picture);
    (void)fprintf(stream, "</svg>\n");
}
