/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/selection.h"

#include "base/alloc.h"
#include <string.h>

/* ---- Making one ------------------------------------------------------------------------------------------------ */

bool tti_selection_make(struct tti_selection *selection, int dimensions, const int64_t *extents, int most)
{
    *selection = (struct tti_selection){.dimensions = dimensions > 0 ? dimensions : 1, .extents = {1}};
    struct tti_run *runs = tti_calloc((size_t)selection->dimensions * (size_t)most, sizeof *runs);
    if (runs == NULL) return false;
    for (int d = 0; d < selection->dimensions; d++) selection->runs[d] = runs + (size_t)d * (size_t)most;
    for (int d = 0; d < dimensions; d++) selection->extents[d] = extents[d];
    if (dimensions == 0) tti_selection_add(selection, 0, 0, 1);
    return true;
}

void tti_selection_free(struct tti_selection *selection)
{
    tti_free(selection->runs[0]);
    *selection = (struct tti_selection){0};
}

void tti_selection_add(struct tti_selection *selection, int dimension, int64_t from, int64_t count)
{
    int *made = &selection->run_counts[dimension];
    struct tti_run *runs = selection->runs[dimension];
    if (count == 0) return;
    if (*made > 0 && runs[*made - 1].from + runs[*made - 1].count == from)
        runs[*made - 1].count += count;
    else
        runs[(*made)++] = (struct tti_run){from, count};
}

static int64_t places(const struct tti_selection *selection, int dimension)
{
    int64_t sum = 0;
    for (int i = 0; i < selection->run_counts[dimension]; i++) sum += selection->runs[dimension][i].count;
    return sum;
}

void tti_selection_seal(struct tti_selection *selection)
{
    selection->count = 1;
    for (int d = 0; d < selection->dimensions; d++) selection->count *= (size_t)places(selection, d);
    while (selection->count > 0 && selection->dimensions > 1) {
        int last = selection->dimensions - 1, before = last - 1;
        int64_t extent = selection->extents[last];
        if (places(selection, last) != extent) break;
        for (int i = 0; i < selection->run_counts[before]; i++) {
            selection->runs[before][i].from *= extent;
            selection->runs[before][i].count *= extent;
        }
        selection->extents[before] *= extent;
        selection->dimensions--;
    }
}

/* ---- Going through one ----------------------------------------------------------------------------------------- */

/* The next piece of memory of a selection; `left` 0: there is none. */
struct cursor {
    const struct tti_selection *selection;
    int run[TUTTI_DIMENSIONS_MAX];       /* the run along each dimension */
    int64_t place[TUTTI_DIMENSIONS_MAX]; /* the place in that run; not used for the last dimension */
    size_t offset, left;                 /* in elements */
};

static void cursor_find(struct cursor *cursor)
{
    const struct tti_selection *selection = cursor->selection;
    int last = selection->dimensions - 1;
    int64_t offset = 0;
    for (int d = 0; d < selection->dimensions; d++) {
        const struct tti_run *run = &selection->runs[d][cursor->run[d]];
        offset = offset * selection->extents[d] + run->from + (d < last ? cursor->place[d] : 0);
    }
    cursor->offset = (size_t)offset;
    cursor->left = (size_t)selection->runs[last][cursor->run[last]].count;
}

static struct cursor cursor_begin(const struct tti_selection *selection)
{
    struct cursor cursor = {.selection = selection};
    if (selection->count > 0) cursor_find(&cursor);
    return cursor;
}

/* Moves on after a piece was used up: to the next run, or to the next place along the dimension before. */
static void cursor_next(struct cursor *cursor)
{
    const struct tti_selection *selection = cursor->selection;
    int last = selection->dimensions - 1;
    for (int d = last; d >= 0; d--) {
        bool found = d < last && ++cursor->place[d] < selection->runs[d][cursor->run[d]].count;
        if (!found) cursor->place[d] = 0;
        if (!found) found = ++cursor->run[d] < selection->run_counts[d];
        if (found) {
            cursor_find(cursor);
            return;
        }
        cursor->run[d] = 0;
    }
    cursor->left = 0;
}

static void cursor_advance(struct cursor *cursor, size_t count)
{
    cursor->offset += count;
    cursor->left -= count;
    if (cursor->left == 0) cursor_next(cursor);
}

bool tti_selection_is_piece(const struct tti_selection *selection, size_t *offset)
{
    struct cursor cursor = cursor_begin(selection);
    *offset = cursor.offset;
    return cursor.left == selection->count;
}

/* ---- Copies ---------------------------------------------------------------------------------------------------- */

void tti_selection_copy(const struct tti_selection *from, const void *in, const struct tti_selection *to, void *out,
                        size_t bytes)
{
    struct cursor read = cursor_begin(from), write = cursor_begin(to);
    while (read.left > 0 && write.left > 0) {
        size_t count = read.left < write.left ? read.left : write.left;
        const char *source = (const char *)in + read.offset * bytes;
        char *target = (char *)out + write.offset * bytes;
        if (source != target) memcpy(target, source, count * bytes);
        cursor_advance(&read, count);
        cursor_advance(&write, count);
    }
}

void tti_selection_pack(const struct tti_selection *from, const void *in, void *packed, size_t bytes)
{
    char *target = packed;
    for (struct cursor read = cursor_begin(from); read.left > 0; cursor_next(&read)) {
        memcpy(target, (const char *)in + read.offset * bytes, read.left * bytes);
        target += read.left * bytes;
    }
}

void tti_selection_unpack(const struct tti_selection *to, const void *packed, void *out, size_t bytes)
{
    const char *source = packed;
    for (struct cursor write = cursor_begin(to); write.left > 0; cursor_next(&write)) {
        memcpy((char *)out + write.offset * bytes, source, write.left * bytes);
        source += write.left * bytes;
    }
}
