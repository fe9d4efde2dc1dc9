/* SPDX-License-Identifier: Apache-2.0
 *
 * The dimensions of an array, cut at every place where one of two layouts cuts them, with the owners of each stretch in
 * both.
 *
 * All questions of a redistribution are which elements a rank has, holds or needs. The answer is always a product, over
 * the array's dimensions, of stretches with the right owners: a rule says for each dimension of the mesh which owner
 * the rank's own coordinate must be, if any.
 */
#ifndef TTI_LAYOUT_STRETCHES_H
#define TTI_LAYOUT_STRETCHES_H

#include "layout/selection.h"

enum tti_owner {
    TTI_ANYONE, /* all ranks along this dimension of the mesh have it */
    TTI_FROM,   /* the rank that has it in the old layout */
    TTI_TO,     /* the rank that has it in the new layout */
    TTI_ADDER,  /* the rank that adds it up, if nothing else says which */
    TTI_FIRST   /* the rank at coordinate 0 */
};

struct tti_rule {
    enum tti_owner along[TUTTI_MESH_DIMENSIONS_MAX];
};

struct tti_stretch {
    int64_t from, to;
    /* [FROM, TO or ADDER]: coordinates; -1: not cut along this dimension */
    int owners[TTI_FIRST][TUTTI_MESH_DIMENSIONS_MAX];
};

struct tti_stretches {
    const tutti_layout *from, *to;
    struct tti_stretch *list[TUTTI_DIMENSIONS_MAX];
    int counts[TUTTI_DIMENSIONS_MAX];
};

tutti_status tti_stretches_make(const tutti_layout *from, const tutti_layout *to, struct tti_stretches *stretches);
void tti_stretches_free(struct tti_stretches *stretches);

/* Cuts the dimension with the longest stretches once more, for adders along the dimensions of the mesh `along` (a bit
 * for each), so that all of them share each stretch. */
tutti_status tti_stretches_share(struct tti_stretches *stretches, unsigned along);

/* Returns true if along this dimension of the mesh the same ranks have the same elements in both layouts. */
bool tti_stretches_agree(const struct tti_stretches *stretches, int along);

/* A rule, and the coordinates for which it is asked. */
struct tti_asked {
    const struct tti_rule *rule;
    const int *coordinates;
};

/* Selects the elements that both rules of `which` choose, in the array of those that both rules of `array` choose. */
tutti_status tti_stretches_select(const struct tti_stretches *stretches, const struct tti_asked array[2],
                                  const struct tti_asked which[2], struct tti_selection *selection);

#endif
