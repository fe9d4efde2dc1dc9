/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the differences between two checkpoints, one per line: notes, tensors, values.
 */
#include "train/checkpoint.h"

#include "base/alloc.h"
#include "base/status.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <tutti/experimental.h>

struct diff {
    const tutti_checkpoint *a, *b;
    void (*each)(void *context, const char *line);
    void *context;
    float *values[2]; /* [STEP] values each */
    tutti_error *error;
};

enum { STEP = TTI_FILE_STEP / sizeof(float), LINE = 512 };

__attribute__((format(printf, 2, 3))) static void say(const struct diff *diff, const char *format, ...)
{
    char line[LINE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    diff->each(diff->context, tutti_text_printable(line));
}

static void diff_notes(const struct diff *diff)
{
    json_t *of_a = json_object_get(diff->a->index, "notes"), *of_b = json_object_get(diff->b->index, "notes"), *note;
    const char *name;
    json_object_foreach(of_a, name, note)
    {
        const char *x = json_string_value(note), *y = json_string_value(json_object_get(of_b, name));
        if (y == NULL || strcmp(x, y) != 0) say(diff, "%s: %s, %s", name, x, y == NULL ? "not there" : y);
    }
    json_object_foreach(of_b, name, note)
    {
        if (json_object_get(of_a, name) == NULL) say(diff, "%s: not there, %s", name, json_string_value(note));
    }
}

static void count_values(const float *x, const float *y, size_t count, uint64_t *differ, double *largest)
{
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&x[i], &y[i], sizeof *x) == 0) continue;
        double by = fabs((double)x[i] - (double)y[i]);
        ++*differ;
        if (!(by <= *largest)) *largest = by; /* holds for NaN, too */
    }
}

static tutti_status diff_values(const struct diff *diff, const struct tti_checkpoint_file *files[2],
                                const struct tti_safetensor *tensors[2])
{
    uint64_t differ = 0, elements = (tensors[0]->end - tensors[0]->begin) / sizeof(float);
    double largest = 0;
    for (uint64_t at = 0; at < elements; at += STEP) {
        size_t count = elements - at < STEP ? (size_t)(elements - at) : STEP;
        for (int k = 0; k < 2; k++)
            TTI_TRY(tti_file_read(files[k]->fd, files[k]->path, tensors[k]->begin + at * sizeof(float),
                                  count * sizeof(float), diff->values[k], diff->error));
        count_values(diff->values[0], diff->values[1], count, &differ, &largest);
    }
    if (differ > 0)
        say(diff, "%s: %s: %" PRIu64 " of %" PRIu64 " values differ, by up to %.3g", files[0]->group, tensors[0]->name,
            differ, elements, largest);
    return TUTTI_OK;
}

static tutti_status diff_tensor(const struct diff *diff, const struct tti_checkpoint_file *files[2],
                                const struct tti_safetensor *x)
{
    char of_x[TTI_SHAPE_TEXT], of_y[TTI_SHAPE_TEXT];
    const struct tti_safetensor *y = tti_safetensors_find(&files[1]->tensors, x->name);
    if (y == NULL) {
        say(diff, "%s: %s: only in the first", files[0]->group, x->name);
        return TUTTI_OK;
    }
    const char *shape_x = tti_shape_text(x->dimensions, x->shape, of_x);
    const char *shape_y = tti_shape_text(y->dimensions, y->shape, of_y);
    if (strcmp(shape_x, shape_y) != 0) {
        say(diff, "%s: %s: %s, %s", files[0]->group, x->name, shape_x, shape_y);
        return TUTTI_OK;
    }
    return diff_values(diff, files, (const struct tti_safetensor *[2]){x, y});
}

static tutti_status diff_file(const struct diff *diff, const struct tti_checkpoint_file *files[2])
{
    for (size_t i = 0; i < files[0]->tensors.count; i++)
        TTI_TRY(diff_tensor(diff, files, &files[0]->tensors.tensors[i]));
    for (size_t i = 0; i < files[1]->tensors.count; i++)
        if (tti_safetensors_find(&files[0]->tensors, files[1]->tensors.tensors[i].name) == NULL)
            say(diff, "%s: %s: only in the second", files[1]->group, files[1]->tensors.tensors[i].name);
    return TUTTI_OK;
}

static tutti_status diff_files(const struct diff *diff)
{
    for (size_t i = 0; i < diff->a->file_count; i++) {
        const struct tti_checkpoint_file *x = &diff->a->files[i], *y = tti_checkpoint_group(diff->b, x->group);
        if (y == NULL)
            say(diff, "%s.safetensors: only in the first", x->group);
        else
            TTI_TRY(diff_file(diff, (const struct tti_checkpoint_file *[2]){x, y}));
    }
    for (size_t i = 0; i < diff->b->file_count; i++)
        if (tti_checkpoint_group(diff->a, diff->b->files[i].group) == NULL)
            say(diff, "%s.safetensors: only in the second", diff->b->files[i].group);
    return TUTTI_OK;
}

tutti_status tutti_checkpoint_diff(const tutti_checkpoint *a, const tutti_checkpoint *b,
                                   void (*each)(void *context, const char *line), void *context, tutti_error *error)
{
    struct diff diff = {.a = a, .b = b, .each = each, .context = context, .error = error};
    for (int k = 0; k < 2; k++) diff.values[k] = tti_calloc(STEP, sizeof(float));
    tutti_status status = TUTTI_OK;
    if (diff.values[0] == NULL || diff.values[1] == NULL) {
        status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to compare checkpoints");
    } else {
        if (a->step != b->step) say(&diff, "step: %" PRIu64 ", %" PRIu64, a->step, b->step);
        diff_notes(&diff);
        status = diff_files(&diff);
    }
    for (int k = 0; k < 2; k++) tti_free(diff.values[k]);
    return status;
}
