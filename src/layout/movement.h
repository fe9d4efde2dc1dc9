/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank does to bring an array from one layout to another: at most one collective that sums and one that moves,
 * with the selections of its own arrays that each of them reads and writes. Pure arithmetic; redistribution_run.c
 * carries it out.
 *
 *     in ──sum──► held ──move──► out        held: the sums that this rank has added up; `in` if nothing is summed
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

/* One collective over the ranks that differ only in some dimensions of the mesh. */
struct tti_transfer {
    enum tti_transfer_kind kind;
    /* a bit for each dimension of the mesh; the same on all ranks, also if this one has no part in it */
    unsigned along;
    int size, rank; /* the size of the comm along these, and the rank in it */
    /* The selections that are read for each rank of the comm, and written from each. There is a single one if they are
     * the same for all ranks, or come in one piece: both of an all_reduce, `out` of a reduce_scatter, `in` of an
     * all_gather. */
    struct tti_selection *in, *out;
    int in_selections, out_selections;
    /* [size] for reads, if they differ by rank: in the packed form or, if direct, in the array */
    size_t *counts, *offsets;
    size_t *out_counts, *out_offsets; /* [size] the same for writes */
    size_t in_count, out_count;       /* elements in all */
    bool in_direct, out_direct;       /* the collective works on the array itself, from in_offset and out_offset on */
    size_t in_offset, out_offset;
};

struct tti_movement {
    struct tti_transfer sum, move;
    struct tti_selection keep_in, keep_out;
    size_t in_count, held_count, out_count; /* elements of this rank's arrays; held_count is 0 if nothing is summed */
    bool sums;                              /* `held` is not `in` */
    bool fills;                             /* elements of `out` that are not written get the identity of sums */
    uint64_t sent, received;                /* elements */
};

/* Makes a movement between layouts that were checked, of one shape and on one mesh. ERR_MEMORY: nothing is left to
 * free. */
tutti_status tti_movement_make(const tutti_layout *from, const tutti_layout *to, int rank,
                               struct tti_movement *movement);
void tti_movement_free(struct tti_movement *movement);

#endif
