/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws a table, or measured times of it, as SVG: a row per rank, a box per step, grey where a rank is idle. The
 * brightness of boxes tells the chunks of a rank apart.
 */
#include "train/pipeline_table.h"

#include <math.h>
#include <string.h>

enum { LEFT = 70, RIGHT = 20, TOP = 64, ROW = 30, GAP = 6, BOTTOM = 60, WIDEST = 1400, NARROWEST = 480, LEGEND = 120 };

struct picture {
    FILE *stream;
    const struct tutti_pipeline *pipeline;
    double makespan, scale; /* scale: pixels per unit of time */
    int width, height;
};

struct colour {
    int red, green, blue;
};

static const struct colour colours[TUTTI_PIPELINE_PARTS] = {
    [TUTTI_PIPELINE_FORWARD] = {74, 134, 197},
    [TUTTI_PIPELINE_BACKWARD] = {205, 104, 74},
    [TUTTI_PIPELINE_INPUT] = {214, 147, 62},
    [TUTTI_PIPELINE_WEIGHTS] = {92, 158, 105},
};

static const char *const part_names[TUTTI_PIPELINE_PARTS] = {"forward", "backward", "input part", "weights part"};

/* Returns the colour of a part; later chunks are lighter. */
static struct colour shade(const struct tutti_pipeline *pipeline, tutti_pipeline_part part, int chunk)
{
    struct colour base = colours[part];
    double light = pipeline->chunks > 1 ? 0.45 * chunk / (pipeline->chunks - 1) : 0;
    return (struct colour){base.red + (int)(light * (255 - base.red)), base.green + (int)(light * (255 - base.green)),
                           base.blue + (int)(light * (255 - base.blue))};
}

/* Returns true if white text could not be read on the colour. */
static bool is_light(struct colour colour)
{
    return 299 * colour.red + 587 * colour.green + 114 * colour.blue > 160000;
}

static int row_at(int rank)
{
    return TOP + rank * (ROW + GAP);
}

static void draw_step(const struct picture *picture, int rank, tutti_pipeline_step step, tutti_pipeline_span span)
{
    enum { DIGIT = 7 }; /* pixels of a digit in this size */
    struct colour colour = shade(picture->pipeline, step.part, step.chunk);
    double x = LEFT + span.start * picture->scale, width = (span.end - span.start) * picture->scale;
    char text[TTI_PIPELINE_STEP_BYTES];
    (void)fprintf(picture->stream,
                  "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"rgb(%d,%d,%d)\" stroke=\"white\" "
                  "stroke-width=\"0.5\"><title>rank %d, %s: %g to %g</title></rect>\n",
                  x, row_at(rank), width, ROW, colour.red, colour.green, colour.blue, rank,
                  tutti_pipeline_step_text(picture->pipeline, step, text, sizeof text), span.start, span.end);
    int length = snprintf(text, sizeof text, "%d", step.micro);
    if (width < (double)length * DIGIT) return; /* there is no room for the text */
    const char *ink = is_light(colour) ? "#333" : "white";
    (void)fprintf(picture->stream, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\" fill=\"%s\">%s</text>\n",
                  x + width / 2, row_at(rank) + ROW / 2 + 4, ink, text);
}

static void draw_rank(const struct picture *picture, int rank, const tutti_pipeline_span *spans)
{
    const struct tti_pipeline_steps *list = &picture->pipeline->of_rank[rank];
    double busy = 0;
    for (size_t i = 0; i < list->count; i++) busy += spans[i].end - spans[i].start;
    (void)fprintf(picture->stream,
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">rank %d</text>\n"
                  "<rect x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"#e4e4e4\"><title>rank %d is idle for "
                  "%.1f%%</title></rect>\n",
                  LEFT - 8, row_at(rank) + ROW / 2 + 4, rank, LEFT, row_at(rank), picture->makespan * picture->scale,
                  ROW, rank, picture->makespan > 0 ? 100 * fmax(1 - busy / picture->makespan, 0) : 0);
    for (size_t i = 0; i < list->count; i++) draw_step(picture, rank, list->steps[i], spans[i]);
}

static void draw_title(const struct picture *picture, const char *title, const char *about, double idle)
{
    (void)fprintf(picture->stream, "<text x=\"%d\" y=\"24\" font-size=\"16\">", LEFT);
    for (const char *c = title; *c != '\0'; c++) { /* characters that are special in XML */
        if (*c == '<' || *c == '>' || *c == '&')
            (void)fprintf(picture->stream, "&#%d;", *c);
        else
            (void)fputc(*c, picture->stream);
    }
    (void)fprintf(picture->stream,
                  "</text>\n<text x=\"%d\" y=\"46\" fill=\"#555\">%s; makespan %.4g, idle %.1f%%</text>\n", LEFT, about,
                  picture->makespan, 100 * idle);
}

