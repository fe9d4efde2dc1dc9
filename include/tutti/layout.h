/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti: arrays that the ranks of a mesh have together: how one lies on them, and how it comes to lie otherwise.
 *
 *     int64_t shape[] = {768, 2304};
 *     tutti_layout columns, whole;
 *     tutti_layout_init(&whole, mesh, 2, shape, &error);                  every rank has all of it
 *     columns = whole;
 *     tutti_layout_place(&columns, "tensor", TUTTI_SHARDED, 1, &error);   each rank has some columns
 *     tutti_redistribution_create(mesh, &columns, &whole, TUTTI_F32, &gather, &error);
 *     tutti_redistribution_run(gather, mine, all);                        as often as wanted
 *
 * A layout is an array's global shape and one placement for each dimension of the mesh. Everything about it but a
 * redistribution is pure arithmetic: no rank talks to another. Conventions are those of tutti.h. examples/layout.c is a
 * whole program.
 */
#ifndef TUTTI_LAYOUT_H
#define TUTTI_LAYOUT_H

#include <stdbool.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Layouts --------------------------------------------------------------------------------------------------- */

enum { TUTTI_DIMENSIONS_MAX = 4, TUTTI_MESH_DIMENSIONS_MAX = 16, TUTTI_MESH_NAME_BYTES = 32 };

/* How an array lies on the ranks along one dimension of a mesh. */
typedef enum tutti_placement {
    TUTTI_REPLICATED, /* each has all of it, the same values */
    TUTTI_SHARDED,    /* each has a part, cut along one dimension of the array */
    TUTTI_PARTIAL     /* each has a summand of it; the array is their sum */
} tutti_placement;

typedef struct tutti_along {
    char name[TUTTI_MESH_NAME_BYTES]; /* of the mesh's dimension: "tensor" */
    int size;                         /* ranks along it */
    tutti_placement placement;
    int dimension; /* SHARDED: the dimension of the array that is cut */
} tutti_along;

/* A plain struct, which can be filled in before there is a mesh. A dimension of the array is cut like this: into
 * `sections` of one length, each of them into `grains`, and the ranks get successive whole grains of every section. If
 * grains or elements do not divide evenly, the first parts have one more; a rank may have none. Several dimensions of
 * the mesh may cut the same one of the array: a later one cuts what an earlier one has left.
 *
 * GPT-2's c_attn.weight is (width, 3 * width): queries, keys and values, each cut between heads. With 12 heads:
 *     .sections = {1, 3}, .grains = {0, 12}, and "tensor" is SHARDED on dimension 1. */
typedef struct tutti_layout {
    int dimensions;
    int64_t shape[TUTTI_DIMENSIONS_MAX];  /* of the whole array, row-major */
    int sections[TUTTI_DIMENSIONS_MAX];   /* divide the shape; 0 is 1 */
    int64_t grains[TUTTI_DIMENSIONS_MAX]; /* of each section; 0: every element is one */
    int mesh_dimensions;
    tutti_along along[TUTTI_MESH_DIMENSIONS_MAX]; /* the last one varies fastest over ranks */
} tutti_layout;

/* Makes a layout that is replicated along all dimensions of the mesh. */
TUTTI_API tutti_status tutti_layout_init(tutti_layout *layout, const tutti_mesh *mesh, int dimensions,
                                         const int64_t *shape, tutti_error *error);
/* Sets the placement along the mesh's dimension `name`. `dimension` counts for SHARDED only. ERR_ARGUMENT: there is no
 * such dimension. */
TUTTI_API tutti_status tutti_layout_place(tutti_layout *layout, const char *name, tutti_placement placement,
                                          int dimension, tutti_error *error);
/* Checks a layout: ERR_ARGUMENT, or ERR_COUNT if there are too many elements, says what is wrong with it. The functions
 * below expect layouts and ranks that are right. */
TUTTI_API tutti_status tutti_layout_check(const tutti_layout *layout, tutti_error *error);

/* Writes "768x2304 data=2:replicated tensor=4:sharded(1, 3 sections, 12 grains)", as much as there is room for. */
TUTTI_API void tutti_layout_describe(const tutti_layout *layout, char *text, size_t bytes);
TUTTI_API int tutti_layout_ranks(const tutti_layout *layout);

/* Returns how many elements a rank has; `shape` (may be NULL) gets its extents. */
TUTTI_API size_t tutti_layout_local(const tutti_layout *layout, int rank, int64_t *shape);
/* Tells which part of one section of a dimension a rank has: `from` to `to` - 1, counted over the whole dimension. The
 * sections' ranges lie one after the other in its own array. */
TUTTI_API void tutti_layout_range(const tutti_layout *layout, int rank, int dimension, int section, int64_t *from,
                                  int64_t *to);
/* Returns where element number `index` of a rank's own array is in the whole one. tutti_layout_find goes the other way,
 * -1: the rank lacks it. */
TUTTI_API int64_t tutti_layout_global(const tutti_layout *layout, int rank, int64_t index);
TUTTI_API int64_t tutti_layout_find(const tutti_layout *layout, int rank, int64_t index);

