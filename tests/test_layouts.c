/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Layouts: what each rank has, against a reference that hands out grains one by one; places in a rank's array and in the
 * whole one; slices; duals; what is refused, and its words.
 */
#include "base/alloc.h"
#include "check.h"
#include "layout/movement.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/layout.h>

/* ---- A reference ----------------------------------------------------------------------------------------------- */

enum { MOST = 400 };

/* Keeps of `count` things those that part `part` gets when they are dealt out in a row: some parts get one more. */
static int deal(int *things, int count, int part, int parts)
{
    int sizes[64] = {0}, from = 0;
    for (int i = 0; i < count; i++) sizes[i % parts]++;
    for (int p = 0; p < part; p++) from += sizes[p];
    memmove(things, things + from, (size_t)sizes[part] * sizeof *things);
    return sizes[part];
}

static void coordinates(const tutti_layout *layout, int rank, int *at)
{
    for (int m = layout->mesh_dimensions - 1; m >= 0; m--) {
        at[m] = rank % layout->along[m].size;
        rank /= layout->along[m].size;
    }
}

/* The places of one dimension that a rank has, in order. */
static int places(const tutti_layout *layout, int rank, int dimension, int64_t *list)
{
    int at[TUTTI_MESH_DIMENSIONS_MAX], grains[MOST], sections = layout->sections[dimension], made = 0;
    if (sections == 0) sections = 1;
    int length = (int)layout->shape[dimension] / sections;
    int count = layout->grains[dimension] == 0 ? length : (int)layout->grains[dimension];
    int sizes[MOST] = {0}, begins[MOST + 1] = {0}, all = count;
    for (int i = 0; i < length; i++) sizes[i % count]++;
    for (int g = 0; g < count; g++) begins[g + 1] = begins[g] + sizes[g];
    for (int g = 0; g < all; g++) grains[g] = g;
    coordinates(layout, rank, at);
    for (int m = 0; m < layout->mesh_dimensions; m++)
        if (layout->along[m].placement == TUTTI_SHARDED && layout->along[m].dimension == dimension)
            count = deal(grains, count, at[m], layout->along[m].size);
    for (int s = 0; s < sections; s++)
        for (int i = 0; i < count; i++)
            for (int p = begins[grains[i]]; p < begins[grains[i] + 1]; p++) list[made++] = s * length + p;
    return made;
}

/* ---- Comparing ------------------------------------------------------------------------------------------------- */

/* Every rank's elements, and how often each element of the whole is there. */
static void compare_rank(const tutti_layout *layout, int rank, const int *whole, int *seen)
{
    int64_t rows[MOST], columns[MOST], shape[2];
    int row_count = places(layout, rank, 0, rows), column_count = places(layout, rank, 1, columns);
    size_t count = tutti_layout_local(layout, rank, shape);
    int *local = calloc(count + 1, sizeof *local);
    CHECK_THAT(shape[0] == row_count && shape[1] == column_count && count == (size_t)(row_count * column_count),
               "rank %d has %lldx%lld, not %dx%d", rank, (long long)shape[0], (long long)shape[1], row_count,
               column_count);
    CHECK(tutti_layout_take(layout, rank, TUTTI_I32, whole, local, NULL) == TUTTI_OK);
    size_t wrong = 0;
    for (int64_t i = 0; i < (int64_t)count; i++) {
        int64_t global = rows[i / column_count] * layout->shape[1] + columns[i % column_count];
        wrong += tutti_layout_global(layout, rank, i) != global || tutti_layout_find(layout, rank, global) != i;
        wrong += local[i] != whole[global];
        seen[global]++;
    }
    CHECK_THAT(wrong == 0, "rank %d: %zu elements are elsewhere", rank, wrong);
    CHECK(tutti_layout_global(layout, rank, (int64_t)count) == -1 && tutti_layout_global(layout, rank, -1) == -1);
    free(local);
}

static void compare_put(const tutti_layout *layout, const int *whole, int count)
{
    int *made = calloc((size_t)count + 1, sizeof *made), *local = calloc((size_t)count + 1, sizeof *local);
    for (int r = 0; r < tutti_layout_ranks(layout); r++) {
        CHECK(tutti_layout_take(layout, r, TUTTI_I32, whole, local, NULL) == TUTTI_OK);
        CHECK(tutti_layout_put(layout, r, TUTTI_I32, local, made, NULL) == TUTTI_OK);
    }
    CHECK(memcmp(made, whole, (size_t)count * sizeof *made) == 0);
    free(made);
    free(local);
}