static void draw_legend(const struct picture *picture)
{
    bool used[TUTTI_PIPELINE_PARTS] = {false};
    int x = LEFT, y = row_at(picture->pipeline->ranks) + 14;
    for (int rank = 0; rank < picture->pipeline->ranks; rank++)
        for (size_t i = 0; i < picture->pipeline->of_rank[rank].count; i++)
            used[picture->pipeline->of_rank[rank].steps[i].part] = true;
    for (int part = 0; part <= TUTTI_PIPELINE_PARTS; part++) {
        bool idle = part == TUTTI_PIPELINE_PARTS;
        struct colour colour = idle ? (struct colour){228, 228, 228} : colours[part];
        if (!idle && !used[part]) continue;
        (void)fprintf(picture->stream,
                      "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"rgb(%d,%d,%d)\"/>\n"
                      "<text x=\"%d\" y=\"%d\">%s</text>\n",
                      x, y, colour.red, colour.green, colour.blue, x + 20, y + 12, idle ? "idle" : part_names[part]);
        x += LEGEND;
    }
}

/* Sets the scale: boxes are wide enough for their numbers if possible, and the picture for its title. */
static void set_scale(struct picture *picture, size_t most_steps, size_t title_length)
{
    enum { LETTER = 9 }; /* pixels of a letter of the title, on average */
    double wanted = 22.0 * (double)most_steps, widest = WIDEST - LEFT - RIGHT, narrowest = NARROWEST - LEFT - RIGHT;
    if (narrowest < (double)(LETTER * title_length)) narrowest = (double)(LETTER * title_length);
    double pixels = fmax(fmin(wanted, widest), narrowest);
    picture->scale = picture->makespan > 0 ? pixels / picture->makespan : 0;
    picture->width = LEFT + RIGHT + (int)ceil(pixels);
    picture->height = row_at(picture->pipeline->ranks) + BOTTOM;
}

void tti_pipeline_picture(const tutti_pipeline *pipeline, const tutti_pipeline_span *spans, const char *title,
                          const char *about, FILE *stream)
{
    struct picture picture = {.stream = stream, .pipeline = pipeline};
    size_t count = 0, most = 0;
    double busy = 0;
    for (int rank = 0; rank < pipeline->ranks; rank++) {
        size_t steps = pipeline->of_rank[rank].count;
        if (steps > most) most = steps;
        for (size_t i = 0; i < steps; i++, count++) {
            picture.makespan = fmax(picture.makespan, spans[count].end);
            busy += spans[count].end - spans[count].start;
        }
    }
    set_scale(&picture, most, strlen(title) > strlen(about) ? strlen(title) : strlen(about));
    (void)fprintf(stream,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                  picture.width, picture.height, picture.width, picture.height);
    draw_title(&picture, title, about,
               picture.makespan > 0 ? fmax(1 - busy / (pipeline->ranks * picture.makespan), 0) : 0);
    for (int rank = 0, first = 0; rank < pipeline->ranks; first += (int)pipeline->of_rank[rank++].count)
        draw_rank(&picture, rank, spans + first);
    draw_legend(&picture);
    (void)fprintf(stream, "</svg>\n");
}

const char *tti_pipeline_about(const tutti_pipeline *pipeline, const char *ranks, char text[TTI_PIPELINE_ABOUT])
{
    int used = snprintf(text, TTI_PIPELINE_ABOUT, "%s, %d micro-batch%s", ranks, pipeline->micros,
                        pipeline->micros == 1 ? "" : "es");
    if (pipeline->chunks > 1)
        (void)snprintf(text + used, TTI_PIPELINE_ABOUT - (size_t)used, ", %d stages, a rank's later ones lighter",
                       pipeline->stages);
    return text;
}

void tutti_pipeline_picture(const tutti_pipeline *pipeline, const tutti_pipeline_span *spans, const char *title,
                            FILE *stream)
{
    char ranks[32], about[TTI_PIPELINE_ABOUT];
    (void)snprintf(ranks, sizeof ranks, "%d rank%s", pipeline->ranks, pipeline->ranks == 1 ? "" : "s");
    tti_pipeline_picture(pipeline, spans, title, tti_pipeline_about(pipeline, ranks, about), stream);
}
