/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts: which elements of an array a rank has, and at which places. Pure arithmetic.
 *
 * A rank has the product of its parts of each dimension of the array. Its part of a dimension is one range of each
 * section, and these lie one after the other in its own array: so places there grow with places in the whole array.
 */
#include "layout/layout_inside.h"

#include "base/hash.h"
#include "base/share.h"
#include "base/status.h"
#include "layout/selection.h"
#include <string.h>

/* ---- Making and checking --------------------------------------------------------------------------------------- */

tutti_status tutti_layout_init(tutti_layout *layout, const tutti_mesh *mesh, int dimensions, const int64_t *shape,
                               tutti_error *error)
{
    if (layout == NULL || mesh == NULL || dimensions < 0 || dimensions > TUTTI_DIMENSIONS_MAX ||
        (shape == NULL && dimensions > 0))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "layout: an array has 0 to %d dimensions, not %d; layout, mesh and shape are not NULL",
                             TUTTI_DIMENSIONS_MAX, dimensions);
    *layout = (tutti_layout){.dimensions = dimensions, .mesh_dimensions = tutti_mesh_dimensions(mesh)};
    for (int d = 0; d < dimensions; d++) layout->shape[d] = shape[d];
    for (int m = 0; m < layout->mesh_dimensions; m++) {
        const char *name = tutti_mesh_name(mesh, m);
        (void)snprintf(layout->along[m].name, sizeof layout->along[m].name, "%s", name);
        layout->along[m].size = tutti_mesh_size(mesh, name);
    }
    return TUTTI_OK;
}

tutti_status tutti_layout_place(tutti_layout *layout, const char *name, tutti_placement placement, int dimension,
                                tutti_error *error)
{
    if (layout == NULL || name == NULL || placement < TUTTI_REPLICATED || placement > TUTTI_PARTIAL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "layout: layout or name is NULL, or there is no placement %d", (int)placement);
    if (placement == TUTTI_SHARDED && (dimension < 0 || dimension >= layout->dimensions))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "layout: dimension %d of an array that has %d", dimension,
                             layout->dimensions);
    for (int m = 0; m < layout->mesh_dimensions; m++) {
        if (strcmp(layout->along[m].name, name) != 0) continue;
        layout->along[m].placement = placement;
        layout->along[m].dimension = placement == TUTTI_SHARDED ? dimension : 0;
        return TUTTI_OK;
    }
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "layout: the mesh has no dimension \"%.32s\"", name);
}

static tutti_status check_shape(const tutti_layout *layout, tutti_error *error)
{
    int64_t most = INT64_MAX >> 4; /* leaves room for the bytes of any type, and more */
    bool empty = false;
    for (int d = 0; d < layout->dimensions; d++) empty = empty || layout->shape[d] == 0;
    for (int d = 0; d < layout->dimensions; d++) {
        int64_t extent = layout->shape[d];
        if (extent < 0)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "layout: dimension %d has %lld elements; 0 or more", d,
                                 (long long)extent);
        if (layout->grains[d] < 0 || layout->sections[d] < 0 || extent % tti_layout_sections(layout, d) != 0)
            return tti_error_set(
                error, TUTTI_ERR_ARGUMENT, 0,
                "layout: dimension %d has %lld elements in %d sections of %lld grains; sections are of one "
                "length, and neither number is negative",
                d, (long long)extent, layout->sections[d], (long long)layout->grains[d]);
        if (!empty && extent > most)
            return tti_error_set(error, TUTTI_ERR_COUNT, 0, "layout: there are more elements than can be addressed");
        if (!empty) most /= extent;
    }
    return TUTTI_OK;
}

static tutti_status check_along(const tutti_layout *layout, int m, tutti_error *error)
{
    const tutti_along *along = &layout->along[m];
    if (memchr(along->name, '\0', sizeof along->name) == NULL || along->size < 1)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "layout: dimension %d of the mesh has %d ranks, or its name is longer than %zu bytes", m,
                             along->size, sizeof along->name - 1);
    if (along->placement < TUTTI_REPLICATED || along->placement > TUTTI_PARTIAL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "layout: %s has placement %d; there are 0 to %d",
                             along->name, (int)along->placement, (int)TUTTI_PARTIAL);
    if (along->placement == TUTTI_SHARDED && (along->dimension < 0 || along->dimension >= layout->dimensions))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "layout: %s cuts dimension %d of an array that has %d dimensions", along->name,
                             along->dimension, layout->dimensions);
    return TUTTI_OK;
}

tutti_status tutti_layout_check(const tutti_layout *layout, tutti_error *error)
{
    tutti_error unused;
    int64_t ranks = 1;
    if (error == NULL) error = &unused;
    if (layout == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "layout: it is NULL");
    if (layout->dimensions < 0 || layout->dimensions > TUTTI_DIMENSIONS_MAX || layout->mesh_dimensions < 0 ||
        layout->mesh_dimensions > TUTTI_MESH_DIMENSIONS_MAX)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "layout: an array of %d dimensions on a mesh of %d; there are up to %d and %d",
                             layout->dimensions, layout->mesh_dimensions, (int)TUTTI_DIMENSIONS_MAX,
                             (int)TUTTI_MESH_DIMENSIONS_MAX);
    TTI_TRY(check_shape(layout, error));
    for (int m = 0; m < layout->mesh_dimensions; m++) {
        TTI_TRY(check_along(layout, m, error));
        ranks *= layout->along[m].size;
        if (ranks > INT32_MAX) return tti_error_set(error, TUTTI_ERR_COUNT, 0, "layout: there are too many ranks");
    }
    return TUTTI_OK;
}