static void compare(const tutti_layout *layout)
{
    int count = (int)(layout->shape[0] * layout->shape[1]), ranks = tutti_layout_ranks(layout), copies = ranks;
    int *whole = calloc((size_t)count + 1, sizeof *whole), *seen = calloc((size_t)count + 1, sizeof *seen);
    char text[200];
    tutti_error error = {0};
    tutti_layout_describe(layout, text, sizeof text);
    CHECK_THAT(tutti_layout_check(layout, &error) == TUTTI_OK, "%s: %s", text, error.text);
    for (int i = 0; i < count; i++) whole[i] = i * 7 + 1;
    for (int r = 0; r < ranks; r++) compare_rank(layout, r, whole, seen);
    for (int m = 0; m < layout->mesh_dimensions; m++)
        if (layout->along[m].placement == TUTTI_SHARDED) copies /= layout->along[m].size;
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += seen[i] != copies;
    CHECK_THAT(wrong == 0, "%s: %d elements are not there %d times", text, wrong, copies);
    compare_put(layout, whole, count);
    free(whole);
    free(seen);
}

static void all_sizes(void)
{
    static const int sizes[] = {0, 1, 2, 3, 5, 7, 13}, sections[] = {0, 1, 3}, grains[] = {0, 1, 4};
    for (int mesh = 0; mesh < 6 * 4; mesh++)
        for (int size = 0; size < 7 * 3 * 3; size++) {
            int cut = sections[size / 7 % 3];
            tutti_layout layout = {.dimensions = 2,
                                   .shape = {3, sizes[size % 7] * (cut == 0 ? 1 : cut)},
                                   .sections = {0, cut},
                                   .grains = {0, grains[size / 21]},
                                   .mesh_dimensions = 3,
                                   .along = {{"a", 1 + mesh % 3, TUTTI_SHARDED, mesh / 6 % 2},
                                             {"b", 2 + mesh / 3 % 2, TUTTI_SHARDED, 1},
                                             {"c", 2, mesh / 12 ? TUTTI_PARTIAL : TUTTI_REPLICATED, 0}}};
            compare(&layout);
        }
}

/* ---- Cases worked out by hand ---------------------------------------------------------------------------------- */

/* c_attn of 5 heads, 2 wide: queries, keys and values, each cut between heads. */
static void attention(void)
{
    tutti_layout layout = {.dimensions = 2,
                           .shape = {4, 30},
                           .sections = {1, 3},
                           .grains = {0, 5},
                           .mesh_dimensions = 2,
                           .along = {{.name = "data", .size = 2}, {"tensor", 3, TUTTI_SHARDED, 1}}};
    static const int64_t from[3][3] = {{0, 10, 20}, {4, 14, 24}, {8, 18, 28}};
    static const int64_t wide[3] = {4, 4, 2};
    char text[120];
    for (int r = 0; r < 6; r++)
        for (int s = 0; s < 3; s++) {
            int64_t lo, hi;
            tutti_layout_range(&layout, r, 1, s, &lo, &hi);
            CHECK_THAT(lo == from[r % 3][s] && hi - lo == wide[r % 3], "rank %d, section %d: %lld to %lld", r, s,
                       (long long)lo, (long long)hi);
        }
    tutti_layout_describe(&layout, text, sizeof text);
    CHECK_THAT(strcmp(text, "4x30 data=2:replicated tensor=3:sharded(1, 3 sections, 5 grains)") == 0, "%s", text);
    tutti_layout_describe(&layout, text, 9);
    CHECK(strcmp(text, "4x30 dat") == 0);
    tutti_layout dual;
    tutti_layout_dual(&layout, &dual);
    CHECK(dual.along[0].placement == TUTTI_PARTIAL && dual.along[1].placement == TUTTI_SHARDED);
    tutti_layout_dual(&dual, &dual);
    CHECK(memcmp(&dual, &layout, sizeof dual) == 0);
    tutti_layout one = {.mesh_dimensions = 1, .along = {{"x", 2, TUTTI_PARTIAL, 0}}};
    CHECK(tutti_layout_local(&one, 1, NULL) == 1 && tutti_layout_find(&one, 0, 0) == 0);
    CHECK(tutti_layout_find(&one, 0, 1) == -1);
}

