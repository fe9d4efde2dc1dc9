/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps by which a world is built, for world.c and join*.c only.
 */
#ifndef TTI_WORLD_BUILD_H
#define TTI_WORLD_BUILD_H

#include "world/world.h"

/* Allocates memory and copies options; nothing is mapped yet, references = 1, processes empty. Release undoes whatever
 * was built. */
tutti_status tti_world_new(const char *job, int size, int process_count, const tutti_options *options,
                           struct tti_world **world, tutti_error *error);
/* Makes a new, committed control segment with this process's tuning. */
tutti_status tti_world_make_segment(struct tti_world *world, size_t area_bytes, bool shared, tutti_error *error);
/* Returns true if the mapped segment, which another process made, is one for this world. */
bool tti_world_segment_fits(const struct tti_world *world, size_t area_bytes);
/* Points segment and area into segment_mapping. */
void tti_world_attach_segment(struct tti_world *world);
void tti_world_place_rank(struct tti_world *world, int rank, int process, int pid);
/* Returns a descriptor that polls readable when the process has ended; -1 with errno. */
int tti_world_pidfd(int pid);

#endif
