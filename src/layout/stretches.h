/* SPDX-License-Identifier: Apache-2.0
 *
 * The dimensions of an array, cut wherever one of two layouts cuts them, and who has each stretch in either of them.
 *
 * All that a redistribution asks is which elements a rank has, holds or needs. The answer is always a product over the
 * array's dimensions of stretches whose owners are right: a rule says for each dimension of the mesh which owner the
 * rank's own coordinate must be, if any.
 */
#ifndef TTI_LAYOUT_STRETCHES_H
#define TTI_LAYOUT_STRETCHES_H

#include "layout/selection.h"

enum tti_owner {
    TTI_ANYONE, /* along this dimension of the mesh all ranks have it */
    TTI_FROM,   /* the one who has it in the layout that is left */
    TTI_TO,     /* the one who has it in the layout that is made */
    TTI_ADDER,  /* the one who adds it up, where nothing else says who */
    TTI_FIRST   /* the one at coordinate 0, whatever it is */
};

struct tti_rule {
    enum tti_owner along[TUTTI_MESH_DIMENSIONS_MAX];
};

struct tti_stretch {
    int64_t from, to;
    int owners[TTI_FIRST][TUTTI_MESH_DIMENSIONS_MAX]; /* [FROM, TO or ADDER]: coordinates; -1: not cut along this one */
};

struct tti_stretches {
    const tutti_layout *from, *to;
    struct tti_stretch *list[TUTTI_DIMENSIONS_MAX];
    int counts[TUTTI_DIMENSIONS_MAX];
};

tutti_status tti_stretches_make(const tutti_layout *from, const tutti_layout *to, struct tti_stretches *stretches);
void tti_stretches_free(struct tti_stretches *stretches);

/* Cuts the dimension that has the longest stretches once more, for adders along the dimensions of the mesh `along` (a bit
 * for each), so that each stretch is shared by all of them. */
tutti_status tti_stretches_share(struct tti_stretches *stretches, unsigned along);

/* True if along this dimension of the mesh the same ranks have the same elements in both layouts. */
bool tti_stretches_agree(const struct tti_stretches *stretches, int along);

/* A rule and whose coordinates it is asked about. */
struct tti_asked {
    const struct tti_rule *rule;
    const int *coordinates;
};

/* The elements that both rules of `which` choose, in the array of those that both rules of `array` choose. */
tutti_status tti_stretches_select(const struct tti_stretches *stretches, const struct tti_asked array[2],
                                  const struct tti_asked which[2], struct tti_selection *selection);

#endif
