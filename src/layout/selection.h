/* SPDX-License-Identifier: Apache-2.0
 *
 * A selection: some elements of an array in memory, the product of runs along each of its dimensions, in the order of
 * memory. Elements that one rank packs from its selection are unpacked by another into its own: both have the same
 * elements of the whole array, in the same order, since places in a rank's array grow with places in the whole one.
 */
#ifndef TTI_LAYOUT_SELECTION_H
#define TTI_LAYOUT_SELECTION_H

#include <tutti/layout.h>

/* Neighbouring elements along one dimension. */
struct tti_run {
    int64_t from, count;
};

struct tti_selection {
    int dimensions;                        /* 1 to TUTTI_DIMENSIONS_MAX; fewer than the array has if runs join */
    int64_t extents[TUTTI_DIMENSIONS_MAX]; /* the extents of the array in which it lies */
    struct tti_run *runs[TUTTI_DIMENSIONS_MAX];
    int run_counts[TUTTI_DIMENSIONS_MAX];
    size_t count; /* elements */
};

/* Makes a selection in an array of these extents, without runs yet and with room for `most` along each dimension.
 * Returns false if there is no memory. */
bool tti_selection_make(struct tti_selection *selection, int dimensions, const int64_t *extents, int most);
void tti_selection_free(struct tti_selection *selection);
/* Appends a run along a dimension, behind all others. */
void tti_selection_add(struct tti_selection *selection, int dimension, int64_t from, int64_t count);
/* Called after the last run: counts the elements, and joins dimensions whose elements lie in one piece. */
void tti_selection_seal(struct tti_selection *selection);

/* Returns true if it is one piece of memory; `offset` is its first element. An empty selection is, at 0. */
bool tti_selection_is_piece(const struct tti_selection *selection, size_t *offset);

/* Copies the elements of one selection to those of another that has as many; `packed` has them one after the other. */
void tti_selection_copy(const struct tti_selection *from, const void *in, const struct tti_selection *to, void *out,
                        size_t bytes);
void tti_selection_pack(const struct tti_selection *from, const void *in, void *packed, size_t bytes);
void tti_selection_unpack(const struct tti_selection *to, const void *packed, void *out, size_t bytes);

#endif