/* ---- In words -------------------------------------------------------------------------------------------------- */

static size_t say_along(const tutti_layout *layout, int m, char *text, size_t bytes)
{
    const tutti_along *along = &layout->along[m];
    const char *word = along->placement == TUTTI_PARTIAL ? "partial" : "replicated";
    if (along->placement != TUTTI_SHARDED)
        return (size_t)snprintf(text, bytes, " %.31s=%d:%s", along->name, along->size, word);
    char sections[40] = "", grains[40] = "";
    int d = along->dimension;
    if (tti_layout_sections(layout, d) > 1)
        (void)snprintf(sections, sizeof sections, ", %d sections", layout->sections[d]);
    if (layout->grains[d] > 0) (void)snprintf(grains, sizeof grains, ", %lld grains", (long long)layout->grains[d]);
    return (size_t)snprintf(text, bytes, " %.31s=%d:sharded(%d%s%s)", along->name, along->size, d, sections, grains);
}

void tutti_layout_describe(const tutti_layout *layout, char *text, size_t bytes)
{
    size_t used = 0;
    if (text == NULL || bytes == 0) return;
    if (layout->dimensions == 0) used = (size_t)snprintf(text, bytes, "one element");
    for (int d = 0; d < layout->dimensions && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", d == 0 ? "" : "x", (long long)layout->shape[d]);
    for (int m = 0; m < layout->mesh_dimensions && used < bytes; m++)
        used += say_along(layout, m, text + used, bytes - used);
}

uint64_t tti_layout_digest(uint64_t hash, const tutti_layout *layout)
{
    hash = tti_mix(hash, (uint64_t)layout->dimensions);
    for (int d = 0; d < layout->dimensions && d < TUTTI_DIMENSIONS_MAX; d++) {
        hash = tti_mix(hash, (uint64_t)layout->shape[d]);
        hash = tti_mix(tti_mix(hash, (uint64_t)layout->sections[d]), (uint64_t)layout->grains[d]);
    }
    for (int m = 0; m < layout->mesh_dimensions && m < TUTTI_MESH_DIMENSIONS_MAX; m++) {
        const tutti_along *along = &layout->along[m];
        hash = tti_hash_bytes(hash, along->name, strnlen(along->name, sizeof along->name));
        hash = tti_mix(tti_mix(hash, (uint64_t)along->size), (uint64_t)along->placement);
        hash = tti_mix(hash, along->placement == TUTTI_SHARDED ? (uint64_t)along->dimension : 0);
    }
    return hash;
}

/* ---- What a rank has ------------------------------------------------------------------------------------------- */

int tutti_layout_ranks(const tutti_layout *layout)
{
    int ranks = 1;
    for (int m = 0; m < layout->mesh_dimensions; m++) ranks *= layout->along[m].size;
    return ranks;
}

void tti_layout_coordinates(const tutti_layout *layout, int rank, int *coordinates)
{
    for (int m = layout->mesh_dimensions; m-- > 0;) {
        coordinates[m] = rank % layout->along[m].size;
        rank /= layout->along[m].size;
    }
}

int tti_layout_sections(const tutti_layout *layout, int dimension)
{
    return layout->sections[dimension] > 1 ? layout->sections[dimension] : 1;
}

bool tti_layout_cuts(const tutti_layout *layout, int along, int dimension)
{
    return layout->along[along].placement == TUTTI_SHARDED && layout->along[along].dimension == dimension;
}

/* Returns the first element of a grain of a section; for the grain behind the last one, the section's length. */
static int64_t grain_begins(int64_t length, size_t grains, size_t grain)
{
    return grains == 0 ? 0 : (int64_t)tti_share((size_t)length, grain, grains).lo;
}

void tti_layout_range(const tutti_layout *layout, const int *coordinates, int dimension, int section, int64_t *from,
                      int64_t *to)
{
    int64_t length = layout->shape[dimension] / tti_layout_sections(layout, dimension);
    size_t grains = (size_t)(layout->grains[dimension] > 0 ? layout->grains[dimension] : length);
    struct tti_span mine = {0, grains};
    for (int m = 0; m < layout->mesh_dimensions; m++) {
        if (!tti_layout_cuts(layout, m, dimension)) continue;
        struct tti_span part = tti_share(mine.hi - mine.lo, (size_t)coordinates[m], (size_t)layout->along[m].size);
        mine = (struct tti_span){mine.lo + part.lo, mine.lo + part.hi};
    }
    *from = section * length + grain_begins(length, grains, mine.lo);
    *to = section * length + grain_begins(length, grains, mine.hi);
}

void tutti_layout_range(const tutti_layout *layout, int rank, int dimension, int section, int64_t *from, int64_t *to)
{
    int coordinates[TUTTI_MESH_DIMENSIONS_MAX];
    tti_layout_coordinates(layout, rank, coordinates);
    tti_layout_range(layout, coordinates, dimension, section, from, to);
}

size_t tutti_layout_local(const tutti_layout *layout, int rank, int64_t *shape)
{
    size_t count = 1;
    for (int d = 0; d < layout->dimensions; d++) {
        int64_t extent = 0, from, to;
        for (int s = 0; s < tti_layout_sections(layout, d); s++) {
            tutti_layout_range(layout, rank, d, s, &from, &to);
            extent += to - from;
        }
        if (shape != NULL) shape[d] = extent;
        count *= (size_t)extent;
    }
    return count;
}

/* ---- Elements -------------------------------------------------------------------------------------------------- */

/* Converts a place along one dimension of a rank's array into one of the whole array, or back; -1: the rank does not
 * have it. */
static int64_t convert(const tutti_layout *layout, int rank, int dimension, int64_t place, bool to_whole)
{
    int64_t before = 0, from, to;
    for (int s = 0; s < tti_layout_sections(layout, dimension); s++) {
        tutti_layout_range(layout, rank, dimension, s, &from, &to);
        if (to_whole && place < before + to - from) return from + place - before;
        if (!to_whole && place >= from && place < to) return before + place - from;
        before += to - from;
    }
    return -1;
}

static int64_t convert_index(const tutti_layout *layout, int rank, int64_t index, bool to_whole)
{
    int64_t local[TUTTI_DIMENSIONS_MAX], found = 0, stride = 1;
    (void)tutti_layout_local(layout, rank, local);
    const int64_t *source = to_whole ? local : layout->shape, *target = to_whole ? layout->shape : local;
    for (int d = layout->dimensions; d-- > 0;) {
        if (source[d] == 0) return -1;
        int64_t place = convert(layout, rank, d, index % source[d], to_whole);
        if (place < 0) return -1;
        found += place * stride;
        stride *= target[d];
        index /= source[d];
    }
    return index == 0 ? found : -1;
}

int64_t tutti_layout_global(const tutti_layout *layout, int rank, int64_t index)
{
    return index < 0 ? -1 : convert_index(layout, rank, index, true);
}

int64_t tutti_layout_find(const tutti_layout *layout, int rank, int64_t index)
{
    return index < 0 ? -1 : convert_index(layout, rank, index, false);
}

/* Selects this rank's elements of the whole array. */
static bool selection_of(const tutti_layout *layout, int rank, struct tti_selection *selection)
{
    int most = 1;
    int64_t from, to;
    for (int d = 0; d < layout->dimensions; d++)
        if (tti_layout_sections(layout, d) > most) most = tti_layout_sections(layout, d);
    if (!tti_selection_make(selection, layout->dimensions, layout->shape, most)) return false;
    for (int d = 0; d < layout->dimensions; d++)
        for (int s = 0; s < tti_layout_sections(layout, d); s++) {
            tutti_layout_range(layout, rank, d, s, &from, &to);
            tti_selection_add(selection, d, from, to - from);
        }
    tti_selection_seal(selection);
    return true;
}

static tutti_status select_type(const tutti_layout *layout, int rank, tutti_type type, struct tti_selection *selection,
                                tutti_error *error)
{
    if (tutti_type_bytes(type) == 0)
        return tti_error_set(error, TUTTI_ERR_TYPE, 0, "layout: there is no element type %d", (int)type);
    if (!selection_of(layout, rank, selection))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "layout: no memory for the stretches of rank %d", rank);
    return TUTTI_OK;
}

