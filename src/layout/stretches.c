/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/stretches.h"

#include "base/alloc.h"
#include "base/share.h"
#include "base/status.h"
#include "layout/layout_inside.h"
#include <string.h>

/* ---- Cutting --------------------------------------------------------------------------------------------------- */

/* Returns the number of ranks that share a dimension of the array, as one row. */
static int sharers(const tutti_layout *layout, int dimension)
{
    int count = 1;
    for (int m = 0; m < layout->mesh_dimensions; m++)
        if (tti_layout_cuts(layout, m, dimension)) count *= layout->along[m].size;
    return count;
}

static void sharer_coordinates(const tutti_layout *layout, int dimension, int sharer, int *coordinates)
{
    for (int m = layout->mesh_dimensions; m-- > 0;) {
        coordinates[m] = -1;
        if (!tti_layout_cuts(layout, m, dimension)) continue;
        coordinates[m] = sharer % layout->along[m].size;
        sharer /= layout->along[m].size;
    }
}

/* One layout's cuts of one dimension, in order: the range of each section that each rank has. */
struct cuts {
    const tutti_layout *layout;
    int dimension, sharers;
    int64_t at, count; /* the number of the present cut, and the number of all */
    int64_t from, to;  /* the range of the present cut */
    int owners[TUTTI_MESH_DIMENSIONS_MAX];
};

/* Moves to the next cut that is not empty. */
static void cuts_find(struct cuts *cuts)
{
    for (; cuts->at < cuts->count; cuts->at++) {
        sharer_coordinates(cuts->layout, cuts->dimension, (int)(cuts->at % cuts->sharers), cuts->owners);
        tti_layout_range(cuts->layout, cuts->owners, cuts->dimension, (int)(cuts->at / cuts->sharers), &cuts->from,
                         &cuts->to);
        if (cuts->to > cuts->from) return;
    }
}

static struct cuts cuts_begin(const tutti_layout *layout, int dimension)
{
    struct cuts cuts = {.layout = layout, .dimension = dimension, .sharers = sharers(layout, dimension)};
    cuts.count = (int64_t)cuts.sharers * tti_layout_sections(layout, dimension);
    cuts_find(&cuts);
    return cuts;
}

static tutti_status cut_dimension(struct tti_stretches *stretches, int dimension)
{
    struct cuts a = cuts_begin(stretches->from, dimension), b = cuts_begin(stretches->to, dimension);
    struct tti_stretch *list = tti_calloc((size_t)(a.count + b.count), sizeof *list);
    int made = 0;
    if (list == NULL) return TUTTI_ERR_MEMORY;
    for (int64_t at = 0; at < stretches->from->shape[dimension]; at = list[made - 1].to) {
        struct tti_stretch *stretch = &list[made++];
        stretch->from = at;
        stretch->to = a.to < b.to ? a.to : b.to;
        memcpy(stretch->owners[TTI_FROM], a.owners, sizeof a.owners);
        memcpy(stretch->owners[TTI_TO], b.owners, sizeof b.owners);
        for (int m = 0; m < TUTTI_MESH_DIMENSIONS_MAX; m++) stretch->owners[TTI_ADDER][m] = -1;
        if (a.to == stretch->to) a.at++, cuts_find(&a);
        if (b.to == stretch->to) b.at++, cuts_find(&b);
    }
    stretches->list[dimension] = list;
    stretches->counts[dimension] = made;
    return TUTTI_OK;
}

tutti_status tti_stretches_make(const tutti_layout *from, const tutti_layout *to, struct tti_stretches *stretches)
{
    *stretches = (struct tti_stretches){.from = from, .to = to};
    for (int d = 0; d < from->dimensions; d++) {
        tutti_status status = cut_dimension(stretches, d);
        if (status == TUTTI_OK) continue;
        tti_stretches_free(stretches);
        return status;
    }
    return TUTTI_OK;
}

void tti_stretches_free(struct tti_stretches *stretches)
{
    for (int d = 0; d < TUTTI_DIMENSIONS_MAX; d++) tti_free(stretches->list[d]);
    *stretches = (struct tti_stretches){0};
}

/* ---- Sharing --------------------------------------------------------------------------------------------------- */

/* Returns the dimension whose stretches are longest on average, the first of equal ones; -1: the array has no
 * dimension. */
static int longest(const struct tti_stretches *stretches)
{
    int best = -1;
    double length = -1;
    for (int d = 0; d < stretches->from->dimensions; d++) {
        double mean = (double)stretches->from->shape[d] / (stretches->counts[d] > 0 ? stretches->counts[d] : 1);
        if (mean > length) best = d;
        if (mean > length) length = mean;
    }
    return best;
}

