/* SPDX-License-Identifier: Apache-2.0
 *
 * Subtrees of the canonical tree over ranks (reduce.h). Its nodes are the ranges [k * 2^j, (k + 1) * 2^j), cut off at
 * the number of ranks. Ranks that are combined before they travel, on one host or by one member of an exchange, may be
 * folded into the largest nodes that they cover, and no further.
 */
#ifndef TTI_COLLECTIVE_SUBTREE_H
#define TTI_COLLECTIVE_SUBTREE_H

struct tti_subtree {
    int first, ranks;
    int owner;
};

/* Lists the largest subtrees whose ranks have one owner, in rank order; those of owner -1 are left out. `list` has room
 * for `size`; returns how many there are. */
int tti_subtrees_by_owner(const int *owner_of, int size, struct tti_subtree *list);

/* Lists the largest subtrees of a tree over `size` ranks that make up [first, last), in rank order: at most two per
 * bit. */
int tti_subtrees_of_range(int first, int last, int size, struct tti_subtree *list);

/* Lists those of one host. */
int tti_subtrees(const int *host_of, int size, int host, struct tti_subtree *list);

#endif