/* ---- What is refused ------------------------------------------------------------------------------------------- */

static void refuses(tutti_layout layout, tutti_status status, const char *words)
{
    tutti_error error = {0};
    tutti_status got = tutti_layout_check(&layout, &error);
    CHECK_THAT(got == status && strstr(error.text, words) != NULL, "%s: %s", tutti_status_name(got), error.text);
    CHECK(tutti_layout_check(&layout, NULL) == status);
}

static void refusals(void)
{
    const tutti_layout good = {
        .dimensions = 1, .shape = {8}, .mesh_dimensions = 1, .along = {{.name = "x", .size = 2}}};
    tutti_layout bad = good;
    CHECK(tutti_layout_check(&good, NULL) == TUTTI_OK && tutti_layout_check(NULL, NULL) == TUTTI_ERR_ARGUMENT);
    bad.shape[0] = -1;
    refuses(bad, TUTTI_ERR_ARGUMENT, "dimension 0 has -1 elements");
    bad = good;
    bad.sections[0] = 3;
    refuses(bad, TUTTI_ERR_ARGUMENT, "8 elements in 3 sections");
    bad = good;
    bad.along[0] = (tutti_along){"x", 2, TUTTI_SHARDED, 1};
    refuses(bad, TUTTI_ERR_ARGUMENT, "x cuts dimension 1 of an array that has 1");
    bad = good;
    bad.along[0].size = 0;
    refuses(bad, TUTTI_ERR_ARGUMENT, "has 0 ranks");
    bad = good;
    bad.along[0].placement = (tutti_placement)3;
    refuses(bad, TUTTI_ERR_ARGUMENT, "placement 3");
    bad = good;
    bad.dimensions = 5;
    refuses(bad, TUTTI_ERR_ARGUMENT, "5 dimensions");
    bad = good;
    bad.dimensions = 3;
    bad.shape[1] = bad.shape[2] = INT64_C(1) << 31;
    refuses(bad, TUTTI_ERR_COUNT, "more elements");
    bad.shape[0] = 0;
    CHECK(tutti_layout_check(&bad, NULL) == TUTTI_OK); /* an empty one may be as wide as it likes */
    bad = good;
    CHECK(tutti_layout_place(&bad, "y", TUTTI_PARTIAL, 0, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_layout_place(&bad, "x", TUTTI_SHARDED, 1, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_layout_place(&bad, "x", TUTTI_SHARDED, 0, NULL) == TUTTI_OK && bad.along[0].placement == TUTTI_SHARDED);
    CHECK(tutti_layout_init(NULL, NULL, 0, NULL, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_layout_take(&good, 0, TUTTI_TYPE_COUNT, NULL, NULL, NULL) == TUTTI_ERR_TYPE);
}

/* Every allocation of a plan fails once: it says so and leaves nothing behind. */
static void no_memory(void)
{
    tutti_layout from = {.dimensions = 2,
                         .shape = {4, 6},
                         .mesh_dimensions = 2,
                         .along = {{"a", 2, TUTTI_PARTIAL, 0}, {"b", 2, TUTTI_SHARDED, 0}}};
    tutti_layout to = from;
    to.along[0].placement = TUTTI_REPLICATED;
    to.along[1].dimension = 1;
    struct tti_movement movement;
    tutti_status status = TUTTI_ERR_MEMORY;
    long allowed = 0;
    for (; allowed < 1000 && status == TUTTI_ERR_MEMORY; allowed++) {
        tti_alloc_fail_after(allowed);
        status = tti_movement_make(&from, &to, 1, &movement);
        tti_alloc_fail_after(-1);
    }
    CHECK_THAT(status == TUTTI_OK && allowed > 10, "%s after %ld", tutti_status_name(status), allowed);
    tti_movement_free(&movement);
}

int main(void)
{
    no_memory();
    all_sizes();
    attention();
    refusals();
    return check_end();
}