/* Returns the part of a stretch for one adder, with that adder's coordinates. */
static struct tti_stretch part_of(const struct tti_stretches *stretches, const struct tti_stretch *stretch,
                                  unsigned along, int adder, int adders)
{
    struct tti_stretch part = *stretch;
    struct tti_span share = tti_share((size_t)(stretch->to - stretch->from), (size_t)adder, (size_t)adders);
    part.from = stretch->from + (int64_t)share.lo;
    part.to = stretch->from + (int64_t)share.hi;
    for (int m = stretches->from->mesh_dimensions; m-- > 0;) {
        if ((along >> m & 1) == 0) continue;
        part.owners[TTI_ADDER][m] = adder % stretches->from->along[m].size;
        adder /= stretches->from->along[m].size;
    }
    return part;
}

tutti_status tti_stretches_share(struct tti_stretches *stretches, unsigned along)
{
    int dimension = longest(stretches), adders = 1, made = 0;
    for (int m = 0; m < stretches->from->mesh_dimensions; m++)
        if ((along >> m & 1) != 0) adders *= stretches->from->along[m].size;
    if (dimension < 0 || adders == 1) return TUTTI_OK;
    size_t before = (size_t)stretches->counts[dimension];
    struct tti_stretch *list = tti_calloc(before * (size_t)adders + 1, sizeof *list);
    if (list == NULL) return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < before; i++)
        for (int a = 0; a < adders; a++) {
            list[made] = part_of(stretches, &stretches->list[dimension][i], along, a, adders);
            made += list[made].to > list[made].from;
        }
    tti_free(stretches->list[dimension]);
    stretches->list[dimension] = list;
    stretches->counts[dimension] = made;
    return TUTTI_OK;
}

/* ---- Asking ---------------------------------------------------------------------------------------------------- */

bool tti_stretches_agree(const struct tti_stretches *stretches, int along)
{
    for (int d = 0; d < stretches->from->dimensions; d++)
        for (int i = 0; i < stretches->counts[d]; i++) {
            const struct tti_stretch *stretch = &stretches->list[d][i];
            if (stretch->owners[TTI_FROM][along] != stretch->owners[TTI_TO][along]) return false;
        }
    return true;
}

static bool chooses(const struct tti_stretches *stretches, const struct tti_asked *asked,
                    const struct tti_stretch *stretch)
{
    for (int m = 0; m < stretches->from->mesh_dimensions; m++) {
        enum tti_owner owner = asked->rule->along[m];
        if (owner == TTI_ANYONE) continue;
        int right = owner == TTI_FIRST ? 0 : stretch->owners[owner][m];
        if (right >= 0 && right != asked->coordinates[m]) return false;
    }
    return true;
}

static bool both_choose(const struct tti_stretches *stretches, const struct tti_asked asked[2],
                        const struct tti_stretch *stretch)
{
    return chooses(stretches, &asked[0], stretch) && chooses(stretches, &asked[1], stretch);
}

/* Returns the array's extent along one dimension, and counts how many of its stretches are chosen. */
static int64_t measure(const struct tti_stretches *stretches, int dimension, const struct tti_asked array[2],
                       const struct tti_asked which[2], int *chosen)
{
    int64_t extent = 0;
    int count = 0;
    for (int i = 0; i < stretches->counts[dimension]; i++) {
        const struct tti_stretch *stretch = &stretches->list[dimension][i];
        if (!both_choose(stretches, array, stretch)) continue;
        extent += stretch->to - stretch->from;
        count += both_choose(stretches, which, stretch);
    }
    if (count > *chosen) *chosen = count;
    return extent;
}

tutti_status tti_stretches_select(const struct tti_stretches *stretches, const struct tti_asked array[2],
                                  const struct tti_asked which[2], struct tti_selection *selection)
{
    int dimensions = stretches->from->dimensions, most = 1;
    int64_t extents[TUTTI_DIMENSIONS_MAX] = {0};
    for (int d = 0; d < dimensions; d++) extents[d] = measure(stretches, d, array, which, &most);
    if (!tti_selection_make(selection, dimensions, extents, most)) return TUTTI_ERR_MEMORY;
    for (int d = 0; d < dimensions; d++) {
        int64_t at = 0;
        for (int i = 0; i < stretches->counts[d]; i++) {
            const struct tti_stretch *stretch = &stretches->list[d][i];
            if (!both_choose(stretches, array, stretch)) continue;
            if (both_choose(stretches, which, stretch))
                tti_selection_add(selection, d, at, stretch->to - stretch->from);
            at += stretch->to - stretch->from;
        }
    }
    tti_selection_seal(selection);
    return TUTTI_OK;
}
