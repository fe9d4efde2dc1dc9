/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of structs that contain their own link: adding one needs no memory, and removing one needs no search. The list
 * itself is a link, too, of the ring that its elements form.
 */
#ifndef TTI_BASE_LIST_H
#define TTI_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct tti_link {
    struct tti_link *next, *previous;
};

static inline void tti_list_init(struct tti_link *list)
{
    list->next = list->previous = list;
}

static inline bool tti_list_is_empty(const struct tti_link *list)
{
    return list->next == list;
}

static inline void tti_list_append(struct tti_link *list, struct tti_link *link)
{
    link->next = list;
    link->previous = list->previous;
    list->previous->next = link;
    list->previous = link;
}

/* Removes a link. It may be on no list if it was initialised as one. */
static inline void tti_list_remove(struct tti_link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    tti_list_init(link);
}

/* The struct whose `member` this link is. */
#define TTI_LIST_OF(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Visits every link of a list; the current one may be removed meanwhile. */
#define TTI_LIST_EACH(link, list)                                                                                      \
    for (struct tti_link *link = (list)->next, *link##_next = link->next; link != (list);                              \
         link = link##_next, link##_next = link->next)

#endif
