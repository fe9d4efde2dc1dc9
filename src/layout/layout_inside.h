/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts inside the library: the place of ranks on the mesh, and the cuts of the array's dimensions.
 */
#ifndef TTI_LAYOUT_LAYOUT_INSIDE_H
#define TTI_LAYOUT_LAYOUT_INSIDE_H

#include <tutti/layout.h>

/* Sets a rank's place on the mesh; there are TUTTI_MESH_DIMENSIONS_MAX coordinates. */
void tti_layout_coordinates(const tutti_layout *layout, int rank, int *coordinates);

int tti_layout_sections(const tutti_layout *layout, int dimension);

/* Returns true if this dimension of the mesh cuts that one of the array. */
bool tti_layout_cuts(const tutti_layout *layout, int along, int dimension);

/* Sets the range of one section of a dimension that the rank at these coordinates has. Coordinates along dimensions of
 * the mesh that do not cut it do not count. */
void tti_layout_range(const tutti_layout *layout, const int *coordinates, int dimension, int section, int64_t *from,
                      int64_t *to);

/* Returns a digest that is equal for equal layouts. */
uint64_t tti_layout_digest(uint64_t hash, const tutti_layout *layout);

#endif
