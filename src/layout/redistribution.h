/* SPDX-License-Identifier: Apache-2.0
 *
 * Redistributions inside the library: a movement, the comms for it, and memory for data on their way.
 */
#ifndef TTI_LAYOUT_REDISTRIBUTION_H
#define TTI_LAYOUT_REDISTRIBUTION_H

#include "collective/api/inside.h"
#include "layout/movement.h"

struct tutti_redistribution {
    tutti_mesh *mesh;
    tutti_comm *all; /* of all ranks of the mesh */
    struct tti_here here;
    tutti_layout from, to;
    tutti_type type;
    size_t bytes; /* bytes of an element */
    struct tti_movement movement;
    tutti_comm *sum_comm, *move_comm; /* NULL: not needed */

    void *packed, *arrived; /* for one collective, if its selections are no pieces of the arrays */
    void *held;             /* sums, if they do not lie in `out` at once */
    bool held_in_out;
    size_t held_offset; /* the offset in `out` */
    size_t memory_bytes;

    bool running;
    const char *in; /* arguments of the run that was started */
    char *out;
    tutti_op op; /* the collective that is running */
};

/* Tells all ranks whether one of them has failed (`status`, `error`), or whether they have different
 * redistributions. */
tutti_status tti_redistribution_agree(const struct tutti_redistribution *redistribution, tutti_status status,
                                      tutti_error *error);

/* Fills elements with the value that changes no sum: −0.0, for integers 0. */
void tti_fill_identity(void *values, size_t count, tutti_type type);

#endif
