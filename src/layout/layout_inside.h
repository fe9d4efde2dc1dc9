/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts inside the library: where ranks are on the mesh, and where a dimension of the array is cut.
 */
#ifndef TTI_LAYOUT_LAYOUT_INSIDE_H
#define TTI_LAYOUT_LAYOUT_INSIDE_H

#include <tutti/layout.h>

/* A rank's place on the mesh; there are TUTTI_MESH_DIMENSIONS_MAX of them. */
void tti_layout_coordinates(const tutti_layout *layout, int rank, int *coordinates);

int tti_layout_sections(const tutti_layout *layout, int dimension);

/* True if this dimension of the mesh cuts that one of the array. */
bool tti_layout_cuts(const tutti_layout *layout, int along, int dimension);

/* What the rank at these coordinates has of one section of a dimension. Coordinates along dimensions of the mesh that do
 * not cut it do not count. */
void tti_layout_range(const tutti_layout *layout, const int *coordinates, int dimension, int section, int64_t *from,
                      int64_t *to);

/* Equal for layouts that are the same. */
uint64_t tti_layout_digest(uint64_t hash, const tutti_layout *layout);

#endif
