/* SPDX-License-Identifier: Apache-2.0
 *
 * Pointers by a number below `size`, of which a few may be there of very many: what one rank keeps about each of the others.
 * Where there are not many, the number is the place; else places are found by a hash of the number, so that the order in
 * which a table is gone through is the same in every run.
 */
#ifndef TTI_BASE_TABLE_H
#define TTI_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { TTI_TABLE_DIRECT = 128 }; /* numbers, up to which each has its place */

struct tti_table {
    int size;
    size_t room, used; /* places, and those with a number; no memory is taken before the first */
    void **values;     /* (room) NULL: nothing is there */
    int *numbers;      /* (room) of the places, from 1, or 0; NULL: each number has its own */
};

#define TTI_TABLE(of) ((struct tti_table){.size = (of)})

void *tti_table_find(const struct tti_table *table, int number);

static inline void *tti_table_get(const struct tti_table *table, int number)
{
    if (table->numbers != NULL) return tti_table_find(table, number);
    return table->values == NULL ? NULL : table->values[number];
}

/* NULL takes out what is there. False: no memory, and nothing has changed. */
bool tti_table_set(struct tti_table *table, int number, void *value);

/* To go through it: the next place from this one on where something is, or `room`; and its number. */
size_t tti_table_next(const struct tti_table *table, size_t place);
static inline int tti_table_number(const struct tti_table *table, size_t place)
{
    return table->numbers == NULL ? (int)place : table->numbers[place] - 1;
}
#define TTI_TABLE_EACH(place, table)                                                                                   \
    for (size_t place = tti_table_next(table, 0); place < (table)->room; place = tti_table_next(table, place + 1))

void tti_table_free(struct tti_table *table); /* not what is in it */

#endif
