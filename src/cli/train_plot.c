/* SPDX-License-Identifier: Apache-2.0
 *
 * Plots the loss over steps, in the terminal and as SVG.
 */
#include "cli/cli_train.h"

#include <inttypes.h>
#include <math.h>

/* The range of a plot: steps from first to last, losses from low to high. */
struct frame {
    double first, last, low, high;
};

static struct frame frame_of(const struct train_point *points, size_t count, double entropy)
{
    struct frame frame = {(double)points[0].step, (double)points[count - 1].step, INFINITY, -INFINITY};
    for (size_t i = 0; i < count; i++) {
        frame.low = fmin(frame.low, fmin(points[i].loss, points[i].validation)); /* fmin ignores NaN */
        frame.high = fmax(frame.high, fmax(points[i].loss, points[i].validation));
    }
    frame.low = fmin(frame.low, entropy);
    if (!(frame.high > frame.low)) frame.high = frame.low + 1;
    if (!(frame.last > frame.first)) frame.last = frame.first + 1;
    return frame;
}

/* ---- Terminal -------------------------------------------------------------------------------------------------- */

enum { COLUMNS = 72, ROWS = 12, DOTS = 4 }; /* a character has 2 by 4 dots of braille */

static void set_dot(unsigned char cells[ROWS][COLUMNS], const struct frame *frame, double step, double loss)
{
    static const unsigned char bits[DOTS][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (!isfinite(loss)) return;
    int x = (int)((step - frame->first) / (frame->last - frame->first) * (2 * COLUMNS - 1) + 0.5);
    int y = (int)((frame->high - loss) / (frame->high - frame->low) * (DOTS * ROWS - 1) + 0.5);
    cells[y / DOTS][x / 2] |= bits[y % DOTS][x % 2];
}

void train_plot_terminal(FILE *stream, const struct train_point *points, size_t count, double entropy)
{
    unsigned char cells[ROWS][COLUMNS] = {{0}};
    struct frame frame = frame_of(points, count, entropy);
    for (size_t i = 0; i < count; i++) set_dot(cells, &frame, (double)points[i].step, points[i].loss);
    for (int x = 0; isfinite(entropy) && x < COLUMNS; x += 2)
        set_dot(cells, &frame, frame.first + (frame.last - frame.first) * x / COLUMNS, entropy);
    for (int y = 0; y < ROWS; y++) {
        if (y == 0 || y == ROWS - 1)
            (void)fprintf(stream, "%8.3f ", y == 0 ? frame.high : frame.low);
        else
            (void)fprintf(stream, "%8s ", "");
        for (int x = 0; x < COLUMNS; x++) /* U+2800 and the dots, in UTF-8 */
            (void)fprintf(stream, "\xe2%c%c", 0xa0 + (cells[y][x] >> 6), 0x80 + (cells[y][x] & 0x3f));
        (void)fprintf(stream, "\n");
    }
    (void)fprintf(stream, "%8s step %-8.0f%*.0f\n", "loss", frame.first, COLUMNS - 13, frame.last);
}

/* ---- SVG ------------------------------------------------------------------------------------------------------- */

enum { WIDTH = 720, HEIGHT = 400, LEFT = 60, RIGHT = 20, TOP = 20, BOTTOM = 40 };

static double svg_x(const struct frame *frame, double step)
{
    return LEFT + (step - frame->first) / (frame->last - frame->first) * (WIDTH - LEFT - RIGHT);
}

static double svg_y(const struct frame *frame, double loss)
{
    return TOP + (frame->high - loss) / (frame->high - frame->low) * (HEIGHT - TOP - BOTTOM);
}

static void svg_axes(FILE *file, const struct frame *frame)
{
    enum { TICKS = 5 };
    for (int i = 0; i <= TICKS; i++) {
        double loss = frame->low + (frame->high - frame->low) * i / TICKS;
        double step = frame->first + (frame->last - frame->first) * i / TICKS;
        (void)fprintf(file, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>\n", LEFT, svg_y(frame, loss), WIDTH - RIGHT);
        (void)fprintf(file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n", LEFT - 6,
                      svg_y(frame, loss) + 4, loss);
        (void)fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n", svg_x(frame, step),
                      HEIGHT - BOTTOM + 18, step);
    }
    (void)fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", WIDTH / 2, HEIGHT - 6);
}

static void svg_lines(FILE *file, const struct frame *frame, const struct train_point *points, size_t count)
{
    (void)fprintf(file, "<polyline fill=\"none\" stroke=\"#1f77b4\" points=\"");
    for (size_t i = 0; i < count; i++)
        (void)fprintf(file, "%.1f,%.1f ", svg_x(frame, (double)points[i].step), svg_y(frame, points[i].loss));
    (void)fprintf(file, "\"/>\n");
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(points[i].validation)) continue;
        (void)fprintf(file,
                      "<circle r=\"3\" fill=\"#d62728\" cx=\"%.1f\" cy=\"%.1f\"><title>held-out, step %" PRIu64
                      ": %.4f</title></circle>\n",
                      svg_x(frame, (double)points[i].step), svg_y(frame, points[i].validation), points[i].step,
                      points[i].validation);
    }
}

bool train_plot_svg(const char *path, const struct train_point *points, size_t count, double entropy)
{
    bool own = !cli_is_stdout(path);
    FILE *file = own ? fopen(path, "we") : stdout;
    if (file == NULL) return false;
    (void)fprintf(file,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                  "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                  WIDTH, HEIGHT);
    if (count > 0) {
        struct frame frame = frame_of(points, count, entropy);
        svg_axes(file, &frame);
        svg_lines(file, &frame, points, count);
        if (isfinite(entropy))
            (void)fprintf(file, "<path d=\"M%d %.1fH%d\" stroke=\"#2ca02c\" stroke-dasharray=\"4\"/>\n", LEFT,
                          svg_y(&frame, entropy), WIDTH - RIGHT);
    }
    (void)fprintf(file,
                  "<g><rect x=\"%d\" y=\"%d\" width=\"12\" height=\"3\" fill=\"#1f77b4\"/><text x=\"%d\" y=\"%d\">"
                  "training loss</text><circle r=\"3\" cx=\"%d\" cy=\"%d\" fill=\"#d62728\"/><text x=\"%d\" "
                  "y=\"%d\">held-out loss</text></g>\n</svg>\n",
                  WIDTH - 140, TOP + 6, WIDTH - 122, TOP + 12, WIDTH - 134, TOP + 24, WIDTH - 122, TOP + 28);
    bool written = fflush(file) == 0 && ferror(file) == 0;
    return (!own || fclose(file) == 0) && written;
}
