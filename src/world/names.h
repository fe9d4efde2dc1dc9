/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of a process's ranks in errors.
 */
#ifndef TTI_WORLD_NAMES_H
#define TTI_WORLD_NAMES_H

#include <stdio.h>

/* "rank 3", or "ranks 6 to 7" if there are several. */
struct tti_ranks_name {
    char text[40];
};

static inline struct tti_ranks_name tti_ranks_name(int first, int count)
{
    struct tti_ranks_name name;
    if (count == 1)
        snprintf(name.text, sizeof name.text, "rank %d", first);
    else
        snprintf(name.text, sizeof name.text, "ranks %d to %d", first, first + count - 1);
    return name;
}

#endif