tutti_status tutti_layout_take(const tutti_layout *layout, int rank, tutti_type type, const void *whole, void *local,
                               tutti_error *error)
{
    struct tti_selection selection;
    TTI_TRY(select_type(layout, rank, type, &selection, error));
    tti_selection_pack(&selection, whole, local, tutti_type_bytes(type));
    tti_selection_free(&selection);
    return TUTTI_OK;
}

tutti_status tutti_layout_put(const tutti_layout *layout, int rank, tutti_type type, const void *local, void *whole,
                              tutti_error *error)
{
    struct tti_selection selection;
    TTI_TRY(select_type(layout, rank, type, &selection, error));
    tti_selection_unpack(&selection, local, whole, tutti_type_bytes(type));
    tti_selection_free(&selection);
    return TUTTI_OK;
}

/* ---- Gradients ------------------------------------------------------------------------------------------------- */

void tutti_layout_dual(const tutti_layout *layout, tutti_layout *dual)
{
    static const tutti_placement duals[] = {
        [TUTTI_REPLICATED] = TUTTI_PARTIAL, [TUTTI_SHARDED] = TUTTI_SHARDED, [TUTTI_PARTIAL] = TUTTI_REPLICATED};
    tutti_layout made = *layout;
    for (int m = 0; m < made.mesh_dimensions; m++) made.along[m].placement = duals[made.along[m].placement];
    *dual = made;
}
