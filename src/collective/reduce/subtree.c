/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/reduce/subtree.h"

#include <stdbool.h>

/* Returns true if both form one node: `right` must be complete, or the last one. */
static bool one_node(const struct tti_subtree *left, const struct tti_subtree *right)
{
    return left->owner == right->owner && right->ranks <= left->ranks && left->first % (2 * left->ranks) == 0;
}

int tti_subtrees_by_owner(const int *owner_of, int size, struct tti_subtree *list)
{
    int used = 0;
    for (int rank = 0; rank < size; rank++) {
        list[used++] = (struct tti_subtree){rank, 1, owner_of[rank]};
        while (used > 1 && list[used - 1].ranks == list[used - 2].ranks && one_node(&list[used - 2], &list[used - 1]))
            list[--used - 1].ranks *= 2;
    }
    while (used > 1 && one_node(&list[used - 2], &list[used - 1])) {
        list[used - 2].ranks += list[used - 1].ranks;
        used--;
    }
    int kept = 0;
    for (int i = 0; i < used; i++)
        if (list[i].owner >= 0) list[kept++] = list[i];
    return kept;
}

int tti_subtrees_of_range(int first, int last, int size, struct tti_subtree *list)
{
    int used = 0;
    while (first < last) {
        int ranks = 1, left = last - first;
        while (ranks < left && first % (2 * ranks) == 0) ranks *= 2; /* the largest node that begins here */
        while (ranks > left && last != size) ranks /= 2;
        if (ranks > left) ranks = left; /* the last node of the tree is cut off */
        list[used++] = (struct tti_subtree){first, ranks, 0};
        first += ranks;
    }
    return used;
}

int tti_subtrees(const int *host_of, int size, int host, struct tti_subtree *list)
{
    int used = tti_subtrees_by_owner(host_of, size, list), kept = 0;
    for (int i = 0; i < used; i++)
        if (list[i].owner == host) list[kept++] = list[i];
    return kept;
}
