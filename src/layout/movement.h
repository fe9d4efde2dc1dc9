/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank does to bring an array from one layout to another: at most one collective that sums and one that moves,
 * with the selections of its own arrays that each of them reads and writes. Pure arithmetic; redistribution.c carries it out.
 *
 *     in ──sum──► held ──move──► out        held: the sums that this rank has added up; `in` itself where none are needed
 *                  └────keep────► out        keep: what was here and stays here
 */
#ifndef TTI_LAYOUT_MOVEMENT_H
#define TTI_LAYOUT_MOVEMENT_H

#include "layout/selection.h"

enum tti_transfer_kind {
    TTI_TRANSFER_NONE,
    TTI_TRANSFER_ALL_REDUCE,
    TTI_TRANSFER_REDUCE_SCATTER,
    TTI_TRANSFER_ALL_GATHER,
    TTI_TRANSFER_ALL_TO_ALL
};

/* One collective over the ranks that differ in some dimensions of the mesh only. */
struct tti_transfer {
    enum tti_transfer_kind kind;
    unsigned along; /* a bit for each dimension of the mesh; on all ranks the same, also where this one has no part */
    int size, rank; /* of the comm along these */
    /* What is read for each rank of the comm and what is written from each. Which are the same for all, or come in one
     * piece, there is one of: of an all_reduce both, of a reduce_scatter `out`, of an all_gather `in`. */
    struct tti_selection *in, *out;
    int in_selections, out_selections;
    size_t *counts, *offsets;         /* [size] of what is read where that differs by rank, in the packed form or, */
    size_t *out_counts, *out_offsets; /* where it is direct, in the array; and of what is written */
    size_t in_count, out_count;       /* elements of all */
    bool in_direct, out_direct;       /* the collective works on the array itself, from in_offset and out_offset on */
    size_t in_offset, out_offset;
};

struct tti_movement {
    struct tti_transfer sum, move;
    struct tti_selection keep_in, keep_out;
    size_t in_count, held_count, out_count; /* elements of this rank's arrays; held_count 0 where nothing is summed */
    bool sums;                              /* `held` is not `in` */
    bool fills;                             /* what of `out` nothing is written to gets the identity of sums */
    uint64_t sent, received;                /* elements */
};

/* Of layouts that are right, of one shape and on one mesh. ERR_MEMORY: nothing is left to free. */
tutti_status tti_movement_make(const tutti_layout *from, const tutti_layout *to, int rank,
                               struct tti_movement *movement);
void tti_movement_free(struct tti_movement *movement);

#endif