/* Copy a rank's elements out of the whole array, and back into it. They treat partial placements as replicated ones.
 * ERR_MEMORY: there is none for the way. */
TUTTI_API tutti_status tutti_layout_take(const tutti_layout *layout, int rank, tutti_type type, const void *whole,
                                         void *local, tutti_error *error);
TUTTI_API tutti_status tutti_layout_put(const tutti_layout *layout, int rank, tutti_type type, const void *local,
                                        void *whole, tutti_error *error);

/* Gives the layout of an array's gradient after a backward pass in which each rank did its own part: a replicated array
 * has a gradient in summands, a sum has the same gradient on each rank, shards have shards. */
TUTTI_API void tutti_layout_dual(const tutti_layout *layout, tutti_layout *dual);

/* ---- Redistribution -------------------------------------------------------------------------------------------- */
/* From any layout of an array to any other on the same mesh, with the least data moved:
 *
 *     sharded to sharded        only what changes hands is sent
 *     sharded to replicated     an all_gather
 *     partial to sharded        a reduce_scatter
 *     partial to replicated     an all_reduce
 *     to partial                nothing is sent: who has an element contributes it, along a replicated dimension the
 *                               first rank; all others contribute −0.0 (of integers 0), which changes no sum
 *     replicated to anything    nothing is sent
 *
 * Dimensions of the mesh may change in different ways at once: then sums come first, over all dimensions that are summed
 * together, and what is left to move follows. Replicas along a dimension work beside each other, each with what its own
 * coordinate has. Sums are those of one collective in the canonical order over the ranks of these dimensions, so that
 * results are, bit for bit, those of gathering everything, summing and slicing. */

typedef struct tutti_redistribution tutti_redistribution;

/* Collective over the mesh, which must outlive it: ranks compare their layouts (ERR_MISMATCH names both), the mesh's comms
 * that it needs are made, and memory. On failure *made is NULL. */
TUTTI_API tutti_status tutti_redistribution_create(tutti_mesh *mesh, const tutti_layout *from, const tutti_layout *to,
                                                   tutti_type type, tutti_redistribution **made, tutti_error *error);
/* The backward pass: the adjoint of the linear map that the redistribution is. It takes the gradient of what came out,
 * in the dual layout of `to`, to the gradient of what went in, in the dual layout of `from`: an all_gather's is a
 * reduce_scatter, a slice's puts it among −0.0, an all_reduce's is an all_reduce. To have the whole gradient of
 * something replicated on each rank, redistribute it from partial to replicated after that. Collective. */
TUTTI_API tutti_status tutti_redistribution_adjoint(const tutti_redistribution *redistribution,
                                                    tutti_redistribution **made, tutti_error *error);
TUTTI_API void tutti_redistribution_free(tutti_redistribution *redistribution); /* not collective; NULL is ignored */

/* Collective, on comms of the mesh. `in` is as large as this rank's part of `from`, `out` as that of `to`. They lie
 * apart (ERR_OVERLAP); in == out is allowed where in_place of its description is set. tutti_explain tells what
 * failed. */
TUTTI_API tutti_status tutti_redistribution_run(tutti_redistribution *redistribution, const void *in, void *out);
/* The same in two parts: start packs and starts the first collective, end does the rest. In between, the buffers belong to
 * the redistribution, which is in one such pair at a time, and ops on the same comms of the mesh go behind it. */
TUTTI_API tutti_status tutti_redistribution_start(tutti_redistribution *redistribution, const void *in, void *out);
TUTTI_API tutti_status tutti_redistribution_end(tutti_redistribution *redistribution);

/* Creates a redistribution, runs it once and frees it. */
TUTTI_API tutti_status tutti_redistribute(tutti_mesh *mesh, const tutti_layout *from, const void *in,
                                          const tutti_layout *to, void *out, tutti_type type, tutti_error *error);

typedef struct tutti_redistribution_about {
    size_t struct_size;  /* to be set before the call */
    const char *sums;    /* "none", "all_reduce" or "reduce_scatter" */
    const char *moves;   /* "none", "all_gather" or "all_to_all" */
    uint64_t sent_bytes; /* of this rank's elements, to others; of sums, summands of what the others add up */
    uint64_t received_bytes;
    uint64_t memory_bytes; /* this rank holds for it */
    bool in_place;
} tutti_redistribution_about;

/* An all_reduce counts as what each rank's slice takes: the others' summands of it, then the others' slices. */
TUTTI_API void tutti_redistribution_describe(const tutti_redistribution *redistribution,
                                             tutti_redistribution_about *about);

/* Tells where its next call is, for errors; as tutti_at. */
TUTTI_API tutti_redistribution *tutti_redistribution_at(tutti_redistribution *redistribution, const char *file,
                                                        int line);

#define TUTTI_LAYOUT_DECLARED
#include <tutti/call_sites.h>

#ifdef __cplusplus
}
#endif
#endif
